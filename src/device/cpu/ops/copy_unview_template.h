/* copy_unview_template.h: target += g in row-major order, in compute type T; included by copy.c once per type. */

static void NAME(add_in_order)(const tl_operand *target, const tl_operand *g) {
    struct iterate walk;
    iterate_begin(&walk, g->rank, g->shape, (const tl_operand *[]){target, g}, 2, ITERATE_ROW_MAJOR);
    const int64_t target_stride = walk.step[0] / iterate_element_bytes(target->dtype);
    const int64_t g_stride = walk.step[1] / iterate_element_bytes(g->dtype);
    const int64_t length = target_stride == 0 ? 1 : CHUNK;

    T sum[CHUNK], addend[CHUNK];
    struct iterate_run run;
    iterate_seek(&walk, &run, 0, walk.n);
    while (iterate_next(&walk, &run, length)) {
        NAME(convert_to)(sum, run.data[0], target->dtype, target_stride, run.length);
        NAME(convert_to)(addend, run.data[1], g->dtype, g_stride, run.length);
        for (int64_t i = 0; i < run.length; i++) sum[i] = (T)((ARITHMETIC)sum[i] + (ARITHMETIC)addend[i]);
        NAME(convert_from)(run.data[0], target->dtype, target_stride, sum, run.length);
    }
}

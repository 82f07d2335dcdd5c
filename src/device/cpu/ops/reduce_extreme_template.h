/* reduce_extreme_template.h: shares of ties in compute type T; included by reduce.c once per type. */

/* dx = 1 where x = y, otherwise 0. NaN equals nothing. */
static void TYPE(mark_ties)(void *context, int64_t first, int64_t last) {
    const struct share_task *task = context;
    const int64_t bytes = iterate_element_bytes(task->dtype);
    const int64_t *step = task->walk.step;
    T x[BLOCK], y[BLOCK];
    struct iterate_run run;
    iterate_seek(&task->walk, &run, first, last);
    while (iterate_next(&task->walk, &run, BLOCK)) {
        TYPE(convert_to)(x, run.data[1], task->dtype, step[1] / bytes, run.length);
        TYPE(convert_to)(y, run.data[2], task->dtype, step[2] / bytes, run.length);
        for (int64_t i = 0; i < run.length; i++) x[i] = x[i] == y[i] ? (T)1 : (T)0;
        TYPE(convert_from)(run.data[0], task->dtype, step[0] / bytes, x, run.length);
    }
}

/* dx = dx / n g, rounded once; where nothing is a tie, 0 / 0 */
static void TYPE(share_gradient)(void *context, int64_t first, int64_t last) {
    const struct share_task *task = context;
    const int64_t bytes = iterate_element_bytes(task->dtype);
    const int64_t *step = task->walk.step;
    T tie[BLOCK], g[BLOCK], n[BLOCK];
    struct iterate_run run;
    iterate_seek(&task->walk, &run, first, last);
    while (iterate_next(&task->walk, &run, BLOCK)) {
        TYPE(convert_to)(tie, run.data[0], task->dtype, step[0] / bytes, run.length);
        TYPE(convert_to)(n, run.data[1], task->sum_dtype, step[1] / (int64_t)sizeof(T), run.length);
        TYPE(convert_to)(g, run.data[2], task->dtype, step[2] / bytes, run.length);
        for (int64_t i = 0; i < run.length; i++) tie[i] = tie[i] / n[i] * g[i];
        TYPE(convert_from)(run.data[0], task->dtype, step[0] / bytes, tie, run.length);
    }
}

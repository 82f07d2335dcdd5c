/* clip_template.h: the loop of clip.c for one compute type. REAL, REAL_DTYPE and NAME are set by the includer. */

static double NAME(run_squares)(const struct squares *s, const struct iterate_run *run) {
    const int64_t stride = s->walk.step[0] / iterate_element_bytes(s->dtype), n = run->length;
    const REAL *x = (const REAL *)(const void *)run->data[0];
    REAL buffer[BLOCK], lane[BLOCK_LANES] = {0};
    if (s->dtype != REAL_DTYPE || stride != 1) {
        NAME(convert_to)(buffer, run->data[0], s->dtype, stride, n);
        x = buffer;
    }
    int64_t i = 0;
    for (; i + BLOCK_LANES <= n; i += BLOCK_LANES)
        for (int j = 0; j < BLOCK_LANES; j++) lane[j] += x[i + j] * x[i + j];
    for (int j = 0; i + j < n; j++) lane[j] += x[i + j] * x[i + j];
    return (double)NAME(block_total)(lane);
}

static void NAME(squares)(void *context, int64_t first, int64_t last) {
    const struct squares *s = context;
    for (int64_t chunk = first; chunk < last; chunk++) {
        struct iterate_run run;
        double total = 0;
        iterate_seek(&s->walk, &run, chunk * REDUCE_CHUNK, block_min((chunk + 1) * REDUCE_CHUNK, s->walk.n));
        while (iterate_next(&s->walk, &run, BLOCK)) total += NAME(run_squares)(s, &run);
        s->sums[chunk] = total;
    }
}

#undef REAL
#undef REAL_DTYPE
#undef NAME

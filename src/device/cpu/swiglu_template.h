/* swiglu_template.h: the loop of swiglu.c for one compute type. REAL and NAME are set by the includer. */

static void NAME(swiglu_grad_range)(void *context, int64_t first, int64_t last) {
    const struct swiglu *swiglu = context;
    REAL x[OPERANDS][PIECE];
    struct iterate_run run;
    iterate_seek(&swiglu->walk, &run, first, last);
    while (iterate_next(&swiglu->walk, &run, PIECE)) {
        for (int k = GATE; k < OPERANDS; k++) {
            NAME(convert_to)(x[k], run.data[k], swiglu->dtype[k], swiglu->stride[k], run.length);
        }
        for (int64_t i = 0; i < run.length; i++) {
            x[D_UP][i] = x[G][i] * NAME(vector_silu)(x[GATE][i]);
            x[D_GATE][i] = (x[G][i] * x[UP][i]) * NAME(vector_silu_slope)(x[GATE][i]);
        }
        for (int k = D_GATE; k <= D_UP; k++) {
            NAME(convert_from)(run.data[k], swiglu->dtype[k], swiglu->stride[k], x[k], run.length);
        }
    }
}

#undef REAL
#undef NAME

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
        int64_t i = 0;
        for (; i + VECTOR_TILE <= run.length; i += VECTOR_TILE) {
            REAL gate[VECTOR_TILE], slope[VECTOR_TILE];
            memcpy(gate, x[GATE] + i, sizeof gate);
            for (int k = 0; k < VECTOR_TILE; k++) NAME(vector_silu_both)(gate[k], &gate[k], &slope[k]);
            for (int k = 0; k < VECTOR_TILE; k++) x[D_UP][i + k] = x[G][i + k] * gate[k];
            for (int k = 0; k < VECTOR_TILE; k++) x[D_GATE][i + k] = (x[G][i + k] * x[UP][i + k]) * slope[k];
        }
        for (; i < run.length; i++) {
            REAL value, slope;
            NAME(vector_silu_both)(x[GATE][i], &value, &slope);
            x[D_UP][i] = x[G][i] * value;
            x[D_GATE][i] = (x[G][i] * x[UP][i]) * slope;
        }
        for (int k = D_GATE; k <= D_UP; k++) {
            NAME(convert_from)(run.data[k], swiglu->dtype[k], swiglu->stride[k], x[k], run.length);
        }
    }
}

#undef REAL
#undef NAME

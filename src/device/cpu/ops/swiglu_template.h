/* swiglu_template.h: the loop of swiglu.c for one compute type. REAL, REAL_DTYPE and NAME are set by the includer. */

typedef REAL NAME(piece)[PIECE];

static void NAME(swiglu_grad_range)(void *context, int64_t first, int64_t last) {
    const struct swiglu *swiglu = context;
    SCRATCH_ARRAY(NAME(piece), buffer, OPERANDS);
    struct iterate_run run;
    iterate_seek(&swiglu->walk, &run, first, last);
    while (iterate_next(&swiglu->walk, &run, PIECE)) {
        REAL *x[OPERANDS];
        for (int k = 0; k < OPERANDS; k++) {
            const bool is_direct = swiglu->dtype[k] == REAL_DTYPE && swiglu->stride[k] == 1;
            x[k] = is_direct ? (REAL *)(void *)run.data[k] : buffer[k];
            if (!is_direct && k >= GATE)
                NAME(convert_to)(x[k], run.data[k], swiglu->dtype[k], swiglu->stride[k], run.length);
        }
        int64_t i = 0;
        for (; i + VECTOR_TILE <= run.length; i += VECTOR_TILE) {
            REAL gate[VECTOR_TILE], slope[VECTOR_TILE], up[VECTOR_TILE], g[VECTOR_TILE];
            memcpy(gate, x[GATE] + i, sizeof gate);
            memcpy(up, x[UP] + i, sizeof up);
            memcpy(g, x[G] + i, sizeof g);
            for (int k = 0; k < VECTOR_TILE; k++) NAME(vector_silu_both)(gate[k], &gate[k], &slope[k]);
            for (int k = 0; k < VECTOR_TILE; k++) gate[k] *= g[k];
            for (int k = 0; k < VECTOR_TILE; k++) slope[k] *= g[k] * up[k];
            memcpy(x[D_UP] + i, gate, sizeof gate);
            memcpy(x[D_GATE] + i, slope, sizeof slope);
        }
        for (; i < run.length; i++) {
            REAL value, slope;
            const REAL g = x[G][i], up = x[UP][i];
            NAME(vector_silu_both)(x[GATE][i], &value, &slope);
            x[D_UP][i] = g * value;
            x[D_GATE][i] = (g * up) * slope;
        }
        for (int k = D_GATE; k <= D_UP; k++) {
            if (x[k] == buffer[k])
                NAME(convert_from)(run.data[k], swiglu->dtype[k], swiglu->stride[k], x[k], run.length);
        }
    }
}

#undef REAL
#undef REAL_DTYPE
#undef NAME

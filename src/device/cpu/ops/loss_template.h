/* loss_template.h: the loops of loss.c for one compute type. REAL and NAME are set by the includer. */

/* Binary cross entropy of logits, (1 - t) x + max(-x, 0) + log(1 + e^-|x|), added in this order, so that the last
 * term alone remains where a large logit is right. */
static void NAME(bce)(REAL *out, const REAL *const *in, int64_t n, const void *attr) {
    (void)attr;
    for (int64_t i = 0; i < n; i += VECTOR_TILE) {
        const int length = (int)block_min(VECTOR_TILE, n - i);
        REAL x[VECTOR_TILE] = {0}, t[VECTOR_TILE] = {0};
        memcpy(x, in[0] + i, (size_t)length * sizeof *x);
        memcpy(t, in[1] + i, (size_t)length * sizeof *t);
        for (int k = 0; k < VECTOR_TILE; k++)
            x[k] = (1 - t[k]) * x[k] + NAME(vector_positive)(-x[k]) + NAME(vector_log1p_exp_falling)(x[k]);
        memcpy(out + i, x, (size_t)length * sizeof *x);
    }
}

#undef REAL
#undef NAME

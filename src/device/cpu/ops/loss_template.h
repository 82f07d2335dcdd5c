/* loss_template.h: the loops of loss.c for one compute type. REAL and NAME are set by the includer. */

#include "device/cpu/shared/lse_template.h"

static void NAME(log_softmax_rows)(void *context, int64_t first, int64_t last) {
    const struct loss *loss = context;
    const tl_operand *x = loss->x, *out = loss->out;
    SCRATCH_ARRAY(REAL, buffer, BLOCK);
    SCRATCH_ARRAY(REAL, out_buffer, BLOCK);
    for (int64_t row = first; row < last; row++) {
        REAL shift;
        const REAL log_sum = NAME(row_log_sum)(x, row, loss->V, &shift, buffer, out_buffer);
        for (int64_t c = 0; c < loss->V; c += BLOCK) {
            const int64_t n = block_min(BLOCK, loss->V - c), at = row * loss->V + c;
            const REAL *from = NAME(block_read)(buffer, x->data, x->dtype, at, n);
            REAL *to = NAME(block_place)(out_buffer, out->data, out->dtype, at);
            for (int64_t i = 0; i < n; i++) to[i] = from[i] - shift - log_sum;
            NAME(block_write)(to, out->data, out->dtype, at, n);
        }
    }
}

/* In lanes within a block; blocks are added in f64. */
static REAL NAME(row_sum)(const tl_operand *g, int64_t row, int64_t V) {
    REAL buffer[BLOCK];
    double sum = 0;
    for (int64_t c = 0; c < V; c += BLOCK) {
        const int64_t n = block_min(BLOCK, V - c);
        const REAL *part = NAME(block_read)(buffer, g->data, g->dtype, row * V + c, n);
        REAL lane[BLOCK_LANES] = {0};
        int64_t i = 0;
        for (; i + BLOCK_LANES <= n; i += BLOCK_LANES)
            for (int j = 0; j < BLOCK_LANES; j++) lane[j] += part[i + j];
        for (int j = 0; i + j < n; j++) lane[j] += part[i + j];
        sum += (double)NAME(block_total)(lane);
    }
    return (REAL)sum;
}

/* g - e^y sum(g) */
static void NAME(log_softmax_grad_rows)(void *context, int64_t first, int64_t last) {
    const struct loss *loss = context;
    const tl_operand *y = loss->x, *g = loss->g, *out = loss->out;
    SCRATCH_ARRAY(REAL, y_buffer, BLOCK);
    SCRATCH_ARRAY(REAL, g_buffer, BLOCK);
    SCRATCH_ARRAY(REAL, out_buffer, BLOCK);
    for (int64_t row = first; row < last; row++) {
        const REAL sum = NAME(row_sum)(g, row, loss->V);
        for (int64_t c = 0; c < loss->V; c += BLOCK) {
            const int64_t n = block_min(BLOCK, loss->V - c), at = row * loss->V + c;
            const REAL *y_part = NAME(block_read)(y_buffer, y->data, y->dtype, at, n);
            const REAL *g_part = NAME(block_read)(g_buffer, g->data, g->dtype, at, n);
            REAL *to = NAME(block_place)(out_buffer, out->data, out->dtype, at);
            VECTOR_LOOP
            for (int64_t i = 0; i < n; i++) to[i] = g_part[i] - NAME(vector_exp)(y_part[i]) * sum;
            NAME(block_write)(to, out->data, out->dtype, at, n);
        }
    }
}

/* Binary cross entropy of logits, (1 - t) x + max(-x, 0) + log(1 + e^-|x|), added in this order: the last term alone is left
 * where a large logit is right. */
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

/* reduce_log_softmax_template.h: the loops of reduce_log_softmax.c for one compute type. REAL and NAME are set by
 * the includer. */

#include "device/cpu/shared/lse_template.h"

static void NAME(log_softmax_rows)(void *context, int64_t first, int64_t last) {
    const struct log_softmax *task = context;
    const tl_operand *x = task->x, *out = task->out;
    SCRATCH_ARRAY(REAL, buffer, BLOCK);
    SCRATCH_ARRAY(REAL, out_buffer, BLOCK);
    for (int64_t row = first; row < last; row++) {
        REAL shift;
        const REAL log_sum = NAME(row_log_sum)(x, row, task->V, &shift, buffer, out_buffer);
        for (int64_t c = 0; c < task->V; c += BLOCK) {
            const int64_t n = block_min(BLOCK, task->V - c), at = row * task->V + c;
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
    const struct log_softmax *task = context;
    const tl_operand *y = task->x, *g = task->g, *out = task->out;
    SCRATCH_ARRAY(REAL, y_buffer, BLOCK);
    SCRATCH_ARRAY(REAL, g_buffer, BLOCK);
    SCRATCH_ARRAY(REAL, out_buffer, BLOCK);
    for (int64_t row = first; row < last; row++) {
        const REAL sum = NAME(row_sum)(g, row, task->V);
        for (int64_t c = 0; c < task->V; c += BLOCK) {
            const int64_t n = block_min(BLOCK, task->V - c), at = row * task->V + c;
            const REAL *y_part = NAME(block_read)(y_buffer, y->data, y->dtype, at, n);
            const REAL *g_part = NAME(block_read)(g_buffer, g->data, g->dtype, at, n);
            REAL *to = NAME(block_place)(out_buffer, out->data, out->dtype, at);
            VECTOR_LOOP
            for (int64_t i = 0; i < n; i++) to[i] = g_part[i] - NAME(vector_exp)(y_part[i]) * sum;
            NAME(block_write)(to, out->data, out->dtype, at, n);
        }
    }
}

#undef REAL
#undef NAME

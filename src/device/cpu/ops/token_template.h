/* token_template.h: the loops of token.c for one compute type. REAL and NAME are set by the includer. */

#include "device/cpu/shared/lse_template.h"

/* Rows of the embedding's gradient: the sums of the rows of g that carry the id, in order. */
static void NAME(add_rows)(void *context, int64_t first, int64_t last) {
    const struct token *token = context;
    const tl_operand *g = token->x, *out = token->out;
    SCRATCH_ARRAY(REAL, buffer, BLOCK);
    SCRATCH_ARRAY(REAL, total_buffer, BLOCK);
    for (int64_t v = first; v < last; v++) {
        if (token->start[v] == token->start[v + 1]) { /* most of a vocabulary, in most batches; 0 is all bits 0 */
            if (token->is_added) continue;
            memset(block_at(out->data, out->dtype, v * token->C), 0, (size_t)token->C * element_bytes(out->dtype));
            continue;
        }
        for (int64_t c = 0; c < token->C; c += BLOCK) {
            const int64_t n = block_min(BLOCK, token->C - c), at = v * token->C + c;
            REAL *total = NAME(block_place)(total_buffer, out->data, out->dtype, at);
            if (!token->is_added) memset(total, 0, (size_t)n * sizeof(REAL));
            else NAME(block_read)(total, out->data, out->dtype, at, n); /* fills the buffer, if it is one */
            for (int32_t i = token->start[v]; i < token->start[v + 1]; i++) {
                const REAL *row = NAME(block_read)(buffer, g->data, g->dtype, token->order[i] * token->C + c, n);
                for (int64_t j = 0; j < n; j++) {
                    total[j] += row[j];
                }
            }
            NAME(block_write)(total, out->data, out->dtype, at, n);
        }
    }
}

static REAL NAME(row_lse)(const tl_operand *logits, int64_t row, int64_t V, REAL *buffer, REAL *e) {
    REAL shift;
    const REAL log_sum = NAME(row_log_sum)(logits, row, V, &shift, buffer, e);
    return shift + log_sum;
}

/* A row's loss, and its log-sum-exp into lse; both are 0 if it is left out. */
static REAL NAME(row_loss)(const struct token *token, int64_t row, REAL *buffer, REAL *e) {
    const int64_t target = block_integer(token->ids, row), at = row * token->C + target;
    const bool is_left_out = target == token->options.ignore_index;
    const REAL lse = is_left_out ? 0 : NAME(row_lse)(token->x, row, token->C, buffer, e);
    ((REAL *)token->lse->data)[row] = lse;
    return is_left_out ? 0 : lse - *NAME(block_read)(buffer, token->x->data, token->x->dtype, at, 1);
}

static void NAME(loss_rows)(void *context, int64_t first, int64_t last) {
    const struct token *token = context;
    SCRATCH_ARRAY(REAL, buffer, BLOCK);
    SCRATCH_ARRAY(REAL, e, BLOCK);
    for (int64_t row = first; row < last; row++) {
        const REAL loss = NAME(row_loss)(token, row, buffer, e);
        NAME(block_write)(&loss, token->out->data, token->out->dtype, row, 1);
    }
}

/* The sums of parts, each of neighbouring rows. */
static void NAME(loss_parts)(void *context, int64_t first, int64_t last) {
    const struct token *token = context;
    const int64_t n_rows = token->x->shape[0], n_parts = cross_entropy_parts(n_rows);
    SCRATCH_ARRAY(REAL, buffer, BLOCK);
    SCRATCH_ARRAY(REAL, e, BLOCK);
    for (int64_t i = first; i < last; i++) {
        struct cross_entropy_part part = {0};
        for (int64_t row = i * n_rows / n_parts; row < (i + 1) * n_rows / n_parts; row++) {
            part.loss += (double)NAME(row_loss)(token, row, buffer, e);
            part.n += block_integer(token->ids, row) != token->options.ignore_index;
        }
        token->parts[i] = part;
    }
}

/* (exp(logits - lse) - onehot) * g [* share]. */
static void NAME(loss_grad_rows)(void *context, int64_t first, int64_t last) {
    const struct token *token = context;
    SCRATCH_ARRAY(REAL, x_buffer, BLOCK);
    SCRATCH_ARRAY(REAL, dx_buffer, BLOCK);
    for (int64_t row = first; row < last; row++) {
        const int64_t at_g = token->options.reduction == TL_REDUCE_NONE ? row : 0;
        const REAL g = *NAME(block_read)(x_buffer, token->g->data, token->g->dtype, at_g, 1) *
                       (token->share ? *(const REAL *)token->share->data : 1);
        const REAL lse = ((const REAL *)token->lse->data)[row];
        const int64_t target = block_integer(token->ids, row);
        if (target == token->options.ignore_index) {
            const size_t bytes = (size_t)token->C * (size_t)(dtype_info(token->out->dtype)->bits / 8);
            memset(block_at(token->out->data, token->out->dtype, row * token->C), 0, bytes);
            continue;
        }
        for (int64_t c = 0; c < token->C; c += BLOCK) {
            const int64_t n = block_min(BLOCK, token->C - c), at = row * token->C + c;
            const REAL *x = NAME(block_read)(x_buffer, token->x->data, token->x->dtype, at, n);
            const bool has_target = target >= c && target < c + n;
            const REAL target_dx = has_target ? (NAME(vector_exp)(x[target - c] - lse) - 1) * g : 0;
            REAL *dx = NAME(block_place)(dx_buffer, token->out->data, token->out->dtype, at);
            VECTOR_LOOP
            for (int64_t i = 0; i < n; i++) {
                dx[i] = NAME(vector_exp_falling)(x[i] - lse) * g; /* lse is the largest x at the least */
            }
            if (has_target) {
                dx[target - c] = target_dx;
            }
            NAME(block_write)(dx, token->out->data, token->out->dtype, at, n);
        }
    }
}

#undef REAL
#undef NAME

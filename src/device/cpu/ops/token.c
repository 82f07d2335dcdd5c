/* token.c: ops on token ids: embedding, cross entropy, and their gradients.
 *
 * Ids come from data files, which may be wrong. Every kernel checks all its ids before it writes anything; the error
 * names the first invalid one.
 *
 * The embedding's gradient adds the rows of g that share an id. Rows are first grouped by id with a counting sort
 * (stable, so within an id they keep their order); each row of the output then belongs to one thread. embedding_acc
 * adds them to existing rows.
 */
#include "base/scratch.h"
#include "device/cpu/shared/block.h"
#include "device/cpu/shared/iterate.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "device/cpu/shared/vector_math.h"
#include "spec/attr.h"
#include "tensor/dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ERROR_BYTES = 200 };

/* One call; absent operands are NULL. */
struct token {
    const tl_operand *x;     /* embedding: weight (V,C); its gradient: g (N,C); cross entropy: logits (N,V) */
    const tl_operand *ids;   /* (N) */
    const tl_operand *out;   /* embedding: (N,C); its gradient: (V,C); cross entropy: the loss, or the gradient (N,V) */
    const tl_operand *lse;   /* (N) */
    const tl_operand *g;     /* cross_entropy_grad: (N), or () of a reduced loss */
    const tl_operand *share; /* () of a mean */
    const int32_t *start;    /* embedding_grad: rows of id v are order[start[v] .. start[v+1]-1] */
    const int32_t *order;
    bool is_added;       /* added to the rows of out */
    struct iterate walk; /* embedding: over ids */
    int64_t C;           /* embedding: columns; cross entropy: V */
    struct attr_cross_entropy options;
    struct cross_entropy_part *parts; /* cross entropy: the sums of its rows */
};

static size_t element_bytes(tl_dtype dtype) { return (size_t)iterate_element_bytes(dtype); }

static bool refuse(const tl_kernel_args *args, const char *what, int64_t id, int64_t n) {
    snprintf(args->error, ERROR_BYTES, "%s %" PRId64 " is outside [0, %" PRId64 ")", what, id, n);
    return false;
}

/* Every id is in [first, n), or is `ignored`. */
static bool check_from(const tl_kernel_args *args, const char *what, const tl_operand *ids, int64_t first, int64_t n,
                       int64_t ignored) {
    const int64_t n_ids = iterate_numel(ids);
    for (int64_t i = 0; i < n_ids; i++) {
        const int64_t id = block_integer(ids, i);
        if ((id < first || id >= n) && id != ignored) {
            return refuse(args, what, id, n);
        }
    }
    return true;
}

static bool check_dense(const tl_kernel_args *args, const char *what, const tl_operand *ids, int64_t n) {
    return check_from(args, what, ids, 0, n, TL_IGNORE_NONE);
}

#define REAL float
#define NAME(name) name##_f32
#include "device/cpu/ops/token_template.h"

#define REAL double
#define NAME(name) name##_f64
#include "device/cpu/ops/token_template.h"

/* ---- Embedding ----------------------------------------------------------------------------------------- */

enum { ID_RUN = 256 };

static void copy_rows(void *context, int64_t first, int64_t last) {
    const struct token *token = context;
    const tl_dtype dtype = token->x->dtype;
    const int64_t id_bytes = iterate_element_bytes(token->ids->dtype);
    struct iterate_run run;
    iterate_seek(&token->walk, &run, first, last);
    while (iterate_next(&token->walk, &run, ID_RUN)) {
        int64_t ids[ID_RUN];
        convert_to_i64(ids, run.data[0], token->ids->dtype, token->walk.step[0] / id_bytes, run.length);
        for (int64_t i = 0; i < run.length; i++) {
            memcpy(block_at(token->out->data, dtype, (run.position + i) * token->C),
                   block_at(token->x->data, dtype, ids[i] * token->C), (size_t)token->C * element_bytes(dtype));
        }
    }
}

bool cpu_embedding(const tl_kernel_args *args) {
    struct token token = {.x = &args->in[0], .ids = &args->in[1], .out = &args->out[0], .C = args->in[0].shape[1]};
    const int64_t V = token.x->shape[0], id_bytes = iterate_element_bytes(token.ids->dtype);
    iterate_begin(&token.walk, token.ids->rank, token.ids->shape, (const tl_operand *[]){token.ids}, 1,
                  ITERATE_ROW_MAJOR);

    struct iterate_run run;
    iterate_seek(&token.walk, &run, 0, token.walk.n);
    while (iterate_next(&token.walk, &run, ID_RUN)) {
        int64_t ids[ID_RUN];
        convert_to_i64(ids, run.data[0], token.ids->dtype, token.walk.step[0] / id_bytes, run.length);
        for (int64_t i = 0; i < run.length; i++) {
            if (ids[i] < 0 || ids[i] >= V) {
                return refuse(args, "id", ids[i], V);
            }
        }
    }
    parallel_for(token.walk.n, parallel_grain(token.C), args->n_threads, copy_rows, &token);
    return true;
}

/* Workspace: see spec/attr.h. */
static bool add_rows(const tl_kernel_args *args, const tl_operand *g, const tl_operand *ids, bool is_added) {
    struct token token = {.x = g, .ids = ids, .out = &args->out[0], .C = args->out[0].shape[1], .is_added = is_added};
    const int64_t V = token.out->shape[0], N = iterate_numel(ids);
    if (!check_dense(args, "id", ids, V)) {
        return false;
    }

    /* Count; sum up, so that start[v] is where the ids after v begin; place from the back, which moves start[v] down
     * to where v begins. */
    int32_t *start = args->workspace, *order = start + V + 1;
    memset(start, 0, (size_t)(V + 1) * sizeof *start);
    for (int64_t i = 0; i < N; i++) {
        start[block_integer(token.ids, i)]++;
    }
    for (int64_t v = 1; v <= V; v++) {
        start[v] += start[v - 1];
    }
    for (int64_t i = N - 1; i >= 0; i--) {
        order[--start[block_integer(token.ids, i)]] = (int32_t)i;
    }
    token.start = start;
    token.order = order;
    parallel_for(V, parallel_grain(token.C), args->n_threads,
                 dtype_compute(token.out->dtype) == TL_F64 ? add_rows_f64 : add_rows_f32, &token);
    return true;
}

bool cpu_embedding_grad(const tl_kernel_args *args) { return add_rows(args, &args->in[0], &args->in[1], false); }
bool cpu_embedding_acc(const tl_kernel_args *args) { return add_rows(args, &args->in[1], &args->in[2], true); }

/* ---- Cross entropy ------------------------------------------------------------------------------------- */

/* The sum or the mean of all rows from their parts, in order. */
static void loss_finish(const tl_kernel_args *args, const struct token *token) {
    struct cross_entropy_part all = {0};
    for (int64_t i = 0; i < cross_entropy_parts(token->x->shape[0]); i++) {
        all.loss += token->parts[i].loss;
        all.n += token->parts[i].n;
    }
    const double n = (double)all.n;
    block_write_f64(&(double){args->n_out > 2 ? all.loss / n : all.loss}, token->out->data, token->out->dtype, 0, 1);
    if (args->n_out > 2) block_write_f64(&(double){1 / n}, args->out[2].data, args->out[2].dtype, 0, 1);
}

bool cpu_cross_entropy(const tl_kernel_args *args) {
    const tl_operand *logits = &args->in[0];
    struct token token = {
        .x = logits,
        .ids = &args->in[1],
        .out = &args->out[0],
        .lse = &args->out[1],
        .C = logits->shape[1],
        .options = cross_entropy_options(args->attr),
        .parts = args->workspace,
    };
    const int64_t n_rows = logits->shape[0], n_parts = cross_entropy_parts(n_rows);
    const bool is_f64 = dtype_compute(logits->dtype) == TL_F64;
    if (!check_from(args, "target", token.ids, 0, token.C, token.options.ignore_index)) {
        return false;
    }
    if (token.options.reduction == TL_REDUCE_NONE) {
        parallel_for(n_rows, parallel_grain(4 * token.C), args->n_threads, is_f64 ? loss_rows_f64 : loss_rows_f32,
                     &token);
        return true;
    }
    if (args->workspace_bytes < (size_t)n_parts * sizeof *token.parts) {
        snprintf(args->error, ERROR_BYTES, "too little workspace (%zu bytes)", args->workspace_bytes);
        return false;
    }
    const int64_t part_rows = n_parts ? (n_rows + n_parts - 1) / n_parts : 1;
    parallel_for(n_parts, parallel_grain(4 * token.C * part_rows), args->n_threads,
                 is_f64 ? loss_parts_f64 : loss_parts_f32, &token);
    loss_finish(args, &token);
    return true;
}

bool cpu_cross_entropy_grad(const tl_kernel_args *args) {
    const tl_operand *logits = &args->in[1];
    struct token token = {
        .g = &args->in[0],
        .x = logits,
        .ids = &args->in[2],
        .lse = &args->in[3],
        .share = args->n_in > 4 ? &args->in[4] : NULL,
        .out = &args->out[0],
        .C = logits->shape[1],
        .options = cross_entropy_options(args->attr),
    };
    if (!check_from(args, "target", token.ids, -1, token.C, token.options.ignore_index)) {
        return false;
    }
    parallel_for(logits->shape[0], parallel_grain(4 * token.C), args->n_threads,
                 dtype_compute(logits->dtype) == TL_F64 ? loss_grad_rows_f64 : loss_grad_rows_f32, &token);
    return true;
}

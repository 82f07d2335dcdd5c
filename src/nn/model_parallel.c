/* model_parallel.c: what a model that several processes share does between their parts.
 *
 * tp divides the matrices of a layer: those that go into it by their rows of outputs (heads, columns of the MLP), those
 * that come out by their inputs, so that a layer needs one sum over the ranks, where it ends. Outside these regions all
 * ranks compute the same, or, with sp, each the results of some rows.
 *
 *      enter   x -> x                            gradient: the sum over ranks, each of which has a part of it
 *      leave   x -> the sum over ranks           gradient: as it is
 *      with sp:
 *      enter   rows of this rank -> all rows     gradient: the sum over ranks, of the rows of this rank
 *      leave   x -> the sum, of this rank's rows gradient: that of all rows
 *
 * All ranks of tp thus compute one loss, the same on each, and every gradient is that of this one loss: not of the sum
 * of the ranks' losses, as those of the collectives themselves are. A parameter that all ranks hold has the whole
 * gradient on each of them. Where a rank sees only a part of its uses (rows under sp, the queries of its own heads
 * where ranks share a head of keys), parallel_share sums the gradient. */
#include "nn/model_parallel.h"

#include <string.h>

#include "base/error.h"
#include "comm/comm.h"
#include "tensor/tensor.h"

/* ---- Which ---- */

void parallel_range(int64_t size, int n, int index, int64_t *from, int64_t *to) {
    int64_t each = size / n, more = size % n; /* the first parts are the longer ones */
    *from = each * index + (index < more ? index : more);
    *to = *from + each + (index < more);
}

static bool is_divided(const char *what, const char *setting, int64_t size, int n) {
    return size >= n ||
           error_set(TL_ERROR_USE, "tp: %s %lld cannot be divided among %d processes (need a larger %s, or smaller tp)",
                     what, (long long)size, n, setting);
}

static bool tp_check(const tl_model_config *c, int n) {
    if (c->n_heads % n)
        return error_set(TL_ERROR_USE,
                         "tp: %lld heads cannot be divided among %d processes (need tp that divides the heads)",
                         (long long)c->n_heads, n);
    if (c->n_kv_heads % n && n % c->n_kv_heads)
        return error_set(TL_ERROR_USE,
                         "tp: %lld heads of keys and values cannot be divided among %d processes, nor these among them "
                         "(need tp that divides them, or a multiple of them)",
                         (long long)c->n_kv_heads, n);
    return is_divided("a vocabulary of", "vocabulary", c->vocabulary, n) && is_divided("an MLP of", "ff", c->ff, n);
}

static tl_comm *copies_new(tl_comm *tp, int n_copies) {
    return tp->is_price ? tl_comm_price(tp->rank % n_copies, n_copies)
                        : tl_comm_split(tp, tp->rank / n_copies, tp->rank);
}

/* Layers of this stage; a tied embedding belongs to the first stage and to the last one. */
static bool stages_begin(struct parallel *p, const tl_model_config *c) {
    int n = tl_comm_size(p->pp), rank = tl_comm_rank(p->pp);
    if (c->n_layers < n)
        return error_set(TL_ERROR_USE,
                         "pp: %lld layers cannot be divided among %d stages (need at least one layer for each)",
                         (long long)c->n_layers, n);
    parallel_range(c->n_layers, n, rank, &p->first_layer, &p->last_layer);
    p->is_first = rank == 0;
    p->is_last = rank == n - 1;
    if (!p->pp || !c->is_tied) return true;
    p->ends = tl_comm_group(p->pp, (int[]){0, n - 1}, 2);
    return p->ends != NULL;
}

bool parallel_begin(struct parallel *p, const tl_model_config *c, const tl_parallel *options) {
    *p = (struct parallel){.last_layer = c->n_layers, .is_first = true, .is_last = true};
    if (!options) return true;
    if (options->tp && options->tp->size > 1) p->tp = options->tp;
    if (options->cp && options->cp->size > 1) p->cp = options->cp;
    if (options->pp && options->pp->size > 1) p->pp = options->pp;
    p->has_sp = options->has_sequence_parallel && p->tp;
    if (!parallel_is_on(p) && !p->pp) return true;
    if (c->family == TL_DEEP_LINEAR)
        return error_set(TL_ERROR_USE, "%s: the %s model cannot be divided among processes (need GPT-2 or Llama)",
                         p->tp   ? "tp"
                         : p->cp ? "cp"
                                 : "pp",
                         tl_family_name(c->family));
    if (!stages_begin(p, c)) return false;
    if (!p->tp) return true;
    bool ok = tp_check(c, p->tp->size);
    if (ok && p->tp->size > c->n_kv_heads)
        ok = (p->copies = copies_new(p->tp, p->tp->size / (int)c->n_kv_heads)) != NULL;
    if (!ok) parallel_end(p);
    return ok;
}

void parallel_end(struct parallel *p) {
    tl_comm_free(p->copies);
    tl_comm_free(p->ends);
    p->copies = p->ends = NULL;
}

/* ---- Borders ---- */

/* dx = dy */
static void as_it_is(tl_gradient *g, void *context) {
    (void)context;
    tl_gradient_set(g, 0, tl_gradient_of_output(g, 0));
}
/* dx = the sum of the ranks' dy */
static void summed(tl_gradient *g, void *context) {
    tl_tensor *dy = tl_gradient_of_output(g, 0);
    if (dy) tl_gradient_set(g, 0, tl_all_reduce(dy, context));
}
/* dx (N/n,C) = this rank's rows of the sum of the ranks' dy (N,C) */
static void summed_rows(tl_gradient *g, void *context) {
    tl_tensor *dy = tl_gradient_of_output(g, 0);
    if (dy) tl_gradient_set(g, 0, tl_reduce_scatter(dy, context));
}
/* dx (N,C) = the ranks' dy (N/n,C) */
static void gathered_rows(tl_gradient *g, void *context) {
    tl_tensor *dy = tl_gradient_of_output(g, 0);
    if (dy) tl_gradient_set(g, 0, tl_all_gather(dy, context));
}

/* forward(x) with a gradient rule of its own; forward NULL: x itself. */
static tl_tensor *border(tl_tensor *x, tl_tensor *(*forward)(tl_tensor *x, tl_comm *comm), tl_function_rule rule,
                         tl_comm *comm) {
    bool grad = tl_set_grad_mode(false);
    tl_tensor *y = forward && x ? forward(x, comm) : x;
    tl_set_grad_mode(grad);
    return y && tl_function(rule, comm, NULL, &x, 1, &y, 1) ? y : NULL;
}

/* As rows (N,C), a multiple of the ranks. */
static tl_tensor *rows_of(const struct parallel *p, tl_tensor *x) {
    tl_tensor *rows = x ? tl_reshape(x, TL_SHAPE(-1, tl_size(x, -1))) : NULL;
    if (rows && tl_size(rows, 0) % p->tp->size) {
        error_set(TL_ERROR_USE,
                  "sp: %lld tokens cannot be divided among %d processes (need batch x seq that is a multiple of tp, or "
                  "no sp)",
                  (long long)tl_size(rows, 0), p->tp->size);
        return NULL;
    }
    return rows;
}

tl_tensor *parallel_enter(const struct parallel *p, tl_tensor *x) {
    if (!p || !p->tp) return x;
    return p->has_sp ? border(x, tl_all_gather, summed_rows, p->tp) : border(x, NULL, summed, p->tp);
}

tl_tensor *parallel_leave(const struct parallel *p, tl_tensor *x) {
    if (!p || !p->tp) return x;
    if (!p->has_sp) return border(x, tl_all_reduce, as_it_is, p->tp);
    return border(rows_of(p, x), tl_reduce_scatter, gathered_rows, p->tp);
}

tl_tensor *parallel_share(tl_comm *group, tl_tensor *x) { return group ? border(x, NULL, summed, group) : x; }

tl_tensor *parallel_rows(const struct parallel *p, tl_tensor *x) {
    int64_t each = x ? tl_size(x, 0) / p->tp->size : 0;
    return tl_slice(x, 0, p->tp->rank * each, (p->tp->rank + 1) * each, 1);
}

/* ---- Random numbers ---- */

tl_generator parallel_draw_begin(const tl_comm *group, int shift) {
    tl_generator before = tl_generator_get();
    if (group)
        tl_generator_set((tl_generator){before.seed, before.stream ^ (uint64_t)group->rank << shift, before.index});
    return before;
}

void parallel_draw_end(tl_generator before) {
    tl_generator_set((tl_generator){before.seed, before.stream, tl_generator_get().index});
}

/* ---- Parts of parameters ---- */

void shard_whole_shape(const tl_shard *s, const tl_tensor *part, int64_t shape[TL_MAX_RANK]) {
    memcpy(shape, part->shape, (size_t)part->rank * sizeof *shape);
    if (s) shape[s->axis] = s->n_blocks * s->size;
}

/* x with its axis as two, (blocks, elements of a block), in front of the others: (blocks, elements, ...); and back. */
static tl_tensor *axis_unfold(const tl_shard *s, tl_tensor *x) {
    if (!x) return NULL;
    int64_t shape[TL_MAX_RANK + 1];
    int n = 0;
    for (int i = 0; i < x->rank; i++) {
        if (i == s->axis) shape[n++] = s->n_blocks;
        shape[n++] = i == s->axis ? x->shape[i] / s->n_blocks : x->shape[i];
    }
    return tl_view(x, n, shape);
}
static tl_tensor *axis_fold(const tl_shard *s, tl_tensor *x) {
    if (!x) return NULL;
    int64_t shape[TL_MAX_RANK];
    for (int i = 0; i < x->rank - 1; i++)
        shape[i] = i < s->axis ? x->shape[i] : i > s->axis ? x->shape[i + 1] : x->shape[i] * x->shape[i + 1];
    return tl_reshape(x, x->rank - 1, shape);
}

tl_tensor *shard_cut(const tl_shard *s, tl_tensor *whole) {
    if (!s || !whole) return whole;
    return axis_fold(s, tl_slice(axis_unfold(s, whole), s->axis + 1, s->from, s->to, 1));
}

/* The elements of the axis lie first while parts are gathered; each is as long as the longest. */
tl_tensor *shard_join(const tl_shard *s, tl_tensor *part) {
    if (!s || !part) return part;
    int n = s->group->size / s->n_copies;
    int64_t longest = (s->size + n - 1) / n, before[TL_MAX_RANK] = {0}, after[TL_MAX_RANK] = {0};
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    bool grad = tl_set_grad_mode(false);
    tl_tensor *x = tl_contiguous(tl_transpose(axis_unfold(s, tl_contiguous(part)), 0, s->axis + 1));
    after[0] = longest - (s->to - s->from);
    if (x && after[0]) x = tl_pad(x, before, after, TL_PAD_CONSTANT, 0);
    tl_tensor *all = x ? tl_all_gather(x, s->group) : NULL, *whole = longest * s->group->size == s->size ? all : NULL;
    for (int i = 0; all && all != whole && i < n; i++) {
        int64_t from, to, at = (int64_t)i * s->n_copies * longest;
        parallel_range(s->size, n, i, &from, &to);
        tl_tensor *both[2] = {whole, tl_slice(all, 0, at, at + to - from, 1)};
        whole = whole ? tl_concat(both, 2, 0) : both[1];
    }
    whole = whole ? tl_contiguous(axis_fold(s, tl_transpose(whole, 0, s->axis + 1))) : NULL;
    tl_set_grad_mode(grad);
    return tl_scope_return(scope, whole);
}

/* rope.c: rotary positions. */
#include <string.h>

#include "ops/ops.h"

static const struct attr_rope *rope_attr(const tl_call *c) { return c->attr; }

static bool list_fits(const tl_rope_scaling *s, int64_t D) {
    const int64_t n = (s->size ? s->size : D) / 2;
    bool fits = n <= 64;
    for (int64_t i = 0; fits && i < n; i++) fits = s->slower[i] > 0;
    return fits;
}

static bool rope_shape(tl_call *c) {
    const tl_tensor *x = c->input[0];
    if (!call_needs_float(c, 0)) return false;
    if (x->rank != 4 || x->shape[3] % 2) return call_fail_need(c, "rotates pairs", "[B,T,H,D] with even D");
    if (rope_attr(c)->scaling.rule == TL_ROPE_LIST && !list_fits(&rope_attr(c)->scaling, x->shape[3]))
        return call_fail_need(c, "a list of pairs that is too short", "64 pairs or less, each slower by more than 0");
    if (rope_attr(c)->scaling.size > x->shape[3])
        return call_fail_need(c, "turns more channels than heads have", "size <= D");
    if (c->n_inputs > 1 && !call_needs_index(c, 1)) return false;
    if (c->n_inputs > 1 && !shape_equal(c->input[1]->rank, c->input[1]->shape, 2, x->shape))
        return call_fail_need(c, "positions have another shape than the rows", "[B,T]");
    return call_output_like(c, 0, 0);
}
/* per pair: 4 products, 2 sums */
static void rope_cost(const tl_call *c, struct cost *cost) {
    const int64_t size = rope_attr(c)->scaling.size, D = c->input[0]->shape[3];
    count n = (count)c->input[0]->numel;
    cost_traffic(c, cost, 3 * (size && D ? n / (count)D * (count)size : n));
}
static tl_tensor *rope(tl_tensor *x, tl_tensor *positions, const struct attr_rope *a);
/* the inverse of a rotation is its transpose */
static void rope_backward(tl_gradient *g) {
    struct attr_rope a;
    memcpy(&a, g->node->attr, sizeof a);
    a.inverse = !a.inverse;
    g->result[0] = rope(g->grad[0], a.has_positions ? gradient_input(g, 1) : NULL, &a);
}
const tl_op op_rope = {RECORD(KERNEL, rope, 1),
                       .shapes = "x (B,T,H,D), D even [, positions (B,T)] -> like x",
                       .dtypes = "floats; positions i64, i32",
                       .flops = "3n of the n numbers that turn: per pair 4 products, 2 sums",
                       .shape = rope_shape,
                       .cost = rope_cost,
                       .backward = rope_backward,
                       .saves_any = TL_INPUT(1)};

static tl_tensor *rope(tl_tensor *x, tl_tensor *positions, const struct attr_rope *a) {
    tl_tensor *rows = with_dense_rows(x);
    return positions ? op_apply2(&op_rope, rows, positions, ATTR(*a)) : op_apply1(&op_rope, rows, ATTR(*a));
}

/* ---- rope_put ---- */

enum { PUT_Q, PUT_K, PUT_V, PUT_CACHE, PUT_PLACE, PUT_INPUTS };

static bool rope_put_shape(tl_call *c) {
    const tl_tensor *q = c->input[PUT_Q], *k = c->input[PUT_K], *cache = c->input[PUT_CACHE];
    const char *const need = "q [B,T,H,D], k and v [B,T,Hkv,D], a cache [2,B,Hkv,S,D], with dense D";
    for (int i = 0; i < PUT_PLACE; i++) {
        const tl_tensor *x = c->input[i];
        const int rank = i == PUT_CACHE ? 5 : 4;
        if (!call_needs_float(c, i)) return false;
        if (x->dtype != q->dtype) return call_fail_need(c, "the dtypes differ", "a cast");
        if (x->rank != rank || x->stride[rank - 1] != 1) return call_fail_need(c, "the sizes do not fit", "%s", need);
    }
    const int64_t shape[5] = {2, q->shape[0], k->shape[2], cache->shape[3], q->shape[3]};
    const int64_t row[4] = {q->shape[0], q->shape[1], k->shape[2], q->shape[3]};
    if (!shape_equal(5, cache->shape, 5, shape) || !shape_equal(4, k->shape, 4, row) ||
        !shape_equal(4, c->input[PUT_V]->shape, 4, row))
        return call_fail_need(c, "the sizes do not fit", "%s", need);
    if (q->shape[3] % 2) return call_fail_need(c, "rotates pairs", "[B,T,H,D] with even D");
    if (!call_needs_index(c, PUT_PLACE)) return false;
    if (!shape_equal(c->input[PUT_PLACE]->rank, c->input[PUT_PLACE]->shape, 2, q->shape))
        return call_fail_need(c, "places have another shape than the rows", "[B,T]");
    return call_output_like(c, 0, PUT_Q);
}
/* of q and k as rope; of the cache only what is put is written, and nothing is read */
static void rope_put_cost(const tl_call *c, struct cost *cost) {
    const tl_tensor *q = c->input[PUT_Q], *k = c->input[PUT_K], *v = c->input[PUT_V];
    const int64_t size = rope_attr(c)->scaling.size, D = q->shape[3];
    const count n = (count)q->numel + (count)k->numel;
    cost_free(c, cost);
    cost->part[0].flops = 3 * (size && D ? n / (count)D * (count)size : n);
    cost->part[0].bytes_read =
        tensor_traffic(q) + tensor_traffic(k) + tensor_traffic(v) + tensor_traffic(c->input[PUT_PLACE]);
    cost->part[0].bytes_written = tensor_traffic(c->output[0]) + tensor_traffic(k) + tensor_traffic(v);
}
static uint64_t rope_put_workspace(const tl_call *c) {
    const tl_tensor *k = c->input[PUT_K];
    return (uint64_t)k->numel * (uint64_t)(dtype_info(k->dtype)->bits / 8);
}
const tl_op op_rope_put = {RECORD(KERNEL, rope_put, 2),
                           .shapes =
                               "q (B,T,H,D), k, v (B,T,Hkv,D), cache (2,B,Hkv,S,D), place (B,T): like q; the cache",
                           .dtypes = "floats, all alike; place i64, i32",
                           .flops = "3n of the n numbers of q and k that turn",
                           .shape = rope_put_shape,
                           .cost = rope_put_cost,
                           .workspace = rope_put_workspace,
                           .overwrites = {0, OVERWRITES(PUT_CACHE)},
                           .backward = gradient_missing};

static bool scaling_is_whole(const tl_rope_scaling *s) {
    bool is_known = s->rule >= TL_ROPE_BY_CONTEXT && s->rule <= TL_ROPE_LIST && s->magnitude >= 0 &&
                    (s->rule < TL_ROPE_YARN || s->original_context > 0);
    if (s->size < 0 || s->size % 2)
        return error_set(TL_ERROR_USE, "rope: %lld channels cannot turn in pairs", (long long)s->size);
    return (is_known && s->factor >= 0 && s->original_context >= 0 &&
            (!s->original_context || s->rule == TL_ROPE_LIST ||
             (s->low_frequency > 0 && s->high_frequency >= s->low_frequency))) ||
           error_set(TL_ERROR_USE, "rope: a scaling by %g of context %lld between frequencies %g and %g has no meaning",
                     s->factor, (long long)s->original_context, s->low_frequency, s->high_frequency);
}

static struct attr_rope attr_make(double base, const tl_rope_scaling *scaling) {
    struct attr_rope a;
    memset(&a, 0, sizeof a);
    a.base = base;
    if (scaling) a.scaling = *scaling;
    return a;
}

static tl_tensor *rope_begin(tl_tensor *x, tl_tensor *positions, double base, int64_t first_position,
                             const tl_rope_scaling *scaling) {
    struct attr_rope a = attr_make(base, scaling);
    a.first_position = first_position;
    a.has_positions = positions != NULL;
    return scaling_is_whole(&a.scaling) ? rope(x, positions, &a) : NULL;
}

tl_tensor *tl_rope(tl_tensor *x, double base, int64_t first_position, const tl_rope_scaling *scaling) {
    return tensor_check(x, "rope") ? rope_begin(x, NULL, base, first_position, scaling) : NULL;
}

tl_tensor *tl_rope_at(tl_tensor *x, double base, tl_tensor *positions, const tl_rope_scaling *scaling) {
    if (!tensor_check(x, "rope") || !tensor_check(positions, "rope")) return NULL;
    if (x->rank == 4 && !(positions = tl_expand(positions, TL_SHAPE(x->shape[0], x->shape[1])))) return NULL;
    return rope_begin(x, positions, base, 0, scaling);
}

tl_tensor *rope_put(tl_tensor *q, tl_tensor *k, tl_tensor *v, tl_tensor *cache, tl_tensor *place, double base,
                    const tl_rope_scaling *scaling) {
    tl_tensor *input[PUT_INPUTS] = {q, k, v, cache, place};
    for (int i = PUT_Q; i <= PUT_V; i++)
        if (!(input[i] = with_dense_rows(input[i]))) return NULL;
    struct attr_rope a = attr_make(base, scaling);
    a.has_positions = true;
    if (!scaling_is_whole(&a.scaling)) return NULL;
    tl_call c;
    call_begin(&c, &op_rope_put, input, PUT_INPUTS, ATTR(a));
    return op_apply(&c);
}

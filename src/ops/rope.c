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

static tl_tensor *rope_begin(tl_tensor *x, tl_tensor *positions, double base, int64_t first_position,
                             const tl_rope_scaling *scaling) {
    const tl_rope_scaling none = {0};
    struct attr_rope a;
    memset(&a, 0, sizeof a);
    a.base = base;
    a.first_position = first_position;
    a.has_positions = positions != NULL;
    a.scaling = scaling ? *scaling : none;
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

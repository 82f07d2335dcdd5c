/* rope.c: rotary positions. */
#include <string.h>

#include "ops/ops.h"

static bool rope_shape(tl_call *c) {
    const tl_tensor *x = c->input[0];
    if (!call_needs_float(c, 0)) return false;
    return (x->rank == 4 && x->shape[3] % 2 == 0) ? call_output_like(c, 0, 0)
                                                  : call_fail_need(c, "rotates pairs", "[B,T,H,D] with even D");
}
/* per pair: 4 products, 2 sums */
static void rope_cost(const tl_call *c, struct cost *cost) { cost_traffic(c, cost, 3 * (count)c->input[0]->numel); }
static tl_tensor *rope(tl_tensor *x, double base, int64_t first_position, bool inverse, tl_rope_scaling scaling);
/* the inverse of a rotation is its transpose */
static void rope_backward(tl_gradient *g) {
    const struct attr_rope *a = g->node->attr;
    g->result[0] = rope(g->grad[0], a->base, a->first_position, !a->inverse, a->scaling);
}
const tl_op op_rope = {RECORD(KERNEL, rope, 1),  .shapes = "x (B,T,H,D), D even -> like x",
                       .dtypes = "floats",       .flops = "3n: per pair 4 products, 2 sums",
                       .shape = rope_shape,      .cost = rope_cost,
                       .backward = rope_backward};

static tl_tensor *rope(tl_tensor *x, double base, int64_t first_position, bool inverse, tl_rope_scaling scaling) {
    struct attr_rope a;
    memset(&a, 0, sizeof a);
    a.base = base;
    a.first_position = first_position;
    a.inverse = inverse;
    a.scaling = scaling;
    return op_apply1(&op_rope, with_dense_rows(x), ATTR(a));
}

tl_tensor *tl_rope(tl_tensor *x, double base, int64_t first_position, const tl_rope_scaling *scaling) {
    if (!tensor_check(x, "rope")) return NULL;
    const tl_rope_scaling none = {0}, *s = scaling ? scaling : &none;
    bool is_whole = s->factor >= 0 && s->original_context >= 0 &&
                    (!s->original_context || (s->low_frequency > 0 && s->high_frequency > s->low_frequency));
    if (is_whole) return rope(x, base, first_position, false, *s);
    error_set(TL_ERROR_USE, "rope: a scaling by %g of context %lld between frequencies %g and %g has no meaning",
              s->factor, (long long)s->original_context, s->low_frequency, s->high_frequency);
    return NULL;
}

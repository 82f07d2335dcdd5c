/* inner_calls.c: the ops that the engine itself calls (engine/inner_calls.h). */
#include "engine/inner_calls.h"
#include "ops/complex.h"
#include "ops/ops.h"

static void region_backward(tl_gradient *g) {
    const struct attr_region *r = tl_gradient_attr(g);
    tl_tensor *grad = tl_contiguous(g->grad[0]);
    if (!grad) return;
    /* a base of complex numbers, changed as pairs */
    const bool is_paired = dtype_is_complex(g->node->edges[0].dtype) && !dtype_is_complex(g->node->edges[1].dtype);
    if (is_paired && !(grad = tl_view_as_real(grad))) return;
    if (g->needs[1]) g->result[1] = tl_as_strided(grad, r->rank, r->shape, r->stride, grad->offset + r->offset);
    if (!g->needs[0]) return;
    tl_tensor *outside = tl_clone(grad);
    if (outside) tl_fill_(tl_as_strided(outside, r->rank, r->shape, r->stride, r->offset), 0.0);
    g->result[0] = is_paired && outside ? tl_view_as_complex(outside) : outside;
}

/* The view of its base, as it was made; of real numbers in complex ones, or of complex ones in real ones, by pairs. */
static tl_tensor *view_again(tl_tensor *base, tl_tensor *view) {
    const bool of_complex = dtype_is_complex(base->dtype), is_complex = dtype_is_complex(view->dtype);
    if (of_complex == is_complex) return tl_as_strided(base, view->rank, view->shape, view->stride, view->offset);
    if (of_complex) return tl_as_strided(tl_view_as_real(base), view->rank, view->shape, view->stride, view->offset);
    struct layout pairs;
    if (!complex_pairs(view, &pairs)) return NULL;
    return tl_view_as_complex(tl_as_strided(base, pairs.rank, pairs.shape, pairs.stride, pairs.offset));
}

static const tl_op op_region = {.name = "region", .id = -1, .n_outputs = 1, .backward = region_backward};

__attribute__((constructor)) static void inner_calls_set_up(void) {
    inner_calls = (struct inner_calls){.cast = tl_cast,
                                       .clone = tl_clone,
                                       .view_again = view_again,
                                       .complex_rule = complex_rule_of,
                                       .region = &op_region};
}

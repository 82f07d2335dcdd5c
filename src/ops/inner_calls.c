/* inner_calls.c: the ops that the engine itself calls (engine/inner_calls.h). */
#include "engine/inner_calls.h"
#include "ops/ops.h"

static void region_backward(tl_gradient *g) {
    const struct attr_region *r = tl_gradient_attr(g);
    tl_tensor *grad = tl_contiguous(g->grad[0]);
    if (!grad) return;
    if (g->needs[1]) g->result[1] = tl_as_strided(grad, r->rank, r->shape, r->stride, grad->offset + r->offset);
    if (!g->needs[0]) return;
    tl_tensor *outside = tl_clone(grad);
    if (outside) tl_fill_(tl_as_strided(outside, r->rank, r->shape, r->stride, r->offset), 0.0);
    g->result[0] = outside;
}

static const tl_op op_region = {.name = "region", .id = -1, .n_outputs = 1, .backward = region_backward};

__attribute__((constructor)) static void inner_calls_set_up(void) {
    inner_calls =
        (struct inner_calls){.cast = tl_cast, .clone = tl_clone, .as_strided = tl_as_strided, .region = &op_region};
}

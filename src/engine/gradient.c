/* gradient.c: the interface of gradient rules: saved tensors, incoming gradients, results. */
#include "base/error.h"
#include "engine/graph.h"
#include "engine/scope.h"

void gradient_missing(tl_gradient *g) {
    error_set(TL_ERROR_USE, "derivative for %s is not implemented", g->node->op->name);
}

static tl_tensor *unpack(tl_gradient *g, const struct saved *s, const char *kind, int index) {
    if (!s->tensor) {
        error_set(TL_ERROR_USE, "%s: its gradient rule reads %s %d, which was not saved", g->node->op->name, kind,
                  index);
        return NULL;
    }
    if (s->tensor->storage->version == s->version) return s->tensor;
    char text[100];
    tl_describe(s->tensor, text, sizeof text);
    error_set(TL_ERROR_USE,
              "one of the variables needed for gradient computation has been modified by an inplace operation: %s, "
              "%s %d of %s, is at version %llu; expected version %llu instead",
              text, kind, index, g->node->op->name, (unsigned long long)s->tensor->storage->version,
              (unsigned long long)s->version);
    return NULL;
}

/* Goes through ops that pass the gradient on. If another gradient is there already, or is added later, the sums are
 * of no use; the second is not known here. */
bool gradient_wants_sums(const tl_gradient *g, int i, int64_t numel, int64_t width) {
    if (g->creates_graph || !g->fills_leaves || !g->needs[i]) return false;
    const struct edge *e = &g->node->edges[i];
    while (e->node && !e->node->grad[e->output] && e->node->op->passes_on) e = &e->node->edges[0];
    const struct node *n = e->node;
    const int bias = n ? n->op->bias - 1 : -1;
    if (bias < 0 || bias >= n->n_inputs || e->output != 0 || n->grad[0]) return false;
    const struct edge *to = &n->edges[bias];
    int64_t n_elements = 0;
    if (!shape_numel(e->rank, e->shape, &n_elements)) return false;
    return (to->node || to->leaf) && to->rank == 1 && to->shape[0] == width && e->rank > 1 &&
           e->shape[e->rank - 1] == width && n_elements == numel;
}

static bool has_gradient(const tl_gradient *g) { return error_given(g, "the gradient of an op", "its step"); }

tl_tensor *tl_gradient_input(tl_gradient *g, int i) {
    static const struct saved nothing;
    if (!has_gradient(g)) return NULL;
    return unpack(g, i >= 0 && i < g->node->n_saved_inputs ? &g->node->saved[i] : &nothing, "input", i);
}

/* For higher derivatives a result knows its node. */
static tl_tensor *with_history(tl_gradient *g, int j, tl_tensor *x) {
    if (!x || !g->creates_graph) return x;
    tl_tensor *recorded = scope_adopt(tensor_alias(x));
    if (recorded) node_attach(g->node, recorded, j);
    return recorded;
}

tl_tensor *tl_gradient_output(tl_gradient *g, int j) {
    static const struct saved nothing;
    if (!has_gradient(g)) return NULL;
    struct node *n = g->node;
    tl_tensor *x = unpack(g, j >= 0 && j < n->n_outputs ? &n->saved[n->n_saved_inputs + j] : &nothing, "output", j);
    return with_history(g, j, x);
}

tl_tensor *tl_gradient_result(tl_gradient *g, int j, tl_tensor *x) {
    if (!has_gradient(g) || !tensor_check(x, g->node->op->name)) return NULL;
    if (j >= 0 && j < g->node->n_outputs && dtype_has_gradient(x->dtype)) return with_history(g, j, x);
    error_set(TL_ERROR_USE, "%s: it has no result %d with a gradient", g->node->op->name, j);
    return NULL;
}

tl_tensor *tl_gradient_of_output(tl_gradient *g, int j) {
    return has_gradient(g) && j >= 0 && j < g->node->n_outputs ? g->grad[j] : NULL;
}
const void *tl_gradient_attr(tl_gradient *g) { return has_gradient(g) ? g->node->attr : NULL; }
bool tl_gradient_needs(tl_gradient *g, int i) {
    return has_gradient(g) && i >= 0 && i < g->node->n_inputs && g->needs[i];
}

void tl_gradient_set(tl_gradient *g, int i, tl_tensor *grad) {
    if (has_gradient(g) && i >= 0 && i < g->node->n_inputs && tensor_check(grad, g->node->op->name))
        g->result[i] = grad;
}

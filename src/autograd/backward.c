/* backward.c: the backward pass, one loop, no recursion.
 *
 *   1. collect the nodes reachable from the loss; count how many contributions each leaf will get
 *   2. sort them by descending sequence number: every consumer of a node comes before it
 *   3. visit each: its gradient slots are complete by now; run the rule; add each result to where it belongs (a
 *      slot of an older node, or a leaf's .grad); free what the node had saved
 *
 * *Adding.* A result is converted to its input's shape (broadcasting is undone here, once, for all ops) and dtype.
 * The first contribution is taken as it is; later ones are added in place if there is no other holder of the sum.
 * Rules are shown the present sum (`into`), so that a GEMM can add into it by itself.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "engine/graph.h"
#include "engine/scope.h"

struct capture { /* tl_gradients: where to put the gradient of a tensor */
    tl_tensor *of;
    tl_tensor *grad;
};

struct pass {
    struct node **nodes;
    size_t n_nodes, capacity;
    struct capture *captures; /* NULL: fill the leaves */
    int n_captures;
    bool creates_graph, retains_graph;
    bool owns_roots; /* roots and seeds are dropped after use */
};

/* ---- 1. Collecting ---- */

static bool node_collect(struct pass *p, struct node *n) {
    if (n->pass == p) return true;
    if (n->pass)
        return error_set(TL_ERROR_USE, "backward: this graph is being backpropagated already (a hook, or the function "
                                       "of a checkpoint that reads results other than its inputs)");
    if (n->is_consumed)
        return error_set(TL_ERROR_USE,
                         "%s: Trying to backward through the graph a second time (or directly access saved tensors "
                         "after they have already been freed). Use TL_RETAIN_GRAPH the first time",
                         n->op->name);
    if (!memory_grow((void **)&p->nodes, &p->capacity, p->n_nodes, sizeof *p->nodes))
        return error_memory(p->capacity * sizeof *p->nodes, "backward");
    n->pass = p;
    p->nodes[p->n_nodes++] = node_keep(n);
    return true;
}

/* Adds `change` to the contributions that the node's leaves wait for. */
static void node_announce(const struct node *n, int change) {
    for (int k = 0; k < n->n_inputs; k++)
        if (n->edges[k].leaf) n->edges[k].leaf->pending += (uint32_t)change;
    for (size_t k = 0; k < n->inside.n; k++) n->inside.leaf[k]->pending += (uint32_t)change;
}

static bool pass_collect(struct pass *p, tl_tensor **roots, tl_tensor **seeds, int n_roots) {
    for (int i = 0; i < n_roots; i++)
        if (seeds[i] && roots[i]->node && !node_collect(p, roots[i]->node)) return false;
    for (size_t i = 0; i < p->n_nodes; i++) /* the array is its own queue */
        for (int k = 0; k < p->nodes[i]->n_inputs; k++)
            if (p->nodes[i]->edges[k].node && !node_collect(p, p->nodes[i]->edges[k].node)) return false;
    for (size_t i = 0; i < p->n_nodes; i++) node_announce(p->nodes[i], 1);
    return true;
}

static int younger_first(const void *a, const void *b) {
    uint64_t x = (*(struct node *const *)a)->sequence, y = (*(struct node *const *)b)->sequence;
    return x < y ? 1 : x > y ? -1 : 0;
}

static bool is_captured(const struct pass *p, const struct node *n, int output, const tl_tensor *leaf) {
    for (int i = 0; i < p->n_captures; i++) {
        const tl_tensor *x = p->captures[i].of;
        if (leaf ? x == leaf : x->node == n && (output < 0 || x->node_output == output)) return true;
    }
    return false;
}

/* A node is needed if a requested gradient depends on it. Oldest first: edges point to older nodes. */
static void pass_mark_wanted(struct pass *p) {
    for (size_t i = p->n_nodes; i-- > 0;) {
        struct node *n = p->nodes[i];
        n->is_wanted = !p->captures;
        for (int k = 0; !n->is_wanted && k < n->n_inputs; k++) {
            const struct edge *e = &n->edges[k];
            n->is_wanted = (e->node && (e->node->is_wanted || is_captured(p, e->node, e->output, NULL))) ||
                           (e->leaf && is_captured(p, NULL, 0, e->leaf));
        }
    }
}

/* ---- 3. Adding ---- */

/* Only the single holder of `x` can see its memory. */
static bool is_exclusive(const tl_tensor *x, int holders) {
    return atomic_load(&x->refs) == holders && atomic_load(&x->storage->refs) == 1 && tensor_is_dense(x) &&
           x->offset == 0 && !x->storage->deleter;
}

/* Rules of custom ops may give any tensor. */
static bool grad_is_there(const struct node *n, int i, const tl_tensor *g) {
    const tl_device *need = n->edges[i].device, *got = g->storage->device;
    return got == need ||
           error_set(TL_ERROR_USE,
                     "%s: its gradient rule gave input %d, which is on %s, a gradient on %s (need one on %s)",
                     n->op->name, i, tl_device_name(need), tl_device_name(got), tl_device_name(need));
}

/* The sums of g's columns, if g came with them and the input is one row. */
static tl_tensor *grad_sums(const tl_tensor *g, const struct edge *e) {
    struct storage *s = g->storage;
    uint64_t bytes = 0;
    if (!s->sums || e->rank != 1 || g->rank < 2 || !tensor_is_dense(g) || g->offset != 0) return NULL;
    if (e->shape[0] != g->shape[g->rank - 1] || e->shape[0] != s->sums->numel) return NULL;
    if (!dtype_bytes(g->dtype, g->numel, &bytes) || bytes != s->bytes) return NULL; /* a part of it */
    tl_tensor *sums = storage_take_sums(s);
    return sums ? scope_adopt(sums) : NULL;
}

/* Undoes broadcasting and promotion. */
static tl_tensor *grad_fit(const struct pass *p, tl_tensor *g, const struct edge *e) {
    tl_tensor *sums = p->creates_graph ? NULL : grad_sums(g, e);
    if (sums) g = sums;
    if (!shape_equal(g->rank, g->shape, e->rank, e->shape)) {
        int axes[TL_MAX_RANK], n_axes = 0, extra = g->rank - e->rank;
        for (int i = 0; i < g->rank; i++)
            if (i < extra || (e->shape[i - extra] == 1 && g->shape[i] != 1)) axes[n_axes++] = i;
        bool keeps =
            n_axes && axes[n_axes - 1] >= extra; /* without kept axes the sum has the shape already, and is its own */
        if (n_axes) g = tl_sum(g, axes, n_axes, keeps);
        if (g && !shape_equal(g->rank, g->shape, e->rank, e->shape)) g = tl_reshape(g, e->rank, e->shape);
    }
    return g && g->dtype != e->dtype ? tl_cast(g, e->dtype) : g;
}

/* sum + g, in place when the sum is ours alone. Returns a reference that replaces the one given for `sum`. */
static tl_tensor *grad_add(const struct pass *p, tl_tensor *sum, tl_tensor *g, bool in_place) {
    tl_tensor *result = in_place && !p->creates_graph ? tl_add_(sum, g) : tl_add(sum, g);
    if (!result) return NULL;
    if (result != sum) {
        tensor_keep(result);
        tensor_drop(sum);
    }
    return result;
}

/* Adds to a leaf's .grad, which the user sees: a new one must be dense and its own, an old one is added to in place. */
static bool leaf_add(const struct pass *p, tl_tensor *leaf, tl_tensor *g) {
    if (leaf->grad) {
        tl_tensor *sum = grad_add(p, leaf->grad, g, !leaf->grad_is_borrowed);
        if (!sum) return false;
        leaf->grad = sum;
    } else {
        tl_tensor *own = is_exclusive(g, 1) ? g : tl_clone(g);
        if (!own) return false;
        leaf->grad = tensor_keep(own);
    }
    leaf->grad_is_borrowed = false;
    if (!leaf->is_stand_in && leaf->grad->storage->purpose == TL_TEMPORARY)
        storage_move(leaf->grad->storage, TL_GRADIENT);
    return true;
}

static bool capture_add(struct pass *p, const struct node *n, int output, const tl_tensor *leaf, tl_tensor *g) {
    for (int i = 0; i < p->n_captures; i++) {
        struct capture *c = &p->captures[i];
        if (!(leaf ? c->of == leaf : c->of->node == n && c->of->node_output == output)) continue;
        if (!c->grad) {
            c->grad = tensor_keep(g);
            continue;
        }
        tl_tensor *sum = grad_add(p, c->grad, g, false);
        if (!sum) return false; /* the old sum stays, for the caller to drop */
        c->grad = sum;
    }
    return true;
}

static bool edge_deliver(struct pass *p, const struct edge *e, tl_tensor *g, bool replaces) {
    if (e->leaf && p->captures) return capture_add(p, NULL, 0, e->leaf, g);
    tl_tensor **slot = e->leaf ? &e->leaf->grad : &e->node->grad[e->output];
    if (replaces) {
        tensor_drop(*slot);
        *slot = NULL;
    }
    if (e->leaf) return leaf_add(p, e->leaf, g);
    if (!*slot) {
        *slot = tensor_keep(g);
        return true;
    }
    tl_tensor *sum = grad_add(p, *slot, g, is_exclusive(*slot, 1));
    if (!sum) return false;
    *slot = sum;
    return true;
}

/* One contribution fewer to wait for; the last one calls the hook. */
static void leaf_settle(const struct pass *p, tl_tensor *leaf, bool tell) {
    if (--leaf->pending || !tell || p->captures || !leaf->extra || !leaf->extra->hook || !leaf->grad) return;
    leaf->extra->hook(leaf, leaf->grad, leaf->extra->hook_context);
}

/* ---- 3. Visiting ---- */

static void gradient_begin(const struct pass *p, struct node *n, tl_gradient *g) {
    g->node = n;
    g->creates_graph = p->creates_graph;
    g->retains_graph = p->retains_graph;
    g->fills_leaves = !p->captures;
    for (int j = 0; j < n->n_outputs; j++) {
        g->grad[j] = n->grad[j]; /* the reference moves here */
        n->grad[j] = NULL;
    }
    for (int i = 0; i < n->n_inputs; i++) {
        const struct edge *e = &n->edges[i];
        g->result[i] = g->into[i] = g->present[i] = NULL;
        g->replaces[i] = false;
        g->needs[i] = e->leaf ? !p->captures || is_captured(p, NULL, 0, e->leaf)
                              : e->node && (e->node->is_wanted || is_captured(p, e->node, e->output, NULL));
        if (!g->needs[i] || p->creates_graph || p->captures) continue;
        g->present[i] = e->leaf ? e->leaf->grad : e->node->grad[e->output];
        if (!g->present[i]) continue;
        bool is_ours =
            e->leaf ? !e->leaf->grad_is_borrowed && tensor_is_dense(e->leaf->grad) : is_exclusive(g->present[i], 1);
        if (is_ours) g->into[i] = g->present[i];
    }
}

/* The requested gradients at this node's outputs: retained .grad and captures. */
static bool outputs_tell(struct pass *p, struct node *n) {
    for (int j = 0; j < n->n_outputs; j++) {
        if (!n->grad[j]) continue;
        tl_tensor *x = n->retained ? n->retained[j] : NULL;
        if (x && !p->captures && !leaf_add(p, x, n->grad[j])) return false;
        if (p->captures && !capture_add(p, n, j, NULL, n->grad[j])) return false;
    }
    return true;
}

/* A rule may give one tensor to several inputs (a sum gives g to both): a leaf that comes first must not take it over
 * and add to it in place while others still have to read it. */
static bool is_wanted_again(const struct node *n, const tl_gradient *g, int i) {
    for (int k = i + 1; k < n->n_inputs; k++)
        if (g->needs[k] && g->result[k] == g->result[i]) return true;
    return false;
}

static bool node_visit(struct pass *p, struct node *n) {
    struct thread_state *s = thread_state();
    bool has_grad = false;
    for (int j = 0; j < n->n_outputs; j++) has_grad |= n->grad[j] != NULL;
    bool ok = !has_grad || outputs_tell(p, n);
    tl_gradient g;
    gradient_begin(p, n, &g);
    uint32_t path_before = s->path;
    s->path = n->path;
    tl_scope scope = tl_scope_begin();
    ok = ok && scope.depth;
    if (ok && has_grad && n->is_wanted) {
        n->op->backward(&g);
        ok = tl_error() == TL_OK;
        if (ok && !p->retains_graph) n->is_consumed |= node_consume(n); /* one that saved nothing can be walked again */
    }
    for (int j = 0; j < n->n_outputs; j++) /* a result may be this gradient itself: keep it until delivered */
        if (g.grad[j] && !scope_adopt(g.grad[j])) ok = false;
    for (int i = 0; i < n->n_inputs; i++) {
        const struct edge *e = &n->edges[i];
        tl_tensor *result = ok && g.needs[i] ? g.result[i] : NULL;
        if (result && result != g.into[i]) {
            tl_tensor *shared = is_wanted_again(n, &g, i) ? tensor_keep(result) : NULL;
            result = grad_is_there(n, i, result) ? grad_fit(p, result, e) : NULL;
            ok = result && edge_deliver(p, e, result, g.replaces[i]);
            tensor_drop(shared);
        }
        if (e->leaf) leaf_settle(p, e->leaf, ok);
    }
    for (size_t i = 0; i < n->inside.n; i++) leaf_settle(p, n->inside.leaf[i], ok);
    if (scope.depth) tl_scope_end(scope);
    s->path = path_before;
    return ok && tl_error() == TL_OK;
}

/* ---- The pass ---- */

static bool pass_run(struct pass *p, tl_tensor **roots, tl_tensor **seeds, int n_roots) {
    bool is_collected = pass_collect(p, roots, seeds, n_roots), ok = is_collected;
    if (ok && p->n_nodes) qsort(p->nodes, p->n_nodes, sizeof *p->nodes, younger_first);
    if (ok) pass_mark_wanted(p);
    for (int i = 0; ok && i < n_roots; i++) {
        if (!seeds[i]) continue;
        struct edge to_root = {
            .node = roots[i]->node, .output = roots[i]->node_output, .leaf = roots[i]->node ? NULL : roots[i]};
        tensor_keep(seeds[i]); /* the seed stays its owner's: no leaf may take it as its .grad */
        ok = edge_deliver(p, &to_root, seeds[i], false);
        tensor_drop(seeds[i]);
    }
    for (int i = 0; p->owns_roots && i < n_roots; i++) {
        tensor_drop(roots[i]);
        tensor_drop(seeds[i]);
    }
    if (!is_collected) return false;
    for (size_t i = 0; i < p->n_nodes; i++) {
        if (ok) ok = node_visit(p, p->nodes[i]);
        else node_announce(p->nodes[i], -1); /* no more work, but the leaves must not wait for it */
    }
    return ok;
}

static void pass_end(struct pass *p) {
    for (size_t i = 0; i < p->n_nodes; i++) {
        struct node *n = p->nodes[i];
        n->pass = NULL;
        for (int j = 0; j < n->n_outputs; j++) {
            tensor_drop(n->grad[j]);
            n->grad[j] = NULL;
        }
    }
    for (size_t i = 0; i < p->n_nodes; i++) node_drop(p->nodes[i]);
    memory_free(p->nodes);
}

/* A pass in its own phase and gradient mode. */
static bool pass_do(struct pass *p, tl_tensor **roots, tl_tensor **seeds, int n_roots, unsigned flags) {
    struct thread_state *s = thread_state();
    tl_phase phase = s->phase;
    bool off = s->grad_off;
    uint8_t autocast = s->autocast;
    struct keeper *keeper = s->keeper;
    p->creates_graph = flags & TL_CREATE_GRAPH;
    p->retains_graph = flags & (TL_CREATE_GRAPH | TL_RETAIN_GRAPH);
    s->phase = TL_BACKWARD;
    s->grad_off = !p->creates_graph;
    s->autocast = 0;
    s->keeper = NULL;
    struct leaf_list *reads = s->reads;
    s->reads = NULL;
    bool ok = pass_run(p, roots, seeds, n_roots);
    pass_end(p);
    s->phase = phase;
    s->grad_off = off;
    s->autocast = autocast;
    s->keeper = keeper;
    s->reads = reads;
    return ok;
}

bool graph_backward(tl_tensor **roots, tl_tensor **seeds, int n_roots) {
    struct pass p = {.owns_roots = true};
    return pass_do(&p, roots, seeds, n_roots, 0);
}

static tl_tensor *seed_check(tl_tensor *x, tl_tensor *seed, const char *what) {
    if (!tensor_check(x, what) || (seed && !tensor_check(seed, what))) return NULL;
    if (!seed && x->numel != 1) {
        error_set(TL_ERROR_USE, "%s: grad can be implicitly created only for scalar outputs", what);
        return NULL;
    }
    if (!seed && dtype_is_complex(x->dtype)) {
        error_set(TL_ERROR_USE, "%s: grad can be implicitly created only for real scalar outputs but got %s", what,
                  dtype_info(x->dtype)->torch_name);
        return NULL;
    }
    if (seed &&
        (!shape_equal(x->rank, x->shape, seed->rank, seed->shape) || seed->storage->device != x->storage->device)) {
        char got[128], need[128];
        tl_describe(seed, got, sizeof got);
        tl_describe(x, need, sizeof need);
        error_set(TL_ERROR_USE, "%s: the seed must have the output's shape and device: it is %s, the output %s", what,
                  got, need);
        return NULL;
    }
    if (!tensor_needs_grad(x)) {
        error_set(TL_ERROR_USE, "%s: element 0 of tensors does not require grad and does not have a grad_fn", what);
        return NULL;
    }
    return seed ? seed : tl_ones_like(x);
}

bool tl_backward(tl_tensor *loss, tl_tensor *seed, unsigned flags) {
    tl_phase phase = tl_set_phase(TL_BACKWARD);
    bool mode = tl_set_grad_mode(false);
    tl_scope scope = tl_scope_begin();
    struct pass p = {0};
    bool ok =
        scope.depth && (seed = seed_check(loss, seed, "tl_backward")) != NULL && pass_do(&p, &loss, &seed, 1, flags);
    if (scope.depth) tl_scope_end(scope);
    tl_set_grad_mode(mode);
    tl_set_phase(phase);
    return ok;
}

bool tl_gradients(tl_tensor *output, tl_tensor *seed, tl_tensor **inputs, int n_inputs, unsigned flags,
                  tl_tensor **grads) {
    struct capture captures[TL_MAX_INPUTS];
    if (n_inputs < 1 || n_inputs > TL_MAX_INPUTS)
        return error_set(TL_ERROR_USE, "tl_gradients: takes 1 to %d inputs, not %d", TL_MAX_INPUTS, n_inputs);
    if (!error_given(inputs, "tl_gradients", "a list of inputs") ||
        !error_given(grads, "tl_gradients", "a list for the gradients"))
        return false;
    for (int i = 0; i < n_inputs; i++) {
        if (!tensor_check(inputs[i], "tl_gradients")) return false;
        if (!tensor_needs_grad(inputs[i]))
            return error_set(TL_ERROR_USE,
                             "tl_gradients: one of the differentiated Tensors does not require grad (input %d)", i);
        captures[i] = (struct capture){.of = inputs[i]};
        grads[i] = NULL;
    }
    tl_phase phase = tl_set_phase(TL_BACKWARD);
    struct pass p = {.captures = captures, .n_captures = n_inputs};
    bool ok = (seed = seed_check(output, seed, "tl_gradients")) != NULL && pass_do(&p, &output, &seed, 1, flags);
    tl_set_phase(phase);
    for (int i = 0; i < n_inputs; i++) {
        if (ok) grads[i] = scope_adopt(captures[i].grad);
        else tensor_drop(captures[i].grad);
    }
    return ok && tl_error() == TL_OK;
}

void tl_zero_grad(tl_tensor *x, bool keep) {
    if (!tensor_check(x, "tl_zero_grad") || !x->grad) return;
    if (!keep) {
        tl_set_grad(x, NULL);
        return;
    }
    bool mode = tl_set_grad_mode(false);
    if (x->grad->node) { /* recorded by an earlier pass: its history ends here */
        node_drop(x->grad->node);
        x->grad->node = NULL;
        x->grad->requires_grad = false;
    }
    tl_fill_(x->grad, 0.0);
    tl_set_grad_mode(mode);
}

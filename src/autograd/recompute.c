/* recompute.c: activation checkpointing: drop intermediate results, recompute them in backward.
 *
 * tl_checkpoint runs fn with recording off and attaches one node to its results; the node saves the inputs and the
 * state of the random generator. In backward the rule runs fn again on detached inputs, recording this time (a
 * private graph), and backpropagates that at once. Parameters used inside get their gradients directly.
 *
 * Bit-equal gradients: the order of additions must be that of the plain program. For parameters it is, since the
 * recomputed nodes run where the originals would have. For inputs, the detached copy starts from the sum that the
 * input's gradient has reached so far (`present`), and the result replaces it: ((outer + a) + b), as without a
 * checkpoint.
 *
 * A keeper (engine/keeper.h) makes a checkpoint selective. */
#include "autograd/recompute.h"
#include "engine/keeper.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "engine/graph.h"
#include "engine/scope.h"

#define MAX_CHECKPOINT_INPUTS 16

struct attr_checkpoint {
    tl_checkpoint_fn fn;
    void *context; /* a copy when context_bytes > 0 */
    size_t context_bytes;
    tl_checkpoint_keep keep;
    tl_generator generator;
    uint8_t autocast;
    struct keeper keeper;
};

static void checkpoint_forget(void *attr) {
    struct attr_checkpoint *a = attr;
    keeper_clear(&a->keeper);
    if (a->context_bytes) memory_free(a->context);
}

/* Runs fn in a separate scope: only its results stay, which must be tensors; the caller gets a reference to each. */
static bool fn_run(const struct attr_checkpoint *a, tl_tensor **inputs, int n_inputs, tl_tensor **outputs,
                   int n_outputs) {
    for (int j = 0; j < n_outputs; j++) outputs[j] = NULL;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    bool ok = a->fn(a->context, inputs, n_inputs, outputs, n_outputs);
    if (!ok && tl_error() == TL_OK) error_set(TL_ERROR_USE, "checkpoint: the function failed");
    for (int j = 0; ok && j < n_outputs; j++) ok = tensor_check(outputs[j], "checkpoint");
    for (int j = 0; ok && j < n_outputs; j++) tensor_keep(outputs[j]);
    if (tl_scope_end(scope)) return ok;
    for (int j = 0; ok && j < n_outputs; j++) tensor_drop(outputs[j]);
    return false;
}

/* The first input that is the same tensor as input i. A tensor given twice has one stand-in, which gathers both
 * gradients: two would each start from the sum so far, and each replace it. */
static int twin_of(const struct node *n, int i) {
    const struct edge *e = n->edges;
    for (int k = 0; k < i; k++)
        if ((e[i].node || e[i].leaf) && e[k].node == e[i].node && e[k].output == e[i].output && e[k].leaf == e[i].leaf)
            return k;
    return i;
}

/* Runs fn again on detached inputs, recording. */
static bool recompute(tl_gradient *g, struct attr_checkpoint *a, tl_tensor **leaves, tl_tensor **outputs) {
    struct thread_state *s = thread_state();
    tl_phase phase = s->phase;
    tl_generator generator = s->generator;
    int n_inputs = g->node->n_inputs, n_outputs = g->node->n_outputs;
    for (int i = 0; i < n_inputs; i++) {
        int twin = twin_of(g->node, i);
        bool is_leaf = g->node->edges[i].leaf != NULL; /* stands for itself: fn may read it as a parameter too */
        leaves[i] = twin < i ? leaves[twin] : is_leaf ? gradient_input(g, i) : tl_detach(gradient_input(g, i));
        if (!leaves[i]) return false;
        if (twin < i || is_leaf) continue;
        leaves[i]->requires_grad = g->needs[i];
        leaves[i]->is_stand_in = true;
        if (!g->needs[i] || !g->present[i]) continue;
        leaves[i]->grad = tensor_keep(g->present[i]);
        leaves[i]->grad_is_borrowed = g->into[i] == NULL;
    }
    s->phase = TL_RECOMPUTE;
    s->grad_off = false;
    s->generator = a->generator;
    s->autocast = a->autocast;
    s->keeper = a->keep == TL_KEEP_MATMULS ? &a->keeper : NULL;
    a->keeper.is_replaying = true;
    a->keeper.is_last = !g->retains_graph;
    a->keeper.next = 0;
    bool ok = fn_run(a, leaves, n_inputs, outputs, n_outputs);
    s->keeper = NULL;
    s->autocast = 0; /* as everywhere in backward */
    s->generator = generator;
    s->grad_off = true;
    s->phase = phase;
    return ok;
}

static void checkpoint_backward(tl_gradient *g) {
    struct attr_checkpoint *a = g->node->attr;
    tl_tensor *leaves[MAX_CHECKPOINT_INPUTS], *outputs[TL_MAX_OUTPUTS], *seeds[TL_MAX_OUTPUTS];
    if (g->creates_graph) {
        error_set(TL_ERROR_USE, "higher derivatives do not go through a checkpoint");
        return;
    }
    if (!g->fills_leaves) {
        error_set(TL_ERROR_USE, "tl_gradients does not go through a checkpoint (need tl_backward)");
        return;
    }
    if (!recompute(g, a, leaves, outputs)) return;
    for (int j = 0; j < g->node->n_outputs;
         j++) { /* the pass takes over results and gradients: nested ones would pile up */
        seeds[j] = tensor_needs_grad(outputs[j]) ? g->grad[j] : NULL;
        if (seeds[j]) g->grad[j] = NULL;
    }
    if (!graph_backward(outputs, seeds, g->node->n_outputs)) return;
    for (int i = 0; i < g->node->n_inputs; i++) {
        if (twin_of(g->node, i) < i || g->node->edges[i].leaf) continue; /* a leaf has its gradient already */
        if (!g->needs[i] || leaves[i]->grad == g->present[i]) { /* nothing was added, or it was added in place */
            g->result[i] = g->into[i];
            continue;
        }
        g->result[i] = scope_adopt(tensor_keep(leaves[i]->grad));
        tl_set_grad(leaves[i], NULL); /* so that the scope is its only holder */
        g->replaces[i] = g->present[i] != NULL;
    }
}

static const tl_op op_checkpoint = {
    .name = "checkpoint", .id = -1, .backward = checkpoint_backward, .forget = checkpoint_forget};

/* Attaches the node to aliases of the results, without history. */
static bool outputs_attach(struct node *n, tl_tensor **outputs, int n_outputs) {
    for (int j = 0; j < n_outputs; j++) {
        tl_tensor *x = scope_adopt(tensor_alias(outputs[j]));
        if (!x) return false;
        if (n && dtype_has_gradient(x->dtype)) node_attach(n, x, j);
        outputs[j] = x;
    }
    return true;
}

/* Runs fn without recording. If recording was on, `reads` receives the leaves that fn reads; otherwise an enclosing
 * checkpoint continues to receive them. */
static bool checkpoint_forward(struct attr_checkpoint *a, tl_tensor **inputs, int n_inputs, tl_tensor **outputs,
                               int n_outputs, struct leaf_list *reads) {
    struct thread_state *s = thread_state();
    struct keeper *keeper = s->keeper;
    struct leaf_list *reads_before = s->reads;
    bool off = s->grad_off;
    s->grad_off = true;
    if (!off) s->reads = reads;
    s->keeper = !off && a->keep == TL_KEEP_MATMULS ? &a->keeper : NULL;
    bool ran = fn_run(a, inputs, n_inputs, outputs, n_outputs), ok = ran;
    for (int j = 0; ran && j < n_outputs; j++) ok = scope_adopt(outputs[j]) && ok;
    s->keeper = keeper;
    s->reads = reads_before;
    s->grad_off = off;
    return ok;
}

bool tl_checkpoint(tl_checkpoint_fn fn, void *context, size_t context_bytes, tl_checkpoint_keep keep,
                   tl_tensor **inputs, int n_inputs, tl_tensor **outputs, int n_outputs) {
    if (!fn || n_inputs < 0 || n_inputs > MAX_CHECKPOINT_INPUTS || n_outputs < 1 || n_outputs > TL_MAX_OUTPUTS)
        return error_set(TL_ERROR_USE, "tl_checkpoint: takes a function, 0 to %d inputs and 1 to %d outputs",
                         MAX_CHECKPOINT_INPUTS, TL_MAX_OUTPUTS);
    const size_t n_owned = thread_state()->n_owned;
    bool needs_grad = false;
    for (int i = 0; i < n_inputs; i++) {
        if (!tensor_check(inputs[i], "tl_checkpoint")) return false;
        if (!thread_state()->grad_off)
            needs_grad |= tensor_needs_grad(inputs[i]); /* a stale view looks into its base now */
    }
    struct attr_checkpoint a = {.fn = fn,
                                .context = context,
                                .keep = keep,
                                .generator = tl_generator_get(),
                                .autocast = thread_state()->autocast};
    if (context_bytes) {
        a.context = memory_new(context_bytes);
        if (!a.context) return error_memory(context_bytes, "a checkpoint");
        memcpy(a.context, context, context_bytes);
        a.context_bytes = context_bytes;
    }
    struct node *n = NULL;
    struct leaf_list reads = {0};
    bool ok = checkpoint_forward(&a, inputs, n_inputs, outputs, n_outputs, &reads);
    if (ok && !thread_state()->grad_off && (needs_grad || reads.n)) {
        n = node_new(&op_checkpoint, inputs, n_inputs, n_outputs, &a, sizeof a, saved_inputs(n_inputs));
        ok = n != NULL;
    }
    if (n) {
        n->inside = reads;
    } else { /* otherwise the node has taken them over */
        checkpoint_forget(&a);
        leaf_list_clear(&reads);
    }
    ok = ok && outputs_attach(n, outputs, n_outputs);
    if (!ok) scope_drop_to(n_owned);
    if (n && ok) node_drop(n);
    else if (n) node_cancel(n);
    return ok;
}

/* ---- Policies over a stack of layers ---- */

struct layers {
    tl_layer_fn layer; /* NULL: shared_layer */
    checkpoint_layer_fn shared_layer;
    void *context;
    int first, last; /* first .. last-1 */
    int n_through;   /* tensors that go through all layers */
};

static bool layer_run(const struct layers *l, int layer, tl_tensor **in, int n_in, tl_tensor **out) {
    if (!l->layer) return l->shared_layer(l->context, layer, in, n_in, out);
    return (out[0] = l->layer(l->context, layer, in[0])) != NULL;
}

static bool layers_run(void *context, tl_tensor **in, int n_in, tl_tensor **out, int n_out) {
    const struct layers *l = context;
    tl_tensor *all[MAX_CHECKPOINT_INPUTS];
    memcpy(all, in, (size_t)n_in * sizeof *all);
    for (int i = l->first; i < l->last; i++) {
        if (!layer_run(l, i, all, n_in, out)) return false;
        memcpy(all, out, (size_t)n_out * sizeof *all);
    }
    memcpy(out, all, (size_t)n_out * sizeof *out);
    return true;
}

/* The last layer on top of a checkpoint of all before it: only the very first input is ever kept. */
static bool layers_run_nested(void *context, tl_tensor **in, int n_in, tl_tensor **out, int n_out) {
    struct layers l = *(const struct layers *)context;
    if (l.last - l.first <= 1) return layers_run(&l, in, n_in, out, n_out);
    struct layers before = l;
    before.last--;
    tl_tensor *all[MAX_CHECKPOINT_INPUTS];
    memcpy(all, in, (size_t)n_in * sizeof *all);
    if (!tl_checkpoint(layers_run_nested, &before, sizeof before, TL_KEEP_INPUTS, in, n_in, all, n_out)) return false;
    return layer_run(&l, l.last - 1, all, n_in, out);
}

static bool run_all(const struct layers *l, tl_checkpoint_policy policy, int k, tl_tensor **inputs, int n_in,
                    tl_tensor **out) {
    struct layers all = *l;
    const int n_layers = l->last, n_out = l->n_through;
    tl_tensor *in[MAX_CHECKPOINT_INPUTS];
    if (policy == TL_CHECKPOINT_NONE || n_layers <= 0) return layers_run(&all, inputs, n_in, out, n_out);
    if (policy == TL_CHECKPOINT_NOTHING)
        return tl_checkpoint(layers_run_nested, &all, sizeof all, TL_KEEP_INPUTS, inputs, n_in, out, n_out);
    int group = policy == TL_CHECKPOINT_EVERY_K ? k : policy == TL_CHECKPOINT_SQRT ? (int)ceil(sqrt(n_layers)) : 1;
    if (group < 1) return error_set(TL_ERROR_USE, "tl_checkpoint_layers: groups of %d layers (need at least 1)", k);
    tl_checkpoint_keep keep = policy == TL_CHECKPOINT_SELECTIVE ? TL_KEEP_MATMULS : TL_KEEP_INPUTS;
    memcpy(in, inputs, (size_t)n_in * sizeof *in);
    for (int first = 0; first < n_layers; first += group) {
        struct layers part = all;
        part.first = first;
        part.last = first + group < n_layers ? first + group : n_layers;
        if (!tl_checkpoint(layers_run, &part, sizeof part, keep, in, n_in, out, n_out)) return false;
        memcpy(in, out, (size_t)n_out * sizeof *in);
    }
    return true;
}

tl_tensor *tl_checkpoint_layers(tl_layer_fn layer, void *context, int n_layers, tl_checkpoint_policy policy, int k,
                                tl_tensor *x) {
    tl_tensor *y = NULL;
    if (!tensor_check(x, "tl_checkpoint_layers")) return NULL;
    if (!layer) return error_set(TL_ERROR_USE, "tl_checkpoint_layers: got NULL instead of a layer"), NULL;
    const struct layers all = {.layer = layer, .context = context, .last = n_layers, .n_through = 1};
    return run_all(&all, policy, k, &x, 1, &y) ? y : NULL;
}

bool checkpoint_layers(checkpoint_layer_fn layer, void *context, int n_layers, tl_checkpoint_policy policy, int k,
                       tl_tensor **in, int n_in, int n_through, tl_tensor **out) {
    const struct layers all = {.shared_layer = layer, .context = context, .last = n_layers, .n_through = n_through};
    return run_all(&all, policy, k, in, n_in, out);
}

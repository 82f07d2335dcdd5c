/* graph.c: nodes, and how an op call is recorded.
 *
 * *In-place changes.* An in-place call on a tensor attaches the new node to the same handle. If the tensor is a view,
 * its base changes too: a second node, the *region*, is attached to the base. It is the old base with the view's
 * elements replaced by the new ones. The other views of that base notice by a counter (history) that their own node
 * is out of date, and are rebuilt from the base on their next use. */
#include "engine/graph.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "engine/inner_calls.h"
#include "engine/scope.h"

struct inner_calls inner_calls;

/* A clock per thread that is never behind what the thread reads (Lamport's). */
static _Thread_local uint64_t clock_now;

/* ---- Leaves read without recording ---- */

/* Makes room for n more. */
static bool leaf_list_reserve(struct leaf_list *list, size_t n) {
    while (list->capacity < list->n + n)
        if (!memory_grow((void **)&list->leaf, &list->capacity, list->capacity, sizeof *list->leaf))
            return error_memory(list->capacity * sizeof *list->leaf, "a checkpoint");
    return true;
}

static void leaf_list_add(struct leaf_list *list, tl_tensor *x) {
    for (size_t i = 0; i < list->n; i++)
        if (list->leaf[i] == x) return;
    list->leaf[list->n++] = tensor_keep(x);
}

void leaf_list_clear(struct leaf_list *list) {
    for (size_t i = 0; i < list->n; i++) tensor_drop(list->leaf[i]);
    memory_free(list->leaf);
    *list = (struct leaf_list){0};
}

static void note_reads(const tl_call *c, struct leaf_list *reads) {
    for (int i = 0; i < c->n_inputs; i++) {
        tl_tensor *x = c->input[i];
        if (x->requires_grad && !x->node && c->op->backward) leaf_list_add(reads, x);
    }
}

/* ---- Nodes ---- */

static saved_set wanted_saves(const tl_op *op, tl_tensor *const *input, int n_inputs) {
    saved_set saves = op->saves_any;
    for (int i = 0; i < n_inputs; i++)
        if (input[i]->requires_grad) saves |= op->saves[i];
    return saves;
}

/* One allocation: the node, then edges, saved, grad slots, shapes, attributes. */
static struct node *node_alloc(const tl_op *op, tl_tensor *const *input, int n_inputs, int n_outputs,
                               int n_saved_inputs, const void *attr, size_t attr_bytes) {
    size_t n_axes = 0, n_saved = (size_t)(n_saved_inputs + n_outputs);
    for (int i = 0; i < n_inputs; i++) n_axes += input[i]->rank;
    size_t edges = sizeof(struct node), saved = edges + (size_t)n_inputs * sizeof(struct edge),
           grad = saved + n_saved * sizeof(struct saved), shapes = grad + (size_t)n_outputs * sizeof(tl_tensor *),
           copy = shapes + n_axes * sizeof(int64_t);
    char *memory = memory_take(copy + attr_bytes);
    if (!memory) {
        error_memory(copy + attr_bytes, "a node of the graph");
        return NULL;
    }
    memset(memory, 0, shapes);
    struct node *n = (struct node *)memory;
    atomic_init(&n->refs, 1);
    n->op = op;
    n->path = thread_state()->path;
    n->n_inputs = n_inputs;
    n->n_outputs = n_outputs;
    n->n_saved_inputs = n_saved_inputs;
    n->edges = (struct edge *)(memory + edges);
    n->saved = (struct saved *)(memory + saved);
    n->grad = (tl_tensor **)(memory + grad);
    n->attr = memory + copy;
    n->attr_bytes = attr_bytes;
    n->bytes = copy + attr_bytes;
    if (attr_bytes) memcpy(n->attr, attr, attr_bytes);
    int64_t *shape = (int64_t *)(memory + shapes);
    for (int i = 0; i < n_inputs; i++) {
        struct edge *e = &n->edges[i];
        const int rank = e->rank = input[i]->rank;
        e->dtype = input[i]->dtype;
        e->device = input[i]->storage->device;
        e->shape = shape;
        for (int a = 0; a < rank; a++) shape[a] = input[i]->shape[a];
        shape += rank;
    }
    return n;
}

static void edge_set(struct edge *e, tl_tensor *x) {
    if (!x->requires_grad) return;
    if (x->node) {
        e->node = node_keep(x->node);
        e->output = x->node_output;
    } else {
        e->leaf = tensor_keep(x);
    }
}

/* An alias keeps the value, and, for an input, its history as it is now. */
static bool save(struct saved *slot, tl_tensor *x, bool is_input, uint64_t version) {
    bool is_parameter = is_input && !x->node && x->requires_grad; /* can never get a node: no cycle */
    tl_tensor *alias = is_parameter ? tensor_keep(x) : tensor_alias(x);
    if (!alias) return false;
    if (is_input && x->node) {
        alias->requires_grad = x->requires_grad;
        alias->node = node_keep(x->node);
        alias->node_output = x->node_output;
    }
    slot->tensor = alias;
    slot->version = version;
    slot->is_moved = x->storage->purpose == TL_TEMPORARY;
    if (slot->is_moved) storage_move(x->storage, TL_ACTIVATION);
    return true;
}

static const tl_op op_none;

struct node *node_new(const tl_op *op, tl_tensor **input, int n_inputs, int n_outputs, const void *attr,
                      size_t attr_bytes, saved_set saves) {
    int n_saved_inputs = saves_inputs_to(saves);
    if (n_saved_inputs > n_inputs) n_saved_inputs = n_inputs;
    struct node *n = node_alloc(op, input, n_inputs, n_outputs, n_saved_inputs, attr, attr_bytes);
    if (!n) return NULL;
    uint64_t clock = clock_now;
    for (int i = 0; i < n_inputs; i++) {
        edge_set(&n->edges[i], input[i]);
        if (n->edges[i].node && n->edges[i].node->sequence > clock) clock = n->edges[i].node->sequence;
    }
    n->sequence = clock_now = clock + 1;
    for (int i = 0; i < n_saved_inputs; i++)
        if (saves_input(saves, i) && !save(&n->saved[i], input[i], true, input[i]->storage->version)) {
            n->op = &op_none; /* the caller still owns what the attributes hold */
            node_cancel(n);
            return NULL;
        }
    return n;
}

bool node_consume(struct node *n) {
    bool had_any = false;
    for (int i = 0; i < n->n_saved_inputs + n->n_outputs; i++) {
        tl_tensor *x = n->saved[i].tensor;
        n->saved[i].tensor = NULL;
        had_any |= x != NULL;
        tensor_drop(x);
    }
    return had_any || n->inside.n; /* a checkpoint without inputs */
}

static void node_free(struct node *n) {
    node_consume(n);
    for (int i = 0; i < n->n_inputs; i++) {
        if (n->edges[i].node) node_drop(n->edges[i].node);
        tensor_drop(n->edges[i].leaf);
    }
    if (n->op->forget) n->op->forget(n->attr);
    leaf_list_clear(&n->inside);
    memory_free(n->retained);
    memory_put(n, n->bytes);
}

/* A graph may be a chain of a million nodes: dropping must not recurse. */
void node_drop(struct node *n) {
    static _Thread_local struct node *dead;
    static _Thread_local bool is_draining;
    if (!refs_drop(&n->refs)) return;
    n->next_dead = dead;
    dead = n;
    if (is_draining) return;
    is_draining = true;
    while (dead) {
        struct node *next = dead;
        dead = next->next_dead;
        node_free(next);
    }
    is_draining = false;
}

void node_cancel(struct node *n) {
    for (int i = 0; i < n->n_saved_inputs + n->n_outputs; i++) {
        const struct saved *s = &n->saved[i];
        if (s->tensor && s->is_moved && s->tensor->storage->purpose == TL_ACTIVATION)
            storage_move(s->tensor->storage, TL_TEMPORARY);
    }
    node_drop(n);
}

/* Room for the results that retain .grad; false: no memory, recorded. */
static bool node_reserve_retained(struct node *n) {
    if (n->retained) return true;
    size_t bytes = (size_t)n->n_outputs * sizeof(tl_tensor *);
    n->retained = memory_new(bytes);
    if (!n->retained) return error_memory(bytes, "a retained gradient");
    memset(n->retained, 0, bytes);
    return true;
}

static bool retains_grad(const tl_tensor *x) { return x->extra && x->extra->retains_grad; }

/* Attaches a node to a fresh tensor, taking over a reference. */
static void node_give(struct node *n, tl_tensor *x, int output) {
    x->node = n;
    x->node_output = output;
    x->requires_grad = true;
}

void node_attach(struct node *n, tl_tensor *x, int output) {
    struct node *before = x->node;
    if (retains_grad(x)) {
        if (before && before->retained) before->retained[x->node_output] = NULL;
        n->retained[output] = x;
    }
    x->node = node_keep(n);
    x->node_output = output;
    x->requires_grad = true;
    if (before) node_drop(before);
}

/* ---- Views and their base ---- */

static struct node *region_new(const tl_call *c, tl_tensor *view, struct node *node) {
    tl_tensor *base = view->base;
    /* Complex numbers are changed as pairs of real ones: then the geometry counts those. */
    const int64_t per_element = dtype_is_complex(base->dtype) && !dtype_is_complex(view->dtype) ? 2 : 1;
    struct attr_region r = {.rank = view->rank, .offset = view->offset - per_element * base->offset};
    memcpy(r.shape, view->shape, view->rank * sizeof *r.shape);
    memcpy(r.stride, view->stride, view->rank * sizeof *r.stride);
    if (!tensor_is_dense(base)) {
        call_fail_need(c, "a change of this view cannot be recorded, since its base is not contiguous", "a clone");
        return NULL;
    }
    tl_tensor *input[2] = {base, view};
    struct node *region = node_new(inner_calls.region, input, 2, 1, &r, sizeof r, 0);
    if (!region) return NULL;
    struct edge *e = &region->edges[1]; /* the view as it will be: produced by `node` */
    if (e->node) node_drop(e->node);
    tensor_drop(e->leaf);
    *e = (struct edge){
        .node = node_keep(node), .dtype = e->dtype, .device = e->device, .rank = e->rank, .shape = e->shape};
    return region;
}

/* Rebuilds a view whose base has changed. This is a separate call: it stays, and so does its bill, even if the call
 * that needed it fails, since the next one will not repeat it. */
static bool view_refresh(tl_tensor *x) {
    tl_tensor *base = x->base;
    if (!base || base->history == x->base_history) return true;
    struct thread_state *s = thread_state();
    struct ledger_list bills = {0}, *held = s->held_bills;
    s->held_bills = &bills;
    bool mode = tl_set_grad_mode(true);
    tl_scope scope = tl_scope_begin();
    tl_tensor *fresh = scope.depth ? inner_calls.view_again(base, x) : NULL;
    bool ok = fresh && (!fresh->node || !retains_grad(x) || node_reserve_retained(fresh->node));
    if (ok) {
        if (fresh->node) node_attach(fresh->node, x, fresh->node_output);
        x->base_history = base->history;
        ledger_list_keep(&bills, NULL);
    }
    ledger_list_unbill(&bills);
    if (scope.depth) tl_scope_end(scope);
    tl_set_grad_mode(mode);
    s->held_bills = held;
    return ok;
}

bool tensor_needs_grad(tl_tensor *x) { return view_refresh(x) && x->requires_grad; }

/* ---- Recording a call ---- */

static bool may_change(const tl_call *c, const tl_tensor *x, bool is_recorded) {
    if (!x->node && x->requires_grad)
        return call_fail_need(c, "a leaf Variable that requires grad is being used in an in-place operation",
                              "tl_set_grad_mode(false) around an update");
    if (x->base && !x->base->node && x->base->requires_grad)
        return call_fail_need(c, "a view of a leaf Variable that requires grad is being used in an in-place operation",
                              "tl_set_grad_mode(false) around an update");
    if (x->base && x->made_without_grad && (is_recorded || x->base->requires_grad))
        return call_fail(c, "a view was created in no_grad mode and is being modified inplace with grad mode enabled");
    return true;
}

/* The target of an in-place call as it was before, with its history: for gradients that read it. Owned by the scope. */
static tl_tensor *target_before(tl_tensor *x) {
    bool mode = tl_set_grad_mode(false);
    tl_tensor *before = inner_calls.clone(x);
    tl_set_grad_mode(mode);
    if (!before) return NULL;
    before->requires_grad = x->requires_grad;
    before->node = x->node ? node_keep(x->node) : NULL;
    before->node_output = x->node_output;
    return before;
}

/* The call's node. A gradient that reads what the call overwrites needs a copy of it, which is billed with the call. */
static struct node *call_node(const tl_call *c, int target, saved_set saves, struct ledger_list *bills) {
    tl_tensor *input[TL_MAX_INPUTS];
    if (target < 0 || !saves_input(saves, target))
        return node_new(c->op, c->input, c->n_inputs, c->n_outputs, c->attr, c->attr_bytes, saves);
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    struct thread_state *s = thread_state();
    struct ledger_list *outer = s->held_bills;
    s->held_bills = bills;
    memcpy(input, c->input, (size_t)c->n_inputs * sizeof *input);
    input[target] = target_before(c->input[target]);
    s->held_bills = outer;
    struct node *n =
        input[target] ? node_new(c->op, input, c->n_inputs, c->n_outputs, c->attr, c->attr_bytes, saves) : NULL;
    tl_scope_end(scope);
    return n;
}

/* The node with everything attached to it, and the region of an overwritten view. False: the caller cancels. */
static bool call_record(const tl_call *c, int target, struct graph_record *record) {
    saved_set saves = wanted_saves(c->op, c->input, c->n_inputs);
    struct node *n = record->node = call_node(c, target, saves, &record->bills);
    if (!n) return false;
    for (int j = 0; j < c->n_outputs; j++) {
        tl_tensor *x = c->output[j];
        bool is_changed = overwritten(c, j) >= 0;
        if (saves_output(saves, j) &&
            !save(&n->saved[n->n_saved_inputs + j], x, false, x->storage->version + is_changed))
            return false;
        if (is_changed && retains_grad(x) && !node_reserve_retained(n)) return false;
    }
    tl_tensor *base = target >= 0 ? c->input[target]->base : NULL;
    if (base && !(record->region = region_new(c, c->input[target], n))) return false;
    return !base || !retains_grad(base) || node_reserve_retained(record->region);
}

bool graph_prepare(const tl_call *c, struct graph_record *record) {
    record->node = record->region = NULL;
    record->reads = NULL;
    record->bills.first = NULL;
    struct thread_state *s = thread_state();
    if (s->grad_off) {
        record->reads = s->reads;
        return !s->reads || leaf_list_reserve(s->reads, (size_t)c->n_inputs);
    }
    bool wanted = false;
    for (int i = 0; i < c->n_inputs; i++) {
        if (c->input[i]->base && !view_refresh(c->input[i])) return false;
        wanted |= c->input[i]->requires_grad;
    }
    wanted = wanted && c->op->backward;
    int target = c->n_outputs ? overwritten(c, 0) : -1;
    if (target >= 0 && !may_change(c, c->input[target], wanted)) return false;
    if (!wanted || call_record(c, target, record)) return true;
    graph_cancel(record);
    return false;
}

void graph_cancel(struct graph_record *r) {
    if (r->region) node_drop(r->region);
    if (r->node) node_cancel(r->node);
    ledger_list_unbill(&r->bills);
    r->region = r->node = NULL;
}

/* Views made by gradient rules are not linked: they are private to the rule, and a link would add a second holder to
 * a sum of gradients. */
static void view_link(tl_tensor *view, tl_tensor *of) {
    if (thread_state()->grad_off && thread_state()->phase == TL_BACKWARD) return;
    view->base = tensor_keep(of->base ? of->base : of);
    view->base_history = view->base->history;
    view->made_without_grad = thread_state()->grad_off;
}

void graph_commit(const tl_call *c, struct graph_record *r) {
    if (c->op->kind == OP_VIEW) view_link(c->output[0], c->input[0]);
    if (r->reads) note_reads(c, r->reads);
    if (!r->node) return;
    if (c->n_outputs == 1 && overwritten(c, 0) < 0 && dtype_has_gradient(c->output[0]->dtype)) { /* most calls */
        node_give(r->node, c->output[0], 0);
        return;
    }
    for (int j = 0; j < c->n_outputs; j++) {
        tl_tensor *x = c->output[j];
        if (!dtype_has_gradient(x->dtype)) continue;
        node_attach(r->node, x, j);
        if (overwritten(c, j) >= 0) x->history++;
    }
    if (r->region) {
        /* The view too is rebuilt from its base on its next use: from now on it is part of the base. */
        tl_tensor *base = c->output[0]->base;
        node_attach(r->region, base, 0);
        base->history++;
    }
    ledger_list_keep(&r->bills, thread_state()->held_bills);
    if (r->region) node_drop(r->region); /* our own references; the tensors hold theirs */
    node_drop(r->node);
}

static void graph_forget(tl_tensor *x) {
    struct node *node = x->node;
    if (x->extra && x->extra->retains_grad && node && node->retained) node->retained[x->node_output] = NULL;
    x->node = NULL;
    if (node) node_drop(node);
    tensor_drop(x->grad);
    tensor_drop(x->base);
    if (x->extra && x->extra->hook_release) x->extra->hook_release(x->extra->hook_context);
    memory_free(x->extra);
}

__attribute__((constructor)) static void graph_setup(void) { tensor_forget = graph_forget; }

/* ---- Public ---- */

tl_tensor *tl_requires_grad(tl_tensor *x, bool on) {
    if (!tensor_check(x, "tl_requires_grad")) return NULL;
    if (on && !dtype_has_gradient(x->dtype)) {
        error_set(TL_ERROR_USE,
                  "tl_requires_grad: only Tensors of floating point and complex dtype can require gradients, not %s",
                  tl_dtype_name(x->dtype));
        return NULL;
    }
    if (!on && x->node) {
        error_set(TL_ERROR_USE,
                  "tl_requires_grad: you can only change requires_grad flags of leaf variables (use tl_detach)");
        return NULL;
    }
    x->requires_grad = on;
    return x;
}

bool tl_needs_grad(const tl_tensor *x) {
    return tensor_check(x, "tl_needs_grad") && tensor_needs_grad((tl_tensor *)(uintptr_t)x);
}

bool tl_is_leaf(const tl_tensor *x) { return tensor_check(x, "tl_is_leaf") && !x->node; }

const void *tl_graph_step(const tl_tensor *x) { return tensor_check(x, "tl_graph_step") ? x->node : NULL; }
const char *tl_graph_name(const void *step) { return step ? ((const struct node *)step)->op->name : NULL; }
int tl_graph_inputs(const void *step) { return step ? ((const struct node *)step)->n_inputs : 0; }

static const struct edge *edge_of(const struct node *node, int i) {
    return node && i >= 0 && i < node->n_inputs ? &node->edges[i] : NULL;
}
const void *tl_graph_input(const void *step, int i) {
    const struct edge *edge = edge_of(step, i);
    return edge ? edge->node : NULL;
}
tl_tensor *tl_graph_leaf(const void *step, int i) {
    const struct edge *edge = edge_of(step, i);
    return edge ? edge->leaf : NULL;
}

static struct tensor_extra *extra_of(tl_tensor *x) {
    if (x->extra) return x->extra;
    x->extra = memory_new(sizeof *x->extra);
    if (x->extra) *x->extra = (struct tensor_extra){0};
    else error_memory(sizeof *x->extra, "a hook");
    return x->extra;
}

tl_tensor *tl_retain_grad(tl_tensor *x) {
    if (!tensor_check(x, "tl_retain_grad")) return NULL;
    if (!tensor_needs_grad(x)) {
        error_set(TL_ERROR_USE, "tl_retain_grad: can't retain_grad on Tensor that has requires_grad=False");
        return NULL;
    }
    if (!x->node) return x; /* leaves always do */
    if (!extra_of(x) || !node_reserve_retained(x->node)) return NULL;
    x->node->retained[x->node_output] = x;
    x->extra->retains_grad = true;
    return x;
}

tl_tensor *tl_grad_of(tl_tensor *x) { return tensor_check(x, "tl_grad_of") ? x->grad : NULL; }

static bool grad_misfit(const tl_tensor *x, const tl_tensor *grad) {
    char got[128], need[128];
    tl_describe(grad, got, sizeof got);
    tl_describe(x, need, sizeof need);
    return error_set(TL_ERROR_USE,
                     "tl_set_grad: the gradient must have the tensor's shape and device: it is %s, the tensor %s", got,
                     need);
}

bool tl_set_grad(tl_tensor *x, tl_tensor *grad) {
    if (!tensor_check(x, "tl_set_grad") || (grad && !tensor_check(grad, "tl_set_grad"))) return false;
    if (grad &&
        (!shape_equal(x->rank, x->shape, grad->rank, grad->shape) || x->storage->device != grad->storage->device))
        return grad_misfit(x, grad);
    if (grad && !dtype_has_gradient(grad->dtype))
        return error_set(TL_ERROR_USE, "tl_set_grad: a gradient is of a floating point or complex dtype, not %s",
                         tl_dtype_name(grad->dtype));
    tl_tensor *before = x->grad;
    x->grad = grad ? tensor_keep(grad) : NULL;
    x->grad_is_borrowed = false;
    if (grad && grad->storage->purpose == TL_TEMPORARY) storage_move(grad->storage, TL_GRADIENT);
    tensor_drop(before);
    return true;
}

bool tl_set_grad_hook(tl_tensor *leaf, tl_grad_hook hook, void *context, void (*release)(void *context)) {
    bool ok = tensor_check(leaf, "tl_set_grad_hook");
    if (ok && leaf->node) ok = error_set(TL_ERROR_USE, "tl_set_grad_hook: hooks are for leaves");
    if (!ok || !extra_of(leaf)) {
        if (release) release(context);
        return false;
    }
    struct tensor_extra before = *leaf->extra;
    leaf->extra->hook = hook;
    leaf->extra->hook_context = context;
    leaf->extra->hook_release = release;
    if (before.hook_release) before.hook_release(before.hook_context); /* last: it may call us */
    return true;
}

tl_tensor *tl_detach(tl_tensor *x) { return tensor_check(x, "tl_detach") ? scope_adopt(tensor_alias(x)) : NULL; }

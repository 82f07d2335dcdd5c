/* graph.h: the recorded graph, for the backward pass.
 *
 * A *node* is one op call. It is attached to the tensors it produced, and holds its inputs' nodes (edges) and the
 * tensors that its gradient rule needs (saved). A loss therefore holds its whole graph, and freeing the loss frees
 * the graph. Nodes carry a sequence number, higher than those of everything they read, so descending numbers are an
 * order for backward; within a thread they follow program order.
 *
 * No cycles: a node holds *aliases* of tensors (same storage, own handle), never the handles that it is attached to.
 */
#ifndef ENGINE_GRAPH_H
#define ENGINE_GRAPH_H

#include "account/ledger.h"
#include "engine/apply.h"

struct edge { /* where the gradient of an input goes: to a node's output, to a leaf, or nowhere */
    struct node *node;
    int output;
    tl_tensor *leaf;
    tl_dtype dtype;    /* of the input, whose gradient is converted to this dtype and shape */
    tl_device *device; /* where the input is, and its gradient must be */
    int rank;
    int64_t *shape;
};

struct saved {
    tl_tensor *tensor;     /* NULL: not kept */
    uint64_t version : 63; /* of its storage when it was kept */
    uint64_t is_moved : 1; /* its storage was TL_TEMPORARY before */
};

struct leaf_list { /* leaves, each once, each held */
    tl_tensor **leaf;
    size_t n, capacity;
};
void leaf_list_clear(struct leaf_list *list);

struct node {
    atomic_int refs;
    uint32_t path;
    uint64_t sequence;
    const tl_op *op;
    void *attr;
    size_t attr_bytes, bytes; /* of the attributes; of the node with all that follows it */
    int n_inputs, n_outputs, n_saved_inputs;
    bool is_consumed;        /* backward has visited it and freed what it saved, if anything */
    bool is_wanted;          /* the running backward pass needs its result */
    const void *pass;        /* the backward pass that is walking over it */
    struct leaf_list inside; /* a checkpoint: leaves that get gradients when its inside runs again */
    struct edge *edges;
    struct saved *saved;  /* inputs, then outputs */
    tl_tensor **grad;     /* during backward: one slot per output */
    tl_tensor **retained; /* weak: results that retain .grad */
    struct node *next_dead;
};

struct tensor_extra { /* fields that few tensors need */
    bool retains_grad;
    tl_grad_hook hook;
    void *hook_context;
    void (*hook_release)(void *context);
};

/* The arguments and results of a backward rule. */
struct tl_gradient {
    struct node *node;
    tl_tensor *grad[TL_MAX_OUTPUTS]; /* d loss / d output j; NULL: none */
    bool needs[TL_MAX_INPUTS];
    tl_tensor *into[TL_MAX_INPUTS];    /* where the result will be added; a rule may add there itself, and return it */
    tl_tensor *present[TL_MAX_INPUTS]; /* the sum so far, even when it may not be changed (checkpoints continue it) */
    tl_tensor *result[TL_MAX_INPUTS];  /* for the rule to fill */
    bool replaces[TL_MAX_INPUTS];      /* the result already contains `present` */
    bool creates_graph, retains_graph, fills_leaves;
};

struct graph_record {
    struct node *node;        /* NULL: nothing is recorded */
    struct node *region;      /* an in-place call on a view: what happens to its base */
    struct leaf_list *reads;  /* where to record the leaves it reads; NULL: nowhere */
    struct ledger_list bills; /* of calls that are part of this one */
};

/* Before the kernel: everything that can fail. Then one of the other two, which cannot. */
bool graph_prepare(const tl_call *c, struct graph_record *record);
void graph_commit(const tl_call *c, struct graph_record *record);
void graph_cancel(struct graph_record *record);

/* A node that is not an op call of the list (checkpoints). Takes over no tensors, and the contents of the attributes
 * only if it succeeds. */
struct node *node_new(const tl_op *op, tl_tensor **input, int n_inputs, int n_outputs, const void *attr,
                      size_t attr_bytes, saved_set saves);
/* Attaches a node to a tensor in place of the one it has. */
void node_attach(struct node *node, tl_tensor *x, int output);
static inline struct node *node_keep(struct node *node) {
    refs_keep(&node->refs);
    return node;
}
void node_drop(struct node *node);
/* Drops the node of a call that did not happen: what it saved is no activation after all. */
void node_cancel(struct node *node);
/* Frees what was saved; false if nothing was. */
bool node_consume(struct node *node);

/* Walks the graph of several results at once; seeds[i] NULL: nothing flows into root i. Leaves' .grad are filled. Takes
 * over the caller's references to roots and seeds, and drops them as soon as it can. */
bool graph_backward(tl_tensor **roots, tl_tensor **seeds, int n_roots);

/* Whether a tensor takes part in gradients, its base's changes included. False may also be an error. */
bool tensor_needs_grad(tl_tensor *x);

/* Shorter names of the public accessors, for rules. */
static inline tl_tensor *gradient_input(tl_gradient *g, int i) { return tl_gradient_input(g, i); }
static inline tl_tensor *gradient_output(tl_gradient *g, int j) { return tl_gradient_output(g, j); }
/* Whether the gradient of input i, alone or as a part of one with `numel` elements in rows of `width`, goes to an op
 * that will sum it over its rows. A rule that has these sums at hand leaves them with the gradient
 * (storage_set_sums). */
bool gradient_wants_sums(const tl_gradient *g, int i, int64_t numel, int64_t width);
/* For ops without a derivative: an error that says so. */
void gradient_missing(tl_gradient *g);

#endif

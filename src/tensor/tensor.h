/* tensor.h: a tensor is a view of a storage, plus its part of the graph.
 *
 * Handles are counted: a scope, a graph node, a Python object each hold one. A handle that is gone stays
 * recognisable for a while (*Dead handles* in tensor.c), so that its use is an error and not a crash.
 */
#ifndef TENSOR_TENSOR_H
#define TENSOR_TENSOR_H

#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tensor/storage.h"

struct node;         /* engine/graph.h: the op call that produced a tensor */
struct tensor_extra; /* engine/graph.h: hooks and other rare things */

struct tl_tensor {
    uint32_t alive; /* TENSOR_ALIVE, or TENSOR_DEAD */
    atomic_int refs;
    tl_dtype dtype;
    uint8_t rank, capacity; /* axes in use, axes there is room for */
    bool is_dense;          /* row-major without gaps */
    bool requires_grad;
    bool made_without_grad; /* a view made while recording was off */
    bool grad_is_borrowed;  /* .grad is shared: add to a copy */
    bool is_stand_in;       /* stands in for the input of a checkpoint: its .grad is not the user's */
    int64_t numel, offset;
    struct storage *storage;

    struct node *node; /* NULL: a leaf */
    int node_output;
    uint32_t pending;               /* backward: contributions this leaf still waits for */
    uint64_t history, base_history; /* in-place changes recorded on me; those of my base that I have seen */
    tl_tensor *base;                /* the tensor a recorded view looks into; never itself a view */
    tl_tensor *grad;
    struct tensor_extra *extra;
    int64_t *stride; /* behind shape */
    int64_t shape[];
};

#define TENSOR_ALIVE 0x7a11u
#define TENSOR_DEAD 0xdeadu

/* A handle with one reference, on a storage whose reference it takes over (also on failure). NULL: recorded. */
tl_tensor *tensor_new(struct storage *storage, const struct layout *layout, int64_t numel);
/* Another handle on the same elements, without history. */
tl_tensor *tensor_alias(const tl_tensor *x);

static inline tl_tensor *tensor_keep(tl_tensor *x) {
    refs_keep(&x->refs);
    return x;
}
void tensor_drop(tl_tensor *x); /* NULL allowed */

/* Set by the graph: drops the graph's part of a tensor that is freed. */
extern void (*tensor_forget)(tl_tensor *x);

void tensor_layout(const tl_tensor *x, struct layout *layout);
void *tensor_data(const tl_tensor *x);
static inline bool tensor_is_dense(const tl_tensor *x) { return x->is_dense; }

/* Makes x, dense and outside any graph, a view of `whole` from element `at` on; its old contents are lost. The caller
 * sees to it that no other view of x's storage is meant to follow. */
void tensor_move_into(tl_tensor *x, const tl_tensor *whole, int64_t at);

/* The same elements of the same storage in the same order. */
bool tensor_same_view(const tl_tensor *a, const tl_tensor *b);

/* True for a live handle; otherwise records what is wrong with it (`what` names the caller). NULL with an error
 * pending is not a new error. */
bool tensor_check(const tl_tensor *x, const char *what);

#endif

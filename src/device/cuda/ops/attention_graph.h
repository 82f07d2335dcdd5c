/* attention_graph.h: cuDNN's descriptors, and the two graphs that attention is to cuDNN (attention_graph.c). */
#ifndef CUDA_ATTENTION_GRAPH_H
#define CUDA_ATTENTION_GRAPH_H

#include "device/cuda/ops/attention.h"

#include <cudnn.h>

typedef cudnnBackendDescriptor_t descriptor;

/* Names of the real tensors; intermediates count on from VIRTUAL. */
enum tensor_id {
    ID_Q = 1,
    ID_K,
    ID_V,
    ID_OUT,
    ID_LSE,
    ID_G,
    ID_DQ,
    ID_DK,
    ID_DV,
    ID_SOFTMAX_SUM,
    ID_DQ_SUM,
    ID_SCALE,
    ID_MINUS_INFINITY,
    ID_LENGTH_MINUS_INFINITY,
    ID_QUERY_LENGTHS,
    ID_KEY_LENGTHS,
    ID_ONE,
    ID_VIRTUAL = 100
};

/* A graph under construction. After the first failure every step does nothing, so that building reads as a list. */
enum { GRAPH_MAX_DESCRIPTORS = 224, GRAPH_MAX_OPERATIONS = 40 };
struct graph {
    descriptor all[GRAPH_MAX_DESCRIPTORS]; /* to be destroyed */
    int n_all;
    descriptor operations[GRAPH_MAX_OPERATIONS];
    int n_operations;
    int64_t next_virtual;
    cudnnStatus_t status;
    const char *failed_at;
};

/* Each step does nothing once graph->status has failed; `what` says where that was. graph_note returns whether all
 * is well. */
bool graph_note(struct graph *graph, cudnnStatus_t status, const char *what);
descriptor graph_new(struct graph *graph, cudnnBackendDescriptorType_t type, const char *what);
void graph_set(struct graph *graph, descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               int64_t count, const void *values, const char *what);
void graph_finalize(struct graph *graph, descriptor d, const char *what);

/* Starts empty; destroys every descriptor made with graph_new. */
void graph_begin(struct graph *graph);
void graph_release(struct graph *graph);

/* The operations of one call (or slice of one), in graph->operations. */
void graph_forward(struct graph *graph, const struct attention_call *call);
void graph_backward(struct graph *graph, const struct attention_call *call, bool is_fast);

#endif

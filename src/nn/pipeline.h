/* pipeline.h: a pass of micro-batches through the stages of a model, as pipeline.c and interleaved.c run it. */
#ifndef NN_PIPELINE_H
#define NN_PIPELINE_H

#include "nn/model.h"

/* A micro-batch between its forward and its backward. */
struct flight {
    tl_tensor *x; /* what was received; NULL on the first stage */
    tl_tensor *y; /* what was sent; the loss on the last stage */
};

struct pipeline {
    tl_module *model;
    struct model *state;
    tl_comm *pp;
    bool is_first, is_last;
    int64_t n;
    tl_micro_batch give;
    void *context;
    pipeline_rounds run;
    double weight;          /* 0: forward alone */
    struct flight *flights; /* a ring of n_room, the oldest at `oldest` */
    int64_t n_room, oldest, n_flights;
    tl_tensor *next;     /* what was received for the next forward; NULL: nothing yet */
    tl_tensor *early[3]; /* tokens, targets and beginnings of the first micro-batch, if they were given before it */
    tl_tensor *total;    /* the sum of the losses */
    tl_generator before; /* all random numbers of a pass of the whole model are within `n_drawn` */
    uint64_t n_drawn;
};

/* Whether the chunk that the model runs now is the first of the whole pipeline, and the last one. */
static inline bool pipeline_is_beginning(const struct pipeline *p) { return p->is_first && p->state->chunk == 0; }
static inline bool pipeline_is_end(const struct pipeline *p) {
    return p->is_last && p->state->chunk + 1 == p->state->parallel.n_chunks;
}

bool pipeline_give(struct pipeline *p, int64_t k, tl_tensor **tokens, tl_tensor **targets, tl_tensor **begin);
/* Forward of micro-batch k. x is what was received, and becomes the flight's; NULL: it is received now. */
bool pipeline_forward(struct pipeline *p, int64_t k, tl_tensor *x, struct flight *flight);
/* Backward of a flight, given the gradient of what it sent, which is dropped. *dx receives that of what it received,
 * kept; NULL on the first stage. */
bool pipeline_backward(struct pipeline *p, struct flight *f, tl_tensor *dy, tl_tensor **dx);
void flight_end(struct flight *f);

/* All micro-batches, where stages have several chunks of layers. False: recorded. */
bool pipeline_interleave(struct pipeline *p);

#endif

/* shard.h: a training on several devices, as an estimate on top of the exact bytes of one device.
 *
 * Each of N devices has the whole model and its own micro-batches (none), or a part of what is kept between steps:
 *
 *              weights W   gradients G   master and moments M      sent by each device in a step, k micro-batches
 *     none     W           G             M                         2 f G                    all-reduce
 *     zero1    W           G             M / N                     f (G + W)                reduce-scatter, all-gather
 *     zero2    W           G / N         M / N                     f (k g + W)
 *     zero3    W / N       G / N         M / N                     f k (2 W + g)            weights twice per micro
 *
 * with f = (N - 1) / N, as rings send; g is the gradient of one micro-batch, G the sum of them, which may be wider.
 * Activations, workspace and data are not sharded. */
#ifndef PLAN_SHARD_H
#define PLAN_SHARD_H

#include "plan/plan_target.h"

enum shard_mode { SHARD_NONE, SHARD_ZERO1, SHARD_ZERO2, SHARD_ZERO3, SHARD_COUNT };
extern const char *const shard_names[SHARD_COUNT];
/* False: recorded. */
bool shard_find(const char *name, enum shard_mode *mode);

struct shard_estimate {
    uint64_t weights_bytes, gradients_bytes, states_bytes; /* kept by one device; states: master copy and moments */
    uint64_t gathered_bytes;                               /* weights that others keep, while they are used */
    uint64_t other_bytes; /* activations, temporaries, workspace, data: their own peak */
    uint64_t total_bytes; /* the most at one time */
    double sent_bytes;    /* by one device in a step */
    double link, link_s;  /* B/s one way, and seconds on it; 0: not known */
    bool is_network;      /* the link is an assumed network between nodes */
};

/* Devices of a node share the chip's own link; beyond that each has a network of this many B/s. */
#define SHARD_NODE 8
#define SHARD_NETWORK 50e9

struct shard_estimate shard_estimate(const struct price *price, const struct plan_target *target, int64_t n_devices,
                                     enum shard_mode mode, double link);

#endif

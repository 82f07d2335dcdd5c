/* buckets.h: the parameters of a model in flat memory, for processes that each see other tokens.
 *
 * A bucket is a vector of parameters of one block of the model that are updated alike, one behind the other, its length
 * a multiple of the number of ranks n. Gradients are summed bucket by bucket: they are packed into a vector, and each
 * rank receives the sum of its n-th part, added in the order of ranks (ops/collective.c). The norm comes from these
 * parts. Then
 *
 *     none     every rank gathers all sums, and updates everything
 *     zero1    every rank updates its part, and gathers the others' parameters; the optimizer's state exists once
 *     zero2    the same; a bucket is summed as soon as backward has made its gradients, which are dropped at once
 *     zero3    the same; every rank keeps its part of the parameters alone. Those of a block are gathered before the
 *              block runs and dropped behind it, and again in backward, until their gradients are summed; those
 *              outside of blocks are there for a whole micro-batch
 *
 * Ranks have parts of the same length, so that all of them cost the same. A parameter begins at a multiple of 4
 * elements; what is between them is 0 in every vector of gradients, and no one reads it in one of parameters.
 *
 * Which parameters are in a bucket does not depend on the number of ranks, and every element is updated by itself. So
 * all modes give the same bits, except that with several micro-batches zero2 and zero3 add first over ranks and then
 * over micro-batches, and the others first over micro-batches. */
#ifndef STEP_BUCKETS_H
#define STEP_BUCKETS_H

#include "nn/model.h"
#include "step/mesh.h"
#include "tally.h"

enum sharding {
    SHARDING_NONE,
    SHARDING_ZERO1,
    SHARDING_ZERO2,
    SHARDING_ZERO3
}; /* the order of the setting's choices */

#define BUCKET_BYTES ((int64_t)25 << 20) /* a bucket has more only if one parameter has */

struct bucket_member {
    tl_tensor *parameter;
    int64_t at; /* in the bucket */
    struct bucket *bucket;
    int kind;
};

struct bucket {
    struct bucket_member *members; /* in the model's order */
    int n_members, n_waiting;      /* n_waiting: whose gradients backward has not made yet; zero2 */
    int64_t length, used, part;    /* of the vector; up to the end of the last member, rounded up; of one rank's part */
    int block;                     /* of the model, whose parameters these are; -1: of none */
    tl_tensor *flat;               /* (length) the parameters; NULL: they are not here (zero3) */
    tl_tensor *own;                /* what this rank updates: flat, or its part, a view of flat except in zero3 */
    tl_tensor *grad;               /* (part) sum over ranks; NULL: not yet */
    struct buckets *all;
};

struct buckets {
    struct bucket *at;
    int n;
    struct bucket_member *members;
    struct mesh_group group;
    enum sharding mode;
    bool sums_in_f32;            /* sums over micro-batches of gradients that are narrower */
    tl_tensor *nothing;          /* what parameters that are not here are views of */
    tl_module *model;            /* whose blocks are watched; NULL: none */
    struct block_watch *watches; /* zero3 */
    struct bucket_block {
        struct buckets *all;
        int block;
    } * blocks;
};

/* Moves the parameters of a model into flat memory. Those of different `kinds` (NULL: they have none) are not in one
 * bucket. False: recorded, here and below; buckets_free it, before the model. */
bool buckets_make(struct buckets *b, tl_module *model, tl_tensor **parameters, const int *kinds, int n,
                  const struct mesh_group *group, enum sharding mode, bool sums_in_f32);
void buckets_free(struct buckets *b);

/* Around every pass through the model: the parameters outside of blocks. Whatever is still gathered is dropped. */
bool buckets_enter(struct buckets *b);
void buckets_leave(struct buckets *b);

/* After the micro-batches: sums the gradients of all parameters, which are then dropped. In zero2 backward has done
 * it. */
bool buckets_reduce(struct buckets *b);
/* Afterwards: sums those of one kind over the stages that hold the same parameters, which all have equal parts of them.
 */
bool buckets_share(struct buckets *b, int kind, tl_comm *stages);
/* The sum of squares of this rank's parts, of the kinds that count (a bit each): () f32. */
tl_tensor *buckets_squares(struct buckets *b, unsigned kinds);
/* Gives each bucket's `own` its gradient, for the optimizer; drops it again. */
bool buckets_give(struct buckets *b);
void buckets_take(struct buckets *b);
/* After the update: all ranks' parts of the parameters; in zero3 not before they are used. */
bool buckets_gather(struct buckets *b);

#endif

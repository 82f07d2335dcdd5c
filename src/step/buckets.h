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
 * With groups inside the ranks (--shard-group), n are the ranks of one, and every group keeps all parts. A rank's sums
 * inside its group are then summed across the groups, in their order, after the last micro-batch: bits are those of
 * sums in this order, other than those of one group of all ranks.
 *
 * Exchanges overlap with computation, unless they are asked not to: a bucket's gradients are sent as soon as backward
 * has made them (with several micro-batches and before zero2, in the last one), and summed when those of another block
 * are made, so at most one block's are under way; in `none` the sums are then gathered in the same way. After an update
 * the parameters of a block need not have arrived before it runs. In zero3 those of the next block are gathered while
 * one runs, forward and backward, and the last block's stay from forward to backward. Where exchanges begin and end
 * follows from the program alone, never from what has arrived: memory is what was priced, and all ranks make the same
 * calls in the same order.
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

struct collective;

struct bucket_member {
    tl_tensor *parameter;
    int64_t at; /* in the bucket */
    struct bucket *bucket;
    int kind;
    /* over micro-batches, in f32; NULL: the parameter's gradient is wide enough, or there is none yet */
    tl_tensor *sum;
};

struct bucket {
    struct bucket_member *members; /* in the model's order */
    int n_members, n_waiting;      /* n_waiting: whose gradients backward has not made yet */
    int64_t length, used, part;    /* of the vector; up to the end of the last member, rounded up; of one rank's part */
    int block;                     /* of the model, whose parameters these are; -1: of none */
    const struct mesh_group *group, *across; /* ranks that divide it; and one of each such group: of `all` */
    tl_tensor *flat;                         /* (length) the parameters; NULL: they are not here (zero3) */
    tl_tensor *own;   /* what this rank updates: flat, or its part, a view of flat except in zero3 */
    tl_tensor *grad;  /* (part) sum over ranks; NULL: not yet */
    tl_tensor *whole; /* none: (length) the same of all parts */
    /* What is under way; NULL: nothing. */
    struct collective *reducing, *joining;   /* gradients: to their sums, and these to `whole` */
    struct collective *crossing, *returning; /* `grad`: to its sum across groups, and parts of this back to all */
    bool is_crossed;                         /* it is that sum, or will be */
    struct collective *fetching;             /* parameters */
    bool is_done;                            /* zero3: its gradients of this micro-batch are made */
    struct buckets *all;
};

/* zero3: this rank's parts of buckets of blocks, made as soon as the blocks are. */
struct bucket_parts {
    struct bucket_part {
        const tl_tensor *first; /* member of the bucket */
        tl_tensor *own;         /* NULL: its bucket has it */
    } * at;
    size_t n, capacity;
    tl_tensor *nothing; /* as the buckets' */
};

struct buckets {
    struct bucket_parts early;
    struct bucket *at;
    int n;
    struct bucket_member *members;
    struct mesh_group group, across; /* ranks that divide buckets; one of each such group */
    struct mesh_group apart, alone;  /* the same of buckets of apart_kind, which only they hold */
    int apart_kind;
    enum sharding mode;
    bool sums_in_f32;     /* sums over micro-batches of gradients that are narrower: of parts from zero2 on, */
    bool has_member_sums; /* and of each member before */
    bool overlaps;        /* exchanges are under way while others are computed */
    bool is_last;         /* of a step's micro-batches */
    int late_kind;
    tl_tensor *nothing;          /* what parameters that are not here are views of */
    tl_module *model;            /* whose blocks are watched; NULL: none */
    struct block_watch *watches; /* zero3 */
    struct bucket_block {
        struct buckets *all;
        int block;
    } * blocks;
};

struct buckets_options {
    enum sharding mode;
    bool sums_in_f32, overlaps;
    struct mesh_group across; /* of size 1: there is one group of ranks */
    int late_kind;            /* whose sums buckets_share needs, in parts; -1: none */
    struct mesh_group apart;  /* ranks that hold, and divide, parameters of apart_kind, in the place of all */
    int apart_kind;
};

/* The kind of its members that functions below take: kinds that differ above their lowest byte alone are kept apart, as
 * parameters are that an optimizer treats differently, but are alike otherwise. */
enum { BUCKET_GROUP = 256 };
static inline int bucket_holding(const struct bucket *k) { return k->members[0].kind % BUCKET_GROUP; }

/* zero3, before buckets_make: takes a block's parameters, as the model is made, so that a rank never has those of two.
 * Buckets_make is then given the same parameters and kinds, of all blocks. */
bool buckets_take_block(struct buckets *b, tl_tensor **parameters, const int *kinds, int n,
                        const struct mesh_group *group, const struct buckets_options *options);
/* Moves the parameters of a model into flat memory. Those of different `kinds` (NULL: they have none) are not in one
 * bucket. False: recorded, here and below; buckets_free it, before the model. */
bool buckets_make(struct buckets *b, tl_module *model, tl_tensor **parameters, const int *kinds, int n,
                  const struct mesh_group *group, const struct buckets_options *options);
void buckets_free(struct buckets *b);

/* Around every pass through the model: the parameters outside of blocks. Whatever is still gathered is dropped. */
bool buckets_enter(struct buckets *b);
void buckets_leave(struct buckets *b);
bool buckets_settle(struct buckets *b); /* what is under way to parameters that are always here has arrived */

/* Before backward of a micro-batch. In the last one the exchanges begin that wait for sums over all of them. */
void buckets_expect(struct buckets *b, bool is_last);
/* After it: gradients that zero2 and zero3 have sent are summed. */
bool buckets_finish(struct buckets *b);
/* After the micro-batches: sums the gradients of all parameters, as far as backward has not done it; they are then
 * dropped. */
bool buckets_reduce(struct buckets *b);
/* Afterwards: sums those of one kind over the stages that hold the same parameters, which all have equal parts of them.
 */
bool buckets_share(struct buckets *b, int kind, tl_comm *stages);
/* The sum of squares of this rank's parts, of the kinds that count (a bit each): () f32. */
tl_tensor *buckets_squares(struct buckets *b, unsigned kinds);
/* Gives each bucket's `own` its gradient, for the optimizer; drops it again. is_by_member (SHARDING_NONE alone): gives
 * every parameter its own, for an optimizer that needs to know their shapes; the model drops these. */
bool buckets_give(struct buckets *b, bool is_by_member);
void buckets_take(struct buckets *b);
/* After the update: all ranks' parts of the parameters, which arrive before they are used; in zero3 they are not
 * sent before. */
bool buckets_gather(struct buckets *b);

#endif

/* model_parallel.h: a model that several processes share. */
#ifndef NN_MODEL_PARALLEL_H
#define NN_MODEL_PARALLEL_H

#include "ops/shard.h"
#include "tally.h"

enum { MOST_CHUNKS = 16 }; /* of layers on a stage of pp */

/* How a model is divided. A group of one process is NULL. Modules hold a pointer to the model's. */
struct parallel {
    tl_comm *tp, *cp;
    bool has_sp;     /* between the regions that tp divides, each of its ranks has a part of the rows */
    tl_comm *copies; /* ranks of tp that hold the same heads of keys and values; NULL: no other does. Owned. */
    tl_comm *pp;
    tl_comm *ends;          /* the first and the last rank of pp, which share a tied embedding. Owned. */
    int n_chunks;           /* of layers on this stage */
    int64_t n_layers;       /* of the whole model */
    bool is_first, is_last; /* stage; both without pp */
    tl_comm *ep;            /* ranks that have other experts */
    double ep_load;         /* that prices take for granted */
};

/* What the options say, for a model of this config; false: recorded, and there is nothing to free. */
bool parallel_begin(struct parallel *p, const tl_model_config *config, const tl_parallel *options);
void parallel_end(struct parallel *p);
/* Whether several processes compute one loss together; those of pp do not. */
static inline bool parallel_is_on(const struct parallel *p) { return p->tp || p->cp; }

/* Layers `from` to `to` - 1 are chunk `chunk` of this stage. */
void parallel_layers(const struct parallel *p, int chunk, int64_t *from, int64_t *to);

/* Into a region that tp divides, and out of it.
 *
 *      enter   the same x on all ranks; with sp, parts of rows (N/n, C) -> (N, C)
 *      leave   x of all ranks, summed; with sp, each rank has its part of the rows of the sum
 *
 * Without tp: x. NULL stays NULL. */
tl_tensor *parallel_enter(const struct parallel *p, tl_tensor *x);
tl_tensor *parallel_leave(const struct parallel *p, tl_tensor *x);
/* After the n results y of what entered: with sp, gradients need `all`, which parallel_enter made of `rows`. It is
 * dropped, and gathered again before the gradients of y go on. Not where layers run again anyway for their gradients,
 * which are then next. False: recorded. */
bool parallel_drop_entered(const struct parallel *p, tl_tensor *rows, tl_tensor *all, tl_tensor **y, int n);
/* A parameter that all ranks of a group hold, and of whose gradient each computes a part: x, its gradient summed. */
tl_tensor *parallel_share(tl_comm *group, tl_tensor *x);
/* Sums over the rows outside these regions, of which with sp each rank has its own part: the sum over ranks. */
tl_tensor *parallel_total(const struct parallel *p, tl_tensor *x);
/* This rank's part of rows x (N,...), the same on all ranks of tp: (N/n,...). Only with sp; it has no gradient. */
tl_tensor *parallel_rows(const struct parallel *p, tl_tensor *x);
/* A parameter outside the regions that tp divides: with sp, ranks see other rows of its results. */
static inline tl_tensor *parallel_outside(const struct parallel *p, tl_tensor *x) {
    return p && p->has_sp && x ? parallel_share(p->tp, x) : x;
}

/* Random numbers of tensors that differ from rank to rank: between the two, the thread's generator is one of this rank
 * alone; afterwards it is as if the same had been drawn from the shared one. */
tl_generator parallel_draw_begin(const tl_comm *group, int shift);
void parallel_draw_end(tl_generator before);

/* ---- Parts of parameters; more is in ops/shard.h ---- */

/* The whole parameter, or another tensor that is divided as it is, on the host, from the parts of all ranks, which all
 * call it. Outside of ledgers. */
tl_tensor *shard_join(const tl_shard *shard, tl_tensor *part);
/* Copies this process's part of a whole parameter, which may be on the host, to `part`. */
bool shard_fill(const tl_shard *shard, tl_tensor *part, tl_tensor *whole);

/* A list of tensors in which every part is joined (shard_join); the others are those of the list. */
struct joined {
    tl_named_tensor *list;
    int n;
    struct stage_tensor *others; /* what other stages have said of theirs */
};
bool joined_make(struct joined *j, const tl_named_tensor *list, int n); /* false: recorded, and nothing to free */
/* Adds the tensors of the stages of pp behind those of the first one, which receives them on the host, in the order of
 * stages; `shared` (NULL: none) is left out of the other stages' lists. All stages call it, outside of ledgers. False:
 * recorded. */
bool joined_collect(struct joined *j, const char *shared, tl_comm *pp);
void joined_free(struct joined *j);

#endif

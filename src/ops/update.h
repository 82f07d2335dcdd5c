/* update.h: one step of an optimizer on many parameters that share its settings.
 *
 * A step is bound by memory, and most parameters are small: one call per parameter would be mostly overhead. So one
 * call takes as many parameters as an op has room for (TL_MAX_INPUTS tensors in all), and the list is cut into such
 * calls here. Grouping does not affect results: each parameter is updated independently. */
#ifndef OPS_UPDATE_H
#define OPS_UPDATE_H

#include "tally.h"

enum { UPDATE_STATES = 4 };

/* A matrix of Muon's, or what processes that share it as a shard says leave to this one and those of its vector. */
struct update_matrix {
    int64_t at;                 /* its first element in the vector */
    const tl_tensor *parameter; /* whose shape it has; its data is not read */
    const tl_shard *shard;      /* NULL: it is whole */
};

/* The matrices of a vector, of which this process updates a part. All of them have one factor of the learning rate
 * (update_muon_factor). */
struct update_matrices {
    const struct update_matrix *at;
    int n;
    int64_t before; /* elements of the vector in front of this process's */
    tl_comm *group; /* processes with equal parts of the vector, in its order; NULL: this one has all of it */
};

/* The tensors of one parameter; absent ones are NULL. */
struct update_tensors {
    tl_tensor *parameter, *grad;
    tl_tensor *state[UPDATE_STATES]; /* in the order of the op's arguments */
    tl_tensor *master;
    /* Words of rounding at random that belong to the elements before and after these, where they are a part of a tensor
     * that several processes update. Then the list's others are not in the same call. */
    uint64_t words_before, words_after;
    const struct update_matrices *matrices; /* Muon: what the parameter is a part of; NULL: it is a whole matrix */
};

/* Calls op for the list, outside the graph and in the update phase. `attr` begins with a struct attr_update, which is
 * filled here. */
bool update_apply(const tl_op *op, const struct update_tensors *list, int n, const tl_update_options *options,
                  void *attr, size_t attr_bytes);

/* All of the list have the same states, a master or none, one dtype of parameters and one device.
 * options->update.master is not read. Random words are taken in the list's order. False: an error; the calls before
 * the one that failed have been made. */
bool update_sgd(const struct update_tensors *list, int n, const tl_sgd_options *options);
bool update_adagrad(const struct update_tensors *list, int n, const tl_adagrad_options *options);
bool update_rmsprop(const struct update_tensors *list, int n, const tl_rmsprop_options *options);
bool update_adam(const struct update_tensors *list, int n, const tl_adam_options *options);
bool update_adam_8bit(const struct update_tensors *list, int n, const tl_adam_options *options);
bool update_lion(const struct update_tensors *list, int n, const tl_lion_options *options);
bool update_schedule_free(const struct update_tensors *list, int n, const tl_schedule_free_options *options);
/* Of matrices; each is a few calls. Processes that share some make the same calls. */
bool update_muon(const struct update_tensors *list, int n, const tl_muon_options *options);
/* The learning rate's factor for the whole matrix of which a parameter is a shard. */
double update_muon_factor(const tl_tensor *parameter, const tl_shard *shard, bool matches_adamw);
/* Its first part. What is listed as parameters are the updates, which are overwritten. */
bool update_muon_momentum(const struct update_tensors *list, int n, const tl_muon_options *options);
/* States: row and column, or neither of them and the variance; each is a call. */
bool update_adafactor(const struct update_tensors *list, int n, const tl_adafactor_options *options);
/* Of averages, each listed as a parameter, with what it is an average of as its gradient. scale: NULL, or the
 * gradient's. */
bool update_ema(const struct update_tensors *list, int n, double weight, tl_tensor *scale);

#endif

/* trainer.h: one run's model, optimizer, data and random numbers, and the kinds of steps it makes.
 *
 * The same functions run on cpu and cuda, where they are the run, and on meta, where they are its price: no branch in
 * them depends on the device, except that known repetitions are skipped (rounds.h). Nothing inside waits for the
 * device; the host reads `results` afterwards. */
#ifndef STEP_TRAINER_H
#define STEP_TRAINER_H

#include <jansson.h>
#include <signal.h>

#include "tally.h"
#include "ops/update.h"
#include "tensor/device.h"
#include "step/buckets.h"
#include "step/mesh.h"
#include "step/noise.h"
#include "step/portions.h"
#include "step/recipe.h"
#include "step/settings.h"
#include "step/source.h"

/* Of the results: margin and accuracy of an even step, of an odd step, of held-out data; the losses of held-out sets
 * but the first; how many there are at most. */
enum { TRAINER_REWARDS = 7, TRAINER_SETS = TRAINER_REWARDS + 6, TRAINER_RESULTS = TRAINER_SETS + SETS_MOST - 1 };
enum { TRAINER_PARTS = 2 }; /* of what is saved: parameters, the optimizer's state */

struct trainer {
    struct settings settings;
    const struct recipe *recipe;
    tl_device *device;
    bool is_bytes;           /* tokens are bytes */
    bool is_fresh;           /* the model's weights are drawn, not read */
    tl_tokenizer *tokenizer; /* the source's; NULL: not known, and no text is sampled */
    tl_module *model;
    tl_module *reference; /* of preferences, frozen; NULL: there is none, or it is the model without its adapters */
    tl_optimizer *optimizer;
    struct update_matrix *matrices;  /* Muon: those that ranks share, or that are in buckets */
    struct update_matrices *vectors; /* of them, as the optimizer has them */
    int n_matrices, n_vectors;
    tl_schedule schedule;
    tl_loader *loader, *held_out[SETS_MOST];
    int n_held_out;                  /* sets of held-out data; 0: nothing is held out */
    double held_out_loss[SETS_MOST]; /* of the evaluation that was read last */
    tl_tensor **parameters;
    const char **names;      /* of the parameters; the model's */
    const tl_shard **shards; /* of the parameters; NULL: whole */
    int n_parameters;
    tl_tensor *shared;               /* the parameter that another stage of pp holds too; NULL: none */
    tl_comm *sharers;                /* they */
    struct mesh mesh;                /* the processes; not owned */
    struct mesh_group dp;            /* the ranks that divide a micro-batch: sequences and, with cp, their tokens */
    struct buckets buckets;          /* of the parameters; none if dp is one rank */
    struct portions states, weights; /* of the buckets: the optimizer's state, and in zero3 the parameters */
    char files[TRAINER_PARTS][PORTIONS_FILE]; /* of a checkpoint, that this rank writes */
    tl_named_tensor *divided; /* the optimizer's state where tp divides parameters and there are no buckets */
    tl_tensor **sums; /* of gradients over micro-batches in f32, by parameter; NULL where gradients are wide enough */
    /* (5) f32: loss and norm of an even step, of an odd step; held-out loss. noise_scale: and the square of the norm
     * of the first micro-batch's gradient, of an even step, of an odd step. preference: and TRAINER_REWARDS. Several
     * sets of held-out data: and TRAINER_SETS. */
    tl_tensor *results;
    void *fetch[2];   /* results on their way to the host, after an even step and after an odd one; NULL: not begun */
    tl_tensor *text;  /* (1, prompt + sample) i64; NULL: nothing is sampled */
    int64_t n_prompt; /* of text */
    tl_generator noise, dice;    /* of dropout and rounding; of sampling */
    tl_scaler scaler;            /* of fp16's loss */
    double scale_used[2];        /* of an even step, of an odd step */
    struct noise noise_scale;    /* of the steps that were read */
    struct trainer_rewards {     /* preference: of the step, or the evaluation, that was read last; otherwise NAN */
        double margin, accuracy; /* the mean margin, and the share of pairs that have one above 0 */
    } rewards;
    int64_t accum;               /* micro-batches of the step that is made */
    int64_t data_shift;          /* steps whose batches were skipped */
    struct device_repeat repeat; /* of the steps so far: their calls, and how many were queued together */
    int64_t step_pairs[2];       /* document_mask: pairs of query and key, of an even step, of an odd step */
    /* 1: leave a step between two micro-batches, and an evaluation between two batches. NULL: never. */
    const volatile sig_atomic_t *stop;
    bool is_left;   /* the last step or evaluation was left: nothing was updated, and nothing is recorded */
    bool is_sketch; /* tokens of a sample that cost the same as those before them are left out */
};

/* Whether the settings name a model of the library's list. */
bool trainer_has_preset(const struct settings *s);
/* The sizes of the model that the settings name, before its tokenizer and the length of sequences are known. */
bool trainer_sizes(const struct settings *s, tl_model_config *config, char *weights);
/* The model that the settings name. `weights` (SETTING_TEXT bytes) receives the folder of its weights, or "". */
bool trainer_model(const struct settings *s, tl_model_config *config, char *weights);
/* Whether the files of weights, if any, match the model, and a device has room for its parameters. Checked before
 * anything is priced or made; meta takes every model. False: recorded. */
bool trainer_can_hold(const struct settings *s, const tl_model_config *config, const char *weights,
                      const tl_device *device);

/* Whether to leave before round k; sets is_left. The first round is always done. */
bool trainer_leaves(struct trainer *t, int64_t k);

/* `mesh` (NULL: this process is alone) is one of processes that exist exactly if the device has data. */
struct trainer *trainer_new(const struct settings *s, const struct source *source, tl_device *device,
                            const struct mesh *mesh);
void trainer_free(struct trainer *t); /* NULL allowed */

/* One optimizer step: ramp_accum micro-batches, the gradient's norm, the update. Steps are counted from 0. */
bool trainer_step(struct trainer *t, int64_t step);
/* Loss and gradient norm of a step, which must be one of the last two. Waits for that step, not for the one after
 * it. */
bool trainer_read(struct trainer *t, int64_t step, double *loss, double *norm);
double trainer_lr(const struct trainer *t, int64_t step);
/* Why the optimizer's steps need whole parameters, which --tp and --shard divide, in words; NULL: they do not. */
const char *trainer_whole_steps(const struct settings *s);
int64_t trainer_step_tokens(const struct trainer *t, int64_t step); /* of all ranks */
int64_t trainer_tokens(const struct trainer *t, int64_t steps);     /* of the first `steps` steps */
/* Pairs of a query and a key, for each layer and head, that attention uses in a step, one of the last two; and those of
 * the whole causal rows, which are billed. The same without document_mask. Of this rank's rows. */
int64_t trainer_step_pairs(const struct trainer *t, int64_t step);
int64_t trainer_causal_pairs(const struct trainer *t, int64_t step);

/* The sum over ranks of a vector of f32, in place and with the same bits on all. */
bool trainer_sum(const struct trainer *t, tl_tensor *values);

/* Gives the model the averages of its weights (ema, schedule-free), and its own weights back; nothing without
 * averages. All ranks call it. False: recorded; the model has its own weights. */
bool trainer_average(struct trainer *t, bool is_averaged);
/* Held-out loss over eval_batches of each set (evaluate.c), of which the first is read, and text that follows the
 * prompt (generate.c). */
bool trainer_evaluate(struct trainer *t);
bool trainer_read_evaluation(struct trainer *t, double *loss);
bool trainer_sample(struct trainer *t);
char *trainer_read_text(struct trainer *t); /* as UTF-8, memory_free it; NULL: recorded */

/* Of ranks that share rows of tokens, the first counts them. */
static inline bool trainer_counts_rows(const struct trainer *t) {
    return t->mesh.axis[MESH_TP].rank == 0 && t->mesh.axis[MESH_CP].rank == 0 && t->mesh.axis[MESH_PP].rank == 0;
}

/* Whether ranks divide the model or its sequences: then it has no logits, and no text is sampled. */
static inline bool trainer_is_divided(const struct trainer *t) {
    return t->mesh.axis[MESH_TP].size > 1 || t->mesh.axis[MESH_CP].size > 1 || t->mesh.axis[MESH_PP].size > 1 ||
           t->mesh.ep.size > 1;
}

/* Everything that a step depends on: tensors by their file in a checkpoint, numbers as JSON. */
struct trainer_part {
    const char *file;               /* "model.safetensors", "optimizer-00002-of-00004.safetensors" */
    const tl_named_tensor *tensors; /* "exp_avg.NAME"; or "exp_avg.NAME@8:24", elements 8 .. 23 of it, as a vector */
    int n;
    const tl_tensor *const *of; /* parameters that portions (portions.h) are of; NULL: they are tensors like these */
    bool is_others;             /* another rank saves the same */
    bool is_portions;           /* the ranks of dp have parts of the tensors */
    bool is_joined;             /* ranks of tp hold parts of the tensors, which are saved whole */
    const char *shared;         /* the parameter that another stage of pp saves; NULL: none */
    bool may_lack;              /* tensors that the checkpoint does not have stay as they are */
};
bool trainer_part_saves(const struct trainer_part *part, int tensor); /* whether this rank does */
bool trainer_parts(struct trainer *t, struct trainer_part parts[TRAINER_PARTS]);
/* Of a part that is portions: its whole tensors, on the host of the first rank of dp. Of another: none. All ranks call
 * it, outside of ledgers; portions_free them. */
bool trainer_collect(struct trainer *t, int part, struct portions *to);
/* Bills the cost of saving these parts, also on meta, where nothing is saved. */
bool trainer_bill_save(struct trainer *t);
json_t *trainer_state(const struct trainer *t);
bool trainer_set_state(struct trainer *t, const json_t *state);

#endif

/* model.h: the state that all models share. A model is a module whose state begins with this. */
#ifndef NN_MODEL_H
#define NN_MODEL_H

#include "base/file.h"
#include "nn/dispatch.h"
#include "nn/model_parallel.h"
#include "tally.h"

/* For somebody who provides the parameters of a block only while they are used. */
struct block_watch {
    bool (*enter)(void *context); /* before a block runs, forward or again for its gradient */
    /* (optional, both or none) */
    bool (*leave)(void *context); /* behind it */
    bool (*back)(void *context);  /* before its gradients are computed */
    void *context;
};

/* For somebody who takes the parameters of a block as soon as it is made, so that those of all blocks are never
 * there at once. False: recorded. */
struct block_maker {
    bool (*made)(void *context, tl_module *block);
    void *context;
};

struct model {
    tl_model_config config;
    const struct block_maker *maker;   /* while the model is made; NULL: none */
    const struct block_watch *watches; /* one for each block; NULL: none */
    tl_checkpoint_policy policy;
    int k;
    struct parallel parallel;
    int last_block; /* that was asked for; parameters are, in their order */
    /* Of this process's blocks, those of each chunk of layers, of which a pass runs one. */
    struct model_chunk {
        struct model *model;
        int first, n;
    } chunks[MOST_CHUNKS];
    int chunk;             /* that a pass runs */
    tl_dtype dtype;        /* of the parameters, and of what stages of a pipeline send */
    const tl_cache *cache; /* during a pass that uses one */
    /* During a pass over rows of several documents, (B,T): the place where a token's document begins, and the token's
     * place in it. NULL: every row is one document. Where sp or cp divide tokens, token_position is always there, and
     * both are of the tokens that this process's part of the model sees. */
    tl_tensor *document_begin, *token_position;
    /* Experts: what the losses of their routers count for, and the sums that they are of (experts.h), during a pass
     * that trains. */
    double balance_weight, router_z_weight;
    tl_adapter_options adapter;     /* rank 0: none */
    double label_smoothing, z_loss; /* of the head's loss, while the model trains */
    tl_tensor *routing;
    struct dispatch_load load; /* of this rank's experts, in all passes so far (ep) */
    /* the parts, owned by the tree; NULL where a family has none */
    tl_module *embedding, *positions, *embedding_dropout, *blocks, *norm, *head; /* head: the embedding when tied */
};

/* tl_model_new_parallel with a maker, or NULL. */
tl_module *model_new(const tl_model_config *config, tl_dtype dtype, tl_device *device, const tl_parallel *parallel,
                     const struct block_maker *maker);

bool lm_fill(tl_module *m, const tl_model_config *c, tl_dtype dtype, tl_device *device);
tl_tensor *lm_logits(tl_module *model, tl_tensor *tokens);
tl_tensor *lm_next(tl_module *model, tl_tensor *tokens);
tl_tensor *lm_extend(tl_module *model, tl_tensor *tokens, tl_cache *cache, bool only_last);
tl_tensor *lm_loss(tl_module *model, tl_tensor *tokens, tl_tensor *targets);
/* One stage of a pipeline, or the model's `chunk` of one: x of the one before it, NULL for the first, to x of the next,
 * or the last one's loss. The shape of x, and its rank. */
tl_tensor *lm_stage(tl_module *model, tl_tensor *tokens, tl_tensor *targets, tl_tensor *x);
int lm_stage_shape(const tl_module *model, const tl_tensor *tokens, int64_t shape[3]);
tl_tensor *lm_losses(tl_module *model, tl_tensor *tokens, tl_tensor *targets, const int64_t *from, const int64_t *to);
tl_tensor *lm_row_losses(tl_module *model, tl_tensor *tokens, tl_tensor *targets);
/* A pass between the two is over documents; end also after a failure. */
bool lm_documents_begin(tl_module *model, tl_tensor *tokens, tl_tensor *begin);
void lm_documents_end(tl_module *model);

bool deep_linear_fill(tl_module *m, const tl_model_config *c, tl_dtype dtype, tl_device *device);
tl_tensor *deep_linear_logits(tl_module *model, tl_tensor *x);
tl_tensor *deep_linear_loss(tl_module *model, tl_tensor *x, tl_tensor *targets);

/* tl_model_pipeline, for somebody who knows that rounds repeat: `run` runs rounds 0 .. n - 1, of which those from 1 on
 * make the same requests in the same order, and may leave some out where tensors have no data. */
typedef bool (*pipeline_rounds)(void *context, int64_t n, bool (*round)(void *own, int64_t k), void *own);
tl_tensor *model_pipeline(tl_module *model, int64_t n, tl_micro_batch give, void *context, double weight,
                          pipeline_rounds run);
/* The parameter that the first and the last stage of a pipeline both hold, and the group of the two; NULL: this process
 * holds none. */
tl_tensor *model_shared(const tl_module *model, tl_comm **group);
const char *model_shared_name(tl_module *model); /* of that parameter; NULL: none */

/* tl_model_config_write and tl_model_save into a folder that is open. */
bool model_config_write_at(const tl_model_config *config, struct file_place at);
bool model_save_in(const tl_model_config *config, const tl_named_tensor *list, int n, const struct file_folder *folder);

/* Calls `see` for each file that tl_model_load would read weights from, with its path and name, until it returns
 * false. False: recorded. */
bool model_files(const char *path, bool (*see)(const char *path, const char *name, void *context), void *context);
/* Whether one of n parts of the parameters alone fits on a device; if not, an error says so before anything is
 * allocated. */
bool model_fits(const tl_model_config *config, int n_parts, tl_dtype dtype, const tl_device *device);
/* Whether the model is one process's alone; if not, an error says that `what` needs this. */
bool model_is_whole(const tl_module *model, const char *what);
/* Whether one or more files with this many numbers in all can fill a model of this config. `where` names them. */
bool model_numbers_suffice(const tl_model_config *config, int64_t numbers, const char *where);
/* Whether files of weights (tl_model_load) match a model of this config: enough numbers in all, and every tensor in
 * its shape. Reads only their headers. */
bool model_weights_fit(const tl_model_config *config, const char *path);

/* tl_model_next for some rows of the cache, each with as many tokens before these as its span says. */
struct cache_view;
tl_tensor *model_next_of(tl_module *model, tl_tensor *tokens, tl_cache *cache, const struct cache_view *view);

/* For each row b of tokens (B,T), the sum of the cross entropy of targets from[b] .. to[b]-1: (B) f32. The logits are
 * never stored as a whole, and those of other targets are not computed. begin: as for tl_model_document_loss; may be
 * NULL. NULL: recorded. */
tl_tensor *model_losses(tl_module *model, tl_tensor *tokens, tl_tensor *targets, tl_tensor *begin, const int64_t *from,
                        const int64_t *to);

/* The same sums over every target of a row that is not -100, with gradients. The head is computed row by row. */
tl_tensor *model_row_losses(tl_module *model, tl_tensor *tokens, tl_tensor *targets);

/* The blocks of a language model, and who watches them: one watch each, for as long as the model is used. */
int model_n_blocks(const tl_module *model);
tl_module *model_block(const tl_module *model, int block);
tl_tensor *model_head_of(const tl_module *model); /* its weight; NULL: the head is the embedding, or another stage's */
int model_block_of(const tl_module *model, const tl_tensor *parameter); /* that has it; -1: none */
void model_watch(tl_module *model, const struct block_watch *watches);

/* Whether it is a language model; if not, an error says so. */
bool model_speaks(const tl_module *model);

#endif

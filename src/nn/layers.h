/* layers.h: functions of layers that models need beyond tally.h. */
#ifndef NN_LAYERS_H
#define NN_LAYERS_H

#include "nn/model_parallel.h"
#include "tally.h"

struct block_maker; /* model.h */
struct make {       /* where parameters are made, and their initial values */
    tl_dtype dtype;
    tl_device *device;
    double std;                      /* of weights; negative: as PyTorch does */
    const struct parallel *parallel; /* of the model; NULL: it has none */
    const struct block_maker *maker; /* to be told of blocks; NULL: nobody */
};

/* How the processes of tp divide a linear layer.
 *
 *      OUT       rows of the weight: each rank has some of the outputs
 *      OUT_QKV   the same, where the outputs are three blocks, each divided by itself
 *      OUT_KV    the same; where tp has more ranks than there are heads of keys, several have the same
 *      IN        columns of the weight: each rank has some of the inputs, and the outputs are summed where the layer
 *                leaves the region that tp divides; the bias is whole and added after that
 *      IN_PART   the same, without the sum: the outputs are this rank's part of it
 *      INSIDE    not at all, inside such a region: each rank uses the results for its own part, and the gradients of
 *                weight and bias are summed */
enum division { WHOLE, OUT, OUT_QKV, OUT_KV, IN, IN_PART, INSIDE };

/* tl_nn_linear and tl_nn_embedding whose weights are normal(0, std) and whose bias is 0. A table of rows that tp
 * divides is looked up by each rank, for the ids that it has, and the results are summed. */
tl_module *linear_make(const struct make *make, int64_t in, int64_t out, bool bias, enum division division);
/* Whether a module is a linear layer; its adapter (adapter.h), which may be none. */
bool linear_is(const tl_module *m);
/* Adds this rank's part of a parameter that was drawn as a whole, so that all layouts have the same numbers: of an axis
 * that tp divides, in n_blocks blocks, each divided by itself. Without tp: all of it. */
bool part_add_parameter(tl_module *m, const struct parallel *p, const char *name, tl_tensor *whole, int axis,
                        int64_t n_blocks);
/* The same of a parameter of experts (E,...): with ep those of this rank, otherwise of an axis that tp divides; -1: of
 * none. */
bool expert_add_parameter(tl_module *m, const struct parallel *p, const char *name, tl_tensor *whole, int axis,
                          int64_t n_blocks);
/* Whether its result is x weight^T + bias and nothing else: no adapter, no narrow products, no part of a divided layer.
 * The bias may be NULL. */
bool linear_is_plain(const tl_module *m, tl_tensor **weight, tl_tensor **bias);
struct adapter;
struct adapter *linear_adapter(tl_module *linear);
/* Gives a linear layer an adapter with parameters of a dtype; removes it, also after a failure; and puts it into the
 * weight before that. */
bool linear_adapt(tl_module *linear, const tl_adapter_options *options, tl_dtype dtype);
void linear_unadapt(tl_module *linear);
bool linear_merge(tl_module *linear); /* a weight in blocks becomes an ordinary one, also without an adapter */
/* Keeps the weights of the linear layers of a tree in a block-scaled format, frozen: products make them anew. Their
 * tensors are below "weight_blocks": values, scales and, in NVFP4, tensor_scale. */
bool linear_set_format(tl_module *root, tl_format format);
tl_module *linear_blocks(const tl_module *m);                  /* NULL: it is no linear layer, or has none */
bool linear_fill_blocks(tl_module *linear, tl_tensor *weight); /* by another weight */
tl_module *embedding_make(const struct make *make, int64_t n, int64_t channels, bool is_divided);
/* tl_nn_layer_norm with a bias, and tl_nn_rms_norm, outside the regions that tp divides. */
tl_module *layer_norm_make(const struct make *make, int64_t channels, double eps);
tl_module *rms_norm_make(const struct make *make, int64_t channels, double eps);
/* A norm that was just made: inside such a region, where each rank norms some heads with the same weight; its weight is
 * stored less 1, and begins as 0. */
bool norm_set(tl_module *norm, bool is_inside, bool is_less_one);

/* LayerNorm or RMSNorm of x + addend, in one pass and billed to the module; *sum is x + addend, a reference that the
 * caller owns. NULL on error, without a sum. dropout > 0: the addend is what tl_dropout leaves of it. */
tl_tensor *norm_forward_sum(tl_module *norm, tl_tensor *x, tl_tensor *addend, double dropout, tl_tensor **sum);

/* The probability of a Dropout module, and p itself, where the module is training, otherwise 0. */
double dropout_of(const tl_module *dropout);
double dropout_now(const tl_module *m, double p);
/* tl_dropout where m is training and p above 0, otherwise x. */
tl_tensor *dropout_in(const tl_module *m, double p, tl_tensor *x);

/* How the Linear layers of a tree multiply (narrow_linear.c). A head that the loss reads as a tensor is not among
 * them. */
enum linear_mode { LINEAR_PLAIN, LINEAR_FP8, LINEAR_FP4 };
void linear_set_mode(tl_module *root, enum linear_mode mode);
tl_tensor *linear_narrow(tl_tensor *x, tl_tensor *weight, tl_tensor *bias, enum linear_mode mode);

#endif

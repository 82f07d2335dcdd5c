/* adapter.h: adapters of low rank beside the frozen weights of linear layers (LoRA, DoRA).
 *
 *      LoRA    y = W x + b + s B A drop(x)                      A (r,in), B (out,r), s = alpha / r
 *      DoRA    y = W x + b + (f - 1) W drop(x) + f s B A drop(x)    f = m / |W + s B A|, of each row; m (out)
 *
 * The norm is a constant of backward, as in its paper and in PEFT. A starts uniform in +-1/sqrt(in), B as 0 and m as
 * the norms of W, so that a fresh adapter changes nothing. A and B are modules `lora_A` and `lora_B` below the linear
 * layer, and m is its tensor `lora_magnitude_vector`: the names are PEFT's. Where tp divides W, A or B is divided with
 * it (layers.c). */
#ifndef NN_ADAPTER_H
#define NN_ADAPTER_H

#include "base/file.h"
#include "tally.h"

struct adapter {      /* of a linear layer */
    tl_module *a, *b; /* NULL: it has none */
    double scale, dropout;
    tl_comm *columns; /* ranks that hold other columns of W and A; NULL: none does */
    bool is_off;
};

/* s B A x */
tl_tensor *adapter_product(const struct adapter *a, tl_tensor *x);
/* The length (out) of each row, of which the ranks of `columns` (NULL: this process) have parts. */
tl_tensor *adapter_norms(tl_tensor *weight, tl_comm *columns);
/* f (out) in a dtype. */
tl_tensor *adapter_factor(const struct adapter *a, tl_tensor *weight, tl_tensor *magnitude, tl_dtype dtype);
/* The weight with its adapter in it, f32 (out,in); magnitude NULL: LoRA. */
tl_tensor *adapter_sum(const struct adapter *a, tl_tensor *weight, tl_tensor *magnitude);

/* tl_model_add_adapter to the layers that are chosen by their paths; targets may be NULL. */
typedef bool (*adapter_chooses)(const void *context, const char *path);
bool adapter_add(tl_module *model, const tl_adapter_options *options, adapter_chooses is_chosen, const void *context);
void adapter_remove(tl_module *model); /* without merging it */
/* Whether a parameter of a model's list is an adapter's. */
bool adapter_has(const tl_named_tensor *x);
/* The linear layer whose weight this is, in blocks or not, and the length of its path; NULL: it is another tensor. */
tl_module *adapter_layer(const tl_named_tensor *x, size_t *length);
/* tl_model_save_adapter into a folder that is open, of the tensors of a list that are adapters'. */
bool adapter_save_in(tl_module *model, const tl_named_tensor *list, int n, const char *base,
                     const struct file_folder *folder);
#define ADAPTER_CONFIG "adapter_config.json"
#define ADAPTER_WEIGHTS "adapter_model.safetensors"
/* What a folder says of its adapter; targets is NULL. False: recorded. */
bool adapter_read(const char *folder, tl_adapter_options *options);
/* tl_model_load_adapter with another dropout; without values, on a device that has no data. */
bool adapter_load(tl_module *model, const char *folder, double dropout);
/* The folder of the base that an adapter's folder names; false: recorded. */
bool adapter_base(const char *folder, char *base, size_t size);

#endif

/* recipe.h: the dtypes in which a run keeps and multiplies numbers. One row each. */
#ifndef STEP_RECIPE_H
#define STEP_RECIPE_H

#include "nn/layers.h"
#include "tally.h"
#include "tensor/device.h"

struct recipe {
    const char *name;
    tl_dtype parameters; /* gradients and activations have it too */
    tl_dtype autocast;   /* of products; TL_DTYPE_COUNT: none */
    bool has_master;     /* an f32 copy that is updated in the parameter's place */
    bool is_stochastic;  /* the update rounds at random */
    bool has_scaler;     /* the loss is scaled up, so that small gradients survive */
    enum linear_mode linear;
};

/* By name; NULL: an error that lists the recipes. */
const struct recipe *recipe_find(const char *name);

/* Whether a target computes the recipe's products. False, recorded: it has no bf16, for example. Products that it
 * emulates, as fp8 products by rounding their operands, count. Price and run check the same target. */
bool recipe_check(const struct recipe *r, const struct target *target);
/* The narrow products that the target emulates under this recipe: "fp8"; NULL: none. */
const char *recipe_emulated(const struct recipe *r, const struct target *target);

static inline tl_dtype recipe_product_dtype(const struct recipe *r) {
    return r->autocast < TL_DTYPE_COUNT ? r->autocast : r->parameters;
}

/* Gradients that are narrower than f32 are summed over micro-batches in f32. */
static inline bool recipe_sums_in_f32(const struct recipe *r) { return tl_dtype_bits(r->parameters) < 32; }

#endif

#include "step/recipe.h"

#include <string.h>

#include "base/error.h"

/* Bytes per parameter with Adam: parameter + gradient + master + moments. */
static const struct recipe recipes[] = {
    {"fp32", TL_F32, TL_DTYPE_COUNT, false, false, false, LINEAR_PLAIN},      /* 4 + 4 + 0 + 8 */
    {"amp", TL_F32, TL_BF16, false, false, false, LINEAR_PLAIN},              /* 4 + 4 + 0 + 8 */
    {"bf16", TL_BF16, TL_DTYPE_COUNT, true, false, false, LINEAR_PLAIN},      /* 2 + 2 + 4 + 8 */
    {"bf16-lean", TL_BF16, TL_DTYPE_COUNT, false, true, false, LINEAR_PLAIN}, /* 2 + 2 + 0 + 8 */
    {"fp16", TL_F16, TL_DTYPE_COUNT, true, false, true, LINEAR_PLAIN},        /* 2 + 2 + 4 + 8 */
    {"fp8", TL_BF16, TL_DTYPE_COUNT, true, false, false, LINEAR_FP8},         /* as bf16 */
    {"fp4", TL_BF16, TL_DTYPE_COUNT, true, false, false, LINEAR_FP4},         /* as bf16 */
};

const struct recipe *recipe_find(const char *name) {
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        if (!strcmp(recipes[i].name, name)) return &recipes[i];
    error_set(TL_ERROR_USE, "recipe: there is no \"%s\"", name);
    return NULL;
}

bool recipe_check(const struct recipe *r, const struct target *t) {
    const tl_dtype dtype = recipe_product_dtype(r);
    return target_has_native(t, dtype) ||
           error_set(TL_ERROR_USE,
                     "recipe: %s multiplies in %s, which %s (compute capability %d.%d) does not (need --recipe fp16 or "
                     "fp32)",
                     r->name, tl_dtype_name(dtype), t->name, t->capability / 10, t->capability % 10);
}

const char *recipe_emulated(const struct recipe *r, const struct target *t) {
    if (r->linear == LINEAR_FP8 && !target_has_native(t, TL_F8E4M3)) return "fp8";
    return r->linear == LINEAR_FP4 && !target_has_native(t, TL_F4E2M1) ? "fp4" : NULL;
}

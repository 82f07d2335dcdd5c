/* update.c: one step of an optimizer on one parameter, in place.
 *
 * One pass over p, g, m and v: the step is bound by memory, and every pass more would cost as much again. Arithmetic is
 * in f32 (f64 for f64 parameters). Factors that depend on the step alone are computed once, in f64.
 */
#include "device/cpu/block.h"
#include "device/cpu/iterate.h"
#include "device/cpu/kernels.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vector_math.h"
#include "ops/attr.h"
#include "tensor/dtype.h"

#include <math.h>

enum { UPDATE_OPERANDS = 4 }; /* p, g, m, v */

struct update {
    struct iterate walk;
    int n_operands; /* 4: adamw; 2: sgd */
    tl_dtype dtype[UPDATE_OPERANDS];
    int64_t bytes[UPDATE_OPERANDS]; /* of one element */
    double lr;
    /* adamw: p = p*keep - step_size * m / (sqrt(v)*inverse_root + eps) */
    double keep, beta1, beta2, step_size, inverse_root, eps;
};

#define REAL float
#define REAL_DTYPE TL_F32
#define NAME(name) name##_f32
#include "device/cpu/update_template.h"

#define REAL double
#define REAL_DTYPE TL_F64
#define NAME(name) name##_f64
#include "device/cpu/update_template.h"

static bool run(const tl_kernel_args *args, struct update *update) {
    const tl_operand *operands[UPDATE_OPERANDS];
    for (int i = 0; i < update->n_operands; i++) {
        operands[i] = &args->in[i];
        update->dtype[i] = args->in[i].dtype;
        update->bytes[i] = iterate_element_bytes(args->in[i].dtype);
    }
    iterate_begin(&update->walk, operands[0]->rank, operands[0]->shape, operands, update->n_operands,
                  ITERATE_ANY_ORDER);
    parallel_for(update->walk.n, parallel_grain(1), args->n_threads,
                 dtype_compute(operands[0]->dtype) == TL_F64 ? update_range_f64 : update_range_f32, update);
    return true;
}

bool cpu_adamw(const tl_kernel_args *args) {
    const tl_adamw_options *options = &((const struct attr_adamw *)args->attr)->options;
    struct update update = {
        .n_operands = 4,
        .lr = options->lr,
        .keep = 1 - options->lr * options->weight_decay,
        .beta1 = options->beta1,
        .beta2 = options->beta2,
        .step_size = options->lr / (1 - pow(options->beta1, (double)options->step)),
        .inverse_root = 1 / sqrt(1 - pow(options->beta2, (double)options->step)),
        .eps = options->eps,
    };
    return run(args, &update);
}

bool cpu_sgd(const tl_kernel_args *args) {
    struct update update = {.n_operands = 2, .lr = ((const struct attr_sgd *)args->attr)->lr};
    return run(args, &update);
}

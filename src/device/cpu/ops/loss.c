/* loss.c: the gather of losses from log-probabilities, and binary cross entropy. */
#include "base/scratch.h"
#include "device/cpu/shared/block.h"
#include "device/cpu/ops/copy.h"
#include "device/cpu/ops/elementwise.h"
#include "device/cpu/shared/iterate.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "device/cpu/shared/vector_math.h"
#include "spec/attr.h"
#include "tensor/dtype.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { ERROR_BYTES = 200 };

#define REAL float
#define NAME(name) name##_f32
#include "device/cpu/ops/loss_template.h"

#define REAL double
#define NAME(name) name##_f64
#include "device/cpu/ops/loss_template.h"

/* ---- nll: one element of each row ---------------------------------------------------------------------------- */

/* Checks all targets before anything is written. */
static bool targets_are_inside(const tl_kernel_args *args, const tl_operand *targets, int64_t V) {
    for (int64_t i = 0; i < iterate_numel(targets); i++) {
        const int64_t target = convert_get_i64(targets->data, targets->dtype, i);
        if (target < 0 || target >= V) {
            snprintf(args->error, ERROR_BYTES, "target %" PRId64 " is outside [0, %" PRId64 ")", target, V);
            return false;
        }
    }
    return true;
}

bool cpu_nll(const tl_kernel_args *args) {
    const tl_operand *x = &args->in[0], *targets = &args->in[1], *out = &args->out[0];
    const int64_t V = x->shape[1];
    if (!targets_are_inside(args, targets, V)) return false;
    for (int64_t row = 0; row < x->shape[0]; row++) {
        const int64_t target = convert_get_i64(targets->data, targets->dtype, row);
        convert_set_f64(out->data, out->dtype, row, -convert_get_f64(x->data, x->dtype, row * V + target));
    }
    return true;
}

bool cpu_nll_grad(const tl_kernel_args *args) {
    const tl_operand *g = &args->in[0], *targets = &args->in[1], *out = &args->out[0];
    const int64_t V = out->shape[1];
    if (!targets_are_inside(args, targets, V)) return false;
    copy_fill(out, 0, args->n_threads);
    for (int64_t row = 0; row < out->shape[0]; row++) {
        const int64_t target = convert_get_i64(targets->data, targets->dtype, row);
        convert_set_f64(out->data, out->dtype, row * V + target, -convert_get_f64(g->data, g->dtype, row));
    }
    return true;
}

/* ---- bce ------------------------------------------------------------------------------------------------------- */

static const struct elementwise op_bce = {bce_f32, bce_f64, NULL};

bool cpu_bce(const tl_kernel_args *args) { return elementwise_run(args, &op_bce, dtype_compute(args->out[0].dtype)); }

/* reduce_log_softmax.c: log-softmax along an axis, and its gradient. */
#include "base/scratch.h"
#include "device/cpu/ops/reduce.h"
#include "device/cpu/shared/block.h"
#include "device/cpu/shared/iterate.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "device/cpu/shared/vector_math.h"
#include "tensor/dtype.h"

#include <math.h>

struct log_softmax {
    const tl_operand *x, *g, *out; /* the gradient: x is y */
    int64_t V;
};

#define REAL float
#define NAME(name) name##_f32
#include "device/cpu/ops/reduce_log_softmax_template.h"

#define REAL double
#define NAME(name) name##_f64
#include "device/cpu/ops/reduce_log_softmax_template.h"

static bool run_rows(const tl_kernel_args *args, parallel_body rows_f32, parallel_body rows_f64) {
    const tl_operand *out = &args->out[0];
    struct log_softmax task = {&args->in[0], args->n_in > 1 ? &args->in[1] : NULL, out, out->shape[out->rank - 1]};
    parallel_for(block_rows(out), parallel_grain(4 * task.V), args->n_threads,
                 dtype_compute(out->dtype) == TL_F64 ? rows_f64 : rows_f32, &task);
    return true;
}

static bool log_softmax(const tl_kernel_args *args) {
    return run_rows(args, log_softmax_rows_f32, log_softmax_rows_f64);
}
static bool log_softmax_grad(const tl_kernel_args *args) {
    return run_rows(args, log_softmax_grad_rows_f32, log_softmax_grad_rows_f64);
}

bool cpu_log_softmax(const tl_kernel_args *args) { return reduce_along(args, log_softmax); }
bool cpu_log_softmax_grad(const tl_kernel_args *args) { return reduce_along(args, log_softmax_grad); }

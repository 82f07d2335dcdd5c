/* loss.c: log-softmax, the gather of losses from it, and binary cross entropy. */
#include "device/cpu/block.h"
#include "device/cpu/copy.h"
#include "device/cpu/iterate.h"
#include "device/cpu/kernels.h"
#include "device/cpu/parallel.h"
#include "device/cpu/vector_math.h"
#include "ops/attr.h"
#include "tensor/dtype.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { ERROR_BYTES = 200 };

struct loss {
    const tl_operand *x, *g, *out; /* the gradient of log-softmax: x is y */
    int64_t V;
};

#define REAL float
#define NAME(name) name##_f32
#include "device/cpu/loss_template.h"

#define REAL double
#define NAME(name) name##_f64
#include "device/cpu/loss_template.h"

static bool run_rows(const tl_kernel_args *args, parallel_body rows_f32, parallel_body rows_f64) {
    const tl_operand *out = &args->out[0];
    struct loss loss = {&args->in[0], args->n_in > 1 ? &args->in[1] : NULL, out, out->shape[out->rank - 1]};
    if (iterate_numel(out) == 0) return true;
    parallel_for(block_rows(out), parallel_grain(4 * loss.V), args->n_threads,
                 dtype_compute(out->dtype) == TL_F64 ? rows_f64 : rows_f32, &loss);
    return true;
}

bool cpu_log_softmax(const tl_kernel_args *args) { return run_rows(args, log_softmax_rows_f32, log_softmax_rows_f64); }
bool cpu_log_softmax_grad(const tl_kernel_args *args) {
    return run_rows(args, log_softmax_grad_rows_f32, log_softmax_grad_rows_f64);
}

/* ---- nll: one element of each row ---------------------------------------------------------------------------- */

/* All targets are looked at before anything is written. */
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

static void bce_part(void *context, int64_t first, int64_t last) {
    const struct iterate *walk = ((struct iterate **)context)[0];
    const tl_kernel_args *args = ((const tl_kernel_args **)context)[1];
    const tl_dtype out_dtype = args->out[0].dtype, x_dtype = args->in[0].dtype, t_dtype = args->in[1].dtype;
    double x[BLOCK], t[BLOCK];
    struct iterate_run run;
    iterate_seek(walk, &run, first, last);
    while (iterate_next(walk, &run, BLOCK)) {
        convert_to_f64(x, run.data[1], x_dtype, walk->step[1] / iterate_element_bytes(x_dtype), run.length);
        convert_to_f64(t, run.data[2], t_dtype, walk->step[2] / iterate_element_bytes(t_dtype), run.length);
        for (int64_t i = 0; i < run.length; i++)
            x[i] = (1 - t[i]) * x[i] + (x[i] < 0 ? -x[i] : 0) + log1p(exp(-fabs(x[i])));
        convert_from_f64(run.data[0], out_dtype, walk->step[0] / iterate_element_bytes(out_dtype), x, run.length);
    }
}

bool cpu_bce(const tl_kernel_args *args) {
    const tl_operand *out = &args->out[0];
    struct iterate walk;
    if (iterate_numel(out) == 0) return true;
    iterate_begin(&walk, out->rank, out->shape, (const tl_operand *[]){out, &args->in[0], &args->in[1]}, 3,
                  ITERATE_ANY_ORDER);
    const void *context[2] = {&walk, args};
    parallel_for(walk.n, parallel_grain(16), args->n_threads, bce_part, context);
    return true;
}

/* norm.c: layer_norm and rms_norm, forward and backward.
 *
 * Both share one body. A layer norm is "centered": it subtracts the row's mean. An RMS norm does not, which is a
 * layer norm whose mean is held at 0. With xhat = (x - mean) * rstd and y = xhat * weight + bias:
 *
 *     gw = g * weight
 *     dx = rstd * (gw - [centered] mean(gw) - xhat * mean(gw * xhat))
 *     dweight = sum over rows of g * xhat,   dbias = sum over rows of g
 *
 * The variance is taken in a second pass over the row, from the differences to the mean: the one-pass formula
 * mean(x^2) - mean^2 loses everything when the mean is large.
 *
 * The add_ forms compute x = a + b row by row before they normalize it, and add the sum's own gradient to dx, rounded
 * before and after. With dropout, b is first what dropout leaves of it, rounded, and so is a second gradient, made of
 * dx (spec/attr.h). Sums of dx's columns, where they are wanted, are those of the rounded dx, or of that second one.
 */
#include "base/rng.h"
#include "base/scratch.h"
#include "device/cpu/shared/block.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/limits.h"
#include "device/cpu/shared/parallel.h"
#include "device/cpu/shared/vector_math.h"
#include "spec/dropout.h"
#include "tensor/dtype.h"

#include <math.h>
#include <string.h>

/* Operands of one call; absent ones are NULL. */
struct norm {
    const tl_operand *x, *g, *weight, *bias, *mean, *rstd; /* x, g (rows, C); weight, bias (C); mean, rstd (rows) */
    const tl_operand *y, *dx, *dropped, *dweight, *dbias, *dx_sums; /* dropped: what dropout leaves of dx */
    int64_t n_rows, C;
    int64_t run; /* backward: rows per run of the weight gradients */
    int64_t n_runs;
    /* backward: (n_runs, C) of dweight; each NORM_CHUNKS * C elements on, of dbias and of dx_sums, if any */
    void *sums;
    double eps;
    bool centered;
    const tl_operand *addend[2]; /* add_*_norm: x is their sum, computed on the way */
    const tl_operand *g_sum;     /* add_*_norm_grad: added to dx */
    double dropout;
    tl_generator generator;
};

#define REAL float
#define NAME(name) name##_f32
#define SQRT sqrtf
#include "device/cpu/ops/norm_template.h"

#define REAL double
#define NAME(name) name##_f64
#define SQRT sqrt
#include "device/cpu/ops/norm_template.h"

static bool is_f64(const tl_operand *x) { return dtype_compute(x->dtype) == TL_F64; }

static bool norm_forward(const tl_kernel_args *args, bool centered) {
    const struct attr_norm *attr = args->attr;
    const tl_operand *x = &args->in[0];
    struct norm norm = {
        .x = x,
        .weight = args->n_in > 1 ? &args->in[1] : NULL,
        .bias = args->n_in > 2 ? &args->in[2] : NULL,
        .y = &args->out[0],
        .mean = centered ? &args->out[1] : NULL,
        .rstd = &args->out[centered ? 2 : 1],
        .n_rows = block_rows(x),
        .C = x->shape[x->rank - 1],
        .eps = attr->eps,
        .centered = centered,
    };
    parallel_for(norm.n_rows, parallel_grain(norm.C), args->n_threads, is_f64(x) ? forward_rows_f64 : forward_rows_f32,
                 &norm);
    return true;
}

static bool norm_backward(const tl_kernel_args *args, bool centered, const tl_operand *g_sum) {
    const struct attr_norm *attr = args->attr;
    const tl_operand *x = &args->in[1];
    const int weight_at = centered ? 4 : 3, n_gradients = args->n_out - attr->gives_sums;
    const int dweight_at = attr->dropout > 0 ? 2 : 1;
    struct norm norm = {
        .g = &args->in[0],
        .x = x,
        .mean = centered ? &args->in[2] : NULL,
        .rstd = &args->in[centered ? 3 : 2],
        .weight = args->n_in > weight_at ? &args->in[weight_at] : NULL,
        .dx = &args->out[0],
        .dropped = attr->dropout > 0 ? &args->out[1] : NULL,
        .dweight = n_gradients > dweight_at ? &args->out[dweight_at] : NULL,
        .dbias = n_gradients > dweight_at + 1 ? &args->out[dweight_at + 1] : NULL,
        .dx_sums = attr->gives_sums ? &args->out[n_gradients] : NULL,
        .n_rows = block_rows(x),
        .C = x->shape[x->rank - 1],
        .sums = args->workspace,
        .centered = centered,
        .g_sum = g_sum,
        .dropout = attr->dropout,
        .generator = attr->generator,
    };
    norm.run = norm.n_rows > 0 ? (norm.n_rows + NORM_CHUNKS - 1) / NORM_CHUNKS : 1;
    norm.n_runs = (norm.n_rows + norm.run - 1) / norm.run;

    const bool f64 = is_f64(x);
    parallel_for(norm.n_runs, (parallel_grain(norm.C) + norm.run - 1) / norm.run, args->n_threads,
                 f64 ? backward_runs_f64 : backward_runs_f32, &norm);
    if (args->n_out > dweight_at) {
        parallel_for((norm.C + BLOCK - 1) / BLOCK, 1, args->n_threads, f64 ? add_runs_f64 : add_runs_f32, &norm);
    }
    return true;
}

bool cpu_layer_norm(const tl_kernel_args *args) { return norm_forward(args, true); }

bool cpu_layer_norm_grad(const tl_kernel_args *args) { return norm_backward(args, true, NULL); }

bool cpu_rms_norm(const tl_kernel_args *args) { return norm_forward(args, false); }

bool cpu_rms_norm_grad(const tl_kernel_args *args) { return norm_backward(args, false, NULL); }

/* ---- With a sum before it -------------------------------------------------------------------------------- */

static bool add_norm_forward(const tl_kernel_args *args, bool centered) {
    const struct attr_norm *attr = args->attr;
    const tl_operand *sum = &args->out[0];
    struct norm norm = {
        .x = sum,
        .weight = args->n_in > 2 ? &args->in[2] : NULL,
        .bias = args->n_in > 3 ? &args->in[3] : NULL,
        .y = &args->out[1],
        .mean = centered ? &args->out[2] : NULL,
        .rstd = &args->out[centered ? 3 : 2],
        .n_rows = block_rows(sum),
        .C = sum->shape[sum->rank - 1],
        .eps = attr->eps,
        .centered = centered,
        .addend = {&args->in[0], &args->in[1]},
        .dropout = attr->dropout,
        .generator = attr->generator,
    };
    parallel_for(norm.n_rows, parallel_grain(norm.C), args->n_threads,
                 is_f64(sum) ? forward_rows_f64 : forward_rows_f32, &norm);
    return true;
}

/* The norm's own kernel, with g_sum taken out of the inputs. */
static bool add_norm_backward(const tl_kernel_args *args, bool centered) {
    tl_operand in[5] = {args->in[0]};
    for (int i = 2; i < args->n_in; i++) {
        in[i - 1] = args->in[i];
    }
    tl_kernel_args rest = *args;
    rest.in = in;
    rest.n_in = args->n_in - 1;
    return norm_backward(&rest, centered, &args->in[1]);
}

bool cpu_add_layer_norm(const tl_kernel_args *args) { return add_norm_forward(args, true); }

bool cpu_add_layer_norm_grad(const tl_kernel_args *args) { return add_norm_backward(args, true); }

bool cpu_add_rms_norm(const tl_kernel_args *args) { return add_norm_forward(args, false); }

bool cpu_add_rms_norm_grad(const tl_kernel_args *args) { return add_norm_backward(args, false); }

/* elementwise.h: the driver of all elementwise ops, and the loops that several kernels share. See elementwise.c. */
#ifndef TALLY_DEVICE_CPU_ELEMENTWISE_H
#define TALLY_DEVICE_CPU_ELEMENTWISE_H

#include "tally.h"

#define ELEMENTWISE_INPUTS 3

/* An op: its loop per compute type; NULL where it does not exist. */
struct elementwise {
    void (*loop_f32)(float *out, const float *const *in, int64_t n, const void *attr);
    void (*loop_f64)(double *out, const double *const *in, int64_t n, const void *attr);
    void (*loop_i64)(int64_t *out, const int64_t *const *in, int64_t n, const void *attr);
};

/* Runs an op over args' inputs (at most ELEMENTWISE_INPUTS) into its one output, in a compute type: f32, f64 or i64. */
bool elementwise_run(const tl_kernel_args *args, const struct elementwise *op, tl_dtype compute);

/* The compute type for two inputs if the result's dtype does not determine it: that of their promoted dtype. */
tl_dtype elementwise_compute(tl_dtype a, tl_dtype b);

/* Runs in the result's compute type, and in that of the two promoted inputs. */
bool elementwise_as_output(const tl_kernel_args *args, const struct elementwise *op);
bool elementwise_as_inputs(const tl_kernel_args *args, const struct elementwise *op);

/* elementwise_NAME: the loops of a row of spec/elementwise_list.h. */
#define UNARY(name, ...) extern const struct elementwise elementwise_##name;
#define BINARY(name, ...) extern const struct elementwise elementwise_##name;
#define SPECIAL(...)
#include "spec/elementwise_list.h"
extern const struct elementwise elementwise_clamp;
extern const struct elementwise elementwise_compare[]; /* by tl_compare */

#endif

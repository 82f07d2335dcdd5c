/* head.cuh: what the kernels of linear_cross_entropy share. */
#ifndef CUDA_HEAD_CUH
#define CUDA_HEAD_CUH

#include "device/cuda/shared/operand_rows.cuh"
#include "device/cuda/shared/common.cuh"
#include "device/cuda/shared/head_rule.h"

template <class C> struct head {
    const void *targets;
    tl_dtype targets_dtype;
    int64_t ignore_index, V, pitch; /* pitch: elements from one row of logits to the next */
    C *losses;                      /* (N) */
    const C *scale;                 /* of a row's loss in the result */
    bool has_gradients, scales_late;
    C soft_cap;            /* of logits; 0: none */
    C smoothing, z_weight; /* of labels, and of the squared log-sum-exp; 0: none (spec/attr.h) */
};

__device__ inline bool target_counts(int64_t target, int64_t ignore_index, int64_t V) {
    return target != ignore_index && target >= 0 && target < V;
}

/* ---- On Hopper: head_hopper.cu ------------------------------------------------------------------------- */

/* Of the rows of a chunk: */
struct head_chunk {
    head<float> h;
    const bf16 *weight; /* (V, width) */
    int64_t width;
    bf16 *e;        /* (rows, pitch): e^(logit - shift), and at the target that minus the row's sum */
    float *target;  /* logits of the targets */
    float *shift;   /* the same, unless a row has a much larger logit: then the largest */
    float *total;   /* sums of a row's exponentials */
    float *factor;  /* of a row of e, with which it is the gradient of its logits */
    float *partial; /* (tiles side by side, rows) */
    int *pairs;     /* how many pairs of tiles have rows with a shift that was too small, and which */
    bf16 *scaled;   /* rows of x times their factors */
};

/* Whether the kernels below run on this GPU. */
bool head_runs_on_hopper(const tl_kernel_args *args);
/* From n rows of x, which begin with row `first` of all: their losses, e, factors and scaled rows. */
bool head_exponentials(const tl_kernel_args *args, const struct head_chunk *c, const bf16 *x, int64_t first, int64_t n);
/* dx (n, width) times the rows' factors. */
void head_apply_factors(const tl_kernel_args *args, const struct head_chunk *c, bf16 *dx, int64_t n);

#endif

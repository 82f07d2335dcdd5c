/* attention.h: what attention.c (which chooses and speaks to cuDNN), and our kernels (attention_*.cu)
 * share. */
#ifndef CUDA_ATTENTION_H
#define CUDA_ATTENTION_H

#include "spec/attr.h"
#include "tally.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One tensor's rows of D: element (b,t,h,0) lies at data + b*stride_b + t*stride_t + h*stride_h. */
struct attention_rows {
    void *data;
    int64_t stride_b, stride_t, stride_h;
};

struct attention_call {
    int64_t B, T, S, H, H_kv, D;
    double scale;
    double soft_cap;     /* c > 0: a score s becomes c tanh(s / c) before a mask is added; 0: none */
    bool causal;         /* query t sees keys 0 .. S-T+t */
    int64_t left, right; /* query t stands beside key S-T+t, and sees so many keys before and after it */
    tl_dtype dtype;
    struct attention_rows q, k, v, out, g, dq, dk, dv; /* the last four: backward */
    void *lse;                                         /* (B,H,T) */
    /* Features that the cuDNN graphs lack; NULL if absent. */
    const void *mask; /* (B,H,T,S), any strides: bool, or a float that is added to the scores */
    tl_dtype mask_dtype;
    int64_t mask_stride[4];
    const void *first_key; /* (B,T), i64 or i32, any strides: query t sees no key before it; does not decrease */
    tl_dtype first_key_dtype;
    int64_t first_key_stride[2];
    const void *g_lse; /* backward: (B,H,T) */
    void *dmask;       /* backward: dense (B,H,T,S) of mask_dtype */
    void *sums;        /* backward on Hopper: of every HOPPER_SUM_ROWS rows of the packed gradient */
    double dropout;    /* 0: none; see spec/dropout.h */
    tl_generator generator;
};

/* A warp for each query or key: every float dtype, any T and S. Backward is two passes without atomics, the first for
 * dK and dV, the second for dQ, and needs attention_own_workspace(call) bytes. */
enum { ATTENTION_WIDEST_HEAD = 1024 };
size_t attention_own_workspace(const struct attention_call *call);
bool attention_own_forward(const tl_kernel_args *args, const struct attention_call *call);
bool attention_own_backward(const tl_kernel_args *args, const struct attention_call *call);

/* The same by tiles, for more than a few queries and keys: of f64, and what tensor cores do not take. */
bool attention_fma_fits(const struct attention_call *call);
bool attention_fma_forward(const tl_kernel_args *args, const struct attention_call *call);
bool attention_fma_backward(const tl_kernel_args *args, const struct attention_call *call);

/* Attention on tensor cores with whatever hides or drops keys, for the calls that fit: f32 and 16 bits, heads of up to
 * 256. Backward reads delta = rowsum(g out) - g_lse from the workspace, where attention_own_delta writes it. */
bool attention_tiles_fit(const struct attention_call *call, int capability);
bool attention_tiles_forward(const tl_kernel_args *args, const struct attention_call *call);
bool attention_own_delta(const tl_kernel_args *args, const struct attention_call *call);
bool attention_tiles_backward(const tl_kernel_args *args, const struct attention_call *call);
bool attention_tiles_forward_f32(const tl_kernel_args *args, const struct attention_call *call);
bool attention_tiles_backward_f32(const tl_kernel_args *args, const struct attention_call *call);

/* Rows of heads that TMA cannot read, copied to longer ones with zeros behind, or back to shorter ones: n_copies of
 * them, in one launch. The longer length is a multiple of 8, and its rows are aligned to 16 bytes. */
enum { ATTENTION_COPIES = 5 };
struct attention_copy {
    struct attention_rows from, to;
    int64_t n_rows, n_heads;
};
void attention_rows_copy(const tl_kernel_args *args, const struct attention_copy *copies, int n_copies, int64_t B,
                         int64_t from_length, int64_t to_length);

/* Forward of a few queries, where attention_fits_few says so; the workspace is as attention_rule.h counts it. */
bool attention_few_forward(const tl_kernel_args *args, const struct attention_call *call);

/* The gradient on Hopper's warpgroup tensor cores, where attention_fits_hopper says so. The workspace is as
 * attention_rule.h cuts it: delta, then slabs, then, if wanted, sums. */
bool attention_hopper_backward(const tl_kernel_args *args, const struct attention_call *call);
/* Forward, there: no soft cap, heads of up to 256 that are a multiple of 8, a positive scale, rows aligned to 16
 * bytes. */
bool attention_hopper_forward(const tl_kernel_args *args, const struct attention_call *call);
/* The gradient there for heads of 129 to 256, in two passes, where attention_fits_wide says so: rows aligned to 16
 * bytes, and delta in the workspace, where attention_own_delta writes it. */
bool attention_wide_backward(const tl_kernel_args *args, const struct attention_call *call);
/* Whether this GPU and this build have the kernels: machine code for 9.0 alone. */
bool attention_hopper_runs(const tl_kernel_args *args);

/* Writes T into n i32 at `queries`, and S into n at `keys`. */
void attention_lengths_write(const tl_kernel_args *args, int32_t *queries, int32_t *keys, int64_t n, int64_t T,
                             int64_t S);

#ifdef __cplusplus
}
#endif
#endif

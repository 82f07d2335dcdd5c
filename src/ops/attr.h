/* attr.h: what each op's kernel is told besides its tensors, and the contract of every kernel.
 *
 * Conventions for all kernels. Fresh outputs are dense and row-major. "any" inputs may have any strides: zero
 * (expanded), negative, permuted; "dense" inputs are row-major without gaps. Broadcasting: an input of lower rank or
 * with axes of size 1 is repeated along the output's axes, which line up at the end. Zero elements are normal.
 * Arithmetic is done in dtype_compute(output dtype) (f64 for f64, f32 for the other floats, i64 for
 * integers and bool) and rounded once; inputs of other dtypes are converted to it first. Sums
 * use chunks of fixed size, so results do not depend on the number of threads.
 *
 * Plain data only: a node of the graph keeps a byte copy.
 */
#ifndef OPS_ATTR_H
#define OPS_ATTR_H

#include "tally.h"

/* full ( ) -> out;  fill (x any) -> x itself */
struct attr_full { double value; };

/* arange ( ) -> out (n): start + i*step, computed in f64 (i64 for integer outputs) and rounded once */
struct attr_arange { double start, step; };

/* random ( ) -> out: element i draws number generator.index + i of (seed, stream): 32-bit words, or pairs of them for f64
 * outputs and integers (see base/rng_math.h) */
enum random_kind { RANDOM_UNIFORM, RANDOM_NORMAL, RANDOM_BERNOULLI, RANDOM_INTEGERS };
struct attr_random {
    enum random_kind kind;
    tl_generator generator;
    double a, b;       /* uniform: low, high; normal: mean, std; bernoulli: p, - */
    int64_t low, high; /* integers in [low, high) */
};

/* copy (x any) -> out of attr.dtype: dense copy with conversion.
 * assign (x any, source any, broadcast to x) -> x itself, converted to x's dtype. */
struct attr_copy { tl_dtype dtype; };

/* unview (g any) -> out: zeros of `shape`, then out[geometry] += g, where the geometry is g's shape with
 * `stride` and `offset` (elements of out). `overlaps`: several elements of g may land on one of out.
 * Elements of g are added in row-major order of g. */
struct attr_unview {
    int rank; /* of the output */
    int64_t shape[TL_MAX_RANK];
    int64_t stride[TL_MAX_RANK]; /* one per axis of g */
    int64_t offset;
    bool overlaps;
};

/* affine (x any) -> x * scale + shift  (two roundings: product, then sum) */
struct attr_affine { double scale, shift; };

/* compare (a any, b any) -> bool; operands are compared in dtype_compute(promoted dtype) */
struct attr_compare { tl_compare relation; };

/* gelu_grad (x any, g any) -> g * gelu'(x);  silu_grad likewise;  where (condition bool any, a any, b any) */

/* sum, max (x any) -> out: over the axes whose bit is set. The output has them with size 1 (keep) or without.
 * sum of integers and bool is i64; sum of a 16-bit float is done in f32 and rounded once.
 * The reduced elements of one output are cut, in row-major order, into chunks of REDUCE_CHUNK; each chunk is summed
 * by itself and the chunk sums are added in order. When `workspace` is given it has room for one f64 per (output, chunk). */
#define REDUCE_CHUNK 4096
struct attr_reduce {
    uint32_t axes;
    bool keep;
};

/* softmax (x dense) -> over the last axis;  softmax_grad (y dense, g dense) -> y * (g - sum(g*y)) */

/* matmul (a, b) -> out dense (batch..., m, n) : op(a) op(b), f32 (f64) accumulation.
 * a is (batch..., m, k), or (batch..., k, m) when transpose_a; b likewise. Both have the rank of the output (>= 2),
 * batch axes of size 1 repeat. In each matrix one of the last two axes has stride 1 (or size 1); batch
 * strides are any. attr.dtype is the output's dtype (the inputs', or f32 for 16-bit inputs).
 * matmul_acc (c, a, b) -> c itself: c += op(a) op(b), added in c's dtype once; c is dense. */
struct attr_matmul {
    bool transpose_a, transpose_b;
    tl_dtype dtype;
};

/* layer_norm (x dense (...,C) [, weight dense (C), bias dense (C)]) -> y, mean (rows), rstd (rows)
 * layer_norm_grad (g dense, x, mean, rstd [, weight]) -> dx [, dweight, dbias]
 * rms_norm (x dense [, weight]) -> y, rstd;  rms_norm_grad (g, x, rstd [, weight]) -> dx [, dweight]
 * mean and rstd are f32 (f64 for f64 x). Weight gradients: rows are cut into NORM_CHUNKS equal runs (the
 * last may be shorter), each summed in order in dtype_compute, then the runs are added in order. The workspace has
 * NORM_CHUNKS x C x (1 or 2) of them: dweight runs first, then dbias runs. */
#define NORM_CHUNKS 64
struct attr_norm { double eps; };

/* embedding (weight dense (V,C), ids any i64/i32) -> (ids..., C). An id outside [0,V) fails.
 * embedding_grad (g dense (N,C), ids dense (N)) -> (V,C) zeros plus the rows of g added at their ids in order of n,
 * accumulated in dtype_compute and rounded once. The workspace has V + 1 + N int32: room to group the rows by id. */
struct attr_embedding { int64_t n_rows; /* V */ };

/* cross_entropy (logits dense (N,V), targets dense (N) i64/i32) -> loss (N), lse (N), both f32 (f64 for f64):
 * loss = lse - logits[target]. A target outside [0,V) fails.
 * cross_entropy_grad (g dense (N), logits, targets, lse) -> (exp(logits - lse) - onehot) * g[n] */

/* rope (x (B,T,H,D), last axis stride 1) -> dense: with angle a = (first_position + t) * base^(-2i/D),
 * out[i] = x[i] cos a - x[i+D/2] sin a; out[i+D/2] = x[i+D/2] cos a + x[i] sin a; inverse rotates by -a. */
struct attr_rope {
    double base;
    int64_t first_position;
    bool inverse;
};

/* attention (q (B,T,H,D), k (B,S,Hkv,D), v (B,S,Hkv,D); last axis stride 1, other strides any)
 *   -> out dense (B,T,H,D), lse dense (B,H,T) f32 (f64 for f64): softmax(scale q k^T) v, lse of the scaled scores.
 * causal: query t sees keys 0 .. S-T+t. Head h reads k/v head h / (H/Hkv).
 * attention_grad (g dense, q, k, v, out, lse) -> dq (B,T,H,D), dk, dv (B,S,Hkv,D), dense.
 * No T x S buffer. Workspace: see attention.c. */
struct attr_attention {
    double scale;
    bool causal;
};

/* adamw (p any, g any, m any, v any) -> p, m, v themselves, all of one shape; arithmetic in f32 (f64 for f64 p):
 * p *= 1 - lr*weight_decay; m = beta1 m + (1-beta1) g; v = beta2 v + (1-beta2) g^2;
 * p -= lr/(1-beta1^step) * m / (sqrt(v)/sqrt(1-beta2^step) + eps).
 * sgd (p any, g any) -> p itself: p -= lr*g */
struct attr_adamw { tl_adamw_options options; };
struct attr_sgd { double lr; };

/* item (x, one element) -> no output; the value goes to host memory as f64 and i64.
 * nonzero (x any) -> (n, rank) i64 in row-major order; n was counted before. */
struct attr_item {
    double *f64;
    int64_t *i64;
};
struct attr_nonzero { int64_t n; };

/* ---- Casts with a mode, block-scaled formats ---- */

/* cast_mode (x any; f4: dense) -> out of attr.dtype: copy with a rounding mode (tensor/convert.h). TL_STOCHASTIC: element i
 * in row-major order takes word generator.index + i of (seed, stream). */
struct attr_cast {
    tl_dtype dtype;
    tl_rounding mode;
    tl_generator generator;
};

/* quantize (x any (...,C)) -> values (...,C), scales (...,C/block) [, tensor_scale ()]: the rule of tensor/format.h, in f64.
 * TL_STOCHASTIC: element i in row-major order takes word generator.index + i. Where there is a tensor scale, the workspace
 * has one f64 per QUANTIZE_CHUNK blocks of x, for their largest magnitudes. */
#define QUANTIZE_CHUNK 256
struct attr_quantize {
    tl_format format;
    tl_rounding mode;
    tl_generator generator;
};

/* dequantize (values dense (...,C), scales dense (...,C/block) [, tensor_scale ()]) -> out of attr.dtype: value * scale
 * [* tensor_scale], which f64 holds exactly, rounded once */
struct attr_dequantize {
    tl_format format;
    tl_dtype dtype;
};

/* ---- More random numbers ---- */

/* random_fill (x any) -> x itself: element i in row-major order is what `random` puts at i, in x's dtype (bernoulli: 0 or 1).
 * is_truncated: a + b * (the standard normal's quantile at p, negated when is_mirrored), held to [low, high], where p is
 * uniform between p_low and p_high. One word per element, a pair for f64; computed in f64. */
struct attr_random_fill {
    struct attr_random random;
    bool is_truncated, is_mirrored;
    double p_low, p_high, low, high;
};

/* permutation ( ) -> out (n) i64: the order that sorts wide draws generator.index + 0 .. n-1, ties by index.
 * The workspace has 2n (key, index) pairs of 16 bytes. */
struct attr_permutation { tl_generator generator; };

/* multinomial (p any (K) or (N,K)) -> out (n) or (N,n) i64, wide draws counted from generator.index.
 * With replacement: sample j of row r takes draw r n + j, u in [0,1), and is the first category whose running sum (f64, in
 * order) exceeds u times the whole sum. Workspace: K f64.
 * Without: category k of row r takes draw r K + k and arrives at -log(u)/p, u in (0,1); the n first arrivals, ties by
 * index. Workspace: 2K (key, index) pairs of 16 bytes.
 * A negative, infinite or NaN p, a row that sums to 0, or fewer positive p than samples without replacement fails. */
struct attr_multinomial {
    int64_t n_samples;
    bool has_replacement;
    tl_generator generator;
};

#endif

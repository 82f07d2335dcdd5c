/* attr.h: the attributes of each op's kernel, and the contract of every kernel.
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
#ifndef SPEC_ATTR_H
#define SPEC_ATTR_H

#include "tally.h"

/* full ( ) -> out;  fill (x any) -> x itself */
struct attr_full { double value; };

/* arange ( ) -> out (n): start + i*step, computed in f64 (i64 for integer outputs) and rounded once */
struct attr_arange { double start, step; };

/* random ( ) -> out: element i draws number generator.index + i of (seed, stream): 32-bit words, or pairs of them
 * for f64 outputs and integers (see base/rng_math.h) */
enum random_kind { RANDOM_UNIFORM, RANDOM_NORMAL, RANDOM_BERNOULLI, RANDOM_INTEGERS };
struct attr_random {
    enum random_kind kind;
    tl_generator generator;
    double a, b;       /* uniform: low, high; normal: mean, std; bernoulli: p, - */
    double limit;      /* uniform: what is above, before it is rounded to the output's dtype, becomes this (draw.h) */
    int64_t low, high; /* integers in [low, high) */
};

/* copy (x any) -> out of attr.dtype: dense copy with conversion.
 * assign (x any, source any, broadcast to x) -> x itself, converted to x's dtype. */
struct attr_copy { tl_dtype dtype; };

/* unview (g any, a float that computes) -> out: zeros of `shape`, then out[geometry] += g, where the geometry is g's
 * shape with `stride` and `offset` (elements of out). `overlaps`: several elements of g may land on one of out.
 * Elements of g are added in row-major order of g. */
struct attr_unview {
    int rank; /* of the output */
    int64_t shape[TL_MAX_RANK];
    int64_t stride[TL_MAX_RANK]; /* one per axis of g */
    int64_t offset;
    bool overlaps;
};

/* complex_mul (a (...,2), b (...,2), f32 or f64) -> a b, and complex_div -> a / b, each pair being one complex number;
 * with conjugates, b is conjugated first. The leading axes broadcast; the last is dense. */
struct attr_complex { bool conjugates; };

/* fft (x dense f32 or f64) -> its discrete Fourier transform of n numbers along the last axis, times scale; pairs are
 * complex numbers. FFT_COMPLEX: (...,n,2) -> (...,n,2). FFT_OF_REAL: (...,n) -> (...,n/2+1,2). FFT_TO_REAL:
 * (...,n/2+1,2) -> (...,n). inverse: with e^(2 pi i j k / n) instead of its conjugate. workspace:
 * fft_doubles. */
enum fft_kind { FFT_COMPLEX, FFT_OF_REAL, FFT_TO_REAL };
struct attr_fft {
    enum fft_kind kind;
    int64_t n;
    bool inverse;
    double scale;
};

/* affine (x any) -> x * scale + shift  (two roundings: product, then sum) */
struct attr_affine { double scale, shift; };

/* compare (a any, b any) -> bool; operands are compared in dtype_compute(promoted dtype) */
struct attr_compare { tl_compare relation; };

/* where (condition bool any, a any, b any) -> a where the condition holds, else b */

/* sum, max (x any) -> out: over the axes whose bit is set. The output has them with size 1 (keep) or without. sum of
 * integers and bool is i64; sum of a 16-bit float is done in f32 and rounded once (is_wide: not at all). is_mean: the
 * sum of floats is divided by how many there are before it is rounded; of none it is NaN. The reduced
 * elements of one output are cut, in row-major order, into chunks of REDUCE_CHUNK; each chunk is summed by itself
 * and the chunk sums are added in order. When `workspace` is given it has room for one f64 per (output, chunk). On cuda
 * chunks may be half or several times as long, and many chunk sums are added in another fixed order. */
#define REDUCE_CHUNK 4096
struct attr_reduce {
    uint32_t axes;
    bool keep;
    bool is_wide; /* sum: of floats narrower than f32 the result is f32 */
    bool is_mean; /* sum: over the number of elements */
};

/* extreme_grad (x, y, g dense) -> dx: attr_reduce, that of the max or min of x which is y; these have the reduced axes
 * with size 1. share g, where share is 1 / n for the n elements equal to theirs of y, 0 for others; NaN if no element
 * is, as if y is NaN. `workspace` has 8 bytes for each output, and if chunks make one, as many for each of its
 * chunks. */

/* softmax (x dense) -> over an axis;  softmax_grad (y dense, g dense) -> y * (g - sum(g*y)): attr_softmax, and so have
 * log_softmax and its gradient. */
struct attr_softmax {
    int axis; /* counted from the first */
};

/* matmul (a, b) -> out dense (batch..., m, n) : op(a) op(b), f32 (f64) accumulation. a is (batch..., m, k), or
 * (batch..., k, m) when transpose_a; b likewise. Both have the rank of the output (>= 2), batch axes of size 1
 * repeat. In each matrix one of the last two axes has stride 1 (or size 1); batch strides are any. attr.dtype is the
 * output's dtype (the inputs', or f32 for 16-bit inputs). On cuda, without batches and for 16-bit inputs, a third
 * input may be a dense bias (n) of their dtype, which is added before the result is rounded. matmul_acc (c, a, b) ->
 * c itself: c += op(a) op(b), added in c's dtype once; c is dense. With `folds` there is no batch: a (...,k) times
 * one matrix gives (...,n), and op(a) = a^T of a (...,m) with b (...,n) gives (m,n). Folded operands have rows that
 * are dense and lie evenly. matmul_parts (x dense (...,k), 2 to MATMUL_PARTS matrices dense (n_i,k)) -> dense
 * (...,n), n the sum of all n_i: x times the transpose of the matrices, one below the other. attr.transpose_b and
 * attr.folds are true. */
#define MATMUL_PARTS 3
struct attr_matmul {
    bool transpose_a, transpose_b;
    tl_dtype dtype;
    bool folds; /* operands and result of rank > 2 are stacks of rows: one matrix (rows, last axis), see spec/rows.h */
    bool is_fast;  /* f32 operands: TL_MATMUL_HIGH is enough */
    /* cuda: the algorithm is what a clock finds to be the fastest, which need not be the same each time
     * (tl_set_fast); not of 16 bits on Hopper */
    bool is_timed;
};

/* grouped_matmul (a dense (N,k), b dense (E,k,n), or (E,n,k) when transpose_b, ends dense (E) i64/i32) -> out (N,n):
 * row r of group e, ends[e-1] <= r < ends[e], is a[r] op(b[e]); rows from ends[E-1] on are zeros. grouped_outer (a
 * dense (N,m), b dense (N,n), ends) -> out (E,m,n): out[e] is the sum of a[r]^T b[r] over the rows r of group e, in
 * their order; zeros for a group without rows. f32 (f64) accumulation. _acc (sum dense, a, b, ends) -> sum itself,
 * to which the product is added; rows behind the last group stay. ends that fall, or leave [0,N], fail. */
#define GROUPED_MOST 1024 /* groups */
struct attr_grouped {
    bool transpose_b;
    bool is_fast; /* as in attr_matmul */
};

/* Factorisations and solutions of matrices in the last two axes; all inputs are "any", have the same leading axes, and
 * are f32 or f64, all alike. `info` (...) i32 is 0, or the column or order at which LAPACK found that it cannot go on.
 *   cholesky (a (...,n,n), of which the lower triangle is read) -> l, zero above the diagonal, info
 *   lu (a (...,m,n)) -> lu (...,m,n): L below the diagonal, whose own is ones, and U; pivots (...,min(m,n)) i32 from 1;
 *     info
 *   solve (a (...,n,n), b (...,n,k)) -> x, lu, pivots, info
 *   inv (a (...,n,n)) -> x, info */
struct attr_factor { bool checks; }; /* an info other than 0 is an error */

/* det (a (...,n,n)) -> det (...), sign (...), log |det| (...), lu, pivots */

/* swap_rows (x (...,m,k), pivots (...,p) i32, p <= m, each from 1 to m) -> P x, where A = P L U; inverse: P^T x */
struct attr_swap { bool inverse; };

/* solve_triangular (a (...,n,n), of which one triangle is read, b (...,n,k)) -> x with a x = b */
struct attr_triangular {
    bool upper;
    bool is_unit; /* the diagonal is ones, and not read */
};

/* qr (a (...,m,n)) -> r (...,q,n), zero below the diagonal [, q (...,m,q)]; q is min(m,n), or m if complete */
struct attr_qr { bool complete, vectors; };

/* eigh (a (...,n,n), of which one triangle is read) -> values (...,n), rising [, vectors (...,n,n), in columns] */
struct attr_eigh { bool upper, vectors; };

/* eig (a (...,n,n)) -> values (...,n,2) [, vectors (...,n,n,2), in columns, of length 1]; pairs are complex numbers */
struct attr_eig { bool vectors; };

/* svd (a (...,m,n)) -> s (...,k), falling [, u (...,m,k), vh (...,k,n)], k = min(m,n); full: u (...,m,m), vh
 * (...,n,n) */
struct attr_svd { bool full, vectors; };

/* narrow (x dense (...,C) [, scale f32 ()]) -> [rows] [, transposed] [, scale]: x over a scale, rounded to
 * attr.dtype (f8e4m3, f8e5m2) and held to its range, in f32:
 *      scale = amax(x) / largest + 1e-30, unless it is given,     q = round(x / scale)
 * rows is q, dense, of x's shape; transposed its transpose (C, rows of x), dense; scale () is a result where it is
 * none of the inputs. At least one of the first two is needed. On cuda x has 16 bits or is f32, the number of rows
 * and C are multiples of 16, and the workspace has NARROW_BYTES, for the largest magnitude.
 *
 * matmul_f8 (a f8 dense (...,k), b f8 dense (n,k), scale_a (), scale_b () [, x, weight, transposed [, bias dense
 * (n)]]) -> (...,n) of attr.dtype:
 *      a b^T scale_a scale_b + bias, f32 accumulation, rounded once
 * x, weight and transposed are not read: gradients are those of x and weight, and read weight and transposed.
 * matmul_f8_acc (sum dense (m,n), a, b, scale_a, scale_b) -> sum itself, to which the product is added. On cuda m, k
 * and n are multiples of 16. */
struct attr_narrow {
    tl_dtype dtype;
    bool gives_rows, gives_transposed;
};
struct attr_matmul_f8 {
    tl_dtype dtype;
    bool is_timed; /* as in attr_matmul */
};

/* matmul_blocks (x dense (...,k), values, scales, tensor_scale () [, bias dense (n)]) -> (...,n) of x's dtype, f32, f16
 * or bf16. W (n,k) is what dequantize makes of the three in x's dtype; W as a whole is nowhere in memory:
 *      x W^T + bias when transpose_b,     and otherwise, of x (...,n) and without a bias,     x W (...,k)
 * values and scales are dense; tensor_scale is scales again in a format without one. f32 accumulation. On the cpu the
 * bits are those of matmul with W, where that is no call of the library (device/cpu/ops/matmul.c). On cuda parts of W
 * are made in the workspace, for some columns of the result each, and multiplied as matmul does it; a few rows are
 * multiplied by kernels that read values and scales (device/cuda/shared/blocks_rule.h). */
struct attr_matmul_blocks {
    tl_format format;
    bool transpose_b;
    bool is_fast, is_timed; /* as in attr_matmul */
};

/* gelu_mlp (x dense (...,C), down dense (D,F), up dense (F,C) [, up_bias dense (F), down_bias dense (D)]) -> out
 * (...,D) [, y (...,F), h (...,F) if `keeps`]:
 *      h = x up^T + up_bias,  y = gelu(h),  out = y down^T + down_bias,     h and y rounded to their dtype
 * gelu_mlp_grad (g dense (...,D), down, h dense (...,F)) -> dh in h's place [, sums (F) if `gives_sums`]:
 * dh = (g down) gelu'(h), rounded once; the sums are those of dh's columns, before it is rounded.
 *
 * swiglu_mlp (x, down, up (F,C), gate dense (F,C)) -> out (...,D) [, y, u (...,F), z (...,F)]:
 *      z = x gate^T,  u = x up^T,  y = silu(z) u,  out = y down^T
 * swiglu_mlp_grad (g, down, u, z) -> du, dz in their places: du = (g down) silu(z), dz = (g down) u silu'(z).
 *
 * The tanh form of gelu. All of one float dtype. The workspace has y if it is no result, and what products need; on
 * cuda, MLP_SUMS_BYTES for a gradient. */
#define MLP_SUMS_ROWS 128 /* of a gradient on cuda: each so many have their own sums of columns */
#define MLP_SUMS_BYTES(rows, F) (((uint64_t)(rows) + MLP_SUMS_ROWS - 1) / MLP_SUMS_ROWS * (uint64_t)(F) * 8)
struct attr_mlp {
    bool keeps, gives_sums;
    bool is_fast, is_timed; /* as in attr_matmul */
};

/* layer_norm (x dense (...,C) [, weight dense (C), bias dense (C)]) -> y, mean (rows), rstd (rows) layer_norm_grad
 * (g dense, x, mean, rstd [, weight]) -> dx [, dweight, dbias] [, sums (C)]
 * rms_norm (x dense [, weight]) -> y, rstd;  rms_norm_grad (g, x, rstd [, weight]) -> dx [, dweight] [, sums (C)]
 * mean and rstd are f32 (f64 for f64 x). sums, of x's dtype, as a bias is, are those of the columns of the rounded dx;
 * they are there if gives_sums. They and the weight gradients: rows are cut into NORM_CHUNKS equal runs (the last may
 * be shorter), each summed in order in dtype_compute, then the runs are added in order. The workspace has NORM_CHUNKS x
 * C of them for each: dweight runs first, then dbias runs, then those of sums. On cuda there are NORM_RUNS, a few for
 * each multiprocessor of the largest Hopper, summed and added in another fixed order. dropout > 0: of the residual, in
 * add_layer_norm and add_rms_norm below. The gradients then have a second output behind dx, like it: what dropout
 * leaves of dx, the gradient of the residual; and sums are those of its columns. */
struct attr_norm {
    double eps;
    bool gives_sums;
    double dropout;
    tl_generator generator; /* of dropout */
};

/* embedding (weight dense (V,C), ids any i64/i32) -> (ids..., C). An id outside [0,V) fails. embedding_grad (g dense
 * (N,C), ids dense (N)) -> (V,C) zeros plus the rows of g added at their ids in order of n, accumulated in
 * dtype_compute and rounded once. The workspace has V + 1 + N int32: room to group the rows by id. embedding_acc
 * (sum dense (V,C), g dense (N,C), ids dense (N)) -> sum itself: the same added to it; rows without ids stay. */
struct attr_embedding { int64_t n_rows; /* V */ };

/* cross_entropy (logits dense (N,V), targets dense (N) i64/i32) -> loss, lse (N) [, share ()], all f32 (f64 for f64):
 * loss = lse - logits[target], (N), or by `reduction` (): the rows' sum, or their mean, with which comes share, 1 over
 * the number of rows that count. A row whose target is ignore_index is left out, whatever its logits: its loss, lse and
 * gradient are 0. Another target outside [0,V) fails. is_narrow: the loss has the logits' dtype. Sums are f64 and
 * rounded once; the rows are dealt to cross_entropy_parts(N) parts, for each of which the workspace has a struct
 * cross_entropy_part. Without attributes, every row counts, and there is a loss for each.
 * cross_entropy_grad (g dense (N), or () of a reduced loss, any float, logits, targets, lse [, share]) ->
 * (exp(logits - lse) - onehot) * g[n] [* share]; a target of -1 that is not left out is not among these logits, which
 * are then a part of all, and lse is of all of them: its onehot is 0. */
struct attr_cross_entropy {
    int64_t ignore_index; /* TL_IGNORE_NONE: none */
    tl_reduction reduction;
    bool is_narrow;
};
static inline struct attr_cross_entropy cross_entropy_options(const struct attr_cross_entropy *a) {
    const struct attr_cross_entropy every_row = {TL_IGNORE_NONE, TL_REDUCE_NONE, false};
    return a ? *a : every_row;
}
/* Eight blocks for each of 132 multiprocessors; the same on every device. */
#define CROSS_ENTROPY_PARTS 1056
struct cross_entropy_part {
    double loss;
    int64_t n; /* rows that count */
};
static inline int64_t cross_entropy_parts(int64_t n_rows) {
    return n_rows < CROSS_ENTROPY_PARTS ? n_rows : CROSS_ENTROPY_PARTS;
}

/* rope (x (B,T,H,D), last axis stride 1 [, positions (B,T) i64/i32, any strides]) -> dense: with angle a = position *
 * rope_frequency(attr, i, D/2), out[i] = x[i] cos a - x[i+D/2] sin a; out[i+D/2] = x[i+D/2] cos a + x[i] sin a; inverse
 * rotates by -a. The position is positions[b][t] (has_positions), otherwise first_position + t.
 *
 * rope_put (q (B,T,H,D), k, v (B,T,Hkv,D), cache (2,B,Hkv,S,D), place (B,T) i64/i32, any strides; last axes of the
 * others stride 1) -> q' dense, and the cache, changed: q' is q turned by place, cache[0][b][:][place[b][t]] becomes k
 * turned, and cache[1][...] v. A place outside [0,S) fails. Workspace: as many bytes as k has, for the cpu. */
struct attr_rope {
    double base;
    int64_t first_position;
    bool has_positions, inverse;
    tl_rope_scaling scaling;
};

/* attention (q (B,T,H,D), k (B,S,Hkv,D), v (B,S,Hkv,D); last axis stride 1, other strides any)
 *   -> out dense (B,T,H,D), lse dense (B,H,T) f32 (f64 for f64): softmax(scale q k^T) v, lse of the scaled scores.
 * soft_cap c > 0: a score s becomes c tanh(s / c), before a mask is added.
 * causal: query t sees keys 0 .. S-T+t. Head h reads k/v head h / (H/Hkv). attention_grad (g dense, q, k, v, out,
 * lse) -> dq (B,T,H,D), dk, dv (B,S,Hkv,D), dense. No T x S buffer. Workspace: see attention.c. window > 0: query t
 * sees keys less than `window` away from S-T+t; causal: of these none after it. has_mask: input 3 of attention,
 * input 6 of attention_grad is (B,H,T,S), any strides: bool (false hides) or a float added to the scaled scores.
 * has_first_key: the next input is (B,T), i64 or i32, any strides, and does not decrease along T: query t sees no
 * key before first_key[b][t]. A kernel may rely on the order if it neither reads nor writes outside its operands
 * without it. attention_grad's last input may be g_lse dense (B,H,T), of lse's dtype (has_lse_grad). has_mask_grad:
 * a fourth output, dmask dense (B,H,T,S) of mask's dtype. A query that sees nothing has out 0, lse -inf and no part
 * in gradients. dropout > 0: after the softmax a weight becomes 0 with this probability, or grows by 1/(1 -
 * dropout); spec/dropout.h says which. lse is that of the softmax. attention_grad gets the same generator, and with
 * it the same mask. is_packed: attention_grad has one output in place of three, dense (B,T,H+2Hkv,D): the heads of dq,
 * then those of dk, then those of dv (spec/attention_pack.h); T = S, and no dmask. gives_sums: then there is a second
 * output, the sums over B and T of the first one as it is, rounded: dense ((H+2Hkv) D), of q's dtype. */
struct attr_attention {
    double scale, soft_cap;
    bool causal;
    int64_t window;
    bool has_mask, has_first_key, has_lse_grad, has_mask_grad;
    bool is_fast;   /* attention_grad: need not repeat its bits (tl_set_fast) */
    bool is_packed; /* attention_grad: dq, dk and dv side by side in one output */
    bool gives_sums;
    double dropout;
    tl_generator generator; /* of dropout */
};

/* item (x, one element) -> no output; the value goes to host memory as f64 and i64.
 * nonzero (x any) -> (n, rank) i64 in row-major order; n was counted before. On cuda the workspace has one int64 for
 * each SELECT_TILE elements (device/cuda/shared/limits.h). */
struct attr_item {
    double *f64;
    int64_t *i64;
};
struct attr_nonzero { int64_t n; };

/* ---- Casts with a mode, block-scaled formats ---- */

/* cast_mode (x any; f4: dense) -> out of attr.dtype: copy with a rounding mode (tensor/convert.h). TL_STOCHASTIC:
 * element i in row-major order takes word generator.index + i of (seed, stream). */
struct attr_cast {
    tl_dtype dtype;
    tl_rounding mode;
    tl_generator generator;
};

/* quantize (x any (...,C)) -> values (...,C), or (...,C/2) of codes, scales (...,C/block) [, tensor_scale ()]: the
 * rule of tensor/format.h, in f64. TL_STOCHASTIC: element i in row-major order takes word generator.index + i. Where
 * there is a tensor scale, the workspace has one f64 per QUANTIZE_CHUNK blocks of x, for their largest magnitudes.
 * fake_quantize (x any (...,C)) -> out dense, x's dtype: what dequantize makes of these, bit for bit. The same
 * workspace. */
#define QUANTIZE_CHUNK 256
struct attr_quantize {
    tl_format format;
    tl_rounding mode;
    tl_generator generator;
};

/* dequantize (values dense, (...,C) or (...,C/2), scales dense (...,C/block) [, tensor_scale ()]) -> out of
 * attr.dtype: value * scale [* tensor_scale], which f64 holds exactly, rounded once */
struct attr_dequantize {
    tl_format format;
    tl_dtype dtype;
};

/* ---- More random numbers ---- */

/* random_fill (x any) -> x itself: element i in row-major order is what `random` puts at i, in x's dtype (bernoulli:
 * 0 or 1). is_truncated: a + b * (the standard normal's quantile at p, negated when is_mirrored), held to [low,
 * high], where p is uniform between p_low and p_high. One word per element, a pair for f64; computed in f64. */
struct attr_random_fill {
    struct attr_random random;
    bool is_truncated, is_mirrored;
    double p_low, p_high, low, high;
};

/* dropout (x any, float) -> out: element i in row-major order is x / (1 - p) where spec/dropout.h keeps it, and 0
 * otherwise; rounded once. The gradient is the same op on g: nothing is saved. */
struct attr_dropout {
    double p;
    tl_generator generator;
};

/* permutation ( ) -> out (n) i64: the order that sorts wide draws generator.index + 0 .. n-1, ties by index.
 * The workspace has 2n (key, index) pairs of 16 bytes; on cuda it is that of a sort of 32-bit keys. */
struct attr_permutation { tl_generator generator; };

/* multinomial (p any (K) or (N,K)) -> out (n) or (N,n) i64, wide draws counted from generator.index. With
 * replacement: sample j of row r takes draw r n + j, u in [0,1), and is the first category whose running sum exceeds u
 * times the whole sum. In f64: each MULTINOMIAL_PART weights are added up in order, and so are these parts; a running
 * sum is that of the parts before, plus that of its own part up to here. Workspace: K f64 for every row, SORT_SLOTS at
 * most; on cuda one for each part of every row.
 * Without: category k of row r takes draw r K + k and arrives at -log(u)/p, u in (0,1); the n first arrivals, ties
 * by index. Workspace: 2K (key, index) pairs of 16 bytes for every row, SORT_SLOTS at most; on cuda as for sort. A
 * negative, infinite or NaN p, a row that sums to 0, or fewer positive p than samples without replacement fails. */
#define MULTINOMIAL_PART 128
#define MULTINOMIAL_BYTES(has_replacement) ((has_replacement) ? 8 : 32) /* for each of the K */
struct attr_multinomial {
    int64_t n_samples;
    bool has_replacement;
    tl_generator generator;
};

/* ---- Reductions and scans (fold.c) ---- */

/* min, prod (x any) -> out: attr_reduce, as sum. NaN wins a minimum. A product of floats is taken in f64 and rounded
 * once, one of integers and bool is i64 and wraps. prod's `workspace`, when given, has room for one f64 per (output,
 * chunk). argmax, argmin (x any) -> i64: attr_reduce. The place of the largest (smallest) element among those
 * reduced, counted row-major; of equal ones the first; the first NaN beats everything. var (x any) -> var (x's
 * dtype), mean (f32, or f64 for f64): attr_var. sum (x - mean)^2 / max(n - correction, 0), the square root of it
 * when is_root; mean has the reduced axes with size 1 if keep, or not. norm (x any) -> x's dtype: attr_vector_norm.
 * (sum |x|^p)^(1/p); p = 0 counts what is not 0; +-inf is the largest (smallest)
 * |x|, NaN wins.
 * logsumexp (x any) -> x's dtype: attr_reduce. log sum e^x, shifted by the maximum; of no elements -inf. argmax to
 * logsumexp work in f64 (i64) on chunks of REDUCE_CHUNK, joined in order; when there is more than one, `workspace`
 * has FOLD_STATE_BYTES for each (output, chunk). On cuda many states are joined in a fixed tree. */
#define FOLD_STATE_BYTES 16
struct attr_var {
    struct attr_reduce over;
    double correction;
    bool is_root;
};
struct attr_vector_norm {
    struct attr_reduce over;
    double p;
};

/* cumsum, cumprod (x dense (...,n)) -> out: running sums (products) along the last axis, in f64 (i64 for integers,
 * whose results are i64), each rounded once. is_reverse: from the last element to the first. is_exclusive: without
 * the element itself, so the first is 0 (1). cumprod_grad (x dense (...,n), g dense, x's shape) -> dx, without a
 * division, so that zeros are right. In the direction of the scan: dx[k] = (product of x before k) r[k], r[k] = g[k]
 * + x[k+1] r[k+1] (g[k+1] when exclusive), in f64, rounded once. is_total: g is (...,1), the gradient of the last
 * running product alone, which is that of the product of all. `workspace` has one f64 for each (row, SCAN_BLOCK
 * elements). On cuda cumsum and cumprod of few long rows need some too (device/cuda/shared/limits.h). */
#define SCAN_BLOCK 1024
struct attr_scan { bool is_reverse, is_exclusive, is_total; };

/* ---- Losses (loss.c) ---- */

/* log_softmax (x dense) -> over an axis: (x - max) - log sum e^(x - max)
 * log_softmax_grad (y dense, g dense) -> g - e^y sum(g)
 * nll (x dense (N,V), targets dense (N) i64/i32) -> (N), x's dtype: -x[n][target]. A target outside [0,V) fails.
 * nll_grad (g dense (N), targets) -> (N,V) zeros, and -g[n] at [n][target]
 * bce (x any, t any, one shape) -> (1 - t) x + max(-x, 0) + log(1 + e^-|x|), in f64, rounded once */
struct attr_nll { int64_t n_classes; /* V */ };

/* ---- index.c, join.c, sort.c: gathering, joining, sorting. Elements are moved as they are; f4 does not come here.
 * ---- */

/* gather (x any, index any i64/i32, of x's rank) -> index's shape: out[p] = x[p with p[axis] = index[p]]. scatter (x
 * any, index any, source any of index's shape) -> x with x[p with p[axis] = index[p]] = source[p]; of several for
 * one place the last in row-major order stays. scatter_add: the same with +=, added in that order. In place, out is
 * x itself. An index outside [0, size) fails before anything is written. Sums of floats narrower than f32 are kept
 * in f32 in the workspace, which has x's shape, and rounded once. */
struct attr_gather { int axis; };

/* index (x any, indices any i64/i32) -> the indices are broadcast to one shape B, which takes the place of the axes
 * they stand for: where these are neighbours, otherwise it comes first. `axes` rise. index_put (x any, values any,
 * indices any) -> x with the elements that `index` would fetch set to values (broadcast to their shape), or these
 * added to them; order, place of sums and checks as for scatter. `wraps`: indices from -size on count from the end.
 * The workspace begins with one int64 for each element of B; on a GPU very many rows have other uses for it
 * (device/cuda/shared/group_rule.h). */
#define INDEX_MAX 14 /* index tensors of a call: a gradient can save 16 inputs */
struct attr_index {
    int n, axes[INDEX_MAX];
    bool wraps, accumulates;
};
/* B of n index tensors; its rank. */
static inline int indices_shape(const tl_operand *index, int n, int64_t *shape) {
    int rank = 0;
    for (int k = 0; k < n; k++)
        if (index[k].rank > rank) rank = index[k].rank;
    for (int i = 0; i < rank; i++) {
        shape[i] = 1;
        for (int k = 0; k < n; k++) {
            const int own = i - (rank - index[k].rank);
            if (own >= 0 && index[k].shape[own] != 1) shape[i] = index[k].shape[own];
        }
    }
    return rank;
}

/* repeat_interleave (counts any (n) i64/i32) -> (total) i64: i repeated counts[i] times; total was counted before.
 * On cuda the workspace has one int64 for each 4096 of the counts. */
struct attr_repeat { int64_t total; };

/* concat (up to 64 inputs, any) -> out: one after the other along the axis, converted to its dtype. Inputs without
 * elements are skipped. */
struct attr_concat { int axis; };

/* pad (x any) -> out: x with before[i] + after[i] elements of `value` more along axis i */
struct attr_pad {
    int64_t before[TL_MAX_RANK], after[TL_MAX_RANK];
    double value;
};

/* sort (x any) -> values, indices i64: the first k of the axis in stable order; descending: equal ones still rise by
 * index. NaN is above all numbers, -0 equals 0. Lines of the axis are dealt to SORT_SLOTS slots in turn; the
 * workspace has 32 bytes for each element of a line and slot; on cuda see device/cuda/shared/sort_rule.h. */
#define SORT_SLOTS 16
struct attr_sort {
    int axis;
    int64_t k;
    bool descending;
};

/* searchsorted (sorted any (..., n), values any) -> i64 of values' shape: how many elements of its row (the only
 * one, where sorted has one axis) are below the value, or not above it (`right`). NaN goes to the end. */
struct attr_search { bool right; };

/* unique (sorted dense (n), order dense (n) i64) -> values (m), inverse (n) i64, counts (m) i64; m was counted before.
 * inverse[order[i]] is the number of the value of sorted[i]. NaN equals nothing. On cuda the workspace has m int64, and
 * one for each SELECT_TILE elements. */
struct attr_unique { int64_t n; };

/* ---- elementwise.c, scalar.c ----
 *
 * Rows of elementwise_list.h: their formulas say what they compute. Beyond them: sign of NaN is 0; round goes to the
 * even neighbour at halves; rounding leaves integers alone. pow (a any, b any): integers by squaring, wrapping, and
 * negative powers of them truncated. remainder (a any, b any): with b's sign; an integer b that is 0 fails. minimum,
 * maximum (a any, b any): a NaN on either side is the result. logical_and, _or, _xor (a any, b any), logical_not,
 * isnan, isfinite (x any) -> bool; what is not 0, NaN included, is true. gelu_grad, silu_grad, gelu_erf_grad (x any,
 * g any) -> g f'(x); tanh_grad, sigmoid_grad, relu_grad the same by the result y. leaky_relu (x any) -> x where x >
 * 0, else slope x. softplus (x any) -> log(1 + e^(beta x)) / beta, x itself where beta x > threshold. */
struct attr_leaky_relu { double slope; };
struct attr_softplus { double beta, threshold; };

/* add_scalar, sub_scalar, mul_scalar, div_scalar, pow_scalar, remainder_scalar (x any) -> x op value, or value op x
 * when is_first. The number is brought to the compute type as it is; where the result is an integer, and in
 * remainder, it is converted to the result's dtype first (integers wrap). compare_scalar (x any) -> bool: x relation
 * value. Beside a float x the number is rounded to x's dtype; an integer x is compared with an integer exactly, and
 * with a float in f32. value.i is the number itself when it is no float (0 or 1 for a bool). */
struct attr_scalar {
    tl_scalar value;
    tl_compare relation; /* compare_scalar */
    bool is_first;
};

/* clamp (x any) -> min(max(x, min), max), either bound or both; NaN stays, a NaN bound gives NaN. */
struct attr_clamp {
    tl_scalar min, max;
    bool has_min, has_max;
};

/* ---- fused ---- */

/* swiglu (gate any, up any) -> silu(gate) * up, with broadcasting, rounded once
 * swiglu_grad (gate any, up any, g any) -> dgate = g up silu'(gate), dup = g silu(gate), both of g's shape and dtype;
 * gate and up are broadcast to it. */

/* add_layer_norm (x dense, residual dense [, weight, bias]) -> sum, y, mean, rstd: sum = x + residual, rounded, and
 * y its norm, as layer_norm has it. add_rms_norm (x, residual [, weight]) -> sum, y, rstd. add_layer_norm_grad (g
 * dense, g_sum dense, sum, mean, rstd [, weight]) -> d [, dweight, dbias] [, sums]: d is the gradient of sum by way of
 * y, rounded, plus g_sum, rounded. add_rms_norm_grad (g, g_sum, sum, rstd [, weight]) -> d [, dweight] [, sums].
 * Attributes (struct attr_norm) and workspaces are those of the norms. With dropout, sum = x + dropout(residual), and
 * behind d comes dropout(d): each as the op dropout with this generator has it, its rounding included. */

/* linear_cross_entropy (x dense (N,C), weight dense (V,C), targets dense (N) i64/i32) -> loss (scalar; f32, f64 for
 * f64) [, dx like x] [, dweight like weight]: the sum of the rows' cross entropies of the logits x weight^T, or
 * their mean over the rows that are not ignored (targets equal to ignore_index), and its gradients. soft_cap c > 0:
 * a logit z becomes c tanh(z / c). With label smoothing e and z weight w, of a row of V logits z with target t:
 *
 *      loss = (1 - e) (lse(z) - z_t) + e (lse(z) - mean z) + w lse(z)^2
 *      dz   = softmax(z) (1 + 2 w lse(z)) - (1 - e) onehot(t) - e / V
 *
 * Logits are f32 (f64), whatever x is; on cuda they have x's dtype. Only `chunk_rows` rows of them exist at a time.
 * Their gradient is rounded to bf16 when x is bf16, so that all three products are products of bf16 matrices. Sums
 * of dweight are f32 (f64) and rounded once. A target outside [0,V) that is not ignored fails. is_gathered: the
 * gradient of all logits is kept, in bf16, and then multiplied at once. Workspace, each part rounded up to 64 bytes:
 * the chunk of logits, one loss per row, then the gathered gradient or, for a dweight narrower than f32, its sums,
 * and what the largest of the products needs (device/cpu/shared/gemm_sizes.h). On cuda a row of logits is as long as
 * a multiple of HEAD_ALIGN: its products need even sizes, and vocabulary sizes are often odd. Where x is narrower
 * than f32 so have the sums, and where V is no such multiple, a copy of weight; see device/cuda/shared/head_rule.h. */
struct attr_linear_cross_entropy {
    int64_t ignore_index, chunk_rows;
    double soft_cap, label_smoothing, z_weight;
    bool is_sum, gives_dx, gives_dweight;
    bool is_gathered;
    bool is_fast, is_timed; /* as in matmul */
};

/* sgd_momentum (p, g [, buffer] [, master], of each of n_parameters [, scale]) changes all of them but g and scale;
 * adagrad (p, g, sum [, master] ... [, scale]) likewise; rmsprop (p, g, square [, mean] [, buffer] [, master] ... [,
 * scale]); adam (p, g, m, v [, max] [, master] ... [, scale]); lion (p, g, m [, master] ... [, scale]); schedule_free
 * (p, g, z, v [, master] ... [, scale]);
 * adam_8bit (p, g, m, v, m_scale, v_scale [, master] ... [, scale]), where m and v are codes, u8, with one f32 scale
 * for DYNAMIC_BLOCK elements in row-major order (spec/dynamic_map.h), all four dense, and p is not f64;
 * muon_momentum (p, g, buffer ... [, scale]), where p is no parameter but what its update is made from;
 * ema (p, g ... [, scale]), where p is an average and g a parameter. All any, of
 * the parameter's shape; parameters of one dtype; states and master f32 (f64 for f64 p). The parameter is read from
 * the master where there is one, and written to both, to p rounded. Formulas: device/cpu/ops/update_template.h.
 * scale: one f32 number that g is multiplied by; when it is not finite, nothing is changed. is_stochastic: p,
 * narrower than f32, is rounded up or down at random: element i (row-major) takes word generator.index + i of (seed,
 * stream); the next parameter's words begin update_words(elements) further. */
struct attr_update {
    int n_parameters;
    bool has_master, has_scale, is_stochastic;
    tl_generator generator;
};
static inline uint64_t update_words(int64_t numel) { return ((uint64_t)numel + 3) / 4 * 4; }
struct attr_sgd_momentum {
    struct attr_update update;
    tl_sgd_options options;
};
struct attr_adagrad {
    struct attr_update update;
    tl_adagrad_options options;
};
struct attr_rmsprop {
    struct attr_update update;
    tl_rmsprop_options options;
};
struct attr_adam {
    struct attr_update update;
    bool has_max;
    tl_adam_options options;
};
struct attr_lion {
    struct attr_update update;
    tl_lion_options options;
};
struct attr_muon_momentum {
    struct attr_update update;
    tl_muon_options options;
};
struct attr_schedule_free {
    struct attr_update update;
    tl_schedule_free_options options;
};
struct attr_ema {
    struct attr_update update;
    double weight;
};

/* adafactor (p, g, row, column [, master] [, scale]), or, below rank 2, (p, g, variance [, master] [, scale]), all
 * dense, changes all of them but g and scale. With G = scale g, R rows and C columns in the last two axes, w =
 * step^beta2_decay, and means over those axes:
 *
 *      row += w (mean over columns of G^2 - row),  column += w (mean over rows of G^2 - column)
 *      v = row column / max(mean of row, eps1);   below rank 2:  variance += w (G^2 - variance),  v = variance
 *      u = G / sqrt(max(v, eps1^2))
 *      p = p (1 - lr weight_decay) - min(lr, 1 / sqrt(step)) max(eps2, rms(p)) u / max(1, rms(u) / d)
 *
 * Sums have the order of spec/adafactor.h's lines and runs, which is also the workspace. If the scale is not finite,
 * nothing is changed; if the factor of u is not finite, p is not. */
struct attr_adafactor {
    struct attr_update update; /* one parameter */
    tl_adafactor_options options;
    double eps1; /* not 0 */
};

/* sum_squares ([start,] x1 any, x2 any, ...) -> a scalar of attr.dtype (f32 or f64), in whose type the arithmetic is
 * done: the sum of all elements squared, on top of start (one number of that dtype). Each x is cut, in row-major
 * order, into chunks of REDUCE_CHUNK; each chunk is summed by itself, into one f64 of the workspace, and these are
 * added in order, in f64. */
struct attr_sum_squares {
    tl_dtype dtype;
    bool has_start;
};

/* clip_scale (norm, one f32 or f64 number) -> an f32 scalar, computed in f64:
 * min(1, max_norm / (norm/divisor + 1e-6)) / divisor; NaN where norm is not finite */
struct attr_clip_scale { double max_norm, divisor; };

#endif

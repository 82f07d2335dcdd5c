/* attention_own.cu: attention and its gradient for a few queries and keys, where tiles would be mostly empty, and for
 * lengths that tiles cannot count; and the row sums that every gradient of ours begins with.
 *
 * A warp has one query (or one key) and walks the other side in order; lane i holds elements i, i+32, ... of a head.
 * Sums over a head are butterflies, sums over the sequence are made by one warp in order: no atomics, no T x S store,
 * the same bits every time.
 *
 *   forward   running maximum m and sum l;  out = sum p v / l,  lse = m + log l
 *   delta     rowsum(g out), one number per query, into the workspace
 *   dK, dV    a warp per key, over the queries that see it, over the heads of its group:
 *                 p = exp(scale q k - lse);  dv += p g;  ds = p (g v - delta);  dk += scale ds q
 *   dQ        a warp per query, over its keys: dq += scale ds k
 *
 * A mask is added to the scores; false is -inf, and what has the score -inf is passed over. The gradient of lse
 * reaches a score as p g_lse, so it is taken from delta. The gradient of an added mask is ds, which the second pass
 * writes.
 *
 * First keys bound the walk: keys before a query's own are not visited, nor are queries that begin after a key.
 *
 * Dropout (DROPS) is a variant of each kernel. A lane draws one Philox block, and the warp shares what it says: of a
 * query's row 256 keys at a time, or of a key's column 32 queries at a time.
 */
#include "device/cuda/ops/attention.cuh"
#include "device/cuda/shared/common.cuh"

enum { WARPS = 8 };

/* A row of D elements over the lanes of a warp; PER = elements per lane, zeros beyond D. */
template <class C, int PER> struct head_row { C x[PER]; };

template <class T, class C, int PER>
__device__ inline head_row<C, PER> row_load(const attention_rows &rows, int64_t b, int64_t t, int64_t h, int64_t D) {
    const T *from = (const T *)rows.data + b * rows.stride_b + t * rows.stride_t + h * rows.stride_h;
    head_row<C, PER> row;
#pragma unroll
    for (int j = 0; j < PER; j++) {
        const int64_t d = threadIdx.x % 32 + 32 * j;
        row.x[j] = d < D ? value_of<C>(from[d]) : C(0);
    }
    return row;
}

template <class T, class C, int PER>
__device__ inline void row_store(const attention_rows &rows, int64_t b, int64_t t, int64_t h, int64_t D,
                                 const head_row<C, PER> &row, C factor) {
    T *to = (T *)rows.data + b * rows.stride_b + t * rows.stride_t + h * rows.stride_h;
#pragma unroll
    for (int j = 0; j < PER; j++) {
        const int64_t d = threadIdx.x % 32 + 32 * j;
        if (d < D) to[d] = conversion<T>::from(row.x[j] * factor);
    }
}

template <class C, int PER> __device__ inline C row_dot(const head_row<C, PER> &a, const head_row<C, PER> &b) {
    C part = 0;
#pragma unroll
    for (int j = 0; j < PER; j++) part = fma_of(a.x[j], b.x[j], part);
    return warp_reduce(part, sum_of());
}

/* sum += factor * row */
template <class C, int PER>
__device__ inline void row_add(head_row<C, PER> &sum, C factor, const head_row<C, PER> &row) {
#pragma unroll
    for (int j = 0; j < PER; j++) sum.x[j] = fma_of(factor, row.x[j], sum.x[j]);
}

template <class C, int PER> __device__ inline head_row<C, PER> row_zero() {
    head_row<C, PER> row;
#pragma unroll
    for (int j = 0; j < PER; j++) row.x[j] = 0;
    return row;
}

/* What dropout keeps, for the 32 lanes of a warp. Everything here is the same in all lanes but `bits`. */
struct dropout_mask {
    uint32_t threshold;
    unsigned bits;
    double growth; /* of what is kept */
};

__device__ inline dropout_mask dropout_begin(const attention_call &a) {
    return {rng_mask_threshold(a.dropout), 0, 1 / (1 - a.dropout)};
}

/* Whether query `row` = (b H + h) T + t keeps key s; asked for s in rising order, the first time with is_first. */
__device__ inline bool dropout_keeps_key(dropout_mask &m, const attention_call &a, int64_t row, int64_t s,
                                         bool is_first) {
    if (is_first || s % 256 == 0) {
        const uint64_t at = dropout_row_at(a.generator, row, a.S) + (uint64_t)(s / 256 * 256 + threadIdx.x % 32 * 8);
        const rng_block block = rng_mask_block_at(dropout_key(a.generator), at / 8);
        m.bits = 0;
#pragma unroll
        for (int j = 0; j < 8; j++) m.bits |= (unsigned)rng_mask_keeps(rng_mask_draw(block, j), m.threshold) << j;
    }
    return __shfl_sync(0xffffffffu, m.bits, (int)(s % 256 / 8)) >> s % 8 & 1;
}

/* The same of query t of a head whose rows begin at `first_row`; asked for t in rising order. */
__device__ inline bool dropout_keeps_query(dropout_mask &m, const attention_call &a, int64_t first_row, int64_t t,
                                           int64_t s, bool is_first) {
    if (is_first || t % 32 == 0) {
        const uint64_t at = dropout_row_at(a.generator, first_row + t / 32 * 32 + threadIdx.x % 32, a.S) + (uint64_t)s;
        const rng_block block = rng_mask_block_at(dropout_key(a.generator), at / 8);
        m.bits = __ballot_sync(0xffffffffu, rng_mask_keeps(mask_draw_of(block, (int)(s % 8)), m.threshold));
    }
    return m.bits >> t % 32 & 1;
}

/* Work item of this warp, and the number of items all warps step by. */
__device__ inline int64_t warp_first() { return blockIdx.x * (int64_t)WARPS + threadIdx.x / 32; }
__device__ inline int64_t warp_step() { return (int64_t)gridDim.x * WARPS; }

template <class T, int PER, bool DROPS>
__global__ void __launch_bounds__(32 * WARPS) attention_forward(attention_call a) {
    typedef typename compute_type<T>::type C;
    dropout_mask mask = dropout_begin(a);
    for (int64_t item = warp_first(); item < a.B * a.H * a.T; item += warp_step()) {
        const int64_t t = item % a.T, h = item / a.T % a.H, b = item / a.T / a.H, h_kv = h / (a.H / a.H_kv);
        const head_row<C, PER> q = row_load<T, C, PER>(a.q, b, t, h, a.D);
        head_row<C, PER> sum = row_zero<C, PER>();
        C top = lowest<C>(), weight_sum = 0;
        const int64_t first = first_key(a, b, t), n_keys = visible_keys(a, t);
        for (int64_t s = first; s < n_keys; s++) {
            const bool keeps = !DROPS || dropout_keeps_key(mask, a, item, s, s == first);
            const C score = score_of(a, b, h, t, s, row_dot(q, row_load<T, C, PER>(a.k, b, s, h_kv, a.D)));
            if (score == lowest<C>()) continue; /* the same in all lanes */
            const head_row<C, PER> v = row_load<T, C, PER>(a.v, b, s, h_kv, a.D);
            if (score > top) {
                const C shrink = exp_of(top - score);
                top = score;
                weight_sum *= shrink;
#pragma unroll
                for (int j = 0; j < PER; j++) sum.x[j] *= shrink;
            }
            const C weight = exp_of(score - top);
            weight_sum += weight;
            if (keeps) row_add(sum, weight, v);
        }
        const bool sees_nothing = weight_sum == C(0);
        row_store<T, C, PER>(a.out, b, t, h, a.D, sum,
                             sees_nothing ? C(0) : (DROPS ? C(mask.growth) : C(1)) / weight_sum);
        if (threadIdx.x % 32 == 0)
            ((C *)a.lse)[(b * a.H + h) * a.T + t] = sees_nothing ? lowest<C>() : top + log_of(weight_sum);
    }
}

template <class T, int PER>
__global__ void __launch_bounds__(32 * WARPS) attention_delta(attention_call a, typename compute_type<T>::type *delta) {
    typedef typename compute_type<T>::type C;
    for (int64_t item = warp_first(); item < a.B * a.H * a.T; item += warp_step()) {
        const int64_t t = item % a.T, h = item / a.T % a.H, b = item / a.T / a.H;
        const C dot = row_dot(row_load<T, C, PER>(a.g, b, t, h, a.D), row_load<T, C, PER>(a.out, b, t, h, a.D));
        if (threadIdx.x % 32 == 0) delta[item] = a.g_lse ? dot - ((const C *)a.g_lse)[item] : dot;
    }
}

template <class T, int PER, bool DROPS>
__global__ void __launch_bounds__(32 * WARPS)
    attention_keys(attention_call a, const typename compute_type<T>::type *delta) {
    typedef typename compute_type<T>::type C;
    dropout_mask mask = dropout_begin(a);
    const int64_t group = a.H / a.H_kv;
    for (int64_t item = warp_first(); item < a.B * a.H_kv * a.S; item += warp_step()) {
        const int64_t s = item % a.S, h_kv = item / a.S % a.H_kv, b = item / a.S / a.H_kv;
        const head_row<C, PER> k = row_load<T, C, PER>(a.k, b, s, h_kv, a.D),
                               v = row_load<T, C, PER>(a.v, b, s, h_kv, a.D);
        head_row<C, PER> dk = row_zero<C, PER>(), dv = row_zero<C, PER>();
        const int64_t first = first_query(a, s), last = end_query(a, b, s);
        for (int64_t h = h_kv * group; h < (h_kv + 1) * group; h++)
            for (int64_t t = first; t < last; t++) {
                const int64_t row = (b * a.H + h) * a.T + t;
                const bool keeps = !DROPS || dropout_keeps_query(mask, a, row - t, t, s, t == first);
                const head_row<C, PER> q = row_load<T, C, PER>(a.q, b, t, h, a.D);
                const C dot = row_dot(q, k), score = score_of(a, b, h, t, s, dot);
                if (score == lowest<C>()) continue;
                const head_row<C, PER> g = row_load<T, C, PER>(a.g, b, t, h, a.D);
                const C p = exp_of(score - ((const C *)a.lse)[row]);
                if (keeps) row_add(dv, p, g);
                C dp = row_dot(g, v);
                if (DROPS) dp = keeps ? C(mask.growth) * dp : C(0);
                row_add(dk, p * (dp - delta[row]) * cap_slope(a, dot), q);
            }
        row_store<T, C, PER>(a.dk, b, s, h_kv, a.D, dk, C(a.scale));
        row_store<T, C, PER>(a.dv, b, s, h_kv, a.D, dv, DROPS ? C(mask.growth) : C(1));
    }
}

template <class T, int PER, bool DROPS>
__global__ void __launch_bounds__(32 * WARPS)
    attention_queries(attention_call a, const typename compute_type<T>::type *delta) {
    typedef typename compute_type<T>::type C;
    dropout_mask mask = dropout_begin(a);
    for (int64_t item = warp_first(); item < a.B * a.H * a.T; item += warp_step()) {
        const int64_t t = item % a.T, h = item / a.T % a.H, b = item / a.T / a.H, h_kv = h / (a.H / a.H_kv);
        const head_row<C, PER> q = row_load<T, C, PER>(a.q, b, t, h, a.D), g = row_load<T, C, PER>(a.g, b, t, h, a.D);
        const C lse = ((const C *)a.lse)[item], own_delta = delta[item];
        head_row<C, PER> dq = row_zero<C, PER>();
        const int64_t first = first_key(a, b, t), n_keys = visible_keys(a, t);
        for (int64_t s = first; s < n_keys; s++) {
            const bool keeps = !DROPS || dropout_keeps_key(mask, a, item, s, s == first);
            const head_row<C, PER> k = row_load<T, C, PER>(a.k, b, s, h_kv, a.D);
            const C dot = row_dot(q, k), score = score_of(a, b, h, t, s, dot);
            C ds = 0;
            if (score != lowest<C>()) {
                C dp = row_dot(g, row_load<T, C, PER>(a.v, b, s, h_kv, a.D));
                if (DROPS) dp = keeps ? C(mask.growth) * dp : C(0);
                ds = exp_of(score - lse) * (dp - own_delta);
                row_add(dq, ds * cap_slope(a, dot), k);
            }
            if (a.dmask && threadIdx.x % 32 == 0) store_as<C>(a.dmask, item * a.S + s, a.mask_dtype, ds);
        }
        for (int64_t s = threadIdx.x % 32; a.dmask && s < a.S; s += 32)
            if (s < first || s >= n_keys) store_as<C>(a.dmask, item * a.S + s, a.mask_dtype, C(0));
        row_store<T, C, PER>(a.dq, b, t, h, a.D, dq, C(a.scale));
    }
}

/* ---- Launching ---------------------------------------------------------------------------------------- */

static unsigned warps_for(int64_t items) {
    const int64_t blocks = (items + WARPS - 1) / WARPS;
    return (unsigned)(blocks < INT32_MAX ? (blocks > 0 ? blocks : 1) : INT32_MAX);
}

template <class T, int PER> static void forward_launch(const attention_call &a, void *, cudaStream_t stream) {
    const unsigned queries = warps_for(a.B * a.H * a.T);
    if (a.dropout > 0) attention_forward<T, PER, true><<<queries, 32 * WARPS, 0, stream>>>(a);
    else attention_forward<T, PER, false><<<queries, 32 * WARPS, 0, stream>>>(a);
}

template <class T, int PER> static void delta_launch(const attention_call &a, void *delta, cudaStream_t stream) {
    typedef typename compute_type<T>::type C;
    attention_delta<T, PER><<<warps_for(a.B * a.H * a.T), 32 * WARPS, 0, stream>>>(a, (C *)delta);
}

template <class T, int PER> static void backward_launch(const attention_call &a, void *workspace, cudaStream_t stream) {
    typedef typename compute_type<T>::type C;
    const C *delta = (const C *)workspace;
    const unsigned queries = warps_for(a.B * a.H * a.T), keys = warps_for(a.B * a.H_kv * a.S);
    delta_launch<T, PER>(a, workspace, stream);
    if (a.dropout > 0) {
        attention_keys<T, PER, true><<<keys, 32 * WARPS, 0, stream>>>(a, delta);
        attention_queries<T, PER, true><<<queries, 32 * WARPS, 0, stream>>>(a, delta);
    } else {
        attention_keys<T, PER, false><<<keys, 32 * WARPS, 0, stream>>>(a, delta);
        attention_queries<T, PER, false><<<queries, 32 * WARPS, 0, stream>>>(a, delta);
    }
}

enum pass { FORWARD, DELTA, BACKWARD };

template <class T, int PER, enum pass PASS>
static void pass_launch(const attention_call &a, void *workspace, cudaStream_t stream) {
    if (PASS == FORWARD) forward_launch<T, PER>(a, workspace, stream);
    else if (PASS == DELTA) delta_launch<T, PER>(a, workspace, stream);
    else backward_launch<T, PER>(a, workspace, stream);
}

/* By elements per lane. */
template <class T, enum pass PASS> static void launch(const attention_call &a, void *workspace, cudaStream_t stream) {
    if (a.D <= 32) pass_launch<T, 1, PASS>(a, workspace, stream);
    else if (a.D <= 64) pass_launch<T, 2, PASS>(a, workspace, stream);
    else if (a.D <= 128) pass_launch<T, 4, PASS>(a, workspace, stream);
    else if (a.D <= 256) pass_launch<T, 8, PASS>(a, workspace, stream);
    else pass_launch<T, 32, PASS>(a, workspace, stream);
}

template <enum pass PASS> static bool dispatch(const tl_kernel_args *args, const attention_call *call) {
    if (call->D > ATTENTION_WIDEST_HEAD) {
        snprintf(args->error, CUDA_ERROR_BYTES, "%s: heads of %lld are wider than %d", args->op, (long long)call->D,
                 (int)ATTENTION_WIDEST_HEAD);
        return false;
    }
    switch (call->dtype) {
    case TL_F64:
        launch<double, PASS>(*call, args->workspace, stream_of(args));
        return true;
    case TL_F32:
        launch<float, PASS>(*call, args->workspace, stream_of(args));
        return true;
    case TL_BF16:
        launch<bf16, PASS>(*call, args->workspace, stream_of(args));
        return true;
    case TL_F16:
        launch<f16, PASS>(*call, args->workspace, stream_of(args));
        return true;
    default:
        return cuda_refuse_dtype(args, call->dtype);
    }
}

__global__ void attention_lengths(int32_t *queries, int32_t *keys, int64_t n, int32_t T, int32_t S) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        queries[i] = T;
        keys[i] = S;
    }
}

extern "C" {

void attention_lengths_write(const tl_kernel_args *args, int32_t *queries, int32_t *keys, int64_t n, int64_t T,
                             int64_t S) {
    const int64_t blocks = (n + 255) / 256;
    attention_lengths<<<(unsigned)(blocks < 64 ? blocks : 64), 256, 0, stream_of(args)>>>(queries, keys, n, (int32_t)T,
                                                                                          (int32_t)S);
}

size_t attention_own_workspace(const attention_call *call) {
    return (size_t)(call->B * call->H * call->T) * (call->dtype == TL_F64 ? sizeof(double) : sizeof(float));
}

bool attention_own_forward(const tl_kernel_args *args, const attention_call *call) {
    return dispatch<FORWARD>(args, call);
}
bool attention_own_delta(const tl_kernel_args *args, const attention_call *call) { return dispatch<DELTA>(args, call); }
bool attention_own_backward(const tl_kernel_args *args, const attention_call *call) {
    return dispatch<BACKWARD>(args, call);
}

} /* extern "C" */

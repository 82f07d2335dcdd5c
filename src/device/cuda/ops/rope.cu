/* rope.cu: rotary positions. A block turns the heads of one t in one batch entry after another. Its angles are
 * computed in f64, once where the position follows from t, and otherwise for every entry. Heads are read and written in
 * packs where they are aligned. */
#include "device/cuda/shared/common.cuh"
#include "spec/rope.h"

struct rope_shape {
    int64_t B, T, H, D, half;             /* 2 half of the D channels turn */
    int64_t stride_b, stride_t, stride_h; /* of x; its last axis is dense */
    const void *positions;                /* (B,T); NULL: first_position + t */
    tl_dtype positions_dtype;
    int64_t positions_stride[2];
};

__device__ inline int64_t position_at(const rope_shape &s, const struct attr_rope &attr, int64_t b, int64_t t) {
    if (!s.positions) return attr.first_position + t;
    const int64_t at = b * s.positions_stride[0] + t * s.positions_stride[1];
    return s.positions_dtype == TL_I64 ? ((const int64_t *)s.positions)[at] : ((const int32_t *)s.positions)[at];
}

/* cos and sin of position rope_frequency(i), the cosines first. */
template <class C>
__device__ inline void angles_put(C *table, int64_t position, int half, const struct attr_rope &attr) {
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        const double angle = (double)position * rope_frequency(&attr, i, half);
        table[i] = (C)(rope_magnitude(&attr) * cos(angle));
        table[half + i] = (C)(rope_magnitude(&attr) * (attr.inverse ? -sin(angle) : sin(angle)));
    }
}

/* out[i] = x[i] cos a - x[i+half] sin a;  out[i+half] = x[i+half] cos a + x[i] sin a, for one head's unit i of U. */
template <int U, class T, class C>
__device__ inline void head_turn(const T *from, T *to, const C *table, int half, int i) {
    const unit<T, U> x0 = unit_load<U>(from, i), x1 = unit_load<U>(from + half, i);
    const unit<C, U> cosine = unit_load<U>(table, i), sine = unit_load<U>(table + half, i);
    unit<T, U> y0, y1;
    for (int j = 0; j < U; j++) {
        const C a = value_of<C>(x0.v[j]), b = value_of<C>(x1.v[j]);
        y0.v[j] = conversion<T>::from(a * cosine.v[j] - b * sine.v[j]);
        y1.v[j] = conversion<T>::from(b * cosine.v[j] + a * sine.v[j]);
    }
    unit_store<U>(to, i, y0);
    unit_store<U>(to + half, i, y1);
}

template <class T, int U> __global__ void rope_rows(const T *x, T *out, rope_shape s, struct attr_rope attr) {
    typedef typename compute_type<T>::type C;
    extern __shared__ double2 shared[]; /* aligned for packs */
    C *const table = (C *)shared;
    const int half = (int)s.half, n_units = half / U;
    for (int64_t t = blockIdx.x; t < s.T; t += gridDim.x) {
        for (int64_t b = blockIdx.y; b < s.B; b += gridDim.y) {
            if (s.positions || b == blockIdx.y) {
                __syncthreads(); /* the table before has been read */
                angles_put(table, position_at(s, attr, b, t), half, attr);
                __syncthreads();
            }
            const T *from = x + b * s.stride_b + t * s.stride_t;
            T *to = out + (b * s.T + t) * s.H * s.D;
            for (int64_t j = threadIdx.x; j < s.H * n_units; j += blockDim.x) {
                const int64_t h = j / n_units;
                head_turn<U>(from + h * s.stride_h, to + h * s.D, table, half, (int)(j - h * n_units));
            }
            const int64_t rest = s.D - 2 * half; /* does not turn */
            for (int64_t j = threadIdx.x; j < s.H * rest; j += blockDim.x) {
                const int64_t h = j / rest, i = 2 * half + j - h * rest;
                to[h * s.D + i] = from[h * s.stride_h + i];
            }
        }
    }
}

/* Enough blocks to fill the card, each with as many entries as that leaves. */
enum { ROPE_BLOCKS = 4096 };

template <class T, int U> static void rope_start(const tl_kernel_args *args, const rope_shape &s) {
    typedef typename compute_type<T>::type C;
    const struct attr_rope *attr = (const struct attr_rope *)args->attr;
    const int64_t across = min(s.B, (ROPE_BLOCKS + s.T - 1) / s.T);
    rope_rows<T, U>
        <<<dim3(capped(s.T), (unsigned)across), threads_for_row(s.H * s.half * 4 / U), 2 * (size_t)s.half * sizeof(C),
           stream_of(args)>>>((const T *)args->in[0].data, (T *)args->out[0].data, s, *attr);
}

template <class T> static bool rope_launch(const tl_kernel_args *args, const rope_shape &s) {
    const void *const addresses[] = {args->in[0].data, args->out[0].data};
    const bool packs = rows_are_packs(s.half, 2, addresses) && (s.stride_b | s.stride_t | s.stride_h | s.D) % PACK == 0;
    if (packs) rope_start<T, PACK>(args, s);
    else rope_start<T, 1>(args, s);
    return true;
}

/* ---- rope_put ------------------------------------------------------------------------------------------- */

enum { Q, K, V, CACHE, PLACE }; /* inputs */

/* Rows of heads, by strides in elements. */
struct put_rows {
    void *data;
    int64_t stride_b, stride_t, stride_h;
};
struct put_shape {
    rope_shape q; /* and the positions */
    int64_t H_kv, S;
    put_rows k, v, keys, values;
    struct cuda_fault *fault;
};
template <class T> __device__ inline T *put_row(const put_rows &r, int64_t b, int64_t t, int64_t h) {
    return (T *)r.data + b * r.stride_b + t * r.stride_t + h * r.stride_h;
}

/* A block for each token. Positions that no kernel in front writes (knows_place) are read before those have ended, and
 * so are the angles computed, which takes longer than the rest. */
template <class T, int U>
__global__ void rope_put_rows(const T *q, T *out, put_shape s, struct attr_rope attr, bool knows_place) {
    typedef typename compute_type<T>::type C;
    extern __shared__ double2 shared[]; /* aligned for packs */
    C *const table = (C *)shared;
    const int half = (int)s.q.half, n_units = half / U, D = (int)s.q.D, H = (int)s.q.H, H_kv = (int)s.H_kv;
    const unsigned n_tokens = (unsigned)s.q.T, row = blockIdx.x / n_tokens;
    next_begin();
    if (!knows_place) front_wait();
    const int64_t b = row, t = blockIdx.x - row * n_tokens, place = position_at(s.q, attr, b, t);
    const bool is_good = place >= 0 && place < s.S;
    if (!is_good && threadIdx.x == 0) fault_raise(s.fault, FAULT_SCATTER, place, s.S);
    angles_put(table, place, half, attr);
    __syncthreads();
    if (knows_place) front_wait();
    const int n_turns = (H + H_kv) * n_units, n_packs = D / U; /* units of q and k; of a value */
    for (int j = (int)threadIdx.x; j < n_turns + H_kv * n_packs; j += (int)blockDim.x) {
        const int n = j < n_turns ? n_units : n_packs, at = j < n_turns ? j : j - n_turns, h = at / n, i = at - h * n;
        if (j >= n_turns) {
            if (is_good) unit_store<U>(put_row<T>(s.values, b, place, h), i, unit_load<U>(put_row<T>(s.v, b, t, h), i));
        } else if (h < H) {
            head_turn<U>(q + b * s.q.stride_b + t * s.q.stride_t + h * s.q.stride_h,
                         out + ((b * s.q.T + t) * H + h) * D, table, half, i);
        } else if (is_good) {
            head_turn<U>(put_row<T>(s.k, b, t, h - H), put_row<T>(s.keys, b, place, h - H), table, half, i);
        }
    }
    const int rest = D - 2 * half; /* does not turn */
    for (int j = (int)threadIdx.x; j < (H + H_kv) * rest; j += (int)blockDim.x) {
        const int h = j / rest, i = 2 * half + j - h * rest;
        if (h < H)
            out[((b * s.q.T + t) * H + h) * D + i] = q[b * s.q.stride_b + t * s.q.stride_t + h * s.q.stride_h + i];
        else if (is_good) put_row<T>(s.keys, b, place, h - H)[i] = put_row<T>(s.k, b, t, h - H)[i];
    }
}

static put_rows put_rows_of(const tl_operand *x) {
    const put_rows r = {x->data, x->stride[0], x->stride[1], x->stride[2]};
    return r;
}
/* Keys (0) or values (1) of a cache (2,B,H,S,D). */
static put_rows cache_rows_of(const tl_operand *x, int which) {
    const put_rows r = {(char *)x->data + which * x->stride[0] * dtype_bytes(x->dtype), x->stride[1], x->stride[3],
                        x->stride[2]};
    return r;
}
static bool put_is_packed(const put_rows &r) {
    return (uintptr_t)r.data % 16 == 0 && (r.stride_b | r.stride_t | r.stride_h) % PACK == 0;
}

template <class T, int U> static void put_start(const tl_kernel_args *args, const put_shape &s) {
    typedef typename compute_type<T>::type C;
    static const bool is_early = waits_for_front(rope_put_rows<T, U>);
    const tl_operand *place = &args->in[PLACE];
    const int64_t last = (s.q.B - 1) * s.q.positions_stride[0] + (s.q.T - 1) * s.q.positions_stride[1];
    const bool knows_place = is_early && s.q.positions_stride[0] >= 0 && s.q.positions_stride[1] >= 0 &&
                             early_may_fetch(args, place->data, (size_t)((last + 1) * dtype_bytes(place->dtype)));
    const int threads = ((s.q.H + s.H_kv) * s.q.half + s.H_kv * s.q.D) / U > 128 ? 256 : 128;
    launch_early(args, rope_put_rows<T, U>, is_early, (unsigned)(s.q.B * s.q.T), threads,
                 2 * (size_t)s.q.half * sizeof(C), (const T *)args->in[0].data, (T *)args->out[0].data, s,
                 *(const struct attr_rope *)args->attr, knows_place);
    early_writes(args, &args->in[CACHE]);
}

template <class T> static bool put_launch(const tl_kernel_args *args, const put_shape &s) {
    const put_rows q = put_rows_of(&args->in[0]);
    const bool packs = s.q.half % PACK == 0 && s.q.D % PACK == 0 && (uintptr_t)args->out[0].data % 16 == 0 &&
                       put_is_packed(q) && put_is_packed(s.k) && put_is_packed(s.v) && put_is_packed(s.keys) &&
                       put_is_packed(s.values);
    if (packs) put_start<T, PACK>(args, s);
    else put_start<T, 1>(args, s);
    return true;
}

static bool rope_shape_of(const tl_kernel_args *args, const tl_operand *positions, rope_shape *of) {
    const tl_operand *x = &args->in[0];
    rope_shape s = {};
    s.B = x->shape[0];
    s.T = x->shape[1];
    s.H = x->shape[2];
    s.D = x->shape[3];
    s.half = rope_half((const struct attr_rope *)args->attr, s.D);
    s.stride_b = x->stride[0];
    s.stride_t = x->stride[1];
    s.stride_h = x->stride[2];
    if (positions) {
        s.positions = positions->data;
        s.positions_dtype = positions->dtype;
        for (int i = 0; i < 2; i++) s.positions_stride[i] = positions->stride[i];
    }
    *of = s;
    if (s.half <= 2048) return true;
    snprintf(args->error, CUDA_ERROR_BYTES, "rope: heads of %lld are too large", (long long)(2 * s.half));
    return false;
}

extern "C" bool cuda_rope_put(const tl_kernel_args *args) {
    put_shape s = {};
    if (!rope_shape_of(args, &args->in[PLACE], &s.q)) return false;
    s.H_kv = args->in[K].shape[2];
    s.S = args->in[CACHE].shape[3];
    s.k = put_rows_of(&args->in[K]);
    s.v = put_rows_of(&args->in[V]);
    s.keys = cache_rows_of(&args->in[CACHE], 0);
    s.values = cache_rows_of(&args->in[CACHE], 1);
    s.fault = fault_of(args);
    if (s.q.B * s.q.T == 0 || s.q.D == 0) return true;
    if (s.q.B * s.q.T > INT32_MAX) return snprintf(args->error, CUDA_ERROR_BYTES, "rope_put: too many rows"), false;
    switch (args->in[Q].dtype) {
    case TL_F64:
        return put_launch<double>(args, s);
    case TL_F32:
        return put_launch<float>(args, s);
    case TL_BF16:
        return put_launch<bf16>(args, s);
    case TL_F16:
        return put_launch<f16>(args, s);
    default:
        return cuda_refuse_dtype(args, args->in[Q].dtype);
    }
}

/* ---- rope ----------------------------------------------------------------------------------------------- */

extern "C" bool cuda_rope(const tl_kernel_args *args) {
    const tl_operand *x = &args->in[0];
    const bool has_positions = ((const struct attr_rope *)args->attr)->has_positions;
    rope_shape s;
    if (!rope_shape_of(args, has_positions ? &args->in[1] : nullptr, &s)) return false;
    if (operand_numel(x) == 0) return true;
    if (args->out[0].dtype != x->dtype) return cuda_refuse_dtype(args, args->out[0].dtype);
    switch (x->dtype) {
    case TL_F64:
        return rope_launch<double>(args, s);
    case TL_F32:
        return rope_launch<float>(args, s);
    case TL_BF16:
        return rope_launch<bf16>(args, s);
    case TL_F16:
        return rope_launch<f16>(args, s);
    default:
        return cuda_refuse_dtype(args, x->dtype);
    }
}

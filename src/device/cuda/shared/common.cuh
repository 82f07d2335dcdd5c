/* common.cuh: shared by the .cu files: dtypes, geometry of strided operands, reductions inside a block. */
#ifndef CUDA_COMMON_CUH
#define CUDA_COMMON_CUH

#include "device/cuda/shared/kernels.h"
#include "device/cuda/shared/state.h"
#include "spec/attr.h"
#include "tensor/convert_round.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <stdio.h>

typedef __nv_bfloat16 bf16;
typedef __half f16;

/* ---- Conversions: every one rounds once, to nearest even ---------------------------------------------- */

/* to<T>(x) for every pair of element types and compute types. 16-bit floats from f64 and i64 go through the
 * conversion from double, which rounds once; through float they would round twice. */
template <class T> struct conversion {
    static __device__ T from(double x) { return (T)x; }
    static __device__ T from(float x) { return (T)x; }
    static __device__ T from(int64_t x) { return (T)x; }
};
template <> struct conversion<bf16> {
    static __device__ bf16 from(double x) { return __double2bfloat16(x); }
    static __device__ bf16 from(float x) { return __float2bfloat16_rn(x); }
    static __device__ bf16 from(int64_t x) { return __double2bfloat16(i64_to_f64_odd(x)); }
};
template <> struct conversion<f16> {
    static __device__ f16 from(double x) { return __double2half(x); }
    static __device__ f16 from(float x) { return __float2half_rn(x); }
    static __device__ f16 from(int64_t x) { return __double2half(i64_to_f64_odd(x)); }
};
/* Floats become integers as in tensor/convert.h: truncated, clamped to the range, NaN is 0. Integers wrap. */
template <class T, int64_t LOW, int64_t HIGH> struct integer_conversion {
    static __device__ T from(double x) { return (T)clamp_f64(x, (double)LOW, (double)HIGH); }
    static __device__ T from(float x) { return from((double)x); }
    static __device__ T from(int64_t x) { return (T)x; }
};
template <> struct conversion<int32_t> : integer_conversion<int32_t, INT32_MIN, INT32_MAX> {};
template <> struct conversion<int16_t> : integer_conversion<int16_t, INT16_MIN, INT16_MAX> {};
template <> struct conversion<uint16_t> : integer_conversion<uint16_t, 0, UINT16_MAX> {};
template <> struct conversion<int8_t> : integer_conversion<int8_t, INT8_MIN, INT8_MAX> {};
template <> struct conversion<uint8_t> : integer_conversion<uint8_t, 0, UINT8_MAX> {};
template <> struct conversion<int64_t> {
    static __device__ int64_t from(double x) { return truncate_i64(x); }
    static __device__ int64_t from(float x) { return truncate_i64((double)x); }
    static __device__ int64_t from(int64_t x) { return x; }
};
template <> struct conversion<bool> {
    static __device__ bool from(double x) { return x != 0; }
    static __device__ bool from(float x) { return x != 0; }
    static __device__ bool from(int64_t x) { return x != 0; }
};

/* The reverse: an element as the number it is. */
template <class C, class T> __device__ inline C value_of(T x) { return (C)x; }
template <> __device__ inline float value_of<float, bf16>(bf16 x) { return __bfloat162float(x); }
template <> __device__ inline double value_of<double, bf16>(bf16 x) { return (double)__bfloat162float(x); }
template <> __device__ inline int64_t value_of<int64_t, bf16>(bf16 x) { return (int64_t)__bfloat162float(x); }
template <> __device__ inline float value_of<float, f16>(f16 x) { return __half2float(x); }
template <> __device__ inline double value_of<double, f16>(f16 x) { return (double)__half2float(x); }
template <> __device__ inline int64_t value_of<int64_t, f16>(f16 x) { return (int64_t)__half2float(x); }

/* Floats of 8 and 4 bits are emulated, by the cpu's own functions. Out of line: every kernel that looks dtypes up
 * would carry them. F is float or double. */
template <class F> __device__ __noinline__ F tiny_load(const void *data, int64_t i, tl_dtype dtype) {
    const uint8_t *code = (const uint8_t *)data;
    switch (dtype) {
    case TL_F8E4M3:
        return (F)decode(f8e4m3_format(), code[i]);
    case TL_F8E5M2:
        return (F)decode(f8e5m2_format(), code[i]);
    case TL_F8E8M0:
        return (F)f8e8m0_to_f32(code[i]);
    default:
        return (F)decode(f4e2m1_format(), code[i / 2] >> 4 * (i % 2) & 0xF);
    }
}
template <class F>
__device__ __noinline__ uint8_t tiny_code(tl_dtype dtype, F x, enum convert_mode mode, uint32_t word) {
    switch (dtype) {
    case TL_F8E4M3:
        return (uint8_t)encode(f8e4m3_format(), (double)x, mode, word);
    case TL_F8E5M2:
        return (uint8_t)encode(f8e5m2_format(), (double)x, mode, word);
    case TL_F8E8M0:
        return f8e8m0_encode((double)x, mode, word);
    default:
        return (uint8_t)encode(f4e2m1_format(), (double)x, mode, word);
    }
}
/* A number of any compute type, as the encoder takes it. */
__device__ inline double tiny_source(double x) { return x; }
__device__ inline double tiny_source(float x) { return (double)x; }
__device__ inline double tiny_source(int64_t x) { return i64_to_f64_odd(x); }

/* An element whose type is known only at run time; the branch is the same for all threads. */
template <class C> __device__ inline C load_as(const void *data, int64_t i, tl_dtype dtype) {
    switch (dtype) {
    case TL_F64:
        return value_of<C>(((const double *)data)[i]);
    case TL_F32:
        return value_of<C>(((const float *)data)[i]);
    case TL_F16:
        return value_of<C>(((const f16 *)data)[i]);
    case TL_BF16:
        return value_of<C>(((const bf16 *)data)[i]);
    case TL_I64:
        return value_of<C>(((const int64_t *)data)[i]);
    case TL_I32:
        return value_of<C>(((const int32_t *)data)[i]);
    case TL_I16:
        return value_of<C>(((const int16_t *)data)[i]);
    case TL_U16:
        return value_of<C>(((const uint16_t *)data)[i]);
    case TL_I8:
        return value_of<C>(((const int8_t *)data)[i]);
    case TL_U8:
        return value_of<C>(((const uint8_t *)data)[i]);
    case TL_BOOL:
        return (C)(((const uint8_t *)data)[i] != 0);
    default:
        return (C)tiny_load<double>(data, i, dtype);
    }
}

template <class C> __device__ inline void store_as(void *data, int64_t i, tl_dtype dtype, C x) {
    switch (dtype) {
    case TL_F64:
        ((double *)data)[i] = conversion<double>::from(x);
        break;
    case TL_F32:
        ((float *)data)[i] = conversion<float>::from(x);
        break;
    case TL_F16:
        ((f16 *)data)[i] = conversion<f16>::from(x);
        break;
    case TL_BF16:
        ((bf16 *)data)[i] = conversion<bf16>::from(x);
        break;
    case TL_I64:
        ((int64_t *)data)[i] = conversion<int64_t>::from(x);
        break;
    case TL_I32:
        ((int32_t *)data)[i] = conversion<int32_t>::from(x);
        break;
    case TL_I16:
        ((int16_t *)data)[i] = conversion<int16_t>::from(x);
        break;
    case TL_U16:
        ((uint16_t *)data)[i] = conversion<uint16_t>::from(x);
        break;
    case TL_I8:
        ((int8_t *)data)[i] = conversion<int8_t>::from(x);
        break;
    case TL_U8:
        ((uint8_t *)data)[i] = conversion<uint8_t>::from(x);
        break;
    case TL_BOOL:
        ((bool *)data)[i] = conversion<bool>::from(x);
        break;
    default: /* f4 shares bytes, and has separate writers */
        if (dtype != TL_F4E2M1) ((uint8_t *)data)[i] = tiny_code<double>(dtype, tiny_source(x), CONVERT_NEAREST, 0);
        break;
    }
}

static inline bool dtype_is_float(tl_dtype dtype) { return dtype < TL_I64; }

/* Two f4 share a byte: only the kernels that move and convert them know how. */
static inline bool dtype_is_known(tl_dtype dtype) { return dtype != TL_F4E2M1; }

/* Fails, naming the dtype, if a call has an operand of a dtype without kernels. */
static inline bool operands_known(const tl_kernel_args *args) {
    for (int i = 0; i < args->n_in; i++)
        if (!dtype_is_known(args->in[i].dtype)) return cuda_refuse_dtype(args, args->in[i].dtype);
    for (int i = 0; i < args->n_out; i++)
        if (!dtype_is_known(args->out[i].dtype)) return cuda_refuse_dtype(args, args->out[i].dtype);
    return true;
}

/* The type arithmetic is done in, by the output's dtype. */
enum compute { COMPUTE_F64, COMPUTE_F32, COMPUTE_I64 };
static inline enum compute compute_of(tl_dtype dtype) {
    return dtype == TL_F64 ? COMPUTE_F64 : dtype_is_float(dtype) ? COMPUTE_F32 : COMPUTE_I64;
}

/* f64 for f64, f32 for the other floats. */
template <class T> struct compute_type { typedef float type; };
template <> struct compute_type<double> { typedef double type; };

/* ---- Geometry ----------------------------------------------------------------------------------------- */

static inline int64_t operand_numel(const tl_operand *x) {
    int64_t numel = 1;
    for (int i = 0; i < x->rank; i++) numel *= x->shape[i];
    return numel;
}

/* N operands walked together: their common shape with size-1 axes dropped and neighbours merged wherever all operands
 * allow it, so that almost everything arrives with one or two axes. Operand 0 gives the shape. Passed to
 * kernels by value (1.5 KB for four operands). */
template <int N> struct geometry {
    int rank;
    int64_t numel;
    int64_t size[TL_MAX_RANK];
    int64_t stride[N][TL_MAX_RANK];
    uint32_t magic[TL_MAX_RANK], shift[TL_MAX_RANK]; /* for division by size[axis], see geometry_divides */
};

/* For d = size[axis] and 0 <= n < 2^31:  n / d = (magic n / 2^32 + n) / 2^shift,  where 2^shift is the first power of
 * two that is not below d and magic = 2^32 (2^shift - d) / d + 1, both divisions rounded down. To be called whenever
 * the sizes have changed; larger walks divide. */
template <int N> static inline void geometry_divides(geometry<N> *g) {
    if (g->numel > INT32_MAX) return;
    for (int axis = 0; axis < g->rank; axis++) {
        const uint64_t d = g->size[axis] > 0 ? (uint64_t)g->size[axis] : 1;
        uint32_t shift = 0;
        while ((uint64_t)1 << shift < d) shift++;
        g->shift[axis] = shift;
        g->magic[axis] = (uint32_t)(((((uint64_t)1 << shift) - d) << 32) / d + 1);
    }
}

/* Stride of x along axis `axis` of a shape of rank `rank`; 0 where x is broadcast. */
static inline int64_t broadcast_stride(const tl_operand *x, int axis, int rank) {
    const int own = axis - (rank - x->rank);
    return own < 0 || x->shape[own] == 1 ? 0 : x->stride[own];
}

template <int N> static inline geometry<N> geometry_of(const tl_operand *const *operands) {
    geometry<N> g;
    g.rank = 0;
    g.numel = operand_numel(operands[0]);
    const int rank = operands[0]->rank;
    for (int axis = 0; axis < rank; axis++) {
        const int64_t size = operands[0]->shape[axis];
        if (size == 1) continue;
        int64_t stride[N];
        bool merges = g.rank > 0;
        for (int n = 0; n < N; n++) {
            stride[n] = broadcast_stride(operands[n], axis, rank);
            merges = merges && g.stride[n][g.rank - 1] == stride[n] * size;
        }
        const int at = merges ? g.rank - 1 : g.rank++;
        g.size[at] = merges ? g.size[at] * size : size;
        for (int n = 0; n < N; n++) g.stride[n][at] = stride[n];
    }
    if (g.rank == 0) { /* one element */
        g.rank = 1;
        g.size[0] = 1;
        for (int n = 0; n < N; n++) g.stride[n][0] = 0;
    }
    geometry_divides(&g);
    return g;
}

/* Offsets of element `index` (row-major) in every operand. */
template <int N> __device__ inline void offsets_of(const geometry<N> &g, int64_t index, int64_t (&offset)[N]) {
    for (int n = 0; n < N; n++) offset[n] = 0;
    if (g.numel <= INT32_MAX) {
        uint32_t rest = (uint32_t)index;
        for (int axis = g.rank - 1; axis > 0; axis--) {
            const uint32_t next = (__umulhi(rest, g.magic[axis]) + rest) >> g.shift[axis];
            const uint32_t at = rest - next * (uint32_t)g.size[axis];
            rest = next;
            for (int n = 0; n < N; n++) offset[n] += at * g.stride[n][axis];
        }
        for (int n = 0; n < N; n++) offset[n] += rest * g.stride[n][0];
        return;
    }
    for (int axis = g.rank - 1; axis > 0; axis--) {
        const int64_t next = index / g.size[axis], at = index - next * g.size[axis];
        index = next;
        for (int n = 0; n < N; n++) offset[n] += at * g.stride[n][axis];
    }
    for (int n = 0; n < N; n++) offset[n] += index * g.stride[n][0];
}

/* Kept and reduced axes as separate walks, in order. */
static inline void axes_split(const tl_operand *x, uint32_t axes, geometry<1> *kept, geometry<1> *reduced) {
    int64_t shape[2][TL_MAX_RANK], stride[2][TL_MAX_RANK];
    tl_operand part[2] = {*x, *x};
    part[0].rank = part[1].rank = 0;
    for (int axis = 0; axis < x->rank; axis++) {
        const int which = (axes >> axis) & 1;
        shape[which][part[which].rank] = x->shape[axis];
        stride[which][part[which].rank++] = x->stride[axis];
    }
    for (int which = 0; which < 2; which++) {
        part[which].shape = shape[which];
        part[which].stride = stride[which];
    }
    const tl_operand *const of_kept[1] = {&part[0]}, *const of_reduced[1] = {&part[1]};
    *kept = geometry_of<1>(of_kept);
    *reduced = geometry_of<1>(of_reduced);
}

/* Eight elements at once: one 128-bit access for 16-bit types, two for f32. */
enum { PACK = 8 };
template <class T> struct alignas(sizeof(T) * PACK < 16 ? sizeof(T) * PACK : 16) pack { T v[PACK]; };

/* The part of a dense row that a thread takes at a time: a pack (U = PACK) or, where rows are not aligned, two elements
 * (U = 2) or one. */
template <class T, int U> struct alignas(sizeof(T) * U < 16 ? sizeof(T) * U : 16) unit { T v[U]; };
template <int U, class T> __device__ inline unit<T, U> unit_load(const T *row, int64_t i) {
    return ((const unit<T, U> *)row)[i];
}
template <int U, class T> __device__ inline void unit_store(T *row, int64_t i, const unit<T, U> &x) {
    ((unit<T, U> *)row)[i] = x;
}

/* A unit of a dense row as in memory, converted only when it is used: 16-bit numbers wait in pairs, a register each,
 * and are converted in pairs. */
template <class T, int U = PACK> struct row_pack {
    typedef typename compute_type<T>::type C;
    unit<T, U> u;
    __device__ void widen(C (&x)[U]) const {
        for (int j = 0; j < U; j++) x[j] = value_of<C>(u.v[j]);
    }
    __device__ void narrow(const C (&x)[U]) {
        for (int j = 0; j < U; j++) u.v[j] = conversion<T>::from(x[j]);
    }
};
template <int U> struct alignas(2 * U) bf16_words {
    uint32_t w[U / 2];
    __device__ void widen(float (&x)[U]) const {
        for (int k = 0; k < U / 2; k++) {
            x[2 * k] = __uint_as_float(w[k] << 16);
            x[2 * k + 1] = __uint_as_float(w[k] & 0xFFFF0000u);
        }
    }
    __device__ void narrow(const float (&x)[U]) {
        for (int k = 0; k < U / 2; k++) {
            const __nv_bfloat162 pair = __floats2bfloat162_rn(x[2 * k], x[2 * k + 1]);
            w[k] = *(const uint32_t *)&pair;
        }
    }
};
template <int U> struct alignas(2 * U) f16_words {
    uint32_t w[U / 2];
    __device__ void widen(float (&x)[U]) const {
        for (int k = 0; k < U / 2; k++) {
            const float2 pair = __half22float2(*(const __half2 *)&w[k]);
            x[2 * k] = pair.x;
            x[2 * k + 1] = pair.y;
        }
    }
    __device__ void narrow(const float (&x)[U]) {
        for (int k = 0; k < U / 2; k++) {
            const __half2 pair = __floats2half2_rn(x[2 * k], x[2 * k + 1]);
            w[k] = *(const uint32_t *)&pair;
        }
    }
};
template <> struct row_pack<bf16, PACK> : bf16_words<PACK> {};
template <> struct row_pack<bf16, 2> : bf16_words<2> {};
template <> struct row_pack<f16, PACK> : f16_words<PACK> {};
template <> struct row_pack<f16, 2> : f16_words<2> {};
template <int U = PACK, class T> __device__ inline row_pack<T, U> row_load(const T *row, int64_t i) {
    return ((const row_pack<T, U> *)row)[i];
}
template <int U = PACK, class T> __device__ inline void row_store(T *row, int64_t i, const row_pack<T, U> &p) {
    ((row_pack<T, U> *)row)[i] = p;
}

/* Whether all rows of n elements that begin at these addresses can be walked in units of so many: PACK, or fewer of up
 * to 4 bytes each. */
static inline bool rows_are_units(int unit, int64_t n, int n_addresses, const void *const *addresses) {
    uintptr_t all = 0;
    for (int i = 0; i < n_addresses; i++) all |= (uintptr_t)addresses[i];
    return n % unit == 0 && all % (unit < 4 ? unit * 4 : 16) == 0;
}
static inline bool rows_are_packs(int64_t n, int n_addresses, const void *const *addresses) {
    return rows_are_units(PACK, n, n_addresses, addresses);
}

/* Whether the innermost axis can be walked in packs: its length is a multiple of PACK, and every operand is either
 * dense and aligned along it or constant along it. element_bytes, data: one per operand. has_tail: the only axis may
 * have any length, if the caller takes its last numel % PACK elements one by one (tail_offsets). */
template <int N>
static inline bool geometry_packs(const geometry<N> &g, const int *element_bytes, void *const *data,
                                  bool has_tail = false) {
    const int last = g.rank - 1;
    const bool is_whole = g.size[last] % PACK == 0 || (has_tail && last == 0 && g.numel >= PACK);
    if (!is_whole || g.numel / PACK > INT32_MAX) return false;
    for (int n = 0; n < N; n++) {
        if (g.stride[n][last] == 0 && n > 0) continue;
        const int align = element_bytes[n] * PACK < 16 ? element_bytes[n] * PACK : 16;
        if (g.stride[n][last] != 1 || (uintptr_t)data[n] % align != 0) return false;
        for (int axis = 0; axis < last; axis++)
            if (g.stride[n][axis] * element_bytes[n] % align != 0) return false;
    }
    return true;
}

/* The same walk in steps of one pack: the innermost axis becomes PACK times shorter, its stride PACK times longer. */
template <int N> static inline geometry<N> geometry_in_packs(geometry<N> g) {
    const int last = g.rank - 1;
    g.size[last] /= PACK;
    g.numel /= PACK;
    for (int n = 0; n < N; n++) g.stride[n][last] *= PACK;
    geometry_divides(&g);
    return g;
}

/* Offsets of element `i` of the tail behind the packs of a walk with one axis. */
template <int N> __device__ inline void tail_offsets(const geometry<N> &packs, int i, int64_t (&offset)[N]) {
    for (int n = 0; n < N; n++) offset[n] = (packs.numel * PACK + i) * (packs.stride[n][0] / PACK);
}
/* The thread of a grid that has element threadIdx.x of the tail. */
__device__ inline bool has_tail_element(int tail) { return blockIdx.x == 0 && (int)threadIdx.x < tail; }

/* A walk for rows that are not aligned, or not dense. Threads take PACK single elements each: a warp takes a
 * *segment* of 32 PACK neighbours, in turns of 32, so that every access is dense and PACK of them are under way at
 * once. Segments end with their row, unless rows are short; then all elements are one row, and each needs its own
 * division. */
template <int N> struct singles {
    geometry<N> g;
    int64_t n_threads, n_segments; /* in all; of a row, 0 for short rows */
};
enum { SEGMENT = 32 * PACK, LONG_ROW = SEGMENT / 2 };

template <int N> static inline singles<N> singles_of(const geometry<N> &g) {
    const int64_t row = g.size[g.rank - 1];
    const bool is_long = g.rank == 1 || row >= LONG_ROW;
    const int64_t n_segments = is_long ? (row + SEGMENT - 1) / SEGMENT : 0;
    const int64_t all = is_long ? (row ? g.numel / row * n_segments : 0) : (g.numel + SEGMENT - 1) / SEGMENT;
    return {g, all * 32, n_segments};
}

/* Where thread i's elements are: n of PACK. In long rows element j of operand k is at base[k] + j step[k]; in short
 * ones it is element first + 32 j of the walk. */
template <int N> struct places {
    int64_t first, base[N], step[N];
    int n;
};
template <int N> __device__ inline places<N> places_of(const singles<N> &w, int64_t i) {
    places<N> p;
    const int last = w.g.rank - 1;
    const int64_t all = i / 32;
    int64_t row = 0, segment = all, end = w.g.numel;
    if (w.n_segments && last > 0) {
        row = w.n_threads <= INT32_MAX ? (uint32_t)all / (uint32_t)w.n_segments : all / w.n_segments;
        segment -= row * w.n_segments;
        end = w.g.size[last];
    }
    p.first = segment * SEGMENT + i % 32;
    p.n = (int)min((int64_t)PACK, max((end - p.first + 31) / 32, (int64_t)0));
    if (w.n_segments) offsets_of(w.g, row * w.g.size[last], p.base);
    for (int k = 0; k < N; k++) {
        p.step[k] = w.n_segments ? 32 * w.g.stride[k][last] : 0;
        p.base[k] = w.n_segments ? p.base[k] + p.first * w.g.stride[k][last] : 0;
    }
    return p;
}
template <int N> __device__ inline int64_t place_at(const singles<N> &w, const places<N> &p, int j, int operand) {
    if (w.n_segments) return p.base[operand] + j * p.step[operand];
    int64_t at[N];
    offsets_of(w.g, p.first + 32 * j, at);
    return at[operand];
}

/* ---- Launching ---------------------------------------------------------------------------------------- */

enum { BLOCK = 256 };

/* Blocks of a grid whose blocks loop. */
static inline unsigned capped(int64_t blocks) { return (unsigned)(blocks < INT32_MAX ? blocks : INT32_MAX); }

static inline cudaStream_t stream_of(const tl_kernel_args *args) { return (cudaStream_t)args->stream; }

/* Kernels that follow each other closely, as in decoding. One that is launched early may begin before the one in front
 * of it has ended, and before those in front of that: what none of them writes, such as weights, can be fetched by then
 * (early_may_fetch; whoever may not is launched as usual). It must not touch anything else before front_wait, which
 * returns when all kernels in front of it have ended; every thread calls it. next_begin says that the kernel behind may
 * begin: since that waits too, at any time. From compute capability 9.0 on; code for others has no such instructions,
 * and its kernels are launched as usual. */
__device__ inline void front_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
template <class... P> static bool waits_for_front(void (*kernel)(P...)) {
    struct cudaFuncAttributes attributes;
    const bool is_known = cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess;
    if (!is_known) cudaGetLastError();
    return is_known && attributes.ptxVersion >= 90 && attributes.binaryVersion >= 90;
}
template <class... P, class... A>
static void launch_early(const tl_kernel_args *args, void (*kernel)(P...), bool is_early, unsigned blocks, int threads,
                         size_t shared_bytes, A... a) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream_of(args);
    config.attrs = &attribute;
    config.numAttrs = is_early;
    early_launched(args, is_early);
    cudaLaunchKernelEx(&config, kernel, P(a)...); /* cuda_run looks for errors */
}

/* Lets a kernel have this many bytes of dynamic shared memory, beyond the 48 KB that it may have anyway. */
template <class KERNEL>
static inline bool shared_memory_allow(const tl_kernel_args *args, KERNEL kernel, size_t bytes) {
    return cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes), args->op,
                      args->error);
}
/* The same for a kernel in whose place there is another: false where the device has less. */
template <class KERNEL> static inline bool shared_memory_try(KERNEL kernel, size_t bytes) {
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) == cudaSuccess)
        return true;
    cudaGetLastError();
    return false;
}

/* Blocks for one element per thread, up to a limit beyond which threads loop (grid_stride). */
static inline unsigned blocks_for(int64_t n, int block = BLOCK) {
    const int64_t blocks = (n + block - 1) / block;
    return (unsigned)(blocks < (1 << 20) ? (blocks > 0 ? blocks : 1) : 1 << 20);
}

#define FOR_EACH(i, n) \
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < (n); i += (int64_t)gridDim.x * blockDim.x)

/* Many tensors in one launch, whose chunks are numbered consecutively: the tensor that `chunk` belongs to, which is
 * the last of n that begins at or before it. */
template <int N> __device__ inline int chunk_owner(const int64_t (&first_chunk)[N], int n, int64_t chunk) {
    int low = 0, high = n - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (first_chunk[middle] <= chunk) low = middle;
        else high = middle - 1;
    }
    return low;
}

/* ---- Reductions with one fixed order ------------------------------------------------------------------ */

struct sum_of {
    template <class C> __device__ C operator()(C a, C b) const { return a + b; }
};
/* NaN wins, as in PyTorch. */
struct max_of {
    template <class C> __device__ C operator()(C a, C b) const { return a > b || a != a ? a : b; }
};
struct min_of {
    template <class C> __device__ C operator()(C a, C b) const { return a < b || a != a ? a : b; }
};
struct product_of {
    template <class C> __device__ C operator()(C a, C b) const { return a * b; }
};

/* Every lane gets the result; the butterfly adds the same pairs for all of them. */
template <class C, class F> __device__ inline C warp_reduce(C x, F f) {
    for (int distance = 16; distance > 0; distance /= 2) x = f(x, __shfl_xor_sync(0xFFFFFFFFu, x, distance));
    return x;
}

/* Over a block of whole warps (at most 32); every thread gets the result. `zero` must be neutral for f. */
template <class C, class F> __device__ inline C block_reduce(C x, F f, C zero) {
    __shared__ C of_warp[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
    x = warp_reduce(x, f);
    if (n_warps == 1) return x;
    __syncthreads(); /* an earlier call may still be reading */
    if (lane == 0) of_warp[warp] = x;
    __syncthreads();
    return warp_reduce(lane < n_warps ? of_warp[lane] : zero, f);
}

template <class C> __device__ inline C lowest();
template <> __device__ inline float lowest<float>() { return -INFINITY; }
template <> __device__ inline double lowest<double>() { return -(double)INFINITY; }
template <> __device__ inline int64_t lowest<int64_t>() { return INT64_MIN; }

/* One name for both precisions, for templates over the compute type. */
__device__ inline float exp_of(float x) { return expf(x); }
__device__ inline double exp_of(double x) { return exp(x); }
__device__ inline float log_of(float x) { return logf(x); }
__device__ inline double log_of(double x) { return log(x); }

/* log-sum-exp in one pass: a maximum and the sum of exponentials relative to it. */
template <class C> struct running { C top, sum; };

template <class C> __device__ inline void running_add(running<C> &r, C x) {
    if (x <= r.top) {
        r.sum += x == lowest<C>() ? C(0) : exp_of(x - r.top); /* -inf - -inf is no number */
    } else if (x > r.top) {
        r.sum = r.sum * exp_of(r.top - x) + C(1);
        r.top = x;
    } else { /* NaN spoils the row, as it should */
        r.sum = x;
    }
}

/* The block's log-sum-exp, to every thread; -inf if all are -inf. */
template <class C> __device__ inline C running_lse(const running<C> &r) {
    const C top = block_reduce(r.top, max_of(), lowest<C>());
    /* A thread without elements has top = -inf: its share is 0, not exp(-inf - -inf). */
    const C share = r.top == lowest<C>() ? r.sum : r.sum * exp_of(r.top - top);
    return top + log_of(block_reduce(share, sum_of(), C(0)));
}

/* Threads for one row of n elements: whole warps, about four elements each, at most 512. */
static inline int threads_for_row(int64_t n) {
    int threads = 32;
    while (threads < 512 && threads * 4 < n) threads *= 2;
    return threads;
}

static inline struct cuda_fault *fault_of(const tl_kernel_args *args) {
    return cuda_state_of(args->stream)->fault_device;
}

/* An index tensor's element: i64 or i32. */
__device__ inline int64_t id_at(const void *ids, tl_dtype dtype, int64_t i) {
    return dtype == TL_I64 ? ((const int64_t *)ids)[i] : ((const int32_t *)ids)[i];
}
static inline bool ids_known(const tl_kernel_args *args, const tl_operand *ids) {
    return ids->dtype == TL_I64 || ids->dtype == TL_I32 || cuda_refuse_dtype(args, ids->dtype);
}

__device__ inline void fault_raise(struct cuda_fault *fault, int code, int64_t index, int64_t limit) {
    fault->index = index;
    fault->limit = limit;
    __threadfence_system();
    fault->code = code;
}

#endif

/* narrow.cu: matrices converted to 8 bits with one scale, by rows and transposed.
 *
 *      s = amax / largest + 1e-30,   q = round(x / s), clamped to the format's range
 *
 * as nn/narrow_linear.c emulates it, also in f32. Where the scale is not given, a first pass finds the largest
 * magnitude (by atomicMax on the bits, whose result is the same in every order; NaN is above all). One pass over the
 * numbers makes both results, by tiles of 64 x 64 in shared memory; if only rows are wanted, 16 numbers per thread.
 */
#include "device/cuda/ops/matmul.h"
#include "device/cuda/shared/common.cuh"
#include "device/cuda/shared/limits.h"
#include "device/cuda/shared/kernels.h"

#include <cuda_fp8.h>

enum { SPAN = 16, TILE = 64 }; /* elements that a thread takes of a row; side of a tile */

struct narrowing {
    int64_t rows, columns;
    float inverse_largest;
    unsigned *amax; /* bits of a float that is not negative; null: the scale is given */
    float *scale;
    uint8_t *out, *transposed; /* null: not needed */
};

template <class T> __device__ inline void span_load(const T *row, int64_t span, float (&x)[SPAN]) {
    for (int half = 0; half < SPAN / PACK; half++) {
        float part[PACK];
        row_load(row, span * (SPAN / PACK) + half).widen(part);
        for (int j = 0; j < PACK; j++) x[half * PACK + j] = part[j];
    }
}

template <class T> __global__ void __launch_bounds__(BLOCK) narrow_amax(narrowing n, const T *data) {
    const int64_t spans = n.columns / SPAN;
    unsigned most = 0;
    FOR_EACH(i, n.rows * spans) {
        float x[SPAN];
        span_load(data + i / spans * n.columns, i % spans, x);
        for (int j = 0; j < SPAN; j++) most = max(most, __float_as_uint(x[j]) & 0x7FFFFFFFu);
    }
    for (int distance = 16; distance > 0; distance /= 2) most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, distance));
    if (threadIdx.x % 32 == 0 && most) atomicMax(n.amax, most);
}

/* The scale, to every thread, and from the first one to the cell. */
__device__ inline float narrow_scale(const narrowing &n) {
    if (!n.amax) return *n.scale;
    const float scale = __fadd_rn(__fmul_rn(__uint_as_float(*n.amax), n.inverse_largest), 1e-30f);
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *n.scale = scale;
    return scale;
}

template <__nv_fp8_interpretation_t FORMAT>
__device__ inline uint32_t narrow_four(float a, float b, float c, float d, float scale) {
    const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a / scale, b / scale), __NV_SATFINITE, FORMAT);
    const uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(c / scale, d / scale), __NV_SATFINITE, FORMAT);
    return low | high << 16;
}

template <__nv_fp8_interpretation_t FORMAT> __device__ inline uint4 narrow_span(const float (&x)[SPAN], float scale) {
    uint4 q;
    q.x = narrow_four<FORMAT>(x[0], x[1], x[2], x[3], scale);
    q.y = narrow_four<FORMAT>(x[4], x[5], x[6], x[7], scale);
    q.z = narrow_four<FORMAT>(x[8], x[9], x[10], x[11], scale);
    q.w = narrow_four<FORMAT>(x[12], x[13], x[14], x[15], scale);
    return q;
}

template <class T, __nv_fp8_interpretation_t FORMAT>
__global__ void __launch_bounds__(BLOCK) narrow_rows(narrowing n, const T *data) {
    const int64_t spans = n.columns / SPAN;
    const float scale = narrow_scale(n);
    FOR_EACH(i, n.rows * spans) {
        float x[SPAN];
        span_load(data + i / spans * n.columns, i % spans, x);
        ((uint4 *)n.out)[i] = narrow_span<FORMAT>(x, scale);
    }
}

/* A tile: thread t reads span t % 4 of row t / 4, and writes span t % 4 of column t / 4. A column of the tile takes
 * TILE bytes and 4 more in shared memory, so that its neighbours begin at other banks. */
template <class T, __nv_fp8_interpretation_t FORMAT>
__global__ void __launch_bounds__(BLOCK) narrow_transposed(narrowing n, const T *data) {
    __shared__ uint32_t tile[TILE][TILE / 4 + 1];
    const float scale = narrow_scale(n);
    const int line = threadIdx.x / 4, span = threadIdx.x % 4;
    const int64_t across = (n.columns + TILE - 1) / TILE, tiles = across * ((n.rows + TILE - 1) / TILE);
    for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        const int64_t first_row = t / across * TILE, first_column = t % across * TILE;
        if (first_row + line < n.rows && first_column + span * SPAN < n.columns) {
            float x[SPAN];
            const int64_t at = (first_row + line) * n.columns + first_column + span * SPAN;
            span_load(data + at, 0, x);
            const uint4 q = narrow_span<FORMAT>(x, scale);
            const uint32_t words[4] = {q.x, q.y, q.z, q.w};
            if (n.out) *(uint4 *)(n.out + at) = q;
            for (int j = 0; j < SPAN; j++)
                ((uint8_t *)tile[span * SPAN + j])[line] = (uint8_t)(words[j / 4] >> j % 4 * 8);
        }
        __syncthreads();
        if (first_column + line < n.columns && first_row + span * SPAN < n.rows) {
            uint4 q;
            q.x = tile[line][span * 4];
            q.y = tile[line][span * 4 + 1];
            q.z = tile[line][span * 4 + 2];
            q.w = tile[line][span * 4 + 3];
            *(uint4 *)(n.transposed + (first_column + line) * n.rows + first_row + span * SPAN) = q;
        }
        __syncthreads();
    }
}

template <class T, __nv_fp8_interpretation_t FORMAT>
static void narrow_launch(const narrowing &n, const T *data, cudaStream_t stream) {
    const int64_t spans = n.rows * (n.columns / SPAN);
    const int64_t tiles = ((n.rows + TILE - 1) / TILE) * ((n.columns + TILE - 1) / TILE);
    const unsigned some = 132 * 16; /* blocks, which loop: each warp writes its largest magnitude once */
    if (!spans) {                   /* the scale of nothing */
        narrow_rows<T, FORMAT><<<1, BLOCK, 0, stream>>>(n, data);
        return;
    }
    if (n.amax) narrow_amax<T><<<blocks_for(spans) < some ? blocks_for(spans) : some, BLOCK, 0, stream>>>(n, data);
    if (n.transposed) narrow_transposed<T, FORMAT><<<capped(tiles), BLOCK, 0, stream>>>(n, data);
    else narrow_rows<T, FORMAT><<<blocks_for(spans), BLOCK, 0, stream>>>(n, data);
}

template <class T> static bool narrow_as(const tl_kernel_args *args, const narrowing &n, bool is_e5m2) {
    const T *data = (const T *)args->in[0].data;
    if (is_e5m2) narrow_launch<T, __NV_E5M2>(n, data, stream_of(args));
    else narrow_launch<T, __NV_E4M3>(n, data, stream_of(args));
    return true;
}

extern "C" bool cuda_narrow(const tl_kernel_args *args) {
    const struct attr_narrow *attr = (const struct attr_narrow *)args->attr;
    const tl_operand *x = &args->in[0];
    const bool is_e5m2 = attr->dtype == TL_F8E5M2, is_given = args->n_in > 1;
    narrowing n;
    n.rows = 1;
    n.columns = x->shape[x->rank - 1];
    for (int i = 0; i < x->rank - 1; i++) n.rows *= x->shape[i];
    if (n.rows % SPAN || n.columns % SPAN || (uintptr_t)x->data % 16) {
        snprintf(args->error, CUDA_ERROR_BYTES,
                 "%s: needs sizes of a multiple of 16 that begin at a multiple of 16 bytes (%lld rows of %lld)",
                 args->op, (long long)n.rows, (long long)n.columns);
        return false;
    }
    n.inverse_largest = is_e5m2 ? 1.0f / 57344 : 1.0f / 448;
    n.amax = is_given ? nullptr : (unsigned *)args->workspace;
    n.scale = (float *)(is_given ? args->in[1].data : args->out[args->n_out - 1].data);
    n.out = attr->gives_rows ? (uint8_t *)args->out[0].data : nullptr;
    n.transposed = attr->gives_transposed ? (uint8_t *)args->out[attr->gives_rows].data : nullptr;
    if (n.amax && !cuda_check(cudaMemsetAsync(n.amax, 0, sizeof *n.amax, stream_of(args)), args->op, args->error))
        return false;
    switch (x->dtype) {
    case TL_BF16:
        return narrow_as<bf16>(args, n, is_e5m2);
    case TL_F16:
        return narrow_as<f16>(args, n, is_e5m2);
    case TL_F32:
        return narrow_as<float>(args, n, is_e5m2);
    default:
        return cuda_refuse_dtype(args, x->dtype);
    }
}

extern "C" bool cuda_matmul_f8(const tl_kernel_args *args) {
    return matmul_f8(args, args->in, &args->out[0], args->n_in > 7 ? &args->in[7] : NULL, false);
}

extern "C" bool cuda_matmul_f8_acc(const tl_kernel_args *args) {
    return matmul_f8(args, args->in + 1, &args->in[0], NULL, true);
}

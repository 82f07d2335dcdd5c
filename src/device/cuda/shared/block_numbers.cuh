/* block_numbers.cuh: the numbers of a matrix in a block-scaled format.
 *
 * A number is value x scale [x tensor scale], rounded once to a dtype. In f32: of the two products in NVFP4 the
 * first is exact, so that one rounding is left, which f32 does; for 16 bits the product is rounded to odd first, so
 * that the second rounding gives what the exact product would. Values and 8-bit scales come from tables in shared
 * memory.
 */
#ifndef CUDA_BLOCK_NUMBERS_CUH
#define CUDA_BLOCK_NUMBERS_CUH

#include "device/cuda/shared/common.cuh"
#include "device/cuda/shared/formats.cuh"

/* A matrix in a format. Threads take PACK numbers at a time, which are in one block. */
struct packed {
    struct format_info format;
    const uint8_t *values;
    const void *scales;
    const float *tensor_scale; /* NULL: the format has none */
    int64_t n, k;
};

struct tables {
    float value[256], scale[256];
};

/* All threads of a block fill them together. */
template <int BITS> __device__ inline void tables_fill(tables &t, const packed &p) {
    for (int i = threadIdx.x; i < 256; i += blockDim.x) {
        const uint8_t code = (uint8_t)i;
        if (p.format.has_codes) t.value[i] = nf4[i % NF4_CODES];
        else t.value[i] = tiny_load<float>(&code, 0, p.format.values);
        if (p.format.scales != TL_F32) t.scale[i] = tiny_load<float>(&code, 0, p.format.scales);
    }
    __syncthreads();
}

/* a b, rounded once. */
template <class T> struct rounded_product {
    /* An f32 that is rounded to T as a b would be: cut off, and then the last bit of what is not a b itself is 1. The
     * rest of an infinite product is no number; that of a product below 2^-80 may be too small for f32. */
    static __device__ float usual(float a, float b) {
        const float near = __fmul_rz(a, b), rest = __fmaf_rn(a, b, -near);
        return __uint_as_float(__float_as_uint(near) | (fabsf(rest) > 0));
    }
    static __device__ T of(float a, float b) {
        const float product = usual(a, b);
        if (product != 0 && fabsf(product) < 0x1p-80f) return conversion<T>::from((double)a * (double)b);
        return conversion<T>::from(product);
    }
};
template <> struct rounded_product<float> {
    static __device__ float usual(float a, float b) { return __fmul_rn(a, b); }
    static __device__ float of(float a, float b) { return __fmul_rn(a, b); }
};

/* The scale of the number at `at`, in row-major order. */
__device__ inline float numbers_scale(const packed &p, const tables &t, int64_t at) {
    const int64_t block = at >> (31 - __clz(p.format.block)); /* a power of two */
    return p.format.scales == TL_F32 ? ((const float *)p.scales)[block] : t.scale[((const uint8_t *)p.scales)[block]];
}

/* Numbers at .. at + PACK - 1. */
template <class T, int BITS>
__device__ inline void numbers_read(const packed &p, const tables &t, int64_t at, T (&w)[PACK]) {
    const float scale = numbers_scale(p, t, at);
    const float whole = p.tensor_scale ? *p.tensor_scale : 1;
    uint32_t codes[BITS / 4]; /* of four or eight numbers each */
    if (BITS == 4) {
        codes[0] = *(const uint32_t *)(p.values + at / 2);
    } else {
        const uint2 both = *(const uint2 *)(p.values + at);
        codes[0] = both.x;
        codes[BITS / 4 - 1] = both.y;
    }
    float x[PACK]; /* no value is below 2^-16, so no product is below 2^-80 where `by` is not below 2^-64 */
    const float by = p.tensor_scale ? whole : scale;
    for (int j = 0; j < PACK; j++) {
        const int place = BITS == 4 ? (p.format.has_codes ? j ^ 1 : j) : j % 4; /* NF4's first is in the upper half */
        const float value = t.value[codes[BITS == 4 ? 0 : j / 4] >> BITS * place & ((1u << BITS) - 1)];
        x[j] = p.tensor_scale ? value * scale : value;
    }
    if (fabsf(by) < 0x1p-64f) {
        for (int j = 0; j < PACK; j++) w[j] = rounded_product<T>::of(x[j], by);
        return;
    }
    row_pack<T> y;
    for (int j = 0; j < PACK; j++) x[j] = rounded_product<T>::usual(x[j], by);
    y.narrow(x);
    memcpy(w, &y, sizeof y);
}

#endif

/* attention_hopper.cuh: what both attention kernels for Hopper share beyond hopper.cuh: their products, masks, and rows
 * of a head written from registers. A head of 128 is two tiles side by side.
 */
#ifndef CUDA_ATTENTION_HOPPER_CUH
#define CUDA_ATTENTION_HOPPER_CUH

#include "device/cuda/ops/attention.cuh"
#include "device/cuda/shared/hopper.cuh"

/* What a kernel is compiled for; MASKED: with or without dropout. */
enum attention_kind { PLAIN, DROPPED, MASKED };

__device__ inline float2 unpack(bf16, uint32_t two) {
    return make_float2(__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u));
}
__device__ inline float2 unpack(f16, uint32_t two) {
    __half2 halves;
    memcpy(&halves, &two, 4);
    return __half22float2(halves);
}

#if HAS_WARPGROUPS || !defined __CUDA_ARCH__

#define PRODUCTS(type)                                                                                          \
    SHARED_PRODUCT(multiply_rows, type, 64, LIST_32, REG32(c), "%32", "%33", "%34", 0, 0)                       \
    SHARED_PRODUCT(multiply_rows, type, 128, LIST_64, REG64(c), "%64", "%65", "%66", 0, 0)                      \
    SHARED_PRODUCT(multiply_columns, type, 64, LIST_32, REG32(c), "%32", "%33", "%34", 1, 1)                    \
    REGISTER_PRODUCT(multiply_registers, type, 64, LIST_32, REG32(c), "%32", "%33", "%34", "%35", "%36", "%37") \
    REGISTER_PRODUCT(multiply_registers, type, 128, LIST_64, REG64(c), "%64", "%65", "%66", "%67", "%68", "%69")
PRODUCTS(bf16)
PRODUCTS(f16)

/* ---- Masks -------------------------------------------------------------------------------------------- *
 *
 * A mask is where a product begins: the accumulator of a score starts at mask / scale, -inf where the mask hides, and q
 * k^T is added to it. So a mask takes no registers beside those of the scores, and what follows need not know of it.
 * Each lane loads its own elements. Rows and columns beyond the last are loaded as the last: nothing is read outside
 * the mask. */

/* A (64,n) result of a head, seen as the mask's: the lane's two rows, and steps in bytes from column to column. */
struct mask_rows {
    const char *row[2];
    int step, n_columns;
    bool has_pairs; /* two neighbouring columns, the first of them even, are one aligned pair in memory */
};
__device__ inline int mask_bytes(const attention_call &a) {
    return a.mask_dtype == TL_BOOL ? 1 : a.mask_dtype == TL_F32 ? 4 : 2;
}
__device__ inline const char *mask_head(const attention_call &a, int64_t b, int64_t h) {
    return (const char *)a.mask + (b * a.mask_stride[0] + h * a.mask_stride[1]) * mask_bytes(a);
}
/* Rows are queries, columns keys. */
__device__ inline mask_rows mask_of_queries(const attention_call &a, int b, int h, int query) {
    const int bytes = mask_bytes(a), row = (int)a.mask_stride[2] * bytes, last = (int)a.T - 1;
    const char *const head = mask_head(a, b, h);
    const bool has_pairs = a.mask_stride[3] == 1 && (a.mask_stride[0] | a.mask_stride[1] | a.mask_stride[2]) % 2 == 0 &&
                           (uintptr_t)a.mask % (unsigned)(2 * bytes) == 0;
    return {{head + (int64_t)min(query, last) * row, head + (int64_t)min(query + 8, last) * row},
            (int)a.mask_stride[3] * bytes,
            (int)a.S,
            has_pairs};
}
/* Rows are keys, columns queries. */
__device__ inline mask_rows mask_of_keys(const attention_call &a, int b, int h, int key) {
    const int bytes = mask_bytes(a), row = (int)a.mask_stride[3] * bytes, last = (int)a.S - 1;
    const char *const head = mask_head(a, b, h);
    return {{head + (int64_t)min(key, last) * row, head + (int64_t)min(key + 8, last) * row},
            (int)a.mask_stride[2] * bytes,
            (int)a.T,
            false};
}

/* Written out, since the compiler makes five instructions of it. */
__device__ inline const char *steps_from(const char *row, int n, int step) {
    const char *at;
    asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(at) : "r"(n), "r"(step), "l"(row));
    return at;
}
template <int BYTES> __device__ inline uint32_t element_bits(const char *at) {
    return BYTES == 1 ? *(const uint8_t *)at : BYTES == 2 ? *(const uint16_t *)at : *(const uint32_t *)at;
}
/* Two at once: smaller ones both in `first`. */
template <int BYTES> __device__ inline void pair_bits(uint32_t &first, uint32_t &second, const char *at) {
    if (BYTES < 4) {
        first = element_bits<2 * BYTES>(at);
    } else {
        const uint2 two = *(const uint2 *)at;
        first = two.x, second = two.y;
    }
}

/* The lane's elements of a (64,N) result, on their way from memory. */
template <int N> struct mask_tile {
    uint32_t bits[N / 2];
    bool is_paired;

    template <int BYTES> __device__ inline void load_as(const mask_rows &rows, int column) {
        if (is_paired) {
            const char *const above = rows.row[0] + column * BYTES, *const below = rows.row[1] + column * BYTES;
#pragma unroll
            for (int n = 0; n < N / 8; n++) {
                pair_bits<BYTES>(bits[4 * n], bits[4 * n + 1], above + 8 * n * BYTES);
                pair_bits<BYTES>(bits[4 * n + 2], bits[4 * n + 3], below + 8 * n * BYTES);
            }
            return;
        }
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int at = min(column + 8 * n + i, rows.n_columns - 1);
                bits[4 * n + i] = element_bits<BYTES>(steps_from(rows.row[0], at, rows.step));
                bits[4 * n + 2 + i] = element_bits<BYTES>(steps_from(rows.row[1], at, rows.step));
            }
    }
    /* Columns from `first` on. */
    __device__ inline void load(const attention_call &a, const lane_place &me, const mask_rows &rows, int first) {
        const int bytes = mask_bytes(a);
        is_paired = rows.has_pairs && first + N <= rows.n_columns;
        if (bytes == 1) load_as<1>(rows, first + me.column());
        else if (bytes == 2) load_as<2>(rows, first + me.column());
        else load_as<4>(rows, first + me.column());
    }

    /* Pairs into two; bits above an element's own remain. */
    __device__ inline void pairs_split(int shift) {
        if (!is_paired) return;
#pragma unroll
        for (int i = 0; i < N / 4; i++) bits[2 * i + 1] = bits[2 * i] >> shift;
    }
    /* Where the scores begin. */
    __device__ inline void begin(const attention_call &a, float (&s)[N / 2]) {
        const float share = 1 / (float)a.scale;
        if (a.mask_dtype == TL_BOOL) {
            pairs_split(8);
#pragma unroll
            for (int i = 0; i < N / 2; i++) s[i] = bits[i] & 0xff ? 0 : lowest<float>();
        } else if (a.mask_dtype == TL_BF16) {
            pairs_split(16);
#pragma unroll
            for (int i = 0; i < N / 2; i++) s[i] = share * __uint_as_float(bits[i] << 16);
        } else if (a.mask_dtype == TL_F16) {
            pairs_split(16);
#pragma unroll
            for (int i = 0; i < N / 2; i++) s[i] = share * __half2float(__ushort_as_half((uint16_t)bits[i]));
        } else {
#pragma unroll
            for (int i = 0; i < N / 2; i++) s[i] = share * __uint_as_float(bits[i]);
        }
    }
};

/* ---- Results ------------------------------------------------------------------------------------------ */

template <class T, int N> __device__ inline void operand_of(uint32_t (&a)[N / 8][4], const float (&c)[N]) {
#pragma unroll
    for (int k = 0; k < N / 8; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) a[k][i] = round_two(T(), c[8 * k + 2 * i], c[8 * k + 2 * i + 1]);
}

/* 64 rows of 64, times a factor, rounded, into rows of a head from `first` on and elements from d0 on. `staging` is
 * the consumer's, and free. */
template <class T>
__device__ inline void rows_write(const lane_place &me, const float *c, float factor, void *staging,
                                  const attention_rows &rows, int b, int first, int h, int end, int d0, int D) {
    block_write<T>(me, c, factor, staging, row_at(rows, b, first, h) + d0, rows.stride_t, end - first, D - d0);
}
#endif

/* ---- Launching ---------------------------------------------------------------------------------------- */

/* n_rows rows of n_heads heads in tiles of `tile` rows of 64 elements. */
static bool map_make(const tl_kernel_args *args, CUtensorMap *map, const attention_call &a, const attention_rows &rows,
                     int64_t n_rows, int64_t n_heads, int tile) {
    return map_encode(args, map, a.dtype, rows.data, {a.D, n_rows, n_heads, a.B},
                      {rows.stride_t, rows.stride_h, rows.stride_b}, tile);
}

#endif

/* matmul_bf16.h: bf16 matrices on Arm chips with the BFMMLA instruction; part of matmul.c.
 *
 * BFMMLA multiplies 2 x 4 by 4 x 2 bf16 numbers and adds to 2 x 2 f32 sums: four times the arithmetic of an f32
 * multiply-add per instruction. Operands are packed as panels of 8 rows, four numbers of k at a time, (k/4, 8, 4), so
 * that one vector is two rows; the block in registers is 8 x 8, sixteen vectors of sums. No number is converted.
 *
 * The instruction is written as assembly because clang 14 has its intrinsic only in files compiled for such chips alone,
 * and this library must also start where there is none: the capability bit decides at run time.
 * It takes subnormal numbers as zero; everything else is f32 arithmetic.
 */
#include <sys/auxv.h>

#ifndef HWCAP2_BF16
#define HWCAP2_BF16 (1UL << 14)
#endif

enum { BF16_M = 128, BF16_N = 192, BF16_K = 256, BF16_PANEL = 8 };

static bool bf16_is_there(void) { return (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0; }

/* Lets the assembler accept the instruction: clang asks the function, gcc's assembler the text. */
#if defined(__clang__)
#define BF16_FUNCTION __attribute__((target("bf16")))
#define BF16_EXTENSION ""
#else
#define BF16_FUNCTION
#define BF16_EXTENSION ".arch_extension bf16\n\t"
#endif

BF16_FUNCTION static inline float32x4_t bf16_madd(float32x4_t sum, uint16x8_t a, uint16x8_t b) {
    __asm__(BF16_EXTENSION "bfmmla %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(a), "w"(b));
    return sum;
}

/* Four k of eight rows whose numbers of equal k are neighbours: k0, k1, k2, k3 hold eight rows each. */
static inline void bf16_transpose(uint16_t *out, const uint16_t *k0, const uint16_t *k1, const uint16_t *k2,
                                  const uint16_t *k3) {
    const uint16x8_t x0 = vld1q_u16(k0), x1 = vld1q_u16(k1), x2 = vld1q_u16(k2), x3 = vld1q_u16(k3);
    const uint32x4_t low01 = vreinterpretq_u32_u16(vzip1q_u16(x0, x1)),
                     low23 = vreinterpretq_u32_u16(vzip1q_u16(x2, x3));
    const uint32x4_t high01 = vreinterpretq_u32_u16(vzip2q_u16(x0, x1)),
                     high23 = vreinterpretq_u32_u16(vzip2q_u16(x2, x3));
    vst1q_u16(out, vreinterpretq_u16_u32(vzip1q_u32(low01, low23)));
    vst1q_u16(out + 8, vreinterpretq_u16_u32(vzip2q_u32(low01, low23)));
    vst1q_u16(out + 16, vreinterpretq_u16_u32(vzip1q_u32(high01, high23)));
    vst1q_u16(out + 24, vreinterpretq_u16_u32(vzip2q_u32(high01, high23)));
}

/* n rows of n_k numbers as panels, padded with zeros to 8 rows and to a multiple of 4 in k. */
static void bf16_pack(uint16_t *out, const uint16_t *in, int64_t stride, int64_t k_stride, int64_t n, int64_t n_k) {
    const int64_t n_quads = (n_k + 3) / 4;
    for (int64_t i0 = 0; i0 < n; i0 += BF16_PANEL) {
        const bool is_full = i0 + BF16_PANEL <= n;
        const uint16_t *panel = in + i0 * stride;
        for (int64_t quad = 0; quad < n_quads; quad++, out += 4 * BF16_PANEL) {
            const int64_t k = 4 * quad;
            const uint16_t *first = panel + k * k_stride;
            if (is_full && k + 4 <= n_k && k_stride == 1) {
                for (int i = 0; i < BF16_PANEL; i++) {
                    memcpy(out + 4 * i, first + i * stride, 4 * sizeof *out);
                }
            } else if (is_full && k + 4 <= n_k && stride == 1) {
                bf16_transpose(out, first, first + k_stride, first + 2 * k_stride, first + 3 * k_stride);
            } else {
                for (int64_t i = 0; i < BF16_PANEL; i++) {
                    for (int64_t p = 0; p < 4; p++) {
                        out[4 * i + p] = i0 + i < n && k + p < n_k ? first[i * stride + p * k_stride] : 0;
                    }
                }
            }
        }
    }
}

/* c (8, 8) = or += the product of two panels. */
BF16_FUNCTION static void bf16_block(int64_t n_quads, const uint16_t *a, const uint16_t *b, float *c, bool add) {
    float32x4_t sum[4][4]; /* 2 x 2 each */
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            sum[i][j] = vdupq_n_f32(0);
        }
    }
    for (int64_t quad = 0; quad < n_quads; quad++, a += 4 * BF16_PANEL, b += 4 * BF16_PANEL) {
        const uint16x8_t b0 = vld1q_u16(b), b1 = vld1q_u16(b + 8), b2 = vld1q_u16(b + 16), b3 = vld1q_u16(b + 24);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const uint16x8_t rows = vld1q_u16(a + 8 * i);
            sum[i][0] = bf16_madd(sum[i][0], rows, b0);
            sum[i][1] = bf16_madd(sum[i][1], rows, b1);
            sum[i][2] = bf16_madd(sum[i][2], rows, b2);
            sum[i][3] = bf16_madd(sum[i][3], rows, b3);
        }
    }
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j += 2) {
            const float64x2_t left = vreinterpretq_f64_f32(sum[i][j]), right = vreinterpretq_f64_f32(sum[i][j + 1]);
            float *even = c + 2 * i * BF16_N + 2 * j, *odd = even + BF16_N;
            float32x4_t even_sum = vreinterpretq_f32_f64(vzip1q_f64(left, right));
            float32x4_t odd_sum = vreinterpretq_f32_f64(vzip2q_f64(left, right));
            if (add) {
                even_sum = vaddq_f32(even_sum, vld1q_f32(even));
                odd_sum = vaddq_f32(odd_sum, vld1q_f32(odd));
            }
            vst1q_f32(even, even_sum);
            vst1q_f32(odd, odd_sum);
        }
    }
}

static void bf16_rectangles(void *context, int64_t first, int64_t last) {
    const struct product *p = context;
    _Alignas(64) float sums[BF16_M * BF16_N];
    _Alignas(64) uint16_t a[BF16_M * BF16_K], b[BF16_N * BF16_K];
    for (int64_t item = first; item < last; item++) {
        const struct rectangle r = rectangle_at(p, item);
        if (p->k == 0) {
            memset(sums, 0, sizeof sums);
        }
        for (int64_t k = 0; k < p->k; k += BF16_K) {
            const int64_t n_k = block_min(BF16_K, p->k - k), n_quads = (n_k + 3) / 4;
            bf16_pack(a, (const uint16_t *)r.a + k * p->a.k_stride, p->a.stride, p->a.k_stride, r.n_i, n_k);
            bf16_pack(b, (const uint16_t *)r.b + k * p->b.k_stride, p->b.stride, p->b.k_stride, r.n_j, n_k);
            for (int64_t j = 0; j < r.n_j; j += BF16_PANEL) {
                for (int64_t i = 0; i < r.n_i; i += BF16_PANEL) {
                    bf16_block(n_quads, a + 4 * i * n_quads, b + 4 * j * n_quads, sums + i * BF16_N + j, k > 0);
                }
            }
        }
        store_f32(p, &r, sums, BF16_N);
    }
}

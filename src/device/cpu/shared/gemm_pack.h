/* gemm_pack.h: operands laid out as the kernels of gemm.c read them. A part of gemm.c.
 *
 * A panel holds `width` rows (of a, or columns of b), group by group of `group` terms: (terms / group, width,
 * group). Missing elements at the edges are zero. The operand is read along the axis that is dense in it:
 *
 *   along    terms of a row are neighbours: groups of a row are words, and a panel is the transpose of width rows
 *   across   rows are neighbours: `group` lines of width numbers are interleaved
 *
 * Numbers of another dtype are converted on the way, a few lines at a time. An f32 number can be split into two of
 * bf16, its rounded value and the rest; a panel then has two halves, one per part.
 *
 * All functions are inlined into callers that know width, group and format as constants.
 */

enum format { FORMAT_F32, FORMAT_BF16, FORMAT_SPLIT };

typedef uint16_t u16x8 __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint16_t u16x4 __attribute__((vector_size(8), aligned(2), may_alias));
typedef uint32_t u32x4 __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint32_t u32x2 __attribute__((vector_size(8), aligned(2), may_alias));
typedef uint64_t u64x2 __attribute__((vector_size(16), aligned(2), may_alias));

/* ---- Along: out (n_words, width) = in (width, n_words)^T --------------------------------------------------------- */

INLINE void transpose_4(char *out, int64_t out_step, const char *in, int64_t in_step) {
    const u32x4 a = *(const u32x4 *)in, b = *(const u32x4 *)(in + in_step);
    const u32x4 c = *(const u32x4 *)(in + 2 * in_step), d = *(const u32x4 *)(in + 3 * in_step);
    const u32x4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const u32x4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(u32x4 *)out = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    *(u32x4 *)(out + out_step) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    *(u32x4 *)(out + 2 * out_step) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    *(u32x4 *)(out + 3 * out_step) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

INLINE void transpose_2(char *out, int64_t out_step, const char *in, int64_t in_step) {
    const u64x2 a = *(const u64x2 *)in, b = *(const u64x2 *)(in + in_step);
    *(u64x2 *)out = __builtin_shufflevector(a, b, 0, 2);
    *(u64x2 *)(out + out_step) = __builtin_shufflevector(a, b, 1, 3);
}

#if defined(__AVX512F__)
/* 16 x 16 words. Loads put four rows' quads into the lanes of a vector, so that no shuffle has to cross lanes. */
INLINE void transpose_16(char *out, int64_t out_step, const char *in, int64_t in_step) {
#pragma GCC unroll 4
    for (int quad = 0; quad < 4; quad++, in += 16, out += 4 * out_step) {
        __m512i rows[4]; /* lane l of rows[r] is row 4 l + r */
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) {
            const char *at = in + r * in_step;
            __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const void *)at));
            x = _mm512_mask_broadcast_i32x4(x, 0x00F0, _mm_loadu_si128((const void *)(at + 4 * in_step)));
            x = _mm512_mask_broadcast_i32x4(x, 0x0F00, _mm_loadu_si128((const void *)(at + 8 * in_step)));
            rows[r] = _mm512_mask_broadcast_i32x4(x, 0xF000, _mm_loadu_si128((const void *)(at + 12 * in_step)));
        }
        const __m512i ab_low = _mm512_unpacklo_epi32(rows[0], rows[1]),
                      ab_high = _mm512_unpackhi_epi32(rows[0], rows[1]);
        const __m512i cd_low = _mm512_unpacklo_epi32(rows[2], rows[3]),
                      cd_high = _mm512_unpackhi_epi32(rows[2], rows[3]);
        _mm512_storeu_si512(out, _mm512_unpacklo_epi64(ab_low, cd_low));
        _mm512_storeu_si512(out + out_step, _mm512_unpackhi_epi64(ab_low, cd_low));
        _mm512_storeu_si512(out + 2 * out_step, _mm512_unpacklo_epi64(ab_high, cd_high));
        _mm512_storeu_si512(out + 3 * out_step, _mm512_unpackhi_epi64(ab_high, cd_high));
    }
}
#endif

INLINE void pack_along(char *out, const char *in, int64_t in_step, int64_t n_words, const int width, const int word) {
    const int square = word == 4 ? 4 : word == 8 ? 2 : 1; /* words of a vector */
    const int64_t out_step = (int64_t)width * word;
    int64_t w = 0;
#if defined(__AVX512F__)
    for (; word == 4 && width % 16 == 0 && w + 16 <= n_words; w += 16)
        for (int i = 0; i < width; i += 16)
            transpose_16(out + w * out_step + i * 4, out_step, in + w * 4 + i * in_step, in_step);
#endif
    for (; square > 1 && w + square <= n_words; w += square) {
        char *to = out + w * out_step;
        const char *from = in + w * word;
        int i = 0;
        for (; i + square <= width; i += square) {
            if (word == 4) transpose_4(to + i * word, out_step, from + i * in_step, in_step);
            else transpose_2(to + i * word, out_step, from + i * in_step, in_step);
        }
        for (; i < width; i++)
            for (int v = 0; v < square; v++)
                memcpy(to + v * out_step + i * word, from + i * in_step + v * word, (size_t)word);
    }
    for (; w < n_words; w++)
        for (int i = 0; i < width; i++)
            memcpy(out + w * out_step + i * word, in + i * in_step + w * word, (size_t)word);
}

/* ---- Across: out (width, group) = in (group, width)^T, of 16-bit numbers ----------------------------------------- */

INLINE void interleave_2x8(char *out, const char *in, int64_t in_step) {
    const u16x8 a = *(const u16x8 *)in, b = *(const u16x8 *)(in + in_step);
    *(u16x8 *)out = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    *(u16x8 *)(out + 16) = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

INLINE void interleave_2x4(char *out, const char *in, int64_t in_step) {
    const u16x4 a = *(const u16x4 *)in, b = *(const u16x4 *)(in + in_step);
    *(u16x4 *)out = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    *(u16x4 *)(out + 8) = __builtin_shufflevector(a, b, 2, 6, 3, 7);
}

INLINE void interleave_4x8(char *out, const char *in, int64_t in_step) {
    const u16x8 a = *(const u16x8 *)in, b = *(const u16x8 *)(in + in_step);
    const u16x8 c = *(const u16x8 *)(in + 2 * in_step), d = *(const u16x8 *)(in + 3 * in_step);
    const u32x4 ab_low = (u32x4)__builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    const u32x4 ab_high = (u32x4)__builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
    const u32x4 cd_low = (u32x4)__builtin_shufflevector(c, d, 0, 8, 1, 9, 2, 10, 3, 11);
    const u32x4 cd_high = (u32x4)__builtin_shufflevector(c, d, 4, 12, 5, 13, 6, 14, 7, 15);
    *(u32x4 *)out = __builtin_shufflevector(ab_low, cd_low, 0, 4, 1, 5);
    *(u32x4 *)(out + 16) = __builtin_shufflevector(ab_low, cd_low, 2, 6, 3, 7);
    *(u32x4 *)(out + 32) = __builtin_shufflevector(ab_high, cd_high, 0, 4, 1, 5);
    *(u32x4 *)(out + 48) = __builtin_shufflevector(ab_high, cd_high, 2, 6, 3, 7);
}

INLINE void interleave_4x4(char *out, const char *in, int64_t in_step) {
    const u16x4 a = *(const u16x4 *)in, b = *(const u16x4 *)(in + in_step);
    const u16x4 c = *(const u16x4 *)(in + 2 * in_step), d = *(const u16x4 *)(in + 3 * in_step);
    const u32x2 ab_low = (u32x2)__builtin_shufflevector(a, b, 0, 4, 1, 5);
    const u32x2 ab_high = (u32x2)__builtin_shufflevector(a, b, 2, 6, 3, 7);
    const u32x2 cd_low = (u32x2)__builtin_shufflevector(c, d, 0, 4, 1, 5);
    const u32x2 cd_high = (u32x2)__builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(u32x2 *)out = __builtin_shufflevector(ab_low, cd_low, 0, 2);
    *(u32x2 *)(out + 8) = __builtin_shufflevector(ab_low, cd_low, 1, 3);
    *(u32x2 *)(out + 16) = __builtin_shufflevector(ab_high, cd_high, 0, 2);
    *(u32x2 *)(out + 24) = __builtin_shufflevector(ab_high, cd_high, 1, 3);
}

#if defined(__AVX512BW__)
/* 32 pairs: the first 16 to `low`, the others to `high`. */
INLINE void interleave_2x32(char *low, char *high, const char *in, int64_t in_step) {
    const __m512i a = _mm512_loadu_si512(in), b = _mm512_loadu_si512(in + in_step);
    const __m512i x = _mm512_unpacklo_epi16(a, b), y = _mm512_unpackhi_epi16(a, b); /* four pairs in each lane */
    _mm512_storeu_si512(low, _mm512_permutex2var_epi64(x, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), y));
    _mm512_storeu_si512(high, _mm512_permutex2var_epi64(x, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), y));
}

/* 32 rows of 32 terms: pairs of terms are words, and these are transposed. */
INLINE void interleave_32x32(char *out, const char *in, int64_t in_step) {
    _Alignas(64) char pairs[2][16][64]; /* (half of the rows, pair of terms, row, 2) */
    for (int p = 0; p < 16; p++) interleave_2x32(pairs[0][p], pairs[1][p], in + 2 * p * in_step, in_step);
    transpose_16(out, 64, pairs[0][0], 64);
    transpose_16(out + 16 * 64, 64, pairs[1][0], 64);
}
#endif

INLINE void pack_across(char *out, const char *in, int64_t in_step, const int width, const int group,
                        const int number) {
    if (group == 1) {
        memcpy(out, in, (size_t)(width * number));
        return;
    }
    int i = 0;
#if defined(__AVX512BW__)
    for (; group == 2 && i + 32 <= width; i += 32) interleave_2x32(out + i * 4, out + i * 4 + 64, in + i * 2, in_step);
    for (; group == 32 && i + 32 <= width; i += 32) interleave_32x32(out + i * 64, in + i * 2, in_step);
#endif
    if (group == 4) {
        for (; i + 8 <= width; i += 8) interleave_4x8(out + i * 8, in + i * 2, in_step);
        for (; i + 4 <= width; i += 4) interleave_4x4(out + i * 8, in + i * 2, in_step);
    } else if (group == 2) {
        for (; i + 8 <= width; i += 8) interleave_2x8(out + i * 4, in + i * 2, in_step);
        for (; i + 4 <= width; i += 4) interleave_2x4(out + i * 4, in + i * 2, in_step);
    } else { /* eight rows and eight terms: transposed pairs of terms are words, and words are transposed again */
        for (; i + 8 <= width; i += 8) {
            for (int g = 0; g < group; g += 8) {
                char pairs[4][32]; /* (pair of terms, row, 2) */
                for (int p = 0; p < 4; p++) interleave_2x8(pairs[p], in + (g + 2 * p) * in_step + i * 2, in_step);
                transpose_4(out + (i * group + g) * 2, group * 2, pairs[0], 32);
                transpose_4(out + ((i + 4) * group + g) * 2, group * 2, pairs[0] + 16, 32);
            }
        }
    }
    for (; i < width; i++)
        for (int g = 0; g < group; g++) memcpy(out + (i * group + g) * 2, in + g * in_step + i * 2, 2);
}

/* ---- Lines of numbers, converted --------------------------------------------------------------------------------- */

/* To nearest even; NaN stays one. */
INLINE uint16_t bf16_round(float value) {
    const uint32_t bits = f32_bits(value);
    const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? (bits >> 16 | 0x40) : rounded);
}

INLINE float bf16_value(uint16_t code) { return f32_of_bits((uint32_t)code << 16); }

/* high + low = x to 16 bits. */
static void split_line(uint16_t *restrict high, uint16_t *restrict low, const float *restrict x, int64_t n) {
    int64_t i = 0;
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    for (; i + 8 <= n; i += 8) {
        const float32x4_t a = vld1q_f32(x + i), b = vld1q_f32(x + i + 4);
        const uint16x8_t codes = vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(a), b));
        const float32x4_t a_left = vsubq_f32(a, vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(codes), 16)));
        const float32x4_t b_left = vsubq_f32(b, vreinterpretq_f32_u32(vshll_high_n_u16(codes, 16)));
        vst1q_u16(high + i, codes);
        vst1q_u16(low + i, vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(a_left), b_left)));
    }
#endif
    for (; i < n; i++) {
        high[i] = bf16_round(x[i]);
        low[i] = bf16_round(x[i] - bf16_value(high[i]));
    }
}

/* Numbers that are converted at a time: LINE is a multiple of every width, CHUNK of every group; no panel is wider
 * than WIDEST. */
enum { LINE = 192, CHUNK = 32, WIDEST = 48 };

/* n numbers from element `at` on, `step` apart (1 in blocks). */
static void side_read(float *out, const struct gemm_side *s, int64_t at, int64_t step, int64_t n) {
    if (s->blocks) blocks_read_f32(out, s->blocks, at, n);
    else convert_to_f32(out, block_at(s->data, s->dtype, at), s->dtype, step, n);
}

/* Whether its numbers can be copied as they are. */
INLINE bool side_has(const struct gemm_side *s, tl_dtype dtype) { return s->dtype == dtype && !s->blocks; }

/* n <= LINE numbers from element `at` on, `step` apart, in the panel's format; zeros up to `n_padded`. `low`: of
 * FORMAT_SPLIT. */
INLINE void line_read(char *out, char *low, const struct gemm_side *s, int64_t at, int64_t step, int64_t n,
                      int64_t n_padded, enum format format) {
    const int number = format == FORMAT_F32 ? 4 : 2;
    float values[LINE];
    if (n < 0) n = 0;
    if (format == FORMAT_F32) {
        side_read((float *)(void *)out, s, at, step, n);
    } else if (format == FORMAT_BF16 && side_has(s, TL_BF16)) {
        const char *from = block_at(s->data, s->dtype, at);
        for (int64_t i = 0; i < n; i++) memcpy(out + 2 * i, from + 2 * i * step, 2);
    } else {
        side_read(values, s, at, step, n);
        if (format == FORMAT_SPLIT) split_line((uint16_t *)(void *)out, (uint16_t *)(void *)low, values, n);
        else
            for (int64_t i = 0; i < n; i++) ((uint16_t *)(void *)out)[i] = bf16_round(values[i]);
    }
    if (n_padded > n) memset(out + n * number, 0, (size_t)((n_padded - n) * number));
    if (format == FORMAT_SPLIT && n_padded > n) memset(low + 2 * n, 0, (size_t)(2 * (n_padded - n)));
}

/* In a thread's arena: f32 or 16-bit numbers, and the low parts of FORMAT_SPLIT. */
typedef char pack_line[LINE * 4];
typedef char pack_low_line[LINE * 2];

/* ---- Panels ------------------------------------------------------------------------------------------------------ */

/* The part to pack: n rows starting at `row`, n_k terms starting at `k`, padded with zeros to n_terms. */
struct slab {
    const struct gemm_side *side;
    int64_t row, n, k, n_k, n_terms;
};

/* Bytes of a panel. */
INLINE int64_t panel_bytes(int64_t n_terms, const int width, enum format format) {
    return n_terms * width * (format == FORMAT_BF16 ? 2 : 4);
}

INLINE void pack_slab_across(char *out, const struct slab *slab, int64_t low_at, const int width, const int group,
                             enum format format) {
    const struct gemm_side *s = slab->side;
    const int number = format == FORMAT_F32 ? 4 : 2;
    const int64_t bytes = panel_bytes(slab->n_terms, width, format);
    const bool is_ready = side_has(s, format == FORMAT_F32 ? TL_F32 : TL_BF16) && format != FORMAT_SPLIT;
    SCRATCH_ARRAY(pack_line, lines, CHUNK);
    SCRATCH_ARRAY(pack_low_line, low_lines, format == FORMAT_SPLIT ? CHUNK : 0);
    for (int64_t k = 0; k < slab->n_terms; k += CHUNK) {
        const int64_t n_terms = block_min(CHUNK, slab->n_terms - k);
        for (int64_t i = 0; i < slab->n; i += LINE) {
            const int64_t n = block_min(LINE, slab->n - i), n_panels = (n + width - 1) / width;
            const int64_t at = slab->row + i + (slab->k + k) * s->k_stride;
            const bool is_direct = is_ready && n % width == 0 && k + n_terms <= slab->n_k;
            for (int64_t p = 0; p < n_terms && !is_direct; p++)
                line_read(lines[p], low_lines[p], s, at + p * s->k_stride, 1, k + p < slab->n_k ? n : 0,
                          n_panels * width, format);
            const char *from = is_direct ? block_at(s->data, s->dtype, at) : lines[0];
            const int64_t step = is_direct ? s->k_stride * number : LINE * 4;
            for (int64_t panel = 0; panel < n_panels; panel++) {
                char *to = out + (i / width + panel) * bytes + k * width * number;
                for (int64_t p = 0; p < n_terms; p += group) {
                    const int64_t in_panel = panel * width * number;
                    pack_across(to + p * width * number, from + p * step + in_panel, step, width, group, number);
                    if (format == FORMAT_SPLIT)
                        pack_across(to + low_at + p * width * number, low_lines[p] + in_panel, LINE * 2, width, group,
                                    2);
                }
            }
        }
    }
}

INLINE void pack_slab_along(char *out, const struct slab *slab, int64_t low_at, const int width, const int group,
                            enum format format) {
    const struct gemm_side *s = slab->side;
    const int number = format == FORMAT_F32 ? 4 : 2;
    const int64_t bytes = panel_bytes(slab->n_terms, width, format);
    const bool is_ready =
        side_has(s, format == FORMAT_F32 ? TL_F32 : TL_BF16) && format != FORMAT_SPLIT && s->k_stride == 1;
    SCRATCH_ARRAY(pack_line, lines, WIDEST);
    SCRATCH_ARRAY(pack_low_line, low_lines, format == FORMAT_SPLIT ? WIDEST : 0);
    for (int64_t i = 0; i < slab->n; i += width) {
        for (int64_t k = 0; k < slab->n_terms; k += LINE) {
            const int64_t n_terms = block_min(LINE, slab->n_terms - k);
            const int64_t at = (slab->row + i) * s->stride + (slab->k + k) * s->k_stride;
            const bool is_direct = is_ready && i + width <= slab->n && k + n_terms <= slab->n_k;
            for (int64_t r = 0; r < width && !is_direct; r++)
                line_read(lines[r], low_lines[r], s, at + r * s->stride, s->k_stride,
                          i + r < slab->n ? block_min(n_terms, slab->n_k - k) : 0, n_terms, format);
            const char *from = is_direct ? block_at(s->data, s->dtype, at) : lines[0];
            const int64_t step = is_direct ? s->stride * number : LINE * 4;
            char *to = out + i / width * bytes + k * width * number;
            pack_along(to, from, step, n_terms / group, width, group * number);
            if (format == FORMAT_SPLIT)
                pack_along(to + low_at, low_lines[0], LINE * 2, n_terms / group, width, group * 2);
        }
    }
}

/* The rounded part of FORMAT_SPLIT is the first half of a panel of a and the second of a panel of b: see
 * block_split. */
INLINE void pack_slab(char *out, const struct slab *slab, const int width, const int group, enum format format,
                      bool is_b) {
    int64_t low_at = 0;
    if (format == FORMAT_SPLIT) {
        low_at = slab->n_terms * width * 2;
        if (is_b) out += low_at, low_at = -low_at;
    }
    if (slab->side->stride == 1 && slab->side->k_stride != 1) pack_slab_across(out, slab, low_at, width, group, format);
    else pack_slab_along(out, slab, low_at, width, group, format);
}

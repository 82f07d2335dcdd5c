/* quantize.cu: casts with a rounding mode, plain ones to narrow floats, and block-scaled formats.
 *
 * The bits are the cpu's: those of its encoders (tensor/convert_round.h), which work in f64, and of the rule of
 * tensor/format.h. f32, f16 and bf16 take a short way to the same bits, in f32: a thread has a span of 16 elements,
 * and neighbouring lanes that have a block together find its largest magnitude. Other dtypes take the encoders' way,
 * a thread for a block or an element. An element's random word depends on its place alone. Two f4 share a byte;
 * blocks and rows of f4 are even, so no byte belongs to two threads.
 *
 * The short way. Scales of MX are powers of two, so x / scale is exact in f32, or so small that it is rounded to
 * zero in any case. Quotients of NVFP4 are not exact: those that are so near to where another code begins that it
 * matters are left to f64, a span at a time. NF4 compares x with products that decide exactly.
 */
#include "device/cuda/ops/copy.cuh"
#include "device/cuda/shared/block_numbers.cuh"
#include "device/cuda/shared/common.cuh"
#include "device/cuda/shared/rounding.cuh"

#include "base/rng_math.h"

#include <cuda_fp8.h>

enum { SPAN = 2 * PACK }; /* elements that a thread has */

static double largest_of(tl_dtype values) { return values == TL_F8E4M3 ? 448 : values == TL_F8E5M2 ? 57344 : 6; }

__device__ inline enum convert_mode mode_of(tl_rounding mode) {
    return mode == TL_STOCHASTIC ? CONVERT_STOCHASTIC : mode == TL_SATURATE ? CONVERT_SATURATE : CONVERT_NEAREST;
}

__device__ inline uint32_t word_for(tl_rounding mode, const tl_generator &g, int64_t i) {
    const struct rng_key key = {g.seed, g.stream};
    return mode == TL_STOCHASTIC ? rng_draw_at(key, g.index + (uint64_t)i) : 0;
}
/* The word of element j of span i, which begins with a block of Philox. */
__device__ inline uint32_t span_word(tl_rounding mode, const tl_generator &g, int64_t i, int j) {
    const struct rng_key key = {g.seed, g.stream};
    const uint64_t block = (g.index + (uint64_t)i * SPAN) / 4 + (uint64_t)j / 4;
    return mode == TL_STOCHASTIC ? rng_block_at(key, block).word[j % 4] : 0;
}

/* The code of any float narrower than f64. */
__device__ __noinline__ uint32_t narrow_code(tl_dtype dtype, double x, enum convert_mode mode, uint32_t word) {
    switch (dtype) {
    case TL_F32:
        return encode(f32_format(), x, mode, word);
    case TL_F16:
        return encode(f16_format(), x, mode, word);
    case TL_BF16:
        return encode(bf16_format(), x, mode, word);
    default:
        return tiny_code<double>(dtype, x, mode, word);
    }
}

/* ---- Spans of f32, f16 and bf16 ------------------------------------------------------------------------------ */

/* A walk in spans, whose elements are `stride` apart; two aligned packs, if that is 1. */
struct spans {
    geometry<1> walk;
    const void *data;
    int64_t stride;
    bool is_aligned;
};

/* Whether x can be walked so: only a row that is alone may have elements behind its last span. */
static bool spans_set(spans *s, const tl_operand *x) {
    const tl_operand *const list[1] = {x};
    const geometry<1> g = geometry_of<1>(list);
    const int last = g.rank - 1, bytes[1] = {(int)dtype_bytes(x->dtype)};
    void *const data[1] = {x->data};
    if (!takes_spans(x->dtype) || (g.size[last] % SPAN != 0 && last > 0)) return false;
    s->is_aligned = geometry_packs(g, bytes, data, true);
    s->data = x->data;
    s->stride = g.stride[0][last];
    s->walk = g;
    s->walk.numel = g.numel / SPAN;
    s->walk.size[last] = g.size[last] / SPAN;
    s->walk.stride[0][last] = s->stride * SPAN;
    geometry_divides(&s->walk);
    return s->walk.numel > 0;
}

/* Blocks of threads for n spans; more than this loop. */
static unsigned span_blocks(int64_t n) {
    const unsigned some = 132 * 32;
    return blocks_for(n) < some ? blocks_for(n) : some;
}

template <class T> __device__ inline void span_read(const spans &s, int64_t i, float (&x)[SPAN]) {
    int64_t at[1];
    offsets_of(s.walk, i, at);
    const T *const from = (const T *)s.data + at[0];
    if (!s.is_aligned) {
        for (int j = 0; j < SPAN; j++) x[j] = value_of<float>(from[j * s.stride]);
        return;
    }
    const row_pack<T> half[2] = {row_load(from, 0), row_load(from, 1)};
    for (int h = 0; h < 2; h++) {
        float part[PACK];
        half[h].widen(part);
        for (int j = 0; j < PACK; j++) x[h * PACK + j] = part[j];
    }
}

/* The codes of a span, one behind the other. */
template <tl_dtype D> struct span_codes {
    enum { BITS = D == TL_F4E2M1 ? 4 : D == TL_F16 || D == TL_BF16 ? 16 : 8, WORDS = SPAN * BITS / 32 };
    struct alignas(WORDS < 4 ? WORDS * 4 : 16) words {
        uint32_t w[WORDS];
    } of;

    __device__ void clear() {
        for (int k = 0; k < WORDS; k++) of.w[k] = 0;
    }
    __device__ void put(int j, uint32_t code) { of.w[j * BITS / 32] |= code << j * BITS % 32; }
    __device__ uint32_t at(int j) const { return of.w[j * BITS / 32] >> j * BITS % 32 & ((1u << BITS) - 1); }
    __device__ void store(void *out, int64_t i) const { ((words *)out)[i] = of; }
};

/* ---- Rounding a span -------------------------------------------------------------------------------------------
 *
 * Numbers are finite, and those above the largest magnitude become that. `round<IS_EXACT>` rounds to nearest, `draw` at
 * random by the words that begin with the first'th. Both return whether all codes are certain. Where numbers are not
 * exact, they are off by less than 2^-22 of themselves, and a code is not certain if they are nearer than that to where
 * another begins.
 */

/* To nearest by an instruction, where the chip has one: true if so. */
template <tl_dtype D> __device__ inline bool round_by_chip(const float (&)[SPAN], span_codes<D> &) { return false; }
#if __CUDA_ARCH__ >= 890
template <tl_dtype D, __nv_fp8_interpretation_t FORMAT>
__device__ inline bool round_to_f8(const float (&x)[SPAN], span_codes<D> &codes) {
    for (int j = 0; j < SPAN; j += 4) {
        const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(x[j], x[j + 1]), __NV_SATFINITE, FORMAT);
        const uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(x[j + 2], x[j + 3]), __NV_SATFINITE, FORMAT);
        codes.of.w[j / 4] = low | high << 16;
    }
    return true;
}
__device__ inline bool round_by_chip(const float (&x)[SPAN], span_codes<TL_F8E4M3> &codes) {
    return round_to_f8<TL_F8E4M3, __NV_E4M3>(x, codes);
}
__device__ inline bool round_by_chip(const float (&x)[SPAN], span_codes<TL_F8E5M2> &codes) {
    return round_to_f8<TL_F8E5M2, __NV_E5M2>(x, codes);
}
#endif

template <tl_dtype D> struct rounding {
    static __device__ void put(span_codes<D> &codes, int j, float x, uint64_t rounded) {
        codes.put(j, (uint32_t)(rounded >> 32) | (__float_as_uint(x) >> 31 ? narrow_format<D>().sign_bit : 0));
    }
    static __device__ uint64_t place_of(float x) {
        const struct float_format format = narrow_format<D>();
        return code_place(format, min(__float_as_uint(x) & 0x7FFFFFFFu, largest_magnitude(format)));
    }
    template <bool IS_EXACT> static __device__ bool round(const float (&x)[SPAN], span_codes<D> &codes) {
        static_assert(IS_EXACT, "no quotients have such codes");
        if (round_by_chip(x, codes)) return true;
        codes.clear();
        for (int j = 0; j < SPAN; j++) {
            const uint64_t place = place_of(x[j]);
            put(codes, j, x[j], place + half_of(place));
        }
        return true;
    }
    static __device__ bool draw(const float (&x)[SPAN], struct rng_key key, uint64_t first, span_codes<D> &codes) {
        codes.clear();
        for (int b = 0; b < SPAN / 4; b++) {
            const struct rng_block four = rng_block_at(key, first / 4 + b);
            for (int j = 4 * b; j < 4 * b + 4; j++) put(codes, j, x[j], place_of(x[j]) + four.word[j % 4]);
        }
        return true;
    }
};

/* The values of f4 are 1/2, 1 and 2 apart: 0 to 2, 2 to 4, and 4 to 6. So the place of x among its codes is
 *
 *      min(2 |x|, |x| + 2, |x| / 2 + 4)
 *
 * Added to 2^23, one fma rounds each of the three to nearest, and the code is in the last bits. Added to 8 + r it
 * has 20 bits behind the point, and the place that r takes it to has its code before it; r is 1/2, or a word's upper
 * 20 bits. That is off by less than 3 of 2^-20: by 1 of a quotient's error, of 4 places at most, by 1 of the word,
 * which is cut off, and by 1/2 of the sum. */
template <> struct rounding<TL_F4E2M1> {
    static __device__ uint32_t bits_at(float x, float base) {
        const float size = fminf(fabsf(x), 6);
        const float low = fminf(__fmaf_rn(size, 2, base), size + (base + 2));
        return __float_as_uint(fminf(low, __fmaf_rn(size, 0.5f, base + 4)));
    }
    static __device__ void put(span_codes<TL_F4E2M1> &codes, int j, float x, uint32_t magnitude) {
        codes.put(j, (magnitude & 7) | (__float_as_uint(x) >> 28 & 8));
    }
    static __device__ bool is_certain(uint32_t bits) { return (bits + 3) % (1 << 20) > 6; }

    template <bool IS_EXACT> static __device__ bool round(const float (&x)[SPAN], span_codes<TL_F4E2M1> &codes) {
        bool all = true;
        codes.clear();
        for (int j = 0; j < SPAN; j++) {
            const uint32_t bits = bits_at(x[j], IS_EXACT ? 0x1p23f : 8.5f);
            put(codes, j, x[j], IS_EXACT ? bits : bits >> 20);
            all = all && (IS_EXACT || is_certain(bits));
        }
        return all;
    }
    static __device__ bool draw(const float (&x)[SPAN], struct rng_key key, uint64_t first,
                                span_codes<TL_F4E2M1> &codes) {
        bool all = true;
        codes.clear();
        for (int b = 0; b < SPAN / 4; b++) {
            const struct rng_block four = rng_block_at(key, first / 4 + b);
            for (int j = 4 * b; j < 4 * b + 4; j++) {
                const uint32_t bits = bits_at(x[j], __uint_as_float(0x41000000u + (four.word[j % 4] >> 12)));
                put(codes, j, x[j], bits >> 20);
                all = all && is_certain(bits);
            }
        }
        return all;
    }
};

template <tl_dtype D, bool IS_EXACT>
__device__ inline bool span_round(const float (&x)[SPAN], tl_rounding mode, const tl_generator &g, int64_t i,
                                  span_codes<D> &codes) {
    if (mode != TL_STOCHASTIC) return rounding<D>::template round<IS_EXACT>(x, codes);
    return rounding<D>::draw(x, {g.seed, g.stream}, g.index + (uint64_t)(i * SPAN), codes);
}

/* ---- cast_mode -------------------------------------------------------------------------------------------- */

/* The element as the encoders take it. */
__device__ inline double exact_of(const void *data, int64_t i, tl_dtype dtype) {
    return dtype < TL_I64 ? load_as<double>(data, i, dtype) : i64_to_f64_odd(load_as<int64_t>(data, i, dtype));
}

/* Rounding modes apply to floats narrower than f64. */
__device__ inline void put_rounded(void *out, int64_t i, tl_dtype dtype, const void *in, int64_t at, tl_dtype in_dtype,
                                   enum convert_mode mode, uint32_t word) {
    switch (dtype) {
    case TL_F32:
        ((uint32_t *)out)[i] = narrow_code(dtype, exact_of(in, at, in_dtype), mode, word);
        break;
    case TL_F16:
    case TL_BF16:
        ((uint16_t *)out)[i] = (uint16_t)narrow_code(dtype, exact_of(in, at, in_dtype), mode, word);
        break;
    case TL_F8E4M3:
    case TL_F8E5M2:
    case TL_F8E8M0:
        ((uint8_t *)out)[i] = (uint8_t)narrow_code(dtype, exact_of(in, at, in_dtype), mode, word);
        break;
    default:
        if (in_dtype < TL_I64) store_as<double>(out, i, dtype, load_as<double>(in, at, in_dtype));
        else store_as<int64_t>(out, i, dtype, load_as<int64_t>(in, at, in_dtype));
        break;
    }
}

/* From element `first` on. out is dense, so that element i is at i; `step` elements a thread, two for f4. */
__global__ void __launch_bounds__(BLOCK) cast_any(geometry<1> g, int64_t first, const void *in, tl_dtype in_dtype,
                                                  void *out, struct attr_cast attr, int step) {
    const enum convert_mode mode = mode_of(attr.mode);
    FOR_EACH(k, (g.numel - first) / step) {
        uint8_t codes = 0;
        for (int j = 0; j < step; j++) {
            const int64_t i = first + k * step + j;
            int64_t at[1];
            offsets_of(g, i, at);
            const uint32_t word = word_for(attr.mode, attr.generator, i);
            if (step == 1) put_rounded(out, i, attr.dtype, in, at[0], in_dtype, mode, word);
            else codes |= (uint8_t)(narrow_code(attr.dtype, exact_of(in, at[0], in_dtype), mode, word) << 4 * j);
        }
        if (step == 2) ((uint8_t *)out)[(first + k * step) / 2] = codes;
    }
}

/* NaN, and what overflows, is rare: its span goes through the encoders. Where all is held to the largest value, only
 * NaN does. */
template <class T, tl_dtype D>
__global__ void __launch_bounds__(BLOCK) cast_spans(spans s, void *out, struct attr_cast attr) {
    const uint32_t end = attr.mode == TL_SATURATE ? F32_INFINITY + 1 : overflowing_magnitude(narrow_format<D>());
    FOR_EACH(i, s.walk.numel) {
        float x[SPAN];
        uint32_t most = 0;
        span_codes<D> codes;
        span_read<T>(s, i, x);
        for (int j = 0; j < SPAN; j++) most = max(most, __float_as_uint(x[j]) & 0x7FFFFFFFu);
        if (!span_round<D, true>(x, attr.mode, attr.generator, i, codes) || most >= end) {
            codes.clear();
            for (int j = 0; j < SPAN; j++)
                codes.put(j,
                          narrow_code(D, (double)x[j], mode_of(attr.mode), span_word(attr.mode, attr.generator, i, j)));
        }
        codes.store(out, i);
    }
}

template <class T, tl_dtype D>
static bool cast_launch(const spans &s, void *out, const struct attr_cast &attr, cudaStream_t stream) {
    cast_spans<T, D><<<span_blocks(s.walk.numel), BLOCK, 0, stream>>>(s, out, attr);
    return true;
}
template <class T> static bool cast_from(const spans &s, void *out, const struct attr_cast &attr, cudaStream_t stream) {
    switch (attr.dtype) {
    case TL_F16:
        return cast_launch<T, TL_F16>(s, out, attr, stream);
    case TL_BF16:
        return cast_launch<T, TL_BF16>(s, out, attr, stream);
    case TL_F8E4M3:
        return cast_launch<T, TL_F8E4M3>(s, out, attr, stream);
    case TL_F8E5M2:
        return cast_launch<T, TL_F8E5M2>(s, out, attr, stream);
    case TL_F4E2M1:
        return cast_launch<T, TL_F4E2M1>(s, out, attr, stream);
    default:
        return false;
    }
}

/* Casts what consists of spans; the number of elements that it has cast. */
static int64_t cast_in_spans(void *out, const tl_operand *x, const struct attr_cast &attr, cudaStream_t stream) {
    spans s;
    if (x->dtype == attr.dtype || attr.generator.index % 4 != 0 || (uintptr_t)out % 16 != 0 || !spans_set(&s, x))
        return 0;
    const bool is_cast = x->dtype == TL_F32    ? cast_from<float>(s, out, attr, stream)
                         : x->dtype == TL_BF16 ? cast_from<bf16>(s, out, attr, stream)
                                               : cast_from<f16>(s, out, attr, stream);
    return is_cast ? s.walk.numel * SPAN : 0;
}

bool cast_operand(const tl_kernel_args *args, void *out, const tl_operand *x, const struct attr_cast &attr) {
    const tl_operand *const list[1] = {x};
    const geometry<1> g = geometry_of<1>(list);
    const cudaStream_t stream = stream_of(args);
    const int step = attr.dtype == TL_F4E2M1 ? 2 : 1;
    const int64_t done = g.numel ? cast_in_spans(out, x, attr, stream) : 0, rest = g.numel - done;
    if (rest) cast_any<<<blocks_for(rest / step), BLOCK, 0, stream>>>(g, done, x->data, x->dtype, out, attr, step);
    return true;
}

/* ---- The rule of format.h ------------------------------------------------------------------------------------ */

struct quantizing {
    struct format_info format;
    struct attr_quantize attr;
    geometry<1> blocks; /* where each block of x begins */
    spans in;           /* x in spans */
    const void *x;
    tl_dtype x_dtype, out_dtype;
    int64_t stride; /* of x's last axis */
    uint8_t *values, *scales;
    void *fake; /* fake_quantize: its result */
    double max; /* the largest value */
    const double *tensor_scale;
};

/* A block's scale as it is stored, from its largest magnitude. */
__device__ __noinline__ uint8_t scale_code(tl_dtype scales, int max_exponent, double max, double amax,
                                           double tensor_scale) {
    double scale = amax;
    if (amax == 0) {
        scale = scales == TL_F8E8M0 ? 0x1p-127 : 0;
    } else if (scales == TL_F8E8M0 && !isnan(amax)) {
        const int exponent = ilogb(amax) - max_exponent;
        scale = ldexp(1.0, exponent < -127 ? -127 : exponent > 127 ? 127 : exponent);
    } else if (!isnan(amax)) {
        scale = fmax(amax / (max * tensor_scale), 0x1p-9);
    }
    return tiny_code<double>(scales, scale, CONVERT_SATURATE, 0);
}

/* An element's code; by: scale x tensor scale, 0 in a block of zeros, whose elements keep their signs. */
__device__ __noinline__ uint8_t value_code(tl_dtype values, double max, double x, double by, enum convert_mode mode,
                                           uint32_t word) {
    const double v = by > 0 ? x / by : x;
    return tiny_code<double>(values, fmax(-max, fmin(max, v)), mode, word);
}

/* The number of middles between neighbouring values that are below x. */
__device__ inline double nf4_middle(int k) { return 0.5 * ((double)nf4[k] + (double)nf4[k + 1]); }
__device__ __noinline__ int nf4_code(double x) {
    int code = 0;
    for (int k = 0; k + 1 < NF4_CODES; k++) code += x > nf4_middle(k);
    return code;
}

/* ---- quantize, block by block -------------------------------------------------------------------------------- */

/* One block of x, as f64. Returns the largest magnitude; NaN when an element is not finite. */
__device__ inline double read_block(const quantizing &q, int64_t block, double *x) {
    int64_t base[1];
    offsets_of(q.blocks, block, base);
    double amax = 0;
    for (int i = 0; i < q.format.block; i++) {
        const double v = load_as<double>(q.x, base[0] + i * q.stride, q.x_dtype);
        x[i] = v;
        amax = !isfinite(v) || isnan(amax) ? (double)NAN : fmax(amax, fabs(v));
    }
    return amax;
}

__global__ void __launch_bounds__(BLOCK) quantize_blocks(quantizing q) {
    const int n = q.format.block;
    const double tensor_scale = q.tensor_scale ? *q.tensor_scale : 1;
    const enum convert_mode mode = mode_of(q.attr.mode);
    FOR_EACH(block, q.blocks.numel) {
        double x[FORMAT_MAX_BLOCK];
        const double amax = read_block(q, block, x);
        const uint8_t scale = scale_code(q.format.scales, q.format.max_exponent, q.max, amax, tensor_scale);
        const double by = tiny_load<double>(&scale, 0, q.format.scales) * tensor_scale;
        if (!q.fake) q.scales[block] = scale;
        uint8_t pair = 0;
        for (int i = 0; i < n; i++) {
            const uint8_t code = value_code(q.format.values, q.max, isnan(amax) ? 0 : x[i], amax == 0 ? 0 : by, mode,
                                            word_for(q.attr.mode, q.attr.generator, block * n + i));
            if (q.fake) {
                store_as<double>(q.fake, block * n + i, q.out_dtype, tiny_load<double>(&code, 0, q.format.values) * by);
            } else if (q.format.values != TL_F4E2M1) {
                q.values[block * n + i] = code;
            } else if (i % 2) {
                q.values[(block * n + i) / 2] = (uint8_t)(pair | code << 4);
            } else {
                pair = code;
            }
        }
    }
}

__global__ void __launch_bounds__(BLOCK) quantize_codes(quantizing q) {
    const int n = q.format.block;
    FOR_EACH(block, q.blocks.numel) {
        double x[FORMAT_MAX_BLOCK];
        const float scale = f32_of_bits(encode(f32_format(), read_block(q, block, x), CONVERT_SATURATE, 0));
        if (!q.fake) ((float *)q.scales)[block] = scale;
        for (int i = 0; i < n; i += 2) {
            int code[2];
            for (int j = 0; j < 2; j++) code[j] = scale > 0 ? nf4_code(x[i + j] / (double)scale) : (int)NF4_ZERO;
            if (!q.fake) q.values[(block * n + i) / 2] = (uint8_t)(code[0] << 4 | code[1]);
            for (int j = 0; q.fake && j < 2; j++)
                store_as<double>(q.fake, block * n + i + j, q.out_dtype, (double)nf4[code[j]] * (double)scale);
        }
    }
}

/* ---- What quantized numbers stand for ------------------------------------------------------------------------- */

/* Span i of the result is x by, rounded once; NaN where a block is not finite. IS_ONE: by is 1. No x but 0 is below
 * 2^-10. */
template <class T, bool IS_ONE>
__device__ inline void span_give_back(void *out, int64_t i, const float (&x)[SPAN], float by, uint32_t amax) {
    T *const to = (T *)out + i * SPAN;
    if (amax >= F32_INFINITY || (!IS_ONE && by < 0x1p-70f)) {
        for (int j = 0; j < SPAN; j++) {
            if (amax >= F32_INFINITY) set_nan(to[j], false);
            else to[j] = rounded_product<T>::of(x[j], by);
        }
        return;
    }
    for (int h = 0; h < 2; h++) {
        float part[PACK];
        row_pack<T> y;
        for (int j = 0; j < PACK; j++) {
            const float own = x[h * PACK + j];
            part[j] = IS_ONE ? own : rounded_product<T>::usual(own, by);
        }
        y.narrow(part);
        row_store(to, h, y);
    }
}

/* ---- quantize, in spans --------------------------------------------------------------------------------------- */

/* The largest magnitude of the spans of LANES neighbouring lanes, as bits: those of infinity, or more, if an element is
 * not finite. */
template <int LANES> __device__ inline uint32_t lanes_amax(const float (&x)[SPAN]) {
    const unsigned lanes = ((1u << LANES) - 1) << threadIdx.x % 32 / LANES * LANES;
    uint32_t most = 0;
    for (int j = 0; j < SPAN; j++) most = max(most, __float_as_uint(x[j]) & 0x7FFFFFFFu);
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        most = max(most, __shfl_xor_sync(lanes, most, distance));
    return most;
}

/* A block's scale as it is stored, and its value; what elements are multiplied by, and whether that gives quotients as
 * near as `rounding` expects. */
struct block_scale {
    uint8_t code;
    float value, inverse;
    bool is_near;
};

/* An f32's exponent field is its logarithm, rounded down; subnormal numbers have the lowest scale in any case. */
template <tl_dtype SCALES> __device__ inline block_scale scale_of(const quantizing &q, uint32_t amax, float) {
    if (amax >= F32_INFINITY) return {E8M0_NAN, NAN, 0, true};
    const int code = max((int)(amax >> 23) - q.format.max_exponent, 0);
    return {(uint8_t)code, f8e8m0_to_f32((uint8_t)code), __uint_as_float((uint32_t)(254 - code) << 23), true};
}

/* amax / (6 t) is made of three numbers that are rounded, each off by at most 2^-24 of itself: 6 t, its inverse, and
 * the product. So is x / (scale t), where scale t is neither very small nor very large. The place of amax / (6 t)
 * among the codes is off by less than 2^-22 of the 16 units that it has at most, 2^14 of 2^-32. */
template <> __device__ inline block_scale scale_of<TL_F8E4M3>(const quantizing &q, uint32_t amax, float whole) {
    const struct float_format format = f8e4m3_format();
    if (amax >= F32_INFINITY) return {(uint8_t)format.nan_code, NAN, 0, true};
    if (amax == 0) return {0, 0, 1, true};
    const float scale = __uint_as_float(amax) * __frcp_rn((float)q.max * whole);
    const uint64_t place = code_place(format, min(__float_as_uint(scale), largest_magnitude(format)));
    const uint64_t rounded = place + half_of(place);
    const bool is_certain = (uint32_t)rounded + (1 << 15) > 1 << 16;
    const uint32_t code = is_certain ? max((uint32_t)(rounded >> 32), 1u)
                                     : scale_code(TL_F8E4M3, 0, q.max, (double)__uint_as_float(amax), (double)whole);
    const float value = code_value(format, code), by = value * whole;
    return {(uint8_t)code, value, __frcp_rn(by), by > 0x1p-120f && by < 0x1p120f};
}

/* The codes of a span, by f64. */
template <tl_dtype D>
__device__ inline void span_decide(const quantizing &q, const float (&x)[SPAN], double by, int64_t i,
                                   span_codes<D> &codes) {
    codes.clear();
    for (int j = 0; j < SPAN; j++)
        codes.put(j, value_code(D, q.max, (double)x[j], by, mode_of(q.attr.mode),
                                span_word(q.attr.mode, q.attr.generator, i, j)));
}

template <class T, tl_dtype VALUES, tl_dtype SCALES, int LANES>
__global__ void __launch_bounds__(BLOCK) quantize_spans(quantizing q) {
    const bool IS_MX = SCALES == TL_F8E8M0;
    const float whole = q.tensor_scale ? (float)*q.tensor_scale : 1;
    FOR_EACH(i, q.in.walk.numel) {
        float x[SPAN], scaled[SPAN];
        span_codes<VALUES> codes;
        span_read<T>(q.in, i, x);
        const uint32_t amax = lanes_amax<LANES>(x);
        const block_scale scale = scale_of<SCALES>(q, amax, whole);
        for (int j = 0; j < SPAN; j++) scaled[j] = x[j] * scale.inverse;
        const bool is_certain = span_round<VALUES, IS_MX>(scaled, q.attr.mode, q.attr.generator, i, codes);
        if (amax >= F32_INFINITY) codes.clear();
        else if (!is_certain || !scale.is_near) span_decide(q, x, (double)scale.value * (double)whole, i, codes);
        if (q.fake) {
            for (int j = 0; j < SPAN; j++) x[j] = code_value(narrow_format<VALUES>(), codes.at(j)) * scale.value;
            span_give_back<T, IS_MX>(q.fake, i, x, whole, amax);
        } else {
            codes.store(q.values, i);
            if (i % LANES == 0) q.scales[i / LANES] = scale.code;
        }
    }
}

/* ---- Codes of NF4 in spans ---- */

/* Between -1 and 1 are 32 cells, none of which has more than one middle; a middle is exactly the sum of two f32, and
 * none is near a border of cells. `code`: the number of middles below the cell. */
struct nf4_cells {
    float value[NF4_CODES], high[32], low[32];
    int code[32];
};
__device__ inline void cells_fill(nf4_cells &cells) {
    const int i = threadIdx.x;
    if (i < NF4_CODES) cells.value[i] = nf4[i];
    if (i < 32) {
        const double begin = i / 16.0 - 1;
        const int code = nf4_code(begin);
        const bool has_middle = code + 1 < NF4_CODES && nf4_middle(code) < begin + 1 / 16.0;
        const double middle = has_middle ? nf4_middle(code) : INFINITY;
        cells.code[i] = code;
        cells.high[i] = (float)middle;
        cells.low[i] = has_middle ? (float)(middle - (double)(float)middle) : 0;
    }
    __syncthreads();
}

/* x / s > middle where x > middle s: the two sides of that have at most 24 and 50 bits, so they are equal or further
 * apart than f64 rounds a quotient. With the middle as high + low it is x - high s > low s. low is a power of two,
 * or 0, so low s is exact, and the difference is too where it is nearly that, if s is not so small that its last
 * bits are lost. */
__device__ inline int cell_code(const nf4_cells &cells, float x, float s, float inverse) {
    const int cell = min(max((int)__fmaf_rn(x * inverse, 16, 16), 0), 31);
    return cells.code[cell] + (__fmaf_rn(-cells.high[cell], s, x) > cells.low[cell] * s);
}

template <class T> __global__ void __launch_bounds__(BLOCK) quantize_code_spans(quantizing q) {
    enum { LANES = 64 / SPAN };
    __shared__ nf4_cells cells;
    cells_fill(cells);
    FOR_EACH(i, q.in.walk.numel) {
        float x[SPAN];
        span_codes<TL_F4E2M1> codes;
        span_read<T>(q.in, i, x);
        const uint32_t amax = lanes_amax<LANES>(x);
        const float scale = __uint_as_float(amax < F32_INFINITY ? amax : f32_format().nan_code);
        codes.clear(); /* the first code of a byte is in its upper half */
        if (scale > 0x1p-60f && scale < 0x1p120f) {
            const float inverse = __frcp_rn(scale);
            for (int j = 0; j < SPAN; j++) codes.put(j ^ 1, (uint32_t)cell_code(cells, x[j], scale, inverse));
        } else {
            for (int j = 0; j < SPAN; j++)
                codes.put(j ^ 1, scale > 0 ? (uint32_t)nf4_code((double)x[j] / (double)scale) : (uint32_t)NF4_ZERO);
        }
        if (q.fake) {
            for (int j = 0; j < SPAN; j++) x[j] = cells.value[codes.at(j ^ 1)];
            span_give_back<T, false>(q.fake, i, x, scale, amax);
        } else {
            codes.store(q.values, i);
            if (i % LANES == 0) ((float *)q.scales)[i / LANES] = scale;
        }
    }
}

/* ---- The scale of a tensor ---- */

/* fmax ignores NaN: blocks that are not finite do not count. */
struct number_max {
    __device__ double operator()(double a, double b) const { return fmax(a, b); }
};

/* A block of threads per QUANTIZE_CHUNK blocks of x. */
__global__ void __launch_bounds__(QUANTIZE_CHUNK) find_amax(quantizing q, int64_t n_chunks, double *chunk_amax) {
    for (int64_t chunk = blockIdx.x; chunk < n_chunks; chunk += gridDim.x) {
        const int64_t block = chunk * QUANTIZE_CHUNK + threadIdx.x;
        double x[FORMAT_MAX_BLOCK];
        const double amax = block < q.blocks.numel ? read_block(q, block, x) : 0;
        const double largest = block_reduce(isnan(amax) ? 0 : amax, number_max(), 0.0);
        if (threadIdx.x == 0) chunk_amax[chunk] = largest;
    }
}

/* The same for x in spans, of which each is a block. */
template <class T>
__global__ void __launch_bounds__(QUANTIZE_CHUNK) find_amax_spans(spans s, int64_t n_chunks, double *chunk_amax) {
    for (int64_t chunk = blockIdx.x; chunk < n_chunks; chunk += gridDim.x) {
        const int64_t i = chunk * QUANTIZE_CHUNK + threadIdx.x;
        float x[SPAN] = {};
        if (i < s.walk.numel) span_read<T>(s, i, x);
        const uint32_t amax = lanes_amax<1>(x);
        const uint32_t largest = block_reduce(amax < F32_INFINITY ? amax : 0u, max_of(), 0u);
        if (threadIdx.x == 0) chunk_amax[chunk] = (double)__uint_as_float(largest);
    }
}

/* amax / (448 x 6): the largest block's scale is then the largest that the format has. Written to the output, if it
 * is one, and as f64 to the start of the workspace. */
enum { SCALE_THREADS = 1024 };
__global__ void __launch_bounds__(SCALE_THREADS)
    find_tensor_scale(double *chunk_amax, int64_t n_chunks, double max, float *out) {
    double amax = 0;
#pragma unroll 4
    for (int64_t chunk = threadIdx.x; chunk < n_chunks; chunk += blockDim.x) amax = fmax(amax, chunk_amax[chunk]);
    amax = block_reduce(amax, number_max(), 0.0);
    if (threadIdx.x != 0) return;
    const double scale = fmax(amax / (448 * max), 0x1p-126);
    const float rounded = amax == 0 ? 1.0f : f32_of_bits(encode(f32_format(), scale, CONVERT_SATURATE, 0));
    if (out) *out = rounded;
    if (n_chunks > 0) chunk_amax[0] = (double)rounded;
}

/* ---- The ops --------------------------------------------------------------------------------------------------- */

/* Whether a call takes the short way: x consists of spans, and results begin where packs may. */
static bool quantize_in_spans(const tl_kernel_args *args, quantizing *q) {
    const bool is_aligned = (uintptr_t)args->out[0].data % 16 == 0;
    return is_aligned && q->attr.generator.index % 4 == 0 && spans_set(&q->in, &args->in[0]);
}

static bool find_scale(const tl_kernel_args *args, quantizing *q, bool has_spans) {
    const int64_t n_chunks = (q->blocks.numel + QUANTIZE_CHUNK - 1) / QUANTIZE_CHUNK;
    const unsigned grid = capped(n_chunks);
    const cudaStream_t stream = stream_of(args);
    double *chunk_amax = (double *)args->workspace;
    if (args->workspace_bytes < (size_t)n_chunks * sizeof(double)) {
        snprintf(args->error, CUDA_ERROR_BYTES, "%s: too little workspace (%zu bytes)", args->op,
                 args->workspace_bytes);
        return false;
    }
    if (n_chunks > 0 && !has_spans) find_amax<<<grid, QUANTIZE_CHUNK, 0, stream>>>(*q, n_chunks, chunk_amax);
    else if (n_chunks > 0 && q->x_dtype == TL_F32)
        find_amax_spans<float><<<grid, QUANTIZE_CHUNK, 0, stream>>>(q->in, n_chunks, chunk_amax);
    else if (n_chunks > 0 && q->x_dtype == TL_BF16)
        find_amax_spans<bf16><<<grid, QUANTIZE_CHUNK, 0, stream>>>(q->in, n_chunks, chunk_amax);
    else if (n_chunks > 0) find_amax_spans<f16><<<grid, QUANTIZE_CHUNK, 0, stream>>>(q->in, n_chunks, chunk_amax);
    float *const out = args->n_out > 2 ? (float *)args->out[2].data : nullptr;
    find_tensor_scale<<<1, SCALE_THREADS, 0, stream>>>(chunk_amax, n_chunks, q->max, out);
    q->tensor_scale = chunk_amax;
    return true;
}

template <class T> static void launch_spans(const quantizing &q, cudaStream_t stream) {
    const unsigned blocks = span_blocks(q.in.walk.numel);
    const tl_dtype values = q.format.values;
    if (q.format.has_codes) quantize_code_spans<T><<<blocks, BLOCK, 0, stream>>>(q);
    else if (q.format.has_tensor_scale)
        quantize_spans<T, TL_F4E2M1, TL_F8E4M3, 16 / SPAN><<<blocks, BLOCK, 0, stream>>>(q);
    else if (values == TL_F4E2M1) quantize_spans<T, TL_F4E2M1, TL_F8E8M0, 32 / SPAN><<<blocks, BLOCK, 0, stream>>>(q);
    else if (values == TL_F8E4M3) quantize_spans<T, TL_F8E4M3, TL_F8E8M0, 32 / SPAN><<<blocks, BLOCK, 0, stream>>>(q);
    else quantize_spans<T, TL_F8E5M2, TL_F8E8M0, 32 / SPAN><<<blocks, BLOCK, 0, stream>>>(q);
}

static void quantizing_set(const tl_kernel_args *args, bool is_fake, quantizing *q) {
    const tl_operand *x = &args->in[0];
    const int last = x->rank - 1;
    q->attr = *(const struct attr_quantize *)args->attr;
    q->format = format_of(q->attr.format);
    q->x = x->data;
    q->x_dtype = x->dtype;
    q->stride = x->stride[last];
    q->max = largest_of(q->format.values);
    if (is_fake) q->fake = args->out[0].data;
    else q->values = (uint8_t *)args->out[0].data;
    if (!is_fake) q->scales = (uint8_t *)args->out[1].data;
    q->out_dtype = args->out[0].dtype;
    int64_t shape[TL_MAX_RANK], stride[TL_MAX_RANK]; /* x, with the last axis counted in blocks */
    for (int i = 0; i <= last; i++) {
        shape[i] = i == last ? x->shape[i] / q->format.block : x->shape[i];
        stride[i] = i == last ? x->stride[i] * q->format.block : x->stride[i];
    }
    tl_operand starts = *x;
    starts.shape = shape;
    starts.stride = stride;
    const tl_operand *const list[1] = {&starts};
    q->blocks = geometry_of<1>(list);
}

static bool run_blocks(const tl_kernel_args *args, bool is_fake) {
    quantizing q = {};
    const cudaStream_t stream = stream_of(args);
    if (!dtype_is_known(args->in[0].dtype)) return cuda_refuse_dtype(args, args->in[0].dtype);
    quantizing_set(args, is_fake, &q);
    const int64_t n_blocks = q.blocks.numel;
    const bool has_spans = n_blocks > 0 && quantize_in_spans(args, &q);
    if (q.format.has_tensor_scale && !find_scale(args, &q, has_spans)) return false;
    if (n_blocks == 0) return true;
    if (has_spans && q.x_dtype == TL_F32) launch_spans<float>(q, stream);
    else if (has_spans && q.x_dtype == TL_BF16) launch_spans<bf16>(q, stream);
    else if (has_spans) launch_spans<f16>(q, stream);
    else if (q.format.has_codes) quantize_codes<<<blocks_for(n_blocks), BLOCK, 0, stream>>>(q);
    else quantize_blocks<<<blocks_for(n_blocks), BLOCK, 0, stream>>>(q);
    return true;
}

/* ---- dequantize -------------------------------------------------------------------------------------------- */

/* A thread has the two elements of a byte. */
__global__ void __launch_bounds__(BLOCK)
    dequantize_codes(int block, const uint8_t *values, const float *scales, int64_t n, void *out, tl_dtype dtype) {
    __shared__ double table[NF4_CODES];
    if (threadIdx.x < NF4_CODES) table[threadIdx.x] = (double)nf4[threadIdx.x];
    __syncthreads();
    FOR_EACH(i, n) {
        const double scale = (double)scales[2 * i / block];
        store_as<double>(out, 2 * i, dtype, table[values[i] >> 4] * scale);
        store_as<double>(out, 2 * i + 1, dtype, table[values[i] & 15] * scale);
    }
}

/* value x (scale [x tensor scale]), which f64 holds exactly, rounded once */
__global__ void __launch_bounds__(BLOCK)
    dequantize_any(struct format_info format, const void *values, const void *scales, const float *tensor_scale,
                   int64_t n, void *out, tl_dtype dtype) {
    const double whole = tensor_scale ? (double)*tensor_scale : 1;
    FOR_EACH(i, n) {
        const double scale = tiny_load<double>(scales, i / format.block, format.scales) * whole;
        store_as<double>(out, i, dtype, tiny_load<double>(values, i, format.values) * scale);
    }
}

/* Of the NaN that a product of these is. */
template <int BITS> __device__ inline bool nan_is_negative(const packed &p, const tables &t, int64_t at) {
    const uint32_t value = BITS == 8 ? f32_bits(t.value[p.values[at]]) : 0;
    const bool is_own = (value & 0x7FFFFFFFu) > F32_INFINITY;
    return (is_own ? value : f32_bits(numbers_scale(p, t, at))) >> 31;
}

template <class T, int BITS> __global__ void __launch_bounds__(BLOCK) dequantize_packs(packed p, T *out) {
    __shared__ tables t;
    tables_fill<BITS>(t, p);
    FOR_EACH(i, p.n * p.k / PACK) {
        unit<T, PACK> u;
        bool has_nan = false;
        numbers_read<T, BITS>(p, t, i * PACK, u.v);
        for (int j = 0; j < PACK; j++) has_nan = has_nan || isnan(value_of<float>(u.v[j]));
        if (has_nan)
            for (int j = 0; j < PACK; j++)
                if (isnan(value_of<float>(u.v[j]))) set_nan(u.v[j], nan_is_negative<BITS>(p, t, i * PACK + j));
        unit_store<PACK>(out, i, u);
    }
}

enum { PACKS_EACH = 8 }; /* of a thread, since each block of threads makes tables */

template <class T> static void dequantize_launch(const packed &p, void *out, cudaStream_t stream) {
    const unsigned blocks = blocks_for((p.n * p.k / PACK + PACKS_EACH - 1) / PACKS_EACH);
    if (p.format.has_codes || p.format.values == TL_F4E2M1)
        dequantize_packs<T, 4><<<blocks, BLOCK, 0, stream>>>(p, (T *)out);
    else dequantize_packs<T, 8><<<blocks, BLOCK, 0, stream>>>(p, (T *)out);
}

/* False if that is not for this call: another dtype, or parts that do not begin where packs may. */
static bool dequantize_in_packs(const packed &p, const tl_operand *out, cudaStream_t stream) {
    const bool is_aligned = (uintptr_t)p.values % PACK == 0 && (uintptr_t)out->data % 16 == 0;
    if (!is_aligned || !takes_spans(out->dtype)) return false;
    if (out->dtype == TL_F32) dequantize_launch<float>(p, out->data, stream);
    else if (out->dtype == TL_BF16) dequantize_launch<bf16>(p, out->data, stream);
    else dequantize_launch<f16>(p, out->data, stream);
    return true;
}

extern "C" {

bool cuda_cast_mode(const tl_kernel_args *args) {
    return cast_operand(args, args->out[0].data, &args->in[0], *(const struct attr_cast *)args->attr);
}

bool cuda_quantize(const tl_kernel_args *args) { return run_blocks(args, false); }
bool cuda_fake_quantize(const tl_kernel_args *args) { return run_blocks(args, true); }

bool cuda_dequantize(const tl_kernel_args *args) {
    const struct attr_dequantize *attr = (const struct attr_dequantize *)args->attr;
    const tl_operand *out = &args->out[0];
    const int64_t n = operand_numel(&args->in[0]);
    packed p = {};
    p.format = format_of(attr->format);
    p.values = (const uint8_t *)args->in[0].data;
    p.scales = args->in[1].data;
    p.tensor_scale = args->n_in == 3 ? (const float *)args->in[2].data : nullptr;
    p.n = 1;
    p.k = p.format.has_codes ? 2 * n : n;
    if (n == 0 || dequantize_in_packs(p, out, stream_of(args))) return true;
    if (p.format.has_codes)
        dequantize_codes<<<blocks_for(n), BLOCK, 0, stream_of(args)>>>(
            p.format.block, p.values, (const float *)p.scales, n, out->data, out->dtype);
    else
        dequantize_any<<<blocks_for(n), BLOCK, 0, stream_of(args)>>>(p.format, p.values, p.scales, p.tensor_scale, n,
                                                                     out->data, out->dtype);
    return true;
}

} /* extern "C" */

/* quantize.cu: casts with a rounding mode, and block-scaled formats.
 *
 * Everything passes through f64, by the cpu's own encoders (tensor/convert_round.h) and the rule of tensor/format.h:
 * the bits are the cpu's. A thread has a block; an element's random word depends on its place alone. Two f4 share a
 * byte; blocks and rows of f4 are even, so no byte belongs to two threads.
 */
#include "device/cuda/shared/common.cuh"
#include "device/cuda/shared/formats.cuh"

#include "base/rng_math.h"

static double largest_of(tl_dtype values) { return values == TL_F8E4M3 ? 448 : values == TL_F8E5M2 ? 57344 : 6; }

__device__ inline enum convert_mode mode_of(tl_rounding mode) {
    return mode == TL_STOCHASTIC ? CONVERT_STOCHASTIC : mode == TL_SATURATE ? CONVERT_SATURATE : CONVERT_NEAREST;
}

__device__ inline uint32_t word_for(tl_rounding mode, const tl_generator &g, int64_t i) {
    const struct rng_key key = {g.seed, g.stream};
    return mode == TL_STOCHASTIC ? rng_draw_at(key, g.index + (uint64_t)i) : 0;
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
        ((uint32_t *)out)[i] = encode(f32_format(), exact_of(in, at, in_dtype), mode, word);
        break;
    case TL_F16:
        ((uint16_t *)out)[i] = (uint16_t)encode(f16_format(), exact_of(in, at, in_dtype), mode, word);
        break;
    case TL_BF16:
        ((uint16_t *)out)[i] = (uint16_t)encode(bf16_format(), exact_of(in, at, in_dtype), mode, word);
        break;
    case TL_F8E4M3:
    case TL_F8E5M2:
    case TL_F8E8M0:
        ((uint8_t *)out)[i] = tiny_code<double>(dtype, exact_of(in, at, in_dtype), mode, word);
        break;
    default:
        if (in_dtype < TL_I64) store_as<double>(out, i, dtype, load_as<double>(in, at, in_dtype));
        else store_as<int64_t>(out, i, dtype, load_as<int64_t>(in, at, in_dtype));
        break;
    }
}

/* out is dense, so that element i is at i; `step` elements a thread, two for f4. */
__global__ void __launch_bounds__(BLOCK)
    cast_any(geometry<1> g, const void *in, tl_dtype in_dtype, void *out, struct attr_cast attr, int step) {
    const enum convert_mode mode = mode_of(attr.mode);
    FOR_EACH(k, g.numel / step) {
        uint8_t codes = 0;
        for (int j = 0; j < step; j++) {
            const int64_t i = k * step + j;
            int64_t at[1];
            offsets_of(g, i, at);
            const uint32_t word = word_for(attr.mode, attr.generator, i);
            if (step == 1) put_rounded(out, i, attr.dtype, in, at[0], in_dtype, mode, word);
            else codes |= (uint8_t)(tiny_code<double>(attr.dtype, exact_of(in, at[0], in_dtype), mode, word) << 4 * j);
        }
        if (step == 2) ((uint8_t *)out)[k] = codes;
    }
}

/* ---- quantize ---------------------------------------------------------------------------------------------- */

struct quantizing {
    struct format_info format;
    struct attr_quantize attr;
    geometry<1> blocks; /* where each block of x begins */
    const void *x;
    tl_dtype x_dtype, out_dtype;
    int64_t stride; /* of x's last axis */
    uint8_t *values, *scales;
    void *fake; /* fake_quantize: its result */
    double max; /* the largest value */
    const double *tensor_scale;
};

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

/* The rule of format.h: a block's scale as it is stored; *by: the divisor of its elements (0: a block of zeros). */
__device__ inline uint8_t make_scale(const quantizing &q, double amax, double tensor_scale, double *by) {
    double scale = amax;
    if (amax == 0) {
        scale = q.format.scales == TL_F8E8M0 ? 0x1p-127 : 0;
    } else if (q.format.scales == TL_F8E8M0 && !isnan(amax)) {
        const int exponent = ilogb(amax) - q.format.max_exponent;
        scale = ldexp(1.0, exponent < -127 ? -127 : exponent > 127 ? 127 : exponent);
    } else if (!isnan(amax)) {
        scale = fmax(amax / (q.max * tensor_scale), 0x1p-9);
    }
    const uint8_t code = tiny_code<double>(q.format.scales, scale, CONVERT_SATURATE, 0);
    *by = amax == 0 ? 0 : tiny_load<double>(&code, 0, q.format.scales) * tensor_scale;
    return code;
}

__global__ void __launch_bounds__(BLOCK) quantize_blocks(quantizing q) {
    const int n = q.format.block;
    const double tensor_scale = q.tensor_scale ? *q.tensor_scale : 1;
    const enum convert_mode mode = mode_of(q.attr.mode);
    FOR_EACH(block, q.blocks.numel) {
        double x[FORMAT_MAX_BLOCK], by;
        const double amax = read_block(q, block, x);
        const uint8_t scale = make_scale(q, amax, tensor_scale, &by);
        const double back = tiny_load<double>(&scale, 0, q.format.scales) * tensor_scale;
        if (!q.fake) q.scales[block] = scale;
        uint8_t pair = 0;
        for (int i = 0; i < n; i++) {
            const double v = by > 0 ? x[i] / by : isnan(amax) ? 0 : x[i]; /* zeros keep their signs */
            const uint8_t code = tiny_code<double>(q.format.values, fmax(-q.max, fmin(q.max, v)), mode,
                                                   word_for(q.attr.mode, q.attr.generator, block * n + i));
            if (q.fake) {
                store_as<double>(q.fake, block * n + i, q.out_dtype,
                                 tiny_load<double>(&code, 0, q.format.values) * back);
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

/* ---- Codes of NF4 ---- */

/* The number of middles between neighbouring values that are below x. */
__device__ inline int nf4_code(double x) {
    int code = 0;
    for (int k = 0; k + 1 < NF4_CODES; k++) code += x > 0.5 * ((double)nf4[k] + (double)nf4[k + 1]);
    return code;
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

/* fmax ignores NaN: blocks that are not finite do not count. */
struct number_max {
    __device__ double operator()(double a, double b) const { return fmax(a, b); }
};

/* A block of threads per QUANTIZE_CHUNK blocks of x. */
__global__ void __launch_bounds__(QUANTIZE_CHUNK) find_amax(quantizing q, double *chunk_amax) {
    const int64_t n_chunks = (q.blocks.numel + QUANTIZE_CHUNK - 1) / QUANTIZE_CHUNK;
    for (int64_t chunk = blockIdx.x; chunk < n_chunks; chunk += gridDim.x) {
        const int64_t block = chunk * QUANTIZE_CHUNK + threadIdx.x;
        double x[FORMAT_MAX_BLOCK];
        const double amax = block < q.blocks.numel ? read_block(q, block, x) : 0;
        const double largest = block_reduce(isnan(amax) ? 0 : amax, number_max(), 0.0);
        if (threadIdx.x == 0) chunk_amax[chunk] = largest;
    }
}

/* amax / (448 x 6): the largest block's scale is then the largest that the format has. Written to the output, if it
 * is one, and as f64 to the start of the workspace. */
__global__ void __launch_bounds__(BLOCK)
    find_tensor_scale(double *chunk_amax, int64_t n_chunks, double max, float *out) {
    double amax = 0;
    for (int64_t chunk = threadIdx.x; chunk < n_chunks; chunk += blockDim.x) amax = fmax(amax, chunk_amax[chunk]);
    amax = block_reduce(amax, number_max(), 0.0);
    if (threadIdx.x != 0) return;
    const double scale = fmax(amax / (448 * max), 0x1p-126);
    const float rounded = amax == 0 ? 1.0f : f32_of_bits(encode(f32_format(), scale, CONVERT_SATURATE, 0));
    if (out) *out = rounded;
    if (n_chunks > 0) chunk_amax[0] = (double)rounded;
}

static bool run_blocks(const tl_kernel_args *args, bool is_fake) {
    quantizing q = {};
    const tl_operand *x = &args->in[0];
    const int last = x->rank - 1;
    const cudaStream_t stream = stream_of(args);
    if (!dtype_is_known(x->dtype)) return cuda_refuse_dtype(args, x->dtype);
    q.attr = *(const struct attr_quantize *)args->attr;
    q.format = format_of(q.attr.format);
    q.x = x->data;
    q.x_dtype = x->dtype;
    q.stride = x->stride[last];
    q.max = largest_of(q.format.values);
    if (is_fake) q.fake = args->out[0].data;
    else q.values = (uint8_t *)args->out[0].data;
    if (!is_fake) q.scales = (uint8_t *)args->out[1].data;
    q.out_dtype = args->out[0].dtype;
    int64_t shape[TL_MAX_RANK], stride[TL_MAX_RANK]; /* x, with the last axis counted in blocks */
    for (int i = 0; i <= last; i++) {
        shape[i] = i == last ? x->shape[i] / q.format.block : x->shape[i];
        stride[i] = i == last ? x->stride[i] * q.format.block : x->stride[i];
    }
    tl_operand starts = *x;
    starts.shape = shape;
    starts.stride = stride;
    const tl_operand *const list[1] = {&starts};
    q.blocks = geometry_of<1>(list);
    const int64_t n_blocks = q.blocks.numel, n_chunks = (n_blocks + QUANTIZE_CHUNK - 1) / QUANTIZE_CHUNK;
    if (q.format.has_tensor_scale) {
        double *chunk_amax = (double *)args->workspace;
        if (args->workspace_bytes < (size_t)n_chunks * sizeof(double)) {
            snprintf(args->error, CUDA_ERROR_BYTES, "%s: too little workspace (%zu bytes)", args->op,
                     args->workspace_bytes);
            return false;
        }
        if (n_chunks > 0) find_amax<<<capped(n_chunks), QUANTIZE_CHUNK, 0, stream>>>(q, chunk_amax);
        find_tensor_scale<<<1, BLOCK, 0, stream>>>(chunk_amax, n_chunks, q.max,
                                                   is_fake ? nullptr : (float *)args->out[2].data);
        q.tensor_scale = chunk_amax;
    }
    if (n_blocks == 0) return true;
    if (q.format.has_codes) quantize_codes<<<blocks_for(n_blocks), BLOCK, 0, stream>>>(q);
    else quantize_blocks<<<blocks_for(n_blocks), BLOCK, 0, stream>>>(q);
    return true;
}

/* ---- dequantize -------------------------------------------------------------------------------------------- */

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

extern "C" {

bool cuda_cast_mode(const tl_kernel_args *args) {
    const struct attr_cast *attr = (const struct attr_cast *)args->attr;
    const tl_operand *x = &args->in[0];
    const tl_operand *const list[1] = {x};
    const geometry<1> g = geometry_of<1>(list);
    const int step = attr->dtype == TL_F4E2M1 ? 2 : 1;
    if (g.numel == 0) return true;
    cast_any<<<blocks_for(g.numel / step), BLOCK, 0, stream_of(args)>>>(g, x->data, x->dtype, args->out[0].data, *attr,
                                                                        step);
    return true;
}

bool cuda_quantize(const tl_kernel_args *args) { return run_blocks(args, false); }
bool cuda_fake_quantize(const tl_kernel_args *args) { return run_blocks(args, true); }

bool cuda_dequantize(const tl_kernel_args *args) {
    const struct attr_dequantize *attr = (const struct attr_dequantize *)args->attr;
    const int64_t n = operand_numel(&args->in[0]);
    const float *tensor_scale = args->n_in == 3 ? (const float *)args->in[2].data : nullptr;
    const struct format_info format = format_of(attr->format);
    if (n == 0) return true;
    if (format.has_codes) {
        dequantize_codes<<<blocks_for(n), BLOCK, 0, stream_of(args)>>>(format.block, (const uint8_t *)args->in[0].data,
                                                                       (const float *)args->in[1].data, n,
                                                                       args->out[0].data, args->out[0].dtype);
        return true;
    }
    dequantize_any<<<blocks_for(n), BLOCK, 0, stream_of(args)>>>(
        format, args->in[0].data, args->in[1].data, tensor_scale, n, args->out[0].data, args->out[0].dtype);
    return true;
}

} /* extern "C" */

/* copy.cu: copies, conversions, and putting a view's gradient back into its base. */
#include "device/cuda/ops/copy.cuh"
#include "device/cuda/shared/rounding.cuh"

/* ---- copy and assign ---------------------------------------------------------------------------------- */

/* From floats through f64, which holds every one of them; from integers through i64: one rounding in all. */
template <class C>
__global__ void __launch_bounds__(BLOCK)
    copy_any(geometry<2> g, void *to, tl_dtype to_dtype, const void *from, tl_dtype from_dtype) {
    FOR_EACH(i, g.numel) {
        int64_t at[2];
        offsets_of(g, i, at);
        store_as<C>(to, at[0], to_dtype, load_as<C>(from, at[1], from_dtype));
    }
}

/* The same bytes: T only gives the element size. */
template <class T> __device__ inline T converted(T x, T *) { return x; }
__device__ inline bf16 converted(float x, bf16 *) { return __float2bfloat16_rn(x); }
__device__ inline f16 converted(float x, f16 *) { return __float2half_rn(x); }
__device__ inline float converted(bf16 x, float *) { return __bfloat162float(x); }
__device__ inline float converted(f16 x, float *) { return __half2float(x); }

/* A float of 8 or 4 bits. f32 and bf16 have all of its numbers, f16 those of all but f8e8m0. */
template <tl_dtype D> struct tiny { uint8_t code; };
template <tl_dtype D> __device__ inline float converted(tiny<D> x, float *) {
    return __uint_as_float(code_bits<D>(x.code));
}
template <tl_dtype D> __device__ inline bf16 converted(tiny<D> x, bf16 *) {
    return bf16_of_bits(code_bits<D>(x.code) >> 16);
}
template <tl_dtype D> __device__ inline f16 converted(tiny<D> x, f16 *) {
    const uint32_t bits = code_bits<D>(x.code);
    f16 y = __float2half_rn(__uint_as_float(bits));
    if ((bits & 0x7FFFFFFFu) > F32_INFINITY) set_nan(y, bits >> 31);
    return y;
}

/* What is at an offset: one element, or a pack. Two f4 share a byte. */
template <class T> __device__ inline T element_at(const T *x, int64_t at) { return x[at]; }
template <class T> __device__ inline pack<T> pack_at(const T *x, int64_t at) { return *(const pack<T> *)(x + at); }
typedef tiny<TL_F4E2M1> f4;
__device__ inline f4 element_at(const f4 *x, int64_t at) {
    return {(uint8_t)(((const uint8_t *)x)[at / 2] >> at % 2 * 4 & 15)};
}
__device__ inline pack<f4> pack_at(const f4 *x, int64_t at) {
    const uint32_t codes = ((const uint32_t *)x)[at / PACK];
    pack<f4> y;
    for (int j = 0; j < PACK; j++) y.v[j].code = (uint8_t)(codes >> 4 * j & 15);
    return y;
}

template <class O, class A>
__global__ void __launch_bounds__(BLOCK) copy_packs(geometry<2> g, int tail, O *to, const A *from) {
    const bool constant = g.stride[1][g.rank - 1] == 0;
    FOR_EACH(i, g.numel) {
        int64_t at[2];
        offsets_of(g, i, at);
        pack<O> y;
        if (constant) {
            const O x = converted(element_at(from, at[1]), (O *)nullptr);
            for (int j = 0; j < PACK; j++) y.v[j] = x;
        } else {
            const pack<A> a = pack_at(from, at[1]);
            for (int j = 0; j < PACK; j++) y.v[j] = converted(a.v[j], (O *)nullptr);
        }
        *(pack<O> *)(to + at[0]) = y;
    }
    if (has_tail_element(tail)) {
        int64_t at[2];
        tail_offsets(g, threadIdx.x, at);
        to[at[0]] = converted(element_at(from, at[1]), (O *)nullptr);
    }
}

/* Any strides. */
template <class O, class A> __global__ void __launch_bounds__(BLOCK) copy_singles(singles<2> w, O *to, const A *from) {
    FOR_EACH(i, w.n_threads) {
        const places<2> p = places_of(w, i);
        A x[PACK];
        if (w.n_segments) {
#pragma unroll
            for (int j = 0; j < PACK; j++)
                if (j < p.n) x[j] = element_at(from, p.base[1] + j * p.step[1]);
#pragma unroll
            for (int j = 0; j < PACK; j++)
                if (j < p.n) to[p.base[0] + j * p.step[0]] = converted(x[j], (O *)nullptr);
            continue;
        }
        int64_t at[PACK][2];
#pragma unroll
        for (int j = 0; j < PACK; j++) {
            offsets_of(w.g, min(p.first + 32 * j, w.g.numel - 1), at[j]);
            x[j] = element_at(from, at[j][1]);
        }
#pragma unroll
        for (int j = 0; j < PACK; j++)
            if (j < p.n) to[at[j][0]] = converted(x[j], (O *)nullptr);
    }
}

/* Dense rows of 16-bit elements that begin anywhere. A thread has the k-th pack of a row, counted from the last aligned
 * one that begins before it or with it, and reads it as the words that its source lies in, half a word apart where the
 * rows begin so. A pack that is not wholly in the row goes element by element. The third offset is k. */
__global__ void __launch_bounds__(BLOCK)
    copy_shifted(geometry<3> steps, int64_t length, uint16_t *to, const uint16_t *from) {
    FOR_EACH(i, steps.numel) {
        int64_t at[3];
        offsets_of(steps, i, at); /* a pack is 16 bytes: at[0] is aligned as its row is */
        const int64_t before = (int64_t)((uintptr_t)(to + at[0]) % 16 / 2), first = at[2] * PACK - before;
        uint16_t *const y = to + at[0] - before;
        const uint16_t *const x = from + at[1] - before;
        if (first < 0 || first + PACK > length) {
            for (int j = 0; j < PACK; j++)
                if (first + j >= 0 && first + j < length) y[j] = x[j];
            continue;
        }
        uint4 four;
        if ((uintptr_t)x % 16 == 0) {
            four = *(const uint4 *)x;
        } else {
            const uint32_t *const words = (const uint32_t *)((uintptr_t)x / 4 * 4);
            const bool is_odd = (uintptr_t)x % 4 != 0;
            const uint32_t a = words[0], b = words[1], c = words[2], d = words[3], e = is_odd ? words[4] : 0;
            const unsigned shift = is_odd ? 16 : 0;
            four = make_uint4(__funnelshift_r(a, b, shift), __funnelshift_r(b, c, shift), __funnelshift_r(c, d, shift),
                              __funnelshift_r(d, e, shift));
        }
        *(uint4 *)y = four;
    }
}

enum { SHIFTED_ROW = 64 }; /* shorter rows are mostly beginnings and ends */
static bool rows_shift(const geometry<2> &g) {
    const int last = g.rank - 1;
    return g.stride[0][last] == 1 && g.stride[1][last] == 1 && g.size[last] >= SHIFTED_ROW;
}
static bool launch_shifted(const geometry<2> &g, const tl_operand *to, const tl_operand *from, cudaStream_t stream) {
    const int last = g.rank - 1;
    const int64_t length = g.size[last], n_steps = (length + PACK - 1) / PACK + 1;
    geometry<3> steps;
    steps.rank = g.rank;
    for (int axis = 0; axis < g.rank; axis++) {
        steps.size[axis] = axis == last ? n_steps : g.size[axis];
        for (int n = 0; n < 2; n++) steps.stride[n][axis] = axis == last ? (int64_t)PACK : g.stride[n][axis];
        steps.stride[2][axis] = axis == last;
    }
    steps.numel = g.numel / length * n_steps;
    geometry_divides(&steps);
    copy_shifted<<<blocks_for(steps.numel), BLOCK, 0, stream>>>(steps, length, (uint16_t *)to->data,
                                                                (const uint16_t *)from->data);
    return true;
}

template <class O, class A>
static bool launch_copy(bool packs, const geometry<2> &g, const tl_operand *to, const tl_operand *from,
                        cudaStream_t stream) {
    O *out = (O *)to->data;
    const A *in = (const A *)from->data;
    if (packs) {
        const geometry<2> steps = geometry_in_packs(g);
        copy_packs<O, A>
            <<<blocks_for(steps.numel), BLOCK, 0, stream>>>(steps, (int)(g.numel - steps.numel * PACK), out, in);
    } else {
        const singles<2> w = singles_of(g);
        copy_singles<O, A><<<blocks_for(w.n_threads), BLOCK, 0, stream>>>(w, out, in);
    }
    return true;
}

/* From 8 and 4 bits. */
template <class O>
static bool launch_widening(bool packs, const geometry<2> &g, const tl_operand *to, const tl_operand *from,
                            cudaStream_t stream) {
    switch (from->dtype) {
    case TL_F8E4M3:
        return launch_copy<O, tiny<TL_F8E4M3>>(packs, g, to, from, stream);
    case TL_F8E5M2:
        return launch_copy<O, tiny<TL_F8E5M2>>(packs, g, to, from, stream);
    case TL_F8E8M0:
        return launch_copy<O, tiny<TL_F8E8M0>>(packs, g, to, from, stream);
    default:
        return launch_copy<O, f4>(packs, g, to, from, stream);
    }
}

static bool is_tiny(tl_dtype dtype) { return dtype_is_float(dtype) && dtype_bytes(dtype) == 1; }

/* To 8 and 4 bits in spans, where element i is element i of both. */
static bool takes_rounding(const tl_operand *to, const tl_operand *from) {
    const tl_operand *const list[1] = {to};
    const geometry<1> g = geometry_of<1>(list);
    const bool is_dense = g.rank == 1 && g.stride[0][0] == 1;
    return is_tiny(to->dtype) && takes_spans(from->dtype) && is_dense && operand_numel(from) == g.numel;
}

/* To f4: a thread writes a byte, two neighbours along the last axis. f4 rows are dense and even. */
template <class C>
__global__ void __launch_bounds__(BLOCK)
    copy_to_f4(geometry<2> pairs, uint8_t *to, const void *from, tl_dtype dtype, int64_t from_stride) {
    FOR_EACH(i, pairs.numel) {
        int64_t at[2];
        offsets_of(pairs, i, at);
        uint8_t code[2];
        for (int j = 0; j < 2; j++)
            code[j] = tiny_code<double>(TL_F4E2M1, tiny_source(load_as<C>(from, at[1] + j * from_stride, dtype)),
                                        CONVERT_NEAREST, 0);
        to[at[0] / 2] = (uint8_t)(code[0] | code[1] << 4);
    }
}

__global__ void __launch_bounds__(BLOCK) copy_f4(geometry<2> pairs, uint8_t *to, const uint8_t *from) {
    FOR_EACH(i, pairs.numel) {
        int64_t at[2];
        offsets_of(pairs, i, at);
        to[at[0] / 2] = from[at[1] / 2];
    }
}

/* The walk over pairs of neighbours along the last axis. */
static geometry<2> pairs_of(const tl_operand *to, const tl_operand *from) {
    const int last = to->rank - 1;
    int64_t shape[TL_MAX_RANK], stride[2][TL_MAX_RANK];
    tl_operand half[2] = {*to, *to};
    for (int axis = 0; axis <= last; axis++) {
        shape[axis] = to->shape[axis];
        stride[0][axis] = to->stride[axis];
        stride[1][axis] = broadcast_stride(from, axis, to->rank);
    }
    shape[last] /= 2;
    stride[0][last] *= 2;
    stride[1][last] *= 2;
    for (int i = 0; i < 2; i++) {
        half[i].shape = shape;
        half[i].stride = stride[i];
    }
    const tl_operand *const list[2] = {&half[0], &half[1]};
    return geometry_of<2>(list);
}

static bool copy_into_f4(const tl_kernel_args *args, const tl_operand *to, const tl_operand *from) {
    const geometry<2> pairs = pairs_of(to, from);
    const int64_t stride = broadcast_stride(from, to->rank - 1, to->rank);
    const cudaStream_t stream = stream_of(args);
    uint8_t *out = (uint8_t *)to->data;
    const unsigned blocks = blocks_for(pairs.numel);
    if (from->dtype == TL_F4E2M1 && stride == 1)
        copy_f4<<<blocks, BLOCK, 0, stream>>>(pairs, out, (const uint8_t *)from->data);
    else if (dtype_is_float(from->dtype))
        copy_to_f4<double><<<blocks, BLOCK, 0, stream>>>(pairs, out, from->data, from->dtype, stride);
    else copy_to_f4<int64_t><<<blocks, BLOCK, 0, stream>>>(pairs, out, from->data, from->dtype, stride);
    return true;
}

bool copy_operand(const tl_kernel_args *args, const tl_operand *to, const tl_operand *from) {
    const tl_operand *const list[2] = {to, from};
    const geometry<2> g = geometry_of<2>(list);
    const cudaStream_t stream = stream_of(args);
    if (g.numel == 0) return true;
    const tl_dtype t = to->dtype, f = from->dtype;
    if (takes_rounding(to, from)) return cast_operand(args, to->data, from, {t, TL_NEAREST, {}});
    if (t == TL_F4E2M1) return copy_into_f4(args, to, from);
    const int element_bytes[2] = {dtype_bytes(t), dtype_bytes(f)};
    void *const data[2] = {to->data, from->data};
    const bool packs = geometry_packs<2>(g, element_bytes, data, true);
    if (t == f) switch (dtype_bytes(t)) {
        case 8:
            return launch_copy<uint64_t, uint64_t>(packs, g, to, from, stream);
        case 4:
            return launch_copy<uint32_t, uint32_t>(packs, g, to, from, stream);
        case 2:
            return !packs && rows_shift(g) ? launch_shifted(g, to, from, stream)
                                           : launch_copy<uint16_t, uint16_t>(packs, g, to, from, stream);
        default:
            return launch_copy<uint8_t, uint8_t>(packs, g, to, from, stream);
        }
    if (t == TL_BF16 && f == TL_F32) return launch_copy<bf16, float>(packs, g, to, from, stream);
    if (t == TL_F32 && f == TL_BF16) return launch_copy<float, bf16>(packs, g, to, from, stream);
    if (t == TL_F16 && f == TL_F32) return launch_copy<f16, float>(packs, g, to, from, stream);
    if (t == TL_F32 && f == TL_F16) return launch_copy<float, f16>(packs, g, to, from, stream);
    if (is_tiny(f) && t == TL_F32) return launch_widening<float>(packs, g, to, from, stream);
    if (is_tiny(f) && t == TL_BF16) return launch_widening<bf16>(packs, g, to, from, stream);
    if (is_tiny(f) && t == TL_F16) return launch_widening<f16>(packs, g, to, from, stream);
    if (dtype_is_float(f)) copy_any<double><<<blocks_for(g.numel), BLOCK, 0, stream>>>(g, to->data, t, from->data, f);
    else copy_any<int64_t><<<blocks_for(g.numel), BLOCK, 0, stream>>>(g, to->data, t, from->data, f);
    return true;
}

/* ---- fill --------------------------------------------------------------------------------------------- */

template <class T> __global__ void __launch_bounds__(BLOCK) fill_dense(T *to, int64_t n, T value) {
    FOR_EACH(i, n)
    to[i] = value;
}

__global__ void __launch_bounds__(BLOCK) fill_any(geometry<1> g, void *to, tl_dtype dtype, double value) {
    FOR_EACH(i, g.numel) {
        int64_t at[1];
        offsets_of(g, i, at);
        store_as<double>(to, at[0], dtype, value);
    }
}

__global__ void __launch_bounds__(BLOCK) fill_f4(geometry<2> pairs, uint8_t *to, uint8_t code) {
    FOR_EACH(i, pairs.numel) {
        int64_t at[2];
        offsets_of(pairs, i, at);
        to[at[0] / 2] = code;
    }
}

bool fill_operand(const tl_kernel_args *args, const tl_operand *x, double value) {
    const tl_operand *const list[1] = {x};
    const geometry<1> g = geometry_of<1>(list);
    if (g.numel == 0) return true;
    if (x->dtype == TL_F4E2M1) {
        const geometry<2> pairs = pairs_of(x, x);
        const uint32_t code = encode(f4e2m1_format(), value, CONVERT_NEAREST, 0);
        fill_f4<<<blocks_for(pairs.numel), BLOCK, 0, stream_of(args)>>>(pairs, (uint8_t *)x->data,
                                                                        (uint8_t)(code | code << 4));
    } else if (value == 0 && !signbit(value) && g.rank == 1 && g.stride[0][0] == 1 && x->dtype != TL_F8E8M0) {
        const size_t bytes = (size_t)(g.numel * dtype_bytes(x->dtype));
        return cuda_check(cudaMemsetAsync(x->data, 0, bytes, stream_of(args)), args->op, args->error);
    } else if (x->dtype == TL_F32 && g.rank == 1 && g.stride[0][0] == 1) {
        fill_dense<float><<<blocks_for(g.numel), BLOCK, 0, stream_of(args)>>>((float *)x->data, g.numel, (float)value);
    } else {
        fill_any<<<blocks_for(g.numel), BLOCK, 0, stream_of(args)>>>(g, x->data, x->dtype, value);
    }
    return true;
}

/* ---- unview ------------------------------------------------------------------------------------------- */

template <class C> __device__ inline void add_at(void *out, int64_t at, tl_dtype dtype, C x) {
    store_as<C>(out, at, dtype, load_as<C>(out, at, dtype) + x);
}

/* Several elements of g may have one target. One block; `turns` run in order, and within a turn all targets are
 * distinct: a fixed order without atomics. This is rare (gradients of overlapping windows), so it is not optimized. */
template <class C>
__global__ void __launch_bounds__(1024) unview_overlapping(geometry<2> turns, geometry<2> apart, void *out,
                                                           tl_dtype out_dtype, const void *g, tl_dtype g_dtype) {
    for (int64_t turn = 0; turn < turns.numel; turn++) {
        int64_t base[2];
        offsets_of(turns, turn, base);
        for (int64_t i = threadIdx.x; i < apart.numel; i += blockDim.x) {
            int64_t at[2];
            offsets_of(apart, i, at);
            add_at<C>(out, base[0] + at[0], out_dtype, load_as<C>(g, base[1] + at[1], g_dtype));
        }
        __syncthreads();
    }
}

/* Cuts the axes in two: `apart` gets, from the innermost outwards, axes along which targets in out are distinct;
 * `turns` the rest. An axis is safe if its stride exceeds all that the chosen ones can reach. */
static void cut_axes(const tl_operand *places, const tl_operand *g, geometry<2> *turns, geometry<2> *apart) {
    bool is_apart[TL_MAX_RANK];
    int64_t reach = 1; /* one more than the farthest place the chosen axes reach */
    for (int axis = places->rank - 1; axis >= 0; axis--) {
        const int64_t stride = places->stride[axis] < 0 ? -places->stride[axis] : places->stride[axis];
        is_apart[axis] = places->shape[axis] == 1 || stride >= reach;
        if (is_apart[axis]) reach += stride * (places->shape[axis] - 1);
    }
    turns->rank = apart->rank = 0;
    turns->numel = apart->numel = 1;
    for (int axis = 0; axis < places->rank; axis++) {
        geometry<2> *part = is_apart[axis] ? apart : turns;
        part->size[part->rank] = places->shape[axis];
        part->stride[0][part->rank] = places->stride[axis];
        part->stride[1][part->rank++] = g->stride[axis];
        part->numel *= places->shape[axis];
    }
    geometry<2> *const both[2] = {turns, apart};
    for (geometry<2> *part : both)
        if (part->rank == 0) {
            part->rank = 1;
            part->size[0] = 1;
            part->stride[0][0] = part->stride[1][0] = 0;
        }
    geometry_divides(turns);
    geometry_divides(apart);
}

template <class C> static void unview_launch(const tl_kernel_args *args, const tl_operand *places) {
    const tl_operand *g = &args->in[0], *out = &args->out[0];
    geometry<2> turns, apart;
    cut_axes(places, g, &turns, &apart);
    unview_overlapping<C><<<1, 1024, 0, stream_of(args)>>>(turns, apart, places->data, out->dtype, g->data, g->dtype);
}

extern "C" {

bool cuda_copy(const tl_kernel_args *args) { return copy_operand(args, &args->out[0], &args->in[0]); }

/* out[0] is in[0] itself, strides and all. */
bool cuda_assign(const tl_kernel_args *args) { return copy_operand(args, &args->in[0], &args->in[1]); }

bool cuda_fill(const tl_kernel_args *args) {
    return fill_operand(args, &args->in[0], ((const struct attr_full *)args->attr)->value);
}

bool cuda_unview(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    const struct attr_unview *attr = (const struct attr_unview *)args->attr;
    const tl_operand *g = &args->in[0], *out = &args->out[0];
    const int64_t out_bytes = operand_numel(out) * dtype_bytes(out->dtype);
    if (out_bytes > 0 &&
        !cuda_check(cudaMemsetAsync(out->data, 0, (size_t)out_bytes, stream_of(args)), "unview", args->error))
        return false;
    if (operand_numel(g) == 0) return true;
    tl_operand places = *g; /* g's shape, laid over out */
    places.data = (char *)out->data + attr->offset * dtype_bytes(out->dtype);
    places.stride = attr->stride;
    if (!attr->overlaps) return copy_operand(args, &places, g); /* targets are distinct: each sum has one term */
    switch (compute_of(out->dtype)) {
    case COMPUTE_F64:
        unview_launch<double>(args, &places);
        break;
    case COMPUTE_F32:
        unview_launch<float>(args, &places);
        break;
    case COMPUTE_I64:
        unview_launch<int64_t>(args, &places);
        break;
    }
    return true;
}

} /* extern "C" */

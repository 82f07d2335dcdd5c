/* update.cu: one step of SGD with momentum, Adagrad, RMSprop or Adam on each parameter of a call, in place.
 *
 * The formulas are those of device/cpu/ops/update_template.h, in the same order of operations, and random words are
 * the same: the bits equal the CPU's. A step is a small struct with the factors that depend on the step alone and a
 * body for one element; two kernels run it: one over fours, for all parameters at once that are dense and f32, bf16 or
 * f16, since they are many and mostly small; one over anything else, a parameter at a time. The scale of
 * the gradient stays on the device: where it is not finite, threads end before they have changed anything.
 */
#include "device/cuda/shared/common.cuh"
#include "device/cuda/shared/rounding.cuh"

#include "base/rng_math.h"
#include "spec/dynamic_map.h"
#include "tensor/convert_round.h"

__device__ inline float sqrt_of(float x) { return sqrtf(x); }
__device__ inline double sqrt_of(double x) { return sqrt(x); }

/* ---- Steps: p and the states s are changed; g is scaled and has its decay ----------------------------- */

template <class C> struct sgd_step {
    static const int n_states = 0;
    C lr;
    __device__ void operator()(C &p, C g, C *) const { p -= lr * g; }
};

template <class C> struct momentum_step {
    static const int n_states = 1;
    C lr, momentum, take;
    bool is_first, nesterov;
    __device__ void operator()(C &p, C g, C *s) const {
        s[0] = is_first ? g : momentum * s[0] + take * g;
        p -= lr * (nesterov ? g + momentum * s[0] : s[0]);
    }
};

template <class C> struct adagrad_step {
    static const int n_states = 1;
    C lr, eps;
    __device__ void operator()(C &p, C g, C *s) const {
        s[0] += g * g;
        p -= lr * (g / (sqrt_of(s[0]) + eps));
    }
};

/* States: square, then the mean, then the buffer, as there are. */
template <class C, bool CENTERED, bool MOMENTUM> struct rmsprop_step {
    static const int n_states = 1 + CENTERED + MOMENTUM;
    C lr, alpha, rest, eps, momentum;
    __device__ void operator()(C &p, C g, C *s) const {
        s[0] = alpha * s[0] + rest * (g * g);
        C variance = s[0];
        if (CENTERED) {
            s[1] += rest * (g - s[1]);
            variance -= s[1] * s[1];
        }
        C d = g / (sqrt_of(variance) + eps);
        if (MOMENTUM) d = s[1 + CENTERED] = momentum * s[1 + CENTERED] + d;
        p -= lr * d;
    }
};

template <class C, bool HAS_MAX> struct adam_step {
    static const int n_states = 2 + HAS_MAX;
    C lr, keep, rest1, beta2, rest2, eps, inverse_root;
    __device__ void operator()(C &p, C g, C *s) const {
        s[0] += rest1 * (g - s[0]);
        s[1] = beta2 * s[1] + rest2 * (g * g);
        C second = s[1];
        if (HAS_MAX) second = s[2] = s[2] > second || s[2] != s[2] ? s[2] : second; /* NaN stays */
        p = p * keep - lr * (s[0] / (sqrt_of(second) * inverse_root + eps));
    }
};

template <class C> struct lion_step {
    static const int n_states = 1;
    C lr, keep, beta1, rest1, beta2, rest2;
    __device__ void operator()(C &p, C g, C *s) const {
        const C c = beta1 * s[0] + rest1 * g;
        p = p * keep - lr * (C)((c > 0) - (c < 0));
        s[0] = beta2 * s[0] + rest2 * g;
    }
};

/* p is overwritten. */
template <class C> struct muon_momentum_step {
    static const int n_states = 1;
    C rest, momentum;
    __device__ void operator()(C &p, C g, C *s) const {
        s[0] += rest * (g - s[0]);
        p = g + momentum * (s[0] - g);
    }
};

template <class C> struct schedule_free_step {
    static const int n_states = 2;
    C lr, beta2, rest2, correction, eps, decay, share, rest, along;
    bool is_small;
    __device__ void operator()(C &p, C g, C *s) const {
        s[1] = beta2 * s[1] + rest2 * (g * g);
        const C step = g / (sqrt_of(s[1] / correction) + eps) + decay * p, apart = s[0] - p;
        p = (is_small ? p + share * apart : s[0] - apart * rest) + along * step;
        s[0] -= lr * step;
    }
};

/* p is the average, g what it follows. */
template <class C> struct ema_step {
    static const int n_states = 0;
    C weight, rest;
    bool is_small;
    __device__ void operator()(C &p, C g, C *) const { p = is_small ? p + weight * (g - p) : g - (g - p) * rest; }
};

/* ---- The two kernels ---------------------------------------------------------------------------------- */

enum { MAX_STATES = 3 };

/* The operands of one parameter. */
struct parameter {
    void *p;
    const void *g;
    void *state[MAX_STATES];
    void *master;   /* NULL: none */
    uint64_t index; /* of its first random word */
};

/* The options shared by all parameters of a call. */
struct update {
    const float *scale; /* NULL: 1 */
    tl_dtype p_dtype;
    double weight_decay; /* into g; 0: none */
    bool is_stochastic;
    tl_dtype state_dtype; /* f64, f32, or bf16 for Adam's moments; a master is never bf16 */
    struct rng_key key;
};

/* Operands: p, g, the states, the master (p again where there is none, so that it changes no geometry). */
template <class C, class STEP>
__global__ void __launch_bounds__(BLOCK)
    update_any(geometry<STEP::n_states + 3> geo, parameter t, tl_dtype g_dtype, update u, STEP step) {
    const int n = STEP::n_states;
    const C scale = u.scale ? (C)*u.scale : C(1), weight_decay = (C)u.weight_decay;
    if (!isfinite(scale)) return;
    FOR_EACH(i, geo.numel) {
        int64_t at[n + 3];
        C s[n + 1];
        offsets_of(geo, i, at);
        C p = t.master ? ((const C *)t.master)[at[n + 2]] : load_as<C>(t.p, at[0], u.p_dtype);
        C g = load_as<C>(t.g, at[1], g_dtype) * scale;
        if (u.weight_decay != 0) g += weight_decay * p;
        for (int k = 0; k < n; k++) s[k] = load_as<C>(t.state[k], at[2 + k], u.state_dtype);
        step(p, g, s);
        for (int k = 0; k < n; k++) store_as<C>(t.state[k], at[2 + k], u.state_dtype, s[k]);
        if (t.master) ((C *)t.master)[at[n + 2]] = p;
        if (u.is_stochastic) store_rounded(t.p, at[0], u.p_dtype, p, rng_draw_at(u.key, t.index + (uint64_t)i));
        else store_as<C>(t.p, at[0], u.p_dtype, p);
    }
}

/* Four elements of a parameter: 16 bytes of f32. Neighbouring threads have neighbouring ones, so that a warp's access
 * is whole lines for every dtype. */
enum { QUAD = 4 };
template <class T> struct alignas(sizeof(T) * QUAD) quad { T v[QUAD]; };

template <class P> __device__ inline void quad_round(quad<P> &out, const float *x) {
    for (int j = 0; j < QUAD; j++) out.v[j] = conversion<P>::from(x[j]);
}
template <class P> __device__ inline void quad_round(quad<P> &, const float *, struct rng_key, uint64_t) {}
template <>
__device__ inline void quad_round<bf16>(quad<bf16> &out, const float *x, struct rng_key key, uint64_t index) {
    const struct rng_block words = rng_block_at(key, index / QUAD); /* index is a multiple of four */
    for (int j = 0; j < QUAD; j++) out.v[j] = rounded_bf16(x[j], words.word[j]);
}

/* As many as one call has (TL_MAX_INPUTS, two each at least). */
enum { LIST = TL_MAX_INPUTS / 2 };
struct parameter_list {
    int n;
    int64_t n_chunks; /* of all */
    int64_t n_quads[LIST], first_chunk[LIST];
    parameter of[LIST];
};

/* States: f32, or bf16. The branch is the same for all threads. */
__device__ inline quad<float> quad_load(const void *data, int64_t i, tl_dtype dtype) {
    if (dtype == TL_F32) return ((const quad<float> *)data)[i];
    const quad<bf16> narrow = ((const quad<bf16> *)data)[i];
    quad<float> x;
    for (int j = 0; j < QUAD; j++) x.v[j] = value_of<float>(narrow.v[j]);
    return x;
}
__device__ inline void quad_store(void *data, int64_t i, tl_dtype dtype, const quad<float> &x) {
    if (dtype == TL_F32) {
        ((quad<float> *)data)[i] = x;
        return;
    }
    quad<bf16> narrow;
    quad_round(narrow, x.v);
    ((quad<bf16> *)data)[i] = narrow;
}

/* What is read of four elements, and what becomes of it. */
template <class P, class G, class STEP> struct update_quad {
    enum { N = STEP::n_states };
    quad<G> grad;
    quad<float> state[N + 1], value;

    __device__ inline void read(const parameter &t, int64_t i, const update &u) {
        grad = ((const quad<G> *)t.g)[i];
        for (int k = 0; k < N; k++) state[k] = quad_load(t.state[k], i, u.state_dtype);
        if (t.master) {
            value = ((const quad<float> *)t.master)[i];
            return;
        }
        const quad<P> p = ((const quad<P> *)t.p)[i];
        for (int j = 0; j < QUAD; j++) value.v[j] = value_of<float>(p.v[j]);
    }
    __device__ inline void move(const update &u, float scale, const STEP &step) {
        const float weight_decay = (float)u.weight_decay;
        for (int j = 0; j < QUAD; j++) {
            float s[N + 1], g = value_of<float>(grad.v[j]) * scale;
            if (u.weight_decay != 0) g += weight_decay * value.v[j];
            for (int k = 0; k < N; k++) s[k] = state[k].v[j];
            step(value.v[j], g, s);
            for (int k = 0; k < N; k++) state[k].v[j] = s[k];
        }
    }
    __device__ inline void write(const parameter &t, int64_t i, const update &u) const {
        for (int k = 0; k < N; k++) quad_store(t.state[k], i, u.state_dtype, state[k]);
        if (t.master) ((quad<float> *)t.master)[i] = value;
        quad<P> p;
        if (u.is_stochastic) quad_round(p, value.v, u.key, t.index + (uint64_t)i * QUAD);
        else quad_round(p, value.v);
        ((quad<P> *)t.p)[i] = p;
    }
};

/* Dense, aligned, states f32: a chunk of CHUNK_QUADS of one parameter per block, two for each thread, which are read
 * before either is written. */
enum { EACH_QUADS = 2, CHUNK_QUADS = EACH_QUADS * BLOCK };
template <class P, class G, class STEP>
__global__ void __launch_bounds__(BLOCK) update_quads(parameter_list list, update u, STEP step) {
    const float scale = u.scale ? *u.scale : 1.0f;
    if (!isfinite(scale)) return;
    for (int64_t chunk = blockIdx.x; chunk < list.n_chunks; chunk += gridDim.x) {
        const int which = chunk_owner(list.first_chunk, list.n, chunk);
        const int64_t first = (chunk - list.first_chunk[which]) * CHUNK_QUADS + threadIdx.x, n = list.n_quads[which];
        const parameter own = list.of[which];
        update_quad<P, G, STEP> quads[EACH_QUADS];
#pragma unroll
        for (int k = 0; k < EACH_QUADS; k++)
            if (first + k * BLOCK < n) quads[k].read(own, first + k * BLOCK, u);
#pragma unroll
        for (int k = 0; k < EACH_QUADS; k++) {
            if (first + k * BLOCK >= n) break;
            quads[k].move(u, scale, step);
            quads[k].write(own, first + k * BLOCK, u);
        }
    }
}

/* ---- Launching ---------------------------------------------------------------------------------------- */

static update update_of(const tl_kernel_args *args, double weight_decay) {
    const struct attr_update *attr = (const struct attr_update *)args->attr;
    update u;
    memset(&u, 0, sizeof u);
    if (attr->has_scale) u.scale = (const float *)args->in[args->n_in - 1].data;
    u.p_dtype = args->in[0].dtype;
    u.weight_decay = weight_decay;
    u.is_stochastic = attr->is_stochastic;
    u.key.seed = attr->generator.seed;
    u.key.stream = attr->generator.stream;
    return u;
}

static parameter parameter_of(const tl_operand *in, int n_states, bool has_master, uint64_t index) {
    parameter t;
    memset(&t, 0, sizeof t);
    t.p = in[0].data;
    t.g = in[1].data;
    for (int k = 0; k < n_states; k++) t.state[k] = in[2 + k].data;
    if (has_master) t.master = in[2 + n_states].data;
    t.index = index;
    return t;
}

template <int N> static bool is_packed(const geometry<N> &g, const tl_operand *const *list) {
    const tl_dtype p_dtype = list[0]->dtype, g_dtype = list[1]->dtype;
    int element_bytes[N];
    void *data[N];
    if (g.rank != 1) return false;
    for (int i = 0; i < N; i++) {
        element_bytes[i] = dtype_bytes(list[i]->dtype);
        data[i] = list[i]->data;
        if (g.stride[i][0] != 1) return false;
    }
    const tl_dtype narrow = p_dtype == TL_F16 ? TL_F16 : TL_BF16; /* of gradients that are not f32 */
    return (p_dtype == TL_F32 || p_dtype == narrow) && (g_dtype == TL_F32 || g_dtype == narrow) &&
           geometry_packs<N>(g, element_bytes, data);
}

static void list_add(parameter_list *list, const parameter &t, int64_t numel) {
    list->of[list->n] = t;
    list->n_quads[list->n] = numel / QUAD;
    list->first_chunk[list->n++] = list->n_chunks;
    list->n_chunks += (numel / QUAD + CHUNK_QUADS - 1) / CHUNK_QUADS;
}

/* G: of gradients that are not f32. */
template <class P, class G, class STEP>
static void quads_start(const parameter_list &list, tl_dtype g_dtype, const update &u, const STEP &step,
                        cudaStream_t stream) {
    const unsigned blocks = blocks_for(list.n_chunks, 1);
    if (g_dtype == TL_F32) update_quads<P, float, STEP><<<blocks, BLOCK, 0, stream>>>(list, u, step);
    else update_quads<P, G, STEP><<<blocks, BLOCK, 0, stream>>>(list, u, step);
}

/* The list is empty afterwards. */
template <class STEP>
static void list_run(parameter_list *list, tl_dtype g_dtype, const update &u, const STEP &step, cudaStream_t stream) {
    if (list->n > 0) {
        if (u.p_dtype == TL_F32) quads_start<float, bf16>(*list, g_dtype, u, step, stream);
        else if (u.p_dtype == TL_BF16) quads_start<bf16, bf16>(*list, g_dtype, u, step, stream);
        else quads_start<f16, f16>(*list, g_dtype, u, step, stream);
    }
    list->n = 0;
    list->n_chunks = 0;
}

/* One step of each compute type: which of them runs follows the parameters, which have one dtype. */
template <class F32, class F64>
static bool run(const tl_kernel_args *args, double weight_decay, const F32 &step, const F64 &step_f64) {
    const int n = F32::n_states;
    if (!operands_known(args)) return false;
    const struct attr_update *attr = (const struct attr_update *)args->attr;
    update u = update_of(args, weight_decay);
    u.state_dtype = n > 0 ? args->in[2].dtype : TL_F32; /* of all states of the call */
    const cudaStream_t stream = stream_of(args);
    const int n_operands = n + 2 + attr->has_master;
    const bool is_slow = u.is_stochastic && u.p_dtype == TL_F16; /* fours have no rounding for that */
    uint64_t index = attr->generator.index;
    tl_dtype listed = TL_F32; /* of the gradients in the list */
    parameter_list quads;
    quads.n = 0;
    quads.n_chunks = 0;
    for (int i = 0; i < attr->n_parameters; i++) {
        const tl_operand *in = args->in + i * n_operands, *list[n + 3];
        for (int k = 0; k < n + 2; k++) list[k] = &in[k];
        list[n + 2] = attr->has_master ? &in[n + 2] : &in[0];
        const geometry<n + 3> g = geometry_of<n + 3>(list);
        const parameter t = parameter_of(in, n, attr->has_master, index);
        const tl_dtype g_dtype = in[1].dtype;
        index += update_words(g.numel);
        if (g.numel == 0) continue;
        if (u.p_dtype == TL_F64)
            update_any<double, F64><<<blocks_for(g.numel), BLOCK, 0, stream>>>(g, t, g_dtype, u, step_f64);
        else if (is_slow || !is_packed<n + 3>(g, list))
            update_any<float, F32><<<blocks_for(g.numel), BLOCK, 0, stream>>>(g, t, g_dtype, u, step);
        else {
            if (quads.n == LIST || g_dtype != listed) list_run(&quads, listed, u, step, stream);
            listed = g_dtype;
            list_add(&quads, t, g.numel);
        }
    }
    list_run(&quads, listed, u, step, stream);
    return true;
}

/* ---- Moments of 8 bits: spec/dynamic_map.h ------------------------------------------------------------ */

__device__ const float dynamic_magnitudes[DYNAMIC_MAGNITUDES] = {DYNAMIC_MAGNITUDE_LIST};
__device__ const float dynamic_positives[DYNAMIC_POSITIVES] = {DYNAMIC_POSITIVE_LIST};

/* Of numbers with a sign, and of others: values by code, and the middles between a magnitude and the next. */
struct dynamic_maps {
    float value[2][256], middle[2][256];
};

__device__ inline void maps_load(dynamic_maps &maps) {
    for (int k = threadIdx.x; k < 256; k += blockDim.x) {
        const int magnitude = k < DYNAMIC_ZERO ? DYNAMIC_ZERO - k : k - DYNAMIC_ZERO;
        maps.value[0][k] = k < DYNAMIC_ZERO ? -dynamic_magnitudes[magnitude] : dynamic_magnitudes[magnitude];
        maps.value[1][k] = dynamic_positives[k];
        maps.middle[0][k] =
            k + 1 < DYNAMIC_MAGNITUDES ? 0.5f * (dynamic_magnitudes[k] + dynamic_magnitudes[k + 1]) : INFINITY;
        maps.middle[1][k] =
            k + 1 < DYNAMIC_POSITIVES ? 0.5f * (dynamic_positives[k] + dynamic_positives[k + 1]) : INFINITY;
    }
    __syncthreads();
}

/* Which magnitude is nearest to x: the number of middles at or below it. */
__device__ inline int magnitude_of(const float (&middle)[256], float x) {
    int k = 0;
    for (int step = 128; step > 0; step /= 2)
        if (x >= middle[k + step - 1]) k += step;
    return k;
}

__device__ inline uint8_t code_of(const dynamic_maps &maps, int which, float x) {
    const int k = magnitude_of(maps.middle[which], fabsf(x));
    if (which == 1) return (uint8_t)k;
    return (uint8_t)(x < 0 ? DYNAMIC_ZERO - (k < DYNAMIC_ZERO ? k : DYNAMIC_ZERO) : DYNAMIC_ZERO + k);
}

/* The moments of one parameter: codes, and scales of its blocks. */
struct moments {
    uint8_t *code[2];
    float *scale[2];
};

/* The largest of a warp's magnitudes, by their bits: a NaN is the largest. */
template <int N> __device__ inline float warp_largest(const float (&x)[N]) {
    uint32_t largest = 0;
    for (int j = 0; j < N; j++) largest = max(largest, __float_as_uint(x[j]) & 0x7FFFFFFFu);
    return __uint_as_float(warp_reduce(largest, max_of()));
}

/* A warp per block of moments; lane i has its elements i, 32 + i and so on. Operands: p, g, the master (p again where
 * there is none). */
__global__ void __launch_bounds__(BLOCK)
    update_8bit(geometry<3> geo, parameter t, moments s, tl_dtype g_dtype, update u, adam_step<float, false> step) {
    const int n = DYNAMIC_BLOCK / 32, lane = threadIdx.x % 32;
    const float scale = u.scale ? *u.scale : 1.0f, weight_decay = (float)u.weight_decay;
    const int64_t n_blocks = (geo.numel + DYNAMIC_BLOCK - 1) / DYNAMIC_BLOCK;
    __shared__ dynamic_maps maps;
    if (!isfinite(scale)) return;
    maps_load(maps);
    for (int64_t block = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / 32; block < n_blocks;
         block += (int64_t)gridDim.x * blockDim.x / 32) {
        const int64_t first = block * DYNAMIC_BLOCK + lane;
        float moment[2][n];
        for (int j = 0; j < n; j++) {
            const int64_t i = first + 32 * j;
            moment[0][j] = moment[1][j] = 0;
            if (i >= geo.numel) continue;
            int64_t at[3];
            offsets_of(geo, i, at);
            float p = t.master ? ((const float *)t.master)[at[2]] : load_as<float>(t.p, at[0], u.p_dtype);
            float g = load_as<float>(t.g, at[1], g_dtype) * scale, own[3];
            if (u.weight_decay != 0) g += weight_decay * p;
            for (int k = 0; k < 2; k++) own[k] = maps.value[k][s.code[k][i]] * s.scale[k][block];
            step(p, g, own);
            for (int k = 0; k < 2; k++) moment[k][j] = own[k];
            if (t.master) ((float *)t.master)[at[2]] = p;
            if (u.is_stochastic) store_rounded(t.p, at[0], u.p_dtype, p, rng_draw_at(u.key, t.index + (uint64_t)i));
            else store_as<float>(t.p, at[0], u.p_dtype, p);
        }
        for (int k = 0; k < 2; k++) {
            const float largest = warp_largest(moment[k]), divisor = largest == 0 ? 1 : largest;
            for (int j = 0; j < n; j++)
                if (first + 32 * j < geo.numel) s.code[k][first + 32 * j] = code_of(maps, k, moment[k][j] / divisor);
            /* all lanes have read the old one: the shuffles wait for them */
            if (lane == 0) s.scale[k][block] = largest;
        }
    }
}

/* Parameters with such moments are large: a launch for each. */
static bool run_8bit(const tl_kernel_args *args, double weight_decay, const adam_step<float, false> &step) {
    if (!operands_known(args)) return false;
    const struct attr_update *attr = (const struct attr_update *)args->attr;
    const update u = update_of(args, weight_decay);
    uint64_t index = attr->generator.index;
    for (int i = 0; i < attr->n_parameters; i++) {
        const tl_operand *in = args->in + i * (6 + attr->has_master);
        const tl_operand *list[3] = {&in[0], &in[1], attr->has_master ? &in[6] : &in[0]};
        const geometry<3> g = geometry_of<3>(list);
        const moments s = {{(uint8_t *)in[2].data, (uint8_t *)in[3].data}, {(float *)in[4].data, (float *)in[5].data}};
        parameter t = parameter_of(in, 0, false, index);
        if (attr->has_master) t.master = in[6].data;
        index += update_words(g.numel);
        if (g.numel == 0) continue;
        const int64_t n_blocks = (g.numel + DYNAMIC_BLOCK - 1) / DYNAMIC_BLOCK;
        update_8bit<<<blocks_for(32 * n_blocks), BLOCK, 0, stream_of(args)>>>(g, t, s, in[1].dtype, u, step);
    }
    return true;
}

/* ---- From options to steps ---------------------------------------------------------------------------- */

template <class C> static sgd_step<C> sgd_of(const tl_sgd_options *o) { return {(C)o->lr}; }

template <class C> static momentum_step<C> momentum_of(const tl_sgd_options *o) {
    return {(C)o->lr, (C)o->momentum, (C)(1 - o->dampening), o->step == 1, o->nesterov};
}

template <class C> static adagrad_step<C> adagrad_of(const tl_adagrad_options *o) {
    return {(C)(o->lr / (1 + (double)(o->step - 1) * o->lr_decay)), (C)o->eps};
}

template <class C, bool CENTERED, bool MOMENTUM>
static rmsprop_step<C, CENTERED, MOMENTUM> rmsprop_of(const tl_rmsprop_options *o) {
    return {(C)o->lr, (C)o->alpha, (C)(1 - o->alpha), (C)o->eps, (C)o->momentum};
}

template <bool CENTERED, bool MOMENTUM>
static bool run_rmsprop(const tl_kernel_args *args, const tl_rmsprop_options *o) {
    return run(args, o->weight_decay, rmsprop_of<float, CENTERED, MOMENTUM>(o),
               rmsprop_of<double, CENTERED, MOMENTUM>(o));
}

template <class C, bool HAS_MAX> static adam_step<C, HAS_MAX> adam_of(const tl_adam_options *o) {
    return {(C)(o->lr / (1 - pow(o->beta1, (double)o->step))),
            (C)(o->decoupled ? 1 - o->lr * o->weight_decay : 1),
            (C)(1 - o->beta1),
            (C)o->beta2,
            (C)(1 - o->beta2),
            (C)o->eps,
            (C)(1 / sqrt(1 - pow(o->beta2, (double)o->step)))};
}

template <class C> static lion_step<C> lion_of(const tl_lion_options *o) {
    return {(C)o->lr, (C)(1 - o->lr * o->weight_decay), (C)o->beta1, (C)(1 - o->beta1), (C)o->beta2, (C)(1 - o->beta2)};
}

template <class C> static muon_momentum_step<C> muon_momentum_of(const tl_muon_options *o) {
    return {(C)(1 - o->momentum), (C)(o->nesterov ? o->momentum : 1)};
}

template <class C> static schedule_free_step<C> schedule_free_of(const tl_schedule_free_options *o) {
    return {(C)o->lr,
            (C)o->beta2,
            (C)(1 - o->beta2),
            (C)(1 - pow(o->beta2, (double)o->step)),
            (C)o->eps,
            (C)o->weight_decay,
            (C)o->share,
            (C)(1 - o->share),
            (C)(o->lr * (o->beta1 * (1 - o->share) - 1)),
            o->share < 0.5};
}

template <class C> static ema_step<C> ema_of(double weight) { return {(C)weight, (C)(1 - weight), weight < 0.5}; }

extern "C" {

bool cuda_sgd_momentum(const tl_kernel_args *args) {
    const tl_sgd_options *o = &((const struct attr_sgd_momentum *)args->attr)->options;
    if (o->momentum != 0) return run(args, o->weight_decay, momentum_of<float>(o), momentum_of<double>(o));
    return run(args, o->weight_decay, sgd_of<float>(o), sgd_of<double>(o));
}

bool cuda_adagrad(const tl_kernel_args *args) {
    const tl_adagrad_options *o = &((const struct attr_adagrad *)args->attr)->options;
    return run(args, o->weight_decay, adagrad_of<float>(o), adagrad_of<double>(o));
}

bool cuda_rmsprop(const tl_kernel_args *args) {
    const tl_rmsprop_options *o = &((const struct attr_rmsprop *)args->attr)->options;
    if (o->centered) return o->momentum != 0 ? run_rmsprop<true, true>(args, o) : run_rmsprop<true, false>(args, o);
    return o->momentum != 0 ? run_rmsprop<false, true>(args, o) : run_rmsprop<false, false>(args, o);
}

bool cuda_adam(const tl_kernel_args *args) {
    const struct attr_adam *attr = (const struct attr_adam *)args->attr;
    const tl_adam_options *o = &attr->options;
    const double weight_decay = o->decoupled ? 0 : o->weight_decay;
    if (attr->has_max) return run(args, weight_decay, adam_of<float, true>(o), adam_of<double, true>(o));
    return run(args, weight_decay, adam_of<float, false>(o), adam_of<double, false>(o));
}

bool cuda_adam_8bit(const tl_kernel_args *args) {
    const tl_adam_options *o = &((const struct attr_adam *)args->attr)->options;
    return run_8bit(args, o->decoupled ? 0 : o->weight_decay, adam_of<float, false>(o));
}

bool cuda_lion(const tl_kernel_args *args) {
    const tl_lion_options *o = &((const struct attr_lion *)args->attr)->options;
    return run(args, 0, lion_of<float>(o), lion_of<double>(o));
}

bool cuda_muon_momentum(const tl_kernel_args *args) {
    const tl_muon_options *o = &((const struct attr_muon_momentum *)args->attr)->options;
    return run(args, 0, muon_momentum_of<float>(o), muon_momentum_of<double>(o));
}

bool cuda_schedule_free(const tl_kernel_args *args) {
    const tl_schedule_free_options *o = &((const struct attr_schedule_free *)args->attr)->options;
    return run(args, 0, schedule_free_of<float>(o), schedule_free_of<double>(o));
}

bool cuda_ema(const tl_kernel_args *args) {
    const double weight = ((const struct attr_ema *)args->attr)->weight;
    return run(args, 0, ema_of<float>(weight), ema_of<double>(weight));
}

} /* extern "C" */

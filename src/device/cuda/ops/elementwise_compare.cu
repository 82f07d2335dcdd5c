/* elementwise_compare.cu: comparisons, and the choice between two tensors. Both move little for each element, so an
 * element must take few instructions: in packs the relation is known to the compiler, and whole words are chosen at
 * once. */
#include "device/cuda/ops/scalar.cuh"

/* ---- Comparisons --------------------------------------------------------------------------------------- */

/* A relation as the outcomes for which it holds, or (negates) does not, so that no element branches. Of NaN there is no
 * outcome. */
struct f_holds {
    bool less, equal, greater, negates;
    template <class C> __device__ C operator()(C a, C b) const {
        const bool is_one = (less & (a < b)) | (equal & (a == b)) | (greater & (a > b));
        return C(is_one != negates);
    }
};
static inline f_holds holds_of(tl_compare relation) {
    switch (relation) {
    case TL_EQ:
        return {false, true, false, false};
    case TL_NE:
        return {false, true, false, true};
    case TL_LT:
        return {true, false, false, false};
    case TL_LE:
        return {true, true, false, false};
    case TL_GT:
        return {false, false, true, false};
    default:
        return {false, true, true, false};
    }
}

/* The same for one relation. */
template <tl_compare R> struct f_relation {
    template <class C> __device__ C operator()(C a, C b) const {
        return C(R == TL_EQ   ? a == b
                 : R == TL_NE ? a != b
                 : R == TL_LT ? a < b
                 : R == TL_LE ? a <= b
                 : R == TL_GT ? a > b
                              : a >= b);
    }
};
template <class R> struct f_beside {
    float value;
    __device__ float operator()(float x) const { return R()(x, value); }
};

/* launch(f_relation) for the relation. */
template <class L> static bool with_relation(tl_compare relation, const L &launch) {
    switch (relation) {
    case TL_EQ:
        return launch(f_relation<TL_EQ>());
    case TL_NE:
        return launch(f_relation<TL_NE>());
    case TL_LT:
        return launch(f_relation<TL_LT>());
    case TL_LE:
        return launch(f_relation<TL_LE>());
    case TL_GT:
        return launch(f_relation<TL_GT>());
    default:
        return launch(f_relation<TL_GE>());
    }
}

/* Two tensors of one dtype, or false. */
struct compare_tensors {
    const geometry<3> &g;
    const operands<3> &o;
    cudaStream_t stream;
    template <class R> bool operator()(R relation) const {
        const tl_dtype t = o.dtype[1];
        if (o.dtype[2] != t || !can_pack(g, o, true)) return false;
        if (t == TL_F32) return binary_pack_launch<bool, float, float>(g, o, relation, stream);
        if (t == TL_BF16) return binary_pack_launch<bool, bf16, bf16>(g, o, relation, stream);
        if (t == TL_F16) return binary_pack_launch<bool, f16, f16>(g, o, relation, stream);
        return t == TL_BOOL && binary_pack_launch<bool, bool, bool>(g, o, relation, stream);
    }
};

/* A tensor and a number, or false. */
struct compare_number {
    const geometry<2> &g;
    const operands<2> &o;
    float value;
    cudaStream_t stream;
    template <class R> bool operator()(R) const {
        const f_beside<R> f = {value};
        if (!can_pack(g, o, true)) return false;
        if (o.dtype[1] == TL_F32) return unary_pack_launch<bool, float>(g, o, f, stream);
        if (o.dtype[1] == TL_BF16) return unary_pack_launch<bool, bf16>(g, o, f, stream);
        return o.dtype[1] == TL_F16 && unary_pack_launch<bool, f16>(g, o, f, stream);
    }
};

/* a R b as b R' a */
static tl_compare turned(tl_compare relation) {
    switch (relation) {
    case TL_LT:
        return TL_GT;
    case TL_LE:
        return TL_GE;
    case TL_GT:
        return TL_LT;
    case TL_GE:
        return TL_LE;
    default:
        return relation;
    }
}

/* Beside floats the number is rounded to their dtype; an integer x is compared with an integer exactly, and with a
 * float in f32. */
static bool comparison_with(const tl_kernel_args *args) {
    const struct attr_scalar *attr = (const struct attr_scalar *)args->attr;
    const tl_dtype x = args->in[0].dtype;
    f_with_number<f_holds> g = {holds_of(attr->relation), number_of(attr->value), attr->is_first};
    if (dtype_is_float(x)) g.value = number_rounded(attr->value, x);
    const enum compute compute = dtype_is_float(x)                     ? compute_of(x)
                                 : attr->value.kind == TL_SCALAR_FLOAT ? COMPUTE_F32
                                                                       : COMPUTE_I64;
    const tl_operand *const list[2] = {&args->out[0], &args->in[0]};
    const geometry<2> walk = geometry_of<2>(list);
    const operands<2> o = operands_of<2>(list);
    const tl_compare relation = attr->is_first ? turned(attr->relation) : attr->relation;
    if (operands_known(args) && walk.numel > 0 &&
        with_relation(relation, compare_number{walk, o, g.value.f32, stream_of(args)}))
        return true;
    return unary_in<true, false>(args, compute, g);
}

/* ---- where ---------------------------------------------------------------------------------------------- */

template <class C> __global__ void __launch_bounds__(BLOCK) where_any(geometry<4> g, operands<4> o) {
    FOR_EACH(i, g.numel) {
        int64_t at[4];
        offsets_of(g, i, at);
        const bool holds = ((const uint8_t *)o.data[1])[at[1]];
        const C y = load_as<C>(holds ? o.data[2] : o.data[3], holds ? at[2] : at[3], holds ? o.dtype[2] : o.dtype[3]);
        store_as<C>(o.data[0], at[0], o.dtype[0], y);
    }
}

/* Both choices of the result's dtype: dropout, whose other choice is one zero. T only gives the element size. Operands
 * are not chosen by number: an array whose index is known only at run time would be copied to memory by each thread. */
template <class T> __device__ inline T where_one(const operands<4> &o, int64_t condition, int64_t a, int64_t b) {
    const bool holds = ((const uint8_t *)o.data[1])[condition];
    return *(holds ? (const T *)o.data[2] + a : (const T *)o.data[3] + b);
}

/* Eight elements as words; `constant` repeats one. */
template <class T> struct alignas(sizeof(T) * PACK < 16 ? sizeof(T) * PACK : 16) pack_words {
    enum { N = sizeof(T) * PACK / 4 };
    uint32_t w[N];
};
template <class T> __device__ inline pack_words<T> words_load(const void *data, int64_t at, bool constant) {
    if (!constant) return *(const pack_words<T> *)((const T *)data + at);
    pack_words<T> p;
    const uint64_t x = ((const T *)data)[at];
    for (int k = 0; k < p.N; k++)
        p.w[k] = sizeof(T) == 8   ? (uint32_t)(x >> 32 * (k % 2))
                 : sizeof(T) == 4 ? (uint32_t)x
                                  : (uint32_t)x * (sizeof(T) == 2 ? 0x00010001u : 0x01010101u);
    return p;
}

/* Bytes of x, or copies of their highest bits, make a word: the lowest digit of `selector` gives the lowest byte, 8
 * to 11 a byte's highest bit. */
__device__ inline uint32_t bytes_chosen(uint32_t x, uint32_t selector) {
    uint32_t y;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(y) : "r"(x), "r"(selector));
    return y;
}

/* a where it holds, else b. A byte that is not 0 gets its highest bit; copies of that are an element's mask. */
template <class T>
__device__ inline pack_words<T> chosen(pack_words<uint8_t> holds, pack_words<T> a, const pack_words<T> &b) {
    for (uint32_t &h : holds.w) h |= (h & 0x7F7F7F7Fu) + 0x7F7F7F7Fu;
#pragma unroll
    for (int k = 0; k < a.N; k++) {
        uint32_t selector = 0x8888;
        for (int byte = 0; byte < 4; byte++) selector |= (uint32_t)((4 * k + byte) / sizeof(T) % 4) << 4 * byte;
        const uint32_t mask = bytes_chosen(holds.w[4 * k / sizeof(T) / 4], selector);
        a.w[k] = (a.w[k] & mask) | (b.w[k] & ~mask);
    }
    return a;
}

template <class T> __global__ void __launch_bounds__(BLOCK) where_packs(geometry<4> g, int tail, operands<4> o) {
    const int last = g.rank - 1;
    FOR_EACH(i, g.numel) {
        int64_t at[4];
        offsets_of(g, i, at);
        const pack_words<uint8_t> holds = words_load<uint8_t>(o.data[1], at[1], g.stride[1][last] == 0);
        const pack_words<T> a = words_load<T>(o.data[2], at[2], g.stride[2][last] == 0);
        const pack_words<T> b = words_load<T>(o.data[3], at[3], g.stride[3][last] == 0);
        *(pack_words<T> *)((T *)o.data[0] + at[0]) = chosen(holds, a, b);
    }
    if (has_tail_element(tail)) {
        int64_t at[4];
        tail_offsets(g, threadIdx.x, at);
        ((T *)o.data[0])[at[0]] = where_one<T>(o, at[1], at[2], at[3]);
    }
}

template <class T> __global__ void __launch_bounds__(BLOCK) where_singles(singles<4> w, operands<4> o) {
    FOR_EACH(i, w.n_threads) {
        const places<4> p = places_of(w, i);
        T y[PACK];
#pragma unroll
        for (int j = 0; j < PACK; j++) {
            if (j >= p.n) continue;
            y[j] = where_one<T>(o, place_at(w, p, j, 1), place_at(w, p, j, 2), place_at(w, p, j, 3));
        }
#pragma unroll
        for (int j = 0; j < PACK; j++)
            if (j < p.n) ((T *)o.data[0])[place_at(w, p, j, 0)] = y[j];
    }
}

template <class T> static bool where_launch(const geometry<4> &g, const operands<4> &o, cudaStream_t stream) {
    if (can_pack(g, o, true)) {
        const geometry<4> steps = geometry_in_packs(g);
        where_packs<T><<<blocks_for(steps.numel), BLOCK, 0, stream>>>(steps, (int)(g.numel - steps.numel * PACK), o);
    } else {
        const singles<4> w = singles_of(g);
        where_singles<T><<<blocks_for(w.n_threads), BLOCK, 0, stream>>>(w, o);
    }
    return true;
}

static bool where_try(const geometry<4> &g, const operands<4> &o, cudaStream_t stream) {
    const tl_dtype t = o.dtype[0];
    if (o.dtype[2] != t || o.dtype[3] != t) return false;
    switch (dtype_bytes(t)) {
    case 8:
        return where_launch<uint64_t>(g, o, stream);
    case 4:
        return where_launch<uint32_t>(g, o, stream);
    case 2:
        return where_launch<uint16_t>(g, o, stream);
    default:
        return where_launch<uint8_t>(g, o, stream);
    }
}

extern "C" {

bool cuda_compare(const tl_kernel_args *args) {
    const tl_compare relation = ((const struct attr_compare *)args->attr)->relation;
    const tl_operand *const list[3] = {&args->out[0], &args->in[0], &args->in[1]};
    const geometry<3> g = geometry_of<3>(list);
    const operands<3> o = operands_of<3>(list);
    if (operands_known(args) && g.numel > 0 && with_relation(relation, compare_tensors{g, o, stream_of(args)}))
        return true;
    return binary_in<true, false>(args, compute_of_both(list[1]->dtype, list[2]->dtype), holds_of(relation));
}

bool cuda_compare_scalar(const tl_kernel_args *args) { return comparison_with(args); }

bool cuda_where(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    const tl_operand *const list[4] = {&args->out[0], &args->in[0], &args->in[1], &args->in[2]};
    const geometry<4> g = geometry_of<4>(list);
    const operands<4> o = operands_of<4>(list);
    if (g.numel == 0 || where_try(g, o, stream_of(args))) return true;
    const unsigned blocks = blocks_for(g.numel);
    switch (compute_of(o.dtype[0])) {
    case COMPUTE_F64:
        where_any<double><<<blocks, BLOCK, 0, stream_of(args)>>>(g, o);
        break;
    case COMPUTE_F32:
        where_any<float><<<blocks, BLOCK, 0, stream_of(args)>>>(g, o);
        break;
    case COMPUTE_I64:
        where_any<int64_t><<<blocks, BLOCK, 0, stream_of(args)>>>(g, o);
        break;
    }
    return true;
}

} /* extern "C" */

/* sort.cu: sort, searchsorted, unique.
 *
 * Every number becomes a key whose unsigned order is the number's order: negative floats have their bits inverted,
 * positive ones get the top bit; -0 becomes 0, and every NaN the highest key. For descending order the keys are
 * inverted. A value is made from its key if no other has the same, and otherwise read again through its index, so that
 * each keeps its own bits: reading all of a long line in another order would take as long as a digit.
 */
#include "device/cuda/shared/select.cuh"
#include "device/cuda/ops/sort.cuh"

#include <type_traits>

/* Of floats by their bits: `top` is the sign, `nan_above` the bits of infinity. */
template <class K> __device__ inline K float_key(K bits, K top, K nan_above) {
    const K size = (K)(bits & (K)(top - 1));
    if (size > nan_above) return (K) ~(K)0;
    if (size == 0) return top; /* -0 */
    return (K)(bits & top ? ~bits : bits | top);
}
/* The reverse, where there is one. */
template <class K> __device__ inline bool float_key_tells(K key, K top) { return key != top && key != (K) ~(K)0; }
template <class K> __device__ inline K float_bits(K key, K top) { return (K)(key & top ? key ^ top : ~key); }
__device__ inline uint32_t key_of(float x) { return float_key(__float_as_uint(x), 1u << 31, 0x7F800000u); }

/* Keys of elements, by the type that they are read as; `tells`: whether a key tells the bits of its element. */
template <class K> struct float_keys {
    typedef K key_type;
    static const K TOP = (K)((K)1 << (8 * sizeof(K) - 1));
    static __device__ bool tells(K key) { return float_key_tells(key, TOP); }
    static __device__ K bits(K key) { return float_bits(key, TOP); }
};
template <class K> struct looked_up_keys {
    typedef K key_type;
    static __device__ bool tells(K) { return false; }
    static __device__ K bits(K key) { return key; }
};
struct f64_keys : float_keys<uint64_t> {
    static __device__ uint64_t at(const void *x, int64_t i, tl_dtype) {
        return float_key(((const uint64_t *)x)[i], (uint64_t)1 << 63, (uint64_t)0x7FF << 52);
    }
};
struct f32_keys : float_keys<uint32_t> {
    static __device__ uint32_t at(const void *x, int64_t i, tl_dtype) { return key_of(((const float *)x)[i]); }
};
struct half_keys : float_keys<uint16_t> { /* f16, bf16 */
    static __device__ uint16_t at(const void *x, int64_t i, tl_dtype dtype) {
        const uint16_t infinity = dtype == TL_BF16 ? 0x7F80 : 0x7C00;
        return float_key(((const uint16_t *)x)[i], (uint16_t)0x8000, infinity);
    }
};
struct tiny_keys : looked_up_keys<uint32_t> { /* floats of 8 bits */
    static __device__ uint32_t at(const void *x, int64_t i, tl_dtype dtype) {
        return key_of(load_as<float>(x, i, dtype));
    }
};
struct i64_keys {
    typedef uint64_t key_type;
    static __device__ bool tells(uint64_t) { return true; }
    static __device__ uint64_t bits(uint64_t key) { return key ^ (uint64_t)1 << 63; }
    static __device__ uint64_t at(const void *x, int64_t i, tl_dtype) { return bits(((const uint64_t *)x)[i]); }
};
struct integer_keys : looked_up_keys<uint32_t> { /* of at most 32 bits, bool */
    static __device__ uint32_t at(const void *x, int64_t i, tl_dtype dtype) {
        return (uint32_t)load_as<int64_t>(x, i, dtype) ^ 1u << 31;
    }
};

/* KEYS: one of these. */
template <class KEYS> struct sort_source {
    typedef typename KEYS::key_type key_type;
    struct line {
        int64_t x, values, indices; /* where it begins */
    };
    geometry<3> lines; /* x, values, indices: without the axis */
    const void *x;
    void *values;
    int64_t *indices;
    tl_dtype dtype;
    int element_bytes;
    int64_t x_stride, out_stride; /* along the axis */
    bool descending;
    __device__ line begin(int64_t number) const {
        int64_t at[3];
        offsets_of(lines, number, at);
        return {at[0], at[1], at[2]};
    }
    __device__ key_type key(const line &at, int64_t i) const {
        const key_type k = KEYS::at(x, at.x + i * x_stride, dtype);
        return descending ? (key_type)~k : k;
    }
    __device__ void put(const line &at, int64_t place, int64_t index, key_type key) const {
        const int64_t from = at.x + index * x_stride, to = at.values + place * out_stride;
        const key_type own = descending ? (key_type)~key : key;
        indices[at.indices + place * out_stride] = index;
        if (KEYS::tells(own)) {
            ((key_type *)values)[to] = KEYS::bits(own);
            return;
        }
        switch (element_bytes) {
        case 8:
            ((uint64_t *)values)[to] = ((const uint64_t *)x)[from];
            break;
        case 4:
            ((uint32_t *)values)[to] = ((const uint32_t *)x)[from];
            break;
        case 2:
            ((uint16_t *)values)[to] = ((const uint16_t *)x)[from];
            break;
        default:
            ((uint8_t *)values)[to] = ((const uint8_t *)x)[from];
            break;
        }
    }
};

/* An operand without an axis: axes after it move down. */
struct slim {
    tl_operand operand;
    int64_t shape[TL_MAX_RANK], stride[TL_MAX_RANK];
};
static void slim_set(slim *s, const tl_operand *x, const tl_operand *like, int axis) {
    int n = 0;
    s->operand = *x;
    for (int i = 0; i < x->rank; i++) {
        if (i == axis) continue;
        s->shape[n] = like->shape[i];
        s->stride[n++] = x->stride[i];
    }
    s->operand.rank = n;
    s->operand.shape = s->shape;
    s->operand.stride = s->stride;
}

/* Whether neighbouring lines are side by side in an operand, and the elements of a line are not. */
static bool are_columns(const geometry<3> &lines, int operand, int64_t stride) {
    const int last = lines.rank - 1;
    return lines.stride[operand][last] == 1 && lines.size[last] >= SORT_ABREAST && stride != 1;
}

template <class KEYS> static bool sort_typed(const tl_kernel_args *args) {
    const struct attr_sort *attr = (const struct attr_sort *)args->attr;
    const tl_operand *x = &args->in[0];
    const int64_t n = x->shape[attr->axis];
    slim slims[3];
    const tl_operand *const all[3] = {x, &args->out[0], &args->out[1]};
    for (int i = 0; i < 3; i++) slim_set(&slims[i], all[i], x, attr->axis);
    const tl_operand *const list[3] = {&slims[0].operand, &slims[1].operand, &slims[2].operand};
    sort_source<KEYS> source;
    source.lines = geometry_of<3>(list);
    source.x = x->data;
    source.values = args->out[0].data;
    source.indices = (int64_t *)args->out[1].data;
    source.dtype = x->dtype;
    source.element_bytes = dtype_bytes(x->dtype);
    source.x_stride = x->stride[attr->axis];
    source.out_stride = args->out[0].stride[attr->axis];
    source.descending = attr->descending;
    const sort_columns columns = {sort_is_of_columns(x->shape, x->rank, attr->axis),
                                  are_columns(source.lines, 0, source.x_stride),
                                  are_columns(source.lines, 1, source.out_stride)};
    return sort_lines(args, source, source.lines.numel, n, attr->k, columns);
}

/* ---- searchsorted ----------------------------------------------------------------------------------------- */

/* Elements of a known type, or of one that is looked up. C: double or int64_t, whichever holds the dtype, or T's
 * own. */
struct any_dtype {};
template <class C, class T> __device__ inline C element_of(const void *x, int64_t at, tl_dtype, T *) {
    return value_of<C>(((const T *)x)[at]);
}
template <class C> __device__ inline C element_of(const void *x, int64_t at, tl_dtype dtype, any_dtype *) {
    return load_as<C>(x, at, dtype);
}

/* Operands: out, values, sorted with stride 0 along the last axis of values. The first place whose number is not
 * below the value; a NaN goes to the end: nothing is above it. I: holds the places. */
template <class C, class T, class I>
__global__ void __launch_bounds__(BLOCK) search_each(geometry<3> g, int64_t *out, const void *values,
                                                     const void *sorted, tl_dtype dtype, I n, I stride, bool right) {
    FOR_EACH(i, g.numel) {
        int64_t at[3];
        offsets_of(g, i, at);
        const C value = element_of<C>(values, at[1], dtype, (T *)nullptr);
        I low = 0, high = n;
        while (low < high) {
            const I middle = low + (high - low) / 2;
            const C x = element_of<C>(sorted, at[2] + middle * stride, dtype, (T *)nullptr);
            if (right ? !(x > value) : !(x >= value)) low = middle + 1;
            else high = middle;
        }
        out[at[0]] = low;
    }
}

template <class C, class T, class I> static bool search(const tl_kernel_args *args, const geometry<3> &g) {
    const tl_operand *sorted = &args->in[0], *values = &args->in[1];
    const int last = sorted->rank - 1;
    search_each<C, T, I><<<blocks_for(g.numel), BLOCK, 0, stream_of(args)>>>(
        g, (int64_t *)args->out[0].data, values->data, sorted->data, sorted->dtype, (I)sorted->shape[last],
        (I)sorted->stride[last], ((const struct attr_search *)args->attr)->right);
    return true;
}

/* ---- unique ----------------------------------------------------------------------------------------------- */

/* begins: where each value's run begins. */
template <class C, class T> struct unique_source {
    typedef bool value_type;
    typedef int64_t held_type; /* the element's place before it was sorted */
    const void *sorted;
    tl_dtype dtype;
    int element_bytes;
    const int64_t *order;
    int64_t n_values;
    uint8_t *values;
    int64_t *inverse, *begins;
    __device__ bool value(int64_t i) const {
        const int64_t before = max(i - 1, (int64_t)0);
        return element_of<C>(sorted, i, dtype, (T *)nullptr) != element_of<C>(sorted, before, dtype, (T *)nullptr);
    }
    __device__ bool holds(int64_t i, bool differs) const { return i == 0 || differs; }
    __device__ int64_t held(int64_t i) const { return order[i]; }
    __device__ void put(int64_t i, int64_t number, bool is_new, int64_t place) const {
        inverse[place] = is_new ? number : number - 1;
        if (!is_new || number >= n_values) return;
        begins[number] = i;
        if constexpr (std::is_same<T, any_dtype>::value) {
            for (int b = 0; b < element_bytes; b++)
                values[number * element_bytes + b] = ((const uint8_t *)sorted)[i * element_bytes + b];
        } else {
            ((T *)values)[number] = ((const T *)sorted)[i];
        }
    }
};

__global__ void __launch_bounds__(BLOCK)
    unique_counts(const int64_t *begins, int64_t n_values, int64_t n, int64_t *counts) {
    FOR_EACH(k, n_values) counts[k] = (k + 1 < n_values ? begins[k + 1] : n) - begins[k];
}

template <class C, class T> static bool unique(const tl_kernel_args *args) {
    const tl_operand *sorted = &args->in[0];
    const int64_t n = sorted->shape[0], n_values = ((const struct attr_unique *)args->attr)->n;
    int64_t *begins = (int64_t *)args->workspace;
    const size_t begins_bytes = (size_t)n_values * sizeof *begins;
    const unique_source<C, T> source = {sorted->data,
                                        sorted->dtype,
                                        dtype_bytes(sorted->dtype),
                                        (const int64_t *)args->in[1].data,
                                        n_values,
                                        (uint8_t *)args->out[0].data,
                                        (int64_t *)args->out[1].data,
                                        begins};
    const size_t left = args->workspace_bytes < begins_bytes ? 0 : args->workspace_bytes - begins_bytes;
    if (!select_all(args, source, n, n_values, begins + n_values, left)) return false;
    unique_counts<<<blocks_for(n_values), BLOCK, 0, stream_of(args)>>>(begins, n_values, n,
                                                                       (int64_t *)args->out[2].data);
    return true;
}

extern "C" {

bool cuda_sort(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    switch (args->in[0].dtype) {
    case TL_F64:
        return sort_typed<f64_keys>(args);
    case TL_F32:
        return sort_typed<f32_keys>(args);
    case TL_F16:
    case TL_BF16:
        return sort_typed<half_keys>(args);
    case TL_I64:
        return sort_typed<i64_keys>(args);
    default:
        return dtype_is_float(args->in[0].dtype) ? sort_typed<tiny_keys>(args) : sort_typed<integer_keys>(args);
    }
}

bool cuda_searchsorted(const tl_kernel_args *args) {
    const tl_operand *sorted = &args->in[0], *values = &args->in[1];
    if (!operands_known(args)) return false;
    const int last = sorted->rank - 1;
    int64_t stride[TL_MAX_RANK] = {0};
    for (int i = 0; i < last; i++) stride[i] = sorted->stride[i];
    tl_operand rows = *sorted;
    rows.rank = values->rank;
    rows.shape = values->shape;
    rows.stride = stride;
    const tl_operand *const list[3] = {&args->out[0], values, &rows};
    const geometry<3> g = geometry_of<3>(list);
    if (g.numel == 0) return true;
    const bool is_short = sorted->shape[last] * sorted->stride[last] <= INT32_MAX;
    if (is_short && sorted->dtype == TL_F32) return search<float, float, int32_t>(args, g);
    if (is_short && sorted->dtype == TL_BF16) return search<float, bf16, int32_t>(args, g);
    if (is_short && sorted->dtype == TL_F16) return search<float, f16, int32_t>(args, g);
    if (is_short && sorted->dtype == TL_F64) return search<double, double, int32_t>(args, g);
    if (is_short && sorted->dtype == TL_I64) return search<int64_t, int64_t, int32_t>(args, g);
    return dtype_is_float(sorted->dtype) ? search<double, any_dtype, int64_t>(args, g)
                                         : search<int64_t, any_dtype, int64_t>(args, g);
}

bool cuda_unique(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    if (args->in[0].shape[0] == 0) return true;
    const tl_dtype dtype = args->in[0].dtype;
    if (dtype == TL_I64) return unique<int64_t, int64_t>(args);
    return dtype_is_float(dtype) ? unique<double, any_dtype>(args) : unique<int64_t, any_dtype>(args);
}

} /* extern "C" */

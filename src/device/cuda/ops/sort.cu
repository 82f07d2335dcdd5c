/* sort.cu: sort, searchsorted, unique.
 *
 * Every number becomes a key whose unsigned order is the number's order: negative floats have their bits inverted,
 * positive ones get the top bit; -0 becomes 0, and every NaN the highest key. For descending order the keys are
 * inverted. The values are read again through the indices, so that each keeps its own bits.
 */
#include "device/cuda/shared/select.cuh"
#include "device/cuda/ops/sort.cuh"

__device__ inline uint64_t key_of(double x) {
    const uint64_t top = (uint64_t)1 << 63;
    if (x != x) return UINT64_MAX;
    const uint64_t bits = x == 0 ? 0 : f64_bits(x); /* -0 */
    return bits & top ? ~bits : bits | top;
}
__device__ inline uint64_t key_of(int64_t x) { return (uint64_t)x ^ (uint64_t)1 << 63; }
__device__ inline uint32_t key_of(float x) {
    const uint32_t top = 1u << 31;
    if (x != x) return UINT32_MAX;
    const uint32_t bits = x == 0 ? 0 : __float_as_uint(x);
    return bits & top ? ~bits : bits | top;
}

/* Elements of a known type, or of one that is looked up. C: float, double or int64_t, whichever holds the dtype. */
struct any_dtype {};
template <class C, class T> __device__ inline C element_of(const void *x, int64_t at, tl_dtype, T *) {
    return value_of<C>(((const T *)x)[at]);
}
template <class C> __device__ inline C element_of(const void *x, int64_t at, tl_dtype dtype, any_dtype *) {
    return load_as<C>(x, at, dtype);
}

template <class C, class T> struct sort_source {
    typedef decltype(key_of(C())) key_type;
    geometry<3> lines; /* x, values, indices: without the axis */
    const void *x;
    void *values;
    int64_t *indices;
    tl_dtype dtype;
    int element_bytes;
    int64_t x_stride, out_stride; /* along the axis */
    bool descending;
    __device__ key_type key(int64_t line, int64_t i) const {
        int64_t at[3];
        offsets_of(lines, line, at);
        const key_type k = key_of(element_of<C>(x, at[0] + i * x_stride, dtype, (T *)nullptr));
        return descending ? ~k : k;
    }
    __device__ void put(int64_t line, int64_t place, int64_t index) const {
        int64_t at[3];
        offsets_of(lines, line, at);
        const int64_t from = at[0] + index * x_stride, to = at[1] + place * out_stride;
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
        indices[at[2] + place * out_stride] = index;
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

template <class C, class T> static bool sort_typed(const tl_kernel_args *args) {
    const struct attr_sort *attr = (const struct attr_sort *)args->attr;
    const tl_operand *x = &args->in[0];
    const int64_t n = x->shape[attr->axis];
    slim slims[3];
    const tl_operand *const all[3] = {x, &args->out[0], &args->out[1]};
    for (int i = 0; i < 3; i++) slim_set(&slims[i], all[i], x, attr->axis);
    const tl_operand *const list[3] = {&slims[0].operand, &slims[1].operand, &slims[2].operand};
    sort_source<C, T> source;
    source.lines = geometry_of<3>(list);
    source.x = x->data;
    source.values = args->out[0].data;
    source.indices = (int64_t *)args->out[1].data;
    source.dtype = x->dtype;
    source.element_bytes = dtype_bytes(x->dtype);
    source.x_stride = x->stride[attr->axis];
    source.out_stride = args->out[0].stride[attr->axis];
    source.descending = attr->descending;
    const int64_t n_lines = source.lines.numel, n_slots = n_lines < SORT_SLOTS ? n_lines : SORT_SLOTS;
    return sort_lines(args, source, n_lines, n, attr->k, n_slots);
}

/* ---- searchsorted ----------------------------------------------------------------------------------------- */

/* Operands: out, values, sorted with stride 0 along the last axis of values. The first place whose number is not
 * below the value; a NaN goes to the end: nothing is above it. */
template <class C>
__global__ void __launch_bounds__(BLOCK) search_any(geometry<3> g, int64_t *out, const void *values, const void *sorted,
                                                    tl_dtype dtype, int64_t n, int64_t stride, bool right) {
    FOR_EACH(i, g.numel) {
        int64_t at[3];
        offsets_of(g, i, at);
        const C value = load_as<C>(values, at[1], dtype);
        int64_t low = 0, high = n;
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            const C x = load_as<C>(sorted, at[2] + middle * stride, dtype);
            if (right ? !(x > value) : !(x >= value)) low = middle + 1;
            else high = middle;
        }
        out[at[0]] = low;
    }
}

/* ---- unique ----------------------------------------------------------------------------------------------- */

/* begins: where each value's run begins. */
template <class C, class T> struct unique_source {
    typedef bool value_type;
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
    __device__ void put(int64_t i, int64_t number, bool is_new) const {
        inverse[order[i]] = is_new ? number : number - 1;
        if (!is_new || number >= n_values) return;
        begins[number] = i;
        for (int b = 0; b < element_bytes; b++)
            values[number * element_bytes + b] = ((const uint8_t *)sorted)[i * element_bytes + b];
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
    const tl_operand *x = &args->in[0];
    const bool is_narrow = x->shape[((const struct attr_sort *)args->attr)->axis] <= UINT32_MAX;
    if (is_narrow && x->dtype == TL_F32) return sort_typed<float, float>(args);
    if (is_narrow && x->dtype == TL_BF16) return sort_typed<float, bf16>(args);
    if (is_narrow && x->dtype == TL_F16) return sort_typed<float, f16>(args);
    if (x->dtype == TL_I64) return sort_typed<int64_t, int64_t>(args);
    return dtype_is_float(x->dtype) ? sort_typed<double, any_dtype>(args) : sort_typed<int64_t, any_dtype>(args);
}

bool cuda_searchsorted(const tl_kernel_args *args) {
    const tl_operand *sorted = &args->in[0], *values = &args->in[1];
    if (!operands_known(args)) return false;
    const int last = sorted->rank - 1;
    const bool right = ((const struct attr_search *)args->attr)->right;
    int64_t stride[TL_MAX_RANK] = {0};
    for (int i = 0; i < last; i++) stride[i] = sorted->stride[i];
    tl_operand rows = *sorted;
    rows.rank = values->rank;
    rows.shape = values->shape;
    rows.stride = stride;
    const tl_operand *const list[3] = {&args->out[0], values, &rows};
    const geometry<3> g = geometry_of<3>(list);
    if (g.numel == 0) return true;
    const unsigned blocks = blocks_for(g.numel);
    int64_t *out = (int64_t *)args->out[0].data;
    const int64_t n = sorted->shape[last], step = sorted->stride[last];
    if (dtype_is_float(sorted->dtype))
        search_any<double>
            <<<blocks, BLOCK, 0, stream_of(args)>>>(g, out, values->data, sorted->data, sorted->dtype, n, step, right);
    else
        search_any<int64_t>
            <<<blocks, BLOCK, 0, stream_of(args)>>>(g, out, values->data, sorted->data, sorted->dtype, n, step, right);
    return true;
}

bool cuda_unique(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    if (args->in[0].shape[0] == 0) return true;
    const tl_dtype dtype = args->in[0].dtype;
    if (dtype == TL_I64) return unique<int64_t, int64_t>(args);
    return dtype_is_float(dtype) ? unique<double, any_dtype>(args) : unique<int64_t, any_dtype>(args);
}

} /* extern "C" */

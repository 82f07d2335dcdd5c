/* head.cu: the last product and the loss, a chunk of rows at a time; see ops/head.c.
 *
 * Products go through matmul.c, logits in f32 (f64). One kernel turns a chunk of logits into losses and, in their
 * place, into their gradient: in f32 (f64) for such weights, and in the weights' own dtype for narrower ones, since
 * tensor cores multiply equals. A narrow row lies in the first half of the row of logits it replaces. In f16 a
 * gradient already divided by the number of rows would vanish, so there the division comes after the products.
 *
 * The number of rows that count is known to the device alone; the scale that follows from it waits in the loss's
 * place until the loss itself comes. A target outside [0,V) is noted (state.h) and its row left out.
 *
 * The workspace begins with what the products may use; then the chunk of logits, whose rows begin at multiples of
 * HEAD_ALIGN elements, the losses, and dweight's sums.
 */
#include "device/cuda/common.cuh"

template <class C> struct head {
    const void *targets;
    tl_dtype targets_dtype;
    int64_t ignore_index, V, pitch; /* pitch: elements from one row of logits to the next */
    C *losses;                      /* (N) */
    const C *scale;                 /* of a row's loss in the result */
    bool has_gradients, scales_late;
};

__device__ inline bool target_counts(int64_t target, int64_t ignore_index, int64_t V) {
    return target != ignore_index && target >= 0 && target < V;
}

/* The scale: 1 of a sum, 1 / rows that count of a mean (NaN when there are none). One block. */
template <class C>
__global__ void __launch_bounds__(1024)
    head_scale(head<C> h, int64_t N, bool is_sum, C *scale, struct cuda_fault *fault) {
    int64_t n = 0;
    for (int64_t row = threadIdx.x; row < N; row += blockDim.x) {
        const int64_t target = id_at(h.targets, h.targets_dtype, row);
        if (target_counts(target, h.ignore_index, h.V)) n++;
        else if (target != h.ignore_index) fault_raise(fault, FAULT_HEAD, target, h.V);
    }
    n = block_reduce(n, sum_of(), (int64_t)0);
    if (threadIdx.x == 0) *scale = is_sum ? C(1) : n ? (C)(1 / (double)n) : (C)NAN;
}

/* What the gradient of logit i is; `factor` is the scale, or 1 where that comes late. */
template <class C> __device__ inline C logit_slope(C logit, bool is_target, C lse, C factor) {
    return (exp_of(logit - lse) - (is_target ? C(1) : C(0))) * factor;
}

/* A block per row: the row's loss, and the gradient G of its logits in their place. Before a tile is written, the
 * whole block has read it; a narrow tile then only covers logits of this and earlier tiles. The last pack of a row may
 * reach into the gap behind it. */
template <class C, class G>
__global__ void __launch_bounds__(512) head_rows(head<C> h, C *logits, int64_t first_row, int64_t n_rows) {
    const int64_t n_packs = (h.V + PACK - 1) / PACK;
    for (int64_t i = blockIdx.x; i < n_rows; i += gridDim.x) {
        C *x = logits + i * h.pitch;
        G *out = (G *)x;
        const int64_t target = id_at(h.targets, h.targets_dtype, first_row + i);
        if (!target_counts(target, h.ignore_index, h.V)) {
            if (threadIdx.x == 0) h.losses[first_row + i] = 0;
            for (int64_t k = threadIdx.x; h.has_gradients && k < h.V; k += blockDim.x)
                out[k] = conversion<G>::from(C(0));
            continue;
        }
        running<C> r = {lowest<C>(), C(0)};
        for (int64_t k = threadIdx.x; k < n_packs; k += blockDim.x) {
            const unit<C, PACK> p = unit_load<PACK>(x, k);
            for (int j = 0; j < PACK; j++)
                if (k * PACK + j < h.V) running_add(r, p.v[j]);
        }
        const C lse = running_lse(r);
        if (threadIdx.x == 0) h.losses[first_row + i] = lse - x[target];
        if (!h.has_gradients) continue;
        const C factor = h.scales_late ? C(1) : *h.scale;
        __syncthreads(); /* the loss has read its logit */
        for (int64_t tile = 0; tile < n_packs; tile += blockDim.x) {
            const int64_t k = tile + threadIdx.x;
            unit<C, PACK> p = {};
            if (k < n_packs) p = unit_load<PACK>(x, k);
            if (sizeof(G) < sizeof(C)) __syncthreads();
            unit<G, PACK> q;
            for (int j = 0; j < PACK; j++)
                q.v[j] = conversion<G>::from(logit_slope(p.v[j], k * PACK + j == target, lse, factor));
            if (k < n_packs) unit_store<PACK>(out, k, q);
        }
    }
}

/* The loss in place of the scale. One block, one order. */
template <class C> __global__ void __launch_bounds__(1024) head_total(const C *losses, int64_t N, C *loss) {
    double total = 0;
    for (int64_t row = threadIdx.x; row < N; row += blockDim.x) total += (double)losses[row];
    total = block_reduce(total, sum_of(), 0.0);
    if (threadIdx.x == 0) *loss = (C)(total * (double)*loss);
}

/* What came of the products, times the scale, in the result's dtype. No rows that count: nothing to scale. */
template <class A, class O>
__global__ void __launch_bounds__(BLOCK) head_finish(const A *from, O *to, int64_t n, const float *scale) {
    const float factor = scale ? (*scale == *scale ? *scale : 0.0f) : 1.0f;
    FOR_EACH(i, n) to[i] = conversion<O>::from(value_of<float>(from[i]) * factor);
}

/* ---- Products ----------------------------------------------------------------------------------------- */

/* A matrix whose rows are `ld` elements apart. */
struct matrix {
    tl_operand operand;
    int64_t shape[2], stride[2];
};
static void matrix_set(matrix *m, void *data, tl_dtype dtype, int64_t n_rows, int64_t n_columns, int64_t ld) {
    m->shape[0] = n_rows;
    m->shape[1] = n_columns;
    m->stride[0] = ld;
    m->stride[1] = 1;
    m->operand.data = data;
    m->operand.dtype = dtype;
    m->operand.rank = 2;
    m->operand.shape = m->shape;
    m->operand.stride = m->stride;
}

/* out = op(a) op(b), or += . */
static bool multiply(const tl_kernel_args *args, size_t workspace_bytes, const matrix *out, const matrix *a,
                     bool transpose_a, const matrix *b, bool transpose_b, bool adds) {
    struct attr_matmul attr = {};
    attr.transpose_a = transpose_a;
    attr.transpose_b = transpose_b;
    attr.dtype = out->operand.dtype;
    tl_operand in[3] = {out->operand, a->operand, b->operand}, result[1] = {out->operand};
    tl_kernel_args product = *args;
    product.in = adds ? in : in + 1;
    product.n_in = adds ? 3 : 2;
    product.out = result;
    product.n_out = 1;
    product.attr = &attr;
    product.workspace_bytes = workspace_bytes;
    return adds ? cuda_matmul_acc(&product) : cuda_matmul(&product);
}

static size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* x and weight of T; logits, losses and sums of C; the logits' gradient in T. */
template <class T> struct head_call {
    typedef typename compute_type<T>::type C;
    const tl_kernel_args *args;
    const struct attr_linear_cross_entropy *attr;
    tl_dtype dtype, wide;
    int64_t N, V, width; /* C of the shapes */
    size_t product_bytes;
    C *logits, *sums; /* sums: dweight's, or dweight itself */
    T *dx, *dweight;
    head<C> h;
};

template <class T> static bool head_begin(head_call<T> *c, const tl_kernel_args *args) {
    typedef typename compute_type<T>::type C;
    c->args = args;
    c->attr = (const struct attr_linear_cross_entropy *)args->attr;
    c->dtype = args->in[0].dtype;
    c->wide = args->out[0].dtype;
    c->N = args->in[0].shape[0];
    c->V = args->in[1].shape[0];
    c->width = args->in[1].shape[1];
    c->dx = c->attr->gives_dx ? (T *)args->out[1].data : nullptr;
    c->dweight = c->attr->gives_dweight ? (T *)args->out[c->attr->gives_dx ? 2 : 1].data : nullptr;
    const bool has_sums = c->attr->gives_dweight && sizeof(T) < 4;
    const int64_t pitch = (c->V + HEAD_ALIGN - 1) / HEAD_ALIGN * HEAD_ALIGN;
    const size_t logits = padded((size_t)(c->attr->chunk_rows * pitch) * sizeof(C)),
                 losses = padded((size_t)c->N * sizeof(C));
    const size_t sums = has_sums ? padded((size_t)(c->V * c->width) * sizeof(C)) : 0;
    if (args->workspace_bytes < logits + losses + sums) {
        snprintf(args->error, CUDA_ERROR_BYTES, "%s: needs %zu bytes of workspace, has %zu", args->op,
                 logits + losses + sums, args->workspace_bytes);
        return false;
    }
    c->product_bytes = (args->workspace_bytes - logits - losses - sums) / 256 * 256;
    char *at = (char *)args->workspace + c->product_bytes;
    c->logits = (C *)at;
    c->sums = has_sums ? (C *)(at + logits + losses) : (C *)c->dweight;
    c->h = {args->in[2].data,
            args->in[2].dtype,
            c->attr->ignore_index,
            c->V,
            pitch,
            (C *)(at + logits),
            (const C *)args->out[0].data,
            args->n_out > 1,
            sizeof(T) == 2 && c->dtype == TL_F16};
    return true;
}

/* Rows row .. row + n - 1: their losses, their dx, and their part of dweight's sums. */
template <class T> static bool chunk_run(const head_call<T> *c, int64_t row, int64_t n) {
    typedef typename compute_type<T>::type C;
    const tl_operand *x = &c->args->in[0], *weight = &c->args->in[1];
    matrix rows, table, logits, slopes, dx, sums;
    matrix_set(&rows, (T *)x->data + row * c->width, c->dtype, n, c->width, c->width);
    matrix_set(&table, weight->data, c->dtype, c->V, c->width, c->width);
    matrix_set(&logits, c->logits, c->wide, n, c->V, c->h.pitch);
    matrix_set(&slopes, c->logits, c->dtype, n, c->V, c->h.pitch * (int64_t)(sizeof(C) / sizeof(T)));
    if (!multiply(c->args, c->product_bytes, &logits, &rows, false, &table, true, false)) return false;
    head_rows<C, T><<<capped(n), threads_for_row(c->V / 2), 0, stream_of(c->args)>>>(c->h, c->logits, row, n);
    if (c->attr->gives_dx) {
        matrix_set(&dx, c->dx + row * c->width, c->dtype, n, c->width, c->width);
        if (!multiply(c->args, c->product_bytes, &dx, &slopes, false, &table, false, false)) return false;
    }
    if (!c->attr->gives_dweight) return true;
    matrix_set(&sums, c->sums, c->wide, c->V, c->width, c->width);
    return multiply(c->args, c->product_bytes, &sums, &slopes, true, &rows, false, row > 0);
}

template <class T> static bool head_run(const tl_kernel_args *args) {
    typedef typename compute_type<T>::type C;
    head_call<T> c;
    if (!head_begin(&c, args)) return false;
    const cudaStream_t stream = stream_of(args);
    C *loss = (C *)args->out[0].data;
    const int64_t n_weights = c.V * c.width;
    head_scale<C><<<1, 1024, 0, stream>>>(c.h, c.N, c.attr->is_sum, loss, fault_of(args));
    if (c.N == 0 && c.attr->gives_dweight && n_weights > 0 &&
        !cuda_check(cudaMemsetAsync(c.sums, 0, (size_t)n_weights * sizeof(C), stream), args->op, args->error))
        return false;
    for (int64_t row = 0; row < c.N && c.V > 0; row += c.attr->chunk_rows)
        if (!chunk_run(&c, row, c.attr->chunk_rows < c.N - row ? c.attr->chunk_rows : c.N - row)) return false;
    if constexpr (sizeof(T) == 2) {
        const float *late = c.h.scales_late ? loss : nullptr;
        if (late && c.attr->gives_dx && c.N * c.width > 0)
            head_finish<T, T><<<blocks_for(c.N * c.width), BLOCK, 0, stream>>>(c.dx, c.dx, c.N * c.width, late);
        if (c.attr->gives_dweight && n_weights > 0)
            head_finish<C, T><<<blocks_for(n_weights), BLOCK, 0, stream>>>(c.sums, c.dweight, n_weights, late);
    }
    head_total<C><<<1, 1024, 0, stream>>>(c.h.losses, c.N, loss);
    return true;
}

extern "C" bool cuda_linear_cross_entropy(const tl_kernel_args *args) {
    if (!ids_known(args, &args->in[2])) return false;
    if (args->in[1].dtype != args->in[0].dtype) return cuda_refuse_dtype(args, args->in[1].dtype);
    switch (args->in[0].dtype) {
    case TL_F64:
        return head_run<double>(args);
    case TL_F32:
        return head_run<float>(args);
    case TL_BF16:
        return head_run<bf16>(args);
    case TL_F16:
        return head_run<f16>(args);
    default:
        return cuda_refuse_dtype(args, args->in[0].dtype);
    }
}

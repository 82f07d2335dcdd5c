/* head.cu: the last product and the loss, a chunk of rows at a time; see ops/head.c.
 *
 * Products go through matmul.c. Logits have the dtype of x: 16-bit ones are rounded, as those of a linear layer are,
 * and half as many bytes go through memory. One kernel turns a chunk of logits into losses and, in their place, into
 * their gradient. In f16 a gradient already divided by the number of rows would vanish, so there the division comes
 * after the products.
 *
 * Vocabulary sizes are often odd, and products of odd sizes are slow. So rows of logits are `pitch` elements long, V
 * rounded up to HEAD_ALIGN, and for 16-bit weights the products have that size too: the weight is copied with rows of
 * zeros behind it, the gradient of the logits that belong to them is 0, and so are the rows of dweight's sums, which
 * are never read.
 *
 * Only the device knows the number of rows that count. The scale that follows from it is stored in the loss until the
 * loss itself is written. A target outside [0,V) is recorded as a fault (state.h) and its row skipped.
 *
 * bf16 rows have their own way on Hopper, where there are enough of them: head_hopper.cu.
 *
 * The workspace holds that of the products, then the parts that head_rule.h lists.
 */
#include "device/cuda/ops/head.cuh"
#include "device/cuda/shared/real_math.cuh"

/* The scale: 1 for a sum, 1 / (rows that count) for a mean (NaN if there are none). One block. */
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

/* e^(x - shift) for logits of T: for 16-bit ones by the GPU's own 2^x, accurate to about 2^-18, in two instructions.
 * Each that is spent on all logits of GPT-2 124M takes 0.12 ms of a step on an H200. */
template <class T> struct exponential {
    typedef typename compute_type<T>::type C;
    static __device__ C of(C x, C shift) {
        if (sizeof(T) == 2) return (C)short_exp2(fmaf((float)x, float(LOG2_E), float(-LOG2_E) * (float)shift));
        return exp_of(x - shift);
    }
};

__device__ inline float larger(float a, float b) { return fmaxf(a, b); }
__device__ inline double larger(double a, double b) { return fmax(a, b); }

/* c tanh(z / c), or z without a cap. */
template <class C> __device__ inline C capped_logit(C z, C c) { return c > C(0) ? c * real_tanh(z / c) : z; }

/* Adds the first n of a pack's logits to a running log-sum-exp, with at most one rescaling for all of them, and to
 * `sum` if labels are smoothed. `larger` ignores NaN, which stays in the sum. */
template <class T>
__device__ inline void running_add_pack(running<typename compute_type<T>::type> &r, const row_pack<T> &p, int n,
                                        typename compute_type<T>::type cap, bool has_sum,
                                        typename compute_type<T>::type &sum) {
    typedef typename compute_type<T>::type C;
    C x[PACK], top = r.top;
    p.widen(x);
    if (cap > C(0)) {
#pragma unroll
        for (int j = 0; j < PACK; j++) x[j] = capped_logit(x[j], cap);
    }
#pragma unroll
    for (int j = 0; j < PACK; j++) {
        if (j >= n) x[j] = lowest<C>();
        top = larger(top, x[j]);
    }
    if (has_sum) {
#pragma unroll
        for (int j = 0; j < PACK; j++) sum += j >= n ? C(0) : x[j];
    }
    const C shift = top == lowest<C>() ? C(0) : top; /* -inf - -inf is no number */
    if (top != r.top) r.sum *= exponential<T>::of(r.top, shift);
#pragma unroll
    for (int j = 0; j < PACK; j++) r.sum += exponential<T>::of(x[j], shift);
    r.top = top;
}

/* What the slopes of a row follow from: a label is `other` for every class, and `hit` more for the target. */
template <class C> struct row_slopes {
    int64_t V, target;
    C lse, growth, hit, other, factor, cap;
};

/* Slopes of a pack of logits that begins at column `first`: (growth e^(logit - lse) - label) factor, and 0 from column
 * V on. With a cap c: times 1 - (capped / c)^2. */
template <class T>
__device__ inline row_pack<T> pack_slopes(const row_pack<T> &p, int64_t first,
                                          const row_slopes<typename compute_type<T>::type> &s) {
    typedef typename compute_type<T>::type C;
    C x[PACK];
    p.widen(x);
    const bool is_near = s.target >= first && s.target<first + PACK, is_last = first + PACK> s.V;
    if (!is_near && !is_last && s.growth == C(1) && s.other == C(0) && !(s.cap > C(0))) { /* nearly all */
#pragma unroll
        for (int j = 0; j < PACK; j++) x[j] = exponential<T>::of(x[j], s.lse) * s.factor;
        row_pack<T> q;
        q.narrow(x);
        return q;
    }
#pragma unroll
    for (int j = 0; j < PACK; j++) {
        const C z = capped_logit(x[j], s.cap);
        C slope = exponential<T>::of(z, s.lse) * s.growth - s.other;
        if (is_near && first + j == s.target) slope -= s.hit;
        if (s.cap > C(0)) slope *= C(1) - z / s.cap * (z / s.cap);
        x[j] = is_last && first + j >= s.V ? C(0) : slope * s.factor;
    }
    row_pack<T> q;
    q.narrow(x);
    return q;
}

/* A block per row, from the last row back, since those are still in the cache: the row's loss, and the gradient of
 * its logits in their place, zeros behind column V. A thread writes only what it has read itself, and loads AHEAD
 * packs before it uses the first. Two blocks of 512 threads per multiprocessor keep their rows in the cache until the
 * second pass. */
template <class T>
__global__ void __launch_bounds__(512, sizeof(T) == 2 ? 2 : 1)
    head_rows(head<typename compute_type<T>::type> h, T *logits, int64_t first_row, int64_t n_rows) {
    typedef typename compute_type<T>::type C;
    const int AHEAD = sizeof(T) == 2 ? 4 : 1;
    const int n_packs = (int)(h.pitch / PACK), step = blockDim.x;
    for (int64_t block = blockIdx.x; block < n_rows; block += gridDim.x) {
        const int64_t i = n_rows - 1 - block;
        T *x = logits + i * h.pitch;
        const int64_t target = id_at(h.targets, h.targets_dtype, first_row + i);
        if (!target_counts(target, h.ignore_index, h.V)) {
            if (threadIdx.x == 0) h.losses[first_row + i] = 0;
            for (int k = threadIdx.x; h.has_gradients && k < n_packs; k += step) {
                const C zeros[PACK] = {};
                row_pack<T> p;
                p.narrow(zeros);
                row_store(x, k, p);
            }
            continue;
        }
        running<C> r = {lowest<C>(), C(0)};
        C sum = C(0);
        const bool has_sum = h.smoothing > C(0);
        for (int first = threadIdx.x; first < n_packs; first += step * AHEAD) {
            row_pack<T> p[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                if (first + k * step < n_packs) p[k] = row_load(x, first + k * step);
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                const int64_t left = h.V - (int64_t)(first + k * step) * PACK;
                if (left >= PACK) running_add_pack<T>(r, p[k], PACK, h.soft_cap, has_sum, sum);
                else if (left > 0) running_add_pack<T>(r, p[k], (int)left, h.soft_cap, has_sum, sum);
            }
        }
        const C lse = running_lse(r);
        if (has_sum) sum = block_reduce(sum, sum_of(), C(0));
        if (threadIdx.x == 0) {
            C loss = lse - capped_logit(value_of<C>(x[target]), h.soft_cap);
            if (has_sum) loss = (C(1) - h.smoothing) * loss + h.smoothing * (lse - sum / (C)h.V);
            if (h.z_weight > C(0)) loss += h.z_weight * lse * lse;
            h.losses[first_row + i] = loss;
        }
        if (!h.has_gradients) continue;
        __syncthreads(); /* the loss has read its logit */
        const row_slopes<C> slopes = {h.V,
                                      target,
                                      lse,
                                      C(1) + C(2) * h.z_weight * lse,
                                      C(1) - h.smoothing,
                                      h.smoothing / (C)h.V,
                                      h.scales_late ? C(1) : *h.scale,
                                      h.soft_cap};
        for (int first = threadIdx.x; first < n_packs; first += step * AHEAD) {
            row_pack<T> p[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                if (first + k * step < n_packs) p[k] = row_load(x, first + k * step);
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                const int at = first + k * step;
                if (at < n_packs) row_store(x, at, pack_slopes<T>(p[k], (int64_t)at * PACK, slopes));
            }
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

/* The products times the scale, in the result's dtype; n elements, one pack per thread. If no rows count, there is
 * nothing to scale. */
template <class A, class O>
__global__ void __launch_bounds__(BLOCK) head_finish(const A *from, O *to, int64_t n, const float *scale) {
    const float factor = scale ? (*scale == *scale ? *scale : 0.0f) : 1.0f;
    FOR_EACH(k, (n + PACK - 1) / PACK) {
        if ((k + 1) * PACK <= n) {
            const unit<A, PACK> a = unit_load<PACK>(from, k);
            unit<O, PACK> o;
            for (int j = 0; j < PACK; j++) o.v[j] = conversion<O>::from(value_of<float>(a.v[j]) * factor);
            unit_store<PACK>(to, k, o);
        } else {
            for (int64_t i = k * PACK; i < n; i++) to[i] = conversion<O>::from(value_of<float>(from[i]) * factor);
        }
    }
}

/* ---- Products ----------------------------------------------------------------------------------------- */

/* out = op(a) op(b), or += . */
static bool multiply(const tl_kernel_args *args, size_t workspace_bytes, const rows *out, const rows *a,
                     bool transpose_a, const rows *b, bool transpose_b, bool adds) {
    struct attr_matmul attr = {};
    attr.transpose_a = transpose_a;
    attr.transpose_b = transpose_b;
    attr.dtype = out->operand.dtype;
    attr.is_timed = ((const struct attr_linear_cross_entropy *)args->attr)->is_timed;
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

/* x, weight and logits of T; losses and sums of C. */
template <class T> struct head_call {
    typedef typename compute_type<T>::type C;
    const tl_kernel_args *args;
    const struct attr_linear_cross_entropy *attr;
    tl_dtype dtype, wide;
    int64_t N, V, columns, width; /* columns: V, as long as the products have it; width: C of the shapes */
    size_t product_bytes;
    T *logits;
    void *table; /* weight, with as many rows as there are columns */
    C *sums;     /* dweight's, or dweight itself */
    T *dx, *dweight;
    head<C> h;
    bool has_exponentials; /* on Hopper, by way of */
    struct head_chunk chunk;
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
    const struct head_sizes sizes = {c->N, c->V, c->width, c->dtype};
    const int capability = cuda_state_of(args->stream)->capability;
    const struct head_room room = head_room_of(&sizes, c->attr, capability);
    if (args->workspace_bytes < room.all) {
        snprintf(args->error, CUDA_ERROR_BYTES, "%s: needs %zu bytes of workspace, has %zu", args->op, (size_t)room.all,
                 args->workspace_bytes);
        return false;
    }
    c->product_bytes = (args->workspace_bytes - room.all) / 256 * 256;
    char *part[HEAD_PARTS], *at = (char *)args->workspace + c->product_bytes;
    for (int i = 0; i < HEAD_PARTS; i++) part[i] = at, at += room.part[i];
    const int64_t pitch = head_pitch(c->V);
    c->columns = sizeof(T) == 2 ? pitch : c->V;
    c->logits = (T *)part[HEAD_LOGITS];
    c->sums = room.part[HEAD_SUMS] ? (C *)part[HEAD_SUMS] : (C *)c->dweight;
    c->table = room.part[HEAD_TABLE] ? part[HEAD_TABLE] : args->in[1].data;
    c->h = {args->in[2].data,
            args->in[2].dtype,
            c->attr->ignore_index,
            c->V,
            pitch,
            (C *)part[HEAD_LOSSES],
            (const C *)args->out[0].data,
            args->n_out > 1,
            sizeof(T) == 2 && c->dtype == TL_F16,
            (C)c->attr->soft_cap,
            (C)c->attr->label_smoothing,
            (C)c->attr->z_weight};
    c->has_exponentials = head_fits_hopper(&sizes, c->attr, capability) && head_runs_on_hopper(args);
    if constexpr (std::is_same<T, bf16>::value) {
        float *const rows = (float *)part[HEAD_ROWS];
        const int64_t n = c->attr->chunk_rows;
        c->chunk = {c->h,
                    (const bf16 *)args->in[1].data,
                    c->width,
                    c->logits,
                    rows,
                    rows + n,
                    rows + 2 * n,
                    rows + 3 * n,
                    (float *)part[HEAD_PARTIAL],
                    (int *)part[HEAD_PAIRS],
                    c->attr->gives_dweight ? (bf16 *)part[HEAD_SCALED] : nullptr};
    }
    return true;
}

/* The weight padded with zeros, if the products use it. */
template <class T> static bool table_fill(const head_call<T> *c) {
    const size_t there = (size_t)(c->V * c->width) * sizeof(T), all = (size_t)(c->columns * c->width) * sizeof(T);
    const cudaStream_t stream = stream_of(c->args);
    if (c->table == c->args->in[1].data) return true;
    return cuda_check(cudaMemcpyAsync(c->table, c->args->in[1].data, there, cudaMemcpyDeviceToDevice, stream),
                      c->args->op, c->args->error) &&
           cuda_check(cudaMemsetAsync((char *)c->table + there, 0, all - there, stream), c->args->op, c->args->error);
}

/* Zeros after the logits if products do not write that far: packs are read whole. They stay zero from chunk to
 * chunk. */
template <class T> static bool margin_fill(const head_call<T> *c) {
    const size_t margin = (size_t)(c->h.pitch - c->columns) * sizeof(T);
    const int64_t n_rows = c->attr->chunk_rows < c->N ? c->attr->chunk_rows : c->N;
    return !margin || cuda_check(cudaMemset2DAsync(c->logits + c->columns, (size_t)c->h.pitch * sizeof(T), 0, margin,
                                                   (size_t)n_rows, stream_of(c->args)),
                                 c->args->op, c->args->error);
}

/* Rows row .. row + n - 1: their losses, and the gradient of their logits. */
template <class T> static bool logits_run(const head_call<T> *c, int64_t row, int64_t n, T *x) {
    if constexpr (std::is_same<T, bf16>::value)
        if (c->has_exponentials) return head_exponentials(c->args, &c->chunk, x, row, n);
    rows of_x, table, logits;
    rows_set(&of_x, x, c->dtype, n, c->width);
    rows_set(&table, c->table, c->dtype, c->columns, c->width);
    rows_set_apart(&logits, c->logits, c->dtype, n, c->columns, c->h.pitch);
    if (!multiply(c->args, c->product_bytes, &logits, &of_x, false, &table, true, false)) return false;
    head_rows<T><<<capped(n), threads_for_row(c->V / 2), 0, stream_of(c->args)>>>(c->h, c->logits, row, n);
    return true;
}

/* The same, their dx, and their part of dweight's sums. */
template <class T> static bool chunk_run(const head_call<T> *c, int64_t row, int64_t n) {
    T *const x = (T *)c->args->in[0].data + row * c->width, *of_dweight = x;
    rows of_x, table, logits, dx, sums;
    if (!logits_run(c, row, n, x)) return false;
    rows_set(&table, c->table, c->dtype, c->columns, c->width);
    rows_set_apart(&logits, c->logits, c->dtype, n, c->columns, c->h.pitch);
    if (c->attr->gives_dx) {
        rows_set(&dx, c->dx + row * c->width, c->dtype, n, c->width);
        if (!multiply(c->args, c->product_bytes, &dx, &logits, false, &table, false, false)) return false;
    }
    if constexpr (std::is_same<T, bf16>::value) {
        if (c->has_exponentials) of_dweight = c->chunk.scaled;
        if (c->has_exponentials && c->attr->gives_dx) head_apply_factors(c->args, &c->chunk, c->dx + row * c->width, n);
    }
    if (!c->attr->gives_dweight) return true;
    rows_set(&of_x, of_dweight, c->dtype, n, c->width);
    rows_set(&sums, c->sums, c->wide, c->columns, c->width);
    return multiply(c->args, c->product_bytes, &sums, &logits, true, &of_x, false, row > 0);
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
    if (c.N > 0 && c.V > 0 && !(table_fill(&c) && margin_fill(&c))) return false;
    for (int64_t row = 0; row < c.N && c.V > 0; row += c.attr->chunk_rows)
        if (!chunk_run(&c, row, c.attr->chunk_rows < c.N - row ? c.attr->chunk_rows : c.N - row)) return false;
    if constexpr (sizeof(T) == 2) {
        const float *late = c.h.scales_late ? loss : nullptr;
        if (late && c.attr->gives_dx && c.N * c.width > 0)
            head_finish<T, T>
                <<<blocks_for(c.N * c.width / PACK + 1), BLOCK, 0, stream>>>(c.dx, c.dx, c.N * c.width, late);
        if (c.attr->gives_dweight && n_weights > 0)
            head_finish<C, T>
                <<<blocks_for(n_weights / PACK + 1), BLOCK, 0, stream>>>(c.sums, c.dweight, n_weights, late);
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

/* blocks.cu: products with a weight W (n,k) in a block-scaled format.
 *
 * Numbers of W are read as dequantize makes them in x's dtype (block_numbers.cuh). blocks_rule.h says which of the two
 * ways a call takes.
 */
#include "device/cuda/shared/block_numbers.cuh"
#include "device/cuda/shared/blocks_rule.h"
#include "device/cuda/shared/operand_rows.cuh"

/* ---- Parts of W, for the library ------------------------------------------------------------------------ */

/* out (n_rows, n_columns) = that part of W, from this row and column on. */
struct part {
    int64_t row, n_rows, column, n_columns;
};

template <class T, int BITS> __global__ void __launch_bounds__(BLOCK) unpack(packed p, part at, T *out) {
    __shared__ tables t;
    tables_fill<BITS>(t, p);
    const int64_t packs = at.n_columns / PACK;
    FOR_EACH(i, at.n_rows * packs) {
        const int64_t row = at.row + i / packs, column = at.column + i % packs * PACK;
        unit<T, PACK> u;
        numbers_read<T, BITS>(p, t, row * p.k + column, u.v);
        unit_store<PACK>(out, i, u);
    }
}

/* out = x w^T, or x w: columns first .. first + n - 1 of the result. */
static bool multiply_part(const tl_kernel_args *args, const rows &x, void *w, int64_t first, int64_t n,
                          size_t workspace_bytes) {
    const struct attr_matmul_blocks *attr = (const struct attr_matmul_blocks *)args->attr;
    const tl_operand *y = &args->out[0];
    const int64_t terms = x.shape[1], columns = y->shape[y->rank - 1], bytes = dtype_bytes(y->dtype);
    struct attr_matmul product = {};
    product.transpose_b = attr->transpose_b;
    product.dtype = y->dtype;
    product.is_fast = attr->is_fast;
    product.is_timed = attr->is_timed;
    rows out, weight;
    rows_set_apart(&out, (char *)y->data + first * bytes, y->dtype, x.shape[0], n, columns);
    rows_set(&weight, w, y->dtype, attr->transpose_b ? n : terms, attr->transpose_b ? terms : n);
    tl_operand in[3] = {x.operand, weight.operand, weight.operand};
    const int64_t length[1] = {n}, step[1] = {1};
    if (args->n_in > 4) {
        in[2] = args->in[4];
        in[2].data = (char *)in[2].data + first * bytes;
        in[2].shape = length;
        in[2].stride = step;
    }
    tl_kernel_args call = *args;
    call.in = in;
    call.n_in = args->n_in > 4 ? 3 : 2;
    call.out = &out.operand;
    call.n_out = 1;
    call.attr = &product;
    call.workspace_bytes = workspace_bytes;
    return cuda_matmul(&call);
}

template <class T, int BITS> static bool by_parts(const tl_kernel_args *args, const packed &p, const rows &x) {
    const bool transpose_b = ((const struct attr_matmul_blocks *)args->attr)->transpose_b;
    const int64_t columns = transpose_b ? p.n : p.k, terms = transpose_b ? p.k : p.n;
    const int64_t step = blocks_part_columns(columns, terms, sizeof(T));
    const uint64_t room = blocks_part_bytes(columns, terms, sizeof(T));
    if (args->workspace_bytes < room) {
        snprintf(args->error, CUDA_ERROR_BYTES, "%s: too little workspace (%zu bytes)", args->op,
                 args->workspace_bytes);
        return false;
    }
    const size_t left = args->workspace_bytes - room; /* the library has the beginning */
    T *w = (T *)((char *)args->workspace + left);
    for (int64_t first = 0; first < columns; first += step) {
        const int64_t n = columns - first < step ? columns - first : step;
        const part at = transpose_b ? part{first, n, 0, p.k} : part{0, p.n, first, n};
        unpack<T, BITS><<<blocks_for(n * terms / PACK), BLOCK, 0, stream_of(args)>>>(p, at, w);
        if (!multiply_part(args, x, w, first, n, left)) return false;
    }
    return true;
}

/* ---- A few rows ------------------------------------------------------------------------------------------- */

/* PACK numbers of a row, which need not be aligned. */
template <class T> __device__ inline void numbers_load(const T *row, bool is_aligned, float (&x)[PACK]) {
    if (is_aligned) row_load(row, 0).widen(x);
    else
        for (int j = 0; j < PACK; j++) x[j] = value_of<float>(row[j]);
}

/* A warp has a column of the result. Each of its threads sums every 32nd pack of terms, and then the warp sums the
 * threads: the order depends on k alone, so a row gives the same bits alone and among others. */
template <class T, int BITS, int ROWS>
__global__ void __launch_bounds__(BLOCK)
    few_rows(packed p, const T *x, bool is_aligned, int n_rows, const T *bias, T *y) {
    __shared__ tables t;
    tables_fill<BITS>(t, p);
    const int lane = threadIdx.x % 32;
    const int64_t warps = (int64_t)gridDim.x * (BLOCK / 32);
    for (int64_t column = blockIdx.x * (int64_t)(BLOCK / 32) + threadIdx.x / 32; column < p.n; column += warps) {
        float sum[ROWS] = {};
        for (int64_t c = lane * PACK; c < p.k; c += 32 * PACK) {
            T w[PACK];
            numbers_read<T, BITS>(p, t, column * p.k + c, w);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                float part[PACK];
                if (r >= n_rows) break;
                numbers_load(x + r * p.k + c, is_aligned, part);
                for (int j = 0; j < PACK; j++) sum[r] = __fmaf_rn(part[j], value_of<float>(w[j]), sum[r]);
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            for (int distance = 16; distance > 0; distance /= 2)
                sum[r] += __shfl_xor_sync(0xFFFFFFFFu, sum[r], distance);
            if (lane == 0 && r < n_rows)
                y[r * p.n + column] = conversion<T>::from(bias ? sum[r] + value_of<float>(bias[column]) : sum[r]);
        }
    }
}

template <class T, int BITS> static bool by_rows(const tl_kernel_args *args, const packed &p, const rows &x) {
    const T *from = (const T *)x.operand.data, *bias = args->n_in > 4 ? (const T *)args->in[4].data : nullptr;
    T *y = (T *)args->out[0].data;
    const int n_rows = (int)x.shape[0];
    const bool is_aligned = (uintptr_t)from % 16 == 0;
    const unsigned grid = blocks_for(p.n * 32);
    const cudaStream_t stream = stream_of(args);
    if (n_rows == 1) few_rows<T, BITS, 1><<<grid, BLOCK, 0, stream>>>(p, from, is_aligned, n_rows, bias, y);
    else if (n_rows <= 4) few_rows<T, BITS, 4><<<grid, BLOCK, 0, stream>>>(p, from, is_aligned, n_rows, bias, y);
    else few_rows<T, BITS, BLOCKS_FEW><<<grid, BLOCK, 0, stream>>>(p, from, is_aligned, n_rows, bias, y);
    return true;
}

/* ---- The op ------------------------------------------------------------------------------------------------ */

template <class T> static bool multiply(const tl_kernel_args *args, const packed &p, const rows &x, bool is_few) {
    const bool is_short = p.format.has_codes || p.format.values == TL_F4E2M1;
    if (is_few) return is_short ? by_rows<T, 4>(args, p, x) : by_rows<T, 8>(args, p, x);
    return is_short ? by_parts<T, 4>(args, p, x) : by_parts<T, 8>(args, p, x);
}

extern "C" bool cuda_matmul_blocks(const tl_kernel_args *args) {
    const struct attr_matmul_blocks *attr = (const struct attr_matmul_blocks *)args->attr;
    const tl_operand *in = args->in, *values = &in[1], *out = &args->out[0];
    packed p = {};
    p.format = format_of(attr->format);
    p.values = (const uint8_t *)values->data;
    p.scales = in[2].data;
    p.tensor_scale = p.format.has_tensor_scale ? (const float *)in[3].data : nullptr;
    p.n = values->shape[0];
    p.k = values->shape[1] * (p.format.has_codes ? 2 : 1);
    const int64_t terms = attr->transpose_b ? p.k : p.n, n_out = operand_numel(out);
    if (n_out == 0) return true;
    if (terms == 0)
        return cuda_check(cudaMemsetAsync(out->data, 0, (size_t)(n_out * dtype_bytes(out->dtype)), stream_of(args)),
                          args->op, args->error);
    rows x;
    rows_set(&x, in[0].data, in[0].dtype, n_out / out->shape[out->rank - 1], terms);
    const bool is_few = blocks_are_few(x.shape[0], attr->transpose_b);
    switch (in[0].dtype) {
    case TL_BF16:
        return multiply<bf16>(args, p, x, is_few);
    case TL_F16:
        return multiply<f16>(args, p, x, is_few);
    case TL_F32:
        return multiply<float>(args, p, x, is_few);
    default:
        return cuda_refuse_dtype(args, in[0].dtype);
    }
}

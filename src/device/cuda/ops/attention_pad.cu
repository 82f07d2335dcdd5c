/* attention_pad.cu: rows of heads that are no multiple of 8, copied to rows that are, and back.
 *
 * TMA reads rows that begin at multiples of 16 bytes. Operands with other heads are copied to such rows, with zeros
 * behind each, the kernels for Hopper run on these, and their results are copied back. Zeros add nothing to a product,
 * so the copies change no result.
 *
 * A thread moves 8 elements of a row: on the padded side 16 bytes at once, on the other in the widest words that every
 * row allows. One launch copies all operands.
 */
#include "device/cuda/ops/attention.h"
#include "device/cuda/shared/common.cuh"

enum { COPY_THREADS = 256 };

struct copied_operand {
    attention_rows from, to;
    uint32_t n_rows, n_heads; /* of a batch entry */
    uint32_t n;               /* threads' worth: eights of all rows */
};
struct rows_copy_call {
    copied_operand operand[ATTENTION_COPIES];
    uint32_t row_eights;
    int from_length, to_length; /* of a row */
};

/* Up to 8 elements, `left` of which are there, in words of PER. Lengths are multiples of PER. */
template <int PER> __device__ inline unit<uint16_t, 8> eight_read(const uint16_t *from, int left) {
    unit<uint16_t, 8> x;
#pragma unroll
    for (int k = 0; k < 8 / PER; k++) {
        unit<uint16_t, PER> word = {};
        if (PER * k < left) word = ((const unit<uint16_t, PER> *)from)[k];
#pragma unroll
        for (int i = 0; i < PER; i++) x.v[PER * k + i] = word.v[i];
    }
    return x;
}
template <int PER> __device__ inline void eight_write(uint16_t *to, const unit<uint16_t, 8> &x, int left) {
#pragma unroll
    for (int k = 0; k < 8 / PER; k++) {
        unit<uint16_t, PER> word;
#pragma unroll
        for (int i = 0; i < PER; i++) word.v[i] = x.v[PER * k + i];
        if (PER * k < left) ((unit<uint16_t, PER> *)to)[k] = word;
    }
}

template <int READ, int WRITE>
__global__ void __launch_bounds__(COPY_THREADS) rows_copy(const __grid_constant__ rows_copy_call c) {
    const copied_operand &x = c.operand[blockIdx.y];
    for (uint32_t i = blockIdx.x * COPY_THREADS + threadIdx.x; i < x.n; i += gridDim.x * COPY_THREADS) {
        const uint32_t row = i / c.row_eights, column = i % c.row_eights * 8;
        const uint32_t h = row % x.n_heads, t = row / x.n_heads % x.n_rows, b = row / x.n_heads / x.n_rows;
        const uint16_t *from =
            (const uint16_t *)x.from.data + b * x.from.stride_b + t * x.from.stride_t + h * x.from.stride_h + column;
        uint16_t *to = (uint16_t *)x.to.data + b * x.to.stride_b + t * x.to.stride_t + h * x.to.stride_h + column;
        const unit<uint16_t, 8> eight = eight_read<READ>(from, c.from_length - (int)column);
        eight_write<WRITE>(to, eight, c.to_length - (int)column);
    }
}

/* The most elements in a word such that every row begins at a whole one, and has whole ones. */
static int word_of(const attention_rows &rows, int64_t length, int most) {
    const uint64_t all = (uintptr_t)rows.data / 2 | (uint64_t)rows.stride_b | (uint64_t)rows.stride_t |
                         (uint64_t)rows.stride_h | (uint64_t)length;
    int word = most;
    while (all % (unsigned)word != 0) word /= 2;
    return word;
}

template <int READ, int WRITE>
static void launch(const tl_kernel_args *args, const rows_copy_call &c, int n_copies, int64_t most) {
    const dim3 blocks((unsigned)((most + COPY_THREADS - 1) / COPY_THREADS), (unsigned)n_copies);
    rows_copy<READ, WRITE><<<blocks, COPY_THREADS, 0, stream_of(args)>>>(c);
}

extern "C" void attention_rows_copy(const tl_kernel_args *args, const attention_copy *copies, int n_copies, int64_t B,
                                    int64_t from_length, int64_t to_length) {
    rows_copy_call c;
    const int64_t eights = (from_length > to_length ? from_length : to_length) / 8;
    const bool pads = to_length > from_length;
    int64_t most = 0;
    int word = 4; /* 8 would need no padding */
    c.row_eights = (uint32_t)eights, c.from_length = (int)from_length, c.to_length = (int)to_length;
    for (int i = 0; i < n_copies; i++) {
        const attention_copy &copy = copies[i];
        const int64_t n = B * copy.n_rows * copy.n_heads * eights;
        c.operand[i] = {copy.from, copy.to, (uint32_t)copy.n_rows, (uint32_t)copy.n_heads, (uint32_t)n};
        most = n > most ? n : most;
        word = pads ? word_of(copy.from, from_length, word) : word_of(copy.to, to_length, word);
    }
    if (pads && word == 4) launch<4, 8>(args, c, n_copies, most);
    else if (pads && word == 2) launch<2, 8>(args, c, n_copies, most);
    else if (pads) launch<1, 8>(args, c, n_copies, most);
    else if (word == 4) launch<8, 4>(args, c, n_copies, most);
    else if (word == 2) launch<8, 2>(args, c, n_copies, most);
    else launch<8, 1>(args, c, n_copies, most);
}

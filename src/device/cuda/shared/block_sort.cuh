/* block_sort.cuh: the sort of one block. */
#ifndef CUDA_BLOCK_SORT_CUH
#define CUDA_BLOCK_SORT_CUH

/* Bitonic sort by one block, any n: exchange(low, high) puts the earlier of the two at the lower place. Since every
 * exchange of this form does, places beyond n can be left out: they would hold infinities that never move. A warp has
 * the same 64 places in all steps over distances of up to 32, and need not wait for others between them. */
template <class F> __device__ inline void block_sort(int n, const F &exchange) {
    for (int span_bits = 1; 1 << (span_bits - 1) < n; span_bits++)
        for (int bits = span_bits - 1; bits >= 0; bits--) {
            const bool is_first = bits == span_bits - 1; /* mirror the two halves, then halve */
            const int distance = 1 << bits;
            for (int i = threadIdx.x;; i += blockDim.x) {
                const int inside = i & (distance - 1), start = (i >> bits) << (bits + 1), low = start + inside;
                if (low >= n) break;
                const int high = is_first ? start + 2 * distance - 1 - inside : low + distance;
                if (high < n) exchange(low, high);
            }
            const int next = bits > 0 ? bits - 1 : span_bits;
            if (bits <= 5 && next <= 5) __syncwarp();
            else __syncthreads();
        }
    __syncthreads();
}

#endif

/* sort.cuh: lines of (key, index) in order, for sort.cu and random.cu; and the sort of one block, also for token.cu.
 *
 * Every element has a 64-bit key, read from a *source*; the pairs (key, index) are ordered, so that no two are equal
 * and any way of ordering them is stable. Lines of up to SORT_RUN elements are sorted in shared memory by a block
 * each. Longer ones are cut into runs of that length, and runs are merged two by two between two arrays of the
 * workspace: a thread finds by bisection where its MERGE_LENGTH results begin in both runs.
 *
 * A source S has: uint64_t key(line, i), and put(line, place, index), called for each of the first k places.
 */
#ifndef CUDA_SORT_CUH
#define CUDA_SORT_CUH

#include "device/cuda/shared/common.cuh"

enum { SORT_RUN = 2048, MERGE_LENGTH = 8 };

struct pair {
    uint64_t key;
    int64_t index;
};

__device__ inline bool comes_before(uint64_t a_key, int64_t a, uint64_t b_key, int64_t b) {
    return a_key < b_key || (a_key == b_key && a < b);
}

/* Bitonic sort by one block, any n: exchange(low, high) puts the earlier of the two at the lower place. Since every
 * exchange of this form does, places beyond n can be left out: they would hold infinities that never move. */
template <class F> __device__ inline void block_sort(int n, const F &exchange) {
    for (int span = 2; span / 2 < n; span *= 2)
        for (int distance = span / 2; distance > 0; distance /= 2) {
            const bool is_first = distance == span / 2; /* mirror the two halves, then halve */
            for (int i = threadIdx.x;; i += blockDim.x) {
                const int group = i / distance, inside = i % distance;
                const int low = group * 2 * distance + inside;
                if (low >= n) break;
                const int high = is_first ? group * 2 * distance + 2 * distance - 1 - inside : low + distance;
                if (high < n) exchange(low, high);
            }
            __syncthreads();
        }
}

struct pair_exchange {
    uint64_t *key;
    int *index;
    __device__ void operator()(int low, int high) const {
        if (!comes_before(key[high], index[high], key[low], index[low])) return;
        const uint64_t k = key[low];
        const int x = index[low];
        key[low] = key[high];
        index[low] = index[high];
        key[high] = k;
        index[high] = x;
    }
};

/* Reads elements first .. first+n-1 of a line and sorts them; index counts from first. */
template <class S>
__device__ inline void run_make(S source, int64_t line, int64_t first, int n, uint64_t *key, int *index) {
    __syncthreads(); /* the run before has been read */
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        key[i] = source.key(line, first + i);
        index[i] = i;
    }
    __syncthreads();
    block_sort(n, pair_exchange{key, index});
}

/* Short lines: a block each. */
template <class S> __global__ void __launch_bounds__(512) sort_short(S source, int64_t n_lines, int n, int k) {
    __shared__ uint64_t key[SORT_RUN];
    __shared__ int index[SORT_RUN];
    for (int64_t line = blockIdx.x; line < n_lines; line += gridDim.x) {
        run_make(source, line, 0, n, key, index);
        for (int i = threadIdx.x; i < k; i += blockDim.x) source.put(line, i, index[i]);
    }
}

/* Long lines: grid.y counts the lines from first_line on, grid.x the runs. `to` has 2n pairs for each line. */
template <class S> __global__ void __launch_bounds__(512) sort_runs(S source, int64_t first_line, int64_t n, pair *to) {
    __shared__ uint64_t key[SORT_RUN];
    __shared__ int index[SORT_RUN];
    const int64_t first = blockIdx.x * (int64_t)SORT_RUN;
    const int length = (int)min((int64_t)SORT_RUN, n - first);
    run_make(source, first_line + blockIdx.y, first, length, key, index);
    to += blockIdx.y * 2 * n + first;
    for (int i = threadIdx.x; i < length; i += blockDim.x) to[i] = {key[i], first + index[i]};
}

/* Runs of `width` become runs of twice that. */
template <int UNUSED>
__global__ void __launch_bounds__(BLOCK) merge_runs(const pair *from, pair *to, int64_t n, int64_t width) {
    from += blockIdx.y * 2 * n;
    to += blockIdx.y * 2 * n;
    const int64_t at = (blockIdx.x * (int64_t)BLOCK + threadIdx.x) * MERGE_LENGTH;
    if (at >= n) return;
    const int64_t start = at / (2 * width) * (2 * width), place = at - start; /* MERGE_LENGTH divides width */
    const int64_t n_a = min(width, n - start), n_b = min(width, max(n - start - width, (int64_t)0));
    const pair *a = from + start, *b = a + n_a;
    int64_t low = max(place - n_b, (int64_t)0), high = min(place, n_a);
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        const pair x = a[middle], y = b[place - 1 - middle];
        if (comes_before(x.key, x.index, y.key, y.index)) low = middle + 1;
        else high = middle;
    }
    int64_t i = low, j = place - low;
    for (int64_t k = at; k < min(at + MERGE_LENGTH, start + n_a + n_b); k++) {
        const bool takes_a = j >= n_b || (i < n_a && comes_before(a[i].key, a[i].index, b[j].key, b[j].index));
        to[k] = takes_a ? a[i++] : b[j++];
    }
}

template <class S>
__global__ void __launch_bounds__(BLOCK)
    sort_deliver(S source, int64_t first_line, const pair *sorted, int64_t n, int64_t k) {
    sorted += blockIdx.y * 2 * n;
    FOR_EACH(i, k) source.put(first_line + blockIdx.y, i, sorted[i].index);
}

/* The first k of each line of n. The workspace has 32 n bytes for each of `n_slots` lines (none for short ones). */
template <class S>
static bool sort_lines(const tl_kernel_args *args, S source, int64_t n_lines, int64_t n, int64_t k, int64_t n_slots) {
    const cudaStream_t stream = stream_of(args);
    if (n_lines == 0 || n == 0 || k == 0) return true;
    if (n <= SORT_RUN) {
        int threads = 32;
        while (threads < 512 && threads * 2 < n) threads *= 2;
        sort_short<S><<<capped(n_lines), threads, 0, stream>>>(source, n_lines, (int)n, (int)k);
        return true;
    }
    if (args->workspace_bytes < (size_t)(n_slots * n) * 2 * sizeof(pair)) {
        snprintf(args->error, CUDA_ERROR_BYTES, "%s: too little workspace (%zu bytes)", args->op,
                 args->workspace_bytes);
        return false;
    }
    for (int64_t line = 0; line < n_lines; line += n_slots) {
        const unsigned n_here = (unsigned)(n_lines - line < n_slots ? n_lines - line : n_slots);
        pair *from = (pair *)args->workspace, *to = from + n;
        sort_runs<S>
            <<<dim3((unsigned)((n + SORT_RUN - 1) / SORT_RUN), n_here), 512, 0, stream>>>(source, line, n, from);
        const unsigned blocks = (unsigned)((n + BLOCK * MERGE_LENGTH - 1) / (BLOCK * MERGE_LENGTH));
        for (int64_t width = SORT_RUN; width < n; width *= 2) {
            merge_runs<0><<<dim3(blocks, n_here), BLOCK, 0, stream>>>(from, to, n, width);
            pair *swap = from;
            from = to;
            to = swap;
        }
        sort_deliver<S><<<dim3(blocks_for(k), n_here), BLOCK, 0, stream>>>(source, line, from, n, k);
    }
    return true;
}

#endif

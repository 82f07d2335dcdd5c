/* sort.cuh: lines of (key, index) in order, for sort.cu and random.cu; and the sort of one block, also for token.cu.
 *
 * Every element has a key, read from a *source*; the pairs (key, index) are ordered, so that no two are equal and any
 * way of ordering them is stable. Lines of up to SORT_RUN elements are sorted in shared memory by a block each. Longer
 * ones are cut into runs of that length, and runs are merged two by two between two arrays of the workspace: a thread
 * finds by bisection where its MERGE_LENGTH results begin in both runs. If only a few first places are wanted, a block
 * finds the key of the last of them digit by digit, and sorts those up to it.
 *
 * A source S has: key_type (uint64_t, or uint32_t for lines of less than 2^32), key_type key(line, i), and
 * put(line, place, index), called for each of the first k places.
 */
#ifndef CUDA_SORT_CUH
#define CUDA_SORT_CUH

#include "device/cuda/shared/common.cuh"

enum { SORT_RUN = 2048, MERGE_LENGTH = 8 };

/* A key and an index: two words, or one for a narrow key. */
struct pair {
    uint64_t key;
    int64_t index;
};
template <class K> struct item_of;
template <> struct item_of<uint64_t> { typedef pair type; };
template <> struct item_of<uint32_t> { typedef uint64_t type; };
__device__ inline pair item_make(uint64_t key, int64_t index) { return {key, index}; }
__device__ inline uint64_t item_make(uint32_t key, int64_t index) { return (uint64_t)key << 32 | (uint32_t)index; }
__device__ inline int64_t item_index(const pair &x) { return x.index; }
__device__ inline int64_t item_index(uint64_t x) { return (uint32_t)x; }
__device__ inline bool comes_before(const pair &a, const pair &b) {
    return a.key < b.key || (a.key == b.key && a.index < b.index);
}
__device__ inline bool comes_before(uint64_t a, uint64_t b) { return a < b; }

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

template <class I> struct item_exchange {
    I *x;
    __device__ void operator()(int low, int high) const {
        const I a = x[low], b = x[high];
        if (!comes_before(b, a)) return;
        x[low] = b;
        x[high] = a;
    }
};

/* Reads elements first .. first+n-1 of a line and sorts them; their indices count from first. */
template <class S, class I>
__device__ inline void run_make(const S &source, int64_t line, int64_t first, int n, I *run) {
    __syncthreads(); /* the run before has been read */
    for (int i = threadIdx.x; i < n; i += blockDim.x) run[i] = item_make(source.key(line, first + i), first + i);
    __syncthreads();
    block_sort(n, item_exchange<I>{run});
}

/* Short lines: a block each. */
template <class S> __global__ void __launch_bounds__(512) sort_short(S source, int64_t n_lines, int n, int k) {
    typedef typename item_of<typename S::key_type>::type I;
    __shared__ I run[SORT_RUN];
    for (int64_t line = blockIdx.x; line < n_lines; line += gridDim.x) {
        run_make(source, line, 0, n, run);
        for (int i = threadIdx.x; i < k; i += blockDim.x) source.put(line, i, item_index(run[i]));
    }
}

/* ---- The first k, where these are few --------------------------------------------------------------------- */

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS, SELECT_BLOCK = 512 };

/* The digit of the wanted-th number of a histogram, counted from 1; *below: how many have smaller digits. */
__device__ inline int digit_find(const int *counts, int wanted, int *below) {
    __shared__ int of_thread[SELECT_BLOCK], found[2];
    const int each = DIGITS / SELECT_BLOCK;
    int sum = 0;
    for (int k = 0; k < each; k++) sum += counts[threadIdx.x * each + k];
    of_thread[threadIdx.x] = sum;
    __syncthreads();
    for (int distance = 1; distance < SELECT_BLOCK; distance *= 2) {
        const int before = threadIdx.x >= distance ? of_thread[threadIdx.x - distance] : 0;
        __syncthreads();
        of_thread[threadIdx.x] += before;
        __syncthreads();
    }
    int before = of_thread[threadIdx.x] - sum;
    for (int k = 0; k < each; k++) {
        const int here = counts[threadIdx.x * each + k];
        if (before < wanted && wanted <= before + here) {
            found[0] = (int)threadIdx.x * each + k;
            found[1] = before;
        }
        before += here;
    }
    __syncthreads();
    *below = found[1];
    return found[0];
}

/* Whether thread t's flag is among the first `room` of its block's in order of threads; *n becomes their number. */
__device__ inline bool flag_fits(bool flag, int room, int *n) {
    __shared__ int of_warp[SELECT_BLOCK / 32];
    const unsigned flags = __ballot_sync(0xFFFFFFFFu, flag);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads();
    if (lane == 0) of_warp[warp] = __popc(flags);
    __syncthreads();
    int before = __popc(flags & ((1u << lane) - 1)), all = 0;
    for (int w = 0; w < SELECT_BLOCK / 32; w++) {
        if (w < warp) before += of_warp[w];
        all += of_warp[w];
    }
    *n = all;
    return flag && before < room;
}

/* A block per line. Digit by digit, from the highest: `prefix` is what the k-th key begins with, `wanted` how many of
 * the k begin with it. Of those with that very key the first in the line are taken. */
template <class S> __global__ void __launch_bounds__(SELECT_BLOCK) sort_first(S source, int64_t n_lines, int n, int k) {
    typedef typename S::key_type K;
    typedef typename item_of<K>::type I;
    __shared__ int counts[DIGITS], n_taken;
    __shared__ I taken[SORT_RUN];
    for (int64_t line = blockIdx.x; line < n_lines; line += gridDim.x) {
        K prefix = 0;
        int wanted = k, shift = (int)sizeof(K) * 8, ties = n;
        while (shift > 0 && ties != wanted) { /* equal: all that begin like this are taken */
            const int bits = shift < DIGIT_BITS ? shift : (int)DIGIT_BITS, seen = shift;
            shift -= bits;
            for (int i = threadIdx.x; i < DIGITS; i += SELECT_BLOCK) counts[i] = 0;
            __syncthreads();
#pragma unroll 4
            for (int i = threadIdx.x; i < n; i += SELECT_BLOCK) {
                const K key = source.key(line, i);
                const bool begins = seen == (int)sizeof(K) * 8 || key >> seen == prefix;
                if (begins) atomicAdd(&counts[(int)(key >> shift) & ((1 << bits) - 1)], 1);
            }
            __syncthreads();
            int below;
            const int digit = digit_find(counts, wanted, &below);
            wanted -= below;
            ties = counts[digit];
            prefix = prefix << bits | (K)digit;
            __syncthreads();
        }
        if (threadIdx.x == 0) n_taken = 0;
        __syncthreads();
        int left = wanted;
        const bool takes_all = ties == wanted;
        for (int base = 0; base < n; base += SELECT_BLOCK) {
            const int i = base + threadIdx.x;
            const K key = i < n ? source.key(line, i) : K(0);
            const K begin = shift < (int)sizeof(K) * 8 ? key >> shift : K(0);
            bool is_tie = i < n && begin == prefix;
            if (!takes_all) {
                int n_ties;
                is_tie = flag_fits(is_tie, left, &n_ties);
                left -= min(left, n_ties);
            }
            if (is_tie || (i < n && begin < prefix)) taken[atomicAdd(&n_taken, 1)] = item_make(key, i);
        }
        __syncthreads();
        block_sort(k, item_exchange<I>{taken});
        for (int i = threadIdx.x; i < k; i += SELECT_BLOCK) source.put(line, i, item_index(taken[i]));
        __syncthreads();
    }
}

/* ---- Long lines ------------------------------------------------------------------------------------------- */

/* grid.y counts the lines from first_line on, grid.x the runs. `to` has 2n items for each line. */
template <class S, class I>
__global__ void __launch_bounds__(512) sort_runs(S source, int64_t first_line, int64_t n, I *to) {
    __shared__ I run[SORT_RUN];
    const int64_t first = blockIdx.x * (int64_t)SORT_RUN;
    const int length = (int)min((int64_t)SORT_RUN, n - first);
    run_make(source, first_line + blockIdx.y, first, length, run);
    to += blockIdx.y * 2 * n + first;
    for (int i = threadIdx.x; i < length; i += blockDim.x) to[i] = run[i];
}

/* Runs of `width` become runs of twice that. */
template <class I> __global__ void __launch_bounds__(BLOCK) merge_runs(const I *from, I *to, int64_t n, int64_t width) {
    from += blockIdx.y * 2 * n;
    to += blockIdx.y * 2 * n;
    const int64_t at = (blockIdx.x * (int64_t)BLOCK + threadIdx.x) * MERGE_LENGTH;
    if (at >= n) return;
    const int64_t start = at / (2 * width) * (2 * width), place = at - start; /* MERGE_LENGTH divides width */
    const int64_t n_a = min(width, n - start), n_b = min(width, max(n - start - width, (int64_t)0));
    const I *a = from + start, *b = a + n_a;
    int64_t low = max(place - n_b, (int64_t)0), high = min(place, n_a);
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (comes_before(a[middle], b[place - 1 - middle])) low = middle + 1;
        else high = middle;
    }
    int64_t i = low, j = place - low;
    for (int64_t k = at; k < min(at + MERGE_LENGTH, start + n_a + n_b); k++) {
        const bool takes_a = j >= n_b || (i < n_a && comes_before(a[i], b[j]));
        to[k] = takes_a ? a[i++] : b[j++];
    }
}

template <class S, class I>
__global__ void __launch_bounds__(BLOCK)
    sort_deliver(S source, int64_t first_line, const I *sorted, int64_t n, int64_t k) {
    sorted += blockIdx.y * 2 * n;
    FOR_EACH(i, k) source.put(first_line + blockIdx.y, i, item_index(sorted[i]));
}

/* Whether selecting the first k of n is faster than sorting all. */
static inline bool selects(int64_t n, int64_t k) { return n > 512 && n <= INT32_MAX && k <= SORT_RUN && k <= n / 4; }

/* The first k of each line of n. The workspace has 32 n bytes for each of `n_slots` lines (none for short ones). */
template <class S>
static bool sort_lines(const tl_kernel_args *args, S source, int64_t n_lines, int64_t n, int64_t k, int64_t n_slots) {
    typedef typename item_of<typename S::key_type>::type I;
    const cudaStream_t stream = stream_of(args);
    if (n_lines == 0 || n == 0 || k == 0) return true;
    if (selects(n, k)) {
        sort_first<S><<<capped(n_lines), SELECT_BLOCK, 0, stream>>>(source, n_lines, (int)n, (int)k);
        return true;
    }
    if (n <= SORT_RUN) {
        int threads = 32;
        while (threads < 512 && threads * 2 < n) threads *= 2;
        sort_short<S><<<capped(n_lines), threads, 0, stream>>>(source, n_lines, (int)n, (int)k);
        return true;
    }
    if (args->workspace_bytes < (size_t)(n_slots * n) * 2 * sizeof(I)) {
        snprintf(args->error, CUDA_ERROR_BYTES, "%s: too little workspace (%zu bytes)", args->op,
                 args->workspace_bytes);
        return false;
    }
    for (int64_t line = 0; line < n_lines; line += n_slots) {
        const unsigned n_here = (unsigned)(n_lines - line < n_slots ? n_lines - line : n_slots);
        I *from = (I *)args->workspace, *to = from + n;
        sort_runs<S, I>
            <<<dim3((unsigned)((n + SORT_RUN - 1) / SORT_RUN), n_here), 512, 0, stream>>>(source, line, n, from);
        const unsigned blocks = (unsigned)((n + BLOCK * MERGE_LENGTH - 1) / (BLOCK * MERGE_LENGTH));
        for (int64_t width = SORT_RUN; width < n; width *= 2) {
            merge_runs<I><<<dim3(blocks, n_here), BLOCK, 0, stream>>>(from, to, n, width);
            I *swap = from;
            from = to;
            to = swap;
        }
        sort_deliver<S, I><<<dim3(blocks_for(k), n_here), BLOCK, 0, stream>>>(source, line, from, n, k);
    }
    return true;
}

#endif

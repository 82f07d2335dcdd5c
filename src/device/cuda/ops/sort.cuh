/* sort.cuh: lines of keys in order, for sort.cu and random.cu.
 *
 * Every element has a key, read from a *source*; equal keys stay in the order of their places. Lines of up to
 * SORT_SHORT elements are sorted by exchanges: by a warp in its registers, or in shared memory if keys are wide.
 * Others are sorted digit by digit, the lowest first: a block counts the digits of a *tile*, so that every element
 * knows how many of its tile come before it. A line of one tile is sorted in shared memory. Tiles of a longer one
 * also need to know how many of the tiles before have each digit: a tile publishes its own counts at once, and adds
 * up those before it, until it meets one that has done so (Merrill and Garland, "Single-pass parallel prefix scan
 * with decoupled look-back", 2016; Adinets and Merrill, "Onesweep", 2022). All of these are integers, so that the
 * order in which tiles run does not matter. If only a few first places are wanted, a block finds the key of the last
 * of them digit by digit, and sorts those up to it.
 *
 * A source S has: key_type (uint16_t, uint32_t or uint64_t), line begin(line), key_type key(line, i), and put(line,
 * place, index, key), called for each of the first k places.
 */
#ifndef CUDA_SORT_CUH
#define CUDA_SORT_CUH

#include "device/cuda/shared/block_sort.cuh"
#include "device/cuda/shared/common.cuh"
#include "device/cuda/shared/prefix_scan.cuh"
#include "device/cuda/shared/sort_rule.h"

/* A key and an index: two words, or one for a narrow key. */
struct pair {
    uint64_t key;
    int64_t index;
};
template <class K> struct item_of { typedef uint64_t type; };
template <> struct item_of<uint64_t> { typedef pair type; };
__device__ inline pair item_make(uint64_t key, int64_t index) { return {key, index}; }
__device__ inline uint64_t item_make(uint32_t key, int64_t index) { return (uint64_t)key << 32 | (uint32_t)index; }
__device__ inline uint64_t item_make(uint16_t key, int64_t index) { return (uint64_t)key << 32 | (uint32_t)index; }
__device__ inline int64_t item_index(const pair &x) { return x.index; }
__device__ inline int64_t item_index(uint64_t x) { return (uint32_t)x; }
template <class K> __device__ inline K item_key(const pair &x) { return (K)x.key; }
template <class K> __device__ inline K item_key(uint64_t x) { return (K)(x >> 32); }
__device__ inline bool comes_before(const pair &a, const pair &b) {
    return a.key < b.key || (a.key == b.key && a.index < b.index);
}
__device__ inline bool comes_before(uint64_t a, uint64_t b) { return a < b; }

template <class I> struct item_exchange {
    I *x;
    __device__ void operator()(int low, int high) const {
        const I a = x[low], b = x[high];
        if (!comes_before(b, a)) return;
        x[low] = b;
        x[high] = a;
    }
};

/* Columns (sort_rule.h): whether there is room for them; whether x has them, and the results. */
struct sort_columns {
    bool has_room, is_of_x, is_of_results;
};

enum { SORT_SHORT = 512 };

/* Short lines of wide keys: a block each. */
template <class S>
__global__ void __launch_bounds__(SORT_SHORT / 2) sort_short(S source, int64_t n_lines, int n, int k) {
    typedef typename item_of<typename S::key_type>::type I;
    __shared__ I run[SORT_SHORT];
    for (int64_t line = blockIdx.x; line < n_lines; line += gridDim.x) {
        const typename S::line at = source.begin(line);
        __syncthreads(); /* the line before has been read */
        for (int i = threadIdx.x; i < n; i += blockDim.x) run[i] = item_make(source.key(at, i), i);
        __syncthreads();
        block_sort(n, item_exchange<I>{run});
        for (int i = threadIdx.x; i < k; i += blockDim.x)
            source.put(at, i, item_index(run[i]), item_key<typename S::key_type>(run[i]));
    }
}

/* The same of narrow keys, in a warp's registers: a number has the key, and below it the index in as many bits. Place
 * lane EACH + j of the line is x[j] of a lane. */
template <class K> struct narrow_item;
template <> struct narrow_item<uint16_t> { typedef uint32_t type; };
template <> struct narrow_item<uint32_t> { typedef uint64_t type; };

__host__ __device__ constexpr int highest_bit(int x) { return x < 2 ? x : 2 * highest_bit(x / 2); }

/* The step of a bitonic sort in which places p and p ^ MASK meet; the earlier goes to where the highest bit of MASK is
 * not set. */
template <int MASK, int EACH, class I> __device__ inline void warp_exchange(I (&x)[EACH], int lane) {
    enum { IN_LANE = MASK % EACH, ACROSS = MASK / EACH };
    if constexpr (ACROSS == 0) {
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if ((j ^ IN_LANE) < j) continue;
            const I a = x[j], b = x[j ^ IN_LANE];
            x[j] = a < b ? a : b;
            x[j ^ IN_LANE] = a < b ? b : a;
        }
    } else {
        const bool is_low = !(lane & highest_bit(ACROSS));
        I other[EACH];
#pragma unroll
        for (int j = 0; j < EACH; j++) other[j] = __shfl_xor_sync(0xFFFFFFFFu, x[j ^ IN_LANE], ACROSS);
#pragma unroll
        for (int j = 0; j < EACH; j++) x[j] = (x[j] < other[j]) == is_low ? x[j] : other[j];
    }
}

/* The steps of block_sort, from the one over 1 << BITS places on. */
template <int SPAN_BITS, int BITS, int EACH, class I> __device__ inline void warp_sort(I (&x)[EACH], int lane) {
    warp_exchange<BITS == SPAN_BITS - 1 ? (1 << SPAN_BITS) - 1 : 1 << BITS>(x, lane);
    if constexpr (BITS > 0) warp_sort<SPAN_BITS, BITS - 1>(x, lane);
    else if constexpr (1 << SPAN_BITS < 32 * EACH) warp_sort<SPAN_BITS + 1, SPAN_BITS>(x, lane);
}

/* A warp for each line of up to 32 EACH; a block has as many lines as warps. */
template <class S, int EACH, int LINES> struct warp_lines {
    typedef typename S::key_type K;
    typedef typename narrow_item<K>::type I;
    enum { INDEX_BITS = 8 * (sizeof(I) - sizeof(K)), PAD = 16 / sizeof(I) /* lines begin in other banks */ };
    I rooms[LINES][32 * (EACH + 1) + PAD];

    static __device__ I item(const S &source, const typename S::line &at, int i, int n) {
        return i < n ? (I)source.key(at, i) << INDEX_BITS | (I)i : (I) ~(I)0;
    }
    static __device__ void put(const S &source, const typename S::line &at, int place, I x) {
        source.put(at, place, (int64_t)(x & (((I)1 << INDEX_BITS) - 1)), (K)(x >> INDEX_BITS));
    }
    /* The items of a warp's line, in order. */
    __device__ void sort(I *room, I (&x)[EACH]) {
        const int lane = threadIdx.x % 32;
        warp_sort<1, 0>(x, lane);
        __syncwarp(); /* the room has been read */
#pragma unroll
        for (int j = 0; j < EACH; j++) room[lane * (EACH + 1) + j] = x[j];
    }
    static __device__ int sorted_at(int i) { return i / EACH * (EACH + 1) + i % EACH; }
};

enum { WARP_LINES = 4 };

template <class S, int EACH>
__global__ void __launch_bounds__(32 * WARP_LINES) sort_warp(S source, int64_t n_lines, int n, int k_wanted) {
    typedef warp_lines<S, EACH, WARP_LINES> lines;
    __shared__ lines shared;
    typename lines::I *const room = shared.rooms[threadIdx.x / 32];
    const int lane = threadIdx.x % 32;
    for (int64_t line = blockIdx.x * (int64_t)WARP_LINES + threadIdx.x / 32; line < n_lines;
         line += gridDim.x * (int64_t)WARP_LINES) {
        const typename S::line at = source.begin(line);
        typename lines::I x[EACH];
#pragma unroll
        for (int j = 0; j < EACH; j++) x[j] = lines::item(source, at, j * 32 + lane, n); /* in any order */
        shared.sort(room, x);
        __syncwarp();
        for (int i = lane; i < k_wanted; i += 32) lines::put(source, at, i, room[lines::sorted_at(i)]);
    }
}

/* The same of columns (sort_rule.h): threads beside each other read, and put, elements of neighbouring lines. */
template <class S, int EACH>
__global__ void __launch_bounds__(32 * SORT_ABREAST) sort_warp_columns(S source, int64_t n_lines, int n, int k_wanted) {
    typedef warp_lines<S, EACH, SORT_ABREAST> lines;
    __shared__ lines shared;
    typename lines::I *const room = shared.rooms[threadIdx.x / 32];
    typename lines::I x[EACH];
    const int lane = threadIdx.x % 32, own = threadIdx.x % SORT_ABREAST, place = threadIdx.x / SORT_ABREAST;
    for (int64_t first = blockIdx.x * (int64_t)SORT_ABREAST; first < n_lines;
         first += gridDim.x * (int64_t)SORT_ABREAST) {
        const bool is_there = first + own < n_lines;
        const typename S::line at = source.begin(is_there ? first + own : first);
#pragma unroll
        for (int j = 0; j < EACH; j++) x[j] = lines::item(source, at, j * 32 + place, is_there ? n : 0);
        __syncthreads(); /* the lines before have been put */
#pragma unroll
        for (int j = 0; j < EACH; j++) shared.rooms[own][j * 32 + place] = x[j];
        __syncthreads();
#pragma unroll
        for (int j = 0; j < EACH; j++) x[j] = room[j * 32 + lane];
        shared.sort(room, x);
        __syncthreads();
        for (int i = place; is_there && i < k_wanted; i += 32)
            lines::put(source, at, i, shared.rooms[own][lines::sorted_at(i)]);
    }
}

template <class S, int EACH>
static void sort_warp_launch(const S &source, int64_t n_lines, int64_t n, int64_t k, bool is_of_columns,
                             cudaStream_t stream) {
    const int lines = is_of_columns ? (int)SORT_ABREAST : (int)WARP_LINES;
    const unsigned blocks = capped((n_lines + lines - 1) / lines);
    if (is_of_columns) sort_warp_columns<S, EACH><<<blocks, 32 * lines, 0, stream>>>(source, n_lines, (int)n, (int)k);
    else sort_warp<S, EACH><<<blocks, 32 * lines, 0, stream>>>(source, n_lines, (int)n, (int)k);
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
    __shared__ I taken[SORT_FEW];
    for (int64_t line = blockIdx.x; line < n_lines; line += gridDim.x) {
        const typename S::line at = source.begin(line);
        K prefix = 0;
        int wanted = k, shift = (int)sizeof(K) * 8, ties = n;
        while (shift > 0 && ties != wanted) { /* equal: all that begin like this are taken */
            const int bits = shift < DIGIT_BITS ? shift : (int)DIGIT_BITS, seen = shift;
            shift -= bits;
            for (int i = threadIdx.x; i < DIGITS; i += SELECT_BLOCK) counts[i] = 0;
            __syncthreads();
#pragma unroll 4
            for (int i = threadIdx.x; i < n; i += SELECT_BLOCK) {
                const K key = source.key(at, i);
                const bool begins = seen == (int)sizeof(K) * 8 || (K)(key >> seen) == prefix;
                if (begins) atomicAdd(&counts[(int)(key >> shift) & ((1 << bits) - 1)], 1);
            }
            __syncthreads();
            int below;
            const int digit = digit_find(counts, wanted, &below);
            wanted -= below;
            ties = counts[digit];
            prefix = (K)(prefix << bits | (K)digit);
            __syncthreads();
        }
        if (threadIdx.x == 0) n_taken = 0;
        __syncthreads();
        int left = wanted;
        const bool takes_all = ties == wanted;
        for (int base = 0; base < n; base += SELECT_BLOCK) {
            const int i = base + threadIdx.x;
            const K key = i < n ? source.key(at, i) : K(0);
            const K begin = shift < (int)sizeof(K) * 8 ? (K)(key >> shift) : K(0);
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
        for (int i = threadIdx.x; i < k; i += SELECT_BLOCK)
            source.put(at, i, item_index(taken[i]), item_key<K>(taken[i]));
        __syncthreads();
    }
}

/* ---- One tile, by one digit --------------------------------------------------------------------------------- */

enum { SORT_WARPS = SORT_THREADS / 32 };

/* A tile of EACH elements for each thread: warp w has 32 EACH neighbours, of which lane l has every 32nd from the l-th
 * on. Elements behind the end of the line have the highest key, and so they stay behind all others. */
template <class K, int EACH> struct sort_tile_room {
    uint32_t counts[SORT_WARPS][SORT_DIGITS];
    int64_t scan[32];
    K keys[SORT_THREADS * EACH];
    uint32_t places[SORT_THREADS * EACH];
};
template <int EACH> __device__ inline int tile_place(int k) {
    return (int)threadIdx.x / 32 * (32 * EACH) + k * 32 + (int)threadIdx.x % 32;
}
template <class K> __device__ inline int digit_of(K key, int shift) { return (int)(key >> shift) & (SORT_DIGITS - 1); }

/* Lanes with the same digit. */
__device__ inline unsigned digit_peers(int digit) {
    unsigned peers = 0xFFFFFFFFu;
#pragma unroll
    for (int bit = 0; bit < 8; bit++) {
        const bool is_set = digit >> bit & 1;
        const unsigned set = __ballot_sync(0xFFFFFFFFu, is_set);
        peers &= is_set ? set : ~set;
    }
    return peers;
}

/* How many of a tile have a digit, and how many a lower one. */
struct digit_share {
    uint32_t count, lower;
};

/* rank[k]: the place of key[k] among its tile's, in the order of this digit, of equal ones in the order before.
 * Thread d gets the share of digit d, and calls publish(count) as soon as it knows. */
template <class K, int EACH, class P>
__device__ inline digit_share tile_rank(sort_tile_room<K, EACH> &room, const K (&key)[EACH], int shift,
                                        int (&rank)[EACH], const P &publish) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, digit = threadIdx.x;
    uint32_t *of_warp = room.counts[warp];
    for (int d = lane; d < SORT_DIGITS; d += 32) of_warp[d] = 0;
    __syncwarp();
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const int d = digit_of(key[k], shift);
        const unsigned peers = digit_peers(d);
        const uint32_t before = of_warp[d];
        const int below = __popc(peers & ((1u << lane) - 1));
        __syncwarp();
        if (below == 0) of_warp[d] = before + (uint32_t)__popc(peers);
        __syncwarp();
        rank[k] = (int)before + below;
    }
    __syncthreads();
    uint32_t count = 0;
    for (int w = 0; w < SORT_WARPS; w++) {
        const uint32_t here = room.counts[w][digit];
        room.counts[w][digit] = count;
        count += here;
    }
    publish(count);
    int64_t all;
    const uint32_t lower = (uint32_t)block_scan((int64_t)count, sum_of(), room.scan, &all) - count;
    for (int w = 0; w < SORT_WARPS; w++) room.counts[w][digit] += lower;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < EACH; k++) rank[k] += (int)of_warp[digit_of(key[k], shift)];
    return {count, lower};
}

/* Keys and places go to their ranks in shared memory. */
template <class K, int EACH>
__device__ inline void tile_scatter(sort_tile_room<K, EACH> &room, const K (&key)[EACH], const uint32_t (&place)[EACH],
                                    const int (&rank)[EACH]) {
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        room.keys[rank[k]] = key[k];
        room.places[rank[k]] = place[k];
    }
    __syncthreads();
}

/* ---- Lines of one tile --------------------------------------------------------------------------------------- */

struct or_of {
    __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a | b; }
};
struct not_published {
    __device__ void operator()(uint32_t) const {}
};

/* A block per line; digits that are the same in all keys are left out. */
template <class S, int EACH>
__global__ void __launch_bounds__(SORT_THREADS, EACH > 8   ? 3
                                                : EACH > 4 ? 4
                                                           : 5)
    sort_one_tile(S source, int64_t n_lines, int n, int k_wanted) {
    typedef typename S::key_type K;
    __shared__ sort_tile_room<K, EACH> room;
    for (int64_t line = blockIdx.x; line < n_lines; line += gridDim.x) {
        const typename S::line at = source.begin(line);
        K key[EACH];
        uint32_t place[EACH];
        uint64_t differs = 0;
        const K any = source.key(at, 0);
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const int i = tile_place<EACH>(k);
            place[k] = (uint32_t)i;
            key[k] = i < n ? source.key(at, i) : (K) ~(K)0;
            if (i < n) differs |= (uint64_t)(K)(key[k] ^ any);
        }
        differs = block_reduce(differs, or_of(), (uint64_t)0);
        for (int shift = 0; shift < (int)sizeof(K) * 8; shift += 8) {
            if (!(differs >> shift & (SORT_DIGITS - 1))) continue; /* the same in all threads */
            int rank[EACH];
            tile_rank(room, key, shift, rank, not_published());
            tile_scatter(room, key, place, rank);
#pragma unroll
            for (int k = 0; k < EACH; k++) {
                key[k] = room.keys[tile_place<EACH>(k)];
                place[k] = room.places[tile_place<EACH>(k)];
            }
            __syncthreads();
        }
#pragma unroll
        for (int k = 0; k < EACH; k++)
            if (tile_place<EACH>(k) < k_wanted) source.put(at, tile_place<EACH>(k), place[k], key[k]);
    }
}

/* ---- Long lines ------------------------------------------------------------------------------------------- */

/* Slots of the workspace, of which n_here have the lines from first_line on. is_turned: array 1 has the keys of the
 * lines. puts_later: the last digit is moved as all others are, for sort_put. */
template <class K> struct sort_state {
    int64_t first_line, n_here, n, k, n_tiles;
    bool is_turned, puts_later;
    uint64_t *words;
    uint32_t *counts, *tickets, *skips;
    K *keys[2];
    uint32_t *places[2];
};

/* counts: how often each digit occurs. grid.y counts slots. */
template <class S>
__global__ void __launch_bounds__(SORT_THREADS) sort_count(S source, sort_state<typename S::key_type> s) {
    typedef typename S::key_type K;
    enum { PASSES = sizeof(K) };
    __shared__ uint32_t counts[PASSES][SORT_DIGITS];
    for (int p = 0; p < PASSES; p++) counts[p][threadIdx.x] = 0;
    __syncthreads();
    const typename S::line at = source.begin(s.first_line + blockIdx.y);
    const K *turned = s.keys[1] + blockIdx.y * s.n;
#pragma unroll 4
    FOR_EACH(i, s.n) {
        const K key = s.is_turned ? turned[i] : source.key(at, i);
        for (int p = 0; p < PASSES; p++) atomicAdd(&counts[p][digit_of(key, 8 * p)], 1u);
    }
    __syncthreads();
    for (int p = 0; p < PASSES; p++) {
        const uint32_t count = counts[p][threadIdx.x];
        if (count) atomicAdd(&s.counts[(blockIdx.y * PASSES + p) * SORT_DIGITS + threadIdx.x], count);
    }
}

/* A block for each (pass, slot): counts become those of all lower digits. */
template <int UNUSED>
__global__ void __launch_bounds__(SORT_DIGITS) sort_bases(uint32_t *all_counts, uint32_t *skips, uint32_t n) {
    __shared__ int64_t room[32];
    const unsigned pass = blockIdx.y * gridDim.x + blockIdx.x;
    uint32_t *counts = all_counts + pass * SORT_DIGITS;
    const uint32_t count = counts[threadIdx.x];
    int64_t all;
    counts[threadIdx.x] = (uint32_t)block_scan((int64_t)count, sum_of(), room, &all) - count;
    const int is_same = __syncthreads_or(count == n);
    if (threadIdx.x == 0) skips[pass] = (uint32_t)is_same;
}

/* A word of a tile and digit. The lower half: how many the tile has, or (WORD_WHOLE) how many it and all before it
 * have. The upper half: that, and the pass that has written it, one more than its number, so that a word of 0, or of an
 * earlier pass, says nothing yet. */
#define WORD_WHOLE (1u << 31)
enum { LOOK_BACK = 8 }; /* words that are fetched at a time */

__device__ inline void word_write(uint64_t *word, int pass, uint32_t whole, uint32_t number) {
    *(volatile uint64_t *)word = (uint64_t)(whole | (uint32_t)(pass + 1)) << 32 | number;
}

struct tile_publish {
    uint64_t *word; /* of this tile and digit */
    int pass;
    bool is_first;
    __device__ void operator()(uint32_t count) const { word_write(word, pass, is_first ? WORD_WHOLE : 0, count); }
};

/* How many of the tiles before have the digit whose words these are, one for each tile, SORT_DIGITS apart. Tiles have
 * numbers in the order in which they begin, so those before are running. The first has a whole word. */
__device__ inline uint32_t look_back(const uint64_t *words, int64_t tile, int pass) {
    uint32_t sum = 0;
    int64_t at = tile - 1;
    while (at >= 0) {
        uint64_t word[LOOK_BACK];
#pragma unroll
        for (int k = 0; k < LOOK_BACK; k++)
            word[k] = *(const volatile uint64_t *)(words + max(at - k, (int64_t)0) * SORT_DIGITS);
#pragma unroll
        for (int k = 0; k < LOOK_BACK; k++) {
            const uint32_t state = (uint32_t)(word[k] >> 32);
            if ((state & ~WORD_WHOLE) != (uint32_t)(pass + 1)) break; /* not yet: again from here */
            sum += (uint32_t)word[k];
            if (state & WORD_WHOLE) return sum;
            at--;
        }
    }
    return sum;
}

/* How many of some passes write: those that are not skipped. */
__device__ inline int passes_written(const uint32_t *skips, int begin, int end) {
    int n = 0;
    for (int p = begin; p < end; p++) n += !skips[p];
    return n;
}

/* A pass over one digit; grid.y counts slots. A digit that is the same in all keys changes nothing, and its pass is
 * skipped, so that keys come from the array that was written last, or from the source. LAST: results are put. Of wide
 * keys the highest digits often are the same: then the last pass before them puts the results, and LAST is skipped too.
 * Narrow ones do without, since a pass that may put needs more registers than there are. */
template <class S, bool LAST>
__global__ void __launch_bounds__(SORT_THREADS, 3) sort_pass(S source, sort_state<typename S::key_type> s, int pass) {
    typedef typename S::key_type K;
    enum { EACH = SORT_EACH, PASSES = sizeof(K), ENDS_EARLY = sizeof(K) == 8 };
    __shared__ sort_tile_room<K, EACH> room;
    __shared__ uint32_t goes[SORT_DIGITS], ticket;
    const int64_t slot = blockIdx.y;
    const uint32_t *skips = s.skips + slot * PASSES;
    const int n_written = passes_written(skips, 0, pass), n_left = passes_written(skips, pass + 1, PASSES);
    if (skips[pass] && (!LAST || (ENDS_EARLY && n_written))) return;
    if (threadIdx.x == 0) ticket = atomicAdd(&s.tickets[slot * PASSES + pass], 1u);
    __syncthreads();
    const int64_t tile = ticket, first = tile * SORT_TILE;
    const int n = (int)min((int64_t)SORT_TILE, s.n - first), shift = 8 * pass;
    const typename S::line at = source.begin(s.first_line + slot);
    const bool is_odd = n_written % 2, has_keys = n_written || s.is_turned; /* odd: array 0 was written last */
    const K *keys = (is_odd ? s.keys[0] : s.keys[1]) + slot * s.n + first;
    const uint32_t *places = (is_odd ? s.places[0] : s.places[1]) + slot * s.n + first;
    K key[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const int i = tile_place<EACH>(k);
        key[k] = i >= n ? (K) ~(K)0 : has_keys ? keys[i] : source.key(at, first + i);
    }
    int rank[EACH];
    uint64_t *words = s.words + slot * s.n_tiles * SORT_DIGITS + threadIdx.x;
    uint64_t *word = words + tile * SORT_DIGITS;
    const digit_share own = tile_rank(room, key, shift, rank, tile_publish{word, pass, tile == 0});
    uint32_t place[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const int i = tile_place<EACH>(k);
        place[k] = i < n && n_written ? places[i] : (uint32_t)(first + i);
    }
    const uint32_t before = look_back(words, tile, pass);
    word_write(word, pass, WORD_WHOLE, before + own.count);
    goes[threadIdx.x] = s.counts[(slot * PASSES + pass) * SORT_DIGITS + threadIdx.x] + before - own.lower;
    tile_scatter(room, key, place, rank);
    K *to_keys = (is_odd ? s.keys[1] : s.keys[0]) + slot * s.n;
    uint32_t *to_places = (is_odd ? s.places[1] : s.places[0]) + slot * s.n;
    const auto each = [&](const auto &use) {
#pragma unroll 4
        for (int i = threadIdx.x; i < n; i += SORT_THREADS) {
            const K moved = room.keys[i];
            use(goes[digit_of(moved, shift)] + (uint32_t)i, moved, room.places[i]);
        }
    };
    if (LAST || (ENDS_EARLY && n_left == 0 && !s.puts_later))
        each([&](uint32_t to, K moved, uint32_t index) {
            if (to < s.k) source.put(at, to, index, moved);
        });
    else
        each([&](uint32_t to, K moved, uint32_t index) {
            to_keys[to] = moved;
            to_places[to] = index;
        });
}

/* ---- Columns ------------------------------------------------------------------------------------------------
 *
 * Tiles of some lines and places go through shared memory: threads beside each other have neighbouring lines of x or
 * of the results, and neighbouring places in the workspace. Bytes that all kernels move for each f32 of a long column,
 * where a single element reads or writes 32:
 *
 *                in place                turned
 *     keys                               4 + 4
 *     counts     32                      4
 *     digits     32 + 8, 16, 16, 8       4 + 8, 16, 16, 16
 *     results    32 + 32                 8 + 4 + 8
 *     all        176                     92
 */
enum { TURN_EACH = 8, TURN_TILE = SORT_THREADS * TURN_EACH, TURN_LINES = 32 };

/* A tile of 1 << bits lines and as many places as there is room for. */
struct turn {
    int bits; /* at most those of TURN_LINES */
    int64_t first_slot, first_place;
    __device__ turn(int bits) : bits(bits), first_slot((int64_t)blockIdx.y << bits) {
        first_place = (int64_t)blockIdx.x * (TURN_TILE >> bits);
    }
    /* Element k of a thread: with neighbouring lines beside each other, of which a thread has one; or places. */
    __device__ int line() const { return threadIdx.x & ((1 << bits) - 1); }
    __device__ int place(int k) const { return (int)(k * SORT_THREADS + threadIdx.x) >> bits; }
    __device__ int row(int k) const { return (k * SORT_THREADS + threadIdx.x) / (TURN_TILE >> bits); }
    __device__ int column(int k) const { return (k * SORT_THREADS + threadIdx.x) % (TURN_TILE >> bits); }
    __device__ int at(int line, int place) const { return line * ((TURN_TILE >> bits) + 1) + place; }
};

/* Array 1 gets the keys of all slots. */
template <class S>
__global__ void __launch_bounds__(SORT_THREADS) sort_turn(S source, sort_state<typename S::key_type> s, int bits) {
    typedef typename S::key_type K;
    __shared__ K room[TURN_TILE + TURN_LINES];
    const turn t(bits);
    if (t.first_slot + t.line() < s.n_here) {
        const typename S::line at = source.begin(s.first_line + t.first_slot + t.line());
        K key[TURN_EACH];
#pragma unroll
        for (int k = 0; k < TURN_EACH; k++)
            key[k] = t.first_place + t.place(k) < s.n ? source.key(at, t.first_place + t.place(k)) : K(0);
#pragma unroll
        for (int k = 0; k < TURN_EACH; k++) room[t.at(t.line(), t.place(k))] = key[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TURN_EACH; k++) {
        const int64_t slot = t.first_slot + t.row(k), place = t.first_place + t.column(k);
        if (slot < s.n_here && place < s.n) s.keys[1][slot * s.n + place] = room[t.at(t.row(k), t.column(k))];
    }
}

/* Puts the first k of all slots. */
template <class S>
__global__ void __launch_bounds__(SORT_THREADS) sort_put(S source, sort_state<typename S::key_type> s, int bits) {
    typedef typename S::key_type K;
    __shared__ K keys[TURN_TILE + TURN_LINES];
    __shared__ uint32_t places[TURN_TILE + TURN_LINES];
    __shared__ int n_written[TURN_LINES];
    const turn t(bits);
    if (threadIdx.x < 1 << bits && t.first_slot + threadIdx.x < s.n_here)
        n_written[threadIdx.x] = passes_written(s.skips + (t.first_slot + threadIdx.x) * sizeof(K), 0, sizeof(K));
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TURN_EACH; k++) {
        const int64_t slot = t.first_slot + t.row(k), place = t.first_place + t.column(k), from = slot * s.n + place;
        if (slot >= s.n_here || place >= s.k) continue;
        const int n = n_written[t.row(k)], to = t.at(t.row(k), t.column(k));
        const bool is_odd = n % 2; /* array 0 was written last */
        keys[to] = !n && !s.is_turned ? source.key(source.begin(s.first_line + slot), place)
                                      : (is_odd ? s.keys[0] : s.keys[1])[from];
        places[to] = n ? (is_odd ? s.places[0] : s.places[1])[from] : (uint32_t)place;
    }
    __syncthreads();
    if (t.first_slot + t.line() >= s.n_here) return;
    const typename S::line at = source.begin(s.first_line + t.first_slot + t.line());
#pragma unroll
    for (int k = 0; k < TURN_EACH; k++) {
        const int from = t.at(t.line(), t.place(k));
        if (t.first_place + t.place(k) < s.k) source.put(at, t.first_place + t.place(k), places[from], keys[from]);
    }
}

/* Few lines: a tile has no more of them than there are, so that its threads have work. */
static inline int turn_bits(int64_t n_here) { return n_here < TURN_LINES ? 3 : 5; }
static inline dim3 turn_grid(int64_t n_here, int64_t n_places) {
    const int bits = turn_bits(n_here), places = TURN_TILE >> bits, lines = 1 << bits;
    return dim3((unsigned)((n_places + places - 1) / places), (unsigned)((n_here + lines - 1) / lines));
}
static_assert(1 << 3 == SORT_ABREAST && 1 << 5 == TURN_LINES, "turn_bits");

/* ---- Launches of long lines --------------------------------------------------------------------------------- */

template <class S> static void sort_batch(S source, const sort_state<typename S::key_type> &s, cudaStream_t stream) {
    enum { PASSES = sizeof(typename S::key_type) };
    const int64_t enough = 528 / s.n_here + 1, count_blocks = s.n_tiles < enough ? s.n_tiles : enough;
    const unsigned n_here = (unsigned)s.n_here;
    const dim3 grid((unsigned)s.n_tiles, n_here);
    const int bits = turn_bits(s.n_here);
    if (s.is_turned) sort_turn<S><<<turn_grid(s.n_here, s.n), SORT_THREADS, 0, stream>>>(source, s, bits);
    sort_count<S><<<dim3((unsigned)count_blocks, n_here), SORT_THREADS, 0, stream>>>(source, s);
    sort_bases<0><<<dim3(PASSES, n_here), SORT_DIGITS, 0, stream>>>(s.counts, s.skips, (uint32_t)s.n);
    for (int pass = 0; pass < PASSES - 1; pass++)
        sort_pass<S, false><<<grid, SORT_THREADS, 0, stream>>>(source, s, pass);
    if (!s.puts_later) {
        sort_pass<S, true><<<grid, SORT_THREADS, 0, stream>>>(source, s, PASSES - 1);
        return;
    }
    sort_pass<S, false><<<grid, SORT_THREADS, 0, stream>>>(source, s, PASSES - 1);
    sort_put<S><<<turn_grid(s.n_here, s.k), SORT_THREADS, 0, stream>>>(source, s, bits);
}

template <class S>
static bool sort_long(const tl_kernel_args *args, S source, int64_t n_lines, int64_t n, int64_t k,
                      const sort_columns &columns) {
    typedef typename S::key_type K;
    enum { PASSES = sizeof(K) };
    const cudaStream_t stream = stream_of(args);
    const int64_t n_slots = sort_slots(n_lines, n, columns.has_room);
    const struct sort_room room = sort_room_of(n_slots, n, PASSES, columns.has_room);
    char *base = (char *)args->workspace;
    if (args->workspace_bytes < room.all || n > UINT32_MAX) {
        snprintf(args->error, CUDA_ERROR_BYTES, "%s: lines of %lld need %llu bytes of workspace, there are %zu",
                 args->op, (long long)n, (unsigned long long)room.all, args->workspace_bytes);
        return false;
    }
    sort_state<K> s = {};
    s.n = n;
    s.k = k;
    s.is_turned = columns.is_of_x && n_slots >= SORT_ABREAST && (columns.has_room || PASSES > 2);
    s.puts_later = columns.is_of_results && columns.has_room;
    s.n_tiles = (n + SORT_TILE - 1) / SORT_TILE;
    s.words = (uint64_t *)base;
    s.counts = (uint32_t *)(base + room.counts);
    s.tickets = (uint32_t *)(base + room.tickets);
    s.skips = (uint32_t *)(base + room.skips);
    for (int j = 0; j < 2; j++) {
        s.keys[j] = (K *)(base + room.keys[j]);
        s.places[j] = (uint32_t *)(base + room.places[j]);
    }
    for (; s.first_line < n_lines; s.first_line += n_slots) {
        s.n_here = n_lines - s.first_line < n_slots ? n_lines - s.first_line : n_slots;
        if (!cuda_check(cudaMemsetAsync(base, 0, room.zeroed, stream), args->op, args->error)) return false;
        sort_batch<S>(source, s, stream);
    }
    return true;
}

/* The first k of each line of n. The workspace has sort_bytes. */
template <class S>
static bool sort_lines(const tl_kernel_args *args, S source, int64_t n_lines, int64_t n, int64_t k,
                       const sort_columns &columns = {}) {
    const cudaStream_t stream = stream_of(args);
    const unsigned blocks = capped(n_lines);
    if (n_lines == 0 || n == 0 || k == 0) return true;
    if (sort_selects(n_lines, n, k)) {
        sort_first<S><<<blocks, SELECT_BLOCK, 0, stream>>>(source, n_lines, (int)n, (int)k);
    } else if (n <= SORT_SHORT) {
        if constexpr (sizeof(typename S::key_type) < 8) {
            if (n <= 4 * 32) sort_warp_launch<S, 4>(source, n_lines, n, k, columns.is_of_results, stream);
            else if (n <= 8 * 32) sort_warp_launch<S, 8>(source, n_lines, n, k, columns.is_of_results, stream);
            else sort_warp_launch<S, SORT_SHORT / 32>(source, n_lines, n, k, columns.is_of_results, stream);
        } else {
            int threads = 32;
            while (threads * 2 < n) threads *= 2;
            sort_short<S><<<blocks, threads, 0, stream>>>(source, n_lines, (int)n, (int)k);
        }
    } else if (n <= 4 * SORT_THREADS) {
        sort_one_tile<S, 4><<<blocks, SORT_THREADS, 0, stream>>>(source, n_lines, (int)n, (int)k);
    } else if (n <= 8 * SORT_THREADS) {
        sort_one_tile<S, 8><<<blocks, SORT_THREADS, 0, stream>>>(source, n_lines, (int)n, (int)k);
    } else if (n <= SORT_TILE) {
        sort_one_tile<S, SORT_EACH><<<blocks, SORT_THREADS, 0, stream>>>(source, n_lines, (int)n, (int)k);
    } else {
        return sort_long(args, source, n_lines, n, k, columns);
    }
    return true;
}

#endif

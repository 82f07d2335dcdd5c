/* attention_hopper_forward.cu: attention on Hopper's warpgroup tensor cores, for 16-bit operands, with what cuDNN's
 * graphs lack: masks, dropout, windows, first keys, and fewer queries than keys.
 *
 * One block has 128 queries of one head, and walks the tiles of keys that any of them sees. Scores of a tile exist in
 * registers only:
 *
 *   s = scale q k^T + mask;  running maximum m and sum l per query
 *   out = sum of p v / (l (1 - dropout)),  lse = m + log l
 *
 * Warpgroup 0 fetches by TMA (tiles beyond T, S or D are filled with zeros); warpgroups 1 and 2 have 64 queries each,
 * and pass over tiles of which they see nothing. While one of them computes exponentials, the tensor cores compute the
 * products of the other. Weights, rounded, are the register operand of p v as they are. No atomics: the same bits each
 * time.
 *
 * Draws of dropout take more time than the products of a small head. So with dropout and heads of up to 64, tiles are
 * of 64 keys, and two blocks share an SM: one draws while the other waits for its tiles, or writes.
 */
#include "device/cuda/ops/attention_hopper.cuh"
#include "device/cuda/shared/attention_rule.h"

enum { QUERIES = 128, STAGES = 2 };

template <int DP, int KIND> struct forward_shape {
    /* of an SM, a consumer */
    enum { BLOCKS = DP == 64 && KIND == DROPPED ? 2 : 1, REGISTERS = BLOCKS == 2 ? 104 : 240 };
    enum { KEYS = DP > 128 || BLOCKS == 2 ? 64 : 128 }; /* wide heads leave registers for 64 scores a row */
    enum { PARTS = DP / PART };
    enum { KEY_BYTES = KEYS * DP * 2, QUERY_BYTES = QUERIES * DP * 2 };
    enum { COLUMNS = DP > 128 ? 128 : DP, PRODUCTS = DP / COLUMNS }; /* out is made by so many products */
};

struct forward_maps {
    CUtensorMap q, k, v;
};

template <int DP, int KIND> struct __align__(1024) forward_shared {
    typedef forward_shape<DP, KIND> shape;
    uint16_t q[QUERIES * DP]; /* part by part; in the end, results are put in order here */
    uint16_t k[STAGES][shape::KEYS * DP], v[STAGES][shape::KEYS * DP];
    uint64_t q_full, k_full[STAGES], v_full[STAGES], empty[STAGES];
};

#if HAS_WARPGROUPS || !defined __CUDA_ARCH__

/* Where a block is, and which keys it walks. */
struct forward_block {
    int b, h, h_kv, begin; /* begin: the first query */
    int from, to;          /* the keys that any of them sees */
    int first_tile, n_tiles;
};
template <int KEYS> __device__ inline forward_block block_of(const attention_call &a, int n) {
    forward_block at;
    const int head = (int)blockIdx.x / n;
    at.b = head / (int)a.H, at.h = head % (int)a.H, at.h_kv = at.h / (int)(a.H / a.H_kv);
    at.begin = (n - 1 - (int)blockIdx.x % n) * QUERIES; /* the longest first */
    at.from = (int)first_key(a, at.b, at.begin);
    at.to = (int)visible_keys(a, min((int64_t)at.begin + QUERIES, a.T) - 1);
    at.first_tile = at.from / KEYS;
    at.n_tiles = at.to > at.from ? (at.to - 1) / KEYS + 1 - at.first_tile : 0;
    return at;
}

template <int DP, int KIND>
__device__ inline void fetch(forward_shared<DP, KIND> &shared, const forward_maps &maps, const forward_block &at) {
    typedef forward_shape<DP, KIND> shape;
    barrier_expect(&shared.q_full, shape::QUERY_BYTES);
    for (int part = 0; part < shape::PARTS; part++)
        tile_fetch(&shared.q[part * QUERIES * PART], &maps.q, &shared.q_full, part * PART, at.begin, at.h, at.b);
    ring<STAGES> slot;
    for (int i = 0; i < at.n_tiles; i++, slot.next()) {
        const int s = (at.first_tile + i) * shape::KEYS;
        barrier_wait(&shared.empty[slot.slot], slot.phase ^ 1);
        barrier_expect(&shared.k_full[slot.slot], shape::KEY_BYTES);
        for (int part = 0; part < shape::PARTS; part++)
            tile_fetch(&shared.k[slot.slot][part * shape::KEYS * PART], &maps.k, &shared.k_full[slot.slot], part * PART,
                       s, at.h_kv, at.b);
        barrier_expect(&shared.v_full[slot.slot], shape::KEY_BYTES);
        for (int part = 0; part < shape::PARTS; part++)
            tile_fetch(&shared.v[slot.slot][part * shape::KEYS * PART], &maps.v, &shared.v_full[slot.slot], part * PART,
                       s, at.h_kv, at.b);
    }
}

/* The softmax of the lane's two rows so far, in powers of two, and the keys that they see. */
struct forward_rows {
    float top[2], sum[2];
    int from[2], to[2];
    int whole_from, whole_to; /* the keys that all 64 rows of the warpgroup see */
    int any_from, any_to;     /* and those that any of them sees */
};
__device__ inline forward_rows rows_begin(const attention_call &a, int b, int first, int row) {
    forward_rows r;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int64_t t = min((int64_t)first + row + 8 * i, a.T - 1);
        r.top[i] = lowest<float>(), r.sum[i] = 0;
        r.from[i] = (int)first_key(a, b, t), r.to[i] = (int)visible_keys(a, t);
    }
    const int64_t top = min((int64_t)first, a.T - 1), last = min((int64_t)first + 63, a.T - 1);
    r.whole_from = (int)first_key(a, b, last), r.whole_to = (int)visible_keys(a, top);
    r.any_from = (int)first_key(a, b, top), r.any_to = first < a.T ? (int)visible_keys(a, last) : 0;
    return r;
}

/* Turns scores of keys from `s0` on into weights, and says how much the sums so far shrink. */
template <int KEYS>
__device__ inline void weights_of(const lane_place &me, float (&s)[KEYS / 2], forward_rows &r, int s0, float scale_log2,
                                  float (&shrink)[2]) {
    if (s0 < r.whole_from || s0 + KEYS > r.whole_to) {
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int key = s0 + 8 * n + me.column() + i % 2;
                if (key < r.from[i / 2] || key >= r.to[i / 2]) s[4 * n + i] = lowest<float>();
            }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = lowest<float>();
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) top = fmaxf(top, fmaxf(s[4 * n + 2 * i], s[4 * n + 2 * i + 1]));
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 1));
        top = fmaxf(r.top[i], scale_log2 * fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 2)));
        const float shift = top == lowest<float>() ? 0 : top; /* nothing seen yet: 2^-inf is the 0 we want */
        shrink[i] = exp2_of(r.top[i] - shift);
        r.top[i] = top;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int k = 0; k < 2; k++) {
                s[4 * n + 2 * i + k] = exp2_of(fmaf(s[4 * n + 2 * i + k], scale_log2, -shift));
                sum += s[4 * n + 2 * i + k];
            }
        r.sum[i] = r.sum[i] * shrink[i] + sum;
    }
}

template <class T, int DP, int KIND>
__device__ inline void compute(forward_shared<DP, KIND> &shared, const attention_call &a, const tile_mask &mask,
                               const forward_block &at, int consumer) {
    typedef forward_shape<DP, KIND> shape;
    enum { KEYS = shape::KEYS, PARTS = shape::PARTS, COLUMNS = shape::COLUMNS, PRODUCTS = shape::PRODUCTS };
    const lane_place me = {(int)threadIdx.x % WARPGROUP};
    const int first = at.begin + consumer * 64;
    const int64_t head = at.b * a.H + at.h;
    const bool drops = KIND != PLAIN && mask.drops;
    const int warp_first = first + me.lane / 32 * 16;
    const uint64_t mask_block = block_of_queries(mask, head * a.T + warp_first);
    const int drawn_from = (int)first_key(a, at.b, min((int64_t)warp_first, a.T - 1));
    const int drawn_to = (int)visible_keys(a, min((int64_t)warp_first + 15, a.T - 1));
    forward_rows r = rows_begin(a, at.b, first, me.row());
    mask_tile<KEYS> added;
    if (KIND == MASKED && at.n_tiles > 0)
        added.load(a, me, mask_of_queries(a, at.b, at.h, first + me.row()), at.first_tile * KEYS);
    float o[PRODUCTS][COLUMNS / 2];
#pragma unroll
    for (int j = 0; j < PRODUCTS; j++)
#pragma unroll
        for (int n = 0; n < COLUMNS / 2; n++) o[j][n] = 0;
    ring<STAGES> slot;
    const uint64_t q_rows = tile_operand(&shared.q[consumer * 64 * PART]);
    barrier_wait(&shared.q_full, 0);
    for (int i = 0; i < at.n_tiles; i++, slot.next()) {
        const int s0 = (at.first_tile + i) * KEYS;
        float s[KEYS / 2], shrink[2];
        const uint64_t k_rows = tile_operand(shared.k[slot.slot]);
        barrier_wait(&shared.k_full[slot.slot], slot.phase);
        if (KIND != MASKED && (s0 >= r.any_to || s0 + KEYS <= r.any_from)) {
            if (me.lane == 0) barrier_arrive(&shared.empty[slot.slot]);
            continue;
        }
        if (KIND == MASKED) added.begin(a, s);
        registers_fence(s);
        products_begin();
#pragma unroll
        for (int k = 0; k < DP / 16; k++) {
            const int part = k / 4, step = k % 4 * STEP_ALONG_ROW;
            multiply_rows(T(), s, q_rows + (part * QUERIES * ROW_BYTES >> 4) + step,
                          k_rows + (part * KEYS * ROW_BYTES >> 4) + step, KIND == MASKED || k > 0);
        }
        products_commit();
        uint32_t dropped[KEYS / 64];
#pragma unroll
        for (int j = 0; drops && j < KEYS / 64; j++)
            dropped[j] = dropped_queries<64, 2>(mask, mask_block, s0 + 64 * j, drawn_from, drawn_to);
        products_wait<0>();
        registers_fence(s);
        weights_of<KEYS>(me, s, r, s0, (float)a.scale * LOG2_E, shrink);
        uint32_t p16[KEYS / 16][4];
        operand_of<T>(p16, s);
        if (drops) {
#pragma unroll
            for (int k = 0; k < KEYS / 16; k++)
#pragma unroll
                for (int i = 0; i < 4; i++) p16[k][i] = two_kept(p16[k][i], dropped[k / 4], k % 4 * 2 + i / 2, i % 2);
        }
#pragma unroll
        for (int j = 0; j < PRODUCTS; j++)
#pragma unroll
            for (int n = 0; n < COLUMNS / 2; n++) o[j][n] *= shrink[n / 2 % 2];
        barrier_wait(&shared.v_full[slot.slot], slot.phase);
#pragma unroll
        for (int j = 0; j < PRODUCTS; j++) registers_fence(o[j]);
        products_begin();
#pragma unroll
        for (int j = 0; j < PRODUCTS; j++) {
            const uint64_t v_rows = tile_operand(&shared.v[slot.slot][j * COLUMNS * KEYS], KEYS * ROW_BYTES);
#pragma unroll
            for (int k = 0; k < KEYS / 16; k++) multiply_registers(T(), o[j], p16[k], v_rows + k * STEP_ALONG_ROWS, 1);
        }
        products_commit();
        if (KIND == MASKED && i + 1 < at.n_tiles)
            added.load(a, me, mask_of_queries(a, at.b, at.h, first + me.row()), s0 + KEYS);
        products_wait<0>();
#pragma unroll
        for (int j = 0; j < PRODUCTS; j++) registers_fence(o[j]);
        if (me.lane == 0) barrier_arrive(&shared.empty[slot.slot]);
    }
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float total = r.sum[i];
        total += __shfl_xor_sync(ALL_LANES, total, 1);
        total += __shfl_xor_sync(ALL_LANES, total, 2);
        const int64_t t = first + me.row() + 8 * i;
        factor[i] = total == 0 ? 0 : mask.growth / total;
        if (t < a.T && me.column() == 0)
            ((float *)a.lse)[head * a.T + t] = total == 0 ? lowest<float>() : r.top[i] * (1 / LOG2_E) + log_of(total);
    }
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        float *own = &o[part * PART / COLUMNS][part * PART % COLUMNS / 2];
#pragma unroll
        for (int n = 0; n < PART / 2; n++) own[n] *= factor[n / 2 % 2];
        rows_write<T>(me, own, 1, &shared.q[part * QUERIES * PART + consumer * 64 * PART], a.out, at.b, first, at.h,
                      (int)a.T, part * PART, (int)a.D);
    }
}
#endif

template <class T, int DP, int KIND>
__global__ void __launch_bounds__(HOPPER_THREADS, forward_shape<DP, KIND>::BLOCKS)
    hopper_forward(const __grid_constant__ forward_maps maps, const __grid_constant__ attention_call a,
                   const __grid_constant__ tile_mask mask, int n) {
#if HAS_WARPGROUPS
    typedef forward_shape<DP, KIND> shape;
    extern __shared__ __align__(1024) char memory[];
    forward_shared<DP, KIND> &shared = *(forward_shared<DP, KIND> *)memory;
    const int role = warp_uniform((int)threadIdx.x / WARPGROUP);
    if (threadIdx.x == 0) {
        barrier_init(&shared.q_full, 1);
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&shared.k_full[i], 1);
            barrier_init(&shared.v_full[i], 1);
            barrier_init(&shared.empty[i], 2);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const forward_block at = block_of<shape::KEYS>(a, n);
    if (role == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) fetch<DP, KIND>(shared, maps, at);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)shape::REGISTERS));
        compute<T, DP, KIND>(shared, a, mask, at, role - 1);
    }
#endif
}

template <class T, int DP, int KIND> static bool launch(const tl_kernel_args *args, const attention_call &a) {
    const int n = (int)((a.T + QUERIES - 1) / QUERIES), keys = forward_shape<DP, KIND>::KEYS;
    forward_maps maps;
    if (!map_make(args, &maps.q, a, a.q, a.T, a.H, QUERIES) || !map_make(args, &maps.k, a, a.k, a.S, a.H_kv, keys) ||
        !map_make(args, &maps.v, a, a.v, a.S, a.H_kv, keys))
        return false;
    const size_t bytes = sizeof(forward_shared<DP, KIND>);
    if (!shared_memory_allow(args, hopper_forward<T, DP, KIND>, bytes)) return false;
    hopper_forward<T, DP, KIND>
        <<<(unsigned)(n * a.B * a.H), HOPPER_THREADS, bytes, stream_of(args)>>>(maps, a, mask_of(a), n);
    return true;
}

template <class T, int KIND> static bool by_size(const tl_kernel_args *args, const attention_call &a) {
    return a.D <= 64    ? launch<T, 64, KIND>(args, a)
           : a.D <= 128 ? launch<T, 128, KIND>(args, a)
                        : launch<T, 256, KIND>(args, a);
}
template <class T> static bool by_kind(const tl_kernel_args *args, const attention_call &a) {
    return a.mask          ? by_size<T, MASKED>(args, a)
           : a.dropout > 0 ? by_size<T, DROPPED>(args, a)
                           : by_size<T, PLAIN>(args, a);
}

extern "C" bool attention_hopper_forward(const tl_kernel_args *args, const attention_call *call) {
    return call->dtype == TL_BF16 ? by_kind<bf16>(args, *call) : by_kind<f16>(args, *call);
}

/* norm.cu: layer norm and RMS norm over the last axis C, and their gradients.
 *
 * Teams of threads process rows of up to NORM_TEAM_LENGTH elements: they read a row once, forward to registers, in
 * packs or, of rows of other lengths, in pairs or single elements, up to 32 elements to a thread; backward to shared
 * memory, as few packs as the row allows. Longer rows and those in f64 are processed forward by a block, which reads
 * them again from the cache. Backward teams read rows of other lengths once, too, and take single columns from shared
 * memory; longer rows and those in f64 are read by two kernels, the first for the sums of the row, the second, by
 * columns, for everything else.
 *
 * Weight gradients are column sums over all rows, without atomics, and so are the sums of dx's columns: rows are cut
 * into up to NORM_RUNS runs, whose sums are in args->workspace, (NORM_RUNS, C) for each such result, in the compute
 * type; another kernel adds them in a fixed order. They are summed where dx is computed, by threads that have the same
 * columns of every row. The sums of rows are behind those of the runs (norm_rule.h).
 *
 * Dropout of the residual, and of its gradient, draws the mask anew where it is applied (dropout.cuh).
 */
#include "device/cuda/shared/dropout.cuh"
#include "device/cuda/shared/common.cuh"
#include "device/cuda/shared/fetch.cuh"
#include "device/cuda/shared/limits.h"
#include "device/cuda/shared/line_pack.cuh"
#include "device/cuda/shared/norm_rule.h"
#include "device/cuda/shared/tensor_core.cuh"

__device__ inline float rsqrt_of(float x) { return 1.0f / sqrtf(x); }
__device__ inline double rsqrt_of(double x) { return 1.0 / sqrt(x); }

/* ---- Forward ------------------------------------------------------------------------------------------ */

/* y = (x - mean) rstd w + b; mean and variance in two passes, since the one-pass formula cancels. RMS: mean = 0. With a
 * residual, x is x + residual, rounded and written to sum first; a thread reads back what it wrote itself. The residual
 * is what dropout leaves of it, rounded. */
template <class T, class W> struct norm_forward_rows {
    typedef typename compute_type<T>::type C;
    const T *x, *residual;
    const W *weight, *bias;
    T *sum, *y;
    C *mean, *rstd;
    int64_t n_rows, n;
    double eps;
    dropout_draws drop;
};

/* What dropout leaves of a unit that begins at element i. */
template <class T, int U>
__device__ inline unit<T, U> unit_dropped(const dropout_draws &d, int64_t i, const unit<T, U> &x) {
    typename compute_type<T>::type v[U];
    unit<T, U> y;
    for (int j = 0; j < U; j++) v[j] = value_of<typename compute_type<T>::type>(x.v[j]);
    drop_unit(d, dropped_bits<U>(d, i), v);
    for (int j = 0; j < U; j++) y.v[j] = conversion<T>::from(v[j]);
    return y;
}

template <class T, class W, bool RMS, int U>
__global__ void __launch_bounds__(512) norm_rows(norm_forward_rows<T, W> r) {
    typedef typename compute_type<T>::type C;
    const int64_t n_units = r.n / U;
    for (int64_t row = blockIdx.x; row < r.n_rows; row += gridDim.x) {
        const int64_t at = row * r.n;
        const T *from = r.residual ? r.sum + at : r.x + at;
        C total = 0;
        for (int64_t i = threadIdx.x; i < n_units; i += blockDim.x) {
            unit<T, U> a = unit_load<U>(r.x + at, i);
            if (r.residual) {
                unit<T, U> b = unit_load<U>(r.residual + at, i);
                if (r.drop.growth > 0) b = unit_dropped(r.drop, at + i * U, b);
                for (int j = 0; j < U; j++) a.v[j] = conversion<T>::from(value_of<C>(a.v[j]) + value_of<C>(b.v[j]));
                unit_store<U>(r.sum + at, i, a);
            }
            for (int j = 0; j < U; j++) total += RMS ? value_of<C>(a.v[j]) * value_of<C>(a.v[j]) : value_of<C>(a.v[j]);
        }
        total = block_reduce(total, sum_of(), C(0)) / C(r.n);
        const C mean = RMS ? C(0) : total;
        C variance = total;
        if (!RMS) {
            C squares = 0;
            for (int64_t i = threadIdx.x; i < n_units; i += blockDim.x) {
                const unit<T, U> a = unit_load<U>(from, i);
                for (int j = 0; j < U; j++) squares += (value_of<C>(a.v[j]) - mean) * (value_of<C>(a.v[j]) - mean);
            }
            variance = block_reduce(squares, sum_of(), C(0)) / C(r.n);
        }
        const C rstd = rsqrt_of(variance + C(r.eps));
        for (int64_t i = threadIdx.x; i < n_units; i += blockDim.x) {
            const unit<T, U> a = unit_load<U>(from, i);
            unit<W, U> w, b;
            unit<T, U> y;
            if (r.weight) w = unit_load<U>(r.weight, i);
            if (r.bias) b = unit_load<U>(r.bias, i);
            for (int j = 0; j < U; j++) {
                C value = (value_of<C>(a.v[j]) - mean) * rstd;
                if (r.weight) value *= value_of<C>(w.v[j]);
                if (r.bias) value += value_of<C>(b.v[j]);
                y.v[j] = conversion<T>::from(value);
            }
            unit_store<U>(r.y + at, i, y);
        }
        if (threadIdx.x == 0) {
            if (!RMS) r.mean[row] = mean;
            r.rstd[row] = rstd;
        }
    }
}

/* ---- Gradients ---------------------------------------------------------------------------------------- */

/* With h = (x - mean) rstd and d = g w:  dx = rstd (d - avg(d) - h avg(d h)) [+ g_sum].  RMS has no avg(d). dx is
 * rounded before g_sum is added, so that the bits are those of a norm's gradient followed by a sum; and what dropout
 * leaves of dx is that of the rounded dx.  dweight = sum over rows of g h, dbias = sum over rows of g. */
template <class T, class W> struct norm_backward_rows {
    typedef typename compute_type<T>::type C;
    const T *g, *g_sum, *x;
    const C *mean, *rstd;
    const W *weight;
    T *dx, *dropped; /* dropped NULL: no dropout */
    int64_t n_rows, n;
    dropout_draws drop;
};

/* The runs of 32 columns, by blocks of 32 x ADDERS threads: thread row k adds runs k, k + ADDERS, ..., all loaded
 * before the first is added; then the rows are added in order. There are as many blocks for each result behind
 * the gradients like x. */
enum { ADDERS = 32, MAX_SUMS = 3 };
template <class C> struct norm_sums {
    const C *runs; /* of the first; those of the others follow, NORM_RUNS n elements on */
    void *out[MAX_SUMS];
    tl_dtype dtype[MAX_SUMS];
    int64_t n;
    int n_runs, n_sums;
};
template <class C> __global__ void __launch_bounds__(32 * ADDERS) norm_runs_add(norm_sums<C> s) {
    const int EACH = (NORM_RUNS + ADDERS - 1) / ADDERS;
    __shared__ C parts[ADDERS][32];
    const int which = (int)blockIdx.x % s.n_sums, lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32;
    const int64_t column = blockIdx.x / s.n_sums * (int64_t)32 + lane;
    front_wait();
    const C *const runs = s.runs + which * NORM_RUNS * s.n + column;
    C sum = 0, part[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const int run = row + k * ADDERS;
        part[k] = column < s.n && run < s.n_runs ? runs[run * s.n] : C(0);
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) sum += part[k];
    parts[row][lane] = sum;
    __syncthreads();
    if (row != 0 || column >= s.n) return;
    for (int k = 1; k < ADDERS; k++) sum += parts[k][lane];
    store_as<C>(s.out[which], column, s.dtype[which], sum);
}

/* ---- Rows that teams of threads keep in registers -------------------------------------------------------- */

enum { WARPS = 8 }; /* of a block */

/* Teams of LANES threads, with up to OWN units each. Half a warp has the units of two: unit lane + LANES k is one that
 * thread lane + LANES (k % SHARES) of a whole one would have, so both add in the same order. */
template <int LANES, int OWN> struct row_team {
    static const int UNITS = LANES * OWN, SHARES = LANES < 32 ? 32 / LANES : 1, TEAMS = 32 * WARPS / LANES;
};

/* The fewest blocks of a multiprocessor; 0: as many as the compiler leaves room for. Of rows in small units threads
 * have room for many, and most rows need few: there must be enough threads that ask for memory. */
template <class T> static constexpr int team_blocks(int unit, int own) {
    const int words = own * unit * (unit > 1 ? (int)sizeof(T) : 4) / 4;
    return unit == PACK ? 0 : words > 16 ? 2 : words > 8 ? 3 : 5;
}

/* The sum over a team, to all of its threads, of each thread's shares. The slots are used in turn, so that one barrier
 * per sum is enough: a slot is written again only after the barrier of the next sum. All warps of a block call it
 * together. */
template <int LANES, int SHARES, class C>
__device__ inline C team_sum(const C (&shares)[SHARES], C (&slots)[2][WARPS], int &turn) {
    static_assert(SHARES <= 2, "what the first step of a warp's sum adds");
    C x = SHARES == 2 ? shares[0] + shares[SHARES - 1] : shares[0];
#pragma unroll
    for (int distance = 16 / SHARES; distance > 0; distance /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, distance);
    if (LANES <= 32) return x;
    const int N = LANES < 32 ? 1 : LANES / 32, warp = threadIdx.x / 32, first = warp / N * N;
    turn ^= 1;
    if (threadIdx.x % 32 == 0) slots[turn][warp] = x;
    __syncthreads();
    x = slots[turn][first];
    for (int k = 1; k < N; k++) x += slots[turn][first + k];
    return x;
}

/* As norm_rows. */
template <class T, class W, bool RMS, int U, int LANES, int OWN>
__global__ void __launch_bounds__(32 * WARPS, team_blocks<T>(U, OWN)) norm_team_rows(norm_forward_rows<T, W> r) {
    typedef typename compute_type<T>::type C;
    const int SHARES = row_team<LANES, OWN>::SHARES, TEAMS = row_team<LANES, OWN>::TEAMS;
    __shared__ C slots[2][WARPS];
    const int lane = threadIdx.x % LANES, team = threadIdx.x / LANES, n_units = (int)(r.n / U);
    int turn = 0;
    next_begin();
    if (U == PACK && r.weight && threadIdx.x == 0) cache_fetch(r.weight, (unsigned)(r.n * sizeof(W)));
    front_wait();
    for (int64_t base = blockIdx.x * (int64_t)TEAMS; base < r.n_rows; base += (int64_t)gridDim.x * TEAMS) {
        const int64_t row = base + team, at = row * r.n;
        const int n_own = row < r.n_rows ? n_units : 0; /* a team without a row waits with the others */
        row_pack<T, U> x[OWN];
        C shares[SHARES] = {}, v[U];
#pragma unroll
        for (int k = 0; k < OWN; k++)
            if (lane + k * LANES < n_own) x[k] = row_load<U>(r.x + at, lane + k * LANES);
        if (r.residual) {
            row_pack<T, U> more[OWN];
#pragma unroll
            for (int k = 0; k < OWN; k++)
                if (lane + k * LANES < n_own) more[k] = row_load<U>(r.residual + at, lane + k * LANES);
#pragma unroll
            for (int k = 0; k < OWN; k++) {
                if (lane + k * LANES >= n_own) continue;
                C b[U];
                x[k].widen(v);
                more[k].widen(b);
                if (r.drop.growth > 0) {
                    drop_unit(r.drop, dropped_bits<U>(r.drop, at + (lane + k * LANES) * U), b);
                    more[k].narrow(b);
                    more[k].widen(b);
                }
                for (int j = 0; j < U; j++) v[j] += b[j];
                x[k].narrow(v);
                row_store<U>(r.sum + at, lane + k * LANES, x[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            if (lane + k * LANES >= n_own) continue;
            x[k].widen(v);
            for (int j = 0; j < U; j++) shares[k % SHARES] += RMS ? v[j] * v[j] : v[j];
        }
        C total = team_sum<LANES>(shares, slots, turn) / C(r.n);
        const C mean = RMS ? C(0) : total;
        if (!RMS) {
            C squares[SHARES] = {};
#pragma unroll
            for (int k = 0; k < OWN; k++) {
                if (lane + k * LANES >= n_own) continue;
                x[k].widen(v);
                for (int j = 0; j < U; j++) squares[k % SHARES] += (v[j] - mean) * (v[j] - mean);
            }
            total = team_sum<LANES>(squares, slots, turn) / C(r.n);
        }
        const C rstd = rsqrt_of(total + C(r.eps));
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            if (lane + k * LANES >= n_own) continue;
            x[k].widen(v);
            for (int j = 0; j < U; j++) v[j] = (v[j] - mean) * rstd;
            C w[U];
            if (r.weight) {
                row_load<U>(r.weight, lane + k * LANES).widen(w);
                for (int j = 0; j < U; j++) v[j] *= w[j];
            }
            if (r.bias) {
                row_load<U>(r.bias, lane + k * LANES).widen(w);
                for (int j = 0; j < U; j++) v[j] += w[j];
            }
            x[k].narrow(v);
            row_store<U>(r.y + at, lane + k * LANES, x[k]);
        }
        if (lane == 0 && row < r.n_rows) {
            if (!RMS) r.mean[row] = mean;
            r.rstd[row] = rstd;
        }
    }
}

/* ---- Gradients of rows that teams share ------------------------------------------------------------------ */

/* A team is as many threads as a row needs with OWN packs to each: whole warps, or half a warp more where that leaves
 * no fewer teams. A block is as many teams as fit, and two or three blocks share a multiprocessor. Memory is far
 * away: rows come by way of shared memory, where each thread copies its own packs, STAGES rows ahead. So a row under
 * way takes no registers, a thread waits for no other one to read it, and tens of kilobytes are on their way at any
 * time. Both sums of a row cross the team at once. */
template <int OWN> struct norm_team { static const int THREADS = OWN == 1 ? 384 : 512; };

struct team {
    int lane, index, threads, n_packs; /* thread of the team, team of the block, threads of a team, packs of a row */
    bool is_second, has_half;          /* of a pair; this thread's warp is shared with the other team of a pair */
};

/* Teams of whole warps and a half come in pairs, which share the warp in the middle: its upper half has the last packs
 * of the second team's row. So all of a row's other warps have the packs that they would have in a team alone, and the
 * row's sums have the same order. */
__device__ inline team team_of(int threads, int n_packs) {
    const int index = (int)threadIdx.x / threads, at = (int)threadIdx.x % threads;
    const bool is_second = threads % 32 && index % 2;
    const int lane = is_second ? (at + threads - 16) % threads : at;
    return {lane, index, threads, n_packs, is_second, threads % 32 && lane >= threads - 16};
}

enum { ROW_G, ROW_X, ROW_MORE, ROW_PARTS };

/* This thread's pack k of a part of a row in shared memory. */
template <class T, int OWN> __device__ inline row_pack<T> &staged(row_pack<T> *ring, int stage, int part, int k) {
    return ring[((stage * ROW_PARTS + part) * OWN + k) * blockDim.x + threadIdx.x];
}

/* 16 bytes of memory, to shared memory. */
__device__ inline void block_fetch(void *to, const void *from) {
#if __CUDA_ARCH__ >= 800
    copy_later<16>(to, from, true);
#else
    *(uint4 *)to = *(const uint4 *)from;
#endif
}
template <class T> __device__ inline void pack_fetch(row_pack<T> &to, const T *from) {
    for (int k = 0; k < (int)sizeof to; k += 16) block_fetch((char *)&to + k, (const char *)from + k);
}

/* place: of this thread's first element. */
template <class T, class W, int OWN>
__device__ inline void row_fetch(row_pack<T> *ring, int stage, const norm_backward_rows<T, W> &r, int64_t place,
                                 const team &me) {
#pragma unroll
    for (int k = 0; k < OWN; k++) {
        const int64_t from = place + k * me.threads * PACK;
        if (me.lane + k * me.threads >= me.n_packs) continue;
        pack_fetch(staged<T, OWN>(ring, stage, ROW_G, k), r.g + from);
        pack_fetch(staged<T, OWN>(ring, stage, ROW_X, k), r.x + from);
        if (r.g_sum) pack_fetch(staged<T, OWN>(ring, stage, ROW_MORE, k), r.g_sum + from);
    }
}

/* All threads of a team or of a pair, where that is more than a warp. */
__device__ inline void team_wait(const team &me) {
    const int is_pair = me.threads % 32 != 0;
    if (me.threads <= 32) __syncwarp();
    else asm volatile("bar.sync %0, %1;" ::"r"((me.index >> is_pair) + 1), "r"(me.threads << is_pair) : "memory");
}

/* Both sums over a team, to all of its threads, warp by warp in order. The slots are used in turn: a slot is written
 * again only after the barrier of the next sum. */
template <class C> __device__ inline void team_sums(C &a, C &b, C (*slots)[2], const team &me) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        if (distance == 16 && me.has_half) continue; /* the other half is another row */
        const C more_a = __shfl_xor_sync(0xFFFFFFFFu, a, distance), more_b = __shfl_xor_sync(0xFFFFFFFFu, b, distance);
        a += more_a;
        b += more_b;
    }
    if (me.threads <= 32) return;
    const int n_parts = (me.threads + 31) / 32, first = me.index * n_parts;
    if (me.lane % 32 == 0) {
        slots[first + me.lane / 32][0] = a;
        slots[first + me.lane / 32][1] = b;
    }
    team_wait(me);
    a = slots[first][0];
    b = slots[first][1];
    for (int k = 1; k < n_parts; k++) {
        a += slots[first + k][0];
        b += slots[first + k][1];
    }
}

/* Where the sums of runs go; NULL: not wanted. */
template <class C> struct norm_runs { C *dweight, *dbias, *dx; };

/* The teams' sums of n columns, which are in shared memory, added in order. */
template <class C> __device__ inline void teams_join(C *run, const C *joint, int n_teams, int n) {
    __syncthreads();
    for (int column = threadIdx.x; column < n; column += blockDim.x) {
        C sum = joint[column];
        for (int t = 1; t < n_teams; t++) sum += joint[t * n + column];
        run[column] = sum;
    }
    __syncthreads(); /* before the next sums */
}

/* The sums of one block, its teams' added in order, to its place among the runs. The teams' meet in shared memory, of
 * which the block has had its last use. */
template <int OWN, class C>
__device__ inline void block_sums_put(const C (&sums)[OWN][PACK], C *run, C *joint, int n_teams, const team &me) {
    const int n = me.n_packs * PACK;
    C *const to = n_teams == 1 ? run : joint + me.index * n;
#pragma unroll
    for (int k = 0; k < OWN; k++)
        for (int j = 0; j < PACK && me.lane + k * me.threads < me.n_packs; j++)
            to[(me.lane + k * me.threads) * PACK + j] = sums[k][j];
    if (n_teams > 1) teams_join(run, joint, n_teams, n);
}

/* dx; DROPS: with what dropout leaves of dx; SUMS: with the sums of its columns, or of dx's; and the sums
 * of run blockIdx.x where they are wanted. */
template <class T, class W, bool RMS, bool SUMS, bool DROPS, int OWN, int STAGES>
__global__ void __launch_bounds__(norm_team<OWN>::THREADS, OWN == 1 ? 2 : 1)
    norm_team_grads(norm_backward_rows<T, W> r, int team_threads, norm_runs<typename compute_type<T>::type> runs) {
    typedef typename compute_type<T>::type C;
    __shared__ C slots[2][norm_team<OWN>::THREADS / 16][2];
    extern __shared__ double2 shared[];
    row_pack<T> *const ring = (row_pack<T> *)shared;
    const team me = team_of(team_threads, (int)(r.n / PACK));
    const int n_teams = blockDim.x / team_threads;
    const int64_t run_rows = (r.n_rows + gridDim.x - 1) / gridDim.x, step = n_teams * r.n;
    const int64_t first = min(r.n_rows, blockIdx.x * run_rows), last = min(r.n_rows, first + run_rows);
    int64_t at = first + me.index, place = at * r.n + me.lane * PACK; /* of this thread's first element */
    front_wait();
    if (runs.dweight || runs.dbias || SUMS) next_begin(); /* norm_runs_add, which waits */
#pragma unroll
    for (int stage = 0; stage < STAGES; stage++) {
        if (at + stage * n_teams < last) row_fetch<T, W, OWN>(ring, stage, r, place + stage * step, me);
        copies_commit();
    }
    C dweight[OWN][PACK] = {}, dbias[OWN][PACK] = {}, dx_sums[OWN][PACK] = {}, w[OWN][PACK];
#pragma unroll
    for (int k = 0; k < OWN; k++) {
        for (int j = 0; j < PACK; j++) w[k][j] = 1;
        if (r.weight && me.lane + k * me.threads < me.n_packs) row_load(r.weight, me.lane + k * me.threads).widen(w[k]);
    }
    C mean = 0, rstd = at < last ? r.rstd[at] : C(0), next_mean = 0, next_rstd = 0;
    if (!RMS && at < last) mean = r.mean[at];
    /* The second team of a pair stays, without a row, until the first has had its last one. */
    for (int turn = 0, stage = 0; at - me.is_second < last; at += n_teams, place += step, turn ^= 1) {
        const int n_own = at < last ? me.n_packs : 0;
        if (at + n_teams < last) {
            if (!RMS) next_mean = r.mean[at + n_teams];
            next_rstd = r.rstd[at + n_teams];
        }
        uint32_t dropped[OWN]; /* drawn while the row is on its way */
#pragma unroll
        for (int k = 0; DROPS && k < OWN; k++) dropped[k] = dropped_bits<PACK>(r.drop, place + k * me.threads * PACK);
        copies_wait<STAGES - 1>();
        C sum_d = 0, sum_dh = 0, d[OWN][PACK], h[OWN][PACK];
        const auto terms_load = [&](int k) {
            staged<T, OWN>(ring, stage, ROW_G, k).widen(d[k]);
            staged<T, OWN>(ring, stage, ROW_X, k).widen(h[k]);
            for (int j = 0; j < PACK; j++) h[k][j] = RMS ? h[k][j] * rstd : (h[k][j] - mean) * rstd;
        };
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            if (me.lane + k * me.threads >= n_own) continue;
            terms_load(k);
            for (int j = 0; j < PACK; j++) {
                dweight[k][j] = fma(d[k][j], h[k][j], dweight[k][j]);
                if (!RMS) dbias[k][j] += d[k][j];
                d[k][j] *= w[k][j];
                if (!RMS) sum_d += d[k][j];
                sum_dh = fma(d[k][j], h[k][j], sum_dh);
            }
        }
        team_sums(sum_d, sum_dh, slots[turn], me);
        const C of_all = rstd / C(r.n), less = RMS ? C(0) : -sum_d * of_all, less_h = -sum_dh * of_all;
#pragma unroll
        for (int k = 0; k < OWN; k++) {
            if (me.lane + k * me.threads >= n_own) continue;
            const int64_t to = place + k * me.threads * PACK;
            if (OWN > 1) { /* registers hold the terms of one pack, not those of more */
                terms_load(k);
                for (int j = 0; j < PACK; j++) d[k][j] *= w[k][j];
            }
            row_pack<T> dx;
            for (int j = 0; j < PACK; j++) d[k][j] = fma(d[k][j], rstd, fma(h[k][j], less_h, less));
            dx.narrow(d[k]);
            if (r.g_sum) {
                dx.widen(d[k]);
                staged<T, OWN>(ring, stage, ROW_MORE, k).widen(h[k]);
                for (int j = 0; j < PACK; j++) d[k][j] += h[k][j];
                dx.narrow(d[k]);
            }
            row_store(r.dx + to, 0, dx);
            if (DROPS) {
                dx.widen(d[k]);
                drop_unit(r.drop, dropped[k], d[k]);
                dx.narrow(d[k]);
                row_store(r.dropped + to, 0, dx);
            }
            if (!SUMS) continue;
            dx.widen(d[k]);
            for (int j = 0; j < PACK; j++) dx_sums[k][j] += d[k][j];
        }
        if (at + STAGES * n_teams < last) row_fetch<T, W, OWN>(ring, stage, r, place + STAGES * step, me);
        copies_commit();
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        mean = next_mean;
        rstd = next_rstd;
    }
    copies_wait<0>();
    __syncthreads();
    C *const joint = (C *)shared;
    if (runs.dweight) block_sums_put<OWN>(dweight, runs.dweight + blockIdx.x * r.n, joint, n_teams, me);
    if (runs.dbias) block_sums_put<OWN>(dbias, runs.dbias + blockIdx.x * r.n, joint, n_teams, me);
    if (SUMS) block_sums_put<OWN>(dx_sums, runs.dx + blockIdx.x * r.n, joint, n_teams, me);
}

/* ---- Gradients of rows that begin anywhere --------------------------------------------------------------- */

/* Teams of whole warps. All threads of a team copy the 16 bytes at a time that hold a row, STAGES - 1 rows ahead, and
 * wait for each other. Then each has single columns, up to EACH and 32 apart, since warps have neighbouring ones: the
 * same ones of every row, so that where a row begins in memory changes no sum. Registers hold weights and sums only:
 * the terms of a row are made twice. */
enum { LINE_SHORT = 12, LINE_LONG = 24, LINE_AHEAD = 4, LINE_BYTES = 226 << 10 /* of shared memory */ };
template <class T, int EACH> struct norm_line {
    static const bool IS_SHORT = EACH == LINE_SHORT;
    static const int THREADS = IS_SHORT ? 384 : 512, BLOCKS = IS_SHORT ? 2 : 1;
    static const int STAGES = IS_SHORT || sizeof(T) == 2 ? 3 : 2;
};

/* Parts of a row in shared memory. */
template <class T, class W> __host__ __device__ inline int line_parts(const norm_backward_rows<T, W> &r) {
    return r.g_sum ? ROW_PARTS : ROW_MORE;
}

template <class T> __device__ inline void line_copy(uint4 *to, const T *line, int n, const team &me) {
    const uint4 *const from = (const uint4 *)(line - line_shift(line));
    const int n_packs = (int)line_packs(line, n);
    for (int i = me.lane; i < n_packs; i += me.threads) block_fetch(to + i, from + i);
}

/* use(which of a thread's n_own columns, g, h), a few at a time. */
template <int EACH, class T, class C, class F>
__device__ inline void terms_each(const T *g, const T *x, int n_own, C mean, C rstd, const F &use) {
#pragma unroll
    for (int first = 0; first < EACH; first += LINE_AHEAD) {
        const auto some = [&](int n) {
            T of_g[LINE_AHEAD], of_x[LINE_AHEAD];
            for (int j = 0; j < LINE_AHEAD && j < n; j++) {
                of_g[j] = g[(first + j) * 32];
                of_x[j] = x[(first + j) * 32];
            }
            for (int j = 0; j < LINE_AHEAD && j < n; j++)
                use(first + j, value_of<C>(of_g[j]), (value_of<C>(of_x[j]) - mean) * rstd);
        };
        if (n_own - first >= LINE_AHEAD) some(LINE_AHEAD); /* without a branch for each */
        else some(n_own - first);
    }
}

/* A team's rows in shared memory: STAGES of them, of which each part has room for part_packs. */
template <class T, class W> struct line_ring {
    const norm_backward_rows<T, W> &r;
    const team &me;
    uint4 *packs;
    int part_packs;

    __device__ uint4 *at(int stage, int which) const { return packs + (stage * line_parts(r) + which) * part_packs; }
    /* All threads of the team ask for their 16 bytes of a row. */
    __device__ void fetch(int stage, int64_t row) const {
        const int n = (int)r.n;
        line_copy(at(stage, ROW_G), r.g + row * n, n, me);
        line_copy(at(stage, ROW_X), r.x + row * n, n, me);
        if (r.g_sum) line_copy(at(stage, ROW_MORE), r.g_sum + row * n, n, me);
    }
    /* The part of a row, which is at `line` in memory too. */
    __device__ const T *part(int stage, int which, const T *line) const {
        return (const T *)at(stage, which) + line_shift(line);
    }
};

/* A block's sums of columns to its place among the runs; as block_sums_put. */
template <int EACH, class C>
__device__ inline void line_sums_put(const C (&sums)[EACH], C *run, C *joint, int n_teams, int n, int column, int n_own,
                                     const team &me) {
    C *const to = n_teams == 1 ? run : joint + me.index * n;
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (e < n_own) to[column + e * 32] = sums[e];
    if (n_teams > 1) teams_join(run, joint, n_teams, n);
}

/* As norm_team_grads, without the sums of dx's columns. part_packs: room for a part of a row. */
template <class T, class W, bool RMS, bool DROPS, int EACH>
__global__ void __launch_bounds__(norm_line<T, EACH>::THREADS, norm_line<T, EACH>::BLOCKS)
    norm_line_grads(norm_backward_rows<T, W> r, int team_threads, int part_packs,
                    norm_runs<typename compute_type<T>::type> runs) {
    typedef typename compute_type<T>::type C;
    const int STAGES = norm_line<T, EACH>::STAGES;
    __shared__ C slots[2][norm_line<T, EACH>::THREADS / 32][2];
    extern __shared__ double2 shared[];
    const team me = team_of(team_threads, 0);
    const int n = (int)r.n, n_teams = blockDim.x / team_threads;
    const int n_each = (n + me.threads - 1) / me.threads; /* of a thread */
    const int column = me.lane / 32 * 32 * n_each + me.lane % 32, n_own = max(0, min(n_each, (n - column + 31) / 32));
    const int64_t run_rows = (r.n_rows + gridDim.x - 1) / gridDim.x;
    const int64_t first = min(r.n_rows, blockIdx.x * run_rows), last = min(r.n_rows, first + run_rows);
    const line_ring<T, W> ring = {r, me, (uint4 *)shared + me.index * STAGES * line_parts(r) * part_packs, part_packs};
    const auto fetch = [&](int stage, int64_t row) {
        if (row < last) ring.fetch(stage, row);
        copies_commit();
    };
    int64_t at = first + me.index;
    front_wait();
    if (runs.dweight || runs.dbias) next_begin(); /* norm_runs_add, which waits */
    for (int stage = 0; stage < STAGES - 1; stage++) fetch(stage, at + stage * n_teams);
    C dweight[EACH] = {}, dbias[EACH] = {}, w[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) w[e] = r.weight && e < n_own ? value_of<C>(r.weight[column + e * 32]) : C(1);
    C mean = 0, rstd = at < last ? r.rstd[at] : C(0), next_mean = 0, next_rstd = 0;
    if (!RMS && at < last) mean = r.mean[at];
    for (int turn = 0, stage = 0; at < last; at += n_teams, turn ^= 1) {
        if (at + n_teams < last) {
            if (!RMS) next_mean = r.mean[at + n_teams];
            next_rstd = r.rstd[at + n_teams];
        }
        copies_wait<STAGES - 2>();
        team_wait(me); /* the row is there, and the one before has been used */
        fetch(stage ? stage - 1 : STAGES - 1, at + (STAGES - 1) * n_teams);
        const int64_t row = at * r.n, place = row + column;
        const T *const g = ring.part(stage, ROW_G, r.g + row) + column;
        const T *const x = ring.part(stage, ROW_X, r.x + row) + column;
        const T *const more = r.g_sum ? ring.part(stage, ROW_MORE, r.g_sum + row) + column : nullptr;
        C sum_d = 0, sum_dh = 0;
        terms_each<EACH>(g, x, n_own, mean, rstd, [&](int e, C of_g, C h) {
            const C d = of_g * w[e];
            dweight[e] = fma(of_g, h, dweight[e]);
            if (!RMS) dbias[e] += of_g;
            if (!RMS) sum_d += d;
            sum_dh = fma(d, h, sum_dh);
        });
        team_sums(sum_d, sum_dh, slots[turn], me);
        const C avg_d = sum_d / C(n), avg_dh = sum_dh / C(n);
        terms_each<EACH>(g, x, n_own, mean, rstd, [&](int e, C of_g, C h) {
            T dx = conversion<T>::from(rstd * (of_g * w[e] - avg_d - h * avg_dh));
            if (more) dx = conversion<T>::from(value_of<C>(dx) + value_of<C>(more[e * 32]));
            r.dx[place + e * 32] = dx;
            if (!DROPS) return;
            r.dropped[place + e * 32] = unit_dropped(r.drop, place + e * 32, unit<T, 1>{{dx}}).v[0];
        });
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        mean = next_mean;
        rstd = next_rstd;
    }
    copies_wait<0>();
    __syncthreads();
    C *const joint = (C *)shared;
    const int64_t run = blockIdx.x * r.n;
    if (runs.dweight) line_sums_put(dweight, runs.dweight + run, joint, n_teams, n, column, n_own, me);
    if (runs.dbias) line_sums_put(dbias, runs.dbias + run, joint, n_teams, n, column, n_own, me);
}

/* ---- Gradients of other rows ------------------------------------------------------------------------------ */

/* A warp has SEGMENT neighbouring columns: a thread a pack of them or, where rows are not aligned, PACK single ones.
 * They are PACK / U units of U elements, 32 units apart, from column segment_first on; those that begin before `end`
 * are there. */
template <int U> __device__ inline int64_t segment_first(int64_t segment) {
    return segment * SEGMENT + threadIdx.x % 32 * U;
}
template <int U> __device__ inline int segment_units(int64_t first, int64_t end, int most) {
    return (int)min((int64_t)most, max((end - first + 32 * U - 1) / (32 * U), (int64_t)0));
}

/* The sums of d and of d h over a row, or over one part of it. */
template <class C> struct alignas(2 * sizeof(C)) norm_row_sums { C d, dh; };

enum { SUM_WARPS = 8 };

/* A warp has one part of a row: whole segments, of which it loads AHEAD before it adds the first. */
template <class T, class W, bool RMS, int U>
__global__ void __launch_bounds__(32 * SUM_WARPS)
    norm_part_sums(norm_backward_rows<T, W> r, int64_t n_parts, norm_row_sums<typename compute_type<T>::type> *sums) {
    typedef typename compute_type<T>::type C;
    const int UNITS = PACK / U, AHEAD = U == 1 ? 1 : 8 / (int)sizeof(T);
    const int64_t n_segments = (r.n + SEGMENT - 1) / SEGMENT, n_all = r.n_rows * n_parts;
    const int64_t stride = (int64_t)gridDim.x * SUM_WARPS;
    for (int64_t at = blockIdx.x * (int64_t)SUM_WARPS + threadIdx.x / 32; at < n_all; at += stride) {
        const int64_t row = at / n_parts, part = at % n_parts, last = (part + 1) * n_segments / n_parts;
        const T *const row_g = r.g + row * r.n, *const row_x = r.x + row * r.n;
        const C mean = RMS ? C(0) : r.mean[row], rstd = r.rstd[row];
        C sum_d = 0, sum_dh = 0;
        for (int64_t segment = part * n_segments / n_parts; segment < last; segment += AHEAD) {
            const int64_t first = segment_first<U>(segment);
            const int n_own = segment_units<U>(first, min(r.n, last * SEGMENT), AHEAD * UNITS);
            row_pack<T, U> g[AHEAD * UNITS], x[AHEAD * UNITS];
            row_pack<W, U> w[AHEAD * UNITS];
#pragma unroll
            for (int k = 0; k < AHEAD * UNITS; k++) {
                if (k >= n_own) continue;
                g[k] = row_load<U>(row_g + first, 32 * k);
                x[k] = row_load<U>(row_x + first, 32 * k);
                if (r.weight) w[k] = row_load<U>(r.weight + first, 32 * k);
            }
#pragma unroll
            for (int k = 0; k < AHEAD * UNITS; k++) {
                if (k >= n_own) continue;
                C d[U], h[U], scale[U];
                g[k].widen(d);
                x[k].widen(h);
                if (r.weight) w[k].widen(scale);
                for (int j = 0; j < U; j++) {
                    if (r.weight) d[j] *= scale[j];
                    sum_d += d[j];
                    sum_dh += d[j] * ((h[j] - mean) * rstd);
                }
            }
        }
        sum_d = RMS ? C(0) : warp_reduce(sum_d, sum_of());
        sum_dh = warp_reduce(sum_dh, sum_of());
        if (threadIdx.x % 32 == 0) sums[at] = {sum_d, sum_dh};
    }
}

/* What all columns of a row share. */
template <class C> struct norm_row { C mean, rstd, avg_d, avg_dh; };

enum { GRAD_WARPS = 10, GRAD_BLOCKS = 264, GRAD_ROWS = 128, GRAD_AHEAD = 2, PART_LANES = 8 };

/* The n_here rows from `first` on, to shared memory: PART_LANES threads add the parts of one row. */
template <class T, class W, class C>
__device__ inline void rows_average(const norm_backward_rows<T, W> &r, const norm_row_sums<C> *sums, int n_parts,
                                    int64_t first, int n_here, norm_row<C> *rows) {
    const int lane = threadIdx.x % PART_LANES, at_once = blockDim.x / PART_LANES;
    for (int base = 0; base < n_here; base += at_once) {
        const int k = base + threadIdx.x / PART_LANES;
        const int64_t row = first + k;
        C d = 0, dh = 0;
        for (int part = lane; k < n_here && part < n_parts; part += PART_LANES) {
            const norm_row_sums<C> s = sums[row * n_parts + part];
            d += s.d;
            dh += s.dh;
        }
        for (int distance = PART_LANES / 2; distance > 0; distance /= 2) {
            d += __shfl_xor_sync(0xFFFFFFFFu, d, distance);
            dh += __shfl_xor_sync(0xFFFFFFFFu, dh, distance);
        }
        if (lane == 0 && k < n_here) rows[k] = {r.mean ? r.mean[row] : C(0), r.rstd[row], d / C(r.n), dh / C(r.n)};
    }
}

/* A unit's terms of the sums over rows. */
template <class C, int U> struct column_sums { C dweight[U], dbias[U], dx[U]; };

/* The unit at `place`: dx, what dropout leaves of it, and what it adds to the sums of its columns. */
template <bool RMS, bool DROPS, class T, class W, int U, class C>
__device__ inline void unit_grads(const norm_backward_rows<T, W> &r, int64_t place, const norm_row<C> &of_row,
                                  const row_pack<T, U> &of_g, const row_pack<T, U> &of_x, const row_pack<T, U> &of_more,
                                  const C (&w)[U], column_sums<C, U> &sums) {
    C g[U], h[U], more[U];
    unit<T, U> dx;
    of_g.widen(g);
    of_x.widen(h);
    if (r.g_sum) of_more.widen(more);
    for (int j = 0; j < U; j++) {
        h[j] = (h[j] - of_row.mean) * of_row.rstd;
        sums.dweight[j] += g[j] * h[j];
        if (!RMS) sums.dbias[j] += g[j];
        dx.v[j] = conversion<T>::from(of_row.rstd * (g[j] * w[j] - of_row.avg_d - h[j] * of_row.avg_dh));
        if (r.g_sum) dx.v[j] = conversion<T>::from(value_of<C>(dx.v[j]) + more[j]);
    }
    unit_store<U>(r.dx + place, 0, dx);
    if (DROPS) {
        dx = unit_dropped(r.drop, place, dx);
        unit_store<U>(r.dropped + place, 0, dx);
    }
    for (int j = 0; j < U; j++) sums.dx[j] += value_of<C>(dx.v[j]);
}

/* The sums that `of` finds in a thread's units, those of the block's row lanes added in order, to their place in
 * the block's run. */
template <int U, class C, class F>
__device__ inline void column_sums_put(F of, C *run, C (*joint)[SEGMENT], int tile_warps, int n_own) {
    const int warp = threadIdx.x / 32, n_lanes = blockDim.x / 32 / tile_warps;
    if (n_lanes > 1) {
        __syncthreads(); /* the sums before have been read */
#pragma unroll
        for (int k = 0; k < PACK / U; k++)
            for (int j = 0; j < U; j++) joint[warp][(threadIdx.x % 32 + 32 * k) * U + j] = of(k, j);
        __syncthreads();
    }
    if (warp >= tile_warps) return;
#pragma unroll
    for (int k = 0; k < PACK / U; k++) {
        if (k >= n_own) continue;
#pragma unroll
        for (int j = 0; j < U; j++) {
            C sum = of(k, j);
#pragma unroll 1
            for (int lane = 1; lane < n_lanes; lane++)
                sum += joint[warp + lane * tile_warps][(threadIdx.x % 32 + 32 * k) * U + j];
            run[32 * k * U + j] = sum;
        }
    }
}

/* dx and the sums of run blockIdx.y, for the columns of tile blockIdx.x, a segment for each of tile_warps warps. The
 * block's other warps have the same columns in other rows: every so many warps are a lane of rows. */
template <class T, class W, bool RMS, bool DROPS, int U>
__global__ void __launch_bounds__(32 * GRAD_WARPS, sizeof(T) < 8 ? 2 : 1)
    norm_column_grads(norm_backward_rows<T, W> r, const norm_row_sums<typename compute_type<T>::type> *sums,
                      int n_parts, int tile_warps, norm_runs<typename compute_type<T>::type> runs) {
    typedef typename compute_type<T>::type C;
    const int UNITS = PACK / U;
    __shared__ norm_row<C> rows[GRAD_ROWS];
    __shared__ C joint[GRAD_WARPS][SEGMENT];
    const int warp = threadIdx.x / 32, n_lanes = blockDim.x / 32 / tile_warps;
    const int64_t first = segment_first<U>(blockIdx.x * (int64_t)tile_warps + warp % tile_warps);
    const int n_own = segment_units<U>(first, r.n, UNITS);
    const int64_t run_rows = (r.n_rows + gridDim.y - 1) / gridDim.y;
    const int64_t first_row = min(r.n_rows, blockIdx.y * run_rows), last_row = min(r.n_rows, first_row + run_rows);
    column_sums<C, U> own[UNITS] = {};
    C w[UNITS][U];
#pragma unroll
    for (int k = 0; k < UNITS; k++)
        for (int j = 0; j < U; j++)
            w[k][j] = r.weight && k < n_own ? value_of<C>(r.weight[first + 32 * k * U + j]) : C(1);
    for (int64_t base = first_row; base < last_row; base += GRAD_ROWS) {
        const int n_here = (int)min((int64_t)GRAD_ROWS, last_row - base);
        __syncthreads(); /* the rows before have been used */
        rows_average(r, sums, n_parts, base, n_here, rows);
        __syncthreads();
        for (int at = warp / tile_warps; at < n_here; at += n_lanes * GRAD_AHEAD) {
            row_pack<T, U> g[GRAD_AHEAD][UNITS], x[GRAD_AHEAD][UNITS], more[UNITS];
#pragma unroll
            for (int a = 0; a < GRAD_AHEAD; a++) {
                const int64_t place = (base + at + a * n_lanes) * r.n + first;
                const int n_there = at + a * n_lanes < n_here ? n_own : 0;
#pragma unroll
                for (int k = 0; k < UNITS; k++) {
                    if (k >= n_there) continue;
                    g[a][k] = row_load<U>(r.g + place, 32 * k);
                    x[a][k] = row_load<U>(r.x + place, 32 * k);
                }
            }
#pragma unroll
            for (int a = 0; a < GRAD_AHEAD; a++) {
                if (at + a * n_lanes >= n_here) continue;
                const int64_t place = (base + at + a * n_lanes) * r.n + first;
                const norm_row<C> of_row = rows[at + a * n_lanes];
#pragma unroll
                for (int k = 0; k < UNITS; k++)
                    if (r.g_sum && k < n_own) more[k] = row_load<U>(r.g_sum + place, 32 * k);
#pragma unroll
                for (int k = 0; k < UNITS; k++)
                    if (k < n_own)
                        unit_grads<RMS, DROPS>(r, place + 32 * k * U, of_row, g[a][k], x[a][k], more[k], w[k], own[k]);
            }
        }
    }
    const auto put = [&](auto of, C *results) {
        if (results) column_sums_put<U>(of, results + blockIdx.y * r.n + first, joint, tile_warps, n_own);
    };
    put([&](int k, int j) { return own[k].dweight[j]; }, runs.dweight);
    put([&](int k, int j) { return own[k].dbias[j]; }, runs.dbias);
    put([&](int k, int j) { return own[k].dx[j]; }, runs.dx);
}

/* ---- Launching ---------------------------------------------------------------------------------------- */

struct rows {
    int64_t n_rows, n;
};
static rows rows_of(const tl_operand *x) {
    const int64_t n = x->rank ? x->shape[x->rank - 1] : 1;
    return {n ? operand_numel(x) / n : 0, n};
}

template <class T, class W, bool RMS, int U, int LANES, int OWN>
static bool team_launch(const tl_kernel_args *args, const norm_forward_rows<T, W> &r) {
    if (r.n / U > row_team<LANES, OWN>::UNITS) return false;
    auto *const kernel = norm_team_rows<T, W, RMS, U, LANES, OWN>;
    static const bool is_early = waits_for_front(kernel);
    const int64_t rows = row_team<LANES, OWN>::TEAMS; /* of a block */
    launch_early(args, kernel, is_early, capped((r.n_rows + rows - 1) / rows), 32 * WARPS, 0, r);
    return true;
}

/* The smallest team that holds a row; false: none does. */
template <class T, class W, bool RMS>
static bool team_forward(const tl_kernel_args *args, const norm_forward_rows<T, W> &r) {
    return team_launch<T, W, RMS, PACK, 16, 3>(args, r) || team_launch<T, W, RMS, PACK, 32, 4>(args, r) ||
           team_launch<T, W, RMS, PACK, 64, 4>(args, r) || team_launch<T, W, RMS, PACK, 256, 4>(args, r);
}

/* The same of rows of other lengths, in units of U elements. */
template <class T, class W, bool RMS, int U>
static bool unit_forward(const tl_kernel_args *args, const norm_forward_rows<T, W> &r) {
    return team_launch<T, W, RMS, U, 32, 8 / U>(args, r) || team_launch<T, W, RMS, U, 32, 32 / U>(args, r) ||
           team_launch<T, W, RMS, U, 256, 16 / U>(args, r) || team_launch<T, W, RMS, U, 256, 32 / U>(args, r);
}

/* Returns the number of runs; 0: the device has less shared memory than this takes. */
template <class T, class W, bool RMS, bool SUMS, bool DROPS, int OWN, int STAGES, class C>
static int team_backward_start(const tl_kernel_args *args, const norm_backward_rows<T, W> &r,
                               const norm_runs<C> &runs) {
    const int most = norm_team<OWN>::THREADS, needed = (int)((r.n / PACK + OWN - 1) / OWN);
    const int whole = (needed + 31) / 32 * 32, halves = (needed + 15) / 16 * 16;
    const bool are_three = OWN == 1 && whole > most / 3; /* blocks of a multiprocessor */
    const bool is_alone = OWN > 1 || are_three;          /* a team of its block */
    const int n_pairs = most / halves / 2;
    const int team_threads = !is_alone && 2 * n_pairs >= most / whole ? halves : whole;
    const int n_teams = is_alone ? 1 : most / team_threads;
    const int n_runs = are_three ? NORM_RUNS : NORM_RUNS / 3 * 2, threads = team_threads * n_teams;
    const size_t ring_bytes = (size_t)threads * STAGES * ROW_PARTS * OWN * sizeof(row_pack<T>);
    static_assert(STAGES * ROW_PARTS * sizeof(row_pack<T>) >= PACK * sizeof(C), "teams' sums fit where rows were");
    auto *const kernel = norm_team_grads<T, W, RMS, SUMS, DROPS, OWN, STAGES>;
    static const bool is_early = waits_for_front(kernel);
    if (!shared_memory_try(kernel, ring_bytes)) return 0;
    launch_early(args, kernel, is_early, (unsigned)n_runs, threads, ring_bytes, r, team_threads, runs);
    return n_runs;
}

/* A block's rows in shared memory are at most 96 KB. */
template <class T, class W, bool RMS, bool SUMS, bool DROPS, class C>
static int team_backward_of(const tl_kernel_args *args, const norm_backward_rows<T, W> &r, const norm_runs<C> &runs) {
    const int64_t n_packs = r.n / PACK;
    if (n_packs > NORM_TEAM_LENGTH / PACK) return 0;
    if (n_packs <= 256)
        return team_backward_start < T, W, RMS, SUMS, DROPS, 1, sizeof(T) == 2 ? 4 : 2 > (args, r, runs);
    if constexpr (sizeof(T) > 2)
        if (n_packs > 512) return team_backward_start<T, W, RMS, SUMS, DROPS, 2, 1>(args, r, runs);
    return team_backward_start<T, W, RMS, SUMS, DROPS, 2, 2>(args, r, runs);
}

template <class T, class W, bool RMS, class C>
static int team_backward(const tl_kernel_args *args, const norm_backward_rows<T, W> &r, const norm_runs<C> &runs) {
    if (r.dropped)
        return runs.dx ? team_backward_of<T, W, RMS, true, true>(args, r, runs)
                       : team_backward_of<T, W, RMS, false, true>(args, r, runs);
    return runs.dx ? team_backward_of<T, W, RMS, true, false>(args, r, runs)
                   : team_backward_of<T, W, RMS, false, false>(args, r, runs);
}

/* As team_backward_start. There must be room for g_sum in any case: it does not decide how rows are summed. */
template <class T, class W, bool RMS, bool DROPS, int EACH, class C>
static int line_backward_start(const tl_kernel_args *args, const norm_backward_rows<T, W> &r,
                               const norm_runs<C> &runs) {
    typedef norm_line<T, EACH> lines;
    const int needed = (int)((r.n + EACH - 1) / EACH + 31) / 32 * 32;
    const int n_teams = lines::IS_SHORT ? lines::THREADS / needed : 1, team_threads = lines::THREADS / n_teams;
    const int pack = line_pack<T>::N, part_packs = ((int)r.n + 2 * pack - 2) / pack; /* wherever it begins */
    const size_t part_bytes = (size_t)n_teams * lines::STAGES * part_packs * 16, most_bytes = ROW_PARTS * part_bytes;
    const int64_t most = NORM_RUNS / 3 * lines::BLOCKS, n_runs = min(most, (r.n_rows + n_teams - 1) / n_teams);
    const int n_blocks = n_runs ? (int)n_runs : 1;
    auto *const kernel = norm_line_grads<T, W, RMS, DROPS, EACH>;
    static const bool is_early = waits_for_front(kernel);
    if (most_bytes > LINE_BYTES) return 0;
    if (!shared_memory_try(kernel, most_bytes)) return 0;
    launch_early(args, kernel, is_early, (unsigned)n_blocks, team_threads * n_teams, line_parts(r) * part_bytes, r,
                 team_threads, part_packs, runs);
    return n_blocks;
}

template <class T, class W, bool RMS, bool DROPS, class C>
static int line_backward_of(const tl_kernel_args *args, const norm_backward_rows<T, W> &r, const norm_runs<C> &runs) {
    if (r.n <= LINE_SHORT * norm_line<T, LINE_SHORT>::THREADS)
        return line_backward_start<T, W, RMS, DROPS, LINE_SHORT>(args, r, runs);
    if (r.n <= LINE_LONG * norm_line<T, LINE_LONG>::THREADS)
        return line_backward_start<T, W, RMS, DROPS, LINE_LONG>(args, r, runs);
    return 0;
}

template <class T, class W, bool RMS, class C>
static int line_backward(const tl_kernel_args *args, const norm_backward_rows<T, W> &r, const norm_runs<C> &runs) {
    if (runs.dx) return 0; /* asked for only where rows are packs */
    return r.dropped ? line_backward_of<T, W, RMS, true>(args, r, runs)
                     : line_backward_of<T, W, RMS, false>(args, r, runs);
}

/* As many runs as occupy the device. Returns their number. */
template <class T, class W, bool RMS, int U, class C>
static int column_backward(const norm_backward_rows<T, W> &r, const norm_runs<C> &runs, norm_row_sums<C> *sums,
                           cudaStream_t stream) {
    const int64_t n_parts = norm_parts(r.n_rows, r.n), n_segments = (r.n + SEGMENT - 1) / SEGMENT;
    const int64_t n_tiles = (n_segments + GRAD_WARPS - 1) / GRAD_WARPS;
    const int tile_warps = (int)((n_segments + n_tiles - 1) / n_tiles), n_lanes = GRAD_WARPS / tile_warps;
    const int64_t most = max((int64_t)1, min((int64_t)NORM_RUNS, GRAD_BLOCKS / n_tiles));
    const int64_t run_rows = max((int64_t)1, (r.n_rows + most - 1) / most);
    const int n_runs = (int)max((int64_t)1, (r.n_rows + run_rows - 1) / run_rows);
    if (r.n_rows > 0)
        norm_part_sums<T, W, RMS, U>
            <<<capped((r.n_rows * n_parts + SUM_WARPS - 1) / SUM_WARPS), 32 * SUM_WARPS, 0, stream>>>(r, n_parts, sums);
    auto *const kernel = r.dropped ? norm_column_grads<T, W, RMS, true, U> : norm_column_grads<T, W, RMS, false, U>;
    const dim3 grid((unsigned)n_tiles, (unsigned)n_runs);
    kernel<<<grid, 32 * tile_warps * n_lanes, 0, stream>>>(r, sums, (int)n_parts, tile_warps, runs);
    return n_runs;
}

/* Operands before and after the row's own: with a residual, x comes with it, sum before y, and g_sum after g. */
template <class T, class W, bool RMS, bool ADDS> static bool norm_forward(const tl_kernel_args *args) {
    typedef typename compute_type<T>::type C;
    const rows s = rows_of(&args->in[0]);
    const tl_operand *in = args->in + 1 + ADDS, *out = args->out + ADDS;
    const int n_more = args->n_in - 1 - ADDS;
    const struct attr_norm *const attr = (const struct attr_norm *)args->attr;
    const norm_forward_rows<T, W> r = {(const T *)args->in[0].data,
                                       ADDS ? (const T *)args->in[1].data : nullptr,
                                       n_more > 0 ? (const W *)in[0].data : nullptr,
                                       n_more > 1 ? (const W *)in[1].data : nullptr,
                                       ADDS ? (T *)args->out[0].data : nullptr,
                                       (T *)out[0].data,
                                       RMS ? nullptr : (C *)out[1].data,
                                       (C *)out[RMS ? 1 : 2].data,
                                       s.n_rows,
                                       s.n,
                                       attr->eps,
                                       dropout_draws_of(attr->dropout, attr->generator)};
    if (s.n_rows == 0) return true;
    const void *const addresses[] = {r.x, r.residual, r.weight, r.bias, r.sum, r.y};
    const unsigned blocks = capped(s.n_rows);
    const bool packs = rows_are_packs(s.n, 6, addresses), pairs = rows_are_units(2, s.n, 6, addresses);
    if constexpr (sizeof(T) < 8)
        if (packs   ? team_forward<T, W, RMS>(args, r)
            : pairs ? unit_forward<T, W, RMS, 2>(args, r)
                    : unit_forward<T, W, RMS, 1>(args, r))
            return true;
    if (packs) norm_rows<T, W, RMS, PACK><<<blocks, threads_for_row(s.n / 2), 0, stream_of(args)>>>(r);
    else if (pairs) norm_rows<T, W, RMS, 2><<<blocks, threads_for_row(s.n), 0, stream_of(args)>>>(r);
    else norm_rows<T, W, RMS, 1><<<blocks, threads_for_row(s.n), 0, stream_of(args)>>>(r);
    return true;
}

static bool workspace_has(const tl_kernel_args *args, size_t need) {
    if (args->workspace_bytes >= need) return true;
    snprintf(args->error, CUDA_ERROR_BYTES, "%s: needs %zu bytes of workspace, has %zu", args->op, need,
             args->workspace_bytes);
    return false;
}

template <class T, class W, bool RMS, bool ADDS> static bool norm_backward(const tl_kernel_args *args) {
    typedef typename compute_type<T>::type C;
    const rows s = rows_of(&args->in[0]);
    const tl_operand *in = args->in + 1 + ADDS; /* x, [mean,] rstd [, weight] */
    const int at_weight = RMS ? 2 : 3;
    const bool has_weight = args->n_in - 1 - ADDS > at_weight;
    const struct attr_norm *const attr = (const struct attr_norm *)args->attr;
    const int n_like_x = attr->dropout > 0 ? 2 : 1;
    const norm_backward_rows<T, W> r = {(const T *)args->in[0].data,
                                        ADDS ? (const T *)args->in[1].data : nullptr,
                                        (const T *)in[0].data,
                                        RMS ? nullptr : (const C *)in[1].data,
                                        (const C *)in[RMS ? 1 : 2].data,
                                        has_weight ? (const W *)in[at_weight].data : nullptr,
                                        (T *)args->out[0].data,
                                        n_like_x > 1 ? (T *)args->out[1].data : nullptr,
                                        s.n_rows,
                                        s.n,
                                        dropout_draws_of(attr->dropout, attr->generator)};
    const cudaStream_t stream = stream_of(args);
    const void *const addresses[] = {r.g, r.g_sum, r.x, r.weight, r.dx, r.dropped};
    const bool packs = rows_are_packs(s.n, 6, addresses);
    const bool gives_sums = s.n > 0 && attr->gives_sums;
    const int n_sums = s.n > 0 ? args->n_out - n_like_x : 0;
    const int64_t each = NORM_RUNS * s.n, n_row_sums = s.n_rows * norm_parts(s.n_rows, s.n);
    if (!workspace_has(args, (size_t)(n_sums * each + 2 * n_row_sums) * sizeof(C))) return false;
    if (s.n == 0) return true;
    C *const first = (C *)args->workspace;
    const norm_runs<C> runs = {n_sums > gives_sums ? first : nullptr, n_sums - gives_sums > 1 ? first + each : nullptr,
                               gives_sums ? first + (n_sums - 1) * each : nullptr};
    int n_runs = 0;
    if constexpr (sizeof(T) < 8)
        n_runs = packs ? team_backward<T, W, RMS>(args, r, runs) : line_backward<T, W, RMS>(args, r, runs);
    norm_row_sums<C> *const row_sums = (norm_row_sums<C> *)(first + n_sums * each); /* where no team has the rows */
    if (!n_runs)
        n_runs = packs ? column_backward<T, W, RMS, PACK>(r, runs, row_sums, stream)
                       : column_backward<T, W, RMS, 1>(r, runs, row_sums, stream);
    if (!n_sums) return true;
    static const bool is_early = waits_for_front(norm_runs_add<C>);
    norm_sums<C> join = {first, {}, {}, s.n, n_runs, n_sums};
    for (int j = 0; j < n_sums; j++) {
        join.out[j] = args->out[j + n_like_x].data;
        join.dtype[j] = args->out[j + n_like_x].dtype;
    }
    launch_early(args, norm_runs_add<C>, is_early, (unsigned)((s.n + 31) / 32 * n_sums), 32 * ADDERS, 0, join);
    return true;
}

/* Norms with a residual (ADDS) have their operands in one dtype too: sum and g_sum are x's. */
template <bool IS_RMS, bool ADDS> struct forward {
    template <class T, class W> static bool run(const tl_kernel_args *args) {
        return norm_forward<T, W, IS_RMS, ADDS>(args);
    }
};
template <bool IS_RMS, bool ADDS> struct backward {
    template <class T, class W> static bool run(const tl_kernel_args *args) {
        return norm_backward<T, W, IS_RMS, ADDS>(args);
    }
};

/* x (and g, y, dx) in one dtype; weights in the same or in f32. */
template <class PASS> static bool norm_dispatch(const tl_kernel_args *args, int at_x, int at_weight) {
    const tl_dtype t = args->in[at_x].dtype;
    const tl_dtype w = args->n_in > at_weight ? args->in[at_weight].dtype : t;
    if (args->out[0].dtype != t || args->in[0].dtype != t)
        return cuda_refuse_dtype(args, args->in[0].dtype != t ? args->in[0].dtype : args->out[0].dtype);
    if (t == TL_F64 && w == TL_F64) return PASS::template run<double, double>(args);
    if (t == TL_F32 && w == TL_F32) return PASS::template run<float, float>(args);
    if (t == TL_BF16 && w == TL_BF16) return PASS::template run<bf16, bf16>(args);
    if (t == TL_BF16 && w == TL_F32) return PASS::template run<bf16, float>(args);
    if (t == TL_F16 && w == TL_F16) return PASS::template run<f16, f16>(args);
    if (t == TL_F16 && w == TL_F32) return PASS::template run<f16, float>(args);
    return cuda_refuse_dtype(args, w);
}

extern "C" {

bool cuda_layer_norm(const tl_kernel_args *args) { return norm_dispatch<forward<false, false>>(args, 0, 1); }
bool cuda_layer_norm_grad(const tl_kernel_args *args) { return norm_dispatch<backward<false, false>>(args, 1, 4); }
bool cuda_rms_norm(const tl_kernel_args *args) { return norm_dispatch<forward<true, false>>(args, 0, 1); }
bool cuda_rms_norm_grad(const tl_kernel_args *args) { return norm_dispatch<backward<true, false>>(args, 1, 3); }
bool cuda_add_layer_norm(const tl_kernel_args *args) { return norm_dispatch<forward<false, true>>(args, 1, 2); }
bool cuda_add_layer_norm_grad(const tl_kernel_args *args) { return norm_dispatch<backward<false, true>>(args, 2, 5); }
bool cuda_add_rms_norm(const tl_kernel_args *args) { return norm_dispatch<forward<true, true>>(args, 1, 2); }
bool cuda_add_rms_norm_grad(const tl_kernel_args *args) { return norm_dispatch<backward<true, true>>(args, 2, 4); }

} /* extern "C" */

/* gpu.cpp: the threads of a block, or of a cluster of blocks, as coroutines of one thread of the host. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "base/poison.h"
#include "gpu.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
int gpu_thread, gpu_rank;

namespace {

enum { STACK_BYTES = 256 << 10, SHARED_BYTES = 228 << 10, MOST_THREADS = 1024, MOST_RANKS = 8 };
static_assert((int)SHARED_BYTES <= (int)GPU_ROOM, "a block's own addresses");
alignas(1024) char rooms[MOST_RANKS][GPU_ROOM];

/* A place where some wait for n others. `turn` is how often it was left. */
struct meeting {
    int n_here = 0, brought = 0, sum = 0;
    uint64_t turn = 0;
};
struct warp_meeting {
    unsigned mask = 0, here = 0;
    uint64_t turn = 0;
    gpu_lanes lanes, last;
};

typedef std::function<void()> work;

struct coroutine {
    std::unique_ptr<char[]> stack;
    jmp_buf beginning, place;
    bool is_running = false;                         /* it has a thread, which has not ended */
    std::deque<std::vector<work>> groups[GPU_WORKS]; /* that are not done; the last one is not committed yet */
};

/* A block that runs. */
struct block {
    uint3 index;
    int n_left = 0;
    meeting all;
    std::map<int, meeting> of_barrier, of_warpgroup;
    std::vector<std::deque<warp_meeting>> of_warp;
};

/* AddressSanitizer has to know which stack is used. Before a thread of the host goes on to another, and after. */
struct stack {
    const void *bottom;
    size_t bytes;
} host_stack;
void stack_leave(const stack &next) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(nullptr, next.bottom, next.bytes);
#else
    (void)next;
#endif
}
void stack_enter(stack *last) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, last ? &last->bottom : nullptr, last ? &last->bytes : nullptr);
#else
    (void)last;
#endif
}

std::deque<coroutine> coroutines; /* whose addresses stay; those of a block one after the other */
int current;                      /* of them */
jmp_buf scheduler;
uint64_t n_events; /* whatever may let a thread that waits go on */
const std::function<void()> *body;
std::vector<block> blocks; /* of the cluster */
int n_left;                /* threads of the cluster */
int wanted_ranks;          /* of a cluster, as the kernel says */
meeting of_cluster;
std::vector<work> much_later; /* the newest is done first */
ucontext_t origin, unused;

block &own_block() { return blocks[(size_t)gpu_rank]; }
coroutine &own_coroutine() { return coroutines[(size_t)current]; }

void meeting_leave(meeting &m) {
    n_events++;
    m.sum = m.brought;
    m.n_here = m.brought = 0;
    m.turn++;
}

/* The last of n who arrives lets all go on. */
void meeting_arrive(meeting &m, int n) {
    if (++m.n_here == n) meeting_leave(m);
}
void meeting_wait(meeting &m, int n) {
    const uint64_t turn = m.turn;
    meeting_arrive(m, n);
    while (m.turn == turn) gpu_turn();
}

/* What a thread still writes when it ends would be lost. */
void work_end() {
    for (int kind = GPU_STORES; kind < GPU_WORKS; kind++)
        for (const std::vector<work> &group : own_coroutine().groups[kind])
            if (!group.empty()) gpu_unknown("a thread that ends before its work is done");
    for (auto &groups : own_coroutine().groups) groups.clear();
}

/* A coroutine never returns: it waits for the thread of the next block. */
void coroutine_run() {
    for (;;) {
        if (_setjmp(own_coroutine().beginning) == 0) (*body)();
        work_end();
        own_coroutine().is_running = false;
        block &own = own_block();
        own.n_left--;
        n_left--;
        n_events++;
        if (own.all.n_here > 0 && own.all.n_here == own.n_left) meeting_leave(own.all);
        if (of_cluster.n_here > 0 && of_cluster.n_here == n_left) meeting_leave(of_cluster);
        gpu_turn();
    }
}

void to_scheduler() {
    stack_leave(host_stack);
    _longjmp(scheduler, 1);
}

void coroutine_new() {
    coroutines.emplace_back();
    coroutine &c = coroutines.back();
    c.stack.reset(new char[STACK_BYTES]);
    getcontext(&origin);
    origin.uc_stack.ss_sp = c.stack.get();
    origin.uc_stack.ss_size = STACK_BYTES;
    origin.uc_link = nullptr;
    makecontext(
        &origin,
        [] {
            stack_enter(&host_stack);
            if (_setjmp(coroutines.back().place) == 0) to_scheduler();
            stack_enter(nullptr);
            coroutine_run();
        },
        0);
    if (_setjmp(scheduler) == 0) {
        stack_leave({c.stack.get(), STACK_BYTES});
        swapcontext(&unused, &origin);
    }
    stack_enter(nullptr);
}

void coroutine_resume(int rank, int i, int n_threads) {
    const unsigned at = (unsigned)i, x = blockDim.x, y = blockDim.y;
    current = rank * n_threads + i;
    gpu_rank = rank;
    gpu_thread = i;
    blockIdx = own_block().index;
    threadIdx = {at % x, at / x % y, at / x / y};
    if (_setjmp(scheduler) == 0) {
        stack_leave({own_coroutine().stack.get(), STACK_BYTES});
        _longjmp(own_coroutine().place, 1);
    }
    stack_enter(nullptr);
}

/* Every thread gets a turn, until all have ended, or nothing changes any more. The blocks are those from `first` on,
 * side by side. */
void cluster_run(uint3 first, int n_ranks, int n_threads) {
    blocks.assign((size_t)n_ranks, block());
    of_cluster = meeting();
    n_left = n_ranks * n_threads;
    for (int rank = 0; rank < n_ranks; rank++) {
        block &b = blocks[(size_t)rank];
        b.index = {first.x + (unsigned)rank, first.y, first.z};
        b.n_left = n_threads;
        b.of_warp.assign((size_t)(n_threads + 31) / 32, {});
    }
    for (int i = 0; i < n_left; i++) coroutines[(size_t)i].is_running = true;
    while (n_left > 0 && wanted_ranks == n_ranks) {
        const uint64_t before = n_events;
        for (int k = 0; k < n_ranks * n_threads && wanted_ranks == n_ranks; k++) {
            const int at = gpu_is_late ? n_ranks * n_threads - 1 - k : k;
            if (coroutines[(size_t)at].is_running) coroutine_resume(at / n_threads, at % n_threads, n_threads);
        }
        if (n_events != before) continue;
        if (much_later.empty()) gpu_unknown("a block whose threads wait for each other in vain");
        const work newest = much_later.back();
        much_later.pop_back();
        newest();
    }
    if (!much_later.empty()) gpu_unknown("a block that ends before its tiles are there");
}

const float *halves_make() {
    float *const all = new float[1 << 16];
    for (int i = 0; i < 1 << 16; i++) all[i] = __half2float(gpu_of_bits<__half>((uint64_t)i));
    return all;
}

} /* namespace */

const float *const gpu_halves_of = halves_make();
const bool gpu_is_late = getenv("CUDA_ON_CPU") && strstr(getenv("CUDA_ON_CPU"), "late");

void gpu_turn(void) {
    if (_setjmp(own_coroutine().place) == 0) to_scheduler();
    stack_enter(nullptr);
}
void gpu_changed(void) { n_events++; }

void gpu_later(gpu_work kind, const work &one) {
    auto &groups = own_coroutine().groups[kind];
    if (groups.empty()) groups.emplace_back();
    groups.back().push_back(one);
}
void gpu_commit(gpu_work kind) {
    auto &groups = own_coroutine().groups[kind];
    if (!gpu_is_late) return;
    if (groups.empty()) groups.emplace_back();
    groups.emplace_back();
}
void gpu_finish(gpu_work kind, int n_pending) {
    auto &groups = own_coroutine().groups[kind];
    while ((int)groups.size() > n_pending + 1) {
        for (const work &one : groups.front()) one();
        groups.pop_front();
    }
}
void gpu_much_later(const work &one) { much_later.push_back(one); }

/* A kernel says how many blocks a cluster has when its first thread begins, which then begins again. */
void gpu_cluster(int n) {
    if ((int)blocks.size() == n) return;
    if (n > MOST_RANKS || gridDim.x % (unsigned)n) gpu_unknown("a launch that a GPU would refuse");
    wanted_ranks = n;
    _longjmp(own_coroutine().beginning, 1);
}

void gpu_launch(dim3 grid, dim3 threads, size_t shared_bytes, const std::function<void()> &kernel) {
    const int n = (int)(threads.x * threads.y * threads.z);
    if (n < 1 || n > MOST_THREADS || grid.x * grid.y * grid.z < 1 || shared_bytes > SHARED_BYTES)
        gpu_unknown("a launch that a GPU would refuse");
    body = &kernel;
    blockDim = threads;
    gridDim = grid;
    wanted_ranks = 1;
    for (char(&room)[GPU_ROOM] : rooms) {
        UNPOISON(room, shared_bytes);
        POISON(room + shared_bytes, GPU_ROOM - shared_bytes); /* what the launch did not ask for */
    }
    uint3 at;
    for (at.z = 0; at.z < grid.z; at.z++)
        for (at.y = 0; at.y < grid.y; at.y++)
            for (at.x = 0; at.x < grid.x;) {
                const int n_ranks = wanted_ranks;
                while ((int)coroutines.size() < n_ranks * n) coroutine_new();
                cluster_run(at, n_ranks, n);
                if (wanted_ranks == n_ranks) at.x += (unsigned)n_ranks;
            }
}

void *gpu_dynamic_shared(void) { return rooms[gpu_rank]; }
uint32_t gpu_shared_address(const void *p) { return (uint32_t)((const char *)p - rooms[0]); }
char *gpu_shared_place(uint32_t address) { return rooms[0] + (int32_t)address; }

void gpu_unknown(const char *what) {
    fprintf(stderr, "cuda_on_cpu: %s is not known here\n", what);
    abort();
}

int gpu_block_wait(int brought) {
    block &own = own_block();
    own.all.brought += brought;
    meeting_wait(own.all, own.n_left);
    return own.all.sum;
}
void gpu_barrier_wait(int barrier, int n) { meeting_wait(own_block().of_barrier[barrier], n); }
void gpu_barrier_arrive(int barrier, int n) { meeting_arrive(own_block().of_barrier[barrier], n); }
void gpu_warpgroup_wait(void) { meeting_wait(own_block().of_warpgroup[gpu_thread / 128], 128); }
void gpu_cluster_wait(void) { meeting_wait(of_cluster, n_left); }

const gpu_lanes &gpu_warp_wait(unsigned mask, uint64_t brought) {
    std::deque<warp_meeting> &meetings = own_block().of_warp[(size_t)gpu_thread / 32];
    if (!(mask >> gpu_lane() & 1)) gpu_unknown("an exchange with a mask that leaves the lane itself out");
    warp_meeting *m = nullptr;
    for (warp_meeting &each : meetings)
        if (each.mask == mask) m = &each;
    if (!m) {
        meetings.emplace_back();
        m = &meetings.back();
        m->mask = mask;
    }
    const uint64_t turn = m->turn;
    m->lanes.of[gpu_lane()] = brought;
    m->here |= 1u << gpu_lane();
    if (m->here == mask) {
        m->last = m->lanes;
        m->here = 0;
        m->turn++;
        n_events++;
    }
    while (m->turn == turn) gpu_turn();
    return m->last;
}

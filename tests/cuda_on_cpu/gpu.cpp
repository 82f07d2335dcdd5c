/* gpu.cpp: the threads of a block as coroutines of one thread of the host. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "gpu.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
int gpu_thread;

namespace {

enum { STACK_BYTES = 256 << 10, SHARED_BYTES = 228 << 10, MOST_THREADS = 1024 };
alignas(1024) char shared_room[SHARED_BYTES];

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

struct coroutine {
    std::unique_ptr<char[]> stack;
    jmp_buf place;
    bool is_running = false; /* it has a thread, which has not ended */
};

std::deque<coroutine> coroutines; /* whose addresses stay */
jmp_buf scheduler;
int n_left;
uint64_t n_events; /* whatever may let a thread that waits go on */
const std::function<void()> *body;
meeting of_block;
std::map<int, meeting> of_barrier;
std::vector<std::deque<warp_meeting>> of_warp;
ucontext_t beginning, unused;

void meeting_leave(meeting &m) {
    n_events++;
    m.sum = m.brought;
    m.n_here = m.brought = 0;
    m.turn++;
}

/* A coroutine never returns: it waits for the thread of the next block. */
void coroutine_run() {
    coroutine &own = coroutines[(size_t)gpu_thread];
    for (;;) {
        (*body)();
        own.is_running = false;
        n_left--;
        n_events++;
        if (of_block.n_here > 0 && of_block.n_here == n_left) meeting_leave(of_block);
        gpu_turn();
    }
}

void coroutine_new() {
    coroutines.emplace_back();
    coroutine &c = coroutines.back();
    c.stack.reset(new char[STACK_BYTES]);
    getcontext(&beginning);
    beginning.uc_stack.ss_sp = c.stack.get();
    beginning.uc_stack.ss_size = STACK_BYTES;
    beginning.uc_link = nullptr;
    makecontext(
        &beginning,
        [] {
            if (_setjmp(coroutines.back().place) == 0) _longjmp(scheduler, 1);
            coroutine_run();
        },
        0);
    if (_setjmp(scheduler) == 0) swapcontext(&unused, &beginning);
}

void coroutine_resume(int i) {
    const unsigned at = (unsigned)i, x = blockDim.x, y = blockDim.y;
    gpu_thread = i;
    threadIdx = {at % x, at / x % y, at / x / y};
    if (_setjmp(scheduler) == 0) _longjmp(coroutines[(size_t)i].place, 1);
}

/* Every thread gets a turn, until all have ended, or nothing changes any more. */
void block_run(int n_threads) {
    of_block = meeting();
    of_barrier.clear();
    of_warp.assign((size_t)(n_threads + 31) / 32, {});
    n_left = n_threads;
    for (int i = 0; i < n_threads; i++) coroutines[(size_t)i].is_running = true;
    while (n_left > 0) {
        const uint64_t before = n_events;
        for (int i = 0; i < n_threads; i++)
            if (coroutines[(size_t)i].is_running) coroutine_resume(i);
        if (n_events == before) gpu_unknown("a block whose threads wait for each other in vain");
    }
}

} /* namespace */

void gpu_turn(void) {
    if (_setjmp(coroutines[(size_t)gpu_thread].place) == 0) _longjmp(scheduler, 1);
}

void gpu_launch(dim3 blocks, dim3 threads, size_t shared_bytes, const std::function<void()> &kernel) {
    const int n = (int)(threads.x * threads.y * threads.z);
    if (n < 1 || n > MOST_THREADS || blocks.x * blocks.y * blocks.z < 1 || shared_bytes > SHARED_BYTES)
        gpu_unknown("a launch that a GPU would refuse");
    while ((int)coroutines.size() < n) coroutine_new();
    body = &kernel;
    blockDim = threads;
    gridDim = blocks;
    for (blockIdx.z = 0; blockIdx.z < blocks.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < blocks.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < blocks.x; blockIdx.x++) block_run(n);
}

void *gpu_dynamic_shared(void) { return shared_room; }
uint32_t gpu_shared_address(const void *p) { return (uint32_t)((const char *)p - shared_room); }
char *gpu_shared_place(uint32_t address) { return shared_room + (int32_t)address; }

void gpu_unknown(const char *what) {
    fprintf(stderr, "cuda_on_cpu: %s is not known here\n", what);
    abort();
}

int gpu_block_wait(int brought) {
    const uint64_t turn = of_block.turn;
    of_block.brought += brought;
    if (++of_block.n_here == n_left) meeting_leave(of_block);
    while (of_block.turn == turn) gpu_turn();
    return of_block.sum;
}

void gpu_barrier_wait(int barrier, int n) {
    meeting &m = of_barrier[barrier];
    const uint64_t turn = m.turn;
    if (++m.n_here == n) meeting_leave(m);
    while (m.turn == turn) gpu_turn();
}

const gpu_lanes &gpu_warp_wait(unsigned mask, uint64_t brought) {
    std::deque<warp_meeting> &meetings = of_warp[(size_t)gpu_thread / 32];
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

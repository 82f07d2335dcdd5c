/* device.c: a GPU as libtally sees it.
 *
 * libtally opens this plugin at run time and calls tally_cuda_open; the plugin uses no symbol of libtally, so the
 * same program runs where there is no CUDA at all. One device has one compute stream: everything happens in program
 * order, and only `item`, copies to the host, large copies from it, `sync` and reading a profile wait for it.
 *
 * Memory outside the pool. Tensors and workspaces come from segment_new (cudaMalloc), whose bytes the ledger counts.
 * Beside them the process holds, on the GPU and unseen by the pool:
 *   - the driver's context, with the code of our kernels (loaded when first launched) and the stacks the driver keeps;
 *   - the cuBLASLt handle (made here) and the code of the GEMM kernels it picks;
 *   - the cuDNN handle (made by the first attention) and the code of its attention engines, some compiled at run time;
 * and on the host: plans of matmul.c and attention.c, and pinned memory: one fault cell, and slots for copies
 * (state.h). Every workspace of every library is args->workspace, from the pool; a plan that needs more is not used.
 * How many bytes the above take is measured on the machine (driver's figure minus segments), not promised here.
 *
 * Threads. A stream is an order, so kernels of several threads take turns: cuda_run holds one lock while it enqueues.
 * That also makes the plan caches and the cuDNN handle, which is not thread-safe, safe to use.
 */
#include "device/cuda/rules.h"
#include "device/cuda/shared/kernels.h"
#include "device/cuda/shared/repeat.h"
#include "device/cuda/shared/state.h"
#include "tensor/device.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

_Static_assert((int)STAGING_SLOTS >= (int)FETCH_SLOTS, "device.h says how many fetches are kept");

/* ---- The device's functions --------------------------------------------------------------------------- */

static bool segment_new(tl_device *device, uint64_t bytes, void **data, char *error) {
    struct cuda_state *state = device->own;
    if (!cuda_select(state, error)) return false;
    const cudaError_t status = cudaMalloc(data, (size_t)bytes);
    if (status == cudaSuccess) return true;
    cudaGetLastError(); /* clear the error, or the next launch would report it */
    size_t free_bytes = 0, total_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) cudaGetLastError();
    snprintf(error, CUDA_ERROR_BYTES, "cudaMalloc of %llu bytes: %s (%zu of %zu bytes free on %s)",
             (unsigned long long)bytes, cudaGetErrorString(status), free_bytes, total_bytes, device->name);
    return false;
}

static void segment_free(tl_device *device, void *data, uint64_t bytes) {
    (void)bytes;
    char error[CUDA_ERROR_BYTES];
    /* cudaFree waits for the device, so work still queued on this memory is done first. An error here is an
     * earlier kernel's; it is sticky, and the next call that can report it will. */
    if (cuda_select(device->own, error) && cuda_settle(device->own, error)) cudaFree(data);
}

/* True if the driver reads `from` itself, later: the caller's bytes must not change before the copy is done. Pageable
 * memory is staged before the call returns. */
static bool is_pinned(const void *from) {
    struct cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, from) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    return attributes.type != cudaMemoryTypeUnregistered;
}

/* Small copies to the GPU go through pinned memory. The driver would do so too for pageable memory, but it first
 * waits for all queued work. */
static bool copy_staged(struct cuda_state *state, void *to, const void *from, size_t bytes, char *error) {
    pthread_mutex_lock(&cuda_run_lock);
    struct cuda_slot *slot = &state->staging[state->next_staging++ % STAGING_SLOTS];
    bool ok = repeat_settle(state, error) && cuda_check(cudaEventSynchronize(slot->done), "copy", error);
    if (ok) memcpy(slot->data, from, bytes);
    ok = ok &&
         cuda_check(cudaMemcpyAsync(to, slot->data, bytes, cudaMemcpyHostToDevice, state->stream), "copy", error) &&
         cuda_check(cudaEventRecord(slot->done, state->stream), "copy", error);
    pthread_mutex_unlock(&cuda_run_lock);
    return ok;
}

static bool copy(tl_device *device, void *to, const void *from, size_t bytes, enum copy_direction direction,
                 char *error) {
    static const enum cudaMemcpyKind kinds[] = {
        [COPY_TO_DEVICE] = cudaMemcpyHostToDevice,
        [COPY_TO_HOST] = cudaMemcpyDeviceToHost,
        [COPY_INSIDE] = cudaMemcpyDeviceToDevice,
    };
    struct cuda_state *state = device->own;
    if (bytes == 0) return true;
    if (!cuda_select(state, error)) return false;
    if (direction == COPY_TO_DEVICE && bytes <= STAGING_BYTES) return copy_staged(state, to, from, bytes, error);
    if (!cuda_settle(state, error) ||
        !cuda_check(cudaMemcpyAsync(to, from, bytes, kinds[direction], state->stream), "copy", error))
        return false;
    if (direction == COPY_INSIDE || (direction == COPY_TO_DEVICE && !is_pinned(from))) return true;
    return cuda_check(cudaStreamSynchronize(state->stream), "copy", error) && cuda_fault_report(state, error);
}

static void *fetch_begin(tl_device *device, const void *from, size_t bytes, char *error) {
    struct cuda_state *state = device->own;
    if (bytes > FETCH_BYTES || !cuda_select(state, error)) return NULL;
    pthread_mutex_lock(&cuda_run_lock);
    struct cuda_slot *slot = &state->fetch[state->next_fetch++ % STAGING_SLOTS];
    const bool ok =
        repeat_settle(state, error) &&
        cuda_check(cudaMemcpyAsync(slot->data, from, bytes, cudaMemcpyDeviceToHost, state->stream), "fetch", error) &&
        cuda_check(cudaEventRecord(slot->done, state->stream), "fetch", error);
    pthread_mutex_unlock(&cuda_run_lock);
    return ok ? slot : NULL;
}

static bool fetch_end(tl_device *device, void *fetch, void *to, size_t bytes, char *error) {
    struct cuda_state *state = device->own;
    struct cuda_slot *slot = fetch;
    if (!cuda_select(state, error) || !cuda_check(cudaEventSynchronize(slot->done), "fetch", error)) return false;
    memcpy(to, slot->data, bytes);
    return cuda_fault_report(state, error);
}

static bool device_sync(tl_device *device, char *error) {
    struct cuda_state *state = device->own;
    return cuda_select(state, error) && cuda_settle(state, error) &&
           cuda_check(cudaStreamSynchronize(state->stream), "the device failed", error) &&
           cuda_fault_report(state, error);
}

/* Marks are numbered from 1 and kept as events, which are made when first needed and used in turn. 0: no mark. */
static int64_t mark(tl_device *device) {
    struct cuda_state *state = device->own;
    char error[CUDA_ERROR_BYTES];
    if (!cuda_select(state, error)) return 0;
    pthread_mutex_lock(&cuda_run_lock);
    if (!state->marks) state->marks = calloc(DEVICE_MARKS, sizeof *state->marks);
    cudaEvent_t *event = state->marks ? &state->marks[(state->n_marks + 1) % DEVICE_MARKS] : NULL;
    const bool ok = repeat_settle(state, error) && event && (*event || cudaEventCreate(event) == cudaSuccess) &&
                    cudaEventRecord(*event, state->stream) == cudaSuccess;
    const int64_t number = ok ? ++state->n_marks : 0;
    pthread_mutex_unlock(&cuda_run_lock);
    if (!ok) cudaGetLastError();
    return number;
}

static double mark_seconds(tl_device *device, int64_t from, int64_t to) {
    struct cuda_state *state = device->own;
    char error[CUDA_ERROR_BYTES];
    float ms = 0;
    if (!from || !to || from + DEVICE_MARKS <= state->n_marks || !cuda_select(state, error)) return 0;
    const cudaEvent_t begin = state->marks[from % DEVICE_MARKS], end = state->marks[to % DEVICE_MARKS];
    if (cudaEventSynchronize(end) == cudaSuccess && cudaEventElapsedTime(&ms, begin, end) == cudaSuccess)
        return ms / 1e3;
    cudaGetLastError();
    return 0;
}

static void CUDART_CB sleep_ns(void *ns) {
    const uint64_t all = (uintptr_t)ns;
    const struct timespec time = {(time_t)(all / 1000000000), (long)(all % 1000000000)};
    nanosleep(&time, NULL);
}

static bool delay(tl_device *device, double seconds) {
    struct cuda_state *state = device->own;
    char error[CUDA_ERROR_BYTES];
    void *ns = (void *)(uintptr_t)(seconds * 1e9);
    return seconds > 0 && cuda_select(state, error) && cuda_settle(state, error) &&
           cudaLaunchHostFunc(state->stream, sleep_ns, ns) == cudaSuccess;
}

/* Context, libraries and other processes included. */
static bool used(const tl_device *device, uint64_t *used_bytes, uint64_t *total_bytes) {
    const struct cuda_state *state = device->own;
    size_t free_bytes, all_bytes;
    if (cudaSetDevice(state->index) != cudaSuccess || cudaMemGetInfo(&free_bytes, &all_bytes) != cudaSuccess)
        return false;
    *used_bytes = all_bytes - free_bytes;
    *total_bytes = all_bytes;
    return true;
}

static void describe(tl_device *device, char *chip, char *libraries) {
    const struct cuda_state *state = device->own;
    struct cudaDeviceProp properties;
    char attention[DEVICE_TEXT];
    int runtime = 0;
    bool is_known = cudaGetDeviceProperties(&properties, state->index) == cudaSuccess;
    snprintf(chip, DEVICE_TEXT, "%.90s", is_known ? properties.name : "an unknown GPU");
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess || !is_known) cudaGetLastError();
    attention_describe(attention, sizeof attention);
    snprintf(libraries, DEVICE_TEXT, "cuda %d, cublasLt %zu, %.40s", runtime, cublasLtGetVersion(), attention);
}

static const struct device_functions cuda_functions = {
    .segment_new = segment_new,
    .segment_free = segment_free,
    .copy = copy,
    .sync = device_sync,
    .fetch_begin = fetch_begin,
    .fetch_end = fetch_end,
    .used = used,
    .mark = mark,
    .mark_seconds = mark_seconds,
    .delay = delay,
    .repeat_begin = cuda_repeat_begin,
    .repeat_end = cuda_repeat_end,
    .repeat_again = cuda_repeat_again,
    .describe = describe,
    .health = cuda_health,
    .link = &cuda_link,
};

/* ---- Opening ------------------------------------------------------------------------------------------ */

/* An event that was never recorded is done. */
static bool slots_new(struct cuda_slot *slots, size_t bytes, char *error) {
    bool ok = cuda_check(cudaHostAlloc((void **)&slots[0].data, STAGING_SLOTS * bytes, cudaHostAllocDefault),
                         "pinned memory", error);
    for (int i = 0; ok && i < STAGING_SLOTS; i++) {
        slots[i].data = slots[0].data + (size_t)i * bytes;
        ok = cuda_check(cudaEventCreateWithFlags(&slots[i].done, cudaEventDisableTiming), "event", error);
    }
    return ok;
}

static void slots_free(struct cuda_slot *slots) {
    if (slots[0].data) cudaFreeHost(slots[0].data);
    for (int i = 0; i < STAGING_SLOTS; i++)
        if (slots[i].done) cudaEventDestroy(slots[i].done);
}

static bool state_fill(struct cuda_state *state, char *error) {
    return cuda_check(cudaSetDevice(state->index), "cudaSetDevice", error) &&
           cuda_check(cudaDeviceGetAttribute(&state->n_multiprocessors, cudaDevAttrMultiProcessorCount, state->index),
                      "cudaDeviceGetAttribute", error) &&
           cuda_check(cudaStreamCreateWithFlags(&state->stream, cudaStreamNonBlocking), "stream", error) &&
           cuda_check(cudaStreamCreateWithFlags(&state->copy_stream, cudaStreamNonBlocking), "stream", error) &&
           cuda_check(cudaHostAlloc((void **)&state->fault, sizeof *state->fault, cudaHostAllocMapped), "fault cell",
                      error) &&
           cuda_check(cudaHostGetDevicePointer((void **)&state->fault_device, state->fault, 0), "fault cell", error) &&
           slots_new(state->staging, STAGING_BYTES, error) && slots_new(state->fetch, FETCH_BYTES, error) &&
           (state->matmul = matmul_cache_new(state->capability, state->n_multiprocessors, error)) != NULL;
}

static void state_free(struct cuda_state *state) {
    if (state->fault) cudaFreeHost(state->fault);
    slots_free(state->staging);
    slots_free(state->fetch);
    for (int i = 0; state->marks && i < DEVICE_MARKS; i++)
        if (state->marks[i]) cudaEventDestroy(state->marks[i]);
    free(state->marks);
    if (state->stream) cudaStreamDestroy(state->stream);
    if (state->copy_stream) cudaStreamDestroy(state->copy_stream);
    cudaGetLastError();
    free(state);
}

TL_API const char *tally_cuda_version(void);
TL_API int tally_cuda_count(void);
TL_API bool tally_cuda_card(int index, struct cuda_card *card, char *error);
TL_API bool tally_cuda_open(int index, tl_device *device, char *error);

/* The runtime reports a driver that is too old and a missing one alike. Whether its library exists tells them apart. */
static bool count_devices(int *n_devices, char *error) {
    int has = 0, needs = 0;
    const cudaError_t status = cudaGetDeviceCount(n_devices);
    if (status == cudaSuccess) return true;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver) {
        snprintf(error, CUDA_ERROR_BYTES, "no GPU: NVIDIA's driver is not installed here (there is no libcuda.so.1)");
    } else if (status == cudaErrorInsufficientDriver && cudaDriverGetVersion(&has) == cudaSuccess &&
               cudaRuntimeGetVersion(&needs) == cudaSuccess) {
        snprintf(error, CUDA_ERROR_BYTES,
                 "no GPU: the driver is for CUDA %d.%d and this build needs %d.%d: install a newer driver", has / 1000,
                 has % 1000 / 10, needs / 1000, needs % 1000 / 10);
    } else cuda_check(status, "no GPU", error);
    if (driver) dlclose(driver);
    return false;
}

const char *tally_cuda_version(void) { return TL_VERSION; }

int tally_cuda_count(void) {
    char error[CUDA_ERROR_BYTES];
    int n = 0;
    return count_devices(&n, error) ? n : 0;
}

bool tally_cuda_card(int index, struct cuda_card *card, char *error) {
    struct cudaDeviceProp properties;
    size_t free_bytes = 0, total_bytes = 0;
    int n_devices = 0;
    if (!count_devices(&n_devices, error)) return false;
    if (index < 0 || index >= n_devices) {
        snprintf(error, CUDA_ERROR_BYTES, "there is no cuda:%d (this machine has %d)", index, n_devices);
        return false;
    }
    if (!cuda_check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties", error) ||
        !cuda_check(cudaSetDevice(index), "cudaSetDevice", error) ||
        !cuda_check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo", error))
        return false;
    snprintf(card->name, sizeof card->name, "%.90s", properties.name);
    card->capability = 10 * properties.major + properties.minor;
    card->memory_bytes = total_bytes;
    return true;
}

/* The caller sets the pool and the generation, which the plugin does not know, and before the call the target, whose
 * compute capability decides what kernels do. A card that is opened under two targets has a state, and a stream, for
 * each. */
bool tally_cuda_open(int index, tl_device *device, char *error) {
    int slot = 0;
    while (slot < CUDA_MAX_DEVICES && cuda_state_table[slot]) slot++;
    struct cuda_state *state = slot < CUDA_MAX_DEVICES ? calloc(1, sizeof *state) : NULL;
    if (!state) {
        snprintf(error, CUDA_ERROR_BYTES, "no room for the state of cuda:%d (%d are open)", index, slot);
        return false;
    }
    state->index = index;
    state->capability = device->target->capability;
    if (!state_fill(state, error)) {
        state_free(state);
        return false;
    }
    memset(state->fault, 0, sizeof *state->fault);
    cuda_state_table[slot] = state;
    device->functions = &cuda_functions;
    device->kernels = cuda_kernel_table;
    device->stream = state->stream;
    device->own = state;
    return true;
}

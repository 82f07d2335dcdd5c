/* state.h: the state of one opened GPU: streams, library handles, plan caches and the fault cell.
 *
 * A kernel receives only its stream, so the stream also identifies its state. There is one state per
 * GPU and target, made by tally_cuda_open and never freed.
 */
#ifndef CUDA_STATE_H
#define CUDA_STATE_H

#include "tally.h"

#include <cuda_runtime_api.h>
#include <pthread.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_MAX_DEVICES 16
#define CUDA_ERROR_BYTES 200 /* room behind every `error`, by device.h */

/* A kernel writes an invalid index here and continues with a harmless value; sync reports it. The cell is pinned
 * host memory that the GPU writes directly, so reading it needs no copy. `index` and `limit` are written by
 * whichever thread failed last: any of them is a true example. */
/* Codes without a comment: index is outside [0, limit). */
enum cuda_fault_code {
    FAULT_NONE,
    FAULT_EMBEDDING,
    FAULT_EMBEDDING_GRAD,
    FAULT_CROSS_ENTROPY,
    FAULT_CROSS_ENTROPY_GRAD,
    FAULT_HEAD,
    FAULT_NLL,
    FAULT_NLL_GRAD,
    FAULT_GATHER,
    FAULT_SCATTER,
    FAULT_INDEX,
    FAULT_INDEX_PUT,
    FAULT_GROUPED,
    FAULT_PIVOT,
    FAULT_REPEAT,    /* index: a count, limit: its position */
    FAULT_REMAINDER, /* index: the dividend */
    FAULT_WEIGHT,    /* index: the row */
    FAULT_WEIGHTS,   /* index: the row, limit: how many are positive */
    FAULT_COUNT      /* index: the count found before */
};
struct cuda_fault {
    int code;
    int64_t index, limit;
};

struct matmul_cache;
struct attention_cache;
struct cuda_repeat;

/* Slots of pinned host memory, used in turn, so that copies to and from the GPU do not block. `done` is recorded
 * when the GPU has finished with the slot. */
enum { STAGING_SLOTS = 16, STAGING_BYTES = 1 << 20 };
struct cuda_slot {
    char *data;
    cudaEvent_t done;
};

/* Memory that kernels write which may still run when one begins that was launched early (launch_early in common.cuh).
 * n is EARLY_WRITES: it may be any. n_fetches: kernels that read memory before those in front of them had ended. */
enum { EARLY_WRITES = 256 };
struct cuda_early {
    struct {
        const char *begin, *end;
    } writes[EARLY_WRITES];
    int n;
    uint64_t n_fetches;
};

struct cuda_state {
    int index;                        /* of the GPU */
    int capability;                   /* of the target, which decides what kernels do; the GPU's may be higher */
    cudaStream_t stream, copy_stream; /* the second is for transfers that overlap compute; not used yet */
    cudaEvent_t *marks;               /* DEVICE_MARKS of them, NULL until first needed: profiling */
    int64_t n_marks;
    struct cuda_fault *fault;        /* host address */
    struct cuda_fault *fault_device; /* the same cell as kernels see it */
    int n_multiprocessors;
    int warpgroups; /* whether this GPU runs kernels of hopper.cuh: 1, -1, or 0 until it is known */
    struct cuda_slot staging[STAGING_SLOTS], fetch[STAGING_SLOTS]; /* towards the GPU, and back */
    int next_staging, next_fetch;
    struct matmul_cache *matmul;       /* matmul.c */
    struct attention_cache *attention; /* attention.c; made by the first attention */
    struct cuda_repeat *repeat;        /* repeat.c; made by the first repeat_begin */
    struct cuda_early early;
};

/* By the GPU's number; NULL: it has not been opened. */
extern struct cuda_state *cuda_state_table[CUDA_MAX_DEVICES];
/* Held while work is enqueued in a stream: kernels of several threads take turns. */
extern pthread_mutex_t cuda_run_lock;

/* Selects this GPU for the calling thread; each thread starts with GPU 0. */
bool cuda_select(const struct cuda_state *state, char *error);

/* The state that owns `stream`, NULL if none does. */
struct cuda_state *cuda_state_of(const void *stream);

/* Functions of a library that was loaded at run time: `place` is that of a pointer to one. Fills in all that there are;
 * the name of one that is not, or NULL. */
struct cuda_symbol {
    const char *name;
    void *place;
};
const char *cuda_symbols_find(void *library, const struct cuda_symbol *symbols, size_t n);

/* True when `status` is success; otherwise writes "WHAT: reason" to `error`. */
bool cuda_check(cudaError_t status, const char *what, char *error);

/* A function of the driver, by the runtime: the plugin does not link to the driver. `place` is that of a pointer to it,
 * which becomes NULL if the driver has none of this name. */
void cuda_driver_function(const char *name, void *place);

/* Selects the GPU of args->stream, runs the kernel, and checks for launch errors; where calls repeat, it may be held
 * back for a while (repeat.h). The one way into every kernel of this plugin; calls from several threads take turns. */
bool cuda_run(const tl_kernel_args *args, tl_kernel kernel);
/* The same for a kernel that waits for the device: what was held back comes before it. */
bool cuda_run_waiting(const tl_kernel_args *args, tl_kernel kernel);

/* A kernel of this plugin, with a check for launch errors; for state.c and repeat.c, which hold cuda_run_lock. */
bool kernel_enter(const tl_kernel_args *args, tl_kernel kernel);

/* Whether a kernel that is launched early may read this memory at once: no kernel writes it that may still run. */
bool early_may_fetch(const tl_kernel_args *args, const void *data, size_t bytes);
/* A kernel of this call is launched. One that is not early waits for all kernels in front of it. */
void early_launched(const tl_kernel_args *args, bool is_early);
/* A kernel of this call that is launched early writes an input. */
void early_writes(const tl_kernel_args *args, const tl_operand *x);

/* Queues the calls that are held back. To be called before anything but cuda_run uses the stream. */
bool cuda_settle(struct cuda_state *state, char *error);

/* Call it after the stream is synchronized: false, with the message, if a kernel met an invalid index. */
bool cuda_fault_report(struct cuda_state *state, char *error);

/* The library that computes attention, for device_functions.describe: "cudnn 90700". */
void attention_describe(char *text, size_t size);
/* health.c: clock, power and temperature, from the driver. */
struct device_health;
bool cuda_health(const tl_device *device, struct device_health *health);
/* nccl.c: messages between GPUs of several processes. */
struct link_functions;
extern const struct link_functions cuda_link;

/* The caches of matmul.c; made when the device is opened. */
struct matmul_cache *matmul_cache_new(int capability, int n_multiprocessors, char *error);

/* An error that names the dtype; returns false, as kernels do. */
bool cuda_refuse_dtype(const tl_kernel_args *args, tl_dtype dtype);
const char *cuda_dtype_name(tl_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif

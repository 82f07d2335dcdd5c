/* device.h: what a device is: a handful of functions, a table of kernels, a target and a pool.
 *
 * A *target* is what a price needs to know about a machine: how its pool rounds and grows, and how much
 * workspace its libraries get. The cpu and each GPU have one; `meta` borrows one, and that is all the
 * difference between pricing an H200 and pricing a laptop.
 */
#ifndef TENSOR_DEVICE_H
#define TENSOR_DEVICE_H

#include "tally.h"

struct pool;

enum device_kind { DEVICE_CPU, DEVICE_META, DEVICE_CUDA, DEVICE_KIND_COUNT };

struct target {
    const char *name;      /* "h200" */
    enum device_kind kind; /* which kernels it runs: DEVICE_CPU or DEVICE_CUDA */
    /* Pool: blocks are rounded up to `align_bytes`; requests up to `small_bytes` are cut from segments of
     * `small_segment_bytes`, larger ones from segments of `large_segment_bytes`, and from `huge_bytes` on each request
     * has a segment of its own, rounded up to `segment_align_bytes`. */
    size_t align_bytes, small_bytes, small_segment_bytes, large_segment_bytes, huge_bytes, segment_align_bytes;
    size_t memory_bytes;         /* what the pool may reserve at most; 0: unknown */
    size_t gemm_workspace_bytes; /* given to every matmul */
};

extern const struct target target_table[]; /* ends with a row without a name */
const struct target *target_find(const char *name);

enum { FETCH_BYTES = 256, FETCH_SLOTS = 16, DEVICE_MARKS = 8192, DEVICE_TEXT = 96 };

enum copy_direction { COPY_TO_DEVICE, COPY_TO_HOST, COPY_INSIDE };

/* How fast a device runs now, and what keeps it from running faster: "power", "heat (board)", ...; "": nothing. */
struct device_health {
    double clock_hz, watts, celsius;
    char limit[96];
};

/* `error` has room for 200 bytes. */
struct device_functions {
    bool (*segment_new)(tl_device *device, size_t bytes, void **data, char *error);
    void (*segment_free)(tl_device *device, void *data, size_t bytes);
    bool (*copy)(tl_device *device, void *to, const void *from, size_t bytes, enum copy_direction direction,
                 char *error); /* has happened, as far as the host can tell, when it returns */
    bool (*sync)(tl_device *device, char *error);
    /* (optional) A copy to the host that nobody waits for yet: at most FETCH_BYTES, as they are when all that was asked for before
     * is done. It is read with fetch_end, which waits for that and for nothing later; of more than FETCH_SLOTS the oldest are
     * lost. NULL, with the error: none was begun. */
    void *(*fetch_begin)(tl_device *device, const void *from, size_t bytes, char *error);
    bool (*fetch_end)(tl_device *device, void *fetch, void *to, size_t bytes, char *error);
    /* (optional) What the driver says is in use on the whole device, and how much there is. */
    bool (*used)(const tl_device *device, uint64_t *used_bytes, uint64_t *total_bytes);
    /* (optional) Profiling. A mark comes after all that was asked for before it; nobody waits for it but mark_seconds, which does and tells how
     * long after `from` `to` came. Of more than DEVICE_MARKS the oldest are lost. What cannot be told is 0. */
    int64_t (*mark)(tl_device *device);
    double (*mark_seconds)(tl_device *device, int64_t from, int64_t to);
    /* (optional) FLOP/s that multiply-adds reach in registers, measured now; 0: there is no probe for this dtype. Cycles per second. */
    double (*peak)(tl_device *device, tl_dtype dtype);
    double (*clock)(tl_device *device);
    /* (optional) What it is, "NVIDIA H200", and whose code decides bits besides ours, with versions; DEVICE_TEXT bytes each. */
    void (*describe)(tl_device *device, char *chip, char *libraries);
    /* (optional) Asked of the driver; false: it does not say. Takes a millisecond or so. */
    bool (*health)(const tl_device *device, struct device_health *health);
};

struct tl_device {
    enum device_kind kind;
    char name[32];
    const struct target *target;
    const struct device_functions *functions;
    const tl_kernel *kernels; /* by op id; NULL on meta */
    const char *isa;          /* cpu: the instruction set of the kernels */
    void *stream;
    void *own; /* the device's private state */
    struct pool *pool;
    int generation; /* cuda: of the process that opened it; a forked child must not touch it */
};

/* False, recorded: a GPU that was opened before fork(), used in the child. `what` names the caller. */
bool device_check_cuda(const tl_device *device, const char *what);
static inline bool device_check(const tl_device *device, const char *what) {
    return device->kind != DEVICE_CUDA || device_check_cuda(device, what);
}

/* It works on its own: what was asked for may still be under way when a call returns, and results are fetched later. */
static inline bool device_runs_ahead(const tl_device *device) { return device->functions->fetch_begin != NULL; }

/* See device_functions; 0 where the device has no marks. */
static inline int64_t device_mark(tl_device *device) {
    return device->functions->mark ? device->functions->mark(device) : 0;
}
static inline double device_mark_seconds(tl_device *device, int64_t from, int64_t to) {
    return from && to ? device->functions->mark_seconds(device, from, to) : 0;
}

/* Bytes that a device has for all that is on it. 0: not known, as on meta. */
uint64_t device_memory_bytes(const tl_device *device);

/* Between these two no other thread opens a device. What is declared below is used between them only. */
void devices_hold(void);
void devices_release(void);
/* The devices that are open, in the order of their opening; NULL after the last. They are never closed. */
tl_device *device_at(int index);
/* Set by the ledger: told of every device that opens (while they are held), so that open brackets see its memory too. */
extern void (*device_opened)(tl_device *device);

/* The plugin's door (libtally_cuda.so): fills device number `index`, or writes to `error` why it cannot. */
typedef bool (*device_open_fn)(int index, tl_device *device, char *error);
#define CUDA_DEVICE_OPEN "tally_cuda_open"

#endif

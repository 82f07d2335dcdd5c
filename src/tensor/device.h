/* device.h: what a device is: a handful of functions, a table of kernels, a target and a pool.
 *
 * A *target* is what a price needs to know about a machine: how its pool rounds and grows, how much workspace its
 * libraries get, which products it computes natively, and the *rules* of its kind of device. The cpu and each GPU have
 * one; `meta` borrows one, and that is all the difference between pricing an H200 and pricing a laptop.
 *
 * Rules are host code beside the kernels (device/KIND/rules.c). They are always linked, so that a device can be priced
 * where its kernels are not. Ops ask rules, and never which device it is.
 */
#ifndef TENSOR_DEVICE_H
#define TENSOR_DEVICE_H

#include "tally.h"

struct pool;
struct target;

/* Bytes of workspace that one call gets. */
typedef uint64_t (*workspace_rule)(const tl_call *call, const struct target *target);

/* How linear_cross_entropy is cut up; see attr_linear_cross_entropy. */
struct head_cut {
    int64_t chunk_rows; /* rows of logits that exist at a time */
    bool is_gathered;
};

struct device_rules {
    bool is_host; /* kernels run in the calling thread, on the host's memory */
    /* By op id; NULL: what the op's record says. */
    const workspace_rule *workspace;
    /* linear_cross_entropy of x (N,C) and weight (V,C). NULL: all rows at once. */
    struct head_cut (*head)(const struct target *target, tl_dtype dtype, int64_t N, int64_t V, int64_t C);
    /* Whether a product of rows (...,k) and a weight (n,k) can add a bias itself. NULL: never. */
    bool (*adds_bias)(const struct target *target, tl_dtype dtype, int64_t n, int64_t k);
    /* Whether (m,k) and (n,k) of this dtype can be rounded to 8-bit floats and multiplied as such. NULL: never. */
    bool (*multiplies_f8)(const struct target *target, tl_dtype dtype, int64_t m, int64_t n, int64_t k);
    /* Whether gelu_mlp and swiglu_mlp are faster than their parts for rows (m,k) and F inner features. NULL: never. */
    bool (*activates)(const struct target *target, tl_dtype dtype, int64_t m, int64_t k, int64_t F);
    /* Whether matmul_parts of rows (m,k) is faster than its products one after the other. NULL: never. */
    bool (*joins_parts)(const struct target *target, tl_dtype dtype, int64_t m, int64_t k);
    /* Whether a call that computes a gradient can sum its columns on the way, for a bias. NULL: never. */
    bool (*sums)(const tl_call *call, const struct target *target);
    /* Which kernel of an op from outside is this device's. NULL: none. */
    tl_kernel (*custom)(const tl_op_def *def);
};

/* Where the figures of a target come from. */
enum target_origin {
    TARGET_MEASURED, /* Tally ran on it, and price and receipt agreed */
    TARGET_SHEET,    /* public figures and rules by compute capability; Tally never ran on it */
    TARGET_DRIVER    /* not in the table: what its driver says, and rules by compute capability */
};

struct target {
    const char *name; /* "h200" */
    const struct device_rules *rules;
    /* Pool: blocks are rounded up to `align_bytes`; requests up to `small_bytes` are cut from segments of
     * `small_segment_bytes`, larger ones from segments of `large_segment_bytes`, and from `huge_bytes` on each request
     * has a segment of its own, rounded up to `segment_align_bytes`. */
    uint64_t align_bytes, small_bytes, small_segment_bytes, large_segment_bytes, huge_bytes, segment_align_bytes;
    uint64_t memory_bytes;         /* of the device, as its driver reports it; 0: unknown */
    uint64_t outside_bytes;        /* of these, what is never the pool's: the driver's context and library code */
    uint64_t gemm_workspace_bytes; /* given to every matmul */
    uint32_t native;               /* TARGET_NATIVE(dtype): products of it are computed natively; others are emulated */
    int capability;                /* NVIDIA's compute capability, 90 for 9.0; 0: it has none */
    enum target_origin origin;
    const char *chip;   /* as the driver calls it, "NVIDIA H200"; NULL for the cpu */
    const char *source; /* of memory_bytes */
};
#define TARGET_NATIVE(dtype) ((uint32_t)1 << (dtype))

static inline bool target_has_native(const struct target *t, tl_dtype dtype) {
    return t->native & TARGET_NATIVE(dtype);
}

/* DEVICES_MAX: how many a process can have open; every target on meta, with room. */
enum { DEVICES_MAX = 128, FETCH_BYTES = 256, FETCH_SLOTS = 16, DEVICE_MARKS = 8192, DEVICE_TEXT = 96 };

enum copy_direction { COPY_TO_DEVICE, COPY_TO_HOST, COPY_INSIDE };

/* How fast a device runs now, and what keeps it from running faster: "power", "heat (board)", ...; "": nothing. */
struct device_health {
    double clock_hz, watts, celsius;
    char limit[96];
};

/* Memory that is sent to another process, or received from it; the process by its rank in a group. */
struct message {
    int peer;
    bool is_sent;
    void *data;
    size_t bytes;
};

/* Messages between processes that go from device to device without the host: NCCL's. A link joins the ranks of one
 * group. One rank makes a key for it, and all open it with that key. `error` as below. */
enum { LINK_KEY = 128, LINK_DEVICE = 64 };
struct link_seconds {
    double busy_s, exposed_s; /* messages were under way; of these, other work waited for them */
};
struct link_functions {
    /* Names the physical device, so that ranks can tell whether they share one. False: there is no link library. */
    bool (*device)(tl_device *device, char name[LINK_DEVICE], char *error);
    bool (*key)(char key[LINK_KEY], char *error);
    bool (*open)(tl_device *device, const char key[LINK_KEY], int rank, int size, void **link, char *error);
    /* Queued behind all work so far, beside the work that follows: that may read and write the memory of the messages
     * after `end`. Two messages between the same two ranks arrive in their order. */
    bool (*begin)(tl_device *device, void *link, const struct message *messages, int n, void **begun, char *error);
    /* Work that is queued from here on comes behind these messages; the host does not wait. `done` receives the time of
     * messages that are known to be over since the last call. */
    bool (*end)(tl_device *device, void *link, void *begun, struct link_seconds *done, char *error);
    void (*close)(tl_device *device, void *link);
};

/* Of the calls between repeat_begin and repeat_end. */
struct device_repeat {
    int64_t n_calls, n_in_graphs; /* n_in_graphs: that were queued together with others */
    char why[120];                /* of those that were not: why; "": they were the first of their kind */
    uint64_t again;               /* a number for repeat_again; 0: they were not queued as one */
};

/* `error` has room for 200 bytes. */
struct device_functions {
    bool (*segment_new)(tl_device *device, uint64_t bytes, void **data, char *error);
    void (*segment_free)(tl_device *device, void *data, uint64_t bytes);
    bool (*copy)(tl_device *device, void *to, const void *from, size_t bytes, enum copy_direction direction,
                 char *error); /* has happened, as far as the host can tell, when it returns */
    bool (*sync)(tl_device *device, char *error);
    /* (optional) Starts a copy of at most FETCH_BYTES to the host, after all work queued so far, without waiting.
     * fetch_end waits for it, but not for later work, and returns the bytes; of more than FETCH_SLOTS the oldest are
     * lost. NULL on error. */
    void *(*fetch_begin)(tl_device *device, const void *from, size_t bytes, char *error);
    bool (*fetch_end)(tl_device *device, void *fetch, void *to, size_t bytes, char *error);
    /* (optional) What the driver says is in use on the whole device, and how much there is. */
    bool (*used)(const tl_device *device, uint64_t *used_bytes, uint64_t *total_bytes);
    /* (optional) Profiling. `mark` records a mark after all work queued so far and does not block. `mark_seconds`
     * waits for both marks and returns the time between them, or 0 if it is unknown. Of more than DEVICE_MARKS marks
     * the oldest are lost. */
    int64_t (*mark)(tl_device *device);
    double (*mark_seconds)(tl_device *device, int64_t from, int64_t to);
    /* (optional) What is queued from here on begins so many seconds after what is queued now. Calls that are timed one
     * by one are then all in the queue when the first of them runs: otherwise the times of small ones would be those
     * of queueing them. */
    bool (*delay)(tl_device *device, double seconds);
    /* (optional) The calls in between, by this thread and of this library's ops, are expected to be those of an earlier
     * pair. The device may hold them back and queue them together, as long as nothing but time shows it; an error of a
     * call that was held back may show at a later one. */
    void (*repeat_begin)(tl_device *device);
    bool (*repeat_end)(tl_device *device, struct device_repeat *report, char *error);
    /* (with repeat_begin) Queues the calls of the last pair once more, with the addresses and attributes that they
     * had, if that is what `again` stands for. False without an error: it is not. engine/replay.h says when this is
     * right. */
    bool (*repeat_again)(tl_device *device, uint64_t again, char *error);
    /* (optional) FLOP/s that multiply-adds reach in registers, measured now; 0: there is no probe for this dtype.
     * Cycles per second. */
    double (*peak)(tl_device *device, tl_dtype dtype);
    double (*clock)(tl_device *device);
    /* (optional) What it is, "NVIDIA H200", and whose code decides bits besides ours, with versions; DEVICE_TEXT
     * bytes each. */
    void (*describe)(tl_device *device, char *chip, char *libraries);
    /* (optional) Asked of the driver; false: it does not say. Takes a millisecond or so. */
    bool (*health)(const tl_device *device, struct device_health *health);
    const struct link_functions *link; /* (optional) */
};

struct tl_device {
    char name[48];
    const struct target *target;
    const struct device_functions *functions;
    const tl_kernel *kernels; /* by op id; NULL on meta, which has no data */
    const char *isa;          /* cpu: the instruction set of the kernels */
    void *stream;
    void *own; /* the device's private state */
    struct pool *pool;
    /* Of the target's rules, beside each other since every call reads them; set when the device is opened. */
    const workspace_rule *workspace;
    bool is_host;         /* its data is the host's own memory */
    bool is_lost_in_fork; /* a forked child must not touch it, as with a GPU */
    int generation;       /* of the process that opened it */
};

/* False on meta: there are shapes, and nothing to compute with. */
static inline bool device_has_data(const tl_device *device) { return device->kernels != NULL; }
/* Its data is the host's own memory. */
static inline bool device_is_host(const tl_device *device) { return device->is_host; }
/* Its kernels read the host's memory, or those it stands in for would. */
static inline bool device_prices_host(const tl_device *device) { return device->target->rules->is_host; }

/* False: it was opened before fork(), and this is the child. */
bool device_is_reachable(const tl_device *device);
/* The same, recorded. `what` names the caller. */
bool device_check_fork(const tl_device *device, const char *what);
static inline bool device_check(const tl_device *device, const char *what) {
    return !device->is_lost_in_fork || device_check_fork(device, what);
}

/* It runs asynchronously: queued work may not be finished when a call returns, and results are fetched later. */
static inline bool device_runs_ahead(const tl_device *device) { return device->functions->fetch_begin != NULL; }

/* See device_functions; 0 and false where the device has none. */
static inline int64_t device_mark(tl_device *device) {
    return device->functions->mark ? device->functions->mark(device) : 0;
}
static inline bool device_delay(tl_device *device, double seconds) {
    return device->functions->delay && device->functions->delay(device, seconds);
}
static inline double device_mark_seconds(tl_device *device, int64_t from, int64_t to) {
    return from && to ? device->functions->mark_seconds(device, from, to) : 0;
}

/* A kind of device. devices.c lists those of the library; device_register adds one. */
struct device_driver {
    const char *name; /* "cuda": devices are called NAME, or NAME:0, NAME:1, ... where is_numbered */
    bool is_numbered;
    const struct target *targets; /* what `meta` can stand in for; ends with a row without a name */
    /* Fills a zeroed device: target, functions, kernels, and what is its own. `as` is NULL, or the target that the
     * caller asked for (NAME:0@TARGET), which may differ from the device's own. False: why is in `error` (400
     * bytes). */
    bool (*open)(tl_device *device, int index, const struct target *as, char *error);
    int (*count)(void); /* (optional) how many there are on this machine; 0: not known */
};
#endif

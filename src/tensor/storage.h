/* storage.h: bytes on a device, shared by the tensors that view them. */
#ifndef TENSOR_STORAGE_H
#define TENSOR_STORAGE_H

#include "base/refs.h"

#include "tensor/allocations.h"
#include "tensor/pool.h"

struct storage {
    atomic_int refs;
    tl_purpose purpose;
    tl_device *device;
    void *data; /* NULL on meta and when there are no bytes */
    uint64_t bytes;
    uint64_t version;    /* counts in-place changes */
    struct block *block; /* NULL when empty or external */
    void (*deleter)(void *context);
    void *context;
    tl_tensor *sums;       /* of a gradient: see storage_set_sums; mostly NULL */
    uint64_t sums_version; /* of the storage when they were made */
};

/* Takes `bytes` from the device's pool, billed to (path, purpose). NULL: recorded as an error. */
struct storage *storage_new(tl_device *device, uint64_t bytes, uint32_t path, tl_purpose purpose);
/* External memory. The deleter runs when the last view is freed, after all work of the device; not if this fails. */
struct storage *storage_external(tl_device *device, void *data, uint64_t bytes, void (*deleter)(void *), void *context);

static inline struct storage *storage_keep(struct storage *s) {
    refs_keep(&s->refs);
    return s;
}
void storage_drop(struct storage *s);

/* Says what made it, for the list of allocations (allocations.h), where that is on; shape NULL: it has none. */
static inline void storage_name(const struct storage *s, const char *op, tl_dtype dtype, int rank,
                                const int64_t *shape) {
    if (allocations_are_on && s->block) pool_name(s->device->pool, s->block, op, dtype, rank, shape);
}

/* Gives the bytes of a pool back, and loses their contents. Its views stay, and are read only after storage_refill. */
void storage_release(struct storage *s);
/* A released storage takes over the bytes of another one of its size and device, which is then released in its place.
 * For what is made again and has the same contents: it is no change of it. */
void storage_refill(struct storage *s, struct storage *from);

/* Leaves with the contents, a matrix by rows, the sums of its columns. They are valid until the storage is changed. */
void storage_set_sums(struct storage *s, tl_tensor *sums);
/* Takes them away, with a reference. NULL: there are none, or they are out of date. */
tl_tensor *storage_take_sums(struct storage *s);

/* Bills the bytes to another purpose. */
void storage_move(struct storage *s, tl_purpose purpose);

#endif

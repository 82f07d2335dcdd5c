/* allocations.h: the optional list of what a device allocates and frees, in order, beside the sums and peaks of held.h.
 *
 * While tl_set_memory_events() is on, every request of a pool, its end, every change of its purpose and every op call
 * are appended to a list of the device. A window of held.h that is opened meanwhile gets, when it closes, its own copy:
 * what was held when it opened, and what happened since. Replaying the copy gives the window's peak to the byte.
 * Memory that was allocated before the list began has a path and a purpose, but no op and no shape.
 *
 * Without memory for the list, windows get none: a list is whole or absent. The caller holds the pool's lock. */
#ifndef TENSOR_ALLOCATIONS_H
#define TENSOR_ALLOCATIONS_H

#include "tensor/held.h"

enum allocation_kind { ALLOCATION_CALL, ALLOCATION_TAKE, ALLOCATION_GIVE, ALLOCATION_MOVE };

struct allocation {
    const char *op; /* that made it; NULL: not known */
    uint64_t bytes, serial;
    uint32_t path;
    uint8_t purpose; /* when the list begins, or when it was allocated */
    uint8_t now;     /* its purpose at the end */
    uint8_t dtype, rank;
    bool is_live, is_older, has_shape; /* older: allocated before the list began */
    size_t shape;                      /* where its sizes begin in `sizes` */
};

struct allocation_event {
    uint8_t kind;
    uint8_t value; /* of a move: the purpose; of a call: the phase */
    uint32_t item; /* an allocation; of a call: the path */
    const char *op;
};

struct allocation_list {
    struct allocation *items;
    size_t n_items, item_capacity;
    struct allocation_event *events;
    size_t n_events, event_capacity;
    int64_t *sizes;
    size_t n_sizes, size_capacity;
    size_t n_first;  /* items that are held when a window's list begins; they stand first */
    uint32_t *slots; /* of a device's list: open-addressing index into items by serial, +1; 0 is empty */
    size_t n_slots;
    bool is_broken; /* there was no memory for a part of it */
};

extern bool allocations_are_on; /* the only cost when off is to look at it */

/* A block is known by the number of its request; its cell and its bytes are those of held.h. */
void allocations_take(struct held *h, uint64_t serial, size_t cell, uint64_t bytes);
void allocations_give(struct held *h, uint64_t serial, size_t cell, uint64_t bytes);
void allocations_move(struct held *h, uint64_t serial, size_t cell, uint64_t bytes, tl_purpose purpose);
/* The op and the shape of a request that has been noted; shape NULL: it has none, as a workspace. */
void allocations_name(struct held *h, uint64_t serial, const char *op, tl_dtype dtype, int rank, const int64_t *shape);
void allocations_call(struct held *h, const char *op, uint32_t path, int phase);
void allocations_end(struct held *h); /* frees the device's list; windows keep theirs */

/* For held.c: where a window opens and closes. */
void allocations_open(struct held *h, struct held_window *w);
void allocations_close(struct held *h, struct held_window *w);
void allocations_free(struct held_window *w);

#endif

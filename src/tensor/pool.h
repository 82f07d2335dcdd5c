/* pool.h: one caching pool per device, the same policy on all of them.
 *
 * Since the policy depends on the target's numbers and on the order of requests alone, never on addresses, a
 * pool on meta takes the same segments, cuts the same blocks and fragments in the same way as the real one.
 */
#ifndef TENSOR_POOL_H
#define TENSOR_POOL_H

#include "tensor/device.h"
#include "tensor/held.h"

struct block; /* a piece of a segment */

struct pool *pool_new(tl_device *device);

/* A block of at least `bytes` (> 0), billed to (path, purpose). NULL: recorded as an error. */
struct block *pool_take(struct pool *pool, uint64_t bytes, uint32_t path, tl_purpose purpose);
void pool_give(struct pool *pool, struct block *block);
void pool_move(struct pool *pool, struct block *block, tl_purpose purpose);

/* Brings free blocks into an order that depends on nothing but which they are. What is then asked for in the same order
 * as before gets the same blocks, if what was taken then is taken now: a step that repeats has the same addresses,
 * whatever ran before it. */
void pool_order(struct pool *pool);

/* For the list of allocations (allocations.h), while it is on: what made a block, and its shape (NULL: it has none). */
void pool_name(struct pool *pool, const struct block *block, const char *op, tl_dtype dtype, int rank,
               const int64_t *shape);

void *block_data(const struct block *block); /* NULL on meta */

/* The state that determines a pool's future: which blocks have been allocated since when, and the free ones in
 * search order. When a layout comes back, every block that was taken then has been taken ever since; the same
 * requests as in between then meet with the same answers, to the same peaks, and lead to the same layout once more. */
struct pool_layout {
    uint64_t *words; /* memory_free it */
    size_t n, capacity;
};
bool pool_layout_read(struct pool *pool, struct pool_layout *layout); /* in place of what it held; false: no memory */
bool pool_layout_add(struct pool_layout *layout, uint64_t word);
bool pool_layout_copy(struct pool_layout *to, const struct pool_layout *from); /* false: no memory */
/* The part of it that is left when free blocks are brought into order (pool_order): where blocks are, and which. */
bool pool_blocks_read(struct pool *pool, struct pool_layout *layout);

/* Runs fn with the device's account locked. */
void pool_account(struct pool *pool, void (*fn)(struct held *held, void *context), void *context);

#endif

/* pool.c: a two-level segregated fit over cached segments.
 *
 * Segments come from the device (cudaMalloc, mmap, nothing at all on meta) and are cut into blocks. Free blocks are
 * kept in bins: the first level is the power of two of their size, the second splits each power into 32 equal steps,
 * and bitmaps mark non-empty bins, so allocating and freeing are O(1). Neighbouring free blocks of a segment merge
 * immediately, except the small block freed last, since the next request often has the same size. Small requests
 * have separate segments, so that they never split a large one. Empty segments stay cached and are returned to the
 * device on request (trim) or if an allocation would otherwise fail.
 *
 * Rejected: best fit by (size, address), as PyTorch does: addresses differ between devices, and a tree costs more
 * than the work of a small op.
 */
#include "tensor/pool.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/poison.h"
#include "tensor/allocations.h"

#define STEP_BITS 5
#define STEPS (1 << STEP_BITS)
#define POWERS 56 /* for requests of up to UINT64_MAX / 4 bytes in units of 64 */
#define SCAN 8    /* blocks of the request's own bin that are tried before larger bins */

struct segment {
    void *data;
    uint64_t bytes;
    struct block *first;
    struct segment *next, *previous;
    uint64_t serial; /* counts the segments of a pool */
    bool is_small;
};

struct block {
    struct segment *segment;
    uint64_t offset, bytes;        /* within the segment */
    struct block *before, *after;  /* neighbours in the segment */
    struct block *next, *previous; /* in its bin, when free */
    uint64_t asked_bytes;          /* when taken */
    size_t cell;                   /* of the account, when taken */
    uint64_t serial;               /* when taken: of the request */
    bool is_free;
};

struct heap { /* free blocks of small or of large segments */
    uint64_t powers;
    uint32_t steps[POWERS];
    struct block *bin[POWERS][STEPS];
};

struct pool {
    tl_device *device;
    lock lock;
    struct heap heap[2]; /* [0] large, [1] small */
    struct segment *segments;
    struct block *hot;   /* the small block freed last: in no bin, not merged */
    struct block *spare; /* block structs for reuse */
    uint64_t limit_bytes;
    uint64_t n_requests; /* that were met */
    uint64_t n_segments; /* that were taken */
    int align_shift;     /* log2 of the target's alignment */
    char why[200];       /* the last refusal of the device; not on the stack of every request */
    struct held held;
};

struct pool *pool_new(tl_device *device) {
    struct pool *pool = memory_new(sizeof *pool);
    if (!pool) return NULL;
    memset(pool, 0, sizeof *pool);
    pool->device = device;
    pool->limit_bytes = device->target->memory_bytes;
    pool->align_shift = __builtin_ctzll((unsigned long long)device->target->align_bytes);
    held_init(&pool->held);
    return pool;
}

/* ---- Bins ---- */

/* Sizes below 32 units each have a bin; from there on a power of two has 32. */
static void bin_of(uint64_t units, int *power, int *step) {
    if (units < STEPS) {
        *power = 0;
        *step = (int)units;
        return;
    }
    int log2 = 63 - __builtin_clzll((unsigned long long)units);
    *power = log2 - STEP_BITS + 1;
    *step = (int)(units >> (log2 - STEP_BITS)) - STEPS;
}

static struct heap *heap_of(struct pool *pool, const struct segment *s) { return &pool->heap[s->is_small]; }

static void bin_insert(struct pool *pool, struct block *b) {
    struct heap *heap = heap_of(pool, b->segment);
    int power, step;
    bin_of(b->bytes >> pool->align_shift, &power, &step);
    b->is_free = true;
    b->previous = NULL;
    b->next = heap->bin[power][step];
    if (b->next) b->next->previous = b;
    heap->bin[power][step] = b;
    heap->powers |= (uint64_t)1 << power;
    heap->steps[power] |= (uint32_t)1 << step;
}

static void bin_remove(struct pool *pool, struct block *b) {
    struct heap *heap = heap_of(pool, b->segment);
    int power, step;
    bin_of(b->bytes >> pool->align_shift, &power, &step);
    b->is_free = false;
    if (b->next) b->next->previous = b->previous;
    if (b->previous) {
        b->previous->next = b->next;
        return;
    }
    heap->bin[power][step] = b->next;
    if (b->next) return;
    heap->steps[power] &= ~((uint32_t)1 << step);
    if (!heap->steps[power]) heap->powers &= ~((uint64_t)1 << power);
}

/* Finds a free block of at least `bytes`: first in its own bin, then at the head of the next non-empty bin. */
static struct block *bin_find(struct pool *pool, struct heap *heap, uint64_t bytes) {
    int power, step;
    bin_of(bytes >> pool->align_shift, &power, &step);
    struct block *b = heap->bin[power][step];
    for (int i = 0; b && i < SCAN; i++, b = b->next)
        if (b->bytes >= bytes) return b;
    uint32_t steps = step + 1 < STEPS ? heap->steps[power] & (~(uint32_t)0 << (step + 1)) : 0;
    if (!steps) {
        uint64_t powers = heap->powers & (~(uint64_t)0 << (power + 1));
        if (!powers) return NULL;
        power = __builtin_ctzll(powers);
        steps = heap->steps[power];
    }
    return heap->bin[power][__builtin_ctz(steps)];
}

/* ---- Blocks and segments ---- */

static struct block *block_new(struct pool *pool) {
    if (memory_fault()) return NULL;
    struct block *b = pool->spare;
    if (b) pool->spare = b->next;
    else b = malloc(sizeof *b);
    return b;
}

static void block_free(struct pool *pool, struct block *b) {
    b->next = pool->spare;
    pool->spare = b;
}

static void segment_free(struct pool *pool, struct segment *s) {
    bin_remove(pool, s->first);
    block_free(pool, s->first);
    if (s->next) s->next->previous = s->previous;
    if (s->previous) s->previous->next = s->next;
    else pool->segments = s->next;
    UNPOISON(s->data, s->data ? s->bytes : 0);
    pool->device->functions->segment_free(pool->device, s->data, s->bytes);
    held_reserve(&pool->held, -(int64_t)s->bytes);
    memory_free(s);
}

static struct block *block_merge(struct pool *pool, struct block *first, struct block *second) {
    first->bytes += second->bytes;
    first->after = second->after;
    if (second->after) second->after->before = first;
    block_free(pool, second);
    return first;
}

/* Back into the bins, joined with its free neighbours. */
static void block_settle(struct pool *pool, struct block *b) {
    if (b->after && b->after->is_free) {
        bin_remove(pool, b->after);
        block_merge(pool, b, b->after);
    }
    if (b->before && b->before->is_free) {
        bin_remove(pool, b->before);
        b = block_merge(pool, b->before, b);
    }
    bin_insert(pool, b);
}

static void hot_settle(struct pool *pool) {
    if (pool->hot) block_settle(pool, pool->hot);
    pool->hot = NULL;
}

/* Returns every wholly free segment to the device; how many bytes that was. */
static uint64_t trim(struct pool *pool) {
    uint64_t bytes = 0;
    hot_settle(pool);
    for (struct segment *s = pool->segments, *next; s; s = next) {
        next = s->next;
        if (!s->first->is_free || s->first->after) continue;
        bytes += s->bytes;
        segment_free(pool, s);
    }
    return bytes;
}

/* A new segment with room for `bytes`, as one free block; NULL when the device or the limit refuses. */
static struct block *segment_new(struct pool *pool, uint64_t bytes, bool is_small) {
    const struct target *t = pool->device->target;
    uint64_t size = is_small                ? t->small_segment_bytes
                    : bytes < t->huge_bytes ? t->large_segment_bytes
                                            : round_up(bytes, t->segment_align_bytes);
    if (pool->limit_bytes && pool->held.reserved_bytes + size > pool->limit_bytes) {
        snprintf(pool->why, sizeof pool->why, "its pool may reserve %" PRIu64 " bytes", pool->limit_bytes);
        return NULL;
    }
    struct segment *s = memory_new(sizeof *s);
    struct block *b = s ? block_new(pool) : NULL;
    if (!b || memory_fault() || !pool->device->functions->segment_new(pool->device, size, &s->data, pool->why)) {
        if (b) block_free(pool, b);
        memory_free(s);
        return NULL;
    }
    s->bytes = size;
    s->serial = ++pool->n_segments;
    s->is_small = is_small;
    s->first = b;
    s->previous = NULL;
    s->next = pool->segments;
    if (s->next) s->next->previous = s;
    pool->segments = s;
    *b = (struct block){.segment = s, .bytes = size};
    POISON(s->data, s->data ? size : 0);
    bin_insert(pool, b);
    held_reserve(&pool->held, (int64_t)size);
    return b;
}

/* Cuts the tail off a block when it is worth keeping: any tail of a small block, a tail that could not have been a
 * small block of a large one. */
static bool block_split(struct pool *pool, struct block *b, uint64_t bytes) {
    const struct target *t = pool->device->target;
    uint64_t tail = b->bytes - bytes;
    if (tail == 0 || (!b->segment->is_small && tail <= t->small_bytes)) return true;
    struct block *rest = block_new(pool);
    if (!rest) return false;
    *rest = (struct block){
        .segment = b->segment, .offset = b->offset + bytes, .bytes = tail, .before = b, .after = b->after};
    if (b->after) b->after->before = rest;
    b->after = rest;
    b->bytes = bytes;
    bin_insert(pool, rest);
    return true;
}

/* ---- Taking and giving ---- */

/* Rounded up to the alignment, which is a power of two: a division would take a tenth of a small op's time. */
static uint64_t aligned(const struct pool *pool, uint64_t bytes) {
    const uint64_t align = (uint64_t)1 << pool->align_shift;
    return (bytes + align - 1) & ~(align - 1);
}

/* The bytes of a block that a request uses. The block may have a tail that was too small to be split off; whether it
 * has one depends on what was free at the time. Counts depend only on the requests, so a step counts the same
 * whatever ran before it. */
static uint64_t taken_bytes(const struct pool *pool, const struct block *b) { return aligned(pool, b->asked_bytes); }

static void block_bill(struct pool *pool, struct block *b, uint64_t bytes, size_t cell) {
    b->asked_bytes = bytes;
    b->cell = cell;
    b->serial = ++pool->n_requests;
    held_add(&pool->held, cell, bytes, taken_bytes(pool, b));
    if (allocations_are_on) allocations_take(&pool->held, b->serial, cell, bytes);
}

static struct block *take(struct pool *pool, uint64_t bytes, uint32_t path, tl_purpose purpose) {
    const struct target *t = pool->device->target;
    uint64_t rounded = aligned(pool, bytes);
    bool is_small = rounded <= t->small_bytes;
    size_t cell = held_cell_of(&pool->held, path, purpose);
    if (cell == SIZE_MAX || memory_fault()) return NULL;
    struct block *b = pool->hot;
    if (b && b->bytes == rounded) {
        pool->hot = NULL;
        block_bill(pool, b, bytes, cell);
        return b;
    }
    b = bin_find(pool, &pool->heap[is_small], rounded);
    if (!b && pool->hot) { /* it may be the missing neighbour */
        hot_settle(pool);
        b = bin_find(pool, &pool->heap[is_small], rounded);
    }
    if (!b) b = segment_new(pool, rounded, is_small);
    uint64_t returned = b ? 0 : trim(pool);
    if (returned) b = segment_new(pool, rounded, is_small);
    if (returned)
        log_line("%s: returned %" PRIu64 " unused bytes to make room for %" PRIu64, pool->device->name, returned,
                 rounded);
    if (!b) return NULL;
    bin_remove(pool, b);
    if (!block_split(pool, b, rounded)) {
        bin_insert(pool, b);
        return NULL;
    }
    block_bill(pool, b, bytes, cell);
    return b;
}

/* The message is written without the lock, from a copy. */
__attribute__((noinline)) static bool out_of_memory(struct pool *pool, uint64_t bytes) {
    char why[sizeof pool->why];
    lock_take(&pool->lock);
    const struct held held = pool->held, *h = &held;
    memcpy(why, pool->why, sizeof why);
    lock_release(&pool->lock);
    char what[400];
    size_t used = 0;
    for (int p = 0; p < TL_PURPOSE_COUNT; p++)
        if (h->by_purpose[p] && used < sizeof what)
            used += (size_t)snprintf(what + used, sizeof what - used, "%s%s %llu", used ? ", " : "",
                                     tl_purpose_name((tl_purpose)p), (unsigned long long)h->by_purpose[p]);
    return error_set(TL_ERROR_MEMORY, "out of memory on %s: %" PRIu64 " bytes asked, %llu live (%s), %llu reserved%s%s",
                     pool->device->name, bytes, (unsigned long long)h->live_bytes, used ? what : "nothing",
                     (unsigned long long)h->reserved_bytes, *why ? "; " : "", why);
}

/* How many bytes of a block may be read. Kernels of a GPU read the last elements of a tensor in whole packs. */
static uint64_t readable_bytes(const struct pool *pool, uint64_t bytes) {
    return device_is_host(pool->device) ? bytes : (bytes + 15) / 16 * 16;
}

struct block *pool_take(struct pool *pool, uint64_t bytes, uint32_t path, tl_purpose purpose) {
    lock_take(&pool->lock);
    pool->why[0] = 0;
    struct block *b = bytes > UINT64_MAX / 4 ? NULL : take(pool, bytes, path, purpose);
    lock_release(&pool->lock);
    if (!b) out_of_memory(pool, bytes);
    else UNPOISON(block_data(b), b->segment->data ? readable_bytes(pool, bytes) : 0);
    return b;
}

void pool_give(struct pool *pool, struct block *b) {
    POISON(block_data(b), b->segment->data ? b->bytes : 0);
    lock_take(&pool->lock);
    INVARIANT(!b->is_free && b != pool->hot); /* given back twice */
    if (allocations_are_on) allocations_give(&pool->held, b->serial, b->cell, b->asked_bytes);
    held_remove(&pool->held, b->cell, b->asked_bytes, taken_bytes(pool, b));
    hot_settle(pool);
    if (b->segment->is_small) pool->hot = b;
    else block_settle(pool, b);
    lock_release(&pool->lock);
}

void pool_move(struct pool *pool, struct block *b, tl_purpose purpose) {
    lock_take(&pool->lock);
    size_t cell = held_cell_of(&pool->held, pool->held.cells[b->cell].path, purpose);
    if (cell != SIZE_MAX) { /* without memory for a new cell the bytes stay under their old purpose */
        if (allocations_are_on) allocations_move(&pool->held, b->serial, b->cell, b->asked_bytes, purpose);
        held_move(&pool->held, b->cell, cell, b->asked_bytes);
        b->cell = cell;
    }
    lock_release(&pool->lock);
}

void pool_name(struct pool *pool, const struct block *b, const char *op, tl_dtype dtype, int rank,
               const int64_t *shape) {
    lock_take(&pool->lock);
    allocations_name(&pool->held, b->serial, op, dtype, rank, shape);
    lock_release(&pool->lock);
}

/* ---- Order ---- */

static bool comes_before(const struct block *a, const struct block *b) {
    return a->segment->serial != b->segment->serial ? a->segment->serial < b->segment->serial : a->offset < b->offset;
}

/* A bin is short, and mostly in order already. */
static struct block *bin_order(struct block *first) {
    struct block *ordered = NULL, *last = NULL;
    for (struct block *b = first, *next; b; b = next) {
        struct block *before = last;
        next = b->next;
        while (before && comes_before(b, before)) before = before->previous;
        b->previous = before;
        b->next = before ? before->next : ordered;
        if (b->next) b->next->previous = b;
        else last = b;
        *(before ? &before->next : &ordered) = b;
    }
    return ordered;
}

void pool_order(struct pool *pool) {
    lock_take(&pool->lock);
    hot_settle(pool);
    for (int i = 0; i < 2; i++)
        for (int power = 0; power < POWERS; power++)
            for (int step = 0; pool->heap[i].steps[power] && step < STEPS; step++)
                pool->heap[i].bin[power][step] = bin_order(pool->heap[i].bin[power][step]);
    lock_release(&pool->lock);
}

void *block_data(const struct block *b) { return b->segment->data ? (char *)b->segment->data + b->offset : NULL; }

void pool_account(struct pool *pool, void (*fn)(struct held *, void *), void *context) {
    lock_take(&pool->lock);
    fn(&pool->held, context);
    lock_release(&pool->lock);
}

/* ---- The layout ---- */

bool pool_layout_add(struct pool_layout *l, uint64_t word) {
    if (!memory_grow((void **)&l->words, &l->capacity, l->n, sizeof *l->words)) return false;
    l->words[l->n++] = word;
    return true;
}

bool pool_layout_copy(struct pool_layout *to, const struct pool_layout *from) {
    if (to->capacity < from->n) {
        uint64_t *words = memory_resize(to->words, from->n * sizeof *words);
        if (!words) return false;
        to->words = words;
        to->capacity = from->n;
    }
    if (from->n) memcpy(to->words, from->words, from->n * sizeof *from->words);
    to->n = from->n;
    return true;
}

/* A free block is known by its size, and by its place in its bin: what is taken on both its sides stays taken, so it
 * is cut up and joined again within its own bounds, wherever they are. Two things may change them: a segment that is
 * free as a whole can go back to the device, and the hot block joins its neighbours. */
static bool bins_describe(const struct pool *pool, const struct heap *heap, struct pool_layout *l) {
    bool ok = pool_layout_add(l, heap->powers);
    for (int power = 0; power < POWERS; power++)
        for (int step = 0; heap->steps[power] && step < STEPS; step++)
            for (const struct block *b = heap->bin[power][step]; ok && b; b = b->next) {
                unsigned is_whole = !b->before && !b->after, is_left = pool->hot && b->after == pool->hot,
                         is_right = pool->hot && b->before == pool->hot;
                ok = pool_layout_add(l, b->bytes) && pool_layout_add(l, is_whole | is_left << 1 | is_right << 2);
            }
    return ok;
}

bool pool_layout_read(struct pool *pool, struct pool_layout *l) {
    l->n = 0;
    lock_take(&pool->lock);
    bool ok = pool_layout_add(l, pool->hot ? pool->hot->bytes : 0);
    for (const struct segment *s = pool->segments; ok && s; s = s->next)
        for (const struct block *b = s->first; ok && b; b = b->after)
            if (!b->is_free && b != pool->hot) ok = pool_layout_add(l, b->serial);
    for (int i = 0; ok && i < 2; i++) ok = bins_describe(pool, &pool->heap[i], l);
    lock_release(&pool->lock);
    return ok;
}

/* The segment, then for each taken block the free bytes before it and its serial; free bytes at the end. Free
 * neighbours count as one: the hot block joins them before anything is ordered. */
static bool segment_describe(const struct pool *pool, const struct segment *s, struct pool_layout *l) {
    uint64_t n_free = 0;
    bool ok = pool_layout_add(l, s->bytes << 1 | s->is_small);
    for (const struct block *b = s->first; ok && b; b = b->after) {
        const bool is_taken = !b->is_free && b != pool->hot;
        if (!is_taken) n_free += b->bytes;
        if (!is_taken && b->after) continue;
        ok = pool_layout_add(l, n_free) && (!is_taken || pool_layout_add(l, b->serial));
        n_free = 0;
    }
    return ok;
}

bool pool_blocks_read(struct pool *pool, struct pool_layout *l) {
    bool ok = true;
    l->n = 0;
    lock_take(&pool->lock);
    for (const struct segment *s = pool->segments; ok && s; s = s->next) ok = segment_describe(pool, s, l);
    lock_release(&pool->lock);
    return ok;
}

/* ---- Public ---- */

void tl_set_pool_limit(tl_device *device, uint64_t limit_bytes) {
    if (device) device->pool->limit_bytes = limit_bytes ? limit_bytes : device->target->memory_bytes;
}

void tl_pool_trim(tl_device *device) {
    if (!device) return;
    lock_take(&device->pool->lock);
    trim(device->pool);
    lock_release(&device->pool->lock);
}

static void memory_read(struct held *h, void *context) {
    *(tl_memory *)context = (tl_memory){.live_bytes = h->live_bytes,
                                        .peak_bytes = h->peak_bytes,
                                        .allocated_bytes = h->allocated_bytes,
                                        .reserved_bytes = h->reserved_bytes,
                                        .peak_reserved_bytes = h->peak_reserved_bytes,
                                        .live_tensors = h->n_storages};
}

tl_memory tl_device_memory(const tl_device *device) {
    tl_memory memory = {0};
    if (!device) return memory;
    pool_account(device->pool, memory_read, &memory);
    if (device->functions->used) device->functions->used(device, &memory.device_used_bytes, &memory.device_total_bytes);
    return memory;
}

static void peak_reset(struct held *h, void *context) {
    (void)context;
    held_peak_restart(h);
}

void tl_memory_reset_peak(tl_device *device) {
    if (device) pool_account(device->pool, peak_reset, NULL);
}

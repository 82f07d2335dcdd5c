/* sort_rule.h: how lines are sorted on a GPU, and what room that takes. The workspace rules (device/cuda/rules.c)
 * and the kernels (device/cuda/ops/sort.cuh) both read this.
 *
 * Keys are sorted by one digit of 8 bits after the other, the lowest first. A line of one tile is sorted by one
 * block without a workspace, and so is one of which only few places are wanted. Longer lines, as many as SORT_SPAN
 * elements have, are sorted side by side between two arrays of keys and places; the last digit, or of wide keys the
 * last that is not the same in all, puts results where they belong.
 *
 * Lines along an axis that is not the innermost are *columns*, which begin side by side. Those of a long line are
 * turned into rows of keys first, in the array that the first digit does not write, and the last digit moves keys
 * and places once more: then both are turned back while results are put.
 */
#ifndef DEVICE_CUDA_SORT_RULE_H
#define DEVICE_CUDA_SORT_RULE_H

#include "tally.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    SORT_THREADS = 256,
    SORT_EACH = 12, /* elements of a tile for each thread: keys and places of 8 bytes fit into shared memory */
    SORT_TILE = SORT_THREADS * SORT_EACH,
    SORT_DIGITS = 256,    /* values of a digit, one for each thread */
    SORT_FEW = 2048,      /* the most places that are selected instead */
    SORT_ALIGN = 256,     /* bytes */
    SORT_SPAN = 1 << 21,  /* elements of several lines: enough tiles for all multiprocessors */
    SORT_ABREAST = 8,     /* the fewest columns worth turning: 4 bytes of each are what memory fetches at once */
    SORT_COLUMN = 1 << 22 /* elements of the longest: eight of those need half a GiB for keys of 32 bits */
};

/* Whether lines along an axis are columns that are turned. */
static inline bool sort_is_of_columns(const int64_t *shape, int rank, int axis) {
    int64_t abreast = 1;
    if (shape[axis] > SORT_COLUMN) return false;
    for (int i = axis + 1; i < rank && abreast < SORT_ABREAST; i++) abreast *= shape[i];
    return abreast >= SORT_ABREAST;
}

/* Bytes of a key: floats of 16 bits have keys of their own size, and all other types of at most 32 bits those of 32. */
static inline int sort_key_bytes(tl_dtype dtype) {
    return dtype == TL_F64 || dtype == TL_I64 ? 8 : dtype == TL_F16 || dtype == TL_BF16 ? 2 : 4;
}

/* Whether selecting the first k of n is faster than sorting all. A block has a line: long ones must be many. */
static inline bool sort_selects(int64_t n_lines, int64_t n, int64_t k) {
    return n > 512 && n <= INT32_MAX && k <= SORT_FEW && k <= n / 4 && (n <= 1 << 16 || n_lines >= 64);
}

/* Lines that are sorted side by side; of columns, whatever memory fetches at once is of the same ones. */
static inline int64_t sort_slots(int64_t n_lines, int64_t n, bool has_columns) {
    int64_t most = n < SORT_SPAN ? SORT_SPAN / n : 1;
    if (has_columns) most = most / SORT_ABREAST * SORT_ABREAST;
    if (has_columns && most < SORT_ABREAST) most = SORT_ABREAST;
    return n_lines < most ? n_lines : most;
}

/* Where the parts of the workspace begin, in bytes; (a, b, c) are arrays. It begins with the words (slot, tile, digit)
 * by which tiles learn from those before them, in one pass after the other. Passes are the bytes of a key. */
struct sort_room {
    uint64_t counts;         /* (slot, pass, digit) u32: keys with a digit, then with lower ones */
    uint64_t tickets, skips; /* (slot, pass) u32: tiles that have begun; whether all keys have the same digit */
    uint64_t zeroed;         /* all before here begins as 0 */
    /* (slot, n); for two passes over rows the same: the last one reads what the first has written */
    uint64_t keys[2], places[2];
    uint64_t all;
};
static inline struct sort_room sort_room_of(int64_t n_slots, int64_t n, int key_bytes, bool has_columns) {
    const uint64_t n_tiles = (uint64_t)((n + SORT_TILE - 1) / SORT_TILE),
                   passes = (uint64_t)n_slots * (uint64_t)key_bytes, elements = (uint64_t)n_slots * (uint64_t)n;
    struct sort_room room;
    room.counts = (uint64_t)n_slots * n_tiles * SORT_DIGITS * 8;
    room.tickets = room.counts + passes * SORT_DIGITS * 4;
    room.skips = room.tickets + passes * 4;
    room.zeroed = (room.skips + passes * 4 + SORT_ALIGN - 1) / SORT_ALIGN * SORT_ALIGN;
    room.all = room.zeroed;
    for (int k = 0; k < 2; k++) {
        room.keys[k] = key_bytes > 2 || has_columns ? room.all : room.zeroed;
        room.places[k] = (room.keys[k] + elements * (uint64_t)key_bytes + SORT_ALIGN - 1) / SORT_ALIGN * SORT_ALIGN;
        room.all = (room.places[k] + elements * 4 + SORT_ALIGN - 1) / SORT_ALIGN * SORT_ALIGN;
    }
    return room;
}

/* The workspace for the first k of each line of n. */
static inline uint64_t sort_bytes(int64_t n_lines, int64_t n, int64_t k, int key_bytes, bool has_columns) {
    if (!n_lines || !k || n <= SORT_TILE || sort_selects(n_lines, n, k)) return 0;
    return sort_room_of(sort_slots(n_lines, n, has_columns), n, key_bytes, has_columns).all;
}

#endif

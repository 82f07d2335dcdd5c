/* held.h: what a device holds now, for what and for whom, and what it held at its peak.
 *
 * Bytes are counted in cells, one per (path, purpose). A *window* remembers the highest total since it was opened,
 * and what the cells were then; windows nest, so that each bracket of the ledger has its own peak. The caller holds
 * the lock.
 */
#ifndef TENSOR_HELD_H
#define TENSOR_HELD_H

#include "tally.h"

struct held_cell {
    uint32_t path; /* an interned module path; see account/path.h */
    uint16_t purpose;
    bool has_changed; /* since the innermost window has a copy of it */
    uint64_t bytes;
};

struct held_window {
    uint64_t peak_bytes, peak_allocated_bytes, peak_reserved_bytes;
    uint64_t peak_passing_bytes; /* the most that was neither parameter nor gradient nor optimizer state */
    uint64_t peak_by_purpose[TL_PURPOSE_COUNT];
    struct held_cell *cells; /* what was live at the peak; NULL when there was no memory to keep it */
    size_t n_cells, cell_capacity;
    bool is_fresh; /* the cells are at the peak right now: keep a copy before they fall */
    struct held_window *outer;
    struct allocation_mark *mark; /* of an open window whose list is kept (allocations.h); NULL: it is not */
    struct allocation_list *list; /* of a closed one; NULL: there is none */
};

struct held {
    uint64_t live_bytes, allocated_bytes, reserved_bytes, n_storages;
    uint64_t peak_bytes, peak_reserved_bytes; /* since the last held_peak_restart, whatever windows are open */
    uint64_t by_purpose[TL_PURPOSE_COUNT];
    struct held_cell *cells;
    size_t n_cells, cell_capacity;
    uint32_t *slots; /* open-addressing index into cells, +1; 0 is empty */
    size_t n_slots;
    size_t last_cell; /* most requests ask for the same one again */
    struct held_window root, *window;
    /* Cells that the innermost window's copy lacks, so that a peak that rises op by op costs what has changed and
     * not all of them. */
    size_t *changed, n_changed, changed_capacity;
    bool all_changed;
    struct allocation_list *allocations; /* NULL: none are listed */
    uint64_t n_lists;                    /* that there were so far */
};

void held_init(struct held *h);

/* The cell of (path, purpose), made when new; SIZE_MAX when there is no memory. */
size_t held_cell_of(struct held *h, uint32_t path, tl_purpose purpose);

/* Adds to or takes from a cell: `bytes` as asked for, `block_bytes` rounded up to the pool's alignment. */
void held_add(struct held *h, size_t cell, uint64_t bytes, uint64_t block_bytes);
void held_remove(struct held *h, size_t cell, uint64_t bytes, uint64_t block_bytes);
void held_move(struct held *h, size_t from, size_t to, uint64_t bytes); /* same bytes, other purpose */
void held_reserve(struct held *h, int64_t bytes);

void held_window_open(struct held *h, struct held_window *w);
void held_window_close(struct held *h); /* the innermost; what it saw goes to the one around it as well */
void held_peak_restart(struct held *h); /* forgets the device's own peak; windows keep theirs */
void held_window_clear(struct held_window *w);

#endif

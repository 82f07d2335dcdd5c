#include "tensor/held.h"

#include <string.h>

#include "base/memory.h"
#include "tensor/allocations.h"

void held_init(struct held *h) {
    memset(h, 0, sizeof *h);
    h->window = &h->root;
}

static size_t slot_of(const struct held *h, uint32_t path, uint32_t purpose) {
    uint64_t key = ((uint64_t)path << 8 | purpose) * 0x9E3779B97F4A7C15u;
    size_t at = (size_t)(key >> 32) & (h->n_slots - 1);
    while (h->slots[at]) {
        const struct held_cell *cell = &h->cells[h->slots[at] - 1];
        if (cell->path == path && cell->purpose == purpose) break;
        at = (at + 1) & (h->n_slots - 1);
    }
    return at;
}

/* Keeps the index at most half full. */
static bool slots_grow(struct held *h) {
    if (h->n_slots >= 2 * (h->n_cells + 1)) return true;
    size_t larger = h->n_slots ? h->n_slots * 2 : 64;
    uint32_t *slots = memory_new(larger * sizeof *slots);
    if (!slots) return false;
    memset(slots, 0, larger * sizeof *slots);
    memory_free(h->slots);
    h->slots = slots;
    h->n_slots = larger;
    for (size_t i = 0; i < h->n_cells; i++)
        h->slots[slot_of(h, h->cells[i].path, h->cells[i].purpose)] = (uint32_t)i + 1;
    return true;
}

size_t held_cell_of(struct held *h, uint32_t path, tl_purpose purpose) {
    const struct held_cell *last = h->n_cells ? h->cells + h->last_cell : NULL;
    if (last && last->path == path && last->purpose == purpose) return h->last_cell;
    if (!h->slots && !slots_grow(h)) return SIZE_MAX;
    size_t at = slot_of(h, path, purpose);
    if (h->slots[at]) return h->last_cell = h->slots[at] - 1;
    if (!memory_grow((void **)&h->cells, &h->cell_capacity, h->n_cells, sizeof *h->cells)) return SIZE_MAX;
    if (!slots_grow(h)) return SIZE_MAX;
    h->cells[h->n_cells] = (struct held_cell){.path = path, .purpose = (uint16_t)purpose};
    h->slots[slot_of(h, path, purpose)] = (uint32_t)++h->n_cells;
    return h->n_cells - 1;
}

/* Bytes that a step holds temporarily: everything except what is kept for the next step. Sharding splits the latter,
 * not the former. */
static uint64_t passing_bytes(const struct held *h) {
    return h->live_bytes - h->by_purpose[TL_PARAMETER] - h->by_purpose[TL_GRADIENT] - h->by_purpose[TL_OPTIMIZER];
}

/* Without memory for the list the next copy is of all. */
__attribute__((noinline, cold)) static void cell_note(struct held *h, size_t cell) {
    if (!memory_grow((void **)&h->changed, &h->changed_capacity, h->n_changed, sizeof *h->changed)) {
        h->all_changed = true; /* its mark is not set: it is tried again */
        return;
    }
    h->cells[cell].has_changed = true;
    h->changed[h->n_changed++] = cell;
}

static inline void cell_change(struct held *h, size_t cell) {
    if (!h->cells[cell].has_changed) cell_note(h, cell);
}

void held_add(struct held *h, size_t cell, uint64_t bytes, uint64_t block_bytes) {
    cell_change(h, cell);
    h->cells[cell].bytes += bytes;
    h->by_purpose[h->cells[cell].purpose] += bytes;
    h->live_bytes += bytes;
    h->allocated_bytes += block_bytes;
    h->n_storages++;
    if (h->live_bytes > h->peak_bytes) h->peak_bytes = h->live_bytes;
    struct held_window *w = h->window;
    if (h->live_bytes > w->peak_bytes) {
        w->peak_bytes = h->live_bytes;
        w->is_fresh = true;
    }
    if (h->allocated_bytes > w->peak_allocated_bytes) w->peak_allocated_bytes = h->allocated_bytes;
    if (passing_bytes(h) > w->peak_passing_bytes) w->peak_passing_bytes = passing_bytes(h);
}

static void cells_copy(struct held *h, struct held_window *w) {
    for (size_t i = 0; i < h->n_changed; i++) {
        h->cells[h->changed[i]].has_changed = false;
        w->cells[h->changed[i]] = h->cells[h->changed[i]];
    }
    if (h->all_changed) memcpy(w->cells, h->cells, h->n_cells * sizeof *w->cells);
    h->n_changed = 0;
    h->all_changed = false;
    w->n_cells = h->n_cells;
}

/* Copies the cells of a window that is at its peak, while they still are. */
static void window_keep(struct held *h) {
    struct held_window *w = h->window;
    if (!w->is_fresh) return;
    w->is_fresh = false;
    memcpy(w->peak_by_purpose, h->by_purpose, sizeof w->peak_by_purpose);
    if (!h->n_cells) return; /* nothing was ever held here */
    if (!w->cells) h->all_changed = true;
    if (!w->cells || w->cell_capacity < h->n_cells) {
        struct held_cell *copy = memory_resize(w->cells, h->cell_capacity * sizeof *copy);
        if (!copy) {
            held_window_clear(w);
            return;
        }
        w->cells = copy;
        w->cell_capacity = h->cell_capacity;
    }
    cells_copy(h, w);
}

void held_remove(struct held *h, size_t cell, uint64_t bytes, uint64_t block_bytes) {
    if (bytes) window_keep(h);
    cell_change(h, cell);
    h->cells[cell].bytes -= bytes;
    h->by_purpose[h->cells[cell].purpose] -= bytes;
    h->live_bytes -= bytes;
    h->allocated_bytes -= block_bytes;
    h->n_storages--;
}

void held_move(struct held *h, size_t from, size_t to, uint64_t bytes) {
    cell_change(h, from);
    cell_change(h, to);
    h->cells[from].bytes -= bytes;
    h->cells[to].bytes += bytes;
    h->by_purpose[h->cells[from].purpose] -= bytes;
    h->by_purpose[h->cells[to].purpose] += bytes;
}

void held_reserve(struct held *h, int64_t bytes) {
    h->reserved_bytes += (uint64_t)bytes;
    if (h->reserved_bytes > h->peak_reserved_bytes) h->peak_reserved_bytes = h->reserved_bytes;
    if (h->reserved_bytes > h->window->peak_reserved_bytes) h->window->peak_reserved_bytes = h->reserved_bytes;
}

/* A window starts at what is held already: that is part of its peak. */
static void window_start(struct held *h, struct held_window *w) {
    w->peak_bytes = h->live_bytes;
    w->peak_allocated_bytes = h->allocated_bytes;
    w->peak_reserved_bytes = h->reserved_bytes;
    w->peak_passing_bytes = passing_bytes(h);
    w->is_fresh = true;
}

void held_window_open(struct held *h, struct held_window *w) {
    window_keep(h);
    memset(w, 0, sizeof *w);
    w->outer = h->window;
    h->window = w;
    h->all_changed = true;
    window_start(h, w);
    if (allocations_are_on) allocations_open(h, w);
}

void held_window_close(struct held *h) {
    window_keep(h);
    struct held_window *w = h->window, *outer = w->outer;
    h->window = outer;
    if (w->mark) allocations_close(h, w);
    h->all_changed = true; /* since its copy was made, or it gets another below */
    if (w->peak_bytes > outer->peak_bytes) {
        outer->peak_bytes = w->peak_bytes;
        memcpy(outer->peak_by_purpose, w->peak_by_purpose, sizeof w->peak_by_purpose);
        held_window_clear(outer);
        outer->cells = w->cells ? memory_new(w->n_cells * sizeof *w->cells) : NULL;
        if (outer->cells) {
            memcpy(outer->cells, w->cells, w->n_cells * sizeof *w->cells);
            outer->n_cells = outer->cell_capacity = w->n_cells;
        }
    }
    if (w->peak_allocated_bytes > outer->peak_allocated_bytes) outer->peak_allocated_bytes = w->peak_allocated_bytes;
    if (w->peak_reserved_bytes > outer->peak_reserved_bytes) outer->peak_reserved_bytes = w->peak_reserved_bytes;
    if (w->peak_passing_bytes > outer->peak_passing_bytes) outer->peak_passing_bytes = w->peak_passing_bytes;
}

void held_peak_restart(struct held *h) {
    h->peak_bytes = h->live_bytes;
    h->peak_reserved_bytes = h->reserved_bytes;
}

void held_window_clear(struct held_window *w) {
    memory_free(w->cells);
    w->cells = NULL;
    w->n_cells = w->cell_capacity = 0;
}

const char *tl_purpose_name(tl_purpose purpose) {
    static const char *const name[] = {"temporary",  "parameter", "gradient", "optimizer",
                                       "activation", "workspace", "data",     "communication"};
    return (unsigned)purpose < TL_PURPOSE_COUNT ? name[purpose] : "?";
}

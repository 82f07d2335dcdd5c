#include "tensor/allocations.h"

#include <string.h>

#include "base/memory.h"

bool allocations_are_on;

/* Of a window that is open: where its list begins. */
struct allocation_mark {
    uint64_t n_lists; /* as the device's when it opened: no other list will do */
    size_t n_events, n_items;
    uint8_t *first; /* for each item that there was: 1 + its purpose if it is live, or 0 */
    struct held_cell *cells;
    size_t n_cells;
};

static void list_free(struct allocation_list *list) {
    if (!list) return;
    memory_free(list->items);
    memory_free(list->events);
    memory_free(list->sizes);
    memory_free(list->slots);
    memory_free(list);
}

static void *zeroed(size_t bytes) {
    void *p = memory_new(bytes ? bytes : 1);
    return p ? memset(p, 0, bytes) : NULL;
}

/* ---- The device's list ---- */

static size_t slot_of(const struct allocation_list *l, uint64_t serial) {
    size_t at = (size_t)(serial * 0x9E3779B97F4A7C15u >> 32) & (l->n_slots - 1);
    while (l->slots[at] && l->items[l->slots[at] - 1].serial != serial) at = (at + 1) & (l->n_slots - 1);
    return at;
}

/* Keeps the index at most half full. */
static bool slots_grow(struct allocation_list *l) {
    if (l->n_slots >= 2 * (l->n_items + 1)) return true;
    size_t larger = l->n_slots ? l->n_slots * 2 : 256;
    uint32_t *slots = zeroed(larger * sizeof *slots);
    if (!slots) return false;
    memory_free(l->slots);
    l->slots = slots;
    l->n_slots = larger;
    for (size_t i = 0; i < l->n_items; i++) l->slots[slot_of(l, l->items[i].serial)] = (uint32_t)i + 1;
    return true;
}

static struct allocation *item_add(struct allocation_list *l, struct allocation item, bool is_indexed) {
    l->is_broken = l->is_broken || l->n_items >= UINT32_MAX / 4 || (is_indexed && !slots_grow(l)) ||
                   !memory_grow((void **)&l->items, &l->item_capacity, l->n_items, sizeof *l->items);
    if (l->is_broken) return NULL;
    l->items[l->n_items] = item;
    if (is_indexed) l->slots[slot_of(l, item.serial)] = (uint32_t)l->n_items + 1;
    return &l->items[l->n_items++];
}

static void event_add(struct allocation_list *l, struct allocation_event event) {
    l->is_broken =
        l->is_broken || !memory_grow((void **)&l->events, &l->event_capacity, l->n_events, sizeof *l->events);
    if (!l->is_broken) l->events[l->n_events++] = event;
}

/* Made when it is first needed. NULL: there is no memory for it. */
static struct allocation_list *list_of(struct held *h) {
    if (!h->allocations) h->allocations = zeroed(sizeof *h->allocations);
    return h->allocations && !h->allocations->is_broken ? h->allocations : NULL;
}

static struct allocation *item_new(struct held *h, struct allocation_list *l, uint64_t serial, size_t cell,
                                   uint64_t bytes, bool is_older) {
    const struct held_cell *own = &h->cells[cell];
    return item_add(l,
                    (struct allocation){.bytes = bytes,
                                        .serial = serial,
                                        .path = own->path,
                                        .purpose = (uint8_t)own->purpose,
                                        .now = (uint8_t)own->purpose,
                                        .dtype = TL_DTYPE_COUNT,
                                        .is_live = true,
                                        .is_older = is_older},
                    true);
}

/* The item of a block, which gets one now if it is older than the list. */
static struct allocation *item_of(struct held *h, struct allocation_list *l, uint64_t serial, size_t cell,
                                  uint64_t bytes) {
    uint32_t slot = l->slots ? l->slots[slot_of(l, serial)] : 0;
    return slot ? &l->items[slot - 1] : item_new(h, l, serial, cell, bytes, true);
}

void allocations_take(struct held *h, uint64_t serial, size_t cell, uint64_t bytes) {
    struct allocation_list *l = list_of(h);
    struct allocation *item = l ? item_new(h, l, serial, cell, bytes, false) : NULL;
    if (item) event_add(l, (struct allocation_event){.kind = ALLOCATION_TAKE, .item = (uint32_t)(item - l->items)});
}

void allocations_give(struct held *h, uint64_t serial, size_t cell, uint64_t bytes) {
    struct allocation_list *l = list_of(h);
    struct allocation *item = l ? item_of(h, l, serial, cell, bytes) : NULL;
    if (!item) return;
    item->is_live = false;
    event_add(l, (struct allocation_event){.kind = ALLOCATION_GIVE, .item = (uint32_t)(item - l->items)});
}

void allocations_move(struct held *h, uint64_t serial, size_t cell, uint64_t bytes, tl_purpose purpose) {
    struct allocation_list *l = list_of(h);
    struct allocation *item = l ? item_of(h, l, serial, cell, bytes) : NULL;
    if (!item) return;
    item->now = (uint8_t)purpose;
    event_add(l, (struct allocation_event){
                     .kind = ALLOCATION_MOVE, .value = (uint8_t)purpose, .item = (uint32_t)(item - l->items)});
}

void allocations_name(struct held *h, uint64_t serial, const char *op, tl_dtype dtype, int rank, const int64_t *shape) {
    struct allocation_list *l = list_of(h);
    uint32_t slot = l && l->slots ? l->slots[slot_of(l, serial)] : 0;
    if (!slot) return;
    struct allocation *item = &l->items[slot - 1];
    item->op = op;
    item->dtype = (uint8_t)dtype;
    item->has_shape = shape != NULL;
    item->rank = (uint8_t)(shape ? rank : 0);
    item->shape = l->n_sizes;
    for (int i = 0; i < item->rank && !l->is_broken; i++) {
        l->is_broken = !memory_grow((void **)&l->sizes, &l->size_capacity, l->n_sizes, sizeof *l->sizes);
        if (!l->is_broken) l->sizes[l->n_sizes++] = shape[i];
    }
}

void allocations_call(struct held *h, const char *op, uint32_t path, int phase) {
    struct allocation_list *l = list_of(h);
    if (!l) return;
    struct allocation_event event = {.kind = ALLOCATION_CALL, .value = (uint8_t)phase, .item = path, .op = op};
    event_add(l, event);
}

void allocations_end(struct held *h) {
    list_free(h->allocations);
    h->allocations = NULL;
    h->n_lists++;
}

/* ---- The list of a window ---- */

static void mark_free(struct allocation_mark *m) {
    if (!m) return;
    memory_free(m->first);
    memory_free(m->cells);
    memory_free(m);
}

void allocations_open(struct held *h, struct held_window *w) {
    struct allocation_list *l = list_of(h);
    struct allocation_mark *m = l ? zeroed(sizeof *m) : NULL;
    if (!m) return;
    m->first = zeroed(l->n_items);
    m->cells = zeroed(h->n_cells * sizeof *m->cells);
    if (!m->first || !m->cells) {
        mark_free(m);
        return;
    }
    m->n_lists = h->n_lists;
    m->n_events = l->n_events;
    m->n_items = l->n_items;
    for (size_t i = 0; i < l->n_items; i++) m->first[i] = (uint8_t)(l->items[i].is_live ? 1 + l->items[i].now : 0);
    m->n_cells = h->n_cells;
    if (h->n_cells) memcpy(m->cells, h->cells, h->n_cells * sizeof *m->cells);
    w->mark = m;
}

/* Copies an item with its shape; its number in the copy. */
static uint32_t item_copy(struct allocation_list *to, const struct allocation_list *from, size_t at, uint8_t purpose) {
    struct allocation item = from->items[at];
    item.purpose = purpose;
    item.shape = to->n_sizes;
    for (int i = 0; i < item.rank && !to->is_broken; i++) {
        to->is_broken = !memory_grow((void **)&to->sizes, &to->size_capacity, to->n_sizes, sizeof *to->sizes);
        if (!to->is_broken) to->sizes[to->n_sizes++] = from->sizes[from->items[at].shape + (size_t)i];
    }
    return item_add(to, item, false) ? (uint32_t)to->n_items - 1 : 0;
}

/* What was held when the window opened: items, and for the rest of each cell, which no item explains, one of its own.
 * numbers: of items of the device's list in the copy, +1. */
static void first_copy(struct held *h, struct allocation_mark *m, const struct allocation_list *from,
                       struct allocation_list *to, uint32_t *numbers) {
    for (size_t i = 0; i < from->n_items; i++) {
        bool is_older = i >= m->n_items && from->items[i].is_older;
        if (!is_older && (i >= m->n_items || !m->first[i])) continue;
        uint8_t purpose = is_older ? from->items[i].purpose : (uint8_t)(m->first[i] - 1);
        numbers[i] = item_copy(to, from, i, purpose) + 1;
        size_t cell = held_cell_of(h, from->items[i].path, (tl_purpose)purpose);
        if (cell < m->n_cells) m->cells[cell].bytes -= from->items[i].bytes;
    }
    for (size_t i = 0; i < m->n_cells; i++)
        if (m->cells[i].bytes)
            item_add(to,
                     (struct allocation){.bytes = m->cells[i].bytes,
                                         .path = m->cells[i].path,
                                         .purpose = (uint8_t)m->cells[i].purpose,
                                         .dtype = TL_DTYPE_COUNT},
                     false);
    to->n_first = to->n_items;
}

static void events_copy(size_t from_event, const struct allocation_list *from, struct allocation_list *to,
                        uint32_t *numbers) {
    for (size_t i = from_event; i < from->n_events && !to->is_broken; i++) {
        struct allocation_event event = from->events[i];
        if (event.kind != ALLOCATION_CALL) {
            size_t at = event.item;
            if (!numbers[at]) numbers[at] = item_copy(to, from, at, from->items[at].purpose) + 1;
            event.item = numbers[at] - 1;
        }
        event_add(to, event);
    }
}

void allocations_close(struct held *h, struct held_window *w) {
    struct allocation_list *from = h->allocations;
    struct allocation_mark *m = w->mark;
    bool can = from && !from->is_broken && h->n_lists == m->n_lists;
    struct allocation_list *to = can ? zeroed(sizeof *to) : NULL;
    uint32_t *numbers = to ? zeroed(from->n_items * sizeof *numbers) : NULL;
    if (numbers) first_copy(h, m, from, to, numbers), events_copy(m->n_events, from, to, numbers);
    if (to && (!numbers || to->is_broken)) list_free(to), to = NULL;
    memory_free(numbers);
    mark_free(m);
    w->mark = NULL;
    w->list = to;
}

void allocations_free(struct held_window *w) {
    mark_free(w->mark);
    list_free(w->list);
    w->mark = NULL;
    w->list = NULL;
}

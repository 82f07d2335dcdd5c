/* ledger.c: ledgers and their rows.
 *
 * Only the innermost open ledger is written to; when it ends, its rows are added to the one around it. The cost of
 * a call is therefore one hash look-up, however many ledgers are open.
 */
#include "account/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account/load.h"
#include "account/path.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/text.h"
#include "device/devices.h"
#include "tensor/allocations.h"
#include "tensor/pool.h"

static lock ledger_lock = LOCK_INIT;
static tl_ledger *innermost;
static _Atomic uint64_t n_turns; /* ledgers that were opened, and those that were ended */
bool ledger_is_profiling;

/* ---- Rows ---- */

static bool key_equal(const struct ledger_key *a, const struct ledger_key *b) {
    return a->op == b->op && a->path == b->path && a->phase == b->phase && a->dtype == b->dtype &&
           a->accumulate == b->accumulate;
}

static size_t slot_of(const tl_ledger *l, const struct ledger_key *key) {
    uint64_t hash = ((uint64_t)(uintptr_t)key->op ^ (uint64_t)key->path << 32 ^ (uint64_t)key->phase << 24 ^
                     (uint64_t)key->dtype << 16 ^ (uint64_t)key->accumulate << 8) *
                    0x9E3779B97F4A7C15u;
    size_t at = (size_t)(hash >> 32) & (l->n_slots - 1);
    while (l->slots[at] && !key_equal(&l->rows[l->slots[at] - 1].key, key)) at = (at + 1) & (l->n_slots - 1);
    return at;
}

static void slots_fill(tl_ledger *l) {
    memset(l->slots, 0, l->n_slots * sizeof *l->slots);
    for (size_t i = 0; i < l->n_rows; i++) l->slots[slot_of(l, &l->rows[i].key)] = (uint32_t)i + 1;
}

/* Slots for n rows, half of them free. */
static bool slots_grow(tl_ledger *l, size_t n) {
    if (l->n_slots >= 2 * n) return true;
    size_t larger = l->n_slots ? l->n_slots * 2 : 256;
    while (larger < 2 * n) larger *= 2;
    uint32_t *slots = memory_new(larger * sizeof *slots);
    if (!slots) return false;
    memory_free(l->slots);
    l->slots = slots;
    l->n_slots = larger;
    slots_fill(l);
    return true;
}

static bool rows_grow(tl_ledger *l, size_t n) {
    while (l->row_capacity < n)
        if (!memory_grow((void **)&l->rows, &l->row_capacity, l->row_capacity, sizeof *l->rows)) return false;
    return slots_grow(l, n);
}

static struct ledger_row *row_find(tl_ledger *l, const struct ledger_key *key) {
    if (!l->slots && !slots_grow(l, 1)) return NULL;
    size_t at = slot_of(l, key);
    if (l->slots[at]) return &l->rows[l->last_row = l->slots[at] - 1];
    if (!rows_grow(l, l->n_rows + 1)) return NULL;
    l->rows[l->n_rows] = (struct ledger_row){.key = *key};
    l->slots[slot_of(l, key)] = (uint32_t)++l->n_rows;
    return &l->rows[l->n_rows - 1];
}

/* The row of a key, made when new; NULL without memory. */
static inline struct ledger_row *row_of(tl_ledger *l, const struct ledger_key *key) {
    if (l->n_rows && key_equal(&l->rows[l->last_row].key, key)) return &l->rows[l->last_row];
    return row_find(l, key);
}

/* Closes the gap, so that rows stay in the order in which they came. Rare: a call has failed. */
static void row_remove(tl_ledger *l, struct ledger_row *row) {
    const size_t at = (size_t)(row - l->rows);
    memmove(row, row + 1, (--l->n_rows - at) * sizeof *row);
    for (size_t i = 0; i < l->n_timings; i++) l->timings[i].row -= l->timings[i].row > at;
    l->last_row = 0;
    slots_fill(l);
}

void ledger_row_add(struct ledger_row *to, const struct ledger_row *from) {
    to->n_bills += from->n_bills;
    to->calls += from->calls;
    to->flops += from->flops;
    to->bytes_read += from->bytes_read;
    to->bytes_written += from->bytes_written;
    to->transfer_bytes += from->transfer_bytes;
    to->sent_bytes += from->sent_bytes;
    to->time_s += from->time_s;
}

bool path_has_load(const char *path) {
    const size_t n = sizeof LEDGER_LOAD - 1;
    for (const char *at = path; (at = strstr(at, LEDGER_LOAD)); at++)
        if ((at == path || at[-1] == '.') && (!at[n] || at[n] == '.')) return true;
    return false;
}

bool ledger_has_load(const tl_ledger *ledger) {
    for (size_t i = 0; i < ledger->n_rows; i++)
        if (path_has_load(path_text(ledger->rows[i].key.path))) return true;
    return false;
}

uint64_t ledger_turns(void) { return n_turns; }

bool ledger_repeat(const tl_ledger *ended, uint64_t times) {
    bool ok = true;
    lock_take(&ledger_lock);
    for (size_t i = 0; ok && innermost && i < ended->n_rows; i++) {
        struct ledger_row more = ended->rows[i], *row = row_of(innermost, &more.key);
        more.calls *= times;
        more.flops *= times;
        more.bytes_read *= times;
        more.bytes_written *= times;
        more.transfer_bytes *= times;
        more.sent_bytes *= times;
        more.time_s *= (double)times;
        if (row) ledger_row_add(row, &more);
        ok = row != NULL;
    }
    lock_release(&ledger_lock);
    return ok || error_memory(sizeof(struct ledger_row), "a row of the ledger");
}

static double span_seconds(const struct ledger_span *s) {
    return s->device->functions->mark_seconds(s->device, s->from, s->to);
}

/* Waits for what is under way. */
static void timings_read(tl_ledger *l) {
    for (size_t i = 0; i < l->n_timings; i++) l->rows[l->timings[i].row].time_s += span_seconds(&l->timings[i].span);
    l->n_timings = 0;
}

/* Without memory for it the device is waited for now. */
static void timing_keep(tl_ledger *l, struct ledger_row *row, const struct ledger_span *span) {
    if (!l->timings) l->timings = memory_new(LEDGER_TIMINGS * sizeof *l->timings);
    if (!l->timings) {
        row->time_s += span_seconds(span);
        return;
    }
    if (l->n_timings == LEDGER_TIMINGS) timings_read(l);
    l->timings[l->n_timings++] = (struct ledger_timing){(uint32_t)(row - l->rows), *span};
}

void ledger_time(const struct ledger_key *key, const struct ledger_span *span) {
    lock_take(&ledger_lock);
    struct ledger_row *row = innermost ? row_of(innermost, key) : NULL;
    if (row) row->n_bills++;
    if (row && device_runs_ahead(span->device)) timing_keep(innermost, row, span);
    else if (row) row->time_s += span_seconds(span);
    lock_release(&ledger_lock);
}

/* ---- Bills ---- */

static struct ledger_row *part_row(const struct ledger_entry *entry, const struct cost_part *part) {
    if (part->phase == COST_HERE) return row_of(innermost, &entry->key);
    struct ledger_key key = entry->key;
    key.phase = (uint8_t)part->phase;
    return row_of(innermost, &key);
}

static inline struct ledger_row *part_bill(const struct ledger_entry *entry, const struct cost_part *part) {
    struct ledger_row *row = part_row(entry, part);
    row->n_bills++;
    row->flops += part->flops;
    row->bytes_read += part->bytes_read;
    row->bytes_written += part->bytes_written;
    return row;
}

bool ledger_bill(const struct ledger_entry *entry) {
    if (!innermost) return true;
    lock_take(&ledger_lock);
    const size_t n = innermost->n_rows + COST_PARTS; /* room for all parts, so that none is billed without the others */
    bool ok = (n <= innermost->row_capacity && 2 * n <= innermost->n_slots) || rows_grow(innermost, n);
    if (ok) {
        struct ledger_row *row = part_bill(entry, entry->cost.part);
        row->calls++; /* the other parts are the same call */
        row->transfer_bytes += entry->cost.transfer_bytes;
        row->sent_bytes += entry->cost.sent_bytes;
        for (int i = 1; i < entry->cost.n_parts; i++) part_bill(entry, &entry->cost.part[i]);
    }
    lock_release(&ledger_lock);
    return ok || error_memory(sizeof(struct ledger_row), "a row of the ledger");
}

void ledger_unbill(const struct ledger_entry *entry) {
    if (!innermost) return;
    lock_take(&ledger_lock);
    for (int i = 0; i < entry->cost.n_parts; i++) {
        const struct cost_part *part = &entry->cost.part[i];
        struct ledger_row *row = part_row(entry, part);
        row->n_bills--;
        row->calls -= i == 0;
        row->flops -= part->flops;
        row->bytes_read -= part->bytes_read;
        row->bytes_written -= part->bytes_written;
        if (i == 0) row->transfer_bytes -= entry->cost.transfer_bytes;
        if (i == 0) row->sent_bytes -= entry->cost.sent_bytes;
        if (!row->n_bills) row_remove(innermost, row);
    }
    lock_release(&ledger_lock);
}

struct ledger_entry *ledger_entry_new(void) {
    struct ledger_entry *entry = memory_new(sizeof *entry);
    if (!entry) error_memory(sizeof *entry, "a bill");
    return entry;
}

void ledger_hold(struct ledger_list *list, struct ledger_entry *entry) {
    entry->next = list->first;
    list->first = entry;
}

static struct ledger_entry *list_take(struct ledger_list *list) {
    struct ledger_entry *entry = list->first;
    if (entry) list->first = entry->next;
    return entry;
}

void ledger_list_keep(struct ledger_list *list, struct ledger_list *outer) {
    for (struct ledger_entry *entry; (entry = list_take(list));) {
        if (outer) {
            ledger_hold(outer, entry);
            continue;
        }
        if (entry->span.device) ledger_time(&entry->key, &entry->span);
        memory_free(entry);
    }
}

void ledger_list_unbill(struct ledger_list *list) {
    for (struct ledger_entry *entry; (entry = list_take(list));) {
        ledger_unbill(entry);
        memory_free(entry);
    }
}

/* ---- Beginning and ending ---- */

static void window_open(struct held *held, void *window) { held_window_open(held, window); }
static void window_close(struct held *held, void *unused) {
    (void)unused;
    held_window_close(held);
}

static void ledger_watch(tl_ledger *l, tl_device *device) {
    l->memory[l->n_devices].device = device;
    pool_account(device->pool, window_open, &l->memory[l->n_devices++].window);
}

/* A device that opens while ledgers are open gets a window in each, the outermost first. */
static void watch_from_outside(tl_ledger *l, tl_device *device) {
    if (!l) return;
    watch_from_outside(l->outer, device);
    ledger_watch(l, device);
}
static void ledger_device_opened(tl_device *device) { watch_from_outside(innermost, device); }

tl_ledger *tl_ledger_begin(const char *name) {
    if (name && !text_is_name(name)) {
        error_set(TL_ERROR_USE, "tl_ledger_begin: a name is UTF-8 without control characters");
        return NULL;
    }
    tl_ledger *l = memory_new(sizeof *l);
    if (!l) {
        error_memory(sizeof *l, "a ledger");
        return NULL;
    }
    memset(l, 0, sizeof *l);
    text_copy(l->name, sizeof l->name, name ? name : "");
    if (innermost) timings_read(innermost); /* so that no ledger but the innermost waits for marks */
    devices_hold(); /* one that opens now is seen here, or by ledger_device_opened: never by both or by none */
    for (int i = 0; device_at(i); i++) ledger_watch(l, device_at(i));
    device_opened = ledger_device_opened;
    l->is_open = true;
    l->outer = innermost;
    innermost = l;
    n_turns++;
    devices_release();
    return l;
}

bool tl_ledger_end(tl_ledger *l) {
    if (!l) return error_set(TL_ERROR_USE, "tl_ledger_end: got NULL instead of a ledger");
    if (!l->is_open) return error_set(TL_ERROR_USE, "tl_ledger_end: ledger \"%s\" has ended already", l->name);
    if (l != innermost)
        return error_set(TL_ERROR_USE, "tl_ledger_end: ledger \"%s\" is not the innermost: end \"%s\" first", l->name,
                         innermost->name);
    devices_hold();
    for (int i = 0; i < l->n_devices; i++) pool_account(l->memory[i].device->pool, window_close, NULL);
    l->is_open = false;
    innermost = l->outer;
    n_turns++;
    devices_release();
    timings_read(l);
    memory_free(l->timings);
    l->timings = NULL;
    for (size_t i = 0; innermost && i < l->n_rows; i++) {
        struct ledger_row *row = row_of(innermost, &l->rows[i].key);
        if (!row) return error_memory(sizeof *row, "a row of the ledger");
        ledger_row_add(row, &l->rows[i]);
    }
    return true;
}

void tl_ledger_free(tl_ledger *l) {
    if (!l) return;
    while (l->is_open) tl_ledger_end(innermost); /* an abandoned ledger takes the ones inside it along */
    for (int i = 0; i < l->n_devices; i++) {
        held_window_clear(&l->memory[i].window);
        allocations_free(&l->memory[i].window);
    }
    memory_free(l->rows);
    memory_free(l->slots);
    memory_free(l);
}

/* ---- Questions ---- */

tl_totals tl_ledger_total(const tl_ledger *l, int phase, const char *op) {
    struct ledger_row sum = {0};
    for (size_t i = 0; l && i < l->n_rows; i++) {
        const struct ledger_row *row = &l->rows[i];
        if ((phase == TL_ALL || row->key.phase == phase) && (!op || !strcmp(op, row->key.op)))
            ledger_row_add(&sum, row);
    }
    return (tl_totals){.flops = count_public(sum.flops),
                       .bytes_read = count_public(sum.bytes_read),
                       .bytes_written = count_public(sum.bytes_written),
                       .calls = sum.calls,
                       .time_s = sum.time_s};
}

tl_count tl_ledger_transfer_bytes(const tl_ledger *l) {
    count bytes = 0;
    for (size_t i = 0; l && i < l->n_rows; i++) bytes += l->rows[i].transfer_bytes;
    return count_public(bytes);
}
tl_count tl_ledger_sent_bytes(const tl_ledger *l) {
    count bytes = 0;
    for (size_t i = 0; l && i < l->n_rows; i++) bytes += l->rows[i].sent_bytes;
    return count_public(bytes);
}

static const struct held_window *window_of(const tl_ledger *l, const tl_device *device) {
    static const struct held_window nothing;
    for (int i = 0; l && i < l->n_devices; i++)
        if (l->memory[i].device == device) return &l->memory[i].window;
    return &nothing;
}

uint64_t tl_ledger_peak(const tl_ledger *l, const tl_device *device, int purpose) {
    const struct held_window *w = window_of(l, device);
    return purpose >= 0 && purpose < TL_PURPOSE_COUNT ? w->peak_by_purpose[purpose] : w->peak_bytes;
}

uint64_t tl_ledger_peak_allocated(const tl_ledger *l, const tl_device *device) {
    return window_of(l, device)->peak_allocated_bytes;
}

uint64_t tl_ledger_peak_reserved(const tl_ledger *l, const tl_device *device) {
    return window_of(l, device)->peak_reserved_bytes;
}

bool tl_set_profiling(bool on) {
    bool before = ledger_is_profiling;
    ledger_is_profiling = on;
    return before;
}

static void events_end(struct held *held, void *unused) {
    (void)unused;
    allocations_end(held);
}

bool tl_set_memory_events(bool on) {
    bool before = allocations_are_on;
    allocations_are_on = on;
    for (int i = 0; !on && device_at(i); i++) pool_account(device_at(i)->pool, events_end, NULL);
    return before;
}

int ledger_row_order(const void *a, const void *b) {
    const struct ledger_key *x = &((const struct ledger_row *)a)->key, *y = &((const struct ledger_row *)b)->key;
    int order = strcmp(path_text(x->path), path_text(y->path));
    if (!order) order = x->phase - y->phase;
    if (!order) order = strcmp(x->op, y->op);
    if (!order) order = x->dtype - y->dtype;
    return order ? order : x->accumulate - y->accumulate;
}

void ledger_sort(struct ledger_row *rows, size_t n_rows) { qsort(rows, n_rows, sizeof *rows, ledger_row_order); }

const char *tl_count_text(tl_count c, char buffer[40]) {
    if (!error_given(buffer, "tl_count_text", "a buffer")) return "?";
    count value = (count)c.high << 64 | c.low;
    char *at = buffer + 39;
    *at = 0;
    do *--at = (char)('0' + (int)(value % 10));
    while (value /= 10);
    return at;
}

double tl_count_value(tl_count c) { return (double)c.high * 18446744073709551616.0 + (double)c.low; }

const char *tl_phase_name(tl_phase phase) {
    static const char *const name[] = {"forward", "backward", "recompute", "update", "other"};
    return (unsigned)phase < TL_PHASE_COUNT ? name[phase] : "?";
}

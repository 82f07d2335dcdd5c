/* ledger.h: rows of counts, one per (path, op, phase, compute dtype, accumulate dtype). */
#ifndef ACCOUNT_LEDGER_H
#define ACCOUNT_LEDGER_H

#include "spec/cost.h"
#include "tensor/device.h"
#include "tensor/held.h"

struct ledger_key {
    const char *op; /* ops are identified by the address of their name */
    uint32_t path;
    uint8_t phase, dtype, accumulate; /* dtypes: TL_DTYPE_COUNT for "none" */
};

struct ledger_row {
    struct ledger_key key;
    uint64_t n_bills; /* that this row is part of */
    uint64_t calls;
    count flops, bytes_read, bytes_written, transfer_bytes, sent_bytes;
    double time_s;
};

/* Between two marks of a device (tensor/device.h). */
struct ledger_span {
    tl_device *device;
    int64_t from, to;
};

/* Half of a device's marks. */
enum { LEDGER_TIMINGS = DEVICE_MARKS / 4 };

/* A call whose time is not known yet. */
struct ledger_timing {
    uint32_t row;
    struct ledger_span span;
};

struct tl_ledger {
    char name[64];
    struct tl_ledger *outer;
    bool is_open;
    struct ledger_row *rows;
    size_t n_rows, row_capacity;
    uint32_t *slots;               /* open-addressing index into rows, +1 */
    size_t n_slots, last_row;      /* most calls are like the one before */
    struct ledger_timing *timings; /* not read yet; NULL: there were none */
    size_t n_timings;
    struct {
        tl_device *device;
        struct held_window window;
    } memory[DEVICES_MAX];
    int n_devices;
};

/* What one call is billed. */
struct ledger_entry {
    struct ledger_key key;
    struct cost cost;
    struct ledger_span span; /* device NULL: not timed */
    struct ledger_entry *next;
};

/* Bills one call to the innermost open ledger, if there is one. False: no memory, recorded, and nothing is billed. */
bool ledger_bill(const struct ledger_entry *entry);
/* Reverts a bill, for a call that failed afterwards; a row without other bills is removed. Ledgers do not begin or end
 * while a call runs. */
void ledger_unbill(const struct ledger_entry *entry);
/* Adds the seconds of a span to a row that has been billed: now, or, where a device works on its own and would have to
 * be waited for, when the ledger ends. */
void ledger_time(const struct ledger_key *key, const struct ledger_span *span);

/* How often a ledger was opened or ended so far. */
uint64_t ledger_turns(void);

/* Bills what an ended ledger has so many times more to the innermost open ledger. False: no memory, recorded. */
bool ledger_repeat(const tl_ledger *ended, uint64_t times);

/* Bills of calls that are part of another one (casts, copies), to be taken back when it fails. */
struct ledger_list {
    struct ledger_entry *first;
};
struct ledger_entry *ledger_entry_new(void); /* NULL: no memory, recorded */
/* Takes over an entry that has been billed; its time waits for ledger_list_keep. */
void ledger_hold(struct ledger_list *list, struct ledger_entry *entry);
/* They stand, or become part of the list around this one (NULL: there is none). */
void ledger_list_keep(struct ledger_list *list, struct ledger_list *outer);
void ledger_list_unbill(struct ledger_list *list);

extern bool ledger_is_profiling;

/* Adds the counts of one row to another. */
void ledger_row_add(struct ledger_row *to, const struct ledger_row *from);
/* Rows in canonical order: path, phase, op, dtypes, by their texts. ledger_row_order is for qsort. */
int ledger_row_order(const void *a, const void *b);
void ledger_sort(struct ledger_row *rows, size_t n_rows);

#endif

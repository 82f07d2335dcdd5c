#include "tensor/timeline.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

#include "base/error.h"
#include "base/memory.h"

bool timeline_is_on;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of everything below */
static struct timeline_record *records;
static size_t n_records, capacity;
static size_t n_settled; /* records before this one have times in place of marks */
static uint64_t n_lost;
static tl_device *marked;
static int64_t base_mark, base_ns; /* a mark whose time is known */

int64_t timeline_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

bool timeline_begin(tl_device *device) {
    pthread_mutex_lock(&lock);
    if (!records && !memory_grow((void **)&records, &capacity, 0, sizeof *records)) {
        pthread_mutex_unlock(&lock);
        return error_memory(sizeof *records, "a trace");
    }
    marked = device;
    base_mark = device_mark(device);
    base_ns = timeline_now();
    n_records = n_settled = 0;
    n_lost = 0;
    timeline_is_on = true;
    pthread_mutex_unlock(&lock);
    return true;
}

/* A duration is what the ledger counts for the call; its beginning is moved, by less than the clock's resolution, where
 * two would overlap. */
static void settle(void) {
    int64_t last = base_ns;
    for (; n_settled < n_records; n_settled++) {
        struct timeline_record *r = &records[n_settled];
        if (r->kind != TIMELINE_OP || r->device != marked) continue;
        int64_t until = r->ended, ns = llround(1e9 * device_mark_seconds(marked, r->began, r->ended));
        int64_t began = base_ns + llround(1e9 * device_mark_seconds(marked, base_mark, r->began));
        r->began = began > last ? began : last;
        r->ended = last = r->began + ns;
        base_ns = r->ended;
        base_mark = until;
    }
}

void timeline_add(const struct timeline_record *record) {
    pthread_mutex_lock(&lock);
    bool is_timed = record->kind != TIMELINE_OP ||
                    (record->began && record->ended && (record->device == marked || device_is_host(record->device)));
    bool has_room = timeline_is_on && is_timed && n_records < TIMELINE_MOST &&
                    memory_grow((void **)&records, &capacity, n_records, sizeof *records);
    if (has_room) records[n_records++] = *record;
    else n_lost++;
    if (n_records - n_settled >= DEVICE_MARKS / 4) settle(); /* half of the marks */
    pthread_mutex_unlock(&lock);
}

void timeline_span(enum timeline_kind kind, const char *name, double from_s) {
    if (!timeline_is_on) return;
    timeline_add(&(struct timeline_record){
        .kind = kind, .name = name, .from_ns = llround(1e9 * from_s), .to_ns = timeline_now()});
}

const struct timeline_record *timeline_take(size_t *n, uint64_t *lost) {
    pthread_mutex_lock(&lock);
    settle();
    *n = n_records;
    *lost = n_lost;
    n_records = n_settled = 0;
    n_lost = 0;
    pthread_mutex_unlock(&lock);
    return records;
}

void timeline_end(void) {
    pthread_mutex_lock(&lock);
    timeline_is_on = false;
    memory_free(records);
    records = NULL;
    n_records = n_settled = capacity = 0;
    pthread_mutex_unlock(&lock);
}

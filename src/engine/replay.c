/* replay.c: passes that are queued again. Read replay.h first. */
#include "engine/replay.h"

#include <string.h>

#include "account/ledger.h"
#include "base/error.h"
#include "base/memory.h"
#include "engine/scope.h"
#include "tensor/allocations.h"
#include "tensor/timeline.h"

enum { REPLAYS = 99 };

static bool blocks_are_same(struct replay *r) {
    struct pool_layout now = {0};
    const bool ok = pool_blocks_read(r->device->pool, &now) && now.n == r->blocks.n &&
                    memcmp(now.words, r->blocks.words, now.n * sizeof *now.words) == 0;
    memory_free(now.words);
    return ok;
}

static bool is_watched(void) { return ledger_is_profiling || timeline_is_on || allocations_are_on; }

/* Whether the pass would make the same calls on the same memory. */
static bool is_same(struct replay *r, const tl_device *device, uint64_t key) {
    return r->graph && r->device == device && r->key == key && r->path == thread_state()->path && !is_watched() &&
           r->n_turns == ledger_turns() && tl_device_memory(device).peak_bytes >= r->peak_bytes && blocks_are_same(r);
}

enum replay_state replay_begin(struct replay *r, tl_device *device, uint64_t key) {
    const struct device_functions *f = device->functions;
    char error[200] = "";
    const bool repeats = is_same(r, device, key);
    if (repeats && r->n_left > 0) {
        r->n_left--;
        if (f->repeat_again(device, r->graph, error)) return ledger_repeat(r->bill, 1) ? REPLAY_DONE : REPLAY_FAILED;
        if (*error) return error_set(TL_ERROR_DEVICE, "%s", error), REPLAY_FAILED;
    }
    r->device = device;
    r->key = key;
    r->path = thread_state()->path;
    r->graph = 0;
    r->is_begun = f->repeat_again && !is_watched();
    if (!r->is_begun) return REPLAY_ASK;
    pool_order(device->pool);
    if (!pool_blocks_read(device->pool, &r->blocks)) return error_memory(0, "a list of blocks"), REPLAY_FAILED;
    tl_ledger *bill = tl_ledger_begin("pass");
    if (!bill) return REPLAY_FAILED;
    if (repeats) r->before = r->bill;
    else tl_ledger_free(r->bill);
    r->bill = bill;
    f->repeat_begin(device);
    return REPLAY_ASK;
}

static bool costs_the_same(const tl_ledger *a, const tl_ledger *b) {
    const tl_totals x = tl_ledger_total(a, TL_ALL, NULL), y = tl_ledger_total(b, TL_ALL, NULL);
    const tl_count is[] = {x.flops, x.bytes_read, x.bytes_written, {x.calls, 0}},
                   was[] = {y.flops, y.bytes_read, y.bytes_written, {y.calls, 0}};
    return memcmp(is, was, sizeof is) == 0 ||
           error_set(TL_ERROR_DEVICE, "a pass that was queued again has %llu calls and %.17g FLOPs, not %llu and %.17g",
                     (unsigned long long)x.calls, tl_count_value(x.flops), (unsigned long long)y.calls,
                     tl_count_value(y.flops));
}

bool replay_end(struct replay *r, bool ok) {
    struct device_repeat report;
    char error[200] = "";
    if (!r->is_begun) return ok;
    r->is_begun = false;
    if (!r->device->functions->repeat_end(r->device, &report, error))
        ok = ok && error_set(TL_ERROR_DEVICE, "%s", error);
    ok = tl_ledger_end(r->bill) && ok;
    if (ok && r->before) ok = costs_the_same(r->bill, r->before);
    tl_ledger_free(r->before);
    r->before = NULL;
    r->graph = ok ? report.again : 0;
    r->n_left = REPLAYS;
    r->n_turns = ledger_turns();
    r->peak_bytes = tl_device_memory(r->device).peak_bytes;
    return ok;
}

void replay_free(struct replay *r) {
    tl_ledger_free(r->before);
    tl_ledger_free(r->bill);
    memory_free(r->blocks.words);
    memset(r, 0, sizeof *r);
}

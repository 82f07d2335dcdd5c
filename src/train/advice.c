/* advice.c: the settings that fit are found by asking: a run is priced on meta under the same limit until one goes through. */
#include "train/advice.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "base/text.h"
#include "tensor/device.h"
#include "train/run.h"

struct need { /* what a run reserves at most, and what that is for */
    uint64_t reserved, peak, by_purpose[TL_PURPOSE_COUNT];
};

static bool need_bill(void *context, enum step_kind kind, tl_ledger *ledger, tl_device *device) {
    struct need *need = context;
    (void)kind;
    uint64_t reserved = tl_ledger_peak_reserved(ledger, device), peak = tl_ledger_peak(ledger, device, TL_ALL);
    if (reserved > need->reserved) need->reserved = reserved;
    if (peak > need->peak) {
        need->peak = peak;
        for (int p = 0; p < TL_PURPOSE_COUNT; p++) need->by_purpose[p] = tl_ledger_peak(ledger, device, p);
    }
    tl_ledger_free(ledger);
    return true;
}

/* Whether the run goes through with a pool of so many bytes (0: as many as the device has), and what it then needs. */
__attribute__((noinline)) static bool fits(struct settings s, uint64_t limit, struct need *need) {
    int64_t counts[KIND_COUNT];
    *need = (struct need){0};
    snprintf(s.memory_limit, sizeof s.memory_limit, "%" PRIu64, limit);
    if (!limit) *s.memory_limit = 0;
    tl_device *device = run_stand_in(&s);
    bool ok = device && run_walk(&s, device, &(struct run_walker){need_bill, need}, counts);
    tl_error_clear();
    return ok;
}

/* The largest batch below that of the settings that fits; 0: none does. Needs grow with the batch, so halves are enough. */
__attribute__((noinline)) static int64_t largest_batch(struct settings s, uint64_t limit, struct need *need) {
    int64_t low = 0, high = s.batch; /* low fits (0: nothing to fit), high does not */
    struct need found;
    while (high - low > 1) {
        s.batch = low + (high - low) / 2;
        if (fits(s, limit, &found)) low = s.batch, *need = found;
        else high = s.batch;
    }
    return low;
}

/* The first that fits, from what computes least anew to what computes most. NULL: none. */
__attribute__((noinline)) static const char *lightest_policy(struct settings s, uint64_t limit, struct need *need) {
    static const char *const policies[] = {"selective", "full", "sqrt", "nothing"};
    if (strcmp(settings_choice(&s, "checkpointing"), "none")) return NULL; /* they have chosen one */
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        if (settings_set(&s, "checkpointing", policies[i]) && fits(s, limit, need)) return policies[i];
    return NULL;
}

static void add(char *text, size_t size, const char *format, ...) TL_PRINTF(3, 4);
static void add(char *text, size_t size, const char *format, ...) {
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    number_vprint(text + used, size - used, format, arguments);
    va_end(arguments);
}

/* "1.20 GiB (parameter 400.00 MiB, ...)" */
static void add_need(char *text, size_t size, const struct need *need) {
    char a[32];
    add(text, size, "%s (", bytes_text((double)need->reserved, a));
    for (int p = 0, n = 0; p < TL_PURPOSE_COUNT; p++)
        if (need->by_purpose[p])
            add(text, size, "%s%s %s", n++ ? ", " : "", tl_purpose_name((tl_purpose)p),
                bytes_text((double)need->by_purpose[p], a));
    add(text, size, ")");
}

__attribute__((noinline)) static void add_settings(char *text, size_t size, const struct settings *s, uint64_t limit) {
    struct need need;
    char a[32];
    int n = 0;
    int64_t batch = largest_batch(*s, limit, &need);
    if (batch)
        add(text, size, "; it fits with --batch %" PRId64 " (%s)", batch, bytes_text((double)need.reserved, a)), n++;
    const char *policy = lightest_policy(*s, limit, &need);
    if (policy)
        add(text, size, "%s --checkpointing %s (%s)", n++ ? ", or with" : "; it fits with", policy,
            bytes_text((double)need.reserved, a));
    if (n) return;
    struct settings least = *s;
    least.batch = 1;
    policy = lightest_policy(least, limit, &need);
    if (policy)
        add(text, size, "; it fits with --batch 1 --checkpointing %s (%s)", policy,
            bytes_text((double)need.reserved, a));
    else add(text, size, "; no batch fits, even with full recomputation");
}

void advice_add(const struct settings *s, const tl_device *device) {
    static const uint64_t everything = (uint64_t)3 << 60;
    char before[1024], text[1024], a[32];
    struct need need;
    text_copy(before, sizeof before, tl_error_message());
    tl_policy policy = tl_error_policy(TL_RETURN);
    bool is_meta = !device_has_data(device);
    /* where no limit was set and memory ended all the same, what could be had is what there is */
    uint64_t limit = *s->memory_limit ? settings_memory_limit(s)
                     : is_meta        ? 0
                                      : tl_device_memory(device).reserved_bytes;
    tl_error_clear();
    text_copy(text, sizeof text, "this run needs ");
    if (fits(*s, everything, &need)) {
        add_need(text, sizeof text, &need);
        if (limit) add(text, sizeof text, " and may use %s", bytes_text((double)limit, a));
        if (limit || is_meta)
            add_settings(text, sizeof text, s, limit); /* 0 of a real device: it gave nothing at all */
        error_set(TL_ERROR_MEMORY, "%s; %s", text, before);
    } else error_set(TL_ERROR_MEMORY, "%s", before);
    tl_error_policy(policy);
}

/* advice.c: finds settings that fit by pricing runs under the same limit until one fits. */
#include "step/advice.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "step/price.h"
#include "step/search.h"
#include "tensor/device.h"

struct need { /* the most bytes that a run reserves, and those it holds at its peak */
    uint64_t reserved, by_purpose[TL_PURPOSE_COUNT];
    bool fits;
};

/* The memory of a run if the pool may reserve that many bytes (0: no limit). */
static bool need_find(struct price *price, const struct settings *s, uint64_t limit, struct need *need) {
    tl_device *device = walk_stand_in(s);
    *need = (struct need){0};
    bool ok = device && price_sketch(price, s, device, limit);
    tl_error_clear();
    if (!ok) return false;
    const struct held_window *window = price_window(price, price->peak_kind);
    for (int p = 0; p < TL_PURPOSE_COUNT; p++) need->by_purpose[p] = window ? window->peak_by_purpose[p] : 0;
    need->fits = price->verdict != PRICE_TOO_LARGE;
    need->reserved = need->fits && limit && price->reserved_bytes > limit ? limit : price->reserved_bytes;
    price_free(price);
    return true;
}

/* Settings to try, with room for one price: both are too large for the stack. */
struct asked {
    struct settings settings;
    struct price price;
    uint64_t limit;
};

static bool fits(struct asked *a, struct need *need) {
    return need_find(&a->price, &a->settings, a->limit, need) && need->fits;
}

static bool batch_look(void *context, int64_t size, struct search_point *point) {
    struct asked *a = context;
    struct need need;
    a->settings.batch = size;
    bool ok = need_find(&a->price, &a->settings, a->limit, &need);
    *point = (struct search_point){.size = size,
                                   .fits = ok && need.fits,
                                   .is_final = !ok,
                                   .bytes = ok ? need.reserved : UINT64_MAX,
                                   .block_bytes = ok ? a->price.allocated_bytes : UINT64_MAX};
    return true;
}

/* The largest batch below that of the settings that fits; 0: none does. */
static int64_t largest_batch(struct asked *a, struct need *need) {
    const struct settings own = a->settings;
    const struct search_question q = {.first = own.batch,
                                      .unit = 1,
                                      .most = own.batch,
                                      .n_above = 8,
                                      .limit_bytes = a->limit,
                                      .look = batch_look,
                                      .context = a};
    struct search_answer answer;
    bool ok = search_largest(&q, &answer);
    tl_error_clear();
    int64_t batch = ok && answer.best.size < own.batch ? answer.best.size : 0;
    a->settings.batch = batch;
    if (batch && !fits(a, need)) batch = 0;
    a->settings = own;
    return batch;
}

/* The first policy that fits, in order of recomputation, least first. NULL: none. */
static const char *lightest_policy(struct asked *a, struct need *need) {
    static const char *const policies[] = {"selective", "full", "sqrt", "nothing"};
    const struct settings own = a->settings;
    const char *found = NULL;
    if (strcmp(settings_choice(&own, "checkpointing"), "none")) return NULL; /* they have chosen one */
    for (size_t i = 0; !found && i < sizeof policies / sizeof *policies; i++)
        if (settings_set(&a->settings, "checkpointing", policies[i]) && fits(a, need)) found = policies[i];
    a->settings = own;
    return found;
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

static void add_settings(char *text, size_t size, struct asked *asked) {
    struct need need;
    char a[32];
    int n = 0;
    int64_t batch = largest_batch(asked, &need);
    if (batch)
        add(text, size, "; it fits with --batch %" PRId64 " (%s)", batch, bytes_text((double)need.reserved, a)), n++;
    const char *policy = lightest_policy(asked, &need);
    if (policy)
        add(text, size, "%s --checkpointing %s (%s)", n++ ? ", or with" : "; it fits with", policy,
            bytes_text((double)need.reserved, a));
    if (n) return;
    asked->settings.batch = 1;
    policy = lightest_policy(asked, &need);
    if (policy)
        add(text, size, "; it fits with --batch 1 --checkpointing %s (%s)", policy,
            bytes_text((double)need.reserved, a));
    else add(text, size, "; no batch fits, even with full recomputation");
}

/* The limit of the pool: that of the settings, that of meta, or, if memory ran out without either, what was
 * available. */
static uint64_t limit_of(const struct settings *s, const tl_device *device) {
    if (*s->memory_limit) return settings_memory_limit(s);
    return device_has_data(device) ? tl_device_memory(device).reserved_bytes : device->target->memory_bytes;
}

static void advise(struct asked *asked, const tl_device *device, const char *before) {
    char text[1024] = "this run needs ", a[32];
    struct need need;
    if (!need_find(&asked->price, &asked->settings, 0, &need)) {
        error_set(TL_ERROR_MEMORY, "%s", before);
        return;
    }
    bool has_limit = *asked->settings.memory_limit || device_has_data(device);
    add_need(text, sizeof text, &need);
    if (asked->limit && has_limit) add(text, sizeof text, " and may use %s", bytes_text((double)asked->limit, a));
    if (asked->limit) add_settings(text, sizeof text, asked); /* 0 on a real device: nothing could be allocated */
    error_set(TL_ERROR_MEMORY, "%s; %s", text, before);
}

void advice_add(const struct settings *s, const tl_device *device) {
    char before[1024];
    text_copy(before, sizeof before, tl_error_message());
    struct asked *asked = memory_new(sizeof *asked);
    if (!asked) return; /* the message stays as it was */
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    tl_error_clear();
    asked->settings = *s;
    asked->limit = limit_of(s, device);
    advise(asked, device, before);
    tl_set_error_policy(policy);
    memory_free(asked);
}

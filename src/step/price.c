/* price.c: the walk, billed.
 *
 * There are at most two walks. The first has a pool without a limit: it gives every count, even for a run that is too
 * large. If the pool reserved more than the device has, the run may still fit, since a pool that is refused memory
 * returns its unused segments and tries again. The second walk, under the device's own limit, decides. */
#include "step/price.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "step/advice.h"
#include "step/groups.h"
#include "step/trainer.h"
#include "step/tuning.h"

static const uint64_t anything = (uint64_t)3 << 60; /* bytes that a pool without a limit may reserve */

const char *price_verdict_text(enum price_verdict verdict) {
    static const char *const texts[] = {"fits", "fits tightly", "too large", "not known"};
    return texts[verdict];
}

const struct held_window *price_window(const struct price *p, enum step_kind kind) {
    const tl_ledger *ledger = p->kind[kind].ledger;
    for (int i = 0; ledger && i < ledger->n_devices; i++)
        if (ledger->memory[i].device == p->device) return &ledger->memory[i].window;
    return NULL;
}

/* ---- The walk ---- */

struct billing {
    struct price *price;
    int64_t n_steps;
};

static void peaks_note(struct price *p, enum step_kind kind, const tl_ledger *ledger, const tl_device *device) {
    uint64_t held = tl_ledger_peak(ledger, device, TL_ALL), allocated = tl_ledger_peak_allocated(ledger, device),
             reserved = tl_ledger_peak_reserved(ledger, device);
    if (held > p->held_bytes) p->peak_kind = kind;
    if (held > p->held_bytes) p->held_bytes = held;
    if (allocated > p->allocated_bytes) p->allocated_bytes = allocated;
    if (reserved > p->reserved_bytes) p->reserved_bytes = reserved;
}

/* Of the steps the second is kept: in the first one the pool still grows. */
static bool bill(void *context, enum step_kind kind, tl_ledger *ledger, tl_device *device) {
    struct billing *b = context;
    struct price_kind *own = &b->price->kind[kind];
    peaks_note(b->price, kind, ledger, device);
    bool is_second_step = kind == KIND_STEP && ++b->n_steps == 2;
    tl_ledger *unused = is_second_step ? own->ledger : own->ledger ? ledger : NULL;
    if (unused != ledger) own->ledger = ledger;
    tl_ledger_free(unused);
    return true;
}

static bool bill_nothing(void *context, enum step_kind kind, tl_ledger *ledger, tl_device *device) {
    (void)context, (void)kind, (void)device;
    tl_ledger_free(ledger);
    return true;
}

bool price_fits(const struct settings *s, tl_device *device, uint64_t limit_bytes, int rank, bool *fits) {
    struct walk walk = {.is_sketch = true, .rank = rank};
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    *fits = walk_run(&walk, s, device, limit_bytes, &(struct walker){bill_nothing, NULL});
    tl_set_error_policy(policy);
    if (*fits) return true;
    bool is_refused = tl_error() == TL_ERROR_MEMORY && strstr(tl_error_message(), "out of memory on meta") != NULL;
    if (is_refused) tl_error_clear();
    return is_refused;
}

static bool verdict_find(struct price *p) {
    bool fits = false;
    p->verdict = !p->limit_bytes ? PRICE_UNKNOWN : p->reserved_bytes <= p->limit_bytes ? PRICE_FITS : PRICE_TOO_LARGE;
    if (p->verdict != PRICE_TOO_LARGE || p->allocated_bytes > p->limit_bytes)
        return true; /* requests alone are too many */
    /* it reserved more than there is: does it fit if unused segments are returned? */
    if (!price_fits(&p->settings, p->device, p->limit_bytes, p->rank, &fits)) return false;
    if (fits) p->verdict = PRICE_FITS_TIGHTLY;
    return true;
}

static bool price_with(struct price *p, const struct settings *s, tl_device *device, uint64_t limit_bytes,
                       bool is_sketch, int rank) {
    char weights[SETTING_TEXT];
    memset(p, 0, sizeof *p); /* too large to be built on the stack first */
    p->settings = *s;
    p->rank = rank;
    p->device = device;
    p->limit_bytes = limit_bytes;
    if (!settings_check(s) || !trainer_model(s, &p->config, weights)) return false;
    p->n_parameters = tl_model_config_parameters(&p->config);
    if (!tuning_count(s, &p->config, &p->n_trained)) return false;
    if (!strcmp(settings_choice(s, "optimizer"), "muon") && !groups_count_muon(s, &p->config, &p->n_muon)) return false;
    p->n_active = tl_model_config_active_parameters(&p->config);
    if (__builtin_mul_overflow(s->accum, s->batch, &p->n_tokens) ||
        __builtin_mul_overflow(p->n_tokens, settings_window(s), &p->n_tokens))
        return error_set(TL_ERROR_USE, "batch: a step of more than 2^63 - 1 tokens");
    struct billing billing = {p, 0};
    struct walk walk = {.is_sketch = is_sketch, .rank = rank};
    bool ok = walk_run(&walk, s, device, anything, &(struct walker){bill, &billing}) && verdict_find(p);
    p->is_steady = walk.is_settled;
    for (int i = 0; i < KIND_COUNT; i++) p->kind[i].count = walk.counts[i];
    if (!ok) price_free(p);
    return ok;
}

bool price_make(struct price *p, const struct settings *s, tl_device *device, uint64_t limit_bytes) {
    return price_with(p, s, device, limit_bytes, false, 0);
}
bool price_sketch(struct price *p, const struct settings *s, tl_device *device, uint64_t limit_bytes) {
    return price_with(p, s, device, limit_bytes, true, 0);
}
bool price_sketch_rank(struct price *p, const struct settings *s, tl_device *device, uint64_t limit_bytes, int rank) {
    return price_with(p, s, device, limit_bytes, true, rank);
}

void price_free(struct price *p) {
    for (int i = 0; i < KIND_COUNT; i++) tl_ledger_free(p->kind[i].ledger);
    memset(p->kind, 0, sizeof p->kind);
}

/* ---- As a text ---- */

static char *text_of(const struct settings *s, const struct kinds *before, int64_t from, tl_device *device,
                     int64_t walked, int rank) {
    struct kinds kinds = {0};
    struct walk walk = {.from = walked, .rank = rank};
    char *text = NULL;
    if (device && walk_run(&walk, s, device, settings_memory_limit(s), &(struct walker){walk_bill_kinds, &kinds})) {
        for (int i = 0; i < KIND_COUNT; i++) {
            int64_t behind = before ? before->kind[i].count : 0;
            kinds.kind[i].count = behind + (walk.counts[i] ? kind_n_due(s, (enum step_kind)i, from, s->steps) : 0);
        }
        text = kinds_text(&kinds, s);
    }
    kinds_free(&kinds);
    return text;
}

char *price_text_on(const struct settings *s, tl_device *device) { return text_of(s, NULL, 0, device, 0, 0); }
char *price_text_rest(const struct settings *s, const struct kinds *before, int64_t from, int64_t walked, int rank) {
    return text_of(s, before, from, walk_stand_in(s), walked, rank);
}

char *price_text(const struct settings *s) { return price_text_of(s, 0); }
char *price_text_of(const struct settings *s, int rank) {
    char *text = text_of(s, NULL, 0, walk_stand_in(s), 0, rank);
    if (!text && tl_error() == TL_ERROR_MEMORY) advice_add(s, walk_stand_in(s));
    return text;
}

/* price.c: the trainer's loop on meta, billed.
 *
 * The walk is made twice at most. First with a pool that may reserve anything: that gives every count, also of a run
 * that is too large. If the pool reserved more than the device has, the run may still fit, since a pool that is
 * refused returns its unused segments and asks again. Whether it does is not guessed: the second walk has the
 * device's own limit. */
#include "plan/price.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/process.h"
#include "device/devices.h"
#include "train/recipe.h"
#include "train/trainer.h"

/* ---- The machine ---- */

static bool target_is_cpu(struct price_target *t) {
    t->device = tl_device_find("meta");
    t->memory_bytes = process_memory_bytes();
    t->has_kernels = true;
    return t->device != NULL;
}

/* The rules and the memory of a target. */
static bool target_take(struct price_target *t, tl_device *device) {
    t->device = device;
    if (!device) return false;
    t->has_kernels = true;
    t->memory_bytes = device->target->memory_bytes;
    t->outside_bytes = device->target->outside_bytes;
    return true;
}

/* A chip of the table. One without a target of its own is priced by the rules of the H200, the GPU that was
 * measured, within its own memory. */
static bool target_is_chip(struct price_target *t, const struct hardware *chip) {
    char meta[64];
    snprintf(meta, sizeof meta, "meta:%s", chip->target ? chip->target : "h200");
    if (!target_take(t, tl_device_find(meta))) return false;
    t->chip = chip;
    t->has_kernels = chip->vendor && !strcmp(chip->vendor, "NVIDIA");
    t->is_assumed = !chip->target;
    t->speed = predict_machine_of_chip(chip);
    t->memory_bytes = (uint64_t)hardware_memory_bytes(chip);
    return true;
}

/* A device or a target by Tally's own name: "cuda", "cuda:0@t4", "meta:t4", "t4". Its chip is the row of the table
 * that has this target, or the driver's name. */
static bool target_is_own(struct price_target *t, tl_device *device) {
    if (!target_take(t, device)) return false;
    const struct target *own = device->target;
    const struct hardware *h;
    for (int i = 0; (h = hardware_at(i)) && !t->chip; i++)
        if (h->target && !strcmp(h->target, own->name)) t->chip = h;
    if (!t->chip && own->chip) t->chip = hardware_seek(own->chip);
    if (t->chip) t->speed = predict_machine_of_chip(t->chip);
    return true;
}

bool price_target_find(struct price_target *t, const char *name) {
    *t = (struct price_target){0};
    snprintf(t->name, sizeof t->name, "%s", name);
    if (!strcmp(name, "cpu") || !strcmp(name, "this") || !strcmp(name, "meta:cpu")) return target_is_cpu(t);
    const struct hardware *chip = hardware_seek(name);
    if (chip) return target_is_chip(t, chip);
    if (target_find(name) || strpbrk(name, ":@") || !strcmp(name, "cuda"))
        return target_is_own(t, device_stand_in(name));
    hardware_find(name);
    return false;
}

const char *price_target_origin(const struct price_target *t) {
    static const char *const names[] = {
        [TARGET_MEASURED] = "measured", [TARGET_SHEET] = "never run", [TARGET_DRIVER] = "driver"};
    return t->is_assumed ? "assumed" : names[t->device->target->origin];
}

void price_target_measured(struct price_target *t, const struct machine *machine) {
    t->speed = predict_machine_of(machine);
}

void price_target_override(struct price_target *t, const struct settings *s) {
    uint64_t bytes = settings_memory_limit(s);
    const struct recipe *recipe = s->peak > 0 ? recipe_find(settings_choice(s, "recipe")) : NULL;
    if (recipe) t->speed.peak[recipe_product_dtype(recipe)] = s->peak;
    t->has_given_peak = recipe != NULL;
    if (!bytes) return;
    t->memory_bytes = bytes;
    t->outside_bytes = 0;
}

uint64_t price_target_limit(const struct price_target *t) {
    return t->memory_bytes > t->outside_bytes ? t->memory_bytes - t->outside_bytes : t->memory_bytes;
}

const char *price_verdict_text(enum price_verdict verdict) {
    static const char *const texts[] = {"fits", "fits tightly", "too large", "not known"};
    return texts[verdict];
}

/* ---- The walk ---- */

const struct held_window *price_window(const struct price *p, enum step_kind kind) {
    const tl_ledger *ledger = p->kind[kind].ledger;
    for (int i = 0; ledger && i < ledger->n_devices; i++)
        if (ledger->memory[i].device == p->target.device) return &ledger->memory[i].window;
    return NULL;
}

struct walk {
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

static bool costs_the_same(const tl_ledger *a, const tl_ledger *b, const tl_device *device) {
    tl_totals x = tl_ledger_total(a, TL_ALL, NULL), y = tl_ledger_total(b, TL_ALL, NULL);
    return x.calls == y.calls && !memcmp(&x.flops, &y.flops, sizeof x.flops) &&
           !memcmp(&x.bytes_read, &y.bytes_read, sizeof x.flops) &&
           !memcmp(&x.bytes_written, &y.bytes_written, sizeof x.flops) &&
           tl_ledger_peak(a, device, TL_ALL) == tl_ledger_peak(b, device, TL_ALL);
}

/* Of the steps the second is kept: in the first one the pool still grows. */
static bool bill(void *context, enum step_kind kind, tl_ledger *ledger, tl_device *device) {
    struct walk *w = context;
    struct price_kind *own = &w->price->kind[kind];
    peaks_note(w->price, kind, ledger, device);
    if (kind == KIND_STEP) w->n_steps++;
    if (kind == KIND_STEP && w->n_steps == 2) {
        tl_ledger_free(own->ledger);
        own->ledger = NULL;
    }
    if (!own->ledger) {
        own->ledger = ledger;
        return true;
    }
    if (kind == KIND_STEP && !costs_the_same(ledger, own->ledger, device)) w->price->is_steady = false;
    tl_ledger_free(ledger);
    return true;
}

static bool bill_nothing(void *context, enum step_kind kind, tl_ledger *ledger, tl_device *device) {
    (void)context, (void)kind, (void)device;
    tl_ledger_free(ledger);
    return true;
}

__attribute__((noinline)) static bool walk_with_limit(const struct settings *s, tl_device *device, uint64_t limit_bytes,
                                                      bool is_sketch, const struct run_walker *w,
                                                      int64_t counts[KIND_COUNT]) {
    struct settings limited = *s;
    snprintf(limited.memory_limit, sizeof limited.memory_limit, "%" PRIu64, limit_bytes);
    return is_sketch ? run_sketch(&limited, device, w, counts) : run_walk(&limited, device, w, counts);
}

/* Reserved more than there is: does it fit when what is unused goes back? */
static bool fits_when_trimmed(const struct settings *s, const struct price_target *t, bool *fits) {
    int64_t counts[KIND_COUNT];
    struct run_walker walker = {bill_nothing, NULL};
    tl_policy policy = tl_error_policy(TL_RETURN);
    *fits = walk_with_limit(s, t->device, price_target_limit(t), true, &walker, counts);
    tl_error_policy(policy);
    if (*fits) return true;
    bool is_refused = tl_error() == TL_ERROR_MEMORY && strstr(tl_error_message(), "out of memory on meta") != NULL;
    if (is_refused) tl_error_clear();
    return is_refused;
}

static bool verdict_find(struct price *p) {
    uint64_t limit = price_target_limit(&p->target);
    bool fits = false;
    p->verdict = !limit ? PRICE_UNKNOWN : p->reserved_bytes <= limit ? PRICE_FITS : PRICE_TOO_LARGE;
    if (p->verdict != PRICE_TOO_LARGE || p->allocated_bytes > limit) return true; /* blocks alone are too many */
    if (!fits_when_trimmed(&p->settings, &p->target, &fits)) return false;
    if (fits) p->verdict = PRICE_FITS_TIGHTLY;
    return true;
}

static bool price_with(struct price *p, const struct settings *s, const struct price_target *target, bool is_sketch) {
    char weights[SETTING_TEXT];
    memset(p, 0, sizeof *p); /* too large to be built on the stack first */
    p->settings = *s;
    p->target = *target;
    p->is_steady = true;
    if (!settings_check(s) || !trainer_model(s, &p->config, weights)) return false;
    p->n_parameters = tl_model_config_parameters(&p->config);
    if (__builtin_mul_overflow(s->accum, s->batch, &p->n_tokens) ||
        __builtin_mul_overflow(p->n_tokens, s->seq, &p->n_tokens))
        return error_set(TL_ERROR_USE, "batch: a step of more than 2^63 - 1 tokens");
    struct walk walk = {p, 0};
    struct run_walker walker = {bill, &walk};
    int64_t counts[KIND_COUNT] = {0};
    bool ok = walk_with_limit(s, target->device, (uint64_t)3 << 60, is_sketch, &walker, counts) && verdict_find(p);
    for (int i = 0; i < KIND_COUNT; i++) p->kind[i].count = counts[i];
    if (!ok) price_free(p);
    return ok;
}

bool price_make(struct price *p, const struct settings *s, const struct price_target *target) {
    return price_with(p, s, target, false);
}
bool price_sketch(struct price *p, const struct settings *s, const struct price_target *target) {
    return price_with(p, s, target, true);
}

void price_free(struct price *p) {
    for (int i = 0; i < KIND_COUNT; i++) tl_ledger_free(p->kind[i].ledger);
    memset(p->kind, 0, sizeof p->kind);
}

/* run_price.c: the price in a run's folder, and the receipt against it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "device/devices.h"
#include "step/price.h"
#include "train/run_parts.h"

static bool price_write(struct run *r, char *text) {
    static const char *const names[] = {RUN_PRICE};
    return folder_put(&r->folder, RUN_PRICE, text) && folder_seal(&r->folder, NULL, names, 1);
}

/* Whether price.json is a price, and unchanged since it was written. */
static bool price_look(struct run *r, bool *is_good) {
    enum folder_state state;
    json_t *price = NULL;
    if (!folder_look(&r->folder, NULL, RUN_PRICE, &state) || !folder_json(&r->folder, RUN_PRICE, &price)) return false;
    const char *schema = json_string_value(json_object_get(price, "schema"));
    *is_good = state != FOLDER_DAMAGED && schema && !strcmp(schema, "tally.run/1");
    json_decref(price);
    return true;
}

/* The price is made first: a run that does not fit is reported before the first step. */
bool run_price_begin(struct run *r) {
    bool is_good;
    if (!price_look(r, &is_good)) return false;
    if (is_good && !*r->settings.memory_limit) return true;
    char *price = price_text(&r->settings);
    r->needs_price = r->found && !is_good;
    if (price && is_good) return free(price), true;
    return price && price_write(r, price);
}

/* The most that any kind of step reserves, according to the price in the folder. */
static bool price_peak(struct run *r, uint64_t *most) {
    json_t *price = NULL, *kind;
    const char *name;
    if (!folder_json(&r->folder, RUN_PRICE, &price)) return false;
    *most = 0;
    json_object_foreach(json_object_get(price, "kinds"), name, kind) {
        const json_t *memory = json_object_get(json_object_get(kind, "ledger"), "memory");
        const char *text = json_string_value(json_object_get(memory, "peak_reserved_bytes"));
        uint64_t bytes = text ? strtoull(text, NULL, 10) : 0;
        if (bytes > *most) *most = bytes;
    }
    json_decref(price);
    return true;
}

/* If no limit is given, the device's memory is the limit. A pool that is refused memory returns its unused segments
 * and tries again, so pricing under the limit shows whether a larger price fits. */
__attribute__((noinline)) bool run_memory_suffices(struct run *r, tl_device *device) {
    uint64_t have = device_memory_bytes(device), need;
    if (*r->settings.memory_limit || !have) return true;
    if (!price_peak(r, &need) || need <= have) return tl_error() == TL_OK;
    struct settings limited = r->settings;
    snprintf(limited.memory_limit, sizeof limited.memory_limit, "%" PRIu64, have);
    char *price = price_text(&limited);
    free(price);
    return price != NULL;
}

/* Whether the price in the folder is that of these settings: a process with other settings may have ended before its
 * first save. False: recorded. */
__attribute__((noinline)) static bool price_is_ours(struct run *r, bool *is) {
    struct settings priced = settings_default();
    json_t *price;
    if (!folder_json(&r->folder, RUN_PRICE, &price)) return false;
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    *is = settings_take_json(&priced, RUN_PRICE, json_object_get(price, "settings")) &&
          settings_cost_same(&priced, &r->settings);
    tl_set_error_policy(policy);
    json_decref(price);
    if (tl_error() == TL_ERROR_MEMORY) return false;
    tl_error_clear();
    return true;
}

/* A run that resumes with settings of another cost keeps its counts so far, and the rest is priced again, with new
 * ledgers. `before`: the settings when it was saved. */
bool run_price_again(struct run *r, const struct settings *before) {
    const struct settings *s = &r->settings;
    bool is_ours;
    if (r->step == s->steps) return true;
    if (!run_is_first(r)) return run_ranks_price(r, true);
    if (!price_is_ours(r, &is_ours)) return false;
    if (settings_cost_same(before, s) && !*r->changes && is_ours) return true;
    kinds_forget(&r->kinds);
    r->owes_evaluation = false; /* the rest is priced from the next step on */
    return price_write(r, price_text_rest(s, &r->kinds, r->step, r->step, 0)) &&
           folder_put(&r->folder, RUN_CONFIG, settings_json(s));
}

/* Restores a damaged price from the counts in the checkpoint; for a finished run, with the settings that it had.
 * */
bool run_price_repair(struct run *r) {
    const struct settings *s = r->step == r->settings.steps ? &r->saved : &r->settings;
    if (!r->needs_price || !run_is_first(r)) return true;
    log_line("run: %s/%s was missing or damaged: the run is priced again", r->settings.out, RUN_PRICE);
    struct kinds behind = r->kinds;
    behind.kind[KIND_EVAL].count += r->owes_evaluation; /* which will be made up for */
    return price_write(r, price_text_rest(s, &behind, r->step, 0, 0));
}

/* How often each kind comes: less what was to come, and what is due at the end of a run, if it was not due anyway. */
static bool counts_shorten(const struct run *r, json_t *price, int64_t before) {
    const struct settings *s = &r->settings;
    json_t *kinds = json_object_get(price, "kinds");
    bool ok = true;
    for (int i = 0; ok && i < KIND_COUNT; i++) {
        const enum step_kind which = (enum step_kind)i;
        json_t *kind = json_object_get(kinds, kind_name(which));
        if (!kind) continue;
        const int64_t rest = kind_n_due(s, which, r->step, before), so_far = kind_n_due(s, which, 0, before) - rest;
        const int64_t at_end = kind_n_due(s, which, 0, r->step) - so_far; /* 1: it is due there for the end alone */
        const int64_t now = json_integer_value(json_object_get(kind, "count")) - rest + at_end;
        ok = json_object_set_new(kind, "count", json_integer(now)) == 0;
    }
    return ok && json_object_set_new(json_object_get(price, "settings"), "steps", json_integer(s->steps)) == 0;
}

bool run_price_shorten(struct run *r, int64_t before) {
    json_t *price = NULL;
    if (run_is_first(r) && !folder_json(&r->folder, RUN_PRICE, &price)) return false;
    if (!run_is_first(r)) price = json_parse(r->price, NULL);
    char *text =
        price && counts_shorten(r, price, before) ? json_print(price, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    if (!text) error_memory(4096, "a price");
    json_decref(price);
    if (!text) return false;
    if (run_is_first(r)) return price_write(r, text) && folder_put(&r->folder, RUN_CONFIG, settings_json(&r->settings));
    free(r->price);
    r->price = text;
    return true;
}

/* If the process holds other tensors, the receipt's memory is not only the run's; the price's memory then replaces
 * it. */
static char *without_memory(const char *receipt_text, const char *price_json) {
    json_t *receipt = json_parse(receipt_text, NULL), *price = json_parse(price_json, NULL), *kind;
    const char *name;
    json_object_foreach(json_object_get(receipt, "kinds"), name, kind) {
        json_t *other = json_object_get(json_object_get(json_object_get(price, "kinds"), name), "ledger");
        json_t *memory = json_object_get(other, "memory");
        if (memory) json_object_set(json_object_get(kind, "ledger"), "memory", memory);
    }
    char *text = receipt ? json_print(receipt, 0) : NULL;
    if (!text) error_memory(strlen(receipt_text), "a comparison of ledgers");
    json_decref(receipt);
    json_decref(price);
    return text;
}

static int differences_of(const struct run *r, const char *price, const char *receipt) {
    if (!r->summary->foreign_bytes) return tl_ledger_diff(price, receipt, NULL);
    char *compared = without_memory(receipt, price);
    int n = compared ? tl_ledger_diff(price, compared, NULL) : -1;
    free(compared);
    return n;
}

/* Of a rank that has no files; a run that was done before has nothing to compare there. */
static bool verdict_here(struct run *r) {
    char *receipt = r->price ? kinds_text(&r->kinds, &r->settings) : NULL;
    r->summary->differences = !r->price ? 0 : receipt ? differences_of(r, r->price, receipt) : -1;
    free(receipt);
    return r->summary->differences >= 0;
}

/* Compares price and receipt, both from the folder. */
bool run_verdict(struct run *r) {
    size_t bytes;
    if (!run_is_first(r)) return verdict_here(r);
    char *price = file_get_at(file_in(r->folder.dir, RUN_PRICE), JSON_MOST_LEDGER, &bytes);
    char *receipt = price ? file_get_at(file_in(r->folder.dir, RUN_RECEIPT), JSON_MOST_LEDGER, &bytes) : NULL;
    r->summary->differences = receipt ? differences_of(r, price, receipt) : -1;
    memory_free(price);
    memory_free(receipt);
    return r->summary->differences >= 0;
}

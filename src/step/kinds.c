#include "step/kinds.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account/load.h"
#include "base/error.h"
#include "base/json.h"

static const char *const names[KIND_COUNT] = {"step",     "eval",     "sample",   "save",     "warmup-1", "warmup-2",
                                              "warmup-3", "warmup-4", "warmup-5", "warmup-6", "warmup-7"};
const char *kind_name(enum step_kind kind) { return names[kind]; }

enum step_kind kind_of_step(const struct settings *s, int64_t step) {
    int stage = ramp_stage(s, step);
    return stage < ramp_stages(s) ? (enum step_kind)(KIND_WARMUP + stage) : KIND_STEP;
}

static int64_t n_every(int64_t every, int64_t from, int64_t steps) {
    if (from >= steps) return 0;
    return every > 0 ? steps / every - from / every + (steps % every != 0) : 1;
}

/* The steps of a stage that come after `from`. */
static int64_t n_in_stage(const struct settings *s, int stage, int64_t from, int64_t steps) {
    int64_t begin = ramp_stage_begin(s, stage), end = stage < ramp_stages(s) ? ramp_stage_begin(s, stage + 1) : steps;
    if (begin < from) begin = from;
    if (end > steps) end = steps;
    return end > begin ? end - begin : 0;
}

int64_t kind_n_due(const struct settings *s, enum step_kind kind, int64_t from, int64_t steps) {
    const int64_t every[] = {[KIND_EVAL] = s->eval_every, [KIND_SAMPLE] = s->sample_every, [KIND_SAVE] = s->save_every};
    if (kind == KIND_STEP) return n_in_stage(s, ramp_stages(s), from, steps);
    if (!kind_is_step(kind)) return n_every(every[kind], from, steps);
    const int stage = (int)kind - KIND_WARMUP;
    return stage < ramp_stages(s) ? n_in_stage(s, stage, from, steps) : 0;
}

/* memset first: sums are compared as bytes. */
static void sum_make(struct kind_sum *sum, const tl_ledger *ledger, const tl_device *device) {
    memset(sum, 0, sizeof *sum);
    const bool has_load = ledger_has_load(ledger); /* then the data decides the rest */
    for (int p = 0; p < TL_PHASE_COUNT; p++) {
        tl_totals total = tl_ledger_total(ledger, p, NULL);
        sum->calls[p] = total.calls;
        if (has_load) continue;
        sum->flops[p] = total.flops;
        sum->bytes_read[p] = total.bytes_read;
        sum->bytes_written[p] = total.bytes_written;
    }
    if (has_load) return;
    sum->transfer_bytes = tl_ledger_transfer_bytes(ledger);
    for (int p = 0; p < TL_PURPOSE_COUNT; p++) sum->peak[p] = tl_ledger_peak(ledger, device, p);
    sum->peak_bytes = tl_ledger_peak(ledger, device, TL_ALL);
    sum->peak_allocated_bytes = tl_ledger_peak_allocated(ledger, device);
}

static json_t *ledger_load(const tl_ledger *ledger, const tl_device *device) {
    char *text = tl_ledger_json(ledger, device);
    json_error_t problem;
    json_t *json = text ? json_parse(text, &problem) : NULL;
    if (text && !json && *problem.text)
        error_set(TL_ERROR_USE, "a ledger of %zu bytes: %s", strlen(text), problem.text);
    else if (text && !json) error_memory(strlen(text), "a ledger");
    free(text);
    return json;
}

/* Two ledgers with their reserved bytes left out of the comparison. -1: recorded. */
static int differences(const json_t *a, const json_t *b) {
    json_t *x = json_deep_copy(a), *y = json_deep_copy(b);
    json_t *memory_x = json_object_get(x, "memory"), *memory_y = json_object_get(y, "memory");
    if (memory_x) json_object_set_new(memory_x, "peak_reserved_bytes", json_string("0"));
    if (memory_y) json_object_set_new(memory_y, "peak_reserved_bytes", json_string("0"));
    char *text_x = x ? json_print(x, 0) : NULL, *text_y = y ? json_print(y, 0) : NULL;
    int n = text_x && text_y ? tl_ledger_diff(text_x, text_y, NULL) : -1;
    if (!text_x || !text_y) error_memory(4096, "a comparison of ledgers");
    free(text_x);
    free(text_y);
    json_decref(x);
    json_decref(y);
    return n;
}

static void differs(struct kinds *k, enum step_kind kind) {
    if (!*k->difference)
        snprintf(k->difference, sizeof k->difference, "%s %" PRId64 " cost something else than those before it",
                 names[kind], k->kind[kind].count);
}

/* The ledger that later ones are compared with; that of an earlier process, if any, must be the same. */
static bool keep(struct kinds *k, enum step_kind kind, const tl_ledger *ledger, const tl_device *device, bool is_new) {
    struct kind *own = &k->kind[kind];
    json_t *json = ledger_load(ledger, device);
    if (!json) return false;
    if (is_new) {
        json_decref(own->ledger);
        own->ledger = json;
        return true;
    }
    int n = differences(own->ledger, json);
    json_decref(json);
    if (n > 0) differs(k, kind);
    return n >= 0;
}

bool kinds_add(struct kinds *k, enum step_kind kind, const tl_ledger *ledger, const tl_device *device) {
    struct kind *own = &k->kind[kind];
    struct kind_sum sum;
    sum_make(&sum, ledger, device);
    int64_t n_read = own->count - own->n_here;                   /* in earlier processes */
    int64_t n_unsteady = kind == KIND_STEP, n = own->n_here + 1; /* here, with this one */
    own->count++;
    own->n_here++;
    if (n <= n_unsteady) /* until there is a better one */
        return (n_read > 0 && !own->is_forgotten) || keep(k, kind, ledger, device, true);
    if (n == n_unsteady + 1) {
        own->sum = sum;
        return keep(k, kind, ledger, device, n_read <= n_unsteady || own->is_forgotten);
    }
    if (memcmp(&sum, &own->sum, sizeof sum)) differs(k, kind);
    return true;
}

void kinds_time(struct kinds *k, enum step_kind kind, double seconds) {
    k->kind[kind].seconds += seconds;
    k->kind[kind].n_timed++;
}

void kinds_pairs(struct kinds *k, enum step_kind kind, int64_t pairs, int64_t causal_pairs) {
    k->kind[kind].pairs += pairs;
    k->kind[kind].causal_pairs += causal_pairs;
}

enum step_kind kinds_largest(const struct kinds *k) {
    int kind = KIND_STEP;
    if (!k->kind[KIND_STEP].count) kind = KIND_COUNT - 1;
    while (kind >= KIND_WARMUP && !k->kind[kind].count) kind--;
    return kind < KIND_WARMUP ? KIND_STEP : (enum step_kind)kind;
}

void kinds_forget(struct kinds *k) {
    for (int i = 0; i < KIND_COUNT; i++) {
        json_decref(k->kind[i].ledger);
        k->kind[i].ledger = NULL;
        k->kind[i].is_forgotten = true;
    }
}

void kinds_free(struct kinds *k) {
    for (int i = 0; i < KIND_COUNT; i++) json_decref(k->kind[i].ledger);
    memset(k, 0, sizeof *k);
}

json_t *kinds_json(const struct kinds *k) {
    json_t *json = json_object();
    bool ok = json != NULL;
    for (int i = 0; ok && i < KIND_COUNT; i++) {
        const struct kind *own = &k->kind[i];
        if (!own->ledger && !own->count) continue;
        json_t *ledger = own->ledger ? json_incref(own->ledger) : json_null();
        json_t *entry = json_pack("{s:I, s:o}", "count", (json_int_t)own->count, "ledger", ledger);
        if (entry && own->n_unplanned) json_object_set_new(entry, "unplanned", json_integer(own->n_unplanned));
        if (entry && own->n_timed) /* apart, as in the log: two receipts can be compared without it */
            json_object_set_new(entry, "time",
                                json_pack("{s:f, s:I}", "step_s", own->seconds / (double)own->n_timed, "steps",
                                          (json_int_t)own->n_timed));
        if (entry && own->causal_pairs)
            json_object_set_new(entry, "attention",
                                json_pack("{s:I, s:I}", "pairs", (json_int_t)own->pairs, "causal_pairs",
                                          (json_int_t)own->causal_pairs));
        ok = entry && json_object_set_new(json, names[i], entry) == 0;
    }
    if (ok) return json;
    json_decref(json);
    error_memory(4096, "a receipt");
    return NULL;
}

bool kinds_read(struct kinds *k, const json_t *json) {
    memset(k, 0, sizeof *k);
    for (int i = 0; i < KIND_COUNT; i++) {
        const json_t *entry = json_object_get(json, names[i]);
        if (!entry) continue;
        json_t *count = json_object_get(entry, "count"), *ledger = json_object_get(entry, "ledger");
        if (!json_is_integer(count) || json_integer_value(count) < 0 ||
            !(json_is_object(ledger) || json_is_null(ledger))) {
            kinds_free(k);
            return error_set(TL_ERROR_USE, "the checkpoint's state.json: \"%s\" has no count and ledger", names[i]);
        }
        k->kind[i].count = json_integer_value(count);
        k->kind[i].is_forgotten = json_is_null(ledger);
        if (json_is_object(ledger)) k->kind[i].ledger = json_incref(ledger);
        const json_t *time = json_object_get(entry, "time");
        k->kind[i].n_timed = json_integer_value(json_object_get(time, "steps"));
        k->kind[i].seconds = json_number_value(json_object_get(time, "step_s")) * (double)k->kind[i].n_timed;
        k->kind[i].n_unplanned = json_integer_value(json_object_get(entry, "unplanned"));
        const json_t *attention = json_object_get(entry, "attention");
        k->kind[i].pairs = json_integer_value(json_object_get(attention, "pairs"));
        k->kind[i].causal_pairs = json_integer_value(json_object_get(attention, "causal_pairs"));
    }
    return true;
}

char *kinds_text(const struct kinds *k, const struct settings *s) {
    char *settings = settings_json(s), *text = NULL;
    json_t *kinds = settings ? kinds_json(k) : NULL, *own = kinds ? json_parse(settings, NULL) : NULL;
    json_t *root = own ? json_pack("{s:s, s:O, s:O}", "schema", "tally.run/1", "settings", own, "kinds", kinds) : NULL;
    if (root) text = json_print(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    if (!text) error_memory(4096, "a receipt");
    json_decref(root);
    json_decref(own);
    json_decref(kinds);
    free(settings);
    return text;
}

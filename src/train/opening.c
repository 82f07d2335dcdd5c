#include "train/opening.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/number.h"
#include "step/groups.h"
#include "step/price.h"
#include "step/ramp.h"
#include "step/tuning.h"

static double number_of(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text ? number_parse(text, NULL) : 0;
}

static void most(uint64_t *so_far, double value) {
    if (value > (double)*so_far) *so_far = (uint64_t)value;
}

/* The kinds of one rank's price, of which there are n like it. `counts` has how often they come. */
static void ledgers_add(struct opening *o, const json_t *kinds, const json_t *counts, double n) {
    const char *name;
    json_t *kind;
    json_object_foreach((json_t *)(uintptr_t)kinds, name, kind) {
        const json_t *ledger = json_object_get(kind, "ledger"), *memory = json_object_get(ledger, "memory");
        double flops = number_of(json_object_get(ledger, "totals"), "flops") * n;
        if (!strcmp(name, kind_name(KIND_STEP))) o->step_flops += flops;
        o->flops += flops * (double)json_integer_value(json_object_get(json_object_get(counts, name), "count"));
        most(&o->held_bytes, number_of(memory, "peak_bytes"));
        most(&o->reserved_bytes, number_of(memory, "peak_reserved_bytes"));
    }
}

/* The ranks of a stage do the same, and other stages something else. */
static bool stages_add(struct opening *o, const struct settings *s, const json_t *counts) {
    bool ok = true;
    for (int stage = 1; ok && stage < s->pp; stage++) {
        char *text = price_text_of(s, stage * (o->n_ranks / (int)s->pp));
        json_t *price = text ? json_parse(text, NULL) : NULL;
        ok = price || (text && error_memory(strlen(text), "the price of a stage"));
        if (ok) ledgers_add(o, json_object_get(price, "kinds"), counts, o->n_ranks / (double)s->pp);
        json_decref(price);
        free(text);
    }
    return ok;
}

bool opening_make(struct opening *o, const struct settings *s, const tl_model_config *config,
                  const struct source *source, const json_t *price) {
    const json_t *kinds = json_object_get(price, "kinds");
    *o = (struct opening){.settings = s, .config = *config, .n_parameters = tl_model_config_parameters(config)};
    if (!tuning_count(s, config, &o->n_trained)) return false;
    if (!strcmp(settings_choice(s, "optimizer"), "muon") && !groups_count_muon(s, config, &o->n_muon)) return false;
    o->n_ranks = (int)((s->dp ? s->dp : 1) * s->tp * s->cp * s->pp);
    if (__builtin_mul_overflow(s->accum * s->batch, settings_window(s), &o->step_tokens))
        return error_set(TL_ERROR_USE, "batch: a step of more than 2^63 - 1 tokens");
    o->n_steps = (double)ramp_batches(s, s->steps) / (double)s->accum;
    o->n_train = source->train.last - source->train.first;
    o->n_sets = source->n_held_out;
    for (int i = 0; i < o->n_sets; i++) o->n_held_out += source->held_out[i].last - source->held_out[i].first;
    o->are_bytes = !source->train.file && !source->is_bytes;
    ledgers_add(o, kinds, kinds, o->n_ranks / (double)s->pp);
    return stages_add(o, s, kinds);
}

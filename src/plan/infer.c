#include "nn/architecture.h"
#include "plan/infer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "nn/layers.h"
#include "plan/napkin.h"
#include "step/recipe.h"
#include "step/trainer.h"

/* ---- One pass ---- */

struct passes {
    tl_ledger *prefill, *first, *last;
    uint64_t weights_bytes, cache_bytes;
};

static void passes_free(struct passes *p) {
    tl_ledger_free(p->prefill);
    tl_ledger_free(p->first);
    tl_ledger_free(p->last);
}

/* A pass over T tokens of every sequence after those of the cache. */
static tl_ledger *pass(tl_module *model, tl_device *device, tl_cache *cache, int64_t batch, int64_t T,
                       const char *name) {
    tl_scope scope = tl_scope_begin();
    tl_ledger *ledger = tl_ledger_begin(name);
    tl_tensor *tokens = tl_set_purpose(tl_empty(TL_SHAPE(batch, T), TL_I64, device), TL_DATA);
    bool ok = ledger && tokens && tl_model_next(model, tokens, cache);
    ok = ledger && tl_ledger_end(ledger) && ok;
    ok = scope.depth && tl_scope_end(scope) && ok;
    if (ok) return ledger;
    tl_ledger_free(ledger);
    return NULL;
}

/* The cache has room for the prompt and the new tokens; only the last step runs at that length. */
static bool passes_make(struct passes *p, tl_module *model, tl_device *device, int64_t batch, int64_t n_prompt,
                        int64_t n_new) {
    tl_cache *cache = tl_cache_new(model, batch, n_prompt + n_new);
    bool ok = cache && (p->prefill = pass(model, device, cache, batch, n_prompt, "prefill")) &&
              (p->first = pass(model, device, cache, batch, 1, "decode"));
    if (ok && n_new > 2) { /* steps in between differ only in length */
        tl_ledger *between = pass(model, device, cache, batch, n_new - 2, "between");
        tl_ledger_free(between);
        ok = between != NULL;
    }
    ok = ok && (n_new < 2 || (p->last = pass(model, device, cache, batch, 1, "decode")));
    tl_cache_free(cache);
    return ok;
}

static uint64_t live_bytes(tl_device *device) { return tl_device_memory(device).live_bytes; }

static bool passes_of(const struct infer_question *q, int64_t batch, struct passes *p) {
    const struct recipe *recipe = recipe_find(settings_choice(&q->settings, "recipe"));
    tl_model_config c;
    char weights[SETTING_TEXT];
    tl_device *device = q->target.device;
    *p = (struct passes){0};
    if (!recipe || !trainer_model(&q->settings, &c, weights)) return false;
    tl_pool_trim(device);
    tl_set_pool_limit(device, UINT64_MAX);
    uint64_t before = live_bytes(device);
    tl_module *model = tl_model_new(&c, recipe->parameters, device);
    bool ok = model != NULL, grad = tl_set_grad_mode(false);
    if (ok) linear_set_mode(model, recipe->linear);
    if (ok) tl_module_train(model, false);
    tl_dtype autocast = tl_set_autocast(recipe->autocast);
    p->weights_bytes = live_bytes(device) - before;
    ok = ok && passes_make(p, model, device, batch, q->settings.seq, q->n_new);
    tl_set_autocast(autocast);
    tl_set_grad_mode(grad);
    tl_module_free(model);
    tl_pool_trim(device);
    tl_set_pool_limit(device, 0);
    if (!ok) passes_free(p);
    return ok;
}

/* A pass over T tokens. */
static struct infer_part part_of(const tl_ledger *l, const struct predict_machine *m, const tl_model_config *c,
                                 int64_t T) {
    const struct predict_shape shape = predict_shape_of(c, T);
    struct infer_part part = {0};
    bool is_known = m->bandwidth > 0;
    for (size_t i = 0; l && i < l->n_rows; i++) {
        const struct ledger_row *row = &l->rows[i];
        double peak = row->key.dtype < TL_DTYPE_COUNT ? m->peak[row->key.dtype] : 0;
        if (!predict_knows(m, row)) is_known = false;
        part.flops += row->flops;
        part.bytes += row->bytes_read + row->bytes_written;
        if (peak > 0) part.arithmetic_s += (double)row->flops / peak;
        part.roofline_s += predict_roof(m, row);
    }
    if (!is_known) return (struct infer_part){.flops = part.flops, .bytes = part.bytes};
    part.memory_s = (double)part.bytes / m->bandwidth;
    double predicted = l ? predict_ledger(m, &shape, l).seconds : 0;
    if (isfinite(predicted)) part.predicted_s = predicted;
    return part;
}

static double seconds_of(const struct infer_part *p) { return p->predicted_s > 0 ? p->predicted_s : p->roofline_s; }

/* ---- Batches ---- */

static uint64_t reserved_of(const struct passes *p, const tl_device *device) {
    uint64_t most = 0;
    const tl_ledger *all[] = {p->prefill, p->first, p->last};
    for (int i = 0; i < 3; i++) {
        uint64_t bytes = all[i] ? tl_ledger_peak_reserved(all[i], device) : 0;
        if (bytes > most) most = bytes;
    }
    return most;
}

enum batch_test { BATCH_TOO_LARGE, BATCH_PRODUCTS, BATCH_ALL };

/* Whether a batch no longer fits, or its decode step is bound by arithmetic. */
static bool batch_try(const struct infer_question *q, enum batch_test test, int64_t batch, bool *is_so) {
    struct passes p;
    double arithmetic = 0, memory = 0;
    if (!passes_of(q, batch, &p)) return false;
    const tl_ledger *l = p.last ? p.last : p.first;
    for (size_t i = 0; i < l->n_rows; i++) {
        const struct ledger_row *row = &l->rows[i];
        bool is_product =
            !strcmp(row->key.op, "matmul") || !strcmp(row->key.op, "grouped_matmul") || strstr(row->key.op, "_mlp");
        if (test == BATCH_PRODUCTS && !is_product) continue;
        arithmetic += (double)row->flops / q->target.speed.peak[row->key.dtype];
        memory += (double)(row->bytes_read + row->bytes_written) / q->target.speed.bandwidth;
    }
    *is_so = test == BATCH_TOO_LARGE ? reserved_of(&p, q->target.device) > plan_target_limit(&q->target)
                                     : arithmetic >= memory;
    passes_free(&p);
    return true;
}

/* The first batch for which a test holds: all three stay true once they are. 0: none up to the largest that is
 * tried. */
static bool batch_first(const struct infer_question *q, enum batch_test test, int64_t *first) {
    enum { MOST = 1 << 16 };
    int64_t low = 0, high = 1;
    bool is_so = false;
    while (!is_so && high <= MOST) {
        if (!batch_try(q, test, high, &is_so)) return false;
        if (!is_so) low = high, high *= 2;
    }
    *first = is_so ? high : 0;
    while (is_so && high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        bool here;
        if (!batch_try(q, test, middle, &here)) return false;
        if (here) high = middle;
        else low = middle;
        *first = high;
    }
    return true;
}

static bool batches_find(const struct infer_question *q, struct infer_answer *a) {
    bool has_speed = a->first.memory_s > 0, has_limit = plan_target_limit(&q->target) > 0;
    int64_t too_large = 0;
    a->compute_bound_products = a->compute_bound_all = a->largest_batch = -1;
    if (has_speed && (!batch_first(q, BATCH_PRODUCTS, &a->compute_bound_products) ||
                      !batch_first(q, BATCH_ALL, &a->compute_bound_all)))
        return false;
    if (has_limit && !batch_first(q, BATCH_TOO_LARGE, &too_large)) return false;
    if (has_limit) a->largest_batch = too_large ? too_large - 1 : 1 << 16;
    return true;
}

/* Every weight of a product is read once for a step, and every sequence's cache; the embedding is looked up. */
static void formats_find(const struct infer_question *q, struct infer_answer *a) {
    static const struct infer_format known[INFER_FORMATS] = {
        {"bf16", 16, 0, 0}, {"fp8", 8, 0, 0}, {"Q8_0", 8.5, 0, 0}, {"NVFP4", 4.5, 0, 0}, {"MXFP4", 4.25, 0, 0}};
    const struct napkin_model m = napkin_model_of(&a->config);
    const struct predict_machine *speed = &q->target.speed;
    const double batch = (double)q->settings.batch, tokens = (double)q->settings.seq;
    const double cache = (double)a->cache_token_bytes * batch * tokens, peak = speed->peak[TL_BF16];
    for (int i = 0; i < INFER_FORMATS; i++) {
        struct infer_format *f = &a->formats[i];
        *f = known[i];
        f->weights_bytes = m.parameters * f->bits / 8;
        if (speed->bandwidth > 0 && peak > 0)
            f->decode_s =
                fmax((napkin_read(&m, batch) * f->bits / 8 + cache) / speed->bandwidth, 2 * m.matmul * batch / peak);
    }
}

/* ---- The answer ---- */

bool infer_price(const struct infer_question *q, struct infer_answer *a) {
    struct infer_question whole = *q;
    struct passes p;
    char weights[SETTING_TEXT];
    *a = (struct infer_answer){0};
    whole.settings.seq += q->n_new; /* is checked against the context */
    if (!trainer_model(&whole.settings, &a->config, weights) || !passes_of(q, q->settings.batch, &p)) return false;
    const tl_model_config *c = &a->config;
    const struct predict_machine *m = &q->target.speed;
    const struct recipe *recipe = recipe_find(settings_choice(&q->settings, "recipe"));
    tl_dtype dtype = recipe->autocast < TL_DTYPE_COUNT ? recipe->autocast : recipe->parameters;
    uint64_t limit = plan_target_limit(&q->target), tokens = (uint64_t)(q->settings.seq + q->n_new);
    a->weights_bytes = p.weights_bytes;
    a->cache_token_bytes = (uint64_t)(c->n_layers * architecture_cache_numbers(c)) * (uint64_t)tl_dtype_bits(dtype) / 8;
    a->cache_bytes = a->cache_token_bytes * (uint64_t)q->settings.batch * tokens;
    a->held_bytes = tl_ledger_peak(p.prefill, q->target.device, TL_ALL);
    a->reserved_bytes = reserved_of(&p, q->target.device);
    a->verdict = !limit ? PRICE_UNKNOWN : a->reserved_bytes <= limit ? PRICE_FITS : PRICE_TOO_LARGE;
    a->prefill = part_of(p.prefill, m, c, q->settings.seq);
    a->first = part_of(p.first, m, c, 1);
    a->last = part_of(p.last ? p.last : p.first, m, c, 1);
    passes_free(&p);
    a->narrow = recipe->linear == LINEAR_FP8 ? "fp8" : recipe->linear == LINEAR_FP4 ? "fp4" : NULL;
    formats_find(q, a);
    double batch = (double)q->settings.batch, prefill_s = seconds_of(&a->prefill);
    a->decode_s = (seconds_of(&a->first) + seconds_of(&a->last)) / 2;
    if (prefill_s > 0) a->prefill_tokens_per_s = batch * (double)q->settings.seq / prefill_s;
    if (a->decode_s > 0) a->decode_tokens_per_s = batch / a->decode_s;
    return batches_find(q, a);
}

/* ---- JSON: tally.inference/1 ---- */

static json_t *count_json(count c) {
    char text[40];
    return json_string(tl_count_text(count_public(c), text));
}
static json_t *known(double x) { return x > 0 ? json_real(x) : json_null(); }
static json_t *batch_json(int64_t n) { return n < 0 ? json_null() : json_integer(n); }

static json_t *part_json(const struct infer_part *p) {
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "flops", count_json(p->flops), "bytes", count_json(p->bytes),
                     "arithmetic_s", known(p->arithmetic_s), "memory_s", known(p->memory_s), "roofline_s",
                     known(p->roofline_s), "predicted_s", known(p->predicted_s));
}

static json_t *formats_json(const struct infer_answer *a) {
    json_t *all = json_object();
    for (int i = 0; i < INFER_FORMATS; i++) {
        const struct infer_format *f = &a->formats[i];
        json_object_set_new(all, f->name,
                            json_pack("{s:f, s:f, s:o}", "bits", f->bits, "weights_bytes", f->weights_bytes, "decode_s",
                                      known(f->decode_s)));
    }
    return all;
}

json_t *infer_json(const struct infer_question *q, const struct infer_answer *a) {
    json_t *root = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s?, "
        "s:o}",
        "schema", "tally.inference/1", "model", q->settings.model, "device", q->target.name, "batch",
        (json_int_t)q->settings.batch, "prompt", (json_int_t)q->settings.seq, "new_tokens", (json_int_t)q->n_new,
        "verdict", price_verdict_text(a->verdict), "weights_bytes", count_json(a->weights_bytes), "cache_bytes",
        count_json(a->cache_bytes), "cache_token_bytes", count_json(a->cache_token_bytes), "peak_bytes",
        count_json(a->held_bytes), "reserved_bytes", count_json(a->reserved_bytes), "prefill", part_json(&a->prefill),
        "decode_first", part_json(&a->first), "decode_last", part_json(&a->last), "prefill_tokens_per_s",
        known(a->prefill_tokens_per_s), "decode_tokens_per_s", known(a->decode_tokens_per_s), "compute_bound_products",
        batch_json(a->compute_bound_products), "compute_bound_all", batch_json(a->compute_bound_all), "largest_batch",
        batch_json(a->largest_batch), "rounded_at_use", a->narrow, "weight_formats", formats_json(a));
    if (!root) error_memory(4096, "a price");
    return root;
}

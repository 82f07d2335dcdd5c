#include "plan/fit.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "step/recipe.h"
#include "step/search.h"
#include "step/trainer.h"

const char *const fit_axis_names[FIT_N_AXES] = {"batch", "seq", "layers", "channels"};

const char *fit_limit_name(enum fit_limit limit) {
    static const char *const names[] = {"nothing", "memory", "days", "money", "refused"};
    return names[limit];
}

/* Products of 4 bits take rows in whole blocks of 16: other widths are not valid, and say nothing about what fits. */
static int64_t width_unit(const struct settings *s, const tl_model_config *c) {
    int64_t unit = c->head_size * (c->n_heads / c->n_kv_heads);
    const struct recipe *recipe = recipe_find(settings_choice(s, "recipe"));
    while (recipe && recipe->linear == LINEAR_FP4 && unit % 16) unit *= 2;
    return unit;
}

bool fit_begin(struct fit_question *q, enum fit_axis axis, const struct settings *s, const struct plan_target *target,
               const struct plan_options *options) {
    tl_model_config c;
    *q = (struct fit_question){.axis = axis, .settings = *s, .target = *target, .options = *options};
    if (!plan_options_complete(&q->options, s, target) || !layout_model_open(&q->settings, &c)) return false;
    const int64_t first[] = {s->batch, s->seq, c.n_layers, c.channels};
    const int64_t unit[] = {q->options.layout.dp, s->seq >= 1024 ? 128 : 1, 1, width_unit(s, &c)};
    /* a layer is some 50 calls to price, sizes cost nothing */
    const int64_t most[] = {1000000, 1 << 26, c.n_layers > 128 ? 2 * c.n_layers : 256, 1 << 22};
    q->config = c;
    q->first = first[axis];
    q->unit = unit[axis];
    q->most = most[axis];
    q->n_above = 64;
    return true;
}

/* A context that is too short for the sequence grows with it. */
struct settings fit_settings(const struct fit_question *q, int64_t size) {
    struct settings s = q->settings;
    int64_t *const fields[FIT_N_AXES] = {&s.batch, &s.seq, &s.layers, &s.channels};
    tl_model_config c;
    *fields[q->axis] = size;
    if (q->axis != FIT_SEQ) return s;
    s.seq = 1;
    if (layout_model_open(&s, &c) && size > c.context) s.context = size;
    s.seq = size;
    return s;
}

/* ---- One size ---- */

static enum fit_limit limit_of(const struct fit_question *q, const struct fit_point *p) {
    if (p->verdict == PRICE_TOO_LARGE) return FIT_MEMORY;
    if (q->days > 0 && p->run.days > q->days) return FIT_DAYS;
    return q->money > 0 && p->run.money > q->money ? FIT_MONEY : FIT_NOTHING;
}

/* The peak of one device among several, by purpose; modules are counted only on a single device. */
static struct group_peak peak_of(const struct layout_estimate *e) {
    struct group_peak peak = {0};
    peak.bytes[TL_PARAMETER] = e->weights_bytes + e->gathered_bytes;
    peak.bytes[TL_GRADIENT] = e->gradients_bytes;
    peak.bytes[TL_OPTIMIZER] = e->states_bytes;
    peak.bytes[TL_ACTIVATION] = e->other_bytes;
    return peak;
}

/* Steps need more than evaluations and samples nearly always, and take a fraction of the time to price. On several
 * devices a step's own peak is that of the first one; what the pool reserves later does not matter. */
__attribute__((noinline)) static void tried_settings(const struct fit_question *q, int64_t size, bool only_steps,
                                                     struct settings *s) {
    *s = fit_settings(q, size);
    if (only_steps) {
        s->sample_tokens = 0;
        s->eval_batches = 1;
    }
    if (q->options.n_devices > 1) {
        s->steps = 1;
        s->warmup = s->batch_warmup = 0;
        s->val_share = 0;
    }
}

/* These have stack frames of their own: settings are 8 KiB. */
__attribute__((noinline)) static bool price_one(const struct fit_question *q, int64_t size, bool only_steps,
                                                struct price *price) {
    struct settings s;
    tried_settings(q, size, only_steps, &s);
    return layout_rank_settings(&q->options.layout, &s, &s) &&
           price_sketch(price, &s, q->target.device, plan_target_limit(&q->target));
}
__attribute__((noinline)) static bool fits_one(const struct fit_question *q, int64_t size, bool *fits) {
    struct settings s;
    tried_settings(q, size, false, &s);
    return layout_rank_settings(&q->options.layout, &s, &s) &&
           price_fits(&s, q->target.device, plan_target_limit(&q->target), 0, fits);
}
__attribute__((noinline)) static bool refine(const struct fit_question *q, int64_t size, struct layout_estimate *e) {
    struct settings s;
    tried_settings(q, size, true, &s);
    return layout_refine(e, &s, &q->target, &q->options.layout);
}

/* What a price says about the size. `price` is that of price_one. */
static bool point_make(const struct fit_question *q, int64_t size, const struct price *price, struct fit_point *point) {
    struct plan_options options = q->options;
    struct layout_estimate e;
    bool is_estimate = options.n_devices > 1;
    *point = (struct fit_point){.size = size,
                                .n_parameters = price->n_parameters,
                                .verdict = price->verdict,
                                .bytes = price->reserved_bytes,
                                .block_bytes = price->allocated_bytes};
    bool ok = group_peak_find(price, &point->peak) &&
              (!is_estimate || layout_estimate(&e, price, &q->target, &options.network, &options.layout, NULL));
    ok = ok && (!is_estimate || refine(q, size, &e));
    if (ok && is_estimate) {
        uint64_t limit = plan_target_limit(&q->target);
        point->bytes = e.total_bytes;
        point->block_bytes = e.is_exact ? e.block_bytes : e.total_bytes;
        point->verdict = !limit ? PRICE_UNKNOWN : point->bytes <= limit ? PRICE_FITS : PRICE_TOO_LARGE;
        point->peak = peak_of(&e);
    }
    if (q->tokens_per_parameter > 0) options.tokens = q->tokens_per_parameter * (double)price->n_active;
    if (ok) point->run = plan_run_of(price, &q->target, &options, is_estimate ? &e : NULL);
    point->limit = limit_of(q, point);
    const tl_ledger *step = price->kind[KIND_STEP].ledger;
    for (size_t i = 0; i < step->n_rows; i++) point->flops += step->rows[i].flops;
    return ok;
}

static bool try_price(const struct fit_question *q, int64_t size, bool only_steps, struct price *price,
                      struct fit_point *point) {
    if (!price_one(q, size, only_steps, price)) return false;
    price->settings.steps = q->settings.steps;
    price->settings.batch_warmup = q->settings.batch_warmup;
    bool ok = point_make(q, size, price, point);
    price_free(price);
    return ok;
}

static bool try_size(const struct fit_question *q, int64_t size, bool only_steps, struct fit_point *point) {
    struct price *price = memory_new(sizeof *price);
    bool ok = price ? try_price(q, size, only_steps, price, point) : error_memory(sizeof *price, "a price");
    memory_free(price);
    return ok;
}

bool fit_own(const struct fit_question *q, const struct price *price, struct fit_point *point) {
    if (q->options.n_devices > 1) return fit_try_steps(q, q->settings.batch, point);
    return point_make(q, q->settings.batch, price, point);
}
bool fit_try(const struct fit_question *q, int64_t size, struct fit_point *point) {
    return try_size(q, size, false, point);
}
bool fit_try_steps(const struct fit_question *q, int64_t size, struct fit_point *point) {
    return try_size(q, size, true, point);
}

/* ---- The search ---- */

/* All sizes that were priced, so that the two that matter can be found again. */
struct seen {
    const struct fit_question *q;
    struct fit_point points[SEARCH_MOST + 4];
    int64_t too_large[SEARCH_MOST]; /* found so without a price */
    int n, n_too_large;
};

static const struct fit_point *known_of(const struct seen *seen, int64_t size) {
    for (int i = 0; i < seen->n; i++)
        if (seen->points[i].size == size) return &seen->points[i];
    return NULL;
}

/* Whether a size is that of the settings themselves, and what is known of them is the price. A width that is given
 * changes more than one that is the model's. */
__attribute__((noinline)) static bool is_own(const struct fit_question *q, int64_t size) {
    struct settings s = fit_settings(q, size);
    tl_model_config c;
    return q->own && q->settings.batch == s.batch && q->settings.seq == s.seq && layout_model_open(&s, &c) &&
           !memcmp(&c, &q->config, sizeof c);
}

/* On several devices there is no whole run to price. */
static bool size_find(const struct seen *seen, int64_t size, struct fit_point *point) {
    const struct fit_question *q = seen->q;
    const struct fit_point *known = known_of(seen, size);
    if (!known && is_own(q, size)) known = q->own;
    if (!known && q->options.tell) q->options.tell(q->axis, size);
    if (!known) return try_size(q, size, q->options.n_devices > 1, point);
    *point = *known;
    point->size = size;
    return true;
}

static bool look(void *context, int64_t size, struct search_point *point) {
    struct seen *seen = context;
    if (seen->n == (int)(sizeof seen->points / sizeof *seen->points))
        return error_set(TL_ERROR_USE, "fit: the search did not end after %d prices", seen->n);
    struct fit_point *own = &seen->points[seen->n];
    if (!size_find(seen, size, own)) {
        if (seen->n == 0 || tl_error() != TL_ERROR_USE) return false;
        *own =
            (struct fit_point){.size = size, .limit = FIT_REFUSED, .block_bytes = UINT64_MAX}; /* too few data, say */
        text_copy(own->why, sizeof own->why, tl_error_message());
        tl_error_clear();
    }
    seen->n++;
    *point = (struct search_point){.size = size,
                                   .fits = own->limit == FIT_NOTHING,
                                   .is_final = own->limit > FIT_MEMORY,
                                   .bytes = own->bytes,
                                   .block_bytes = own->block_bytes};
    return true;
}

/* What is known, and what is refused, is left to `look`. */
static bool fits(void *context, int64_t size, struct search_point *point) {
    struct seen *seen = context;
    *point = (struct search_point){.size = size};
    for (int i = 0; i < seen->n_too_large; i++)
        if (seen->too_large[i] == size) return true;
    if (known_of(seen, size)) return look(context, size, point);
    if (seen->q->options.tell) seen->q->options.tell(seen->q->axis, size);
    if (!fits_one(seen->q, size, &point->fits)) {
        if (tl_error() != TL_ERROR_USE) return false;
        tl_error_clear();
        return look(context, size, point);
    }
    if (!point->fits && seen->n_too_large < SEARCH_MOST) seen->too_large[seen->n_too_large++] = size;
    return true;
}

static struct fit_point point_of(const struct seen *seen, int64_t size) {
    for (int i = seen->n; size && i-- > 0;)
        if (seen->points[i].size == size) return seen->points[i];
    return (struct fit_point){0};
}

bool fit_search(const struct fit_question *q, struct fit_answer *answer) {
    struct seen *seen = memory_new(sizeof *seen);
    struct search_answer found;
    *answer = (struct fit_answer){0};
    if (!seen) return error_memory(sizeof *seen, "a search");
    seen->q = q;
    seen->n = seen->n_too_large = 0;
    const struct search_question question = {.first = q->first,
                                             .unit = q->unit,
                                             .most = q->most,
                                             .n_above = q->n_above,
                                             .limit_bytes = plan_target_limit(&q->target),
                                             .look = look,
                                             .fits =
                                                 q->options.n_devices > 1 || q->days > 0 || q->money > 0 ? NULL : fits,
                                             .context = seen};
    bool ok = question.limit_bytes || q->days > 0 || q->money > 0 ||
              error_set(TL_ERROR_USE, "fit: the memory of %s is unknown (give --memory-limit)", q->target.name);
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    ok = ok && search_largest(&question, &found);
    tl_set_error_policy(policy);
    if (ok)
        *answer = (struct fit_answer){.best = point_of(seen, found.best.size),
                                      .next = point_of(seen, found.next.size),
                                      .n_priced = found.n_priced,
                                      .is_proven = found.is_proven,
                                      .is_monotone = found.is_monotone};
    memory_free(seen);
    return ok;
}

tl_purpose fit_growth(const struct fit_answer *a, const char **module) {
    tl_purpose purpose = group_peak_growth(a->best.size ? &a->best.peak : NULL, &a->next.peak);
    *module = a->next.peak.module[purpose];
    return purpose;
}

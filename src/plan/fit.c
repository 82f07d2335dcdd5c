#include "plan/fit.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "train/recipe.h"
#include "train/trainer.h"

const char *const fit_axis_names[FIT_N_AXES] = {"batch", "seq", "layers", "channels"};

const char *fit_limit_name(enum fit_limit limit) {
    static const char *const names[] = {"nothing", "memory", "days", "money", "refused"};
    return names[limit];
}

/* A folder's weights have sizes of their own; its config.json can be changed. */
static bool model_open(struct settings *s, tl_model_config *config) {
    char weights[SETTING_TEXT];
    if (!trainer_model(s, config, weights)) return false;
    if (*weights) snprintf(s->model, sizeof s->model, "%.*s/config.json", SETTING_TEXT - 16, weights);
    return true;
}

/* Products of 4 bits take rows in whole blocks of 16: other widths are no runs, and say nothing of what fits. */
static int64_t width_unit(const struct settings *s, const tl_model_config *c) {
    int64_t unit = c->head_size * (c->n_heads / c->n_kv_heads);
    const struct recipe *recipe = recipe_find(settings_choice(s, "recipe"));
    while (recipe && recipe->linear == LINEAR_FP4 && unit % 16) unit *= 2;
    return unit;
}

bool fit_begin(struct fit_question *q, enum fit_axis axis, const struct settings *s, const struct price_target *target,
               const struct plan_options *options) {
    tl_model_config c;
    *q = (struct fit_question){.axis = axis, .settings = *s, .target = *target, .options = *options};
    if (!model_open(&q->settings, &c)) return false;
    const int64_t first[] = {s->batch, s->seq, c.n_layers, c.channels};
    const int64_t unit[] = {1, s->seq >= 1024 ? 128 : 1, 1, width_unit(s, &c)};
    /* a layer is some 50 calls to price, sizes cost nothing */
    const int64_t most[] = {1000000, 1 << 26, c.n_layers > 128 ? 2 * c.n_layers : 256, 1 << 22};
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
    if (model_open(&s, &c) && size > c.context) s.context = size;
    s.seq = size;
    return s;
}

/* ---- One size ---- */

static enum fit_limit limit_of(const struct fit_question *q, const struct fit_point *p) {
    if (p->verdict == PRICE_TOO_LARGE) return FIT_MEMORY;
    if (q->days > 0 && p->run.days > q->days) return FIT_DAYS;
    return q->money > 0 && p->run.money > q->money ? FIT_MONEY : FIT_NOTHING;
}

/* Of what a device among several keeps; whose it is was counted where all was on one device. */
static struct group_peak peak_of(const struct shard_estimate *e) {
    struct group_peak peak = {0};
    peak.bytes[TL_PARAMETER] = e->weights_bytes + e->gathered_bytes;
    peak.bytes[TL_GRADIENT] = e->gradients_bytes;
    peak.bytes[TL_OPTIMIZER] = e->states_bytes;
    peak.bytes[TL_ACTIVATION] = e->other_bytes;
    return peak;
}

/* Steps need more than evaluations and samples nearly always, and take a fraction of the time to price-> */
static bool try_price(const struct fit_question *q, int64_t size, bool only_steps, struct price *price,
                      struct fit_point *point) {
    struct plan_options options = q->options;
    struct settings s = fit_settings(q, size);
    bool is_estimate = options.n_devices > 1;
    if (only_steps) {
        s.sample_tokens = 0;
        s.eval_batches = 1;
    }
    if (is_estimate) { /* a step's own peak is that of the first one; nothing asks what the pool makes of it later */
        s.steps = 1;
        s.warmup = 0;
        s.val_share = 0;
    }
    if (!price_sketch(price, &s, &q->target)) return false;
    price->settings.steps = q->settings.steps;
    *point = (struct fit_point){.size = size,
                                .n_parameters = price->n_parameters,
                                .verdict = price->verdict,
                                .bytes = price->reserved_bytes,
                                .block_bytes = price->allocated_bytes};
    bool ok = group_peak_find(price, &point->peak);
    if (is_estimate) {
        struct shard_estimate e = shard_estimate(price, options.n_devices, options.shard, options.link);
        uint64_t limit = price_target_limit(&q->target);
        point->bytes = point->block_bytes = e.total_bytes;
        point->verdict = !limit ? PRICE_UNKNOWN : point->bytes <= limit ? PRICE_FITS : PRICE_TOO_LARGE;
        point->peak = peak_of(&e);
    }
    if (q->tokens_per_parameter > 0) options.tokens = q->tokens_per_parameter * (double)price->n_parameters;
    point->run = plan_run_of(price, &options);
    point->limit = limit_of(q, point);
    const tl_ledger *step = price->kind[KIND_STEP].ledger;
    for (size_t i = 0; i < step->n_rows; i++) point->flops += step->rows[i].flops;
    price_free(price);
    return ok;
}

static bool try_size(const struct fit_question *q, int64_t size, bool only_steps, struct fit_point *point) {
    struct price *price = memory_new(sizeof *price);
    bool ok = price ? try_price(q, size, only_steps, price, point) : error_memory(sizeof *price, "a price");
    memory_free(price);
    return ok;
}

bool fit_try(const struct fit_question *q, int64_t size, struct fit_point *point) {
    return try_size(q, size, false, point);
}
bool fit_try_steps(const struct fit_question *q, int64_t size, struct fit_point *point) {
    return try_size(q, size, true, point);
}

/* ---- The search ---- */

#define MOST_PRICED 200

struct search {
    const struct fit_question *q;
    struct fit_point low, high; /* size 0: none is known */
    struct {
        int64_t size;
        uint64_t block_bytes;
    } seen[MOST_PRICED];
    int n;
    bool is_whole; /* evaluations and samples are priced at every size, not only at the end */
};

static bool look(struct search *s, int64_t size, struct fit_point *point) {
    if (s->n == MOST_PRICED) return error_set(TL_ERROR_USE, "fit: the search did not end after %d prices", s->n);
    if (!try_size(s->q, size, !s->is_whole, point)) {
        if (s->n == 0 || tl_error() != TL_ERROR_USE) return false;
        *point =
            (struct fit_point){.size = size, .limit = FIT_REFUSED, .block_bytes = UINT64_MAX}; /* too few data, say */
        text_copy(point->why, sizeof point->why, tl_error_message());
        tl_error_clear();
    }
    s->seen[s->n].size = size;
    s->seen[s->n++].block_bytes = point->block_bytes;
    return true;
}

static bool place(struct search *s, int64_t size) {
    struct fit_point point;
    if (!look(s, size, &point)) return false;
    if (point.limit == FIT_NOTHING) s->low = point;
    else s->high = point;
    return true;
}

/* From where the run stands: up by doubling while it fits, or down by halving until it does. */
static bool bracket(struct search *s) {
    const struct fit_question *q = s->q;
    int64_t size = q->first - q->first % q->unit;
    if (size < q->unit) size = q->unit;
    if (!place(s, size)) return false;
    while (s->low.size && !s->high.size && s->low.size < q->most) {
        size = s->low.size * 2 <= q->most ? s->low.size * 2 : q->most - q->most % q->unit;
        if (size == s->low.size) break;
        if (!place(s, size)) return false;
    }
    while (!s->low.size && s->high.size > q->unit) {
        size = s->high.size / 2 - s->high.size / 2 % q->unit;
        if (!place(s, size < q->unit ? q->unit : size)) return false;
    }
    return true;
}

/* Bytes are nearly a line in most sizes: where it meets the limit is the first guess, the neighbour of a guess the second, and so that a bent
 * line costs no more than halving does, the middle is the third. */
static int64_t guess(const struct search *s, int round, int64_t last) {
    int64_t unit = s->q->unit, gap = (s->high.size - s->low.size) / unit;
    double limit = (double)price_target_limit(&s->q->target), low = (double)s->low.bytes, high = (double)s->high.bytes;
    bool is_line = s->high.limit == FIT_MEMORY && high > low && limit >= low;
    if (round % 3 == 1) return last == s->low.size ? last + unit : last - unit;
    int64_t steps = (int64_t)((round % 3 == 0 && is_line ? (limit - low) / (high - low) : 0.5) * (double)gap);
    steps = steps < 1 ? 1 : steps > gap - 1 ? gap - 1 : steps;
    return s->low.size + steps * unit;
}

/* Sizes above one by one, until the blocks alone are too many. One that fits is the new best. */
static bool prove(struct search *s, bool *is_proven) {
    uint64_t limit = price_target_limit(&s->q->target);
    struct fit_point point = s->high;
    for (int i = 0; i < s->q->n_above; i++) {
        *is_proven = point.limit > FIT_MEMORY || (point.limit == FIT_MEMORY && point.block_bytes > limit);
        if (*is_proven) return true;
        if (!look(s, point.size + s->q->unit, &point)) return false;
        bool is_next = s->high.size == s->low.size + s->q->unit; /* of the best so far */
        if (point.limit == FIT_NOTHING) s->low = point;
        else if (!is_next || s->high.size <= s->low.size) s->high = point;
    }
    return true;
}

static int by_size(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool is_monotone(struct search *s) {
    qsort(s->seen, (size_t)s->n, sizeof *s->seen, by_size);
    for (int i = 1; i < s->n; i++)
        if (s->seen[i].block_bytes < s->seen[i - 1].block_bytes) return false;
    return true;
}

static bool search(struct search *s, bool *is_proven) {
    const struct fit_question *q = s->q;
    bool ok = bracket(s);
    int64_t last = 0;
    for (int round = 0; ok && s->low.size && s->high.size && s->high.size - s->low.size > q->unit; round++)
        ok = place(s, last = guess(s, round, last));
    *is_proven = true;
    return ok && (!s->high.size || prove(s, is_proven));
}

/* The whole run has the last word on the two sizes that matter. On several devices there is no such run. */
static bool confirm(struct search *s, bool *agrees) {
    struct fit_point low = s->low, high = s->high;
    *agrees = true;
    if (s->q->options.n_devices > 1 || s->is_whole) return true;
    bool ok = (!low.size || fit_try(s->q, low.size, &s->low)) &&
              (!high.size || high.limit == FIT_REFUSED || fit_try(s->q, high.size, &s->high));
    *agrees = ok && (!low.size || s->low.limit == FIT_NOTHING) && (!high.size || s->high.limit != FIT_NOTHING);
    return ok;
}

bool fit_search(const struct fit_question *q, struct fit_answer *answer) {
    struct search *s = memory_new(sizeof *s);
    if (!s) return error_memory(sizeof *s, "a search");
    *answer = (struct fit_answer){0};
    bool agrees = false,
         ok = price_target_limit(&q->target) || q->days > 0 || q->money > 0 ||
              error_set(TL_ERROR_USE, "fit: the memory of %s is unknown (give --memory-limit)", q->target.name);
    tl_policy policy = tl_error_policy(TL_RETURN);
    for (int pass = 0; ok && pass < 2 && !agrees; pass++) {
        *s = (struct search){.q = q, .is_whole = pass == 1};
        ok = search(s, &answer->is_proven) && confirm(s, &agrees);
        answer->n_priced += s->n;
    }
    tl_error_policy(policy);
    answer->best = s->low;
    answer->next = s->high;
    answer->is_monotone = ok && is_monotone(s);
    memory_free(s);
    return ok;
}

tl_purpose fit_growth(const struct fit_answer *a, const char **module) {
    tl_purpose purpose = group_peak_growth(a->best.size ? &a->best.peak : NULL, &a->next.peak);
    *module = a->next.peak.module[purpose];
    return purpose;
}

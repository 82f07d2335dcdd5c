#include "plan/best.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "plan/layouts.h"
#include "step/recipe.h"

enum { CONFIRMED = 2, SHOWN = 8 }; /* candidates of each kind that are planned in full; rows of the answer */

struct search {
    struct best *best;
    struct settings settings, tried;
    struct plan_target target;
    struct plan_options options;
    struct best_freedom freedom;
    struct plan plan;
    int64_t sequences;  /* of a step, over all devices */
    bool is_priced;     /* something was: fit or not */
    char refusal[1024]; /* why the last candidate that was refused was */
};

/* ---- What may be changed ---- */

/* The n-th value of a choice, which the settings then have; false: there are fewer. */
static bool choice_set(struct settings *s, const char *name, int n) {
    const struct setting_row *row = NULL;
    for (int i = 0; (row = settings_row(i)) && strcmp(row->name, name);) i++;
    const char *at = row ? row->kind : "", *end = at + strlen(at), *choice = NULL;
    char value[64];
    size_t length = 0;
    for (int i = 0; i <= n; i++)
        if (!text_choice(&at, end, &choice, &length)) return false;
    snprintf(value, sizeof value, "%.*s", (int)length, choice);
    return settings_set(s, name, value);
}

/* A recipe whose products the device rounds in software is never worth its time. Where there is bf16, recipes that keep
 * more bits hold and move more bytes, and fp16 as many. */
static bool is_usable(const struct search *h) {
    const struct recipe *r = recipe_find(settings_choice(&h->tried, "recipe")), *bf16 = recipe_find("bf16");
    const struct target *target = h->target.device->target;
    const bool is_wide = r->parameters == TL_F32 && r->linear == bf16->linear;
    if (!recipe_check(r, target)) return tl_error_clear(), false;
    if (recipe_emulated(r, target)) return false;
    if (!is_wide && !r->has_scaler) return true;
    const bool has_bf16 = recipe_check(bf16, target);
    tl_error_clear();
    return !has_bf16;
}

/* `nothing` recomputes everything for every layer: it saves a few percent of `full`, and takes many times as long. */
static bool is_policy(const struct search *h) { return strcmp(settings_choice(&h->tried, "checkpointing"), "nothing"); }

void best_apply(const struct best_row *row, struct settings *s, struct plan_options *options) {
    const struct layout *l = &row->layout;
    s->recipe = row->recipe, s->checkpointing = row->checkpointing;
    s->batch = row->batch, s->accum = row->accum;
    s->tp = l->tp, s->cp = l->cp, s->pp = l->pp, s->sp = l->sp;
    s->shard = (int)l->shard, s->shard_group = l->shard_group;
    s->dp = row->devices > 1 ? l->dp : 0;
    options->n_devices = row->devices;
}

static bool row_add(struct search *h, const struct best_row *row) {
    struct best *b = h->best;
    if (!memory_grow((void **)&b->rows, &b->room, (size_t)b->n, sizeof *b->rows))
        return error_memory(2 * b->room * sizeof *b->rows, "plans");
    b->rows[b->n++] = *row;
    return true;
}

/* A candidate that the settings do not allow is none. False: another error. */
static bool refused(struct search *h) {
    if (tl_error() != TL_ERROR_USE) return false;
    text_copy(h->refusal, sizeof h->refusal, tl_error_message());
    return tl_error_clear(), true;
}

static void told(struct search *h) {
    h->best->n_tried++;
    if (h->freedom.tell) h->freedom.tell(h->best->n_tried);
}

/* ---- One device ---- */

/* Refused settings are no candidates; *row has no bytes then. */
static bool one_try(struct search *h, struct best_row *row) {
    struct price *price = &h->plan.price;
    struct settings *s = &h->tried;
    struct layout_estimate e;
    const uint64_t limit = plan_target_limit(&h->target);
    struct layout layout = row->layout;
    layout.micro = row->accum;
    s->batch = row->batch, s->accum = row->accum > 1 ? 2 : 1; /* more of them are alike */
    s->steps = 1, s->warmup = s->batch_warmup = s->sample_tokens = 0, s->val_share = 0;
    told(h);
    if (!settings_check(s) || !price_sketch(price, s, h->target.device, 0)) return refused(h);
    h->is_priced = true;
    row->bytes = price->reserved_bytes;
    row->fits = !limit || price->allocated_bytes <= limit; /* a pool at its limit gives back what it does not use */
    const bool ok = layout_estimate(&e, price, &h->target, &h->options.network, &layout, NULL);
    row->step_s = e.expected_s;
    price_free(price);
    return ok;
}

/* Micro-batches from the smallest on, until one does not fit: larger ones need more. */
static bool batches_try(struct search *h) {
    const struct layout one = {.tp = 1, .cp = 1, .dp = 1, .pp = 1, .chunks = 1};
    int64_t last = 0;
    for (int64_t batch = 1; batch <= h->sequences; batch++) {
        if (h->sequences % batch || (batch < 2 * last && batch != h->sequences && batch > 16)) continue;
        struct best_row row = {.recipe = h->tried.recipe,
                               .checkpointing = h->tried.checkpointing,
                               .batch = batch,
                               .accum = h->sequences / batch,
                               .devices = 1,
                               .layout = one};
        last = batch;
        if (!one_try(h, &row)) return false;
        if (!row.bytes || !row.fits) return true;
        if (!row_add(h, &row)) return false;
    }
    return true;
}

/* ---- Several ---- */

static bool layouts_try(struct search *h) {
    struct layouts all;
    struct plan_options options = h->options;
    told(h);
    bool ok = layouts_sketch(&all, &h->tried, &h->target, &options);
    if (!ok) {
        layouts_free(&all);
        return refused(h);
    }
    h->is_priced = true;
    for (int i = 0; ok && i < all.n_fit; i++) {
        const struct layouts_row *r = &all.rows[i];
        const struct layout *l = &r->layout;
        const struct best_row row = {.recipe = h->tried.recipe,
                                     .checkpointing = h->tried.checkpointing,
                                     .batch = r->batch * l->dp,
                                     .accum = l->micro,
                                     .devices = l->tp * l->cp * l->dp * l->pp,
                                     .layout = *l,
                                     .bytes = r->estimate.total_bytes,
                                     .step_s = r->estimate.expected_s,
                                     .fits = true};
        ok = row_add(h, &row);
    }
    layouts_free(&all);
    return ok;
}

/* Every recipe and policy that is free. */
static bool all_try(struct search *h) {
    if (!layout_has_no_ep(&h->settings)) return false;
    const bool has_axes = h->settings.tp > 1 || h->settings.cp > 1 || h->settings.pp > 1;
    for (int r = 0; r == 0 || h->freedom.recipe; r++) {
        h->tried = h->settings;
        if (h->freedom.recipe && !choice_set(&h->tried, "recipe", r)) break;
        if (h->freedom.recipe && !is_usable(h)) continue;
        const struct settings base = h->tried;
        for (int c = 0; c == 0 || h->freedom.checkpointing; c++) {
            h->tried = base;
            if (h->freedom.checkpointing && !choice_set(&h->tried, "checkpointing", c)) break;
            if (h->freedom.checkpointing && !is_policy(h)) continue;
            if (h->options.n_devices > 1 && !layouts_try(h)) return false;
            if (!has_axes && !batches_try(h)) return false;
        }
    }
    return true;
}

/* ---- The best of them ---- */

enum merit { FASTEST, CHEAPEST, SMALLEST, MERITS };

/* Less is better. Where no time is known, memory decides. */
static double merit_of(const struct best_row *r, enum merit merit) {
    if (merit == SMALLEST || !(r->step_s > 0)) return (double)r->devices * 1e18 + (double)r->bytes;
    return r->step_s * (merit == CHEAPEST ? (double)r->devices : 1);
}

static bool is_better(const struct best_row *a, const struct best_row *b) {
    const bool is_less = a->step_s < b->step_s || a->bytes < b->bytes || a->devices < b->devices;
    return is_less && a->step_s <= b->step_s && a->bytes <= b->bytes && a->devices <= b->devices;
}

/* Marks rows that no other one beats in every respect; of equal ones the first. */
static void front_find(struct best *b, bool is_planned) {
    for (int i = 0; i < b->n; i++) {
        struct best_row *row = &b->rows[i];
        row->is_best = row->fits && (!is_planned || row->is_planned);
        for (int k = 0; k < b->n && row->is_best; k++) {
            const struct best_row *other = &b->rows[k];
            if (!other->fits || (is_planned && !other->is_planned)) continue;
            const bool is_same =
                k < i && other->step_s == row->step_s && other->bytes == row->bytes && other->devices == row->devices;
            if (is_same || is_better(other, row)) row->is_best = false;
        }
    }
}

/* As `tally plan` plans it: its bytes and its time are the answer's. */
static bool row_plan(struct search *h, struct best_row *row) {
    struct plan_options options = h->options;
    if (row->is_planned) return true;
    h->tried = h->settings;
    options.layout = (struct layout){.schedule = h->options.layout.schedule,
                                     .chunks = h->options.layout.chunks,
                                     .has_rings = h->options.layout.has_rings};
    best_apply(row, &h->tried, &options);
    row->is_planned = true;
    told(h);
    if (!plan_make(&h->plan, &h->tried, &h->target, &options, false)) {
        row->fits = false;
        return refused(h);
    }
    row->bytes = plan_needed(&h->plan);
    row->step_s = h->plan.expected.step_s;
    row->fits = plan_verdict(&h->plan) != PRICE_TOO_LARGE;
    plan_free(&h->plan);
    return true;
}

static int next_by(const struct best *b, enum merit merit, bool is_planned) {
    int best = -1;
    for (int i = 0; i < b->n; i++) {
        const struct best_row *r = &b->rows[i];
        if (r->is_planned != is_planned || !r->fits) continue;
        if (best < 0 || merit_of(r, merit) < merit_of(&b->rows[best], merit)) best = i;
    }
    return best;
}

/* Estimates err: several are planned, and more until one of them fits. */
static bool merit_plan(struct search *h, enum merit merit) {
    for (int i = 0, next; i < CONFIRMED || next_by(h->best, merit, true) < 0; i++) {
        if ((next = next_by(h->best, merit, false)) < 0) return true;
        if (!row_plan(h, &h->best->rows[next])) return false;
    }
    return true;
}

static int by_time(const void *a, const void *b) {
    const struct best_row *x = a, *y = b;
    if (x->is_best != y->is_best) return x->is_best ? -1 : 1;
    return x->step_s != y->step_s ? (x->step_s > y->step_s) - (x->step_s < y->step_s)
                                  : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Rows between the winners, evenly spread over the estimates' front. */
static bool front_plan(struct search *h) {
    struct best *b = h->best;
    int n = 0, at = 0;
    front_find(b, false);
    if (b->n) qsort(b->rows, (size_t)b->n, sizeof *b->rows, by_time);
    while (n < b->n && b->rows[n].is_best) n++;
    for (int i = 0; i < SHOWN && n > 0; i++, at = i * (n - 1) / (SHOWN - 1))
        if (!row_plan(h, &b->rows[at])) return false;
    return true;
}

static bool winners_find(struct search *h) {
    struct best *b = h->best;
    if (!front_plan(h)) return false;
    for (int m = 0; m < MERITS; m++)
        if (!merit_plan(h, (enum merit)m)) return false;
    front_find(b, true);
    if (b->n) qsort(b->rows, (size_t)b->n, sizeof *b->rows, by_time);
    while (b->n && !b->rows[b->n - 1].is_best) b->n--;
    b->fastest = next_by(b, FASTEST, true), b->cheapest = next_by(b, CHEAPEST, true);
    b->smallest = next_by(b, SMALLEST, true);
    return true;
}

static bool search_run(struct search *h) {
    const struct settings *s = &h->settings;
    if (h->options.network.node == 0) h->options.network = network_of(h->target.chip);
    if (__builtin_mul_overflow(s->batch, s->accum, &h->sequences))
        return error_set(TL_ERROR_USE, "batch: a step of more than 2^63 - 1 sequences");
    if (h->sequences > 1 << 20)
        return error_set(TL_ERROR_USE, "batch: %lld sequences in a step (a search needs at most 2^20)",
                         (long long)h->sequences);
    if (h->options.n_devices < 1) h->options.n_devices = 1;
    if (!all_try(h)) return false;
    if (!h->is_priced && *h->refusal) return error_set(TL_ERROR_USE, "%s", h->refusal); /* no such model, for one */
    return winners_find(h);
}

bool best_find(struct best *best, const struct settings *s, const struct plan_target *target,
               const struct plan_options *options, const struct best_freedom *freedom) {
    *best = (struct best){.fastest = -1, .cheapest = -1, .smallest = -1};
    struct search *h = memory_new(sizeof *h);
    if (!h) return error_memory(sizeof *h, "a search for plans");
    memset(h, 0, sizeof *h);
    h->best = best;
    h->settings = *s;
    h->target = *target;
    h->options = *options;
    h->freedom = *freedom;
    const tl_policy policy = tl_set_error_policy(TL_RETURN);
    const bool ok = search_run(h);
    tl_set_error_policy(policy);
    memory_free(h);
    return ok;
}

void best_free(struct best *best) {
    memory_free(best->rows);
    *best = (struct best){0};
}

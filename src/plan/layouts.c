#include "plan/layouts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "step/trainer.h"

enum { N_BATCHES = 7, SHORTEST = 8192 }; /* micro-batches of 1 to 64; tokens of a sequence on one rank of cp */

/* One price per micro-batch: of one micro-batch in a step, and of several, whose gradients may be wider. */
struct priced {
    struct price price;
    struct layout_cache cache;
    bool is_priced;
};

struct hunt {
    struct layouts *all;
    struct settings settings, exact;
    struct plan_target target;
    struct plan_options options;
    tl_model_config config;
    struct priced priced[N_BATCHES][2];
    bool is_sketch;
};

static struct priced *price_of(struct hunt *h, int which, bool is_several) {
    struct priced *p = &h->priced[which][is_several];
    if (p->is_priced) return p;
    struct settings s = h->settings;
    s.batch = (int64_t)1 << which;
    s.accum = is_several ? 2 : 1;
    s.steps = 1;
    s.warmup = s.batch_warmup = s.sample_tokens = 0;
    s.val_share = 0;
    p->is_priced = price_sketch(&p->price, &s, h->target.device, 0);
    return p->is_priced ? p : NULL;
}

static bool row_add(struct layouts *all, const struct layouts_row *row) {
    if (!memory_grow((void **)&all->rows, &all->room, (size_t)all->n, sizeof *all->rows))
        return error_memory(2 * all->room * sizeof *all->rows, "layouts");
    all->rows[all->n++] = *row;
    all->n_fit += row->fits;
    return true;
}

static void too_large(struct layouts_row *row, uint64_t limit) {
    char a[32], b[32];
    snprintf(row->why, sizeof row->why, "needs %s of %s", bytes_text((double)row->estimate.total_bytes, a),
             bytes_text((double)limit, b));
}

/* Prices the row in place of formulas, where a trainer can run it. If it does not fit, smaller micro-batches may. */
static bool exact_try(struct hunt *h, struct layouts_row *row) {
    uint64_t limit = plan_target_limit(&h->target);
    struct settings *s = &h->exact;
    for (;;) {
        const struct layout *l = &row->layout;
        *s = h->settings;
        s->batch = row->batch * l->dp, s->accum = l->micro;
        s->tp = l->tp, s->cp = l->cp, s->pp = l->pp, s->sp = l->sp, s->shard = (int)l->shard;
        s->shard_group = l->shard_group;
        s->steps = 1, s->warmup = s->batch_warmup = s->sample_tokens = 0, s->val_share = 0;
        if (!layout_refine(&row->estimate, s, &h->target, l)) return false;
        row->fits = !limit || row->estimate.total_bytes <= limit;
        if (row->fits || !row->estimate.is_exact || row->batch == 1) return true;
        row->batch /= 2, row->layout.micro *= 2;
        int which = 0;
        while ((int64_t)1 << which < row->batch) which++;
        struct priced *p = price_of(h, which, true);
        if (!p || !layout_estimate(&row->estimate, &p->price, &h->target, &h->options.network, &row->layout, &p->cache))
            return false;
    }
}

/* The micro-batch that is fastest of those that fit; if none does, the one that needs least. */
static bool batches_try(struct hunt *h, struct layouts_row *best) {
    int64_t own = h->all->sequences / best->layout.dp; /* of each rank of dp */
    uint64_t limit = plan_target_limit(&h->target);
    bool has_one = false, has_pipeline = best->layout.pp > 1;
    for (int i = 0; i < N_BATCHES && (int64_t)1 << i <= own; i++) {
        struct layouts_row row = *best;
        row.batch = (int64_t)1 << i;
        if (own % row.batch) break;
        row.layout.micro = own / row.batch;
        bool is_even = row.layout.schedule != SCHEDULE_INTERLEAVED || row.layout.micro % row.layout.pp == 0;
        if (has_pipeline && (row.layout.micro < row.layout.pp || !is_even)) continue;
        struct priced *p = price_of(h, i, row.layout.micro > 1);
        if (!p || !layout_estimate(&row.estimate, &p->price, &h->target, &h->options.network, &row.layout, &p->cache))
            return false;
        row.fits = !limit || row.estimate.total_bytes <= limit;
        bool is_better = !has_one || (row.fits && !best->fits) ||
                         (row.fits == best->fits && (row.fits ? row.estimate.expected_s < best->estimate.expected_s
                                                              : row.estimate.total_bytes < best->estimate.total_bytes));
        if (is_better) *best = row;
        has_one = true;
        if (h->is_sketch && !row.fits) break; /* larger ones need more */
    }
    if (has_one && !h->is_sketch && !exact_try(h, best)) return false;
    if (!has_one)
        snprintf(best->why, sizeof best->why, "%lld sequences per replica are too few for %lld stages", (long long)own,
                 (long long)best->layout.pp);
    else if (!best->fits) too_large(best, limit);
    return true;
}

static bool layout_try(struct hunt *h, const struct layout *l) {
    struct layouts_row row = {.layout = *l};
    if (h->all->sequences % l->dp)
        snprintf(row.why, sizeof row.why, "%lld sequences cannot be divided among dp %lld",
                 (long long)h->all->sequences, (long long)l->dp);
    else if (!layout_refusal(l, &h->config, &h->settings, l->pp, row.why) && !batches_try(h, &row)) return false;
    return row_add(h->all, &row);
}

/* Sharding of each, where there is anything to shard among. A refusal is the same for all. */
static bool shards_try(struct hunt *h, struct layout l) {
    for (int mode = 0; mode < SHARD_COUNT; mode++) {
        l.shard = (enum shard_mode)mode;
        if (h->options.layout.shard && l.shard != h->options.layout.shard) continue;
        if (mode > 0 && l.dp * l.cp == 1) break;
        if (mode > 0 && !h->options.layout.shard && trainer_whole_steps(&h->settings)) break;
        int64_t group = h->options.layout.shard_group; /* of all, where it cannot be */
        l.shard_group = mode > 0 && l.dp * l.cp > group && l.dp * l.cp % (group ? group : 1) == 0 ? group : 0;
        if (!layout_try(h, &l)) return false;
        const struct layouts_row *last = &h->all->rows[h->all->n - 1];
        if (last->batch == 0) break;
    }
    return true;
}

static bool is_wanted(int64_t given, int64_t size) { return !given || given == size; }

static bool axes_try(struct hunt *h) {
    const struct layout *own = &h->options.layout; /* sizes of 0 are open */
    int64_t n = h->options.n_devices, deepest = h->config.n_layers > own->pp ? h->config.n_layers : own->pp;
    for (int64_t tp = 1; tp <= n && (tp <= h->options.network.node || tp == own->tp); tp++)
        for (int64_t cp = 1; n % tp == 0 && cp <= n / tp; cp *= 2)
            for (int64_t pp = 1; n / tp % cp == 0 && pp <= n / tp / cp && pp <= deepest; pp++) {
                bool is_odd = (tp & (tp - 1)) && tp != own->tp, is_uneven = h->config.n_layers % pp && pp != own->pp;
                if (n / tp / cp % pp || !is_wanted(own->tp, tp) || !is_wanted(own->cp, cp) || !is_wanted(own->pp, pp) ||
                    !is_wanted(own->dp, n / tp / cp / pp) || is_odd || is_uneven ||
                    (cp > 1 && cp != own->cp && h->settings.seq / cp < SHORTEST))
                    continue;
                struct layout l = *own;
                l.tp = tp, l.cp = cp, l.pp = pp, l.dp = n / tp / cp / pp;
                l.sp = tp > 1;
                if (l.chunks < 1 || pp == 1) l.chunks = 1;
                if (pp == 1) l.schedule = SCHEDULE_1F1B;
                if (!shards_try(h, l)) return false;
            }
    return true;
}

/* Those that fit by expected time, or by bytes if the device's speed is not known, then those that do not, by bytes,
 * then those that cannot be. */
static int by_time(const void *a, const void *b) {
    const struct layouts_row *x = a, *y = b;
    if (x->fits != y->fits) return x->fits ? -1 : 1;
    if ((x->batch == 0) != (y->batch == 0)) return x->batch ? -1 : 1;
    bool by_bytes = !x->fits || !(x->estimate.expected_s > 0);
    double u = by_bytes ? (double)x->estimate.total_bytes : x->estimate.expected_s,
           v = by_bytes ? (double)y->estimate.total_bytes : y->estimate.expected_s;
    return (u > v) - (u < v);
}

static int64_t open_or(int64_t size) { return size > 1 ? size : 0; }

static bool hunt_run(struct hunt *h) {
    struct settings *s = &h->settings;
    struct layout *own = &h->options.layout;
    if (h->options.network.node == 0) h->options.network = network_of(h->target.chip);
    own->tp = open_or(s->tp), own->cp = open_or(s->cp), own->pp = open_or(s->pp), own->dp = s->dp;
    own->shard = (enum shard_mode)s->shard;
    own->shard_group = s->shard_group;
    if (s->pp_chunks > 1) own->chunks = s->pp_chunks, own->schedule = SCHEDULE_INTERLEAVED;
    own->is_serial = !s->overlap;
    const struct layout one = {.dp = 1};
    if (!layout_has_no_ep(s) || !layout_rank_settings(&one, s, s) || !settings_check(s) ||
        !layout_model_open(&h->settings, &h->config))
        return false;
    if (__builtin_mul_overflow(s->batch, s->accum, &h->all->sequences))
        return error_set(TL_ERROR_USE, "batch: a step of more than 2^63 - 1 sequences");
    h->all->tokens = (double)h->all->sequences * (double)s->seq;
    if (h->options.n_devices < 2)
        return error_set(TL_ERROR_USE, "layouts: there is nothing to divide a run among (need --devices 2 or more)");
    if (!axes_try(h)) return false;
    for (h->options.n_devices /= 2; h->is_sketch && h->options.n_devices > 1; h->options.n_devices /= 2)
        if (!axes_try(h)) return false;
    if (!h->all->n)
        return error_set(TL_ERROR_USE, "layouts: no layout has these axes (leave some of --tp, --cp, --pp, --dp open)");
    qsort(h->all->rows, (size_t)h->all->n, sizeof *h->all->rows, by_time);
    return true;
}

static bool hunt(struct layouts *all, const struct settings *s, const struct plan_target *target,
                 const struct plan_options *options, bool is_sketch) {
    *all = (struct layouts){0};
    struct hunt *h = memory_new(sizeof *h);
    if (!h) return error_memory(sizeof *h, "a search for layouts");
    memset(h, 0, sizeof *h);
    h->all = all;
    h->settings = *s;
    h->target = *target;
    h->options = *options;
    h->is_sketch = is_sketch;
    bool ok = hunt_run(h);
    for (int i = 0; i < N_BATCHES; i++)
        for (int k = 0; k < 2; k++)
            if (h->priced[i][k].is_priced) price_free(&h->priced[i][k].price);
    memory_free(h);
    return ok;
}

bool layouts_find(struct layouts *all, const struct settings *s, const struct plan_target *target,
                  const struct plan_options *options) {
    return hunt(all, s, target, options, false);
}

bool layouts_sketch(struct layouts *all, const struct settings *s, const struct plan_target *target,
                    const struct plan_options *options) {
    return hunt(all, s, target, options, true);
}

void layouts_free(struct layouts *all) {
    memory_free(all->rows);
    *all = (struct layouts){0};
}

#include "step/walk.h"

#include "base/error.h"
#include "base/memory.h"
#include "device/devices.h"
#include "step/cycle.h"
#include "step/source.h"
#include "step/turn.h"
#include "tensor/device.h"

/* How many steps of a stretch, or equal events, are run before the walk stops waiting for a cycle. */
enum { MOST_STEPS = 48, MOST_EVENTS = 16 };

/* ---- The schedule. `done` steps are done. ---- */

static int64_t every_of(const struct trainer *t, enum step_kind kind) {
    const struct settings *s = &t->settings;
    return kind == KIND_EVAL ? s->eval_every : kind == KIND_SAMPLE ? s->sample_every : s->save_every;
}

static bool has_kind(const struct trainer *t, enum step_kind kind) {
    return kind == KIND_EVAL ? t->n_held_out > 0 : kind != KIND_SAMPLE || t->text;
}

bool walk_is_due(const struct trainer *t, enum step_kind kind, int64_t done) {
    int64_t every = every_of(t, kind);
    return has_kind(t, kind) && (done == t->settings.steps || (every > 0 && done % every == 0));
}

/* The first number of steps above `done` at which a kind is due; the total if it never is. */
static int64_t next_due(const struct trainer *t, enum step_kind kind, int64_t done) {
    int64_t every = every_of(t, kind), steps = t->settings.steps;
    return has_kind(t, kind) && every > 0 && every <= steps && done / every < steps / every ? (done / every + 1) * every
                                                                                            : steps;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The same for the end of a stage of batch-size warm-up. */
static int64_t next_stage(const struct trainer *t, int64_t done) {
    const struct settings *s = &t->settings;
    int stage = ramp_stage(s, done);
    return stage < ramp_stages(s) ? least(ramp_stage_begin(s, stage + 1), s->steps) : s->steps;
}

/* ---- One billed stretch ---- */

static bool kind_run(struct trainer *t, enum step_kind kind, int64_t step) {
    return kind_is_step(kind)    ? trainer_step(t, step)
           : kind == KIND_EVAL   ? trainer_evaluate(t)
           : kind == KIND_SAMPLE ? trainer_sample(t)
                                 : trainer_bill_save(t);
}

bool walk_kind(struct trainer *t, enum step_kind kind, int64_t step, const struct walker *w) {
    const bool begins_stage =
        kind_is_step(kind) && step && ramp_stage(&t->settings, step) != ramp_stage(&t->settings, step - 1);
    if (begins_stage) tl_pool_trim(t->device);
    tl_ledger *ledger = tl_ledger_begin(kind_name(kind));
    if (!ledger) return false;
    bool ok = kind_run(t, kind, step);
    if (tl_ledger_end(ledger) && ok) return w->bill(w->context, kind, ledger, t->device);
    tl_ledger_free(ledger);
    return false;
}

bool walk_bill_kinds(void *context, enum step_kind kind, tl_ledger *ledger, tl_device *device) {
    bool ok = kinds_add(context, kind, ledger, device);
    tl_ledger_free(ledger);
    return ok;
}

/* ---- Stretches that were run before ----
 *
 * What a stretch asks for follows from its kind, and what it gets from the layout of the pool (cycle.h). So one that
 * begins with a layout from which its kind was run before costs as much, has the same peaks and leaves the same layout:
 * it is left out, and the layout that it would leave is remembered as the tour's. The pool stays behind. What was left
 * out since then is run after all before a stretch that is not known. */

struct state {
    struct pool_layout layout, blocks; /* what decides about other stretches; about steps, which order the pool first */
};

static bool state_read(struct state *s, const struct trainer *t) {
    return cycle_layout_read(t, &s->layout) && cycle_blocks_read(t, &s->blocks);
}
static bool state_copy(struct state *to, const struct state *from) {
    return (pool_layout_copy(&to->layout, &from->layout) && pool_layout_copy(&to->blocks, &from->blocks)) ||
           error_memory(from->layout.n * sizeof *from->layout.words, "the layout of a pool");
}
static bool is_same(const struct state *a, const struct state *b, enum step_kind kind) {
    return kind_is_step(kind) ? cycle_is_same(&a->blocks, &b->blocks) : cycle_is_same(&a->layout, &b->layout);
}
static void state_free(struct state *s) {
    memory_free(s->layout.words);
    memory_free(s->blocks.words);
}

enum { MOST_BEHIND = 4 };
struct tour {
    struct trainer *t;
    const struct walker *w;
    int64_t done;
    bool is_settled, has_seen[KIND_COUNT];
    struct state at, pool;                              /* where the tour is; where the pool is */
    struct state before[KIND_COUNT], after[KIND_COUNT]; /* of the newest stretch of each kind that was run */
    int64_t n_run[KIND_COUNT];
    struct {
        enum step_kind kind;
        int64_t step;
    } behind[MOST_BEHIND]; /* that lead from the pool to the tour */
    int n_behind;
};

static void tour_free(struct tour *r) {
    state_free(&r->at);
    state_free(&r->pool);
    for (int kind = 0; kind < KIND_COUNT; kind++) state_free(&r->before[kind]), state_free(&r->after[kind]);
}

static bool stretch_run(struct tour *r, enum step_kind kind, int64_t step) {
    bool ok = state_copy(&r->before[kind], &r->pool) && walk_kind(r->t, kind, step, r->w) &&
              state_read(&r->pool, r->t) && state_copy(&r->after[kind], &r->pool);
    r->n_run[kind]++;
    return ok;
}

static bool catch_up(struct tour *r) {
    bool ok = true;
    for (int i = 0; ok && i < r->n_behind; i++) ok = stretch_run(r, r->behind[i].kind, r->behind[i].step);
    r->n_behind = 0;
    return ok;
}

/* The first two steps of a kind are always run: a bill has the second. */
static bool is_known(const struct tour *r, enum step_kind kind) {
    return r->n_run[kind] > kind_is_step(kind) && is_same(&r->before[kind], &r->at, kind);
}

static bool stretch(struct tour *r, enum step_kind kind) {
    if (!is_known(r, kind) || r->n_behind == MOST_BEHIND)
        return catch_up(r) && stretch_run(r, kind, r->done) && state_copy(&r->at, &r->pool);
    const bool stays = cycle_is_same(&r->after[kind].layout, &r->at.layout);
    if (!stays) r->behind[r->n_behind].kind = kind, r->behind[r->n_behind++].step = r->done;
    if (!stays && !state_copy(&r->at, &r->after[kind])) return false;
    if (cycle_is_same(&r->at.layout, &r->pool.layout)) r->n_behind = 0;
    return true;
}

/* ---- The walk ---- */

/* Runs steps of one kind until `until` are done, except whole cycles of them. If no cycle is found, the walk jumps. */
static bool steps_to(struct tour *r, int64_t until) {
    struct cycle cycle = {0};
    bool ok = true, is_watched = true;
    for (int n = 1; ok && r->done < until; n++) {
        ok = stretch(r, kind_of_step(&r->t->settings, r->done));
        r->done++;
        enum cycle_news news = ok && is_watched ? cycle_look(&cycle, &r->at.layout) : CYCLE_NONE;
        if (news == CYCLE_FAILED) ok = false;
        if (news == CYCLE_FOUND) {
            r->done += (until - r->done) / cycle.n_since * cycle.n_since;
            is_watched = false; /* the remainder of a cycle is run */
        } else if (n == MOST_STEPS && is_watched && r->done < until) {
            r->done = until;
            r->is_settled = false;
        }
    }
    cycle_end(&cycle);
    return ok;
}

/* The kinds of steps due after this many steps, in the run's order. Saves do not change the pool, so the first
 * stands for all. */
static bool event(struct tour *r, bool *is_first) {
    bool ok = true;
    *is_first = false;
    for (int kind = KIND_EVAL; ok && kind <= KIND_SAVE; kind++) {
        if (!walk_is_due(r->t, (enum step_kind)kind, r->done) || (kind == KIND_SAVE && r->has_seen[kind])) continue;
        *is_first = *is_first || !r->has_seen[kind];
        r->has_seen[kind] = true;
        ok = stretch(r, (enum step_kind)kind);
    }
    return ok;
}

/* The next number of steps at which something other than such a step may change the pool, or the first save comes. */
static int64_t next_event(const struct tour *r) {
    int64_t next = least(next_due(r->t, KIND_EVAL, r->done), next_due(r->t, KIND_SAMPLE, r->done));
    next = least(next, next_stage(r->t, r->done));
    return r->has_seen[KIND_SAVE] ? next : least(next, next_due(r->t, KIND_SAVE, r->done));
}

/* Evaluations alone that follow each other, or samples alone, with equal stretches between them: how many more come
 * before anything else, and how far apart. 0: something else is due now. */
static int64_t n_equal(const struct tour *r, int64_t *apart) {
    bool is_eval = walk_is_due(r->t, KIND_EVAL, r->done), is_sample = walk_is_due(r->t, KIND_SAMPLE, r->done);
    if (is_eval == is_sample) return 0;
    *apart = every_of(r->t, is_eval ? KIND_EVAL : KIND_SAMPLE);
    int64_t other = least(next_due(r->t, is_eval ? KIND_SAMPLE : KIND_EVAL, r->done), next_stage(r->t, r->done));
    if (!r->has_seen[KIND_SAVE]) other = least(other, next_due(r->t, KIND_SAVE, r->done));
    return *apart > 0 ? (other - 1 - r->done) / *apart : 0;
}

static bool has_seen_all(const struct tour *r) {
    for (int kind = KIND_EVAL; kind <= KIND_SAVE; kind++)
        if (has_kind(r->t, (enum step_kind)kind) && !r->has_seen[kind]) return false;
    return r->done >= r->t->settings.batch_warmup;
}

/* Until every kind has come, and then until steps show what they reserve after it. */
static bool tour_run(struct tour *r) {
    struct cycle cycle = {0}; /* of equal events */
    int n_events = 0;
    bool ok = true, is_first = false;
    while (ok && r->done < r->t->settings.steps && !has_seen_all(r)) {
        int64_t apart = 0;
        ok = steps_to(r, next_event(r)) && event(r, &is_first);
        int64_t n = ok ? n_equal(r, &apart) : 0;
        if (n == 0 || is_first) cycle_end(&cycle), n_events = 0;
        if (n == 0) continue;
        enum cycle_news news = cycle_look(&cycle, &r->at.layout);
        if (news == CYCLE_FAILED) ok = false;
        if (news == CYCLE_FOUND) r->done += n / cycle.n_since * cycle.n_since * apart;
        else if (++n_events == MOST_EVENTS) r->done += n * apart, r->is_settled = false;
        if (news == CYCLE_FOUND || n_events == MOST_EVENTS) cycle_end(&cycle), n_events = 0;
    }
    cycle_end(&cycle);
    return ok && steps_to(r, next_event(r));
}

static bool walk_trainer(struct walk *walk, struct trainer *t, const struct walker *w) {
    struct tour tour = {.t = t, .w = w, .done = walk->from, .is_settled = true};
    t->is_sketch = walk->is_sketch;
    for (int kind = 0; kind < KIND_COUNT; kind++)
        walk->counts[kind] = has_kind(t, (enum step_kind)kind)
                                 ? kind_n_due(&t->settings, (enum step_kind)kind, 0, t->settings.steps)
                                 : 0;
    bool ok = state_read(&tour.pool, t) && state_copy(&tour.at, &tour.pool) && tour_run(&tour);
    walk->is_settled = tour.is_settled;
    tour_free(&tour);
    return ok;
}

bool walk_run(struct walk *walk, const struct settings *s, tl_device *device, uint64_t memory_bytes,
              const struct walker *w) {
    tl_model_config config;
    char weights[SETTING_TEXT];
    struct source source = {0};
    struct mesh mesh = {0};
    if (!turn_take(NULL)) return false;
    bool ok = device && settings_check(s) && trainer_model(s, &config, weights) && mesh_price(&mesh, s, walk->rank) &&
              source_open(&source, s, config.vocabulary, true);
    if (device) tl_pool_trim(device); /* memory reserved by others is not the run's */
    if (ok) tl_set_pool_limit(device, memory_bytes);
    struct trainer *t = ok ? trainer_new(s, &source, device, &mesh) : NULL;
    ok = t && walk_trainer(walk, t, w);
    trainer_free(t);
    source_close(&source);
    mesh_close(&mesh);
    if (device) tl_pool_trim(device);
    if (device) tl_set_pool_limit(device, 0);
    turn_give();
    return ok;
}

tl_device *walk_stand_in(const struct settings *s) { return device_stand_in(s->device); }

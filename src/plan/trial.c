#include "plan/trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "step/trainer.h"

/* Threads, caches and clocks need a while to settle, and short steps need many to have a median: both are stretches
 * of time with at least this many steps. */
enum { WARM_STEPS = 2, MOST_STEPS = 64, MOST_PROFILED = 9, MOST_WARM = 300 };
static const double warm_s = 0.02, stretch_s = 0.04;
/* A GPU reaches the clock that its power allows only after a while, if its steps are not short ones. */
static const double warm_ahead_s = 0.15, warm_long_s = 0.6, long_step_s = 0.002, stretch_ahead_s = 0.12;
/* How long a device is kept waiting while this thread queues the calls of a step that are timed: by the time that took
 * last, and at most as long as queues have room for (1,024 calls or so). */
static const double first_delay_s = 0.004, longest_delay_s = 0.02;

static int double_order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median; or, on cores that others share, the least of ten. */
static double typical(double *values, int n, bool is_shared) {
    qsort(values, (size_t)n, sizeof *values, double_order);
    if (is_shared) return values[n / 10];
    return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

/* One step, and its results read: an asynchronous device has then finished. */
static bool step_once(struct trainer *t, int64_t step) {
    double loss, norm;
    return trainer_step(t, step) && trainer_read(t, step, &loss, &norm);
}

static bool steps_warm(struct trainer *t, int64_t *step) {
    bool is_ahead = device_runs_ahead(t->device);
    double began = 0, past_s = 0, long_enough = is_ahead ? warm_ahead_s : warm_s;
    for (int n = 0; *step < WARM_STEPS || (*step < MOST_WARM && past_s < long_enough); n++) {
        if (!step_once(t, (*step)++)) return false;
        if (!n) began = now_s(); /* the first one makes plans, and does not count */
        past_s = now_s() - began;
        if (is_ahead && n && past_s / n > long_step_s) long_enough = warm_long_s;
    }
    return true;
}

/* Times from one step's results to the next one's, read a step late as in a run, so that an asynchronous device does
 * not wait for this thread. `n` receives their number. */
static bool steps_time(struct trainer *t, int64_t *step, int *n, double *step_s) {
    double seconds[MOST_STEPS],
        began = now_s(), long_enough = device_runs_ahead(t->device) ? stretch_ahead_s : stretch_s, before, loss, norm;
    int done = 0;
    if (!trainer_step(t, (*step)++) || !trainer_step(t, (*step)++) || !trainer_read(t, *step - 2, &loss, &norm))
        return false;
    before = now_s();
    while (done < *n || (done < MOST_STEPS && now_s() - began < long_enough)) {
        if (!trainer_step(t, (*step)++) || !trainer_read(t, *step - 2, &loss, &norm)) return false;
        double now = now_s();
        seconds[done++] = now - before;
        before = now;
    }
    *step_s = typical(seconds, *n = done, device_is_host(t->device));
    return trainer_read(t, *step - 1, &loss, &norm);
}

static bool unequal_steps(void) { return error_set(TL_ERROR_USE, "two steps of one run have different costs"); }

/* Rows of several ledgers of equal steps, each in canonical order: one row each, with the typical time. */
static bool rows_merge(tl_ledger *const *ledgers, int n, bool is_shared, struct trial *trial) {
    size_t n_rows = ledgers[0]->n_rows, bytes = n_rows * sizeof *trial->rows;
    trial->rows = memory_new(bytes + 1);
    if (!trial->rows) return error_memory(bytes, "rows of a trial");
    for (int k = 0; k < n; k++) ledger_sort(ledgers[k]->rows, ledgers[k]->n_rows);
    memcpy(trial->rows, ledgers[0]->rows, bytes);
    trial->n_rows = n_rows;
    for (size_t i = 0; i < n_rows; i++) {
        double seconds[MOST_STEPS];
        for (int k = 0; k < n; k++) {
            if (ledgers[k]->n_rows != n_rows || ledger_row_order(&ledgers[k]->rows[i], &trial->rows[i]))
                return unequal_steps();
            seconds[k] = ledgers[k]->rows[i].time_s;
        }
        trial->rows[i].time_s = typical(seconds, n, is_shared);
        trial->kernel_s += trial->rows[i].time_s;
        if (trial->rows[i].time_s > 0) trial->calls += trial->rows[i].calls;
    }
    return true;
}

/* A step whose ops are timed. On an asynchronous device a plain step is launched just before, so that caches and clock
 * are those of a run, and then a delay, so that ops are not timed while the device waits for them. `queue_s` is how
 * long it took to queue the step before, and is changed to that of this one. */
static bool step_profile(struct trainer *t, int64_t *step, tl_ledger **ledger, double *queue_s) {
    double loss, norm;
    bool is_ahead = device_runs_ahead(t->device);
    if (is_ahead && !trainer_step(t, (*step)++)) return false;
    device_delay(t->device, fmin(1.3 * *queue_s, longest_delay_s));
    *ledger = tl_ledger_begin("trial");
    if (!*ledger) return false;
    double began = now_s();
    bool before = tl_set_profiling(true), ok = trainer_step(t, (*step)++);
    tl_set_profiling(before);
    *queue_s = now_s() - began;
    ok = tl_ledger_end(*ledger) && ok;
    if (is_ahead) ok = ok && trainer_read(t, *step - 2, &loss, &norm);
    return ok && trainer_read(t, *step - 1, &loss, &norm);
}

static bool steps_profile(struct trainer *t, int64_t *step, int n, struct trial *trial) {
    tl_ledger *ledgers[MOST_STEPS] = {NULL};
    double queue_s = first_delay_s;
    bool ok = true;
    for (int i = 0; ok && i < n; i++) ok = step_profile(t, step, &ledgers[i], &queue_s);
    ok = ok && rows_merge(ledgers, n, device_is_host(t->device), trial);
    for (int i = 0; i < n; i++) tl_ledger_free(ledgers[i]);
    return ok;
}

static bool trial_in(const struct settings *s, int n_steps, struct trial *trial) {
    tl_model_config config;
    char weights[SETTING_TEXT];
    struct source source = {0};
    if (s->threads) tl_set_threads((int)s->threads);
    tl_device *device = settings_check(s) && trainer_model(s, &config, weights) ? tl_device_find(s->device) : NULL;
    bool ok = device && source_open(&source, s, config.vocabulary, false);
    struct trainer *t = ok ? trainer_new(s, &source, device, NULL) : NULL;
    int64_t step = 0;
    ok = t != NULL;
    ok = ok && steps_warm(t, &step) && steps_time(t, &step, &n_steps, &trial->step_s) &&
         steps_profile(t, &step, n_steps < MOST_PROFILED ? n_steps : MOST_PROFILED, trial);
    trainer_free(t);
    source_close(&source);
    return ok;
}

bool trial_run(const struct settings *given, int n_steps, struct trial *trial) {
    struct settings s = *given;
    memset(trial, 0, sizeof *trial);
    if (n_steps < 1 || n_steps > MOST_STEPS)
        return error_set(TL_ERROR_USE, "a trial of %d steps (need 1 to %d)", n_steps, MOST_STEPS);
    s.steps = MOST_WARM + 5 * MOST_STEPS;
    s.warmup = 1;
    s.lr = 1e-5; /* a model that diverges costs more: logits that overflow are computed again, and fp16 skips steps */
    s.sample_tokens = 0;
    bool ok = trial_in(&s, n_steps, trial);
    if (!ok) trial_free(trial);
    return ok;
}

bool trial_merge(struct trial *best, const struct trial *other) {
    if (best->n_rows != other->n_rows) return unequal_steps();
    for (size_t i = 0; i < best->n_rows; i++)
        if (ledger_row_order(&best->rows[i], &other->rows[i])) return unequal_steps();
    best->kernel_s = 0;
    for (size_t i = 0; i < best->n_rows; i++) {
        best->rows[i].time_s = fmin(best->rows[i].time_s, other->rows[i].time_s);
        best->kernel_s += best->rows[i].time_s;
    }
    best->step_s = fmin(best->step_s, other->step_s);
    best->waited = fmin(best->waited, other->waited);
    best->speed = fmax(best->speed, other->speed);
    return true;
}

void trial_free(struct trial *trial) {
    memory_free(trial->rows);
    memset(trial, 0, sizeof *trial);
}

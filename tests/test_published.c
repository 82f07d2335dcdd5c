/* Plans of trainings that others have run on many GPUs: the bound on the time of a step is below what was measured, in
 * every row; the expectation and the memory stand beside the measurements. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "plan/bill.h"
#include "plan/layout.h"
#include "plan/napkin.h"

struct published {
    const char *name, *source, *model, *chip, *fabric, *recipe, *policy, *convention;
    int64_t channels, n_heads, layers, vocabulary, seq, batch, micro;
    int64_t tp, cp, pp, dp, chunks;
    int shard;
    bool sp, is_held;
    double seconds, tokens_per_s, tflops, memory;
};
static const struct published runs[] = {
#include "published_runs.h"
};
enum { N_RUNS = sizeof runs / sizeof *runs };

static void set(struct settings *s, const char *name, const char *value) {
    if (!settings_set(s, name, value)) fail_msg("%s = %s: %s", name, value, tl_error_message());
}

static struct layout layout_of(const struct published *r) {
    return (struct layout){.tp = r->tp,
                           .cp = r->cp ? r->cp : 1,
                           .pp = r->pp,
                           .dp = r->dp,
                           .chunks = r->chunks,
                           .sp = r->sp,
                           .has_rings = true, /* others run with NCCL */
                           .micro = r->micro,
                           .shard = (enum shard_mode)r->shard,
                           .schedule = r->chunks > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B};
}

static void price_run(const struct published *r, const struct plan_target *target, struct price *p) {
    struct settings s = settings_default();
    set(&s, "model", r->model);
    set(&s, "recipe", r->recipe);
    set(&s, "checkpointing", r->policy);
    s.channels = r->channels, s.heads = r->n_heads, s.layers = r->layers, s.vocabulary = r->vocabulary;
    s.seq = r->seq;
    s.context = r->channels || r->seq > 131072 ? r->seq : 0;
    s.batch = r->batch;
    s.accum = r->micro > 1 ? 2 : 1;
    s.steps = 1, s.warmup = 0, s.sample_tokens = 0, s.val_share = 0;
    if (!price_sketch(p, &s, target->device, 0)) fail_msg("%s: %s", r->name, tl_error_message());
}

static double measured_s(const struct published *r, const struct price *p, const struct layout *l) {
    double devices = (double)(l->tp * l->cp * l->pp * l->dp);
    double tokens = (double)(r->batch * r->micro * r->seq * l->dp);
    if (r->seconds > 0) return r->seconds;
    if (r->tokens_per_s > 0) return tokens / (r->tokens_per_s * devices);
    if (!(r->tflops > 0)) return 0;
    struct napkin_model m = napkin_model_of(&p->config);
    return napkin_convention_find(r->convention)->flops(&m, (double)r->seq) * tokens / (devices * r->tflops * 1e12);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static void errors_print(const char *what, double *errors, int n) {
    qsort(errors, (size_t)n, sizeof *errors, by_size);
    if (n)
        print_message("    %-24s %2d rows: median %.0f %%, worst %.0f %%\n", what, n, 100 * errors[n / 2],
                      100 * errors[n - 1]);
}

static void no_published_run_is_faster_than_its_bound(void **state) {
    (void)state;
    struct price *p = memory_new(sizeof *p);
    double errors[2][N_RUNS], memory[N_RUNS];
    int n_within = 0;
    int n[2] = {0}, n_memory = 0;
    assert_non_null(p);
    print_message("    %-18s %6s %-16s %9s %9s %9s %6s %6s   %s\n", "run", "GPUs", "tp cp pp dp", "bound", "measured",
                  "expected", "share", "error", "GiB: plan, measured");
    for (int i = 0; i < N_RUNS; i++) {
        const struct published *r = &runs[i];
        struct plan_target target;
        struct layout_estimate e;
        struct layout l = layout_of(r);
        char axes[32];
        if (!plan_target_find(&target, r->chip)) fail_msg("%s", tl_error_message());
        struct network net = network_of(target.chip);
        price_run(r, &target, p);
        if (!layout_estimate(&e, p, &target, &net, &l, NULL)) fail_msg("%s: %s", r->name, tl_error_message());
        double measured = measured_s(r, p, &l), error = measured > 0 ? e.expected_s / measured - 1 : 0;
        snprintf(axes, sizeof axes, "%d %d %d %d", (int)l.tp, (int)l.cp, (int)l.pp, (int)l.dp);
        print_message("    %-18s %6d %-16s %9.3f %9.3f %9.3f %5.0f%% %+5.0f%%   %.1f, %.1f\n", r->name,
                      (int)(l.tp * l.cp * l.pp * l.dp), axes, e.bound_s, measured, e.expected_s,
                      measured > 0 ? 100 * e.bound_s / measured : 0, 100 * error, (double)e.total_bytes / 1073741824,
                      r->memory / 1073741824);
        expect_true(e.bound_s > 0 && e.expected_s >= e.bound_s);
        if (measured > 0 && !(e.bound_s <= measured))
            fail_msg("%s (%s): the bound is %.4g s, measured were %.4g s", r->name, r->source, e.bound_s, measured);
        if (measured > 0) errors[r->is_held][n[r->is_held]++] = fabs(error);
        const double factor = measured / e.expected_s;
        if (measured > 0) n_within += factor >= BILL_SHORTEST && factor <= BILL_LONGEST;
        if (r->memory > 0) memory[n_memory++] = fabs((double)e.total_bytes / r->memory - 1);
        price_free(p);
    }
    if (n_within < 0.89 * (n[0] + n[1])) fail_msg("%d of %d runs are within the range", n_within, n[0] + n[1]);
    errors_print("expected, rows of the fit", errors[0], n[0]);
    errors_print("expected, held out", errors[1], n[1]);
    errors_print("memory", memory, n_memory);
    memory_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(no_published_run_is_faster_than_its_bound)};
    return cmocka_run_group_tests_name("published", tests, NULL, NULL);
}

/* cmd_sweep.c: tally sweep: a ladder of small models is priced, trained and fitted, and predicts a larger one. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/learning.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/plan_options.h"
#include "plan/expect.h"
#include "plan/ladder.h"
#include "step/price.h"
#include "step/ramp.h"
#include "train/run.h"

const char help_sweep[] =
    "usage: tally sweep [--SETTING VALUE ...] [--rungs N] [--predict X] [--check] [--price] [--json]\n"
    "\n"
    "Trains a ladder of small models, fits a scaling law to their held-out losses, and predicts the loss of a larger\n"
    "run with an interval. The widest rung is the model of the settings (`tally train --settings`); narrower ones "
    "have\n"
    "its layers, as many tokens for each parameter, and learning rates that rise as the root of the width falls. All\n"
    "runs are in one folder (--out), and each is an ordinary run: `tally runs`, `tally report` and `tally napkin loss\n"
    "--runs` read them. Ctrl-C saves; the same command goes on where it stopped. The price of everything comes first.\n"
    "\n"
    "  --rungs N            models of the ladder, 4 to 12 [5]\n"
    "  --ratio X            FLOPs of a rung over those of the one below [2]\n"
    "  --tokens-per-param X tokens that each model is trained on, for each of its parameters [16]\n"
    "  --predict X          predict a run of so many times the FLOPs of the widest rung [4]\n"
    "  --check              train that run too, and compare\n"
    "  --price              only the price: sizes, FLOPs, bytes, and the time if this machine has a profile\n"
    "  --quiet              no progress\n"
    "  --config FILE        read settings from a JSON object; later flags override it\n"
    "  --json               tally.sweep/1 on stdout\n"
    "\n"
    "examples:\n"
    "  tally sweep                                   five models of the built-in stories, in a few minutes\n"
    "  tally sweep --price                           what that would take\n"
    "  tally sweep --check --out runs/check          and the sixth, four times as large, to see how good it is\n"
    "  tally sweep --model gpt2-124m --channels 256 --data train.txt --tokenizer gpt2/tokenizer.json --predict 100\n";

struct sweep {
    struct settings settings;
    struct ladder_options options;
    struct ladder ladder;
    struct {
        double flops, bytes, seconds; /* of the whole run; at the peak; 0: not known */
    } price[LADDER_RUNGS + 1];
    struct napkin_fit fit;
    bool has_check, only_price, is_quiet, is_json, is_terminal;
    int at;             /* the run that trains */
    double begin_s;     /* of this process's first step */
    double done, total; /* FLOPs of steps since then; of all that is left */
};

static int n_runs(const struct sweep *w) { return w->ladder.n + w->has_check; }

static const char *rung_name(const struct ladder_rung *r) { return strrchr(r->settings.out, '/') + 1; }

/* ---- The price ---- */

static bool price_one(struct sweep *w, int i) {
    const struct settings *s = &w->ladder.rung[i].settings;
    struct price *p = memory_new(sizeof *p);
    struct plan_target target;
    bool ok = p && hardware_load_default() && plan_target_find(&target, s->device);
    if (ok && (ok = price_sketch(p, s, target.device, 0))) {
        for (int kind = 0; kind < KIND_COUNT; kind++) {
            if (!kind_is_step((enum step_kind)kind) || !p->kind[kind].ledger) continue;
            const tl_totals step = tl_ledger_total(p->kind[kind].ledger, TL_ALL, NULL);
            w->price[i].flops += tl_count_value(step.flops) * (double)p->kind[kind].count;
        }
        w->price[i].bytes = (double)p->reserved_bytes;
        price_free(p);
    }
    memory_free(p);
    if (ok) w->price[i].seconds = expect_of(s).step_s * (double)ramp_batches(s, s->steps) / (double)s->accum;
    return ok;
}

static void price_print(const struct sweep *w) {
    double flops = 0, seconds = 0;
    char a[32], b[32], c[32];
    FILE *to = w->only_price ? stdout : stderr;
    fprintf(to, "%-10s %8s %11s %9s %8s %10s %12s %12s %10s\n", "run", "channels", "parameters", "tokens", "steps",
            "lr", "FLOPs", "bytes", "time");
    for (int i = 0; i <= w->ladder.n; i++) {
        const struct ladder_rung *r = &w->ladder.rung[i];
        fprintf(to, "%-10s %8" PRId64 " %11s %9s %8" PRId64 " %10.3g %12s", rung_name(r), r->settings.channels,
                count_text(r->parameters, a), count_text(r->tokens, b), r->settings.steps, r->settings.lr,
                count_text(w->price[i].flops, c));
        fprintf(to, " %12s %10s\n", bytes_text(w->price[i].bytes, a),
                w->price[i].seconds > 0 ? duration_text(w->price[i].seconds, b) : "-");
        if (i < n_runs(w)) flops += w->price[i].flops, seconds += w->price[i].seconds;
    }
    fprintf(to, "in all %sFLOP%s", count_text(flops, a), w->has_check ? "" : " without the run to predict");
    if (seconds > 0) fprintf(to, ", %s by this machine's profile", duration_text(seconds, b));
    else fprintf(to, " (`tally calibrate` once, and the time is known beforehand)");
    fprintf(to, "\n");
}

/* ---- Training ---- */

/* How far all of it is; the rate is that of this process. */
static void tell(void *context, const struct run_news *n) {
    struct sweep *w = context;
    const struct ladder_rung *r = &w->ladder.rung[w->at];
    const double now = now_s(), step = w->price[w->at].flops / (double)r->settings.steps;
    char line[200], left[32] = "-", all[32] = "-";
    if (isfinite(n->held_out)) return; /* the step was told before */
    if (!(w->begin_s > 0)) w->begin_s = now - n->step_s;
    w->done += step;
    if (w->is_quiet || (!w->is_terminal && n->step % (1 + n->steps / 4) && n->step != n->steps)) return;
    duration_text(n->eta_s, left);
    duration_text(fmax(w->total - w->done, 0) * (now - w->begin_s) / w->done, all);
    snprintf(line, sizeof line, "%s: step %" PRId64 "/%" PRId64 "  loss %.4f  ETA %s, of all %s", rung_name(r), n->step,
             n->steps, n->loss, left, all);
    if (w->is_terminal) output_status(line);
    else fprintf(stderr, "%s\n", line);
}

/* 0, or the exit code. */
static int train_one(struct sweep *w, int i) {
    struct ladder_rung *r = &w->ladder.rung[i];
    const struct run_listener listener = {.tell = tell, .context = w, .stop = &is_interrupted};
    struct run_summary m;
    w->at = i;
    const enum run_end end = run_train(&r->settings, &listener, &m);
    if (w->is_terminal && !w->is_quiet) output_wipe();
    int code = 0;
    if (end == RUN_FAILED) code = cli_error();
    else if (end == RUN_STOPPED)
        code = (fprintf(stderr, "tally sweep: %s is saved after %" PRId64 " steps; run the same command to go on\n",
                        r->settings.out, m.steps),
                EXIT_AGAIN);
    else if (end == RUN_NOT_FINITE)
        code = (fprintf(stderr, "tally sweep: %s: %s (a smaller --lr?)\n", r->settings.out, m.problem), EXIT_NUMERIC);
    else if (!isfinite(m.held_out))
        code = (fprintf(stderr, "tally sweep: %s has no held-out loss (give --val-share or --val-data)\n",
                        r->settings.out),
                EXIT_INPUT);
    r->loss = m.held_out;
    if (!code && m.was_done) w->total -= w->price[i].flops;
    if (!code && !w->is_quiet)
        fprintf(stderr, "%s: held-out loss %.4f%s\n", rung_name(r), m.held_out, m.was_done ? ", trained before" : "");
    free(m.text);
    profile_free(&m.profile);
    return code;
}

/* ---- The answer ---- */

static const double level = 0.95;

static json_t *rung_json(const struct sweep *w, int i) {
    const struct ladder_rung *r = &w->ladder.rung[i];
    json_t *row = json_pack("{s:s, s:I, s:f, s:f, s:I, s:f, s:f, s:f, s:f}", "out", r->settings.out, "channels",
                            (json_int_t)r->settings.channels, "parameters", r->parameters, "tokens", r->tokens, "steps",
                            (json_int_t)r->settings.steps, "lr", r->settings.lr, "flops_6nd", r->flops, "flops",
                            w->price[i].flops, "peak_bytes", w->price[i].bytes);
    json_object_set_new(row, "seconds", w->price[i].seconds > 0 ? json_real(w->price[i].seconds) : json_null());
    json_object_set_new(row, "loss", isfinite(r->loss) ? json_real(r->loss) : json_null());
    return row;
}

static json_t *sweep_json(const struct sweep *w) {
    json_t *rungs = json_array(), *root = json_pack("{s:s, s:o}", "schema", "tally.sweep/1", "rungs", rungs);
    for (int i = 0; i < w->ladder.n; i++) json_array_append_new(rungs, rung_json(w, i));
    json_t *predicted = rung_json(w, w->ladder.n);
    json_object_set_new(root, "predicted", predicted);
    if (w->only_price) return root;
    const struct napkin_law *law = &w->fit.law;
    const double *flops = &w->ladder.rung[w->ladder.n].flops, said = ladder_loss(law, 0, flops);
    double range[2];
    json_object_set_new(root, "law", json_pack("{s:f, s:f, s:f}", "E", law->E, "A", law->A, "alpha", law->alpha));
    json_object_set_new(root, "rms", json_real(w->fit.rms));
    json_object_set_new(predicted, "predicted_loss", json_real(said));
    if (napkin_fit_range(&w->fit, ladder_loss, flops, level, range))
        json_object_set_new(predicted, "predicted_loss_range", json_pack("[f, f]", range[0], range[1]));
    return root;
}

static void answer_print(const struct sweep *w) {
    const struct ladder_rung *next = &w->ladder.rung[w->ladder.n];
    const struct napkin_law *law = &w->fit.law;
    const double said = ladder_loss(law, 0, &next->flops);
    char a[32], b[32];
    double range[2];
    printf("%-10s %8s %11s %9s %12s %10s %10s\n", "run", "channels", "parameters", "tokens", "6ND", "held out", "law");
    for (int i = 0; i < w->ladder.n; i++) {
        const struct ladder_rung *r = &w->ladder.rung[i];
        printf("%-10s %8" PRId64 " %11s %9s %12.4g %10.4f %10.4f\n", rung_name(r), r->settings.channels,
               count_text(r->parameters, a), count_text(r->tokens, b), r->flops, r->loss,
               ladder_loss(law, 0, &r->flops));
    }
    printf("\nL = E + A / C^a = %.4f + %.4g / C^%.4f; the runs are %.2f %% from it\n", law->E, law->A, law->alpha,
           100 * w->fit.rms);
    printf("predicted: %.4f", said);
    if (napkin_fit_range(&w->fit, ladder_loss, &next->flops, level, range))
        printf(" (95 %%: %.4f to %.4f)", range[0], range[1]);
    printf(" for %s parameters (%" PRId64 " channels) on %s tokens, %.3g times the FLOPs\n",
           count_text(next->parameters, a), next->settings.channels, count_text(next->tokens, b),
           next->flops / w->ladder.rung[w->ladder.n - 1].flops);
    if (isfinite(next->loss))
        printf("measured:  %.4f; the prediction is off by %+.4f\n", next->loss, said - next->loss);
    else printf("  --check trains it too: tally sweep --check, with the same settings\n");
}

/* ---- The command ---- */

static int flags_read(struct sweep *w, int argc, char **argv) {
    const struct option own[] = {{"--rungs", OPTION_INTEGER, &w->options.rungs, LADDER_LEAST, LADDER_RUNGS, false},
                                 {"--ratio", OPTION_NUMBER, &w->options.ratio, 1.1, 100, false},
                                 {"--tokens-per-param", OPTION_NUMBER, &w->options.tokens_per_param, 0.01, 1e5, false},
                                 {"--predict", OPTION_NUMBER, &w->options.predict, 1.1, 1e6, false},
                                 {"--check", OPTION_FLAG, &w->has_check, 0, 0, false},
                                 {"--price", OPTION_FLAG, &w->only_price, 0, 0, false},
                                 {"--quiet", OPTION_FLAG, &w->is_quiet, 0, 0, false},
                                 {"--json", OPTION_FLAG, &w->is_json, 0, 0, false},
                                 {0}};
    /* those that the ladder sets, and those of several processes */
    static const struct option_form form[] = {
        {"sweep", "--rungs --ratio --tokens-per-param --predict --check --price --quiet --json",
         "--steps --ff --dp --tp --cp --pp --pp-chunks --sp --shard --shard-group --overlap --accept-changes"},
        {NULL, NULL, NULL}};
    static const struct option_rule rules[] = {{"sweep", "--quiet", OPTION_BESIDE, "--price"},
                                               {NULL, NULL, OPTION_BESIDE, NULL}};
    struct options_given given = {.n = 0};
    int code = 0;
    for (int i = 1, taken; !code && i < argc; i += taken) {
        given_add(&given, argv[i]);
        if (!option_take("sweep", own, argv + i, argc - i, &taken, &code))
            code = settings_flag(&w->settings, "sweep", own, argv + i, argc - i, &taken);
    }
    return code ? code : options_check(form, form, rules, &given);
}

/* What a ladder has in place of the defaults of one run: a narrow model with short sequences, one evaluation at the
 * end on much data, and no samples. */
static bool defaults_set(struct settings *s) {
    static const char *const values[][2] = {{"out", "runs/sweep"},  {"eval_every", "0"},    {"eval_batches", "256"},
                                            {"sample_tokens", "0"}, {"save_best", "false"}, {"log_every", "10"}};
    static const char *const small[][2] = {
        {"channels", "64"}, {"heads", "8"}, {"batch", "4"}, {"seq", "128"}, {"lr", "5.7e-3"}};
    const bool is_own = settings_is_given(s, "model") || settings_is_given(s, "channels");
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (!settings_is_given(s, values[i][0]) && !settings_set(s, values[i][0], values[i][1])) return false;
    for (size_t i = 0; !is_own && i < sizeof small / sizeof *small; i++)
        if (!settings_is_given(s, small[i][0]) && !settings_set(s, small[i][0], small[i][1])) return false;
    return true;
}

static int ladder_run(struct sweep *w) {
    int code = 0;
    for (int i = 0; i < n_runs(w); i++) w->total += w->price[i].flops;
    interrupt_catch_run(NULL);
    for (int i = 0; !code && i < n_runs(w); i++) code = train_one(w, i);
    if (!code && !ladder_fit(&w->ladder, &w->fit)) code = cli_error();
    if (!code && w->is_json) code = cli_json(sweep_json(w));
    else if (!code) answer_print(w);
    return code;
}

int cmd_sweep(int argc, char **argv) {
    static struct sweep w; /* a command runs once, and this is more than a stack should hold */
    tl_tokenizer *made = NULL;
    w.settings = settings_default();
    w.options = (struct ladder_options){.rungs = 5, .ratio = 2, .tokens_per_param = 16, .predict = 4};
    w.is_terminal = isatty(STDERR_FILENO);
    int code = flags_read(&w, argc, argv);
    if (!code && !defaults_set(&w.settings)) code = cli_error();
    if (!code) code = learning_ready("sweep", &w.settings, &made);
    if (!code) run_defaults(&w.settings);
    if (!code && !ladder_make(&w.ladder, &w.settings, &w.options)) code = cli_error();
    for (int i = 0; !code && i <= w.ladder.n; i++)
        if (!price_one(&w, i)) code = cli_error();
    if (!code && w.only_price && w.is_json) code = cli_json(sweep_json(&w));
    else if (!code && (w.only_price || !w.is_quiet)) price_print(&w);
    if (!code && !w.only_price) code = ladder_run(&w);
    tl_tokenizer_free(made);
    return code;
}

/* cmd_train.c: tally train. Flags are the settings' table; see train/settings_list.h. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "train/run.h"

struct options {
    struct settings settings;
    bool is_price, is_json;
};

/* ---- Help ---- */

static void help(FILE *to) {
    fputs("usage: tally train [--config FILE.json] [--SETTING VALUE ...] [--price] [--json]\n\n"
          "Trains a language model. Before the first step the whole run is priced on meta; when it ends, its receipt is compared\n"
          "with the price. Run the same command again to go on where it stopped (Ctrl-C saves first, and exits with 75).\n\n"
          "  --config FILE      settings from a JSON object; flags that follow it win\n"
          "  --price            only the price: nothing is trained or written\n"
          "  --json             the summary (or the price) as JSON on stdout\n"
          "  --models           the models known by name\n",
          to);
    const struct setting_row *row;
    for (int i = 0; (row = settings_row(i)); i++) {
        char flag[96];
        if (row->group) fprintf(to, "\n%s\n", row->group);
        snprintf(flag, sizeof flag, "--%s %s", row->name, row->kind);
        for (char *c = flag; *c && *c != ' '; c++)
            if (*c == '_') *c = '-';
        fprintf(to, strlen(flag) > 28 ? "  %s\n%32s %s" : "  %-28s  %s%s", flag, strlen(flag) > 28 ? "" : row->help,
                strlen(flag) > 28 ? row->help : "");
        fprintf(to, *row->value ? " [%s]\n" : "\n", row->value);
    }
    fputs("\nexamples:\n"
          "  tally train --out runs/first                  a small model on built-in stories: about a minute on two cores\n"
          "  tally train --model tiny-gpt2 --steps 500 --dropout 0.1 --out runs/second\n"
          "  tally train --model gpt2-124m --data tokens.bin --recipe bf16 --seq 1024 --batch 8 --accum 4 --price\n"
          "  tally diff runs/first/price.json runs/first/receipt.json\n",
          to);
}

static int models(void) {
    for (int i = 0; tl_model_preset_name(i); i++) {
        tl_model_config c;
        char n[32];
        if (!tl_model_preset(tl_model_preset_name(i), &c)) return cli_error();
        if (c.family == TL_DEEP_LINEAR) continue; /* no model of language */
        printf("%-16s %-6s %8s parameters, %" PRId64 " layers, %" PRId64 " channels, context %" PRId64
               ", vocabulary %" PRId64 "\n",
               tl_model_preset_name(i), tl_family_name(c.family),
               count_text((double)tl_model_config_parameters(&c), n), c.n_layers, c.channels, c.context, c.vocabulary);
    }
    return 0;
}

/* ---- Flags ---- */

static bool is_truth(const char *name) {
    const struct setting_row *row;
    for (int i = 0; (row = settings_row(i)); i++)
        if (!strcmp(row->name, name)) return !*row->kind;
    return false;
}

/* One flag at argv[*at], with its value there or in the next. 0: taken. */
static int flag_read(struct options *o, int argc, char **argv, int *at) {
    char name[128];
    const char *flag = argv[*at], *equals = strchr(flag, '=');
    if (strncmp(flag, "--", 2)) {
        fprintf(stderr, "tally train: there is no option %s; see `tally train --help`\n", flag);
        return EXIT_USAGE;
    }
    snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - flag - 2) : 100, flag + 2);
    for (char *c = name; *c; c++)
        if (*c == '-') *c = '_';
    const char *value = equals ? equals + 1 : is_truth(name) ? "true" : NULL;
    if (!value && *at + 1 < argc) value = argv[++*at];
    struct settings scratch = o->settings;
    if (!value && (settings_set(&scratch, name, "") || strncmp(tl_error_message(), "there is no", 11))) {
        fprintf(stderr, "tally train: --%s needs a value\n", flag + 2);
        return EXIT_USAGE;
    }
    bool ok = !strcmp(name, "config") ? settings_read(&o->settings, value)
                                      : settings_set(&o->settings, name, value ? value : "");
    if (ok) return 0;
    int result = cli_error();
    return strcmp(name, "config") ? EXIT_USAGE : result;
}

static int options_read(struct options *o, int argc, char **argv) {
    o->settings = settings_default();
    for (int i = 1; i < argc; i++) {
        int result = 0;
        if (!strcmp(argv[i], "--price")) o->is_price = true;
        else if (!strcmp(argv[i], "--json")) o->is_json = true;
        else result = flag_read(o, argc, argv, &i);
        if (result) return result;
    }
    return settings_check(&o->settings) ? 0 : (cli_error(), EXIT_USAGE);
}

/* ---- While it runs ---- */

static volatile sig_atomic_t stop_asked;

/* The first signal asks; the second one, by SA_RESETHAND, ends. */
static void on_signal(int number) {
    (void)number;
    stop_asked = 1;
}

static void signals_take(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND | SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
}

static bool is_over(int64_t step, void *context) {
    (void)step;
    (void)context;
    return stop_asked != 0;
}

static const char *time_text(double s, char buffer[32]) {
    if (!isfinite(s)) snprintf(buffer, 32, "?");
    else if (s < 60) snprintf(buffer, 32, "%.1f s", s);
    else if (s < 3600) snprintf(buffer, 32, "%d:%02d min", (int)s / 60, (int)s % 60);
    else snprintf(buffer, 32, "%d:%02d h", (int)(s / 3600), (int)(s / 60) % 60);
    return buffer;
}

struct line {
    bool is_terminal, is_open; /* is_open: a line on the terminal waits to be overwritten */
};

/* In place on a terminal; elsewhere twenty lines in all. */
static void on_step(const struct run_progress *p, void *context) {
    struct line *line = context;
    char rate[32], memory[32], eta[32];
    int64_t every = p->steps / 20 > 0 ? p->steps / 20 : 1;
    if (!line->is_terminal && p->step % every && p->step != p->steps && p->step != 1) return;
    fprintf(stderr,
            "%sstep %" PRId64 "/%" PRId64 "  loss %.4f  norm %.3f  lr %.2e  %.0f tokens/s  %sFLOP/s  %s  wait %.1f%%  ETA "
            "%s%s",
            line->is_terminal ? "\r" : "", p->step, p->steps, p->loss, p->grad_norm, p->lr, p->tokens_per_s,
            count_text(p->flops_per_s, rate), bytes_text((double)p->peak_bytes, memory), 100 * p->wait_share,
            time_text(p->eta_s, eta), line->is_terminal ? "\033[K" : "\n");
    line->is_open = line->is_terminal;
}

static void line_end(struct line *line) {
    if (line->is_open) fputc('\n', stderr);
    line->is_open = false;
}

static void on_note(const char *text, void *context) {
    line_end(context);
    fprintf(stderr, "%s\n", text);
}

/* ---- Afterwards ---- */

static json_t *real(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static int summary_json(const struct run_summary *s, enum run_end end) {
    static const char *const ends[] = {"failed", "done", "saved", "not finite"};
    json_t *peak = json_object();
    for (int p = 0; p < TL_PURPOSE_COUNT; p++)
        json_object_set_new(peak, tl_purpose_name((tl_purpose)p), json_integer((json_int_t)s->peak[p]));
    json_t *root = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:I, s:f, s:f, s:f, s:I, s:I, s:o, s:s*, s:i, s:s}",
        "schema", "tally.summary/1", "end", ends[end], "parameters", (json_int_t)s->parameters, "first_step",
        (json_int_t)s->first_step, "step", (json_int_t)s->step, "tokens", (json_int_t)s->tokens, "skipped",
        (json_int_t)s->n_skipped, "loss", real(s->loss), "held_out_loss", real(s->held_out_loss), "best_loss",
        real(s->best_loss), "floor", real(s->floor), "best_step", (json_int_t)s->best_step, "elapsed_s", s->elapsed_s,
        "here_s", s->here_s, "flops", s->flops, "peak_bytes", (json_int_t)s->peak_bytes, "peak_reserved_bytes",
        (json_int_t)s->peak_reserved_bytes, "peak_by_purpose", peak, "sample", s->sample, "differences",
        s->n_differences, "why", s->why);
    char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    bool ok = text && printf("%s\n", text) > 0;
    free(text);
    json_decref(root);
    return ok ? 0 : EXIT_IO;
}

static void summary_print(const struct run_summary *s) {
    char a[32], b[32], c[32];
    int64_t here = s->step - s->first_step;
    printf("%" PRId64 " steps, %" PRId64 " tokens in %s", s->step, s->tokens, time_text(s->elapsed_s, a));
    if (here > 0 && s->step > 0)
        printf(": %.0f tokens/s", (double)s->tokens / (double)s->step * (double)here / s->here_s);
    printf("\n%s parameters, %sFLOP", count_text((double)s->parameters, a), count_text(s->flops, b));
    printf(", %sFLOP/s\n", count_text(s->step ? s->flops / s->elapsed_s : 0, c));
    printf("a step holds %s at its peak:", bytes_text((double)s->peak_bytes, a));
    for (int p = 0; p < TL_PURPOSE_COUNT; p++)
        if (s->peak[p]) printf(" %s %s", tl_purpose_name((tl_purpose)p), bytes_text((double)s->peak[p], b));
    printf("; %s reserved\n", bytes_text((double)s->peak_reserved_bytes, a));
    if (s->n_skipped) printf("%" PRId64 " steps changed nothing: something in them was not finite\n", s->n_skipped);
    printf("loss %.4f", s->loss);
    if (isfinite(s->held_out_loss))
        printf(", held-out %.4f (%.3f bits per token; best %.4f at step %" PRId64 ")", s->held_out_loss,
               s->held_out_loss / log(2.0), s->best_loss, s->best_step);
    if (isfinite(s->floor)) printf("; the data's entropy is %.4f", s->floor);
    printf("\n");
    if (s->sample) printf("\n%s\n\n", s->sample);
    if (s->differences) printf("%s", s->differences);
    if (s->n_differences == 0) printf("0 differences: price and receipt tally\n");
    else if (s->n_differences > 0) printf("%d differences: price and receipt do not tally\n", s->n_differences);
}

static int price_print(const struct options *o) {
    struct kinds price;
    int64_t parameters = 0;
    int result = 0;
    char a[32];
    if (!run_price(&o->settings, &price, &parameters)) result = cli_error();
    else if (o->is_json) {
        char *text = kinds_text(&price, &o->settings);
        result = !text ? cli_error() : printf("%s\n", text) < 0 ? EXIT_IO : 0;
        free(text);
    } else {
        printf("%s parameters\n%-8s %10s %16s %12s %12s\n", count_text((double)parameters, a), "kind", "count",
               "FLOP of one", "peak", "reserved");
        for (int i = 0; i < KIND_COUNT; i++) {
            const struct kind *kind = &price.kind[i];
            const json_t *memory = json_object_get(kind->ledger, "memory");
            const char *flops = json_string_value(json_object_get(json_object_get(kind->ledger, "totals"), "flops"));
            const char *peak = json_string_value(json_object_get(memory, "peak_bytes"));
            const char *reserved = json_string_value(json_object_get(memory, "peak_reserved_bytes"));
            char f[32], p[32], r[32];
            if (!kind->ledger) continue;
            printf("%-8s %10" PRId64 " %16s %12s %12s\n", kind_name(i), kind->count,
                   count_text(flops ? strtod(flops, NULL) : 0, f), bytes_text(peak ? strtod(peak, NULL) : 0, p),
                   bytes_text(reserved ? strtod(reserved, NULL) : 0, r));
        }
    }
    kinds_free(&price);
    return result;
}

int cmd_train(int argc, char **argv) {
    static struct options o; /* large */
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return help(stdout), 0;
        if (!strcmp(argv[i], "--models")) return models();
    }
    int result = options_read(&o, argc, argv);
    if (result) return result;
    if (o.is_price) return price_print(&o);
    struct line line = {isatty(STDERR_FILENO), false};
    struct run_watch watch = {on_step, on_note, is_over, &line};
    struct run_summary summary;
    signals_take();
    enum run_end end = run(&o.settings, &watch, &summary);
    line_end(&line);
    if (end == RUN_FAILED) result = cli_error();
    else if (o.is_json) result = summary_json(&summary, end);
    else if (end == RUN_DONE) summary_print(&summary);
    if (end == RUN_SAVED) fprintf(stderr, "saved at step %" PRId64 "; run the same command again to go on\n", summary.step);
    if (end == RUN_NUMERICAL) fprintf(stderr, "tally: %s\n", summary.why);
    if (result == 0 && end == RUN_DONE && summary.n_differences > 0) result = EXIT_INPUT;
    run_summary_free(&summary);
    return result ? result : end == RUN_SAVED ? EXIT_AGAIN : end == RUN_NUMERICAL ? EXIT_NUMERICAL : 0;
}

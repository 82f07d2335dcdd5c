/* plan_best.c: tally plan --best: the fastest, the cheapest and the smallest plan that fits, and what lies between. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/growing.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/plan_options.h"
#include "cli/sheet.h"
#include "plan/best.h"

static const char *const winners[] = {"fastest", "cheapest", "smallest"};
static int winner_of(const struct best *b, int i) { return i == 0 ? b->fastest : i == 1 ? b->cheapest : b->smallest; }

/* ---- As a command ---- */

static void word_put(struct growing *g, const char *word) {
    static const char *const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,+@%";
    if (*word && !word[strspn(word, plain)]) {
        growing_print(g, " %s", word);
        return;
    }
    growing_text(g, " '");
    for (; *word; word++) growing_text(g, text_quoted(*word).at);
    growing_text(g, "'");
}

static void flag_put(struct growing *g, const char *name, const json_t *value) {
    char flag[64], number[NUMBER_TEXT];
    snprintf(flag, sizeof flag, "--%.60s", name);
    for (char *at = flag; *at; at++)
        if (*at == '_') *at = '-';
    growing_print(g, " %s", flag);
    if (json_is_string(value)) word_put(g, json_string_value(value));
    else if (json_is_integer(value)) growing_print(g, " %lld", (long long)json_integer_value(value));
    else if (json_is_real(value)) {
        number_shortest(number, json_real_value(value));
        word_put(g, number);
    } else growing_text(g, json_is_true(value) ? " true" : " false");
}

/* What was given, and what the search has chosen; the rest are defaults. */
static bool is_written(const struct settings *given, const char *name, const json_t *value, const json_t *usual) {
    static const char *const always[] = {"recipe", "checkpointing", "batch", "accum", "seq"};
    static const char *const axes[] = {"tp", "cp", "pp", "sp", "shard", "shard_group"};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (!strcmp(name, always[i])) return true;
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (!strcmp(name, axes[i])) return !json_equal(value, usual);
    return strcmp(name, "dp") && settings_is_given(given, name) && !json_equal(value, usual);
}

static void real_put(struct growing *g, const char *flag, double value) {
    char number[NUMBER_TEXT];
    if (!(value > 0)) return;
    number_shortest(number, value);
    growing_print(g, " %s %s", flag, number);
}

/* What a plan was told beside the settings: its chips, and of several devices the network and the schedule. */
static void options_put(struct growing *g, const struct plan_flags *f, int64_t devices) {
    if (f->hardware) growing_text(g, " --hardware"), word_put(g, f->hardware);
    if (devices == 1) return;
    growing_print(g, " --devices %" PRId64, devices);
    if (f->schedule) growing_text(g, " --schedule"), word_put(g, f->schedule);
    if (f->options.layout.chunks > 1) growing_print(g, " --chunks %" PRId64, f->options.layout.chunks);
    if (f->fabric) growing_text(g, " --fabric"), word_put(g, f->fabric);
    real_put(g, "--link", f->link);
    real_put(g, "--network", f->between);
    if (f->node) growing_print(g, " --node %" PRId64, f->node);
    if (f->options.layout.has_rings) growing_text(g, " --rings");
}

/* A command of a row: `tally plan` that plans it alone, or `tally train` that runs it. memory_free it. */
static char *command_of(const struct plan_flags *f, const struct best_row *row, bool is_train) {
    static struct settings s, usual;
    struct plan_options options = f->options;
    struct growing g = {0};
    s = f->settings, usual = settings_default();
    best_apply(row, &s, &options);
    char *text = settings_json(&s), *none = settings_json(&usual);
    json_t *values = text ? json_parse(text, NULL) : NULL, *defaults = none ? json_parse(none, NULL) : NULL;
    if (is_train && row->devices > 1) growing_print(&g, "tally launch -n %" PRId64 " train", row->devices);
    else growing_text(&g, is_train ? "tally train" : "tally plan");
    const struct setting_row *at;
    for (int i = 0; (at = settings_row(i)); i++) {
        const json_t *value = json_object_get(values, at->name);
        const bool is_device = !strcmp(at->name, "device");
        if (is_device && is_train) growing_text(&g, f->target.chip ? " --device cuda" : " --device cpu");
        else if (!is_train && !plan_reads(at->name)) continue;
        else if (is_device || is_written(&f->settings, at->name, value, json_object_get(defaults, at->name)))
            flag_put(&g, at->name, value);
    }
    if (!is_train) options_put(&g, f, row->devices);
    free(text), free(none);
    json_decref(values), json_decref(defaults);
    return g.at;
}

/* ---- As figures ---- */

static const char *choice_text(const struct plan_flags *f, const struct best_row *row, const char *name) {
    static struct settings s;
    s = f->settings;
    s.recipe = row->recipe, s.checkpointing = row->checkpointing;
    return settings_choice(&s, name);
}

static void row_put(struct sheet *s, const struct plan_flags *f, const struct best_row *row, const char *name) {
    const struct layout *l = &row->layout;
    const double tokens = (double)row->batch * (double)row->accum * (double)f->settings.seq;
    const double hours = (double)row->devices * row->step_s / HOUR_S / tokens * 1e9;
    char text[64];
    sheet_row(s, SHEET_BRIEF, name, NULL);
    sheet_text(s, choice_text(f, row, "recipe"));
    sheet_text(s, choice_text(f, row, "checkpointing"));
    snprintf(text, sizeof text, "%" PRId64 " x %" PRId64, row->batch, row->accum);
    sheet_text(s, text);
    snprintf(text, sizeof text, "%" PRId64, row->devices);
    if (row->devices > 1)
        snprintf(text, sizeof text, "%" PRId64 ": tp %" PRId64 " cp %" PRId64 " pp %" PRId64 " dp %" PRId64 " %s",
                 row->devices, l->tp, l->cp, l->pp, l->dp, shard_names[l->shard]);
    sheet_text(s, text);
    sheet_whole(s, SHEET_BYTES, row->bytes);
    sheet_real(s, SHEET_SECONDS, row->step_s);
    sheet_real(s, SHEET_AMOUNT, row->step_s > 0 ? tokens / row->step_s : 0);
    if (f->options.price_per_hour > 0) sheet_real(s, SHEET_DOLLARS, hours * f->options.price_per_hour);
    else sheet_real(s, SHEET_AMOUNT, hours);
}

static void commands_put(struct sheet *s, const struct plan_flags *f, const struct best *b) {
    sheet_section(s, "commands", "to run them", SHEET_BRIEF, "command");
    for (int i = 0; i < 3; i++) {
        bool is_same = false;
        for (int k = 0; k < i; k++) is_same |= winner_of(b, k) == winner_of(b, i);
        if (is_same) continue;
        char *command = command_of(f, &b->rows[winner_of(b, i)], true);
        sheet_line(s, SHEET_BRIEF, "%s: %s", winners[i], command ? command : "");
        memory_free(command);
    }
}

static void sheet_fill(struct sheet *s, const struct plan_flags *f, const struct best *b) {
    const bool has_price = f->options.price_per_hour > 0;
    char columns[160], name[16];
    snprintf(columns, sizeof columns, "recipe checkpointing batch_x_accum devices on_each a_step tokens/s %s",
             has_price ? "$/1B_tokens" : "device-hours/1B");
    sheet_section(s, "best", "best plans that fit", SHEET_BRIEF, columns);
    for (int i = 0; i < 3; i++) row_put(s, f, &b->rows[winner_of(b, i)], winners[i]);
    commands_put(s, f, b);
    sheet_section(s, "pareto", "Pareto front", SHEET_BRIEF, columns);
    for (int i = 0; i < b->n; i++) {
        snprintf(name, sizeof name, "%d", i + 1);
        row_put(s, f, &b->rows[i], name);
    }
    sheet_line(s, SHEET_BRIEF, "%d plans tried; each keeps the step of %" PRId64 " x %" PRId64 " tokens; times are %s",
               b->n_tried, f->settings.batch * f->settings.accum, f->settings.seq,
               f->target.speed.profile ? "predicted from this machine's measurements"
                                       : "expected by the data sheet and what published runs reach");
}

/* ---- As JSON ---- */

static json_t *row_json(const struct plan_flags *f, const struct best_row *r) {
    char bytes[40];
    const struct layout *l = &r->layout;
    char *plan = command_of(f, r, false), *train = command_of(f, r, true), recipe[32];
    text_copy(recipe, sizeof recipe, choice_text(f, r, "recipe"));
    json_t *json = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:s, s:f, s:s?, s:s?}", "recipe", recipe,
        "checkpointing", choice_text(f, r, "checkpointing"), "batch", (json_int_t)r->batch, "accum",
        (json_int_t)r->accum, "devices", (json_int_t)r->devices, "tp", (json_int_t)l->tp, "cp", (json_int_t)l->cp, "pp",
        (json_int_t)l->pp, "dp", (json_int_t)l->dp, "sp", (int)l->sp, "shard", shard_names[l->shard], "device_bytes",
        tl_count_text(count_public(r->bytes), bytes), "step_s", r->step_s, "plan", plan, "train", train);
    memory_free(plan), memory_free(train);
    return json;
}

static json_t *best_json(const struct plan_flags *f, const struct best *b) {
    json_t *rows = json_array();
    for (int i = 0; i < b->n; i++) json_array_append_new(rows, row_json(f, &b->rows[i]));
    json_t *json = json_pack("{s:s, s:s, s:s, s:I, s:o}", "schema", "tally.best/1", "model", f->settings.model,
                             "device", f->target.name, "tried", (json_int_t)b->n_tried, "pareto", rows);
    for (int i = 0; json && i < 3; i++)
        json_object_set_new(json, winners[i], b->n ? row_json(f, &b->rows[winner_of(b, i)]) : json_null());
    return json;
}

int best_run(const struct plan_flags *f) {
    struct best best;
    struct sheet sheet = {0};
    const struct best_freedom freedom = {.recipe = !settings_is_given(&f->settings, "recipe"),
                                         .checkpointing = !settings_is_given(&f->settings, "checkpointing"),
                                         .tell = plan_progress_best()};
    const bool ok = best_find(&best, &f->settings, &f->target, &f->options, &freedom);
    plan_progress_end();
    int code = ok ? 0 : cli_error();
    if (!code && f->is_json) code = cli_json(best_json(f, &best));
    else if (!code && best.n) {
        sheet_fill(&sheet, f, &best);
        if (sheet.is_broken) code = cli_error();
        else if (f->is_csv) sheet_csv(&sheet);
        else if (f->is_markdown) sheet_markdown(&sheet, true);
        else sheet_print(&sheet, true);
    } else if (!code)
        printf("nothing fits: %d plans tried (fewer sequences in a step, a smaller model, or more --devices)\n",
               best.n_tried);
    if (!code && !best.n) code = EXIT_NO_FIT;
    sheet_free(&sheet);
    best_free(&best);
    return code;
}

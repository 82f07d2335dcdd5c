/* cmd_runs.c: `tally runs` and `tally compare`: what runs have come to, from the files in their folders. */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <time.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "train/past.h"

const char help_runs[] =
    "usage: tally runs [FOLDER ...] [--json]\n"
    "\n"
    "Lists training runs: their state, steps, loss, held-out loss and speed. FOLDER is a run, or a folder with runs "
    "in\n"
    "it (default: runs). Nothing is opened but logs and settings, and nothing is changed; a run may be training.\n"
    "\n"
    "  running      a process is training in this folder\n"
    "  finished     every step is done\n"
    "  stopped      it can be resumed: run its command again\n"
    "  not started  it has no step yet\n"
    "\n"
    "  --json       one object per line\n"
    "\n"
    "examples:\n"
    "  tally runs\n"
    "  tally runs runs/first /data/experiments\n";

const char help_compare[] =
    "usage: tally compare RUN RUN ... [--json]\n"
    "\n"
    "Compares runs: the settings in which they differ, with the values of each, and their results side by side: "
    "steps,\n"
    "tokens, loss, held-out loss, speed. The last line is the mean loss of the 10 steps up to the last step that all "
    "of\n"
    "them have done, since runs of different length are at different points of their schedules.\n"
    "\n"
    "  --json       one object on stdout\n"
    "\n"
    "examples:\n"
    "  tally compare runs/first runs/second\n";

struct entry {
    char *path;
    struct past past;
};
struct entries {
    struct entry **at;
    size_t n, capacity;
};

static void entries_free(struct entries *all) {
    for (size_t i = 0; i < all->n; i++) {
        memory_free(all->at[i]->path);
        memory_free(all->at[i]);
    }
    memory_free(all->at);
}

/* Takes over the path. False: recorded. */
static bool entry_add(struct entries *all, char *path, const struct file_folder *folder) {
    struct entry *e = path ? memory_new(sizeof *e) : NULL;
    bool ok = e && memory_grow((void **)&all->at, &all->capacity, all->n, sizeof *all->at);
    if (!ok) return memory_free(e), memory_free(path), error_memory(sizeof *e, "a list of runs");
    all->at[all->n++] = e;
    e->path = path;
    return past_read(&e->past, folder);
}

struct visit {
    struct entries *all;
    const char *path;
    const struct file_folder *folder;
};

static bool visit(const char *name, void *context) {
    struct visit *v = context;
    enum file_kind kind;
    if (!file_look(file_in(v->folder, name), &kind)) return false;
    struct file_folder *inner = kind == FILE_FOLDER ? file_folder_in(v->folder, name, false) : NULL;
    if (kind == FILE_FOLDER && !inner) return tl_error_clear(), true; /* one that may not be read */
    bool ok = !inner || !past_is_run(inner) || entry_add(v->all, file_join(v->path, name), inner);
    file_folder_close(inner);
    if (!ok && tl_error() != TL_ERROR_MEMORY) { /* a damaged one does not hide the others */
        fprintf(stderr, "tally runs: %s/%s: %s\n", v->path, name, tl_error_message());
        tl_error_clear();
        return memory_free(v->all->at[--v->all->n]->path), memory_free(v->all->at[v->all->n]), true;
    }
    return ok;
}

static char *path_copy(const char *path) {
    size_t n = strlen(path);
    char *copy = memory_new(n + 1);
    if (copy) memcpy(copy, path, n + 1);
    while (copy && n > 1 && copy[n - 1] == '/') copy[--n] = 0;
    return copy;
}

#define RUNS "runs" /* where runs are, unless --out says otherwise */

/* A run, or all runs in a folder. 0, or the exit code. */
static int runs_find(struct entries *all, const char *command, const char *path, bool must_be_one) {
    size_t before = all->n;
    struct file_folder *folder = file_folder_open(path);
    bool ok = folder != NULL;
    if (ok && past_is_run(folder)) ok = entry_add(all, path_copy(path), folder);
    else if (ok && !must_be_one) {
        char *plain = path_copy(path);
        ok = plain && file_list(folder, visit, &(struct visit){all, plain, folder});
        memory_free(plain);
    } else if (ok) {
        fprintf(stderr, "tally %s: %s is not the folder of a run (`tally runs` lists those in runs/)\n", command, path);
        file_folder_close(folder);
        return EXIT_INPUT;
    }
    file_folder_close(folder);
    bool is_first_contact = !folder && !strcmp(path, RUNS) && access(path, F_OK) != 0;
    if (is_first_contact) tl_error_clear();
    else if (!ok) return cli_error_of(command);
    if (all->n == before)
        fprintf(stderr, "tally %s: there are no runs in %s (`tally train` makes one)\n", command, path);
    return 0;
}

static json_t *known(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *entry_json(const struct entry *e) {
    const struct past_log *l = &e->past.log;
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "run", e->path, "state",
                     past_state_text(e->past.state), "model", e->past.settings.model, "step", (json_int_t)l->step,
                     "steps", (json_int_t)e->past.settings.steps, "tokens", (json_int_t)l->tokens, "loss",
                     known(l->loss), "held_out", known(l->held_out), "bits_per_byte", known(l->bits_per_byte),
                     "tokens_per_s", known(l->tokens_per_s), "step_s", known(l->step_s));
}

/* A number, or "-". */
static const char *number_text(double value, const char *format, char text[32]) {
    if (isfinite(value)) snprintf(text, 32, format, value);
    else snprintf(text, 32, "-");
    return text;
}

static const char *ago_text(int64_t changed_ns, char text[32]) {
    double s = difftime(time(NULL), 0) - (double)changed_ns * 1e-9;
    if (!changed_ns) return snprintf(text, 32, "-"), text;
    if (s < 120) snprintf(text, 32, "%.0f s ago", fmax(s, 0));
    else if (s < 7200) snprintf(text, 32, "%.0f min ago", s / 60);
    else if (s < 172800) snprintf(text, 32, "%.0f h ago", s / 3600);
    else snprintf(text, 32, "%.0f days ago", s / 86400);
    return text;
}

static void entry_print(const struct entry *e, int width) {
    const struct past_log *l = &e->past.log;
    char steps[64], a[32], b[32], c[32], d[32];
    snprintf(steps, sizeof steps, "%" PRId64 "/%" PRId64, l->step, e->past.settings.steps);
    printf("%-*s  %-11s %13s %8s %8s %9s  %s\n", width, e->path, past_state_text(e->past.state), steps,
           number_text(l->loss, "%.4f", a), number_text(l->held_out, "%.4f", b),
           number_text(l->tokens_per_s, "%.0f", c), ago_text(e->past.changed_ns, d));
}

static int by_path(const void *a, const void *b) {
    return strcmp((*(struct entry *const *)a)->path, (*(struct entry *const *)b)->path);
}

int cmd_runs(int argc, char **argv) {
    bool is_json = false;
    const char *paths[64] = {NULL};
    const struct option table[] = {{"--json", OPTION_FLAG, &is_json, 0, 0, false}, {0}};
    struct entries all = {0};
    int code = options_read("runs", table, argc, argv, paths, 64), width = 3;
    if (!code && !paths[0]) paths[0] = RUNS;
    for (int i = 0; !code && i < 64 && paths[i]; i++) code = runs_find(&all, "runs", paths[i], false);
    if (!code && all.n) qsort(all.at, all.n, sizeof *all.at, by_path);
    for (size_t i = 0; i < all.n; i++)
        width = strlen(all.at[i]->path) > (size_t)width ? (int)strlen(all.at[i]->path) : width;
    if (!code && all.n && !is_json)
        printf("%-*s  %-11s %13s %8s %8s %9s  %s\n", width, "run", "state", "steps", "loss", "held out", "tokens/s",
               "last step");
    for (size_t i = 0; !code && i < all.n; i++) {
        if (!is_json) {
            entry_print(all.at[i], width);
            continue;
        }
        json_t *json = entry_json(all.at[i]);
        char *text = json ? json_print(json, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17)) : NULL;
        json_decref(json);
        if (text) puts(text);
        else code = cli_error_of("runs");
        free(text);
    }
    entries_free(&all);
    return code;
}

/* ---- Comparing ---- */

/* The settings of each, as JSON. */
static json_t *settings_of(const struct entry *e) {
    char *text = settings_json(&e->past.settings);
    json_t *json = text ? json_parse(text, NULL) : NULL;
    free(text);
    return json;
}

static const char *value_text(const json_t *value, char text[64]) {
    char *printed = json_print(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    snprintf(text, 64, "%s", printed ? printed : "?");
    free(printed);
    return text;
}

static bool differs(json_t *const *settings, size_t n, const char *name) {
    for (size_t i = 1; i < n; i++)
        if (!json_equal(json_object_get(settings[0], name), json_object_get(settings[i], name))) return true;
    return false;
}

/* A row of the table: a name, and a value of each run. */
enum { NAME_WIDTH = 16, VALUE_WIDTH = 20 };
static void row_begin(const char *name) { printf("%-*s", NAME_WIDTH, name); }
static void row_value(const char *text) { printf(" %*.*s", VALUE_WIDTH, VALUE_WIDTH, text); }

static void settings_print(json_t *const *settings, size_t n, json_t *into) {
    const char *name;
    json_t *value;
    char text[64];
    json_object_foreach(settings[0], name, value) {
        if (!differs(settings, n, name) || !strcmp(name, "out")) continue;
        json_t *list = json_array();
        if (!into) row_begin(name);
        for (size_t i = 0; i < n; i++) {
            json_array_append(list, json_object_get(settings[i], name));
            if (!into) row_value(value_text(json_object_get(settings[i], name), text));
        }
        if (into) json_object_set(into, name, list);
        else printf("\n");
        json_decref(list);
    }
}

static int64_t common_step(const struct entries *all) {
    int64_t step = INT64_MAX;
    for (size_t i = 0; i < all->n; i++)
        if (all->at[i]->past.log.step < step) step = all->at[i]->past.log.step;
    return step;
}

/* The loss of each at the last step that all have. 0, or the exit code. */
static int losses_find(const struct entries *all, int64_t step, double *losses) {
    for (size_t i = 0; i < all->n; i++) {
        struct file_folder *folder = file_folder_open(all->at[i]->path);
        bool ok = folder && past_loss_at(folder, step, 10, &losses[i]);
        file_folder_close(folder);
        if (!ok) return cli_error_of("compare");
    }
    return 0;
}

static void results_print(const struct entries *all, int64_t step, const double *losses) {
    static const struct {
        const char *name, *format;
        size_t offset;
    } rows[] = {{"loss", "%.4f", offsetof(struct past_log, loss)},
                {"held-out loss", "%.4f", offsetof(struct past_log, held_out)},
                {"bits per byte", "%.4f", offsetof(struct past_log, bits_per_byte)},
                {"tokens/s", "%.0f", offsetof(struct past_log, tokens_per_s)},
                {"seconds a step", "%.4g", offsetof(struct past_log, step_s)}};
    char text[64], name[64];
    row_begin("steps");
    for (size_t i = 0; i < all->n; i++) {
        const struct past *p = &all->at[i]->past;
        snprintf(text, sizeof text, "%" PRId64 "/%" PRId64, p->log.step, p->settings.steps);
        row_value(text);
    }
    printf("\n");
    row_begin("tokens");
    for (size_t i = 0; i < all->n; i++) row_value(grouped_text((uint64_t)all->at[i]->past.log.tokens, text));
    printf("\n");
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        row_begin(rows[k].name);
        for (size_t i = 0; i < all->n; i++)
            row_value(number_text(*(const double *)((const char *)&all->at[i]->past.log + rows[k].offset),
                                  rows[k].format, text));
        printf("\n");
    }
    snprintf(name, sizeof name, "at step %" PRId64, step);
    row_begin(name);
    for (size_t i = 0; i < all->n; i++) row_value(number_text(losses[i], "%.4f", text));
    printf("\n");
}

static int compare_json(const struct entries *all, json_t *const *settings, int64_t step, const double *losses) {
    json_t *runs = json_array(), *changed = json_object(), *at = json_array();
    settings_print(settings, all->n, changed);
    for (size_t i = 0; i < all->n; i++) {
        json_array_append_new(runs, entry_json(all->at[i]));
        json_array_append_new(at, known(losses[i]));
    }
    return cli_json(json_pack("{s:s, s:o, s:o, s:{s:I, s:o}}", "schema", "tally.comparison/1", "runs", runs, "settings",
                              changed, "common", "step", (json_int_t)step, "loss", at));
}

static int compare(const struct entries *all, bool is_json) {
    json_t *settings[16] = {NULL};
    double losses[16];
    int64_t step = common_step(all);
    int code = losses_find(all, step, losses);
    for (size_t i = 0; !code && i < all->n; i++)
        if (!(settings[i] = settings_of(all->at[i]))) code = cli_error_of("compare");
    if (!code && is_json) code = compare_json(all, settings, step, losses);
    else if (!code) {
        row_begin("run");
        for (size_t i = 0; i < all->n; i++) {
            size_t n = strlen(all->at[i]->path); /* the end of a path says more than its beginning */
            row_value(all->at[i]->path + (n > VALUE_WIDTH ? n - VALUE_WIDTH : 0));
        }
        printf("\n\n");
        settings_print(settings, all->n, NULL);
        printf("\n");
        results_print(all, step, losses);
    }
    for (size_t i = 0; i < all->n; i++) json_decref(settings[i]);
    return code;
}

int cmd_compare(int argc, char **argv) {
    bool is_json = false;
    const char *paths[16] = {NULL};
    const struct option table[] = {{"--json", OPTION_FLAG, &is_json, 0, 0, false}, {0}};
    struct entries all = {0};
    int code = options_read("compare", table, argc, argv, paths, 16);
    if (!code && !paths[1]) {
        fprintf(stderr,
                "tally compare: give at least two runs: `tally compare runs/a runs/b` (`tally runs` lists them)\n");
        code = EXIT_USAGE;
    }
    for (int i = 0; !code && i < 16 && paths[i]; i++) code = runs_find(&all, "compare", paths[i], true);
    if (!code) code = compare(&all, is_json);
    entries_free(&all);
    return code;
}

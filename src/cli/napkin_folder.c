/* napkin_folder.c: runs of `tally train`, as points of a scaling law. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "cli/napkin_form.h"
#include "train/past.h"
#include "train/run_parts.h"

struct gathering {
    const char *path;
    const struct file_folder *folder;
    enum runs_kind kind;
    struct napkin_run *runs;
    int n, n_passed; /* passed over: not finished, or without a held-out loss */
};

static bool run_add(struct gathering *g, double first, double second, double loss) {
    if (g->n == MOST_RUNS) return error_set(TL_ERROR_USE, "%s: more than %d runs", g->path, MOST_RUNS);
    g->runs[g->n++] = (struct napkin_run){first, second, loss};
    return true;
}

/* Every evaluation of a log. */
static bool curve_add(struct gathering *g, const struct file_folder *run, const struct past *p, double parameters) {
    const size_t most_bytes = (size_t)1 << 28;
    const double each = (double)p->settings.batch * (double)p->settings.seq; /* tokens of a micro-batch */
    size_t bytes;
    char *text = file_get_at(file_in(run, LOG_LINES), most_bytes, &bytes);
    bool ok = text != NULL;
    for (char *at = text, *end; ok && (end = strchr(at, '\n')); at = end + 1) {
        *end = 0;
        json_t *line = strstr(at, "\"held_out\"") ? json_parse(at, NULL) : NULL;
        const double loss = json_number_value(json_object_get(line, "held_out"));
        const int64_t step = json_integer_value(json_object_get(line, "step"));
        json_decref(line);
        if (loss > 0 && step > 0) ok = run_add(g, parameters, (double)ramp_batches(&p->settings, step) * each, loss);
    }
    memory_free(text);
    return ok;
}

/* The model that a run has written at its end. */
static bool model_read(const char *path, tl_model_config *c) {
    char *final = file_join(path, RUN_FINAL), *config = final ? file_join(final, RUN_CONFIG) : NULL;
    const bool ok = config && tl_model_config_read(config, c);
    memory_free(config);
    memory_free(final);
    return ok;
}

static bool gather_run(struct gathering *g, const char *path, const struct file_folder *run) {
    struct past *p = memory_new(sizeof *p);
    tl_model_config c;
    if (!p) return error_memory(sizeof *p, "a run");
    bool ok = past_read(p, run);
    if (ok && (p->state != PAST_FINISHED || !isfinite(p->log.held_out))) g->n_passed++;
    else if (ok && (ok = model_read(path, &c))) {
        const double parameters = napkin_model_of(&c).active;
        if (g->kind == RUNS_CURVES) ok = curve_add(g, run, p, parameters);
        else if (g->kind == RUNS_RATES) ok = run_add(g, (double)c.channels, p->settings.lr, p->log.held_out);
        else ok = run_add(g, parameters, (double)p->log.tokens, p->log.held_out);
    }
    memory_free(p);
    return ok;
}

static bool visit(const char *name, void *context) {
    struct gathering *g = context;
    enum file_kind kind;
    if (!file_look(file_in(g->folder, name), &kind)) return false;
    struct file_folder *inner = kind == FILE_FOLDER ? file_folder_in(g->folder, name, false) : NULL;
    if (kind == FILE_FOLDER && !inner) return tl_error_clear(), true; /* one that may not be read */
    bool ok = true;
    if (inner && past_is_run(inner)) {
        char *path = file_join(g->path, name);
        ok = path && gather_run(g, path, inner);
        memory_free(path);
    }
    file_folder_close(inner);
    return ok;
}

bool runs_of_folder(const char *path, enum runs_kind kind, struct napkin_run *runs, int *n_runs) {
    struct gathering g = {.path = path, .kind = kind, .runs = runs};
    struct file_folder *folder = file_folder_open(path);
    if (!folder) return false;
    g.folder = folder;
    bool ok = past_is_run(folder) ? gather_run(&g, path, folder) : file_list(folder, visit, &g);
    file_folder_close(folder);
    if (ok && !g.n)
        ok = error_set(TL_ERROR_USE,
                       "%s has no finished run with a held-out loss (%d are not finished: `tally runs %s`)", path,
                       g.n_passed, path);
    *n_runs = g.n;
    return ok;
}

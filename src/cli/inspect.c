#include "cli/inspect.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "file/gguf.h"
#include "nn/model_gguf.h"
#include "nn/model.h"
#include "tensor/convert.h"
#include "train/checkpoint.h"
#include "train/open.h"

/* ---- Files ---- */

static void files_close(struct inspected *all) {
    for (size_t i = 0; i < all->n_files; i++) {
        tl_safetensors_close(all->files[i].safetensors);
        tl_gguf_close(all->files[i].gguf);
        memory_free(all->files[i].path);
    }
}

void inspected_close(struct inspected *all) {
    files_close(all);
    memory_free(all->files);
    memory_free(all->rows);
    *all = (struct inspected){0};
}

static bool file_add(struct inspected *all, const char *path) {
    if (!memory_grow((void **)&all->files, &all->file_capacity, all->n_files, sizeof *all->files))
        return error_memory(sizeof *all->files, "a file");
    struct inspect_file f = {.path = memory_new(strlen(path) + 1)};
    if (!f.path) return error_memory(strlen(path), "the path of a file");
    strcpy(f.path, path);
    f.name = strrchr(f.path, '/') ? strrchr(f.path, '/') + 1 : f.path;
    if (gguf_is_one(path)) f.gguf = tl_gguf_open(path);
    else f.safetensors = tl_safetensors_open(path);
    if (f.gguf || f.safetensors) return all->files[all->n_files++] = f, true;
    memory_free(f.path);
    return false;
}

static bool file_see(const char *path, const char *name, void *context) {
    (void)name;
    return file_add(context, path);
}

static bool file_in_folder(struct inspected *all, const char *folder, const char *name) {
    char *path = file_join(folder, name);
    bool ok = path && file_add(all, path);
    memory_free(path);
    return ok;
}

/* ---- Rows ---- */

static bool row_add(struct inspected *all, struct inspect_row row) {
    if (!memory_grow((void **)&all->rows, &all->row_capacity, all->n_rows, sizeof *all->rows))
        return error_memory(all->n_rows * sizeof *all->rows, "the names of tensors");
    row.elements = 1;
    for (int i = 0; i < row.rank; i++) row.elements *= (uint64_t)row.shape[i];
    all->rows[all->n_rows++] = row;
    return true;
}

static bool rows_add(struct inspected *all, const struct inspect_file *f) {
    tl_safetensors_info s;
    tl_gguf_info g;
    bool ok = true;
    for (int i = 0; ok && tl_safetensors_info_at(f->safetensors, i, &s); i++)
        ok = row_add(all, (struct inspect_row){f, s.name, s.type, s.dtype, s.rank, s.shape, s.begin, s.bytes, 0});
    for (int i = 0; ok && tl_gguf_info_at(f->gguf, i, &g); i++)
        ok = row_add(all, (struct inspect_row){f, g.name, g.type, g.dtype, g.rank, g.shape, g.begin, g.bytes, 0});
    return ok;
}

/* ---- Folders ---- */

static bool checkpoint_files(struct inspected *all, const char *run) {
    char folder[SETTING_TEXT + 64];
    snprintf(folder, sizeof folder, "%s/checkpoints/step-%012" PRId64, run, all->step);
    return file_in_folder(all, folder, "model.safetensors") && file_in_folder(all, folder, "optimizer.safetensors");
}

/* The newest checkpoint, or the one of a step; opening it compares every checksum. */
static bool run_read(struct inspected *all, const char *run, int64_t step) {
    struct checkpoints list = {0};
    struct file_folder *folder = file_folder_open(run);
    bool ok = folder && checkpoints_open(&list, folder, false);
    struct checkpoint *c = !ok ? NULL : step < 0 ? checkpoint_open_newest(&list, false) : checkpoint_open(&list, step);
    if (ok && !c && tl_error() == TL_OK) error_set(TL_ERROR_USE, "%s: has no whole checkpoint", run);
    if (c) all->step = checkpoint_step(c);
    ok = c && checkpoint_files(all, run);
    checkpoint_close(c);
    checkpoints_close(&list);
    file_folder_close(folder);
    return ok;
}

/* The config is for the summary only: a model that is not known can be listed too. */
static void config_look(struct inspected *all, const char *folder) {
    char *path = file_join(folder, "config.json");
    struct stat status;
    if (path && stat(path, &status) == 0) all->has_config = tl_model_config_read(path, &all->config);
    if (!all->has_config) tl_error_clear();
    memory_free(path);
}

static bool folder_read(struct inspected *all, const char *path) {
    char run[SETTING_TEXT];
    int64_t step = STEP_NEWEST;
    if (run_split(path, run, &step)) {
        all->kind = "checkpoint";
        return run_read(all, run, step);
    }
    if (tl_error() != TL_OK) return false;
    all->kind = "model";
    config_look(all, path);
    return tl_error() == TL_OK && model_files(path, file_see, all);
}

bool inspected_open(struct inspected *all, const char *path) {
    struct stat status;
    *all = (struct inspected){.kind = "safetensors", .step = -1};
    bool ok = stat(path, &status) == 0 && S_ISDIR(status.st_mode) ? folder_read(all, path) : file_add(all, path);
    if (ok && all->files[0].gguf) {
        all->kind = "gguf";
        all->has_config = model_gguf_config(all->files[0].gguf, path, &all->config);
        if (!all->has_config) tl_error_clear();
    }
    for (size_t i = 0; ok && i < all->n_files; i++) ok = rows_add(all, &all->files[i]);
    if (!ok) inspected_close(all);
    return ok;
}

/* ---- The data ---- */

static void values_check(const tl_tensor *x, struct inspect_check *c) {
    enum { CHUNK = 1024 };
    double values[CHUNK], sum = 0;
    uint64_t n_finite = 0;
    const char *data = tl_data(x);
    int64_t n = tl_numel(x), bits = tl_dtype_bits(tl_dtype_of(x));
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = n - i < CHUNK ? n - i : CHUNK;
        convert_to_f64(values, data + i * bits / 8, tl_dtype_of(x), 1, m);
        for (int64_t k = 0; k < m; k++) {
            double v = values[k];
            if (isnan(v)) c->n_nan++;
            else if (isinf(v)) c->n_infinite++;
            else {
                if (!n_finite || v < c->least) c->least = v;
                if (!n_finite || v > c->most) c->most = v;
                sum += fabs(v);
                n_finite++;
            }
        }
    }
    c->mean_magnitude = n_finite ? sum / (double)n_finite : 0;
}

bool inspect_check(const struct inspect_row *row, struct inspect_check *check) {
    *check = (struct inspect_check){0};
    if (row->dtype == TL_DTYPE_COUNT) return true;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    const struct inspect_file *f = row->file;
    tl_tensor *x = f->gguf ? tl_gguf_get(f->gguf, row->name) : tl_safetensors_get(f->safetensors, row->name);
    if (x && tl_is_complex(x)) x = tl_view_as_real(x);
    check->is_read = x != NULL;
    if (x && tl_numel(x)) values_check(x, check);
    bool is_only_listed = !x && tl_error() == TL_ERROR_USE; /* two elements share a byte */
    if (is_only_listed) tl_error_clear();
    return tl_scope_end(scope) && (x || is_only_listed);
}

/* ---- Totals ---- */

void inspect_totals_free(struct inspect_totals *totals) {
    for (size_t i = 0; i < totals->n; i++) memory_free(totals->at[i].key);
    memory_free(totals->at);
    *totals = (struct inspect_totals){0};
}

static bool total_add(struct inspect_totals *t, const char *key, size_t length, const struct inspect_row *row) {
    char *copy = memory_new(length + 1);
    if (!copy || !memory_grow((void **)&t->at, &t->capacity, t->n, sizeof *t->at)) {
        memory_free(copy);
        return error_memory(length + sizeof *t->at, "totals");
    }
    memcpy(copy, key, length);
    copy[length] = 0;
    t->at[t->n++] = (struct inspect_total){copy, 1, row->elements, row->bytes};
    return true;
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const struct inspect_total *)a)->key, ((const struct inspect_total *)b)->key);
}

static void totals_merge(struct inspect_totals *t) {
    size_t n = 0;
    if (t->n) qsort(t->at, t->n, sizeof *t->at, by_key);
    for (size_t i = 0; i < t->n; i++) {
        struct inspect_total *last = n ? &t->at[n - 1] : NULL, *next = &t->at[i];
        if (!last || strcmp(last->key, next->key)) {
            t->at[n++] = *next;
            continue;
        }
        last->tensors += next->tensors;
        last->elements += next->elements;
        last->bytes += next->bytes;
        memory_free(next->key);
    }
    t->n = n;
}

bool inspect_by_type(const struct inspected *all, struct inspect_totals *totals) {
    bool ok = true;
    *totals = (struct inspect_totals){0};
    for (size_t i = 0; ok && i < all->n_rows; i++)
        ok = total_add(totals, all->rows[i].type, strlen(all->rows[i].type), &all->rows[i]);
    totals_merge(totals);
    return ok;
}

/* "model.layers.3.mlp.up_proj.weight" is in model, model.layers, model.layers.*, ... Names come from outside: at most
 * so many levels of at most so many bytes. */
enum { MOST_LEVELS = 8, MOST_KEY = 200 };

static bool modules_add(struct inspect_totals *totals, const struct inspect_row *row) {
    char key[MOST_KEY];
    size_t used = 0;
    const char *at = row->name, *dot;
    for (int level = 0; level < MOST_LEVELS && (dot = strchr(at, '.')); level++, at = dot + 1) {
        size_t length = (size_t)(dot - at);
        bool is_number = length > 0 && strspn(at, "0123456789") == length;
        if (used + length + 2 > MOST_KEY) return true;
        if (used) key[used++] = '.';
        memcpy(key + used, is_number ? "*" : at, is_number ? 1 : length);
        used += is_number ? 1 : length;
        if (!total_add(totals, key, used, row)) return false;
    }
    return true;
}

bool inspect_by_module(const struct inspected *all, struct inspect_totals *totals) {
    bool ok = true;
    *totals = (struct inspect_totals){0};
    for (size_t i = 0; ok && i < all->n_rows; i++) ok = modules_add(totals, &all->rows[i]);
    totals_merge(totals);
    return ok;
}

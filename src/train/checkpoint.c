#include "train/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "file/safetensors.h"
#include "nn/model_parallel.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"
#include "train/manifest.h"

#define LARGEST_STATE JSON_MOST_LEDGER /* it holds the ledgers so far */
#define SCHEMA "tally.checkpoint/1"
#define STEP_NAME "step-%012" PRId64
static const char STATE[] = "state.json", MANIFEST[] = "manifest.json", TENSORS[] = ".safetensors";

enum { NAME_BYTES = 64 };

struct checkpoint {
    struct file_folder *folder; /* of this step */
    char *state;
    int64_t step;
};

static const char *step_name(int64_t step, char name[NAME_BYTES]) {
    snprintf(name, NAME_BYTES, STEP_NAME, step);
    return name;
}

/* The step in the name of a folder that a save has made; -1: it is not such a name. */
static int64_t step_of(const char *name) {
    int64_t step;
    char own[NAME_BYTES];
    if (sscanf(name, "step-%" SCNd64, &step) != 1 || step < 0) return -1;
    return strcmp(step_name(step, own), name) ? -1 : step;
}

/* ---- The folder of all ---- */

bool checkpoints_open(struct checkpoints *all, const struct file_folder *run, bool make) {
    static const char name[] = "checkpoints";
    enum file_kind kind;
    *all = (struct checkpoints){0};
    if (!file_look(file_in(run, name), &kind)) return false;
    if (kind == FILE_ABSENT && !make) return true;
    all->folder = file_folder_in(run, name, make);
    return all->folder != NULL;
}

void checkpoints_close(struct checkpoints *all) {
    file_folder_close(all->folder);
    memory_free(all->verified);
    *all = (struct checkpoints){0};
}

static bool is_verified(const struct checkpoints *all, int64_t step) {
    for (size_t i = 0; i < all->n_verified; i++)
        if (all->verified[i] == step) return true;
    return false;
}

/* If there is no memory to remember it, the step is verified again. */
static void verified_set(struct checkpoints *all, int64_t step, bool value) {
    size_t n = 0;
    for (size_t i = 0; i < all->n_verified; i++)
        if (all->verified[i] != step) all->verified[n++] = all->verified[i];
    all->n_verified = n;
    if (value && memory_grow((void **)&all->verified, &all->capacity, n, sizeof *all->verified))
        all->verified[all->n_verified++] = step;
}

/* ---- The manifest ---- */

static bool entry_add(const struct file_folder *own, json_t *files, const char *name) {
    json_t *entry = manifest_entry(own, name);
    return entry && (json_array_append_new(files, entry) == 0 || error_memory(64, "a manifest"));
}

/* `files`: the entries of all but the state. */
static bool manifest_write(const struct file_folder *own, int64_t step, json_t *files) {
    bool ok = entry_add(own, files, STATE);
    json_t *body = ok ? json_pack("{s:s, s:I, s:I, s:O}", "schema", SCHEMA, "step", (json_int_t)step, "block_bytes",
                                  (json_int_t)MANIFEST_BLOCK, "files", files)
                      : NULL;
    if (ok && !body) error_memory(64, "a manifest");
    ok = body && manifest_put(file_in(own, MANIFEST), body);
    json_decref(body);
    return ok;
}

static bool body_check(const json_t *body, const char *path, int64_t step) {
    const json_t *number = json_object_get(body, "step"), *block = json_object_get(body, "block_bytes");
    bool ok = json_is_integer(number) && json_integer_value(number) == step && json_is_integer(block) &&
              json_integer_value(block) == (json_int_t)MANIFEST_BLOCK && json_is_array(json_object_get(body, "files"));
    return ok || error_set(TL_ERROR_USE, "%s: is not the manifest of step %" PRId64, path, step);
}

/* Whether a step's folder agrees with its manifest: lengths, and with `deep` every byte. */
static bool own_verify(const struct file_folder *own, int64_t step, bool deep) {
    char path[FILE_TEXT];
    size_t i;
    json_t *body = manifest_get(file_in(own, MANIFEST), SCHEMA), *entry;
    bool ok = body && body_check(body, file_text(file_in(own, MANIFEST), path), step), has_state = false;
    json_array_foreach(json_object_get(body, "files"), i, entry) {
        if (ok) ok = manifest_verify(own, entry, deep, path);
        if (ok) has_state = has_state || !strcmp(json_string_value(json_object_get(entry, "name")), STATE);
    }
    if (ok && !has_state) ok = error_set(TL_ERROR_USE, "%s: does not list %s", path, STATE);
    json_decref(body);
    return ok;
}

/* The kind of a step's folder, and whether its save was finished: it has a manifest, or contents that no save makes,
 * which may be a damaged checkpoint. False on error, which is recorded. */
static bool step_look(const struct checkpoints *all, int64_t step, bool *is_finished, bool *is_folder) {
    char name[NAME_BYTES];
    enum file_kind kind;
    struct file_place at = file_in(all->folder, step_name(step, name));
    if (!file_look(at, &kind)) return false;
    *is_folder = kind == FILE_FOLDER;
    *is_finished = kind != FILE_ABSENT;
    if (!*is_folder) return true;
    struct file_folder *own = file_folder_in(all->folder, name, false);
    bool ok = own && file_look(file_in(own, MANIFEST), &kind);
    *is_finished = ok && kind != FILE_ABSENT;
    file_folder_close(own);
    return ok;
}

static bool step_verify(const struct checkpoints *all, int64_t step, bool deep) {
    char name[NAME_BYTES], path[FILE_TEXT];
    enum file_kind kind;
    struct file_place at = file_in(all->folder, step_name(step, name));
    if (!file_look(at, &kind)) return false;
    if (kind != FILE_FOLDER)
        return error_set(TL_ERROR_USE, "%s: is %s", file_text(at, path), kind == FILE_ABSENT ? "missing" : "no folder");
    struct file_folder *own = file_folder_in(all->folder, name, false);
    bool ok = own && own_verify(own, step, deep);
    file_folder_close(own);
    return ok;
}

bool checkpoint_check(const struct checkpoints *all, int64_t step) { return step_verify(all, step, false); }

/* ---- Deleting ---- */

struct removal {
    const struct file_folder *own;
    bool ok;
};

/* Removes only files that saves make. */
static bool own_file_remove(const char *name, void *context) {
    struct removal *r = context;
    size_t length = strlen(name), end = strlen(TENSORS);
    bool is_own =
        !strcmp(name, STATE) || file_is_temporary(name) || (length > end && !strcmp(name + length - end, TENSORS));
    return !is_own || file_remove(file_in(r->own, name));
}

/* Removes a step's folder: first the manifest, then the rest. A missing folder is no error. Files that no save has
 * made stay, and then so does the folder. */
static bool step_remove(struct checkpoints *all, int64_t step) {
    char name[NAME_BYTES];
    enum file_kind kind;
    if (!file_look(file_in(all->folder, step_name(step, name)), &kind)) return false;
    if (kind == FILE_ABSENT) return true;
    verified_set(all, step, false);
    struct removal r = {.own = file_folder_in(all->folder, name, false)};
    bool ok = r.own && file_remove(file_in(r.own, MANIFEST)) && file_list(r.own, own_file_remove, &r);
    file_folder_close((struct file_folder *)r.own);
    return ok && file_remove_folder(file_in(all->folder, name));
}

/* ---- Saving ---- */

static bool parts_write(const struct file_folder *own, const struct trainer_part *part) {
    const char **names = memory_new(((size_t)part->n + 1) * sizeof *names);
    tl_tensor **tensors = memory_new(((size_t)part->n + 1) * sizeof *tensors);
    bool ok = names && tensors;
    int n = 0;
    if (!ok) error_memory((size_t)part->n * sizeof *names, "a checkpoint");
    for (int i = 0; ok && i < part->n; i++)
        if (trainer_part_saves(part, i)) names[n] = part->tensors[i].name, tensors[n++] = part->tensors[i].tensor;
    ok = ok && safetensors_save_at(file_in(own, part->file), names, tensors, n, NULL, NULL, 0);
    memory_free(names);
    memory_free(tensors);
    return ok;
}

bool checkpoint_begin(struct checkpoints *all, int64_t step) {
    char name[NAME_BYTES];
    struct file_folder *own = step_remove(all, step) ? file_folder_in(all->folder, step_name(step, name), true) : NULL;
    file_folder_close(own);
    return own != NULL;
}

json_t *checkpoint_write(struct checkpoints *all, int64_t step, const struct trainer_part *parts, int n_parts) {
    char name[NAME_BYTES];
    json_t *files = json_array();
    struct file_folder *own = files ? file_folder_in(all->folder, step_name(step, name), false) : NULL;
    bool ok = own != NULL;
    if (!files) error_memory(64, "a manifest");
    for (int i = 0; ok && i < n_parts; i++) ok = parts[i].is_others || parts_write(own, &parts[i]);
    for (int i = 0; ok && i < n_parts; i++) ok = parts[i].is_others || entry_add(own, files, parts[i].file);
    file_folder_close(own);
    if (ok) return files;
    json_decref(files);
    return NULL;
}

bool checkpoint_commit(struct checkpoints *all, int64_t step, json_t *files, const char *state_json) {
    char name[NAME_BYTES];
    struct file_folder *own = file_folder_in(all->folder, step_name(step, name), false);
    bool ok = own && file_put_at(file_in(own, STATE), state_json, strlen(state_json)) &&
              file_folder_sync(all->folder) && manifest_write(own, step, files) && own_verify(own, step, false);
    file_folder_close(own);
    return ok;
}

bool checkpoint_confirm(struct checkpoints *all, int64_t step, const json_t *files) {
    char name[NAME_BYTES];
    struct file_folder *own = file_folder_in(all->folder, step_name(step, name), false);
    bool ok = own != NULL;
    size_t i;
    json_t *entry;
    json_array_foreach(files, i, entry) {
        if (ok) ok = manifest_verify(own, entry, true, name);
    }
    file_folder_close(own);
    if (ok) verified_set(all, step, true);
    return ok;
}

bool checkpoint_save(struct checkpoints *all, int64_t step, const struct trainer_part *parts, int n_parts,
                     const char *state_json) {
    json_t *files = checkpoint_begin(all, step) ? checkpoint_write(all, step, parts, n_parts) : NULL;
    bool ok = files && checkpoint_commit(all, step, files, state_json) && checkpoint_confirm(all, step, files);
    json_decref(files);
    return ok;
}

/* ---- Finding ---- */

struct steps {
    int64_t *step;
    size_t n, capacity;
    bool any_damaged; /* there is one that was set aside */
};

static int newer_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static bool step_add(const char *name, void *context) {
    struct steps *list = context;
    int64_t step = step_of(name);
    if (!strncmp(name, FILE_DAMAGED, strlen(FILE_DAMAGED))) list->any_damaged = true;
    if (step < 0) return true; /* not made by a save */
    if (!memory_grow((void **)&list->step, &list->capacity, list->n, sizeof *list->step))
        return error_memory(sizeof *list->step, "a list of checkpoints");
    list->step[list->n++] = step;
    return true;
}

/* Every "step-N" in a folder, newest first, whether it is whole or not. */
static bool steps_list(const struct checkpoints *all, struct steps *list) {
    bool ok = !all->folder || file_list(all->folder, step_add, list);
    if (list->n) qsort(list->step, list->n, sizeof *list->step, newer_first);
    return ok;
}

bool checkpoint_any(const struct checkpoints *all, bool *any) {
    struct steps list = {0};
    bool is_folder, ok = steps_list(all, &list);
    *any = list.any_damaged;
    for (size_t i = 0; ok && !*any && i < list.n; i++) ok = step_look(all, list.step[i], any, &is_folder);
    memory_free(list.step);
    return ok;
}

bool checkpoint_steps_print(const struct checkpoints *all, char *text, size_t size) {
    struct steps list = {0};
    bool ok = steps_list(all, &list);
    size_t n = 0;
    for (size_t i = 0; ok && i < list.n; i++) {
        bool is_finished = false, is_folder;
        ok = step_look(all, list.step[i], &is_finished, &is_folder);
        if (ok && is_finished && n + 32 < size)
            n += (size_t)snprintf(text + n, size - n, "%s%" PRId64, n ? ", " : "", list.step[i]);
    }
    if (!n) snprintf(text, size, "none");
    memory_free(list.step);
    return ok;
}

/* Renames a damaged checkpoint, so that it no longer counts. */
static bool step_set_aside(const struct checkpoints *all, int64_t step, const char *why) {
    char name[NAME_BYTES], aside[FILE_ASIDE], path[FILE_TEXT];
    if (!file_set_aside(all->folder, step_name(step, name), aside)) return false;
    log_line("checkpoint of step %" PRId64 " is damaged and renamed to %s: %s", step,
             file_text(file_in(all->folder, aside), path), why);
    return true;
}

/* Whether a step that was finished is still whole. A damaged step is no reason to stop. An error that says nothing
 * about its bytes (permissions, memory) is, and is recorded. */
static bool step_judge(struct checkpoints *all, int64_t step, bool set_aside, bool *is_whole) {
    char why[512], name[NAME_BYTES], path[FILE_TEXT];
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    *is_whole = (is_verified(all, step) && step_verify(all, step, false)) ||
                (tl_error() == TL_OK && step_verify(all, step, true));
    tl_set_error_policy(policy);
    if (*is_whole) return verified_set(all, step, true), true;
    tl_status status = tl_error();
    if (status == TL_ERROR_MEMORY) return false;
    snprintf(why, sizeof why, "%s", tl_error_message());
    tl_error_clear();
    file_text(file_in(all->folder, step_name(step, name)), path);
    if (status != TL_ERROR_USE)
        return error_set(status, "%s (cannot check whether this checkpoint is whole; rename %s to continue without it)",
                         why, path);
    verified_set(all, step, false);
    if (set_aside) return step_set_aside(all, step, why);
    log_line("checkpoint ignored: %s", why);
    return true;
}

int64_t checkpoint_newest(struct checkpoints *all, bool set_aside) {
    struct steps list = {0};
    int64_t newest = -1;
    bool ok = steps_list(all, &list);
    for (size_t i = 0; ok && newest < 0 && i < list.n; i++) {
        bool is_finished = false, is_whole = false, is_folder;
        ok = step_look(all, list.step[i], &is_finished, &is_folder) &&
             (!is_finished || step_judge(all, list.step[i], set_aside, &is_whole));
        if (is_whole) newest = list.step[i];
    }
    memory_free(list.step);
    return newest;
}

/* ---- Loading ---- */

/* Opens a step that has been verified, or is verified now. */
static struct checkpoint *open_step(struct checkpoints *all, int64_t step, bool is_verified) {
    char name[NAME_BYTES];
    struct checkpoint *c = memory_new(sizeof *c);
    if (!c) {
        error_memory(sizeof *c, "a checkpoint");
        return NULL;
    }
    *c = (struct checkpoint){.step = step};
    size_t bytes;
    c->folder = file_folder_in(all->folder, step_name(step, name), false);
    if (c->folder && (is_verified || own_verify(c->folder, step, true)))
        c->state = file_get_at(file_in(c->folder, STATE), LARGEST_STATE, &bytes);
    if (c->state) return c;
    checkpoint_close(c);
    return NULL;
}

struct checkpoint *checkpoint_open(struct checkpoints *all, int64_t step) {
    char name[NAME_BYTES];
    if (all->folder) return open_step(all, step, false);
    return error_set(TL_ERROR_IO, "%s: there are no checkpoints", step_name(step, name)), NULL;
}

struct checkpoint *checkpoint_open_verified(struct checkpoints *all, int64_t step) {
    return open_step(all, step, true);
}

struct checkpoint *checkpoint_open_newest(struct checkpoints *all, bool set_aside) {
    int64_t newest = checkpoint_newest(all, set_aside);
    return newest < 0 ? NULL : open_step(all, newest, true);
}

void checkpoint_close(struct checkpoint *c) {
    if (!c) return;
    file_folder_close(c->folder);
    memory_free(c->state);
    memory_free(c);
}

int64_t checkpoint_step(const struct checkpoint *c) { return c->step; }
const char *checkpoint_state(const struct checkpoint *c) { return c->state; }

/* A tensor of a file, or elements from .. to - 1 of one as a vector: "exp_avg.NAME@8:24". */
struct piece {
    const char *name;
    size_t base; /* length of the name without the range */
    int64_t from, to;
    bool is_part;
    tl_safetensors *file;
    int index; /* of the file */
};

struct pieces {
    struct piece *at; /* by name */
    size_t n, capacity;
    tl_safetensors **files;
    char (*paths)[FILE_TEXT];
    size_t n_files;
};

static struct piece piece_of(const char *name, int64_t numel) {
    struct piece p = {.name = name, .base = strlen(name), .to = numel};
    const char *at = strrchr(name, '@');
    int64_t from, to;
    int end = 0;
    if (!at || sscanf(at, "@%" SCNd64 ":%" SCNd64 "%n", &from, &to, &end) != 2 || at[end] || from < 0 ||
        to - from != numel)
        return p;
    p.base = (size_t)(at - name);
    p.from = from, p.to = to, p.is_part = true;
    return p;
}

static int base_compare(const struct piece *a, const struct piece *b) {
    size_t n = a->base < b->base ? a->base : b->base;
    int order = memcmp(a->name, b->name, n);
    return order ? order : (a->base > b->base) - (a->base < b->base);
}
static int piece_compare(const void *x, const void *y) {
    const struct piece *a = x, *b = y;
    int order = base_compare(a, b);
    return order ? order : (a->from > b->from) - (a->from < b->from);
}

/* Whether a file is one of those that hold a part: "optimizer-00001-of-00002.safetensors" of optimizer.safetensors. */
static bool is_of_part(const char *name, const char *part) {
    size_t stem = strcspn(part, "-.");
    return !strncmp(name, part, stem) && (name[stem] == '-' || name[stem] == '.');
}

static bool pieces_add(struct pieces *p, struct file_place at) {
    tl_safetensors *file = safetensors_open_at(at);
    if (!file) return false;
    file_text(at, p->paths[p->n_files]);
    p->files[p->n_files++] = file;
    for (int i = 0; i < tl_safetensors_count(file); i++) {
        tl_safetensors_info info;
        int64_t numel = 1;
        if (!tl_safetensors_info_at(file, i, &info)) return false;
        for (int axis = 0; axis < info.rank; axis++) numel *= info.shape[axis];
        if (!memory_grow((void **)&p->at, &p->capacity, p->n, sizeof *p->at))
            return error_memory((p->n + 1) * sizeof *p->at, "a checkpoint's tensors");
        p->at[p->n] = piece_of(tl_safetensors_name(file, i), numel);
        p->at[p->n].file = file;
        p->at[p->n++].index = (int)p->n_files - 1;
    }
    return true;
}

static void pieces_close(struct pieces *p) {
    for (size_t i = 0; i < p->n_files; i++) tl_safetensors_close(p->files[i]);
    memory_free(p->files);
    memory_free(p->paths);
    memory_free(p->at);
}

/* All files of a part, however many processes have written it. */
static bool pieces_open(struct pieces *p, const struct checkpoint *c, const char *part) {
    json_t *body = manifest_get(file_in(c->folder, MANIFEST), SCHEMA), *entry;
    size_t n = json_array_size(json_object_get(body, "files")), i;
    *p = (struct pieces){.files = memory_new((n + 1) * sizeof *p->files),
                         .paths = memory_new((n + 1) * sizeof *p->paths)};
    bool ok = body && ((p->files && p->paths) || error_memory((n + 1) * sizeof *p->paths, "a checkpoint's files"));
    json_array_foreach(json_object_get(body, "files"), i, entry) {
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (ok && name && is_of_part(name, part)) ok = pieces_add(p, file_in(c->folder, name));
    }
    json_decref(body);
    if (ok && p->n) qsort(p->at, p->n, sizeof *p->at, piece_compare);
    return ok;
}

/* The first piece of a name's tensor; n: there is none. */
static size_t pieces_find(const struct pieces *p, const struct piece *wanted) {
    size_t low = 0, high = p->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (base_compare(&p->at[middle], wanted) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

static bool misfit(const char *path, const char *name, tl_tensor *x, const tl_tensor *need_like) {
    char got[128], need[128];
    tl_describe(x, got, sizeof got);
    tl_describe(need_like, need, sizeof need);
    return error_set(TL_ERROR_USE, "%s: \"%s\" is %s (need %s)", path, name, got, need);
}

static bool whole_load(const struct piece *from, const char *path, const tl_named_tensor *to) {
    tl_tensor *x = tl_safetensors_get(from->file, from->name);
    bool same = x && tl_dtype_of(x) == tl_dtype_of(to->tensor) && tl_rank(x) == tl_rank(to->tensor);
    for (int i = 0; same && i < tl_rank(x); i++) same = tl_size(x, i) == tl_size(to->tensor, i);
    if (x && !same) return misfit(path, to->name, x, to->tensor);
    return x && tl_copy_(to->tensor, tl_to(x, tl_device_of(to->tensor)));
}

/* Copies the elements that a piece has of those wanted. */
static bool piece_load(const struct piece *from, const char *path, const struct piece *wanted, tl_tensor *to,
                       int64_t *n_loaded) {
    int64_t begin = from->from > wanted->from ? from->from : wanted->from;
    int64_t end = from->to < wanted->to ? from->to : wanted->to;
    if (begin >= end) return true;
    tl_tensor *x = tl_safetensors_get(from->file, from->name);
    if (x && tl_dtype_of(x) != tl_dtype_of(to)) return misfit(path, from->name, x, to);
    x = x ? tl_reshape(x, TL_SHAPE(from->to - from->from)) : NULL;
    x = x ? tl_slice(x, 0, begin - from->from, end - from->from, 1) : NULL;
    tl_tensor *place = x ? tl_slice(to, 0, begin - wanted->from, end - wanted->from, 1) : NULL;
    *n_loaded += end - begin;
    return place && tl_copy_(place, tl_to(x, tl_device_of(to)));
}

/* From whatever pieces there are. */
static bool own_load(const struct pieces *p, const char *folder, const tl_named_tensor *to, bool may_lack) {
    struct piece wanted = piece_of(to->name, tl_numel(to->tensor));
    size_t first = pieces_find(p, &wanted), end = first;
    while (end < p->n && base_compare(&p->at[end], &wanted) == 0) end++;
    if (first == end && may_lack) return true;
    if (first == end) return error_set(TL_ERROR_USE, "%s: has no tensor \"%s\"", folder, to->name);
    const struct piece *only = &p->at[first];
    if (end == first + 1 && !only->is_part && !wanted.is_part) return whole_load(only, p->paths[only->index], to);
    tl_tensor *flat = tl_reshape(to->tensor, TL_SHAPE(tl_numel(to->tensor)));
    bool ok = flat != NULL;
    int64_t n_loaded = 0;
    for (size_t i = first; ok && i < end; i++)
        ok = piece_load(&p->at[i], p->paths[p->at[i].index], &wanted, flat, &n_loaded);
    return ok && (n_loaded == tl_numel(to->tensor) ||
                  error_set(TL_ERROR_USE, "%s: has %" PRId64 " elements of \"%s\" (need %" PRId64 ")", folder, n_loaded,
                            to->name, tl_numel(to->tensor)));
}

/* Memory of the host, apart from the pool, in a shape. */
static tl_tensor *host_new(int rank, const int64_t *shape, tl_dtype dtype) {
    size_t bytes = (size_t)dtype_info(dtype)->bits / 8;
    for (int i = 0; i < rank; i++) bytes *= (size_t)shape[i];
    void *data = memory_new(bytes + 1);
    if (!data) return error_memory(bytes, "a whole parameter on the host"), NULL;
    return tl_from_external(data, bytes, rank, shape, NULL, dtype, NULL, memory_free, data);
}

/* The whole tensor, on the host, of which this process takes its part: `to` is divided as `of` is, and may be a piece
 * of such a part. */
static bool tensor_load(const struct pieces *p, const char *folder, const tl_named_tensor *to, const tl_tensor *of,
                        bool may_lack) {
    if (!to->shard) return own_load(p, folder, to, may_lack);
    int64_t shape[TL_MAX_RANK];
    tl_dtype dtype = tl_dtype_of(to->tensor);
    struct piece wanted = piece_of(to->name, tl_numel(to->tensor));
    char name[FILE_TEXT];
    snprintf(name, sizeof name, "%.*s", (int)wanted.base, to->name);
    shard_whole_shape(to->shard, of, shape);
    tl_named_tensor whole = {.name = name, .tensor = host_new(tl_rank(of), shape, dtype)};
    if (!whole.tensor || !own_load(p, folder, &whole, false)) return false;
    if (!wanted.is_part) return shard_fill(to->shard, to->tensor, whole.tensor);
    tl_tensor *part = host_new(tl_rank(of), of->shape, dtype);
    if (!part || !shard_fill(to->shard, part, whole.tensor)) return false;
    tl_tensor *flat = tl_view(part, TL_SHAPE(tl_numel(part)));
    flat = flat ? tl_slice(flat, 0, wanted.from, wanted.to, 1) : NULL;
    return flat && tl_copy_(to->tensor, tl_to(flat, tl_device_of(to->tensor)));
}

bool checkpoint_numbers(const struct checkpoint *c, const char *file, int64_t *numbers) {
    struct pieces pieces;
    bool ok = pieces_open(&pieces, c, file);
    *numbers = 0;
    for (size_t i = 0; i < pieces.n_files; i++) *numbers += safetensors_numbers(pieces.files[i]);
    pieces_close(&pieces);
    return ok;
}

bool checkpoint_load(const struct checkpoint *c, const struct trainer_part *part) {
    struct pieces pieces;
    bool ok = pieces_open(&pieces, c, part->file), mode = tl_set_grad_mode(false);
    for (int i = 0; ok && i < part->n; i++) {
        tl_scope scope = tl_scope_begin();
        ok = tensor_load(&pieces, pieces.n_files == 1 ? pieces.paths[0] : c->folder->path, &part->tensors[i],
                         part->of ? part->of[i] : part->tensors[i].tensor, part->may_lack);
        ok = tl_scope_end(scope) && ok;
    }
    tl_set_grad_mode(mode);
    pieces_close(&pieces);
    return ok;
}

/* ---- Removing old checkpoints ---- */

/* Counts from the newest, and only whole checkpoints; damaged ones are renamed. Those that are deleted need not be
 * checked. */
static bool kept_choose(struct checkpoints *all, const struct steps *list, int keep, int64_t best, int64_t saved,
                        bool *is_gone) {
    bool ok = true;
    int n_whole = 0;
    for (size_t i = 0; ok && i < list->n; i++) {
        int64_t step = list->step[i];
        bool is_finished = false, is_whole = false, is_folder;
        ok = step_look(all, step, &is_finished, &is_folder);
        is_gone[i] = !is_finished || !(step == best || step == saved || n_whole < keep);
        if (ok && !is_gone[i]) ok = step_judge(all, step, true, &is_whole);
        n_whole += is_whole;
    }
    return ok;
}

bool checkpoint_prune(struct checkpoints *all, int keep, int64_t best_step, int64_t saved) {
    struct steps list = {0};
    bool ok = steps_list(all, &list), *is_gone = NULL;
    if (ok && list.n) {
        is_gone = memory_new(list.n * sizeof *is_gone);
        ok = is_gone ? kept_choose(all, &list, keep, best_step, saved, is_gone)
                     : error_memory(list.n * sizeof *is_gone, "a list of checkpoints");
    }
    for (size_t i = 0; ok && i < list.n; i++)
        if (is_gone[i]) ok = step_remove(all, list.step[i]);
    memory_free(is_gone);
    memory_free(list.step);
    return ok;
}

/* Removes the temporary files of one step, or all of it if it was never finished. */
static bool step_sweep(struct checkpoints *all, int64_t step) {
    char name[NAME_BYTES];
    bool is_finished = false, is_folder = false;
    if (!step_look(all, step, &is_finished, &is_folder)) return false;
    if (!is_finished) return step_remove(all, step);
    struct file_folder *own = is_folder ? file_folder_in(all->folder, step_name(step, name), false) : NULL;
    if (own) file_sweep(own);
    file_folder_close(own);
    return own || !is_folder;
}

bool checkpoint_sweep(struct checkpoints *all) {
    struct steps list = {0};
    bool ok = steps_list(all, &list);
    if (ok && all->folder) file_sweep(all->folder);
    for (size_t i = 0; ok && i < list.n; i++) ok = step_sweep(all, list.step[i]);
    memory_free(list.step);
    return ok;
}

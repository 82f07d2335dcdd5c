#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"

#define BLOCK_BYTES ((size_t)1 << 20)
#define LARGEST_MANIFEST ((size_t)256 << 20)
#define LARGEST_STATE ((size_t)16 << 20)
#define SCHEMA "tally.checkpoint/1"
#define STEP_NAME "step-%012" PRId64
static const char STATE[] = "state.json", MANIFEST[] = "manifest.json";

struct checkpoint {
    char *folder; /* of this step */
    char *state;
    int64_t step;
};

/* "folder/step-..." or, with a file, "folder/step-.../file". NULL: recorded. */
static char *path_new(const char *folder, int64_t step, const char *file) {
    size_t bytes = strlen(folder) + (file ? strlen(file) : 0) + 40;
    char *path = memory_new(bytes);
    if (!path) error_memory(bytes, "a path");
    else snprintf(path, bytes, "%s/" STEP_NAME "%s%s", folder, step, file ? "/" : "", file ? file : "");
    return path;
}

/* ---- Lengths and checksums ---- */

/* Calls visit(crc, context) for each block of a file, in order. */
static bool blocks_walk(const char *path, size_t *bytes, bool (*visit)(uint32_t crc, void *context), void *context) {
    int fd = file_open(path, bytes);
    if (fd < 0) return false;
    unsigned char *block = memory_new(BLOCK_BYTES);
    bool ok = block != NULL || error_memory(BLOCK_BYTES, "a block of a file");
    for (size_t at = 0; ok && at < *bytes; at += BLOCK_BYTES) {
        size_t n = *bytes - at < BLOCK_BYTES ? *bytes - at : BLOCK_BYTES;
        ok = file_read(fd, path, block, n, at) && visit(crc32c(0, block, n), context);
    }
    memory_free(block);
    file_close(fd);
    return ok;
}

static json_t *crc_json(uint32_t crc) {
    char text[16];
    snprintf(text, sizeof text, "%08" PRIx32, crc);
    return json_string(text);
}

static bool append_crc(uint32_t crc, void *list) {
    return json_array_append_new(list, crc_json(crc)) == 0 || error_memory(16, "a manifest");
}

static json_t *file_entry(const char *folder, const char *name) {
    char *path = file_join(folder, name);
    size_t bytes = 0;
    json_t *blocks = json_array();
    bool ok = path && blocks && blocks_walk(path, &bytes, append_crc, blocks);
    json_t *entry =
        ok ? json_pack("{s:s, s:I, s:O}", "name", name, "bytes", (json_int_t)bytes, "crc32c", blocks) : NULL;
    if (ok && !entry) error_memory(64, "a manifest");
    json_decref(blocks);
    memory_free(path);
    return entry;
}

/* ---- The manifest ---- */

static char *body_text(json_t *body) { return json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS); }

/* {"body": {...}, "crc32c": of the body's compact text} */
static char *manifest_text(json_t *body) {
    char *text = body_text(body), *whole = NULL;
    json_t *root =
        text ? json_pack("{s:O, s:o}", "body", body, "crc32c", crc_json(crc32c(0, text, strlen(text)))) : NULL;
    if (root) whole = json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS);
    if (!whole) error_memory(4096, "a manifest");
    json_decref(root);
    free(text);
    return whole;
}

static bool manifest_write(const char *folder, int64_t step, const struct checkpoint_part *parts, int n_parts) {
    json_t *files = json_array();
    bool ok = files != NULL || error_memory(64, "a manifest");
    for (int i = 0; ok && i <= n_parts; i++) {
        json_t *entry = file_entry(folder, i < n_parts ? parts[i].file : STATE);
        ok = entry && (json_array_append_new(files, entry) == 0 || error_memory(64, "a manifest"));
    }
    json_t *body = ok ? json_pack("{s:s, s:I, s:I, s:O}", "schema", SCHEMA, "step", (json_int_t)step, "block_bytes",
                                  (json_int_t)BLOCK_BYTES, "files", files)
                      : NULL;
    char *text = body ? manifest_text(body) : NULL, *path = text ? file_join(folder, MANIFEST) : NULL;
    ok = path && file_put(path, text, strlen(text));
    json_decref(files);
    json_decref(body);
    free(text);
    memory_free(path);
    return ok;
}

/* The body, its own checksum verified. Borrowed from root. */
static json_t *manifest_body(json_t *root, const char *path, int64_t step) {
    json_t *body = json_object_get(root, "body");
    const char *said = json_string_value(json_object_get(root, "crc32c"));
    char *text = json_is_object(body) ? body_text(body) : NULL, found[16] = "";
    if (text) snprintf(found, sizeof found, "%08" PRIx32, crc32c(0, text, strlen(text)));
    free(text);
    bool is_whole = said && !strcmp(said, found);
    if (!is_whole) {
        error_set(TL_ERROR_USE, "%s: its checksum is wrong: it is damaged", path);
        return NULL;
    }
    const char *schema = json_string_value(json_object_get(body, "schema"));
    json_t *number = json_object_get(body, "step"), *block = json_object_get(body, "block_bytes");
    if (!schema || strcmp(schema, SCHEMA)) {
        error_set(TL_ERROR_USE, "%s: is of schema \"%s\" (need " SCHEMA ")", path, schema ? schema : "?");
        return NULL;
    }
    if (!json_is_integer(number) || json_integer_value(number) != step || !json_is_integer(block) ||
        json_integer_value(block) != (json_int_t)BLOCK_BYTES || !json_is_array(json_object_get(body, "files"))) {
        error_set(TL_ERROR_USE, "%s: is not the manifest of step %" PRId64, path, step);
        return NULL;
    }
    return body;
}

struct compare {
    const char *path;
    json_t *blocks;
    size_t at;
};

static bool compare_crc(uint32_t crc, void *context) {
    struct compare *c = context;
    char found[16];
    snprintf(found, sizeof found, "%08" PRIx32, crc);
    const char *said = json_string_value(json_array_get(c->blocks, c->at++));
    return (said && !strcmp(said, found)) ||
           error_set(TL_ERROR_USE, "%s: the MiB at byte %zu is damaged: its checksum is %s (need %s)", c->path,
                     (c->at - 1) * BLOCK_BYTES, found, said ? said : "none");
}

static bool name_is_safe(const char *name) {
    return name && *name && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

static bool file_verify(const char *folder, json_t *entry) {
    const char *name = json_string_value(json_object_get(entry, "name"));
    json_t *length = json_object_get(entry, "bytes"), *blocks = json_object_get(entry, "crc32c");
    if (!name_is_safe(name) || !json_is_integer(length) || !json_is_array(blocks))
        return error_set(TL_ERROR_USE, "%s/%s: an entry of its files has not name, bytes and crc32c", folder, MANIFEST);
    struct compare c = {file_join(folder, name), blocks, 0};
    size_t bytes = 0;
    bool ok = c.path && blocks_walk(c.path, &bytes, compare_crc, &c);
    if (ok && (json_int_t)bytes != json_integer_value(length))
        ok = error_set(TL_ERROR_USE, "%s: has %zu bytes (need %" JSON_INTEGER_FORMAT ")", c.path, bytes,
                       json_integer_value(length));
    if (ok && c.at != json_array_size(blocks)) ok = error_set(TL_ERROR_USE, "%s: blocks are missing", c.path);
    memory_free((char *)c.path);
    return ok;
}

static bool folder_verify(const char *folder, int64_t step) {
    char *path = file_join(folder, MANIFEST);
    size_t i;
    json_t *root = path ? json_read(path, LARGEST_MANIFEST) : NULL, *entry;
    json_t *body = root ? manifest_body(root, path, step) : NULL;
    bool ok = body != NULL, has_state = false;
    json_array_foreach(json_object_get(body, "files"), i, entry) {
        if (ok) ok = file_verify(folder, entry);
        if (ok) has_state = has_state || !strcmp(json_string_value(json_object_get(entry, "name")), STATE);
    }
    if (ok && !has_state) ok = error_set(TL_ERROR_USE, "%s: does not list %s", path, STATE);
    json_decref(root);
    memory_free(path);
    return ok;
}

/* ---- Deleting ---- */

/* Removes a step's folder: first the manifest, then the rest. Nothing there is no error. */
static bool folder_remove(const char *folder) {
    char *manifest = file_join(folder, MANIFEST);
    if (!manifest) return false;
    bool ok = unlink(manifest) == 0 || errno == ENOENT || errno == ENOTDIR;
    memory_free(manifest);
    DIR *dir = ok ? opendir(folder) : NULL;
    if (ok && !dir && errno == ENOENT) return true;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char *path = strcmp(e->d_name, ".") && strcmp(e->d_name, "..") ? file_join(folder, e->d_name) : NULL;
        if (path) unlink(path); /* what stays behind keeps the folder, which is then reported */
        memory_free(path);
    }
    if (dir) closedir(dir);
    if (dir && rmdir(folder) == 0) return true;
    return error_set(TL_ERROR_IO, "%s: cannot be removed: %s", folder, strerror(errno));
}

/* ---- Saving ---- */

static bool parts_write(const char *folder, const struct checkpoint_part *part) {
    const char **names = memory_new(((size_t)part->n + 1) * sizeof *names);
    tl_tensor **tensors = memory_new(((size_t)part->n + 1) * sizeof *tensors);
    char *path = file_join(folder, part->file);
    bool ok = names && tensors && path;
    if (!names || !tensors) error_memory((size_t)part->n * sizeof *names, "a checkpoint");
    for (int i = 0; ok && i < part->n; i++) names[i] = part->tensors[i].name, tensors[i] = part->tensors[i].tensor;
    ok = ok && tl_safetensors_save(path, names, tensors, part->n, NULL, NULL, 0);
    memory_free(names);
    memory_free(tensors);
    memory_free(path);
    return ok;
}

bool checkpoint_save(const char *folder, int64_t step, const struct checkpoint_part *parts, int n_parts,
                     const char *state_json) {
    char *own = path_new(folder, step, NULL), *state = own ? file_join(own, STATE) : NULL;
    bool ok = state && folder_remove(own) && file_make_folder(own);
    for (int i = 0; ok && i < n_parts; i++) ok = parts_write(own, &parts[i]);
    ok = ok && file_put(state, state_json, strlen(state_json)) && file_sync_folder(folder) &&
         manifest_write(own, step, parts, n_parts) && folder_verify(own, step);
    memory_free(state);
    memory_free(own);
    return ok;
}

/* ---- Finding ---- */

struct steps {
    int64_t *step;
    size_t n, capacity;
};

static int newer_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Every "step-N" in a folder, newest first, whether it is whole or not. A folder that is not there has none. */
static bool steps_list(const char *folder, struct steps *list) {
    DIR *dir = opendir(folder);
    if (!dir && errno == ENOENT) return true;
    if (!dir) return error_set(TL_ERROR_IO, "%s: cannot be listed: %s", folder, strerror(errno));
    bool ok = true;
    for (struct dirent *e; ok && (e = readdir(dir));) {
        int64_t step;
        int end = 0;
        char name[32];
        if (sscanf(e->d_name, "step-%" SCNd64 "%n", &step, &end) != 1 || e->d_name[end] || step < 0) continue;
        snprintf(name, sizeof name, STEP_NAME, step);
        if (strcmp(name, e->d_name)) continue; /* not of our making */
        ok = memory_grow((void **)&list->step, &list->capacity, list->n, sizeof *list->step);
        if (ok) list->step[list->n++] = step;
        else error_memory(sizeof *list->step, "a list of checkpoints");
    }
    closedir(dir);
    if (list->n) qsort(list->step, list->n, sizeof *list->step, newer_first);
    return ok;
}

/* Whether a step was ever finished. False: recorded. */
static bool manifest_look(const char *folder, int64_t step, bool *is_there) {
    char *path = path_new(folder, step, MANIFEST);
    if (!path) return false;
    *is_there = access(path, F_OK) == 0;
    memory_free(path);
    return true;
}

bool checkpoint_any(const char *folder) {
    struct steps list = {0};
    bool any = false, ok = steps_list(folder, &list);
    for (size_t i = 0; ok && !any && i < list.n; i++) ok = manifest_look(folder, list.step[i], &any);
    memory_free(list.step);
    return any;
}

/* Whether a step that was finished is still whole. A damaged one is no reason to stop; want of memory says nothing about it: recorded. */
static bool step_verify(const char *folder, int64_t step, bool *is_whole) {
    char *own = path_new(folder, step, NULL);
    *is_whole = own && folder_verify(own, step);
    memory_free(own);
    if (*is_whole) return true;
    if (tl_error() == TL_ERROR_MEMORY) return false;
    log_line("checkpoint passed over: %s", tl_error_message());
    tl_error_clear();
    return true;
}

int64_t checkpoint_newest(const char *folder) {
    struct steps list = {0};
    int64_t newest = -1;
    tl_policy policy = tl_error_policy(TL_RETURN);
    bool ok = steps_list(folder, &list);
    for (size_t i = 0; ok && newest < 0 && i < list.n; i++) {
        bool is_there = false, is_whole = false;
        ok = manifest_look(folder, list.step[i], &is_there) &&
             (!is_there || step_verify(folder, list.step[i], &is_whole));
        if (is_whole) newest = list.step[i];
    }
    tl_error_policy(policy);
    memory_free(list.step);
    return newest;
}

/* ---- Loading ---- */

/* Of a step that has been verified, or is verified now. */
static struct checkpoint *open_step(const char *folder, int64_t step, bool is_verified) {
    struct checkpoint *c = memory_new(sizeof *c);
    if (!c) {
        error_memory(sizeof *c, "a checkpoint");
        return NULL;
    }
    *c = (struct checkpoint){.folder = path_new(folder, step, NULL), .step = step};
    char *state = c->folder && (is_verified || folder_verify(c->folder, step)) ? file_join(c->folder, STATE) : NULL;
    size_t bytes;
    if (state) c->state = file_get(state, LARGEST_STATE, &bytes);
    memory_free(state);
    if (c->state) return c;
    checkpoint_close(c);
    return NULL;
}

struct checkpoint *checkpoint_open(const char *folder, int64_t step) {
    return open_step(folder, step, false);
}

struct checkpoint *checkpoint_open_newest(const char *folder) {
    int64_t newest = checkpoint_newest(folder);
    return newest < 0 ? NULL : open_step(folder, newest, true);
}

void checkpoint_close(struct checkpoint *c) {
    if (!c) return;
    memory_free(c->folder);
    memory_free(c->state);
    memory_free(c);
}

int64_t checkpoint_step(const struct checkpoint *c) { return c->step; }
const char *checkpoint_state(const struct checkpoint *c) { return c->state; }

static bool tensor_load(tl_safetensors *file, const char *path, const tl_named_tensor *to) {
    if (tl_safetensors_find(file, to->name) < 0)
        return error_set(TL_ERROR_USE, "%s: has no tensor \"%s\"", path, to->name);
    tl_tensor *x = tl_safetensors_get(file, to->name);
    bool same = x && tl_dtype_of(x) == tl_dtype_of(to->tensor) && tl_rank(x) == tl_rank(to->tensor);
    for (int i = 0; same && i < tl_rank(x); i++) same = tl_size(x, i) == tl_size(to->tensor, i);
    if (x && !same) {
        char got[128], need[128];
        tl_describe(x, got, sizeof got);
        tl_describe(to->tensor, need, sizeof need);
        return error_set(TL_ERROR_USE, "%s: \"%s\" is %s (need %s)", path, to->name, got, need);
    }
    return x && tl_copy_(to->tensor, tl_to(x, tl_device_of(to->tensor)));
}

bool checkpoint_load(const struct checkpoint *c, const struct checkpoint_part *part) {
    char *path = file_join(c->folder, part->file);
    tl_safetensors *file = path ? tl_safetensors_open(path) : NULL;
    bool ok = file != NULL, mode = tl_grad_mode(false);
    for (int i = 0; ok && i < part->n; i++) {
        tl_scope scope = tl_scope_begin();
        ok = tensor_load(file, path, &part->tensors[i]);
        ok = tl_scope_end(scope) && ok;
    }
    tl_grad_mode(mode);
    tl_safetensors_close(file);
    memory_free(path);
    return ok;
}

bool checkpoint_prune(const char *folder, int keep, int64_t best_step) {
    struct steps list = {0};
    bool ok = steps_list(folder, &list);
    int whole = 0;
    for (size_t i = 0; ok && i < list.n; i++) {
        bool is_whole = false;
        ok = manifest_look(folder, list.step[i], &is_whole);
        whole += is_whole;
        /* What is newer than every whole one may be a save that goes on in another process: it stays. */
        if (!ok || (is_whole && whole <= keep) || list.step[i] == best_step || whole == 0) continue;
        char *own = path_new(folder, list.step[i], NULL);
        ok = own && folder_remove(own);
        memory_free(own);
    }
    memory_free(list.step);
    return ok;
}

void checkpoint_sweep(const char *folder) {
    struct steps list = {0};
    tl_policy policy = tl_error_policy(TL_RETURN);
    bool ok = steps_list(folder, &list);
    for (size_t i = 0; ok && i < list.n; i++) {
        char *own = path_new(folder, list.step[i], NULL);
        ok = own != NULL;
        if (own) file_sweep(own);
        memory_free(own);
    }
    tl_error_policy(policy);
    if (!ok) tl_error_clear(); /* a folder that cannot be listed is found out by those who need it */
    memory_free(list.step);
}

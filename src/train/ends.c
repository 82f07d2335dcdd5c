#include "train/ends.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "file/gguf.h"
#include "train/folder.h"
#include "train/open.h"

enum { LARGEST_FILE = 16 << 20 };

bool ends_have(const struct ends *e, int64_t id) {
    for (int64_t i = 0; i < e->n; i++)
        if (e->ids[i] == id) return true;
    return false;
}

static bool id_add(struct ends *e, const json_t *id, const char *path) {
    if (!json_is_integer(id) || json_integer_value(id) < 0)
        return error_set(TL_ERROR_USE, "%s: \"eos_token_id\" is not a token id, a list of them, or null", path);
    if (e->n == ENDS_MOST)
        return error_set(TL_ERROR_USE, "%s: \"eos_token_id\" has %d ids or more (need at most %d)", path, ENDS_MOST + 1,
                         ENDS_MOST);
    e->ids[e->n++] = json_integer_value(id);
    return true;
}

/* *says: the file is there and has the key. In generation_config.json a missing key means none, as in transformers. */
static bool config_read(struct ends *e, const char *folder, const char *name, bool needs_key, bool *says) {
    char *path = file_join(folder, name);
    if (!path) return false;
    bool is_there = access(path, F_OK) == 0, ok = true;
    json_t *root = is_there ? json_read(path, LARGEST_FILE) : NULL;
    json_t *value = json_object_get(root, "eos_token_id");
    *says = root && (value || !needs_key);
    if (json_is_array(value))
        for (size_t i = 0; ok && i < json_array_size(value); i++) ok = id_add(e, json_array_get(value, i), path);
    else if (value && !json_is_null(value)) ok = id_add(e, value, path);
    json_decref(root);
    memory_free(path);
    return ok && (root || !is_there);
}

static bool folder_read(struct ends *e, const char *folder, bool *says) {
    return config_read(e, folder, ENDS_FILE, false, says) &&
           (*says || config_read(e, folder, "config.json", true, says));
}

/* An ordinary token ends nothing: llama.cpp wants an id in any case, and `tally export` gives it the byte 0. */
static bool gguf_read(struct ends *e, const char *path, bool *says) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"};
    enum { TYPE_NORMAL = 1 };
    tl_gguf *file = tl_gguf_open(path);
    *says = file != NULL;
    for (int i = 0; file && i < 2; i++) {
        int64_t id = -1, type = 0;
        if (!tl_gguf_integer(file, keys[i], 0, &id) || id < 0) continue;
        tl_gguf_integer(file, "tokenizer.ggml.token_type", id, &type);
        if (type != TYPE_NORMAL) e->ids[e->n++] = id;
    }
    tl_gguf_close(file);
    return *says;
}

bool ends_find(struct ends *e, const char *path, const tl_tokenizer *tokenizer) {
    bool says = false;
    *e = (struct ends){.n = 0};
    if (path && !(gguf_is_one(path) ? gguf_read(e, path, &says) : folder_read(e, path, &says))) return false;
    int64_t end = says ? -1 : tl_tokenizer_end_of_text(tokenizer);
    if (end >= 0) e->ids[e->n++] = end;
    return true;
}

char *ends_json(const struct ends *e) {
    size_t room = 64 + (size_t)e->n * 24, n;
    char *text = memory_new(room);
    if (!text) return error_memory(room, ENDS_FILE), NULL;
    n = (size_t)snprintf(text, room, "{\n  \"eos_token_id\": %s", e->n == 1 ? "" : e->n ? "[" : "null");
    for (int64_t i = 0; i < e->n; i++)
        n += (size_t)snprintf(text + n, room - n, "%s%" PRId64, i ? ", " : "", e->ids[i]);
    snprintf(text + n, room - n, "%s\n}\n", e->n > 1 ? "]" : "");
    return text;
}

/* ---- Of a model ---- */

bool ends_of_model(struct ends *e, const char *folder, bool is_run, const tl_tokenizer *tokenizer) {
    char *own = is_run ? file_join(folder, FOLDER_TOKENIZER) : NULL;
    bool ok = (own || !is_run) && ends_find(e, own ? own : folder, tokenizer);
    memory_free(own);
    return ok;
}

int64_t tl_model_ends(const char *path, const tl_tokenizer *tokenizer, int64_t *ids, int64_t room) {
    char folder[SETTING_TEXT];
    int64_t step = STEP_NEWEST;
    struct ends e;
    if (!path || (!ids && room)) return error_set(TL_ERROR_USE, "tl_model_ends: got NULL"), -1;
    bool is_run = run_split(path, folder, &step);
    if (!*folder || !ends_of_model(&e, folder, is_run, tokenizer)) return -1;
    for (int64_t i = 0; i < e.n && i < room; i++) ids[i] = e.ids[i];
    return e.n;
}

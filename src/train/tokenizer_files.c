#include "train/tokenizer_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "step/tokens.h"
#include "text/tokenizer.h"
#include "train/ends.h"

static const char FAST[] = "tokenizer.json", CONFIG[] = "tokenizer_config.json";

static bool has_file(const struct tokenizer_files *f, const char *name) {
    for (int i = 0; i < f->n; i++)
        if (!strcmp(f->at[i].name, name)) return true;
    return false;
}

/* Takes over the data, also on failure; NULL is an error that is recorded. */
static bool file_add(struct tokenizer_files *f, const char *name, char *data, size_t bytes) {
    bool ok = data && f->n < TOKENIZER_FILES_MOST && strlen(name) < TOKENIZER_FILE_NAME;
    if (data && !ok) error_set(TL_ERROR_USE, "tokenizer: too many files, or too long a name: %s", name);
    if (!ok) return memory_free(data), false;
    strcpy(f->at[f->n].name, name);
    f->at[f->n].data = data;
    f->at[f->n++].bytes = bytes;
    return true;
}

/* ---- Files that exist ---- */

struct copying {
    struct tokenizer_files *files;
    const struct file_folder *folder;
    const char *path;
    const char *const *only; /* names, NULL after the last; NULL: all files of a tokenizer */
};

static bool file_copy(const char *name, void *context) {
    const struct copying *c = context;
    bool is_due = !c->only && tokens_is_file(name);
    for (int i = 0; c->only && c->only[i]; i++) is_due = is_due || !strcmp(c->only[i], name);
    if (!is_due) return true;
    char *path = file_join(c->path, name); /* by its path: these folders are the user's, and links are common there */
    size_t bytes = 0;
    char *data = path ? file_get(path, TOKENIZER_MOST_BYTES, &bytes) : NULL;
    memory_free(path);
    return file_add(c->files, name, data, bytes);
}

static bool folder_copy(struct tokenizer_files *f, const char *path, const char *const *only) {
    struct file_folder *folder = file_folder_open(path);
    bool ok = folder && file_list(folder, file_copy, &(struct copying){f, folder, path, only});
    file_folder_close(folder);
    return ok;
}

/* GPT-2's files are two. */
static bool pair_copy(struct tokenizer_files *f, const char *path, const char *name, bool *is_pair) {
    static const char *const pairs[][3] = {{"vocab.json", "merges.txt", NULL}, {"encoder.json", "vocab.bpe", NULL}};
    char folder[SETTING_TEXT];
    snprintf(folder, sizeof folder, "%.*s", (int)(name - path), path);
    for (int i = 0; i < 2; i++) {
        *is_pair = !strcmp(name, pairs[i][0]) || !strcmp(name, pairs[i][1]);
        if (*is_pair) return folder_copy(f, *folder ? folder : ".", pairs[i]);
    }
    return true;
}

/* A single file, under the name by which a folder is searched for it. */
static bool single_copy(struct tokenizer_files *f, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    bool is_pair;
    if (!pair_copy(f, path, name, &is_pair) || is_pair) return is_pair && tl_error() == TL_OK;
    size_t bytes;
    char *data = file_get(path, TOKENIZER_MOST_BYTES, &bytes);
    if (!data) return false;
    bool is_json = data[strspn(data, " \t\r\n")] == '{';
    bool is_tekken = is_json && strstr(data, "\"token_bytes\"") && !strstr(data, "\"added_tokens\"");
    return file_add(f, is_tekken ? "tekken.json" : is_json ? FAST : "tokenizer.tiktoken", data, bytes);
}

/* ---- tokenizer.json and tokenizer_config.json, for transformers ---- */

static bool fast_make(struct tokenizer_files *f, const tl_tokenizer *t) {
    size_t bytes = 0;
    char *data = tokenizer_json(t, &bytes);
    return file_add(f, FAST, data, bytes);
}

/* Ranks, tekken files and GPT-2's pair get a tokenizer.json beside them, if one can say the same. */
static bool fast_add(struct tokenizer_files *f, const tl_tokenizer *t) {
    if (has_file(f, FAST)) return true;
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    bool ok = fast_make(f, t);
    tl_set_error_policy(policy);
    if (ok || tl_error() != TL_ERROR_USE) return ok;
    log_line("run: final/ has no tokenizer.json: %s", tl_error_message());
    tl_error_clear();
    return true;
}

static bool config_make(struct tokenizer_files *f) {
    static const char text[] = "{\n \"tokenizer_class\": \"%s\",\n \"clean_up_tokenization_spaces\": false\n}\n";
    const char *name = has_file(f, FAST)           ? "PreTrainedTokenizerFast"
                       : has_file(f, "vocab.json") ? "GPT2Tokenizer"
                                                   : NULL;
    if (!name || has_file(f, CONFIG)) return true;
    size_t room = sizeof text + strlen(name);
    char *data = memory_new(room);
    if (!data) return error_memory(room, "a tokenizer's file");
    snprintf(data, room, text, name);
    return file_add(f, CONFIG, data, strlen(data));
}

/* Where texts end. Without this file transformers would take what its class of the model has, id 2 for a Llama. */
static bool ends_add(struct tokenizer_files *f, const char *from, const tl_tokenizer *t) {
    struct ends e;
    if (has_file(f, ENDS_FILE)) return true;
    char *text = ends_find(&e, from, t) ? ends_json(&e) : NULL;
    return file_add(f, ENDS_FILE, text, text ? strlen(text) : 0);
}

/* ---- All of it ---- */

bool tokenizer_files_read(struct tokenizer_files *f, const struct settings *s, tl_tokenizer *t) {
    *f = (struct tokenizer_files){0};
    if (!t) return true;
    enum file_kind kind;
    bool has_files = tokens_are_named(s) && !tokens_are_made(s), ok;
    if (!has_files) ok = fast_make(f, t);
    else {
        struct file_folder *folder = NULL; /* a link to a folder is one */
        ok = file_look(file_path(s->tokenizer), &kind);
        if (ok && kind == FILE_LINK && !(folder = file_folder_open(s->tokenizer))) tl_error_clear();
        ok = ok && (kind == FILE_FOLDER || folder ? folder_copy(f, s->tokenizer, NULL) : single_copy(f, s->tokenizer));
        file_folder_close(folder);
        ok = ok && fast_add(f, t);
    }
    return ok && config_make(f) && ends_add(f, has_files ? s->tokenizer : NULL, t);
}

bool tokenizer_files_put(const struct tokenizer_files *f, const struct file_folder *folder) {
    bool ok = true;
    for (int i = 0; ok && i < f->n; i++)
        ok = file_put_at(file_in(folder, f->at[i].name), f->at[i].data, f->at[i].bytes);
    return ok;
}

void tokenizer_files_free(struct tokenizer_files *f) {
    for (int i = 0; i < f->n; i++) memory_free(f->at[i].data);
    *f = (struct tokenizer_files){0};
}

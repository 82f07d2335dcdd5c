#include "train/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "train/log.h"
#include "train/manifest.h"
#include "train/origin.h"
#include "step/source.h"
#include "step/tokens.h"

#define SCHEMA "tally.folder/1"
#define LARGEST_JSON ((size_t)64 << 20)
static const char RECORD[] = FOLDER_RECORD, LOCK[] = FOLDER_LOCK;

/* ---- The files that a run makes, and how to recognize them ---- */

static bool is_settings(const struct file_folder *dir, const char *name) {
    struct settings s = settings_default();
    return settings_read_at(&s, file_in(dir, name));
}

static bool has_schema(const struct file_folder *dir, const char *name, const char *wanted) {
    json_t *json = json_read_at(file_in(dir, name), LARGEST_JSON);
    const char *schema = json_string_value(json_object_get(json, "schema"));
    bool is = schema && !strcmp(schema, wanted);
    json_decref(json);
    return is;
}
static bool is_price(const struct file_folder *dir, const char *name) { return has_schema(dir, name, "tally.run/1"); }
static bool is_memory(const struct file_folder *dir, const char *name) {
    return has_schema(dir, name, "tally.memory/1");
}
static bool is_profile(const struct file_folder *dir, const char *name) {
    return has_schema(dir, name, "tally.profile/1");
}

static bool is_origin(const struct file_folder *dir, const char *name) {
    struct origin origin;
    json_t *json = json_read_at(file_in(dir, name), LARGEST_JSON);
    bool is = json && origin_read(&origin, json);
    json_decref(json);
    return is;
}

static bool is_log(const struct file_folder *dir, const char *name) {
    static const char begin[] = "{\"";
    char head[sizeof begin - 1];
    size_t bytes;
    int fd = file_open_at(file_in(dir, name), &bytes);
    bool is =
        fd >= 0 && (bytes == 0 || (bytes >= sizeof head && file_read_at(fd, file_in(dir, name), head, sizeof head, 0) &&
                                   !memcmp(head, begin, sizeof head)));
    if (fd >= 0) file_close(fd);
    return is;
}

static bool is_empty(const struct file_folder *dir, const char *name) {
    size_t bytes = 1;
    int fd = file_open_at(file_in(dir, name), &bytes);
    if (fd >= 0) file_close(fd);
    return fd >= 0 && bytes == 0;
}

static bool is_final_name(const char *name, void *context) {
    (void)context;
    return !strcmp(name, "config.json") || !strcmp(name, "model.safetensors") || tokens_is_file(name) ||
           file_is_temporary(name);
}
static bool is_final(const struct file_folder *dir, const char *name) {
    struct file_folder *final = file_folder_in(dir, name, false);
    bool is = final && file_list(final, is_final_name, NULL);
    file_folder_close(final);
    return is;
}

static bool is_tokenizer_name(const char *name, void *context) {
    (void)context;
    return tokens_is_file(name) || file_is_temporary(name);
}
static bool is_tokenizer(const struct file_folder *dir, const char *name) {
    struct file_folder *tokenizer = file_folder_in(dir, name, false);
    bool is = tokenizer && file_list(tokenizer, is_tokenizer_name, NULL);
    file_folder_close(tokenizer);
    return is;
}

static bool is_anything(const struct file_folder *dir, const char *name) {
    (void)dir, (void)name;
    return true; /* stories are compared, tokens made again, and no other program uses the name of the event file */
}

static const struct own {
    const char *name;
    enum file_kind kind;
    bool (*is)(const struct file_folder *dir, const char *name); /* may record an error, which only means no */
} own[] = {
    {"checkpoints", FILE_FOLDER, is_anything},
    {"final", FILE_FOLDER, is_final},
    {"config.json", FILE_REGULAR, is_settings},
    {"price.json", FILE_REGULAR, is_price},
    {"receipt.json", FILE_REGULAR, is_price},
    {"machine.json", FILE_REGULAR, is_origin},
    {"memory.json", FILE_REGULAR, is_memory},
    {"profile.json", FILE_REGULAR, is_profile},
    {LOG_LINES, FILE_REGULAR, is_log},
    {LOG_EVENTS, FILE_REGULAR, is_anything},
    {SOURCE_STORIES, FILE_REGULAR, is_anything},
#define ROW(name) {name, FILE_REGULAR, is_anything},
    SOURCE_TOKENS(ROW)
#undef ROW
        {FOLDER_TOKENIZER, FILE_FOLDER, is_tokenizer},
    {"lock", FILE_REGULAR, is_empty},
};
enum { N_OWN = sizeof own / sizeof *own };

static int n_sets(const struct settings *s) {
    struct sets sets;
    return sets_read(&sets, s->val_data) ? sets.n : 0; /* the settings have been checked */
}

/* The built-in stories are a file of the folder only where they are the data, tokens and tokenizer only where texts are
 * tokenized. */
static bool is_needed(const struct own *o, const struct settings *s) {
    if (!strcmp(o->name, SOURCE_STORIES)) return source_is_builtin(s);
    for (int i = 0; i < SOURCE_PARTS; i++)
        if (!strcmp(o->name, source_tokens_name(i))) return tokens_are_written(s) && i <= n_sets(s);
    return strcmp(o->name, FOLDER_TOKENIZER) || tokens_are_named(s);
}

/* Clears an error that only means no. False: it is another error. */
static bool no_only(void) {
    if (tl_error() == TL_ERROR_MEMORY) return false;
    tl_error_clear();
    return true;
}

/* ---- The record ---- */

static bool has_name(const struct folder *f, const char *name) {
    size_t i;
    json_t *value;
    json_array_foreach(json_object_get(f->record, "names"), i, value) {
        const char *text = json_string_value(value);
        if (text && !strcmp(text, name)) return true;
    }
    return false;
}

static bool name_add(struct folder *f, const char *name) {
    return has_name(f, name) || json_array_append_new(json_object_get(f->record, "names"), json_string(name)) == 0 ||
           error_memory(64, "a folder's record");
}

static bool record_new(struct folder *f) {
    json_decref(f->record);
    f->record = json_pack("{s:s, s:[], s:{}}", "schema", SCHEMA, "names", "sealed");
    return f->record != NULL || error_memory(64, "a folder's record");
}

static bool record_write(struct folder *f) { return manifest_put(file_in(f->dir, RECORD), f->record); }

/* `why`: the reason why it cannot be read; "" if it can be, or does not exist, and then f->record is NULL. False:
 * recorded. */
static bool record_read(struct folder *f, char *why, size_t size) {
    enum file_kind kind;
    struct file_place at = file_in(f->dir, RECORD);
    *why = 0;
    json_decref(f->record);
    f->record = NULL;
    if (!file_expect(at, FILE_REGULAR) || !file_look(at, &kind)) return false;
    if (kind == FILE_ABSENT) return true;
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    f->record = manifest_get(at, SCHEMA);
    tl_set_error_policy(policy);
    bool is_ours =
        json_is_array(json_object_get(f->record, "names")) && json_is_object(json_object_get(f->record, "sealed"));
    if (is_ours) return true;
    if (!f->record && tl_error() != TL_ERROR_USE) return false;
    snprintf(why, size, "%s", f->record ? "run.json lacks names or sealed" : tl_error_message());
    tl_error_clear();
    json_decref(f->record);
    f->record = NULL;
    return true;
}

/* ---- Whose folder it is ---- */

static bool refuse(const struct folder *f, const char *name, const char *why) {
    char path[FILE_TEXT];
    return error_set(TL_ERROR_USE,
                     "%s: exists, and no record says that a run made it%s%s; it is left as it is (give another "
                     "--out, or move it away)",
                     file_text(file_in(f->dir, name), path), *why ? "; " : "", why);
}

/* Names that the run will use and does not own yet must be free; those that it owns must be files and folders. */
static bool names_claim(struct folder *f, const struct settings *s, const char *why) {
    for (int i = 0; i < N_OWN; i++) {
        enum file_kind kind;
        if (!is_needed(&own[i], s)) continue;
        struct file_place at = file_in(f->dir, own[i].name);
        if (!file_look(at, &kind)) return false;
        bool is_free = kind == FILE_ABSENT || has_name(f, own[i].name);
        if (!is_free && kind == FILE_REGULAR && !strcmp(own[i].name, LOCK)) /* of a process that died there */
            is_free = is_empty(f->dir, LOCK) || (tl_error_clear(), false);
        if (!is_free) return refuse(f, own[i].name, why);
        if (!file_expect(at, own[i].kind) || !name_add(f, own[i].name)) return false;
    }
    return true;
}

/* Whether the folder has a whole checkpoint. False: recorded. */
static bool checkpoint_look(struct folder *f, bool *is_there) {
    struct checkpoints all;
    enum file_kind kind;
    *is_there = false;
    if (!file_look(file_in(f->dir, "checkpoints"), &kind)) return false;
    if (kind != FILE_FOLDER) return true;
    if (!checkpoints_open(&all, f->dir, false)) return false;
    *is_there = checkpoint_newest(&all, false) >= 0;
    checkpoints_close(&all);
    return tl_error() == TL_OK;
}

/* Takes over the files of a run in a folder without a record: everything that a run writes there, but no foreign file
 * with such a name. */
static bool names_adopt(struct folder *f, const struct settings *s) {
    for (int i = 0; i < N_OWN; i++) {
        enum file_kind kind;
        if (!is_needed(&own[i], s)) continue;
        if (!file_look(file_in(f->dir, own[i].name), &kind)) return false;
        if (kind == FILE_ABSENT) continue;
        tl_policy policy = tl_set_error_policy(TL_RETURN);
        bool is_own = kind == own[i].kind && own[i].is(f->dir, own[i].name);
        tl_set_error_policy(policy);
        if (!no_only() || (is_own && !name_add(f, own[i].name))) return false;
    }
    return true;
}

/* The record, read or new; is_new: it has to be written. */
static bool record_take(struct folder *f, const struct settings *s, bool *is_new, bool *is_damaged) {
    char why[512];
    bool has_checkpoint;
    if (!record_read(f, why, sizeof why)) return false;
    *is_new = !f->record;
    *is_damaged = *why != 0;
    if (*is_new) {
        if (!checkpoint_look(f, &has_checkpoint) || !record_new(f)) return false;
        if (*is_damaged && !has_checkpoint) return refuse(f, RECORD, why);
        if (has_checkpoint && !names_adopt(f, s)) return false;
    }
    size_t n = json_array_size(json_object_get(f->record, "names"));
    if (!names_claim(f, s, why)) return false;
    *is_new = *is_new || json_array_size(json_object_get(f->record, "names")) != n;
    return true;
}

static bool record_settle(struct folder *f, bool is_damaged) {
    char aside[FILE_ASIDE], path[FILE_TEXT];
    if (is_damaged) {
        if (!file_set_aside(f->dir, RECORD, aside)) return false;
        log_line("run: %s was damaged; it is renamed to %s and rewritten", file_text(file_in(f->dir, RECORD), path),
                 aside);
    }
    return record_write(f);
}

/* ---- The files that the run reads ---- */

/* Whether a path, with links resolved, is in the folder or is the folder. */
static bool holds(const struct folder *f, const char *path) {
    struct stat here, there;
    char *real = realpath(path, NULL); /* NULL: opening it will fail with the reason */
    bool is_in = false;
    if (real && fstat(f->dir->fd, &here) == 0)
        for (char *slash = real + strlen(real); slash && !is_in; slash = strrchr(real, '/')) {
            *slash = 0;
            is_in = stat(*real ? real : "/", &there) == 0 && here.st_dev == there.st_dev && here.st_ino == there.st_ino;
        }
    free(real);
    return is_in;
}

static bool input_check(const struct folder *f, const char *setting, const char *path) {
    return !*path || !holds(f, path) ||
           error_set(TL_ERROR_USE,
                     "%s: %s lies in the run's own folder %s (move it out of there, or give another out folder)",
                     setting, path, f->dir->path);
}

static bool inputs_check(const struct folder *f, const struct settings *s) {
    bool is_preset = trainer_has_preset(s), is_word = !tokens_are_named(s) || tokens_are_made(s);
    struct sets sets;
    bool ok = sets_read(&sets, s->val_data);
    for (int i = 0; ok && i < sets.n; i++) ok = input_check(f, "val_data", sets.path[i]);
    return ok && (source_is_builtin(s) || input_check(f, "data", s->data)) &&
           (is_preset || input_check(f, "model", s->model)) && (is_word || input_check(f, "tokenizer", s->tokenizer));
}

/* ---- Opening ---- */

/* One process at a time: two would prune each other's checkpoints. The lock ends with the process, however that
 * ends. */
static bool lock_take(struct folder *f) {
    bool is_busy;
    f->lock = file_lock_at(file_in(f->dir, LOCK), &is_busy);
    if (is_busy) error_set(TL_ERROR_USE, "%s: another process is training in this folder", f->dir->path);
    return f->lock >= 0;
}

/* The holder of the lock knows that half-written files are dead. */
static bool sweep(struct folder *f) {
    static const char *const inner[] = {"final", FOLDER_TOKENIZER};
    for (int i = 0; i < 2; i++) {
        enum file_kind kind;
        if (!has_name(f, inner[i])) continue;
        if (!file_look(file_in(f->dir, inner[i]), &kind)) return false;
        struct file_folder *in = kind == FILE_FOLDER ? file_folder_in(f->dir, inner[i], false) : NULL;
        if (kind == FILE_FOLDER && !in) return false;
        if (in) file_sweep(in);
        file_folder_close(in);
    }
    file_sweep(f->dir);
    return checkpoint_sweep(&f->checkpoints);
}

bool folder_open(struct folder *f, const struct settings *s) {
    bool is_new, is_damaged;
    enum file_kind lock, record;
    *f = (struct folder){.lock = -1};
    f->dir = file_make_folder(s->out) ? file_folder_open(s->out) : NULL;
    if (!f->dir || !inputs_check(f, s)) return false;
    /* once before the lock is created, so that a foreign folder is not touched, and once when no other process can
     * be here */
    if (!record_take(f, s, &is_new, &is_damaged) || !file_look(file_in(f->dir, LOCK), &lock) ||
        !file_look(file_in(f->dir, RECORD), &record) || !lock_take(f) || !record_take(f, s, &is_new, &is_damaged))
        return false;
    if (is_new && !record_settle(f, is_damaged)) return false;
    if (!checkpoints_open(&f->checkpoints, f->dir, true)) return false;
    bool is_first = lock == FILE_ABSENT && record == FILE_ABSENT;
    return is_first || sweep(f); /* without an earlier run there is nothing to clean */
}

bool folder_peek(struct folder *f, const char *path, bool *is_run) {
    char why[512];
    enum file_kind kind;
    *f = (struct folder){.lock = -1};
    *is_run = false;
    if (!file_look(file_path(path), &kind)) return false;
    if (kind == FILE_ABSENT) return true;
    f->dir = file_folder_open(path);
    if (!f->dir || !record_read(f, why, sizeof why)) return false;
    if (!f->record || !file_look(file_in(f->dir, "checkpoints"), &kind) || kind != FILE_FOLDER)
        return tl_error() == TL_OK;
    *is_run = checkpoints_open(&f->checkpoints, f->dir, false);
    return *is_run;
}

void folder_close(struct folder *f) {
    checkpoints_close(&f->checkpoints);
    json_decref(f->record);
    if (f->lock >= 0) file_close(f->lock);
    file_folder_close(f->dir);
    *f = (struct folder){.lock = -1};
}

/* ---- The run's files ---- */

bool folder_put(struct folder *f, const char *name, char *text) {
    bool ok = text && file_put_at(file_in(f->dir, name), text, strlen(text));
    free(text);
    return ok;
}

bool folder_remove(struct folder *f, const char *name) {
    return !has_name(f, name) || file_remove(file_in(f->dir, name));
}

bool folder_json(struct folder *f, const char *name, json_t **json) {
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    *json = json_read_at(file_in(f->dir, name), LARGEST_JSON);
    tl_set_error_policy(policy);
    return *json || no_only();
}

/* ---- Seals ---- */

static const char *seal_key(const char *in, const char *name, char key[64]) {
    snprintf(key, 64, "%s%s%s", in ? in : "", in ? "/" : "", name);
    return key;
}

bool folder_seal(struct folder *f, const char *in, const char *const *names, int n) {
    struct file_folder *inner = in ? file_folder_in(f->dir, in, false) : NULL;
    bool ok = !in || inner;
    char key[64];
    for (int i = 0; ok && i < n; i++) {
        json_t *entry = manifest_entry(inner ? inner : f->dir, names[i]);
        ok = entry &&
             (json_object_set_new(json_object_get(f->record, "sealed"), seal_key(in, names[i], key), entry) == 0 ||
              error_memory(64, "a folder's record"));
    }
    file_folder_close(inner);
    return ok && record_write(f);
}

bool folder_look(struct folder *f, const char *in, const char *name, enum folder_state *state) {
    char key[64];
    enum file_kind kind = FILE_FOLDER;
    const json_t *entry = json_object_get(json_object_get(f->record, "sealed"), seal_key(in, name, key));
    *state = entry ? FOLDER_DAMAGED : FOLDER_UNSEALED;
    if (!entry || (in && !file_look(file_in(f->dir, in), &kind))) return !entry;
    if (kind != FILE_FOLDER) return true;
    struct file_folder *inner = in ? file_folder_in(f->dir, in, false) : NULL;
    if (in && !inner) return false;
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    if (manifest_verify(inner ? inner : f->dir, entry, true, RECORD)) *state = FOLDER_WHOLE;
    tl_set_error_policy(policy);
    file_folder_close(inner);
    return *state == FOLDER_WHOLE || no_only();
}

bool folder_look_all(struct folder *f, const char *in, bool *are_whole) {
    const size_t n = strlen(in);
    const char *key;
    json_t *entry;
    *are_whole = false;
    json_object_foreach(json_object_get(f->record, "sealed"), key, entry) {
        enum folder_state state;
        if (strncmp(key, in, n) || key[n] != '/') continue;
        if (!folder_look(f, in, key + n + 1, &state)) return false;
        *are_whole = state == FOLDER_WHOLE;
        if (!*are_whole) break;
    }
    return true;
}

/* tokenize_state.c: OUT.partial.json. Written whole or not at all, like every file; what it says is compared and
 * bounded when it is read, since a file may be anything. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "data/tokenize.h"

#define SCHEMA "tally.tokenize/1"
#define SUFFIX ".partial.json"
enum { MOST_BYTES = 1 << 16 };

static char *state_path(const struct tokenize_options *o) {
    size_t bytes = strlen(o->out) + sizeof SUFFIX;
    char *path = memory_new(bytes);
    if (path) snprintf(path, bytes, "%s" SUFFIX, o->out);
    else error_memory(bytes, "a path");
    return path;
}

/* ---- What the work is made from and with ---- */

static json_t *hex(uint64_t value) {
    char text[20];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    return json_string(text);
}

/* A name need not be UTF-8, and JSON must be. */
static json_t *name_json(const char *name) {
    char shown[512];
    return name ? json_string(text_show(shown, sizeof shown, name)) : json_null();
}

/* FNV-1a over names, sizes and times. */
static uint64_t inputs_hash(const struct inputs *all) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < all->n; i++) {
        for (const char *c = all->at[i].path; *c; c++) h = (h ^ (unsigned char)*c) * 0x100000001b3u;
        h = (h ^ all->at[i].bytes) * 0x100000001b3u;
        h = (h ^ (uint64_t)all->at[i].changed_ns) * 0x100000001b3u;
    }
    return h;
}

/* Keys are as the command's flags; "inputs" first, since a change there is the most likely. */
static json_t *identity_json(const struct tokenize_options *o) {
    static const char *const formats[] = {"auto", "text", "jsonl"}, *const specials[] = {"refuse", "allow", "text"};
    char inputs[96], share[40];
    snprintf(inputs, sizeof inputs, "%zu files, %" PRIu64 " bytes, %016" PRIx64, o->inputs->n, o->inputs->bytes,
             inputs_hash(o->inputs));
    number_print(share, sizeof share, "%.17g", o->val_out ? o->val_share : 0);
    return json_pack("{s:s, s:o, s:s, s:s, s:o, s:o, s:i, s:o, s:s, s:I}", "inputs", inputs, "tokenizer",
                     hex(tl_tokenizer_hash(o->tokenizer)), "format", formats[o->documents.format], "special",
                     specials[o->special], "field", name_json(o->documents.field), "document-separator",
                     name_json(o->documents.separator), "end-token", (int)o->end_token, "val-out",
                     name_json(o->val_out), "val-share", share, "seed", (json_int_t)o->seed);
}

/* NULL, or the first key that differs. */
static const char *difference(json_t *now, const json_t *then) {
    const char *key;
    json_t *value;
    json_object_foreach(now, key, value) if (!json_equal(value, json_object_get(then, key))) return key;
    return NULL;
}

static bool identity_check(const struct tokenize_options *o, const json_t *then, const char *path) {
    json_t *now = identity_json(o);
    if (!now) return error_memory(MOST_BYTES, "the state of the work");
    const char *key = difference(now, then);
    if (key) {
        char *was = json_print(json_object_get(then, key), JSON_ENCODE_ANY);
        char *is = json_print(json_object_get(now, key), JSON_ENCODE_ANY);
        error_set(TL_ERROR_USE,
                  "%s: the work was begun with %s %s, and now it is %s (give the same command, or --restart to begin "
                  "again)",
                  path, key, was ? was : "not recorded", is ? is : "?");
        memory_free(was);
        memory_free(is);
    }
    json_decref(now);
    return !key;
}

/* ---- How far it is ---- */

#define FIELD(name) \
    { #name, offsetof(struct tokenize_state, name) }
static const struct {
    const char *name;
    size_t at;
} fields[] = {FIELD(input),       FIELD(input_documents), FIELD(input_bad),  FIELD(taken),
              FIELD(documents),   FIELD(text_bytes),      FIELD(used),       FIELD(bad),
              FIELD(longest),     FIELD(open_tokens),     FIELD(tokens[0]),  FIELD(tokens[1]),
              FIELD(recorded[0]), FIELD(recorded[1]),     FIELD(crc[0]),     FIELD(crc[1]),
              FIELD(is_begun[0]), FIELD(is_begun[1]),     FIELD(is_complete)};
enum { FIELDS = sizeof fields / sizeof *fields };

static int64_t *field(struct tokenize_state *s, int i) { return (int64_t *)(void *)((char *)s + fields[i].at); }

static bool fields_read(struct tokenize_state *s, const json_t *from, const char *path) {
    for (int i = 0; i < FIELDS; i++) {
        const json_t *value = json_object_get(from, fields[i].name);
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return error_set(TL_ERROR_USE, "%s: has no number \"%s\" (--restart begins again)", path, fields[i].name);
        *field(s, i) = json_integer_value(value);
    }
    for (int k = 0; k < TOKENIZE_OUTPUTS; k++)
        if (s->tokens[k] > INT64_MAX / 8 || s->recorded[k] > s->tokens[k] || s->crc[k] > UINT32_MAX)
            return error_set(TL_ERROR_USE, "%s: has numbers that cannot be (--restart begins again)", path);
    return true;
}

static bool state_parse(const struct tokenize_options *o, struct tokenize_state *s, const char *path) {
    json_t *all = json_read(path, MOST_BYTES);
    if (!all) return false;
    const char *schema = json_string_value(json_object_get(all, "schema"));
    bool ok =
        (schema && !strcmp(schema, SCHEMA)) ||
        error_set(TL_ERROR_USE, "%s: is not the state of `tally tokenize` (need \"schema\": \"" SCHEMA "\")", path);
    ok = ok && identity_check(o, json_object_get(all, "made"), path) &&
         fields_read(s, json_object_get(all, "done"), path);
    json_decref(all);
    return ok;
}

bool tokenize_state_read(const struct tokenize_options *o, struct tokenize_state *s, bool *is_there) {
    char *path = state_path(o);
    enum file_kind kind = FILE_ABSENT;
    bool ok = path && file_look(file_path(path), &kind);
    *s = (struct tokenize_state){0};
    *is_there = ok && kind != FILE_ABSENT;
    if (*is_there) ok = state_parse(o, s, path);
    memory_free(path);
    return ok;
}

bool tokenize_state_write(const struct tokenize_options *o, const struct tokenize_state *s) {
    struct tokenize_state copy = *s;
    json_t *done = json_object(), *made = identity_json(o);
    bool ok = done && made;
    for (int i = 0; ok && i < FIELDS; i++)
        ok = json_object_set_new(done, fields[i].name, json_integer((json_int_t)*field(&copy, i))) == 0;
    json_t *all = json_pack("{s:s, s:o, s:o}", "schema", SCHEMA, "made", made, "done", done);
    char *text = ok && all ? json_print(all, JSON_INDENT(1) | JSON_PRESERVE_ORDER) : NULL;
    char *path = text ? state_path(o) : NULL;
    if (!text && tl_error() == TL_OK) error_memory(MOST_BYTES, "the state of the work");
    ok = path && file_put(path, text, strlen(text));
    memory_free(path);
    memory_free(text);
    json_decref(all);
    return ok;
}

bool tokenize_state_remove(const struct tokenize_options *o) {
    char *path = state_path(o);
    bool ok = path && file_remove(file_path(path));
    memory_free(path);
    return ok;
}

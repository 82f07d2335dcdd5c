#include "train/identity.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "data/token_file.h"
#include "nn/model.h"

/* ---- The model by value ---- */

enum kind { IS_SIZE, IS_NUMBER, IS_TRUTH, IS_LIST }; /* a list: 64 floats, written up to the last that is not 0 */
#define SIZE(name) \
    { #name, IS_SIZE, offsetof(tl_model_config, name), false }
#define NUMBER(name) \
    { #name, IS_NUMBER, offsetof(tl_model_config, name), false }
#define TRUTH(name) \
    { #name, IS_TRUTH, offsetof(tl_model_config, name), false }
/* What few families have: only written where it is not 0 or false. */
#define RARE(name, kind) \
    { #name, kind, offsetof(tl_model_config, name), true }
/* Except dropout, which is a separate setting, and the family, which is compared by name. */
static const struct {
    const char *name;
    enum kind kind;
    size_t at;
    bool is_rare;
} rows[] = {SIZE(n_layers),
            SIZE(n_heads),
            SIZE(n_kv_heads),
            SIZE(head_size),
            SIZE(channels),
            SIZE(ff),
            SIZE(vocabulary),
            SIZE(context),
            NUMBER(norm_eps),
            NUMBER(rope_base),
            NUMBER(init_std),
            TRUTH(is_tied),
            TRUTH(has_qkv_bias),
            NUMBER(rope_scaling.factor),
            NUMBER(rope_scaling.low_frequency),
            NUMBER(rope_scaling.high_frequency),
            SIZE(rope_scaling.original_context),
            RARE(has_out_bias, IS_TRUTH),
            RARE(has_mlp_bias, IS_TRUTH),
            RARE(window, IS_SIZE),
            RARE(window_from, IS_SIZE),
            RARE(window_every, IS_SIZE),
            RARE(rope_scaling.rule, IS_SIZE),
            RARE(rope_scaling.size, IS_SIZE),
            RARE(rope_scaling.magnitude, IS_NUMBER),
            RARE(window_rope_base, IS_NUMBER),
            RARE(query_scale, IS_NUMBER),
            RARE(is_parallel, IS_TRUTH),
            RARE(n_experts, IS_SIZE),
            RARE(n_chosen, IS_SIZE),
            RARE(expert_ff, IS_SIZE),
            RARE(is_choice_normed, IS_TRUTH),
            RARE(gate_limit, IS_NUMBER),
            RARE(attention_soft_cap, IS_NUMBER),
            RARE(logit_soft_cap, IS_NUMBER),
            RARE(plain_every, IS_SIZE),
            RARE(positions, IS_SIZE),
            RARE(has_two_norms, IS_TRUTH),
            RARE(expert_from, IS_SIZE),
            RARE(expert_every, IS_SIZE),
            RARE(n_shared, IS_SIZE),
            RARE(n_groups, IS_SIZE),
            RARE(n_groups_chosen, IS_SIZE),
            RARE(routed_scale, IS_NUMBER),
            RARE(q_rank, IS_SIZE),
            RARE(kv_rank, IS_SIZE),
            RARE(rope_head, IS_SIZE),
            RARE(value_head, IS_SIZE),
            RARE(score_yarn, IS_NUMBER),
            RARE(chunk, IS_SIZE),
            RARE(temperature_floor, IS_SIZE),
            RARE(temperature_scale, IS_NUMBER),
            RARE(has_head_norm, IS_TRUTH),
            RARE(short_slower, IS_LIST),
            RARE(long_slower, IS_LIST)};
enum { N_ROWS = sizeof rows / sizeof *rows };

static bool is_zero(const json_t *value) {
    return json_is_false(value) || (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

static json_t *list_json(const float *list) {
    json_t *json = json_array();
    int n = 64;
    while (n && list[n - 1] == 0) n--;
    for (int i = 0; i < n; i++) json_array_append_new(json, json_real((double)list[i]));
    return json;
}

static void list_read(const json_t *json, float *list) {
    for (size_t i = 0; i < 64; i++) list[i] = (float)json_number_value(json_array_get(json, i));
}

static json_t *model_json(const tl_model_config *c) {
    json_t *json = json_pack("{s:s}", "family", tl_family_name(c->family));
    bool ok = json != NULL;
    for (int i = 0; ok && i < N_ROWS; i++) {
        const void *at = (const char *)c + rows[i].at;
        json_t *value = rows[i].kind == IS_SIZE     ? json_integer(*(const int64_t *)at)
                        : rows[i].kind == IS_NUMBER ? json_real(*(const double *)at)
                        : rows[i].kind == IS_LIST   ? list_json(at)
                                                    : json_boolean(*(const bool *)at);
        if (rows[i].is_rare && is_zero(value)) json_decref(value);
        else ok = json_object_set_new(json, rows[i].name, value) == 0;
    }
    if (ok) return json;
    json_decref(json);
    return NULL;
}

bool identity_model(const json_t *record, tl_model_config *c) {
    const json_t *json = json_object_get(record, "model");
    const char *family = json_string_value(json_object_get(json, "family"));
    *c = (tl_model_config){.family = TL_FAMILY_COUNT};
    for (int f = 0; family && f < TL_FAMILY_COUNT; f++)
        if (!strcmp(family, tl_family_name((tl_family)f))) c->family = (tl_family)f;
    if (c->family == TL_FAMILY_COUNT) return false;
    for (int i = 0; i < N_ROWS; i++) {
        const json_t *value = json_object_get(json, rows[i].name);
        void *at = (char *)c + rows[i].at;
        bool ok = rows[i].kind == IS_SIZE     ? json_is_integer(value)
                  : rows[i].kind == IS_NUMBER ? json_is_number(value)
                  : rows[i].kind == IS_LIST   ? json_is_array(value)
                                              : json_is_boolean(value);
        if (!value && rows[i].is_rare) continue;
        if (!ok) return false;
        if (rows[i].kind == IS_SIZE) *(int64_t *)at = json_integer_value(value);
        else if (rows[i].kind == IS_NUMBER) *(double *)at = json_number_value(value);
        else if (rows[i].kind == IS_LIST) list_read(value, at);
        else *(bool *)at = json_is_true(value);
    }
    return true;
}

/* ---- Files by their contents ---- */

#define WHOLE_BYTES ((uint64_t)64 << 20) /* a file of up to this size is read whole */
#define BLOCK_BYTES ((uint64_t)64 << 10)
enum { STRATA = 256 };

struct reading {
    const char *path;
    int fd;
    unsigned char *buffer; /* BLOCK_BYTES */
    uint32_t crc;
};

static bool part_add(struct reading *r, uint64_t offset, uint64_t bytes) {
    while (bytes) {
        uint64_t n = bytes < BLOCK_BYTES ? bytes : BLOCK_BYTES;
        if (!file_read(r->fd, r->path, r->buffer, (size_t)n, (size_t)offset)) return false;
        r->crc = crc32c(r->crc, r->buffer, (size_t)n);
        offset += n;
        bytes -= n;
    }
    return true;
}

/* A number that depends on size and stratum alone (splitmix64). */
static uint64_t place(uint64_t bytes, uint64_t stratum) {
    uint64_t x = bytes + stratum * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static bool sample_add(struct reading *r, uint64_t bytes) {
    uint64_t stratum = bytes / STRATA;
    bool ok = part_add(r, 0, BLOCK_BYTES);
    for (uint64_t i = 0; ok && i < STRATA; i++)
        ok = part_add(r, i * stratum + place(bytes, i) % (stratum - BLOCK_BYTES + 1), BLOCK_BYTES);
    return ok && part_add(r, bytes - BLOCK_BYTES, BLOCK_BYTES);
}

/* `info`: of a token file; NULL: it is none. */
static bool contents_add(struct reading *r, uint64_t bytes, const tl_token_info *info, const char **checked) {
    *checked = bytes <= WHOLE_BYTES ? "all" : info && info->has_checksums ? "blocks" : "sample";
    if (**checked == 'a') return part_add(r, 0, bytes);
    if (**checked == 's') return sample_add(r, bytes);
    uint64_t end = info->data_begin + (uint64_t)info->count * (uint64_t)info->token_bytes;
    return part_add(r, 0, info->data_begin) && part_add(r, end, bytes - end);
}

static json_t *file_json(const char *path, int fd, uint64_t bytes, const tl_token_info *info) {
    struct reading r = {.path = path, .fd = fd, .buffer = memory_new(BLOCK_BYTES)};
    const char *checked;
    char crc[16];
    json_t *json = NULL;
    if (!r.buffer) return error_memory(BLOCK_BYTES, "a checksum"), NULL;
    if (contents_add(&r, bytes, info, &checked)) {
        snprintf(crc, sizeof crc, "%08" PRIx32, r.crc);
        json = json_pack("{s:s, s:I, s:s, s:s}", "path", path, "bytes", (json_int_t)bytes, "checked", checked, "crc32c",
                         crc);
        if (!json) error_memory(256, "a record of a file");
    }
    memory_free(r.buffer);
    return json;
}

static bool data_add(json_t *files, const char *role, const struct source_part *part) {
    const tl_token_file *file = part->text ? part->text : part->file;
    tl_token_info info;
    if (!file || !tl_token_file_info(file, &info)) return true;
    json_t *json = file_json(token_file_path(file), token_file_descriptor(file), info.file_bytes, &info);
    return json && (json_object_set_new(files, role, json) == 0 || error_memory(256, "a record of files"));
}

static bool weights_add(const char *path, const char *name, void *context) {
    char role[320];
    snprintf(role, sizeof role, "weights/%s", name);
    size_t bytes;
    int fd = file_open(path, &bytes);
    json_t *json = fd >= 0 ? file_json(path, fd, bytes, NULL) : NULL;
    if (fd >= 0) file_close(fd);
    return json && (json_object_set_new(context, role, json) == 0 || error_memory(256, "a record of files"));
}

static bool sources_add(json_t *files, const struct settings *s, const struct source *source) {
    if (!data_add(files, "data", &source->train)) return false;
    bool ok = true;
    for (int i = 0; ok && *s->val_data && i < source->n_held_out; i++) { /* else it is a part of the data */
        const char *name = source->held_out_name[i];
        char role[SETS_NAME + 16];
        snprintf(role, sizeof role, "val_data%s%s", *name ? "/" : "", name);
        ok = data_add(files, role, &source->held_out[i]);
    }
    return ok;
}

/* None for bytes, as in records of runs that knew no others. */
static bool tokenizer_add(json_t *record, const struct source *source) {
    char hash[24];
    if (!source->is_named || source->is_bytes) return true;
    snprintf(hash, sizeof hash, "%016" PRIx64, tl_tokenizer_hash(source->tokenizer));
    json_t *json = json_pack("{s:I, s:s}", "tokens", (json_int_t)tl_tokenizer_size(source->tokenizer), "hash", hash);
    return json_object_set_new(record, "tokenizer", json) == 0; /* takes NULL for failure */
}

json_t *identity_new(const struct settings *s, const tl_model_config *config, const char *weights,
                     const struct source *source) {
    json_t *model = model_json(config), *files = json_object(), *record = NULL;
    bool ok = (model && files) || error_memory(1024, "a record of what a run is made from");
    ok = ok && sources_add(files, s, source) && (!*weights || model_files(weights, weights_add, files));
    if (ok) record = json_pack("{s:O, s:O}", "model", model, "files", files);
    if (ok && (!record || !tokenizer_add(record, source))) {
        error_memory(1024, "a record of what a run is made from");
        json_decref(record);
        record = NULL;
    }
    json_decref(model);
    json_decref(files);
    return record;
}

/* ---- Two records ---- */

struct words {
    char *text;
    size_t n, size;
};

static void say(struct words *w, const char *format, ...) TL_PRINTF(2, 3);
static void say(struct words *w, const char *format, ...) {
    char part[512], whole[sizeof part];
    va_list arguments;
    va_start(arguments, format);
    number_vprint(part, sizeof part, format, arguments);
    va_end(arguments);
    text_show(whole, sizeof whole, part); /* paths and records come from outside */
    size_t bytes = strlen(whole), gap = w->n ? 2 : 0;
    if (w->n + gap + bytes + 1 > w->size) return;
    memcpy(w->text + w->n, "; ", gap);
    memcpy(w->text + w->n + gap, whole, bytes + 1);
    w->n += gap + bytes;
}

static const char *value_text(const json_t *value, char *text, size_t size) {
    if (json_is_string(value)) text_copy(text, size, json_string_value(value));
    else if (json_is_integer(value)) snprintf(text, size, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value)) number_print(text, size, "%.9g", json_real_value(value));
    else snprintf(text, size, "%s", json_is_true(value) ? "true" : json_is_false(value) ? "false" : "not known");
    return text;
}

static void model_compare(struct words *w, const json_t *then, const json_t *now) {
    const char *name;
    json_t *value;
    char was[64], is[64];
    json_object_foreach((json_t *)(uintptr_t)now, name, value) {
        const json_t *before = json_object_get(then, name);
        if (before && (json_equal(before, value) ||
                       (json_is_number(before) && json_is_number(value) &&
                        json_number_value(before) == json_number_value(value) && !json_is_integer(value))))
            continue;
        say(w, "model: %s was %s, is %s", name, value_text(before, was, sizeof was), value_text(value, is, sizeof is));
    }
}

static const char *text_in(const json_t *file, const char *key) {
    const char *text = json_string_value(json_object_get(file, key));
    return text ? text : "?";
}

/* The end of a long path is more informative than its beginning. */
static const char *path_in(const json_t *file) {
    const char *path = text_in(file, "path");
    size_t length = strlen(path);
    if (length > 160)
        for (path += length - 160; ((unsigned char)*path & 0xc0) == 0x80;) path++;
    return path;
}

/* One of them may be missing. */
static void file_compare(struct words *w, const char *role, const json_t *then, const json_t *now) {
    const json_t *was = json_object_get(then, "bytes"), *is = json_object_get(now, "bytes");
    if (!then) say(w, "%s: there was none, now there is %s", role, path_in(now));
    else if (!now) say(w, "%s: was %s, now there is none", role, path_in(then));
    else if (!json_equal(was, is))
        say(w, "%s: had %" JSON_INTEGER_FORMAT " bytes, has %" JSON_INTEGER_FORMAT " (%s)", role,
            json_integer_value(was), json_integer_value(is), path_in(now));
    else if (strcmp(text_in(then, "crc32c"), text_in(now, "crc32c")) ||
             strcmp(text_in(then, "checked"), text_in(now, "checked")))
        say(w, "%s: other contents of the same size: CRC32C (%s) was %s, is %s (%s)", role, text_in(now, "checked"),
            text_in(then, "crc32c"), text_in(now, "crc32c"), path_in(now));
}

static void files_compare(struct words *w, const json_t *then, const json_t *now) {
    const char *role;
    json_t *file;
    json_object_foreach((json_t *)(uintptr_t)now, role, file) file_compare(w, role, json_object_get(then, role), file);
    json_object_foreach((json_t *)(uintptr_t)then, role, file) if (!json_object_get(now, role))
        file_compare(w, role, file, NULL);
}

/* One of them may be missing: bytes, or a file of tokens without a tokenizer. */
static void tokenizer_compare(struct words *w, const json_t *then, const json_t *now) {
    if (then == now || (then && now && json_equal(then, now))) return;
    char was[64], is[64];
    const json_t *both[2] = {then, now};
    for (int i = 0; i < 2; i++) {
        char *text = i ? is : was;
        if (!both[i]) snprintf(text, 64, "none");
        else
            snprintf(text, 64, "%" JSON_INTEGER_FORMAT " tokens, %.16s",
                     json_integer_value(json_object_get(both[i], "tokens")), text_in(both[i], "hash"));
    }
    say(w, "tokenizer: was %s, is %s", was, is);
}

const char *identity_compare(const json_t *then, const json_t *now, char *text, size_t size) {
    struct words w = {.text = text, .size = size};
    const json_t *model = json_object_get(then, "model"), *files = json_object_get(then, "files");
    *text = 0;
    if (!json_is_object(model) || !json_is_object(files)) say(&w, "its record of data and model cannot be read");
    else {
        model_compare(&w, model, json_object_get(now, "model"));
        tokenizer_compare(&w, json_object_get(then, "tokenizer"), json_object_get(now, "tokenizer"));
        files_compare(&w, files, json_object_get(now, "files"));
    }
    return text;
}

bool identity_check_data(const json_t *then, const struct settings *s, const struct source *source) {
    const json_t *before = json_object_get(then, "files");
    char text[640] = "";
    struct words w = {.text = text, .size = sizeof text};
    if (!before) return true;
    json_t *now = json_object();
    bool ok = now ? sources_add(now, s, source) : error_memory(256, "a record of files");
    json_t *then_data = json_object();
    ok = ok && (then_data || error_memory(256, "a record of files"));
    const char *role;
    json_t *file;
    json_object_foreach((json_t *)(uintptr_t)before, role, file) if (strncmp(role, "weights/", 8))
        json_object_set(then_data, role, file);
    if (ok) files_compare(&w, then_data, now);
    json_decref(then_data);
    json_decref(now);
    return ok &&
           (!*text ||
            error_set(TL_ERROR_USE,
                      "the run's data has changed since training: %s (give --data to evaluate other data)", text));
}

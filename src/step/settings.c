/* settings.c: reading, writing and comparing settings, all from one table. See settings_list.h. */
#include "step/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "step/groups.h"
#include "step/preference.h"
#include "step/sets.h"
#include "step/tuning.h"

enum kind { IS_GROUP, IS_INTEGER, IS_REAL, IS_TEXT, IS_CHOICE, IS_TRUTH };
enum role { IDENTITY, CONTENTS, LENGTH, PRICED, FREE, ONCE }; /* see settings_list.h */

struct setting {
    enum kind kind;
    enum role role;
    const char *name;   /* a group's title */
    size_t offset;      /* in struct settings */
    const char *value;  /* the default, as text */
    double least, most; /* exact: every bound is below 2^53; most: of a text, its bytes with the last 0 */
    const char *choices, *help;
};

static const struct setting table[] = {
#define AT(name) offsetof(struct settings, name)
#define GROUP(title) {IS_GROUP, FREE, title, 0, NULL, 0, 0, NULL, NULL},
#define INTEGER(name, role, value, least, most, help) \
    {IS_INTEGER, role, #name, AT(name), #value, least, most, NULL, help},
#define REAL(name, role, value, least, most, help) {IS_REAL, role, #name, AT(name), #value, least, most, NULL, help},
#define TEXT(name, role, value, help) {IS_TEXT, role, #name, AT(name), value, 0, SETTING_TEXT, NULL, help},
#define WORD(name, role, value, help) {IS_TEXT, role, #name, AT(name), value, 0, SETTING_WORD, NULL, help},
#define CHOICE(name, role, value, choices, help) {IS_CHOICE, role, #name, AT(name), value, 0, 0, choices, help},
#define TRUTH(name, role, value, help) {IS_TRUTH, role, #name, AT(name), #value, 0, 0, NULL, help},
#include "step/settings_list.h"
};
enum { N_TABLE = sizeof table / sizeof *table };
_Static_assert(N_TABLE <= 128, "bits of struct settings");

/* weight_decay and weight-decay are the same. */
static const struct setting *setting_find(const char *name) {
    char plain[64];
    text_copy(plain, sizeof plain, name);
    for (char *at = plain; *at; at++)
        if (*at == '-') *at = '_';
    for (int i = 0; i < N_TABLE; i++)
        if (table[i].kind != IS_GROUP && !strcmp(table[i].name, plain)) return &table[i];
    return NULL;
}

const char *settings_usual(const char *name) {
    const struct setting *row = setting_find(name);
    INVARIANT(row);
    return row->value;
}

static void *field(const struct settings *s, const struct setting *row) { return (char *)s + row->offset; }

/* ---- Choices: "one|two|three" ---- */

/* The place of `text` among the choices; -1: it is none of them. */
static int choice_find(const char *choices, const char *text, size_t length) {
    const char *end = choices + strlen(choices), *choice;
    size_t n;
    for (int i = 0; text_choice(&choices, end, &choice, &n); i++)
        if (n == length && !memcmp(choice, text, n)) return i;
    return -1;
}

static const char *choice_text(const struct setting *row, int place, char *buffer, size_t size) {
    const char *at = row->choices;
    for (; place > 0; place--) at += strcspn(at, "|") + 1;
    snprintf(buffer, size, "%.*s", (int)strcspn(at, "|"), at);
    return buffer;
}

const char *settings_choice(const struct settings *s, const char *name) {
    static _Thread_local char text[64];
    const struct setting *row = setting_find(name);
    INVARIANT(row && row->kind == IS_CHOICE);
    return choice_text(row, *(int *)field(s, row), text, sizeof text);
}

/* ---- Setting one ---- */

static bool refuse(const struct setting *row, const char *value, const char *need) {
    return error_set(TL_ERROR_USE, "%s: \"%s\" is not %s", row->name, value, need);
}

/* "1e4", "10k", "10,000" and "10_000" are 10000; -1: no such number. */
static int64_t whole_meant(const char *value) {
    static const char suffixes[] = "kKmMbB";
    static const double factors[] = {1e3, 1e3, 1e6, 1e6, 1e9, 1e9};
    char digits[32], *end;
    size_t n = 0;
    for (; *value && n < sizeof digits - 1; value++)
        if (*value != ',' && *value != '_') digits[n++] = *value;
    digits[n] = 0;
    double x = number_parse(digits, &end);
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    if (suffix) x *= factors[suffix - suffixes], end++;
    return n && !*end && x >= 0 && x < 9e15 && x == floor(x) ? (int64_t)x : -1;
}

static bool set_integer(struct settings *s, const struct setting *row, const char *value) {
    char *end, need[160];
    errno = 0;
    long long n = strtoll(value, &end, 10);
    number_print(need, sizeof need, "a whole number from %.0f to %.0f", row->least, row->most);
    int64_t meant = whole_meant(value);
    if (meant >= 0 && *end && (double)meant >= row->least && (double)meant <= row->most)
        number_print(need + strlen(need), sizeof need - strlen(need), " (write %" PRId64 ")", meant);
    if (!*value || *end || errno || (double)n < row->least || (double)n > row->most) return refuse(row, value, need);
    *(int64_t *)field(s, row) = n;
    return true;
}

static bool set_real(struct settings *s, const struct setting *row, const char *value) {
    char *end, need[96];
    double x = number_parse(value, &end);
    number_print(need, sizeof need, "a number from %g to %g", row->least, row->most);
    if (!*value || *end || !(x >= row->least && x <= row->most)) return refuse(row, value, need);
    *(double *)field(s, row) = x;
    return true;
}

static bool set_text(struct settings *s, const struct setting *row, const char *value) {
    if (!text_is_utf8(value)) return refuse(row, "?", "UTF-8 text");
    const int most = (int)row->most;
    char need[32];
    snprintf(need, sizeof need, "shorter than %d bytes", most);
    if (strlen(value) >= (size_t)most) return refuse(row, "...", need);
    strcpy(field(s, row), value);
    return true;
}

/* What others call it, or the nearest: ", did you mean ...?" */
struct meant {
    char text[TEXT_MEANT];
};
static struct meant choice_meant(const struct setting *row, const char *value) {
    static const char *const aliases[][2] = {
        {"bf16", "bfloat16"}, {"fp32", "float32"}, {"fp32", "f32"},      {"fp32", "float"},     {"fp16", "float16"},
        {"fp16", "f16"},      {"fp16", "half"},    {"amp", "mixed"},     {"amp", "tf32"},       {"fp8", "float8"},
        {"zero1", "1"},       {"zero2", "2"},      {"zero3", "3"},       {"zero3", "fsdp"},     {"full", "true"},
        {"full", "all"},      {"cosine", "cos"},   {"constant", "none"}, {"bf16", "bf16-mixed"}};
    char lower[32], known[16][32];
    const char *names[16], *near = NULL;
    int n = 0;
    struct meant m;
    text_copy(lower, sizeof lower, value);
    for (char *at = lower; *at; at++) *at = text_lower(*at);
    const char *at = row->choices, *end = at + strlen(at), *choice;
    for (size_t length; n < 16 && text_choice(&at, end, &choice, &length); n++) {
        snprintf(known[n], sizeof known[n], "%.*s", (int)length, choice);
        names[n] = known[n];
    }
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (!strcmp(aliases[i][1], lower) && choice_find(row->choices, aliases[i][0], strlen(aliases[i][0])) >= 0)
            near = aliases[i][0];
    text_meant(m.text, near ? near : text_nearest(lower, names, n));
    return m;
}

static bool set_choice(struct settings *s, const struct setting *row, const char *value) {
    char need[160];
    int place = choice_find(row->choices, value, strlen(value));
    snprintf(need, sizeof need, "one of %s%s", row->choices, place < 0 ? choice_meant(row, value).text : "");
    if (place < 0) return refuse(row, value, need);
    *(int *)field(s, row) = place;
    return true;
}

static bool set_truth(struct settings *s, const struct setting *row, const char *value) {
    bool is_true = !strcmp(value, "true");
    if (!is_true && strcmp(value, "false")) return refuse(row, value, "true or false");
    *(bool *)field(s, row) = is_true;
    return true;
}

static bool set_row(struct settings *s, const struct setting *row, const char *value) {
    switch (row->kind) {
    case IS_INTEGER:
        return set_integer(s, row, value);
    case IS_REAL:
        return set_real(s, row, value);
    case IS_TEXT:
        s->ready = NULL; /* of another text, or of another kind */
        return set_text(s, row, value);
    case IS_CHOICE:
        return set_choice(s, row, value);
    default:
        return set_truth(s, row, value);
    }
}

static void bit_set(uint64_t bits[2], const struct setting *row) {
    const size_t i = (size_t)(row - table);
    bits[i / 64] |= UINT64_C(1) << i % 64;
}
static bool bit_is_set(const uint64_t bits[2], const struct setting *row) {
    const size_t i = (size_t)(row - table);
    return bits[i / 64] >> i % 64 & 1;
}

static bool no_such_setting(const char *name) {
    const char *known[N_TABLE];
    int n = 0;
    for (int i = 0; i < N_TABLE; i++)
        if (table[i].kind != IS_GROUP) known[n++] = table[i].name;
    char meant[TEXT_MEANT];
    return error_set(TL_ERROR_USE, "there is no setting \"%s\"%s", name,
                     text_meant(meant, text_nearest(name, known, n)));
}

bool settings_set(struct settings *s, const char *name, const char *value) {
    const struct setting *row = setting_find(name);
    if (!row) return no_such_setting(name);
    bit_set(s->given, row);
    return set_row(s, row, value);
}

bool settings_set_flag(struct settings *s, const char *name, const char *value) {
    char both[SETTING_TEXT + 1]; /* cut, it is still too long */
    if (strcmp(name, "val_data") || !sets_is_named(s->val_data) || !sets_is_named(value))
        return settings_set(s, name, value);
    snprintf(both, sizeof both, "%s,%s", s->val_data, value);
    return settings_set(s, name, both);
}

bool settings_is_given(const struct settings *s, const char *name) {
    const struct setting *row = setting_find(name);
    INVARIANT(row);
    return bit_is_set(s->given, row);
}

void settings_choose(struct settings *s, const char *name, const char *value) {
    const struct setting *row = setting_find(name);
    INVARIANT(row);
    if (bit_is_set(s->given, row)) return;
    bool ok = set_row(s, row, value);
    INVARIANT(ok);
    bit_set(s->adapted, row);
}

struct settings settings_default(void) {
    struct settings s;
    memset(&s, 0, sizeof s);
    for (int i = 0; i < N_TABLE; i++) {
        bool ok = table[i].kind == IS_GROUP || set_row(&s, &table[i], table[i].value);
        INVARIANT(ok); /* a default of the table is wrong */
    }
    return s;
}

/* ---- Files ---- */

static bool set_json(struct settings *s, const char *path, const char *name, json_t *value) {
    const struct setting *row = setting_find(name);
    char number[64];
    const char *text = NULL;
    if (!row) return no_such_setting(name);
    bool is_text = row->kind == IS_TEXT || row->kind == IS_CHOICE;
    if (is_text) text = json_string_value(value);
    else if (row->kind == IS_TRUTH && json_is_boolean(value)) text = json_is_true(value) ? "true" : "false";
    else if (row->kind == IS_INTEGER && json_is_integer(value))
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value)), text = number;
    else if (row->kind == IS_REAL && json_is_number(value))
        number_print(number, sizeof number, "%.17g", json_number_value(value)), text = number;
    if (!text)
        return error_set(TL_ERROR_USE, "%s: \"%s\" has the wrong type (need %s)", path, name,
                         is_text                   ? "a string"
                         : row->kind == IS_TRUTH   ? "true or false"
                         : row->kind == IS_INTEGER ? "a whole number"
                                                   : "a number");
    bit_set(s->given, row);
    return set_row(s, row, text);
}

#define LARGEST_FILE ((size_t)1 << 20)

bool settings_take_json(struct settings *s, const char *where, const json_t *object) {
    json_t *value;
    bool ok = json_is_object(object) || error_set(TL_ERROR_USE, "%s: settings are a JSON object", where);
    const char *name;
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        if (ok) ok = set_json(s, where, name, value);
    }
    return ok;
}

bool settings_read_at(struct settings *s, struct file_place at) {
    char path[FILE_TEXT];
    json_t *root = json_read_at(at, LARGEST_FILE);
    bool ok = root && settings_take_json(s, file_text(at, path), root);
    json_decref(root);
    return ok;
}

bool settings_take(struct settings *s, const char *json) {
    json_error_t problem;
    if (!json) return true;
    json_t *root = json_parse(json, &problem);
    if (!root) return error_set(TL_ERROR_USE, "settings: %s (character %d)", problem.text, problem.position);
    bool ok = settings_take_json(s, "settings", root);
    json_decref(root);
    return ok;
}

static json_t *row_json(const struct settings *s, const struct setting *row) {
    char text[64];
    switch (row->kind) {
    case IS_INTEGER:
        return json_integer(*(int64_t *)field(s, row));
    case IS_REAL:
        return json_real(*(double *)field(s, row));
    case IS_TEXT:
        return json_string(field(s, row));
    case IS_CHOICE:
        return json_string(choice_text(row, *(int *)field(s, row), text, sizeof text));
    default:
        return json_boolean(*(bool *)field(s, row));
    }
}

char *settings_json(const struct settings *s) {
    json_t *root = json_object();
    bool ok = root != NULL;
    for (int i = 0; ok && i < N_TABLE; i++)
        if (table[i].kind != IS_GROUP) ok = json_object_set_new(root, table[i].name, row_json(s, &table[i])) == 0;
    char *text = ok ? json_print(root, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    if (!text) error_memory(4096, "settings");
    return text;
}

/* ---- Rows, for --help ---- */

const struct setting_row *settings_row(int index) {
    static _Thread_local struct setting_row row;
    static const char *const kinds[] = {[IS_INTEGER] = "N", [IS_REAL] = "X", [IS_TEXT] = "TEXT", [IS_TRUTH] = ""};
    int at = 0;
    const char *group = NULL;
    for (; at < N_TABLE; at++) {
        if (table[at].kind == IS_GROUP) group = table[at].name;
        else if (index-- == 0) break;
        else group = NULL;
    }
    if (at == N_TABLE) return NULL;
    const struct setting *s = &table[at];
    row = (struct setting_row){group,    s->name, s->kind == IS_CHOICE ? s->choices : kinds[s->kind],
                               s->value, s->help, s->role != IDENTITY && s->role != CONTENTS};
    return &row;
}

/* ---- Combinations ---- */

uint64_t settings_memory_limit(const struct settings *s) {
    uint64_t bytes = 0;
    return *s->memory_limit && text_size(s->memory_limit, &bytes) ? bytes : 0;
}

static bool batch_warmup_refuse(const struct settings *s) {
    if (s->accum < 2)
        return error_set(TL_ERROR_USE,
                         "batch_warmup: a step has one micro-batch from the start (need --accum 2 or more)");
    if (s->pp > 1)
        return error_set(TL_ERROR_USE,
                         "batch_warmup: the stages of a pipeline take all --accum %" PRId64
                         " micro-batches in every step (need --pp 1)",
                         s->accum);
    return error_set(TL_ERROR_USE,
                     "batch_warmup: %" PRId64 " steps of warm-up leave none of the run's %" PRId64
                     " for whole batches (need fewer than --steps)",
                     s->batch_warmup, s->steps);
}

/* What is measured in the run, and ends it. */
static bool measuring_check(const struct settings *s) {
    struct sets sets;
    if (!sets_read(&sets, s->val_data)) return false;
    if (s->early_stop && (!s->eval_every || (!*s->val_data && s->val_share == 0)))
        return error_set(TL_ERROR_USE, "early_stop: there are no evaluations to wait for (need %s)",
                         s->eval_every ? "--val-data or --val-share" : "--eval-every above 0");
    const bool is_free = !strcmp(settings_choice(s, "optimizer"), "schedule-free");
    if (is_free && strcmp(settings_choice(s, "schedule"), "constant"))
        return error_set(TL_ERROR_USE, "schedule: the optimizer schedule-free has none (need --schedule constant)");
    if (is_free && (s->ema > 0 || s->beta1 == 0))
        return error_set(TL_ERROR_USE, "%s: the optimizer schedule-free %s", s->ema > 0 ? "ema" : "beta1",
                         s->ema > 0 ? "has an average of its own (need --ema 0)" : "needs --beta1 above 0");
    if (s->batch_warmup && (s->accum < 2 || s->pp > 1 || s->batch_warmup >= s->steps)) return batch_warmup_refuse(s);
    if (s->noise_scale && s->accum < 2)
        return error_set(TL_ERROR_USE,
                         "noise_scale: compares one micro-batch with all of a step, which has %" PRId64
                         " (need --accum 2 or more)",
                         s->accum);
    return true;
}

bool settings_check(const struct settings *s) {
    if (*s->memory_limit && !settings_memory_limit(s))
        return error_set(TL_ERROR_USE, "memory_limit: \"%s\" is not a number of bytes (need 2GiB, 800MB, 123456)",
                         s->memory_limit);
    if (!*s->out) return error_set(TL_ERROR_USE, "out: is empty (need a folder)");
    if (s->warmup > s->steps)
        return error_set(TL_ERROR_USE, "warmup: %" PRId64 " steps of warm-up exceed the run's %" PRId64, s->warmup,
                         s->steps);
    if (settings_has_chat(s) && (s->sampling || s->document_token >= 0 || !strcmp(s->data, "builtin")))
        return error_set(TL_ERROR_USE, "chat: %s (need %s)",
                         s->sampling              ? "windows that begin anywhere cut conversations"
                         : s->document_token >= 0 ? "conversations are the documents"
                                                  : "the built-in stories are no conversations",
                         s->sampling              ? "--sampling epochs"
                         : s->document_token >= 0 ? "no --document-token"
                                                  : "--data FILE.jsonl");
    if (s->document_token >= 0 && !s->document_mask)
        return error_set(TL_ERROR_USE, "document_token: %" PRId64 " has no use without --document-mask true",
                         s->document_token);
    if (!measuring_check(s) || !tuning_check(s) || !preference_check(s)) return false;
    const char *optimizer = settings_choice(s, "optimizer");
    if (s->moments && strcmp(optimizer, "adamw") && strcmp(optimizer, "adam") && strcmp(optimizer, "muon"))
        return error_set(TL_ERROR_USE,
                         "moments: the optimizer %s has no moments of adam or adamw that could be narrower (need "
                         "--moments f32, or --optimizer adamw, adam or muon)",
                         optimizer);
    struct group group;
    if (!groups_find(s->groups, NULL, &group)) return false;
    if (s->nesterov && s->momentum == 0) return error_set(TL_ERROR_USE, "nesterov: needs a momentum");
    return s->lr > 0 || error_set(TL_ERROR_USE, "lr: is 0 (need a learning rate above 0)");
}

static bool is_same(const struct settings *a, const struct settings *b, const struct setting *row) {
    const void *x = field(a, row), *y = field(b, row);
    return row->kind == IS_TEXT     ? !strcmp(x, y)
           : row->kind == IS_REAL   ? *(double *)x == *(double *)y
           : row->kind == IS_TRUTH  ? *(bool *)x == *(bool *)y
           : row->kind == IS_CHOICE ? *(int *)x == *(int *)y
                                    : *(int64_t *)x == *(int64_t *)y;
}

/* Whether two are the same in every row of these roles. */
static bool same_in(const struct settings *a, const struct settings *b, unsigned roles) {
    bool same = true;
    for (int i = 0; i < N_TABLE; i++)
        same = same && (table[i].kind == IS_GROUP || !(roles >> table[i].role & 1) || is_same(a, b, &table[i]));
    return same;
}

bool settings_are_same(const struct settings *a, const struct settings *b) { return same_in(a, b, ~0u); }

bool settings_cost_same(const struct settings *a, const struct settings *b) {
    return same_in(a, b, ~(1u << FREE | 1u << ONCE));
}

/* ---- The settings that a run was started with ---- */

/* As a flag: " --batch 2". Returns its length, as snprintf does. */
static size_t flag_print(char *to, size_t room, const struct settings *s, const struct setting *row) {
    char name[64], choice[64], shown[128];
    const void *value = field(s, row);
    snprintf(name, sizeof name, "%s", row->name);
    for (char *at = name; *at; at++) *at = *at == '_' ? '-' : *at;
    int n = row->kind == IS_INTEGER ? snprintf(to, room, " --%s %" PRId64, name, *(const int64_t *)value)
            : row->kind == IS_REAL  ? number_print(to, room, " --%s %.9g", name, *(const double *)value)
            : row->kind == IS_TEXT
                ? snprintf(to, room, " --%s \"%s\"", name, text_show(shown, sizeof shown, (const char *)value))
            : row->kind == IS_CHOICE
                ? snprintf(to, room, " --%s %s", name, choice_text(row, *(const int *)value, choice, sizeof choice))
                : snprintf(to, room, " --%s %s", name, *(const bool *)value ? "true" : "false");
    return n < 0 ? 0 : (size_t)n;
}

/* The rows in which they differ, as flags of one of them. Flags that do not fit are left out. */
static size_t flags_print(char *to, size_t room, const struct settings *then, const struct settings *now,
                          unsigned roles, bool is_now) {
    size_t n = 0;
    for (int i = 0; i < N_TABLE; i++) {
        const struct setting *row = &table[i];
        if (row->kind == IS_GROUP || !(roles >> row->role & 1) || is_same(then, now, row)) continue;
        char flag[256];
        size_t bytes = flag_print(flag, sizeof flag, is_now ? now : then, row);
        if (n + bytes + 1 > room) continue;
        memcpy(to + n, flag, bytes + 1);
        n += bytes;
    }
    return n;
}

void settings_take_from(struct settings *s, const char *name, const struct settings *other) {
    static const size_t sizes[] = {[IS_INTEGER] = sizeof(int64_t),
                                   [IS_REAL] = sizeof(double),
                                   [IS_CHOICE] = sizeof(int),
                                   [IS_TRUTH] = sizeof(bool),
                                   [IS_TEXT] = SETTING_TEXT};
    const struct setting *row = setting_find(name);
    INVARIANT(row);
    if (bit_is_set(s->given, row) || is_same(s, other, row)) return;
    memcpy(field(s, row), field(other, row), sizes[row->kind]);
    bit_set(s->adapted, row);
}

const char *settings_chosen(const struct settings *s, bool has_optimizer, char *text, size_t size) {
    size_t n = 0;
    bool is_optimizer = false;
    *text = 0;
    for (int i = 0; i < N_TABLE; i++) {
        char flag[256];
        if (table[i].kind == IS_GROUP) is_optimizer = !strcmp(table[i].name, "Optimizer");
        if (table[i].kind == IS_TEXT) continue; /* the prompt, which follows the data and not the model */
        if (!bit_is_set(s->adapted, &table[i]) || (is_optimizer && !has_optimizer)) continue;
        size_t bytes = flag_print(flag, sizeof flag, s, &table[i]);
        if (n + bytes + 1 > size) break;
        memcpy(text + n, flag, bytes + 1);
        n += bytes;
    }
    return text + (*text == ' ');
}

const char *settings_conflict(const struct settings *then, const struct settings *now, bool by_name, char *text,
                              size_t size) {
    static const char was[] = "this run was started with", is[] = "; you gave";
    unsigned roles = 1u << IDENTITY | (by_name ? 1u << CONTENTS : 0);
    *text = 0;
    if (same_in(then, now, roles) || size < sizeof was + sizeof is) return text;
    size_t half = (size - sizeof was - sizeof is) / 2, n = sizeof was - 1;
    memcpy(text, was, n);
    n += flags_print(text + n, half, then, now, roles, false);
    memcpy(text + n, is, sizeof is - 1);
    n += sizeof is - 1;
    flags_print(text + n, half, then, now, roles, true);
    return text;
}

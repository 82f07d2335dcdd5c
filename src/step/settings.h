/* settings.h: the settings of a run. */
#ifndef STEP_SETTINGS_H
#define STEP_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/file.h"
#include "tally.h"

#define SETTING_TEXT 1024
#define SETTING_WORD 256

struct settings {
#define GROUP(title)
#define INTEGER(name, role, value, least, most, help) int64_t name;
#define REAL(name, role, value, least, most, help) double name;
#define TEXT(name, role, value, help) char name[SETTING_TEXT];
#define WORD(name, role, value, help) char name[SETTING_WORD];
#define CHOICE(name, role, value, choices, help) int name; /* its place among the choices */
#define TRUTH(name, role, value, help) bool name;
#include "step/settings_list.h"
#undef GROUP
#undef INTEGER
#undef REAL
#undef TEXT
#undef WORD
#undef CHOICE
#undef TRUTH
    /* No settings: */
    tl_tokenizer *ready;           /* the tokenizer that is made from the data (tokens_ready), if it is; borrowed */
    uint64_t given[2], adapted[2]; /* a bit for each: whether it was set by name; whether it was chosen (defaults.h) */
};

struct settings settings_default(void);
const char *settings_usual(const char *name); /* the default of one, as text */
/* Sets one by its name, from text. False: an error that names the setting, the value given and the values allowed, or
 * a similar name if there is no such setting. */
bool settings_set(struct settings *s, const char *name, const char *value);
/* The same for a flag: a named set of val_data is added to those that are there. */
bool settings_set_flag(struct settings *s, const char *name, const char *value);
/* Whether one was set by its name, from text or from a file. */
bool settings_is_given(const struct settings *s, const char *name);
/* Sets one that was not given, to a value that is allowed; and to that of other settings. */
void settings_choose(struct settings *s, const char *name, const char *value);
void settings_take_from(struct settings *s, const char *name, const struct settings *other);
/* Those that were chosen, as flags: "--recipe bf16 --seq 4096"; "": none. Without `has_optimizer`, those of the
 * optimizer are left out: they cost nothing. */
const char *settings_chosen(const struct settings *s, bool has_optimizer, char *text, size_t size);
/* A JSON object with some of the settings. */
bool settings_read_at(struct settings *s, struct file_place at);
static inline bool settings_read(struct settings *s, const char *path) { return settings_read_at(s, file_path(path)); }
/* The same from a text; NULL: none of them. */
bool settings_take(struct settings *s, const char *json);
/* The same from an object; `where` is for messages. */
bool settings_take_json(struct settings *s, const char *where, const json_t *object);
/* All of them as a JSON object, malloc'ed; numbers round-trip. NULL: recorded. */
char *settings_json(const struct settings *s);
/* One of the seeds: its own, or the general one if it is -1. */
static inline uint64_t settings_seed(const struct settings *s, int64_t own) {
    return (uint64_t)(own < 0 ? s->seed : own);
}
/* memory_limit in bytes; 0: none is set. */
uint64_t settings_memory_limit(const struct settings *s);
/* Whether both have the same price, as long as settings_conflict refuses neither. */
bool settings_cost_same(const struct settings *a, const struct settings *b);
bool settings_are_same(const struct settings *a, const struct settings *b);
/* Checks combinations of settings. */
bool settings_check(const struct settings *s);
/* The text of a choice: settings_choice(s, "recipe") is "bf16". */
const char *settings_choice(const struct settings *s, const char *name);

/* Whether the data is conversations. */
static inline bool settings_has_chat(const struct settings *s) { return s->chat != 0; }

/* Whether the data is pairs of answers of which one is preferred. */
static inline bool settings_has_preference(const struct settings *s) { return s->preference != 0; }

/* Whether the data is JSONL of answers, which are learned, and of their context, which is not. */
static inline bool settings_has_answers(const struct settings *s) {
    return settings_has_chat(s) || settings_has_preference(s);
}

/* Tokens of a row of a micro-batch: a sequence, or the two of a pair. */
static inline int64_t settings_window(const struct settings *s) {
    return settings_has_preference(s) ? 2 * s->seq : s->seq;
}

/* Whether attention stays inside documents. */
static inline bool settings_has_documents(const struct settings *s) { return s->document_mask || settings_has_chat(s); }

/* For --help and for flags: one row of the table; NULL after the last. */
struct setting_row {
    const char *group;                      /* the title of the part it begins, or NULL */
    const char *name, *kind, *value, *help; /* kind: "N", "X", "TEXT", "a|b", ""; value: the default as text */
    bool may_change;                        /* when a run resumes */
};
const struct setting_row *settings_row(int index);

/* The settings of a run's identity in which two differ, as words with both values ("this run was started with --batch
 * 2; you gave --batch 4"); "": none. Settings whose contents count are compared by their words only with `by_name`,
 * where there is nothing better. */
const char *settings_conflict(const struct settings *then, const struct settings *now, bool by_name, char *text,
                              size_t size);

#endif

#include "cli/generate_prompts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "step/tokens.h"

static const char NO_TOKENIZER[] = "this model has no tokenizer, and its tokens are not bytes: give --tokenizer PATH, "
                                   "or the prompt as token ids (--ids 464,3290)";

static int refuse(const char *problem) { return fprintf(stderr, "tally generate: %s\n", problem), EXIT_INPUT; }

/* Takes over the ids; NULL is a lack of memory. */
static int prompt_add(struct prompts *p, int64_t *ids, int64_t n) {
    bool ok = ids && memory_grow((void **)&p->at, &p->capacity, p->n, sizeof *p->at);
    if (ok) p->at[p->n++] = (struct prompt){ids, n};
    else memory_free(ids);
    return ok ? 0 : (refuse("out of memory for the prompts"), EXIT_MEMORY);
}

static int text_add(struct prompts *p, const struct prompts_source *from, const char *text) {
    int64_t *ids = NULL, n = 0;
    if (!from->tokenizer) return refuse(NO_TOKENIZER);
    if (!tokens_of_prompt(from->tokenizer, text, from->has_template, &ids, &n)) return cli_error_of("generate");
    return prompt_add(p, ids, n);
}

/* ---- Ids ---- */

/* "464, 3290": each below the vocabulary. -1: one is not. With `ids` NULL they are only counted. */
static int64_t ids_read(const char *text, int64_t vocabulary, int64_t *ids) {
    int64_t n = 0;
    for (const char *at = text;; at++) {
        char *end;
        long long id = strtoll(at, &end, 10);
        if (end == at || id < 0 || id >= vocabulary) return -1;
        if (ids) ids[n] = id;
        n++;
        at = end + strspn(end, " ");
        if (!*at) return n;
        if (*at != ',') return -1;
    }
}

static int ids_add(struct prompts *p, const struct prompts_source *from, const char *text) {
    int64_t n = ids_read(text, from->vocabulary, NULL);
    if (n < 1) return refuse("--ids: need numbers of tokens with commas between, each below the vocabulary");
    int64_t *ids = memory_new((size_t)n * sizeof *ids);
    if (ids) ids_read(text, from->vocabulary, ids);
    return prompt_add(p, ids, n);
}

/* ---- A file ---- */

enum { MOST_BYTES = 64 << 20 };

/* A JSON array of ids. */
static int array_add(struct prompts *p, const struct prompts_source *from, const json_t *array, int64_t line) {
    size_t n = json_array_size(array);
    int64_t *ids = memory_new((n ? n : 1) * sizeof *ids);
    for (size_t i = 0; ids && i < n; i++) {
        const json_t *id = json_array_get(array, i);
        ids[i] = json_is_integer(id) ? json_integer_value(id) : -1;
        if (ids[i] >= 0 && ids[i] < from->vocabulary) continue;
        memory_free(ids);
        return fprintf(stderr, "tally generate: %s: line %" PRId64 ": need token ids from 0 to %" PRId64 "\n",
                       from->file, line, from->vocabulary - 1),
               EXIT_INPUT;
    }
    if (ids && !n) {
        memory_free(ids);
        return fprintf(stderr, "tally generate: %s: line %" PRId64 ": a prompt needs at least one token\n", from->file,
                       line),
               EXIT_INPUT;
    }
    return prompt_add(p, ids, (int64_t)n);
}

static int record_add(struct prompts *p, const struct prompts_source *from, const char *text, int64_t line) {
    const char *field = from->field ? from->field : "prompt";
    json_error_t problem = {0};
    json_t *record = json_parse(text, &problem);
    const json_t *value = json_object_get(record, field);
    int code;
    if (json_is_string(value)) code = text_add(p, from, json_string_value(value));
    else if (json_is_array(value)) code = array_add(p, from, value, line);
    else {
        code = EXIT_INPUT;
        fprintf(stderr, "tally generate: %s: line %" PRId64 ": %s", from->file, line,
                record ? "has no text or ids in its field" : "is not JSON");
        if (record) fprintf(stderr, " \"%s\" (--field names another)\n", field);
        else fprintf(stderr, ": %s\n", problem.text);
    }
    json_decref(record);
    return code;
}

static bool is_jsonl(const struct prompts_source *from) {
    static const char end[] = ".jsonl";
    size_t n = strlen(from->file);
    return from->field || (n >= sizeof end - 1 && !strcmp(from->file + n - (sizeof end - 1), end));
}

static int lines_add(struct prompts *p, const struct prompts_source *from, char *text, size_t bytes) {
    bool has_records = is_jsonl(from);
    int64_t line = 0;
    int code = 0;
    for (char *at = text, *end = text + bytes; at < end && !code;) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end; /* there is a 0 behind the text */
        line++;
        if (memchr(at, 0, (size_t)(stop - at)))
            return fprintf(stderr, "tally generate: %s: line %" PRId64 " has a zero byte\n", from->file, line),
                   EXIT_INPUT;
        *stop = 0;
        if (stop > at && stop[-1] == '\r') stop[-1] = 0;
        if (!has_records) code = text_add(p, from, at);
        else if (at[strspn(at, " \t")]) code = record_add(p, from, at, line);
        at = stop + 1;
    }
    return code;
}

static int file_add(struct prompts *p, const struct prompts_source *from) {
    size_t bytes = 0;
    char *text = strcmp(from->file, "-") ? file_get(from->file, MOST_BYTES, &bytes)
                                         : file_get_stream(STDIN_FILENO, "stdin", MOST_BYTES, &bytes);
    if (!text) return cli_error_of("generate");
    int code = lines_add(p, from, text, bytes);
    memory_free(text);
    if (code || p->n) return code;
    return fprintf(stderr, "tally generate: %s has no prompts\n", from->file), EXIT_INPUT;
}

int prompts_read(struct prompts *p, const struct prompts_source *from) {
    int code = 0;
    *p = (struct prompts){0};
    if (from->file) code = file_add(p, from);
    for (int i = 0; !code && i < from->texts.n; i++) code = text_add(p, from, from->texts.at[i]);
    for (int i = 0; !code && i < from->ids.n; i++) code = ids_add(p, from, from->ids.at[i]);
    if (!code && !p->n) code = text_add(p, from, from->fallback);
    if (code) prompts_free(p);
    return code;
}

int prompts_repeat(struct prompts *p, int64_t n) {
    struct prompts all = {0};
    int code = 0;
    for (size_t i = 0; i < p->n; i++)
        for (int64_t k = 0; !code && k < n; k++) {
            size_t bytes = (size_t)p->at[i].n * sizeof *p->at[i].ids;
            int64_t *ids = memory_new(bytes + 1);
            if (ids) memcpy(ids, p->at[i].ids, bytes);
            code = prompt_add(&all, ids, p->at[i].n);
        }
    prompts_free(p);
    if (code) prompts_free(&all);
    *p = all;
    return code;
}

void prompts_free(struct prompts *p) {
    for (size_t i = 0; i < p->n; i++) memory_free(p->at[i].ids);
    memory_free(p->at);
    *p = (struct prompts){0};
}

/* read_tekken.c: Mistral's tekken.json: ranks as tiktoken has them, behind the special tokens. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/scan.h"
#include "text/tokenizer.h"
#include "text/tree.h"

/* Those of files that do not list them (version 3 and before); <SPECIAL_20> and on follow. */
static const char *const old_specials[] = {"<unk>",
                                           "<s>",
                                           "</s>",
                                           "[INST]",
                                           "[/INST]",
                                           "[AVAILABLE_TOOLS]",
                                           "[/AVAILABLE_TOOLS]",
                                           "[TOOL_RESULTS]",
                                           "[/TOOL_RESULTS]",
                                           "[TOOL_CALLS]",
                                           "[IMG]",
                                           "<pad>",
                                           "[IMG_BREAK]",
                                           "[IMG_END]",
                                           "[PREFIX]",
                                           "[MIDDLE]",
                                           "[SUFFIX]",
                                           "[SYSTEM_PROMPT]",
                                           "[/SYSTEM_PROMPT]",
                                           "[TOOL_CONTENT]"};
enum { N_OLD = sizeof old_specials / sizeof *old_specials, MOST_SPECIALS = 100000 };

struct entry {
    int64_t rank;
    uint32_t at, bytes; /* in the file's text */
};
struct entries {
    struct entry *at;
    size_t n, capacity;
};
struct reader {
    tl_tokenizer *t;
    const char *path;
    struct scan s;
    struct tree config;
    struct entries vocabulary, specials;
    bool has_specials;
};

static bool entry_keep(struct reader *r, struct entries *to, struct entry entry) {
    if (to->n == to->capacity && !memory_grow((void **)&to->at, &to->capacity, to->n, sizeof *to->at)) {
        error_memory(to->n * sizeof entry, "tokens");
        return scan_fail(&r->s, "no memory");
    }
    to->at[to->n++] = entry;
    return true;
}

/* A list of {"rank": 0, NAME: text, ...}. */
static bool entries_read(struct reader *r, struct entries *to, const char *name) {
    struct scan *s = &r->s;
    for (bool more = scan_open(s, '['); more; more = scan_next(s, ']')) {
        struct entry entry = {.rank = -1};
        for (bool inside = scan_open(s, '{'); inside; inside = scan_next(s, '}')) {
            const char *key = scan_key(s), *text = NULL;
            size_t bytes = 0;
            if (!key) return false;
            const bool is_name = !strcmp(key, name);
            if (!strcmp(key, "rank")) scan_size(s, &entry.rank);
            else if (scan_is_next(s, '"')) text = scan_text(s, &bytes);
            else scan_skip(s);
            if (text && is_name) entry.at = (uint32_t)(text - s->begin), entry.bytes = (uint32_t)bytes;
        }
        if (s->problem) return false;
        if (entry.rank < 0 || !entry.bytes) return scan_fail(s, "a token without its rank or its text");
        if (!entry_keep(r, to, entry)) return false;
    }
    return !s->problem;
}

static bool file_scan(struct reader *r) {
    struct scan *s = &r->s;
    for (bool more = scan_open(s, '{'); more; more = scan_next(s, '}')) {
        const char *key = scan_key(s);
        if (!key) break;
        const bool is_specials = !strcmp(key, "special_tokens");
        r->has_specials |= is_specials && scan_is_next(s, '[');
        const bool ok = !strcmp(key, "config")                ? tree_read(&r->config, s)
                        : !strcmp(key, "vocab")               ? entries_read(r, &r->vocabulary, "token_bytes")
                        : is_specials && scan_is_next(s, '[') ? entries_read(r, &r->specials, "token_str")
                                                              : scan_skip(s);
        if (!ok) break;
    }
    if (!s->problem) scan_end(s);
    return !s->problem || error_set(TL_ERROR_USE, "%s: byte %td: %s", r->path, s->at - s->begin, s->problem);
}

static bool specials_make(struct reader *r, int64_t n) {
    const int64_t known = r->has_specials ? (int64_t)r->specials.n : N_OLD;
    if (known > n)
        return error_set(TL_ERROR_USE, "%s: %lld special tokens (need at most default_num_special_tokens, %lld)",
                         r->path, (long long)known, (long long)n);
    for (int64_t i = 0; i < n; i++) {
        char filler[32];
        const char *text = i < N_OLD ? old_specials[i] : filler;
        snprintf(filler, sizeof filler, "<SPECIAL_%lld>", (long long)i);
        size_t bytes = strlen(i >= known ? filler : text);
        int64_t id = i;
        if (i >= known) text = filler;
        else if (r->has_specials) {
            text = r->s.begin + r->specials.at[i].at;
            bytes = r->specials.at[i].bytes;
            id = r->specials.at[i].rank;
        }
        if (id >= n)
            return error_set(TL_ERROR_USE, "%s: a special token has the rank %lld (need below %lld)", r->path,
                             (long long)id, (long long)n);
        if (!tokenizer_add_special(r->t, text, bytes, (int32_t)id, ADDED_SPECIAL)) return false;
    }
    return true;
}

/* Only the first ranks of the file belong to the vocabulary: as many as default_vocab_size leaves. */
static bool vocabulary_make(struct reader *r, int64_t n_specials, int64_t size) {
    for (size_t i = 0; i < r->vocabulary.n; i++) {
        const struct entry *entry = &r->vocabulary.at[i];
        if (entry->rank >= size - n_specials) continue;
        char *text = r->s.begin + entry->at;
        const size_t bytes = tokenizer_base64(text, entry->bytes);
        if (!bytes)
            return error_set(TL_ERROR_USE, "%s: the token of rank %lld is not base64", r->path, (long long)entry->rank);
        if (!vocabulary_add(&r->t->vocabulary, entry->rank + n_specials, text, bytes, false, r->path)) return false;
    }
    return true;
}

static bool splitter_make(struct reader *r, const char *pattern) {
    struct step step = {.kind = STEP_SPLIT, .scan = scanner_find(pattern)};
    /* tiktoken drops what its pattern does not match */
    if (!step.scan)
        step.regex = regex_new(pattern, false, r->path), step.behavior = SPLIT_REMOVED, step.is_inverted = true;
    return (step.scan || step.regex) && steps_add(&r->t->splitters, step);
}

static bool file_make(struct reader *r) {
    const struct tree *c = &r->config;
    const struct node *root = tree_root(c);
    const int64_t n_specials = tree_size(tree_get(c, root, "default_num_special_tokens"));
    const int64_t size = tree_size(tree_get(c, root, "default_vocab_size"));
    const char *pattern = tree_text(c, root, "pattern");
    if (n_specials < 0 || size < n_specials || !*pattern)
        return error_set(TL_ERROR_USE,
                         "%s: not a tekken file: its config has no pattern, default_vocab_size or "
                         "default_num_special_tokens",
                         r->path);
    if (n_specials > MOST_SPECIALS)
        return error_set(TL_ERROR_USE, "%s: %lld special tokens (need at most %d)", r->path, (long long)n_specials,
                         MOST_SPECIALS);
    if (r->vocabulary.n < 256)
        return error_set(TL_ERROR_USE, "%s: %zu tokens (need the 256 bytes at least)", r->path, r->vocabulary.n);
    r->t->is_byte_level = r->t->is_word_first = true;
    return specials_make(r, n_specials) && vocabulary_make(r, n_specials, size) && tokenizer_merges_from_ranks(r->t) &&
           splitter_make(r, pattern) && tokenizer_finish(r->t);
}

tl_tokenizer *tokenizer_read_tekken(char *text, size_t bytes, const char *path) {
    struct reader r = {.t = tokenizer_new(), .path = path, .s = scan_begin(text, bytes)};
    const bool ok = r.t && file_scan(&r) && file_make(&r);
    tree_free(&r.config);
    memory_free(r.vocabulary.at);
    memory_free(r.specials.at);
    if (ok) return r.t;
    tl_tokenizer_free(r.t);
    return NULL;
}

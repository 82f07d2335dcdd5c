#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "text/unicode.h"

/* Steps of one match. Real patterns take a few per character; what takes this many never ends in practice. */
enum { MATCH_LIMIT = 10000000, DEPTH_LIMIT = 20000, HEAP_LIMIT_KIB = 64 << 10, MOST_PATTERN = 16 << 10 };
enum { MOST_SPELLED = 1 << 20 }; /* bytes of a pattern whose classes are ranges; \w has 10 KB */

struct regex {
    pcre2_code *code;
    pcre2_match_context *limits;
    bool is_jit;
};

/* PCRE2 allocates through memory_new, so that tests can make it fail. */
static void *pcre_new(size_t bytes, void *context) { return (void)context, memory_new(bytes); }
static void pcre_free(void *p, void *context) { (void)context, memory_free(p); }

/* ---- Character classes as ranges ---- */

struct writer {
    char *text;
    size_t n, capacity;
    uint32_t next; /* of a complement: the first character after the last range */
    bool is_complement, has_failed;
};

static void put(struct writer *w, const char *text, size_t bytes) {
    if (w->n + bytes + 1 > w->capacity) {
        const size_t capacity = 2 * (w->n + bytes) + 1024;
        char *grown = w->has_failed || w->n > MOST_SPELLED ? NULL : memory_resize(w->text, capacity);
        if (!grown) {
            w->has_failed = true;
            return;
        }
        w->text = grown;
        w->capacity = capacity;
    }
    memcpy(w->text + w->n, text, bytes);
    w->n += bytes;
    w->text[w->n] = 0;
}

static void put_range(struct writer *w, uint32_t first, uint32_t last) {
    char range[40];
    const int n = first == last ? snprintf(range, sizeof range, "\\x{%x}", (unsigned)first)
                                : snprintf(range, sizeof range, "\\x{%x}-\\x{%x}", (unsigned)first, (unsigned)last);
    put(w, range, (size_t)n);
}

/* A complement leaves out the surrogates, which are no characters. */
static void put_gap(struct writer *w, uint32_t first, uint32_t last) {
    if (first < 0xd800 && last > 0xdfff) put_range(w, first, 0xd7ff), first = 0xe000;
    else if (first < 0xd800 && last >= 0xd800) last = 0xd7ff;
    else if (first >= 0xd800 && first <= 0xdfff) first = 0xe000;
    if (first <= last) put_range(w, first, last);
}

static void on_range(uint32_t first, uint32_t last, void *context) {
    struct writer *w = context;
    if (!w->is_complement) put_gap(w, first, last);
    else if (first > w->next) put_gap(w, w->next, first - 1);
    w->next = last + 1;
}

/* Writes a class, in brackets unless it is inside of some. False: unknown. */
static bool put_class(struct writer *w, const char *name, size_t length, bool is_complement, bool is_inside) {
    w->is_complement = is_complement;
    w->next = 0;
    if (!is_inside) put(w, "[", 1);
    if (!unicode_ranges(name, length, on_range, w)) return false;
    if (is_complement && w->next <= 0x10ffff) put_gap(w, w->next, 0x10ffff);
    if (!is_inside) put(w, "]", 1);
    return true;
}

/* The class at p, behind a backslash: p{L}, P{^Lu}, pL, s, S, d, D, w, W. Returns what is behind it; p: it is none;
 * NULL: an unknown one. */
static const char *class_take(struct writer *w, const char *p, bool is_inside, bool is_ruby) {
    if (strchr("sdwSDW", *p)) {
        const char lower = text_lower(*p), name = is_ruby && lower == 'w' ? 'r' : lower;
        return put_class(w, &name, 1, lower != *p, is_inside) ? p + 1 : NULL;
    }
    if (*p != 'p' && *p != 'P') return p;
    bool is_complement = *p++ == 'P';
    if (*p != '{') return *p && put_class(w, p, 1, is_complement, is_inside) ? p + 1 : NULL;
    const char *end = strchr(++p, '}');
    if (*p == '^') is_complement = !is_complement, p++;
    return end && put_class(w, p, (size_t)(end - p), is_complement, is_inside) ? end + 1 : NULL;
}

/* The pattern with its classes spelled out. NULL on error, which is recorded. */
static char *classes_spell(const char *pattern, bool is_ruby, const char *where) {
    struct writer w = {0};
    bool is_inside = false;
    put(&w, "", 0);
    for (const char *p = pattern; *p && !w.has_failed;) {
        if (*p == '\\' && p[1]) {
            const char *next = class_take(&w, p + 1, is_inside, is_ruby);
            if (!next) {
                char shown[40];
                memory_free(w.text);
                error_set(TL_ERROR_USE, "%s: the pattern has a character class that is not known: \"%s\"", where,
                          text_show(shown, sizeof shown, p));
                return NULL;
            }
            if (next == p + 1) put(&w, p, 2), next++;
            p = next;
            continue;
        }
        if (*p == '[' && is_inside && p[1] != ':') put(&w, "\\", 1);
        if (*p == '[' && !is_inside) {
            is_inside = true;
            if (p[1] == '^') put(&w, p++, 1);
            if (p[1] == ']') put(&w, p++, 1);
        } else if (*p == ']') is_inside = false;
        put(&w, p++, 1);
    }
    if (!w.has_failed) return w.text;
    memory_free(w.text);
    if (w.n <= MOST_SPELLED) error_memory(w.capacity, "a pattern");
    else error_set(TL_ERROR_USE, "%s: the character classes of a pattern are more than %d bytes", where, MOST_SPELLED);
    return NULL;
}

/* ---- Compiling and matching ---- */

struct regex *regex_new(const char *pattern, bool is_ruby, const char *where) {
    unicode_ready();
    if (strlen(pattern) > MOST_PATTERN)
        return error_set(TL_ERROR_USE, "%s: a pattern of %zu bytes (need at most %d)", where, strlen(pattern),
                         MOST_PATTERN),
               NULL;
    if (is_ruby && strstr(pattern, "}+"))
        return error_set(TL_ERROR_USE, "%s: the pattern has {..}+, which repeats in Oniguruma and not in PCRE2", where),
               NULL;
    char *spelled = classes_spell(pattern, is_ruby, where);
    if (!spelled) return NULL;
    struct regex *r = memory_new(sizeof *r);
    pcre2_general_context *general = pcre2_general_context_create(pcre_new, pcre_free, NULL);
    pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
    int problem = 0;
    size_t at = 0;
    if (r) *r = (struct regex){0};
    if (r && context) {
        pcre2_set_parens_nest_limit(context, 100);
        const uint32_t flags =
            PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | (is_ruby ? PCRE2_MULTILINE : PCRE2_DOLLAR_ENDONLY);
        r->code = pcre2_compile((PCRE2_SPTR)spelled, PCRE2_ZERO_TERMINATED, flags, &problem, &at, context);
        r->limits = r->code ? pcre2_match_context_create(general) : NULL;
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    memory_free(spelled);
    if (r && r->limits) {
        pcre2_set_match_limit(r->limits, MATCH_LIMIT);
        pcre2_set_depth_limit(r->limits, DEPTH_LIMIT);
        pcre2_set_heap_limit(r->limits, HEAP_LIMIT_KIB);
        r->is_jit = pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE) == 0;
        return r;
    }
    unsigned char words[128] = "", shown[128];
    if (r && !r->code && problem && problem != PCRE2_ERROR_HEAP_FAILED) {
        pcre2_get_error_message(problem, words, sizeof words);
        error_set(TL_ERROR_USE, "%s: the pattern \"%s\" cannot be used: %s", where,
                  text_show((char *)shown, sizeof shown, pattern), (char *)words);
    } else error_memory(sizeof *r, "a pattern");
    regex_free(r);
    return NULL;
}

void regex_free(struct regex *r) {
    if (!r) return;
    pcre2_match_context_free(r->limits);
    pcre2_code_free(r->code);
    memory_free(r);
}

bool regex_next(const struct regex *r, void **data, const uint8_t *text, size_t bytes, size_t last, size_t *begin,
                size_t *end) {
    size_t from = last == SIZE_MAX ? 0 : last;
    if (!*data) {
        pcre2_general_context *general = pcre2_general_context_create(pcre_new, pcre_free, NULL);
        *data = general ? pcre2_match_data_create(1, general) : NULL;
        pcre2_general_context_free(general);
        if (!*data) return error_memory(sizeof(void *), "a match");
    }
    while (from <= bytes) {
        const int found = pcre2_match(r->code, text, bytes, from, PCRE2_NO_UTF_CHECK, *data, r->limits);
        if (found == PCRE2_ERROR_NOMATCH) return false;
        if (found == PCRE2_ERROR_NOMEMORY) return error_memory(bytes, "a match");
        if (found < 0) {
            unsigned char words[128] = "";
            pcre2_get_error_message(found, words, sizeof words);
            return error_set(TL_ERROR_USE, "the tokenizer's pattern failed at byte %zu of the text: %s", from,
                             (char *)words);
        }
        const size_t *ends = pcre2_get_ovector_pointer(*data);
        *begin = ends[0];
        *end = ends[1];
        if (*end > *begin || *end != last) return true;
        for (from++; from < bytes && (text[from] & 0xc0) == 0x80;) from++;
    }
    return false;
}

void regex_data_free(void *data) { pcre2_match_data_free(data); }

#include "train/choices.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "text/tokenizer.h"
#include "text/unicode.h"
#include "train/lines.h"

/* Of an item, whose context is copied for each ending. Those of HellaSwag have up to 4 KB. */
#define MOST_LINE ((size_t)1 << 20)

/* ---- A line ---- */

struct item {
    char *context, *context_a, *context_b, *activity; /* NULL: there is none; all in the line's buffer */
    char *endings[CHOICES_MOST];
    int n, answer; /* answer -1: none */
    bool has_endings;
};

static bool endings_read(struct lines *l, struct item *item) {
    struct scan *s = &l->scan;
    item->has_endings = true;
    for (bool more = scan_open(s, '['); more; more = scan_next(s, ']')) {
        if (item->n == CHOICES_MOST) return lines_fail(l, "more than %d endings", CHOICES_MOST);
        if (!(item->endings[item->n] = scan_string(s))) return false;
        item->n++;
    }
    return !s->problem;
}

/* A number, or a string of digits. */
static bool answer_read(struct lines *l, struct item *item) {
    struct scan *s = &l->scan;
    int64_t answer = -1;
    char shown[64];
    if (scan_is_next(s, '"')) {
        const char *text = scan_string(s);
        if (!text) return false;
        const size_t digits = strspn(text, "0123456789");
        if (!digits || text[digits] || digits > 9)
            return lines_fail(l, "the label is \"%s\" (need the number of the right ending, from 0)",
                              text_show(shown, sizeof shown, text));
        answer = 0;
        for (size_t i = 0; i < digits; i++) answer = 10 * answer + (text[i] - '0');
    } else if (!scan_size(s, &answer)) return false;
    item->answer = answer > INT32_MAX ? INT32_MAX : (int)answer;
    return true;
}

static bool field_read(struct lines *l, struct item *item, const char *key) {
    const struct {
        const char *name;
        char **to;
    } texts[] = {{"ctx", &item->context},
                 {"context", &item->context},
                 {"ctx_a", &item->context_a},
                 {"ctx_b", &item->context_b},
                 {"activity_label", &item->activity}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(key, texts[i].name)) continue;
        if (*texts[i].to) return lines_fail(l, "a second \"%s\"", key);
        return (*texts[i].to = scan_string(&l->scan)) != NULL;
    }
    const bool is_endings = !strcmp(key, "endings") || !strcmp(key, "choices");
    const bool is_answer = !strcmp(key, "label") || !strcmp(key, "answer");
    if ((is_endings && item->has_endings) || (is_answer && item->answer >= 0))
        return lines_fail(l, "a second \"%s\"", key);
    return is_endings ? endings_read(l, item) : is_answer ? answer_read(l, item) : scan_skip(&l->scan);
}

static bool item_check(const struct lines *l, const struct item *item, bool is_harness) {
    if (is_harness && !(item->activity && item->context_a && item->context_b))
        return lines_fail(l, "no \"%s\" (--harness needs activity_label, ctx_a and ctx_b)",
                          !item->activity    ? "activity_label"
                          : !item->context_a ? "ctx_a"
                                             : "ctx_b");
    if (!item->context && !item->context_a)
        return lines_fail(l, "no \"ctx\" (need {\"ctx\": \"...\", \"endings\": [\"...\", ...], \"label\": 0})");
    if (!item->has_endings) return lines_fail(l, "no \"endings\" (need an array of strings)");
    if (item->n < 2) return lines_fail(l, "%d endings (need at least two)", item->n);
    if (item->answer < 0) return lines_fail(l, "no \"label\" (need the number of the right ending, from 0)");
    return item->answer < item->n || lines_fail(l, "the label is %d, and there are %d endings (need 0 to %d)",
                                                item->answer, item->n, item->n - 1);
}

static bool item_read(struct lines *l, struct item *item, bool is_harness) {
    struct scan *s = &l->scan;
    *item = (struct item){.answer = -1};
    for (bool more = scan_open(s, '{'); more; more = scan_next(s, '}')) {
        const char *key = scan_key(s);
        if (!key || !field_read(l, item, key)) break;
    }
    return tl_error() == TL_OK && lines_end(l) && item_check(l, item, is_harness);
}

/* ---- Texts as lm-evaluation-harness prepares them ---- */

/* White space as Python's str.strip has it. */
static bool is_space(uint32_t c) { return (c >= 0x1c && c <= 0x1f) || unicode_class(c) & UNICODE_SPACE; }

/* Where white space at the end begins. */
static size_t strip_end(const char *text, size_t n) {
    while (n) {
        size_t at = n - 1;
        int length;
        while (at && n - at < UNICODE_BYTES && ((uint8_t)text[at] & 0xc0) == 0x80) at--;
        if (!is_space(unicode_get((const uint8_t *)text + at, (const uint8_t *)text + n, &length))) break;
        n = at;
    }
    return n;
}

static void strip(char *text) {
    size_t n = strip_end(text, strlen(text)), at = 0;
    int length = 0;
    for (; at < n; at += (size_t)length)
        if (!is_space(unicode_get((const uint8_t *)text + at, (const uint8_t *)text + n, &length))) break;
    memmove(text, text + at, n - at);
    text[n - at] = 0;
}

/* Replaces `what` everywhere, by something that is not longer. */
static void replace(char *text, const char *what, const char *by) {
    const size_t n = strlen(what), m = strlen(by);
    char *to = text;
    for (const char *from = text; *from;) {
        if (strncmp(from, what, n)) *to++ = *from++;
        else {
            memcpy(to, by, m);
            to += m;
            from += n;
        }
    }
    *to = 0;
}

/* Removes what is in brackets, and the brackets, unless a line ends between them. */
static void brackets_remove(char *text) {
    char *to = text;
    for (const char *from = text; *from;) {
        const size_t n = *from == '[' ? strcspn(from, "]\n") : 0;
        if (n && from[n] == ']') from += n + 1;
        else *to++ = *from++;
    }
    *to = 0;
}

/* The marks of WikiHow's part of HellaSwag become punctuation. */
static void harness_prepare(char *text) {
    strip(text);
    replace(text, " [title]", ". ");
    brackets_remove(text);
    replace(text, "  ", " ");
}

/* As str.capitalize, of ASCII letters. */
static void capitalize(char *text) {
    for (char *at = text; *at; at++) *at = at == text ? text_upper(*at) : text_lower(*at);
}

/* ---- An item's tokens ---- */

struct taker {
    const struct choices_options *o;
    struct choices_result *result;
    struct scorer *scorer;
    struct choice_item item; /* whose endings come back one by one */
};

/* The context and, behind it, context and ending for each ending: n + 1 texts in one block. */
static char *texts_make(struct item *item, bool is_harness, size_t *context_bytes) {
    const char *a = item->context_a ? item->context_a : "", *b = item->context_b ? item->context_b : "";
    if (is_harness) capitalize(item->context_b);
    size_t most = strlen(a) + strlen(b) + 4 + (item->activity ? strlen(item->activity) : 0), room;
    if (item->context && strlen(item->context) > most) most = strlen(item->context);
    room = (size_t)(item->n + 1) * (most + 2);
    for (int i = 0; i < item->n; i++) room += strlen(item->endings[i]);
    char *text = memory_new(room);
    if (!text) return error_memory(room, "the endings of an item"), NULL;
    if (is_harness) snprintf(text, room, "%s: %s %s", item->activity, a, b);
    else if (item->context) strcpy(text, item->context);
    else snprintf(text, room, "%s%s%s", a, *b ? " " : "", b);
    if (is_harness) harness_prepare(text);
    *context_bytes = strlen(text);
    char *to = text + *context_bytes + 1;
    for (int i = 0; i < item->n; i++) {
        if (is_harness) harness_prepare(item->endings[i]);
        to += sprintf(to, "%s %s", text, item->endings[i]) + 1;
    }
    return text;
}

static int64_t characters(const char *text) {
    int64_t n = 0;
    for (; *text; text++) n += ((uint8_t)*text & 0xc0) != 0x80;
    return n;
}

/* Tokens of the template, then those of context and ending. Of these, `context` are the context's. */
static bool ending_add(struct taker *t, const struct lines *l, const struct score_text *text, const int32_t *ids,
                       int64_t n, int64_t context) {
    const struct choices_options *o = t->o;
    const int64_t before = o->has_template ? o->tokenizer->n_before : 0, all = before + n, scored = n - context;
    if (scored < 1) return lines_fail(l, "ending %d has no tokens of its own", text->choice);
    if (before + context < 1) return lines_fail(l, "the context is empty (need at least one token before an ending)");
    if (scored > o->time)
        return lines_fail(l, "ending %d has %" PRId64 " tokens, and the model a context of %" PRId64, text->choice,
                          scored, o->time);
    const int64_t cut = all > o->time + 1 ? all - o->time - 1 : 0; /* tokens that do not fit */
    int32_t *row = memory_new((size_t)all * sizeof *row);
    if (!row) return error_memory((size_t)all * sizeof *row, "the tokens of an ending");
    if (before) memcpy(row, o->tokenizer->before, (size_t)before * sizeof *row);
    memcpy(row + before, ids, (size_t)n * sizeof *row);
    const bool ok = scorer_begin(t->scorer, text) &&
                    scorer_window(t->scorer, row + cut, NULL, all - cut - 1, all - cut - 1 - scored) &&
                    scorer_end(t->scorer);
    memory_free(row);
    return ok;
}

static bool item_encode(struct taker *t, const struct lines *l, const struct item *item, const char *text,
                        size_t context_bytes, int64_t index) {
    const char *texts[CHOICES_MOST + 1];
    size_t bytes[CHOICES_MOST + 1];
    tl_encode_options options = tl_encode_defaults();
    tl_encoding e;
    options.special = TL_SPECIAL_TEXT;
    for (int i = 0; i <= item->n; i++, text += strlen(text) + 1) texts[i] = text, bytes[i] = strlen(text);
    bytes[0] = strip_end(texts[0], context_bytes);
    if (!tl_tokenizer_encode(t->o->tokenizer, texts, bytes, item->n + 1, &options, &e)) return lines_blame(l);
    bool ok = true;
    for (int i = 0; ok && i < item->n; i++) {
        const struct score_text about = {.index = index,
                                         .line = (int64_t)l->number,
                                         .bytes = (int64_t)strlen(item->endings[i]),
                                         .characters = characters(item->endings[i]),
                                         .choice = i,
                                         .n_choices = item->n,
                                         .answer = item->answer};
        ok = ending_add(t, l, &about, e.ids + e.starts[i + 1], e.starts[i + 2] - e.starts[i + 1], e.starts[1]);
    }
    tl_encoding_free(&e);
    return ok;
}

/* ---- Answers ---- */

static double ending_value(const struct scored *e, enum choice_rule rule) {
    const int64_t length[CHOICE_RULES] = {1, e->text.characters, e->text.bytes, e->n_tokens};
    return -e->nats / (double)(length[rule] > 0 ? length[rule] : 1);
}

static bool ending_take(void *context, const struct scored *e) {
    struct taker *t = context;
    struct choice_item *item = &t->item;
    item->endings[e->text.choice] = *e;
    t->result->n_tokens += e->n_tokens;
    if (e->text.choice < e->text.n_choices - 1) return true;
    item->index = e->text.index;
    item->line = e->text.line;
    item->n = e->text.n_choices;
    item->answer = e->text.answer;
    for (int rule = 0; rule < CHOICE_RULES; rule++) {
        int best = 0;
        for (int i = 1; i < item->n; i++)
            if (ending_value(&item->endings[i], rule) > ending_value(&item->endings[best], rule)) best = i;
        item->chosen[rule] = best;
        t->result->n_right[rule] += best == item->answer;
    }
    t->result->n_items++;
    return !t->o->each || t->o->each(t->o->context, item);
}

static bool progress_pass(double done, double total, void *context) {
    const struct choices_options *o = ((struct taker *)context)->o;
    return o->progress(done, total, o->context);
}

__attribute__((noinline)) static bool line_take(struct taker *t, struct lines *l, int64_t index) {
    struct item item;
    size_t context_bytes = 0;
    if (!item_read(l, &item, t->o->is_harness)) return false;
    char *text = texts_make(&item, t->o->is_harness, &context_bytes);
    const bool ok = text && item_encode(t, l, &item, text, context_bytes, index);
    memory_free(text);
    scorer_progress(t->scorer, lines_used(l), lines_total(l));
    return ok;
}

bool choices_check(const char *path, bool is_harness, int64_t most) {
    struct lines l;
    struct item item;
    int64_t n = 0;
    bool ok = lines_open(&l, path, MOST_LINE);
    while (ok && (!most || n < most)) {
        ok = lines_next(&l);
        if (!ok || !l.line) break;
        size_t bytes;
        char *text = item_read(&l, &item, is_harness) ? texts_make(&item, is_harness, &bytes) : NULL;
        ok = text != NULL;
        memory_free(text);
        n++;
    }
    lines_close(&l);
    return ok && (n || error_set(TL_ERROR_USE, "%s: has no items", path));
}

bool choices_score(const char *path, const struct choices_options *o, struct choices_result *result) {
    struct lines l = {0};
    *result = (struct choices_result){.seconds = now_s()};
    if (!choices_check(path, o->is_harness, o->most)) return false;
    struct taker *t = memory_new(sizeof *t);
    if (!t) return error_memory(sizeof *t, "an item");
    *t = (struct taker){.o = o, .result = result};
    t->scorer =
        scorer_new(&(struct score_options){o->model, o->batch, ending_take, o->progress ? progress_pass : NULL, t});
    bool ok = t->scorer && lines_open(&l, path, MOST_LINE);
    for (int64_t i = 0; ok && (!o->most || i < o->most); i++) {
        ok = lines_next(&l);
        if (!ok || !l.line) break;
        ok = line_take(t, &l, i);
    }
    ok = ok && scorer_finish(t->scorer);
    scorer_free(t->scorer);
    lines_close(&l);
    memory_free(t);
    result->seconds = now_s() - result->seconds;
    return ok;
}

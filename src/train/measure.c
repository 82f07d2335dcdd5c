#include "train/measure.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/token_file.h"
#include "step/tokens.h"
#include "text/tokenizer.h"
#include "train/lines.h"

/* ---- Windows ---- */

/* Tokens first .. last-1 of a file, or of `ids`. */
struct tokens_at {
    tl_token_file *file;
    const int32_t *ids;
    int64_t first, last;
    bool has_mask; /* of a file */
};

struct meter {
    const struct measure_options *o;
    struct scorer *scorer;
    struct measured *result;
    int32_t *ids; /* of one window; behind them, where the document of each begins */
    double total; /* for progress; done: tokens of a file, or bytes of lines */
};

/* All windows of a text, or the first `most`. */
static bool windows_add(struct meter *m, const struct tokens_at *t, int64_t most, bool has_progress) {
    const int64_t time = m->o->time, last = t->last - 1; /* the last target */
    int64_t scored = t->first;                           /* the last target that is scored; none yet */
    bool ok = true;
    for (int64_t at = t->first, k = 0; ok && scored < last && (!most || k < most); at += m->o->stride, k++) {
        const int64_t n = last - at < time ? last - at : time;
        const int32_t *ids = t->ids ? t->ids + at : m->ids;
        int32_t *begin = t->has_mask ? m->ids + time + 1 : NULL;
        ok = t->ids || tl_token_file_read(t->file, m->ids, at, n + 1);
        if (ok && begin) token_file_begins(t->file, m->o->document_token, ids, at, n, begin);
        ok = ok && scorer_window(m->scorer, ids, begin, n, scored - at);
        scored = at + n;
        if (has_progress) scorer_progress(m->scorer, (double)(scored - t->first), m->total);
    }
    return ok;
}

static bool document_take(void *context, const struct scored *d) {
    struct meter *m = context;
    struct measured *r = m->result;
    r->nats += d->nats;
    r->n_tokens += d->n_tokens;
    r->bytes += d->text.bytes;
    r->n_documents++;
    return !m->o->each || m->o->each(m->o->context, d);
}

static bool progress_pass(double done, double total, void *context) {
    const struct measure_options *o = ((struct meter *)context)->o;
    return o->progress(done, total, o->context);
}

static bool meter_begin(struct meter *m, tl_module *model, const struct measure_options *o, struct measured *result) {
    const size_t bytes = (2 * (size_t)o->time + 1) * sizeof *m->ids;
    *result = (struct measured){.has_mask = o->has_mask, .seconds = now_s()};
    *m = (struct meter){.o = o, .result = result, .ids = memory_new(bytes)};
    if (!m->ids) return error_memory(bytes, "a window of tokens");
    m->scorer =
        scorer_new(&(struct score_options){model, o->batch, document_take, o->progress ? progress_pass : NULL, m});
    return m->scorer != NULL;
}

static bool meter_end(struct meter *m, bool ok) {
    ok = ok && scorer_finish(m->scorer);
    scorer_free(m->scorer);
    memory_free(m->ids);
    m->result->loss = m->result->nats / (double)m->result->n_tokens;
    m->result->seconds = now_s() - m->result->seconds;
    return ok && (m->result->n_tokens || error_set(TL_ERROR_USE, "the data has no token to score (each text needs at "
                                                                 "least two tokens)"));
}

bool measure(tl_module *model, const struct source_part *part, const struct measure_options *o,
             struct measured *result) {
    struct meter m;
    if (part->last - part->first < 2)
        return error_set(TL_ERROR_USE, "the data has %" PRId64 " tokens (need at least two)", part->last - part->first);
    bool ok = meter_begin(&m, model, o, result);
    m.total = (double)(part->last - part->first - 1);
    ok = ok && scorer_begin(m.scorer, &(struct score_text){0}) &&
         windows_add(&m, &(struct tokens_at){part->file, NULL, part->first, part->last, o->has_mask},
                     o->most * o->batch, true) &&
         scorer_end(m.scorer);
    return meter_end(&m, ok);
}

/* ---- Documents of a file ---- */

static bool document_add(struct meter *m, tl_tokenizer *tokenizer, const struct source_part *part, int64_t first,
                         int64_t last, int64_t index) {
    struct score_text text = {.index = index};
    const struct tokens_at at = {part->file, NULL, first, last, false};
    bool ok = !tokenizer || last - first < 2 ||
              tokens_count_bytes(tokenizer, part->file, first + 1, last - first - 1, &text.bytes);
    ok = ok && scorer_begin(m->scorer, &text) && windows_add(m, &at, 0, false) && scorer_end(m->scorer);
    scorer_progress(m->scorer, (double)(last - part->first), m->total);
    return ok;
}

/* The first separator at or after `from`; `last` if there is none. */
static bool separator_find(const struct meter *m, const struct source_part *part, int64_t from, int64_t *found) {
    for (int64_t at = from, n; at < part->last; at += n) {
        n = part->last - at < m->o->time ? part->last - at : m->o->time;
        if (!tl_token_file_read(part->file, m->ids, at, n)) return false;
        for (int64_t i = 0; i < n; i++)
            if (m->ids[i] == m->o->document_token) return *found = at + i, true;
    }
    *found = part->last;
    return true;
}

/* A document without a target, such as the one behind a last separator, is left out. */
static bool separated_add(struct meter *m, tl_tokenizer *tokenizer, const struct source_part *part) {
    int64_t first = part->first, next, index = 0;
    if (!separator_find(m, part, first, &next)) return false;
    if (next == part->last)
        return error_set(TL_ERROR_USE, "%s: no token is %" PRId64 ", which --document-token gives as the separator",
                         token_file_path(part->file), m->o->document_token);
    for (; first < part->last && (!m->o->most || index < m->o->most); first = next) {
        if (!separator_find(m, part, first + 1, &next)) return false;
        if (next - first > 1 && !document_add(m, tokenizer, part, first, next, index++)) return false;
    }
    return true;
}

/* Those that the file records; the part may begin and end inside one. */
static bool recorded_add(struct meter *m, tl_tokenizer *tokenizer, const struct source_part *part) {
    int64_t document = tl_token_file_document_at(part->file, part->first);
    for (int64_t first = part->first, index = 0, next; first < part->last; first = next, document++, index++) {
        next = tl_token_file_document_begin(part->file, document + 1);
        if (next < 0 || next > part->last) next = part->last;
        if (m->o->most && index >= m->o->most) break;
        if (!document_add(m, tokenizer, part, first, next, index)) return false;
    }
    return true;
}

bool measure_documents(tl_module *model, tl_tokenizer *tokenizer, const struct source_part *part,
                       const struct measure_options *o, struct measured *result) {
    struct meter m;
    tl_token_info info;
    bool ok = meter_begin(&m, model, o, result) && tl_token_file_info(part->file, &info);
    const bool is_text = ok && (part->text || info.format == TL_TOKENS_BYTES);
    m.total = (double)(part->last - part->first);
    if (ok && o->document_token >= 0) ok = separated_add(&m, tokenizer, part);
    else if (ok && info.documents) ok = recorded_add(&m, tokenizer, part);
    else if (ok && is_text) ok = document_add(&m, tokenizer, part, part->first, part->last, 0);
    else if (ok)
        ok = error_set(TL_ERROR_USE,
                       "%s: does not record where documents begin (give --document-token N, the token "
                       "that separates them)",
                       token_file_path(part->file));
    return meter_end(&m, ok);
}

/* ---- Documents on lines ---- */

/* The field of the line's object; the text is in the line's buffer. */
static bool text_find(struct lines *l, const char *field, const char **text, size_t *bytes) {
    const char *problem;
    char shown[64];
    size_t at;
    *text = documents_line(l->line, l->bytes, field, bytes, &problem, &at);
    return *text || lines_fail(l, "column %zu: %s; the text is in the field \"%s\" (--field NAME names another)",
                               at + 1, problem, text_show(shown, sizeof shown, field));
}

/* The tokens of a text behind those of the template; memory_free them. */
static bool text_encode(tl_tokenizer *t, const char *text, size_t bytes, bool has_template, int32_t **ids, int64_t *n) {
    tl_encode_options options = tl_encode_defaults();
    tl_encoding encoding;
    options.special = TL_SPECIAL_TEXT;
    if (!tl_tokenizer_encode(t, &text, &bytes, 1, &options, &encoding)) return false;
    const size_t before = has_template ? (size_t)t->n_before : 0, room = before + (size_t)encoding.count + 1;
    *ids = memory_new(room * sizeof **ids);
    *n = (int64_t)before + encoding.count;
    if (*ids && before) memcpy(*ids, t->before, before * sizeof **ids);
    if (*ids && encoding.count) memcpy(*ids + before, encoding.ids, (size_t)encoding.count * sizeof **ids);
    tl_encoding_free(&encoding);
    return *ids || error_memory(room * sizeof **ids, "the tokens of a text");
}

static bool line_add(struct meter *m, struct lines *l, tl_tokenizer *t, const char *field, int64_t index) {
    const char *text;
    size_t bytes = 0;
    int32_t *ids = NULL;
    struct tokens_at at = {0};
    struct score_text d = {.index = index, .line = (int64_t)l->number};
    if (!text_find(l, field, &text, &bytes)) return false;
    if (!text_encode(t, text, bytes, m->o->has_template, &ids, &at.last)) return lines_blame(l);
    at.ids = ids;
    bool ok = (at.last < 2 || tokens_bytes(t, ids + 1, at.last - 1, &d.bytes)) && scorer_begin(m->scorer, &d) &&
              windows_add(m, &at, 0, false) && scorer_end(m->scorer);
    scorer_progress(m->scorer, lines_used(l), m->total);
    memory_free(ids);
    return ok;
}

/* Before the first window: a mistake in the last line should not come to light after an hour. */
static bool lines_check(const char *path, const char *field, int64_t most) {
    struct lines l;
    bool ok = lines_open(&l, path, TOKENIZER_MOST_TEXT);
    for (int64_t i = 0; ok && (!most || i < most); i++) {
        const char *text;
        size_t bytes;
        ok = lines_next(&l);
        if (!ok || !l.line) break;
        ok = text_find(&l, field, &text, &bytes);
    }
    lines_close(&l);
    return ok;
}

bool measure_lines(tl_module *model, tl_tokenizer *tokenizer, const char *path, const char *field,
                   const struct measure_options *o, struct measured *result) {
    struct meter m;
    struct lines l = {0};
    if (!lines_check(path, field, o->most)) return false;
    bool ok = meter_begin(&m, model, o, result) && lines_open(&l, path, TOKENIZER_MOST_TEXT);
    m.total = lines_total(&l);
    for (int64_t i = 0; ok && (!o->most || i < o->most); i++) {
        ok = lines_next(&l);
        if (!ok || !l.line) break;
        ok = line_add(&m, &l, tokenizer, field, i);
    }
    lines_close(&l);
    return meter_end(&m, ok);
}

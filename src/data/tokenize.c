#include "data/tokenize.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"

static int width_of(const tl_tokenizer *t) {
    int64_t size = tl_tokenizer_size(t);
    return size <= 256 ? 1 : size <= 65536 ? 2 : 4;
}

/* ---- One text ---- */

#define TEXT_WINDOW ((size_t)8 << 20)

bool tokenize_text(tl_tokenizer *tokenizer, const char *text, size_t bytes, tl_token_writer *writer, const char *path,
                   tl_progress_fn progress, void *context) {
    struct encode_plan plan;
    struct parts parts = {0};
    tl_encode_options options = tl_encode_defaults();
    options.special = TL_SPECIAL_TEXT;
    bool ok = encode_plan_make(&plan, tokenizer, &options);
    for (size_t at = 0, cut, window = TEXT_WINDOW; ok && at < bytes;) {
        size_t n = bytes - at < window ? bytes - at : window;
        cut = at + n < bytes ? encode_cut(&plan, (const uint8_t *)text + at, n, 0) : n;
        if (!cut && n <= TOKENIZER_MOST_TEXT) {
            window *= 2;
            continue;
        }
        tl_encoding encoding = {0};
        parts.n = 0;
        ok = parts_add(&parts, &plan, text + at, cut ? cut : n, at > 0) &&
             encode_texts(&plan, parts.texts, parts.bytes, parts.is_later, (int64_t)parts.n, 0, &encoding) &&
             tl_token_writer_add(writer, encoding.ids, encoding.count);
        tl_encoding_free(&encoding);
        at += cut;
        window = TEXT_WINDOW;
        if (ok && progress && !progress(at, bytes, context)) ok = error_set(TL_ERROR_USE, "tokens: %s: stopped", path);
    }
    parts_free(&parts);
    encode_plan_free(&plan);
    return ok;
}

/* ---- Many documents ---- */

struct work {
    const struct tokenize_options *o;
    tl_tokenize_figures *figures;
    struct encode_plan plan;
    struct feed *feed;
    struct tokenize_state state; /* up to the last batch; the writers' part as they were saved */
    const char *paths[TOKENIZE_OUTPUTS];
    tl_token_writer *writers[TOKENIZE_OUTPUTS];
    int n_outputs, output; /* output: of the current document */
    double began_s, saved_s;
    bool is_kept, has_saved;
};

/* A document is held out if a number between 0 and 1 that depends on its index and the seed alone (splitmix64) is below
 * the share. */
static int output_of(const struct work *w, int64_t document) {
    uint64_t x = (uint64_t)document + (w->o->seed + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return w->n_outputs > 1 && (double)(x >> 11) * 0x1p-53 < w->o->val_share ? TOKENIZE_VAL : TOKENIZE_TRAIN;
}

static bool figures_tell(struct work *w) {
    tl_tokenize_figures *f = w->figures;
    f->seconds = now_s() - w->began_s;
    return !w->o->tell || w->o->tell(f, w->o->context);
}

static bool is_stopped(void *work) { return !figures_tell(work); }

static bool writers_open(struct work *w) {
    const struct tokenize_options *o = w->o;
    int width = width_of(o->tokenizer);
    int64_t size = tl_tokenizer_size(o->tokenizer);
    uint64_t hash = tl_tokenizer_hash(o->tokenizer);
    for (int k = 0; k < w->n_outputs; k++) {
        struct token_position from = {w->state.tokens[k], w->state.recorded[k], (uint32_t)w->state.crc[k],
                                      w->state.is_begun[k]};
        w->writers[k] = w->is_kept ? token_writer_kept(w->paths[k], width, size, hash, &from)
                                   : token_writer_at(file_path(w->paths[k]), width, size, hash);
        if (!w->writers[k]) return false;
    }
    return true;
}

static void figures_begin(struct work *w) {
    const struct tokenize_state *s = &w->state;
    *w->figures = (tl_tokenize_figures){.documents = (uint64_t)s->documents,
                                        .text_bytes = (uint64_t)s->text_bytes,
                                        .bad = (uint64_t)s->bad,
                                        .tokens = {s->tokens[0], s->tokens[1]},
                                        .recorded = {s->recorded[0], s->recorded[1]},
                                        .longest = s->longest,
                                        .used = (uint64_t)s->used,
                                        .total = w->is_kept ? w->o->inputs->bytes : 0,
                                        .files = (int64_t)w->o->inputs->n,
                                        .ignored = (int64_t)w->o->inputs->n_ignored,
                                        .is_kept = w->is_kept,
                                        .used_before = (uint64_t)s->used,
                                        .text_before = (uint64_t)s->text_bytes,
                                        .is_resumed = w->has_saved};
}

/* ---- Saving ---- */

static bool work_save(struct work *w) {
    w->saved_s = now_s();
    if (!w->is_kept) return true;
    for (int k = 0; k < w->n_outputs; k++) {
        struct token_position at;
        if (!token_writer_save(w->writers[k], &at)) return false;
        w->state.tokens[k] = at.count;
        w->state.recorded[k] = at.documents;
        w->state.crc[k] = at.crc;
        w->state.is_begun[k] = at.is_begun;
    }
    return tokenize_state_write(w->o, &w->state);
}

/* After an error: it stays the one that is reported. */
static void work_rescue(struct work *w) {
    tl_status status = tl_error();
    char message[1024];
    text_copy(message, sizeof message, tl_error_message());
    tl_error_clear();
    work_save(w);
    tl_error_clear();
    error_set(status, "%s", message);
}

/* ---- Batches ---- */

static bool part_write(struct work *w, const int32_t *ids, int64_t n, bool is_first, bool is_last) {
    struct tokenize_state *s = &w->state;
    if (is_first) {
        w->output = output_of(w, s->documents++);
        s->open_tokens = 0;
    }
    tl_token_writer *writer = w->writers[w->output];
    bool ends = is_last && w->o->end_token >= 0;
    if ((is_first && !tl_token_writer_document(writer)) || !tl_token_writer_add(writer, ids, n) ||
        (ends && !tl_token_writer_add(writer, &w->o->end_token, 1)))
        return false;
    s->open_tokens += n + ends;
    w->figures->tokens[w->output] += n + ends;
    w->figures->recorded[w->output] = token_writer_documents(writer);
    if (s->open_tokens > s->longest) s->longest = s->open_tokens;
    return true;
}

static bool batch_write(struct work *w, const struct batch *b, const tl_encoding *e) {
    const struct parts *p = &b->parts;
    for (size_t i = 0; i < p->n; i++) {
        bool is_last = i + 1 < p->n ? !p->is_later[i + 1] : !b->is_open;
        if (!part_write(w, e->ids + e->starts[i], e->starts[i + 1] - e->starts[i], !p->is_later[i], is_last))
            return false;
        w->state.text_bytes += (int64_t)p->bytes[i];
    }
    return true;
}

static void batch_count(struct work *w, const struct batch *b) {
    struct tokenize_state *s = &w->state;
    tl_tokenize_figures *f = w->figures;
    s->input = (int64_t)b->after.at.input;
    s->input_documents = (int64_t)b->after.at.documents;
    s->input_bad = (int64_t)b->after.at.bad;
    s->taken = (int64_t)b->after.taken;
    s->used = (int64_t)b->used;
    s->bad = (int64_t)b->bad;
    f->used = b->used;
    f->bad = b->bad;
    f->documents = (uint64_t)s->documents;
    f->text_bytes = (uint64_t)s->text_bytes;
    f->longest = s->longest;
}

static bool batch_take(struct work *w, struct batch *b) {
    const struct parts *p = &b->parts;
    tl_encoding encoding = {0};
    bool ok = encode_texts(&w->plan, p->texts, p->bytes, p->is_later, (int64_t)p->n, w->o->threads, &encoding) &&
              batch_write(w, b, &encoding);
    tl_encoding_free(&encoding);
    if (ok) batch_count(w, b);
    return ok;
}

static enum tokenize_end batches_take(struct work *w) {
    for (bool is_end = false; !is_end;) {
        struct batch *b = feed_take(w->feed, is_stopped, w);
        if (!b && tl_error() == TL_OK) return work_save(w) ? TOKENIZE_STOPPED : TOKENIZE_FAILED;
        if (!b) return work_rescue(w), TOKENIZE_FAILED;
        is_end = b->is_end;
        if (!batch_take(w, b)) return TOKENIZE_FAILED; /* the writers are ahead of the state: the last one stands */
        feed_give(w->feed, b);
        if (!figures_tell(w) && !is_end) return work_save(w) ? TOKENIZE_STOPPED : TOKENIZE_FAILED;
        if (!is_end && now_s() - w->saved_s >= w->o->save_every_s && !work_save(w)) return TOKENIZE_FAILED;
    }
    return TOKENIZE_DONE;
}

/* ---- The end ---- */

static bool outputs_check(const struct work *w) {
    unsigned long long documents = (unsigned long long)w->state.documents;
    if (!w->figures->tokens[0] && !w->figures->tokens[1])
        return error_set(TL_ERROR_USE, "the inputs have %llu documents and no tokens (need at least one)", documents);
    for (int k = 0; k < w->n_outputs; k++)
        if (!w->figures->tokens[k])
            return error_set(TL_ERROR_USE,
                             "%s: none of the %llu documents is for it with --val-share %g and --seed %llu (need more "
                             "documents, which --document-separator makes of a text, or another share)",
                             w->paths[k], documents, w->o->val_share, (unsigned long long)w->o->seed);
    return true;
}

/* The validation file first: where the other is, both are. */
static bool outputs_commit(struct work *w) {
    for (int k = w->n_outputs - 1; k >= 0; k--) {
        tl_token_writer *writer = w->writers[k];
        w->writers[k] = NULL;
        if (!tl_token_writer_commit(writer)) return false;
    }
    return true;
}

static char *path_with(const char *path, const char *suffix) {
    size_t bytes = strlen(path) + strlen(suffix) + 1;
    char *all = memory_new(bytes);
    if (all) snprintf(all, bytes, "%s%s", path, suffix);
    else error_memory(bytes, "a path");
    return all;
}

static bool partial_remove(const struct work *w, const char *suffix) {
    bool ok = true;
    for (int k = 0; ok && k < w->n_outputs; k++) {
        char *path = path_with(w->paths[k], suffix);
        ok = path && file_remove(file_path(path));
        memory_free(path);
    }
    return ok;
}

static bool leftovers_remove(const struct work *w) {
    return partial_remove(w, TOKEN_PARTIAL_DOCUMENTS) && tokenize_state_remove(w->o);
}

/* Work that ended before its first document leaves no files. Not if another process has them. */
static void nothing_leave(const struct work *w) {
    if (!w->is_kept || w->state.documents || !w->writers[w->n_outputs - 1]) return;
    tl_status status = tl_error();
    char message[1024];
    text_copy(message, sizeof message, tl_error_message());
    tl_error_clear();
    if (!partial_remove(w, TOKEN_PARTIAL) || !leftovers_remove(w)) tl_error_clear();
    if (status != TL_OK) error_set(status, "%s", message);
}

static bool work_finish(struct work *w) {
    if (!outputs_check(w)) return false;
    if (!w->is_kept) return outputs_commit(w);
    for (int k = 0; k < w->n_outputs; k++)
        if (!token_writer_finish(w->writers[k])) return false;
    for (int k = 0; k < w->n_outputs; k++) {
        w->state.tokens[k] = w->figures->tokens[k];
        w->state.recorded[k] = w->figures->recorded[k];
    }
    w->state.is_complete = 1;
    return tokenize_state_write(w->o, &w->state) && outputs_commit(w) && leftovers_remove(w);
}

/* An earlier process had only names to change, and may have changed some. */
static bool names_change(struct work *w) {
    bool ok = true;
    for (int k = w->n_outputs - 1; ok && k >= 0; k--) {
        char *path = path_with(w->paths[k], TOKEN_PARTIAL);
        enum file_kind kind = FILE_ABSENT;
        uint64_t bytes;
        int64_t changed_ns;
        ok = path && file_look(file_path(path), &kind);
        if (ok && kind != FILE_ABSENT) {
            ok = file_measure(file_path(path), &bytes, &changed_ns);
            struct file_writer *file = ok ? file_writer_kept(w->paths[k], TOKEN_PARTIAL, (size_t)bytes) : NULL;
            ok = file && file_writer_commit(file);
        }
        memory_free(path);
    }
    return ok && leftovers_remove(w);
}

/* ---- All of it ---- */

static size_t batch_bytes(const struct tokenize_options *o) {
    int threads = o->threads > 0 ? o->threads : omp_get_max_threads();
    if (o->batch_bytes) return o->batch_bytes;
    return (size_t)(threads < 4 ? 4 : threads < 64 ? threads : 64) << 20;
}

static bool work_begin(struct work *w) {
    const struct tokenize_options *o = w->o;
    const struct tokenize_state *s = &w->state;
    tl_encode_options options = tl_encode_defaults();
    options.special = o->special;
    struct feed_position from = {{(size_t)s->input, (uint64_t)s->input_documents, (uint64_t)s->input_bad},
                                 (uint64_t)s->taken};
    w->output = s->documents ? output_of(w, s->documents - 1) : 0;
    return encode_plan_make(&w->plan, o->tokenizer, &options) && writers_open(w) &&
           (w->feed = feed_new(o->inputs, &o->documents, &w->plan, from, batch_bytes(o)));
}

enum tokenize_end tokenize_run(const struct tokenize_options *o, tl_tokenize_figures *figures) {
    struct work w = {.o = o,
                     .figures = figures,
                     .paths = {o->out, o->val_out},
                     .n_outputs = o->val_out ? 2 : 1,
                     .is_kept = tokenize_is_kept(o)};
    w.began_s = w.saved_s = now_s();
    *figures = (tl_tokenize_figures){0};
    if (w.is_kept && !o->restart && !tokenize_state_read(o, &w.state, &w.has_saved)) return TOKENIZE_FAILED;
    figures_begin(&w);
    if (w.state.is_complete) return names_change(&w) ? TOKENIZE_DONE : TOKENIZE_FAILED;
    enum tokenize_end end = work_begin(&w) ? batches_take(&w) : TOKENIZE_FAILED;
    feed_free(w.feed);
    if (end == TOKENIZE_DONE && !work_finish(&w)) end = TOKENIZE_FAILED;
    if (end != TOKENIZE_DONE) nothing_leave(&w);
    for (int k = 0; k < w.n_outputs; k++) tl_token_writer_discard(w.writers[k]);
    encode_plan_free(&w.plan);
    figures->seconds = now_s() - w.began_s;
    return end;
}

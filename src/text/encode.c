/* encode.c: from a text to tokens, for one text in one thread, and for many texts on all threads. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "text/tokenizer.h"

/* ---- What to do with added tokens ---- */

tl_encode_options tl_encode_defaults(void) { return (tl_encode_options){.special = TL_SPECIAL_REFUSE}; }

static bool is_allowed(const tl_encode_options *o, const uint8_t *text, size_t bytes) {
    for (int i = 0; i < o->n_allowed; i++)
        if (o->allowed[i] && strlen(o->allowed[i]) == bytes && !memcmp(o->allowed[i], text, bytes)) return true;
    return false;
}

bool encode_plan_make(struct encode_plan *plan, const tl_tokenizer *t, const tl_encode_options *options) {
    const tl_encode_options o = options ? *options : tl_encode_defaults();
    *plan = (struct encode_plan){.t = t, .has_offsets = o.has_offsets, .has_template = o.has_template};
    plan->has_origins = o.has_offsets || t->needs_origins;
    encode_cuts(plan);
    char shown[80];
    for (int i = 0; i < o.n_allowed; i++)
        if (!o.allowed[i] || added_find(&t->added, o.allowed[i], strlen(o.allowed[i])) < 0)
            return error_set(TL_ERROR_USE, "the tokenizer has no special token \"%s\" to allow",
                             text_show(shown, sizeof shown, o.allowed[i] ? o.allowed[i] : ""));
    plan->modes = memory_new(t->added.n + 1);
    if (!plan->modes) return error_memory(t->added.n, "the special tokens of a call");
    for (size_t i = 0; i < t->added.n; i++) {
        const struct added_token *token = &t->added.tokens[i];
        const bool matches = !(token->flags & ADDED_SPECIAL) || o.special == TL_SPECIAL_ALLOW ||
                             is_allowed(&o, added_bytes(&t->added, i), token->length);
        plan->modes[i] = matches ? ADDED_MATCHES : o.special == TL_SPECIAL_TEXT ? ADDED_IS_TEXT : ADDED_IS_REFUSED;
    }
    return true;
}

void encode_plan_free(struct encode_plan *plan) { memory_free(plan->modes); }

static bool special_refuse(const struct encode_plan *plan, size_t token, size_t at) {
    char shown[80], name[64] = {0};
    const struct added_token *a = &plan->t->added.tokens[token];
    memcpy(name, added_bytes(&plan->t->added, token), a->length < sizeof name ? a->length : sizeof name - 1);
    return error_set(TL_ERROR_USE,
                     "the text contains the special token \"%s\" at byte %zu: allow it, or have special tokens encoded "
                     "as text",
                     text_show(shown, sizeof shown, name), at);
}

/* ---- Words ---- */

static bool offsets_put(struct encoder *e, int64_t n, const struct flow *f, size_t at) {
    if (n < 0 || !ids_room(&e->ids, (size_t)n, true)) return false;
    for (int64_t i = 0; i < n; i++) {
        const size_t end = at + e->symbols[i].length;
        e->ids.at[e->ids.n] = e->symbols[i].id;
        e->ids.offsets[2 * e->ids.n] = flow_origin(f, at).begin;
        e->ids.offsets[2 * e->ids.n + 1] = flow_origin(f, end - 1).end;
        e->ids.n++;
        at = end;
    }
    return true;
}

static bool word_encode(const struct encode_plan *plan, struct encoder *e, size_t begin, size_t end) {
    const struct flow *f = &e->flow;
    if (!plan->has_offsets) return bpe_word(plan->t, e, f->text + begin, end - begin, f->text + f->n);
    return offsets_put(e, bpe_symbols(plan->t, e, f->text + begin, end - begin), f, begin);
}

/* A word may be a whole text, if the tokenizer does not cut it: cuts it where no merge crosses, before U+2581. */
static bool words_cut(const struct encode_plan *plan, struct encoder *e, size_t begin, size_t end) {
    const uint8_t *text = e->flow.text;
    size_t done = begin;
    for (size_t at = begin + 3; at + 3 <= end; at++) {
        const uint8_t *found = memchr(text + at, 0xe2, end - 2 - at);
        if (!found) break;
        at = (size_t)(found - text);
        if (found[1] != 0x96 || found[2] != 0x81) continue;
        if (!memcmp(found - 3, "\xe2\x96\x81", 3)) continue;
        if (!word_encode(plan, e, done, at)) return false;
        done = at;
    }
    return word_encode(plan, e, done, end);
}

/* Encodes e->flow, which holds no added token. */
static bool flow_encode(const struct encode_plan *plan, struct encoder *e, bool is_first) {
    const tl_tokenizer *t = plan->t;
    const struct steps *s = &t->splitters;
    if (e->flow.n == 0) return true;
    /* The usual case, a scanner alone, needs no list of words. */
    const bool is_plain = s->n && s->at[0].scan && s->at[0].behavior == SPLIT_ISOLATED &&
                          (s->n == 1 || (s->n == 2 && s->at[1].kind == STEP_BYTE_LEVEL && !s->at[1].is_prefixed));
    if (is_plain) {
        const uint8_t *at = e->flow.text, *end = at + e->flow.n;
        while (at < end) {
            const uint8_t *next = s->at[0].scan(at, end);
            if (!word_encode(plan, e, (size_t)(at - e->flow.text), (size_t)(next - e->flow.text))) return false;
            at = next;
        }
        return true;
    }
    e->flow.n_words = 0;
    if (!flow_word(&e->flow, 0, e->flow.n) || !steps_split(s, e, plan->has_origins, is_first)) return false;
    for (size_t i = 0; i < e->flow.n_words; i++) {
        const struct span word = e->flow.words[i];
        if (!(t->may_cut_spaces ? words_cut : word_encode)(plan, e, word.begin, word.end)) return false;
    }
    return true;
}

/* ---- Texts ---- */

static bool id_put(struct encoder *e, int32_t id, bool has_offsets, struct span origin) {
    if (!ids_room(&e->ids, 1, has_offsets)) return false;
    e->ids.at[e->ids.n] = id;
    if (has_offsets) {
        e->ids.offsets[2 * e->ids.n] = origin.begin;
        e->ids.offsets[2 * e->ids.n + 1] = origin.end;
    }
    e->ids.n++;
    return true;
}

/* The text between added tokens: normalized, and cut at those that are found in the normalized text. */
static bool part_encode(const struct encode_plan *plan, struct encoder *e, const uint8_t *text, size_t base,
                        size_t bytes, bool is_first) {
    const tl_tokenizer *t = plan->t;
    flow_begin(&e->flow, text, NULL, bytes, base);
    if (t->normalizers.n && !steps_normalize(&t->normalizers, e, plan->has_origins, is_first)) return false;
    if (t->added.n == t->added.n_raw) return flow_encode(plan, e, is_first);
    const struct flow whole = e->flow; /* its buffers stay; e->flow becomes a view of parts of it */
    e->flow = e->normalized;
    e->normalized = whole;
    size_t done = 0, from = 0;
    struct added_match m;
    while (added_next(&t->added, true, plan->modes, whole.text, whole.n, from, done, &m)) {
        if (plan->modes[m.token] == ADDED_IS_REFUSED) return special_refuse(plan, m.token, base + m.begin);
        if (m.begin > done) {
            flow_begin(&e->flow, whole.text + done, whole.origin ? whole.origin + done : NULL, m.begin - done,
                       whole.base + done);
            if (!flow_encode(plan, e, is_first)) return false;
        }
        const struct span origin = {flow_origin(&e->normalized, m.begin).begin,
                                    flow_origin(&e->normalized, m.end - 1).end};
        if (!id_put(e, t->added.tokens[m.token].id, plan->has_offsets, origin)) return false;
        done = m.end;
        from = m.found_end;
    }
    flow_begin(&e->flow, whole.text + done, whole.origin ? whole.origin + done : NULL, whole.n - done,
               whole.base + done);
    return flow_encode(plan, e, is_first);
}

static bool is_utf8(const uint8_t *text, size_t bytes) {
    int length;
    for (size_t i = 0; i < bytes; i += (size_t)length) {
        if (text[i] < 0x80) length = 1;
        else if (unicode_get(text + i, text + bytes, &length) == UNICODE_REPLACEMENT && length == 1) return false;
    }
    return true;
}

bool encode_text(const struct encode_plan *plan, struct encoder *e, const uint8_t *text, size_t bytes, bool is_first) {
    const tl_tokenizer *t = plan->t;
    size_t done = 0, from = 0;
    struct added_match m;
    if (bytes > TOKENIZER_MOST_TEXT)
        return error_set(TL_ERROR_USE, "a text of %zu bytes (need at most 1 GiB; give longer texts in parts)", bytes);
    e->is_invalid = t->has_regex && !is_utf8(text, bytes);
    while (added_next(&t->added, false, plan->modes, text, bytes, from, done, &m)) {
        if (plan->modes[m.token] == ADDED_IS_REFUSED) return special_refuse(plan, m.token, m.begin);
        if (m.begin > done && !part_encode(plan, e, text + done, done, m.begin - done, is_first)) return false;
        const struct span origin = {(uint32_t)m.begin, (uint32_t)m.end};
        if (!id_put(e, t->added.tokens[m.token].id, plan->has_offsets, origin)) return false;
        done = m.end;
        from = m.found_end;
    }
    return done == bytes || part_encode(plan, e, text + done, done, bytes - done, is_first);
}

bool encode_template(const struct encode_plan *plan, struct encoder *e, bool is_before, size_t at) {
    const int32_t *ids = is_before ? plan->t->before : plan->t->after;
    const int n = !plan->has_template ? 0 : is_before ? plan->t->n_before : plan->t->n_after;
    for (int i = 0; i < n; i++)
        if (!id_put(e, ids[i], plan->has_offsets, (struct span){(uint32_t)at, (uint32_t)at})) return false;
    return true;
}

/* ---- Encoders of threads ---- */

struct encoder *encoder_take(const tl_tokenizer *tokenizer) {
    tl_tokenizer *t = (tl_tokenizer *)tokenizer; /* the list is what changes */
    lock_take(&t->lock);
    struct encoder *e = t->idle;
    if (e) t->idle = e->idle;
    lock_release(&t->lock);
    if (!e && !(e = encoder_new())) return NULL;
    e->ids.n = 0;
    if (encoder_cache(e)) return e;
    encoder_free(e);
    return NULL;
}

void encoder_put(const tl_tokenizer *tokenizer, struct encoder *e) {
    tl_tokenizer *t = (tl_tokenizer *)tokenizer;
    if (!e) return;
    lock_take(&t->lock);
    e->idle = t->idle;
    t->idle = e;
    lock_release(&t->lock);
}

/* ---- Many texts ---- */

void tl_encoding_free(tl_encoding *encoding) {
    if (!encoding) return;
    memory_free(encoding->ids);
    memory_free(encoding->offsets);
    memory_free(encoding->starts);
    *encoding = (tl_encoding){0};
}

/* Texts go to threads in blocks of about this size; each thread keeps the tokens of its blocks in order. */
enum { BLOCK_BYTES = 64 << 10 };

/* One thread's result of a run of texts. */
struct block {
    int64_t first, last; /* texts */
    size_t at, n;        /* tokens in the thread's list */
    int thread;
};
struct job {
    const struct encode_plan *plan;
    const char *const *texts;
    const size_t *bytes;
    const bool *is_later; /* NULL: none are */
    int64_t *starts;      /* starts[i + 1]: at first the number of tokens of text i */
    struct block *blocks;
    int64_t n_blocks;
    struct encoder **encoders;
    atomic_bool has_failed;
    atomic_llong next, failed; /* failed: the first text that did */
    tl_status status;
    char message[1024];
    lock lock;
};

static void job_fail(struct job *job, int64_t text) {
    lock_take(&job->lock);
    if (!atomic_load(&job->has_failed) || text < atomic_load(&job->failed)) {
        job->status = tl_error();
        text_copy(job->message, sizeof job->message, tl_error_message());
        atomic_store(&job->failed, text);
        atomic_store(&job->has_failed, true);
    }
    lock_release(&job->lock);
}

static bool text_encode(const struct job *job, struct encoder *e, int64_t i) {
    const struct encode_plan *plan = job->plan;
    const uint8_t *text = (const uint8_t *)job->texts[i];
    const size_t bytes = job->bytes[i];
    return encode_template(plan, e, true, 0) &&
           encode_text(plan, e, text, bytes, !job->is_later || !job->is_later[i]) &&
           encode_template(plan, e, false, bytes);
}

/* A thread's share: takes blocks until none is left. After a failure only earlier texts go on, so that the first error
 * of the list is the one that is reported. */
static void job_work(struct job *job, int thread) {
    for (int64_t b; (b = atomic_fetch_add(&job->next, 1)) < job->n_blocks;) {
        struct block *block = &job->blocks[b];
        struct encoder *e = job->encoders[thread];
        block->thread = thread;
        block->at = e->ids.n;
        for (int64_t i = block->first; i < block->last; i++) {
            if (atomic_load(&job->has_failed) && i > atomic_load(&job->failed)) return;
            const size_t before = e->ids.n;
            if (!text_encode(job, e, i)) {
                job_fail(job, i);
                return;
            }
            job->starts[i + 1] = (int64_t)(e->ids.n - before);
        }
        block->n = e->ids.n - block->at;
    }
}

static bool blocks_make(struct job *job, int64_t n) {
    size_t capacity = 0, sum = 0;
    int64_t first = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += job->bytes[i] + 16;
        if (sum < BLOCK_BYTES && i + 1 < n) continue;
        if (!memory_grow((void **)&job->blocks, &capacity, (size_t)job->n_blocks, sizeof *job->blocks))
            return error_memory(sizeof *job->blocks, "blocks of texts");
        job->blocks[job->n_blocks++] = (struct block){.first = first, .last = i + 1};
        first = i + 1;
        sum = 0;
    }
    return true;
}

static bool job_collect(struct job *job, tl_encoding *to, int64_t n, bool has_offsets) {
    for (int64_t i = 0; i < n; i++) job->starts[i + 1] += job->starts[i];
    const size_t count = (size_t)job->starts[n];
    to->ids = memory_new((count + 1) * sizeof *to->ids);
    to->offsets = has_offsets ? memory_new((2 * count + 1) * sizeof *to->offsets) : NULL;
    if (!to->ids || (has_offsets && !to->offsets)) return error_memory(count * sizeof *to->ids, "tokens");
    for (int64_t b = 0; b < job->n_blocks; b++) {
        const struct block *block = &job->blocks[b];
        const struct ids *from = &job->encoders[block->thread]->ids;
        const size_t at = (size_t)job->starts[block->first];
        if (!block->n) continue;
        memcpy(to->ids + at, from->at + block->at, block->n * sizeof *to->ids);
        if (has_offsets) memcpy(to->offsets + 2 * at, from->offsets + 2 * block->at, block->n * 2 * sizeof(int64_t));
    }
    to->count = (int64_t)count;
    to->n_texts = n;
    return true;
}

static bool job_run(struct job *job, int n_threads) {
    if (n_threads == 1) {
        job_work(job, 0);
        return !atomic_load(&job->has_failed);
    }
    /* Errors belong to the thread that makes them: they are recorded here again. */
#pragma omp parallel num_threads(n_threads)
    {
        const tl_status pending = tl_error();
        job_work(job, omp_get_thread_num());
        if (pending == TL_OK && omp_get_thread_num()) tl_error_clear();
    }
    if (!atomic_load(&job->has_failed)) return true;
    tl_error_clear();
    return error_set(job->status, "%s", job->message);
}

bool encode_texts(const struct encode_plan *plan, const char *const *texts, const size_t *bytes, const bool *is_later,
                  int64_t n, int threads, tl_encoding *encoding) {
    struct job job = {.plan = plan, .texts = texts, .bytes = bytes, .is_later = is_later, .lock = LOCK_INIT};
    *encoding = (tl_encoding){0};
    bool ok = blocks_make(&job, n);
    int n_threads = omp_in_parallel() ? 1 : threads > 0 ? threads : omp_get_max_threads(), n_encoders = 0;
    if (n_threads > job.n_blocks) n_threads = job.n_blocks ? (int)job.n_blocks : 1;
    job.starts = encoding->starts = ok ? memory_new(((size_t)n + 1) * sizeof *job.starts) : NULL;
    job.encoders = ok ? memory_new((size_t)n_threads * sizeof *job.encoders) : NULL;
    if (ok && (!job.starts || !job.encoders))
        ok = error_memory(((size_t)n + 1) * sizeof *job.starts, "texts to encode");
    if (ok) memset(job.starts, 0, ((size_t)n + 1) * sizeof *job.starts);
    while (ok && n_encoders < n_threads && (job.encoders[n_encoders] = encoder_take(plan->t))) n_encoders++;
    ok = ok && n_encoders == n_threads && job_run(&job, n_threads) && job_collect(&job, encoding, n, plan->has_offsets);
    for (int i = 0; i < n_encoders; i++) encoder_put(plan->t, job.encoders[i]);
    memory_free(job.encoders);
    memory_free(job.blocks);
    if (!ok) tl_encoding_free(encoding);
    return ok;
}

bool tl_tokenizer_encode(tl_tokenizer *t, const char *const *texts, const size_t *bytes, int64_t n,
                         const tl_encode_options *options, tl_encoding *encoding) {
    if (!encoding) return error_set(TL_ERROR_USE, "tokenizer_encode: no place for the result");
    *encoding = (tl_encoding){0};
    if (!t || n < 0 || (n && (!texts || !bytes)))
        return error_set(TL_ERROR_USE, "tokenizer_encode: no tokenizer, or no texts");
    if (tl_error() != TL_OK) return false;
    struct encode_plan plan;
    bool ok = encode_plan_make(&plan, t, options) && encode_texts(&plan, texts, bytes, NULL, n, 0, encoding);
    encode_plan_free(&plan);
    return ok;
}

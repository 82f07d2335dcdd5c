#include "data/feed.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"

enum { BATCHES = 3, LEAST_PIECE = 64 << 10 };

struct feed {
    struct documents *documents;
    const struct encode_plan *plan;
    struct feed_position from;
    size_t batch_bytes;
    /* of the document that goes on in the next batch: */
    struct documents_text rest;       /* text that was read and is in no batch yet */
    bool is_open, is_later, is_whole; /* is_later: some of it was in a batch; is_whole: `rest` is all that is missing */
    uint64_t taken;                   /* bytes of it that were in batches */
    tl_status status;                 /* an error behind the documents of the last batch */
    char message[1024];
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t filled_more, given_more;
    uint64_t filled, taken_batches, given;
    atomic_bool stop;
    struct batch batches[BATCHES];
};

/* ---- Filling a batch ---- */

static bool begin_put(struct batch *b, size_t at) {
    if (!memory_grow((void **)&b->begins, &b->capacity, b->n, sizeof *b->begins))
        return error_memory((b->n + 1) * sizeof *b->begins, "documents");
    b->begins[b->n++] = at;
    return true;
}

/* Reads documents until the text has `target` bytes. */
static bool documents_read(struct feed *f, struct batch *b, size_t target, bool *is_open) {
    while (b->text.n < target && !b->is_end) {
        if (atomic_load(&f->stop)) return error_set(TL_ERROR_USE, "stopped");
        enum documents_part part;
        size_t before = b->text.n, least = f->batch_bytes < LEAST_PIECE ? f->batch_bytes : LEAST_PIECE;
        size_t room = target - before > least ? target - before : least;
        if (!documents_next(f->documents, &b->text, room, &part)) return false;
        b->is_end = part == DOCUMENTS_NONE;
        if (b->is_end) break;
        if (!*is_open && !begin_put(b, before)) return false;
        *is_open = part != DOCUMENTS_LAST;
    }
    return true;
}

/* Where the last document, which goes on, is cut: at the end of the batch's text if it may be cut there, else at its
 * beginning, if there are others before it. False: there is no such place, and more text is needed. */
static bool open_cut(const struct feed *f, const struct batch *b, size_t *cut) {
    size_t begin = b->begins[b->n - 1];
    size_t length = encode_cut(f->plan, (const uint8_t *)b->text.at + begin, b->text.n - begin, 0);
    *cut = begin + length;
    return length > 0 || b->n > 1;
}

static bool parts_make(const struct feed *f, struct batch *b, size_t end, bool is_later) {
    for (size_t i = 0; i < b->n; i++) {
        size_t begin = b->begins[i], next = i + 1 < b->n ? b->begins[i + 1] : end;
        if (!parts_add(&b->parts, f->plan, b->text.at + begin, next - begin, i == 0 && is_later)) return false;
    }
    return true;
}

/* What is behind `cut` waits for the next batch. */
static bool rest_keep(struct feed *f, struct batch *b, size_t cut, bool is_later) {
    size_t begin = b->begins[b->n - 1];
    f->is_open = true;
    f->taken = (b->n == 1 && is_later ? f->taken : 0) + (cut - begin);
    f->is_later = cut > begin || (b->n == 1 && is_later);
    b->is_open = f->is_later;
    if (!b->is_open) b->n--; /* it begins in the next batch */
    f->rest.n = 0;
    return documents_text_add(&f->rest, b->text.at + cut, b->text.n - cut);
}

/* An error behind whole documents: they are a batch, so that they can be saved, and the error comes after it. */
static bool error_keep(struct feed *f, struct batch *b, bool is_open) {
    if (atomic_load(&f->stop) || b->n <= (size_t)is_open) return false;
    f->status = tl_error();
    text_copy(f->message, sizeof f->message, tl_error_message());
    tl_error_clear();
    return true;
}

static bool batch_fill(struct feed *f, struct batch *b) {
    if (f->status != TL_OK) return error_set(f->status, "%s", f->message);
    bool is_open = f->is_open && !f->is_whole, is_later = f->is_open && f->is_later;
    size_t target = f->batch_bytes > 2 * f->rest.n ? f->batch_bytes : 2 * f->rest.n, cut;
    b->text.n = b->n = b->parts.n = 0;
    b->is_open = b->is_end = false;
    if (f->is_open && (!begin_put(b, 0) || !documents_text_add(&b->text, f->rest.at, f->rest.n))) return false;
    f->is_open = f->is_whole = false;
    for (;; target = target < FEED_MOST_HELD / 2 ? 2 * target : FEED_MOST_HELD + 1) {
        if (!documents_read(f, b, target, &is_open)) {
            if (!error_keep(f, b, is_open)) return false;
            cut = is_open ? b->begins[--b->n] : b->text.n;
            is_open = false;
            break;
        }
        cut = b->text.n;
        if (!is_open || open_cut(f, b, &cut)) break;
        if (b->text.n > FEED_MOST_HELD)
            return error_set(TL_ERROR_USE,
                             "input %zu, document %llu: has more than 256 MiB without a place where this tokenizer may "
                             "cut it (--document-separator makes smaller documents of a text)",
                             documents_where(f->documents).input + 1,
                             (unsigned long long)documents_where(f->documents).documents + 1);
    }
    if (is_open && !rest_keep(f, b, cut, is_later)) return false;
    b->after = (struct feed_position){documents_where(f->documents), f->is_open && f->is_later ? f->taken : 0};
    b->used = documents_used(f->documents);
    b->bad = documents_bad(f->documents);
    return parts_make(f, b, cut, is_later);
}

/* ---- Going on where another process was ---- */

static bool changed(void) {
    return error_set(TL_ERROR_USE, "the inputs have fewer documents than when the work began (--restart begins again)");
}

static bool position_seek(struct feed *f) {
    enum documents_part part = DOCUMENTS_SOME;
    documents_seek(f->documents, f->from.at);
    for (struct documents_position at; at = documents_where(f->documents), at.documents < f->from.at.documents;) {
        if (atomic_load(&f->stop)) return error_set(TL_ERROR_USE, "stopped");
        f->rest.n = 0;
        if (!documents_next(f->documents, &f->rest, LEAST_PIECE, &part)) return false;
        if (part == DOCUMENTS_NONE || documents_where(f->documents).input != f->from.at.input) return changed();
    }
    f->rest.n = 0;
    uint64_t left = f->from.taken; /* dropped piece by piece, so that a long text needs no memory */
    for (part = DOCUMENTS_SOME; left > 0 && part == DOCUMENTS_SOME;) {
        if (atomic_load(&f->stop)) return error_set(TL_ERROR_USE, "stopped");
        if (!documents_next(f->documents, &f->rest, left < LEAST_PIECE ? (size_t)left : LEAST_PIECE, &part))
            return false;
        if (f->rest.n > left || part != DOCUMENTS_SOME) break;
        left -= f->rest.n;
        f->rest.n = 0;
    }
    if (f->rest.n < left || part == DOCUMENTS_NONE) return changed();
    if (f->rest.n) memmove(f->rest.at, f->rest.at + left, f->rest.n - (size_t)left);
    f->rest.n -= (size_t)left;
    f->is_open = f->is_later = f->from.taken > 0;
    f->is_whole = part == DOCUMENTS_LAST;
    f->taken = f->from.taken;
    return true;
}

/* ---- The thread ---- */

static void *thread_main(void *feed) {
    struct feed *f = feed;
    bool ok = position_seek(f);
    pthread_mutex_lock(&f->lock);
    while (!atomic_load(&f->stop)) {
        if (f->filled >= f->given + BATCHES) {
            pthread_cond_wait(&f->given_more, &f->lock);
            continue;
        }
        struct batch *b = &f->batches[f->filled % BATCHES];
        pthread_mutex_unlock(&f->lock);
        ok = ok && batch_fill(f, b);
        b->status = ok ? TL_OK : tl_error();
        if (!ok) text_copy(b->message, sizeof b->message, tl_error_message());
        tl_error_clear();
        pthread_mutex_lock(&f->lock);
        f->filled++;
        pthread_cond_signal(&f->filled_more);
        if (!ok || b->is_end) break;
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static bool thread_start(struct feed *f) {
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->filled_more, NULL);
    pthread_cond_init(&f->given_more, NULL);
    int reason = thread_begin(&f->thread, thread_main, f);
    f->has_thread = reason == 0;
    return f->has_thread || thread_refused("", reason);
}

struct feed *feed_new(const struct inputs *inputs, const struct documents_options *options,
                      const struct encode_plan *plan, struct feed_position from, size_t batch_bytes) {
    struct feed *f = memory_new(sizeof *f);
    if (!f) return error_memory(sizeof *f, "a reader of documents"), NULL;
    memset(f, 0, sizeof *f);
    f->plan = plan;
    f->from = from;
    f->batch_bytes = batch_bytes;
    struct documents_options o = *options;
    o.stop = &f->stop;
    f->documents = documents_new(inputs, &o);
    if (f->documents && thread_start(f)) return f;
    feed_free(f);
    return NULL;
}

struct batch *feed_take(struct feed *f, bool (*is_stopped)(void *context), void *context) {
    pthread_mutex_lock(&f->lock);
    bool is_over = false;
    while (f->filled == f->taken_batches && !is_over) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 200000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&f->filled_more, &f->lock, &until);
        is_over = is_stopped && is_stopped(context);
    }
    struct batch *b = is_over ? NULL : &f->batches[f->taken_batches % BATCHES];
    if (b) f->taken_batches++;
    pthread_mutex_unlock(&f->lock);
    if (!b || b->status == TL_OK) return b;
    error_set(b->status, "%s", b->message);
    return NULL;
}

void feed_give(struct feed *f, struct batch *b) {
    (void)b; /* in order */
    pthread_mutex_lock(&f->lock);
    f->given++;
    pthread_cond_signal(&f->given_more);
    pthread_mutex_unlock(&f->lock);
}

void feed_free(struct feed *f) {
    if (!f) return;
    if (f->has_thread) {
        pthread_mutex_lock(&f->lock);
        atomic_store(&f->stop, true);
        pthread_cond_signal(&f->given_more);
        pthread_mutex_unlock(&f->lock);
        pthread_join(f->thread, NULL);
        pthread_cond_destroy(&f->given_more);
        pthread_cond_destroy(&f->filled_more);
        pthread_mutex_destroy(&f->lock);
    }
    for (int i = 0; i < BATCHES; i++) {
        parts_free(&f->batches[i].parts);
        memory_free(f->batches[i].text.at);
        memory_free(f->batches[i].begins);
    }
    memory_free(f->rest.at);
    documents_free(f->documents);
    memory_free(f);
}

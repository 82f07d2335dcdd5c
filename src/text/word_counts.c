#include "text/word_counts.h"

#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

/* A piece is this long: tens of thousands of distinct words, in a table that the L2 cache nearly holds. */
#define PIECE_BYTES ((size_t)2 << 20)
/* Readable bytes behind a piece, for the hash. */
enum { PADDING = 8 };

struct local_word {
    uint64_t hash;
    uint32_t at, length, count; /* count 0: empty */
};
struct word_worker {
    uint8_t *text; /* the piece */
    size_t capacity;
    struct local_word *slots;
    size_t slot_capacity, mask, n;
    uint64_t n_words;
};

/* Reads up to 8 bytes behind the word. */
static inline uint64_t word_hash(const uint8_t *word, size_t length) {
    uint64_t h = length, x;
    for (; length > 8; word += 8, length -= 8) {
        memcpy(&x, word, 8);
        h = (h ^ x) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    memcpy(&x, word, 8);
    x &= UINT64_MAX >> (64 - 8 * length);
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

/* ---- The common table ---- */

static bool part_grow(struct word_part *p) {
    const size_t n = p->slots ? 2 * (p->mask + 1) : 256;
    uint64_t *slots = memory_new(n * sizeof *slots);
    if (!slots) return error_memory(n * sizeof *slots, "the words of a text");
    memset(slots, 0, n * sizeof *slots);
    for (size_t i = 0; p->slots && i <= p->mask; i++) {
        if (!p->slots[i]) continue;
        size_t to = (p->slots[i] >> 32) & (n - 1);
        while (slots[to]) to = (to + 1) & (n - 1);
        slots[to] = p->slots[i];
    }
    memory_free(p->slots);
    p->slots = slots;
    p->mask = n - 1;
    return true;
}

static bool part_room(struct word_part *p, size_t length) {
    if ((!p->slots || p->n >= (p->mask + 1) / 4 * 3) && !part_grow(p)) return false;
    if (p->n == p->capacity && !memory_grow((void **)&p->words, &p->capacity, p->n, sizeof *p->words))
        return error_memory(p->capacity * 2 * sizeof *p->words, "the words of a text");
    const size_t needed = p->n_bytes + length;
    if (needed > UINT32_MAX || p->n >= UINT32_MAX - 1)
        return error_set(TL_ERROR_USE, "the distinct words of the text are more than 256 GiB");
    if (needed <= p->bytes_capacity) return true;
    const size_t capacity = needed + needed / 2 + 4096;
    uint8_t *grown = memory_resize(p->bytes, capacity);
    if (!grown) return error_memory(capacity, "the words of a text");
    p->bytes = grown;
    p->bytes_capacity = capacity;
    return true;
}

/* The part is chosen by the lowest bits of the hash, the slot by the upper half. */
static bool part_add(struct word_part *p, uint64_t hash, const uint8_t *word, uint32_t length, uint64_t count) {
    if (!part_room(p, length)) return false;
    const uint64_t tag = hash >> 32;
    size_t slot = tag & p->mask;
    for (; p->slots[slot]; slot = (slot + 1) & p->mask) {
        if (p->slots[slot] >> 32 != tag) continue;
        struct word *other = &p->words[(uint32_t)p->slots[slot] - 1];
        if (other->length != length || memcmp(p->bytes + other->at, word, length)) continue;
        other->count += count;
        return true;
    }
    memcpy(p->bytes + p->n_bytes, word, length);
    p->words[p->n] = (struct word){count, (uint32_t)p->n_bytes, length};
    p->n_bytes += length;
    p->slots[slot] = tag << 32 | ++p->n;
    return true;
}

void word_part_free(struct word_part *p) {
    memory_free(p->words);
    memory_free(p->slots);
    memory_free(p->bytes);
    *p = (struct word_part){.lock = LOCK_INIT};
}

void word_counts_free(struct word_counts *w) {
    for (int i = 0; i < WORD_PARTS; i++) word_part_free(&w->parts[i]);
    for (int i = 0; i < w->n_workers; i++) {
        memory_free(w->workers[i].text);
        memory_free(w->workers[i].slots);
    }
    memory_free(w->workers);
    memory_free(w->modes);
    added_free(&w->special);
    *w = (struct word_counts){0};
}

/* ---- The words of a piece ---- */

static bool worker_slots(struct word_worker *k, size_t n) {
    if (n > k->slot_capacity) {
        struct local_word *slots = memory_new(n * sizeof *slots);
        if (!slots) return error_memory(n * sizeof *slots, "the words of a text");
        memory_free(k->slots);
        k->slots = slots;
        k->slot_capacity = n;
    }
    memset(k->slots, 0, n * sizeof *k->slots);
    k->mask = n - 1;
    k->n = 0;
    return true;
}

static bool worker_grow(struct word_worker *k) {
    struct word_worker wider = {.n = 0};
    if (!worker_slots(&wider, 2 * (k->mask + 1))) return false;
    for (size_t i = 0; i <= k->mask; i++) {
        if (!k->slots[i].count) continue;
        size_t slot = k->slots[i].hash & wider.mask;
        while (wider.slots[slot].count) slot = (slot + 1) & wider.mask;
        wider.slots[slot] = k->slots[i];
    }
    memory_free(k->slots);
    k->slots = wider.slots;
    k->slot_capacity = wider.slot_capacity;
    k->mask = wider.mask;
    return true;
}

static inline bool worker_add(struct word_worker *k, size_t at, size_t length) {
    const uint64_t hash = word_hash(k->text + at, length);
    size_t slot = hash & k->mask;
    for (; k->slots[slot].count; slot = (slot + 1) & k->mask) {
        struct local_word *other = &k->slots[slot];
        if (other->hash != hash || other->length != length || memcmp(k->text + other->at, k->text + at, length))
            continue;
        other->count++;
        return true;
    }
    k->slots[slot] = (struct local_word){hash, (uint32_t)at, (uint32_t)length, 1};
    return ++k->n < (k->mask + 1) / 4 * 3 || worker_grow(k);
}

static bool words_add(struct word_worker *k, scanner_fn scan, size_t begin, size_t end) {
    const uint8_t *at = k->text + begin, *stop = k->text + end;
    while (at < stop) {
        const uint8_t *next = scan(at, stop);
        if (!worker_add(k, (size_t)(at - k->text), (size_t)(next - at))) return false;
        k->n_words++;
        at = next;
    }
    return true;
}

static bool piece_count(struct word_counts *w, struct word_worker *k, size_t bytes) {
    size_t n = 256, done = 0;
    while (n < bytes / 32) n *= 2;
    struct added_match m;
    if (!worker_slots(k, n)) return false;
    for (; added_next(&w->special, false, w->modes, k->text, bytes, done, done, &m); done = m.end)
        if (!words_add(k, w->scan, done, m.begin)) return false;
    if (!words_add(k, w->scan, done, bytes)) return false;
    for (size_t i = 0; i <= k->mask; i++) {
        const struct local_word *word = &k->slots[i];
        if (!word->count) continue;
        struct word_part *part = &w->parts[word->hash % WORD_PARTS];
        lock_take(&part->lock);
        const bool ok = part_add(part, word->hash, k->text + word->at, word->length, word->count);
        lock_release(&part->lock);
        if (!ok) return false;
    }
    return true;
}

/* ---- Pieces ---- */

static bool piece_read(const struct word_source *from, struct word_worker *k, size_t bytes, uint64_t offset) {
    if (bytes + PADDING > k->capacity) {
        uint8_t *grown = memory_new(bytes + PADDING);
        if (!grown) return error_memory(bytes, "a piece of a text");
        memory_free(k->text);
        k->text = grown;
        k->capacity = bytes + PADDING;
    }
    memset(k->text + bytes, 0, PADDING);
    if (!from->text) return file_read(from->fd, from->path, k->text, bytes, (size_t)offset);
    memcpy(k->text, from->text + offset, bytes);
    return true;
}

/* Where the piece ends: the last place that no word crosses; 0: none. */
static size_t piece_cut(const struct word_counts *w, const uint8_t *text, size_t bytes) {
    const size_t tail = w->special.longest + 16;
    for (size_t at = bytes > tail ? bytes - tail : 0; at > 0; at--)
        if (scanner_cut(text, bytes, at) != CUT_NONE && !added_is_near(&w->special, w->modes, text, bytes, at))
            return at;
    return 0;
}

/* Reads the next piece; its length, or 0 on error, which is recorded. */
static size_t piece_next(const struct word_counts *w, const struct word_source *from, struct word_worker *k,
                         uint64_t offset) {
    const uint64_t left = from->bytes - offset;
    for (size_t bytes = PIECE_BYTES;; bytes *= 2) {
        if (left <= bytes) return piece_read(from, k, (size_t)left, offset) ? (size_t)left : 0;
        if (!piece_read(from, k, bytes, offset)) return 0;
        size_t cut = piece_cut(w, k->text, bytes);
        if (cut) return cut;
        if (bytes < WORD_COUNTS_MOST) continue;
        for (cut = bytes; cut > bytes - 3 && (k->text[cut - 1] & 0xc0) == 0x80; cut--) continue;
        return cut - 1; /* a whole number of characters, if there are any */
    }
}

struct pass {
    struct word_counts *w;
    const struct word_source *from;
    word_progress_fn progress;
    void *context;
    pthread_mutex_t lock;
    uint64_t offset; /* of the next piece; under the lock, as is the first failure */
    atomic_ullong done;
    atomic_bool has_failed;
    tl_status status;
    char message[1024];
};

static void pass_fail(struct pass *p) {
    pthread_mutex_lock(&p->lock);
    if (!atomic_load(&p->has_failed)) {
        p->status = tl_error();
        text_copy(p->message, sizeof p->message, tl_error_message());
    }
    atomic_store(&p->has_failed, true);
    pthread_mutex_unlock(&p->lock);
}

static void pass_work(struct pass *p, int thread) {
    struct word_worker *k = &p->w->workers[thread];
    while (!atomic_load(&p->has_failed)) {
        size_t bytes = 0;
        pthread_mutex_lock(&p->lock);
        const bool is_end = p->offset == p->from->bytes;
        if (!is_end) bytes = piece_next(p->w, p->from, k, p->offset);
        p->offset += bytes;
        pthread_mutex_unlock(&p->lock);
        if (is_end) return;
        bool ok = bytes && piece_count(p->w, k, bytes);
        const uint64_t done = atomic_fetch_add(&p->done, bytes) + bytes;
        if (ok && thread == 0 && ((p->progress && !p->progress(done, p->context)) || stop_is_asked()))
            ok = error_set(TL_ERROR_USE, "bpe: stopped");
        if (!ok) pass_fail(p);
    }
}

static bool workers_make(struct word_counts *w, int n) {
    if (n <= w->n_workers) return true;
    struct word_worker *grown = memory_resize(w->workers, (size_t)n * sizeof *grown);
    if (!grown) return error_memory((size_t)n * sizeof *grown, "threads that count words");
    memset(grown + w->n_workers, 0, (size_t)(n - w->n_workers) * sizeof *grown);
    w->workers = grown;
    w->n_workers = n;
    return true;
}

bool word_counts_add(struct word_counts *w, const struct word_source *from, word_progress_fn progress, void *context) {
    struct pass p = {.w = w, .from = from, .progress = progress, .context = context, .lock = PTHREAD_MUTEX_INITIALIZER};
    const uint64_t n_pieces = from->bytes / PIECE_BYTES + 1;
    int n_threads = omp_in_parallel() ? 1 : omp_get_max_threads();
    if ((uint64_t)n_threads > n_pieces) n_threads = (int)n_pieces;
    if (!workers_make(w, n_threads)) return false;
    if (n_threads == 1) pass_work(&p, 0);
    else {
        /* Errors belong to the thread that makes them: they are recorded here again. */
#pragma omp parallel num_threads(n_threads)
        {
            pass_work(&p, omp_get_thread_num());
            if (omp_get_thread_num()) tl_error_clear();
        }
    }
    for (int i = 0; i < w->n_workers; i++) {
        w->n_words += w->workers[i].n_words;
        w->workers[i].n_words = 0;
    }
    w->n_bytes += from->bytes;
    if (!atomic_load(&p.has_failed) || tl_error() != TL_OK) return !atomic_load(&p.has_failed);
    return error_set(p.status, "%s", p.message);
}

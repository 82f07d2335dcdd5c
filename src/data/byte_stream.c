#include "data/byte_stream.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"

enum { INPUT_BYTES = 256 << 10, SLOTS = 4, SLOT_BYTES = 256 << 10, SMALL_BYTES = 4096 };
enum packing { PACKED_NOT, PACKED_GZIP, PACKED_ZSTD };

/* A thread that decompresses into a ring of slots, so that a reader who parses does not slow the decompressor down. */
struct ahead {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t filled_more, taken_more;
    uint64_t filled, taken; /* slots */
    atomic_bool stop;
    struct slot {
        size_t n;      /* 0: the end, or an error */
        uint64_t used; /* bytes of the file up to here */
    } slots[SLOTS];
    size_t at;     /* bytes of the current slot that were read */
    uint64_t used; /* of the last slot that was read */
    tl_status status;
    char message[1024];
    unsigned char data[SLOTS][SLOT_BYTES];
};

struct byte_stream {
    int fd;
    const char *path; /* for messages; behind the struct */
    const atomic_bool *stop;
    enum packing packing;
    uint64_t taken; /* bytes of the file that were read */
    size_t at, n;   /* the input's bytes at .. n-1 are not used yet */
    bool is_ended;  /* the file */
    bool is_inside; /* a gzip member or zstd frame that is not complete */
    bool has_gzip;  /* gzip is to be ended */
    z_stream gzip;
    ZSTD_DStream *zstd;
    struct ahead *ahead; /* NULL: decompresses when it is read */
    unsigned char input[INPUT_BYTES];
};

/* ---- What it is ---- */

static const struct {
    const char *bytes;
    size_t n;
    const char *what; /* what the file is, and what to do instead; NULL: it can be read */
    enum packing packing;
} kinds[] = {
    {"\x1f\x8b", 2, NULL, PACKED_GZIP},
    {"\x28\xb5\x2f\xfd", 4, NULL, PACKED_ZSTD},
    {"PAR1", 4,
     "is a Parquet file, which Tally does not read (make JSONL of it: python3 -c \"import sys, pandas; "
     "pandas.read_parquet(sys.argv[1]).to_json(sys.stdout, orient='records', lines=True)\" FILE | gzip > "
     "FILE.jsonl.gz)",
     PACKED_NOT},
    {"BZh", 3, "is compressed with bzip2 (give its text: bzip2 -dc FILE | tally tokenize - ...)", PACKED_NOT},
    {"\xfd"
     "7zXZ",
     5, "is compressed with xz (give its text: xz -dc FILE | tally tokenize - ...)", PACKED_NOT},
    {"PK\x03\x04", 4, "is a zip archive (unpack it first)", PACKED_NOT},
    {"TALLYTOK", 8, "is a file of tokens already (`tally data inspect` shows what is in it)", PACKED_NOT},
};

/* From the file itself. Standard input may keep us waiting, so it is asked a few times per second. */
static bool raw_read(struct byte_stream *s, void *to, size_t room, size_t *n) {
    struct pollfd input = {.fd = s->fd, .events = POLLIN};
    while (s->fd == 0 && s->stop && poll(&input, 1, 200) <= 0)
        if (atomic_load(s->stop) || (s->ahead && atomic_load(&s->ahead->stop)))
            return error_set(TL_ERROR_USE, "%s: stopped", s->path);
    if (!file_read_some(s->fd, file_path(s->path), to, room, n)) return false;
    s->taken += *n;
    s->is_ended = *n == 0;
    return true;
}

static bool input_fill(struct byte_stream *s) {
    if (s->at < s->n || s->is_ended) return true;
    s->at = s->n = 0;
    return raw_read(s, s->input, INPUT_BYTES, &s->n);
}

/* A pipe may give its first bytes one by one. */
static bool head_read(struct byte_stream *s) {
    for (size_t more; s->n < 8 && !s->is_ended; s->n += more)
        if (!raw_read(s, s->input + s->n, INPUT_BYTES - s->n, &more)) return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (s->n < kinds[i].n || memcmp(s->input, kinds[i].bytes, kinds[i].n)) continue;
        if (kinds[i].what) return error_set(TL_ERROR_USE, "%s: %s", s->path, kinds[i].what);
        s->packing = kinds[i].packing;
    }
    /* a zstd file may begin with frames to be skipped, 0x184D2A50 to 5F; pzstd writes them */
    if (s->n >= 4 && (s->input[0] & 0xf0) == 0x50 && !memcmp(s->input + 1, "\x2a\x4d\x18", 3)) s->packing = PACKED_ZSTD;
    return true;
}

static bool packing_begin(struct byte_stream *s) {
    bool is_armed = s->packing != PACKED_NOT && memory_fault();
    if (s->packing == PACKED_GZIP) s->has_gzip = !is_armed && inflateInit2(&s->gzip, 15 + 16) == Z_OK;
    if (s->packing == PACKED_ZSTD) s->zstd = is_armed ? NULL : ZSTD_createDStream();
    return s->packing == PACKED_NOT || s->has_gzip || s->zstd || error_memory(INPUT_BYTES, "a decompressor");
}

static uint64_t file_used(const struct byte_stream *s) { return s->taken - (s->n - s->at); }

/* ---- Reading ---- */

static bool plain_read(struct byte_stream *s, void *to, size_t room, size_t *n) {
    if (s->at == s->n) return s->is_ended ? (*n = 0, true) : raw_read(s, to, room, n); /* past the buffer */
    *n = s->n - s->at < room ? s->n - s->at : room;
    memcpy(to, s->input + s->at, *n);
    s->at += *n;
    return true;
}

static bool damaged(const struct byte_stream *s, const char *what, const char *why) {
    return error_set(TL_ERROR_USE, "%s: byte %llu: is damaged %s: %s", s->path, (unsigned long long)byte_stream_used(s),
                     what, why);
}

static bool cut_short(const struct byte_stream *s, const char *what) {
    return error_set(TL_ERROR_USE, "%s: ends after %llu bytes inside %s (is it cut short?)", s->path,
                     (unsigned long long)s->taken, what);
}

/* A file of several members is their texts one after the other; zeros may fill up the last block of a tape. */
static bool gzip_next(struct byte_stream *s) {
    while (s->at < s->n && !s->input[s->at]) s->at++;
    if (s->at == s->n) return true;
    s->is_inside = true;
    return inflateReset(&s->gzip) == Z_OK || damaged(s, "gzip", "no new member can begin");
}

static bool gzip_read(struct byte_stream *s, void *to, size_t room, size_t *n) {
    s->gzip.next_out = to;
    s->gzip.avail_out = (uInt)(room < (1u << 30) ? room : 1u << 30);
    while (s->gzip.next_out == (unsigned char *)to) {
        if (!input_fill(s)) return false;
        if (!s->is_inside && !gzip_next(s)) return false;
        if (!s->is_inside && s->is_ended) break;
        if (!s->is_inside) continue;
        s->gzip.next_in = s->input + s->at;
        s->gzip.avail_in = (uInt)(s->n - s->at);
        int result = inflate(&s->gzip, Z_NO_FLUSH);
        s->at = s->n - s->gzip.avail_in;
        if (result == Z_MEM_ERROR) return error_memory(1 << 15, "a decompressor");
        if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
            return damaged(s, "gzip", s->gzip.msg ? s->gzip.msg : "not gzip");
        if (result == Z_STREAM_END) s->is_inside = false;
        else if (s->is_ended && s->at == s->n && s->gzip.next_out == (unsigned char *)to)
            return cut_short(s, "a gzip member");
    }
    *n = (size_t)(s->gzip.next_out - (unsigned char *)to);
    return true;
}

static bool zstd_failed(const struct byte_stream *s, size_t code) {
    if (ZSTD_getErrorCode(code) == ZSTD_error_memory_allocation) return error_memory(1 << 27, "a decompressor");
    if (ZSTD_getErrorCode(code) == ZSTD_error_frameParameter_windowTooLarge)
        return error_set(TL_ERROR_USE,
                         "%s: its zstd window is larger than 128 MiB (give its text: zstd -dc --long=31 FILE | tally "
                         "tokenize - ...)",
                         s->path);
    return damaged(s, "zstd", ZSTD_getErrorName(code));
}

static bool zstd_read(struct byte_stream *s, void *to, size_t room, size_t *n) {
    ZSTD_outBuffer out = {to, room, 0};
    while (out.pos == 0) {
        if (!input_fill(s)) return false;
        if (s->at == s->n && !s->is_inside) break;
        ZSTD_inBuffer in = {s->input, s->n, s->at};
        size_t left = ZSTD_decompressStream(s->zstd, &out, &in);
        s->at = in.pos;
        if (ZSTD_isError(left)) return zstd_failed(s, left);
        s->is_inside = left != 0;
        if (s->is_inside && s->is_ended && s->at == s->n && out.pos == 0) return cut_short(s, "a zstd frame");
    }
    *n = out.pos;
    return true;
}

static bool packed_read(struct byte_stream *s, void *to, size_t room, size_t *n) {
    return s->packing == PACKED_GZIP ? gzip_read(s, to, room, n) : zstd_read(s, to, room, n);
}

/* ---- Reading ahead ---- */

static void *ahead_main(void *stream) {
    struct byte_stream *s = stream;
    struct ahead *a = s->ahead;
    pthread_mutex_lock(&a->lock);
    for (size_t n = 1; n && !atomic_load(&a->stop);) {
        if (a->filled == a->taken + SLOTS) {
            pthread_cond_wait(&a->taken_more, &a->lock);
            continue;
        }
        int slot = (int)(a->filled % SLOTS);
        pthread_mutex_unlock(&a->lock);
        if (!packed_read(s, a->data[slot], SLOT_BYTES, &n)) {
            n = 0;
            a->status = tl_error();
            text_copy(a->message, sizeof a->message, tl_error_message());
            tl_error_clear();
        }
        pthread_mutex_lock(&a->lock);
        a->slots[slot] = (struct slot){n, file_used(s)};
        a->filled++;
        pthread_cond_signal(&a->filled_more);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* Without a thread it works all the same, and a small file is decompressed before a thread has started. */
static bool ahead_begin(struct byte_stream *s, size_t file_bytes) {
    if (s->packing == PACKED_NOT || file_bytes <= SMALL_BYTES) return true;
    struct ahead *a = memory_new(sizeof *a);
    if (!a) return error_memory(sizeof *a, "a decompressor");
    memset(a, 0, offsetof(struct ahead, data));
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->filled_more, NULL);
    pthread_cond_init(&a->taken_more, NULL);
    s->ahead = a;
    if (thread_begin(&a->thread, ahead_main, s)) {
        memory_free(a);
        s->ahead = NULL;
    }
    return true;
}

static void ahead_end(struct byte_stream *s) {
    struct ahead *a = s->ahead;
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    atomic_store(&a->stop, true);
    pthread_cond_signal(&a->taken_more);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->taken_more);
    pthread_cond_destroy(&a->filled_more);
    pthread_mutex_destroy(&a->lock);
    memory_free(a);
}

static bool ahead_read(struct ahead *a, void *to, size_t room, size_t *n) {
    pthread_mutex_lock(&a->lock);
    while (a->filled == a->taken) pthread_cond_wait(&a->filled_more, &a->lock);
    pthread_mutex_unlock(&a->lock);
    int slot = (int)(a->taken % SLOTS); /* nobody else changes it, nor this slot */
    size_t left = a->slots[slot].n - a->at;
    if (a->slots[slot].n == 0) { /* the end stays where it is */
        *n = 0;
        return a->status == TL_OK || error_set(a->status, "%s", a->message);
    }
    *n = left < room ? left : room;
    memcpy(to, a->data[slot] + a->at, *n);
    a->at += *n;
    if (*n < left) return true;
    a->used = a->slots[slot].used;
    a->at = 0;
    pthread_mutex_lock(&a->lock);
    a->taken++;
    pthread_cond_signal(&a->taken_more);
    pthread_mutex_unlock(&a->lock);
    return true;
}

uint64_t byte_stream_used(const struct byte_stream *s) { return s->ahead ? s->ahead->used : file_used(s); }

bool byte_stream_read(struct byte_stream *s, void *to, size_t room, size_t *n) {
    if (s->packing == PACKED_NOT) return plain_read(s, to, room, n);
    return s->ahead ? ahead_read(s->ahead, to, room, n) : packed_read(s, to, room, n);
}

/* ---- Opening and closing ---- */

struct byte_stream *byte_stream_open(const char *path, const atomic_bool *stop) {
    bool is_standard = !strcmp(path, "-");
    const char *name = is_standard ? "standard input" : path;
    size_t bytes = sizeof(struct byte_stream) + strlen(name) + 1, size = SIZE_MAX;
    struct byte_stream *s = memory_new(bytes);
    if (!s) return error_memory(bytes, "a file to be read"), NULL;
    memset(s, 0, offsetof(struct byte_stream, input));
    s->path = strcpy((char *)(s + 1), name);
    s->stop = stop;
    s->fd = is_standard ? 0 : file_open(path, &size);
    if (s->fd >= 0 && head_read(s) && packing_begin(s) && ahead_begin(s, size)) return s;
    byte_stream_close(s);
    return NULL;
}

void byte_stream_close(struct byte_stream *s) {
    if (!s) return;
    ahead_end(s);
    if (s->has_gzip) inflateEnd(&s->gzip);
    if (s->zstd) ZSTD_freeDStream(s->zstd);
    if (s->fd > 0) file_close(s->fd);
    memory_free(s);
}

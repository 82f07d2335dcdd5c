/* token_file.c: a mapped token file; ids and checksums are checked when they are read.
 *
 * Checking a terabyte before the first step would take many minutes, and not checking it would let a damaged block
 * train for days. Each block of Tally's own format is therefore checked once, when its first token is read: one bit
 * per 64 KiB, per file and process.
 */
#include "data/token_file.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/refs.h"

struct tl_token_file {
    atomic_int refs;
    int fd; /* open, to see whether the file still has its bytes */
    struct file_map *map;
    const unsigned char *bytes, *data; /* the whole file; the tokens */
    tl_token_info info;
    uint64_t limit;       /* ids must be below */
    atomic_uchar *proven; /* a bit per block; NULL without checksums */
    char path[];
};

static bool surface(const struct problem *problem) { return error_set(problem->status, "%s", problem->text); }

/* ---- Opening ---- */

static uint64_t data_bytes(const tl_token_file *f) { return (uint64_t)f->info.count * (uint64_t)f->info.token_bytes; }

static uint64_t blocks_of(const tl_token_file *f) {
    return (data_bytes(f) + TOKEN_BLOCK_BYTES - 1) / TOKEN_BLOCK_BYTES;
}

static bool proven_new(tl_token_file *f) {
    if (!f->info.has_checksums) return true;
    size_t room = (size_t)(blocks_of(f) + 7) / 8;
    f->proven = memory_new(room);
    if (!f->proven) return error_memory(room, "the checked blocks of a token file");
    for (size_t i = 0; i < room; i++) atomic_init(&f->proven[i], 0);
    return true;
}

static bool file_load(tl_token_file *f, struct file_place at, tl_token_format format) {
    size_t bytes;
    f->fd = file_open_at(at, &bytes);
    if (f->fd < 0) return false;
    if (bytes == 0) return error_set(TL_ERROR_USE, "tokens: %s: is empty (need at least one token)", f->path);
    f->map = file_map_new(f->fd, f->path, bytes);
    if (!f->map) return false;
    f->bytes = file_map_data(f->map);
    struct problem problem;
    if (!token_header_read(&f->info, f->bytes, bytes, f->path, format, &problem)) return surface(&problem);
    f->data = f->bytes + f->info.data_begin;
    f->limit = f->info.vocabulary ? (uint64_t)f->info.vocabulary : (uint64_t)1 << 31;
    return proven_new(f);
}

tl_token_file *token_file_open_at(struct file_place at, tl_token_format format) {
    size_t length = file_text_bytes(at), room = sizeof(tl_token_file) + length;
    tl_token_file *f = memory_new(room);
    if (!f) return error_memory(room, "a token file"), NULL;
    *f = (tl_token_file){.refs = 1, .fd = -1};
    file_print(at, f->path, length);
    if (file_load(f, at, format)) return f;
    tl_token_file_close(f);
    return NULL;
}

tl_token_file *tl_token_file_open(const char *path, tl_token_format format) {
    if (!path) return error_set(TL_ERROR_USE, "token_file_open: no path"), NULL;
    return token_file_open_at(file_path(path), format);
}

void token_file_keep(tl_token_file *f) { refs_keep(&f->refs); }

const char *token_file_path(const tl_token_file *f) { return f->path; }
int token_file_descriptor(const tl_token_file *f) { return f->fd; }
const unsigned char *token_file_data(const tl_token_file *f) { return f->data; }

void tl_token_file_close(tl_token_file *f) {
    if (!f || !refs_drop(&f->refs)) return;
    if (f->map) file_map_drop(f->map);
    if (f->fd >= 0) file_close(f->fd);
    memory_free(f->proven);
    memory_free(f);
}

bool tl_token_file_info(const tl_token_file *f, tl_token_info *info) {
    if (!f || !info) return false;
    *info = f->info;
    return true;
}

bool tl_token_file_expect(tl_token_file *f, int64_t vocabulary, uint64_t hash) {
    if (!f) return tl_error() == TL_OK ? error_set(TL_ERROR_USE, "token_file_expect: no file") : false;
    if (vocabulary < 1 || vocabulary > (int64_t)1 << 31)
        return error_set(TL_ERROR_USE, "token_file_expect: %s: a vocabulary of %lld (need 1 to 2^31)", f->path,
                         (long long)vocabulary);
    /* A model's vocabulary is often rounded up; a smaller one cannot take the file's ids. */
    if (f->info.vocabulary > vocabulary)
        return error_set(TL_ERROR_USE, "tokens: %s: is for a vocabulary of %lld (need at most %lld)", f->path,
                         (long long)f->info.vocabulary, (long long)vocabulary);
    if (hash && f->info.vocabulary_hash && hash != f->info.vocabulary_hash)
        return error_set(TL_ERROR_USE,
                         "tokens: %s: was made with the vocabulary %016llx (need %016llx: give "
                         "the tokenizer that made it, or tokenize its text again)",
                         f->path, (unsigned long long)f->info.vocabulary_hash, (unsigned long long)hash);
    if (!f->info.vocabulary) f->limit = (uint64_t)vocabulary;
    return true;
}

/* ---- Documents ---- */

static int64_t document_first(const tl_token_file *f, int64_t document) {
    int64_t first;
    memcpy(&first, f->bytes + token_documents_begin(&f->info) + (uint64_t)document * 8, sizeof first);
    return first;
}

int64_t tl_token_file_document_begin(const tl_token_file *f, int64_t document) {
    if (!f || document < 0 || document > f->info.documents || !f->info.documents) return -1;
    return document == f->info.documents ? f->info.count : document_first(f, document);
}

int64_t tl_token_file_document_at(const tl_token_file *f, int64_t token) {
    if (!f || token < 0 || token >= f->info.count || !f->info.documents) return -1;
    int64_t low = 0, high = f->info.documents; /* document `low` begins at or before the token, `high` behind it */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (document_first(f, middle) <= token) low = middle;
        else high = middle;
    }
    return low;
}

/* ---- Reading ---- */

/* Reading a page that no longer exists ends the program; checking the size costs a microsecond and finds nearly all
 * such files. */
static bool is_whole(const tl_token_file *f, struct problem *problem) {
    struct stat status;
    if (fstat(f->fd, &status) == 0 && (uint64_t)status.st_size == f->info.file_bytes) return true;
    return problem_set(problem, TL_ERROR_IO, "tokens: %s: was changed while it is read: it had %llu bytes, now %llu",
                       f->path, (unsigned long long)f->info.file_bytes, (unsigned long long)status.st_size);
}

static bool block_prove(tl_token_file *f, uint64_t block, struct problem *problem) {
    atomic_uchar *bits = &f->proven[block / 8];
    unsigned char mine = (unsigned char)(1 << block % 8);
    if (atomic_load_explicit(bits, memory_order_relaxed) & mine) return true;
    uint64_t begin = block * TOKEN_BLOCK_BYTES, left = data_bytes(f) - begin;
    uint32_t want, got = crc32c(0, f->data + begin, left < TOKEN_BLOCK_BYTES ? left : TOKEN_BLOCK_BYTES);
    memcpy(&want, f->bytes + f->info.file_bytes - (blocks_of(f) - block) * 4, 4);
    if (got != want)
        return problem_set(problem, TL_ERROR_USE,
                           "tokens: %s: the block at byte %llu (token %llu) is damaged: checksum %08x, expected %08x",
                           f->path, (unsigned long long)(f->info.data_begin + begin),
                           (unsigned long long)(begin / (uint64_t)f->info.token_bytes), got, want);
    atomic_fetch_or_explicit(bits, mine, memory_order_relaxed);
    return true;
}

static uint64_t id_at(const tl_token_file *f, int64_t index) {
    uint64_t value = 0;
    size_t width = (size_t)f->info.token_bytes;
    memcpy(&value, f->data + (uint64_t)index * width, width);
    unsigned unused = 64 - 8 * (unsigned)width;
    return f->info.is_signed ? (uint64_t)((int64_t)(value << unused) >> unused) : value;
}

/* Copies ids and returns whether all were below the limit; negative ones count as huge. Plain loops for the usual
 * widths. */
static bool ids_copy(const tl_token_file *f, int32_t *ids, int64_t from, int64_t n) {
    const unsigned char *data = f->data + (uint64_t)from * (uint64_t)f->info.token_bytes;
    uint64_t limit = f->limit;
    bool is_good = true;
    if (f->info.token_bytes == 1 && !f->info.is_signed) {
        for (int64_t i = 0; i < n; i++) is_good &= (uint64_t)(ids[i] = data[i]) < limit;
    } else if (f->info.token_bytes == 2 && !f->info.is_signed) {
        for (int64_t i = 0; i < n; i++) {
            uint16_t id;
            memcpy(&id, data + i * 2, 2);
            ids[i] = id;
            is_good &= id < limit;
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            uint64_t id = id_at(f, from + i);
            ids[i] = (int32_t)(uint32_t)id;
            is_good &= id < limit;
        }
    }
    return is_good;
}

static bool id_refuse(const tl_token_file *f, int64_t from, struct problem *problem) {
    while (id_at(f, from) < f->limit) from++;
    char id[32];
    if (f->info.is_signed) snprintf(id, sizeof id, "%lld", (long long)id_at(f, from));
    else snprintf(id, sizeof id, "%llu", (unsigned long long)id_at(f, from));
    return problem_set(problem, TL_ERROR_USE, "tokens: %s: token %lld (byte %llu) is %s (need 0 to %llu)", f->path,
                       (long long)from,
                       (unsigned long long)(f->info.data_begin + (uint64_t)from * (uint64_t)f->info.token_bytes), id,
                       (unsigned long long)f->limit - 1);
}

bool token_file_fetch(tl_token_file *f, int32_t *ids, int64_t from, int64_t n, struct problem *problem) {
    if (from < 0 || n < 0 || from > f->info.count || n > f->info.count - from)
        return problem_set(problem, TL_ERROR_USE, "tokens: %s: has no tokens %lld to %lld (need 0 to %lld)", f->path,
                           (long long)from, (long long)((uint64_t)from + (uint64_t)n) - 1,
                           (long long)f->info.count - 1);
    if (n == 0) return true;
    if (!is_whole(f, problem)) return false;
    if (f->proven) {
        uint64_t width = (uint64_t)f->info.token_bytes, last = (uint64_t)(from + n - 1) * width / TOKEN_BLOCK_BYTES;
        for (uint64_t b = (uint64_t)from * width / TOKEN_BLOCK_BYTES; b <= last; b++)
            if (!block_prove(f, b, problem)) return false;
    }
    return ids_copy(f, ids, from, n) || id_refuse(f, from, problem);
}

bool tl_token_file_read(tl_token_file *f, int32_t *ids, int64_t from, int64_t n) {
    if (!f || (!ids && n)) {
        if (tl_error() == TL_OK) error_set(TL_ERROR_USE, "token_file_read: no %s", f ? "place for the ids" : "file");
        return false;
    }
    struct problem problem;
    return token_file_fetch(f, ids, from, n, &problem) || surface(&problem);
}

bool tl_token_file_check(tl_token_file *f, int64_t *largest, tl_progress_fn progress, void *context) {
    enum { AT_ONCE = 1 << 16 };
    if (!f) return tl_error() == TL_OK ? error_set(TL_ERROR_USE, "token_file_check: no file") : false;
    int32_t *ids = memory_new(AT_ONCE * sizeof *ids), most = 0;
    if (!ids) return error_memory(AT_ONCE * sizeof *ids, "checking a token file");
    bool ok = true;
    for (int64_t from = 0; ok && from < f->info.count; from += AT_ONCE) {
        int64_t n = f->info.count - from < AT_ONCE ? f->info.count - from : AT_ONCE;
        ok = tl_token_file_read(f, ids, from, n);
        for (int64_t i = 0; ok && i < n; i++) most = ids[i] > most ? ids[i] : most;
        if (ok && progress && !progress((uint64_t)(from + n), (uint64_t)f->info.count, context))
            ok = error_set(TL_ERROR_USE, "tokens: %s: stopped", f->path);
    }
    memory_free(ids);
    if (ok && largest) *largest = most;
    return ok;
}

void token_file_begins(const tl_token_file *file, int64_t document_token, const int32_t *ids, int64_t from, int64_t n,
                       int32_t *begin) {
    bool has_table = document_token < 0;
    int64_t document = has_table ? tl_token_file_document_at(file, from) : 0;
    int64_t next = has_table ? tl_token_file_document_begin(file, document + 1) : 0, place = 0;
    for (int64_t i = 0; i < n; i++) {
        if (has_table ? from + i == next : ids[i] == document_token) place = i;
        if (has_table && from + i == next) next = tl_token_file_document_begin(file, ++document + 1);
        begin[i] = (int32_t)place;
    }
}

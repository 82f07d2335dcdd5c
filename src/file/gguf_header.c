/* gguf_header.c: every rule of the format, before any tensor is made.
 *
 * A GGUF header does not say how long it is: one has to walk through it. So it is read in steps, first a megabyte, then
 * twice as much each time the walk runs out of bytes, and walked from the beginning again; each byte is read from the
 * file once. Memory stays in proportion: the buffer is at most twice the header (or 1 MiB), a tensor of at least 25
 * bytes makes an entry of 80, a pair of at least 14 bytes one of 48 (in arrays that may be half empty), and a text in
 * an array, which has at least 8 bytes, a pointer. That is less than 10 times the header plus 1 MiB.
 *
 * Strings have a length of 8 bytes before them and no 0 behind. After the last walk each is moved 8 bytes down, over
 * its length, which leaves room for the 0.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "file/gguf.h"
#include "tensor/shape.h"

/* clang-format off */
const struct gguf_type gguf_types[] = {
    {0, "F32", 1, 4, TL_F32}, {1, "F16", 1, 2, TL_F16}, {30, "BF16", 1, 2, TL_BF16}, {8, "Q8_0", 32, 34, TL_F32},
    {28, "F64", 1, 8, TL_F64}, {24, "I8", 1, 1, TL_I8}, {25, "I16", 1, 2, TL_I16}, {26, "I32", 1, 4, TL_I32},
    {27, "I64", 1, 8, TL_I64},
    {2, "Q4_0", 32, 18, TL_DTYPE_COUNT}, {3, "Q4_1", 32, 20, TL_DTYPE_COUNT}, {6, "Q5_0", 32, 22, TL_DTYPE_COUNT},
    {7, "Q5_1", 32, 24, TL_DTYPE_COUNT}, {9, "Q8_1", 32, 40, TL_DTYPE_COUNT}, {10, "Q2_K", 256, 84, TL_DTYPE_COUNT},
    {11, "Q3_K", 256, 110, TL_DTYPE_COUNT}, {12, "Q4_K", 256, 144, TL_DTYPE_COUNT},
    {13, "Q5_K", 256, 176, TL_DTYPE_COUNT}, {14, "Q6_K", 256, 210, TL_DTYPE_COUNT},
    {15, "Q8_K", 256, 292, TL_DTYPE_COUNT}, {16, "IQ2_XXS", 256, 66, TL_DTYPE_COUNT},
    {17, "IQ2_XS", 256, 74, TL_DTYPE_COUNT}, {18, "IQ3_XXS", 256, 98, TL_DTYPE_COUNT},
    {19, "IQ1_S", 256, 50, TL_DTYPE_COUNT}, {20, "IQ4_NL", 32, 18, TL_DTYPE_COUNT},
    {21, "IQ3_S", 256, 110, TL_DTYPE_COUNT}, {22, "IQ2_S", 256, 82, TL_DTYPE_COUNT},
    {23, "IQ4_XS", 256, 136, TL_DTYPE_COUNT}, {29, "IQ1_M", 256, 56, TL_DTYPE_COUNT},
    {34, "TQ1_0", 256, 54, TL_DTYPE_COUNT}, {35, "TQ2_0", 256, 66, TL_DTYPE_COUNT},
    {39, "MXFP4", 32, 17, TL_DTYPE_COUNT}, {40, "NVFP4", 64, 36, TL_DTYPE_COUNT}, {41, "Q1_0", 128, 18, TL_DTYPE_COUNT},
};
/* clang-format on */
const int n_gguf_types = sizeof gguf_types / sizeof *gguf_types;

const struct gguf_type *gguf_type_numbered(uint32_t number) {
    for (int i = 0; i < n_gguf_types; i++)
        if (gguf_types[i].number == number) return &gguf_types[i];
    return NULL;
}

int gguf_kind_bytes(uint32_t kind) {
    static const signed char bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return kind < sizeof bytes ? bytes[kind] : -1;
}

/* ---- A walk through the header ---- */

struct walk {
    struct gguf_header *header;
    unsigned char *at, *end; /* what is left of the bytes read so far */
    bool is_short;           /* the bytes read so far are not all of it */
    bool is_out_of_memory;
    const char *problem;
    uint64_t n_texts;
};

static bool wrong(struct walk *w, const char *problem) {
    if (!w->problem && !w->is_short) w->problem = problem;
    return false;
}

static bool no_memory(struct walk *w) {
    w->is_out_of_memory = true;
    return wrong(w, "no memory");
}

/* The next n bytes; NULL when there are not so many. */
static unsigned char *bytes_take(struct walk *w, uint64_t n) {
    if (w->problem || w->is_short) return NULL;
    if (n > GGUF_HEADER_MAX) return wrong(w, "a length beyond 100,000,000 bytes"), NULL;
    if ((size_t)(w->end - w->at) < n) return w->is_short = true, NULL;
    unsigned char *from = w->at;
    w->at += n;
    return from;
}

static uint32_t u32_take(struct walk *w) {
    uint32_t value = 0;
    const unsigned char *from = bytes_take(w, sizeof value);
    if (from) memcpy(&value, from, sizeof value);
    return value;
}

static uint64_t u64_take(struct walk *w) {
    uint64_t value = 0;
    const unsigned char *from = bytes_take(w, sizeof value);
    if (from) memcpy(&value, from, sizeof value);
    return value;
}

/* A length and as many bytes, none of which is 0; gives the place of the length. NULL: a problem. */
static unsigned char *text_take(struct walk *w) {
    uint64_t length = u64_take(w);
    const unsigned char *from = bytes_take(w, length);
    if (!from) return NULL;
    if (length && memchr(from, 0, length)) return wrong(w, "a text with a byte of 0"), NULL;
    return w->at - length - sizeof length;
}

static void truths_check(struct walk *w, const struct gguf_pair *p) {
    for (int64_t i = 0; p->data && i < p->count; i++)
        if (p->data[i] > 1) wrong(w, "a truth that is neither 0 nor 1");
}

static void value_walk(struct walk *w, struct gguf_pair *p) {
    p->kind = u32_take(w);
    p->count = 1;
    if (p->kind == TL_GGUF_VALUE_ARRAY) {
        p->is_array = true;
        p->kind = u32_take(w);
        uint64_t count = u64_take(w);
        if (p->kind == TL_GGUF_VALUE_ARRAY) wrong(w, "an array of arrays");
        if (count > GGUF_HEADER_MAX) wrong(w, "an array of more than 100,000,000 values");
        p->count = count > GGUF_HEADER_MAX ? 0 : (int64_t)count;
    }
    int bytes = gguf_kind_bytes(p->kind);
    if (bytes < 0) wrong(w, "an unknown kind of value");
    if (w->problem || w->is_short) return;
    p->data = w->at;
    if (p->kind == TL_GGUF_VALUE_TEXT) {
        for (int64_t i = 0; i < p->count && text_take(w); i++) w->n_texts++;
        return;
    }
    p->data = bytes_take(w, (uint64_t)p->count * (uint64_t)bytes);
    if (p->kind == TL_GGUF_VALUE_BOOL) truths_check(w, p);
}

static void pair_walk(struct walk *w) {
    struct gguf_header *h = w->header;
    struct gguf_pair pair = {.key = (const char *)text_take(w)};
    value_walk(w, &pair);
    if (w->problem || w->is_short) return;
    if (!memory_grow((void **)&h->pairs, &h->pair_capacity, h->n_pairs, sizeof *h->pairs)) no_memory(w);
    else h->pairs[h->n_pairs++] = pair;
}

static void entry_walk(struct walk *w) {
    struct gguf_header *h = w->header;
    struct gguf_entry e = {.name = (const char *)text_take(w)};
    uint32_t rank = u32_take(w);
    if (rank > GGUF_MAX_RANK) wrong(w, "a tensor of more than 4 axes");
    e.rank = rank > GGUF_MAX_RANK ? 0 : (int)rank;
    for (int i = e.rank - 1; i >= 0; i--) {
        uint64_t size = u64_take(w);
        if (size > INT64_MAX) wrong(w, "an axis longer than 2^63 - 1");
        e.shape[i] = (int64_t)size;
    }
    e.type = gguf_type_numbered(u32_take(w));
    if (!e.type) wrong(w, "an unknown type of tensor");
    e.begin = u64_take(w);
    if (w->problem || w->is_short) return;
    if (!memory_grow((void **)&h->entries, &h->entry_capacity, h->n_entries, sizeof *h->entries)) no_memory(w);
    else h->entries[h->n_entries++] = e;
}

static void header_walk(struct walk *w) {
    const unsigned char *magic = bytes_take(w, 4);
    if (magic && memcmp(magic, "GGUF", 4)) wrong(w, "not \"GGUF\"");
    uint32_t version = u32_take(w);
    if (version == 3u << 24) wrong(w, "a big-endian file (need a little-endian one)");
    else if (version != 3) wrong(w, "a version of the format that is not 3");
    uint64_t n_entries = u64_take(w), n_pairs = u64_take(w);
    for (uint64_t i = 0; i < n_pairs && !w->problem && !w->is_short; i++) pair_walk(w);
    for (uint64_t i = 0; i < n_entries && !w->problem && !w->is_short; i++) entry_walk(w);
}

/* ---- From the file ---- */

static bool bytes_more(struct gguf_header *h, int fd, const char *path, size_t have, size_t want) {
    unsigned char *moved = memory_resize(h->bytes, want + 1);
    if (!moved) return error_memory(want + 1, "the header of a GGUF file");
    h->bytes = moved;
    return file_read(fd, path, h->bytes + have, want - have, have);
}

static bool walk_report(const struct walk *w, const char *path, size_t have) {
    if (w->is_out_of_memory) return error_memory(have, "the header of a GGUF file");
    size_t at = (size_t)(w->at - w->header->bytes);
    if (w->problem)
        return error_set(TL_ERROR_USE, "gguf: %s: the header is wrong before byte %zu: %s", path, at, w->problem);
    if (have == GGUF_HEADER_MAX)
        return error_set(TL_ERROR_USE, "gguf: %s: the header is longer than %d bytes", path, GGUF_HEADER_MAX);
    return error_set(TL_ERROR_USE, "gguf: %s: the file of %zu bytes ends inside the header (it is cut off)", path,
                     have);
}

static bool walk_all(struct walk *w, int fd, const char *path, size_t bytes) {
    enum { FIRST = 1 << 20 };
    struct gguf_header *h = w->header;
    size_t most = bytes < GGUF_HEADER_MAX ? bytes : GGUF_HEADER_MAX;
    for (size_t have = 0, want = FIRST;; have = want, want *= 2) {
        if (want > most) want = most;
        if (!bytes_more(h, fd, path, have, want)) return false;
        h->n_entries = h->n_pairs = 0;
        *w = (struct walk){.header = h, .at = h->bytes, .end = h->bytes + want};
        header_walk(w);
        if (!w->is_short && !w->problem) break;
        if (w->problem || want == most) return walk_report(w, path, want);
    }
    h->end = (size_t)(w->at - h->bytes);
    return true;
}

/* ---- Strings and names ---- */

/* A string that begins with its length becomes one that ends with a 0, in the same bytes but one. */
static char *text_end(unsigned char *at, uint64_t *taken) {
    uint64_t length;
    memcpy(&length, at, sizeof length);
    memmove(at, at + sizeof length, length);
    at[length] = 0;
    if (taken) *taken = sizeof length + length;
    return (char *)at;
}

static bool texts_end(struct gguf_header *h, uint64_t n_texts) {
    size_t n = 0, bytes = (size_t)n_texts * sizeof *h->texts;
    h->texts = memory_new(bytes);
    if (!h->texts) return error_memory(bytes, "the texts of a GGUF file");
    for (size_t i = 0; i < h->n_pairs; i++) {
        struct gguf_pair *p = &h->pairs[i];
        p->key = text_end((unsigned char *)p->key, NULL);
        if (p->kind != TL_GGUF_VALUE_TEXT) continue;
        p->texts = h->texts + n;
        unsigned char *at = p->data;
        for (int64_t k = 0; k < p->count; k++) {
            uint64_t taken;
            h->texts[n++] = text_end(at, &taken);
            at += taken;
        }
    }
    for (size_t i = 0; i < h->n_entries; i++) h->entries[i].name = text_end((unsigned char *)h->entries[i].name, NULL);
    return true;
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(struct gguf_entry *const *)a)->name, (*(struct gguf_entry *const *)b)->name);
}
static int by_key(const void *a, const void *b) {
    return strcmp((*(struct gguf_pair *const *)a)->key, (*(struct gguf_pair *const *)b)->key);
}

static bool name_wrong(const char *path, const char *what, const char *name, const char *problem) {
    char text[200];
    return error_set(TL_ERROR_USE, "gguf: %s: %s \"%s\" %s", path, what, text_show(text, sizeof text, name), problem);
}

static bool names_check(struct gguf_header *h, const char *path) {
    size_t bytes = h->n_entries * sizeof *h->by_name + h->n_pairs * sizeof *h->by_key;
    h->by_name = memory_new(h->n_entries * sizeof *h->by_name);
    h->by_key = memory_new(h->n_pairs * sizeof *h->by_key);
    if (!h->by_name || !h->by_key) return error_memory(bytes, "the names of a GGUF file");
    for (size_t i = 0; i < h->n_entries; i++) h->by_name[i] = &h->entries[i];
    for (size_t i = 0; i < h->n_pairs; i++) h->by_key[i] = &h->pairs[i];
    if (h->n_entries) qsort(h->by_name, h->n_entries, sizeof *h->by_name, by_name);
    if (h->n_pairs) qsort(h->by_key, h->n_pairs, sizeof *h->by_key, by_key);
    for (size_t i = 0; i < h->n_entries; i++) {
        const char *name = h->by_name[i]->name;
        if (!text_is_utf8(name)) return name_wrong(path, "the name of a tensor", name, "is not UTF-8");
        if (i && !strcmp(h->by_name[i - 1]->name, name)) return name_wrong(path, "tensor", name, "is there twice");
    }
    for (size_t i = 0; i < h->n_pairs; i++) {
        const char *key = h->by_key[i]->key;
        if (!text_is_utf8(key)) return name_wrong(path, "key", key, "is not UTF-8");
        if (i && !strcmp(h->by_key[i - 1]->key, key)) return name_wrong(path, "key", key, "is there twice");
    }
    return true;
}

static int key_order(const void *key, const void *pair) { return strcmp(key, (*(struct gguf_pair *const *)pair)->key); }

const struct gguf_pair *gguf_pair_named(const struct gguf_header *h, const char *key) {
    struct gguf_pair **found = h->n_pairs ? bsearch(key, h->by_key, h->n_pairs, sizeof *found, key_order) : NULL;
    return found ? *found : NULL;
}

/* ---- The data ---- */

static bool alignment_read(struct gguf_header *h, const char *path) {
    const struct gguf_pair *p = gguf_pair_named(h, GGUF_ALIGNMENT_KEY);
    uint32_t value = GGUF_ALIGNMENT;
    bool ok = !p || (p->kind == TL_GGUF_VALUE_U32 && !p->is_array);
    if (p && ok) memcpy(&value, p->data, sizeof value);
    h->alignment = value;
    return (ok && value && value <= GGUF_ALIGNMENT_MAX && (value & (value - 1)) == 0) ||
           error_set(TL_ERROR_USE, "gguf: %s: " GGUF_ALIGNMENT_KEY " is not a power of two from 1 to %d", path,
                     GGUF_ALIGNMENT_MAX);
}

static bool entry_wrong(const char *path, const struct gguf_entry *e, const char *problem) {
    char name[200];
    return error_set(TL_ERROR_USE, "gguf: %s: tensor \"%s\": %s", path, text_show(name, sizeof name, e->name), problem);
}

/* bytes = product(shape) / block x bytes of a block; a block never crosses a row. */
static bool entry_size(const char *path, struct gguf_entry *e) {
    int64_t numel, bytes, row = e->rank ? e->shape[e->rank - 1] : 1;
    char problem[160], shape[SHAPE_TEXT];
    if (!shape_numel(e->rank, e->shape, &numel) || !size_mul(numel, e->type->bytes, &bytes))
        return entry_wrong(path, e, "its shape is too large");
    e->bytes = (size_t)(numel / e->type->block) * (size_t)e->type->bytes;
    if (row % e->type->block == 0) return true;
    shape_print(shape, sizeof shape, e->rank, e->shape);
    snprintf(problem, sizeof problem, "%s of shape %.80s: rows of %lld are not whole blocks of %d", e->type->name,
             shape, (long long)row, e->type->block);
    return entry_wrong(path, e, problem);
}

/* Every tensor begins where the one before ends, rounded up to the alignment; the file may end with or without the last
 * one's padding. */
static bool entries_check(struct gguf_header *h, const char *path, size_t bytes) {
    size_t end = 0, next = 0;
    h->begin = (size_t)round_up(h->end, h->alignment);
    for (size_t i = 0; i < h->n_entries; i++) {
        struct gguf_entry *e = &h->entries[i];
        char problem[120];
        if (!entry_size(path, e)) return false;
        if (e->begin != next) {
            snprintf(problem, sizeof problem, "begins at byte %zu of the data (need %zu)", e->begin, next);
            return entry_wrong(path, e, problem);
        }
        if (e->bytes > bytes || next > bytes) return entry_wrong(path, e, "ends after the file (it is cut off)");
        end = next + e->bytes;
        next = (size_t)round_up(end, h->alignment);
    }
    size_t least = h->n_entries ? h->begin + end : h->end;
    if (bytes >= least && bytes <= h->begin + next) return true;
    return error_set(TL_ERROR_USE, "gguf: %s: the header and the tensors have %zu bytes and the file %zu (%s)", path,
                     least, bytes, bytes < least ? "it is cut off" : "something follows them");
}

bool gguf_header_read(struct gguf_header *h, int fd, const char *path, size_t bytes) {
    struct walk w;
    *h = (struct gguf_header){0};
    w.header = h;
    return walk_all(&w, fd, path, bytes) && texts_end(h, w.n_texts) && names_check(h, path) &&
           alignment_read(h, path) && entries_check(h, path, bytes);
}

void gguf_header_free(struct gguf_header *h) {
    memory_free(h->bytes);
    memory_free(h->entries);
    memory_free(h->by_name);
    memory_free(h->pairs);
    memory_free(h->by_key);
    memory_free(h->texts);
}

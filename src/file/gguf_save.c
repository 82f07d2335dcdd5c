/* gguf_save.c: a GGUF file (version 3) of tensors and metadata.
 *
 * The pairs are kept as the bytes they will be in the file. Tensors are converted while they are written, so that a
 * model is never in memory a second time.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "file/gguf.h"
#include "file/pieces.h"
#include "tensor/convert.h"
#include "tensor/device.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

enum { CHUNK = 1 << 15 }; /* elements that are converted at once; a multiple of every block */

struct item {
    char *name;
    tl_tensor *tensor;
    const struct gguf_type *type;
    int rank;
    int64_t shape[GGUF_MAX_RANK];
    size_t begin, bytes;
};

struct bytes {
    unsigned char *data;
    size_t used, capacity;
};

struct tl_gguf_writer {
    struct bytes pairs;
    uint64_t n_pairs;
    char **keys;
    size_t key_capacity;
    struct item *items;
    size_t n_items, item_capacity;
};

tl_gguf_writer *tl_gguf_writer_new(void) {
    tl_gguf_writer *w = memory_new(sizeof *w);
    if (!w) return error_memory(sizeof *w, "the writer of a GGUF file"), NULL;
    *w = (tl_gguf_writer){0};
    return w;
}

void tl_gguf_writer_free(tl_gguf_writer *w) {
    if (!w) return;
    for (uint64_t i = 0; i < w->n_pairs; i++) memory_free(w->keys[i]);
    for (size_t i = 0; i < w->n_items; i++) memory_free(w->items[i].name);
    memory_free(w->pairs.data);
    memory_free(w->keys);
    memory_free(w->items);
    memory_free(w);
}

/* ---- Bytes that grow ---- */

static bool put(struct bytes *b, const void *data, size_t n) {
    size_t larger = b->capacity;
    while (larger - b->used < n) larger = larger ? larger * 2 : 4096;
    if (larger != b->capacity) {
        unsigned char *moved = memory_resize(b->data, larger);
        if (!moved) return error_memory(larger, "the header of a GGUF file");
        b->data = moved, b->capacity = larger;
    }
    if (n) memcpy(b->data + b->used, data, n);
    b->used += n;
    return true;
}

static bool put_u32(struct bytes *b, uint32_t value) { return put(b, &value, sizeof value); }
static bool put_u64(struct bytes *b, uint64_t value) { return put(b, &value, sizeof value); }
static bool put_text(struct bytes *b, const char *text) {
    return put_u64(b, strlen(text)) && put(b, text, strlen(text));
}

static char *text_new(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = memory_new(bytes);
    if (!copy) return error_memory(bytes, "a name in a GGUF file"), NULL;
    return memcpy(copy, text, bytes);
}

/* ---- Metadata ---- */

static bool refuse(const char *name, const char *problem) {
    char text[200];
    return error_set(TL_ERROR_USE, "gguf_writer: \"%s\": %s", text_show(text, sizeof text, name), problem);
}

/* One pair: its key and kind are checked and put, then its values, count times. On failure the bytes are as before. */
struct pair {
    const char *key;
    tl_gguf_kind kind;
    bool is_array;
    int64_t count;
    const char *const *texts;
    const int64_t *integers;
    double number;
};

static bool integer_fits(tl_gguf_kind kind, int64_t value) {
    int bits = 8 * gguf_kind_bytes(kind);
    switch (kind) {
    case TL_GGUF_VALUE_BOOL:
        return value == 0 || value == 1;
    case TL_GGUF_VALUE_I8:
    case TL_GGUF_VALUE_I16:
    case TL_GGUF_VALUE_I32:
        return value >= -((int64_t)1 << (bits - 1)) && value < (int64_t)1 << (bits - 1);
    case TL_GGUF_VALUE_U8:
    case TL_GGUF_VALUE_U16:
    case TL_GGUF_VALUE_U32:
        return value >= 0 && value < (int64_t)1 << bits;
    case TL_GGUF_VALUE_U64:
        return value >= 0;
    default:
        return kind == TL_GGUF_VALUE_I64;
    }
}

static bool value_put(tl_gguf_writer *w, const struct pair *p, int64_t i) {
    if (p->texts) return p->texts[i] ? put_text(&w->pairs, p->texts[i]) : refuse(p->key, "a text is NULL");
    if (p->kind == TL_GGUF_VALUE_F32) return put(&w->pairs, &(float){(float)p->number}, sizeof(float));
    if (p->kind == TL_GGUF_VALUE_F64) return put(&w->pairs, &p->number, sizeof p->number);
    char problem[100];
    snprintf(problem, sizeof problem, "%lld does not fit its kind of value", (long long)p->integers[i]);
    if (!integer_fits(p->kind, p->integers[i])) return refuse(p->key, problem);
    return put(&w->pairs, &p->integers[i], (size_t)gguf_kind_bytes(p->kind)); /* little-endian: the low bytes first */
}

static bool pair_put(tl_gguf_writer *w, const struct pair *p) {
    if (!w || !p->key) return error_set(TL_ERROR_USE, "gguf_writer: no %s", w ? "key" : "writer");
    if (!text_is_utf8(p->key)) return refuse(p->key, "a key is not UTF-8");
    if (p->count < 0 || (p->count && p->kind == TL_GGUF_VALUE_TEXT && !p->texts)) return refuse(p->key, "no values");
    for (uint64_t i = 0; i < w->n_pairs; i++)
        if (!strcmp(w->keys[i], p->key)) return refuse(p->key, "a key is given twice");
    if (!strcmp(p->key, GGUF_ALIGNMENT_KEY) &&
        !(p->kind == TL_GGUF_VALUE_U32 && !p->is_array && p->integers[0] == GGUF_ALIGNMENT))
        return refuse(p->key, "files are written with an alignment of 32 (a u32)");
    if (!memory_grow((void **)&w->keys, &w->key_capacity, w->n_pairs, sizeof *w->keys))
        return error_memory(w->n_pairs * sizeof *w->keys, "the keys of a GGUF file");
    char *key = text_new(p->key);
    size_t used = w->pairs.used;
    bool ok = key && put_text(&w->pairs, key) && (!p->is_array || put_u32(&w->pairs, TL_GGUF_VALUE_ARRAY)) &&
              put_u32(&w->pairs, p->kind) && (!p->is_array || put_u64(&w->pairs, (uint64_t)p->count));
    for (int64_t i = 0; ok && i < p->count; i++) ok = value_put(w, p, i);
    if (ok) w->keys[w->n_pairs++] = key;
    else memory_free(key), w->pairs.used = used;
    return ok;
}

bool tl_gguf_writer_text(tl_gguf_writer *w, const char *key, const char *value) {
    return pair_put(w, &(struct pair){.key = key, .kind = TL_GGUF_VALUE_TEXT, .count = 1, .texts = &value});
}

bool tl_gguf_writer_texts(tl_gguf_writer *w, const char *key, const char *const *values, int64_t n) {
    return pair_put(w, &(struct pair){key, TL_GGUF_VALUE_TEXT, true, n, .texts = values});
}

static bool is_integer(tl_gguf_kind kind) {
    return gguf_kind_bytes(kind) > 0 && kind != TL_GGUF_VALUE_F32 && kind != TL_GGUF_VALUE_F64;
}

bool tl_gguf_writer_integer(tl_gguf_writer *w, const char *key, tl_gguf_kind kind, int64_t value) {
    if (key && !is_integer(kind)) return refuse(key, "not a kind of integer");
    return pair_put(w, &(struct pair){.key = key, .kind = kind, .count = 1, .integers = &value});
}

bool tl_gguf_writer_integers(tl_gguf_writer *w, const char *key, tl_gguf_kind kind, const int64_t *values, int64_t n) {
    if (key && !is_integer(kind)) return refuse(key, "not a kind of integer");
    if (key && n && !values) return refuse(key, "no values");
    return pair_put(w, &(struct pair){key, kind, true, n, .integers = values});
}

bool tl_gguf_writer_number(tl_gguf_writer *w, const char *key, tl_gguf_kind kind, double value) {
    if (key && kind != TL_GGUF_VALUE_F32 && kind != TL_GGUF_VALUE_F64) return refuse(key, "not a kind of float");
    return pair_put(w, &(struct pair){.key = key, .kind = kind, .count = 1, .number = value});
}

/* ---- Tensors ---- */

static const struct gguf_type *type_of(tl_gguf_type type) {
    static const uint32_t numbers[] = {[TL_GGUF_F32] = 0, [TL_GGUF_F16] = 1, [TL_GGUF_BF16] = 30, [TL_GGUF_Q8_0] = 8};
    return (unsigned)type < sizeof numbers / sizeof *numbers ? gguf_type_numbered(numbers[type]) : NULL;
}

static bool item_check(const tl_gguf_writer *w, const struct item *item, const char *name) {
    char problem[120];
    int64_t bytes, last = item->rank ? item->shape[item->rank - 1] : 1;
    if (!text_is_utf8(name)) return refuse(name, "a name is not UTF-8");
    if (!device_has_data(item->tensor->storage->device)) return refuse(name, "is on meta, which has no data");
    if (!item->type) return refuse(name, "no type of tensor has this number");
    snprintf(problem, sizeof problem, "rows of %lld are not whole blocks of %d, as %s has them", (long long)last,
             item->type->block, item->type->name);
    if (last % item->type->block) return refuse(name, problem);
    if (!size_mul(tl_numel(item->tensor), item->type->bytes, &bytes)) return refuse(name, "is too large");
    for (size_t i = 0; i < w->n_items; i++)
        if (!strcmp(w->items[i].name, name)) return refuse(name, "a name is given twice");
    return true;
}

bool gguf_writer_tensor_as(tl_gguf_writer *w, const char *name, tl_tensor *x, tl_gguf_type type, int rank,
                           const int64_t *shape) {
    if (!w || !name) return error_set(TL_ERROR_USE, "gguf_writer: no %s", w ? "name" : "writer");
    if (!x && tl_error() == TL_OK) return refuse(name, "the tensor is NULL");
    if (!tensor_check(x, "gguf_writer")) return false;
    if (rank > GGUF_MAX_RANK) return refuse(name, "has more than 4 axes");
    struct item item = {.tensor = x, .type = type_of(type), .rank = rank};
    for (int i = 0; i < rank; i++) item.shape[i] = shape[i];
    if (!item_check(w, &item, name)) return false;
    item.bytes = (size_t)(tl_numel(x) / item.type->block) * (size_t)item.type->bytes;
    if (!memory_grow((void **)&w->items, &w->item_capacity, w->n_items, sizeof *w->items))
        return error_memory(w->n_items * sizeof *w->items, "the tensors of a GGUF file");
    item.name = text_new(name);
    if (item.name) w->items[w->n_items++] = item;
    return item.name != NULL;
}

bool tl_gguf_writer_tensor(tl_gguf_writer *w, const char *name, tl_tensor *x, tl_gguf_type type) {
    int64_t shape[TL_MAX_RANK];
    for (int i = 0; x && i < tl_rank(x); i++) shape[i] = tl_size(x, i);
    return gguf_writer_tensor_as(w, name, x, type, x ? tl_rank(x) : 0, shape);
}

/* ---- The data ---- */

void gguf_q8_encode(unsigned char *to, const float *from, int64_t n) {
    for (int64_t i = 0; i < n; i += GGUF_Q8_BLOCK, to += GGUF_Q8_BYTES) {
        float largest = 0;
        for (int k = 0; k < GGUF_Q8_BLOCK; k++) largest = fmaxf(largest, fabsf(from[i + k]));
        float scale = largest / 127, inverse = scale != 0 ? 1 / scale : 0;
        if (isinf(inverse)) inverse = 0; /* the scale is far below what f16 holds: the block is zeros */
        convert_from_f32(to, TL_F16, 1, &scale, 1);
        for (int k = 0; k < GGUF_Q8_BLOCK; k++) {
            float value = roundf(from[i + k] * inverse);
            to[2 + k] = (unsigned char)(signed char)(value > 127 ? 127 : value < -127 ? -127 : value);
        }
    }
}

struct converter {
    struct file_writer *writer;
    const struct item *item;
    float *values;         /* CHUNK */
    unsigned char *result; /* CHUNK of f32 at most */
};

/* 127 times the largest f16. */
#define Q8_LARGEST (127 * 65504.0f)

static bool values_check(const struct item *item, const float *values, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(values[i]) <= Q8_LARGEST))
            return refuse(item->name, "has a value that is not finite or beyond 8.3e6, which Q8_0 cannot hold");
    return true;
}

static bool chunk_write(struct converter *c, const unsigned char *data, int64_t n) {
    const struct gguf_type *type = c->item->type;
    if (type->block > 1) {
        convert_to_f32(c->values, data, c->item->tensor->dtype, 1, n);
        if (!values_check(c->item, c->values, n)) return false;
        gguf_q8_encode(c->result, c->values, n);
    } else convert(c->result, type->dtype, 1, data, c->item->tensor->dtype, 1, n, CONVERT_NEAREST, NULL);
    return file_writer_write(c->writer, c->result, (size_t)(n / type->block) * (size_t)type->bytes);
}

static bool piece_write(void *context, const void *data, size_t bytes) {
    struct converter *c = context;
    int64_t bits = tl_dtype_bits(c->item->tensor->dtype), n = (int64_t)bytes * 8 / bits;
    if (c->item->type->block == 1 && c->item->type->dtype == c->item->tensor->dtype)
        return file_writer_write(c->writer, data, bytes);
    bool ok = true;
    for (int64_t i = 0; ok && i < n; i += CHUNK)
        ok = chunk_write(c, (const unsigned char *)data + i * bits / 8, n - i < CHUNK ? n - i : CHUNK);
    return ok;
}

static bool data_write(tl_gguf_writer *w, struct file_writer *file) {
    static const unsigned char zeros[GGUF_ALIGNMENT];
    struct pieces pieces = {NULL};
    struct converter c = {file, NULL, memory_new(CHUNK * sizeof(float)), memory_new(CHUNK * sizeof(float))};
    bool ok = (c.values && c.result) || error_memory(CHUNK * sizeof(float), "a buffer to convert tensors in");
    for (size_t i = 0; ok && i < w->n_items; i++) {
        c.item = &w->items[i];
        size_t padding = (size_t)round_up(c.item->bytes, GGUF_ALIGNMENT) - c.item->bytes;
        ok = pieces_each(&pieces, c.item->tensor, piece_write, &c) && file_writer_write(file, zeros, padding);
    }
    pieces_close(&pieces);
    memory_free(c.values);
    memory_free(c.result);
    return ok;
}

/* ---- The file ---- */

static bool header_make(tl_gguf_writer *w, struct bytes *b, size_t *data_bytes) {
    static const unsigned char zeros[GGUF_ALIGNMENT];
    bool ok = put(b, "GGUF", 4) && put_u32(b, 3) && put_u64(b, w->n_items) && put_u64(b, w->n_pairs) &&
              put(b, w->pairs.data, w->pairs.used);
    int64_t begin = 0;
    for (size_t i = 0; ok && i < w->n_items; i++) {
        const struct item *item = &w->items[i];
        ok = put_text(b, item->name) && put_u32(b, (uint32_t)item->rank);
        for (int k = item->rank - 1; ok && k >= 0; k--) ok = put_u64(b, (uint64_t)item->shape[k]);
        ok = ok && put_u32(b, item->type->number) && put_u64(b, (uint64_t)begin);
        if (ok && !size_add(begin, (int64_t)item->bytes + GGUF_ALIGNMENT, &(int64_t){0}))
            ok = refuse(item->name, "the tensors up to here have more than 2^63 bytes");
        if (ok) begin = (int64_t)round_up((uint64_t)begin + item->bytes, GGUF_ALIGNMENT);
    }
    *data_bytes = (size_t)begin;
    if (ok && b->used > GGUF_HEADER_MAX)
        ok = error_set(TL_ERROR_USE, "gguf_writer: names, shapes and metadata take %zu bytes (need at most %d)",
                       b->used, GGUF_HEADER_MAX);
    return ok && put(b, zeros, (size_t)round_up(b->used, GGUF_ALIGNMENT) - b->used);
}

bool tl_gguf_writer_save(tl_gguf_writer *w, const char *path) {
    struct bytes header = {0};
    size_t data_bytes = 0;
    if (!w || !path) return error_set(TL_ERROR_USE, "gguf_writer_save: no %s", w ? "path" : "writer");
    bool ok = header_make(w, &header, &data_bytes);
    struct file_writer *file = ok ? file_writer_new(path) : NULL;
    ok = file && file_writer_reserve(file, header.used + data_bytes) &&
         file_writer_write(file, header.data, header.used) && data_write(w, file);
    if (ok) ok = file_writer_commit(file);
    else file_writer_discard(file);
    memory_free(header.data);
    return ok;
}

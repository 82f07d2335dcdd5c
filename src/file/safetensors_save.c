/* safetensors_save.c: tensors into a file, the same bytes as the reference library would write.
 *
 * Tensors are ordered by type (wide ones first, which aligns them all) and then by name; the header is padded with
 * spaces to a multiple of 8. Metadata is sorted by key, where the reference has no fixed order. Tensors that are
 * not dense in host memory are fetched piece by piece through one buffer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "file/pieces.h"
#include "file/safetensors.h"
#include "tensor/device.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

struct item {
    const char *name;
    tl_tensor *tensor;
    const struct safetensors_type *type;
};

struct saving {
    struct item *items;
    struct header_pair *pairs;
    size_t n_items, n_pairs, data_bytes;
    char *text; /* the header as it grows */
    size_t used, capacity;
    bool is_out_of_memory;
    struct pieces pieces;
};

/* ---- The header ---- */

static void put(struct saving *s, const char *text, size_t length) {
    while (!s->is_out_of_memory && s->capacity - s->used < length) {
        size_t larger = s->capacity ? s->capacity * 2 : 4096;
        char *moved = memory_resize(s->text, larger);
        if (!moved) s->is_out_of_memory = true;
        else s->text = moved, s->capacity = larger;
    }
    if (s->is_out_of_memory) return;
    memcpy(s->text + s->used, text, length);
    s->used += length;
}

static void put_text(struct saving *s, const char *text) { put(s, text, strlen(text)); }

static void put_number(struct saving *s, uint64_t number) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    put_text(s, text);
}

/* As the reference escapes: short forms where JSON has them, other control characters below 32 as \u00xx, no more. */
static void put_string(struct saving *s, const char *text) {
    static const char special[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    put_text(s, "\"");
    for (const char *c = text; *c;) {
        size_t plain = 0;
        while ((unsigned char)c[plain] >= 32 && c[plain] != '"' && c[plain] != '\\') plain++;
        put(s, c, plain);
        c += plain;
        if (!*c) break;
        const char *found = strchr(special, *c);
        char escape[8];
        if (found) snprintf(escape, sizeof escape, "\\%c", letter[found - special]);
        else snprintf(escape, sizeof escape, "\\u%04x", (unsigned)(unsigned char)*c);
        put_text(s, escape);
        c++;
    }
    put_text(s, "\"");
}

static void put_metadata(struct saving *s) {
    put_text(s, "\"" SAFETENSORS_METADATA "\":{");
    for (size_t i = 0; i < s->n_pairs; i++) {
        if (i) put_text(s, ",");
        put_string(s, s->pairs[i].key);
        put_text(s, ":");
        put_string(s, s->pairs[i].value);
    }
    put_text(s, "}");
}

static void put_item(struct saving *s, const struct item *item, size_t begin, size_t end) {
    put_string(s, item->name);
    put_text(s, ":{\"dtype\":");
    put_string(s, item->type->name);
    put_text(s, ",\"shape\":[");
    for (int i = 0; i < tl_rank(item->tensor); i++) {
        if (i) put_text(s, ",");
        put_number(s, (uint64_t)tl_size(item->tensor, i));
    }
    put_text(s, "],\"data_offsets\":[");
    put_number(s, begin);
    put_text(s, ",");
    put_number(s, end);
    put_text(s, "]}");
}

static bool header_make(struct saving *s, const char *path) {
    int64_t begin = 0, end;
    put_text(s, "{");
    if (s->n_pairs) put_metadata(s);
    for (size_t i = 0; i < s->n_items; i++, begin = end) {
        if (!size_add(begin, (int64_t)tl_bytes(s->items[i].tensor), &end))
            return error_set(TL_ERROR_USE, "safetensors_save: %s: the tensors have more than 2^63 bytes", path);
        if (i || s->n_pairs) put_text(s, ",");
        put_item(s, &s->items[i], (size_t)begin, (size_t)end);
    }
    put_text(s, "}");
    while (s->used % 8 && !s->is_out_of_memory) put_text(s, " ");
    if (s->is_out_of_memory) return error_memory(s->capacity * 2, "the header of a safetensors file");
    s->data_bytes = (size_t)begin;
    if (s->used > SAFETENSORS_HEADER_MAX)
        return error_set(TL_ERROR_USE,
                         "safetensors_save: %s: names, shapes and metadata take %zu bytes (the format allows %d)", path,
                         s->used, SAFETENSORS_HEADER_MAX);
    return true;
}

/* ---- The data ---- */

static bool bytes_write(void *writer, const void *data, size_t bytes) { return file_writer_write(writer, data, bytes); }

static bool data_write(struct saving *s, struct file_writer *w) {
    bool ok = true;
    for (size_t i = 0; ok && i < s->n_items; i++) ok = pieces_each(&s->pieces, s->items[i].tensor, bytes_write, w);
    return ok;
}

static bool file_save(struct saving *s, struct file_place at) {
    uint64_t length = s->used;
    struct file_writer *w = file_writer_at(at);
    if (!w) return false;
    bool ok = file_writer_reserve(w, sizeof length + s->used + s->data_bytes) &&
              file_writer_write(w, &length, sizeof length) && file_writer_write(w, s->text, s->used) &&
              data_write(s, w);
    if (ok) return file_writer_commit(w);
    file_writer_discard(w);
    return false;
}

/* ---- What is asked ---- */

static int by_type_and_name(const void *a, const void *b) {
    const struct item *x = a, *y = b;
    if (x->type != y->type) return x->type > y->type ? -1 : 1;
    return strcmp(x->name, y->name);
}
static int by_name(const void *a, const void *b) {
    return strcmp(((const struct item *)a)->name, ((const struct item *)b)->name);
}
static int by_key(const void *a, const void *b) {
    return strcmp(((const struct header_pair *)a)->key, ((const struct header_pair *)b)->key);
}

static bool refuse(const char *path, const char *name, const char *problem) {
    char text[200];
    return error_set(TL_ERROR_USE, "safetensors_save: %s: \"%s\": %s", path, text_show(text, sizeof text, name),
                     problem);
}

static bool items_take(struct saving *s, const char *path, const char *const *names, tl_tensor *const *tensors) {
    for (size_t i = 0; i < s->n_items; i++) {
        if (!names[i]) return error_set(TL_ERROR_USE, "safetensors_save: %s: tensor %zu has no name", path, i);
        if (!text_is_utf8(names[i])) return refuse(path, names[i], "a name is not UTF-8");
        if (!strcmp(names[i], SAFETENSORS_METADATA)) return refuse(path, names[i], "no tensor may have this name");
        if (!tensors[i] && tl_error() == TL_OK) return refuse(path, names[i], "the tensor is NULL");
        if (!tensor_check(tensors[i], "safetensors_save")) return false;
        if (!device_has_data(tensors[i]->storage->device))
            return refuse(path, names[i], "is on meta, which has no data");
        s->items[i] = (struct item){names[i], tensors[i], safetensors_type_of(tensors[i]->dtype)};
        if (!s->items[i].type)
            return refuse(path, names[i], "the format has no type for complex128 (need a view_as_real)");
    }
    if (s->n_items) qsort(s->items, s->n_items, sizeof *s->items, by_name);
    for (size_t i = 1; i < s->n_items; i++)
        if (!strcmp(s->items[i - 1].name, s->items[i].name))
            return refuse(path, s->items[i].name, "a name is given twice");
    if (s->n_items) qsort(s->items, s->n_items, sizeof *s->items, by_type_and_name);
    return true;
}

static bool pairs_take(struct saving *s, const char *path, const char *const *keys, const char *const *values) {
    for (size_t i = 0; i < s->n_pairs; i++) {
        if (!keys[i] || !values[i])
            return error_set(TL_ERROR_USE, "safetensors_save: %s: metadata %zu has no key or no value", path, i);
        if (!text_is_utf8(keys[i]) || !text_is_utf8(values[i])) return refuse(path, keys[i], "metadata is not UTF-8");
        s->pairs[i] = (struct header_pair){keys[i], values[i]};
    }
    if (s->n_pairs) qsort(s->pairs, s->n_pairs, sizeof *s->pairs, by_key);
    for (size_t i = 1; i < s->n_pairs; i++)
        if (!strcmp(s->pairs[i - 1].key, s->pairs[i].key))
            return refuse(path, s->pairs[i].key, "metadata is given twice");
    return true;
}

bool safetensors_save_at(struct file_place at, const char *const *names, tl_tensor *const *tensors, int n,
                         const char *const *keys, const char *const *values, int n_metadata) {
    char path[FILE_TEXT];
    if (!at.name || n < 0 || n_metadata < 0 || (n && (!names || !tensors)) || (n_metadata && (!keys || !values)))
        return error_set(TL_ERROR_USE,
                         "safetensors_save: no path, or names, tensors, keys and values do not match their "
                         "numbers (%d tensors, %d metadata)",
                         n, n_metadata);
    file_text(at, path);
    struct saving s = {.n_items = (size_t)n, .n_pairs = (size_t)n_metadata};
    s.items = memory_new(s.n_items * sizeof *s.items);
    s.pairs = memory_new(s.n_pairs * sizeof *s.pairs);
    bool ok = s.items && s.pairs;
    if (!ok) error_memory(s.n_items * sizeof *s.items + s.n_pairs * sizeof *s.pairs, "the names of a safetensors file");
    ok = ok && items_take(&s, path, names, tensors) && pairs_take(&s, path, keys, values) && header_make(&s, path) &&
         file_save(&s, at);
    memory_free(s.items);
    memory_free(s.pairs);
    memory_free(s.text);
    pieces_close(&s.pieces);
    return ok;
}

bool tl_safetensors_save(const char *path, const char *const *names, tl_tensor *const *tensors, int n,
                         const char *const *keys, const char *const *values, int n_metadata) {
    return safetensors_save_at(file_path(path), names, tensors, n, keys, values, n_metadata);
}

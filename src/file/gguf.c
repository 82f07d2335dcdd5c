/* gguf.c: tensors and metadata of a GGUF file.
 *
 * As in safetensors.c, the header is read into memory and checked there, and the data is mapped. Tensors of plain types
 * are views of the mapping; Q8_0 is decoded into f32.
 */
#include "file/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "tensor/convert.h"
#include "tensor/shape.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the bytes of a GGUF file are little-endian, and are used as they stand"
#endif

struct tl_gguf {
    struct gguf_header header;
    struct file_map *map; /* NULL: a file without data */
    const unsigned char *data;
    char path[];
};

static bool file_load(tl_gguf *f, int fd, size_t bytes) {
    if (!gguf_header_read(&f->header, fd, f->path, bytes)) return false;
    if (bytes <= f->header.begin) return true;
    f->map = file_map_new(fd, f->path, bytes);
    if (f->map) f->data = file_map_data(f->map) + f->header.begin;
    return f->map != NULL;
}

tl_gguf *tl_gguf_open(const char *path) {
    if (!path) return error_set(TL_ERROR_USE, "gguf_open: no path"), NULL;
    size_t bytes, room = sizeof(tl_gguf) + strlen(path) + 1;
    int fd = file_open(path, &bytes);
    if (fd < 0) return NULL;
    tl_gguf *f = memory_new(room);
    if (f) {
        *f = (tl_gguf){.map = NULL};
        strcpy(f->path, path);
        if (!file_load(f, fd, bytes)) tl_gguf_close(f), f = NULL;
    } else error_memory(room, "a GGUF file");
    file_close(fd);
    return f;
}

void tl_gguf_close(tl_gguf *f) {
    if (!f) return;
    if (f->map) file_map_drop(f->map);
    gguf_header_free(&f->header);
    memory_free(f);
}

bool gguf_is_one(const char *path) {
    char magic[4] = "";
    struct stat status; /* opening a pipe would wait */
    FILE *file = stat(path, &status) == 0 && S_ISREG(status.st_mode) ? fopen(path, "rb") : NULL;
    bool ok = file && fread(magic, 1, sizeof magic, file) == sizeof magic && !memcmp(magic, "GGUF", 4);
    if (file) fclose(file);
    return ok;
}

/* ---- What is in it ---- */

int tl_gguf_count(const tl_gguf *f) { return f ? (int)f->header.n_entries : 0; }

static const struct gguf_entry *entry_at(const tl_gguf *f, int index) {
    return f && index >= 0 && index < tl_gguf_count(f) ? &f->header.entries[index] : NULL;
}

const char *tl_gguf_name(const tl_gguf *f, int index) {
    const struct gguf_entry *e = entry_at(f, index);
    return e ? e->name : NULL;
}

bool tl_gguf_info_at(const tl_gguf *f, int index, tl_gguf_info *info) {
    const struct gguf_entry *e = entry_at(f, index);
    if (!e || !info) return false;
    *info = (tl_gguf_info){.name = e->name,
                           .type = e->type->name,
                           .dtype = e->type->dtype,
                           .rank = e->rank,
                           .shape = e->shape,
                           .begin = e->begin,
                           .bytes = e->bytes};
    return true;
}

static int entry_order(const void *name, const void *entry) {
    return strcmp(name, (*(struct gguf_entry *const *)entry)->name);
}

int tl_gguf_find(const tl_gguf *f, const char *name) {
    size_t n = f && name ? f->header.n_entries : 0;
    struct gguf_entry **found = n ? bsearch(name, f->header.by_name, n, sizeof *found, entry_order) : NULL;
    return found ? (int)(*found - f->header.entries) : -1;
}

/* The header's reader has checked that the bytes of each are there: sums cannot overflow. */
int64_t gguf_numbers(const tl_gguf *f) {
    int64_t total = 0;
    for (int i = 0; i < tl_gguf_count(f); i++) {
        const struct gguf_entry *e = entry_at(f, i);
        total += (int64_t)(e->bytes / (size_t)e->type->bytes) * e->type->block;
    }
    return total;
}

/* ---- Metadata ---- */

int tl_gguf_metadata_count(const tl_gguf *f) { return f ? (int)f->header.n_pairs : 0; }

const char *tl_gguf_metadata_key(const tl_gguf *f, int index) {
    return f && index >= 0 && index < tl_gguf_metadata_count(f) ? f->header.pairs[index].key : NULL;
}

bool tl_gguf_metadata(const tl_gguf *f, const char *key, tl_gguf_value *value) {
    const struct gguf_pair *p = f && key ? gguf_pair_named(&f->header, key) : NULL;
    if (p && value) *value = (tl_gguf_value){(tl_gguf_kind)p->kind, p->is_array, p->count};
    return p != NULL;
}

static const struct gguf_pair *pair_with(const tl_gguf *f, const char *key, int64_t index) {
    const struct gguf_pair *p = f && key ? gguf_pair_named(&f->header, key) : NULL;
    return p && index >= 0 && index < p->count ? p : NULL;
}

static int64_t little_endian(const unsigned char *from, int bytes, bool is_signed) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | from[i];
    int unused = 64 - 8 * bytes;
    return is_signed ? (int64_t)(value << unused) >> unused : (int64_t)value;
}

bool tl_gguf_integer(const tl_gguf *f, const char *key, int64_t index, int64_t *value) {
    const struct gguf_pair *p = pair_with(f, key, index);
    if (!p) return false;
    bool is_signed = p->kind == TL_GGUF_VALUE_I8 || p->kind == TL_GGUF_VALUE_I16 || p->kind == TL_GGUF_VALUE_I32 ||
                     p->kind == TL_GGUF_VALUE_I64;
    if (p->kind == TL_GGUF_VALUE_TEXT || p->kind == TL_GGUF_VALUE_F32 || p->kind == TL_GGUF_VALUE_F64) return false;
    int bytes = gguf_kind_bytes(p->kind);
    int64_t n = little_endian(p->data + index * bytes, bytes, is_signed);
    if (n < 0 && !is_signed) return false; /* a u64 of 2^63 or more */
    if (value) *value = n;
    return true;
}

bool tl_gguf_number(const tl_gguf *f, const char *key, int64_t index, double *value) {
    const struct gguf_pair *p = pair_with(f, key, index);
    float single = 0;
    double number = 0;
    int64_t integer = 0;
    if (p && p->kind == TL_GGUF_VALUE_F32) {
        memcpy(&single, p->data + index * (int64_t)sizeof single, sizeof single);
        number = (double)single;
    } else if (p && p->kind == TL_GGUF_VALUE_F64) {
        memcpy(&number, p->data + index * (int64_t)sizeof number, sizeof number);
    } else {
        if (!tl_gguf_integer(f, key, index, &integer)) return false;
        number = (double)integer;
    }
    if (value) *value = number;
    return true;
}

const char *tl_gguf_text(const tl_gguf *f, const char *key, int64_t index) {
    const struct gguf_pair *p = pair_with(f, key, index);
    return p && p->kind == TL_GGUF_VALUE_TEXT ? p->texts[index] : NULL;
}

/* ---- Tensors ---- */

void gguf_q8_decode(float *to, const unsigned char *from, int64_t n) {
    for (int64_t i = 0; i < n; i += GGUF_Q8_BLOCK, from += GGUF_Q8_BYTES) {
        float scale;
        convert_to_f32(&scale, from, TL_F16, 1, 1);
        for (int k = 0; k < GGUF_Q8_BLOCK; k++) to[i + k] = (float)(signed char)from[2 + k] * scale;
    }
}

static tl_tensor *refuse(const tl_gguf *f, const char *name, const char *problem) {
    char text[200];
    error_set(TL_ERROR_USE, "gguf_get: %s: \"%s\": %s", f->path, text_show(text, sizeof text, name), problem);
    return NULL;
}

static tl_tensor *decoded(const tl_gguf *f, const struct gguf_entry *e) {
    tl_tensor *x = tl_empty(e->rank, e->shape, TL_F32, tl_device_find("cpu"));
    if (x) gguf_q8_decode(tl_data(x), f->data + e->begin, tl_numel(x));
    return x;
}

tl_tensor *tl_gguf_get(tl_gguf *f, const char *name) {
    if (!f || !name) {
        if (tl_error() == TL_OK) error_set(TL_ERROR_USE, "gguf_get: no %s", f ? "name" : "file");
        return NULL;
    }
    int index = tl_gguf_find(f, name);
    if (index < 0) return refuse(f, name, "the file has no such tensor");
    const struct gguf_entry *e = &f->header.entries[index];
    if (e->type->dtype == TL_DTYPE_COUNT) {
        char problem[100];
        snprintf(problem, sizeof problem, "its type %s can be listed but not read", e->type->name);
        return refuse(f, name, problem);
    }
    if (!e->bytes) return tl_empty(e->rank, e->shape, e->type->dtype, tl_device_find("cpu"));
    if (e->type->block > 1) return decoded(f, e);
    const unsigned char *data = f->data + e->begin;
    /* An alignment of 1 is allowed. */
    if ((uintptr_t)data % (size_t)e->type->bytes)
        return tl_from_data(data, e->rank, e->shape, e->type->dtype, tl_device_find("cpu"));
    file_map_keep(f->map);
    return tl_from_external((void *)data, e->bytes, e->rank, e->shape, NULL, e->type->dtype, NULL, file_map_drop,
                            f->map);
}

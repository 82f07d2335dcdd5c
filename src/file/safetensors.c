/* safetensors.c: tensors in a file, without a copy.
 *
 * The header is read into memory and checked there; the file is then mapped, privately, and each tensor looks into
 * the mapping and holds a reference to it. Nothing that was checked is read a second time, so a file that changes
 * meanwhile can give other numbers but no other sizes.
 */
#include "file/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the bytes of a safetensors file are little-endian, and are used as they stand"
#endif

struct tl_safetensors {
    struct header header;
    struct file_map *map;
    const unsigned char *data; /* behind the header */
    char path[];
};

/* u64 length, header, data. */
static bool header_load(tl_safetensors *f, int fd, size_t bytes) {
    uint64_t length;
    if (bytes < sizeof length)
        return error_set(TL_ERROR_USE, "safetensors: %s: has %zu bytes (need 8 for the length of the header)", f->path,
                         bytes);
    if (!file_read(fd, f->path, &length, sizeof length, 0)) return false;
    if (length > SAFETENSORS_HEADER_MAX)
        return error_set(TL_ERROR_USE, "safetensors: %s: a header of %llu bytes is too long (need at most %d)", f->path,
                         (unsigned long long)length, SAFETENSORS_HEADER_MAX);
    if (length > bytes - sizeof length)
        return error_set(TL_ERROR_USE, "safetensors: %s: a header of %llu bytes does not fit a file of %zu", f->path,
                         (unsigned long long)length, bytes);
    f->header.text = memory_new(length + 1);
    if (!f->header.text) return error_memory(length + 1, "the header of a safetensors file");
    f->header.text[length] = 0;
    if (!file_read(fd, f->path, f->header.text, length, sizeof length)) return false;
    if (!header_read(&f->header, f->path, length, bytes - sizeof length - length)) return false;
    f->map = file_map_new(fd, f->path, bytes);
    if (f->map) f->data = file_map_data(f->map) + sizeof length + length;
    return f->map != NULL;
}

tl_safetensors *safetensors_open_at(struct file_place at) {
    size_t bytes, length = file_text_bytes(at), room = sizeof(tl_safetensors) + length;
    int fd = file_open_at(at, &bytes);
    if (fd < 0) return NULL;
    tl_safetensors *f = memory_new(room);
    if (f) {
        *f = (tl_safetensors){.map = NULL};
        file_print(at, f->path, length);
        if (!header_load(f, fd, bytes)) tl_safetensors_close(f), f = NULL;
    } else error_memory(room, "a safetensors file");
    file_close(fd);
    return f;
}

tl_safetensors *tl_safetensors_open(const char *path) {
    if (!path) return error_set(TL_ERROR_USE, "safetensors_open: no path"), NULL;
    return safetensors_open_at(file_path(path));
}

void tl_safetensors_close(tl_safetensors *f) {
    if (!f) return;
    if (f->map) file_map_drop(f->map);
    header_free(&f->header);
    memory_free(f);
}

/* ---- What is in it ---- */

int tl_safetensors_count(const tl_safetensors *f) { return f ? (int)f->header.n_entries : 0; }

/* The header's reader has checked that the bytes of each are there: sums cannot overflow. */
int64_t safetensors_numbers(const tl_safetensors *f) {
    int64_t total = 0, n;
    tl_safetensors_info info;
    for (int i = 0; tl_safetensors_info_at(f, i, &info); i++)
        if (shape_numel(info.rank, info.shape, &n)) total += n;
    return total;
}

static const struct header_entry *entry_at(const tl_safetensors *f, int index) {
    return f && index >= 0 && index < tl_safetensors_count(f) ? &f->header.entries[index] : NULL;
}

const char *tl_safetensors_name(const tl_safetensors *f, int index) {
    const struct header_entry *e = entry_at(f, index);
    return e ? e->name : NULL;
}

bool tl_safetensors_info_at(const tl_safetensors *f, int index, tl_safetensors_info *info) {
    const struct header_entry *e = entry_at(f, index);
    if (!e || !info) return false;
    *info = (tl_safetensors_info){.name = e->name,
                                  .type = e->type->name,
                                  .dtype = safetensors_dtype(e->type),
                                  .rank = e->rank,
                                  .shape = header_shape(&f->header, e),
                                  .begin = e->begin,
                                  .bytes = e->end - e->begin};
    return true;
}

static int entry_order(const void *name, const void *entry) {
    return strcmp(*(const char *const *)name, (*(struct header_entry *const *)entry)->name);
}

int tl_safetensors_find(const tl_safetensors *f, const char *name) {
    size_t n = f && name ? f->header.n_entries : 0;
    struct header_entry **found = n ? bsearch(&name, f->header.by_name, n, sizeof *found, entry_order) : NULL;
    return found ? (int)(*found - f->header.entries) : -1;
}

int tl_safetensors_metadata_count(const tl_safetensors *f) { return f ? (int)f->header.n_pairs : 0; }

const char *tl_safetensors_metadata_key(const tl_safetensors *f, int index) {
    return f && index >= 0 && index < tl_safetensors_metadata_count(f) ? f->header.pairs[index].key : NULL;
}

static int pair_order(const void *key, const void *pair) {
    return strcmp(*(const char *const *)key, ((const struct header_pair *)pair)->key);
}

const char *tl_safetensors_metadata(const tl_safetensors *f, const char *key) {
    size_t n = f && key ? f->header.n_pairs : 0;
    const struct header_pair *found = n ? bsearch(&key, f->header.pairs, n, sizeof *found, pair_order) : NULL;
    return found ? found->value : NULL;
}

/* ---- Tensors ---- */

static tl_tensor *refuse(const tl_safetensors *f, const char *name, const char *problem) {
    char text[200];
    error_set(TL_ERROR_USE, "safetensors_get: %s: \"%s\": %s", f->path, text_show(text, sizeof text, name), problem);
    return NULL;
}

tl_tensor *tl_safetensors_get(tl_safetensors *f, const char *name) {
    if (!f || !name) {
        if (tl_error() == TL_OK) error_set(TL_ERROR_USE, "safetensors_get: no %s", f ? "name" : "file");
        return NULL;
    }
    int index = tl_safetensors_find(f, name);
    if (index < 0) return refuse(f, name, "the file has no such tensor");
    const struct header_entry *e = &f->header.entries[index];
    const int64_t *shape = header_shape(&f->header, e);
    tl_dtype dtype = safetensors_dtype(e->type);
    char problem[100];
    if (dtype == TL_DTYPE_COUNT) {
        snprintf(problem, sizeof problem, "its type %s is not one of ours", e->type->name);
        return refuse(f, name, problem);
    }
    if (e->type->bits < 8 && (e->rank == 0 || shape[e->rank - 1] % 2))
        return refuse(f, name, "two elements share a byte (need a last axis of even length)");
    const unsigned char *data = f->data + e->begin;
    size_t element_bytes = e->type->bits < 8 ? 1 : (size_t)e->type->bits / 8;
    /* Writers other than the reference need not align: such a tensor is copied. An empty one needs no file. */
    if ((uintptr_t)data % element_bytes || e->begin == e->end)
        return tl_from_data(data, e->rank, shape, dtype, tl_device_find("cpu"));
    file_map_keep(f->map);
    return tl_from_external((void *)data, e->end - e->begin, e->rank, shape, NULL, dtype, NULL, file_map_drop, f->map);
}

/* safetensors_header.c: every rule of the format, before any tensor is made.
 *
 * The header comes from outside. Nothing in it is believed: numbers are bounded and multiplied with checks, and the
 * ranges of all tensors together must be the data, byte for byte, without hole or overlap. Memory stays in proportion
 * to the header: some fifty bytes of text make an entry of fifty bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/scan.h"
#include "base/text.h"
#include "file/safetensors.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

/* clang-format off */
const struct safetensors_type safetensors_types[] = {
    {"BOOL", 8}, {"F4", 4}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8}, {"I8", 8}, {"F8_E5M2", 8}, {"F8_E4M3", 8},
    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16}, {"BF16", 16},
    {"I32", 32}, {"U32", 32}, {"F32", 32}, {"C64", 64}, {"F64", 64}, {"I64", 64}, {"U64", 64},
};
/* clang-format on */
const int n_safetensors_types = sizeof safetensors_types / sizeof *safetensors_types;

const struct safetensors_type *safetensors_type_named(const char *name) {
    for (int i = 0; i < n_safetensors_types; i++)
        if (!strcmp(safetensors_types[i].name, name)) return &safetensors_types[i];
    return NULL;
}

const struct safetensors_type *safetensors_type_of(tl_dtype dtype) {
    const char *name = dtype_info(dtype)->safetensors_name;
    return name ? safetensors_type_named(name) : NULL;
}

tl_dtype safetensors_dtype(const struct safetensors_type *type) {
    int d = 0;
    for (; d < TL_DTYPE_COUNT; d++)
        if (dtype_table[d].safetensors_name && !strcmp(dtype_table[d].safetensors_name, type->name)) break;
    return (tl_dtype)d;
}

/* ---- Reading ---- */

struct reading {
    struct header *header;
    struct scan scan;
    const char *path;
    bool is_out_of_memory;
};

static bool no_memory(struct reading *r) {
    r->is_out_of_memory = true;
    return scan_fail(&r->scan, "no memory");
}

static bool size_append(struct reading *r, int64_t size) {
    struct header *h = r->header;
    if (!memory_grow((void **)&h->sizes, &h->size_capacity, h->n_sizes, sizeof *h->sizes)) return no_memory(r);
    h->sizes[h->n_sizes++] = size;
    return true;
}

static void shape_read(struct reading *r, struct header_entry *e) {
    e->first_size = r->header->n_sizes;
    for (bool more = scan_open(&r->scan, '['); more; more = scan_next(&r->scan, ']')) {
        int64_t size = 0;
        if (e->rank == TL_MAX_RANK) scan_fail(&r->scan, "a shape of more than 32 axes");
        if (scan_size(&r->scan, &size) && size_append(r, size)) e->rank++;
    }
}

static void offsets_read(struct reading *r, struct header_entry *e) {
    int64_t offset[2] = {0, 0};
    int n = 0;
    for (bool more = scan_open(&r->scan, '['); more; more = scan_next(&r->scan, ']'), n++)
        scan_size(&r->scan, n < 2 ? &offset[n] : &(int64_t){0});
    if (n != 2) scan_fail(&r->scan, "data_offsets that are not two numbers");
    e->begin = (size_t)offset[0];
    e->end = (size_t)offset[1];
}

static void type_read(struct reading *r, struct header_entry *e) {
    const char *name = scan_string(&r->scan);
    e->type = name ? safetensors_type_named(name) : NULL;
    if (!e->type) scan_fail(&r->scan, "an unknown dtype");
}

static void entry_read(struct reading *r, const char *name) {
    static const char *const fields[] = {"dtype", "shape", "data_offsets"};
    static void (*const read[])(struct reading *, struct header_entry *) = {type_read, shape_read, offsets_read};
    struct header *h = r->header;
    struct header_entry entry = {.name = name};
    unsigned seen = 0;
    for (bool more = scan_open(&r->scan, '{'); more; more = scan_next(&r->scan, '}')) {
        const char *key = scan_key(&r->scan);
        int f = 0;
        while (key && f < 3 && strcmp(key, fields[f])) f++;
        if (!key) continue;
        if (f == 3) scan_skip(&r->scan); /* as the reference does: a later version may say more */
        else if (seen & 1u << f) scan_fail(&r->scan, "a key twice in one tensor");
        else read[f](r, &entry);
        seen |= 1u << f;
    }
    if ((seen & 7) != 7) scan_fail(&r->scan, "a tensor without dtype, shape or data_offsets");
    if (r->scan.problem) return;
    if (!memory_grow((void **)&h->entries, &h->entry_capacity, h->n_entries, sizeof *h->entries)) no_memory(r);
    else h->entries[h->n_entries++] = entry;
}

static void metadata_read(struct reading *r) {
    struct header *h = r->header;
    if (scan_word(&r->scan, "null")) return;
    for (bool more = scan_open(&r->scan, '{'); more; more = scan_next(&r->scan, '}')) {
        struct header_pair pair = {.key = scan_key(&r->scan)};
        pair.value = pair.key ? scan_string(&r->scan) : NULL;
        if (!pair.value) return;
        if (!memory_grow((void **)&h->pairs, &h->pair_capacity, h->n_pairs, sizeof *h->pairs)) no_memory(r);
        else h->pairs[h->n_pairs++] = pair;
    }
}

static bool text_read(struct reading *r) {
    bool has_metadata = false;
    for (bool more = scan_open(&r->scan, '{'); more; more = scan_next(&r->scan, '}')) {
        const char *key = scan_key(&r->scan);
        if (!key) continue;
        if (strcmp(key, SAFETENSORS_METADATA)) {
            entry_read(r, key);
            continue;
        }
        if (has_metadata) scan_fail(&r->scan, SAFETENSORS_METADATA " twice");
        has_metadata = true;
        metadata_read(r);
    }
    if (scan_end(&r->scan)) return true;
    if (r->is_out_of_memory)
        return error_memory((size_t)(r->scan.end - r->scan.begin), "the header of a safetensors file");
    return error_set(TL_ERROR_USE, "safetensors: %s: the header is wrong at byte %zu: %s", r->path,
                     8 + (size_t)(r->scan.at - r->scan.begin), r->scan.problem);
}

/* ---- What the parts must add up to ---- */

static bool entry_wrong(const char *path, const struct header_entry *e, const char *problem) {
    char name[200];
    return error_set(TL_ERROR_USE, "safetensors: %s: tensor \"%s\": %s (data_offsets [%zu,%zu])", path,
                     text_show(name, sizeof name, e->name), problem, e->begin, e->end);
}

const int64_t *header_shape(const struct header *h, const struct header_entry *e) {
    return e->rank ? h->sizes + e->first_size : NULL; /* a file of scalars has no sizes at all */
}

/* bytes = product(shape) x bits / 8 = end - begin */
static bool entry_check(const struct header *h, const char *path, const struct header_entry *e) {
    int64_t numel, bits;
    if (e->end < e->begin) return entry_wrong(path, e, "ends before it begins");
    if (!shape_numel(e->rank, header_shape(h, e), &numel) || !size_mul(numel, e->type->bits, &bits))
        return entry_wrong(path, e, "its shape is too large");
    if (bits % 8) return entry_wrong(path, e, "its elements end inside a byte");
    if ((size_t)bits / 8 == e->end - e->begin) return true;
    char problem[160], shape[100];
    shape_print(shape, sizeof shape, e->rank, header_shape(h, e));
    snprintf(problem, sizeof problem, "%s of shape %s needs %lld bytes and has %zu", e->type->name, shape,
             (long long)(bits / 8), e->end - e->begin);
    return entry_wrong(path, e, problem);
}

static bool entries_check(const struct header *h, const char *path, size_t data_bytes) {
    size_t end = 0;
    for (size_t i = 0; i < h->n_entries; i++) {
        const struct header_entry *e = &h->entries[i];
        if (!entry_check(h, path, e)) return false;
        if (e->begin < end) return entry_wrong(path, e, "overlaps another");
        if (e->begin > end) return entry_wrong(path, e, "there are bytes before it that belong to no tensor");
        end = e->end;
    }
    if (end == data_bytes) return true;
    return error_set(TL_ERROR_USE, "safetensors: %s: the tensors have %zu bytes and the file %zu (%s)", path, end,
                     data_bytes, end > data_bytes ? "it is cut off" : "something follows them");
}

static int by_offset(const void *a, const void *b) {
    const struct header_entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}
static int by_name(const void *a, const void *b) {
    return strcmp((*(struct header_entry *const *)a)->name, (*(struct header_entry *const *)b)->name);
}
static int by_key(const void *a, const void *b) {
    return strcmp(((const struct header_pair *)a)->key, ((const struct header_pair *)b)->key);
}

static bool twice(const char *path, const char *what, const char *name) {
    char text[200];
    return error_set(TL_ERROR_USE, "safetensors: %s: %s \"%s\" is there twice", path, what,
                     text_show(text, sizeof text, name));
}

static bool names_check(struct header *h, const char *path) {
    size_t bytes = h->n_entries * sizeof *h->by_name;
    h->by_name = memory_new(bytes);
    if (!h->by_name) return error_memory(bytes, "the names of a safetensors file");
    for (size_t i = 0; i < h->n_entries; i++) h->by_name[i] = &h->entries[i];
    if (h->n_entries) qsort(h->by_name, h->n_entries, sizeof *h->by_name, by_name);
    for (size_t i = 1; i < h->n_entries; i++)
        if (!strcmp(h->by_name[i - 1]->name, h->by_name[i]->name)) return twice(path, "tensor", h->by_name[i]->name);
    for (size_t i = 1; i < h->n_pairs; i++)
        if (!strcmp(h->pairs[i - 1].key, h->pairs[i].key)) return twice(path, "metadata", h->pairs[i].key);
    return true;
}

bool header_read(struct header *h, const char *path, size_t length, size_t data_bytes) {
    struct reading r = {.header = h, .scan = scan_begin(h->text, length), .path = path};
    if (!text_read(&r)) return false;
    if (h->n_entries) qsort(h->entries, h->n_entries, sizeof *h->entries, by_offset);
    if (h->n_pairs) qsort(h->pairs, h->n_pairs, sizeof *h->pairs, by_key);
    return names_check(h, path) && entries_check(h, path, data_bytes);
}

void header_free(struct header *h) {
    memory_free(h->text);
    memory_free(h->entries);
    memory_free(h->by_name);
    memory_free(h->sizes);
    memory_free(h->pairs);
}

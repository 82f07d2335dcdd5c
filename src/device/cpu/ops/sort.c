/* sort.c: sort, searchsorted, unique.
 *
 * Every number becomes a key whose unsigned order is the number's order: negative floats have their bits inverted,
 * positive ones get the top bit; -0 becomes 0, and every NaN the highest key. For descending order the keys are
 * inverted. The values are read again through the indices, so that each keeps its own bits.
 *
 * Numbers of at most 32 bits have 32-bit keys, and (key, index) is one 64-bit *word*: no two words are equal, so any
 * way of ordering words is stable. They are sorted by digits, or, where only few of a line are wanted, the first k
 * are kept in a heap in one pass over the line: most elements are only compared with the heap's last. Wider numbers,
 * and lines too long for a 32-bit index, are *pairs*, and are sorted by those of their eight digits that differ at
 * all, or merged where that is fewer passes.
 */
#include "base/float_bits.h"
#include "base/scratch.h"
#include "device/cpu/shared/iterate.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/pairs.h"
#include "device/cpu/shared/parallel.h"
#include "device/cpu/shared/vector_math.h"
#include "spec/attr.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    CHUNK = 512,
    RUN = 16,    /* sorted by insertion */
    FEW = 8,     /* a heap is faster for up to 1/FEW of a line */
    GROUP = 16,  /* keys that are compared with the heap's last at a time */
    DIGIT = 256, /* values of a digit */
};

#define TOP ((uint64_t)1 << 63)

static uint64_t key_of_float(double x) {
    if (isnan(x)) return UINT64_MAX;
    if (x == 0) x = 0; /* -0 */
    const uint64_t bits = f64_bits(x);
    return bits & TOP ? ~bits : bits | TOP;
}

/* The pairs of one line, n elements `stride` apart. */
static void read_pairs(struct pair *to, const char *line, tl_dtype dtype, int64_t stride, int64_t n, bool descending) {
    const uint64_t turn = descending ? UINT64_MAX : 0;
    const int64_t bytes = iterate_element_bytes(dtype);
    double real[CHUNK];
    int64_t integer[CHUNK];
    for (int64_t at = 0; at < n; at += CHUNK) {
        const int64_t m = n - at < CHUNK ? n - at : CHUNK;
        const char *from = line + at * stride * bytes;
        if (dtype_is_float(dtype)) convert_to_f64(real, from, dtype, stride, m);
        else convert_to_i64(integer, from, dtype, stride, m);
        for (int64_t i = 0; i < m; i++) {
            const uint64_t key = dtype_is_float(dtype) ? key_of_float(real[i]) : (uint64_t)integer[i] ^ TOP;
            to[at + i] = (struct pair){key ^ turn, at + i};
        }
    }
}

static void merge(struct pair *to, const struct pair *from, int64_t middle, int64_t n) {
    int64_t a = 0, b = middle;
    for (int64_t i = 0; i < n; i++) {
        const bool takes_left = a < middle && (b >= n || from[a].key <= from[b].key);
        to[i] = takes_left ? from[a++] : from[b++];
    }
}

/* By one digit of the keys, in its place. */
static void sort_pairs_by(struct pair *to, const struct pair *from, int64_t n, int shift) {
    int64_t start[DIGIT] = {0};
    for (int64_t i = 0; i < n; i++) start[from[i].key >> shift & (DIGIT - 1)]++;
    exclusive_sums(start, DIGIT);
    for (int64_t i = 0; i < n; i++) to[start[from[i].key >> shift & (DIGIT - 1)]++] = from[i];
}

static void merge_pairs(struct pair *to, const struct pair *from, int64_t n, int64_t width) {
    for (int64_t at = 0; at < n; at += 2 * width) {
        const int64_t m = n - at < 2 * width ? n - at : 2 * width;
        merge(to + at, from + at, m < width ? m : width, m);
    }
}

/* Returns where the sorted pairs are: p or other. */
static struct pair *sort_pairs(struct pair *p, struct pair *other, int64_t n) {
    int shift[8], n_digits = 0, n_merges = 0;
    uint64_t differing = 0;
    for (int64_t i = 0; i < n; i++) differing |= p[i].key ^ p[0].key;
    for (int d = 0; d < 64; d += 8)
        if (differing >> d & (DIGIT - 1)) shift[n_digits++] = d;
    for (int64_t width = RUN; width < n; width *= 2) n_merges++;
    const bool by_digits = n_digits < n_merges;
    for (int64_t at = 0; at < n && !by_digits; at += RUN) sort_short(p + at, n - at < RUN ? n - at : RUN);
    for (int pass = 0; pass < (by_digits ? n_digits : n_merges); pass++) {
        if (by_digits) sort_pairs_by(other, p, n, shift[pass]);
        else merge_pairs(other, p, n, (int64_t)RUN << pass);
        struct pair *swap = p;
        p = other;
        other = swap;
    }
    return p;
}

/* ---- Words: a 32-bit key and a 32-bit index ---- */

/* At most CHUNK keys. */
static void read_keys(uint32_t *key, const char *from, tl_dtype dtype, int64_t stride, int64_t n, bool descending) {
    const uint32_t turn = descending ? UINT32_MAX : 0;
    float x[CHUNK];
    int64_t integer[CHUNK];
    uint32_t bits[CHUNK];
    if (!dtype_is_float(dtype)) {
        convert_to_i64(integer, from, dtype, stride, n);
        for (int64_t i = 0; i < n; i++) key[i] = ((uint32_t)integer[i] ^ 0x80000000u) ^ turn;
        return;
    }
    convert_to_f32(x, from, dtype, stride, n);
    memcpy(bits, x, (size_t)n * sizeof *bits);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t b = bits[i] << 1 ? bits[i] : 0; /* -0 */
        const uint32_t ordered = b ^ ((0u - (b >> 31)) | 0x80000000u);
        key[i] = (b << 1 > 0xFF000000u ? UINT32_MAX : ordered) ^ turn;
    }
}

static void sort_words_short(uint64_t *w, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        const uint64_t moved = w[i];
        int64_t k = i;
        for (; k > 0 && w[k - 1] > moved; k--) w[k] = w[k - 1];
        w[k] = moved;
    }
}

/* By the four digits of the key, least significant first, of words in the order of their indices; a digit that is
 * the same everywhere costs no pass. Returns where the sorted words are: w or other. */
static uint64_t *sort_words_by_digits(uint64_t *w, uint64_t *other, int64_t n) {
    int64_t count[4][DIGIT] = {{0}};
    for (int64_t i = 0; i < n; i++)
        for (int d = 0; d < 4; d++) count[d][w[i] >> (32 + 8 * d) & (DIGIT - 1)]++;
    for (int d = 0; d < 4; d++) {
        const int shift = 32 + 8 * d;
        int64_t *start = count[d];
        if (start[w[0] >> shift & (DIGIT - 1)] == n) continue;
        exclusive_sums(start, DIGIT);
        for (int64_t i = 0; i < n; i++) other[start[w[i] >> shift & (DIGIT - 1)]++] = w[i];
        uint64_t *swap = w;
        w = other;
        other = swap;
    }
    return w;
}

static uint64_t *sort_words(uint64_t *w, uint64_t *other, int64_t n) {
    if (n > 2 * RUN) return sort_words_by_digits(w, other, n);
    sort_words_short(w, n);
    return w;
}

/* Moves the word at `at` down to its place: the largest of the k words is heap[0]. */
static void sink(uint64_t *heap, int64_t k, int64_t at) {
    const uint64_t word = heap[at];
    for (int64_t child = 2 * at + 1; child < k; child = 2 * at + 1) {
        child += child + 1 < k && heap[child + 1] > heap[child];
        if (heap[child] <= word) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = word;
}

/* Puts those of n further keys that are below the last of the heap's k in its place. An equal key came later: it
 * stays out. */
static void offer(uint64_t *heap, int64_t k, const uint32_t *key, int64_t first, int64_t n) {
    uint32_t last = (uint32_t)(heap[0] >> 32);
    for (int64_t at = 0; at < n; at += GROUP) {
        const int64_t m = n - at < GROUP ? n - at : GROUP;
        uint32_t is_any = 0;
        if (m == GROUP)
            for (int i = 0; i < GROUP; i++) is_any |= key[at + i] < last;
        if (m == GROUP && !is_any) continue;
        for (int64_t i = at; i < at + m; i++) {
            if (key[i] >= last) continue;
            heap[0] = (uint64_t)key[i] << 32 | (uint64_t)(first + i);
            sink(heap, k, 0);
            last = (uint32_t)(heap[0] >> 32);
        }
    }
}

/* By whole words: their indices are in no order. */
static void heap_sort(uint64_t *heap, int64_t k) {
    for (int64_t last = k - 1; last > 0; last--) {
        const uint64_t word = heap[last];
        heap[last] = heap[0];
        heap[0] = word;
        sink(heap, last, 0);
    }
}

struct sort {
    const struct attr_sort *attr;
    struct iterate walk; /* x, values, indices: without the axis */
    tl_dtype dtype;
    int64_t n, x_stride, out_stride; /* along the axis, in elements */
    int64_t n_slots;
    struct pair *pairs; /* 2 n for each slot */
};

static bool has_words(const struct sort *s) { return iterate_element_bytes(s->dtype) <= 4 && s->n <= UINT32_MAX; }
static bool takes_few(const struct sort *s) { return has_words(s) && s->attr->k <= s->n / FEW; }

/* The first k words of a line, in order. `words` has room for 2 n. */
static const uint64_t *order_words(const struct sort *s, uint64_t *words, const char *x) {
    const int64_t bytes = iterate_element_bytes(s->dtype), k = s->attr->k, kept = takes_few(s) ? k : s->n;
    SCRATCH_ARRAY(uint32_t, key, CHUNK);
    int64_t n = 0;
    for (int64_t at = 0; at < s->n; at += CHUNK) {
        const int64_t m = s->n - at < CHUNK ? s->n - at : CHUNK;
        read_keys(key, x + at * s->x_stride * bytes, s->dtype, s->x_stride, m, s->attr->descending);
        int64_t i = 0;
        for (; i < m && n < kept; i++, n++) words[n] = (uint64_t)key[i] << 32 | (uint64_t)(at + i);
        if (i == m) continue;
        if (i > 0 || at == n) /* just filled */
            for (int64_t parent = k / 2 - 1; parent >= 0; parent--) sink(words, k, parent);
        offer(words, k, key + i, at + i, m - i);
    }
    if (!takes_few(s)) return sort_words(words, words + n, n);
    heap_sort(words, k);
    return words;
}

/* The values of k indices, of elements of `bytes`, a constant where this is inlined. */
VECTOR_INLINE void write_values_of(const struct sort *s, const char *x, char *values, const char *indices, int bytes) {
    const int64_t x_step = s->x_stride * bytes, step = s->out_stride * bytes, index_step = s->out_stride * 8;
    for (int64_t i = 0; i < s->attr->k; i++) {
        int64_t index;
        memcpy(&index, indices + i * index_step, sizeof index);
        memcpy(values + i * step, x + index * x_step, (size_t)bytes);
    }
}

static void write_values(const struct sort *s, const char *x, char *values, const char *indices) {
    switch (iterate_element_bytes(s->dtype)) {
    case 1:
        write_values_of(s, x, values, indices, 1);
        return;
    case 2:
        write_values_of(s, x, values, indices, 2);
        return;
    case 4:
        write_values_of(s, x, values, indices, 4);
        return;
    default:
        write_values_of(s, x, values, indices, 8);
    }
}

static void sort_line(const struct sort *s, struct pair *room, const char *x, char *values, char *indices) {
    const int64_t k = s->attr->k, step = s->out_stride * 8;
    if (k == 0) return;
    if (has_words(s)) {
        const uint64_t *sorted = order_words(s, (uint64_t *)room, x);
        for (int64_t i = 0; i < k; i++) memcpy(indices + i * step, &(int64_t){(int64_t)(sorted[i] & UINT32_MAX)}, 8);
    } else {
        read_pairs(room, x, s->dtype, s->x_stride, s->n, s->attr->descending);
        const struct pair *sorted = sort_pairs(room, room + s->n, s->n);
        for (int64_t i = 0; i < k; i++) memcpy(indices + i * step, &sorted[i].index, 8);
    }
    write_values(s, x, values, indices);
}

/* Slot k sorts lines k, k + n_slots, ... */
static void sort_slots(void *context, int64_t first, int64_t last) {
    const struct sort *s = context;
    for (int64_t slot = first; slot < last; slot++)
        for (int64_t line = slot; line < s->walk.n; line += s->n_slots) {
            struct iterate_run run;
            iterate_seek(&s->walk, &run, line, line + 1);
            if (iterate_next(&s->walk, &run, 1))
                sort_line(s, s->pairs + slot * 2 * s->n, run.data[0], run.data[1], run.data[2]);
        }
}

/* The operand without an axis: axes after it move down. */
static tl_operand without_axis(const tl_operand *x, int axis, int64_t *shape, int64_t *stride) {
    tl_operand slim = {.data = x->data, .dtype = x->dtype, .rank = x->rank - 1, .shape = shape, .stride = stride};
    for (int i = 0; i < slim.rank; i++) {
        shape[i] = x->shape[i < axis ? i : i + 1];
        stride[i] = x->stride[i < axis ? i : i + 1];
    }
    return slim;
}

bool cpu_sort(const tl_kernel_args *args) {
    const struct attr_sort *attr = args->attr;
    const tl_operand *x = &args->in[0];
    if (iterate_numel(x) == 0) return true;
    int64_t shape[3][TL_MAX_RANK], stride[3][TL_MAX_RANK];
    const tl_operand a = without_axis(x, attr->axis, shape[0], stride[0]);
    const tl_operand b = without_axis(&args->out[0], attr->axis, shape[1], stride[1]);
    const tl_operand c = without_axis(&args->out[1], attr->axis, shape[2], stride[2]);
    struct sort s = {.attr = attr,
                     .dtype = x->dtype,
                     .n = x->shape[attr->axis],
                     .x_stride = x->stride[attr->axis],
                     .out_stride = args->out[0].stride[attr->axis],
                     .pairs = args->workspace};
    iterate_begin(&s.walk, a.rank, a.shape, (const tl_operand *[]){&a, &b, &c}, 3, ITERATE_ROW_MAJOR);
    s.n_slots = s.walk.n < SORT_SLOTS ? s.walk.n : SORT_SLOTS;
    const int64_t lines = (s.walk.n + s.n_slots - 1) / s.n_slots; /* of a slot */
    const int64_t work = (takes_few(&s) ? 4 : 16) * s.n * lines;  /* units for an element */
    parallel_for(s.n_slots, parallel_grain(work), args->n_threads, sort_slots, &s);
    return true;
}

/* ---- searchsorted ---- */

struct search {
    const tl_operand *sorted;
    struct iterate walk; /* out, values, sorted with stride 0 along the last axis of values */
    bool right;
    int64_t n, stride; /* of the sorted numbers, in elements */
};

/* Where `value` belongs among the n sorted numbers: the first place whose number is not BELOW it. Which half is next
 * is chosen without a branch, which would be mispredicted every other time. */
#define SEARCH(AT, BELOW)                                                     \
    int64_t low = 0;                                                          \
    for (int64_t n = s->n; n > 0;) {                                          \
        const int64_t half = n / 2, rest = n - half - 1, middle = low + half; \
        const int below = BELOW(AT);                                          \
        low = below ? middle + 1 : low;                                       \
        n = below ? rest : half;                                              \
    }                                                                         \
    return low

/* A NaN goes to the end: nothing is above it. */
#define BELOW_FLOAT(at) (s->right ? !((at) > value) : !((at) >= value))
#define BELOW_INTEGER(at) (s->right ? (at) <= value : (at) < value)

static int64_t search_f32(const struct search *s, const float *row, float value) {
    SEARCH(row[middle * s->stride], BELOW_FLOAT);
}

static int64_t search_float(const struct search *s, const char *row, double value) {
    SEARCH(convert_get_f64(row, s->sorted->dtype, middle * s->stride), BELOW_FLOAT);
}

static int64_t search_integer(const struct search *s, const char *row, int64_t value) {
    SEARCH(convert_get_i64(row, s->sorted->dtype, middle * s->stride), BELOW_INTEGER);
}

static int64_t search_one(const struct search *s, const char *row, const char *value) {
    const tl_dtype dtype = s->sorted->dtype;
    if (dtype == TL_F32) return search_f32(s, (const void *)row, *(const float *)(const void *)value);
    if (dtype_is_float(dtype)) return search_float(s, row, convert_get_f64(value, dtype, 0));
    return search_integer(s, row, convert_get_i64(value, dtype, 0));
}

static void search_range(void *context, int64_t first, int64_t last) {
    const struct search *s = context;
    struct iterate_run run;
    iterate_seek(&s->walk, &run, first, last);
    while (iterate_next(&s->walk, &run, INT64_MAX))
        for (int64_t i = 0; i < run.length; i++) {
            const char *value = run.data[1] + i * s->walk.step[1], *row = run.data[2] + i * s->walk.step[2];
            const int64_t found = search_one(s, row, value);
            memcpy(run.data[0] + i * s->walk.step[0], &found, sizeof found);
        }
}

bool cpu_searchsorted(const tl_kernel_args *args) {
    const tl_operand *sorted = &args->in[0], *values = &args->in[1], *out = &args->out[0];
    const int last = sorted->rank - 1;
    struct search s = {.sorted = sorted,
                       .right = ((const struct attr_search *)args->attr)->right,
                       .n = sorted->shape[last],
                       .stride = sorted->stride[last]};
    int64_t stride[TL_MAX_RANK] = {0};
    for (int i = 0; i < last; i++) stride[i] = sorted->stride[i];
    tl_operand rows = {
        .data = sorted->data, .dtype = sorted->dtype, .rank = values->rank, .shape = values->shape, .stride = stride};
    iterate_begin(&s.walk, out->rank, out->shape, (const tl_operand *[]){out, values, &rows}, 3, ITERATE_ANY_ORDER);
    parallel_for(s.walk.n, parallel_grain(64), args->n_threads, search_range, &s);
    return true;
}

/* ---- unique ---- */

/* is_new[i]: element at + i of a sorted vector differs from the one before; n is at most CHUNK. */
static void find_new(const tl_operand *x, int64_t at, int64_t n, bool *is_new) {
    const int64_t before = at > 0, bytes = iterate_element_bytes(x->dtype); /* the element before is read too */
    const char *from = (const char *)x->data + (at - before) * bytes;
    double real[CHUNK + 1];
    int64_t integer[CHUNK + 1];
    is_new[0] = true;
    if (dtype_is_float(x->dtype)) {
        convert_to_f64(real, from, x->dtype, 1, n + before);
        for (int64_t i = 1 - before; i < n; i++) is_new[i] = real[i + before] != real[i + before - 1];
    } else {
        convert_to_i64(integer, from, x->dtype, 1, n + before);
        for (int64_t i = 1 - before; i < n; i++) is_new[i] = integer[i + before] != integer[i + before - 1];
    }
}

bool cpu_unique(const tl_kernel_args *args) {
    const struct attr_unique *attr = args->attr;
    const tl_operand *sorted = &args->in[0];
    const int64_t n = sorted->shape[0], bytes = iterate_element_bytes(sorted->dtype), *order = args->in[1].data;
    char *values = args->out[0].data;
    int64_t *inverse = args->out[1].data, *counts = args->out[2].data, found = 0;
    bool is_new[CHUNK];
    for (int64_t at = 0; at < n && found <= attr->n; at += CHUNK) {
        const int64_t m = n - at < CHUNK ? n - at : CHUNK;
        find_new(sorted, at, m, is_new);
        for (int64_t i = 0; i < m; i++) {
            if (is_new[i] && ++found > attr->n) break; /* one too many: say so below, write nothing */
            if (is_new[i]) {
                memcpy(values + (found - 1) * bytes, (const char *)sorted->data + (at + i) * bytes, (size_t)bytes);
                counts[found - 1] = 0;
            }
            counts[found - 1]++;
            inverse[order[at + i]] = found - 1;
        }
    }
    if (found == attr->n) return true;
    snprintf(args->error, 200, "%lld values were counted, others are there", (long long)attr->n);
    return false;
}

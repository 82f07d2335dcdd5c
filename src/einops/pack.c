/* pack.c: tensors of different rank in one, joined along the axis "*" of a pattern, and apart again. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "einops/pattern.h"
#include "engine/scope.h"

struct packing {
    int n_axes, star;
    struct {
        int at, bytes;
    } axis[TL_MAX_RANK];
};

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static bool packing_add(const struct subject *s, struct packing *p, int at, int bytes) {
    const char *text = s->pattern + at;
    bool is_star = bytes == 1 && *text == '*';
    const char *problem = is_star ? NULL : name_problem(text, bytes);
    if (problem) return pattern_fail(s, at, "\"%.*s\" is no name of an axis: %s", PART(text, 0, bytes), problem);
    for (int i = 0; i < p->n_axes; i++)
        if (p->axis[i].bytes == bytes && memcmp(s->pattern + p->axis[i].at, text, (size_t)bytes) == 0)
            return pattern_fail(s, at, "\"%.*s\" comes twice", PART(text, 0, bytes));
    if (p->n_axes == TL_MAX_RANK) return pattern_fail(s, at, "more than %d axes", TL_MAX_RANK);
    if (is_star) p->star = p->n_axes;
    p->axis[p->n_axes].at = at;
    p->axis[p->n_axes++].bytes = bytes;
    return true;
}

/* "i j * k": names and one star, apart from each other. */
static bool packing_parse(const struct subject *s, struct packing *p) {
    p->n_axes = 0;
    p->star = -1;
    if (!s->pattern) return error_set(TL_ERROR_USE, "%s: got NULL instead of a pattern", s->op);
    for (int i = 0; s->pattern[i];) {
        int end = i;
        while (s->pattern[end] && !is_space(s->pattern[end])) end++;
        if (end > i && !packing_add(s, p, i, end - i)) return false;
        i = s->pattern[end] ? end + 1 : end;
    }
    return p->star >= 0 || pattern_fail(s, (int)strlen(s->pattern), "there is no * (need it where tensors differ)");
}

/* Splits a tensor's axes: those before the star, those it takes (their number is returned), those after. -1:
 * recorded. */
static int star_rank(const struct subject *s, const struct packing *p, int i) {
    int rank = s->tensors[i]->rank, n = rank - (p->n_axes - 1);
    if (n < 0) pattern_fail(s, p->axis[p->star].at, "tensor %d has %d axes (need at least %d)", i, rank, p->n_axes - 1);
    return n;
}

/* The shape of tensor i with all that the star takes as one axis; the other sizes must be those of tensor 0. */
static bool packed_shape(const struct subject *s, const struct packing *p, int i, int64_t *shape, tl_packed *packed) {
    const tl_tensor *x = s->tensors[i], *first = s->tensors[0];
    int n = star_rank(s, p, i);
    if (n < 0) return false;
    shape[p->star] = 1;
    for (int k = 0; k < n; k++)
        if (!size_mul(shape[p->star], x->shape[p->star + k], &shape[p->star]))
            return pattern_fail(s, p->axis[p->star].at, "the packed axis of tensor %d is longer than 2^63", i);
    for (int k = 0; k < p->n_axes; k++) {
        if (k == p->star) continue;
        int at = k < p->star ? k : k + n - 1, at_first = k < p->star ? k : k + first->rank - p->n_axes;
        shape[k] = x->shape[at];
        if (shape[k] != first->shape[at_first])
            return pattern_fail(s, p->axis[k].at, "\"%.*s\" has size %lld in tensor %d, and %lld in tensor 0",
                                PART(s->pattern, p->axis[k].at, p->axis[k].bytes), (long long)shape[k], i,
                                (long long)first->shape[at_first]);
    }
    if (!packed) return true;
    packed[i].rank = n;
    memcpy(packed[i].size, x->shape + p->star, (size_t)n * sizeof *packed[i].size);
    return true;
}

static tl_tensor *reshaped(tl_tensor *x, int rank, const int64_t *shape) {
    return !x || shape_equal(x->rank, x->shape, rank, shape) ? x : tl_reshape(x, rank, shape);
}

static tl_tensor *join(const struct subject *s, const struct packing *p, tl_packed *packed) {
    int64_t shape[TL_MAX_RANK];
    if (s->n_tensors == 1)
        return packed_shape(s, p, 0, shape, packed) ? reshaped(s->tensors[0], p->n_axes, shape) : NULL;
    tl_tensor **flat = memory_new((size_t)s->n_tensors * sizeof *flat), *y = NULL;
    if (!flat) {
        error_memory((size_t)s->n_tensors * sizeof *flat, "pack");
        return NULL;
    }
    tl_scope scope = tl_scope_begin();
    bool ok = scope.depth != 0;
    for (int i = 0; ok && i < s->n_tensors; i++) {
        ok = packed_shape(s, p, i, shape, packed);
        flat[i] = ok ? reshaped(s->tensors[i], p->n_axes, shape) : NULL;
        ok = flat[i] != NULL;
    }
    if (ok) y = tl_concat(flat, s->n_tensors, p->star);
    memory_free(flat);
    return scope.depth ? tl_scope_return(scope, y) : NULL;
}

tl_tensor *tl_pack(tl_tensor **tensors, int n, const char *pattern, tl_packed *shapes) {
    struct subject s = {.op = "pack", .pattern = pattern, .tensors = tensors, .n_tensors = n};
    struct packing p;
    if (n < 1 || !tensors) {
        error_set(TL_ERROR_USE, "pack: an empty list of tensors (need at least one)");
        return NULL;
    }
    for (int i = 0; i < n; i++)
        if (!tensor_check(tensors[i], "pack")) return NULL;
    return packing_parse(&s, &p) ? join(&s, &p, shapes) : NULL;
}

/* ---- unpack ---- */

static void shapes_print(char *text, size_t size, const tl_packed *shapes, int n) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < n && used + 8 < size; i++) {
        used += (size_t)snprintf(text + used, size - used, i ? ", " : "");
        shape_print(text + used, size - used, shapes[i].rank, shapes[i].size);
        used += strlen(text + used);
    }
}

static bool split_fail(const struct subject *s, const struct packing *p, const tl_packed *shapes, int n,
                       const char *why) {
    char text[200];
    shapes_print(text, sizeof text, shapes, n);
    return pattern_fail(s, p->axis[p->star].at, "axis %d of size %lld cannot be split into %s: %s", p->star,
                        (long long)s->tensors[0]->shape[p->star], text, why);
}

/* How many elements of the packed axis each shape takes. */
static bool pieces_measure(const struct subject *s, const struct packing *p, const tl_packed *shapes, int n,
                           int64_t *length) {
    int64_t sum = 0, known = 1;
    int open = -1, n_open = 0; /* the shape with a -1 */
    for (int i = 0; i < n; i++) {
        int64_t product = 1;
        if (shapes[i].rank < 0 || shapes[i].rank > TL_MAX_RANK)
            return pattern_fail(s, -1, "shape %d has %d axes", i, shapes[i].rank);
        for (int k = 0; k < shapes[i].rank; k++) {
            int64_t size = shapes[i].size[k];
            if (size == -1) open = i, n_open++;
            else if (size < 0 || !size_mul(product, size, &product))
                return split_fail(s, p, shapes, n, "a size is negative, or they overflow");
        }
        if (open == i) known = product;
        length[i] = open == i ? 0 : product;
        if (!size_add(sum, length[i], &sum)) return split_fail(s, p, shapes, n, "the sizes overflow");
    }
    if (n_open > 1) return split_fail(s, p, shapes, n, "more than one -1");
    int64_t left = s->tensors[0]->shape[p->star] - sum;
    if (n_open == 0) return left == 0 || split_fail(s, p, shapes, n, "the sizes do not add up");
    if (known == 0 || left < 0 || left % known) return split_fail(s, p, shapes, n, "the rest does not fit the -1");
    length[open] = left;
    return true;
}

static tl_tensor *piece(const struct packing *p, tl_tensor *x, int64_t start, int64_t length, const tl_packed *packed) {
    int64_t shape[2 * TL_MAX_RANK];
    int n = 0;
    for (int i = 0; i < p->star; i++) shape[n++] = x->shape[i];
    for (int i = 0; i < packed->rank; i++) shape[n++] = packed->size[i];
    for (int i = p->star + 1; i < x->rank; i++) shape[n++] = x->shape[i];
    int64_t known = 1;
    for (int i = 0; i < packed->rank; i++) known *= packed->size[i] == -1 ? 1 : packed->size[i];
    for (int i = p->star; i < p->star + packed->rank; i++)
        if (shape[i] == -1) shape[i] = length / known; /* not left to reshape: the tensor may have no elements */
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    tl_tensor *y = tl_slice(x, p->star, start, start + length, 1);
    return tl_scope_return(scope, y ? reshaped(y, n, shape) : NULL);
}

static bool split(const struct subject *s, const struct packing *p, const tl_packed *shapes, int n, tl_tensor **parts) {
    tl_tensor *x = s->tensors[0];
    if (x->rank != p->n_axes) return pattern_fail(s, -1, "the input has %d axes, the pattern %d", x->rank, p->n_axes);
    int64_t *length = memory_new((size_t)n * sizeof *length), start = 0;
    if (!length) return error_memory((size_t)n * sizeof *length, "unpack");
    bool ok = pieces_measure(s, p, shapes, n, length);
    for (int i = 0; ok && i < n; i++) {
        parts[i] = piece(p, x, start, length[i], &shapes[i]);
        ok = parts[i] != NULL;
        start += length[i];
    }
    memory_free(length);
    return ok;
}

bool tl_unpack(tl_tensor *x, const tl_packed *shapes, int n, const char *pattern, tl_tensor **parts) {
    struct subject s = {.op = "unpack", .pattern = pattern, .tensors = &x, .n_tensors = 1};
    struct packing p;
    if (!tensor_check(x, "unpack")) return false;
    if (n < 0 || (n && (!shapes || !parts))) return error_set(TL_ERROR_USE, "unpack: %d shapes, or NULL", n);
    for (int i = 0; i < n; i++) parts[i] = NULL;
    return packing_parse(&s, &p) && split(&s, &p, shapes, n, parts);
}

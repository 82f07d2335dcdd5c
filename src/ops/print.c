/* print.c: a tensor as text, as PyTorch's repr prints it with its default options.
 *
 * The rules are those of torch/_tensor_str.py. More than THRESHOLD elements are summarised: of each axis longer than
 * 2 EDGE only the first and last EDGE indices are shown. The shown elements alone decide the format: whole
 * numbers ("2."), four decimals, or scientific when the sizes of the numbers differ too much.
 *
 * The shown elements are fetched by plain copies, never by ops, so that printing leaves no trace in the ledger
 * or in the graph. They lie in one array in the order in which they are printed; printing walks along it.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/number.h"
#include "base/process.h"
#include "base/text.h"
#include "ops/ops.h"
#include "tensor/convert.h"
#include "tensor/device.h"

enum { PRECISION = 4, THRESHOLD = 1000, EDGE = 3, LINE_WIDTH = 80 };
static const char PREFIX[] = "tensor(";
#define INDENT ((int)sizeof PREFIX - 1)
#define ELEMENT_CHARS 400 /* the longest is "%.4f" of -DBL_MAX with 315 */

union element {
    double f;
    int64_t i;
};

/* How numbers are written: those of a real tensor, or one part of those of a complex one. */
struct form {
    bool is_whole, is_scientific; /* floats */
    int width;                    /* of the widest */
};

struct printer {
    char *buffer;                    /* receives at most size bytes with the final 0 */
    size_t size, length, line_start; /* length and line_start are of the whole text, written or not */
    tl_tensor *x;
    bool is_summarized, is_float;
    int n_parts; /* of an element: 2 of a complex number, its real and its imaginary one */
    struct form form[2];
    union element *elements; /* parts side by side */
    size_t n_elements, next;
};

/* ---- Text ---- */

static void put(struct printer *p, const char *text) {
    for (; *text; text++, p->length++) {
        if (p->length + 1 < p->size) p->buffer[p->length] = *text;
        if (*text == '\n') p->line_start = p->length + 1;
    }
}

static void put_repeated(struct printer *p, const char *text, int n) {
    while (n-- > 0) put(p, text);
}

/* ---- Which elements ---- */

static bool is_cut(const struct printer *p, int axis) { return p->is_summarized && p->x->shape[axis] > 2 * EDGE; }
static int64_t n_shown(const struct printer *p, int axis) { return is_cut(p, axis) ? 2 * EDGE : p->x->shape[axis]; }
/* The index of the k-th shown element of an axis. */
static int64_t shown(const struct printer *p, int axis, int64_t k) {
    return is_cut(p, axis) && k >= EDGE ? p->x->shape[axis] - 2 * EDGE + k : k;
}

/* Copies a run of neighbours, from element `offset` of the storage on. */
static bool fetch_run(struct printer *p, int64_t offset, int64_t n) {
    char raw[2 * THRESHOLD * sizeof(double)], error[200] = "";
    const tl_tensor *x = p->x;
    tl_device *device = x->storage->device;
    const tl_dtype dtype = dtype_part(x->dtype);
    int bits = dtype_info(x->dtype)->bits;
    int64_t inside = bits < 8 ? offset % 2 : 0; /* two f4 share a byte */
    size_t first = (size_t)(offset - inside) * (size_t)bits / 8, bytes = ((size_t)(n + inside) * (size_t)bits + 7) / 8;
    const char *from = (const char *)x->storage->data + first;
    if (!device->functions->copy(device, raw, from, bytes, COPY_TO_HOST, error))
        return error_set(TL_ERROR_DEVICE, "print: %s", error);
    for (int64_t k = 0; k < n * p->n_parts; k++) {
        union element *e = &p->elements[p->n_elements++];
        if (p->is_float) e->f = convert_get_f64(raw, dtype, k + inside);
        else e->i = convert_get_i64(raw, dtype, k + inside);
    }
    return true;
}

static bool fetch(struct printer *p, int axis, int64_t offset) {
    const tl_tensor *x = p->x;
    if (axis == x->rank) return fetch_run(p, offset, 1);
    int64_t n = n_shown(p, axis);
    if (axis == x->rank - 1 && x->stride[axis] == 1 && !is_cut(p, axis)) return fetch_run(p, offset, n);
    for (int64_t k = 0; k < n; k++)
        if (!fetch(p, axis + 1, offset + shown(p, axis, k) * x->stride[axis])) return false;
    return true;
}

static bool elements_new(struct printer *p) {
    int64_t n = 1, bytes = 0;
    bool fits = true;
    for (int i = 0; i < p->x->rank; i++) fits = fits && size_mul(n, n_shown(p, i), &n);
    fits = fits && size_mul(n, p->n_parts * (int64_t)sizeof *p->elements, &bytes);
    p->elements = fits ? memory_new((size_t)bytes) : NULL;
    return p->elements || error_memory(fits ? (size_t)bytes : SIZE_MAX, "the elements to print");
}

/* ---- One element ---- */

static int element_print(const struct printer *p, const struct form *form, union element e, char *text) {
    if (p->x->dtype == TL_BOOL) return snprintf(text, ELEMENT_CHARS, "%s", e.i ? "True" : "False");
    if (!p->is_float) return snprintf(text, ELEMENT_CHARS, "%lld", (long long)e.i);
    if (isnan(e.f)) return snprintf(text, ELEMENT_CHARS, "nan"); /* C may print its sign */
    if (isinf(e.f)) return snprintf(text, ELEMENT_CHARS, e.f < 0 ? "-inf" : "inf");
    if (form->is_whole && !form->is_scientific) return number_print(text, ELEMENT_CHARS, "%.0f.", e.f);
    int length = number_print(text, ELEMENT_CHARS, form->is_scientific ? "%.*e" : "%.*f", PRECISION, e.f);
    char *comma = strchr(text, ','); /* the program's locale may have chosen another decimal point */
    if (comma) *comma = '.';
    return length;
}

/* Zeros, infinities and NaN do not affect the format of floats. */
static bool counts(const struct printer *p, union element e) { return !p->is_float || (isfinite(e.f) && e.f != 0); }

static void choose_form(const struct printer *p, size_t part, struct form *form) {
    const size_t step = (size_t)p->n_parts;
    double least = INFINITY, most = 0;
    form->is_whole = true;
    for (size_t k = part; p->is_float && k < p->n_elements; k += step) {
        double value = p->elements[k].f;
        if (!counts(p, p->elements[k])) continue;
        least = fmin(least, fabs(value));
        most = fmax(most, fabs(value));
        form->is_whole = form->is_whole && value == ceil(value);
    }
    form->is_scientific = most > 0 && (most / least > 1000.0 || most > 1.0e8 || least < 1.0e-4);
    form->width = 1;
    for (size_t k = part; k < p->n_elements; k += step) {
        char text[ELEMENT_CHARS];
        if (!counts(p, p->elements[k])) continue;
        int length = element_print(p, form, p->elements[k], text);
        if (length > form->width) form->width = length;
    }
}

/* 1.+2.j: the imaginary part follows its sign without spaces. */
static void put_element(struct printer *p) {
    char text[ELEMENT_CHARS];
    int length = element_print(p, &p->form[0], p->elements[p->next++], text);
    put_repeated(p, " ", p->form[0].width - length);
    put(p, text);
    if (p->n_parts == 1) return;
    element_print(p, &p->form[1], p->elements[p->next++], text);
    if (text[0] != '-') put(p, "+");
    put(p, text);
    put(p, "j");
}

/* ---- Brackets ---- */

/* The innermost axis: as many elements on a line as fit. */
static void put_vector(struct printer *p, int indent) {
    int axis = p->x->rank - 1;
    int64_t n = n_shown(p, axis), n_items = n + is_cut(p, axis);
    int width = p->form[0].width + 2 + (p->n_parts == 2 ? p->form[1].width + 1 : 0);
    int per_line = (LINE_WIDTH - indent) / width;
    if (per_line < 1) per_line = 1;
    put(p, "[");
    for (int64_t item = 0; item < n_items; item++) {
        bool breaks = item && item % per_line == 0;
        if (item) put(p, breaks ? ",\n" : ", ");
        if (breaks) put_repeated(p, " ", indent + 1);
        if (is_cut(p, axis) && item == EDGE) put(p, " ...");
        else put_element(p);
    }
    put(p, "]");
}

static void put_elements(struct printer *p, int axis, int indent) {
    int rank = p->x->rank;
    if (axis >= rank - 1) {
        if (rank) put_vector(p, indent);
        else put_element(p);
        return;
    }
    put(p, "[");
    for (int64_t k = 0; k < n_shown(p, axis); k++) {
        for (int part = is_cut(p, axis) && k == EDGE ? 0 : 1; part < 2; part++) { /* the gap comes before k = EDGE */
            if (k) {
                put(p, ",");
                put_repeated(p, "\n", rank - axis - 1);
                put_repeated(p, " ", indent + 1);
            }
            if (part == 0) put(p, "...");
        }
        put_elements(p, axis + 1, indent + 1);
    }
    put(p, "]");
}

/* ---- The suffix after the elements ---- */

/* ", text", on a separate line if it would not fit. `used` is the width of the line so far, as torch counts it. */
static void put_suffix(struct printer *p, size_t *used, const char *text) {
    size_t length = strlen(text);
    if (*used + length + 2 > LINE_WIDTH) {
        put(p, ",\n");
        put_repeated(p, " ", INDENT);
        *used = INDENT + length;
    } else {
        put(p, ", ");
        *used += length + 2;
    }
    put(p, text);
}

static void put_size(struct printer *p, size_t *used) {
    char text[TL_MAX_RANK * 22 + 10] = "size=(";
    size_t length = strlen(text);
    for (int i = 0; i < p->x->rank; i++)
        length +=
            (size_t)snprintf(text + length, sizeof text - length, "%s%lld", i ? ", " : "", (long long)p->x->shape[i]);
    snprintf(text + length, sizeof text - length, "%s", p->x->rank == 1 ? ",)" : ")");
    put_suffix(p, used, text);
}

/* layer_norm becomes grad_fn=<LayerNormBackward0>, and div_scalar <DivBackward0>: PyTorch has one name for both. */
static void put_grad_fn(struct printer *p, size_t *used, const char *op) {
    char camel[100], text[130];
    size_t n = 0;
    for (bool starts = true; *op && strcmp(op, "_scalar") != 0 && n + 1 < sizeof camel; op++) {
        if (*op != '_') camel[n++] = starts ? text_upper(*op) : *op;
        starts = *op == '_';
    }
    camel[n] = 0;
    snprintf(text, sizeof text, "grad_fn=<%sBackward0>", camel);
    put_suffix(p, used, text);
}

static void put_suffixes(struct printer *p, bool needs_grad) {
    tl_tensor *x = p->x;
    const tl_device *device = x->storage->device;
    bool is_meta = !device_has_data(device), is_empty = is_meta || x->numel == 0;
    bool is_default =
        x->dtype == TL_F32 || (!is_empty && (x->dtype == TL_I64 || x->dtype == TL_BOOL || x->dtype == TL_C64));
    size_t used = p->length - p->line_start + 2;
    char text[100];
    if (!device_is_host(device)) {
        bool is_plain_meta = strcmp(device->name, "meta:cpu") == 0; /* what tl_device_find("meta") gives */
        snprintf(text, sizeof text, "device='%s'", is_plain_meta ? "meta" : device->name);
        put_suffix(p, &used, text);
    }
    if (is_meta || (is_empty && x->rank != 1)) put_size(p, &used);
    if (!is_default) {
        snprintf(text, sizeof text, "dtype=torch.%s", dtype_info(x->dtype)->torch_name);
        put_suffix(p, &used, text);
    }
    if (needs_grad && x->node) put_grad_fn(p, &used, x->node->op->name);
    else if (needs_grad) put_suffix(p, &used, "requires_grad=True");
}

/* Fetches and prints the elements. */
static bool put_data(struct printer *p) {
    const tl_device *device = p->x->storage->device;
    if (!device_is_reachable(device))
        return error_set(TL_ERROR_USE, "print: %s was opened before fork() and cannot be used in the child",
                         device->name);
    if (!elements_new(p) || !fetch(p, 0, p->x->offset)) return false;
    for (int i = 0; i < p->n_parts; i++) choose_form(p, (size_t)i, &p->form[i]);
    put_elements(p, 0, INDENT);
    return true;
}

size_t tl_print(tl_tensor *x, char *buffer, size_t size) {
    if (!buffer) size = 0; /* the length alone */
    if (size) buffer[0] = 0;
    if (!tensor_check(x, "print")) return 0;
    bool needs_grad = tensor_needs_grad(x);
    struct printer p = {.buffer = buffer,
                        .size = size,
                        .x = x,
                        .is_summarized = x->numel > THRESHOLD,
                        .is_float = dtype_has_gradient(x->dtype),
                        .n_parts = dtype_is_complex(x->dtype) ? 2 : 1};
    bool ok = true;
    put(&p, PREFIX);
    if (!device_has_data(x->storage->device)) put(&p, "...");
    else if (x->numel == 0) put(&p, "[]");
    else ok = put_data(&p);
    memory_free(p.elements);
    if (ok) put_suffixes(&p, needs_grad);
    put(&p, ")");
    if (size) buffer[!ok ? 0 : p.length < size ? p.length : size - 1] = 0;
    return ok ? p.length : 0;
}

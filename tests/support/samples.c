/* samples.c: the sample calls, in op_list.h's order. Read samples.h first. */
#include "support/samples.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"
#include "ops/update.h"

/* ---- Inputs ---- */

static tl_dtype run_dtype = TL_F64;
tl_dtype sample_dtype(void) { return run_dtype; }

tl_tensor *tensor_drawn(int rank, const int64_t *shape, tl_dtype dtype, tl_device *device) {
    bool mode = tl_set_grad_mode(false);
    tl_scope scope = tl_scope_begin();
    tl_tensor *k = tl_integers(rank, shape, -64, 64, TL_I64, device);
    tl_tensor *x = tl_scope_return(scope, tl_cast(tl_affine(tl_cast(k, TL_F64), 1 / 32.0, 1 / 64.0), dtype));
    tl_set_grad_mode(mode);
    return x;
}

/* Odd multiples of 1/64 in an order that is neither rising nor falling; up to 128 different ones. */
static tl_tensor *distinct(int rank, const int64_t *shape, tl_dtype dtype, tl_device *device) {
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= shape[i];
    double *value = malloc(((size_t)n + 1) * sizeof *value);
    for (int64_t i = 0; i < n; i++) value[i] = (double)(2 * ((i * 37 + 11) % 128) - 127) / 64;
    tl_tensor *x = tl_cast(tl_from_data(value, rank, shape, TL_F64, device), dtype);
    free(value);
    return x;
}

static tl_tensor *drawn(const struct sample_input *in, const int64_t *shape, tl_dtype dtype, tl_device *device) {
    switch (in->kind) {
    case IN_DISTINCT: return distinct(in->rank, shape, dtype, device);
    case IN_POSITIVE: return tl_affine(tensor_drawn(in->rank, shape, dtype, device), 1, 2);
    case IN_STATE: return tl_affine(tensor_drawn(in->rank, shape, dtype == TL_F64 ? TL_F64 : TL_F32, device), 1, 2);
    case IN_I64: return tl_integers(in->rank, shape, -3, 4, TL_I64, device);
    case IN_I32: return tl_integers(in->rank, shape, -3, 4, TL_I32, device);
    case IN_I16: return tl_integers(in->rank, shape, -3, 4, TL_I16, device);
    case IN_U8: return tl_integers(in->rank, shape, 0, 7, TL_U8, device);
    case IN_BOOL: return tl_bernoulli(in->rank, shape, 0.5, device);
    case IN_INDEX: return tl_integers(in->rank, shape, 0, in->limit, TL_I64, device);
    case IN_INDEX32: return tl_integers(in->rank, shape, 0, in->limit, TL_I32, device);
    case IN_RISING: return tl_cumsum(tl_integers(in->rank, shape, 0, in->limit, TL_I64, device), -1);
    case IN_RISING32: return tl_cast(tl_cumsum(tl_integers(in->rank, shape, 0, in->limit, TL_I64, device), -1), TL_I32);
    default: return tensor_drawn(in->rank, shape, dtype, device);
    }
}

static tl_tensor *reversed(tl_tensor *x) {
    for (int i = 0; x && i < tl_rank(x); i++) x = tl_slice(x, i, -1, TL_END, -1);
    return x;
}

tl_tensor *tensor_laid_out(tl_tensor *x, enum sample_layout layout) {
    int rank = tl_rank(x), axes[TL_MAX_RANK];
    int64_t shape[TL_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        axes[i] = rank - 1 - i;
        shape[i] = tl_size(x, i);
    }
    if (rank == 0) return x;
    if (layout == LAY_PERMUTED) return tl_permute(tl_clone(tl_permute(x, axes)), axes);
    if (layout == LAY_REVERSED) return reversed(tl_clone(reversed(x)));
    if (layout != LAY_SLICED) return x;
    shape[rank - 1] = 2 * shape[rank - 1] + 1;
    tl_tensor *view = tl_slice(tl_zeros(rank, shape, tl_dtype_of(x), tl_device_of(x)), -1, 1, TL_END, 2);
    return tl_copy_(view, x);
}

int sample_input_count(const struct sample *s) {
    int n = 0;
    while (n < SAMPLE_INPUTS && s->in[n].kind != IN_NONE) n++;
    return n;
}

static void input_requires_grad(const struct sample *s, int i, tl_tensor *x) {
    const enum sample_kind kind = s->in[i].kind;
    const bool is_float = kind == IN_FLOAT || kind == IN_POSITIVE || kind == IN_DISTINCT;
    if (is_float && (s->flags & GRAD)) tl_requires_grad(x, true);
}

bool sample_inputs(const struct sample *s, tl_device *device, tl_dtype dtype, bool with_grad,
                   enum sample_layout layout, tl_tensor **in) {
    bool mode = tl_set_grad_mode(false);
    tl_set_default_device(device);
    run_dtype = dtype;
    for (int i = 0; i < sample_input_count(s); i++) {
        const struct sample_input *want = &s->in[i];
        int64_t shape[6];
        memcpy(shape, want->shape, sizeof shape);
        bool is_expanded = want->layout == LAY_EXPANDED;
        if (is_expanded) shape[0] = 1;
        tl_scope scope = tl_scope_begin();
        tl_tensor *x = drawn(want, shape, dtype, device);
        if (is_expanded) x = tl_expand(x, want->rank, want->shape);
        else if (x) x = tensor_laid_out(x, layout == LAY_COUNT ? want->layout : layout);
        in[i] = tl_scope_return(scope, x ? tl_detach(x) : NULL);
        if (in[i] && with_grad) input_requires_grad(s, i, in[i]);
    }
    tl_set_grad_mode(mode);
    return tl_error() == TL_OK;
}

bool sample_inputs_again(const struct sample *s, tl_tensor **first, enum sample_layout layout, tl_tensor **in) {
    bool mode = tl_set_grad_mode(false);
    for (int i = 0; i < sample_input_count(s); i++) {
        const struct sample_input *want = &s->in[i];
        tl_scope scope = tl_scope_begin();
        tl_tensor *x = tl_detach(first[i]);
        if (want->layout == LAY_EXPANDED)
            x = tl_expand(tl_clone(tl_slice(x, 0, 0, 1, 1)), want->rank, want->shape);
        else if (want->rank == 0 || (layout == LAY_COUNT ? want->layout : layout) == LAY_DENSE) x = tl_clone(x);
        else x = tensor_laid_out(x, layout == LAY_COUNT ? want->layout : layout);
        in[i] = tl_scope_return(scope, x ? tl_detach(x) : NULL);
        if (in[i] && tl_needs_grad(first[i])) input_requires_grad(s, i, in[i]);
    }
    tl_set_grad_mode(mode);
    return tl_error() == TL_OK;
}

int sample_call(const struct sample *s, tl_tensor **in, tl_tensor **out) {
    if (s->call) return s->call(s, in, out);
    out[0] = s->unary ? s->unary(in[0]) : s->binary(in[0], in[1]);
    return out[0] != NULL;
}

/* ---- Rows of the tables ---- */

#define DIMS(...) .rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), .shape = {__VA_ARGS__}
#define IN(kind_, layout_, ...) {.kind = IN_##kind_, .layout = LAY_##layout_, DIMS(__VA_ARGS__)}
#define F(...) IN(FLOAT, DENSE, __VA_ARGS__)
#define K(...) IN(CONSTANT, DENSE, __VA_ARGS__)
#define SCALAR(kind_) {.kind = IN_##kind_}
#define IDS(limit_, ...) {.kind = IN_INDEX, DIMS(__VA_ARGS__), .limit = limit_}
#define IDS32(limit_, ...) {.kind = IN_INDEX32, DIMS(__VA_ARGS__), .limit = limit_}
#define RISING(layout_, limit_, ...) {.kind = IN_RISING, .layout = LAY_##layout_, DIMS(__VA_ARGS__), .limit = limit_}
#define RISING32(layout_, limit_, ...) {.kind = IN_RISING32, .layout = LAY_##layout_, DIMS(__VA_ARGS__), .limit = limit_}
#define END {.text = NULL}

#define CALL(name) static int name(const struct sample *s, tl_tensor **in, tl_tensor **out)
/* One result. */
static int one(tl_tensor **out, tl_tensor *x) {
    out[0] = x;
    return x != NULL;
}

static void to_int(const int64_t *from, int *to, int n) {
    for (int i = 0; i < n; i++) to[i] = (int)from[i];
}

/* ---- view.c ---- */

CALL(select_call) { return one(out, tl_select(in[0], (int)s->n[0], s->n[1])); }
const struct sample samples_select[] = {
    {"row of a matrix", GRAD, .call = select_call, .in = {F(3, 4)}, .n = {0, 1}},
    {"column from the end", GRAD, .call = select_call, .in = {F(3, 4)}, .n = {-1, -2}},
    {"of a vector: rank 0", GRAD, .call = select_call, .in = {F(5)}, .n = {0, 4}},
    {"leaves size 0", GRAD, .call = select_call, .in = {F(3, 0)}, .n = {0, 2}},
    {"of reversed", GRAD, .call = select_call, .in = {IN(FLOAT, REVERSED, 2, 3, 4)}, .n = {1, 2}},
    {"of expanded", GRAD, .call = select_call, .in = {IN(FLOAT, EXPANDED, 3, 4)}, .n = {0, 2}},
    {"of integers", 0, .call = select_call, .in = {IN(I32, DENSE, 3, 4)}, .n = {0, 1}},
    {"index too large", 0, .call = select_call, .in = {F(3, 4)}, .n = {0, 3}, .error = "index 3 is out of bounds for dimension 0 with size 3"},
    {"axis of a scalar", 0, .call = select_call, .in = {SCALAR(FLOAT)}, .n = {0, 0}, .error = "Dimension specified as 0 but tensor has no dimensions"},
    END};

CALL(slice_call) { return one(out, tl_slice(in[0], (int)s->n[0], s->n[1], s->n[2], s->n[3])); }
/* join.c's views */
CALL(flip_call) {
    int axes[3];
    to_int(s->n + 1, axes, (int)s->n[0]);
    return one(out, tl_flip(in[0], axes, (int)s->n[0]));
}
/* Einops: the text of the sample is the pattern; the lengths follow a semicolon. */
static const char *pattern_of(const struct sample *s, char *pattern, size_t size) {
    const char *semicolon = strchr(s->text, ';');
    snprintf(pattern, size, "%.*s", semicolon ? (int)(semicolon - s->text) : (int)strlen(s->text), s->text);
    return semicolon ? semicolon + 1 : NULL;
}
CALL(rearrange_call) {
    char pattern[100];
    const char *lengths = pattern_of(s, pattern, sizeof pattern);
    return one(out, tl_rearrange(in[0], pattern, lengths));
}
CALL(repeat_call) {
    char pattern[100];
    const char *lengths = pattern_of(s, pattern, sizeof pattern);
    return one(out, tl_repeat(in[0], pattern, lengths));
}
static int reduce_call(const struct sample *s, tl_tensor **in, tl_tensor **out, const char *reduction) {
    char pattern[100];
    const char *lengths = pattern_of(s, pattern, sizeof pattern);
    return one(out, tl_reduce(in[0], pattern, reduction, lengths));
}
CALL(reduce_sum_call) { return reduce_call(s, in, out, "sum"); }
CALL(reduce_mean_call) { return reduce_call(s, in, out, "mean"); }
CALL(reduce_max_call) { return reduce_call(s, in, out, "max"); }
CALL(reduce_prod_call) { return reduce_call(s, in, out, "prod"); }
CALL(reduce_logsumexp_call) { return reduce_call(s, in, out, "logsumexp"); }
CALL(reduce_any_call) { return reduce_call(s, in, out, "any"); }
CALL(einsum_call) { return one(out, tl_einsum(s->text, in, sample_input_count(s))); }
CALL(letters_call) { return one(out, tl_einsum_letters(s->text, in, sample_input_count(s))); }
CALL(pack_call) { return one(out, tl_pack(in, sample_input_count(s), s->text, NULL)); }
CALL(unpack_call) {
    tl_tensor *part[3];
    const tl_packed shapes[3] = {{1, {2}}, {2, {-1, 2}}, {0, {0}}};
    return tl_unpack(in[0], shapes, 3, s->text, part) ? one(out, part[1]) : 0;
}

CALL(chunk_call) {
    tl_tensor *part[8];
    int n = tl_chunk(in[0], (int)s->n[0], (int)s->n[1], part);
    return n ? one(out, part[n - 1]) : 0;
}
CALL(split_call) {
    tl_tensor *part[3];
    return tl_split(in[0], (int)s->n[0], s->n + 1, 3, part) ? one(out, part[1]) : 0;
}
const struct sample samples_slice[] = {
    {"flip", GRAD, .call = flip_call, .in = {F(2, 3, 4)}, .n = {2, 0, -1}},
    {"flip of nothing", GRAD, .call = flip_call, .in = {F(0, 4)}, .n = {1, 0}},
    {"last chunk", GRAD, .call = chunk_call, .in = {F(7, 2)}, .n = {0, 3}},
    {"chunk of nothing", GRAD, .call = chunk_call, .in = {F(2, 0)}, .n = {1, 3}},
    {"second of a split", GRAD, .call = split_call, .in = {IN(FLOAT, PERMUTED, 2, 6)}, .n = {1, 1, 3, 2}},
    {"flip twice", 0, .call = flip_call, .in = {F(2, 3)}, .n = {2, 0, -2}, .error = "dim 0 appears multiple times"},
    {"split that misses", 0, .call = split_call, .in = {F(2, 6)}, .n = {1, 1, 3, 3}, .error = "sizes must sum exactly to 6"},
    {"* k", GRAD, .call = unpack_call, .in = {IN(FLOAT, PERMUTED, 7, 2)}},
    {"middle", GRAD, .call = slice_call, .in = {F(5, 3)}, .n = {0, 1, 4, 1}},
    {"every second, backwards", GRAD, .call = slice_call, .in = {F(2, 7)}, .n = {1, -1, TL_END, -2}},
    {"empty", GRAD, .call = slice_call, .in = {F(4)}, .n = {0, 3, 1, 1}},
    {"one element, clipped ends", GRAD, .call = slice_call, .in = {F(1, 2)}, .n = {0, -9, 9, 5}},
    {"of permuted", GRAD, .call = slice_call, .in = {IN(FLOAT, PERMUTED, 4, 3)}, .n = {0, 1, TL_END, 2}},
    {"of sliced", GRAD, .call = slice_call, .in = {IN(FLOAT, SLICED, 4, 5)}, .n = {1, 0, TL_END, 3}},
    {"step 0", 0, .call = slice_call, .in = {F(4)}, .n = {0, 0, 4, 0}, .error = "step 0 is not allowed"},
    {"no such axis", 0, .call = slice_call, .in = {F(4)}, .n = {1, 0, 4, 1}, .error = "but got 1)"},
    END};

CALL(view_call) { return one(out, tl_view(in[0], (int)s->n[0], s->n + 1)); }
CALL(reshape_call) { return one(out, tl_reshape(in[0], (int)s->n[0], s->n + 1)); }
CALL(flatten_call) { return one(out, tl_flatten(in[0], (int)s->n[0], (int)s->n[1])); }
CALL(unflatten_call) { return one(out, tl_unflatten(in[0], (int)s->n[0], (int)s->n[1], s->n + 2)); }
CALL(unsqueeze_call) { return one(out, tl_unsqueeze(in[0], (int)s->n[0])); }
CALL(squeeze_call) { return one(out, tl_squeeze(in[0], (int)s->n[0])); }
const struct sample samples_view[] = {
    {"split and join", GRAD | GEOMETRY, .call = view_call, .in = {F(4, 6)}, .n = {3, 2, 2, 6}},
    {"one size left open", GRAD | GEOMETRY, .call = view_call, .in = {F(4, 6)}, .n = {2, 8, -1}},
    {"scalar to vector", GRAD | GEOMETRY, .call = view_call, .in = {SCALAR(FLOAT)}, .n = {1, 1}},
    {"one element to scalar", GRAD, .call = reshape_call, .in = {F(1, 1)}, .n = {0}},
    {"size 0", GRAD, .call = reshape_call, .in = {F(0, 3)}, .n = {2, 5, 0}},
    {"reshape that views", GRAD, .call = reshape_call, .in = {F(2, 3, 4)}, .n = {2, 6, 4}},
    {"reshape that copies", GRAD, .call = reshape_call, .in = {IN(FLOAT, PERMUTED, 3, 4)}, .n = {1, 12}},
    {"reshape of expanded", GRAD, .call = reshape_call, .in = {IN(FLOAT, EXPANDED, 3, 4)}, .n = {1, 12}},
    {"flatten", GRAD, .call = flatten_call, .in = {F(2, 3, 4)}, .n = {1, -1}},
    {"unflatten", GRAD, .call = unflatten_call, .in = {F(2, 6)}, .n = {1, 2, 2, -1}},
    {"unsqueeze", GRAD, .call = unsqueeze_call, .in = {IN(FLOAT, REVERSED, 2, 3)}, .n = {1}},
    {"squeeze", GRAD, .call = squeeze_call, .in = {F(2, 1, 3)}, .n = {1}},
    {"squeeze of a scalar", GRAD, .call = squeeze_call, .in = {SCALAR(FLOAT)}, .n = {-1}},
    {"of bool", 0, .call = reshape_call, .in = {IN(BOOL, DENSE, 4)}, .n = {2, 2, 2}},
    {"b (h w) -> b h w;w=2", GRAD, .call = rearrange_call, .in = {IN(FLOAT, SLICED, 3, 6)}},
    {"a b c -> a (b c)", GRAD, .call = rearrange_call, .in = {F(2, 3, 4)}},
    {"a (b c) -> (a b) c;b=2", GRAD, .call = rearrange_call, .in = {IN(FLOAT, PERMUTED, 2, 4)}},
    {"1 a ... -> a () ...", GRAD, .call = rearrange_call, .in = {IN(FLOAT, REVERSED, 1, 2, 3, 2)}},
    {"wrong size", 0, .call = view_call, .in = {F(4, 6)}, .n = {1, 23}, .error = "shape '[23]' is invalid for input of size 24"},
    {"across strides", GEOMETRY, .call = view_call, .in = {IN(FLOAT, PERMUTED, 4, 6)}, .n = {1, 24},
     .error = "view size is not compatible with input tensor's size and stride"},
    {"two open sizes", 0, .call = view_call, .in = {F(4)}, .n = {2, -1, -1}, .error = "only one dimension can be inferred"},
    END};

CALL(permute_call) {
    int axes[8];
    to_int(s->n, axes, 8);
    return one(out, tl_permute(in[0], axes));
}
CALL(transpose_call) { return one(out, tl_transpose(in[0], (int)s->n[0], (int)s->n[1])); }
const struct sample samples_permute[] = {
    {"three axes", GRAD, .call = permute_call, .in = {F(2, 3, 4)}, .n = {2, 0, 1}},
    {"of a scalar", GRAD, .call = permute_call, .in = {SCALAR(FLOAT)}},
    {"size 0", GRAD, .call = permute_call, .in = {F(2, 0)}, .n = {1, 0}},
    {"b s (h d) -> b h s d;h=2", GRAD, .call = rearrange_call, .in = {F(2, 3, 4)}},
    {"a ... b -> b ... a", GRAD, .call = rearrange_call, .in = {IN(FLOAT, SLICED, 2, 3, 1, 2)}},
    {"a (b c) -> c a 1 b;b=2", GRAD, .call = rearrange_call, .in = {IN(FLOAT, EXPANDED, 2, 4)}},
    {"not there -> there not", 0, .call = rearrange_call, .in = {F(2, 3, 4)}, .error = "the pattern has 2 axes on the left side, the input has 3"},
    {"transpose of sliced", GRAD, .call = transpose_call, .in = {IN(FLOAT, SLICED, 2, 3)}, .n = {0, -1}},
    {"transpose of a scalar", GRAD, .call = transpose_call, .in = {SCALAR(FLOAT)}, .n = {0, -1}},
    {"transpose of expanded", GRAD, .call = transpose_call, .in = {IN(FLOAT, EXPANDED, 2, 3)}, .n = {0, 1}},
    {"axis named twice", 0, .call = permute_call, .in = {F(2, 3)}, .n = {1, 1}, .error = "axis 1 is named twice"},
    END};

CALL(expand_call) { return one(out, tl_expand(in[0], (int)s->n[0], s->n + 1)); }
const struct sample samples_expand[] = {
    {"new axis", GRAD, .call = expand_call, .in = {F(3)}, .n = {2, 4, 3}},
    {"size 1 repeated", GRAD, .call = expand_call, .in = {F(2, 1, 3)}, .n = {3, -1, 4, -1}},
    {"scalar", GRAD, .call = expand_call, .in = {SCALAR(FLOAT)}, .n = {2, 2, 3}},
    {"a b -> b r a;r=3", GRAD, .call = repeat_call, .in = {F(2, 3)}},
    {"a -> 2 a 1", GRAD, .call = repeat_call, .in = {IN(FLOAT, REVERSED, 3)}},
    {" -> a b;a=2 b=0", GRAD, .call = repeat_call, .in = {SCALAR(FLOAT)}},
    {"to size 0", GRAD, .call = expand_call, .in = {F(1, 3)}, .n = {2, 0, 3}},
    {"nothing to repeat", GRAD, .call = expand_call, .in = {F(2, 3)}, .n = {2, 2, 3}},
    {"other size", 0, .call = expand_call, .in = {F(2, 3)}, .n = {2, 4, 3}, .error = "The expanded size of the tensor (4) must match the existing size (2)"},
    {"fewer axes", 0, .call = expand_call, .in = {F(2, 3)}, .n = {1, 3}, .error = "must be greater or equal to the number of dimensions"},
    END};

CALL(diagonal_call) { return one(out, tl_diagonal(in[0], s->n[0], (int)s->n[1], (int)s->n[2])); }
const struct sample samples_diagonal[] = {
    {"main", GRAD, .call = diagonal_call, .in = {F(3, 4)}, .n = {0, 0, 1}},
    {"a a b -> b a", GRAD, .call = einsum_call, .in = {F(3, 3, 2)}},
    {"iji->", GRAD | SUM_ORDER, .call = letters_call, .in = {IN(FLOAT, REVERSED, 3, 2, 3)}},
    {"below, batched", GRAD, .call = diagonal_call, .in = {F(2, 4, 3)}, .n = {-1, 1, 2}},
    {"beyond the corner: empty", GRAD, .call = diagonal_call, .in = {F(3, 3)}, .n = {3, 0, 1}},
    {"of one element", GRAD, .call = diagonal_call, .in = {F(1, 1)}, .n = {0, 1, 0}},
    {"of reversed", GRAD, .call = diagonal_call, .in = {IN(FLOAT, REVERSED, 4, 4)}, .n = {1, 0, 1}},
    {"one axis twice", 0, .call = diagonal_call, .in = {F(3, 4)}, .n = {0, 1, -1}, .error = "diagonal dimensions cannot be identical"},
    END};

CALL(strided_call) { return one(out, tl_as_strided(in[0], (int)s->n[0], s->n + 1, s->n + 3, s->n[5])); }
const struct sample samples_as_strided[] = {
    {"windows that overlap", GRAD | GEOMETRY, .call = strided_call, .in = {F(8)}, .n = {2, 4, 3, 1, 1, 1}},
    {"every third", GRAD | GEOMETRY, .call = strided_call, .in = {F(3, 4)}, .n = {1, 4, 0, 3, 0, 2}},
    {"rank 0", GRAD | GEOMETRY, .call = strided_call, .in = {F(4)}, .n = {0, 0, 0, 0, 0, 3}},
    {"empty", GRAD | GEOMETRY, .call = strided_call, .in = {F(4)}, .n = {2, 0, 3, 1, 1, 0}},
    {"beyond the end", GEOMETRY, .call = strided_call, .in = {F(4)}, .n = {1, 4, 0, 1, 0, 1}, .error = "reaches outside the storage of 4 elements"},
    END};

/* ---- complex.c ---- */

#define DT_PARTS (DT(TL_F32) | DT(TL_F64))
static tl_tensor *paired(tl_tensor *x) { return tl_view_as_complex(tl_contiguous(x)); }
static tl_tensor *pairs_and_back(tl_tensor *x) { return tl_view_as_real(paired(x)); }
/* Real, conjugated and turned parts of one number: views of a view. */
static tl_tensor *parts_of_complex(tl_tensor *x) {
    tl_tensor *z = paired(x), *re = z && tl_is_complex(z) ? tl_real(z) : NULL;
    return re ? tl_add(re, tl_scale(tl_imag(z), 3)) : NULL;
}
/* Changed in place through a view of a copy. */
static tl_tensor *complex_in_place(tl_tensor *x) {
    tl_tensor *z = tl_clone(paired(x)), *row = z ? tl_select(z, 0, 0) : NULL;
    if (!row || !tl_mul_(row, tl_conj(row)) || !tl_add_scalar_(z, tl_scalar_int(2))) return NULL;
    return tl_view_as_real(tl_mul(z, z));
}
static tl_tensor *complex_function(tl_tensor *x) {
    tl_tensor *z = paired(x), *root = z ? tl_sqrt(tl_add_scalar(tl_mul(z, tl_conj(z)), tl_scalar_int(1))) : NULL;
    tl_tensor *power = root ? tl_view_as_real(tl_exp(root)) : NULL;
    return power ? tl_add(power, tl_view_as_real(z)) : NULL;
}
/* Magnitude and angle, and back. */
static tl_tensor *polar_form(tl_tensor *x) {
    tl_tensor *z = paired(x), *size = z ? tl_abs(z) : NULL;
    tl_tensor *square = size ? tl_square(size) : NULL;
    return square ? tl_view_as_real(tl_polar(square, tl_angle(z))) : NULL;
}
static tl_tensor *complex_joined(tl_tensor *x) {
    tl_tensor *z = paired(x), *parts[2] = {z, z ? tl_flip(z, (int[]){0}, 1) : NULL};
    return parts[1] ? tl_view_as_real(tl_sum(tl_concat(parts, 2, 0), (int[]){0}, 1, true)) : NULL;
}
const struct sample samples_view_as_real[] = {
    {"pairs and back", GRAD, DT_PARTS, .unary = pairs_and_back, .in = {F(3, 2)}},
    {"one number", GRAD, DT_PARTS, .unary = pairs_and_back, .in = {F(2)}},
    {"permuted", GRAD, DT_PARTS, .unary = pairs_and_back, .in = {IN(FLOAT, PERMUTED, 3, 4, 2)}},
    {"parts", GRAD, DT_PARTS, .unary = parts_of_complex, .in = {F(2, 3, 2)}},
    {"in place", GRAD, DT_PARTS, .unary = complex_in_place, .in = {F(2, 3, 2)}},
    {"size 0", GRAD, DT_PARTS, .unary = pairs_and_back, .in = {F(0, 2)}},
    {"of real numbers", 0, .unary = tl_view_as_real, .in = {F(3)}, .error = "is only supported for complex tensors"},
    END};
const struct sample samples_view_as_complex[] = {
    {"functions", GRAD, DT_PARTS, .unary = complex_function, .in = {F(3, 2)}},
    {"polar form", GRAD, DT_PARTS, .unary = polar_form, .in = {F(3, 2)}},
    {"joined", GRAD, DT_PARTS, .unary = complex_joined, .in = {F(2, 3, 2)}},
    {"size 0", GRAD, DT_PARTS, .unary = complex_joined, .in = {F(2, 0, 2)}},
    {"three parts", 0, DT_PARTS, .unary = tl_view_as_complex, .in = {F(2, 3)}, .error = "a last dimension of size 2"},
    {"apart", GEOMETRY, DT_PARTS, .unary = tl_view_as_complex, .in = {IN(FLOAT, SLICED, 3, 2)}, .error = "a last dimension with stride 1"},
    {"odd rows", GEOMETRY, DT_PARTS, .unary = tl_view_as_complex, .in = {IN(FLOAT, PERMUTED, 3, 2)}, .error = "a last dimension with stride 1"},
    {"scalar", 0, DT_PARTS, .unary = tl_view_as_complex, .in = {SCALAR(FLOAT)}, .error = "a last dimension of size 2"},
    {"narrow", 0, DT(TL_F16) | DT(TL_BF16), .unary = tl_view_as_complex, .in = {F(3, 2)}, .error = "of 32 and 64 bits"},
    {"integers", 0, .unary = tl_view_as_complex, .in = {IN(I32, DENSE, 3, 2)}, .error = "of 32 and 64 bits"},
    END};
static tl_tensor *complex_product(tl_tensor *x, tl_tensor *y) {
    tl_tensor *a = paired(x);
    return tl_view_as_real(tl_mul(a, paired(y)));
}
static tl_tensor *complex_quotient(tl_tensor *x, tl_tensor *y) {
    tl_tensor *a = paired(x);
    return tl_view_as_real(tl_div(a, paired(y)));
}
/* The smaller part of a divisor is the real one, then the imaginary one. */
static tl_tensor *complex_quotients(tl_tensor *x) {
    tl_tensor *a = paired(x), *b = a ? tl_exp(tl_scale(a, 0.25)) : NULL;
    tl_tensor *im = b ? tl_imag(b) : NULL, *swapped = im ? tl_complex(im, tl_real(b)) : NULL;
    tl_tensor *first = swapped ? tl_div(a, b) : NULL;
    return first ? tl_view_as_real(tl_div(first, swapped)) : NULL;
}
const struct sample samples_complex_mul[] = {
    {"vectors", GRAD, DT_PARTS, .binary = complex_product, .in = {F(3, 2), F(3, 2)}, .total_flops = 18}, /* 6 for each of 3 */
    {"broadcast", GRAD, DT_PARTS, .binary = complex_product, .in = {F(3, 1, 2), IN(FLOAT, PERMUTED, 4, 2)}},
    {"scalars", GRAD, DT_PARTS, .binary = complex_product, .in = {F(2), F(2)}},
    {"expanded", GRAD, DT_PARTS, .binary = complex_product, .in = {IN(FLOAT, EXPANDED, 3, 4, 2), IN(FLOAT, REVERSED, 4, 2)}},
    {"size 0", GRAD, DT_PARTS, .binary = complex_product, .in = {F(3, 0, 2), F(1, 2)}},
    {"large", LARGE | GRAD, DT_PARTS, .binary = complex_product, .in = {F(33, 1031, 2), F(1031, 2)}},
    {"other sizes", 0, DT_PARTS, .binary = complex_product, .in = {F(3, 2), F(4, 2)}, .error = "The size of tensor a (3) must match the size of tensor b (4)"},
    END};
const struct sample samples_complex_div[] = {
    {"vectors", GRAD, DT_PARTS, .binary = complex_quotient, .in = {F(3, 2), IN(POSITIVE, DENSE, 3, 2)}, .total_flops = 30}, /* 10 for each of 3 */
    {"both ways round", GRAD, DT_PARTS, .unary = complex_quotients, .in = {F(5, 2)}},
    {"broadcast", GRAD, DT_PARTS, .binary = complex_quotient, .in = {F(3, 1, 2), IN(POSITIVE, PERMUTED, 4, 2)}},
    {"size 0", GRAD, DT_PARTS, .binary = complex_quotient, .in = {F(0, 2), IN(POSITIVE, DENSE, 0, 2)}},
    {"large", LARGE | GRAD, DT_PARTS, .binary = complex_quotient, .in = {F(33, 1031, 2), IN(POSITIVE, DENSE, 1031, 2)}},
    END};

/* ---- fft.c ---- */

/* n: the length, the axis counted without pairs, the norm */
CALL(fft_call) {
    return one(out, tl_view_as_real(tl_fft(paired(in[0]), s->n[0], (int)s->n[1], (tl_fft_norm)s->n[2])));
}
CALL(ifft_call) {
    return one(out, tl_view_as_real(tl_ifft(paired(in[0]), s->n[0], (int)s->n[1], (tl_fft_norm)s->n[2])));
}
CALL(rfft_call) { return one(out, tl_view_as_real(tl_rfft(in[0], s->n[0], (int)s->n[1], (tl_fft_norm)s->n[2]))); }
CALL(irfft_call) { return one(out, tl_irfft(paired(in[0]), s->n[0], (int)s->n[1], (tl_fft_norm)s->n[2])); }
const struct sample samples_fft[] = {
    {"powers of two", GRAD, DT_PARTS, .call = fft_call, .in = {F(2, 8, 2)}, .n = {0, -1}, .total_flops = 240}, /* 2 of 5 x 8 x 3 */
    {"small factors", GRAD, DT_PARTS, .call = ifft_call, .in = {F(12, 2)}, .n = {0, -1}},
    {"a large prime", GRAD, DT_PARTS, .call = fft_call, .in = {F(37, 2)}, .n = {0, -1, TL_FFT_ORTHO}},
    {"one number", GRAD, DT_PARTS, .call = fft_call, .in = {F(3, 1, 2)}, .n = {0, -1}},
    {"another axis", GRAD, DT_PARTS, .call = ifft_call, .in = {IN(FLOAT, PERMUTED, 5, 2, 2)}, .n = {0, 0, TL_FFT_FORWARD}},
    {"filled up", GRAD, DT_PARTS, .call = fft_call, .in = {F(2, 3, 2)}, .n = {7, -1}},
    {"cut", GRAD, DT_PARTS, .call = fft_call, .in = {F(5, 2)}, .n = {3, -1, TL_FFT_FORWARD}},
    {"of real numbers", GRAD, DT_PARTS, .call = rfft_call, .in = {F(2, 6)}, .n = {0, -1}},
    {"of an odd number", GRAD, DT_PARTS, .call = rfft_call, .in = {IN(FLOAT, REVERSED, 7, 2)}, .n = {0, 0, TL_FFT_ORTHO}},
    {"to real numbers", GRAD, DT_PARTS, .call = irfft_call, .in = {F(2, 5, 2)}, .n = {0, -1}},
    {"to an odd number", GRAD, DT_PARTS, .call = irfft_call, .in = {F(5, 2)}, .n = {9, -1, TL_FFT_FORWARD}},
    {"no rows", GRAD, DT_PARTS, .call = rfft_call, .in = {F(0, 4)}, .n = {0, -1}},
    {"large", LARGE | GRAD, DT_PARTS, .call = fft_call, .in = {F(67, 240, 2)}, .n = {0, -1}},
    {"no numbers", 0, DT_PARTS, .call = rfft_call, .in = {F(2, 0)}, .n = {0, -1}, .error = "Invalid number of data points (0)"},
    {"other norm", 0, DT_PARTS, .call = rfft_call, .in = {F(4)}, .n = {0, -1, 3}, .error = "no norm has the number 3"},
    {"complex", 0, DT_PARTS, .call = irfft_call, .in = {F(1, 2)}, .n = {0, -1}, .error = "Invalid number of data points (0)"},
    END};

/* ---- create.c ---- */

CALL(full_call) { return (void)in, one(out, tl_full((int)s->n[0], s->n + 1, s->d[0], run_dtype, NULL)); }
CALL(full_i32_call) { return (void)in, one(out, tl_full((int)s->n[0], s->n + 1, s->d[0], TL_I32, NULL)); }
const struct sample samples_full[] = {
    {"matrix", 0, DT_ARITHMETIC, .call = full_call, .n = {2, 3, 4}, .d = {1.5}},
    {"scalar", 0, DT_ARITHMETIC, .call = full_call, .n = {0}, .d = {-2}},
    {"size 0", 0, .call = full_call, .n = {1, 0}, .d = {1}},
    {"integers", 0, .call = full_i32_call, .n = {1, 5}, .d = {7}},
    {"large", LARGE, .call = full_call, .n = {2, 300, 401}, .d = {0.25}},
    {"negative size", 0, .call = full_call, .n = {2, 3, -4}, .error = "full: shape [3,-4] is negative or too large"},
    END};

CALL(arange_call) { return (void)in, one(out, tl_arange(s->d[0], s->d[1], s->n[0], run_dtype, NULL)); }
CALL(arange_i64_call) { return (void)in, one(out, tl_arange(s->d[0], s->d[1], s->n[0], TL_I64, NULL)); }
const struct sample samples_arange[] = {
    {"ten", 0, .call = arange_call, .n = {10}, .d = {-1, 0.25}},
    {"one", 0, .call = arange_call, .n = {1}, .d = {3, 1}},
    {"none", 0, .call = arange_call, .n = {0}, .d = {0, 1}},
    {"integers", 0, .call = arange_i64_call, .n = {7}, .d = {5, -2}},
    {"large", LARGE, .call = arange_call, .n = {100001}, .d = {0, 0.015625}},
    {"fewer than none", 0, .call = arange_call, .n = {-1}, .d = {0, 1}, .error = "arange: shape [-1] is negative or too large"},
    END};

CALL(uniform_call) { return (void)in, one(out, tl_uniform((int)s->n[0], s->n + 1, s->d[0], s->d[1], run_dtype, NULL)); }
CALL(normal_call) { return (void)in, one(out, tl_normal((int)s->n[0], s->n + 1, s->d[0], s->d[1], run_dtype, NULL)); }
CALL(bernoulli_call) { return (void)in, one(out, tl_bernoulli((int)s->n[0], s->n + 1, s->d[0], NULL)); }
CALL(integers_call) { return (void)in, one(out, tl_integers((int)s->n[0], s->n + 1, -5, 6, TL_I16, NULL)); }
const struct sample samples_random[] = {
    {"uniform", NO_DATA, .call = uniform_call, .n = {2, 3, 5}, .d = {-1, 2}},
    {"normal", NO_DATA, .call = normal_call, .n = {1, 7}, .d = {0, 1}},
    {"normal scalar", NO_DATA, .call = normal_call, .n = {0}, .d = {1, 0.5}},
    {"bernoulli", NO_DATA, .call = bernoulli_call, .n = {2, 4, 4}, .d = {0.25}},
    {"integers, size 0", NO_DATA, .call = integers_call, .n = {2, 0, 4}},
    {"large normal", LARGE | NO_DATA, .call = normal_call, .n = {1, 70001}, .d = {0, 1}},
    {"probability above 1", 0, .call = bernoulli_call, .n = {1, 4}, .d = {1.5}, .error = "bernoulli: probability 1.5 is not between 0 and 1"},
    {"negative deviation", 0, .call = normal_call, .n = {1, 4}, .d = {0, -1}, .error = "normal: std -1 is negative"},
    END};

/* ---- copy.c ---- */

CALL(cast_call) { return one(out, tl_cast(in[0], (tl_dtype)s->n[0])); }
/* join.c's repetitions */
CALL(tile_call) { return one(out, tl_tile(in[0], (int)s->n[0], s->n + 1)); }
CALL(interleave_call) { return one(out, tl_repeat_interleave(in[0], (int)s->n[0], s->n[1])); }
const struct sample samples_copy[] = {
    {"tile with new axes", GRAD, .call = tile_call, .in = {F(2, 3)}, .n = {3, 2, 1, 3}},
    {"tile no times", GRAD, .call = tile_call, .in = {F(2, 3)}, .n = {2, 0, 2}},
    {"tile, permuted", GRAD, .call = tile_call, .in = {IN(FLOAT, PERMUTED, 2, 3)}, .n = {1, 2}},
    {"a b -> (b a)", GRAD, .call = rearrange_call, .in = {F(2, 3)}},
    {"(a b) c -> b (a c);a=2", GRAD, .call = rearrange_call, .in = {IN(FLOAT, SLICED, 4, 3)}},
    {"h w -> (h 2) (w r);r=3", GRAD, .call = repeat_call, .in = {IN(FLOAT, PERMUTED, 2, 3)}},
    {"each twice", GRAD, .call = interleave_call, .in = {IN(FLOAT, SLICED, 2, 3)}, .n = {1, 2}},
    {"each scalar twice", GRAD, .call = interleave_call, .in = {SCALAR(FLOAT)}, .n = {0, 2}},
    {"negative counts", 0, .call = tile_call, .in = {F(2, 3)}, .n = {2, 1, -2}, .error = "counts are not negative"},
    {"negative repetitions", 0, .call = interleave_call, .in = {F(2)}, .n = {0, -1}, .error = "repeats must be non-negative"},
    {"clone", GRAD, .unary = tl_clone, .in = {F(3, 4)}},
    {"clone of a scalar", GRAD, .unary = tl_clone, .in = {SCALAR(FLOAT)}},
    {"clone of nothing", GRAD, .unary = tl_clone, .in = {F(0, 4)}},
    {"clone of expanded", GRAD, .unary = tl_clone, .in = {IN(FLOAT, EXPANDED, 3, 4)}},
    {"clone of reversed", GRAD, .unary = tl_clone, .in = {IN(FLOAT, REVERSED, 2, 3, 2)}},
    {"contiguous of permuted", GRAD, .unary = tl_contiguous, .in = {IN(FLOAT, PERMUTED, 2, 3, 4)}},
    {"cast to bf16", GRAD | ROUNDS, DT_FLOATS & ~DT(TL_BF16), .call = cast_call, .in = {IN(FLOAT, SLICED, 3, 4)}, .n = {TL_BF16}},
    {"cast to f16", GRAD | ROUNDS, DT_FLOATS & ~DT(TL_F16), .call = cast_call, .in = {F(3, 4)}, .n = {TL_F16}},
    {"cast to f8e4m3", GRAD | ROUNDS, .call = cast_call, .in = {F(3, 4)}, .n = {TL_F8E4M3}},
    {"cast to f4e2m1", GRAD | ROUNDS, .call = cast_call, .in = {F(3, 4)}, .n = {TL_F4E2M1}},
    {"cast to i32", 0, .call = cast_call, .in = {F(3, 4)}, .n = {TL_I32}},
    {"cast i16 to u8", 0, .call = cast_call, .in = {IN(I16, DENSE, 9)}, .n = {TL_U8}},
    {"cast bool to f64", 0, .call = cast_call, .in = {IN(BOOL, PERMUTED, 3, 3)}, .n = {TL_F64}},
    {"large, permuted", LARGE | GRAD, .unary = tl_clone, .in = {IN(FLOAT, PERMUTED, 130, 270)}},
    {"odd number of f4", 0, .call = cast_call, .in = {F(3, 3)}, .n = {TL_F4E2M1}, .error = "two f4e2m1 share a byte"},
    {"no such dtype", 0, .call = cast_call, .in = {F(3)}, .n = {99}, .error = "cast: no dtype has the number 99"},
    END};

CALL(assign_call) { return (void)s, one(out, tl_copy_(tl_clone(in[0]), in[1])); }
CALL(assign_part_call) {
    (void)s;
    tl_tensor *x = tl_clone(in[0]);
    return tl_copy_(tl_slice(x, 0, 1, TL_END, 2), in[1]) ? one(out, x) : 0;
}
CALL(assign_twin) { return (void)s, one(out, tl_clone(tl_expand(in[1], tl_rank(in[0]), tl_shape(in[0])))); }
const struct sample samples_assign[] = {
    {"same shape", GRAD, .call = assign_call, .twin = assign_twin, .in = {F(3, 4), F(3, 4)}},
    {"broadcast source", GRAD, .call = assign_call, .twin = assign_twin, .in = {F(3, 4), F(4)}},
    {"scalar into scalar", GRAD, .call = assign_call, .twin = assign_twin, .in = {SCALAR(FLOAT), SCALAR(FLOAT)}},
    {"nothing", GRAD, .call = assign_call, .in = {F(0), F(0)}},
    {"into a view: the base sees it", GRAD, .call = assign_part_call, .in = {F(5, 2), IN(FLOAT, REVERSED, 2, 2)}},
    {"integers into floats", GRAD, .call = assign_call, .in = {F(3, 2), IN(I32, PERMUTED, 3, 2)}},
    {"no broadcast", 0, .call = assign_call, .in = {F(3, 4), F(3)}, .error = "The size of tensor a (4) must match the size of tensor b (3) at non-singleton dimension 1"},
    END};

CALL(fill_call) { return one(out, tl_fill_(tl_clone(in[0]), s->d[0])); }
CALL(fill_number_call) { return one(out, tl_fill_scalar_(tl_clone(in[0]), s->n[0] == TL_SCALAR_INT ? tl_scalar_int((int64_t)s->d[0]) : tl_scalar_float(s->d[0]))); }
CALL(fill_part_call) {
    tl_tensor *x = tl_clone(in[0]);
    return tl_fill_(tl_select(x, -1, 1), s->d[0]) ? one(out, x) : 0;
}
/* A vector, half of which is filled through a view that shows it three times. */
CALL(fill_expanded_call) {
    tl_tensor *x = tl_clone(in[0]), *wide = tl_expand(tl_slice(x, 0, 0, 2, 1), TL_SHAPE(3, 2));
    return tl_fill_(wide, s->d[0]) ? one(out, tl_add(x, tl_select(tl_reshape(wide, TL_SHAPE(6)), 0, 5))) : 0;
}
CALL(fill_twin) { return one(out, tl_full(tl_rank(in[0]), tl_shape(in[0]), s->d[0], tl_dtype_of(in[0]), tl_device_of(in[0]))); }
const struct sample samples_fill[] = {
    {"matrix", GRAD, DT_ARITHMETIC, .call = fill_call, .twin = fill_twin, .in = {F(3, 4)}, .d = {0.5}},
    {"scalar", GRAD, DT_ARITHMETIC, .call = fill_call, .twin = fill_twin, .in = {SCALAR(FLOAT)}, .d = {2}},
    {"nothing", GRAD, DT_ARITHMETIC, .call = fill_call, .twin = fill_twin, .in = {F(2, 0)}, .d = {2}},
    {"a column of a matrix", GRAD, DT_ARITHMETIC, .call = fill_part_call, .in = {F(3, 4)}, .d = {1}},
    {"integers", 0, .call = fill_call, .in = {IN(U8, DENSE, 5)}, .d = {3}},
    {"a number", GRAD, .call = fill_number_call, .in = {F(3, 4)}, .n = {TL_SCALAR_FLOAT}, .d = {0.1}},
    {"an integer that does not fit", 0, .call = fill_number_call, .in = {IN(U8, DENSE, 5)}, .n = {TL_SCALAR_INT}, .d = {300}, .error = "value cannot be converted to type uint8 without overflow"},
    {"an integer that wraps", 0, .call = fill_number_call, .in = {IN(U8, DENSE, 5)}, .n = {TL_SCALAR_INT}, .d = {-255}},
    {"one that does not", 0, .call = fill_number_call, .in = {IN(U8, DENSE, 5)}, .n = {TL_SCALAR_INT}, .d = {-256}, .error = "value cannot be converted to type uint8 without overflow"},
    {"a float below the range", 0, .call = fill_number_call, .in = {IN(U8, DENSE, 5)}, .n = {TL_SCALAR_FLOAT}, .d = {-0.5}, .error = "value cannot be converted to type uint8 without overflow"},
    {"expanded", GRAD, .call = fill_expanded_call, .in = {F(4)}, .d = {1}},
    END};

CALL(unview_call) {
    struct attr_unview a;
    memset(&a, 0, sizeof a);
    a.rank = 2;
    a.shape[0] = s->n[0], a.shape[1] = s->n[1], a.offset = s->n[2], a.overlaps = s->n[5];
    a.stride[0] = s->n[3], a.stride[1] = s->n[4];
    return one(out, op_apply1(&op_unview, in[0], ATTR(a)));
}
const struct sample samples_unview[] = {
    {"a column", GRAD, .call = unview_call, .in = {F(3)}, .n = {3, 4, 1, 4}},
    {"every second row, backwards", GRAD, .call = unview_call, .in = {IN(FLOAT, PERMUTED, 2, 4)}, .n = {4, 4, 12, -8, 1}},
    {"windows that overlap", GRAD, .call = unview_call, .in = {F(4, 3)}, .n = {2, 4, 1, 1, 1, true}},
    {"a scalar", GRAD, .call = unview_call, .in = {SCALAR(FLOAT)}, .n = {2, 2, 3}},
    {"nothing into something", GRAD, .call = unview_call, .in = {F(0)}, .n = {2, 2, 0, 1}},
    {"by way of slice", GRAD | VIA_BACKWARD, .call = slice_call, .in = {F(5)}, .n = {0, 1, 4, 2}},
    {"large", LARGE | GRAD, .call = unview_call, .in = {F(200, 150)}, .n = {200, 301, 1, 301, 2}},
    END};

CALL(transfer_call) { return (void)s, one(out, tl_to(in[0], tl_device_find("meta:h200"))); }
CALL(transfer_back_call) {
    (void)s;
    return one(out, tl_to(tl_zeros(TL_SHAPE(2, 2), run_dtype, tl_device_find("meta")), tl_device_of(in[0])));
}
const struct sample samples_transfer[] = {
    {"to the device that is priced", NO_DATA, .call = transfer_call, .in = {F(3, 4)}},
    {"permuted: made dense first", NO_DATA, .call = transfer_call, .in = {IN(FLOAT, PERMUTED, 3, 4)}},
    {"nothing", NO_DATA, .call = transfer_call, .in = {F(0)}},
    {"from meta", CPU_ONLY | NO_DATA, .call = transfer_back_call, .in = {F(2)}, .error = "transfer: meta has no data to send to cpu"},
    END};

/* ---- collective.c ---- */

/* Of a process alone; tests/test_comm.c has several. */
static tl_tensor *gather_alone(tl_tensor *x) { return tl_all_gather(x, tl_comm_world()); }
static tl_tensor *exchange_alone(tl_tensor *x) { return tl_all_to_all(x, tl_comm_world()); }
static tl_tensor *broadcast_alone(tl_tensor *x) { return tl_broadcast(x, 0, tl_comm_world()); }
static tl_tensor *send_recv_alone(tl_tensor *x) { return tl_send_recv(x, 0, 0, tl_comm_world()); }
/* A process alone has nobody to send to, so these are priced; on a device that no test counts. */
static int pair_price(const struct sample *s, tl_tensor **in, tl_tensor **out, bool is_sent) {
    tl_scope scope = tl_scope_begin();
    tl_comm *comm = scope.depth ? tl_comm_price(0, 2) : NULL;
    tl_device *meta = tl_device_find("meta:t4");
    tl_dtype dtype = tl_dtype_of(in[0]);
    tl_tensor *x = comm && is_sent ? tl_empty((int)s->n[1], s->n + 2, dtype, meta) : NULL;
    bool ok = is_sent ? x && tl_send(x, (int)s->n[0], comm)
                      : comm && tl_recv((int)s->n[1], s->n + 2, dtype, meta, (int)s->n[0], comm);
    tl_comm_free(comm);
    if (scope.depth) tl_scope_end(scope);
    return ok ? one(out, in[0]) : 0;
}
CALL(send_price) { return pair_price(s, in, out, true); }
CALL(recv_price) { return pair_price(s, in, out, false); }
const struct sample samples_all_gather[] = {
    {"matrix", GRAD, .unary = gather_alone, .in = {F(3, 4)}},
    {"permuted: made dense first", GRAD, .unary = gather_alone, .in = {IN(FLOAT, PERMUTED, 3, 4)}},
    {"scalar: one row", GRAD, .unary = gather_alone, .in = {SCALAR(FLOAT)}},
    {"nothing", 0, .unary = gather_alone, .in = {F(0)}},
    END};
const struct sample samples_all_to_all[] = {
    {"matrix", GRAD, .unary = exchange_alone, .in = {F(3, 4)}},
    {"permuted: made dense first", GRAD, .unary = exchange_alone, .in = {IN(FLOAT, PERMUTED, 3, 4)}},
    {"scalar: one row", GRAD, .unary = exchange_alone, .in = {SCALAR(FLOAT)}},
    END};
const struct sample samples_broadcast[] = {
    {"matrix", 0, .unary = broadcast_alone, .in = {F(3, 4)}},
    {"scalar", 0, .unary = broadcast_alone, .in = {SCALAR(FLOAT)}},
    {"permuted: made dense first", 0, .unary = broadcast_alone, .in = {IN(FLOAT, PERMUTED, 3, 4)}},
    END};

const struct sample samples_send[] = {
    {"to another", NO_DATA, .call = send_price, .in = {F(2)}, .n = {1, 2, 3, 4}},
    {"to another, a vector", NO_DATA, .call = send_price, .in = {F(2)}, .n = {1, 1, 6}},
    {"to another, nothing", NO_DATA, .call = send_price, .in = {F(2)}, .n = {1, 1, 0}},
    {"to nobody", NO_DATA, .call = send_price, .in = {F(2)}, .n = {2, 1, 4}, .error = "send: there is no rank 2"},
    {"to itself", NO_DATA, .call = send_price, .in = {F(2)}, .n = {0, 1, 4}, .error = "send: rank 0 is this process"},
    END};
const struct sample samples_recv[] = {
    {"from another", NO_DATA, .call = recv_price, .in = {F(2)}, .n = {1, 2, 3, 4}},
    {"from another, a vector", NO_DATA, .call = recv_price, .in = {F(2)}, .n = {1, 1, 6}},
    {"from another, nothing", NO_DATA, .call = recv_price, .in = {F(2)}, .n = {1, 1, 0}},
    {"from itself", NO_DATA, .call = recv_price, .in = {F(2)}, .n = {0, 1, 4}, .error = "recv: rank 0 is this process"},
    {"from nobody", NO_DATA, .call = recv_price, .in = {F(2)}, .n = {2, 1, 4}, .error = "recv: there is no rank 2"},
    END};
const struct sample samples_send_recv[] = {
    {"a ring of one", GRAD, .unary = send_recv_alone, .in = {F(3, 4)}},
    {"permuted: made dense first", GRAD, .unary = send_recv_alone, .in = {IN(FLOAT, PERMUTED, 3, 4)}},
    {"scalar", GRAD, .unary = send_recv_alone, .in = {SCALAR(FLOAT)}},
    END};

/* ---- elementwise.c ---- */

/* The calls of every op of two operands, and its FLOPs per element. */
#define PAIR_CALLS(f, a_kind, flops_)                                                                              \
    {"same shape", GRAD, DT_ARITHMETIC, .binary = f, .in = {F(3, 4), IN(a_kind, DENSE, 3, 4)}, .flops = flops_},   \
    {"scalars", GRAD, DT_ARITHMETIC, .binary = f, .in = {SCALAR(FLOAT), SCALAR(a_kind)}, .flops = flops_},         \
    {"row against column", GRAD, DT_ARITHMETIC, .binary = f, .in = {F(3, 1), IN(a_kind, DENSE, 1, 4)}, .flops = flops_}, \
    {"vector against matrix", GRAD, DT_ARITHMETIC, .binary = f, .in = {F(4), IN(a_kind, DENSE, 2, 3, 4)}, .flops = flops_}, \
    {"size 0", GRAD, DT_ARITHMETIC, .binary = f, .in = {F(0, 4), IN(a_kind, DENSE, 4)}, .flops = flops_},          \
    {"permuted and sliced", GRAD, DT_ARITHMETIC, .binary = f, .in = {IN(FLOAT, PERMUTED, 3, 4), IN(a_kind, SLICED, 3, 4)}, .flops = flops_}, \
    {"reversed and expanded", GRAD, DT_ARITHMETIC, .binary = f, .in = {IN(FLOAT, REVERSED, 3, 4), IN(a_kind, EXPANDED, 3, 4)}, .flops = flops_}, \
    {"with integers", GRAD, .binary = f, .in = {F(3, 4), IN(U8, DENSE, 1, 4)}, .flops = flops_},                   \
    {"large, broadcast", LARGE | GRAD, .binary = f, .in = {F(257, 129), IN(a_kind, DENSE, 129)}, .flops = flops_}, \
    {"shapes that do not broadcast", 0, .binary = f, .in = {F(3, 4), F(3)}, .error = "must match the size of tensor b"}

CALL(add_in_place) { return (void)s, one(out, tl_add_(tl_clone(in[0]), in[1])); }
CALL(add_twin) { return (void)s, one(out, tl_add(in[0], in[1])); }
CALL(add_part_in_place) {
    (void)s;
    tl_tensor *x = tl_clone(in[0]);
    return tl_add_(tl_slice(x, 1, 0, TL_END, 2), in[1]) ? one(out, x) : 0;
}
CALL(add_self) { return (void)s, one(out, tl_add(in[0], in[0])); }
CALL(add_to_leaf) { return (void)s, one(out, tl_add_(tl_requires_grad(in[0], true), in[1])); }
CALL(add_shifted) { return (void)s, one(out, tl_add_(tl_slice(in[0], 0, 0, 3, 1), tl_slice(in[0], 0, 1, 4, 1))); }
const struct sample samples_add[] = {
    PAIR_CALLS(tl_add, FLOAT, 1),
    {"integers", 0, .binary = tl_add, .in = {IN(I64, DENSE, 3, 4), IN(I32, EXPANDED, 3, 4)}},
    {"bool and u8", 0, .binary = tl_add, .in = {IN(BOOL, DENSE, 5), IN(U8, DENSE, 5)}},
    {"to itself", GRAD, DT_ARITHMETIC, .call = add_self, .in = {F(3, 4)}},
    {"in place", GRAD, DT_ARITHMETIC, .call = add_in_place, .twin = add_twin, .in = {F(3, 4), F(4)}},
    {"in place, wider operand", GRAD, .call = add_in_place, .twin = add_twin, .in = {F(3, 4), IN(I32, DENSE, 3, 1)}},
    {"in place into a part", GRAD, DT_ARITHMETIC, .call = add_part_in_place, .in = {F(3, 5), F(3, 3)}},
    {"in place into a smaller shape", 0, .call = add_in_place, .in = {F(4), F(3, 4)}, .error = "doesn't match the broadcast shape"},
    {"in place into a leaf", 0, .call = add_to_leaf, .in = {F(4), F(4)}, .error = "a leaf Variable that requires grad is being used in an in-place operation"},
    {"in place from a shifted view of itself", 0, .call = add_shifted, .in = {K(4)}, .error = "some elements of the input tensor and the written-to tensor refer to a single memory location"},
    END};

CALL(sub_in_place) { return (void)s, one(out, tl_sub_(tl_clone(in[0]), in[1])); }
CALL(sub_twin) { return (void)s, one(out, tl_sub(in[0], in[1])); }
const struct sample samples_sub[] = {
    PAIR_CALLS(tl_sub, FLOAT, 1),
    {"integers", 0, .binary = tl_sub, .in = {IN(I16, PERMUTED, 3, 4), IN(I16, DENSE, 3, 4)}},
    {"in place", GRAD, DT_ARITHMETIC, .call = sub_in_place, .twin = sub_twin, .in = {F(3, 4), F(3, 1)}},
    END};

CALL(mul_in_place) { return (void)s, one(out, tl_mul_(tl_clone(in[0]), in[1])); }
CALL(mul_twin) { return (void)s, one(out, tl_mul(in[0], in[1])); }
CALL(mul_self) { return (void)s, one(out, tl_mul(in[0], in[0])); }
CALL(mul_self_in_place) {
    (void)s;
    tl_tensor *x = tl_clone(in[0]);
    return one(out, tl_mul_(x, x));
}
CALL(mul_after_save) { /* the saved operand changes before backward: must be caught */
    (void)s;
    tl_tensor *a = tl_clone(tl_requires_grad(in[0], true)), *y = tl_mul(a, a);
    tl_fill_(a, 1);
    return tl_backward(y, tl_ones_like(y), 0) ? one(out, y) : 0;
}
const struct sample samples_mul[] = {
    PAIR_CALLS(tl_mul, FLOAT, 1),
    {"integers", 0, .binary = tl_mul, .in = {IN(I32, SLICED, 3, 4), IN(U8, DENSE, 3, 4)}},
    {"b k l, k b l -> b", GRAD | SUM_ORDER, .call = einsum_call, .in = {F(3, 2, 2), IN(FLOAT, SLICED, 2, 3, 2)}, .dtypes = DT(TL_F32) | DT(TL_F64)},
    {"i, j -> j i", GRAD, .call = einsum_call, .in = {F(3), IN(FLOAT, REVERSED, 2)}},
    {"a b, b c -> a c", 0, .call = einsum_call, .in = {IN(I32, DENSE, 2, 3), IN(I64, PERMUTED, 3, 2)}},
    {"square", GRAD, DT_ARITHMETIC, .call = mul_self, .in = {F(3, 4)}},
    {"in place", GRAD, DT_ARITHMETIC, .call = mul_in_place, .twin = mul_twin, .in = {F(3, 4), K(3, 4)}},
    {"square in place", 0, DT_ARITHMETIC, .call = mul_self_in_place, .twin = mul_self, .in = {F(3, 4)}},
    {"a saved operand is changed", 0, .call = mul_after_save, .in = {F(3)}, .error = "has been modified by an inplace operation"},
    END};

CALL(div_in_place) { return (void)s, one(out, tl_div_(tl_clone(in[0]), in[1])); }
static tl_tensor *div_of_integers(tl_tensor *a, tl_tensor *b) { return tl_div(a, tl_affine(b, 2, 1)); }
CALL(div_twin) { return (void)s, one(out, tl_div(in[0], in[1])); }
const struct sample samples_div[] = {
    {"same shape", GRAD, DT_ARITHMETIC, .binary = tl_div, .in = {F(3, 4), F(3, 4)}, .flops = 1},
    {"scalars", GRAD, DT_ARITHMETIC, .binary = tl_div, .in = {SCALAR(FLOAT), SCALAR(POSITIVE)}},
    {"row against column", GRAD, DT_ARITHMETIC, .binary = tl_div, .in = {F(3, 1), IN(POSITIVE, DENSE, 1, 4)}},
    {"size 0", GRAD, DT_ARITHMETIC, .binary = tl_div, .in = {F(0, 4), F(4)}},
    {"permuted and expanded", GRAD, DT_ARITHMETIC, .binary = tl_div, .in = {IN(FLOAT, PERMUTED, 3, 4), IN(POSITIVE, EXPANDED, 3, 4)}},
    {"reversed by sliced", GRAD, DT_ARITHMETIC, .binary = tl_div, .in = {IN(FLOAT, REVERSED, 3, 4), IN(POSITIVE, SLICED, 3, 4)}},
    {"in place", GRAD, DT_ARITHMETIC, .call = div_in_place, .twin = div_twin, .in = {F(3, 4), K(4)}},
    {"large, broadcast", LARGE | GRAD, .binary = tl_div, .in = {F(257, 129), IN(POSITIVE, DENSE, 129)}},
    {"integers", 0, .binary = div_of_integers, .in = {IN(I32, DENSE, 3, 4), IN(I64, SLICED, 4)}},
    {"bool by u8", 0, .binary = div_of_integers, .in = {IN(BOOL, DENSE, 3), IN(U8, DENSE, 3)}},
    {"integers in place", 0, .call = div_in_place, .in = {IN(I32, DENSE, 3), IN(I32, DENSE, 3)}, .error = "result type Float can't be cast to the desired output type Int"},
    END};

CALL(affine_call) { return one(out, tl_affine(in[0], s->d[0], s->d[1])); }
CALL(affine_in_place) { return one(out, tl_affine_(tl_clone(in[0]), s->d[0], s->d[1])); }
CALL(scale_call) { return one(out, tl_scale(in[0], s->d[0])); }
const struct sample samples_affine[] = {
    {"both", GRAD, DT_ARITHMETIC, .call = affine_call, .in = {F(3, 4)}, .d = {0.5, -1.25}},
    {"scale alone", GRAD, DT_ARITHMETIC, .call = scale_call, .in = {IN(FLOAT, PERMUTED, 3, 4)}, .d = {3}},
    {"of a scalar", GRAD, DT_ARITHMETIC, .call = affine_call, .in = {SCALAR(FLOAT)}, .d = {2, 1}},
    {"size 0", GRAD, DT_ARITHMETIC, .call = affine_call, .in = {F(0)}, .d = {2, 1}},
    {"expanded", GRAD, DT_ARITHMETIC, .call = affine_call, .in = {IN(FLOAT, EXPANDED, 3, 4)}, .d = {2, 1}},
    {"integers", 0, .call = affine_call, .in = {IN(I32, DENSE, 5)}, .d = {2, 1}},
    {"in place", GRAD, DT_ARITHMETIC, .call = affine_in_place, .twin = affine_call, .in = {F(3, 4)}, .d = {0.5, 1}},
    {"large", LARGE | GRAD, .call = affine_call, .in = {F(40001)}, .d = {0.5, 1}},
    END};

/* The calls of every op of one operand, and its FLOPs per element. */
#define UNARY_CALLS(f, kind_, flops_)                                                                          \
    {"matrix", GRAD, DT_ARITHMETIC, .unary = f, .in = {IN(kind_, DENSE, 3, 5)}, .flops = flops_},              \
    {"scalar", GRAD, DT_ARITHMETIC, .unary = f, .in = {SCALAR(kind_)}, .flops = flops_},                       \
    {"size 0", GRAD, DT_ARITHMETIC, .unary = f, .in = {IN(kind_, DENSE, 3, 0)}, .flops = flops_},              \
    {"size 1", GRAD, DT_ARITHMETIC, .unary = f, .in = {IN(kind_, DENSE, 1, 1, 1)}, .flops = flops_},           \
    {"permuted", GRAD, DT_ARITHMETIC, .unary = f, .in = {IN(kind_, PERMUTED, 2, 3, 4)}, .flops = flops_},      \
    {"sliced", GRAD, DT_ARITHMETIC, .unary = f, .in = {IN(kind_, SLICED, 3, 5)}, .flops = flops_},             \
    {"reversed", GRAD, DT_ARITHMETIC, .unary = f, .in = {IN(kind_, REVERSED, 3, 5)}, .flops = flops_},         \
    {"expanded", GRAD, DT_ARITHMETIC, .unary = f, .in = {IN(kind_, EXPANDED, 3, 5)}, .flops = flops_},         \
    {"large", LARGE | GRAD, .unary = f, .in = {IN(kind_, DENSE, 33, 1031)}, .flops = flops_}
/* The in-place form of one operand. */
#define TWIN_OF(name)                                                                     \
    static tl_tensor *name##_in_place(tl_tensor *x) { return tl_##name##_(tl_clone(x)); } \
    CALL(name##_twin) { return (void)s, one(out, tl_##name(in[0])); }
#define IN_PLACE_CALLS(name, kind_) \
    {"in place", GRAD, DT_ARITHMETIC, .unary = name##_in_place, .twin = name##_twin, .in = {IN(kind_, DENSE, 3, 4)}}, \
    {"in place, strided", GRAD, DT_ARITHMETIC, .unary = name##_in_place, .twin = name##_twin, .in = {IN(kind_, PERMUTED, 3, 4)}}
/* samples_NAME of an op tl_NAME(x) with an in-place form tl_NAME_(x): the kind of values it takes, its FLOPs per element, and further
 * calls. */
#define UNARY_SAMPLES(name, kind_, flops_, ...) \
    TWIN_OF(name)                               \
    const struct sample samples_##name[] = {UNARY_CALLS(tl_##name, kind_, flops_), IN_PLACE_CALLS(name, kind_), __VA_ARGS__, END};
#define NO_INTEGERS(f) \
    {"integers", 0, .unary = f, .in = {IN(I32, DENSE, 3)}, .error = "not implemented for int32"}
#define INTEGERS_TO_F32(f) \
    {"integers", 0, .unary = f, .in = {IN(I32, SLICED, 3, 4)}}, {"bool", 0, .unary = f, .in = {IN(BOOL, DENSE, 5)}}
#define NO_INTEGERS_IN_PLACE(name) \
    {"integers in place", 0, .unary = name##_in_place, .in = {IN(I32, DENSE, 3)}, .error = "result type Float can't be cast to the desired output type Int"}
#define NO_BOOL(f) {"bool", 0, .unary = f, .in = {IN(BOOL, DENSE, 3)}, .error = "not implemented for bool"}
#define INTEGERS(f) {"integers", 0, .unary = f, .in = {IN(I64, REVERSED, 3, 4)}}, {"of u8", 0, .unary = f, .in = {IN(U8, SLICED, 3, 4)}}

/* FLOPs: an elementary function is one. */
UNARY_SAMPLES(neg, FLOAT, 1, {"integers", 0, .unary = tl_neg, .in = {IN(I64, SLICED, 3, 4)}})
UNARY_SAMPLES(abs, FLOAT, 1, INTEGERS(tl_abs), NO_BOOL(tl_abs))
UNARY_SAMPLES(sign, FLOAT, 1, INTEGERS(tl_sign), {"bool", 0, .unary = tl_sign, .in = {IN(BOOL, DENSE, 5)}})
UNARY_SAMPLES(floor, FLOAT, 1, INTEGERS(tl_floor), NO_BOOL(tl_floor))
UNARY_SAMPLES(ceil, FLOAT, 1, INTEGERS(tl_ceil), NO_BOOL(tl_ceil))
UNARY_SAMPLES(round, FLOAT, 1, INTEGERS(tl_round), NO_BOOL(tl_round))
UNARY_SAMPLES(trunc, FLOAT, 1, INTEGERS(tl_trunc), NO_BOOL(tl_trunc))

UNARY_SAMPLES(exp, FLOAT, 1, INTEGERS_TO_F32(tl_exp), NO_INTEGERS_IN_PLACE(exp))
UNARY_SAMPLES(exp2, FLOAT, 1, INTEGERS_TO_F32(tl_exp2), NO_INTEGERS_IN_PLACE(exp2))
UNARY_SAMPLES(expm1, FLOAT, 1, INTEGERS_TO_F32(tl_expm1), NO_INTEGERS_IN_PLACE(expm1))
UNARY_SAMPLES(log, POSITIVE, 1, INTEGERS_TO_F32(tl_log), NO_INTEGERS_IN_PLACE(log))
UNARY_SAMPLES(log2, POSITIVE, 1, {"bool", 0, .unary = tl_log2, .in = {IN(BOOL, DENSE, 5)}})
UNARY_SAMPLES(log1p, POSITIVE, 1, {"of u8", 0, .unary = tl_log1p, .in = {IN(U8, DENSE, 7)}}, NO_INTEGERS_IN_PLACE(log1p))
UNARY_SAMPLES(sqrt, POSITIVE, 1, INTEGERS_TO_F32(tl_sqrt), NO_INTEGERS_IN_PLACE(sqrt))
UNARY_SAMPLES(rsqrt, POSITIVE, 2, {"of u8", 0, .unary = tl_rsqrt, .in = {IN(U8, DENSE, 7)}}) /* square root, divide */
UNARY_SAMPLES(sin, FLOAT, 1, INTEGERS_TO_F32(tl_sin), NO_INTEGERS_IN_PLACE(sin))
UNARY_SAMPLES(cos, FLOAT, 1, INTEGERS_TO_F32(tl_cos), NO_INTEGERS_IN_PLACE(cos))
UNARY_SAMPLES(tanh, FLOAT, 1, INTEGERS_TO_F32(tl_tanh), NO_INTEGERS_IN_PLACE(tanh))
UNARY_SAMPLES(sigmoid, FLOAT, 4, INTEGERS_TO_F32(tl_sigmoid), NO_INTEGERS_IN_PLACE(sigmoid)) /* negate, exp, add, divide */
UNARY_SAMPLES(erf, FLOAT, 1, INTEGERS_TO_F32(tl_erf), NO_INTEGERS_IN_PLACE(erf))
UNARY_SAMPLES(erfc, FLOAT, 1, INTEGERS_TO_F32(tl_erfc), NO_INTEGERS_IN_PLACE(erfc))
UNARY_SAMPLES(sinh, FLOAT, 1, INTEGERS_TO_F32(tl_sinh), NO_INTEGERS_IN_PLACE(sinh))
UNARY_SAMPLES(cosh, FLOAT, 1, INTEGERS_TO_F32(tl_cosh), NO_INTEGERS_IN_PLACE(cosh))
UNARY_SAMPLES(atan, FLOAT, 1, INTEGERS_TO_F32(tl_atan), NO_INTEGERS_IN_PLACE(atan))

UNARY_SAMPLES(relu, FLOAT, 1, INTEGERS(tl_relu), NO_BOOL(tl_relu))
UNARY_SAMPLES(gelu, FLOAT, 9, NO_INTEGERS(tl_gelu)) /* 0.5 x (1 + tanh(c (x + 0.044715 x x x))): 6 products, 2 sums, tanh */
UNARY_SAMPLES(gelu_erf, FLOAT, 5, NO_INTEGERS(tl_gelu_erf)) /* 0.5 x (1 + erf(x / sqrt 2)): 3 products, sum, erf */
UNARY_SAMPLES(silu, FLOAT, 4, NO_INTEGERS(tl_silu)) /* x / (1 + e^-x): negate, exp, add, divide */

/* Slopes: g f'(x), which gradients reach, and which are differentiated too. */
static tl_tensor *gelu_grad(tl_tensor *x, tl_tensor *g) { return op_apply2(&op_gelu_grad, x, g, NULL, 0); }
static tl_tensor *gelu_erf_grad(tl_tensor *x, tl_tensor *g) { return op_apply2(&op_gelu_erf_grad, x, g, NULL, 0); }
static tl_tensor *silu_grad(tl_tensor *x, tl_tensor *g) { return op_apply2(&op_silu_grad, x, g, NULL, 0); }
static tl_tensor *tanh_grad(tl_tensor *y, tl_tensor *g) { return op_apply2(&op_tanh_grad, y, g, NULL, 0); }
static tl_tensor *sigmoid_grad(tl_tensor *y, tl_tensor *g) { return op_apply2(&op_sigmoid_grad, y, g, NULL, 0); }
static tl_tensor *relu_grad(tl_tensor *y, tl_tensor *g) { return op_apply2(&op_relu_grad, y, g, NULL, 0); }
#define SLOPE_CALLS(f, forward, flops_)                                                                             \
    {"matrix", 0, DT_ARITHMETIC, .binary = f, .in = {K(3, 4), K(3, 4)}, .flops = flops_},                           \
    {"scalars", 0, DT_ARITHMETIC, .binary = f, .in = {SCALAR(CONSTANT), SCALAR(CONSTANT)}, .flops = flops_},        \
    {"size 0", 0, DT_ARITHMETIC, .binary = f, .in = {K(0), K(0)}, .flops = flops_},                                 \
    {"permuted and expanded", 0, DT_ARITHMETIC, .binary = f, .in = {IN(CONSTANT, PERMUTED, 3, 4), IN(CONSTANT, EXPANDED, 3, 4)}, .flops = flops_}, \
    {"by way of backward", GRAD | VIA_BACKWARD, DT_ARITHMETIC, .unary = forward, .in = {F(4, 3)}},                  \
    {"large", LARGE, .binary = f, .in = {K(33, 1031), K(33, 1031)}, .flops = flops_},                               \
    {"its own gradient", GRAD, .binary = f, .in = {F(3, 4), IN(FLOAT, SLICED, 3, 4)}, .flops = flops_},             \
    {"its own gradient, strided", GRAD, .binary = f, .in = {IN(FLOAT, SLICED, 3, 4), IN(FLOAT, EXPANDED, 3, 4)}, .flops = flops_}, \
    {"integers", 0, .binary = f, .in = {IN(I32, DENSE, 3), IN(I32, DENSE, 3)}, .error = "not implemented for integers"}
/* u = c (x + 0.044715 x x x): 5; t = tanh u: 1; 1 - t t: 2; u' = c (1 + 0.134145 x x): 4; g (0.5 (1 + t) + 0.5 x (1 - t t) u'): 7 */
const struct sample samples_gelu_grad[] = {SLOPE_CALLS(gelu_grad, tl_gelu, 19), END};
/* Phi: 4; phi = c e^(-x x / 2): 4; g (Phi + x phi): 3 */
const struct sample samples_gelu_erf_grad[] = {SLOPE_CALLS(gelu_erf_grad, tl_gelu_erf, 11), END};
/* s = sigmoid x: 4; g s (1 + x (1 - s)): 5 */
const struct sample samples_silu_grad[] = {SLOPE_CALLS(silu_grad, tl_silu, 9), END};
/* g (1 - y) (1 + y), g y (1 - y), and g where y > 0 */
const struct sample samples_tanh_grad[] = {SLOPE_CALLS(tanh_grad, tl_tanh, 4), END};
const struct sample samples_sigmoid_grad[] = {SLOPE_CALLS(sigmoid_grad, tl_sigmoid, 3), END};
const struct sample samples_relu_grad[] = {SLOPE_CALLS(relu_grad, tl_relu, 1), END};

CALL(compare_call) { return one(out, tl_cmp(in[0], (tl_compare)s->n[0], in[1])); }
const struct sample samples_compare[] = {
    {"equal", 0, DT_ARITHMETIC, .call = compare_call, .in = {F(3, 4), F(3, 4)}, .n = {TL_EQ}},
    {"not equal, integers", 0, .call = compare_call, .in = {IN(I64, DENSE, 8), IN(I16, DENSE, 8)}, .n = {TL_NE}},
    {"less, broadcast", 0, DT_ARITHMETIC, .call = compare_call, .in = {F(3, 1), F(4)}, .n = {TL_LT}},
    {"at most, scalars", 0, DT_ARITHMETIC, .call = compare_call, .in = {SCALAR(FLOAT), SCALAR(FLOAT)}, .n = {TL_LE}},
    {"greater, strided", 0, DT_ARITHMETIC, .call = compare_call, .in = {IN(FLOAT, REVERSED, 3, 4), IN(FLOAT, EXPANDED, 3, 4)}, .n = {TL_GT}},
    {"at least, size 0", 0, DT_ARITHMETIC, .call = compare_call, .in = {F(0), F(1)}, .n = {TL_GE}},
    {"floats with integers", 0, .call = compare_call, .in = {F(7), IN(I32, DENSE, 7)}, .n = {TL_GE}},
    {"large", LARGE, .call = compare_call, .in = {F(40001), F(40001)}, .n = {TL_LT}},
    {"no broadcast", 0, .call = compare_call, .in = {F(3), F(4)}, .error = "must match the size of tensor b"},
    END};

CALL(where_call) { return (void)s, one(out, tl_where(in[0], in[1], in[2])); }
CALL(where_integer_call) { return one(out, tl_where_scalar(in[0], in[1], tl_scalar_int((int64_t)s->d[0]))); }
CALL(where_number_call) { return (void)s, one(out, tl_where_scalar(in[0], in[1], tl_scalar_float(s->d[0]))); }
/* index.c's masks, join.c's triangles */
CALL(masked_fill_call) { return one(out, tl_masked_fill(in[0], in[1], s->d[0])); }
CALL(masked_fill_in_place) { return one(out, tl_masked_fill_(tl_clone(in[0]), in[1], s->d[0])); }
CALL(triangle_call) { return one(out, s->n[1] ? tl_triu(in[0], s->n[0]) : tl_tril(in[0], s->n[0])); }
static int put_call(const struct sample *s, tl_tensor **in, tl_tensor **out, bool in_place);
CALL(mask_put_call) { return put_call(s, in, out, false); }
CALL(mask_put_in_place) { return put_call(s, in, out, true); }
const struct sample samples_where[] = {
    {"one value by a mask", GRAD, DT_ARITHMETIC, .call = mask_put_call, .in = {F(2, 3, 4), SCALAR(FLOAT), IN(BOOL, DENSE, 2, 3)}, .n = {1, 0}},
    {"one value by a mask of inner axes", GRAD, .call = mask_put_call, .in = {IN(FLOAT, PERMUTED, 2, 3, 4, 2), F(1, 1), IN(BOOL, PERMUTED, 3, 4)}, .n = {1, 1}},
    {"one value added by a mask", GRAD, .call = mask_put_call, .in = {F(2, 3, 4), F(1), IN(BOOL, DENSE, 4)}, .n = {1, -1, 0, 0, 0, true}},
    {"one value by a mask, in place", GRAD, .call = mask_put_in_place, .twin = mask_put_call, .in = {F(3, 4), SCALAR(FLOAT), IN(BOOL, SLICED, 3)}, .n = {1, 0}},
    {"one integer added by a mask", 0, .call = mask_put_call, .in = {IN(I32, DENSE, 3, 4), SCALAR(I32), IN(BOOL, DENSE, 3, 4)}, .n = {1, 0, 0, 0, 0, true}},
    {"masked_fill", GRAD, .call = masked_fill_call, .in = {F(2, 3, 4), IN(BOOL, DENSE, 3, 1)}, .d = {-0.5}},
    {"masked_fill in place", GRAD, .call = masked_fill_in_place, .twin = masked_fill_call, .in = {F(3, 4), IN(BOOL, PERMUTED, 3, 4)}, .d = {-0.5}},
    {"triu", GRAD, .call = triangle_call, .in = {F(2, 3, 4)}, .n = {1, true}},
    {"tril", GRAD, .call = triangle_call, .in = {IN(FLOAT, REVERSED, 4, 3)}, .n = {-1, false}},
    {"tril far away", GRAD, .call = triangle_call, .in = {F(3, 3)}, .n = {INT64_MIN, false}},
    {"triu of nothing", GRAD, .call = triangle_call, .in = {F(0, 3)}, .n = {0, true}},
    {"triu of integers", 0, .call = triangle_call, .in = {IN(I16, DENSE, 4, 4)}, .n = {0, true}},
    {"triu of a vector", 0, .call = triangle_call, .in = {F(4)}, .n = {0, true}, .error = "triu: input tensor must have at least 2 dimensions"},
    {"same shape", GRAD, DT_ARITHMETIC, .call = where_call, .in = {IN(BOOL, DENSE, 3, 4), F(3, 4), F(3, 4)}},
    {"all broadcast", GRAD, DT_ARITHMETIC, .call = where_call, .in = {IN(BOOL, DENSE, 3, 1), F(4), SCALAR(FLOAT)}},
    {"scalars", GRAD, DT_ARITHMETIC, .call = where_call, .in = {SCALAR(BOOL), SCALAR(FLOAT), SCALAR(FLOAT)}},
    {"size 0", GRAD, DT_ARITHMETIC, .call = where_call, .in = {IN(BOOL, DENSE, 0), F(0), F(1)}},
    {"strided", GRAD, DT_ARITHMETIC, .call = where_call, .in = {IN(BOOL, PERMUTED, 3, 4), IN(FLOAT, SLICED, 3, 4), IN(FLOAT, EXPANDED, 3, 4)}},
    {"integers", 0, .call = where_call, .in = {IN(BOOL, DENSE, 6), IN(I64, DENSE, 6), IN(I32, DENSE, 6)}},
    {"with a number", GRAD, .call = where_number_call, .in = {IN(BOOL, DENSE, 3, 4), F(3, 4)}, .d = {0.5}},
    {"u8 with an integer that wraps", 0, .call = where_integer_call, .in = {IN(BOOL, DENSE, 3, 4), IN(U8, DENSE, 4)}, .d = {-1}},
    {"u8 with one that does not", 0, .call = where_integer_call, .in = {IN(BOOL, DENSE, 3, 4), IN(U8, DENSE, 4)}, .d = {300}, .error = "without overflow"},
    {"integers with a number", 0, .call = where_number_call, .in = {IN(BOOL, DENSE, 3, 4), IN(I32, DENSE, 4)}, .d = {0.5}},
    {"large", LARGE | GRAD, .call = where_call, .in = {IN(BOOL, DENSE, 257, 129), F(257, 129), F(129)}},
    {"condition is no bool", 0, .call = where_call, .in = {IN(U8, DENSE, 3), F(3), F(3)}, .error = "expected condition to be a boolean tensor"},
    END};

/* Bases well away from 0, where a power's derivatives explode; divisors larger than the dividend, whose quotient has no step nearby. */
static tl_tensor *pow_of(tl_tensor *a, tl_tensor *b) { return tl_pow(tl_affine(a, 0.5, 2), b); }
static tl_tensor *remainder_of(tl_tensor *a, tl_tensor *b) { return tl_remainder(a, tl_affine(b, 0.5, 3.25)); }
#define PAIRS(f, n_, flops_)                                                                                                           \
    {"same shape", GRAD, .binary = f, .in = {F(3, 4), F(3, 4)}, .roundings = n_, .flops = flops_},                                              \
    {"scalars", GRAD, .binary = f, .in = {SCALAR(FLOAT), SCALAR(FLOAT)}, .roundings = n_},                                     \
    {"row against column", GRAD, .binary = f, .in = {F(3, 1), F(1, 4)}, .roundings = n_},                                      \
    {"size 0", GRAD, .binary = f, .in = {F(0, 4), F(4)}, .roundings = n_},                                                     \
    {"permuted and sliced", GRAD, .binary = f, .in = {IN(FLOAT, PERMUTED, 3, 4), IN(FLOAT, SLICED, 3, 4)}, .roundings = n_},   \
    {"reversed and expanded", GRAD, .binary = f, .in = {IN(FLOAT, REVERSED, 3, 4), IN(FLOAT, EXPANDED, 3, 4)}, .roundings = n_}, \
    {"large, broadcast", LARGE | GRAD, .binary = f, .in = {F(257, 129), F(129)}, .roundings = n_},                             \
    {"shapes that do not broadcast", 0, .binary = f, .in = {F(3, 4), F(3)}, .error = "must match the size of tensor b"}
CALL(pow_in_place) { return (void)s, one(out, tl_pow_(tl_clone(in[0]), in[1])); }
CALL(pow_twin) { return (void)s, one(out, tl_pow(in[0], in[1])); }
const struct sample samples_pow[] = {
    PAIRS(pow_of, 8, 1),
    {"plain", GRAD, DT_ARITHMETIC, .binary = tl_pow, .in = {IN(POSITIVE, DENSE, 3, 4), K(3, 4)}},
    {"of negative numbers", 0, .binary = tl_pow, .in = {F(3, 4), IN(I32, DENSE, 4)}},
    {"integers", 0, .binary = tl_pow, .in = {IN(I64, SLICED, 3, 4), IN(U8, DENSE, 3, 4)}},
    {"negative powers of integers", 0, .binary = tl_pow, .in = {IN(I32, DENSE, 9), IN(I32, DENSE, 9)}},
    {"in place", GRAD, DT_ARITHMETIC, .call = pow_in_place, .twin = pow_twin, .in = {IN(POSITIVE, DENSE, 3, 4), K(4)}},
    {"in place, a float into integers", 0, .call = pow_in_place, .in = {IN(I32, DENSE, 3), F(3)}, .error = "can't be cast to the desired output type Int"},
    {"bool", 0, .binary = tl_pow, .in = {IN(BOOL, DENSE, 3), IN(BOOL, DENSE, 3)}, .error = "not implemented for bool"},
    END};
static tl_tensor *remainder_by_zero(tl_tensor *x) { return tl_remainder(x, tl_zeros(TL_SCALAR, TL_I32, NULL)); }
/* by -2, -1, 0 */
static tl_tensor *remainder_by_zero_in_place(tl_tensor *x) {
    tl_tensor *divisor = tl_arange(-2, 1, 3, TL_I32, NULL);
    return tl_remainder_(tl_clone(x), divisor);
}
CALL(remainder_in_place) { return (void)s, one(out, tl_remainder_(tl_clone(in[0]), in[1])); }
CALL(remainder_twin) { return (void)s, one(out, tl_remainder(in[0], in[1])); }
static tl_tensor *remainder_of_integers(tl_tensor *a, tl_tensor *b) { return tl_remainder(a, tl_affine(b, 2, 1)); }
const struct sample samples_remainder[] = {
    PAIRS(remainder_of, 4, 4), /* divide, floor, product, subtract */
    {"integers of both signs", 0, .binary = remainder_of_integers, .in = {IN(I64, PERMUTED, 5, 4), IN(I16, DENSE, 4)}},
    {"in place", GRAD, .call = remainder_in_place, .twin = remainder_twin, .in = {F(3, 4), IN(POSITIVE, DENSE, 3, 1)}},
    {"integers by 0", CPU_ONLY, .unary = remainder_by_zero, .in = {IN(I32, DENSE, 3)}, .error = "ZeroDivisionError"},
    {"integers by 0 in the end, in place", CPU_ONLY, .unary = remainder_by_zero_in_place, .in = {IN(I32, DENSE, 4, 3)}, .error = "ZeroDivisionError"},
    {"bool beside integers", 0, .binary = remainder_of_integers, .in = {IN(BOOL, DENSE, 5, 4), IN(I16, DENSE, 4)}},
    {"bool", 0, .binary = tl_remainder, .in = {IN(BOOL, DENSE, 3), IN(BOOL, DENSE, 3)}, .error = "not implemented for bool"},
    END};
const struct sample samples_minimum[] = {
    PAIR_CALLS(tl_minimum, FLOAT, 1), {"integers", 0, .binary = tl_minimum, .in = {IN(I64, DENSE, 3, 4), IN(I32, EXPANDED, 3, 4)}},
    {"bool", 0, .binary = tl_minimum, .in = {IN(BOOL, DENSE, 5), IN(BOOL, DENSE, 5)}}, END};
const struct sample samples_maximum[] = {
    PAIR_CALLS(tl_maximum, FLOAT, 1), {"integers", 0, .binary = tl_maximum, .in = {IN(I16, SLICED, 3, 4), IN(U8, DENSE, 4)}},
    {"bool", 0, .binary = tl_maximum, .in = {IN(BOOL, DENSE, 5), IN(BOOL, DENSE, 5)}}, END};

#define LOGIC(f)                                                                                                     \
    {"floats", 0, DT_ARITHMETIC, .binary = f, .in = {F(3, 4), F(4)}, .flops = 1},                                                \
    {"integers with floats", 0, DT_ARITHMETIC, .binary = f, .in = {IN(I64, DENSE, 5, 1), F(4)}},                     \
    {"bool, strided", 0, .binary = f, .in = {IN(BOOL, PERMUTED, 3, 4), IN(BOOL, EXPANDED, 3, 4)}},                   \
    {"u8 and i16, sliced", 0, .binary = f, .in = {IN(U8, SLICED, 3, 4), IN(I16, REVERSED, 3, 4)}},                   \
    {"scalars", 0, .binary = f, .in = {SCALAR(BOOL), SCALAR(I32)}},                                                  \
    {"size 0", 0, .binary = f, .in = {IN(BOOL, DENSE, 0), IN(BOOL, DENSE, 1)}},                                      \
    {"large", LARGE, .binary = f, .in = {IN(BOOL, DENSE, 40001), IN(BOOL, DENSE, 40001)}},                           \
    {"no broadcast", 0, .binary = f, .in = {IN(BOOL, DENSE, 3), IN(BOOL, DENSE, 4)}, .error = "must match the size of tensor b"}
const struct sample samples_logical_and[] = {LOGIC(tl_logical_and), END};
const struct sample samples_logical_or[] = {LOGIC(tl_logical_or), END};
const struct sample samples_logical_xor[] = {LOGIC(tl_logical_xor), END};

CALL(atan2_in_place) { return (void)s, one(out, tl_atan2_(tl_clone(in[0]), in[1])); }
CALL(atan2_twin) { return (void)s, one(out, tl_atan2(in[0], in[1])); }
const struct sample samples_atan2[] = {
    PAIR_CALLS(tl_atan2, POSITIVE, 1), {"all quarters", GRAD, .binary = tl_atan2, .in = {F(5, 4), F(5, 4)}, .flops = 1},
    {"in place", GRAD, .call = atan2_in_place, .twin = atan2_twin, .in = {F(3, 4), IN(POSITIVE, DENSE, 3, 1)}},
    {"integers", 0, .binary = tl_atan2, .in = {IN(I64, DENSE, 3, 4), IN(I32, EXPANDED, 3, 4)}}, END};

#define BITS(f)                                                                                                        \
    {"integers of both signs", 0, .binary = f, .in = {IN(I64, PERMUTED, 5, 4), IN(I64, DENSE, 4)}, .flops = 1},        \
    {"two widths", 0, .binary = f, .in = {IN(I32, SLICED, 3, 4), IN(U8, DENSE, 4)}},                                   \
    {"a scalar", 0, .binary = f, .in = {IN(I16, REVERSED, 3, 4), SCALAR(I32)}},                                        \
    {"size 0", 0, .binary = f, .in = {IN(I32, DENSE, 0), IN(I32, DENSE, 1)}},                                          \
    {"large", LARGE, .binary = f, .in = {IN(I32, DENSE, 40001), IN(I32, DENSE, 40001)}},                               \
    {"floats", 0, .binary = f, .in = {IN(I32, DENSE, 3), F(3)}, .error = "not implemented for floats"}
const struct sample samples_bitwise_and[] = {BITS(tl_bitwise_and), END};
const struct sample samples_bitwise_or[] = {BITS(tl_bitwise_or), END};
const struct sample samples_bitwise_xor[] = {BITS(tl_bitwise_xor), END};
const struct sample samples_bitwise_left_shift[] = {BITS(tl_bitwise_left_shift), END};
const struct sample samples_bitwise_right_shift[] = {BITS(tl_bitwise_right_shift), END};

/* Values with NaN and infinity among them. */
static tl_tensor *odd_ones(tl_tensor *x) { return tl_div(tl_floor(x), tl_trunc(x)); }
static tl_tensor *isnan_of_odd_ones(tl_tensor *x) { return tl_isnan(odd_ones(x)); }
static tl_tensor *isfinite_of_odd_ones(tl_tensor *x) { return tl_isfinite(odd_ones(x)); }
#define TRUTH(f)                                                                  \
    {"matrix", 0, DT_ARITHMETIC, .unary = f, .in = {K(3, 5)}, .flops = 1},                   \
    {"scalar", 0, DT_ARITHMETIC, .unary = f, .in = {SCALAR(CONSTANT)}},           \
    {"size 0", 0, .unary = f, .in = {K(3, 0)}},                                   \
    {"permuted", 0, .unary = f, .in = {IN(CONSTANT, PERMUTED, 2, 3, 4)}},         \
    {"reversed", 0, .unary = f, .in = {IN(CONSTANT, REVERSED, 3, 5)}},            \
    {"expanded", 0, .unary = f, .in = {IN(CONSTANT, EXPANDED, 3, 5)}},            \
    {"integers", 0, .unary = f, .in = {IN(I64, SLICED, 3, 5)}},                   \
    {"bool", 0, .unary = f, .in = {IN(BOOL, DENSE, 7)}},                          \
    {"large", LARGE, .unary = f, .in = {K(33, 1031)}}
const struct sample samples_logical_not[] = {TRUTH(tl_logical_not), END};
const struct sample samples_isnan[] = {TRUTH(tl_isnan), {"some are", 0, .unary = isnan_of_odd_ones, .in = {K(9, 9)}}, END};
const struct sample samples_isfinite[] = {TRUTH(tl_isfinite), {"some are not", 0, .unary = isfinite_of_odd_ones, .in = {K(9, 9)}}, END};

static tl_tensor *leaky_relu(tl_tensor *x) { return tl_leaky_relu(x, 0.125); }
static tl_tensor *leaky_relu_in_place(tl_tensor *x) { return tl_leaky_relu_(tl_clone(x), 0.125); }
CALL(leaky_relu_twin) { return (void)s, one(out, leaky_relu(in[0])); }
const struct sample samples_leaky_relu[] = {
    UNARY_CALLS(leaky_relu, FLOAT, 2), IN_PLACE_CALLS(leaky_relu, FLOAT), NO_INTEGERS(leaky_relu), END}; /* comparison, product */
static tl_tensor *softplus(tl_tensor *x) { return tl_softplus(x, 1, 20); }
static tl_tensor *softplus_steep(tl_tensor *x) { return tl_softplus(x, 8, 4); }
const struct sample samples_softplus[] = {
    UNARY_CALLS(softplus, FLOAT, 4), /* product, exp, log, divide */
    {"over the threshold", GRAD | ROUNDS, .unary = softplus_steep, .in = {F(3, 5)}}, NO_INTEGERS(softplus), END};

/* ---- scalar.c ---- */

/* The number of a sample: n[0] says its kind, d[0] its value. */
static tl_scalar number(const struct sample *s) {
    return s->n[0] == TL_SCALAR_FLOAT ? tl_scalar_float(s->d[0]) : s->n[0] == TL_SCALAR_INT ? tl_scalar_int((int64_t)s->d[0]) : tl_scalar_bool(s->d[0] != 0);
}
#define FLOATING(v) .n = {TL_SCALAR_FLOAT}, .d = {v}
#define WHOLE(v) .n = {TL_SCALAR_INT}, .d = {v}
#define TRUE_OR_FALSE(v) .n = {TL_SCALAR_BOOL}, .d = {v}
#define NUMBER_CALL(name)                                                  \
    CALL(name##_call) { return one(out, tl_##name(in[0], number(s))); }
#define NUMBER_CALLS(name)                                                 \
    NUMBER_CALL(name)                                                      \
    CALL(name##_in_place) { return one(out, tl_##name##_(tl_clone(in[0]), number(s))); }
#define NUMBERS(f, kind_, v, flops_)                                                                             \
    {"matrix", GRAD, .call = f, .in = {IN(kind_, DENSE, 3, 5)}, FLOATING(v), .flops = flops_},                            \
    {"scalar", GRAD, .call = f, .in = {SCALAR(kind_)}, FLOATING(v)},                                     \
    {"size 0", GRAD, .call = f, .in = {IN(kind_, DENSE, 3, 0)}, FLOATING(v)},                            \
    {"an integer", GRAD, .call = f, .in = {IN(kind_, PERMUTED, 2, 3, 4)}, WHOLE(2)},                     \
    {"sliced", GRAD, .call = f, .in = {IN(kind_, SLICED, 3, 5)}, FLOATING(v)},                           \
    {"reversed", GRAD, .call = f, .in = {IN(kind_, REVERSED, 3, 5)}, FLOATING(v)},                       \
    {"expanded", GRAD, .call = f, .in = {IN(kind_, EXPANDED, 3, 5)}, FLOATING(v)},                       \
    {"large", LARGE | GRAD, .call = f, .in = {IN(kind_, DENSE, 33, 1031)}, FLOATING(v)},                 \
    {"integers, a float", 0, .call = f, .in = {IN(I32, DENSE, 7)}, FLOATING(2.5)},                       \
    {"integers, an integer", 0, .call = f, .in = {IN(U8, SLICED, 3, 5)}, WHOLE(3)}
NUMBER_CALLS(add_scalar)
NUMBER_CALLS(sub_scalar)
NUMBER_CALLS(mul_scalar)
NUMBER_CALLS(div_scalar)
NUMBER_CALLS(pow_scalar)
NUMBER_CALLS(remainder_scalar)
NUMBER_CALL(rsub_scalar)
NUMBER_CALL(rdiv_scalar)
NUMBER_CALL(rpow_scalar)
#define NUMBER_IN_PLACE(name, kind_, v) \
    {"in place", GRAD, .call = name##_in_place, .twin = name##_call, .in = {IN(kind_, PERMUTED, 3, 4)}, FLOATING(v)}, \
    {"in place, a float into integers", 0, .call = name##_in_place, .in = {IN(I32, DENSE, 3)}, FLOATING(0.5), .error = "result type Float can't be cast to the desired output type Int"}
const struct sample samples_add_scalar[] = {
    NUMBERS(add_scalar_call, FLOAT, 0.1, 1), NUMBER_IN_PLACE(add_scalar, FLOAT, 0.1), {"bool, an integer", 0, .call = add_scalar_call, .in = {IN(BOOL, DENSE, 5)}, WHOLE(2)},
    {"bool, a bool", 0, .call = add_scalar_call, .in = {IN(BOOL, DENSE, 5)}, TRUE_OR_FALSE(1)},
    {"bool in place", 0, .call = add_scalar_in_place, .in = {IN(BOOL, DENSE, 3)}, WHOLE(1), .error = "result type Long can't be cast to the desired output type Bool"}, END};
const struct sample samples_sub_scalar[] = {
    NUMBERS(sub_scalar_call, FLOAT, 0.1, 1), NUMBER_IN_PLACE(sub_scalar, FLOAT, 0.1), {"from a number", GRAD, .call = rsub_scalar_call, .in = {IN(FLOAT, SLICED, 3, 4)}, FLOATING(1.5)},
    {"from an integer", 0, .call = rsub_scalar_call, .in = {IN(U8, DENSE, 4)}, WHOLE(3)},
    {"of bool", 0, .call = sub_scalar_call, .in = {IN(BOOL, DENSE, 3)}, WHOLE(1), .error = "with a bool tensor is not supported"},
    {"a bool", 0, .call = sub_scalar_call, .in = {F(3)}, TRUE_OR_FALSE(1), .error = "with a bool tensor is not supported"}, END};
const struct sample samples_mul_scalar[] = {
    NUMBERS(mul_scalar_call, FLOAT, 0.1, 1), NUMBER_IN_PLACE(mul_scalar, FLOAT, 0.1), {"bool, a float", 0, .call = mul_scalar_call, .in = {IN(BOOL, DENSE, 5)}, FLOATING(0.5)}, END};
CALL(reciprocal_call) { return (void)s, one(out, tl_reciprocal(in[0])); }
const struct sample samples_div_scalar[] = {
    NUMBERS(div_scalar_call, FLOAT, 0.7, 1), NUMBER_IN_PLACE(div_scalar, FLOAT, 0.7), {"a number by it", GRAD, .call = rdiv_scalar_call, .in = {IN(POSITIVE, SLICED, 3, 4)}, FLOATING(1.5)},
    {"reciprocal", GRAD, .call = reciprocal_call, .in = {IN(POSITIVE, DENSE, 3, 4)}}, {"bool", 0, .call = div_scalar_call, .in = {IN(BOOL, DENSE, 5)}, TRUE_OR_FALSE(1)}, END};
const struct sample samples_pow_scalar[] = {
    NUMBERS(pow_scalar_call, POSITIVE, 2.5, 1), NUMBER_IN_PLACE(pow_scalar, POSITIVE, 2.5), {"the power 0", GRAD, .call = pow_scalar_call, .in = {F(3, 4)}, WHOLE(0)},
    {"cubes of either sign", GRAD, .call = pow_scalar_call, .in = {F(3, 4)}, FLOATING(3)},
    {"powers of a number", GRAD, .call = rpow_scalar_call, .in = {IN(FLOAT, REVERSED, 3, 4)}, FLOATING(1.5)},
    {"powers of 0", GRAD, .call = rpow_scalar_call, .in = {IN(POSITIVE, DENSE, 3, 4)}, FLOATING(0)},
    {"integers as powers", 0, .call = rpow_scalar_call, .in = {IN(I64, DENSE, 9)}, WHOLE(2)},
    {"a negative power of integers", 0, .call = pow_scalar_call, .in = {IN(I32, DENSE, 3)}, WHOLE(-1), .error = "Integers to negative integer powers are not allowed"}, END};
const struct sample samples_remainder_scalar[] = {
    NUMBERS(remainder_scalar_call, FLOAT, 2.25, 4), NUMBER_IN_PLACE(remainder_scalar, FLOAT, 2.25),
    {"no integers by 0", 0, .call = remainder_scalar_call, .in = {IN(I32, DENSE, 0)}, WHOLE(0)},
    {"integers by 0", 0, .call = remainder_scalar_call, .in = {IN(I32, DENSE, 3)}, WHOLE(0), .error = "ZeroDivisionError"},
    {"bool", 0, .call = remainder_scalar_call, .in = {IN(BOOL, DENSE, 3)}, TRUE_OR_FALSE(1), .error = "not implemented for bool"}, END};
CALL(compare_scalar_call) { return one(out, tl_cmp_scalar(in[0], (tl_compare)s->n[1], number(s))); }
const struct sample samples_compare_scalar[] = {
    {"less", 0, DT_ARITHMETIC, .call = compare_scalar_call, .in = {F(3, 4)}, .n = {TL_SCALAR_FLOAT, TL_LT}, .d = {0.25}},
    {"equal, scalar", 0, DT_ARITHMETIC, .call = compare_scalar_call, .in = {SCALAR(FLOAT)}, .n = {TL_SCALAR_FLOAT, TL_EQ}, .d = {0.25}},
    {"not equal, integers", 0, .call = compare_scalar_call, .in = {IN(I16, REVERSED, 3, 4)}, .n = {TL_SCALAR_INT, TL_NE}, .d = {300}},
    {"at least, integers with a float", 0, .call = compare_scalar_call, .in = {IN(I64, SLICED, 3, 4)}, .n = {TL_SCALAR_FLOAT, TL_GE}, .d = {1.5}},
    {"at most, bool", 0, .call = compare_scalar_call, .in = {IN(BOOL, DENSE, 4)}, .n = {TL_SCALAR_BOOL, TL_LE}, .d = {1}},
    {"greater, size 0", 0, .call = compare_scalar_call, .in = {F(0)}, .n = {TL_SCALAR_INT, TL_GT}},
    {"expanded", 0, .call = compare_scalar_call, .in = {IN(FLOAT, EXPANDED, 3, 4)}, .n = {TL_SCALAR_INT, TL_GT}},
    {"large", LARGE, .call = compare_scalar_call, .in = {F(40001)}, .n = {TL_SCALAR_INT, TL_GT}},
    {"no such relation", 0, .call = compare_scalar_call, .in = {F(3)}, .n = {TL_SCALAR_INT, 9}, .error = "cmp: no relation has the number 9"},
    END};
/* n[1], n[2]: the kinds of the bounds, TL_ALL for none. */
static const tl_scalar *bound(const struct sample *s, int i, tl_scalar *room) {
    *room = s->n[i] == TL_SCALAR_FLOAT ? tl_scalar_float(s->d[i]) : s->n[i] == TL_SCALAR_INT ? tl_scalar_int((int64_t)s->d[i]) : tl_scalar_bool(s->d[i] != 0);
    return s->n[i] == TL_ALL ? NULL : room;
}
CALL(clamp_call) {
    tl_scalar low, high;
    const tl_scalar *min = bound(s, 1, &low), *max = bound(s, 2, &high);
    return one(out, tl_clamp(in[0], min, max));
}
CALL(clamp_in_place) {
    tl_scalar low, high;
    const tl_scalar *min = bound(s, 1, &low), *max = bound(s, 2, &high);
    return one(out, tl_clamp_(tl_clone(in[0]), min, max));
}
NUMBER_CALL(minimum_scalar)
NUMBER_CALL(maximum_scalar)
#define BETWEEN(low_, high_) .n = {0, TL_SCALAR_FLOAT, TL_SCALAR_FLOAT}, .d = {0, low_, high_}
const struct sample samples_clamp[] = {
    {"both", GRAD, DT_ARITHMETIC, .call = clamp_call, .in = {F(3, 5)}, BETWEEN(-0.5, 1)},
    {"from below", GRAD, .call = clamp_call, .in = {IN(FLOAT, PERMUTED, 3, 5)}, .n = {0, TL_SCALAR_INT, TL_ALL}},
    {"from above", GRAD, .call = clamp_call, .in = {IN(FLOAT, REVERSED, 3, 5)}, .n = {0, TL_ALL, TL_SCALAR_FLOAT}, .d = {0, 0, 0.5}},
    {"scalar", GRAD, .call = clamp_call, .in = {SCALAR(FLOAT)}, BETWEEN(-3, 3)},
    {"size 0", GRAD, .call = clamp_call, .in = {F(0, 3)}, BETWEEN(-3, 3)},
    {"bounds that cross", GRAD, .call = clamp_call, .in = {IN(FLOAT, SLICED, 3, 4)}, BETWEEN(1, -1)},
    {"integers", 0, .call = clamp_call, .in = {IN(U8, SLICED, 3, 4)}, .n = {0, TL_SCALAR_INT, TL_SCALAR_INT}, .d = {0, -5, 3}},
    {"integers, a float", 0, .call = clamp_call, .in = {IN(I64, DENSE, 7)}, BETWEEN(-1.5, 2)},
    {"minimum with a number", GRAD, .call = minimum_scalar_call, .in = {F(3, 4)}, FLOATING(0.5)},
    {"maximum with a number", GRAD, .call = maximum_scalar_call, .in = {F(3, 4)}, WHOLE(0)},
    {"in place", GRAD, .call = clamp_in_place, .twin = clamp_call, .in = {F(3, 4)}, BETWEEN(-0.5, 1)},
    {"large", LARGE | GRAD, .call = clamp_call, .in = {F(33, 1031)}, BETWEEN(-0.5, 1)},
    {"no bound", 0, .call = clamp_call, .in = {F(3)}, .n = {0, TL_ALL, TL_ALL}, .error = "at least one of 'min' or 'max'"},
    {"out of reach", 0, .call = clamp_call, .in = {IN(U8, DENSE, 3)}, .n = {0, TL_SCALAR_INT, TL_ALL}, .d = {0, 300}, .error = "clamp min value 300 is outside the representable range of uint8"},
    {"a float into integers", 0, .call = clamp_in_place, .in = {IN(I32, DENSE, 3)}, BETWEEN(0.5, 1), .error = "can't be cast to the desired output type Int"},
    END};

/* ---- reduce.c ---- */

#define REDUCTION(name)                                    \
    CALL(name##_call) {                                    \
        int axes[4];                                       \
        to_int(s->n + 1, axes, 4);                         \
        return one(out, tl_##name(in[0], axes, (int)s->n[0], s->n[5])); \
    }
REDUCTION(sum)
REDUCTION(mean)
REDUCTION(max)
REDUCTION(nansum)
REDUCTION(any)
REDUCTION(all)
REDUCTION(count_nonzero)
static tl_tensor *mean_mse(tl_tensor *x, tl_tensor *t) { return tl_mse_loss(x, t, TL_REDUCE_MEAN); }
CALL(mse_call) { return one(out, tl_mse_loss(in[0], in[1], (tl_reduction)s->n[0])); }
CALL(l1_call) { return one(out, tl_l1_loss(in[0], in[1], (tl_reduction)s->n[0])); }
CALL(smooth_l1_call) { return one(out, tl_smooth_l1_loss(in[0], in[1], s->d[0], (tl_reduction)s->n[0])); }
#define REDUCTIONS(call_, kind_)                                                                                 \
    {"all", GRAD, DT_ARITHMETIC, .call = call_, .in = {IN(kind_, DENSE, 3, 4)}},                                 \
    {"rows, kept", GRAD, DT_ARITHMETIC, .call = call_, .in = {IN(kind_, DENSE, 3, 4)}, .n = {1, 1, [5] = true}}, \
    {"columns", GRAD, DT_ARITHMETIC, .call = call_, .in = {IN(kind_, DENSE, 3, 4)}, .n = {1, 0}},                \
    {"outer and inner", GRAD, DT_ARITHMETIC, .call = call_, .in = {IN(kind_, DENSE, 2, 3, 4)}, .n = {2, 0, -1}}, \
    {"of a scalar", GRAD, DT_ARITHMETIC, .call = call_, .in = {SCALAR(kind_)}},                                  \
    {"of one element", GRAD, DT_ARITHMETIC, .call = call_, .in = {IN(kind_, DENSE, 1, 1)}, .n = {1, 0}},         \
    {"permuted", GRAD, DT_ARITHMETIC, .call = call_, .in = {IN(kind_, PERMUTED, 2, 3, 4)}, .n = {1, 1}},         \
    {"sliced", GRAD, DT_ARITHMETIC, .call = call_, .in = {IN(kind_, SLICED, 3, 4)}, .n = {1, 1}},                \
    {"reversed", GRAD, DT_ARITHMETIC, .call = call_, .in = {IN(kind_, REVERSED, 3, 4)}},                         \
    {"of a scalar's one axis", GRAD, DT_ARITHMETIC, .call = call_, .in = {SCALAR(kind_)}, .n = {1, -1}},         \
    {"axis named twice", 0, .call = call_, .in = {F(3, 4)}, .n = {2, 1, -1}, .error = "dim 1 appears multiple times in the list of dims"}
const struct sample samples_sum[] = {
    REDUCTIONS(sum_call, FLOAT),
    {"over no element of no output", GRAD, DT_ARITHMETIC, .call = sum_call, .in = {F(0, 0)}, .n = {1, 1}},
    {"expanded", GRAD, DT_ARITHMETIC, .call = sum_call, .in = {IN(FLOAT, EXPANDED, 3, 4)}},
    {"a b c -> b", GRAD | SUM_ORDER, .call = reduce_sum_call, .in = {IN(FLOAT, PERMUTED, 2, 3, 4)}},
    {"a (b c) -> c a;b=2", GRAD | SUM_ORDER, .call = reduce_sum_call, .in = {F(3, 4)}},
    {"a ... -> a 1", GRAD | SUM_ORDER, .call = reduce_sum_call, .in = {IN(FLOAT, EXPANDED, 3, 2, 2)}},
    {"b (h 2) (w 2) -> b h w", GRAD | SUM_ORDER, .call = reduce_mean_call, .in = {F(2, 4, 4)}, .roundings = 2},
    {"a b -> b", 0, .call = reduce_any_call, .in = {IN(BOOL, SLICED, 3, 2)}},
    {"of nothing", GRAD, DT_ARITHMETIC, .call = sum_call, .in = {F(3, 0)}, .n = {1, 1}},
    {"bool: counts", 0, .call = sum_call, .in = {IN(BOOL, DENSE, 3, 5)}, .n = {1, 1}},
    {"i16", 0, .call = sum_call, .in = {IN(I16, PERMUTED, 3, 5)}},
    {"mean of rows", GRAD, .call = mean_call, .in = {F(3, 4)}, .n = {1, 1, [5] = true}, .roundings = 2},
    {"mean of all", GRAD, .unary = tl_mean_all, .in = {IN(FLOAT, REVERSED, 3, 4)}, .roundings = 2},
    {"mse loss", GRAD, .binary = mean_mse, .in = {F(3, 4), F(3, 4)}, .roundings = 6},
    {"several chunks", LARGE | GRAD, .call = sum_call, .in = {F(3, 9000)}, .n = {1, 1}},
    {"many odd rows", LARGE, .call = sum_call, .in = {K(1060, 521)}, .n = {1, 1}},
    {"several chunks of one", LARGE | GRAD, .unary = tl_sum_all, .in = {IN(FLOAT, PERMUTED, 150, 151)}},
    {"columns of many rows", LARGE | GRAD, .call = sum_call, .in = {F(5000, 17)}, .n = {1, 0}},
    {"nansum", GRAD, .call = nansum_call, .in = {IN(FLOAT, PERMUTED, 3, 4)}, .n = {1, 0}},
    {"any", 0, .call = any_call, .in = {IN(I32, SLICED, 6, 2)}, .n = {1, 1}},
    {"any of nothing, u8", 0, .call = any_call, .in = {IN(U8, DENSE, 3, 0)}, .n = {1, 1, [5] = true}},
    {"all", 0, .call = all_call, .in = {IN(BOOL, REVERSED, 6, 2)}, .n = {1, 1}},
    {"count_nonzero", 0, .call = count_nonzero_call, .in = {IN(I64, EXPANDED, 3, 4)}},
    {"mse, sum", GRAD, .call = mse_call, .in = {F(3, 4), F(4)}, .n = {TL_REDUCE_SUM}, .roundings = 6},
    {"l1", GRAD, .call = l1_call, .in = {F(3, 4), F(3, 4)}, .n = {TL_REDUCE_MEAN}, .roundings = 6},
    {"smooth l1", GRAD, .call = smooth_l1_call, .in = {F(3, 4), IN(FLOAT, REVERSED, 3, 4)}, .n = {TL_REDUCE_MEAN}, .d = {0.84}, .roundings = 8},
    {"negative beta", 0, .call = smooth_l1_call, .in = {F(3), F(3)}, .d = {-1}, .error = "negative values for beta"},
    {"mean of integers", 0, .unary = tl_mean_all, .in = {IN(I32, DENSE, 3)}, .error = "mean: could not infer output dtype"},
    END};
const struct sample samples_max[] = {
    REDUCTIONS(max_call, DISTINCT),
    {"b (h 2) (w 2) -> (b w) h", GRAD, .call = reduce_max_call, .in = {IN(DISTINCT, DENSE, 2, 4, 4)}},
    {"integers", 0, .call = max_call, .in = {IN(I32, SLICED, 3, 5)}, .n = {1, 1}},
    {"ties share the gradient", GRAD | ROUNDS, .call = max_call, .in = {IN(FLOAT, EXPANDED, 3, 4)}, .n = {1, 0}},
    {"large", LARGE | GRAD, .call = max_call, .in = {F(40, 1001)}, .n = {1, 1}},
    {"of nothing", 0, .call = max_call, .in = {F(3, 0)}, .n = {1, 1}, .error = "the maximum of no elements does not exist"},
    {"over rows of which there are none", GRAD, .call = max_call, .in = {F(0, 3)}, .n = {1, 1}},
    {"of nothing, nowhere", 0, .call = max_call, .in = {F(0, 0)}, .n = {1, 1}, .error = "the maximum of no elements does not exist"},
    END};

/* Inputs are x and g; the extreme is taken here. n: the reduced axes, as a set. */
CALL(extreme_grad_call) {
    struct attr_reduce a;
    memset(&a, 0, sizeof a);
    a.axes = (uint32_t)s->n[0];
    a.keep = true;
    tl_tensor *x = tl_contiguous(in[0]);
    tl_tensor *y = op_apply1(&op_max, x, ATTR(a));
    tl_call c;
    call_begin(&c, &op_extreme_grad, (tl_tensor *[]){x, y, tl_contiguous(in[1])}, 3, ATTR(a));
    return one(out, op_apply(&c));
}
CALL(max_axis_call) { return one(out, tl_max(in[0], (int[]){(int)s->n[0]}, 1, false)); }
const struct sample samples_extreme_grad[] = {
    {"rows", 0, .call = extreme_grad_call, .in = {K(3, 5), K(3, 1)}, .n = {2}, .total_flops = 48}, /* 3 x 15, 3 divisions */
    {"columns", 0, .call = extreme_grad_call, .in = {K(3, 5), K(1, 5)}, .n = {1}},
    {"middle axis", 0, .call = extreme_grad_call, .in = {K(2, 3, 4), K(2, 1, 4)}, .n = {2}},
    {"outer and inner axes", 0, .call = extreme_grad_call, .in = {K(2, 3, 4), K(1, 3, 1)}, .n = {5}},
    {"all axes", 0, .call = extreme_grad_call, .in = {K(2, 3), K(1, 1)}, .n = {3}},
    {"no rows", 0, .call = extreme_grad_call, .in = {K(0, 5), K(0, 1)}, .n = {2}},
    {"wide columns", LARGE, .call = extreme_grad_call, .in = {K(70, 601), K(1, 601)}, .n = {1}},
    {"long columns", LARGE, .call = extreme_grad_call, .in = {K(9001, 11), K(1, 11)}, .n = {1}},
    {"long rows", LARGE, .call = extreme_grad_call, .in = {K(3, 9001), K(3, 1)}, .n = {2}},
    {"by way of backward", GRAD | VIA_BACKWARD, .call = max_axis_call, .in = {IN(DISTINCT, DENSE, 3, 5)}, .n = {1}},
    {"sizes", 0, .call = extreme_grad_call, .in = {K(3, 5), K(3)}, .n = {2}, .error = "y and g are not what"},
    END};

static tl_tensor *last_softmax(tl_tensor *x) { return tl_softmax(x, -1); }
CALL(softmax_axis_call) { return one(out, tl_softmax(in[0], (int)s->n[0])); }
const struct sample samples_softmax[] = {
    {"columns", GRAD, .call = softmax_axis_call, .in = {F(3, 5)}, .n = {0}},
    {"middle axis of permuted", GRAD, .call = softmax_axis_call, .in = {IN(FLOAT, PERMUTED, 2, 3, 4)}, .n = {1}},
    {"many columns", LARGE | GRAD, .call = softmax_axis_call, .in = {F(201, 301)}, .n = {0}},
    {"long middle axis", LARGE | GRAD, .call = softmax_axis_call, .in = {F(2, 5001, 3)}, .n = {1}},
    {"axis of a scalar", GRAD, .call = softmax_axis_call, .in = {SCALAR(FLOAT)}, .n = {0}},
    {"no such axis", 0, .call = softmax_axis_call, .in = {F(3, 5)}, .n = {-3}, .error = "softmax: Dimension out of range"},
    {"rows", GRAD, .unary = last_softmax, .in = {F(3, 5)}},
    {"one vector", GRAD, .unary = last_softmax, .in = {F(6)}},
    {"rows of one", GRAD, .unary = last_softmax, .in = {F(4, 1)}},
    {"no rows", GRAD, .unary = last_softmax, .in = {F(0, 5)}},
    {"rows of none", GRAD, .unary = last_softmax, .in = {F(3, 0)}},
    {"permuted", GRAD, .unary = last_softmax, .in = {IN(FLOAT, PERMUTED, 2, 3, 4)}},
    {"expanded", GRAD, .unary = last_softmax, .in = {IN(FLOAT, EXPANDED, 3, 4)}},
    {"large", LARGE | GRAD, .unary = last_softmax, .in = {F(70, 601)}},
    {"longer rows", LARGE | GRAD, .unary = last_softmax, .in = {F(2, 16411)}},
    NO_INTEGERS(last_softmax),
    END};
static tl_tensor *softmax_grad(tl_tensor *y, tl_tensor *g) {
    const struct attr_softmax last = {y->rank - 1};
    y = tl_contiguous(y);
    return op_apply2(&op_softmax_grad, y, tl_contiguous(g), ATTR(last));
}
const struct sample samples_softmax_grad[] = {
    {"rows", 0, .binary = softmax_grad, .in = {K(3, 5), K(3, 5)}},
    {"rows of one", 0, .binary = softmax_grad, .in = {K(3, 1), K(3, 1)}},
    {"no rows", 0, .binary = softmax_grad, .in = {K(0, 5), K(0, 5)}},
    {"by way of backward", GRAD | VIA_BACKWARD, .unary = last_softmax, .in = {F(2, 2, 3)}},
    {"large", LARGE, .binary = softmax_grad, .in = {K(70, 601), K(70, 601)}},
    END};

/* ---- matmul.c ---- */

CALL(linear_call) { return (void)s, one(out, tl_linear(in[0], in[1], in[2])); }
CALL(linear_no_bias) { return (void)s, one(out, tl_linear(in[0], in[1], NULL)); }
CALL(linear_of_part) { /* dense rows, evenly spaced, with gaps: read in place */
    (void)s;
    return one(out, tl_linear(tl_slice(in[0], -1, 2, 6, 1), in[1], NULL));
}
CALL(matmul_f32_call) { /* 16-bit operands, f32 result */
    (void)s;
    struct attr_matmul a;
    memset(&a, 0, sizeof a);
    a.transpose_b = true;
    a.dtype = run_dtype == TL_F64 ? TL_F64 : TL_F32;
    return one(out, op_apply2(&op_matmul, in[0], in[1], ATTR(a)));
}
const struct sample samples_matmul[] = {
    {"matrices", GRAD | SUM_ORDER, .binary = tl_matmul, .in = {F(3, 4), F(4, 5)}},
    {"b i k, b k j -> b i j", GRAD | SUM_ORDER, .call = einsum_call, .in = {F(2, 3, 4), F(2, 4, 2)}},
    {"b t h d, b s h d -> b h t s", GRAD | SUM_ORDER, .call = einsum_call, .in = {F(2, 3, 2, 2), IN(FLOAT, SLICED, 2, 2, 2, 2)}},
    {"b h s d, h d c -> c s b", GRAD | SUM_ORDER, .call = einsum_call, .in = {F(2, 2, 3, 2), F(2, 2, 2)}, .roundings = 2},
    {"... i k, k j -> ... j i", GRAD | SUM_ORDER, .call = einsum_call, .in = {F(2, 3, 4), IN(FLOAT, PERMUTED, 4, 2)}},
    {"i i k, k, j -> j", GRAD | SUM_ORDER, .call = einsum_call, .in = {F(3, 3, 2), F(2), F(2)}, .roundings = 4},
    {"ij,jk,kl->il", GRAD | SUM_ORDER, .call = letters_call, .in = {F(2, 3), F(3, 4), F(4, 2)}, .roundings = 3},
    {"one by one", GRAD | SUM_ORDER, .binary = tl_matmul, .in = {F(1, 1), F(1, 1)}},
    {"no inner elements", GRAD | SUM_ORDER, .binary = tl_matmul, .in = {F(3, 0), F(0, 2)}},
    {"no rows", GRAD | SUM_ORDER, .binary = tl_matmul, .in = {F(0, 4), F(4, 2)}},
    {"vectors", GRAD | SUM_ORDER, .binary = tl_matmul, .in = {F(4), F(4)}},
    {"vector by matrix", GRAD | SUM_ORDER, .binary = tl_matmul, .in = {F(4), F(4, 3)}},
    {"matrix by vector", GRAD | SUM_ORDER, .binary = tl_matmul, .in = {F(3, 4), F(4)}},
    {"stack of rows by matrix", GRAD | SUM_ORDER, .binary = tl_matmul, .in = {F(2, 3, 4), F(4, 2)}},
    {"batched", GRAD | SUM_ORDER, .binary = tl_matmul, .in = {F(2, 3, 4), F(2, 4, 2)}},
    {"batch broadcast both ways", GRAD | SUM_ORDER, .binary = tl_matmul, .in = {F(2, 1, 3, 4), F(3, 4, 2)}},
    {"expanded batch", GRAD | SUM_ORDER, .binary = tl_matmul, .in = {IN(FLOAT, EXPANDED, 2, 3, 4), F(2, 4, 2)}},
    {"transposed operands", GRAD | SUM_ORDER, .binary = tl_matmul, .in = {IN(FLOAT, PERMUTED, 3, 4), IN(FLOAT, PERMUTED, 4, 5)}},
    {"sliced and reversed: copied", GRAD | SUM_ORDER, .binary = tl_matmul, .in = {IN(FLOAT, SLICED, 3, 4), IN(FLOAT, REVERSED, 4, 5)}},
    {"linear with bias", GRAD | SUM_ORDER, .call = linear_call, .in = {F(2, 3, 4), F(5, 4), F(5)}, .roundings = 2},
    {"linear of rows in four axes", GRAD | SUM_ORDER, .call = linear_no_bias, .in = {F(2, 1, 3, 4), F(5, 4)}},
    {"linear of no rows", GRAD | SUM_ORDER, .call = linear_no_bias, .in = {F(2, 0, 4), F(5, 4)}},
    {"linear of rows without elements", GRAD | SUM_ORDER, .call = linear_no_bias, .in = {F(2, 3, 0), F(5, 0)}},
    {"linear of sliced, permuted weight", GRAD | SUM_ORDER, .call = linear_no_bias, .in = {IN(FLOAT, SLICED, 2, 3, 4), IN(FLOAT, PERMUTED, 5, 4)}},
    {"linear of permuted rows", GRAD | SUM_ORDER, .call = linear_no_bias, .in = {IN(FLOAT, PERMUTED, 2, 3, 4), F(5, 4)}},
    {"linear of expanded rows", GRAD | SUM_ORDER, .call = linear_no_bias, .in = {IN(FLOAT, EXPANDED, 2, 3, 4), F(5, 4)}},
    {"linear of part of the channels", GRAD | SUM_ORDER, .call = linear_of_part, .in = {F(2, 3, 7), F(5, 4)}},
    {"large linear", LARGE | GRAD | SUM_ORDER, .call = linear_no_bias, .in = {F(5, 26, 140), F(150, 140)}},
    {"linear of a vector", GRAD | SUM_ORDER, .call = linear_no_bias, .in = {F(4), F(5, 4)}},
    {"f32 result", GRAD | SUM_ORDER, .call = matmul_f32_call, .in = {F(3, 4), F(5, 4)}},
    {"large", LARGE | GRAD | SUM_ORDER, .binary = tl_matmul, .in = {F(130, 140), F(140, 150)}},
    {"large batch", LARGE | GRAD | SUM_ORDER, .binary = tl_matmul, .in = {F(8, 40, 50), F(8, 50, 30)}},
    {"inner sizes", 0, .binary = tl_matmul, .in = {F(4, 6), F(4, 6)}, .error = "(need [m,k] x [k,n])"},
    {"batch sizes", 0, .binary = tl_matmul, .in = {F(2, 4, 6), F(3, 6, 4)}, .error = "the batch axes do not broadcast"},
    {"different dtypes", 0, .binary = tl_matmul, .in = {F(4, 6), IN(I32, DENSE, 6, 4)}, .error = "expected m1 and m2 to have the same dtype"},
    END};

CALL(matmul_acc_call) {
    struct attr_matmul a;
    memset(&a, 0, sizeof a);
    a.transpose_a = s->n[0];
    a.transpose_b = s->n[1];
    a.dtype = run_dtype;
    tl_tensor *sum = s->n[2] ? tl_cast(in[0], TL_F32) : tl_clone(in[0]);
    if (s->n[2] && sum == in[0]) sum = tl_clone(in[0]);
    tl_tensor *input[3] = {sum, in[1], in[2]};
    tl_call c;
    call_begin(&c, &op_matmul_acc, input, 3, ATTR(a));
    return one(out, op_apply(&c));
}
/* Two uses of one weight: the second gradient is added by the GEMM. */
CALL(matmul_twice) {
    (void)s;
    return one(out, tl_matmul(tl_matmul(in[0], in[1]), in[1]));
}
/* Three products of one input: the second and third gradient are added by the GEMM. */
CALL(linear_thrice) {
    (void)s;
    tl_tensor *q = tl_linear(in[0], in[1], NULL), *k = tl_linear(in[0], in[2], NULL), *v = tl_linear(in[0], in[3], NULL);
    return one(out, tl_mul(tl_mul(q, k), v));
}
CALL(matmul_parts_call) {
    (void)s;
    bool grad = tl_set_grad_mode(false);
    int n = 0;
    while (in[n]) n++;
    out[0] = matmul_parts(in[0], in + 1, n - 1);
    tl_set_grad_mode(grad);
    return out[0] ? 1 : 0;
}
CALL(matmul_parts_twin) {
    (void)s;
    tl_tensor *part[3];
    int n = 0;
    for (; in[1 + n]; n++) part[n] = tl_linear(in[0], in[1 + n], NULL);
    return one(out, tl_concat(part, n, -1));
}
const struct sample samples_matmul_parts[] = {
    /* multiply-adds of 3 rows, 8 terms and 4 + 2 + 2 columns */
    {"q, k and v", 0, .call = matmul_parts_call, .twin = matmul_parts_twin, .in = {K(3, 8), K(4, 8), K(2, 8), K(2, 8)}, .total_flops = 2 * 3 * 8 * 8},
    {"a stack of rows, two matrices", 0, .call = matmul_parts_call, .twin = matmul_parts_twin, .in = {K(2, 1, 24), K(5, 24), K(18, 24)}},
    {"terms that are no packs", 0, .call = matmul_parts_call, .twin = matmul_parts_twin, .in = {K(2, 7), K(5, 7), K(3, 7)}},
    {"more rows", LARGE, .call = matmul_parts_call, .in = {K(40, 64), K(96, 64), K(24, 64), K(24, 64)}},
    {"few rows", LARGE, .call = matmul_parts_call, .in = {K(11, 1, 776), K(200, 776), K(56, 776), K(40, 776)}},
    {"no rows", 0, .call = matmul_parts_call, .in = {K(0, 8), K(4, 8), K(2, 8)}},
    {"no columns of one", 0, .call = matmul_parts_call, .twin = matmul_parts_twin, .in = {K(3, 8), K(0, 8), K(2, 8)}},
    {"no terms", 0, .call = matmul_parts_call, .twin = matmul_parts_twin, .in = {K(3, 0), K(4, 0), K(2, 0)}},
    {"other terms", 0, .call = matmul_parts_call, .in = {K(3, 8), K(4, 8), K(2, 7)}, .error = "rows of 8 numbers and a matrix of 2x7 cannot be multiplied"},
    {"one matrix", 0, .call = matmul_parts_call, .in = {K(3, 8), K(4, 8)}, .error = "needs rows and two or three matrices"},
    END};
const struct sample samples_matmul_acc[] = {
    {"three products of a stack of rows", GRAD | VIA_BACKWARD | SUM_ORDER, .call = linear_thrice, .in = {F(2, 3, 4), F(5, 4), F(5, 4), F(5, 4)}, .roundings = 5},
    {"three products of no rows", GRAD | VIA_BACKWARD | SUM_ORDER, .call = linear_thrice, .in = {F(0, 3, 4), F(5, 4), F(5, 4), F(5, 4)}},
    {"plain", GRAD, .call = matmul_acc_call, .in = {F(3, 5), F(3, 4), F(4, 5)}, .roundings = 2},
    {"a transposed", GRAD, .call = matmul_acc_call, .in = {F(3, 5), F(4, 3), F(4, 5)}, .n = {true, false}, .roundings = 2},
    {"b transposed", GRAD, .call = matmul_acc_call, .in = {F(3, 5), F(3, 4), F(5, 4)}, .n = {false, true}, .roundings = 2},
    {"both transposed", GRAD, .call = matmul_acc_call, .in = {F(3, 5), F(4, 3), F(5, 4)}, .n = {true, true}, .roundings = 2},
    {"into f32", GRAD, DT(TL_F32) | DT(TL_F16) | DT(TL_BF16), .call = matmul_acc_call, .in = {F(3, 5), F(3, 4), F(4, 5)}, .n = {0, 0, true}},
    {"no inner elements", GRAD, .call = matmul_acc_call, .in = {F(3, 5), F(3, 0), F(0, 5)}},
    {"by way of a weight used twice", GRAD | VIA_BACKWARD | SUM_ORDER, .call = matmul_twice, .in = {F(3, 4), F(4, 4)}, .roundings = 2},
    {"large", LARGE | GRAD, .call = matmul_acc_call, .in = {F(130, 150), F(130, 140), F(140, 150)}, .roundings = 2},
    {"another shape", 0, .call = matmul_acc_call, .in = {F(3, 4), F(3, 4), F(4, 5)}, .error = "the sum has another shape than the product"},
    END};

/* ---- grouped.c ---- */

/* The ends of n groups of sorted ids; n[1]: as i32. */
static tl_tensor *ends_of(const struct sample *s, tl_tensor *ids, int64_t n) {
    tl_tensor *sorted;
    if (!tl_sort(ids, 0, false, &sorted, NULL)) return NULL;
    tl_tensor *number = tl_arange(0, 1, n, tl_dtype_of(ids), tl_device_of(ids)), *ends = tl_searchsorted(sorted, number, true);
    return s->n[1] ? tl_cast(ends, TL_I32) : ends;
}
/* n[0]: b is transposed; n[2]: fewer groups than ids have, so that the last rows have none. */
CALL(grouped_call) {
    tl_tensor *ends = ends_of(s, in[2], tl_size(in[1], 0));
    return one(out, tl_grouped_matmul(in[0], in[1], ends, s->n[0]));
}
CALL(grouped_ends_call) { return one(out, tl_grouped_matmul(in[0], in[1], in[2], s->n[0])); }
/* Two products of the same rows: the second gradient of the rows is added by the product. */
CALL(grouped_twice) {
    tl_tensor *ends = ends_of(s, in[2], tl_size(in[1], 0));
    tl_tensor *gate = tl_grouped_matmul(in[0], in[1], ends, true), *up = tl_grouped_matmul(in[0], in[3], ends, true);
    return one(out, tl_mul(gate, up));
}
/* One matrix used twice: its second gradient is added by the product. */
CALL(grouped_weight_twice) {
    tl_tensor *ends = ends_of(s, in[2], tl_size(in[1], 0));
    tl_tensor *once = tl_grouped_matmul(in[0], in[1], ends, true);
    return one(out, tl_grouped_matmul(once, in[1], ends, true));
}
static int grouped_apply(const struct sample *s, const tl_op *op, tl_tensor **in, int n, tl_tensor **out) {
    struct attr_grouped at;
    tl_tensor *input[4];
    tl_call c;
    memset(&at, 0, sizeof at);
    at.transpose_b = s->n[0];
    for (int i = 0; i < n; i++) input[i] = tl_contiguous(in[i]);
    if (n == 4) input[0] = s->n[3] ? tl_cast(input[0], TL_F32) : tl_clone(input[0]);
    if (n == 4 && input[0] == in[0]) input[0] = tl_clone(in[0]);
    call_begin(&c, op, input, n, ATTR(at));
    return one(out, op_apply(&c));
}
CALL(grouped_matmul_acc_call) {
    tl_tensor *input[4] = {in[0], in[1], in[2], ends_of(s, in[3], tl_size(in[2], 0))};
    return grouped_apply(s, &op_grouped_matmul_acc, input, 4, out);
}
CALL(grouped_outer_call) {
    tl_tensor *input[3] = {in[0], in[1], ends_of(s, in[2], 3)};
    return grouped_apply(s, &op_grouped_outer, input, 3, out);
}
CALL(grouped_outer_acc_call) {
    tl_tensor *input[4] = {in[0], in[1], in[2], ends_of(s, in[3], tl_size(in[0], 0))};
    return grouped_apply(s, &op_grouped_outer_acc, input, 4, out);
}
const struct sample samples_grouped_matmul[] = {
    {"three groups", GRAD | SUM_ORDER, .call = grouped_call, .in = {F(7, 4), F(3, 4, 5), IDS(3, 7)}, .flops = 8},
    {"transposed", GRAD | SUM_ORDER, .call = grouped_call, .in = {F(7, 4), F(3, 5, 4), IDS(3, 7)}, .n = {true}},
    {"ends in i32", GRAD | SUM_ORDER, .call = grouped_call, .in = {F(7, 4), F(3, 5, 4), IDS(3, 7)}, .n = {true, true}},
    {"groups without rows", GRAD | SUM_ORDER, .call = grouped_call, .in = {F(4, 4), F(9, 4, 5), IDS(9, 4)}},
    {"rows without a group", GRAD | SUM_ORDER, .call = grouped_call, .in = {F(9, 4), F(2, 5, 4), IDS(4, 9)}, .n = {true}},
    {"no rows", GRAD | SUM_ORDER, .call = grouped_call, .in = {F(0, 4), F(2, 5, 4), IDS(2, 0)}, .n = {true}},
    {"no rows of packs", GRAD | SUM_ORDER, .call = grouped_call, .in = {F(0, 16), F(2, 24, 16), IDS(2, 0)}, .n = {true}},
    {"no terms", GRAD | SUM_ORDER, .call = grouped_call, .in = {F(5, 0), F(2, 24, 0), IDS(2, 5)}, .n = {true}},
    {"no inner elements", GRAD | SUM_ORDER, .call = grouped_call, .in = {F(3, 0), F(2, 0, 5), IDS(2, 3)}},
    {"permuted, sliced", GRAD | SUM_ORDER, .call = grouped_call, .in = {IN(FLOAT, PERMUTED, 7, 4), IN(FLOAT, SLICED, 3, 4, 5), IDS(3, 7)}},
    {"large", LARGE | GRAD | SUM_ORDER, .call = grouped_call, .in = {F(300, 72), F(4, 80, 72), IDS(4, 300)}, .n = {true}},
    {"large, odd sizes", LARGE | GRAD | SUM_ORDER, .call = grouped_call, .in = {F(290, 67), F(5, 67, 141), IDS(5, 290)}},
    {"wide", LARGE | GRAD | SUM_ORDER, .call = grouped_call, .in = {F(150, 40), F(2, 520, 40), IDS(2, 150)}, .n = {true}},
    {"inner sizes", 0, .call = grouped_call, .in = {F(7, 4), F(3, 5, 5), IDS(3, 7)}, .error = "(need [m,k] x [k,n])"},
    {"one matrix", 0, .call = grouped_ends_call, .in = {F(7, 4), F(4, 5), IDS(3, 4)}, .error = "one matrix for each group"},
    {"ends that leave the rows", CPU_ONLY, .call = grouped_ends_call, .in = {F(2, 4), F(3, 4, 5), RISING(DENSE, 90, 3)}, .error = "(need "},
    END};
const struct sample samples_grouped_matmul_acc[] = {
    {"plain", GRAD, .call = grouped_matmul_acc_call, .in = {F(7, 5), F(7, 4), F(3, 4, 5), IDS(3, 7)}, .flops = 8, .roundings = 2},
    {"transposed", GRAD, .call = grouped_matmul_acc_call, .in = {F(7, 5), F(7, 4), F(3, 5, 4), IDS(3, 7)}, .n = {true}, .roundings = 2},
    {"rows without a group", GRAD, .call = grouped_matmul_acc_call, .in = {F(9, 5), F(9, 4), F(2, 5, 4), IDS(4, 9)}, .n = {true}, .roundings = 2},
    {"into f32", GRAD, DT(TL_F32) | DT(TL_F16) | DT(TL_BF16), .call = grouped_matmul_acc_call, .in = {F(7, 5), F(7, 4), F(3, 5, 4), IDS(3, 7)}, .n = {true, 0, 0, true}},
    {"by way of two products", GRAD | VIA_BACKWARD | SUM_ORDER, .call = grouped_twice, .in = {F(7, 4), F(3, 5, 4), IDS(3, 7), F(3, 5, 4)}, .roundings = 3},
    {"large", LARGE | GRAD, .call = grouped_matmul_acc_call, .in = {F(300, 80), F(300, 72), F(4, 72, 80), IDS(4, 300)}, .roundings = 2},
    {"another shape", 0, .call = grouped_matmul_acc_call, .in = {F(7, 4), F(7, 4), F(3, 4, 5), IDS(3, 7)}, .error = "the sum has another shape than the product"},
    END};
const struct sample samples_grouped_outer[] = {
    {"three groups", GRAD, .call = grouped_outer_call, .in = {F(7, 4), F(7, 5), IDS(3, 7)}, .total_flops = 280}, /* 2 7 4 5 */
    {"groups without rows", GRAD, .call = grouped_outer_call, .in = {F(2, 4), F(2, 5), IDS(3, 2)}},
    {"rows without a group", GRAD, .call = grouped_outer_call, .in = {F(9, 4), F(9, 5), IDS(5, 9)}},
    {"no rows", GRAD, .call = grouped_outer_call, .in = {F(0, 4), F(0, 5), IDS(3, 0)}},
    {"no rows of packs", GRAD, .call = grouped_outer_call, .in = {F(0, 16), F(0, 24), IDS(3, 0)}},
    {"large", LARGE | GRAD, .call = grouped_outer_call, .in = {F(300, 72), F(300, 80), IDS(3, 300)}},
    {"large, odd sizes", LARGE | GRAD, .call = grouped_outer_call, .in = {F(290, 67), F(290, 141), IDS(3, 290)}},
    {"rows", 0, .call = grouped_outer_call, .in = {F(7, 4), F(6, 5), IDS(3, 7)}, .error = "the same number of rows"},
    END};
const struct sample samples_grouped_outer_acc[] = {
    {"plain", GRAD, .call = grouped_outer_acc_call, .in = {F(3, 4, 5), F(7, 4), F(7, 5), IDS(3, 7)}, .total_flops = 280, .roundings = 2},
    {"groups without rows", GRAD, .call = grouped_outer_acc_call, .in = {F(3, 4, 5), F(2, 4), F(2, 5), IDS(3, 2)}, .roundings = 2},
    {"into f32", GRAD, DT(TL_F32) | DT(TL_F16) | DT(TL_BF16), .call = grouped_outer_acc_call, .in = {F(3, 4, 5), F(7, 4), F(7, 5), IDS(3, 7)}, .n = {0, 0, 0, true}},
    {"by way of a weight used twice", GRAD | VIA_BACKWARD | SUM_ORDER, .call = grouped_weight_twice, .in = {F(7, 4), F(3, 4, 4), IDS(3, 7)}, .roundings = 2},
    {"large", LARGE | GRAD, .call = grouped_outer_acc_call, .in = {F(3, 72, 80), F(300, 72), F(300, 80), IDS(3, 300)}, .roundings = 2},
    {"another shape", 0, .call = grouped_outer_acc_call, .in = {F(3, 5, 5), F(7, 4), F(7, 5), IDS(3, 7)}, .error = "the sum has another shape than the product"},
    END};

/* ---- linalg.c ---- */

#define LAPACK_DTYPES .dtypes = DT(TL_F32) | DT(TL_F64)
/* x + shift on the diagonals, so that it is far from singular; and symmetric besides, so that it is positive-definite */
static tl_tensor *shifted(tl_tensor *x, double shift) {
    const int64_t n = tl_rank(x) < 2 ? 1 : tl_shape(x)[tl_rank(x) - 1];
    tl_tensor *one = tl_eye(n, n, tl_dtype_of(x), tl_device_of(x));
    return one ? tl_add(x, tl_scale(one, shift)) : NULL;
}
static tl_tensor *symmetric(tl_tensor *x, double shift) { return shifted(tl_add(x, tl_transpose(x, -2, -1)), shift); }

static int results(const struct sample *s, int n, bool ok) { return ok ? n : ((void)s, 0); }

static tl_tensor *cholesky_of(tl_tensor *x) { return tl_cholesky(symmetric(x, 40)); }
CALL(cholesky_ex_call) { return tl_cholesky_ex(symmetric(in[0], s->d[0]), &out[0], &out[1]) ? 2 : 0; }
static tl_tensor *cholesky_of_negative(tl_tensor *x) { return tl_cholesky(symmetric(x, -40)); }
const struct sample samples_cholesky[] = {
    {"matrix", GRAD, .unary = cholesky_of, .in = {F(4, 4)}, LAPACK_DTYPES, .total_flops = 21}, /* 64 / 3 */
    {"batch", GRAD, .unary = cholesky_of, .in = {F(2, 1, 3, 3)}, LAPACK_DTYPES, .total_flops = 18},
    {"size 0", GRAD, .unary = cholesky_of, .in = {F(2, 0, 0)}, LAPACK_DTYPES},
    {"no matrices", GRAD, .unary = cholesky_of, .in = {F(0, 3, 3)}, LAPACK_DTYPES},
    {"info", 0, .call = cholesky_ex_call, .in = {F(3, 3)}, .d = {-40}, LAPACK_DTYPES},
    {"more than a panel", LARGE | GRAD, .unary = cholesky_of, .in = {IN(FLOAT, PERMUTED, 40, 40)}, LAPACK_DTYPES},
    {"more matrices than slots", LARGE | GRAD, .unary = cholesky_of, .in = {F(37, 9, 9)}, LAPACK_DTYPES},
    {"not square", 0, .unary = tl_cholesky, .in = {F(3, 4)}, LAPACK_DTYPES, .error = "but they are 3 by 4 matrices"},
    {"vector", 0, .unary = tl_cholesky, .in = {F(3)}, LAPACK_DTYPES, .error = "at least 2 dimensions"},
    {"integers", 0, .unary = tl_cholesky, .in = {IN(I32, DENSE, 3, 3)}, .error = "not implemented for int32"},
    {"negative", CPU_ONLY, .unary = cholesky_of_negative, .in = {F(2, 3, 3)}, LAPACK_DTYPES, .error = "(Batch element 0): The factorization could not be completed because the input is not positive-definite"},
    END};

CALL(lu_call) { return results(s, 2, tl_lu(in[0], &out[0], &out[1])); }
CALL(lu_ex_call) { return results(s, 3, tl_lu_ex(in[0], &out[0], &out[1], &out[2])); }
const struct sample samples_lu[] = {
    {"square", GRAD, .call = lu_call, .in = {F(3, 3)}, LAPACK_DTYPES},
    {"wide", GRAD, .call = lu_call, .in = {IN(FLOAT, PERMUTED, 2, 4)}, LAPACK_DTYPES},
    {"tall", GRAD, .call = lu_call, .in = {F(2, 4, 2)}, LAPACK_DTYPES},
    {"info", 0, .call = lu_ex_call, .in = {IN(FLOAT, EXPANDED, 3, 3)}, LAPACK_DTYPES},
    {"size 0", GRAD, .call = lu_ex_call, .in = {F(3, 0)}, LAPACK_DTYPES},
    {"large", LARGE | GRAD, .call = lu_call, .in = {F(20, 11, 11)}, LAPACK_DTYPES},
    {"singular", CPU_ONLY, .call = lu_call, .in = {IN(FLOAT, EXPANDED, 3, 3)}, LAPACK_DTYPES, .error = "element 2 of U"},
    END};

CALL(swap_call) { return one(out, tl_swap_rows(in[0], tl_full(TL_SHAPE(s->n[0]), (double)s->n[1], TL_I32, tl_device_of(in[0])), s->n[2])); }
const struct sample samples_swap_rows[] = {
    {"all with the last", GRAD, .call = swap_call, .in = {F(3, 2)}, .n = {3, 3, false}, LAPACK_DTYPES},
    {"back", GRAD, .call = swap_call, .in = {IN(FLOAT, PERMUTED, 3, 4)}, .n = {2, 3, true}, LAPACK_DTYPES},
    {"no columns", GRAD, .call = swap_call, .in = {F(3, 0)}, .n = {2, 3, true}, LAPACK_DTYPES},
    {"too many", 0, .call = swap_call, .in = {F(3, 2)}, .n = {4, 3}, LAPACK_DTYPES, .error = "one row of pivots per matrix"},
    {"no such row", CPU_ONLY, .call = swap_call, .in = {F(3, 2)}, .n = {3, 4}, LAPACK_DTYPES, .error = "pivot 1 is not a row"},
    END};

CALL(triangular_call) { return one(out, tl_solve_triangular(shifted(in[0], 5), in[1], s->n[0], s->n[1])); }
const struct sample samples_solve_triangular[] = {
    {"lower", GRAD, .call = triangular_call, .in = {F(3, 3), F(3, 2)}, LAPACK_DTYPES, .total_flops = 18}, /* 9 x 2 */
    {"upper", GRAD, .call = triangular_call, .in = {IN(FLOAT, PERMUTED, 3, 3), IN(FLOAT, REVERSED, 3, 2)}, .n = {1}, LAPACK_DTYPES},
    {"ones on the diagonal", GRAD, .call = triangular_call, .in = {F(3, 3), F(3, 2)}, .n = {0, 1}, LAPACK_DTYPES},
    {"upper, ones", GRAD, .call = triangular_call, .in = {F(2, 3, 3), F(3, 1)}, .n = {1, 1}, LAPACK_DTYPES},
    {"size 0", GRAD, .call = triangular_call, .in = {F(0, 0), F(0, 2)}, LAPACK_DTYPES},
    {"large", LARGE | GRAD, .call = triangular_call, .in = {F(18, 4, 4), F(18, 4, 60)}, .n = {1}, LAPACK_DTYPES},
    {"sizes differ", 0, .call = triangular_call, .in = {F(3, 3), F(2, 2)}, LAPACK_DTYPES, .error = "Incompatible shapes"},
    END};

static tl_tensor *solve_of(tl_tensor *a, tl_tensor *b) { return tl_solve(shifted(a, 9), b); }
CALL(solve_ex_call) { return results(s, 2, tl_solve_ex(shifted(in[0], 9), in[1], &out[0], &out[1])); }
CALL(lu_solve_call) {
    tl_tensor *lu, *pivots;
    return tl_lu(shifted(in[0], 9), &lu, &pivots) ? one(out, tl_add(tl_solve(lu, in[1]), tl_lu_solve(lu, pivots, in[1], s->n[0]))) : 0;
}
static tl_tensor *solve_zeros(tl_tensor *x) { return tl_solve(tl_zeros(TL_SHAPE(2, 2), tl_dtype_of(x), tl_device_of(x)), x); }
const struct sample samples_solve[] = {
    {"matrix", GRAD, .binary = solve_of, .in = {F(3, 3), F(3, 2)}, LAPACK_DTYPES, .total_flops = 54}, /* 18 + 2 x 9 x 2 */
    {"one matrix, a batch of sides", GRAD, .binary = solve_of, .in = {IN(FLOAT, PERMUTED, 3, 3), F(2, 3, 2)}, LAPACK_DTYPES},
    {"a batch of matrices", GRAD, .binary = solve_of, .in = {F(2, 3, 3), F(3, 1)}, LAPACK_DTYPES},
    {"info", GRAD, .call = solve_ex_call, .in = {F(3, 3), F(3, 2)}, LAPACK_DTYPES},
    {"by factors", GRAD, .call = lu_solve_call, .in = {F(3, 3), F(3, 2)}, LAPACK_DTYPES},
    {"by factors, transposed", GRAD, .call = lu_solve_call, .in = {F(3, 3), F(3, 2)}, .n = {1}, LAPACK_DTYPES},
    {"no sides", GRAD, .binary = solve_of, .in = {F(3, 3), F(3, 0)}, LAPACK_DTYPES},
    {"more than a panel", LARGE | GRAD, .binary = solve_of, .in = {F(2, 35, 35), F(35, 3)}, LAPACK_DTYPES},
    {"large", LARGE | GRAD, .binary = solve_of, .in = {F(18, 7, 7), F(18, 7, 30)}, LAPACK_DTYPES},
    {"singular", CPU_ONLY, .unary = solve_zeros, .in = {F(2, 1)}, LAPACK_DTYPES, .error = "the input matrix is singular"},
    END};

static tl_tensor *inv_of(tl_tensor *x) { return tl_inv(shifted(x, 9)); }
CALL(inv_ex_call) { return results(s, 2, tl_inv_ex(in[0], &out[0], &out[1])); }
const struct sample samples_inv[] = {
    {"matrix", GRAD, .unary = inv_of, .in = {F(3, 3)}, LAPACK_DTYPES, .total_flops = 54}, /* 2 x 27 */
    {"batch", GRAD, .unary = inv_of, .in = {F(2, 2, 2)}, LAPACK_DTYPES},
    {"size 0", GRAD, .unary = inv_of, .in = {F(0, 0)}, LAPACK_DTYPES},
    {"info of a singular one", 0, .call = inv_ex_call, .in = {IN(FLOAT, EXPANDED, 3, 3)}, LAPACK_DTYPES},
    {"large", LARGE | GRAD, .unary = inv_of, .in = {F(40, 7, 7)}, LAPACK_DTYPES},
    {"singular", CPU_ONLY, .unary = tl_inv, .in = {IN(FLOAT, EXPANDED, 3, 3)}, LAPACK_DTYPES, .error = "the input matrix is singular"},
    END};

static tl_tensor *det_of(tl_tensor *x) { return tl_det(shifted(x, 3)); }
CALL(slogdet_call) { return results(s, 2, tl_slogdet(shifted(in[0], 3), &out[1], &out[0])); }
const struct sample samples_det[] = {
    {"matrix", GRAD, .unary = det_of, .in = {F(3, 3)}, LAPACK_DTYPES, .total_flops = 18},
    {"batch", GRAD, .unary = det_of, .in = {IN(FLOAT, PERMUTED, 2, 3, 3)}, LAPACK_DTYPES},
    {"sign and logarithm", GRAD, .call = slogdet_call, .in = {F(2, 3, 3)}, LAPACK_DTYPES},
    {"singular", GRAD | ROUNDS, .unary = tl_det, .in = {IN(FLOAT, EXPANDED, 3, 3)}, LAPACK_DTYPES},
    {"size 0", GRAD, .unary = det_of, .in = {F(2, 0, 0)}, LAPACK_DTYPES},
    END};

CALL(qr_call) { return tl_qr(in[0], s->n[0], &out[s->n[1]], &out[!s->n[1]]) ? 2 : 0; }
const struct sample samples_qr[] = {
    {"tall, Q", GRAD, .call = qr_call, .in = {F(4, 3)}, LAPACK_DTYPES},
    {"tall, R", GRAD, .call = qr_call, .in = {F(4, 3)}, .n = {0, 1}, LAPACK_DTYPES},
    {"wide", GRAD, .call = qr_call, .in = {IN(FLOAT, PERMUTED, 2, 4)}, LAPACK_DTYPES},
    {"wide, R", GRAD, .call = qr_call, .in = {F(2, 2, 3)}, .n = {0, 1}, LAPACK_DTYPES},
    {"complete", 0, .call = qr_call, .in = {F(4, 2)}, .n = {1}, LAPACK_DTYPES},
    {"complete, no columns", 0, .call = qr_call, .in = {F(3, 0)}, .n = {1}, LAPACK_DTYPES},
    {"R alone", GRAD, .unary = tl_qr_r, .in = {F(3, 3)}, LAPACK_DTYPES},
    {"large", LARGE | GRAD, .call = qr_call, .in = {F(20, 12, 9)}, LAPACK_DTYPES},
    END};

CALL(eigh_call) { return tl_eigh(symmetric(in[0], 0), s->n[0], &out[s->n[1]], &out[!s->n[1]]) ? 2 : 0; }
static tl_tensor *eigvalsh_of(tl_tensor *x) { return tl_eigvalsh(symmetric(x, 0), true); }
const struct sample samples_eigh[] = {
    {"values", GRAD, .call = eigh_call, .in = {F(3, 3)}, LAPACK_DTYPES, .total_flops = 243}, /* 9 x 27 */
    {"vectors, upper", GRAD, .call = eigh_call, .in = {F(2, 3, 3)}, .n = {1, 1}, LAPACK_DTYPES},
    {"values alone", GRAD, .unary = eigvalsh_of, .in = {F(3, 3)}, LAPACK_DTYPES},
    {"size 0", GRAD, .call = eigh_call, .in = {F(0, 0)}, LAPACK_DTYPES},
    {"large", LARGE, .unary = eigvalsh_of, .in = {F(20, 9, 9)}, LAPACK_DTYPES},
    {"many values", LARGE, .unary = eigvalsh_of, .in = {F(65, 65)}, LAPACK_DTYPES},
    END};

/* Of a pair of conjugate values LAPACK may name either first, and a vector has any phase: magnitudes. */
static tl_tensor *eigvals_of(tl_tensor *x) { return tl_sum_all(tl_abs(tl_eigvals(x))); }
CALL(eig_call) {
    tl_tensor *values, *vectors;
    if (!tl_eig(in[0], &values, &vectors)) return 0;
    out[s->n[0]] = tl_abs(vectors);
    out[!s->n[0]] = tl_view_as_real(values);
    return out[0] && out[1] ? 2 : 0;
}
const struct sample samples_eig[] = {
    {"values", GRAD, .call = eig_call, .in = {F(3, 3)}, .n = {1}, LAPACK_DTYPES, .total_flops = 675}, /* 25 x 27 */
    {"vectors", GRAD, .call = eig_call, .in = {IN(FLOAT, PERMUTED, 2, 3, 3)}, LAPACK_DTYPES},
    {"values alone", GRAD, .unary = eigvals_of, .in = {F(4, 4)}, LAPACK_DTYPES},
    {"size 0", 0, .call = eig_call, .in = {F(2, 0, 0)}, LAPACK_DTYPES},
    {"large", LARGE, .unary = eigvals_of, .in = {F(20, 9, 9)}, LAPACK_DTYPES},
    {"not square", 0, .unary = eigvals_of, .in = {F(3, 4)}, LAPACK_DTYPES, .error = "but they are 3 by 4 matrices"},
    END};

CALL(svd_call) { return tl_svd(in[0], s->n[0], &out[s->n[1]], &out[(s->n[1] + 1) % 3], &out[(s->n[1] + 2) % 3]) ? 3 : 0; }
const struct sample samples_svd[] = {
    {"tall, U", GRAD, .call = svd_call, .in = {F(4, 3)}, LAPACK_DTYPES},
    {"tall, values", GRAD, .call = svd_call, .in = {F(4, 3)}, .n = {0, 2}, LAPACK_DTYPES},
    {"wide, Vh", GRAD, .call = svd_call, .in = {IN(FLOAT, PERMUTED, 2, 3)}, .n = {0, 1}, LAPACK_DTYPES},
    {"full", GRAD, .call = svd_call, .in = {F(2, 3, 3)}, .n = {1}, LAPACK_DTYPES},
    {"full of nothing", 0, .call = svd_call, .in = {F(3, 0)}, .n = {1}, LAPACK_DTYPES},
    {"values alone", GRAD, .unary = tl_svdvals, .in = {F(2, 3, 4)}, LAPACK_DTYPES},
    {"large", LARGE, .unary = tl_svdvals, .in = {F(20, 12, 9)}, LAPACK_DTYPES},
    {"many values", LARGE, .unary = tl_svdvals, .in = {F(33, 65)}, LAPACK_DTYPES},
    END};

/* ---- narrow.c ---- */

static int narrowed(tl_tensor *x, tl_tensor *scale, tl_dtype dtype, bool gives_rows, bool gives_transposed, tl_tensor **out) {
    struct attr_narrow a;
    memset(&a, 0, sizeof a);
    a.dtype = dtype;
    a.gives_rows = gives_rows;
    a.gives_transposed = gives_transposed;
    tl_tensor *input[2] = {tl_contiguous(x), scale};
    tl_call c;
    call_begin(&c, &op_narrow, input, scale ? 2 : 1, ATTR(a));
    if (!op_apply(&c)) return 0;
    memcpy(out, c.output, (size_t)c.n_outputs * sizeof *out);
    return c.n_outputs;
}
/* n: dtype, rows, transposed; a second input is the scale */
CALL(narrow_call) { return narrowed(in[0], s->in[1].kind ? tl_cast(in[1], TL_F32) : NULL, (tl_dtype)s->n[0], s->n[1], s->n[2], out); }
#define DT_TO_F8 (DT(TL_F32) | DT(TL_F16) | DT(TL_BF16))
const struct sample samples_narrow[] = {
    {"rows", ROUNDS, DT_TO_F8, .call = narrow_call, .in = {K(16, 32)}, .n = {TL_F8E4M3, true, false}},
    {"turned", ROUNDS, DT_TO_F8, .call = narrow_call, .in = {K(32, 16)}, .n = {TL_F8E5M2, false, true}},
    {"both, of a stack", ROUNDS, DT_TO_F8, .call = narrow_call, .in = {K(2, 24, 48)}, .n = {TL_F8E4M3, true, true}},
    {"by a given scale, some too large", ROUNDS, DT_TO_F8, .call = narrow_call, .in = {IN(POSITIVE, DENSE, 16, 32), SCALAR(STATE)}, .n = {TL_F8E4M3, true, true}},
    {"no rows", ROUNDS, DT_TO_F8, .call = narrow_call, .in = {K(0, 32)}, .n = {TL_F8E4M3, true, true}},
    {"large", ROUNDS | LARGE, DT_TO_F8, .call = narrow_call, .in = {K(272, 144)}, .n = {TL_F8E5M2, true, true}},
    {"a vector", 0, DT_TO_F8, .call = narrow_call, .in = {K(32)}, .n = {TL_F8E4M3, true, true}, .error = "needs dense rows"},
    END};

CALL(linear_f8_call) { return one(out, linear_f8(in[0], in[1], s->in[2].kind ? in[2] : NULL)); }
/* Two uses of one weight: the second gradient is added by the product. */
CALL(linear_f8_twice) {
    (void)s;
    return one(out, linear_f8(linear_f8(in[0], in[1], NULL), in[1], NULL));
}
#define DT_16 (DT(TL_F16) | DT(TL_BF16))
const struct sample samples_matmul_f8[] = {
    {"a linear layer", ROUNDS | GRAD, DT_16, .call = linear_f8_call, .in = {F(16, 32), F(48, 32)}, .roundings = 2},
    {"with a bias, of a stack of rows", ROUNDS | GRAD, DT_16, .call = linear_f8_call, .in = {F(2, 24, 32), F(48, 32), F(48)}, .roundings = 2},
    {"permuted", ROUNDS | GRAD, DT_16, .call = linear_f8_call, .in = {IN(FLOAT, PERMUTED, 32, 16), IN(FLOAT, PERMUTED, 16, 16)}, .roundings = 2},
    {"of constants", ROUNDS, DT_16, .call = linear_f8_call, .in = {K(16, 32), K(48, 32), K(48)}, .roundings = 2},
    {"large", ROUNDS | GRAD | LARGE, DT_16, .call = linear_f8_call, .in = {F(128, 144), F(160, 144), F(160)}, .roundings = 2},
    {"another length", 0, DT_16, .call = linear_f8_call, .in = {F(16, 32), F(48, 16)}, .error = "needs (...,k) and (n,k)"},
    END};

/* sum, a, b; n: the sum is f32, a is e5m2 */
CALL(matmul_f8_acc_call) {
    struct attr_matmul_f8 at;
    tl_tensor *a[2], *b[2];
    memset(&at, 0, sizeof at);
    at.dtype = s->n[0] ? TL_F32 : run_dtype;
    if (!narrowed(in[1], NULL, s->n[1] ? TL_F8E5M2 : TL_F8E4M3, true, false, a) || !narrowed(in[2], NULL, TL_F8E4M3, true, false, b)) return 0;
    tl_tensor *input[5] = {s->n[0] ? tl_cast(in[0], TL_F32) : tl_clone(in[0]), a[0], b[0], a[1], b[1]};
    tl_call c;
    call_begin(&c, &op_matmul_f8_acc, input, 5, ATTR(at));
    return one(out, op_apply(&c));
}
const struct sample samples_matmul_f8_acc[] = {
    {"plain", ROUNDS, DT_16, .call = matmul_f8_acc_call, .in = {K(16, 48), K(16, 32), K(48, 32)}, .roundings = 2},
    {"into f32, of a gradient", ROUNDS, DT_16, .call = matmul_f8_acc_call, .in = {K(16, 48), K(16, 32), K(48, 32)}, .n = {true, true}},
    {"by way of a weight used twice", ROUNDS | GRAD | VIA_BACKWARD, DT_16, .call = linear_f8_twice, .in = {F(16, 32), F(32, 32)}, .roundings = 2},
    {"another shape", 0, DT_16, .call = matmul_f8_acc_call, .in = {K(16, 32), K(16, 32), K(48, 32)}, .error = "the sum has another shape than the product"},
    END};

/* ---- blocks.c ---- */

static bool blocks_of(const struct sample *s, tl_tensor *weight, tl_quantized *q) {
    bool grad = tl_set_grad_mode(false), ok = tl_quantize(weight, (tl_format)s->n[0], TL_NEAREST, q);
    tl_set_grad_mode(grad);
    return ok;
}
/* x, a weight that is quantized [, bias]; n: the format */
CALL(blocks_call) {
    tl_quantized q;
    return blocks_of(s, in[1], &q) ? one(out, linear_quantized(in[0], &q, s->in[2].kind ? in[2] : NULL)) : 0;
}
CALL(blocks_twin) {
    tl_quantized q;
    if (!blocks_of(s, in[1], &q)) return 0;
    return one(out, tl_linear(in[0], tl_dequantize(&q, run_dtype), s->in[2].kind ? in[2] : NULL));
}
/* A weight that is none of the format's. */
CALL(blocks_mixed) {
    tl_quantized q;
    if (!blocks_of(s, in[1], &q)) return 0;
    q.format = (tl_format)s->n[1];
    return one(out, linear_quantized(in[0], &q, NULL));
}
#define BLOCKS(flags_, format, ...) ROUNDS | (flags_), DT_TO_F8, .call = blocks_call, .n = {format}, .in = {__VA_ARGS__}
const struct sample samples_matmul_blocks[] = {
    /* multiply-adds and a product for each of 48 x 64 numbers of the weight */
    {"nf4", BLOCKS(GRAD, TL_NF4, F(9, 64), K(48, 64)), .twin = blocks_twin, .total_flops = 2 * 9 * 48 * 64 + 48 * 64},
    /* and one for each block of 16 */
    {"nvfp4, a stack of rows", BLOCKS(GRAD, TL_NVFP4, F(2, 5, 48), K(20, 48)), .twin = blocks_twin, .total_flops = 2 * 10 * 20 * 48 + 20 * 48 + 20 * 3},
    {"mxfp4, a few rows and a bias", BLOCKS(GRAD, TL_MXFP4, F(3, 64), K(24, 64), F(24)), .twin = blocks_twin, .roundings = 2},
    {"mxfp8, a bias", BLOCKS(GRAD, TL_MXFP8_E4M3, F(17, 96), K(40, 96), F(40)), .twin = blocks_twin, .roundings = 2},
    {"mxfp8 e5m2, a few columns", BLOCKS(GRAD, TL_MXFP8_E5M2, F(9, 32), K(3, 32)), .twin = blocks_twin},
    {"a vector", BLOCKS(GRAD, TL_NVFP4, F(64), K(40, 64)), .twin = blocks_twin},
    {"permuted", BLOCKS(GRAD, TL_NF4, IN(FLOAT, PERMUTED, 10, 64), IN(CONSTANT, PERMUTED, 16, 64)), .twin = blocks_twin},
    {"of constants", BLOCKS(0, TL_NF4, K(9, 128), K(5, 128)), .twin = blocks_twin},
    {"no rows", BLOCKS(GRAD, TL_NF4, F(0, 64), K(8, 64)), .twin = blocks_twin},
    {"no columns", BLOCKS(GRAD, TL_MXFP4, F(3, 32), K(0, 32)), .twin = blocks_twin},
    {"large nf4", BLOCKS(GRAD | LARGE, TL_NF4, F(130, 320), K(200, 320), F(200)), .roundings = 2},
    {"large nvfp4", BLOCKS(GRAD | LARGE, TL_NVFP4, F(70, 1552), K(130, 1552))},
    {"another length", 0, DT_TO_F8, .call = blocks_call, .n = {TL_NF4}, .in = {F(3, 32), K(8, 64)}, .error = "rows of 32 numbers and a weight of 8x64 cannot be multiplied"},
    {"another format", 0, DT_TO_F8, .call = blocks_mixed, .n = {TL_MXFP4, TL_MXFP8_E4M3}, .in = {F(3, 32), K(8, 32)}, .error = "mxfp8_e4m3 has f8e4m3 values and f8e8m0 scales"},
    {"a scalar", 0, DT_TO_F8, .call = blocks_call, .n = {TL_NF4}, .in = {SCALAR(FLOAT), K(8, 64)}, .error = "needs dense rows"},
    {"f64", 0, DT(TL_F64), .call = blocks_call, .n = {TL_NF4}, .in = {F(3, 64), K(8, 64)}, .error = "not implemented for float64"},
    END};

/* ---- mlp.c ---- */

/* x, up, down [, up_bias, down_bias] */
CALL(gelu_mlp_call) {
    bool has_biases = s->in[3].kind != IN_NONE;
    return one(out, gelu_mlp(in[0], in[1], has_biases ? in[3] : NULL, in[2], has_biases ? in[4] : NULL));
}
/* x, gate, up, down */
CALL(swiglu_mlp_call) {
    (void)s;
    return one(out, swiglu_mlp(in[0], in[1], in[2], in[3]));
}
const struct sample samples_gelu_mlp[] = {
    {"a layer", GRAD, .call = gelu_mlp_call, .in = {F(3, 4), F(6, 4), F(5, 6)}, .roundings = 3},
    {"with biases, of a stack of rows", GRAD, .call = gelu_mlp_call, .in = {F(2, 3, 4), F(5, 4), F(4, 5), F(5), F(4)}, .roundings = 5},
    {"permuted", GRAD, .call = gelu_mlp_call, .in = {IN(FLOAT, PERMUTED, 3, 4), IN(FLOAT, PERMUTED, 6, 4), F(5, 6)}, .roundings = 3},
    {"of constants", 0, .call = gelu_mlp_call, .in = {K(3, 4), K(6, 4), K(5, 6), K(6), K(5)}, .roundings = 5},
    {"only down needs a gradient", GRAD, .call = gelu_mlp_call, .in = {K(3, 4), K(6, 4), F(5, 6)}, .roundings = 3},
    {"only up's bias needs a gradient", GRAD, .call = gelu_mlp_call, .in = {K(3, 4), K(6, 4), K(5, 6), F(6), K(5)}, .roundings = 5},
    {"no rows", GRAD, .call = gelu_mlp_call, .in = {F(0, 4), F(6, 4), F(5, 6), F(6), F(5)}, .roundings = 5},
    {"multiples of 8", GRAD | LARGE, .call = gelu_mlp_call, .in = {F(70, 24), F(40, 24), F(16, 40), F(40), F(16)}, .roundings = 5},
    {"several tiles", GRAD | LARGE, .call = gelu_mlp_call, .in = {F(3, 131, 72), F(264, 72), F(136, 264), F(264), F(136)}, .roundings = 5},
    {"several tiles of constants", LARGE, .call = gelu_mlp_call, .in = {K(300, 72), K(264, 72), K(136, 264)}, .roundings = 3},
    {"another length", 0, .call = gelu_mlp_call, .in = {F(3, 4), F(6, 5), F(5, 6)}, .error = "the sizes do not fit"},
    END};
const struct sample samples_swiglu_mlp[] = {
    {"a layer", GRAD, .call = swiglu_mlp_call, .in = {F(3, 4), F(6, 4), F(6, 4), F(5, 6)}, .roundings = 4},
    {"of a stack of rows", GRAD, .call = swiglu_mlp_call, .in = {F(2, 3, 4), F(5, 4), F(5, 4), F(4, 5)}, .roundings = 4},
    {"of constants", 0, .call = swiglu_mlp_call, .in = {K(3, 4), K(6, 4), K(6, 4), K(5, 6)}, .roundings = 4},
    {"only the gate needs a gradient", GRAD, .call = swiglu_mlp_call, .in = {K(3, 4), F(6, 4), K(6, 4), K(5, 6)}, .roundings = 4},
    {"no rows", GRAD, .call = swiglu_mlp_call, .in = {F(0, 4), F(6, 4), F(6, 4), F(5, 6)}, .roundings = 4},
    {"several tiles", GRAD | LARGE, .call = swiglu_mlp_call, .in = {F(3, 131, 72), F(264, 72), F(264, 72), F(136, 264)}, .roundings = 4},
    {"several tiles of constants", LARGE, .call = swiglu_mlp_call, .in = {K(300, 72), K(264, 72), K(264, 72), K(136, 264)}, .roundings = 4},
    {"another length", 0, .call = swiglu_mlp_call, .in = {F(3, 4), F(6, 4), F(6, 5), F(5, 6)}, .error = "the sizes do not fit"},
    END};

/* g, down, and what is overwritten; n: the sums */
static int mlp_grad(const tl_op *op, const struct sample *s, tl_tensor **in, tl_tensor **out) {
    struct attr_mlp a = {.gives_sums = s->n[0]};
    tl_tensor *dense[4];
    int n = sample_input_count(s);
    for (int i = 0; i < n; i++) dense[i] = i < 2 ? tl_contiguous(in[i]) : tl_clone(in[i]);
    tl_call c;
    call_begin(&c, op, dense, n, ATTR(a));
    if (!op_apply(&c)) return 0;
    for (int j = 0; j < c.n_outputs; j++) out[j] = c.output[j];
    return c.n_outputs;
}
CALL(gelu_mlp_grad_call) { return mlp_grad(&op_gelu_mlp_grad, s, in, out); }
CALL(swiglu_mlp_grad_call) { return mlp_grad(&op_swiglu_mlp_grad, s, in, out); }
const struct sample samples_gelu_mlp_grad[] = {
    {"plain", 0, .call = gelu_mlp_grad_call, .in = {K(3, 4), K(4, 6), K(3, 6)}, .roundings = 2},
    {"sums", 0, .call = gelu_mlp_grad_call, .in = {K(3, 4), K(4, 6), K(3, 6)}, .n = {true}, .roundings = 2},
    {"no rows", 0, .call = gelu_mlp_grad_call, .in = {K(0, 4), K(4, 6), K(0, 6)}, .n = {true}, .roundings = 2},
    {"by way of backward", GRAD | VIA_BACKWARD, .call = gelu_mlp_call, .in = {F(3, 4), F(6, 4), F(5, 6), F(6), F(5)}, .roundings = 5},
    {"several tiles", LARGE, .call = gelu_mlp_grad_call, .in = {K(2, 150, 72), K(72, 264), K(2, 150, 264)}, .n = {true}, .roundings = 2},
    {"another length", 0, .call = gelu_mlp_grad_call, .in = {K(3, 4), K(4, 6), K(3, 5)}, .error = "the sizes do not fit"},
    END};
const struct sample samples_swiglu_mlp_grad[] = {
    {"plain", 0, .call = swiglu_mlp_grad_call, .in = {K(3, 4), K(4, 6), K(3, 6), K(3, 6)}, .roundings = 2},
    {"no rows", 0, .call = swiglu_mlp_grad_call, .in = {K(0, 4), K(4, 6), K(0, 6), K(0, 6)}, .roundings = 2},
    {"by way of backward", GRAD | VIA_BACKWARD, .call = swiglu_mlp_call, .in = {F(3, 4), F(6, 4), F(6, 4), F(5, 6)}, .roundings = 4},
    {"several tiles", LARGE, .call = swiglu_mlp_grad_call, .in = {K(300, 72), K(72, 264), K(300, 264), K(300, 264)}, .roundings = 2},
    {"another length", 0, .call = swiglu_mlp_grad_call, .in = {K(3, 4), K(4, 6), K(3, 6), K(3, 5)}, .error = "the sizes do not fit"},
    END};

/* ---- norm.c ---- */

CALL(layer_norm_call) { return one(out, tl_layer_norm(in[0], s->in[1].kind ? in[1] : NULL, s->in[2].kind ? in[2] : NULL, 1e-5)); }
CALL(rms_norm_call) { return one(out, tl_rms_norm(in[0], s->in[1].kind ? in[1] : NULL, 1e-5)); }
const struct sample samples_layer_norm[] = {
    {"weighted", GRAD, .call = layer_norm_call, .in = {F(3, 6), F(6), F(6)}},
    {"plain", GRAD, .call = layer_norm_call, .in = {F(3, 6)}},
    {"one vector", GRAD, .call = layer_norm_call, .in = {F(5), F(5), F(5)}},
    {"no rows", GRAD, .call = layer_norm_call, .in = {F(0, 5), F(5), F(5)}},
    {"permuted, three axes", GRAD, .call = layer_norm_call, .in = {IN(FLOAT, PERMUTED, 2, 3, 4), IN(FLOAT, SLICED, 4), IN(FLOAT, REVERSED, 4)}},
    {"expanded", GRAD, .call = layer_norm_call, .in = {IN(FLOAT, EXPANDED, 3, 6), F(6), F(6)}},
    {"large", LARGE | GRAD, .call = layer_norm_call, .in = {F(130, 97), F(97), F(97)}},
    {"weight of another size", 0, .call = layer_norm_call, .in = {F(3, 6), F(5), F(5)}, .error = "weights must have the size of the last axis"},
    {"weight alone", 0, .call = layer_norm_call, .in = {F(3, 6), F(6)}, .error = "weight and bias come together, or not at all"},
    {"scalar", 0, .call = layer_norm_call, .in = {SCALAR(FLOAT)}, .error = "layer_norm: needs at least one axis"},
    END};
const struct sample samples_rms_norm[] = {
    {"weighted", GRAD, .call = rms_norm_call, .in = {F(3, 6), F(6)}},
    {"plain", GRAD, .call = rms_norm_call, .in = {F(3, 6)}},
    {"rows of one", GRAD, .call = rms_norm_call, .in = {F(3, 1), F(1)}},
    {"no rows", GRAD, .call = rms_norm_call, .in = {F(0, 5), F(5)}},
    {"sliced", GRAD, .call = rms_norm_call, .in = {IN(FLOAT, SLICED, 2, 3, 4), IN(FLOAT, REVERSED, 4)}},
    {"large", LARGE | GRAD, .call = rms_norm_call, .in = {F(130, 97), F(97)}},
    {"weight of another size", 0, .call = rms_norm_call, .in = {F(3, 6), F(5)}, .error = "weights must have the size of the last axis"},
    END};

/* The gradient ops directly: g, x, statistics [, weight], every input of the run's dtype or its statistics' dtype. n:
 * with sums of columns; d: dropout */
static int grad_call(const tl_op *op, const struct sample *s, tl_tensor **in, tl_tensor **out) {
    struct attr_norm a;
    memset(&a, 0, sizeof a);
    a.eps = 1e-5;
    a.gives_sums = s->n[0];
    a.dropout = s->d[0];
    tl_tensor *dense[SAMPLE_INPUTS];
    int n = sample_input_count(s);
    for (int i = 0; i < n; i++) dense[i] = tl_contiguous(in[i]);
    tl_call c;
    call_begin(&c, op, dense, n, ATTR(a));
    if (!op_apply(&c)) return 0;
    for (int j = 0; j < c.n_outputs; j++) out[j] = c.output[j];
    return c.n_outputs;
}
CALL(layer_norm_grad_call) { return grad_call(&op_layer_norm_grad, s, in, out); }
CALL(rms_norm_grad_call) { return grad_call(&op_rms_norm_grad, s, in, out); }
const struct sample samples_layer_norm_grad[] = {
    {"weighted", 0, .call = layer_norm_grad_call, .in = {K(3, 6), K(3, 6), IN(STATE, DENSE, 3), IN(STATE, DENSE, 3), K(6)}},
    {"plain", 0, .call = layer_norm_grad_call, .in = {K(3, 6), K(3, 6), IN(STATE, DENSE, 3), IN(STATE, DENSE, 3)}},
    {"no rows", 0, .call = layer_norm_grad_call, .in = {K(0, 6), K(0, 6), IN(STATE, DENSE, 0), IN(STATE, DENSE, 0), K(6)}},
    {"sums", 0, .call = layer_norm_grad_call, .in = {K(3, 6), K(3, 6), IN(STATE, DENSE, 3), IN(STATE, DENSE, 3), K(6)}, .n = {true}, .roundings = 2},
    {"sums without weights", LARGE, .call = layer_norm_grad_call, .in = {K(300, 264), K(300, 264), IN(STATE, DENSE, 300), IN(STATE, DENSE, 300)}, .n = {true}, .roundings = 2},
    {"rows that share a warp", LARGE, .call = layer_norm_grad_call, .in = {K(301, 72), K(301, 72), IN(STATE, DENSE, 301), IN(STATE, DENSE, 301), K(72)}, .n = {true}, .roundings = 2},
    {"by way of backward", GRAD | VIA_BACKWARD, .call = layer_norm_call, .in = {F(2, 5), F(5), F(5)}},
    {"more rows than runs", LARGE, .call = layer_norm_grad_call, .in = {K(200, 33), K(200, 33), IN(STATE, DENSE, 200), IN(STATE, DENSE, 200), K(33)}},
    END};
const struct sample samples_rms_norm_grad[] = {
    {"weighted", 0, .call = rms_norm_grad_call, .in = {K(3, 6), K(3, 6), IN(STATE, DENSE, 3), K(6)}},
    {"plain", 0, .call = rms_norm_grad_call, .in = {K(3, 6), K(3, 6), IN(STATE, DENSE, 3)}},
    {"sums", 0, .call = rms_norm_grad_call, .in = {K(3, 6), K(3, 6), IN(STATE, DENSE, 3), K(6)}, .n = {true}, .roundings = 2},
    {"sums without rows", 0, .call = rms_norm_grad_call, .in = {K(0, 6), K(0, 6), IN(STATE, DENSE, 0)}, .n = {true}, .roundings = 2},
    {"by way of backward", GRAD | VIA_BACKWARD, .call = rms_norm_call, .in = {F(2, 5), F(5)}},
    {"more rows than runs", LARGE, .call = rms_norm_grad_call, .in = {K(200, 33), K(200, 33), IN(STATE, DENSE, 200), K(33)}},
    END};

/* ---- token.c ---- */

static tl_tensor *embedding_outside(tl_tensor *w) { return tl_embedding(w, tl_full(TL_SHAPE(2), 7, TL_I64, NULL)); }
const struct sample samples_embedding[] = {
    {"ids in a matrix", GRAD, .binary = tl_embedding, .in = {F(5, 3), IDS(5, 2, 4)}},
    {"one id, i32", GRAD, .binary = tl_embedding, .in = {F(5, 3), {.kind = IN_INDEX32, .limit = 5}}},
    {"no ids", GRAD, .binary = tl_embedding, .in = {F(5, 3), IDS(5, 0)}},
    {"a table of one", GRAD, .binary = tl_embedding, .in = {F(1, 3), IDS32(1, 4)}},
    {"strided ids and table", GRAD, .binary = tl_embedding, .in = {IN(FLOAT, PERMUTED, 5, 3), {.kind = IN_INDEX, .layout = LAY_SLICED, DIMS(2, 3), .limit = 5}}},
    {"large", LARGE | GRAD, .binary = tl_embedding, .in = {F(101, 64), IDS(101, 700)}},
    {"many ids of few rows", LARGE | GRAD, .binary = tl_embedding, .in = {F(37, 40), IDS(37, 5000)}},
    {"many ids of few odd rows", LARGE | GRAD, .binary = tl_embedding, .in = {F(5, 11), IDS(5, 4100)}},
    {"float ids", 0, .binary = tl_embedding, .in = {F(5, 3), F(2)}, .error = "ids must be i64 or i32"},
    {"id outside", CPU_ONLY, .unary = embedding_outside, .in = {F(5, 3)}, .error = "id 7 is outside [0, 5)"},
    END};
CALL(embedding_grad_call) {
    struct attr_embedding a = {s->n[0]};
    return one(out, op_apply2(&op_embedding_grad, tl_contiguous(in[0]), tl_contiguous(in[1]), ATTR(a)));
}
const struct sample samples_embedding_grad[] = {
    {"rows that meet", 0, .call = embedding_grad_call, .in = {K(9, 3), IDS(4, 9)}, .n = {4}},
    {"no rows", 0, .call = embedding_grad_call, .in = {K(0, 3), IDS(4, 0)}, .n = {4}},
    {"i32", 0, .call = embedding_grad_call, .in = {K(2, 3), IDS32(4, 2)}, .n = {4}},
    {"by way of backward", GRAD | VIA_BACKWARD, .binary = tl_embedding, .in = {F(4, 2), IDS(4, 2, 3)}},
    {"large", LARGE, .call = embedding_grad_call, .in = {K(700, 64), IDS(101, 700)}, .n = {101}},
    END};

CALL(embedding_acc_call) {
    (void)s;
    tl_tensor *sum = tl_clone(in[0]), *g = tl_contiguous(in[1]), *ids = tl_contiguous(in[2]);
    tl_tensor *input[3] = {sum, g, ids};
    tl_call c;
    call_begin(&c, &op_embedding_acc, input, 3, NULL, 0);
    return one(out, op_apply(&c));
}
/* A table that is the head's weight too. */
CALL(embedding_tied) {
    (void)s;
    return one(out, tl_linear(tl_embedding(in[0], in[1]), in[0], NULL));
}
const struct sample samples_embedding_acc[] = {
    {"rows that meet", GRAD, .call = embedding_acc_call, .in = {F(4, 3), F(9, 3), IDS(4, 9)}},
    {"no rows", GRAD, .call = embedding_acc_call, .in = {F(4, 3), F(0, 3), IDS(4, 0)}},
    {"i32", GRAD, .call = embedding_acc_call, .in = {F(4, 3), F(2, 3), IDS32(4, 2)}},
    {"by way of backward", GRAD | VIA_BACKWARD | SUM_ORDER, .call = embedding_tied, .in = {F(4, 2), IDS(4, 2, 3)}},
    {"large", LARGE | GRAD, .call = embedding_acc_call, .in = {F(101, 64), F(700, 64), IDS(101, 700)}},
    {"another width", 0, .call = embedding_acc_call, .in = {F(4, 3), F(2, 5), IDS(4, 2)}, .error = "the sum has other rows than the gradient"},
    END};

CALL(cross_entropy_rows) {
    (void)s;
    tl_tensor *input[2] = {tl_contiguous(in[0]), tl_contiguous(in[1])};
    tl_call c;
    call_begin(&c, &op_cross_entropy, input, 2, NULL, 0);
    if (!op_apply(&c)) return 0;
    out[0] = c.output[0];
    out[1] = c.output[1];
    return 2;
}
static tl_tensor *mean_cross_entropy(tl_tensor *x, tl_tensor *t) { return tl_cross_entropy(x, t, NULL); }
static tl_tensor *target_outside(tl_tensor *x) { return tl_cross_entropy(x, tl_full(TL_SHAPE(2), -1, TL_I64, NULL), NULL); }
/* n: reduction, whether there is a weight (input 2), ignore_index; d: smoothing */
CALL(options_call) {
    tl_cross_entropy_options o = tl_cross_entropy_defaults();
    o.reduction = (tl_reduction)s->n[0], o.weight = s->n[1] ? in[2] : NULL, o.label_smoothing = s->d[0];
    if (s->n[2]) o.ignore_index = s->n[2];
    return one(out, s->n[3] ? tl_cross_entropy(in[0], in[1], &o) : tl_nll_loss(in[0], in[1], &o));
}
const struct sample samples_cross_entropy[] = {
    {"rows, some left out", GRAD, .call = options_call, .in = {F(9, 3), IDS32(3, 9)}, .n = {TL_REDUCE_NONE, 0, 1, true}},
    {"mean, some left out", GRAD, .call = options_call, .in = {F(9, 3), IDS(3, 9)}, .n = {TL_REDUCE_MEAN, 0, 1, true}, .roundings = 2},
    {"sum, some left out", GRAD, .call = options_call, .in = {F(9, 3), IDS32(3, 9)}, .n = {TL_REDUCE_SUM, 0, 2, true}, .roundings = 2},
    {"weighted mean, some left out", GRAD, .call = options_call, .in = {F(9, 3), IDS(3, 9), IN(POSITIVE, DENSE, 3)}, .n = {TL_REDUCE_MEAN, 1, 2, true}, .roundings = 2},
    {"weighted sum", GRAD, .call = options_call, .in = {IN(FLOAT, PERMUTED, 4, 5), IDS(5, 4), IN(POSITIVE, REVERSED, 5)}, .n = {TL_REDUCE_SUM, 1, 0, true}, .roundings = 2},
    {"mean", GRAD, .binary = mean_cross_entropy, .in = {F(4, 5), IDS(5, 4)}, .roundings = 2},
    {"rows and lse", GRAD, .call = cross_entropy_rows, .in = {F(4, 5), IDS32(5, 4)}},
    {"one class", GRAD, .binary = mean_cross_entropy, .in = {F(3, 1), IDS(1, 3)}},
    {"no rows", GRAD, .call = cross_entropy_rows, .in = {F(0, 5), IDS(5, 0)}},
    {"permuted logits, reversed targets", GRAD, .binary = mean_cross_entropy, .in = {IN(FLOAT, PERMUTED, 4, 5), {.kind = IN_INDEX, .layout = LAY_REVERSED, DIMS(4), .limit = 5}}, .roundings = 2},
    {"large", LARGE | GRAD, .binary = mean_cross_entropy, .in = {F(90, 611), IDS(611, 90)}, .roundings = 2},
    {"one row alone", GRAD, .binary = mean_cross_entropy, .in = {F(5), {.kind = IN_INDEX, .limit = 5}}, .roundings = 2},
    {"classes inside", GRAD, .binary = mean_cross_entropy, .in = {F(2, 5, 3), IDS(5, 2, 3)}, .roundings = 2},
    {"classes inside, permuted", GRAD, .binary = mean_cross_entropy, .in = {IN(FLOAT, PERMUTED, 2, 3, 2, 2), {.kind = IN_INDEX, .layout = LAY_REVERSED, DIMS(2, 2, 2), .limit = 3}}, .roundings = 2},
    {"classes inside, weighted, some left out", GRAD, .call = options_call, .in = {F(2, 3, 4), IDS(3, 2, 4), IN(POSITIVE, DENSE, 3)}, .n = {TL_REDUCE_NONE, 1, 2, true}, .roundings = 2},
    {"classes inside, no rows", GRAD, .call = options_call, .in = {F(2, 3, 0), IDS(3, 2, 0)}, .n = {TL_REDUCE_SUM, 0, 0, true}},
    {"one target too few", 0, .binary = mean_cross_entropy, .in = {F(4, 5), IDS(5, 3)}, .error = "one target per row"},
    {"targets of another shape", 0, .binary = mean_cross_entropy, .in = {F(2, 5, 3), IDS(5, 3, 2)}, .error = "one target per row"},
    {"probabilities of another shape", 0, .binary = mean_cross_entropy, .in = {F(2, 5, 3), F(2, 3)}, .error = "probabilities must have the shape of the logits"},
    {"no classes", 0, .binary = mean_cross_entropy, .in = {SCALAR(FLOAT), {.kind = IN_INDEX, .limit = 1}}, .error = "logits have an axis of classes"},
    {"target outside", CPU_ONLY, .unary = target_outside, .in = {F(2, 5)}, .error = "-1 is outside [0, 5)"},
    END};
CALL(cross_entropy_grad_call) {
    (void)s;
    tl_tensor *input[4] = {tl_contiguous(in[0]), tl_contiguous(in[1]), tl_contiguous(in[2]), tl_contiguous(in[3])};
    tl_call c;
    call_begin(&c, &op_cross_entropy_grad, input, 4, NULL, 0);
    return one(out, op_apply(&c));
}
const struct sample samples_cross_entropy_grad[] = {
    {"rows", 0, .call = cross_entropy_grad_call, .in = {IN(STATE, DENSE, 4), K(4, 5), IDS(5, 4), IN(STATE, DENSE, 4)}},
    {"no rows", 0, .call = cross_entropy_grad_call, .in = {IN(STATE, DENSE, 0), K(0, 5), IDS(5, 0), IN(STATE, DENSE, 0)}},
    {"by way of backward", GRAD | VIA_BACKWARD, .binary = mean_cross_entropy, .in = {F(3, 4), IDS(4, 3)}, .roundings = 2},
    {"large", LARGE, .call = cross_entropy_grad_call, .in = {IN(STATE, DENSE, 90), K(90, 611), IDS(611, 90), IN(STATE, DENSE, 90)}},
    END};

/* ---- attention.c ---- */

CALL(rope_call) { return one(out, tl_rope(in[0], s->d[0], s->n[0], NULL)); }
CALL(rope_scaled_call) {
    return one(out, tl_rope(in[0], s->d[0], s->n[0], &(tl_rope_scaling){.factor = s->d[1], .low_frequency = 1, .high_frequency = 4, .original_context = s->n[1], .rule = s->n[2], .size = s->n[3], .magnitude = s->d[2]}));
}
CALL(rope_at_call) {
    return one(out, tl_rope_at(in[0], s->d[0], in[1], s->d[1] ? &(tl_rope_scaling){.factor = s->d[1], .low_frequency = 1, .high_frequency = 4, .original_context = s->n[1], .rule = s->n[2], .size = s->n[3], .magnitude = s->d[2]} : NULL));
}
/* q, k, v, cache, place: q turned, and the cache behind it */
CALL(rope_put_call) {
    tl_tensor *cache = tl_clone(in[3]);
    out[0] = rope_put(in[0], in[1], in[2], cache, in[4], s->d[0], s->n[3] ? &(tl_rope_scaling){.size = s->n[3]} : NULL);
    out[1] = cache;
    return out[0] ? 2 : 0;
}
const struct sample samples_rope_put[] = {
    {"a token of each row", 0, .call = rope_put_call, .in = {K(2, 1, 4, 8), K(2, 1, 2, 8), K(2, 1, 2, 8), K(2, 2, 2, 5, 8), IDS(5, 2, 1)}, .d = {10000}},
    {"a part of each head", 0, .call = rope_put_call, .in = {K(3, 1, 2, 10), K(3, 1, 2, 10), K(3, 1, 2, 10), K(2, 3, 2, 4, 10), IDS32(4, 3, 1)}, .d = {100}, .n = {0, 0, 0, 4}},
    {"heads in packs", LARGE, .call = rope_put_call, .in = {K(5, 1, 12, 64), K(5, 1, 4, 64), K(5, 1, 4, 64), K(2, 5, 4, 70, 64), IDS(70, 5, 1)}, .d = {10000}},
    {"no rows", 0, .call = rope_put_call, .in = {K(0, 1, 4, 8), K(0, 1, 2, 8), K(0, 1, 2, 8), K(2, 0, 2, 5, 8), IDS(5, 0, 1)}, .d = {10000}},
    {"other heads", 0, .call = rope_put_call, .in = {K(2, 1, 4, 8), K(2, 1, 2, 8), K(2, 1, 2, 8), K(2, 2, 3, 5, 8), IDS(5, 2, 1)}, .d = {10000}, .error = "the sizes do not fit"},
    {"odd heads", 0, .call = rope_put_call, .in = {K(2, 1, 4, 7), K(2, 1, 2, 7), K(2, 1, 2, 7), K(2, 2, 2, 5, 7), IDS(5, 2, 1)}, .d = {10000}, .error = "rotates pairs"},
    END};
const struct sample samples_rope[] = {
    {"positions", GRAD, .call = rope_at_call, .in = {F(2, 3, 2, 4), IDS(50, 2, 3)}, .d = {10000}},
    {"positions, i32, reversed", GRAD, .call = rope_at_call, .in = {IN(FLOAT, PERMUTED, 2, 3, 2, 4), {.kind = IN_INDEX32, .layout = LAY_REVERSED, DIMS(2, 3), .limit = 5000}}, .d = {10000}},
    {"positions for all rows, a longer context", GRAD, .call = rope_at_call, .in = {F(2, 3, 2, 4), IDS(50, 1, 3)}, .d = {100, 8}, .n = {0, 64}},
    {"positions that rows share", GRAD, .call = rope_at_call, .in = {F(3, 4, 1, 4), {.kind = IN_INDEX, .layout = LAY_EXPANDED, DIMS(3, 4), .limit = 9}}, .d = {10000}},
    {"large positions", LARGE | GRAD, .call = rope_at_call, .in = {F(2, 60, 6, 48), IDS32(60, 2, 60)}, .d = {10000}},
    {"positions of floats", 0, .call = rope_at_call, .in = {F(2, 3, 2, 4), K(2, 3)}, .d = {10000}, .error = "rope"},
    {"positions of another shape", 0, .call = rope_at_call, .in = {F(2, 3, 2, 4), IDS(9, 2, 4)}, .d = {10000}, .error = "must match the existing size"},
    {"a longer context, linear", GRAD, .call = rope_scaled_call, .in = {F(1, 3, 2, 4)}, .d = {100, 8}, .n = {7}},
    {"a longer context, Llama 3's", GRAD, .call = rope_scaled_call, .in = {F(1, 3, 2, 12)}, .d = {100, 8}, .n = {7, 64}},
    {"a longer context, YaRN's", GRAD, .call = rope_scaled_call, .in = {F(1, 3, 2, 16)}, .d = {100, 8, 1.2}, .n = {7, 64, TL_ROPE_YARN}},
    {"a longer context, YaRN's, not rounded", GRAD, .call = rope_scaled_call, .in = {F(1, 3, 2, 16)}, .d = {100, 8, 1.2}, .n = {7, 64, TL_ROPE_YARN_EXACT}},
    {"a part of each head", GRAD, .call = rope_scaled_call, .in = {IN(FLOAT, PERMUTED, 2, 3, 2, 10)}, .d = {100}, .n = {7, 0, 0, 4}},
    {"a part of each large head, turned longer", LARGE | GRAD, .call = rope_scaled_call, .in = {F(2, 33, 3, 64)}, .d = {1000, 0, 1.5}, .n = {0, 0, 0, 32}},
    {"more than a head", 0, .call = rope_scaled_call, .in = {F(1, 3, 2, 4)}, .d = {100}, .n = {0, 0, 0, 6}, .error = "more channels"},
    {"heads", GRAD, .call = rope_call, .in = {F(2, 3, 2, 4)}, .d = {10000}},
    {"later positions, other base", GRAD, .call = rope_call, .in = {F(1, 3, 1, 6)}, .d = {500000}, .n = {100}},
    {"no time", GRAD, .call = rope_call, .in = {F(2, 0, 2, 4)}, .d = {10000}},
    {"heads before time", GRAD, .call = rope_call, .in = {IN(FLOAT, PERMUTED, 2, 3, 2, 4)}, .d = {10000}},
    {"reversed", GRAD, .call = rope_call, .in = {IN(FLOAT, REVERSED, 2, 3, 2, 2)}, .d = {10000}},
    {"large", LARGE | GRAD, .call = rope_call, .in = {F(2, 60, 6, 48)}, .d = {10000}},
    {"odd head size", 0, .call = rope_call, .in = {F(1, 2, 1, 3)}, .d = {10000}, .error = "rotates pairs"},
    END};

/* n: causal, window, mask (input 3), lse alone, first keys (the next input); d: scale, dropout, soft cap */
static tl_attention_options attention_options(const struct sample *s, tl_tensor **in) {
    tl_attention_options o = tl_attention_defaults();
    o.causal = s->n[0];
    o.window = s->n[1];
    o.mask = s->n[2] ? in[3] : NULL;
    o.scale = s->d[0];
    o.dropout = s->d[1];
    o.soft_cap = s->d[2];
    o.first_key = s->n[4] ? in[s->n[2] ? 4 : 3] : NULL;
    return o;
}
CALL(attention_ex_call) {
    tl_attention_options o = attention_options(s, in);
    out[0] = tl_attention(in[0], in[1], in[2], &o, &out[1]);
    return out[0] ? 2 : 0;
}
/* Both results take part in the gradient, or lse alone. */
CALL(attention_lse_call) {
    tl_attention_options o = attention_options(s, in);
    tl_tensor *lse, *y = tl_attention(in[0], in[1], in[2], &o, &lse);
    if (!y || s->n[3]) return one(out, y ? lse : NULL);
    y = tl_sum_all(tl_mul(y, y));
    return one(out, tl_add(y, tl_sum_all(tl_mul(lse, lse))));
}
CALL(attention_call) { return one(out, tl_attention(in[0], in[1], in[2], &(tl_attention_options){.causal = s->n[0], .scale = s->d[0]}, NULL)); }
/* q, k and v are the heads of one tensor; n: causal, query heads, key heads, window. */
CALL(attention_packed_call) {
    tl_tensor *part[3];
    const int64_t heads[3] = {s->n[1], s->n[2], s->n[2]};
    if (!tl_split(in[0], 2, heads, 3, part)) return 0;
    return one(out, tl_attention(part[0], part[1], part[2], &(tl_attention_options){.causal = s->n[0], .window = s->n[3]}, NULL));
}
const struct sample samples_attention[] = {
    {"parts of one tensor", GRAD, .call = attention_packed_call, .in = {F(2, 4, 6, 3)}, .n = {true, 2, 2}},
    {"parts of one tensor, grouped heads", GRAD, .call = attention_packed_call, .in = {F(1, 5, 6, 2)}, .n = {false, 4, 1}},
    {"large parts of one tensor", LARGE | GRAD, .call = attention_packed_call, .in = {F(2, 120, 12, 32)}, .n = {true, 4, 4}},
    {"large parts of one tensor, grouped heads, window", LARGE | GRAD, .call = attention_packed_call, .in = {F(1, 150, 8, 64)}, .n = {true, 4, 2, 70}},
    {"causal", GRAD, .call = attention_call, .in = {F(2, 4, 2, 3), F(2, 4, 2, 3), F(2, 4, 2, 3)}, .n = {true}},
    {"all see all", GRAD, .call = attention_call, .in = {F(1, 3, 2, 4), F(1, 5, 2, 4), F(1, 5, 2, 4)}},
    {"grouped heads, scale given", GRAD, .call = attention_call, .in = {F(1, 3, 4, 2), F(1, 3, 2, 2), F(1, 3, 2, 2)}, .n = {true}, .d = {0.3}},
    {"one query, cached keys", GRAD, .call = attention_call, .in = {F(2, 1, 2, 2), F(2, 5, 1, 2), F(2, 5, 1, 2)}, .n = {true}},
    {"queries that see nothing", GRAD, .call = attention_call, .in = {F(1, 4, 1, 2), F(1, 2, 1, 2), F(1, 2, 1, 2)}, .n = {true}},
    {"no batch", GRAD, .call = attention_call, .in = {F(0, 4, 2, 2), F(0, 4, 2, 2), F(0, 4, 2, 2)}, .n = {true}},
    {"no time", GRAD, .call = attention_call, .in = {F(1, 0, 2, 2), F(1, 0, 2, 2), F(1, 0, 2, 2)}, .n = {true}},
    {"permuted, reversed, sliced", GRAD, .call = attention_call, .in = {IN(FLOAT, PERMUTED, 1, 4, 2, 2), IN(FLOAT, REVERSED, 1, 4, 2, 2), IN(FLOAT, SLICED, 1, 4, 2, 2)}, .n = {true}},
    {"keys of one batch for all", GRAD, .call = attention_call, .in = {F(2, 3, 1, 2), IN(FLOAT, EXPANDED, 2, 3, 1, 2), IN(FLOAT, EXPANDED, 2, 3, 1, 2)}, .n = {true}},
    {"window", GRAD, .call = attention_ex_call, .in = {F(1, 6, 2, 3), F(1, 6, 2, 3), F(1, 6, 2, 3)}, .n = {true, 3}},
    {"window of one, more keys", GRAD, .call = attention_ex_call, .in = {F(2, 3, 2, 2), F(2, 5, 1, 2), F(2, 5, 1, 2)}, .n = {true, 1}},
    {"window, queries that see nothing", GRAD, .call = attention_ex_call, .in = {F(1, 5, 1, 2), F(1, 3, 1, 2), F(1, 3, 1, 2)}, .n = {true, 2}},
    {"window larger than the keys", GRAD, .call = attention_ex_call, .in = {F(1, 3, 1, 2), F(1, 3, 1, 2), F(1, 3, 1, 2)}, .n = {true, 9}},
    {"mask of bools for all heads", GRAD, .call = attention_ex_call, .in = {F(2, 3, 2, 2), F(2, 4, 1, 2), F(2, 4, 1, 2), IN(BOOL, DENSE, 2, 1, 3, 4)}, .n = {false, 0, true}},
    {"mask of bools for all batches, causal", GRAD, .call = attention_ex_call, .in = {F(2, 4, 2, 2), F(2, 4, 2, 2), F(2, 4, 2, 2), IN(BOOL, PERMUTED, 1, 2, 4, 4)}, .n = {true, 0, true}},
    {"mask that is added, window", GRAD, .call = attention_ex_call, .in = {F(1, 4, 2, 2), F(1, 5, 2, 2), F(1, 5, 2, 2), IN(CONSTANT, REVERSED, 1, 2, 4, 5)}, .n = {true, 3, true}, .roundings = 2},
    {"mask of rank 2", GRAD, .call = attention_ex_call, .in = {F(2, 3, 1, 2), F(2, 3, 1, 2), F(2, 3, 1, 2), IN(CONSTANT, SLICED, 3, 3)}, .n = {false, 0, true}, .d = {0.4}},
    {"lse and result", GRAD, DT(TL_F64) | DT(TL_F32), .call = attention_lse_call, .in = {F(1, 3, 2, 2), F(1, 4, 1, 2), F(1, 4, 1, 2)}, .n = {true}},
    {"lse alone, masked", GRAD, DT(TL_F64) | DT(TL_F32), .call = attention_lse_call, .in = {F(2, 3, 2, 2), F(2, 3, 1, 2), F(2, 3, 1, 2), K(1, 1, 3, 3)}, .n = {false, 0, true, true}},
    {"dropout", GRAD, .call = attention_ex_call, .in = {F(2, 5, 2, 3), F(2, 5, 2, 3), F(2, 5, 2, 3)}, .n = {true}, .d = {0, 0.25}, .roundings = 2},
    {"dropout, grouped heads, more keys", GRAD, .call = attention_ex_call, .in = {F(2, 3, 4, 2), F(2, 7, 2, 2), F(2, 7, 2, 2)}, .d = {0.3, 0.5}, .roundings = 2},
    {"dropout, mask with a gradient, window", GRAD, .call = attention_ex_call, .in = {F(1, 4, 2, 2), F(1, 5, 2, 2), F(1, 5, 2, 2), F(1, 2, 4, 5)}, .n = {true, 3, true}, .d = {0, 0.25}, .roundings = 4},
    {"dropout, lse and result", GRAD, DT(TL_F64) | DT(TL_F32), .call = attention_lse_call, .in = {F(1, 3, 2, 2), F(1, 4, 1, 2), F(1, 4, 1, 2)}, .n = {true}, .d = {0, 0.5}},
    {"dropout, queries that see nothing", GRAD, .call = attention_ex_call, .in = {F(1, 4, 1, 2), F(1, 2, 1, 2), F(1, 2, 1, 2)}, .n = {true}, .d = {0, 0.25}, .roundings = 2},
    {"dropout, permuted, reversed, sliced", GRAD, .call = attention_ex_call, .in = {IN(FLOAT, PERMUTED, 1, 4, 2, 2), IN(FLOAT, REVERSED, 1, 4, 2, 2), IN(FLOAT, SLICED, 1, 4, 2, 2)}, .n = {true}, .d = {0, 0.25}, .roundings = 2},
    {"large dropout", LARGE | GRAD, .call = attention_ex_call, .in = {F(2, 120, 4, 32), F(2, 120, 2, 32), F(2, 120, 2, 32)}, .n = {true}, .d = {0, 0.2}, .roundings = 2},
    {"large dropout, wide head, window", LARGE | GRAD, .call = attention_ex_call, .in = {F(1, 130, 2, 150), F(1, 150, 1, 150), F(1, 150, 1, 150)}, .n = {false, 70}, .d = {0, 0.4}, .roundings = 2},
    {"dropout of all", 0, .call = attention_ex_call, .in = {F(1, 3, 1, 2), F(1, 3, 1, 2), F(1, 3, 1, 2)}, .d = {0, 1}, .error = "attention: dropout probability has to be in [0, 1), but got 1"},
    {"large window", LARGE | GRAD, .call = attention_ex_call, .in = {F(1, 230, 2, 16), F(1, 250, 1, 16), F(1, 250, 1, 16)}, .n = {true, 70}},
    {"large mask, wide head", LARGE | GRAD, .call = attention_ex_call, .in = {F(1, 120, 2, 150), F(1, 110, 1, 150), F(1, 110, 1, 150), IN(BOOL, DENSE, 1, 2, 120, 110)}, .n = {false, 0, true}},
    {"window to both sides", GRAD, .call = attention_ex_call, .in = {F(1, 6, 2, 3), F(1, 6, 1, 3), F(1, 6, 1, 3)}, .n = {false, 2}},
    {"window to both sides, more keys", GRAD, .call = attention_ex_call, .in = {F(2, 3, 2, 2), F(2, 6, 1, 2), F(2, 6, 1, 2)}, .n = {false, 1}},
    {"window to both sides, queries that see nothing", GRAD, .call = attention_ex_call, .in = {F(1, 6, 1, 2), F(1, 3, 1, 2), F(1, 3, 1, 2)}, .n = {false, 2}},
    {"window to both sides, larger than all", GRAD, .call = attention_ex_call, .in = {F(1, 3, 1, 2), F(1, 4, 1, 2), F(1, 4, 1, 2)}, .n = {false, INT64_MAX}},
    {"large window to both sides", LARGE | GRAD, .call = attention_ex_call, .in = {F(1, 230, 2, 16), F(1, 250, 1, 16), F(1, 250, 1, 16)}, .n = {false, 70}},
    {"mask with a gradient", GRAD, .call = attention_ex_call, .in = {F(1, 3, 2, 2), F(1, 4, 1, 2), F(1, 4, 1, 2), F(1, 2, 3, 4)}, .n = {true, 3, true}, .roundings = 2},
    {"mask for all with a gradient", GRAD, .call = attention_lse_call, .in = {F(2, 3, 2, 2), F(2, 3, 1, 2), F(2, 3, 1, 2), IN(FLOAT, REVERSED, 3, 1)}, .n = {false, 2, true}, .roundings = 4},
    {"a mask alone", GRAD, DT(TL_F64) | DT(TL_F32), .call = attention_lse_call, .in = {F(1, 3, 2, 0), F(1, 4, 1, 0), F(1, 4, 1, 0), F(1, 2, 3, 4)}, .n = {true, 0, true, true}},
    {"large mask with a gradient, wide head", LARGE | GRAD, .call = attention_ex_call, .in = {F(1, 120, 2, 150), F(1, 110, 1, 150), F(1, 110, 1, 150), F(2, 120, 110)}, .n = {true, 60, true}, .roundings = 2},
    {"first keys", GRAD, .call = attention_ex_call, .in = {F(2, 6, 2, 3), F(2, 6, 2, 3), F(2, 6, 2, 3), RISING(DENSE, 2, 2, 6)}, .n = {true, 0, false, false, true}},
    {"first keys, i32, grouped heads, more keys", GRAD, .call = attention_ex_call, .in = {F(2, 4, 4, 2), F(2, 7, 2, 2), F(2, 7, 2, 2), RISING32(REVERSED, 3, 2, 4)}, .n = {false, 0, false, false, true}, .d = {0.3}},
    {"first keys for all rows, window", GRAD, .call = attention_ex_call, .in = {F(2, 6, 2, 3), F(2, 6, 1, 3), F(2, 6, 1, 3), RISING(DENSE, 3, 6)}, .n = {true, 4, false, false, true}},
    {"first keys, queries that see nothing", GRAD, .call = attention_ex_call, .in = {F(2, 6, 1, 2), F(2, 6, 1, 2), F(2, 6, 1, 2), RISING(PERMUTED, 4, 2, 6)}, .n = {true, 0, false, false, true}},
    {"first keys, mask with a gradient, dropout", GRAD, .call = attention_ex_call, .in = {F(1, 4, 2, 2), F(1, 5, 2, 2), F(1, 5, 2, 2), F(1, 2, 4, 5), RISING(DENSE, 2, 1, 4)}, .n = {true, 0, true, false, true}, .d = {0, 0.25}, .roundings = 4},
    {"first keys, lse and result", GRAD, DT(TL_F64) | DT(TL_F32), .call = attention_lse_call, .in = {F(1, 4, 2, 2), F(1, 4, 1, 2), F(1, 4, 1, 2), RISING32(DENSE, 2, 1, 4)}, .n = {true, 0, false, false, true}},
    {"first keys, no time", GRAD, .call = attention_ex_call, .in = {F(2, 0, 2, 2), F(2, 0, 2, 2), F(2, 0, 2, 2), RISING(DENSE, 2, 2, 0)}, .n = {true, 0, false, false, true}},
    {"large first keys", LARGE | GRAD, .call = attention_ex_call, .in = {F(2, 150, 4, 32), F(2, 150, 2, 32), F(2, 150, 2, 32), RISING32(DENSE, 2, 2, 150)}, .n = {true, 0, false, false, true}},
    {"large first keys, dropout, window", LARGE | GRAD, .call = attention_ex_call, .in = {F(1, 200, 2, 64), F(1, 230, 1, 64), F(1, 230, 1, 64), RISING(SLICED, 3, 1, 200)}, .n = {true, 70, false, false, true}, .d = {0, 0.2}, .roundings = 2},
    {"large first keys, wide head, queries that see nothing", LARGE | GRAD, .call = attention_ex_call, .in = {F(1, 140, 2, 150), F(1, 140, 1, 150), F(1, 140, 1, 150), RISING(DENSE, 4, 1, 140)}, .n = {true, 0, false, false, true}},
    {"soft cap", GRAD, .call = attention_ex_call, .in = {F(2, 5, 2, 3), F(2, 5, 2, 3), F(2, 5, 2, 3)}, .n = {true}, .d = {1.5, 0, 0.8}, .roundings = 2},
    {"soft cap, one query, grouped heads", GRAD, .call = attention_ex_call, .in = {F(2, 1, 4, 2), F(2, 5, 1, 2), F(2, 5, 1, 2)}, .d = {0, 0, 0.5}, .roundings = 2},
    {"soft cap, queries that see nothing", GRAD, .call = attention_ex_call, .in = {F(1, 4, 1, 2), F(1, 2, 1, 2), F(1, 2, 1, 2)}, .n = {true}, .d = {0, 0, 0.5}, .roundings = 2},
    {"soft cap, mask with a gradient, dropout", GRAD, .call = attention_ex_call, .in = {F(1, 4, 2, 2), F(1, 5, 2, 2), F(1, 5, 2, 2), F(1, 2, 4, 5)}, .n = {true, 3, true}, .d = {0, 0.25, 0.7}, .roundings = 4},
    {"soft cap, lse and result", GRAD, DT(TL_F64) | DT(TL_F32), .call = attention_lse_call, .in = {F(1, 4, 2, 2), F(1, 4, 1, 2), F(1, 4, 1, 2)}, .n = {true}, .d = {0, 0, 0.6}},
    {"large soft cap, grouped heads, window", LARGE | GRAD, .call = attention_ex_call, .in = {F(2, 150, 4, 32), F(2, 150, 2, 32), F(2, 150, 2, 32)}, .n = {true, 70}, .d = {0, 0, 1.5}, .roundings = 2},
    {"large soft cap, wide head, first keys", LARGE | GRAD, .call = attention_ex_call, .in = {F(1, 140, 2, 150), F(1, 140, 1, 150), F(1, 140, 1, 150), RISING(DENSE, 4, 1, 140)}, .n = {true, 0, false, false, true}, .d = {0, 0, 1.5}, .roundings = 2},
    {"negative soft cap", 0, .call = attention_ex_call, .in = {F(1, 3, 1, 2), F(1, 3, 1, 2), F(1, 3, 1, 2)}, .d = {0, 0, -1}, .error = "a soft cap of -1 (need more than 0"},
    {"first keys that fall", CPU_ONLY, .call = attention_ex_call, .in = {F(1, 9, 1, 2), F(1, 9, 1, 2), F(1, 9, 1, 2), IN(I64, DENSE, 1, 9)}, .n = {true, 0, false, false, true}, .error = "(need values that do not decrease)"},
    {"first keys of floats", 0, .call = attention_ex_call, .in = {F(1, 3, 1, 2), F(1, 3, 1, 2), F(1, 3, 1, 2), K(1, 3)}, .n = {true, 0, false, false, true}, .error = "attention"},
    {"first keys of another shape", 0, .call = attention_ex_call, .in = {F(1, 3, 1, 2), F(1, 3, 1, 2), F(1, 3, 1, 2), IN(I64, DENSE, 1, 4)}, .n = {true, 0, false, false, true}, .error = "must match the existing size"},
    {"negative window", 0, .call = attention_ex_call, .in = {F(1, 3, 1, 2), F(1, 3, 1, 2), F(1, 3, 1, 2)}, .n = {false, -1}, .error = "a window of -1 (need a number of keys"},
    {"mask of another shape", 0, .call = attention_ex_call, .in = {F(2, 3, 1, 2), F(2, 4, 1, 2), F(2, 4, 1, 2), K(3, 3)}, .n = {false, 0, true}, .error = "must match the existing size"},
    {"mask of integers", 0, .call = attention_ex_call, .in = {F(1, 3, 1, 2), F(1, 3, 1, 2), F(1, 3, 1, 2), IN(I32, DENSE, 3, 3)}, .n = {false, 0, true}, .error = "not implemented for int32"},
    {"large", LARGE | GRAD, .call = attention_call, .in = {F(2, 120, 4, 32), F(2, 120, 2, 32), F(2, 120, 2, 32)}, .n = {true}},
    {"large, one query, cached keys", LARGE | GRAD, .call = attention_call, .in = {F(3, 1, 6, 40), F(3, 700, 2, 40), F(3, 700, 2, 40)}, .n = {true}},
    {"large, a few queries, mask, soft cap", LARGE | GRAD, .call = attention_ex_call, .in = {F(1, 5, 4, 150), F(1, 333, 1, 150), F(1, 333, 1, 150), IN(BOOL, DENSE, 1, 4, 5, 333)}, .n = {true, 0, true}, .d = {0, 0, 1.5}, .roundings = 2},
    {"ranks", 0, .call = attention_call, .in = {F(4, 2, 3), F(4, 2, 3), F(4, 2, 3)}, .error = "wrong ranks"},
    {"heads that do not divide", 0, .call = attention_call, .in = {F(1, 2, 3, 2), F(1, 2, 2, 2), F(1, 2, 2, 2)}, .error = "query heads must be a multiple of key heads"},
    END};
/* A gradient from the op's own results, as backward would compute it. */
CALL(attention_grad_call) {
    struct attr_attention a;
    memset(&a, 0, sizeof a);
    a.scale = 0.5;
    a.causal = s->n[0];
    tl_call c;
    call_begin(&c, &op_attention, in, 3, ATTR(a));
    if (!op_apply(&c)) return 0;
    tl_tensor *input[6] = {tl_contiguous(in[3]), in[0], in[1], in[2], c.output[0], c.output[1]};
    a.is_packed = s->n[1];
    a.gives_sums = s->n[2];
    call_begin(&c, &op_attention_grad, input, 6, ATTR(a));
    if (!op_apply(&c)) return 0;
    for (int j = 0; j < c.n_outputs; j++) out[j] = c.output[j];
    return c.n_outputs;
}
const struct sample samples_attention_grad[] = {
    {"packed", GEOMETRY, .call = attention_grad_call, .in = {K(2, 4, 2, 3), K(2, 4, 1, 3), K(2, 4, 1, 3), K(2, 4, 2, 3)}, .n = {true, true}, .roundings = 4},
    {"large, packed", LARGE | GEOMETRY, .call = attention_grad_call, .in = {K(2, 130, 4, 32), K(2, 130, 2, 32), K(2, 130, 2, 32), K(2, 130, 4, 32)}, .n = {true, true}, .roundings = 4},
    {"packed, with sums", GEOMETRY, .call = attention_grad_call, .in = {K(2, 4, 2, 3), K(2, 4, 1, 3), K(2, 4, 1, 3), K(2, 4, 2, 3)}, .n = {true, true, true}, .roundings = 6},
    {"large, with sums", LARGE | GEOMETRY, .call = attention_grad_call, .in = {K(2, 130, 4, 32), K(2, 130, 2, 32), K(2, 130, 2, 32), K(2, 130, 4, 32)}, .n = {true, true, true}, .roundings = 6},
    {"long heads, with sums", LARGE | GEOMETRY, .call = attention_grad_call, .in = {K(1, 200, 2, 104), K(1, 200, 2, 104), K(1, 200, 2, 104), K(1, 200, 2, 104)}, .n = {true, true, true}, .roundings = 6},
    {"causal", GEOMETRY, .call = attention_grad_call, .in = {K(2, 4, 2, 3), K(2, 4, 2, 3), K(2, 4, 2, 3), K(2, 4, 2, 3)}, .n = {true}, .roundings = 4},
    {"grouped heads", GEOMETRY, .call = attention_grad_call, .in = {K(1, 3, 4, 2), K(1, 5, 2, 2), K(1, 5, 2, 2), K(1, 3, 4, 2)}, .roundings = 4},
    {"no batch", GEOMETRY, .call = attention_grad_call, .in = {K(0, 4, 2, 3), K(0, 4, 2, 3), K(0, 4, 2, 3), K(0, 4, 2, 3)}, .n = {true}},
    {"by way of backward", GRAD | VIA_BACKWARD, .call = attention_call, .in = {F(1, 5, 2, 2), F(1, 5, 1, 2), F(1, 5, 1, 2)}, .n = {true}},
    {"large", LARGE | GEOMETRY, .call = attention_grad_call, .in = {K(2, 120, 4, 32), K(2, 120, 2, 32), K(2, 120, 2, 32), K(2, 120, 4, 32)}, .n = {true}, .roundings = 4},
    END};

/* ---- dynamic.c ---- */

static int value(tl_tensor **out, double x) { return tl_error() == TL_OK ? one(out, tl_full(TL_SCALAR, x, run_dtype, NULL)) : 0; }
CALL(item_call) { return (void)s, value(out, tl_item(in[0])); }
CALL(at_call) { return value(out, tl_at(in[0], s->n)); }
const struct sample samples_item[] = {
    {"scalar", CPU_ONLY, .call = item_call, .in = {SCALAR(FLOAT)}},
    {"one element", CPU_ONLY, .call = item_call, .in = {F(1, 1, 1)}},
    {"at an index, permuted", CPU_ONLY, .call = at_call, .in = {IN(FLOAT, PERMUTED, 3, 4)}, .n = {2, 1}},
    {"many", CPU_ONLY, .call = item_call, .in = {F(2)}, .error = "a Tensor with 2 elements cannot be converted to Scalar"},
    END};
static tl_tensor *nonzero_of_relu(tl_tensor *x) { return tl_nonzero(tl_relu(x)); }
const struct sample samples_nonzero[] = {
    {"of floats", CPU_ONLY, .unary = nonzero_of_relu, .in = {F(4, 5)}},
    {"of integers", CPU_ONLY, .unary = tl_nonzero, .in = {IN(I32, REVERSED, 4, 5)}},
    {"of a scalar", CPU_ONLY, .unary = tl_nonzero, .in = {SCALAR(FLOAT)}},
    {"of nothing", CPU_ONLY, .unary = tl_nonzero, .in = {F(0, 3)}},
    {"large", CPU_ONLY | LARGE, .unary = nonzero_of_relu, .in = {F(200, 201)}},
    END};

/* ---- quantize.c ---- */

CALL(cast_mode_call) { return one(out, tl_round_to(in[0], (tl_dtype)s->n[0], (tl_rounding)s->n[1])); }
/* Every second row of an f4 tensor: rows with gaps between them. */
CALL(cast_mode_packed) {
    tl_tensor *packed = tl_cast(in[0], TL_F4E2M1);
    return one(out, tl_round_to(tl_slice(packed, 0, 0, TL_END, 2), (tl_dtype)s->n[0], (tl_rounding)s->n[1]));
}
const struct sample samples_cast_mode[] = {
    {"stochastic bf16", GRAD | ROUNDS, DT_FLOATS & ~DT(TL_BF16), .call = cast_mode_call, .in = {F(3, 4)}, .n = {TL_BF16, TL_STOCHASTIC}},
    {"stochastic f8e4m3, permuted", GRAD | ROUNDS, .call = cast_mode_call, .in = {IN(FLOAT, PERMUTED, 3, 4)}, .n = {TL_F8E4M3, TL_STOCHASTIC}},
    {"stochastic f4, reversed", GRAD | ROUNDS, .call = cast_mode_call, .in = {IN(FLOAT, REVERSED, 3, 4)}, .n = {TL_F4E2M1, TL_STOCHASTIC}},
    {"saturating f8e5m2, sliced", GRAD | ROUNDS, .call = cast_mode_call, .in = {IN(FLOAT, SLICED, 3, 4)}, .n = {TL_F8E5M2, TL_SATURATE}},
    {"saturating f16, scalar", GRAD | ROUNDS, DT_FLOATS & ~DT(TL_F16), .call = cast_mode_call, .in = {SCALAR(FLOAT)}, .n = {TL_F16, TL_SATURATE}},
    {"expanded", GRAD | ROUNDS, .call = cast_mode_call, .in = {IN(FLOAT, EXPANDED, 3, 4)}, .n = {TL_F8E4M3, TL_STOCHASTIC}},
    {"nothing", GRAD | ROUNDS, .call = cast_mode_call, .in = {F(0, 4)}, .n = {TL_F8E4M3, TL_STOCHASTIC}},
    {"integers", ROUNDS, .call = cast_mode_call, .in = {IN(I32, DENSE, 9)}, .n = {TL_F8E4M3, TL_STOCHASTIC}},
    {"of f4 with gaps", ROUNDS, .call = cast_mode_packed, .in = {K(5, 4)}, .n = {TL_F8E8M0, TL_STOCHASTIC}},
    {"large, f4", ROUNDS | LARGE, .call = cast_mode_call, .in = {IN(CONSTANT, SLICED, 90, 200)}, .n = {TL_F4E2M1, TL_STOCHASTIC}},
    {"odd number of f4", 0, .call = cast_mode_call, .in = {F(3, 3)}, .n = {TL_F4E2M1, TL_SATURATE}, .error = "two f4e2m1 share a byte"},
    {"no such mode", 0, .call = cast_mode_call, .in = {F(3)}, .n = {TL_F16, 3}, .error = "cast_mode: no rounding mode has the number 3"},
    {"no such dtype", 0, .call = cast_mode_call, .in = {F(3)}, .n = {99, TL_SATURATE}, .error = "no dtype has the number 99"},
    END};

CALL(quantize_call) {
    tl_quantized q;
    if (!tl_quantize(in[0], (tl_format)s->n[0], (tl_rounding)s->n[1], &q)) return 0;
    out[0] = q.values, out[1] = q.scales, out[2] = q.tensor_scale;
    return q.tensor_scale ? 3 : 2;
}
const struct sample samples_quantize[] = {
    {"mxfp8 e4m3", ROUNDS, DT_ARITHMETIC, .call = quantize_call, .in = {K(3, 64)}, .n = {TL_MXFP8_E4M3}},
    {"mxfp8 e5m2, stochastic", ROUNDS, .call = quantize_call, .in = {K(2, 2, 32)}, .n = {TL_MXFP8_E5M2, TL_STOCHASTIC}},
    {"mxfp4, permuted", ROUNDS, .call = quantize_call, .in = {IN(CONSTANT, PERMUTED, 3, 64)}, .n = {TL_MXFP4}},
    {"nvfp4, reversed, stochastic", ROUNDS, .call = quantize_call, .in = {IN(CONSTANT, REVERSED, 3, 48)}, .n = {TL_NVFP4, TL_STOCHASTIC}},
    {"nvfp4, sliced", ROUNDS, .call = quantize_call, .in = {IN(CONSTANT, SLICED, 2, 16)}, .n = {TL_NVFP4}},
    {"expanded", ROUNDS, .call = quantize_call, .in = {IN(CONSTANT, EXPANDED, 3, 32)}, .n = {TL_MXFP4, TL_SATURATE}},
    {"no rows", ROUNDS, .call = quantize_call, .in = {K(0, 32)}, .n = {TL_MXFP4}},
    {"no columns", ROUNDS, .call = quantize_call, .in = {K(3, 0)}, .n = {TL_NVFP4}},
    {"nf4, permuted", ROUNDS, .call = quantize_call, .in = {IN(CONSTANT, PERMUTED, 3, 128)}, .n = {TL_NF4}},
    {"nf4, sliced", ROUNDS, DT_ARITHMETIC, .call = quantize_call, .in = {IN(CONSTANT, SLICED, 2, 2, 64)}, .n = {TL_NF4, TL_SATURATE}},
    {"large nf4", ROUNDS | LARGE, .call = quantize_call, .in = {K(70, 320)}, .n = {TL_NF4}},
    {"nf4, stochastic", 0, .call = quantize_call, .in = {K(64)}, .n = {TL_NF4, TL_STOCHASTIC}, .error = "nf4 is rounded to nearest"},
    {"large mxfp8", ROUNDS | LARGE, .call = quantize_call, .in = {K(70, 320)}, .n = {TL_MXFP8_E4M3, TL_STOCHASTIC}},
    {"large nvfp4", ROUNDS | LARGE, .call = quantize_call, .in = {K(70, 320)}, .n = {TL_NVFP4}},
    {"a part of a block", 0, .call = quantize_call, .in = {K(3, 40)}, .n = {TL_MXFP4}, .error = "the last axis has 40 elements, mxfp4 has blocks of 32"},
    {"scalar", 0, .call = quantize_call, .in = {SCALAR(CONSTANT)}, .n = {TL_MXFP4}, .error = "a scalar has no blocks"},
    {"integers", 0, .call = quantize_call, .in = {IN(I32, DENSE, 32)}, .n = {TL_MXFP4}, .error = "not implemented for int32"},
    {"no such format", 0, .call = quantize_call, .in = {K(32)}, .n = {5}, .error = "quantize: no format has the number 5"},
    END};

CALL(fake_quantize_call) { return one(out, tl_fake_quantize(in[0], (tl_format)s->n[0], (tl_rounding)s->n[1])); }
CALL(there_and_back) {
    tl_quantized q;
    return tl_quantize(in[0], (tl_format)s->n[0], (tl_rounding)s->n[1], &q) ? one(out, tl_dequantize(&q, tl_dtype_of(in[0]))) : 0;
}
const struct sample samples_fake_quantize[] = {
    {"mxfp8 e4m3", ROUNDS | GRAD, DT_ARITHMETIC, .call = fake_quantize_call, .twin = there_and_back, .in = {F(3, 64)}, .n = {TL_MXFP8_E4M3}},
    {"mxfp8 e5m2, stochastic", ROUNDS | GRAD, .call = fake_quantize_call, .in = {F(2, 2, 32)}, .n = {TL_MXFP8_E5M2, TL_STOCHASTIC}},
    {"mxfp4, permuted", ROUNDS | GRAD, .call = fake_quantize_call, .twin = there_and_back, .in = {IN(FLOAT, PERMUTED, 3, 64)}, .n = {TL_MXFP4}},
    {"nvfp4, reversed, stochastic", ROUNDS | GRAD, .call = fake_quantize_call, .in = {IN(FLOAT, REVERSED, 3, 48)}, .n = {TL_NVFP4, TL_STOCHASTIC}},
    {"nvfp4, sliced", ROUNDS | GRAD, .call = fake_quantize_call, .twin = there_and_back, .in = {IN(FLOAT, SLICED, 2, 16)}, .n = {TL_NVFP4}},
    {"expanded", ROUNDS | GRAD, .call = fake_quantize_call, .twin = there_and_back, .in = {IN(FLOAT, EXPANDED, 3, 32)}, .n = {TL_MXFP4, TL_SATURATE}},
    {"nf4, sliced", ROUNDS | GRAD, .call = fake_quantize_call, .twin = there_and_back, .in = {IN(FLOAT, SLICED, 3, 128)}, .n = {TL_NF4}},
    {"no rows", ROUNDS | GRAD, .call = fake_quantize_call, .in = {F(0, 32)}, .n = {TL_MXFP4}},
    {"no columns", ROUNDS | GRAD, .call = fake_quantize_call, .in = {F(3, 0)}, .n = {TL_NVFP4}},
    {"large", ROUNDS | LARGE | GRAD, .call = fake_quantize_call, .in = {F(130, 320)}, .n = {TL_NVFP4, TL_STOCHASTIC}},
    {"a part of a block", 0, .call = fake_quantize_call, .in = {F(3, 40)}, .n = {TL_MXFP4}, .error = "the last axis has 40 elements, mxfp4 has blocks of 32"},
    {"no such format", 0, .call = fake_quantize_call, .in = {F(32)}, .n = {5}, .error = "fake_quantize: no format has the number 5"},
    {"no such mode", 0, .call = fake_quantize_call, .in = {F(32)}, .n = {0, 3}, .error = "fake_quantize: no rounding mode has the number 3"},
    END};
CALL(dequantize_call) {
    tl_quantized q;
    return tl_quantize(in[0], (tl_format)s->n[0], TL_NEAREST, &q) ? one(out, tl_dequantize(&q, (tl_dtype)s->n[1])) : 0;
}
/* The parts are views with gaps: the last rows of a longer one. */
CALL(dequantize_views) {
    tl_quantized q;
    if (!tl_quantize(in[0], (tl_format)s->n[0], TL_NEAREST, &q)) return 0;
    q.values = tl_slice(q.values, 0, 0, TL_END, 2);
    q.scales = tl_slice(q.scales, 0, 0, TL_END, 2);
    return one(out, tl_dequantize(&q, (tl_dtype)s->n[1]));
}
CALL(dequantize_mixed) {
    tl_quantized q;
    if (!tl_quantize(in[0], (tl_format)s->n[0], TL_NEAREST, &q)) return 0;
    q.format = (tl_format)s->n[1];
    return one(out, tl_dequantize(&q, TL_F32));
}
CALL(dequantize_short) {
    tl_quantized q;
    if (!tl_quantize(in[0], (tl_format)s->n[0], TL_NEAREST, &q)) return 0;
    q.scales = tl_slice(q.scales, 0, 1, TL_END, 1);
    return one(out, tl_dequantize(&q, TL_F32));
}
const struct sample samples_dequantize[] = {
    {"mxfp8 e4m3", ROUNDS, .call = dequantize_call, .in = {K(3, 64)}, .n = {TL_MXFP8_E4M3, TL_F32}},
    {"mxfp8 e5m2 to bf16", ROUNDS, .call = dequantize_call, .in = {K(2, 2, 32)}, .n = {TL_MXFP8_E5M2, TL_BF16}},
    {"mxfp4 to f64", ROUNDS, .call = dequantize_call, .in = {K(3, 64)}, .n = {TL_MXFP4, TL_F64}},
    {"nvfp4 to f16", ROUNDS, .call = dequantize_call, .in = {K(3, 48)}, .n = {TL_NVFP4, TL_F16}},
    {"nf4 to bf16", ROUNDS, .call = dequantize_call, .in = {K(3, 128)}, .n = {TL_NF4, TL_BF16}},
    {"large nf4", ROUNDS | LARGE, .call = dequantize_call, .in = {K(130, 320)}, .n = {TL_NF4, TL_F32}},
    {"views of f4", ROUNDS, .call = dequantize_views, .in = {K(5, 48)}, .n = {TL_NVFP4, TL_F32}},
    {"no rows", ROUNDS, .call = dequantize_call, .in = {K(0, 32)}, .n = {TL_MXFP4, TL_F32}},
    {"large", ROUNDS | LARGE, .call = dequantize_call, .in = {K(130, 320)}, .n = {TL_NVFP4, TL_BF16}},
    {"another format", 0, .call = dequantize_mixed, .in = {K(3, 32)}, .n = {TL_MXFP4, TL_MXFP8_E4M3}, .error = "mxfp8_e4m3 has f8e4m3 values and f8e8m0 scales"},
    {"too few scales", 0, .call = dequantize_short, .in = {K(3, 32)}, .n = {TL_MXFP4}, .error = "one scale per 32 values"},
    {"without its tensor scale", 0, .call = dequantize_mixed, .in = {K(3, 32)}, .n = {TL_MXFP4, TL_NVFP4}, .error = "dequantize: got NULL instead of a tensor"},
    {"to integers", 0, .call = dequantize_call, .in = {K(3, 32)}, .n = {TL_MXFP4, TL_I32}, .error = "needs a floating point dtype to compute with, not i32"},
    END};

/* ---- random.c ---- */

CALL(uniform_fill) { return one(out, tl_uniform_(tl_clone(in[0]), s->d[0], s->d[1])); }
CALL(normal_fill) { return one(out, tl_normal_(in[0], s->d[0], s->d[1])); }
CALL(bernoulli_fill) { return one(out, tl_bernoulli_(in[0], s->d[0])); }
CALL(trunc_normal_call) { return (void)in, one(out, tl_trunc_normal((int)s->n[0], s->n + 1, s->d[0], s->d[1], s->d[2], s->d[3], run_dtype, NULL)); }
CALL(normal_fill_part) {
    tl_tensor *x = tl_clone(in[0]);
    return tl_normal_(tl_select(x, -1, 1), s->d[0], s->d[1]) ? one(out, x) : 0;
}
const struct sample samples_random_fill[] = {
    {"uniform", NO_DATA, DT_ARITHMETIC, .call = uniform_fill, .in = {K(3, 5)}, .d = {-1, 2}},
    {"normal, permuted", NO_DATA | WRITES, .call = normal_fill, .in = {IN(CONSTANT, PERMUTED, 3, 5)}, .d = {0, 1}},
    {"normal into a column: the base sees it", NO_DATA | GRAD, .call = normal_fill_part, .in = {F(3, 4)}, .d = {0, 1}},
    {"bernoulli, sliced", NO_DATA | WRITES, .call = bernoulli_fill, .in = {IN(CONSTANT, SLICED, 3, 5)}, .d = {0.25}},
    {"bernoulli of integers", NO_DATA | WRITES, .call = bernoulli_fill, .in = {IN(I16, REVERSED, 3, 5)}, .d = {0.25}},
    {"truncated", NO_DATA, .call = trunc_normal_call, .n = {2, 3, 5}, .d = {0, 1, -2, 2}},
    {"scalar", NO_DATA | WRITES, .call = normal_fill, .in = {SCALAR(CONSTANT)}, .d = {0, 1}},
    {"nothing", NO_DATA | WRITES, .call = normal_fill, .in = {K(0, 3)}, .d = {0, 1}},
    {"large", NO_DATA | WRITES | LARGE, .call = normal_fill, .in = {IN(CONSTANT, PERMUTED, 201, 100)}, .d = {0, 1}},
    {"large truncated", NO_DATA | LARGE, .call = trunc_normal_call, .n = {1, 70001}, .d = {0, 1, 1, 4}},
    {"expanded", 0, .call = normal_fill, .in = {IN(CONSTANT, EXPANDED, 3, 4)}, .d = {0, 1}, .error = "more than one element of the written-to tensor refers to a single memory location"},
    {"normal integers", 0, .call = normal_fill, .in = {IN(I32, DENSE, 4)}, .d = {0, 1}, .error = "not implemented for int32"},
    {"negative deviation", 0, .call = normal_fill, .in = {K(4)}, .d = {0, -1}, .error = "normal_: std -1 is negative"},
    {"probability above 1", 0, .call = bernoulli_fill, .in = {K(4)}, .d = {1.5}, .error = "bernoulli_: probability 1.5 is not between 0 and 1"},
    {"empty range", 0, .call = trunc_normal_call, .n = {1, 4}, .d = {0, 1, 2, 2}, .error = "the range [2, 2] is empty"},
    {"range far out", 0, .call = trunc_normal_call, .n = {1, 4}, .d = {0, 1, 40, 41}, .error = "the range [40, 41] is more than 37 std from the mean"},
    {"no deviation", 0, .call = trunc_normal_call, .n = {1, 4}, .d = {0, 0, -1, 1}, .error = "a finite std above 0"},
    END};

CALL(dropout_call) { return one(out, tl_dropout(in[0], s->d[0])); }
const struct sample samples_dropout[] = {
    {"rows", GRAD, DT_ARITHMETIC, .call = dropout_call, .in = {F(3, 5)}, .d = {0.25}, .flops = 1},
    {"permuted", GRAD, .call = dropout_call, .in = {IN(FLOAT, PERMUTED, 3, 8)}, .d = {0.5}},
    {"expanded and sliced", GRAD, .call = dropout_call, .in = {IN(FLOAT, EXPANDED, 4, 8)}, .d = {0.1}},
    {"reversed", GRAD, .call = dropout_call, .in = {IN(FLOAT, REVERSED, 3, 8)}, .d = {0.9}},
    {"scalar", GRAD, .call = dropout_call, .in = {SCALAR(FLOAT)}, .d = {0.25}},
    {"nothing", GRAD, .call = dropout_call, .in = {F(0, 3)}, .d = {0.25}},
    {"large", LARGE | GRAD, .call = dropout_call, .in = {F(201, 104)}, .d = {0.2}},
    {"integers", 0, .call = dropout_call, .in = {IN(I32, DENSE, 4)}, .d = {0.5}, .error = "not implemented for int32"},
    {"probability 1", 0, .call = dropout_call, .in = {K(4)}, .d = {1}, .error = "dropout: probability has to be in [0, 1), but got 1"},
    END};

CALL(permutation_call) { return (void)in, one(out, tl_permutation(s->n[0], NULL)); }
const struct sample samples_permutation[] = {
    {"ten", NO_DATA, .call = permutation_call, .n = {10}},
    {"one", NO_DATA, .call = permutation_call, .n = {1}},
    {"none", NO_DATA, .call = permutation_call, .n = {0}},
    {"large", NO_DATA | LARGE, .call = permutation_call, .n = {20011}},
    {"fewer than none", 0, .call = permutation_call, .n = {-1}, .error = "permutation: -1 is negative or too large"},
    END};

CALL(multinomial_call) { return one(out, tl_multinomial(in[0], s->n[0], s->n[1])); }
CALL(multinomial_zeros) { return one(out, tl_multinomial(tl_zeros_like(in[0]), s->n[0], s->n[1])); }
const struct sample samples_multinomial[] = {
    {"with replacement", NO_DATA, DT_ARITHMETIC, .call = multinomial_call, .in = {IN(POSITIVE, DENSE, 3, 7)}, .n = {20, true}},
    {"without", NO_DATA, .call = multinomial_call, .in = {IN(POSITIVE, DENSE, 3, 7)}, .n = {4, false}},
    {"one row", NO_DATA, .call = multinomial_call, .in = {IN(POSITIVE, SLICED, 9)}, .n = {9, false}},
    {"permuted", NO_DATA, .call = multinomial_call, .in = {IN(POSITIVE, PERMUTED, 3, 7)}, .n = {5, true}},
    {"expanded", NO_DATA, .call = multinomial_call, .in = {IN(POSITIVE, EXPANDED, 3, 7)}, .n = {5, true}},
    {"no rows", NO_DATA, .call = multinomial_call, .in = {IN(POSITIVE, DENSE, 0, 7)}, .n = {5, true}},
    {"one category", NO_DATA, .call = multinomial_call, .in = {IN(POSITIVE, DENSE, 1)}, .n = {3, true}},
    {"large", NO_DATA | LARGE, .call = multinomial_call, .in = {IN(POSITIVE, REVERSED, 4, 5003)}, .n = {100, false}},
    {"no samples", 0, .call = multinomial_call, .in = {IN(POSITIVE, DENSE, 7)}, .n = {0, true}, .error = "cannot sample n_sample <= 0 samples"},
    {"more than there are", 0, .call = multinomial_call, .in = {IN(POSITIVE, DENSE, 7)}, .n = {8, false}, .error = "cannot sample n_sample > prob_dist.size(-1) samples without replacement"},
    {"rank 3", 0, .call = multinomial_call, .in = {IN(POSITIVE, DENSE, 2, 3, 7)}, .n = {2, true}, .error = "prob_dist must be 1 or 2 dim"},
    {"integers", 0, .call = multinomial_call, .in = {IN(U8, DENSE, 7)}, .n = {2, true}, .error = "not implemented for uint8"},
    {"negative weights", CPU_ONLY, .call = multinomial_call, .in = {K(64)}, .n = {2, true}, .error = "probability tensor contains either `inf`, `nan` or element < 0"},
    {"nothing to choose from", CPU_ONLY, .call = multinomial_zeros, .in = {K(7)}, .n = {2, true}, .error = "invalid multinomial distribution (sum of probabilities <= 0)"},
    END};

/* ---- fold.c ---- */

REDUCTION(min)
REDUCTION(prod)
REDUCTION(argmax)
REDUCTION(argmin)
REDUCTION(logsumexp)
const struct sample samples_min[] = {
    REDUCTIONS(min_call, DISTINCT),
    {"integers", 0, .call = min_call, .in = {IN(I32, SLICED, 3, 5)}, .n = {1, 1}},
    {"ties share the gradient", GRAD | ROUNDS, .call = min_call, .in = {IN(FLOAT, EXPANDED, 3, 4)}, .n = {1, 0}},
    {"large", LARGE | GRAD, .call = min_call, .in = {F(40, 1001)}, .n = {1, 1}},
    {"of nothing", 0, .call = min_call, .in = {F(3, 0)}, .n = {1, 1}, .error = "the minimum of no elements does not exist"},
    {"over rows of which there are none", GRAD, .call = min_call, .in = {F(0, 3)}, .n = {1, 1}},
    {"of nothing, nowhere", 0, .call = min_call, .in = {F(0, 0)}, .n = {1, 1}, .error = "the minimum of no elements does not exist"},
    END};
const struct sample samples_prod[] = {
    REDUCTIONS(prod_call, FLOAT),
    {"a b 2 -> b a", GRAD, .call = reduce_prod_call, .in = {IN(FLOAT, REVERSED, 2, 3, 2)}},
    {"expanded", GRAD, DT_ARITHMETIC, .call = prod_call, .in = {IN(FLOAT, EXPANDED, 3, 4)}, .n = {1, 1}},
    {"of nothing", GRAD, DT_ARITHMETIC, .call = prod_call, .in = {F(3, 0)}, .n = {1, 1}},
    {"bool", 0, .call = prod_call, .in = {IN(BOOL, DENSE, 3, 2)}, .n = {1, 1}},
    {"i16", 0, .call = prod_call, .in = {IN(I16, PERMUTED, 3, 5)}},
    {"several chunks", LARGE | GRAD, DT(TL_F64) | DT(TL_F32), .call = prod_call, .in = {F(3, 9000)}, .n = {1, 1}},
    {"columns of many rows", LARGE | GRAD, DT(TL_F64) | DT(TL_F32), .call = prod_call, .in = {F(5000, 17)}, .n = {1, 0}},
    END};

/* A place in a narrower dtype is that of another element only where two became equal: the samples' values are exact in all. */
#define PLACES(call_)                                                                                   \
    {"all", 0, .call = call_, .in = {IN(DISTINCT, DENSE, 3, 4)}},                                       \
    {"rows, kept", 0, .call = call_, .in = {IN(DISTINCT, DENSE, 3, 4)}, .n = {1, 1, [5] = true}},       \
    {"columns", 0, .call = call_, .in = {IN(DISTINCT, DENSE, 3, 4)}, .n = {1, 0}},                      \
    {"two of three axes", 0, .call = call_, .in = {IN(DISTINCT, PERMUTED, 2, 3, 4)}, .n = {2, 0, -1}},  \
    {"of a scalar", 0, .call = call_, .in = {SCALAR(FLOAT)}},                                           \
    {"of one element", 0, .call = call_, .in = {F(1, 1)}, .n = {1, 0}},                                 \
    {"equal ones: the first", 0, .call = call_, .in = {IN(U8, REVERSED, 3, 40)}, .n = {1, 1}},          \
    {"expanded", 0, .call = call_, .in = {IN(FLOAT, EXPANDED, 3, 4)}, .n = {1, 0}},                     \
    {"no outputs", 0, .call = call_, .in = {F(0, 3)}, .n = {1, 1}},                                     \
    {"several chunks", LARGE, .call = call_, .in = {F(2, 9000)}, .n = {1, 1}},                          \
    {"many rows", LARGE, .call = call_, .in = {IN(I32, SLICED, 500, 70)}, .n = {1, 1}},                 \
    {"of nothing", 0, .call = call_, .in = {F(3, 0)}, .n = {1, 1}, .error = "no elements, no place"},   \
    {"of bool", 0, .call = call_, .in = {IN(BOOL, DENSE, 3)}, .error = "not implemented for bool"}
const struct sample samples_argmax[] = {PLACES(argmax_call), END};
const struct sample samples_argmin[] = {PLACES(argmin_call), END};

CALL(var_call) { return one(out, tl_var(in[0], (int[]){(int)s->n[1], (int)s->n[2]}, (int)s->n[0], 1 - s->d[0], s->n[5])); }
CALL(std_call) { return one(out, tl_std(in[0], (int[]){(int)s->n[1], (int)s->n[2]}, (int)s->n[0], 1 - s->d[0], s->n[5])); }
const struct sample samples_var[] = {
    {"all", GRAD, .call = var_call, .in = {F(3, 4)}},
    {"rows, kept", GRAD, .call = var_call, .in = {F(3, 4)}, .n = {1, 1, [5] = true}},
    {"of the population", GRAD, .call = var_call, .in = {F(3, 4)}, .n = {1, 0}, .d = {1}},
    {"two of three axes", GRAD, .call = var_call, .in = {IN(FLOAT, PERMUTED, 2, 3, 4)}, .n = {2, 0, -1}},
    {"std", GRAD, .call = std_call, .in = {F(3, 4)}, .n = {1, 1}},
    {"std, reversed, kept", GRAD, .call = std_call, .in = {IN(FLOAT, REVERSED, 3, 4)}, .n = {1, 0, [5] = true}},
    {"std of sliced", GRAD, .call = std_call, .in = {IN(FLOAT, SLICED, 3, 4)}},
    {"expanded", GRAD, .call = var_call, .in = {IN(FLOAT, EXPANDED, 3, 4)}, .n = {1, 1}},
    {"of a scalar, population", GRAD, .call = var_call, .in = {SCALAR(FLOAT)}, .d = {1}},
    {"of one element: NaN", 0, .call = var_call, .in = {F(1, 1)}, .n = {1, 0}},
    {"of nothing: NaN", 0, .call = var_call, .in = {F(3, 0)}, .n = {1, 1}},
    {"no outputs", GRAD, .call = var_call, .in = {F(0, 3)}, .n = {1, 1}},
    {"several chunks", LARGE | GRAD, .call = var_call, .in = {F(3, 9000)}, .n = {1, 1}},
    {"many rows", LARGE | GRAD, .call = std_call, .in = {F(300, 101)}, .n = {1, 1}},
    {"of integers", 0, .call = var_call, .in = {IN(I32, DENSE, 3)}, .error = "not implemented for int32"},
    {"std, axis", 0, .call = std_call, .in = {F(3)}, .n = {1, 1}, .error = "std: Dimension out of range"},
    END};

CALL(norm_call) { return one(out, tl_norm(in[0], s->d[0], (int[]){(int)s->n[1], (int)s->n[2]}, (int)s->n[0], s->n[5])); }
const struct sample samples_norm[] = {
    {"2, all", GRAD, .call = norm_call, .in = {F(3, 4)}, .d = {2}},
    {"2, rows, kept", GRAD, .call = norm_call, .in = {F(3, 4)}, .n = {1, 1, [5] = true}, .d = {2}},
    {"1, columns", GRAD, .call = norm_call, .in = {F(3, 4)}, .n = {1, 0}, .d = {1}},
    {"0", 0, .call = norm_call, .in = {F(3, 4)}, .n = {1, 0}, .d = {0}},
    {"inf", GRAD, .call = norm_call, .in = {IN(DISTINCT, DENSE, 3, 4)}, .n = {1, 1}, .d = {INFINITY}},
    {"-inf", GRAD, .call = norm_call, .in = {IN(DISTINCT, DENSE, 3, 4)}, .n = {1, 1}, .d = {-INFINITY}},
    {"3, two of three axes", GRAD, .call = norm_call, .in = {IN(FLOAT, PERMUTED, 2, 3, 4)}, .n = {2, 0, -1}, .d = {3}},
    {"1.5, reversed", GRAD, .call = norm_call, .in = {IN(FLOAT, REVERSED, 3, 4)}, .n = {1, 1}, .d = {1.5}},
    {"2, expanded", GRAD, .call = norm_call, .in = {IN(FLOAT, EXPANDED, 3, 4)}, .d = {2}},
    {"2, of a scalar", GRAD, .call = norm_call, .in = {SCALAR(FLOAT)}, .d = {2}},
    {"2, of one", GRAD, .call = norm_call, .in = {F(1, 1)}, .n = {1, 0}, .d = {2}},
    {"inf, of nothing, nowhere", 0, .call = norm_call, .in = {F(0, 0)}, .n = {1, 1}, .d = {INFINITY}, .error = "it has no identity"},
    {"2, of nothing", GRAD, .call = norm_call, .in = {F(3, 0)}, .n = {1, 1}, .d = {2}},
    {"several chunks", LARGE | GRAD, .call = norm_call, .in = {F(3, 9000)}, .n = {1, 1}, .d = {2}},
    {"many rows", LARGE | GRAD, .call = norm_call, .in = {IN(FLOAT, SLICED, 300, 101)}, .n = {1, 1}, .d = {INFINITY}},
    {"inf, of nothing", 0, .call = norm_call, .in = {F(3, 0)}, .n = {1, 1}, .d = {INFINITY}, .error = "it has no identity"},
    {"no number", 0, .call = norm_call, .in = {F(3)}, .d = {NAN}, .error = "norm: p is not a number"},
    {"of integers", 0, .call = norm_call, .in = {IN(I32, DENSE, 3)}, .d = {2}, .error = "not implemented for int32"},
    END};

const struct sample samples_logsumexp[] = {
    {"all", GRAD, .call = logsumexp_call, .in = {F(3, 4)}},
    {"a b c -> c a", GRAD, .call = reduce_logsumexp_call, .in = {F(2, 3, 2)}},
    {"rows, kept", GRAD, .call = logsumexp_call, .in = {F(3, 4)}, .n = {1, 1, [5] = true}},
    {"columns", GRAD, .call = logsumexp_call, .in = {F(3, 4)}, .n = {1, 0}},
    {"two of three axes", GRAD, .call = logsumexp_call, .in = {IN(FLOAT, PERMUTED, 2, 3, 4)}, .n = {2, 0, -1}},
    {"sliced", GRAD, .call = logsumexp_call, .in = {IN(FLOAT, SLICED, 3, 4)}, .n = {1, 1}},
    {"reversed", GRAD, .call = logsumexp_call, .in = {IN(FLOAT, REVERSED, 3, 4)}},
    {"expanded", GRAD, .call = logsumexp_call, .in = {IN(FLOAT, EXPANDED, 3, 4)}, .n = {1, 1}},
    {"of a scalar", GRAD, .call = logsumexp_call, .in = {SCALAR(FLOAT)}},
    {"of nothing", GRAD, .call = logsumexp_call, .in = {F(3, 0)}, .n = {1, 1}},
    {"several chunks", LARGE | GRAD, .call = logsumexp_call, .in = {F(3, 9000)}, .n = {1, 1}},
    {"many rows", LARGE | GRAD, .call = logsumexp_call, .in = {F(300, 101)}, .n = {1, 1}},
    {"of integers", 0, .call = logsumexp_call, .in = {IN(I32, DENSE, 3)}},
    END};

#define SCANS(call_, place_, kind_)                                                                              \
    {"rows", GRAD, DT_ARITHMETIC, .call = call_, .in = {IN(kind_, DENSE, 3, 4)}, .n = {1}},                      \
    {"columns", GRAD, DT_ARITHMETIC, .call = call_, .in = {IN(kind_, DENSE, 3, 4)}, .n = {0}},                   \
    {"from the end", GRAD, DT_ARITHMETIC, .call = call_, .in = {IN(kind_, DENSE, 2, 3, 4)}, .n = {-2}},          \
    {"of a scalar", GRAD, DT_ARITHMETIC, .call = call_, .in = {SCALAR(kind_)}, .n = {-1}},                       \
    {"of one", GRAD, DT_ARITHMETIC, .call = call_, .in = {IN(kind_, DENSE, 3, 1)}, .n = {1}},                    \
    {"of none", GRAD, DT_ARITHMETIC, .call = call_, .in = {IN(kind_, DENSE, 3, 0)}, .n = {1}},                   \
    {"no rows", GRAD, DT_ARITHMETIC, .call = call_, .in = {IN(kind_, DENSE, 0, 3)}, .n = {1}},                   \
    {"permuted", GRAD, DT_ARITHMETIC, .call = call_, .in = {IN(kind_, PERMUTED, 2, 3, 4)}, .n = {1}},            \
    {"sliced", GRAD, DT_ARITHMETIC, .call = call_, .in = {IN(kind_, SLICED, 3, 4)}, .n = {1}},                   \
    {"reversed", GRAD, DT_ARITHMETIC, .call = call_, .in = {IN(kind_, REVERSED, 3, 4)}, .n = {0}},               \
    {"expanded", GRAD, DT_ARITHMETIC, .call = call_, .in = {IN(kind_, EXPANDED, 3, 4)}, .n = {0}},               \
    {"of bool", 0, .call = call_, .in = {IN(BOOL, DENSE, 3, 4)}, .n = {1}},                                      \
    {"of i16", 0, .call = call_, .in = {IN(I16, PERMUTED, 3, 4)}, .n = {1}},                                     \
    {"in place", GRAD, DT_FLOATS, .call = place_, .twin = call_, .in = {IN(kind_, DENSE, 3, 4)}, .n = {1}},      \
    {"no such axis", 0, .call = call_, .in = {F(2)}, .n = {2, 1, 4}, .error = "but got 2)"}
CALL(cumsum_call) { return one(out, tl_cumsum(in[0], (int)s->n[0])); }
CALL(cumsum_in_place) { return one(out, tl_cumsum_(tl_clone(in[0]), (int)s->n[0])); }
CALL(cumprod_call) { return one(out, tl_cumprod(in[0], (int)s->n[0])); }
CALL(cumprod_in_place) { return one(out, tl_cumprod_(tl_clone(in[0]), (int)s->n[0])); }
CALL(cumprod_scan) { /* as products of all ask for it when their gradient is differentiated */
    struct attr_scan a = {.is_reverse = s->n[0], .is_exclusive = s->n[1]};
    return one(out, op_apply1(&op_cumprod, tl_contiguous(in[0]), ATTR(a)));
}
const struct sample samples_cumsum[] = {
    SCANS(cumsum_call, cumsum_in_place, FLOAT), {"large", LARGE | GRAD, .call = cumsum_call, .in = {F(20, 3001)}, .n = {1}}, END};
const struct sample samples_cumprod[] = {
    SCANS(cumprod_call, cumprod_in_place, FLOAT),
    {"the other way", GRAD, .call = cumprod_scan, .in = {F(3, 4)}, .n = {true}},
    {"without itself", GRAD, .call = cumprod_scan, .in = {F(3, 4)}, .n = {false, true}},
    {"without itself, the other way", GRAD, .call = cumprod_scan, .in = {F(3, 4)}, .n = {true, true}},
    {"large", LARGE | GRAD, DT(TL_F64) | DT(TL_F32), .call = cumprod_call, .in = {F(20, 3001)}, .n = {1}},
    END};
CALL(cumprod_grad_call) {
    struct attr_scan a = {.is_reverse = s->n[0], .is_exclusive = s->n[1], .is_total = s->n[2]};
    tl_tensor *x = tl_contiguous(in[0]);
    return one(out, op_apply2(&op_cumprod_grad, x, tl_contiguous(in[1]), ATTR(a)));
}
const struct sample samples_cumprod_grad[] = {
    {"rows", 0, .call = cumprod_grad_call, .in = {K(3, 4), K(3, 4)}},
    {"the other way, without itself", 0, .call = cumprod_grad_call, .in = {K(3, 4), K(3, 4)}, .n = {true, true}},
    {"of a product of all", 0, .call = cumprod_grad_call, .in = {K(3, 4), K(3, 1)}, .n = {false, false, true}},
    {"no rows", 0, .call = cumprod_grad_call, .in = {K(0, 4), K(0, 4)}},
    {"rows of none", 0, .call = cumprod_grad_call, .in = {K(3, 0), K(3, 0)}},
    {"by way of cumprod", GRAD | VIA_BACKWARD, .call = cumprod_call, .in = {F(3, 4)}, .n = {1}},
    {"by way of prod", GRAD | VIA_BACKWARD, .unary = tl_prod_all, .in = {F(3, 4)}},
    {"large", LARGE, DT(TL_F64) | DT(TL_F32), .call = cumprod_grad_call, .in = {K(20, 3001), K(20, 3001)}},
    END};

/* ---- loss.c ---- */

CALL(log_softmax_call) { return one(out, tl_log_softmax(in[0], (int)s->n[0])); }
const struct sample samples_log_softmax[] = {
    {"cross entropy with probabilities", GRAD, .binary = mean_cross_entropy, .in = {F(2, 4, 2), F(2, 4, 2)}, .roundings = 2},
    {"cross entropy of probabilities", GRAD, .call = options_call, .in = {F(4, 5), IN(POSITIVE, SLICED, 4, 5)}, .n = {TL_REDUCE_MEAN, 0, 0, true}, .roundings = 2},
    {"the same, smoothed and weighted", GRAD, .call = options_call, .in = {F(4, 5), IN(POSITIVE, DENSE, 4, 5), IN(POSITIVE, DENSE, 5)}, .n = {TL_REDUCE_NONE, 1, 0, true}, .d = {0.25}, .roundings = 2},
    {"probabilities of another shape", 0, .call = options_call, .in = {F(4, 5), F(4, 4)}, .n = {0, 0, 0, true}, .error = "probabilities must have the shape of the logits"},
    {"rows", GRAD, .call = log_softmax_call, .in = {F(3, 5)}, .n = {-1}},
    {"columns", GRAD, .call = log_softmax_call, .in = {F(3, 5)}, .n = {0}},
    {"of a scalar", GRAD, .call = log_softmax_call, .in = {SCALAR(FLOAT)}, .n = {0}},
    {"rows of one", GRAD, .call = log_softmax_call, .in = {F(4, 1)}, .n = {1}},
    {"no rows", GRAD, .call = log_softmax_call, .in = {F(0, 5)}, .n = {1}},
    {"rows of none", GRAD, .call = log_softmax_call, .in = {F(3, 0)}, .n = {1}},
    {"permuted", GRAD, .call = log_softmax_call, .in = {IN(FLOAT, PERMUTED, 2, 3, 4)}, .n = {1}},
    {"sliced", GRAD, .call = log_softmax_call, .in = {IN(FLOAT, SLICED, 2, 3)}, .n = {1}},
    {"expanded", GRAD, .call = log_softmax_call, .in = {IN(FLOAT, EXPANDED, 3, 4)}, .n = {-1}},
    {"large", LARGE | GRAD, .call = log_softmax_call, .in = {F(40, 1101)}, .n = {1}},
    {"longer rows", LARGE | GRAD, .call = log_softmax_call, .in = {F(2, 16411)}, .n = {1}},
    {"many columns", LARGE | GRAD, .call = log_softmax_call, .in = {F(201, 301)}, .n = {0}},
    {"long middle axis", LARGE | GRAD, .call = log_softmax_call, .in = {F(2, 5001, 3)}, .n = {1}},
    {"no such axis", 0, .call = log_softmax_call, .in = {F(3, 5)}, .n = {2}, .error = "log_softmax: Dimension out of range"},
    {"integers", 0, .call = log_softmax_call, .in = {IN(I32, DENSE, 3)}, .error = "not implemented for int32"},
    END};
static tl_tensor *log_softmax_grad(tl_tensor *y, tl_tensor *g) {
    const struct attr_softmax last = {y->rank - 1};
    y = tl_contiguous(y);
    return op_apply2(&op_log_softmax_grad, y, tl_contiguous(g), ATTR(last));
}
const struct sample samples_log_softmax_grad[] = {
    {"rows", 0, .binary = log_softmax_grad, .in = {K(3, 5), K(3, 5)}},
    {"rows of one", 0, .binary = log_softmax_grad, .in = {K(3, 1), K(3, 1)}},
    {"no rows", 0, .binary = log_softmax_grad, .in = {K(0, 5), K(0, 5)}},
    {"by way of backward", GRAD | VIA_BACKWARD, .call = log_softmax_call, .in = {F(2, 2, 3)}, .n = {2}},
    {"large", LARGE, .binary = log_softmax_grad, .in = {K(40, 1101), K(40, 1101)}},
    END};

static tl_tensor *nll_outside(tl_tensor *x) { return tl_nll_loss(x, tl_full(TL_SHAPE(2), 5, TL_I32, NULL), NULL); }
const struct sample samples_nll[] = {
    {"mean", GRAD, .call = options_call, .in = {F(4, 5), IDS(5, 4)}, .n = {TL_REDUCE_MEAN}, .roundings = 3},
    {"rows, some left out", GRAD, .call = options_call, .in = {F(9, 3), IDS32(3, 9)}, .n = {TL_REDUCE_NONE, 0, 1}},
    {"sum, weighted", GRAD, .call = options_call, .in = {F(4, 5), IDS(5, 4), IN(POSITIVE, SLICED, 5)}, .n = {TL_REDUCE_SUM, 1}, .roundings = 4},
    {"weighted mean", GRAD, .call = options_call, .in = {F(4, 5), IDS(5, 4), IN(POSITIVE, DENSE, 5)}, .n = {TL_REDUCE_MEAN, 1, 2}, .roundings = 4},
    {"one row, one class", GRAD, .call = options_call, .in = {F(1, 1), IDS(1, 1)}, .n = {TL_REDUCE_SUM}},
    {"no rows", GRAD, .call = options_call, .in = {F(0, 5), IDS(5, 0)}, .n = {TL_REDUCE_SUM}},
    {"permuted", GRAD, .call = options_call, .in = {IN(FLOAT, PERMUTED, 4, 5), {.kind = IN_INDEX, .layout = LAY_SLICED, DIMS(4), .limit = 5}}, .n = {TL_REDUCE_NONE}},
    {"smoothed cross entropy", GRAD, .call = options_call, .in = {F(4, 5), IDS(5, 4)}, .n = {TL_REDUCE_MEAN, 0, 0, true}, .d = {0.25}, .roundings = 2},
    {"smoothed, weighted, rows", GRAD, .call = options_call, .in = {F(4, 5), IDS(5, 4), IN(POSITIVE, DENSE, 5)}, .n = {TL_REDUCE_NONE, 1, 3, true}, .d = {0.25}, .roundings = 2},
    {"large", LARGE | GRAD, .call = options_call, .in = {F(300, 151), IDS(151, 300)}, .n = {TL_REDUCE_NONE}},
    {"one row alone", GRAD, .call = options_call, .in = {F(5), {.kind = IN_INDEX, .limit = 5}, IN(POSITIVE, DENSE, 5)}, .n = {TL_REDUCE_NONE, 1}},
    {"classes inside", GRAD, .call = options_call, .in = {F(2, 3, 2, 2), IDS(3, 2, 2, 2)}, .n = {TL_REDUCE_NONE, 0, 1}},
    {"smoothed, classes inside", GRAD, .call = options_call, .in = {F(2, 5, 2), IDS(5, 2, 2), IN(POSITIVE, DENSE, 5)}, .n = {TL_REDUCE_MEAN, 1, 3, true}, .d = {0.25}, .roundings = 2},
    {"one target too few", 0, .call = options_call, .in = {F(4, 5), IDS(5, 3)}, .error = "one target per row"},
    {"targets of another shape", 0, .call = options_call, .in = {F(2, 3, 4), IDS(3, 2, 3)}, .error = "nll_loss: one target per row"},
    {"a weight too few", 0, .call = options_call, .in = {F(4, 5), IDS(5, 4), F(4)}, .n = {0, 1}, .error = "should be defined either for all 5 classes"},
    {"smoothing of 2", 0, .call = options_call, .in = {F(4, 5), IDS(5, 4)}, .n = {0, 0, 0, true}, .d = {2}, .error = "label_smoothing must be between"},
    {"no such reduction", 0, .call = options_call, .in = {F(4, 5), IDS(5, 4)}, .n = {3}, .error = "nll_loss: no reduction has the number 3"},
    {"target outside", CPU_ONLY, .unary = nll_outside, .in = {F(2, 5)}, .error = "target 5 is outside [0, 5)"},
    END};
CALL(nll_grad_call) {
    struct attr_nll a = {s->n[0]};
    tl_tensor *g = tl_contiguous(in[0]);
    return one(out, op_apply2(&op_nll_grad, g, tl_contiguous(in[1]), ATTR(a)));
}
const struct sample samples_nll_grad[] = {
    {"rows", GRAD, .call = nll_grad_call, .in = {F(4), IDS(5, 4)}, .n = {5}},
    {"one class", GRAD, .call = nll_grad_call, .in = {F(4), IDS32(1, 4)}, .n = {1}},
    {"no rows", GRAD, .call = nll_grad_call, .in = {F(0), IDS(5, 0)}, .n = {5}},
    {"by way of backward", GRAD | VIA_BACKWARD, .call = options_call, .in = {F(4, 5), IDS(5, 4)}, .n = {TL_REDUCE_NONE}},
    {"large", LARGE | GRAD, .call = nll_grad_call, .in = {F(300), IDS(151, 300)}, .n = {151}},
    END};

static tl_tensor *bce_rows(tl_tensor *x, tl_tensor *t) { return tl_bce_with_logits(x, t, NULL, NULL, TL_REDUCE_NONE); }
CALL(bce_weighted) { return one(out, tl_bce_with_logits(in[0], in[1], in[2], in[3], (tl_reduction)s->n[0])); }
const struct sample samples_bce[] = {
    {"matrix", GRAD, .binary = bce_rows, .in = {F(3, 4), F(3, 4)}},
    {"scalar", GRAD, .binary = bce_rows, .in = {SCALAR(FLOAT), SCALAR(FLOAT)}},
    {"size 0", GRAD, .binary = bce_rows, .in = {F(3, 0), F(3, 0)}},
    {"permuted and reversed", GRAD, .binary = bce_rows, .in = {IN(FLOAT, PERMUTED, 3, 4), IN(FLOAT, REVERSED, 3, 4)}},
    {"sliced and expanded", GRAD, .binary = bce_rows, .in = {IN(FLOAT, SLICED, 3, 4), IN(FLOAT, EXPANDED, 3, 4)}},
    {"weighted, mean", GRAD, .call = bce_weighted, .in = {F(3, 4), F(3, 4), F(3, 1), F(4)}, .n = {TL_REDUCE_MEAN}, .roundings = 8},
    {"weighted, sum", GRAD, .call = bce_weighted, .in = {F(3, 4), F(3, 4), F(3, 1), F(4)}, .n = {TL_REDUCE_SUM}, .roundings = 8},
    {"large", LARGE | GRAD, .binary = bce_rows, .in = {F(40, 501), F(40, 501)}},
    {"other shape", 0, .binary = bce_rows, .in = {F(3, 4), F(4)}, .error = "target size must be the same as input size"},
    {"integers", 0, .binary = bce_rows, .in = {F(3), IN(I32, DENSE, 3)}, .error = "not implemented for int32"},
    END};

/* ---- index.c ---- */

#define IDS_AS(layout_, limit_, ...) {.kind = IN_INDEX, .layout = LAY_##layout_, DIMS(__VA_ARGS__), .limit = limit_}

CALL(gather_call) { return one(out, tl_gather(in[0], (int)s->n[0], in[1])); }
CALL(take_along_call) { return one(out, tl_take_along(in[0], (int)s->n[0], in[1])); }
static tl_tensor *gather_outside(tl_tensor *x) { return tl_gather(x, 1, tl_full(TL_SHAPE(2, 2), 4, TL_I64, NULL)); }
static tl_tensor *gather_negative(tl_tensor *x) { return tl_gather(x, 1, tl_full(TL_SHAPE(2, 2), -1, TL_I64, NULL)); }
const struct sample samples_gather[] = {
    {"rows", GRAD, DT_ARITHMETIC, .call = gather_call, .in = {F(3, 4), IDS(4, 3, 5)}, .n = {1}},
    {"columns, fewer of them, i32", GRAD, DT_ARITHMETIC, .call = gather_call, .in = {F(3, 4), IDS32(3, 5, 2)}, .n = {0}},
    {"scalar", GRAD, .call = gather_call, .in = {SCALAR(FLOAT), {.kind = IN_INDEX, .limit = 1}}},
    {"size 1", GRAD, .call = gather_call, .in = {F(1, 1), IDS(1, 1, 1)}, .n = {1}},
    {"no indices", GRAD, .call = gather_call, .in = {F(3, 4), IDS(4, 3, 0)}, .n = {-1}},
    {"strided", GRAD, .call = gather_call, .in = {IN(FLOAT, PERMUTED, 2, 3, 4), IDS_AS(SLICED, 3, 2, 5, 4)}, .n = {1}},
    {"reversed", GRAD, .call = gather_call, .in = {IN(FLOAT, REVERSED, 3, 4), IDS_AS(REVERSED, 4, 3, 4)}, .n = {1}},
    {"expanded", GRAD, .call = gather_call, .in = {IN(FLOAT, EXPANDED, 3, 4), IDS_AS(EXPANDED, 4, 3, 2)}, .n = {1}},
    {"integers", 0, .call = gather_call, .in = {IN(I16, DENSE, 3, 4), IDS(4, 3, 5)}, .n = {1}},
    {"bool", 0, .call = gather_call, .in = {IN(BOOL, DENSE, 3, 4), IDS(4, 3, 5)}, .n = {1}},
    {"take along, broadcast", GRAD, .call = take_along_call, .in = {F(3, 1, 4), IDS(4, 1, 2, 3)}, .n = {-1}},
    {"large", LARGE | GRAD, .call = gather_call, .in = {F(120, 300), IDS(300, 120, 250)}, .n = {1}},
    {"ranks", 0, .call = gather_call, .in = {F(3, 4), IDS(3, 2)}, .error = "index tensor must have the same number of dimensions"},
    {"index too long", 0, .call = gather_call, .in = {F(3, 4), IDS(3, 2, 5)}, .n = {0}, .error = "size does not match at dimension 1"},
    {"float indices", 0, .call = gather_call, .in = {F(3, 4), F(3, 4)}, .error = "ids must be i64 or i32"},
    {"no such axis", 0, .call = gather_call, .in = {F(3, 4), IDS(3, 3, 4)}, .n = {2}, .error = "Dimension out of range"},
    {"index outside", CPU_ONLY, .unary = gather_outside, .in = {F(2, 4)}, .error = "index 4 is out of bounds for dimension 1 with size 4"},
    {"negative index", CPU_ONLY, .unary = gather_negative, .in = {F(2, 4)}, .error = "index -1 is out of bounds for dimension 1 with size 4"},
    END};

CALL(scatter_call) { return one(out, tl_scatter(in[0], (int)s->n[0], in[1], in[2])); }
CALL(scatter_in_place) { return one(out, tl_scatter_(tl_clone(in[0]), (int)s->n[0], in[1], in[2])); }
CALL(scatter_value_call) { return one(out, tl_scatter_scalar(in[0], (int)s->n[0], in[1], s->d[0])); }
CALL(scatter_value_in_place) { return one(out, tl_scatter_scalar_(tl_clone(in[0]), (int)s->n[0], in[1], s->d[0])); }
CALL(one_hot_call) { return one(out, tl_one_hot(in[0], s->n[0])); }
CALL(scatter_add_call) { return one(out, tl_scatter_add(in[0], (int)s->n[0], in[1], in[2])); }
CALL(scatter_add_in_place) { return one(out, tl_scatter_add_(tl_clone(in[0]), (int)s->n[0], in[1], in[2])); }
static tl_tensor *scatter_outside(tl_tensor *x) { return tl_scatter(x, 0, tl_full(TL_SHAPE(2), 9, TL_I64, NULL), tl_clone(x)); }
static tl_tensor *scatter_itself(tl_tensor *x) { return tl_scatter_(x, 0, tl_full(TL_SHAPE(2), 0, TL_I64, NULL), x); }
#define SCATTERS(call_, in_place_)                                                                                              \
    {"that meet", GRAD, DT_ARITHMETIC, .call = call_, .in = {F(3, 4), IDS(4, 3, 9), F(3, 9)}, .n = {1}},                        \
    {"columns, i32", GRAD, DT_ARITHMETIC, .call = call_, .in = {F(3, 4), IDS32(3, 5, 2), F(5, 2)}, .n = {0}},                    \
    {"from a larger source", GRAD, .call = call_, .in = {F(3, 4), IDS(4, 2, 3), F(3, 5)}, .n = {1}},                             \
    {"scalar", GRAD, .call = call_, .in = {SCALAR(FLOAT), {.kind = IN_INDEX, .limit = 1}, SCALAR(FLOAT)}},                       \
    {"size 1", GRAD, .call = call_, .in = {F(1, 1), IDS(1, 1, 1), F(1, 1)}},                                                     \
    {"no indices", GRAD, .call = call_, .in = {F(3, 4), IDS(4, 0), F(0)}},                                                       \
    {"strided", GRAD, .call = call_, .in = {IN(FLOAT, PERMUTED, 2, 3, 4), IDS_AS(SLICED, 3, 2, 5, 4), IN(FLOAT, REVERSED, 2, 5, 4)}, .n = {1}}, \
    {"expanded", GRAD, .call = call_, .in = {IN(FLOAT, EXPANDED, 3, 4), IDS_AS(EXPANDED, 4, 3, 6), IN(FLOAT, EXPANDED, 3, 6)}, .n = {1}}, \
    {"in place", GRAD, .call = in_place_, .twin = call_, .in = {IN(FLOAT, PERMUTED, 3, 4), IDS(3, 7, 4), F(7, 4)}, .n = {0}},    \
    {"integers", 0, .call = call_, .in = {IN(I32, DENSE, 4), IDS(4, 9), IN(I32, SLICED, 9)}},                                    \
    {"bytes", 0, .call = call_, .in = {IN(U8, DENSE, 4), IDS(4, 9), IN(U8, DENSE, 9)}},                                          \
    {"large", LARGE | GRAD, .call = call_, .in = {F(60, 100), IDS(100, 60, 700), F(60, 700)}, .n = {1}},                         \
    {"dtypes that differ", 0, .call = call_, .in = {F(4), IDS(4, 3), IN(I32, DENSE, 3)}, .error = "expected self.dtype to be equal to src.dtype"}, \
    {"source too short", 0, .call = call_, .in = {F(4), IDS(4, 3), F(2)}, .error = "expected index to be no larger than src"},   \
    {"index too long", 0, .call = call_, .in = {F(3, 4), IDS(4, 5, 2), F(5, 2)}, .n = {1}, .error = "size does not match at dimension 0"}
const struct sample samples_scatter[] = {
    SCATTERS(scatter_call, scatter_in_place),
    {"a value", GRAD, .call = scatter_value_call, .in = {F(3, 4), IDS(4, 3, 2)}, .n = {1}, .d = {0.5}},
    {"a value in place", GRAD, .call = scatter_value_in_place, .twin = scatter_value_call, .in = {F(3, 4), IDS(4, 3, 2)}, .n = {1}, .d = {0.5}},
    {"one hot", 0, .call = one_hot_call, .in = {IDS(5, 2, 3)}, .n = {5}},
    {"one hot of a scalar", 0, .call = one_hot_call, .in = {{.kind = IN_INDEX32, .limit = 5}}, .n = {5}},
    {"index outside", CPU_ONLY, .unary = scatter_outside, .in = {F(2)}, .error = "index 9 is out of bounds for dimension 0 with size 2"},
    {"from itself", 0, .unary = scatter_itself, .in = {F(2)}, .error = "refer to a single memory location"},
    END};
const struct sample samples_scatter_add[] = {
    SCATTERS(scatter_add_call, scatter_add_in_place),
    {"bool", 0, .call = scatter_add_call, .in = {IN(BOOL, DENSE, 4), IDS(4, 9), IN(BOOL, DENSE, 9)}},
    {"by way of gather", GRAD | VIA_BACKWARD, .call = gather_call, .in = {F(3, 4), IDS(4, 3, 5)}, .n = {1}},
    END};

/* n[0] index tensors, from input 1 on, for the axes n[1], n[2], ... */
CALL(index_call) {
    int axes[4];
    to_int(s->n + 1, axes, (int)s->n[0]);
    return one(out, tl_index(in[0], axes, in + 1, (int)s->n[0]));
}
CALL(index_select_call) { return one(out, tl_index_select(in[0], (int)s->n[0], in[1])); }
CALL(index_from_end) {
    tl_tensor *from_end = tl_affine(in[1], -1, -1);
    return one(out, tl_index(in[0], (int[]){(int)s->n[0]}, &from_end, 1));
}
static tl_tensor *index_outside(tl_tensor *x) {
    tl_tensor *at = tl_full(TL_SHAPE(2), -5, TL_I64, NULL);
    return tl_index(x, (int[]){1}, &at, 1);
}
static tl_tensor *select_outside(tl_tensor *x) { return tl_index_select(x, 1, tl_full(TL_SHAPE(2), -1, TL_I32, NULL)); }
const struct sample samples_index[] = {
    {"rows", GRAD, DT_ARITHMETIC, .call = index_call, .in = {F(5, 3), IDS(5, 4)}, .n = {1, 0}},
    {"columns by a matrix, i32", GRAD, .call = index_call, .in = {F(2, 5, 3), IDS32(5, 4, 2)}, .n = {1, 1}},
    {"pairs", GRAD, .call = index_call, .in = {F(3, 4), IDS(3, 6), IDS(4, 6)}, .n = {2, 0, 1}},
    {"neighbours, broadcast", GRAD, .call = index_call, .in = {F(2, 3, 4, 2), IDS(3, 2, 1), IDS(4, 3)}, .n = {2, 1, 2}},
    {"axes apart, in any order", GRAD, .call = index_call, .in = {F(3, 2, 4), IDS(4, 5), IDS(3, 2, 1)}, .n = {2, -1, 0}},
    {"three axes", GRAD, .call = index_call, .in = {F(2, 3, 2), IDS(2, 4), IDS32(3, 4), IDS(2, 4)}, .n = {3, 0, 1, 2}},
    {"a scalar index", GRAD, .call = index_call, .in = {F(3, 4), {.kind = IN_INDEX, .limit = 4}}, .n = {1, 1}},
    {"from the end", GRAD, .call = index_from_end, .in = {F(3, 4), IDS(4, 5)}, .n = {1}},
    {"no indices", GRAD, .call = index_call, .in = {F(3, 4), IDS(3, 0)}, .n = {1, 0}},
    {"rows of none", GRAD, .call = index_call, .in = {F(3, 0), IDS(3, 2)}, .n = {1, 0}},
    {"strided", GRAD, .call = index_call, .in = {IN(FLOAT, PERMUTED, 2, 3, 4), IDS_AS(SLICED, 3, 2, 2), IDS_AS(REVERSED, 4, 2)}, .n = {2, 1, 2}},
    {"expanded, reversed", GRAD, .call = index_call, .in = {IN(FLOAT, EXPANDED, 3, 4), IDS_AS(EXPANDED, 3, 2, 2)}, .n = {1, 0}},
    {"select", GRAD, DT_ARITHMETIC, .call = index_select_call, .in = {F(2, 3, 2), IDS(3, 4)}, .n = {1}},
    {"select of a scalar", GRAD, .call = index_select_call, .in = {SCALAR(FLOAT), IDS(1, 1)}},
    {"integers", 0, .call = index_call, .in = {IN(I16, REVERSED, 3, 4), IDS(3, 2)}, .n = {1, 0}},
    {"large rows", LARGE | GRAD, .call = index_call, .in = {F(50, 700), IDS(50, 90)}, .n = {1, 0}},
    {"large pairs", LARGE | GRAD, .call = index_call, .in = {F(90, 80), IDS(90, 20000), IDS(80, 20000)}, .n = {2, 0, 1}},
    {"no broadcast", 0, .call = index_call, .in = {F(3, 4), IDS(3, 2), IDS(4, 3)}, .n = {2, 0, 1}, .error = "indexing tensors could not be broadcast together"},
    {"twice the same axis", 0, .call = index_call, .in = {F(3, 4), IDS(3, 2), IDS(4, 2)}, .n = {2, 0, -2}, .error = "axis 0 is named twice"},
    {"a mask", GRAD | CPU_ONLY, .call = index_call, .in = {F(5, 4), IN(BOOL, DENSE, 5)}, .n = {1, 0}},
    {"a mask of inner axes", GRAD | CPU_ONLY, .call = index_call, .in = {IN(FLOAT, PERMUTED, 2, 3, 4, 2), IN(BOOL, PERMUTED, 3, 4)}, .n = {1, 1}},
    {"a mask and an index, apart", GRAD | CPU_ONLY, .call = index_call, .in = {F(4, 2, 3), {.kind = IN_INDEX, .limit = 3}, IN(BOOL, SLICED, 4)}, .n = {2, -1, 0}},
    {"a mask of another shape", 0, .call = index_call, .in = {F(3, 4), IN(BOOL, DENSE, 3, 3)}, .n = {1, 0}, .error = "The shape of the mask [3,3] at index 1 does not match the shape of the indexed tensor [3,4] at index 1"},
    {"a mask of too many axes", 0, .call = index_call, .in = {F(3, 4), IN(BOOL, DENSE, 4, 1)}, .n = {1, 1}, .error = "The shape of the mask [4,1] at index 1 does not match"},
    {"a mask of no axes", 0, .call = index_call, .in = {F(3, 4), SCALAR(BOOL)}, .n = {1, 0}, .error = "a mask of rank 0 stands for no axis"},
    {"a mask over another's axes", 0, .call = index_call, .in = {F(3, 4), IN(BOOL, DENSE, 3, 4), IDS(4, 2)}, .n = {2, 0, 1}, .error = "too many indices for tensor of dimension 2: 3"},
    {"a mask and an index of one axis", 0, .call = index_call, .in = {F(3, 4, 2), IN(BOOL, DENSE, 3, 4), IDS(4, 2)}, .n = {2, 0, 1}, .error = "axis 1 is named twice"},
    {"a mask of u8", 0, .call = index_call, .in = {F(3, 4), IN(U8, DENSE, 3)}, .n = {1, 0}, .error = "need bool, or ids i64 or i32"},
    {"too many", 0, .call = index_call, .in = {F(3), IDS(3, 2), IDS(3, 2)}, .n = {2, 0, 0}, .error = "too many indices for tensor of dimension 1"},
    {"select by a matrix", 0, .call = index_select_call, .in = {F(3), IDS(3, 2, 2)}, .error = "Index is supposed to be a vector"},
    {"outside", CPU_ONLY, .unary = index_outside, .in = {F(2, 4)}, .error = "index -5 is out of bounds for dimension 1 with size 4"},
    {"select from the end", CPU_ONLY, .unary = select_outside, .in = {F(2, 4)}, .error = "index -1 is out of bounds for dimension 1 with size 4"},
    END};

/* The same with values as input 1; n[5]: they are added. */
static int put_call(const struct sample *s, tl_tensor **in, tl_tensor **out, bool in_place) {
    int axes[4];
    to_int(s->n + 1, axes, (int)s->n[0]);
    return one(out, in_place ? tl_index_put_(tl_clone(in[0]), axes, in + 2, (int)s->n[0], in[1], s->n[5])
                             : tl_index_put(in[0], axes, in + 2, (int)s->n[0], in[1], s->n[5]));
}
CALL(index_put_call) { return put_call(s, in, out, false); }
CALL(index_put_in_place) { return put_call(s, in, out, true); }
CALL(index_add_call) { return one(out, tl_index_add(in[0], (int)s->n[0], in[1], in[2], s->d[0])); }
CALL(index_add_in_place) { return one(out, tl_index_add_(tl_clone(in[0]), (int)s->n[0], in[1], in[2], s->d[0])); }
CALL(bincount_call) { return one(out, tl_bincount(in[0], s->n[0], in[1])); }
CALL(bincount_plain) { return one(out, tl_bincount(in[0], s->n[0], NULL)); }
static tl_tensor *put_outside(tl_tensor *x) {
    tl_tensor *at = tl_full(TL_SHAPE(2), 4, TL_I64, NULL);
    return tl_index_put(x, (int[]){1}, &at, 1, tl_zeros(TL_SCALAR, run_dtype, NULL), false);
}
const struct sample samples_index_put[] = {
    {"rows that meet", GRAD, DT_ARITHMETIC, .call = index_put_call, .in = {F(3, 2), F(7, 2), IDS(3, 7)}, .n = {1, 0}},
    {"rows added", GRAD, DT_ARITHMETIC, .call = index_put_call, .in = {F(3, 2), F(7, 2), IDS(3, 7)}, .n = {1, 0, 0, 0, 0, true}},
    {"pairs, a scalar for all", GRAD, .call = index_put_call, .in = {F(3, 4), SCALAR(FLOAT), IDS(3, 5), IDS32(4, 5)}, .n = {2, 0, 1}},
    {"pairs, a scalar added", GRAD, .call = index_put_call, .in = {F(3, 4), SCALAR(FLOAT), IDS(3, 5), IDS32(4, 5)}, .n = {2, 0, 1, 0, 0, true}, .roundings = 2},
    {"neighbours, broadcast", GRAD, .call = index_put_call, .in = {F(2, 3, 4, 2), F(2, 2, 1, 2), IDS(3, 2, 1), IDS(4, 3)}, .n = {2, 1, 2}},
    {"axes apart", GRAD, .call = index_put_call, .in = {F(3, 2, 4), F(2, 5, 2), IDS(4, 5), IDS(3, 2, 1)}, .n = {2, -1, 0}},
    {"axes apart, added", GRAD, .call = index_put_call, .in = {F(3, 2, 4), F(5, 1), IDS(4, 5), IDS(3, 2, 1)}, .n = {2, -1, 0, 0, 0, true}, .roundings = 2},
    {"no indices", GRAD, .call = index_put_call, .in = {F(3, 4), F(0, 4), IDS(3, 0)}, .n = {1, 0}},
    {"rows of none", GRAD, .call = index_put_call, .in = {F(3, 0), F(2, 0), IDS(3, 2)}, .n = {1, 0, 0, 0, 0, true}},
    {"strided", GRAD, .call = index_put_call, .in = {IN(FLOAT, PERMUTED, 2, 3, 4), IN(FLOAT, REVERSED, 2, 2, 2), IDS_AS(SLICED, 3, 2, 2), IDS_AS(REVERSED, 4, 2)}, .n = {2, 1, 2, 0, 0, true}},
    {"in place", GRAD, .call = index_put_in_place, .twin = index_put_call, .in = {IN(FLOAT, PERMUTED, 3, 4), F(3, 5), IDS(4, 5)}, .n = {1, 1}},
    {"added in place", GRAD, .call = index_put_in_place, .twin = index_put_call, .in = {F(3, 4), F(3, 5), IDS(4, 5)}, .n = {1, 1, 0, 0, 0, true}},
    {"index_add", GRAD, .call = index_add_call, .in = {F(2, 3), IDS(3, 4), F(2, 4)}, .n = {1}, .d = {0.5}, .roundings = 2},
    {"index_add in place", GRAD, .call = index_add_in_place, .twin = index_add_call, .in = {F(2, 3), IDS(3, 4), F(2, 4)}, .n = {1}, .d = {1}},
    {"index_add of scalars", GRAD, .call = index_add_call, .in = {SCALAR(FLOAT), {.kind = IN_INDEX, .limit = 1}, SCALAR(FLOAT)}, .d = {1}},
    {"integers added", 0, .call = index_put_call, .in = {IN(I16, DENSE, 3, 2), IN(I16, DENSE, 7, 2), IDS(3, 7)}, .n = {1, 0, 0, 0, 0, true}},
    {"bincount", 0, .call = bincount_plain, .in = {IDS(5, 30)}, .n = {6}},
    {"bincount with weights", GRAD, .call = bincount_call, .in = {IDS32(3, 9), F(9)}, .n = {3}},
    {"by way of index", GRAD | VIA_BACKWARD, .call = index_call, .in = {F(3, 4), IDS(3, 6), IDS(4, 6)}, .n = {2, 0, 1}},
    {"large", LARGE | GRAD, .call = index_put_call, .in = {F(40, 700), F(90, 700), IDS(40, 90)}, .n = {1, 0, 0, 0, 0, true}},
    {"large, last stays", LARGE | GRAD, .call = index_put_call, .in = {F(700, 40), F(700, 90), IDS(40, 90)}, .n = {1, 1}},
    {"by a mask", GRAD | CPU_ONLY, .call = index_put_call, .in = {F(5, 3), F(3), IN(BOOL, DENSE, 5)}, .n = {1, 0}},
    {"by a mask, added in place", GRAD | CPU_ONLY, .call = index_put_in_place, .twin = index_put_call, .in = {F(2, 3, 4), F(2, 1), IN(BOOL, PERMUTED, 3, 4)}, .n = {1, 1, 0, 0, 0, true}},
    {"a mask of another shape", 0, .call = index_put_call, .in = {F(3, 4), SCALAR(FLOAT), IN(BOOL, DENSE, 4)}, .n = {1, 0}, .error = "index_put: The shape of the mask [4] at index 0 does not match the shape of the indexed tensor [3,4] at index 0"},
    {"one value by a mask, dtypes that differ", CPU_ONLY, .call = index_put_call, .in = {F(3), IN(I32, DENSE, 1), IN(BOOL, DENSE, 3)}, .n = {1, 0}, .error = "source and destination dtypes must match"},
    {"dtypes that differ", 0, .call = index_put_call, .in = {F(3), IN(I32, DENSE, 2), IDS(3, 2)}, .n = {1, 0}, .error = "source and destination dtypes must match"},
    {"values of another shape", 0, .call = index_put_call, .in = {F(3, 2), F(3, 2), IDS(3, 2)}, .n = {1, 0}, .error = "cannot be broadcast to indexing result of shape [2,2]"},
    {"index_add of another shape", 0, .call = index_add_call, .in = {F(2, 3), IDS(3, 4), F(1, 4)}, .n = {1}, .d = {1}, .error = "source tensor shape must match self tensor shape"},
    {"outside", CPU_ONLY, .unary = put_outside, .in = {F(2, 4)}, .error = "index 4 is out of bounds for dimension 1 with size 4"},
    END};

CALL(repeat_by_call) { return one(out, tl_repeat_counts(in[0], (int)s->n[0], in[1])); }
static tl_tensor *repeat_negative(tl_tensor *x) { return tl_repeat_counts(x, 0, tl_full(TL_SCALAR, -1, TL_I64, NULL)); }
const struct sample samples_repeat_interleave[] = {
    {"rows", CPU_ONLY | GRAD, .call = repeat_by_call, .in = {F(4, 3), IDS(3, 4)}, .n = {0}},
    {"columns, i32", CPU_ONLY | GRAD, .call = repeat_by_call, .in = {IN(FLOAT, PERMUTED, 2, 4), IDS32(3, 4)}, .n = {1}},
    {"one count for all", CPU_ONLY | GRAD, .call = repeat_by_call, .in = {F(4), IDS(3, 1)}, .n = {0}},
    {"nothing", CPU_ONLY | GRAD, .call = repeat_by_call, .in = {F(0, 2), IDS(3, 0)}, .n = {0}},
    {"large", CPU_ONLY | LARGE | GRAD, .call = repeat_by_call, .in = {F(300, 40), IDS(9, 300)}, .n = {0}},
    {"counts of another size", 0, .call = repeat_by_call, .in = {F(4), IDS(3, 3)}, .error = "repeats must have the same size as input along dim"},
    {"negative", CPU_ONLY, .unary = repeat_negative, .in = {F(4)}, .error = "repeats can not be negative"},
    END};

/* ---- join.c ---- */

CALL(concat_call) { return one(out, tl_concat(in, sample_input_count(s), (int)s->n[0])); }
CALL(stack_call) { return one(out, tl_stack(in, sample_input_count(s), (int)s->n[0])); }
/* The two inputs in turn, n[1] times. */
CALL(concat_many) {
    tl_tensor *list[300];
    for (int i = 0; i < (int)s->n[1]; i++) list[i] = in[i % 2];
    return one(out, s->n[2] ? tl_stack(list, (int)s->n[1], (int)s->n[0]) : tl_concat(list, (int)s->n[1], (int)s->n[0]));
}
CALL(roll_call) {
    int axes[2];
    to_int(s->n + 3, axes, 2);
    return one(out, tl_roll(in[0], s->n + 1, s->n[0] ? axes : NULL, s->n[0] ? (int)s->n[0] : 1));
}
CALL(pad_call) { return one(out, tl_pad(in[0], s->n, s->n + 3, (tl_pad_mode)s->d[0], s->d[1])); }
const struct sample samples_concat[] = {
    {"rows", GRAD, DT_ARITHMETIC, .call = concat_call, .in = {F(2, 3), F(1, 3), F(4, 3)}, .n = {0}},
    {"i * k", GRAD, .call = pack_call, .in = {F(2, 3), F(2, 2, 3), IN(FLOAT, PERMUTED, 2, 1, 2, 3)}},
    {"columns", GRAD, DT_ARITHMETIC, .call = concat_call, .in = {F(2, 3), F(2, 1)}, .n = {-1}},
    {"alone", GRAD, .call = concat_call, .in = {F(3)}, .n = {0}},
    {"with empty ones", GRAD, .call = concat_call, .in = {F(0), F(2, 3), F(0, 3), F(2, 3)}, .n = {0}},
    {"strided", GRAD, .call = concat_call, .in = {IN(FLOAT, PERMUTED, 2, 3, 2), IN(FLOAT, SLICED, 2, 1, 2), IN(FLOAT, REVERSED, 2, 2, 2), IN(FLOAT, EXPANDED, 2, 2, 2)}, .n = {1}},
    {"dtypes promote", GRAD, .call = concat_call, .in = {IN(I32, DENSE, 2), F(3), IN(BOOL, DENSE, 2)}, .n = {0}},
    {"integers", 0, .call = concat_call, .in = {IN(I16, DENSE, 2), IN(U8, DENSE, 3)}, .n = {0}},
    {"more than 64", GRAD, .call = concat_many, .in = {F(2, 1), F(2, 2)}, .n = {1, 151}},
    {"stack", GRAD, .call = stack_call, .in = {F(2, 3), F(2, 3), F(2, 3)}, .n = {1}},
    {"stack of scalars", GRAD, .call = stack_call, .in = {SCALAR(FLOAT), SCALAR(FLOAT)}, .n = {-1}},
    {"stack of nothing", GRAD, .call = stack_call, .in = {F(0), F(0)}, .n = {0}},
    {"stack of more than 64", GRAD, .call = concat_many, .in = {F(2), F(2)}, .n = {1, 70, true}},
    {"roll", GRAD, .call = roll_call, .in = {F(3, 5)}, .n = {2, 2, -1, 1, 0}},
    {"roll all", GRAD, .call = roll_call, .in = {IN(FLOAT, PERMUTED, 3, 5)}, .n = {0, 7}},
    {"roll of nothing", GRAD, .call = roll_call, .in = {F(0, 5)}, .n = {1, 1, 0, 0}},
    {"reflect", GRAD, .call = pad_call, .in = {F(4, 3)}, .n = {3, 1, 0, 2, 2}, .d = {TL_PAD_REFLECT}},
    {"replicate", GRAD, .call = pad_call, .in = {IN(FLOAT, SLICED, 2, 3)}, .n = {0, 4, 0, 1, 2}, .d = {TL_PAD_REPLICATE}},
    {"circular", GRAD, .call = pad_call, .in = {F(2, 3)}, .n = {2, 1, 0, 1, 3}, .d = {TL_PAD_CIRCULAR}},
    {"large", LARGE | GRAD, .call = concat_call, .in = {F(200, 120), F(200, 99)}, .n = {1}},
    {"sizes", 0, .call = concat_call, .in = {F(2, 3), F(2, 4)}, .n = {0}, .error = "Expected size 3 but got size 4 for tensor number 1"},
    {"ranks", 0, .call = concat_call, .in = {F(2, 3), F(3)}, .n = {0}, .error = "tensors must have same number of dimensions: got 2 and 1"},
    {"scalars", 0, .call = concat_call, .in = {SCALAR(FLOAT), F(3)}, .n = {0}, .error = "zero-dimensional tensor (at position 0) cannot be concatenated"},
    {"axis", 0, .call = concat_call, .in = {F(3), F(3)}, .n = {1}, .error = "Dimension out of range"},
    {"stack of others", 0, .call = stack_call, .in = {F(3), F(4)}, .n = {0}, .error = "stack: expects each tensor to be equal size"},
    {"reflect too far", 0, .call = pad_call, .in = {F(3)}, .n = {3}, .d = {TL_PAD_REFLECT}, .error = "padding size should be less than the corresponding input dimension"},
    END};

const struct sample samples_pad[] = {
    {"around", GRAD, DT_ARITHMETIC, .call = pad_call, .in = {F(2, 3)}, .n = {1, 2, 0, 0, 1}, .d = {TL_PAD_CONSTANT, 0.5}},
    {"cuts too", GRAD, .call = pad_call, .in = {F(4, 3)}, .n = {-1, 2, 0, 1, -2}, .d = {TL_PAD_CONSTANT, 0.5}},
    {"nothing", GRAD, .call = pad_call, .in = {F(2, 3)}, .n = {0}},
    {"of a scalar", GRAD, .call = pad_call, .in = {SCALAR(FLOAT)}},
    {"of size 0", GRAD, .call = pad_call, .in = {F(0, 3)}, .n = {1, 0, 0, 1, 2}},
    {"strided", GRAD, .call = pad_call, .in = {IN(FLOAT, PERMUTED, 2, 3, 2)}, .n = {1, 0, 2, 0, 3, 0}},
    {"reversed", GRAD, .call = pad_call, .in = {IN(FLOAT, REVERSED, 2, 3)}, .n = {1, 0, 0, 0, 3}},
    {"expanded", GRAD, .call = pad_call, .in = {IN(FLOAT, EXPANDED, 2, 3)}, .n = {1, 0, 0, 0, 3}},
    {"integers", 0, .call = pad_call, .in = {IN(I32, DENSE, 2, 3)}, .n = {1, 0, 0, 0, 3}, .d = {TL_PAD_CONSTANT, -7}},
    {"large", LARGE | GRAD, .call = pad_call, .in = {F(150, 200)}, .n = {3, 1, 0, 2, 5}},
    {"cuts too much", 0, .call = pad_call, .in = {F(3)}, .n = {-2, 0, 0, -2}, .error = "takes more than the 3 elements of dimension 0"},
    END};

/* ---- sort.c ---- */

static int sort_results(tl_tensor **out, bool ok) { return ok ? 2 : ((void)out, 0); }
CALL(sort_call) { return sort_results(out, tl_sort(in[0], (int)s->n[0], s->n[1], &out[0], &out[1])); }
CALL(topk_call) { return sort_results(out, tl_topk(in[0], s->n[2], (int)s->n[0], s->n[1], &out[0], &out[1])); }
CALL(argsort_call) { return one(out, tl_argsort(in[0], (int)s->n[0], s->n[1])); }
const struct sample samples_sort[] = {
    {"rows", GRAD, .call = sort_call, .in = {IN(DISTINCT, DENSE, 3, 6)}, .n = {1, false}},
    {"columns, falling", GRAD, .call = sort_call, .in = {IN(DISTINCT, DENSE, 6, 3)}, .n = {0, true}},
    {"scalar", GRAD, .call = sort_call, .in = {SCALAR(FLOAT)}, .n = {-1}},
    {"size 1", GRAD, .call = sort_call, .in = {F(3, 1)}, .n = {-1}},
    {"rows of none", GRAD, .call = sort_call, .in = {F(3, 0)}, .n = {1}},
    {"no rows", GRAD, .call = sort_call, .in = {F(0, 3)}, .n = {1}},
    {"strided", GRAD, .call = sort_call, .in = {IN(DISTINCT, PERMUTED, 2, 5, 3)}, .n = {1, true}},
    {"reversed", GRAD, .call = sort_call, .in = {IN(DISTINCT, REVERSED, 3, 6)}, .n = {1}},
    {"equal ones", GRAD | ROUNDS, .call = sort_call, .in = {IN(FLOAT, EXPANDED, 5, 3)}, .n = {0, true}},
    {"integers", 0, .call = sort_call, .in = {IN(I64, SLICED, 4, 9)}, .n = {1, true}},
    {"bytes", 0, .call = sort_call, .in = {IN(U8, DENSE, 20)}, .n = {0}},
    {"bool", 0, .call = sort_call, .in = {IN(BOOL, DENSE, 20)}, .n = {0, true}},
    {"topk", GRAD, .call = topk_call, .in = {IN(DISTINCT, DENSE, 3, 6)}, .n = {1, true, 2}},
    {"smallest of columns", GRAD, .call = topk_call, .in = {IN(DISTINCT, SLICED, 6, 3)}, .n = {0, false, 3}},
    {"topk of 0", GRAD, .call = topk_call, .in = {F(3, 6)}, .n = {1, true, 0}},
    {"argsort", 0, .call = argsort_call, .in = {IN(DISTINCT, DENSE, 3, 6)}, .n = {1}},
    {"large", LARGE | GRAD, .call = sort_call, .in = {F(70, 501)}, .n = {1}},
    {"one long line", LARGE | GRAD, .call = topk_call, .in = {F(40001)}, .n = {0, true, 100}},
    {"long columns", LARGE | GRAD, .call = sort_call, .in = {F(3100, 9)}, .n = {0}},
    {"k too large", 0, .call = topk_call, .in = {F(3)}, .n = {0, true, 4}, .error = "selected index k out of range"},
    {"no such axis", 0, .call = sort_call, .in = {F(3)}, .n = {1}, .error = "Dimension out of range"},
    END};

CALL(search_call) {
    tl_tensor *sorted, *indices;
    if (!tl_sort(in[0], -1, false, &sorted, &indices)) return 0;
    return one(out, tl_searchsorted(sorted, in[1], s->n[0]));
}
CALL(search_plain) { return one(out, tl_searchsorted(in[0], in[1], s->n[0])); }
const struct sample samples_searchsorted[] = {
    {"in a vector", 0, .call = search_call, .in = {F(9), F(3, 4)}},
    {"right", 0, .call = search_call, .in = {IN(I64, DENSE, 9), IN(I64, DENSE, 6)}, .n = {true}},
    {"left", 0, .call = search_call, .in = {IN(I64, DENSE, 9), IN(I64, REVERSED, 6)}},
    {"a scalar", 0, .call = search_call, .in = {F(9), SCALAR(FLOAT)}},
    {"rows", 0, .call = search_call, .in = {F(2, 3, 5), IN(FLOAT, PERMUTED, 2, 3, 4)}},
    {"in nothing", 0, .call = search_call, .in = {F(0), F(3)}},
    {"for nothing", 0, .call = search_call, .in = {F(4), F(0)}},
    {"large", LARGE, .call = search_call, .in = {F(900), F(200, 30)}, .n = {true}},
    {"dtypes promote", 0, .call = search_call, .in = {F(9), IN(I64, DENSE, 3)}},
    {"rows that differ", 0, .call = search_plain, .in = {F(2, 3), F(3, 3)}, .error = "the first N-1 dimensions"},
    END};

CALL(unique_call) { return (void)s, tl_unique(in[0], &out[0], &out[1], &out[2]) ? 3 : 0; }
CALL(unique_values) { return (void)s, tl_unique(in[0], &out[0], NULL, NULL); }
const struct sample samples_unique[] = {
    {"integers", CPU_ONLY, .call = unique_call, .in = {IN(I32, DENSE, 4, 5)}},
    {"floats, strided", CPU_ONLY, .call = unique_call, .in = {IN(FLOAT, PERMUTED, 3, 4)}},
    {"that repeat", CPU_ONLY, .call = unique_call, .in = {IN(FLOAT, EXPANDED, 3, 4)}},
    {"scalar", CPU_ONLY, .call = unique_call, .in = {SCALAR(FLOAT)}},
    {"nothing", CPU_ONLY, .call = unique_call, .in = {F(0, 3)}},
    {"values alone", CPU_ONLY, .call = unique_values, .in = {IN(BOOL, DENSE, 9)}},
    {"large", CPU_ONLY | LARGE, .call = unique_call, .in = {IN(U8, DENSE, 30000)}},
    END};

/* ---- fused: swiglu.c, norm.c, head.c, update.c ---- */

const struct sample samples_swiglu[] = {
    {"same shape", GRAD, DT_ARITHMETIC, .binary = tl_swiglu, .in = {F(3, 4), F(3, 4)}, .flops = 5}, /* silu 4, times up */
    {"scalars", GRAD, DT_ARITHMETIC, .binary = tl_swiglu, .in = {SCALAR(FLOAT), SCALAR(FLOAT)}},
    {"row against column", GRAD, DT_ARITHMETIC, .binary = tl_swiglu, .in = {F(3, 1), F(1, 4)}},
    {"size 0", GRAD, DT_ARITHMETIC, .binary = tl_swiglu, .in = {F(0, 4), F(4)}},
    {"permuted and expanded", GRAD, DT_ARITHMETIC, .binary = tl_swiglu, .in = {IN(FLOAT, PERMUTED, 3, 4), IN(FLOAT, EXPANDED, 3, 4)}},
    {"reversed and sliced", GRAD, DT_ARITHMETIC, .binary = tl_swiglu, .in = {IN(FLOAT, REVERSED, 3, 4), IN(FLOAT, SLICED, 3, 4)}},
    {"large", LARGE | GRAD, .binary = tl_swiglu, .in = {F(257, 129), F(257, 129)}},
    {"integers", 0, .binary = tl_swiglu, .in = {IN(I32, DENSE, 3), IN(I32, DENSE, 3)}, .error = "not implemented for integers"},
    {"shapes that do not broadcast", 0, .binary = tl_swiglu, .in = {F(3), F(4)}, .error = "must match"},
    END};
CALL(swiglu_grad_call) {
    (void)s;
    tl_call c;
    call_begin(&c, &op_swiglu_grad, in, 3, NULL, 0);
    if (!op_apply(&c)) return 0;
    out[0] = c.output[0], out[1] = c.output[1];
    return 2;
}
const struct sample samples_swiglu_grad[] = {
    {"rows", 0, .call = swiglu_grad_call, .in = {K(3, 4), K(3, 4), K(3, 4)}},
    {"broadcast", 0, .call = swiglu_grad_call, .in = {K(4), IN(CONSTANT, PERMUTED, 3, 1), IN(CONSTANT, SLICED, 3, 4)}},
    {"nothing", 0, .call = swiglu_grad_call, .in = {K(0, 4), K(0, 4), K(0, 4)}},
    {"by way of backward", GRAD | VIA_BACKWARD, .binary = tl_swiglu, .in = {F(3, 4), F(4)}},
    {"large", LARGE, .call = swiglu_grad_call, .in = {K(130, 257), K(130, 257), K(130, 257)}},
    END};

/* n: both results are read (the sum, too, has a gradient); d: dropout */
static int add_norm_results(const struct sample *s, tl_tensor *y, tl_tensor *sum, tl_tensor **out) {
    if (!y) return 0;
    out[0] = s->n[0] == 1 ? tl_add(y, tl_mul(sum, sum)) : s->n[0] == 2 ? sum : y;
    out[1] = sum;
    return out[0] ? 2 : 0;
}
CALL(add_rms_norm_call) {
    tl_tensor *sum, *y = add_rms_norm(in[0], in[1], s->in[2].kind ? in[2] : NULL, 1e-5, s->d[0], &sum);
    return add_norm_results(s, y, sum, out);
}
CALL(add_layer_norm_call) {
    tl_tensor *sum, *y = add_layer_norm(in[0], in[1], s->in[2].kind ? in[2] : NULL, s->in[3].kind ? in[3] : NULL, 1e-5, s->d[0], &sum);
    return add_norm_results(s, y, sum, out);
}
const struct sample samples_add_rms_norm[] = {
    {"weighted", GRAD, .call = add_rms_norm_call, .in = {F(3, 6), F(3, 6), F(6)}, .roundings = 3},
    {"plain", GRAD, .call = add_rms_norm_call, .in = {F(3, 6), F(3, 6)}, .roundings = 3},
    {"both results, weighted", GRAD, .call = add_rms_norm_call, .in = {F(3, 6), F(3, 6), F(6)}, .n = {1}, .roundings = 5},
    {"the sum alone", GRAD, .call = add_rms_norm_call, .in = {F(3, 6), F(3, 6), F(6)}, .n = {2}, .roundings = 2},
    {"one vector, both results", GRAD, .call = add_rms_norm_call, .in = {F(5), F(5), F(5)}, .n = {1}, .roundings = 5},
    {"rows of one", GRAD, .call = add_rms_norm_call, .in = {F(3, 1), F(3, 1), F(1)}, .n = {1}, .roundings = 5},
    {"no rows", GRAD, .call = add_rms_norm_call, .in = {F(0, 5), F(0, 5), F(5)}, .n = {1}},
    {"permuted, reversed, sliced", GRAD, .call = add_rms_norm_call, .in = {IN(FLOAT, PERMUTED, 2, 3, 4), IN(FLOAT, REVERSED, 2, 3, 4), IN(FLOAT, SLICED, 4)}, .n = {1}, .roundings = 5},
    {"expanded", GRAD, .call = add_rms_norm_call, .in = {F(3, 6), IN(FLOAT, EXPANDED, 3, 6), F(6)}, .n = {1}, .roundings = 5},
    {"large", LARGE | GRAD, .call = add_rms_norm_call, .in = {F(130, 1297), F(130, 1297), F(1297)}, .n = {1}, .roundings = 5},
    {"dropout", GRAD, .call = add_rms_norm_call, .in = {F(3, 6), F(3, 6), F(6)}, .n = {1}, .d = {0.25}, .roundings = 6},
    {"dropout, plain, the sum alone", GRAD, .call = add_rms_norm_call, .in = {F(3, 5), F(3, 5)}, .n = {2}, .d = {0.5}, .roundings = 3},
    {"dropout, permuted", GRAD, .call = add_rms_norm_call, .in = {F(2, 3, 4), IN(FLOAT, PERMUTED, 2, 3, 4)}, .d = {0.5}, .roundings = 5},
    {"large dropout", LARGE | GRAD, .call = add_rms_norm_call, .in = {F(130, 264), F(130, 264), F(264)}, .n = {1}, .d = {0.2}, .roundings = 6},
    {"residual of another shape", 0, .call = add_rms_norm_call, .in = {F(3, 6), F(6), F(6)}, .error = "x and residual must have one shape and one dtype"},
    {"weight of another size", 0, .call = add_rms_norm_call, .in = {F(3, 6), F(3, 6), F(5)}, .error = "weights must have the size of the last axis"},
    {"scalar", 0, .call = add_rms_norm_call, .in = {SCALAR(FLOAT), SCALAR(FLOAT)}, .error = "add_rms_norm: needs at least one axis"},
    END};
const struct sample samples_add_layer_norm[] = {
    {"weighted", GRAD, .call = add_layer_norm_call, .in = {F(3, 6), F(3, 6), F(6), F(6)}, .roundings = 4},
    {"plain", GRAD, .call = add_layer_norm_call, .in = {F(3, 6), F(3, 6)}, .roundings = 4},
    {"both results, weighted", GRAD, .call = add_layer_norm_call, .in = {F(3, 6), F(3, 6), F(6), F(6)}, .n = {1}, .roundings = 5},
    {"the sum alone", GRAD, .call = add_layer_norm_call, .in = {F(3, 6), F(3, 6)}, .n = {2}, .roundings = 2},
    {"no rows", GRAD, .call = add_layer_norm_call, .in = {F(0, 5), F(0, 5), F(5), F(5)}, .n = {1}},
    {"permuted and expanded", GRAD, .call = add_layer_norm_call, .in = {IN(FLOAT, PERMUTED, 3, 6), IN(FLOAT, EXPANDED, 3, 6), F(6), IN(FLOAT, REVERSED, 6)}, .n = {1}, .roundings = 5},
    {"large", LARGE | GRAD, .call = add_layer_norm_call, .in = {F(130, 97), F(130, 97), F(97), F(97)}, .n = {1}, .roundings = 5},
    {"dropout", GRAD, .call = add_layer_norm_call, .in = {F(3, 6), F(3, 6), F(6), F(6)}, .n = {1}, .d = {0.25}, .roundings = 6},
    {"dropout, no rows", GRAD, .call = add_layer_norm_call, .in = {F(0, 5), F(0, 5), F(5), F(5)}, .n = {1}, .d = {0.5}},
    {"large dropout", LARGE | GRAD, .call = add_layer_norm_call, .in = {F(130, 97), F(130, 97), F(97), F(97)}, .n = {1}, .d = {0.2}, .roundings = 6},
    {"weight alone", 0, .call = add_layer_norm_call, .in = {F(3, 6), F(3, 6), F(6)}, .error = "weight and bias come together, or not at all"},
    END};
CALL(add_rms_norm_grad_call) { return grad_call(&op_add_rms_norm_grad, s, in, out); }
CALL(add_layer_norm_grad_call) { return grad_call(&op_add_layer_norm_grad, s, in, out); }
const struct sample samples_add_rms_norm_grad[] = {
    {"weighted", 0, .call = add_rms_norm_grad_call, .in = {K(3, 6), K(3, 6), K(3, 6), IN(STATE, DENSE, 3), K(6)}, .roundings = 2},
    {"plain", 0, .call = add_rms_norm_grad_call, .in = {K(3, 6), K(3, 6), K(3, 6), IN(STATE, DENSE, 3)}, .roundings = 2},
    {"no rows", 0, .call = add_rms_norm_grad_call, .in = {K(0, 6), K(0, 6), K(0, 6), IN(STATE, DENSE, 0), K(6)}, .roundings = 2},
    {"dropout", 0, .call = add_rms_norm_grad_call, .in = {K(3, 6), K(3, 6), K(3, 6), IN(STATE, DENSE, 3), K(6)}, .d = {0.25}, .roundings = 3},
    {"dropout, sums", LARGE, .call = add_rms_norm_grad_call, .in = {K(300, 72), K(300, 72), K(300, 72), IN(STATE, DENSE, 300), K(72)}, .n = {true}, .d = {0.2}, .roundings = 3},
    {"sums", LARGE, .call = add_rms_norm_grad_call, .in = {K(300, 72), K(300, 72), K(300, 72), IN(STATE, DENSE, 300), K(72)}, .n = {true}, .roundings = 2},
    {"by way of backward", GRAD | VIA_BACKWARD, .call = add_rms_norm_call, .in = {F(2, 5), F(2, 5), F(5)}, .n = {1}, .roundings = 5},
    {"more rows than runs", LARGE, .call = add_rms_norm_grad_call, .in = {K(200, 33), K(200, 33), K(200, 33), IN(STATE, DENSE, 200), K(33)}, .roundings = 2},
    END};
const struct sample samples_add_layer_norm_grad[] = {
    {"weighted", 0, .call = add_layer_norm_grad_call, .in = {K(3, 6), K(3, 6), K(3, 6), IN(STATE, DENSE, 3), IN(STATE, DENSE, 3), K(6)}, .roundings = 2},
    {"plain", 0, .call = add_layer_norm_grad_call, .in = {K(3, 6), K(3, 6), K(3, 6), IN(STATE, DENSE, 3), IN(STATE, DENSE, 3)}, .roundings = 2},
    {"sums", LARGE, .call = add_layer_norm_grad_call, .in = {K(2, 300, 136), K(2, 300, 136), K(2, 300, 136), IN(STATE, DENSE, 2, 300), IN(STATE, DENSE, 2, 300), K(136)}, .n = {true}, .roundings = 2},
    {"sums of long rows", LARGE, .call = add_layer_norm_grad_call, .in = {K(70, 1600), K(70, 1600), K(70, 1600), IN(STATE, DENSE, 70), IN(STATE, DENSE, 70), K(1600)}, .n = {true}, .roundings = 2},
    {"sums of longer rows", LARGE, .call = add_layer_norm_grad_call, .in = {K(9, 4104), K(9, 4104), K(9, 4104), IN(STATE, DENSE, 9), IN(STATE, DENSE, 9), K(4104)}, .n = {true}, .roundings = 2},
    {"dropout", 0, .call = add_layer_norm_grad_call, .in = {K(3, 6), K(3, 6), K(3, 6), IN(STATE, DENSE, 3), IN(STATE, DENSE, 3), K(6)}, .d = {0.25}, .roundings = 3},
    {"dropout, sums", LARGE, .call = add_layer_norm_grad_call, .in = {K(2, 300, 136), K(2, 300, 136), K(2, 300, 136), IN(STATE, DENSE, 2, 300), IN(STATE, DENSE, 2, 300), K(136)}, .n = {true}, .d = {0.2}, .roundings = 3},
    {"dropout, sums of long rows", LARGE, .call = add_layer_norm_grad_call, .in = {K(9, 4104), K(9, 4104), K(9, 4104), IN(STATE, DENSE, 9), IN(STATE, DENSE, 9), K(4104)}, .n = {true}, .d = {0.5}, .roundings = 3},
    {"sums of a few rows", 0, .call = add_layer_norm_grad_call, .in = {K(3, 6), K(3, 6), K(3, 6), IN(STATE, DENSE, 3), IN(STATE, DENSE, 3), K(6)}, .n = {true}, .roundings = 2},
    {"by way of backward", GRAD | VIA_BACKWARD, .call = add_layer_norm_call, .in = {F(2, 5), F(2, 5), F(5), F(5)}, .n = {1}, .roundings = 5},
    {"more rows than runs", LARGE, .call = add_layer_norm_grad_call, .in = {K(200, 33), K(200, 33), K(200, 33), IN(STATE, DENSE, 200), IN(STATE, DENSE, 200), K(33)}, .roundings = 2},
    END};

/* n: ignore_index, sum; d: soft cap, label smoothing, weight of the z loss */
CALL(linear_cross_entropy_call) {
    tl_linear_cross_entropy_options o = {.ignore_index = s->n[0] ? s->n[0] : -100,
                                         .is_sum = s->n[1],
                                         .soft_cap = s->d[0],
                                         .label_smoothing = s->d[1],
                                         .z_loss = s->d[2]};
    return one(out, tl_linear_cross_entropy(in[0], in[1], in[2], &o));
}
/* Chunks of two rows. */
CALL(linear_cross_entropy_chunks) {
    struct attr_linear_cross_entropy a;
    memset(&a, 0, sizeof a);
    a.ignore_index = s->n[0];
    a.chunk_rows = 2;
    a.gives_dx = tl_needs_grad(in[0]) && !thread_state()->grad_off;
    a.gives_dweight = tl_needs_grad(in[1]) && !thread_state()->grad_off;
    tl_tensor *input[3] = {tl_contiguous(in[0]), tl_contiguous(in[1]), tl_contiguous(in[2])};
    tl_call c;
    call_begin(&c, &op_linear_cross_entropy, input, 3, ATTR(a));
    return one(out, op_apply(&c));
}
CALL(linear_cross_entropy_outside) {
    (void)s;
    return one(out, tl_linear_cross_entropy(in[0], in[1], tl_full(TL_SHAPE(2), 9, TL_I64, NULL), NULL));
}
const struct sample samples_linear_cross_entropy[] = {
    {"mean", GRAD, .call = linear_cross_entropy_call, .in = {F(4, 3), F(5, 3), IDS(5, 4)}},
    {"sum, i32", GRAD, .call = linear_cross_entropy_call, .in = {F(4, 3), F(5, 3), IDS32(5, 4)}, .n = {0, true}},
    {"ignored rows", GRAD, .call = linear_cross_entropy_call, .in = {F(6, 3), F(3, 3), IDS(3, 6)}, .n = {2}},
    {"chunks of two rows", GRAD, .call = linear_cross_entropy_chunks, .in = {F(5, 3), F(4, 3), IDS(4, 5)}, .n = {-100}},
    {"only x needs a gradient", GRAD, .call = linear_cross_entropy_call, .in = {F(4, 3), K(5, 3), IDS(5, 4)}},
    {"only the weight needs a gradient", GRAD, .call = linear_cross_entropy_call, .in = {K(4, 3), F(5, 3), IDS(5, 4)}},
    {"one class", GRAD, .call = linear_cross_entropy_call, .in = {F(3, 2), F(1, 2), IDS(1, 3)}},
    {"no channels", GRAD, .call = linear_cross_entropy_call, .in = {F(3, 0), F(4, 0), IDS(4, 3)}},
    {"no rows, sum", GRAD, .call = linear_cross_entropy_call, .in = {F(0, 3), F(4, 3), IDS(4, 0)}, .n = {0, true}},
    {"permuted, expanded, reversed targets", GRAD, .call = linear_cross_entropy_call, .in = {IN(FLOAT, EXPANDED, 4, 3), IN(FLOAT, PERMUTED, 5, 3), {.kind = IN_INDEX, .layout = LAY_REVERSED, DIMS(4), .limit = 5}}},
    {"large", LARGE | GRAD, .call = linear_cross_entropy_call, .in = {F(90, 64), F(611, 64), IDS(611, 90)}},
    {"soft cap", GRAD, .call = linear_cross_entropy_call, .in = {F(4, 3), F(5, 3), IDS(5, 4)}, .d = {0.9}, .roundings = 2},
    {"soft cap, ignored rows, only x needs a gradient", GRAD, .call = linear_cross_entropy_call, .in = {F(6, 3), K(3, 3), IDS(3, 6)}, .n = {2}, .d = {1.5}, .roundings = 2},
    {"large soft cap", LARGE | GRAD, .call = linear_cross_entropy_call, .in = {F(90, 64), F(611, 64), IDS(611, 90)}, .d = {3}, .roundings = 2},
    {"label smoothing", GRAD, .call = linear_cross_entropy_call, .in = {F(4, 3), F(5, 3), IDS(5, 4)}, .d = {0, 0.3}, .roundings = 2},
    {"z loss, sum", GRAD, .call = linear_cross_entropy_call, .in = {F(4, 3), F(5, 3), IDS(5, 4)}, .n = {0, true}, .d = {0, 0, 0.4}, .roundings = 2},
    {"both and a soft cap, ignored rows", GRAD, .call = linear_cross_entropy_call, .in = {F(6, 3), F(3, 3), IDS(3, 6)}, .n = {2}, .d = {1.5, 0.2, 0.4}, .roundings = 3},
    {"both, large", LARGE | GRAD, .call = linear_cross_entropy_call, .in = {F(90, 64), F(611, 64), IDS(611, 90)}, .d = {0, 0.1, 0.01}, .roundings = 3},
    {"label smoothing above 1", 0, .call = linear_cross_entropy_call, .in = {F(4, 3), F(5, 3), IDS(5, 4)}, .d = {0, 1.5}, .error = "label_smoothing must be between 0.0 and 1.0. Got: 1.5"},
    {"negative z loss", 0, .call = linear_cross_entropy_call, .in = {F(4, 3), F(5, 3), IDS(5, 4)}, .d = {0, 0, -1}, .error = "a z loss of weight -1"},
    {"negative soft cap", 0, .call = linear_cross_entropy_call, .in = {F(4, 3), F(5, 3), IDS(5, 4)}, .d = {-1}, .error = "a soft cap of -1"},
    {"inner sizes", 0, .call = linear_cross_entropy_call, .in = {F(4, 3), F(5, 2), IDS(5, 4)}, .error = "inner sizes differ"},
    {"one target too few", 0, .call = linear_cross_entropy_call, .in = {F(4, 3), F(5, 3), IDS(5, 3)}, .error = "one target per row"},
    {"float targets", 0, .call = linear_cross_entropy_call, .in = {F(4, 3), F(5, 3), F(4)}, .error = "must be i64 or i32"},
    {"target outside", CPU_ONLY, .call = linear_cross_entropy_outside, .in = {F(2, 3), F(5, 3)}, .error = "target 9 is outside [0, 5)"},
    END};

/* n: the step, a master copy (the last input), stochastic rounding, a scale of the gradient: SCALED or VOID */
enum { SCALED = 1, VOID = 2 };
static tl_update_options update_options(const struct sample *s, tl_tensor **in) {
    tl_tensor *scale = s->n[3] ? tl_full(TL_SCALAR, s->n[3] == VOID ? NAN : 0.25, TL_F32, tl_device_of(in[0])) : NULL;
    return (tl_update_options){.master = s->n[1] ? in[sample_input_count(s) - 1] : NULL, .stochastic = s->n[2], .grad_scale = scale};
}
static int changed(tl_tensor **in, int n_states, tl_tensor **out) {
    out[0] = in[0];
    for (int i = 0; i < n_states && i < 2; i++) out[1 + i] = in[2 + i];
    return 1 + (n_states < 2 ? n_states : 2);
}
CALL(sgd_momentum_call) {
    tl_sgd_options o = {.lr = 0.0625, .momentum = s->d[0], .dampening = s->d[1], .weight_decay = s->d[2], .nesterov = s->d[3] != 0, .step = s->n[0], .update = update_options(s, in)};
    bool has_buffer = s->d[0] != 0;
    return tl_sgd_(in[0], in[1], has_buffer ? in[2] : NULL, &o) ? changed(in, has_buffer, out) : 0;
}
CALL(adagrad_call) {
    tl_adagrad_options o = {.lr = 0.0625, .lr_decay = 0.125, .weight_decay = s->d[0], .eps = 1e-8, .step = s->n[0], .update = update_options(s, in)};
    return tl_adagrad_(in[0], in[1], in[2], &o) ? changed(in, 1, out) : 0;
}
CALL(rmsprop_call) { /* d: momentum, centered, weight decay */
    tl_rmsprop_options o = {.lr = 0.0625, .alpha = 0.75, .eps = 1e-6, .momentum = s->d[0], .centered = s->d[1] != 0, .weight_decay = s->d[2], .update = update_options(s, in)};
    tl_tensor *mean = o.centered ? in[3] : NULL, *buffer = o.momentum != 0 ? in[o.centered ? 4 : 3] : NULL;
    return tl_rmsprop_(in[0], in[1], in[2], mean, buffer, &o) ? changed(in, 1 + o.centered, out) : 0;
}
CALL(adam_call) { /* d: amsgrad, weight decay, decoupled */
    tl_adam_options o = {.lr = 0.0625, .beta1 = 0.875, .beta2 = 0.9375, .eps = 1e-8, .weight_decay = s->d[1], .decoupled = s->d[2] != 0, .step = s->n[0], .update = update_options(s, in)};
    return tl_adam_(in[0], in[1], in[2], in[3], s->d[0] != 0 ? in[4] : NULL, &o) ? changed(in, 2, out) : 0;
}
#define DT_16 (DT(TL_F16) | DT(TL_BF16))
CALL(lion_call) { /* d: weight decay. The mean of m and g has a sign that no rounding changes: betas are sums of powers of 2 */
    tl_lion_options o = {.lr = 0.0625, .beta1 = 0.875, .beta2 = 0.9375, .weight_decay = s->d[0], .update = update_options(s, in)};
    return tl_lion_(in[0], in[1], in[2], &o) ? changed(in, 1, out) : 0;
}
CALL(schedule_free_call) { /* d: weight decay, share */
    tl_schedule_free_options o = {.lr = 0.0625, .beta1 = 0.875, .beta2 = 0.9375, .eps = 1e-6, .weight_decay = s->d[0], .share = s->d[1], .step = s->n[0], .update = update_options(s, in)};
    return tl_schedule_free_(in[0], in[1], in[2], in[3], &o) ? changed(in, 2, out) : 0;
}
CALL(ema_call) { /* d: the weight */
    return tl_ema_(in[0], in[1], s->d[0]) ? one(out, in[0]) : 0;
}
CALL(scaled_ema_call) {
    const struct update_tensors list = {.parameter = in[0], .grad = in[1]};
    return update_ema(&list, 1, s->d[0], update_options(s, in).grad_scale) ? one(out, in[0]) : 0;
}
CALL(muon_momentum_call) { /* d: nesterov */
    tl_muon_options o = {.momentum = 0.875, .nesterov = s->d[0] != 0, .update = update_options(s, in)};
    const struct update_tensors list = {.parameter = in[0], .grad = in[1], .state = {in[2]}};
    return update_muon_momentum(&list, 1, &o) ? changed(in, 1, out) : 0;
}
#define STATE(...) IN(STATE, DENSE, __VA_ARGS__)
const struct sample samples_sgd_momentum[] = {
    {"without momentum", WRITES, .call = sgd_momentum_call, .in = {K(3, 4), K(3, 4)}, .n = {1}, .d = {0, 0, 0.125}, .roundings = 2},
    {"first step", WRITES, .call = sgd_momentum_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .n = {1}, .d = {0.875, 0.5}, .roundings = 2},
    {"later step, dampening, decay", WRITES, .call = sgd_momentum_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .n = {2}, .d = {0.875, 0.5, 0.125}, .roundings = 2},
    {"nesterov", WRITES, .call = sgd_momentum_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .n = {2}, .d = {0.875, 0, 0, 1}, .roundings = 2},
    {"scalar", WRITES, .call = sgd_momentum_call, .in = {SCALAR(CONSTANT), SCALAR(CONSTANT), SCALAR(STATE)}, .n = {2}, .d = {0.5}, .roundings = 2},
    {"plain", WRITES, .call = sgd_momentum_call, .in = {K(3, 4), K(3, 4)}, .n = {1}},
    {"plain, large", WRITES | LARGE, .call = sgd_momentum_call, .in = {K(40003), K(40003)}, .n = {1}},
    {"plain, integers", 0, .call = sgd_momentum_call, .in = {IN(I32, DENSE, 3), K(3)}, .n = {1}, .error = "not implemented for int32"},
    {"scaled", WRITES, .call = sgd_momentum_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .n = {2, false, false, SCALED}, .d = {0.5, 0, 0.125}, .roundings = 2},
    {"void", WRITES, .call = sgd_momentum_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .n = {1, false, false, VOID}, .d = {0.5}},
    {"scaled, stochastic, in packs", WRITES | NO_DATA | LARGE, DT_16, .call = sgd_momentum_call, .in = {K(40, 1000), K(40, 1000), STATE(40, 1000)}, .n = {2, false, true, SCALED}, .d = {0.5}},
    {"nothing", WRITES, .call = sgd_momentum_call, .in = {K(3, 0), K(3, 0), STATE(3, 0)}, .n = {2}, .d = {0.5}},
    {"strided", WRITES, .call = sgd_momentum_call, .in = {IN(CONSTANT, PERMUTED, 3, 4), IN(CONSTANT, EXPANDED, 3, 4), IN(STATE, SLICED, 3, 4)}, .n = {2}, .d = {0.5}, .roundings = 2},
    {"large", WRITES | LARGE, .call = sgd_momentum_call, .in = {K(30011), K(30011), STATE(30011)}, .n = {2}, .d = {0.5}, .roundings = 2},
    {"master", WRITES | NO_DATA, DT_16, .call = sgd_momentum_call, .in = {K(3, 4), K(3, 4), IN(STATE, REVERSED, 3, 4), IN(STATE, SLICED, 3, 4)}, .n = {2, true}, .d = {0.5}},
    {"stochastic", WRITES | NO_DATA, DT_16, .call = sgd_momentum_call, .in = {IN(CONSTANT, PERMUTED, 3, 4), K(3, 4)}, .n = {2, false, true}},
    {"large, master, stochastic", WRITES | NO_DATA | LARGE, DT_16, .call = sgd_momentum_call, .in = {K(30011), K(30011), STATE(30011)}, .n = {2, true, true}},
    {"step 0", 0, .call = sgd_momentum_call, .in = {K(3), K(3), STATE(3)}, .d = {0.9}, .error = "sgd_momentum: steps are counted from 1, not 0"},
    {"master of an f32 parameter", 0, .call = sgd_momentum_call, .in = {K(3), K(3), STATE(3)}, .n = {1, true}, .error = "a master copy is for parameters narrower than f32"},
    {"nesterov without momentum", 0, .call = sgd_momentum_call, .in = {K(3), K(3)}, .n = {1}, .d = {0, 0, 0, 1}, .error = "Nesterov momentum requires a momentum and zero dampening"},
    END};
const struct sample samples_adagrad[] = {
    {"first step", WRITES, .call = adagrad_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .n = {1}, .roundings = 2},
    {"later step, decay", WRITES, .call = adagrad_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .n = {7}, .d = {0.125}, .roundings = 2},
    {"strided", WRITES, .call = adagrad_call, .in = {IN(CONSTANT, SLICED, 3, 4), IN(CONSTANT, EXPANDED, 3, 4), IN(STATE, PERMUTED, 3, 4)}, .n = {2}, .roundings = 2},
    {"scaled", WRITES, .call = adagrad_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .n = {2, false, false, SCALED}, .roundings = 2},
    {"void", WRITES, .call = adagrad_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .n = {2, false, false, VOID}},
    {"in packs", WRITES | LARGE, .call = adagrad_call, .in = {K(40, 1000), K(40, 1000), STATE(40, 1000)}, .n = {2}, .d = {0.125}, .roundings = 2},
    {"nothing", WRITES, .call = adagrad_call, .in = {K(0), K(0), STATE(0)}, .n = {1}},
    {"large", WRITES | LARGE, .call = adagrad_call, .in = {K(30011), K(30011), STATE(30011)}, .n = {2}, .roundings = 2},
    {"master, stochastic", WRITES | NO_DATA, DT_16, .call = adagrad_call, .in = {K(3, 4), K(3, 4), STATE(3, 4), STATE(3, 4)}, .n = {2, true, true}},
    {"step 0", 0, .call = adagrad_call, .in = {K(3), K(3), STATE(3)}, .error = "adagrad: steps are counted from 1, not 0"},
    {"state of another shape", 0, .call = adagrad_call, .in = {K(3), K(3), STATE(4)}, .n = {1}, .error = "must have the parameter's shape"},
    END};
const struct sample samples_rmsprop[] = {
    {"plain", WRITES, .call = rmsprop_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .roundings = 2},
    {"momentum, decay", WRITES, .call = rmsprop_call, .in = {K(3, 4), K(3, 4), STATE(3, 4), STATE(3, 4)}, .d = {0.5, 0, 0.125}, .roundings = 2},
    {"strided", WRITES, .call = rmsprop_call, .in = {IN(CONSTANT, REVERSED, 3, 4), K(3, 4), IN(STATE, SLICED, 3, 4)}, .roundings = 2},
    {"scaled, strided", WRITES, .call = rmsprop_call, .in = {IN(CONSTANT, SLICED, 3, 4), K(3, 4), STATE(3, 4)}, .n = {1, false, false, SCALED}, .roundings = 2},
    {"void", WRITES, .call = rmsprop_call, .in = {K(3, 4), K(3, 4), STATE(3, 4), STATE(3, 4)}, .n = {1, false, false, VOID}, .d = {0.5}},
    {"in packs", WRITES | LARGE, .call = rmsprop_call, .in = {K(40, 1000), K(40, 1000), STATE(40, 1000), STATE(40, 1000)}, .d = {0.5}, .roundings = 2},
    {"nothing", WRITES, .call = rmsprop_call, .in = {K(0), K(0), STATE(0)}},
    {"large, momentum", WRITES | LARGE, .call = rmsprop_call, .in = {K(30011), K(30011), STATE(30011), STATE(30011)}, .d = {0.5}, .roundings = 2},
    {"centered, momentum, master", WRITES | NO_DATA, DT_16, .call = rmsprop_call, .in = {K(3, 4), K(3, 4), STATE(3, 4), STATE(3, 4), STATE(3, 4), STATE(3, 4)}, .n = {1, true}, .d = {0.5, 1}},
    {"state of another dtype", 0, .call = rmsprop_call, .in = {K(3), K(3), IN(I32, DENSE, 3)}, .error = "not implemented for int32"},
    END};
const struct sample samples_adam[] = {
    {"first step", WRITES, .call = adam_call, .in = {K(3, 4), K(3, 4), STATE(3, 4), STATE(3, 4)}, .n = {1}, .roundings = 2},
    {"amsgrad, decay", WRITES, .call = adam_call, .in = {K(3, 4), K(3, 4), STATE(3, 4), STATE(3, 4), STATE(3, 4)}, .n = {3}, .d = {1, 0.125}, .roundings = 2},
    {"decoupled decay", WRITES, .call = adam_call, .in = {K(3, 4), K(3, 4), STATE(3, 4), STATE(3, 4)}, .n = {3}, .d = {0, 0.125, 1}, .roundings = 2},
    {"strided", WRITES, .call = adam_call, .in = {IN(CONSTANT, PERMUTED, 3, 4), IN(CONSTANT, EXPANDED, 3, 4), IN(STATE, SLICED, 3, 4), IN(STATE, REVERSED, 3, 4)}, .n = {5}, .roundings = 2},
    {"scalar", WRITES, .call = adam_call, .in = {SCALAR(CONSTANT), SCALAR(CONSTANT), SCALAR(STATE), SCALAR(STATE)}, .n = {3}, .d = {0, 0.125, 1}, .roundings = 2},
    {"scaled", WRITES, .call = adam_call, .in = {K(3, 4), K(3, 4), STATE(3, 4), STATE(3, 4)}, .n = {3, false, false, SCALED}, .d = {0, 0.125}, .roundings = 2},
    {"void", WRITES, .call = adam_call, .in = {K(3, 4), K(3, 4), STATE(3, 4), STATE(3, 4)}, .n = {3, false, false, VOID}, .d = {0, 0.125, 1}},
    {"void, master, stochastic", WRITES | NO_DATA, DT_16, .call = adam_call, .in = {K(3, 4), K(3, 4), STATE(3, 4), STATE(3, 4), STATE(3, 4)}, .n = {3, true, true, VOID}},
    {"decoupled, scaled, in packs", WRITES | LARGE, .call = adam_call, .in = {K(40, 1000), K(40, 1000), STATE(40, 1000), STATE(40, 1000)}, .n = {2, false, false, SCALED}, .d = {0, 0.125, 1}, .roundings = 2},
    {"master, stochastic, scaled, in packs", WRITES | NO_DATA | LARGE, DT_16, .call = adam_call, .in = {K(40, 1000), K(40, 1000), STATE(40, 1000), STATE(40, 1000), STATE(40, 1000)}, .n = {2, true, true, SCALED}, .d = {0, 0.125, 1}},
    {"state of another shape", 0, .call = adam_call, .in = {K(3), K(3), STATE(4), STATE(3)}, .n = {1}, .error = "must have the parameter's shape"},
    {"nothing", WRITES, .call = adam_call, .in = {K(0), K(0), STATE(0), STATE(0)}, .n = {1}},
    {"large", WRITES | LARGE, .call = adam_call, .in = {K(30011), K(30011), STATE(30011), STATE(30011)}, .n = {2}, .roundings = 2},
    {"amsgrad, master, stochastic", WRITES | NO_DATA, DT_16, .call = adam_call, .in = {K(3, 4), K(3, 4), STATE(3, 4), STATE(3, 4), STATE(3, 4), STATE(3, 4)}, .n = {3, true, true}, .d = {1}},
    {"step 0", 0, .call = adam_call, .in = {K(3), K(3), STATE(3), STATE(3)}, .error = "adam: steps are counted from 1, not 0"},
    END};

/* Two steps from moments of 0. n as above, d: weight decay, decoupled, what m_scale lacks. */
CALL(adam_8bit_call) {
    tl_adam_options o = {.lr = 0.0625, .beta1 = 0.875, .beta2 = 0.9375, .eps = 1e-8, .weight_decay = s->d[0], .decoupled = s->d[1] != 0, .step = s->n[0], .update = update_options(s, in)};
    tl_device *device = tl_device_of(in[0]);
    const int64_t blocks = (tl_numel(in[0]) + 255) / 256, missing = blocks - (int64_t)s->d[2];
    tl_tensor *m = tl_zeros(tl_rank(in[0]), tl_shape(in[0]), TL_U8, device), *v = m ? tl_zeros_like(m) : NULL;
    tl_tensor *m_scale = tl_zeros(1, &missing, TL_F32, device), *v_scale = tl_zeros(1, &blocks, TL_F32, device);
    if (!m || !v || !m_scale || !v_scale) return 0;
    bool ok = tl_adam_8bit_(in[0], in[1], m, v, m_scale, v_scale, &o);
    o.step++;
    ok = ok && tl_adam_8bit_(in[0], in[1], m, v, m_scale, v_scale, &o);
    out[0] = in[0], out[1] = m, out[2] = v;
    return ok ? 3 : 0;
}
#define DT_8BIT (DT(TL_F32) | DT_16)
const struct sample samples_adam_8bit[] = {
    {"one block", WRITES, DT_8BIT, .call = adam_8bit_call, .in = {K(3, 4), K(3, 4)}, .n = {1}, .roundings = 4},
    {"strided, the last block short", WRITES, DT_8BIT, .call = adam_8bit_call, .in = {IN(CONSTANT, PERMUTED, 30, 20), IN(CONSTANT, SLICED, 30, 20)}, .n = {1}, .d = {0.125, 1}, .roundings = 4},
    {"decay, scaled", WRITES, DT(TL_F32), .call = adam_8bit_call, .in = {K(16, 32), K(16, 32)}, .n = {3, false, false, SCALED}, .d = {0.125}},
    {"void", WRITES, DT_8BIT, .call = adam_8bit_call, .in = {K(3, 4), K(3, 4)}, .n = {3, false, false, VOID}},
    {"master, stochastic", WRITES | NO_DATA, DT_16, .call = adam_8bit_call, .in = {K(20, 30), K(20, 30), STATE(20, 30)}, .n = {1, true, true}},
    {"nothing", WRITES, DT_8BIT, .call = adam_8bit_call, .in = {K(0), K(0)}, .n = {1}},
    {"large", WRITES | LARGE, DT_8BIT, .call = adam_8bit_call, .in = {K(30011), K(30011)}, .n = {2}, .d = {0.125, 1}, .roundings = 4},
    {"f64", 0, DT(TL_F64), .call = adam_8bit_call, .in = {K(3), K(3)}, .n = {1}, .error = "f64 parameters need f64 moments"},
    {"too few scales", 0, DT_8BIT, .call = adam_8bit_call, .in = {K(300), K(300)}, .n = {1}, .d = {0, 0, 1}, .error = "one scale for 256 elements"},
    {"gradient of another shape", 0, DT_8BIT, .call = adam_8bit_call, .in = {K(3), K(4)}, .n = {1}, .error = "must have the parameter's shape"},
    {"step 0", 0, DT_8BIT, .call = adam_8bit_call, .in = {K(3), K(3)}, .error = "adam_8bit: steps are counted from 1, not 0"},
    END};
const struct sample samples_lion[] = {
    {"matrix", WRITES, .call = lion_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .roundings = 2},
    {"decay", WRITES, .call = lion_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .d = {0.125}, .roundings = 2},
    {"strided", WRITES, .call = lion_call, .in = {IN(CONSTANT, PERMUTED, 3, 4), IN(CONSTANT, EXPANDED, 3, 4), IN(STATE, SLICED, 3, 4)}, .d = {0.125}, .roundings = 2},
    {"scaled, in packs", WRITES | LARGE, .call = lion_call, .in = {K(40, 1000), K(40, 1000), STATE(40, 1000)}, .n = {0, false, false, SCALED}, .roundings = 2},
    {"void", WRITES, .call = lion_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .n = {0, false, false, VOID}},
    {"master, stochastic", WRITES | NO_DATA, DT_16, .call = lion_call, .in = {K(3, 4), K(3, 4), STATE(3, 4), STATE(3, 4)}, .n = {0, true, true}},
    {"nothing", WRITES, .call = lion_call, .in = {K(0), K(0), STATE(0)}},
    {"state of another shape", 0, .call = lion_call, .in = {K(3), K(3), STATE(4)}, .error = "must have the parameter's shape"},
    END};
const struct sample samples_muon_momentum[] = {
    {"matrix", WRITES, .call = muon_momentum_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .roundings = 2},
    {"nesterov", WRITES, .call = muon_momentum_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .d = {1}, .roundings = 2},
    {"scaled, strided", WRITES, .call = muon_momentum_call, .in = {K(3, 4), IN(CONSTANT, PERMUTED, 3, 4), STATE(3, 4)}, .n = {0, false, false, SCALED}, .d = {1}, .roundings = 2},
    {"in packs", WRITES | LARGE, .call = muon_momentum_call, .in = {K(40, 1000), K(40, 1000), STATE(40, 1000)}, .d = {1}, .roundings = 2},
    {"void", WRITES, .call = muon_momentum_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .n = {0, false, false, VOID}, .d = {1}},
    {"state of another shape", 0, .call = muon_momentum_call, .in = {K(3), K(3), STATE(4)}, .error = "must have the parameter's shape"},
    END};

const struct sample samples_schedule_free[] = {
    {"first step", WRITES, .call = schedule_free_call, .in = {K(3, 4), K(3, 4), STATE(3, 4), STATE(3, 4)}, .n = {1}, .d = {0, 1}, .roundings = 2},
    {"decay", WRITES, .call = schedule_free_call, .in = {K(3, 4), K(3, 4), STATE(3, 4), STATE(3, 4)}, .n = {7}, .d = {0.125, 0.25}, .roundings = 2},
    {"strided", WRITES, .call = schedule_free_call, .in = {IN(CONSTANT, PERMUTED, 3, 4), IN(CONSTANT, EXPANDED, 3, 4), IN(STATE, SLICED, 3, 4), IN(STATE, REVERSED, 3, 4)}, .n = {3}, .d = {0.125, 0.25}, .roundings = 2},
    {"scaled, in packs", WRITES | LARGE, .call = schedule_free_call, .in = {K(40, 1000), K(40, 1000), STATE(40, 1000), STATE(40, 1000)}, .n = {3, false, false, SCALED}, .d = {0.125, 0.75}, .roundings = 2},
    {"void", WRITES, .call = schedule_free_call, .in = {K(3, 4), K(3, 4), STATE(3, 4), STATE(3, 4)}, .n = {3, false, false, VOID}, .d = {0.125, 0.25}},
    {"master, stochastic", WRITES | NO_DATA, DT_16, .call = schedule_free_call, .in = {K(3, 4), K(3, 4), STATE(3, 4), STATE(3, 4), STATE(3, 4)}, .n = {3, true, true}, .d = {0, 0.25}},
    {"nothing", WRITES, .call = schedule_free_call, .in = {K(0), K(0), STATE(0), STATE(0)}, .n = {1}, .d = {0, 1}},
    {"state of another shape", 0, .call = schedule_free_call, .in = {K(3), K(3), STATE(4), STATE(3)}, .n = {1}, .d = {0, 1}, .error = "must have the parameter's shape"},
    {"step 0", 0, .call = schedule_free_call, .in = {K(3), K(3), STATE(3), STATE(3)}, .error = "schedule_free: steps are counted from 1, not 0"},
    {"share above 1", 0, .call = schedule_free_call, .in = {K(3), K(3), STATE(3), STATE(3)}, .n = {1}, .d = {0, 1.5}, .error = "schedule_free: share is 1.5 (need 0 to 1)"},
    END};
const struct sample samples_ema[] = {
    {"small weight", WRITES, .call = ema_call, .in = {K(3, 4), K(3, 4)}, .d = {0.125}, .roundings = 2},
    {"large weight", WRITES, .call = ema_call, .in = {K(3, 4), K(3, 4)}, .d = {0.75}, .roundings = 2},
    {"weight 1", WRITES, .call = ema_call, .in = {K(3, 4), K(3, 4)}, .d = {1}},
    {"strided", WRITES, .call = ema_call, .in = {IN(CONSTANT, PERMUTED, 3, 4), IN(CONSTANT, EXPANDED, 3, 4)}, .d = {0.25}, .roundings = 2},
    {"in packs", WRITES | LARGE, .call = ema_call, .in = {K(40, 1000), K(40, 1000)}, .d = {0.25}, .roundings = 2},
    {"scaled", WRITES, .call = scaled_ema_call, .in = {K(3, 4), K(3, 4)}, .n = {0, false, false, SCALED}, .d = {0.25}, .roundings = 2},
    {"scaled, large weight", WRITES | LARGE, .call = scaled_ema_call, .in = {K(40, 1000), K(40, 1000)}, .n = {0, false, false, SCALED}, .d = {0.75}, .roundings = 2},
    {"void", WRITES, .call = scaled_ema_call, .in = {K(3, 4), K(3, 4)}, .n = {0, false, false, VOID}, .d = {0.25}},
    {"nothing", WRITES, .call = ema_call, .in = {K(0), K(0)}, .d = {0.25}},
    {"another shape", 0, .call = ema_call, .in = {K(3), K(4)}, .d = {0.25}, .error = "must have the parameter's shape"},
    {"weight that is no number", 0, .call = ema_call, .in = {K(3), K(3)}, .d = {INFINITY}, .error = "ema: weight is inf (need a number)"},
    END};

/* ---- adafactor.c ---- */

/* p, g, row, column, or p, g, variance [, master]; d: weight decay */
CALL(adafactor_call) {
    const bool is_factored = s->in[0].rank >= 2;
    tl_adafactor_options o = {.lr = 0.0625, .beta2_decay = -0.5, .eps1 = 1e-3, .eps2 = 1e-3, .d = 1, .weight_decay = s->d[0], .step = s->n[0], .update = update_options(s, in)};
    bool ok = tl_adafactor_(in[0], in[1], is_factored ? in[2] : NULL, is_factored ? in[3] : NULL, is_factored ? NULL : in[2], &o);
    return ok ? changed(in, is_factored ? 2 : 1, out) : 0;
}
const struct sample samples_adafactor[] = {
    {"first step", WRITES, .call = adafactor_call, .in = {K(3, 4), K(3, 4), STATE(3, 1), STATE(1, 4)}, .n = {1}, .roundings = 2},
    {"matrix", WRITES, .call = adafactor_call, .in = {K(3, 4), K(3, 4), STATE(3, 1), STATE(1, 4)}, .n = {5}, .roundings = 2},
    {"vector, decay", WRITES, .call = adafactor_call, .in = {K(7), K(7), STATE(7)}, .n = {9}, .d = {0.125}, .roundings = 2},
    {"number", WRITES, .call = adafactor_call, .in = {SCALAR(CONSTANT), SCALAR(CONSTANT), SCALAR(STATE)}, .n = {2}, .roundings = 2},
    {"stack of matrices, scaled", WRITES, .call = adafactor_call, .in = {K(2, 3, 4, 5), K(2, 3, 4, 5), STATE(2, 3, 4, 1), STATE(2, 3, 1, 5)}, .n = {3, false, false, SCALED}, .d = {0.125}, .roundings = 2},
    {"strided", WRITES, .call = adafactor_call, .in = {IN(CONSTANT, PERMUTED, 3, 4), IN(CONSTANT, EXPANDED, 3, 4), IN(STATE, SLICED, 3, 1), IN(STATE, SLICED, 1, 4)}, .n = {3}, .roundings = 2},
    {"void", WRITES, .call = adafactor_call, .in = {K(3, 4), K(3, 4), STATE(3, 1), STATE(1, 4)}, .n = {3, false, false, VOID}},
    {"master, stochastic", WRITES | NO_DATA, DT_16, .call = adafactor_call, .in = {K(3, 4), K(3, 4), STATE(3, 1), STATE(1, 4), STATE(3, 4)}, .n = {2, true, true}},
    {"nothing", WRITES, .call = adafactor_call, .in = {K(0, 4), K(0, 4), STATE(0, 1), STATE(1, 4)}, .n = {1}},
    {"several runs of rows", WRITES | LARGE, .call = adafactor_call, .in = {K(600, 70), K(600, 70), STATE(600, 1), STATE(1, 70)}, .n = {4}, .roundings = 2},
    {"long rows", WRITES | LARGE, .call = adafactor_call, .in = {K(5, 2100), K(5, 2100), STATE(5, 1), STATE(1, 2100)}, .n = {4}, .roundings = 2},
    {"column of another shape", 0, .call = adafactor_call, .in = {K(3, 4), K(3, 4), STATE(3, 1), STATE(3, 1)}, .n = {1}, .error = "column must have the parameter's shape, with 1 for its last axis but one"},
    {"gradient of another shape", 0, .call = adafactor_call, .in = {K(3), K(4), STATE(3)}, .n = {1}, .error = "the gradient must have the parameter's shape"},
    {"step 0", 0, .call = adafactor_call, .in = {K(3), K(3), STATE(3)}, .error = "adafactor: steps are counted from 1, not 0"},
    END};

/* ---- clip.c ---- */

CALL(sum_squares_call) { return one(out, tl_sum_squares(in, sample_input_count(s))); }
/* The first input 70 times: two calls. */
CALL(sum_squares_many) {
    tl_tensor *inputs[70];
    (void)s;
    for (int i = 0; i < 70; i++) inputs[i] = in[0];
    return one(out, tl_sum_squares(inputs, 70));
}
CALL(clip_scale_call) { return one(out, tl_clip_scale(in[0], s->d[0], s->d[1])); }
const struct sample samples_sum_squares[] = {
    {"matrix", 0, .call = sum_squares_call, .in = {K(3, 4)}},
    {"three shapes", 0, .call = sum_squares_call, .in = {K(3, 4), SCALAR(CONSTANT), K(2, 3, 2)}},
    {"dtypes beside each other", 0, .call = sum_squares_call, .in = {K(5), IN(STATE, DENSE, 7)}},
    {"nothing", 0, .call = sum_squares_call, .in = {K(3, 0)}},
    {"strided", SUM_ORDER, .call = sum_squares_call, .in = {IN(CONSTANT, PERMUTED, 3, 4), IN(CONSTANT, SLICED, 3, 4), IN(CONSTANT, REVERSED, 3, 4), IN(CONSTANT, EXPANDED, 3, 4)}},
    {"more than one call takes", 0, .call = sum_squares_many, .in = {K(3)}},
    {"large", LARGE | SUM_ORDER, .call = sum_squares_call, .in = {K(70003), K(20, 1000)}},
    {"integers", 0, .call = sum_squares_call, .in = {IN(I32, DENSE, 3)}, .error = "not implemented for int32"},
    END};
const struct sample samples_clip_scale[] = {
    {"clips", 0, .call = clip_scale_call, .in = {SCALAR(STATE)}, .d = {0.001, 1}},
    {"does not clip", 0, .call = clip_scale_call, .in = {SCALAR(STATE)}, .d = {1000, 8}},
    {"of one axis", 0, .call = clip_scale_call, .in = {STATE(1)}, .d = {INFINITY, 1}},
    {"no limit", 0, .call = clip_scale_call, .in = {SCALAR(STATE)}, .d = {0, 1}, .error = "clip_scale: max_norm 0"},
    {"no divisor", 0, .call = clip_scale_call, .in = {SCALAR(STATE)}, .d = {1, 0}, .error = "divisor 0"},
    {"several norms", 0, .call = clip_scale_call, .in = {STATE(3)}, .d = {1, 1}, .error = "the norm must be one f32 or f64 number"},
    END};

/* ---- The table ---- */

const struct sample_op sample_ops[] = {
#define OP(kind, name) {#name, OP_ID_##name, samples_##name},
#include "spec/op_list.h"
#undef OP
    {NULL, 0, NULL}};

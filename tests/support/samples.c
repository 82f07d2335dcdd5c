/* samples.c: the sample calls, in op_list.h's order. Read samples.h first. */
#include "support/samples.h"

#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"

/* ---- Inputs ---- */

static tl_dtype run_dtype = TL_F64;
tl_dtype sample_dtype(void) { return run_dtype; }

tl_tensor *tensor_drawn(int rank, const int64_t *shape, tl_dtype dtype, tl_device *device) {
    bool mode = tl_grad_mode(false);
    tl_scope scope = tl_scope_begin();
    tl_tensor *k = tl_integers(rank, shape, -64, 64, TL_I64, device);
    tl_tensor *x = tl_scope_return(scope, tl_cast(tl_affine(tl_cast(k, TL_F64), 1 / 32.0, 1 / 64.0), dtype));
    tl_grad_mode(mode);
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

bool sample_inputs(const struct sample *s, tl_device *device, tl_dtype dtype, bool with_grad,
                   enum sample_layout layout, tl_tensor **in) {
    bool mode = tl_grad_mode(false);
    tl_default_device(device);
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
        bool is_float = want->kind == IN_FLOAT || want->kind == IN_POSITIVE || want->kind == IN_DISTINCT;
        if (in[i] && with_grad && is_float && (s->flags & GRAD)) tl_requires_grad(in[i], true);
    }
    tl_grad_mode(mode);
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
    {"index too large", 0, .call = select_call, .in = {F(3, 4)}, .n = {0, 3}, .error = "index 3 is out of bounds for an axis of size 3"},
    {"axis of a scalar", 0, .call = select_call, .in = {SCALAR(FLOAT)}, .n = {0, 0}, .error = "axis 0 of a scalar"},
    END};

CALL(slice_call) { return one(out, tl_slice(in[0], (int)s->n[0], s->n[1], s->n[2], s->n[3])); }
const struct sample samples_slice[] = {
    {"middle", GRAD, .call = slice_call, .in = {F(5, 3)}, .n = {0, 1, 4, 1}},
    {"every second, backwards", GRAD, .call = slice_call, .in = {F(2, 7)}, .n = {1, -1, TL_END, -2}},
    {"empty", GRAD, .call = slice_call, .in = {F(4)}, .n = {0, 3, 1, 1}},
    {"one element, clipped ends", GRAD, .call = slice_call, .in = {F(1, 2)}, .n = {0, -9, 9, 5}},
    {"of permuted", GRAD, .call = slice_call, .in = {IN(FLOAT, PERMUTED, 4, 3)}, .n = {0, 1, TL_END, 2}},
    {"of sliced", GRAD, .call = slice_call, .in = {IN(FLOAT, SLICED, 4, 5)}, .n = {1, 0, TL_END, 3}},
    {"step 0", 0, .call = slice_call, .in = {F(4)}, .n = {0, 0, 4, 0}, .error = "step 0 is not allowed"},
    {"no such axis", 0, .call = slice_call, .in = {F(4)}, .n = {1, 0, 4, 1}, .error = "axis 1 is out of range"},
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
    {"of bool", 0, .call = reshape_call, .in = {IN(BOOL, DENSE, 4)}, .n = {2, 2, 2}},
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
    {"transpose of sliced", GRAD, .call = transpose_call, .in = {IN(FLOAT, SLICED, 2, 3)}, .n = {0, -1}},
    {"transpose of expanded", GRAD, .call = transpose_call, .in = {IN(FLOAT, EXPANDED, 2, 3)}, .n = {0, 1}},
    {"axis named twice", 0, .call = permute_call, .in = {F(2, 3)}, .n = {1, 1}, .error = "axis 1 is named twice"},
    END};

CALL(expand_call) { return one(out, tl_expand(in[0], (int)s->n[0], s->n + 1)); }
const struct sample samples_expand[] = {
    {"new axis", GRAD, .call = expand_call, .in = {F(3)}, .n = {2, 4, 3}},
    {"size 1 repeated", GRAD, .call = expand_call, .in = {F(2, 1, 3)}, .n = {3, -1, 4, -1}},
    {"scalar", GRAD, .call = expand_call, .in = {SCALAR(FLOAT)}, .n = {2, 2, 3}},
    {"to size 0", GRAD, .call = expand_call, .in = {F(1, 3)}, .n = {2, 0, 3}},
    {"nothing to repeat", GRAD, .call = expand_call, .in = {F(2, 3)}, .n = {2, 2, 3}},
    {"other size", 0, .call = expand_call, .in = {F(2, 3)}, .n = {2, 4, 3}, .error = "the expanded size of the tensor (4) must match the existing size (2)"},
    {"fewer axes", 0, .call = expand_call, .in = {F(2, 3)}, .n = {1, 3}, .error = "must be greater or equal to the number of dimensions"},
    END};

CALL(diagonal_call) { return one(out, tl_diagonal(in[0], s->n[0], (int)s->n[1], (int)s->n[2])); }
const struct sample samples_diagonal[] = {
    {"main", GRAD, .call = diagonal_call, .in = {F(3, 4)}, .n = {0, 0, 1}},
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
const struct sample samples_copy[] = {
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
    {"no broadcast", 0, .call = assign_call, .in = {F(3, 4), F(3)}, .error = "the source does not broadcast to the target"},
    END};

CALL(fill_call) { return one(out, tl_fill_(tl_clone(in[0]), s->d[0])); }
CALL(fill_part_call) {
    tl_tensor *x = tl_clone(in[0]);
    return tl_fill_(tl_select(x, -1, 1), s->d[0]) ? one(out, x) : 0;
}
CALL(fill_expanded_call) { return one(out, tl_fill_(in[0], s->d[0])); }
CALL(fill_twin) { return one(out, tl_full(tl_rank(in[0]), tl_shape(in[0]), s->d[0], tl_dtype_of(in[0]), tl_device_of(in[0]))); }
const struct sample samples_fill[] = {
    {"matrix", GRAD, DT_ARITHMETIC, .call = fill_call, .twin = fill_twin, .in = {F(3, 4)}, .d = {0.5}},
    {"scalar", GRAD, DT_ARITHMETIC, .call = fill_call, .twin = fill_twin, .in = {SCALAR(FLOAT)}, .d = {2}},
    {"nothing", GRAD, DT_ARITHMETIC, .call = fill_call, .twin = fill_twin, .in = {F(2, 0)}, .d = {2}},
    {"a column of a matrix", GRAD, DT_ARITHMETIC, .call = fill_part_call, .in = {F(3, 4)}, .d = {1}},
    {"integers", 0, .call = fill_call, .in = {IN(U8, DENSE, 5)}, .d = {3}},
    {"expanded", 0, .call = fill_expanded_call, .in = {IN(CONSTANT, EXPANDED, 3, 4)}, .d = {1}, .error = "more than one element of the written-to tensor refers to a single memory location"},
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

/* ---- elementwise.c ---- */

/* What every op of two operands is called with. */
#define BINARY(f, a_kind)                                                                                          \
    {"same shape", GRAD, DT_ARITHMETIC, .binary = f, .in = {F(3, 4), IN(a_kind, DENSE, 3, 4)}},                    \
    {"scalars", GRAD, DT_ARITHMETIC, .binary = f, .in = {SCALAR(FLOAT), SCALAR(a_kind)}},                          \
    {"row against column", GRAD, DT_ARITHMETIC, .binary = f, .in = {F(3, 1), IN(a_kind, DENSE, 1, 4)}},            \
    {"vector against matrix", GRAD, DT_ARITHMETIC, .binary = f, .in = {F(4), IN(a_kind, DENSE, 2, 3, 4)}},         \
    {"size 0", GRAD, DT_ARITHMETIC, .binary = f, .in = {F(0, 4), IN(a_kind, DENSE, 4)}},                           \
    {"permuted and sliced", GRAD, DT_ARITHMETIC, .binary = f, .in = {IN(FLOAT, PERMUTED, 3, 4), IN(a_kind, SLICED, 3, 4)}}, \
    {"reversed and expanded", GRAD, DT_ARITHMETIC, .binary = f, .in = {IN(FLOAT, REVERSED, 3, 4), IN(a_kind, EXPANDED, 3, 4)}}, \
    {"with integers", GRAD, .binary = f, .in = {F(3, 4), IN(U8, DENSE, 1, 4)}},                                    \
    {"large, broadcast", LARGE | GRAD, .binary = f, .in = {F(257, 129), IN(a_kind, DENSE, 129)}},                  \
    {"shapes that do not broadcast", 0, .binary = f, .in = {F(3, 4), F(3)}, .error = "must match at every axis that is not 1"}

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
    BINARY(tl_add, FLOAT),
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
    BINARY(tl_sub, FLOAT),
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
    BINARY(tl_mul, FLOAT),
    {"integers", 0, .binary = tl_mul, .in = {IN(I32, SLICED, 3, 4), IN(U8, DENSE, 3, 4)}},
    {"square", GRAD, DT_ARITHMETIC, .call = mul_self, .in = {F(3, 4)}},
    {"in place", GRAD, DT_ARITHMETIC, .call = mul_in_place, .twin = mul_twin, .in = {F(3, 4), K(3, 4)}},
    {"square in place", 0, DT_ARITHMETIC, .call = mul_self_in_place, .twin = mul_self, .in = {F(3, 4)}},
    {"a saved operand is changed", 0, .call = mul_after_save, .in = {F(3)}, .error = "has been modified by an inplace operation"},
    END};

CALL(div_in_place) { return (void)s, one(out, tl_div_(tl_clone(in[0]), in[1])); }
CALL(div_twin) { return (void)s, one(out, tl_div(in[0], in[1])); }
const struct sample samples_div[] = {
    {"same shape", GRAD, DT_ARITHMETIC, .binary = tl_div, .in = {F(3, 4), F(3, 4)}},
    {"scalars", GRAD, DT_ARITHMETIC, .binary = tl_div, .in = {SCALAR(FLOAT), SCALAR(POSITIVE)}},
    {"row against column", GRAD, DT_ARITHMETIC, .binary = tl_div, .in = {F(3, 1), IN(POSITIVE, DENSE, 1, 4)}},
    {"size 0", GRAD, DT_ARITHMETIC, .binary = tl_div, .in = {F(0, 4), F(4)}},
    {"permuted and expanded", GRAD, DT_ARITHMETIC, .binary = tl_div, .in = {IN(FLOAT, PERMUTED, 3, 4), IN(POSITIVE, EXPANDED, 3, 4)}},
    {"reversed by sliced", GRAD, DT_ARITHMETIC, .binary = tl_div, .in = {IN(FLOAT, REVERSED, 3, 4), IN(POSITIVE, SLICED, 3, 4)}},
    {"in place", GRAD, DT_ARITHMETIC, .call = div_in_place, .twin = div_twin, .in = {F(3, 4), K(4)}},
    {"large, broadcast", LARGE | GRAD, .binary = tl_div, .in = {F(257, 129), IN(POSITIVE, DENSE, 129)}},
    {"integers", 0, .binary = tl_div, .in = {IN(I32, DENSE, 3), IN(I32, DENSE, 3)}, .error = "not implemented for integers"},
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

/* What every op of one operand is called with. */
#define UNARY(f, kind_)                                                                    \
    {"matrix", GRAD, DT_ARITHMETIC, .unary = f, .in = {IN(kind_, DENSE, 3, 5)}},           \
    {"scalar", GRAD, DT_ARITHMETIC, .unary = f, .in = {SCALAR(kind_)}},                    \
    {"size 0", GRAD, DT_ARITHMETIC, .unary = f, .in = {IN(kind_, DENSE, 3, 0)}},           \
    {"size 1", GRAD, DT_ARITHMETIC, .unary = f, .in = {IN(kind_, DENSE, 1, 1, 1)}},        \
    {"permuted", GRAD, DT_ARITHMETIC, .unary = f, .in = {IN(kind_, PERMUTED, 2, 3, 4)}},   \
    {"sliced", GRAD, DT_ARITHMETIC, .unary = f, .in = {IN(kind_, SLICED, 3, 5)}},          \
    {"reversed", GRAD, DT_ARITHMETIC, .unary = f, .in = {IN(kind_, REVERSED, 3, 5)}},      \
    {"expanded", GRAD, DT_ARITHMETIC, .unary = f, .in = {IN(kind_, EXPANDED, 3, 5)}},      \
    {"large", LARGE | GRAD, .unary = f, .in = {IN(kind_, DENSE, 33, 1031)}}
#define NO_INTEGERS(f) \
    {"integers", 0, .unary = f, .in = {IN(I32, DENSE, 3)}, .error = "not implemented for int32"}

const struct sample samples_neg[] = {
    UNARY(tl_neg, FLOAT), {"integers", 0, .unary = tl_neg, .in = {IN(I64, SLICED, 3, 4)}}, END};

static tl_tensor *exp_in_place(tl_tensor *x) { return tl_exp_(tl_clone(x)); }
CALL(exp_twin) { return (void)s, one(out, tl_exp(in[0])); }
const struct sample samples_exp[] = {
    UNARY(tl_exp, FLOAT), NO_INTEGERS(tl_exp),
    {"in place", GRAD, DT_ARITHMETIC, .unary = exp_in_place, .twin = exp_twin, .in = {F(3, 4)}}, END};
const struct sample samples_log[] = {UNARY(tl_log, POSITIVE), NO_INTEGERS(tl_log), END};
const struct sample samples_sqrt[] = {UNARY(tl_sqrt, POSITIVE), NO_INTEGERS(tl_sqrt), END};
const struct sample samples_tanh[] = {UNARY(tl_tanh, FLOAT), NO_INTEGERS(tl_tanh), END};
const struct sample samples_sigmoid[] = {UNARY(tl_sigmoid, FLOAT), NO_INTEGERS(tl_sigmoid), END};

static tl_tensor *relu_in_place(tl_tensor *x) { return tl_relu_(tl_clone(x)); }
CALL(relu_twin) { return (void)s, one(out, tl_relu(in[0])); }
const struct sample samples_relu[] = {
    UNARY(tl_relu, FLOAT), NO_INTEGERS(tl_relu),
    {"in place", GRAD, DT_ARITHMETIC, .unary = relu_in_place, .twin = relu_twin, .in = {F(3, 4)}}, END};
const struct sample samples_gelu[] = {UNARY(tl_gelu, FLOAT), NO_INTEGERS(tl_gelu), END};
const struct sample samples_silu[] = {
    UNARY(tl_silu, FLOAT), NO_INTEGERS(tl_silu), END};

static tl_tensor *gelu_grad(tl_tensor *x, tl_tensor *g) { return op_apply2(&op_gelu_grad, x, g, NULL, 0); }
static tl_tensor *silu_grad(tl_tensor *x, tl_tensor *g) { return op_apply2(&op_silu_grad, x, g, NULL, 0); }
#define GRAD_OF(f, forward)                                                                                         \
    {"matrix", 0, DT_ARITHMETIC, .binary = f, .in = {K(3, 4), K(3, 4)}},                                            \
    {"scalars", 0, DT_ARITHMETIC, .binary = f, .in = {SCALAR(CONSTANT), SCALAR(CONSTANT)}},                         \
    {"size 0", 0, DT_ARITHMETIC, .binary = f, .in = {K(0), K(0)}},                                                  \
    {"permuted and expanded", 0, DT_ARITHMETIC, .binary = f, .in = {IN(CONSTANT, PERMUTED, 3, 4), IN(CONSTANT, EXPANDED, 3, 4)}}, \
    {"by way of backward", GRAD | VIA_BACKWARD, DT_ARITHMETIC, .unary = forward, .in = {F(4, 3)}},                  \
    {"large", LARGE, .binary = f, .in = {K(33, 1031), K(33, 1031)}},                                                \
    {"integers", 0, .binary = f, .in = {IN(I32, DENSE, 3), IN(I32, DENSE, 3)}, .error = "not implemented for integers"}
const struct sample samples_gelu_grad[] = {GRAD_OF(gelu_grad, tl_gelu), END};
const struct sample samples_silu_grad[] = {GRAD_OF(silu_grad, tl_silu), END};

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
    {"no broadcast", 0, .call = compare_call, .in = {F(3), F(4)}, .error = "must match at every axis that is not 1"},
    END};

CALL(where_call) { return (void)s, one(out, tl_where(in[0], in[1], in[2])); }
CALL(dropout_call) { return one(out, tl_dropout(in[0], s->d[0])); }
const struct sample samples_where[] = {
    {"same shape", GRAD, DT_ARITHMETIC, .call = where_call, .in = {IN(BOOL, DENSE, 3, 4), F(3, 4), F(3, 4)}},
    {"all broadcast", GRAD, DT_ARITHMETIC, .call = where_call, .in = {IN(BOOL, DENSE, 3, 1), F(4), SCALAR(FLOAT)}},
    {"scalars", GRAD, DT_ARITHMETIC, .call = where_call, .in = {SCALAR(BOOL), SCALAR(FLOAT), SCALAR(FLOAT)}},
    {"size 0", GRAD, DT_ARITHMETIC, .call = where_call, .in = {IN(BOOL, DENSE, 0), F(0), F(1)}},
    {"strided", GRAD, DT_ARITHMETIC, .call = where_call, .in = {IN(BOOL, PERMUTED, 3, 4), IN(FLOAT, SLICED, 3, 4), IN(FLOAT, EXPANDED, 3, 4)}},
    {"integers", 0, .call = where_call, .in = {IN(BOOL, DENSE, 6), IN(I64, DENSE, 6), IN(I32, DENSE, 6)}},
    {"dropout", GRAD, .call = dropout_call, .in = {F(4, 5)}, .d = {0.25}, .roundings = 2},
    {"large", LARGE | GRAD, .call = where_call, .in = {IN(BOOL, DENSE, 257, 129), F(257, 129), F(129)}},
    {"condition is no bool", 0, .call = where_call, .in = {IN(U8, DENSE, 3), F(3), F(3)}, .error = "expected condition to be a boolean tensor"},
    {"dropout of all", 0, .call = dropout_call, .in = {F(3)}, .d = {1}, .error = "dropout: probability has to be in [0, 1), but got 1"},
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
    {"over no element of no output", GRAD, DT_ARITHMETIC, .call = call_, .in = {IN(kind_, DENSE, 0, 0)}, .n = {1, 1}}, \
    {"axis named twice", 0, .call = call_, .in = {F(3, 4)}, .n = {2, 1, -1}, .error = "axis -1 is named twice (rank 2)"}
const struct sample samples_sum[] = {
    REDUCTIONS(sum_call, FLOAT),
    {"expanded", GRAD, DT_ARITHMETIC, .call = sum_call, .in = {IN(FLOAT, EXPANDED, 3, 4)}},
    {"of nothing", GRAD, DT_ARITHMETIC, .call = sum_call, .in = {F(3, 0)}, .n = {1, 1}},
    {"bool: counts", 0, .call = sum_call, .in = {IN(BOOL, DENSE, 3, 5)}, .n = {1, 1}},
    {"i16", 0, .call = sum_call, .in = {IN(I16, PERMUTED, 3, 5)}},
    {"mean of rows", GRAD, .call = mean_call, .in = {F(3, 4)}, .n = {1, 1, [5] = true}, .roundings = 2},
    {"mean of all", GRAD, .unary = tl_mean_all, .in = {IN(FLOAT, REVERSED, 3, 4)}, .roundings = 2},
    {"mse loss", GRAD, .binary = tl_mse_loss, .in = {F(3, 4), F(3, 4)}, .roundings = 6},
    {"several chunks", LARGE | GRAD, .call = sum_call, .in = {F(3, 9000)}, .n = {1, 1}},
    {"several chunks of one", LARGE | GRAD, .unary = tl_sum_all, .in = {IN(FLOAT, PERMUTED, 150, 151)}},
    {"columns of many rows", LARGE | GRAD, .call = sum_call, .in = {F(5000, 17)}, .n = {1, 0}},
    {"mean of integers", 0, .unary = tl_mean_all, .in = {IN(I32, DENSE, 3)}, .error = "mean: could not infer output dtype"},
    END};
const struct sample samples_max[] = {
    REDUCTIONS(max_call, DISTINCT),
    {"integers", 0, .call = max_call, .in = {IN(I32, SLICED, 3, 5)}, .n = {1, 1}},
    {"ties share the gradient", GRAD | ROUNDS, .call = max_call, .in = {IN(FLOAT, EXPANDED, 3, 4)}, .n = {1, 0}},
    {"large", LARGE | GRAD, .call = max_call, .in = {F(40, 1001)}, .n = {1, 1}},
    {"of nothing", 0, .call = max_call, .in = {F(3, 0)}, .n = {1, 1}, .error = "the maximum of no elements does not exist"},
    END};

const struct sample samples_softmax[] = {
    {"rows", GRAD, .unary = tl_softmax, .in = {F(3, 5)}},
    {"one vector", GRAD, .unary = tl_softmax, .in = {F(6)}},
    {"rows of one", GRAD, .unary = tl_softmax, .in = {F(4, 1)}},
    {"no rows", GRAD, .unary = tl_softmax, .in = {F(0, 5)}},
    {"rows of none", GRAD, .unary = tl_softmax, .in = {F(3, 0)}},
    {"permuted", GRAD, .unary = tl_softmax, .in = {IN(FLOAT, PERMUTED, 2, 3, 4)}},
    {"expanded", GRAD, .unary = tl_softmax, .in = {IN(FLOAT, EXPANDED, 3, 4)}},
    {"large", LARGE | GRAD, .unary = tl_softmax, .in = {F(70, 601)}},
    {"scalar", 0, .unary = tl_softmax, .in = {SCALAR(FLOAT)}, .error = "softmax: needs at least one axis"},
    NO_INTEGERS(tl_softmax),
    END};
static tl_tensor *softmax_grad(tl_tensor *y, tl_tensor *g) { return op_apply2(&op_softmax_grad, tl_contiguous(y), tl_contiguous(g), NULL, 0); }
const struct sample samples_softmax_grad[] = {
    {"rows", 0, .binary = softmax_grad, .in = {K(3, 5), K(3, 5)}},
    {"rows of one", 0, .binary = softmax_grad, .in = {K(3, 1), K(3, 1)}},
    {"no rows", 0, .binary = softmax_grad, .in = {K(0, 5), K(0, 5)}},
    {"by way of backward", GRAD | VIA_BACKWARD, .unary = tl_softmax, .in = {F(2, 2, 3)}},
    {"large", LARGE, .binary = softmax_grad, .in = {K(70, 601), K(70, 601)}},
    END};

/* ---- matmul.c ---- */

CALL(linear_call) { return (void)s, one(out, tl_linear(in[0], in[1], in[2])); }
CALL(linear_no_bias) { return (void)s, one(out, tl_linear(in[0], in[1], NULL)); }
CALL(linear_of_part) { /* rows that are dense and lie evenly, with gaps: read where they are */
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
    {"different dtypes", 0, .binary = tl_matmul, .in = {F(4, 6), IN(I32, DENSE, 6, 4)}, .error = "the operands have different dtypes"},
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

/* The gradient ops directly: g, x, statistics [, weight], every input of the run's dtype or its statistics' dtype. */
static int grad_call(const tl_op *op, const struct sample *s, tl_tensor **in, tl_tensor **out) {
    struct attr_norm a = {1e-5};
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
    {"by way of backward", GRAD | VIA_BACKWARD, .call = layer_norm_call, .in = {F(2, 5), F(5), F(5)}},
    {"more rows than runs", LARGE, .call = layer_norm_grad_call, .in = {K(200, 33), K(200, 33), IN(STATE, DENSE, 200), IN(STATE, DENSE, 200), K(33)}},
    END};
const struct sample samples_rms_norm_grad[] = {
    {"weighted", 0, .call = rms_norm_grad_call, .in = {K(3, 6), K(3, 6), IN(STATE, DENSE, 3), K(6)}},
    {"plain", 0, .call = rms_norm_grad_call, .in = {K(3, 6), K(3, 6), IN(STATE, DENSE, 3)}},
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
static tl_tensor *target_outside(tl_tensor *x) { return tl_cross_entropy(x, tl_full(TL_SHAPE(2), -1, TL_I64, NULL)); }
const struct sample samples_cross_entropy[] = {
    {"mean", GRAD, .binary = tl_cross_entropy, .in = {F(4, 5), IDS(5, 4)}, .roundings = 2},
    {"rows and lse", GRAD, .call = cross_entropy_rows, .in = {F(4, 5), IDS32(5, 4)}},
    {"one class", GRAD, .binary = tl_cross_entropy, .in = {F(3, 1), IDS(1, 3)}},
    {"no rows", GRAD, .call = cross_entropy_rows, .in = {F(0, 5), IDS(5, 0)}},
    {"permuted logits, reversed targets", GRAD, .binary = tl_cross_entropy, .in = {IN(FLOAT, PERMUTED, 4, 5), {.kind = IN_INDEX, .layout = LAY_REVERSED, DIMS(4), .limit = 5}}, .roundings = 2},
    {"large", LARGE | GRAD, .binary = tl_cross_entropy, .in = {F(90, 611), IDS(611, 90)}, .roundings = 2},
    {"one target too few", 0, .binary = tl_cross_entropy, .in = {F(4, 5), IDS(5, 3)}, .error = "one target per row of logits"},
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
    {"by way of backward", GRAD | VIA_BACKWARD, .binary = tl_cross_entropy, .in = {F(3, 4), IDS(4, 3)}, .roundings = 2},
    {"large", LARGE, .call = cross_entropy_grad_call, .in = {IN(STATE, DENSE, 90), K(90, 611), IDS(611, 90), IN(STATE, DENSE, 90)}},
    END};

/* ---- attention.c ---- */

CALL(rope_call) { return one(out, tl_rope(in[0], s->d[0], s->n[0])); }
const struct sample samples_rope[] = {
    {"heads", GRAD, .call = rope_call, .in = {F(2, 3, 2, 4)}, .d = {10000}},
    {"later positions, other base", GRAD, .call = rope_call, .in = {F(1, 3, 1, 6)}, .d = {500000}, .n = {100}},
    {"no time", GRAD, .call = rope_call, .in = {F(2, 0, 2, 4)}, .d = {10000}},
    {"heads before time", GRAD, .call = rope_call, .in = {IN(FLOAT, PERMUTED, 2, 3, 2, 4)}, .d = {10000}},
    {"reversed", GRAD, .call = rope_call, .in = {IN(FLOAT, REVERSED, 2, 3, 2, 2)}, .d = {10000}},
    {"large", LARGE | GRAD, .call = rope_call, .in = {F(2, 60, 6, 48)}, .d = {10000}},
    {"odd head size", 0, .call = rope_call, .in = {F(1, 2, 1, 3)}, .d = {10000}, .error = "rotates pairs"},
    END};

/* n: causal, window, mask (the last input) */
static tl_attention_options attention_options(const struct sample *s, tl_tensor **in) {
    tl_attention_options o = tl_attention_defaults();
    o.causal = s->n[0];
    o.window = s->n[1];
    o.mask = s->n[2] ? in[3] : NULL;
    o.scale = s->d[0];
    return o;
}
CALL(attention_ex_call) {
    tl_attention_options o = attention_options(s, in);
    out[0] = tl_attention_ex(in[0], in[1], in[2], &o, &out[1]);
    return out[0] ? 2 : 0;
}
/* Both results take part in the gradient, or lse alone. */
CALL(attention_lse_call) {
    tl_attention_options o = attention_options(s, in);
    tl_tensor *lse, *y = tl_attention_ex(in[0], in[1], in[2], &o, &lse);
    if (!y || s->n[3]) return one(out, y ? lse : NULL);
    y = tl_sum_all(tl_mul(y, y));
    return one(out, tl_add(y, tl_sum_all(tl_mul(lse, lse))));
}
CALL(attention_call) { return one(out, tl_attention(in[0], in[1], in[2], s->n[0], s->d[0])); }
const struct sample samples_attention[] = {
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
    {"large window", LARGE | GRAD, .call = attention_ex_call, .in = {F(1, 230, 2, 16), F(1, 250, 1, 16), F(1, 250, 1, 16)}, .n = {true, 70}},
    {"large mask, wide head", LARGE | GRAD, .call = attention_ex_call, .in = {F(1, 120, 2, 150), F(1, 110, 1, 150), F(1, 110, 1, 150), IN(BOOL, DENSE, 1, 2, 120, 110)}, .n = {false, 0, true}},
    {"window without causal", 0, .call = attention_ex_call, .in = {F(1, 3, 1, 2), F(1, 3, 1, 2), F(1, 3, 1, 2)}, .n = {false, 2}, .error = "a window is a number of keys before a query"},
    {"mask of another shape", 0, .call = attention_ex_call, .in = {F(2, 3, 1, 2), F(2, 4, 1, 2), F(2, 4, 1, 2), K(3, 3)}, .n = {false, 0, true}, .error = "must match the existing size"},
    {"mask of integers", 0, .call = attention_ex_call, .in = {F(1, 3, 1, 2), F(1, 3, 1, 2), F(1, 3, 1, 2), IN(I32, DENSE, 3, 3)}, .n = {false, 0, true}, .error = "not implemented for int32"},
    {"large", LARGE | GRAD, .call = attention_call, .in = {F(2, 120, 4, 32), F(2, 120, 2, 32), F(2, 120, 2, 32)}, .n = {true}},
    {"ranks", 0, .call = attention_call, .in = {F(4, 2, 3), F(4, 2, 3), F(4, 2, 3)}, .error = "wrong ranks"},
    {"heads that do not divide", 0, .call = attention_call, .in = {F(1, 2, 3, 2), F(1, 2, 2, 2), F(1, 2, 2, 2)}, .error = "query heads must be a multiple of key heads"},
    END};
/* A gradient from the op's own results, as backward would ask for it. */
CALL(attention_grad_call) {
    struct attr_attention a;
    memset(&a, 0, sizeof a);
    a.scale = 0.5;
    a.causal = s->n[0];
    tl_call c;
    call_begin(&c, &op_attention, in, 3, ATTR(a));
    if (!op_apply(&c)) return 0;
    tl_tensor *input[6] = {tl_contiguous(in[3]), in[0], in[1], in[2], c.output[0], c.output[1]};
    call_begin(&c, &op_attention_grad, input, 6, ATTR(a));
    if (!op_apply(&c)) return 0;
    for (int j = 0; j < 3; j++) out[j] = c.output[j];
    return 3;
}
const struct sample samples_attention_grad[] = {
    {"causal", GEOMETRY, .call = attention_grad_call, .in = {K(2, 4, 2, 3), K(2, 4, 2, 3), K(2, 4, 2, 3), K(2, 4, 2, 3)}, .n = {true}, .roundings = 4},
    {"grouped heads", GEOMETRY, .call = attention_grad_call, .in = {K(1, 3, 4, 2), K(1, 5, 2, 2), K(1, 5, 2, 2), K(1, 3, 4, 2)}, .roundings = 4},
    {"no batch", GEOMETRY, .call = attention_grad_call, .in = {K(0, 4, 2, 3), K(0, 4, 2, 3), K(0, 4, 2, 3), K(0, 4, 2, 3)}, .n = {true}},
    {"by way of backward", GRAD | VIA_BACKWARD, .call = attention_call, .in = {F(1, 5, 2, 2), F(1, 5, 1, 2), F(1, 5, 1, 2)}, .n = {true}},
    {"large", LARGE | GEOMETRY, .call = attention_grad_call, .in = {K(2, 120, 4, 32), K(2, 120, 2, 32), K(2, 120, 2, 32), K(2, 120, 4, 32)}, .n = {true}, .roundings = 4},
    END};

/* ---- update.c ---- */

CALL(adamw_call) {
    tl_adamw_options o = {.lr = 0.0625, .beta1 = 0.875, .beta2 = 0.9375, .eps = 1e-8, .weight_decay = 0.125, .step = s->n[0]};
    if (!tl_adamw_(in[0], in[1], in[2], in[3], &o)) return 0;
    out[0] = in[0], out[1] = in[2], out[2] = in[3];
    return 3;
}
CALL(sgd_call) { return tl_sgd_(in[0], in[1], s->d[0]) ? one(out, in[0]) : 0; }
const struct sample samples_adamw[] = {
    {"first step", WRITES, .call = adamw_call, .in = {K(3, 4), K(3, 4), IN(STATE, DENSE, 3, 4), IN(STATE, DENSE, 3, 4)}, .n = {1}},
    {"scalar", WRITES, .call = adamw_call, .in = {SCALAR(CONSTANT), SCALAR(CONSTANT), SCALAR(STATE), SCALAR(STATE)}, .n = {3}},
    {"nothing", WRITES, .call = adamw_call, .in = {K(0), K(0), IN(STATE, DENSE, 0), IN(STATE, DENSE, 0)}, .n = {1}},
    {"strided", WRITES, .call = adamw_call, .in = {IN(CONSTANT, PERMUTED, 3, 4), IN(CONSTANT, EXPANDED, 3, 4), IN(STATE, SLICED, 3, 4), IN(STATE, REVERSED, 3, 4)}, .n = {5}},
    {"large", WRITES | LARGE, .call = adamw_call, .in = {K(30011), K(30011), IN(STATE, DENSE, 30011), IN(STATE, DENSE, 30011)}, .n = {2}},
    {"step 0", 0, .call = adamw_call, .in = {K(3), K(3), IN(STATE, DENSE, 3), IN(STATE, DENSE, 3)}, .n = {0}, .error = "adamw: steps are counted from 1, not 0"},
    {"state of another shape", 0, .call = adamw_call, .in = {K(3), K(3), IN(STATE, DENSE, 4), IN(STATE, DENSE, 3)}, .n = {1}, .error = "must have the parameter's shape"},
    END};
const struct sample samples_sgd[] = {
    {"matrix", WRITES, .call = sgd_call, .in = {K(3, 4), K(3, 4)}, .d = {0.125}},
    {"scalar", WRITES, .call = sgd_call, .in = {SCALAR(CONSTANT), SCALAR(CONSTANT)}, .d = {0.125}},
    {"nothing", WRITES, .call = sgd_call, .in = {K(3, 0), K(3, 0)}, .d = {0.125}},
    {"strided", WRITES, .call = sgd_call, .in = {IN(CONSTANT, SLICED, 3, 4), IN(CONSTANT, EXPANDED, 3, 4)}, .d = {0.125}},
    {"large", WRITES | LARGE, .call = sgd_call, .in = {K(40003), K(40003)}, .d = {0.125}},
    {"integers", 0, .call = sgd_call, .in = {IN(I32, DENSE, 3), K(3)}, .error = "not implemented for int32"},
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

/* ---- fused: elementwise.c, norm.c, head.c, optimizer.c ---- */

const struct sample samples_swiglu[] = {
    {"same shape", GRAD, DT_ARITHMETIC, .binary = tl_swiglu, .in = {F(3, 4), F(3, 4)}},
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

/* n: both results are read (the sum, too, has a gradient) */
static int add_norm_results(const struct sample *s, tl_tensor *y, tl_tensor *sum, tl_tensor **out) {
    if (!y) return 0;
    out[0] = s->n[0] == 1 ? tl_add(y, tl_mul(sum, sum)) : s->n[0] == 2 ? sum : y;
    out[1] = sum;
    return out[0] ? 2 : 0;
}
CALL(add_rms_norm_call) {
    tl_tensor *sum, *y = tl_add_rms_norm(in[0], in[1], s->in[2].kind ? in[2] : NULL, 1e-5, &sum);
    return add_norm_results(s, y, sum, out);
}
CALL(add_layer_norm_call) {
    tl_tensor *sum, *y = tl_add_layer_norm(in[0], in[1], s->in[2].kind ? in[2] : NULL, s->in[3].kind ? in[3] : NULL, 1e-5, &sum);
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
    {"weight alone", 0, .call = add_layer_norm_call, .in = {F(3, 6), F(3, 6), F(6)}, .error = "weight and bias come together, or not at all"},
    END};
CALL(add_rms_norm_grad_call) { return grad_call(&op_add_rms_norm_grad, s, in, out); }
CALL(add_layer_norm_grad_call) { return grad_call(&op_add_layer_norm_grad, s, in, out); }
const struct sample samples_add_rms_norm_grad[] = {
    {"weighted", 0, .call = add_rms_norm_grad_call, .in = {K(3, 6), K(3, 6), K(3, 6), IN(STATE, DENSE, 3), K(6)}},
    {"plain", 0, .call = add_rms_norm_grad_call, .in = {K(3, 6), K(3, 6), K(3, 6), IN(STATE, DENSE, 3)}},
    {"no rows", 0, .call = add_rms_norm_grad_call, .in = {K(0, 6), K(0, 6), K(0, 6), IN(STATE, DENSE, 0), K(6)}},
    {"by way of backward", GRAD | VIA_BACKWARD, .call = add_rms_norm_call, .in = {F(2, 5), F(2, 5), F(5)}, .n = {1}, .roundings = 5},
    {"more rows than runs", LARGE, .call = add_rms_norm_grad_call, .in = {K(200, 33), K(200, 33), K(200, 33), IN(STATE, DENSE, 200), K(33)}},
    END};
const struct sample samples_add_layer_norm_grad[] = {
    {"weighted", 0, .call = add_layer_norm_grad_call, .in = {K(3, 6), K(3, 6), K(3, 6), IN(STATE, DENSE, 3), IN(STATE, DENSE, 3), K(6)}},
    {"plain", 0, .call = add_layer_norm_grad_call, .in = {K(3, 6), K(3, 6), K(3, 6), IN(STATE, DENSE, 3), IN(STATE, DENSE, 3)}},
    {"by way of backward", GRAD | VIA_BACKWARD, .call = add_layer_norm_call, .in = {F(2, 5), F(2, 5), F(5), F(5)}, .n = {1}, .roundings = 5},
    {"more rows than runs", LARGE, .call = add_layer_norm_grad_call, .in = {K(200, 33), K(200, 33), K(200, 33), IN(STATE, DENSE, 200), IN(STATE, DENSE, 200), K(33)}},
    END};

/* n: ignore_index, sum */
CALL(linear_cross_entropy_call) {
    tl_linear_cross_entropy_options o = {.ignore_index = s->n[0] ? s->n[0] : -100, .is_sum = s->n[1]};
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
    {"inner sizes", 0, .call = linear_cross_entropy_call, .in = {F(4, 3), F(5, 2), IDS(5, 4)}, .error = "inner sizes differ"},
    {"one target too few", 0, .call = linear_cross_entropy_call, .in = {F(4, 3), F(5, 3), IDS(5, 3)}, .error = "one target per row"},
    {"float targets", 0, .call = linear_cross_entropy_call, .in = {F(4, 3), F(5, 3), F(4)}, .error = "must be i64 or i32"},
    {"target outside", CPU_ONLY, .call = linear_cross_entropy_outside, .in = {F(2, 3), F(5, 3)}, .error = "target 9 is outside [0, 5)"},
    END};

/* n: the step, a master copy (the last input), stochastic rounding */
static tl_update_options update_options(const struct sample *s, tl_tensor **in) {
    return (tl_update_options){.master = s->n[1] ? in[sample_input_count(s) - 1] : NULL, .stochastic = s->n[2]};
}
static int changed(tl_tensor **in, int n_states, tl_tensor **out) {
    out[0] = in[0];
    for (int i = 0; i < n_states && i < 2; i++) out[1 + i] = in[2 + i];
    return 1 + (n_states < 2 ? n_states : 2);
}
CALL(sgd_momentum_call) {
    tl_sgd_options o = {.lr = 0.0625, .momentum = s->d[0], .dampening = s->d[1], .weight_decay = s->d[2], .nesterov = s->d[3] != 0, .step = s->n[0], .update = update_options(s, in)};
    bool has_buffer = s->d[0] != 0;
    return tl_sgd_momentum_(in[0], in[1], has_buffer ? in[2] : NULL, &o) ? changed(in, has_buffer, out) : 0;
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
#define STATE(...) IN(STATE, DENSE, __VA_ARGS__)
const struct sample samples_sgd_momentum[] = {
    {"without momentum", WRITES, .call = sgd_momentum_call, .in = {K(3, 4), K(3, 4)}, .n = {1}, .d = {0, 0, 0.125}, .roundings = 2},
    {"first step", WRITES, .call = sgd_momentum_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .n = {1}, .d = {0.875, 0.5}, .roundings = 2},
    {"later step, dampening, decay", WRITES, .call = sgd_momentum_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .n = {2}, .d = {0.875, 0.5, 0.125}, .roundings = 2},
    {"nesterov", WRITES, .call = sgd_momentum_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .n = {2}, .d = {0.875, 0, 0, 1}, .roundings = 2},
    {"scalar", WRITES, .call = sgd_momentum_call, .in = {SCALAR(CONSTANT), SCALAR(CONSTANT), SCALAR(STATE)}, .n = {2}, .d = {0.5}, .roundings = 2},
    {"nothing", WRITES, .call = sgd_momentum_call, .in = {K(3, 0), K(3, 0), STATE(3, 0)}, .n = {2}, .d = {0.5}},
    {"strided", WRITES, .call = sgd_momentum_call, .in = {IN(CONSTANT, PERMUTED, 3, 4), IN(CONSTANT, EXPANDED, 3, 4), IN(STATE, SLICED, 3, 4)}, .n = {2}, .d = {0.5}, .roundings = 2},
    {"large", WRITES | LARGE, .call = sgd_momentum_call, .in = {K(30011), K(30011), STATE(30011)}, .n = {2}, .d = {0.5}, .roundings = 2},
    {"master", WRITES | NO_DATA, DT_16, .call = sgd_momentum_call, .in = {K(3, 4), K(3, 4), IN(STATE, REVERSED, 3, 4), IN(STATE, SLICED, 3, 4)}, .n = {2, true}, .d = {0.5}},
    {"stochastic", WRITES | NO_DATA, DT_16, .call = sgd_momentum_call, .in = {IN(CONSTANT, PERMUTED, 3, 4), K(3, 4)}, .n = {2, false, true}},
    {"large, master, stochastic", WRITES | NO_DATA | LARGE, DT_16, .call = sgd_momentum_call, .in = {K(30011), K(30011), STATE(30011)}, .n = {2, true, true}},
    {"step 0", 0, .call = sgd_momentum_call, .in = {K(3), K(3)}, .error = "sgd_momentum: steps are counted from 1, not 0"},
    {"master of an f32 parameter", 0, .call = sgd_momentum_call, .in = {K(3), K(3), STATE(3)}, .n = {1, true}, .error = "a master copy is for parameters narrower than f32"},
    {"nesterov without momentum", 0, .call = sgd_momentum_call, .in = {K(3), K(3)}, .n = {1}, .d = {0, 0, 0, 1}, .error = "Nesterov momentum requires a momentum and zero dampening"},
    END};
const struct sample samples_adagrad[] = {
    {"first step", WRITES, .call = adagrad_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .n = {1}, .roundings = 2},
    {"later step, decay", WRITES, .call = adagrad_call, .in = {K(3, 4), K(3, 4), STATE(3, 4)}, .n = {7}, .d = {0.125}, .roundings = 2},
    {"strided", WRITES, .call = adagrad_call, .in = {IN(CONSTANT, SLICED, 3, 4), IN(CONSTANT, EXPANDED, 3, 4), IN(STATE, PERMUTED, 3, 4)}, .n = {2}, .roundings = 2},
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
    {"nothing", WRITES, .call = adam_call, .in = {K(0), K(0), STATE(0), STATE(0)}, .n = {1}},
    {"large", WRITES | LARGE, .call = adam_call, .in = {K(30011), K(30011), STATE(30011), STATE(30011)}, .n = {2}, .roundings = 2},
    {"amsgrad, master, stochastic", WRITES | NO_DATA, DT_16, .call = adam_call, .in = {K(3, 4), K(3, 4), STATE(3, 4), STATE(3, 4), STATE(3, 4), STATE(3, 4)}, .n = {3, true, true}, .d = {1}},
    {"step 0", 0, .call = adam_call, .in = {K(3), K(3), STATE(3), STATE(3)}, .error = "adam: steps are counted from 1, not 0"},
    END};

/* ---- The table ---- */

const struct sample_op sample_ops[] = {
#define OP(kind, name) {#name, OP_ID_##name, samples_##name},
#include "ops/op_list.h"
#undef OP
    {NULL, 0, NULL}};

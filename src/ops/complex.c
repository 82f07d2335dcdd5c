/* complex.c: complex numbers, as pairs of real ones.
 *
 * A c64 is two f32 in memory, its real and its imaginary part, a c128 two f64. view_as_real shows the pair as a last
 * axis of size 2, and view_as_complex is its inverse; both are views. Products and quotients have kernels of their own,
 * on pairs. Everything else is made of ops on real numbers: op_apply hands a call with a complex operand to the rule
 * that the table at the end has for the op, and refuses it if there is none. So no other kernel ever sees a complex
 * dtype, and costs, workspaces, gradients and devices are those of the real ops.
 *
 * *Gradients* are PyTorch's: that of z = x + iy, for a real loss L, is dL/dx + i dL/dy. This is what the two views give
 * of themselves. For a product y = a b it is g conj(b), which is why the product can conjugate its second factor.
 */
#include "ops/complex.h"

#include <math.h>
#include <string.h>

#include "ops/elementwise.h"

/* ---- The two views ---- */

bool complex_pairs(const tl_tensor *x, struct layout *l) {
    if (x->rank == TL_MAX_RANK)
        return error_set(TL_ERROR_USE, "view_as_real: rank is %d already, and pairs need another axis", TL_MAX_RANK);
    tensor_layout(x, l);
    l->dtype = dtype_part(x->dtype);
    bool fits = !__builtin_mul_overflow(l->offset, 2, &l->offset);
    for (int i = 0; i < x->rank; i++) fits = fits && !__builtin_mul_overflow(l->stride[i], 2, &l->stride[i]);
    l->shape[l->rank] = 2;
    l->stride[l->rank++] = 1;
    return fits || error_set(TL_ERROR_USE, "view_as_real: the strides are too large");
}

static bool view_as_real_shape(tl_call *c) {
    if (!dtype_is_complex(c->input[0]->dtype)) return call_fail(c, "is only supported for complex tensors");
    return complex_pairs(c->input[0], &c->out[0]);
}
static void view_as_real_backward(tl_gradient *g) {
    tl_tensor *pairs = g->grad[0]; /* of any strides, an expanded 1 for all: a complex number is a pair side by side */
    g->result[0] = tl_view_as_complex(tl_contiguous(pairs));
}
const tl_op op_view_as_real = {RECORD(VIEW, view_as_real, 1),
                               .shapes = "x (...) -> (...,2)",
                               .dtypes = "c64, c128; the result has the parts' f32, f64",
                               .flops = "0",
                               .shape = view_as_real_shape,
                               .cost = cost_free,
                               .backward = view_as_real_backward};

static bool view_as_complex_shape(tl_call *c) {
    const tl_tensor *x = c->input[0];
    struct layout *l = &c->out[0];
    if (x->dtype != TL_F32 && x->dtype != TL_F64)
        return call_fail_need(c, "is only supported for floating point tensors of 32 and 64 bits", "a cast first");
    if (x->rank == 0 || x->shape[x->rank - 1] != 2) return call_fail(c, "Tensor must have a last dimension of size 2");
    if (x->stride[x->rank - 1] != 1) return call_fail(c, "Tensor must have a last dimension with stride 1");
    if (x->offset % 2) return call_fail(c, "Tensor must have a storage_offset divisible by 2");
    tensor_layout(x, l);
    l->dtype = dtype_complex(x->dtype);
    l->rank--;
    l->offset /= 2;
    for (int i = 0; i < l->rank; i++) {
        if (l->stride[i] % 2 && x->numel && x->shape[i] > 1)
            return call_fail(c, "Tensor must have a stride divisible by 2 for all but last dimension");
        l->stride[i] /= 2;
    }
    return true;
}
static void view_as_complex_backward(tl_gradient *g) { g->result[0] = tl_view_as_real(g->grad[0]); }
const tl_op op_view_as_complex = {RECORD(VIEW, view_as_complex, 1),
                                  .shapes = "x (...,2), the pair dense -> (...)",
                                  .dtypes = "f32, f64; the result is c64, c128",
                                  .flops = "0",
                                  .shape = view_as_complex_shape,
                                  .cost = cost_free,
                                  .backward = view_as_complex_backward};

tl_tensor *tl_view_as_real(tl_tensor *x) { return op_apply1(&op_view_as_real, x, NULL, 0); }
tl_tensor *tl_view_as_complex(tl_tensor *x) { return op_apply1(&op_view_as_complex, x, NULL, 0); }

/* ---- Product and quotient ---- */

static bool pair_shape(tl_call *c) {
    const tl_tensor *a = c->input[0], *b = c->input[1];
    int rank;
    int64_t shape[TL_MAX_RANK];
    if ((a->dtype != TL_F32 && a->dtype != TL_F64) || a->dtype != b->dtype)
        return call_fail(c, "takes pairs of f32 or of f64");
    for (int i = 0; i < 2; i++) {
        const tl_tensor *x = c->input[i];
        if (x->rank == 0 || x->shape[x->rank - 1] != 2 || x->stride[x->rank - 1] != 1)
            return call_fail(c, "takes pairs, side by side in the last axis");
    }
    return shape_broadcast(a->rank, a->shape, b->rank, b->shape, &rank, shape)
               ? call_output(c, 0, a->dtype, rank, shape)
               : call_fail_clash(c, a->rank, a->shape, b->rank, b->shape);
}
static void complex_mul_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, 6 * (count)(c->output[0]->numel / 2));
}
static void complex_div_cost(const tl_call *c, struct cost *cost) {
    cost_traffic(c, cost, 10 * (count)(c->output[0]->numel / 2));
}

/* Of pairs; the gradient that comes may be an expanded number. */
static tl_tensor *pairs_dense(tl_tensor *x) { return x && x->rank && x->stride[x->rank - 1] != 1 ? tl_clone(x) : x; }
static tl_tensor *pair_apply(const tl_op *op, tl_tensor *a, tl_tensor *b, bool conjugates) {
    struct attr_complex attr;
    memset(&attr, 0, sizeof attr);
    attr.conjugates = conjugates;
    a = pairs_dense(a);
    b = pairs_dense(b);
    return op_apply2(op, a, b, ATTR(attr));
}
static tl_tensor *pair_mul(tl_tensor *a, tl_tensor *b, bool conjugates) {
    return pair_apply(&op_complex_mul, a, b, conjugates);
}
static bool conjugates_of(const tl_gradient *g) { return ((const struct attr_complex *)g->node->attr)->conjugates; }

/* y = a b: da = g conj(b), db = g conj(a). y = a conj(b): da = g b, db = a conj(g). */
static void complex_mul_backward(tl_gradient *g) {
    const bool conjugates = conjugates_of(g);
    tl_tensor *grad = g->grad[0];
    if (g->needs[0]) g->result[0] = pair_mul(grad, gradient_input(g, 1), !conjugates);
    if (!g->needs[1]) return;
    tl_tensor *a = gradient_input(g, 0);
    g->result[1] = conjugates ? pair_mul(a, grad, true) : pair_mul(grad, a, true);
}
/* y = a / b: da = g / conj(b), db = -da conj(y). y = a / conj(b): da = g / b, db = -y conj(da). */
static void complex_div_backward(tl_gradient *g) {
    const bool conjugates = conjugates_of(g);
    tl_tensor *da = pair_apply(&op_complex_div, g->grad[0], gradient_input(g, 1), !conjugates);
    if (g->needs[0]) g->result[0] = da;
    if (!g->needs[1]) return;
    tl_tensor *y = gradient_output(g, 0);
    g->result[1] = tl_neg(conjugates ? pair_mul(y, da, true) : pair_mul(da, y, true));
}
const tl_op op_complex_mul = {RECORD(KERNEL, complex_mul, 1),
                              .shapes = "pairs a (...,2), b (...,2) -> broadcast",
                              .dtypes = "f32, f64",
                              .flops = "6 per pair: products 4, sums 2",
                              .shape = pair_shape,
                              .cost = complex_mul_cost,
                              .backward = complex_mul_backward,
                              .saves = {TL_INPUT(1), TL_INPUT(0)}};
const tl_op op_complex_div = {RECORD(KERNEL, complex_div, 1),
                              .shapes = "pairs a (...,2), b (...,2) -> broadcast",
                              .dtypes = "f32, f64",
                              .flops = "10 per pair: ratio 1, scale 3, real part 3, imaginary part 3",
                              .shape = pair_shape,
                              .cost = complex_div_cost,
                              .backward = complex_div_backward,
                              .saves = {TL_INPUT(1), TL_INPUT(1) | TL_OUTPUT(0)}};

/* ---- Parts and wholes ---- */

bool tl_is_complex(const tl_tensor *x) { return tensor_check(x, "tl_is_complex") && dtype_is_complex(x->dtype); }

/* Part 0 is the real one. */
static tl_tensor *part(tl_tensor *x, int which) { return tl_select(tl_view_as_real(x), -1, which); }

tl_tensor *tl_real(tl_tensor *x) {
    if (!tensor_check(x, "real")) return NULL;
    return dtype_is_complex(x->dtype) ? part(x, 0) : x;
}
tl_tensor *tl_imag(tl_tensor *x) {
    if (!tensor_check(x, "imag")) return NULL;
    if (dtype_is_complex(x->dtype)) return part(x, 1);
    error_set(TL_ERROR_USE, "imag: is not implemented for tensors with non-complex dtypes: %s",
              tl_dtype_name(x->dtype));
    return NULL;
}

/* re + i im, of one shape and dtype. NULL stays NULL. */
static tl_tensor *join(tl_tensor *re, tl_tensor *im) {
    tl_tensor *parts[2] = {re, im};
    return re && im ? tl_view_as_complex(tl_stack(parts, 2, -1)) : NULL;
}

static bool parts_fit(const char *what, const tl_tensor *a, const tl_tensor *b) {
    if (!tensor_check(a, what) || !tensor_check(b, what)) return false;
    if (a->dtype != TL_F32 && a->dtype != TL_F64)
        return error_set(TL_ERROR_USE, "%s: expected both inputs to be f32 or f64 tensors but got %s and %s", what,
                         tl_dtype_name(a->dtype), tl_dtype_name(b->dtype));
    return a->dtype == b->dtype ||
           error_set(TL_ERROR_USE, "%s: expected both inputs to have one dtype but got %s and %s", what,
                     tl_dtype_name(a->dtype), tl_dtype_name(b->dtype));
}

tl_tensor *tl_complex(tl_tensor *re, tl_tensor *im) {
    int rank;
    int64_t shape[TL_MAX_RANK];
    if (!parts_fit("complex", re, im)) return NULL;
    if (!shape_broadcast(re->rank, re->shape, im->rank, im->shape, &rank, shape)) {
        error_set(TL_ERROR_USE, "complex: the shapes of the parts do not broadcast");
        return NULL;
    }
    re = tl_expand(re, rank, shape);
    im = tl_expand(im, rank, shape);
    return join(re, im);
}

/* r (cos t + i sin t) */
tl_tensor *tl_polar(tl_tensor *magnitude, tl_tensor *angle) {
    if (!parts_fit("polar", magnitude, angle)) return NULL;
    tl_tensor *re = tl_mul(magnitude, tl_cos(angle));
    return join(re, tl_mul(magnitude, tl_sin(angle)));
}

tl_tensor *tl_conj(tl_tensor *x) {
    if (!tensor_check(x, "conj")) return NULL;
    if (!dtype_is_complex(x->dtype)) return x;
    tl_tensor *im = tl_neg(part(x, 1));
    return join(part(x, 0), im);
}

tl_tensor *tl_angle(tl_tensor *x) {
    if (!tensor_check(x, "angle")) return NULL;
    if (dtype_is_complex(x->dtype)) {
        tl_tensor *im = part(x, 1);
        return tl_atan2(im, part(x, 0));
    }
    if (!dtype_is_float(x->dtype) && !(x = tl_cast(x, TL_F32))) return NULL;
    tl_tensor *none = tl_zeros_like(x),
              *half_turn = tl_full(TL_SCALAR, 3.14159265358979323846, x->dtype, x->storage->device);
    tl_tensor *is_negative = tl_cmp_scalar(x, TL_LT, tl_scalar_int(0));
    tl_tensor *angle = tl_where(is_negative, half_turn, none);
    return tl_where(tl_isnan(x), x, angle);
}

tl_tensor *complex_of_real(tl_tensor *x, tl_dtype dtype) {
    x = tl_cast(x, dtype_part(dtype));
    return join(x, x ? tl_zeros_like(x) : NULL);
}

/* Fills are not recorded: what they fill is new. */
tl_tensor *complex_full(int rank, const int64_t *shape, double value, tl_dtype dtype, tl_device *device) {
    tl_tensor *x = tl_empty(rank, shape, dtype, device);
    bool mode = tl_set_grad_mode(false);
    if (x && !tl_fill_(x, value)) x = NULL;
    tl_set_grad_mode(mode);
    return x;
}

/* ---- Calls on parts ---- */

/* The call's op on other inputs. */
static tl_tensor *call_again(const tl_call *c, tl_tensor **input, const void *attr) {
    tl_call again;
    for (int i = 0; i < c->n_inputs; i++)
        if (!input[i]) return NULL;
    call_begin(&again, c->op, input, c->n_inputs, attr, c->attr_bytes);
    again.in_place = c->in_place;
    return op_apply(&again);
}

/* The result of a rule that does not write in place by itself. */
static tl_tensor *call_give(const tl_call *c, tl_tensor *result) {
    return c->in_place ? tl_copy_(c->input[0], result) : result;
}

/* The first operand. One that is overwritten is copied, so that gradients can read it. */
static tl_tensor *operand(const tl_call *c) { return c->in_place ? tl_clone(c->input[0]) : c->input[0]; }

/* The common dtype of the first n operands, which a result in place must have. */
static bool call_dtype(const tl_call *c, int first, int n, tl_dtype *dtype) {
    *dtype = c->input[first]->dtype;
    if (n == 2) *dtype = elementwise_dtype(c->input[first], c->input[first + 1]);
    for (int i = 2; i < n && *dtype != TL_DTYPE_COUNT; i++) *dtype = dtype_promote(*dtype, c->input[first + i]->dtype);
    if (*dtype == TL_DTYPE_COUNT) return call_fail_need(c, "these dtypes do not promote to a common one", "a cast");
    if (!c->in_place) return true;
    if (!dtype_is_complex(c->input[0]->dtype))
        return call_fail(c, "result type %s can't be cast to the desired output type %s",
                         dtype_info(*dtype)->scalar_name, dtype_info(c->input[0]->dtype)->scalar_name);
    *dtype = c->input[0]->dtype;
    return true;
}

static tl_tensor *pairs(tl_tensor *x, tl_dtype dtype) { return tl_view_as_real(tl_cast(x, dtype)); }

/* The same op on pairs, for ops that treat both parts alike: the first n operands are numbers, the rest is not touched.
 * In place the result is written through the pairs. */
static tl_tensor *pairwise(tl_call *c, int n) {
    tl_tensor *input[TL_MAX_INPUTS];
    tl_dtype dtype;
    if (!call_dtype(c, 0, n, &dtype)) return NULL;
    for (int i = 0; i < c->n_inputs; i++) input[i] = i < n ? pairs(c->input[i], dtype) : c->input[i];
    tl_tensor *result = call_again(c, input, c->attr);
    return c->in_place ? result : tl_view_as_complex(result);
}
static tl_tensor *pairwise_rule(tl_call *c) { return pairwise(c, c->n_inputs); }
static tl_tensor *first_pairwise_rule(tl_call *c) { return pairwise(c, 1); }
static tl_tensor *two_pairwise_rule(tl_call *c) { return pairwise(c, 2); }

/* ---- Copies ---- */

/* Of c64, c128 and real dtypes; the real part alone, or whether either is not 0. */
static tl_tensor *cast_rule(tl_call *c) {
    const struct attr_copy *a = c->attr;
    tl_tensor *x = c->input[0];
    if (a->dtype == TL_BOOL) return tl_cmp_scalar(x, TL_NE, tl_scalar_int(0));
    struct attr_copy to = {dtype_part(a->dtype)};
    if (!dtype_is_complex(a->dtype)) return op_apply1(&op_copy, part(x, 0), ATTR(to));
    return tl_view_as_complex(op_apply1(&op_copy, tl_view_as_real(x), ATTR(to)));
}

static tl_tensor *assign_rule(tl_call *c) {
    tl_tensor *x = c->input[0], *source = c->input[1];
    tl_tensor *input[2] = {x, NULL};
    if (dtype_is_complex(x->dtype)) input[0] = tl_view_as_real(x);
    input[1] = tl_cast(source, x->dtype);
    if (dtype_is_complex(x->dtype)) input[1] = tl_view_as_real(input[1]);
    return call_again(c, input, NULL);
}

static tl_tensor *fill_rule(tl_call *c) {
    const double value = ((const struct attr_full *)c->attr)->value;
    tl_tensor *x = c->input[0];
    if (value == 0) return tl_fill_(tl_view_as_real(x), 0);
    return tl_fill_(part(x, 1), 0) ? tl_fill_(part(x, 0), value) : NULL;
}

static tl_tensor *unview_rule(tl_call *c) {
    struct attr_unview a = *(const struct attr_unview *)c->attr;
    const int rank = c->input[0]->rank;
    if (rank == TL_MAX_RANK || a.rank == TL_MAX_RANK) {
        call_fail(c, "pairs have more than %d axes", TL_MAX_RANK);
        return NULL;
    }
    a.shape[a.rank++] = 2;
    for (int i = 0; i < rank; i++) a.stride[i] *= 2;
    a.stride[rank] = 1;
    a.offset *= 2;
    tl_tensor *g = tl_view_as_real(c->input[0]);
    return tl_view_as_complex(op_apply1(&op_unview, g, ATTR(a)));
}

/* ---- Arithmetic ---- */

static tl_tensor *product(tl_call *c, const tl_op *op) {
    tl_dtype dtype;
    if (!call_dtype(c, 0, 2, &dtype)) return NULL;
    tl_tensor *a = pairs(operand(c), dtype);
    return call_give(c, tl_view_as_complex(pair_apply(op, a, pairs(c->input[1], dtype), false)));
}
static tl_tensor *mul_rule(tl_call *c) { return product(c, &op_complex_mul); }
static tl_tensor *div_rule(tl_call *c) { return product(c, &op_complex_div); }

/* A number beside x, as a scalar. */
static tl_tensor *number_beside(const tl_tensor *x, double value) {
    return tl_full(TL_SCALAR, value, dtype_part(x->dtype), x->storage->device);
}
static double number_of(const tl_call *c) {
    const tl_scalar *s = &((const struct attr_scalar *)c->attr)->value;
    return s->kind == TL_SCALAR_FLOAT ? s->f : (double)s->i;
}
static bool number_is_first(const tl_call *c) { return ((const struct attr_scalar *)c->attr)->is_first; }

static tl_tensor *affine_rule(tl_call *c) {
    const struct attr_affine *a = c->attr;
    if (a->shift == 0) return pairwise_rule(c);
    tl_tensor *scaled = tl_scale(operand(c), a->scale);
    return call_give(c, tl_add(scaled, number_beside(c->input[0], a->shift)));
}
static tl_tensor *add_scalar_rule(tl_call *c) {
    tl_tensor *x = operand(c);
    return call_give(c, tl_add(x, number_beside(c->input[0], number_of(c))));
}
static tl_tensor *sub_scalar_rule(tl_call *c) {
    tl_tensor *x = operand(c), *number = number_beside(c->input[0], number_of(c));
    return call_give(c, number_is_first(c) ? tl_sub(number, x) : tl_sub(x, number));
}
static tl_tensor *div_scalar_rule(tl_call *c) {
    if (!number_is_first(c)) return pairwise_rule(c);
    return tl_div(number_beside(c->input[0], number_of(c)), c->input[0]);
}

/* x^n by squaring; other powers are e^(s log x), and 0^s is 0. */
static tl_tensor *whole_power(tl_tensor *x, int n) {
    if (n == 0) return tl_ones_like(x);
    if (n == 1) return tl_clone(x);
    tl_tensor *half = n > 3 ? whole_power(x, n / 2) : x;
    tl_tensor *square = half ? tl_mul(half, half) : NULL;
    return n % 2 ? tl_mul(square, x) : square;
}
static tl_tensor *power(tl_tensor *x, double s) {
    if (s == (int)s && s >= 0 && s <= 64) return whole_power(x, (int)s);
    if (s == (int)s && s < 0 && s >= -64) return tl_reciprocal(whole_power(x, -(int)s));
    if (s == 0.5) return tl_sqrt(x);
    tl_tensor *is_zero = tl_cmp_scalar(x, TL_EQ, tl_scalar_int(0));
    tl_tensor *safe = tl_masked_fill(x, is_zero, 1);
    return tl_masked_fill(tl_exp(tl_scale(tl_log(safe), s)), is_zero, s < 0 ? (double)INFINITY : 0);
}
static tl_tensor *pow_scalar_rule(tl_call *c) {
    if (!number_is_first(c)) return call_give(c, power(operand(c), number_of(c)));
    tl_tensor *base = number_beside(c->input[0], number_of(c));
    return tl_exp(tl_mul(c->input[0], tl_log(base ? tl_cast(base, c->input[0]->dtype) : NULL)));
}

/* ---- Truth ---- */

/* Whether both parts are true, or one. */
static tl_tensor *both(tl_tensor *pairs) {
    tl_tensor *first = tl_select(pairs, -1, 0);
    return tl_logical_and(first, tl_select(pairs, -1, 1));
}
static tl_tensor *either(tl_tensor *pairs) {
    tl_tensor *first = tl_select(pairs, -1, 0);
    return tl_logical_or(first, tl_select(pairs, -1, 1));
}

/* Complex numbers have no order. */
static tl_tensor *compare(tl_call *c, tl_tensor *a, tl_tensor *b, tl_compare relation) {
    if (relation == TL_EQ) return both(tl_cmp(a, TL_EQ, b));
    if (relation == TL_NE) return either(tl_cmp(a, TL_NE, b));
    call_fail_need(c, "complex numbers have no order", "TL_EQ or TL_NE");
    return NULL;
}
static tl_tensor *compare_rule(tl_call *c) {
    tl_dtype dtype;
    if (!call_dtype(c, 0, 2, &dtype)) return NULL;
    tl_tensor *a = pairs(c->input[0], dtype);
    return compare(c, a, pairs(c->input[1], dtype), ((const struct attr_compare *)c->attr)->relation);
}
static tl_tensor *compare_scalar_rule(tl_call *c) {
    tl_tensor *x = c->input[0], *number = number_beside(x, number_of(c));
    tl_tensor *b = pairs(number, x->dtype);
    return compare(c, tl_view_as_real(x), b, ((const struct attr_scalar *)c->attr)->relation);
}
/* Each operand as a truth value: it is not 0. */
static tl_tensor *logic_rule(tl_call *c) {
    tl_tensor *input[2];
    for (int i = 0; i < c->n_inputs; i++)
        input[i] = dtype_is_complex(c->input[i]->dtype) ? tl_cast(c->input[i], TL_BOOL) : c->input[i];
    return call_again(c, input, c->attr);
}
static tl_tensor *isnan_rule(tl_call *c) { return either(tl_isnan(tl_view_as_real(c->input[0]))); }
static tl_tensor *isfinite_rule(tl_call *c) { return both(tl_isfinite(tl_view_as_real(c->input[0]))); }

static tl_tensor *where_rule(tl_call *c) {
    tl_dtype dtype;
    if (!call_dtype(c, 1, 2, &dtype)) return NULL;
    if (!dtype_is_complex(dtype)) {
        call_fail(c, "expected condition to be a boolean tensor");
        return NULL;
    }
    tl_tensor *input[3];
    input[0] = tl_unsqueeze(c->input[0], -1);
    for (int i = 1; i < 3; i++) input[i] = pairs(c->input[i], dtype);
    return tl_view_as_complex(call_again(c, input, c->attr));
}

/* ---- Functions ---- */

/* The magnitude, as the norm of the pair. */
static tl_tensor *abs_rule(tl_call *c) {
    const int last = -1;
    if (!c->in_place) return tl_norm(tl_view_as_real(c->input[0]), 2, &last, 1, false);
    call_fail(c, "In-place abs is not supported for complex tensors.");
    return NULL;
}
/* e^x (cos y + i sin y) */
static tl_tensor *exp_rule(tl_call *c) {
    tl_tensor *x = operand(c), *size = tl_exp(part(x, 0));
    return call_give(c, tl_polar(size, part(x, 1)));
}
/* log |z| + i arg z */
static tl_tensor *log_rule(tl_call *c) {
    tl_tensor *x = operand(c), *re = tl_log(tl_abs(x));
    return call_give(c, join(re, tl_angle(x)));
}
/* sqrt |z| at half the angle */
static tl_tensor *sqrt_rule(tl_call *c) {
    tl_tensor *x = operand(c), *size = tl_sqrt(tl_abs(x));
    return call_give(c, tl_polar(size, tl_scale(tl_angle(x), 0.5)));
}
static tl_tensor *rsqrt_rule(tl_call *c) { return call_give(c, tl_reciprocal(tl_sqrt(operand(c)))); }
/* sin(x + iy) = sin x cosh y + i cos x sinh y */
static tl_tensor *sin_rule(tl_call *c) {
    tl_tensor *z = operand(c), *x = part(z, 0), *y = part(z, 1);
    tl_tensor *sine = tl_sin(x), *cosine = tl_cos(x);
    tl_tensor *re = tl_mul(sine, tl_cosh(y));
    return call_give(c, join(re, tl_mul(cosine, tl_sinh(y))));
}
/* cos(x + iy) = cos x cosh y - i sin x sinh y */
static tl_tensor *cos_rule(tl_call *c) {
    tl_tensor *z = operand(c), *x = part(z, 0), *y = part(z, 1);
    tl_tensor *sine = tl_sin(x), *cosine = tl_cos(x);
    tl_tensor *re = tl_mul(cosine, tl_cosh(y));
    return call_give(c, join(re, tl_neg(tl_mul(sine, tl_sinh(y)))));
}

/* sinh(x + iy) = sinh x cos y + i cosh x sin y */
static tl_tensor *sinh_rule(tl_call *c) {
    tl_tensor *z = operand(c), *x = part(z, 0), *y = part(z, 1);
    tl_tensor *sine = tl_sin(y), *cosine = tl_cos(y);
    tl_tensor *re = tl_mul(cosine, tl_sinh(x));
    return call_give(c, join(re, tl_mul(sine, tl_cosh(x))));
}
/* cosh(x + iy) = cosh x cos y + i sinh x sin y */
static tl_tensor *cosh_rule(tl_call *c) {
    tl_tensor *z = operand(c), *x = part(z, 0), *y = part(z, 1);
    tl_tensor *sine = tl_sin(y), *cosine = tl_cos(y);
    tl_tensor *re = tl_mul(cosine, tl_cosh(x));
    return call_give(c, join(re, tl_mul(sine, tl_sinh(x))));
}
/* tanh(x + iy) = (tanh x + i tan y) / (1 + i tanh x tan y), which does not overflow */
static tl_tensor *tanh_rule(tl_call *c) {
    tl_tensor *z = operand(c), *x = part(z, 0), *y = part(z, 1);
    tl_tensor *flat = tl_tanh(x), *sine = tl_sin(y), *steep = tl_div(sine, tl_cos(y));
    tl_tensor *both = tl_mul(flat, steep), *above = join(flat, steep);
    return call_give(c, tl_div(above, join(both ? tl_ones_like(both) : NULL, both)));
}
/* 1 / (1 + e^-z) */
static tl_tensor *sigmoid_rule(tl_call *c) {
    tl_tensor *z = operand(c), *e = tl_exp(tl_neg(z));
    return call_give(c, tl_reciprocal(tl_affine(e, 1, 1)));
}
/* e^(b log a); 0 to the power of 0 is 1, to another one 0. */
static tl_tensor *pow_rule(tl_call *c) {
    tl_dtype dtype;
    if (!call_dtype(c, 0, 2, &dtype)) return NULL;
    tl_tensor *a = tl_cast(operand(c), dtype), *b = tl_cast(c->input[1], dtype);
    tl_tensor *is_zero = a ? tl_cmp_scalar(a, TL_EQ, tl_scalar_int(0)) : NULL;
    tl_tensor *logarithm = is_zero ? tl_log(tl_masked_fill(a, is_zero, 1)) : NULL;
    tl_tensor *y = logarithm && b ? tl_exp(tl_mul(b, logarithm)) : NULL;
    y = y ? tl_masked_fill(y, is_zero, 0) : NULL;
    tl_tensor *is_one = b ? tl_cmp_scalar(b, TL_EQ, tl_scalar_int(0)) : NULL;
    return call_give(c, y && is_one ? tl_masked_fill(y, is_one, 1) : NULL);
}

/* ---- Sums and products of many ---- */

/* The axes in turn: the first half times the second, until one number is left. */
static tl_tensor *halves_multiply(tl_tensor *x, int axis) {
    while (x && x->shape[axis] > 1) {
        const int64_t n = x->shape[axis], half = n / 2;
        tl_tensor *first = tl_slice(x, axis, 0, half, 1);
        tl_tensor *product = tl_mul(first, tl_slice(x, axis, half, 2 * half, 1)), *rest = NULL;
        if (n % 2) rest = tl_slice(x, axis, n - 1, n, 1);
        x = n % 2 ? tl_concat((tl_tensor *[]){product, rest}, 2, axis) : product;
    }
    return x;
}
static tl_tensor *prod_rule(tl_call *c) {
    const struct attr_reduce *a = c->attr;
    tl_tensor *x = c->input[0];
    int64_t shape[TL_MAX_RANK];
    int rank = 0;
    for (int axis = 0, r = x->rank; axis < r && x; axis++) {
        const bool is_reduced = a->axes >> axis & 1;
        if (is_reduced && x->shape[axis] == 0) { /* of none: 1 */
            memcpy(shape, x->shape, (size_t)r * sizeof *shape);
            shape[axis] = 1;
            x = tl_ones(r, shape, x->dtype, x->storage->device);
        }
        if (is_reduced) x = halves_multiply(x, axis);
    }
    if (!x) return NULL;
    for (int axis = 0; axis < x->rank; axis++)
        if (a->keep || !(a->axes >> axis & 1)) shape[rank++] = x->shape[axis];
    return tl_reshape(x, rank, shape);
}

/* Norms are those of the magnitudes. */
static tl_tensor *norm_rule(tl_call *c) {
    tl_tensor *size = tl_abs(c->input[0]);
    return call_again(c, &size, c->attr);
}
/* Along the last axis, which must stay the last. */
static tl_tensor *cumsum_rule(tl_call *c) {
    tl_tensor *x = operand(c), *re = tl_contiguous(part(x, 0)), *im = tl_contiguous(part(x, 1));
    if (!re || !im) return NULL;
    re = op_apply1(c->op, re, c->attr, c->attr_bytes);
    return call_give(c, join(re, op_apply1(c->op, im, c->attr, c->attr_bytes)));
}

/* (a + ib)(c + id) = (ac - bd) + i (ad + bc), each a product of real matrices */
static tl_tensor *matmul_rule(tl_call *c) {
    struct attr_matmul at = *(const struct attr_matmul *)c->attr;
    tl_tensor *x = c->input[0], *y = c->input[1], *part_of[2][2];
    if (x->dtype != y->dtype) {
        call_fail(c, "expected the operands to have the same dtype");
        return NULL;
    }
    at.dtype = dtype_part(at.dtype);
    for (int i = 0; i < 2; i++) {
        part_of[0][i] = tl_contiguous(part(x, i));
        part_of[1][i] = tl_contiguous(part(y, i));
        if (!part_of[0][i] || !part_of[1][i]) return NULL;
    }
    tl_tensor *products[4];
    for (int i = 0; i < 4; i++) {
        products[i] = op_apply2(&op_matmul, part_of[0][i / 2], part_of[1][i % 2], ATTR(at));
        if (!products[i]) return NULL;
    }
    tl_tensor *re = tl_sub(products[0], products[3]);
    tl_tensor *product = join(re, tl_add(products[1], products[2]));
    return c->n_inputs > 2 ? tl_add(product, c->input[2]) : product;
}

/* ---- Moving elements ---- */

/* Vectors of no elements are skipped whatever the rank of the others, and as pairs they would not be. */
static tl_tensor *concat_rule(tl_call *c) {
    tl_tensor *input[TL_MAX_INPUTS];
    tl_dtype dtype;
    int n = 0;
    if (!call_dtype(c, 0, 1, &dtype)) return NULL;
    for (int i = 1; i < c->n_inputs && dtype != TL_DTYPE_COUNT; i++) dtype = dtype_promote(dtype, c->input[i]->dtype);
    if (dtype == TL_DTYPE_COUNT) {
        call_fail_need(c, "these dtypes do not promote to a common one", "a cast");
        return NULL;
    }
    for (int i = 0; i < c->n_inputs; i++) {
        tl_tensor *x = c->input[i];
        if (x->rank == 0) {
            call_fail(c, "zero-dimensional tensor (at position %d) cannot be concatenated", i);
            return NULL;
        }
        if (x->rank == 1 && x->shape[0] == 0 && (n || i + 1 < c->n_inputs)) continue;
        input[n] = pairs(x, dtype);
        if (!input[n++]) return NULL;
    }
    tl_call again;
    call_begin(&again, c->op, input, n, c->attr, c->attr_bytes);
    return tl_view_as_complex(op_apply(&again));
}
/* The value is real. */
static tl_tensor *pad_rule(tl_call *c) {
    struct attr_pad a = *(const struct attr_pad *)c->attr;
    if (a.value == 0) return pairwise_rule(c);
    tl_tensor *re = op_apply1(c->op, part(c->input[0], 0), ATTR(a));
    a.value = 0;
    return join(re, op_apply1(c->op, part(c->input[0], 1), ATTR(a)));
}
/* x, an index of its rank and, to scatter, a source of x's dtype: each index takes a pair. */
static tl_tensor *gather_rule(tl_call *c) {
    tl_tensor *x = c->input[0], *index = c->input[1], *input[3];
    int64_t shape[TL_MAX_RANK];
    if (!dtype_is_complex(x->dtype) || dtype_is_complex(index->dtype) ||
        (c->n_inputs > 2 && c->input[2]->dtype != x->dtype)) {
        call_fail(c, "takes indices of integers, and complex numbers of one dtype");
        return NULL;
    }
    if (index->rank == TL_MAX_RANK) {
        call_fail(c, "pairs have more than %d axes", TL_MAX_RANK);
        return NULL;
    }
    memcpy(shape, index->shape, (size_t)index->rank * sizeof *shape);
    shape[index->rank] = 2;
    input[0] = tl_view_as_real(x);
    input[1] = tl_expand(tl_unsqueeze(index, -1), index->rank + 1, shape);
    if (c->n_inputs > 2) input[2] = tl_view_as_real(c->input[2]);
    tl_tensor *result = call_again(c, input, c->attr);
    return c->in_place ? result : tl_view_as_complex(result);
}

/* ---- The table: which ops take complex numbers, besides views and transfers between devices ---- */

static const complex_rule rules[OP_COUNT] = {
    [OP_ID_copy] = cast_rule,
    [OP_ID_assign] = assign_rule,
    [OP_ID_fill] = fill_rule,
    [OP_ID_unview] = unview_rule,
    [OP_ID_add] = pairwise_rule,
    [OP_ID_sub] = pairwise_rule,
    [OP_ID_mul] = mul_rule,
    [OP_ID_div] = div_rule,
    [OP_ID_neg] = pairwise_rule,
    [OP_ID_affine] = affine_rule,
    [OP_ID_add_scalar] = add_scalar_rule,
    [OP_ID_sub_scalar] = sub_scalar_rule,
    [OP_ID_mul_scalar] = pairwise_rule,
    [OP_ID_div_scalar] = div_scalar_rule,
    [OP_ID_pow_scalar] = pow_scalar_rule,
    [OP_ID_compare] = compare_rule,
    [OP_ID_compare_scalar] = compare_scalar_rule,
    [OP_ID_logical_and] = logic_rule,
    [OP_ID_logical_or] = logic_rule,
    [OP_ID_logical_xor] = logic_rule,
    [OP_ID_logical_not] = logic_rule,
    [OP_ID_isnan] = isnan_rule,
    [OP_ID_isfinite] = isfinite_rule,
    [OP_ID_where] = where_rule,
    [OP_ID_abs] = abs_rule,
    [OP_ID_exp] = exp_rule,
    [OP_ID_log] = log_rule,
    [OP_ID_sqrt] = sqrt_rule,
    [OP_ID_rsqrt] = rsqrt_rule,
    [OP_ID_sin] = sin_rule,
    [OP_ID_cos] = cos_rule,
    [OP_ID_sinh] = sinh_rule,
    [OP_ID_cosh] = cosh_rule,
    [OP_ID_tanh] = tanh_rule,
    [OP_ID_sigmoid] = sigmoid_rule,
    [OP_ID_pow] = pow_rule,
    [OP_ID_prod] = prod_rule,
    [OP_ID_sum] = pairwise_rule,
    [OP_ID_norm] = norm_rule,
    [OP_ID_cumsum] = cumsum_rule,
    [OP_ID_matmul] = matmul_rule,
    [OP_ID_concat] = concat_rule,
    [OP_ID_pad] = pad_rule,
    [OP_ID_gather] = gather_rule,
    [OP_ID_scatter] = gather_rule,
    [OP_ID_scatter_add] = gather_rule,
    [OP_ID_index] = first_pairwise_rule,
    [OP_ID_index_put] = two_pairwise_rule,
};

complex_rule complex_rule_of(const tl_op *op) { return op->id >= 0 ? rules[op->id] : NULL; }

/* create.c: creation of tensors. */
#include <string.h>

#include "base/memory.h"
#include "ops/complex.h"
#include "ops/draw.h"
#include "ops/ops.h"

/* Creation ops have no inputs: the caller fills out[0], the rule has nothing to add. */
static bool made_shape(tl_call *c) {
    (void)c;
    return true;
}
static void made_cost(const tl_call *c, struct cost *cost) { cost_traffic(c, cost, 0); }
/* start + i*step */
static void arange_cost(const tl_call *c, struct cost *cost) { cost_traffic(c, cost, 2 * (count)c->output[0]->numel); }

const tl_op op_full = {RECORD(KERNEL, full, 1), .shapes = "-> any", .dtypes = "any", .flops = "0",
                       .shape = made_shape,     .cost = made_cost};
const tl_op op_arange = {RECORD(KERNEL, arange, 1),   .shapes = "-> (n)",  .dtypes = "any",
                         .flops = "2n: product, sum", .shape = made_shape, .cost = arange_cost};
const tl_op op_random = {RECORD(KERNEL, random, 1),
                         .shapes = "-> any",
                         .dtypes = "floats; integers and bool for random integers",
                         .flops = "0",
                         .shape = made_shape,
                         .cost = made_cost};

static bool shape_check(const char *what, int rank, const int64_t *shape, tl_dtype dtype, int64_t *numel) {
    if (rank < 0 || rank > TL_MAX_RANK)
        return error_set(TL_ERROR_USE, "%s: rank %d is not between 0 and %d", what, rank, TL_MAX_RANK);
    uint64_t bytes;
    if (rank && !error_given(shape, what, "a shape")) return false;
    if (!dtype_info(dtype)) return error_set(TL_ERROR_USE, "%s: no dtype has the number %d", what, (int)dtype);
    if (!shape_numel(rank, shape, numel) || !dtype_bytes(dtype, *numel, &bytes)) {
        char text[TL_MAX_RANK * 21 + 3];
        shape_print(text, sizeof text, rank, shape);
        return error_set(TL_ERROR_USE, "%s: shape %s is negative or too large", what, text);
    }
    if (dtype_info(dtype)->bits < 8 && (rank == 0 || shape[rank - 1] % 2))
        return error_set(TL_ERROR_USE, "%s: two %s share a byte (need a last axis of even length)", what,
                         tl_dtype_name(dtype));
    return true;
}

tl_tensor *op_create(const tl_op *op, int rank, const int64_t *shape, tl_dtype dtype, tl_device *device,
                     const void *attr, size_t attr_bytes) {
    int64_t numel;
    tl_call c;
    if (!shape_check(op->name, rank, shape, dtype, &numel)) return NULL;
    if (dtype_is_complex(dtype)) {
        error_set(TL_ERROR_USE, "%s: not implemented for %s (need a real dtype)", op->name,
                  dtype_info(dtype)->torch_name);
        return NULL;
    }
    call_begin(&c, op, NULL, 0, attr, attr_bytes);
    c.device = c.out_device = device_or_default(device);
    call_output(&c, 0, dtype, rank, shape);
    return c.device ? op_apply(&c) : NULL;
}

tl_tensor *tl_empty(int rank, const int64_t *shape, tl_dtype dtype, tl_device *device) {
    int64_t numel;
    uint64_t bytes;
    device = device_or_default(device);
    if (!device || !device_check(device, "empty") || !shape_check("empty", rank, shape, dtype, &numel)) return NULL;
    dtype_bytes(dtype, numel, &bytes);
    struct layout l;
    layout_dense(&l, dtype, rank, shape);
    struct storage *s = storage_new(device, bytes, thread_state()->path, TL_TEMPORARY);
    if (s) storage_name(s, "empty", dtype, rank, shape);
    return s ? scope_adopt(tensor_new(s, &l, numel)) : NULL;
}

tl_tensor *tl_full(int rank, const int64_t *shape, double value, tl_dtype dtype, tl_device *device) {
    struct attr_full a = {value};
    if (dtype_is_complex(dtype)) return complex_full(rank, shape, value, dtype, device);
    return op_create(&op_full, rank, shape, dtype, device, ATTR(a));
}

tl_tensor *tl_zeros(int rank, const int64_t *shape, tl_dtype dtype, tl_device *device) {
    return tl_full(rank, shape, 0, dtype, device);
}
tl_tensor *tl_ones(int rank, const int64_t *shape, tl_dtype dtype, tl_device *device) {
    return tl_full(rank, shape, 1, dtype, device);
}

tl_tensor *tl_empty_like(tl_tensor *x) {
    return tensor_check(x, "empty_like") ? tl_empty(x->rank, x->shape, x->dtype, x->storage->device) : NULL;
}
tl_tensor *tl_zeros_like(tl_tensor *x) {
    return tensor_check(x, "zeros_like") ? tl_zeros(x->rank, x->shape, x->dtype, x->storage->device) : NULL;
}
tl_tensor *tl_ones_like(tl_tensor *x) {
    return tensor_check(x, "ones_like") ? tl_ones(x->rank, x->shape, x->dtype, x->storage->device) : NULL;
}

tl_tensor *tl_arange(double start, double step, int64_t n, tl_dtype dtype, tl_device *device) {
    struct attr_arange a = {start, step};
    return op_create(&op_arange, 1, &n, dtype, device, ATTR(a));
}

/* The generator counts 32-bit words, four to a Philox block. Integers and f64 numbers are made of two words each and
 * counted in pairs. Every tensor starts a new block, so that no word is ever used twice. */
static tl_tensor *make_random(int rank, const int64_t *shape, struct attr_random *a, tl_dtype dtype,
                              tl_device *device) {
    uint64_t words = a->kind == RANDOM_INTEGERS || dtype == TL_F64 ? 2 : 1, numel = 1; /* may wrap, as the generator */
    for (int i = 0; shape && i < rank && rank <= TL_MAX_RANK; i++) numel *= (uint64_t)shape[i];
    a->generator = draw_part_begin(words, (int64_t)numel);
    tl_tensor *x = op_create(&op_random, rank, shape, dtype, device, a, sizeof *a);
    if (x) draw_part_end(words, x->numel);
    return x;
}

static bool needs_float(const char *what, tl_dtype dtype) {
    return (dtype_info(dtype) && dtype_is_float(dtype) && !dtype_info(dtype)->is_storage_only) ||
           error_set(TL_ERROR_USE, "%s: needs a floating point dtype, not %s", what, tl_dtype_name(dtype));
}

tl_tensor *tl_uniform(int rank, const int64_t *shape, double low, double high, tl_dtype dtype, tl_device *device) {
    struct attr_random a;
    memset(&a, 0, sizeof a);
    a.kind = RANDOM_UNIFORM;
    a.a = low;
    a.b = high;
    if (!needs_float("uniform", dtype)) return NULL;
    a.limit = draw_limit(low, high, dtype);
    return make_random(rank, shape, &a, dtype, device);
}

tl_tensor *tl_normal(int rank, const int64_t *shape, double mean, double std, tl_dtype dtype, tl_device *device) {
    struct attr_random a;
    memset(&a, 0, sizeof a);
    a.kind = RANDOM_NORMAL;
    a.a = mean;
    a.b = std;
    if (!(std >= 0)) {
        error_set(TL_ERROR_USE, "normal: std %g is negative", std);
        return NULL;
    }
    return needs_float("normal", dtype) ? make_random(rank, shape, &a, dtype, device) : NULL;
}

tl_tensor *tl_bernoulli(int rank, const int64_t *shape, double p, tl_device *device) {
    struct attr_random a;
    memset(&a, 0, sizeof a);
    a.kind = RANDOM_BERNOULLI;
    a.a = p;
    if (!(p >= 0 && p <= 1)) {
        error_set(TL_ERROR_USE, "bernoulli: probability %g is not between 0 and 1", p);
        return NULL;
    }
    return make_random(rank, shape, &a, TL_BOOL, device);
}

tl_tensor *tl_integers(int rank, const int64_t *shape, int64_t low, int64_t high, tl_dtype dtype, tl_device *device) {
    struct attr_random a;
    memset(&a, 0, sizeof a);
    a.kind = RANDOM_INTEGERS;
    a.low = low;
    a.high = high;
    if (low >= high) {
        error_set(TL_ERROR_USE, "integers: the range [%lld, %lld) is empty", (long long)low, (long long)high);
        return NULL;
    }
    if (!dtype_info(dtype) || dtype_has_gradient(dtype)) {
        error_set(TL_ERROR_USE, "integers: needs an integer dtype, not %s", tl_dtype_name(dtype));
        return NULL;
    }
    return make_random(rank, shape, &a, dtype, device);
}

tl_tensor *tl_from_external(void *data, size_t bytes, int rank, const int64_t *shape, const int64_t *stride,
                            tl_dtype dtype, tl_device *device, void (*deleter)(void *context), void *context) {
    int64_t numel, low = 0, high = 0;
    struct layout l;
    bool ok = shape_check("from_external", rank, shape, dtype, &numel) &&
              (!numel || error_given(data, "from_external", "data"));
    if (ok) {
        layout_dense(&l, dtype, rank, shape);
        if (stride) memcpy(l.stride, stride, (size_t)rank * sizeof *stride);
        int bits = dtype_info(dtype)->bits; /* f4: two elements a byte */
        int64_t there = (int64_t)(bits < 8 ? bytes * 2 : bytes / ((size_t)bits / 8));
        bool is_inside =
            !numel || (strides_span(rank, shape, l.stride, &low, &high) && low > -there && high - there < low);
        if (!is_inside)
            ok = error_set(TL_ERROR_USE, "from_external: the shape reaches beyond the %zu bytes given", bytes);
        for (int i = 0; ok && dtype_info(dtype)->bits < 8 && i < rank; i++)
            if (i == rank - 1 ? l.stride[i] != 1 : l.stride[i] % 2 != 0)
                ok = error_set(TL_ERROR_USE,
                               "from_external: two %s share a byte (need a contiguous last axis and even strides)",
                               tl_dtype_name(dtype));
        if (ok) l.offset = -low; /* negative strides: data is the lowest address */
    }
    if (!device) device = tl_device_find("cpu");
    ok = ok && device && device_check(device, "from_external");
    if (ok && !device_has_data(device))
        ok = error_set(TL_ERROR_USE, "from_external: %s has no data to share", device->name);
    struct storage *s = ok ? storage_external(device, data, bytes, deleter, context) : NULL;
    if (!s) {
        if (deleter) deleter(context);
        return NULL;
    }
    return scope_adopt(tensor_new(s, &l, numel));
}

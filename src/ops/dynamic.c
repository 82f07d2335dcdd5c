/* dynamic.c: ops that depend on data, and so cannot be priced: reading a value, and shapes that depend on values. */
#include "ops/ops.h"

static bool item_shape(tl_call *c) {
    return c->input[0]->numel == 1 ||
           call_fail(c, "a Tensor with %lld elements cannot be converted to Scalar", (long long)c->input[0]->numel);
}
static void dynamic_cost(const tl_call *c, struct cost *cost) { cost_traffic(c, cost, 0); }

const tl_op op_item = {RECORD(DYNAMIC, item, 0), .shapes = "x of one element -> a number of the host",
                       .dtypes = "any but f4",   .flops = "0",
                       .shape = item_shape,      .cost = dynamic_cost};

static bool nonzero_shape(tl_call *c) {
    int64_t shape[2] = {((const struct attr_nonzero *)c->attr)->n, c->input[0]->rank};
    return call_output(c, 0, TL_I64, 2, shape);
}
const tl_op op_nonzero = {RECORD(DYNAMIC, nonzero, 1),
                          .shapes = "x -> (how many are not 0, rank of x): their indices",
                          .dtypes = "any for arithmetic; result i64",
                          .flops = "0",
                          .shape = nonzero_shape,
                          .cost = dynamic_cost};

static bool item(tl_tensor *x, double *f64, int64_t *i64) {
    struct attr_item a = {f64, i64};
    bool mode = tl_set_grad_mode(false);
    bool ok = op_apply1(&op_item, x, ATTR(a)) != NULL;
    tl_set_grad_mode(mode);
    return ok;
}

double tl_item(tl_tensor *x) {
    double f64 = 0;
    int64_t i64 = 0;
    return item(x, &f64, &i64) ? f64 : 0;
}

int64_t tl_item_int(tl_tensor *x) {
    double f64 = 0;
    int64_t i64 = 0;
    return item(x, &f64, &i64) ? i64 : 0;
}

double tl_at(tl_tensor *x, const int64_t *index) {
    if (!tensor_check(x, "at") || (x->rank && !error_given(index, "at", "an index"))) return 0;
    bool mode = tl_set_grad_mode(false);
    tl_scope scope = tl_scope_begin();
    bool is_packed = dtype_info(x->dtype)->bits < 8; /* a single f4 cannot be read */
    tl_tensor *element = !scope.depth ? NULL : is_packed ? tl_cast(x, TL_F32) : x;
    for (int i = 0; element && i < x->rank; i++) element = tl_select(element, 0, index[i]);
    double value = element ? tl_item(element) : 0;
    if (scope.depth) tl_scope_end(scope);
    tl_set_grad_mode(mode);
    return value;
}

tl_tensor *tl_nonzero(tl_tensor *x) {
    if (!tensor_check(x, "nonzero")) return NULL;
    bool mode = tl_set_grad_mode(false);
    tl_scope scope = tl_scope_begin();
    tl_tensor *result = NULL;
    if (scope.depth && !device_has_data(x->storage->device)) { /* the error names nonzero, not the count inside */
        struct attr_nonzero none = {0};
        op_apply1(&op_nonzero, x, ATTR(none));
    } else if (scope.depth) {
        tl_tensor *holds = x; /* truth values are counted as they are */
        if (x->dtype != TL_BOOL) holds = tl_cmp(x, TL_NE, tl_zeros(0, NULL, x->dtype, x->storage->device));
        struct attr_nonzero a = {tl_item_int(tl_sum_all(holds))};
        if (tl_error() == TL_OK) result = op_apply1(&op_nonzero, x, ATTR(a));
    }
    result = scope.depth ? tl_scope_return(scope, result) : NULL;
    tl_set_grad_mode(mode);
    return result;
}

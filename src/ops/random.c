/* random.c: random numbers in place, truncated normals, permutations, categories; tensors like another one. */
#include <math.h>
#include <string.h>

#include "base/rng_math.h"
#include "ops/draw.h"
#include "ops/ops.h"
#include "spec/dropout.h"

/* ---- Like another tensor ---- */

tl_tensor *tl_full_like(tl_tensor *x, double value) {
    return tensor_check(x, "full_like") ? tl_full(x->rank, x->shape, value, x->dtype, x->storage->device) : NULL;
}
tl_tensor *tl_uniform_like(tl_tensor *x, double low, double high) {
    return tensor_check(x, "uniform_like") ? tl_uniform(x->rank, x->shape, low, high, x->dtype, x->storage->device)
                                           : NULL;
}
tl_tensor *tl_normal_like(tl_tensor *x, double mean, double std) {
    return tensor_check(x, "normal_like") ? tl_normal(x->rank, x->shape, mean, std, x->dtype, x->storage->device)
                                          : NULL;
}
tl_tensor *tl_integers_like(tl_tensor *x, int64_t low, int64_t high) {
    return tensor_check(x, "integers_like") ? tl_integers(x->rank, x->shape, low, high, x->dtype, x->storage->device)
                                            : NULL;
}

tl_generator tl_set_stream(uint64_t stream) {
    tl_generator before = tl_generator_get();
    tl_generator_set((tl_generator){before.seed, stream, 0});
    return before;
}

/* ---- random_fill: x = random numbers ---- */

static bool random_fill_shape(tl_call *c) {
    const struct attr_random_fill *a = c->attr;
    return a->random.kind == RANDOM_BERNOULLI ? call_needs_arithmetic(c, 0) : call_needs_float(c, 0);
}
/* The old contents are not read. */
static void random_fill_cost(const tl_call *c, struct cost *cost) {
    *cost = (struct cost){.n_parts = 1, .part[0] = {COST_HERE, 0, 0, tensor_traffic(c->input[0])}};
}
static void random_fill_backward(tl_gradient *g) { (void)g; } /* nothing of the old x is left */
const tl_op op_random_fill = {RECORD(KERNEL, random_fill, 1),
                              .shape = random_fill_shape,
                              .cost = random_fill_cost,
                              .backward = random_fill_backward,
                              .overwrites = {OVERWRITES(0)},
                              .shapes = "x (...) -> x itself",
                              .dtypes = "floats; bernoulli: any that computes",
                              .flops = "0"};

static tl_tensor *random_fill(tl_tensor *x, struct attr_random_fill *a, const char *what) {
    if (!tensor_check(x, what)) return NULL;
    const uint64_t words = x->dtype == TL_F64 && a->random.kind != RANDOM_BERNOULLI ? 2 : 1;
    a->random.generator = draw_part_begin(words, x->numel);
    if (!op_apply1(&op_random_fill, x, a, sizeof *a)) return NULL;
    draw_part_end(words, x->numel);
    return x;
}

static struct attr_random_fill fill_of(enum random_kind kind, double a, double b) {
    struct attr_random_fill fill;
    memset(&fill, 0, sizeof fill);
    fill.random.kind = kind;
    fill.random.a = a;
    fill.random.b = b;
    return fill;
}

tl_tensor *tl_uniform_(tl_tensor *x, double low, double high) {
    struct attr_random_fill a = fill_of(RANDOM_UNIFORM, low, high);
    if (!tensor_check(x, "uniform_")) return NULL;
    if (dtype_is_float(x->dtype)) a.random.limit = draw_limit(low, high, x->dtype);
    return random_fill(x, &a, "uniform_");
}

static bool std_check(const char *what, double std) {
    return std >= 0 || error_set(TL_ERROR_USE, "%s: std %g is negative", what, std);
}

tl_tensor *tl_normal_(tl_tensor *x, double mean, double std) {
    struct attr_random_fill a = fill_of(RANDOM_NORMAL, mean, std);
    return std_check("normal_", std) ? random_fill(x, &a, "normal_") : NULL;
}

tl_tensor *tl_bernoulli_(tl_tensor *x, double p) {
    struct attr_random_fill a = fill_of(RANDOM_BERNOULLI, p, 0);
    if (!(p >= 0 && p <= 1)) {
        error_set(TL_ERROR_USE, "bernoulli_: probability %g is not between 0 and 1", p);
        return NULL;
    }
    return random_fill(x, &a, "bernoulli_");
}

/* ---- Truncated normal: the quantile of a uniform p between the ends' probabilities ----
 *
 * Small probabilities are exact where probabilities near 1 are not, so the half of the range that is farther out is
 * brought below the mean: a range whose middle is above it is mirrored. */

static double probability_below(double x) { return x <= 0 ? rng_normal_below_f64(x) : 1 - rng_normal_below_f64(-x); }

static bool truncate_at(struct attr_random_fill *a, const char *what, double mean, double std, double low,
                        double high) {
    if (!(low < high)) return error_set(TL_ERROR_USE, "%s: the range [%g, %g] is empty", what, low, high);
    if (!isfinite(mean) || !(std > 0 && std < (double)INFINITY))
        return error_set(TL_ERROR_USE, "%s: needs a finite mean and a finite std above 0, not %g and %g", what, mean,
                         std);
    double from = (low - mean) / std, to = (high - mean) / std;
    a->is_truncated = true;
    a->is_mirrored = from + to > 0;
    if (a->is_mirrored) {
        const double mirrored = -from;
        from = -to;
        to = mirrored;
    }
    if (to < -37)
        return error_set(TL_ERROR_USE, "%s: the range [%g, %g] is more than 37 std from the mean", what, low, high);
    a->low = low;
    a->high = high;
    a->p_low = probability_below(from);
    a->p_high = probability_below(to);
    return true;
}

tl_tensor *tl_trunc_normal_(tl_tensor *x, double mean, double std, double low, double high) {
    struct attr_random_fill a = fill_of(RANDOM_NORMAL, mean, std);
    return truncate_at(&a, "trunc_normal_", mean, std, low, high) ? random_fill(x, &a, "trunc_normal_") : NULL;
}

tl_tensor *tl_trunc_normal(int rank, const int64_t *shape, double mean, double std, double low, double high,
                           tl_dtype dtype, tl_device *device) {
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    tl_tensor *x = tl_empty(rank, shape, dtype, device);
    return tl_scope_return(scope, x ? tl_trunc_normal_(x, mean, std, low, high) : NULL);
}

/* ---- dropout ---- */

static bool dropout_shape(tl_call *c) { return call_needs_float(c, 0) && call_output_like(c, 0, 0); }
static void dropout_cost(const tl_call *c, struct cost *cost) { cost_traffic(c, cost, (count)c->output[0]->numel); }
/* The same elements of g, by the same factor. */
static void dropout_backward(tl_gradient *g) {
    const struct attr_dropout *a = tl_gradient_attr(g);
    g->result[0] = op_apply1(&op_dropout, g->grad[0], a, sizeof *a);
}
const tl_op op_dropout = {RECORD(KERNEL, dropout, 1),
                          .shape = dropout_shape,
                          .cost = dropout_cost,
                          .backward = dropout_backward,
                          .shapes = "x (...) -> like x",
                          .dtypes = "floats",
                          .flops = "n: random numbers have none"};

tl_tensor *tl_dropout(tl_tensor *x, double p) {
    if (!tensor_check(x, "dropout")) return NULL;
    if (!(p >= 0 && p < 1)) {
        error_set(TL_ERROR_USE, "dropout: probability has to be in [0, 1), but got %g", p);
        return NULL;
    }
    if (p == 0) return x;
    struct attr_dropout a;
    memset(&a, 0, sizeof a);
    a.p = p;
    const int64_t n_words = (int64_t)dropout_words((uint64_t)x->numel);
    a.generator = draw_part_begin(1, n_words);
    tl_tensor *out = op_apply1(&op_dropout, x, &a, sizeof a);
    if (out) draw_part_end(1, n_words);
    return out;
}

/* ---- permutation ---- */

static bool permutation_shape(tl_call *c) {
    (void)c; /* the caller filled out[0] */
    return true;
}
static void permutation_cost(const tl_call *c, struct cost *cost) { cost_traffic(c, cost, 0); }
static uint64_t permutation_workspace(const tl_call *c) { return (uint64_t)c->out[0].shape[0] * 32; }
const tl_op op_permutation = {RECORD(KERNEL, permutation, 1),
                              .shape = permutation_shape,
                              .cost = permutation_cost,
                              .workspace = permutation_workspace,
                              .shapes = "-> (n)",
                              .dtypes = "i64",
                              .flops = "0"};

tl_tensor *tl_permutation(int64_t n, tl_device *device) {
    if (n < 0 || n > INT64_MAX / 32) {
        error_set(TL_ERROR_USE, "permutation: %lld is negative or too large", (long long)n);
        return NULL;
    }
    struct attr_permutation a = {draw_begin(2)};
    tl_call c;
    call_begin(&c, &op_permutation, NULL, 0, ATTR(a));
    c.device = c.out_device = device_or_default(device);
    call_output(&c, 0, TL_I64, 1, &n);
    tl_tensor *x = c.device ? op_apply(&c) : NULL;
    if (x) draw_end(a.generator, 2, n);
    return x;
}

/* ---- multinomial ---- */

static bool multinomial_shape(tl_call *c) {
    const struct attr_multinomial *a = c->attr;
    const tl_tensor *p = c->input[0];
    if (!call_needs_float(c, 0)) return false;
    if (p->rank < 1 || p->rank > 2) return call_fail(c, "prob_dist must be 1 or 2 dim");
    const int64_t K = p->shape[p->rank - 1];
    if (a->n_samples <= 0) return call_fail(c, "cannot sample n_sample <= 0 samples");
    if (!a->has_replacement && a->n_samples > K)
        return call_fail(c, "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
    if (K == 0 || K > INT64_MAX / 32) return call_fail_need(c, "there must be a category", "a last axis that is not 0");
    const int64_t shape[2] = {p->shape[0], a->n_samples};
    return call_output(c, 0, TL_I64, p->rank, p->rank == 2 ? shape : shape + 1);
}
/* with replacement: a running sum. Without: a logarithm and a division */
static void multinomial_cost(const tl_call *c, struct cost *cost) {
    const struct attr_multinomial *a = c->attr;
    cost_traffic(c, cost, (count)(uint64_t)c->input[0]->numel * (a->has_replacement ? 1 : 2));
}
const tl_op op_multinomial = {RECORD(KERNEL, multinomial, 1), .shape = multinomial_shape,
                              .cost = multinomial_cost,       .shapes = "p (K) -> (n); p (N,K) -> (N,n)",
                              .dtypes = "floats to i64",      .flops = "1 per weight; 2 without replacement"};

tl_tensor *tl_multinomial(tl_tensor *p, int64_t n_samples, bool replacement) {
    if (!tensor_check(p, "multinomial")) return NULL;
    struct attr_multinomial a;
    memset(&a, 0, sizeof a);
    a.n_samples = n_samples;
    a.has_replacement = replacement;
    a.generator = draw_begin(2);
    tl_tensor *x = op_apply1(&op_multinomial, p, ATTR(a));
    if (x) draw_end(a.generator, 2, replacement ? x->numel : p->numel);
    return x;
}

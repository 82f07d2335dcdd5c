/* attention.c: attention, flash-style: no buffer of queries x keys.
 *
 * FLOPs. Each visible (query, key) pair costs 2D in every GEMM it takes part in: two forward (q k^T, p v); five
 * backward (q k^T again, g v^T, dv = p^T g, dq = ds k, dk = ds^T q), of which the first repeats forward work and is
 * billed to the recompute phase. Causal attention of T on T counts T(T+1)/2 pairs. Softmax arithmetic is not
 * counted, nor is that of dropout, whose mask is made where it is used and never stored. Cost is a rule of shapes:
 * pairs that a mask or a tensor of first keys hides count, although kernels leave out most of the latter. A soft cap
 * is arithmetic of the softmax, and not counted.
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/memory.h"
#include "ops/draw.h"
#include "ops/ops.h"
#include "spec/dropout.h"

static atomic_bool fast;

bool tl_set_fast(bool is_fast) { return atomic_exchange(&fast, is_fast); }
bool fast_is_on(void) { return atomic_load_explicit(&fast, memory_order_relaxed); }

static bool mask_fits(const tl_call *c) {
    const tl_tensor *q = c->input[0], *k = c->input[1], *mask = c->input[3];
    const int64_t shape[4] = {q->shape[0], q->shape[2], q->shape[1], k->shape[1]};
    if (mask->dtype != TL_BOOL && !call_needs_float(c, 3)) return false;
    return shape_equal(mask->rank, mask->shape, 4, shape) ||
           call_fail_need(c, "the mask has another shape than the scores", "[B,H,T,S]");
}

/* The place of the first keys among the inputs. */
static int first_key_at(const struct attr_attention *a) { return 3 + a->has_mask; }

static bool first_key_fits(const tl_call *c, int at) {
    const tl_tensor *q = c->input[0], *x = c->input[at];
    return call_needs_index(c, at) && (shape_equal(x->rank, x->shape, 2, q->shape) ||
                                       call_fail_need(c, "first_key has another shape than the queries", "[B,T]"));
}

static bool attention_shape(tl_call *c) {
    const struct attr_attention *a = c->attr;
    const tl_tensor *q = c->input[0], *k = c->input[1], *v = c->input[2];
    if (!call_needs_float(c, 0)) return false;
    if (q->rank != 4 || k->rank != 4 || !shape_equal(k->rank, k->shape, v->rank, v->shape))
        return call_fail_need(c, "wrong ranks", "q [B,T,H,D], k and v [B,S,Hkv,D]");
    if (q->dtype != k->dtype || q->dtype != v->dtype)
        return call_fail_need(c, "q, k and v have different dtypes", "a cast");
    if (q->shape[0] != k->shape[0] || q->shape[3] != k->shape[3])
        return call_fail_need(c, "batch or head sizes differ", "q [B,T,H,D], k and v [B,S,Hkv,D]");
    if (q->shape[2] != 0 && (k->shape[2] == 0 || q->shape[2] % k->shape[2]))
        return call_fail(c, "query heads must be a multiple of key heads");
    if (a->has_mask && !mask_fits(c)) return false;
    if (a->has_first_key && !first_key_fits(c, first_key_at(a))) return false;
    int64_t lse[3] = {q->shape[0], q->shape[2], q->shape[1]};
    call_output_like(c, 0, 0);
    return call_output(c, 1, statistics_dtype(q->dtype), 3, lse);
}

/* 1 + 2 + ... + n */
static count triangle(int64_t n) { return n > 0 ? (count)n * (count)(n + 1) / 2 : 0; }

/* Pairs of T queries and S keys whose key is at most `beyond` after the query's own, S-T+t: the sum over t of
 * S-T+t+1+beyond, clamped to 0 .. S. */
static count pairs_up_to(int64_t t, int64_t s, int64_t beyond) {
    const int64_t last = s + beyond, before = last - t;
    return (triangle(last) - triangle(before)) - (triangle(last - s) - triangle(before - s));
}

static count seen_pairs(int64_t t, int64_t s, const struct attr_attention *a) {
    const int64_t all = s + t, window = a->window > 0 && a->window < all ? a->window : all;
    return pairs_up_to(t, s, a->causal ? 0 : window - 1) - pairs_up_to(t, s, -window);
}

/* one GEMM over all visible pairs of all heads: 2 D each; pairs that a mask or first keys hide are not known here, and
 * count */
static count gemm_flops(const tl_tensor *q, const tl_tensor *k, const struct attr_attention *a) {
    return 2 * (count)q->shape[3] * (count)q->shape[0] * (count)q->shape[2] * seen_pairs(q->shape[1], k->shape[1], a);
}

static void attention_cost(const tl_call *c, struct cost *cost) {
    const struct attr_attention *a = c->attr;
    cost_traffic(c, cost, 2 * gemm_flops(c->input[0], c->input[1], a));
}

static bool attention_grad_shape(tl_call *c) {
    const struct attr_attention *a = c->attr;
    const tl_tensor *q = c->input[1], *k = c->input[2];
    if (a->is_packed) {
        const int64_t shape[4] = {q->shape[0], q->shape[1], q->shape[2] + 2 * k->shape[2], q->shape[3]};
        const int64_t width = shape[2] * shape[3];
        c->n_outputs = a->gives_sums ? 2 : 1;
        return call_output(c, 0, q->dtype, 4, shape) && (!a->gives_sums || call_output(c, 1, q->dtype, 1, &width));
    }
    c->n_outputs = a->has_mask_grad ? 4 : 3;
    for (int j = 0; j < 3; j++) call_output_like(c, j, j + 1);
    return !a->has_mask_grad || call_output_like(c, 3, 6);
}
static void attention_grad_cost(const tl_call *c, struct cost *cost) {
    const struct attr_attention *a = c->attr;
    count gemm = gemm_flops(c->input[1], c->input[2], a);
    cost_traffic(c, cost, 4 * gemm + (a->gives_sums ? (count)c->output[0]->numel : 0));
    cost->part[cost->n_parts++] = (struct cost_part){.phase = TL_RECOMPUTE, .flops = gemm};
}

/* Whether q, k and v are the heads of one dense tensor (B,T,H+2Hkv,D), in this order. Their gradients then are too, so
 * that nobody has to join them. */
static bool is_packed(const tl_tensor *q, const tl_tensor *k, const tl_tensor *v) {
    const int64_t T = q->shape[1], H = q->shape[2], H_kv = k->shape[2], D = q->shape[3], row = (H + 2 * H_kv) * D;
    const int64_t stride[4] = {T * row, row, D, 1};
    const tl_tensor *part[3] = {q, k, v};
    if (dtype_info(q->dtype)->bits % 8) return false; /* heads begin at whole bytes */
    for (int j = 0; j < 3; j++)
        if (part[j]->storage != q->storage || part[j]->numel == 0 || memcmp(part[j]->stride, stride, sizeof stride))
            return false;
    return k->shape[1] == T && k->offset == q->offset + H * D && v->offset == k->offset + H_kv * D;
}

/* The heads of dq, dk and dv in the packed gradient, as views of it. */
static void packed_results(tl_gradient *g, tl_tensor *packed, int64_t H, int64_t H_kv) {
    const int64_t heads[3] = {H, H_kv, H_kv};
    tl_split(packed, 2, heads, 3, g->result);
}

/* Whether a bias of the product that q, k and v are the parts of gets the sums of the packed gradient's columns, and
 * the device has them on the way. */
static bool sums_are_due(const tl_gradient *g, const tl_call *c) {
    const tl_tensor *q = c->input[1], *k = c->input[2];
    const struct edge *e = g->node->edges;
    const struct target *t = q->storage->device->target;
    const int64_t width = (q->shape[2] + 2 * k->shape[2]) * q->shape[3];
    if (!t->rules->sums || !t->rules->sums(c, t)) return false;
    if (e[0].node != e[1].node || e[0].node != e[2].node) return false;
    return gradient_wants_sums(g, 0, q->shape[0] * q->shape[1] * width, width);
}

/* p = softmax: ds = p (g v^T - rowsum(g out) + g_lse); dv = p^T g; dq = scale ds k; dk = scale ds^T q; dmask = ds.
 * With a soft cap c, ds times 1 - tanh(s / c)^2 takes the place of ds in dq and dk.
 * With dropout's mask m, 0 or 1/(1 - dropout): ds = p (m g v^T - ...), dv = (m p)^T g, the others as they are. */
static void attention_backward(tl_gradient *g) {
    struct attr_attention a;
    memcpy(&a, g->node->attr, sizeof a);
    tl_tensor *out = gradient_output(g, 0);
    if (!out) return;
    tl_tensor *grad = g->grad[0] ? tl_contiguous(g->grad[0]) : tl_zeros_like(out);
    tl_tensor *input[9] = {grad, gradient_input(g, 0), gradient_input(g, 1), gradient_input(g, 2),
                           out,  gradient_output(g, 1)};
    int n = 6;
    if (a.has_mask) input[n++] = gradient_input(g, 3);
    if (a.has_first_key) input[n++] = gradient_input(g, first_key_at(&a));
    if (g->grad[1]) input[n++] = tl_contiguous(tl_cast(g->grad[1], statistics_dtype(out->dtype)));
    a.has_lse_grad = g->grad[1] != NULL;
    a.has_mask_grad = a.has_mask && g->needs[3];
    a.is_fast = fast_is_on();
    a.is_packed = !a.has_mask_grad && input[1] && input[2] && input[3] && is_packed(input[1], input[2], input[3]);
    tl_call c;
    call_begin(&c, &op_attention_grad, input, n, ATTR(a));
    a.gives_sums = a.is_packed && sums_are_due(g, &c);
    if (!op_apply(&c)) return;
    if (a.gives_sums) storage_set_sums(c.output[0]->storage, c.output[1]);
    if (a.is_packed) packed_results(g, c.output[0], input[1]->shape[2], input[2]->shape[2]);
    else
        for (int j = 0; j < c.n_outputs; j++) g->result[j] = c.output[j];
}

const tl_op op_attention = {
    RECORD(KERNEL, attention, 2),
    .shapes = "q (B,T,H,D), k, v (B,S,Hkv,D) [, mask (B,H,T,S)] [, first_key (B,T)]: out like q; lse "
              "(B,H,T)",
    .dtypes = "floats, q, k, v alike; mask bool or float; first_key i64, i32; lse f32 (f64 for f64)",
    .flops = "4BHD per visible pair of query and key; causal, T on T: T(T+1)/2 pairs",
    .shape = attention_shape,
    .cost = attention_cost,
    .backward = attention_backward,
    .is_costly = true,
    .saves_any = TL_INPUT(0) | TL_INPUT(1) | TL_INPUT(2) | TL_INPUT(3) | TL_INPUT(4) | TL_OUTPUT(0) | TL_OUTPUT(1)};
const tl_op op_attention_grad = {
    RECORD(KERNEL, attention_grad, 4),
    .shapes = "g, q, k, v, out, lse [, mask] [, first_key] [, g_lse]: dq, dk, dv (or packed [, sums]) [, dmask]",
    .dtypes = "floats; mask bool or float; first_key i64, i32; lse f32 (f64 for f64)",
    .flops = "8BHD per visible pair of query and key, sums n; in phase recompute 2BHD",
    .shape = attention_grad_shape,
    .cost = attention_grad_cost,
    .backward = gradient_missing};

tl_attention_options tl_attention_defaults(void) { return (tl_attention_options){.scale = 0}; }

/* The mask as the kernels expect it: expanded to (B,H,T,S), which costs nothing. */
static tl_tensor *mask_expand(tl_tensor *q, tl_tensor *k, tl_tensor *mask) {
    if (!tensor_check(mask, "attention") || !tensor_check(k, "attention")) return NULL;
    if (q->rank != 4 || k->rank != 4) return mask; /* refused by the op */
    return tl_expand(mask, TL_SHAPE(q->shape[0], q->shape[2], q->shape[1], k->shape[1]));
}

/* (B,T), or what broadcasts to it. */
static tl_tensor *first_key_expand(tl_tensor *q, tl_tensor *first_key) {
    if (!tensor_check(first_key, "attention")) return NULL;
    return q->rank == 4 ? tl_expand(first_key, TL_SHAPE(q->shape[0], q->shape[1])) : first_key;
}

static bool options_check(const tl_attention_options *o) {
    if (o->window < 0)
        return error_set(TL_ERROR_USE, "attention: a window of %lld (need a number of keys, or 0 for all)",
                         (long long)o->window);
    if (!(o->soft_cap >= 0 && isfinite(o->soft_cap)))
        return error_set(TL_ERROR_USE, "attention: a soft cap of %g (need more than 0, or 0 for none)", o->soft_cap);
    return (o->dropout >= 0 && o->dropout < 1) ||
           error_set(TL_ERROR_USE, "attention: dropout probability has to be in [0, 1), but got %g", o->dropout);
}

/* Words that dropout of q and k takes; wraps where the count does, as the generator itself. */
static int64_t words_of_mask(const tl_tensor *q, const tl_tensor *k) {
    const uint64_t rows = (uint64_t)q->shape[0] * (uint64_t)q->shape[2] * (uint64_t)q->shape[1];
    return (int64_t)(rows * dropout_words(dropout_row_elements(k->shape[1])));
}

tl_tensor *tl_attention(tl_tensor *q, tl_tensor *k, tl_tensor *v, const tl_attention_options *options,
                        tl_tensor **lse) {
    const tl_attention_options defaults = tl_attention_defaults();
    if (!options) options = &defaults;
    if (lse) *lse = NULL;
    if (!tensor_check(q, "attention")) return NULL;
    if (!options_check(options)) return NULL;
    struct attr_attention a;
    memset(&a, 0, sizeof a);
    a.causal = options->causal;
    a.window = options->window;
    a.soft_cap = options->soft_cap;
    a.has_mask = options->mask != NULL;
    a.has_first_key = options->first_key != NULL;
    a.dropout = options->dropout;
    const bool has_words = a.dropout > 0 && q->rank == 4 && k && k->alive == TENSOR_ALIVE && k->rank == 4;
    const int64_t n_words = has_words ? words_of_mask(q, k) : 0; /* otherwise the call is refused below */
    if (a.dropout > 0) a.generator = draw_part_begin(1, n_words);
    a.scale = options->scale != 0 ? options->scale : q->rank == 4 && q->shape[3] ? 1 / sqrt((double)q->shape[3]) : 1;
    q = autocast_narrow(q);
    k = autocast_narrow(k);
    v = autocast_narrow(v);
    if (!q) return NULL;
    tl_tensor *input[5] = {q, k, v};
    int n = 3;
    for (int i = 0; i < 3; i++) input[i] = with_dense_rows(input[i]);
    if (a.has_mask && !(input[n++] = mask_expand(q, k, options->mask))) return NULL;
    if (a.has_first_key && !(input[n++] = first_key_expand(q, options->first_key))) return NULL;
    tl_call c;
    call_begin(&c, &op_attention, input, n, ATTR(a));
    if (!op_apply(&c)) return NULL;
    if (a.dropout > 0) draw_part_end(1, n_words);
    if (lse) *lse = c.output[1];
    return c.output[0];
}

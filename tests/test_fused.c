/* test_fused.c: fused ops against the ops they replace.
 *
 * Each oracle is the composite a program would write without the fused op: same results and gradients, more bytes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/ops.h"
#include "support/samples.h"

static tl_device *cpu, *h200;

static tl_tensor *drawn(tl_dtype dtype, int rank, const int64_t *shape) {
    return tl_requires_grad(tl_detach(tl_cast(tl_normal(rank, shape, 0, 1, TL_F64, cpu), dtype)), true);
}

/* Largest difference, relative to the largest element of b. */
static double distance(tl_tensor *a, tl_tensor *b) {
    double *x = tensor_values(a), *y = tensor_values(b), worst = 0, largest = 0;
    assert_int_equal(tl_numel(a), tl_numel(b));
    for (int64_t i = 0; i < tl_numel(a); i++) {
        largest = fmax(largest, fabs(y[i]));
        worst = fmax(worst, isnan(x[i] - y[i]) ? INFINITY : fabs(x[i] - y[i]));
    }
    free(x), free(y);
    return worst == 0 ? 0 : worst / largest;
}

static void within(const char *what, tl_tensor *a, tl_tensor *b, double bound) {
    double d = distance(a, b);
    if (!(d <= bound)) fail_msg("%s: off by %g of the largest, allowed %g", what, d, bound);
}

/* ---- swiglu, sum and norm: bit for bit in f32 and f64 ---- */

/* y = a program of two inputs [and weights], both ways; results and gradients are compared. */
typedef tl_tensor *(*program)(tl_tensor **in);
static void programs_agree(const char *what, program fused, program composite, tl_tensor **in, int n, double bound) {
    tl_tensor *grad[4], *y = fused(in),
                        *seed = tl_detach(tl_normal(tl_rank(y), tl_shape(y), 0, 1, tl_dtype_of(y), cpu));
    tl_backward(y, seed, 0);
    for (int i = 0; i < n; i++) {
        grad[i] = tl_clone(tl_grad_of(in[i]));
        tl_zero_grad(in[i], false);
    }
    tl_tensor *z = composite(in);
    tl_backward(z, seed, 0);
    if (tl_error() != TL_OK) fail_msg("%s: %s", what, tl_error_message());
    within(what, y, z, bound);
    for (int i = 0; i < n; i++) within(what, grad[i], tl_grad_of(in[i]), bound);
    for (int i = 0; i < n; i++) tl_zero_grad(in[i], false);
}

static tl_tensor *swiglu_fused(tl_tensor **in) { return tl_swiglu(in[0], in[1]); }
static tl_tensor *swiglu_composite(tl_tensor **in) { return tl_mul(tl_silu(in[0]), in[1]); }

static tl_tensor *rms_fused(tl_tensor **in) {
    tl_tensor *sum, *y = tl_add_rms_norm(in[0], in[1], in[2], 1e-5, &sum);
    return tl_mul(y, sum);
}
static tl_tensor *rms_composite(tl_tensor **in) {
    tl_tensor *sum = tl_add(in[0], in[1]);
    return tl_mul(tl_rms_norm(sum, in[2], 1e-5), sum);
}
static tl_tensor *layer_fused(tl_tensor **in) {
    tl_tensor *sum, *y = tl_add_layer_norm(in[0], in[1], in[2], in[3], 1e-5, &sum);
    return tl_mul(y, sum);
}
static tl_tensor *layer_composite(tl_tensor **in) {
    tl_tensor *sum = tl_add(in[0], in[1]);
    return tl_mul(tl_layer_norm(sum, in[2], in[3], 1e-5), sum);
}

/* With dropout: of the second input, before it is added. */
static tl_tensor *rms_dropped_fused(tl_tensor **in) {
    tl_seed(21);
    tl_tensor *sum, *y = add_rms_norm(in[0], in[1], in[2], 1e-5, 0.3, &sum);
    return tl_mul(y, sum);
}
static tl_tensor *rms_dropped_composite(tl_tensor **in) {
    tl_seed(21);
    tl_tensor *sum = tl_add(in[0], tl_dropout(in[1], 0.3));
    return tl_mul(tl_rms_norm(sum, in[2], 1e-5), sum);
}
static tl_tensor *layer_dropped_fused(tl_tensor **in) {
    tl_seed(22);
    tl_tensor *sum, *y = add_layer_norm(in[0], in[1], in[2], in[3], 1e-5, 0.1, &sum);
    return tl_mul(y, sum);
}
static tl_tensor *layer_dropped_composite(tl_tensor **in) {
    tl_seed(22);
    tl_tensor *sum = tl_add(in[0], tl_dropout(in[1], 0.1));
    return tl_mul(tl_layer_norm(sum, in[2], in[3], 1e-5), sum);
}
/* The norm alone is read, and the sum alone. */
static tl_tensor *norm_of_dropped_fused(tl_tensor **in) {
    tl_seed(23);
    tl_tensor *sum;
    return add_layer_norm(in[0], in[1], in[2], in[3], 1e-5, 0.5, &sum);
}
static tl_tensor *norm_of_dropped_composite(tl_tensor **in) {
    tl_seed(23);
    return tl_layer_norm(tl_add(in[0], tl_dropout(in[1], 0.5)), in[2], in[3], 1e-5);
}
static tl_tensor *sum_of_dropped_fused(tl_tensor **in) {
    tl_seed(24);
    tl_tensor *sum;
    return add_rms_norm(in[0], in[1], NULL, 1e-5, 0.5, &sum) ? sum : NULL;
}
static tl_tensor *sum_of_dropped_composite(tl_tensor **in) {
    tl_seed(24);
    return tl_add(in[0], tl_dropout(in[1], 0.5));
}

/* Both take as many random numbers. */
static void draws_agree(tl_tensor *(*fused)(tl_tensor **), tl_tensor *(*composite)(tl_tensor **), tl_tensor **in) {
    fused(in);
    const tl_generator of_fused = tl_generator_get();
    composite(in);
    const tl_generator of_composite = tl_generator_get();
    assert_memory_equal(&of_fused, &of_composite, sizeof of_fused);
}

static void fused_ops_equal_their_composites(void **state) {
    (void)state;
    const tl_dtype dtype[] = {TL_F64, TL_F32, TL_F16, TL_BF16};
    /* The same operations in the same order: equal bits. In 16 bits the composite rounds intermediate results, and
     * its gradients two or three times: a few units in the last place. */
    const double bound[] = {0, 0, 4 * 0x1p-10, 4 * 0x1p-7};
    for (int d = 0; d < 4; d++) {
        tl_scope scope = tl_scope_begin();
        tl_seed(3);
        tl_tensor *in[4] = {drawn(dtype[d], TL_SHAPE(3, 50, 130)), drawn(dtype[d], TL_SHAPE(3, 50, 130)),
                            drawn(dtype[d], TL_SHAPE(130)), drawn(dtype[d], TL_SHAPE(130))};
        programs_agree("swiglu", swiglu_fused, swiglu_composite, in, 2, bound[d]);
        programs_agree("add_rms_norm", rms_fused, rms_composite, in, 3, bound[d]);
        programs_agree("add_layer_norm", layer_fused, layer_composite, in, 4, bound[d]);
        programs_agree("add_rms_norm, dropout", rms_dropped_fused, rms_dropped_composite, in, 3, bound[d]);
        programs_agree("add_layer_norm, dropout", layer_dropped_fused, layer_dropped_composite, in, 4, bound[d]);
        programs_agree("the norm alone", norm_of_dropped_fused, norm_of_dropped_composite, in, 4, bound[d]);
        programs_agree("the sum alone", sum_of_dropped_fused, sum_of_dropped_composite, in, 2, 0);
        draws_agree(layer_dropped_fused, layer_dropped_composite, in);
        tl_scope_end(scope);
    }
}

/* ---- Attention with dropout ---- */

static struct dropout_case {
    int64_t B, T, S, H, H_kv, D;
    bool causal, has_mask;
    double p;
} dropped;
enum { DROPOUT_SEED = 11 };

/* in: q, k, v [, mask] */
static tl_tensor *dropout_fused(tl_tensor **in) {
    tl_seed(DROPOUT_SEED);
    const tl_attention_options o = {
        .causal = dropped.causal, .dropout = dropped.p, .mask = dropped.has_mask ? in[3] : NULL};
    return tl_attention(in[0], in[1], in[2], &o, NULL);
}

/* softmax, times what tl_dropout leaves of ones, times v. */
static tl_tensor *dropout_composite(tl_tensor **in) {
    const struct dropout_case *c = &dropped;
    tl_tensor *k = tl_repeat_interleave(in[1], 2, c->H / c->H_kv), *v = tl_repeat_interleave(in[2], 2, c->H / c->H_kv);
    tl_tensor *q = tl_scale(tl_transpose(in[0], 1, 2), 1 / sqrt((double)c->D)); /* (B,H,T,D) */
    tl_tensor *scores = tl_matmul(q, tl_transpose(tl_transpose(k, 1, 2), 2, 3));
    if (c->has_mask) scores = tl_add(scores, in[3]);
    if (c->causal) {
        tl_tensor *seen = tl_tril(tl_ones(TL_SHAPE(c->T, c->S), TL_BOOL, cpu), c->S - c->T);
        scores = tl_where_scalar(seen, scores, tl_scalar_float(-INFINITY));
    }
    tl_seed(DROPOUT_SEED);
    tl_tensor *ones = tl_ones(TL_SHAPE(c->B, c->H, c->T, (c->S + 7) / 8 * 8), tl_dtype_of(q), cpu);
    tl_tensor *weights = tl_mul(tl_softmax(scores, 3), tl_slice(tl_dropout(ones, c->p), 3, 0, c->S, 1));
    return tl_transpose(tl_matmul(weights, tl_transpose(v, 1, 2)), 1, 2);
}

/* Values and gradients, and the same place of the generator. Several blocks of queries and keys, rows of the mask that
 * end inside a Philox block, heads of several parts. */
static void attention_drops_what_dropout_of_ones_drops(void **state) {
    (void)state;
    static const struct dropout_case cases[] = {
        {2, 7, 7, 2, 2, 4, true, false, 0.25},       {1, 150, 150, 2, 1, 16, true, false, 0.1},
        {2, 70, 133, 4, 2, 20, false, false, 0.5},   {1, 66, 90, 2, 2, 40, true, true, 0.2},
        {1, 20, 18, 1, 1, 300, false, false, 0.875}, {1, 1, 5, 3, 1, 8, false, true, 0.5}};
    const tl_dtype dtype[] = {TL_F64, TL_F32};
    const double bound[] = {1e-13, 1e-5};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int d = 0; d < 2; d++) {
            const struct dropout_case *c = &cases[i];
            dropped = *c;
            tl_scope scope = tl_scope_begin();
            tl_seed(3);
            tl_tensor *in[4] = {drawn(dtype[d], TL_SHAPE(c->B, c->T, c->H, c->D)),
                                drawn(dtype[d], TL_SHAPE(c->B, c->S, c->H_kv, c->D)),
                                drawn(dtype[d], TL_SHAPE(c->B, c->S, c->H_kv, c->D)),
                                drawn(dtype[d], TL_SHAPE(c->B, c->H, c->T, c->S))};
            programs_agree("dropout", dropout_fused, dropout_composite, in, c->has_mask ? 4 : 3, bound[d]);
            dropout_fused(in);
            const tl_generator fused = tl_generator_get();
            dropout_composite(in);
            const tl_generator composite = tl_generator_get();
            assert_memory_equal(&fused, &composite, sizeof fused);
            tl_scope_end(scope);
        }
}

/* Queries of 0 weigh all S keys alike, and values that are unit vectors show the weights themselves. */
static double *weights_shown(int64_t B, int64_t T, int64_t H, int64_t S, double p) {
    tl_scope scope = tl_scope_begin();
    tl_tensor *q = tl_zeros(TL_SHAPE(B, T, H, S), TL_F32, cpu), *k = tl_zeros(TL_SHAPE(B, S, H, S), TL_F32, cpu);
    tl_tensor *eye = tl_expand(tl_reshape(tl_one_hot(tl_arange(0, 1, S, TL_I64, cpu), S), TL_SHAPE(1, S, 1, S)),
                               TL_SHAPE(B, S, H, S));
    double *shown = tensor_values(
        tl_attention(q, k, tl_cast(eye, TL_F32), &(tl_attention_options){.dropout = p}, NULL)); /* (B,T,H,S) */
    tl_scope_end(scope);
    return shown;
}

static void attention_drops_the_share_it_is_told(void **state) {
    (void)state;
    enum { B = 2, T = 96, H = 3, S = 64, N = B * T * H * S };
    const double shares[] = {0.1, 0.2, 0.5, 0.9};
    for (int i = 0; i < 4; i++) {
        const double p = shares[i], kept = 1 / (S * (1 - p));
        tl_seed(21);
        double *first = weights_shown(B, T, H, S, p), *next = weights_shown(B, T, H, S, p);
        tl_seed(21);
        double *again = weights_shown(B, T, H, S, p);
        int64_t n_kept = 0, n_both = 0, n_right = 0, n_below = 0;
        for (int64_t j = 0; j < N; j++) {
            if (first[j] != 0 && fabs(first[j] - kept) > 1e-6 * kept)
                fail_msg("p %g: a weight of %g, not %g", p, first[j], kept);
            n_kept += first[j] != 0;
            n_both += first[j] != 0 && next[j] != 0;
            n_right += j % S && first[j] != 0 && first[j - 1] != 0;
            n_below += j >= H * S && first[j] != 0 && first[j - H * S] != 0;
        }
        assert_memory_equal(first, again, N * sizeof *first);
        /* 4 standard deviations; neighbours and the next call are independent */
        const double q = 1 - p, off = 4 * sqrt(N * p * q), both = 4 * sqrt(N * q * q * (1 - q * q)) + 2 * q * q * off;
        if (fabs((double)n_kept - N * q) > off) fail_msg("p %g: %lld of %d kept", p, (long long)n_kept, N);
        if (fabs((double)n_both - N * q * q) > both) fail_msg("p %g: %lld kept twice", p, (long long)n_both);
        if (fabs((double)n_right - N * q * q * (S - 1) / S) > both)
            fail_msg("p %g: %lld beside each other", p, (long long)n_right);
        if (fabs((double)n_below - (N - H * S) * q * q) > both)
            fail_msg("p %g: %lld below each other", p, (long long)n_below);
        free(first), free(next), free(again);
    }
}

/* ---- Attention inside documents ---- */

static struct documents_case {
    int64_t B, T, S, H, H_kv, D, window;
    int rise; /* first keys rise by 0 .. rise at each query */
    bool causal;
    double p;
} packed;
static tl_tensor *first_keys; /* (B,T) */

static tl_tensor *packed_fused(tl_tensor **in) {
    tl_seed(DROPOUT_SEED);
    const tl_attention_options o = {
        .causal = packed.causal, .window = packed.window, .dropout = packed.p, .first_key = first_keys};
    return tl_attention(in[0], in[1], in[2], &o, NULL);
}

static tl_tensor *packed_masked(tl_tensor **in) {
    tl_seed(DROPOUT_SEED);
    tl_tensor *keys = tl_arange(0, 1, packed.S, TL_I64, cpu);           /* (S) */
    tl_tensor *seen = tl_cmp(keys, TL_GE, tl_unsqueeze(first_keys, 2)); /* (B,T,S) */
    const tl_attention_options o = {
        .causal = packed.causal, .window = packed.window, .dropout = packed.p, .mask = tl_unsqueeze(seen, 1)};
    return tl_attention(in[0], in[1], in[2], &o, NULL);
}

/* Several blocks of queries and keys, grouped heads, windows, dropout, queries that see no key, heads of several
 * parts: results and gradients have the bits that a bool mask gives. */
static void first_keys_hide_what_a_mask_would(void **state) {
    (void)state;
    static const struct documents_case cases[] = {
        {2, 7, 7, 2, 2, 4, 0, 1, true, 0},        {2, 200, 200, 2, 1, 16, 0, 1, true, 0},
        {1, 150, 260, 4, 2, 20, 0, 3, false, 0},  {1, 190, 190, 2, 2, 24, 50, 1, true, 0.2},
        {2, 131, 131, 1, 1, 8, 0, 3, true, 0},    {1, 90, 90, 1, 1, 300, 0, 1, true, 0},
        {1, 129, 140, 2, 1, 8, 30, 2, false, 0.5}};
    const tl_dtype dtype[] = {TL_F64, TL_F32, TL_F16};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int d = 0; d < 3; d++) {
            const struct documents_case *c = &cases[i];
            packed = *c;
            tl_scope scope = tl_scope_begin();
            tl_seed(5 + i);
            tl_tensor *in[3] = {drawn(dtype[d], TL_SHAPE(c->B, c->T, c->H, c->D)),
                                drawn(dtype[d], TL_SHAPE(c->B, c->S, c->H_kv, c->D)),
                                drawn(dtype[d], TL_SHAPE(c->B, c->S, c->H_kv, c->D))};
            first_keys = tl_cumsum(tl_integers(TL_SHAPE(c->B, c->T), 0, c->rise + 1, TL_I64, cpu), 1);
            programs_agree("first keys", packed_fused, packed_masked, in, 3, 0);
            tl_scope_end(scope);
        }
}

/* Two documents of 128 tokens, and NaN throughout the first: the second does not notice, forward or backward. */
static void blocks_before_the_first_key_are_not_read(void **state) {
    (void)state;
    enum { T = 256, H = 2, D = 16, HALF = T / 2 };
    tl_scope scope = tl_scope_begin();
    tl_seed(9);
    tl_tensor *bad = tl_full(TL_SHAPE(1, HALF, H, D), NAN, TL_F32, cpu), *in[3];
    for (int i = 0; i < 3; i++) {
        tl_tensor *parts[2] = {bad, tl_normal(TL_SHAPE(1, HALF, H, D), 0, 1, TL_F32, cpu)};
        in[i] = tl_requires_grad(tl_detach(tl_concat(parts, 2, 1)), true);
    }
    tl_tensor *ends[2] = {tl_zeros(TL_SHAPE(HALF), TL_I32, cpu), tl_full(TL_SHAPE(HALF), HALF, TL_I32, cpu)};
    const tl_attention_options o = {.causal = true, .first_key = tl_concat(ends, 2, 0)};
    tl_tensor *y = tl_attention(in[0], in[1], in[2], &o, NULL);
    tl_backward(y, tl_ones_like(y), 0);
    tl_tensor *results[4] = {y, tl_grad_of(in[0]), tl_grad_of(in[1]), tl_grad_of(in[2])};
    for (int i = 0; i < 4; i++) {
        double *value = tensor_values(results[i]);
        for (int64_t j = HALF * H * D; j < T * H * D; j++)
            if (!isfinite(value[j])) fail_msg("result %d: element %lld is %g", i, (long long)j, value[j]);
        free(value);
    }
    tl_scope_end(scope);
}

/* ---- The head ---- */

struct head_case {
    tl_tensor *x, *w, *targets;
};

/* In chunks of the given size; 0: the size that the shapes give. */
static tl_tensor *head_loss(struct head_case *c, int64_t chunk_rows) {
    if (!chunk_rows) return tl_linear_cross_entropy(c->x, c->w, c->targets, NULL);
    struct attr_linear_cross_entropy a;
    memset(&a, 0, sizeof a);
    a.ignore_index = -100;
    a.chunk_rows = chunk_rows;
    a.gives_dx = a.gives_dweight = true;
    a.is_gathered = tl_dtype_of(c->x) == TL_BF16 && chunk_rows % 16 == 0; /* both ways come up */
    tl_tensor *input[3] = {c->x, c->w, c->targets};
    tl_call call;
    call_begin(&call, &op_linear_cross_entropy, input, 3, &a, sizeof a);
    return op_apply(&call);
}

static void head_agrees(tl_dtype dtype, int64_t N, int64_t V, int64_t C, int64_t chunk_rows, double bound) {
    tl_scope scope = tl_scope_begin();
    tl_seed(5);
    struct head_case c = {drawn(dtype, TL_SHAPE(N, C)), drawn(dtype, TL_SHAPE(V, C)),
                          tl_integers(TL_SHAPE(N), 0, V, TL_I64, cpu)};
    tl_tensor *half = tl_full(TL_SCALAR, 0.375, dtype == TL_F64 ? TL_F64 : TL_F32, cpu);
    tl_tensor *loss = head_loss(&c, chunk_rows);
    tl_backward(loss, half, 0); /* the incoming gradient is not 1 */
    tl_tensor *dx = tl_clone(tl_grad_of(c.x)), *dw = tl_clone(tl_grad_of(c.w));
    assert_int_equal(tl_purpose_of(tl_grad_of(c.w)), TL_GRADIENT);
    tl_zero_grad(c.x, false), tl_zero_grad(c.w, false);
    tl_tensor *plain = tl_cross_entropy(tl_linear(c.x, c.w, NULL), c.targets, NULL);
    tl_backward(plain, half, 0);
    if (tl_error() != TL_OK) fail_msg("%s", tl_error_message());
    within("loss", loss, plain, bound);
    within("dx", dx, tl_grad_of(c.x), bound);
    within("dweight", dw, tl_grad_of(c.w), bound);
    tl_scope_end(scope);
}

/* The bound. f32, f64: both sides sum products of up to K = max(C, V, N) terms in different orders: K eps. 16 bits:
 * the composite rounds logits of size s to eps s / 2 each, which moves e^logit, hence each gradient, by that factor
 * (s is 4 sqrt(C) here), and rounds the logits' gradient; the fused op does neither. */
static void the_head_equals_its_composite(void **state) {
    (void)state;
    for (int64_t chunk_rows = 0; chunk_rows <= 40; chunk_rows += 8) {
        head_agrees(TL_F64, 37, 101, 24, chunk_rows, 101 * 0x1p-52);
        head_agrees(TL_F32, 37, 101, 24, chunk_rows, 101 * 0x1p-23);
        head_agrees(TL_F16, 37, 101, 24, chunk_rows, 4 * sqrt(24) * 0x1p-10);
        head_agrees(TL_BF16, 37, 101, 24, chunk_rows, 4 * sqrt(24) * 0x1p-7);
    }
    head_agrees(TL_F32, 1, 1, 1, 1, 0x1p-20);
    head_agrees(TL_F32, 70, 200003, 8, 0, 200003 * 0x1p-23);  /* one chunk: 70 rows are 56 MB */
    head_agrees(TL_F32, 100, 200003, 8, 0, 200003 * 0x1p-23); /* two: 83 rows are 64 MiB, so 64 of 100, and 36 */
}

static void chunks_of_the_head_have_up_to_64_mib(void **state) {
    (void)state;
    tl_device *meta = tl_device_find("meta");
    const int64_t V[] = {1000, 32000, 50257, 128256, 200019, 262144};
    for (int i = 0; i < 6; i++) {
        const int64_t N = 65536, C = 64;
        tl_scope scope = tl_scope_begin();
        tl_tensor *x = tl_empty(TL_SHAPE(N, C), TL_F32, meta), *w = tl_empty(TL_SHAPE(V[i], C), TL_F32, meta);
        tl_tensor *targets = tl_empty(TL_SHAPE(N), TL_I64, meta);
        tl_ledger *l = tl_ledger_begin("head");
        tl_linear_cross_entropy(x, w, targets, NULL);
        tl_ledger_end(l);
        uint64_t logits = tl_ledger_peak(l, meta, TL_WORKSPACE) - 4 * (uint64_t)N; /* but for one loss per row */
        assert_in_range(logits, 48 << 20, 66 << 20); /* the product's workspace is 1.6 MB here */
        tl_ledger_free(l);
        tl_scope_end(scope);
    }
}

/* GPT-2's head on a batch of 16 x 1024 in bf16: bytes held at the peak, beyond x, weight and targets. */
static uint64_t head_peak(bool is_fused, uint64_t *held_between) {
    const int64_t N = 16384, V = 50257, C = 768;
    tl_scope scope = tl_scope_begin();
    tl_tensor *x = tl_requires_grad(tl_empty(TL_SHAPE(N, C), TL_BF16, h200), true);
    tl_tensor *w = tl_requires_grad(tl_empty(TL_SHAPE(V, C), TL_BF16, h200), true);
    tl_tensor *targets = tl_empty(TL_SHAPE(N), TL_I64, h200);
    uint64_t before = tl_device_memory(h200).live_bytes;
    tl_ledger *l = tl_ledger_begin("head");
    tl_scope inner = tl_scope_begin();
    tl_tensor *loss = is_fused ? tl_linear_cross_entropy(x, w, targets, NULL)
                               : tl_cross_entropy(tl_linear(x, w, NULL), targets, NULL);
    loss = tl_scope_return(inner, loss);
    *held_between = tl_device_memory(h200).live_bytes - before;
    tl_backward(loss, NULL, 0);
    tl_ledger_end(l);
    if (tl_error() != TL_OK) fail_msg("%s", tl_error_message());
    uint64_t peak = tl_ledger_peak(l, h200, TL_ALL) - before;
    tl_ledger_free(l);
    tl_scope_end(scope);
    return peak;
}

static void the_head_never_holds_the_logits(void **state) {
    (void)state;
    const uint64_t N = 16384, V = 50257, C = 768, logits = 2 * N * V, dx = 2 * N * C, dw = 2 * V * C;
    uint64_t between_fused, between_composite, fused = head_peak(true, &between_fused),
                                               composite = head_peak(false, &between_composite);
    /* Composite: logits and their gradient meet; lse, expanded g and the scalar of the loss are small beside it. */
    assert_true(composite >= 2 * logits);
    assert_true(between_composite >= logits);
    /* Fused: dx and dweight, the loss; at the peak a chunk of bf16 logits (as few chunks as 512 MiB allow, of one
     * size, a multiple of 256 rows), f32 sums of dweight, a longer weight, one loss per row and the GEMM's
     * workspace. Vocabularies are rounded up to 64. For Hopper's exponentials, of a chunk: four numbers per row, one
     * per row and 128 columns, its rows of x, and the numbers of pairs of tiles. */
    const uint64_t even = (V + 63) / 64 * 64, most = (512 << 20) / (2 * even) / 256 * 256, n = (N + most - 1) / most;
    const uint64_t rows = ((N + n - 1) / n + 255) / 256 * 256, chunk = 2 * rows * even;
    const uint64_t pairs = ((1 + rows / 256) * 4 + 63) / 64 * 64;
    const uint64_t exponentials = 16 * rows + (even + 127) / 128 * rows * 4 + 2 * rows * C + pairs;
    assert_int_equal(between_fused, dx + dw + 4);
    assert_int_equal(fused, dx + dw + 4 + chunk + 4 * N + (4 + 2) * even * C + exponentials + (32 << 20));
    assert_true(fused < logits / 2);
}

/* The gradients wait for backward, whatever happens to the loss. */
static void the_head_forgets_with_its_loss(void **state) {
    (void)state;
    tl_scope scope = tl_scope_begin();
    tl_seed(1);
    struct head_case c = {drawn(TL_F32, TL_SHAPE(6, 4)), drawn(TL_F32, TL_SHAPE(9, 4)),
                          tl_integers(TL_SHAPE(6), 0, 9, TL_I64, cpu)};
    uint64_t before = tl_device_memory(cpu).live_bytes;
    tl_scope inner = tl_scope_begin();
    head_loss(&c, 0);
    tl_scope_end(inner);
    assert_int_equal(tl_device_memory(cpu).live_bytes, before);
    /* A graph that is kept can be walked twice: the second pass adds the same again. */
    tl_tensor *loss = head_loss(&c, 0);
    assert_true(tl_backward(loss, NULL, TL_RETAIN_GRAPH));
    tl_tensor *once = tl_clone(tl_grad_of(c.w));
    assert_true(tl_backward(loss, NULL, 0));
    within("twice", tl_grad_of(c.w), tl_scale(once, 2), 0);
    loss = head_loss(&c, 0);
    tl_tensor *grads[1];
    assert_false(tl_gradients(loss, NULL, &c.x, 1, TL_CREATE_GRAPH, grads));
    assert_non_null(strstr(tl_error_message(), "linear_cross_entropy is not implemented"));
    tl_error_clear();
    tl_scope_end(scope);
}

static bool head_in_checkpoint(void *context, tl_tensor **in, int n_in, tl_tensor **out, int n_out) {
    (void)n_in, (void)n_out;
    struct head_case *c = context;
    out[0] = tl_linear_cross_entropy(in[0], c->w, c->targets, NULL);
    return out[0] != NULL;
}

static void the_head_works_in_checkpoints(void **state) {
    (void)state;
    tl_scope scope = tl_scope_begin();
    tl_seed(1);
    struct head_case c = {drawn(TL_F32, TL_SHAPE(6, 4)), drawn(TL_F32, TL_SHAPE(9, 4)),
                          tl_integers(TL_SHAPE(6), 0, 9, TL_I64, cpu)};
    tl_backward(head_loss(&c, 0), NULL, 0);
    tl_tensor *dx = tl_clone(tl_grad_of(c.x)), *dw = tl_clone(tl_grad_of(c.w));
    for (int keep = 0; keep < 2; keep++) {
        tl_zero_grad(c.x, false), tl_zero_grad(c.w, false);
        tl_tensor *loss;
        tl_ledger *l = tl_ledger_begin("checkpoint");
        assert_true(tl_checkpoint(head_in_checkpoint, &c, sizeof c, (tl_checkpoint_keep)keep, &c.x, 1, &loss, 1));
        assert_int_equal(tl_ledger_total(l, TL_BACKWARD, "linear_cross_entropy").flops.low, 0);
        assert_true(tl_backward(loss, NULL, 0));
        tl_ledger_end(l);
        /* first without gradients, then, as recomputation, with them */
        assert_int_equal(tl_ledger_total(l, TL_FORWARD, "linear_cross_entropy").calls, 1);
        assert_int_equal(tl_ledger_total(l, TL_RECOMPUTE, "linear_cross_entropy").calls, 1);
        assert_int_equal(tl_ledger_total(l, TL_BACKWARD, "linear_cross_entropy").flops.low, 3 * 6 * 9 + 4 * 6 * 9 * 4);
        tl_ledger_free(l);
        within("dx", tl_grad_of(c.x), dx, 0);
        within("dweight", tl_grad_of(c.w), dw, 0);
    }
    tl_scope_end(scope);
}

/* ---- Optimizers ---- */

/* Rounding at random is right on average, repeats from a generator's state, and takes its words. */
static void stochastic_rounding_is_right_on_average_and_repeats(void **state) {
    (void)state;
    tl_scope scope = tl_scope_begin();
    const int64_t n = 40000;
    tl_sgd_options o = tl_sgd_defaults();
    o.lr = 0x1p-10; /* a quarter of the gap between bf16 numbers below 1 */
    o.update.stochastic = true;
    tl_tensor *g = tl_ones(TL_SHAPE(n), TL_F32, cpu), *p[2];
    for (int i = 0; i < 2; i++) {
        tl_seed(11);
        p[i] = tl_ones(TL_SHAPE(n), TL_BF16, cpu);
        assert_true(tl_sgd_(p[i], g, NULL, &o));
        assert_int_equal(tl_generator_get().index, n);
    }
    within("twice", p[0], p[1], 0);
    /* Each is 1 or 1 - 2^-8, the latter with probability 1/4: mean 1 - 2^-10, deviation 2^-8 sqrt(3/16 / n) */
    double mean = tl_item(tl_mean_all(tl_cast(p[0], TL_F64)));
    assert_true(fabs(mean - (1 - 0x1p-10)) < 5 * 0x1p-8 * sqrt(3.0 / 16 / (double)n));
    assert_true(tl_sgd_(p[1], g, NULL, &o)); /* other words now */
    assert_int_equal(tl_generator_get().index, 2 * n);
    tl_tensor *exact = tl_ones(TL_SHAPE(5), TL_F32, cpu), *g5 = tl_ones(TL_SHAPE(5), TL_F32, cpu);
    assert_true(tl_sgd_(exact, g5, NULL, &o)); /* f32 is not rounded: no words */
    assert_int_equal(tl_generator_get().index, 2 * n);
    /* Strides do not change which word an element gets. */
    tl_seed(11);
    tl_tensor *t = tl_transpose(tl_ones(TL_SHAPE(200, 200), TL_BF16, cpu), 0, 1);
    assert_true(tl_sgd_(t, tl_view(g, TL_SHAPE(200, 200)), NULL, &o));
    within("transposed", tl_contiguous(t), tl_view(p[0], TL_SHAPE(200, 200)), 0);
    tl_scope_end(scope);
}

/* Updates too small for bf16 add up in the master, and the parameter follows it. */
static void a_master_copy_keeps_what_rounding_would_lose(void **state) {
    (void)state;
    tl_scope scope = tl_scope_begin();
    tl_adam_options o = tl_adam_defaults();
    o.lr = 0x1p-12;
    tl_tensor *p = tl_ones(TL_SHAPE(7), TL_BF16, cpu), *plain = tl_ones(TL_SHAPE(7), TL_BF16, cpu);
    tl_tensor *master = tl_ones(TL_SHAPE(7), TL_F32, cpu), *g = tl_ones(TL_SHAPE(7), TL_BF16, cpu);
    tl_tensor *exact = tl_ones(TL_SHAPE(7), TL_F32, cpu), *state_of[6];
    for (int i = 0; i < 6; i++) state_of[i] = tl_zeros(TL_SHAPE(7), TL_F32, cpu);
    for (o.step = 1; o.step <= 64; o.step++) { /* each step is lr */
        o.update.master = master;
        assert_true(tl_adam_(p, g, state_of[0], state_of[1], NULL, &o));
        o.update.master = NULL;
        assert_true(tl_adam_(plain, g, state_of[2], state_of[3], NULL, &o));
        assert_true(tl_adam_(exact, tl_cast(g, TL_F32), state_of[4], state_of[5], NULL, &o));
    }
    within("master", master, exact, 0);
    within("parameter", p, tl_cast(exact, TL_BF16), 0);
    assert_true(tl_at(p, (int64_t[]){0}) < 1);
    assert_true(tl_at(plain, (int64_t[]){0}) == 1); /* every step was lost */
    tl_scope_end(scope);
}

/* ---- Sums of a gradient's columns, for a bias ---- */

static bool adds_any_bias(const struct target *t, tl_dtype dtype, int64_t n, int64_t k) {
    (void)t, (void)dtype, (void)n, (void)k;
    return true;
}
static bool activates_any(const struct target *t, tl_dtype dtype, int64_t m, int64_t k, int64_t F) {
    (void)t, (void)dtype, (void)m, (void)k, (void)F;
    return true;
}
static bool sums_any(const tl_call *c, const struct target *t) {
    (void)c, (void)t;
    return true;
}

/* The cpu as a device whose products take a bias and whose gradients, if `sums`, come with the sums for it. */
static const struct target *cpu_as(bool sums) {
    static struct device_rules rules;
    static struct target target;
    const struct target *own = cpu->target;
    rules = *own->rules;
    rules.adds_bias = adds_any_bias;
    rules.activates = activates_any;
    rules.sums = sums ? sums_any : NULL;
    target = *own;
    target.rules = &rules;
    cpu->target = &target;
    return own;
}

static tl_module *gpt2(tl_device *device, tl_dtype dtype, tl_model_config *c, int64_t channels) {
    assert_true(tl_model_preset("tiny-gpt2", c));
    c->n_layers = 2, c->n_heads = c->n_kv_heads = 2, c->channels = channels, c->head_size = channels / 2;
    c->ff = 4 * channels, c->vocabulary = 24, c->context = 1024;
    tl_seed(4);
    return tl_model_new(c, dtype, device);
}

/* Calls of an op for the gradients of a step, and all gradients. */
static uint64_t step_calls(const char *op, tl_module *m, tl_tensor *tokens, int n_passes, tl_tensor **grads) {
    tl_ledger *l = tl_ledger_begin("step");
    for (int i = 0; i < n_passes; i++) assert_true(tl_backward(tl_model_loss(m, tokens, tokens), NULL, 0));
    tl_ledger_end(l);
    const uint64_t calls = tl_ledger_total(l, TL_BACKWARD, op).calls;
    tl_ledger_free(l);
    int n = 0;
    const tl_named_tensor *list = tl_module_list(m, &n);
    for (int i = 0; grads && i < n; i++) grads[i] = tl_clone(tl_grad_of(list[i].tensor));
    tl_module_zero_grad(m, false);
    return calls;
}

/* Of L layers, the biases of q, k and v, of attention's output and of the MLP's; the last at the edge of a
 * checkpoint is summed apart. A second pass adds. */
static void gradients_come_with_sums_for_the_biases_before_them(void **state) {
    (void)state;
    enum { MOST = 64 };
    const uint64_t L = 2;
    static const struct {
        tl_checkpoint_policy policy;
        int n_passes;
        uint64_t n_saved;
    } rows[] = {{TL_CHECKPOINT_NONE, 1, 3}, {TL_CHECKPOINT_NONE, 2, 3}, {TL_CHECKPOINT_FULL, 1, 2}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        tl_scope scope = tl_scope_begin();
        tl_model_config c;
        tl_tensor *grads[2][MOST];
        uint64_t calls[2];
        int n = 0;
        tl_module *m = gpt2(cpu, TL_F32, &c, 16);
        const tl_named_tensor *list = tl_module_list(m, &n);
        assert_true(n <= MOST && tl_model_set_checkpointing(m, rows[r].policy, 0));
        tl_tensor *tokens = tl_integers(TL_SHAPE(3, 7), 0, 24, TL_I64, cpu);
        for (int has_sums = 0; has_sums < 2; has_sums++) {
            const struct target *own = cpu_as(has_sums);
            calls[has_sums] = step_calls("sum", m, tokens, rows[r].n_passes, grads[has_sums]);
            cpu->target = own;
        }
        if (tl_error() != TL_OK) fail_msg("%s", tl_error_message());
        assert_int_equal(calls[0] - calls[1], (uint64_t)rows[r].n_passes * rows[r].n_saved * L);
        for (int i = 0; i < n; i++) within(list[i].name, grads[1][i], grads[0][i], 1e-5);
        tl_module_free(m);
        tl_scope_end(scope);
    }
}

/* A norm of x + residual, where x is a product with a bias; `twice`: x has another reader; `both`: so is the residual;
 * `is_changed`: the result is scaled in place. Two passes over one graph; value: of the biases' gradients. */
static uint64_t sums_of(bool twice, bool both, bool is_changed, tl_tensor **in, double *value) {
    tl_tensor *sum, *x = tl_linear(in[0], in[1], in[2]);
    tl_tensor *residual = both ? tl_linear(in[0], in[1], in[3]) : tl_detach(in[0]);
    tl_tensor *y = tl_add_layer_norm(x, residual, in[4], in[5], 1e-5, &sum);
    if (twice) y = tl_add(tl_mul(y, sum), x);
    if (is_changed) tl_mul_scalar_(y, tl_scalar_float(0.5));
    tl_ledger *l = tl_ledger_begin("sums");
    assert_true(tl_backward(y, tl_detach(in[0]), TL_RETAIN_GRAPH));
    assert_true(tl_backward(y, tl_detach(in[0]), 0));
    tl_ledger_end(l);
    const uint64_t calls = tl_ledger_total(l, TL_BACKWARD, "sum").calls;
    tl_ledger_free(l);
    *value = 0;
    for (int i = 2; i < 4; i++) {
        tl_tensor *g = tl_grad_of(in[i]);
        for (int64_t k = 0; g && k < tl_numel(g); k++) *value += (double)(k + 1) * tl_at(g, &k);
        tl_zero_grad(in[i], false);
    }
    tl_zero_grad(in[1], false);
    return calls;
}

/* They are taken once, and not at all where the gradient has a second part. */
static void sums_of_columns_are_used_while_they_are_right(void **state) {
    (void)state;
    static const struct {
        bool twice, both, is_changed;
        uint64_t with, without; /* sums of two passes */
    } rows[] = {{false, false, false, 0, 2},
                {true, false, false, 2, 2},
                {false, true, false, 2, 4},
                {false, false, true, 0, 2},
                {true, true, true, 2, 4}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        tl_scope scope = tl_scope_begin();
        tl_seed(5);
        tl_tensor *in[6] = {tl_detach(drawn(TL_F32, TL_SHAPE(2, 9, 8))), drawn(TL_F32, TL_SHAPE(8, 8))};
        for (int i = 2; i < 6; i++) in[i] = drawn(TL_F32, TL_SHAPE(8));
        for (int has_sums = 0; has_sums < 2; has_sums++) {
            static double value[2];
            const struct target *own = cpu_as(has_sums);
            const uint64_t calls = sums_of(rows[r].twice, rows[r].both, rows[r].is_changed, in, &value[has_sums]);
            cpu->target = own;
            if (tl_error() != TL_OK) fail_msg("%s", tl_error_message());
            if (calls != (has_sums ? rows[r].with : rows[r].without))
                fail_msg("row %zu, sums %d: %llu passes", r, has_sums, (unsigned long long)calls);
            if (has_sums && fabs(value[1] - value[0]) > 1e-4 * fabs(value[0]))
                fail_msg("row %zu: %g, not %g", r, value[1], value[0]);
        }
        tl_scope_end(scope);
    }
}

/* By the rules of a GPU: what is left is the positions' gradient. The sums have the biases' dtype. */
static void a_step_of_gpt2_on_a_gpu_sums_no_bias_apart(void **state) {
    (void)state;
    tl_scope scope = tl_scope_begin();
    tl_model_config c;
    tl_module *m = gpt2(h200, TL_BF16, &c, 128);
    tl_tensor *tokens = tl_empty(TL_SHAPE(64, 1024), TL_I64, h200);
    assert_int_equal(step_calls("sum", m, tokens, 1, NULL), 1);
    assert_int_equal(step_calls("copy", m, tokens, 1, NULL), 0);
    tl_module_free(m);
    tl_scope_end(scope);
}

static int setup(void **state) {
    (void)state;
    tl_set_error_policy(TL_RETURN);
    cpu = tl_device_find("cpu");
    h200 = tl_device_find("meta:h200");
    return cpu && h200 ? 0 : -1;
}

static int start(void **state) {
    (void)state;
    tl_error_clear();
    tl_scope_reset();
    tl_set_grad_mode(true);
    return 0;
}

static int stop(void **state) {
    (void)state;
    assert_nothing_held("fused", cpu);
    assert_nothing_held("fused", h200);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(fused_ops_equal_their_composites),
        TEST(attention_drops_what_dropout_of_ones_drops),
        TEST(attention_drops_the_share_it_is_told),
        TEST(first_keys_hide_what_a_mask_would),
        TEST(blocks_before_the_first_key_are_not_read),
        TEST(the_head_equals_its_composite),
        TEST(chunks_of_the_head_have_up_to_64_mib),
        TEST(the_head_never_holds_the_logits),
        TEST(the_head_forgets_with_its_loss),
        TEST(the_head_works_in_checkpoints),
        TEST(stochastic_rounding_is_right_on_average_and_repeats),
        TEST(a_master_copy_keeps_what_rounding_would_lose),
        TEST(gradients_come_with_sums_for_the_biases_before_them),
        TEST(sums_of_columns_are_used_while_they_are_right),
        TEST(a_step_of_gpt2_on_a_gpu_sums_no_bias_apart),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}

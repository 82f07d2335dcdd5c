/* test_blocks.c: a whole GPT-2 block and a whole Llama block against closed forms.
 *
 * N = B T tokens, C channels, H heads of size D, E = H D, K key heads, F hidden. One GEMM of attention over all
 * visible pairs is A = 2 D B H T(T+1)/2 = B E T(T+1) FLOPs. Everything in the ledger of a block, FLOPs by phase and
 * op, bytes of parameters, gradients and activations, is written out below in these letters and must be equal to the
 * last digit: on cpu with small sizes, on meta with the sizes of GPT-2 124M and Llama 3 8B. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/samples.h"
#include "tensor/dtype.h"
#include "tensor/pool.h"

struct sizes {
    uint64_t B, T, C, H, K, D, F;
};

#define MAX_PARAMETERS 16
struct block {
    struct sizes s;
    tl_dtype dtype;
    tl_device *device;
    tl_tensor *parameter[MAX_PARAMETERS];
    int n_parameters;
};

static tl_device *cpu, *meta, *h200;

static tl_tensor *parameter(struct block *b, int rank, const int64_t *shape) {
    tl_tensor *x = tl_normal(rank, shape, 0, 0.1, b->dtype, b->device);
    tl_set_purpose(tl_requires_grad(x, true), TL_PARAMETER);
    return b->parameter[b->n_parameters++] = x;
}
static tl_tensor *matrix(struct block *b, uint64_t rows, uint64_t columns) {
    return parameter(b, TL_SHAPE((int64_t)rows, (int64_t)columns));
}
static tl_tensor *vector(struct block *b, uint64_t n) { return parameter(b, TL_SHAPE((int64_t)n)); }

/* ---- GPT-2 ---- */

enum { LN1_W, LN1_B, QKV_W, QKV_B, PROJ_W, PROJ_B, LN2_W, LN2_B, UP_W, UP_B, DOWN_W, DOWN_B };

static void gpt2_new(struct block *b) {
    uint64_t C = b->s.C, F = b->s.F;
    vector(b, C), vector(b, C);            /* ln1 */
    matrix(b, 3 * C, C), vector(b, 3 * C); /* qkv, packed */
    matrix(b, C, C), vector(b, C);         /* projection */
    vector(b, C), vector(b, C);            /* ln2 */
    matrix(b, F, C), vector(b, F);         /* up */
    matrix(b, C, F), vector(b, C);         /* down */
}

static tl_tensor *gpt2_forward(struct block *b, tl_tensor *x) { /* (B,T,C) -> (B,T,C) */
    tl_tensor **w = b->parameter;
    const int64_t B = tl_size(x, 0), T = tl_size(x, 1), C = tl_size(x, 2);
    tl_scope scope = tl_scope_enter("block");
    tl_tensor *h = tl_layer_norm(x, w[LN1_W], w[LN1_B], 1e-5); /* (B,T,C) */
    tl_tensor *qkv = tl_unflatten(tl_linear(h, w[QKV_W], w[QKV_B]), -1,
                                  TL_SHAPE(3, (int64_t)b->s.H, (int64_t)b->s.D)); /* (B,T,3,H,D) */
    tl_tensor *a =
        tl_attention(tl_select(qkv, 2, 0), tl_select(qkv, 2, 1), tl_select(qkv, 2, 2), TL_CAUSAL, NULL); /* (B,T,H,D) */
    x = tl_add(x, tl_linear(tl_reshape(a, TL_SHAPE(B, T, C)), w[PROJ_W], w[PROJ_B]));
    h = tl_layer_norm(x, w[LN2_W], w[LN2_B], 1e-5);
    h = tl_linear(tl_gelu(tl_linear(h, w[UP_W], w[UP_B])), w[DOWN_W], w[DOWN_B]); /* (B,T,F), (B,T,C) */
    return tl_scope_return(scope, tl_add(x, h));
}

/* ---- Llama ---- */

enum { NORM1_W, Q_W, K_W, V_W, O_W, NORM2_W, GATE_W, UP2_W, DOWN2_W };

static void llama_new(struct block *b) {
    uint64_t C = b->s.C, E = b->s.H * b->s.D, KD = b->s.K * b->s.D, F = b->s.F;
    vector(b, C);
    matrix(b, E, C), matrix(b, KD, C), matrix(b, KD, C), matrix(b, C, E);
    vector(b, C);
    matrix(b, F, C), matrix(b, F, C), matrix(b, C, F);
}

static tl_tensor *heads(tl_tensor *x, uint64_t n, uint64_t D) {
    return tl_unflatten(x, -1, TL_SHAPE((int64_t)n, (int64_t)D));
}

static tl_tensor *llama_forward(struct block *b, tl_tensor *x) { /* (B,T,C) -> (B,T,C) */
    tl_tensor **w = b->parameter;
    const struct sizes *s = &b->s;
    tl_scope scope = tl_scope_enter("block");
    tl_tensor *h = tl_rms_norm(x, w[NORM1_W], 1e-5);                                        /* (B,T,C) */
    tl_tensor *q = tl_rope(heads(tl_linear(h, w[Q_W], NULL), s->H, s->D), 500000, 0, NULL); /* (B,T,H,D) */
    tl_tensor *k = tl_rope(heads(tl_linear(h, w[K_W], NULL), s->K, s->D), 500000, 0, NULL); /* (B,T,K,D) */
    tl_tensor *v = heads(tl_linear(h, w[V_W], NULL), s->K, s->D);                           /* (B,T,K,D) */
    x = tl_add(x, tl_linear(tl_flatten(tl_attention(q, k, v, TL_CAUSAL, NULL), 2, 3), w[O_W], NULL));
    h = tl_rms_norm(x, w[NORM2_W], 1e-5);
    h = tl_swiglu(tl_linear(h, w[GATE_W], NULL), tl_linear(h, w[UP2_W], NULL)); /* (B,T,F) */
    return tl_scope_return(scope, tl_add(x, tl_linear(h, w[DOWN2_W], NULL)));
}

/* ---- What a device holds ---- */

struct held_now {
    uint64_t by_purpose[TL_PURPOSE_COUNT];
};
static void held_read(struct held *h, void *context) {
    memcpy(((struct held_now *)context)->by_purpose, h->by_purpose, sizeof h->by_purpose);
}
static uint64_t held(tl_device *device, tl_purpose purpose) {
    struct held_now now;
    pool_account(device->pool, held_read, &now);
    return now.by_purpose[purpose];
}

static void equal(const char *what, uint64_t got, uint64_t expected) {
    if (got != expected)
        fail_msg("%s: the ledger says %llu, the closed form %llu", what, (unsigned long long)got,
                 (unsigned long long)expected);
}

struct row {
    int phase;
    const char *op;
    uint64_t calls, flops;
};

/* Each row, and that there are no others with FLOPs. */
static void rows_equal(const tl_ledger *l, const struct row *row) {
    uint64_t by_phase[TL_PHASE_COUNT] = {0};
    for (; row->op; row++) {
        char what[100];
        tl_totals t = tl_ledger_total(l, row->phase, row->op);
        snprintf(what, sizeof what, "calls of %s in %s", row->op, tl_phase_name((tl_phase)row->phase));
        equal(what, t.calls, row->calls);
        snprintf(what, sizeof what, "FLOPs of %s in %s", row->op, tl_phase_name((tl_phase)row->phase));
        equal(what, t.flops.low, row->flops);
        equal("128-bit part", t.flops.high, 0);
        by_phase[row->phase] += row->flops;
    }
    for (int phase = 0; phase < TL_PHASE_COUNT; phase++) {
        char what[100];
        snprintf(what, sizeof what, "all FLOPs in %s", tl_phase_name((tl_phase)phase));
        equal(what, tl_ledger_total(l, phase, NULL).flops.low, by_phase[phase]);
    }
}

/* Forward and backward of one block; what is held in between is checked here, the work by the caller. */
static void block_train(struct block *b, tl_tensor *(*forward)(struct block *, tl_tensor *), uint64_t n_parameters,
                        uint64_t activation_bytes) {
    const uint64_t e = (uint64_t)tl_dtype_bits(b->dtype) / 8, N = b->s.B * b->s.T, C = b->s.C;
    tl_tensor *x = tl_normal(TL_SHAPE((int64_t)b->s.B, (int64_t)b->s.T, (int64_t)C), 0, 1, b->dtype, b->device);
    tl_set_purpose(tl_requires_grad(x, true), TL_DATA);
    equal("parameter bytes", held(b->device, TL_PARAMETER), n_parameters * e);
    equal("input bytes", held(b->device, TL_DATA), N * C * e);
    tl_tensor *dy = tl_set_purpose(tl_ones_like(x), TL_DATA);
    tl_scope scope = tl_scope_begin();
    tl_tensor *y = forward(b, x);
    if (!y) fail_msg("%s", tl_error_message());
    equal("activation bytes", held(b->device, TL_ACTIVATION), activation_bytes);
    equal("temporary bytes: the result alone", held(b->device, TL_TEMPORARY), N * C * e);
    if (!tl_backward(y, dy, 0)) fail_msg("%s", tl_error_message());
    equal("activation bytes after backward", held(b->device, TL_ACTIVATION), 0);
    equal("gradient bytes: of the parameters and of x", held(b->device, TL_GRADIENT), (n_parameters + N * C) * e);
    tl_scope_end(scope);
}

typedef void (*block_check)(const struct block *b, const tl_ledger *l);

static void block_run(const struct sizes *s, tl_dtype dtype, tl_device *device, void (*make)(struct block *),
                      tl_tensor *(*forward)(struct block *, tl_tensor *), uint64_t n_parameters,
                      uint64_t activation_bytes, block_check check) {
    struct block b = {.s = *s, .dtype = dtype, .device = device};
    tl_scope scope = tl_scope_begin();
    tl_seed(1);
    make(&b);
    tl_ledger *l = tl_ledger_begin("block");
    block_train(&b, forward, n_parameters, activation_bytes);
    tl_ledger_end(l);
    check(&b, l);
    tl_ledger_free(l);
    tl_scope_end(scope);
    if (tl_error() != TL_OK) fail_msg("%s", tl_error_message());
    assert_nothing_held("after a block", device);
}

/* ---- GPT-2: the closed form ---- */

/* On a GPU products of 16-bit numbers add their biases themselves. */
static bool adds_biases(const struct block *b) { return b->device == h200 && b->dtype != TL_F32; }

static void gpt2_work(const struct block *b, const tl_ledger *l) {
    const uint64_t N = b->s.B * b->s.T, C = b->s.C, F = b->s.F, A = b->s.B * C * b->s.T * (b->s.T + 1);
    const uint64_t biases = N * 3 * C + N * C + N * F + N * C, fused = adds_biases(b) ? biases : 0;
    const struct row rows[] = {
        {TL_FORWARD, "layer_norm", 2, 2 * 7 * N * C},
        {TL_FORWARD, "matmul", 4,
         2 * N * C * 3 * C + 2 * N * C * C + 2 * 2 * N * C * F + fused}, /* qkv, projection, up, down */
        {TL_FORWARD, "attention", 1, 2 * A},                             /* q k^T, p v */
        {TL_FORWARD, "gelu", 1, 9 * N * F},
        {TL_FORWARD, "add", fused ? 2 : 6, biases - fused + 2 * N * C /* residuals */},
        /* each product: g W and g^T x */
        {TL_BACKWARD, "matmul", 8, 2 * (2 * N * C * 3 * C + 2 * N * C * C + 2 * 2 * N * C * F)},
        {TL_BACKWARD, "matmul_acc", 0, 0},
        {TL_BACKWARD, "attention_grad", 1, 4 * A}, /* g v^T, p^T g, ds k, ds^T q */
        {TL_RECOMPUTE, "attention_grad", 0, A},    /* q k^T again */
        {TL_BACKWARD, "layer_norm_grad", 2, 2 * 13 * N * C},
        {TL_BACKWARD, "gelu_grad", 1, 19 * N * F},
        {TL_BACKWARD, "sum", 4, biases}, /* broadcasting undone */
        /* q's, k's and v's gradients become one: placed once, added twice; two residual forks, each one addition */
        {TL_BACKWARD, "unview", 1, 0},
        {TL_BACKWARD, "add", 4, 2 * N * C + 2 * N * C},
        {TL_BACKWARD, "copy", 1, 0}, /* x's gradient is copied: it is also the projection's */
        {0, NULL, 0, 0}};
    rows_equal(l, rows);
    /* The same with F = 4C, as one reads it in books: 24 N C^2 + 2 B C T(T+1) forward, twice that backward */
    if (F == 4 * C)
        equal("matmul and attention forward",
              tl_ledger_total(l, TL_FORWARD, "matmul").flops.low +
                  tl_ledger_total(l, TL_FORWARD, "attention").flops.low,
              24 * N * C * C + 2 * A + fused);
}

static uint64_t gpt2_parameters(const struct sizes *s) {
    return 2 * s->C + (3 * s->C * s->C + 3 * s->C) + (s->C * s->C + s->C) + 2 * s->C + (s->C * s->F + s->F) +
           (s->C * s->F + s->C);
}

/* Kept for backward: norm(x), qkv, attention's result, x after the first residual, its norm, the hidden layer before
 * and after GELU; and in f32 mean and rstd of two norms and a log-sum-exp per head. x itself is the caller's. */
static uint64_t gpt2_activations(const struct sizes *s, uint64_t e) {
    uint64_t N = s->B * s->T;
    return e * (N * s->C + 3 * N * s->C + N * s->C + N * s->C + N * s->C + 2 * N * s->F) + 4 * (2 * 2 * N + N * s->H);
}

static void gpt2_check(const struct sizes *s, tl_dtype dtype, tl_device *device) {
    block_run(s, dtype, device, gpt2_new, gpt2_forward, gpt2_parameters(s),
              gpt2_activations(s, (uint64_t)tl_dtype_bits(dtype) / 8), gpt2_work);
}

static void gpt2_block_equals_its_closed_form_on_cpu(void **state) {
    (void)state;
    gpt2_check(&(struct sizes){.B = 2, .T = 5, .C = 12, .H = 3, .D = 4, .F = 48}, TL_F32, cpu);
    gpt2_check(&(struct sizes){.B = 1, .T = 1, .C = 4, .H = 1, .D = 4, .F = 8}, TL_F32, cpu);
    gpt2_check(&(struct sizes){.B = 3, .T = 17, .C = 32, .H = 4, .D = 8, .F = 128}, TL_BF16, cpu);
}

static void gpt2_block_equals_its_closed_form_at_full_size(void **state) {
    (void)state;
    const struct sizes gpt2_124m = {.B = 16, .T = 1024, .C = 768, .H = 12, .D = 64, .F = 3072};
    const struct sizes gpt2_xl = {.B = 4, .T = 1024, .C = 1600, .H = 25, .D = 64, .F = 6400};
    gpt2_check(&gpt2_124m, TL_F32, meta);
    gpt2_check(&gpt2_124m, TL_BF16, h200);
    gpt2_check(&gpt2_xl, TL_F16, h200);
    equal("parameters of a block of GPT-2 124M", gpt2_parameters(&gpt2_124m), 7087872);
}

/* ---- Llama: the closed form ---- */

static void llama_work(const struct block *b, const tl_ledger *l) {
    const uint64_t N = b->s.B * b->s.T, C = b->s.C, E = b->s.H * b->s.D, KD = b->s.K * b->s.D, F = b->s.F;
    const uint64_t A = b->s.B * E * b->s.T * (b->s.T + 1);
    const uint64_t products = 2 * N * (C * E + 2 * C * KD + E * C + 3 * C * F); /* q, k, v, o, gate, up, down */
    const struct row rows[] = {
        {TL_FORWARD, "rms_norm", 2, 2 * 4 * N * C},
        {TL_FORWARD, "matmul", 7, products},
        {TL_FORWARD, "rope", 2, 3 * N * E + 3 * N * KD},
        {TL_FORWARD, "attention", 1, 2 * A},
        {TL_FORWARD, "swiglu", 1, 5 * N * F},
        {TL_FORWARD, "add", 2, 2 * N * C},
        /* each product: g W and g^T x. The first norm's result is read by q, k and v, the second's by gate and up: v's
         * and up's g W come first and make the sum, those of k, q and gate are added to it by their products. */
        {TL_BACKWARD, "matmul", 11, 2 * products - 2 * N * (C * KD + C * E + C * F)},
        {TL_BACKWARD, "matmul_acc", 3, 2 * N * (C * KD + C * E + C * F)},
        {TL_BACKWARD, "rope", 2, 3 * N * E + 3 * N * KD}, /* rotated back */
        {TL_BACKWARD, "attention_grad", 1, 4 * A},
        {TL_RECOMPUTE, "attention_grad", 0, A},
        {TL_BACKWARD, "rms_norm_grad", 2, 2 * 9 * N * C},
        {TL_BACKWARD, "swiglu_grad", 1, 11 * N * F},
        {TL_BACKWARD, "add", 2, 2 * N * C}, /* both residual streams are read twice */
        {TL_BACKWARD, "copy", 1, 0},
        {0, NULL, 0, 0}};
    rows_equal(l, rows);
}

static uint64_t llama_parameters(const struct sizes *s) {
    uint64_t E = s->H * s->D, KD = s->K * s->D;
    return 2 * s->C + 2 * s->C * E + 2 * s->C * KD + 3 * s->C * s->F;
}

/* Kept for backward: norm(x); q and k after rotation, v; attention's result; x after the first residual and its
 * norm; gate, up and their product; and in f32 rstd of two norms and a log-sum-exp per head. */
static uint64_t llama_activations(const struct sizes *s, uint64_t e) {
    uint64_t N = s->B * s->T, E = s->H * s->D, KD = s->K * s->D;
    return e * (N * s->C + N * E + 2 * N * KD + N * E + 2 * N * s->C + 3 * N * s->F) + 4 * (2 * N + N * s->H);
}

static void llama_check(const struct sizes *s, tl_dtype dtype, tl_device *device) {
    block_run(s, dtype, device, llama_new, llama_forward, llama_parameters(s),
              llama_activations(s, (uint64_t)tl_dtype_bits(dtype) / 8), llama_work);
}

static void llama_block_equals_its_closed_form_on_cpu(void **state) {
    (void)state;
    llama_check(&(struct sizes){.B = 2, .T = 5, .C = 12, .H = 4, .K = 2, .D = 6, .F = 20}, TL_F32, cpu); /* E != C */
    llama_check(&(struct sizes){.B = 1, .T = 1, .C = 4, .H = 1, .K = 1, .D = 4, .F = 8}, TL_F32, cpu);
    llama_check(&(struct sizes){.B = 2, .T = 19, .C = 32, .H = 8, .K = 2, .D = 4, .F = 88}, TL_BF16, cpu);
}

static void llama_block_equals_its_closed_form_at_full_size(void **state) {
    (void)state;
    const struct sizes llama3_8b = {.B = 1, .T = 8192, .C = 4096, .H = 32, .K = 8, .D = 128, .F = 14336};
    const struct sizes qwen_like = {.B = 2, .T = 4096, .C = 1024, .H = 16, .K = 8, .D = 128, .F = 3072}; /* E = 2C */
    llama_check(&llama3_8b, TL_BF16, h200);
    llama_check(&llama3_8b, TL_F32, meta);
    llama_check(&qwen_like, TL_BF16, h200);
    equal("parameters of a block of Llama 3 8B", llama_parameters(&llama3_8b), 218112000);
}

/* ---- A stack of blocks under checkpoint policies ---- */

static tl_tensor *layer(void *context, int l, tl_tensor *x) {
    (void)l; /* all layers share their weights: gradients add up */
    return gpt2_forward(context, x);
}

/* FLOPs of one block forward, and the part of them that is neither matmul nor attention. */
static uint64_t gpt2_cheap(const struct sizes *s) {
    uint64_t N = s->B * s->T;
    return 14 * N * s->C + 9 * N * s->F + N * (3 * s->C + s->C + s->F + s->C) + 2 * N * s->C;
}
static uint64_t gpt2_attention(const struct sizes *s) { return s->B * s->C * s->T * (s->T + 1); } /* one GEMM */
static uint64_t gpt2_all(const struct sizes *s) {
    uint64_t N = s->B * s->T;
    return gpt2_cheap(s) + 2 * N * s->C * (4 * s->C + 2 * s->F) + 2 * gpt2_attention(s);
}

static void policy_check(const struct sizes *s, tl_dtype dtype, tl_device *device, tl_checkpoint_policy policy,
                         int n_layers, uint64_t recompute, uint64_t activation_bytes) {
    struct block b = {.s = *s, .dtype = dtype, .device = device};
    const uint64_t L = (uint64_t)n_layers;
    tl_scope scope = tl_scope_begin();
    tl_seed(1);
    gpt2_new(&b);
    tl_tensor *x = tl_normal(TL_SHAPE((int64_t)s->B, (int64_t)s->T, (int64_t)s->C), 0, 1, dtype, device);
    tl_set_purpose(tl_requires_grad(x, true), TL_DATA);
    tl_ledger *l = tl_ledger_begin("stack");
    tl_tensor *y = tl_checkpoint_layers(layer, &b, n_layers, policy, 1, x);
    if (!y) fail_msg("%s", tl_error_message());
    equal("activation bytes", held(device, TL_ACTIVATION), activation_bytes);
    if (!tl_backward(y, tl_ones_like(y), 0)) fail_msg("%s", tl_error_message());
    tl_ledger_end(l);
    equal("forward", tl_ledger_total(l, TL_FORWARD, NULL).flops.low, L * gpt2_all(s));
    equal("recompute", tl_ledger_total(l, TL_RECOMPUTE, NULL).flops.low, recompute + L * gpt2_attention(s));
    tl_ledger_free(l);
    tl_scope_end(scope);
    assert_nothing_held("after a stack", device);
}

static void checkpoint_policies_keep_and_recompute_what_they_say(void **state) {
    (void)state;
    const struct sizes small = {.B = 2, .T = 5, .C = 12, .H = 3, .D = 4, .F = 48},
                       full = {.B = 8, .T = 1024, .C = 768, .H = 12, .D = 64, .F = 3072};
    const struct {
        const struct sizes *s;
        tl_device *device;
        tl_dtype dtype;
    } run[] = {{&small, cpu, TL_F32}, {&small, meta, TL_BF16}, {&full, h200, TL_BF16}};
    for (int i = 0; i < 3; i++) {
        const struct sizes *s = run[i].s;
        const uint64_t L = 4, N = s->B * s->T, C = s->C, e = (uint64_t)tl_dtype_bits(run[i].dtype) / 8,
                       stream = e * N * C;
        /* Block results between layers are kept by the next layer's norm: L - 1 of them, the last is the result. */
        policy_check(s, run[i].dtype, run[i].device, TL_CHECKPOINT_NONE, 4, 0,
                     L * gpt2_activations(s, e) + (L - 1) * stream);
        /* Block inputs alone; every block runs twice. */
        policy_check(s, run[i].dtype, run[i].device, TL_CHECKPOINT_FULL, 4, L * gpt2_all(s), (L - 1) * stream);
        /* Two groups of two: one input kept between them. */
        policy_check(s, run[i].dtype, run[i].device, TL_CHECKPOINT_SQRT, 4, L * gpt2_all(s), stream);
        /* Also the products (qkv 3, projection 1, hidden F/C, result 1) and attention's result with its log-sum-exp.
         * Biases are with them on a GPU. */
        const struct block b = {.dtype = run[i].dtype, .device = run[i].device};
        const uint64_t kept = adds_biases(&b) ? N * (3 * C + C + s->F + C) : 0;
        policy_check(s, run[i].dtype, run[i].device, TL_CHECKPOINT_SELECTIVE, 4, L * (gpt2_cheap(s) - kept),
                     (L - 1) * stream + L * (e * N * (3 * C + C + s->F + C + C) + 4 * N * s->H));
        /* Nothing between the first input and the result: layer l runs again for each layer above it, and for
         * itself. */
        policy_check(s, run[i].dtype, run[i].device, TL_CHECKPOINT_NOTHING, 4, (4 + 3 + 2 + 1) * gpt2_all(s), 0);
    }
}

static int setup(void **state) {
    (void)state;
    tl_set_error_policy(TL_RETURN);
    cpu = tl_device_find("cpu");
    meta = tl_device_find("meta");
    h200 = tl_device_find("meta:h200");
    return cpu && meta && h200 ? 0 : -1;
}

static int start(void **state) {
    (void)state;
    tl_error_clear();
    tl_scope_reset();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(gpt2_block_equals_its_closed_form_on_cpu, start),
        cmocka_unit_test_setup(gpt2_block_equals_its_closed_form_at_full_size, start),
        cmocka_unit_test_setup(llama_block_equals_its_closed_form_on_cpu, start),
        cmocka_unit_test_setup(llama_block_equals_its_closed_form_at_full_size, start),
        cmocka_unit_test_setup(checkpoint_policies_keep_and_recompute_what_they_say, start),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}

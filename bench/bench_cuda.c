/* bench_cuda.c: GPU benchmarks: the memory that the driver holds besides the pool, stage by stage, and the speed of
 * the kernels of a transformer step, as shares of this card's measured ceilings (a large copy, an 8192^3 product).
 * Without a GPU it only says so. With the argument "fast", kernels need not be deterministic; with "lengths", only
 * attention is timed, in both modes, at lengths that are no multiple of 128 beside the next multiple; with "dropout",
 * only attention without and with dropout; with "norms", only norms.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tally.h"

static tl_device *cuda;

static void stage(const char *what) {
    static uint64_t before;
    tl_device_sync(cuda);
    tl_memory m = tl_device_memory(cuda);
    uint64_t outside = m.device_used_bytes - m.reserved_bytes;
    printf("  %-44s %14llu bytes besides the pool (%+lld)\n", what, (unsigned long long)outside,
           (long long)(outside - before));
    before = outside;
}

/* Seconds of one call: kernels timed by events, the first calls left out. */
static tl_totals timed(void (*call)(void *), void *context, int phase, const char *op, int runs) {
    for (int i = 0; i < 3; i++) call(context);
    tl_set_profiling(true);
    tl_ledger *l = tl_ledger_begin("timed");
    for (int i = 0; i < runs; i++) call(context);
    tl_ledger_end(l);
    tl_set_profiling(false);
    tl_totals t = tl_ledger_total(l, phase, op);
    tl_ledger_free(l);
    t.time_s /= runs;
    t.flops.low /= (uint64_t)runs;
    t.bytes_read.low = (t.bytes_read.low + t.bytes_written.low) / (uint64_t)runs;
    return t;
}

/* ---- Ceilings and products ---- */

struct shape {
    int64_t m, n, k;
};

static void product(void *context) {
    const struct shape *s = context;
    tl_scope scope = tl_scope_begin();
    static tl_tensor *a, *w;
    static struct shape last;
    if (memcmp(&last, s, sizeof last)) {
        tl_drop(a), tl_drop(w);
        a = tl_keep(tl_normal(TL_SHAPE(s->m, s->k), 0, 1, TL_BF16, cuda));
        w = tl_keep(tl_normal(TL_SHAPE(s->n, s->k), 0, 1, TL_BF16, cuda));
        last = *s;
    }
    tl_linear(a, w, NULL);
    tl_scope_end(scope);
}

/* ---- Attention ---- */

struct heads {
    int64_t B, T, H, kv, D;
};

static double dropout;
static tl_dtype heads_dtype = TL_BF16;

static void attention_step(void *context) {
    const struct heads *h = context;
    const tl_attention_options options = {.causal = true, .dropout = dropout};
    tl_scope scope = tl_scope_begin();
    tl_tensor *q = tl_requires_grad(tl_normal(TL_SHAPE(h->B, h->T, h->H, h->D), 0, 1, heads_dtype, cuda), true);
    tl_tensor *k = tl_requires_grad(tl_normal(TL_SHAPE(h->B, h->T, h->kv, h->D), 0, 1, heads_dtype, cuda), true);
    tl_tensor *v = tl_requires_grad(tl_normal(TL_SHAPE(h->B, h->T, h->kv, h->D), 0, 1, heads_dtype, cuda), true);
    tl_tensor *y = tl_attention(q, k, v, &options, NULL);
    tl_backward(y, y ? tl_detach(y) : NULL, 0);
    tl_scope_end(scope);
}

/* ---- Passes over memory ---- */

static void elementwise(void *context) {
    (void)context;
    static tl_tensor *x;
    tl_scope scope = tl_scope_begin();
    if (!x) x = tl_keep(tl_normal(TL_SHAPE(65536, 4096), 0, 1, TL_BF16, cuda));
    tl_clone(x);
    tl_add(x, x);
    tl_gelu(x);
    tl_softmax(x, -1);
    tl_rms_norm(x, tl_ones(TL_SHAPE(4096), TL_BF16, cuda), 1e-5);
    tl_sum(x, (int[]){0}, 1, false);
    tl_scope_end(scope);
}

static void update(void *context) {
    (void)context;
    static tl_tensor *p, *g, *m, *v;
    if (!p) {
        tl_scope scope = tl_scope_begin();
        p = tl_keep(tl_normal(TL_SHAPE(100000000), 0, 1, TL_BF16, cuda));
        g = tl_keep(tl_normal(TL_SHAPE(100000000), 0, 1, TL_BF16, cuda));
        m = tl_keep(tl_zeros(TL_SHAPE(100000000), TL_F32, cuda));
        v = tl_keep(tl_zeros(TL_SHAPE(100000000), TL_F32, cuda));
        tl_scope_end(scope);
    }
    tl_adam_options o = {
        .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .decoupled = true, .step = 1};
    tl_adam_(p, g, m, v, NULL, &o);
}

/* ---- A sum and its norm ---- */

struct norm_rows {
    int64_t rows, columns;
    bool has_bias; /* x is the result of a product with a bias, whose gradient is the sum of x's over its rows */
};

static tl_tensor *parameter(int rank, const int64_t *shape) {
    return tl_requires_grad(tl_normal(rank, shape, 0, 1, TL_BF16, cuda), true);
}

static void norm_step(void *context) {
    const struct norm_rows *n = context;
    const int64_t rows = n->rows, C = n->columns;
    tl_scope scope = tl_scope_begin();
    tl_tensor *x = parameter(TL_SHAPE(rows, n->has_bias ? 64 : C)), *sum;
    if (n->has_bias) x = tl_linear(x, parameter(TL_SHAPE(C, 64)), parameter(TL_SHAPE(C)));
    tl_tensor *residual = tl_normal(TL_SHAPE(rows, C), 0, 1, TL_BF16, cuda);
    tl_tensor *y = tl_add_layer_norm(x, residual, parameter(TL_SHAPE(C)), parameter(TL_SHAPE(C)), 1e-5, &sum);
    tl_backward(tl_add(y, sum), tl_normal(TL_SHAPE(rows, C), 0, 1, TL_BF16, cuda), 0);
    tl_scope_end(scope);
}

static double norm_rate(const struct norm_rows *n, const char *op, double *ms) {
    struct norm_rows own = *n;
    tl_totals t = timed(norm_step, &own, TL_ALL, op, 20);
    *ms = t.time_s * 1e3;
    return (double)t.bytes_read.low / t.time_s / 1e12;
}

static void norms(void) {
    static const struct norm_rows rows[] = {
        {65536, 768, false}, {32768, 1024, false}, {16384, 1600, false}, {16384, 2048, false}, {16384, 4096, false}};
    printf("add_layer_norm and its gradient, bf16: TB/s and ms; the gradient with sums for a bias, and such a sum\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct norm_rows *plain = &rows[i], biased = {plain->rows, plain->columns, true};
        double rate[4], ms[4];
        rate[0] = norm_rate(plain, "add_layer_norm", &ms[0]);
        rate[1] = norm_rate(plain, "add_layer_norm_grad", &ms[1]);
        rate[2] = norm_rate(&biased, "add_layer_norm_grad", &ms[2]);
        rate[3] = norm_rate(&biased, "sum", &ms[3]);
        printf("  %5lld x %4lld  forward %.2f %.4f  backward %.2f %.4f  with sums %.2f %.4f", (long long)plain->rows,
               (long long)plain->columns, rate[0], ms[0], rate[1], ms[1], rate[2], ms[2]);
        if (ms[3] > 0) printf("  sum apart %.2f %.4f", rate[3], ms[3]);
        printf("\n");
    }
}

/* ---- Head and loss, at GPT-2's sizes: 64 x 1024 tokens, 768 channels, 50304 classes ---- */

static void head_step(void *context) {
    static tl_tensor *x, *w, *targets;
    tl_scope scope = tl_scope_begin();
    if (!x) {
        x = tl_requires_grad(tl_keep(tl_normal(TL_SHAPE(65536, 768), 0, 1, TL_BF16, cuda)), true);
        w = tl_requires_grad(tl_keep(tl_normal(TL_SHAPE(50304, 768), 0, 0.02, TL_BF16, cuda)), true);
        targets = tl_keep(tl_integers(TL_SHAPE(65536), 0, 50304, TL_I64, cuda));
    }
    if (context) tl_backward(tl_linear_cross_entropy(x, w, targets, NULL), NULL, 0);
    else tl_backward(tl_mean_all(tl_cross_entropy(tl_linear(x, w, NULL), targets, NULL)), NULL, 0);
    tl_zero_grad(x, false);
    tl_zero_grad(w, false);
    tl_scope_end(scope);
}

static void choose(void *context) {
    (void)context;
    static tl_tensor *p;
    tl_scope scope = tl_scope_begin();
    if (!p) p = tl_keep(tl_uniform(TL_SHAPE(16, 50304), 0, 1, TL_F32, cuda));
    tl_tensor *values, *indices;
    tl_topk(p, 50, 1, true, &values, &indices);
    tl_multinomial(p, 1, true);
    tl_argmax(p, (int[]){1}, 1, false);
    tl_cumsum(p, 1);
    tl_nonzero(p);
    tl_scope_end(scope);
}

static void fused(void) {
    static const char *const choices[] = {"sort", "multinomial", "argmax", "cumsum", "nonzero"};
    norms();
    printf("head and loss, bf16, 65536 x 768 x 50304, with gradients\n");
    tl_totals head = timed(head_step, &head, TL_ALL, "linear_cross_entropy", 3);
    tl_totals product = timed(head_step, NULL, TL_ALL, "matmul", 3),
              forward = timed(head_step, NULL, TL_ALL, "cross_entropy", 3),
              backward = timed(head_step, NULL, TL_ALL, "cross_entropy_grad", 3);
    printf("  in one op %.1f ms (%.0f TFLOP/s); products %.1f ms, loss %.1f ms, its gradient %.1f ms apart\n",
           head.time_s * 1e3, (double)head.flops.low / head.time_s / 1e12, product.time_s * 1e3, forward.time_s * 1e3,
           backward.time_s * 1e3);
    printf("choosing among 16 x 50304, f32\n");
    for (int i = 0; i < 5; i++) {
        tl_totals t = timed(choose, NULL, TL_ALL, choices[i], 5);
        printf("  %-20s %.3f ms\n", choices[i], t.time_s * 1e3);
    }
}

/* ---- Attention of any length ---- */

static void attention_times(const struct heads *h, double us_per_token[2]) {
    struct heads own = *h;
    tl_totals f = timed(attention_step, &own, TL_FORWARD, "attention", 5),
              b = timed(attention_step, &own, TL_ALL, "attention_grad", 5);
    us_per_token[0] = f.time_s * 1e6 / (double)(h->B * h->T);
    us_per_token[1] = b.time_s * 1e6 / (double)(h->B * h->T);
}

/* Microseconds per token, and their ratio to those of the next multiple of 128. */
static void lengths(void) {
    static const struct heads rows[] = {{512, 64, 16, 16, 64},  {256, 100, 16, 16, 64}, {32, 960, 16, 16, 64},
                                        {32, 1000, 16, 16, 64}, {32, 1023, 16, 16, 64}, {32, 1025, 16, 16, 64},
                                        {31, 1000, 16, 16, 64}, {16, 2000, 32, 8, 64},  {16, 1001, 32, 8, 128},
                                        {8, 4001, 16, 16, 128}, {1, 4000, 12, 12, 64},  {1, 8000, 12, 12, 64}};
    printf("causal attention, bf16: us a token, and times those of the next multiple of 128\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int is_fast = 0; is_fast < 2; is_fast++) {
            struct heads whole = rows[i];
            double own[2], next[2];
            whole.T = (whole.T + 127) / 128 * 128;
            tl_set_fast(is_fast);
            attention_times(&rows[i], own);
            attention_times(&whole, next);
            printf("  B %3lld T %4lld H %2lld/%2lld D %3lld %-8s forward %8.4f (%5.2f)  backward %8.4f (%5.2f)\n",
                   (long long)rows[i].B, (long long)rows[i].T, (long long)rows[i].H, (long long)rows[i].kv,
                   (long long)rows[i].D, is_fast ? "fast" : "default", own[0], own[0] / next[0], own[1],
                   own[1] / next[1]);
            fflush(stdout);
        }
}

/* What dropout inside attention costs: milliseconds without and with. */
static void dropouts(void) {
    static const struct heads rows[] = {
        {64, 256, 6, 6, 64}, {64, 1024, 12, 12, 64}, {16, 2048, 32, 8, 64}, {8, 2048, 16, 16, 128}};
    static const tl_dtype dtypes[] = {TL_BF16, TL_F32};
    printf("causal attention without and with dropout 0.2: ms\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int d = 0; d < 2; d++) {
            struct heads h = rows[i];
            double ms[2][2];
            heads_dtype = dtypes[d];
            for (int is_on = 0; is_on < 2; is_on++) {
                dropout = is_on ? 0.2 : 0;
                ms[is_on][0] = timed(attention_step, &h, TL_FORWARD, "attention", 5).time_s * 1e3;
                ms[is_on][1] = timed(attention_step, &h, TL_ALL, "attention_grad", 5).time_s * 1e3;
            }
            printf("  B %2lld T %4lld H %2lld/%2lld D %3lld %-8s forward %8.3f %8.3f   backward %8.3f %8.3f\n",
                   (long long)h.B, (long long)h.T, (long long)h.H, (long long)h.kv, (long long)h.D,
                   tl_dtype_name(heads_dtype), ms[0][0], ms[1][0], ms[0][1], ms[1][1]);
            fflush(stdout);
        }
}

int main(int n_arguments, char **arguments) {
    static struct shape shapes[] = {
        {8192, 8192, 8192}, {65536, 768, 768}, {65536, 2304, 768}, {65536, 3072, 768}, {65536, 768, 3072}};
    static struct heads attention[] = {{64, 1024, 12, 12, 64},
                                       {32, 1024, 25, 25, 64},
                                       {16, 2048, 32, 32, 64},
                                       {16, 2048, 32, 8, 64},
                                       {8, 4096, 16, 16, 128}};
    static const char *const passes[] = {"copy", "add", "gelu", "softmax", "rms_norm", "sum"};
    tl_set_error_policy(TL_RETURN);
    tl_set_fast(n_arguments > 1 && !strcmp(arguments[1], "fast"));
    cuda = tl_device_find("cuda");
    if (!cuda) {
        printf("no GPU here: %s\n", tl_error_message());
        return 0;
    }
    const bool is_lengths = n_arguments > 1 && !strcmp(arguments[1], "lengths");
    const bool is_dropout = n_arguments > 1 && !strcmp(arguments[1], "dropout");
    const bool is_norms = n_arguments > 1 && !strcmp(arguments[1], "norms");
    if (is_lengths || is_dropout || is_norms) {
        if (is_lengths) lengths();
        else if (is_norms) norms();
        else dropouts();
        if (tl_error() != TL_OK) printf("error: %s\n", tl_error_message());
        return tl_error() != TL_OK;
    }
    printf("what the driver holds besides the pool\n");
    stage("context, stream, plugin's handles");
    tl_scope scope = tl_scope_begin();
    tl_zeros(TL_SHAPE(1024), TL_F32, cuda);
    stage("first kernel");
    product(&(struct shape){256, 256, 256});
    stage("first cuBLASLt product");
    attention_step(&(struct heads){2, 256, 4, 4, 64});
    stage("first cuDNN attention, forward and backward");

    printf("products, bf16, f32 accumulation\n");
    double peak = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        tl_totals t = timed(product, &shapes[i], TL_ALL, "matmul", 20);
        double rate = (double)t.flops.low / t.time_s / 1e12;
        if (i == 0) peak = rate;
        printf("  %6lld x %5lld x %5lld  %8.1f TFLOP/s  %5.2f of the first\n", (long long)shapes[i].m,
               (long long)shapes[i].n, (long long)shapes[i].k, rate, rate / peak);
    }
    printf("causal attention, bf16 (FLOPs counted causal)\n");
    for (size_t i = 0; i < sizeof attention / sizeof *attention; i++) {
        struct heads *h = &attention[i];
        tl_totals f = timed(attention_step, h, TL_FORWARD, "attention", 10),
                  b = timed(attention_step, h, TL_ALL, "attention_grad", 10);
        printf("  B %2lld T %4lld H %2lld/%2lld D %3lld   forward %7.1f   backward %7.1f TFLOP/s\n", (long long)h->B,
               (long long)h->T, (long long)h->H, (long long)h->kv, (long long)h->D,
               (double)f.flops.low / f.time_s / 1e12, (double)b.flops.low / b.time_s / 1e12);
    }
    printf("passes over memory, bf16, 65536 x 4096; AdamW of 1e8 parameters\n");
    double copy = 0;
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        tl_totals t = timed(elementwise, NULL, TL_ALL, passes[i], 10);
        double rate = (double)t.bytes_read.low / t.time_s / 1e9;
        if (i == 0) copy = rate;
        printf("  %-12s %8.0f GB/s  %5.2f of the copy\n", passes[i], rate, rate / copy);
    }
    tl_totals t = timed(update, NULL, TL_ALL, "adam", 10);
    printf("  %-12s %8.0f GB/s  %5.2f of the copy\n", "adamw", (double)t.bytes_read.low / t.time_s / 1e9,
           (double)t.bytes_read.low / t.time_s / 1e9 / copy);
    fused();
    stage("at the end");
    tl_scope_end(scope);
    if (tl_error() != TL_OK) printf("error: %s\n", tl_error_message());
    return tl_error() != TL_OK;
}

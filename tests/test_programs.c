/* test_programs.c: random small programs, the same on cpu and on meta.
 *
 * A program is a seed. Every choice it makes (ops, operands, scopes, checkpoints) comes from its own generator and
 * from shapes, never from data, so the same seed is the same program on every device. Values are matrices (r,4);
 * rows come and go by slices, sums and expansions. Paths nest, fresh copies are changed in place, parts are
 * checkpointed.
 *
 * Checked: the ledger of cpu equals that of meta row by row, with peaks by purpose, allocated and reserved bytes; a
 * price for another target is repeatable; gradients equal four-point differences in f64; checkpoints change no bit
 * of them. */
#include "support/samples.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define C 4
#define N_LEAVES 5

static tl_device *cpu, *meta, *h200;

/* How many programs: the short form, times TALLY_SOAK for the long one. */
static int n_accounted = 400, n_differentiated = 120, n_checkpointed = 150;

struct program {
    uint64_t random;
    bool is_smooth;            /* differentiable everywhere, and tame: for finite differences */
    bool skips_checkpoints;    /* runs the contents of checkpoints directly */
    tl_tensor *leaf[N_LEAVES]; /* (C,C) (C,C) (C) (C) (C,C) */
    tl_tensor *value[8];       /* each (r,C) */
    int n_values, n_checkpoints, n_in_place, depth;
};

static int pick(struct program *p, int n) {
    p->random ^= p->random << 13;
    p->random ^= p->random >> 7;
    p->random ^= p->random << 17;
    return (int)(p->random >> 33) % n;
}

static void push(struct program *p, tl_tensor *x) {
    if (!x) return; /* an error: reported at the end */
    if (p->n_values == 8) p->value[1 + pick(p, 7)] = x;
    else p->value[p->n_values++] = x;
}

static tl_tensor *any(struct program *p) { return p->value[pick(p, p->n_values)]; }

/* Something that broadcasts with x: the same number of rows, one row, or a vector. */
static tl_tensor *mate(struct program *p, tl_tensor *x) {
    tl_tensor *y = any(p);
    if (tl_size(y, 0) == tl_size(x, 0) || tl_size(y, 0) == 1) return y;
    return p->leaf[2 + pick(p, 2)];
}

static tl_tensor *unary(struct program *p, tl_tensor *x) {
    switch (pick(p, p->is_smooth ? 6 : 10)) {
    case 0:
        return tl_tanh(x);
    case 1:
        return tl_sigmoid(x);
    case 2:
        return tl_gelu(x);
    case 3:
        return tl_silu(x);
    case 4:
        return tl_neg(x);
    case 5:
        return tl_affine(x, 0.5, 0.25);
    case 6:
        return tl_relu(x);
    case 7:
        return tl_exp(tl_tanh(x));
    case 8:
        return tl_sqrt(tl_affine(tl_tanh(x), 1, 2));
    default:
        return tl_log(tl_affine(tl_sigmoid(x), 1, 1));
    }
}

static tl_tensor *change_in_place(struct program *p, tl_tensor *x) {
    tl_tensor *y = tl_clone(x), *row = p->leaf[2 + pick(p, 2)];
    p->n_in_place++;
    switch (pick(p, 6)) {
    case 0:
        return tl_add_(y, row);
    case 1:
        return tl_affine_(y, 0.5, 1);
    case 2:
        return tl_add_(tl_select(y, 0, 0), row) ? y : NULL; /* a view: its base changes */
    case 3:
        return tl_fill_(tl_slice(y, 1, 0, TL_END, 2), 0.5) ? y : NULL;
    case 4:
        return tl_copy_(tl_slice(y, 0, -1, TL_END, -1), row) ? y : NULL;
    default:
        return tl_exp_(tl_affine_(y, 0.125, 0));
    }
}

static tl_tensor *attend(struct program *p, tl_tensor *x) {
    int64_t r = tl_size(x, 0);
    tl_tensor *q = tl_reshape(x, TL_SHAPE(1, r, 2, 2)), *k = tl_reshape(tl_tanh(x), TL_SHAPE(1, r, 2, 2));
    if (pick(p, 2)) q = tl_rope(q, 100, pick(p, 5), NULL);
    if (pick(p, 2)) k = tl_slice(k, 2, 0, 1, 1); /* one key head for two */
    const tl_attention_options o = {.causal = pick(p, 2), .dropout = pick(p, 2) ? 0.25 : 0};
    return tl_reshape(tl_attention(q, k, k, &o, NULL), TL_SHAPE(r, C));
}

static tl_tensor *rows_of(struct program *p, tl_tensor *x) {
    const int rows = 0;
    int64_t r = tl_size(x, 0);
    switch (pick(p, p->is_smooth ? 5 : 6)) {
    case 0:
        return r > 1 ? tl_slice(x, 0, pick(p, (int)r), TL_END, 1) : x;
    case 1:
        return tl_slice(x, 0, -1, TL_END, -1);
    case 2:
        return tl_sum(x, &rows, 1, true);
    case 3:
        return r == 1 ? tl_expand(x, TL_SHAPE(3, C)) : tl_mean(x, &rows, 1, true);
    case 4:
        return r == C ? tl_transpose(x, 0, 1) : x;
    default:
        return tl_max(x, &rows, 1, true);
    }
}

static tl_tensor *embed(struct program *p) {
    tl_tensor *ids =
        tl_integers(TL_SHAPE(1 + pick(p, 4)), 0, C, pick(p, 2) ? TL_I64 : TL_I32, tl_device_of(p->leaf[0]));
    return tl_embedding(p->leaf[4], ids);
}

static tl_tensor *choose(tl_tensor *a, tl_tensor *b) {
    return tl_where(tl_bernoulli(tl_rank(a), tl_shape(a), 0.5, tl_device_of(a)), a, b);
}

static tl_tensor *to_and_fro(struct program *p, tl_tensor *x) {
    const tl_dtype through[] = {TL_BF16, TL_F32, TL_F16, TL_F64};
    return tl_cast(tl_affine(tl_cast(x, through[pick(p, 4)]), 2, 0), tl_dtype_of(x));
}

static void step(struct program *p);

/* A named scope with a few steps, one result of which is returned. */
static tl_tensor *nested(struct program *p) {
    static const char *const name[] = {"block", "attn", "mlp", "norm.inner"};
    tl_scope scope = tl_scope_enter(name[pick(p, 4)]);
    int before = p->n_values;
    tl_tensor *kept[8];
    memcpy(kept, p->value, sizeof kept);
    p->depth++;
    for (int i = 1 + pick(p, 3); i > 0 && tl_error() == TL_OK; i--) step(p);
    p->depth--;
    tl_tensor *result = any(p);
    memcpy(p->value, kept, sizeof kept);
    p->n_values = before;
    return tl_scope_return(scope, result);
}

/* The contents of a checkpoint: a program of its own, on its inputs and the leaves. */
static bool part_run(void *context, tl_tensor **in, int n_in, tl_tensor **out, int n_out) {
    (void)n_in;
    struct program part = *(struct program *)context;
    part.n_values = 0;
    push(&part, in[0]);
    push(&part, in[1]);
    tl_scope scope = tl_scope_enter("part");
    for (int i = 2 + pick(&part, 3); i > 0 && tl_error() == TL_OK; i--) step(&part);
    out[0] = tl_tanh(part.value[part.n_values - 1]);
    if (n_out > 1) out[1] = tl_mul(part.value[0], part.value[0]);
    for (int j = 0; j < n_out; j++) tl_keep(out[j]);
    tl_scope_end(scope);
    for (int j = 0; j < n_out; j++) {
        tl_scope inner = tl_scope_begin();
        tl_scope_return(inner, out[j]);
        tl_drop(out[j]);
    }
    return tl_error() == TL_OK;
}

static tl_tensor *checkpointed(struct program *p) {
    tl_tensor *in[2] = {any(p), any(p)}, *out[2] = {NULL, NULL};
    tl_checkpoint_keep keep = pick(p, 2) ? TL_KEEP_INPUTS : TL_KEEP_MATMULS;
    int n_out = 1 + pick(p, 2);
    struct program part = *p;
    part.depth = p->depth + 1;
    pick(p, 2); /* the part's numbers are not ours */
    p->n_checkpoints++;
    bool ok = p->skips_checkpoints ? part_run(&part, in, 2, out, n_out)
                                   : tl_checkpoint(part_run, &part, sizeof part, keep, in, 2, out, n_out);
    if (!ok) return NULL;
    if (n_out == 2) push(p, out[1]);
    return out[0];
}

static void step(struct program *p) {
    tl_tensor *x = any(p);
    switch (pick(p, p->is_smooth ? 17 : 20)) {
    case 0:
        push(p, tl_add(x, mate(p, x)));
        break;
    case 1:
        push(p, tl_sub(mate(p, x), x));
        break;
    case 2:
        push(p, tl_mul(tl_tanh(x), mate(p, x)));
        break;
    case 3:
    case 4:
        push(p, unary(p, x));
        break;
    case 5:
        push(p, tl_matmul(x, p->leaf[pick(p, 2)]));
        break;
    case 6:
        push(p, tl_linear(x, p->leaf[pick(p, 2)], p->leaf[2]));
        break;
    case 7:
        push(p, tl_softmax(x, -1));
        break;
    case 8:
        push(p, tl_layer_norm(x, p->leaf[2], p->leaf[3], 0.1));
        break;
    case 9:
        push(p, tl_rms_norm(x, pick(p, 2) ? p->leaf[3] : NULL, 0.1));
        break;
    case 10:
    case 11:
        push(p, rows_of(p, x));
        break;
    case 12:
        push(p, change_in_place(p, x));
        break;
    case 13:
        push(p, attend(p, x));
        break;
    case 14:
        push(p, pick(p, 2) ? embed(p) : choose(x, mate(p, x)));
        break;
    case 15:
        push(p, p->depth < 3 ? nested(p) : tl_dropout(x, 0.25));
        break;
    case 16:
        push(p, p->depth < 2 ? checkpointed(p) : tl_swiglu(x, x));
        break;
    case 17:
        push(p, tl_detach(x));
        break;
    case 18:
        push(p, to_and_fro(p, x));
        break;
    default:
        push(p, tl_div(x, tl_affine(tl_sigmoid(mate(p, x)), 1, 1)));
        break;
    }
}

static void leaves_make(struct program *p, tl_device *device, tl_dtype dtype) {
    for (int i = 0; i < N_LEAVES; i++) {
        bool is_vector = i == 2 || i == 3;
        p->leaf[i] = tensor_drawn(is_vector ? 1 : 2, (int64_t[]){C, C}, dtype, device);
        tl_set_purpose(tl_requires_grad(p->leaf[i], true), TL_PARAMETER);
    }
}

/* A loss of all remaining values. Every leaf takes part, so that every leaf has a gradient. */
static tl_tensor *program_loss(struct program *p, int n_steps) {
    p->n_values = 0;
    push(p, p->leaf[0]);
    push(p, tl_unsqueeze(p->leaf[2], 0));
    for (int i = 0; i < n_steps && tl_error() == TL_OK; i++) step(p);
    tl_tensor *loss = tl_mean_all(p->value[0]);
    for (int i = 1; i < p->n_values; i++) loss = tl_add(loss, tl_mean_all(tl_tanh(p->value[i])));
    return loss;
}

static struct program program_new(uint64_t seed, bool is_smooth) {
    struct program p = {.random = (seed + 1) * 0x9E3779B97F4A7C15u, .is_smooth = is_smooth};
    for (int i = 0; i < 8; i++) pick(&p, 2);
    return p;
}

/* ---- Accounting ---- */

static int n_checkpoints, n_in_place;

/* One or two passes and perhaps an update, all in the ledger. */
static void train_and_record(uint64_t seed, tl_device *device, tl_dtype dtype, struct record *r) {
    memset(r, 0, sizeof *r);
    tl_pool_trim(device);
    tl_seed(seed);
    tl_scope scope = tl_scope_begin();
    struct program p = program_new(seed, false);
    leaves_make(&p, device, dtype);
    tl_tensor *m = tl_zeros(TL_SHAPE(C, C), dtype == TL_F64 ? TL_F64 : TL_F32, device), *v = tl_zeros_like(m);
    tl_ledger *l = tl_ledger_begin("program");
    int n_steps = 4 + pick(&p, 14), n_passes = 1 + pick(&p, 2);
    for (int pass = 0; pass < n_passes; pass++) {
        tl_scope inner = tl_scope_enter("model");
        tl_tensor *loss = program_loss(&p, n_steps);
        bool twice = pick(&p, 4) == 0;
        tl_backward(loss, NULL, twice ? TL_RETAIN_GRAPH : 0);
        if (twice) tl_backward(loss, NULL, 0);
        record_output(r, loss);
        tl_scope_end(inner);
    }
    tl_adam_options o = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .decoupled = true, .step = 1};
    if (tl_grad_of(p.leaf[0])) tl_adam_(p.leaf[0], tl_grad_of(p.leaf[0]), m, v, NULL, &o);
    if (tl_grad_of(p.leaf[2])) tl_sgd_(p.leaf[2], tl_grad_of(p.leaf[2]), NULL, &(tl_sgd_options){.lr = 0.01});
    for (int i = 0; i < N_LEAVES; i++) record_output(r, tl_grad_of(p.leaf[i]));
    for (int i = 0; i < N_LEAVES; i++) tl_zero_grad(p.leaf[i], i % 2);
    tl_ledger_end(l);
    record_ledger(r, l, device);
    tl_ledger_free(l);
    n_checkpoints += p.n_checkpoints;
    n_in_place += p.n_in_place;
    if (tl_error() != TL_OK)
        fail_msg("program %llu on %s: %s", (unsigned long long)seed, tl_device_name(device), tl_error_message());
    assert_true(tl_scope_end(scope));
    assert_nothing_held("after a program", device);
}

static void compare(uint64_t seed, const struct record *a, const struct record *b, const char *what) {
    const char *d = record_difference(a, b);
    if (d) fail_msg("program %llu: %s differ: %s", (unsigned long long)seed, what, d);
}

static void random_programs_tally(void **state) {
    (void)state;
    static struct record on_cpu, on_meta, priced, again;
    const tl_dtype dtypes[] = {TL_F32, TL_F64, TL_BF16, TL_F16};
    uint64_t n_calls = 0;
    n_checkpoints = n_in_place = 0;
    for (uint64_t seed = 0; seed < (uint64_t)n_accounted; seed++) {
        tl_dtype dtype = dtypes[seed % 4];
        train_and_record(seed, cpu, dtype, &on_cpu);
        train_and_record(seed, meta, dtype, &on_meta);
        compare(seed, &on_cpu, &on_meta, "cpu and meta");
        train_and_record(seed, h200, dtype, &priced);
        train_and_record(seed, h200, dtype, &again);
        compare(seed, &priced, &again, "two prices of h200");
        /* another target changes memory, never work */
        priced.peak = on_cpu.peak, priced.peak_allocated = on_cpu.peak_allocated,
        priced.peak_reserved = on_cpu.peak_reserved;
        memcpy(priced.peak_by_purpose, on_cpu.peak_by_purpose, sizeof priced.peak_by_purpose);
        priced.memory = on_cpu.memory;
        compare(seed, &on_cpu, &priced, "the work on cpu and the price of h200");
        for (int i = 0; i < on_cpu.n_rows; i++) n_calls += on_cpu.row[i].calls;
    }
    print_message("    %d programs, %llu op calls each on cpu and meta, %d checkpoints, %d in-place changes\n",
                  n_accounted, (unsigned long long)n_calls, n_checkpoints / 4, n_in_place / 4);
    assert_true(n_checkpoints > 200 && n_in_place > 200);
}

/* ---- Gradients ---- */

static double loss_of(struct program start, uint64_t seed, int n_steps) {
    tl_scope scope = tl_scope_begin();
    tl_seed(seed);
    bool mode = tl_set_grad_mode(false);
    double value = tl_item(program_loss(&start, n_steps));
    tl_set_grad_mode(mode);
    tl_scope_end(scope);
    return value;
}

static void gradients_of_random_programs_match_differences(void **state) {
    (void)state;
    const double h = 1.0 / 1024;
    int n_compared = 0;
    for (uint64_t seed = 1000; seed < 1000 + (uint64_t)n_differentiated; seed++) {
        tl_scope scope = tl_scope_begin();
        struct program p = program_new(seed, true);
        tl_seed(seed);
        leaves_make(&p, cpu, TL_F64);
        int n_steps = 4 + pick(&p, 8);
        struct program start = p;
        tl_seed(seed);
        tl_scope inner = tl_scope_begin();
        if (!tl_backward(program_loss(&p, n_steps), NULL, 0))
            fail_msg("program %llu: %s", (unsigned long long)seed, tl_error_message());
        tl_scope_end(inner);
        for (int k = 0; k < N_LEAVES; k++) {
            int64_t n = tl_numel(start.leaf[k]);
            tl_tensor *grad = tl_grad_of(start.leaf[k]);
            double *expected = grad ? tensor_values(grad) : calloc((size_t)n, sizeof *expected);
            double *x = tl_data(start.leaf[k]);
            for (int64_t i = k; i < n; i += 3) { /* a third of the elements */
                double before = x[i], f[4];
                for (int q = 0; q < 4; q++) {
                    x[i] = before + (q < 2 ? q - 2 : q - 1) * h;
                    f[q] = loss_of(start, seed, n_steps);
                }
                x[i] = before;
                double numeric = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h);
                if (!(fabs(numeric - expected[i]) <= 1e-6 * (1 + fabs(expected[i]))))
                    fail_msg("program %llu: leaf %d, element %lld: backward says %.10g, differences %.10g",
                             (unsigned long long)seed, k, (long long)i, expected[i], numeric);
                n_compared++;
            }
            free(expected);
        }
        if (tl_error() != TL_OK) fail_msg("program %llu: %s", (unsigned long long)seed, tl_error_message());
        tl_scope_end(scope);
        assert_nothing_held("after differences", cpu);
    }
    print_message("    %d programs, %d elements\n", n_differentiated, n_compared);
}

/* ---- Checkpoints ---- */

static void run_for_gradients(uint64_t seed, tl_dtype dtype, bool skips_checkpoints, struct program *p) {
    *p = program_new(seed, true);
    p->skips_checkpoints = skips_checkpoints;
    tl_seed(seed);
    leaves_make(p, cpu, dtype);
    tl_scope scope = tl_scope_begin();
    if (!tl_backward(program_loss(p, 14), NULL, 0))
        fail_msg("program %llu: %s", (unsigned long long)seed, tl_error_message());
    tl_scope_end(scope);
}

static void checkpoints_change_no_bit_of_a_gradient(void **state) {
    (void)state;
    const tl_dtype dtypes[] = {TL_F32, TL_BF16, TL_F64};
    int n_with = 0, n = 0;
    for (uint64_t seed = 5000; seed < 5000 + (uint64_t)n_checkpointed; seed++, n++) {
        tl_scope scope = tl_scope_begin();
        struct program plain, saving;
        run_for_gradients(seed, dtypes[seed % 3], true, &plain);
        run_for_gradients(seed, dtypes[seed % 3], false, &saving);
        n_with += saving.n_checkpoints > 0;
        for (int k = 0; k < N_LEAVES; k++) {
            tl_tensor *a = tl_grad_of(plain.leaf[k]), *b = tl_grad_of(saving.leaf[k]);
            if (!a != !b)
                fail_msg("program %llu: leaf %d has a gradient only %s checkpoints", (unsigned long long)seed, k,
                         a ? "without" : "with");
            if (!a) continue;
            size_t n_a, n_b;
            char *x = tensor_bits(a, &n_a), *y = tensor_bits(b, &n_b);
            if (n_a != n_b || memcmp(x, y, n_a)) {
                double *u = tensor_values(a), *v = tensor_values(b);
                for (int64_t i = 0; i < tl_numel(a); i++)
                    if (u[i] != v[i])
                        fail_msg("program %llu: leaf %d, element %lld: %.17g without checkpoints, %.17g with",
                                 (unsigned long long)seed, k, (long long)i, u[i], v[i]);
            }
            free(x), free(y);
        }
        tl_scope_end(scope);
        assert_nothing_held("after checkpoints", cpu);
    }
    print_message("    %d programs, %d of them with checkpoints\n", n, n_with);
    assert_true(n_with > n / 4);
}

/* Found by the programs above: the sum gave its gradient to both of its inputs; the leaf took it over and later added
 * to it in place, before the other had read it. */
static void a_leaf_does_not_take_a_gradient_that_others_have_yet_to_read(void **state) {
    (void)state;
    tl_scope scope = tl_scope_begin();
    tl_tensor *x = tl_requires_grad(tl_ones(TL_SHAPE(2), TL_F64, cpu), true),
              *w = tl_requires_grad(tl_ones(TL_SHAPE(2), TL_F64, cpu), true);
    tl_tensor *p = tl_scale(w, 1), *q = tl_scale(x, 10), *y = tl_add(x, p);
    assert_true(tl_backward(tl_add(tl_sum_all(tl_scale(y, 2)), tl_sum_all(q)), NULL, 0));
    assert_float_equal(tl_at(tl_grad_of(x), (int64_t[]){1}), 2 + 10, 0);
    assert_float_equal(tl_at(tl_grad_of(w), (int64_t[]){1}), 2, 0);
    tl_scope_end(scope);
}

/* (x 1e8 + w) - x 1e8 with x and w the same leaf: in the order of the plain program the 1 is lost to rounding. */
static bool cancelling(void *context, tl_tensor **in, int n_in, tl_tensor **out, int n_out) {
    (void)n_in, (void)n_out;
    tl_tensor *w = *(tl_tensor **)context;
    out[0] =
        tl_add(tl_add(tl_mul(in[0], tl_full(TL_SHAPE(1), 1e8, TL_F32, cpu)), tl_scale(w, 1)), tl_scale(in[0], -1e8));
    return out[0] != NULL;
}
static void a_leaf_may_be_input_and_parameter_of_a_checkpoint(void **state) {
    (void)state;
    double grad[2];
    for (int i = 0; i < 2; i++) {
        tl_scope scope = tl_scope_begin();
        tl_tensor *w = tl_requires_grad(tl_ones(TL_SHAPE(1), TL_F32, cpu), true), *y;
        assert_true(i ? tl_checkpoint(cancelling, &w, sizeof w, TL_KEEP_INPUTS, &w, 1, &y, 1)
                      : cancelling(&w, &w, 1, &y, 1));
        assert_true(tl_backward(y, NULL, 0));
        grad[i] = tl_item(tl_grad_of(w));
        tl_scope_end(scope);
    }
    assert_float_equal(grad[0], grad[1], 0);
}

static int setup(void **state) {
    (void)state;
    const char *soak = getenv("TALLY_SOAK");
    int times = soak ? atoi(soak) : 1;
    n_accounted *= times > 1 ? times : 1, n_differentiated *= times > 1 ? times : 1,
        n_checkpointed *= times > 1 ? times : 1;
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
    tl_set_grad_mode(true);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(random_programs_tally, start),
        cmocka_unit_test_setup(gradients_of_random_programs_match_differences, start),
        cmocka_unit_test_setup(checkpoints_change_no_bit_of_a_gradient, start),
        cmocka_unit_test_setup(a_leaf_does_not_take_a_gradient_that_others_have_yet_to_read, start),
        cmocka_unit_test_setup(a_leaf_may_be_input_and_parameter_of_a_checkpoint, start),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}

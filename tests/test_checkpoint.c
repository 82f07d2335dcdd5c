/* Checkpoints: gradients equal those of the plain program bit for bit, and memory and recomputation equal hand
 * computation. */
#include "support/check.h"

#include <stdio.h>
#include <string.h>

enum { L = 6, B = 4, C = 8 };

/* L layers x + gelu(x W + b) V with dropout, in f32. */
struct model {
    tl_tensor *w[L], *b[L], *v[L];
    double dropout;
};

static tl_tensor *parameter(int rank, const int64_t *shape) {
    return tl_set_purpose(tl_requires_grad(tl_normal(rank, shape, 0, 0.4, TL_F32, NULL), true), TL_PARAMETER);
}

static void model_new(struct model *m, double dropout) {
    tl_seed(11);
    for (int l = 0; l < L; l++) {
        m->w[l] = parameter(TL_SHAPE(C, C));
        m->b[l] = parameter(TL_SHAPE(C));
        m->v[l] = parameter(TL_SHAPE(C, C));
    }
    m->dropout = dropout;
}

static tl_tensor *layer(void *context, int l, tl_tensor *x) {
    const struct model *m = *(struct model *const *)context;
    tl_scope scope = tl_scope_enter("layer");
    tl_tensor *h = tl_gelu(tl_add(tl_matmul(x, m->w[l]), m->b[l])); /* (B,C) */
    return tl_scope_return(scope, tl_add(x, tl_matmul(tl_dropout(h, m->dropout), m->v[l])));
}

/* Loss and gradients of one pass, kept: [0] d x, then per layer w, b, v; [n-1] the loss. */
enum { N_RESULTS = 2 + 3 * L };

static void results_of(struct model *m, tl_tensor *x, tl_tensor *loss, tl_tensor **results) {
    tl_tensor *leaves[N_RESULTS] = {x};
    for (int l = 0; l < L; l++)
        memcpy(&leaves[1 + 3 * l], (tl_tensor *[]){m->w[l], m->b[l], m->v[l]}, 3 * sizeof *leaves);
    for (int i = 0; i < N_RESULTS - 1; i++) {
        results[i] = tl_clone(tl_grad_of(leaves[i]));
        tl_zero_grad(leaves[i], false);
    }
    results[N_RESULTS - 1] = tl_detach(loss);
}

static void run(struct model *m, tl_checkpoint_policy policy, int k, tl_tensor *x, tl_tensor **results) {
    tl_seed(5);
    tl_scope scope = tl_scope_begin();
    tl_tensor *y = tl_checkpoint_layers(layer, &m, L, policy, k, x);
    tl_tensor *loss = tl_mean_all(tl_mul(y, y));
    expect_true(tl_backward(loss, NULL, 0));
    results_of(m, x, loss, results);
    for (int i = 0; i < N_RESULTS; i++) tl_keep(results[i]);
    tl_scope_end(scope);
}

static void results_drop(tl_tensor **results) {
    for (int i = 0; i < N_RESULTS; i++) tl_drop(results[i]);
}

static const struct {
    tl_checkpoint_policy policy;
    int k;
} policies[] = {{TL_CHECKPOINT_EVERY_K, 1},  {TL_CHECKPOINT_EVERY_K, 4}, {TL_CHECKPOINT_EVERY_K, 99},
                {TL_CHECKPOINT_SQRT, 0},     {TL_CHECKPOINT_FULL, 0},    {TL_CHECKPOINT_NOTHING, 0},
                {TL_CHECKPOINT_SELECTIVE, 0}};
enum { N_POLICIES = sizeof policies / sizeof *policies };

static void every_policy_gives_the_same_bits(void **state) {
    (void)state;
    struct model m;
    model_new(&m, 0.25);
    tl_tensor *x = tl_requires_grad(tl_normal(TL_SHAPE(B, C), 0, 1, TL_F32, NULL), true);
    tl_tensor *plain[N_RESULTS], *other[N_RESULTS];
    run(&m, TL_CHECKPOINT_NONE, 0, x, plain);
    for (int p = 0; p < N_POLICIES; p++) {
        run(&m, policies[p].policy, policies[p].k, x, other);
        for (int i = 0; i < N_RESULTS; i++) expect_same_bits(other[i], plain[i]);
        results_drop(other);
    }
    results_drop(plain);
}

static void an_input_without_gradient_is_fine(void **state) {
    (void)state;
    struct model m;
    model_new(&m, 0.1);
    tl_tensor *x = tl_normal(TL_SHAPE(B, C), 0, 1, TL_F32, NULL), *grads[2];
    for (int pass = 0; pass < 2; pass++) {
        struct model *context = &m;
        tl_seed(5);
        tl_tensor *y = tl_checkpoint_layers(layer, &context, L, pass ? TL_CHECKPOINT_FULL : TL_CHECKPOINT_NONE, 0, x);
        expect_true(tl_backward(tl_sum_all(y), NULL, 0));
        grads[pass] = tl_clone(tl_grad_of(m.w[0]));
        for (int l = 0; l < L; l++)
            tl_zero_grad(m.w[l], false), tl_zero_grad(m.b[l], false), tl_zero_grad(m.v[l], false);
    }
    expect_same_bits(grads[1], grads[0]);
    expect_true(tl_grad_of(x) == NULL);
}

/* ---- By hand -------------------------------------------------------------------------------------------------
 *
 * A layer without dropout saves, as B x C f32 tensors of A = 4BC bytes: matmul its input x (the block input), gelu
 * its input xW + b, matmul gelu's output: 3A, of which x is the previous layer's result. The last layer's result is
 * not saved. Recomputing a layer costs two matmuls (2BCC each), and BC (1 + 9 + 1) for bias, gelu, residual.
 */
static const uint64_t A = 4 * B * C, LAYER_MATMUL = 2 * 2 * B * C * C, LAYER_REST = B * C * (1 + 9 + 1);

struct bill {
    uint64_t kept;      /* activation bytes after forward */
    uint64_t recompute; /* FLOPs */
    uint64_t recompute_matmul;
};

static struct bill bill_of(tl_checkpoint_policy policy, int k, tl_device *device) {
    struct model m, *context = &m;
    struct bill bill;
    tl_set_default_device(device);
    tl_scope scope = tl_scope_begin();
    model_new(&m, 0);
    tl_tensor *x = tl_set_purpose(tl_normal(TL_SHAPE(B, C), 0, 1, TL_F32, NULL), TL_DATA);
    uint64_t before = tl_device_memory(device).live_bytes;
    tl_tensor *y = tl_checkpoint_layers(layer, &context, L, policy, k, x);
    bill.kept = tl_device_memory(device).live_bytes - before - tl_bytes(y);
    tl_ledger *ledger = tl_ledger_begin("backward");
    expect_true(tl_backward(tl_sum_all(y), NULL, 0));
    tl_ledger_end(ledger);
    bill.recompute = tl_ledger_total(ledger, TL_RECOMPUTE, NULL).flops.low;
    bill.recompute_matmul = tl_ledger_total(ledger, TL_RECOMPUTE, "matmul").flops.low;
    tl_ledger_free(ledger);
    tl_scope_end(scope);
    tl_set_default_device(check_cpu());
    return bill;
}

static void kept_bytes_and_recomputed_flops_are_those_of_the_rule(void **state) {
    (void)state;
    tl_device *devices[] = {check_cpu(), check_meta()};
    for (int d = 0; d < 2; d++) {
        struct bill b = bill_of(TL_CHECKPOINT_NONE, 0, devices[d]);
        expect_equal(b.kept, L * 2 * A + (L - 1) * A); /* two inside each layer, and the results between layers */
        expect_equal(b.recompute, 0);
        b = bill_of(TL_CHECKPOINT_FULL, 0, devices[d]);
        expect_equal(b.kept, (L - 1) * A); /* block inputs; the first is data */
        expect_equal(b.recompute, L * (LAYER_MATMUL + LAYER_REST));
        b = bill_of(TL_CHECKPOINT_EVERY_K, 4, devices[d]);
        expect_equal(b.kept, 1 * A); /* groups of 4 and 2 */
        expect_equal(b.recompute, L * (LAYER_MATMUL + LAYER_REST));
        b = bill_of(TL_CHECKPOINT_SQRT, 0, devices[d]);
        expect_equal(b.kept, 1 * A); /* ceil(sqrt(6)) = 3: two groups */
        expect_equal(b.recompute, L * (LAYER_MATMUL + LAYER_REST));
        b = bill_of(TL_CHECKPOINT_NOTHING, 0, devices[d]);
        expect_equal(b.kept, 0);
        /* to recompute layer l (1 .. L), all layers up to it run: 1 + 2 + ... + L */
        expect_equal(b.recompute, L * (L + 1) / 2 * (LAYER_MATMUL + LAYER_REST));
        b = bill_of(TL_CHECKPOINT_SELECTIVE, 0, devices[d]);
        expect_equal(b.kept, (L - 1) * A + L * 2 * A); /* block inputs and the results of two matmuls each */
        expect_equal(b.recompute_matmul, 0);
        expect_equal(b.recompute, L * LAYER_REST);
    }
}

static uint64_t peak_of(tl_checkpoint_policy policy, tl_device *device) {
    struct model m, *context = &m;
    tl_set_default_device(device);
    tl_scope scope = tl_scope_begin();
    model_new(&m, 0);
    tl_tensor *x = tl_normal(TL_SHAPE(256, C), 0, 1, TL_F32, NULL);
    tl_ledger *ledger = tl_ledger_begin("step");
    tl_scope step = tl_scope_begin();
    tl_tensor *loss = tl_scope_return(step, tl_sum_all(tl_checkpoint_layers(layer, &context, L, policy, 0, x)));
    expect_true(tl_backward(loss, NULL, 0));
    tl_ledger_end(ledger);
    uint64_t peak = tl_ledger_peak(ledger, device, TL_ALL);
    tl_ledger_free(ledger);
    tl_scope_end(scope);
    tl_set_default_device(check_cpu());
    return peak;
}

static void peaks_fall_with_what_is_forgotten_and_meta_knows_them(void **state) {
    (void)state;
    uint64_t none = peak_of(TL_CHECKPOINT_NONE, check_cpu()), full = peak_of(TL_CHECKPOINT_FULL, check_cpu()),
             nothing = peak_of(TL_CHECKPOINT_NOTHING, check_cpu());
    expect_true(nothing < full && full < none);
    expect_equal(peak_of(TL_CHECKPOINT_NONE, check_meta()), none);
    expect_equal(peak_of(TL_CHECKPOINT_FULL, check_meta()), full);
    expect_equal(peak_of(TL_CHECKPOINT_NOTHING, check_meta()), nothing);
    expect_equal(peak_of(TL_CHECKPOINT_SELECTIVE, check_meta()), peak_of(TL_CHECKPOINT_SELECTIVE, check_cpu()));
}

static bool long_chain(void *context, tl_tensor **in, int n_in, tl_tensor **out, int n_out) {
    (void)context, (void)n_in, (void)n_out;
    out[0] = in[0];
    for (int i = 0; i < 20 && out[0]; i++) out[0] = tl_neg(out[0]); /* saves nothing: results are freed at once */
    return out[0] != NULL;
}

/* Without scopes inside fn: temporaries of the recomputation must not wait for the end of its backward. */
static void a_recomputation_holds_no_more_than_its_graph(void **state) {
    (void)state;
    tl_tensor *x = tl_requires_grad(tl_ones(TL_SHAPE(1000), TL_F32, NULL), true), *y;
    expect_true(tl_checkpoint(long_chain, NULL, 0, TL_KEEP_INPUTS, &x, 1, &y, 1));
    tl_tensor *loss = tl_sum_all(y);
    uint64_t before = tl_device_memory(check_cpu()).live_bytes;
    tl_ledger *ledger = tl_ledger_begin("backward");
    expect_true(tl_backward(loss, NULL, 0));
    tl_ledger_end(ledger);
    /* the chain itself is 20 tensors in the forward pass (its scope); backward holds two gradients and the result */
    uint64_t peak = tl_ledger_peak(ledger, check_cpu(), TL_ALL) - before;
    expect_true(peak <= 20 * 4000 + 4000 + 64);
    expect_true(peak >= 20 * 4000);
    tl_ledger_free(ledger);
}

/* ---- Inputs, outputs, parameters --------------------------------------------------------------------------------- */

static bool mix(void *context, tl_tensor **in, int n_in, tl_tensor **out, int n_out) {
    tl_tensor *w = *(tl_tensor **)context;
    (void)n_in, (void)n_out;
    tl_tensor *h = tl_matmul(in[0], w);
    out[0] = tl_add(tl_tanh(h), tl_mul(in[1], in[0]));
    out[1] = tl_mul(tl_exp(tl_scale(h, 0.1)), in[1]);
    return out[0] && out[1];
}

/* Both inputs and the parameter are used outside too, before and after; both outputs are used twice. */
static tl_tensor *tangle(bool checkpointed, tl_checkpoint_keep keep, tl_tensor *a, tl_tensor *b, tl_tensor *w,
                         bool same_input) {
    tl_tensor *ha = tl_matmul(a, w), *hb = same_input ? ha : tl_add(b, tl_scale(ha, 0.5)), *in[2] = {ha, hb}, *out[2];
    bool ok = checkpointed ? tl_checkpoint(mix, &w, sizeof w, keep, in, 2, out, 2) : mix(&w, in, 2, out, 2);
    expect_true(ok);
    tl_tensor *y = tl_add(tl_add(tl_mul(out[0], out[1]), tl_add(out[0], ha)), tl_mul(hb, tl_matmul(out[1], w)));
    return tl_sum_all(tl_mul(y, tl_add(ha, hb)));
}

static void tangled_uses_give_the_same_bits(void **state) {
    (void)state;
    for (int variant = 0; variant < 8; variant++) {
        tl_checkpoint_keep keep = variant & 1 ? TL_KEEP_MATMULS : TL_KEEP_INPUTS;
        bool same_input = variant & 2, has_grads = variant & 4;
        tl_scope scope = tl_scope_begin();
        tl_tensor *grads[2][3];
        for (int pass = 0; pass < 2; pass++) {
            tl_seed(3);
            tl_tensor *leaves[3];
            for (int i = 0; i < 3; i++) {
                leaves[i] = tl_requires_grad(tl_normal(TL_SHAPE(5, 5), 0, 0.5, TL_F32, NULL), true);
                if (has_grads) tl_set_grad(leaves[i], tl_normal(TL_SHAPE(5, 5), 0, 1, TL_F32, NULL));
            }
            expect_true(tl_backward(tangle(pass, keep, leaves[0], leaves[1], leaves[2], same_input), NULL, 0));
            for (int i = 0; i < 3; i++) grads[pass][i] = tl_grad_of(leaves[i]);
        }
        expect_same_bits(grads[1][0], grads[0][0]);
        if (!same_input) expect_same_bits(grads[1][1], grads[0][1]);
        expect_same_bits(grads[1][2], grads[0][2]);
        tl_scope_end(scope);
    }
}

static bool product(void *context, tl_tensor **in, int n_in, tl_tensor **out, int n_out) {
    (void)context, (void)n_in, (void)n_out;
    return (out[0] = tl_mul(in[0], tl_tanh(in[1]))) != NULL;
}

/* The residual makes one gradient serve two places, so that the input's sum so far may not be added to in place. */
static void one_tensor_given_twice_beside_a_residual_gets_all_its_parts(void **state) {
    (void)state;
    tl_tensor *grads[2];
    for (int pass = 0; pass < 2; pass++) {
        tl_seed(4);
        tl_tensor *x = tl_requires_grad(tl_normal(TL_SHAPE(6), 0, 1, TL_F32, NULL), true), *h = tl_scale(x, 3),
                  *in[2] = {h, h}, *y;
        expect_true(pass ? tl_checkpoint(product, NULL, 0, TL_KEEP_INPUTS, in, 2, &y, 1) : product(NULL, in, 2, &y, 1));
        expect_true(tl_backward(tl_sum_all(tl_add(h, y)), NULL, 0));
        grads[pass] = tl_grad_of(x);
    }
    expect_same_bits(grads[1], grads[0]);
}

static void a_leaf_given_twice_gets_all_its_parts(void **state) {
    (void)state;
    for (int has_grad = 0; has_grad < 2; has_grad++) {
        tl_tensor *grads[2];
        for (int pass = 0; pass < 2; pass++) {
            tl_seed(4);
            tl_tensor *x = tl_requires_grad(tl_normal(TL_SHAPE(6), 0, 1, TL_F32, NULL), true), *in[2] = {x, x}, *y;
            if (has_grad) tl_set_grad(x, tl_ones(TL_SHAPE(6), TL_F32, NULL));
            expect_true(pass ? tl_checkpoint(product, NULL, 0, TL_KEEP_INPUTS, in, 2, &y, 1)
                             : product(NULL, in, 2, &y, 1));
            expect_true(tl_backward(tl_sum_all(tl_add(tl_mul(x, x), y)), NULL, 0));
            grads[pass] = tl_grad_of(x);
        }
        expect_same_bits(grads[1], grads[0]);
    }
}

static bool first_only(void *context, tl_tensor **in, int n_in, tl_tensor **out, int n_out) {
    (void)context, (void)n_in, (void)n_out;
    out[0] = tl_mul(in[0], in[0]);
    out[1] = in[1];                       /* an input as it is */
    out[2] = tl_cmp(in[0], TL_GT, in[1]); /* no float: no gradient */
    return out[0] && out[2];
}

static void unused_outputs_and_passed_through_inputs_are_fine(void **state) {
    (void)state;
    tl_tensor *a = tl_requires_grad(check_tensor(TL_SHAPE(2), 3, 4), true),
              *b = tl_requires_grad(check_tensor(TL_SHAPE(2), 1, 9), true);
    tl_tensor *in[2] = {a, b}, *out[3];
    expect_true(tl_checkpoint(first_only, NULL, 0, TL_KEEP_INPUTS, in, 2, out, 3));
    expect_true(tl_needs_grad(out[0]) && !tl_needs_grad(out[2]));
    expect_values(out[2], 1, 0);
    expect_true(tl_backward(tl_sum_all(out[0]), NULL, TL_RETAIN_GRAPH)); /* out[1] unused */
    expect_values(tl_grad_of(a), 6, 8);
    expect_true(tl_grad_of(b) == NULL);
    expect_true(tl_backward(tl_sum_all(tl_scale(out[1], 5)), NULL, 0)); /* and now alone */
    expect_values(tl_grad_of(b), 5, 5);
    expect_values(tl_grad_of(a), 6, 8);
}

static bool bf16_layer(void *context, tl_tensor **in, int n_in, tl_tensor **out, int n_out) {
    (void)n_in, (void)n_out;
    return (out[0] = tl_gelu(tl_matmul(in[0], *(tl_tensor **)context))) != NULL;
}

static void bf16_leaves_collecting_in_f32_give_the_same_bits(void **state) {
    (void)state;
    tl_tensor *grads[2][2];
    for (int pass = 0; pass < 2; pass++) {
        tl_seed(8);
        tl_tensor *x = tl_requires_grad(tl_normal(TL_SHAPE(4, 4), 0, 1, TL_BF16, NULL), true);
        tl_tensor *w = tl_requires_grad(tl_normal(TL_SHAPE(4, 4), 0, 1, TL_BF16, NULL), true), *y;
        tl_set_grad(x, tl_ones(TL_SHAPE(4, 4), TL_F32, NULL));
        tl_set_grad(w, tl_ones(TL_SHAPE(4, 4), TL_F32, NULL));
        for (int micro = 0; micro < 3; micro++) {
            expect_true(pass ? tl_checkpoint(bf16_layer, &w, sizeof w, TL_KEEP_INPUTS, &x, 1, &y, 1)
                             : bf16_layer(&w, &x, 1, &y, 1));
            expect_true(tl_backward(tl_sum_all(y), NULL, 0));
        }
        grads[pass][0] = tl_grad_of(x);
        grads[pass][1] = tl_grad_of(w);
    }
    expect_equal(tl_dtype_of(grads[1][0]), TL_F32);
    expect_same_bits(grads[1][0], grads[0][0]);
    expect_same_bits(grads[1][1], grads[0][1]);
}

/* ---- Selective --------------------------------------------------------------------------------------------------- */

static bool bias_in_place(void *context, tl_tensor **in, int n_in, tl_tensor **out, int n_out) {
    tl_tensor **w = context;
    (void)n_in, (void)n_out;
    return (out[0] = tl_tanh(tl_add_(tl_matmul(in[0], w[0]), w[1]))) != NULL;
}

/* The kept result of the matmul is changed in place before the tanh: taking it again would add the bias twice. */
static void a_kept_result_that_was_changed_is_computed_again(void **state) {
    (void)state;
    tl_tensor *grads[2] = {NULL, NULL};
    for (int pass = 0; pass < 2; pass++) {
        tl_seed(4);
        tl_tensor *x = tl_requires_grad(tl_normal(TL_SHAPE(3, 3), 0, 1, TL_F32, NULL), true), *y;
        tl_tensor *w[2] = {tl_normal(TL_SHAPE(3, 3), 0, 1, TL_F32, NULL), tl_normal(TL_SHAPE(3), 0, 1, TL_F32, NULL)};
        expect_true(pass ? tl_checkpoint(bias_in_place, w, sizeof w, TL_KEEP_MATMULS, &x, 1, &y, 1)
                         : bias_in_place(w, &x, 1, &y, 1));
        tl_tensor *loss = tl_sum_all(y);
        expect_true(tl_backward(loss, NULL, TL_RETAIN_GRAPH));
        expect_true(tl_backward(loss, NULL, 0));
        grads[pass] = tl_grad_of(x);
    }
    expect_same_bits(grads[1], grads[0]);
}

static bool attention_block(void *context, tl_tensor **in, int n_in, tl_tensor **out, int n_out) {
    tl_tensor *w = *(tl_tensor **)context;
    (void)n_in, (void)n_out;
    tl_tensor *q = tl_rope(tl_reshape(tl_matmul(in[0], w), TL_SHAPE(2, 5, 2, 4)), 10000, 0, NULL); /* (B,T,H,D) */
    tl_tensor *y = tl_attention(q, q, q, &(tl_attention_options){.causal = true, .dropout = 0.25}, NULL);
    return (out[0] = tl_dropout(y, 0.5)) != NULL;
}

static void attention_is_kept_by_selective_and_walks_twice_with_retain(void **state) {
    (void)state;
    tl_tensor *grads[2][2];
    for (int pass = 0; pass < 2; pass++) {
        tl_seed(9);
        tl_tensor *x = tl_requires_grad(tl_normal(TL_SHAPE(2, 5, 8), 0, 1, TL_F32, NULL), true);
        tl_tensor *w = tl_requires_grad(tl_normal(TL_SHAPE(8, 8), 0, 1, TL_F32, NULL), true), *y;
        expect_true(pass ? tl_checkpoint(attention_block, &w, sizeof w, TL_KEEP_MATMULS, &x, 1, &y, 1)
                         : attention_block(&w, &x, 1, &y, 1));
        tl_tensor *loss = tl_sum_all(tl_mul(y, y));
        tl_ledger *ledger = tl_ledger_begin("backward");
        expect_true(tl_backward(loss, NULL, TL_RETAIN_GRAPH));
        expect_true(tl_backward(loss, NULL, 0));
        tl_ledger_end(ledger);
        expect_equal(tl_ledger_total(ledger, TL_RECOMPUTE, "attention").calls, 0);
        expect_equal(tl_ledger_total(ledger, TL_RECOMPUTE, "matmul").calls, 0);
        expect_equal(tl_ledger_total(ledger, TL_RECOMPUTE, "rope").calls, pass ? 2 : 0);
        tl_ledger_free(ledger);
        grads[pass][0] = tl_grad_of(x);
        grads[pass][1] = tl_grad_of(w);
        expect_refused(tl_backward(loss, NULL, 0), "a second time");
    }
    expect_same_bits(grads[1][0], grads[0][0]);
    expect_same_bits(grads[1][1], grads[0][1]);
}

/* ---- Nesting, random numbers, phases, errors --------------------------------------------------------------------- */

struct nest {
    tl_tensor *w;
    int depth;
};

static bool nested(void *context, tl_tensor **in, int n_in, tl_tensor **out, int n_out) {
    struct nest n = *(struct nest *)context;
    (void)n_in, (void)n_out;
    tl_tensor *h = tl_dropout(tl_tanh(tl_matmul(in[0], n.w)), 0.3), *inner = h;
    n.depth--;
    if (n.depth > 0 &&
        !tl_checkpoint(nested, &n, sizeof n, n.depth % 2 ? TL_KEEP_MATMULS : TL_KEEP_INPUTS, &h, 1, &inner, 1))
        return false;
    return (out[0] = tl_add(h, tl_dropout(inner, 0.2))) != NULL;
}
static bool nested_plain(struct nest n, tl_tensor *x, tl_tensor **out) {
    tl_tensor *h = tl_dropout(tl_tanh(tl_matmul(x, n.w)), 0.3), *inner = h;
    n.depth--;
    if (n.depth > 0 && !nested_plain(n, h, &inner)) return false;
    return (*out = tl_add(h, tl_dropout(inner, 0.2))) != NULL;
}

static void checkpoints_nest_with_dropout(void **state) {
    (void)state;
    tl_tensor *grads[2][2];
    tl_generator after[2];
    for (int pass = 0; pass < 2; pass++) {
        tl_seed(21);
        tl_tensor *x = tl_requires_grad(tl_normal(TL_SHAPE(7, 7), 0, 1, TL_F32, NULL), true), *y;
        struct nest n = {tl_requires_grad(tl_normal(TL_SHAPE(7, 7), 0, 0.5, TL_F32, NULL), true), 4};
        expect_true(pass ? tl_checkpoint(nested, &n, sizeof n, TL_KEEP_INPUTS, &x, 1, &y, 1) : nested_plain(n, x, &y));
        expect_true(tl_backward(tl_sum_all(tl_mul(y, y)), NULL, 0));
        after[pass] = tl_generator_get();
        grads[pass][0] = tl_grad_of(x);
        grads[pass][1] = tl_grad_of(n.w);
    }
    expect_same_bits(grads[1][0], grads[0][0]);
    expect_same_bits(grads[1][1], grads[0][1]);
    expect_equal(after[1].index, after[0].index); /* recomputation repeats the old draws, without side effects */
}

static void without_recording_a_checkpoint_is_a_plain_call(void **state) {
    (void)state;
    tl_tensor *x = tl_requires_grad(check_tensor(TL_SHAPE(2), 1, 2), true), *y;
    tl_set_grad_mode(false);
    expect_true(tl_checkpoint(long_chain, NULL, 0, TL_KEEP_MATMULS, &x, 1, &y, 1));
    tl_set_grad_mode(true);
    expect_true(!tl_needs_grad(y));
    expect_values(y, 1, 2);
}

static void a_dropped_checkpoint_frees_everything(void **state) {
    (void)state;
    struct model m, *context = &m;
    model_new(&m, 0.2);
    tl_tensor *x = tl_ones(TL_SHAPE(B, C), TL_F32, NULL);
    uint64_t before = tl_device_memory(check_cpu()).live_bytes;
    tl_scope scope = tl_scope_begin();
    tl_checkpoint_layers(layer, &context, L, TL_CHECKPOINT_SELECTIVE, 0, x);
    tl_checkpoint_layers(layer, &context, L, TL_CHECKPOINT_NOTHING, 0, x);
    tl_scope_end(scope);
    expect_equal(tl_device_memory(check_cpu()).live_bytes, before);
}

static int calls;
static bool fails_at(void *context, tl_tensor **in, int n_in, tl_tensor **out, int n_out) {
    int when = *(int *)context;
    (void)n_in, (void)n_out;
    if (++calls != when) return (out[0] = tl_exp(in[0])) != NULL;
    return (out[0] = tl_matmul(tl_exp(in[0]), in[0])) != NULL; /* (2,3) x (2,3): refused */
}
static bool fails_silently(void *context, tl_tensor **in, int n_in, tl_tensor **out, int n_out) {
    (void)context, (void)in, (void)n_in, (void)out, (void)n_out;
    return false;
}
static bool gives_nothing(void *context, tl_tensor **in, int n_in, tl_tensor **out, int n_out) {
    (void)context, (void)in, (void)n_in, (void)out, (void)n_out;
    return true;
}

static void errors_inside_fn_come_out_and_leave_nothing(void **state) {
    (void)state;
    tl_tensor *x = tl_requires_grad(tl_ones(TL_SHAPE(2, 3), TL_F32, NULL), true), *y = NULL;
    for (int when = 1; when <= 2; when++) { /* in forward; in the recomputation */
        calls = 0;
        tl_scope scope = tl_scope_begin();
        bool ok = tl_checkpoint(fails_at, &when, sizeof when, TL_KEEP_INPUTS, &x, 1, &y, 1);
        expect_equal(ok, when == 2);
        if (ok) expect_true(!tl_backward(tl_sum_all(y), NULL, 0));
        expect_error(TL_ERROR_USE, "matmul: mat1 and mat2 shapes cannot be multiplied");
        expect_true(tl_scope_end(scope)); /* all inner scopes were closed */
        expect_true(tl_set_grad_mode(true));
        expect_equal(tl_set_phase(TL_FORWARD), TL_FORWARD);
    }
    expect_refused(tl_checkpoint(fails_silently, NULL, 0, TL_KEEP_INPUTS, &x, 1, &y, 1),
                   "checkpoint: the function failed");
    expect_refused(tl_checkpoint(gives_nothing, NULL, 0, TL_KEEP_INPUTS, &x, 1, &y, 1), "got NULL instead of a tensor");
    expect_refused(tl_checkpoint(NULL, NULL, 0, TL_KEEP_INPUTS, &x, 1, &y, 1), "takes a function");
    expect_refused(tl_checkpoint(gives_nothing, NULL, 0, TL_KEEP_INPUTS, &x, 17, &y, 1), "0 to 16 inputs");
    expect_refused(tl_checkpoint(gives_nothing, NULL, 0, TL_KEEP_INPUTS, &x, 1, &y, 0), "1 to 8 outputs");
    struct model m, *context = &m;
    model_new(&m, 0);
    expect_refused(tl_checkpoint_layers(layer, &context, L, TL_CHECKPOINT_EVERY_K, 0, x), "groups of 0 layers");
    expect_true(tl_checkpoint_layers(layer, &context, 0, TL_CHECKPOINT_FULL, 0, x) == x);
}

static int other_shape_calls;
static bool other_shape(void *context, tl_tensor **in, int n_in, tl_tensor **out, int n_out) {
    (void)context, (void)n_in, (void)n_out;
    tl_tensor *w = tl_ones(TL_SHAPE(3, ++other_shape_calls), TL_F32, NULL);
    return (out[0] = tl_sum_all(tl_matmul(in[0], w))) != NULL;
}

static void a_function_that_does_otherwise_when_run_again_is_refused(void **state) {
    (void)state;
    tl_tensor *x = tl_requires_grad(tl_ones(TL_SHAPE(2, 3), TL_F32, NULL), true), *y;
    expect_true(tl_checkpoint(other_shape, NULL, 0, TL_KEEP_MATMULS, &x, 1, &y, 1));
    expect_refused(tl_backward(y, NULL, 0), "did not do the same when it ran again");
}

static void an_input_changed_in_between_is_refused(void **state) {
    (void)state;
    tl_tensor *x = tl_requires_grad(tl_ones(TL_SHAPE(2), TL_F32, NULL), true), *h = tl_scale(x, 2), *y;
    expect_true(tl_checkpoint(long_chain, NULL, 0, TL_KEEP_INPUTS, &h, 1, &y, 1));
    tl_fill_(h, 0);
    expect_refused(tl_backward(tl_sum_all(y), NULL, 0), "modified by an inplace operation");
}

static void what_checkpoints_cannot_do_is_said(void **state) {
    (void)state;
    tl_tensor *x = tl_requires_grad(tl_ones(TL_SHAPE(2), TL_F32, NULL), true), *y, *grad;
    expect_true(tl_checkpoint(long_chain, NULL, 0, TL_KEEP_INPUTS, &x, 1, &y, 1));
    expect_refused(tl_gradients(tl_sum_all(y), NULL, &x, 1, 0, &grad), "tl_gradients does not go through a checkpoint");
    expect_refused(tl_backward(tl_sum_all(y), NULL, TL_CREATE_GRAPH),
                   "higher derivatives do not go through a checkpoint");
}

static void recomputation_is_billed_to_its_phase_and_path(void **state) {
    (void)state;
    struct model m, *context = &m;
    model_new(&m, 0);
    tl_tensor *x = tl_ones(TL_SHAPE(B, C), TL_F32, NULL);
    tl_ledger *ledger = tl_ledger_begin("step");
    tl_tensor *y = tl_checkpoint_layers(layer, &context, L, TL_CHECKPOINT_FULL, 0, x);
    expect_true(tl_backward(tl_sum_all(y), NULL, 0));
    tl_ledger_end(ledger);
    expect_count(tl_ledger_total(ledger, TL_FORWARD, "matmul").flops, L * LAYER_MATMUL);
    expect_count(tl_ledger_total(ledger, TL_RECOMPUTE, "matmul").flops, L * LAYER_MATMUL);
    /* two products each, but for the first layer's input, which needs none */
    uint64_t fresh = tl_ledger_total(ledger, TL_BACKWARD, "matmul").flops.low;
    uint64_t added = tl_ledger_total(ledger, TL_BACKWARD, "matmul_acc").flops.low; /* into the residual's gradient */
    expect_equal(added, (L - 1) * LAYER_MATMUL / 2);
    expect_equal(fresh + added, 2 * L * LAYER_MATMUL - LAYER_MATMUL / 2);
    tl_ledger_free(ledger);
}

/* ---- Hooks ---------------------------------------------------------------------------------------------------- */

struct hook_calls {
    int n;
    double last;
};
static void hook_sum(tl_tensor *leaf, tl_tensor *grad, void *context) {
    (void)leaf;
    struct hook_calls *heard = context;
    heard->n++;
    heard->last = tl_item(tl_sum_all(grad));
}
static tl_tensor *times_shared(void *context, int layer, tl_tensor *x) {
    (void)layer;
    return tl_mul(x, context);
}

static void a_hook_waits_for_every_checkpoint_that_reads_its_leaf(void **state) {
    (void)state;
    const tl_checkpoint_policy tried[] = {TL_CHECKPOINT_NONE, TL_CHECKPOINT_FULL, TL_CHECKPOINT_SQRT,
                                          TL_CHECKPOINT_NOTHING};
    for (size_t p = 0; p < sizeof tried / sizeof *tried; p++) {
        struct hook_calls heard = {0};
        tl_scope scope = tl_scope_begin();
        tl_tensor *w = tl_requires_grad(tl_full(TL_SHAPE(2), 2, TL_F64, NULL), true),
                  *x = tl_ones(TL_SHAPE(2), TL_F64, NULL);
        expect_true(tl_set_grad_hook(w, hook_sum, &heard, NULL));
        tl_tensor *y = tl_checkpoint_layers(times_shared, w, 3, tried[p], 0, x);
        expect_true(tl_backward(tl_sum_all(tl_mul(y, w)), NULL, 0)); /* w^4, read inside and outside: 4 w^3 = 32 each */
        expect_equal(heard.n, 1);
        expect_near(heard.last, 64, 0);
        tl_scope_end(scope);
    }
}

static void a_checkpoint_of_constants_needs_no_gradient(void **state) {
    (void)state;
    tl_tensor *x = tl_ones(TL_SHAPE(2), TL_F32, NULL), *w = tl_ones(TL_SHAPE(2), TL_F32, NULL);
    expect_true(!tl_needs_grad(tl_checkpoint_layers(times_shared, w, 3, TL_CHECKPOINT_FULL, 0, x)));
    expect_true(
        tl_needs_grad(tl_checkpoint_layers(times_shared, tl_requires_grad(w, true), 3, TL_CHECKPOINT_FULL, 0, x)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_policy_gives_the_same_bits),
        TEST(an_input_without_gradient_is_fine),
        TEST(kept_bytes_and_recomputed_flops_are_those_of_the_rule),
        TEST(peaks_fall_with_what_is_forgotten_and_meta_knows_them),
        TEST(a_recomputation_holds_no_more_than_its_graph),
        TEST(tangled_uses_give_the_same_bits),
        TEST(one_tensor_given_twice_beside_a_residual_gets_all_its_parts),
        TEST(a_leaf_given_twice_gets_all_its_parts),
        TEST(unused_outputs_and_passed_through_inputs_are_fine),
        TEST(bf16_leaves_collecting_in_f32_give_the_same_bits),
        TEST(a_kept_result_that_was_changed_is_computed_again),
        TEST(attention_is_kept_by_selective_and_walks_twice_with_retain),
        TEST(checkpoints_nest_with_dropout),
        TEST(without_recording_a_checkpoint_is_a_plain_call),
        TEST(a_dropped_checkpoint_frees_everything),
        TEST(errors_inside_fn_come_out_and_leave_nothing),
        TEST(a_function_that_does_otherwise_when_run_again_is_refused),
        TEST(an_input_changed_in_between_is_refused),
        TEST(what_checkpoints_cannot_do_is_said),
        TEST(recomputation_is_billed_to_its_phase_and_path),
        TEST(a_hook_waits_for_every_checkpoint_that_reads_its_leaf),
        TEST(a_checkpoint_of_constants_needs_no_gradient),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}

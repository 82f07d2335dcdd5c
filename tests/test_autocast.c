/* Autocast: the casts a program would write, and no others; recorded, billed, run again by a checkpoint, off in
 * backward. */
#include "support/check.h"

#include <stdlib.h>

enum { N = 3, C = 8, V = 5 };

static tl_tensor *drawn(tl_dtype dtype, int rank, const int64_t *shape) {
    return tl_requires_grad(tl_detach(tl_cast(tl_normal(rank, shape, 0, 1, TL_F32, NULL), dtype)), true);
}

static void expect_dtype(tl_tensor *x, tl_dtype dtype) {
    expect_true(x != NULL);
    expect_equal(tl_dtype_of(x), dtype);
}

static void products_run_narrow(void **state) {
    (void)state;
    tl_tensor *x = drawn(TL_F32, TL_SHAPE(N, C)), *w = drawn(TL_F32, TL_SHAPE(V, C)), *b = drawn(TL_F32, TL_SHAPE(V));
    tl_tensor *q = drawn(TL_F32, TL_SHAPE(1, N, 2, 4)), *wide = drawn(TL_F64, TL_SHAPE(N, C));
    expect_equal(tl_set_autocast(TL_BF16), TL_DTYPE_COUNT);
    expect_dtype(tl_linear(x, w, b), TL_BF16);
    expect_dtype(tl_linear(x, w, NULL), TL_BF16);
    tl_tensor *wt = tl_transpose(w, 0, 1);
    expect_dtype(tl_matmul(x, wt), TL_BF16);
    expect_dtype(tl_attention(q, q, q, TL_CAUSAL, NULL), TL_BF16);
    tl_tensor *wide_t = tl_transpose(wide, 0, 1);
    expect_dtype(tl_matmul(wide, wide_t), TL_F64); /* f64 stays */
    expect_equal(tl_set_autocast(TL_F16), TL_BF16);
    tl_tensor *narrow = tl_cast(x, TL_BF16);
    expect_dtype(tl_matmul(narrow, wt), TL_F16);
    expect_equal(tl_set_autocast(TL_DTYPE_COUNT), TL_F16);
    expect_dtype(tl_linear(x, w, b), TL_F32);
}

static void softmax_norms_sums_and_losses_run_wide(void **state) {
    (void)state;
    tl_tensor *x = drawn(TL_BF16, TL_SHAPE(N, C)), *w = drawn(TL_F32, TL_SHAPE(C)), *b = drawn(TL_F32, TL_SHAPE(C));
    tl_tensor *t = drawn(TL_BF16, TL_SHAPE(N, C)), *ids = tl_zeros(TL_SHAPE(N), TL_I64, NULL);
    tl_set_autocast(TL_BF16);
    expect_dtype(tl_softmax(x, -1), TL_F32);
    expect_dtype(tl_softmax(x, 0), TL_F32);
    expect_dtype(tl_log_softmax(x, -1), TL_F32);
    expect_dtype(tl_layer_norm(x, w, b, 1e-5), TL_F32);
    expect_dtype(tl_rms_norm(x, w, 1e-5), TL_F32);
    expect_dtype(tl_sum_all(x), TL_F32);
    expect_dtype(tl_cumsum(x, 0), TL_F32);
    expect_dtype(tl_norm(x, 2, NULL, 0, false), TL_F32);
    expect_dtype(tl_logsumexp(x, NULL, 0, false), TL_F32);
    expect_dtype(tl_exp(x), TL_F32);
    expect_dtype(tl_cross_entropy(x, ids, NULL), TL_F32);
    expect_dtype(tl_nll_loss(x, ids, NULL), TL_F32);
    expect_dtype(tl_mse_loss(x, t, TL_REDUCE_MEAN), TL_F32);
    expect_dtype(tl_l1_loss(x, t, TL_REDUCE_MEAN), TL_F32);
    expect_dtype(tl_bce_with_logits(x, t, NULL, NULL, TL_REDUCE_MEAN), TL_F32);
    expect_dtype(tl_add(x, t), TL_BF16); /* ops on no list run in the dtypes they are given */
    expect_dtype(tl_gelu(x), TL_BF16);
    expect_dtype(tl_exp_(tl_detach(x)), TL_BF16); /* in place there is no other dtype */
    tl_set_autocast(TL_DTYPE_COUNT);
    expect_dtype(tl_softmax(x, -1), TL_BF16);
}

/* loss = sum (softmax(x w^T))^2, by autocast or with the casts written out. */
static tl_tensor *loss_of(tl_tensor *x, tl_tensor *w, bool by_hand) {
    tl_tensor *narrow_x = by_hand ? tl_cast(x, TL_BF16) : x, *narrow_w = by_hand ? tl_cast(w, TL_BF16) : w;
    tl_tensor *y = tl_linear(narrow_x, narrow_w, NULL);
    tl_tensor *p = tl_softmax(by_hand ? tl_cast(y, TL_F32) : y, -1);
    return tl_sum_all(tl_mul(p, p));
}

static bool checkpointed(void *context, tl_tensor **inputs, int n_inputs, tl_tensor **outputs, int n_outputs) {
    (void)context, (void)n_inputs, (void)n_outputs;
    return (outputs[0] = loss_of(inputs[0], inputs[1], false)) != NULL;
}

enum way { BY_HAND, BY_AUTOCAST, CHECKPOINTED, N_WAYS };

/* One pass; kept[0] the loss, kept[1] and kept[2] the gradients, or NULL for the bill alone. */
static void pass(enum way way, tl_tensor **inputs, tl_tensor **kept) {
    tl_scope scope = tl_scope_begin();
    tl_tensor *loss = NULL;
    tl_set_autocast(way == BY_HAND ? TL_DTYPE_COUNT : TL_BF16);
    if (way == CHECKPOINTED) expect_true(tl_checkpoint(checkpointed, NULL, 0, TL_KEEP_INPUTS, inputs, 2, &loss, 1));
    else loss = loss_of(inputs[0], inputs[1], way == BY_HAND);
    if (way == CHECKPOINTED) tl_set_autocast(TL_DTYPE_COUNT); /* backward runs it again as it ran */
    expect_true(tl_backward(loss, NULL, 0));
    /* as before backward */
    expect_equal(tl_set_autocast(TL_DTYPE_COUNT), way == BY_AUTOCAST ? TL_BF16 : TL_DTYPE_COUNT);
    if (kept) kept[0] = tl_keep(tl_detach(loss));
    for (int i = 0; i < 2; i++) {
        if (kept) kept[1 + i] = tl_keep(tl_clone(tl_grad_of(inputs[i])));
        tl_zero_grad(inputs[i], false);
    }
    tl_scope_end(scope);
}

static void it_is_the_program_with_its_casts_to_the_last_bit(void **state) {
    (void)state;
    tl_tensor *inputs[2] = {drawn(TL_F32, TL_SHAPE(N, C)), NULL}, *kept[N_WAYS][3];
    inputs[1] = drawn(TL_F32, TL_SHAPE(V, C));
    for (int way = 0; way < N_WAYS; way++) {
        pass((enum way)way, inputs, kept[way]);
        for (int i = 0; i < 3; i++) expect_same_bits(kept[way][i], kept[BY_HAND][i]);
    }
    for (int way = 0; way < N_WAYS; way++)
        for (int i = 0; i < 3; i++) tl_drop(kept[way][i]);
}

static void it_costs_what_the_program_with_its_casts_costs(void **state) {
    (void)state;
    tl_tensor *inputs[2] = {drawn(TL_F32, TL_SHAPE(N, C)), NULL};
    inputs[1] = drawn(TL_F32, TL_SHAPE(V, C));
    char *bill[2], *report = NULL;
    for (int way = BY_HAND; way <= BY_AUTOCAST; way++) {
        tl_ledger *ledger = tl_ledger_begin("step");
        pass((enum way)way, inputs, NULL);
        tl_ledger_end(ledger);
        bill[way] = tl_ledger_json(ledger, check_cpu());
        tl_ledger_free(ledger);
    }
    expect_equal(tl_ledger_diff(bill[0], bill[1], &report), 0);
    free(bill[0]), free(bill[1]), free(report);
}

static void other_dtypes_are_refused_by_name(void **state) {
    (void)state;
    tl_set_autocast(TL_I64);
    expect_error(TL_ERROR_USE, "tl_set_autocast: i64");
    expect_equal(tl_set_autocast(TL_DTYPE_COUNT), TL_DTYPE_COUNT); /* and nothing has changed */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(products_run_narrow),
        TEST(softmax_norms_sums_and_losses_run_wide),
        TEST(it_is_the_program_with_its_casts_to_the_last_bit),
        TEST(it_costs_what_the_program_with_its_casts_costs),
        TEST(other_dtypes_are_refused_by_name),
    };
    return cmocka_run_group_tests_name("autocast", tests, NULL, NULL);
}

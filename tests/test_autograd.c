/* Gradients: what the graph holds and for how long, how contributions are added, what in-place changes do, and what
 * is refused. Other tests check each op's rule over all samples; here ops are only a means. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>

static uint64_t live_bytes(void) { return tl_device_memory(check_cpu()).live_bytes; }

static tl_tensor *leaf_of(const double *values, tl_dtype dtype, int rank, const int64_t *shape) {
    return tl_requires_grad(check_from(values, dtype, rank, shape), true);
}
#define LEAF(rank_and_shape, ...) leaf_of((const double[]){__VA_ARGS__}, TL_F64, rank_and_shape)

static tl_tensor *square(tl_tensor *x) { return tl_mul(x, x); }

/* ---- What the graph holds ------------------------------------------------------------------------------ */

static void a_dropped_loss_takes_its_graph_along(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(4), 1, 2, 3, 4);
    uint64_t before = live_bytes();
    tl_scope scope = tl_scope_begin();
    tl_tensor *loss = tl_sum_all(tl_exp(square(tl_tanh(x))));
    expect_true(tl_needs_grad(loss));
    expect_true(live_bytes() > before);
    tl_scope_end(scope);
    expect_equal(live_bytes(), before);
    expect_true(tl_grad_of(x) == NULL);
}

static void the_graph_can_be_read(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 1, 2), *y = check_from((const double[]){3, 4}, TL_F64, TL_SHAPE(2));
    tl_tensor *z = tl_exp(tl_mul(x, y));
    const void *last = tl_graph_step(z), *first = tl_graph_input(last, 0);
    expect_true(last && first && !tl_graph_step(x));
    assert_string_equal(tl_graph_name(last), "exp");
    assert_string_equal(tl_graph_name(first), "mul");
    expect_equal(tl_graph_inputs(first), 2);
    expect_true(tl_graph_leaf(first, 0) == x && !tl_graph_input(first, 0));
    expect_true(!tl_graph_leaf(first, 1) && !tl_graph_input(first, 1)); /* y needs no gradient */
    expect_true(!tl_graph_leaf(first, 2) && !tl_graph_input(first, -1));
    expect_true(!tl_graph_name(NULL) && !tl_graph_inputs(NULL));
}

static void a_loss_alone_holds_what_backward_needs(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(4), 1, 2, 3, 4);
    uint64_t before = live_bytes();
    tl_scope scope = tl_scope_begin();
    tl_tensor *loss = tl_scope_return(scope, tl_sum_all(tl_exp(square(x))));
    /* mul saves x, the leaf; exp saves its output, 32 bytes; the loss has 8; x^2 is gone */
    expect_equal(live_bytes() - before, 32 + 8);
    expect_equal(tl_device_memory(check_cpu()).live_tensors, 3); /* x, e^(x^2), loss */
    expect_true(tl_backward(loss, NULL, 0));
    expect_values_near(tl_grad_of(x), 1e-6 * exp(16), 2 * exp(1), 4 * exp(4), 6 * exp(9), 8 * exp(16));
}

static void backward_frees_activations_and_keeps_gradients(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(4), 1, 2, 3, 4);
    uint64_t before = live_bytes();
    tl_scope scope = tl_scope_begin();
    tl_tensor *loss = tl_keep(tl_sum_all(tl_exp(square(x))));
    tl_scope_end(scope);
    expect_true(tl_backward(loss, NULL, 0));
    expect_equal(live_bytes() - before, 32 + 8); /* the gradient and the loss */
    tl_drop(loss);
    expect_equal(live_bytes() - before, 32);
    expect_equal(tl_purpose_of(tl_grad_of(x)), TL_GRADIENT);
}

static void saved_results_become_activations(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 1, 2), *y = tl_exp(x), *z = tl_neg(y);
    expect_equal(tl_purpose_of(y), TL_ACTIVATION);
    expect_equal(tl_purpose_of(z), TL_TEMPORARY); /* neg saves nothing */
    bool mode = tl_set_grad_mode(false);
    expect_equal(tl_purpose_of(tl_exp(x)), TL_TEMPORARY);
    tl_set_grad_mode(mode);
}

static void only_what_a_wanted_gradient_needs_is_saved(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4), *c = tl_full(TL_SHAPE(2), 5, TL_F64, NULL);
    uint64_t before = live_bytes();
    tl_scope scope = tl_scope_begin();
    tl_tensor *h = tl_exp(x); /* its value is saved by exp itself: 16 */
    tl_tensor *loss = tl_scope_return(scope, tl_sum_all(tl_mul(tl_scale(h, 2), tl_scale(c, 2))));
    /* mul needs 2c for the gradient of 2h, and not 2h, since 2c needs no gradient */
    expect_equal(live_bytes() - before, 16 + 16 + 8);
    expect_true(tl_backward(loss, NULL, 0));
    expect_values_near(tl_grad_of(x), 1e-9, 20 * exp(3), 20 * exp(4));
}

static void several_graphs_live_side_by_side(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4), *losses[5];
    for (int i = 0; i < 5; i++) losses[i] = tl_sum_all(tl_scale(square(x), i));
    for (int i = 4; i >= 0; i -= 2) expect_true(tl_backward(losses[i], NULL, 0)); /* 4, 2, 0 */
    expect_values(tl_grad_of(x), 6 * 2 * 3, 6 * 2 * 4);
}

static void a_chain_of_100000_nodes_needs_no_recursion(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(1), 1);
    tl_tensor *y = tl_keep(x), *next;
    for (int i = 0; i < 100000; i++, y = next) {
        tl_scope scope = tl_scope_begin();
        next = tl_keep(tl_affine(y, 1, 0.5));
        tl_drop(y);
        tl_scope_end(scope);
    }
    tl_tensor *unused = tl_keep(tl_neg(y));
    expect_values(y, 50001);
    expect_true(tl_backward(y, NULL, 0));
    expect_values(tl_grad_of(x), 1);
    tl_drop(y);
    tl_drop(unused);

    y = tl_keep(x); /* and another one that is not walked */
    for (int i = 0; i < 100000; i++, y = next) {
        tl_scope scope = tl_scope_begin();
        next = tl_keep(tl_mul(y, x));
        tl_drop(y);
        tl_scope_end(scope);
    }
    tl_drop(y);
}

/* ---- Adding ------------------------------------------------------------------------------------------------ */

static void shared_subgraphs_add_up(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4), *h = square(x); /* diamond: h is read twice */
    tl_tensor *loss = tl_sum_all(tl_add(tl_scale(h, 2), tl_mul(h, h)));
    expect_true(tl_backward(loss, NULL, 0)); /* 2x^2 + x^4: 4x + 4x^3 */
    expect_values(tl_grad_of(x), 12 + 4 * 27, 16 + 4 * 64);
}

static void deep_diamonds_are_visited_once_each(void **state) {
    (void)state;
    tl_ledger *ledger = tl_ledger_begin("diamonds");
    tl_tensor *x = LEAF(TL_SHAPE(1), 1), *h = x;
    for (int i = 0; i < 40; i++) h = tl_add(h, h); /* 2^40 paths, 40 nodes */
    expect_true(tl_backward(h, NULL, 0));
    expect_values(tl_grad_of(x), (double)((int64_t)1 << 40));
    tl_ledger_end(ledger);
    expect_equal(tl_ledger_total(ledger, TL_BACKWARD, "add").calls, 40);
    tl_ledger_free(ledger);
}

static void a_tensor_used_twice_by_one_op_gets_both_parts(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2, 2), 1, 2, 3, 4);
    expect_true(tl_backward(tl_sum_all(tl_matmul(x, x)), NULL, 0));
    /* d sum(xx) = 1 x^T + x^T 1: row sums of x by column, plus column sums by row */
    expect_values(tl_grad_of(x), (1 + 2) + (1 + 3), (3 + 4) + (1 + 3), (1 + 2) + (2 + 4), (3 + 4) + (2 + 4));
    tl_tensor *y = LEAF(TL_SHAPE(2), 1, 2);
    expect_true(tl_backward(tl_sum_all(tl_add(y, y)), NULL, 0));
    expect_values(tl_grad_of(y), 2, 2);
    tl_tensor *z = LEAF(TL_SHAPE(2), 1, 2);
    expect_true(tl_backward(tl_sum_all(tl_sub(z, z)), NULL, 0));
    expect_values(tl_grad_of(z), 0, 0);
}

static void two_leaves_never_share_a_gradient(void **state) {
    (void)state;
    tl_tensor *a = LEAF(TL_SHAPE(2), 1, 2), *b = LEAF(TL_SHAPE(2), 3, 4), *seed = tl_ones(TL_SHAPE(2), TL_F64, NULL);
    expect_true(tl_backward(tl_add(a, b), seed, 0));
    expect_true(!tl_shares_storage(tl_grad_of(a), tl_grad_of(b)));
    expect_true(!tl_shares_storage(tl_grad_of(a), seed) && !tl_shares_storage(tl_grad_of(b), seed));
    expect_true(tl_backward(a, seed, 0)); /* the loss is a leaf itself */
    expect_values(tl_grad_of(a), 2, 2);
    expect_values(seed, 1, 1);
    tl_tensor *c = LEAF(TL_SHAPE(2), 5, 6);
    expect_true(tl_backward(c, seed, 0));
    expect_true(!tl_shares_storage(tl_grad_of(c), seed));
    expect_values(tl_grad_of(c), 1, 1);
}

static void broadcasting_is_undone(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2, 3), 1, 2, 3, 4, 5, 6), *row = LEAF(TL_SHAPE(3), 1, 1, 1),
              *column = LEAF(TL_SHAPE(2, 1), 1, 1), *scalar = LEAF(TL_SCALAR, 2), *ones = LEAF(TL_SHAPE(1, 1, 1), 1);
    tl_tensor *y = tl_mul(tl_mul(tl_mul(tl_mul(x, row), column), scalar), ones);
    expect_true(tl_backward(tl_sum_all(y), NULL, 0));
    expect_values(tl_grad_of(x), 2, 2, 2, 2, 2, 2);
    expect_values(tl_grad_of(row), 2 * 5, 2 * 7, 2 * 9);
    expect_shape(tl_grad_of(column), 2, 1);
    expect_values(tl_grad_of(column), 2 * 6, 2 * 15);
    expect_scalar(tl_grad_of(scalar));
    expect_values(tl_grad_of(scalar), 21);
    expect_shape(tl_grad_of(ones), 1, 1, 1);
    expect_values(tl_grad_of(ones), 42);
}

static void promotion_is_undone(void **state) {
    (void)state;
    tl_tensor *a = leaf_of((const double[]){1, 2}, TL_BF16, TL_SHAPE(2)),
              *b = leaf_of((const double[]){3, 5}, TL_F32, TL_SHAPE(2));
    tl_tensor *y = tl_mul(a, b);
    expect_equal(tl_dtype_of(y), TL_F32);
    expect_true(tl_backward(tl_sum_all(y), NULL, 0));
    expect_equal(tl_dtype_of(tl_grad_of(a)), TL_BF16);
    expect_equal(tl_dtype_of(tl_grad_of(b)), TL_F32);
    expect_values(tl_grad_of(a), 3, 5);
    expect_values(tl_grad_of(b), 1, 2);
    tl_tensor *c = leaf_of((const double[]){1, 2}, TL_F32, TL_SHAPE(2));
    expect_true(tl_backward(tl_sum_all(tl_cast(tl_cast(c, TL_F16), TL_F64)), NULL, 0));
    expect_equal(tl_dtype_of(tl_grad_of(c)), TL_F32);
}

static void gradients_accumulate_over_passes_in_place(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4);
    expect_true(tl_backward(tl_sum_all(square(x)), NULL, 0));
    tl_tensor *grad = tl_keep(tl_grad_of(x));
    expect_true(tl_backward(tl_sum_all(tl_scale(x, 10)), NULL, 0));
    expect_true(tl_grad_of(x) == grad); /* the same tensor: what the user holds sees the sum */
    expect_values(grad, 16, 18);
    tl_drop(grad);
}

static void a_bf16_leaf_may_collect_in_f32(void **state) {
    (void)state;
    tl_tensor *x = leaf_of((const double[]){1, 1}, TL_BF16, TL_SHAPE(2));
    expect_true(tl_set_grad(x, tl_full(TL_SHAPE(2), 256, TL_F32, NULL)));
    for (int i = 0; i < 4; i++) expect_true(tl_backward(tl_sum_all(tl_scale(x, 0.5)), NULL, 0));
    expect_equal(tl_dtype_of(tl_grad_of(x)), TL_F32);
    expect_values(tl_grad_of(x), 258, 258); /* in bf16, 256 + 0.5 is 256 */
    tl_tensor *w = leaf_of((const double[]){1, 2, 3, 4}, TL_BF16, TL_SHAPE(2, 2)),
              *eye = check_from((const double[]){1, 0, 0, 1}, TL_BF16, TL_SHAPE(2, 2));
    expect_true(tl_set_grad(w, tl_full(TL_SHAPE(2, 2), 1024, TL_F32, NULL)));
    expect_true(tl_backward(tl_sum_all(tl_matmul(eye, w)), NULL, 0));
    expect_values(tl_grad_of(w), 1025, 1025, 1025, 1025);
}

static void a_matmul_adds_into_an_existing_gradient_by_itself(void **state) {
    (void)state;
    tl_tensor *w = LEAF(TL_SHAPE(3, 2), 1, 2, 3, 4, 5, 6),
              *x = check_from((const double[]){1, 2, 3, 4, 5, 6}, TL_F64, TL_SHAPE(2, 3));
    expect_true(tl_backward(tl_sum_all(tl_matmul(x, w)), NULL, 0));
    tl_tensor *first = tl_keep(tl_clone(tl_grad_of(w)));
    tl_ledger *ledger = tl_ledger_begin("second");
    expect_true(tl_backward(tl_sum_all(tl_matmul(x, w)), NULL, 0));
    tl_ledger_end(ledger);
    expect_equal(tl_ledger_total(ledger, TL_BACKWARD, "matmul_acc").calls, 1);
    expect_equal(tl_ledger_total(ledger, TL_BACKWARD, "matmul").calls, 0);
    expect_equal(tl_ledger_total(ledger, TL_BACKWARD, "add").calls, 0);
    expect_count(tl_ledger_total(ledger, TL_BACKWARD, "matmul_acc").flops, 2 * 3 * 2 * 2); /* 2mkn, the sum included */
    tl_ledger_free(ledger);
    expect_same_bits(tl_grad_of(w), tl_add(first, first));
    tl_drop(first);
    /* the same inside one pass: w is read by two products */
    tl_zero_grad(w, false);
    ledger = tl_ledger_begin("one pass");
    expect_true(tl_backward(tl_sum_all(tl_add(tl_matmul(x, w), tl_linear(x, tl_transpose(w, 0, 1), NULL))), NULL, 0));
    tl_ledger_end(ledger);
    expect_values(tl_grad_of(w), 10, 10, 14, 14, 18, 18);
    tl_ledger_free(ledger);
}

static void gradients_of_views_are_added_where_the_gradient_is(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(4), 1, 2, 3, 4);
    tl_tensor *y = tl_add(tl_add(tl_slice(x, 0, 0, 2, 1), tl_slice(x, 0, 1, 3, 1)), tl_slice(x, 0, -1, TL_END, -2));
    expect_true(tl_backward(y, check_from((const double[]){1, 10}, TL_F64, TL_SHAPE(2)), 0));
    /* slices (0,1), (1,2), (3,1) */
    expect_values(tl_grad_of(x), 1, 10 + 1 + 10, 10, 1);
    tl_tensor *m = LEAF(TL_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    tl_tensor *parts = tl_add(tl_sum_all(tl_diagonal(m, 1, 0, 1)), tl_sum_all(square(tl_select(m, 1, 2))));
    expect_true(tl_backward(parts, NULL, 0));
    expect_values(tl_grad_of(m), 0, 1, 6, 0, 0, 12 + 1);
    tl_tensor *s = LEAF(TL_SHAPE(3), 1, 2, 3); /* overlapping windows: (s0,s1), (s1,s2) */
    expect_true(tl_backward(tl_sum_all(tl_as_strided(s, TL_SHAPE(2, 2), (int64_t[]){1, 1}, 0)), NULL, 0));
    expect_values(tl_grad_of(s), 1, 2, 1);
}

/* ---- Walking again ------------------------------------------------------------------------------------------- */

static void a_second_backward_is_refused_unless_the_graph_was_kept(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4), *loss = tl_sum_all(square(x));
    expect_true(tl_backward(loss, NULL, TL_RETAIN_GRAPH));
    expect_true(tl_backward(loss, NULL, TL_RETAIN_GRAPH));
    expect_true(tl_backward(loss, NULL, 0));
    expect_values(tl_grad_of(x), 18, 24);
    expect_refused(tl_backward(loss, NULL, 0), "Trying to backward through the graph a second time");
    expect_values(tl_grad_of(x), 18, 24);
    tl_tensor *later = tl_scale(loss, 2); /* built on a graph that is gone */
    expect_refused(tl_backward(later, NULL, 0), "a second time");
}

static void a_graph_that_saved_nothing_is_walked_again(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4), *loss = tl_sum_all(tl_add(x, x));
    expect_true(tl_backward(loss, NULL, 0));
    expect_true(tl_backward(loss, NULL, 0));
    expect_values(tl_grad_of(x), 4, 4);
    tl_tensor *later = tl_sum_all(tl_mul(x, loss)); /* of its nodes only the product saves */
    expect_true(tl_backward(later, NULL, 0));
    expect_values(tl_grad_of(x), 4 + 14 + 14, 4 + 14 + 14);
    expect_refused(tl_backward(later, NULL, 0), "mul: Trying to backward through the graph a second time");
    expect_true(tl_backward(loss, NULL, 0));
}

static void seeds_weigh_the_outputs_and_are_checked(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(3), 1, 2, 3), *y = square(x);
    expect_refused(tl_backward(y, NULL, 0), "grad can be implicitly created only for scalar outputs");
    expect_refused(tl_backward(y, tl_ones(TL_SHAPE(2), TL_F64, NULL), 0), "the seed must have the output's shape");
    expect_refused(tl_backward(y, tl_ones(TL_SHAPE(3), TL_F64, check_meta()), 0), "shape and device");
    expect_refused(tl_backward(tl_detach(y), tl_ones(TL_SHAPE(3), TL_F64, NULL), 0),
                   "does not require grad and does not have a grad_fn");
    expect_true(tl_backward(y, check_from((const double[]){1, 10, 100}, TL_F64, TL_SHAPE(3)), 0));
    expect_values(tl_grad_of(x), 2, 40, 600);
    expect_true(tl_backward(tl_sum(square(x), (int[]){0}, 1, true), NULL, 0)); /* one element of rank 1 will do */
    expect_values(tl_grad_of(x), 4, 44, 606);
}

static void the_phase_and_the_mode_are_put_back(void **state) {
    (void)state;
    tl_set_phase(TL_OTHER);
    tl_tensor *x = LEAF(TL_SHAPE(1), 1);
    expect_true(tl_backward(square(x), NULL, 0));
    expect_equal(tl_set_phase(TL_OTHER), TL_OTHER);
    expect_true(tl_set_grad_mode(true));
    expect_refused(tl_backward(tl_detach(x), NULL, 0), "does not require grad");
    expect_equal(tl_set_phase(TL_FORWARD), TL_OTHER);
    expect_true(tl_set_grad_mode(true));
}

/* ---- Modes and leaves -------------------------------------------------------------------------------------------- */

static void nothing_is_recorded_when_recording_is_off(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4);
    expect_true(tl_set_grad_mode(false));
    tl_tensor *y = square(x);
    expect_true(!tl_set_grad_mode(true));
    expect_true(!tl_needs_grad(y) && tl_is_leaf(y) && tl_needs_grad(x) && tl_is_leaf(x));
    tl_tensor *z = tl_mul(y, x); /* y is a constant */
    expect_true(tl_needs_grad(z) && !tl_is_leaf(z));
    expect_true(tl_backward(tl_sum_all(z), NULL, 0));
    expect_values(tl_grad_of(x), 9, 16);
}

static void requires_grad_is_for_floating_leaves(void **state) {
    (void)state;
    expect_refused(tl_requires_grad(tl_ones(TL_SHAPE(2), TL_I64, NULL), true),
                   "only Tensors of floating point and complex dtype can require gradients");
    tl_tensor *x = LEAF(TL_SHAPE(1), 2), *y = square(x);
    expect_refused(tl_requires_grad(y, false), "you can only change requires_grad flags of leaf variables");
    expect_true(tl_requires_grad(y, true) == y);
    expect_true(tl_requires_grad(x, false) == x && !tl_needs_grad(x));
    expect_true(!tl_needs_grad(tl_cmp(tl_requires_grad(x, true), TL_GT, x)));
}

static void detach_cuts_the_graph(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4), *y = square(x);
    expect_true(tl_backward(tl_sum_all(tl_mul(y, tl_detach(y))), NULL, 0));
    expect_values(tl_grad_of(x), 9 * 6, 16 * 8);
}

static void set_grad_replaces_and_zero_grad_frees_or_keeps(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4);
    expect_true(tl_grad_of(x) == NULL);
    expect_true(tl_backward(tl_sum_all(square(x)), NULL, 0));
    tl_tensor *grad = tl_keep(tl_grad_of(x));
    tl_zero_grad(x, true);
    expect_true(tl_grad_of(x) == grad);
    expect_values(grad, 0, 0);
    uint64_t before = live_bytes();
    tl_drop(grad);
    tl_zero_grad(x, false);
    expect_true(tl_grad_of(x) == NULL);
    expect_equal(before - live_bytes(), 16);
    tl_tensor *own = tl_full(TL_SHAPE(2), 5, TL_F64, NULL);
    expect_true(tl_set_grad(x, own));
    expect_true(tl_grad_of(x) == own);
    expect_equal(tl_purpose_of(own), TL_GRADIENT);
    expect_true(tl_backward(tl_sum_all(x), NULL, 0));
    expect_values(own, 6, 6);
    expect_refused(tl_set_grad(x, tl_ones(TL_SHAPE(3), TL_F64, NULL)), "must have the tensor's shape");
    expect_refused(tl_set_grad(x, tl_ones(TL_SHAPE(2), TL_F64, check_meta())), "shape and device");
    expect_true(tl_set_grad(x, NULL));
    expect_true(tl_grad_of(x) == NULL);
    tl_zero_grad(x, true); /* nothing there: nothing to do */
    expect_ok();
}

static void retain_grad_fills_results_too(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4), *y = tl_retain_grad(square(x)), *z = tl_scale(y, 5);
    expect_true(tl_retain_grad(x) == x);
    expect_true(tl_backward(tl_sum_all(z), NULL, TL_RETAIN_GRAPH));
    expect_values(tl_grad_of(y), 5, 5);
    expect_values(tl_grad_of(x), 30, 40);
    expect_true(tl_grad_of(z) == NULL);
    expect_true(tl_backward(tl_sum_all(z), NULL, 0));
    expect_values(tl_grad_of(y), 10, 10);
    expect_refused(tl_retain_grad(tl_detach(y)), "can't retain_grad on Tensor that has requires_grad=False");
    tl_scope scope = tl_scope_begin(); /* the handle is freed, the graph stays: nothing dangles */
    tl_tensor *loss = tl_sum_all(tl_scale(tl_retain_grad(square(x)), 2));
    loss = tl_scope_return(scope, loss);
    expect_true(tl_backward(loss, NULL, 0));
}

/* ---- Hooks ------------------------------------------------------------------------------------------------------- */

struct hook_log {
    int n;
    tl_tensor *leaf[8];
    double first[8]; /* first element of the gradient when the hook was called */
    int nodes_done;  /* how many hooks had been called before */
};

static void hook_note(tl_tensor *leaf, tl_tensor *grad, void *context) {
    struct hook_log *log = context;
    if (log->n == 8) return;
    log->leaf[log->n] = leaf;
    log->first[log->n++] = tl_item(tl_sum_all(grad));
}

static void hooks_are_called_once_when_complete_in_order_of_completion(void **state) {
    (void)state;
    struct hook_log log = {0};
    tl_tensor *w0 = LEAF(TL_SHAPE(1), 2), *w1 = LEAF(TL_SHAPE(1), 3), *w2 = LEAF(TL_SHAPE(1), 5);
    tl_tensor *leaves[] = {w0, w1, w2};
    for (int i = 0; i < 3; i++) expect_true(tl_set_grad_hook(leaves[i], hook_note, &log, NULL));
    /* w1 is used first and last, so it is complete only at the end; w2 before w0 */
    tl_tensor *y = tl_mul(tl_mul(tl_mul(tl_exp(tl_scale(w1, 0)), w0), w2), w1);
    expect_true(tl_backward(y, NULL, 0));
    expect_equal(log.n, 3);
    expect_true(log.leaf[0] == w2 && log.leaf[1] == w0 && log.leaf[2] == w1);
    expect_near(log.first[0], 6, 1e-12);
    expect_near(log.first[1], 15, 1e-12);
    expect_near(log.first[2], 10, 1e-12);
    expect_true(tl_set_grad_hook(w0, NULL, NULL, NULL));
    expect_true(tl_backward(tl_mul(w0, w0), NULL, 0));
    expect_equal(log.n, 3);
    expect_refused(tl_set_grad_hook(tl_neg(w0), hook_note, &log, NULL), "hooks are for leaves");
}

static void hook_released(void *context) { ++*(int *)context; }
static void hook_nothing(tl_tensor *leaf, tl_tensor *grad, void *context) { (void)leaf, (void)grad, (void)context; }

static void a_hook_lets_its_context_go_once(void **state) {
    (void)state;
    int released = 0;
    tl_scope scope = tl_scope_begin();
    tl_tensor *w = LEAF(TL_SHAPE(1), 2);
    expect_true(tl_set_grad_hook(w, hook_nothing, &released, hook_released));
    expect_true(tl_set_grad_hook(w, hook_nothing, &released, hook_released)); /* takes the first one's place */
    expect_equal(released, 1);
    expect_true(tl_set_grad_hook(w, NULL, NULL, NULL));
    expect_equal(released, 2);
    expect_true(tl_set_grad_hook(w, hook_nothing, &released, hook_released));
    expect_refused(tl_set_grad_hook(tl_neg(w), hook_nothing, &released, hook_released), "hooks are for leaves");
    expect_equal(released, 3);
    tl_tensor *y = tl_keep(square(w));
    tl_scope_end(scope);
    expect_equal(released, 3); /* the graph holds the leaf */
    tl_drop(y);
    expect_equal(released, 4);
}

static void hooks_see_the_sum_with_earlier_passes(void **state) {
    (void)state;
    struct hook_log log = {0};
    tl_tensor *x = LEAF(TL_SHAPE(1), 2);
    tl_set_grad_hook(x, hook_note, &log, NULL);
    for (int i = 0; i < 2; i++) expect_true(tl_backward(square(x), NULL, 0));
    expect_equal(log.n, 2);
    expect_near(log.first[0], 4, 0);
    expect_near(log.first[1], 8, 0);
    tl_tensor *grad;
    expect_true(tl_gradients(square(x), NULL, &x, 1, 0, &grad)); /* does not touch .grad, nor the hook */
    expect_equal(log.n, 2);
    expect_values(tl_grad_of(x), 8);
}

/* ---- In-place changes -------------------------------------------------------------------------------------------- */

static void leaves_and_their_views_refuse_in_place_changes(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4);
    expect_refused(tl_relu_(x), "a leaf Variable that requires grad is being used in an in-place operation");
    expect_refused(tl_fill_(x, 0), "a leaf Variable that requires grad");
    expect_refused(tl_copy_(x, tl_ones_like(x)), "a leaf Variable that requires grad");
    expect_refused(tl_add_(tl_select(x, 0, 0), tl_ones(TL_SCALAR, TL_F64, NULL)),
                   "a view of a leaf Variable that requires grad");
    expect_equal(tl_version_of(x), 0);
    expect_values(x, 3, 4);
    tl_set_grad_mode(false);
    expect_true(tl_fill_(x, 7) == x);
    expect_true(tl_fill_(tl_select(x, 0, 1), 8) != NULL);
    tl_set_grad_mode(true);
    expect_values(x, 7, 8);
    expect_true(tl_is_leaf(x) && tl_needs_grad(x));
}

static void in_place_on_a_result_is_recorded(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, -4), *y = tl_scale(x, 2);
    tl_affine_(y, 10, 1);
    expect_true(tl_relu_(y) == y);
    expect_values(y, 61, 0);
    expect_true(tl_backward(tl_sum_all(y), NULL, 0));
    expect_values(tl_grad_of(x), 20, 0);
}

static void in_place_with_a_constant_ends_the_gradient_there(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4), *y = square(x);
    tl_fill_(tl_select(y, 0, 0), 100); /* base and view: y[0] no longer depends on x */
    expect_true(tl_backward(tl_sum_all(tl_mul(y, y)), NULL, 0));
    expect_values(tl_grad_of(x), 0, 2 * 16 * 8);
    tl_tensor *z = square(x);
    tl_fill_(z, 3);
    tl_zero_grad(x, false);
    expect_true(tl_backward(tl_sum_all(tl_add(z, x)), NULL, 0));
    expect_values(tl_grad_of(x), 1, 1);
}

static void in_place_on_a_plain_tensor_makes_it_part_of_the_graph(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4), *buffer = tl_zeros(TL_SHAPE(3, 2), TL_F64, NULL);
    tl_copy_(tl_select(buffer, 0, 1), square(x));
    expect_true(tl_needs_grad(buffer));
    tl_add_(tl_select(buffer, 0, 2), x);
    expect_values(buffer, 0, 0, 9, 16, 3, 4);
    expect_true(tl_backward(tl_sum_all(tl_mul(buffer, buffer)), NULL, 0)); /* x^4 + x^2 */
    expect_values(tl_grad_of(x), 4 * 27 + 6, 4 * 64 + 8);
}

static void a_change_of_the_base_is_seen_by_its_views(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2, 2), 1, 2, 3, 4), *y = tl_scale(x, 1), *view = tl_select(y, 0, 1);
    tl_affine_(y, 3, 0);
    expect_values(view, 9, 12);
    expect_true(tl_backward(tl_sum_all(square(view)), NULL, 0)); /* (3x)^2 on row 1 */
    expect_values(tl_grad_of(x), 0, 0, 18 * 3, 18 * 4);
}

static void a_change_of_a_view_is_seen_by_base_and_siblings(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(4), 1, 2, 3, 4), *y = tl_scale(x, 1);
    tl_tensor *low = tl_slice(y, 0, 0, 3, 1), *high = tl_slice(y, 0, 1, 4, 1);
    tl_affine_(low, 10, 0); /* y = 10 20 30 4 */
    expect_values(high, 20, 30, 4);
    tl_mul_(high, tl_full(TL_SCALAR, 2, TL_F64, NULL)); /* y = 10 40 60 8 */
    expect_values(y, 10, 40, 60, 8);
    expect_values(low, 10, 40, 60);
    expect_true(tl_backward(tl_add(tl_sum_all(low), tl_sum_all(square(y))), NULL, 0));
    /* y = (10x0, 20x1, 20x2, 2x3): d = slope (2y + [in low]) */
    expect_values(tl_grad_of(x), 10 * (20 + 1), 20 * (80 + 1), 20 * (120 + 1), 2 * 16);
}

static void a_chain_of_changes_through_views_of_views(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2, 3), 1, 2, 3, 4, 5, 6), *y = tl_scale(x, 1);
    for (int i = 0; i < 20; i++) {
        tl_tensor *view = tl_slice(tl_select(tl_transpose(y, 0, 1), 0, i % 3), 0, -1, TL_END, -1);
        tl_affine_(view, i % 2 ? 2 : 0.5, 1);
    }
    /* each column: 7, 7, 6 changes of slopes 2 and 0.5 in turn, by index parity */
    double slope[3] = {1, 1, 1};
    for (int i = 0; i < 20; i++) slope[i % 3] *= i % 2 ? 2 : 0.5;
    expect_true(tl_backward(tl_sum_all(y), NULL, 0));
    expect_values(tl_grad_of(x), slope[0], slope[1], slope[2], slope[0], slope[1], slope[2]);
}

static void views_made_without_recording_may_not_be_changed_with_it(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4), *y = tl_scale(x, 1);
    tl_set_grad_mode(false);
    tl_tensor *view = tl_select(y, 0, 0);
    tl_set_grad_mode(true);
    expect_refused(tl_add_(view, tl_select(x, 0, 0)),
                   "a view was created in no_grad mode and is being modified inplace with grad mode enabled");
    expect_values(y, 3, 4);
}

static void a_saved_tensor_that_was_changed_is_an_error(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4), *y = tl_exp(x), *loss = tl_sum_all(y);
    tl_fill_(y, 1);
    expect_refused(tl_backward(loss, NULL, 0),
                   "one of the variables needed for gradient computation has been modified by an inplace operation");
    tl_tensor *a = tl_scale(x, 2), *b = tl_scale(x, 3), *product = tl_mul(a, b);
    tl_scope scope = tl_scope_begin();
    tl_set_grad_mode(false);
    tl_fill_(tl_select(tl_detach(b), 0, 1), 0); /* through a detached view, unrecorded: it is the storage that counts */
    tl_set_grad_mode(true);
    tl_scope_end(scope);
    expect_refused(tl_backward(tl_sum_all(product), NULL, 0), "is at version 1; expected version 0 instead");
    tl_tensor *c = tl_scale(x, 2), *fine = tl_add(c, c); /* add saves nothing: its operands may change */
    tl_fill_(c, 0);
    tl_zero_grad(x, false);
    expect_true(tl_backward(tl_sum_all(fine), NULL, 0));
    expect_values(tl_grad_of(x), 4, 4);
}

static void an_update_between_forward_and_backward_is_noticed(void **state) {
    (void)state;
    tl_tensor *w = LEAF(TL_SHAPE(2, 2), 1, 2, 3, 4), *x = LEAF(TL_SHAPE(2, 2), 1, 0, 0, 1);
    tl_tensor *loss = tl_sum_all(tl_matmul(x, w));
    expect_true(tl_sgd_(w, tl_ones_like(w), NULL, &(tl_sgd_options){.lr = 0.1}));
    expect_refused(tl_backward(loss, NULL, 0), "modified by an inplace operation");
}

static void a_failed_in_place_call_changes_nothing_in_the_graph(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4), *y = tl_scale(x, 2);
    expect_refused(tl_add_(y, tl_ones(TL_SHAPE(3, 2), TL_F64, NULL)), "broadcast");
    expect_refused(tl_add_(tl_ones(TL_SHAPE(2), TL_I64, NULL), y), "can't be cast");
    expect_true(tl_backward(tl_sum_all(y), NULL, 0));
    expect_values(tl_grad_of(x), 2, 2);
}

/* ---- tl_gradients ------------------------------------------------------------------------------------------------ */

static void gradients_are_returned_and_leave_grad_alone(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4), *other = LEAF(TL_SHAPE(2), 1, 1), *h = square(x),
              *y = tl_sum_all(square(h));
    tl_tensor *inputs[] = {x, h, other, y}, *grads[4];
    expect_true(tl_gradients(y, NULL, inputs, 4, 0, grads));
    expect_values(grads[0], 4 * 27, 4 * 64);
    expect_values(grads[1], 18, 32); /* of a result */
    expect_true(grads[2] == NULL);   /* no path */
    expect_values(grads[3], 1);      /* of the output itself */
    expect_true(tl_grad_of(x) == NULL && tl_grad_of(h) == NULL);
    tl_tensor *plain = tl_ones(TL_SHAPE(2), TL_F64, NULL);
    expect_refused(tl_gradients(y, NULL, &plain, 1, 0, grads),
                   "one of the differentiated Tensors does not require grad (input 0)");
    expect_refused(tl_gradients(y, NULL, inputs, 0, 0, grads), "takes 1 to 64 inputs");
    expect_refused(tl_gradients(y, NULL, inputs, 1, 0, grads), "a second time");
}

static void gradients_with_respect_to_a_result_do_not_go_behind_it(void **state) {
    (void)state;
    tl_ledger *ledger = tl_ledger_begin("pruned");
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4), *h = tl_exp(tl_exp(tl_tanh(x))), *y = tl_sum_all(square(h)), *grad;
    expect_true(tl_gradients(y, NULL, &h, 1, 0, &grad));
    tl_ledger_end(ledger);
    expect_close(grad, tl_scale(h, 2), 1e-12);
    expect_equal(tl_ledger_total(ledger, TL_BACKWARD, "affine").calls, 0); /* tanh's rule never ran */
    expect_equal(tl_ledger_total(ledger, TL_BACKWARD, "mul").calls, 2);    /* square alone */
    tl_ledger_free(ledger);
    expect_true(tl_backward(tl_sum_all(h), NULL, 0)); /* the graph before h still exists */
}

static void the_same_input_twice_gets_the_gradient_twice(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4), *inputs[] = {x, x}, *grads[2];
    tl_tensor *y = tl_add(square(x), tl_scale(x, 2)); /* two contributions */
    expect_true(tl_gradients(tl_sum_all(y), NULL, inputs, 2, 0, grads));
    expect_values(grads[0], 8, 10);
    expect_values(grads[1], 8, 10);
}

/* ---- Higher derivatives ------------------------------------------------------------------------------------------ */

/* d^k f / dx^k at every element of x, by walking k times. */
static tl_tensor *derivative(tl_tensor *(*f)(tl_tensor *), tl_tensor *x, int order) {
    tl_tensor *y = f(x);
    for (int k = 0; k < order; k++)
        if (!y || !tl_gradients(tl_sum_all(y), NULL, &x, 1, TL_CREATE_GRAPH, &y)) return NULL;
    return y;
}

static tl_tensor *f_cube(tl_tensor *x) { return tl_mul(tl_mul(x, x), x); }
static tl_tensor *f_inverse(tl_tensor *x) { return tl_div(tl_ones(TL_SCALAR, TL_F64, NULL), x); }
static tl_tensor *f_exp_log(tl_tensor *x) { return tl_mul(tl_exp(x), tl_log(x)); }
static tl_tensor *f_in_place(tl_tensor *x) {
    tl_tensor *y = tl_mul(x, x);
    tl_mul_(y, x); /* the gradient of x reads the old y */
    return y;
}

static void second_and_third_derivatives_match_closed_forms(void **state) {
    (void)state;
    const double v[3] = {0.3, 0.7, 1.9};
    for (int order = 1; order <= 3; order++) {
        tl_tensor *x = leaf_of(v, TL_F64, TL_SHAPE(3));
        double want[3];
#define MATCHES(f, ...)                                                                  \
    do {                                                                                 \
        for (int i = 0; i < 3; i++) {                                                    \
            double a = v[i], d[4] = {0, __VA_ARGS__};                                    \
            want[i] = d[order];                                                          \
            (void)a;                                                                     \
        }                                                                                \
        check_values(derivative(f, x, order), want, 3, 1e-11 * 1e3, __FILE__, __LINE__); \
    } while (0)
        double t, s;
        MATCHES(f_cube, 3 * a * a, 6 * a, 6);
        MATCHES(f_in_place, 3 * a * a, 6 * a, 6);
        MATCHES(tl_exp, exp(a), exp(a), exp(a));
        MATCHES(tl_log, 1 / a, -1 / (a * a), 2 / (a * a * a));
        MATCHES(tl_sqrt, 0.5 / sqrt(a), -0.25 / (a * sqrt(a)), 0.375 / (a * a * sqrt(a)));
        MATCHES(f_inverse, -1 / (a * a), 2 / (a * a * a), -6 / (a * a * a * a));
        MATCHES(f_exp_log, exp(a) * (log(a) + 1 / a), exp(a) * (log(a) + 2 / a - 1 / (a * a)),
                exp(a) * (log(a) + 3 / a - 3 / (a * a) + 2 / (a * a * a)));
        MATCHES(tl_tanh, (t = tanh(a), 1 - t * t), (t = tanh(a), -2 * t * (1 - t * t)),
                (t = tanh(a), -2 * (1 - t * t) * (1 - 3 * t * t)));
        MATCHES(tl_sigmoid, (s = 1 / (1 + exp(-a)), s * (1 - s)), (s = 1 / (1 + exp(-a)), s * (1 - s) * (1 - 2 * s)),
                (s = 1 / (1 + exp(-a)), s * (1 - s) * (1 - 6 * s + 6 * s * s)));
#undef MATCHES
    }
}

static void a_hessian_of_a_matmul_is_exact(void **state) {
    (void)state;
    /* y = sum((A w)^2): gradient 2 A^T A w, and its gradient along v: 2 A^T A v */
    tl_tensor *a = check_from((const double[]){1, 2, 3, 4, 5, 6}, TL_F64, TL_SHAPE(3, 2)),
              *w = LEAF(TL_SHAPE(2, 1), 1, -1);
    tl_tensor *grad, *along;
    expect_true(tl_gradients(tl_sum_all(square(tl_matmul(a, w))), NULL, &w, 1, TL_CREATE_GRAPH, &grad));
    tl_tensor *gram = tl_scale(tl_matmul(tl_transpose(a, 0, 1), a), 2),
              *v = check_from((const double[]){3, 7}, TL_F64, TL_SHAPE(2, 1));
    expect_close(tl_detach(grad), tl_matmul(gram, tl_detach(w)), 0);
    expect_true(tl_gradients(grad, v, &w, 1, 0, &along));
    expect_close(along, tl_matmul(gram, v), 0);
}

static void higher_derivatives_pass_views_softmax_and_reductions(void **state) {
    (void)state;
    /* f = sum over rows of softmax(x)[0]^2 of a sliced, permuted x: compared with differences of the first
     * derivative */
    tl_tensor *x = LEAF(TL_SHAPE(3, 2), 0.1, 0.5, -0.3, 0.9, 1.3, -0.7), *grad, *second;
    tl_tensor *seed = check_from((const double[]){1, 2, 3, 4, 5, 6}, TL_F64, TL_SHAPE(3, 2));
    double step = 1e-6;
    tl_tensor *numeric[2];
    for (int sign = 0; sign < 2; sign++) {
        tl_tensor *moved = tl_requires_grad(tl_add(tl_detach(x), tl_scale(seed, sign ? step : -step)), true);
        tl_tensor *p = tl_select(tl_softmax(tl_slice(tl_transpose(moved, 0, 1), 1, -1, TL_END, -2), -1), 1, 0);
        expect_true(tl_gradients(tl_sum_all(square(p)), NULL, &moved, 1, 0, &numeric[sign]));
    }
    tl_tensor *want = tl_scale(tl_sub(numeric[1], numeric[0]), 0.5 / step);
    tl_tensor *p = tl_select(tl_softmax(tl_slice(tl_transpose(x, 0, 1), 1, -1, TL_END, -2), -1), 1, 0);
    expect_true(tl_gradients(tl_sum_all(square(p)), NULL, &x, 1, TL_CREATE_GRAPH, &grad));
    expect_true(tl_gradients(grad, seed, &x, 1, 0, &second)); /* the Hessian is symmetric */
    expect_close(second, want, 1e-8);
}

static void rules_without_a_second_derivative_say_so(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(1, 2, 1, 2), 0.5, -0.5, 0.25, 1), *grad, *second;
    tl_tensor *y = tl_attention(x, x, x, TL_CAUSAL, NULL);
    expect_true(tl_gradients(tl_sum_all(y), NULL, &x, 1, TL_CREATE_GRAPH, &grad));
    expect_refused(tl_gradients(tl_sum_all(grad), NULL, &x, 1, 0, &second),
                   "derivative for attention_grad is not implemented");
}

static void what_an_in_place_call_overwrites_is_copied_for_its_gradient(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4), *y = f_in_place(x);
    expect_values(y, 27, 64);
    expect_true(tl_backward(tl_sum_all(y), NULL, 0));
    expect_values(tl_grad_of(x), 27, 48);
}

static void backward_with_create_graph_gives_gradients_with_a_history(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4), *second;
    expect_true(tl_backward(tl_sum_all(f_cube(x)), NULL, TL_CREATE_GRAPH));
    expect_true(tl_needs_grad(tl_grad_of(x)));
    expect_true(tl_gradients(tl_sum_all(tl_grad_of(x)), NULL, &x, 1, 0, &second));
    expect_values(second, 18, 24);
    tl_zero_grad(x, false); /* x -> grad -> graph -> x is a cycle that only the user can break, as in PyTorch */
}

/* ---- Errors on the way ------------------------------------------------------------------------------------------- */

static void a_failed_pass_leaves_nothing_behind_and_the_next_works(void **state) {
    (void)state;
    tl_tensor *x = LEAF(TL_SHAPE(2), 3, 4), *y = tl_exp(x), *loss = tl_add(tl_sum_all(y), tl_sum_all(square(x)));
    tl_fill_(y, 0);
    expect_refused(tl_backward(loss, NULL, TL_RETAIN_GRAPH), "modified by an inplace operation");
    tl_zero_grad(x, false);
    struct hook_log log = {0};
    tl_set_grad_hook(x, hook_note, &log, NULL);
    expect_true(tl_backward(tl_sum_all(square(x)), NULL, 0));
    expect_values(tl_grad_of(x), 6, 8);
    expect_equal(log.n, 1); /* contributions the failed pass still owed are forgotten */
}

static void ops_of_integers_carry_no_gradient(void **state) {
    (void)state;
    tl_tensor *w = LEAF(TL_SHAPE(3, 2), 1, 2, 3, 4, 5, 6);
    int64_t ids[4] = {2, 0, 2, 2};
    tl_tensor *i = tl_from_data(ids, TL_SHAPE(4), TL_I64, NULL);
    expect_true(tl_backward(tl_sum_all(tl_embedding(w, i)), NULL, 0));
    expect_values(tl_grad_of(w), 1, 1, 0, 0, 3, 3);
    expect_true(tl_grad_of(i) == NULL && !tl_needs_grad(tl_add(i, i)));
}

static void gradients_on_meta_have_shapes(void **state) {
    (void)state;
    tl_tensor *w = tl_requires_grad(tl_ones(TL_SHAPE(3, 2), TL_BF16, check_meta()), true);
    expect_true(tl_backward(tl_sum_all(tl_matmul(tl_ones(TL_SHAPE(5, 3), TL_BF16, check_meta()), w)), NULL, 0));
    expect_shape(tl_grad_of(w), 3, 2);
    expect_equal(tl_dtype_of(tl_grad_of(w)), TL_BF16);
    expect_true(tl_device_of(tl_grad_of(w)) == check_meta());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_dropped_loss_takes_its_graph_along),
        TEST(the_graph_can_be_read),
        TEST(a_loss_alone_holds_what_backward_needs),
        TEST(backward_frees_activations_and_keeps_gradients),
        TEST(saved_results_become_activations),
        TEST(only_what_a_wanted_gradient_needs_is_saved),
        TEST(several_graphs_live_side_by_side),
        TEST(a_chain_of_100000_nodes_needs_no_recursion),
        TEST(shared_subgraphs_add_up),
        TEST(deep_diamonds_are_visited_once_each),
        TEST(a_tensor_used_twice_by_one_op_gets_both_parts),
        TEST(two_leaves_never_share_a_gradient),
        TEST(broadcasting_is_undone),
        TEST(promotion_is_undone),
        TEST(gradients_accumulate_over_passes_in_place),
        TEST(a_bf16_leaf_may_collect_in_f32),
        TEST(a_matmul_adds_into_an_existing_gradient_by_itself),
        TEST(gradients_of_views_are_added_where_the_gradient_is),
        TEST(a_second_backward_is_refused_unless_the_graph_was_kept),
        TEST(a_graph_that_saved_nothing_is_walked_again),
        TEST(seeds_weigh_the_outputs_and_are_checked),
        TEST(the_phase_and_the_mode_are_put_back),
        TEST(nothing_is_recorded_when_recording_is_off),
        TEST(requires_grad_is_for_floating_leaves),
        TEST(detach_cuts_the_graph),
        TEST(set_grad_replaces_and_zero_grad_frees_or_keeps),
        TEST(retain_grad_fills_results_too),
        TEST(hooks_are_called_once_when_complete_in_order_of_completion),
        TEST(a_hook_lets_its_context_go_once),
        TEST(hooks_see_the_sum_with_earlier_passes),
        TEST(leaves_and_their_views_refuse_in_place_changes),
        TEST(in_place_on_a_result_is_recorded),
        TEST(in_place_with_a_constant_ends_the_gradient_there),
        TEST(in_place_on_a_plain_tensor_makes_it_part_of_the_graph),
        TEST(a_change_of_the_base_is_seen_by_its_views),
        TEST(a_change_of_a_view_is_seen_by_base_and_siblings),
        TEST(a_chain_of_changes_through_views_of_views),
        TEST(views_made_without_recording_may_not_be_changed_with_it),
        TEST(a_saved_tensor_that_was_changed_is_an_error),
        TEST(an_update_between_forward_and_backward_is_noticed),
        TEST(a_failed_in_place_call_changes_nothing_in_the_graph),
        TEST(gradients_are_returned_and_leave_grad_alone),
        TEST(gradients_with_respect_to_a_result_do_not_go_behind_it),
        TEST(the_same_input_twice_gets_the_gradient_twice),
        TEST(second_and_third_derivatives_match_closed_forms),
        TEST(a_hessian_of_a_matmul_is_exact),
        TEST(higher_derivatives_pass_views_softmax_and_reductions),
        TEST(rules_without_a_second_derivative_say_so),
        TEST(what_an_in_place_call_overwrites_is_copied_for_its_gradient),
        TEST(backward_with_create_graph_gives_gradients_with_a_history),
        TEST(a_failed_pass_leaves_nothing_behind_and_the_next_works),
        TEST(ops_of_integers_carry_no_gradient),
        TEST(gradients_on_meta_have_shapes),
    };
    return cmocka_run_group_tests_name("autograd", tests, NULL, NULL);
}

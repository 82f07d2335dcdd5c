/* Scopes own, the first error wins: who owns a tensor and for how long, closing in the wrong order, errors for a
 * tensor that is used too late, and the contents of messages. */
#include "support/check.h"

#include "account/ledger.h"
#include "account/path.h"
#include "base/error.h"

#include <signal.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t live(void) { return tl_device_memory(check_cpu()).live_tensors; }
static tl_tensor *one(void) { return tl_ones(TL_SHAPE(1), TL_F32, NULL); }

/* ---- Ownership --------------------------------------------------------------------------------------- */

static void a_scope_takes_its_tensors_along(void **state) {
    (void)state;
    tl_scope scope = tl_scope_begin();
    one(), one(), one();
    expect_equal(live(), 3);
    expect_true(tl_scope_end(scope));
    expect_equal(live(), 0);
}

static void return_hands_one_tensor_outwards(void **state) {
    (void)state;
    tl_scope outer = tl_scope_begin(), inner = tl_scope_begin();
    tl_tensor *x = one();
    one();
    expect_true(tl_scope_return(inner, x) == x);
    expect_equal(live(), 1);
    expect_values(x, 1);
    tl_scope_end(outer);
    expect_equal(live(), 0);
}

static void return_of_an_outer_tensor_or_of_nothing_is_fine(void **state) {
    (void)state;
    tl_scope outer = tl_scope_begin();
    tl_tensor *x = one();
    tl_scope inner = tl_scope_begin();
    expect_true(tl_scope_return(inner, x) == x);
    inner = tl_scope_begin();
    one();
    expect_true(tl_scope_return(inner, NULL) == NULL);
    expect_ok();
    expect_equal(live(), 1);
    tl_scope_end(outer);
    expect_equal(live(), 0);
}

static void return_through_many_scopes_moves_the_same_tensor(void **state) {
    (void)state;
    tl_scope scopes[100];
    for (int i = 0; i < 100; i++) scopes[i] = tl_scope_begin();
    tl_tensor *x = one();
    for (int i = 99; i >= 0; i--) {
        one();
        x = tl_scope_return(scopes[i], x);
    }
    expect_equal(live(), 1);
    expect_values(x, 1);
}

static void keep_outlives_the_scope_until_drop(void **state) {
    (void)state;
    tl_scope scope = tl_scope_begin();
    tl_tensor *x = tl_keep(tl_keep(one()));
    tl_scope_end(scope);
    expect_equal(live(), 1);
    tl_drop(x);
    expect_values(x, 1);
    tl_drop(x);
    expect_equal(live(), 0);
    tl_drop(NULL);
    expect_ok();
}

static void outside_all_scopes_tensors_wait_for_the_reset(void **state) {
    (void)state;
    one();
    tl_scope scope = tl_scope_begin();
    one();
    tl_scope_end(scope);
    expect_equal(live(), 1);
    tl_scope_begin();
    tl_scope_enter("left open");
    one();
    expect_equal(live(), 2);
    tl_scope_reset();
    expect_equal(live(), 0);
    expect_text(tl_path(), "");
}

static void temporaries_of_an_expression_die_with_their_scope(void **state) {
    (void)state;
    tl_tensor *x = tl_ones(TL_SHAPE(8, 8), TL_F32, NULL);
    tl_scope scope = tl_scope_begin();
    tl_tensor *y = tl_scope_return(scope, tl_gelu(tl_matmul(tl_add(x, x), tl_transpose(x, 0, 1))));
    expect_shape(y, 8, 8);
    expect_equal(live(), 2);
}

/* ---- Wrong order --------------------------------------------------------------------------------------- */

static void closing_the_outer_scope_first_is_refused_and_closes_nothing(void **state) {
    (void)state;
    tl_scope outer = tl_scope_begin(), middle = tl_scope_begin(), inner = tl_scope_begin();
    one();
    expect_refused(tl_scope_end(outer), "scopes close in reverse order: 2 opened inside this one are still open");
    expect_refused(tl_scope_return(middle, NULL), "1 opened inside this one is still open");
    expect_equal(live(), 1);
    expect_true(tl_scope_end(inner) && tl_scope_end(middle) && tl_scope_end(outer));
}

static void closing_twice_is_refused(void **state) {
    (void)state;
    tl_scope outer = tl_scope_begin(), scope = tl_scope_begin();
    expect_true(tl_scope_end(scope));
    expect_refused(tl_scope_end(scope), "this scope is not open");
    tl_scope again = tl_scope_begin(); /* the same depth, another scope */
    expect_refused(tl_scope_end(scope), "this scope is not open");
    expect_true(tl_scope_end(again) && tl_scope_end(outer));
    expect_refused(tl_scope_end((tl_scope){0, 0}), "this scope is not open");
    expect_refused(tl_scope_end((tl_scope){7, 7}), "this scope is not open");
}

/* ---- Use after the end ----------------------------------------------------------------------------------- */

#define GONE "this tensor is gone: the scope that owned it has ended"

static void use_after_the_scope_is_an_error_in_every_kind_of_call(void **state) {
    (void)state;
    tl_scope scope = tl_scope_begin();
    tl_tensor *x = tl_ones(TL_SHAPE(2, 2), TL_F32, NULL), *fine;
    tl_scope_end(scope);
    fine = tl_ones(TL_SHAPE(2, 2), TL_F32, NULL);
    expect_refused(tl_add(x, fine), "add: " GONE);
    expect_refused(tl_add(fine, x), "add: " GONE);
    expect_refused(tl_relu_(x), GONE);
    expect_refused(tl_matmul(fine, x), GONE);
    expect_refused(tl_sum_all(x), GONE);
    expect_refused(tl_select(x, 0, 0), GONE);
    expect_refused(tl_reshape(x, TL_SHAPE(4)), GONE);
    expect_refused(tl_keep(x), GONE);
    expect_refused(tl_detach(x), GONE);
    expect_refused(tl_requires_grad(x, true), GONE);
    expect_refused(tl_grad_of(x), GONE);
    expect_refused(tl_set_grad(fine, x), GONE);
    expect_refused(tl_backward(x, NULL, 0), GONE);
    expect_refused(tl_rank(x), GONE);
    expect_refused(tl_shape(x), GONE);
    expect_refused(tl_data(x), GONE);
    expect_refused(tl_to_data(x, NULL, 0), GONE);
    expect_refused(tl_ones_like(x), GONE);
    expect_refused(tl_cast(x, TL_F64), GONE);
    expect_refused(tl_softmax(x, -1), GONE);
    expect_refused(tl_layer_norm(fine, x, x, 1e-5), GONE);
    expect_refused(tl_dropout(x, 0.5), GONE);
    tl_drop(x);
    expect_error(TL_ERROR_USE, "tl_drop: " GONE);
    tl_item(x);
    expect_error(TL_ERROR_USE, GONE);
}

static void use_after_the_scope_is_noticed_after_50_other_tensors(void **state) {
    (void)state;
    tl_scope scope = tl_scope_begin();
    tl_tensor *x = tl_ones(TL_SHAPE(2, 2), TL_F32, NULL), *view = tl_transpose(x, 0, 1);
    tl_scope_end(scope);
    for (int i = 0; i < 50; i++) {
        scope = tl_scope_begin();
        one();
        tl_scope_end(scope);
    }
    for (int i = 0; i < 50; i++) one();
    expect_refused(tl_add(x, x), GONE);
    expect_refused(tl_add(view, view), GONE);
}

static void use_after_the_scope_is_noticed_at_any_rank(void **state) {
    (void)state;
    int64_t ones[TL_MAX_RANK];
    for (int i = 0; i < TL_MAX_RANK; i++) ones[i] = 1;
    for (int rank = 0; rank <= TL_MAX_RANK; rank++) {
        tl_scope scope = tl_scope_begin();
        tl_tensor *x = tl_ones(rank, ones, TL_F32, NULL);
        tl_scope_end(scope);
        for (int i = 0; i < 50; i++) one();
        expect_refused(tl_neg(x), GONE);
    }
}

static void a_view_keeps_values_but_not_the_handle_of_its_base(void **state) {
    (void)state;
    tl_scope scope = tl_scope_begin();
    tl_tensor *x = check_counting(TL_SHAPE(3)), *copy = tl_scale(x, 2), *view = tl_slice(copy, 0, 1, 3, 1);
    tl_scope_return(scope, view);
    expect_values(view, 2, 4);
    expect_refused(tl_neg(x), GONE);
}

static void returning_a_tensor_that_is_gone_is_an_error_and_still_closes(void **state) {
    (void)state;
    tl_scope first = tl_scope_begin();
    tl_tensor *x = one();
    tl_scope_end(first);
    tl_scope outer = tl_scope_begin(), inner = tl_scope_begin();
    one();
    expect_refused(tl_scope_return(inner, x), "tl_scope_return: " GONE);
    expect_equal(live(), 0);
    expect_true(tl_scope_end(outer));
}

/* ---- Errors ------------------------------------------------------------------------------------------------ */

static void the_first_error_wins_until_cleared(void **state) {
    (void)state;
    tl_tensor *x = tl_ones(TL_SHAPE(4, 6), TL_F32, NULL);
    expect_equal(tl_error(), TL_OK);
    expect_text(tl_error_message(), "");
    tl_matmul(x, x);
    tl_select(x, 5, 0);
    tl_device_find("tpu");
    expect_equal(tl_error(), TL_ERROR_USE);
    expect_text(tl_error_message(), "matmul: mat1 and mat2 shapes cannot be multiplied (4x6 and 4x6): f32[4,6]@cpu x "
                                    "f32[4,6]@cpu (need [m,k] x [k,n])");
    tl_error_clear();
    expect_equal(tl_error(), TL_OK);
    expect_text(tl_error_message(), "");
    tl_select(x, 5, 0);
    expect_error(TL_ERROR_USE, "select");
}

static void null_in_gives_null_out_without_a_second_error(void **state) {
    (void)state;
    tl_tensor *x = tl_ones(TL_SHAPE(4, 6), TL_F32, NULL);
    tl_tensor *wrong = tl_gelu(tl_matmul(x, x)); /* named: C does not say which argument is evaluated first */
    tl_tensor *y = tl_add(wrong, tl_softmax(tl_reshape(NULL, TL_SHAPE(1)), -1));
    expect_true(y == NULL);
    expect_true(tl_mul_(NULL, x) == NULL && tl_select(NULL, 0, 0) == NULL && tl_sum_all(NULL) == NULL);
    expect_true(tl_layer_norm(NULL, NULL, NULL, 0) == NULL && tl_attention(NULL, NULL, NULL, TL_CAUSAL, NULL) == NULL);
    expect_true(tl_embedding(NULL, NULL) == NULL && tl_cross_entropy(NULL, NULL, NULL) == NULL &&
                tl_rope(NULL, 1, 0, NULL) == NULL);
    expect_true(tl_linear(NULL, NULL, NULL) == NULL && tl_where(NULL, NULL, NULL) == NULL &&
                tl_cast(NULL, TL_F32) == NULL);
    expect_true(tl_swiglu(NULL, NULL) == NULL && tl_mse_loss(NULL, NULL, TL_REDUCE_MEAN) == NULL &&
                tl_dropout(NULL, 0.1) == NULL);
    expect_true(tl_keep(NULL) == NULL && tl_requires_grad(NULL, true) == NULL && tl_detach(NULL) == NULL);
    expect_true(!tl_backward(NULL, NULL, 0) && !tl_set_grad(NULL, NULL) && tl_copy_(NULL, NULL) == NULL);
    expect_true(tl_item(NULL) == 0 && tl_numel(NULL) == 0 && tl_nonzero(NULL) == NULL &&
                tl_rms_norm(NULL, NULL, 0) == NULL);
    expect_error(TL_ERROR_USE, "matmul: mat1 and mat2 shapes cannot be multiplied");
    expect_refused(tl_add(NULL, x), "add: got NULL instead of a tensor");
}

static void messages_have_path_op_operands_and_need(void **state) {
    (void)state;
    tl_scope model = tl_scope_enter("model"), block = tl_scope_enter("blocks.3"), attention = tl_scope_enter("attn");
    tl_tensor *x = tl_ones(TL_SHAPE(4, 6), TL_F32, NULL);
    tl_matmul(x, x);
    expect_text(tl_error_message(), "model.blocks.3.attn: matmul: mat1 and mat2 shapes cannot be multiplied (4x6 and "
                                    "4x6): f32[4,6]@cpu x f32[4,6]@cpu (need [m,k] x [k,n])");
    tl_error_clear();
    tl_select(x, 7, 0);
    expect_error(TL_ERROR_USE, "model.blocks.3.attn: select: Dimension out of range");
    tl_view(x, TL_SHAPE(5));
    expect_error(TL_ERROR_USE, "model.blocks.3.attn: view: shape '[5]' is invalid for input of size 24");
    tl_zeros(TL_SHAPE(-1), TL_F32, NULL);
    expect_error(TL_ERROR_USE, "model.blocks.3.attn: full: shape [-1] is negative or too large");
    tl_sum(x, (int[]){2}, 1, false);
    expect_error(TL_ERROR_USE, "model.blocks.3.attn: sum: Dimension out of range");
    tl_scope_end(attention), tl_scope_end(block), tl_scope_end(model);
}

static void long_messages_are_cut_and_stay_text(void **state) {
    (void)state;
    char name[5000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    tl_scope scope = tl_scope_enter(name);
    expect_equal(strlen(tl_path()), sizeof name - 1);
    tl_select(one(), 5, 0);
    expect_equal(tl_error(), TL_ERROR_USE);
    expect_true(strlen(tl_error_message()) < 2000 && tl_error_message()[0] == 'n');
    tl_error_clear();
    tl_scope_end(scope);
}

/* The child's stderr and how it ended. */
static int run_in_child(void (*body)(void), char *text, size_t size) {
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], 2);
        close(ends[0]);
        body();
        _exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t n; used + 1 < size && (n = read(ends[0], text + used, size - 1 - used)) > 0;) used += (size_t)n;
    text[used] = 0;
    close(ends[0]);
    waitpid(child, &status, 0);
    return status;
}

static void misuse_under_abort(void) {
    tl_set_error_policy(TL_ABORT);
    tl_tensor *x = tl_ones(TL_SHAPE(4, 6), TL_F32, NULL);
    tl_matmul(x, x);
}
static void misuse_under_return(void) {
    tl_set_error_policy(TL_RETURN);
    tl_tensor *x = tl_ones(TL_SHAPE(4, 6), TL_F32, NULL);
    tl_matmul(x, x);
}

static void policy_abort_aborts_with_the_message_and_return_is_silent(void **state) {
    (void)state;
    char text[2000];
    int status = run_in_child(misuse_under_abort, text, sizeof text);
    expect_true(WIFSIGNALED(status));
    expect_equal(WTERMSIG(status), SIGABRT);
    expect_true(strstr(text, "tally: matmul: mat1 and mat2 shapes cannot be multiplied") != NULL);
    status = run_in_child(misuse_under_return, text, sizeof text);
    expect_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    expect_text(text, "");
    expect_equal(tl_set_error_policy(TL_RETURN), TL_RETURN);
}

static void policy_is_abort_until_somebody_changes_it(void **state) {
    (void)state;
    expect_equal(tl_set_error_policy(TL_RETURN), TL_ABORT); /* the first test of this process */
    expect_equal(tl_set_error_policy(TL_RETURN), TL_RETURN);
}

static void log_note(const char *line, void *context) { snprintf(context, 600, "%s", line); }

static void notes_go_to_the_log_hook_and_nowhere_else(void **state) {
    (void)state;
    char line[600] = "";
    log_line("unheard");
    tl_set_log_hook(log_note, line);
    log_line("%d of %s", 3, "x");
    expect_text(line, "3 of x");
    char longer[1000];
    memset(longer, 'y', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    log_line("%s", longer);
    expect_equal(strlen(line), 511);
    tl_set_log_hook(NULL, NULL);
    log_line("unheard");
    expect_equal(strlen(line), 511);
}

/* ---- Paths --------------------------------------------------------------------------------------------------- */

static void paths_join_with_dots_and_fall_back(void **state) {
    (void)state;
    expect_text(tl_path(), "");
    tl_scope a = tl_scope_enter("model"), b = tl_scope_enter("blocks.3"), plain = tl_scope_begin();
    expect_text(tl_path(), "model.blocks.3");
    tl_scope c = tl_scope_enter("ln \"1\" \xc3\xa9");
    expect_text(tl_path(), "model.blocks.3.ln \"1\" \xc3\xa9");
    tl_scope_end(c), tl_scope_end(plain), tl_scope_end(b);
    expect_text(tl_path(), "model");
    tl_scope same = tl_scope_enter("");
    expect_text(tl_path(), "model");
    tl_scope_end(same), tl_scope_end(a);
    expect_text(tl_path(), "");
    tl_scope bad = tl_scope_enter("a\nb");
    expect_error(TL_ERROR_USE, "control characters");
    expect_equal(bad.depth, 0);
    const char *const wrong[] = {"\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80", "a\xe2\x82"}; /* no UTF-8 */
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        expect_equal(tl_scope_enter(wrong[i]).depth, 0);
        expect_error(TL_ERROR_USE, "UTF-8");
    }
}

static void many_paths_stay_apart(void **state) {
    (void)state;
    char name[32], want[32];
    for (int i = 0; i < 10000; i++) {
        snprintf(name, sizeof name, "p%d", i);
        tl_scope scope = tl_scope_enter(name);
        if (i % 997 == 0) expect_text(tl_path(), name);
        tl_scope_end(scope);
    }
    tl_scope p = tl_scope_enter("p4321"), q = tl_scope_enter("p1");
    snprintf(want, sizeof want, "p4321.p1");
    expect_text(tl_path(), want);
    tl_scope_end(q), tl_scope_end(p);
}

static void work_is_billed_to_the_path_it_was_done_under(void **state) {
    (void)state;
    tl_scope outer = tl_scope_begin();
    tl_ledger *ledger = tl_ledger_begin("paths");
    tl_tensor *x = tl_requires_grad(one(), true), *loss;
    tl_scope a = tl_scope_enter("a");
    loss = tl_scope_return(a, tl_mul(x, x));
    tl_scope b = tl_scope_enter("b");
    expect_true(tl_backward(loss, NULL, 0)); /* the backward of mul belongs to "a" */
    tl_scope_end(b);
    tl_ledger_end(ledger);
    int muls_at_a = 0, backward_at_a = 0, at_b = 0;
    for (size_t i = 0; i < ledger->n_rows; i++) {
        const struct ledger_key *key = &ledger->rows[i].key;
        bool is_a = !strcmp(path_text(key->path), "a"), is_mul = !strcmp(key->op, "mul");
        if (is_a && is_mul && key->phase == TL_FORWARD) muls_at_a += (int)ledger->rows[i].calls;
        if (is_a && is_mul && key->phase == TL_BACKWARD) backward_at_a += (int)ledger->rows[i].calls;
        if (!strcmp(path_text(key->path), "b")) at_b += (int)ledger->rows[i].calls;
    }
    expect_equal(muls_at_a, 1);
    expect_equal(backward_at_a, 2); /* g x, twice: x is both factors */
    expect_equal(at_b, 1);          /* the seed, which belongs to the caller */
    tl_ledger_free(ledger);
    tl_scope_end(outer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policy_is_abort_until_somebody_changes_it),
        TEST(a_scope_takes_its_tensors_along),
        TEST(return_hands_one_tensor_outwards),
        TEST(return_of_an_outer_tensor_or_of_nothing_is_fine),
        TEST(return_through_many_scopes_moves_the_same_tensor),
        TEST(keep_outlives_the_scope_until_drop),
        TEST(outside_all_scopes_tensors_wait_for_the_reset),
        TEST(temporaries_of_an_expression_die_with_their_scope),
        TEST(closing_the_outer_scope_first_is_refused_and_closes_nothing),
        TEST(closing_twice_is_refused),
        TEST(use_after_the_scope_is_an_error_in_every_kind_of_call),
        TEST(use_after_the_scope_is_noticed_after_50_other_tensors),
        TEST(use_after_the_scope_is_noticed_at_any_rank),
        TEST(a_view_keeps_values_but_not_the_handle_of_its_base),
        TEST(returning_a_tensor_that_is_gone_is_an_error_and_still_closes),
        TEST(the_first_error_wins_until_cleared),
        TEST(null_in_gives_null_out_without_a_second_error),
        TEST(messages_have_path_op_operands_and_need),
        TEST(long_messages_are_cut_and_stay_text),
        TEST(policy_abort_aborts_with_the_message_and_return_is_silent),
        TEST(notes_go_to_the_log_hook_and_nowhere_else),
        TEST(paths_join_with_dots_and_fall_back),
        TEST(many_paths_stay_apart),
        TEST(work_is_billed_to_the_path_it_was_done_under),
    };
    return cmocka_run_group_tests_name("scope", tests, NULL, NULL);
}

/* Every allocation of a training step fails once, or from there on forever: a clean error, nothing left behind, and
 * the library works as before. */
#include "support/check.h"
#include "support/step.h"

#include <stdio.h>
#include <string.h>

enum { N_STEPS = 1 };

static void expect_clean(uint64_t n) {
    tl_device *devices[] = {check_cpu(), check_meta()};
    for (int d = 0; d < 2; d++) {
        tl_memory m = tl_device_memory(devices[d]);
        if (m.live_bytes || m.live_tensors || m.allocated_bytes)
            fail_msg("after failure %llu: %llu bytes in %llu storages are live on %s, want 0 and 0",
                     (unsigned long long)n, (unsigned long long)m.live_bytes, (unsigned long long)m.live_tensors,
                     tl_device_name(devices[d]));
    }
    if (!tl_set_grad_mode(true)) fail_msg("after failure %llu: recording is off", (unsigned long long)n);
    if (tl_set_phase(TL_FORWARD) != TL_FORWARD)
        fail_msg("after failure %llu: the phase was not put back", (unsigned long long)n);
    if (*tl_path()) fail_msg("after failure %llu: the path is \"%s\"", (unsigned long long)n, tl_path());
    if (tl_set_default_device(NULL) != check_cpu())
        fail_msg("after failure %llu: the default device was not put back", (unsigned long long)n);
}

/* Fails allocation 1, 2, 3, ... until the run needs fewer. Returns how many there are. */
static uint64_t walk(bool (*body)(void *), void *context, bool forever, bool from_empty_pool) {
    for (uint64_t n = 1;; n++) {
        if (from_empty_pool) tl_pool_trim(check_cpu()), tl_pool_trim(check_meta());
        tl_fail_allocation(n, forever);
        bool ok = body(context);
        uint64_t asked = tl_fail_allocation(0, false);
        if (!ok && tl_error() != TL_ERROR_MEMORY)
            fail_msg("failure %llu: got error %d \"%s\", want out of memory", (unsigned long long)n, (int)tl_error(),
                     tl_error_message());
        if (!ok && !strstr(tl_error_message(), "out of"))
            fail_msg("failure %llu: the message is \"%s\"", (unsigned long long)n, tl_error_message());
        if (ok && tl_error() != TL_OK)
            fail_msg("failure %llu: success, but an error is pending: %s", (unsigned long long)n, tl_error_message());
        tl_error_clear();
        expect_clean(n);
        if (asked < n) {
            expect_true(ok);
            return n;
        }
    }
}

struct training {
    tl_device *device;
    enum step_checkpoint checkpoint;
    double want;
};

/* Also true if the fault hit an optional allocation: then the result must be right. */
static bool train(void *context) {
    const struct training *t = context;
    double loss;
    if (!step_train(t->device, 42, N_STEPS, t->checkpoint, &loss)) return false;
    if (loss != t->want) fail_msg("got loss %.17g, want %.17g", loss, t->want);
    return true;
}

static void train_with_faults(tl_device *device, enum step_checkpoint checkpoint, bool from_empty_pool) {
    struct training t = {.device = device, .checkpoint = checkpoint};
    expect_true(step_train(device, 42, N_STEPS, checkpoint, &t.want));
    uint64_t once = walk(train, &t, false, from_empty_pool), forever = walk(train, &t, true, from_empty_pool);
    expect_equal(once, forever);
    expect_true(once > 100); /* it is a real step, and faults were on */
    expect_true(train(&t));
}

static void a_plain_step_survives_every_failure(void **state) {
    (void)state;
    train_with_faults(check_cpu(), STEP_PLAIN, false);
}
static void a_checkpointed_step_survives_every_failure(void **state) {
    (void)state;
    train_with_faults(check_cpu(), STEP_FULL, false);
}
static void a_selectively_checkpointed_step_survives_every_failure(void **state) {
    (void)state;
    train_with_faults(check_cpu(), STEP_SELECTIVE, false);
}
static void a_priced_step_survives_every_failure(void **state) {
    (void)state;
    train_with_faults(check_meta(), STEP_SELECTIVE, false);
}
static void a_step_from_an_empty_pool_survives_every_failure_of_a_segment(void **state) {
    (void)state;
    train_with_faults(check_cpu(), STEP_PLAIN, true);
}

/* ---- Calls outside a step ------------------------------------------------------------------------------------- */

static bool views_and_in_place(void *context) {
    (void)context;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    tl_tensor *x = tl_requires_grad(tl_ones(TL_SHAPE(4, 4), TL_F32, NULL), true), *y = tl_scale(x, 2);
    tl_tensor *view = tl_select(tl_transpose(y, 0, 1), 0, 1), *other = tl_slice(y, 0, -1, TL_END, -2);
    tl_mul_(view, tl_clone(view));
    tl_copy_(tl_diagonal(y, 0, 0, 1), tl_sum(x, (int[]){0}, 1, false));
    tl_retain_grad(y);
    tl_tensor *loss = tl_add(tl_sum_all(tl_exp(other)), tl_mean_all(tl_where(tl_cmp(y, TL_GT, x), y, x)));
    bool ok = loss && tl_backward(loss, NULL, TL_RETAIN_GRAPH) && tl_backward(loss, NULL, 0) && tl_error() == TL_OK;
    tl_tensor *found = ok ? tl_nonzero(x) : NULL;
    if (found && tl_numel(found) != 32) fail_msg("nonzero found %lld numbers, want 32", (long long)tl_numel(found));
    ok = found != NULL;
    return tl_scope_end(scope) && ok && tl_error() == TL_OK;
}

static bool higher_derivatives(void *context) {
    (void)context;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    tl_tensor *x = tl_requires_grad(tl_full(TL_SHAPE(3), 2, TL_F64, NULL), true), *inputs[2], *first[2], *second;
    tl_tensor *h = tl_mul(x, x);
    inputs[0] = x;
    inputs[1] = h;
    tl_tensor *y = tl_sum_all(tl_add(tl_mul(h, x), tl_tanh(x)));
    bool ok = y && tl_gradients(y, NULL, inputs, 2, TL_CREATE_GRAPH, first) &&
              tl_gradients(tl_sum_all(first[0]), NULL, &x, 1, 0, &second) && tl_at(second, (int64_t[]){0}) != 0;
    return tl_scope_end(scope) && ok && tl_error() == TL_OK;
}

static bool bookkeeping(void *context) {
    static int attempt; /* a new path each time, since paths are kept forever */
    bool ok = false;
    char name[32];
    (void)context;
    snprintf(name, sizeof name, "fault %d", attempt++);
    tl_ledger *outer = tl_ledger_begin("outer"), *inner = outer ? tl_ledger_begin("inner") : NULL;
    tl_scope scope = tl_scope_enter(name);
    if (inner && scope.depth) {
        tl_tensor *x = tl_ones(TL_SHAPE(5), TL_F32, NULL);
        tl_tensor *kept = tl_keep(tl_set_purpose(tl_neg(x), TL_DATA));
        char data[20];
        ok = kept && tl_to_data(tl_slice(kept, 0, -1, TL_END, -1), data, sizeof data);
        tl_drop(kept);
    }
    if (scope.depth) ok = tl_scope_end(scope) && ok;
    tl_ledger_free(inner);
    ok = outer && tl_ledger_end(outer) && ok && tl_error() == TL_OK;
    tl_ledger_free(outer);
    return ok;
}

static void views_changes_and_two_passes_survive_every_failure(void **state) {
    (void)state;
    walk(views_and_in_place, NULL, false, false);
    walk(views_and_in_place, NULL, true, false);
}
static void higher_derivatives_survive_every_failure(void **state) {
    (void)state;
    walk(higher_derivatives, NULL, false, false);
    walk(higher_derivatives, NULL, true, false);
}
static void ledgers_and_paths_survive_every_failure(void **state) {
    (void)state;
    walk(bookkeeping, NULL, false, true);
    walk(bookkeeping, NULL, true, true);
}

static bool attention_fn(void *context, tl_tensor **in, int n_in, tl_tensor **out, int n_out) {
    (void)context, (void)n_in, (void)n_out;
    out[0] = tl_attention(in[0], in[0], tl_tanh(in[1]), NULL, NULL);
    out[1] = tl_matmul(tl_flatten(in[0], 0, 2), tl_transpose(tl_flatten(in[1], 0, 2), 0, 1));
    return out[0] && out[1];
}

static bool selective_twice(void *context) {
    (void)context;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    tl_tensor *x = tl_requires_grad(tl_ones(TL_SHAPE(1, 3, 1, 4), TL_F32, NULL), true), *h = tl_scale(x, 2),
              *in[2] = {h, h}, *out[2];
    bool ok = h && tl_checkpoint(attention_fn, in, sizeof in, TL_KEEP_MATMULS, in, 2, out, 2);
    tl_tensor *loss = ok ? tl_add(tl_sum_all(out[0]), tl_sum_all(out[1])) : NULL;
    ok = loss && tl_backward(loss, NULL, TL_RETAIN_GRAPH) && tl_backward(loss, NULL, 0);
    return tl_scope_end(scope) && ok && tl_error() == TL_OK;
}

static void a_kept_and_replayed_checkpoint_survives_every_failure(void **state) {
    (void)state;
    walk(selective_twice, NULL, false, false);
    walk(selective_twice, NULL, true, false);
}

static void the_limit_of_the_pool_is_met_cleanly_at_every_size(void **state) {
    (void)state;
    struct training t = {.device = check_cpu(), .checkpoint = STEP_PLAIN};
    expect_true(step_train(t.device, 42, N_STEPS, t.checkpoint, &t.want));
    tl_pool_trim(check_cpu());
    tl_set_pool_limit(check_cpu(), 1 << 20); /* less than one segment */
    expect_true(!train(&t));
    expect_error(TL_ERROR_MEMORY, "its pool may reserve 1048576 bytes");
    expect_clean(0);
    tl_set_pool_limit(check_cpu(), 0);
    expect_true(train(&t));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_plain_step_survives_every_failure),
        TEST(a_checkpointed_step_survives_every_failure),
        TEST(a_selectively_checkpointed_step_survives_every_failure),
        TEST(a_priced_step_survives_every_failure),
        TEST(a_step_from_an_empty_pool_survives_every_failure_of_a_segment),
        TEST(views_changes_and_two_passes_survive_every_failure),
        TEST(higher_derivatives_survive_every_failure),
        TEST(ledgers_and_paths_survive_every_failure),
        TEST(a_kept_and_replayed_checkpoint_survives_every_failure),
        TEST(the_limit_of_the_pool_is_met_cleanly_at_every_size),
    };
    return cmocka_run_group_tests_name("faults", tests, NULL, NULL);
}

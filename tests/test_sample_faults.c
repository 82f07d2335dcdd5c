/* test_sample_faults.c: every allocation of every sample call, forward and backward, fails once: a clean error, and nothing is
 * left behind. */
#include "support/samples.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static tl_device *cpu;

static bool run(const struct sample *s, uint64_t n, uint64_t *asked) {
    tl_tensor *in[SAMPLE_INPUTS] = {0}, *out[SAMPLE_OUTPUTS] = {0};
    tl_scope scope = tl_scope_begin();
    tl_seed(1234);
    if (!sample_inputs(s, cpu, TL_F32, true, LAY_COUNT, in)) fail_msg("%s: inputs: %s", s->text, tl_error_message());
    tl_fail_allocation(n, false);
    bool ok = sample_call(s, in, out) > 0;
    if (ok && (s->flags & GRAD) && tl_needs_grad(out[0])) {
        tl_tensor *seed = tl_ones_like(out[0]);
        ok = seed && tl_backward(out[0], seed, 0);
    }
    *asked = tl_fail_allocation(0, false);
    tl_scope_end(scope);
    return ok;
}

static void every_sample_survives_every_failure(void **state) {
    (void)state;
    uint64_t n_calls = 0;
    for (const struct sample_op *op = sample_ops; op->name; op++)
        for (const struct sample *s = op->samples; s->text; s++) {
            if (s->error || (s->flags & LARGE) || (s->dtypes && !(s->dtypes & DT(TL_F32)))) continue;
            bool has_failed = true;
            for (uint64_t n = 1, asked; has_failed; n++, n_calls++) {
                bool ok = run(s, n, &asked);
                has_failed = asked >= n;
                if (ok && tl_error() != TL_OK)
                    fail_msg("%s, %s, failure %d: success, and %s", op->name, s->text, (int)n, tl_error_message());
                if (!ok && (tl_error() != TL_ERROR_MEMORY || !strstr(tl_error_message(), "out of")))
                    fail_msg("%s, %s, failure %d: got \"%s\", want out of memory", op->name, s->text, (int)n,
                             tl_error_message());
                tl_error_clear();
                assert_nothing_held(s->text, cpu);
                if (!tl_grad_mode(true)) fail_msg("%s, %s: recording is off", op->name, s->text);
                if (tl_set_phase(TL_FORWARD) != TL_FORWARD) fail_msg("%s, %s: another phase", op->name, s->text);
            }
        }
    print_message("    %llu calls\n", (unsigned long long)n_calls);
    assert_true(n_calls > 1000);
}

static int setup(void **state) {
    (void)state;
    tl_error_policy(TL_RETURN);
    cpu = tl_device_find("cpu");
    return cpu ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_sample_survives_every_failure)};
    return cmocka_run_group_tests(tests, setup, NULL);
}

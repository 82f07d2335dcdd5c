/* test_sample_faults.c: every sample call, forward and backward, with every allocation and every kernel failing once.
 * A clean error, and a call that fails leaves nothing. A sample is often several calls, some of which have succeeded:
 * the state after a failure depends on those alone, wherever the failing one failed. */
#include "support/samples.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "account/path.h"
#include "engine/graph.h"
#include "engine/scope.h"
#include "ops/ops.h"

static tl_device *cpu;

/* ---- Kernels, watched -------- */

static const tl_kernel *real_kernels;
static tl_kernel watched_kernels[OP_COUNT];
static uint64_t n_kernels, kernel_to_fail; /* counted since the last plan; 0: none is to fail */
static uint64_t n_succeeded[OP_COUNT];

static int op_by_name(const char *name) {
    int id = 0;
    while (id < OP_COUNT && strcmp(op_table[id]->name, name) != 0) id++;
    assert_true(id < OP_COUNT);
    return id;
}

/* A dense operand that the call overwrites: its bytes, to be freed. */
static void *overwritten_bytes(const tl_kernel_args *args, size_t *bytes) {
    int64_t numel = 1;
    bool is_input = false;
    if (!args->n_out || !dtype_info(args->out[0].dtype)) return NULL;
    for (int i = 0; i < args->n_in; i++) is_input |= args->in[i].data == args->out[0].data;
    for (int a = args->out[0].rank - 1; a >= 0; a--) {
        if (args->out[0].shape[a] != 1 && args->out[0].stride[a] != numel) return NULL;
        numel *= args->out[0].shape[a];
    }
    *bytes = (size_t)numel * (size_t)dtype_info(args->out[0].dtype)->bits / 8;
    void *copy = is_input ? malloc(*bytes + 1) : NULL;
    if (copy && *bytes) memcpy(copy, args->out[0].data, *bytes);
    return copy;
}

static bool watched(const tl_kernel_args *args) {
    const int id = op_by_name(args->op);
    if (++n_kernels == kernel_to_fail) {
        tl_fail_allocation(1, true); /* and nothing succeeds after it */
        return snprintf(args->error, 200, "it was planned to fail") < 0;
    }
    size_t bytes = 0;
    void *before = overwritten_bytes(args, &bytes);
    const bool ok = real_kernels[id](args);
    if (ok) n_succeeded[id]++;
    else if (before && memcmp(before, args->out[0].data, bytes) != 0)
        fail_msg("%s wrote to its operand, and failed", args->op);
    free(before);
    return ok;
}

/* ---- What is left -------- */

static uint64_t hash(uint64_t sum, const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) sum = (sum ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return sum;
}

#define STATE_BYTES 65536
struct state {
    size_t bills_bytes; /* the first part of the text: which calls were billed */
    char text[STATE_BYTES];
};

static void say(struct state *s, const char *format, ...) TL_PRINTF(2, 3);
static void say(struct state *s, const char *format, ...) {
    const size_t used = strlen(s->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(s->text + used, STATE_BYTES - used, format, arguments);
    va_end(arguments);
}

/* A node without its address: its op, its references, its edges. */
static void say_node(struct state *s, const struct node *n) {
    if (!n) return;
    say(s, " by %s (%d)", n->op->name, (int)n->refs);
    for (int i = 0; i < n->n_inputs; i++)
        say(s, " %s", n->edges[i].node ? n->edges[i].node->op->name : n->edges[i].leaf ? "leaf" : "-");
}

static void say_tensor(struct state *s, tl_tensor *x, bool has_data) {
    const struct storage *m = x->storage;
    say(s, "version %llu, history %llu %llu, held %d %d, purpose %d, grad %d %d", (unsigned long long)m->version,
        (unsigned long long)x->history, (unsigned long long)x->base_history, (int)x->refs, (int)m->refs,
        (int)m->purpose, x->requires_grad, x->grad != NULL);
    if (has_data) say(s, ", data %llx", (unsigned long long)hash(1, m->data, m->bytes));
    say_node(s, x->node);
    say(s, "\n");
}

static void state_read(struct state *s, const tl_ledger *ledger, const struct leaf_list *reads, bool has_data) {
    const struct thread_state *t = thread_state();
    s->text[0] = 0;
    for (size_t i = 0; i < ledger->n_rows; i++) {
        const struct ledger_row *row = &ledger->rows[i];
        say(s, "%s %s %d %d: %llu calls, %llu FLOPs, %llu %llu %llu bytes\n", path_text(row->key.path), row->key.op,
            row->key.phase, row->key.dtype, (unsigned long long)row->calls, (unsigned long long)row->flops,
            (unsigned long long)row->bytes_read, (unsigned long long)row->bytes_written,
            (unsigned long long)row->transfer_bytes);
    }
    s->bills_bytes = strlen(s->text);
    say(s, "generator %llu, live %llu, noted %zu\n", (unsigned long long)t->generator.index,
        (unsigned long long)tl_device_memory(cpu).live_bytes, reads->n);
    for (size_t i = 0; i < t->n_owned; i++) say_tensor(s, t->owned[i], has_data);
}

/* The states that failures of one sample have left: in the order of their calls, of which there are more and more. */
#define STATES 512
static char *seen[STATES];
static size_t seen_bills[STATES];
static int n_seen;

static void states_forget(void) {
    while (n_seen > 0) free(seen[--n_seen]);
}

/* Where the same calls were billed, everything else is the same. */
static void state_check(const char *what, const struct state *now) {
    int i = n_seen - 1;
    while (i >= 0 && (seen_bills[i] != now->bills_bytes || memcmp(seen[i], now->text, now->bills_bytes) != 0)) i--;
    if (i >= 0 && strcmp(seen[i], now->text) != 0)
        fail_msg("%s: one failure leaves\n%s\nand another\n%s", what, seen[i], now->text);
    if (i >= 0) return;
    if (n_seen == STATES) fail_msg("%s: more than %d states", what, STATES);
    seen_bills[n_seen] = now->bills_bytes;
    seen[n_seen++] = strdup(now->text);
}

/* Nothing is billed that did not run. Everything that ran is billed, except copies that are part of a failed call. */
static void bills_check(const char *what, const tl_ledger *ledger) {
    uint64_t billed[OP_COUNT] = {0};
    for (size_t i = 0; i < ledger->n_rows; i++)
        if (ledger->rows[i].calls) billed[op_by_name(ledger->rows[i].key.op)] += ledger->rows[i].calls;
    for (int id = 0; id < OP_COUNT; id++) {
        const tl_op *op = op_table[id];
        if (op->kind == OP_VIEW || op->run || billed[id] == n_succeeded[id]) continue;
        if (op == &op_copy && billed[id] < n_succeeded[id]) continue;
        fail_msg("%s: %s is billed %llu times, and ran %llu times", what, op->name, (unsigned long long)billed[id],
                 (unsigned long long)n_succeeded[id]);
    }
}

/* ---- One run -------- */

enum mode {
    RECORDED,
    UNRECORDED, /* as in a checkpoint's forward pass, which records the leaves that it reads */
    AUTOCAST,   /* 16-bit inputs, which ops that need f32 cast first */
    MODES
};

struct plan {
    enum mode mode;
    uint64_t allocation, kernel; /* which is to fail; 0: none */
    bool forever;                /* and all allocations after it: so that no later call of the sample succeeds */
    bool has_come;               /* it did */
};

static bool is_planned(const struct plan *p) { return p->allocation || p->kernel; }

static bool forward(const char *what, const struct sample *s, const struct plan *plan, tl_tensor **in, tl_tensor **out,
                    const tl_ledger *ledger) {
    static struct state state;
    struct leaf_list reads = {0};
    struct thread_state *t = thread_state();
    t->grad_off = plan->mode == UNRECORDED;
    t->reads = plan->mode == UNRECORDED ? &reads : NULL;
    if (plan->mode == AUTOCAST) tl_set_autocast(TL_F16);
    bool ok = sample_call(s, in, out) > 0;
    if (!ok && plan->forever) {
        state_read(&state, ledger, &reads, !(s->flags & NO_DATA));
        state_check(what, &state);
    }
    if (t->grad_off != (plan->mode == UNRECORDED)) fail_msg("%s: recording is turned", what);
    t->grad_off = false;
    t->reads = NULL;
    tl_set_autocast(TL_DTYPE_COUNT);
    leaf_list_clear(&reads);
    return ok;
}

static bool run(const char *what, const struct sample *s, struct plan *plan) {
    tl_tensor *in[SAMPLE_INPUTS] = {0}, *out[SAMPLE_OUTPUTS] = {0};
    tl_scope scope = tl_scope_begin();
    tl_seed(1234);
    if (!sample_inputs(s, cpu, plan->mode == AUTOCAST ? TL_BF16 : TL_F32, true, LAY_COUNT, in))
        fail_msg("%s: inputs: %s", what, tl_error_message());
    tl_ledger *ledger = tl_ledger_begin("faults");
    n_kernels = 0;
    kernel_to_fail = plan->kernel;
    memset(n_succeeded, 0, sizeof n_succeeded);
    tl_fail_allocation(plan->allocation, plan->forever);
    bool ok = forward(what, s, plan, in, out, ledger);
    if (ok && (s->flags & GRAD) && plan->mode != UNRECORDED && tl_needs_grad(out[0])) {
        tl_tensor *seed = tl_ones_like(out[0]);
        ok = seed && tl_backward(out[0], seed, 0);
    }
    const uint64_t asked = tl_fail_allocation(0, false);
    plan->has_come = is_planned(plan) && (plan->kernel ? n_kernels >= plan->kernel : asked >= plan->allocation);
    kernel_to_fail = 0;
    bills_check(what, ledger);
    tl_ledger_end(ledger);
    tl_ledger_free(ledger);
    tl_scope_end(scope);
    return ok;
}

static void outcome_check(const char *what, bool ok, const struct plan *plan) {
    const char *want = plan->kernel ? "it was planned to fail" : "out of";
    if (ok && tl_error() != TL_OK) fail_msg("%s: success, and %s", what, tl_error_message());
    if (!ok && (tl_error() != (plan->kernel ? TL_ERROR_USE : TL_ERROR_MEMORY) || !strstr(tl_error_message(), want)))
        fail_msg("%s: got \"%s\", want \"%s\"", what, tl_error_message(), want);
    tl_error_clear();
    assert_nothing_held(what, cpu);
    if (!tl_set_grad_mode(true)) fail_msg("%s: recording is off", what);
    if (tl_set_phase(TL_FORWARD) != TL_FORWARD) fail_msg("%s: another phase", what);
}

/* One after the other fails, until there is none left to fail. Returns how many runs it took. */
static uint64_t fail_each(const char *op, const struct sample *s, enum mode mode) {
    uint64_t n_runs = 0;
    char what[300];
    for (int kind = 0; kind < 3; kind++) {
        struct plan plan = {.mode = mode, .forever = kind > 0, .has_come = true};
        for (uint64_t n = 1; plan.has_come; n++, n_runs++) {
            *(kind == 2 ? &plan.kernel : &plan.allocation) = n;
            snprintf(what, sizeof what, "%s, %s, mode %d, %s %d", op, s->text, (int)mode,
                     kind == 2   ? "kernel"
                     : kind == 1 ? "allocations from"
                                 : "allocation",
                     (int)n);
            const bool ok = run(what, s, &plan);
            outcome_check(what, ok, &plan);
        }
    }
    states_forget();
    return n_runs;
}

/* ---- Calls that consist of several, and what outlives them --------- */

/* A product into a tensor that retains its gradient: the copy of the old value is part of the call. */
static int scale_retained(const struct sample *s, tl_tensor **in, tl_tensor **out) {
    (void)s;
    tl_tensor *x = tl_scale(in[0], 2);
    if (!x || !tl_retain_grad(x)) return 0;
    out[0] = tl_mul_(x, in[0]);
    return out[0] != NULL;
}

/* A change of a view, and a look through another one: both bases retain. */
static int change_view(const struct sample *s, tl_tensor **in, tl_tensor **out) {
    (void)s;
    tl_tensor *base = tl_scale(in[0], 2);
    if (!base || !tl_retain_grad(base)) return 0;
    tl_tensor *other = tl_slice(base, 0, 0, 2, 1), *view = tl_slice(base, 0, 1, 3, 1);
    if (!other || !view || !tl_retain_grad(other) || !tl_exp_(view)) return 0;
    out[0] = tl_exp(other);
    return out[0] != NULL;
}

static bool two_products(void *context, tl_tensor **in, int n_in, tl_tensor **out, int n_out) {
    (void)context, (void)n_in, (void)n_out;
    tl_tensor *y = tl_matmul(in[0], in[1]);
    out[0] = tl_matmul(tl_tanh(y), in[1]);
    return out[0] != NULL;
}
static int keep_products(const struct sample *s, tl_tensor **in, tl_tensor **out) {
    (void)s;
    return tl_checkpoint(two_products, NULL, 0, TL_KEEP_MATMULS, in, 2, out, 1);
}

#define MATRIX                                         \
    {                                                  \
        .kind = IN_FLOAT, .rank = 2, .shape = { 3, 3 } \
    }
static const struct sample programs[] = {
    {"in place on a retained tensor", GRAD, .call = scale_retained, .in = {MATRIX}},
    {"in place on a view", GRAD, .call = change_view, .in = {MATRIX}},
    {"a selective checkpoint", GRAD, .call = keep_products, .in = {MATRIX, MATRIX}},
};

/* ---- Tests -------- */

static void a_call_that_fails_leaves_nothing(void **state) {
    (void)state;
    uint64_t n_runs = 0;
    for (const struct sample_op *op = sample_ops; op->name; op++)
        for (const struct sample *s = op->samples; s->text; s++) {
            const unsigned dtypes = s->dtypes ? s->dtypes : DT_FLOATS;
            if (s->error || (s->flags & LARGE)) continue;
            if (dtypes & DT(TL_F32)) n_runs += fail_each(op->name, s, RECORDED) + fail_each(op->name, s, UNRECORDED);
            if ((dtypes & DT(TL_BF16)) && op_table[op->id]->is_wide) n_runs += fail_each(op->name, s, AUTOCAST);
        }
    print_message("    %llu runs\n", (unsigned long long)n_runs);
    assert_true(n_runs > 10000);
}

static void nor_does_one_that_is_made_of_several(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        assert_true(fail_each("-", &programs[i], RECORDED) > 10);
}

/* Refused by a rule, or by a kernel that looked at the data: the state is that of any other failure of that call. */
static void refuse_each(const char *op, const struct sample *s) {
    struct plan plan = {.mode = RECORDED, .forever = true, .has_come = true};
    char what[300];
    for (uint64_t n = 1; plan.has_come; n++) {
        plan.allocation = n;
        snprintf(what, sizeof what, "%s, %s, allocations from %d", op, s->text, (int)n);
        if (run(what, s, &plan)) fail_msg("%s: it was to be refused", what);
        const bool is_planned = plan.has_come && strstr(tl_error_message(), "out of");
        if (!is_planned && !strstr(tl_error_message(), s->error))
            fail_msg("%s: got \"%s\", want \"%s\"", what, tl_error_message(), s->error);
        tl_error_clear();
        assert_nothing_held(what, cpu);
    }
    states_forget();
}

static void nor_does_one_that_is_refused(void **state) {
    (void)state;
    int n_refused = 0;
    for (const struct sample_op *op = sample_ops; op->name; op++)
        for (const struct sample *s = op->samples; s->text; s++) {
            if (!s->error || (s->dtypes && !(s->dtypes & DT(TL_F32)))) continue;
            if (strstr(s->error, "meta has no")) continue; /* there calls are billed and no kernel runs */
            refuse_each(op->name, s);
            n_refused++;
        }
    print_message("    %d calls\n", n_refused);
    assert_true(n_refused > 100);
}

static int setup(void **state) {
    (void)state;
    tl_set_error_policy(TL_RETURN);
    cpu = tl_device_find("cpu");
    if (!cpu) return -1;
    real_kernels = cpu->kernels;
    for (int id = 0; id < OP_COUNT; id++) watched_kernels[id] = real_kernels[id] ? watched : NULL;
    cpu->kernels = watched_kernels;
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_call_that_fails_leaves_nothing),
                                       cmocka_unit_test(nor_does_one_that_is_made_of_several),
                                       cmocka_unit_test(nor_does_one_that_is_refused)};
    return cmocka_run_group_tests(tests, setup, NULL);
}

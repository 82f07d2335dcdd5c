/* Custom ops take the same path as all others: checked, priced, recorded, with errors that name them. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- polar: (x, y) -> radius, and their sum; a scale as attribute; scratch of one row ---------------------------- */

struct attr_polar {
    double scale;
};

static bool polar_shape(tl_call *call) {
    tl_tensor *x = tl_call_input(call, 0), *y = tl_call_input(call, 1);
    if (tl_call_inputs(call) != 2 || tl_rank(x) != 1 || tl_rank(y) != 1 || tl_size(x, 0) != tl_size(y, 0))
        return tl_call_fail_need(call, "[n] and [n]", "sizes %lld and %lld differ", (long long)tl_numel(x),
                                 (long long)tl_numel(y));
    return tl_call_output(call, 0, TL_F64, 1, tl_shape(x)) && tl_call_output(call, 1, TL_F64, TL_SCALAR);
}
/* 2 products, a sum, scale: 4; the total: 1 */
static uint64_t polar_flops(const tl_call *call) { return 5 * (uint64_t)tl_numel(tl_call_input(call, 0)); }
static uint64_t polar_workspace(const tl_call *call) {
    return (uint64_t)tl_numel(tl_call_input(call, 0)) * sizeof(double);
}

static bool polar_cpu(const tl_kernel_args *args) {
    const struct attr_polar *a = args->attr;
    int64_t n = args->in[0].shape[0];
    double *scratch = args->workspace, *square = args->out[0].data, *total = args->out[1].data;
    if (args->workspace_bytes != (size_t)n * sizeof(double) || args->n_in != 2 || args->n_out != 2 ||
        strcmp(args->op, "polar")) {
        snprintf(args->error, 200, "%zu bytes of workspace, want %zu", args->workspace_bytes,
                 (size_t)n * sizeof(double));
        return false;
    }
    *total = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = ((double *)args->in[0].data)[i * args->in[0].stride[0]],
               y = ((double *)args->in[1].data)[i * args->in[1].stride[0]];
        scratch[i] = a->scale * (x * x + y * y);
    }
    for (int64_t i = 0; i < n; i++) *total += square[i] = scratch[i];
    return true;
}

/* d = 2 scale x (g0 + g1): either gradient may be absent */
static void polar_backward(tl_gradient *g) {
    const struct attr_polar *a = tl_gradient_attr(g);
    tl_tensor *g0 = tl_gradient_of_output(g, 0), *g1 = tl_gradient_of_output(g, 1);
    tl_tensor *sum = g0 && g1 ? tl_add(g0, g1) : g0 ? g0 : g1;
    for (int i = 0; i < 2; i++)
        if (tl_gradient_needs(g, i))
            tl_gradient_set(g, i, tl_mul(sum, tl_scale(tl_gradient_input(g, i), 2 * a->scale)));
}

static const tl_op_def polar_def = {.name = "polar",
                                    .n_inputs = 2,
                                    .n_outputs = 2,
                                    .shape = polar_shape,
                                    .flops = polar_flops,
                                    .workspace = polar_workspace,
                                    .backward = polar_backward,
                                    .saves = {.inputs = TL_BIT(0) | TL_BIT(1)},
                                    .cpu = polar_cpu};

static const tl_op *polar(void) {
    static const tl_op *op;
    if (!op) op = tl_op_register(&polar_def);
    return op;
}

static bool polar_call(tl_tensor *x, tl_tensor *y, double scale, tl_tensor **out) {
    struct attr_polar a = {scale};
    tl_tensor *in[2] = {x, y};
    return tl_op_call(polar(), in, 2, &a, sizeof a, out);
}

static tl_tensor *vector(int n, const double *values) { return check_from(values, TL_F64, TL_SHAPE(n)); }

static void several_outputs_attributes_and_scratch(void **state) {
    (void)state;
    tl_tensor *out[2], *x = vector(3, (double[]){1, 2, 3}),
                       *y = tl_slice(vector(3, (double[]){1, 0, -1}), 0, -1, TL_END, -1);
    expect_true(polar_call(x, y, 10, out));
    expect_values(out[0], 20, 40, 100); /* y reversed: -1 0 1 */
    expect_values(out[1], 160);
    expect_true(tl_is_leaf(out[0]) && !tl_needs_grad(out[0]));
}

static void gradients_flow_through_each_output(void **state) {
    (void)state;
    for (int which = 0; which < 3; which++) {
        tl_tensor *x = tl_requires_grad(vector(2, (double[]){1, 2}), true), *y = vector(2, (double[]){3, 4}), *out[2];
        expect_true(polar_call(x, y, 0.5, out));
        expect_true(tl_needs_grad(out[0]) && tl_needs_grad(out[1]));
        tl_tensor *loss = which == 0   ? tl_sum_all(tl_scale(out[0], 3))
                          : which == 1 ? tl_scale(out[1], 5)
                                       : tl_add(tl_sum_all(tl_scale(out[0], 3)), tl_scale(out[1], 5));
        double k = which == 0 ? 3 : which == 1 ? 5 : 8;
        expect_true(tl_backward(loss, NULL, 0));
        expect_values(tl_grad_of(x), k * 1, k * 2);
        expect_true(tl_grad_of(y) == NULL);
    }
}

static void a_second_derivative_works_where_the_rule_is_made_of_ops(void **state) {
    (void)state;
    tl_tensor *x = tl_requires_grad(vector(2, (double[]){1, 2}), true), *out[2], *first, *second;
    expect_true(polar_call(x, x, 0.5, out)); /* x^2 */
    expect_true(tl_gradients(out[1], NULL, &x, 1, TL_CREATE_GRAPH, &first));
    expect_values(first, 2, 4);
    expect_true(tl_gradients(tl_sum_all(first), NULL, &x, 1, 0, &second));
    expect_values(second, 2, 2);
}

static void the_price_on_meta_is_the_receipt_on_cpu(void **state) {
    (void)state;
    tl_device *devices[] = {check_cpu(), check_meta()};
    tl_ledger *ledgers[2];
    for (int d = 0; d < 2; d++) {
        tl_scope scope = tl_scope_begin();
        tl_tensor *x = tl_requires_grad(tl_ones(TL_SHAPE(7), TL_F64, devices[d]), true),
                  *y = tl_ones(TL_SHAPE(7), TL_F64, devices[d]), *out[2];
        ledgers[d] = tl_ledger_begin("polar");
        expect_true(polar_call(x, y, 1, out));
        expect_shape(out[0], 7);
        expect_true(tl_backward(out[1], NULL, 0));
        tl_ledger_end(ledgers[d]);
        tl_scope_end(scope);
    }
    for (int d = 0; d < 2; d++) {
        tl_totals t = tl_ledger_total(ledgers[d], TL_FORWARD, "polar");
        expect_equal(t.calls, 1);
        expect_count(t.flops, 35);
        expect_count(t.bytes_read, 2 * 56);
        expect_count(t.bytes_written, 56 + 8);
        expect_equal(tl_ledger_peak(ledgers[d], devices[d], TL_ALL), tl_ledger_peak(ledgers[0], devices[0], TL_ALL));
    }
    tl_ledger_free(ledgers[0]), tl_ledger_free(ledgers[1]);
}

static void the_definition_is_copied(void **state) {
    (void)state;
    char name[] = "copied";
    tl_op_def def = polar_def;
    def.name = name;
    def.workspace = NULL;
    const tl_op *op = tl_op_register(&def);
    memset(name, 'x', 6);
    memset(&def, 0, sizeof def);
    tl_tensor *in[2] = {vector(2, (double[]){1, 2}), vector(3, (double[]){1, 2, 3})}, *out[2];
    struct attr_polar a = {1};
    expect_refused(tl_op_call(op, in, 2, &a, sizeof a, out),
                   "copied: sizes 2 and 3 differ: f64[2]@cpu x f64[3]@cpu (need [n] and [n])");
}

/* ---- Saved outputs, missing gradients ---------------------------------------------------------------------------- */

static bool like_shape(tl_call *call) {
    tl_tensor *x = tl_call_input(call, 0);
    return tl_call_output(call, 0, tl_dtype_of(x), tl_rank(x), tl_shape(x));
}
static uint64_t no_flops(const tl_call *call) {
    (void)call;
    return 0;
}
static bool double_cpu(const tl_kernel_args *args) {
    for (int64_t i = 0; i < args->out[0].shape[0]; i++)
        ((double *)args->out[0].data)[i] = 2 * ((double *)args->in[0].data)[i * args->in[0].stride[0]];
    return true;
}
static void reads_output(tl_gradient *g) {
    tl_gradient_set(g, 0, tl_mul(tl_gradient_of_output(g, 0), tl_gradient_output(g, 0)));
}
static void reads_unsaved(tl_gradient *g) { tl_gradient_set(g, 0, tl_gradient_input(g, 0)); }
static void sets_nonsense(tl_gradient *g) {
    tl_gradient_set(g, 7, tl_gradient_of_output(g, 0)); /* no such input */
    tl_gradient_set(g, 0, NULL);
}

static const tl_op *doubler(void (*backward)(tl_gradient *), tl_saves saves) {
    return tl_op_register(&(tl_op_def){.name = "doubler",
                                       .n_inputs = 1,
                                       .n_outputs = 1,
                                       .shape = like_shape,
                                       .flops = no_flops,
                                       .backward = backward,
                                       .saves = saves,
                                       .cpu = double_cpu});
}

static void saved_outputs_come_back_and_unsaved_inputs_do_not(void **state) {
    (void)state;
    tl_tensor *x = tl_requires_grad(vector(2, (double[]){3, 4}), true), *y;
    expect_true(tl_op_call(doubler(reads_output, (tl_saves){.outputs = TL_BIT(0)}), &x, 1, NULL, 0, &y));
    expect_true(tl_backward(tl_sum_all(y), NULL, 0));
    expect_values(tl_grad_of(x), 6, 8);
    expect_true(tl_op_call(doubler(reads_unsaved, (tl_saves){0}), &x, 1, NULL, 0, &y));
    expect_refused(tl_backward(tl_sum_all(y), NULL, 0),
                   "doubler: its gradient rule reads input 0, which was not saved");
    expect_true(tl_op_call(doubler(sets_nonsense, (tl_saves){0}), &x, 1, NULL, 0, &y));
    expect_refused(tl_backward(tl_sum_all(y), NULL, 0), "doubler: got NULL instead of a tensor");
}

static void an_op_without_backward_gives_constants(void **state) {
    (void)state;
    tl_tensor *x = tl_requires_grad(vector(2, (double[]){3, 4}), true), *y;
    expect_true(tl_op_call(doubler(NULL, (tl_saves){0}), &x, 1, NULL, 0, &y));
    expect_true(!tl_needs_grad(y));
    expect_values(y, 6, 8);
}

static bool many_shape(tl_call *call) {
    for (int j = 0; j < TL_MAX_OUTPUTS; j++)
        if (!tl_call_output(call, j, TL_F64, TL_SHAPE(j + 1))) return false;
    return tl_call_input(call, TL_MAX_INPUTS) == NULL && tl_call_input(call, -1) == NULL;
}
static bool many_cpu(const tl_kernel_args *args) { /* output j: sum of the inputs, j + 1 times */
    double sum = 0;
    for (int i = 0; i < args->n_in; i++) sum += *(double *)args->in[i].data;
    for (int j = 0; j < args->n_out; j++)
        for (int k = 0; k <= j; k++) ((double *)args->out[j].data)[k] = sum;
    return true;
}
static void many_backward(tl_gradient *g) {
    tl_tensor *sum = NULL;
    for (int j = 0; j < TL_MAX_OUTPUTS; j++) {
        tl_tensor *gj = tl_gradient_of_output(g, j);
        if (gj) sum = sum ? tl_add(sum, tl_sum_all(gj)) : tl_sum_all(gj);
    }
    for (int i = 0; i < TL_MAX_INPUTS; i++)
        if (tl_gradient_needs(g, i)) tl_gradient_set(g, i, tl_mul(sum, tl_gradient_input(g, i)));
}

static void sixty_four_inputs_and_eight_outputs_are_carried(void **state) {
    (void)state;
    const tl_op *op = tl_op_register(&(tl_op_def){.name = "many",
                                                  .n_inputs = TL_MAX_INPUTS,
                                                  .n_outputs = 8,
                                                  .shape = many_shape,
                                                  .flops = no_flops,
                                                  .backward = many_backward,
                                                  .saves = {.inputs = UINT64_MAX},
                                                  .cpu = many_cpu});
    tl_tensor *in[TL_MAX_INPUTS], *out[8];
    for (int i = 0; i < TL_MAX_INPUTS; i++) in[i] = tl_requires_grad(tl_full(TL_SCALAR, i, TL_F64, NULL), i % 3 == 0);
    expect_true(tl_op_call(op, in, TL_MAX_INPUTS, NULL, 0, out));
    expect_values(out[2], 2016, 2016, 2016);
    expect_true(tl_backward(tl_add(tl_sum_all(out[2]), tl_sum_all(out[7])), NULL, 0)); /* 3 + 8 elements */
    for (int i = 0; i < TL_MAX_INPUTS; i++) {
        if (i % 3) expect_true(tl_grad_of(in[i]) == NULL);
        else expect_values(tl_grad_of(in[i]), 11.0 * i);
    }
}

static bool scalar_shape(tl_call *call) { return tl_call_output(call, 0, TL_F64, TL_SCALAR); }
static void reads_the_sum(tl_gradient *g) {
    tl_gradient_set(g, 16, tl_mul(tl_gradient_of_output(g, 0), tl_gradient_output(g, 0)));
}
static void reads_the_seventeenth(tl_gradient *g) {
    tl_gradient_set(g, 16, tl_mul(tl_gradient_of_output(g, 0), tl_gradient_input(g, 16)));
}

/* Inputs and outputs have separate bits. */
static void input_16_is_not_output_0(void **state) {
    (void)state;
    static const struct {
        tl_saves saves;
        void (*backward)(tl_gradient *);
        const char *refusal;
    } cases[] = {
        {{.inputs = TL_BIT(16)}, reads_the_seventeenth, NULL},
        {{.inputs = TL_BIT(16)}, reads_the_sum, "its gradient rule reads output 0, which was not saved"},
        {{.outputs = TL_BIT(0)}, reads_the_sum, NULL},
        {{.outputs = TL_BIT(0)}, reads_the_seventeenth, "its gradient rule reads input 16, which was not saved"}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const tl_op *op = tl_op_register(&(tl_op_def){.name = "seventeen",
                                                      .n_inputs = 17,
                                                      .n_outputs = 1,
                                                      .shape = scalar_shape,
                                                      .flops = no_flops,
                                                      .backward = cases[k].backward,
                                                      .saves = cases[k].saves,
                                                      .cpu = many_cpu});
        tl_tensor *in[17], *out;
        for (int i = 0; i < 17; i++) in[i] = tl_requires_grad(tl_full(TL_SCALAR, i, TL_F64, NULL), i == 16);
        expect_true(tl_op_call(op, in, 17, NULL, 0, &out));
        if (cases[k].refusal) expect_refused(tl_backward(out, NULL, 0), cases[k].refusal);
        else expect_true(tl_backward(out, NULL, 0));
        if (!cases[k].refusal) expect_values(tl_grad_of(in[16]), cases[k].saves.outputs ? 136 : 16);
    }
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static void incomplete_definitions_are_refused_by_what_they_lack(void **state) {
    (void)state;
    tl_op_def d;
#define LACKS(change, text) (d = polar_def, change, expect_refused(tl_op_register(&d), text))
    LACKS(d.name = NULL, "an op needs a name");
    LACKS(d.name = "", "an op needs a name");
    LACKS(d.shape = NULL, "polar lacks a shape rule");
    LACKS(d.flops = NULL, "polar lacks a cost rule");
    LACKS(d.cpu = NULL, "polar lacks a kernel");
    LACKS(d.n_inputs = TL_MAX_INPUTS + 1, "polar lacks an input count");
    LACKS(d.n_inputs = 0, "polar lacks an input count");
    LACKS(d.n_inputs = -1, "polar lacks an input count");
    LACKS(d.n_outputs = 0, "polar lacks an output count");
    LACKS(d.n_outputs = 9, "polar lacks an output count");
    LACKS(d.saves.inputs |= TL_BIT(2), "polar saves input 2 and has 2");
    LACKS(d.saves.inputs |= TL_BIT(63), "polar saves input 63 and has 2");
    LACKS(d.saves.outputs |= 1u << 7, "polar saves output 7 and has 2");
#undef LACKS
    expect_refused(tl_op_register(NULL), "an op needs a name");
}

static void wrong_calls_are_refused(void **state) {
    (void)state;
    tl_tensor *x = vector(2, (double[]){1, 2}), *in[3] = {x, x, x}, *out[2];
    struct attr_polar a = {1};
    expect_refused(tl_op_call(NULL, in, 2, NULL, 0, out), "got NULL instead of an op");
    expect_refused(tl_op_call(polar(), in, 3, &a, sizeof a, out), "polar: takes 2 inputs, not 3");
    expect_refused(tl_op_call(polar(), in, 0, &a, sizeof a, out), "polar: takes 2 inputs, not 0");
    in[1] = NULL;
    expect_refused(tl_op_call(polar(), in, 2, &a, sizeof a, out), "polar: got NULL instead of a tensor");
    in[1] = tl_ones(TL_SHAPE(2), TL_F64, check_meta());
    expect_refused(tl_op_call(polar(), in, 2, &a, sizeof a, out),
                   "polar: Expected all tensors to be on the same device");
}

static bool says_nothing(tl_call *call) {
    (void)call;
    return true;
}
static bool refuses(tl_call *call) {
    (void)call;
    return false;
}
static bool names_no_output(tl_call *call) { return tl_call_output(call, 3, TL_F32, TL_SCALAR); }
static bool names_no_dtype(tl_call *call) { return tl_call_output(call, 0, TL_DTYPE_COUNT, TL_SCALAR); }
static bool names_no_rank(tl_call *call) { return tl_call_output(call, 0, TL_F32, 33, NULL); }
static bool negative_size(tl_call *call) { return tl_call_output(call, 0, TL_F32, TL_SHAPE(-5)); }
static bool endless_size(tl_call *call) { return tl_call_output(call, 0, TL_F32, TL_SHAPE(INT64_MAX, 3)); }

static void wrong_shape_rules_are_caught(void **state) {
    (void)state;
    static const struct {
        bool (*rule)(tl_call *);
        const char *text;
    } cases[] = {{says_nothing, "wrong: its shape rule says nothing of output 0"},
                 {refuses, "wrong: its shape rule refuses these inputs"},
                 {names_no_output, "its shape rule names output 3"},
                 {names_no_dtype, "its shape rule names output 0 of dtype 17"},
                 {names_no_rank, "and rank 33"},
                 {negative_size, "more elements than can be counted"},
                 {endless_size, "more elements than can be counted"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tl_op *op = tl_op_register(&(tl_op_def){.name = "wrong",
                                                      .n_inputs = 1,
                                                      .n_outputs = 1,
                                                      .shape = cases[i].rule,
                                                      .flops = no_flops,
                                                      .cpu = double_cpu});
        tl_tensor *x = vector(1, (double[]){1}), *y;
        expect_refused(tl_op_call(op, &x, 1, NULL, 0, &y), cases[i].text);
    }
}

static bool failing_cpu(const tl_kernel_args *args) {
    snprintf(args->error, 200, "element %d is cursed", 13);
    return false;
}

static void kernels_that_fail_or_are_missing_are_named(void **state) {
    (void)state;
    tl_op_def def = {.name = "cursed",
                     .n_inputs = 1,
                     .n_outputs = 1,
                     .shape = like_shape,
                     .flops = no_flops,
                     .backward = reads_output,
                     .saves = {.outputs = TL_BIT(0)},
                     .cpu = failing_cpu};
    const tl_op *cursed = tl_op_register(&def);
    def.name = "gpu_only";
    def.cpu = NULL;
    def.cuda = failing_cpu;
    const tl_op *gpu_only = tl_op_register(&def);
    tl_tensor *x = tl_requires_grad(vector(1, (double[]){1}), true), *y;
    uint64_t live = tl_device_memory(check_cpu()).live_bytes;
    expect_refused(tl_op_call(cursed, &x, 1, NULL, 0, &y), "cursed: element 13 is cursed: f64[1]@cpu");
    expect_refused(tl_op_call(gpu_only, &x, 1, NULL, 0, &y), "gpu_only: it has no kernel on cpu");
    expect_equal(tl_device_memory(check_cpu()).live_bytes, live);
    tl_tensor *m = tl_ones(TL_SHAPE(3), TL_F64, check_meta());
    expect_true(tl_op_call(gpu_only, &m, 1, NULL, 0, &y)); /* a price needs no kernel */
}

/* ---- A rule without a kernel ------------------------------------------------------------------------------------- */

static int released;
static void count_release(void *context) { (void)context, released++; }

/* out0 = x + y, out1 = 3 x, with a gradient that no derivative has: x gets 10 g0 + 100 g1, y nothing. */
static void odd_rule(tl_gradient *g, void *context) {
    double *factor = context;
    tl_tensor *g0 = tl_gradient_of_output(g, 0), *g1 = tl_gradient_of_output(g, 1), *sum = NULL;
    if (g0) sum = tl_scale(g0, factor[0]);
    if (g1) g1 = tl_scale(g1, factor[1]);
    if (g1) sum = sum ? tl_add(sum, g1) : g1;
    if (tl_gradient_needs(g, 0)) tl_gradient_set(g, 0, sum);
}

static double odd_factors[2] = {10, 100};
static bool odd(tl_tensor *x, tl_tensor *y, tl_tensor **out) {
    bool before = tl_set_grad_mode(false);
    out[0] = tl_add(x, y), out[1] = tl_scale(x, 3);
    tl_set_grad_mode(before);
    return tl_function(odd_rule, odd_factors, count_release, (tl_tensor *[]){x, y}, 2, out, 2);
}

static void a_function_brings_a_rule_and_no_kernel(void **state) {
    (void)state;
    released = 0;
    tl_scope scope = tl_scope_begin();
    tl_tensor *x = tl_requires_grad(vector(2, (double[]){1, 2}), true), *y = vector(2, (double[]){5, 7}), *out[2];
    assert_true(odd(x, y, out));
    assert_true(tl_needs_grad(out[0]) && tl_needs_grad(out[1]) && !tl_is_leaf(out[0]));
    tl_tensor *loss = tl_sum_all(out[0]);
    assert_true(tl_backward(tl_add(loss, tl_sum_all(out[1])), NULL, 0));
    expect_true(tl_at(tl_grad_of(x), (int64_t[]){1}) == 110);
    assert_null(tl_grad_of(y));
    tl_scope_end(scope);
    expect_equal(released, 1);
}

static void a_function_is_released_when_nothing_is_recorded(void **state) {
    (void)state;
    released = 0;
    tl_tensor *x = vector(2, (double[]){1, 2}), *out[2];
    assert_true(odd(x, x, out));
    assert_false(tl_needs_grad(out[0]));
    expect_equal(released, 1);
    tl_tensor *none = NULL;
    expect_refused(tl_function(NULL, NULL, count_release, &x, 1, &x, 1), "takes a rule");
    expect_refused(tl_function(odd_rule, NULL, count_release, &none, 1, &x, 1), "tl_function");
    expect_equal(released, 3);
}

/* y = e^x: dx = g y, with the y that was computed. */
static void exp_rule(tl_gradient *g, void *context) {
    tl_tensor *y = tl_gradient_result(g, 0, context);
    tl_gradient_set(g, 0, tl_mul(tl_gradient_of_output(g, 0), y));
    expect_refused(tl_gradient_result(g, 1, context), "no result 1");
}

static void a_result_that_a_function_keeps_has_a_history(void **state) {
    (void)state;
    tl_tensor *x = tl_requires_grad(vector(2, (double[]){0, 1}), true), *first, *second;
    bool before = tl_set_grad_mode(false);
    tl_tensor *y = tl_exp(x), *out = y;
    tl_set_grad_mode(before);
    assert_true(tl_function(exp_rule, y, NULL, &x, 1, &out, 1));
    assert_true(tl_gradients(tl_sum_all(out), NULL, &x, 1, TL_CREATE_GRAPH, &first));
    assert_true(tl_gradients(tl_sum_all(first), NULL, &x, 1, 0, &second));
    expect_true(fabs(tl_at(second, (int64_t[]){1}) - 2.718281828) < 1e-6);
}

static void rule_of_meta(tl_gradient *g, void *context) {
    (void)context;
    tl_gradient_set(g, 0, tl_ones(TL_SHAPE(2), TL_F64, check_meta()));
}

/* To a leaf, to an intermediate result, and for a gradient requested by tl_gradients. */
static void a_gradient_on_another_device_is_refused(void **state) {
    (void)state;
    tl_tensor *x = tl_requires_grad(vector(2, (double[]){1, 2}), true), *grad;
    for (int k = 0; k < 3; k++) {
        tl_tensor *in = k == 1 ? tl_scale(x, 2) : x;
        bool before = tl_set_grad_mode(false);
        tl_tensor *out = tl_scale(in, 3);
        tl_set_grad_mode(before);
        assert_true(tl_function(rule_of_meta, NULL, NULL, &in, 1, &out, 1));
        tl_tensor *loss = tl_sum_all(out);
        expect_refused(k < 2 ? tl_backward(loss, NULL, 0) : tl_gradients(loss, NULL, &x, 1, 0, &grad),
                       "its gradient rule gave input 0, which is on cpu, a gradient on meta");
        assert_null(tl_grad_of(x));
    }
    tl_tensor *y = tl_scale(x, 2);
    expect_refused(tl_backward(y, tl_ones(TL_SHAPE(2), TL_F64, check_meta()), 0),
                   "it is f64[2]@meta:cpu, the output f64[2]@cpu");
    expect_refused(tl_set_grad(x, tl_ones(TL_SHAPE(2), TL_F64, check_meta())),
                   "it is f64[2]@meta:cpu, the tensor f64[2]@cpu");
}

static void a_function_survives_every_failing_allocation(void **state) {
    (void)state;
    tl_tensor *x = tl_requires_grad(vector(2, (double[]){1, 2}), true), *y = vector(2, (double[]){5, 7}), *out[2];
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    bool ok = false;
    for (uint64_t n = 1; !ok; n++) {
        tl_scope scope = tl_scope_begin();
        released = 0;
        tl_fail_allocation(n, false);
        ok = odd(x, y, out);
        tl_fail_allocation(0, false);
        expect_equal(ok ? TL_OK : TL_ERROR_MEMORY, tl_error());
        tl_error_clear();
        tl_scope_end(scope);
        expect_equal(released, 1);
    }
    tl_set_error_policy(policy);
}

static void a_kept_result_can_be_given_to_the_scope(void **state) {
    (void)state;
    uint64_t live = tl_device_memory(check_cpu()).live_bytes;
    tl_scope outer = tl_scope_begin(), inner = tl_scope_begin();
    tl_tensor *x = tl_keep(vector(2, (double[]){1, 2}));
    tl_scope_end(inner);
    expect_true(tl_at(tl_scope_give(x), (int64_t[]){1}) == 2);
    tl_scope_end(outer);
    expect_equal(tl_device_memory(check_cpu()).live_bytes, live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(several_outputs_attributes_and_scratch),
        TEST(gradients_flow_through_each_output),
        TEST(a_second_derivative_works_where_the_rule_is_made_of_ops),
        TEST(the_price_on_meta_is_the_receipt_on_cpu),
        TEST(the_definition_is_copied),
        TEST(saved_outputs_come_back_and_unsaved_inputs_do_not),
        TEST(an_op_without_backward_gives_constants),
        TEST(sixty_four_inputs_and_eight_outputs_are_carried),
        TEST(input_16_is_not_output_0),
        TEST(incomplete_definitions_are_refused_by_what_they_lack),
        TEST(wrong_calls_are_refused),
        TEST(wrong_shape_rules_are_caught),
        TEST(kernels_that_fail_or_are_missing_are_named),
        TEST(a_function_brings_a_rule_and_no_kernel),
        TEST(a_function_is_released_when_nothing_is_recorded),
        TEST(a_result_that_a_function_keeps_has_a_history),
        TEST(a_gradient_on_another_device_is_refused),
        TEST(a_function_survives_every_failing_allocation),
        TEST(a_kept_result_can_be_given_to_the_scope),
    };
    return cmocka_run_group_tests_name("custom_op", tests, NULL, NULL);
}

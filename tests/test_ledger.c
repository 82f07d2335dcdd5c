/* The ledger: ledgers nest and add up, phases and ops are separate rows, counts do not overflow. (Its JSON and diff
 * are tested elsewhere.) */
#include "support/check.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account/ledger.h"

static tl_tensor *ones(int64_t n) { return tl_ones(TL_SHAPE(n), TL_F32, NULL); }

static void ledgers_bill_flops_bytes_and_calls(void **state) {
    (void)state;
    tl_tensor *a = ones(10), *b = ones(10);
    tl_ledger *ledger = tl_ledger_begin("adds");
    for (int i = 0; i < 3; i++) tl_add(a, b);
    tl_add(a, a);
    tl_ledger_end(ledger);
    tl_add(a, b); /* after the end: not counted */
    tl_totals t = tl_ledger_total(ledger, TL_ALL, "add");
    expect_equal(t.calls, 4);
    expect_count(t.flops, 4 * 10);
    expect_count(t.bytes_read, 3 * 80 + 40); /* the same operand twice is read once */
    expect_count(t.bytes_written, 4 * 40);
    expect_near(t.time_s, 0, 0);
    expect_equal(tl_ledger_total(ledger, TL_ALL, "sub").calls, 0);
    expect_equal(tl_ledger_total(ledger, TL_BACKWARD, "add").calls, 0);
    expect_equal(tl_ledger_total(NULL, TL_ALL, NULL).calls, 0);
    tl_ledger_free(ledger);
}

static void inner_ledgers_are_part_of_outer_ones(void **state) {
    (void)state;
    tl_tensor *a = ones(10);
    tl_ledger *outer = tl_ledger_begin("outer");
    tl_neg(a);
    tl_ledger *first = tl_ledger_begin("first");
    tl_neg(a), tl_exp(a);
    tl_ledger_end(first);
    tl_ledger *second = tl_ledger_begin("second");
    tl_neg(a);
    tl_ledger *deep = tl_ledger_begin("deep");
    tl_neg(a), tl_neg(a);
    tl_ledger_end(deep);
    tl_ledger_end(second);
    tl_ledger_end(outer);
    expect_equal(tl_ledger_total(first, TL_ALL, "neg").calls, 1);
    expect_equal(tl_ledger_total(deep, TL_ALL, "neg").calls, 2);
    expect_equal(tl_ledger_total(second, TL_ALL, "neg").calls, 3);
    expect_equal(tl_ledger_total(outer, TL_ALL, "neg").calls, 5);
    expect_count(tl_ledger_total(outer, TL_ALL, NULL).flops, 60);
    expect_equal(tl_ledger_total(outer, TL_ALL, "exp").calls, 1);
    tl_ledger_free(deep), tl_ledger_free(first);
    expect_equal(tl_ledger_total(second, TL_ALL, "neg").calls, 3); /* others may go first */
    tl_ledger_free(outer), tl_ledger_free(second);
}

static void wrong_order_is_refused_and_changes_nothing(void **state) {
    (void)state;
    tl_ledger *outer = tl_ledger_begin("outer"), *inner = tl_ledger_begin("inner");
    expect_refused(tl_ledger_end(outer), "ledger \"outer\" is not the innermost: end \"inner\" first");
    tl_neg(ones(1));
    expect_true(tl_ledger_end(inner));
    expect_refused(tl_ledger_end(inner), "ledger \"inner\" has ended already");
    expect_true(tl_ledger_end(outer));
    expect_refused(tl_ledger_end(NULL), "got NULL instead of a ledger");
    expect_equal(tl_ledger_total(outer, TL_ALL, "neg").calls, 1);
    tl_ledger_free(inner), tl_ledger_free(outer);
    tl_ledger_free(NULL);
}

static void freeing_an_open_ledger_ends_it_and_those_inside(void **state) {
    (void)state;
    tl_ledger *outer = tl_ledger_begin("outer"), *middle = tl_ledger_begin("middle"), *inner = tl_ledger_begin("inner");
    tl_neg(ones(1));
    tl_ledger_free(middle);
    expect_refused(tl_ledger_end(inner), "has ended already");
    expect_equal(tl_ledger_total(inner, TL_ALL, "neg").calls, 1);
    tl_ledger_free(inner);
    expect_true(tl_ledger_end(outer));
    expect_equal(tl_ledger_total(outer, TL_ALL, "neg").calls, 1);
    tl_ledger_free(outer);
}

static void phases_are_told_apart(void **state) {
    (void)state;
    tl_ledger *ledger = tl_ledger_begin("phases");
    tl_tensor *w = tl_requires_grad(tl_ones(TL_SHAPE(3, 3), TL_F32, NULL), true),
              *x = tl_ones(TL_SHAPE(2, 3), TL_F32, NULL);
    tl_tensor *m = tl_zeros_like(w), *v = tl_zeros_like(w);
    tl_tensor *loss = tl_sum_all(tl_matmul(x, w));
    expect_true(tl_backward(loss, NULL, 0));
    tl_adam_options options = {
        .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .decoupled = true, .step = 1};
    expect_true(tl_adam_(w, tl_grad_of(w), m, v, NULL, &options));
    expect_true(tl_sgd_(w, tl_grad_of(w), NULL, &(tl_sgd_options){.lr = 0.1}));
    expect_equal(tl_set_phase(TL_OTHER), TL_FORWARD);
    tl_neg(x);
    expect_equal(tl_set_phase(TL_FORWARD), TL_OTHER);
    tl_ledger_end(ledger);
    expect_count(tl_ledger_total(ledger, TL_FORWARD, "matmul").flops, 2 * 2 * 3 * 3);
    expect_count(tl_ledger_total(ledger, TL_BACKWARD, "matmul").flops, 2 * 2 * 3 * 3); /* x needs no gradient */
    expect_count(tl_ledger_total(ledger, TL_UPDATE, "adam").flops, 14 * 9);
    expect_count(tl_ledger_total(ledger, TL_UPDATE, "adam").bytes_read, 4 * 36);
    expect_count(tl_ledger_total(ledger, TL_UPDATE, "adam").bytes_written, 3 * 36);
    expect_count(tl_ledger_total(ledger, TL_UPDATE, NULL).flops, 14 * 9 + 2 * 9);
    expect_equal(tl_ledger_total(ledger, TL_OTHER, NULL).calls, 1);
    uint64_t calls = 0;
    for (int p = 0; p < TL_PHASE_COUNT; p++) calls += tl_ledger_total(ledger, p, NULL).calls;
    expect_equal(calls, tl_ledger_total(ledger, TL_ALL, NULL).calls);
    tl_ledger_free(ledger);
    tl_set_phase((tl_phase)77);
    expect_error(TL_ERROR_USE, "no phase has the number 77");
    expect_text(tl_phase_name(TL_RECOMPUTE), "recompute");
    expect_text(tl_phase_name((tl_phase)9), "?");
}

static void parts_of_a_call_are_billed_to_their_phases(void **state) {
    (void)state;
    tl_tensor *q = tl_requires_grad(tl_ones(TL_SHAPE(1, 4, 2, 8), TL_F32, NULL), true);
    tl_ledger *ledger = tl_ledger_begin("attention");
    expect_true(tl_backward(tl_sum_all(tl_attention(q, q, q, TL_CAUSAL, NULL)), NULL, 0));
    tl_ledger_end(ledger);
    uint64_t gemm = 2 * 8 * 2 * (4 * 5 / 2); /* 2D, H heads, T(T+1)/2 pairs */
    expect_count(tl_ledger_total(ledger, TL_FORWARD, "attention").flops, 2 * gemm);
    expect_count(tl_ledger_total(ledger, TL_BACKWARD, "attention_grad").flops, 4 * gemm);
    expect_count(tl_ledger_total(ledger, TL_RECOMPUTE, "attention_grad").flops, gemm);
    expect_equal(tl_ledger_total(ledger, TL_ALL, "attention_grad").calls, 1); /* one call, two parts */
    tl_ledger_free(ledger);
}

static void rows_are_told_apart_by_dtype(void **state) {
    (void)state;
    tl_ledger *ledger = tl_ledger_begin("dtypes");
    tl_tensor *a = tl_ones(TL_SHAPE(2, 2), TL_BF16, NULL), *b = tl_ones(TL_SHAPE(2, 2), TL_F64, NULL);
    tl_matmul(a, a), tl_matmul(b, b), tl_matmul(b, b);
    tl_ledger_end(ledger);
    int rows = 0;
    for (size_t i = 0; i < ledger->n_rows; i++) {
        const struct ledger_row *row = &ledger->rows[i];
        if (strcmp(row->key.op, "matmul")) continue;
        rows++;
        expect_equal(row->calls, row->key.dtype == TL_BF16 ? 1 : 2);
        expect_equal(row->key.accumulate, row->key.dtype == TL_BF16 ? TL_F32 : TL_F64);
    }
    expect_equal(rows, 2);
    tl_ledger_free(ledger);
}

static void thousands_of_rows_are_found_again(void **state) {
    (void)state;
    tl_tensor *x = ones(1);
    tl_ledger *outer = tl_ledger_begin("outer"), *ledger = tl_ledger_begin("rows");
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 2000; i++) {
            char name[32];
            snprintf(name, sizeof name, "m%d", i);
            tl_scope scope = tl_scope_enter(name);
            tl_neg(x);
            tl_scope_end(scope);
        }
    tl_ledger_end(ledger);
    tl_ledger_end(outer);
    expect_equal(ledger->n_rows, 2000);
    expect_equal(outer->n_rows, 2000);
    for (size_t i = 0; i < ledger->n_rows; i++)
        if (ledger->rows[i].calls != 2)
            fail_msg("row %zu has %llu calls, want 2", i, (unsigned long long)ledger->rows[i].calls);
    expect_count(tl_ledger_total(outer, TL_ALL, "neg").flops, 4000);
    ledger_sort(ledger->rows, ledger->n_rows);
    expect_equal(ledger->rows[0].calls, 2);
    tl_ledger_free(ledger), tl_ledger_free(outer);
}

static void totals_go_beyond_64_bits(void **state) {
    (void)state;
    tl_ledger *ledger = tl_ledger_begin("large");
    int64_t n = (int64_t)1 << 25; /* 2 n^3 = 2^76 FLOPs, priced in no time */
    tl_tensor *a = tl_empty(TL_SHAPE(n, n), TL_BF16, check_meta());
    tl_matmul(a, a);
    tl_ledger_end(ledger);
    tl_totals t = tl_ledger_total(ledger, TL_ALL, "matmul");
    char text[40];
    expect_text(tl_count_text(t.flops, text), "75557863725914323419136"); /* 2^76 */
    expect_near(tl_count_value(t.flops), 75557863725914323419136.0, 0);
    expect_equal(t.flops.high, 1 << 12);
    expect_equal(t.flops.low, 0);
    expect_count(t.bytes_written, (uint64_t)n * (uint64_t)n * 2);
    tl_ledger_free(ledger);
}

static void counts_are_printed_exactly(void **state) {
    (void)state;
    static const struct {
        tl_count count;
        const char *text;
    } cases[] = {{{0, 0}, "0"},
                 {{7, 0}, "7"},
                 {{UINT64_MAX, 0}, "18446744073709551615"},
                 {{0, 1}, "18446744073709551616"},
                 {{1, 1}, "18446744073709551617"},
                 {{UINT64_MAX, UINT64_MAX}, "340282366920938463463374607431768211455"}};
    char text[40];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_text(tl_count_text(cases[i].count, text), cases[i].text);
    expect_near(tl_count_value((tl_count){0, 1}), 18446744073709551616.0, 0);
    expect_near(tl_count_value((tl_count){5, 0}), 5, 0);
}

static void profiling_times_kernels_and_nothing_else_changes(void **state) {
    (void)state;
    tl_tensor *a = tl_ones(TL_SHAPE(200, 200), TL_F32, NULL);
    tl_ledger *plain = tl_ledger_begin("plain");
    tl_matmul(a, a), tl_transpose(a, 0, 1);
    tl_ledger_end(plain);
    expect_true(!tl_set_profiling(true));
    tl_ledger *timed = tl_ledger_begin("timed");
    tl_matmul(a, a), tl_transpose(a, 0, 1);
    tl_ledger_end(timed);
    expect_true(tl_set_profiling(false));
    tl_totals p = tl_ledger_total(plain, TL_ALL, NULL), t = tl_ledger_total(timed, TL_ALL, NULL);
    expect_near(p.time_s, 0, 0);
    expect_true(t.time_s > 0);
    expect_near(tl_ledger_total(timed, TL_ALL, "permute").time_s, 0, 0); /* a view takes no time */
    expect_equal(t.calls, p.calls);
    expect_count(t.flops, p.flops.low);
    tl_set_profiling(true);
    tl_ledger *priced = tl_ledger_begin("priced");
    tl_neg(tl_ones(TL_SHAPE(3), TL_F32, check_meta()));
    tl_ledger_end(priced);
    tl_set_profiling(false);
    expect_near(tl_ledger_total(priced, TL_ALL, NULL).time_s, 0, 0);
    tl_ledger_free(plain), tl_ledger_free(timed), tl_ledger_free(priced);
}

/* An asynchronous device: seconds are read when the ledger ends, or when there are more spans than are kept. Its
 * marks are 0.5 s apart. */
static int n_marks_read;
static void *never_fetches(tl_device *device, const void *from, size_t bytes, char *error) {
    (void)device, (void)from, (void)bytes, (void)error;
    return NULL;
}
static double half_seconds(tl_device *device, int64_t from, int64_t to) {
    (void)device;
    n_marks_read++;
    return 0.5 * (double)(to - from);
}

static void marks_of_a_device_that_works_on_its_own_are_read_at_the_end(void **state) {
    (void)state;
    const struct device_functions functions = {.fetch_begin = never_fetches, .mark_seconds = half_seconds};
    tl_device device = {.functions = &functions};
    const struct ledger_key key = {.op = "one"}, other = {.op = "other"};
    tl_ledger *outer = tl_ledger_begin("outer");
    ledger_time(&key, &(struct ledger_span){&device, 0, 1});
    expect_equal(n_marks_read, 0);
    tl_ledger *inner = tl_ledger_begin("inner"); /* the outer ledger's are read before an inner one begins */
    expect_equal(n_marks_read, 1);
    for (int i = 0; i < LEDGER_TIMINGS + 1; i++)
        ledger_time(i % 2 ? &other : &key, &(struct ledger_span){&device, i, i + 2});
    expect_equal(n_marks_read, 1 + LEDGER_TIMINGS);
    tl_ledger_end(inner);
    expect_equal(n_marks_read, 2 + LEDGER_TIMINGS);
    expect_near(tl_ledger_total(inner, TL_ALL, "one").time_s, LEDGER_TIMINGS / 2 + 1, 0);
    expect_near(tl_ledger_total(inner, TL_ALL, "other").time_s, LEDGER_TIMINGS / 2, 0);
    tl_ledger_end(outer);
    expect_near(tl_ledger_total(outer, TL_ALL, NULL).time_s, LEDGER_TIMINGS + 1.5, 0);
    ledger_time(&key, &(struct ledger_span){&device, 0, 1}); /* no ledger is open */
    expect_equal(n_marks_read, 2 + LEDGER_TIMINGS);
    tl_ledger_free(inner), tl_ledger_free(outer);
}

static void refused_calls_are_not_billed(void **state) {
    (void)state;
    tl_tensor *a = tl_ones(TL_SHAPE(4, 6), TL_F32, NULL), *ids = tl_full(TL_SHAPE(2), 7, TL_I64, NULL);
    tl_ledger *ledger = tl_ledger_begin("refused");
    expect_refused(tl_matmul(a, a), "cannot be multiplied");
    expect_refused(tl_embedding(a, ids), "id 7 is outside"); /* by the kernel, which has run */
    tl_ledger_end(ledger);
    expect_equal(tl_ledger_total(ledger, TL_ALL, NULL).calls, 0);
    expect_equal(ledger->n_rows, 0);
    tl_ledger_free(ledger);
}

/* A bill that is undone leaves no row, and the rows after it keep their times. */
static void a_bill_is_taken_back(void **state) {
    (void)state;
    const struct device_functions functions = {.fetch_begin = never_fetches, .mark_seconds = half_seconds};
    tl_device device = {.functions = &functions};
    struct ledger_entry first = {.key.op = "first",
                                 .cost = {.n_parts = 2, .part = {{COST_HERE, 1, 2, 3}, {2, 4, 5, 6}}}};
    struct ledger_entry second = {.key.op = "second", .cost = {.n_parts = 1, .part = {{COST_HERE, 7, 8, 9}}}};
    tl_ledger *ledger = tl_ledger_begin("taken back");
    expect_true(ledger_bill(&first) && ledger_bill(&second) && ledger_bill(&second));
    ledger_time(&second.key, &(struct ledger_span){&device, 0, 4});
    ledger_unbill(&first);
    expect_equal(ledger->n_rows, 1);
    ledger_unbill(&second);
    expect_true(ledger_bill(&first));
    tl_ledger_end(ledger);
    expect_equal(ledger->n_rows, 3);
    tl_totals t = tl_ledger_total(ledger, TL_ALL, "second");
    expect_equal(t.calls, 1);
    expect_count(t.flops, 7);
    expect_count(t.bytes_written, 9);
    expect_near(t.time_s, 2, 0);
    expect_count(tl_ledger_total(ledger, TL_ALL, "first").flops, 5);
    tl_ledger_free(ledger);
}

static void a_device_opened_inside_a_ledger_is_watched_too(void **state) {
    (void)state;
    tl_ledger *outer = tl_ledger_begin("outer"), *inner = tl_ledger_begin("inner");
    tl_device *late = tl_device_find("meta:h200"); /* the first use in this program */
    tl_scope scope = tl_scope_begin();
    tl_empty(TL_SHAPE(1000), TL_U8, late);
    tl_scope_end(scope);
    tl_ledger_end(inner);
    scope = tl_scope_begin();
    tl_empty(TL_SHAPE(3000), TL_U8, late);
    tl_scope_end(scope);
    tl_ledger_end(outer);
    expect_equal(tl_ledger_peak(inner, late, TL_ALL), 1000);
    expect_equal(tl_ledger_peak(outer, late, TL_ALL), 3000);
    expect_equal(tl_device_memory(late).peak_bytes, 3000);
    tl_ledger_free(inner), tl_ledger_free(outer);
}

static void the_same_step_costs_the_same_on_meta(void **state) {
    (void)state;
    tl_device *devices[] = {check_cpu(), check_meta()};
    tl_ledger *ledgers[2];
    for (int d = 0; d < 2; d++) {
        tl_set_default_device(devices[d]);
        tl_scope scope = tl_scope_begin();
        ledgers[d] = tl_ledger_begin("step");
        tl_tensor *w = tl_requires_grad(tl_normal(TL_SHAPE(16, 16), 0, 1, TL_F32, NULL), true);
        tl_tensor *h = tl_dropout(tl_gelu(tl_linear(tl_normal(TL_SHAPE(3, 5, 16), 0, 1, TL_F32, NULL), w, NULL)), 0.5);
        expect_true(tl_backward(tl_mean_all(tl_softmax(tl_layer_norm(h, NULL, NULL, 1e-5), -1)), NULL, 0));
        tl_ledger_end(ledgers[d]);
        tl_scope_end(scope);
    }
    tl_set_default_device(check_cpu());
    tl_totals real = tl_ledger_total(ledgers[0], TL_ALL, NULL), priced = tl_ledger_total(ledgers[1], TL_ALL, NULL);
    expect_equal(priced.calls, real.calls);
    expect_count(priced.flops, real.flops.low);
    expect_count(priced.bytes_read, real.bytes_read.low);
    expect_count(priced.bytes_written, real.bytes_written.low);
    expect_equal(ledgers[1]->n_rows, ledgers[0]->n_rows);
    for (int p = -1; p < TL_PURPOSE_COUNT; p++)
        expect_equal(tl_ledger_peak(ledgers[1], devices[1], p), tl_ledger_peak(ledgers[0], devices[0], p));
    expect_equal(tl_ledger_peak_allocated(ledgers[1], devices[1]), tl_ledger_peak_allocated(ledgers[0], devices[0]));
    tl_ledger_free(ledgers[0]), tl_ledger_free(ledgers[1]);
}

/* ---- The list of allocations ---- */

struct replay {
    uint64_t now, peak, by[TL_PURPOSE_COUNT], peak_by[TL_PURPOSE_COUNT];
};

static void replay_change(struct replay *r, const json_t *tensor, json_int_t purpose, int sign) {
    uint64_t bytes = (uint64_t)json_integer_value(json_array_get(tensor, 3));
    r->now += (uint64_t)sign * bytes;
    r->by[purpose] += (uint64_t)sign * bytes;
}

/* Plays a list from its beginning: what is live now, and at the peak. */
static struct replay replay(const json_t *list) {
    struct replay r = {0};
    json_t *tensors = json_object_get(list, "tensors"), *event;
    json_int_t purpose[4096];
    size_t n_first = (size_t)json_integer_value(json_object_get(list, "held_first")), k;
    for (size_t i = 0; i < json_array_size(tensors); i++)
        purpose[i] = json_integer_value(json_array_get(json_array_get(tensors, i), 2));
    for (size_t i = 0; i < n_first; i++) replay_change(&r, json_array_get(tensors, i), purpose[i], 1);
    r.peak = r.now, memcpy(r.peak_by, r.by, sizeof r.by);
    json_array_foreach(json_object_get(list, "events"), k, event) {
        json_int_t kind = json_integer_value(json_array_get(event, 0)),
                   at = json_integer_value(json_array_get(event, 1));
        const json_t *tensor = json_array_get(tensors, (size_t)at);
        if (kind == 0) continue;
        replay_change(&r, tensor, purpose[at], kind == 1 ? 1 : -1);
        if (kind == 3) replay_change(&r, tensor, purpose[at] = json_integer_value(json_array_get(event, 2)), 1);
        if (r.now > r.peak) r.peak = r.now;
        if (r.now == r.peak) memcpy(r.peak_by, r.by, sizeof r.by);
    }
    return r;
}

static json_t *list_of(tl_ledger *ledger, tl_device *device) {
    char *text = tl_ledger_memory_json(ledger, device);
    json_t *list = text ? json_loads(text, 0, NULL) : NULL;
    expect_true(list != NULL);
    free(text);
    return list;
}

static void the_list_of_allocations_adds_up_to_the_peaks(void **state) {
    (void)state;
    json_t *lists[2];
    for (int i = 0; i < 2; i++) {
        tl_device *device = i ? check_meta() : tl_device_find("cpu");
        tl_scope scope = tl_scope_begin();
        tl_tensor *older = tl_ones(TL_SHAPE(33), TL_F32, device),
                  *freed = tl_keep(tl_ones(TL_SHAPE(50), TL_F32, device));
        expect_true(!tl_set_memory_events(true));
        tl_tensor *w = tl_requires_grad(tl_ones(TL_SHAPE(20, 30), TL_F32, device), true);
        tl_ledger *outer = tl_ledger_begin("outer"), *inner = tl_ledger_begin("inner");
        tl_scope named = tl_scope_enter("layer");
        tl_tensor *y = tl_mul(tl_matmul(tl_ones(TL_SHAPE(10, 20), TL_F32, device), w), tl_sum_all(older));
        tl_backward(tl_sum_all(y), NULL, 0);
        tl_drop(freed);
        tl_scope_end(named);
        tl_ledger_end(inner), tl_ledger_end(outer);
        expect_true(tl_set_memory_events(false));
        for (int k = 0; k < 2; k++) {
            json_t *list = list_of(k ? outer : inner, device);
            struct replay r = replay(list);
            expect_equal(r.peak, tl_ledger_peak(inner, device, TL_ALL));
            for (int p = 0; p < TL_PURPOSE_COUNT; p++) expect_equal(r.peak_by[p], tl_ledger_peak(inner, device, p));
            expect_equal(r.now, tl_device_memory(device).live_bytes);
            if (k) json_decref(list);
            else lists[i] = list;
        }
        tl_scope_end(scope);
        tl_ledger_free(inner), tl_ledger_free(outer);
    }
    json_object_del(lists[0], "device"), json_object_del(lists[1], "device");
    char *real = json_dumps(lists[0], JSON_SORT_KEYS), *priced = json_dumps(lists[1], JSON_SORT_KEYS);
    expect_text(priced, real); /* event by event */
    expect_true(strstr(real, "\"matmul\"") && strstr(real, "\"layer\"") && strstr(real, "[10, 30]"));
    free(real), free(priced), json_decref(lists[0]), json_decref(lists[1]);
}

static void a_ledger_without_a_list_says_so(void **state) {
    (void)state;
    tl_ledger *plain = tl_ledger_begin("plain");
    tl_set_memory_events(true); /* too late for this one */
    ones(10);
    tl_ledger_end(plain);
    tl_ledger *cut = tl_ledger_begin("cut");
    tl_set_memory_events(false), tl_set_memory_events(true); /* a list with a gap is none */
    ones(10);
    tl_ledger_end(cut);
    tl_set_memory_events(false);
    expect_refused(tl_ledger_memory_json(plain, tl_device_find("cpu")), "has no list of allocations of cpu");
    expect_refused(tl_ledger_memory_json(cut, tl_device_find("cpu")), "has no list of allocations of cpu");
    expect_refused(tl_ledger_memory_json(NULL, NULL), "got NULL instead of a ledger");
    tl_ledger_free(plain), tl_ledger_free(cut);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(ledgers_bill_flops_bytes_and_calls),
        TEST(inner_ledgers_are_part_of_outer_ones),
        TEST(wrong_order_is_refused_and_changes_nothing),
        TEST(freeing_an_open_ledger_ends_it_and_those_inside),
        TEST(phases_are_told_apart),
        TEST(parts_of_a_call_are_billed_to_their_phases),
        TEST(rows_are_told_apart_by_dtype),
        TEST(thousands_of_rows_are_found_again),
        TEST(totals_go_beyond_64_bits),
        TEST(counts_are_printed_exactly),
        TEST(profiling_times_kernels_and_nothing_else_changes),
        TEST(marks_of_a_device_that_works_on_its_own_are_read_at_the_end),
        TEST(refused_calls_are_not_billed),
        TEST(a_bill_is_taken_back),
        TEST(a_device_opened_inside_a_ledger_is_watched_too),
        TEST(the_same_step_costs_the_same_on_meta),
        TEST(the_list_of_allocations_adds_up_to_the_peaks),
        TEST(a_ledger_without_a_list_says_so),
    };
    return cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
}

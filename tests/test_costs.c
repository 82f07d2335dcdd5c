/* test_costs.c: the cost of each op, with the arithmetic written out.
 *
 * A case opens a ledger, makes calls, and states one row of it: calls, FLOPs, bytes read, bytes written. The rules
 * are those of docs/accounting.md: a multiply-add is 2 FLOPs; each distinct input byte is read once (an expanded view
 * counts the memory it covers), each output byte is written once; a gather counts the fetched elements. Every row of
 * op_list.h has a case: the last test says which one lacks it. For elementwise ops, the samples in support/samples.c
 * state the FLOPs per element. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ops/ops.h"
#include "support/samples.h"

static tl_device *cpu, *meta;
static bool is_covered[OP_COUNT];

/* Shape-only tensors of any layout: costs know no data. */
static tl_tensor *f32(int rank, const int64_t *shape) { return tl_empty(rank, shape, TL_F32, meta); }
static tl_tensor *of(tl_dtype dtype, int rank, const int64_t *shape) { return tl_empty(rank, shape, dtype, meta); }
static tl_tensor *leaf(tl_tensor *x) { return tl_requires_grad(x, true); }

static tl_ledger *ledger;
static tl_scope scope;
static void begin(void) {
    if (tl_error() != TL_OK) fail_msg("%s", tl_error_message());
    ledger = tl_ledger_begin("case");
}

static void expect(int line, const char *op, int phase, uint64_t calls, uint64_t flops, uint64_t bytes_read,
                   uint64_t bytes_written) {
    if (tl_error() != TL_OK) fail_msg("line %d: %s", line, tl_error_message());
    tl_totals t = tl_ledger_total(ledger, phase, op);
    if (t.calls != calls || t.flops.low != flops || t.bytes_read.low != bytes_read ||
        t.bytes_written.low != bytes_written)
        fail_msg("line %d: %s: %llu calls, %llu FLOPs, %llu read, %llu written; expected %llu, %llu, %llu, %llu", line,
                 op, (unsigned long long)t.calls, (unsigned long long)t.flops.low, (unsigned long long)t.bytes_read.low,
                 (unsigned long long)t.bytes_written.low, (unsigned long long)calls, (unsigned long long)flops,
                 (unsigned long long)bytes_read, (unsigned long long)bytes_written);
    for (int i = 0; i < OP_COUNT; i++) is_covered[i] |= !strcmp(op_table[i]->name, op);
}
/* Several rows of one ledger; the last one ends it. */
#define ROW(op, phase, calls, flops, read, written) expect(__LINE__, op, phase, calls, flops, read, written)
static void end(void) {
    tl_ledger_end(ledger);
    tl_ledger_free(ledger);
}
/* One call, one row, forward. */
#define COST(call, op, flops, read, written)          \
    do {                                              \
        begin();                                      \
        (void)(call);                                 \
        ROW(op, TL_FORWARD, 1, flops, read, written); \
        end();                                        \
    } while (0)

static int start(void **state) {
    (void)state;
    tl_error_clear(); /* a failed case leaves its error and its scopes behind */
    tl_scope_reset();
    scope = tl_scope_begin();
    return 0;
}
static int stop(void **state) {
    (void)state;
    tl_scope_end(scope);
    assert_nothing_held("costs", meta);
    assert_nothing_held("costs", cpu);
    return 0;
}

/* ---- Views: free ---- */

static void views_cost_nothing(void **state) {
    (void)state;
    tl_tensor *x = f32(TL_SHAPE(4, 6));
    COST(tl_select(x, 0, 1), "select", 0, 0, 0);
    COST(tl_slice(x, 0, 0, TL_END, 2), "slice", 0, 0, 0);
    COST(tl_view(x, TL_SHAPE(24)), "view", 0, 0, 0);
    COST(tl_transpose(x, 0, 1), "permute", 0, 0, 0);
    COST(tl_expand(x, TL_SHAPE(5, 4, 6)), "expand", 0, 0, 0);
    COST(tl_diagonal(x, 0, 0, 1), "diagonal", 0, 0, 0);
    COST(tl_as_strided(x, TL_SHAPE(3, 3), (int64_t[]){1, 1}, 0), "as_strided", 0, 0, 0);
    COST(tl_view_as_complex(tl_view(x, TL_SHAPE(12, 2))), "view_as_complex", 0, 0, 0);
    COST(tl_view_as_real(tl_empty(TL_SHAPE(3), TL_C128, meta)), "view_as_real", 0, 0, 0);
}

/* ---- Complex numbers: pairs of real ones ---- */

static void complex_numbers_cost_their_parts(void **state) {
    (void)state;
    tl_tensor *x = tl_empty(TL_SHAPE(4, 6), TL_C64, meta), *row = tl_empty(TL_SHAPE(6), TL_C64, meta);
    COST(tl_clone(x), "copy", 0, 192, 192);                      /* 24 c64 of 8 bytes, in and out */
    COST(tl_cast(x, TL_C128), "copy", 0, 192, 384);              /* 16 bytes each */
    COST(tl_cast(x, TL_F32), "copy", 0, 96, 96);                 /* the real parts */
    COST(tl_zeros(TL_SHAPE(5), TL_C64, meta), "fill", 0, 0, 40); /* 5 of 8 bytes */
    COST(tl_add(x, row), "add", 48, 240, 192);                   /* 2 x 24 sums; 24 and 6 numbers in, 24 out */
    COST(tl_sum_all(x), "sum", 48, 192, 8);                      /* 2 x 24 sums */
    COST(tl_mul(x, row), "complex_mul", 144, 240, 192);          /* 6 x 24 */
    COST(tl_div(x, row), "complex_div", 240, 240, 192);          /* 10 x 24 */
    tl_tensor *a = tl_empty(TL_SHAPE(3, 4), TL_C64, meta), *b = tl_empty(TL_SHAPE(4, 5), TL_C64, meta);
    begin(); /* four real products of 2 x 3 x 4 x 5 FLOPs, from dense parts; then a difference and a sum */
    tl_matmul(a, b);
    expect(__LINE__, "matmul", TL_ALL, 4, 480, 4 * (48 + 80), 4 * 60);
    expect(__LINE__, "copy", TL_ALL, 4, 0, 2 * (48 + 80), 2 * (48 + 80));
    expect(__LINE__, "sub", TL_ALL, 1, 15, 120, 60);
    expect(__LINE__, "add", TL_ALL, 1, 15, 120, 60);
    end();
}

/* ---- Creation: writes only ---- */

static void creation_writes_and_reads_nothing(void **state) {
    (void)state;
    COST(tl_full(TL_SHAPE(3, 4), 1, TL_F32, meta), "full", 0, 0, 48);     /* 1 write of 12 f32 */
    COST(tl_zeros(TL_SHAPE(5), TL_BF16, meta), "full", 0, 0, 10);         /* 1 write of 5 bf16 */
    COST(tl_full(TL_SHAPE(3, 4), 1, TL_F4E2M1, meta), "full", 0, 0, 6);   /* 12 f4, two per byte */
    COST(tl_arange(0, 2, 10, TL_I64, meta), "arange", 20, 0, 80);         /* start + i*step: 2 x 10; 10 i64 */
    COST(tl_normal(TL_SHAPE(7), 0, 1, TL_F32, meta), "random", 0, 0, 28); /* 7 f32 */
    COST(tl_bernoulli(TL_SHAPE(7), 0.5, meta), "random", 0, 0, 7);        /* 7 bool */
    begin();
    tl_empty(TL_SHAPE(100), TL_F32, meta); /* memory is no work */
    ROW("full", TL_ALL, 0, 0, 0, 0);
    end();
}

/* ---- Copies: no FLOPs ---- */

static void copies_move_bytes(void **state) {
    (void)state;
    tl_tensor *x = f32(TL_SHAPE(4, 6)), *row = f32(TL_SHAPE(1, 6));
    COST(tl_clone(x), "copy", 0, 96, 96);                              /* 24 f32 in, 24 out */
    COST(tl_clone(tl_expand(row, TL_SHAPE(4, 6))), "copy", 0, 24, 96); /* covers 6 f32, writes 24 */
    COST(tl_clone(tl_slice(x, 1, 0, TL_END, 2)), "copy", 0, 48, 48);   /* 12 f32 each, gaps not counted */
    COST(tl_clone(tl_as_strided(x, TL_SHAPE(4, 3), (int64_t[]){1, 1}, 0)), "copy", 0, 24,
         48);                                                      /* 4+3-1 = 6 f32 covered, 12 out */
    COST(tl_cast(x, TL_BF16), "copy", 0, 96, 48);                  /* 24 f32 in, 24 bf16 out */
    COST(tl_cast(x, TL_F4E2M1), "copy", 0, 96, 12);                /* 24 f4 are 12 bytes */
    COST(tl_copy_(f32(TL_SHAPE(4, 6)), row), "assign", 0, 24, 96); /* 6 f32 in, 24 written; the old ones are not read */
    COST(tl_fill_(tl_select(x, 1, 0), 1), "fill", 0, 0, 16);       /* 4 f32 written */
    begin(); /* contiguous tensors, or tensors of that dtype, are not copied */
    tl_contiguous(x);
    tl_cast(x, TL_F32);
    ROW("copy", TL_ALL, 0, 0, 0, 0);
    end();
}

static void unview_places_for_free_and_adds_where_elements_meet(void **state) {
    (void)state;
    begin();
    tl_tensor *x = leaf(f32(TL_SHAPE(5, 4)));
    tl_tensor *y = tl_slice(x, 0, 0, 2, 1), *g = f32(TL_SHAPE(2, 4));
    tl_backward(y, g, 0);
    ROW("unview", TL_BACKWARD, 1, 0, 32, 80); /* 8 f32 in; zeros and values: 20 f32 out */
    end();
    begin();
    x = leaf(f32(TL_SHAPE(6)));
    tl_backward(tl_as_strided(x, TL_SHAPE(4, 3), (int64_t[]){1, 1}, 0), f32(TL_SHAPE(4, 3)), 0);
    ROW("unview", TL_BACKWARD, 1, 12, 48, 24); /* one addition for each of 12; 12 f32 in, 6 out */
    end();
}

static void transfers_are_counted_apart(void **state) {
    (void)state;
    tl_tensor *x = tl_zeros(TL_SHAPE(3, 4), TL_F32, cpu);
    begin();
    tl_to(x, tl_device_find("meta:h200"));
    ROW("transfer", TL_FORWARD, 1, 0, 0, 0);                    /* neither read nor written: the link's bytes */
    assert_int_equal(tl_ledger_transfer_bytes(ledger).low, 48); /* 12 f32 */
    end();
    begin();
    tl_to(tl_transpose(x, 0, 1), tl_device_find("meta:h200")); /* made dense first */
    ROW("copy", TL_FORWARD, 1, 0, 48, 48);
    assert_int_equal(tl_ledger_transfer_bytes(ledger).low, 48);
    end();
    begin();
    tl_to(x, cpu); /* exists already */
    ROW("transfer", TL_FORWARD, 0, 0, 0, 0);
    assert_int_equal(tl_ledger_transfer_bytes(ledger).low, 0);
    end();
}

/* ---- Elementwise ---- */

/* One call of a sample that states its FLOPs, against its row of the ledger: each distinct element of dense inputs is
 * read once, each of the result written once. */
static void expect_sample(const struct sample_op *op, const struct sample *s) {
    tl_tensor *in[SAMPLE_INPUTS] = {0}, *out[SAMPLE_OUTPUTS];
    if (!sample_inputs(s, meta, TL_F32, false, LAY_COUNT, in))
        fail_msg("%s, %s: %s", op->name, s->text, tl_error_message());
    begin();
    if (!sample_call(s, in, out)) fail_msg("%s, %s: %s", op->name, s->text, tl_error_message());
    const tl_totals t = tl_ledger_total(ledger, TL_FORWARD, op->name), all = tl_ledger_total(ledger, TL_ALL, NULL);
    const uint64_t numel = (uint64_t)tl_numel(out[0]);
    const uint64_t flops = s->total_flops ? (uint64_t)s->total_flops : (uint64_t)s->flops * numel;
    if (t.calls != 1 || t.flops.low != flops)
        fail_msg("%s, %s: %llu FLOPs in %llu calls; the sample says %llu in one", op->name, s->text,
                 (unsigned long long)t.flops.low, (unsigned long long)t.calls, (unsigned long long)flops);
    uint64_t read = 0;
    bool is_plain = all.calls == 1; /* the op itself, on inputs without gaps or repeats */
    for (int i = 0; i < sample_input_count(s); i++) {
        read += tl_bytes(in[i]);
        is_plain &= s->in[i].layout != LAY_EXPANDED;
    }
    if (is_plain && (t.bytes_read.low != read || t.bytes_written.low != tl_bytes(out[0])))
        fail_msg("%s, %s: %llu bytes read, %llu written; expected %llu and %llu", op->name, s->text,
                 (unsigned long long)t.bytes_read.low, (unsigned long long)t.bytes_written.low,
                 (unsigned long long)read, (unsigned long long)tl_bytes(out[0]));
    end();
}
static void samples_cost_the_flops_they_state(void **state) {
    (void)state;
    int n = 0;
    for (int is_checked = 0; is_checked < 2; is_checked++) /* look first: the first wrong one ends the test */
        for (const struct sample_op *op = sample_ops; op->name; op++)
            for (const struct sample *s = op->samples; s->text; s++) {
                if (!s->flops && !s->total_flops) continue;
                is_covered[op->id] = true;
                if (is_checked) expect_sample(op, s), n++;
            }
    print_message("    %d samples\n", n);
    assert_true(n > 300);
}

static void elementwise_ops_count_what_they_cover(void **state) {
    (void)state;
    tl_tensor *a = f32(TL_SHAPE(2, 3)), *b = f32(TL_SHAPE(2, 3)), *row = f32(TL_SHAPE(3)),
              *column = f32(TL_SHAPE(2, 1));
    COST(tl_add(a, b), "add", 6, 48, 24);                              /* 2 reads + 1 write of 6 f32 */
    COST(tl_mul(a, row), "mul", 6, 36, 24);                            /* 6 + 3 f32 in, 6 out */
    COST(tl_mul(row, column), "mul", 6, 20, 24);                       /* 3 + 2 f32 in, 6 out */
    COST(tl_mul(a, a), "mul", 6, 24, 24);                              /* the same bytes: one read */
    COST(tl_mul(a, tl_expand(row, TL_SHAPE(2, 3))), "mul", 6, 36, 24); /* the expanded row covers 3 f32 */
    COST(tl_add(of(TL_BF16, TL_SHAPE(4)), of(TL_BF16, TL_SHAPE(4))), "add", 4, 16, 8); /* 2 x 4 bf16 in, 4 out */
    COST(tl_add(of(TL_BF16, TL_SHAPE(4)), f32(TL_SHAPE(4))), "add", 4, 24, 16); /* 4 bf16 + 4 f32 in, 4 f32 out */
    COST(tl_add_(f32(TL_SHAPE(2, 3)), row), "add", 6, 36, 24); /* in place: reads both, writes the first */
    tl_tensor *x = f32(TL_SHAPE(6));
    COST(tl_mul_(x, x), "mul", 6, 24, 24);          /* in place with itself: one read, one write */
    COST(tl_affine(a, 2, 1), "affine", 12, 24, 24); /* product and sum */
    COST(tl_affine(a, 2, 0), "affine", 6, 24, 24);  /* nothing to add */
    COST(tl_affine(a, 1, 1), "affine", 6, 24, 24);  /* nothing to multiply */
    COST(tl_affine(a, 1, 0), "affine", 0, 24, 24);  /* a copy */
    COST(tl_cmp(a, TL_LT, b), "compare", 6, 48, 6); /* 6 bool out */
    COST(tl_where(of(TL_BOOL, TL_SHAPE(2, 3)), a, row), "where", 0, 42, 24); /* 6 bool + 6 f32 + 3 f32 in */
    COST(tl_exp(f32(TL_SHAPE(0, 3))), "exp", 0, 0, 0);                       /* nothing costs nothing */
    COST(tl_exp(f32(TL_SCALAR)), "exp", 1, 4, 4);
}

static void elementwise_gradients_count_their_formula(void **state) {
    (void)state;
    tl_tensor *g = f32(TL_SHAPE(6));
    begin();
    tl_backward(tl_gelu(leaf(f32(TL_SHAPE(6)))), g, 0);
    ROW("gelu_grad", TL_BACKWARD, 1, 114, 48, 24); /* 19 x 6; x and g in, dx out */
    end();
    begin();
    tl_backward(tl_silu(leaf(f32(TL_SHAPE(6)))), g, 0);
    ROW("silu_grad", TL_BACKWARD, 1, 54, 48, 24); /* 9 x 6 */
    end();
    begin();
    tl_backward(tl_mul(leaf(f32(TL_SHAPE(2, 3))), leaf(f32(TL_SHAPE(3)))), f32(TL_SHAPE(2, 3)), 0);
    ROW("mul", TL_BACKWARD, 2, 12, 84, 48); /* da = g b: 6 + 3 in, 6 out; db = g a: 6 + 6 in, 6 out */
    ROW("sum", TL_BACKWARD, 1, 6, 24, 12);  /* db's broadcasting undone: 6 in, 3 out */
    end();
    begin();
    tl_backward(tl_tanh(leaf(f32(TL_SHAPE(6)))), g, 0);
    ROW("tanh_grad", TL_BACKWARD, 1, 24, 48, 24); /* g (1 - y) (1 + y): 4 x 6; y and g in, dx out */
    end();
    begin();
    tl_backward(tl_sigmoid(leaf(f32(TL_SHAPE(6)))), g, 0);
    ROW("sigmoid_grad", TL_BACKWARD, 1, 18, 48, 24); /* g y (1 - y): 3 x 6 */
    end();
    begin();
    tl_backward(tl_relu(leaf(f32(TL_SHAPE(6)))), g, 0);
    ROW("relu_grad", TL_BACKWARD, 1, 6, 48, 24); /* a comparison each */
    end();
}

/* ---- Reductions ---- */

static void reductions_count_one_per_element(void **state) {
    (void)state;
    tl_tensor *x = f32(TL_SHAPE(4, 6));
    const int last = -1;
    COST(tl_sum_all(x), "sum", 24, 96, 4);                                           /* 24 f32 in, 1 out */
    COST(tl_sum(x, &last, 1, false), "sum", 24, 96, 16);                             /* 4 out */
    COST(tl_sum(of(TL_BOOL, TL_SHAPE(8)), NULL, 0, false), "sum", 8, 8, 8);          /* 8 bytes in, one i64 out */
    COST(tl_sum_all(tl_expand(f32(TL_SHAPE(6)), TL_SHAPE(4, 6))), "sum", 24, 24, 4); /* 24 additions of 6 f32 */
    COST(tl_max(x, &last, 1, true), "max", 24, 96, 16);
    COST(tl_softmax(x, -1), "softmax", 120, 96, 96); /* max, subtract, exp, sum, divide: 5 x 24 */
    COST(tl_mean_all(x), "sum", 24 + 1, 96, 4);      /* over 24 */
    COST(tl_mean(of(TL_BF16, TL_SHAPE(4, 6)), &last, 1, false), "sum", 24 + 4, 48, 8);
    begin();
    tl_backward(tl_mean(leaf(f32(TL_SHAPE(4, 6))), &last, 1, false), f32(TL_SHAPE(4)), 0);
    ROW("affine", TL_BACKWARD, 1, 4, 16, 16); /* g times 1/6, before it is expanded */
    end();
    begin();
    tl_backward(tl_softmax(leaf(f32(TL_SHAPE(4, 6))), -1), x, 0);
    ROW("softmax_grad", TL_BACKWARD, 1, 96, 192, 96); /* product, sum, subtract, product: 4 x 24; y and g in */
    end();
}

/* ---- Products ---- */

static void products_cost_2mkn(void **state) {
    (void)state;
    COST(tl_matmul(f32(TL_SHAPE(3, 4)), f32(TL_SHAPE(4, 5))), "matmul", 2 * 3 * 4 * 5, 48 + 80, 60);
    COST(tl_matmul(f32(TL_SHAPE(3, 4)), tl_transpose(f32(TL_SHAPE(5, 4)), 0, 1)), "matmul", 120, 128,
         60); /* strides are free */
    tl_tensor *parts[2] = {f32(TL_SHAPE(5, 4)), f32(TL_SHAPE(2, 4))};
    COST(matmul_parts(f32(TL_SHAPE(3, 4)), parts, 2), "matmul_parts", 2 * 3 * 4 * 7, 48 + 80 + 32, 84);
    COST(tl_matmul(of(TL_BF16, TL_SHAPE(3, 4)), of(TL_BF16, TL_SHAPE(4, 5))), "matmul", 120, 64, 30);
    COST(tl_matmul(f32(TL_SHAPE(2, 3, 4)), f32(TL_SHAPE(2, 4, 5))), "matmul", 2 * 120, 2 * 128,
         2 * 60); /* two products */
    COST(tl_matmul(f32(TL_SHAPE(2, 3, 4)), f32(TL_SHAPE(1, 4, 5))), "matmul", 240, 96 + 80,
         120); /* one matrix for both: read once */
    COST(tl_matmul(f32(TL_SHAPE(2, 3, 4)), f32(TL_SHAPE(4, 5))), "matmul", 240, 96 + 80,
         120);                                                                     /* six rows by one matrix */
    COST(tl_matmul(f32(TL_SHAPE(4)), f32(TL_SHAPE(4))), "matmul", 8, 32, 4);       /* 4 multiply-adds */
    COST(tl_matmul(f32(TL_SHAPE(3, 0)), f32(TL_SHAPE(0, 5))), "matmul", 0, 0, 60); /* zeros are written */
    tl_tensor *x = f32(TL_SHAPE(4, 4));
    COST(tl_matmul(x, x), "matmul", 128, 64, 64); /* one read */
    begin();
    tl_linear(f32(TL_SHAPE(2, 3, 4)), f32(TL_SHAPE(5, 4)), f32(TL_SHAPE(5)));
    ROW("matmul", TL_FORWARD, 1, 2 * 6 * 4 * 5, 96 + 80, 120);
    ROW("add", TL_FORWARD, 1, 30, 120 + 20, 120);
    end();
}

static void gradients_of_products_cost_twice_and_add_for_free(void **state) {
    (void)state;
    begin();
    tl_backward(tl_matmul(leaf(f32(TL_SHAPE(3, 4))), leaf(f32(TL_SHAPE(4, 5)))), f32(TL_SHAPE(3, 5)), 0);
    /* dA = g B^T: 2x3x5x4, 15 + 20 in, 12 out; dB = A^T g: 2x4x3x5, 12 + 15 in, 20 out */
    ROW("matmul", TL_BACKWARD, 2, 240, 140 + 108, 48 + 80);
    end();
    begin();
    tl_tensor *x = f32(TL_SHAPE(3, 4)), *w = leaf(f32(TL_SHAPE(4, 4)));
    tl_backward(tl_matmul(tl_matmul(x, w), w), f32(TL_SHAPE(3, 4)), 0);
    ROW("matmul", TL_BACKWARD, 2, 2 * 2 * 3 * 4 * 4, (12 + 16 + 12 + 12) * 4, (12 + 16) * 4);
    /* the second dW is added into the first: c, x and g in, c out; the addition is part of the multiply-adds */
    ROW("matmul_acc", TL_BACKWARD, 1, 96, (16 + 12 + 12) * 4, 64);
    ROW("add", TL_BACKWARD, 0, 0, 0, 0);
    end();
}

/* 7 rows of 4, 3 matrices (4,5): what the groups are is in the data, and no part of the cost. */
static void grouped_products_cost_2nkn_whatever_the_groups_are(void **state) {
    (void)state;
    tl_tensor *ends = of(TL_I64, TL_SHAPE(3)), *x = f32(TL_SHAPE(7, 4)), *w = f32(TL_SHAPE(3, 4, 5));
    COST(tl_grouped_matmul(x, w, ends, false), "grouped_matmul", 2 * 7 * 4 * 5, 112 + 240 + 24, 140);
    begin();
    x = leaf(f32(TL_SHAPE(7, 4))), w = leaf(f32(TL_SHAPE(3, 5, 4)));
    tl_tensor *other = f32(TL_SHAPE(3, 5, 4)), *gate = tl_grouped_matmul(x, w, ends, true);
    tl_tensor *up = tl_grouped_matmul(x, other, ends, true), *g = f32(TL_SHAPE(7, 5));
    tl_backward(tl_add(gate, up), g, 0);
    ROW("grouped_matmul", TL_BACKWARD, 1, 280, 140 + 240 + 24, 112);           /* dx of the one */
    ROW("grouped_matmul_acc", TL_BACKWARD, 1, 280, 112 + 140 + 240 + 24, 112); /* that of the other, into it */
    ROW("grouped_outer", TL_BACKWARD, 1, 280, 140 + 112 + 24, 240);
    end();
    begin();
    x = f32(TL_SHAPE(7, 4)), w = leaf(f32(TL_SHAPE(3, 4, 4)));
    tl_backward(tl_grouped_matmul(tl_grouped_matmul(x, w, ends, true), w, ends, true), f32(TL_SHAPE(7, 4)), 0);
    ROW("grouped_outer_acc", TL_BACKWARD, 1, 2 * 7 * 4 * 4, 192 + 112 + 112 + 24, 192); /* dw, into the first dw */
    end();
}

static void only_wanted_gradients_are_paid_for(void **state) {
    (void)state;
    begin();
    tl_backward(tl_matmul(f32(TL_SHAPE(3, 4)), leaf(f32(TL_SHAPE(4, 5)))), f32(TL_SHAPE(3, 5)), 0);
    ROW("matmul", TL_BACKWARD, 1, 120, (12 + 15) * 4, 80); /* dB alone */
    end();
}

/* ---- Norms ---- */

static void norms_count_their_formula(void **state) {
    (void)state;
    tl_tensor *x = f32(TL_SHAPE(3, 8)), *w = f32(TL_SHAPE(8)), *b = f32(TL_SHAPE(8));
    COST(tl_layer_norm(x, w, b, 1e-5), "layer_norm", 7 * 24, 96 + 32 + 32,
         96 + 12 + 12); /* x, w, b in; y, mean, rstd out */
    COST(tl_layer_norm(x, NULL, NULL, 1e-5), "layer_norm", 5 * 24, 96, 96 + 24);
    COST(tl_rms_norm(x, w, 1e-5), "rms_norm", 4 * 24, 96 + 32, 96 + 12);
    COST(tl_rms_norm(x, NULL, 1e-5), "rms_norm", 3 * 24, 96, 96 + 12);
    begin();
    tl_backward(tl_layer_norm(leaf(f32(TL_SHAPE(3, 8))), leaf(f32(TL_SHAPE(8))), leaf(f32(TL_SHAPE(8))), 1e-5), x, 0);
    ROW("layer_norm_grad", TL_BACKWARD, 1, 13 * 24, 96 + 96 + 12 + 12 + 32,
        96 + 32 + 32); /* g, x, mean, rstd, w; dx, dw, db */
    end();
    begin();
    tl_backward(tl_layer_norm(leaf(f32(TL_SHAPE(3, 8))), NULL, NULL, 1e-5), x, 0);
    ROW("layer_norm_grad", TL_BACKWARD, 1, 9 * 24, 96 + 96 + 24, 96);
    end();
    begin();
    tl_backward(tl_rms_norm(leaf(f32(TL_SHAPE(3, 8))), leaf(f32(TL_SHAPE(8))), 1e-5), x, 0);
    ROW("rms_norm_grad", TL_BACKWARD, 1, 9 * 24, 96 + 96 + 12 + 32, 96 + 32); /* g, x, rstd, w; dx, dw */
    end();
    begin();
    tl_backward(tl_rms_norm(leaf(f32(TL_SHAPE(3, 8))), NULL, 1e-5), x, 0);
    ROW("rms_norm_grad", TL_BACKWARD, 1, 5 * 24, 96 + 96 + 12, 96);
    end();
    tl_tensor *half = of(TL_BF16, TL_SHAPE(3, 8)), *half_w = of(TL_BF16, TL_SHAPE(8));
    COST(tl_rms_norm(half, half_w, 1e-5), "rms_norm", 96, 48 + 16, 48 + 12); /* statistics stay f32 */
}

/* ---- Tokens ---- */

static void tokens_count_what_they_fetch(void **state) {
    (void)state;
    tl_tensor *w = leaf(f32(TL_SHAPE(100, 8))), *ids = of(TL_I64, TL_SHAPE(2, 3));
    COST(tl_embedding(w, ids), "embedding", 0, 6 * 32 + 48, 6 * 32); /* six rows, not the table; six i64 */
    COST(tl_embedding(w, of(TL_I32, TL_SHAPE(5))), "embedding", 0, 5 * 32 + 20, 160);
    begin();
    tl_backward(tl_embedding(w, ids), f32(TL_SHAPE(2, 3, 8)), 0);
    ROW("embedding_grad", TL_BACKWARD, 1, 48, 6 * 32 + 48,
        100 * 32); /* one addition per element of g; the table is written */
    end();
    begin();
    tl_backward(tl_embedding(w, ids), f32(TL_SHAPE(2, 3, 8)), 0);
    ROW("embedding_acc", TL_BACKWARD, 1, 48, 2 * 6 * 32 + 48, 6 * 32); /* the same, into the existing gradient */
    end();
    begin();
    tl_tensor *loss = tl_cross_entropy(leaf(f32(TL_SHAPE(5, 7))), of(TL_I64, TL_SHAPE(5)), NULL);
    /* max, subtract, exp, sum; the sum of rows, and a division; loss, lse, share out */
    ROW("cross_entropy", TL_FORWARD, 1, 4 * 35 + 5 + 1, 140 + 40, 4 + 20 + 4);
    tl_backward(loss, NULL, 0);
    /* g times share; g, logits, targets, lse, share in */
    ROW("cross_entropy_grad", TL_BACKWARD, 1, 3 * 35 + 1, 4 + 140 + 40 + 20 + 4, 140);
    end();
}

/* ---- Attention ---- */

static void rope_rotates_pairs(void **state) {
    (void)state;
    COST(tl_rope(f32(TL_SHAPE(2, 3, 2, 4)), 1e4, 0, NULL), "rope", 3 * 48, 192, 192); /* 4 products, 2 sums per pair */
    COST(tl_rope(f32(TL_SHAPE(2, 3, 2, 4)), 1e4, 0, &(tl_rope_scaling){.size = 2}), "rope", 3 * 24, 192, 192);
    /* a position of 4 bytes for each of the 6 tokens */
    tl_tensor *cache = f32(TL_SHAPE(2, 2, 2, 9, 4)), *at = tl_zeros(TL_SHAPE(2, 1), TL_I64, meta);
    tl_tensor *q = f32(TL_SHAPE(2, 1, 4, 4)), *k = f32(TL_SHAPE(2, 1, 2, 4)), *v = f32(TL_SHAPE(2, 1, 2, 4));
    COST(rope_put(q, k, v, cache, at, 1e4, NULL), "rope_put", 3 * (32 + 16), 128 + 2 * 64 + 16, 128 + 2 * 64);
    COST(tl_rope_at(f32(TL_SHAPE(2, 3, 2, 4)), 1e4, tl_zeros(TL_SHAPE(2, 3), TL_I32, meta), NULL), "rope", 3 * 48,
         192 + 24, 192);
}

static void attention_counts_visible_pairs(void **state) {
    (void)state;
    const int64_t B = 2, T = 5, H = 4, D = 8, S = 7;
    tl_tensor *q = f32(TL_SHAPE(2, 5, 4, 8)), *k = f32(TL_SHAPE(2, 5, 2, 8)), *far = f32(TL_SHAPE(2, 7, 2, 8));
    const uint64_t q_bytes = 2 * 5 * 4 * 8 * 4, k_bytes = 2 * 5 * 2 * 8 * 4, far_bytes = 2 * 7 * 2 * 8 * 4,
                   lse = 2 * 4 * 5 * 4;
    const uint64_t pair = 2 * D; /* one GEMM on one pair of one head */
    /* causal T on T: T(T+1)/2 = 15 pairs; two GEMMs. k and v are two different tensors. */
    tl_tensor *v = f32(TL_SHAPE(2, 5, 2, 8));
    COST(tl_attention(q, k, v, TL_CAUSAL, NULL), "attention", 2 * pair * B * H * (T * (T + 1) / 2),
         q_bytes + 2 * k_bytes, q_bytes + lse);
    COST(tl_attention(q, k, v, NULL, NULL), "attention", 2 * pair * B * H * (T * T), q_bytes + 2 * k_bytes,
         q_bytes + lse);
    /* the last 5 of 7 positions: query t sees 3 + t keys: 3+4+5+6+7 = 25 */
    COST(tl_attention(q, far, far, TL_CAUSAL, NULL), "attention", 2 * pair * B * H * 25, q_bytes + far_bytes,
         q_bytes + lse);
    COST(tl_attention(q, far, far, NULL, NULL), "attention", 2 * pair * B * H * (T * S), q_bytes + far_bytes,
         q_bytes + lse);
    /* 5 queries on 2 keys: the first three see nothing, then 1 + 2 */
    tl_tensor *near = f32(TL_SHAPE(2, 2, 2, 8));
    COST(tl_attention(q, near, near, TL_CAUSAL, NULL), "attention", 2 * pair * B * H * 3, q_bytes + 2 * 2 * 2 * 8 * 4,
         q_bytes + lse);
}

static void attention_bills_its_recomputed_product_to_recompute(void **state) {
    (void)state;
    const uint64_t q_bytes = 2 * 5 * 4 * 8 * 4, k_bytes = 2 * 5 * 2 * 8 * 4, lse = 2 * 4 * 5 * 4,
                   gemm = 2 * 8 * 2 * 4 * 15;
    begin();
    tl_backward(tl_attention(leaf(f32(TL_SHAPE(2, 5, 4, 8))), leaf(f32(TL_SHAPE(2, 5, 2, 8))),
                             leaf(f32(TL_SHAPE(2, 5, 2, 8))), TL_CAUSAL, NULL),
                f32(TL_SHAPE(2, 5, 4, 8)), 0);
    ROW("attention", TL_FORWARD, 1, 2 * gemm, q_bytes + 2 * k_bytes, q_bytes + lse);
    /* g v^T, p^T g, ds k, ds^T q: four; g, q, k, v, out, lse in; dq, dk, dv out */
    ROW("attention_grad", TL_BACKWARD, 1, 4 * gemm, 3 * q_bytes + 2 * k_bytes + lse, q_bytes + 2 * k_bytes);
    /* q k^T again: the same call, so no call and no bytes of its own */
    ROW("attention_grad", TL_RECOMPUTE, 0, gemm, 0, 0);
    end();
    /* packed, with the sums over the rows: an addition for each element */
    struct attr_attention a;
    memset(&a, 0, sizeof a);
    a.causal = a.is_packed = a.gives_sums = true;
    tl_tensor *q = f32(TL_SHAPE(2, 5, 4, 8)), *k = f32(TL_SHAPE(2, 5, 2, 8)), *rows = f32(TL_SHAPE(2, 4, 5));
    tl_tensor *in[] = {f32(TL_SHAPE(2, 5, 4, 8)), q, k, f32(TL_SHAPE(2, 5, 2, 8)), f32(TL_SHAPE(2, 5, 4, 8)), rows};
    tl_call c;
    call_begin(&c, &op_attention_grad, in, 6, ATTR(a));
    begin();
    op_apply(&c);
    ROW("attention_grad", TL_FORWARD, 1, 4 * gemm + 2 * 5 * 8 * 8, 3 * q_bytes + 2 * k_bytes + lse,
        q_bytes + 2 * k_bytes + 8 * 8 * 4);
    end();
}

/* The peak workspace of attention and its gradient on a target. FLOPs are those of the definition. */
struct attention_case {
    tl_dtype dtype;
    int64_t B, T, S, H, H_kv, D;
    bool causal, fast;
    uint64_t workspace;
};
static uint64_t attention_held(const char *target, const struct attention_case *c, double dropout) {
    tl_device *device = tl_device_find(target);
    const int64_t q_shape[4] = {c->B, c->T, c->H, c->D}, k_shape[4] = {c->B, c->S, c->H_kv, c->D};
    const bool before = tl_set_fast(c->fast);
    tl_scope inner = tl_scope_begin();
    tl_tensor *q = leaf(tl_empty(4, q_shape, c->dtype, device)), *k = leaf(tl_empty(4, k_shape, c->dtype, device));
    tl_tensor *v = leaf(tl_empty(4, k_shape, c->dtype, device));
    begin();
    tl_backward(tl_attention(q, k, v, &(tl_attention_options){.causal = c->causal, .dropout = dropout}, NULL),
                tl_empty(4, q_shape, c->dtype, device), 0);
    tl_ledger_end(ledger);
    tl_set_fast(before);
    if (tl_error() != TL_OK) fail_msg("%s", tl_error_message());
    const uint64_t pairs = (uint64_t)(c->causal ? c->T * (c->S - c->T) + c->T * (c->T + 1) / 2 : c->T * c->S),
                   gemm = 2 * (uint64_t)(c->B * c->H * c->D) * pairs,
                   flops = tl_ledger_total(ledger, TL_ALL, NULL).flops.low,
                   held = tl_ledger_peak(ledger, device, TL_WORKSPACE);
    tl_ledger_free(ledger);
    tl_scope_end(inner);
    if (flops != 7 * gemm)
        fail_msg("T %lld, S %lld: %llu FLOPs; expected %llu", (long long)c->T, (long long)c->S,
                 (unsigned long long)flops, (unsigned long long)(7 * gemm));
    return held;
}

static void expect_workspace(const char *target, const struct attention_case *c, double dropout) {
    const uint64_t held = attention_held(target, c, dropout);
    if (held != c->workspace)
        fail_msg("T %lld, S %lld, fast %d, dropout %g: workspace %llu; expected %llu", (long long)c->T, (long long)c->S,
                 c->fast, dropout, (unsigned long long)held, (unsigned long long)c->workspace);
}

/* First keys cost the bytes that they are read with. FLOPs are those of the whole causal row. */
static void first_keys_cost_their_bytes(void **state) {
    (void)state;
    const uint64_t q_bytes = 4 * 2 * 5 * 4 * 8, lse = 4 * 2 * 4 * 5, gemm = 2 * 8 * 2 * 4 * 15, keys = 2 * 5 * 4;
    const tl_attention_options o = {.causal = true, .first_key = tl_zeros(TL_SHAPE(2, 5), TL_I32, meta)};
    tl_tensor *q = leaf(f32(TL_SHAPE(2, 5, 4, 8))), *k = leaf(f32(TL_SHAPE(2, 5, 4, 8)));
    tl_tensor *v = leaf(f32(TL_SHAPE(2, 5, 4, 8))), *g = f32(TL_SHAPE(2, 5, 4, 8));
    begin();
    tl_backward(tl_attention(q, k, v, &o, NULL), g, 0);
    ROW("attention", TL_FORWARD, 1, 2 * gemm, 3 * q_bytes + keys, q_bytes + lse);
    ROW("attention_grad", TL_BACKWARD, 1, 4 * gemm, 5 * q_bytes + lse + keys, 3 * q_bytes);
    ROW("attention_grad", TL_RECOMPUTE, 0, gemm, 0, 0);
    end();
}

/* Dropout inside attention has no FLOPs, as the softmax has none, and no bytes: its mask is not stored. */
static void dropout_inside_attention_is_free(void **state) {
    (void)state;
    const uint64_t q_bytes = 4 * 2 * 5 * 4 * 8, lse = 4 * 2 * 4 * 5, gemm = 2 * 8 * 2 * 4 * 15;
    const tl_attention_options o = {.causal = true, .dropout = 0.25};
    tl_tensor *q = leaf(f32(TL_SHAPE(2, 5, 4, 8))), *k = leaf(f32(TL_SHAPE(2, 5, 4, 8)));
    tl_tensor *v = leaf(f32(TL_SHAPE(2, 5, 4, 8))), *g = f32(TL_SHAPE(2, 5, 4, 8));
    begin();
    tl_backward(tl_attention(q, k, v, &o, NULL), g, 0);
    ROW("attention", TL_FORWARD, 1, 2 * gemm, 3 * q_bytes, q_bytes + lse);
    ROW("attention_grad", TL_BACKWARD, 1, 4 * gemm, 5 * q_bytes + lse, 3 * q_bytes);
    ROW("attention_grad", TL_RECOMPUTE, 0, gemm, 0, 0);
    ROW("random", TL_ALL, 0, 0, 0, 0);
    end();
    /* on a GPU our own kernels do it, which need row sums: 8 x 12 heads of 960 queries; on Hopper also the sums of dq,
     * in tiles of 128 queries */
    struct attention_case c = {TL_BF16, 8, 960, 960, 12, 12, 64, true, false, 4 * 96 * 960};
    expect_workspace("meta:a100-80", &c, 0.1);
    c.workspace += 4 * 96 * 1024 * 64;
    expect_workspace("meta:h200", &c, 0.1);
    expect_workspace("meta:h200", &(struct attention_case){TL_F32, 8, 960, 960, 12, 12, 64, true, true, 4 * 96 * 960},
                     0.1);
}

/* Row sums of 8 heads of 300 queries; on Hopper the slabs of parts, as attention_hopper_bytes counts them, and 8
 * tensors with heads of 104 or 136: q, out, g and dq, and k, v, dk and dv of half as many heads. Short ones are not
 * copied. */
static void odd_heads_are_padded_on_hopper(void **state) {
    (void)state;
    const uint64_t sums = 19 * 512, slabs = 4 * 3 * 2 * 320 * 128 * 4, row = 2 * 4 * 300 * 2;
    struct attention_case c = {TL_BF16, 2, 300, 300, 4, 2, 100, true, false, sums};
    expect_workspace("meta:a100-80", &c, 0);
    c.workspace = sums + slabs + 6 * row * 104;
    expect_workspace("meta:h200", &c, 0);
    expect_workspace("meta:h200", &c, 0.1);
    c.D = 130, c.workspace = sums + 6 * row * 136;
    expect_workspace("meta:h200", &c, 0);
    c.T = c.S = 100, c.workspace = 7 * 512;
    expect_workspace("meta:h200", &c, 0);
}

/* Row sums, rounded up to 512 bytes; f32 sums of dq over whole tiles of 128 queries; where the last tile of 128 keys is
 * not full, the lengths of queries and of keys, 4 bytes per batch entry, each rounded up to 256; 256 for the plan. */
static void attention_gets_whole_tiles_on_a_gpu(void **state) {
    (void)state;
    const uint64_t plan = 256, lengths = 2 * 256, head = 64 * 4; /* bytes of dq in f32, for one row of one head */
    const struct attention_case cases[] = {
        /* B 8, H 12: 96 heads, whose row sums are 384 bytes a row */
        {TL_BF16, 8, 1024, 1024, 12, 12, 64, true, false, 384 * 1024 + 96 * head * 1024 + plan},
        {TL_BF16, 8, 960, 960, 12, 12, 64, true, false, 384 * 960 + 96 * head * 1024 + lengths + plan},
        {TL_F16, 8, 1000, 1000, 12, 12, 64, true, true, 375 * 1024 + 96 * head * 1024 + lengths + plan},
        {TL_BF16, 8, 1023, 1023, 12, 12, 64, false, false, 767 * 512 + 512 + 96 * head * 1024 + lengths + plan},
        {TL_BF16, 8, 1025, 1025, 12, 12, 64, true, false, 769 * 512 + 96 * head * 1152 + lengths + plan},
        {TL_BF16, 8, 7, 7, 12, 12, 64, true, false, 3072 + 96 * head * 128 + lengths + plan},
        /* the lengths of 100 entries take 400 bytes, which are 512 */
        {TL_BF16, 100, 200, 200, 12, 12, 64, true, true, 1875 * 512 + 1200 * head * 256 + 2 * 512 + plan},
        /* other queries than keys: only the keys' tiles matter to the lengths */
        {TL_BF16, 8, 100, 256, 12, 12, 64, false, false, 75 * 512 + 96 * head * 128 + plan},
        {TL_BF16, 8, 128, 129, 12, 12, 64, false, true, 96 * 512 + 96 * head * 128 + lengths + plan},
        /* grouped heads: dk and dv of each of the 96 heads too, in 16 bits; repeatable: of the 12 heads whose scores
         * fit into dq */
        {TL_BF16, 8, 960, 960, 12, 4, 64, true, true, 384 * 960 + 2 * 96 * head * 1024 + lengths + plan},
        {TL_BF16, 8, 960, 960, 12, 4, 64, true, false, 384 * 960 + (96 + 12) * head * 1024 + lengths + plan},
        /* few heads: the 16-bit scores of one key head and its queries, 2 bytes a pair, are more than dq */
        {TL_BF16, 1, 4000, 4000, 4, 2, 64, true, false, 64000 + 2 * 2 * 4096 * 4096 + 2 * head * 4096 + lengths + plan},
        {TL_BF16, 1, 4000, 4000, 4, 2, 64, true, true, 64000 + 4 * head * 4096 * 2 + lengths + plan},
        /* more than 1 GiB of scores are not stored */
        {TL_BF16, 1, 32768, 32768, 1, 1, 64, true, false, 131072 + head * 32768 + plan},
        {TL_BF16, 1, 32768, 32768, 2, 1, 64, true, false, 2 * 131072 + 2 * head * 32768 + plan},
        /* our own kernels need row sums alone: f32, heads of no multiple of 8, causal with T != S, one query */
        {TL_F32, 8, 960, 960, 12, 12, 64, true, false, 384 * 960},
        {TL_BF16, 8, 960, 960, 12, 12, 20, true, false, 384 * 960},
        {TL_BF16, 8, 960, 1024, 12, 12, 64, true, false, 384 * 960},
        {TL_BF16, 8, 1, 960, 12, 12, 64, false, false, 512},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_workspace("meta:a100-80", &cases[i], 0);
}

/* On Hopper our own kernel: row sums, rounded up to 256 bytes, then slabs of f32: of at most 132 blocks that have
 * whole heads, or, where there are few, of parts of a head. Tiles of 128 keys, and of 128 queries (heads of up to
 * 64) or 64. */
static void attention_gets_slabs_on_hopper(void **state) {
    (void)state;
    const uint64_t row = 4 * 64; /* bytes of a row of a head of 64 */
    const struct attention_case cases[] = {
        /* 768 key heads: 132 blocks, with a sum of dq each */
        {TL_BF16, 64, 1024, 1024, 12, 12, 64, true, false, 768 * 4096 + 132 * row * 1024},
        {TL_F16, 64, 1000, 1000, 12, 12, 40, true, true, 768 * 4000 + 132 * row * 1024},
        /* 128 key heads of 4 query heads: dq of one, and dk and dv */
        {TL_BF16, 16, 2048, 2048, 32, 8, 64, true, false, 512 * 8192 + 128 * 3 * row * 2048},
        /* 4 key heads in 132 / 4 = 33 parts, but there are only 8 tiles of keys: dq of both query heads in each */
        {TL_BF16, 2, 1000, 1000, 4, 2, 64, true, false, 8 * 4000 + 4 * 8 * 2 * row * 1024},
        /* one tile of keys cannot be cut; heads of 128 have tiles of 64 queries */
        {TL_BF16, 1, 100, 100, 2, 2, 128, false, false, 1024 + 2 * 2 * row * 128},
        /* 400 = 3 x 132 + 4: whole heads need more than 4 heads in 8 parts */
        {TL_BF16, 16, 1024, 1024, 25, 25, 64, true, false, 400 * 4096 + 132 * row * 1024},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_workspace("meta:h200", &cases[i], 0);
}

/* The workspace that cuDNN 9.14 asked for on an H200, for a slice of n_batch entries and n_kv key heads. Before it
 * lie the slice's row sums, its lengths, and, in the fast form, its dq in f32. */
static void attention_has_room_for_the_plans_of_a_gpu(void **state) {
    (void)state;
    static const struct {
        struct attention_case call;
        int64_t n_batch, n_kv;
    } plans[] = {
        {{TL_BF16, 512, 64, 64, 16, 16, 64, true, false, 134217984}, 512, 16},
        {{TL_BF16, 512, 128, 128, 16, 16, 64, true, false, 268435712}, 512, 16},
        {{TL_BF16, 32, 960, 960, 16, 16, 64, true, false, 125829376}, 4, 16},
        {{TL_BF16, 32, 1152, 1152, 16, 16, 64, true, false, 84934912}, 2, 16},
        {{TL_BF16, 8, 4001, 4001, 16, 16, 128, true, false, 264241408}, 1, 8},
        {{TL_BF16, 1, 8000, 8000, 12, 12, 64, true, false, 129024256}, 1, 1},
        {{TL_BF16, 1, 7, 7, 4, 2, 128, true, false, 80128}, 1, 2},
        {{TL_F16, 2, 7, 127, 2, 1, 64, false, false, 195840}, 2, 1},
        {{TL_F16, 1, 100, 100, 4, 2, 128, true, false, 336128}, 1, 2},
        {{TL_BF16, 2, 100, 200, 2, 1, 64, false, false, 233728}, 1, 1},
        {{TL_BF16, 2, 127, 960, 2, 1, 64, false, false, 1016064}, 1, 1},
        {{TL_BF16, 1, 129, 129, 4, 2, 128, true, false, 657664}, 1, 2},
        {{TL_BF16, 2, 1023, 1, 2, 1, 64, false, false, 1049856}, 2, 1},
        {{TL_BF16, 1, 1025, 1025, 4, 2, 128, true, false, 6063360}, 1, 1},
        {{TL_BF16, 16, 2048, 2048, 32, 8, 64, true, false, 285212928}, 1, 8},
        {{TL_BF16, 16, 1001, 1001, 32, 8, 128, true, false, 334037248}, 4, 8},
        {{TL_BF16, 16, 1024, 1024, 32, 8, 128, true, false, 335544576}, 4, 8},
        {{TL_BF16, 512, 128, 128, 16, 16, 64, true, true, 256}, 512, 16},
        {{TL_BF16, 1, 7, 7, 4, 2, 128, true, true, 14592}, 1, 2},
        {{TL_BF16, 2, 7, 127, 2, 1, 64, false, true, 130304}, 2, 1},
        {{TL_BF16, 16, 2000, 2000, 32, 8, 64, true, true, 262144256}, 16, 8},
        {{TL_BF16, 16, 1024, 1024, 32, 8, 128, true, true, 268435712}, 16, 8},
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        const struct attention_case *c = &plans[i].call;
        const int64_t rows = plans[i].n_batch * plans[i].n_kv * (c->H / c->H_kv) * c->T;
        const uint64_t lengths = c->S % 128 ? 2 * (((uint64_t)plans[i].n_batch * 4 + 255) / 256 * 256) : 0;
        const uint64_t before = ((uint64_t)rows * 4 + 255) / 256 * 256 + (c->fast ? (uint64_t)(rows * c->D) * 4 : 0);
        const uint64_t held = attention_held("meta:a100-80", c, 0), wanted = before + lengths + c->workspace;
        if (held < wanted)
            fail_msg("T %lld, S %lld, H %lld/%lld, fast %d: workspace %llu, a plan wants %llu", (long long)c->T,
                     (long long)c->S, (long long)c->H, (long long)c->H_kv, c->fast, (unsigned long long)held,
                     (unsigned long long)wanted);
    }
}

/* ---- Updates ---- */

static void updates_are_billed_to_their_phase(void **state) {
    (void)state;
    tl_tensor *p = f32(TL_SHAPE(3, 4)), *g = f32(TL_SHAPE(3, 4)), *m = f32(TL_SHAPE(3, 4)), *v = f32(TL_SHAPE(3, 4));
    tl_adam_options o = {
        .lr = 1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1, .decoupled = true, .step = 1};
    begin();
    tl_adam_(p, g, m, v, NULL, &o);
    ROW("adam", TL_UPDATE, 1, 14 * 12, 4 * 48, 3 * 48); /* p, g, m, v in; p, m, v out */
    ROW("adam", TL_FORWARD, 0, 0, 0, 0);
    end();
    begin();
    tl_adam_(of(TL_BF16, TL_SHAPE(3, 4)), of(TL_BF16, TL_SHAPE(3, 4)), m, v, NULL, &o);
    ROW("adam", TL_UPDATE, 1, 168, 24 + 24 + 48 + 48, 24 + 48 + 48);
    end();
    begin();
    tl_sgd_(p, g, NULL, &(tl_sgd_options){.lr = 0.1});
    ROW("sgd_momentum", TL_UPDATE, 1, 24, 96, 48); /* product and difference */
    end();
}

static void norms_of_gradients_are_billed_to_the_update(void **state) {
    (void)state;
    tl_tensor *p[3] = {f32(TL_SHAPE(3, 4)), of(TL_BF16, TL_SHAPE(5)), f32(TL_SHAPE(2))};
    tl_set_grad(p[0], f32(TL_SHAPE(3, 4)));
    tl_set_grad(p[1], of(TL_BF16, TL_SHAPE(5)));
    begin();
    tl_tensor *norm = tl_grad_norm(p, 3);                       /* p[2] has no gradient */
    ROW("sum_squares", TL_UPDATE, 1, 2 * (12 + 5), 48 + 10, 4); /* square and add */
    ROW("sqrt", TL_UPDATE, 1, 1, 4, 4);
    tl_clip_scale(norm, 1, 8);
    ROW("clip_scale", TL_UPDATE, 1, 5, 4, 4); /* three divisions, a sum, a comparison */
    end();
    tl_tensor *many[70];
    for (int i = 0; i < 70; i++) many[i] = f32(TL_SHAPE(2));
    begin();
    tl_sum_squares(many,
                   70); /* 64 in the first call; 6 and the sum so far in the second: one addition and 4 bytes more */
    ROW("sum_squares", TL_FORWARD, 2, 2 * 140 + 1, 70 * 8 + 4, 2 * 4);
    end();
}

/* ---- Fused ---- */

static void fused_elementwise_ops_save_traffic(void **state) {
    (void)state;
    tl_tensor *a = f32(TL_SHAPE(2, 3)), *b = f32(TL_SHAPE(2, 3));
    /* silu 4, product 1. As silu and mul it also wrote and read silu(gate): 2 x 24 bytes more */
    COST(tl_swiglu(a, b), "swiglu", 5 * 6, 48, 24);
    COST(tl_dropout(a, 0.5), "dropout", 6, 24, 24);
    begin();
    tl_backward(tl_swiglu(leaf(f32(TL_SHAPE(6))), leaf(f32(TL_SHAPE(6)))), f32(TL_SHAPE(6)), 0);
    /* sigmoid 4, silu 1, slope 3, products 3; gate, up, g in, dgate, dup out */
    ROW("swiglu_grad", TL_BACKWARD, 1, 11 * 6, 72, 48);
    end();
}

static void sums_with_norms_cost_one_addition_more(void **state) {
    (void)state;
    tl_tensor *x = f32(TL_SHAPE(3, 8)), *r = f32(TL_SHAPE(3, 8)), *w = f32(TL_SHAPE(8)), *b = f32(TL_SHAPE(8)), *sum;
    /* x, residual, w in; sum, y, rstd out. As add and rms_norm the sum was read once more: 96 bytes */
    COST(tl_add_rms_norm(x, r, w, 1e-5, &sum), "add_rms_norm", (4 + 1) * 24, 96 + 96 + 32, 96 + 96 + 12);
    COST(tl_add_rms_norm(x, r, NULL, 1e-5, &sum), "add_rms_norm", (3 + 1) * 24, 96 + 96, 96 + 96 + 12);
    COST(tl_add_layer_norm(x, r, w, b, 1e-5, &sum), "add_layer_norm", (7 + 1) * 24, 192 + 64, 192 + 24);
    COST(tl_add_layer_norm(x, r, NULL, NULL, 1e-5, &sum), "add_layer_norm", (5 + 1) * 24, 192, 192 + 24);
    begin();
    tl_tensor *y =
        tl_add_rms_norm(leaf(f32(TL_SHAPE(3, 8))), leaf(f32(TL_SHAPE(3, 8))), leaf(f32(TL_SHAPE(8))), 1e-5, &sum);
    tl_backward(tl_sub(y, sum), x, 0);
    /* g, g_sum, sum, rstd, w in; d, dw out */
    ROW("add_rms_norm_grad", TL_BACKWARD, 1, (9 + 1) * 24, 96 + 96 + 96 + 12 + 32, 96 + 32);
    ROW("add", TL_BACKWARD, 0, 0, 0, 0);
    end();
    begin();
    y = tl_add_layer_norm(leaf(f32(TL_SHAPE(3, 8))), leaf(f32(TL_SHAPE(3, 8))), leaf(f32(TL_SHAPE(8))),
                          leaf(f32(TL_SHAPE(8))), 1e-5, &sum);
    tl_backward(tl_sub(y, sum), x, 0);
    ROW("add_layer_norm_grad", TL_BACKWARD, 1, (13 + 1) * 24, 96 + 96 + 96 + 24 + 32, 96 + 64);
    end();
    begin(); /* a sum with no other reader: the norm's own gradient, for both */
    tl_backward(tl_add_rms_norm(leaf(f32(TL_SHAPE(3, 8))), leaf(f32(TL_SHAPE(3, 8))), NULL, 1e-5, &sum), x, 0);
    ROW("rms_norm_grad", TL_BACKWARD, 1, 5 * 24, 96 + 96 + 12, 96);
    end();
    /* with the sums of d's columns: an addition for each element, and 8 numbers */
    struct attr_norm a;
    memset(&a, 0, sizeof a);
    a.gives_sums = true;
    tl_tensor *rows = f32(TL_SHAPE(3)), *in[] = {x, r, sum, rows, rows, w}, *in_plain[] = {x, sum, rows};
    tl_call c;
    call_begin(&c, &op_add_layer_norm_grad, in, 6, ATTR(a));
    COST(op_apply(&c), "add_layer_norm_grad", (13 + 2) * 24, 96 + 96 + 96 + 12 + 32, 96 + 64 + 32);
    call_begin(&c, &op_rms_norm_grad, in_plain, 3, ATTR(a));
    COST(op_apply(&c), "rms_norm_grad", (5 + 1) * 24, 96 + 96 + 12, 96 + 32);
    /* with dropout: a factor for each element, and backward one more result like x */
    COST(add_layer_norm(x, r, w, b, 1e-5, 0.5, &sum), "add_layer_norm", (7 + 2) * 24, 192 + 64, 192 + 24);
    a.dropout = 0.5;
    call_begin(&c, &op_add_layer_norm_grad, in, 6, ATTR(a));
    COST(op_apply(&c), "add_layer_norm_grad", (13 + 3) * 24, 96 + 96 + 96 + 12 + 32, 96 + 96 + 64 + 32);
}

/* N = 5 rows, V = 7 classes, C = 3 channels, f32; targets i64. */
static void the_head_costs_its_composite_less_the_logits(void **state) {
    (void)state;
    enum { N = 5, V = 7, C = 3 };
    tl_tensor *targets = of(TL_I64, TL_SHAPE(N));
    const uint64_t x = 4 * N * C, w = 4 * V * C, logits = 4 * N * V, rows = 4 * N, ids = 8 * N, scalar = 4;
    begin();
    tl_backward(tl_linear_cross_entropy(leaf(f32(TL_SHAPE(N, C))), leaf(f32(TL_SHAPE(V, C))), targets, NULL), NULL, 0);
    /* product; max, subtract, exp, sum per logit; sum of rows; times 1/N */
    ROW("linear_cross_entropy", TL_FORWARD, 1, 2 * N * V * C + 4 * N * V + N + 1, x + w + ids, scalar);
    /* done in the same call: subtract, exp, times per logit; dx and dweight */
    ROW("linear_cross_entropy", TL_BACKWARD, 0, 3 * N * V + 2 * 2 * N * V * C, 0, x + w);
    /* both, in place, times the loss's gradient */
    ROW("mul", TL_BACKWARD, 2, N * C + V * C, x + scalar + w + scalar, x + w);
    tl_totals fused = tl_ledger_total(ledger, TL_ALL, NULL);
    end();

    begin();
    tl_tensor *y = tl_linear(leaf(f32(TL_SHAPE(N, C))), leaf(f32(TL_SHAPE(V, C))), NULL);
    tl_backward(tl_cross_entropy(y, targets, NULL), NULL, 0);
    ROW("matmul", TL_FORWARD, 1, 2 * N * V * C, x + w, logits);
    ROW("cross_entropy", TL_FORWARD, 1, 4 * N * V + N + 1, logits + ids, rows + 2 * scalar);
    ROW("cross_entropy_grad", TL_BACKWARD, 1, 3 * N * V + 1, logits + ids + rows + 2 * scalar, logits);
    ROW("matmul", TL_BACKWARD, 2, 2 * 2 * N * V * C, logits + w + logits + x, x + w);
    tl_totals composite = tl_ledger_total(ledger, TL_ALL, NULL);
    end();
    /* FLOPs: two products more by g on what is left over, one less on g itself */
    assert_int_equal(fused.flops.low, composite.flops.low + N * C + V * C - 1);
    /* Read less: logits by the loss, by its gradient; that gradient by two products. x and w by these products, but dx
     * and dweight by the two steps instead. Targets and lse by the loss's gradient. Scalars: g and share by the
     * gradient, less g read twice. */
    assert_int_equal(composite.bytes_read.low - fused.bytes_read.low, 4 * logits + ids + rows + (2 - 2) * scalar);
    /* Written less: logits and their gradient; lse; share. dx and dweight are written once more. */
    assert_int_equal(composite.bytes_written.low + (x + w) - fused.bytes_written.low, 2 * logits + rows + scalar);

    COST(tl_linear_cross_entropy(f32(TL_SHAPE(N, C)), f32(TL_SHAPE(V, C)), targets, NULL), "linear_cross_entropy",
         2 * N * V * C + 4 * N * V + N + 1, x + w + ids, scalar); /* no gradients needed */
    begin();
    tl_linear_cross_entropy(f32(TL_SHAPE(N, C)), leaf(f32(TL_SHAPE(V, C))), targets, NULL);
    ROW("linear_cross_entropy", TL_BACKWARD, 0, 3 * N * V + 2 * N * V * C, 0, w); /* one gradient */
    end();
    begin();
    tl_set_grad_mode(false);
    tl_linear_cross_entropy(leaf(f32(TL_SHAPE(N, C))), leaf(f32(TL_SHAPE(V, C))), targets, NULL);
    tl_set_grad_mode(true);
    ROW("linear_cross_entropy", TL_BACKWARD, 0, 0, 0, 0);
    end();
}

/* Three operations for each logit more, and three for each slope. */
static void soft_caps_of_logits_count(void **state) {
    (void)state;
    const uint64_t N = 6, V = 10, C = 8;
    tl_tensor *targets = tl_zeros(TL_SHAPE(6), TL_I64, meta);
    const tl_linear_cross_entropy_options o = {.ignore_index = -100, .soft_cap = 30};
    begin();
    tl_linear_cross_entropy(leaf(f32(TL_SHAPE(6, 8))), leaf(f32(TL_SHAPE(10, 8))), targets, &o);
    ROW("linear_cross_entropy", TL_FORWARD, 1, 2 * N * V * C + 7 * N * V + N + 1, 4 * (N + V) * C + 8 * N, 4);
    ROW("linear_cross_entropy", TL_BACKWARD, 0, 6 * N * V + 2 * 2 * N * V * C, 0, 4 * (N + V) * C);
    end();
}

/* An addition for each logit and five operations for each row, and one for each slope; three for each row, and one for
 * each slope. */
static void smoothing_and_z_losses_count(void **state) {
    (void)state;
    const uint64_t N = 6, V = 10, C = 8, more[3][2] = {{V + 5, V}, {3, V}, {V + 8, 2 * V}};
    tl_tensor *targets = tl_zeros(TL_SHAPE(6), TL_I64, meta);
    for (int i = 0; i < 3; i++) {
        const tl_linear_cross_entropy_options o = {
            .ignore_index = -100, .label_smoothing = i != 1 ? 0.1 : 0, .z_loss = i != 0 ? 1e-4 : 0};
        begin();
        tl_linear_cross_entropy(leaf(f32(TL_SHAPE(6, 8))), leaf(f32(TL_SHAPE(10, 8))), targets, &o);
        ROW("linear_cross_entropy", TL_FORWARD, 1, 2 * N * V * C + 4 * N * V + N + 1 + N * more[i][0],
            4 * (N + V) * C + 8 * N, 4);
        ROW("linear_cross_entropy", TL_BACKWARD, 0, 3 * N * V + 2 * 2 * N * V * C + N * more[i][1], 0, 4 * (N + V) * C);
        end();
    }
}

static void windows_count_their_pairs(void **state) {
    (void)state;
    const uint64_t pair = 2 * 8, heads = 2 * 4, q_bytes = 2 * 5 * 4 * 8 * 4, k_bytes = 2 * 5 * 2 * 8 * 4,
                   lse = 2 * 4 * 5 * 4;
    tl_tensor *q = f32(TL_SHAPE(2, 5, 4, 8)), *k = f32(TL_SHAPE(2, 5, 2, 8)), *v = f32(TL_SHAPE(2, 5, 2, 8));
    tl_attention_options o = tl_attention_defaults();
    o.causal = true;
    o.window = 2; /* 1 + 2 + 2 + 2 + 2 */
    COST(tl_attention(q, k, v, &o, NULL), "attention", 2 * pair * heads * 9, q_bytes + 2 * k_bytes, q_bytes + lse);
    o.window = 5; /* no less than all: 15 */
    COST(tl_attention(q, k, v, &o, NULL), "attention", 2 * pair * heads * 15, q_bytes + 2 * k_bytes, q_bytes + lse);
    o.window = 3;
    tl_tensor *far = f32(TL_SHAPE(2, 7, 2, 8)), *near = f32(TL_SHAPE(2, 4, 2, 8));
    /* the last 5 of 7 positions see 3+4+5+6+7 without a window: 3 each with it */
    COST(tl_attention(q, far, far, &o, NULL), "attention", 2 * pair * heads * 15, q_bytes + 2 * 7 * 2 * 8 * 4,
         q_bytes + lse);
    /* 5 queries on 4 keys: 0 + 1 + 2 + 3 + 3 */
    COST(tl_attention(q, near, near, &o, NULL), "attention", 2 * pair * heads * 9, q_bytes + 2 * 4 * 2 * 8 * 4,
         q_bytes + lse);
    /* to both sides, 5 on 5: 3 + 4 + 5 + 4 + 3; the last 5 of 7: 5 + 5 + 5 + 4 + 3; 5 on 4, the first beside none:
     * 2+3+4+4+3 */
    o.causal = false;
    COST(tl_attention(q, k, v, &o, NULL), "attention", 2 * pair * heads * 19, q_bytes + 2 * k_bytes, q_bytes + lse);
    COST(tl_attention(q, far, far, &o, NULL), "attention", 2 * pair * heads * 22, q_bytes + 2 * 7 * 2 * 8 * 4,
         q_bytes + lse);
    COST(tl_attention(q, near, near, &o, NULL), "attention", 2 * pair * heads * 16, q_bytes + 2 * 4 * 2 * 8 * 4,
         q_bytes + lse);
    o.window = INT64_MAX; /* all: 25 */
    COST(tl_attention(q, k, v, &o, NULL), "attention", 2 * pair * heads * 25, q_bytes + 2 * k_bytes, q_bytes + lse);
    o.causal = true;
    o.window = 3;
    /* backward: four products, and the recomputed one */
    begin();
    tl_backward(tl_attention(leaf(q), leaf(k), leaf(v), &o, NULL), f32(TL_SHAPE(2, 5, 4, 8)), 0);
    ROW("attention_grad", TL_BACKWARD, 1, 4 * pair * heads * 12, 3 * q_bytes + 2 * k_bytes + lse,
        q_bytes + 2 * k_bytes);
    ROW("attention_grad", TL_RECOMPUTE, 0, pair * heads * 12, 0, 0);
    end();
}

static void masks_are_read_and_hide_nothing_from_the_count(void **state) {
    (void)state;
    const uint64_t q_bytes = 2 * 5 * 4 * 8 * 4, lse = 2 * 4 * 5 * 4;
    tl_tensor *q = f32(TL_SHAPE(2, 5, 4, 8));
    tl_attention_options o = tl_attention_defaults();
    o.mask = of(TL_BOOL, TL_SHAPE(1, 1, 5, 5)); /* 25 bytes, for all batches and heads */
    COST(tl_attention(q, q, q, &o, NULL), "attention", 2 * 2 * 8 * 2 * 4 * 25, q_bytes + 25, q_bytes + lse);
    o.mask = f32(TL_SHAPE(2, 4, 5, 5));
    COST(tl_attention(q, q, q, &o, NULL), "attention", 2 * 2 * 8 * 2 * 4 * 25, q_bytes + 800, q_bytes + lse);
    /* its gradient is B H T S numbers more to write, and a sum to its own 25 */
    o.mask = leaf(f32(TL_SHAPE(5, 5)));
    begin();
    tl_backward(tl_attention(q, q, q, &o, NULL), f32(TL_SHAPE(2, 5, 4, 8)), 0);
    ROW("attention_grad", TL_BACKWARD, 1, 4 * 2 * 8 * 2 * 4 * 25, 3 * q_bytes + lse + 100, 3 * q_bytes + 800);
    ROW("sum", TL_BACKWARD, 1, 200, 800, 100);
    end();
}

static void optimizers_count_their_options(void **state) {
    (void)state;
    tl_tensor *p = f32(TL_SHAPE(3, 4)), *g = f32(TL_SHAPE(3, 4)), *a = f32(TL_SHAPE(3, 4)), *b = f32(TL_SHAPE(3, 4)),
              *c = f32(TL_SHAPE(3, 4));
    tl_sgd_options sgd = tl_sgd_defaults();
#define STEP(call, op, flops, read, written)     \
    begin();                                     \
    call;                                        \
    ROW(op, TL_UPDATE, 1, flops, read, written); \
    end()
    STEP(tl_sgd_(p, g, NULL, &sgd), "sgd_momentum", 2 * 12, 2 * 48, 48); /* product and difference */
    sgd.momentum = 0.9, sgd.weight_decay = 0.1, sgd.nesterov = true;     /* 2 + decay 2 + momentum 3 + nesterov 2 */
    STEP(tl_sgd_(p, g, a, &sgd), "sgd_momentum", 9 * 12, 3 * 48, 2 * 48);
    tl_adagrad_options adagrad = tl_adagrad_defaults();
    STEP(tl_adagrad_(p, g, a, &adagrad), "adagrad", 7 * 12, 3 * 48, 2 * 48);
    adagrad.weight_decay = 0.1;
    STEP(tl_adagrad_(p, g, a, &adagrad), "adagrad", 9 * 12, 3 * 48, 2 * 48);
    tl_rmsprop_options rmsprop = tl_rmsprop_defaults();
    STEP(tl_rmsprop_(p, g, a, NULL, NULL, &rmsprop), "rmsprop", 9 * 12, 3 * 48, 2 * 48);
    rmsprop.centered = true, rmsprop.momentum = 0.9, rmsprop.weight_decay = 0.1; /* 9 + 5 + 2 + 2 */
    STEP(tl_rmsprop_(p, g, a, b, c, &rmsprop), "rmsprop", 18 * 12, 5 * 48, 4 * 48);
    tl_adam_options adam = tl_adam_defaults();
    STEP(tl_adam_(p, g, a, b, NULL, &adam), "adam", 13 * 12, 4 * 48, 3 * 48);
    adam.weight_decay = 0.1; /* into g: product and sum; amsgrad: a comparison */
    STEP(tl_adam_(p, g, a, b, c, &adam), "adam", 16 * 12, 5 * 48, 4 * 48);
    adam.decoupled = true; /* 13 + 1 */
    STEP(tl_adam_(p, g, a, b, NULL, &adam), "adam", 14 * 12, 4 * 48, 3 * 48);
    /* bf16 parameter and gradient with an f32 master: the parameter is written, not read */
    adam.update.master = c, adam.update.stochastic = true;
    STEP(tl_adam_(of(TL_BF16, TL_SHAPE(3, 4)), of(TL_BF16, TL_SHAPE(3, 4)), a, b, NULL, &adam), "adam", 14 * 12,
         24 + 3 * 48, 24 + 3 * 48);
    adam.update.grad_scale = f32(TL_SCALAR); /* one product for each element, and 4 bytes */
    STEP(tl_adam_(of(TL_BF16, TL_SHAPE(3, 4)), of(TL_BF16, TL_SHAPE(3, 4)), a, b, NULL, &adam), "adam", 15 * 12,
         24 + 3 * 48 + 4, 24 + 3 * 48);
    adam.update.grad_scale = NULL;
    adam.update.master = NULL; /* it is read again; random words are no traffic */
    STEP(tl_adam_(of(TL_BF16, TL_SHAPE(3, 4)), of(TL_BF16, TL_SHAPE(3, 4)), a, b, NULL, &adam), "adam", 14 * 12,
         24 + 24 + 2 * 48, 24 + 2 * 48);
    adam.update.stochastic = false; /* bf16 moments: half of their bytes */
    STEP(tl_adam_(p, g, of(TL_BF16, TL_SHAPE(3, 4)), of(TL_BF16, TL_SHAPE(3, 4)), NULL, &adam), "adam", 14 * 12,
         2 * 48 + 2 * 24, 48 + 2 * 24);
    /* 8-bit moments of 600 elements, 3 blocks: Adam's 14, and for each moment product, largest and division */
    tl_tensor *codes = of(TL_U8, TL_SHAPE(20, 30)), *others = of(TL_U8, TL_SHAPE(20, 30));
    STEP(tl_adam_8bit_(f32(TL_SHAPE(20, 30)), f32(TL_SHAPE(20, 30)), codes, others, f32(TL_SHAPE(3)), f32(TL_SHAPE(3)),
                       &adam),
         "adam_8bit", 20 * 600, 2 * 2400 + 2 * 600 + 2 * 12, 2400 + 2 * 600 + 2 * 12);
    tl_lion_options lion = tl_lion_defaults(); /* mean 3, sign 1, step 2, m 3 */
    STEP(tl_lion_(p, g, a, &lion), "lion", 9 * 12, 3 * 48, 2 * 48);
    lion.weight_decay = 0.1;
    STEP(tl_lion_(p, g, a, &lion), "lion", 10 * 12, 3 * 48, 2 * 48);
    tl_schedule_free_options is_free = tl_schedule_free_defaults(); /* v 4, d 4, mean 3, two steps 4 */
    STEP(tl_schedule_free_(p, g, a, b, &is_free), "schedule_free", 15 * 12, 4 * 48, 3 * 48);
    is_free.weight_decay = 0.1; /* product and sum */
    STEP(tl_schedule_free_(p, g, a, b, &is_free), "schedule_free", 17 * 12, 4 * 48, 3 * 48);
    STEP(tl_ema_(p, g, 0.1), "ema", 3 * 12, 2 * 48, 48); /* difference, product, sum */
    tl_muon_options muon = tl_muon_defaults();           /* of which the update, in bf16, is read and written */
    STEP(tl_muon_(p, g, a, &muon), "muon_momentum", 6 * 12, 24 + 2 * 48, 24 + 48);
    /* X X^T 2 3 3 4, A A 2 3 3 3, B X 2 3 3 4; five times */
    begin();
    tl_muon_(p, g, a, &muon);
    ROW("matmul", TL_UPDATE, 5, 5 * 72, 5 * 24, 5 * 18); /* each operand is read once */
    /* and the sum, in f32 */
    ROW("matmul_acc", TL_UPDATE, 10, 5 * (54 + 72), 5 * ((18 + 36) + (18 + 24 + 48)), 5 * (36 + 48));
    end();
    /* 13 for each of 12, 6 for each of 3 rows, 4 for each of 4 columns */
    tl_adafactor_options adafactor = tl_adafactor_defaults();
    tl_tensor *row = f32(TL_SHAPE(3, 1)), *column = f32(TL_SHAPE(1, 4));
    STEP(tl_adafactor_(p, g, row, column, NULL, &adafactor), "adafactor", 13 * 12 + 18 + 16, 2 * 48 + 28, 48 + 28);
    adafactor.weight_decay = 0.1;
    adafactor.update.grad_scale = f32(TL_SCALAR);
    STEP(tl_adafactor_(f32(TL_SHAPE(5)), f32(TL_SHAPE(5)), NULL, NULL, f32(TL_SHAPE(5)), &adafactor), "adafactor",
         15 * 5, 3 * 20 + 4, 2 * 20);
    adafactor.update.master = c; /* it is read instead of the parameter */
    STEP(tl_adafactor_(of(TL_BF16, TL_SHAPE(3, 4)), of(TL_BF16, TL_SHAPE(3, 4)), row, column, NULL, &adafactor),
         "adafactor", 15 * 12 + 18 + 16, 24 + 48 + 28 + 4, 24 + 48 + 28);
#undef STEP
}

/* q, k and v of one input: the second and the third gradient are added by their products. */
static void products_of_one_input_add_their_gradients(void **state) {
    (void)state;
    begin();
    tl_tensor *x = leaf(f32(TL_SHAPE(2, 3, 4))), *w[3];
    for (int i = 0; i < 3; i++) w[i] = leaf(f32(TL_SHAPE(5, 4)));
    tl_tensor *q = tl_linear(x, w[0], NULL), *k = tl_linear(x, w[1], NULL), *v = tl_linear(x, w[2], NULL);
    ROW("matmul", TL_FORWARD, 3, 3 * 2 * 6 * 4 * 5, 3 * (96 + 80), 3 * 120);
    tl_tensor *y = tl_add(tl_add(q, k), v);
    tl_backward(y, f32(TL_SHAPE(2, 3, 5)), 0);
    ROW("matmul", TL_BACKWARD, 4, 4 * 240, (120 + 80) + 3 * (120 + 96), 96 + 3 * 80); /* dx once, dW three times */
    ROW("matmul_acc", TL_BACKWARD, 2, 2 * 240, 2 * (96 + 120 + 80), 2 * 96);          /* dx again, into the sum */
    ROW("add", TL_BACKWARD, 0, 0, 0, 0);
    ROW("view", TL_ALL, 0, 0, 0, 0);
    end();
}

/* ---- Ops that depend on data ---- */

static void reading_values_costs_what_is_read(void **state) {
    (void)state;
    tl_tensor *x = tl_ones(TL_SHAPE(3, 4), TL_F32, cpu);
    begin();
    tl_at(x, (int64_t[]){1, 2});
    ROW("item", TL_FORWARD, 1, 0, 4, 0); /* one f32 */
    end();
    begin();
    tl_nonzero(x);
    ROW("nonzero", TL_FORWARD, 1, 0, 48, 12 * 2 * 8); /* 12 f32 in; 12 indices of rank 2, i64 */
    end();
}

/* ---- Folds, scans and losses ---- */

static void folds_count_their_formula(void **state) {
    (void)state;
    tl_tensor *x = f32(TL_SHAPE(4, 6));
    const int last = -1;
    COST(tl_min(x, &last, 1, true), "min", 24, 96, 16);              /* 24 comparisons; 24 f32 in, 4 out */
    COST(tl_prod_all(x), "prod", 24, 96, 4);                         /* 24 products */
    COST(tl_argmax(x, &last, 1, false), "argmax", 24, 96, 32);       /* 24 comparisons; 4 i64 out */
    COST(tl_argmin(x, NULL, 0, false), "argmin", 24, 96, 8);         /* 1 i64 out */
    COST(tl_var(x, &last, 1, 1, false), "var", 4 * 24, 96, 16 + 16); /* sum, subtract, square, sum; var and mean out */
    COST(tl_std(x, &last, 1, 1, false), "var", 4 * 24 + 4, 96, 32);  /* and 4 roots */
    COST(tl_var(of(TL_BF16, TL_SHAPE(8)), NULL, 0, 1, false), "var", 32, 16, 2 + 4); /* the mean is f32 */
    COST(tl_norm(x, 2, &last, 1, false), "norm", 2 * 24 + 4, 96, 16);                /* square, sum; 4 roots */
    COST(tl_norm(x, 1, &last, 1, false), "norm", 2 * 24, 96, 16);                    /* magnitude, sum */
    COST(tl_norm(x, 3, NULL, 0, false), "norm", 3 * 24 + 1, 96, 4);                  /* magnitude, power, sum; a root */
    COST(tl_logsumexp(x, &last, 1, false), "logsumexp", 4 * 24 + 4, 96, 16); /* max, subtract, exp, sum; 4 logarithms */
    COST(tl_cumsum(x, 1), "cumsum", 24, 96, 96);                             /* one sum each */
    COST(tl_cumprod(of(TL_U8, TL_SHAPE(6)), 0), "cumprod", 6, 6, 48);        /* 6 bytes in, 6 i64 out */
    begin();
    tl_cumsum(x, 0); /* not the last axis: transposed and back */
    ROW("copy", TL_FORWARD, 2, 0, 2 * 96, 2 * 96);
    ROW("cumsum", TL_FORWARD, 1, 24, 96, 96);
    end();
    begin();
    tl_any(x, NULL, 0, false);
    ROW("compare", TL_FORWARD, 2, 24 + 1, 96 + 4 + 8 + 8, 24 + 1); /* x != 0; count != 0 */
    ROW("sum", TL_FORWARD, 1, 24, 24, 8);                          /* 24 bool in, an i64 out */
    end();
    begin();
    tl_backward(tl_cumprod(leaf(f32(TL_SHAPE(4, 6))), 1), x, 0);
    ROW("cumprod_grad", TL_BACKWARD, 1, 4 * 24, 192, 96); /* before, r twice, their product; x and g in */
    end();
    begin();
    tl_backward(tl_prod(leaf(f32(TL_SHAPE(4, 6))), &last, 1, false), f32(TL_SHAPE(4)), 0);
    ROW("cumprod_grad", TL_BACKWARD, 1, 4 * 24, 96 + 16, 96); /* one g per row */
    end();
}

static void losses_count_their_formula(void **state) {
    (void)state;
    tl_tensor *x = f32(TL_SHAPE(5, 7)), *ids = of(TL_I64, TL_SHAPE(5));
    COST(tl_log_softmax(x, 1), "log_softmax", 5 * 35, 140, 140); /* max, subtract, exp, sum, subtract */
    begin();
    tl_backward(tl_log_softmax(leaf(f32(TL_SHAPE(5, 7))), -1), x, 0);
    ROW("log_softmax_grad", TL_BACKWARD, 1, 4 * 35, 280, 140); /* sum, exp, product, subtract; y and g in */
    end();
    begin();
    tl_cross_entropy_options o = tl_cross_entropy_defaults();
    o.reduction = TL_REDUCE_NONE;
    tl_tensor *loss = tl_nll_loss(leaf(f32(TL_SHAPE(5, 7))), ids, &o);
    ROW("nll", TL_FORWARD, 1, 5, 20 + 40, 20); /* 5 f32 fetched, 5 ids, 5 f32 out */
    tl_backward(loss, f32(TL_SHAPE(5)), 0);
    ROW("nll_grad", TL_BACKWARD, 1, 5, 20 + 40, 140); /* g and ids in, all of dx out */
    end();
    /* 1 - t, times x; negate, max; magnitude, negate, exp, add, log; two sums: 11 x 6; 2 x 6 f32 in */
    COST(tl_bce_with_logits(f32(TL_SHAPE(6)), f32(TL_SHAPE(6)), NULL, NULL, TL_REDUCE_NONE), "bce", 66, 48, 24);
}

/* ---- Gathering, joining, sorting ---- */

static void gathers_count_what_they_fetch(void **state) {
    (void)state;
    tl_tensor *x = f32(TL_SHAPE(100, 8)), *at = of(TL_I64, TL_SHAPE(3, 8)), *rows = of(TL_I32, TL_SHAPE(5));
    COST(tl_gather(x, 0, at), "gather", 0, 24 * 4 + 24 * 8, 24 * 4);       /* 24 f32 of 800, and their indices */
    COST(tl_index_select(x, 0, rows), "index", 0, 5 * 32 + 5 * 4, 5 * 32); /* five rows, five i32 */
    tl_tensor *pair[2] = {of(TL_I64, TL_SHAPE(6)), of(TL_I64, TL_SHAPE(6))};
    COST(tl_index(x, (int[]){0, 1}, pair, 2), "index", 0, 6 * 4 + 2 * 48, 24); /* six f32 by six pairs */
    tl_tensor *same[2] = {pair[0], pair[0]};
    COST(tl_index(x, (int[]){0, 1}, same, 2), "index", 0, 6 * 4 + 48, 24); /* the same indices: read once */
}

static void scatters_count_the_target_when_it_is_fresh(void **state) {
    (void)state;
    tl_tensor *x = f32(TL_SHAPE(100, 8)), *at = of(TL_I64, TL_SHAPE(3, 8)), *v = f32(TL_SHAPE(3, 8));
    COST(tl_scatter(x, 0, at, v), "scatter", 0, 3200 + 192 + 96, 3200); /* x, indices, source; a new x */
    COST(tl_scatter_(x, 0, at, v), "scatter", 0, 192 + 96, 96);         /* 24 f32 are written, no other is touched */
    COST(tl_scatter_scalar_(x, 0, at, 1), "scatter", 0, 192 + 4, 96);   /* one f32 for all */
    COST(tl_scatter_add(x, 0, at, v), "scatter_add", 24, 3200 + 192 + 96, 3200);
    COST(tl_scatter_add_(x, 0, at, v), "scatter_add", 24, 192 + 96 + 96, 96); /* 24 additions to existing elements */
    tl_tensor *rows = of(TL_I32, TL_SHAPE(3));
    COST(tl_index_put(x, (int[]){0}, &rows, 1, v, false), "index_put", 0, 3200 + 12 + 96, 3200);
    COST(tl_index_put_(x, (int[]){0}, &rows, 1, v, false), "index_put", 0, 12 + 96, 96);
    COST(tl_index_put_(x, (int[]){0}, &rows, 1, f32(TL_SHAPE(8)), false), "index_put", 0, 12 + 32, 96); /* one row */
    COST(tl_index_add_(x, 0, rows, v, 1), "index_put", 24, 12 + 96 + 96, 96);
    begin();
    tl_backward(tl_gather(leaf(f32(TL_SHAPE(100, 8))), 0, at), v, 0);
    ROW("full", TL_BACKWARD, 1, 0, 0, 3200); /* zeros, and g added to them */
    ROW("scatter_add", TL_BACKWARD, 1, 24, 192 + 96 + 96, 96);
    end();
    begin(); /* sums of 16-bit floats are kept in f32: 800 of them */
    tl_scatter_add(of(TL_BF16, TL_SHAPE(100, 8)), 0, at, of(TL_BF16, TL_SHAPE(3, 8)));
    ROW("scatter_add", TL_FORWARD, 1, 24, 1600 + 192 + 48, 1600);
    tl_ledger_end(ledger);
    assert_int_equal(tl_ledger_peak(ledger, meta, TL_WORKSPACE), 3200);
    tl_ledger_free(ledger);
}

static void joining_moves_bytes(void **state) {
    (void)state;
    tl_tensor *x = f32(TL_SHAPE(2, 3)), *y = of(TL_BF16, TL_SHAPE(2, 5)), *list[80];
    COST(tl_concat((tl_tensor *[]){x, y}, 2, 1), "concat", 0, 24 + 20, 64); /* 6 f32 + 10 bf16 in, 16 f32 out */
    COST(tl_concat((tl_tensor *[]){x, x}, 2, 1), "concat", 0, 24, 48);      /* the same bytes: one read */
    for (int i = 0; i < 80; i++) list[i] = f32(TL_SHAPE(1));
    begin();
    tl_concat(list, 80, 0);
    ROW("concat", TL_FORWARD, 65, 0, 2 * 320, 2 * 320); /* 64 parts of one or two, then one of 64: 80 f32 twice */
    end();
    COST(tl_pad(x, (int64_t[]){1, 0}, (int64_t[]){0, 1}, TL_PAD_CONSTANT, 0), "pad", 0, 24, 48); /* 3 x 4 f32 */
    begin();
    tl_triu(x, 0);
    ROW("arange", TL_FORWARD, 2, 4 + 6, 0, 16 + 24); /* 2 + 3 i64, product and sum */
    ROW("compare", TL_FORWARD, 1, 6, 16 + 24, 6);    /* 6 bool */
    ROW("where", TL_FORWARD, 1, 0, 6 + 24 + 4, 24);  /* mask, x and one zero */
    end();
    COST(tl_tile(x, TL_SHAPE(4, 1)), "copy", 0, 24, 96); /* 6 f32 in, 24 out */
}

static void factorisations_count_the_nominal_flops(void **state) {
    (void)state;
    tl_tensor *a = tl_empty(TL_SHAPE(2, 6, 6), TL_F32, meta), *b = tl_empty(TL_SHAPE(2, 6, 5), TL_F32, meta), *x[3];
    tl_tensor *tall = tl_empty(TL_SHAPE(6, 3), TL_F64, meta), *pivots = tl_empty(TL_SHAPE(2, 6), TL_I32, meta);
    const int matrix = 2 * 36 * 4;                                        /* bytes of two matrices */
    COST(tl_cholesky(a), "cholesky", 2 * 72, matrix, matrix + 8);         /* 216 / 3; two i32 */
    COST(tl_lu(a, &x[0], &x[1]), "lu", 2 * 144, matrix, matrix + 48 + 8); /* 2/3 216; 12 pivots */
    COST(tl_swap_rows(b, pivots, false), "swap_rows", 0, 240 + 48, 240);  /* 60 f32, 12 i32 */
    COST(tl_solve_triangular(a, b, true, false), "solve_triangular", 2 * 36 * 5, matrix + 240, 240);
    COST(tl_solve(a, b), "solve", 2 * (144 + 2 * 36 * 5), matrix + 240, 240 + matrix + 48 + 8);
    COST(tl_inv(a), "inv", 2 * 2 * 216, matrix, matrix + 8);
    COST(tl_det(a), "det", 2 * 144, matrix, 3 * 8 + matrix + 48); /* three f32 each */
    COST(tl_qr_r(tall), "qr", 2 * 6 * 9 - 18, 144, 72);           /* 2mn^2 - 2/3 n^3 */
    COST(tl_qr(tall, false, &x[0], &x[1]), "qr", 2 * (2 * 6 * 9 - 18), 144, 144 + 72);
    COST(tl_qr(tall, true, &x[0], &x[1]), "qr", 90 + 4 * 36 * 3 - 2 * 12 * 9 + 36, 144, 288 + 144); /* Q is 6 x 6 */
    COST(tl_eigvalsh(a, false), "eigh", 2 * 288, matrix, 48);                                       /* 4/3 216 */
    COST(tl_eigh(a, false, &x[0], &x[1]), "eigh", 2 * 9 * 216, matrix, 48 + matrix);
    COST(tl_eigvals(a), "eig", 2 * 10 * 216, matrix, 96);
    COST(tl_eig(a, &x[0], &x[1]), "eig", 2 * 25 * 216, matrix, 96 + 2 * matrix);
    COST(tl_svdvals(tall), "svd", 4 * 6 * 9 - 36, 144, 24); /* 4mn^2 - 4/3 n^3 */
    COST(tl_svd(tall, false, &x[0], &x[1], &x[2]), "svd", 14 * 6 * 9 + 8 * 27, 144, 144 + 24 + 72);
    COST(tl_svd(tall, true, &x[0], &x[1], &x[2]), "svd", 4 * 36 * 3 + 8 * 6 * 9 + 9 * 27, 144, 288 + 24 + 72);
}

static void sorting_counts_comparisons(void **state) {
    (void)state;
    tl_tensor *x = f32(TL_SHAPE(4, 6)), *values, *indices;
    COST(tl_sort(x, 1, false, &values, &indices), "sort", 24 * 3, 96, 96 + 192);  /* ceil(log2 6) = 3 */
    COST(tl_topk(x, 2, 1, true, &values, &indices), "sort", 24 * 3, 96, 32 + 64); /* 4 x 2 of both out */
    COST(tl_sort(x, 0, false, &values, &indices), "sort", 24 * 2, 96, 96 + 192);  /* ceil(log2 4) = 2 */
    tl_tensor *sorted = f32(TL_SHAPE(1000));
    COST(tl_searchsorted(sorted, f32(TL_SHAPE(5)), false), "searchsorted", 50, 20 + 50 * 4,
         40); /* ceil(log2 1001) = 10 */
    COST(tl_searchsorted(sorted, f32(TL_SHAPE(500)), false), "searchsorted", 5000, 2000 + 4000,
         4000); /* no more than all */
    begin();
    tl_unique(tl_zeros(TL_SHAPE(10), TL_F32, cpu), &values, NULL, NULL);
    ROW("unique", TL_FORWARD, 1, 10, 40 + 80, 4 + 80 + 8); /* sorted and order in; one value, inverse, one count */
    end();
    tl_tensor *counts = tl_full(TL_SHAPE(3), 2, TL_I64, cpu);
    begin();
    tl_repeat_counts(tl_zeros(TL_SHAPE(3), TL_F32, cpu), 0, counts);
    ROW("repeat_interleave", TL_FORWARD, 1, 0, 24, 48); /* 3 i64 in, 6 out */
    end();
}

/* ---- Where a cost goes ---- */

static void inner_ledgers_count_for_outer_ones(void **state) {
    (void)state;
    tl_ledger *outer = tl_ledger_begin("outer");
    tl_exp(f32(TL_SHAPE(6)));
    begin();
    tl_exp(f32(TL_SHAPE(6)));
    ROW("exp", TL_FORWARD, 1, 6, 24, 24);
    end();
    ledger = outer;
    ROW("exp", TL_FORWARD, 2, 12, 48, 48);
    end();
    tl_exp(f32(TL_SHAPE(6))); /* outside all ledgers: counted nowhere */
}

/* ---- Elementwise functions and numbers: cases that their samples lack ---- */

static void functions_of_shared_and_narrow_operands(void **state) {
    (void)state;
    tl_tensor *a = f32(TL_SHAPE(2, 3)), *b = f32(TL_SHAPE(2, 3)), *row = f32(TL_SHAPE(3));
    COST(tl_erf(of(TL_U8, TL_SHAPE(6))), "erf", 6, 6, 24); /* 6 bytes in, 6 f32 out */
    COST(tl_pow(a, row), "pow", 6, 36, 24);                /* 6 + 3 f32 in */
    COST(tl_remainder_(a, b), "remainder", 24, 48, 24);    /* in place: reads both, writes the first */
    COST(tl_maximum(a, a), "maximum", 6, 24, 24);          /* the same bytes: one read */
    COST(tl_logical_and(a, of(TL_BOOL, TL_SHAPE(3))), "logical_and", 6, 27, 6);      /* 6 f32 + 3 bool in, 6 bool out */
    COST(tl_div(of(TL_I64, TL_SHAPE(6)), of(TL_U8, TL_SHAPE(6))), "div", 6, 54, 24); /* 48 + 6 bytes in, 6 f32 out */
    begin();
    tl_addcmul(a, a, row, 0.5);
    ROW("mul", TL_FORWARD, 1, 6, 36, 24);
    ROW("affine", TL_FORWARD, 1, 6, 24, 24);
    ROW("add", TL_FORWARD, 1, 6, 48, 24);
    end();
}

/* As with two tensors, less the bytes of the second. */
static void numbers_cost_what_tensors_cost(void **state) {
    (void)state;
    tl_tensor *a = f32(TL_SHAPE(2, 3));
    tl_scalar half = tl_scalar_float(0.5), one = tl_scalar_int(1);
    COST(tl_add_scalar(a, half), "add_scalar", 6, 24, 24); /* 6 f32 in, 6 out */
    COST(tl_rsub_scalar(a, half), "sub_scalar", 6, 24, 24);
    COST(tl_mul_scalar_(a, half), "mul_scalar", 6, 24, 24);                      /* in place */
    COST(tl_mul_scalar(of(TL_I64, TL_SHAPE(6)), half), "mul_scalar", 6, 48, 24); /* 6 i64 in, 6 f32 out */
    COST(tl_reciprocal(a), "div_scalar", 6, 24, 24);
    COST(tl_pow_scalar(a, half), "pow_scalar", 6, 24, 24);
    COST(tl_remainder_scalar(a, half), "remainder_scalar", 24, 24, 24); /* divide, floor, product, subtract: 4 x 6 */
    COST(tl_cmp_scalar(a, TL_LT, half), "compare_scalar", 6, 24, 6);    /* 6 bool out */
    COST(tl_clamp(a, &half, &one), "clamp", 12, 24, 24);                /* one for each bound: 2 x 6 */
    COST(tl_minimum_scalar(a, half), "clamp", 6, 24, 24);
    COST(tl_fill_scalar_(f32(TL_SHAPE(5)), half), "fill", 0, 0, 20);
}

static void totals_exceed_64_bits(void **state) {
    (void)state;
    /* 2 m k n = 2 x 2^20 x 2^22 x 2^22 = 2^65 on bytes that meta can describe (2^44 per matrix at most) */
    char digits[40];
    begin();
    tl_matmul(f32(TL_SHAPE(1 << 20, 1 << 22)), f32(TL_SHAPE(1 << 22, 1 << 22)));
    tl_totals t = tl_ledger_total(ledger, TL_ALL, "matmul");
    assert_int_equal(t.flops.low, 0);
    assert_int_equal(t.flops.high, 2);
    assert_string_equal(tl_count_text(t.flops, digits), "36893488147419103232");
    end();
}

/* ---- Casts with a mode, block-scaled formats, more random numbers ---- */

static void block_formats_count_values_and_scales(void **state) {
    (void)state;
    tl_tensor *x = f32(TL_SHAPE(4, 64)); /* 256 f32 */
    tl_quantized q;
    COST(tl_round_to(x, TL_BF16, TL_STOCHASTIC), "cast_mode", 0, 1024, 512); /* 256 f32 in, 256 bf16 out */
    COST(tl_round_to(x, TL_F4E2M1, TL_SATURATE), "cast_mode", 0, 1024, 128); /* two f4 a byte */
    COST(tl_quantize(x, TL_MXFP8_E4M3, TL_NEAREST, &q), "quantize", 2 * 256, 1024, 256 + 8); /* 8 scales */
    COST(tl_dequantize(&q, TL_F32), "dequantize", 256, 256 + 8, 1024);
    COST(tl_fake_quantize(x, TL_MXFP4, TL_NEAREST), "fake_quantize", 3 * 256, 1024, 1024);      /* 2 + 1 */
    COST(tl_fake_quantize(x, TL_NVFP4, TL_NEAREST), "fake_quantize", 4 * 256 + 16, 1024, 1024); /* 3 + 1, 16 blocks */
    COST(tl_quantize(x, TL_MXFP4, TL_NEAREST, &q), "quantize", 2 * 256, 1024, 128 + 8);
    COST(tl_dequantize(&q, TL_BF16), "dequantize", 256, 128 + 8, 512);
    COST(tl_quantize(x, TL_NVFP4, TL_NEAREST, &q), "quantize", 3 * 256, 1024,
         128 + 16 + 4); /* the tensor's largest too; 16 scales, one f32 */
    COST(tl_dequantize(&q, TL_BF16), "dequantize", 256 + 16, 128 + 16 + 4, 512);          /* 16 products of scales */
    COST(tl_quantize(x, TL_NF4, TL_NEAREST, &q), "quantize", 2 * 256, 1024, 128 + 4 * 4); /* two codes a byte */
    COST(tl_dequantize(&q, TL_BF16), "dequantize", 256, 128 + 4 * 4, 512);
}

/* x (8,4), up and gate (6,4), down (5,6), f32; n = 8 rows */
static void joined_layers_count_as_their_parts(void **state) {
    (void)state;
    tl_tensor *x = leaf(tl_ones(TL_SHAPE(8, 4), TL_F32, NULL)), *up = leaf(tl_ones(TL_SHAPE(6, 4), TL_F32, NULL));
    tl_tensor *down = leaf(tl_ones(TL_SHAPE(5, 6), TL_F32, NULL)), *gate = leaf(tl_ones(TL_SHAPE(6, 4), TL_F32, NULL));
    tl_tensor *b = leaf(tl_ones(TL_SHAPE(6), TL_F32, NULL)), *c = leaf(tl_ones(TL_SHAPE(5), TL_F32, NULL));
    tl_tensor *g = tl_ones(TL_SHAPE(8, 5), TL_F32, NULL);
    const int n = 8, C = 4, F = 6, D = 5;
    begin();
    tl_backward(gelu_mlp(x, up, b, down, c), g, 0);
    ROW("gelu_mlp", TL_FORWARD, 1, 2 * n * C * F + 10 * n * F + 2 * n * F * D + n * D,
        4 * (n * C + F * C + D * F + F + D), 4 * (n * D + 2 * n * F)); /* y and h are kept */
    ROW("gelu_mlp_grad", TL_BACKWARD, 1, 2 * n * D * F + 20 * n * F, 4 * (n * D + D * F + n * F), 4 * (n * F + F));
    ROW("matmul", TL_BACKWARD, 3, 2 * (n * D * F + 2 * n * F * C),
        4 * ((n * D + n * F) + (n * F + n * C) + (n * F + F * C)), 4 * (D * F + F * C + n * C));
    end();
    begin();
    tl_backward(swiglu_mlp(x, gate, up, down), g, 0);
    ROW("swiglu_mlp", TL_FORWARD, 1, 4 * n * C * F + 5 * n * F + 2 * n * F * D, 4 * (n * C + 2 * F * C + D * F),
        4 * (n * D + 3 * n * F));
    ROW("swiglu_mlp_grad", TL_BACKWARD, 1, 2 * n * D * F + 11 * n * F, 4 * (n * D + D * F + 2 * n * F), 4 * 2 * n * F);
    end();
    bool grad = tl_set_grad_mode(false);
    COST(gelu_mlp(x, up, NULL, down, NULL), "gelu_mlp", 2 * n * C * F + 9 * n * F + 2 * n * F * D,
         4 * (n * C + F * C + D * F), 4 * n * D);
    tl_set_grad_mode(grad);
}

/* x (16,32) and w (48,32), bf16: 512 and 1536 numbers. */
static void eight_bit_products_count_what_they_read(void **state) {
    (void)state;
    tl_tensor *x = leaf(tl_ones(TL_SHAPE(16, 32), TL_BF16, NULL)), *w = leaf(tl_ones(TL_SHAPE(48, 32), TL_BF16, NULL));
    tl_tensor *b = tl_ones(TL_SHAPE(48), TL_BF16, NULL), *g = tl_ones(TL_SHAPE(16, 48), TL_BF16, NULL);
    begin();
    tl_backward(linear_f8(x, w, b), g, 0);
    /* the largest and a division each; x by rows and transposed, w by rows, a scale each */
    ROW("narrow", TL_FORWARD, 2, 2 * 512 + 2 * 1536, 1024 + 3072, 2 * 512 + 4 + 1536 + 4);
    ROW("matmul_f8", TL_FORWARD, 1, 2 * 16 * 32 * 48 + 16 * 48, 512 + 1536 + 8 + 96, 2 * 16 * 48);
    /* the gradient (16,48) both ways; w transposed, with its existing scale */
    ROW("narrow", TL_BACKWARD, 2, 2 * 768 + 1536, 1536 + 3072 + 4, 2 * 768 + 4 + 1536);
    ROW("matmul_f8", TL_BACKWARD, 2, 2 * 2 * 16 * 32 * 48, (768 + 1536 + 8) + (768 + 512 + 8), 1024 + 3072);
    end();
    begin();
    tl_tensor *square = leaf(tl_ones(TL_SHAPE(32, 32), TL_BF16, NULL)), *once = linear_f8(tl_detach(x), square, NULL);
    tl_backward(linear_f8(once, square, NULL), tl_ones(TL_SHAPE(16, 32), TL_BF16, NULL), 0);
    /* the second gradient of the weight is added to the first: the sum, two transposed factors and their scales */
    ROW("matmul_f8_acc", TL_BACKWARD, 1, 2 * 16 * 32 * 32, 2048 + 512 + 512 + 8, 2048);
    end();
}

/* x (16,64) and a weight (48,64) in nf4, f32: 3072 numbers, two in a byte, with 48 scales. */
static void weights_in_blocks_are_read_as_they_are(void **state) {
    (void)state;
    enum { M = 16, K = 64, N = 48, WEIGHT_BYTES = N * K / 2 + 4 * N };
    tl_tensor *x = leaf(tl_ones(TL_SHAPE(M, K), TL_F32, NULL)), *b = leaf(tl_ones(TL_SHAPE(N), TL_F32, NULL));
    tl_quantized q;
    assert_true(tl_quantize(tl_ones(TL_SHAPE(N, K), TL_F32, NULL), TL_NF4, TL_NEAREST, &q));
    begin();
    tl_backward(linear_quantized(x, &q, b), tl_ones(TL_SHAPE(M, N), TL_F32, NULL), 0);
    ROW("matmul_blocks", TL_FORWARD, 1, 2 * M * N * K + N * K, 4 * M * K + WEIGHT_BYTES, 4 * M * N);
    ROW("matmul_blocks", TL_BACKWARD, 1, 2 * M * N * K + N * K, 4 * M * N + WEIGHT_BYTES, 4 * M * K);
    ROW("add", TL_FORWARD, 1, M * N, 4 * (M * N + N), 4 * M * N);
    end();
    /* blocks of 16 with a scale of a byte, and one for the tensor */
    bool grad = tl_set_grad_mode(false);
    assert_true(tl_quantize(tl_ones(TL_SHAPE(N, K), TL_F32, NULL), TL_NVFP4, TL_NEAREST, &q));
    COST(linear_quantized(x, &q, NULL), "matmul_blocks", 2 * M * N * K + N * K + N * K / 16,
         4 * M * K + N * K / 2 + N * K / 16 + 4, 4 * M * N);
    tl_set_grad_mode(grad);
}

static void random_numbers_in_place_are_written_and_not_read(void **state) {
    (void)state;
    tl_tensor *x = f32(TL_SHAPE(4, 6));
    COST(tl_normal_(x, 0, 1), "random_fill", 0, 0, 96);                                      /* 24 f32 */
    COST(tl_bernoulli_(tl_select(x, 1, 0), 0.5), "random_fill", 0, 0, 16);                   /* 4 f32 */
    COST(tl_trunc_normal(TL_SHAPE(5), 0, 1, -2, 2, TL_BF16, meta), "random_fill", 0, 0, 10); /* 5 bf16 */
    COST(tl_permutation(10, meta), "permutation", 0, 0, 80);                                 /* 10 i64 */
    COST(tl_multinomial(x, 3, true), "multinomial", 24, 96, 4 * 3 * 8);      /* a sum of 24 f32; 12 i64 */
    COST(tl_multinomial(x, 3, false), "multinomial", 2 * 24, 96, 4 * 3 * 8); /* log and divide, 24 times */
}

/* Bytes sent are in tests/test_comm.c. */
static void collectives_move_bytes(void **state) {
    (void)state;
    tl_comm *comm = tl_comm_price(1, 4);
    tl_tensor *x = f32(TL_SHAPE(4, 6));
    COST(tl_all_gather(x, comm), "all_gather", 0, 96, 4 * 96);
    COST(tl_all_to_all(x, comm), "all_to_all", 0, 96, 96);
    COST(tl_broadcast(x, 0, comm), "broadcast", 0, 96, 96);
    COST(tl_send(x, 2, comm), "send", 0, 96, 0);
    COST(tl_recv(TL_SHAPE(5), TL_BF16, meta, 0, comm), "recv", 0, 0, 10);
    COST(tl_send_recv(x, 2, 0, comm), "send_recv", 0, 96, 96);
    tl_comm_free(comm);
}

static void every_op_has_a_cost_case(void **state) {
    (void)state;
    for (int i = 0; i < OP_COUNT; i++)
        if (!is_covered[i])
            fail_msg("%s: no sample states its FLOPs, and it has no case in this file", op_table[i]->name);
}

static void every_op_says_its_rules_in_words(void **state) {
    (void)state;
    for (int i = 0; i < OP_COUNT; i++) {
        const tl_op *op = op_table[i];
        if (!op->shapes || !*op->shapes) fail_msg("%s has no words for its shapes", op->name);
        if (!op->dtypes || !*op->dtypes) fail_msg("%s has no words for its dtypes", op->name);
        if (!op->flops || !*op->flops) fail_msg("%s has no words for its FLOPs", op->name);
    }
}

static int setup(void **state) {
    (void)state;
    tl_set_error_policy(TL_RETURN);
    cpu = tl_device_find("cpu");
    meta = tl_device_find("meta");
    return cpu && meta ? 0 : -1;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(views_cost_nothing),
        TEST(complex_numbers_cost_their_parts),
        TEST(creation_writes_and_reads_nothing),
        TEST(copies_move_bytes),
        TEST(unview_places_for_free_and_adds_where_elements_meet),
        TEST(transfers_are_counted_apart),
        TEST(samples_cost_the_flops_they_state),
        TEST(elementwise_ops_count_what_they_cover),
        TEST(elementwise_gradients_count_their_formula),
        TEST(reductions_count_one_per_element),
        TEST(products_cost_2mkn),
        TEST(gradients_of_products_cost_twice_and_add_for_free),
        TEST(grouped_products_cost_2nkn_whatever_the_groups_are),
        TEST(only_wanted_gradients_are_paid_for),
        TEST(norms_count_their_formula),
        TEST(tokens_count_what_they_fetch),
        TEST(rope_rotates_pairs),
        TEST(attention_counts_visible_pairs),
        TEST(first_keys_cost_their_bytes),
        TEST(dropout_inside_attention_is_free),
        TEST(attention_bills_its_recomputed_product_to_recompute),
        TEST(odd_heads_are_padded_on_hopper),
        TEST(attention_gets_whole_tiles_on_a_gpu),
        TEST(attention_gets_slabs_on_hopper),
        TEST(attention_has_room_for_the_plans_of_a_gpu),
        TEST(updates_are_billed_to_their_phase),
        TEST(norms_of_gradients_are_billed_to_the_update),
        TEST(fused_elementwise_ops_save_traffic),
        TEST(sums_with_norms_cost_one_addition_more),
        TEST(the_head_costs_its_composite_less_the_logits),
        TEST(soft_caps_of_logits_count),
        TEST(smoothing_and_z_losses_count),
        TEST(windows_count_their_pairs),
        TEST(masks_are_read_and_hide_nothing_from_the_count),
        TEST(optimizers_count_their_options),
        TEST(products_of_one_input_add_their_gradients),
        TEST(reading_values_costs_what_is_read),
        TEST(folds_count_their_formula),
        TEST(losses_count_their_formula),

        TEST(gathers_count_what_they_fetch),
        TEST(scatters_count_the_target_when_it_is_fresh),
        TEST(joining_moves_bytes),
        TEST(factorisations_count_the_nominal_flops),
        TEST(sorting_counts_comparisons),
        TEST(inner_ledgers_count_for_outer_ones),
        TEST(functions_of_shared_and_narrow_operands),
        TEST(numbers_cost_what_tensors_cost),
        TEST(totals_exceed_64_bits),
        TEST(block_formats_count_values_and_scales),
        TEST(joined_layers_count_as_their_parts),
        TEST(weights_in_blocks_are_read_as_they_are),
        TEST(eight_bit_products_count_what_they_read),
        TEST(random_numbers_in_place_are_written_and_not_read),
        TEST(collectives_move_bytes),
        TEST(every_op_has_a_cost_case),
        TEST(every_op_says_its_rules_in_words),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}

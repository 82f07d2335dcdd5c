/* test_einops.c: the behaviour of patterns: results, views, copies, contractions, contracts, the cache. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "einops/pattern_cache.h"
#include "support/check.h"

/* ---- Cost of a call, as the ledger saw it ---- */

struct bill {
    uint64_t copies, kernels_bytes, flops;
};
static tl_ledger *bill_begin(void) { return tl_ledger_begin("bill"); }
static struct bill bill_end(tl_ledger *l) {
    tl_ledger_end(l);
    tl_totals all = tl_ledger_total(l, TL_ALL, NULL);
    struct bill b = {tl_ledger_total(l, TL_ALL, "copy").calls, all.bytes_read.low + all.bytes_written.low,
                     all.flops.low};
    tl_ledger_free(l);
    return b;
}

/* ---- Results ---- */

static void rearrange_reorders_splits_and_merges(void **state) {
    (void)state;
    tl_tensor *x = check_counting(TL_SHAPE(2, 3));
    expect_values(tl_rearrange(x, "a b -> b a", NULL), 0, 3, 1, 4, 2, 5);
    expect_values(tl_rearrange(x, "a b -> (b a)", NULL), 0, 3, 1, 4, 2, 5);
    expect_values(tl_rearrange(x, "a b->(a b)", NULL), 0, 1, 2, 3, 4, 5);
    tl_tensor *y = check_counting(TL_SHAPE(2, 6));
    expect_shape(tl_rearrange(y, "b (h w) -> b h w", "w=3"), 2, 2, 3);
    expect_shape(tl_rearrange(y, "b (h w) -> h (w b) 1", "h = 3"), 3, 4, 1);
    expect_shape(tl_rearrange(y, "b(h w)->b()h w", "h=3,w=2"), 2, 1, 3, 2);
    expect_values(tl_rearrange(y, "b (h w) -> w h b", "h=2"), 0, 6, 3, 9, 1, 7, 4, 10, 2, 8, 5, 11);
    expect_scalar(tl_rearrange(check_tensor(TL_SHAPE(1), 5), "1 -> ", NULL));
    expect_shape(tl_rearrange(check_counting(TL_SHAPE(2, 3, 4, 5)), "a ... d -> d (... a)", NULL), 5, 24);
    expect_shape(tl_rearrange(check_counting(TL_SHAPE(2, 3)), "... -> (...)", NULL), 6);
    expect_shape(tl_rearrange(check_counting(TL_SHAPE(2, 3)), "a ... b -> b ... a", NULL), 3, 2);
    expect_shape(tl_rearrange(check_counting(TL_SHAPE(2, 6)), "größe (ö Ω) -> ö größe Ω", "ö=2"), 2, 2, 3);
}

static void reduce_folds_what_the_right_side_lacks(void **state) {
    (void)state;
    tl_tensor *x = check_counting(TL_SHAPE(2, 4));
    expect_values(tl_reduce(x, "a b -> a", "sum", NULL), 6, 22);
    expect_values(tl_reduce(x, "a b -> b", "mean", NULL), 2, 3, 4, 5);
    expect_values(tl_reduce(x, "a (b 2) -> b a", "max", NULL), 1, 5, 3, 7);
    expect_values(tl_reduce(x, "a (b c) -> c", "min", "b=2"), 0, 1);
    expect_values(tl_reduce(x, "... -> ", "prod", NULL), 0);
    expect_values(tl_reduce(x, "a b -> () b", "any", NULL), 1, 1, 1, 1);
    expect_values(tl_reduce(x, "a b -> b", "all", NULL), 0, 1, 1, 1);
    expect_values_near(tl_reduce(x, "a b -> a 1", "logsumexp", NULL), 1e-6, 3.4401897, 7.4401897);
    tl_tensor *ids = check_from((const double[]){1, 2}, TL_I64, TL_SHAPE(2));
    expect_true(tl_reduce(ids, "a -> a", "mean", NULL) == ids); /* nothing is reduced */
}

static void repeat_adds_axes(void **state) {
    (void)state;
    tl_tensor *x = check_counting(TL_SHAPE(2));
    expect_values(tl_repeat(x, "a -> a r", "r=2"), 0, 0, 1, 1);
    expect_values(tl_repeat(x, "a -> (r a)", "r=2"), 0, 1, 0, 1);
    expect_values(tl_repeat(x, "a -> (a 3)", NULL), 0, 0, 0, 1, 1, 1);
    expect_shape(tl_repeat(x, "a -> r a 1", "r=0"), 0, 2, 1);
    expect_shape(tl_repeat(check_counting(TL_SHAPE(1, 3)), "1 b -> 2 b", NULL), 2, 3);
}

static void lengths_are_printed(void **state) {
    (void)state;
    tl_tensor *x = check_counting(TL_SHAPE(2, 6));
    expect_shape(tl_rearrange(x, "b (h w) -> h b w", tl_lengths("w=%d h=%lld", 2, 3LL)), 3, 2, 2);
    expect_shape(tl_reduce(x, "b (h w) -> h", "sum", tl_lengths("w=%d", 2)), 3);
    expect_shape(tl_repeat(x, "b c -> w b c", tl_lengths("w=%d", 2)), 2, 2, 6);
    expect_refused(tl_rearrange(x, "b (h w) -> h b w", tl_lengths("w=2%2000s", "")), "2003 bytes (need 1023 or fewer)");
}

/* ---- Copies ---- */

static void what_strides_can_say_moves_no_bytes(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *lengths;
    } views[] = {{"a b c -> c a b", NULL},
                 {"a (b d) c -> a b d c", "d=3"},
                 {"a b c -> (a b) c", NULL},
                 {"a b c -> a (b c)", NULL},
                 {"a b c -> (a b c)", NULL},
                 {"a b (c d) -> d a b c", "d=2"},
                 {"a (b d) c -> (a b) (d c)", "d=2"},
                 {"a b c -> a 1 b () c", NULL},
                 {"... c -> c ...", NULL}};
    tl_tensor *x = check_counting(TL_SHAPE(2, 6, 4));
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) {
        tl_ledger *l = bill_begin();
        tl_tensor *y = tl_rearrange(x, views[i].pattern, views[i].lengths);
        struct bill b = bill_end(l);
        if (!y || !tl_shares_storage(x, y) || b.kernels_bytes || b.copies)
            fail_msg("\"%s\": %llu bytes moved, %s", views[i].pattern, (unsigned long long)b.kernels_bytes,
                     tl_error_message());
    }
    tl_ledger *l = bill_begin();
    tl_tensor *y = tl_repeat(x, "a b c -> a r b 2 c", "r=5");
    expect_true(tl_shares_storage(x, y));
    expect_strides(y, 24, 0, 4, 0, 1);
    expect_equal(bill_end(l).kernels_bytes, 0);
    expect_true(tl_rearrange(x, "a b c -> a b c", NULL) == x); /* nothing to do */
    expect_true(tl_rearrange(x, "... -> ...", NULL) == x);
}

static void what_must_move_moves_once(void **state) {
    (void)state;
    tl_tensor *x = check_counting(TL_SHAPE(2, 6, 4)); /* 192 bytes */
    static const char *const patterns[] = {"a b c -> a (c b)", "a (b d) c -> (d a) (b c)", "a b c -> (c b a)",
                                           "(a d) b c -> b (c d a)"};
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        tl_ledger *l = bill_begin();
        tl_rearrange(x, patterns[i], strchr(patterns[i], 'd') ? "d=2" : NULL);
        struct bill b = bill_end(l);
        expect_ok();
        if (b.copies != 1 || b.kernels_bytes != 2 * 192)
            fail_msg("\"%s\": %llu copies, %llu bytes", patterns[i], (unsigned long long)b.copies,
                     (unsigned long long)b.kernels_bytes);
    }
    tl_ledger *l = bill_begin();
    tl_repeat(x, "a b c -> (b 3) (a c)", NULL);
    struct bill b = bill_end(l);
    expect_equal(b.copies, 1);
    expect_equal(b.kernels_bytes, 192 + 3 * 192); /* read once, written three times */
    l = bill_begin();
    tl_reduce(x, "a b c -> c a", "sum", NULL); /* permuted as a view, then one sum: its result is in order */
    b = bill_end(l);
    expect_equal(b.copies, 0);
    expect_equal(b.kernels_bytes, 192 + 8 * 4);
    l = bill_begin();
    tl_reduce(x, "a (b d) c -> (c a) b", "max", "d=3");
    expect_equal(bill_end(l).copies, 0);
}

static void contractions_copy_only_what_strides_cannot_say(void **state) {
    (void)state;
    static const struct {
        const char *pattern;
        int rank_a, rank_b;
        int64_t a[4], b[4];
        int copies;
        bool in_order; /* the result is dense */
    } cases[] = {
        {"i k, k j -> i j", 2, 2, {3, 4}, {4, 5}, 0, true},
        {"k i, j k -> i j", 2, 2, {4, 3}, {5, 4}, 0, true},
        {"k i, j k -> j i", 2, 2, {4, 3}, {5, 4}, 0, true}, /* B A */
        {"b t h d, b s h d -> b h t s", 4, 4, {2, 3, 4, 5}, {2, 6, 4, 5}, 0, true},
        {"b h t s, b s h d -> b t h d", 4, 4, {2, 4, 3, 6}, {2, 6, 4, 5}, 0, false}, /* the batch comes first: a view */
        {"b t c, c h d -> b h t d", 3, 3, {2, 3, 4}, {4, 2, 5}, 0, false},
        {"b t h d, h d c -> b t c", 4, 3, {2, 3, 4, 5}, {4, 5, 6}, 0, true},
        {"k i j, k n -> j i n", 3, 2, {4, 2, 3}, {4, 5}, 0, false}, /* i j is one axis, j i is not */
        {"m h d, n d h -> m n",
         3,
         3,
         {3, 4, 5},
         {2, 5, 4},
         1,
         true}, /* one order of h d for both: the smaller is copied */
        {"b h t d, h d c -> b t c", 4, 3, {2, 4, 3, 5}, {4, 5, 6}, 1, true}, /* neither b t nor h d is one axis */
        {"b k, b k -> b", 2, 2, {4, 3}, {4, 3}, 0, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tl_tensor *a = check_counting(cases[i].rank_a, cases[i].a), *b = check_counting(cases[i].rank_b, cases[i].b);
        tl_ledger *l = bill_begin();
        tl_tensor *y = tl_einsum(cases[i].pattern, TL_TENSORS(a, b));
        tl_totals copied = tl_ledger_total(l, TL_ALL, "copy");
        struct bill bill = bill_end(l);
        if (!y || (int)bill.copies != cases[i].copies)
            fail_msg("\"%s\": %llu copies, %s", cases[i].pattern, (unsigned long long)bill.copies, tl_error_message());
        if (tl_is_contiguous(y) != cases[i].in_order)
            fail_msg("\"%s\": in order? %d", cases[i].pattern, !cases[i].in_order);
        size_t smaller = tl_bytes(a) < tl_bytes(b) ? tl_bytes(a) : tl_bytes(b);
        if (strstr(cases[i].pattern, "d h") && copied.bytes_written.low != smaller)
            fail_msg("the larger one was copied");
    }
}

static void unpacking_is_views(void **state) {
    (void)state;
    tl_tensor *part[3], *a = check_counting(TL_SHAPE(2, 5)), *b = check_counting(TL_SHAPE(2, 3, 5)),
                        *c = check_counting(TL_SHAPE(2, 2, 2, 5));
    tl_packed shapes[3];
    tl_tensor *all = tl_pack(TL_TENSORS(a, b, c), "i * k", shapes);
    expect_shape(all, 2, 8, 5);
    expect_equal(shapes[0].rank, 0);
    expect_equal(shapes[2].size[1], 2);
    tl_ledger *l = bill_begin();
    expect_true(tl_unpack(all, shapes, 3, "i * k", part));
    expect_equal(bill_end(l).kernels_bytes, 0);
    expect_same_bits(part[0], a);
    expect_same_bits(part[1], b);
    expect_same_bits(part[2], c);
    shapes[1].size[0] = -1;
    expect_true(tl_unpack(all, shapes, 3, "i * k", part));
    expect_shape(part[1], 2, 3, 5);
    tl_tensor *alone = tl_pack(&c, 1, "i *", NULL);
    expect_shape(alone, 2, 20);
    expect_true(tl_shares_storage(alone, c));
    tl_packed none[2] = {{1, {0}}, {1, {-1}}};
    expect_true(tl_unpack(alone, none, 2, "i *", part));
    expect_shape(part[0], 2, 0);
}

/* ---- Contractions ---- */

static void einsum_contracts(void **state) {
    (void)state;
    tl_tensor *a = check_counting(TL_SHAPE(2, 3)), *b = check_counting(TL_SHAPE(3, 2)),
              *v = check_tensor(TL_SHAPE(3), 1, 2, 3);
    expect_values(tl_einsum("i k, k j -> i j", TL_TENSORS(a, b)), 10, 13, 28, 40);
    expect_values(tl_einsum("row inner, inner -> row", TL_TENSORS(a, v)), 8, 26);
    expect_values(tl_einsum("i j ->", &a, 1), 15);
    expect_values(tl_einsum("i j, j i ->", TL_TENSORS(a, b)), 50);
    expect_values(tl_einsum("i, j -> i j", TL_TENSORS(v, v)), 1, 2, 3, 2, 4, 6, 3, 6, 9);
    expect_values(tl_einsum_letters("ij,jk", TL_TENSORS(a, b)), 10, 13, 28, 40);
    expect_values(tl_einsum_letters(" b a ", &a, 1), 0, 3, 1, 4, 2, 5); /* letters that occur once, rising */
    tl_tensor *square = check_counting(TL_SHAPE(3, 3));
    expect_values(tl_einsum("i i -> i", &square, 1), 0, 4, 8);
    expect_values(tl_einsum("_ _ ->", &square, 1), 12);
    expect_shape(tl_einsum("... a b, ... b c -> ... a c",
                           TL_TENSORS(check_counting(TL_SHAPE(4, 1, 2, 3)), check_counting(TL_SHAPE(5, 3, 2)))),
                 4, 5, 2, 2);
    expect_values(tl_einsum("(i) k, k -> i", TL_TENSORS(a, v)), 8, 26);
    tl_tensor *one = check_tensor(TL_SHAPE(1), 2);
    expect_values(tl_einsum("i, i -> i", TL_TENSORS(v, one)), 2, 4, 6); /* size 1 gives way */
    expect_values(tl_einsum("i, i ->", TL_TENSORS(one, v)), 12);
}

static void the_plan_is_what_runs(void **state) {
    (void)state;
    tl_device *meta = check_meta();
    tl_tensor *x[4] = {tl_empty(TL_SHAPE(10, 1000), TL_F32, meta), tl_empty(TL_SHAPE(1000, 10), TL_F32, meta),
                       tl_empty(TL_SHAPE(10, 500), TL_F32, meta), tl_empty(TL_SHAPE(500, 2), TL_F32, meta)};
    tl_einsum_step steps[3];
    tl_contraction total;
    char *text;
    expect_true(tl_einsum_plan("a b, b c, c d, d e -> a e", false, x, 4, steps, &total, &text));
    /* c e first (2 x 10 x 500 x 2), and a c (2 x 10 x 1000 x 10); then both (2 x 10 x 10 x 2) or b e ... */
    expect_equal(total.n_steps, 3);
    tl_ledger *l = bill_begin();
    tl_einsum("a b, b c, c d, d e -> a e", x, 4);
    expect_equal(bill_end(l).flops, total.flops.low);
    expect_equal(total.flops.low, 2 * 10 * 500 * 2 + 2 * 1000 * 10 * 2 + 2 * 10 * 1000 * 2); /* c e, b e, a e */
    expect_equal(total.flops_in_order.low, 2 * 10 * 1000 * 10 + 2 * 10 * 10 * 500 + 2 * 10 * 500 * 2);
    expect_equal(total.largest, 1000 * 2);
    expect_equal(steps[0].left, 2);
    expect_equal(steps[0].right, 3);
    expect_text(text, "einsum \"a b, b c, c d, d e -> a e\": a = 10, b = 1000, c = 10, d = 500, e = 2\n"
                      "  [4] = [2] x [3]: c d, d e -> c e: 20000 FLOPs, 20 elements\n"
                      "  [5] = [1] x [4]: b c, c e -> b e: 40000 FLOPs, 2000 elements\n"
                      "  [6] = [0] x [5]: a b, b e -> a e: 40000 FLOPs, 20 elements\n"
                      "  total 100000 FLOPs (from left to right 320000), largest result on the way 2000 elements\n");
    free(text);
}

static void nothing_outlives_its_step(void **state) {
    (void)state;
    tl_device *meta = check_meta();
    tl_tensor *x[3] = {tl_empty(TL_SHAPE(64, 64), TL_F32, meta), tl_empty(TL_SHAPE(64, 64), TL_F32, meta),
                       tl_empty(TL_SHAPE(64, 64), TL_F32, meta)};
    uint64_t before = tl_device_memory(meta).live_bytes;
    tl_einsum("a b, b c, c d -> a d", x, 3);
    expect_equal(tl_device_memory(meta).live_bytes - before, 64 * 64 * 4);
}

/* ---- Contracts ---- */

static void contracts_bind_names_across_tensors(void **state) {
    (void)state;
    tl_dims d = {0};
    tl_tensor *x = check_counting(TL_SHAPE(2, 3, 8)), *w = check_counting(TL_SHAPE(4, 5)),
              *s = check_counting(TL_SHAPE(5, 5));
    expect_true(tl_expect(&d, x, "x", "batch seq (heads d) : f32 @cpu"));
    expect_refused(tl_dim(&d, "heads") + 1, "\"heads\" is not known yet, only heads x d = 8");
    expect_true(tl_expect(&d, w, "w", "d out"));
    expect_equal(tl_dim(&d, "heads"), 2);
    expect_equal(tl_dim(&d, "d"), 4);
    expect_true(tl_expect(&d, s, "s", "out out : f32|bf16"));
    expect_true(tl_expect(&d, s, "s", "_ ... : float"));
    expect_true(tl_expect(&d, x, "x", "... (heads 2 2)"));
    expect_true(tl_expect(&d, x, "x", "(batch 1) seq (_ d)"));
    expect_refused(tl_expect(&d, s, "s", "out d"), "s: axis 1, \"d\", has size 5 (need 4, from w)");
    expect_refused(tl_expect(&d, s, "s", "out"), "s has 2 axes (need 1)");
    expect_refused(tl_expect(&d, s, "s", "out out out ..."), "s has 2 axes (need at least 3)");
    expect_refused(tl_expect(&d, s, "s", "new 4"), "s: axis 1 has size 5 (need 4)");
    expect_refused(tl_dim(&d, "new") + 1, "no axis is called \"new\""); /* a refused tensor binds nothing */
    expect_refused(tl_expect(&d, s, "s", "out (d z)"), "s: axis 1 has size 5, and (d z) needs a multiple of 4");
    expect_refused(tl_expect(&d, s, "s", "out ()"), "s: axis 1 has size 5, and () needs 1");
    expect_refused(tl_expect(&d, s, "s", "... : i64|bf16 @cpu"), "s is f32 (need i64|bf16)");
    expect_refused(tl_expect(&d, s, "s", "... : @cuda"), "s is on cpu (need cuda)");
    expect_refused(tl_expect(&d, s, "s", "... : f33"), "\"f33\" is no dtype");
    expect_refused(tl_expect(&d, s, "s", "(a ...)"), "an ellipsis in parentheses");
    expect_refused(tl_expect(&d, s, "s", NULL), "got NULL instead of a pattern");
    expect_refused(tl_expect(NULL, s, "s", "a b"), "got NULL instead of dims");
    tl_tensor *on_meta = tl_empty(TL_SHAPE(5, 5), TL_F32, check_meta());
    expect_true(tl_expect(&d, on_meta, NULL, "out out : @cuda")); /* meta stands in for every device */
}

static void products_wait_for_their_factors(void **state) {
    (void)state;
    tl_dims d = {0};
    tl_tensor *x = check_counting(TL_SHAPE(24)), *y = check_counting(TL_SHAPE(6)), *z = check_counting(TL_SHAPE(7)),
              *b = check_counting(TL_SHAPE(2));
    expect_true(tl_expect(&d, x, "x", "(a b c)") && tl_expect(&d, y, "y", "(b c)"));
    expect_refused(tl_expect(&d, z, "z", "b"), "z: b=7 x c does not fit: the product is 6, from y");
    expect_refused(tl_dims_set(&d, "c", 5), "dims_set: c = 5 does not fit b x c = 6, from y");
    expect_true(tl_expect(&d, b, "b", "b"));
    expect_equal(tl_dim(&d, "c"), 3);
    expect_equal(tl_dim(&d, "a"), 4);
    expect_true(tl_dims_set(&d, "a", 4));
    expect_refused(tl_dims_set(&d, "a", 5), "a is 4 already, not 5");
    expect_refused(tl_dims_set(&d, "a b", 5), "is no name");
    expect_refused(tl_dims_set(&d, "q", -1), "need 0 or more");
    expect_text(tl_dims_name(&d, 0), "a");
    expect_true(tl_dims_name(&d, 99) == NULL);
    tl_dims full = {0};
    char name[16];
    for (int i = 0; i < TL_MAX_RANK; i++) {
        snprintf(name, sizeof name, "n%d", i);
        expect_true(tl_dims_set(&full, name, i));
    }
    expect_refused(tl_dims_set(&full, "more", 1), "no room for the name \"more\"");
    expect_refused(tl_expect(&full, y, "y", "more"), "no room for the name");
}

static void parse_shape_names_sizes(void **state) {
    (void)state;
    tl_dims d;
    tl_tensor *x = check_counting(TL_SHAPE(2, 3, 1, 5));
    expect_true(tl_parse_shape(x, "a _ 1 (c)", &d));
    expect_equal(d.n, 2);
    expect_equal(tl_dim(&d, "c"), 5);
    expect_true(tl_parse_shape(x, "... c", &d));
    expect_equal(d.n, 1);
    expect_refused(tl_parse_shape(x, "a b", &d), "has 4 axes (need 2)");
    expect_refused(tl_parse_shape(x, "a b c d e ...", &d), "has 4 axes (need at least 5)");
    expect_refused(tl_parse_shape(x, "a () b c", &d), "axis 1 has size 3, and () needs 1");
    expect_refused(tl_parse_shape(x, "a 4 b c", &d), "axis 1 has size 3 (need 4)");
    expect_refused(tl_parse_shape(x, "a (b c) d", &d), "several axes in parentheses");
    expect_refused(tl_parse_shape(x, "a a b c", &d), "\"a\" comes twice");
    expect_refused(tl_parse_shape(x, NULL, &d), "got NULL");
}

/* ---- The table ---- */

static void more_patterns_than_the_table_holds_still_work(void **state) {
    (void)state;
    tl_tensor *x = check_counting(TL_SHAPE(2, 3));
    char pattern[64];
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 4 * CACHE_SETS * CACHE_WAYS; i++) {
            tl_scope scope = tl_scope_begin();
            snprintf(pattern, sizeof pattern, "a%d b -> b a%d", i, i);
            tl_tensor *y = tl_rearrange(x, pattern, NULL);
            if (!y || tl_size(y, 0) != 3) fail_msg("\"%s\": %s", pattern, tl_error_message());
            tl_scope_end(scope);
        }
    char *long_name = malloc(3000), *text = malloc(7000); /* longer than a key: not cached, and still right */
    memset(long_name, 'n', 2999);
    long_name[2999] = 0;
    snprintf(text, 7000, "%s b -> b %s", long_name, long_name);
    expect_shape(tl_rearrange(x, text, NULL), 3, 2);
    snprintf(text, 7000, "%s b -> b", long_name);
    expect_refused(tl_rearrange(x, text, NULL), "is on the left side only");
    free(long_name);
    free(text);
}

static void a_key_keeps_its_parts_apart(void **state) {
    (void)state;
    tl_tensor *x = check_counting(TL_SHAPE(4, 6));
    expect_shape(tl_rearrange(x, "a (b c) -> a b c", "b=2"), 4, 2, 3);
    expect_shape(tl_rearrange(x, "a (b c) -> a b c", "c=2"), 4, 3, 2);
    expect_shape(tl_rearrange(x, "a (b c) -> a b c", "b=3"), 4, 3, 2);
    expect_refused(tl_rearrange(x, "a (b c) -> a b c", NULL), "cannot both be inferred");
    expect_shape(tl_reduce(x, "a b -> a", "sum", NULL), 4);
    expect_refused(tl_rearrange(x, "a b -> a", NULL), "on the left side only");
    tl_tensor *y = check_counting(TL_SHAPE(4, 6, 2));
    expect_shape(tl_rearrange(x, "a ... -> ... a", NULL), 6, 4);
    expect_shape(tl_rearrange(y, "a ... -> ... a", NULL), 6, 2, 4);
    expect_shape(tl_einsum("a b, b c -> a c", TL_TENSORS(x, check_counting(TL_SHAPE(6, 2)))), 4, 2);
    expect_shape(tl_einsum("a b, b c -> a c", TL_TENSORS(x, check_counting(TL_SHAPE(6, 3)))), 4, 3);
    expect_refused(tl_einsum("a b, b c -> a c", TL_TENSORS(x, check_counting(TL_SHAPE(5, 3)))),
                   "\"b\" has size 5 in input 1 (axis 0), and 6 before");
}

static void *many_patterns(void *seed) {
    uint64_t r = (uint64_t)(uintptr_t)seed;
    tl_tensor *x = tl_zeros(TL_SHAPE(2, 3), TL_F32, NULL);
    char pattern[64];
    for (int i = 0; i < 3000; i++) {
        tl_scope scope = tl_scope_begin();
        r = r * 6364136223846793005u + 1442695040888963407u;
        int k = (int)(r >> 40) % 900;
        snprintf(pattern, sizeof pattern, "t%d b -> b t%d", k, k);
        tl_tensor *y = tl_rearrange(x, pattern, NULL);
        tl_tensor *z = y ? tl_einsum("a b, b c -> a c", TL_TENSORS(x, y)) : NULL;
        tl_dims d = {0};
        if (!z || tl_size(z, 1) != 2 || !tl_expect(&d, z, "z", "n n")) return "wrong";
        tl_scope_end(scope);
    }
    tl_scope_reset();
    return NULL;
}

static void threads_share_the_table(void **state) {
    (void)state;
    pthread_t thread[4];
    void *result;
    for (uintptr_t i = 0; i < 4; i++) pthread_create(&thread[i], NULL, many_patterns, (void *)(i + 1));
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], &result);
        expect_true(result == NULL);
    }
}

/* ---- Failures of memory ---- */

static tl_tensor *parts[3];
static bool everything(tl_tensor *x, int round) {
    char pattern[100], *text = NULL;
    tl_packed shapes[2];
    tl_dims d = {0};
    snprintf(pattern, sizeof pattern, "f%d (b c) -> (c f%d) b", round, round); /* new ones, so that they are read */
    tl_tensor *y = tl_rearrange(x, pattern, "b=2");
    tl_tensor *z = y ? tl_einsum_letters("ab,cb,cd->ad", TL_TENSORS(x, x, x)) : NULL;
    tl_tensor *p = z ? tl_pack(TL_TENSORS(x, x), "* k", shapes) : NULL;
    snprintf(pattern, sizeof pattern, "f%d g", round);
    bool ok = p && tl_unpack(p, shapes, 2, "* k", parts) && tl_expect(&d, x, "x", pattern) &&
              tl_parse_shape(x, pattern, &d) &&
              tl_einsum_plan("a b, b c -> a c", false, TL_TENSORS(x, z), NULL, NULL, &text);
    free(text);
    return ok;
}

static void every_failure_of_memory_is_clean(void **state) {
    (void)state;
    bool has_failed = true;
    int n_failures = 0;
    for (uint64_t n = 1; has_failed; n++) {
        tl_scope scope = tl_scope_begin();
        tl_tensor *x = check_counting(TL_SHAPE(4, 4));
        tl_fail_allocation(n, false);
        bool ok = everything(x, (int)n);
        has_failed = tl_fail_allocation(0, false) >= n;
        if (ok == (tl_error() != TL_OK))
            fail_msg("failure %d: %s, and \"%s\"", (int)n, ok ? "success" : "failure", tl_error_message());
        if (!ok && tl_error() != TL_ERROR_MEMORY) fail_msg("failure %d: %s", (int)n, tl_error_message());
        n_failures += !ok;
        tl_error_clear();
        tl_scope_end(scope);
        expect_nothing_live();
    }
    expect_true(n_failures > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(rearrange_reorders_splits_and_merges),
        TEST(reduce_folds_what_the_right_side_lacks),
        TEST(repeat_adds_axes),
        TEST(lengths_are_printed),
        TEST(what_strides_can_say_moves_no_bytes),
        TEST(what_must_move_moves_once),
        TEST(contractions_copy_only_what_strides_cannot_say),
        TEST(unpacking_is_views),
        TEST(einsum_contracts),
        TEST(the_plan_is_what_runs),
        TEST(nothing_outlives_its_step),
        TEST(contracts_bind_names_across_tensors),
        TEST(products_wait_for_their_factors),
        TEST(parse_shape_names_sizes),
        TEST(more_patterns_than_the_table_holds_still_work),
        TEST(a_key_keeps_its_parts_apart),
        TEST(threads_share_the_table),
        TEST(every_failure_of_memory_is_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

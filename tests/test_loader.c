/* The loader: each target once per epoch, any step at any time, ranks with disjoint shares, price = receipt, errors
 * reported at their step, a thread that stops. Also run under ThreadSanitizer (make tsan). */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/order.h"

static char folder[] = "/tmp/tally-loader-XXXXXX";
static char path[200];

/* Token i of the file is i: a batch shows where it is from. */
static tl_token_file *counting_file(int64_t n) {
    snprintf(path, sizeof path, "%s/counting.tok", folder);
    tl_token_writer *w = tl_token_writer_new(path, 4, (int64_t)1 << 31, 0);
    for (int32_t i = 0; i < n; i++) assert_true(tl_token_writer_add(w, &i, 1));
    assert_true(tl_token_writer_commit(w));
    tl_token_file *f = tl_token_file_open(path, TL_TOKENS_AUTO);
    assert_non_null(f);
    return f;
}

static tl_loader_options options_for(tl_token_file *file, int64_t batch, int64_t time) {
    tl_loader_options o = tl_loader_defaults();
    o.file = file;
    o.batch = batch;
    o.time = time;
    return o;
}

/* The batch of a step in host memory, checked to be windows of consecutive tokens. */
static void batch_get(tl_loader *l, int64_t step, int64_t batch, int64_t time, int32_t *first) {
    tl_scope scope = tl_scope_begin();
    tl_tensor *tokens, *targets;
    assert_true(tl_loader_next(l, step, &tokens, &targets));
    expect_shape(tokens, batch, time);
    expect_shape(targets, batch, time);
    expect_equal(tl_dtype_of(tokens), TL_I32);
    expect_equal(tl_purpose_of(targets), TL_DATA);
    const int32_t *x = tl_data(tokens), *y = tl_data(targets);
    for (int64_t b = 0; b < batch; b++) {
        first[b] = x[b * time];
        expect_equal(first[b], tl_loader_where(l, step, b, NULL));
        for (int64_t t = 0; t < time; t++) {
            expect_equal(x[b * time + t], first[b] + t);
            expect_equal(y[b * time + t], first[b] + t + 1);
        }
    }
    expect_true(tl_scope_end(scope));
}

/* ---- Order ---- */

static void the_order_is_a_permutation(void **state) {
    (void)state;
    static bool seen[5000];
    for (uint64_t n = 1; n < 5000; n = n * 5 / 4 + 1)
        for (uint64_t stream = 0; stream < 3; stream++) {
            memset(seen, 0, sizeof seen);
            for (uint64_t i = 0; i < n; i++) {
                uint64_t at = order_at((struct rng_key){7, stream}, n, i);
                expect_true(at < n && !seen[at]);
                seen[at] = true;
            }
        }
    uint64_t n = ((uint64_t)1 << 55) + 3; /* far more than a table could hold */
    for (uint64_t i = 0; i < 1000; i++) expect_true(order_at((struct rng_key){1, 1}, n, n - 1 - i) < n);
}

/* Every (index, place) is as likely as any other: chi-square over seeds, 24 x 24 cells. The variance of a sum over
 * cells of a random permutation matrix is a little below 2 x 23^2, so five deviations are far out. */
static void every_place_is_equally_likely(void **state) {
    (void)state;
    enum { N = 24, SEEDS = 4800 };
    static int count[N][N];
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        for (uint64_t i = 0; i < N; i++) count[i][order_at((struct rng_key){seed, 0}, N, i)]++;
    double chi = 0, expected = (double)SEEDS / N, freedom = (N - 1) * (N - 1);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) chi += (count[i][k] - expected) * (count[i][k] - expected) / expected;
    expect_near(chi, freedom, 5 * sqrt(2 * freedom));
}

/* ---- Each target once ---- */

static void each_target_comes_once_per_epoch(void **state) {
    (void)state;
    enum { N = 1003, T = 16, B = 4, WORLD = 3 };
    tl_token_file *f = counting_file(N);
    int64_t windows = (N - 1) / T; /* 62, and 10 targets left over */
    bool seen_shift[T] = {false};
    int n_shifts = 0;
    for (int64_t epoch = 0; epoch < 20; epoch++) {
        int times[N] = {0};
        for (int64_t sample = epoch * windows; sample < (epoch + 1) * windows; sample++) {
            tl_loader_options o = options_for(f, B, T);
            o.world = WORLD;
            o.rank = (int)(sample / B % WORLD);
            o.device = check_meta(); /* where only: no thread */
            tl_loader *l = tl_loader_new(&o);
            int64_t e, from = tl_loader_where(l, sample / B / WORLD, sample % B, &e);
            expect_equal(e, epoch);
            expect_equal(tl_loader_windows(l), windows);
            for (int64_t t = 1; t <= T; t++) times[from + t]++;
            tl_loader_free(l);
        }
        int shift = 0, left = 0;
        while (!times[1 + shift]) shift++;
        for (int i = 1; i < N; i++) {
            expect_true(times[i] <= 1);
            left += !times[i];
        }
        expect_equal(left, 10);
        expect_equal(times[0], 0); /* nothing is before it */
        for (int i = 1 + shift; i < 1 + shift + (int)windows * T; i++) expect_equal(times[i], 1);
        n_shifts += !seen_shift[shift];
        seen_shift[shift] = true;
    }
    expect_true(n_shifts > 4); /* of 11: not always the same tokens are left out */
    tl_token_file_close(f);
}

/* Document d of the file has d % 7 + 1 tokens; all that begin one are 3, and no other token is. */
static tl_token_file *documents_file(int64_t n) {
    snprintf(path, sizeof path, "%s/documents.tok", folder);
    tl_token_writer *w = tl_token_writer_new(path, 1, 10, 0);
    for (int64_t i = 0, d = 0, left = 0; i < n; i++, left--) {
        if (left == 0) {
            assert_true(tl_token_writer_document(w));
            left = d++ % 7 + 1;
        }
        const int32_t id = left == (d - 1) % 7 + 1 ? 3 : (int32_t)(i % 3);
        assert_true(tl_token_writer_add(w, &id, 1));
    }
    assert_true(tl_token_writer_commit(w));
    tl_token_file *f = tl_token_file_open(path, TL_TOKENS_AUTO);
    assert_non_null(f);
    return f;
}

/* By the file's table and by the token that begins each: the same places, with every sampling. */
static void documents_begin_where_the_file_says(void **state) {
    (void)state;
    enum { B = 3, T = 16 };
    tl_token_file *f = documents_file(700);
    for (int s = 0; s < TL_SAMPLING_COUNT; s++)
        for (int64_t token = -1; token <= 3; token += 4) {
            tl_loader_options o = options_for(f, B, T);
            o.sampling = (tl_sampling)s;
            o.has_documents = true;
            o.document_token = token;
            tl_loader *l = tl_loader_new(&o);
            assert_non_null(l);
            for (int64_t step = 0; step < 30; step++) {
                tl_scope scope = tl_scope_begin();
                tl_tensor *tokens, *targets, *begin;
                assert_true(tl_loader_next_documents(l, step, &tokens, &targets, &begin));
                expect_shape(begin, B, T);
                const int32_t *x = tl_data(tokens), *at = tl_data(begin);
                int64_t pairs = 0;
                for (int b = 0; b < B; b++)
                    for (int t = 0, place = 0; t < T; t++) {
                        if (x[b * T + t] == 3) place = t; /* the first token begins one in any case */
                        expect_equal(at[b * T + t], place);
                        pairs += t - place + 1;
                    }
                expect_equal(tl_loader_pairs(l), pairs);
                expect_true(tl_scope_end(scope));
            }
            tl_loader_free(l);
        }
    tl_token_file_close(f);
}

static void loaders_without_documents_say_so(void **state) {
    (void)state;
    tl_token_file *f = counting_file(100);
    tl_loader_options o = options_for(f, 2, 10);
    tl_loader *l = tl_loader_new(&o);
    tl_tensor *tokens, *targets, *begin = (tl_tensor *)1;
    tl_scope scope = tl_scope_begin();
    assert_true(tl_loader_next_documents(l, 0, &tokens, &targets, &begin));
    assert_null(begin);
    expect_equal(tl_loader_pairs(l), 2 * 10 * 11 / 2);
    expect_true(tl_scope_end(scope));
    tl_loader_free(l);
    o.has_documents = true;
    expect_refused(tl_loader_new(&o), "counting.tok does not record where its documents begin (need a document_token)");
    tl_token_file_close(f);
    f = documents_file(100);
    o = options_for(f, 2, 10);
    o.has_documents = true;
    o.document_token = 10;
    expect_refused(tl_loader_new(&o), "document_token 10 is outside the vocabulary of 10");
    tl_token_file_close(f);
}

static void batches_hold_what_where_says(void **state) {
    (void)state;
    tl_token_file *f = counting_file(700);
    for (int s = 0; s < TL_SAMPLING_COUNT; s++) {
        tl_loader_options o = options_for(f, 3, 10);
        o.sampling = (tl_sampling)s;
        o.first = 100;
        o.last = 600;
        tl_loader *l = tl_loader_new(&o);
        int32_t first[3];
        for (int64_t step = 0; step < 50; step++) {
            batch_get(l, step, 3, 10, first);
            for (int b = 0; b < 3; b++) expect_true(first[b] >= 100 && first[b] + 10 < 600);
            if (s == TL_SAMPLE_IN_ORDER) expect_equal(first[1], 100 + (step * 3 + 1) % 49 * 10);
        }
        expect_true(tl_loader_wait_s(l) >= 0);
        tl_loader_free(l);
    }
    tl_token_file_close(f);
}

static void random_windows_reach_both_ends(void **state) {
    (void)state;
    tl_loader_options o = options_for(NULL, 1, 8);
    o.last = 20; /* begins 0 .. 11 */
    o.device = check_meta();
    o.sampling = TL_SAMPLE_RANDOM;
    tl_loader *l = tl_loader_new(&o);
    int count[12] = {0};
    for (int64_t step = 0; step < 1200; step++) {
        int64_t from = tl_loader_where(l, step, 0, NULL);
        expect_true(from >= 0 && from < 12);
        count[from]++;
    }
    for (int i = 0; i < 12; i++) expect_near(count[i], 100, 50); /* five deviations of sqrt(100 x 11/12) */
    tl_loader_free(l);
}

static void seeds_and_epochs_have_orders_of_their_own(void **state) {
    (void)state;
    tl_loader_options o = options_for(NULL, 1, 8);
    o.last = 8 * 1000 + 1;
    o.device = check_meta();
    tl_loader *l = tl_loader_new(&o);
    o.seed = 2;
    tl_loader *other = tl_loader_new(&o);
    int same_epochs = 0, same_seeds = 0;
    for (int64_t i = 0; i < 1000; i++) {
        int64_t here = tl_loader_where(l, i, 0, NULL);
        same_epochs += here == tl_loader_where(l, 1000 + i, 0, NULL);
        same_seeds += here == tl_loader_where(other, i, 0, NULL);
    }
    expect_true(same_epochs < 10 && same_seeds < 10); /* one on average */
    tl_loader_free(l);
    tl_loader_free(other);
}

/* ---- Any step, any time ---- */

static void any_step_gives_the_same_batch_whenever_it_is_asked_for(void **state) {
    (void)state;
    tl_token_file *f = counting_file(5000);
    for (int n_buffers = 1; n_buffers <= 5; n_buffers += 2) {
        tl_loader_options o = options_for(f, 4, 16);
        o.n_buffers = n_buffers;
        tl_loader *l = tl_loader_new(&o);
        int32_t in_order[60][4], first[4];
        for (int64_t step = 0; step < 60; step++) batch_get(l, step, 4, 16, in_order[step]);
        uint32_t r = 1;
        for (int i = 0; i < 300; i++) {
            int64_t step = i % 3 ? (int64_t)((r = r * 1664525u + 1013904223u) >> 16) % 60 : i / 5;
            batch_get(l, step, 4, 16, first);
            assert_memory_equal(first, in_order[step], sizeof first);
        }
        batch_get(l, (int64_t)1 << 40, 4, 16, first); /* as quick as any other */
        tl_loader_free(l);
    }
    tl_token_file_close(f);
}

static void ranks_share_what_one_would_read(void **state) {
    (void)state;
    tl_token_file *f = counting_file(5000);
    tl_loader_options o = options_for(f, 6, 16);
    tl_loader *alone = tl_loader_new(&o), *ranks[3];
    o.batch = 2;
    o.world = 3;
    for (o.rank = 0; o.rank < 3; o.rank++) ranks[o.rank] = tl_loader_new(&o);
    for (int64_t step = 0; step < 20; step++) {
        int32_t all[6], mine[6];
        batch_get(alone, step, 6, 16, all);
        for (int r = 0; r < 3; r++) batch_get(ranks[r], step, 2, 16, mine + 2 * r);
        assert_memory_equal(all, mine, sizeof all);
    }
    for (int r = 0; r < 3; r++) tl_loader_free(ranks[r]);
    tl_loader_free(alone);
    tl_token_file_close(f);
}

/* ---- Price and receipt ---- */

static char *train_with(tl_device *device, tl_token_file *file, int64_t count, int n_steps, tl_totals *other) {
    tl_ledger *ledger = tl_ledger_begin("steps");
    tl_loader_options o = options_for(file, 4, 16);
    o.last = count;
    o.device = device;
    tl_loader *l = tl_loader_new(&o);
    tl_seed(1);
    tl_tensor *w = tl_keep(
        tl_set_purpose(tl_requires_grad(tl_normal(TL_SHAPE(300, 8), 0, 1, TL_F32, device), true), TL_PARAMETER));
    for (int64_t step = 0; step < n_steps; step++) {
        tl_scope scope = tl_scope_begin();
        tl_tensor *tokens, *targets;
        assert_true(tl_loader_next(l, step, &tokens, &targets));
        tl_tensor *x = tl_view(tl_embedding(w, tokens), TL_SHAPE(64, 8));
        tl_tensor *loss = tl_linear_cross_entropy(x, w, tl_view(targets, TL_SHAPE(64)), NULL);
        assert_true(tl_backward(loss, NULL, 0));
        tl_sgd_(w, tl_grad_of(w), NULL, &(tl_sgd_options){.lr = 0.1});
        tl_zero_grad(w, true);
        tl_scope_end(scope);
    }
    tl_drop(w);
    tl_scope_reset();
    tl_loader_free(l);
    tl_ledger_end(ledger);
    *other = tl_ledger_total(ledger, TL_OTHER, "select");
    char *json = tl_ledger_json(ledger, device);
    /* ring 3 x 2 x 4 x 16 x 4 bytes, one batch 2 x 4 x 16 x 4 */
    if (device == check_cpu() || device == check_meta())
        expect_equal(tl_ledger_peak(ledger, device, TL_DATA), 3 * 2 * 4 * 16 * 4 + 2 * 4 * 16 * 4);
    tl_ledger_free(ledger);
    expect_ok();
    return json;
}

static void the_price_is_the_receipt(void **state) {
    (void)state;
    tl_token_file *f = counting_file(300);
    tl_totals views[3];
    char *receipt = train_with(check_cpu(), f, 0, 7, &views[0]), *price = train_with(check_meta(), f, 0, 7, &views[1]);
    char *unseen = train_with(check_meta(), NULL, 300, 7, &views[2]), *report = NULL;
    int n = tl_ledger_diff(price, receipt, &report);
    if (n) fail_msg("%d differences:\n%s", n, report);
    expect_equal(tl_ledger_diff(unseen, receipt, NULL), 0);
    for (int i = 0; i < 3; i++) expect_equal(views[i].calls, 14);
    free(price), free(receipt), free(unseen);
    tl_token_file_close(f);
}

static void a_gpu_is_billed_one_transfer_per_step(void **state) {
    (void)state;
    tl_device *h200 = tl_device_find("meta:h200");
    tl_loader_options o = options_for(NULL, 4, 16);
    o.last = 1000;
    o.device = h200;
    tl_ledger *ledger = tl_ledger_begin("steps");
    tl_loader *l = tl_loader_new(&o);
    for (int64_t step = 0; step < 5; step++) {
        tl_scope scope = tl_scope_begin();
        tl_tensor *tokens, *targets;
        expect_true(tl_loader_next(l, step, &tokens, &targets));
        expect_true(tl_shares_storage(tokens, targets) && tl_is_contiguous(tokens) && tl_is_contiguous(targets));
        tl_scope_end(scope);
    }
    tl_loader_free(l);
    tl_ledger_end(ledger);
    expect_count(tl_ledger_transfer_bytes(ledger), 5 * 2 * 4 * 16 * 4);
    expect_equal(tl_ledger_total(ledger, TL_OTHER, "transfer").calls, 5);
    expect_equal(tl_ledger_peak(ledger, h200, TL_DATA), 2 * 4 * 16 * 4); /* the ring is the host's */
    tl_ledger_free(ledger);
}

/* With a GPU: the same batches, the price of meta, one transfer per step. */
static void on_a_gpu_the_batches_are_the_same(void **state) {
    (void)state;
    tl_device *cuda = tl_device_find("cuda");
    tl_error_clear();
    if (!cuda) skip();
    tl_token_file *f = counting_file(3000);
    tl_loader_options o = options_for(f, 4, 16);
    tl_loader *here = tl_loader_new(&o);
    o.device = cuda;
    tl_ledger *ledger = tl_ledger_begin("steps");
    tl_loader *there = tl_loader_new(&o);
    for (int64_t step = 0; step < 20; step++) {
        tl_scope scope = tl_scope_begin();
        tl_tensor *x[2], *y[2];
        expect_true(tl_loader_next(here, step, &x[0], &x[1]) && tl_loader_next(there, step, &y[0], &y[1]));
        for (int i = 0; i < 2; i++) {
            expect_true(tl_device_of(y[i]) == cuda);
            int32_t ids[64];
            expect_true(tl_to_data(y[i], ids, sizeof ids));
            assert_memory_equal(ids, tl_data(x[i]), sizeof ids);
        }
        tl_scope_end(scope);
    }
    tl_loader_free(here);
    tl_loader_free(there);
    tl_ledger_end(ledger);
    expect_count(tl_ledger_transfer_bytes(ledger), 20 * 2 * 4 * 16 * 4);
    expect_equal(tl_ledger_peak(ledger, cuda, TL_DATA), 2 * 4 * 16 * 4);
    tl_ledger_free(ledger);
    tl_token_file_close(f);
}

/* ---- Trouble ---- */

static void wrong_options_are_refused(void **state) {
    (void)state;
    tl_token_file *f = counting_file(100);
    tl_loader_options good = options_for(f, 2, 16), o;
#define REFUSED(change, says) o = good, change, expect_refused(tl_loader_new(&o), says)
    REFUSED(o.batch = 0, "batch 0, time 16");
    REFUSED(o.time = -1, "time -1");
    REFUSED(o.rank = 1, "rank 1 of 1");
    REFUSED(o.rank = -1, "rank -1 of 1");
    REFUSED(o.world = 0, "rank 0 of 0");
    REFUSED(o.n_buffers = 0, "0 buffers (need 1 to 64)");
    REFUSED(o.n_buffers = 65, "65 buffers");
    REFUSED(o.sampling = (tl_sampling)9, "9 is not a sampling mode");
    REFUSED(o.file = NULL, "no token file (only meta needs none)");
    REFUSED(o.last = 101, "no tokens 0 to 100 (the file has 100)");
    REFUSED(o.first = 100, "no tokens 100 to 99");
    REFUSED(o.first = -1, "no tokens -1");
    REFUSED(o.time = 100, "100 tokens are too few for a window (need time + 1 = 101)");
    REFUSED((o.first = 90, o.last = 100), "10 tokens are too few for a window (need time + 1 = 17)");
    REFUSED((o.file = NULL, o.device = check_meta()), "no tokens 0 to -1");
    expect_refused(tl_loader_new(NULL), "no options");
    REFUSED((o.batch = INT32_MAX, o.time = INT32_MAX, o.file = NULL, o.last = INT64_MAX, o.device = check_meta()), "");
    o = good, o.time = 99, o.batch = 1;
    tl_loader *l = tl_loader_new(&o); /* one window, over and over */
    int32_t first;
    for (int64_t step = 0; step < 5; step++) batch_get(l, step, 1, 99, &first), expect_equal(first, 0);
    tl_tensor *tokens, *targets;
    expect_refused(tl_loader_next(l, -1, &tokens, &targets), "step -1");
    expect_refused(tl_loader_next(l, INT64_MAX, &tokens, &targets), "fewer than 2^56");
    expect_refused(tl_loader_next(l, 0, NULL, &targets), "no place");
    expect_refused(tl_loader_next(NULL, 0, &tokens, &targets), "no loader");
    expect_equal(tl_loader_where(l, 0, 1, NULL), -1);
    expect_equal(tl_loader_windows(NULL), 0);
    tl_loader_free(l);
    tl_loader_free(NULL);
    tl_token_file_close(f);
}

/* Token 600 is out of the vocabulary: the steps before it succeed, the one that holds it fails, every time. */
static void what_the_thread_cannot_read_fails_at_its_step(void **state) {
    (void)state;
    tl_token_file *f = counting_file(1000);
    tl_token_file_close(f);
    snprintf(path, sizeof path, "%s/bad.bin", folder);
    FILE *file = fopen(path, "wb");
    for (uint16_t i = 0; i < 1000; i++) {
        uint16_t id = i == 600 ? 60000 : (uint16_t)(i + 1000); /* all of four digits: no mistaking the width */
        fwrite(&id, 2, 1, file);
    }
    fclose(file);
    f = tl_token_file_open(path, TL_TOKENS_U16);
    expect_true(f && tl_token_file_expect(f, 50257, 0));
    tl_loader_options o = options_for(f, 1, 50);
    o.sampling = TL_SAMPLE_IN_ORDER;
    tl_loader *l = tl_loader_new(&o);
    tl_tensor *tokens, *targets;
    for (int round = 0; round < 3; round++)
        for (int64_t step = 0; step < 19; step++) {
            tl_scope scope = tl_scope_begin();
            bool ok = tl_loader_next(l, step, &tokens, &targets);
            bool is_bad = step == 11 || step == 12; /* as the last target, and as the first token */
            if (is_bad) expect_error(TL_ERROR_USE, "token 600 (byte 1200) is 60000 (need 0 to 50256) (loader, step 1");
            expect_equal(ok, !is_bad);
            tl_scope_end(scope);
        }
    assert_int_equal(truncate(path, 100), 0);
    tl_loader_next(l, 0, &tokens, &targets); /* may have been read already */
    tl_error_clear();
    expect_true(!tl_loader_next(l, 15, &tokens, &targets));
    expect_error(TL_ERROR_IO, "was changed while it is read");
    tl_loader_free(l);
    tl_token_file_close(f);
    tl_scope_reset();
}

static void every_failure_of_memory_is_reported(void **state) {
    (void)state;
    tl_token_file *f = counting_file(1000);
    tl_loader_options o = options_for(f, 2, 16);
    for (uint64_t n = 1;; n++) {
        tl_pool_trim(check_cpu());
        tl_fail_allocation(n, false);
        tl_scope scope = tl_scope_begin();
        tl_loader *l = scope.depth ? tl_loader_new(&o) : NULL;
        tl_tensor *tokens, *targets;
        bool ok = l && tl_loader_next(l, 0, &tokens, &targets);
        uint64_t asked = tl_fail_allocation(0, false);
        if (l && !ok) { /* the loader continues */
            expect_error(TL_ERROR_MEMORY, "");
            expect_true(tl_loader_next(l, 0, &tokens, &targets));
        } else if (!ok) expect_error(TL_ERROR_MEMORY, "");
        if (scope.depth) tl_scope_end(scope);
        tl_loader_free(l);
        if (ok) {
            expect_true(asked < n && n > 4);
            break;
        }
    }
    tl_token_file_close(f);
}

static void a_loader_may_go_at_any_moment(void **state) {
    (void)state;
    tl_token_file *f = counting_file(100000);
    for (int i = 0; i < 200; i++) {
        tl_loader_options o = options_for(f, 8, 256);
        o.n_buffers = 1 + i % 4;
        tl_loader *l = tl_loader_new(&o);
        tl_scope scope = tl_scope_begin();
        tl_tensor *tokens, *targets;
        for (int k = 0; k < i % 5; k++) expect_true(tl_loader_next(l, i * k, &tokens, &targets));
        tl_scope_end(scope);
        tl_loader_free(l);
    }
    tl_token_file_close(f);
}

static void loaders_share_a_file_and_hold_it(void **state) {
    (void)state;
    tl_token_file *f = counting_file(100000);
    tl_loader *l[4];
    for (int i = 0; i < 4; i++) {
        tl_loader_options o = options_for(f, 2, 128);
        o.seed = (uint64_t)i;
        l[i] = tl_loader_new(&o);
    }
    tl_token_file_close(f);
    int32_t first[2];
    for (int64_t step = 0; step < 100; step++)
        for (int i = 0; i < 4; i++) batch_get(l[i], step, 2, 128, first);
    for (int i = 0; i < 4; i++) tl_loader_free(l[i]);
}

static void a_forked_child_is_told(void **state) {
    (void)state;
    tl_token_file *f = counting_file(1000);
    tl_loader_options o = options_for(f, 2, 16);
    tl_loader *l = tl_loader_new(&o);
    int32_t first[2];
    batch_get(l, 0, 2, 16, first);
    pid_t child = fork();
    if (child == 0) {
        tl_tensor *tokens, *targets;
        bool ok = tl_loader_next(l, 1, &tokens, &targets);
        _exit(!ok && strstr(tl_error_message(), "before fork()") ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    expect_equal(status, 0);
    batch_get(l, 1, 2, 16, first);
    tl_loader_free(l);
    tl_token_file_close(f);
}

static int remove_folder(void **state) {
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void) {
    if (!mkdtemp(folder)) return 1;
    const struct CMUnitTest tests[] = {
        TEST(the_order_is_a_permutation),
        TEST(every_place_is_equally_likely),
        TEST(each_target_comes_once_per_epoch),
        TEST(batches_hold_what_where_says),
        TEST(documents_begin_where_the_file_says),
        TEST(loaders_without_documents_say_so),
        TEST(random_windows_reach_both_ends),
        TEST(seeds_and_epochs_have_orders_of_their_own),
        TEST(any_step_gives_the_same_batch_whenever_it_is_asked_for),
        TEST(ranks_share_what_one_would_read),
        TEST(the_price_is_the_receipt),
        TEST(a_gpu_is_billed_one_transfer_per_step),
        TEST(on_a_gpu_the_batches_are_the_same),
        TEST(wrong_options_are_refused),
        TEST(what_the_thread_cannot_read_fails_at_its_step),
        TEST(every_failure_of_memory_is_reported),
        TEST(a_loader_may_go_at_any_moment),
        TEST(loaders_share_a_file_and_hold_it),
        TEST(a_forked_child_is_told),
    };
    return cmocka_run_group_tests_name("loader", tests, NULL, remove_folder);
}

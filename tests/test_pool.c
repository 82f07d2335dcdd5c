/* The pool: how requests become blocks and segments, what happens at the limit, and that all of it depends only on
 * the order of requests, so that meta predicts it. A device with small numbers makes the arithmetic readable. */
#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account/ledger.h"
#include "account/path.h"
#include "tensor/pool.h"
#include "tensor/storage.h"

/* Blocks of 64; up to 1 KiB from segments of 4 KiB; up to 16 KiB from segments of 32 KiB; beyond that multiples of 8
 * KiB. */
static const struct target small_target = {.name = "small",
                                           .align_bytes = 64,
                                           .small_bytes = 1024,
                                           .small_segment_bytes = 4096,
                                           .large_segment_bytes = 32768,
                                           .huge_bytes = 16384,
                                           .segment_align_bytes = 8192};

static int segments_out, refuse_segments;
static bool segment_new(tl_device *device, uint64_t bytes, void **data, char *error) {
    if (refuse_segments) {
        refuse_segments--;
        snprintf(error, 200, "the shop is closed");
        return false;
    }
    *data = device->own ? malloc((size_t)bytes) : NULL;
    segments_out++;
    return true;
}
static void segment_free(tl_device *device, void *data, uint64_t bytes) {
    (void)device, (void)bytes;
    free(data);
    segments_out--;
}
static const struct device_functions functions = {.segment_new = segment_new, .segment_free = segment_free};

/* Pools are never freed, as devices are not; they stay reachable from here. */
static tl_device devices[64];
static int n_devices;

static tl_device *device_new(const struct target *target, bool has_memory) {
    tl_device *d = &devices[n_devices++];
    *d = (tl_device){.name = "small", .target = target, .functions = &functions, .own = has_memory ? d : NULL};
    d->pool = pool_new(d);
    assert_non_null(d->pool);
    return d;
}

static struct block *take(tl_device *d, size_t bytes) { return pool_take(d->pool, bytes, 0, TL_TEMPORARY); }
static void give(tl_device *d, struct block *b) { pool_give(d->pool, b); }
static size_t offset_of(struct block *b, struct block *from) {
    return (size_t)((char *)block_data(b) - (char *)block_data(from));
}
static uint64_t reserved(tl_device *d) { return tl_device_memory(d).reserved_bytes; }
static uint64_t allocated(tl_device *d) { return tl_device_memory(d).allocated_bytes; }

static void requests_are_rounded_up_and_counted_as_asked(void **state) {
    (void)state;
    tl_device *d = device_new(&small_target, true);
    struct block *a = take(d, 1), *b = take(d, 64), *c = take(d, 65);
    tl_memory m = tl_device_memory(d);
    expect_equal(m.live_bytes, 130);
    expect_equal(m.allocated_bytes, 64 + 64 + 128);
    expect_equal(m.reserved_bytes, 4096);
    expect_equal(m.live_tensors, 3);
    expect_equal(offset_of(b, a), 64);
    expect_equal(offset_of(c, a), 128);
    give(d, a), give(d, b), give(d, c);
    m = tl_device_memory(d);
    expect_equal(m.live_bytes, 0);
    expect_equal(m.allocated_bytes, 0);
    expect_equal(m.live_tensors, 0);
    expect_equal(m.reserved_bytes, 4096); /* segments are kept */
    expect_equal(m.peak_bytes, 130);
}

static void segments_follow_size_classes(void **state) {
    (void)state;
    tl_device *d = device_new(&small_target, true);
    struct block *small = take(d, 1024);
    expect_equal(reserved(d), 4096);
    struct block *large = take(d, 1025); /* 1088: no longer small */
    expect_equal(reserved(d), 4096 + 32768);
    struct block *large2 = take(d, 16320);
    expect_equal(reserved(d), 4096 + 32768); /* 1088 + 16320 fit into one */
    expect_equal(offset_of(large2, large), 1088);
    struct block *huge = take(d, 16384);
    expect_equal(reserved(d), 4096 + 32768 + 16384); /* its own, in multiples of 8192 */
    struct block *huge2 = take(d, 16385);
    expect_equal(reserved(d), 4096 + 32768 + 16384 + 24576);
    /* the tail of a huge segment is worth keeping when it could not have been a small block */
    struct block *tail = take(d, 8000);
    expect_equal(reserved(d), 4096 + 32768 + 16384 + 24576);
    struct block *all[] = {small, large, large2, huge, huge2, tail};
    for (int i = 0; i < 6; i++) give(d, all[i]);
    expect_equal(allocated(d), 0);
}

static void tails_too_small_for_a_large_block_stay_with_it(void **state) {
    (void)state;
    tl_device *d = device_new(&small_target, true);
    /* a tail of 1024 is not split off, and not counted: it depends on which blocks were free */
    struct block *b = take(d, 24576 - 1024);
    expect_equal(allocated(d), 24576 - 1024);
    struct block *other = take(d, 1025); /* does not fit behind it */
    expect_equal(reserved(d), 24576 + 32768);
    give(d, other);
    give(d, b);
    b = take(d, 24576 - 1088);
    expect_equal(allocated(d), 24576 - 1088);
    give(d, b);
}

static void neighbours_merge_in_every_order(void **state) {
    (void)state;
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    tl_device *d = device_new(&small_target, true);
    for (int o = 0; o < 6; o++) {
        struct block *b[4];
        for (int i = 0; i < 4; i++) b[i] = take(d, 1024);
        expect_equal(reserved(d), 4096);
        for (int i = 0; i < 3; i++) give(d, b[orders[o][i]]);
        struct block *joined[3];
        for (int i = 0; i < 3; i++) joined[i] = take(d, 1024); /* the hole holds three again */
        expect_equal(reserved(d), 4096);
        for (int i = 0; i < 3; i++) give(d, joined[i]);
        give(d, b[3]);
    }
    tl_pool_trim(d);
    expect_equal(reserved(d), 0); /* only a wholly merged segment can be returned */
}

static void holes_are_used_before_new_segments(void **state) {
    (void)state;
    tl_device *d = device_new(&small_target, true);
    struct block *b[4];
    for (int i = 0; i < 4; i++) b[i] = take(d, 1024);
    give(d, b[1]);
    struct block *c = take(d, 960);
    expect_equal(reserved(d), 4096);
    expect_equal(offset_of(c, b[0]), 1024);
    struct block *e = take(d, 64); /* and its tail */
    expect_equal(offset_of(e, b[0]), 1024 + 960);
    struct block *f = take(d, 64);
    expect_equal(reserved(d), 8192);
    give(d, f), give(d, e), give(d, c), give(d, b[0]), give(d, b[2]), give(d, b[3]);
    expect_equal(allocated(d), 0);
}

static void the_same_size_again_gets_the_same_block(void **state) {
    (void)state;
    tl_device *d = device_new(&small_target, true);
    struct block *a = take(d, 640), *keep = take(d, 640);
    void *data = block_data(a);
    for (int i = 0; i < 10; i++) {
        give(d, a);
        a = take(d, 640 - (size_t)i);
        expect_true(block_data(a) == data);
    }
    give(d, a), give(d, keep);
}

static void every_bin_finds_a_block_that_is_large_enough(void **state) {
    (void)state;
    tl_device *d = device_new(&small_target, false);
    /* sizes around every step of every power, far beyond this machine: nothing is backed by memory here */
    for (int power = 6; power < 61; power++)
        for (int step = 0; step < 32; step += 5)
            for (int by = -64; by <= 64; by += 64) {
                size_t bytes = ((size_t)1 << power) + ((size_t)1 << power) / 32 * (size_t)step + (size_t)by;
                if (power == 6 && by < 0) continue;
                struct block *b = take(d, bytes);
                expect_true(b != NULL);
                expect_true(allocated(d) >= bytes && allocated(d) - bytes < 64);
                give(d, b);
                struct block *again = take(d, bytes);
                expect_true(again != NULL);
                give(d, again);
                tl_pool_trim(d);
                expect_equal(reserved(d), 0);
            }
    expect_true(take(d, SIZE_MAX / 2) == NULL);
    expect_error(TL_ERROR_MEMORY, "out of memory on small");
}

static void trim_returns_only_whole_segments(void **state) {
    (void)state;
    tl_device *d = device_new(&small_target, true);
    int before = segments_out;
    struct block *a = take(d, 100), *b = take(d, 20000), *c = take(d, 5000);
    expect_equal(segments_out - before, 3);
    give(d, b);
    tl_pool_trim(d);
    expect_equal(segments_out - before, 2);
    expect_equal(reserved(d), 4096 + 32768);
    give(d, a), give(d, c);
    tl_pool_trim(d);
    expect_equal(segments_out - before, 0);
    expect_equal(reserved(d), 0);
    expect_equal(tl_device_memory(d).peak_reserved_bytes, 4096 + 32768 + 24576);
    a = take(d, 100); /* and the pool still works */
    give(d, a);
    tl_pool_trim(d);
}

static void at_the_limit_empty_segments_are_returned_and_the_request_retried(void **state) {
    (void)state;
    tl_device *d = device_new(&small_target, true);
    tl_set_pool_limit(d, 40000);
    struct block *b = take(d, 24576);
    give(d, b);
    b = take(d, 32768); /* 24576 + 32768 > 40000, but the first segment is free */
    expect_true(b != NULL);
    expect_equal(reserved(d), 32768);
    expect_true(take(d, 8192) == NULL);
    expect_error(TL_ERROR_MEMORY, "out of memory on small: 8192 bytes asked, 32768 live (temporary 32768), 32768 "
                                  "reserved; its pool may reserve 40000 bytes");
    struct block *small = take(d, 10); /* 4096 more still fit */
    expect_true(small != NULL);
    tl_set_pool_limit(d, 0);
    struct block *more = take(d, 8192);
    expect_true(more != NULL);
    give(d, b), give(d, small), give(d, more);
}

static void a_device_that_refuses_is_asked_again_after_trimming(void **state) {
    (void)state;
    tl_device *d = device_new(&small_target, true);
    struct block *b = take(d, 24576), *other;
    refuse_segments = 1;
    expect_true(take(d, 100) == NULL); /* nothing to give back: no second try */
    expect_error(TL_ERROR_MEMORY, "100 bytes asked, 24576 live (temporary 24576), 24576 reserved; the shop is closed");
    give(d, b);
    refuse_segments = 1;
    other = take(d, 100);
    expect_true(other != NULL);
    expect_equal(reserved(d), 4096);
    give(d, other);
    refuse_segments = 2;
    expect_true(take(d, 24576) == NULL);
    expect_equal(refuse_segments, 0);
    expect_error(TL_ERROR_MEMORY, "24576 bytes asked, 0 live (nothing), 0 reserved; the shop is closed");
}

static void out_of_memory_names_what_is_live_by_purpose(void **state) {
    (void)state;
    tl_device *d = device_new(&small_target, true);
    struct block *b[3] = {pool_take(d->pool, 100, 0, TL_PARAMETER), pool_take(d->pool, 50, 0, TL_ACTIVATION),
                          pool_take(d->pool, 7, 0, TL_PARAMETER)};
    tl_set_pool_limit(d, 4096);
    expect_true(take(d, 5000) == NULL);
    expect_error(TL_ERROR_MEMORY, "5000 bytes asked, 157 live (parameter 107, activation 50), 4096 reserved");
    for (int i = 0; i < 3; i++) give(d, b[i]);
    tl_scope scope = tl_scope_enter("blocks.3"); /* the message names the caller */
    expect_true(take(d, 5000) == NULL);
    expect_error(TL_ERROR_MEMORY, "blocks.3: out of memory on small");
    tl_scope_end(scope);
}

/* ---- The same on meta ------------------------------------------------------------------------------------------ */

static uint64_t draws;
static uint64_t draw(uint64_t below) { /* xorshift64* */
    draws ^= draws >> 12, draws ^= draws << 25, draws ^= draws >> 27;
    return draws * 0x2545F4914F6CDD1DULL % below;
}

/* 10,000 takes, gives, moves and trims; the device's numbers after each go into a hash. */
static uint64_t random_life(tl_device *d, uint64_t seed, uint64_t max_bytes) {
    enum { SLOTS = 200 };
    struct block *slot[SLOTS] = {0};
    uint64_t hash = 1469598103934665603u;
    draws = seed;
    for (int i = 0; i < 10000; i++) {
        size_t s = (size_t)draw(SLOTS);
        uint64_t kind = draw(100), size = 1 + draw(draw(8) ? max_bytes / 100 : max_bytes);
        if (kind == 0) tl_pool_trim(d);
        else if (slot[s] && kind < 70) give(d, slot[s]), slot[s] = NULL;
        else if (slot[s]) pool_move(d->pool, slot[s], (tl_purpose)draw(TL_PURPOSE_COUNT));
        else slot[s] = pool_take(d->pool, size, 0, (tl_purpose)draw(TL_PURPOSE_COUNT));
        tl_memory m = tl_device_memory(d);
        uint64_t facts[] = {m.live_bytes,   m.allocated_bytes, m.reserved_bytes,
                            m.live_tensors, m.peak_bytes,      m.peak_reserved_bytes};
        for (int k = 0; k < 6; k++) hash = (hash ^ facts[k]) * 1099511628211u;
        if (m.allocated_bytes < m.live_bytes || m.reserved_bytes < m.allocated_bytes)
            fail_msg("step %d: live %llu, allocated %llu, reserved %llu are not in order", i,
                     (unsigned long long)m.live_bytes, (unsigned long long)m.allocated_bytes,
                     (unsigned long long)m.reserved_bytes);
    }
    for (int s = 0; s < SLOTS; s++)
        if (slot[s]) give(d, slot[s]);
    expect_equal(tl_device_memory(d).live_bytes, 0);
    expect_equal(allocated(d), 0);
    tl_pool_trim(d);
    expect_equal(reserved(d), 0); /* everything merged again */
    return hash;
}

static void random_lives_are_the_same_with_and_without_memory(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        tl_device *real = device_new(&small_target, true), *shapes = device_new(&small_target, false);
        expect_equal(random_life(real, seed, 100000), random_life(shapes, seed, 100000));
    }
}

static void random_lives_on_meta_are_those_of_the_cpu(void **state) {
    (void)state;
    tl_device *real = check_cpu(), *meta = check_meta();
    tl_pool_trim(real), tl_pool_trim(meta);
    tl_memory_reset_peak(real), tl_memory_reset_peak(meta);
    expect_equal(random_life(real, 5, 40 << 20), random_life(meta, 5, 40 << 20));
}

static void blocks_never_overlap(void **state) {
    (void)state;
    enum { N = 150 };
    tl_device *d = device_new(&small_target, true);
    struct {
        struct block *block;
        size_t bytes;
        unsigned char fill;
    } live[N] = {0};
    draws = 99;
    for (int i = 0; i < 10000; i++) {
        size_t s = (size_t)draw(N);
        if (live[s].block) {
            const unsigned char *p = block_data(live[s].block);
            for (size_t k = 0; k < live[s].bytes; k++)
                if (p[k] != live[s].fill) fail_msg("step %d: byte %zu is %d, want %d", i, k, p[k], live[s].fill);
            give(d, live[s].block);
            live[s].block = NULL;
        } else {
            live[s].bytes = 1 + draw(draw(10) ? 900 : 30000);
            live[s].fill = (unsigned char)i;
            live[s].block = take(d, live[s].bytes);
            expect_true(((uintptr_t)block_data(live[s].block) & 15) == 0);
            memset(block_data(live[s].block), live[s].fill, live[s].bytes);
        }
    }
    for (int s = 0; s < N; s++)
        if (live[s].block) give(d, live[s].block);
    tl_pool_trim(d);
}

/* ---- Held bytes -------------------------------------------------------------------------------------------------- */

static void purposes_move_without_changing_the_total(void **state) {
    (void)state;
    tl_ledger *ledger = tl_ledger_begin("moves");
    tl_tensor *x = tl_ones(TL_SHAPE(100), TL_F32, NULL), *y = tl_ones(TL_SHAPE(50), TL_F32, NULL);
    tl_set_purpose(x, TL_PARAMETER);
    tl_set_purpose(y, TL_OPTIMIZER);
    tl_set_purpose(y, TL_DATA);
    tl_ledger_end(ledger);
    expect_equal(tl_ledger_peak(ledger, check_cpu(), TL_ALL), 600);
    expect_equal(tl_ledger_peak(ledger, check_cpu(), TL_PARAMETER), 400);
    expect_equal(tl_ledger_peak(ledger, check_cpu(), TL_DATA), 200);
    expect_equal(tl_ledger_peak(ledger, check_cpu(), TL_OPTIMIZER), 0);
    expect_equal(tl_ledger_peak(ledger, check_cpu(), TL_TEMPORARY), 0);
    expect_equal(tl_ledger_peak(ledger, check_meta(), TL_ALL), 0);
    tl_ledger_free(ledger);
}

static void burst(int64_t n) {
    tl_scope scope = tl_scope_begin();
    tl_empty(TL_SHAPE(n), TL_U8, NULL);
    tl_scope_end(scope);
}

static void windows_have_peaks_of_their_own(void **state) {
    (void)state;
    tl_device *d = check_cpu();
    tl_memory_reset_peak(d);
    tl_empty(TL_SHAPE(1000), TL_U8, NULL); /* held throughout */
    tl_ledger *outer = tl_ledger_begin("outer");
    burst(500);
    tl_ledger *low = tl_ledger_begin("low");
    burst(200);
    tl_ledger_end(low);
    tl_ledger *high = tl_ledger_begin("high");
    burst(700);
    tl_ledger *inside = tl_ledger_begin("inside");
    tl_ledger_end(inside);
    tl_ledger_end(high);
    burst(100);
    tl_ledger_end(outer);
    expect_equal(tl_ledger_peak(low, d, TL_ALL), 1200);
    expect_equal(tl_ledger_peak(high, d, TL_ALL), 1700);
    expect_equal(tl_ledger_peak(inside, d, TL_ALL), 1000); /* bytes held at the start are part of it */
    expect_equal(tl_ledger_peak(inside, d, TL_TEMPORARY), 1000);
    expect_equal(tl_ledger_peak(outer, d, TL_ALL), 1700);
    expect_equal(tl_ledger_peak_allocated(outer, d), 1024 + 704);
    expect_true(tl_ledger_peak_reserved(outer, d) >= tl_ledger_peak_allocated(outer, d));
    expect_equal(tl_device_memory(d).peak_bytes, 1700);
    tl_ledger_free(inside), tl_ledger_free(high), tl_ledger_free(low), tl_ledger_free(outer);
}

static void the_devices_peak_and_the_ledgers_peaks_do_not_disturb_each_other(void **state) {
    (void)state;
    tl_device *d = check_cpu();
    tl_memory_reset_peak(d);
    expect_equal(tl_device_memory(d).peak_bytes, 0);
    burst(5000);
    tl_ledger *ledger = tl_ledger_begin("peaks");
    expect_equal(tl_device_memory(d).peak_bytes, 5000); /* since the last reset, ledger or not */
    burst(3000);
    tl_memory_reset_peak(d);
    expect_equal(tl_device_memory(d).peak_bytes, 0);
    burst(1000);
    tl_ledger_end(ledger);
    expect_equal(tl_device_memory(d).peak_bytes, 1000);
    expect_equal(tl_ledger_peak(ledger, d, TL_ALL), 3000);
    tl_ledger_free(ledger);
}

static uint64_t cell_bytes(const tl_ledger *l, const tl_device *d, const char *path, tl_purpose purpose) {
    for (int i = 0; i < l->n_devices; i++)
        for (size_t k = 0; l->memory[i].device == d && k < l->memory[i].window.n_cells; k++) {
            const struct held_cell *cell = &l->memory[i].window.cells[k];
            if (!strcmp(path_text(cell->path), path) && cell->purpose == (uint32_t)purpose) return cell->bytes;
        }
    return 0;
}

static void the_peak_is_told_by_path_and_purpose(void **state) {
    (void)state;
    tl_ledger *ledger = tl_ledger_begin("paths");
    tl_scope a = tl_scope_enter("a");
    tl_tensor *kept = tl_keep(tl_set_purpose(tl_empty(TL_SHAPE(100), TL_U8, NULL), TL_PARAMETER));
    tl_empty(TL_SHAPE(10), TL_U8, NULL);
    tl_scope b = tl_scope_enter("b");
    tl_empty(TL_SHAPE(1000), TL_U8, NULL); /* the peak: 1110 */
    tl_scope_end(b);
    tl_scope c = tl_scope_enter("c");
    tl_empty(TL_SHAPE(500), TL_U8, NULL);
    tl_scope_end(c);
    tl_scope_end(a);
    tl_drop(kept);
    tl_ledger_end(ledger);
    expect_equal(tl_ledger_peak(ledger, check_cpu(), TL_ALL), 1110);
    expect_equal(cell_bytes(ledger, check_cpu(), "a", TL_PARAMETER), 100);
    expect_equal(cell_bytes(ledger, check_cpu(), "a", TL_TEMPORARY), 10);
    expect_equal(cell_bytes(ledger, check_cpu(), "a.b", TL_TEMPORARY), 1000);
    expect_equal(cell_bytes(ledger, check_cpu(), "a.c", TL_TEMPORARY), 0);
    tl_ledger_free(ledger);
}

static void many_cells_are_all_found_again(void **state) {
    (void)state;
    struct held h;
    held_init(&h);
    for (uint32_t path = 0; path < 3000; path++)
        for (int p = 0; p < TL_PURPOSE_COUNT; p++)
            held_add(&h, held_cell_of(&h, path, (tl_purpose)p), path * 8 + (uint32_t)p, 0);
    expect_equal(h.n_cells, 3000 * TL_PURPOSE_COUNT);
    for (uint32_t path = 0; path < 3000; path += 7)
        for (int p = 0; p < TL_PURPOSE_COUNT; p++)
            expect_equal(h.cells[held_cell_of(&h, path, (tl_purpose)p)].bytes, path * 8 + (uint32_t)p);
    expect_equal(h.n_cells, 3000 * TL_PURPOSE_COUNT);
    free(h.cells), free(h.slots), free(h.root.cells), free(h.changed);
}

static void workspaces_are_held_for_the_call_only(void **state) {
    (void)state;
    tl_device *h200 = tl_device_find("meta:h200");
    tl_tensor *a = tl_empty(TL_SHAPE(16, 16), TL_BF16, h200);
    uint64_t before = tl_device_memory(h200).live_bytes;
    tl_ledger *ledger = tl_ledger_begin("gemm");
    tl_tensor *y = tl_matmul(a, a);
    tl_ledger_end(ledger);
    expect_equal(tl_device_memory(h200).live_bytes - before, tl_bytes(y));
    expect_equal(tl_ledger_peak(ledger, h200, TL_WORKSPACE), h200->target->gemm_workspace_bytes);
    expect_equal(tl_ledger_peak(ledger, h200, TL_ALL), 512 + 512 + h200->target->gemm_workspace_bytes);
    expect_equal(tl_device_memory(h200).allocated_bytes, 512 + 512);
    tl_ledger_free(ledger);
    tl_scope_reset();
    tl_pool_trim(h200);
}

static void a_price_beyond_the_targets_memory_is_refused(void **state) {
    (void)state;
    tl_device *h200 = tl_device_find("meta:h200");
    tl_tensor *most = tl_empty(TL_SHAPE((int64_t)149 << 30 >> 1), TL_U8, h200);
    expect_true(most != NULL);
    expect_true(tl_empty(TL_SHAPE((int64_t)149 << 30), TL_U8, h200) == NULL);
    expect_error(TL_ERROR_MEMORY, "out of memory on meta:h200: 159987531776 bytes asked");
    tl_scope_reset();
    tl_pool_trim(h200);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(requests_are_rounded_up_and_counted_as_asked),
        TEST(segments_follow_size_classes),
        TEST(tails_too_small_for_a_large_block_stay_with_it),
        TEST(neighbours_merge_in_every_order),
        TEST(holes_are_used_before_new_segments),
        TEST(the_same_size_again_gets_the_same_block),
        TEST(every_bin_finds_a_block_that_is_large_enough),
        TEST(trim_returns_only_whole_segments),
        TEST(at_the_limit_empty_segments_are_returned_and_the_request_retried),
        TEST(a_device_that_refuses_is_asked_again_after_trimming),
        TEST(out_of_memory_names_what_is_live_by_purpose),
        TEST(random_lives_are_the_same_with_and_without_memory),
        TEST(random_lives_on_meta_are_those_of_the_cpu),
        TEST(blocks_never_overlap),
        TEST(purposes_move_without_changing_the_total),
        TEST(windows_have_peaks_of_their_own),
        TEST(the_devices_peak_and_the_ledgers_peaks_do_not_disturb_each_other),
        TEST(the_peak_is_told_by_path_and_purpose),
        TEST(many_cells_are_all_found_again),
        TEST(workspaces_are_held_for_the_call_only),
        TEST(a_price_beyond_the_targets_memory_is_refused),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}

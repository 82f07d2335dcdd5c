/* Tensors: how each view maps shape, strides and offset, which views are refused and with which message, who owns
 * memory, what counts as a change, and how values get in and out. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* (2,3,4) with the values 0 .. 23. */
static tl_tensor *cube(void) { return check_counting(TL_SHAPE(2, 3, 4)); }

/* ---- Creation ---------------------------------------------------------------------------------------- */

static void creation_fills_and_is_dense(void **state) {
    (void)state;
    tl_tensor *x = tl_full(TL_SHAPE(2, 3), 2.5, TL_F32, NULL);
    expect_shape(x, 2, 3);
    expect_strides(x, 3, 1);
    expect_equal(tl_offset(x), 0);
    expect_equal(tl_numel(x), 6);
    expect_equal(tl_bytes(x), 24);
    expect_true(tl_is_contiguous(x));
    expect_true(tl_device_of(x) == check_cpu());
    expect_equal(tl_dtype_of(x), TL_F32);
    expect_values(x, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5);
    expect_values(tl_zeros(TL_SHAPE(2), TL_I32, NULL), 0, 0);
    expect_values(tl_ones(TL_SHAPE(2), TL_BF16, NULL), 1, 1);
    expect_values(tl_arange(5, -2, 4, TL_I64, NULL), 5, 3, 1, -1);
    tl_tensor *like = tl_ones_like(tl_transpose(x, 0, 1));
    expect_shape(like, 3, 2);
    expect_strides(like, 2, 1);
    expect_values(tl_zeros_like(like), 0, 0, 0, 0, 0, 0);
    expect_shape(tl_empty_like(like), 3, 2);
}

static void creation_works_for_every_dtype_and_counts_bits(void **state) {
    (void)state;
    for (int d = 0; d < TL_DTYPE_COUNT; d++) {
        tl_tensor *x = tl_zeros(TL_SHAPE(3, 6), (tl_dtype)d, NULL);
        expect_equal(tl_bytes(x), 18 * tl_dtype_bits((tl_dtype)d) / 8);
        tl_tensor *on_meta = tl_zeros(TL_SHAPE(3, 6), (tl_dtype)d, check_meta());
        expect_equal(tl_bytes(on_meta), tl_bytes(x));
        expect_true(tl_data(on_meta) == NULL);
        expect_true(tl_data(x) != NULL);
    }
}

static void a_scalar_has_rank_zero_and_one_element(void **state) {
    (void)state;
    tl_tensor *x = tl_full(TL_SCALAR, 7, TL_F64, NULL);
    expect_scalar(x);
    expect_equal(tl_numel(x), 1);
    expect_near(tl_item(x), 7, 0);
    expect_true(tl_is_contiguous(x));
    expect_refused(tl_select(x, 0, 0), "has no dimensions");
    expect_shape(tl_unsqueeze(x, 0), 1);
    expect_shape(tl_flatten(x, 0, -1), 1);
    expect_shape(tl_expand(x, TL_SHAPE(2, 2)), 2, 2);
}

static void zero_size_tensors_hold_nothing_and_work(void **state) {
    (void)state;
    tl_tensor *x = tl_ones(TL_SHAPE(2, 0, 3), TL_F32, NULL);
    expect_equal(tl_numel(x), 0);
    expect_equal(tl_bytes(x), 0);
    expect_equal(tl_device_memory(check_cpu()).live_bytes, 0);
    expect_true(tl_is_contiguous(x));
    expect_shape(tl_add(x, x), 2, 0, 3);
    expect_shape(tl_transpose(x, 0, 2), 3, 0, 2);
    expect_shape(tl_reshape(x, TL_SHAPE(0)), 0);
    expect_shape(tl_reshape(x, TL_SHAPE(7, 0)), 7, 0);
    expect_shape(tl_slice(x, 1, 0, TL_END, 1), 2, 0, 3);
    expect_shape(tl_expand(tl_ones(TL_SHAPE(1, 3), TL_F32, NULL), TL_SHAPE(0, 3)), 0, 3);
    expect_values(tl_sum(x, (int[]){1}, 1, false), 0, 0, 0, 0, 0, 0);
    expect_refused(tl_select(x, 1, 0), "out of bounds");
    expect_refused(tl_reshape(x, TL_SHAPE(0, -1)), "cannot reshape tensor of 0 elements");
    expect_true(tl_to_data(x, NULL, 0));
}

static void rank_reaches_32_and_no_further(void **state) {
    (void)state;
    int64_t ones[TL_MAX_RANK + 1];
    for (int i = 0; i <= TL_MAX_RANK; i++) ones[i] = 1;
    ones[5] = 3;
    tl_tensor *x = tl_full(32, ones, 2, TL_F32, NULL);
    expect_equal(tl_rank(x), 32);
    expect_equal(tl_numel(x), 3);
    tl_tensor *doubled = tl_add(x, x);
    expect_equal(tl_rank(doubled), 32);
    expect_values(doubled, 4, 4, 4);
    expect_shape(tl_flatten(x, 0, -1), 3);
    expect_equal(tl_size(tl_transpose(x, 5, 31), 31), 3);
    expect_refused(tl_unsqueeze(x, 0), "32");
    expect_refused(tl_full(33, ones, 0, TL_F32, NULL), "rank 33");
    expect_refused(tl_empty(-1, ones, TL_F32, NULL), "rank -1");
    expect_refused(tl_view(x, 33, ones), "rank 33");
    expect_refused(tl_as_strided(x, 33, ones, ones, 0), "rank 33");
    expect_refused(tl_expand(x, 33, ones), "number of sizes");
}

static void sizes_that_overflow_are_refused(void **state) {
    (void)state;
    int64_t big = (int64_t)1 << 40;
    expect_refused(tl_empty(TL_SHAPE(big, big), TL_F32, NULL), "too large");
    expect_refused(tl_zeros(TL_SHAPE(INT64_MAX), TL_F32, NULL), "too large");
    expect_refused(tl_zeros(TL_SHAPE(INT64_MAX), TL_F32, check_meta()), "too large");
    expect_refused(tl_zeros(TL_SHAPE(-1), TL_F32, NULL), "negative");
    expect_refused(tl_zeros(TL_SHAPE(0, big, big), TL_F32, NULL), "too large");
    expect_refused(tl_arange(0, 1, -3, TL_F32, NULL), "negative");
    tl_tensor *one = tl_ones(TL_SHAPE(1, 1), TL_F32, NULL);
    expect_refused(tl_expand(one, TL_SHAPE(big, big)), "more elements than can be counted");
    expect_refused(tl_add(tl_expand(one, TL_SHAPE(big, 1)), tl_expand(one, TL_SHAPE(1, big))),
                   "more elements than can be counted");
    expect_refused(tl_empty(TL_SHAPE(2), TL_DTYPE_COUNT, NULL), "no dtype");
}

static void a_request_larger_than_the_machine_is_out_of_memory(void **state) {
    (void)state;
    for (int bits = 44; bits <= 60; bits++) {
        tl_tensor *x = tl_empty(TL_SHAPE((int64_t)1 << bits), TL_F32, NULL);
        if (x && bits < 48) continue; /* some systems promise more than they have */
        expect_true(x == NULL);
        expect_error(TL_ERROR_MEMORY, "out of memory on cpu");
    }
    tl_scope_reset();
    tl_pool_trim(check_cpu());
}

/* ---- select and slice -------------------------------------------------------------------------------- */

static void select_drops_an_axis_and_shares_storage(void **state) {
    (void)state;
    tl_tensor *x = cube(), *y = tl_select(x, 1, 2);
    expect_shape(y, 2, 4);
    expect_strides(y, 12, 1);
    expect_equal(tl_offset(y), 8);
    expect_values(y, 8, 9, 10, 11, 20, 21, 22, 23);
    expect_true(tl_shares_storage(x, y));
    expect_values(tl_select(x, -3, -1), 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23);
    expect_refused(tl_select(x, 1, 3), "index 3 is out of bounds for dimension 1 with size 3: f32[2,3,4]@cpu");
    expect_refused(tl_select(x, 1, -4), "index -4 is out of bounds");
    expect_refused(tl_select(x, 3, 0), "but got 3)");
    expect_refused(tl_select(x, -4, 0), "but got -4)");
}

/* Python's own slice.indices, written out for a length of 5. */
static void slice_follows_python(void **state) {
    (void)state;
    static const struct {
        int64_t start, stop, step;
        int n;
        double want[5];
    } cases[] = {
        {0, TL_END, 1, 5, {0, 1, 2, 3, 4}},
        {1, 4, 1, 3, {1, 2, 3}},
        {1, 4, 2, 2, {1, 3}},
        {-3, -1, 1, 2, {2, 3}},
        {-99, 99, 1, 5, {0, 1, 2, 3, 4}},
        {3, 2, 1, 0, {0}},
        {4, TL_END, -1, 5, {4, 3, 2, 1, 0}},
        {4, 0, -1, 4, {4, 3, 2, 1}},
        {-1, TL_END, -2, 3, {4, 2, 0}},
        {99, -99, -1, 5, {4, 3, 2, 1, 0}},
        {1, 3, -1, 0, {0}},
        {0, TL_END, 7, 1, {0}},
        {2, TL_END, -1, 3, {2, 1, 0}},
        {-1, -4, -1, 3, {4, 3, 2}},
        {5, TL_END, 1, 0, {0}},
        {INT64_MIN + 1, INT64_MAX - 1, INT64_MAX, 1, {0}},
        {0, INT64_MIN, -INT64_MAX, 1, {0}},
    };
    tl_tensor *x = check_counting(TL_SHAPE(5));
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        tl_tensor *y = tl_slice(x, 0, cases[c].start, cases[c].stop, cases[c].step);
        expect_shape(y, cases[c].n);
        expect_true(tl_shares_storage(x, y));
        check_values(y, cases[c].want, (size_t)cases[c].n, 0, __FILE__, __LINE__);
    }
    expect_refused(tl_slice(x, 0, 0, 5, 0), "step 0");
    expect_refused(tl_slice(x, 0, 0, 5, INT64_MIN), "step");
    expect_refused(tl_slice(x, 1, 0, 5, 1), "but got 1)");
}

static void negative_steps_give_negative_strides(void **state) {
    (void)state;
    tl_tensor *x = cube(), *y = tl_slice(x, 2, -1, TL_END, -2);
    expect_shape(y, 2, 3, 2);
    expect_strides(y, 12, 4, -2);
    expect_equal(tl_offset(y), 3);
    expect_values(tl_select(y, 0, 0), 3, 1, 7, 5, 11, 9);
    expect_true(!tl_is_contiguous(y));
    tl_tensor *back = tl_slice(tl_slice(x, 0, -1, TL_END, -1), 0, -1, TL_END, -1);
    expect_strides(back, 12, 4, 1);
    expect_equal(tl_offset(back), 0);
    expect_same_bits(back, x);
    expect_values(tl_sum_all(y), 1 + 3 + 5 + 7 + 9 + 11 + 13 + 15 + 17 + 19 + 21 + 23);
}

static void views_of_views_compose(void **state) {
    (void)state;
    tl_tensor *x = cube();
    tl_tensor *y = tl_slice(tl_transpose(tl_select(x, 0, 1), 0, 1), 0, 3, TL_END, -3); /* columns 3 and 0 of block 1 */
    expect_shape(y, 2, 3);
    expect_strides(y, -3, 4);
    expect_equal(tl_offset(y), 15);
    expect_values(y, 15, 19, 23, 12, 16, 20);
    tl_tensor *z = tl_diagonal(y, 1, 0, 1);
    expect_shape(z, 2);
    expect_equal(tl_offset(z), 19);
    expect_values(z, 19, 20);
    tl_fill_(z, -1);
    expect_values(tl_select(x, 0, 1), 12, 13, 14, 15, 16, 17, 18, -1, -1, 21, 22, 23);
}

/* ---- view, reshape ----------------------------------------------------------------------------------- */

static void view_refuses_what_strides_cannot_express(void **state) {
    (void)state;
    tl_tensor *x = cube();
    expect_shape(tl_view(x, TL_SHAPE(6, 4)), 6, 4);
    expect_shape(tl_view(x, TL_SHAPE(-1, 8)), 3, 8);
    expect_shape(tl_view(x, TL_SHAPE(1, 24, 1)), 1, 24, 1);
    tl_tensor *t = tl_transpose(x, 0, 1);
    expect_refused(
        tl_view(t, TL_SHAPE(6, 4)),
        "view: view size is not compatible with input tensor's size and stride (at least one dimension spans "
        "across two contiguous subspaces). Use .reshape(...) instead: f32[3,2,4]@cpu");
    expect_shape(tl_view(t, TL_SHAPE(3, 2, 2, 2)), 3, 2, 2, 2);
    expect_strides(tl_view(t, TL_SHAPE(3, 2, 2, 2)), 4, 12, 2, 1);
    expect_refused(tl_view(x, TL_SHAPE(5, 5)), "shape '[5, 5]' is invalid for input of size 24");
    expect_refused(tl_view(x, TL_SHAPE(-1, 5)), "shape '[-1, 5]' is invalid for input of size 24");
    expect_refused(tl_view(x, TL_SHAPE(-1, -1)), "only one dimension can be inferred");
    expect_refused(tl_view(x, TL_SHAPE(-2, 12)), "invalid for input of size 24");
    expect_refused(tl_view(x, TL_SHAPE((int64_t)1 << 62, 4)), "invalid for input of size 24");
}

static void view_keeps_strides_of_sliced_axes(void **state) {
    (void)state;
    tl_tensor *x = tl_slice(cube(), 2, 0, 2, 1); /* (2,3,2), strides 12 4 1: rows are joinable, columns are not */
    tl_tensor *y = tl_view(x, TL_SHAPE(6, 2));
    expect_strides(y, 4, 1);
    expect_values(y, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21);
    expect_refused(tl_view(x, TL_SHAPE(12)), "view size is not compatible");
    tl_tensor *expanded = tl_expand(tl_ones(TL_SHAPE(1, 4), TL_F32, NULL), TL_SHAPE(3, 4));
    expect_strides(tl_view(expanded, TL_SHAPE(3, 2, 2)), 0, 2, 1);
    expect_refused(tl_view(expanded, TL_SHAPE(12)), "view size is not compatible");
}

static void reshape_views_when_it_can_and_copies_when_it_must(void **state) {
    (void)state;
    tl_tensor *x = cube(), *view = tl_reshape(x, TL_SHAPE(4, -1)), *t = tl_transpose(x, 0, 2);
    expect_true(tl_shares_storage(view, x));
    tl_tensor *copy = tl_reshape(t, TL_SHAPE(24));
    expect_true(!tl_shares_storage(copy, x));
    expect_true(tl_is_contiguous(copy));
    expect_values(tl_slice(copy, 0, 0, 6, 1), 0, 12, 4, 16, 8, 20);
    expect_true(tl_contiguous(x) == x);
    expect_true(!tl_shares_storage(tl_contiguous(t), x));
    tl_tensor *tail = tl_slice(check_counting(TL_SHAPE(6)), 0, 2, TL_END, 1); /* dense, but not from the start */
    expect_true(tl_contiguous(tail) == tail);
}

static void flatten_and_unflatten_are_inverse(void **state) {
    (void)state;
    tl_tensor *x = cube(), *y = tl_flatten(x, 1, 2);
    expect_shape(y, 2, 12);
    expect_true(tl_shares_storage(x, y));
    expect_same_bits(tl_unflatten(y, 1, TL_SHAPE(3, 4)), x);
    expect_shape(tl_unflatten(y, -1, TL_SHAPE(-1, 6)), 2, 2, 6);
    expect_true(!tl_shares_storage(tl_flatten(tl_transpose(x, 0, 1), 0, 1), x));
    expect_refused(tl_flatten(x, 2, 1), "start_dim 2 cannot come after end_dim 1");
    expect_refused(tl_flatten(x, 0, 3), "but got 3)");
    expect_refused(tl_unflatten(x, 1, TL_SHAPE(2, 2)), "do not multiply to axis 1 of size 3");
    expect_refused(tl_unflatten(x, 1, TL_SHAPE(-1, -1)), "only one dimension can be inferred");
    expect_refused(tl_unflatten(x, 1, 0, NULL), "sizes");
}

static void squeeze_and_unsqueeze_move_axes_of_one(void **state) {
    (void)state;
    tl_tensor *x = tl_ones(TL_SHAPE(3, 1, 2), TL_F32, NULL);
    expect_shape(tl_squeeze(x, 1), 3, 2);
    expect_shape(tl_squeeze(x, -2), 3, 2);
    expect_shape(tl_squeeze(x, 0), 3, 1, 2);
    expect_shape(tl_unsqueeze(x, 0), 1, 3, 1, 2);
    expect_shape(tl_unsqueeze(x, -1), 3, 1, 2, 1);
    expect_true(tl_shares_storage(tl_unsqueeze(x, 3), x));
    expect_refused(tl_unsqueeze(x, 4), "but got 4)");
    expect_refused(tl_squeeze(x, 3), "but got 3)");
    expect_shape(tl_squeeze(tl_expand(tl_transpose(x, 0, 2), TL_SHAPE(2, 1, 3)), 1), 2, 3);
}

/* ---- permute, expand, diagonal, as_strided ----------------------------------------------------------- */

static void permute_moves_strides(void **state) {
    (void)state;
    tl_tensor *x = cube(), *y = tl_permute(x, (int[]){2, 0, -2});
    expect_shape(y, 4, 2, 3);
    expect_strides(y, 1, 12, 4);
    expect_near(tl_at(y, (int64_t[]){3, 1, 2}), 23, 0);
    expect_near(tl_at(y, (int64_t[]){1, 0, 2}), 9, 0);
    expect_true(tl_shares_storage(x, y));
    expect_refused(tl_permute(x, (int[]){0, 0, 1}), "named twice");
    expect_refused(tl_permute(x, (int[]){0, 1, 3}), "out of range");
    expect_refused(tl_transpose(x, 0, 3), "out of range");
    expect_same_bits(tl_transpose(tl_transpose(x, 0, -1), 0, -1), x);
}

static void expand_repeats_with_stride_zero(void **state) {
    (void)state;
    tl_tensor *x = check_counting(TL_SHAPE(3, 1)), *y = tl_expand(x, TL_SHAPE(2, -1, 4));
    expect_shape(y, 2, 3, 4);
    expect_strides(y, 0, 1, 0);
    expect_true(tl_shares_storage(x, y));
    expect_equal(tl_storage_bytes(y), 12); /* not those of the view */
    expect_near(tl_at(y, (int64_t[]){1, 2, 3}), 2, 0);
    expect_shape(tl_broadcast_to(x, TL_SHAPE(3, 5)), 3, 5);
    expect_refused(tl_expand(x, TL_SHAPE(4, 4)),
                   "The expanded size of the tensor (4) must match the existing size (3)");
    expect_refused(
        tl_expand(x, TL_SHAPE(4)),
        "the number of sizes provided (1) must be greater or equal to the number of dimensions in the tensor (2)");
    expect_refused(tl_expand(x, TL_SHAPE(-1, 3, 1)), "must be given");
    expect_refused(tl_neg_(y), "more than one element of the written-to tensor refers to a single memory location");
    expect_values(tl_sum_all(y), 2 * 4 * (0 + 1 + 2));
    expect_values(tl_fill_(tl_clone(x), 1), 1, 1, 1);
    tl_fill_(y, 5); /* one value for all is the same value for each */
    expect_values(x, 5, 5, 5);
}

static void diagonal_walks_both_axes(void **state) {
    (void)state;
    tl_tensor *x = cube(), *y = tl_diagonal(x, 0, 1, 2);
    expect_shape(y, 2, 3);
    expect_strides(y, 12, 5);
    expect_values(y, 0, 5, 10, 12, 17, 22);
    expect_values(tl_diagonal(x, 2, 1, 2), 2, 7, 14, 19);
    expect_values(tl_diagonal(x, -1, 1, 2), 4, 9, 16, 21);
    expect_values(tl_diagonal(x, 0, 0, -1), 0, 13, 4, 17, 8, 21);
    expect_shape(tl_diagonal(x, 4, 1, 2), 2, 0);
    expect_shape(tl_diagonal(x, -3, 1, 2), 2, 0);
    expect_shape(tl_diagonal(x, INT64_MAX, 1, 2), 2, 0);
    expect_shape(tl_diagonal(x, INT64_MIN, 1, 2), 2, 0);
    expect_refused(tl_diagonal(x, 0, 1, 1), "diagonal dimensions cannot be identical");
    expect_refused(tl_diagonal(x, 0, 1, 3), "out of range");
}

static void as_strided_stays_inside_the_storage(void **state) {
    (void)state;
    tl_tensor *x = check_counting(TL_SHAPE(10));
    tl_tensor *windows = tl_as_strided(x, TL_SHAPE(4, 3), (int64_t[]){2, 1}, 1); /* overlapping windows */
    expect_values(windows, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8, 9);
    expect_values(tl_as_strided(x, TL_SHAPE(5), (int64_t[]){-2}, 9), 9, 7, 5, 3, 1);
    expect_refused(tl_as_strided(x, TL_SHAPE(4, 3), (int64_t[]){2, 1}, 2),
                   "reaches outside the storage of 10 elements");
    expect_refused(tl_as_strided(x, TL_SHAPE(5), (int64_t[]){-2}, 7), "reaches outside");
    expect_refused(tl_as_strided(x, TL_SHAPE(1), (int64_t[]){1}, 10), "reaches outside");
    expect_refused(tl_as_strided(x, TL_SHAPE(1), (int64_t[]){1}, -1), "reaches outside");
    expect_refused(tl_as_strided(x, TL_SHAPE(3), (int64_t[]){INT64_MAX / 2 + 1}, 0), "reaches outside");
    expect_refused(tl_as_strided(x, TL_SHAPE(2), (int64_t[]){1}, INT64_MAX), "reaches outside");
    expect_refused(tl_as_strided(x, TL_SHAPE(-1), (int64_t[]){1}, 0), "negative or overflowing");
    expect_shape(tl_as_strided(x, TL_SHAPE(0, 99), (int64_t[]){1, 1}, 0), 0, 99);
    /* From a view, the offset still counts from the storage's start. */
    expect_values(tl_as_strided(tl_slice(x, 0, 5, 7, 1), TL_SHAPE(2), (int64_t[]){1}, 0), 0, 1);
    expect_refused(tl_fill_(windows, 0), "single memory location");
}

static void f4_views_keep_pairs_whole(void **state) {
    (void)state;
    tl_tensor *x = check_from((const double[]){0, 0.5, 1, 1.5, 2, 3, 4, 6}, TL_F4E2M1, TL_SHAPE(2, 4));
    expect_equal(tl_bytes(x), 4);
    expect_values(x, 0, 0.5, 1, 1.5, 2, 3, 4, 6);
    expect_values(tl_select(x, 0, 1), 2, 3, 4, 6);
    expect_values(tl_slice(x, 1, 2, 4, 1), 1, 1.5, 4, 6);
    expect_values(tl_view(x, TL_SHAPE(4, 2)), 0, 0.5, 1, 1.5, 2, 3, 4, 6);
    expect_values(tl_slice(x, 0, -1, TL_END, -1), 2, 3, 4, 6, 0, 0.5, 1, 1.5);
    expect_near(tl_at(x, (int64_t[]){1, 3}), 6, 0);
    tl_tensor *written = tl_clone(x);
    tl_fill_(tl_slice(written, 1, 2, 4, 1), -1);
    expect_values(written, 0, 0.5, -1, -1, 2, 3, -1, -1);
    tl_copy_(written, tl_cast(check_tensor(TL_SHAPE(4), 1, 2, 3, 4), TL_F4E2M1));
    expect_values(written, 1, 2, 3, 4, 1, 2, 3, 4);
    tl_copy_(tl_slice(written, 1, 0, 2, 1), tl_full(TL_SHAPE(2, 1), 6, TL_F32, NULL));
    expect_values(written, 6, 6, 3, 4, 6, 6, 3, 4);
    tl_tensor *wide = tl_zeros(TL_SHAPE(4, 2), TL_F32, NULL);
    tl_copy_(tl_transpose(wide, 0, 1), x);
    expect_values(wide, 0, 2, 0.5, 3, 1, 4, 1.5, 6);
    expect_refused(tl_slice(x, 1, 1, 3, 1), "two f4e2m1 share a byte");
    expect_refused(tl_slice(x, 1, 0, 3, 1), "two f4e2m1 share a byte");
    expect_refused(tl_select(x, 1, 0), "two f4e2m1 share a byte");
    expect_refused(tl_transpose(x, 0, 1), "two f4e2m1 share a byte");
    expect_refused(tl_view(x, TL_SHAPE(8, 1)), "two f4e2m1 share a byte");
    expect_refused(tl_zeros(TL_SHAPE(2, 3), TL_F4E2M1, NULL), "even length");
    expect_refused(tl_zeros(TL_SCALAR, TL_F4E2M1, NULL), "even length");
    expect_refused(tl_cast(tl_ones(TL_SHAPE(3), TL_F32, NULL), TL_F4E2M1), "even length");
    expect_refused(tl_add(x, x), "storage only");
    unsigned char bytes[4] = {0};
    expect_refused(tl_from_external(bytes, 4, TL_SHAPE(3, 2), (int64_t[]){1, 1}, TL_F4E2M1, NULL, NULL, NULL),
                   "two f4e2m1 share a byte");
}

static void every_view_shares_storage_and_moves_no_bytes(void **state) {
    (void)state;
    tl_ledger *ledger = tl_ledger_begin("views");
    tl_tensor *x = cube();
    uint64_t live = tl_device_memory(check_cpu()).live_bytes;
    tl_tensor *views[] = {tl_select(x, 0, 1),
                          tl_slice(x, 1, 0, 2, 1),
                          tl_view(x, TL_SHAPE(24)),
                          tl_reshape(x, TL_SHAPE(6, 4)),
                          tl_transpose(x, 0, 1),
                          tl_permute(x, (int[]){1, 2, 0}),
                          tl_expand(x, TL_SHAPE(5, 2, 3, 4)),
                          tl_broadcast_to(x, TL_SHAPE(1, 2, 3, 4)),
                          tl_squeeze(x, 0),
                          tl_unsqueeze(x, 0),
                          tl_flatten(x, 0, 1),
                          tl_unflatten(x, 2, TL_SHAPE(2, 2)),
                          tl_diagonal(x, 0, 0, 1),
                          tl_as_strided(x, TL_SHAPE(2), (int64_t[]){3}, 1),
                          tl_detach(x)};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        expect_true(views[i] != NULL);
        expect_true(tl_shares_storage(views[i], x));
    }
    expect_equal(tl_device_memory(check_cpu()).live_bytes, live);
    tl_ledger_end(ledger);
    expect_count(tl_ledger_total(ledger, TL_ALL, "permute").bytes_read, 0);
    expect_equal(tl_ledger_total(ledger, TL_ALL, "permute").calls, 2);
    expect_count(tl_ledger_total(ledger, TL_ALL, NULL).bytes_read, 0); /* arange reads nothing, views neither */
    expect_count(tl_ledger_total(ledger, TL_ALL, NULL).bytes_written, 24 * 4);
    tl_ledger_free(ledger);
}

static void storage_lives_as_long_as_its_last_view(void **state) {
    (void)state;
    tl_scope scope = tl_scope_begin();
    tl_tensor *view = tl_select(cube(), 0, 1);
    tl_scope_return(scope, view);
    expect_equal(tl_device_memory(check_cpu()).live_bytes, 96);
    expect_equal(tl_device_memory(check_cpu()).live_tensors, 1);
    expect_near(tl_at(view, (int64_t[]){0, 0}), 12, 0);
    tl_scope_reset();
    expect_nothing_live();
}

/* ---- External memory ---------------------------------------------------------------------------------- */

static void count_call(void *context) { ++*(int *)context; }

static void external_memory_is_shared_and_freed_once(void **state) {
    (void)state;
    float data[6] = {0, 1, 2, 3, 4, 5};
    int deleted = 0;
    tl_scope scope = tl_scope_begin();
    tl_tensor *x = tl_from_external(data, sizeof data, TL_SHAPE(2, 3), NULL, TL_F32, NULL, count_call, &deleted);
    expect_true(tl_data(x) == data);
    expect_equal(tl_device_memory(check_cpu()).live_bytes, 0); /* not the pool's */
    tl_fill_(tl_select(x, 0, 1), 9);
    expect_near(data[4], 9, 0);
    tl_tensor *view = tl_keep(tl_select(x, 1, 2));
    tl_scope_end(scope);
    expect_equal(deleted, 0);
    expect_values(view, 2, 9);
    tl_drop(view);
    expect_equal(deleted, 1);
}

static void external_memory_may_have_any_strides_inside_its_bytes(void **state) {
    (void)state;
    double data[6] = {0, 1, 2, 3, 4, 5};
    int deleted = 0;
    expect_values(tl_from_external(data, sizeof data, TL_SHAPE(3, 2), (int64_t[]){1, 3}, TL_F64, NULL, NULL, NULL), 0,
                  3, 1, 4, 2, 5);
    /* data is the lowest address, so a negative stride starts at the other end */
    expect_values(tl_from_external(data, sizeof data, TL_SHAPE(6), (int64_t[]){-1}, TL_F64, NULL, NULL, NULL), 5, 4, 3,
                  2, 1, 0);
    expect_values(tl_from_external(data, 8, TL_SHAPE(4), (int64_t[]){0}, TL_F64, NULL, NULL, NULL), 0, 0, 0, 0);
    expect_refused(tl_from_external(data, 47, TL_SHAPE(6), NULL, TL_F64, NULL, count_call, &deleted),
                   "beyond the 47 bytes");
    expect_equal(deleted, 1);
    expect_refused(tl_from_external(data, 48, TL_SHAPE(3), (int64_t[]){3}, TL_F64, NULL, count_call, &deleted),
                   "beyond");
    expect_equal(deleted, 2);
    expect_refused(tl_from_external(data, 48, TL_SHAPE(2), (int64_t[]){INT64_MIN}, TL_F64, NULL, count_call, &deleted),
                   "beyond");
    expect_equal(deleted, 3);
    expect_refused(tl_from_external(data, 48, TL_SHAPE(-1), NULL, TL_F64, NULL, count_call, &deleted), "negative");
    expect_equal(deleted, 4);
    expect_refused(tl_from_external(data, 48, 33, NULL, NULL, TL_F64, NULL, count_call, &deleted), "rank 33");
    expect_equal(deleted, 5);
    expect_refused(tl_from_external(data, 48, TL_SHAPE(6), NULL, TL_F64, tl_device_find("meta"), count_call, &deleted),
                   "has no data to share");
    expect_equal(deleted, 6);
    expect_values(tl_from_external(data, 48, TL_SHAPE(6), NULL, TL_F64, check_cpu(), NULL, NULL), 0, 1, 2, 3, 4, 5);
}

static void external_memory_is_released_once_when_any_allocation_fails(void **state) {
    (void)state;
    float data[2] = {1, 2};
    check_cpu();
    for (uint64_t n = 1;; n++) {
        int deleted = 0;
        tl_scope scope = tl_scope_begin();
        tl_fail_allocation(n, false);
        tl_tensor *x = tl_from_external(data, sizeof data, TL_SHAPE(2), NULL, TL_F32, NULL, count_call, &deleted);
        tl_fail_allocation(0, false);
        expect_equal(deleted, x ? 0 : 1);
        if (!x) expect_error(TL_ERROR_MEMORY, "out of");
        tl_scope_end(scope);
        expect_equal(deleted, 1);
        if (x) break;
    }
}

static void external_memory_goes_when_the_graph_that_saved_it_goes(void **state) {
    (void)state;
    float data[2] = {3, 4};
    int deleted = 0;
    tl_scope outer = tl_scope_begin();
    tl_tensor *w = tl_requires_grad(tl_ones(TL_SHAPE(2), TL_F32, NULL), true);
    tl_scope inner = tl_scope_begin();
    tl_tensor *x = tl_from_external(data, sizeof data, TL_SHAPE(2), NULL, TL_F32, NULL, count_call, &deleted);
    tl_tensor *loss = tl_scope_return(inner, tl_sum_all(tl_mul(x, w)));
    expect_equal(deleted, 0);
    expect_true(tl_backward(loss, NULL, 0));
    expect_equal(deleted, 1);
    expect_values(tl_grad_of(w), 3, 4);
    tl_scope_end(outer);
    expect_equal(deleted, 1);
}

/* ---- Changes, copies, values --------------------------------------------------------------------------- */

static void versions_count_changes_of_the_storage(void **state) {
    (void)state;
    tl_tensor *x = cube(), *view = tl_select(x, 0, 0), *same = tl_detach(x);
    uint64_t before = tl_version_of(x);
    tl_add(x, x);
    tl_clone(x);
    expect_equal(tl_version_of(x), before);
    tl_fill_(view, 1);
    expect_equal(tl_version_of(x), before + 1);
    expect_equal(tl_version_of(view), before + 1);
    expect_equal(tl_version_of(same), before + 1);
    tl_mul_(same, x);
    tl_copy_(x, tl_clone(view));
    tl_affine_(x, 2, 0);
    tl_relu_(x);
    tl_exp_(x);
    expect_equal(tl_version_of(x), before + 6);
    expect_equal(tl_version_of(tl_clone(x)), 0);
    expect_refused(tl_add_(view, tl_clone(x)), "doesn't match the broadcast shape");
    expect_equal(tl_version_of(x), before + 6);
}

static void copy_broadcasts_and_casts_into_place(void **state) {
    (void)state;
    tl_tensor *x = tl_zeros(TL_SHAPE(2, 3), TL_I32, NULL);
    expect_true(tl_copy_(x, check_tensor(TL_SHAPE(3), 1.9, -2.9, 3)) == x);
    expect_values(x, 1, -2, 3, 1, -2, 3);
    tl_copy_(tl_transpose(x, 0, 1), check_counting(TL_SHAPE(3, 2)));
    expect_values(x, 0, 2, 4, 1, 3, 5);
    expect_refused(tl_copy_(x, tl_zeros(TL_SHAPE(2), TL_I32, NULL)), "must match the size of tensor b");
    expect_refused(tl_copy_(tl_slice(x, 1, 0, 2, 1), tl_slice(x, 1, 1, 3, 1)), "refer to a single memory location");
    tl_tensor *y = check_counting(TL_SHAPE(2, 4));
    tl_copy_(tl_slice(y, 1, 0, TL_END, 2), tl_slice(y, 1, 1, TL_END, 2)); /* even and odd columns never meet */
    expect_values(y, 1, 1, 3, 3, 5, 5, 7, 7);
}

static void clone_copies_what_a_view_shows(void **state) {
    (void)state;
    tl_tensor *x = cube(), *y = tl_clone(tl_slice(tl_select(x, 0, 0), 1, -1, TL_END, -2));
    expect_shape(y, 3, 2);
    expect_strides(y, 2, 1);
    expect_equal(tl_offset(y), 0);
    expect_true(!tl_shares_storage(x, y));
    expect_values(y, 3, 1, 7, 5, 11, 9);
}

static void cast_returns_itself_or_rounds(void **state) {
    (void)state;
    tl_tensor *x = check_from((const double[]){1.00390625, -3.5, 300, NAN}, TL_F32, TL_SHAPE(4));
    expect_true(tl_cast(x, TL_F32) == x);
    expect_values(tl_cast(x, TL_BF16), 1, -3.5, 300, NAN);
    expect_values(tl_cast(tl_slice(x, 0, 0, 3, 1), TL_I16), 1, -3, 300);
    expect_values(tl_cast(x, TL_BOOL), 1, 1, 1, 1);
    expect_values(tl_cast(tl_cast(x, TL_F64), TL_F16), 1.00390625, -3.5, 300, NAN);
    expect_refused(tl_cast(x, TL_DTYPE_COUNT), "no dtype");
}

static void to_moves_between_devices_or_says_why_not(void **state) {
    (void)state;
    tl_tensor *x = cube();
    expect_true(tl_to(x, check_cpu()) == x);
    tl_ledger *ledger = tl_ledger_begin("to");
    tl_tensor *m = tl_to(tl_transpose(x, 0, 1), check_meta());
    tl_ledger_end(ledger);
    expect_count(tl_ledger_transfer_bytes(ledger), 96);
    tl_ledger_free(ledger);
    expect_shape(m, 3, 2, 4);
    expect_strides(m, 8, 4, 1);
    expect_true(tl_data(m) == NULL);
    expect_refused(tl_to(m, check_cpu()), "meta has no data");
    expect_refused(tl_to(x, NULL), "NULL");
    expect_refused(tl_add(x, m), "on the same device");
}

static void values_are_read_one_by_one_or_all_at_once(void **state) {
    (void)state;
    tl_tensor *x = tl_transpose(cube(), 0, 2);
    expect_near(tl_at(x, (int64_t[]){3, 2, 1}), 23, 0);
    expect_near(tl_at(x, (int64_t[]){-1, 0, 0}), 3, 0);
    expect_near(tl_item(tl_full(TL_SHAPE(1, 1), -0.5, TL_BF16, NULL)), -0.5, 0);
    int64_t large = ((int64_t)1 << 53) + 1;
    expect_equal(tl_item_int(tl_from_data(&large, TL_SCALAR, TL_I64, NULL)), large);
    expect_near(tl_item(tl_ones(TL_SCALAR, TL_BOOL, NULL)), 1, 0);
    tl_at(x, (int64_t[]){4, 0, 0});
    expect_error(TL_ERROR_USE, "out of bounds");
    tl_item(x);
    expect_error(TL_ERROR_USE, "a Tensor with 24 elements cannot be converted to Scalar");
    float row[4];
    expect_true(tl_to_data(tl_select(tl_select(x, 1, 1), 1, 0), row, sizeof row));
    expect_near(row[3], 7, 0);
    expect_refused(tl_to_data(x, row, sizeof row), "the tensor has 96 bytes, the buffer 16");
    tl_tensor *m = tl_ones(TL_SHAPE(1), TL_F32, check_meta());
    tl_item(m);
    expect_error(TL_ERROR_USE, "item: its result depends on data, and meta has none");
    tl_at(m, (int64_t[]){0});
    expect_error(TL_ERROR_USE, "meta");
    expect_refused(tl_to_data(m, row, 4), "meta has no data");
}

static void host_data_is_copied_for_every_dtype(void **state) {
    (void)state;
    unsigned char bytes[128], back[128];
    for (int i = 0; i < 128; i++) bytes[i] = (unsigned char)(i & 1);
    for (int d = 0; d < TL_DTYPE_COUNT; d++) {
        size_t n = (size_t)(8 * tl_dtype_bits((tl_dtype)d) / 8);
        tl_tensor *x = tl_from_data(bytes, TL_SHAPE(2, 4), (tl_dtype)d, NULL);
        expect_true(tl_to_data(x, back, n));
        expect_equal(memcmp(bytes, back, n), 0);
        expect_shape(tl_from_data(NULL, TL_SHAPE(2, 4), (tl_dtype)d, check_meta()), 2, 4);
    }
}

static void detach_shares_values_and_forgets_history(void **state) {
    (void)state;
    tl_tensor *x = tl_requires_grad(tl_ones(TL_SHAPE(3), TL_F32, NULL), true), *y = tl_scale(x, 2);
    tl_tensor *d = tl_detach(y);
    expect_true(tl_needs_grad(y) && !tl_needs_grad(d) && tl_is_leaf(d));
    expect_true(tl_shares_storage(d, y));
    expect_true(!tl_needs_grad(tl_add(d, d)));
}

static void describe_is_one_line_and_reports_its_length(void **state) {
    (void)state;
    char text[64], tiny[4];
    tl_tensor *x = tl_ones(TL_SHAPE(4, 6), TL_BF16, check_meta());
    size_t length = tl_describe(x, text, sizeof text);
    expect_text(text, "bf16[4,6]@meta:cpu");
    expect_equal(length, strlen(text));
    expect_equal(tl_describe(x, tiny, sizeof tiny), length);
    expect_text(tiny, "bf1");
    tl_describe(tl_ones(TL_SCALAR, TL_BOOL, NULL), text, sizeof text);
    expect_text(text, "bool[]@cpu");
    tl_describe(NULL, text, sizeof text);
    expect_text(text, "NULL");
}

static void axes_out_of_range_are_refused_when_read(void **state) {
    (void)state;
    tl_tensor *x = cube();
    expect_equal(tl_size(x, -1), 4);
    expect_equal(tl_stride(x, -3), 12);
    tl_size(x, 3);
    expect_error(TL_ERROR_USE, "but got 3)");
    tl_stride(x, -4);
    expect_error(TL_ERROR_USE, "but got -4)");
}

static void purposes_can_be_said_and_are_checked(void **state) {
    (void)state;
    tl_tensor *x = tl_ones(TL_SHAPE(3), TL_F32, NULL);
    expect_equal(tl_purpose_of(x), TL_TEMPORARY);
    expect_true(tl_set_purpose(x, TL_PARAMETER) == x);
    expect_equal(tl_purpose_of(tl_select(x, 0, 0)), TL_PARAMETER);
    expect_refused(tl_set_purpose(x, TL_PURPOSE_COUNT), "no purpose has the number 8");
    expect_text(tl_purpose_name(TL_OPTIMIZER), "optimizer");
    expect_text(tl_purpose_name((tl_purpose)99), "?");
}

static void random_tensors_depend_on_the_generator_alone(void **state) {
    (void)state;
    tl_seed(7);
    tl_tensor *a = tl_normal(TL_SHAPE(5), 0, 1, TL_F32, NULL);
    tl_generator middle = tl_generator_get();
    tl_tensor *b = tl_normal(TL_SHAPE(5), 0, 1, TL_F32, NULL);
    tl_generator_set(middle);
    expect_same_bits(tl_normal(TL_SHAPE(5), 0, 1, TL_F32, NULL), b);
    tl_seed(7);
    expect_same_bits(tl_normal(TL_SHAPE(5), 0, 1, TL_F32, NULL), a);
    expect_true(tl_at(a, (int64_t[]){0}) != tl_at(b, (int64_t[]){0}));
    tl_generator after_cpu = tl_generator_get();
    tl_seed(7);
    tl_normal(TL_SHAPE(5), 0, 1, TL_F32, check_meta()); /* a price draws as many numbers as the run */
    expect_equal(tl_generator_get().index, after_cpu.index);
    expect_refused(tl_normal(TL_SHAPE(5), 0, -1, TL_F32, NULL), "std -1 is negative");
    expect_refused(tl_uniform(TL_SHAPE(5), 0, 1, TL_I32, NULL), "floating point");
    expect_refused(tl_bernoulli(TL_SHAPE(5), 1.5, NULL), "probability 1.5");
    expect_refused(tl_integers(TL_SHAPE(5), 3, 3, TL_I64, NULL), "empty");
    expect_refused(tl_integers(TL_SHAPE(5), 0, 3, TL_F32, NULL), "integer dtype");
    expect_equal(tl_generator_get().index, after_cpu.index); /* refusals draw nothing */
}

/* Element k of a wide tensor is made of the words 2k and 2k+1 of its block: another tensor must not see them again. */
static void no_random_word_is_used_twice(void **state) {
    (void)state;
    tl_seed(1);
    tl_tensor *wide = tl_uniform(TL_SHAPE(8), 0, 1, TL_F64, NULL),
              *narrow = tl_uniform(TL_SHAPE(16), 0, 1, TL_F32, NULL);
    tl_tensor *whole = tl_integers(TL_SHAPE(6), 0, 1 << 30, TL_I64, NULL),
              *again = tl_uniform(TL_SHAPE(16), 0, 1, TL_F32, NULL);
    expect_equal(tl_generator_get().index, 16 + 16 + 12 + 16);
    for (int64_t i = 0; i < 16; i++)
        for (int64_t k = 0; k < 16; k++) {
            double x = tl_at(narrow, &i), y = tl_at(again, &k);
            expect_true(x != y);
            if (k < 8) expect_true(x - tl_at(wide, &k) > 1e-6 || tl_at(wide, &k) - x > 1e-6);
            if (k < 6) expect_true(tl_at(whole, &k) / (1 << 30) - x > 1e-8 || x - tl_at(whole, &k) / (1 << 30) > 1e-8);
        }
}

static void host_data_that_travels_is_billed_as_a_transfer(void **state) {
    (void)state;
    float data[6] = {1, 2, 3, 4, 5, 6};
    tl_ledger *ledger = tl_ledger_begin("data");
    tl_from_data(data, TL_SHAPE(2, 3), TL_F32, check_cpu());
    expect_count(tl_ledger_transfer_bytes(ledger), 0);
    tl_tensor *x = tl_from_data(NULL, TL_SHAPE(2, 3), TL_F32, check_meta());
    expect_count(tl_ledger_transfer_bytes(ledger), 24);
    tl_tensor *there = tl_to(tl_requires_grad(x, true), tl_device_find("meta:h200"));
    expect_true(tl_backward(tl_sum_all(there), NULL, 0)); /* from one priced device to another, and back */
    expect_true(tl_device_of(tl_grad_of(x)) == check_meta());
    expect_count(tl_ledger_transfer_bytes(ledger), 72);
    tl_ledger_end(ledger);
    tl_ledger_free(ledger);
}

static void two_results_in_one_place_are_refused(void **state) {
    (void)state;
    tl_tensor *p = tl_ones(TL_SHAPE(4), TL_F32, NULL), *m = tl_zeros(TL_SHAPE(4), TL_F32, NULL);
    tl_adam_options o = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .decoupled = true, .step = 1};
    expect_refused(tl_adam_(p, p, m, m, NULL, &o), "share memory");
    expect_refused(tl_adam_(p, tl_ones_like(p), p, m, NULL, &o), "share memory");
}

static void missing_arguments_are_named(void **state) {
    (void)state;
    tl_tensor *x = tl_zeros(TL_SHAPE(2, 3), TL_F32, NULL), *list[2] = {x, x};
    expect_refused(tl_zeros(2, NULL, TL_F32, NULL), "got NULL instead of a shape");
    expect_refused(tl_from_data(NULL, TL_SHAPE(2), TL_F32, NULL), "from_data: got NULL instead of data");
    expect_refused(tl_from_external(NULL, 8, TL_SHAPE(2), NULL, TL_F32, NULL, NULL, NULL), "from_external: got NULL");
    expect_refused(tl_reshape(x, 1, NULL), "reshape: got NULL instead of a shape");
    expect_refused(tl_sum(x, NULL, 1, false), "sum: got NULL instead of axes");
    expect_refused(tl_permute(x, NULL), "permute: got NULL instead of axes");
    expect_refused(tl_concat(NULL, 2, 0), "concat: got NULL instead of a list of tensors");
    expect_refused(tl_index(x, NULL, list, 1), "index: got NULL instead of axes");
    expect_true(tl_from_data(NULL, TL_SHAPE(2), TL_F32, tl_device_find("meta")) != NULL); /* it takes none */
}

static void unknown_devices_are_refused_by_name(void **state) {
    (void)state;
    expect_true(tl_device_find("meta") == tl_device_find("meta:cpu"));
    expect_text(tl_device_name(tl_device_find("meta:h200")), "meta:h200");
    tl_device_find("meta:abacus");
    expect_error(TL_ERROR_DEVICE, "meta:abacus: no such target (there are cpu, h200");
    tl_device_find("tpu");
    expect_error(TL_ERROR_DEVICE, "tpu: no such device");
    tl_device_find("cuda:x");
    expect_error(TL_ERROR_DEVICE, "cuda:x: no such device");
    expect_true(tl_set_default_device(check_meta()) == check_cpu());
    expect_true(tl_device_of(tl_ones(TL_SHAPE(2), TL_F32, NULL)) == check_meta());
    expect_true(tl_set_default_device(check_cpu()) == check_meta());
    expect_true(tl_target_name(0) != NULL && tl_target_name(99) == NULL && tl_target_name(-1) == NULL);
    expect_true(tl_device_sync(check_cpu()) && tl_device_sync(check_meta()));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(creation_fills_and_is_dense),
        TEST(creation_works_for_every_dtype_and_counts_bits),
        TEST(a_scalar_has_rank_zero_and_one_element),
        TEST(zero_size_tensors_hold_nothing_and_work),
        TEST(rank_reaches_32_and_no_further),
        TEST(sizes_that_overflow_are_refused),
        TEST(a_request_larger_than_the_machine_is_out_of_memory),
        TEST(select_drops_an_axis_and_shares_storage),
        TEST(slice_follows_python),
        TEST(negative_steps_give_negative_strides),
        TEST(views_of_views_compose),
        TEST(view_refuses_what_strides_cannot_express),
        TEST(view_keeps_strides_of_sliced_axes),
        TEST(reshape_views_when_it_can_and_copies_when_it_must),
        TEST(flatten_and_unflatten_are_inverse),
        TEST(squeeze_and_unsqueeze_move_axes_of_one),
        TEST(permute_moves_strides),
        TEST(expand_repeats_with_stride_zero),
        TEST(diagonal_walks_both_axes),
        TEST(as_strided_stays_inside_the_storage),
        TEST(f4_views_keep_pairs_whole),
        TEST(every_view_shares_storage_and_moves_no_bytes),
        TEST(storage_lives_as_long_as_its_last_view),
        TEST(external_memory_is_shared_and_freed_once),
        TEST(external_memory_may_have_any_strides_inside_its_bytes),
        TEST(external_memory_is_released_once_when_any_allocation_fails),
        TEST(external_memory_goes_when_the_graph_that_saved_it_goes),
        TEST(versions_count_changes_of_the_storage),
        TEST(copy_broadcasts_and_casts_into_place),
        TEST(clone_copies_what_a_view_shows),
        TEST(cast_returns_itself_or_rounds),
        TEST(to_moves_between_devices_or_says_why_not),
        TEST(values_are_read_one_by_one_or_all_at_once),
        TEST(host_data_is_copied_for_every_dtype),
        TEST(detach_shares_values_and_forgets_history),
        TEST(describe_is_one_line_and_reports_its_length),
        TEST(axes_out_of_range_are_refused_when_read),
        TEST(purposes_can_be_said_and_are_checked),
        TEST(random_tensors_depend_on_the_generator_alone),
        TEST(no_random_word_is_used_twice),
        TEST(host_data_that_travels_is_billed_as_a_transfer),
        TEST(two_results_in_one_place_are_refused),
        TEST(missing_arguments_are_named),
        TEST(unknown_devices_are_refused_by_name),
    };
    return cmocka_run_group_tests_name("tensor", tests, NULL, NULL);
}

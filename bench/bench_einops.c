/* bench_einops.c: the overhead of patterns over the ops they become, and of contracts.
 *
 * Each line does the same work twice in one run: by a pattern, and by the ops that the pattern becomes, called by
 * hand. The difference is the price of the notation: at most 200 ns. On meta, where kernels take no time.
 */
#include <stdio.h>

#include "base/clock.h"
#include "tally.h"

static tl_device *meta;
static tl_tensor *x, *w;

static tl_tensor *split_by_pattern(void) { return tl_rearrange(x, "b s (h d) -> b h s d", "h=8"); }
static tl_tensor *split_by_hand(void) {
    tl_tensor *y = tl_reshape(x, TL_SHAPE(4, 16, 8, 8));
    return tl_permute(y, (const int[]){0, 2, 1, 3});
}
static tl_tensor *merge_by_pattern(void) { return tl_rearrange(x, "b s c -> (b s) c", NULL); }
static tl_tensor *merge_by_hand(void) { return tl_reshape(x, TL_SHAPE(64, 64)); }
static tl_tensor *same_by_pattern(void) { return tl_rearrange(x, "b s c -> b s c", NULL); }
static tl_tensor *same_by_hand(void) { return x; }
static tl_tensor *reduce_by_pattern(void) { return tl_reduce(x, "b s c -> b c", "sum", NULL); }
static tl_tensor *reduce_by_hand(void) { return tl_sum(x, (const int[]){1}, 1, false); }
static tl_tensor *repeat_by_pattern(void) { return tl_repeat(x, "b s c -> b r s c", "r=2"); }
static tl_tensor *repeat_by_hand(void) {
    tl_tensor *y = tl_reshape(x, TL_SHAPE(4, 1, 16, 64));
    return tl_expand(y, TL_SHAPE(4, 2, 16, 64));
}
static tl_tensor *einsum_by_pattern(void) { return tl_einsum("b s c, c d -> b s d", TL_TENSORS(x, w)); }
static tl_tensor *einsum_by_hand(void) {
    tl_tensor *rows = tl_reshape(x, TL_SHAPE(64, 64));
    tl_tensor *y = tl_matmul(rows, w);
    return tl_reshape(y, TL_SHAPE(4, 16, 32));
}
static tl_tensor *expect_x(void) {
    tl_dims d = {0};
    return tl_expect(&d, x, "x", "batch seq (heads 8) : f32") ? x : NULL;
}

static double run_ns(tl_tensor *(*call)(void)) {
    const int n = 2000;
    double start = now_s();
    for (int i = 0; i < n; i++) {
        tl_scope scope = tl_scope_begin();
        call();
        tl_scope_end(scope);
    }
    return 1e9 * (now_s() - start) / n;
}

/* The best of many short runs, in alternation: the speed of the machine without interruptions. */
static void compare(const char *what, tl_tensor *(*pattern)(void), tl_tensor *(*hand)(void)) {
    double by_pattern = 1e9, by_hand = 1e9;
    for (int run = 0; run < 100; run++) {
        double p = run_ns(pattern), h = run_ns(hand);
        if (p < by_pattern) by_pattern = p;
        if (h < by_hand) by_hand = h;
    }
    printf("%-34s %6.0f ns by pattern, %6.0f ns by hand: %4.0f ns more (bar 200)\n", what, by_pattern, by_hand,
           by_pattern - by_hand);
}

int main(void) {
    meta = tl_device_find("meta");
    tl_scope scope = tl_scope_begin();
    x = tl_requires_grad(tl_zeros(TL_SHAPE(4, 16, 64), TL_F32, meta), true);
    w = tl_requires_grad(tl_zeros(TL_SHAPE(64, 32), TL_F32, meta), true);
    compare("b s (h d) -> b h s d, h=8", split_by_pattern, split_by_hand);
    compare("b s c -> (b s) c", merge_by_pattern, merge_by_hand);
    compare("b s c -> b s c", same_by_pattern, same_by_hand);
    compare("b s c -> b c, sum", reduce_by_pattern, reduce_by_hand);
    compare("b s c -> b r s c, r=2", repeat_by_pattern, repeat_by_hand);
    compare("b s c, c d -> b s d", einsum_by_pattern, einsum_by_hand);
    compare("expect batch seq (heads 8) : f32", expect_x, same_by_hand);
    tl_scope_end(scope);
    return 0;
}

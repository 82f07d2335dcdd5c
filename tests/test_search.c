/* The search for the largest size that fits, on sizes whose bytes are known in advance. */
#include "step/search.h"
#include "support/check.h"

/* Requests grow by a parabola; what is reserved is rounded up to `rounding`, and again by up to `gaps` of it, by no
 * rule. Sizes fit that are refused nothing after what is unused is returned: up to `trimmed` of the gaps. */
struct world {
    double fixed, slope, bend, gaps, trimmed;
    uint64_t rounding, limit;
    int64_t first_refused;
    int n_looks, n_fits;
};

static uint64_t blocks_of(const struct world *w, int64_t size) {
    double x = (double)size;
    return (uint64_t)(w->fixed + w->slope * x + w->bend * x * x);
}

static double share_of(int64_t size) {
    return (double)((uint64_t)size * 0x9E3779B97F4A7C15u >> 40) / (double)(1 << 24);
}

static bool fits_in(const struct world *w, int64_t size) {
    double needed = (double)blocks_of(w, size) * (1 + w->gaps * share_of(size) * (1 - w->trimmed));
    return needed <= (double)w->limit && (!w->first_refused || size < w->first_refused);
}

static bool look(void *context, int64_t size, struct search_point *point) {
    struct world *w = context;
    const uint64_t blocks = blocks_of(w, size);
    const uint64_t reserved = (uint64_t)((double)blocks * (1 + w->gaps * share_of(size)));
    const bool is_refused = w->first_refused && size >= w->first_refused;
    w->n_looks++;
    *point = (struct search_point){.size = size,
                                   .fits = fits_in(w, size),
                                   .is_final = is_refused,
                                   .bytes = (reserved + w->rounding - 1) / w->rounding * w->rounding,
                                   .block_bytes = blocks};
    return true;
}

static bool fits(void *context, int64_t size, struct search_point *point) {
    struct world *w = context;
    w->n_fits++;
    if (w->first_refused && size >= w->first_refused) return look(context, size, point);
    *point = (struct search_point){.size = size, .fits = fits_in(w, size)};
    return true;
}

static struct search_answer largest(struct world *w, int64_t first, int64_t unit, int64_t most, bool has_fits) {
    const struct search_question q = {.first = first,
                                      .unit = unit,
                                      .most = most,
                                      .n_above = 8,
                                      .limit_bytes = w->limit,
                                      .look = look,
                                      .fits = has_fits ? fits : NULL,
                                      .context = w};
    struct search_answer a;
    w->n_looks = w->n_fits = 0;
    if (!search_largest(&q, &a)) fail_msg("%s", tl_error_message());
    return a;
}

/* Whatever the bytes do: the answer fits and was looked at, what follows does not fit, and a proof is one. */
static void expect_sound(const struct world *w, const struct search_answer *a, int64_t unit, int64_t most) {
    int64_t last = most - most % unit;
    if (a->best.size) expect_true(fits_in(w, a->best.size) && a->best.block_bytes == blocks_of(w, a->best.size));
    if (!a->next.size) {
        assert_int_equal(a->best.size, last);
        return;
    }
    assert_int_equal(a->next.size, a->best.size + unit);
    expect_true(!fits_in(w, a->next.size) && (a->next.is_final || a->next.block_bytes == blocks_of(w, a->next.size)));
    for (int64_t size = a->next.size; size <= last && a->is_proven; size += unit) expect_true(!fits_in(w, size));
}

/* ---- Cases ---- */

static void a_line_and_a_parabola_take_few_prices(void **state) {
    (void)state;
    struct world line = {.fixed = 3e9, .slope = 1.7e7, .rounding = 1 << 21, .limit = 80000000000};
    struct search_answer a = largest(&line, 1, 1, 1000000, true);
    assert_int_equal(a.best.size, 4529);
    expect_true(a.is_proven);
    expect_true(line.n_looks <= 8);
    a = largest(&line, 60000, 1, 1000000, true);
    assert_int_equal(a.best.size, 4529);
    expect_true(line.n_looks <= 8);
    struct world parabola = {.fixed = 1e9, .slope = 3e6, .bend = 1500, .rounding = 1 << 21, .limit = 80000000000};
    a = largest(&parabola, 768, 64, 1 << 22, true);
    assert_int_equal(a.best.size, 6272);
    expect_true(parabola.n_looks <= 12);
}

static void nothing_fits_and_everything_fits(void **state) {
    (void)state;
    struct world w = {.fixed = 3e9, .slope = 1e6, .rounding = 1 << 21, .limit = 2000000000};
    struct search_answer a = largest(&w, 32, 4, 1000, true);
    assert_int_equal(a.best.size, 0);
    assert_int_equal(a.next.size, 4);
    w.limit = 100000000000;
    a = largest(&w, 32, 4, 1002, true);
    assert_int_equal(a.best.size, 1000);
    assert_int_equal(a.next.size, 0);
}

static void random_worlds(void **state) {
    (void)state;
    uint64_t seed = 7;
    for (int i = 0; i < 20000; i++) {
        double u[8];
        for (int k = 0; k < 8; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            u[k] = (double)(seed >> 40) / (double)(1 << 24);
        }
        struct world w = {.fixed = u[0] * 5e9,
                          .slope = 1e5 + u[1] * 1e8,
                          .bend = i % 3 ? 0 : u[2] * 1e5,
                          .gaps = i % 2 ? 0 : u[3] * 0.3,
                          .trimmed = u[4],
                          .rounding = i % 5 ? 1 << 21 : 1,
                          .limit = (uint64_t)(u[5] * 1e10),
                          .first_refused = i % 7 ? 0 : 1 + (int64_t)(u[6] * 300)};
        const int64_t unit = i % 4 ? 1 : 1 + (int64_t)(u[7] * 20), most = 2000;
        struct search_answer a = largest(&w, 1 + (int64_t)(u[2] * 500), unit, most, i % 3 != 1);
        expect_sound(&w, &a, unit, most);
        if (!w.gaps && w.rounding == 1) expect_true(w.n_looks + w.n_fits <= 40);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_line_and_a_parabola_take_few_prices),
                                       cmocka_unit_test(nothing_fits_and_everything_fits),
                                       cmocka_unit_test(random_worlds)};
    return cmocka_run_group_tests_name("search", tests, NULL, NULL);
}

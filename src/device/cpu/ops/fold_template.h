/* fold_template.h: the loops of fold.c that are the same at two widths, for elements of type T; included there once
 * per type, with NAME(x) giving a function its type's suffix. They run in WIDE lanes: two vectors of each side by
 * side, at least. */
enum { NAME(WIDE) = 64 / sizeof(T) };

/* The largest of n, NaN aside; -infinity if there is none. */
static T NAME(number_max)(const T *x, int64_t n) {
    T lane[NAME(WIDE)], max = -INFINITY;
    int64_t i = 0;
    for (int k = 0; k < NAME(WIDE); k++) lane[k] = -INFINITY;
    for (; i + NAME(WIDE) <= n; i += NAME(WIDE))
        for (int k = 0; k < NAME(WIDE); k++) lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
    for (; i < n; i++) max = x[i] > max ? x[i] : max;
    for (int k = 0; k < NAME(WIDE); k++) max = lane[k] > max ? lane[k] : max;
    return max;
}

/* Finds the value first, in lanes; then its position. */
VECTOR_INLINE struct state NAME(extreme_place)(const T *x, int64_t n, int64_t first, bool wants_max) {
    T lane[NAME(WIDE)], best = x[0];
    MASK nans[NAME(WIDE)] = {0}, has_nan = 0;
    int64_t i = 0, place = 0;
    for (int k = 0; k < NAME(WIDE); k++) lane[k] = x[0];
    for (; i + NAME(WIDE) <= n; i += NAME(WIDE))
        for (int k = 0; k < NAME(WIDE); k++) {
            const T y = x[i + k];
            lane[k] = (wants_max ? y > lane[k] : y < lane[k]) ? y : lane[k];
            nans[k] |= y != y;
        }
    for (; i < n; i++) {
        best = (wants_max ? x[i] > best : x[i] < best) ? x[i] : best;
        has_nan |= x[i] != x[i];
    }
    for (int k = 0; k < NAME(WIDE); k++) {
        best = (wants_max ? lane[k] > best : lane[k] < best) ? lane[k] : best;
        has_nan |= nans[k];
    }
    while (has_nan ? x[place] == x[place] : x[place] != best) place++;
    return (struct state){{.f = (double)x[place]}, {.i = first + place}};
}
static struct state NAME(max_place)(const void *x, int64_t n, int64_t first, const void *attr) {
    (void)attr;
    return NAME(extreme_place)(x, n, first, true);
}
static struct state NAME(min_place)(const void *x, int64_t n, int64_t first, const void *attr) {
    (void)attr;
    return NAME(extreme_place)(x, n, first, false);
}

#undef T
#undef MASK
#undef NAME

/* elementwise_loops.h: the loops of elementwise.c for one compute type T, with NAME(x) giving a function its type's
 * suffix; part of elementwise_template.h. Every loop reads in[k][0..n) and writes out[0..n), which may be an input's
 * own memory. Truth is 0 or 1 in T; the driver converts it to bool. */
#include "device/cpu/ops/elementwise_map_template.h"

/* ---- Rows of elementwise_list.h: a loop over the formula ------------------------------------------------ */

#define F(name) NAME(vector_##name)
#if IS_FLOAT
#define FOR_CLASS(dtypes, ...) __VA_ARGS__
#else
#define FOR_CLASS(dtypes, ...) INTEGERS_##dtypes(, __VA_ARGS__)
#endif

#define UNARY_LOOP(name, formula, run)                                                   \
    static inline T NAME(name##_of)(T x) { return formula; }                             \
    static void NAME(name)(T *out, const T *const *in, int64_t n, const void *attr) {    \
        (void)attr;                                                                      \
        NAME(run)(out, in[0], n, NAME(name##_of));                                       \
    }
#define UNARY_PLAIN(name, formula) UNARY_LOOP(name, formula, each)
#define UNARY_TILED(name, formula) UNARY_LOOP(name, formula, map)
#define UNARY_CPU_LOOP(name, formula)

#define BINARY_LOOP(name, formula, run)                                                  \
    static inline T NAME(name##_of)(T a, T b) { return formula; }                        \
    static void NAME(name)(T *out, const T *const *in, int64_t n, const void *attr) {    \
        (void)attr;                                                                      \
        NAME(run)(out, in[0], in[1], n, NAME(name##_of));                                \
    }
#define BINARY_PLAIN(name, formula) BINARY_LOOP(name, formula, each_pair)
#define BINARY_TILED(name, formula) BINARY_LOOP(name, formula, map_pair)
#define BINARY_CPU_LOOP(name, formula)
#define BINARY_OWN(name, formula)

#define UNARY(name, dtypes, formula, flops, words, reads, gradient, in_place, autocast, kernel) \
    FOR_CLASS(dtypes, UNARY_##kernel(name, formula))
#define BINARY(name, dtypes, formula, flops, words, reads_a, rule_a, reads_b, rule_b, in_place, autocast, kernel) \
    FOR_CLASS(dtypes, BINARY_##kernel(name, formula))
#define SPECIAL(...)
#include "spec/elementwise_list.h"

#undef F
#undef FOR_CLASS
#undef UNARY_LOOP
#undef UNARY_PLAIN
#undef UNARY_TILED
#undef UNARY_CPU_LOOP
#undef BINARY_LOOP
#undef BINARY_PLAIN
#undef BINARY_TILED
#undef BINARY_CPU_LOOP
#undef BINARY_OWN

/* ---- Arithmetic where one side is one element ------------------------------------------------------------ */

static void NAME(add_one)(T *out, T one, const T *x, int64_t n) {
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = (T)((W)one + (W)x[i]);
}

static void NAME(sub_from_one)(T *out, T one, const T *x, int64_t n) {
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = (T)((W)one - (W)x[i]);
}

static void NAME(sub_one)(T *out, T one, const T *x, int64_t n) {
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = (T)((W)x[i] - (W)one);
}

static void NAME(mul_one)(T *out, T one, const T *x, int64_t n) {
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = (T)((W)one * (W)x[i]);
}

/* ---- Special rows ------------------------------------------------------------------------------------ */

static void NAME(affine)(T *out, const T *const *in, int64_t n, const void *attr) {
    const struct attr_affine *affine = attr;
    const W scale = (W)SCALAR(affine->scale), shift = (W)SCALAR(affine->shift);
    const T *x = in[0];
    if (shift == 0) { /* -0 stays -0 */
        VECTOR_LOOP
        for (int64_t i = 0; i < n; i++) out[i] = (T)((W)x[i] * scale);
        return;
    }
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = (T)((W)x[i] * scale + shift);
}

static void NAME(where)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *condition = in[0], *a = in[1], *b = in[2];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) {
        const T yes = a[i], no = b[i];
        out[i] = condition[i] != 0 ? yes : no;
    }
}

/* min(max(x, low), high). A NaN stays; a bound that is NaN makes everything so. */
static void NAME(clamp_all)(T *out, const T *const *in, int64_t n, const void *attr) {
    const struct attr_clamp *clamp = attr;
    const T low = clamp->has_min ? NUMBER(clamp->min) : LOWEST, high = clamp->has_max ? NUMBER(clamp->max) : HIGHEST;
    const T *x = in[0];
    if (NAME(vector_isnan)(low) || NAME(vector_isnan)(high)) {
        for (int64_t i = 0; i < n; i++) out[i] = NAME(vector_isnan)(low) ? low : high;
        return;
    }
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) {
        const T raised = x[i] < low ? low : x[i];
        out[i] = raised > high ? high : raised;
    }
}

/* ---- Comparisons --------------------------------------------------------------------------------------- */

static void NAME(eq)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *a = in[0], *b = in[1];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = a[i] == b[i] ? 1 : 0;
}

static void NAME(ne)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *a = in[0], *b = in[1];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = a[i] != b[i] ? 1 : 0;
}

static void NAME(lt)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *a = in[0], *b = in[1];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = a[i] < b[i] ? 1 : 0;
}

static void NAME(le)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *a = in[0], *b = in[1];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = a[i] <= b[i] ? 1 : 0;
}

static void NAME(gt)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *a = in[0], *b = in[1];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = a[i] > b[i] ? 1 : 0;
}

static void NAME(ge)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *a = in[0], *b = in[1];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = a[i] >= b[i] ? 1 : 0;
}

#if IS_FLOAT

static void NAME(div_one)(T *out, T one, const T *x, int64_t n) {
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = x[i] / one;
}

static void NAME(div_of_one)(T *out, T one, const T *x, int64_t n) {
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = one / x[i];
}

static void NAME(leaky_relu)(T *out, const T *const *in, int64_t n, const void *attr) {
    const T slope = (T)((const struct attr_leaky_relu *)attr)->slope, *x = in[0];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = SELECT(x[i] > 0, x[i], x[i] * slope);
}

static void NAME(softplus)(T *out, const T *const *in, int64_t n, const void *attr) {
    const struct attr_softplus *a = attr;
    const T beta = (T)a->beta, threshold = (T)a->threshold, *x = in[0];
    for (int64_t i = 0; i < n; i += VECTOR_TILE) {
        const int length = n - i < VECTOR_TILE ? (int)(n - i) : VECTOR_TILE;
        T here[VECTOR_TILE] = {0}, soft[VECTOR_TILE];
        for (int k = 0; k < length; k++) here[k] = x[i + k];
        for (int k = 0; k < VECTOR_TILE; k++) soft[k] = NAME(vector_log1p_exp)(here[k] * beta) / beta;
        for (int k = 0; k < VECTOR_TILE; k++) soft[k] = SELECT(here[k] * beta > threshold, here[k], soft[k]);
        for (int k = 0; k < length; k++) out[i + k] = soft[k];
    }
}

/* ---- Rows with a separate path for hard arguments: both paths give the same bits --------------- */

/* A piece with a huge angle in it is computed element by element. */
VECTOR_INLINE void NAME(map_angle)(T *out, const T *x, int64_t n, T (*f)(T), T (*far)(T)) {
    for (int64_t i = 0; i < n; i += PIECE) {
        const int64_t length = n - i < PIECE ? n - i : PIECE;
        int n_easy = 0;
        for (int64_t k = i; k < i + length; k++) n_easy += NAME(vector_sin_is_easy)(x[k]);
        if (n_easy == length) NAME(map)(out + i, x + i, length, f);
        else
            for (int64_t k = i; k < i + length; k++) out[k] = NAME(vector_sin_is_easy)(x[k]) ? f(x[k]) : far(x[k]);
    }
}

static void NAME(sin)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    NAME(map_angle)(out, in[0], n, NAME(vector_sin), LIBM(sin));
}

static void NAME(cos)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    NAME(map_angle)(out, in[0], n, NAME(vector_cos), LIBM(cos));
}

static void NAME(pow)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *a = in[0], *b = in[1];
    for (int64_t i = 0; i < n; i += VECTOR_TILE) {
        const int length = n - i < VECTOR_TILE ? (int)(n - i) : VECTOR_TILE;
        T x[VECTOR_TILE], y[VECTOR_TILE];
        int n_easy = 0;
        for (int k = 0; k < VECTOR_TILE; k++) x[k] = y[k] = 1;
        for (int k = 0; k < length; k++) x[k] = a[i + k];
        for (int k = 0; k < length; k++) y[k] = b[i + k];
        for (int k = 0; k < VECTOR_TILE; k++) n_easy += NAME(vector_pow_is_easy)(x[k], y[k]);
        if (n_easy == VECTOR_TILE)
            for (int k = 0; k < VECTOR_TILE; k++) x[k] = NAME(vector_pow)(x[k], y[k]);
        else
            for (int k = 0; k < VECTOR_TILE; k++)
                x[k] = NAME(vector_pow_is_easy)(x[k], y[k]) ? NAME(vector_pow)(x[k], y[k]) : LIBM(pow)(x[k], y[k]);
        for (int k = 0; k < length; k++) out[i + k] = x[k];
    }
}
/* fmod has the dividend's sign; if the divisor's differs, the divisor is added. */
static void NAME(remainder)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    for (int64_t i = 0; i < n; i += VECTOR_TILE) {
        const int length = n - i < VECTOR_TILE ? (int)(n - i) : VECTOR_TILE;
        T a[VECTOR_TILE], b[VECTOR_TILE], r[VECTOR_TILE];
        int n_easy = 0;
        for (int k = 0; k < VECTOR_TILE; k++) a[k] = b[k] = 1;
        for (int k = 0; k < length; k++) a[k] = in[0][i + k];
        for (int k = 0; k < length; k++) b[k] = in[1][i + k];
        for (int k = 0; k < VECTOR_TILE; k++) n_easy += NAME(vector_fmod_is_easy)(a[k], b[k]);
        if (n_easy == VECTOR_TILE)
            for (int k = 0; k < VECTOR_TILE; k++) r[k] = NAME(vector_fmod)(a[k], b[k]);
        else
            for (int k = 0; k < VECTOR_TILE; k++) r[k] = LIBM(fmod)(a[k], b[k]);
        for (int k = 0; k < VECTOR_TILE; k++)
            r[k] = SELECT((r[k] != 0) & ((r[k] < 0) != (b[k] < 0)), r[k] + b[k], r[k]);
        for (int k = 0; k < length; k++) out[i + k] = r[k];
    }
}

#endif

/* math_template.h: the loops of math.c for one compute type T; see elementwise_template.h. Every loop reads in[k][0..n) and
 * writes out[0..n), which may be the very memory of an input. */

/* ---- Choice and sign ------------------------------------------------------------------------------------ */

static void NAME(abs)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *x = in[0];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = ABS(x[i]);
}

/* NaN has none, as in PyTorch: 0. */
static void NAME(sign)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *x = in[0];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = (T)((x[i] > 0) - (x[i] < 0));
}

/* A NaN on either side is the result. */
static void NAME(minimum)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *a = in[0], *b = in[1];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = ((a[i] < b[i]) | IS_NAN(a[i])) ? a[i] : b[i];
}

static void NAME(maximum)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *a = in[0], *b = in[1];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = ((a[i] > b[i]) | IS_NAN(a[i])) ? a[i] : b[i];
}

/* min(max(x, low), high). A NaN stays; a bound that is NaN makes everything so. */
static void NAME(clamp)(T *out, const T *const *in, int64_t n, const void *attr) {
    const struct attr_clamp *clamp = attr;
    const T low = clamp->has_min ? SCALAR(clamp->min) : LOWEST, high = clamp->has_max ? SCALAR(clamp->max) : HIGHEST;
    const T *x = in[0];
    if (IS_NAN(low) || IS_NAN(high)) {
        for (int64_t i = 0; i < n; i++) out[i] = IS_NAN(low) ? low : high;
        return;
    }
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) {
        const T raised = x[i] < low ? low : x[i];
        out[i] = raised > high ? high : raised;
    }
}

/* ---- Truth: 0 and 1 in T, which the driver converts to bool ------------------------------------------------ */

static void NAME(logical_and)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *a = in[0], *b = in[1];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = (T)((a[i] != 0) & (b[i] != 0));
}

static void NAME(logical_or)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *a = in[0], *b = in[1];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = (T)((a[i] != 0) | (b[i] != 0));
}

static void NAME(logical_xor)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *a = in[0], *b = in[1];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = (T)((a[i] != 0) ^ (b[i] != 0));
}

static void NAME(logical_not)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *x = in[0];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = x[i] == 0;
}

static void NAME(isnan)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *x = in[0];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = IS_NAN(x[i]);
}

/* x - x is 0 for every finite number, NaN for the rest. */
static void NAME(isfinite)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *x = in[0];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = x[i] - x[i] == 0;
}

#if IS_FLOAT

/* ---- Rounding, and other short formulas --------------------------------------------------------------------- */

static void NAME(floor)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *x = in[0];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = REAL(floor)(x[i]);
}

static void NAME(ceil)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *x = in[0];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = REAL(ceil)(x[i]);
}

/* Halves go to the even neighbour: the rounding mode of the machine, which nobody here changes. */
static void NAME(round)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *x = in[0];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = REAL(rint)(x[i]);
}

static void NAME(trunc)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *x = in[0];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = REAL(trunc)(x[i]);
}

/* fmod has the dividend's sign; where that is not the divisor's, one divisor more. */
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
            for (int k = 0; k < VECTOR_TILE; k++) r[k] = REAL(fmod)(a[k], b[k]);
        for (int k = 0; k < VECTOR_TILE; k++)
            r[k] = SELECT((r[k] != 0) & ((r[k] < 0) != (b[k] < 0)), r[k] + b[k], r[k]);
        for (int k = 0; k < length; k++) out[i + k] = r[k];
    }
}

static void NAME(leaky_relu)(T *out, const T *const *in, int64_t n, const void *attr) {
    const T slope = (T)((const struct attr_leaky_relu *)attr)->slope, *x = in[0];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = SELECT(x[i] > 0, x[i], x[i] * slope);
}

/* ---- Functions of real numbers ------------------------------------------------------------------------------ */

#include "device/cpu/map_template.h"

static void NAME(exp2)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    NAME(map)(out, in[0], n, NAME(vector_exp2));
}

static void NAME(expm1)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    NAME(map)(out, in[0], n, NAME(vector_expm1));
}

static void NAME(log1p)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    NAME(map)(out, in[0], n, NAME(vector_log1p));
}

static void NAME(log2)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    NAME(map)(out, in[0], n, NAME(vector_log2));
}

static void NAME(rsqrt)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *x = in[0];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = NAME(vector_rsqrt)(x[i]);
}

static void NAME(erf)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    NAME(map)(out, in[0], n, NAME(vector_erf));
}

static void NAME(gelu_erf)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    NAME(map)(out, in[0], n, NAME(vector_gelu_erf));
}

static void NAME(gelu_erf_grad)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    for (int64_t i = 0; i < n; i += VECTOR_TILE) {
        const int length = n - i < VECTOR_TILE ? (int)(n - i) : VECTOR_TILE;
        T tile[VECTOR_TILE] = {0};
        for (int k = 0; k < length; k++) tile[k] = in[0][i + k];
        for (int k = 0; k < VECTOR_TILE; k++) tile[k] = NAME(vector_gelu_erf_slope)(tile[k]);
        for (int k = 0; k < length; k++) out[i + k] = in[1][i + k] * tile[k];
    }
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

/* A piece with a huge angle in it goes element by element; each element's bits are the same either way. */
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
    NAME(map_angle)(out, in[0], n, NAME(vector_sin), REAL(sin));
}

static void NAME(cos)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    NAME(map_angle)(out, in[0], n, NAME(vector_cos), REAL(cos));
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
                x[k] = NAME(vector_pow_is_easy)(x[k], y[k]) ? NAME(vector_pow)(x[k], y[k]) : REAL(pow)(x[k], y[k]);
        for (int k = 0; k < length; k++) out[i + k] = x[k];
    }
}
#endif

#undef T
#undef NAME
#undef REAL
#undef SCALAR
#undef ABS
#undef SELECT
#undef IS_NAN
#undef LOWEST
#undef HIGHEST
#undef IS_FLOAT

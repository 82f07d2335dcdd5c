/* elementwise_template.h: the loops of elementwise.c for one compute type T; included there once per type, with NAME(x)
 * giving a function its type's suffix. Every loop reads in[k][0..n) and writes out[0..n). A comparison's
 * results are 0 and 1 in T; the driver converts them to bool. */

/* ---- Arithmetic ---------------------------------------------------------------------------------------- */

static void NAME(add)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *a = in[0], *b = in[1];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = (T)((ARITHMETIC)a[i] + (ARITHMETIC)b[i]);
}

static void NAME(sub)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *a = in[0], *b = in[1];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = (T)((ARITHMETIC)a[i] - (ARITHMETIC)b[i]);
}

static void NAME(mul)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *a = in[0], *b = in[1];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = (T)((ARITHMETIC)a[i] * (ARITHMETIC)b[i]);
}

/* The same where one side is one element. */

static void NAME(add_one)(T *out, T one, const T *x, int64_t n) {
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = (T)((ARITHMETIC)one + (ARITHMETIC)x[i]);
}

static void NAME(sub_from_one)(T *out, T one, const T *x, int64_t n) {
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = (T)((ARITHMETIC)one - (ARITHMETIC)x[i]);
}

static void NAME(sub_one)(T *out, T one, const T *x, int64_t n) {
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = (T)((ARITHMETIC)x[i] - (ARITHMETIC)one);
}

static void NAME(mul_one)(T *out, T one, const T *x, int64_t n) {
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = (T)((ARITHMETIC)one * (ARITHMETIC)x[i]);
}

static void NAME(affine)(T *out, const T *const *in, int64_t n, const void *attr) {
    const struct attr_affine *affine = attr;
    const ARITHMETIC scale = (ARITHMETIC)SCALAR(affine->scale), shift = (ARITHMETIC)SCALAR(affine->shift);
    const T *x = in[0];
    if (shift == 0) { /* -0 stays -0 */
        VECTOR_LOOP
        for (int64_t i = 0; i < n; i++) out[i] = (T)((ARITHMETIC)x[i] * scale);
        return;
    }
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = (T)((ARITHMETIC)x[i] * scale + shift);
}

static void NAME(neg)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *x = in[0];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = (T)(-(ARITHMETIC)x[i]);
}

/* NaN stays NaN: it is not below zero. */
static void NAME(relu)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *x = in[0];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = x[i] < 0 ? 0 : x[i];
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

/* ---- Functions of real numbers -------------------------------------------------------------------------- */

#if IS_FLOAT
static void NAME(div)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *a = in[0], *b = in[1];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = a[i] / b[i];
}

static void NAME(div_one)(T *out, T one, const T *x, int64_t n) {
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = x[i] / one;
}

static void NAME(div_of_one)(T *out, T one, const T *x, int64_t n) {
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = one / x[i];
}

#include "device/cpu/map_template.h"

/* out[i] = g[i] * slope(x[i]), in the manner of map. */
VECTOR_INLINE void NAME(map_slope)(T *out, const T *x, const T *g, int64_t n, T (*slope)(T)) {
    int64_t i = 0;
    for (; i + VECTOR_TILE <= n; i += VECTOR_TILE) {
        T tile[VECTOR_TILE], gradient[VECTOR_TILE];
        memcpy(tile, x + i, sizeof tile);
        memcpy(gradient, g + i, sizeof gradient);
        for (int k = 0; k < VECTOR_TILE; k++) tile[k] = gradient[k] * slope(tile[k]);
        memcpy(out + i, tile, sizeof tile);
    }
    for (; i < n; i++) out[i] = g[i] * slope(x[i]);
}

static void NAME(exp)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    NAME(map)(out, in[0], n, NAME(vector_exp));
}

static void NAME(log)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    NAME(map)(out, in[0], n, NAME(vector_log));
}

/* One instruction: map's tile in between would only be in the way. */
static void NAME(sqrt)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    const T *x = in[0];
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = NAME(vector_sqrt)(x[i]);
}

static void NAME(tanh)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    NAME(map)(out, in[0], n, NAME(vector_tanh));
}

static void NAME(sigmoid)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    NAME(map)(out, in[0], n, NAME(vector_sigmoid));
}

static void NAME(gelu)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    NAME(map)(out, in[0], n, NAME(vector_gelu));
}

static void NAME(silu)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    NAME(map)(out, in[0], n, NAME(vector_silu));
}

static void NAME(gelu_grad)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    NAME(map_slope)(out, in[0], in[1], n, NAME(vector_gelu_slope));
}

static void NAME(silu_grad)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    NAME(map_slope)(out, in[0], in[1], n, NAME(vector_silu_slope));
}

/* in[0] is the gate. */
static void NAME(swiglu)(T *out, const T *const *in, int64_t n, const void *attr) {
    (void)attr;
    NAME(map_slope)(out, in[0], in[1], n, NAME(vector_silu));
}
#endif

/* ---- The driver's two ways over its positions ------------------------------------------------------------- */

/* An input's run as an array; one element that is used for all of it is converted once. */
static void NAME(load_run)(T *out, const void *in, tl_dtype dtype, int64_t stride, int64_t n) {
    if (stride != 0) {
        NAME(convert_to)(out, in, dtype, stride, n);
        return;
    }
    T one;
    NAME(convert_to)(&one, in, dtype, 1, 1);
    for (int64_t i = 0; i < n; i++) out[i] = one;
}

/* A run, and the rows that follow it, where one input is one element of T for each row: products of vectors. */
static void NAME(rows_of_one)(const struct task *task, struct iterate_run *run) {
    const struct iterate *walk = &task->walk;
    const int one = 1 + task->one, other = 2 - task->one, axis = walk->rank - 2;
    const int64_t n = iterate_rows(walk, run);
    for (int64_t row = 0;; row++) {
        task->ones->ONES[task->one]((T *)(void *)run->data[0], *(const T *)(const void *)run->data[one],
                                    (const T *)(const void *)run->data[other], run->length);
        if (row == n) return;
        for (int k = 0; k < 3; k++) run->data[k] += walk->stride[k][axis];
    }
}

static void NAME(walk_rows)(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    _Alignas(64) T buffer[1 + MAX_INPUTS][BLOCK];
    struct iterate_run run;
    iterate_seek(&task->walk, &run, first, last);
    const int64_t longest = last - first < BLOCK ? last - first : BLOCK;
    const int one = task->one;
    for (int k = 1; k <= task->n_inputs && first < last; k++)
        if (task->is_constant[k] && k != 1 + one)
            NAME(convert_to)(buffer[k], task->walk.data[k], task->dtype[k], 0, longest);
    while (iterate_next(&task->walk, &run, task->needs_buffers ? BLOCK : INT64_MAX)) {
        const T *in[MAX_INPUTS];
        for (int i = 0; i < task->n_inputs; i++) {
            const int k = 1 + i;
            in[i] = task->is_array[k] ? (const T *)(const void *)run.data[k] : buffer[k];
            if (!task->is_array[k] && !task->is_constant[k] && i != one)
                NAME(load_run)(buffer[k], run.data[k], task->dtype[k], task->stride[k], run.length);
        }
        T *out = task->is_array[0] ? (T *)(void *)run.data[0] : buffer[0];
        if (one >= 0 && task->is_ready && !task->needs_buffers) {
            NAME(rows_of_one)(task, &run);
        } else if (one >= 0) {
            T element;
            NAME(convert_to)(&element, run.data[1 + one], task->dtype[1 + one], 1, 1);
            task->ones->ONES[one](out, element, in[1 - one], run.length);
        } else {
            task->op->NAME(loop)(out, in, run.length, task->attr);
        }
        if (!task->is_array[0]) NAME(convert_from)(run.data[0], task->dtype[0], task->stride[0], out, run.length);
    }
}

static void NAME(gather_rows)(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    _Alignas(64) T buffer[1 + MAX_INPUTS][BLOCK];
    struct scatter scatter;
    struct iterate_run run;
    iterate_seek(&task->walk, &run, first, last);
    for (int64_t done = first; done < last;) {
        int64_t filled = 0;
        scatter.n_rows = 0;
        while (filled < BLOCK && iterate_next(&task->walk, &run, BLOCK - filled)) {
            for (int k = 1; k <= task->n_inputs; k++)
                NAME(convert_to)(buffer[k] + filled, run.data[k], task->dtype[k], task->stride[k], run.length);
            scatter.data[scatter.n_rows] = run.data[0];
            scatter.length[scatter.n_rows++] = run.length;
            filled += run.length;
        }

        const T *in[MAX_INPUTS] = {buffer[1], buffer[2], buffer[3]};
        task->op->NAME(loop)(buffer[0], in, filled, task->attr);
        const T *result = buffer[0];
        for (int row = 0; row < scatter.n_rows; row++) {
            NAME(convert_from)(scatter.data[row], task->dtype[0], task->stride[0], result, scatter.length[row]);
            result += scatter.length[row];
        }
        done += filled;
    }
}

#undef T
#undef ONES
#undef NAME
#undef ARITHMETIC
#undef SCALAR
#undef IS_FLOAT

/* elementwise_template.h: the loops and the driver of elementwise.c for one compute type T; included there once per
 * type, with NAME(x) giving a function its type's suffix. */
#include "device/cpu/ops/elementwise_loops.h"

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

/* A run, and the rows that follow it, if one input has one element of T per row, as in an outer product. */
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

typedef T NAME(block)[BLOCK];

static void NAME(walk_rows)(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    SCRATCH_ARRAY(NAME(block), buffer, 1 + MAX_INPUTS);
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
    SCRATCH_ARRAY(NAME(block), buffer, 1 + MAX_INPUTS);
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
#undef W
#undef LIBM
#undef SCALAR
#undef NUMBER
#undef SELECT
#undef LOWEST
#undef HIGHEST
#undef IS_FLOAT

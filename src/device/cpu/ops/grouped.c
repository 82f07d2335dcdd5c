/* grouped.c: products of groups of rows, one after the other, each by all threads (matmul.c). */
#include "device/cpu/ops/matmul.h"
#include "device/cpu/shared/block.h"
#include "device/cpu/shared/kernels.h"
#include "spec/attr.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ERROR_BYTES = 200 };

/* Before anything is written. */
static bool ends_fit(const tl_kernel_args *args, const tl_operand *ends, int64_t n_rows) {
    int64_t before = 0;
    for (int64_t e = 0; e < ends->shape[0]; e++) {
        const int64_t end = block_integer(ends, e);
        if (end < before || end > n_rows) {
            snprintf(args->error, ERROR_BYTES,
                     "group %" PRId64 " ends at row %" PRId64 " (need %" PRId64 " to %" PRId64 ")", e, end, before,
                     n_rows);
            return false;
        }
        before = end;
    }
    return true;
}

/* Rows first .. last-1 of a dense matrix, or the whole of matrix e of a dense stack. */
struct part {
    int64_t shape[2], stride[2];
    tl_operand operand;
};
static const tl_operand *part_of(struct part *p, const tl_operand *x, int64_t at, int64_t rows, int64_t columns) {
    p->shape[0] = rows;
    p->shape[1] = p->stride[0] = columns;
    p->stride[1] = 1;
    p->operand = (tl_operand){(void *)(uintptr_t)block_at(x->data, x->dtype, at), x->dtype, 2, p->shape, p->stride};
    return &p->operand;
}
static const tl_operand *rows_of(struct part *p, const tl_operand *x, int64_t first, int64_t last) {
    return part_of(p, x, first * x->shape[1], last - first, x->shape[1]);
}
static const tl_operand *matrix_of(struct part *p, const tl_operand *x, int64_t e) {
    return part_of(p, x, e * x->shape[1] * x->shape[2], x->shape[1], x->shape[2]);
}

/* Rows: a group's rows times its matrix; rows behind the last group are 0. Outer: a^T b over a group's rows. */
static bool multiply_groups(const tl_kernel_args *args, bool is_outer, bool add) {
    const struct attr_grouped *attr = args->attr;
    const tl_operand *out = &args->out[0], *a = &args->in[add], *b = a + 1, *ends = a + 2;
    struct part parts[3];
    if (!ends_fit(args, ends, a->shape[0])) return false;
    int64_t first = 0;
    for (int64_t e = 0; e < ends->shape[0]; e++) {
        const int64_t last = block_integer(ends, e);
        const tl_operand *c = is_outer ? matrix_of(&parts[0], out, e) : rows_of(&parts[0], out, first, last);
        const tl_operand *y = is_outer ? rows_of(&parts[2], b, first, last) : matrix_of(&parts[2], b, e);
        matmul_multiply(c, rows_of(&parts[1], a, first, last), is_outer, y, !is_outer && attr->transpose_b, add,
                        attr->is_fast, args->workspace, args->n_threads);
        first = last;
    }
    if (is_outer || add || first >= out->shape[0]) return true;
    const size_t row_bytes = (size_t)out->shape[1] * (size_t)(dtype_info(out->dtype)->bits / 8);
    memset(block_at(out->data, out->dtype, first * out->shape[1]), 0, (size_t)(out->shape[0] - first) * row_bytes);
    return true;
}

bool cpu_grouped_matmul(const tl_kernel_args *args) { return multiply_groups(args, false, false); }
bool cpu_grouped_matmul_acc(const tl_kernel_args *args) { return multiply_groups(args, false, true); }
bool cpu_grouped_outer(const tl_kernel_args *args) { return multiply_groups(args, true, false); }
bool cpu_grouped_outer_acc(const tl_kernel_args *args) { return multiply_groups(args, true, true); }

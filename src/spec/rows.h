/* rows.h: a stack of rows (...,c) read as one matrix (rows, c), for kernels of products.
 *
 * No view is made for it: a view would be a node of the graph between an input and its product, and the gradients
 * of several products of one input could then not be added by the products themselves.
 */
#ifndef SPEC_ROWS_H
#define SPEC_ROWS_H

#include "tally.h"

struct folded {
    tl_operand operand;
    int64_t shape[2], stride[2];
};

/* The stride of the rows of (...,c): that of the last leading axis that has more than one index. */
static inline int64_t fold_row_stride(int rank, const int64_t *shape, const int64_t *stride) {
    for (int i = rank - 2; i >= 0; i--)
        if (shape[i] != 1) return stride[i];
    return rank ? shape[rank - 1] : 1;
}

/* Whether all rows lie one row stride apart. */
static inline bool fold_is_even(int rank, const int64_t *shape, const int64_t *stride) {
    int64_t expected = fold_row_stride(rank, shape, stride);
    for (int i = rank - 2; i >= 0; i--) {
        if (shape[i] != 1 && stride[i] != expected) return false;
        expected *= shape[i];
    }
    return true;
}

/* `f` holds the shape and must outlive the result. Matrices stay as they are. */
static inline const tl_operand *fold_operand(struct folded *f, const tl_operand *x) {
    if (x->rank <= 2) return x;
    f->shape[0] = 1;
    for (int i = 0; i < x->rank - 1; i++) f->shape[0] *= x->shape[i];
    f->shape[1] = x->shape[x->rank - 1];
    f->stride[0] = fold_row_stride(x->rank, x->shape, x->stride);
    f->stride[1] = x->stride[x->rank - 1];
    f->operand = (tl_operand){.data = x->data, .dtype = x->dtype, .rank = 2, .shape = f->shape, .stride = f->stride};
    return &f->operand;
}

#endif

/* iterate.c: alignment, simplification and stepping of strided operands; see iterate.h. */
#include "device/cpu/shared/iterate.h"

#include "tensor/dtype.h"

int64_t iterate_element_bytes(tl_dtype dtype) { return dtype_info(dtype)->bits / 8; }

int64_t iterate_numel(const tl_operand *operand) {
    int64_t n = 1;
    for (int axis = 0; axis < operand->rank; axis++) n *= operand->shape[axis];
    return n;
}

bool iterate_is_dense(const tl_operand *operand) {
    int64_t expected = 1;
    bool is_dense = true;
    for (int axis = operand->rank - 1; axis >= 0; axis--) {
        if (operand->shape[axis] == 0) return true;
        if (operand->shape[axis] != 1 && operand->stride[axis] != expected) is_dense = false;
        expected *= operand->shape[axis];
    }
    return is_dense;
}

/* The operand's byte stride along `axis` of a shape of `rank` axes; 0 where it is broadcast. */
static int64_t aligned_stride(const tl_operand *operand, int rank, int axis) {
    const int own_axis = axis - (rank - operand->rank);
    if (own_axis < 0 || operand->shape[own_axis] == 1) return 0;
    return operand->stride[own_axis] * iterate_element_bytes(operand->dtype);
}

static int64_t magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

void iterate_swap(struct iterate *walk, int a, int b) {
    const int64_t size = walk->size[a];
    walk->size[a] = walk->size[b];
    walk->size[b] = size;
    for (int i = 0; i < walk->n_operands; i++) {
        const int64_t stride = walk->stride[i][a];
        walk->stride[i][a] = walk->stride[i][b];
        walk->stride[i][b] = stride;
    }
}

/* True when axis b belongs outside axis a: the first operand in which the two strides differ decides. */
static bool is_outer(const struct iterate *walk, int b, int a) {
    for (int i = 0; i < walk->n_operands; i++) {
        const int64_t stride_a = magnitude(walk->stride[i][a]), stride_b = magnitude(walk->stride[i][b]);
        if (stride_a != stride_b) return stride_b > stride_a;
    }
    return false;
}

/* Insertion sort, stable: large strides outside. */
static void sort_axes(struct iterate *walk) {
    for (int axis = 1; axis < walk->rank; axis++)
        for (int b = axis; b > 0 && is_outer(walk, b, b - 1); b--) iterate_swap(walk, b, b - 1);
}

/* True when axis `outer` just continues where axis `inner` ends, in every operand. */
static bool can_join(const struct iterate *walk, int outer, int inner) {
    for (int i = 0; i < walk->n_operands; i++)
        if (walk->stride[i][outer] != walk->stride[i][inner] * walk->size[inner]) return false;
    return true;
}

/* Joins neighbours; `rank` shrinks. */
static void join_axes(struct iterate *walk) {
    int kept = 0; /* the axis that is being grown */
    for (int axis = 1; axis < walk->rank; axis++) {
        if (can_join(walk, kept, axis)) {
            walk->size[kept] *= walk->size[axis];
        } else {
            kept++;
            walk->size[kept] = walk->size[axis];
        }
        for (int i = 0; i < walk->n_operands; i++) walk->stride[i][kept] = walk->stride[i][axis];
    }
    walk->rank = kept + 1;
}

void iterate_begin(struct iterate *walk, int rank, const int64_t *shape, const tl_operand *const *operands,
                   int n_operands, enum iterate_order order) {
    walk->n_operands = n_operands;
    walk->rank = 0;
    walk->n = 1;
    for (int i = 0; i < n_operands; i++) walk->data[i] = operands[i]->data;
    for (int axis = 0; axis < rank; axis++) {
        walk->n *= shape[axis];
        if (shape[axis] == 1) continue;
        walk->size[walk->rank] = shape[axis];
        for (int i = 0; i < n_operands; i++) walk->stride[i][walk->rank] = aligned_stride(operands[i], rank, axis);
        walk->rank++;
    }

    if (walk->rank == 0) { /* a scalar is one axis of size 1 */
        walk->rank = 1;
        walk->size[0] = 1;
        for (int i = 0; i < n_operands; i++) walk->stride[i][0] = iterate_element_bytes(operands[i]->dtype);
    }
    if (order == ITERATE_ANY_ORDER) sort_axes(walk);
    join_axes(walk);
    for (int i = 0; i < n_operands; i++) walk->step[i] = walk->stride[i][walk->rank - 1];
}

void iterate_seek(const struct iterate *walk, struct iterate_run *run, int64_t first, int64_t last) {
    run->next = first;
    run->last = last < walk->n ? last : walk->n;
    if (run->next >= run->last) return;
    for (int i = 0; i < walk->n_operands; i++) run->at[i] = walk->data[i];
    int64_t rest = first;
    for (int axis = walk->rank - 1; axis >= 0; axis--) {
        run->index[axis] = rest % walk->size[axis];
        rest /= walk->size[axis];
        for (int i = 0; i < walk->n_operands; i++) run->at[i] += run->index[axis] * walk->stride[i][axis];
    }
}

/* To the start of the next row: like an odometer, of which the wheel of `axis` has just come full circle. */
static void next_row(const struct iterate *walk, struct iterate_run *run, int axis) {
    for (; axis >= 0; axis--) {
        if (run->index[axis] < walk->size[axis]) return;
        run->index[axis] = 0;
        for (int i = 0; i < walk->n_operands; i++) run->at[i] -= walk->size[axis] * walk->stride[i][axis];
        if (axis == 0) return;
        run->index[axis - 1]++;
        for (int i = 0; i < walk->n_operands; i++) run->at[i] += walk->stride[i][axis - 1];
    }
}

bool iterate_next(const struct iterate *walk, struct iterate_run *run, int64_t max_length) {
    if (run->next >= run->last) return false;
    const int inner = walk->rank - 1;
    int64_t length = walk->size[inner] - run->index[inner];
    if (length > run->last - run->next) length = run->last - run->next;
    if (length > max_length) length = max_length;

    run->length = length;
    run->position = run->next;
    run->next += length;
    run->index[inner] += length;
    for (int i = 0; i < walk->n_operands; i++) {
        run->data[i] = run->at[i];
        run->at[i] += length * walk->step[i];
    }
    if (run->index[inner] == walk->size[inner]) next_row(walk, run, inner);
    return true;
}

int64_t iterate_rows(const struct iterate *walk, struct iterate_run *run) {
    const int inner = walk->rank - 1, axis = inner - 1;
    if (axis < 0 || run->length != walk->size[inner] || run->index[axis] == 0) return 0;
    int64_t n = (run->last - run->next) / run->length;
    if (n > walk->size[axis] - run->index[axis]) n = walk->size[axis] - run->index[axis];
    run->next += n * run->length;
    run->index[axis] += n;
    for (int i = 0; i < walk->n_operands; i++) run->at[i] += n * walk->stride[i][axis];
    if (run->index[axis] == walk->size[axis]) next_row(walk, run, axis);
    return n;
}

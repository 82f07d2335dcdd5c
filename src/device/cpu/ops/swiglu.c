/* swiglu.c: the gradients of silu(gate) * up, both in one pass. The forward pass is in elementwise.c.
 *
 * With y = silu(gate): dup = g y and dgate = g up silu'(gate). y is computed again: reading it would cost as much.
 */
#include "base/scratch.h"
#include "device/cpu/shared/block.h"
#include "device/cpu/shared/iterate.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "device/cpu/shared/vector_math.h"
#include "spec/attr.h"
#include "tensor/dtype.h"

enum { D_GATE, D_UP, GATE, UP, G, OPERANDS };
enum { PIECE = 512 };

struct swiglu {
    struct iterate walk;
    tl_dtype dtype[OPERANDS];
    int64_t stride[OPERANDS]; /* along the innermost axis, in elements */
};

#define REAL float
#define REAL_DTYPE TL_F32
#define NAME(name) name##_f32
#include "device/cpu/ops/swiglu_template.h"

#define REAL double
#define REAL_DTYPE TL_F64
#define NAME(name) name##_f64
#include "device/cpu/ops/swiglu_template.h"

bool cpu_swiglu_grad(const tl_kernel_args *args) {
    const tl_operand *out = &args->out[0];
    const tl_operand *operands[OPERANDS] = {out, &args->out[1], &args->in[0], &args->in[1], &args->in[2]};
    struct swiglu swiglu;
    iterate_begin(&swiglu.walk, out->rank, out->shape, operands, OPERANDS, ITERATE_ANY_ORDER);
    for (int k = 0; k < OPERANDS; k++) {
        swiglu.dtype[k] = operands[k]->dtype;
        swiglu.stride[k] = swiglu.walk.step[k] / iterate_element_bytes(operands[k]->dtype);
    }
    parallel_for(swiglu.walk.n, parallel_grain(4), args->n_threads,
                 dtype_compute(out->dtype) == TL_F64 ? swiglu_grad_range_f64 : swiglu_grad_range_f32, &swiglu);
    return true;
}

/* rope.c: rotary positions. */
#include "device/cpu/shared/block.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "spec/attr.h"
#include "spec/rope.h"
#include "tensor/dtype.h"

#include <math.h>

struct rope {
    const tl_operand *x, *out;
    const struct attr_rope *attr;
    double sign;
    int64_t first_position;
};

enum { ROPE_PAIRS = 256, ROPE_POSITIONS = 16 };

#define REAL float
#define NAME(name) name##_f32
#include "device/cpu/ops/rope_template.h"

#define REAL double
#define NAME(name) name##_f64
#include "device/cpu/ops/rope_template.h"

bool cpu_rope(const tl_kernel_args *args) {
    const struct attr_rope *attr = args->attr;
    struct rope rope = {
        .x = &args->in[0],
        .out = &args->out[0],
        .attr = attr,
        .sign = attr->inverse ? -1 : 1,
        .first_position = attr->first_position,
    };
    parallel_for(rope.x->shape[1], ROPE_POSITIONS, args->n_threads,
                 dtype_compute(rope.x->dtype) == TL_F64 ? rope_positions_f64 : rope_positions_f32, &rope);
    return true;
}

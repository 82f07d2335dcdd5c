/* rope.c: rotary positions. */
#include "device/cpu/shared/block.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "spec/attr.h"
#include "spec/rope.h"
#include "tensor/dtype.h"

#include <math.h>
#include <string.h>

struct rope {
    const tl_operand *x, *out;
    const tl_operand *positions; /* (B,T); NULL: first_position + t in every row of the batch */
    const struct attr_rope *attr;
    double sign, magnitude;
    int64_t first_position;
};

enum { ROPE_PAIRS = 256, ROPE_POSITIONS = 16 };

static int64_t position_at(const struct rope *rope, int64_t b, int64_t t) {
    const tl_operand *x = rope->positions;
    if (!x) return rope->first_position + t;
    return block_integer(x, b * x->stride[0] + t * x->stride[1]);
}

/* Copies the channels of every head that do not turn. */
static void rope_keep(const struct rope *rope, int64_t first, int64_t last) {
    const tl_operand *x = rope->x, *out = rope->out;
    const int64_t B = x->shape[0], T = x->shape[1], H = x->shape[2], D = x->shape[3],
                  from = 2 * rope_half(rope->attr, D);
    const int64_t bytes = dtype_info(x->dtype)->bits / 8;
    for (int64_t t = first; from < D && t < last; t++) {
        for (int64_t row = 0; row < B * H; row++) {
            const int64_t b = row / H, h = row % H, at = ((b * T + t) * H + h) * D + from;
            memcpy((char *)out->data + at * bytes, (const char *)x->data + (block_row_at(x, b, t, h) + from) * bytes,
                   (size_t)((D - from) * bytes));
        }
    }
}

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
        .positions = attr->has_positions ? &args->in[1] : NULL,
        .attr = attr,
        .sign = attr->inverse ? -1 : 1,
        .magnitude = rope_magnitude(attr),
        .first_position = attr->first_position,
    };
    parallel_for(rope.x->shape[1], ROPE_POSITIONS, args->n_threads,
                 dtype_compute(rope.x->dtype) == TL_F64 ? rope_positions_f64 : rope_positions_f32, &rope);
    return true;
}

/* rope.c: rotary positions. */
#include "device/cpu/shared/block.h"
#include "device/cpu/shared/kernels.h"
#include "device/cpu/shared/parallel.h"
#include "spec/attr.h"
#include "spec/rope.h"
#include "tensor/dtype.h"

#include <math.h>
#include <stdio.h>
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

static void turn(const tl_kernel_args *args, const tl_operand *x, const tl_operand *out, const tl_operand *positions) {
    const struct attr_rope *attr = args->attr;
    struct rope rope = {
        .x = x,
        .out = out,
        .positions = positions,
        .attr = attr,
        .sign = attr->inverse ? -1 : 1,
        .magnitude = rope_magnitude(attr),
        .first_position = attr->first_position,
    };
    parallel_for(rope.x->shape[1], ROPE_POSITIONS, args->n_threads,
                 dtype_compute(rope.x->dtype) == TL_F64 ? rope_positions_f64 : rope_positions_f32, &rope);
}

bool cpu_rope(const tl_kernel_args *args) {
    const struct attr_rope *attr = args->attr;
    turn(args, &args->in[0], &args->out[0], attr->has_positions ? &args->in[1] : NULL);
    return true;
}

static bool places_fit(const tl_kernel_args *args, const tl_operand *place, int64_t S) {
    for (int64_t i = 0; i < place->shape[0] * place->shape[1]; i++) {
        const int64_t b = i / place->shape[1], t = i % place->shape[1];
        const int64_t at = block_integer(place, b * place->stride[0] + t * place->stride[1]);
        if (at >= 0 && at < S) continue;
        snprintf(args->error, 200, "place %lld is outside the %lld keys", (long long)at, (long long)S);
        return false;
    }
    return true;
}

/* The rows of x (B,T,H,D) become tokens `place` of to[which] (B,H,S,D). */
static void rows_put(const tl_operand *to, int64_t which, const tl_operand *x, const tl_operand *place) {
    const int64_t B = x->shape[0], T = x->shape[1], H = x->shape[2], bytes = dtype_info(x->dtype)->bits / 8;
    for (int64_t row = 0; row < B * T * H; row++) {
        const int64_t b = row / H / T, t = row / H % T, h = row % H;
        const int64_t s = block_integer(place, b * place->stride[0] + t * place->stride[1]);
        const int64_t at = which * to->stride[0] + b * to->stride[1] + h * to->stride[2] + s * to->stride[3];
        memcpy((char *)to->data + at * bytes, (const char *)x->data + block_row_at(x, b, t, h) * bytes,
               (size_t)(x->shape[3] * bytes));
    }
}

bool cpu_rope_put(const tl_kernel_args *args) {
    enum { Q, K, V, CACHE, PLACE };
    const tl_operand *k = &args->in[K], *cache = &args->in[CACHE], *place = &args->in[PLACE];
    const int64_t H = k->shape[2], D = k->shape[3], stride[4] = {k->shape[1] * H * D, H * D, D, 1};
    if (!places_fit(args, place, cache->shape[3])) return false;
    tl_operand turned = *k;
    turned.data = args->workspace;
    turned.stride = stride;
    turn(args, &args->in[Q], &args->out[0], place);
    if (args->workspace) turn(args, k, &turned, place);
    rows_put(cache, 0, &turned, place);
    rows_put(cache, 1, &args->in[V], place);
    return true;
}

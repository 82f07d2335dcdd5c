/* head_rule.h: how linear_cross_entropy runs on a GPU, and the workspace that follows: for the kernels and the
 * rules. */
#ifndef DEVICE_CUDA_HEAD_RULE_H
#define DEVICE_CUDA_HEAD_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "device/cuda/shared/limits.h"
#include "spec/attr.h"

struct head_sizes {
    int64_t N, V, C; /* x (N,C), weight (V,C) */
    tl_dtype dtype;  /* of both */
};

/* Bytes of an element of x or of a logit, and of a sum. */
static inline uint64_t head_element_bytes(tl_dtype dtype) { return dtype == TL_F64 ? 8 : dtype == TL_F32 ? 4 : 2; }
static inline uint64_t head_sum_bytes(tl_dtype dtype) { return dtype == TL_F64 ? 8 : 4; }

/* A row of logits in the workspace has so many elements: products need even sizes. */
static inline int64_t head_pitch(int64_t V) { return (V + HEAD_ALIGN - 1) / HEAD_ALIGN * HEAD_ALIGN; }

/* On Hopper's tensor cores a product of our own writes exponentials instead of logits. e^11 is the largest of f16, so
 * bf16 alone has them, and the plain loss. With few tiles for each multiprocessor, the parts are faster. */
#define HEAD_LEAST ((int64_t)1 << 24) /* logits of a chunk */
static inline bool head_fits_hopper(const struct head_sizes *s, const struct attr_linear_cross_entropy *a,
                                    int capability) {
    return capability / 10 == 9 && s->dtype == TL_BF16 && s->C > 0 && s->C % 8 == 0 && s->V > 0 &&
           a->chunk_rows >= HEAD_LEAST / s->V && a->soft_cap == 0 && a->label_smoothing == 0 && a->z_weight == 0;
}

/* Parts of the workspace, in bytes, in this order, after what products need. */
enum head_part {
    HEAD_LOGITS,  /* of a chunk, or exponentials */
    HEAD_LOSSES,  /* of all rows */
    HEAD_SUMS,    /* of dweight, where that is narrower than f32 */
    HEAD_TABLE,   /* the weight, padded with zeros, where V is no multiple of HEAD_ALIGN */
    HEAD_ROWS,    /* on Hopper: HEAD_ROW_FLOATS for each row of a chunk */
    HEAD_PARTIAL, /* a float for each row of a chunk and HEAD_TILE columns */
    HEAD_SCALED,  /* rows of x */
    HEAD_PAIRS,   /* the numbers of pairs of tiles to compute again, and how many */
    HEAD_PARTS
};
enum { HEAD_ROW_FLOATS = 4, HEAD_TILE = 128, HEAD_PAIR = 256 };

struct head_room {
    uint64_t part[HEAD_PARTS], all;
};
static inline struct head_room head_room_of(const struct head_sizes *s, const struct attr_linear_cross_entropy *a,
                                            int capability) {
    const uint64_t rows = (uint64_t)a->chunk_rows, pitch = (uint64_t)head_pitch(s->V), C = (uint64_t)s->C;
    const uint64_t element = head_element_bytes(s->dtype), wide = head_sum_bytes(s->dtype);
    const bool is_narrow = element == 2, is_hopper = head_fits_hopper(s, a, capability);
    struct head_room room = {{0}, 0};
    room.part[HEAD_LOGITS] = rows * pitch * element;
    room.part[HEAD_LOSSES] = (uint64_t)s->N * wide;
    room.part[HEAD_SUMS] = a->gives_dweight && is_narrow ? pitch * C * wide : 0;
    room.part[HEAD_TABLE] = is_narrow && pitch != (uint64_t)s->V ? pitch * C * element : 0;
    if (is_hopper) {
        room.part[HEAD_ROWS] = rows * HEAD_ROW_FLOATS * sizeof(float);
        room.part[HEAD_PARTIAL] = (pitch + HEAD_TILE - 1) / HEAD_TILE * rows * sizeof(float);
        room.part[HEAD_SCALED] = a->gives_dweight ? rows * C * element : 0;
        room.part[HEAD_PAIRS] = (1 + (rows + HEAD_PAIR - 1) / HEAD_PAIR) * sizeof(int);
    }
    for (int i = 0; i < HEAD_PARTS; i++) {
        room.part[i] = (room.part[i] + 63) / 64 * 64;
        room.all += room.part[i];
    }
    return room;
}

#endif

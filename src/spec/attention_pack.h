/* attention_pack.h: where dq, dk and dv lie in the packed result of attention_grad, (B,T,H+2Hkv,D). */
#ifndef SPEC_ATTENTION_PACK_H
#define SPEC_ATTENTION_PACK_H

#include <string.h>

#include "tally.h"

struct attention_parts {
    tl_operand part[3]; /* dq, dk, dv: the strides are those of the packed result */
    int64_t shape[3][4];
};

/* The parts of `packed`, for H query heads and H_kv key heads of elements of `bytes`. They point into `parts`. */
static inline void attention_unpack(struct attention_parts *parts, const tl_operand *packed, int64_t H, int64_t H_kv,
                                    size_t bytes) {
    const int64_t first[3] = {0, H, H + H_kv}, heads[3] = {H, H_kv, H_kv};
    for (int j = 0; j < 3; j++) {
        memcpy(parts->shape[j], packed->shape, sizeof parts->shape[j]);
        parts->shape[j][2] = heads[j];
        parts->part[j] = *packed;
        parts->part[j].shape = parts->shape[j];
        if (packed->data) /* empty tensors may have none */
            parts->part[j].data = (char *)packed->data + (size_t)(first[j] * packed->stride[2]) * bytes;
    }
}

#endif

/* pattern_calls.h: every function that reads a pattern, by number. */
#ifndef TESTS_SUPPORT_PATTERN_CALLS_H
#define TESTS_SUPPORT_PATTERN_CALLS_H

#include <stdint.h>
#include <stdlib.h>

#include "tally.h"

enum call { REARRANGE, REDUCE, REPEAT, EINSUM, LETTERS, PACK, UNPACK, SHAPE, EXPECT, N_CALLS };

/* Not 0 when the call accepted its pattern. Einsum and pack take both tensors. */
static inline uintptr_t pattern_call(enum call call, tl_tensor *x, tl_tensor *y, const char *pattern,
                                     const char *lengths) {
    tl_tensor *both[2] = {x, y}, *parts[2];
    tl_packed shapes[2] = {{1, {lengths ? atoi(lengths) : 3}}, {1, {lengths ? atoi(lengths) : 3}}};
    tl_dims d = {0};
    switch (call) {
    case REARRANGE:
        return (uintptr_t)tl_rearrange(x, pattern, lengths);
    case REDUCE:
        return (uintptr_t)tl_reduce(x, pattern, "sum", lengths);
    case REPEAT:
        return (uintptr_t)tl_repeat(x, pattern, lengths);
    case EINSUM:
        return (uintptr_t)tl_einsum(pattern, both, 2);
    case LETTERS:
        return (uintptr_t)tl_einsum_letters(pattern, both, 2);
    case PACK:
        return (uintptr_t)tl_pack(both, 2, pattern, shapes);
    case UNPACK:
        return tl_unpack(x, shapes, 2, pattern, parts);
    case SHAPE:
        return tl_parse_shape(x, pattern, &d);
    default:
        return tl_expect(&d, x, "x", pattern);
    }
}

#endif

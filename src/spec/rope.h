/* rope.h: the frequency of a pair of channels, for every device. */
#ifndef SPEC_ROPE_H
#define SPEC_ROPE_H

#include <math.h>

#include "base/device_fn.h"
#include "spec/attr.h"

/* base^(-i/half) radians per position for pair i of `half`, slowed down as tl_rope says. */
DEVICE_FN double rope_frequency(const struct attr_rope *a, int64_t i, int64_t half) {
    const double plain = pow(a->base, -(double)i / (double)half);
    const tl_rope_scaling *s = &a->scaling;
    if (s->factor == 0 || s->factor == 1) return plain;
    if (!s->original_context) return plain / s->factor;
    const double turns = (double)s->original_context * plain / 6.283185307179586;
    if (turns > s->high_frequency) return plain;
    if (turns < s->low_frequency) return plain / s->factor;
    const double share = (turns - s->low_frequency) / (s->high_frequency - s->low_frequency);
    return (1 - share) * plain / s->factor + share * plain;
}

#endif

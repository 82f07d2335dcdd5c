/* rope.h: the frequency of a pair of channels, for every device. */
#ifndef SPEC_ROPE_H
#define SPEC_ROPE_H

#include <math.h>

#include "base/device_fn.h"
#include "spec/attr.h"

/* Half of the channels that turn, of a head of D. */
DEVICE_FN int64_t rope_half(const struct attr_rope *a, int64_t D) {
    return (a->scaling.size ? a->scaling.size : D) / 2;
}

DEVICE_FN double rope_magnitude(const struct attr_rope *a) { return a->scaling.magnitude ? a->scaling.magnitude : 1; }

/* The pair that turns `turns` times within the original context. */
DEVICE_FN double rope_pair_of(const struct attr_rope *a, double turns, int64_t half) {
    return (double)half * log((double)a->scaling.original_context / (turns * 6.283185307179586)) / log(a->base);
}

/* How much of pair i is interpolated. */
DEVICE_FN double rope_yarn_share(const struct attr_rope *a, int64_t i, int64_t half) {
    double low = rope_pair_of(a, a->scaling.high_frequency, half);
    double high = rope_pair_of(a, a->scaling.low_frequency, half);
    if (a->scaling.rule == TL_ROPE_YARN) low = floor(low), high = ceil(high);
    if (low < 0) low = 0;
    if (high > (double)(2 * half - 1)) high = (double)(2 * half - 1);
    if (low == high) high += 0.001;
    const double share = ((double)i - low) / (high - low);
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

/* base^(-i/half) radians per position for pair i of `half`, slowed down as tl_rope says. */
DEVICE_FN double rope_frequency(const struct attr_rope *a, int64_t i, int64_t half) {
    const double plain = pow(a->base, -(double)i / (double)half);
    const tl_rope_scaling *s = &a->scaling;
    if (s->factor == 0 || s->factor == 1 || s->rule == TL_ROPE_DYNAMIC) return plain;
    if (s->rule == TL_ROPE_YARN || s->rule == TL_ROPE_YARN_EXACT) {
        const double share = rope_yarn_share(a, i, half);
        return plain / s->factor * share + plain * (1 - share);
    }
    if (s->rule == TL_ROPE_LIST) return plain / (double)s->slower[i < 64 ? i : 63];
    if (!s->original_context) return plain / s->factor;
    const double turns = (double)s->original_context * plain / 6.283185307179586;
    if (turns >= s->high_frequency) return plain;
    if (turns < s->low_frequency) return plain / s->factor;
    const double share = (turns - s->low_frequency) / (s->high_frequency - s->low_frequency);
    return (1 - share) * plain / s->factor + share * plain;
}

#endif

/* noise.h: the gradient noise scale (McCandlish et al. 2018, appendix A.1), from the norms of gradients of two sizes of
 * batch. With B tokens a gradient's expected square is |G|^2 + S / B, where G is the true gradient and S the trace of
 * the covariance of one token's; two sizes give both, without bias:
 *
 *     |G|^2 = (B |g_B|^2 - b |g_b|^2) / (B - b)        S = (|g_b|^2 - |g_B|^2) / (1/b - 1/B)
 *
 * Their ratio S / |G|^2 is the critical batch size in tokens: far below it, twice the batch needs half of the steps. A
 * step's estimates are noisy, and those of |G|^2 may be negative, so each is averaged over steps before the ratio. The
 * first steps have equal weights: one estimate of the wrong sign does not outweigh those after it. */
#ifndef STEP_NOISE_H
#define STEP_NOISE_H

#include <stdbool.h>
#include <stdint.h>

#define NOISE_DECAY 0.99 /* of both averages; the first 100 steps have equal weights */

struct noise {
    double square, trace; /* averages of |G|^2 and S */
    int64_t n;            /* steps in them */
};

/* The squared norms of a gradient of `small` tokens and of `large`. Those that are not finite are left out. */
void noise_add(struct noise *noise, double small_square, double large_square, double small, double large);
double noise_scale(const struct noise *noise); /* in tokens; NAN: no step, or an average that is not positive */

#endif

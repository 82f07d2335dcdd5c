#include "step/noise.h"

#include <math.h>

void noise_add(struct noise *noise, double small_square, double large_square, double small, double large) {
    const double square = (large * large_square - small * small_square) / (large - small),
                 trace = (small_square - large_square) / (1 / small - 1 / large);
    if (!isfinite(square) || !isfinite(trace)) return;
    const double mean = 1 / (double)++noise->n, weight = mean > 1 - NOISE_DECAY ? mean : 1 - NOISE_DECAY;
    noise->square += weight * (square - noise->square);
    noise->trace += weight * (trace - noise->trace);
}

double noise_scale(const struct noise *noise) {
    return noise->n && noise->square > 0 && noise->trace > 0 ? noise->trace / noise->square : NAN;
}

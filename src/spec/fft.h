/* fft.h: how long the parts of a transform's workspace are, for the rule and the kernel alike.
 *
 * Lengths whose prime factors are small are transformed by them. Any other length n is a convolution with a chirp
 * (Bluestein), of a power of two that is at least 2n - 1.
 */
#ifndef SPEC_FFT_H
#define SPEC_FFT_H

#include <stdbool.h>
#include <stdint.h>

#define FFT_LARGEST_FACTOR 31       /* beyond it a chirp is faster */
#define FFT_MOST ((int64_t)1 << 40) /* numbers of one transform */
#define FFT_LANES 16                /* transforms that run side by side, each with buffers of its own; not on cuda */

static inline bool fft_is_smooth(int64_t n) {
    for (int64_t p = 2; p <= FFT_LARGEST_FACTOR; p++)
        while (n % p == 0) n /= p;
    return n == 1;
}

/* The length of the transform that is done by factors. */
static inline int64_t fft_inner(int64_t n) {
    if (fft_is_smooth(n)) return n;
    int64_t m = 1;
    while (m < 2 * n - 1) m *= 2;
    return m;
}

static inline int64_t fft_lanes(int64_t n_transforms) { return n_transforms < FFT_LANES ? n_transforms : FFT_LANES; }

/* Roots of unity, chirp and its transform where there is one, and two buffers for each lane. */
static inline int64_t fft_doubles(int64_t n, int64_t n_lanes) {
    const int64_t m = fft_inner(n);
    return 2 * m + (m != n ? 2 * n + 2 * m : 0) + n_lanes * 4 * m;
}

#endif

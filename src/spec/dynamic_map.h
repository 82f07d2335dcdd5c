/* dynamic_map.h: the 8-bit numbers of optimizer states (Dettmers et al. 2022, "8-bit Optimizers via Block-wise
 * Quantization"; the maps of bitsandbytes and torchao).
 *
 * A block of DYNAMIC_BLOCK elements shares an f32 scale, its largest magnitude; an element is map[code] x scale. The
 * map has 7 decades below 1, with twice as many values in each as in the one before: those of decade i, 0 to 6, are
 * the middles of n equal parts of 0.1 .. 1, times 10^(i-6), where n is 2^i for numbers with a sign and 2^(i+1) for
 * others. 0 and 1 complete it. In the map with a sign 127 + k is the code of magnitude k and 127 - k of its negative;
 * 1 has none.
 *
 * The code of x is that of the value nearest to x / scale; of two equally near, the larger magnitude. A block of zeros
 * has scale 0. A block with an infinity or a NaN has it as its scale. */
#ifndef SPEC_DYNAMIC_MAP_H
#define SPEC_DYNAMIC_MAP_H

enum { DYNAMIC_BLOCK = 256, DYNAMIC_ZERO = 127, DYNAMIC_MAGNITUDES = 129, DYNAMIC_POSITIVES = 256 };

/* n values from the j-th on of a decade of n. */
#define DYNAMIC_1(unit, n, j) (float)((unit) * (0.1 + 0.9 * ((j) + 0.5) / (n))),
#define DYNAMIC_2(unit, n, j) DYNAMIC_1(unit, n, j) DYNAMIC_1(unit, n, (j) + 1)
#define DYNAMIC_4(unit, n, j) DYNAMIC_2(unit, n, j) DYNAMIC_2(unit, n, (j) + 2)
#define DYNAMIC_8(unit, n, j) DYNAMIC_4(unit, n, j) DYNAMIC_4(unit, n, (j) + 4)
#define DYNAMIC_16(unit, n, j) DYNAMIC_8(unit, n, j) DYNAMIC_8(unit, n, (j) + 8)
#define DYNAMIC_32(unit, n, j) DYNAMIC_16(unit, n, j) DYNAMIC_16(unit, n, (j) + 16)
#define DYNAMIC_64(unit, n, j) DYNAMIC_32(unit, n, j) DYNAMIC_32(unit, n, (j) + 32)
#define DYNAMIC_128(unit, n, j) DYNAMIC_64(unit, n, j) DYNAMIC_64(unit, n, (j) + 64)
#define DYNAMIC_DECADE(count, unit) DYNAMIC_##count(unit, count, 0)

/* Initialisers, rising: the magnitudes of numbers with a sign, and the numbers without one. */
#define DYNAMIC_MAGNITUDE_LIST                                                                            \
    0.0f, DYNAMIC_DECADE(1, 1e-6) DYNAMIC_DECADE(2, 1e-5) DYNAMIC_DECADE(4, 1e-4) DYNAMIC_DECADE(8, 1e-3) \
              DYNAMIC_DECADE(16, 1e-2) DYNAMIC_DECADE(32, 1e-1) DYNAMIC_DECADE(64, 1.0) 1.0f
#define DYNAMIC_POSITIVE_LIST                                                                              \
    0.0f, DYNAMIC_DECADE(2, 1e-6) DYNAMIC_DECADE(4, 1e-5) DYNAMIC_DECADE(8, 1e-4) DYNAMIC_DECADE(16, 1e-3) \
              DYNAMIC_DECADE(32, 1e-2) DYNAMIC_DECADE(64, 1e-1) DYNAMIC_DECADE(128, 1.0) 1.0f

#endif

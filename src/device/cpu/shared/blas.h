/* blas.h: the one setting of the BLAS library. */
#ifndef TALLY_DEVICE_CPU_BLAS_H
#define TALLY_DEVICE_CPU_BLAS_H

/* Switches the library's own threads off, once: there is one thread pool in this process, and how work is cut, hence
 * the bits, does not depend on its size. */
void blas_hold_to_one_thread(void);

#endif

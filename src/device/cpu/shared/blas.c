/* blas.c: the one setting of the BLAS library. */
#include "device/cpu/shared/blas.h"

#include <pthread.h>
#include <stdint.h>

static void hold(void) {
#if defined(TALLY_BLAS_BLIS)
    void bli_thread_set_num_threads(int64_t n_threads);
    bli_thread_set_num_threads(1);
#elif defined(TALLY_BLAS_OPENBLAS)
    void openblas_set_num_threads(int n_threads);
    openblas_set_num_threads(1);
#endif
}

void blas_hold_to_one_thread(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, hold);
}

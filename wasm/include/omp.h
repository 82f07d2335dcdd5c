/* omp.h: OpenMP of a program with one thread, which ignores its pragmas. */
#ifndef WASM_OMP_H
#define WASM_OMP_H

static inline int omp_get_max_threads(void) { return 1; }
static inline int omp_get_thread_num(void) { return 0; }
static inline int omp_in_parallel(void) { return 0; }

#endif

/* system.h: included before every source: what the C library of the browser build does not declare. absent.c has it. */
#ifndef WASM_SYSTEM_H
#define WASM_SYSTEM_H

#include <stddef.h>

void qsort_r(void *base, size_t n, size_t size, int (*compare)(const void *, const void *, void *), void *context);

#endif

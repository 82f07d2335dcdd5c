/* process.h: tells a forked child from its parent; cores and memory of the process. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <stdint.h>

/* 0 in the first process, one more in each generation of forked children. */
int process_generation(void);

/* Bytes of memory: of the machine, or the cgroup's limit if that is less. 0: unknown. */
uint64_t process_memory_bytes(void);

/* Threads that a cpu kernel may use now. */
int process_threads(void);

#endif

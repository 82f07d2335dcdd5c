/* process.h: telling a forked child from the process it came from; what the process may have. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <stdint.h>

/* 0 in the process that first asked, one more in each generation of forked children. */
int process_generation(void);

/* Bytes of memory: what is built into the machine, or what this group of processes may have, if that is less. 0: not known. */
uint64_t process_memory_bytes(void);

/* Threads that a cpu kernel may use now. */
int process_threads(void);

#endif

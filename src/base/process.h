/* process.h: telling a forked child from the process it came from. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

/* 0 in the process that first asked, one more in each generation of forked children. */
int process_generation(void);

#endif

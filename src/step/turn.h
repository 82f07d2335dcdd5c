/* turn.h: one run at a time in a process.
 *
 * The pool's peaks and limit, the number of threads, the precision of products and whether kernels may be fast belong
 * to the process: two runs at once would count in each other's receipts and change each other's bits. So while one
 * run is training, a second run is refused, in any thread, and so is a price; prices, which are short, wait for each
 * other. A process forked from one that trains is free. */
#ifndef STEP_TURN_H
#define STEP_TURN_H

#include <stdbool.h>

/* `run`: the folder of a run that is to be trained; NULL: something is to be priced, also within a run of the same
 * thread. False: recorded. */
bool turn_take(const char *run);
void turn_give(void);

#endif

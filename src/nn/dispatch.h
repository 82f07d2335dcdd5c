/* dispatch.h: rows on their way to the ranks that have their experts, and back (ep).
 *
 * A rank has E/n of the experts. It sends each of its N k rows, in order of experts, to the rank of the row's expert,
 * and receives the rows of all ranks that chose one of its own. How many these are depends on the data: the ranks tell
 * each other how many rows there are for each expert, and the host reads it.
 *
 * A price cannot know it. It takes for granted that rows are spread evenly: a rank sends as many to each rank, and
 * receives as many from each, times `ep_load`. */
#ifndef NN_DISPATCH_H
#define NN_DISPATCH_H

#include "nn/model_parallel.h"
#include "tally.h"

/* Rows that this rank's experts were given, those of even shares, and the largest ratio of both in one layer. */
struct dispatch_load {
    int64_t n_rows, n_even;
    double most;
};

struct dispatch {
    tl_comm *ep;
    int64_t *counts;    /* of rows: to each rank, then from each; owned */
    tl_tensor *arrived; /* (E) i64: of each rank, rows for each of this rank's experts */
    int64_t n_sent, n_received, n_experts;
};

/* counts (E) i64: this rank's n_rows rows for each expert. All ranks of ep call it. False: recorded, and there is
 * nothing to end. */
bool dispatch_begin(struct dispatch *d, const struct parallel *p, tl_tensor *counts, int64_t n_rows,
                    struct dispatch_load *load);
void dispatch_end(struct dispatch *d);
/* rows (n_sent,C), in order of experts -> those that arrive (n_received,C), in order of ranks; and back. */
tl_tensor *dispatch_send(const struct dispatch *d, tl_tensor *rows);
tl_tensor *dispatch_return(const struct dispatch *d, tl_tensor *rows);
/* The expert of each row that arrives, (n_received) i64, from 0 on. */
tl_tensor *dispatch_experts(const struct dispatch *d);

#endif

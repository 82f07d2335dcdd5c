/* collective.h: collectives in two parts, between which other ops run, and one of rows that are counted. The parts cost
 * what the whole calls cost, and give the same bits. Input and result stay until the end, on meta too, and nobody
 * touches them. No gradient flows through them. NULL: recorded. */
#ifndef OPS_COLLECTIVE_H
#define OPS_COLLECTIVE_H

#include "tally.h"

struct collective;

/* is_beside: messages are under way when `begin` returns; otherwise they are done. */
struct collective *all_gather_begin(tl_tensor *x, tl_comm *comm, bool is_beside);
/* x has the rows of all ranks, of which this one's are there; the others' arrive in their place. */
struct collective *all_gather_begin_(tl_tensor *x, tl_comm *comm, bool is_beside);
tl_tensor *all_gather_end(struct collective *c); /* frees it; so do those below */

struct collective *reduce_scatter_begin(tl_tensor *x, tl_comm *comm, bool is_beside);
tl_tensor *reduce_scatter_end(struct collective *c, tl_comm *comm);

/* All to all, of rows that are counted: the first send[0] rows of x (rows,...) go to rank 0, the next send[1] to
 * rank 1, and so on; the result has receive[0] rows of rank 0 first. Every rank says what the others will send it; a
 * price believes it. No gradient flows through it: it is the same call with both counts exchanged. */
tl_tensor *all_to_all_rows(tl_tensor *x, const int64_t *send, const int64_t *receive, tl_comm *comm);

/* After an error elsewhere. Memory that other ranks may still write to is never freed. */
void collective_abandon(struct collective *c);

#endif

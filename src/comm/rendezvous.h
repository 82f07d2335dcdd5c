/* rendezvous.h: MPI among processes that torchrun has started. */
#ifndef COMM_RENDEZVOUS_H
#define COMM_RENDEZVOUS_H

#include <stdbool.h>

/* Whether torchrun's environment says that this is one of several processes: RANK, WORLD_SIZE, MASTER_ADDR. */
bool rendezvous_is_due(void);

/* All ranks meet at MASTER_ADDR. Afterwards MPICH's MPI_Init finds the others. False: recorded. */
bool rendezvous_begin(void);
void rendezvous_end(void); /* when MPI has begun */

#endif

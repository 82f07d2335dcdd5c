/* profile_table.h: the profile of a run for people: time by op and by module, beside the least that it could take. */
#ifndef CLI_PROFILE_TABLE_H
#define CLI_PROFILE_TABLE_H

#include "train/profile.h"

/* Adds floors, if the peaks of the device's chip are known. Records nothing. */
void profile_floors_find(struct profile *p, const char *device);
/* Prints nothing of a profile without steps. */
void profile_print(const struct profile *p, const char *device);

#endif

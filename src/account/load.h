/* load.h: costs that depend on the data: how many rows of tokens the experts of a rank are given (nn/dispatch.h). */
#ifndef ACCOUNT_LOAD_H
#define ACCOUNT_LOAD_H

#include "tally.h"

/* A part of the paths of such costs: the name of a scope. */
#define LEDGER_LOAD "by-load"

bool path_has_load(const char *path);
bool ledger_has_load(const tl_ledger *ledger); /* in a row */

#endif

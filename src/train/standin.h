#ifndef STANDIN_H
#define STANDIN_H
#include "tally.h"
static inline tl_dtype tl_autocast(tl_dtype d) { return d; }
#endif

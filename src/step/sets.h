/* sets.h: the files of held-out data that val_data names: one path, or several sets, NAME=PATH with commas between. */
#ifndef STEP_SETS_H
#define STEP_SETS_H

#include <stdbool.h>

#include "step/settings.h"

enum { SETS_MOST = 8, SETS_NAME = 32 };

struct sets {
    int n;                                         /* 0: val_data is empty */
    const char *name[SETS_MOST], *path[SETS_MOST]; /* in `text`; name "": the only one, which was given as a path */
    char text[SETTING_TEXT];
};

/* False: recorded. */
bool sets_read(struct sets *sets, const char *val_data);
/* Whether a text begins with NAME=. A file of such a name is ./NAME=... */
bool sets_is_named(const char *text);

#endif

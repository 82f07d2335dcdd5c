/* path.h: module paths as small numbers. Path 0 is "" (outside all named scopes). Numbers are never given back. */
#ifndef ACCOUNT_PATH_H
#define ACCOUNT_PATH_H

#include <stdint.h>

#define PATH_NONE UINT32_MAX

/* The number of `parent` + "." + `name`. PATH_NONE: out of memory, recorded. */
uint32_t path_enter(uint32_t parent, const char *name);
const char *path_text(uint32_t path);

#endif

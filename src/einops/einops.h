/* einops.h: checks of patterns for modules, before there is a tensor. */
#ifndef EINOPS_EINOPS_H
#define EINOPS_EINOPS_H

#include <stdbool.h>

/* Whether tl_rearrange (or tl_reduce) could accept these: a mistake in them is recorded; one that depends on the
 * tensor is not found here. An ellipsis is taken for no axis. */
bool einops_check(const char *pattern, bool reduces, const char *reduction, const char *lengths);

#endif

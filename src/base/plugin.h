/* plugin.h: libraries that are loaded when they are first needed. */
#ifndef BASE_PLUGIN_H
#define BASE_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

/* Loads libtally_NAME.so from beside the library, from the Python package tally_NAME, or from the loader's path.
 * `is_global`: what the plugin itself loads may use its symbols. NULL: why is in `why`. */
void *plugin_load(const char *name, bool is_global, char *why, size_t size);
/* Puts the address of a function into *function, of `bytes` bytes. False: the plugin has no such name. */
bool plugin_symbol(void *plugin, const char *name, void *function, size_t bytes);

#endif

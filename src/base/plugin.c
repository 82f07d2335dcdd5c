#include "base/plugin.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void *plugin_load(const char *name, bool is_global, char *why, size_t size) {
    char path[4096], file[64];
    int flags = RTLD_NOW | (is_global ? RTLD_GLOBAL : RTLD_LOCAL);
    Dl_info info;
    void *plugin = NULL;
    snprintf(file, sizeof file, "libtally_%.32s.so", name);
    if (dladdr((void *)(uintptr_t)plugin_load, &info) && info.dli_fname) {
        const char *slash = strrchr(info.dli_fname, '/');
        int n =
            snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash - info.dli_fname + 1) : 0, info.dli_fname, file);
        if (slash && n < (int)sizeof path) plugin = dlopen(path, flags);
    }
    if (!plugin) plugin = dlopen(file, flags);
    if (!plugin) snprintf(why, size, "%s", dlerror());
    return plugin;
}

/* ISO C has no cast from object to function pointer, so the bytes are copied. */
bool plugin_symbol(void *plugin, const char *name, void *function, size_t bytes) {
    void *symbol = dlsym(plugin, name);
    memcpy(function, &symbol, bytes);
    return symbol != NULL;
}

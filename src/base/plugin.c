#include "base/plugin.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Why a file did not load matters only if it is there: that another place has none is no news. */
static void *load_from(const char *path, int flags, char *why, size_t size) {
    void *plugin = dlopen(path, flags);
    if (!plugin && access(path, F_OK) == 0) snprintf(why, size, "%s", dlerror());
    return plugin;
}

/* The length of the path of the folder, with its slash, that has the library, or the program that it is part of; 0: not
 * known. A program is known by the name that it was started with, which has no folder if it was found on the PATH. */
static int own_folder(char *path, size_t size) {
    Dl_info info;
    if (!dladdr((void *)(uintptr_t)plugin_load, &info) || !info.dli_fname) return 0;
    int n = snprintf(path, size, "%s", info.dli_fname);
    if (!strchr(info.dli_fname, '/')) n = (int)readlink("/proc/self/exe", path, size - 1);
    if (n < 0 || (size_t)n >= size) return 0;
    path[n] = '\0';
    const char *slash = strrchr(path, '/');
    return slash ? (int)(slash - path + 1) : 0;
}

/* Beside the library or the program. If their folder belongs to the Python package tally, also in the package
 * tally_NAME beside it: site-packages/tally/lib and site-packages/tally_cuda. Elsewhere a folder of that name may be
 * anybody's. */
static void *load_beside(const char *name, int flags, char *why, size_t size) {
    enum { PATH = 4096, FILE_NAME = 128 };
    char path[PATH];
    const int n = own_folder(path, PATH - FILE_NAME);
    if (n == 0) return NULL;
    snprintf(path + n, FILE_NAME, "libtally_%.32s.so", name);
    void *plugin = load_from(path, flags, why, size);
    snprintf(path + n, FILE_NAME, "../__init__.py");
    if (plugin || access(path, F_OK) != 0) return plugin;
    snprintf(path + n, FILE_NAME, "../../tally_%.32s/libtally_%.32s.so", name, name);
    return load_from(path, flags, why, size);
}

void *plugin_load(const char *name, bool is_global, char *why, size_t size) {
    char file[64], reason[1024] = "";
    const int flags = RTLD_NOW | (is_global ? RTLD_GLOBAL : RTLD_LOCAL);
    void *plugin = load_beside(name, flags, reason, sizeof reason);
    snprintf(file, sizeof file, "libtally_%.32s.so", name);
    if (!plugin) plugin = dlopen(file, flags);
    if (!plugin) snprintf(why, size, "%s", *reason ? reason : dlerror());
    return plugin;
}

/* ISO C has no cast from object to function pointer, so the bytes are copied. */
bool plugin_symbol(void *plugin, const char *name, void *function, size_t bytes) {
    void *symbol = dlsym(plugin, name);
    memcpy(function, &symbol, bytes);
    return symbol != NULL;
}

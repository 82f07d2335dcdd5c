#include "account/path.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/lock.h"
#include "base/memory.h"

struct path {
    uint32_t parent, next; /* next in its bucket */
    const char *name;      /* the last part, inside text */
    char *text;
};

static struct path *paths;
static size_t n_paths, capacity;
static uint32_t bucket[4096]; /* 0: empty, since path 0 is never looked up */
static lock paths_lock = LOCK_INIT;

static size_t bucket_of(uint32_t parent, const char *name) {
    uint64_t hash = 1469598103934665603u ^ parent;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 1099511628211u;
    return (size_t)(hash ^ hash >> 32) % (sizeof bucket / sizeof *bucket);
}

static uint32_t path_add(uint32_t parent, const char *name, size_t at) {
    if (!memory_grow((void **)&paths, &capacity, n_paths + 1, sizeof *paths)) return PATH_NONE;
    if (n_paths == 0) paths[n_paths++] = (struct path){.text = NULL, .name = ""};
    const char *before = paths[parent].text ? paths[parent].text : "";
    size_t length = strlen(before) + strlen(name) + 2;
    char *text = memory_new(length);
    if (!text) return PATH_NONE;
    snprintf(text, length, "%s%s%s", before, *before ? "." : "", name);
    uint32_t id = (uint32_t)n_paths++;
    paths[id] =
        (struct path){.parent = parent, .next = bucket[at], .text = text, .name = text + strlen(text) - strlen(name)};
    bucket[at] = id;
    return id;
}

uint32_t path_enter(uint32_t parent, const char *name) {
    size_t at = bucket_of(parent, name);
    lock_take(&paths_lock);
    uint32_t id = bucket[at];
    while (id && (paths[id].parent != parent || strcmp(paths[id].name, name))) id = paths[id].next;
    if (!id) id = path_add(parent, name, at);
    lock_release(&paths_lock);
    if (id == PATH_NONE) error_memory(strlen(name), "a path");
    return id;
}

const char *path_text(uint32_t path) {
    lock_take(&paths_lock); /* the array may move; the text does not */
    const char *text = path && path < n_paths ? paths[path].text : "";
    lock_release(&paths_lock);
    return text;
}

/* module.h: the tree under a model. tally.h has the public interface. */
#ifndef NN_MODULE_H
#define NN_MODULE_H

#include "tally.h"

struct slot { /* a named tensor of a module */
    char *name;
    tl_tensor *tensor; /* NULL: left out */
    bool is_buffer;
    tl_shard *shard; /* owned; NULL: the tensor is whole */
};

struct tl_module {
    const tl_module_kind *kind;
    void *state;
    void (*end)(tl_module *m); /* called before the module is freed; NULL: nothing is left to do */
    tl_module *parent;
    char *name; /* "" for a root */
    char *
        /* the scope of forward: the name, after those of lists above, which have no forward */
        scope_name;
    tl_module **children;
    size_t n_children, child_capacity;
    struct slot *slots;
    size_t n_slots, slot_capacity;
    bool is_evaluating; /* zero is the default: training */

    /* the result of tl_module_list, kept until the tree changes */
    tl_named_tensor *list;
    size_t n_list, list_capacity;
    char *names;
    size_t names_length, names_capacity;
    bool is_listed;
};

/* Says of the module's tensor `index` that it is a part of a parameter. */
bool module_set_shard(tl_module *m, int index, const tl_shard *shard);

/* A copy of a text, memory_free it; NULL: recorded. */
char *module_text(const char *text);

/* Removes the module's children from one on, and its tensors from `first` on. */
void module_cut(tl_module *m, size_t first_child, size_t first);
/* The tree has changed: lists of it and of all above it are stale. */
void module_touch(tl_module *m);

/* Opens the scope that the module's work is billed to; depth 0: an error. */
tl_scope module_enter(const tl_module *m);

/* A module that was just made: everything that was added to it succeeded, or it is freed. Returns it or NULL. */
static inline tl_module *module_finish(tl_module *m, bool ok) {
    if (ok) return m;
    tl_module_free(m);
    return NULL;
}

#endif

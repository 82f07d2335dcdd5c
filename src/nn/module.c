/* module.c: trees of named parameters.
 *
 * A module holds its own tensors in slots and its children by pointer; it knows nothing of what they compute. Names
 * are unique under one parent, over slots and children together, so a path means one thing. A tied parameter is one
 * tensor in two slots: whatever replaces it (tl_module_to, tl_module_cast) replaces it in both. */
#include "nn/module.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"

char *module_text(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = memory_new(bytes);
    if (copy) memcpy(copy, text, bytes);
    else error_memory(bytes, "a name");
    return copy;
}

static bool module_check(const tl_module *m, const char *what) {
    return m || error_set(TL_ERROR_USE, "%s: got NULL instead of a module", what);
}

/* ---- Making and freeing ---- */

tl_module *tl_module_new(const tl_module_kind *kind) {
    if (!kind || !kind->name) {
        error_set(TL_ERROR_USE, "tl_module_new: a module needs a kind with a name");
        return NULL;
    }
    tl_module *m = memory_new(sizeof *m);
    if (!m) {
        error_memory(sizeof *m, "a module");
        return NULL;
    }
    *m = (tl_module){.kind = kind, .name = module_text("")};
    bool ok = m->name != NULL;
    if (ok && kind->state_bytes) {
        m->state = memory_new(kind->state_bytes);
        ok = m->state != NULL || error_memory(kind->state_bytes, "a module");
        if (ok) memset(m->state, 0, kind->state_bytes);
    }
    return module_finish(m, ok);
}

static void slot_clear(struct slot *slot) {
    tl_drop(slot->tensor);
    memory_free(slot->shard);
    memory_free(slot->name);
}

void tl_module_free(tl_module *m) {
    if (!m) return;
    if (m->end) m->end(m);
    for (size_t i = 0; i < m->n_children; i++) tl_module_free(m->children[i]);
    for (size_t i = 0; i < m->n_slots; i++) slot_clear(&m->slots[i]);
    memory_free(m->children);
    memory_free(m->slots);
    memory_free(m->state);
    memory_free(m->name);
    memory_free(m->scope_name);
    memory_free(m->list);
    memory_free(m->names);
    memory_free(m);
}

const tl_module_kind *tl_module_kind_of(const tl_module *m) { return m ? m->kind : NULL; }
void *tl_module_state(tl_module *m) { return m ? m->state : NULL; }
const char *tl_module_name(const tl_module *m) { return m ? m->name : ""; }
int tl_module_children(const tl_module *m) { return m ? (int)m->n_children : 0; }
tl_module *tl_module_child(const tl_module *m, int i) {
    return m && i >= 0 && (size_t)i < m->n_children ? m->children[i] : NULL;
}
tl_tensor *tl_module_tensor(const tl_module *m, int i) {
    return m && i >= 0 && (size_t)i < m->n_slots ? m->slots[i].tensor : NULL;
}

void module_touch(tl_module *m) {
    for (; m; m = m->parent) m->is_listed = false;
}

static bool name_is_free(const tl_module *m, const char *name, const char *what) {
    if (!name || !*name || !text_is_name(name) || strchr(name, '.'))
        return error_set(TL_ERROR_USE,
                         "%s: \"%s\" is not a valid name (need UTF-8 without dots and control characters)", what,
                         name ? name : "");
    bool is_taken = false;
    for (size_t i = 0; i < m->n_slots; i++) is_taken |= strcmp(m->slots[i].name, name) == 0;
    for (size_t i = 0; i < m->n_children; i++) is_taken |= strcmp(m->children[i]->name, name) == 0;
    return !is_taken || error_set(TL_ERROR_USE, "%s: %s has a \"%s\" already", what, m->kind->name, name);
}

static bool name_child(tl_module *parent, const char *name, tl_module *child) {
    bool is_list = !parent->kind->forward;
    const char *before = is_list ? (parent->scope_name ? parent->scope_name : parent->name) : "";
    size_t bytes = strlen(before) + strlen(name) + 2;
    char *own = module_text(name), *scope = memory_new(bytes);
    if (!own || !scope) {
        if (!scope) error_memory(bytes, "a name");
        memory_free(own);
        memory_free(scope);
        return false;
    }
    snprintf(scope, bytes, "%s%s%s", before, *before ? "." : "", name);
    memory_free(child->name);
    memory_free(child->scope_name);
    child->name = own;
    child->scope_name = scope;
    return true;
}

tl_module *tl_module_add(tl_module *parent, const char *name, tl_module *child) {
    bool ok = module_check(parent, "tl_module_add") && module_check(child, "tl_module_add") &&
              name_is_free(parent, name, "tl_module_add");
    if (ok && child->parent) ok = error_set(TL_ERROR_USE, "tl_module_add: this module already has a parent");
    else if (ok && !memory_grow((void **)&parent->children, &parent->child_capacity, parent->n_children,
                                sizeof *parent->children))
        ok = error_memory(sizeof *parent->children, "a module");
    ok = ok && name_child(parent, name, child);
    if (!ok) {
        if (child && !child->parent) tl_module_free(child);
        return NULL;
    }
    child->parent = parent;
    parent->children[parent->n_children++] = child;
    module_touch(parent);
    return child;
}

static bool slot_add(tl_module *m, const char *name, tl_tensor *x, bool is_buffer, const char *what) {
    if (tl_error() != TL_OK) return false; /* the call that made x failed */
    if (!module_check(m, what) || !name_is_free(m, name, what)) return false;
    if (!memory_grow((void **)&m->slots, &m->slot_capacity, m->n_slots, sizeof *m->slots))
        return error_memory(sizeof *m->slots, "a parameter");
    char *own = module_text(name);
    if (!own) return false;
    if (x && !is_buffer && !tl_requires_grad(tl_set_purpose(x, TL_PARAMETER), true)) {
        memory_free(own);
        return false;
    }
    m->slots[m->n_slots++] = (struct slot){own, x ? tl_keep(x) : NULL, is_buffer, NULL};
    module_touch(m);
    return true;
}

bool tl_module_add_parameter(tl_module *m, const char *name, tl_tensor *x) {
    return slot_add(m, name, x, false, "tl_module_add_parameter");
}
bool tl_module_add_buffer(tl_module *m, const char *name, tl_tensor *x) {
    return slot_add(m, name, x, true, "tl_module_add_buffer");
}

bool module_set_shard(tl_module *m, int index, const tl_shard *shard) {
    tl_shard *own = memory_new(sizeof *own);
    if (!own) return error_memory(sizeof *own, "a parameter");
    *own = *shard;
    memory_free(m->slots[index].shard);
    m->slots[index].shard = own;
    module_touch(m);
    return true;
}

void module_cut(tl_module *m, size_t first_child, size_t first) {
    while (m->n_children > first_child) tl_module_free(m->children[--m->n_children]);
    while (m->n_slots > first) slot_clear(&m->slots[--m->n_slots]);
    module_touch(m);
}

/* ---- Finding ---- */

/* The child that the first `length` bytes of a path name. */
static tl_module *child_named(const tl_module *m, const char *path, size_t length) {
    for (size_t i = 0; i < m->n_children; i++)
        if (strlen(m->children[i]->name) == length && !memcmp(m->children[i]->name, path, length))
            return m->children[i];
    return NULL;
}

tl_module *tl_module_find(tl_module *m, const char *path) {
    while (m && path && *path) {
        size_t length = strcspn(path, ".");
        m = child_named(m, path, length);
        path += length + (path[length] == '.');
    }
    return path ? m : NULL;
}

static struct slot *slot_find(tl_module *m, const char *path) {
    const char *dot;
    while (m && (dot = strchr(path, '.'))) {
        m = child_named(m, path, (size_t)(dot - path));
        path = dot + 1;
    }
    for (size_t i = 0; m && i < m->n_slots; i++)
        if (strcmp(m->slots[i].name, path) == 0) return &m->slots[i];
    return NULL;
}

tl_tensor *tl_module_find_tensor(tl_module *m, const char *path) {
    struct slot *slot = m && path ? slot_find(m, path) : NULL;
    return slot ? slot->tensor : NULL;
}

bool tl_module_tie(tl_module *root, const char *path, const char *source) {
    if (!module_check(root, "tl_module_tie")) return false;
    struct slot *to = path ? slot_find(root, path) : NULL, *from = source ? slot_find(root, source) : NULL;
    if (!to || !from || !from->tensor)
        return error_set(TL_ERROR_USE, "tl_module_tie: there is no parameter \"%s\"", to && path ? source : path);
    tl_tensor *old = to->tensor;
    to->tensor = tl_keep(from->tensor);
    tl_drop(old);
    module_touch(root);
    return true;
}

/* ---- Listing ---- */

/* The tensors of a list so far, by address: open addressing, at most half full. */
struct listed {
    const tl_tensor **at;
    size_t capacity, n;
};

static size_t listed_find(const struct listed *l, const tl_tensor *x) {
    size_t i = (size_t)((uint64_t)(uintptr_t)x * 0x9E3779B97F4A7C15u >> 32) & (l->capacity - 1);
    while (l->at[i] && l->at[i] != x) i = (i + 1) & (l->capacity - 1);
    return i;
}

static bool listed_grow(struct listed *l) {
    struct listed larger = {.capacity = l->capacity ? 2 * l->capacity : 64, .n = l->n};
    const size_t bytes = larger.capacity * sizeof *larger.at;
    larger.at = memory_new(bytes);
    if (!larger.at) return error_memory(bytes, "a list of parameters");
    memset(larger.at, 0, bytes);
    for (size_t i = 0; i < l->capacity; i++)
        if (l->at[i]) larger.at[listed_find(&larger, l->at[i])] = l->at[i];
    memory_free(l->at);
    *l = larger;
    return true;
}

/* Adds a tensor; `is_new`: it was not there. False: recorded. */
static bool listed_add(struct listed *l, const tl_tensor *x, bool *is_new) {
    if (2 * l->n >= l->capacity && !listed_grow(l)) return false;
    const size_t i = listed_find(l, x);
    *is_new = !l->at[i];
    if (*is_new) l->at[i] = x, l->n++;
    return true;
}

static bool names_reserve(tl_module *root, size_t bytes) {
    while (root->names_length + bytes > root->names_capacity) {
        size_t wanted = root->names_capacity ? 2 * root->names_capacity : 1024;
        char *names = memory_resize(root->names, wanted);
        if (!names) return error_memory(wanted, "the names of a module");
        root->names = names;
        root->names_capacity = wanted;
    }
    return true;
}

/* Appends "prefix.name". Names move while they grow, so entries hold offsets until the list is complete. */
static bool list_append(tl_module *root, tl_module *m, const char *prefix, const struct slot *slot) {
    size_t bytes = strlen(prefix) + strlen(slot->name) + 2;
    if (!names_reserve(root, bytes)) return false;
    if (!memory_grow((void **)&root->list, &root->list_capacity, root->n_list, sizeof *root->list))
        return error_memory(sizeof *root->list, "a list of parameters");
    snprintf(root->names + root->names_length, bytes, "%s%s%s", prefix, *prefix ? "." : "", slot->name);
    root->list[root->n_list++] =
        (tl_named_tensor){(const char *)(uintptr_t)root->names_length, slot->tensor, slot->is_buffer, m, slot->shard};
    root->names_length += bytes;
    return true;
}

static bool list_walk(tl_module *root, tl_module *m, const char *prefix, struct listed *listed) {
    for (size_t i = 0; i < m->n_slots; i++) {
        bool is_new = false;
        if (m->slots[i].tensor && !listed_add(listed, m->slots[i].tensor, &is_new)) return false;
        if (is_new && !list_append(root, m, prefix, &m->slots[i])) return false;
    }
    for (size_t i = 0; i < m->n_children; i++) {
        size_t bytes = strlen(prefix) + strlen(m->children[i]->name) + 2;
        char *path = memory_new(bytes);
        if (!path) return error_memory(bytes, "the names of a module");
        snprintf(path, bytes, "%s%s%s", prefix, *prefix ? "." : "", m->children[i]->name);
        bool ok = list_walk(root, m->children[i], path, listed);
        memory_free(path);
        if (!ok) return false;
    }
    return true;
}

const tl_named_tensor *tl_module_list(tl_module *m, int *n) {
    static const tl_named_tensor none;
    if (n) *n = 0;
    if (!module_check(m, "tl_module_list")) return NULL;
    if (!m->is_listed) {
        struct listed listed = {0};
        m->n_list = m->names_length = 0;
        bool ok = list_walk(m, m, "", &listed);
        memory_free(listed.at);
        if (!ok) return NULL;
        for (size_t i = 0; i < m->n_list; i++) m->list[i].name = m->names + (uintptr_t)m->list[i].name;
        m->is_listed = true;
    }
    if (n) *n = (int)m->n_list;
    return m->n_list ? m->list : &none;
}

int64_t tl_module_parameters(tl_module *m) {
    int n;
    const tl_named_tensor *list = tl_module_list(m, &n);
    int64_t count = list ? 0 : -1;
    for (int i = 0; i < n; i++)
        if (!list[i].is_buffer) count += tl_numel(list[i].tensor);
    return count;
}

/* ---- Running ---- */

bool tl_module_set_name(tl_module *root, const char *name) {
    if (!module_check(root, "tl_module_set_name")) return false;
    if (root->parent)
        return error_set(TL_ERROR_USE, "tl_module_set_name: \"%s\" has a parent, which named it", root->name);
    char *own = module_text(name ? name : "");
    if (!own) return false;
    memory_free(root->scope_name);
    root->scope_name = own;
    return true;
}

tl_scope module_enter(const tl_module *m) {
    const char *name = m->scope_name ? m->scope_name : m->kind->name;
    return *name ? tl_scope_enter(name) : tl_scope_begin();
}

tl_tensor *tl_module_forward(tl_module *m, tl_tensor *x) {
    if (!module_check(m, "tl_module_forward")) return NULL;
    if (!m->kind->forward) {
        error_set(TL_ERROR_USE, "tl_module_forward: a %s only holds other modules", m->kind->name);
        return NULL;
    }
    if (!x && tl_error() != TL_OK) return NULL;
    tl_scope scope = module_enter(m);
    return scope.depth ? tl_scope_return(scope, m->kind->forward(m, x)) : NULL;
}

void tl_module_train(tl_module *m, bool on) {
    if (!m) return;
    m->is_evaluating = !on;
    for (size_t i = 0; i < m->n_children; i++) tl_module_train(m->children[i], on);
}

bool tl_module_is_training(const tl_module *m) { return m && !m->is_evaluating; }

bool tl_module_freeze(tl_module *m, bool on) {
    int n;
    const tl_named_tensor *list = tl_module_list(m, &n);
    bool ok = list != NULL;
    for (int i = 0; ok && i < n; i++)
        if (!list[i].is_buffer) ok = tl_requires_grad(list[i].tensor, !on) != NULL;
    return ok;
}

void tl_module_zero_grad(tl_module *m, bool keep) {
    int n;
    const tl_named_tensor *list = tl_module_list(m, &n);
    for (int i = 0; list && i < n; i++) tl_zero_grad(list[i].tensor, keep);
}

/* ---- Replacing tensors ---- */

static void slots_replace(tl_module *m, const tl_tensor *old, tl_tensor *fresh) {
    for (size_t i = 0; i < m->n_slots; i++) {
        if (m->slots[i].tensor != old) continue;
        m->slots[i].tensor = tl_keep(fresh);
        tl_drop((tl_tensor *)old);
    }
    for (size_t i = 0; i < m->n_children; i++) slots_replace(m->children[i], old, fresh);
}

/* One tensor after the other, so that old and new never both exist whole. */
static bool module_replace(tl_module *m, tl_device *device, tl_dtype dtype) {
    int n;
    const tl_named_tensor *list = tl_module_list(m, &n);
    bool ok = list != NULL, mode = tl_set_grad_mode(false);
    for (int i = 0; ok && i < n; i++) {
        tl_scope scope = tl_scope_begin();
        tl_tensor *old = list[i].tensor, *x = tl_detach(old);
        bool is_float = tl_dtype_of(old) <= TL_BF16, needs_grad = tl_needs_grad(old);
        if (device) x = tl_to(x, device);
        if (dtype != TL_DTYPE_COUNT && is_float) x = tl_cast(x, dtype);
        ok = x != NULL;
        if (ok && !tl_shares_storage(x, old)) {
            tl_set_purpose(x, tl_purpose_of(old));
            ok = tl_requires_grad(x, needs_grad) != NULL;
            if (ok) slots_replace(m, old, x);
        }
        ok = tl_scope_end(scope) && ok;
    }
    tl_set_grad_mode(mode);
    module_touch(m);
    return ok;
}

bool tl_module_to(tl_module *m, tl_device *device) {
    if (!device) return error_set(TL_ERROR_USE, "tl_module_to: got NULL instead of a device");
    return module_replace(m, device, TL_DTYPE_COUNT);
}

bool tl_module_cast(tl_module *m, tl_dtype dtype) {
    if ((unsigned)dtype > TL_BF16)
        return error_set(TL_ERROR_USE, "tl_module_cast: parameters cannot be %s (need f64, f32, f16 or bf16)",
                         tl_dtype_name(dtype));
    return module_replace(m, NULL, dtype);
}

/* ---- The tree as text ---- */

struct writer {
    char *buffer;
    size_t size, length; /* length of the whole text, written or not */
};

static void write_text(struct writer *w, const char *text) {
    for (; *text; text++, w->length++)
        if (w->length + 1 < w->size) w->buffer[w->length] = *text;
}

static void write_module(struct writer *w, const tl_module *m, int depth) {
    char text[256] = "";
    write_text(w, m->kind->name);
    write_text(w, "(");
    if (m->kind->describe) m->kind->describe(m, text, sizeof text);
    write_text(w, text);
    for (size_t i = 0; i < m->n_children; i++) {
        write_text(w, "\n");
        for (int k = 0; k <= depth; k++) write_text(w, "  ");
        write_text(w, "(");
        write_text(w, m->children[i]->name);
        write_text(w, "): ");
        write_module(w, m->children[i], depth + 1);
    }
    if (m->n_children) {
        write_text(w, "\n");
        for (int k = 0; k < depth; k++) write_text(w, "  ");
    }
    write_text(w, ")");
}

size_t tl_module_print(tl_module *m, char *buffer, size_t size) {
    if (!buffer) size = 0; /* the length alone */
    if (!module_check(m, "tl_module_print")) return 0;
    struct writer w = {buffer, size, 0};
    write_module(&w, m, 0);
    if (size) buffer[w.length < size ? w.length : size - 1] = 0;
    return w.length;
}

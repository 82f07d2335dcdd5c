#include "step/portions.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "tensor/tensor.h"

void portions_file(char file[PORTIONS_FILE], const char *stem, int index, int n) {
    if (n == 1) snprintf(file, PORTIONS_FILE, "%s.safetensors", stem);
    else snprintf(file, PORTIONS_FILE, "%s-%05d-of-%05d.safetensors", stem, index + 1, n);
}

/* "PREFIXNAME@from:to"; without the range if it is everything. */
static char *piece_name(const char *prefix, size_t prefix_length, const char *name, int64_t from, int64_t to,
                        bool is_whole) {
    size_t bytes = prefix_length + strlen(name) + 64;
    char *text = memory_new(bytes);
    if (!text) return error_memory(bytes, "a name"), NULL;
    int n = snprintf(text, bytes, "%.*s%s", (int)prefix_length, prefix, name);
    if (!is_whole) snprintf(text + n, bytes - (size_t)n, "@%" PRId64 ":%" PRId64, from, to);
    return text;
}

static bool piece_put(struct portions *p, char *name, tl_tensor *x) {
    bool ok = name && x && memory_grow((void **)&p->at, &p->capacity, p->n, sizeof *p->at);
    if (name && x && !ok) error_memory((p->n + 1) * sizeof *p->at, "pieces of a checkpoint");
    if (ok && tl_keep(x)) p->at[p->n++] = (tl_named_tensor){.name = name, .tensor = x, .is_buffer = true};
    else memory_free(name);
    return ok;
}

bool portions_add(struct portions *p, const char *prefix, size_t prefix_length, const struct bucket *k, tl_tensor *own,
                  const char *(*name_of)(const void *context, const tl_tensor *parameter), const void *context) {
    const struct buckets *b = k->all;
    int64_t begin = b->mode == SHARDING_NONE ? 0 : b->group.rank * k->part, end = begin + own->numel;
    tl_scope scope = tl_scope_begin();
    bool ok = scope.depth;
    for (int i = 0; ok && i < k->n_members; i++) {
        const struct bucket_member *m = &k->members[i];
        const tl_tensor *parameter = m->parameter;
        int64_t from = begin > m->at ? begin : m->at, last = m->at + parameter->numel, to = end < last ? end : last;
        if (from >= to) continue;
        bool is_whole = to - from == parameter->numel;
        tl_tensor *x = tl_slice(own, 0, from - begin, to - begin, 1);
        if (x && is_whole) x = tl_reshape(x, parameter->rank, parameter->shape);
        const char *name = name_of(context, parameter);
        ok = x && piece_put(p, piece_name(prefix, prefix_length, name, from - m->at, to - m->at, is_whole), x);
    }
    return scope.depth && tl_scope_end(scope) && ok;
}

void portions_free(struct portions *p) {
    for (size_t i = 0; i < p->n; i++) {
        tl_drop(p->at[i].tensor);
        memory_free((char *)(uintptr_t)p->at[i].name);
    }
    memory_free(p->at);
    *p = (struct portions){0};
}

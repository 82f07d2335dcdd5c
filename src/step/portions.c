#include "step/portions.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "comm/comm.h"
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

static bool piece_put(struct portions *p, char *name, tl_tensor *x, const tl_tensor *of) {
    bool ok = name && x && memory_grow((void **)&p->at, &p->capacity, p->n, sizeof *p->at) &&
              memory_grow((void **)&p->of, &p->of_capacity, p->n, sizeof *p->of);
    if (name && x && !ok) error_memory((p->n + 1) * sizeof *p->at, "pieces of a checkpoint");
    if (ok && tl_keep(x)) {
        p->of[p->n] = of;
        p->at[p->n++] = (tl_named_tensor){.name = name, .tensor = x, .is_buffer = true};
    } else memory_free(name);
    return ok;
}

struct naming {
    const char *prefix;
    size_t prefix_length;
    const char *(*name_of)(const void *context, const tl_tensor *parameter);
    const void *context;
};

/* `own` are elements of the bucket's vector, from `begin` on. */
static bool pieces_add(struct portions *p, const struct naming *names, const struct bucket *k, tl_tensor *own,
                       int64_t begin) {
    int64_t end = begin + own->numel;
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
        const char *name = names->name_of(names->context, parameter);
        ok =
            x && piece_put(p, piece_name(names->prefix, names->prefix_length, name, from - m->at, to - m->at, is_whole),
                           x, parameter);
    }
    return scope.depth && tl_scope_end(scope) && ok;
}

bool portions_add(struct portions *p, const char *prefix, size_t prefix_length, const struct bucket *k, tl_tensor *own,
                  const char *(*name_of)(const void *context, const tl_tensor *parameter), const void *context) {
    const struct naming names = {prefix, prefix_length, name_of, context};
    const struct buckets *b = k->all;
    return pieces_add(p, &names, k, own, b->mode == SHARDING_NONE ? 0 : k->group->rank * k->part);
}

/* The parts of all ranks, one after another, on the first; `whole` has room for them, or for one elsewhere. */
static bool parts_send(const struct mesh_group *group, char *whole, size_t bytes) {
    char error[COMM_ERROR] = "";
    struct message *messages = memory_new((size_t)group->size * sizeof *messages);
    if (!messages) return error_memory((size_t)group->size * sizeof *messages, "messages to other ranks");
    int n = 0;
    if (group->rank) messages[n++] = (struct message){0, true, whole, bytes};
    for (int r = 1; group->rank == 0 && r < group->size; r++)
        messages[n++] = (struct message){r, false, whole + (size_t)r * bytes, bytes};
    bool ok = comm_exchange(group->comm, messages, n, error);
    memory_free(messages);
    return ok || error_set(TL_ERROR_DEVICE, "pieces of a checkpoint: %s", error);
}

bool portions_collect(struct portions *p, const char *prefix, size_t prefix_length, const struct bucket *k,
                      tl_tensor *own, const char *(*name_of)(const void *context, const tl_tensor *parameter),
                      const void *context) {
    const struct naming names = {prefix, prefix_length, name_of, context};
    const struct mesh_group *group = k->group;
    size_t bytes = tl_bytes(own), all = group->rank ? bytes : bytes * (size_t)group->size;
    char *data = memory_new(all + 1);
    if (!data) return error_memory(all, "pieces of a checkpoint");
    bool ok = tl_to_data(own, data, bytes) && parts_send(group, data, bytes);
    if (group->rank || !ok) return memory_free(data), ok;
    tl_scope scope = tl_scope_begin();
    tl_tensor *whole =
        tl_from_external(data, all, TL_SHAPE(own->numel * group->size), NULL, own->dtype, NULL, memory_free, data);
    ok = whole && pieces_add(p, &names, k, whole, 0);
    return scope.depth && tl_scope_end(scope) && ok;
}

void portions_free(struct portions *p) {
    for (size_t i = 0; i < p->n; i++) {
        tl_drop(p->at[i].tensor);
        memory_free((char *)(uintptr_t)p->at[i].name);
    }
    memory_free(p->at);
    memory_free(p->of);
    *p = (struct portions){0};
}

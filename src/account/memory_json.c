/* memory_json.c: the list of a ledger's allocations as a file, schema tally.memory/1 (docs/ledger.md). A step has
 * thousands of events, so names are written once and events refer to them by number. */
#include <stdlib.h>
#include <string.h>

#include "account/ledger.h"
#include "account/path.h"
#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "tensor/allocations.h"

/* Names in the order in which they were first used. */
struct names {
    json_t *texts, *numbers; /* numbers: by text */
};

static json_int_t number_of(struct names *n, const char *text, bool *ok) {
    json_t *known = json_object_get(n->numbers, text);
    if (known) return json_integer_value(known);
    json_int_t at = (json_int_t)json_array_size(n->texts);
    if (json_array_append_new(n->texts, json_string(text)) || json_object_set_new(n->numbers, text, json_integer(at)))
        *ok = false;
    return at;
}

/* [op, path, purpose, bytes, dtype, shape]; op -1: not known; dtype and shape null: it has none. */
static json_t *item_json(const struct allocation_list *l, const struct allocation *item, struct names *ops,
                         struct names *paths, bool *ok) {
    json_t *shape = item->has_shape ? json_array() : json_null();
    for (int i = 0; i < item->rank; i++)
        if (json_array_append_new(shape, json_integer(l->sizes[item->shape + (size_t)i]))) *ok = false;
    json_t *dtype = item->has_shape ? json_string(tl_dtype_name((tl_dtype)item->dtype)) : json_null();
    json_int_t op = item->op ? number_of(ops, item->op, ok) : -1;
    return json_pack("[I, I, i, I, o, o]", op, number_of(paths, path_text(item->path), ok), (int)item->purpose,
                     (json_int_t)item->bytes, dtype, shape);
}

/* [0, op, path, phase], [1, tensor], [2, tensor], [3, tensor, purpose] */
static json_t *event_json(const struct allocation_event *e, struct names *ops, struct names *paths, bool *ok) {
    if (e->kind == ALLOCATION_CALL)
        return json_pack("[i, I, I, i]", (int)e->kind, number_of(ops, e->op, ok),
                         number_of(paths, path_text(e->item), ok), (int)e->value);
    if (e->kind == ALLOCATION_MOVE) return json_pack("[i, I, i]", (int)e->kind, (json_int_t)e->item, (int)e->value);
    return json_pack("[i, I]", (int)e->kind, (json_int_t)e->item);
}

static json_t *names_json(const char *(*name)(int i), int n) {
    json_t *array = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(array, json_string(name(i)));
    return array;
}
static const char *purpose_name(int i) { return tl_purpose_name((tl_purpose)i); }
static const char *phase_name(int i) { return tl_phase_name((tl_phase)i); }

static json_t *list_json(const struct allocation_list *l, const struct held_window *w, const tl_device *device,
                         bool *ok) {
    struct names ops = {json_array(), json_object()}, paths = {json_array(), json_object()};
    json_t *items = json_array(), *events = json_array();
    for (size_t i = 0; i < l->n_items; i++)
        if (json_array_append_new(items, item_json(l, &l->items[i], &ops, &paths, ok))) *ok = false;
    for (size_t i = 0; i < l->n_events; i++)
        if (json_array_append_new(events, event_json(&l->events[i], &ops, &paths, ok))) *ok = false;
    json_decref(ops.numbers);
    json_decref(paths.numbers);
    char peak[40];
    json_t *root = json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:I, s:o, s:o}", "schema", "tally.memory/1",
                             "device", tl_device_name(device), "target", device->target->name, "peak_bytes",
                             tl_count_text(count_public(w->peak_bytes), peak), "purposes",
                             names_json(purpose_name, TL_PURPOSE_COUNT), "phases",
                             names_json(phase_name, TL_PHASE_COUNT), "ops", ops.texts, "paths", paths.texts,
                             "held_first", (json_int_t)l->n_first, "tensors", items, "events", events);
    return root;
}

static const struct held_window *window_of(const tl_ledger *l, const tl_device *device) {
    for (int i = 0; l && device && i < l->n_devices; i++)
        if (l->memory[i].device == device) return &l->memory[i].window;
    return NULL;
}

char *tl_ledger_memory_json(const tl_ledger *l, const tl_device *device) {
    const struct held_window *w = window_of(l, device);
    if (!l) error_set(TL_ERROR_USE, "tl_ledger_memory_json: got NULL instead of a ledger");
    else if (!w || !w->list)
        error_set(TL_ERROR_USE,
                  "tl_ledger_memory_json: ledger \"%s\" has no list of allocations of %s (tl_set_memory_events(true) "
                  "before it begins; it must have ended)",
                  l->name, device ? tl_device_name(device) : "no device");
    if (!w || !w->list) return NULL;
    bool ok = true;
    json_t *root = list_json(w->list, w, device, &ok);
    char *text = root && ok ? json_print(root, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(root);
    if (!text) error_memory(w->list->n_events * 40, "a list of allocations");
    return text;
}

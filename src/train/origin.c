#include "train/origin.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"

static const struct {
    const char *key, *name; /* in the file, and for people */
    size_t at;
} rows[] = {{"device", "device", offsetof(struct origin, device)},
            {"chip", "chip", offsetof(struct origin, chip)},
            {"isa", "instruction set", offsetof(struct origin, isa)},
            {"libraries", "libraries", offsetof(struct origin, libraries)},
            {"version", "Tally", offsetof(struct origin, version)}};
enum { N_ROWS = sizeof rows / sizeof *rows };

static const char *text_at(const struct origin *o, int row) { return (const char *)o + rows[row].at; }

struct origin origin_here(tl_device *device) {
    struct origin o = {.threads = process_threads()};
    snprintf(o.device, sizeof o.device, "%.*s", (int)strcspn(device->name, ":"), device->name);
    if (device->functions->describe) device->functions->describe(device, o.chip, o.libraries);
    if (!text_is_name(o.chip)) text_copy(o.chip, sizeof o.chip, "a chip without a proper name");
    text_copy(o.isa, sizeof o.isa, device->isa ? device->isa : "");
    text_copy(o.version, sizeof o.version, tl_version());
    return o;
}

json_t *origin_json(const struct origin *o) {
    json_t *json = json_object();
    bool ok = json != NULL;
    for (int i = 0; ok && i < N_ROWS; i++) ok = json_object_set_new(json, rows[i].key, json_string(text_at(o, i))) == 0;
    ok = ok && json_object_set_new(json, "threads", json_integer(o->threads)) == 0;
    if (ok) return json;
    json_decref(json);
    error_memory(sizeof *o, "a record of this machine");
    return NULL;
}

bool origin_read(struct origin *o, const json_t *json) {
    const json_t *threads = json_object_get(json, "threads");
    *o = (struct origin){.threads = json_integer_value(threads)};
    for (int i = 0; i < N_ROWS; i++) {
        const char *text = json_string_value(json_object_get(json, rows[i].key));
        if (!text || strlen(text) >= DEVICE_TEXT || !text_is_name(text)) return false;
        strcpy((char *)o + rows[i].at, text);
    }
    return json_is_integer(threads) && o->threads >= 0;
}

const char *origin_compare(const struct origin *then, const struct origin *now, char *text, size_t size) {
    size_t n = 0;
    *text = 0;
    for (int i = 0; i < N_ROWS; i++) {
        const char *before = text_at(then, i), *here = text_at(now, i);
        if (!strcmp(before, here) || n >= size) continue;
        n += (size_t)snprintf(text + n, size - n, "%s%s %s (here %s)", n ? ", " : "", rows[i].name,
                              *before ? before : "none", *here ? here : "none");
    }
    return text;
}

/* hardware.c: the table of chips: lookup, checks of figures, and users' own chips. */
#include "plan/hardware.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "device/devices.h"
#include "plan/network.h"

const struct hardware_quantity_info hardware_quantities[HARDWARE_COUNT] = {
    [HARDWARE_F64] = {"f64", "FLOP/s", "f64"},
    [HARDWARE_F32] = {"f32", "FLOP/s", "f32"},
    [HARDWARE_TF32] = {"tf32", "FLOP/s", "f32"},
    [HARDWARE_F16] = {"f16", "FLOP/s", "f32"},
    [HARDWARE_BF16] = {"bf16", "FLOP/s", "f32"},
    [HARDWARE_F8] = {"f8", "FLOP/s", "f32"},
    [HARDWARE_F4] = {"f4", "FLOP/s", "f32"},
    [HARDWARE_I8] = {"i8", "OP/s", "i32"},
    [HARDWARE_F16_F16] = {"f16_acc_f16", "FLOP/s", "f16"},
    [HARDWARE_F8_F16] = {"f8_acc_f16", "FLOP/s", "f16"},
    [HARDWARE_MEMORY] = {"memory", "B", NULL},
    [HARDWARE_MEMORY_SEEN] = {"memory_seen", "B", NULL},
    [HARDWARE_BANDWIDTH] = {"bandwidth", "B/s", NULL},
    [HARDWARE_LINK] = {"link", "B/s", NULL},
    [HARDWARE_POWER] = {"power", "W", NULL},
};

static const struct hardware chips[] = {
#include "plan/hardware_list.h"
};
enum { N_CHIPS = sizeof chips / sizeof *chips };

const struct hardware_wrong hardware_wrongs[] = {
    {"H200 SXM", HARDWARE_BF16, 1979e12, 989.4e12, "a table of devices: the 2:4-sparse figure as dense"},
    {"H200 SXM", HARDWARE_F8, 3958e12, 1978.9e12, "a table of devices: the 2:4-sparse figure as dense"},
    {"H200 SXM", HARDWARE_BF16, 1970e12, 989.4e12, "hardware blogs: the 2:4-sparse figure as dense"},
    {"H100 SXM5", HARDWARE_BF16, 1979e12, 989.4e12, "the data sheet's 2:4-sparse figure"},
    {"H100 SXM5", HARDWARE_F8, 3958e12, 1978.9e12, "the data sheet's 2:4-sparse figure"},
    {"H100 SXM5", HARDWARE_F4, 3958e12, 0, "an estimator's table: this chip has no 4-bit products"},
    {"H100 SXM5", HARDWARE_BF16, 1000e12, 989.4e12, "an estimator's table, rounded up"},
    {"H100 SXM5", HARDWARE_F8, 2000e12, 1978.9e12, "an estimator's table, rounded up"},
    {"H100 SXM5", HARDWARE_BANDWIDTH, 3072e9, 3350e9, "two estimators' tables"},
    {"H100 SXM5", HARDWARE_BF16, 494.7e12, 989.4e12, "a trainer's table: the peak of tf32"},
    {"A100 80GB SXM", HARDWARE_BF16, 156e12, 312e12, "a trainer's table: the peak of tf32"},
    {"A100 80GB SXM", HARDWARE_BF16, 624e12, 312e12, "the data sheet's 2:4-sparse figure"},
    {"A100 80GB SXM", HARDWARE_BANDWIDTH, 2048e9, 2039e9, "an estimator's table"},
    {"V100 SXM2 16GB", HARDWARE_F16, 112e12, 125e12, "an estimator's table: the peak of the PCIe card"},
    {"V100 SXM2 16GB", HARDWARE_MEMORY, 32e9, 16e9, "an estimator's table: the memory of the larger card"},
    {"MI300X", HARDWARE_F16, 2615e12, 1307.4e12, "hardware blogs: the 2:4-sparse figure as dense"},
    {"B200", HARDWARE_F8, 9000e12, 4500e12, "hardware blogs: the 2:4-sparse figure as dense"},
    {"MI355X", HARDWARE_F4, 20100e12, 10000e12, "the 2:4-sparse figure"},
    {NULL, HARDWARE_COUNT, 0, 0, NULL},
};

const char *hardware_confidence_name(enum hardware_confidence confidence) {
    static const char *const names[] = {"unconfirmed", "low", "medium", "high", "yours"};
    return names[confidence];
}

/* ---- The user's chips ---- */

/* One per chip; it owns copies of the texts. */
struct own {
    struct hardware chip;
    struct own *next;
    char *texts[64];
    int n_texts;
};
static struct own *owned; /* the newest first */

static void own_free(struct own *o) {
    for (int i = 0; i < o->n_texts; i++) memory_free(o->texts[i]);
    memory_free(o);
}

void hardware_unload(void) {
    network_unload();
    while (owned) {
        struct own *next = owned->next;
        own_free(owned);
        owned = next;
    }
}

const struct hardware *hardware_at(int index) {
    const struct own *o = owned;
    for (; o && index > 0; o = o->next) index--;
    if (o) return index < 0 ? NULL : &o->chip;
    return index >= 0 && index < N_CHIPS ? &chips[index] : NULL;
}

/* ---- Names ---- */

#define NAME_BYTES 64

/* Small letters and digits only, without the maker's name: "NVIDIA A100-SXM4-80GB" is "a100sxm480gb". */
static void name_plain(char to[NAME_BYTES], const char *name, size_t length) {
    static const char *const makers[] = {"nvidia", "amd", "google", "tesla", "geforce", "instinct", "radeon"};
    int n = 0;
    for (size_t i = 0; i < length && n < NAME_BYTES - 1; i++)
        if (text_is_letter(name[i]) || text_is_digit(name[i])) to[n++] = text_lower(name[i]);
    to[n] = 0;
    for (size_t m = 0; m < sizeof makers / sizeof *makers; m++) {
        size_t skip = strlen(makers[m]);
        if (!strncmp(to, makers[m], skip) && to[skip]) {
            memmove(to, to + skip, strlen(to + skip) + 1);
            m = (size_t)-1; /* "NVIDIA GeForce" has two */
        }
    }
}

/* Calls `visit` with the name and each alias of a chip, plain; true if one of the calls returns true. */
static bool names_any(const struct hardware *h, bool (*visit)(const char *plain, void *context), void *context) {
    char plain[NAME_BYTES];
    name_plain(plain, h->name, strlen(h->name));
    if (visit(plain, context)) return true;
    for (const char *at = h->aliases; at && *at;) {
        size_t length = strcspn(at, ",");
        name_plain(plain, at, length);
        if (*plain && visit(plain, context)) return true;
        at += length + (at[length] == ',');
    }
    return false;
}

static bool is_same(const char *plain, void *wanted) { return !strcmp(plain, wanted); }

const struct hardware *hardware_seek(const char *name) {
    char wanted[NAME_BYTES];
    if (!name || strlen(name) >= NAME_BYTES) return NULL;
    name_plain(wanted, name, strlen(name));
    const struct hardware *h;
    for (int i = 0; *wanted && (h = hardware_at(i)); i++)
        if (names_any(h, is_same, wanted)) return h;
    return NULL;
}

/* Every name and alias, plain, with the chip it means: for "did you mean". */
struct known {
    char plain[512][NAME_BYTES];
    const char *names[512];
    const struct hardware *chips[512], *chip;
    int n;
};
static bool known_add(const char *plain, void *context) {
    struct known *k = context;
    if (k->n == 512) return true;
    memcpy(k->plain[k->n], plain, strlen(plain) + 1);
    k->names[k->n] = k->plain[k->n];
    k->chips[k->n++] = k->chip;
    return false;
}

static const char *near_name(const char *name) {
    static struct known k; /* too large for the stack; only for error messages, on one thread */
    char wanted[NAME_BYTES];
    const char *near = NULL;
    k.n = 0;
    for (int i = 0; (k.chip = hardware_at(i)); i++) names_any(k.chip, known_add, &k);
    name_plain(wanted, name, strnlen(name, NAME_BYTES - 1));
    if (*wanted) near = text_nearest(wanted, k.names, k.n);
    for (int i = 0; i < k.n; i++)
        if (near == k.names[i]) return k.chips[i]->name;
    return NULL;
}

const struct hardware *hardware_find(const char *name) {
    const struct hardware *found = hardware_seek(name);
    char shown[NAME_BYTES], meant[TEXT_MEANT];
    if (found) return found;
    error_set(TL_ERROR_USE,
              "there is no device \"%s\" in the table%s (`tally devices` lists them; give its peak with --peak, or "
              "add it to a --hardware file)",
              text_show(shown, sizeof shown, name ? name : ""), text_meant(meant, name ? near_name(name) : NULL));
    return NULL;
}

/* ---- Cells ---- */

struct hardware_cell hardware_cell(const struct hardware *h, enum hardware_quantity quantity) {
    const struct hardware_cell *own = &h->cells[quantity];
    const struct target *t = quantity == HARDWARE_MEMORY_SEEN && h->target ? target_find(h->target) : NULL;
    if (!t || own->value > 0) return *own;
    return (struct hardware_cell){.value = (double)t->memory_bytes,
                                  .confidence = t->origin == TARGET_MEASURED ? HARDWARE_HIGH : HARDWARE_MEDIUM,
                                  .source = t->source};
}

double hardware_value(const struct hardware *h, enum hardware_quantity quantity) {
    return h && quantity < HARDWARE_COUNT ? hardware_cell(h, quantity).value : 0;
}

const char *hardware_source(const struct hardware *h, enum hardware_quantity quantity) {
    const char *own = hardware_cell(h, quantity).source;
    return own ? own : h->source;
}

const char *hardware_date(const struct hardware *h, enum hardware_quantity quantity) {
    const char *own = h->cells[quantity].date;
    return own ? own : h->date;
}

double hardware_memory_bytes(const struct hardware *h) {
    double seen = hardware_value(h, HARDWARE_MEMORY_SEEN);
    return seen > 0 ? seen : hardware_value(h, HARDWARE_MEMORY);
}

enum hardware_quantity hardware_peak_of(tl_dtype dtype) {
    switch (dtype) {
    case TL_F64:
        return HARDWARE_F64;
    case TL_F32:
        return HARDWARE_F32;
    case TL_F16:
        return HARDWARE_F16;
    case TL_BF16:
        return HARDWARE_BF16;
    case TL_F8E4M3:
    case TL_F8E5M2:
        return HARDWARE_F8;
    case TL_F4E2M1:
        return HARDWARE_F4;
    case TL_I8:
        return HARDWARE_I8;
    default:
        return HARDWARE_COUNT;
    }
}

enum hardware_quantity hardware_peak_named(const char *name) {
    static const char *const names[] = {"f64",         "f32",        "tf32", "f16",  "bf16", "f8",  "f4",  "i8",
                                        "f16_acc_f16", "f8_acc_f16", "fp64", "fp32", "fp16", "fp8", "fp4", "int8"};
    static const enum hardware_quantity quantities[] = {HARDWARE_F64,     HARDWARE_F32,    HARDWARE_TF32, HARDWARE_F16,
                                                        HARDWARE_BF16,    HARDWARE_F8,     HARDWARE_F4,   HARDWARE_I8,
                                                        HARDWARE_F16_F16, HARDWARE_F8_F16, HARDWARE_F64,  HARDWARE_F32,
                                                        HARDWARE_F16,     HARDWARE_F8,     HARDWARE_F4,   HARDWARE_I8};
    const int n = sizeof names / sizeof *names;
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], name)) return quantities[i];
    char shown[NAME_BYTES], meant[TEXT_MEANT];
    error_set(TL_ERROR_USE, "there is no peak of \"%s\"%s (there are f64, f32, tf32, f16, bf16, f8, f4, i8)",
              text_show(shown, sizeof shown, name), text_meant(meant, text_nearest(name, names, n)));
    return HARDWARE_COUNT;
}

double hardware_product(const struct hardware_cell *cell) { return cell->units * cell->per_clock * cell->clock; }

/* ---- Doubt ---- */

/* A user's chip may have the name of one in the table, or an alias. */
static const struct hardware *builtin_of(const char *name) {
    char wanted[NAME_BYTES];
    name_plain(wanted, name, strlen(name));
    for (int i = 0; i < N_CHIPS; i++)
        if (names_any(&chips[i], is_same, wanted)) return &chips[i];
    return NULL;
}

static bool is_near(double a, double b, double share) { return fabs(a - b) <= share * b; }

const char *hardware_doubt(const struct hardware *h, enum hardware_quantity q, double value, char *buffer) {
    const struct hardware *sheet = h ? builtin_of(h->name) : NULL;
    if (!sheet) return NULL;
    const char *unit = hardware_quantities[q].unit, *name = hardware_quantities[q].name;
    for (const struct hardware_wrong *w = hardware_wrongs; w->chip; w++) {
        if (strcmp(w->chip, sheet->name) || w->quantity != q || !is_near(value, w->value, 1e-3)) continue;
        if (w->right > 0)
            number_print(buffer, 300, "%s: %.5g %s of %s is a known wrong figure (%s); it is %.5g", sheet->name, value,
                         unit, name, w->where, w->right);
        else
            number_print(buffer, 300, "%s: %.5g %s of %s is a known wrong figure (%s)", sheet->name, value, unit, name,
                         w->where);
        return buffer;
    }
    double dense = sheet->cells[q].value;
    if (q >= HARDWARE_N_PEAKS || dense <= 0) return NULL;
    if (is_near(value, 2 * dense, 0.02)) {
        number_print(
            buffer, 300,
            "%s: %.5g %s of %s is twice the dense peak %.5g: a figure for 2:4 sparsity, or one accumulated in f16",
            sheet->name, value, unit, name, dense);
        return buffer;
    }
    if (value > 1.05 * dense) {
        number_print(buffer, 300, "%s: %.5g %s of %s is more than the chip can do: its dense peak is %.5g", sheet->name,
                     value, unit, name, dense);
        return buffer;
    }
    return NULL;
}

/* ---- Files of the user's ---- */

#define FILE_LIMIT ((size_t)1 << 20)

static const char *text_own(struct own *o, const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = o->n_texts < (int)(sizeof o->texts / sizeof *o->texts) ? memory_new(bytes) : NULL;
    if (!copy) {
        error_memory(bytes, "a chip's text");
        return NULL;
    }
    memcpy(copy, text, bytes);
    return o->texts[o->n_texts++] = copy;
}

static bool text_take(struct own *o, const json_t *object, const char *key, const char **to, const char *path) {
    const json_t *v = json_object_get(object, key);
    if (!v || json_is_null(v)) return true;
    const char *text = json_string_value(v);
    if (!text || !*text || strlen(text) > 500 || !text_is_name(text))
        return error_set(TL_ERROR_USE, "%s: \"%s\" is not a text of 1 to 500 characters", path, key);
    return (*to = text_own(o, text)) != NULL;
}

/* A number, or {"value": ..., "source": ..., "date": ...}; other keys of Tally's own tables are ignored. */
static bool cell_take(struct own *o, const json_t *v, enum hardware_quantity q, const char *path) {
    static const char *const known[] = {"value", "unit",       "source",     "date",
                                        "dense", "accumulate", "confidence", "product"};
    struct hardware_cell *cell = &o->chip.cells[q];
    const json_t *value = json_is_object(v) ? json_object_get(v, "value") : v, *inner;
    const char *key, *name = hardware_quantities[q].name;
    json_object_foreach((json_t *)(uintptr_t)v, key, inner) {
        bool is_known = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) is_known = is_known || !strcmp(key, known[i]);
        if (!is_known) return error_set(TL_ERROR_USE, "%s: %s: there is no key \"%s\"", path, name, key);
    }
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number > 0 && number < 1e24))
        return error_set(TL_ERROR_USE, "%s: %s: \"%s\" is not a positive number below 1e24 (in %s)", path, o->chip.name,
                         name, hardware_quantities[q].unit);
    if (json_is_false(json_object_get(v, "dense")))
        return error_set(TL_ERROR_USE, "%s: %s: \"%s\" is not a dense peak (figures for sparsity are not used)", path,
                         o->chip.name, name);
    char doubt[300];
    if (hardware_doubt(&o->chip, q, number, doubt)) return error_set(TL_ERROR_USE, "%s: %s", path, doubt);
    *cell = (struct hardware_cell){.value = number, .confidence = HARDWARE_OWN};
    return !json_is_object(v) ||
           (text_take(o, v, "source", &cell->source, path) && text_take(o, v, "date", &cell->date, path));
}

static bool aliases_take(struct own *o, const json_t *v, const char *path) {
    char all[512] = "";
    size_t used = 0, i;
    json_t *item;
    if (v && !json_is_array(v)) return error_set(TL_ERROR_USE, "%s: \"aliases\" is not a list", path);
    json_array_foreach((json_t *)(uintptr_t)v, i, item) {
        const char *text = json_string_value(item);
        size_t length = text ? strlen(text) : 0;
        if (!length || !text_is_name(text) || strchr(text, ',') || used + length + 2 > sizeof all)
            return error_set(TL_ERROR_USE, "%s: an alias is a text without commas, and all are below 500 characters",
                             path);
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", used ? "," : "", text);
    }
    return !used || (o->chip.aliases = text_own(o, all)) != NULL;
}

static bool key_take(struct own *o, const char *key, const json_t *v, const char *path) {
    static const char *const words[] = {"name", "vendor", "source", "date", "note", "aliases"};
    const char *known[HARDWARE_COUNT + 6];
    for (int q = 0; q < HARDWARE_COUNT; q++) {
        if (!strcmp(key, hardware_quantities[q].name)) return cell_take(o, v, (enum hardware_quantity)q, path);
        known[q] = hardware_quantities[q].name;
    }
    for (int i = 0; i < 6; i++) {
        if (!strcmp(key, words[i])) return true; /* taken already */
        known[HARDWARE_COUNT + i] = words[i];
    }
    char meant[TEXT_MEANT];
    return error_set(TL_ERROR_USE, "%s: %s: there is no key \"%s\"%s", path, o->chip.name, key,
                     text_meant(meant, text_nearest(key, known, HARDWARE_COUNT + 6)));
}

static bool chip_take(struct own *o, const json_t *object, const char *path) {
    struct hardware *h = &o->chip;
    const char *key;
    json_t *v;
    if (!json_is_object(object)) return error_set(TL_ERROR_USE, "%s: a device is a JSON object", path);
    h->is_own = true;
    h->source = path; /* until there is a better one */
    if (!text_take(o, object, "name", &h->name, path) || !text_take(o, object, "vendor", &h->vendor, path) ||
        !text_take(o, object, "source", &h->source, path) || !text_take(o, object, "date", &h->date, path) ||
        !text_take(o, object, "note", &h->note, path) || !aliases_take(o, json_object_get(object, "aliases"), path))
        return false;
    char plain[NAME_BYTES] = "";
    if (h->name) name_plain(plain, h->name, strlen(h->name));
    if (!*plain || strlen(h->name) >= NAME_BYTES)
        return error_set(TL_ERROR_USE, "%s: a device needs a \"name\" of at most 63 characters, with a letter in it",
                         path);
    json_object_foreach((json_t *)(uintptr_t)object, key, v) if (!key_take(o, key, v, path)) return false;
    return h->source != path || (h->source = text_own(o, path)) != NULL;
}

/* New ones before the old, in the order of the file. */
static bool list_take(const json_t *devices, const char *path) {
    struct own *first = NULL, **end = &first;
    bool ok = true;
    size_t i;
    json_t *object;
    json_array_foreach((json_t *)(uintptr_t)devices, i, object) {
        struct own *o = memory_new(sizeof *o);
        if (!o) ok = error_memory(sizeof *o, "a chip");
        else {
            memset(o, 0, sizeof *o);
            *end = o;
            end = &o->next;
            ok = chip_take(o, object, path);
        }
        if (!ok) break;
    }
    if (ok) {
        *end = owned;
        owned = first;
        return true;
    }
    for (struct own *next; first; first = next) {
        next = first->next;
        own_free(first);
    }
    return false;
}

bool hardware_load(const char *path) {
    json_t *root = json_read(path, FILE_LIMIT);
    if (!root) return false;
    const char *schema = json_string_value(json_object_get(root, "schema"));
    const json_t *devices = json_object_get(root, "devices"), *networks = json_object_get(root, "networks");
    bool ok =
        (schema && !strcmp(schema, "tally.hardware/1") && (json_is_array(devices) || (!devices && networks))) ||
        error_set(TL_ERROR_USE,
                  "%s: not a table of devices (need {\"schema\": \"tally.hardware/1\", \"devices\": [...]})", path);
    ok = ok && network_load(networks, path) && (!devices || list_take(devices, path));
    json_decref(root);
    return ok;
}

char *hardware_config_path(const char *name) {
    const char *home = getenv("XDG_CONFIG_HOME"), *below = "tally";
    if (!home || !*home) {
        home = getenv("HOME");
        below = ".config/tally";
    }
    char *folder = home && *home ? file_join(home, below) : NULL, *path = folder ? file_join(folder, name) : NULL;
    memory_free(folder);
    return path;
}

bool hardware_load_default(void) {
    char *path = hardware_config_path("hardware.json");
    bool ok = !path || access(path, F_OK) != 0 || hardware_load(path);
    memory_free(path);
    return ok;
}

/* ---- As JSON ---- */

static json_t *cell_json(const struct hardware *h, enum hardware_quantity q) {
    const struct hardware_cell own = hardware_cell(h, q), *cell = &own;
    json_t *json = json_pack("{s:f, s:s, s:s?, s:s?, s:s}", "value", cell->value, "unit", hardware_quantities[q].unit,
                             "source", hardware_source(h, q), "date", hardware_date(h, q), "confidence",
                             hardware_confidence_name(cell->confidence));
    if (json && hardware_quantities[q].accumulate) {
        json_object_set_new(json, "dense", json_true());
        json_object_set_new(json, "accumulate", json_string(hardware_quantities[q].accumulate));
    }
    if (json && cell->units > 0)
        json_object_set_new(json, "product",
                            json_pack("{s:f, s:f, s:f, s:f}", "units", cell->units, "per_clock", cell->per_clock,
                                      "clock_hz", cell->clock, "value", hardware_product(cell)));
    return json;
}

static json_t *aliases_json(const char *aliases) {
    json_t *list = json_array();
    for (const char *at = aliases; at && *at;) {
        size_t length = strcspn(at, ",");
        json_array_append_new(list, json_stringn(at, length));
        at += length + (at[length] == ',');
        at += strspn(at, " ");
    }
    return list;
}

json_t *hardware_json(const struct hardware *h) {
    json_t *json = json_pack("{s:s, s:o, s:s?, s:s?, s:s?, s:s?}", "name", h->name, "aliases", aliases_json(h->aliases),
                             "vendor", h->vendor, "source", h->source, "date", h->date, "note", h->note);
    for (int q = 0; json && q < HARDWARE_COUNT; q++)
        if (hardware_value(h, (enum hardware_quantity)q) > 0)
            json_object_set_new(json, hardware_quantities[q].name, cell_json(h, (enum hardware_quantity)q));
    return json;
}

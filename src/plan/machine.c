#include "plan/machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/text.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

#define FILE_LIMIT ((size_t)16 << 20)
enum { MOST_ROWS = 100000 };

void machine_free(struct machine *p) {
    memory_free(p->products);
    memory_free(p->streams);
    memory_free(p->samples);
    memset(p, 0, sizeof *p);
}

/* ---- Questions ---- */

double machine_peak(const struct machine *p, tl_dtype dtype) {
    enum hardware_quantity q = hardware_peak_of(dtype);
    double most = q < HARDWARE_N_PEAKS ? p->measured[q] : 0;
    for (int i = 0; i < p->n_products; i++)
        if (p->products[i].dtype == dtype) most = fmax(most, p->products[i].flops_per_s);
    return most > 0 || q >= HARDWARE_N_PEAKS ? most : p->sheet[q]; /* 8-bit products are not measured by themselves */
}

static double stream_most(const struct machine_stream *s) {
    return fmax(fmax(s->read, s->write), fmax(s->copy, s->triad));
}

double machine_bandwidth(const struct machine *p) {
    double largest = 0, most = 0;
    for (int i = 0; i < p->n_streams; i++)
        if (p->streams[i].bytes > largest) {
            largest = p->streams[i].bytes;
            most = stream_most(&p->streams[i]);
        }
    return most;
}

double machine_bandwidth_of(const struct machine *p, double bytes) {
    const struct machine_stream *below = NULL, *above = NULL;
    for (int i = 0; i < p->n_streams; i++) {
        const struct machine_stream *s = &p->streams[i];
        if (s->bytes <= bytes && (!below || s->bytes > below->bytes)) below = s;
        if (s->bytes >= bytes && (!above || s->bytes < above->bytes)) above = s;
    }
    if (!below) below = above;
    if (!above) above = below;
    if (!below) return 0;
    if (below == above) return stream_most(below);
    double share = log(bytes / below->bytes) / log(above->bytes / below->bytes);
    return stream_most(below) * pow(stream_most(above) / stream_most(below), share);
}

/* ---- This machine ---- */

void machine_name(tl_device *device, char *text, size_t size) {
    char chip[DEVICE_TEXT] = "an unknown chip", libraries[DEVICE_TEXT];
    if (device->functions->describe) device->functions->describe(device, chip, libraries);
    if (!device_is_host(device)) snprintf(text, size, "%s", chip);
    else snprintf(text, size, "%s, %ld cores", chip, sysconf(_SC_NPROCESSORS_ONLN));
}

char *machine_default_path(const char *device) {
    char name[64];
    snprintf(name, sizeof name, "machine-%.*s.json", (int)strcspn(device, ":"), device);
    return hardware_config_path(name);
}

bool machine_find(struct machine *p, tl_device *device, char *why) {
    char *path = machine_default_path(device->name), machine[128];
    bool is_there = path && access(path, R_OK) == 0;
    *why = 0;
    if (!is_there) snprintf(why, 200, "there is no profile of this machine (`tally calibrate` makes one)");
    else if (!machine_read(p, path)) {
        snprintf(why, 200, "%.180s", tl_error_message());
        tl_error_clear();
        is_there = false;
    }
    machine_name(device, machine, sizeof machine);
    const char *isa = device->isa ? device->isa : "";
    if (is_there && (strcmp(p->machine, machine) || strcmp(p->isa, isa) ||
                     (device_is_host(device) && p->threads != process_threads()))) {
        snprintf(why, 200, "the profile is of %.60s, %d threads, %.16s; this is %.60s, %d threads, %.16s", p->machine,
                 p->threads, p->isa, machine, process_threads(), isa);
        machine_free(p);
        is_there = false;
    }
    memory_free(path);
    return is_there;
}

/* ---- As JSON ---- */

static json_t *peaks_json(const double *peaks) {
    json_t *json = json_object();
    for (int q = 0; q < HARDWARE_N_PEAKS; q++)
        if (peaks[q] > 0) json_object_set_new(json, hardware_quantities[q].name, json_real(peaks[q]));
    return json;
}

json_t *machine_json(const struct machine *p) {
    json_t *products = json_array(), *streams = json_array(), *samples = json_array();
    for (int i = 0; i < p->n_products; i++) {
        const struct machine_product *r = &p->products[i];
        json_array_append_new(products, json_pack("{s:s, s:f, s:f, s:f, s:f}", "dtype", tl_dtype_name(r->dtype), "m",
                                                  r->m, "k", r->k, "n", r->n, "flops_per_s", r->flops_per_s));
    }
    for (int i = 0; i < p->n_streams; i++) {
        const struct machine_stream *s = &p->streams[i];
        json_array_append_new(streams, json_pack("{s:f, s:f, s:f, s:f, s:f}", "bytes", s->bytes, "read", s->read,
                                                 "write", s->write, "copy", s->copy, "triad", s->triad));
    }
    for (int i = 0; i < p->n_samples; i++) {
        const struct machine_sample *s = &p->samples[i];
        json_array_append_new(samples, json_pack("{s:s, s:s, s:b, s:f, s:f, s:f, s:f, s:f, s:f}", "op", s->op, "dtype",
                                                 tl_dtype_name(s->dtype), "backward", (int)s->is_backward, "flops",
                                                 s->flops, "bytes", s->bytes, "written", s->written, "inner", s->inner,
                                                 "length", s->length, "seconds", s->seconds));
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:f, s:o, s:o, s:o}", "schema",
                     "tally.machine/2", "device", p->device, "machine", p->machine, "isa", p->isa, "date", p->date,
                     "threads", p->threads, "clock_hz", p->clock_hz, "call_s", p->call_s, "rest_share", p->rest_share,
                     "host_call_s", p->host_call_s, "sheet", peaks_json(p->sheet), "product", peaks_json(p->product),
                     "measured", peaks_json(p->measured), "sheet_bandwidth", p->sheet_bandwidth, "products", products,
                     "streams", streams, "samples", samples);
}

static bool folder_of_make(const char *path) {
    char folder[4096];
    text_copy(folder, sizeof folder, path);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    return !slash || !*folder || file_make_folder(folder);
}

bool machine_can_write(const char *path) {
    struct file_writer *w = folder_of_make(path) ? file_writer_new(path) : NULL;
    file_writer_discard(w);
    return w != NULL;
}

bool machine_write(const struct machine *p, const char *path) {
    json_t *json = machine_json(p);
    char *text = json ? json_print(json, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(json);
    bool ok = text ? folder_of_make(path) && file_put(path, text, strlen(text)) : error_memory(4096, "a profile");
    free(text);
    return ok;
}

/* ---- Back ---- */

struct reader {
    const char *path;
    bool ok;
};

static double real_at(struct reader *r, const json_t *object, const char *key, double least) {
    const json_t *v = json_object_get(object, key);
    double x = json_number_value(v);
    if (r->ok && !(json_is_number(v) && x >= least && x < 1e30))
        r->ok = error_set(TL_ERROR_USE, "%s: \"%s\" is not a number of at least %g", r->path, key, least);
    return x;
}

static void text_at(struct reader *r, const json_t *object, const char *key, char *to, size_t size) {
    const char *text = json_string_value(json_object_get(object, key));
    if (r->ok && (!text || strlen(text) >= size || !text_is_name(text)))
        r->ok = error_set(TL_ERROR_USE, "%s: \"%s\" is not a text of less than %zu characters", r->path, key, size);
    else if (r->ok) text_copy(to, size, text);
}

static tl_dtype dtype_at(struct reader *r, const json_t *object) {
    const char *text = json_string_value(json_object_get(object, "dtype"));
    tl_dtype dtype = text ? dtype_from_name(text) : TL_DTYPE_COUNT;
    if (r->ok && dtype == TL_DTYPE_COUNT) r->ok = error_set(TL_ERROR_USE, "%s: \"dtype\" is not a dtype", r->path);
    return dtype;
}

static void peaks_at(struct reader *r, const json_t *root, const char *key, double *peaks) {
    const json_t *object = json_object_get(root, key);
    if (r->ok && !json_is_object(object)) r->ok = error_set(TL_ERROR_USE, "%s: there is no \"%s\"", r->path, key);
    for (int q = 0; r->ok && q < HARDWARE_N_PEAKS; q++)
        if (json_object_get(object, hardware_quantities[q].name))
            peaks[q] = real_at(r, object, hardware_quantities[q].name, 0);
}

/* The array under a key, and zeroed room for its rows. */
static const json_t *rows_at(struct reader *r, const json_t *root, const char *key, size_t row_bytes, void **rows,
                             int *n) {
    const json_t *array = json_object_get(root, key);
    size_t count = json_array_size(array);
    if (r->ok && (!json_is_array(array) || count > MOST_ROWS))
        r->ok = error_set(TL_ERROR_USE, "%s: \"%s\" is not a list of at most %d", r->path, key, MOST_ROWS);
    if (!r->ok) return NULL;
    *rows = memory_new(count * row_bytes + 1);
    if (!*rows) r->ok = error_memory(count * row_bytes, "a profile");
    else memset(*rows, 0, count * row_bytes + 1);
    *n = r->ok ? (int)count : 0;
    return r->ok ? array : NULL;
}

static void lists_read(struct reader *r, const json_t *root, struct machine *p) {
    const json_t *list = rows_at(r, root, "products", sizeof *p->products, (void **)&p->products, &p->n_products);
    for (int i = 0; r->ok && i < p->n_products; i++) {
        const json_t *o = json_array_get(list, (size_t)i);
        p->products[i] = (struct machine_product){dtype_at(r, o), real_at(r, o, "m", 1), real_at(r, o, "k", 1),
                                                  real_at(r, o, "n", 1), real_at(r, o, "flops_per_s", 1)};
    }
    list = rows_at(r, root, "streams", sizeof *p->streams, (void **)&p->streams, &p->n_streams);
    for (int i = 0; r->ok && i < p->n_streams; i++) {
        const json_t *o = json_array_get(list, (size_t)i);
        p->streams[i] =
            (struct machine_stream){real_at(r, o, "bytes", 1), real_at(r, o, "read", 1), real_at(r, o, "write", 1),
                                    real_at(r, o, "copy", 1), real_at(r, o, "triad", 1)};
    }
    list = rows_at(r, root, "samples", sizeof *p->samples, (void **)&p->samples, &p->n_samples);
    for (int i = 0; r->ok && i < p->n_samples; i++) {
        const json_t *o = json_array_get(list, (size_t)i);
        struct machine_sample *s = &p->samples[i];
        text_at(r, o, "op", s->op, sizeof s->op);
        s->dtype = dtype_at(r, o);
        s->is_backward = json_is_true(json_object_get(o, "backward"));
        s->flops = real_at(r, o, "flops", 0);
        s->bytes = real_at(r, o, "bytes", 0);
        s->written = real_at(r, o, "written", 0);
        s->inner = real_at(r, o, "inner", 0);
        if (json_object_get(o, "length")) s->length = real_at(r, o, "length", 0); /* older profiles have none */
        s->seconds = real_at(r, o, "seconds", 0);
    }
}

bool machine_read(struct machine *p, const char *path) {
    memset(p, 0, sizeof *p);
    json_t *root = json_read(path, FILE_LIMIT);
    if (!root) return false;
    struct reader r = {path, true};
    const char *schema = json_string_value(json_object_get(root, "schema"));
    if (!schema || strcmp(schema, "tally.machine/2"))
        r.ok = error_set(TL_ERROR_USE, "%s: not a tally.machine/2 (`tally calibrate` makes one)", path);
    text_at(&r, root, "device", p->device, sizeof p->device);
    text_at(&r, root, "machine", p->machine, sizeof p->machine);
    text_at(&r, root, "isa", p->isa, sizeof p->isa);
    text_at(&r, root, "date", p->date, sizeof p->date);
    p->threads = (int)fmin(real_at(&r, root, "threads", 0), 1e6);
    p->clock_hz = real_at(&r, root, "clock_hz", 0);
    p->call_s = real_at(&r, root, "call_s", -1e-3); /* see calibrate.c for why these may be negative */
    p->rest_share = real_at(&r, root, "rest_share", -0.5);
    if (json_object_get(root, "host_call_s")) p->host_call_s = real_at(&r, root, "host_call_s", 0); /* older: none */
    p->sheet_bandwidth = real_at(&r, root, "sheet_bandwidth", 0);
    peaks_at(&r, root, "sheet", p->sheet);
    peaks_at(&r, root, "product", p->product);
    peaks_at(&r, root, "measured", p->measured);
    lists_read(&r, root, p);
    json_decref(root);
    if (!r.ok) machine_free(p);
    return r.ok;
}

#include "page/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account/ledger.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "page/page.h"
#include "page/series.h"
#include "plan/predict.h"
#include "tensor/device.h"
#include "train/log.h"

enum { MOST_POINTS = 1500, MOST_EVENTS = 20000, NAME_TEXT = 256 };

/* A file of the folder as JSON; NULL: it is missing or damaged, and no error is recorded. */
static json_t *json_of(const struct file_folder *dir, const char *name) {
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    enum file_kind kind;
    json_t *json = file_look(file_in(dir, name), &kind) && kind == FILE_REGULAR
                       ? json_read_at(file_in(dir, name), JSON_MOST_LEDGER)
                       : NULL;
    if (!json) tl_error_clear();
    tl_set_error_policy(policy);
    return json;
}

static void put(json_t *object, const char *key, json_t *value) {
    if (value) json_object_set_new(object, key, value);
}

/* ---- Price and receipt ---- */

/* Totals and peaks of each kind of step, without the rows. */
static json_t *kinds_of(const json_t *run) {
    json_t *kinds = json_object(), *kind;
    const char *name;
    json_object_foreach(json_object_get(run, "kinds"), name, kind) {
        const json_t *ledger = json_object_get(kind, "ledger"), *memory = json_object_get(ledger, "memory");
        json_t *own = json_object();
        json_object_set(own, "count", json_object_get(kind, "count"));
        json_object_set(own, "time", json_object_get(kind, "time"));
        json_object_set(own, "totals", json_object_get(ledger, "totals"));
        json_object_set(own, "phases", json_object_get(ledger, "phases"));
        json_object_set(own, "peak_bytes", json_object_get(memory, "peak_bytes"));
        json_object_set(own, "peak_reserved_bytes", json_object_get(memory, "peak_reserved_bytes"));
        json_object_set(own, "peak_by_purpose", json_object_get(memory, "peak_by_purpose"));
        json_object_set(own, "target", json_object_get(ledger, "target"));
        json_object_set_new(kinds, name, own);
    }
    return kinds;
}

/* How many differences `tally diff` finds, and its table. */
static void verdict_put(json_t *run, const struct file_folder *dir) {
    size_t bytes;
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    char *price = file_get_at(file_in(dir, "price.json"), JSON_MOST_LEDGER, &bytes);
    char *receipt = price ? file_get_at(file_in(dir, "receipt.json"), JSON_MOST_LEDGER, &bytes) : NULL, *table = NULL;
    int n = receipt ? tl_ledger_diff(price, receipt, &table) : -1;
    if (n < 0) tl_error_clear();
    tl_set_error_policy(policy);
    if (n >= 0) put(run, "differences", json_integer(n));
    if (n > 0 && table) {
        if (strlen(table) > 20000) table[20000] = 0;
        put(run, "difference_table", json_string(table));
    }
    free(table);
    memory_free(price);
    memory_free(receipt);
}

/* ---- Time and its floor ---- */

/* The machine that a run was trained on. False: not known. */
static bool machine_of(const json_t *origin, const json_t *config, struct machine *profile, struct predict_machine *m) {
    const char *device = json_string_value(json_object_get(config, "device"));
    const char *chip = json_string_value(json_object_get(origin, "chip"));
    return device && chip && predict_machine_find(m, profile, device, chip);
}

static tl_dtype dtype_named(const char *name) {
    for (int i = 0; name && i < TL_DTYPE_COUNT; i++)
        if (!strcmp(tl_dtype_name((tl_dtype)i), name)) return (tl_dtype)i;
    return TL_DTYPE_COUNT;
}

/* Adds to each row of a profile the shortest time that its work could take. */
static void floors_put(json_t *profile, const struct predict_machine *m) {
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(profile, "rows"), i, row) {
        const tl_dtype dtype = dtype_named(json_string_value(json_object_get(row, "dtype")));
        if (dtype == TL_DTYPE_COUNT) continue;
        const double floor_s = predict_floor(m, dtype, json_number_value(json_object_get(row, "flops")),
                                             json_number_value(json_object_get(row, "bytes")));
        if (isfinite(floor_s)) put(row, "floor_s", json_real(floor_s));
    }
}

static void time_put(json_t *run, json_t *profile) {
    struct machine machine = {0};
    struct predict_machine m;
    if (machine_of(json_object_get(run, "machine"), json_object_get(run, "settings"), &machine, &m)) {
        json_t *peaks = json_object();
        for (int i = 0; i < TL_DTYPE_COUNT; i++)
            if (m.peak[i] > 0) put(peaks, tl_dtype_name((tl_dtype)i), json_real(m.peak[i]));
        put(run, "roof",
            json_pack("{s:o, s:f, s:s}", "peaks", peaks, "bandwidth", m.bandwidth, "source", predict_source(&m)));
        floors_put(profile, &m);
    }
    machine_free(&machine);
    json_object_set(run, "profile", profile);
}

/* ---- Memory ---- */

static uint64_t bytes_of(const json_t *tensors, json_int_t at) {
    return (uint64_t)json_integer_value(json_array_get(json_array_get(tensors, (size_t)at), 3));
}

static json_int_t item(const json_t *event, size_t i) { return json_integer_value(json_array_get(event, i)); }

/* How many events are about tensors of at least so many bytes. */
static size_t n_events(const json_t *memory, uint64_t least) {
    size_t n = 0, i;
    json_t *event, *tensors = json_object_get(memory, "tensors");
    json_array_foreach(json_object_get(memory, "events"), i, event) n +=
        item(event, 0) != 0 && bytes_of(tensors, item(event, 1)) >= least;
    return n;
}

/* A change by smaller tensors, added to the last event if that is one of the same purpose: [4, purpose, bytes]. */
static void small_add(json_t *events, json_int_t purpose, json_int_t bytes) {
    json_t *last = json_array_get(events, json_array_size(events) ? json_array_size(events) - 1 : 0);
    if (last && item(last, 0) == 4 && item(last, 1) == purpose)
        json_array_set_new(last, 2, json_integer(item(last, 2) + bytes));
    else json_array_append_new(events, json_pack("[i, I, I]", 4, purpose, bytes));
}

/* A list of many thousand events for a page: tensors below some size become sums; all totals stay exact. */
static void memory_thin(json_t *memory, size_t most) {
    json_t *tensors = json_object_get(memory, "tensors"), *events = json_array(), *event;
    uint64_t least = 1;
    while (least < (uint64_t)1 << 50 && n_events(memory, least) > most) least *= 2;
    size_t n = json_array_size(tensors), i;
    json_int_t *purpose = memory_new(n * sizeof *purpose + 1);
    for (size_t k = 0; purpose && k < n; k++)
        purpose[k] = json_integer_value(json_array_get(json_array_get(tensors, k), 2));
    bool has_call = false;
    json_array_foreach(json_object_get(memory, "events"), i, event) {
        json_int_t kind = item(event, 0), at = item(event, 1);
        if (!purpose || !json_is_array(event) || (kind && (at < 0 || (size_t)at >= n))) continue;
        json_int_t bytes = kind ? (json_int_t)bytes_of(tensors, at) : 0;
        if (!kind || (uint64_t)bytes >= least) {
            bool is_repeated = !kind && has_call; /* of calls without allocations the last is enough */
            if (is_repeated) json_array_remove(events, json_array_size(events) - 1);
            has_call = !kind;
            json_array_append(events, event);
            if (kind == 3) purpose[at] = item(event, 2);
            continue;
        }
        has_call = false;
        if (kind != 1) small_add(events, purpose[at], -bytes);
        if (kind == 3) purpose[at] = item(event, 2);
        if (kind != 2) small_add(events, purpose[at], bytes);
    }
    memory_free(purpose);
    json_object_set_new(memory, "events", events);
    json_object_set_new(memory, "least_bytes", json_integer((json_int_t)least));
}

/* ---- A run ---- */

/* The rows of a step by op, phase and dtype: all modules together. */
static json_t *ops_of(const json_t *run) {
    const json_t *ledger = json_object_get(json_object_get(json_object_get(run, "kinds"), "step"), "ledger");
    json_t *sums = json_object(), *row, *list = json_array();
    size_t i;
    const char *key;
    json_array_foreach(json_object_get(ledger, "rows"), i, row) {
        char name[160];
        const char *op = json_string_value(json_object_get(row, "op"));
        const char *phase = json_string_value(json_object_get(row, "phase"));
        const char *dtype = json_string_value(json_object_get(row, "dtype"));
        if (!op || !phase || !dtype) continue;
        snprintf(name, sizeof name, "%s|%s|%s", op, phase, dtype);
        json_t *sum = json_object_get(sums, name);
        if (!sum) {
            sum = json_pack("{s:s, s:s, s:s, s:I, s:f, s:f}", "op", op, "phase", phase, "dtype", dtype, "calls",
                            (json_int_t)0, "flops", 0.0, "bytes", 0.0);
            json_object_set_new(sums, name, sum);
        }
        static const char *const counts[] = {"flops", "bytes_read", "bytes_written"};
        for (int k = 0; k < 3; k++) {
            const char *text = json_string_value(json_object_get(row, counts[k])), *to = k ? "bytes" : "flops";
            double more = text ? number_parse(text, NULL) : 0;
            json_object_set_new(sum, to, json_real(json_number_value(json_object_get(sum, to)) + more));
        }
        json_object_set_new(sum, "calls",
                            json_integer(json_integer_value(json_object_get(sum, "calls")) +
                                         json_integer_value(json_object_get(row, "calls"))));
    }
    json_object_foreach(sums, key, row) json_array_append(list, row);
    json_decref(sums);
    return list;
}

static json_t *run_data(const char *folder, int most_points, size_t most_events) {
    struct file_folder *dir = file_folder_open(folder);
    char name[NAME_TEXT];
    if (!dir) return NULL;
    json_t *config = json_of(dir, "config.json");
    if (!config) {
        file_folder_close(dir);
        error_set(TL_ERROR_USE,
                  "%s: is not the folder of a run: it has no readable config.json (`tally train --out %s` "
                  "makes one)",
                  folder, folder);
        return NULL;
    }
    json_t *run = json_pack("{s:s, s:o}", "name", text_show(name, sizeof name, folder), "settings", config);
    json_t *price = json_of(dir, "price.json"), *receipt = json_of(dir, "receipt.json");
    json_t *profile = json_of(dir, "profile.json"), *memory = json_of(dir, "memory.json");
    put(run, "machine", json_of(dir, "machine.json"));
    put(run, "ranks", json_of(dir, "ranks.json"));
    if (price) put(run, "price", kinds_of(price));
    if (receipt) put(run, "receipt", kinds_of(receipt));
    if (price && receipt) verdict_put(run, dir);
    if (price || receipt) put(run, "ops", ops_of(receipt ? receipt : price));
    if (profile) time_put(run, profile);
    if (memory && json_array_size(json_object_get(memory, "events")) > most_events) memory_thin(memory, most_events);
    if (memory) json_object_set(run, "memory", memory);
    json_t *series = series_read(file_in(dir, LOG_LINES), most_points);
    if (series) json_object_update(run, series);
    json_decref(price), json_decref(receipt), json_decref(profile), json_decref(memory);
    file_folder_close(dir);
    if (series) return json_decref(series), run;
    json_decref(run);
    return NULL;
}

json_t *report_data(const char *const *folders, int n) {
    json_t *runs = json_array();
    int most = n * MOST_POINTS > 8 * MOST_POINTS ? 8 * MOST_POINTS / n : MOST_POINTS;
    for (int i = 0; i < n; i++) {
        json_t *run = run_data(folders[i], most < 100 ? 100 : most, (size_t)MOST_EVENTS / (size_t)n);
        if (!run) return json_decref(runs), NULL;
        json_array_append_new(runs, run);
    }
    return json_pack("{s:s, s:s, s:o}", "schema", "tally.report/1", "version", tl_version(), "runs", runs);
}

char *report_html(const json_t *data, bool is_live) {
    const json_t *runs = json_object_get(data, "runs");
    char title[NAME_TEXT + 32];
    const char *name = json_string_value(json_object_get(json_array_get(runs, 0), "name"));
    snprintf(title, sizeof title, "%s%s: Tally report", name ? name : "",
             json_array_size(runs) > 1 ? " and others" : "");
    return page_html(title, data, "report.js", is_live);
}

uint64_t report_stamp(const char *folder) {
    static const char *const names[] = {LOG_LINES,      "receipt.json", "memory.json",
                                        "profile.json", "ranks.json",   "config.json"};
    uint64_t stamp = 0;
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = file_join(folder, names[i]);
        uint64_t bytes = 0;
        int64_t changed_ns = 0;
        if (path) file_measure(file_path(path), &bytes, &changed_ns);
        tl_error_clear();
        stamp = (stamp ^ bytes ^ (uint64_t)changed_ns) * 0x9E3779B97F4A7C15u + i;
        memory_free(path);
    }
    tl_set_error_policy(policy);
    return stamp;
}

#include "plan/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "tensor/dtype.h"

/* ---- Machines ---- */

struct predict_machine predict_machine_of(const struct machine *p) {
    struct predict_machine m = {.bandwidth = machine_bandwidth(p), .profile = p};
    for (int d = 0; d < TL_DTYPE_COUNT; d++) m.peak[d] = machine_peak(p, (tl_dtype)d);
    for (int i = 0; i < p->n_streams; i++) {
        const struct machine_stream *s = &p->streams[i];
        m.fastest = fmax(m.fastest, fmax(fmax(s->read, s->write), fmax(s->copy, s->triad)));
    }
    return m;
}

struct predict_machine predict_machine_of_chip(const struct hardware *chip) {
    struct predict_machine m = {.bandwidth = hardware_value(chip, HARDWARE_BANDWIDTH)};
    for (int d = 0; d < TL_DTYPE_COUNT; d++) {
        enum hardware_quantity q = hardware_peak_of((tl_dtype)d);
        if (q < HARDWARE_COUNT) m.peak[d] = hardware_value(chip, q);
    }
    return m;
}

/* ---- Rows ---- */

static double bytes_of(const struct ledger_row *row) {
    return (double)row->bytes_read + (double)row->bytes_written + (double)row->transfer_bytes;
}

/* A dtype without a peak of its own (integers, booleans) computes no faster than f32. */
static double peak_of(const struct predict_machine *m, int dtype) {
    double peak = dtype < TL_DTYPE_COUNT ? m->peak[dtype] : 0;
    return peak > 0 ? peak : m->peak[TL_F32];
}

static double roof(const struct predict_machine *m, int dtype, double flops, double bytes) {
    double peak = peak_of(m, dtype);
    return fmax(peak > 0 ? flops / peak : 0, m->bandwidth > 0 ? bytes / m->bandwidth : 0);
}

double predict_roof(const struct predict_machine *m, const struct ledger_row *row) {
    return roof(m, row->key.dtype, (double)row->flops, bytes_of(row));
}

/* How near a sample is: the distance of the logarithms of FLOPs and bytes, and a little more for another way (forward and backward differ in
 * which operand is transposed, which matters less than a factor of two in size). */
enum { NEAREST = 4 };
struct near {
    double distance, slowness; /* log of seconds / roof */
};

static double distance_of(const struct machine_sample *s, double flops, double bytes, bool is_backward) {
    double f = log((flops + 1) / (s->flops + 1)), b = log((bytes + 1) / (s->bytes + 1));
    return sqrt(f * f + b * b + (s->is_backward != is_backward ? 0.5 : 0));
}

static void near_add(struct near *near, int *n, struct near one) {
    int at = *n < NEAREST ? (*n)++ : NEAREST;
    while (at > 0 && near[at - 1].distance > one.distance) {
        if (at < NEAREST) near[at] = near[at - 1];
        at--;
    }
    if (at < NEAREST) near[at] = one;
}

/* The mean of the nearest, weighted by 1 / distance^2. */
static double slowness_of(const struct near *near, int n) {
    double sum = 0, weight = 0;
    for (int i = 0; i < n; i++) {
        double w = 1 / (near[i].distance * near[i].distance + 1e-6);
        sum += w * near[i].slowness;
        weight += w;
    }
    return sum / weight;
}

/* Samples of the very op; or, where it was never measured, of every op of this dtype, which gives what is usual here. */
static double slowness_find(const struct predict_machine *m, const struct ledger_row *row, bool *is_sampled) {
    const struct machine *p = m->profile;
    double calls = (double)row->calls, flops = (double)row->flops / calls, bytes = bytes_of(row) / calls;
    bool is_backward = row->key.phase == TL_BACKWARD;
    struct near own[NEAREST], any[NEAREST];
    int n_own = 0, n_any = 0;
    for (int i = 0; i < p->n_samples; i++) {
        const struct machine_sample *s = &p->samples[i];
        double least = roof(m, (int)s->dtype, s->flops, s->bytes);
        if (!(least > 0 && s->seconds > 0)) continue;
        struct near one = {distance_of(s, flops, bytes, is_backward), log(s->seconds / least)};
        bool is_dtype = s->dtype == (tl_dtype)row->key.dtype;
        if (is_dtype && !strcmp(s->op, row->key.op)) near_add(own, &n_own, one);
        near_add(any, &n_any, (struct near){one.distance + (is_dtype ? 0 : 4), one.slowness});
    }
    *is_sampled = n_own > 0;
    return n_own ? slowness_of(own, n_own) : n_any ? slowness_of(any, n_any) : 0;
}

static double row_seconds(const struct predict_machine *m, const struct ledger_row *row, bool *is_sampled) {
    double least = row->calls ? predict_roof(m, row) : 0;
    *is_sampled = false;
    return least > 0 ? least * exp(slowness_find(m, row, is_sampled)) : 0;
}

double predict_row(const struct predict_machine *m, const struct ledger_row *row) {
    bool is_sampled;
    return m->profile ? row_seconds(m, row, &is_sampled) : NAN;
}

/* ---- Steps ---- */

/* What the update of the weights moves cannot stay in a cache that is smaller; no chip's caches hold more than this. Where memory was
 * measured, its fastest level is what everything can move at. */
static const double largest_cache = 268435456;

struct prediction predict_rows(const struct predict_machine *m, const struct ledger_row *rows, size_t n_rows) {
    struct prediction p = {.seconds = m->profile ? 0 : NAN};
    double calls = 0, sampled = 0, bytes = 0, update = 0;
    for (size_t i = 0; i < n_rows; i++) {
        const struct ledger_row *row = &rows[i];
        double peak = peak_of(m, row->key.dtype);
        if (peak > 0) p.compute_s += (double)row->flops / peak;
        bytes += bytes_of(row);
        if (row->key.phase == TL_UPDATE) update += bytes_of(row);
        if (!m->profile || !(bytes_of(row) > 0)) continue;
        bool is_sampled;
        double s = row_seconds(m, row, &is_sampled);
        p.seconds += s;
        if (is_sampled) sampled += s;
        calls += (double)row->calls;
    }
    p.memory_s = m->fastest > 0     ? bytes / m->fastest
                 : m->bandwidth > 0 ? fmax(update - largest_cache, 0) / m->bandwidth
                                    : 0;
    p.bound_s = fmax(p.compute_s, p.memory_s);
    if (!m->profile) return p;
    p.sampled = p.seconds > 0 ? sampled / p.seconds : 0;
    p.seconds = fmax(p.seconds * (1 + m->profile->rest_share) + calls * m->profile->call_s, p.bound_s);
    return p;
}

struct prediction predict_ledger(const struct predict_machine *m, const tl_ledger *ledger) {
    return predict_rows(m, ledger->rows, ledger->n_rows);
}

/* ---- Files ---- */

static int phase_named(const char *name) {
    for (int p = 0; name && p < TL_PHASE_COUNT; p++)
        if (!strcmp(name, tl_phase_name((tl_phase)p))) return p;
    return TL_PHASE_COUNT;
}

static bool count_at(const json_t *row, const char *key, count *to) {
    const char *text = json_string_value(json_object_get(row, key));
    char *end;
    double value = text ? strtod(text, &end) : -1;
    if (!text || *end || !(value >= 0 && value < 1e38))
        return error_set(TL_ERROR_USE, "a row of the ledger has no good \"%s\"", key);
    *to = (count)value; /* 53 bits of it are enough for a time */
    return true;
}

static bool row_read(const json_t *json, struct ledger_row *row) {
    const char *dtype = json_string_value(json_object_get(json, "dtype"));
    const json_t *calls = json_object_get(json, "calls");
    count transfer = 0;
    memset(row, 0, sizeof *row);
    row->key.op = json_string_value(json_object_get(json, "op"));
    row->key.phase = (uint8_t)phase_named(json_string_value(json_object_get(json, "phase")));
    row->key.dtype = (uint8_t)(dtype ? dtype_from_name(dtype) : TL_DTYPE_COUNT);
    if (!row->key.op || row->key.phase == TL_PHASE_COUNT || !json_is_integer(calls) || json_integer_value(calls) < 0)
        return error_set(TL_ERROR_USE, "a row of the ledger has no op, phase or calls");
    if (json_object_get(json, "transfer_bytes") && !count_at(json, "transfer_bytes", &transfer)) return false;
    row->calls = (uint64_t)json_integer_value(calls);
    row->transfer_bytes = transfer;
    return count_at(json, "flops", &row->flops) && count_at(json, "bytes_read", &row->bytes_read) &&
           count_at(json, "bytes_written", &row->bytes_written);
}

bool predict_json(const struct predict_machine *m, const json_t *json, struct prediction *prediction) {
    const json_t *step = json_object_get(json_object_get(json, "kinds"), "step");
    const json_t *list = json_object_get(step ? json_object_get(step, "ledger") : json, "rows");
    size_t n = json_array_size(list);
    if (!json_is_array(list))
        return error_set(TL_ERROR_USE, "neither a tally.ledger/1 nor a tally.run/1 with a step: it has no rows");
    struct ledger_row *rows = memory_new(n * sizeof *rows + 1);
    bool ok = rows || error_memory(n * sizeof *rows, "rows of a ledger");
    for (size_t i = 0; ok && i < n; i++) ok = row_read(json_array_get(list, i), &rows[i]);
    if (ok) *prediction = predict_rows(m, rows, n);
    memory_free(rows);
    return ok;
}

#include "plan/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "tensor/dtype.h"
#include "step/trainer.h"
#include "nn/architecture.h"

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

bool predict_machine_find(struct predict_machine *m, struct machine *profile, const char *device, const char *chip) {
    char why[200];
    *profile = (struct machine){0};
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    tl_device *found = tl_device_find(device);
    bool is_measured = found && machine_find(profile, found, why);
    tl_error_clear();
    tl_set_error_policy(policy);
    const struct hardware *sheet = hardware_seek(chip);
    if (is_measured && strncmp(profile->machine, chip, strlen(chip)) != 0) {
        machine_free(profile);
        is_measured = false;
    }
    if (is_measured) *m = predict_machine_of(profile);
    else if (sheet) *m = predict_machine_of_chip(sheet);
    return is_measured || sheet;
}

const char *predict_source(const struct predict_machine *m) {
    return m->profile ? "measured by tally calibrate" : "the chip's data sheet";
}

/* ---- Rows ---- */

static double bytes_of(const struct ledger_row *row) {
    return (double)row->bytes_read + (double)row->bytes_written + (double)row->transfer_bytes;
}

/* A dtype without its own peak (integers, booleans) computes no faster than f32. */
static double peak_of(const struct predict_machine *m, int dtype) {
    double peak = dtype < TL_DTYPE_COUNT ? m->peak[dtype] : 0;
    return peak > 0 ? peak : m->peak[TL_F32];
}

double predict_floor(const struct predict_machine *m, int dtype, double flops, double bytes) {
    double peak = peak_of(m, dtype);
    return fmax(peak > 0 ? flops / peak : 0, m->bandwidth > 0 ? bytes / m->bandwidth : 0);
}

bool predict_knows(const struct predict_machine *m, const struct ledger_row *row) {
    if (!row->flops) return true;
    if (row->key.dtype >= TL_DTYPE_COUNT) return false;
    const bool has_own = dtype_is_float(row->key.dtype) && predict_is_product(row->key.op); /* the rest is as f32's */
    return m->peak[has_own ? row->key.dtype : TL_F32] > 0;
}

double predict_roof(const struct predict_machine *m, const struct ledger_row *row) {
    return predict_floor(m, row->key.dtype, (double)row->flops, bytes_of(row));
}

/* ---- Efficiency at a size ----
 *
 * The slowness of an op, y = log(seconds / (roof + launch)), where a launch is what any call takes, is a smooth
 * function of a few coordinates x: size, FLOPs per byte, share that is written (for a product these three give m, k
 * and n), the innermost loop, forward or backward, whether vectors divide that loop, which of the two 16-bit dtypes it
 * is, and how much of its tiles attention leaves empty. Ordinary kriging between the nearest samples (x_i, y_i):
 *
 *     c(d) = (1 + d) exp(-d)     C = c(|x_i - x_k|) + nugget     w = C^-1 c(|x_i - x|)
 *     mean = 1' C^-1 y / 1' C^-1 1                               y(x) = mean + w' (y - mean)
 *
 * It passes through samples up to the noise of a timing, bends between them, and far from all of them tends to their
 * mean. */
/* FEWEST: an op of which there are fewer samples is taken for the product that it contains. */
enum { SIZE, INTENSITY, WRITTEN, INNER, BACKWARD, ODD, HALF, REST_OF_128, REST_OF_64, N_AXES };
enum { NEAREST = 24, VECTOR = 8, FEWEST = 4 };
static const double nugget = 1e-4, beyond = 0.05; /* noise of 1 %; how far y may leave the range of the samples */
struct near {
    double at[N_AXES], distance, slowness;
};

struct predict_shape predict_shape_of(const tl_model_config *config, int64_t seq) {
    return (struct predict_shape){(double)config->head_size, (double)config->channels, (double)seq,
                                  (double)architecture_expert_ff(config), config->dropout > 0};
}

/* The largest power of two, up to 8, that divides both widths of a layer's products; 0: they are not known. */
static double widths_divisor(const struct predict_shape *shape) {
    if (!(shape->channels > 0 && shape->ff > 0)) return 0;
    double divisor = VECTOR;
    while (fmod(shape->channels, divisor) != 0 || fmod(shape->ff, divisor) != 0) divisor /= 2;
    return divisor;
}

/* Products of experts, of weights in blocks or in parts, and those that activate their results, are as fast as others
 * that cost the same, where they were not measured themselves. */
static const char *product_like(const char *op) {
    if (strncmp(op, "grouped_", 8) && !strstr(op, "_mlp") && strcmp(op, "matmul_blocks") && strcmp(op, "matmul_parts"))
        return op;
    return strstr(op, "_acc") ? "matmul_acc" : "matmul";
}

/* Ops whose slowness changes alike. */
enum kind { PRODUCT, ATTENTION, HEAD, OTHER, N_KINDS };
static enum kind kind_of(const char *op) {
    if (!strncmp(op, "attention", 9)) return ATTENTION;
    if (!strncmp(op, "linear_cross_entropy", 20)) return HEAD;
    return predict_is_product(op) ? PRODUCT : OTHER;
}

/* The size besides FLOPs and bytes that decides how fast an op is. 0: there is none, or it is not known. */
static double inner_of(const struct predict_shape *shape, const char *op) {
    op = product_like(op);
    if (!strncmp(op, "matmul", 6)) return widths_divisor(shape);
    if (!strncmp(op, "rope", 4)) return shape->head_size * shape->seq; /* of sines and cosines */
    switch (kind_of(op)) {
    /* with dropout other kernels compute it: a size that no vector divides keeps them apart */
    case ATTENTION:
        return shape->head_size + (shape->has_dropout ? 0.5 : 0);
    case HEAD:
        return shape->channels;
    default:
        return 0;
    }
}

/* Weights of the axes by how fast slowness changes along each. On a cpu they are the same for all ops, and were found
 * by predicting some 150 steps from 120 others; on a GPU, by predicting each of 209 steps from the others. */
static const double cpu_weights[N_AXES] = {0.06, 0.33, 0.33, 0.43, 0.15, 0.43, 1, 0, 0};
static const double gpu_weights[N_KINDS][N_AXES] = {
    [PRODUCT] = {0.06, 0.33, 0.33, 0.43, 0.15, 0.43, 1, 0, 0},
    [ATTENTION] = {0.27, 0.2, 0.4, 0.5, 0.15, 0.3, 0.5, 0.17, 0.32},
    [HEAD] = {0.02, 0.16, 0.16, 0.3, 0.15, 0.43, 1, 0, 0},
    [OTHER] = {0.02, 0.06, 0.37, 0.1, 0.075, 0.43, 0.12, 0, 0},
};
/* Only a device that works on its own has a time to launch an op. */
static const double *weights_of(const struct machine *p, const char *op) {
    return p->host_call_s > 0 ? gpu_weights[kind_of(op)] : cpu_weights;
}

/* log of the rows that tiles of `tile` compute over those that there are. */
static double tile_rest(double length, double tile) { return log(ceil(length / tile) * tile / length); }

static void place_of(double *at, const double *weights, const struct machine_sample *s) {
    const bool has_inner = s->inner > 0, has_length = s->length > 0;
    at[SIZE] = log(s->bytes + 1);
    at[INTENSITY] = log((s->flops + 1) / (s->bytes + 1));
    at[WRITTEN] = log((s->written + 1) / (fmax(s->bytes - s->written, 0) + 1));
    at[INNER] = has_inner ? log(s->inner) : NAN;
    at[BACKWARD] = s->is_backward;
    at[ODD] = has_inner ? fmod(s->inner, VECTOR) != 0 : NAN;
    at[HALF] = s->dtype == TL_F16;
    at[REST_OF_128] = has_length ? tile_rest(s->length, 128) : NAN;
    at[REST_OF_64] = has_length ? tile_rest(s->length, 64) : NAN;
    for (int i = 0; i < N_AXES; i++) at[i] *= weights[i];
}

/* What is not known of one of the two does not count. */
static double distance_of(const double *a, const double *b) {
    double sum = 0;
    for (int i = 0; i < N_AXES; i++)
        if (isfinite(a[i]) && isfinite(b[i])) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sqrt(sum);
}

static void near_add(struct near *near, int *n, const struct near *one) {
    int at = *n < NEAREST ? (*n)++ : NEAREST;
    while (at > 0 && near[at - 1].distance > one->distance) {
        if (at < NEAREST) near[at] = near[at - 1];
        at--;
    }
    if (at < NEAREST) near[at] = *one;
}

static double likeness(double distance) { return (1 + distance) * exp(-distance); }

/* C = L L', in place; then C z = b by two triangles. C is positive definite: the nugget is on its diagonal. */
static void factor(double c[NEAREST][NEAREST], int n) {
    for (int i = 0; i < n; i++)
        for (int k = 0; k <= i; k++) {
            double sum = c[i][k];
            for (int j = 0; j < k; j++) sum -= c[i][j] * c[k][j];
            c[i][k] = i == k ? sqrt(fmax(sum, nugget / 2)) : sum / c[k][k];
        }
}
static void solve(double c[NEAREST][NEAREST], int n, double *b) {
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++) b[i] -= c[i][k] * b[k];
        b[i] /= c[i][i];
    }
    for (int i = n - 1; i >= 0; i--) {
        for (int k = i + 1; k < n; k++) b[i] -= c[k][i] * b[k];
        b[i] /= c[i][i];
    }
}

static double slowness_between(const struct near *near, int n) {
    double c[NEAREST][NEAREST], y[NEAREST], one[NEAREST], sum_y = 0, sum_one = 0, low = INFINITY, high = -INFINITY;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k <= i; k++) c[i][k] = likeness(distance_of(near[i].at, near[k].at)) + (i == k ? nugget : 0);
        y[i] = near[i].slowness;
        one[i] = 1;
        low = fmin(low, y[i]);
        high = fmax(high, y[i]);
    }
    factor(c, n);
    solve(c, n, y);
    solve(c, n, one);
    for (int i = 0; i < n; i++) sum_y += y[i], sum_one += one[i];
    double mean = sum_y / sum_one, at = mean;
    for (int i = 0; i < n; i++) at += likeness(near[i].distance) * (y[i] - mean * one[i]);
    return fmin(fmax(at, low - beyond), high + beyond);
}

/* The time without inefficiency: that of a launch, and the roof. */
static double least_s(const struct predict_machine *m, int dtype, double flops, double bytes) {
    double least = predict_floor(m, dtype, flops, bytes);
    return least > 0 ? least + m->profile->host_call_s : 0;
}

/* Kernels for the two are the same but for a conversion. */
static bool are_alike(tl_dtype a, tl_dtype b) { return (a == TL_F16 && b == TL_BF16) || (a == TL_BF16 && b == TL_F16); }

struct machine_sample predict_sample(const struct ledger_row *row, const struct predict_shape *shape) {
    const double calls = (double)row->calls;
    struct machine_sample s = {.dtype = (tl_dtype)row->key.dtype, .is_backward = row->key.phase == TL_BACKWARD};
    text_copy(s.op, sizeof s.op, row->key.op);
    s.flops = (double)row->flops / calls;
    s.bytes = bytes_of(row) / calls;
    s.written = (double)row->bytes_written / calls;
    s.seconds = row->time_s / calls;
    s.inner = inner_of(shape, s.op);
    s.length = kind_of(s.op) == ATTENTION ? shape->seq : 0;
    return s;
}

/* Samples of `op`; or, if that is NULL, of every op, those of this dtype first, which gives the usual efficiency
 * here. */
static int nearest_find(const struct predict_machine *m, const struct machine_sample *row, const char *op,
                        struct near *near) {
    const struct machine *p = m->profile;
    const double *weights = weights_of(p, row->op);
    double at[N_AXES];
    int n = 0;
    place_of(at, weights, row);
    for (int i = 0; i < p->n_samples; i++) {
        const struct machine_sample *s = &p->samples[i];
        bool is_dtype = s->dtype == row->dtype;
        if (op && (!(is_dtype || are_alike(s->dtype, row->dtype)) || strcmp(s->op, op))) continue;
        double least = least_s(m, (int)s->dtype, s->flops, s->bytes);
        if (!(least > 0 && s->seconds > 0)) continue;
        struct near one = {.slowness = log(s->seconds / least)};
        place_of(one.at, weights, s);
        one.distance = distance_of(one.at, at) + (op || is_dtype ? 0 : 2);
        near_add(near, &n, &one);
    }
    return n;
}

static double slowness_find(const struct predict_machine *m, const struct predict_shape *shape,
                            const struct ledger_row *row, bool *is_sampled) {
    struct near near[NEAREST];
    const struct machine_sample one = predict_sample(row, shape);
    int n = nearest_find(m, &one, one.op, near);
    const char *like = product_like(row->key.op);
    if (n < FEWEST && like != row->key.op) n = nearest_find(m, &one, like, near);
    *is_sampled = n > 0;
    if (!n) n = nearest_find(m, &one, NULL, near);
    return n ? slowness_between(near, n) : 0;
}

static double row_seconds(const struct predict_machine *m, const struct predict_shape *shape,
                          const struct ledger_row *row, bool *is_sampled) {
    double calls = (double)row->calls,
           least =
               calls > 0 ? calls * least_s(m, row->key.dtype, (double)row->flops / calls, bytes_of(row) / calls) : 0;
    *is_sampled = false;
    return least > 0 ? least * exp(slowness_find(m, shape, row, is_sampled)) : 0;
}

double predict_row(const struct predict_machine *m, const struct predict_shape *shape, const struct ledger_row *row) {
    bool is_sampled;
    return m->profile ? row_seconds(m, shape, row, &is_sampled) : NAN;
}

/* Layers are alike: one takes as long as the next. The last row of each slot is remembered. */
enum { REMEMBERED = 256 };
struct recalled {
    const struct ledger_row *row; /* NULL: nothing */
    double seconds;
    bool is_sampled;
};

static bool costs_as(const struct ledger_row *a, const struct ledger_row *b) {
    return !strcmp(a->key.op, b->key.op) && a->key.dtype == b->key.dtype && a->key.phase == b->key.phase &&
           a->calls == b->calls && a->flops == b->flops && a->bytes_read == b->bytes_read &&
           a->bytes_written == b->bytes_written && a->transfer_bytes == b->transfer_bytes &&
           a->sent_bytes == b->sent_bytes;
}

static double row_recall(const struct predict_machine *m, const struct predict_shape *shape,
                         const struct ledger_row *row, struct recalled *memory, bool *is_sampled) {
    uint64_t hash =
        (uint64_t)row->flops * 31 + (uint64_t)row->bytes_read * 7 + (uint64_t)row->bytes_written + row->key.phase;
    for (const char *c = row->key.op; *c; c++) hash = hash * 131 + (unsigned char)*c;
    struct recalled *own = &memory[hash * 0x9E3779B97F4A7C15u >> 56];
    if (!own->row || !costs_as(own->row, row)) {
        own->seconds = row_seconds(m, shape, row, &own->is_sampled);
        own->row = row;
    }
    *is_sampled = own->is_sampled;
    return own->seconds;
}

/* ---- Steps ---- */

/* The bytes moved by the weight update do not stay in a smaller cache; no chip's caches hold more than this. If
 * memory was measured, its fastest level bounds the speed of everything. */
static const double largest_cache = 268435456;

bool predict_is_product(const char *op) {
    static const char *const ops[] = {"matmul",        "matmul_acc",        "matmul_f8",
                                      "matmul_f8_acc", "grouped_matmul",    "grouped_matmul_acc",
                                      "grouped_outer", "grouped_outer_acc", "gelu_mlp",
                                      "gelu_mlp_grad", "swiglu_mlp",        "swiglu_mlp_grad",
                                      "attention",     "attention_grad",    "linear_cross_entropy",
                                      "matmul_blocks", "matmul_parts"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (!strcmp(op, ops[i])) return true;
    return false;
}

/* FLOPs of a dtype belong over the peak of that dtype: a run in two of them has a peak between the two. */
static double products_peak(const struct predict_machine *m, const struct ledger_row *rows, size_t n_rows) {
    double flops = 0, seconds = 0;
    for (size_t i = 0; i < n_rows; i++) {
        double peak = peak_of(m, rows[i].key.dtype);
        if (!rows[i].flops || !predict_is_product(rows[i].key.op)) continue;
        if (!(peak > 0)) return 0;
        flops += (double)rows[i].flops;
        seconds += (double)rows[i].flops / peak;
    }
    return seconds > 0 ? flops / seconds : 0;
}

struct prediction predict_rows(const struct predict_machine *m, const struct predict_shape *shape,
                               const struct ledger_row *rows, size_t n_rows) {
    struct recalled memory[REMEMBERED] = {{NULL, 0, false}};
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
        double s = row_recall(m, shape, row, memory, &is_sampled);
        p.seconds += s;
        if (is_sampled) sampled += s;
        calls += (double)row->calls;
    }
    p.memory_s = m->fastest > 0     ? bytes / m->fastest
                 : m->bandwidth > 0 ? fmax(update - largest_cache, 0) / m->bandwidth
                                    : 0;
    p.bound_s = fmax(p.compute_s, p.memory_s);
    p.peak = products_peak(m, rows, n_rows);
    if (!m->profile) return p;
    p.sampled = p.seconds > 0 ? sampled / p.seconds : 0;
    double device_s = p.seconds * (1 + m->profile->rest_share) + calls * m->profile->call_s;
    p.seconds = fmax(fmax(device_s, calls * m->profile->host_call_s), p.bound_s);
    return p;
}

struct prediction predict_ledger(const struct predict_machine *m, const struct predict_shape *shape,
                                 const tl_ledger *ledger) {
    return predict_rows(m, shape, ledger->rows, ledger->n_rows);
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
    double value = text ? number_parse(text, &end) : -1;
    if (!text || *end || !(value >= 0 && value < 1e38))
        return error_set(TL_ERROR_USE, "a row of the ledger has no valid \"%s\"", key);
    *to = (count)value; /* 53 bits of it are enough for a time */
    return true;
}

static bool row_read(const json_t *json, struct ledger_row *row) {
    const char *dtype = json_string_value(json_object_get(json, "dtype"));
    const json_t *calls = json_object_get(json, "calls");
    count transfer = 0, sent = 0;
    memset(row, 0, sizeof *row);
    row->key.op = json_string_value(json_object_get(json, "op"));
    row->key.phase = (uint8_t)phase_named(json_string_value(json_object_get(json, "phase")));
    row->key.dtype = (uint8_t)(dtype ? dtype_from_name(dtype) : TL_DTYPE_COUNT);
    if (!row->key.op || row->key.phase == TL_PHASE_COUNT || !json_is_integer(calls) || json_integer_value(calls) < 0)
        return error_set(TL_ERROR_USE, "a row of the ledger has no op, phase or calls");
    if (json_object_get(json, "transfer_bytes") && !count_at(json, "transfer_bytes", &transfer)) return false;
    if (json_object_get(json, "sent_bytes") && !count_at(json, "sent_bytes", &sent)) return false;
    row->calls = (uint64_t)json_integer_value(calls);
    row->transfer_bytes = transfer;
    row->sent_bytes = sent;
    return count_at(json, "flops", &row->flops) && count_at(json, "bytes_read", &row->bytes_read) &&
           count_at(json, "bytes_written", &row->bytes_written);
}

/* A run has its settings. If they name a model that is not here, only its shape is unknown. */
static struct predict_shape shape_of(const json_t *json) {
    struct settings s = settings_default();
    tl_model_config c;
    char weights[SETTING_TEXT], *text = json_print(json_object_get(json, "settings"), 0);
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    bool ok = text && settings_take(&s, text) && trainer_model(&s, &c, weights);
    if (!ok) tl_error_clear();
    tl_set_error_policy(policy);
    free(text);
    return ok ? predict_shape_of(&c, s.seq) : (struct predict_shape){0, 0, 0, 0, false};
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
    if (ok) {
        const struct predict_shape shape = shape_of(json);
        *prediction = predict_rows(m, &shape, rows, n);
    }
    memory_free(rows);
    return ok;
}

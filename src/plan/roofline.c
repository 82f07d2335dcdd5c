#include "plan/roofline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "plan/trial.h"
#include "step/price.h"
#include "step/recipe.h"
#include "step/trainer.h"

const char *const roofline_set_names[ROOFLINE_SETS] = {"standard", "training", "inference"};

enum { MOST_POINTS = 512 };

/* Products run on the units of their dtype; everything else is computed in f32 (f64) by the vector units. */
static double peak_of(const struct roofline *r, const char *op, tl_dtype dtype) {
    static const char *const products[] = {"matmul", "grouped_", "gelu_mlp", "swiglu_mlp", "linear_cross_entropy"};
    bool is_product = false;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        is_product = is_product || !strncmp(op, products[i], strlen(products[i]));
    double own = dtype < TL_DTYPE_COUNT ? r->known.peak[dtype] : 0;
    /* a chip that is not here may have attention on them too: its roof is the highest there could be */
    return (is_product || r->is_sheet || dtype == TL_F64) && own > 0 ? own : r->known.peak[TL_F32];
}

/* ---- Points ---- */

static struct roofline_point *point_of(struct roofline *r, enum roofline_set set, const char *name, int phase,
                                       tl_dtype dtype) {
    for (int i = 0; i < r->n_points; i++) {
        struct roofline_point *p = &r->points[i];
        if (p->set == set && p->phase == phase && p->dtype == dtype && !strcmp(p->name, name)) return p;
    }
    if (r->n_points == MOST_POINTS) {
        error_set(TL_ERROR_USE, "a roofline of more than %d points", MOST_POINTS);
        return NULL;
    }
    struct roofline_point *p = &r->points[r->n_points++];
    *p = (struct roofline_point){.set = set, .phase = phase, .dtype = dtype};
    text_copy(p->name, sizeof p->name, name);
    return p;
}

/* Seconds of a row: measured, or those of the sheet's roof. */
static double seconds_of(const struct roofline *r, const char *name, const struct ledger_row *row) {
    if (!r->is_sheet) return row->time_s;
    const double peak = peak_of(r, name, (tl_dtype)row->key.dtype);
    const double bytes = (double)row->bytes_read + (double)row->bytes_written;
    return fmax(peak > 0 ? (double)row->flops / peak : 0, bytes / r->known.bandwidth);
}

static bool point_add(struct roofline *r, enum roofline_set set, const char *name, const struct ledger_row *row) {
    const double seconds = seconds_of(r, name, row);
    if (!(seconds > 0)) return true;
    struct roofline_point *p = point_of(r, set, name, row->key.phase, (tl_dtype)row->key.dtype);
    if (!p) return false;
    p->calls += row->calls;
    p->flops += (double)row->flops;
    p->bytes += (double)row->bytes_read + (double)row->bytes_written;
    p->seconds += seconds;
    return true;
}

/* A call that is billed to two phases is timed in one of them: its other FLOPs belong to the same time. */
static bool rows_add(struct roofline *r, enum roofline_set set, const struct ledger_row *rows, size_t n) {
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        struct ledger_row row = rows[i];
        if (row.calls == 0) continue;
        for (size_t k = 0; k < n; k++) {
            if (rows[k].calls || rows[k].key.op != row.key.op || rows[k].key.path != row.key.path) continue;
            row.flops += rows[k].flops;
            row.bytes_read += rows[k].bytes_read;
            row.bytes_written += rows[k].bytes_written;
        }
        ok = point_add(r, set, row.key.op, &row);
    }
    return ok;
}

static void points_finish(struct roofline *r) {
    for (int i = 0; i < r->n_points; i++) {
        struct roofline_point *p = &r->points[i];
        double peak = peak_of(r, p->name, p->dtype);
        p->intensity = p->bytes > 0 ? p->flops / p->bytes : 0;
        p->rate = p->flops / p->seconds;
        p->is_memory_bound = p->intensity * r->known.bandwidth < peak;
        p->roof = fmin(peak, p->intensity * r->known.bandwidth);
    }
}

static int point_order(const void *x, const void *y) {
    const struct roofline_point *a = x, *b = y;
    if (a->set != b->set) return (int)a->set - (int)b->set;
    if (a->set == ROOFLINE_STANDARD) return (a->intensity > b->intensity) - (a->intensity < b->intensity);
    return (a->seconds < b->seconds) - (a->seconds > b->seconds);
}

/* ---- The standard set ---- */

static tl_tensor *do_relu(tl_tensor *a, tl_tensor *b) {
    (void)b;
    return tl_relu(a);
}
static tl_tensor *do_gelu(tl_tensor *a, tl_tensor *b) {
    (void)b;
    return tl_gelu(a);
}

static const struct standard {
    const char *name;
    tl_tensor *(*call)(tl_tensor *a, tl_tensor *b);
    int64_t rows, inner, columns; /* columns 0: one operand */
} standards[] = {
    {"relu 4Mi", do_relu, 2048, 2048, 0},         {"gelu 4Mi", do_gelu, 2048, 2048, 0},
    {"dot 4Mi", tl_matmul, 1, 1 << 22, 1},        {"matvec 2048", tl_matmul, 2048, 2048, 1},
    {"matmul 64", tl_matmul, 64, 64, 64},         {"matmul 256", tl_matmul, 256, 256, 256},
    {"matmul 1024", tl_matmul, 1024, 1024, 1024},
};

/* The calls of one standard op for some hundredths of a second; their mean, after a warm-up call. */
static bool standard_measure(struct roofline *r, const struct standard *s, tl_dtype dtype, tl_device *device) {
    tl_scope scope = tl_scope_begin();
    tl_tensor *a = tl_zeros(TL_SHAPE(s->rows, s->inner), dtype, device);
    tl_tensor *b = s->columns ? tl_zeros(TL_SHAPE(s->inner, s->columns), dtype, device) : NULL;
    bool ok = a && (b || !s->columns) && s->call(a, b);
    tl_ledger *ledger = ok ? tl_ledger_begin(s->name) : NULL;
    double began = now_s();
    for (int i = 0; ok && ledger && (i < 3 || now_s() - began < 0.04) && i < (r->is_sheet ? 1 : 100000); i++) {
        tl_scope inner = tl_scope_begin();
        ok = s->call(a, b) != NULL;
        ok = tl_scope_end(inner) && ok;
    }
    ok = ok && ledger && tl_ledger_end(ledger);
    for (size_t i = 0; ok && i < ledger->n_rows; i++) ok = point_add(r, ROOFLINE_STANDARD, s->name, &ledger->rows[i]);
    tl_ledger_free(ledger);
    return tl_scope_end(scope) && ok;
}

static bool standards_measure(struct roofline *r, const struct settings *s, tl_device *device) {
    const struct recipe *recipe = recipe_find(settings_choice(s, "recipe"));
    if (!recipe) return false;
    tl_dtype dtype = recipe->autocast < TL_DTYPE_COUNT ? recipe->autocast : recipe->parameters;
    bool before = tl_set_profiling(true), grad = tl_set_grad_mode(false), ok = true;
    for (size_t i = 0; ok && i < sizeof standards / sizeof *standards; i++)
        ok = standard_measure(r, &standards[i], dtype, device);
    tl_set_grad_mode(grad);
    tl_set_profiling(before);
    return ok;
}

/* ---- Inference: one token of one sequence ---- */

static bool inference_measure(struct roofline *r, const struct settings *s, tl_device *device) {
    tl_model_config config;
    char weights[SETTING_TEXT];
    const struct recipe *recipe = recipe_find(settings_choice(s, "recipe"));
    if (!recipe || !trainer_model(s, &config, weights)) return false;
    tl_scope scope = tl_scope_begin();
    tl_module *model = tl_model_new(&config, recipe->parameters, device);
    tl_tensor *token = model ? tl_zeros(TL_SHAPE(1, 1), TL_I64, device) : NULL;
    bool grad = tl_set_grad_mode(false), profile = tl_set_profiling(true);
    tl_dtype autocast = tl_set_autocast(recipe->autocast);
    bool ok = token && tl_model_logits(model, token) && tl_device_sync(device);
    tl_ledger *ledger = ok ? tl_ledger_begin("inference") : NULL;
    double began = now_s();
    int n = 0;
    for (; ok && ledger && (n < 3 || now_s() - began < 0.1) && n < (r->is_sheet ? 1 : 1000); n++) {
        tl_scope inner = tl_scope_begin();
        ok = tl_model_logits(model, token) != NULL;
        ok = tl_scope_end(inner) && ok;
    }
    ok = ok && tl_device_sync(device);
    if (n) r->token_s = (now_s() - began) / n;
    ok = ok && ledger && tl_ledger_end(ledger) && rows_add(r, ROOFLINE_INFERENCE, ledger->rows, ledger->n_rows);
    tl_set_autocast(autocast);
    tl_set_profiling(profile);
    tl_set_grad_mode(grad);
    tl_ledger_free(ledger);
    tl_module_free(model);
    return tl_scope_end(scope) && ok;
}

static bool training_measure(struct roofline *r, const struct settings *s) {
    struct trial trial;
    if (!trial_run(s, 3, &trial)) return false;
    bool ok = rows_add(r, ROOFLINE_TRAINING, trial.rows, trial.n_rows);
    r->step_s = trial.step_s;
    trial_free(&trial);
    return ok;
}

/* ---- A chip that is not here ---- */

static bool training_price(struct roofline *r, const struct settings *s, tl_device *device) {
    struct price *p = memory_new(sizeof *p);
    if (!p) return error_memory(sizeof *p, "a price");
    bool ok = price_sketch(p, s, device, 0);
    if (ok) {
        const tl_ledger *step = p->kind[KIND_STEP].ledger;
        ok = rows_add(r, ROOFLINE_TRAINING, step->rows, step->n_rows);
        price_free(p);
    }
    memory_free(p);
    return ok;
}

static double sum_of(const struct roofline *r, enum roofline_set set) {
    double sum = 0;
    for (int i = 0; i < r->n_points; i++) sum += r->points[i].set == set ? r->points[i].seconds : 0;
    return sum;
}

bool roofline_of_chip(struct roofline *r, const struct plan_target *target, const struct settings *s,
                      const bool sets[ROOFLINE_SETS]) {
    memset(r, 0, sizeof *r);
    r->is_sheet = true;
    r->known = target->speed;
    r->known.fastest = 0; /* sheets say nothing of caches */
    if (!(r->known.bandwidth > 0 && r->known.peak[TL_F32] > 0))
        return error_set(TL_ERROR_USE,
                         "%s: the table has no bandwidth or no f32 peak for it (--hardware FILE adds them)",
                         target->name);
    text_copy(r->machine.machine, sizeof r->machine.machine, target->chip ? target->chip->name : target->name);
    text_copy(r->machine.device, sizeof r->machine.device, "data sheet");
    bool ok = (r->points = memory_new(MOST_POINTS * sizeof *r->points)) ||
              error_memory(MOST_POINTS * sizeof *r->points, "a roofline");
    if (ok && sets[ROOFLINE_STANDARD]) ok = standards_measure(r, s, target->device);
    if (ok && sets[ROOFLINE_TRAINING]) ok = training_price(r, s, target->device);
    if (ok && sets[ROOFLINE_INFERENCE]) ok = inference_measure(r, s, target->device);
    if (!ok) return roofline_free(r), false;
    r->step_s = sum_of(r, ROOFLINE_TRAINING);
    r->token_s = sum_of(r, ROOFLINE_INFERENCE);
    points_finish(r);
    qsort(r->points, (size_t)r->n_points, sizeof *r->points, point_order);
    return true;
}

/* ---- All ---- */

bool roofline_make(struct roofline *r, struct machine *machine, const struct settings *s,
                   const bool sets[ROOFLINE_SETS]) {
    memset(r, 0, sizeof *r);
    r->machine = *machine;
    memset(machine, 0, sizeof *machine);
    r->known = predict_machine_of(&r->machine);
    r->points = memory_new(MOST_POINTS * sizeof *r->points);
    tl_device *device = tl_device_find(s->device);
    bool ok = device && (r->points || error_memory(MOST_POINTS * sizeof *r->points, "a roofline"));
    if (ok && sets[ROOFLINE_STANDARD]) ok = standards_measure(r, s, device);
    if (ok && sets[ROOFLINE_TRAINING]) ok = training_measure(r, s);
    if (ok && sets[ROOFLINE_INFERENCE]) ok = inference_measure(r, s, device);
    if (!ok) {
        roofline_free(r);
        return false;
    }
    points_finish(r);
    qsort(r->points, (size_t)r->n_points, sizeof *r->points, point_order);
    return true;
}

void roofline_free(struct roofline *r) {
    machine_free(&r->machine);
    memory_free(r->points);
    memset(r, 0, sizeof *r);
}

json_t *roofline_json(const struct roofline *r) {
    json_t *points = json_array(), *peaks = json_object();
    for (int d = 0; d < TL_DTYPE_COUNT; d++)
        if (r->known.peak[d] > 0) json_object_set_new(peaks, tl_dtype_name((tl_dtype)d), json_real(r->known.peak[d]));
    for (int i = 0; i < r->n_points; i++) {
        const struct roofline_point *p = &r->points[i];
        json_t *point = json_pack(
            "{s:s, s:s, s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:s}", "set", roofline_set_names[p->set], "name",
            p->name, "phase", tl_phase_name((tl_phase)p->phase), "dtype", tl_dtype_name(p->dtype), "calls",
            (json_int_t)p->calls, "flops", p->flops, "bytes", p->bytes, "seconds", p->seconds, "intensity",
            p->intensity, "flops_per_s", p->rate, "roof", p->roof, "bound", p->is_memory_bound ? "memory" : "compute");
        json_array_append_new(points, point);
    }
    return json_pack("{s:s, s:s, s:s, s:o, s:f, s:f, s:f, s:f, s:o}", "schema", "tally.roofline/1", "machine",
                     r->machine.machine, "device", r->machine.device, "peaks", peaks, "bandwidth", r->known.bandwidth,
                     "fastest", r->known.fastest, "step_s", r->step_s, "token_s", r->token_s, "points", points);
}

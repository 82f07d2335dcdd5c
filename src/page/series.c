#include "page/series.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "step/sets.h"

enum { MOST_TEXTS = 24, MOST_TEXT_BYTES = 4000, MOST_LINE = 1 << 20 };

/* The values of a logged step that have a mean, a lowest and a highest one. */
enum { LOSS, NORM, RATE, N_SPREAD };
static const char *const spread_names[N_SPREAD] = {"loss", "norm", "rate"};
enum { STEP, TOKENS, TIME, LR, N_LAST }; /* those of a bucket's last step */
static const char *const last_names[N_LAST] = {"step", "tokens", "time_s", "lr"};
enum { N_SUM = 6 }; /* values that not every run has, of which a bucket has the mean; their names are the log's */
static const char *const sum_names[N_SUM] = {"wait_s",      "communication_s", "exposed_s",
                                             "noise_scale", "reward_margin",   "reward_accuracy"};

struct point {
    double last[N_LAST], sum[N_SUM];
    double mean[N_SPREAD], low[N_SPREAD], high[N_SPREAD]; /* mean: a sum until it is written */
    int64_t n, n_finite[N_SPREAD], n_summed[N_SUM];
};

struct series {
    struct point *points, open; /* open: the bucket that is being filled */
    size_t n, most;
    int64_t width; /* steps of a bucket */
    double time_s, last_step;
    int64_t n_logged, n_skipped, n_damaged;
    bool has_sum[N_SUM];
    json_t *held_step, *held_loss, *held_bits, *held_sets, *samples, *changes; /* held_sets: lists by name */
};

/* ---- Buckets ---- */

static void point_merge(struct point *to, const struct point *from) {
    if (!from->n) return;
    memcpy(to->last, from->last, sizeof to->last);
    for (int i = 0; i < N_SUM; i++) to->sum[i] += from->sum[i], to->n_summed[i] += from->n_summed[i];
    for (int i = 0; i < N_SPREAD; i++) {
        if (!from->n_finite[i]) continue;
        to->mean[i] += from->mean[i];
        if (!to->n_finite[i] || from->low[i] < to->low[i]) to->low[i] = from->low[i];
        if (!to->n_finite[i] || from->high[i] > to->high[i]) to->high[i] = from->high[i];
        to->n_finite[i] += from->n_finite[i];
    }
    to->n += from->n;
}

static void point_add(struct series *s, const struct point *p) {
    point_merge(&s->open, p);
    if (s->open.n < s->width) return;
    if (s->n == s->most) { /* `most` is even */
        for (size_t i = 0; i < s->n / 2; i++) {
            struct point merged = s->points[2 * i];
            point_merge(&merged, &s->points[2 * i + 1]);
            s->points[i] = merged;
        }
        s->n /= 2;
        s->width *= 2;
        return; /* the open one is half full now */
    }
    s->points[s->n++] = s->open;
    s->open = (struct point){0};
}

/* ---- Lines ---- */

/* A decimal number, to 15 digits; NAN for null. NULL: it is neither. The text after it. Much faster than strtod, which
 * matters for a million lines of ten numbers, and the same in every locale. */
static const char *decimal(const char *at, double *value) {
    static const double tens[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    if (!strncmp(at, "null", 4)) return *value = NAN, at + 4;
    bool is_negative = *at == '-', has_digits = false;
    uint64_t digits = 0;
    int power = 0, exponent = 0;
    for (at += is_negative; text_is_digit(*at) || *at == '.'; at++) {
        if (*at == '.') {
            for (at++; text_is_digit(*at); at++)
                if (digits < (uint64_t)1e17) digits = 10 * digits + (uint64_t)(*at - '0'), power--;
            break;
        }
        has_digits = true;
        if (digits < (uint64_t)1e17) digits = 10 * digits + (uint64_t)(*at - '0');
        else power++;
    }
    if (!has_digits) return NULL;
    if (*at == 'e' || *at == 'E') {
        bool is_small = at[1] == '-';
        for (at += at[1] == '-' || at[1] == '+' ? 2 : 1; text_is_digit(*at) && exponent < 1000; at++)
            exponent = 10 * exponent + (*at - '0');
        power += is_small ? -exponent : exponent;
    }
    double x = (double)digits;
    for (int left = power < 0 ? -power : power; left > 0; left -= 15) {
        double ten = tens[left < 15 ? left : 15];
        x = power < 0 ? x / ten : x * ten;
    }
    return *value = is_negative ? -x : x, at;
}

/* A key and its number where they are expected. */
static const char *field(const char *at, const char *key, double *value) {
    size_t n = strlen(key);
    return at && !strncmp(at, key, n) ? decimal(at + n, value) : NULL;
}

/* A key and its number anywhere behind; otherwise the value stays. */
static bool field_behind(const char *at, const char *key, double *value) {
    const char *found = strstr(at, key);
    return found && decimal(found + strlen(key), value);
}

static void spread_set(struct point *p, int which, double value) {
    if (!isfinite(value)) return;
    p->mean[which] = p->low[which] = p->high[which] = value;
    p->n_finite[which] = 1;
}

/* null is not counted. */
static void sum_take(struct series *s, const char *at, int which, struct point *p) {
    char key[32];
    double value;
    snprintf(key, sizeof key, "\"%s\":", sum_names[which]);
    if (!field_behind(at, key, &value)) return;
    s->has_sum[which] = true;
    if (!isfinite(value)) return;
    p->sum[which] = value;
    p->n_summed[which] = 1;
}

/* The line of a step as log.c writes it. False: it is something else. */
static bool step_take(struct series *s, const char *line) {
    double step, tokens, loss, norm, lr, step_s = NAN, rate = NAN;
    const char *at = field(line, "{\"step\":", &step);
    at = field(at, ",\"tokens\":", &tokens);
    at = field(at, ",\"loss\":", &loss);
    at = field(at, ",\"grad_norm\":", &norm);
    at = field(at, ",\"lr\":", &lr);
    if (!at) return false;
    field_behind(at, "\"step_s\":", &step_s);
    field_behind(at, "\"tokens_per_s\":", &rate);
    struct point p = {.n = 1};
    for (int i = 0; i < N_SUM; i++) sum_take(s, at, i, &p);
    if (isfinite(step_s) && step > s->last_step) s->time_s += step_s * (step - s->last_step);
    s->last_step = step;
    p.last[STEP] = step, p.last[TOKENS] = tokens, p.last[TIME] = s->time_s, p.last[LR] = lr;
    spread_set(&p, LOSS, loss), spread_set(&p, NORM, norm), spread_set(&p, RATE, rate);
    s->n_logged++;
    s->n_skipped += strncmp(at, ",\"skipped\":true", 15) == 0;
    point_add(s, &p);
    return true;
}

/* Keeps the first and the newest of many texts. */
static void text_keep(json_t *list, json_int_t step, const char *text) {
    char *cut = memory_new(MOST_TEXT_BYTES);
    if (!cut) return;
    text_copy(cut, MOST_TEXT_BYTES, text);
    if (json_array_size(list) == MOST_TEXTS) json_array_remove(list, 1);
    json_array_append_new(list, json_pack("{s:I, s:s}", "step", step, "text", cut));
    memory_free(cut);
}

/* Each list is as long as held_step: null where a set has no loss. */
static void sets_take(struct series *s, const json_t *losses) {
    const char *name;
    json_t *loss, *list;
    json_object_foreach((json_t *)(uintptr_t)losses, name, loss) {
        if (json_object_get(s->held_sets, name) || json_object_size(s->held_sets) == SETS_MOST) continue;
        json_object_set_new(s->held_sets, name, list = json_array());
        while (list && json_array_size(list) + 1 < json_array_size(s->held_step))
            json_array_append_new(list, json_null());
    }
    json_object_foreach(s->held_sets, name, list) {
        const json_t *value = json_object_get(losses, name);
        json_array_append_new(list, json_is_number(value) ? json_real(json_number_value(value)) : json_null());
    }
}

static void other_take(struct series *s, const char *line) {
    json_t *json = json_parse(line, NULL);
    const json_t *step = json_object_get(json, "step"), *loss = json_object_get(json, "held_out");
    const char *sample = json_string_value(json_object_get(json, "sample"));
    const char *change = json_string_value(json_object_get(json, "changed"));
    if (!json_is_integer(step)) s->n_damaged++;
    else if (json_is_number(loss)) {
        const json_t *bits = json_object_get(json, "bits_per_byte");
        json_array_append_new(s->held_step, json_integer(json_integer_value(step)));
        json_array_append_new(s->held_loss, json_real(json_number_value(loss)));
        json_array_append_new(s->held_bits, json_is_number(bits) ? json_real(json_number_value(bits)) : json_null());
        sets_take(s, json_object_get(json, "held_out_sets"));
    } else if (sample) text_keep(s->samples, json_integer_value(step), sample);
    else if (change) text_keep(s->changes, json_integer_value(step), change);
    json_decref(json);
}

/* Every second evaluation goes, but the last stays. */
static void list_halve(json_t *list) {
    json_t *half = json_array();
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++)
        if ((n - 1 - i) % 2 == 0) json_array_append(half, json_array_get(list, i));
    json_array_clear(list);
    json_array_extend(list, half);
    json_decref(half);
}

static void held_out_halve(struct series *s) {
    const char *name;
    json_t *list;
    list_halve(s->held_step), list_halve(s->held_loss), list_halve(s->held_bits);
    json_object_foreach(s->held_sets, name, list) list_halve(list);
}

static bool lines_read(struct series *s, struct file_place log) {
    size_t bytes, capacity = 0;
    enum file_kind kind;
    if (!file_look(log, &kind)) return false;
    int fd = kind == FILE_ABSENT ? -1 : file_open_at(log, &bytes);
    if (fd < 0) return kind == FILE_ABSENT;
    FILE *file = fdopen(fd, "r");
    if (!file) return file_close(fd), error_set(TL_ERROR_IO, "log.jsonl: cannot be read");
    char *line = NULL;
    for (ssize_t n; (n = getline(&line, &capacity, file)) > 0;) {
        if (line[n - 1] != '\n') break; /* it is being written */
        if (!step_take(s, line) && n < MOST_LINE) other_take(s, line);
        if (json_array_size(s->held_step) > s->most) held_out_halve(s);
    }
    free(line);
    fclose(file);
    return true;
}

/* ---- As JSON ---- */

static json_t *number(double x) {
    if (!isfinite(x)) return json_null();
    return x == floor(x) && fabs(x) < 1e15 ? json_integer((json_int_t)x) : json_real(x);
}

static void points_put(const struct series *s, json_t *to) {
    json_t *last[N_LAST], *spread[N_SPREAD][3], *sum[N_SUM];
    static const char *const suffix[3] = {"", "_low", "_high"};
    for (int i = 0; i < N_LAST; i++) json_object_set_new(to, last_names[i], last[i] = json_array());
    for (int i = 0; i < N_SPREAD; i++)
        for (int k = 0; k < (s->width > 1 && i != RATE ? 3 : 1); k++) {
            char name[32];
            snprintf(name, sizeof name, "%s%s", spread_names[i], suffix[k]);
            json_object_set_new(to, name, spread[i][k] = json_array());
        }
    for (int i = 0; i < N_SUM; i++)
        if (s->has_sum[i]) json_object_set_new(to, sum_names[i], sum[i] = json_array());
    for (size_t at = 0; at < s->n + (s->open.n > 0); at++) {
        const struct point *p = at < s->n ? &s->points[at] : &s->open;
        for (int i = 0; i < N_LAST; i++) json_array_append_new(last[i], number(p->last[i]));
        for (int i = 0; i < N_SPREAD; i++) {
            bool is = p->n_finite[i] > 0;
            json_array_append_new(spread[i][0], number(is ? p->mean[i] / (double)p->n_finite[i] : NAN));
            if (s->width == 1 || i == RATE) continue;
            json_array_append_new(spread[i][1], number(is ? p->low[i] : NAN));
            json_array_append_new(spread[i][2], number(is ? p->high[i] : NAN));
        }
        for (int i = 0; i < N_SUM; i++)
            if (s->has_sum[i])
                json_array_append_new(sum[i], number(p->n_summed[i] ? p->sum[i] / (double)p->n_summed[i] : NAN));
    }
}

static json_t *series_json(const struct series *s) {
    json_t *steps = json_object();
    points_put(s, steps);
    return json_pack("{s:o, s:{s:O, s:O, s:O, s:O}, s:O, s:O, s:I, s:I, s:I, s:I}", "steps", steps, "held_out", "step",
                     s->held_step, "loss", s->held_loss, "bits_per_byte", s->held_bits, "sets", s->held_sets, "samples",
                     s->samples, "changes", s->changes, "n_logged", (json_int_t)s->n_logged, "n_skipped",
                     (json_int_t)s->n_skipped, "n_damaged", (json_int_t)s->n_damaged, "bucket_steps",
                     (json_int_t)s->width);
}

json_t *series_read(struct file_place log, int most) {
    struct series s = {.most = (size_t)most / 2 * 2, .width = 1};
    s.points = memory_new(s.most * sizeof *s.points);
    s.held_step = json_array(), s.held_loss = json_array(), s.held_bits = json_array();
    s.samples = json_array(), s.changes = json_array(), s.held_sets = json_object();
    json_t *json = s.points && lines_read(&s, log) ? series_json(&s) : NULL;
    if (!json && tl_error() == TL_OK) error_memory(s.most * sizeof *s.points, "the curves of a run");
    json_decref(s.held_step), json_decref(s.held_loss), json_decref(s.held_bits);
    json_decref(s.samples), json_decref(s.changes), json_decref(s.held_sets);
    memory_free(s.points);
    return json;
}

#include "train/log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/number.h"
#include "tensor/device.h"
#include "train/events.h"
#include "train/run.h"

static const char LINES[] = LOG_LINES, EVENTS[] = LOG_EVENTS;

static bool failed(const struct log *l, const char *file) {
    int reason = errno;
    char path[FILE_TEXT];
    return error_set(TL_ERROR_IO, "%s: cannot be written: %s", file_text(file_in(l->folder, file), path),
                     strerror(reason));
}

static double wall_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- Opening and closing ---- */

/* How much of an open file, at most `bytes` of it, is whole lines. */
static bool lines_whole(int fd, struct file_place at, size_t bytes, size_t *whole) {
    char piece[4096];
    for (*whole = bytes; *whole > 0;) {
        size_t n = *whole < sizeof piece ? *whole : sizeof piece;
        if (!file_read_at(fd, at, piece, n, *whole - n)) return false;
        while (n > 0 && piece[n - 1] != '\n') n--, (*whole)--;
        if (n > 0) break;
    }
    return true;
}

/* Where a file that should have `bytes` is to be cut: there, or where it is damaged before. */
static bool end_find(int fd, struct file_place at, bool is_lines, size_t found, int64_t bytes, size_t *end) {
    char path[FILE_TEXT];
    size_t need = (size_t)bytes, most = found < need ? found : need;
    if (!(is_lines ? lines_whole : events_whole)(fd, at, most, end)) return false;
    if (*end != need)
        log_line(
            "run: %s is damaged: %zu of the %zu bytes that it had at the checkpoint are whole, and it goes on from "
            "there",
            file_text(at, path), *end, need);
    return true;
}

static FILE *open_at(struct log *l, const char *file, int64_t bytes, bool *is_empty) {
    struct file_place at = file_in(l->folder, file);
    size_t found, end = 0;
    int fd = file_append_at(at, &found);
    if (fd < 0 || !end_find(fd, at, file == LINES, found, bytes, &end)) {
        if (fd >= 0) file_close(fd);
        return NULL;
    }
    FILE *f = ftruncate(fd, (off_t)end) == 0 ? fdopen(fd, "a+") : NULL;
    *is_empty = end == 0;
    if (f && fseek(f, 0, SEEK_END) == 0) return f;
    failed(l, file);
    if (f) fclose(f);
    else file_close(fd);
    return NULL;
}

static bool event_write(struct log *l, struct event_record record) {
    bool ok = record.data && fwrite(record.data, 1, record.bytes, l->events) == record.bytes && fflush(l->events) == 0;
    if (record.data && !ok) failed(l, EVENTS);
    memory_free(record.data);
    return ok;
}

bool log_open(struct log *l, const struct file_folder *folder, int64_t line_bytes, int64_t event_bytes) {
    bool is_empty;
    *l = (struct log){.folder = folder};
    l->lines = open_at(l, LINES, line_bytes, &is_empty);
    l->events = l->lines ? open_at(l, EVENTS, event_bytes, &is_empty) : NULL;
    bool ok = l->events && (!is_empty || event_write(l, event_version(wall_time())));
    if (!ok) log_close(l);
    return ok;
}

bool log_close(struct log *l) {
    bool ok = !l->lines || fclose(l->lines) == 0 || failed(l, LINES);
    ok = (!l->events || fclose(l->events) == 0 || failed(l, EVENTS)) && ok;
    l->lines = l->events = NULL;
    return ok;
}

bool log_sync(struct log *l, int64_t *line_bytes, int64_t *event_bytes) {
    if (!l->lines) return true;
    *line_bytes = ftell(l->lines);
    *event_bytes = ftell(l->events);
    if (fsync(fileno(l->lines)) != 0 || *line_bytes < 0) return failed(l, LINES);
    return (fsync(fileno(l->events)) == 0 && *event_bytes >= 0) || failed(l, EVENTS);
}

/* ---- Writing ---- */

/* JSON has no infinity or NaN. */
static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

/* Those of runs without preferences are NAN; a margin that is not finite is null. */
static bool rewards_put(json_t *line, double margin, double accuracy) {
    return isnan(accuracy) || (json_object_set_new(line, "reward_margin", number(margin)) == 0 &&
                               json_object_set_new(line, "reward_accuracy", number(accuracy)) == 0);
}

/* Frees the line. */
static bool line_put(struct log *l, json_t *line, bool is_whole, size_t flags) {
    char *text = line && is_whole ? json_print(line, JSON_COMPACT | flags) : NULL;
    bool ok = text && fprintf(l->lines, "%s\n", text) > 0 && fflush(l->lines) == 0;
    json_decref(line);
    free(text);
    return ok || failed(l, LINES);
}

/* Values that can be compared between two runs come first; clock times are under "time". */
static bool line_write(struct log *l, const struct log_step *s) {
    json_t *line = json_pack("{s:I, s:I, s:o, s:o, s:f, s:b, s:{s:f, s:f, s:f}}", "step", (json_int_t)s->step, "tokens",
                             (json_int_t)s->tokens, "loss", number(s->loss), "grad_norm", number(s->norm), "lr", s->lr,
                             "skipped", (int)s->is_skipped, "time", "step_s", s->step_s, "tokens_per_s",
                             s->tokens_per_s, "wait_s", s->wait_s);
    const struct device_health *h = s->health;
    json_t *time = json_object_get(line, "time");
    bool is_told = s->pairs < 0 || json_object_set_new(line, "attention_pairs", json_integer(s->pairs)) == 0;
    is_told = is_told && (!s->has_noise || json_object_set_new(line, "noise_scale", number(s->noise_scale)) == 0);
    is_told = is_told && rewards_put(line, s->margin, s->accuracy);
    is_told = is_told && (s->comm_s < 0 || (json_object_set_new(time, "communication_s", json_real(s->comm_s)) == 0 &&
                                            json_object_set_new(time, "exposed_s", json_real(s->exposed_s)) == 0));
    is_told = is_told && (!h || (json_object_set_new(time, "clock_hz", json_real(h->clock_hz)) == 0 &&
                                 json_object_set_new(time, "watts", json_real(h->watts)) == 0 &&
                                 json_object_set_new(time, "celsius", json_real(h->celsius)) == 0 &&
                                 json_object_set_new(time, "limit", json_string(h->limit)) == 0));
    return line_put(l, line, is_told, JSON_REAL_PRECISION(17));
}

bool log_step(struct log *l, const struct log_step *s) {
    if (!l->lines) return true;
    enum { MOST = 8 };
    struct event_value values[MOST] = {{"train/loss", s->loss},
                                       {"train/lr", s->lr},
                                       {"train/grad_norm", s->norm},
                                       {"speed/tokens_per_s", s->tokens_per_s}};
    int n = 4;
    if (isfinite(s->mfu)) values[n++] = (struct event_value){"speed/mfu", s->mfu};
    if (s->has_noise && isfinite(s->noise_scale))
        values[n++] = (struct event_value){"train/noise_scale", s->noise_scale};
    if (!isnan(s->accuracy)) {
        values[n++] = (struct event_value){"train/reward_margin", s->margin};
        values[n++] = (struct event_value){"train/reward_accuracy", s->accuracy};
    }
    return line_write(l, s) && event_write(l, event_scalars(wall_time(), s->step, values, n));
}

bool log_held_out(struct log *l, const struct log_evaluation *e) {
    enum { MOST = 4 + SETS_MOST };
    char tags[SETS_MOST][SETS_NAME + 16];
    struct event_value values[MOST] = {{"held_out/loss", e->loss}};
    int n = 1;
    if (!l->lines) return true;
    if (isfinite(e->bits_per_byte)) values[n++] = (struct event_value){"held_out/bits_per_byte", e->bits_per_byte};
    if (!isnan(e->accuracy)) {
        values[n++] = (struct event_value){"held_out/reward_margin", e->margin};
        values[n++] = (struct event_value){"held_out/reward_accuracy", e->accuracy};
    }
    for (int i = 0; i < e->sets->n; i++) {
        snprintf(tags[i], sizeof tags[i], "held_out_loss/%s", e->sets->at[i].name);
        values[n++] = (struct event_value){tags[i], e->sets->at[i].loss};
    }
    json_t *line = json_pack("{s:I, s:o}", "step", (json_int_t)e->step, "held_out", number(e->loss));
    bool is_told = !e->sets->n || json_object_set_new(line, "held_out_sets", run_sets_json(e->sets)) == 0;
    is_told = is_told && (!isfinite(e->bits_per_byte) ||
                          json_object_set_new(line, "bits_per_byte", json_real(e->bits_per_byte)) == 0);
    is_told = is_told && rewards_put(line, e->margin, e->accuracy) &&
              json_object_set_new(line, "time", json_pack("{s:f}", "evaluation_s", e->seconds)) == 0;
    return line_put(l, line, is_told, JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17)) &&
           event_write(l, event_scalars(wall_time(), e->step, values, n));
}

bool log_change(struct log *l, int64_t step, const char *words) {
    if (!l->lines) return true;
    json_t *line = json_pack("{s:I, s:s}", "step", (json_int_t)step, "changed", words);
    return line_put(l, line, true, JSON_PRESERVE_ORDER);
}

bool log_text(struct log *l, int64_t step, const char *text) {
    if (!l->lines) return true;
    json_t *line = json_pack("{s:I, s:s}", "step", (json_int_t)step, "sample", text);
    if (!line) line = json_pack("{s:I, s:n}", "step", (json_int_t)step, "sample"); /* it is no UTF-8 */
    return line_put(l, line, true, JSON_PRESERVE_ORDER) &&
           event_write(l, event_text(wall_time(), step, "sample", text));
}

#include "train/past.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "train/folder.h"
#include "train/log.h"
#include "train/run_parts.h"

/* ---- The log ---- */

enum { FIRST_READ = 1 << 18, MOST_READ = 1 << 28 };

/* The last `most` bytes of the log from the beginning of a line on, with a 0 behind them; memory_free them. NULL
 * without an error: there is no log. */
static char *tail_get(const struct file_folder *folder, size_t most, bool *is_all) {
    struct file_place at = file_in(folder, LOG_LINES);
    enum file_kind kind;
    size_t bytes;
    *is_all = true;
    if (!file_look(at, &kind) || kind == FILE_ABSENT) return NULL;
    int fd = file_open_at(at, &bytes);
    if (fd < 0) return NULL;
    *is_all = bytes <= most;
    size_t n = *is_all ? bytes : most;
    char *text = memory_new(n + 1);
    bool ok = text ? file_read_at(fd, at, text, n, bytes - n) : error_memory(n, "the end of a log");
    file_close(fd);
    if (!ok) return memory_free(text), NULL;
    text[n] = 0;
    char *line = *is_all ? NULL : memchr(text, '\n', n);
    if (line) memmove(text, line + 1, strlen(line));
    return text;
}

static double real_of(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

struct mean {
    double tokens, seconds;
    int64_t n;
};

static void sets_take(struct run_sets *sets, const json_t *json) {
    const char *name;
    json_t *loss;
    *sets = (struct run_sets){0};
    json_object_foreach((json_t *)(uintptr_t)json, name, loss) {
        if (sets->n == SETS_MOST) break;
        text_copy(sets->at[sets->n].name, SETS_NAME, name);
        sets->at[sets->n++].loss = json_is_number(loss) ? json_number_value(loss) : NAN;
    }
}

static void line_take(struct past_log *l, const json_t *line, struct mean *speed) {
    const json_t *time = json_object_get(line, "time");
    int64_t step = json_integer_value(json_object_get(line, "step"));
    if (json_object_get(line, "held_out")) {
        l->held_out = real_of(line, "held_out");
        l->bits_per_byte = real_of(line, "bits_per_byte");
        sets_take(&l->sets, json_object_get(line, "held_out_sets"));
        l->best = fmin(l->best, l->held_out); /* of a number and NAN it is the number */
    }
    if (!json_object_get(line, "loss")) return;
    double step_s = real_of(time, "step_s");
    l->step = step;
    l->tokens = json_integer_value(json_object_get(line, "tokens"));
    l->loss = real_of(line, "loss");
    if (step <= RUN_FIRST_STEPS || !(step_s > 0)) return;
    speed->tokens += real_of(time, "tokens_per_s") * step_s;
    speed->seconds += step_s;
    speed->n++;
}

/* Calls visit for every line that is whole. */
static void lines_walk(char *text, void (*visit)(void *context, const json_t *line), void *context) {
    for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1) {
        *end = 0;
        json_t *line = json_parse(at, NULL);
        if (json_is_object(line)) visit(context, line);
        json_decref(line);
    }
}

struct taking {
    struct past_log *log;
    struct mean speed;
};
static void taking_line(void *context, const json_t *line) {
    struct taking *t = context;
    line_take(t->log, line, &t->speed);
}

bool past_log_read(struct past_log *l, const struct file_folder *folder) {
    bool is_all = false;
    for (size_t most = FIRST_READ; !is_all && most <= MOST_READ; most *= 16) {
        *l = (struct past_log){
            .loss = NAN, .held_out = NAN, .bits_per_byte = NAN, .best = NAN, .tokens_per_s = NAN, .step_s = NAN};
        struct taking t = {l, {0, 0, 0}};
        char *text = tail_get(folder, most, &is_all);
        if (!text) return tl_error() == TL_OK;
        lines_walk(text, taking_line, &t);
        memory_free(text);
        if (t.speed.n) l->tokens_per_s = t.speed.tokens / t.speed.seconds;
        if (t.speed.n) l->step_s = t.speed.seconds / (double)t.speed.n;
        if (isfinite(l->held_out)) break;
    }
    return true;
}

struct losses {
    int64_t from, to, n;
    double sum;
};
static void losses_line(void *context, const json_t *line) {
    struct losses *s = context;
    int64_t step = json_integer_value(json_object_get(line, "step"));
    double loss = real_of(line, "loss");
    if (step < s->from || step > s->to || !isfinite(loss)) return;
    s->sum += loss;
    s->n++;
}

bool past_loss_at(const struct file_folder *folder, int64_t step, int64_t n, double *loss) {
    struct losses s = {step - n + 1, step, 0, 0};
    bool is_all;
    char *text = tail_get(folder, MOST_READ, &is_all);
    *loss = NAN;
    if (!text) return tl_error() == TL_OK;
    lines_walk(text, losses_line, &s);
    memory_free(text);
    if (s.n) *loss = s.sum / (double)s.n;
    return true;
}

/* ---- The folder ---- */

const char *past_state_text(enum past_state state) {
    static const char *const texts[] = {"running", "finished", "stopped", "not started"};
    return texts[state];
}

bool past_is_run(const struct file_folder *folder) {
    enum file_kind record = FILE_ABSENT, config = FILE_ABSENT;
    return file_look(file_in(folder, FOLDER_RECORD), &record) && file_look(file_in(folder, RUN_CONFIG), &config) &&
           record == FILE_REGULAR && config == FILE_REGULAR;
}

bool past_read(struct past *p, const struct file_folder *folder) {
    struct file_place lock = file_in(folder, FOLDER_LOCK);
    uint64_t bytes;
    enum file_kind kind;
    memset(p, 0, sizeof *p);
    p->settings = settings_default();
    bool is_running = false;
    if (!settings_read_at(&p->settings, file_in(folder, RUN_CONFIG)) || !past_log_read(&p->log, folder) ||
        !file_is_locked(lock, &is_running) || !file_look(file_in(folder, LOG_LINES), &kind))
        return false;
    if (kind == FILE_REGULAR && !file_measure(file_in(folder, LOG_LINES), &bytes, &p->changed_ns)) return false;
    p->state = is_running                         ? PAST_RUNNING
               : p->log.step >= p->settings.steps ? PAST_FINISHED
               : p->log.step > 0                  ? PAST_STOPPED
                                                  : PAST_UNSTARTED;
    return true;
}

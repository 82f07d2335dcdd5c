#include "train/log.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"

struct log {
    FILE *file;
    char *path;
};

static bool failed(const struct log *l, const char *what) {
    return error_set(TL_ERROR_IO, "%s: %s: %s", l->path, what, strerror(errno));
}

/* Where the last whole line of a step up to `through` ends. */
static bool end_of(struct log *l, int64_t through, off_t *end) {
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    for (*end = 0; (length = getline(&line, &room, l->file)) > 0; *end += length) {
        int64_t step;
        if (line[length - 1] != '\n' || sscanf(line, "{\"step\": %" SCNd64 ",", &step) != 1 || step > through) break;
    }
    free(line);
    return !ferror(l->file) || failed(l, "cannot be read");
}

struct log *log_open(const char *path, int64_t through) {
    struct log *l = memory_new(sizeof *l);
    if (l) *l = (struct log){.path = memory_new(strlen(path) + 1)};
    if (!l || !l->path) {
        error_memory(sizeof *l, "a log");
        memory_free(l);
        return NULL;
    }
    strcpy(l->path, path);
    l->file = fopen(path, "a+");
    off_t end = 0;
    bool ok = l->file || failed(l, "cannot be opened");
    if (ok) rewind(l->file);
    ok = ok && end_of(l, through, &end) && (ftruncate(fileno(l->file), end) == 0 || failed(l, "cannot be cut"));
    if (ok) return l;
    log_close(l);
    return NULL;
}

void log_close(struct log *l) {
    if (!l) return;
    if (l->file) fclose(l->file); /* every line was flushed */
    memory_free(l->path);
    memory_free(l);
}

bool log_sync(struct log *l) {
    return (fflush(l->file) == 0 && fsync(fileno(l->file)) == 0) || failed(l, "cannot be synced");
}

TL_PRINTF(2, 3) static bool put(struct log *l, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    bool ok = vfprintf(l->file, format, arguments) > 0 && fflush(l->file) == 0;
    va_end(arguments);
    return ok || failed(l, "cannot be written");
}

/* JSON has no infinity and no NaN. */
static const char *number(double x, char buffer[32]) {
    if (isfinite(x)) snprintf(buffer, 32, "%.17g", x);
    else strcpy(buffer, "null");
    return buffer;
}

bool log_step(struct log *l, const struct log_step *s) {
    char loss[32], norm[32];
    return put(l,
               "{\"step\": %" PRId64 ", \"tokens\": %" PRId64 ", \"loss\": %s, \"grad_norm\": %s, \"lr\": %.17g, "
               "\"peak_bytes\": %" PRIu64 ", \"skipped\": %" PRId64 ", \"time\": {\"step_s\": %.6f, \"elapsed_s\": %.6f, "
               "\"wait_s\": %.6f, \"tokens_per_s\": %.6g, \"flops_per_s\": %.6g}}\n",
               s->step, s->tokens, number(s->loss, loss), number(s->grad_norm, norm), s->lr, s->peak_bytes,
               s->n_skipped, s->time.step_s, s->time.elapsed_s, s->time.wait_s, s->time.tokens_per_s,
               s->time.flops_per_s);
}

bool log_held_out(struct log *l, int64_t step, double loss, bool is_best) {
    char text[32];
    return put(l, "{\"step\": %" PRId64 ", \"held_out_loss\": %s, \"is_best\": %s}\n", step, number(loss, text),
               is_best ? "true" : "false");
}

bool log_text(struct log *l, int64_t step, const char *key, const char *text) {
    json_t *string = json_string(text);
    char *quoted = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    bool ok = quoted ? put(l, "{\"step\": %" PRId64 ", \"%s\": %s}\n", step, key, quoted)
                     : error_memory(strlen(text), "a line of the log");
    free(quoted);
    json_decref(string);
    return ok;
}

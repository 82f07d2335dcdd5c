/* error.c: each thread keeps its first error; policy and log hook belong to the process.
 *
 * Messages and log lines contain names from files, so they are made printable here, once. A message may have several
 * lines; those after the first are indented. A line break without indentation comes from outside and is shown as an
 * escape, so that foreign text cannot pass for a separate line.
 *
 * The abort below is the only place in the library that writes to stderr: under TL_ABORT, the default, a program
 * must show why it stops.
 */
#include "base/error.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"

static _Thread_local struct {
    tl_status status;
    char message[1024];
} current;

const char *(*error_path)(void);
static _Atomic(tl_policy) policy_now = TL_ABORT;
static void (*log_function)(const char *, void *);
static void *log_context;
static _Thread_local bool (*stop_function)(void *context);
static _Thread_local void *stop_context;

static void message_show(char *to, size_t size, char *raw) {
    for (char *line = raw, *next = raw; next; line = next + 1) {
        next = strstr(line, "\n  ");
        if (next) *next = 0;
        size_t n = strlen(text_show(to, size, line));
        if (!next || n + 8 > size) return; /* room for a break and "..." */
        to[n++] = '\n';
        to[n] = 0;
        to += n;
        size -= n;
    }
}

bool error_set(tl_status status, const char *format, ...) {
    if (current.status != TL_OK) return false;
    current.status = status;
    const char *path = error_path ? error_path() : "";
    char raw[sizeof current.message];
    int used = *path ? snprintf(raw, sizeof raw / 2, "%s: ", path) : 0;
    if (used >= (int)sizeof raw / 2) used = (int)sizeof raw / 2 - 1;
    va_list arguments;
    va_start(arguments, format);
    number_vprint(raw + used, sizeof raw - (size_t)used, format, arguments);
    va_end(arguments);
    text_trim(raw, sizeof raw);
    message_show(current.message, sizeof current.message, raw);
    if (atomic_load(&policy_now) == TL_ABORT) {
        fprintf(stderr, "tally: %s\n", current.message);
        abort();
    }
    return false;
}

bool error_given(const void *argument, const char *what, const char *thing) {
    return argument || error_set(TL_ERROR_USE, "%s: got NULL instead of %s", what, thing);
}

bool error_memory(size_t bytes, const char *what) {
    return error_set(TL_ERROR_MEMORY, "out of host memory: %zu bytes asked for %s", bytes, what);
}

void invariant_broken(const char *condition, const char *file, int line) {
    fprintf(stderr, "tally: a bug in the library: %s does not hold (%s:%d)\n", condition, file, line);
    abort();
}

void log_line(const char *format, ...) {
    if (!log_function) return;
    char raw[512], line[sizeof raw];
    va_list arguments;
    va_start(arguments, format);
    number_vprint(raw, sizeof raw, format, arguments);
    va_end(arguments);
    text_trim(raw, sizeof raw);
    log_function(text_show(line, sizeof line, raw), log_context);
}

tl_status tl_error(void) { return current.status; }

const char *tl_error_message(void) { return current.status == TL_OK ? "" : current.message; }

void tl_error_clear(void) { current.status = TL_OK; }

tl_policy tl_set_error_policy(tl_policy policy) { return atomic_exchange(&policy_now, policy); }

void tl_set_log_hook(void (*hook)(const char *, void *), void *context) {
    log_function = NULL; /* never call the new function with the old context */
    log_context = context;
    log_function = hook;
}

void tl_set_stop_hook(bool (*hook)(void *), void *context) {
    stop_function = hook;
    stop_context = context;
}

bool stop_is_asked(void) { return stop_function && stop_function(stop_context); }

#include "cli/output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/memory.h"
#include "base/text.h"

enum { CHARACTER = 4 }; /* bytes of UTF-8 at most */

struct stream {
    int fd, reason; /* reason: the errno with which a write failed; 0: none has */
    int n_held;
    char held[CHARACTER + 1]; /* the beginning of a character that continues in the next write */
    char ready[4096];
    size_t n_ready;
    bool is_kept; /* in memory, by output_hold */
    char *kept;
    size_t n_kept;
};
static struct stream out = {.fd = STDOUT_FILENO}, err = {.fd = STDERR_FILENO};

/* False: there is no memory for it. */
static bool keep(struct stream *s, const char *data, size_t bytes) {
    char *more = memory_resize(s->kept, s->n_kept + bytes);
    if (!more) return false;
    memcpy(more + s->n_kept, data, bytes);
    s->kept = more;
    s->n_kept += bytes;
    return true;
}

static bool write_all(struct stream *s, const char *data, size_t bytes) {
    if (s->is_kept && keep(s, data, bytes)) return true;
    while (bytes > 0) {
        ssize_t n = write(s->fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return s->reason = errno, false;
        data += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool ready_write(struct stream *s) {
    size_t n = s->n_ready;
    s->n_ready = 0; /* what could not be written is lost, as it is with any stream */
    return write_all(s, s->ready, n);
}

/* Passes the first character on that is held. */
static bool held_pass(struct stream *s) {
    char piece[TEXT_PIECE];
    int taken = text_piece(piece, s->held);
    if (*s->held == '\n' || *s->held == '\t') piece[0] = *s->held, piece[1] = 0;
    size_t length = strlen(piece);
    if (s->n_ready + length > sizeof s->ready && !ready_write(s)) return false;
    memcpy(s->ready + s->n_ready, piece, length);
    s->n_ready += length;
    s->n_held -= taken;
    memmove(s->held, s->held + taken, (size_t)s->n_held + 1);
    return true;
}

/* Whether what is held may become a character with the bytes that follow. */
static bool held_is_open(const struct stream *s) {
    unsigned char first = (unsigned char)*s->held;
    int length = first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 1;
    for (int i = 1; i < s->n_held; i++)
        if ((unsigned char)s->held[i] >> 6 != 2) return false;
    return s->n_held < length;
}

static ssize_t clean_write(void *stream, const char *data, size_t bytes) {
    struct stream *s = stream;
    bool ok = true;
    for (size_t i = 0; ok && i < bytes; i++) {
        s->held[s->n_held++] = data[i];
        s->held[s->n_held] = 0;
        while (ok && s->n_held && !held_is_open(s)) ok = held_pass(s);
    }
    ok = ok && ready_write(s);
    return ok ? (ssize_t)bytes : 0; /* 0 is how such a stream says that it failed */
}

static FILE *clean_open(struct stream *s, int buffering) {
    FILE *f = fopencookie(s, "w", (cookie_io_functions_t){.write = clean_write});
    if (f) setvbuf(f, NULL, buffering, BUFSIZ);
    return f;
}

bool output_begin(void) {
    FILE *clean_out = clean_open(&out, output_is_terminal() ? _IOLBF : _IOFBF), *clean_err = clean_open(&err, _IONBF);
    if (clean_out) stdout = clean_out; /* in the GNU C library these are variables */
    if (clean_err) stderr = clean_err;
    return clean_out && clean_err;
}

bool output_end(void) {
    bool ok = fflush(stdout) == 0 && !ferror(stdout) && !out.reason;
    while (ok && out.n_held) ok = held_pass(&out);
    ok = ok && ready_write(&out);
    errno = out.reason;
    return ok;
}

static struct stream *const both[] = {&out, &err};

void output_hold(void) {
    for (int i = 0; i < 2; i++) both[i]->is_kept = true;
}

struct output_held output_held(void) {
    struct output_held held;
    fflush(stdout);
    fflush(stderr);
    for (int i = 0; i < 2; i++) {
        held.bytes[i] = both[i]->n_kept;
        held.sum[i] = crc32c(0, both[i]->kept, both[i]->n_kept);
    }
    return held;
}

void output_release(bool is_printed) {
    fflush(stdout);
    fflush(stderr);
    for (int i = 0; i < 2; i++) {
        struct stream *s = both[i];
        s->is_kept = false;
        if (is_printed) write_all(s, s->kept, s->n_kept);
        memory_free(s->kept);
        s->kept = NULL;
        s->n_kept = 0;
    }
}

void output_wipe(void) {
    static const char wipe[] = "\r\033[K";
    fflush(stderr);
    write_all(&err, wipe, sizeof wipe - 1); /* where a terminal is gone, the next line says so */
}

int output_columns(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

const char *output_color(int fd, enum output_color color) {
    static const char *const codes[] = {"\033[0m",  "\033[1m",  "\033[2m", "\033[31m",
                                        "\033[32m", "\033[33m", "\033[34m"};
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    bool has_color = isatty(fd) && !(no && *no) && !(term && !strcmp(term, "dumb"));
    return has_color ? codes[color] : "";
}

void output_paint(int fd, enum output_color color) {
    const char *code = output_color(fd, color);
    if (!*code) return;
    fflush(fd == STDOUT_FILENO ? stdout : stderr);
    write_all(fd == STDOUT_FILENO ? &out : &err, code, strlen(code));
}

/* Bytes of a line that fit: sequences take no column, and a character of several bytes one. */
static size_t line_fit(const char *line, int columns) {
    size_t n = 0;
    for (int used = 0; line[n]; n++) {
        if (line[n] == '\033') n += strcspn(line + n, "m");
        else if ((line[n] & 0xc0) != 0x80 && ++used > columns) return n;
    }
    return n;
}

void output_status(const char *line) {
    char text[1024];
    size_t fit = line_fit(line, output_columns() - OUTPUT_MARGIN);
    int n = snprintf(text, sizeof text, "\r\033[K%.*s%s", (int)fit, line, output_color(STDERR_FILENO, COLOR_NONE));
    fflush(stderr);
    write_all(&err, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
}

bool output_is_terminal(void) { return isatty(STDOUT_FILENO); }

bool output_bytes(const void *data, size_t bytes) { return output_end() && write_all(&out, data, bytes); }

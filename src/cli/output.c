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
    bool is_terminal, is_inside; /* is_inside: the last line has begun, and has no end yet */
    bool is_kept;                /* in memory, by output_hold */
    char *kept;
    size_t n_kept;
};
static struct stream out = {.fd = STDOUT_FILENO}, err = {.fd = STDERR_FILENO};
static struct stream *const both[] = {&out, &err};

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

/* ---- Lines that are wider than the terminal ---- */

enum { FOLD_LEAST = 40 }; /* columns: a narrower terminal folds lines itself */

static size_t blanks(const char *line, size_t n) {
    size_t i = 0;
    while (i < n && line[i] == ' ') i++;
    return i;
}

/* What may be pasted somewhere stays in one piece: JSON, and the commands of examples. */
static bool is_to_fold(const char *line, size_t n) {
    size_t at = blanks(line, n);
    bool is_command = at == 2 && n > 8 && !strncmp(line + at, "tally ", 6);
    return at < n && !strchr("{}[]\"$", line[at]) && !is_command;
}

/* Where the lines that follow begin: under what comes after the first gap ("--flag N   what it does"), or a little
 * further in; prose has no indent. */
static size_t fold_indent(const char *line, size_t n, size_t columns) {
    size_t at = blanks(line, n), indent = at ? at + 2 : 0;
    while (at + 1 < n && (line[at] != ' ' || line[at + 1] != ' ')) at++;
    at += blanks(line + at, n - at);
    return at < columns / 2 && at < n ? at : indent < columns / 2 ? indent : 0;
}

/* Bytes of the first line of a text that is too long: up to the last blank that fits. 0: there is none. */
static size_t fold_at(const char *line, size_t n, size_t from, size_t columns) {
    size_t found = 0, used = 0;
    for (size_t i = 0; i < n && used <= columns; i++) {
        if (line[i] == ' ' && i > from) found = i;
        used += (line[i] & 0xc0) != 0x80;
    }
    return used <= columns ? n : found;
}

static bool line_write(struct stream *s, const char *line, size_t n, size_t columns) {
    static const char space[] = "\n                                                                        ";
    size_t indent = fold_indent(line, n, columns), room = columns, from = blanks(line, n);
    indent = indent < sizeof space - 2 ? indent : sizeof space - 2;
    for (size_t cut; (cut = fold_at(line, n, from, room)) > 0 && cut < n; room = columns - indent, from = 0) {
        if (!write_all(s, line, cut) || !write_all(s, space, 1 + indent)) return false;
        line += cut, n -= cut;
        size_t gap = blanks(line, n);
        line += gap, n -= gap;
    }
    return write_all(s, line, n);
}

static size_t columns_of(int fd) {
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* Folds whole lines at blanks. One that comes in pieces is the terminal's own business. */
static bool terminal_write(struct stream *s, const char *data, size_t bytes) {
    size_t columns = columns_of(s->fd);
    bool ok = true;
    while (ok && bytes > 0) {
        const char *end = memchr(data, '\n', bytes);
        size_t n = end ? (size_t)(end - data) : bytes;
        bool is_whole = end && !s->is_inside && columns >= FOLD_LEAST && n > columns && is_to_fold(data, n);
        ok = (is_whole ? line_write(s, data, n, columns) : write_all(s, data, n)) && (!end || write_all(s, "\n", 1));
        s->is_inside = !end;
        data += n + (end != NULL), bytes -= n + (end != NULL);
    }
    return ok;
}

static bool ready_write(struct stream *s) {
    size_t n = s->n_ready;
    s->n_ready = 0; /* what could not be written is lost, as it is with any stream */
    return s->is_terminal && !s->is_kept ? terminal_write(s, s->ready, n) : write_all(s, s->ready, n);
}

/* Makes room in the middle of a write: whole lines go first, so that the last can still be folded. */
static bool ready_drain(struct stream *s) {
    const char *end = memrchr(s->ready, '\n', s->n_ready);
    size_t n = end ? (size_t)(end - s->ready) + 1 : s->n_ready, rest = s->n_ready - n;
    s->n_ready = n;
    bool ok = ready_write(s);
    memmove(s->ready, s->ready + n, rest);
    s->n_ready = rest;
    return ok;
}

/* Passes the first character on that is held. */
static bool held_pass(struct stream *s) {
    char piece[TEXT_PIECE];
    int taken = text_piece(piece, s->held);
    if (*s->held == '\n' || *s->held == '\t') piece[0] = *s->held, piece[1] = 0;
    size_t length = strlen(piece);
    if (s->n_ready + length > sizeof s->ready && !ready_drain(s)) return false;
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
    for (int i = 0; i < 2; i++) both[i]->is_terminal = isatty(both[i]->fd);
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
    struct stream *s = fd == STDOUT_FILENO ? &out : &err;
    if (!*code) return;
    fflush(fd == STDOUT_FILENO ? stdout : stderr);
    write_all(s, code, strlen(code));
    s->is_inside = true;
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

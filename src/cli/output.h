/* output.h: what the program prints.
 *
 * Names, settings, metadata and samples come from untrusted files, and a terminal obeys control sequences in them:
 * it changes its title, hides lines, types into the shell. stdout and stderr are therefore streams that print
 * anything but printable UTF-8, newlines and tabs as \u001b or \xff (base/text.h). In JSON that is another spelling
 * of the same text. This applies to every line of every command; the exceptions are below.
 *
 * On a terminal, a line that is wider than it is folded at a blank, except commands and JSON, which may be pasted.
 */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* From here on stdout and stderr are those streams. False: there is no memory for them. */
bool output_begin(void);
/* Everything is written, or errno says why not. */
bool output_end(void);

/* From here on what is printed is kept, on both streams, until it is released: printed, or dropped. */
void output_hold(void);
struct output_held {
    uint64_t bytes[2]; /* on stdout, on stderr */
    uint32_t sum[2];   /* their CRC32C */
};
struct output_held output_held(void); /* what is kept */
void output_release(bool is_printed);

/* Wipes the line of a terminal that stderr is, for the next line of progress. */
void output_wipe(void);
/* Replaces that line, in one write. The text is the program's own: it may contain colours (output_color), and is cut
 * where the terminal ends, since a line that wraps cannot be replaced. */
void output_status(const char *line);
/* What stays free at its end: a terminal echoes Ctrl-C as ^C, and must not wrap then. */
enum { OUTPUT_MARGIN = 3 };
/* Columns of the terminal that stderr is; 80 if it does not say. */
int output_columns(void);
/* Begins a colour on a terminal (fd 1 or 2), or ends it; "" where it is none, with NO_COLOR, or if TERM is dumb. */
enum output_color { COLOR_NONE, COLOR_BOLD, COLOR_DIM, COLOR_RED, COLOR_GREEN, COLOR_YELLOW, COLOR_BLUE };
const char *output_color(int fd, enum output_color color);
void output_paint(int fd, enum output_color color); /* prints it, between other prints */

/* Whether stdout is a terminal. Where it is none, it may be a program, which wants bytes as they are. */
bool output_is_terminal(void);
/* These bytes, as they are, to stdout. False: they could not be written, and output_end will say so too. */
bool output_bytes(const void *data, size_t bytes);

#endif

/* output.h: what the program prints.
 *
 * Names, settings, metadata and samples come from files that nobody vouches for, and a terminal obeys what is in
 * them: it changes its title, hides lines, answers into the shell. So stdout and stderr are streams that let only
 * text through: what is no printable UTF-8 comes out as \u001b or \xff (base/text.h), newlines and tabs apart. In
 * JSON that is another spelling of the same text. It holds for every line of every command, also for those that are
 * written next year; the three things that must not pass through it are below.
 */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

/* From here on stdout and stderr are those streams. False: there is no memory for them. */
bool output_begin(void);
/* Everything is written, or errno says why not. */
bool output_end(void);

/* Wipes the line of a terminal that stderr is, for the next line of progress. */
void output_wipe(void);

/* Whether stdout is a terminal. Where it is none, it may be a program, which wants bytes as they are. */
bool output_is_terminal(void);
/* These bytes, as they are, to stdout. False: they could not be written, and output_end will say so too. */
bool output_bytes(const void *data, size_t bytes);

#endif

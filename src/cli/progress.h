/* progress.h: the progress of long work on stderr: a line that is rewritten on a terminal, one every ten seconds
 * elsewhere. Ctrl-C is caught from begin to end. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what, *unit; /* "convert", "B" */
    double start_s, shown_s;
    bool is_terminal, has_shown; /* has_shown: the line is on the terminal */
};

struct progress progress_begin(const char *what, const char *unit);
/* The same for work whose signals the caller catches; progress_wipe ends it. */
struct progress progress_plain(const char *what, const char *unit);
/* A tl_progress_fn; the context is a struct progress. False after Ctrl-C. */
bool progress_tell(uint64_t done, uint64_t total, void *context);
/* Whether the line is due, and a line of the caller's own. */
bool progress_is_due(const struct progress *p);
void progress_line(struct progress *p, const char *line);
/* Another part of the work, with its own rate and end. Nothing happens if it is this one already. */
void progress_turn(struct progress *p, const char *what, const char *unit);
void progress_wipe(struct progress *p); /* makes room for other lines */
void progress_end(struct progress *p);

#endif

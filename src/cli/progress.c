#include "cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/interrupt.h"
#include "cli/output.h"

struct progress progress_plain(const char *what, const char *unit) {
    const double now = now_s();
    return (struct progress){what, unit, now, now, isatty(2), false};
}

struct progress progress_begin(const char *what, const char *unit) {
    interrupt_catch();
    return progress_plain(what, unit);
}

void progress_turn(struct progress *p, const char *what, const char *unit) {
    if (!strcmp(p->what, what)) return;
    p->what = what;
    p->unit = unit;
    p->start_s = now_s();
}

bool progress_is_due(const struct progress *p) { return now_s() - p->shown_s >= (p->is_terminal ? 0.2 : 10); }

void progress_line(struct progress *p, const char *line) {
    if (p->is_terminal) output_status(line);
    else fprintf(stderr, "%s\n", line);
    p->shown_s = now_s();
    p->has_shown = true;
}

bool progress_tell(uint64_t done, uint64_t total, void *context) {
    struct progress *p = context;
    if (!done || !progress_is_due(p)) return !is_interrupted;
    char rate[32], text[32], line[160];
    const double per_s = (double)done / (now_s() - p->start_s + 1e-9);
    snprintf(line, sizeof line, "%s: %.1f%% of %s%s, %s%s/s, %.0f s left", p->what, 100 * (double)done / (double)total,
             count_text((double)total, text), p->unit, count_text(per_s, rate), p->unit,
             (double)(total - done) / per_s);
    progress_line(p, line);
    return !is_interrupted;
}

void progress_wipe(struct progress *p) {
    if (p->is_terminal && p->has_shown) output_wipe();
    p->has_shown = false;
}

void progress_end(struct progress *p) {
    progress_wipe(p);
    interrupt_release();
}

/* plan_progress.c: the line at a terminal while a plan searches for the limits of growth: a model of a thousand layers
 * takes minutes. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "cli/plan_options.h"
#include "cli/progress.h"

static struct progress line;
static double axis_s[FIT_N_AXES + 1]; /* when each axis was begun */
static int n_priced;

static void tell(enum fit_axis axis, int64_t size) {
    char text[160], left[48] = "";
    double now = now_s();
    n_priced++;
    if (!axis_s[axis]) axis_s[axis] = now;
    if (now - line.start_s < 1 || !progress_is_due(&line)) return;
    /* the axes before took this long each, on average */
    double left_s = axis > 0 ? (axis_s[axis] - axis_s[0]) / axis * (FIT_N_AXES - axis) - (now - axis_s[axis]) : 0;
    if (left_s >= 1) snprintf(left, sizeof left, ", about %.0f s left", left_s);
    snprintf(text, sizeof text, "limits of growth, %d of %d: %s %" PRId64 "; %d priced, %.0f s%s", axis + 1, FIT_N_AXES,
             fit_axis_names[axis], size, n_priced, now - line.start_s, left);
    progress_line(&line, text);
}

void plan_progress_begin(struct plan_options *o) {
    line = progress_plain("plan", "");
    if (line.is_terminal) o->tell = tell;
}

static void tell_tried(int n_tried) {
    char text[80];
    const double now = now_s();
    if (now - line.start_s < 1 || !progress_is_due(&line)) return;
    snprintf(text, sizeof text, "%d plans tried, %.0f s", n_tried, now - line.start_s);
    progress_line(&line, text);
}

void (*plan_progress_best(void))(int n_tried) {
    line = progress_plain("plan", "");
    return line.is_terminal ? tell_tried : NULL;
}

void plan_progress_end(void) { progress_wipe(&line); }

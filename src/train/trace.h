/* trace.h: what happened in some steps, and when, as a file of Chrome's trace event format, which Perfetto
 * (ui.perfetto.dev) and chrome://tracing show.
 *
 * Each rank is a process of the file. Its thread 1 is the thread that trains: steps, phases, modules, ops, waiting,
 * evaluation, saving. Where a device works on its own, its ops are on thread 2 with the times of its clock, and
 * thread 1 has the launches. Messages between ranks are on thread 3. Slices are nested as the program is: step, phase,
 * module path, op. A counter has the memory held, by purpose.
 *
 * Ranks hand their events of a step to the first one, which appends them, so no rank holds more than a step. Time 0 is
 * when all ranks have met before the first traced step. The file appears when it is complete. */
#ifndef TRAIN_TRACE_H
#define TRAIN_TRACE_H

#include "step/mesh.h"
#include "tensor/device.h"

struct trace;

/* Steps first .. last, counted from 1. The first rank opens the file. NULL: recorded. */
struct trace *trace_new(const char *path, int64_t first, int64_t last, const struct mesh *mesh, tl_device *device);
bool trace_has(const struct trace *t, int64_t step); /* false for NULL */
/* Around each of those steps and what is done after it, on all ranks. A file that cannot be written any more is given
 * up with a line of the log. False: recorded, as by a lost rank. */
bool trace_step_begin(struct trace *t);
bool trace_step_end(struct trace *t);
/* The step itself, as a slice: from then (base/clock.h) until now. */
void trace_step(struct trace *t, int64_t step, double from_s);
/* Completes the file, if a step was traced, and frees it; NULL allowed. */
void trace_free(struct trace *t);

#endif

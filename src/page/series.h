/* series.h: the curves of a run's log, small enough for a page however long the run was.
 *
 * The log is read once. Logged steps are collected in buckets: of one step each at first; when there are too many,
 * neighbours are merged. A bucket has mean, lowest and highest value, so no spike is lost. */
#ifndef PAGE_SERIES_H
#define PAGE_SERIES_H

#include <jansson.h>

#include "base/file.h"

/* {"steps": {"step": [...], "tokens", "time_s", "loss", "loss_low", "loss_high", "norm", ..., "lr", "rate",
 * "wait_s"},
 *  "held_out": {"step", "loss", "bits_per_byte", "sets": {NAME: losses}}, "samples": [{"step", "text"}], "changes":
 *  [{"step", "text"}],
 *  "last": {...}, "n_logged", "n_skipped"} from log.jsonl, with at most `most` points. A log that is missing is
 *  empty;
 * lines that are damaged are left out and counted. NULL: recorded. */
json_t *series_read(struct file_place log, int most);

#endif

/* events.h: TensorBoard's event files: records of numbers and texts by step, appended one after the other.
 *
 * The file is a sequence of TFRecords; each holds one Event, a protocol buffer of TensorBoard's. `tensorboard
 * --logdir` finds it by its name. */
#ifndef TRAIN_EVENTS_H
#define TRAIN_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"

struct event_value {
    const char *tag; /* "train/loss" */
    double value;
};

/* One record; memory_free its data. data NULL: an error is recorded. */
struct event_record {
    unsigned char *data;
    size_t bytes;
};
struct event_record event_version(double time_s); /* the first record of a file */
struct event_record event_scalars(double time_s, int64_t step, const struct event_value *values, int n);
struct event_record event_text(double time_s, int64_t step, const char *tag, const char *text);

/* How much of an open file, at most `bytes` of it, is whole records from its beginning on. False: recorded. */
bool events_whole(int fd, struct file_place at, size_t bytes, size_t *whole);

#endif

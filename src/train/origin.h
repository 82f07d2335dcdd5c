/* origin.h: where and with what a checkpoint was made: everything that decides bits besides settings and data. */
#ifndef TRAIN_ORIGIN_H
#define TRAIN_ORIGIN_H

#include <jansson.h>

#include "tensor/device.h"

struct origin {
    char device[DEVICE_TEXT]; /* "cpu", "cuda": any GPU of the same chip will do */
    char chip[DEVICE_TEXT], isa[DEVICE_TEXT], libraries[DEVICE_TEXT], version[DEVICE_TEXT]; /* version: Tally's */
    int64_t threads; /* for the record: results do not depend on them */
};

struct origin origin_here(tl_device *device);
json_t *origin_json(const struct origin *o); /* NULL: recorded */
/* False: it is not an origin; no error is recorded. */
bool origin_read(struct origin *o, const json_t *json);
/* The differences that can change results: "chip A (here B), ..."; "" if there are none. Returns text. */
const char *origin_compare(const struct origin *then, const struct origin *now, char *text, size_t size);

#endif

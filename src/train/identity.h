/* identity.h: the inputs of a run: the model by value, and its files by their contents.
 *
 *     {"model": {"family": "llama", "n_layers": 4, ...},
 *      "files": {"data": {"path": "corpus.txt", "bytes": 4000, "checked": "all", "crc32c": "e3069283"},
 *                "val_data": ..., "weights/model.safetensors": ...},
 *      "tokenizer": {"tokens": 50257, "hash": "9f1c..."}}                 not for bytes
 *
 * Every checkpoint has such a record (state.json, "made_from"), and a run that resumes compares it with the present
 * inputs. Paths are only for messages: a file may move or be touched, but its bytes may not change. How a file is
 * checked:
 *
 *     "all"      every byte, up to 64 MiB
 *     "blocks"   larger token files of our own format: the header and the file's own checksums of all its blocks; each
 *                block is held to its checksum when it is read
 *     "sample"   any other larger file: the first and the last 64 KiB, and 64 KiB at a fixed place in each 256th of it.
 *                A change that is longer than two 256ths is always found; one of a few bytes is found with the
 *                probability 16 MiB / size */
#ifndef TRAIN_IDENTITY_H
#define TRAIN_IDENTITY_H

#include <jansson.h>

#include "tally.h"
#include "step/settings.h"
#include "step/source.h"

/* The record of a run with these settings. `weights`: the folder of its first weights, or "". NULL: recorded. */
json_t *identity_new(const struct settings *s, const tl_model_config *config, const char *weights,
                     const struct source *source);

/* Reads the model from a record. False, without an error, if it cannot be understood. */
bool identity_model(const json_t *record, tl_model_config *config);

/* How two records differ, in words with both values ("model: n_layers was 4, is 6"); "": they do not. */
const char *identity_compare(const json_t *then, const json_t *now, char *text, size_t size);

/* Whether the data is still that of the record; true without a record. False: recorded. */
bool identity_check_data(const json_t *then, const struct settings *s, const struct source *source);

#endif

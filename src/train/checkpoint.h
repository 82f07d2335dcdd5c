/* checkpoint.h: everything a run needs to go on, on disk, whole or not at all.
 *
 *     FOLDER/step-000000000100/model.safetensors     payloads, which any tool can open
 *                              optimizer.safetensors
 *                              state.json            the rest: counters, generators, position
 *                              manifest.json         written last: every file's length and CRC32C per MiB, and its own
 *
 * A folder is a checkpoint when its manifest is there and everything agrees with it; before that it is nothing, however much
 * of it is written. The newest valid one is found by looking, never by a pointer that could be wrong. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "tally.h"

struct checkpoint_part {
    const char *file; /* "model.safetensors" */
    const tl_named_tensor *tensors;
    int n;
};

/* Saves and reads back. False: an error that names the file; what was saved before is untouched. Saving a step anew
 * replaces it. */
bool checkpoint_save(const char *folder, int64_t step, const struct checkpoint_part *parts, int n_parts,
                     const char *state_json);

/* The newest step that is whole, every block of it verified; -1: there is none (or an error is recorded). Damaged ones are passed over
 * with a line in the log. */
int64_t checkpoint_newest(const char *folder);

/* Whether there is one that was ever finished, whole or damaged since. */
bool checkpoint_any(const char *folder);

struct checkpoint;
/* Verifies everything. NULL: an error that names file and place. */
struct checkpoint *checkpoint_open(const char *folder, int64_t step);
/* The newest whole one, verified once. NULL without an error: there is none. */
struct checkpoint *checkpoint_open_newest(const char *folder);
void checkpoint_close(struct checkpoint *c);
int64_t checkpoint_step(const struct checkpoint *c);
const char *checkpoint_state(const struct checkpoint *c);
/* Copies a file's tensors into these: each must be there in its dtype and shape. */
bool checkpoint_load(const struct checkpoint *c, const struct checkpoint_part *part);

/* Removes what killed processes have left of files that were being written. Nobody else may be saving here. */
void checkpoint_sweep(const char *folder);

/* Deletes all but the newest `keep` and `best_step` (-1: none), and what interrupted saves have left. A folder's manifest goes
 * first, so that half a deletion is no checkpoint. */
bool checkpoint_prune(const char *folder, int keep, int64_t best_step);

#endif

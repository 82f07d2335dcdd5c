/* checkpoint.h: everything a run needs to resume, written atomically.
 *
 *     FOLDER/step-000000000100/model.safetensors     payloads, which any tool can open
 *                              optimizer.safetensors
 *                              optimizer-00001-of-00004.safetensors ...   instead, where several processes keep pieces
 *                              state.json            the rest: counters, generators, position
 *                              manifest.json         written last: every file's length and CRC32C per MiB, and its own
 *     FOLDER/damaged-step-000000000050/              a damaged one, kept until the user deletes it
 *
 * A folder is a checkpoint if it has a manifest and everything agrees with it; until then it does not count, however
 * much of it is written. The newest valid one is found by looking, never by a pointer that could be wrong. One that
 * was finished and no longer agrees is damaged: readers skip it, and the run sets it aside under another name, so
 * that it is not counted again. It is never deleted. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "base/file.h"
#include "step/trainer.h"
#include "tally.h"

/* A run's checkpoints: the open folder they are in, and which of them this process has verified to the last byte. */
struct checkpoints {
    struct file_folder *folder; /* NULL: there is none, and no checkpoint */
    int64_t *verified;
    size_t n_verified, capacity;
};

/* The folder "checkpoints" in a run's folder; with `make` it is created if it does not exist. False: recorded, and
 * nothing is open. */
bool checkpoints_open(struct checkpoints *all, const struct file_folder *run, bool make);
void checkpoints_close(struct checkpoints *all);

/* Saves and reads back. False on error, which names the file; earlier checkpoints are untouched. Saving a step again
 * replaces it. */
bool checkpoint_save(struct checkpoints *all, int64_t step, const struct trainer_part *parts, int n_parts,
                     const char *state_json);

/* The same by several processes: the first one begins; each writes those parts that it saves, and gets the entries of
 * its files (NULL: recorded); the first one commits the entries of all, which adds the state's; each confirms its own,
 * by reading its files back. Before each of these calls, all processes have made the one before it. */
bool checkpoint_begin(struct checkpoints *all, int64_t step);
json_t *checkpoint_write(struct checkpoints *all, int64_t step, const struct trainer_part *parts, int n_parts);
bool checkpoint_commit(struct checkpoints *all, int64_t step, json_t *files, const char *state_json);
bool checkpoint_confirm(struct checkpoints *all, int64_t step, const json_t *files);

/* The newest step that is whole, with every block verified; -1: there is none (or an error is recorded). Damaged ones
 * are skipped with a line in the log; `set_aside` (for the holder of the run's lock) also renames them to
 * damaged-step-N. One that cannot be read is an error, not damaged. */
int64_t checkpoint_newest(struct checkpoints *all, bool set_aside);

/* The steps that have a finished checkpoint, as words, newest first: "600, 300"; "none". Those that do not fit are left
 * out. False: recorded. */
bool checkpoint_steps_print(const struct checkpoints *all, char *text, size_t size);

/* Whether there is one that was finished, whole or damaged since. */
bool checkpoint_any(const struct checkpoints *all, bool *any);

struct checkpoint;
/* Verifies everything. NULL: an error that names the file and the place. */
struct checkpoint *checkpoint_open(struct checkpoints *all, int64_t step);
struct checkpoint *checkpoint_open_verified(struct checkpoints *all,
                                            int64_t step); /* another process has verified it */
/* The newest whole one, verified once. NULL without an error: there is none. */
struct checkpoint *checkpoint_open_newest(struct checkpoints *all, bool set_aside);
void checkpoint_close(struct checkpoint *c); /* NULL allowed */
int64_t checkpoint_step(const struct checkpoint *c);
const char *checkpoint_state(const struct checkpoint *c);
/* How many numbers a part of it has, in all files and tensors. False: recorded. */
bool checkpoint_numbers(const struct checkpoint *c, const char *file, int64_t *numbers);
/* Copies tensors into these, from all files of the part: one, or one from each process of those that saved it, whose
 * pieces may be others than those wanted. Each must exist with its dtype and shape. */
bool checkpoint_load(const struct checkpoint *c, const struct trainer_part *part);

/* Removes the remains of interrupted saves: folders without a manifest, and temporary files of dead processes. For
 * the holder of the run's lock. */
bool checkpoint_sweep(struct checkpoints *all);

/* Deletes all but the newest `keep` that are whole, `best_step` (-1: none) and `saved` (the step that was just saved or
 * resumed; -1: none). Before anything is deleted, the checkpoints that are kept are verified, each once per process.
 * Files that no save has made stay, and their folder with them. A folder's manifest is deleted first, so that an
 * interrupted deletion leaves no checkpoint. */
bool checkpoint_prune(struct checkpoints *all, int keep, int64_t best_step, int64_t saved);

/* Whether a step exists under its name, with its manifest and every file at its length. False: recorded. */
bool checkpoint_check(const struct checkpoints *all, int64_t step);

#endif

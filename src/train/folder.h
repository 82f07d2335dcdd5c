/* folder.h: a run's folder: which names in it belong to the run, whether their contents are unchanged, and a lock for
 * one process at a time.
 *
 * run.json is the folder's record, with its own checksum (manifest.h):
 *
 *     {"body": {"schema": "tally.folder/1",
 *               "names": ["checkpoints", "config.json", ...],     files that the run has made or will make
 *               "sealed": {"price.json": {bytes, crc32c}, "final/model.safetensors": {...}, ...}},
 *      "crc32c": "..."}
 *
 * A name is added to the record only while no file has it. A file with one of these names that is not in the record
 * is foreign: the run stops with an error, and nothing is touched. A folder whose record is missing or damaged, or
 * older than records, counts as a run's if it has a whole checkpoint and every other name holds what a run writes
 * there; then the record is rewritten. Everything inside is opened by its name in the open folder and no link is
 * followed; the path that leads to the folder is the user's. */
#ifndef TRAIN_FOLDER_H
#define TRAIN_FOLDER_H

#include <jansson.h>

#include "base/file.h"
#include "train/checkpoint.h"
#include "step/settings.h"

#define FOLDER_RECORD "run.json"
#define FOLDER_LOCK "lock"
#define FOLDER_TOKENIZER "tokenizer" /* a folder: the files of the run's tokenizer */

struct folder {
    struct file_folder *dir;
    struct checkpoints checkpoints;
    int lock;       /* -1: not taken */
    json_t *record; /* its body */
};

/* Opens the folder that the settings name, creating it if needed, takes its lock, and removes what killed processes
 * have left. Refuses a folder with foreign files where the run would write, and settings whose data, held-out data or
 * model are in it. False: recorded; close it all the same. */
bool folder_open(struct folder *f, const struct settings *s);
void folder_close(struct folder *f);
/* Opens a folder only to look at its files: without the lock, and nothing is changed. *is_run: it has a record of a
 * run. False: recorded; close it all the same. */
bool folder_peek(struct folder *f, const char *path, bool *is_run);

/* Writes one of the run's files; frees the text. NULL is an error that is recorded already. */
bool folder_put(struct folder *f, const char *name, char *text);
/* Removes one of the run's files, if it exists; one that is not in the record stays. */
bool folder_remove(struct folder *f, const char *name);
/* The JSON in one of the run's files; NULL: it is missing or damaged. False: recorded. */
bool folder_json(struct folder *f, const char *name, json_t **json);

/* Records the present contents of files. `in`: a folder within the run's; NULL: the run's folder itself. */
bool folder_seal(struct folder *f, const char *in, const char *const *names, int n);
enum folder_state { FOLDER_UNSEALED, FOLDER_WHOLE, FOLDER_DAMAGED };
/* Whether a file is unchanged since it was sealed. FOLDER_DAMAGED includes a missing file. False: recorded. */
bool folder_look(struct folder *f, const char *in, const char *name, enum folder_state *state);
/* Whether at least one file of a folder within the run's is sealed, and all that are sealed are unchanged. */
bool folder_look_all(struct folder *f, const char *in, bool *are_whole);

#endif

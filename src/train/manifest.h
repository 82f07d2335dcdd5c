/* manifest.h: the expected contents of a folder: lengths and CRC32C per MiB of its files, in a file with its own
 * checksum.
 *
 * A file that is missing, has other bytes or is no regular file is damaged: TL_ERROR_USE. Errors that say nothing
 * about the file's contents (permissions, memory) are TL_ERROR_IO or TL_ERROR_MEMORY: the caller must not treat the
 * file as damaged. */
#ifndef TRAIN_MANIFEST_H
#define TRAIN_MANIFEST_H

#include <jansson.h>

#include "base/file.h"

#define MANIFEST_BLOCK ((size_t)1 << 20) /* bytes that have one checksum */

/* {"name", "bytes", "crc32c": [one per MiB]} of a file as it is now. NULL: recorded. */
json_t *manifest_entry(const struct file_folder *folder, const char *name);
/* Whether a file is what its entry says: its length, and with `deep` every byte of it. `where`: the manifest, for
 * messages. */
bool manifest_verify(const struct file_folder *folder, const json_t *entry, bool deep, const char *where);

/* Writes {"body": body, "crc32c": of it}. */
bool manifest_put(struct file_place at, json_t *body);
/* The body, its checksum and its schema verified; a new reference. NULL: recorded. */
json_t *manifest_get(struct file_place at, const char *schema);

#endif

/* file.h: reading that is checked, and writing that is whole or not at all.
 *
 * Writing goes to a temporary beside the target, which is synced and then renamed over it; then the folder is synced.
 * Whoever opens the name meanwhile, or after a crash at any point, finds the old file or the new one and nothing
 * between. A failed sync is never tried again: the kernel may have dropped the pages and would then report success.
 *
 * Failures are recorded as TL_ERROR_IO with the file's name and the system's reason.
 */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tests may set this: it is asked before every call to the system, by the name of the operation, and answers 0 (go
 * on), an errno to fail with, or FILE_SHORT (a read or write does at most half). */
#define FILE_SHORT (-1)
extern int (*file_fault)(const char *operation, const char *path);

/* ---- Reading ---- */

/* A regular file opened for reading, and its size. -1 when it cannot be, or is no regular file. */
int file_open(const char *path, size_t *bytes);
void file_close(int fd);
/* All of `bytes` from `offset`; a file that ends before is an error. */
bool file_read(int fd, const char *path, void *to, size_t bytes, size_t offset);

/* A whole file of at most `limit` bytes, followed by a 0; free it with memory_free. NULL: recorded. */
char *file_get(const char *path, size_t limit, size_t *bytes);

/* The file's bytes in memory, private: what is written there stays there. One reference to start with. Another
 * process that cuts the file short makes the missing pages unreadable (SIGBUS); one that renames a new file over it
 * does no harm. */
struct file_map;
struct file_map *file_map_new(int fd, const char *path, size_t bytes); /* bytes: not 0; NULL: recorded */
unsigned char *file_map_data(struct file_map *map);
void file_map_keep(struct file_map *map);
void file_map_drop(void *map);

/* ---- Writing ---- */

/* A writer of the file that will be at `path`; its temporary exists from now on. NULL: recorded. What is there
 * already must be a regular file. A link is replaced, not followed. */
struct file_writer;
struct file_writer *file_writer_new(const char *path);
/* Takes the room for a file of exactly `bytes`, so that a full disk is known before it is written. File systems that
 * cannot promise room are let through. */
bool file_writer_reserve(struct file_writer *w, size_t bytes);
bool file_writer_write(struct file_writer *w, const void *data, size_t bytes);
/* Writes again what was written at `offset`: for a header that holds a count known only at the end. */
bool file_writer_patch(struct file_writer *w, const void *data, size_t bytes, size_t offset);
/* Puts the file in its place and ends the writer, also on failure: then what was at `path` is untouched and the
 * temporary is gone. (Only when the very last step fails, the sync of the folder, is the new file in place.) */
bool file_writer_commit(struct file_writer *w);
void file_writer_discard(struct file_writer *w); /* NULL allowed */
/* All of it in one call. */
bool file_put(const char *path, const void *data, size_t bytes);
/* "folder/name"; free it with memory_free. NULL: recorded. */
char *file_join(const char *folder, const char *name);
/* Makes a folder (and those above it) where there is none. */
bool file_make_folder(const char *path);
/* Removes the temporaries that writers of dead processes have left in a folder. For whoever knows that no writer is at work there. A folder
 * that is not there has none. */
void file_sweep(const char *folder);
/* What was made, renamed or removed in a folder stays so after a crash. */
bool file_sync_folder(const char *path);

#endif

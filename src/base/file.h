/* file.h: checked reads and atomic writes.
 *
 * A write goes to a temporary file beside the target, which is synced and renamed over it; then the folder is
 * synced. At any time, also after a crash, the name refers to either the old file or the new one. A failed sync is
 * never retried: the kernel may have dropped the pages and would then report success.
 *
 * Failures are recorded as TL_ERROR_IO with the file's name and the system's reason; lack of memory as
 * TL_ERROR_MEMORY.
 */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A hook for tests, called before every system call with the name of the operation. It returns 0 to continue, an
 * errno to fail with, or FILE_SHORT (a read or write transfers at most half). */
#define FILE_SHORT (-1)
extern int (*file_fault)(const char *operation, const char *path);

/* ---- Places ---- */

/* An open folder. Files in it are opened relative to it, whatever happens to its path, and links are not followed: a
 * link is an error. */
struct file_folder {
    int fd;
    char path[]; /* for messages */
};
/* Opens a folder by path, following links. NULL on error, which is recorded. */
struct file_folder *file_folder_open(const char *path);
/* Opens a folder inside another; with `make`, creates it if it is missing. NULL on error, which is recorded. */
struct file_folder *file_folder_in(const struct file_folder *parent, const char *name, bool make);
void file_folder_close(struct file_folder *f); /* NULL allowed */

/* The place of a file: a name in an open folder, or a path. */
struct file_place {
    const struct file_folder *folder; /* NULL: `name` is a path */
    const char *name;
};
static inline struct file_place file_in(const struct file_folder *folder, const char *name) {
    return (struct file_place){folder, name};
}
static inline struct file_place file_path(const char *path) { return (struct file_place){NULL, path}; }
/* Writes a place as a path to `text`, possibly cut, for messages. Returns `text`. */
enum { FILE_TEXT = 1280 };
const char *file_text(struct file_place at, char text[FILE_TEXT]);
/* The same in full, in a buffer of that many bytes including the final 0. */
size_t file_text_bytes(struct file_place at);
const char *file_print(struct file_place at, char *text, size_t bytes);

/* The kind of what is there, without following links. False on error, which is recorded. */
enum file_kind { FILE_ABSENT, FILE_REGULAR, FILE_FOLDER, FILE_LINK, FILE_OTHER };
bool file_look(struct file_place at, enum file_kind *kind);
/* Fails if something exists there that is not of this kind, FILE_REGULAR or FILE_FOLDER. */
bool file_expect(struct file_place at, enum file_kind kind);

/* ---- Reading ---- */

/* Opens a regular file for reading, and returns its size. -1 if it cannot be opened or is not a regular file. */
int file_open_at(struct file_place at, size_t *bytes);
/* Size and time of the last change of a regular file, following links; false if there is none, which is recorded. */
bool file_measure(struct file_place at, uint64_t *bytes, int64_t *changed_ns);
/* Reads up to `bytes` from where the last read ended; *n 0: the end. For pipes too; `at` is for messages. */
bool file_read_some(int fd, struct file_place at, void *to, size_t bytes, size_t *n);
static inline int file_open(const char *path, size_t *bytes) { return file_open_at(file_path(path), bytes); }
void file_close(int fd);
/* Reads exactly `bytes` from `offset`; a shorter file is an error. */
bool file_read_at(int fd, struct file_place at, void *to, size_t bytes, size_t offset);
static inline bool file_read(int fd, const char *path, void *to, size_t bytes, size_t offset) {
    return file_read_at(fd, file_path(path), to, bytes, offset);
}

/* Reads a whole file of at most `limit` bytes and appends a 0; free it with memory_free. NULL on error, which is
 * recorded. */
char *file_get_at(struct file_place at, size_t limit, size_t *bytes);
static inline char *file_get(const char *path, size_t limit, size_t *bytes) {
    return file_get_at(file_path(path), limit, bytes);
}
/* The same for an open descriptor that may be a pipe, like standard input; `name` is for messages. */
char *file_get_stream(int fd, const char *name, size_t limit, size_t *bytes);

/* Maps a file privately: writes stay in memory. Starts with one reference. If another process truncates the file,
 * the missing pages are unreadable (SIGBUS); renaming a new file over it is safe. */
struct file_map;
struct file_map *file_map_new(int fd, const char *path, size_t bytes); /* bytes: not 0; NULL: recorded */
unsigned char *file_map_data(struct file_map *map);
void file_map_keep(struct file_map *map);
void file_map_drop(void *map);

/* ---- Writing ---- */

/* Creates a writer and its temporary file. NULL on error, which is recorded. An existing target must be a regular
 * file. If a path ends in a link, the link is replaced, not followed; in an open folder it is an error. The folder
 * stays open as long as the writer. */
struct file_writer;
struct file_writer *file_writer_at(struct file_place at);
static inline struct file_writer *file_writer_new(const char *path) { return file_writer_at(file_path(path)); }
/* Reserves space for a file of exactly `bytes`, so that a full disk is found before writing. File systems without
 * reservation are accepted. */
bool file_writer_reserve(struct file_writer *w, size_t bytes);
bool file_writer_write(struct file_writer *w, const void *data, size_t bytes);
/* A writer whose temporary file is `name`.SUFFIX and stays when the writer is discarded, so that another process can
 * continue with it: its first `bytes` bytes are kept (fewer are an error), what is behind them is cut off. A file that
 * another process has open this way is an error. */
struct file_writer *file_writer_kept(const char *path, const char *suffix, size_t bytes);
/* Goes back to `offset`: what is behind it stays until it is written over. */
bool file_writer_back(struct file_writer *w, size_t offset);
/* True when everything written so far is on the disk. */
bool file_writer_sync(struct file_writer *w);
/* Overwrites bytes at `offset`, at most where the writer is: for a header with a count that is known only at the end,
 * and for what will be written over later. */
bool file_writer_patch(struct file_writer *w, const void *data, size_t bytes, size_t offset);
/* Reads back what was written. */
bool file_writer_read(struct file_writer *w, void *to, size_t bytes, size_t offset);
/* A second temporary file beside that of a writer, for what has to wait outside memory: it is written, read back and
 * discarded, never committed. NULL on error, which is recorded. */
struct file_writer *file_writer_scratch(const struct file_writer *w);
/* Renames the file into place and ends the writer, also on failure; then the old file is untouched and the temporary
 * is removed. (Only if the last step, the sync of the folder, fails is the new file in place.) */
bool file_writer_commit(struct file_writer *w);
void file_writer_discard(struct file_writer *w); /* NULL allowed */
/* All of it in one call. */
bool file_put_at(struct file_place at, const void *data, size_t bytes);
static inline bool file_put(const char *path, const void *data, size_t bytes) {
    return file_put_at(file_path(path), data, bytes);
}
/* Opens a regular file for appending, creates it if it is missing, and returns its size. -1 on error, which is
 * recorded. A file with another hard link is copied first, so that writes do not appear under the other name. */
int file_append_at(struct file_place at, size_t *bytes);

/* Opens or creates a file and locks it for the life of the process. -1 on error, which is recorded, or if another
 * process holds it (`is_busy`). Without lock support it is only opened. */
int file_lock_at(struct file_place at, bool *is_busy);
/* Whether a process holds such a lock; an absent file is not locked. False: recorded. */
bool file_is_locked(struct file_place at, bool *is_locked);

/* ---- Folders ---- */

/* "folder/name"; free it with memory_free. NULL: recorded. */
char *file_join(const char *folder, const char *name);
/* Creates a folder and its parents if they are missing. */
bool file_make_folder(const char *path);
/* Calls visit for every name except "." and "..", in no order, until it returns false. False on error, which is
 * recorded, or if visit returned false. */
bool file_list(const struct file_folder *f, bool (*visit)(const char *name, void *context), void *context);
/* Removes a file or a link if it exists. */
bool file_remove(struct file_place at);
/* Removes a folder if it exists and is empty. */
bool file_remove_folder(struct file_place at);
/* Renames; the new name must not exist. */
bool file_rename(const struct file_folder *f, const char *from, const char *to);
/* Renames something damaged to "damaged-NAME", or "damaged-NAME-2" and so on; `aside` receives the new name. */
#define FILE_DAMAGED "damaged-"
enum { FILE_ASIDE = 300 };
bool file_set_aside(const struct file_folder *f, const char *name, char aside[FILE_ASIDE]);
/* Whether a name is that of a writer's temporary file. */
bool file_is_temporary(const char *name);
/* Removes temporary files of dead processes from a folder. */
void file_sweep(const struct file_folder *f);
/* Syncs a folder, so that created, renamed and removed names survive a crash. */
bool file_folder_sync(const struct file_folder *f);

#endif

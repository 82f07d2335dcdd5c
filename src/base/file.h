/* file.h: reading that is checked, and writing that is whole or not at all.
 *
 * Writing goes to a temporary beside the target, which is synced and then renamed over it; then the folder is synced.
 * Whoever opens the name meanwhile, or after a crash at any point, finds the old file or the new one and nothing
 * between. A failed sync is never tried again: the kernel may have dropped the pages and would then report success.
 *
 * Failures are recorded as TL_ERROR_IO with the file's name and the system's reason; a lack of memory as TL_ERROR_MEMORY.
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

/* ---- Places ---- */

/* A folder that is open. What is in it is found by its name there, whatever becomes of the path that led to it, and no
 * link is followed: a link under that name is refused. */
struct file_folder {
    int fd;
    char path[]; /* for messages */
};
/* The path is followed as the system does it. NULL: recorded. */
struct file_folder *file_folder_open(const char *path);
/* A folder within one; with `make` it is made where there is none. NULL: recorded. */
struct file_folder *file_folder_in(const struct file_folder *parent, const char *name, bool make);
void file_folder_close(struct file_folder *f); /* NULL allowed */

/* Where a file is: a name in an open folder, or a path, which the system follows. */
struct file_place {
    const struct file_folder *folder; /* NULL: `name` is a path */
    const char *name;
};
static inline struct file_place file_in(const struct file_folder *folder, const char *name) {
    return (struct file_place){folder, name};
}
static inline struct file_place file_path(const char *path) { return (struct file_place){NULL, path}; }
/* A place as a path, for messages: in `text`, which may cut it. Returns it. */
enum { FILE_TEXT = 1280 };
const char *file_text(struct file_place at, char text[FILE_TEXT]);
/* The same, whole, in a text of that many bytes, its 0 included. */
size_t file_text_bytes(struct file_place at);
const char *file_print(struct file_place at, char *text, size_t bytes);

/* What is there; a link is a link, whatever it leads to. False: recorded. */
enum file_kind { FILE_ABSENT, FILE_REGULAR, FILE_FOLDER, FILE_LINK, FILE_OTHER };
bool file_look(struct file_place at, enum file_kind *kind);
/* Refuses what is there and not of this kind, FILE_REGULAR or FILE_FOLDER. Nothing there is fine. */
bool file_expect(struct file_place at, enum file_kind kind);

/* ---- Reading ---- */

/* A regular file opened for reading, and its size. -1 when it cannot be, or is no regular file. */
int file_open_at(struct file_place at, size_t *bytes);
static inline int file_open(const char *path, size_t *bytes) { return file_open_at(file_path(path), bytes); }
void file_close(int fd);
/* All of `bytes` from `offset`; a file that ends before is an error. */
bool file_read_at(int fd, struct file_place at, void *to, size_t bytes, size_t offset);
static inline bool file_read(int fd, const char *path, void *to, size_t bytes, size_t offset) {
    return file_read_at(fd, file_path(path), to, bytes, offset);
}

/* A whole file of at most `limit` bytes, followed by a 0; free it with memory_free. NULL: recorded. */
char *file_get_at(struct file_place at, size_t limit, size_t *bytes);
static inline char *file_get(const char *path, size_t limit, size_t *bytes) {
    return file_get_at(file_path(path), limit, bytes);
}
/* The same of an open descriptor that may be a pipe, like standard input; `name` is for messages. */
char *file_get_stream(int fd, const char *name, size_t limit, size_t *bytes);

/* The file's bytes in memory, private: what is written there stays there. One reference to start with. Another
 * process that cuts the file short makes the missing pages unreadable (SIGBUS); one that renames a new file over it
 * does no harm. */
struct file_map;
struct file_map *file_map_new(int fd, const char *path, size_t bytes); /* bytes: not 0; NULL: recorded */
unsigned char *file_map_data(struct file_map *map);
void file_map_keep(struct file_map *map);
void file_map_drop(void *map);

/* ---- Writing ---- */

/* A writer of the file that will be there; its temporary exists from now on. NULL: recorded. What is there already must
 * be a regular file. A link that a path ends in is replaced, not followed; in an open folder it is refused. The folder
 * stays open as long as the writer. */
struct file_writer;
struct file_writer *file_writer_at(struct file_place at);
static inline struct file_writer *file_writer_new(const char *path) { return file_writer_at(file_path(path)); }
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
bool file_put_at(struct file_place at, const void *data, size_t bytes);
static inline bool file_put(const char *path, const void *data, size_t bytes) {
    return file_put_at(file_path(path), data, bytes);
}
/* A regular file for writing at its end, made where there is none, and its size. -1: recorded. A file that has a second
 * name elsewhere (a hard link) becomes a copy of its own first, so that what is written here is not seen there. */
int file_append_at(struct file_place at, size_t *bytes);

/* Opens a file, made where there is none, and takes the lock on it that goes with the process. -1: recorded, or
 * `is_busy`: another process has it. Where there are no locks it is opened all the same. */
int file_lock_at(struct file_place at, bool *is_busy);

/* ---- Folders ---- */

/* "folder/name"; free it with memory_free. NULL: recorded. */
char *file_join(const char *folder, const char *name);
/* Makes a folder (and those above it) where there is none. */
bool file_make_folder(const char *path);
/* Calls visit for every name but "." and "..", in no order, until it answers false. False: recorded, or visit's own. */
bool file_list(const struct file_folder *f, bool (*visit)(const char *name, void *context), void *context);
/* Removes a file or a link; nothing there is fine. */
bool file_remove(struct file_place at);
/* Removes a folder that is empty. What is not there is fine, and so is one that is not empty: it stays. */
bool file_remove_folder(struct file_place at);
/* Gives a name to what had another; what had the new name must not be there. */
bool file_rename(const struct file_folder *f, const char *from, const char *to);
/* Renames what is damaged to "damaged-NAME", or "damaged-NAME-2" and so on where that is taken; `aside` becomes the new
 * name. */
#define FILE_DAMAGED "damaged-"
enum { FILE_ASIDE = 300 };
bool file_set_aside(const struct file_folder *f, const char *name, char aside[FILE_ASIDE]);
/* Whether a writer makes its temporaries under such names. */
bool file_is_temporary(const char *name);
/* Removes the temporaries that writers of processes which no longer live have left in a folder. */
void file_sweep(const struct file_folder *f);
/* What was made, renamed or removed in a folder stays so after a crash. */
bool file_folder_sync(const struct file_folder *f);

#endif

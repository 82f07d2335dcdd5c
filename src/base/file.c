#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/refs.h"

int (*file_fault)(const char *operation, const char *path);

/* Moves a file to a descriptor above 2. If standard descriptors are closed, the next opened file would become one of
 * them, and other code's output would end up in it. Every descriptor opened in this file passes through here. */
static int above(int fd) {
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    int other = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), reason = errno;
    close(fd);
    errno = reason;
    return other;
}

/* ---- Places ---- */

static int folder_of(struct file_place at) { return at.folder ? at.folder->fd : AT_FDCWD; }
static int nofollow(struct file_place at) { return at.folder ? O_NOFOLLOW : 0; }

size_t file_text_bytes(struct file_place at) {
    return (at.folder ? strlen(at.folder->path) + 1 : 0) + strlen(at.name) + 1;
}

const char *file_print(struct file_place at, char *text, size_t bytes) {
    snprintf(text, bytes, "%s%s%s", at.folder ? at.folder->path : "", at.folder ? "/" : "", at.name);
    return text;
}

const char *file_text(struct file_place at, char text[FILE_TEXT]) { return file_print(at, text, FILE_TEXT); }

/* What a test injects for this operation: 0, an errno, or FILE_SHORT. */
static int wanted(const char *operation, struct file_place at) {
    char text[FILE_TEXT];
    return file_fault ? file_fault(operation, file_text(at, text)) : 0;
}

/* True, with errno set, if a test makes this operation fail. */
static bool fault(const char *operation, struct file_place at) {
    int reason = wanted(operation, at);
    if (reason > 0) errno = reason;
    return reason > 0;
}

/* How many bytes of a read or write to process: all, or as many as a test allows. -1 with errno set: none. */
static ssize_t allowed(const char *operation, struct file_place at, size_t bytes) {
    size_t most = (size_t)1 << 30; /* Linux transfers at most 2 GiB - 4 KiB per call */
    int reason = wanted(operation, at);
    if (reason > 0) return errno = reason, -1;
    if (reason == FILE_SHORT) most = (bytes + 1) / 2;
    return (ssize_t)(bytes < most ? bytes : most);
}

static bool failed(struct file_place at, const char *what) {
    int reason = errno;
    char text[FILE_TEXT];
    return error_set(reason == ENOMEM ? TL_ERROR_MEMORY : TL_ERROR_IO, "%s: %s: %s", file_text(at, text), what,
                     strerror(reason));
}

bool file_look(struct file_place at, enum file_kind *kind) {
    struct stat status;
    bool is_there = !fault("look", at) && fstatat(folder_of(at), at.name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (!is_there && errno != ENOENT) return failed(at, "cannot be examined");
    *kind = !is_there                 ? FILE_ABSENT
            : S_ISREG(status.st_mode) ? FILE_REGULAR
            : S_ISDIR(status.st_mode) ? FILE_FOLDER
            : S_ISLNK(status.st_mode) ? FILE_LINK
                                      : FILE_OTHER;
    return true;
}

/* Reports that something of this kind is not accepted; `need` is the required kind. Always false. */
static bool refuse(struct file_place at, enum file_kind kind, enum file_kind need) {
    char text[FILE_TEXT];
    file_text(at, text);
    if (kind == FILE_LINK && at.folder)
        return error_set(TL_ERROR_IO,
                         "%s: is a symbolic link, and links are not followed here (put the %s itself there)", text,
                         need == FILE_FOLDER ? "folder" : "file");
    return error_set(TL_ERROR_IO, "%s: exists and is not a %s", text, need == FILE_FOLDER ? "folder" : "regular file");
}

bool file_expect(struct file_place at, enum file_kind need) {
    enum file_kind kind;
    return file_look(at, &kind) && (kind == FILE_ABSENT || kind == need || refuse(at, kind, need));
}

/* The failure may be due to a link, which systems report in several ways. */
static bool open_failed(struct file_place at, enum file_kind need) {
    int reason = errno;
    struct stat status;
    bool is_link =
        at.folder && fstatat(folder_of(at), at.name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode);
    errno = reason;
    return is_link ? refuse(at, FILE_LINK, need) : failed(at, "cannot be opened");
}

static struct file_folder *folder_open(struct file_place at) {
    size_t room = file_text_bytes(at), bytes = sizeof(struct file_folder) + room;
    struct file_folder *f = memory_new(bytes);
    if (!f) return error_memory(bytes, "an open folder"), NULL;
    file_print(at, f->path, room);
    f->fd = fault("open folder", at)
                ? -1
                : above(openat(folder_of(at), at.name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | nofollow(at)));
    if (f->fd >= 0) return f;
    open_failed(at, FILE_FOLDER);
    memory_free(f);
    return NULL;
}

struct file_folder *file_folder_open(const char *path) {
    return folder_open(file_path(path));
}

struct file_folder *file_folder_in(const struct file_folder *parent, const char *name, bool make) {
    struct file_place at = file_in(parent, name);
    if (make && (fault("mkdir", at) || (mkdirat(parent->fd, name, 0777) < 0 && errno != EEXIST)))
        return failed(at, "cannot be made"), NULL;
    return folder_open(at);
}

void file_folder_close(struct file_folder *f) {
    if (f) close(f->fd);
    memory_free(f);
}

/* ---- Reading ---- */

/* True for a regular file, whose size is then known. */
static bool regular_check(int fd, struct file_place at, struct stat *status) {
    char text[FILE_TEXT];
    if (fault("stat", at) || fstat(fd, status) != 0) return failed(at, "cannot be examined");
    return S_ISREG(status->st_mode) || error_set(TL_ERROR_IO, "%s: is not a regular file", file_text(at, text));
}

int file_open_at(struct file_place at, size_t *bytes) {
    /* Without O_NONBLOCK, opening a pipe without a writer would block forever. */
    int fd = fault("open", at)
                 ? -1
                 : above(openat(folder_of(at), at.name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | nofollow(at)));
    struct stat status;
    if (fd < 0) return open_failed(at, FILE_REGULAR), -1;
    if (!regular_check(fd, at, &status)) return close(fd), -1;
    *bytes = (size_t)status.st_size;
    return fd;
}

void file_close(int fd) { close(fd); }

bool file_measure(struct file_place at, uint64_t *bytes, int64_t *changed_ns) {
    struct stat status;
    char text[FILE_TEXT];
    if (fault("stat", at) || fstatat(folder_of(at), at.name, &status, 0) != 0) return failed(at, "cannot be examined");
    *bytes = (uint64_t)status.st_size;
    *changed_ns = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec;
    return S_ISREG(status.st_mode) || error_set(TL_ERROR_IO, "%s: is not a regular file", file_text(at, text));
}

bool file_read_some(int fd, struct file_place at, void *to, size_t bytes, size_t *n) {
    for (;;) {
        ssize_t got = allowed("read", at, bytes);
        if (got > 0) got = read(fd, to, (size_t)got);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return failed(at, "cannot be read");
        *n = (size_t)got;
        return true;
    }
}

bool file_read_at(int fd, struct file_place at, void *to, size_t bytes, size_t offset) {
    char text[FILE_TEXT];
    for (size_t done = 0; done < bytes;) {
        ssize_t n = allowed("read", at, bytes - done);
        if (n > 0) n = pread(fd, (char *)to + done, (size_t)n, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed(at, "cannot be read");
        if (n == 0)
            return error_set(TL_ERROR_IO, "%s: ended at byte %zu while it was read", file_text(at, text),
                             offset + done);
        done += (size_t)n;
    }
    return true;
}

char *file_get_at(struct file_place at, size_t limit, size_t *bytes) {
    char *text = NULL, path[FILE_TEXT];
    int fd = file_open_at(at, bytes);
    if (fd < 0) return NULL;
    if (*bytes > limit)
        error_set(TL_ERROR_USE, "%s: has %zu bytes (at most %zu are allowed)", file_text(at, path), *bytes, limit);
    else if (!(text = memory_new(*bytes + 1))) error_memory(*bytes + 1, "a file");
    if (text) text[*bytes] = 0;
    if (text && !file_read_at(fd, at, text, *bytes, 0)) {
        memory_free(text);
        text = NULL;
    }
    file_close(fd);
    return text;
}

char *file_get_stream(int fd, const char *name, size_t limit, size_t *bytes) {
    size_t capacity = 0, used = 0;
    char *text = NULL;
    for (ssize_t n = 1; n > 0 && used <= limit;) {
        if (capacity - used < 2) {
            capacity = capacity ? 2 * capacity : 65536;
            char *moved = memory_resize(text, capacity);
            if (!moved) return error_memory(capacity, "a file"), memory_free(text), NULL;
            text = moved;
        }
        n = allowed("read", file_path(name), capacity - used - 1);
        if (n > 0) n = read(fd, text + used, (size_t)n);
        if (n < 0 && errno == EINTR) n = 1;
        else if (n < 0) return failed(file_path(name), "cannot be read"), memory_free(text), NULL;
        else used += (size_t)n;
    }
    if (used > limit) {
        error_set(TL_ERROR_USE, "%s: has more than %zu bytes", name, limit);
        return memory_free(text), NULL;
    }
    *bytes = used;
    text[used] = 0;
    return text;
}

struct file_map {
    atomic_int refs;
    unsigned char *data;
    size_t bytes;
};

struct file_map *file_map_new(int fd, const char *path, size_t bytes) {
    struct file_map *map = memory_new(sizeof *map);
    if (!map) return error_memory(sizeof *map, "a mapped file"), NULL;
    /* MAP_NORESERVE: a file larger than memory may be read, but not written. */
    void *data = fault("map", file_path(path))
                     ? MAP_FAILED
                     : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    if (data == MAP_FAILED) {
        failed(file_path(path), "cannot be mapped");
        memory_free(map);
        return NULL;
    }
    *map = (struct file_map){.refs = 1, .data = data, .bytes = bytes};
    return map;
}

unsigned char *file_map_data(struct file_map *map) { return map->data; }
void file_map_keep(struct file_map *map) { refs_keep(&map->refs); }

void file_map_drop(void *p) {
    struct file_map *map = p;
    if (!refs_drop(&map->refs)) return;
    munmap(map->data, map->bytes);
    memory_free(map);
}

/* ---- Writing ---- */

struct file_writer {
    int fd;
    size_t written, reserved;
    bool is_kept;                 /* the temporary stays, see file_writer_kept */
    const struct file_folder *in; /* NULL: what follows are paths */
    char *temporary, *folder;     /* behind name; folder: of a path */
    char name[];
};

static struct file_place target_of(const struct file_writer *w) { return (struct file_place){w->in, w->name}; }
static struct file_place temporary_of(const struct file_writer *w) { return (struct file_place){w->in, w->temporary}; }

#define TEMPORARY ".tally-%ld-%u.tmp" /* not derived from the target's name, which may have the maximum length */
enum { TEMPORARY_BYTES = 64, TEMPORARY_TRIES = 1000 };

bool file_is_temporary(const char *name) {
    long pid;
    unsigned number;
    int end = 0;
    return sscanf(name, TEMPORARY "%n", &pid, &number, &end) == 2 && end && !name[end];
}

static bool target_check(struct file_place at) {
    struct stat status;
    const char *slash = strrchr(at.name, '/');
    if (!*(slash ? slash + 1 : at.name)) return error_set(TL_ERROR_IO, "\"%s\": is not the name of a file", at.name);
    /* A rename would put a file in the place of a device (or fail on a folder after all the work). */
    if (at.folder) return file_expect(at, FILE_REGULAR);
    return stat(at.name, &status) != 0 || S_ISREG(status.st_mode) || refuse(at, FILE_OTHER, FILE_REGULAR);
}

static struct file_writer *writer_alone(struct file_place at, size_t suffix) {
    size_t length = strlen(at.name);
    size_t bytes = sizeof(struct file_writer) + 3 * (length + 1) + 2 + TEMPORARY_BYTES + suffix;
    struct file_writer *w = memory_new(bytes);
    if (!w) return error_memory(bytes, "a file writer"), NULL;
    *w = (struct file_writer){.fd = -1, .in = at.folder};
    memcpy(w->name, at.name, length + 1);
    w->folder = w->name + length + 1;
    const char *slash = strrchr(at.name, '/');
    size_t folder = slash ? (size_t)(slash - at.name) + 1 : 0; /* with its slash */
    memcpy(w->folder, at.name, folder);
    w->folder[folder] = 0;
    w->temporary = w->folder + strlen(w->folder) + 1;
    return w;
}

/* A lock on it shows that its writer is alive; the system releases it when the process ends. Without locks, a sweep
 * during a write makes that writer's rename fail, and nothing else. */
static bool temporary_create(struct file_writer *w) {
    static atomic_uint serial;
    for (int i = 0; i < TEMPORARY_TRIES; i++) { /* a dead process with the same pid may have left some */
        snprintf(w->temporary, strlen(w->folder) + TEMPORARY_BYTES, "%s" TEMPORARY, w->folder, (long)getpid(),
                 atomic_fetch_add(&serial, 1));
        w->fd =
            fault("create", temporary_of(w))
                ? -1
                : above(openat(folder_of(temporary_of(w)), w->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
        if (w->fd >= 0) return flock(w->fd, LOCK_EX | LOCK_NB), true;
        if (errno != EEXIST && errno != EINTR) break;
    }
    return failed(target_of(w), "cannot be written: no temporary can be made beside it");
}

struct file_writer *file_writer_at(struct file_place at) {
    struct file_writer *w = target_check(at) ? writer_alone(at, 0) : NULL;
    if (w && temporary_create(w)) return w;
    memory_free(w);
    return NULL;
}

/* Opens and locks the temporary; its first `bytes` bytes stay. */
static bool kept_open(struct file_writer *w, size_t bytes) {
    struct file_place at = temporary_of(w);
    struct stat status;
    char text[FILE_TEXT];
    w->fd = fault("create", at)
                ? -1
                : above(open(w->temporary, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0666));
    if (w->fd < 0) return failed(at, "cannot be opened");
    if (!regular_check(w->fd, at, &status)) return false;
    if (flock(w->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return error_set(TL_ERROR_IO, "%s: another process is writing it", file_text(at, text));
    if ((size_t)status.st_size < bytes)
        return error_set(TL_ERROR_IO, "%s: has %lld bytes (need at least %zu)", file_text(at, text),
                         (long long)status.st_size, bytes);
    bool ok =
        !fault("truncate", at) && ftruncate(w->fd, (off_t)bytes) == 0 && lseek(w->fd, (off_t)bytes, SEEK_SET) >= 0;
    w->written = bytes;
    return ok || failed(at, "cannot be cut");
}

struct file_writer *file_writer_kept(const char *path, const char *suffix, size_t bytes) {
    struct file_writer *w = target_check(file_path(path)) ? writer_alone(file_path(path), strlen(suffix)) : NULL;
    if (!w) return NULL;
    w->is_kept = true;
    sprintf(w->temporary, "%s%s", path, suffix);
    if (kept_open(w, bytes)) return w;
    file_writer_discard(w);
    return NULL;
}

bool file_writer_reserve(struct file_writer *w, size_t bytes) {
    int reason = 0;
    do {
        reason = fault("reserve", target_of(w)) || fallocate(w->fd, 0, 0, (off_t)bytes) ? errno : 0;
    } while (reason == EINTR);
    if (reason == EOPNOTSUPP || reason == ENOSYS) return true;
    errno = reason;
    if (reason) return failed(target_of(w), "there is no room for it");
    w->reserved = bytes;
    return true;
}

bool file_writer_write(struct file_writer *w, const void *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = allowed("write", target_of(w), bytes - done);
        if (n > 0) n = write(w->fd, (const char *)data + done, (size_t)n);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed(target_of(w), "cannot be written");
        done += (size_t)n;
        w->written += (size_t)n;
    }
    return true;
}

bool file_writer_patch(struct file_writer *w, const void *data, size_t bytes, size_t offset) {
    INVARIANT(offset <= w->written);
    for (size_t done = 0; done < bytes;) {
        ssize_t n = allowed("patch", target_of(w), bytes - done);
        if (n > 0) n = pwrite(w->fd, (const char *)data + done, (size_t)n, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed(target_of(w), "cannot be written");
        done += (size_t)n;
    }
    return true;
}

bool file_writer_read(struct file_writer *w, void *to, size_t bytes, size_t offset) {
    INVARIANT(offset <= w->written && bytes <= w->written - offset);
    return file_read_at(w->fd, target_of(w), to, bytes, offset);
}

struct file_writer *file_writer_scratch(const struct file_writer *w) {
    return file_writer_at(target_of(w));
}

/* `at` and `what` are for the message. */
static bool folder_sync(int fd, struct file_place at, const char *what) {
    bool ok = !fault("sync folder", at) && fsync(fd) == 0;
    return ok || errno == EINVAL || failed(at, what); /* EINVAL: the file system does not support it */
}

bool file_folder_sync(const struct file_folder *f) {
    return folder_sync(f->fd, file_path(f->path), "cannot be synced");
}

static bool writer_sync_folder(const struct file_writer *w) {
    static const char what[] = "is written, but its folder cannot be synced";
    const char *path = *w->folder ? w->folder : ".";
    if (w->in) return folder_sync(w->in->fd, target_of(w), what);
    int fd = fault("open folder", file_path(path)) ? -1 : above(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    bool ok = fd >= 0 ? folder_sync(fd, target_of(w), what) : failed(target_of(w), what);
    if (fd >= 0) close(fd);
    return ok;
}

bool file_writer_back(struct file_writer *w, size_t offset) {
    INVARIANT(offset <= w->written);
    if (fault("seek", target_of(w)) || lseek(w->fd, (off_t)offset, SEEK_SET) < 0)
        return failed(target_of(w), "cannot be written");
    w->written = offset;
    return true;
}

bool file_writer_sync(struct file_writer *w) {
    return (!fault("sync", target_of(w)) && fsync(w->fd) == 0) || failed(target_of(w), "cannot be synced");
}

/* Closes the file; true when everything is on the disk. */
static bool file_settle(struct file_writer *w) {
    bool ok = file_writer_sync(w);
    bool is_closed = close(w->fd) == 0 && !fault("close", target_of(w));
    w->fd = -1;
    if (ok && !is_closed) ok = failed(target_of(w), "cannot be closed");
    return ok;
}

bool file_writer_commit(struct file_writer *w) {
    INVARIANT(!w->reserved || w->written == w->reserved); /* else there were zeros at its end */
    int folder = folder_of(target_of(w));
    bool ok = file_settle(w);
    if (ok && (fault("rename", target_of(w)) || renameat(folder, w->temporary, folder, w->name) != 0))
        ok = failed(target_of(w), "its temporary cannot be renamed");
    if (ok) {
        ok = writer_sync_folder(w);
        memory_free(w);
    } else file_writer_discard(w);
    return ok;
}

void file_writer_discard(struct file_writer *w) {
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    if (!w->is_kept) unlinkat(folder_of(temporary_of(w)), w->temporary, 0);
    memory_free(w);
}

bool file_put_at(struct file_place at, const void *data, size_t bytes) {
    struct file_writer *w = file_writer_at(at);
    if (!w) return false;
    if (file_writer_write(w, data, bytes)) return file_writer_commit(w);
    file_writer_discard(w);
    return false;
}

/* Replaces an open file by a copy. */
static bool copy_put(struct file_place at, int fd, size_t bytes) {
    enum { PIECE = 1 << 16 };
    char *piece = memory_new(PIECE);
    struct file_writer *w = piece ? file_writer_at(at) : NULL;
    bool ok = w != NULL;
    if (!piece) error_memory(PIECE, "a copy of a file");
    for (size_t done = 0; ok && done < bytes; done += PIECE) {
        size_t n = bytes - done < PIECE ? bytes - done : PIECE;
        ok = file_read_at(fd, at, piece, n, done) && file_writer_write(w, piece, n);
    }
    memory_free(piece);
    if (ok) return file_writer_commit(w);
    file_writer_discard(w);
    return false;
}

static int append_open(struct file_place at, struct stat *status) {
    int fd = fault("append", at)
                 ? -1
                 : above(openat(folder_of(at), at.name,
                                O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | nofollow(at), 0666));
    if (fd < 0) return open_failed(at, FILE_REGULAR), -1;
    return regular_check(fd, at, status) ? fd : (close(fd), -1);
}

int file_append_at(struct file_place at, size_t *bytes) {
    struct stat status;
    int fd = append_open(at, &status);
    if (fd >= 0 && status.st_nlink > 1) {
        bool ok = copy_put(at, fd, (size_t)status.st_size);
        close(fd);
        fd = ok ? append_open(at, &status) : -1;
    }
    if (fd >= 0) *bytes = (size_t)status.st_size;
    return fd;
}

int file_lock_at(struct file_place at, bool *is_busy) {
    struct stat status;
    *is_busy = false;
    int fd = append_open(at, &status), result = fd < 0 ? 0 : flock(fd, LOCK_EX | LOCK_NB);
    for (int i = 0; i < 5 && result && errno == EWOULDBLOCK; i++) { /* file_is_locked has it for a moment */
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        result = flock(fd, LOCK_EX | LOCK_NB);
    }
    if (fd < 0 || result == 0 || errno == ENOLCK || errno == ENOTSUP) return fd;
    *is_busy = errno == EWOULDBLOCK;
    if (!*is_busy) failed(at, "cannot be locked");
    close(fd);
    return -1;
}

bool file_is_locked(struct file_place at, bool *is_locked) {
    enum file_kind kind;
    size_t bytes;
    *is_locked = false;
    if (!file_look(at, &kind)) return false;
    if (kind != FILE_REGULAR) return true;
    int fd = file_open_at(at, &bytes);
    if (fd < 0) return false;
    *is_locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return true;
}

/* ---- Folders ---- */

char *file_join(const char *folder, const char *name) {
    size_t bytes = strlen(folder) + strlen(name) + 2;
    char *path = memory_new(bytes);
    if (path) snprintf(path, bytes, "%s/%s", folder, name);
    else error_memory(bytes, "a path");
    return path;
}

bool file_make_folder(const char *path) {
    size_t length = strlen(path);
    char *part = memory_new(length + 1);
    if (!part) return error_memory(length + 1, "a path");
    memcpy(part, path, length + 1);
    bool ok = true;
    for (size_t i = 1; ok && i <= length; i++) { /* every folder on the way, then the last */
        if (path[i] != '/' && path[i]) continue;
        part[i] = 0;
        if (fault("mkdir", file_path(part)) || (mkdir(part, 0777) < 0 && errno != EEXIST))
            ok = failed(file_path(part), "cannot be made");
        part[i] = path[i];
    }
    struct stat status;
    if (ok && (stat(path, &status) < 0 || !S_ISDIR(status.st_mode)))
        ok = error_set(TL_ERROR_IO, "%s: exists and is not a folder", path);
    memory_free(part);
    return ok;
}

bool file_list(const struct file_folder *f, bool (*visit)(const char *name, void *context), void *context) {
    struct file_place at = file_path(f->path);
    /* a separate descriptor, since listing starts at the descriptor's position */
    int fd = fault("list", at) ? -1 : above(openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        failed(at, "cannot be listed");
        if (fd >= 0) close(fd);
        return false;
    }
    bool ok = true;
    for (struct dirent *e; ok && (errno = 0, e = readdir(dir));)
        ok = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || visit(e->d_name, context);
    if (ok && errno) ok = failed(at, "cannot be listed");
    closedir(dir);
    return ok;
}

bool file_remove(struct file_place at) {
    bool is_gone = !fault("remove", at) && (unlinkat(folder_of(at), at.name, 0) == 0 || errno == ENOENT);
    return is_gone || failed(at, "cannot be removed");
}

bool file_remove_folder(struct file_place at) {
    bool ok = !fault("remove folder", at) && (unlinkat(folder_of(at), at.name, AT_REMOVEDIR) == 0 || errno == ENOENT ||
                                              errno == ENOTEMPTY || errno == EEXIST);
    return ok || failed(at, "cannot be removed");
}

bool file_rename(const struct file_folder *f, const char *from, const char *to) {
    enum file_kind kind;
    if (!file_look(file_in(f, to), &kind)) return false;
    if (kind != FILE_ABSENT) errno = EEXIST;
    if (kind != FILE_ABSENT || fault("rename", file_in(f, from)) || renameat(f->fd, from, f->fd, to) != 0)
        return failed(file_in(f, from), "cannot be renamed");
    return file_folder_sync(f);
}

bool file_set_aside(const struct file_folder *f, const char *name, char aside[FILE_ASIDE]) {
    enum { MOST = 1000 };
    enum file_kind kind = FILE_OTHER;
    for (int i = 1; i <= MOST && kind != FILE_ABSENT; i++) {
        snprintf(aside, FILE_ASIDE, i == 1 ? FILE_DAMAGED "%s" : FILE_DAMAGED "%s-%d", name, i);
        if (!file_look(file_in(f, aside), &kind)) return false;
    }
    return file_rename(f, name, aside);
}

/* Files that cannot be opened, locked or removed are ignored. */
static bool temporary_sweep(const char *name, void *context) {
    const struct file_folder *f = context;
    struct stat status;
    if (!file_is_temporary(name)) return true;
    int fd = above(openat(f->fd, name, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
    bool is_dead = fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
                   (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK);
    if (is_dead) unlinkat(f->fd, name, 0);
    if (fd >= 0) close(fd);
    return true;
}

void file_sweep(const struct file_folder *f) {
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    if (!file_list(f, temporary_sweep, (void *)f)) tl_error_clear(); /* checked by those who need it */
    tl_set_error_policy(policy);
}

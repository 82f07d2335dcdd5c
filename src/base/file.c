#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/refs.h"

int (*file_fault)(const char *operation, const char *path);

/* True, with errno set, when a test wants this operation to fail. */
static bool fault(const char *operation, const char *path) {
    int reason = file_fault ? file_fault(operation, path) : 0;
    if (reason > 0) errno = reason;
    return reason > 0;
}

/* How much of a read or write is to be done: all, or what a test allows. -1 with errno set: none. */
static ssize_t allowed(const char *operation, const char *path, size_t bytes) {
    size_t most = (size_t)1 << 30; /* Linux itself does no more than 2 GiB - 4 KiB at a time */
    int reason = file_fault ? file_fault(operation, path) : 0;
    if (reason > 0) return errno = reason, -1;
    if (reason == FILE_SHORT) most = (bytes + 1) / 2;
    return (ssize_t)(bytes < most ? bytes : most);
}

static bool failed(const char *path, const char *what) {
    int reason = errno;
    return error_set(TL_ERROR_IO, "%s: %s: %s", path, what, strerror(reason));
}

/* ---- Reading ---- */

int file_open(const char *path, size_t *bytes) {
    /* Without O_NONBLOCK, opening a pipe that nobody writes would wait for ever. */
    int fd = fault("open", path) ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return failed(path, "cannot be opened"), -1;
    struct stat status;
    bool ok = !fault("stat", path) && fstat(fd, &status) == 0;
    if (!ok) failed(path, "cannot be examined");
    else if (!S_ISREG(status.st_mode)) ok = error_set(TL_ERROR_IO, "%s: is not a regular file", path);
    if (!ok) return close(fd), -1;
    *bytes = (size_t)status.st_size;
    return fd;
}

void file_close(int fd) { close(fd); }

bool file_read(int fd, const char *path, void *to, size_t bytes, size_t offset) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = allowed("read", path, bytes - done);
        if (n > 0) n = pread(fd, (char *)to + done, (size_t)n, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed(path, "cannot be read");
        if (n == 0) return error_set(TL_ERROR_IO, "%s: ends at byte %zu while it is read", path, offset + done);
        done += (size_t)n;
    }
    return true;
}

char *file_get(const char *path, size_t limit, size_t *bytes) {
    int fd = file_open(path, bytes);
    if (fd < 0) return NULL;
    char *text = NULL;
    if (*bytes > limit) error_set(TL_ERROR_USE, "%s: has %zu bytes (at most %zu are taken)", path, *bytes, limit);
    else if (!(text = memory_new(*bytes + 1))) error_memory(*bytes + 1, "a file");
    if (text) text[*bytes] = 0;
    if (text && !file_read(fd, path, text, *bytes, 0)) {
        memory_free(text);
        text = NULL;
    }
    file_close(fd);
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
    /* MAP_NORESERVE: a file larger than the memory is fine as long as it is read, not written. */
    void *data =
        fault("map", path) ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    if (data == MAP_FAILED) {
        failed(path, "cannot be mapped");
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
    char *temporary, *folder; /* behind path */
    char path[];
};

#define TEMPORARY ".tally-%ld-%u.tmp" /* not made of the target's name, which may be as long as names can be */
enum { TEMPORARY_BYTES = 64, TEMPORARY_TRIES = 1000 };

static bool target_check(const char *path) {
    struct stat status;
    const char *slash = strrchr(path, '/');
    if (!*(slash ? slash + 1 : path)) return error_set(TL_ERROR_IO, "\"%s\": is not the name of a file", path);
    /* A rename would put a file in the place of a device (or fail on a folder after all the work). */
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
        return error_set(TL_ERROR_IO, "%s: is there and not a regular file", path);
    return true;
}

static struct file_writer *writer_alone(const char *path) {
    size_t length = strlen(path), bytes = sizeof(struct file_writer) + 3 * (length + 1) + 2 + TEMPORARY_BYTES;
    struct file_writer *w = memory_new(bytes);
    if (!w) return error_memory(bytes, "a file writer"), NULL;
    *w = (struct file_writer){.fd = -1};
    memcpy(w->path, path, length + 1);
    w->folder = w->path + length + 1;
    const char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash - path) + 1 : 0; /* with its slash */
    memcpy(w->folder, folder ? path : "./", folder ? folder : 2);
    w->folder[folder ? folder : 2] = 0;
    w->temporary = w->folder + strlen(w->folder) + 1;
    return w;
}

static bool temporary_create(struct file_writer *w) {
    static atomic_uint serial;
    for (int i = 0; i < TEMPORARY_TRIES; i++) { /* a dead process of the same number may have left some */
        snprintf(w->temporary, strlen(w->folder) + TEMPORARY_BYTES, "%s" TEMPORARY, w->folder, (long)getpid(),
                 atomic_fetch_add(&serial, 1));
        w->fd = fault("create", w->temporary) ? -1 : open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->fd >= 0) return true;
        if (errno != EEXIST && errno != EINTR) break;
    }
    return failed(w->path, "cannot be written: no temporary can be made beside it");
}

struct file_writer *file_writer_new(const char *path) {
    struct file_writer *w = target_check(path) ? writer_alone(path) : NULL;
    if (w && temporary_create(w)) return w;
    memory_free(w);
    return NULL;
}

bool file_writer_reserve(struct file_writer *w, size_t bytes) {
    int reason = 0;
    do {
        reason = fault("reserve", w->path) || fallocate(w->fd, 0, 0, (off_t)bytes) ? errno : 0;
    } while (reason == EINTR);
    if (reason == EOPNOTSUPP || reason == ENOSYS) return true;
    errno = reason;
    if (reason) return failed(w->path, "there is no room for it");
    w->reserved = bytes;
    return true;
}

bool file_writer_write(struct file_writer *w, const void *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = allowed("write", w->path, bytes - done);
        if (n > 0) n = write(w->fd, (const char *)data + done, (size_t)n);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed(w->path, "cannot be written");
        done += (size_t)n;
        w->written += (size_t)n;
    }
    return true;
}

bool file_writer_patch(struct file_writer *w, const void *data, size_t bytes, size_t offset) {
    INVARIANT(offset <= w->written && bytes <= w->written - offset);
    for (size_t done = 0; done < bytes;) {
        ssize_t n = allowed("patch", w->path, bytes - done);
        if (n > 0) n = pwrite(w->fd, (const char *)data + done, (size_t)n, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed(w->path, "cannot be written");
        done += (size_t)n;
    }
    return true;
}

/* `path` and `what` are for the message. */
static bool folder_sync(const char *folder, const char *path, const char *what) {
    int fd = fault("open folder", folder) ? -1 : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && !fault("sync folder", folder) && fsync(fd) == 0;
    ok = ok || (fd >= 0 && errno == EINVAL); /* a file system without such a thing */
    if (!ok) failed(path, what);
    if (fd >= 0) close(fd);
    return ok;
}

bool file_sync_folder(const char *path) { return folder_sync(path, path, "cannot be synced"); }

/* Closes the file; true when everything is on the disk. */
static bool file_settle(struct file_writer *w) {
    bool ok = !fault("sync", w->path) && fsync(w->fd) == 0;
    if (!ok) failed(w->path, "cannot be synced");
    bool is_closed = close(w->fd) == 0 && !fault("close", w->path);
    w->fd = -1;
    if (ok && !is_closed) ok = failed(w->path, "cannot be closed");
    return ok;
}

bool file_writer_commit(struct file_writer *w) {
    INVARIANT(!w->reserved || w->written == w->reserved); /* else there were zeros at its end */
    bool ok = file_settle(w);
    if (ok && (fault("rename", w->path) || rename(w->temporary, w->path) != 0))
        ok = failed(w->path, "its temporary cannot be renamed");
    if (ok) {
        ok = folder_sync(w->folder, w->path, "is written, but its folder cannot be synced");
        memory_free(w);
    } else file_writer_discard(w);
    return ok;
}

void file_writer_discard(struct file_writer *w) {
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    unlink(w->temporary);
    memory_free(w);
}

bool file_put(const char *path, const void *data, size_t bytes) {
    struct file_writer *w = file_writer_new(path);
    if (!w) return false;
    if (file_writer_write(w, data, bytes)) return file_writer_commit(w);
    file_writer_discard(w);
    return false;
}

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
        if (fault("mkdir", part) || (mkdir(part, 0777) < 0 && errno != EEXIST)) ok = failed(part, "cannot be made");
        part[i] = path[i];
    }
    struct stat status;
    if (ok && (stat(path, &status) < 0 || !S_ISDIR(status.st_mode)))
        ok = error_set(TL_ERROR_IO, "%s: is there and not a folder", path);
    memory_free(part);
    return ok;
}

void file_sweep(const char *folder) {
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        long pid;
        unsigned number;
        int end = 0;
        if (sscanf(e->d_name, TEMPORARY "%n", &pid, &number, &end) != 2 || !end || e->d_name[end]) continue;
        unlinkat(dirfd(dir), e->d_name, 0); /* what cannot be removed does no harm */
    }
    if (dir) closedir(dir);
}

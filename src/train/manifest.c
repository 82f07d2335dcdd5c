#include "train/manifest.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/thread.h"

#define LARGEST_MANIFEST ((size_t)256 << 20)

/* ---- Lengths and checksums ---- */

/* The checksums of a file's blocks. Several threads share a large file: reading it back takes one as long as writing
 * it. */
struct checksums {
    struct file_place at;
    int fd;
    size_t bytes, n_blocks;
    uint32_t *crc;
    size_t n_threads;
};
struct checksums_part {
    const struct checksums *all;
    size_t first; /* block; the next ones are n_threads apart */
    bool ok;      /* otherwise the error is recorded in the thread that failed */
};

enum { CHECKSUM_THREADS = 8, BLOCKS_PER_THREAD = 16 }; /* a thread for at least so many blocks */

static void *checksums_compute(void *argument) {
    struct checksums_part *part = argument;
    const struct checksums *all = part->all;
    unsigned char *block = memory_new(MANIFEST_BLOCK);
    part->ok = block != NULL || error_memory(MANIFEST_BLOCK, "a block of a file");
    for (size_t i = part->first; part->ok && i < all->n_blocks; i += all->n_threads) {
        size_t from = i * MANIFEST_BLOCK, left = all->bytes - from, n = left < MANIFEST_BLOCK ? left : MANIFEST_BLOCK;
        part->ok = file_read_at(all->fd, all->at, block, n, from);
        if (part->ok) all->crc[i] = crc32c(0, block, n);
    }
    memory_free(block);
    return NULL;
}

/* What a thread of its own does not do, because it was not started or because it failed, the caller does once more: so
 * an error is recorded in the caller. */
static bool checksums_share(struct checksums *all) {
    struct checksums_part part[CHECKSUM_THREADS];
    pthread_t thread[CHECKSUM_THREADS];
    bool is_running[CHECKSUM_THREADS] = {false}, ok = true;
    for (size_t i = 0; i < all->n_threads; i++) {
        part[i] = (struct checksums_part){all, i, false};
        is_running[i] = i > 0 && thread_begin(&thread[i], checksums_compute, &part[i]) == 0;
    }
    for (size_t i = 0; i < all->n_threads; i++) {
        if (is_running[i]) pthread_join(thread[i], NULL);
        if (ok && !part[i].ok) checksums_compute(&part[i]);
        ok = ok && part[i].ok;
    }
    return ok;
}

static size_t threads_for(size_t n_blocks) {
    const size_t most = (size_t)process_threads(), wanted = n_blocks / BLOCKS_PER_THREAD;
    const size_t n = wanted < most ? wanted : most;
    return n < 1 ? 1 : n < CHECKSUM_THREADS ? n : CHECKSUM_THREADS;
}

/* Calls visit(crc, context) for each block of a file, in order. */
static bool blocks_walk(struct file_place at, size_t *bytes, bool (*visit)(uint32_t crc, void *context),
                        void *context) {
    int fd = file_open_at(at, bytes);
    if (fd < 0) return false;
    struct checksums all = {.at = at, .fd = fd, .bytes = *bytes};
    all.n_blocks = (*bytes + MANIFEST_BLOCK - 1) / MANIFEST_BLOCK;
    all.n_threads = threads_for(all.n_blocks);
    all.crc = memory_new((all.n_blocks + 1) * sizeof *all.crc);
    bool ok = all.crc != NULL || error_memory((all.n_blocks + 1) * sizeof *all.crc, "checksums");
    ok = ok && checksums_share(&all);
    for (size_t i = 0; ok && i < all.n_blocks; i++) ok = visit(all.crc[i], context);
    memory_free(all.crc);
    file_close(fd);
    return ok;
}

static json_t *crc_json(uint32_t crc) {
    char text[16];
    snprintf(text, sizeof text, "%08" PRIx32, crc);
    return json_string(text);
}

static bool append_crc(uint32_t crc, void *list) {
    return json_array_append_new(list, crc_json(crc)) == 0 || error_memory(16, "a manifest");
}

json_t *manifest_entry(const struct file_folder *folder, const char *name) {
    size_t bytes = 0;
    json_t *blocks = json_array();
    bool ok =
        (blocks || error_memory(64, "a manifest")) && blocks_walk(file_in(folder, name), &bytes, append_crc, blocks);
    json_t *entry =
        ok ? json_pack("{s:s, s:I, s:O}", "name", name, "bytes", (json_int_t)bytes, "crc32c", blocks) : NULL;
    if (ok && !entry) error_memory(64, "a manifest");
    json_decref(blocks);
    return entry;
}

struct compare {
    const char *path;
    const json_t *blocks;
    size_t at;
};

static bool compare_crc(uint32_t crc, void *context) {
    struct compare *c = context;
    char found[16];
    snprintf(found, sizeof found, "%08" PRIx32, crc);
    const char *said = json_string_value(json_array_get(c->blocks, c->at++));
    return (said && !strcmp(said, found)) ||
           error_set(TL_ERROR_USE, "%s: the MiB at byte %zu is damaged: its checksum is %s (need %s)", c->path,
                     (c->at - 1) * MANIFEST_BLOCK, found, said ? said : "none");
}

static bool name_is_safe(const char *name) {
    return name && *name && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

/* Anything but a regular file counts as damaged. */
static bool regular_check(struct file_place at, const char *path) {
    enum file_kind kind;
    if (!file_look(at, &kind)) return false;
    return kind == FILE_REGULAR ||
           error_set(TL_ERROR_USE, "%s: is %s", path, kind == FILE_ABSENT ? "missing" : "not a regular file");
}

static bool length_verify(struct file_place at, const char *path, json_int_t need) {
    size_t bytes;
    if (!regular_check(at, path)) return false;
    int fd = file_open_at(at, &bytes);
    if (fd < 0) return false;
    file_close(fd);
    return (json_int_t)bytes == need ||
           error_set(TL_ERROR_USE, "%s: has %zu bytes (need %" JSON_INTEGER_FORMAT ")", path, bytes, need);
}

bool manifest_verify(const struct file_folder *folder, const json_t *entry, bool deep, const char *where) {
    const char *name = json_string_value(json_object_get(entry, "name"));
    const json_t *length = json_object_get(entry, "bytes"), *blocks = json_object_get(entry, "crc32c");
    if (!name_is_safe(name) || !json_is_integer(length) || !json_is_array(blocks))
        return error_set(TL_ERROR_USE, "%s: an entry of its files lacks name, bytes or crc32c", where);
    char path[FILE_TEXT];
    struct compare c = {file_text(file_in(folder, name), path), blocks, 0};
    size_t bytes = 0;
    if (!length_verify(file_in(folder, name), path, json_integer_value(length))) return false;
    if (!deep) return true;
    if (!blocks_walk(file_in(folder, name), &bytes, compare_crc, &c)) return false;
    return c.at == json_array_size(blocks) || error_set(TL_ERROR_USE, "%s: blocks are missing", path);
}

/* ---- The file ---- */

static char *body_text(json_t *body) { return json_print(body, JSON_COMPACT | JSON_SORT_KEYS); }

bool manifest_put(struct file_place at, json_t *body) {
    char *text = body_text(body), *whole = NULL;
    json_t *root =
        text ? json_pack("{s:O, s:o}", "body", body, "crc32c", crc_json(crc32c(0, text, strlen(text)))) : NULL;
    if (root) whole = json_print(root, JSON_INDENT(1) | JSON_SORT_KEYS);
    bool ok = whole ? file_put_at(at, whole, strlen(whole)) : error_memory(4096, "a manifest");
    json_decref(root);
    free(text);
    free(whole);
    return ok;
}

json_t *manifest_get(struct file_place at, const char *need) {
    char path[FILE_TEXT], found[16] = "";
    if (!regular_check(at, file_text(at, path))) return NULL;
    json_t *root = json_read_at(at, LARGEST_MANIFEST), *body = json_object_get(root, "body");
    if (!root) return NULL;
    const char *said = json_string_value(json_object_get(root, "crc32c"));
    const char *schema = json_string_value(json_object_get(body, "schema"));
    char *text = json_is_object(body) ? body_text(body) : NULL;
    if (text) snprintf(found, sizeof found, "%08" PRIx32, crc32c(0, text, strlen(text)));
    bool ok = true;
    if (json_is_object(body) && !text) ok = error_memory(4096, "a manifest");
    else if (!said || strcmp(said, found))
        ok = error_set(TL_ERROR_USE, "%s: its checksum is wrong: it is damaged", path);
    else if (!schema || strcmp(schema, need))
        ok = error_set(TL_ERROR_USE, "%s: is of schema \"%s\" (need %s)", path, schema ? schema : "?", need);
    free(text);
    if (ok) json_incref(body);
    json_decref(root);
    return ok ? body : NULL;
}

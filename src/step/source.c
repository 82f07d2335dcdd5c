#include "step/source.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "data/corpus.h"
#include "data/token_file.h"

#define LEAST_TEXT ((int64_t)1 << 18)
#define MOST_TEXT ((int64_t)1 << 26)

int64_t source_stories(const struct settings *s) {
    if (s->stories) return s->stories;
    double tokens = (double)s->steps * (double)s->accum * (double)s->batch * (double)s->seq / (1 - s->val_share) + 4096;
    return tokens < (double)LEAST_TEXT ? LEAST_TEXT : tokens > (double)MOST_TEXT ? MOST_TEXT : (int64_t)tokens;
}

/* Whether a file has these stories, byte for byte: an earlier process may have been another version, and disks
 * corrupt files. */
static bool text_compare(int fd, struct file_place at, const char *text, size_t bytes, size_t from) {
    char piece[1024];
    bool same = true;
    for (size_t done = 0, n; same && done < bytes; done += n) {
        n = bytes - done < sizeof piece ? bytes - done : sizeof piece;
        same = file_read_at(fd, at, piece, n, from + done) && !memcmp(piece, text + done, n);
    }
    return same;
}

static bool stories_compare(int fd, struct file_place at, size_t has, uint64_t seed, int64_t bytes) {
    char story[STORY_MAX];
    bool same = true;
    size_t done = 0;
    for (uint64_t i = 0; same && done < (size_t)bytes; i++) {
        size_t n = tl_corpus_story(seed, i, story, sizeof story, NULL);
        same = n < sizeof story && n <= has - done && text_compare(fd, at, story, n, done);
        done += n;
    }
    return same && done == has;
}

static bool stories_are_there(struct file_place at, uint64_t seed, int64_t bytes, bool *are) {
    enum file_kind kind;
    size_t has;
    *are = false;
    if (!file_expect(at, FILE_REGULAR) || !file_look(at, &kind)) return false;
    if (kind == FILE_ABSENT) return true;
    int fd = file_open_at(at, &has);
    if (fd < 0) return false;
    *are = stories_compare(fd, at, has, seed, bytes);
    file_close(fd);
    return tl_error() == TL_OK;
}

static tl_token_file *stories_in(const struct settings *s, const struct file_folder *folder) {
    struct file_place at = file_in(folder, SOURCE_STORIES);
    uint64_t seed = settings_seed(s, s->seed_data);
    int64_t bytes = source_stories(s);
    bool are = false;
    if (!stories_are_there(at, seed, bytes, &are)) return NULL;
    if (!are && !corpus_write_at(at, seed, (uint64_t)bytes, NULL, NULL)) return NULL;
    return token_file_open_at(at, TL_TOKENS_BYTES);
}

/* In an unnamed file, which is freed with its last descriptor. */
static tl_token_file *stories_apart(const struct settings *s) {
    const char *base = getenv("TMPDIR");
    char path[FILE_TEXT];
    snprintf(path, sizeof path, "%s/tally-stories-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(path)) return error_set(TL_ERROR_IO, "%s: cannot be made: %s", path, strerror(errno)), NULL;
    struct file_folder *folder = file_folder_open(path);
    tl_token_file *file = folder ? stories_in(s, folder) : NULL;
    if (folder) unlinkat(folder->fd, SOURCE_STORIES, 0);
    file_folder_close(folder);
    rmdir(path);
    return file;
}

/* The last val_share of one file is held out. */
static void split(struct source *source, const struct settings *s, int64_t count) {
    int64_t held = (int64_t)(s->val_share * (double)count);
    source->train.first = 0;
    source->train.last = count - held;
    source->held_out = (struct source_part){source->train.file, count - held, held ? count : 0};
    if (!held) source->held_out = (struct source_part){0};
}

static bool part_open(struct source_part *part, const char *path, int64_t vocabulary, tl_token_info *info) {
    part->file = tl_token_file_open(path, TL_TOKENS_AUTO);
    if (!part->file || !tl_token_file_expect(part->file, vocabulary, 0) || !tl_token_file_info(part->file, info))
        return false;
    part->first = 0;
    part->last = info->count;
    return true;
}

static bool files_open(struct source *source, const struct settings *s, int64_t vocabulary) {
    tl_token_info info, held;
    if (!part_open(&source->train, s->data, vocabulary, &info)) return false;
    source->is_bytes = info.format == TL_TOKENS_BYTES || info.vocabulary_hash == TL_BYTES_HASH;
    if (*s->val_data) return part_open(&source->held_out, s->val_data, vocabulary, &held);
    split(source, s, info.count);
    return true;
}

bool source_is_builtin(const struct settings *s) { return !strcmp(s->data, "builtin"); }

/* `file`: of the stories; NULL: they are only counted. */
static bool stories_take(struct source *source, const struct settings *s, tl_token_file *file) {
    tl_token_info info = {.count = source_stories(s)};
    source->is_builtin = source->is_bytes = true;
    source->train.file = file;
    if (file && !tl_token_file_info(file, &info)) return false;
    split(source, s, info.count);
    return true;
}

static bool stories_check(const struct settings *s, int64_t vocabulary) {
    if (vocabulary < 256)
        return error_set(TL_ERROR_USE,
                         "data: the stories need a vocabulary of 256, and the model has %" PRId64 " tokens",
                         vocabulary);
    return !*s->val_data ||
           error_set(TL_ERROR_USE, "val_data: the built-in stories have their own held-out part (use val_share)");
}

static bool take(struct source *source, const struct settings *s, int64_t vocabulary, bool is_price,
                 const struct file_folder *folder) {
    *source = (struct source){0};
    bool ok = source_is_builtin(s) ? stories_check(s, vocabulary) : files_open(source, s, vocabulary);
    if (ok && source_is_builtin(s)) {
        tl_token_file *file = is_price ? NULL : folder ? stories_in(s, folder) : stories_apart(s);
        ok = (file || is_price) && stories_take(source, s, file);
    }
    if (!ok) source_close(source);
    return ok;
}

bool source_open(struct source *source, const struct settings *s, int64_t vocabulary, bool is_price) {
    return take(source, s, vocabulary, is_price, NULL);
}

bool source_open_in(struct source *source, const struct settings *s, int64_t vocabulary,
                    const struct file_folder *folder) {
    return take(source, s, vocabulary, false, folder);
}

void source_close(struct source *source) {
    tl_token_file *train = source->train.file, *held_out = source->held_out.file;
    tl_token_file_close(train);
    if (held_out != train) tl_token_file_close(held_out);
    *source = (struct source){0};
}

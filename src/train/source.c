#include "train/source.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

#define LEAST_TEXT ((int64_t)1 << 18)
#define MOST_TEXT ((int64_t)1 << 26)

/* Enough stories that a run sees none twice, within bounds. A function of the settings alone. */
static int64_t builtin_bytes(const struct settings *s) {
    double tokens = (double)s->steps * (double)s->accum * (double)s->batch * (double)s->seq / (1 - s->val_share) + 4096;
    return tokens < (double)LEAST_TEXT ? LEAST_TEXT : tokens > (double)MOST_TEXT ? MOST_TEXT : (int64_t)tokens;
}

/* Whether a file has these stories, byte for byte: an earlier process may have been another version, and a disk forgets. */
static bool stories_are_there(const char *path, uint64_t seed, int64_t bytes) {
    char story[8192], text[sizeof story];
    FILE *file = fopen(path, "rb");
    bool same = file != NULL;
    int64_t done = 0;
    for (uint64_t i = 0; same && done < bytes; i++) {
        size_t n = tl_corpus_story(seed, i, story, sizeof story, NULL);
        same = n < sizeof story && fread(text, 1, n, file) == n && !memcmp(text, story, n);
        done += (int64_t)n;
    }
    same = same && fgetc(file) == EOF;
    if (file) fclose(file);
    return same;
}

static tl_token_file *builtin_open(const struct settings *s) {
    char path[SETTING_TEXT + 32];
    snprintf(path, sizeof path, "%s/stories.txt", s->out);
    uint64_t seed = settings_seed(s, s->seed_data);
    int64_t bytes = builtin_bytes(s);
    if (!stories_are_there(path, seed, bytes) &&
        !(file_make_folder(s->out) && tl_corpus_write(path, seed, (uint64_t)bytes, NULL, NULL)))
        return NULL;
    return tl_token_file_open(path, TL_TOKENS_BYTES);
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

static bool stories_open(struct source *source, const struct settings *s, int64_t vocabulary, bool is_price) {
    tl_token_info info = {.count = builtin_bytes(s)};
    source->is_builtin = source->is_bytes = true;
    if (vocabulary < 256)
        return error_set(TL_ERROR_USE, "data: the stories are bytes, and the model knows only %" PRId64 " tokens",
                         vocabulary);
    if (!is_price) {
        source->train.file = builtin_open(s);
        if (!source->train.file || !tl_token_file_info(source->train.file, &info)) return false;
    }
    if (*s->val_data) return error_set(TL_ERROR_USE, "val_data: the built-in stories hold out their own (val_share)");
    split(source, s, info.count);
    return true;
}

bool source_open(struct source *source, const struct settings *s, int64_t vocabulary, bool is_price) {
    *source = (struct source){0};
    bool ok =
        strcmp(s->data, "builtin") ? files_open(source, s, vocabulary) : stories_open(source, s, vocabulary, is_price);
    if (!ok) source_close(source);
    return ok;
}

void source_close(struct source *source) {
    tl_token_file *train = source->train.file, *held_out = source->held_out.file;
    tl_token_file_close(train);
    if (held_out != train) tl_token_file_close(held_out);
    *source = (struct source){0};
}

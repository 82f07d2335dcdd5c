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
#include "base/text.h"
#include "data/corpus.h"
#include "data/token_file.h"
#include "step/preference.h"
#include "step/ramp.h"
#include "step/tokens.h"

struct source_part *source_part_at(struct source *source, int i) {
    return i == 0 ? &source->train : i <= source->n_held_out ? &source->held_out[i - 1] : NULL;
}

const char *source_tokens_name(int i) {
#define ROW(name) name,
    static const char *const names[SOURCE_PARTS] = {SOURCE_TOKENS(ROW)};
#undef ROW
    return names[i];
}

#define LEAST_TEXT ((int64_t)1 << 18)
#define MOST_TEXT ((int64_t)1 << 26)

int64_t source_stories(const struct settings *s) {
    if (s->stories) return s->stories;
    double row = (double)settings_window(s);
    double tokens = (double)ramp_batches(s, s->steps) * (double)s->batch * row / (1 - s->val_share) + 4096;
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

/* A folder for files that are deleted when they are closed. NULL: recorded. */
static struct file_folder *apart_open(void) {
    const char *base = getenv("TMPDIR");
    char path[FILE_TEXT];
    snprintf(path, sizeof path, "%s/tally-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(path)) return error_set(TL_ERROR_IO, "%s: cannot be made: %s", path, strerror(errno)), NULL;
    struct file_folder *folder = file_folder_open(path);
    if (!folder) rmdir(path);
    return folder;
}

static void apart_close(struct file_folder *folder) {
    if (folder) unlinkat(folder->fd, SOURCE_STORIES, 0);
    for (int i = 0; folder && i < SOURCE_PARTS; i++) unlinkat(folder->fd, source_tokens_name(i), 0);
    if (folder) rmdir(folder->path);
    file_folder_close(folder);
}

/* The last val_share is held out. */
static void split(struct source *source, const struct settings *s) {
    int64_t count = source->train.last, held = (int64_t)(s->val_share * (double)count);
    source->train.last = count - held;
    source->held_out[0] = (struct source_part){.file = source->train.file, .first = count - held, .last = count};
    if (!held) source->held_out[0] = (struct source_part){0};
    source->n_held_out = held > 0;
}

/* Of conversations and pairs, whole windows are held out: their first token is the last target before them. */
static bool split_windows(struct source *source, const struct settings *s) {
    const int64_t window = settings_window(s), count = source->train.last, n = count / window,
                  held = (int64_t)(s->val_share * (double)n);
    if (s->val_share > 0 && !held)
        return error_set(TL_ERROR_USE,
                         "val_share: %g of %" PRId64 " %s is none (need more data, --val-data, or another --val-share; "
                         "0: nothing is held out)",
                         s->val_share, n, settings_has_preference(s) ? "pairs" : "sequences of conversations");
    if (!held) return true;
    source->n_held_out = 1;
    source->held_out[0] =
        (struct source_part){.file = source->train.file, .first = count - 1 - held * window, .last = count};
    source->train.last = count - held * window;
    return true;
}

/* Before they are written, how many windows rows of JSONL will be is not known: for a price, one is enough. */
static void windows_assume(struct source *source, const struct settings *s) {
    if (!*s->val_data && s->val_share > 0) source->n_held_out = 1;
    struct source_part *part;
    for (int i = 0; i < SOURCE_PARTS && (part = source_part_at(source, i)); i++)
        if (part->last - part->first <= settings_window(s)) part->last = part->first + settings_window(s) + 1;
}

/* Takes a file, which is closed with the source. A text whose tokens are not bytes has to be tokenized. */
static bool part_take(struct source *source, struct source_part *part, tl_token_file *file, int64_t vocabulary) {
    tl_token_info info;
    part->file = file;
    if (!file || !tl_token_file_info(file, &info)) return false;
    part->last = info.count;
    bool is_bytes = info.format == TL_TOKENS_BYTES || info.vocabulary_hash == TL_BYTES_HASH;
    if (!source->tokenizer && is_bytes && !(source->tokenizer = tl_tokenizer_bytes())) return false;
    uint64_t hash = tl_tokenizer_hash(source->tokenizer);
    if (source->has_answers && info.format != TL_TOKENS_BYTES)
        return error_set(TL_ERROR_USE, "%s: %s is a file of tokens (need JSONL of %s)",
                         source->has_pairs ? "preference" : "chat", token_file_path(file),
                         source->has_pairs ? "pairs of answers" : "conversations");
    if (source->has_answers || (info.format == TL_TOKENS_BYTES && hash != TL_BYTES_HASH))
        part->text = file, part->file = NULL;
    else if (!tl_token_file_expect(file, vocabulary, source->is_named ? hash : 0)) return false;
    return true;
}

static bool part_open(struct source *source, struct source_part *part, const char *path, int64_t vocabulary) {
    return part_take(source, part, tl_token_file_open(path, TL_TOKENS_AUTO), vocabulary);
}

bool source_is_builtin(const struct settings *s) { return !strcmp(s->data, "builtin"); }

static bool stories_check(const struct source *source, const struct settings *s, int64_t vocabulary) {
    if (vocabulary < 256 && !source->tokenizer)
        return error_set(TL_ERROR_USE,
                         "data: the stories need a vocabulary of 256, and the model has %" PRId64 " tokens",
                         vocabulary);
    return !*s->val_data ||
           error_set(TL_ERROR_USE, "val_data: the built-in stories have their own held-out part (use val_share)");
}

/* `folder`: NULL: they are only counted. */
static bool stories_open(struct source *source, const struct settings *s, int64_t vocabulary,
                         const struct file_folder *folder) {
    source->is_builtin = true;
    if (!stories_check(source, s, vocabulary)) return false;
    if (folder) return part_take(source, &source->train, stories_in(s, folder), vocabulary);
    source->train.last = source_stories(s);
    return source->tokenizer || (source->tokenizer = tl_tokenizer_bytes());
}

/* Whether document_mask can find where documents begin. A text that is tokenized has no table of them. */
static bool documents_check(const struct source *source, const struct source_part *part, const char *name,
                            const char *path, int64_t vocabulary) {
    tl_token_info info;
    int64_t token = source->document_token;
    if (source->has_answers) return true; /* its tokens will record them */
    const tl_token_file *file = part->text ? part->text : part->file;
    if (token >= vocabulary)
        return error_set(TL_ERROR_USE, "document_token: %" PRId64 " is outside the model's vocabulary of %" PRId64,
                         token, vocabulary);
    if (token >= 0 || part->last == 0) return true;
    if (!part->text && file && tl_token_file_info(file, &info) && info.documents) return true;
    return error_set(
        TL_ERROR_USE,
        "document_mask: %s %.300s does not record where documents begin (give --document-token N, the token "
        "that each begins with, or a token file that `tally tokenize` wrote)",
        name, path);
}

static bool documents_find(struct source *source, const struct settings *s, int64_t vocabulary) {
    bool has_lines = source->is_builtin && source->is_bytes, ok = true;
    struct sets sets;
    source->document_token = s->document_token >= 0 ? s->document_token : has_lines ? '\n' : -1;
    if (!s->document_mask) return true;
    ok = sets_read(&sets, s->val_data) && documents_check(source, &source->train, "data", s->data, vocabulary);
    for (int i = 0; ok && i < source->n_held_out; i++)
        ok = documents_check(source, &source->held_out[i], sets.n ? "val_data" : "data",
                             sets.n ? sets.path[i] : s->data, vocabulary);
    return ok;
}

static bool sets_open(struct source *source, const struct settings *s, int64_t vocabulary) {
    struct sets sets;
    bool ok = sets_read(&sets, s->val_data);
    for (int i = 0; ok && i < sets.n; i++) {
        text_copy(source->held_out_name[i], SETS_NAME, sets.name[i]);
        source->n_held_out = i + 1; /* it is closed, too, if it cannot be used */
        ok = part_open(source, &source->held_out[i], sets.path[i], vocabulary);
    }
    return ok;
}

static bool take(struct source *source, const struct settings *s, int64_t vocabulary,
                 const struct file_folder *folder) {
    *source = (struct source){0};
    if (!tokens_open(s, vocabulary, &source->tokenizer)) return false;
    source->is_named = source->tokenizer != NULL;
    source->has_answers = settings_has_answers(s);
    source->has_pairs = settings_has_preference(s);
    bool ok = source_is_builtin(s) ? stories_open(source, s, vocabulary, folder)
                                   : part_open(source, &source->train, s->data, vocabulary);
    if (ok && *s->val_data) ok = sets_open(source, s, vocabulary);
    else if (ok) split(source, s);
    if (ok && source->has_answers) windows_assume(source, s);
    source->is_bytes =
        !source->has_answers && source->tokenizer && tl_tokenizer_hash(source->tokenizer) == TL_BYTES_HASH;
    ok = ok && documents_find(source, s, vocabulary);
    if (!ok) source_close(source);
    return ok;
}

/* ---- Texts as tokens ---- */

static bool part_write(struct source *source, const struct settings *s, struct source_part *part, struct file_place at,
                       tl_progress_fn progress, void *context) {
    if (!source->has_answers) return tokens_write(source->tokenizer, part->text, at, progress, context);
    return (source->has_pairs ? preference_write : chat_write)(s, source->tokenizer, token_file_path(part->text), at,
                                                               &part->chat, progress, context);
}

static bool part_tokenize(struct source *source, const struct settings *s, struct source_part *part,
                          struct file_place at, bool is_there, tl_progress_fn progress, void *context) {
    tl_token_info info;
    if (!part->text) return true;
    const tl_tokenizer *t = source->tokenizer;
    if (!is_there && !part_write(source, s, part, at, progress, context)) return false;
    part->file = token_file_open_at(at, TL_TOKENS_TALLY);
    if (!part->file || !tl_token_file_info(part->file, &info) ||
        !tl_token_file_expect(part->file, source->has_answers ? chat_vocabulary(t) : tl_tokenizer_size(t),
                              source->has_answers ? chat_hash(t) : tl_tokenizer_hash(t)))
        return false;
    part->first = 0;
    part->last = info.count;
    return true;
}

bool source_tokenize(struct source *source, const struct settings *s, const struct file_folder *folder,
                     const bool is_there[SOURCE_PARTS], tl_progress_fn progress, void *context) {
    bool has_text = source->train.text != NULL;
    struct source_part *part;
    for (int i = 0; i < SOURCE_PARTS && (part = source_part_at(source, i)); i++)
        if (!part_tokenize(source, s, part, file_in(folder, source_tokens_name(i)), is_there[i], progress, context))
            return false;
    if (has_text && !*s->val_data && source->has_answers) return split_windows(source, s);
    if (has_text && !*s->val_data) split(source, s);
    return true;
}

bool source_bytes(const struct source *source, const struct source_part *part, int64_t time, int64_t n,
                  int64_t *bytes) {
    int64_t epoch = (part->last - part->first - 1) / time * time, once = 0, rest = 0;
    *bytes = source->is_bytes ? n : 0;
    if (source->is_bytes || source->has_answers || !source->tokenizer || !part->file || n < 1) return true;
    if (epoch == 0 || n < epoch) epoch = n; /* less than a window: measured by itself */
    if (!tokens_count_bytes(source->tokenizer, part->file, part->first + 1, epoch, &once) ||
        !tokens_count_bytes(source->tokenizer, part->file, part->first + 1, n % epoch, &rest))
        return false;
    *bytes = n / epoch * once + rest;
    return true;
}

bool source_open(struct source *source, const struct settings *s, int64_t vocabulary, bool is_price) {
    static const bool none[SOURCE_PARTS];
    if (is_price) return take(source, s, vocabulary, NULL);
    bool needs_folder = source_is_builtin(s) || tokens_are_written(s);
    struct file_folder *folder = needs_folder ? apart_open() : NULL;
    bool ok = (folder || !needs_folder) && take(source, s, vocabulary, folder);
    if (ok && folder && !source_tokenize(source, s, folder, none, NULL, NULL)) ok = (source_close(source), false);
    apart_close(folder);
    return ok;
}

bool source_open_in(struct source *source, const struct settings *s, int64_t vocabulary,
                    const struct file_folder *folder) {
    return take(source, s, vocabulary, folder);
}

void source_close(struct source *source) {
    tl_token_file *train = source->train.file;
    for (int i = 0; i < source->n_held_out; i++) {
        if (source->held_out[i].file != train) tl_token_file_close(source->held_out[i].file);
        tl_token_file_close(source->held_out[i].text);
    }
    tl_token_file_close(train);
    tl_token_file_close(source->train.text);
    tl_tokenizer_free(source->tokenizer);
    *source = (struct source){0};
}

#include "step/tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/token_file.h"
#include "data/tokenize.h"
#include "step/trainer.h"
#include "text/tokenizer.h"

/* ---- Which tokenizer ---- */

bool tokens_is_file(const char *name) {
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "generation_config.json",
                                        "tekken.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "encoder.json",
                                        "vocab.bpe",
                                        "tokenizer.model"};
    static const char ranks[] = ".tiktoken";
    size_t n = strlen(name), end = sizeof ranks - 1;
    bool is = n > end && !strcmp(name + n - end, ranks);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) is = is || !strcmp(name, names[i]);
    return is;
}

static bool name_look(const char *name, void *has) {
    /* these three say nothing without another file */
    if (tokens_is_file(name) && strcmp(name, "tokenizer_config.json") && strcmp(name, "special_tokens_map.json") &&
        strcmp(name, "generation_config.json"))
        *(bool *)has = true;
    return true;
}

bool tokens_in_folder(const char *folder) {
    bool has = false;
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    struct file_folder *f = tl_error() == TL_OK ? file_folder_open(folder) : NULL;
    if (f) file_list(f, name_look, &has);
    else tl_error_clear();
    file_folder_close(f);
    tl_set_error_policy(policy);
    return has;
}

bool tokens_are_written(const struct settings *s) { return tokens_are_named(s) || settings_has_answers(s); }
bool tokens_are_named(const struct settings *s) { return *s->tokenizer && strcmp(s->tokenizer, "bytes"); }

tl_tokenizer *tokens_named(const char *name) {
    return strcmp(name, "bytes") ? tl_tokenizer_read(name, NULL) : tl_tokenizer_bytes();
}

/* "train:8192": byte-level BPE with that vocabulary, learnt from the data. */
static const char TRAIN[] = "train:";
enum { TRAIN_LEAST = 257, TRAIN_MOST = 1000000 };

static bool is_to_train(const char *name) { return !strncmp(name, TRAIN, sizeof TRAIN - 1); }

bool tokens_are_made(const struct settings *s) { return !strcmp(s->tokenizer, "chars") || is_to_train(s->tokenizer); }

static bool train_size(const char *name, int64_t *n) {
    const char *number = name + sizeof TRAIN - 1;
    char *end;
    *n = strtoll(number, &end, 10);
    return (end != number && !*end && *n >= TRAIN_LEAST && *n <= TRAIN_MOST) ||
           error_set(TL_ERROR_USE, "tokenizer: %s (need train:N with N from %d to %d, such as train:8192)", name,
                     TRAIN_LEAST, TRAIN_MOST);
}

static tl_tokenizer *bpe_train(const struct settings *s, const struct tokens_listener *listener) {
    const char *path = s->data;
    tl_bpe_options options = tl_bpe_defaults();
    if (listener) options.progress = listener->progress, options.context = listener->context;
    return train_size(s->tokenizer, &options.vocabulary) ? tl_tokenizer_train(&path, 1, &options) : NULL;
}

/* From the data, which must be a text. */
static tl_tokenizer *made_open(const struct settings *s, const struct tokens_listener *listener) {
    tl_token_info info;
    if (source_is_builtin(s))
        return error_set(TL_ERROR_USE,
                         "tokenizer: %s needs a text as data, and data is builtin (`tally data make` writes the "
                         "stories to a file)",
                         s->tokenizer),
               NULL;
    const double began = now_s();
    tl_token_file *text = tl_token_file_open(s->data, TL_TOKENS_AUTO);
    tl_tokenizer *t = NULL;
    if (text && tl_token_file_info(text, &info)) {
        if (info.format != TL_TOKENS_BYTES)
            error_set(TL_ERROR_USE, "tokenizer: %s needs a text as data, and %s has tokens (%s)", s->tokenizer, s->data,
                      tl_token_format_name(info.format));
        else if (is_to_train(s->tokenizer)) t = bpe_train(s, listener);
        else t = tl_tokenizer_chars((const char *)token_file_data(text), info.count);
    }
    tl_token_file_close(text);
    if (t)
        log_line("run: tokenizer %s: made from %s, %" PRId64 " tokens, in %.1f s", s->tokenizer, s->data,
                 tl_tokenizer_size(t), now_s() - began);
    return t;
}

bool tokens_open(const struct settings *s, int64_t vocabulary, tl_tokenizer **tokenizer) {
    *tokenizer = NULL;
    if (!*s->tokenizer) return true;
    tl_tokenizer *t = s->ready             ? tokenizer_keep(s->ready)
                      : tokens_are_made(s) ? made_open(s, NULL)
                                           : tokens_named(s->tokenizer);
    if (!t) return false;
    if (vocabulary && tl_tokenizer_size(t) > vocabulary) {
        error_set(TL_ERROR_USE,
                  "tokenizer: %s has %" PRId64 " tokens, and the model a vocabulary of %" PRId64
                  " (need a tokenizer with at most as many%s)",
                  s->tokenizer, tl_tokenizer_size(t), vocabulary,
                  s->vocabulary ? ", or no --vocabulary" : ", or a model without weights");
        tl_tokenizer_free(t);
        return false;
    }
    *tokenizer = t;
    return true;
}

bool tokens_ready(struct settings *s, tl_tokenizer **made, const struct tokens_listener *listener) {
    *made = NULL;
    if (s->ready || !tokens_are_made(s)) return true;
    s->ready = *made = made_open(s, listener);
    return *made != NULL;
}

/* A text that is too short gives fewer tokens than were asked for; the model then has some that never occur. */
bool tokens_vocabulary(const struct settings *s, int64_t *n) {
    tl_tokenizer *t;
    if (is_to_train(s->tokenizer)) return train_size(s->tokenizer, n);
    if (!tokens_open(s, 0, &t)) return false;
    *n = tl_tokenizer_size(t);
    tl_tokenizer_free(t);
    return true;
}

bool tokens_settle(struct settings *s) {
    struct stat info;
    bool is_preset = trainer_has_preset(s);
    bool is_folder = !is_preset && stat(s->model, &info) == 0 && S_ISDIR(info.st_mode);
    if (!*s->tokenizer && is_folder && tokens_in_folder(s->model)) strcpy(s->tokenizer, s->model);
    if (!*s->tokenizer || s->vocabulary || !is_preset) return true;
    return tokens_vocabulary(s, &s->vocabulary);
}

/* ---- Texts to files of tokens ---- */

bool tokens_write(tl_tokenizer *tokenizer, tl_token_file *text, struct file_place to, tl_progress_fn progress,
                  void *context) {
    tl_token_info info;
    int64_t size = tl_tokenizer_size(tokenizer);
    int width = size <= 256 ? 1 : size <= 65536 ? 2 : 4;
    if (!tl_token_file_info(text, &info)) return false;
    tl_token_writer *writer = token_writer_at(to, width, size, tl_tokenizer_hash(tokenizer));
    const char *data = (const char *)token_file_data(text);
    if (writer && tokenize_text(tokenizer, data, (size_t)info.count, writer, token_file_path(text), progress, context))
        return tl_token_writer_commit(writer);
    tl_token_writer_discard(writer);
    return false;
}

enum { PIECE_TOKENS = 1 << 16 };

/* Counts on from *bytes. */
static bool bytes_count(tl_decoder *decoder, const int32_t *ids, int64_t n, int64_t *bytes) {
    size_t more = 0;
    if (!tl_decoder_add(decoder, ids, n, &more)) return false;
    *bytes += (int64_t)more;
    return true;
}

static bool bytes_end(tl_decoder *decoder, bool ok, int64_t *bytes) {
    size_t more = 0;
    ok = ok && tl_decoder_end(decoder, &more);
    *bytes += (int64_t)more;
    tl_decoder_free(decoder);
    return ok;
}

bool tokens_bytes(tl_tokenizer *tokenizer, const int32_t *ids, int64_t n, int64_t *bytes) {
    tl_decoder *decoder = tl_decoder_new(tokenizer, true);
    *bytes = 0;
    return bytes_end(decoder, decoder && bytes_count(decoder, ids, n, bytes), bytes);
}

bool tokens_count_bytes(tl_tokenizer *tokenizer, tl_token_file *file, int64_t from, int64_t n, int64_t *bytes) {
    int32_t *ids = memory_new(PIECE_TOKENS * sizeof *ids);
    tl_decoder *decoder = ids ? tl_decoder_new(tokenizer, true) : NULL;
    bool ok = ids ? decoder != NULL : error_memory(PIECE_TOKENS * sizeof *ids, "tokens");
    *bytes = 0;
    for (int64_t at = 0, k; ok && at < n; at += k) {
        k = n - at < PIECE_TOKENS ? n - at : PIECE_TOKENS;
        ok = tl_token_file_read(file, ids, from + at, k) && bytes_count(decoder, ids, k, bytes);
    }
    memory_free(ids);
    return bytes_end(decoder, ok, bytes);
}

/* ---- Prompts and samples ---- */

bool tokens_of_prompt(tl_tokenizer *tokenizer, const char *prompt, bool has_template, int64_t **ids, int64_t *n) {
    tl_encode_options options = tl_encode_defaults();
    tl_encoding encoding;
    const char *text = *prompt ? prompt : "\n";
    size_t bytes = strlen(text);
    options.special = TL_SPECIAL_ALLOW;
    options.has_template = has_template;
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    bool ok = tl_tokenizer_encode(tokenizer, &text, &bytes, 1, &options, &encoding);
    tl_set_error_policy(policy);
    if (!ok && !*prompt && tl_error() == TL_ERROR_USE) tl_error_clear(), encoding = (tl_encoding){0}, ok = true;
    if (!ok) return false;
    *n = encoding.count ? encoding.count : 1;
    *ids = memory_new((size_t)*n * sizeof **ids);
    if (*ids) **ids = 0;
    for (int64_t i = 0; *ids && i < encoding.count; i++) (*ids)[i] = encoding.ids[i];
    tl_encoding_free(&encoding);
    return *ids || error_memory((size_t)*n * sizeof **ids, "a prompt");
}

/* Also keeps a 0 behind the text, for those who look for its end. */
static bool words_add(struct tokens_words *w, const char *text, size_t bytes) {
    while (text && w->capacity < w->n + bytes + 1)
        if (!memory_grow((void **)&w->text, &w->capacity, w->capacity, 1)) return error_memory(w->n, "sampled text");
    if (!text) return false;
    memcpy(w->text + w->n, text, bytes);
    w->n += bytes;
    w->text[w->n] = 0;
    return true;
}

bool tokens_end(struct tokens_words *w, tl_decoder *decoder) {
    size_t bytes = 0;
    const char *rest = tl_decoder_end(decoder, &bytes);
    return words_add(w, rest, bytes);
}

bool tokens_add(struct tokens_words *w, tl_tokenizer *tokenizer, tl_decoder *decoder, int64_t id) {
    size_t bytes = 0;
    if (!tl_tokenizer_token(tokenizer, id, &bytes)) return tokens_end(w, decoder) && words_add(w, "?", 1);
    const char *text = tl_decoder_add(decoder, &(int32_t){(int32_t)id}, 1, &bytes);
    return words_add(w, text, bytes);
}

static char *bytes_of(tl_tokenizer *tokenizer, const int64_t *ids, int64_t n, size_t *bytes) {
    struct tokens_words w = {0};
    tl_decoder *decoder = tl_decoder_new(tokenizer, false);
    bool ok = decoder && words_add(&w, "", 0);
    for (int64_t i = 0; ok && i < n; i++) ok = tokens_add(&w, tokenizer, decoder, ids[i]);
    ok = ok && tokens_end(&w, decoder);
    tl_decoder_free(decoder);
    *bytes = w.n;
    if (ok) return w.text;
    memory_free(w.text);
    return NULL;
}

void tokens_clean(char *text, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        uint32_t code;
        int length = text[at] ? text_character(text + at, &code) : 0;
        bool is_text = length && (!text_is_control(code) || code == '\n' || code == '\t');
        if (!is_text) memset(text + at, '?', (size_t)(length ? length : 1));
        at += (size_t)(length ? length : 1);
    }
}

char *tokens_text(tl_tokenizer *tokenizer, const int64_t *ids, int64_t n) {
    size_t bytes = 0;
    char *text = bytes_of(tokenizer, ids, n, &bytes);
    if (text) tokens_clean(text, bytes);
    return text;
}

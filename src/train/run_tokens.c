/* run_tokens.c: the tokenizer of a run: its files in the folder and in final/, the tokens of texts, and bytes per
 * token. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/number.h"
#include "data/token_file.h"
#include "step/tokens.h"
#include "text/tokenizer.h"
#include "train/run_parts.h"

/* ---- Texts ---- */

struct telling {
    struct run *run;
    double began_s, told_s;
};

static bool tell(uint64_t done, uint64_t total, void *context) {
    struct telling *t = context;
    const struct run_listener *listener = t->run->listener;
    double now = now_s(), rate = (double)done / (now - t->began_s + 1e-9);
    if (now - t->told_s > 2 && done < total) {
        t->told_s = now;
        log_line("run: tokenizing: %.1f of %.1f MB, %.1f MB/s, %.0f s left", 1e-6 * (double)done, 1e-6 * (double)total,
                 1e-6 * rate, (double)(total - done) / rate);
    }
    t->run->was_stopped = (listener && listener->stop && *listener->stop) || stop_is_asked();
    return !t->run->was_stopped;
}

static void pairs_tell(const struct source_part *part) {
    const struct chat_figures *c = &part->chat;
    log_line("run: %s: %" PRId64 " pairs of answers: %" PRId64 " tokens, of which %" PRId64 " are of answers (%" PRId64
             " pairs were cut, %" PRId64 " have no answer within a sequence and were left out)",
             token_file_path(part->text), c->conversations, c->tokens, c->learned, c->cut, c->dropped);
}

static void part_tell(const struct source_part *part, bool has_pairs, double seconds) {
    tl_token_info text, tokens;
    const struct chat_figures *c = &part->chat;
    if (c->conversations && has_pairs) {
        pairs_tell(part);
        return;
    }
    if (c->conversations) {
        log_line("run: %s: %" PRId64 " conversations are %" PRId64 " sequences: %" PRId64 " tokens, of which %" PRId64
                 " are learned (%" PRId64 " conversations were cut, %" PRId64 " have no answer and were left out)",
                 token_file_path(part->text), c->conversations, c->windows, c->tokens, c->learned, c->cut, c->dropped);
        return;
    }
    if (!part->text || !tl_token_file_info(part->text, &text) || !tl_token_file_info(part->file, &tokens)) return;
    log_line("run: %s: %" PRId64 " bytes are %" PRId64 " tokens (%.2f bytes per token), tokenized in %.1f s",
             token_file_path(part->text), text.count, tokens.count, (double)text.count / (double)tokens.count, seconds);
}

/* The tokens in the folder are used again if the run resumes with what it was made from, and they are whole. */
static bool tokens_look(struct run *r, const struct source_part *part, const char *name, bool *is_there) {
    enum folder_state state;
    *is_there = false;
    if (!part->text || !r->found || *r->changes) return true;
    if (!folder_look(&r->folder, NULL, name, &state)) return false;
    *is_there = state == FOLDER_WHOLE;
    if (!*is_there) log_line("run: %s/%s was missing or damaged: rewritten", r->settings.out, name);
    return true;
}

static bool texts_tokenize(struct run *r) {
    const struct source_part *part;
    bool is_there[SOURCE_PARTS], ok = true;
    for (int i = 0; ok && i < SOURCE_PARTS && (part = source_part_at(&r->source, i)); i++)
        ok = tokens_look(r, part, source_tokens_name(i), &is_there[i]);
    double began = now_s();
    struct telling telling = {r, began, began};
    ok = ok && source_tokenize(&r->source, &r->settings, r->folder.dir, is_there, tell, &telling);
    for (int i = 0; ok && i < SOURCE_PARTS && (part = source_part_at(&r->source, i)); i++) {
        const char *name = source_tokens_name(i);
        if (!part->text || is_there[i]) continue;
        if (!r->found) part_tell(part, r->source.has_pairs, now_s() - began);
        ok = folder_seal(&r->folder, NULL, &name, 1);
    }
    return ok;
}

/* ---- The tokenizer's files ---- */

static int names_of(const struct tokenizer_files *f, const char *names[TOKENIZER_FILES_MOST]) {
    for (int i = 0; i < f->n; i++) names[i] = f->at[i].name;
    return f->n;
}

bool run_tokenizer_put(struct run *r, const char *in) {
    const char *names[TOKENIZER_FILES_MOST];
    int n = names_of(&r->tokenizer, names);
    if (!n) return true;
    struct file_folder *folder = file_folder_in(r->folder.dir, in, true);
    bool ok = folder && tokenizer_files_put(&r->tokenizer, folder);
    file_folder_close(folder);
    return ok && folder_seal(&r->folder, in, names, n);
}

/* A file that was never sealed is none of the run's: older runs have none. */
bool run_tokenizer_look(struct run *r, const char *in, bool *is_whole) {
    *is_whole = true;
    for (int i = 0; i < r->tokenizer.n; i++) {
        enum folder_state state;
        if (!folder_look(&r->folder, in, r->tokenizer.at[i].name, &state)) return false;
        *is_whole = *is_whole && state != FOLDER_DAMAGED;
    }
    return true;
}

static bool files_keep(struct run *r) {
    bool is_whole = false;
    if (!tokenizer_files_read(&r->tokenizer, &r->settings, r->source.tokenizer)) return false;
    if (!tokens_are_named(&r->settings)) return true; /* bytes need no files to be known; final/ has them for others */
    if (r->found && !*r->changes) {
        if (!run_tokenizer_look(r, FOLDER_TOKENIZER, &is_whole)) return false;
        if (!is_whole) log_line("run: %s/%s was missing or damaged: rewritten", r->settings.out, FOLDER_TOKENIZER);
    }
    return is_whole || run_tokenizer_put(r, FOLDER_TOKENIZER);
}

/* ---- The tokenizer itself ---- */

/* The one that the run has made before, from its folder: a resume must not depend on learning the same again. It is
 * there if the newest checkpoint was made with this setting, and its files are unchanged. */
static bool own_open(const struct settings *s, struct folder *f, tl_tokenizer **tokenizer) {
    bool is_run, are_whole;
    if (!folder_peek(f, s->out, &is_run) || !is_run || !folder_look_all(f, FOLDER_TOKENIZER, &are_whole) || !are_whole)
        return tl_error() == TL_OK;
    struct checkpoint *c = checkpoint_open_newest(&f->checkpoints, false);
    json_t *state = c ? json_parse(checkpoint_state(c), NULL) : NULL;
    const char *name = json_string_value(json_object_get(json_object_get(state, "settings"), "tokenizer"));
    char *path = name && !strcmp(name, s->tokenizer) ? file_join(s->out, FOLDER_TOKENIZER) : NULL;
    *tokenizer = path ? tl_tokenizer_read(path, NULL) : NULL;
    if (*tokenizer && !strcmp(s->tokenizer, "chars")) (*tokenizer)->unknown = UNKNOWN_REFUSED;
    memory_free(path);
    json_decref(state);
    checkpoint_close(c);
    return tl_error() == TL_OK;
}

bool run_tokenizer_ready(struct settings *s, tl_tokenizer **made, const struct tokens_listener *listener) {
    struct folder f;
    *made = NULL;
    if (s->ready || !tokens_are_made(s)) return true;
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    bool ok = own_open(s, &f, made);
    folder_close(&f);
    tl_set_error_policy(policy);
    if (!ok && tl_error() == TL_ERROR_MEMORY) return false;
    tl_error_clear(); /* whatever is wrong with that folder, the run will say */
    s->ready = *made;
    return *made || tokens_ready(s, made, listener);
}

static bool learning_tell(bool is_merging, uint64_t done, uint64_t total, void *context) {
    (void)is_merging, (void)done, (void)total;
    struct run *r = context;
    r->was_stopped = r->listener && r->listener->stop && *r->listener->stop;
    return !r->was_stopped;
}

bool run_tokenizer_begin(struct run *r) {
    const bool ok = run_tokenizer_ready(&r->settings, &r->made, &(struct tokens_listener){learning_tell, r});
    r->was_stopped = r->was_stopped || (!ok && stop_is_asked());
    return ok;
}

/* ---- All of it ---- */

bool run_tokens_take(struct run *r) {
    const struct settings *s = &r->settings;
    int64_t n = s->eval_batches * s->batch * settings_window(s), bytes = 0;
    if (!texts_tokenize(r) || !files_keep(r)) return false;
    if (r->source.n_held_out && !source_bytes(&r->source, &r->source.held_out[0], settings_window(s), n, &bytes))
        return false;
    r->bytes_per_token = bytes ? (double)bytes / (double)n : r->source.is_bytes ? 1 : NAN;
    return true;
}

double run_bits_per_byte(const struct run *r, double loss) { return loss / r->bytes_per_token / log(2); }

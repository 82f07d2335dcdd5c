/* preference_file.c: pairs of answers as a file of tokens. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "data/token_file.h"
#include "step/preference.h"

enum { PROMPT, CHOSEN, REJECTED, N_TEXTS };
static const char *const keys[N_TEXTS] = {"prompt", "chosen", "rejected"};

struct pairs {
    const struct settings *settings;
    struct chat_writing writing; /* its form is found when the first pair has messages */
    struct chat_text texts[N_TEXTS];
    struct documents_text joined;
    tl_token_writer *writer;
    struct chat_figures *figures;
    int64_t seq;
    int32_t *window; /* (2,seq), marked */
};

/* ---- The tokens of a pair ---- */

/* A prompt, and an answer behind it (NULL: none), with the tokens around them that the tokenizer's file prescribes. The
 * answer ends with the end of text. */
static bool text_encode(struct pairs *p, const json_t *prompt, const json_t *answer, struct chat_text *to) {
    tl_encode_options o = tl_encode_defaults();
    tl_encoding e;
    const int64_t end = tl_tokenizer_end_of_text(p->writing.tokenizer);
    o.special = TL_SPECIAL_TEXT;
    o.has_template = true;
    to->n = p->joined.n = 0;
    if (!documents_text_add(&p->joined, json_string_value(prompt), json_string_length(prompt)) ||
        (answer && !documents_text_add(&p->joined, json_string_value(answer), json_string_length(answer))))
        return false;
    const char *text = p->joined.n ? p->joined.at : "";
    bool ok = tl_tokenizer_encode(p->writing.tokenizer, &text, &p->joined.n, 1, &o, &e);
    for (int64_t i = 0; ok && i < e.count; i++) ok = chat_id_add(to, e.ids[i], false);
    tl_encoding_free(&e);
    if (!ok || !answer || end < 0 || (to->n && to->ids[to->n - 1] == end)) return ok;
    return chat_id_add(to, end, false);
}

static bool texts_encode(struct pairs *p, const json_t *const row[N_TEXTS]) {
    bool ok = true;
    for (int i = 0; ok && i < N_TEXTS; i++) ok = text_encode(p, row[PROMPT], i ? row[i] : NULL, &p->texts[i]);
    return ok;
}

/* How many messages two conversations begin with alike. */
static size_t common_messages(const json_t *a, const json_t *b) {
    size_t n = 0;
    while (n < json_array_size(a) && n < json_array_size(b) && json_equal(json_array_get(a, n), json_array_get(b, n)))
        n++;
    return n;
}

static bool messages_encode(struct pairs *p, const json_t *const row[N_TEXTS]) {
    struct chat_writing *w = &p->writing;
    const bool is_apart = json_is_array(row[PROMPT]);
    const json_t *prompt = is_apart ? row[PROMPT] : row[CHOSEN];
    const size_t n = is_apart ? json_array_size(prompt) : common_messages(row[CHOSEN], row[REJECTED]);
    bool ok = w->form || (w->form = chat_form_find(settings_choice(p->settings, "preference"), w->tokenizer));
    for (int i = 0; ok && i < N_TEXTS; i++) {
        w->to = &p->texts[i];
        if (i == PROMPT || is_apart) ok = chat_messages(w, prompt, n, i ? row[i] : NULL, i == PROMPT);
        else ok = chat_messages(w, row[i], json_array_size(row[i]), NULL, false);
    }
    return ok;
}

static bool pair_encode(struct pairs *p, const json_t *root) {
    const json_t *row[N_TEXTS];
    for (int i = 0; i < N_TEXTS; i++) row[i] = json_object_get(root, keys[i]);
    for (int i = CHOSEN; i < N_TEXTS; i++)
        if (!json_is_string(row[i]) && !(json_is_array(row[i]) && json_array_size(row[i])))
            return error_set(TL_ERROR_USE, "has no \"%s\" that is a text or an array of messages", keys[i]);
    if (json_is_array(row[CHOSEN]) != json_is_array(row[REJECTED]))
        return error_set(TL_ERROR_USE, "one of \"chosen\" and \"rejected\" is a text, and the other an array of "
                                       "messages (need two of a kind)");
    if (json_is_array(row[CHOSEN])) return messages_encode(p, row);
    if (!json_is_string(row[PROMPT]))
        return error_set(TL_ERROR_USE, "has no \"prompt\" that is a text, as its answers are");
    return texts_encode(p, row);
}

/* ---- The file ---- */

static size_t common_ids(const struct chat_text *a, const struct chat_text *b) {
    size_t n = 0;
    while (n < a->n && n < b->n && a->ids[n] == b->ids[n]) n++;
    return n;
}

/* The first token of a sequence is context whatever it is, since nothing is before it. */
static void sequence_fill(struct pairs *p, const struct chat_text *t, int64_t from, int32_t *to) {
    const int64_t n = (int64_t)t->n < p->seq ? (int64_t)t->n : p->seq;
    for (int64_t i = 0; i < n; i++) {
        const bool is_learned = i > 0 && i >= from;
        to[i] = 2 * t->ids[i] + is_learned;
        p->figures->learned += is_learned;
    }
    for (int64_t i = n; i < p->seq; i++) to[i] = 0;
    p->figures->tokens += n;
}

/* A sequence that is too long loses its end. A pair whose prompt fills it has no answers and is left out. */
static bool pair_take(void *context, const json_t *root) {
    struct pairs *p = context;
    const struct chat_text *t = p->texts;
    if (!pair_encode(p, root)) return false;
    const size_t a = common_ids(&t[PROMPT], &t[CHOSEN]), b = common_ids(&t[PROMPT], &t[REJECTED]), from = a < b ? a : b;
    const bool has_answers = (int64_t)from < p->seq && t[CHOSEN].n > from && t[REJECTED].n > from;
    p->figures->conversations++;
    p->figures->cut += (int64_t)t[CHOSEN].n > p->seq || (int64_t)t[REJECTED].n > p->seq;
    p->figures->dropped += !has_answers;
    if (!has_answers) return true;
    for (int i = CHOSEN; i < N_TEXTS; i++) sequence_fill(p, &t[i], (int64_t)from, p->window + (i - CHOSEN) * p->seq);
    p->figures->windows++;
    return tl_token_writer_add(p->writer, p->window, 2 * p->seq);
}

/* The loader's windows need a token behind them. */
static bool file_finish(const struct pairs *p, const char *path) {
    static const int32_t nothing = 0;
    if (!p->figures->windows)
        return error_set(TL_ERROR_USE, "preference: %s: no pair has two answers that begin within %" PRId64 " tokens",
                         path, p->seq);
    return tl_token_writer_add(p->writer, &nothing, 1);
}

bool preference_write(const struct settings *s, tl_tokenizer *tokenizer, const char *path, struct file_place to,
                      struct chat_figures *figures, tl_progress_fn progress, void *context) {
    const size_t bytes = 2 * (size_t)s->seq * sizeof(int32_t);
    const int64_t size = chat_vocabulary(tokenizer);
    struct pairs p = {
        .settings = s, .writing.tokenizer = tokenizer, .figures = figures, .seq = s->seq, .window = memory_new(bytes)};
    const struct chat_lines lines = {"preference", path, pair_take, &p, progress, context};
    *figures = (struct chat_figures){0};
    bool ok = p.window || error_memory(bytes, "a pair of sequences");
    p.writer = ok ? token_writer_at(to, size <= 65536 ? 2 : 4, size, chat_hash(tokenizer)) : NULL;
    ok = p.writer && chat_lines_read(&lines) && file_finish(&p, path);
    if (ok) ok = tl_token_writer_commit(p.writer);
    else tl_token_writer_discard(p.writer);
    for (int i = 0; i < N_TEXTS; i++) chat_free(&p.texts[i]);
    memory_free(p.writing.text.at);
    memory_free(p.joined.at);
    memory_free(p.window);
    return ok;
}

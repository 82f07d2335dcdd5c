#include "step/chat.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "data/documents.h"
#include "data/token_file.h"

/* ---- Forms ---- */

/* Texts in <...> are markers; {role} stands for the name of the role. What is learned is the content and `end`. */
struct form {
    const char *name, *marker; /* marker: a tokenizer that has it is one of this form */
    const char *first;         /* before the first message */
    const char *before, *end, *after;
    const char *assistant; /* as its templates call it */
    bool has_system, is_trimmed;
};
static const struct form forms[] = {
    {"chatml", "<|im_start|>", "", "<|im_start|>{role}\n", "<|im_end|>", "\n", "assistant", true, false},
    {"llama3", "<|start_header_id|>", "<|begin_of_text|>", "<|start_header_id|>{role}<|end_header_id|>\n\n",
     "<|eot_id|>", "", "assistant", true, true},
    {"gemma", "<start_of_turn>", "<bos>", "<start_of_turn>{role}\n", "<end_of_turn>", "\n", "model", false, true},
    {"zephyr", "<|assistant|>", "", "<|{role}|>\n", "</s>", "\n", "assistant", true, false},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

static const struct form *form_find(const char *name, const tl_tokenizer *tokenizer) {
    bool is_auto = !strcmp(name, "auto");
    for (int i = 0; i < N_FORMS; i++)
        if (is_auto ? tl_tokenizer_find(tokenizer, forms[i].marker, strlen(forms[i].marker)) >= 0
                    : !strcmp(forms[i].name, name))
            return &forms[i];
    error_set(TL_ERROR_USE, "chat: the tokenizer has none of the markers <|im_start|>, <|start_header_id|>, "
                            "<start_of_turn> and <|assistant|> (need a form that you choose: chatml, llama3, gemma or "
                            "zephyr; templates in Jinja are not run)");
    return NULL;
}

uint64_t chat_hash(const tl_tokenizer *tokenizer) {
    return tl_tokenizer_hash(tokenizer) ^ UINT64_C(0x6b72616d74616863);
}

/* ---- One conversation ---- */

struct writing {
    const struct form *form;
    tl_tokenizer *tokenizer;
    struct chat_text *to;
    struct documents_text text; /* that is not encoded yet: nothing but ordinary text between two markers */
    size_t learned_from;        /* of it; its end: nothing */
};

void chat_free(struct chat_text *text) {
    memory_free(text->ids);
    memory_free(text->learned);
    *text = (struct chat_text){0};
}

static bool id_add(struct chat_text *t, int64_t id, bool is_learned) {
    if (t->n == t->capacity) {
        size_t wanted = t->capacity ? 2 * t->capacity : 256;
        int32_t *ids = memory_resize(t->ids, wanted * sizeof *ids);
        if (ids) t->ids = ids;
        bool *learned = ids ? memory_resize(t->learned, wanted * sizeof *learned) : NULL;
        if (!learned) return error_memory(wanted * sizeof *ids, "a conversation");
        t->learned = learned;
        t->capacity = wanted;
    }
    t->ids[t->n] = (int32_t)id;
    t->learned[t->n++] = is_learned;
    return true;
}

/* Encodes the text so far. A token on both sides of where learning begins is learned. */
static bool flush(struct writing *w) {
    tl_encode_options o = tl_encode_defaults();
    tl_encoding e;
    const char *text = w->text.at;
    o.special = TL_SPECIAL_TEXT;
    o.has_offsets = true;
    if (!w->text.n) return true;
    bool ok = tl_tokenizer_encode(w->tokenizer, &text, &w->text.n, 1, &o, &e);
    for (int64_t i = 0; ok && i < e.count; i++)
        ok = id_add(w->to, e.ids[i], (size_t)e.offsets[2 * i + 1] > w->learned_from);
    tl_encoding_free(&e);
    w->text.n = 0;
    return ok;
}

static bool text_add(struct writing *w, const char *text, size_t n) {
    bool ok = documents_text_add(&w->text, text, n);
    w->learned_from = w->text.n;
    return ok;
}

/* A marker that is no token is text by itself. */
static bool marker_add(struct writing *w, const char *marker, size_t n, bool is_learned) {
    int64_t id = tl_tokenizer_find(w->tokenizer, marker, n);
    if (!flush(w)) return false;
    if (id >= 0) return id_add(w->to, id, is_learned);
    bool ok = text_add(w, marker, n);
    if (is_learned) w->learned_from = 0;
    return ok && flush(w);
}

/* A part of a form: markers and texts. */
static bool form_add(struct writing *w, const char *part, const char *role, bool is_learned) {
    char text[160];
    const char *hole = strstr(part, "{role}");
    if (hole) snprintf(text, sizeof text, "%.*s%s%s", (int)(hole - part), part, role, hole + 6);
    else snprintf(text, sizeof text, "%s", part);
    bool ok = true;
    for (const char *at = text; ok && *at;) {
        size_t n = *at == '<' ? strcspn(at, ">") + 1 : strcspn(at, "<");
        ok = *at == '<' ? marker_add(w, at, n, is_learned) : text_add(w, at, n);
        at += n;
    }
    return ok;
}

static void trim(const char **text, size_t *n) {
    static const char blanks[] = " \t\n\r\v\f";
    while (*n && strchr(blanks, **text)) ++*text, --*n;
    while (*n && strchr(blanks, (*text)[*n - 1])) --*n;
}

static bool message_add(struct writing *w, const json_t *message, size_t index) {
    static const char *const roles[] = {"system", "user", "assistant"};
    const char *role = json_string_value(json_object_get(message, "role"));
    const json_t *content = json_object_get(message, "content");
    const char *text = json_string_value(content);
    size_t n = json_string_length(content);
    int kind = 0;
    if (!role || !text)
        return error_set(TL_ERROR_USE, "message %zu: has no \"%s\" that is a text", index + 1,
                         role ? "content" : "role");
    while (kind < 3 && strcmp(roles[kind], role)) kind++;
    if (kind == 3 || (kind == 0 && !w->form->has_system))
        return error_set(TL_ERROR_USE, "message %zu: the form %s has no role \"%.40s\" (need %suser or assistant)",
                         index + 1, w->form->name, role, w->form->has_system ? "system, " : "");
    if (w->form->is_trimmed) trim(&text, &n);
    bool is_learned = kind == 2, ok = form_add(w, w->form->before, is_learned ? w->form->assistant : role, false);
    const size_t from = w->text.n;
    ok = ok && text_add(w, text, n);
    if (is_learned) w->learned_from = from;
    return ok && form_add(w, w->form->end, role, is_learned) && form_add(w, w->form->after, role, false);
}

static bool conversation_add(struct writing *w, const json_t *root) {
    const json_t *messages = json_object_get(root, "messages");
    if (!json_is_array(messages) || !json_array_size(messages))
        return error_set(TL_ERROR_USE, "has no \"messages\" (need an array of objects with role and content)");
    w->to->n = w->text.n = 0;
    bool ok = form_add(w, w->form->first, "", false);
    for (size_t i = 0; ok && i < json_array_size(messages); i++) ok = message_add(w, json_array_get(messages, i), i);
    return ok && flush(w);
}

static bool line_encode(struct writing *w, const char *json) {
    json_error_t problem;
    json_t *root = json_parse(json, &problem);
    if (!root) return error_set(TL_ERROR_USE, "is not JSON: %.120s (column %d)", problem.text, problem.column);
    bool ok = conversation_add(w, root);
    json_decref(root);
    return ok;
}

bool chat_encode(const char *form, tl_tokenizer *tokenizer, const char *json, struct chat_text *to) {
    struct writing w = {form_find(form, tokenizer), tokenizer, to, {0}, 0};
    *to = (struct chat_text){0};
    bool ok = w.form && line_encode(&w, json);
    memory_free(w.text.at);
    return ok;
}

/* ---- Packing ---- */

/* Windows that are not full yet. A conversation goes where the least room is left behind it; if it fits nowhere, the
 * fullest one is written. All that depends on the conversations and their order alone. */
enum { N_OPEN = 64 };
struct packing {
    tl_token_writer *writer;
    struct chat_figures *figures;
    int64_t seq;
    int32_t *marked; /* (N_OPEN,seq) */
    bool *begins;    /* (N_OPEN,seq): a document begins here */
    int64_t used[N_OPEN];
};

static bool window_write(struct packing *p, int k) {
    int32_t *at = p->marked + k * p->seq;
    bool *begins = p->begins + k * p->seq, ok = true;
    for (int64_t i = p->used[k]; i < p->seq; i++) at[i] = 0, begins[i] = i == p->used[k];
    for (int64_t from = 0, to; ok && from < p->seq; from = to) {
        for (to = from + 1; to < p->seq && !begins[to];) to++;
        ok = tl_token_writer_document(p->writer) && tl_token_writer_add(p->writer, at + from, to - from);
    }
    p->figures->windows++;
    p->used[k] = 0;
    return ok;
}

static int window_for(const struct packing *p, int64_t n) {
    int best = -1;
    for (int k = 0; k < N_OPEN; k++)
        if (p->used[k] + n <= p->seq && (best < 0 || p->used[k] > p->used[best])) best = k;
    return best;
}

static int fullest(const struct packing *p) {
    int best = 0;
    for (int k = 1; k < N_OPEN; k++)
        if (p->used[k] > p->used[best]) best = k;
    return best;
}

/* A conversation that is too long loses its end; one with nothing to learn is left out: a micro-batch of such would
 * have no loss. The first token is context whatever it is, since nothing is before it. */
static bool pack(struct packing *p, const struct chat_text *c) {
    int64_t n = (int64_t)c->n < p->seq ? (int64_t)c->n : p->seq, learned = 0;
    for (int64_t i = 1; i < n; i++) learned += c->learned[i];
    p->figures->conversations++;
    p->figures->cut += (int64_t)c->n > p->seq;
    p->figures->dropped += !learned;
    if (!learned) return true;
    int k = window_for(p, n);
    if (k < 0 && !window_write(p, k = fullest(p))) return false;
    int64_t at = k * p->seq + p->used[k];
    for (int64_t i = 0; i < n; i++) {
        p->marked[at + i] = 2 * c->ids[i] + (i > 0 && c->learned[i]);
        p->begins[at + i] = i == 0;
    }
    p->used[k] += n;
    p->figures->tokens += n;
    p->figures->learned += learned;
    return true;
}

/* ---- A file ---- */

static bool lines_write(struct writing *w, struct packing *p, struct documents *d, const char *path, uint64_t bytes,
                        tl_progress_fn progress, void *context) {
    char *line, why[400];
    size_t n;
    uint64_t number;
    for (;;) {
        if (!documents_next_line(d, &line, &n, &number)) return false;
        if (!line) return true;
        tl_policy policy = tl_set_error_policy(TL_RETURN);
        bool ok = line_encode(w, line);
        tl_set_error_policy(policy);
        if (!ok && tl_error() == TL_ERROR_USE) {
            snprintf(why, sizeof why, "%s", tl_error_message());
            tl_error_clear();
            return error_set(TL_ERROR_USE, "chat: %s: line %" PRIu64 ": %s", path, number, why);
        }
        if (!ok || !pack(p, w->to)) return false;
        if (progress && !progress(documents_used(d), bytes, context))
            return error_set(TL_ERROR_USE, "chat: %s: stopped at line %" PRIu64, path, number);
    }
}

static bool windows_finish(struct packing *p, const char *path) {
    static const int32_t nothing = 0;
    bool ok = true;
    for (int k = 0; ok && k < N_OPEN; k++)
        if (p->used[k]) ok = window_write(p, k);
    if (ok && !p->figures->windows)
        return error_set(TL_ERROR_USE, "chat: %s: no conversation has an answer to learn within %" PRId64 " tokens",
                         path, p->seq);
    return ok && tl_token_writer_document(p->writer) && tl_token_writer_add(p->writer, &nothing, 1);
}

static bool packing_begin(struct packing *p) {
    size_t n = (size_t)p->seq * N_OPEN;
    p->marked = memory_new(n * sizeof *p->marked);
    p->begins = memory_new(n * sizeof *p->begins);
    return (p->marked && p->begins) || error_memory(n * sizeof *p->marked, "windows of conversations");
}

bool chat_write(const struct settings *s, tl_tokenizer *tokenizer, const char *path, struct file_place to,
                struct chat_figures *figures, tl_progress_fn progress, void *context) {
    const struct documents_options o = {.format = DOCUMENTS_JSONL};
    struct inputs inputs = {0};
    struct chat_text text = {0};
    struct writing w = {form_find(settings_choice(s, "chat"), tokenizer), tokenizer, &text, {0}, 0};
    struct packing p = {.figures = figures, .seq = s->seq};
    int64_t size = chat_vocabulary(tokenizer);
    *figures = (struct chat_figures){0};
    bool ok = w.form && inputs_add(&inputs, path) && packing_begin(&p);
    struct documents *d = ok ? documents_new(&inputs, &o) : NULL;
    p.writer = d ? token_writer_at(to, size <= 65536 ? 2 : 4, size, chat_hash(tokenizer)) : NULL;
    ok = p.writer && lines_write(&w, &p, d, path, inputs.bytes, progress, context) && windows_finish(&p, path);
    if (ok) ok = tl_token_writer_commit(p.writer);
    else tl_token_writer_discard(p.writer);
    documents_free(d);
    inputs_free(&inputs);
    chat_free(&text);
    memory_free(w.text.at);
    memory_free(p.marked);
    memory_free(p.begins);
    return ok;
}

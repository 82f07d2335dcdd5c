#include "step/chat.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "data/token_file.h"

/* ---- Forms ---- */

/* Texts in <...> are markers; {role} stands for the name of the role. What is learned is the content and `end`. */
struct chat_form {
    const char *name, *marker; /* marker: a tokenizer that has it is one of this form */
    const char *first;         /* before the first message */
    const char *before, *end, *after;
    const char *assistant; /* as its templates call it */
    bool has_system, is_trimmed;
};
static const struct chat_form forms[] = {
    {"chatml", "<|im_start|>", "", "<|im_start|>{role}\n", "<|im_end|>", "\n", "assistant", true, false},
    {"llama3", "<|start_header_id|>", "<|begin_of_text|>", "<|start_header_id|>{role}<|end_header_id|>\n\n",
     "<|eot_id|>", "", "assistant", true, true},
    {"gemma", "<start_of_turn>", "<bos>", "<start_of_turn>{role}\n", "<end_of_turn>", "\n", "model", false, true},
    {"zephyr", "<|assistant|>", "", "<|{role}|>\n", "</s>", "\n", "assistant", true, false},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

const struct chat_form *chat_form_find(const char *name, const tl_tokenizer *tokenizer) {
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

void chat_free(struct chat_text *text) {
    memory_free(text->ids);
    memory_free(text->learned);
    *text = (struct chat_text){0};
}

bool chat_id_add(struct chat_text *t, int64_t id, bool is_learned) {
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
static bool flush(struct chat_writing *w) {
    tl_encode_options o = tl_encode_defaults();
    tl_encoding e;
    const char *text = w->text.at;
    o.special = TL_SPECIAL_TEXT;
    o.has_offsets = true;
    if (!w->text.n) return true;
    bool ok = tl_tokenizer_encode(w->tokenizer, &text, &w->text.n, 1, &o, &e);
    for (int64_t i = 0; ok && i < e.count; i++)
        ok = chat_id_add(w->to, e.ids[i], (size_t)e.offsets[2 * i + 1] > w->learned_from);
    tl_encoding_free(&e);
    w->text.n = 0;
    return ok;
}

static bool text_add(struct chat_writing *w, const char *text, size_t n) {
    bool ok = documents_text_add(&w->text, text, n);
    w->learned_from = w->text.n;
    return ok;
}

/* A marker that is no token is text by itself. */
static bool marker_add(struct chat_writing *w, const char *marker, size_t n, bool is_learned) {
    int64_t id = tl_tokenizer_find(w->tokenizer, marker, n);
    if (!flush(w)) return false;
    if (id >= 0) return chat_id_add(w->to, id, is_learned);
    bool ok = text_add(w, marker, n);
    if (is_learned) w->learned_from = 0;
    return ok && flush(w);
}

/* A part of a form: markers and texts. */
static bool form_add(struct chat_writing *w, const char *part, const char *role, bool is_learned) {
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

static bool message_add(struct chat_writing *w, const json_t *message, size_t index) {
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

bool chat_messages(struct chat_writing *w, const json_t *messages, size_t n, const json_t *more, bool is_asked) {
    w->to->n = w->text.n = 0;
    bool ok = form_add(w, w->form->first, "", false);
    for (size_t i = 0; ok && i < n + json_array_size(more); i++)
        ok = message_add(w, i < n ? json_array_get(messages, i) : json_array_get(more, i - n), i);
    return ok && (!is_asked || form_add(w, w->form->before, w->form->assistant, false)) && flush(w);
}

static bool conversation_add(struct chat_writing *w, const json_t *root) {
    const json_t *messages = json_object_get(root, "messages");
    if (!json_is_array(messages) || !json_array_size(messages))
        return error_set(TL_ERROR_USE, "has no \"messages\" (need an array of objects with role and content)");
    return chat_messages(w, messages, json_array_size(messages), NULL, false);
}

/* ---- Lines ---- */

static bool line_take(const struct chat_lines *lines, const char *text) {
    json_error_t problem;
    json_t *root = json_parse(text, &problem);
    if (!root) return error_set(TL_ERROR_USE, "is not JSON: %.120s (column %d)", problem.text, problem.column);
    bool ok = lines->take(lines->context, root);
    json_decref(root);
    return ok;
}

static bool lines_take(const struct chat_lines *lines, struct documents *d, uint64_t bytes) {
    char *line, why[400];
    size_t n;
    uint64_t number;
    for (;;) {
        if (!documents_next_line(d, &line, &n, &number)) return false;
        if (!line) return true;
        tl_policy policy = tl_set_error_policy(TL_RETURN);
        bool ok = line_take(lines, line);
        tl_set_error_policy(policy);
        if (!ok && tl_error() == TL_ERROR_USE) {
            snprintf(why, sizeof why, "%s", tl_error_message());
            tl_error_clear();
            return error_set(TL_ERROR_USE, "%s: %s: line %" PRIu64 ": %s", lines->setting, lines->path, number, why);
        }
        if (!ok) return false;
        if (lines->progress && !lines->progress(documents_used(d), bytes, lines->progress_context))
            return error_set(TL_ERROR_USE, "%s: %s: stopped at line %" PRIu64, lines->setting, lines->path, number);
    }
}

bool chat_lines_read(const struct chat_lines *lines) {
    const struct documents_options o = {.format = DOCUMENTS_JSONL};
    struct inputs inputs = {0};
    struct documents *d = inputs_add(&inputs, lines->path) ? documents_new(&inputs, &o) : NULL;
    bool ok = d && lines_take(lines, d, inputs.bytes);
    documents_free(d);
    inputs_free(&inputs);
    return ok;
}

static bool encode_take(void *context, const json_t *row) { return conversation_add(context, row); }

bool chat_encode(const char *form, tl_tokenizer *tokenizer, const char *json, struct chat_text *to) {
    struct chat_writing w = {chat_form_find(form, tokenizer), tokenizer, to, {0}, 0};
    *to = (struct chat_text){0};
    bool ok = w.form && line_take(&(struct chat_lines){.take = encode_take, .context = &w}, json);
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

struct packed_lines {
    struct chat_writing writing;
    struct packing packing;
};
static bool row_pack(void *context, const json_t *row) {
    struct packed_lines *l = context;
    return conversation_add(&l->writing, row) && pack(&l->packing, l->writing.to);
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
    struct chat_text text = {0};
    struct packed_lines l = {
        .writing = {chat_form_find(settings_choice(s, "chat"), tokenizer), tokenizer, &text, {0}, 0},
        .packing = {.figures = figures, .seq = s->seq}};
    const struct chat_lines lines = {"chat", path, row_pack, &l, progress, context};
    int64_t size = chat_vocabulary(tokenizer);
    *figures = (struct chat_figures){0};
    bool ok = l.writing.form && packing_begin(&l.packing);
    tl_token_writer *writer = ok ? token_writer_at(to, size <= 65536 ? 2 : 4, size, chat_hash(tokenizer)) : NULL;
    l.packing.writer = writer;
    ok = writer && chat_lines_read(&lines) && windows_finish(&l.packing, path);
    if (ok) ok = tl_token_writer_commit(writer);
    else tl_token_writer_discard(writer);
    chat_free(&text);
    memory_free(l.writing.text.at);
    memory_free(l.packing.marked);
    memory_free(l.packing.begins);
    return ok;
}

/* generate_chat.c: `tally generate --interactive`: type, and the model continues.
 *
 * There is one text. What the user types and what the model writes are its parts, in the order in which they stand on
 * the terminal, with a line break before every line but the first. So the model sees what the user sees.
 *
 * A stop string is cut off the text, and so is the token in which it begins: what is left of that token goes through
 * the tokenizer again, with the next line. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "cli/generate_request.h"
#include "cli/generate_text.h"
#include "cli/interrupt.h"
#include "cli/output.h"

/* ---- Lines of stdin ---- */

/* Read by hand: Ctrl-C must end the wait, and a terminal's line may have any bytes. */
struct lines {
    char *text; /* bytes that were read; text[begin .. n) is not used yet */
    size_t begin, n, capacity;
    bool is_at_end;
};
enum { MOST_LINE = 1 << 20 };
enum line { LINE_READ, LINE_END, LINE_INTERRUPTED, LINE_FAILED };

/* Waits for input; false: a signal came first. It looks every tenth of a second, since a signal that arrives just
 * before the wait begins, or in another thread, does not end the wait. */
static bool input_wait(void) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    while (!is_interrupted)
        if (poll(&input, 1, 100) != 0 && !is_interrupted) return true;
    return false;
}

/* The next line, without its end; valid until the next call. */
static enum line line_read(struct lines *l, char **line) {
    for (size_t looked = 0;;) {
        char *at = l->n ? l->text + l->begin : NULL;
        char *end = at ? memchr(at + looked, '\n', l->n - l->begin - looked) : NULL;
        if (end) {
            *end = 0;
            if (end > at && end[-1] == '\r') end[-1] = 0;
            l->begin += (size_t)(end - at) + 1;
            *line = at;
            return LINE_READ;
        }
        looked = l->n - l->begin;
        if (l->is_at_end && !looked) return LINE_END;
        if (looked > MOST_LINE) return LINE_FAILED;
        if (l->begin) memmove(l->text, l->text + l->begin, looked);
        l->begin = 0, l->n = looked;
        if (!memory_grow((void **)&l->text, &l->capacity, l->n, 1)) return LINE_FAILED;
        bool is_given_up = !l->is_at_end && !input_wait();
        ssize_t n = l->is_at_end || is_given_up ? 0 : read(STDIN_FILENO, l->text + l->n, l->capacity - l->n);
        if (is_given_up || (n < 0 && errno == EINTR)) {
            l->n = 0; /* the terminal has dropped its line too */
            return LINE_INTERRUPTED;
        }
        l->is_at_end = n <= 0;
        if (n <= 0) l->text[l->n++] = '\n'; /* a last line without an end is one */
        else l->n += (size_t)n;
        if (n <= 0 && l->n == 1) return LINE_END;
    }
}

/* ---- The text ---- */

struct chat {
    const struct generate_request *request;
    const struct opened *opened;
    tl_tokenizer *tokenizer;
    tl_session *session;
    int64_t row;              /* -1: there is no text yet */
    int64_t n_texts;          /* that were begun: each has another seed */
    struct tokens_words rest; /* of the text that the session does not have yet */
    int64_t seen;             /* tokens that the model saw in the last step */
    bool is_terminal;         /* both ends are one */
};

static bool rest_add(struct chat *c, const char *text) {
    struct tokens_words *w = &c->rest;
    for (; *text; text++) {
        if (!memory_grow((void **)&w->text, &w->capacity, w->n + 1, 1)) {
            fprintf(stderr, "tally generate: out of memory for the text\n");
            return false;
        }
        w->text[w->n++] = *text;
        w->text[w->n] = 0;
    }
    return true;
}

/* What was typed becomes tokens of the text. */
static bool text_extend(struct chat *c) {
    const struct generate_request *r = c->request;
    bool is_new = c->row < 0;
    int64_t *ids = NULL, n = 0;
    if (!c->rest.n) return true;
    if (!tokens_of_prompt(c->tokenizer, c->rest.text, is_new && !c->opened->is_run, &ids, &n)) return false;
    c->rest.n = 0;
    if (is_new) c->row = tl_session_open(c->session, ids, n, &r->options, (uint64_t)(r->seed + c->n_texts++));
    bool ok = is_new ? c->row >= 0 : tl_session_append(c->session, c->row, ids, n);
    memory_free(ids);
    return ok;
}

/* Says once that the beginning of the text is forgotten. */
static void context_tell(struct chat *c) {
    int64_t seen = tl_session_seen(c->session, c->row), context = tl_model_config_of(c->opened->model)->context;
    if (seen < c->seen)
        fprintf(stderr,
                "\n(the text has filled the model's context of %" PRId64 " tokens; the model now sees the last %" PRId64
                " of its %" PRId64 ": /reset begins a new text)\n",
                context, seen, tl_session_length(c->session, c->row) - 1);
    c->seen = seen;
}

/* Takes the last tokens off the text: those that hold the stop string. What they have before it is typed again. */
static bool stop_cut(struct chat *c, const struct speech *s, const size_t *ends, int64_t n) {
    int64_t keep = n;
    while (keep > 0 && ends[keep - 1] > s->words.n) keep--;
    size_t from = keep ? ends[keep - 1] : 0;
    c->seen = 0; /* fewer than before, and nothing is forgotten */
    return tl_session_cut(c->session, c->row, tl_session_length(c->session, c->row) - (n - keep)) &&
           rest_add(c, s->words.text + from);
}

/* The token that ended the text is not a part of it: the user's next line continues what can be seen. */
static bool eos_cut(struct chat *c) {
    c->seen = 0;
    if (c->is_terminal) fprintf(stderr, "(end of text)\n");
    return tl_session_cut(c->session, c->row, tl_session_length(c->session, c->row) - 1);
}

/* Up to --tokens more tokens. */
static bool text_continue(struct chat *c) {
    const struct generate_request *r = c->request;
    struct speech s = {
        .stops = &r->stops, .tokenizer = c->tokenizer, .is_clean = output_is_terminal(), .is_streamed = true};
    size_t *ends = NULL, capacity = 0; /* of the text, after each token */
    int64_t n = 0, id;
    bool has_eos = false, ok = speech_begin(&s, NULL, 0, false);
    while (ok && n < r->tokens && !s.is_ended && !is_interrupted) {
        ok = memory_grow((void **)&ends, &capacity, (size_t)n, sizeof *ends) && tl_session_step(c->session, &id);
        if (ok) context_tell(c);
        if (ok && (has_eos = ends_have(&r->ends, id))) break;
        ok = ok && speech_add(&s, id);
        if (ok) ends[n++] = s.is_ended ? SIZE_MAX : s.words.n; /* the words have been cut already */
    }
    ok = ok && speech_end(&s) && speech_put(&s, "\n", 1);
    if (ok && has_eos) ok = eos_cut(c);
    else if (ok && s.is_ended) ok = stop_cut(c, &s, ends, n);
    speech_free(&s);
    memory_free(ends);
    return ok;
}

/* ---- Commands ---- */

static const char HELP[] = "Type a text and press Enter: the model continues it. Your next line continues the whole "
                           "text.\n"
                           "An empty line goes on; /reset begins a new text; /quit or Ctrl-D ends; Ctrl-C stops the "
                           "model.\n";

enum reply { REPLY_TEXT, REPLY_NONE, REPLY_QUIT };

static enum reply command_run(struct chat *c, const char *line) {
    if (line[0] != '/' || line[1] == '/') return REPLY_TEXT;
    if (!strcmp(line, "/quit") || !strcmp(line, "/exit")) return REPLY_QUIT;
    if (!strcmp(line, "/help")) fputs(HELP, stderr);
    else if (!strcmp(line, "/reset")) {
        if (c->row >= 0) tl_session_close(c->session, c->row);
        c->row = -1;
        c->rest.n = 0;
        c->seen = 0;
        fprintf(stderr, "(a new text)\n");
    } else {
        fprintf(stderr, "(there is no command %s: /reset, /quit and /help are; //... is a text that begins with /)\n",
                line);
    }
    return REPLY_NONE;
}

/* One line: a part of the text, and what follows it. */
static bool line_take(struct chat *c, const char *line) {
    bool is_first = c->row < 0 && !c->rest.n;
    if (is_first && !*line) return true; /* there is nothing to continue */
    if (*line && !is_first && !rest_add(c, "\n")) return false;
    return rest_add(c, line) && text_extend(c) && text_continue(c);
}

/* An error of the text, such as a character that the tokenizer does not have: told, and the next line is read. */
static bool is_told(struct chat *c) {
    if (tl_error() != TL_ERROR_USE) return false;
    cli_error_of("generate");
    tl_error_clear();
    c->rest.n = 0;
    return true;
}

/* The next line to take; NULL: there is none, and *code is the exit code, or -1 if it was given up. */
static char *line_next(struct chat *c, struct lines *lines, int *code) {
    char *line = NULL;
    if (c->is_terminal) fputs("> ", stdout), fflush(stdout);
    switch (line_read(lines, &line)) {
    case LINE_READ:
        return line;
    case LINE_INTERRUPTED:
        *code = -1;
        break;
    case LINE_END:
        *code = 0;
        break;
    default:
        fprintf(stderr, "tally generate: a line has more than 1 MiB\n"), *code = EXIT_INPUT;
    }
    if (c->is_terminal) putchar('\n');
    return NULL;
}

static int chat_run(struct chat *c, struct lines *lines) {
    const char *first = c->request->prompts.n ? c->request->prompts.at[0] : NULL;
    for (;; first = NULL) {
        int code = -1;
        interrupt_catch();
        const char *line = first ? first : line_next(c, lines, &code);
        if (!line && code >= 0) return code;
        if (!line) continue;
        enum reply reply = first ? REPLY_TEXT : command_run(c, line);
        if (reply == REPLY_QUIT) return 0;
        if (!first && *line == '/') line++; /* the first of two */
        if (reply == REPLY_TEXT && !line_take(c, line) && !is_told(c))
            return tl_error() == TL_OK ? EXIT_IO : cli_error_of("generate");
    }
}

int generate_chat(const struct generate_request *r, const struct opened *o, tl_tokenizer *tokenizer) {
    struct chat c = {.request = r, .opened = o, .tokenizer = tokenizer, .row = -1};
    struct lines lines = {0};
    if (!tokenizer)
        return fprintf(stderr, "tally generate: --interactive needs a tokenizer, and this model has none (give "
                               "--tokenizer PATH)\n"),
               EXIT_INPUT;
    c.is_terminal = isatty(STDIN_FILENO) && output_is_terminal();
    c.session = tl_session_new(o->model, 1, tl_model_config_of(o->model)->context);
    if (!c.session) return cli_error_of("generate");
    if (c.is_terminal) fputs(HELP, stderr);
    int code = chat_run(&c, &lines);
    tl_session_free(c.session);
    memory_free(lines.text);
    memory_free(c.rest.text);
    return code;
}

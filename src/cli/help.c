#include "cli/help.h"

#include <string.h>

#include "base/text.h"
#include "step/settings.h"

static int spaces(const char *at) { return (int)strspn(at, " "); }

static struct help_words words_of(const char *at, int n) {
    while (n && *at == ' ') at++, n--;
    while (n && at[n - 1] == ' ') n--;
    return (struct help_words){at, n};
}

/* "--name VALUE   what it does": two spaces end the left part. */
static void item_split(const char *at, int n, struct help_line *line) {
    int gap = 2;
    while (gap < n && strncmp(at + gap, "  ", 2)) gap++;
    if (gap > n) gap = n;
    line->left = words_of(at, gap);
    line->right = words_of(at + gap, n - gap);
}

struct help_line help_next(struct help_reader *r) {
    struct help_line line = {HELP_END, {r->at, 0}, {r->at, 0}};
    if (!*r->at) return line;
    const char *at = r->at;
    int n = (int)strcspn(at, "\n"), indent = spaces(at);
    r->at += n + (at[n] == '\n');
    line.right = words_of(at, n);
    bool was_usage = r->is_usage, was_item = r->is_item;
    r->is_usage = r->is_item = false;
    if (n == 0) {
        r->is_example = false;
        line.kind = HELP_BLANK;
    } else if (!strncmp(at, "usage: ", 7) || (was_usage && indent == 7)) {
        r->is_usage = true;
        line.kind = HELP_USAGE;
        line.right = words_of(at + 7, n - 7);
    } else if (!strncmp(at, "examples:", 9)) {
        r->is_example = true;
        return help_next(r);
    } else if (r->is_example) {
        line.kind = HELP_EXAMPLE;
        line.right = (struct help_words){at + (indent < 2 ? indent : 2), n - (indent < 2 ? indent : 2)};
    } else if (indent == 2) {
        r->is_item = true;
        line.kind = HELP_ITEM;
        item_split(at, n, &line);
    } else if (indent > 2 && was_item) {
        r->is_item = true;
        line.kind = HELP_MORE;
    } else line.kind = HELP_TEXT;
    return line;
}

/* ---- Options ---- */

bool help_has_settings(const struct command *command) {
    return !strcmp(command->name, "train") || !strcmp(command->name, "plan") || !strcmp(command->name, "fit");
}

static bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
static bool is_name(char c) { return is_lower(c) || (c >= '0' && c <= '9') || c == '-' || c == '_'; }

/* The name of an option that begins here, "-o" or "--out"; 0: none does. */
static int name_length(const char *at, const char *from) {
    if (*at != '-' || (at > from && !strchr(" ,([|", at[-1]))) return 0;
    int n = 1 + (at[1] == '-');
    if (!is_lower(at[n])) return 0;
    while (is_name(at[n])) n++;
    return n > 2 || at[1] != '-' ? n : 0;
}

static struct help_option *option_of(struct help_option *list, int *n, const char *name, int length) {
    for (int i = 0; i < *n; i++)
        if (!strncmp(list[i].name, name, (size_t)length) && !list[i].name[length]) return &list[i];
    if (*n == HELP_OPTIONS || length >= (int)sizeof list->name) return NULL;
    struct help_option *o = &list[(*n)++];
    *o = (struct help_option){.words = {name, 0}, .values = {name, 0}};
    memcpy(o->name, name, (size_t)length);
    return o;
}

/* What follows the name: " cpu|cuda", " FILE", "[=N]". */
static void value_read(struct help_option *o, const char *at, const char *end) {
    if (at < end && *at == '[') o->has_value = true;
    if (at + 1 >= end || *at != ' ' || strchr("-( [|]", at[1])) return;
    const char *value = at + 1, *stop = value;
    while (stop < end && !strchr(" ,])", *stop)) stop++;
    o->has_value = true;
    bool is_list = false, is_plain = true;
    for (const char *c = value; c < stop; c++) {
        is_list = is_list || *c == '|';
        is_plain = is_plain && (is_name(*c) || *c == '|');
    }
    if (is_list && is_plain && !o->values.n) o->values = (struct help_words){value, (int)(stop - value)};
}

static void options_find(struct help_option *list, int *n, struct help_words in, struct help_words meaning) {
    for (const char *at = in.at, *end = in.at + in.n; at < end; at++) {
        int length = name_length(at, in.at);
        if (!length || at + length > end) continue;
        struct help_option *o = option_of(list, n, at, length);
        if (!o) return;
        value_read(o, at + length, end);
        if (!o->words.n) o->words = meaning;
        at += length - 1;
    }
}

static void settings_add(struct help_option *list, int *n) {
    const struct setting_row *row;
    for (int i = 0; (row = settings_row(i)); i++) {
        char name[40] = "--";
        for (size_t k = 0; row->name[k] && k < sizeof name - 3; k++)
            name[k + 2] = row->name[k] == '_' ? '-' : row->name[k], name[k + 3] = 0;
        struct help_option *o = option_of(list, n, name, (int)strlen(name));
        if (!o) return;
        o->has_value = true;
        if (strchr(row->kind, '|')) o->values = (struct help_words){row->kind, (int)strlen(row->kind)};
        if (!*row->kind) o->values = (struct help_words){"true|false", 10};
        if (!o->words.n) o->words = (struct help_words){row->help, (int)strlen(row->help)};
    }
}

int help_options(const struct command *command, struct help_option list[HELP_OPTIONS]) {
    struct help_reader r = {.at = command->help};
    int n = 0;
    for (struct help_line line; (line = help_next(&r)).kind != HELP_END;) {
        const struct help_words none = {line.right.at, 0};
        if (line.kind == HELP_EXAMPLE) continue;
        bool is_option = line.kind == HELP_ITEM && line.left.n && *line.left.at == '-';
        if (line.kind == HELP_ITEM) options_find(list, &n, line.left, is_option ? line.right : none);
        options_find(list, &n, line.right, none);
    }
    if (help_has_settings(command)) settings_add(list, &n);
    struct help_option *help = option_of(list, &n, "--help", 6);
    if (help && !help->words.n) help->words = (struct help_words){"explain the command", 19};
    return n;
}

/* "tally fit [batch|seq] ..." and "tally data make ..." */
static int usage_words(struct help_words usage, const char *name, char words[HELP_WORDS][24], int n) {
    const char *at = usage.at + 6 + strlen(name), *end = usage.at + usage.n;
    if (at >= end) return n;
    while (at < end && strchr(" [", *at)) at++;
    const char *from = at;
    for (; at < end && (is_lower(*at) || *at == '|'); at++) {
    }
    if (at < end && !strchr(" ]", *at)) return n;
    const char *word;
    for (size_t length; n < HELP_WORDS - 1 && text_choice(&from, at, &word, &length);) {
        snprintf(words[n], sizeof words[n], "%.*s", (int)length, word);
        bool is_new = length > 0;
        for (int i = 0; i < n; i++) is_new = is_new && strcmp(words[i], words[n]) != 0;
        n += is_new;
    }
    return n;
}

void help_words(const struct command *command, char words[HELP_WORDS][24]) {
    struct help_reader r = {.at = command->help};
    int n = 0;
    for (struct help_line line; (line = help_next(&r)).kind != HELP_END;)
        if (line.kind == HELP_USAGE) n = usage_words(line.right, command->name, words, n);
    words[n][0] = 0;
}

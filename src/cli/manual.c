/* manual.c: manual pages, made of what `--help` prints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "cli/help.h"
#include "step/settings.h"

/* In man's language a backslash, a hyphen that is a minus, and a point or quote that begins a line are special. */
static void words_print(FILE *to, struct help_words w, bool is_begin) {
    bool was_space = false;
    for (int i = 0; i < w.n; i++) {
        char c = w.at[i];
        if (c == ' ' && was_space) continue;
        was_space = c == ' ';
        if (is_begin && i == 0 && (c == '.' || c == '\'')) fputs("\\&", to);
        if (c == '\\') fputs("\\e", to);
        else if (c == '-') fputs("\\-", to);
        else if (c == '`') fputs("\\(ga", to);
        else if (c == '\'') fputs("\\(aq", to);
        else if (c == '^') fputs("\\(ha", to);
        else if (c == '~') fputs("\\(ti", to);
        else fputc(c, to);
    }
    fputc('\n', to);
}
static void text_print(FILE *to, const char *text) {
    words_print(to, (struct help_words){text, (int)strlen(text)}, true);
}

/* Examples keep their spaces. */
static void example_print(FILE *to, struct help_words w) {
    for (int i = 0; i < w.n; i++) {
        if (i == 0 && (w.at[i] == '.' || w.at[i] == '\'')) fputs("\\&", to);
        if (w.at[i] == '\\') fputs("\\e", to);
        else if (w.at[i] == '-') fputs("\\-", to);
        else fputc(w.at[i], to);
    }
    fputc('\n', to);
}

static void title_print(FILE *to, const char *name, const char *summary) {
    char upper[64] = "TALLY";
    size_t n = 5;
    if (name) upper[n++] = '-';
    for (; name && *name && n < sizeof upper - 1; name++, n++)
        upper[n] = *name >= 'a' && *name <= 'z' ? (char)(*name - 'a' + 'A') : *name;
    fprintf(to, ".TH %s 1 \"\" \"tally %s\" \"Tally\"\n.SH NAME\n", upper, tl_version());
    fprintf(to, "tally%s%s \\- ", name ? "\\-" : "", name ? upper + 6 : "");
    text_print(to, summary);
}

/* How a page is put together from one line of help after another. */
struct page {
    FILE *to;
    bool has_description, has_options, has_examples, has_notes, is_example, is_synopsis, is_after;
};

static void section(struct page *p, bool *has, const char *name) {
    if (p->is_example) fputs(".EE\n", p->to);
    if (p->is_synopsis) fputs(".fi\n", p->to);
    p->is_example = p->is_synopsis = false;
    if (!*has) fprintf(p->to, ".SH %s\n", name);
    else if (p->is_after) fputs(".PP\n", p->to);
    *has = true;
    p->is_after = false;
}

static void line_print(struct page *p, const struct help_line *line) {
    FILE *to = p->to;
    switch (line->kind) {
    case HELP_BLANK:
        p->is_after = true;
        break;
    case HELP_USAGE:
        if (!p->is_synopsis) fputs(".SH SYNOPSIS\n.nf\n", to);
        p->is_synopsis = true;
        words_print(to, line->right, true);
        break;
    case HELP_ITEM:
        if (*line->left.at == '-') section(p, &p->has_options, "OPTIONS");
        else if (!p->has_options) section(p, &p->has_description, "DESCRIPTION");
        fputs(".TP\n\\fB", to);
        words_print(to, line->left, false);
        fputs("\\fR", to);
        words_print(to, line->right, false);
        break;
    case HELP_EXAMPLE:
        if (!p->is_example) section(p, &p->has_examples, "EXAMPLES"), fputs(".EX\n", to);
        p->is_example = true;
        example_print(to, line->right);
        break;
    case HELP_TEXT:
        if (p->has_examples) section(p, &p->has_notes, "NOTES");
        else if (p->has_options) p->is_after ? fputs(".PP\n", to), p->is_after = false : 0;
        else section(p, &p->has_description, "DESCRIPTION");
        words_print(to, line->right, true);
        break;
    default:
        words_print(to, line->right, true);
    }
}

static void settings_print(FILE *to) {
    const struct setting_row *row;
    fputs(".SH SETTINGS\n", to);
    for (int i = 0; (row = settings_row(i)); i++) {
        char left[160];
        if (row->group) fputs(".SS ", to), text_print(to, row->group);
        snprintf(left, sizeof left, "--%s %s", row->name, row->kind);
        fputs(".TP\n\\fB", to);
        text_print(to, left);
        fputs("\\fR", to);
        text_print(to, row->help);
        if (*row->value) fputs("Default: ", to), text_print(to, row->value);
    }
}

static void environment_section(FILE *to) {
    fputs(".SH ENVIRONMENT\n", to);
    for (const struct environment_row *row = environment_rows; row->name; row++) {
        fprintf(to, ".TP\n\\fB%s\\fR=\\fI%s\\fR\n", row->name, row->value);
        text_print(to, row->help);
    }
}

static void command_page(FILE *to, const struct command *c) {
    struct page p = {.to = to};
    struct help_reader r = {.at = c->help};
    title_print(to, c->name, c->summary);
    for (struct help_line line; (line = help_next(&r)).kind != HELP_END;) line_print(&p, &line);
    if (p.is_example) fputs(".EE\n", to);
    if (!strcmp(c->name, "train")) settings_print(to);
    fputs(
        ".SH SEE ALSO\n.BR tally (1),\nwhich lists the commands, the exit codes and the variables of the environment\n",
        to);
}

static void program_page(FILE *to) {
    title_print(to, NULL, "train language models and know the cost beforehand");
    fputs(".SH SYNOPSIS\n.B tally\n.I COMMAND\n[options]\n.SH DESCRIPTION\n", to);
    text_print(to, "Tally trains language models and tells what a run will cost before it starts: every FLOP, every "
                   "byte moved, and the peak memory. `tally COMMAND --help` explains a command.");
    fputs(".SH COMMANDS\n", to);
    for (const struct command *c = commands; c->name; c++) {
        fprintf(to, ".TP\n.BR tally\\-%s (1)\n", c->name);
        text_print(to, c->summary);
    }
    fputs(".SH EXIT STATUS\n", to);
    for (int i = 0; exit_codes[i].text; i++) {
        fprintf(to, ".TP\n.B %d\n", exit_codes[i].code);
        text_print(to, exit_codes[i].text);
    }
    environment_section(to);
}

static void page_print(FILE *to, const struct command *command) {
    if (command) command_page(to, command);
    else program_page(to);
}

void manual_print(const struct command *command) { page_print(stdout, command); }

static bool page_write(const char *folder, const struct command *command) {
    char path[FILE_TEXT], *text = NULL;
    size_t size = 0;
    int n = snprintf(path, sizeof path, "%s/tally%s%s.1", folder, command ? "-" : "", command ? command->name : "");
    if (n < 0 || n >= (int)sizeof path) return error_set(TL_ERROR_USE, "%.40s...: this path is too long", folder);
    FILE *to = open_memstream(&text, &size);
    if (!to) return error_memory(4096, "a manual page");
    page_print(to, command);
    bool ok = fclose(to) == 0 ? file_put(path, text, size) : error_memory(size, "a manual page");
    free(text);
    return ok;
}

int manual_write(const char *folder) {
    bool ok = page_write(folder, NULL);
    for (const struct command *c = commands; ok && c->name; c++) ok = page_write(folder, c);
    return ok ? 0 : cli_error();
}

/* help.h: what `--help` prints, line by line, for whatever else is made of it: manual pages and the completion of
 * shells.
 *
 * The help of a command has this form: lines of usage, paragraphs, items ("  --name VALUE   what it does", on as many
 * lines as needed, the later ones further in), and examples after a line "examples:". */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include <stdbool.h>

#include "cli/cli.h"

enum help_kind {
    HELP_END,
    HELP_BLANK,
    HELP_USAGE,   /* right: "tally train ..." */
    HELP_TEXT,    /* right: a line of a paragraph */
    HELP_ITEM,    /* left and right, either may be empty */
    HELP_MORE,    /* right: goes on with the item before */
    HELP_EXAMPLE, /* right: the whole line */
};

struct help_words {
    const char *at;
    int n;
};
struct help_line {
    enum help_kind kind;
    struct help_words left, right;
};

/* Where one is; begin with the text of a help and zeros. */
struct help_reader {
    const char *at;
    bool is_usage, is_example, is_item; /* of the line before */
};
struct help_line help_next(struct help_reader *reader);

/* An option of a command, as its help or the table of settings names it. */
struct help_option {
    char name[40];            /* "--batch" */
    struct help_words values; /* "a|b|c": what it may be; empty: anything */
    struct help_words words;  /* what it does; may be empty */
    bool has_value;
};
enum { HELP_OPTIONS = 160 };
/* In the order of the help; settings come last. Returns how many there are. */
int help_options(const struct command *command, struct help_option list[HELP_OPTIONS]);
/* The words that may follow the command: "make", "inspect" of `tally data`. "" ends them. */
enum { HELP_WORDS = 16 };
void help_words(const struct command *command, char words[HELP_WORDS][24]);
/* Whether the command takes the settings of a run as options. */
bool help_has_settings(const struct command *command);

/* Variables of the environment (environment.c). NULL ends them. */
struct environment_row {
    const char *name, *value, *help; /* value: "N", "FILE", ... */
};
extern const struct environment_row environment_rows[];
void environment_print(void);

/* Prints the manual page of a command, or of the program (NULL), in man's language. */
void manual_print(const struct command *command);
/* Writes all pages into a folder; the exit code. */
int manual_write(const char *folder);

#endif

/* options.h: flags of a command, one row each, and how they are read. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum option_kind {
    OPTION_END,     /* after the last row */
    OPTION_FLAG,    /* bool: the flag alone is true */
    OPTION_TEXT,    /* const char * */
    OPTION_TEXTS,   /* struct texts: one for every time that the option is given */
    OPTION_NUMBER,  /* double, `least` to `most`; 70e9, 70B, 80GB, 80GiB */
    OPTION_INTEGER, /* int64_t, `least` to `most`; the same forms, when they are whole */
};

enum { TEXTS_MOST = 16 };
struct texts {
    const char *at[TEXTS_MOST];
    int n;
};

struct option {
    const char *name; /* "--devices" */
    enum option_kind kind;
    void *to;
    double least, most;
    bool is_open; /* the least itself is not allowed */
};

/* The options that were given, as they were written. */
enum { GIVEN_MOST = 160 };
struct options_given {
    const char *flags[GIVEN_MOST];
    int n;
};
void given_add(struct options_given *given, const char *flag);
bool given_has(const struct options_given *given, const char *flag);

/* What a command reads depends on its form: `napkin time` and `napkin loss`, `plan` and `plan --inference`. Every form
 * lists its options; another one that is given would have no effect, and is refused. */
struct option_form {
    const char *name;  /* as it is typed behind `tally`; NULL after the last */
    const char *flags; /* "--params --tokens"; NULL: every option */
    const char *but;   /* it also reads the settings of a run, but for these; NULL: it reads none */
};
/* Within a form: options that have no effect beside another one, or without it. */
enum option_relation { OPTION_BESIDE, OPTION_WITHOUT };
struct option_rule {
    const char *form;  /* NULL after the last */
    const char *flags; /* these have no effect ... */
    enum option_relation relation;
    const char *other; /* ... beside this option, or without any of these */
};
/* Of settings of a run that have no effect without another one, for a form that reads them. */
#define OPTION_SETTING_RULES(form)                                               \
    {form, "--momentum --nesterov --muon-steps", OPTION_WITHOUT, "--optimizer"}, \
        {form, "--checkpoint-k", OPTION_WITHOUT, "--checkpointing"}, {           \
        form, "--pp-chunks", OPTION_WITHOUT, "--pp"                              \
    }
/* Whether a list of flags, divided by blanks, has this one. */
bool options_list(const char *flags, const char *flag);
/* 0, or EXIT_USAGE after a message that says which form reads the option, or what it lacks. `rules`: NULL if none. */
int options_check(const struct option_form *forms, const struct option_form *form, const struct option_rule *rules,
                  const struct options_given *given);

/* Reads `--name value`, `--name=value` and words without dashes, at most `n_words` of them (the rest of `words` is
 * not touched). A value that is the name of an option must be written behind `=`. Returns 0, or the exit code after
 * a message on stderr: EXIT_USAGE for an unknown flag or a missing value, EXIT_INPUT for an invalid value. */
int options_read(const char *command, const struct option *table, int argc, char **argv, const char **words,
                 int n_words);
/* The same for a command with rules. */
int options_read_ruled(const char *command, const struct option *table, const struct option_rule *rules, int argc,
                       char **argv, const char **words, int n_words);
/* The same; adds to *given what was given, for options_check. */
int options_read_given(const char *command, const struct option *table, int argc, char **argv, const char **words,
                       int n_words, struct options_given *given);

/* Reads one of these options from argv[0], with its value from argv[1] unless it stands behind `=`; *taken: how many
 * arguments it had. False: argv[0] is none of them. *code: 0, or the exit code after a message. */
bool option_take(const char *command, const struct option *table, char **argv, int left, int *taken, int *code);

/* Reports a missing value, or an unexpected argument; `meant` is the option that it may have been for, or NULL, with
 * another value than the word in option_meant. Returns the exit code. */
int option_lacks(const char *command, const char *flag);
int option_surplus(const char *command, const char *word, const char *meant);
int option_meant(const char *command, const char *word, const char *meant, const char *value);
/* Reports an unknown option and suggests the nearest of `names`. Returns the exit code. */
int option_unknown(const char *command, const char *flag, const char *const *names, int n);

/* "70e9", "70B" (10^9), "80GB", "80GiB", "1.5k". False if it is not such a number, or not finite. */
bool number_read(const char *text, double *value);

#endif

/* cli.h: what the commands share. Results go to stdout, notes to stderr. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdio.h>

#include <jansson.h>

#include "base/text.h" /* bytes_text, count_text */
#include "tally.h"

/* How every command ends; `tally --help` and docs/program.md say it in words. */
enum {
    EXIT_USAGE = 1,     /* the command line: an unknown command or option, a word too many, a value that is missing */
    EXIT_INPUT = 2,     /* a value, a setting or a file's content that is no good; price and receipt that differ */
    EXIT_IO = 3,        /* the system: a file that cannot be read or written, a thread that cannot be started */
    EXIT_MEMORY = 4,    /* out of memory, or of the memory limit */
    EXIT_NUMERIC = 5,   /* train: loss or gradient not finite */
    EXIT_NO_FIT = 6,    /* fit: nothing fits */
    EXIT_OTHERS = 7,    /* another process of the launch failed: comm/watch.h */
    EXIT_AGAIN = 75,    /* train: saved; the same command resumes */
    EXIT_STOPPED = 130, /* generate, data, tokenizer, plan: Ctrl-C; tokenize: saved, the same command continues */
};

struct settings;
struct option;

struct command {
    const char *name, *summary, *help;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
};

/* main.c: every command, and every exit code in words; a NULL name or text ends them. */
extern const struct command commands[];
struct exit_code {
    int code;
    const char *text;
};
extern const struct exit_code exit_codes[];

/* In the order of main.c's table; what `--help` says of each. */
int cmd_train(int argc, char **argv);
int cmd_launch(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_fit(int argc, char **argv);
int cmd_sweep(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_runs(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_watch(int argc, char **argv);
int cmd_ops(int argc, char **argv);
int cmd_napkin(int argc, char **argv);
int cmd_roofline(int argc, char **argv);
int cmd_calibrate(int argc, char **argv);
int cmd_devices(int argc, char **argv);
int cmd_dtypes(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_tokenizer(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_data(int argc, char **argv);
int cmd_completion(int argc, char **argv);
extern const char help_report[], help_watch[], help_runs[], help_compare[], help_completion[];
extern const char help_train[], help_launch[], help_plan[], help_fit[], help_sweep[], help_generate[], help_eval[],
    help_diff[], help_ops[], help_napkin[], help_roofline[], help_calibrate[], help_devices[], help_dtypes[],
    help_export[], help_inspect[], help_tokenizer[], help_tokenize[], help_data[];

/* A flag that is a setting of a run: --lr 1e-3, --lr=1e-3, --weight-decay 0; a truth alone is true; --config FILE
 * sets many. *taken: how many arguments it had. 0, or the exit code after words on stderr; a flag that is no setting
 * is unknown beside the nearest of the settings and of `table`. */
/* Whether a flag is a setting's, or --config. */
bool settings_has_flag(const char *flag);
int settings_flag(struct settings *s, const char *command, const struct option *table, char **argv, int left,
                  int *taken);

/* Says the pending error on stderr, after "tally: " or "tally COMMAND: "; the exit code that belongs to it. */
/* ", of which 12,879,925,248 active" behind the number of a model's parameters: those that a token meets; "" if it has
 * no experts. Room for 64. */
const char *active_text(const tl_model_config *c, char *buffer);
/* "4,096 parameters of adapters, 0.1 % of the model's; the model is frozen". TRAINED_TEXT bytes. */
enum { TRAINED_TEXT = 128 };
const char *trained_text(int64_t n_trained, int64_t n_parameters, bool has_lora, char *buffer);
int cli_error(void);
int cli_error_of(const char *command);
int cli_error_code(void); /* the code alone */

/* The device that a command measures, which must compute: meta is refused. NULL, after words on stderr: *code is the
 * exit code. */
tl_device *cli_device_measured(const char *command, const char *name, int *code);

/* Prints a value as JSON and frees it; the exit code. NULL is a lack of memory. */
int cli_json(json_t *value);

#endif

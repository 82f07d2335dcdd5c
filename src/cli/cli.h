/* cli.h: what the commands share. Results go to stdout, notes to stderr. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdio.h>

#include <jansson.h>

#include "base/text.h" /* bytes_text, count_text */
#include "tally.h"

enum { EXIT_USAGE = 1, EXIT_INPUT = 2, EXIT_IO = 3, EXIT_MEMORY = 4 };

struct command {
    const char *name, *summary, *help;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
};

int cmd_train(int argc, char **argv);
extern const char help_train[];
int cmd_generate(int argc, char **argv);
extern const char help_generate[];
int cmd_eval(int argc, char **argv);
extern const char help_eval[];
int cmd_demo(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_ops(int argc, char **argv);

int cmd_dtypes(int argc, char **argv);
extern const char help_dtypes[];

int cmd_inspect(int argc, char **argv);
extern const char help_inspect[];

int cmd_data(int argc, char **argv);
extern const char help_data[];

int cmd_napkin(int argc, char **argv);
extern const char help_napkin[];

int cmd_devices(int argc, char **argv);
extern const char help_devices[];

extern const char help_demo[], help_diff[], help_ops[];

/* Says the pending error on stderr; the exit code that belongs to it. */
int cli_error(void);

/* Prints a value as JSON and frees it; the exit code. NULL is a lack of memory. */
int cli_json(json_t *value);

#endif

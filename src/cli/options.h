/* options.h: a command's flags, as a table. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* One flag; the one pointer that is set says what it takes: "--tokens 100", "--tokens=100", and a truth alone. */
struct option {
    const char *name; /* with its dashes */
    const char **text;
    int64_t *number;
    double *real;
    bool *truth;
    double least, most; /* of numbers; both 0: no bounds */
};

/* Reads argv[1] on. What is wrong is said on stderr, with the nearest flag there is. False: exit with EXIT_USAGE. */
bool options_read(const char *command, const struct option *table, int n, int argc, char **argv);

#endif

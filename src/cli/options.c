#include "cli/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define MAX_OPTIONS 64

static bool refuse(const char *command, const char *flag, const char *problem) {
    fprintf(stderr, "tally %s: %s%s; see `tally %s --help`\n", command, flag, problem, command);
    return false;
}

static bool no_such_option(const char *command, const struct option *table, int n, const char *flag) {
    const char *known[MAX_OPTIONS];
    for (int i = 0; i < n && i < MAX_OPTIONS; i++) known[i] = table[i].name;
    const char *near = text_nearest(flag, known, n < MAX_OPTIONS ? n : MAX_OPTIONS);
    fprintf(stderr, "tally %s: there is no option %s%s%s%s; see `tally %s --help`\n", command, flag,
            near ? ", did you mean " : "", near ? near : "", near ? "?" : "", command);
    return false;
}

static bool value_set(const struct option *o, const char *value) {
    bool is_bounded = o->least != 0 || o->most != 0;
    char *end;
    errno = 0;
    if (o->text) return *o->text = value, true;
    double x = o->number ? (double)(*o->number = strtoll(value, &end, 10)) : (*o->real = strtod(value, &end));
    return *value && !*end && !errno && (!is_bounded || (x >= o->least && x <= o->most));
}

static bool wrong_value(const char *command, const struct option *o, const char *value) {
    fprintf(stderr, "tally %s: %s: \"%s\" is not %s from %g to %g; see `tally %s --help`\n", command, o->name, value,
            o->number ? "a whole number" : "a number", o->least, o->most, command);
    return false;
}

bool options_read(const char *command, const struct option *table, int n, int argc, char **argv) {
    for (int a = 1; a < argc; a++) {
        const char *equals = strchr(argv[a], '=');
        size_t length = equals ? (size_t)(equals - argv[a]) : strlen(argv[a]);
        int k = 0;
        while (k < n && (strncmp(argv[a], table[k].name, length) || table[k].name[length])) k++;
        if (k == n) return no_such_option(command, table, n, argv[a]);
        if (table[k].truth) {
            if (equals) return refuse(command, table[k].name, " takes no value");
            *table[k].truth = true;
            continue;
        }
        const char *value = equals ? equals + 1 : ++a < argc ? argv[a] : NULL;
        if (!value) return refuse(command, table[k].name, " needs a value");
        if (!value_set(&table[k], value)) return wrong_value(command, &table[k], value);
    }
    return true;
}

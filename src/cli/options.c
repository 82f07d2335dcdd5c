#include "cli/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/near.h"

bool number_read(const char *text, double *value) {
    static const struct {
        const char *name;
        double factor;
    } suffixes[] = {{"", 1},       {"k", 1e3},       {"K", 1e3},          {"M", 1e6},
                    {"G", 1e9},    {"B", 1e9},       {"T", 1e12},         {"P", 1e15},
                    {"kB", 1e3},   {"MB", 1e6},      {"GB", 1e9},         {"TB", 1e12},
                    {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824}, {"TiB", 1099511627776}};
    char *end;
    /* no hexadecimal numbers, no words for infinity, no blanks: what begins a number here is a digit, a sign or a
     * point */
    if (!*text || !strchr("0123456789+-.", *text) || strpbrk(text, "xXnN")) return false;
    double number = number_parse(text, &end);
    for (size_t i = 0; end != text && i < sizeof suffixes / sizeof *suffixes; i++)
        if (!strcmp(end, suffixes[i].name)) {
            *value = number * suffixes[i].factor;
            return isfinite(*value);
        }
    return false;
}

static int value_bad(const char *command, const struct option *o, const char *value) {
    char shown[64];
    fprintf(stderr, "tally %s: %s is \"%s\" (need a %s %s %g", command, o->name, text_show(shown, sizeof shown, value),
            o->kind == OPTION_INTEGER ? "whole number" : "number", o->is_open ? "above" : "of at least", o->least);
    if (o->most < 1e30) fprintf(stderr, " and at most %g", o->most);
    fprintf(stderr, ")\n");
    return EXIT_INPUT;
}

/* Digits alone: every one counts, also where a double would round. */
static bool digits_read(const char *text, int64_t *value) {
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return !errno && *text && strspn(text, "0123456789") == (size_t)(end - text) && !*end;
}

static int value_take(const char *command, const struct option *o, const char *value) {
    double number;
    int64_t whole;
    if (o->kind == OPTION_TEXT) {
        *(const char **)o->to = value;
        return 0;
    }
    if (o->kind == OPTION_TEXTS) {
        struct texts *list = o->to;
        if (list->n < TEXTS_MOST) return list->at[list->n++] = value, 0;
        fprintf(stderr, "tally %s: %s is given more than %d times\n", command, o->name, TEXTS_MOST);
        return EXIT_INPUT;
    }
    if (o->kind == OPTION_INTEGER && digits_read(value, &whole) && (double)whole >= o->least &&
        (double)whole <= o->most) {
        *(int64_t *)o->to = whole;
        return 0;
    }
    if (!number_read(value, &number) || !(number >= o->least && number <= o->most) ||
        (o->is_open && number == o->least) ||
        (o->kind == OPTION_INTEGER && (number != floor(number) || fabs(number) > 9007199254740992.0)))
        return value_bad(command, o, value);
    if (o->kind == OPTION_INTEGER) *(int64_t *)o->to = (int64_t)number;
    else *(double *)o->to = number;
    return 0;
}

int option_unknown(const char *command, const char *flag, const char *const *names, int n) {
    char shown[64], name[64], meant[TEXT_MEANT];
    const char *words, *found;
    /* -lr, --lr: one dash or two */
    snprintf(name, sizeof name, "%s%.*s", strncmp(flag, "--", 2) ? "-" : "", (int)strcspn(flag, "="), flag);
    found = near_option(command, name, names, n, &words);
    for (int i = 0; i < n && !found; i++)
        if (near_same(names[i], name)) found = names[i];
    if (!found && !words) found = text_nearest(name, names, n);
    fprintf(stderr, "tally %s: there is no option %s%s%s%s (see `tally %s --help`)\n", command,
            text_show(shown, sizeof shown, flag), text_meant(meant, found), words ? ": " : "", words ? words : "",
            command);
    return EXIT_USAGE;
}

int option_lacks(const char *command, const char *flag) {
    fprintf(stderr, "tally %s: %s needs a value (see `tally %s --help`)\n", command, flag, command);
    return EXIT_USAGE;
}

int option_surplus(const char *command, const char *word, const char *meant) {
    return option_meant(command, word, meant, word);
}

int option_meant(const char *command, const char *word, const char *meant, const char *value) {
    char shown[64], as[64];
    fprintf(stderr, "tally %s: unexpected argument \"%s\"", command, text_show(shown, sizeof shown, word));
    const char *quote = value[strcspn(value, " ")] ? "\"" : "";
    if (meant) fprintf(stderr, ", did you mean %s %s%s%s?", meant, quote, text_show(as, sizeof as, value), quote);
    fprintf(stderr, " (see `tally %s --help`)\n", command);
    return EXIT_USAGE;
}

static int unknown(const char *command, const struct option *table, const char *flag) {
    const char *names[64];
    int n = 0;
    for (; table[n].kind != OPTION_END && n < 64; n++) names[n] = table[n].name;
    return option_unknown(command, flag, names, n);
}

/* The option that an argument names, up to its '='; the end of the table if none. */
static const struct option *find(const struct option *table, const char *argument) {
    while (table->kind != OPTION_END && !near_same(table->name, argument)) table++;
    return table;
}

bool option_take(const char *command, const struct option *table, char **argv, int left, int *taken, int *code) {
    const struct option *o = find(table, argv[0]);
    const char *equals = strchr(argv[0], '='), *value = equals ? equals + 1 : left > 1 ? argv[1] : NULL;
    *taken = 1;
    *code = 0;
    if (o->kind == OPTION_END || (o->kind == OPTION_FLAG && equals)) return false;
    if (o->kind == OPTION_FLAG) return *(bool *)o->to = true;
    bool is_option = value && !equals && find(table, value)->kind != OPTION_END; /* --out --json */
    *taken = equals ? 1 : 2;
    *code = !value || is_option ? option_lacks(command, o->name) : value_take(command, o, value);
    return true;
}

int options_read(const char *command, const struct option *table, int argc, char **argv, const char **words,
                 int n_words) {
    return options_read_ruled(command, table, NULL, argc, argv, words, n_words);
}

int options_read_given(const char *command, const struct option *table, int argc, char **argv, const char **words,
                       int n_words, struct options_given *given) {
    int n = 0, code = 0;
    for (int i = 1, taken; !code && i < argc; i += taken) {
        if (option_take(command, table, argv + i, argc - i, &taken, &code)) { /* -o may be one */
            given_add(given, argv[i]);
            continue;
        }
        bool is_flag = argv[i][0] == '-' && (argv[i][1] == '-' || text_is_letter(argv[i][1]));
        if (is_flag) return unknown(command, table, argv[i]);
        if (n >= n_words) return option_surplus(command, argv[i], NULL);
        words[n++] = argv[i];
    }
    return code;
}

/* ---- Used, or refused ---- */

bool given_has(const struct options_given *given, const char *flag) {
    for (int i = 0; i < given->n; i++)
        if (near_same(given->flags[i], flag)) return true;
    return false;
}

/* There are fewer options than GIVEN_MOST, and each counts once. */
void given_add(struct options_given *given, const char *flag) {
    if (!given_has(given, flag) && given->n < GIVEN_MOST) given->flags[given->n++] = flag;
}

/* The next of some flags that are divided by blanks; false: there is none. */
static bool flag_next(const char **at, char flag[48]) {
    *at += strspn(*at, " ");
    const size_t n = strcspn(*at, " ");
    snprintf(flag, 48, "%.*s", (int)n, *at);
    *at += n;
    return n > 0;
}

bool options_list(const char *flags, const char *wanted) {
    char flag[48];
    while (flag_next(&flags, flag))
        if (near_same(flag, wanted)) return true;
    return false;
}

static bool has_any(const struct options_given *given, const char *flags) {
    char flag[48];
    while (flag_next(&flags, flag))
        if (given_has(given, flag)) return true;
    return false;
}

static int rule_refuse(const struct option_rule *rule, const char *flag) {
    char other[48];
    const char *at = rule->other;
    fprintf(stderr, "tally %s: %s has no effect %s", rule->form, flag,
            rule->relation == OPTION_BESIDE ? "beside" : "without");
    for (int n = 0; flag_next(&at, other); n++) fprintf(stderr, "%s %s", n ? " or" : "", other);
    fprintf(stderr, " (see `tally %.*s --help`)\n", (int)strcspn(rule->form, " "), rule->form);
    return EXIT_USAGE;
}

static bool reads(const struct option_form *form, const char *flag) {
    return !form->flags || options_list(form->flags, flag) ||
           (form->but && settings_has_flag(flag) && !options_list(form->but, flag));
}

static int form_refuse(const struct option_form *forms, const struct option_form *form, const char *given) {
    int n = 0;
    fprintf(stderr, "tally %s: %.*s has no effect here (", form->name, (int)strcspn(given, "="), given);
    for (; forms->name; forms++)
        if (reads(forms, given)) fprintf(stderr, "%s`tally %s`", n++ ? ", " : "it is for ", forms->name);
    if (!n) fprintf(stderr, "see `tally %.*s --help`", (int)strcspn(form->name, " "), form->name);
    fprintf(stderr, ")\n");
    return EXIT_USAGE;
}

int options_check(const struct option_form *forms, const struct option_form *form, const struct option_rule *rules,
                  const struct options_given *given) {
    char flag[48];
    for (int i = 0; i < given->n; i++)
        if (!reads(form, given->flags[i])) return form_refuse(forms, form, given->flags[i]);
    for (; rules && rules->form; rules++) {
        if (strcmp(rules->form, form->name) || has_any(given, rules->other) != (rules->relation == OPTION_BESIDE))
            continue;
        for (const char *at = rules->flags; flag_next(&at, flag);)
            if (given_has(given, flag)) return rule_refuse(rules, flag);
    }
    return 0;
}

int options_read_ruled(const char *command, const struct option *table, const struct option_rule *rules, int argc,
                       char **argv, const char **words, int n_words) {
    const struct option_form forms[] = {{command, NULL, NULL}, {NULL, NULL, NULL}};
    struct options_given given = {.n = 0};
    int code = options_read_given(command, table, argc, argv, words, n_words, &given);
    return code ? code : options_check(forms, forms, rules, &given);
}

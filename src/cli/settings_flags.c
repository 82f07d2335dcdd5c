/* settings_flags.c: the settings of a run as flags, for every command that takes them. */
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "step/settings.h"

/* The flag's name as the table spells it. `--checkpoint` is short for a name that is long. Returns what follows "=",
 * or NULL. */
static const char *flag_name(const char *flag, char *name, size_t size) {
    const char *equals = strchr(flag, '=');
    size_t length = equals ? (size_t)(equals - flag) : strlen(flag);
    if (length >= size) length = size - 1;
    for (size_t i = 0; i < length; i++) name[i] = flag[i] == '-' ? '_' : flag[i];
    name[length] = 0;
    if (!strcmp(name, "checkpoint")) snprintf(name, size, "checkpointing");
    return equals ? equals + 1 : NULL;
}

static const struct setting_row *row_of(const char *name) {
    const struct setting_row *row;
    for (int i = 0; (row = settings_row(i)); i++)
        if (!strcmp(row->name, name)) return row;
    return NULL;
}

/* A name that is neither an option nor a setting, beside the nearest of both. */
static int unknown(const char *command, const struct option *table, const char *flag) {
    const char *names[128];
    char spelled[128][40];
    int n = 0;
    for (; table->kind != OPTION_END && n < 64; table++) names[n++] = table->name;
    names[n++] = "--config";
    const struct setting_row *row;
    for (int i = 0; (row = settings_row(i)) && n < 128; i++, n++) {
        snprintf(spelled[n], sizeof spelled[n], "--%s", row->name);
        names[n] = spelled[n];
    }
    return option_unknown(command, flag, names, n);
}

/* A word without dashes: "lr=3e-4" is a setting, "train.txt" a file of data, anything else a model. */
static int surplus(const char *command, const char *word) {
    char name[64], meant[128];
    const char *value = flag_name(word, name, sizeof name), *dot = strrchr(word, '.');
    static const char *const texts[] = {".txt", ".bin", ".tok", ".jsonl", ".gz", ".zst", ".npy"};
    if (value && row_of(name)) {
        snprintf(meant, sizeof meant, "--%.*s", (int)strcspn(word, "="), word);
        return option_meant(command, word, meant, value);
    }
    for (size_t i = 0; dot && i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(dot, texts[i])) return option_surplus(command, word, "--data");
    return option_surplus(command, word, "--model");
}

bool settings_has_flag(const char *flag) {
    char name[64];
    if (strncmp(flag, "--", 2)) return false;
    flag_name(flag + 2, name, sizeof name);
    return row_of(name) || !strcmp(name, "config");
}

int settings_flag(struct settings *s, const char *command, const struct option *table, char **argv, int left,
                  int *taken) {
    char name[64];
    const char *flag = argv[0];
    *taken = 1;
    if (flag[0] == '-' && flag[1] != '-') return unknown(command, table, flag);
    if (strncmp(flag, "--", 2)) return surplus(command, flag);
    const char *value = flag_name(flag + 2, name, sizeof name);
    const struct setting_row *row = row_of(name);
    bool is_file = !strcmp(name, "config"), is_truth = row && !*row->kind;
    if (!row && !is_file) return unknown(command, table, flag);
    if (!value && is_truth && (left < 2 || !strncmp(argv[1], "--", 2))) value = "true";
    if (!value && left < 2) return option_lacks(command, flag);
    if (!value) value = argv[1], *taken = 2;
    bool ok = is_file ? settings_read(s, value) : settings_set_flag(s, name, value);
    return ok ? 0 : cli_error_of(command);
}

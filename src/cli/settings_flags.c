/* settings_flags.c: the settings of a run as flags, for every command that takes them. */
#include <string.h>

#include "cli/cli.h"
#include "train/settings.h"

/* The flag's name as the table spells it. `--checkpoint` is short for a name that is long. Returns what follows "=", or NULL. */
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

bool settings_has(const char *flag) {
    char name[64];
    flag_name(flag + 2, name, sizeof name);
    return row_of(name) != NULL;
}

int settings_flag(struct settings *s, char **argv, int left) {
    char name[64];
    const char *value = flag_name(argv[0] + 2, name, sizeof name);
    const struct setting_row *row = row_of(name);
    bool is_truth = row && !*row->kind;
    if (value) return settings_set(s, name, value);
    if (is_truth && (left < 2 || !strncmp(argv[1], "--", 2))) return settings_set(s, name, "true");
    if (left < 2) return settings_set(s, name, ""); /* a text may be empty; otherwise the error says what it needs */
    return settings_set(s, name, argv[1]) ? 2 : 0;
}

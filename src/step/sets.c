#include "step/sets.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"

/* Letters, digits, "_" and "-" before "=". */
static size_t name_length(const char *text) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const size_t n = strspn(text, allowed);
    return text[n] == '=' ? n : 0;
}

bool sets_is_named(const char *text) { return name_length(text) > 0; }

/* Cuts the item into name and path. */
static bool set_add(struct sets *sets, char *item, size_t n) {
    const size_t name = name_length(item);
    item[n] = 0;
    if (!name || name == n - 1)
        return error_set(TL_ERROR_USE, "val_data: \"%.120s\" is not a set (need NAME=PATH for each of several)", item);
    item[name] = 0;
    if (name >= SETS_NAME)
        return error_set(TL_ERROR_USE, "val_data: the name \"%.80s\" has %zu characters (need at most %d)", item, name,
                         SETS_NAME - 1);
    if (sets->n == SETS_MOST)
        return error_set(TL_ERROR_USE, "val_data: has more than %d sets (need at most as many)", SETS_MOST);
    for (int i = 0; i < sets->n; i++)
        if (!strcmp(sets->name[i], item))
            return error_set(TL_ERROR_USE, "val_data: two sets are called \"%s\" (need a name for each)", item);
    sets->name[sets->n] = item;
    sets->path[sets->n++] = item + name + 1;
    return true;
}

bool sets_read(struct sets *sets, const char *val_data) {
    const char *item;
    memset(sets, 0, sizeof *sets);
    text_copy(sets->text, sizeof sets->text, val_data);
    if (!*val_data) return true;
    if (!sets_is_named(val_data)) {
        sets->name[0] = "";
        sets->path[0] = sets->text;
        sets->n = 1;
        return true;
    }
    const char *at = val_data;
    for (size_t n; text_item(&at, &item, &n);)
        if (!set_add(sets, sets->text + (item - val_data), n)) return false;
    return true;
}

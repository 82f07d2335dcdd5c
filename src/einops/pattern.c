/* pattern.c: reading patterns. Patterns come from people, so most of this is about saying what is wrong, and where. */
#include "einops/pattern.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "einops/letters.h"

/* ---- Messages ---- */

enum { WINDOW = 120 }; /* bytes of a long pattern that a message shows */

/* Appends to a buffer that may be full. */
static void put(char *buffer, size_t size, size_t *used, const char *format, ...) TL_PRINTF(4, 5);
static void put(char *buffer, size_t size, size_t *used, const char *format, ...) {
    if (*used >= size) return;
    va_list arguments;
    va_start(arguments, format);
    int n = number_vprint(buffer + *used, size - *used, format, arguments);
    va_end(arguments);
    *used += n > 0 ? (size_t)n : 0;
}

/* The pattern on a separate line and a caret below byte `at`. Unprintable characters become '?'; of a long pattern
 * only the part around the caret is shown. */
static void put_pattern(char *buffer, size_t size, size_t *used, const char *pattern, int at) {
    const char *label = "\n  pattern: ", *mark = "\n           ";
    size_t length = strlen(pattern), from = 0;
    if (length > WINDOW && at > WINDOW / 2) from = (size_t)at - WINDOW / 2;
    while (from > 0 && ((unsigned char)pattern[from] & 0xc0) == 0x80) from--;
    put(buffer, size, used, "%s%s", label, from ? "..." : "");
    int column = from ? 3 : 0, caret = -1, n;
    size_t i = from;
    for (uint32_t code; i < length && i < from + WINDOW; i += (size_t)n, column++) {
        if (at >= 0 && i >= (size_t)at && caret < 0) caret = column;
        n = text_character(pattern + i, &code);
        if (n == 0 || code < 32 || code == 127) {
            put(buffer, size, used, "?");
            n = n ? n : 1;
        } else {
            put(buffer, size, used, "%.*s", n, pattern + i);
        }
    }
    if (i < length) put(buffer, size, used, "...");
    if (at >= 0) put(buffer, size, used, "%s%*s^", mark, caret < 0 ? column : caret, "");
}

bool pattern_fail(const struct subject *s, int at, const char *format, ...) {
    if (tl_error() != TL_OK) return false;
    char message[360], context[640];
    va_list arguments;
    va_start(arguments, format);
    number_vprint(message, sizeof message, format, arguments);
    va_end(arguments);
    size_t used = 0;
    context[0] = 0;
    if (s->pattern) put_pattern(context, sizeof context, &used, s->pattern, at);
    for (int i = 0; i < s->n_tensors && s->tensors && i < 6; i++) {
        put(context, sizeof context, &used, i ? ", " : s->n_tensors > 1 ? "\n  inputs:  " : "\n  input:   ");
        if (used < sizeof context) used += tl_describe(s->tensors[i], context + used, sizeof context - used);
    }
    if (s->n_tensors > 6) put(context, sizeof context, &used, ", ...");
    for (int i = 0; s->lengths && i < s->lengths->n; i++)
        put(context, sizeof context, &used, "%s%.*s=%lld",
            i ? ", " : "\n  lengths: ", PART(s->lengths->item[i].name, 0, s->lengths->item[i].bytes),
            (long long)s->lengths->item[i].size);
    return error_set(TL_ERROR_USE, "%s: %s%s", s->op, message, context);
}

int part_bytes(const char *text, int bytes) {
    const int most = 60;
    if (bytes <= most) return bytes;
    bytes = most;
    while (bytes > 0 && ((unsigned char)text[bytes] & 0xc0) == 0x80) bytes--;
    return bytes;
}

/* ---- Names and numbers ---- */

static bool is_in(const struct letter_range *table, size_t n, uint32_t code, uint32_t *first) {
    for (size_t low = 0; low < n;) {
        size_t middle = low + (n - low) / 2;
        if (code < table[middle].first) n = middle;
        else if (code > table[middle].last) low = middle + 1;
        else {
            *first = table[middle].first;
            return true;
        }
    }
    return false;
}
#define IS_IN(table, code, first) is_in(table, sizeof table / sizeof table[0], code, first)

static bool may_begin(uint32_t c) {
    uint32_t first;
    return c < 0x80 ? (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' : IS_IN(letters_first, c, &first);
}

/* The value of a decimal digit in any script; -1 for anything else. */
static int digit_value(uint32_t c) {
    uint32_t first;
    if (c < 0x80) return c >= '0' && c <= '9' ? (int)(c - '0') : -1;
    return IS_IN(letters_decimal, c, &first) ? (int)((c - first) % 10) : -1;
}

static bool may_follow(uint32_t c) {
    uint32_t first;
    return may_begin(c) || digit_value(c) >= 0 || (c >= 0x80 && IS_IN(letters_later, c, &first));
}

const char *name_problem(const char *text, int bytes) {
    uint32_t code;
    if (bytes == 0) return "it is empty";
    for (int i = 0, n; i < bytes; i += n) {
        n = text_character(text + i, &code);
        if (n == 0 || !may_follow(code)) return "a name has letters, digits and underscores";
        if (i == 0 && !may_begin(code)) return "a name does not begin with a digit";
    }
    return text[0] == '_' || text[bytes - 1] == '_' ? "a name neither begins nor ends with an underscore" : NULL;
}

/* True when all characters are digits; *value -1 when the number does not fit. */
static bool number_read(const char *text, int bytes, int64_t *value) {
    uint32_t code;
    *value = 0;
    for (int i = 0, n; i < bytes; i += n) {
        n = (code = (unsigned char)text[i]) < 0x80 ? 1 : text_character(text + i, &code);
        int digit = n ? digit_value(code) : -1;
        if (digit < 0) return false;
        if (*value >= 0 && (!size_mul(*value, 10, value) || !size_add(*value, digit, value))) *value = -1;
    }
    return bytes > 0;
}

/* ---- Sides ---- */

int pattern_arrow(const struct subject *s) {
    const char *arrow = strstr(s->pattern, "->"), *second = arrow ? strstr(arrow + 2, "->") : NULL;
    if (second) {
        pattern_fail(s, (int)(second - s->pattern), "a second arrow (need one, between input and output)");
        return -1;
    }
    if (!arrow) pattern_fail(s, (int)strlen(s->pattern), "there is no arrow (need \"input -> output\")");
    return arrow ? (int)(arrow - s->pattern) : -1;
}

int side_find(const struct side *side, const char *pattern, const char *name, int bytes) {
    for (int i = 0; i < side->n_axes; i++) {
        const struct pattern_axis *a = &side->axis[i];
        if (a->kind == AXIS_NAME && a->bytes == bytes && memcmp(pattern + a->at, name, (size_t)bytes) == 0) return i;
    }
    return -1;
}

static bool is_separator(char c) { return c == ' ' || c == '(' || c == ')'; }

/* A token that is neither a number nor a good name: the first reason found. */
static bool token_fail(const struct subject *s, int at, int bytes, const char *problem) {
    uint32_t code;
    for (int i = at, n; i < at + bytes; i += n) {
        n = text_character(s->pattern + i, &code);
        if (n == 0) return pattern_fail(s, i, "byte 0x%02x is not UTF-8", (unsigned char)s->pattern[i]);
        if (code == 0x2026) return pattern_fail(s, i, "the character U+2026 is no ellipsis (need three dots: ...)");
        if (code == '.' && strstr(s->pattern + at, "...") == s->pattern + i && bytes > 3)
            return pattern_fail(s, i, "an ellipsis stands alone (need a space or a parenthesis on each side of ...)");
        if (code == '.') return pattern_fail(s, i, "dots are used only in an ellipsis (need ...)");
        if (code < 32 || code == 127)
            return pattern_fail(s, i, "unknown character U+%04X (only spaces separate axes)", (unsigned)code);
        if (code < 0x80 && !may_follow(code)) return pattern_fail(s, i, "unknown character '%c'", (char)code);
    }
    return pattern_fail(s, at, "\"%.*s\" is no name of an axis: %s", PART(s->pattern, at, bytes), problem);
}

/* Reads one token into the group that is open, or into a new group. */
static bool token_add(const struct subject *s, int at, int bytes, unsigned flags, bool in_group, struct side *side) {
    const char *text = s->pattern + at, *problem;
    struct pattern_axis axis = {.at = at, .bytes = bytes};
    bool is_ellipsis = bytes == 3 && memcmp(text, "...", 3) == 0, is_underscore = bytes == 1 && *text == '_';
    if (is_ellipsis) {
        if (side->ellipsis >= 0) return pattern_fail(s, at, "a second ellipsis (need at most one on a side)");
        axis.kind = AXIS_ELLIPSIS;
        side->ellipsis = side->n_axes;
        side->ellipsis_is_grouped = in_group;
    } else if (number_read(text, bytes, &axis.length)) {
        axis.kind = AXIS_NUMBER;
        if (axis.length <= 0)
            return pattern_fail(s, at, "an axis of size %.*s (need a positive size%s)", PART(s->pattern, at, bytes),
                                axis.length < 0 ? " below 2^63" : "");
        side->has_numbers = side->has_numbers || axis.length != 1;
    } else {
        problem = is_underscore && (flags & SIDE_UNDERSCORE) ? NULL : name_problem(text, bytes);
        if (problem) return token_fail(s, at, bytes, problem);
        if (!(flags & SIDE_REPEATS) && !is_underscore && side_find(side, s->pattern, text, bytes) >= 0)
            return pattern_fail(s, at, "the name \"%.*s\" comes twice on one side", PART(text, 0, bytes));
    }
    if (!in_group && side->n_groups < SIDE_MAX)
        side->group[side->n_groups++] = (struct pattern_group){at, bytes, side->n_axes, 0};
    else if (!in_group) return pattern_fail(s, at, "more than %d axes", TL_MAX_RANK);
    if (axis.kind == AXIS_NUMBER && axis.length == 1) return true; /* size 1 adds no axis */
    if (side->n_axes == SIDE_MAX) return pattern_fail(s, at, "more than %d axes", TL_MAX_RANK);
    side->axis[side->n_axes++] = axis;
    side->group[side->n_groups - 1].n_axes++;
    return true;
}

static bool group_open(const struct subject *s, int at, int open, struct side *side) {
    if (open >= 0) return pattern_fail(s, at, "parentheses inside parentheses (need one level)");
    if (side->n_groups == SIDE_MAX) return pattern_fail(s, at, "more than %d axes", TL_MAX_RANK);
    side->group[side->n_groups++] = (struct pattern_group){at, 0, side->n_axes, 0};
    return true;
}

bool side_parse(const struct subject *s, int from, int to, unsigned flags, struct side *side) {
    side->n_groups = side->n_axes = 0;
    side->ellipsis = -1;
    side->ellipsis_is_grouped = side->has_numbers = false;
    side->at = from;
    int open = -1; /* where the open parenthesis is */
    for (int i = from; i < to;) {
        char c = s->pattern[i];
        if (c == '(') {
            if (!group_open(s, i, open, side)) return false;
            open = i++;
        } else if (c == ')') {
            if (open < 0) return pattern_fail(s, i, "parentheses are not balanced: this one closes nothing");
            side->group[side->n_groups - 1].bytes = i + 1 - open;
            open = -1;
            i++;
        } else if (c == ' ') {
            i++;
        } else {
            int end = i;
            while (end < to && !is_separator(s->pattern[end])) end++;
            if (!token_add(s, i, end - i, flags, open >= 0, side)) return false;
            i = end;
        }
    }
    return open < 0 || pattern_fail(s, open, "parentheses are not balanced: this one is never closed");
}

/* ---- Lengths ---- */

static bool length_add(const struct subject *s, struct lengths *l, const char *name, int bytes, int64_t size) {
    for (int i = 0; i < l->n; i++)
        if (l->item[i].bytes == bytes && memcmp(l->item[i].name, name, (size_t)bytes) == 0)
            return pattern_fail(s, -1, "the length of \"%.*s\" is given twice", PART(name, 0, bytes));
    if (size < 0)
        return pattern_fail(s, -1, "the length of \"%.*s\" is %lld (need 0 or more)", PART(name, 0, bytes),
                            (long long)size);
    if (l->n == TL_MAX_RANK) return pattern_fail(s, -1, "more than %d lengths", TL_MAX_RANK);
    l->item[l->n].name = name;
    l->item[l->n].bytes = bytes;
    l->item[l->n++].size = size;
    return true;
}

static bool length_fail(const struct subject *s, const char *text, const char *what) {
    return pattern_fail(s, -1, "lengths \"%.80s\": %s (need name=size, as in \"h=8 w=4\")", text, what);
}

bool lengths_parse(const struct subject *s, const char *text, struct lengths *l) {
    l->n = 0;
    for (const char *p = text; p && *p;) {
        if (*p == ' ' || *p == ',') {
            p++;
            continue;
        }
        const char *name = p;
        while (*p && *p != ' ' && *p != ',' && *p != '=') p++;
        int bytes = (int)(p - name);
        while (*p == ' ') p++;
        if (*p != '=') return length_fail(s, text, "a name without a size");
        p++;
        while (*p == ' ') p++;
        const char *digits = p;
        int64_t size;
        bool is_negative = *p == '-';
        if (is_negative) digits = ++p;
        while (*p && *p != ' ' && *p != ',') p++;
        if (!number_read(digits, (int)(p - digits), &size)) return length_fail(s, text, "a size is a whole number");
        if (size < 0) return length_fail(s, text, "a size does not fit into 63 bits");
        if (!length_add(s, l, name, bytes, is_negative ? -size : size)) return false;
    }
    return true;
}

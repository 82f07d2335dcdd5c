#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

/* Not well-formed: overlong, surrogate, beyond U+10FFFF, cut off. */
int text_character(const char *text, uint32_t *code_point) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *s = (const unsigned char *)text;
    *code_point = s[0];
    int length = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    if (length <= 1) return length;
    uint32_t code = s[0] & (0xffu >> (length + 1));
    for (int i = 1; i < length; i++) {
        if (s[i] >> 6 != 2) return 0;
        code = code << 6 | (s[i] & 0x3f);
    }
    *code_point = code;
    return code < least[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : length;
}

bool text_is_control(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

bool text_is_name(const char *text) {
    uint32_t code;
    for (int length; *text; text += length) {
        length = text_character(text, &code);
        if (length == 0 || text_is_control(code)) return false;
    }
    return true;
}

bool text_is_utf8(const char *text) {
    uint32_t code;
    for (int length; *text; text += length) {
        length = text_character(text, &code);
        if (length == 0) return false;
    }
    return true;
}

int text_piece(char piece[TEXT_PIECE], const char *text) {
    uint32_t code;
    int length = text_character(text, &code);
    if (length == 0) snprintf(piece, TEXT_PIECE, "\\x%02x", (unsigned)(unsigned char)*text);
    else if (code == '\n' || code == '\t') strcpy(piece, code == '\n' ? "\\n" : "\\t");
    else if (text_is_control(code)) snprintf(piece, TEXT_PIECE, "\\u%04x", (unsigned)code);
    else { /* nearly all: printf would take ten times as long */ memcpy(piece, text, (size_t)length);
        piece[length] = 0;
    }
    return length ? length : 1;
}

const char *text_show(char *buffer, size_t size, const char *text) {
    size_t used = 0;
    while (*text) {
        char piece[TEXT_PIECE];
        text += text_piece(piece, text);
        size_t room = strlen(piece);
        if (used + room + 4 > size) { /* "..." and the final 0 */
            memcpy(buffer + used, "...", 4);
            return buffer;
        }
        memcpy(buffer + used, piece, room);
        used += room;
    }
    buffer[used] = 0;
    return buffer;
}

void text_trim(char *text, size_t size) {
    size_t end = strlen(text), begin = end;
    uint32_t code;
    if (end + 1 < size) return; /* all of it was printed */
    while (begin > 0 && ((unsigned char)text[begin - 1] & 0xc0) == 0x80) begin--;
    if (begin > 0 && text_character(text + begin - 1, &code) != (int)(end - begin + 1)) text[begin - 1] = 0;
}

void text_copy(char *to, size_t size, const char *from) {
    size_t length = strlen(from);
    if (length >= size) {
        length = size - 1;
        while (length > 0 && ((unsigned char)from[length] & 0xc0) == 0x80) length--;
    }
    memcpy(to, from, length);
    to[length] = 0;
}

static int edit_distance(const char *a, const char *b) {
    int row[64], n = (int)strlen(b);
    if (n >= 64) return 64;
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[n];
}

const char *text_nearest(const char *word, const char *const *known, int n_known) {
    const char *best = NULL;
    int distance = 4;
    for (int i = 0; i < n_known; i++) {
        int d = edit_distance(word, known[i]);
        if (d < distance && d < (int)strlen(known[i])) { /* something of it is left */
            distance = d;
            best = known[i];
        }
    }
    return best;
}

const char *text_meant(char buffer[TEXT_MEANT], const char *near) {
    const char *quote = near && !strncmp(near, "--", 2) ? "" : "\"";
    *buffer = 0;
    if (near) snprintf(buffer, TEXT_MEANT, ", did you mean %s%s%s?", quote, near, quote);
    return buffer;
}

/* ---- Numbers for people ---- */

bool text_size(const char *text, uint64_t *bytes) {
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"kB", 1e3},
                 {"KB", 1e3},
                 {"MB", 1e6},
                 {"GB", 1e9},
                 {"TB", 1e12},
                 {"KiB", 1024},
                 {"MiB", 1048576.0},
                 {"GiB", 1073741824.0},
                 {"TiB", 1099511627776.0}};
    char *end;
    if (!text_is_digit(*text)) return false;
    double value = number_parse(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(end, units[i].name) && value * units[i].factor >= 1 && value * units[i].factor < 4e18) {
            *bytes = (uint64_t)(value * units[i].factor);
            return true;
        }
    return false;
}

const char *bytes_text(double bytes, char *buffer) {
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    for (; bytes >= 1024 && u < 4; u++) bytes /= 1024;
    number_print(buffer, 32, u ? "%.2f %s" : "%.0f %s", bytes, unit[u]);
    return buffer;
}

const char *count_text(double value, char *buffer) {
    static const char *const unit[] = {"", " k", " M", " G", " T", " P"};
    int u = 0;
    for (; value >= 1000 && u < 5; u++) value /= 1000;
    number_print(buffer, 32, u ? "%.3f%s" : "%.0f%s", value, unit[u]);
    return buffer;
}

const char *grouped_text(uint64_t n, char *buffer) {
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, n), used = 0;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) buffer[used++] = ',';
        buffer[used++] = digits[i];
    }
    buffer[used] = 0;
    return buffer;
}

/* Four significant digits, as a whole number: 22,157 becomes 22,160. */
static uint64_t four_digits(double value) {
    double unit = 1;
    while (value / unit >= 10000) unit *= 10;
    return (uint64_t)(floor(value / unit + 0.5) * unit);
}

const char *amount_text(double value, char *buffer) {
    static const char *const unit[] = {"million", "billion", "trillion"};
    int u = 0;
    if (!(value < 1e18)) return number_print(buffer, 32, "%.3g", value), buffer;
    if (value < 999.95) return number_print(buffer, 32, "%.4g", value), buffer;
    if (four_digits(value) < 1000000) return grouped_text(four_digits(value), buffer);
    for (value /= 1e6; value >= 999.5 && u < 2; u++) value /= 1000;
    if (value < 999.5) return number_print(buffer, 32, "%.3g %s", value, unit[u]), buffer;
    char n[32];
    snprintf(buffer, 32, "%.20s %s", grouped_text(four_digits(value), n), unit[u]);
    return buffer;
}

const char *dollars_text(double value, char *buffer) {
    char amount[32];
    if (value < 999.995) number_print(buffer, 32, "$%.2f", value);
    else snprintf(buffer, 32, "$%.30s", amount_text(value, amount));
    return buffer;
}

const char *duration_text(double s, char *buffer) {
    static const struct {
        double from, unit;
        const char *name;
    } units[] = {{86400 * 2, 86400, "days"}, {7200, 3600, "h"}, {120, 60, "min"}, {1, 1, "s"},
                 {1e-3, 1e-3, "ms"},         {1e-6, 1e-6, "us"}};
    char amount[32];
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (s >= units[i].from) {
            snprintf(buffer, 32, "%.24s %s", amount_text(s / units[i].unit, amount), units[i].name);
            return buffer;
        }
    return number_print(buffer, 32, "%.3g ns", s * 1e9), buffer;
}

bool text_choice(const char **at, const char *end, const char **choice, size_t *length) {
    if (*at >= end) return false;
    *choice = *at;
    while (*at < end && **at != '|') ++*at;
    *length = (size_t)(*at - *choice);
    *at += *at < end;
    return true;
}

/* After a mismatch the last `*` takes one character more. */
bool text_matches(const char *pattern, size_t length, const char *text) {
    const char *end = pattern + length, *star = NULL, *resume = NULL;
    while (*text) {
        if (pattern < end && *pattern == '*') star = ++pattern, resume = text;
        else if (pattern < end && *pattern == *text) pattern++, text++;
        else if (star) pattern = star, text = ++resume;
        else return false;
    }
    while (pattern < end && *pattern == '*') pattern++;
    return pattern == end;
}

bool text_item(const char **at, const char **item, size_t *length) {
    while (**at == ' ' || **at == ',') ++*at;
    *item = *at;
    *length = strcspn(*at, ",");
    *at += *length;
    while (*length && (*item)[*length - 1] == ' ') --*length;
    return *length > 0;
}

bool text_matches_any(const char *patterns, const char *text) {
    const char *item;
    for (size_t length; text_item(&patterns, &item, &length);)
        if (text_matches(item, length, text)) return true;
    return false;
}

struct text_quoted text_quoted(char c) {
    struct text_quoted q = {"'\\''"};
    if (c != '\'') q.at[0] = c, q.at[1] = 0;
    return q;
}

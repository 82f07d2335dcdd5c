#include "base/text.h"

#include <stdio.h>
#include <string.h>

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

bool text_is_name(const char *text) {
    uint32_t code;
    for (int length; *text; text += length) {
        length = text_character(text, &code);
        if (length == 0 || code < 32 || code == 127) return false;
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

const char *text_show(char *buffer, size_t size, const char *text) {
    size_t used = 0;
    for (const char *s = text; *s;) {
        char piece[16];
        uint32_t code;
        int length = text_character(s, &code);
        bool is_c1 = code >= 0x80 && code < 0xa0; /* control characters too, and some terminals obey them */
        if (*s == '\n') text_copy(piece, sizeof piece, "\\n");
        else if (length == 0) snprintf(piece, sizeof piece, "\\x%02x", (unsigned)(unsigned char)*s);
        else if (code < 32 || code == 127 || is_c1)
            snprintf(piece, sizeof piece, "\\u%04x", (unsigned)code);
        else snprintf(piece, sizeof piece, "%.*s", length, s);
        size_t room = strlen(piece);
        if (used + room + 4 > size) { /* "..." and the final 0 */
            memcpy(buffer + used, "...", 4);
            return buffer;
        }
        memcpy(buffer + used, piece, room);
        used += room;
        s += length ? length : 1;
    }
    buffer[used] = 0;
    return buffer;
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

#include "base/text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Not well-formed: overlong, surrogate, beyond U+10FFFF, cut off. */
int text_character(const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int length = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    if (length <= 1) return length;
    uint32_t code = s[0] & (0xffu >> (length + 1));
    for (int i = 1; i < length; i++) {
        if (s[i] >> 6 != 2) return 0;
        code = code << 6 | (s[i] & 0x3f);
    }
    return code < least[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : length;
}

bool text_is_name(const char *text) {
    for (const char *s = text; *s;) {
        int length = text_character(s);
        if (length == 0 || (unsigned char)*s < 32 || *s == 127) return false;
        s += length;
    }
    return true;
}

bool text_is_utf8(const char *text) {
    for (const char *s = text; *s;) {
        int length = text_character(s);
        if (length == 0) return false;
        s += length;
    }
    return true;
}

const char *text_show(char *buffer, size_t size, const char *text) {
    size_t used = 0;
    for (const char *s = text; *s;) {
        char piece[16];
        int length = text_character(s);
        uint32_t code = (unsigned char)*s;
        /* U+0080 to U+009F are control characters too, and some terminals obey them. */
        bool is_c1 = length == 2 && code == 0xc2 && (unsigned char)s[1] < 0xa0;
        if (*s == '\n') text_copy(piece, sizeof piece, "\\n");
        else if (length == 0) snprintf(piece, sizeof piece, "\\x%02x", (unsigned)code);
        else if (code < 32 || code == 127 || is_c1)
            snprintf(piece, sizeof piece, "\\u%04x", (unsigned)(is_c1 ? (unsigned char)s[1] : code));
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

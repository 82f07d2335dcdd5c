#include "base/text.h"

#include <stdint.h>
#include <string.h>

/* Length of the character at `s`; 0 when it is not well-formed UTF-8 (overlong, surrogate, beyond U+10FFFF, cut off). */
static int character_length(const unsigned char *s) {
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
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        int length = character_length(s);
        if (length == 0 || *s < 32 || *s == 127) return false;
        s += length;
    }
    return true;
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

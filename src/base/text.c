#include "base/text.h"

#include <string.h>

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

void text_copy(char *to, size_t size, const char *from) {
    size_t length = strlen(from);
    if (length >= size) {
        length = size - 1;
        while (length > 0 && ((unsigned char)from[length] & 0xc0) == 0x80) length--;
    }
    memcpy(to, from, length);
    to[length] = 0;
}

#include "base/growing.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"

/* Room for n more bytes and the final 0. */
static bool room_make(struct growing *g, size_t n) {
    if (g->is_broken) return false;
    if (g->n + n + 1 <= g->room) return true;
    size_t room = 2 * (g->n + n) + 4096;
    char *larger = memory_resize(g->at, room);
    if (larger) g->at = larger, g->room = room;
    else g->is_broken = true;
    return !g->is_broken;
}

void growing_put(struct growing *g, const char *data, size_t n) {
    if (!room_make(g, n)) return;
    memcpy(g->at + g->n, data, n);
    g->n += n;
    g->at[g->n] = 0;
}

void growing_text(struct growing *g, const char *text) { growing_put(g, text, strlen(text)); }

void growing_print(struct growing *g, const char *format, ...) {
    va_list arguments;
    for (int turn = 0, n = 256; turn < 2 && room_make(g, (size_t)n); turn++) {
        va_start(arguments, format);
        n = number_vprint(g->at + g->n, g->room - g->n, format, arguments);
        va_end(arguments);
        if (n < 0) g->is_broken = true;
        else if (g->n + (size_t)n < g->room) {
            g->n += (size_t)n;
            return;
        }
    }
    if (g->at) g->at[g->n] = 0;
}

void growing_html(struct growing *g, const char *text) {
    for (const char *at = text; *at;) {
        size_t plain = strcspn(at, "<>&\"");
        growing_put(g, at, plain);
        at += plain;
        if (!*at) break;
        growing_text(g, *at == '<' ? "&lt;" : *at == '>' ? "&gt;" : *at == '&' ? "&amp;" : "&quot;");
        at++;
    }
}

void growing_json(struct growing *g, const char *text) {
    uint32_t code;
    growing_text(g, "\"");
    for (int n; *text; text += n ? n : 1) {
        n = text_character(text, &code);
        if (!n) growing_print(g, "\\\\x%02x", (unsigned)(unsigned char)*text);
        else if (code < 0x20) growing_print(g, "\\u%04x", (unsigned)code);
        else {
            if (code == '"' || code == '\\') growing_text(g, "\\");
            growing_put(g, text, (size_t)n);
        }
    }
    growing_text(g, "\"");
}

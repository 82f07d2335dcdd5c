#include "page/page.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"

struct text {
    char *data;
    size_t n, capacity;
    bool is_out_of_memory;
};

static void put(struct text *t, const char *data, size_t n) {
    if (t->is_out_of_memory) return;
    if (t->n + n + 1 > t->capacity) {
        size_t capacity = 2 * (t->n + n) + 4096;
        char *larger = memory_resize(t->data, capacity);
        if (!larger) {
            t->is_out_of_memory = true;
            return;
        }
        t->data = larger;
        t->capacity = capacity;
    }
    memcpy(t->data + t->n, data, n);
    t->n += n;
    t->data[t->n] = 0;
}
static void put_text(struct text *t, const char *text) { put(t, text, strlen(text)); }

/* Characters of HTML become entities. */
static void put_escaped(struct text *t, const char *text) {
    for (const char *at = text; *at; at++) {
        const char *entity = *at == '<'   ? "&lt;"
                             : *at == '>' ? "&gt;"
                             : *at == '&' ? "&amp;"
                             : *at == '"' ? "&quot;"
                                          : 0;
        if (entity) put_text(t, entity);
        else put(t, at, 1);
    }
}

/* JSON inside a script element: no "<", so that nothing ends the element. */
static void put_json(struct text *t, const char *json) {
    for (const char *at = json; *at;) {
        size_t plain = strcspn(at, "<");
        put(t, at, plain);
        at += plain;
        if (*at) put_text(t, "\\u003c"), at++;
    }
}

static void put_file(struct text *t, const char *name) {
    for (const struct page_file *f = page_files; f->name; f++)
        if (!strcmp(f->name, name)) put(t, (const char *)f->text, f->bytes);
}

static void put_head(struct text *t, const char *title, bool is_live) {
    put_text(t, "<!doctype html>\n<html lang=\"en\"");
    if (is_live) put_text(t, " data-live=\"/data\"");
    put_text(
        t, ">\n<head>\n<meta charset=\"utf-8\">\n"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
           "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
           "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'");
    put_text(t, is_live ? "; connect-src 'self'\">\n" : "\">\n");
    put_text(t, "<meta name=\"referrer\" content=\"no-referrer\">\n<link rel=\"icon\" href=\"data:,\">\n<title>");
    put_escaped(t, title);
    put_text(t, "</title>\n<style>\n");
    put_file(t, "style.css");
    put_text(t, "</style>\n</head>\n<body>\n<noscript>This page draws with JavaScript, which is switched off."
                "</noscript>\n<div id=\"page\"></div>\n<script type=\"application/json\" id=\"data\">");
}

char *page_html(const char *title, const json_t *data, const char *script, bool is_live) {
    struct text t = {0};
    char *json = json_print(data, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(7));
    if (!json) return NULL;
    put_head(&t, title, is_live);
    put_json(&t, json);
    put_text(&t, "</script>\n<script>\n");
    put_file(&t, "charts.js");
    put_text(&t, "</script>\n<script>\n");
    put_file(&t, script);
    put_text(&t, "</script>\n</body>\n</html>\n");
    memory_free(json);
    if (!t.is_out_of_memory) return t.data;
    memory_free(t.data);
    error_memory(t.n, "a page");
    return NULL;
}

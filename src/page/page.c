#include "page/page.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/growing.h"
#include "base/json.h"
#include "base/memory.h"

/* JSON inside a script element: no "<", so that nothing ends the element. */
static void put_json(struct growing *t, const char *json) {
    for (const char *at = json; *at;) {
        size_t plain = strcspn(at, "<");
        growing_put(t, at, plain);
        at += plain;
        if (*at) growing_text(t, "\\u003c"), at++;
    }
}

static void put_file(struct growing *t, const char *name) {
    for (const struct page_file *f = page_files; f->name; f++)
        if (!strcmp(f->name, name)) growing_put(t, (const char *)f->text, f->bytes);
}

static void put_head(struct growing *t, const char *title, bool is_live) {
    growing_text(t, "<!doctype html>\n<html lang=\"en\"");
    if (is_live) growing_text(t, " data-live=\"/data\"");
    growing_text(
        t, ">\n<head>\n<meta charset=\"utf-8\">\n"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
           "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
           "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'");
    growing_text(t, is_live ? "; connect-src 'self'\">\n" : "\">\n");
    growing_text(t, "<meta name=\"referrer\" content=\"no-referrer\">\n<link rel=\"icon\" href=\"data:,\">\n<title>");
    growing_html(t, title);
    growing_text(t, "</title>\n<style>\n");
    put_file(t, "style.css");
    growing_text(t, "</style>\n</head>\n<body>\n<noscript>This page draws with JavaScript, which is switched off."
                    "</noscript>\n<div id=\"page\"></div>\n<script type=\"application/json\" id=\"data\">");
}

char *page_html(const char *title, const json_t *data, const char *script, bool is_live) {
    struct growing t = {0};
    char *json = json_print(data, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(7));
    if (!json) return NULL;
    put_head(&t, title, is_live);
    put_json(&t, json);
    growing_text(&t, "</script>\n<script>\n");
    put_file(&t, "charts.js");
    growing_text(&t, "</script>\n<script>\n");
    put_file(&t, script);
    growing_text(&t, "</script>\n</body>\n</html>\n");
    memory_free(json);
    if (!t.is_broken) return t.at;
    memory_free(t.at);
    error_memory(t.n, "a page");
    return NULL;
}

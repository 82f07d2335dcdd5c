/* page.h: one self-contained HTML file: style, scripts and data inside, and nothing loaded from anywhere.
 *
 * The texts are the files of this folder, built into the library (the Makefile's PAGE_FILES). Data goes in as JSON
 * whose "<" is escaped, and the scripts show it with textContent, so nothing in a run's name, text or path is ever
 * markup. */
#ifndef PAGE_PAGE_H
#define PAGE_PAGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct page_file {
    const char *name; /* "charts.js" */
    const unsigned char *text;
    size_t bytes;
};
extern const struct page_file page_files[]; /* ends with a name of NULL; $(BUILD)/page_files.c, generated */

/* A page that shows `data` with a script of this folder; memory_free it. `is_live`: it may ask the server it came from
 * for news. NULL: recorded. */
char *page_html(const char *title, const json_t *data, const char *script, bool is_live);

#endif

/* show.c: pages for programs. A notebook gets a page as an iframe with the page inside, so that several of them, and
 * the notebook itself, do not see each other's styles, scripts and names. */
#include <string.h>

#include "tally.h"
#include "base/error.h"
#include "base/growing.h"
#include "base/json.h"
#include "base/memory.h"
#include "page/page.h"
#include "page/report.h"

static const struct view {
    const char *schema, *script;
    int height; /* of an iframe, in pixels */
} views[] = {
    {"tally.report/1", "report.js", 760}, {"tally.ledger/1", "ledger.js", 620}, {"tally.run/1", "ledger.js", 620}};

static const struct view *view_of(const json_t *data) {
    const char *schema = json_string_value(json_object_get(data, "schema"));
    for (size_t i = 0; schema && i < sizeof views / sizeof *views; i++)
        if (!strcmp(views[i].schema, schema)) return &views[i];
    return NULL;
}

static char *frame_of(const char *page, const struct view *view) {
    struct growing g = {0};
    growing_print(&g,
                  "<iframe class=\"tally\" title=\"Tally\" sandbox=\"allow-scripts\" style=\"width:100%%;"
                  "height:%dpx;border:0;resize:vertical\" srcdoc=\"",
                  view->height);
    growing_html(&g, page);
    growing_text(&g, "\"></iframe>");
    if (!g.is_broken) return g.at;
    memory_free(g.at);
    error_memory(g.n, "a page");
    return NULL;
}

char *tl_page(const char *json, bool is_frame) {
    if (!json) return error_set(TL_ERROR_USE, "tl_page: the data is NULL (need JSON)"), NULL;
    json_t *data = json_parse(json, NULL);
    const struct view *view = view_of(data);
    char *page = NULL, *frame = NULL;
    if (view)
        page = !strcmp(view->script, "report.js") ? report_html(data, false)
                                                  : page_html("Tally", data, view->script, false);
    else
        error_set(TL_ERROR_USE,
                  "tl_page: the data is not a report, a ledger or a run (need JSON of schema tally.report/1, "
                  "tally.ledger/1 or tally.run/1)");
    if (page && is_frame) frame = frame_of(page, view), memory_free(page);
    json_decref(data);
    return is_frame ? frame : page;
}

char *tl_report_json(const char *const *runs, int n) {
    if (!runs || n < 1)
        return error_set(TL_ERROR_USE, "tl_report_json: no run is named (need the folder of one)"), NULL;
    for (int i = 0; i < n; i++)
        if (!runs[i]) return error_set(TL_ERROR_USE, "tl_report_json: run %d is NULL (need a folder)", i), NULL;
    json_t *data = report_data(runs, n);
    char *text = data ? json_print(data, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(data);
    return text;
}

/* cmd_report.c: tally report RUN...: runs as one HTML file. */
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "page/report.h"

const char help_report[] =
    "usage: tally report RUN... [-o FILE]\n"
    "\n"
    "Draws the runs in these folders as one HTML file, which needs no network and no other file: whether price and\n"
    "receipt agree, curves of loss, learning rate and gradient norm over steps, tokens, time or FLOPs, memory over\n"
    "one step by purpose and by module, time by op beside its floor, a roofline, samples, and the environment. The\n"
    "page is light or dark like the system, and can be printed. Long runs are shown with the mean, the lowest and\n"
    "the highest value of each stretch.\n"
    "\n"
    "The time of ops needs a profile: train with --profile. Floors and the roofline also need `tally calibrate`, or a\n"
    "chip that `tally devices` knows.\n"
    "\n"
    "examples:\n"
    "  tally report runs/first                      writes runs/first.html\n"
    "  tally report runs/a runs/b runs/c -o abc.html   three runs over each other\n"
    "\n"
    "  -o FILE, --output FILE   where to write; by default the first run's folder with .html behind it\n"
    "  --json                   print the data of the page instead (schema tally.report/1)\n";

enum { MOST_RUNS = 64 };

/* "runs/first/" as "runs/first.html"; memory_free it. */
static char *default_name(const char *folder) {
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/') n--;
    char *name = memory_new(n + 6);
    if (!name) return error_memory(n + 6, "a name"), NULL;
    memcpy(name, folder, n);
    memcpy(name + n, ".html", 6);
    return name;
}

static int page_write(const json_t *data, const char *folder, const char *file) {
    char *name = file ? NULL : default_name(folder), *html = file || name ? report_html(data, false) : NULL;
    bool ok = html && file_put(file ? file : name, html, strlen(html));
    char size[32];
    if (ok) printf("%s: %s; open it in a browser\n", file ? file : name, bytes_text((double)strlen(html), size));
    memory_free(html);
    memory_free(name);
    return ok ? 0 : cli_error_of("report");
}

int cmd_report(int argc, char **argv) {
    const char *file = NULL, *runs[MOST_RUNS] = {0};
    bool is_json = false;
    const struct option table[] = {{"-o", OPTION_TEXT, &file, 0, 0, false},
                                   {"--output", OPTION_TEXT, &file, 0, 0, false},
                                   {"--json", OPTION_FLAG, &is_json, 0, 0, false},
                                   {0}};
    static const struct option_rule rules[] = {{"report", "-o --output", OPTION_BESIDE, "--json"},
                                               {NULL, NULL, OPTION_BESIDE, NULL}};
    int code = options_read_ruled("report", table, rules, argc, argv, runs, MOST_RUNS), n = 0;
    while (n < MOST_RUNS && runs[n]) n++;
    if (code) return code;
    if (!n) {
        fprintf(stderr, "tally report: name the folder of a run: tally report runs/first (`tally report --help`)\n");
        return EXIT_USAGE;
    }
    json_t *data = report_data(runs, n);
    if (!data) return cli_error_of("report");
    if (is_json) return cli_json(data);
    code = page_write(data, runs[0], file);
    json_decref(data);
    return code;
}

/* cmd_diff.c: tally diff PRICE RECEIPT */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "cli/cli.h"

const char help_diff[] =
    "usage: tally diff PRICE.json RECEIPT.json\n"
    "\n"
    "Compares two ledgers (schema tally.ledger/1) or two runs (tally.run/1, a ledger for each kind of step): the\n"
    "calls, FLOPs and bytes of every row, and the peaks by purpose and path. Exits with 0 if they agree. If they\n"
    "differ, prints the differences and exits with 2. If both files have times (a price from `tally plan --price`,\n"
    "the receipt of a run), prints them too; times are not differences. Nor is what differs by the load of experts\n"
    "(--ep of `tally train`): it is summed up, with its rule. One of the files may be -, standard input.\n"
    "Each may have at most 64 MiB.\n"
    "\n"
    "examples:\n"
    "  tally diff runs/first/price.json runs/first/receipt.json && echo paid\n"
    "  tally plan --steps 50 --price plan.json --short && tally train --steps 50 --out runs/a &&\n"
    "      tally diff plan.json runs/a/receipt.json\n";

/* A ledger's text; "-" is standard input. NULL: recorded. */
static char *ledger_text(const char *name) {
    size_t bytes;
    bool is_input = !strcmp(name, "-");
    char *text = is_input ? file_get_stream(STDIN_FILENO, "standard input", JSON_MOST_LEDGER, &bytes)
                          : file_get(name, JSON_MOST_LEDGER, &bytes);
    if (!text || strlen(text) == bytes) return text;
    error_set(TL_ERROR_USE, "%s: is not JSON: byte %zu is zero", name, strlen(text));
    memory_free(text);
    return NULL;
}

/* Seconds of a step, or of the ledger, where one of the files has any. 0: it has none. */
static double seconds_of(const json_t *root, const char *name) {
    const json_t *step = json_object_get(json_object_get(root, "kinds"), "step");
    const json_t *time = json_object_get(step ? step : root, "time");
    return json_number_value(json_object_get(time, name));
}

/* Times never decide: they are said. */
static void times_print(const char *price, const char *receipt) {
    json_t *a = json_parse(price, NULL), *b = json_parse(receipt, NULL);
    double said = seconds_of(a, "step_s"), bound = seconds_of(a, "bound_s"), took = seconds_of(b, "step_s");
    if (took > 0 && said > 0)
        printf("time of a step: %.6g s predicted, %.6g s measured: the prediction is off by %+.1f %%\n", said, took,
               100 * (said / took - 1));
    if (took > 0 && bound > 0)
        printf("time of a step: at least %.6g s, %.6g s measured%s\n", bound, took,
               took < bound ? ": the bound is wrong" : "");
    json_decref(a);
    json_decref(b);
}

int cmd_diff(int argc, char **argv) {
    if (argc != 3) {
        fputs(help_diff, stderr);
        return EXIT_USAGE;
    }
    if (!strcmp(argv[1], "-") && !strcmp(argv[2], "-")) {
        fprintf(stderr, "tally diff: only one of the files can be standard input (see `tally diff --help`)\n");
        return EXIT_USAGE;
    }
    char *price = ledger_text(argv[1]), *receipt = price ? ledger_text(argv[2]) : NULL, *report = NULL;
    int result;
    if (!receipt) result = cli_error();
    else {
        int n = tl_ledger_diff(price, receipt, &report);
        if (n < 0) result = cli_error();
        else if (n == 0)
            result = printf("%s0 differences: price and receipt tally\n", report ? report : "") < 0 ? EXIT_IO : 0;
        else
            result = printf("%s%d difference%s: price and receipt do not tally\n", report ? report : "", n,
                            n == 1 ? "" : "s") < 0
                         ? EXIT_IO
                         : EXIT_INPUT;
        if (n >= 0) times_print(price, receipt);
    }
    memory_free(price);
    memory_free(receipt);
    free(report);
    return result;
}

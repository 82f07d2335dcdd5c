/* cmd_diff.c: tally diff PRICE RECEIPT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

const char help_diff[] =
    "usage: tally diff PRICE.json RECEIPT.json\n\n"
    "Compares two ledgers (schema tally.ledger/1): every row's calls, FLOPs and bytes, and the peaks by purpose and\n"
    "path. Times are not compared. Exits 0 when they tally, 2 when they do not, with a table of what differs.\n\n"
    "examples:\n"
    "  tally demo --price price.json --receipt receipt.json\n"
    "  tally diff price.json receipt.json && echo paid\n";

static char *file_read(const char *name) {
    FILE *f = fopen(name, "rb");
    char *text = NULL;
    size_t used = 0, capacity = 0, got = 1;
    while (f && got) {
        if (used + 65536 + 1 > capacity) {
            capacity = capacity * 2 + 65536 + 1;
            char *moved = realloc(text, capacity);
            if (!moved) break;
            text = moved;
        }
        got = fread(text + used, 1, 65536, f);
        used += got;
    }
    if (!f || ferror(f) || got) {
        fprintf(stderr, "tally: %s: %s\n", name, strerror(errno));
        free(text);
        text = NULL;
    }
    if (f) fclose(f);
    if (text) text[used] = 0;
    return text;
}

int cmd_diff(int argc, char **argv) {
    if (argc != 3) {
        fputs(help_diff, stderr);
        return EXIT_USAGE;
    }
    char *price = file_read(argv[1]), *receipt = price ? file_read(argv[2]) : NULL, *report = NULL;
    int result = EXIT_IO;
    if (receipt) {
        int n = tl_ledger_diff(price, receipt, &report);
        if (n < 0) result = cli_error();
        else if (n == 0) result = printf("they tally: 0 differences\n") < 0 ? EXIT_IO : 0;
        else
            result = printf("%s%d difference%s: they do not tally\n", report ? report : "", n, n == 1 ? "" : "s") < 0
                         ? EXIT_IO
                         : EXIT_INPUT;
    }
    free(price);
    free(receipt);
    free(report);
    return result;
}

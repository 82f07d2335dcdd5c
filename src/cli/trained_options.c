#include "cli/trained_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

enum { MOST_ROWS = 24 };

int trained_flags_read(struct trained_flags *f, const char *command, const char *needed, const struct option *own,
                       int argc, char **argv) {
    const struct option shared[] = {
        {"--model", OPTION_TEXT, &f->folder, 0, 0, false},
        {"--checkpoint", OPTION_TEXT, &f->folder, 0, 0, false},
        {"--device", OPTION_TEXT, &f->device, 0, 0, false},
        {"--step", OPTION_INTEGER, &f->step, 0, 1e15, false},
        {"--threads", OPTION_INTEGER, &f->threads, 1, 4096, false},
        {"--best", OPTION_FLAG, &f->is_best, 0, 0, false},
        {"--json", OPTION_FLAG, &f->is_json, 0, 0, false},
        {0},
    };
    struct option table[MOST_ROWS + sizeof shared / sizeof *shared];
    int n = 0;
    while (own[n].kind != OPTION_END)
        if (++n > MOST_ROWS) abort(); /* a command has grown: so must this table */
    memcpy(table, own, (size_t)n * sizeof *own);
    memcpy(table + n, shared, sizeof shared);
    *f = (struct trained_flags){.device = "cpu", .step = STEP_NEWEST, .dtype = TL_DTYPE_COUNT};
    const char *word = NULL;
    const struct option_rule rules[] = {{command, "--step", OPTION_BESIDE, "--best"},
                                        {command, "--checkpoint", OPTION_BESIDE, "--model"},
                                        {NULL, NULL, OPTION_BESIDE, NULL}};
    int code = options_read_ruled(command, table, rules, argc, argv, &word, 1);
    if (code) return code;
    if (word) {
        bool has_prompt = false;
        for (int i = 0; own[i].kind != OPTION_END; i++) has_prompt = has_prompt || !strcmp(own[i].name, "--prompt");
        return option_surplus(command, word, has_prompt && access(word, F_OK) ? "--prompt" : needed);
    }
    if (f->is_best) f->step = STEP_BEST;
    if (f->folder) return 0;
    fprintf(stderr, "tally %s: %s is required (see `tally %s --help`)\n", command, needed, command);
    return EXIT_USAGE;
}

static int n_passed_over; /* newer checkpoints that are damaged */
static void log_tell(const char *line, void *context) {
    (void)context;
    if (strncmp(line, "checkpoint ", 11)) return;
    fprintf(stderr, "tally: %s\n", line);
    n_passed_over++;
}

int trained_open(const struct trained_flags *f, struct opened *o, tl_device **device) {
    if (f->threads) tl_set_threads((int)f->threads);
    *device = tl_device_find(f->device);
    tl_set_log_hook(log_tell, NULL); /* a damaged checkpoint is passed over */
    bool ok = *device && opened_open(o, f->folder, f->step, *device);
    tl_set_log_hook(NULL, NULL);
    if (ok && n_passed_over)
        fprintf(stderr, "tally: the model is that of step %" PRId64 ", an older checkpoint\n", o->step);
    if (!ok) return cli_error();
    if (f->dtype == TL_DTYPE_COUNT || opened_cast(o, f->dtype)) return 0;
    int code = cli_error();
    opened_close(o);
    return code;
}

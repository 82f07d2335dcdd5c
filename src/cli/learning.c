#include "cli/learning.h"

#include <stdio.h>

#include "cli/cli.h"
#include "cli/interrupt.h"

bool learning_tell(bool is_merging, uint64_t done, uint64_t total, void *progress) {
    progress_turn(progress, is_merging ? "tokenizer: merges" : "tokenizer: words", is_merging ? "" : "B");
    return progress_tell(done, total, progress);
}

bool learning_hear(bool is_merging, uint64_t done, uint64_t total, void *progress) {
    (void)is_merging, (void)done, (void)total, (void)progress;
    return !is_interrupted;
}

int learning_ready(const char *command, struct settings *s, tl_tokenizer **made) {
    *made = NULL;
    if (s->ready || !tokens_are_made(s)) return 0;
    struct progress p = progress_begin("tokenizer: words", "B");
    bool ok = tokens_ready(s, made, &(struct tokens_listener){learning_tell, &p});
    progress_end(&p);
    if (ok) return 0;
    if (!is_interrupted) return cli_error_of(command);
    fprintf(stderr, "tally %s: stopped by Ctrl-C\n", command);
    return EXIT_STOPPED;
}

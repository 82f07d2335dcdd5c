/* generate_request.h: what the files of `tally generate` share. */
#ifndef CLI_GENERATE_REQUEST_H
#define CLI_GENERATE_REQUEST_H

#include "cli/trained_options.h"
#include "train/ends.h"

struct generate_request {
    struct trained_flags model;
    struct texts prompts, ids, stops;
    const char *file, *field, *tokenizer, *dtype;
    int64_t tokens, batch, seed, samples;
    tl_generate_options options;
    struct ends ends; /* the tokens that end a text */
    bool shows_speed, is_interactive, ignores_eos;
};

/* Texts from stdin, line by line, each continued. The exit code. */
int generate_chat(const struct generate_request *r, const struct opened *o, tl_tokenizer *tokenizer);

#endif

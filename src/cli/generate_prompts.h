/* generate_prompts.h: the prompts of `tally generate`, as tokens. */
#ifndef CLI_GENERATE_PROMPTS_H
#define CLI_GENERATE_PROMPTS_H

#include "cli/options.h"
#include "tally.h"

struct prompt {
    int64_t *ids, n;
};
struct prompts {
    struct prompt *at;
    size_t n, capacity;
};

/* Where they come from; at most one of the three is given, or else it is `fallback`. */
struct prompts_source {
    struct texts texts, ids; /* --prompt, --ids */
    const char *file;        /* --prompts: one per line, or JSONL; "-": stdin */
    const char *field;       /* --field: the file is JSONL, and the prompt is this field */
    const char *fallback;
    tl_tokenizer *tokenizer; /* NULL: ids alone */
    bool has_template;       /* the tokenizer's tokens around a text are added */
    int64_t vocabulary;
};

/* 0, or the exit code after a message on stderr. */
int prompts_read(struct prompts *p, const struct prompts_source *from);
/* Each prompt n times, one after the other. 0, or the exit code, and there are none. */
int prompts_repeat(struct prompts *p, int64_t n);
void prompts_free(struct prompts *p);

#endif

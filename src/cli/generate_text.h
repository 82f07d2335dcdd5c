/* generate_text.h: what `tally generate` prints of a text: whole characters, up to a stop string. */
#ifndef CLI_GENERATE_TEXT_H
#define CLI_GENERATE_TEXT_H

#include "cli/options.h"
#include "step/tokens.h"
#include "tally.h"

struct speech {
    const struct texts *stops;
    tl_tokenizer *tokenizer;
    tl_decoder *decoder;
    struct tokens_words words;  /* the prompt and what follows */
    size_t n_prompt, n_printed; /* bytes: where stop strings begin to count; printed so far */
    bool is_clean;              /* "?" stands for what a terminal should not get */
    bool is_streamed;           /* printed as it comes */
    bool is_ended;              /* by a stop string: words end before it */
};

/* Begins with the tokens of the prompt; `shows_prompt`: they are a part of what is printed. False: recorded, or stdout
 * failed. */
bool speech_begin(struct speech *s, const int64_t *ids, int64_t n, bool shows_prompt);
/* One more token. The text has ended if is_ended is true afterwards. */
bool speech_add(struct speech *s, int64_t id);
/* No token follows: bytes that were held back are text now. */
bool speech_end(struct speech *s);
void speech_free(struct speech *s);

/* Bytes of a text to stdout: unchanged, or cleaned already. */
bool speech_put(const struct speech *s, const char *text, size_t bytes);

#endif

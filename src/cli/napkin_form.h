/* napkin_form.h: what the forms of `tally napkin` share: the question, and an answer with lines for people and keys for
 * programs. */
#ifndef CLI_NAPKIN_FORM_H
#define CLI_NAPKIN_FORM_H

#include <stdio.h>

#include <jansson.h>

#include "cli/options.h"
#include "plan/hardware.h"
#include "plan/napkin.h"

struct answer {
    json_t *json;
    FILE *text; /* in memory: printed when all of it is known to be finite */
};

/* The formula with its numbers: the first line of an answer. */
void answer_formula(struct answer *a, const char *format, ...) TL_PRINTF(2, 3);
/* A value under its key; the text says it in words. */
void answer_value(struct answer *a, const char *key, double x, const char *format, ...) TL_PRINTF(4, 5);
void answer_word(struct answer *a, const char *key, const char *text);
json_t *answer_number(double x); /* null if it is not finite: JSON has no word for that */

struct asked {
    double params, tokens, devices, mfu, peak, days, memory, bytes_per_param, flops, tokens_per_second, seconds;
    double flops_per_second; /* of one device */
    double tokens_per_param, alpha, beta, huber, batch, seq, layers, channels, heads, vocabulary, tensor, pipeline,
        interleave;
    double m, k, n;
    double unique, inference_tokens, inference_mfu, loss;
    int64_t approach;
    struct options_given given;
    const char *device, *dtype, *model, *shape, *op, *runs, *law, *hardware, *convention;
    bool is_json;
};

#define LARGEST_MODEL 1e18 /* parameters: a million times what was ever trained */
#define LARGEST_DATA 1e21  /* tokens */
#define LARGEST_FLOPS 1e40
#define LARGEST_SIZE 1e12

/* An option that a form cannot do without, and a value that is no good. Return the exit code. */
int asked_lacks(const char *form, const char *what);
int asked_bad(const char *form, const char *format, ...) TL_PRINTF(2, 3);

/* The device's peak in the requested dtype; 0 if no device was named. Returns 0 or an exit code. */
struct peak {
    const struct hardware *chip;
    double peak;
    const char *dtype;
};
int peak_find(const char *form, const struct asked *q, struct peak *m);
void peak_say(struct answer *a, const struct peak *m);
/* The model that was asked for: a preset, a file, or the shapes of a GPT. 0, or an exit code. */
int model_find(const char *form, const struct asked *q, struct napkin_model *m, const char **name);

/* Runs of one's own (napkin_loss.c): lines of a file, or the folder of a run or of several. *runs: to be freed, in any
 * case. 0, or an exit code. */
enum { MOST_RUNS = 10000 };
enum runs_kind {
    RUNS_FINISHED, /* parameters, tokens, held-out loss */
    RUNS_CURVES,   /* the same at every evaluation */
    RUNS_RATES,    /* channels and learning rate, in place of parameters and tokens */
};
int runs_get(const char *form, const struct asked *q, enum runs_kind kind, struct napkin_run **runs, int *n_runs);
/* Those of folders (napkin_folder.c). False: recorded. */
bool runs_of_folder(const char *path, enum runs_kind kind, struct napkin_run *runs, int *n_runs);

/* Forms. */
int form_time(const struct asked *q, struct answer *a);
int form_fit(const struct asked *q, struct answer *a);
int form_flops(const struct asked *q, struct answer *a);
int form_mfu(const struct asked *q, struct answer *a);
int form_references(const struct asked *q, struct answer *a);
int form_memory(const struct asked *q, struct answer *a);
int form_activations(const struct asked *q, struct answer *a);
int form_intensity(const struct asked *q, struct answer *a);
int form_chinchilla(const struct asked *q, struct answer *a);
int form_repeat(const struct asked *q, struct answer *a);
int form_lifetime(const struct asked *q, struct answer *a);
int form_loss(const struct asked *q, struct answer *a);
int form_mutransfer(const struct asked *q, struct answer *a);

#endif

/* infer.h: the cost of inference: a prompt at once (prefill), then token by token on a cache of keys and values
 * (decode).
 *
 * The functions that generate text (tl_model_next on a tl_cache) run on meta. A decode step at n tokens costs a + b
 * n, so the mean over the tokens of a text is that of its first and its last. */
#ifndef PLAN_INFER_H
#define PLAN_INFER_H

#include "plan/plan_target.h"

struct infer_question {
    struct settings settings; /* model, recipe, batch (sequences), seq (tokens of a prompt) */
    struct plan_target target;
    int64_t n_new; /* tokens that follow, of each sequence */
};

struct infer_part {                /* one pass */
    count flops, bytes;            /* bytes: read and written */
    double arithmetic_s, memory_s; /* at the peaks; at the bandwidth; 0: not known */
    double roofline_s;             /* op by op */
    double predicted_s;            /* by the machine's own measurements; 0: there are none */
};

/* The model with its weights kept in fewer bits, and multiplied in bf16. */
struct infer_format {
    const char *name;
    double bits; /* of a weight, with its share of the block's scale */
    double weights_bytes;
    double decode_s; /* of a step, at least; 0: not known */
};
enum { INFER_FORMATS = 5 };

struct infer_answer {
    tl_model_config config;
    uint64_t weights_bytes, cache_bytes, cache_token_bytes; /* token: of one token of one sequence */
    uint64_t held_bytes, reserved_bytes;                    /* at the peak */
    enum price_verdict verdict;
    struct infer_part prefill, first, last; /* decode: of the first and of the last token, all sequences together */
    double prefill_tokens_per_s, decode_s, decode_tokens_per_s; /* decode_s: the mean of a step */
    /* Batches from which on a decode step is bound by arithmetic: its products with weights alone, and all of it. 0:
     * never, since every sequence has its own cache; -1: unknown */
    int64_t compute_bound_products, compute_bound_all;
    int64_t largest_batch; /* that fits; 0: none; -1: not known */
    const char *narrow;    /* products that the recipe makes by rounding at every use: "fp8"; NULL: none */
    struct infer_format formats[INFER_FORMATS];
};

/* False: recorded. */
bool infer_price(const struct infer_question *q, struct infer_answer *answer);
json_t *infer_json(const struct infer_question *q, const struct infer_answer *answer);

#endif

/* serve.h: a model in use, by arithmetic: weights and caches in narrow formats, on several devices, for a batch that
 * changes all the time.
 *
 * infer.h prices what Tally's own functions do; this bounds what an inference server could do at best. A step of
 * decoding reads every weight once and the cache of every sequence, and multiplies; it takes the longer of the two, and
 * the messages of tensor parallelism besides. */
#ifndef PLAN_SERVE_H
#define PLAN_SERVE_H

#include <jansson.h>

#include "plan/napkin.h"
#include "plan/plan_target.h"

struct serve_format {
    const char *name;
    double bits;                 /* of a number, with its share of the block's scales */
    enum hardware_quantity peak; /* products at this peak, where the chip has it; otherwise in bf16 */
    const char *note;
};
extern const struct serve_format serve_formats[]; /* of weights; ends with a row without a name */
extern const struct serve_format serve_caches[];  /* of keys and values */
/* NULL: recorded, with a suggestion. */
const struct serve_format *serve_format_find(const struct serve_format *list, const char *name);

struct serve_options {
    const char *weights, *cache; /* formats; NULL: bf16 */
    int64_t page;                /* tokens in a block of the cache; 0: SERVE_PAGE */
    int64_t chunk;               /* tokens of prompts that are processed at once; 0: SERVE_CHUNK */
    double latency_s;            /* that a token may take; 0: any */
    double price_per_hour;       /* of a device; 0: not given */
    const char *draft;           /* a preset that guesses tokens; NULL: none */
    int64_t draft_tokens;        /* guessed at a time */
    double acceptance;           /* of a guess */
};
enum { SERVE_PAGE = 16, SERVE_CHUNK = 8192, SERVE_POINTS = 24 };

struct serve_question {
    tl_model_config config;
    double prompt, n_new; /* tokens of a request */
    double devices;       /* that divide the model (tp) */
    const struct plan_target *target;
    struct serve_options options;
};

struct serve_point {
    double batch, decode_s; /* sequences; of a step, with caches half filled by new tokens */
    double tokens_per_s;    /* of all sequences */
    double served_per_s;    /* the same when prompts of new requests take their share of the time */
    double money;           /* for a million new tokens, with their prompts; 0: not known */
    bool is_compute;        /* bound by arithmetic */
};

struct serve_answer {
    const struct serve_format *weights, *cache;
    bool is_wide;                                        /* the chip has no such products: they are in bf16 */
    double weights_bytes, cache_token_bytes, work_bytes; /* on each device; work: activations of a chunk, logits */
    double sequence_bytes, page_waste;      /* of a whole request, in pages; the share of it that stays empty */
    double prefill_s, prefill_tokens_per_s; /* of one prompt */
    double largest_batch, latency_batch;    /* that fit; that also keep the latency. 0: none; -1: not known */
    int n_points;
    struct serve_point point[SERVE_POINTS];     /* batches 1, 2, 4, ... and the largest */
    double guessed, draft_s, verify_s, speedup; /* tokens of a round; times at batch 1; 0: no draft */
};

/* False: recorded. Without the chip's speed there are bytes alone. */
bool serve_price(const struct serve_question *q, struct serve_answer *a);
struct serve_point serve_at(const struct serve_question *q, const struct serve_answer *a, double batch);
json_t *serve_json(const struct serve_question *q, const struct serve_answer *a);

#endif

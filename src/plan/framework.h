/* framework.h: what other frameworks hold for a run: `tally plan --as NAME`.
 *
 * FLOPs and ops are those of the model, whoever computes them; bytes are not. One row of figures describes each
 * framework, and one closed form turns them into bytes. On one rank of tp, cp, dp and pp:
 *
 *   P  parameters of the stage, of which 1/tp are here; E of them are embedding and head
 *   n  ranks of dp and cp that divide what the sharding divides (zero1: states, zero2: gradients, zero3: weights)
 *   T  tokens of a micro-batch here: batch / dp x seq / cp;   L  layers of the stage;   f  micro-batches in flight
 *   C  channels, A heads x head size, K heads of keys x head size, F width of the MLP, H heads, S seq, V vocabulary
 *
 *   weights      P w            gradients   P g          states   P m         each over n where it is divided
 *   copies       E 2 + two blocks of 2 (gathered), or P 2 (autocast keeps a copy of every weight)
 *   activations  f T L (stream C + (heads A + kv K + ff F + lines H + scores H S) / tp + flat), by policy
 *   loss         T V / tp l, or a layer that is recomputed, if that is more: they do not come together
 *   buffers      T (the same sum), of which there is one
 *   reserved     all of these x (1 + o) + x: what the framework's allocator takes beyond them
 *
 * `stream` is divided by tp only with sp. The first stage has f = min(pp, m) of m micro-batches in flight, the last
 * one has the loss; the larger of the two counts. docs/planning.md names the source of every figure, and
 * tests/test_rows.c compares the sums with published peaks. */
#ifndef PLAN_FRAMEWORK_H
#define PLAN_FRAMEWORK_H

#include "plan/layout.h"

/* Bytes of a token in one layer, for each element of these widths. */
struct framework_kept {
    double stream, heads, kv, ff; /* of channels; of all heads; of the heads of keys; of the MLP */
    double lines, scores, flat;   /* for each head; for each head and key; for each token */
};
/* How the settings' checkpointing is spelled there. */
enum framework_policy { FRAMEWORK_NONE, FRAMEWORK_SELECTIVE, FRAMEWORK_FULL, FRAMEWORK_POLICIES };
/* Copies of weights in 16 bits. */
enum framework_copies { COPIES_NONE, COPIES_GATHERED, COPIES_ALL };

struct framework {
    const char *name, *recipes, *title; /* recipes: divided by blanks */
    double weights, embedding;          /* bytes of a parameter of a layer, and of embedding and head */
    double gradients, states;           /* states: master copy and moments */
    enum framework_copies copies;
    bool is_late;           /* without accumulation, gradients come after the peak */
    double buckets;         /* bytes of a parameter that ranks of dp sum, beside the gradients */
    double logit, logit_tp; /* bytes of a logit, on one rank and where tp divides them */
    struct framework_kept kept[2][FRAMEWORK_POLICIES]; /* [gated] */
    struct framework_kept once[FRAMEWORK_POLICIES];    /* buffers of which there is one, not for each layer */
    int64_t vocabulary_unit;                           /* logits are made for a multiple of it; 0: of 1 */
    double dropout;                                    /* bytes of a token and channel in a layer, with dropout */
    bool has_tp, has_pp, has_plain, has_gated;         /* axes tp and cp; pp; MLPs without and with a gate */
    const char *shards;                                /* modes that it has, on several devices */
    const char *policies[FRAMEWORK_POLICIES];          /* NULL: there is none */
    double overhead, fixed;                            /* o, and x in bytes */
};
extern const struct framework frameworks[];
extern const int n_frameworks;
/* By name and recipe. NULL: recorded, with those that there are. */
const struct framework *framework_find(const char *name, const char *recipe);

struct framework_held {
    uint64_t weights, gradients, states, copies, activations, loss, buffers;
    uint64_t held, overhead, total; /* the sum; what the allocator takes beyond it; both */
};
/* One device of the layout, which has `s->accum` micro-batches and `s->batch` sequences over all ranks of dp. False:
 * recorded, what the framework cannot do. */
bool framework_price(const struct framework *f, const tl_model_config *config, const struct settings *s,
                     const struct layout *layout, struct framework_held *held);

#endif

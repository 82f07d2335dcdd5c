/* layout.h: a training on many devices: how they divide the work, and what each holds, sends and waits for.
 *
 * N = tp cp dp pp devices (step/mesh.h has their order). Each has 1/tp of every layer's matrices, 1/cp of each
 * sequence, 1/pp of the layers, and 1/dp of the sequences of a micro-batch. n = dp cp devices hold the same part of
 * the model; sharding divides what they keep, of W bytes of weights, G of gradients, M of master copy and moments
 * (all of one part of the model), with k micro-batches and gradients of g bytes in each:
 *
 *              weights   gradients   master, moments   sent by each device in a step, f = (n - 1) / n
 *     none     W         G           M                 2 f G                    all-reduce
 *     zero1    W         G           M / n             f (G + W)                reduce-scatter, all-gather
 *     zero2    W         G / n       M / n             f (k g + W)
 *     zero3    W / n     G / n       M / n             f k (2 W + g)            weights twice per micro-batch
 *
 * With groups of N ranks (--shard-group) n is N, and across the n' groups a rank sends 2 (n' - 1) / n' G / N more.
 *
 * Each layer and micro-batch, with S = b s h e / cp bytes between two layers (b sequences of s tokens, h channels, e
 * bytes each) and K bytes of a sequence's keys and values in all ranks of cp:
 *
 *     tp       2 all-reduces of S forward, 2 backward, 2 in recomputation
 *     tp, sp   2 all-gathers and 2 reduce-scatters of S forward, 4 and 2 backward; in recomputation 2 more
 *              reduce-scatters, while gathers are done there in place of 2 backward
 *     cp       all-gather of K forward, in recomputation and backward, reduce-scatter of K backward
 *     pp       S forward and backward at each border of stages (S / tp with sp), v times if interleaved
 *
 * Time without the pipeline is T = compute + exposed communication. With p equal stages, m micro-batches and v
 * chunks, a pipeline fills and drains for (p - 1) / (v m) T more, of which zero-bubble schedules keep (F + B - 2 W)
 * / (F + B) (zb1p) or nothing (zbv), for forward F, backward B and its weights' part W. Stages then are idle for (p
 * - 1) / (v m + p - 1) of the time: the bubble. Stages that are not equal, such as one with a large head, wait for
 * the slowest:
 *
 *     least      the longest of: a stage's own micro-batches, and one of every stage before it
 *     expected   the slowest stage's micro-batches, and one of every other stage
 *     bubble     1 - the stages' work / (p x expected)
 *
 *   bound      everything at data sheets' peaks and wires' speeds, all communication hidden: no step is shorter.
 *   expected   products at the share of the peak that trainings reach on this chip, collectives at measured speeds,
 *              LAYOUT_OVERLAP of what a program sends beside computation hidden, as long as there is enough of it.
 *              Tally hides dp (step/buckets.h): sums behind backward, of the last micro-batch before zero2 and not
 *              with
 *              stages; what zero1 and zero2 gather behind the next forward; in zero3 all. Others' programs, which
 *              have
 *              rings, also hide cp and pp. Nobody hides tp.
 */
#ifndef PLAN_LAYOUT_H
#define PLAN_LAYOUT_H

#include "plan/network.h"
#include "plan/plan_target.h"

enum shard_mode { SHARD_NONE, SHARD_ZERO1, SHARD_ZERO2, SHARD_ZERO3, SHARD_COUNT }; /* as the setting has them */
extern const char *const shard_names[SHARD_COUNT];
enum layout_schedule { SCHEDULE_1F1B, SCHEDULE_INTERLEAVED, SCHEDULE_ZB1P, SCHEDULE_ZBV, SCHEDULE_COUNT };
extern const char *const schedule_names[SCHEDULE_COUNT];
bool schedule_find(const char *name, enum layout_schedule *schedule); /* false: recorded */

struct layout {
    int64_t tp, cp, dp, pp;
    int64_t shard_group; /* ranks of dp and cp that divide what is sharded; 0: all of them */
    int64_t chunks;      /* of each stage's layers, with SCHEDULE_INTERLEAVED; else 1 */
    int64_t micro;       /* micro-batches of a step; 0: as many as were priced */
    bool sp;             /* what is between the matrices of tp is divided along the sequence */
    bool has_rings;      /* collectives are rings, as libraries have them; else pairwise, as Tally's own */
    bool is_serial;      /* nothing is sent beside computation */
    enum shard_mode shard;
    enum layout_schedule schedule;
};
enum { LAYOUT_TP, LAYOUT_CP, LAYOUT_DP, LAYOUT_PP, LAYOUT_AXES };
extern const char *const layout_axis_names[LAYOUT_AXES];

/* Share of communication that hides behind computation, in expectations. */
#define LAYOUT_OVERLAP 0.8

/* Seconds of a step of the whole model on one device: the parts that sharding of states divides, and the rest. Of the
 * update, `shared` is what ranks of tp and of sharded states do alike: Muon's work on whole matrices. */
struct layout_work {
    struct layout_seconds {
        double compute_s, memory_s;     /* the two lower bounds: at peaks, at the fastest memory */
        double roofline_s, predicted_s; /* 0: not known */
    } steps, update, shared;
    double parameters;       /* of the whole model */
    double forward, weights; /* F and W as shares of F + B, by FLOPs */
    bool is_known;           /* the seconds are: of no dtype that the step needs the peak is missing */
};

struct layout_estimate {
    bool is_exact; /* bytes held and sent are those of the trainer's own steps, and its work is the price's */
    uint64_t weights_bytes, gradients_bytes, states_bytes; /* kept by one device; states: master copy and moments */
    uint64_t gathered_bytes; /* parameters and gradients that others keep, while they are used */
    uint64_t other_bytes;    /* activations, temporaries, workspace, data: their own peak */
    uint64_t total_bytes;    /* the most at one time, on the rank that holds the most */
    uint64_t block_bytes;    /* if exact: of these, in blocks */
    double in_flight;        /* micro-batches whose activations the first stage holds */
    struct network_cost axis[LAYOUT_AXES], sum;
    bool has_network;   /* some group is in several nodes */
    double bubble;      /* of the time, the share in which stages of pp are idle, on average */
    double even_bubble; /* the same if all of them had equal work */
    double bound_s;     /* no step is shorter; 0: not known, as below */
    double roofline_s;  /* Tally's own ops at data sheets' peaks, all communication hidden */
    double expected_s;
    double compute_s, exposed_s, hidden_s; /* of expected_s: computing with the bubble, waiting; and beside it */
};

/* Why a model cannot be divided like this, in words; NULL: it can. `buffer` has room for 160 bytes. */
const char *layout_refusal(const struct layout *l, const tl_model_config *config, const struct settings *s,
                           int64_t micro, char *buffer);

/* Takes the axes and the sharding from the settings; dp is what the others leave of the devices (0: as many as the
 * settings need). False: recorded, if they do not divide. */
bool layout_take(struct layout *l, const struct settings *s, int64_t *n_devices);
bool layout_has_no_ep(const struct settings *s); /* which no plan has; false: recorded */
/* Ranks among which sharding divides what one of them would hold. */
static inline int64_t layout_sharded(const struct layout *l) { return l->shard_group ? l->shard_group : l->dp * l->cp; }
/* The settings of one device that has the whole model, with the sequences of one rank of dp. False: recorded. */
bool layout_rank_settings(const struct layout *l, const struct settings *s, struct settings *rank);

/* Prices of stages and seconds of one price, so that layouts of one run share them. Starts as zeros. */
struct layout_cache {
    const struct price *priced; /* whose seconds are these */
    struct layout_work work;
    struct {
        int64_t batch, seq, layers;
        uint64_t passing_bytes;
    } row[64];
    int n;
};

/* The price is that of the whole model on one device, with the micro-batches of one rank of dp. `cache`: of one run, or
 * NULL. False: recorded. */
bool layout_estimate(struct layout_estimate *e, const struct price *price, const struct plan_target *target,
                     const struct network *net, const struct layout *layout, struct layout_cache *cache);

/* Replaces formulas by prices, where a trainer can run the layout: one process prices a rank of each class on meta,
 * with groups whose other processes do not exist. `s` is the run, with the sequences of all ranks in its micro-batches.
 * Changes nothing if there is no such trainer yet, or if the price would take more than LAYOUT_CALLS. False: recorded.
 */
bool layout_refine(struct layout_estimate *e, const struct settings *s, const struct plan_target *target,
                   const struct layout *layout);
/* Calls of one step's sums over ranks. Each rank adds the parts of all others one by one, in every bucket. */
#define LAYOUT_CALLS 200000
/* The ranks that stand for all others: `ranks` receives at most LAYOUT_CLASSES. Returns how many. Ranks of dp cost the
 * same. So do, along tp, cp and pp, the first ones, and the last ones; between these two, those of tp and cp cost as
 * much as the last, and stages of pp hold no more than the first. If tp divides everything, also the vocabulary, into
 * equal parts (`is_even`), its first ranks stand for all: they hold and send as much as others, and do a little more,
 * since they alone count what all of them hold when gradients are clipped. */
enum { LAYOUT_CLASSES = 8 };
int layout_classes(const struct layout *layout, bool is_even, int ranks[LAYOUT_CLASSES]);

/* Opens a model whose sizes are about to change: a folder's weights have fixed ones, its config.json has not. */
bool layout_model_open(struct settings *s, tl_model_config *config);

#endif

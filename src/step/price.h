/* price.h: the cost of a run on a device, found by walking through it on meta under that device's memory rules
 * (walk.h).
 *
 * Nothing here knows what a model is: bytes and FLOPs are those of the ledger. */
#ifndef STEP_PRICE_H
#define STEP_PRICE_H

#include "account/ledger.h"
#include "step/settings.h"
#include "step/walk.h"
#include "tally.h"

enum price_verdict {
    PRICE_FITS,
    PRICE_FITS_TIGHTLY, /* the pool must return unused segments to the device on the way */
    PRICE_TOO_LARGE,
    PRICE_UNKNOWN /* the amount of memory is unknown */
};

struct price_kind {
    tl_ledger *ledger; /* of the second step; of the first one of every other kind; NULL: it never comes */
    int64_t count;     /* in the whole run */
};

struct price {
    struct settings settings;
    int rank;             /* of the run's processes, whose price it is */
    tl_device *device;    /* on meta */
    uint64_t limit_bytes; /* that the pool may reserve; 0: not known */
    tl_model_config config;
    int64_t n_parameters, n_active, n_trained; /* active: that a token meets */
    int64_t n_muon;                            /* of the trained ones, those that Muon updates */
    int64_t n_tokens;                          /* of a step, of all processes */
    struct price_kind kind[KIND_COUNT];
    uint64_t held_bytes, allocated_bytes, reserved_bytes; /* the most of the whole run */
    enum step_kind peak_kind;                             /* the kind that holds the most */
    enum price_verdict verdict;
    bool is_steady; /* see walk.h: is_settled */
};

/* The price of a run on a meta device whose pool may reserve that many bytes (0: unknown). False: recorded, and
 * nothing is left behind. A run that does not fit is priced all the same. */
bool price_make(struct price *price, const struct settings *s, tl_device *device, uint64_t limit_bytes);
/* The same with a fifth of the work: steps, peaks and verdict are exact, the counts of samples are too low. */
bool price_sketch(struct price *price, const struct settings *s, tl_device *device, uint64_t limit_bytes);
/* The sketch of one of the run's processes. */
bool price_sketch_rank(struct price *price, const struct settings *s, tl_device *device, uint64_t limit_bytes,
                       int rank);
/* Whether a run fits, and nothing else: one that does not is given up as soon as it is refused memory. False:
 * recorded. */
bool price_fits(const struct settings *s, tl_device *device, uint64_t limit_bytes, int rank, bool *fits);
void price_free(struct price *price);

const char *price_verdict_text(enum price_verdict verdict);

/* The memory live at the peak: cells of (path, purpose) of a price's own device. */
const struct held_window *price_window(const struct price *price, enum step_kind kind);

/* The price of the whole run as a text, tally.run/1; free() it. NULL: recorded, with advice if memory is short
 * (advice.h). */
char *price_text(const struct settings *s);
char *price_text_of(const struct settings *s, int rank); /* one of several processes; price_text is of the first */
char *price_text_on(const struct settings *s, tl_device *device); /* under the rules of another device; no advice */
/* The same for a run that has begun: it has done `from` steps and `before` of each kind (NULL: none), and ledgers are
 * those of a process that begins after `walked` steps. */
char *price_text_rest(const struct settings *s, const struct kinds *before, int64_t from, int64_t walked, int rank);

#endif

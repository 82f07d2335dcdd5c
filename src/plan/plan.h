/* plan.h: what follows from a price: where bytes and FLOPs are, what they are called by whom, how long it takes at least, what a whole
 * training costs, what stops it from growing, and what to change.
 *
 * Counts of one device are the ledger's, exact. What needs more than that says so: times come from a sheet, a training on several devices
 * is an estimate on top of the exact count of one. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "plan/price.h"
#include "plan/shard.h"

/* Rows of a step's ledger, added up under one name. */
struct plan_group {
    char name[80];
    uint64_t calls;
    count flops[TL_PHASE_COUNT];
    count bytes; /* read and written */
    uint64_t held[TL_PURPOSE_COUNT], held_bytes; /* modules: live at the peak */
    /* ops alone */
    char dtype[12];
    double intensity; /* FLOP per byte */
    double ridge;     /* of the device for this op's units; 0: not known */
    double least_s;   /* max(FLOPs / peak, bytes / bandwidth); 0: not known */
    bool is_compute_bound;
};

struct plan_groups {
    struct plan_group *group;
    size_t n, capacity;
};

enum plan_convention { PLAN_PALM, PLAN_CAUSAL, PLAN_PRODUCTS, PLAN_HARDWARE, PLAN_N_CONVENTIONS };
struct plan_convention_info {
    const char *name, *rule;
};
extern const struct plan_convention_info plan_conventions[PLAN_N_CONVENTIONS];

/* Seconds of one step on one device. 0: not known. */
struct plan_time {
    double arithmetic_s; /* a bound that nothing can beat: FLOPs at the sheet's peaks, nothing else */
    double roofline_s;   /* every op at the sheet's peak or bandwidth, whichever is slower, one after the other */
    double predicted_s;  /* by this machine's own measurements, where there are any */
    double step_s;       /* the best known of these, with what devices add */
};

struct plan_run { /* of the whole training */
    double tokens, steps, seconds, device_hours, energy_kwh, money;
};

enum plan_axis { PLAN_BATCH, PLAN_SEQ, PLAN_LAYERS, PLAN_CHANNELS, PLAN_N_AXES };

struct plan_growth {
    int64_t last, next;  /* the last size that fits, 0: none; the next one, 0: nothing stops it */
    int n_priced;
    uint64_t next_bytes; /* that the next one needs */
    tl_purpose purpose;  /* what it is mostly for */
    char module[80];     /* and whose */
    double share;        /* of what it holds */
    bool is_proven;      /* nothing between `next` and sizes whose blocks alone are too many fits */
};

struct plan_options {
    int64_t n_devices;
    enum shard_mode shard;
    double tokens;         /* of the whole training; 0: as the settings say */
    double price_per_hour; /* of one device; 0: not known */
    double link;           /* B/s of one device, one way; 0: the chip's, or a network's between nodes */
    uint64_t memory_bytes; /* 0: the device's */
    bool has_growth, has_advice;
};

struct plan_advice {
    char text[256];
};

struct plan {
    struct price price;
    struct plan_options options;
    struct plan_groups modules, ops, dtypes;
    count flops[TL_PHASE_COUNT], total_flops, bytes, convention[PLAN_N_CONVENTIONS]; /* of a step */
    double peak; /* FLOP/s of the recipe's products; 0: not known */
    const char *peak_name;
    struct plan_time time;
    struct plan_run run;
    struct shard_estimate shard;
    struct plan_growth growth[PLAN_N_AXES];
    struct plan_advice advice[6];
    int n_advice;
    double planned_s; /* how long all this took */
};

bool plan_make(struct plan *plan, const struct settings *s, const struct plan_options *options);
void plan_free(struct plan *plan);

/* tally.plan/1; NULL: recorded. */
json_t *plan_json(const struct plan *plan);

/* "model.12.mlp.up_proj" -> "model.*.mlp" */
void plan_module_name(char *name, size_t size, const char *path);
/* What a price needs of one device: exact for one, an estimate for several. */
uint64_t plan_bytes(const struct price *price, const struct plan_options *options);
enum price_verdict plan_verdict(const struct price *price, const struct plan_options *options);

#endif

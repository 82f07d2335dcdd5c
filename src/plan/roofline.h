/* roofline.h: ops as points under a machine's roof: x is FLOPs per byte, y is FLOP/s.
 *
 * Points left of the ridge (peak / bandwidth) are bound by memory, points right of it by arithmetic. Bytes are the
 * ledger's: compulsory traffic. An op whose data a cache still holds can therefore be above the memory's slope, but
 * never above the caches'. */
#ifndef PLAN_ROOFLINE_H
#define PLAN_ROOFLINE_H

#include <jansson.h>

#include "plan/machine.h"
#include "plan/plan_target.h"
#include "plan/predict.h"
#include "step/settings.h"

enum roofline_set { ROOFLINE_STANDARD, ROOFLINE_TRAINING, ROOFLINE_INFERENCE, ROOFLINE_SETS };
extern const char *const roofline_set_names[ROOFLINE_SETS];

struct roofline_point {
    enum roofline_set set;
    char name[48]; /* "matmul", "gelu 4Mi" */
    int phase;     /* tl_phase */
    tl_dtype dtype;
    uint64_t calls;
    double flops, bytes, seconds; /* of all calls */
    double intensity, rate;       /* flops / bytes, flops / seconds */
    double roof;                  /* FLOP/s that the machine allows at this intensity */
    bool is_memory_bound;
};

struct roofline {
    struct machine machine;
    struct predict_machine known;
    struct roofline_point *points;
    int n_points;
    double step_s, token_s; /* of a training step, of the forward of one token; 0: not measured */
    bool is_sheet;          /* of a chip that is not here: shapes alone, every op at its roof, by the data sheet */
};

/* Takes over the machine, and measures what the options select: the standard set, a step of the settings' run, its
 * inference token by token. False: recorded, and everything is freed. */
bool roofline_make(struct roofline *r, struct machine *machine, const struct settings *s,
                   const bool sets[ROOFLINE_SETS]);
/* The same for a chip of the table, priced on meta: no op is faster. */
bool roofline_of_chip(struct roofline *r, const struct plan_target *target, const struct settings *s,
                      const bool sets[ROOFLINE_SETS]);
void roofline_free(struct roofline *r);

json_t *roofline_json(const struct roofline *r);
/* A self-contained picture: SVG, malloc'ed. NULL: no memory, recorded. */
char *roofline_svg(const struct roofline *r, const char *title);

#endif

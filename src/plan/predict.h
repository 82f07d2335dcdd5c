/* predict.h: seconds from counts: how long a priced step will take on a machine.
 *
 *     time(op) = (max(FLOPs / peak, bytes / bandwidth) + host_call_s) / efficiency(op, dtype, size)
 *     step     = max(sum of time(op) (1 + rest_share) + calls x call_s, calls x host_call_s)
 *
 * where rest_share and call_s are 0 for a device that works on its own: its samples are made to add up to steps.
 *
 * The efficiency of an op at a size is interpolated between the nearest sizes at which the profile has measured it
 * (kriging: predict.c). Besides FLOPs and bytes it depends on the length of the innermost loop, which follows from
 * the model: the size of heads in attention, for example; and on a GPU on the power of two that divides the widths of
 * products, whose fast kernels need rows of 16 bytes, and in attention on what tiles of 64 and 128 queries compute
 * beyond the last one. Without a profile there is no prediction, only the lower bound
 * of any step:
 *
 *     bound    = max(sum over dtypes of FLOPs / peak, bytes that must move / fastest memory)
 */
#ifndef PLAN_PREDICT_H
#define PLAN_PREDICT_H

#include "plan/hardware.h"
#include "account/ledger.h"
#include "plan/machine.h"

/* The known figures of a machine. A peak of 0 is unknown; FLOPs of that dtype then take no time in the bound. */
struct predict_machine {
    double peak[TL_DTYPE_COUNT]; /* FLOP/s */
    double bandwidth;            /* B/s of memory, beyond all caches */
    double fastest;              /* B/s of the fastest level of memory; 0: not known */
    const struct machine *profile;
};
struct predict_machine predict_machine_of(const struct machine *p); /* which must outlive it */
struct predict_machine predict_machine_of_chip(const struct hardware *chip);
/* The machine behind a device: by its stored profile, which goes to *profile (machine_free it in any case), if that is
 * of this chip; otherwise by the chip's data sheet. False: neither is known. Nothing is recorded. */
bool predict_machine_find(struct predict_machine *m, struct machine *profile, const char *device, const char *chip);
const char *predict_source(const struct predict_machine *m); /* of a machine's figures, for people */

/* Of the model whose step it is. 0: not known. */
struct predict_shape {
    double head_size, channels, seq, ff;
    bool has_dropout;
};
struct predict_shape predict_shape_of(const tl_model_config *config, int64_t seq);
/* One call of a row, with its share of the row's time. */
struct machine_sample predict_sample(const struct ledger_row *row, const struct predict_shape *shape);

struct prediction {
    double seconds;   /* NAN: there is no profile */
    double bound_s;   /* no step can be shorter */
    double compute_s; /* sum of FLOPs / peak */
    double memory_s;  /* bytes that must move / fastest memory */
    double peak;      /* FLOP/s of the matrix products, with each dtype at its own peak; 0: not known */
    double sampled;   /* share of the seconds that rest on samples of the same op and dtype; 0 without a profile */
};

/* Whether an op multiplies matrices. The head's loss does, beside a little else. */
bool predict_is_product(const char *op);

/* For one step, or whatever the rows belong to. */
struct prediction predict_rows(const struct predict_machine *m, const struct predict_shape *shape,
                               const struct ledger_row *rows, size_t n_rows);
struct prediction predict_ledger(const struct predict_machine *m, const struct predict_shape *shape,
                                 const tl_ledger *ledger);
/* The same for a tally.ledger/1, or for the step of a tally.run/1, whose settings give the shape. False: recorded. */
bool predict_json(const struct predict_machine *m, const json_t *json, struct prediction *prediction);

/* Seconds of the kernels of one row, all its calls; NAN without a profile, 0 for a row that runs no kernel. */
double predict_row(const struct predict_machine *m, const struct predict_shape *shape, const struct ledger_row *row);
/* The shortest that work could take: max(FLOPs / peak, bytes / bandwidth), with memory beyond all caches: the roof of a
 * roofline. A dtype without a peak of its own, or none at all (TL_DTYPE_COUNT), computes as f32. */
double predict_floor(const struct predict_machine *m, int dtype, double flops, double bytes);
double predict_roof(const struct predict_machine *m, const struct ledger_row *row);
/* Whether the peak for a row's FLOPs is known: of a float its own, since no figure is taken from another dtype or chip.
 * Integers (the orders of a router) have none, and count as f32. */
bool predict_knows(const struct predict_machine *m, const struct ledger_row *row);

#endif

/* plan_sheet.c: a plan as a sheet of figures: the answer first, then what it rests on. */
#include "cli/plan_sheet.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/number.h"
#include "cli/cli.h"

/* ---- The answer ---- */

/* "fits on 8 x H100 SXM5: 22.07 GiB of 78.95 GiB on each, 56.88 GiB to spare" */
static void verdict_line(struct sheet *s, const struct plan *plan) {
    const uint64_t limit = plan_target_limit(&plan->target), need = plan_needed(plan);
    const enum price_verdict verdict = plan_verdict(plan);
    const char *each = plan_is_many(plan) ? " on each" : "";
    char on[160], a[32], b[32], c[32];
    bytes_text((double)need, a), bytes_text((double)limit, b);
    bytes_text(need > limit ? (double)(need - limit) : (double)(limit - need), c);
    if (plan_is_many(plan))
        number_print(on, sizeof on, "%" PRId64 " x %.60s", plan->options.n_devices, plan_chip_name(plan));
    else number_print(on, sizeof on, "%.60s", plan_chip_name(plan));
    if (plan->as)
        number_print(on + strlen(on), sizeof on - strlen(on), ", as %s holds it (an estimate)", plan->as->name);
    if (verdict == PRICE_UNKNOWN) sheet_line(s, SHEET_BRIEF, "needs %s%s on %s, whose memory is unknown", a, each, on);
    else if (verdict == PRICE_TOO_LARGE)
        sheet_line(s, SHEET_BRIEF, "TOO LARGE for %s: needs %s of %s%s, %s too much", on, a, b, each, c);
    else if (verdict == PRICE_FITS_TIGHTLY)
        sheet_line(s, SHEET_BRIEF, "fits tightly on %s: the pool would take %s of %s, and has to release segments", on,
                   a, b);
    else sheet_line(s, SHEET_BRIEF, "fits on %s: %s of %s%s, %s to spare", on, a, b, each, c);
}

/* Whose hours a run takes. The table has GPUs, and chips of other makers that are called otherwise. */
static const char *hours_of(const struct plan_target *target) {
    const char *vendor = target->chip ? target->chip->vendor : NULL;
    return vendor && (!strcmp(vendor, "NVIDIA") || !strcmp(vendor, "AMD")) ? "GPU-hours" : "device-hours";
}

static void bill_row(struct sheet *s, const char *name, const char *label, enum sheet_unit unit, const double *x,
                     const struct plan_expectation *e) {
    if (!(x[0] > 0)) return;
    sheet_row(s, SHEET_BRIEF, name, label);
    sheet_real(s, unit, x[0]);
    sheet_real(s, unit, e->has_range ? x[1] : 0);
    sheet_real(s, unit, e->has_range ? x[2] : 0);
    sheet_real(s, unit, x[3]);
}

/* The bound is that of the shortest possible step: no training takes less. */
static void bill_rows(struct sheet *s, const struct plan *plan, double bound_s) {
    const struct plan_expectation *e = &plan->expected;
    const struct plan_options *o = &plan->options;
    const struct bill *b = &e->bill, *low = &e->least, *high = &e->most;
    const double days = plan->run.whole_steps * bound_s / DAY_S, hours = 24 * days * (double)o->n_devices;
    const double share = hours > 0 && b->device_hours > 0 ? hours / b->device_hours : 0;
    const bool is_asked = o->terms.carbon > 0 || o->terms.pue > 0 || o->terms.host_watts > 0;
    bill_row(s, "days", "training", SHEET_DAYS, (double[]){b->days, low->days, high->days, days}, e);
    bill_row(s, "device_hours", hours_of(&plan->target), SHEET_AMOUNT,
             (double[]){b->device_hours, low->device_hours, high->device_hours, hours}, e);
    bill_row(s, "money", NULL, SHEET_DOLLARS, (double[]){b->money, low->money, high->money, hours * o->price_per_hour},
             e);
    if (!is_asked && !(b->money > 0)) return;
    bill_row(s, "energy_kwh", "energy, kWh", SHEET_AMOUNT,
             (double[]){b->energy_kwh, low->energy_kwh, high->energy_kwh, share * b->energy_kwh}, e);
    bill_row(s, "co2_kg", "CO2, kg", SHEET_AMOUNT, (double[]){b->co2_kg, low->co2_kg, high->co2_kg, share * b->co2_kg},
             e);
}

static void basis_line(struct sheet *s, const struct plan *plan) {
    const struct bill_terms *t = &plan->options.terms;
    char more[120] = "", published[240] = "as published runs reach on other chips; nine of ten are within the range",
         a[32];
    const struct mfu_row *row = plan->expected.row;
    int n = 0;
    if (row)
        number_print(published, sizeof published,
                     "as published runs reach (%.3g %% MFU for %s parameters, %s); nine of ten are within the range",
                     100 * row->mfu, amount_text(row->parameters, a), row->source);
    if (t->goodput > 0) n += number_print(more, sizeof more, "; %.3g of the time counts", t->goodput);
    if (t->pue > 0) n += number_print(more + n, sizeof more - (size_t)n, "; PUE %.3g", t->pue);
    if (t->host_watts > 0)
        number_print(more + n, sizeof more - (size_t)n, "; %.0f W of the host for each", t->host_watts);
    sheet_line(s, SHEET_BRIEF, "expected: %s%s; bound: no step is shorter",
               t->mfu > 0                   ? "at the given MFU"
               : plan->time.predicted_s > 0 ? "from this machine's measurements"
                                            : published,
               more);
}

static void answer_section(struct sheet *s, const struct plan *plan) {
    const struct plan_expectation *e = &plan->expected;
    const double tokens = plan_step_tokens(plan),
                 bound_s = plan_is_many(plan) ? plan->layout.bound_s : plan->time.bound_s;
    sheet_section(s, "answer", NULL, SHEET_BRIEF, "expected from to bound");
    verdict_line(s, plan);
    sheet_row(s, SHEET_SAID, "verdict", NULL), sheet_text(s, price_verdict_text(plan_verdict(plan)));
    sheet_row(s, SHEET_SAID, "devices", NULL), sheet_whole(s, SHEET_NUMBER, (count)plan->options.n_devices);
    sheet_row(s, SHEET_SAID, "device_bytes", NULL), sheet_whole(s, SHEET_BYTES, plan_needed(plan));
    sheet_row(s, SHEET_SAID, "limit_bytes", NULL);
    const uint64_t limit = plan_target_limit(&plan->target);
    if (limit) sheet_whole(s, SHEET_BYTES, limit);
    else sheet_text(s, "");
    sheet_row(s, SHEET_SAID, "step_tokens", NULL), sheet_whole(s, SHEET_NUMBER, (count)tokens);
    sheet_row(s, SHEET_SAID, "tokens", NULL), sheet_real(s, SHEET_AMOUNT, plan->run.tokens);
    if (!(e->step_s > 0)) {
        sheet_line(s, SHEET_BRIEF,
                   "time: unknown; there is no peak or bandwidth for %s (`tally calibrate`, `tally devices`, "
                   "--hardware)",
                   plan->target.name);
        return;
    }
    bill_rows(s, plan, bound_s);
    const struct plan_expectation plain = {.has_range = false};
    bill_row(s, "step_s", "a step", SHEET_SECONDS, (double[]){e->step_s, 0, 0, bound_s}, &plain);
    bill_row(s, "tokens_per_s", "tokens/s", SHEET_AMOUNT,
             (double[]){tokens / e->step_s, 0, 0, bound_s > 0 ? tokens / bound_s : 0}, &plain);
    bill_row(s, "mfu", "MFU by PaLM's rule", SHEET_SHARE, (double[]){e->mfu, 0, 0, 0}, &plain);
    basis_line(s, plan);
}

/* ---- All of it ---- */

static void advice_section(struct sheet *s, const struct plan *plan) {
    if (!plan->n_advice) return;
    sheet_section(s, "advice", "advice", SHEET_BRIEF, "text");
    for (int i = 0; i < plan->n_advice; i++) sheet_line(s, i < 3 ? SHEET_BRIEF : SHEET_DETAIL, "%s", plan->advice[i]);
}

bool plan_sheet(struct sheet *s, const struct plan *plan) {
    const bool is_large = plan_verdict(plan) == PRICE_TOO_LARGE;
    *s = (struct sheet){0};
    answer_section(s, plan);
    if (is_large) advice_section(s, plan);
    plan_sheet_run(s, plan);
    plan_sheet_memory(s, plan);
    plan_sheet_cost(s, plan);
    plan_sheet_growth(s, plan);
    if (!is_large) advice_section(s, plan);
    return !s->is_broken;
}

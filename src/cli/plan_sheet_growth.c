/* plan_sheet_growth.c: how large a run of a plan may grow, and what more devices do to it. */
#include <inttypes.h>

#include "base/number.h"
#include "cli/cli.h"
#include "cli/plan_sheet.h"

static void growth_line(struct sheet *s, enum fit_axis axis, const struct fit_answer *g) {
    char grows[GROWTH_TEXT], best[64], a[32];
    const char *unproven = g->is_proven ? "" : " (larger ones may fit)";
    if (!g->next.size) {
        sheet_line(s, SHEET_BRIEF, "%-9s no limit up to %" PRId64, fit_axis_names[axis], g->best.size);
        return;
    }
    if (g->best.size) number_print(best, sizeof best, "%" PRId64 " is the largest that fits; ", g->best.size);
    else number_print(best, sizeof best, "no size fits; ");
    if (g->next.limit == FIT_REFUSED)
        sheet_line(s, SHEET_BRIEF, "%-9s %s%" PRId64 ": %s%s", fit_axis_names[axis], best, g->next.size, g->next.why,
                   unproven);
    else
        sheet_line(s, SHEET_BRIEF, "%-9s %s%" PRId64 " needs %s, %s%s", fit_axis_names[axis], best, g->next.size,
                   bytes_text((double)g->next.bytes, a), growth_text(g, grows), unproven);
}

static void scale_line(struct sheet *s, const struct plan *plan) {
    const int64_t fits = plan_scale_fits(plan), binds = plan_scale_binds(plan);
    const struct plan_scale *last = &plan->scale[PLAN_DOUBLINGS - 1];
    char first[64] = "", then[100], at_last[100] = "", a[32];
    if (!fits) number_print(first, sizeof first, "too large for each of up to %" PRId64 "; ", last->devices);
    else if (fits > plan->options.n_devices) number_print(first, sizeof first, "fits from %" PRId64 "; ", fits);
    if (binds) number_print(then, sizeof then, "from %" PRId64 ", communication takes longer than computation", binds);
    else if (last->efficiency > 0)
        number_print(then, sizeof then, "communication can overlap with computation up to %" PRId64, last->devices);
    else number_print(then, sizeof then, "what sending takes is not known (--link)");
    if (last->efficiency > 0)
        number_print(at_last, sizeof at_last,
                     "; each of %" PRId64 " sends %s between nodes and reaches %.4g %% of ideal", last->devices,
                     bytes_text(last->layout.sum.between_bytes, a), 100 * last->efficiency);
    sheet_line(s, SHEET_BRIEF, "%-9s %s%s%s (shard %s, an estimate)", "devices", first, then, at_last,
               shard_names[plan->options.layout.shard]);
}

/* The effect of doubling the devices, each with as many sequences. */
static void scale_section(struct sheet *s, const struct plan *plan) {
    sheet_section(s, "devices", "on more devices", SHEET_DETAIL,
                  "on_each fits sends_inside between a_step tokens/s ideal");
    for (int i = 0; i < PLAN_DOUBLINGS; i++) {
        const struct plan_scale *p = &plan->scale[i];
        char name[32];
        number_print(name, sizeof name, "%" PRId64, p->devices);
        sheet_row(s, SHEET_BRIEF, name, NULL);
        sheet_whole(s, SHEET_BYTES, p->layout.total_bytes);
        sheet_text(s, p->fits ? "yes" : "no");
        sheet_whole(s, SHEET_BYTES, (count)p->layout.sum.inside_bytes);
        sheet_whole(s, SHEET_BYTES, (count)p->layout.sum.between_bytes);
        sheet_real(s, SHEET_SECONDS, p->step_s);
        sheet_real(s, SHEET_AMOUNT, p->tokens_per_s);
        sheet_real(s, SHEET_SHARE, p->efficiency);
    }
}

void plan_sheet_growth(struct sheet *s, const struct plan *plan) {
    if (!plan->has_growth) return;
    sheet_section(s, "growth", "limits of growth", SHEET_BRIEF, "largest next");
    for (int i = 0; i < FIT_N_AXES; i++) {
        const struct fit_answer *g = &plan->growth[i];
        growth_line(s, (enum fit_axis)i, g);
        sheet_row(s, SHEET_SAID, fit_axis_names[i], NULL);
        if (g->best.size) sheet_whole(s, SHEET_NUMBER, (count)g->best.size);
        else sheet_text(s, "");
        if (g->next.size) sheet_whole(s, SHEET_NUMBER, (count)g->next.size);
        else sheet_text(s, "");
    }
    scale_line(s, plan);
    scale_section(s, plan);
}

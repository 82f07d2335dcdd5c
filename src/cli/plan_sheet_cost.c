/* plan_sheet_cost.c: what a plan costs: memory, what is sent, FLOPs, time. */
#include "base/number.h"
#include "cli/cli.h"
#include "cli/plan_sheet.h"

/* ---- Memory ---- */

static void held_row(struct sheet *s, const char *name, uint64_t bytes, uint64_t whole) {
    sheet_row(s, SHEET_BRIEF, name, NULL);
    sheet_whole(s, SHEET_BYTES, bytes);
    sheet_real(s, SHEET_SHARE, whole ? (double)bytes / (double)whole : 0);
}

static void memory_of_one(struct sheet *s, const struct plan *plan, const char *name, const char *title,
                          enum sheet_place place) {
    const struct price *p = &plan->price;
    const struct held_window *w = price_window(p, p->peak_kind);
    sheet_section(s, name, title, place, "bytes share");
    for (int i = 0; i < TL_PURPOSE_COUNT; i++)
        if (w->peak_by_purpose[i])
            held_row(s, tl_purpose_name((tl_purpose)i), w->peak_by_purpose[i], p->reserved_bytes);
    held_row(s, "rounding, gaps, unused", p->reserved_bytes - p->held_bytes, p->reserved_bytes);
    held_row(s, "reserved", p->reserved_bytes, p->reserved_bytes);
    if (p->peak_kind != KIND_STEP) sheet_line(s, SHEET_BRIEF, "the peak occurs during: %s", kind_name(p->peak_kind));
    if (!p->is_steady)
        sheet_line(s, SHEET_BRIEF,
                   "note: the pool does not return to an earlier layout; it may reserve slightly more later");
}

/* What another framework holds, and Tally beside it. */
static void memory_as(struct sheet *s, const struct plan *plan) {
    const struct framework_held *h = &plan->held;
    const struct {
        const char *name;
        uint64_t bytes;
    } rows[] = {
        {"weights", h->weights},      {"gradients", h->gradients},          {"master copy and moments", h->states},
        {"copies in use", h->copies}, {"activations", h->activations},      {"logits, loss, recomputed", h->loss},
        {"buffers", h->buffers},      {"allocator and driver", h->overhead}};
    char own[32];
    sheet_section(s, "memory", "memory of each device at its peak", SHEET_BRIEF, "bytes share");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].bytes) held_row(s, rows[i].name, rows[i].bytes, h->total);
    held_row(s, "peak", h->total, h->total);
    const uint64_t tally = plan_is_many(plan) ? plan->layout.total_bytes : plan->price.reserved_bytes;
    sheet_line(s, SHEET_BRIEF, "%s; Tally itself needs %s", plan->as->title, bytes_text((double)tally, own));
}

void plan_sheet_memory(struct sheet *s, const struct plan *plan) {
    const struct layout_estimate *e = &plan->layout;
    if (plan->as) {
        memory_as(s, plan);
        return;
    }
    if (!plan_is_many(plan)) {
        memory_of_one(s, plan, "memory", "memory at the peak", SHEET_BRIEF);
        return;
    }
    sheet_section(s, "memory", "memory of each device at its peak", SHEET_BRIEF, "bytes share");
    held_row(s, "weights", e->weights_bytes, e->total_bytes);
    held_row(s, "gradients", e->gradients_bytes, e->total_bytes);
    held_row(s, "master copy and moments", e->states_bytes, e->total_bytes);
    if (e->gathered_bytes) held_row(s, "gathered while in use", e->gathered_bytes, e->total_bytes);
    held_row(s, "everything else", e->other_bytes, e->total_bytes);
    held_row(s, "peak", e->total_bytes, e->total_bytes);
    memory_of_one(s, plan, "memory_of_one", "if one device had the whole model", SHEET_DETAIL);
}

static void sent_section(struct sheet *s, const struct plan *plan) {
    static const char *const what[LAYOUT_AXES] = {"tp: activations", "cp: keys and values", "dp: gradients, weights",
                                                  "pp: activations"};
    const struct layout_estimate *e = &plan->layout;
    if (!plan_is_many(plan)) return;
    sheet_section(s, "sent", "each device sends in a step", SHEET_DETAIL, "inside_a_node between_nodes bound expected");
    for (int i = 0; i <= LAYOUT_AXES; i++) {
        const struct network_cost *cost = i < LAYOUT_AXES ? &e->axis[i] : &e->sum;
        if (!(cost->inside_bytes + cost->between_bytes > 0)) continue;
        sheet_row(s, SHEET_BRIEF, i < LAYOUT_AXES ? what[i] : "all", NULL);
        sheet_whole(s, SHEET_BYTES, (count)cost->inside_bytes);
        sheet_whole(s, SHEET_BYTES, (count)cost->between_bytes);
        sheet_real(s, SHEET_SECONDS, fmax(cost->inside_s, cost->between_s));
        sheet_real(s, SHEET_SECONDS, cost->expected_s);
    }
    if (!plan->options.layout.has_rings && e->has_network)
        sheet_line(s, SHEET_BRIEF,
                   "each device sends its parts to every other one, in a fixed order of additions; with --rings, as "
                   "libraries reduce, less would go between nodes");
}

/* ---- FLOPs ---- */

static tl_purpose most_of(const struct plan_group *g) {
    int purpose = 0;
    for (int i = 0; i < TL_PURPOSE_COUNT; i++)
        if (g->held[i] > g->held[purpose]) purpose = i;
    return (tl_purpose)purpose;
}

static void modules_section(struct sheet *s, const struct plan *plan) {
    sheet_section(s, "modules", "by module (* is every layer)", SHEET_DETAIL,
                  "held_at_peak mostly FLOPs share bytes_moved");
    for (size_t i = 0; i < plan->modules.n; i++) {
        const struct plan_group *g = &plan->modules.group[i];
        const count flops = group_flops(g);
        if (!flops && !g->bytes && !group_held(g)) continue;
        sheet_row(s, SHEET_BRIEF, g->name, NULL);
        sheet_whole(s, SHEET_BYTES, group_held(g));
        sheet_text(s, group_held(g) ? tl_purpose_name(most_of(g)) : "");
        sheet_whole(s, SHEET_COUNT, flops);
        sheet_real(s, SHEET_SHARE, plan->total_flops ? (double)flops / (double)plan->total_flops : 0);
        sheet_whole(s, SHEET_BYTES, g->bytes);
    }
}

static void flops_section(struct sheet *s, const struct plan *plan) {
    sheet_section(s, "flops", "FLOPs of a step", SHEET_DETAIL, "FLOPs time_at_its_peak");
    for (int i = 0; i < TL_PHASE_COUNT; i++)
        if (plan->flops[i])
            sheet_row(s, SHEET_BRIEF, tl_phase_name((tl_phase)i), NULL), sheet_whole(s, SHEET_COUNT, plan->flops[i]);
    for (int d = 0; d < TL_DTYPE_COUNT; d++) {
        if (!plan->dtype_flops[d]) continue;
        sheet_row(s, SHEET_BRIEF, tl_dtype_name((tl_dtype)d), NULL);
        sheet_whole(s, SHEET_COUNT, plan->dtype_flops[d]);
        sheet_real(s, SHEET_SHARE, plan_dtype_share(plan, (tl_dtype)d));
    }
    sheet_row(s, SHEET_BRIEF, "all", NULL), sheet_whole(s, SHEET_COUNT, plan->total_flops);
}

static void conventions_section(struct sheet *s, const struct plan *plan) {
    const bool is_known = plan->time.peak > 0 && plan->run.step_s > 0;
    const char *beyond = NULL; /* counts more than the step computes: no share */
    char a[32];
    sheet_section(s, "conventions", "counted by", SHEET_DETAIL, "per_token per_step at_most rule");
    for (int i = 0; i < PLAN_N_CONVENTIONS; i++) {
        const double share = plan_share(plan, (enum plan_convention)i);
        if (!(share > 0)) beyond = plan_conventions[i].name;
        sheet_row(s, SHEET_BRIEF, plan_conventions[i].name, NULL);
        sheet_whole(s, SHEET_COUNT, plan->convention[i] / (count)plan->price.n_tokens);
        sheet_whole(s, SHEET_COUNT, plan->convention[i]);
        sheet_real(s, SHEET_SHARE, share);
        sheet_text(s, plan_conventions[i].rule);
    }
    if (!is_known) return;
    sheet_line(s, SHEET_BRIEF,
               "%% of %sFLOP/s: the products, those of each dtype at its own %s peak; if a step takes its roofline",
               count_text(plan->time.peak, a),
               plan->target.has_given_peak  ? "given"
               : plan->target.speed.profile ? "measured"
                                            : "data sheet's dense");
    if (beyond)
        sheet_line(s, SHEET_BRIEF, "%s counts more FLOPs than the step computes, such as masked attention: no share",
                   beyond);
}

/* ---- Time ---- */

static void op_row(struct sheet *s, const struct plan *plan, const struct plan_group *g) {
    const struct plan_bound b = plan_bound_of(g, &plan->target.speed);
    char name[SHEET_CELL_TEXT];
    number_print(name, sizeof name, "%.48s %s", g->name, tl_dtype_name(g->dtype));
    sheet_row(s, SHEET_BRIEF, name, NULL);
    sheet_whole(s, SHEET_NUMBER, g->calls);
    sheet_whole(s, SHEET_COUNT, group_flops(g));
    sheet_whole(s, SHEET_BYTES, g->bytes);
    sheet_real(s, SHEET_RATIO, b.intensity);
    sheet_real(s, SHEET_RATIO, b.ridge);
    sheet_text(s, b.ridge > 0 ? b.arithmetic_s > b.memory_s ? "compute" : "memory" : "");
    sheet_real(s, SHEET_SECONDS, fmax(b.arithmetic_s, b.memory_s));
    sheet_real(s, SHEET_SHARE, plan->time.roofline_s > 0 ? plan_least_of(plan, g) / plan->time.roofline_s : 0);
}

static void ops_section(struct sheet *s, const struct plan *plan) {
    sheet_section(s, "ops", "by op", SHEET_DETAIL, "calls FLOPs bytes_moved FLOP/B ridge bound_by at_least share");
    for (size_t i = 0; i < plan->ops.n; i++)
        if (plan->ops.group[i].bytes) op_row(s, plan, &plan->ops.group[i]);
}

static void time_section(struct sheet *s, const struct plan *plan) {
    const bool is_measured = plan->time.predicted_s > 0;
    const struct {
        const char *name;
        double s;
        const char *what;
    } rows[] = {{"bound", plan->time.bound_s, "FLOPs at their peaks, or bytes at full bandwidth; no step is shorter"},
                {"roofline", plan->time.roofline_s, "every op at its peak or at memory bandwidth, in turn"},
                {"predicted", plan->time.predicted_s, "from this machine's measurements"}};
    if (plan->time.roofline_s == 0) return;
    sheet_section(s, "time", plan_is_many(plan) ? "time of a step if one device had it all" : "time of a step",
                  SHEET_DETAIL, "time what");
    for (int i = 0; i < 2 + is_measured; i++) {
        sheet_row(s, SHEET_BRIEF, rows[i].name, NULL);
        sheet_real(s, SHEET_SECONDS, rows[i].s);
        sheet_text(s, rows[i].what);
    }
}

void plan_sheet_cost(struct sheet *s, const struct plan *plan) {
    sent_section(s, plan);
    modules_section(s, plan);
    flops_section(s, plan);
    conventions_section(s, plan);
    ops_section(s, plan);
    time_section(s, plan);
}

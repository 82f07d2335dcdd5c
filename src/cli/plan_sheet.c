/* plan_sheet.c: a plan as a sheet of figures: the answer first, then what it rests on. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/number.h"
#include "cli/cli.h"
#include "cli/plan_options.h"
#include "cli/sheet.h"
#include "plan/plan.h"
#include "step/recipe.h"

static bool is_many(const struct plan *plan) { return plan->options.n_devices > 1; }

/* Of a step of all devices. */
static double step_tokens(const struct plan *plan) {
    return (double)plan->price.n_tokens * (double)plan->options.layout.dp;
}

static const char *chip_name(const struct plan *plan) {
    return plan->target.chip ? plan->target.chip->name : plan->target.name;
}

/* ---- The answer ---- */

static uint64_t needed(const struct plan *plan) {
    return is_many(plan) ? plan->layout.total_bytes : plan->price.reserved_bytes;
}

/* "fits on 8 x H100 SXM5: 22.07 GiB of 78.95 GiB on each, 56.88 GiB to spare" */
static void verdict_line(struct sheet *s, const struct plan *plan) {
    const uint64_t limit = plan_target_limit(&plan->target), need = needed(plan);
    const enum price_verdict verdict = plan_verdict(plan);
    const char *each = is_many(plan) ? " on each" : "";
    char on[100], a[32], b[32], c[32];
    bytes_text((double)need, a), bytes_text((double)limit, b);
    bytes_text(need > limit ? (double)(need - limit) : (double)(limit - need), c);
    if (is_many(plan)) number_print(on, sizeof on, "%" PRId64 " x %.60s", plan->options.n_devices, chip_name(plan));
    else number_print(on, sizeof on, "%.60s", chip_name(plan));
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
    const double days = plan->run.steps * bound_s / DAY_S, hours = 24 * days * (double)o->n_devices;
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
    char more[120] = "";
    int n = 0;
    if (t->goodput > 0) n += number_print(more, sizeof more, "; %.3g of the time counts", t->goodput);
    if (t->pue > 0) n += number_print(more + n, sizeof more - (size_t)n, "; PUE %.3g", t->pue);
    if (t->host_watts > 0)
        number_print(more + n, sizeof more - (size_t)n, "; %.0f W of the host for each", t->host_watts);
    sheet_line(s, SHEET_BRIEF, "expected: %s%s; bound: no step is shorter",
               t->mfu > 0                   ? "at the given MFU"
               : plan->time.predicted_s > 0 ? "from this machine's measurements"
                                            : "as published runs reach; nine of ten are within the range",
               more);
}

static void answer_section(struct sheet *s, const struct plan *plan) {
    const struct plan_expectation *e = &plan->expected;
    const double tokens = step_tokens(plan), bound_s = is_many(plan) ? plan->layout.bound_s : plan->time.bound_s;
    sheet_section(s, "answer", NULL, SHEET_BRIEF, "expected from to bound");
    verdict_line(s, plan);
    sheet_row(s, SHEET_SAID, "verdict", NULL), sheet_text(s, price_verdict_text(plan_verdict(plan)));
    sheet_row(s, SHEET_SAID, "devices", NULL), sheet_whole(s, SHEET_NUMBER, (count)plan->options.n_devices);
    sheet_row(s, SHEET_SAID, "device_bytes", NULL), sheet_whole(s, SHEET_BYTES, needed(plan));
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

/* ---- The run ---- */

/* Memory that is a reserve, and not the driver's figure. */
static void memory_source_line(struct sheet *s, const struct plan *plan) {
    const struct hardware *chip = plan->target.chip;
    if (!chip || !plan->target.memory_bytes || settings_memory_limit(&plan->settings)) return;
    const char *source = hardware_source(chip, HARDWARE_MEMORY_SEEN);
    if (!(hardware_value(chip, HARDWARE_MEMORY_SEEN) > 0))
        sheet_line(s, SHEET_BRIEF, "memory: nominal, GB of 10^9 bytes; what the driver reports is not known");
    else if (!strncmp(source, "not known", 9))
        sheet_line(s, SHEET_BRIEF, "memory: what the driver reports is %s", source);
}

static void model_lines(struct sheet *s, const struct plan *plan) {
    const struct price *p = &plan->price;
    const tl_model_config *c = &p->config;
    char n[32], kv[48] = "";
    if (c->n_kv_heads != c->n_heads) number_print(kv, sizeof kv, " (%" PRId64 " for keys and values)", c->n_kv_heads);
    sheet_line(s, SHEET_BRIEF,
               "%.80s: %s parameters; %" PRId64 " layers, %" PRId64 " channels, %" PRId64 " heads%s, MLP %" PRId64
               ", vocabulary %" PRId64,
               plan->settings.model, grouped_text((uint64_t)p->n_parameters, n), c->n_layers, c->channels, c->n_heads,
               kv, c->ff, c->vocabulary);
    sheet_row(s, SHEET_SAID, "model", NULL), sheet_text(s, plan->settings.model);
    sheet_row(s, SHEET_SAID, "parameters", NULL), sheet_whole(s, SHEET_NUMBER, (count)p->n_parameters);
}

static void step_lines(struct sheet *s, const struct plan *plan) {
    const struct settings *run = &plan->settings;
    static const char *const choices[] = {"recipe", "optimizer", "checkpointing"};
    const int64_t sequences = run->batch * run->accum;
    char a[32], b[32], c[32], choice[3][48];
    for (int i = 0; i < 3; i++) text_copy(choice[i], sizeof choice[i], settings_choice(run, choices[i]));
    sheet_line(s, SHEET_BRIEF,
               "step: %s tokens, a global batch of %s x %" PRId64 " = %" PRId64 " micro-batch%s of %" PRId64
               " x %" PRId64 "; recipe %s, %s, checkpointing %s",
               grouped_text((uint64_t)step_tokens(plan), a), grouped_text((uint64_t)sequences, b), run->seq, run->accum,
               run->accum == 1 ? "" : "es", run->batch, run->seq, choice[0], choice[1], choice[2]);
    sheet_line(s, SHEET_BRIEF, "run: %s tokens in %s steps", amount_text(plan->run.tokens, a),
               amount_text(plan->run.steps, c));
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"global_batch", sequences}, {"batch", run->batch}, {"accum", run->accum}, {"seq", run->seq}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        sheet_row(s, SHEET_SAID, sizes[i].name, NULL), sheet_whole(s, SHEET_NUMBER, (count)sizes[i].value);
    sheet_row(s, SHEET_SAID, "steps", NULL), sheet_real(s, SHEET_AMOUNT, plan->run.steps);
    for (int i = 0; i < 3; i++) sheet_row(s, SHEET_SAID, choices[i], NULL), sheet_text(s, choice[i]);
    char text[256];
    const char *chosen = settings_chosen(run, false, text, sizeof text);
    if (*chosen) sheet_line(s, SHEET_BRIEF, "defaults for this model: %s", chosen);
}

static void device_lines(struct sheet *s, const struct plan *plan) {
    const struct target *own = plan->target.device->target;
    char memory[48] = "", outside[80] = "", rules[80] = "", a[32];
    const char *emulated = recipe_emulated(recipe_find(settings_choice(&plan->settings, "recipe")), own);
    if (plan->target.memory_bytes)
        number_print(memory, sizeof memory, ", %s", bytes_text((double)plan->target.memory_bytes, a));
    if (plan->target.outside_bytes)
        number_print(outside, sizeof outside, ", of which driver and libraries take %s",
                     bytes_text((double)plan->target.outside_bytes, a));
    if (!plan->target.has_kernels)
        number_print(rules, sizeof rules, "; Tally does not run on it: CUDA's memory rules are assumed");
    else if (plan->target.is_assumed)
        number_print(rules, sizeof rules, "; it has no target of its own: the memory rules of the H200 are assumed");
    else if (own->origin != TARGET_MEASURED)
        number_print(rules, sizeof rules, "; Tally never ran on it: rules by compute capability %d.%d",
                     own->capability / 10, own->capability % 10);
    sheet_line(s, SHEET_BRIEF, "device: %s%s%s%s", chip_name(plan), memory, outside, rules);
    sheet_row(s, SHEET_SAID, "device", NULL), sheet_text(s, chip_name(plan));
    memory_source_line(s, plan);
    if (emulated)
        sheet_line(s, SHEET_BRIEF, "%s products are emulated: operands are rounded to %s and multiplied in bf16",
                   emulated, emulated);
}

enum { LAYOUT_TEXT = 96 };

/* "tp 8 sp, pp 4 (1f1b), dp 2, zero1" */
static const char *layout_text(const struct layout *l, char text[LAYOUT_TEXT]) {
    int n = 0;
    const int64_t sizes[] = {l->tp, l->cp, l->pp};
    static const char *const names[] = {"tp", "cp", "pp"};
    for (int i = 0; i < 3; i++) {
        if (sizes[i] == 1) continue;
        n += snprintf(text + n, (size_t)(LAYOUT_TEXT - n), "%s %" PRId64, names[i], sizes[i]);
        if (i == 0 && l->sp) n += snprintf(text + n, (size_t)(LAYOUT_TEXT - n), " sp");
        if (i == 2) n += snprintf(text + n, (size_t)(LAYOUT_TEXT - n), " %s", schedule_names[l->schedule]);
        if (i == 2 && l->chunks > 1) n += snprintf(text + n, (size_t)(LAYOUT_TEXT - n), " x %" PRId64, l->chunks);
        n += snprintf(text + n, (size_t)(LAYOUT_TEXT - n), ", ");
    }
    n += snprintf(text + n, (size_t)(LAYOUT_TEXT - n), "dp %" PRId64 ", shard %s", l->dp, shard_names[l->shard]);
    if (l->shard_group) snprintf(text + n, (size_t)(LAYOUT_TEXT - n), " in groups of %" PRId64, l->shard_group);
    return text;
}

const char *network_text(const struct network *net, char text[NETWORK_TEXT]) {
    const double share = network_share(net);
    size_t n = 0;
    n += (size_t)number_print(text, NETWORK_TEXT, "%.60s, nodes of %" PRId64, net->name, net->node);
    if (net->link > 0) n += (size_t)number_print(text + n, NETWORK_TEXT - n, ", %.4g GB/s inside", net->link / 1e9);
    if (share > 0)
        n += (size_t)number_print(text + n, NETWORK_TEXT - n, ", %.4g GB/s per device between them", share / 1e9);
    if (net->is_assumed) n += (size_t)number_print(text + n, NETWORK_TEXT - n, " (assumed; set --network)");
    if (!(net->link > 0) && !(share > 0))
        number_print(text + n, NETWORK_TEXT - n, ", of unknown speed (set --link, --network or --fabric)");
    return text;
}

static void layout_lines(struct sheet *s, const struct plan *plan) {
    const struct layout_estimate *e = &plan->layout;
    char text[LAYOUT_TEXT], net[NETWORK_TEXT];
    sheet_line(s, SHEET_BRIEF, "%" PRId64 " devices: %s (%s)", plan->options.n_devices,
               layout_text(&plan->options.layout, text),
               e->is_exact ? "bytes are exact, priced for each class of ranks; times are estimates"
                           : "an estimate, based on the exact count for one");
    const struct network *network = &plan->options.network;
    const bool is_known = !network->is_assumed && (network->link > 0 || network_share(network) > 0);
    sheet_line(s, is_known ? SHEET_DETAIL : SHEET_BRIEF, "network: %s", network_text(network, net));
    if (plan->options.layout.pp == 1) return;
    char equal[64] = "";
    if (e->bubble > e->even_bubble + 0.01)
        number_print(equal, sizeof equal, "; %.1f %% if all had equal work", 100 * e->even_bubble);
    sheet_line(s, SHEET_BRIEF,
               "pipeline: %" PRId64 " micro-batch%s; stages are idle for %.1f %% of the time (bubble%s); the first "
               "stage holds the activations of %.3g",
               plan->settings.accum, plan->settings.accum == 1 ? "" : "es", 100 * e->bubble, equal, e->in_flight);
}

static double least_of(const struct plan *plan, const struct plan_group *g) {
    const struct plan_bound b = plan_bound_of(g, &plan->target.speed);
    return fmax(b.arithmetic_s, b.memory_s);
}

/* The ops that take most of a step, in one line. */
static void slowest_line(struct sheet *s, const struct plan *plan) {
    enum { MOST = 4 };
    const struct plan_group *top[MOST] = {NULL};
    char text[256] = "";
    int n = 0;
    for (size_t i = 0; i < plan->ops.n; i++) {
        const struct plan_group *g = &plan->ops.group[i];
        for (int k = 0; k < MOST; k++)
            if (!top[k] || least_of(plan, g) > least_of(plan, top[k])) {
                const struct plan_group *lower = top[k];
                top[k] = g, g = lower;
                if (!g) break;
            }
    }
    for (int k = 0; k < MOST && top[k]; k++)
        n += number_print(text + n, sizeof text - (size_t)n, "%s%.30s %s %.0f %%", n ? ", " : "", top[k]->name,
                          tl_dtype_name(top[k]->dtype), 100 * least_of(plan, top[k]) / plan->time.roofline_s);
    sheet_line(s, SHEET_BRIEF, "time goes to: %s, at least", text);
}

static void time_of_many(struct sheet *s, const struct plan *plan) {
    const struct layout_estimate *e = &plan->layout;
    char computing[80] = "", a[32], b[32];
    if (!(e->bound_s > 0)) return;
    if (!(plan->time.predicted_s > 0))
        number_print(computing, sizeof computing, " (products at %.0f %% of the peak)",
                     100 * layout_typical_share(plan->target.chip));
    sheet_line(s, SHEET_DETAIL, "a step: computing %s%s, waiting %s, with %s of communication hidden",
               duration_text(e->compute_s, a), computing, e->exposed_s > 0 ? duration_text(e->exposed_s, b) : "0 s",
               e->hidden_s > 0 ? duration_text(e->hidden_s, (char[32]){0}) : "0 s");
}

static void run_section(struct sheet *s, const struct plan *plan) {
    sheet_section(s, "run", NULL, SHEET_BRIEF, "value");
    model_lines(s, plan);
    step_lines(s, plan);
    device_lines(s, plan);
    if (is_many(plan)) layout_lines(s, plan);
    if (is_many(plan)) time_of_many(s, plan);
    if (plan->time.roofline_s > 0) slowest_line(s, plan);
}

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

static void memory_section(struct sheet *s, const struct plan *plan) {
    const struct layout_estimate *e = &plan->layout;
    if (!is_many(plan)) {
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
    if (!is_many(plan)) return;
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
    sheet_real(s, SHEET_SHARE, plan->time.roofline_s > 0 ? least_of(plan, g) / plan->time.roofline_s : 0);
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
    sheet_section(s, "time", is_many(plan) ? "time of a step if one device had it all" : "time of a step", SHEET_DETAIL,
                  "time what");
    for (int i = 0; i < 2 + is_measured; i++) {
        sheet_row(s, SHEET_BRIEF, rows[i].name, NULL);
        sheet_real(s, SHEET_SECONDS, rows[i].s);
        sheet_text(s, rows[i].what);
    }
}

/* ---- Growth ---- */

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

static void growth_section(struct sheet *s, const struct plan *plan) {
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
    run_section(s, plan);
    memory_section(s, plan);
    sent_section(s, plan);
    modules_section(s, plan);
    flops_section(s, plan);
    conventions_section(s, plan);
    ops_section(s, plan);
    time_section(s, plan);
    growth_section(s, plan);
    if (!is_large) advice_section(s, plan);
    return !s->is_broken;
}

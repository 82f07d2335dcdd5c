/* plan_layouts.c: tally plan on several devices: what each holds, sends and waits for, and the table of layouts. */
#include "plan/layouts.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/plan_options.h"
#include "plan/plan.h"

enum { LAYOUT_TEXT = 96, SHOWN = 20 };

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

static const char *bytes_or_dash(double bytes, char *text) { return bytes > 0 ? bytes_text(bytes, text) : "-"; }
static const char *time_or_dash(double s, char *text) { return s > 0 ? duration_text(s, text) : "-"; }

static void network_print(const struct network *net) {
    double share = network_share(net);
    printf("    network: %s, nodes of %" PRId64, net->name, net->node);
    if (net->link > 0) printf(", %.4g GB/s inside", net->link / 1e9);
    if (share > 0) printf(", %.4g GB/s per device between them", share / 1e9);
    if (net->is_assumed) printf(" (assumed; set --network)");
    if (!(net->link > 0) && !(share > 0)) printf(", of unknown speed (set --link, --network or --fabric)");
    printf("\n");
}

static void held_print(const struct plan *plan) {
    const struct layout_estimate *e = &plan->layout;
    uint64_t limit = plan_target_limit(&plan->target);
    char a[32], b[32];
    const struct {
        const char *name;
        uint64_t bytes;
    } rows[] = {{"weights", e->weights_bytes},
                {"gradients", e->gradients_bytes},
                {"master copy and moments", e->states_bytes},
                {"gathered while in use", e->gathered_bytes},
                {"everything else at the peak", e->other_bytes}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        printf("    %-26s %14s\n", rows[i].name, bytes_text((double)rows[i].bytes, a));
    printf("    %-26s %14s", "peak", bytes_text((double)e->total_bytes, a));
    if (limit) printf("   %s %s", e->total_bytes <= limit ? "fits" : "TOO LARGE for", bytes_text((double)limit, b));
    printf("\n");
}

static void sent_print(const struct plan *plan) {
    static const char *const what[LAYOUT_AXES] = {"tp: activations", "cp: keys and values", "dp: gradients, weights",
                                                  "pp: activations"};
    const struct layout_estimate *e = &plan->layout;
    char a[32], b[32], c[32], d[32];
    printf("    %-26s %14s %14s %12s %12s\n", "each device sends in a step", "inside a node", "between nodes",
           "at least", "expected");
    for (int i = 0; i <= LAYOUT_AXES; i++) {
        const struct network_cost *cost = i < LAYOUT_AXES ? &e->axis[i] : &e->sum;
        double least = cost->inside_s > cost->between_s ? cost->inside_s : cost->between_s;
        if (!(cost->inside_bytes + cost->between_bytes > 0)) continue;
        printf("    %-27s %14s %14s %12s %12s\n", i < LAYOUT_AXES ? what[i] : "all",
               bytes_or_dash(cost->inside_bytes, a), bytes_or_dash(cost->between_bytes, b), time_or_dash(least, c),
               time_or_dash(cost->expected_s, d));
    }
}

static void pipeline_print(int64_t micro, const struct layout_estimate *e) {
    printf("    pipeline: %" PRId64 " micro-batch%s; stages are idle for %.1f %% of the time (bubble", micro,
           micro == 1 ? "" : "es", 100 * e->bubble);
    if (e->bubble > e->even_bubble + 0.01) printf("; %.1f %% if all had equal work", 100 * e->even_bubble);
    printf(");\n    the first stage holds the activations of %.3g\n", e->in_flight);
}

void devices_print(const struct plan *plan) {
    const struct layout *l = &plan->options.layout;
    const struct layout_estimate *e = &plan->layout;
    char text[LAYOUT_TEXT];
    if (plan->options.n_devices < 2) return;
    printf("\n%" PRId64 " devices: %s (%s)\n", plan->options.n_devices, layout_text(l, text),
           e->is_exact ? "bytes are exact, priced for each class of ranks; times are estimates"
                       : "an estimate, based on the exact count for one");
    network_print(&plan->options.network);
    held_print(plan);
    sent_print(plan);
    if (l->pp > 1) pipeline_print(plan->settings.accum, e);
    if (!l->has_rings && e->has_network)
        printf("    each device sends its parts to every other one, in a fixed order of additions; with --rings, as\n"
               "    libraries reduce, less would go between nodes\n");
}

void devices_time_print(const struct plan *plan) {
    const struct layout_estimate *e = &plan->layout;
    double tokens = (double)plan->price.n_tokens * (double)plan->options.layout.dp;
    char a[32], b[32], c[32];
    if (!(e->bound_s > 0)) return;
    printf("time of a step on %" PRId64 " devices\n", plan->options.n_devices);
    printf("  %-12s %s: peaks and wires by their data sheets, all communication hidden; no step is shorter\n", "bound",
           duration_text(e->bound_s, a));
    printf("  %-12s %s: computing %s", "expected", duration_text(e->expected_s, a), duration_text(e->compute_s, b));
    if (!(plan->time.predicted_s > 0))
        printf(" (products at %.0f %% of the peak)", 100 * layout_typical_share(plan->target.chip));
    printf(", waiting %s", e->exposed_s > 0 ? duration_text(e->exposed_s, c) : "0 s");
    if (e->hidden_s > 0) printf(", with %s of communication hidden", duration_text(e->hidden_s, a));
    printf("\n  %s tokens/s expected,", amount_text(tokens / e->expected_s, a));
    printf(" %s at most\n", amount_text(tokens / e->bound_s, a));
}

/* The effect of doubling the devices, each with as many sequences. */
void scale_print(const struct plan *plan) {
    int64_t fits = plan_scale_fits(plan), binds = plan_scale_binds(plan);
    const struct plan_scale *last = &plan->scale[PLAN_DOUBLINGS - 1];
    const char *shard = shard_names[plan->options.layout.shard];
    char a[32], b[32], c[32], d[32], e[32];
    printf("  %-9s ", "devices");
    if (!fits) printf("too large for each of up to %" PRId64 "; ", last->devices);
    else if (fits > plan->options.n_devices) printf("fits from %" PRId64 "; ", fits);
    if (binds) printf("from %" PRId64 ", communication takes longer than computation", binds);
    else if (last->efficiency > 0) printf("communication can overlap with computation up to %" PRId64, last->devices);
    else printf("what sending takes is not known (--link)");
    printf(" (shard %s, an estimate)\n", shard);
    if (!(last->efficiency > 0) && plan->options.layout.shard == SHARD_NONE) return; /* all lines would be the same */
    printf("    %9s %12s %-5s %12s %12s %10s %10s %6s\n", "devices", "on each", "", "sends inside", "between", "a step",
           "tokens/s", "ideal");
    for (int i = 0; i < PLAN_DOUBLINGS; i++) {
        const struct plan_scale *p = &plan->scale[i];
        const struct network_cost *sum = &p->layout.sum;
        char share[16] = "-";
        if (p->efficiency > 0) snprintf(share, sizeof share, "%.0f %%", 100 * p->efficiency);
        printf("    %9" PRId64 " %12s %-5s %12s %12s %10s %10s %6s\n", p->devices,
               bytes_text((double)p->layout.total_bytes, a), p->fits ? "fits" : "no",
               bytes_or_dash(sum->inside_bytes, b), bytes_or_dash(sum->between_bytes, c), time_or_dash(p->step_s, d),
               p->tokens_per_s > 0 ? count_text(p->tokens_per_s, e) : "-", share);
    }
}

/* ---- The table ---- */

static void row_print(const struct plan_flags *f, const struct layouts *all, int i) {
    const struct layouts_row *r = &all->rows[i];
    const struct layout *l = &r->layout;
    char a[32], b[32], c[32], d[32];
    printf("%c%4" PRId64 " %4" PRId64 " %4" PRId64 " %6" PRId64 " %-6s", i == 0 && r->fits ? '*' : ' ', l->tp, l->cp,
           l->pp, l->dp, shard_names[l->shard]);
    if (!r->batch) {
        printf("  %s\n", r->why);
        return;
    }
    printf(" %3" PRId64 " x %-5" PRId64, r->batch, l->micro);
    if (!r->fits) {
        printf("  %s\n", r->why);
        return;
    }
    printf(" %11s%c %6.1f %%", bytes_text((double)r->estimate.total_bytes, a), r->estimate.is_exact ? '=' : ' ',
           100 * r->estimate.bubble);
    printf(" %10s %10s %10s", bytes_or_dash(r->estimate.sum.between_bytes, b), time_or_dash(r->estimate.bound_s, c),
           time_or_dash(r->estimate.expected_s, d));
    if (r->estimate.expected_s > 0) printf(" %10s", count_text(all->tokens / r->estimate.expected_s, a));
    if (f->options.price_per_hour > 0 && r->estimate.expected_s > 0)
        printf(" %12s", dollars_text((double)f->options.n_devices * r->estimate.expected_s / 3600 *
                                         f->options.price_per_hour / all->tokens * 1e9,
                                     b));
    printf("\n");
}

/* Whether a row before it has the same axes, with another sharding. */
static bool is_repeated(const struct layouts *all, int i) {
    for (int k = 0; k < i; k++) {
        const struct layout *a = &all->rows[k].layout, *b = &all->rows[i].layout;
        if (a->tp == b->tp && a->cp == b->cp && a->pp == b->pp) return true;
    }
    return false;
}

/* Rows from one to another: the best sharding of each, or with --all every one. */
static void rows_print(const struct plan_flags *f, const struct layouts *all, int from, int to) {
    int shown = 0;
    for (int i = from; i < to; i++) {
        if (!f->is_all && (shown == SHOWN || is_repeated(all, i))) continue;
        row_print(f, all, i);
        shown++;
    }
    if (shown < to - from) printf("  %d more (--all shows them)\n", to - from - shown);
}

/* As flags of `tally plan` and `tally train`. */
static void best_print(const struct plan_flags *f, const struct layouts *all) {
    const struct layouts_row *best = &all->rows[0];
    const struct layout *l = &best->layout;
    const int64_t sizes[] = {l->tp, l->cp, l->pp};
    char a[32], b[32];
    if (best->estimate.expected_s > 0) printf("\n* the fastest by expectation:");
    else printf("\nThe speed of %s is unknown (`tally calibrate`, --hardware).\n* the least memory:", f->target.name);
    for (int i = 0; i < 3; i++)
        if (sizes[i] > 1) printf(" --%s %" PRId64, (const char *[]){"tp", "cp", "pp"}[i], sizes[i]);
    if (l->sp) printf(" --sp");
    if (l->shard) printf(" --shard %s", shard_names[l->shard]);
    if (l->shard_group) printf(" --shard-group %" PRId64, l->shard_group);
    printf(" --batch %" PRId64 " --accum %" PRId64, best->batch * l->dp, l->micro);
    printf("\n  %s", bytes_text((double)best->estimate.total_bytes, a));
    if (plan_target_limit(&f->target)) printf(" of %s", bytes_text((double)plan_target_limit(&f->target), b));
    printf(" on each device. A plan with these flags shows one layout in full.\n"
           "=: priced exactly, by the trainer's own steps; other bytes and all times are estimates.\n");
}

static void table_print(const struct plan_flags *f, const struct layouts *all) {
    printf("%s on %" PRId64 " %s: %" PRId64 " sequences of %" PRId64 " tokens in a step; recipe %s", f->settings.model,
           f->options.n_devices, f->target.chip ? f->target.chip->name : f->target.name, all->sequences,
           f->settings.seq, settings_choice(&f->settings, "recipe"));
    printf(", checkpointing %s\n", settings_choice(&f->settings, "checkpointing"));
    network_print(&f->options.network);
    printf("\n %4s %4s %4s %6s %-6s %-11s %11s %9s %10s %10s %10s %10s%s\n", "tp", "cp", "pp", "dp", "shard",
           "micro-batch", "on each", "bubble", "between", "bound", "expected", "tokens/s",
           f->options.price_per_hour > 0 ? "  $/1B tokens" : "");
    rows_print(f, all, 0, all->n_fit);
    if (!all->n_fit) printf("  none fits\n");
    if (all->n > all->n_fit) printf("\nnot possible\n");
    rows_print(f, all, all->n_fit, all->n);
    if (all->n_fit) best_print(f, all);
}

static json_t *table_json(const struct plan_flags *f, const struct layouts *all) {
    json_t *rows = json_array();
    for (int i = 0; i < all->n; i++) {
        const struct layouts_row *r = &all->rows[i];
        json_t *row = plan_layout_json(&r->layout, &r->estimate);
        json_object_set_new(row, "batch", json_integer(r->batch * r->layout.dp));
        json_object_set_new(row, "accum", json_integer(r->layout.micro));
        json_object_set_new(row, "fits", json_boolean(r->fits));
        json_object_set_new(row, "why", *r->why ? json_string(r->why) : json_null());
        json_array_append_new(rows, row);
    }
    return json_pack("{s:s, s:s, s:s, s:I, s:b, s:o, s:I, s:f, s:o}", "schema", "tally.layouts/1", "model",
                     f->settings.model, "device", f->target.name, "devices", (json_int_t)f->options.n_devices,
                     "is_estimate", 1, "network", network_json(&f->options.network), "sequences",
                     (json_int_t)all->sequences, "step_tokens", all->tokens, "layouts", rows);
}

int layouts_run(const struct plan_flags *f) {
    struct layouts all;
    bool ok = layouts_find(&all, &f->settings, &f->target, &f->options);
    int code = ok ? 0 : cli_error();
    if (ok && f->is_json) code = cli_json(table_json(f, &all));
    else if (ok) table_print(f, &all);
    if (ok && !all.n_fit && !code) code = EXIT_NO_FIT;
    layouts_free(&all);
    return code;
}

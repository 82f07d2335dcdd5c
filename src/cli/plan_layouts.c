/* plan_layouts.c: tally plan --layouts: the table. */
#include "plan/layouts.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/plan_options.h"
#include "plan/plan.h"

enum { SHOWN = 20 };

static const char *bytes_or_dash(double bytes, char *text) { return bytes > 0 ? bytes_text(bytes, text) : "-"; }
static const char *time_or_dash(double s, char *text) { return s > 0 ? duration_text(s, text) : "-"; }

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
        printf(" %12s", dollars_text((double)f->options.n_devices * r->estimate.expected_s / HOUR_S *
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
    char network[NETWORK_TEXT];
    printf("%s on %" PRId64 " %s: %" PRId64 " sequences of %" PRId64 " tokens in a step; recipe %s", f->settings.model,
           f->options.n_devices, f->target.chip ? f->target.chip->name : f->target.name, all->sequences,
           f->settings.seq, settings_choice(&f->settings, "recipe"));
    printf(", checkpointing %s\n", settings_choice(&f->settings, "checkpointing"));
    printf("    network: %s\n", network_text(&f->options.network, network));
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

/* cmd_plan.c: tally plan: one run, or a sweep over many, priced on meta. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/plan_options.h"
#include "plan/infer.h"
#include "plan/plan.h"
#include "step/recipe.h"

const char help_plan[] =
    "usage: tally plan [--SETTING VALUE ...] [--device NAME] [--devices N --tp N --pp N ...] [--tokens D] [--json]\n"
    "\n"
    "Shows what a training run needs before it runs. Tally runs the trainer's own steps on meta, which has shapes\n"
    "but no data, under the device's memory rules. Bytes, FLOPs and the verdict are exact for one device. Times\n"
    "follow from the data sheet, and several devices are an estimate. The settings are those of `tally train`\n"
    "(`tally train --settings`). Models of 50 million parameters and more have defaults that fit them and the\n"
    "device: recipe bf16, the model's context up to 4,096, up to 8,192 tokens in a micro-batch; the plan names them.\n"
    "\n"
    "  --device NAME        cpu or this, or a chip of `tally devices`: H200, A100-80, 'RTX 4090'\n"
    "  --devices N          devices that share the work; --batch is that of all of them [dp x tp x cp x pp]\n"
    "  --tp, --cp, --pp N   settings: devices that divide matrices, sequences, layers; --dp: what they leave of N\n"
    "  --shard MODE         setting: none, zero1, zero2, zero3: what the devices of dp keep only a part of\n"
    "  --schedule NAME      pipelines: 1f1b, interleaved (with --chunks V of each stage), zb1p, zbv [1f1b]\n"
    "  --layouts            find layouts: every way to divide this run among --devices, the fastest first (--all: "
    "all)\n"
    "  --fabric NAME        the network, a row of `tally devices`: p4d, a3-mega, ethernet [the chip's usual one]\n"
    "  --link, --network X  GB/s of one device, one way: inside a node, and between nodes [as inside]\n"
    "  --node N             devices in a node [the network's]\n"
    "  --rings              expect the collectives of NCCL and others, instead of Tally's own\n"
    "  --tokens D           tokens of the whole run: 300B, 15T [steps x batch x seq x accum]\n"
    "  --price-per-hour X   dollars per device and hour\n"
    "  --mfu X              expect this share of the peak, by PaLM's rule: 0.4 [what published runs reach]\n"
    "  --goodput X          share of the time that goes into steps that count, without failures and restarts [1]\n"
    "  --pue X, --host-power W, --carbon G   energy of the building over that of its machines [1], watts of the host\n"
    "                       for each device [0], grams of CO2 per kWh\n"
    "  --memory-limit N     instead of the device's memory: 80GB, 24GiB\n"
    "  --peak X             FLOP/s of the recipe's products, instead of the device's: 989e12\n"
    "  --short              leave out growth limits and advice\n"
    "  --sweep NAME=a,b,c   plan every combination of these values of settings, or devices=, one line each; may be\n"
    "                       repeated. A combination that is not possible says why\n"
    "  --inference          cost of using the model: a prompt of --seq tokens for --batch sequences, then decoding\n"
    "  --new-tokens N       with --inference: tokens after the prompt [128]\n"
    "  --price FILE         write the price (tally.run/1), for `tally diff` with a receipt\n"
    "  --hardware FILE      your own chips, tally.hardware/1\n"
    "  --config FILE        read settings from a JSON object\n"
    "  --json               tally.plan/1 on stdout; a sweep prints one object per line\n"
    "\n"
    "examples:\n"
    "  tally plan --model gpt2-124m --recipe bf16 --batch 64 --seq 1024 --device H200\n"
    "  tally plan --model llama-3-8b --recipe bf16 --seq 8192 --batch 1 --checkpoint full --device H200 --tokens 1T\n"
    "  tally plan --model llama-3.1-405b --recipe bf16 --seq 8192 --batch 128 --accum 16 --device H100 \\\n"
    "             --devices 16384 --tp 8 --sp --pp 16 --shard zero1 --tokens 15T --price-per-hour 2\n"
    "  tally plan --model llama-3-70b --recipe bf16 --seq 8192 --batch 512 --device H100 --devices 256 --layouts\n"
    "  tally plan --model qwen2.5-1.5b --device 'RTX 4090' --sweep batch=1,2,4,8 --sweep seq=1024,2048\n"
    "  tally plan --inference --model llama-3-8b --recipe bf16 --batch 32 --seq 2048 --new-tokens 512 --device H100\n"
    "\n"
    "The exit code is 0 if the plan was made, whether the run fits or not.\n"
    "`make planner-page` makes a web page of this command, with sliders and pictures, which works offline.\n";

static double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

/* ---- Parts of the answer ---- */

/* Memory that is a reserve, and not the driver's figure. */
static void memory_source_print(const struct plan *plan) {
    const struct hardware *chip = plan->target.chip;
    if (!chip || !plan->target.memory_bytes || settings_memory_limit(&plan->settings)) return;
    const char *source = hardware_source(chip, HARDWARE_MEMORY_SEEN);
    if (!(hardware_value(chip, HARDWARE_MEMORY_SEEN) > 0))
        printf("        memory: nominal, GB of 10^9 bytes; what the driver reports is not known\n");
    else if (!strncmp(source, "not known", 9)) printf("        memory: what the driver reports is %s\n", source);
}

static void head_print(const struct plan *plan) {
    const struct price *p = &plan->price;
    const struct settings *s = &plan->settings;
    const tl_model_config *c = &p->config;
    const struct target *own = plan->target.device->target;
    char n[32], a[32];
    printf("%s: %s parameters; %" PRId64 " layers, %" PRId64 " channels, %" PRId64 " heads", s->model,
           grouped_text((uint64_t)p->n_parameters, n), c->n_layers, c->channels, c->n_heads);
    if (c->n_kv_heads != c->n_heads) printf(" (%" PRId64 " for keys and values)", c->n_kv_heads);
    printf(", MLP %" PRId64 ", vocabulary %" PRId64 "\n", c->ff, c->vocabulary);
    uint64_t n_tokens = (uint64_t)(p->n_tokens * plan->options.layout.dp);
    printf("step: %s tokens = %" PRId64 " micro-batch%s of %" PRId64 " x %" PRId64 "; recipe %s",
           grouped_text(n_tokens, a), s->accum, s->accum == 1 ? "" : "es", s->batch, s->seq,
           settings_choice(s, "recipe"));
    printf(", %s", settings_choice(s, "optimizer"));
    printf(", checkpointing %s\n", settings_choice(s, "checkpointing"));
    plan_defaults_print(s);
    printf("device: %s", plan->target.chip ? plan->target.chip->name : plan->target.name);
    if (plan->target.memory_bytes) printf(", %s", bytes_text((double)plan->target.memory_bytes, a));
    if (plan->target.outside_bytes)
        printf(", of which driver and libraries take %s", bytes_text((double)plan->target.outside_bytes, a));
    if (!plan->target.has_kernels) printf("; Tally does not run on it: CUDA's memory rules are assumed");
    else if (plan->target.is_assumed) printf("; it has no target of its own: the memory rules of the H200 are assumed");
    else if (own->origin != TARGET_MEASURED)
        printf("; Tally never ran on it: rules by compute capability %d.%d", own->capability / 10,
               own->capability % 10);
    printf("\n");
    memory_source_print(plan);
    const char *emulated = recipe_emulated(recipe_find(settings_choice(s, "recipe")), own);
    if (emulated)
        printf("        %s products are emulated: operands are rounded to %s and multiplied in bf16\n", emulated,
               emulated);
}

static void verdict_print(const struct plan *plan) {
    const struct price *p = &plan->price;
    uint64_t limit = plan_target_limit(&plan->target), need = p->reserved_bytes;
    char a[32], b[32], c[32];
    printf("\nmemory of one device%s: ", plan->options.n_devices > 1 ? " without sharding" : "");
    if (p->verdict == PRICE_UNKNOWN) printf("needs %s; the device's memory is unknown\n", bytes_text((double)need, a));
    else if (p->verdict == PRICE_TOO_LARGE)
        printf("TOO LARGE: needs %s of %s, %s too much\n", bytes_text((double)need, a), bytes_text((double)limit, b),
               bytes_text((double)need - (double)limit, c));
    else if (p->verdict == PRICE_FITS_TIGHTLY)
        printf("fits tightly: the pool would take %s of %s, and has to release unused segments\n",
               bytes_text((double)need, a), bytes_text((double)limit, b));
    else
        printf("fits: %s of %s, %s to spare\n", bytes_text((double)need, a), bytes_text((double)limit, b),
               bytes_text((double)limit - (double)need, c));
}

static void memory_print(const struct plan *plan) {
    const struct price *p = &plan->price;
    const struct held_window *w = price_window(p, p->peak_kind);
    char a[32];
    verdict_print(plan);
    printf("  %-28s %14s %8s\n", "held at the peak", "", "share");
    for (int i = 0; i < TL_PURPOSE_COUNT; i++)
        if (w->peak_by_purpose[i])
            printf("    %-26s %14s %6.1f %%\n", tl_purpose_name((tl_purpose)i),
                   bytes_text((double)w->peak_by_purpose[i], a),
                   percent((double)w->peak_by_purpose[i], (double)p->reserved_bytes));
    printf("    %-26s %14s %6.1f %%\n", "rounding, gaps, unused",
           bytes_text((double)(p->reserved_bytes - p->held_bytes), a),
           percent((double)(p->reserved_bytes - p->held_bytes), (double)p->reserved_bytes));
    printf("    %-26s %14s\n", "reserved", bytes_text((double)p->reserved_bytes, a));
    if (p->peak_kind != KIND_STEP) printf("  the peak occurs during: %s\n", kind_name(p->peak_kind));
    if (!p->is_steady)
        printf("  note: the pool does not return to an earlier layout; it may reserve slightly more later\n");
}

static tl_purpose most_of(const struct plan_group *g) {
    int purpose = 0;
    for (int i = 0; i < TL_PURPOSE_COUNT; i++)
        if (g->held[i] > g->held[purpose]) purpose = i;
    return (tl_purpose)purpose;
}

static void modules_print(const struct plan *plan) {
    char a[32], b[32], c[32];
    printf("\n%-36s %12s %-12s %10s %7s %12s\n", "by module (* is every layer)", "held at peak", "mostly", "FLOPs",
           "share", "bytes moved");
    for (size_t i = 0; i < plan->modules.n; i++) {
        const struct plan_group *g = &plan->modules.group[i];
        count flops = group_flops(g);
        if (!flops && !g->bytes && !group_held(g)) continue;
        printf("  %-34s %12s %-12s %10s %5.1f %% %12s\n", g->name,
               group_held(g) ? bytes_text((double)group_held(g), a) : "-",
               group_held(g) ? tl_purpose_name(most_of(g)) : "", flops ? count_text((double)flops, b) : "-",
               percent((double)flops, (double)plan->total_flops), bytes_text((double)g->bytes, c));
    }
}

static void phases_print(const struct plan *plan) {
    char a[32];
    printf("\nFLOPs of a step: %s", count_text((double)plan->total_flops, a));
    for (int i = 0, n = 0; i < TL_PHASE_COUNT; i++)
        if (plan->flops[i])
            printf("%s %s %s", n++ ? "," : " =", tl_phase_name((tl_phase)i), count_text((double)plan->flops[i], a));
    printf("\n");
    for (int d = 0, n = 0; d < TL_DTYPE_COUNT; d++) {
        double share = plan_dtype_share(plan, (tl_dtype)d);
        if (!plan->dtype_flops[d]) continue;
        printf("%s %s %s", n++ ? "," : "  by dtype (time at its own peak):", tl_dtype_name((tl_dtype)d),
               count_text((double)plan->dtype_flops[d], a));
        if (share > 0) printf(" (%.1f %%)", 100 * share);
    }
    printf("\n");
}

static void conventions_print(const struct plan *plan) {
    const bool is_known = plan->time.peak > 0 && plan->run.step_s > 0;
    const char *beyond = NULL; /* counts more than the step computes: no share */
    char a[32], b[32];
    printf("  %-10s %12s %12s %8s  %s\n", "counted by", "per token", "per step", is_known ? "at most" : "", "rule");
    for (int i = 0; i < PLAN_N_CONVENTIONS; i++) {
        double flops = (double)plan->convention[i];
        double share = plan_share(plan, (enum plan_convention)i);
        char use[16] = "";
        if (share > 0) snprintf(use, sizeof use, "%.1f %%", 100 * share);
        else if (is_known) snprintf(use, sizeof use, "-"), beyond = plan_conventions[i].name;
        printf("  %-10s %12s %12s %8s  %s\n", plan_conventions[i].name,
               count_text(flops / (double)plan->price.n_tokens, a), count_text(flops, b), use,
               plan_conventions[i].rule);
    }
    if (!is_known) return;
    printf("  %% of %sFLOP/s: the products, those of each dtype at its own %s peak; if a step takes the time below\n",
           count_text(plan->time.peak, a),
           plan->target.has_given_peak  ? "given"
           : plan->target.speed.profile ? "measured"
                                        : "data sheet's dense");
    if (beyond) printf("  - %s counts more FLOPs than the step computes, such as masked attention: no share\n", beyond);
}

static void ops_print(const struct plan *plan) {
    double whole = plan->time.roofline_s, rest = 0;
    char a[32], b[32], c[32];
    printf("\n%-24s %-5s %7s %10s %12s %9s %9s %-8s %9s\n", "by op", "dtype", "calls", "FLOPs", "bytes moved", "FLOP/B",
           "ridge", "bound by", "at least");
    for (size_t i = 0, n = 0; i < plan->ops.n; i++) {
        const struct plan_group *g = &plan->ops.group[i];
        struct plan_bound bound = plan_bound_of(g, &plan->target.speed);
        double s = fmax(bound.arithmetic_s, bound.memory_s);
        if (!g->bytes) continue;
        if (n >= 12 && (whole == 0 || s < 0.01 * whole)) {
            rest += s;
            continue;
        }
        n++;
        printf("  %-22s %-5s %7" PRIu64 " %10s %12s %9.1f", g->name, tl_dtype_name(g->dtype), g->calls,
               count_text((double)group_flops(g), a), bytes_text((double)g->bytes, b), bound.intensity);
        if (bound.ridge > 0)
            printf(" %9.1f %-8s %9s\n", bound.ridge, bound.arithmetic_s > bound.memory_s ? "compute" : "memory",
                   duration_text(s, c));
        else printf(" %9s\n", "-");
    }
    if (rest > 0) printf("  %-90s %9s\n", "others", duration_text(rest, a));
}

/* Whose hours a run takes. The table has GPUs, and chips of other makers that are called otherwise. */
static const char *hours_of(const struct plan_target *target) {
    const char *vendor = target->chip ? target->chip->vendor : NULL;
    return vendor && (!strcmp(vendor, "NVIDIA") || !strcmp(vendor, "AMD")) ? "GPU" : "device";
}

static void time_print(const struct plan *plan) {
    const struct plan_run *r = &plan->run;
    bool is_measured = plan->time.predicted_s > 0, is_many = plan->options.n_devices > 1;
    char a[32], b[32], c[32];
    if (plan->time.roofline_s == 0) {
        printf(
            "\ntime: unknown; there is no peak or bandwidth for %s (`tally calibrate`, `tally devices`, --hardware)\n",
            plan->target.name);
        return;
    }
    printf("\ntime of a step%s\n  %-12s %s: FLOPs at the %s peaks, or bytes at full bandwidth; no step is shorter\n",
           is_many ? " on one device, which would have the whole model" : "", "bound",
           duration_text(plan->time.bound_s, a),
           plan->target.has_given_peak ? "given" : (is_measured ? "measured" : "data sheet's"));
    printf("  %-12s %s: every op at its peak or at memory bandwidth, one after the other\n", "roofline",
           duration_text(plan->time.roofline_s, a));
    if (is_measured)
        printf("  %-12s %s: from this machine's measurements\n", "predicted", duration_text(plan->time.predicted_s, a));
    if (is_many) devices_time_print(plan);
    else
        printf("  %s tokens/s%s\n", amount_text((double)plan->price.n_tokens / r->step_s, a),
               is_measured ? "" : " at most");
    printf("training: %s tokens in %s steps: %s%s", amount_text(r->tokens, a), amount_text(r->steps, b),
           duration_text(r->days * 86400, c),
           is_many       ? " expected"
           : is_measured ? ""
                         : " or more");
    printf(", %s %s-hours", amount_text(r->device_hours, a), hours_of(&plan->target));
    if (r->energy_kwh > 0) printf(", %s kWh at the chip's power", amount_text(r->energy_kwh, a));
    if (r->money > 0) printf(", %s", dollars_text(r->money, a));
    printf("\n");
}

static void bill_print(const struct plan *plan) {
    const struct plan_expectation *e = &plan->expected;
    const struct bill *b = &e->bill, *low = &e->least, *high = &e->most;
    char a[32], l[32], h[32];
    printf("expected: %s", duration_text(b->days * 86400, a));
    if (e->has_range) printf(" (%s to %s)", duration_text(low->days * 86400, l), duration_text(high->days * 86400, h));
    printf(", %s %s-hours", amount_text(b->device_hours, a), hours_of(&plan->target));
    if (b->money > 0) printf(", %s", dollars_text(b->money, a));
    if (b->money > 0 && e->has_range) printf(" (%s to %s)", dollars_text(low->money, l), dollars_text(high->money, h));
    if (b->energy_kwh > 0) printf(", %s kWh", amount_text(b->energy_kwh, a));
    if (b->co2_kg > 0) printf(", %s kg of CO2", amount_text(b->co2_kg, a));
    printf("\n");
}

/* The training as those who pay for it see it, and what that rests on. */
static void expected_print(const struct plan *plan) {
    const struct plan_expectation *e = &plan->expected;
    const struct bill_terms *t = &plan->options.terms;
    if (!(e->step_s > 0)) return;
    bill_print(plan);
    if (e->mfu > 0) printf("  MFU %.1f %% by PaLM's rule, ", 100 * e->mfu);
    else printf("  ");
    printf("%s", t->mfu > 0                   ? "as given"
                 : plan->time.predicted_s > 0 ? "from this machine's measurements"
                                              : "as published runs reach; nine of ten are within the range");
    if (t->goodput > 0) printf("; %.3g of the time counts", t->goodput);
    if (t->pue > 0) printf("; PUE %.3g", t->pue);
    if (t->host_watts > 0) printf("; %.0f W of the host for each", t->host_watts);
    printf("\n");
}

static void growth_print(const struct plan *plan) {
    char a[32];
    if (!plan->has_growth) return;
    printf("\nlimits of growth\n");
    for (int i = 0; i < FIT_N_AXES; i++) {
        const struct fit_answer *g = &plan->growth[i];
        char grows[GROWTH_TEXT];
        if (!g->next.size) {
            printf("  %-9s no limit up to %" PRId64 "\n", fit_axis_names[i], g->best.size);
            continue;
        }
        if (g->best.size) printf("  %-9s %" PRId64 " is the largest that fits; ", fit_axis_names[i], g->best.size);
        else printf("  %-9s no size fits; ", fit_axis_names[i]);
        if (g->next.limit == FIT_REFUSED) printf("%" PRId64 ": %s", g->next.size, g->next.why);
        else
            printf("%" PRId64 " needs %s, %s", g->next.size, bytes_text((double)g->next.bytes, a),
                   growth_text(g, grows));
        printf("%s\n", g->is_proven ? "" : " (larger ones may fit)");
    }
    scale_print(plan);
    if (plan->n_advice) printf("advice\n");
    for (int i = 0; i < plan->n_advice; i++) printf("  %s\n", plan->advice[i]);
}

static void plan_print(const struct plan *plan) {
    head_print(plan);
    memory_print(plan);
    devices_print(plan);
    modules_print(plan);
    phases_print(plan);
    conventions_print(plan);
    ops_print(plan);
    time_print(plan);
    expected_print(plan);
    growth_print(plan);
}

/* ---- Many ---- */

struct sweep {
    struct plan_flags *flags; /* its settings are those of the combination that is planned */
    int64_t n, n_bad;
    char values[TEXTS_MOST][24]; /* of the names that are swept */
};

static bool is_swept(const char *text, const char *name) {
    return !strncmp(text, name, strlen(name)) && text[strlen(name)] == '=';
}

/* What is swept has a column; these have one in any case. */
static bool has_column(const char *text) {
    static const char *const always[] = {"model", "device", "batch", "seq", "accum", "recipe", "checkpointing"};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (is_swept(text, always[i])) return true;
    return false;
}

static void head_of_lines(const struct sweep *w) {
    const struct texts *sweeps = &w->flags->sweeps;
    printf("%-16s %-14s %6s %7s %5s %-9s %-9s", "model", "device", "batch", "seq", "accum", "recipe", "checkpt");
    for (int i = 0; i < sweeps->n; i++)
        if (!has_column(sweeps->at[i])) printf(" %8.*s", (int)strcspn(sweeps->at[i], "="), sweeps->at[i]);
    printf(" %12s %-12s %12s %9s %11s", "on each", "verdict", "step", "tokens/s", "training");
    printf("%s\n", w->flags->options.price_per_hour > 0 ? "        money" : "");
}

static void point_begin(const struct sweep *w, const struct settings *s) {
    const struct texts *sweeps = &w->flags->sweeps;
    if (!w->n) head_of_lines(w);
    printf("%-16.16s %-14.14s %6" PRId64 " %7" PRId64 " %5" PRId64 " %-9s", s->model, s->device, s->batch, s->seq,
           s->accum, settings_choice(s, "recipe"));
    printf(" %-9s", settings_choice(s, "checkpointing"));
    for (int i = 0; i < sweeps->n; i++)
        if (!has_column(sweeps->at[i])) printf(" %8s", w->values[i]);
}

static void line_print(const struct sweep *w, const struct plan *plan) {
    char a[32], b[32], c[32], d[32];
    const struct plan_run *r = &plan->run;
    const uint64_t bytes = plan->options.n_devices > 1 ? plan->layout.total_bytes : plan->price.reserved_bytes;
    const double tokens = (double)plan->price.n_tokens * (double)plan->options.layout.dp;
    const bool is_known = r->step_s > 0;
    point_begin(w, &plan->settings);
    printf(" %12s %-12s %12s %9s %11s", bytes_text((double)bytes, a), price_verdict_text(plan_verdict(plan)),
           is_known ? duration_text(r->step_s, b) : "-", is_known ? count_text(tokens / r->step_s, c) : "-",
           is_known ? duration_text(r->days * 86400, d) : "-");
    if (plan->options.price_per_hour > 0) printf(" %12s", is_known ? dollars_text(r->money, a) : "-");
    printf("\n");
}

static bool json_line(json_t *json) {
    char *text = json ? json_print(json, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(json);
    if (text) puts(text);
    free(text);
    return text != NULL;
}

/* A combination that cannot be: its line says why, and the sweep goes on. */
static int bad_print(struct sweep *w, const struct settings *s) {
    bool ok = true;
    if (tl_error() == TL_ERROR_MEMORY || tl_error() == TL_ERROR_SYSTEM) return cli_error();
    if (w->flags->is_json) {
        char *text = settings_json(s);
        json_t *settings = text ? json_parse(text, NULL) : NULL;
        free(text);
        ok = json_line(json_pack("{s:s, s:o, s:I, s:s}", "schema", "tally.plan/1", "settings", settings, "devices",
                                 (json_int_t)w->flags->options.n_devices, "error", tl_error_message()));
    } else {
        point_begin(w, s);
        printf(" not possible: %s\n", tl_error_message());
    }
    tl_error_clear();
    w->n++;
    w->n_bad++;
    return ok ? 0 : EXIT_MEMORY;
}

static int sweep_one(struct sweep *w, const struct settings *s) {
    static struct plan plan;
    struct plan_flags *f = w->flags;
    f->settings = *s;
    if (!plan_target_take(f)) return bad_print(w, s);
    int code = plan_target_read(f);
    if (code) return code;
    if (!plan_make(&plan, &f->settings, &f->target, &f->options, false)) return bad_print(w, &f->settings);
    if (!f->is_json) line_print(w, &plan);
    else if (!json_line(plan_json(&plan))) code = EXIT_MEMORY;
    plan_free(&plan);
    w->n++;
    return code;
}

/* Sets what is swept. The number of devices is no setting of a run. */
static int value_set(struct plan_flags *f, struct settings *s, const char *text, const char *value, size_t length) {
    static const struct option no_options[] = {{0}};
    const struct option devices[] = {{"--devices", OPTION_INTEGER, &f->options.n_devices, 1, 1e9, false}, {0}};
    char flag[SETTING_TEXT + 80], *arguments[] = {flag, NULL};
    int code, taken;
    snprintf(flag, sizeof flag, "--%.*s=%.*s", (int)(strchr(text, '=') - text), text, (int)length, value);
    if (option_take("plan", devices, arguments, 1, &taken, &code)) return code;
    return settings_flag(s, "plan", no_options, arguments, 1, &taken);
}

/* Every value that a name is given, at every value of the names before it. `is_check`: only whether they are values. */
static int sweep_from(struct sweep *w, const struct settings *s, int at, bool is_check) {
    struct plan_flags *f = w->flags;
    if (at == f->sweeps.n) return is_check ? 0 : sweep_one(w, s);
    const char *text = f->sweeps.at[at], *value = strchr(text, '=') + 1;
    struct settings *next = memory_new(sizeof *next);
    if (!next) return error_memory(sizeof *next, "a sweep's settings"), cli_error();
    int code = 0;
    while (!code && *value) {
        size_t length = strcspn(value, ",");
        *next = *s;
        snprintf(w->values[at], sizeof w->values[at], "%.*s", (int)length, value);
        code = value_set(f, next, text, value, length);
        if (!code && !is_check) code = sweep_from(w, next, at + 1, false);
        value += length + (value[length] == ',');
    }
    memory_free(next);
    return code || !is_check ? code : sweep_from(w, s, at + 1, true);
}

static int sweep_run(struct plan_flags *f) {
    static struct settings first;
    struct sweep w = {.flags = f};
    const int64_t n_devices = f->options.n_devices;
    for (int i = 0; i < f->sweeps.n; i++)
        if (!strchr(f->sweeps.at[i], '='))
            return fprintf(stderr, "tally plan: --sweep needs NAME=a,b,c, such as batch=1,2,4\n"), EXIT_USAGE;
    first = f->settings;
    int code = sweep_from(&w, &first, 0, true);
    f->options.n_devices = n_devices;
    if (!code) code = sweep_from(&w, &first, 0, false);
    return code || w.n_bad < w.n ? code : EXIT_INPUT;
}

/* ---- Using a model ---- */

static void part_print(const char *name, const struct infer_part *p) {
    char a[32], b[32], c[32];
    printf("  %-22s %10s %12s %9.1f", name, count_text((double)p->flops, a), bytes_text((double)p->bytes, b),
           p->bytes ? (double)p->flops / (double)p->bytes : 0);
    if (p->roofline_s > 0 && p->memory_s > 0)
        printf(" %-8s %10s", p->arithmetic_s > p->memory_s ? "compute" : "memory", duration_text(p->roofline_s, c));
    if (p->predicted_s > 0) printf(" %10s", duration_text(p->predicted_s, c));
    printf("\n");
}

static void batch_print(const char *what, int64_t n) {
    if (n > 0) printf("  %s from batch %" PRId64 "\n", what, n);
    else if (n == 0) printf("  %s at no batch size: every sequence has its own cache\n", what);
}

/* Training's narrow recipes keep wide weights: they say nothing of a model whose weights are kept narrow. */
static void formats_print(const struct infer_question *q, const struct infer_answer *a) {
    char b[32], c[32];
    if (a->narrow)
        printf("\nrecipe %s is for training: weights are kept in %s and rounded to %s at every use, which the times "
               "above\n"
               "include. Weights that are kept in %s are below.\n",
               settings_choice(&q->settings, "recipe"), "16 bits or more", a->narrow, a->narrow);
    printf("\n%-24s %10s %12s %16s\n", "weights kept in", "bits", "bytes", "decode, at least");
    for (int i = 0; i < INFER_FORMATS; i++) {
        const struct infer_format *f = &a->formats[i];
        printf("  %-22s %10.4g %12s %16s\n", f->name, f->bits, bytes_text(f->weights_bytes, b),
               f->decode_s > 0 ? duration_text(f->decode_s, c) : "-");
    }
    printf("  by weights and caches alone, each read once for a step of all sequences, products in bf16\n");
}

static void inference_print(const struct infer_question *q, const struct infer_answer *a) {
    const struct settings *s = &q->settings;
    uint64_t limit = plan_target_limit(&q->target);
    char n[32], b[32], c[32];
    printf("%s on %s: %" PRId64 " sequence%s, a prompt of %" PRId64 " tokens, %" PRId64 " new ones; recipe %s\n",
           s->model, q->target.chip ? q->target.chip->name : q->target.name, s->batch, s->batch == 1 ? "" : "s", s->seq,
           q->n_new, settings_choice(s, "recipe"));
    plan_defaults_print(s);
    printf("\nmemory: %s", bytes_text((double)a->reserved_bytes, n));
    if (limit) printf(" of %s, %s", bytes_text((double)limit, b), a->verdict == PRICE_FITS ? "fits" : "TOO LARGE");
    printf("\n  weights %s, cache %s", bytes_text((double)a->weights_bytes, n), bytes_text((double)a->cache_bytes, b));
    printf(" (%s per token of a sequence)\n", bytes_text((double)a->cache_token_bytes, c));
    if (a->largest_batch >= 0) printf("  the largest batch that fits: %" PRId64 "\n", a->largest_batch);
    printf("\n%-24s %10s %12s %9s %-8s %10s%s\n", "one pass", "FLOPs", "bytes moved", "FLOP/B", "bound by", "at least",
           a->first.predicted_s > 0 ? "  predicted" : "");
    part_print("prefill", &a->prefill);
    part_print("decode, first token", &a->first);
    part_print("decode, last token", &a->last);
    if (a->decode_s > 0) {
        const char *most = a->first.predicted_s > 0 ? "" : " at most";
        printf("\n%s tokens/s of prompt%s, ", amount_text(a->prefill_tokens_per_s, n), most);
        printf("%s new tokens/s in total%s\n", amount_text(a->decode_tokens_per_s, b), most);
    }
    batch_print("products with weights are compute-bound", a->compute_bound_products);
    batch_print("a whole decode step is compute-bound", a->compute_bound_all);
    formats_print(q, a);
}

static int infer_one(const struct plan_flags *f) {
    static struct infer_question q;
    struct infer_answer answer;
    q.settings = f->settings;
    q.target = f->target;
    q.n_new = f->n_new;
    if (!infer_price(&q, &answer)) return cli_error();
    if (f->is_json) return cli_json(infer_json(&q, &answer));
    inference_print(&q, &answer);
    return 0;
}

/* ---- The command ---- */

/* The price as `tally train` makes it, and beside it the time of a step, where one is known. */
static int price_write(const struct plan_flags *f, const struct plan *plan) {
    char *text = price_text_on(&f->settings, f->target.device);
    json_t *price = text ? json_parse(text, NULL) : NULL;
    json_t *step = json_object_get(json_object_get(price, "kinds"), kind_name(KIND_STEP));
    const struct plan_time *t = &plan->time;
    if (t->predicted_s > 0)
        json_object_set_new(step, "time", json_pack("{s:f, s:f}", "step_s", t->predicted_s, "bound_s", t->bound_s));
    else if (t->bound_s > 0) json_object_set_new(step, "time", json_pack("{s:f}", "bound_s", t->bound_s));
    free(text);
    text = price ? json_print(price, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    bool ok = text && file_put(f->price_file, text, strlen(text));
    json_decref(price);
    free(text);
    return ok ? 0 : cli_error();
}

static int energy_check(const struct plan *plan) {
    const struct bill_terms *t = &plan->options.terms;
    if (!(t->carbon > 0 || t->pue > 0) || plan->expected.bill.energy_kwh > 0) return 0;
    fprintf(stderr,
            "tally plan: the power or the speed of %s is unknown, so --pue and --carbon have no effect (give "
            "--host-power W, the watts of a device and its host)\n",
            plan->target.name);
    return EXIT_INPUT;
}

static int plan_one(struct plan_flags *f) {
    static struct plan plan;
    double before = now_s();
    plan_progress_begin(&f->options);
    bool ok = plan_make(&plan, &f->settings, &f->target, &f->options, !f->is_short);
    plan_progress_end();
    if (!ok) return cli_error();
    int code = energy_check(&plan);
    if (!code && f->price_file) code = price_write(f, &plan);
    if (code) return plan_free(&plan), code;
    if (f->is_json) code = cli_json(plan_json(&plan));
    else plan_print(&plan);
    plan_free(&plan);
    if (!f->is_json) printf("\nplanned in %.3f s\n", now_s() - before);
    return code;
}

static const struct option_form forms[] = {
    {"plan",
     PLAN_DEVICE_FLAGS "--tokens --price-per-hour --mfu --goodput --pue --carbon --host-power --short --price "
                       "--hardware --json",
     ""},
    {"plan --sweep", PLAN_DEVICE_FLAGS "--sweep --tokens --price-per-hour --hardware --json", ""},
    {"plan --layouts", PLAN_DEVICE_FLAGS "--layouts --all --price-per-hour --hardware --json", ""},
    {"plan --inference",
     "--inference --new-tokens --hardware --json --config --model --layers --channels --heads --kv-heads --ff "
     "--vocabulary --context --data --tokenizer --stories --device --recipe --batch --seq --memory-limit --peak "
     "--threads",
     NULL},
    {NULL, NULL, NULL},
};
static const struct option_rule rules[] = {
    {"plan", "--schedule --chunks", OPTION_WITHOUT, "--pp"},
    {"plan --sweep", "--schedule --chunks", OPTION_WITHOUT, "--pp"},
    {"plan --sweep", "--rings --fabric --node --link --network", OPTION_WITHOUT, "--devices --dp --tp --cp --pp"},
    {"plan --layouts", "--all", OPTION_BESIDE, "--json"},
    {NULL, NULL, OPTION_BESIDE, NULL},
};
/* Networks matter to the limits of growth, which a short plan leaves out. */
static const struct option_rule short_rules[] = {
    {"plan", "--rings --fabric --node --link --network", OPTION_WITHOUT, "--devices"},
    {NULL, NULL, OPTION_BESIDE, NULL},
};

static int flags_check(const struct plan_flags *f) {
    const struct option_form *form = &forms[f->is_inference ? 3 : f->has_layouts ? 2 : f->sweeps.n ? 1 : 0];
    int code = plan_flags_check(f, forms, form, rules);
    return code || !f->is_short ? code : plan_flags_check(f, forms, form, short_rules);
}

int cmd_plan(int argc, char **argv) {
    static struct plan_flags f; /* a command runs once, and this is more than a stack should hold */
    f.settings = settings_default();
    f.n_new = 128;
    const struct option table[] = {{"--inference", OPTION_FLAG, &f.is_inference, 0, 0, false},
                                   {"--new-tokens", OPTION_INTEGER, &f.n_new, 1, 1e9, false},
                                   PLAN_DEVICE_OPTIONS(f),
                                   {"--layouts", OPTION_FLAG, &f.has_layouts, 0, 0, false},
                                   {"--sweep", OPTION_TEXTS, &f.sweeps, 0, 0, false},
                                   {"--all", OPTION_FLAG, &f.is_all, 0, 0, false},
                                   {"--tokens", OPTION_NUMBER, &f.options.tokens, 0, 1e30, true},
                                   {"--price-per-hour", OPTION_NUMBER, &f.options.price_per_hour, 0, 1e9, true},
                                   {"--mfu", OPTION_NUMBER, &f.options.terms.mfu, 0, 1, true},
                                   {"--goodput", OPTION_NUMBER, &f.options.terms.goodput, 0, 1, true},
                                   {"--pue", OPTION_NUMBER, &f.options.terms.pue, 1, 10, false},
                                   {"--carbon", OPTION_NUMBER, &f.options.terms.carbon, 0, 5000, true},
                                   {"--host-power", OPTION_NUMBER, &f.options.terms.host_watts, 0, 1e5, true},
                                   {"--short", OPTION_FLAG, &f.is_short, 0, 0, false},
                                   {"--price", OPTION_TEXT, &f.price_file, 0, 0, false},
                                   {"--hardware", OPTION_TEXT, &f.hardware, 0, 0, false},
                                   {"--json", OPTION_FLAG, &f.is_json, 0, 0, false},
                                   {NULL, OPTION_END, NULL, 0, 0, false}};
    int code = plan_flags_read(&f, "plan", table, argc, argv, 0);
    if (!code) code = flags_check(&f);
    if (!code && !f.sweeps.n) code = plan_target_read(&f);
    if (!code && f.is_inference) code = infer_one(&f);
    else if (!code && f.has_layouts) code = layouts_run(&f);
    else if (!code && f.sweeps.n) code = sweep_run(&f);
    else if (!code) code = plan_one(&f);
    plan_flags_free(&f);
    return code;
}

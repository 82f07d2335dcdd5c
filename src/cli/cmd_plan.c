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
#include "cli/sheet.h"
#include "plan/infer.h"
#include "plan/plan.h"
#include "step/recipe.h"

const char help_plan[] =
    "usage: tally plan [--SETTING VALUE ...] [--device NAME] [--devices N --tp N --pp N ...] [--tokens D] [--full]\n"
    "\n"
    "Shows what a training run needs before it runs, the answer first. Tally runs the trainer's own steps on meta,\n"
    "which has shapes but no data, under the device's memory rules. Bytes, FLOPs and the verdict are exact for one\n"
    "device; times follow from the data sheet. The settings are those of `tally train` (`tally train --settings`);\n"
    "those that change no figure, such as --lr, are refused but for --best, --price and --config. Models of 50\n"
    "million parameters and more have defaults that fit them; the plan names them.\n"
    "\n"
    "  --device NAME        cpu or this, or a chip of `tally devices`: H200, A100-80, 'RTX 4090'\n"
    "  --devices N          devices that share the work; --batch is that of all of them [dp x tp x cp x pp]\n"
    "  --tp, --cp, --pp N   settings: devices that divide matrices, sequences, layers; --dp: what they leave of N\n"
    "  --shard MODE         setting: none, zero1, zero2, zero3: what the devices of dp keep only a part of\n"
    "  --schedule NAME      pipelines: 1f1b, interleaved (with --chunks V of each stage), zb1p, zbv [1f1b]\n"
    "  --layouts            find layouts: every way to divide this run among --devices, the fastest first (--all: "
    "all)\n"
    "  --best               search recipe, checkpointing, micro-batch, and of --devices how many and which layout:\n"
    "                       the fastest, cheapest and smallest plans that fit. What you give is kept, and the step\n"
    "  --as FRAMEWORK       the memory that another framework needs for this run: pytorch-fsdp, megatron, hf-trainer,\n"
    "                       llm.c, llmq, and variants of them (an estimate)\n"
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
    "  --full               also modules, FLOPs, ops, conventions, what is sent, more devices\n"
    "  --short              leave out growth limits and advice\n"
    "  --sweep NAME=a,b,c   plan every combination of these values of settings, or devices=, one line each; may be\n"
    "                       repeated. A combination that is not possible says why\n"
    "  --inference          cost of using the model: a prompt of --seq tokens for --batch sequences, then decoding\n"
    "  --new-tokens N       with --inference: tokens after the prompt [128]\n"
    "  --weights, --cache F serving: fp8, int8, int4, nvfp4; --tp divides\n"
    "  --page, --prefill-chunk N, --latency MS   tokens of a block [16], of prompts at once\n"
    "  --draft MODEL, --draft-tokens N, --acceptance X   speculative decoding\n"
    "  --price FILE         write the price (tally.run/1), for `tally diff` with a receipt\n"
    "  --hardware FILE      your own chips, tally.hardware/1\n"
    "  --config FILE        read settings from a JSON object\n"
    "  --json               tally.plan/1 on stdout; a sweep prints one object per line\n"
    "  --markdown, --csv    tables in Markdown; every figure as section,row,figure,value,unit\n"
    "  --svg FILE           draw a step: its memory by purpose, op by op, and its time by op\n"
    "\n"
    "examples:\n"
    "  tally plan --model llama-3-8b --recipe bf16 --seq 8192 --batch 1 --checkpoint full --device H200 --tokens 1T\n"
    "  tally plan --model llama-3-70b --recipe bf16 --seq 8192 --batch 512 --device H100 --devices 256 --layouts\n"
    "  tally plan --model qwen2.5-1.5b --device 'RTX 4090' --sweep batch=1,2,4,8 --sweep seq=1024,2048\n"
    "  tally plan --inference --model llama-3-70b --seq 2048 --new-tokens 512 --device H100 --tp 4 --weights fp8\n"
    "\n"
    "The exit code is 0 if the plan was made.\n";

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
    const double tokens = (double)plan->price.n_tokens * (double)plan->options.layout.dp;
    const struct plan_expectation *e = &plan->expected; /* with --mfu; else the bound, or what several devices reach */
    const bool is_given = plan->options.terms.mfu > 0;
    const double step_s = is_given ? e->step_s : r->step_s, days = is_given ? e->bill.days : r->days;
    const bool is_known = step_s > 0;
    point_begin(w, &plan->settings);
    printf(" %12s %-12s %12s %9s %11s", bytes_text((double)plan_needed(plan), a),
           price_verdict_text(plan_verdict(plan)), is_known ? duration_text(step_s, b) : "-",
           is_known ? count_text(tokens / step_s, c) : "-", is_known ? duration_text(days * DAY_S, d) : "-");
    if (plan->options.price_per_hour > 0)
        printf(" %12s", is_known ? dollars_text(is_given ? e->bill.money : r->money, a) : "-");
    printf("\n");
}

static bool json_line(json_t *json) {
    char *text = json ? json_print(json, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(json);
    if (text) puts(text);
    free(text);
    return text != NULL;
}

/* The plan's own keys, and the answer of its sheet. */
static json_t *json_of(const struct plan *plan, const struct sheet *sheet) {
    json_t *json = plan_json(plan);
    if (json) json_object_set_new(json, "answer", sheet_json(sheet, "answer"));
    return json;
}

static bool plan_line(const struct plan *plan) {
    struct sheet sheet;
    const bool ok = plan_sheet(&sheet, plan) && json_line(json_of(plan, &sheet));
    sheet_free(&sheet);
    return ok;
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
    else if (!plan_line(&plan)) code = EXIT_MEMORY;
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
    struct serve_question serve;
    struct serve_answer served;
    if (!infer_price(&q, &answer)) return cli_error();
    int code = serve_find(f, &answer, &serve, &served);
    if (code) return code;
    if (f->is_json) {
        json_t *json = infer_json(&q, &answer);
        if (json) json_object_set_new(json, "serving", serve_json(&serve, &served));
        return cli_json(json);
    }
    inference_print(&q, &answer);
    serve_print(&serve, &served);
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

static int svg_write(const struct plan_flags *f, const struct plan *plan) {
    char *svg = plan_svg(plan);
    const bool ok = svg && file_put(f->svg_file, svg, strlen(svg));
    memory_free(svg);
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

static int plan_write(const struct plan_flags *f, const struct plan *plan) {
    struct sheet sheet;
    int code = plan_sheet(&sheet, plan) ? 0 : cli_error();
    if (!code && f->is_json) code = cli_json(json_of(plan, &sheet));
    else if (!code && f->is_csv) sheet_csv(&sheet);
    else if (!code && f->is_markdown) sheet_markdown(&sheet, f->is_full);
    else if (!code) sheet_print(&sheet, f->is_full);
    sheet_free(&sheet);
    return code;
}

static int plan_one(struct plan_flags *f) {
    static struct plan plan;
    double before = now_s();
    plan_progress_begin(&f->options);
    bool ok = plan_make(&plan, &f->settings, &f->target, &f->options, !f->is_short && !f->options.as);
    plan_progress_end();
    if (!ok) return cli_error();
    int code = energy_check(&plan);
    if (!code && f->price_file) code = price_write(f, &plan);
    if (!code && f->svg_file) code = svg_write(f, &plan);
    if (code) return plan_free(&plan), code;
    code = plan_write(f, &plan);
    plan_free(&plan);
    if (!code && !f->is_json && !f->is_csv && !f->is_markdown) printf("planned in %.3f s\n", now_s() - before);
    return code;
}

static const struct option_form forms[] = {
    {"plan",
     PLAN_DEVICE_FLAGS "--tokens --price-per-hour --mfu --goodput --pue --carbon --host-power --short "
                       "--hardware --json --csv --markdown --full --svg",
     PLAN_UNREAD},
    {"plan --sweep", PLAN_DEVICE_FLAGS "--sweep --tokens --price-per-hour --mfu --hardware --json",
     PLAN_UNREAD PLAN_UNREAD_FLOPS},
    {"plan --layouts", PLAN_DEVICE_FLAGS "--layouts --all --price-per-hour --hardware --json",
     PLAN_UNREAD "--sp --steps --seed --seed-data --sample-tokens --prompt"},
    {"plan --best", PLAN_DEVICE_FLAGS "--best --price-per-hour --hardware --json --csv --markdown", ""},
    {"plan --inference",
     "--weights --cache --page --prefill-chunk --latency --draft --draft-tokens --acceptance "
     "--inference --new-tokens --tp --price-per-hour --hardware --json --config --model --layers --channels --heads "
     "--kv-heads --ff "
     "--vocabulary --context --data --tokenizer --stories --device --recipe --batch --seq --memory-limit --peak "
     "--threads",
     NULL},
    {"plan --as",
     PLAN_DEVICE_FLAGS "--as --tokens --price-per-hour --mfu --goodput --pue --carbon --host-power --hardware --json "
                       "--csv --markdown --full",
     PLAN_UNREAD},
    {"plan --price",
     PLAN_DEVICE_FLAGS "--tokens --price-per-hour --mfu --goodput --pue --carbon --host-power --short --price "
                       "--hardware --json --csv --markdown --full --svg",
     ""},
    {NULL, NULL, NULL},
};
static const struct option_rule rules[] = {
    OPTION_SETTING_RULES("plan"),
    OPTION_SETTING_RULES("plan --sweep"),
    OPTION_SETTING_RULES("plan --as"),
    OPTION_SETTING_RULES("plan --layouts"),
    {"plan --sweep", "--shard --shard-group --overlap", OPTION_WITHOUT, "--devices --dp --tp --cp --pp"},
    {"plan --as", "--shard --shard-group --overlap", OPTION_WITHOUT, "--devices --dp --tp --cp --pp"},
    {"plan --best", "--shard --shard-group --overlap", OPTION_WITHOUT, "--devices --dp --tp --cp --pp"},
    {"plan --price", "--schedule --chunks", OPTION_WITHOUT, "--pp"},
    {"plan --price", "--full --csv --markdown", OPTION_BESIDE, "--json"},
    {"plan --price", "--full --markdown", OPTION_BESIDE, "--csv"},
    {"plan", "--schedule --chunks", OPTION_WITHOUT, "--pp"},
    {"plan --sweep", "--schedule --chunks", OPTION_WITHOUT, "--pp"},
    {"plan --sweep", "--rings --fabric --node --link --network", OPTION_WITHOUT, "--devices --dp --tp --cp --pp"},
    {"plan --layouts", "--all", OPTION_BESIDE, "--json"},
    {"plan --best", "--schedule --chunks", OPTION_WITHOUT, "--pp"},
    {"plan --best", "--csv --markdown", OPTION_BESIDE, "--json"},
    {"plan --best", "--markdown", OPTION_BESIDE, "--csv"},
    {"plan --best", "--rings --fabric --node --link --network", OPTION_WITHOUT, "--devices --dp --tp --cp --pp"},
    {"plan --best", "--price-per-hour", OPTION_BESIDE, "--json"},
    {"plan", "--full --csv --markdown", OPTION_BESIDE, "--json"},
    {"plan", "--full --markdown", OPTION_BESIDE, "--csv"},
    {"plan --inference", "--draft-tokens --acceptance", OPTION_WITHOUT, "--draft"},
    {"plan --as", "--schedule --chunks", OPTION_WITHOUT, "--pp"},
    {"plan --as", "--rings --fabric --node --link --network", OPTION_WITHOUT, "--devices --dp --tp --cp --pp"},
    {"plan --as", "--full --csv --markdown", OPTION_BESIDE, "--json"},
    {"plan --as", "--full --markdown", OPTION_BESIDE, "--csv"},
    {NULL, NULL, OPTION_BESIDE, NULL},
};
/* Networks matter to the limits of growth, which a short plan leaves out. */
static const struct option_rule short_rules[] = {
    {"plan", "--rings --fabric --node --link --network --shard --shard-group --overlap", OPTION_WITHOUT, "--devices"},
    {"plan --price", "--rings --fabric --node --link --network", OPTION_WITHOUT, "--devices"},
    {NULL, NULL, OPTION_BESIDE, NULL},
};

static int flags_check(const struct plan_flags *f) {
    const struct option_form *form = &forms[f->is_inference  ? 4
                                            : f->is_best     ? 3
                                            : f->has_layouts ? 2
                                            : f->sweeps.n    ? 1
                                            : f->options.as  ? 5
                                            : f->price_file  ? 6
                                                             : 0];
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
                                   {"--best", OPTION_FLAG, &f.is_best, 0, 0, false},
                                   {"--as", OPTION_TEXT, &f.options.as, 0, 0, false},
                                   {"--weights", OPTION_TEXT, &f.serve.weights, 0, 0, false},
                                   {"--cache", OPTION_TEXT, &f.serve.cache, 0, 0, false},
                                   {"--page", OPTION_INTEGER, &f.serve.page, 1, 1e6, false},
                                   {"--prefill-chunk", OPTION_INTEGER, &f.serve.chunk, 1, 1e9, false},
                                   {"--latency", OPTION_NUMBER, &f.serve.latency_s, 0, 1e9, true},
                                   {"--draft", OPTION_TEXT, &f.serve.draft, 0, 0, false},
                                   {"--draft-tokens", OPTION_INTEGER, &f.serve.draft_tokens, 1, 1000, false},
                                   {"--acceptance", OPTION_NUMBER, &f.serve.acceptance, 0, 1, true},
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
                                   {"--csv", OPTION_FLAG, &f.is_csv, 0, 0, false},
                                   {"--markdown", OPTION_FLAG, &f.is_markdown, 0, 0, false},
                                   {"--full", OPTION_FLAG, &f.is_full, 0, 0, false},
                                   {"--svg", OPTION_TEXT, &f.svg_file, 0, 0, false},
                                   {NULL, OPTION_END, NULL, 0, 0, false}};
    int code = plan_flags_read(&f, "plan", table, argc, argv, 0);
    if (!code) code = flags_check(&f);
    if (!code && !f.sweeps.n) code = plan_target_read(&f);
    if (!code && f.is_inference) code = infer_one(&f);
    else if (!code && f.is_best) code = best_run(&f);
    else if (!code && f.has_layouts) code = layouts_run(&f);
    else if (!code && f.sweeps.n) code = sweep_run(&f);
    else if (!code) code = plan_one(&f);
    plan_flags_free(&f);
    return code;
}

/* cmd_roofline.c: tally roofline: the ops of a step as points under this machine's roof. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "plan/calibrate.h"
#include "plan/roofline.h"

const char help_roofline[] =
    "usage: tally roofline [--model NAME] [--batch B] [--seq T] [--recipe R] [--svg FILE] [--json]\n"
    "\n"
    "Measures every op of a training step, of inference one token at a time, and of a small standard set (ReLU,\n"
    "GELU, dot product, matrix times vector, square products). Shows the FLOPs per byte of each op, its speed, and\n"
    "the limit set by the machine's memory and arithmetic. The limits come from the stored profile\n"
    "(`tally calibrate`); without one, peaks and memory are measured first, which takes a few seconds.\n"
    "\n"
    "  --model NAME     a preset or a config.json (tiny)\n"
    "  --batch B        sequences of a step (8)\n"
    "  --seq T          tokens in each (128)\n"
    "  --layers N, --channels C, --heads H, --vocabulary V   sizes instead of the model's own\n"
    "  --recipe R       precision: fp32, bf16, ... (fp32)\n"
    "  --device NAME    cpu or cuda (cpu); or a chip of `tally devices`, such as H100: then nothing is measured, and\n"
    "                   every op is drawn on the roof of the data sheet\n"
    "  --hardware FILE  your own chips, tally.hardware/1\n"
    "  --set NAME       only standard, training or inference\n"
    "  --profile FILE   another profile than the stored one\n"
    "  --svg FILE       draw a picture\n"
    "  --json           everything as JSON\n"
    "\n"
    "examples:\n"
    "  tally roofline --svg roofline.svg\n"
    "  tally roofline --model gpt2-124m --layers 2 --batch 2 --seq 256 --recipe bf16\n"
    "  tally roofline --device H100 --model llama-3-8b --recipe bf16 --batch 1 --seq 4096 --svg h100.svg\n"
    "  tally roofline --set standard --json | jq '.points[] | {name, intensity, bound}'\n";

struct asked {
    const char *model, *recipe, *device, *set, *profile, *svg, *hardware;
    int64_t batch, seq, layers, channels, heads, vocabulary;
    bool is_json;
};

static bool settings_make(const struct asked *q, struct settings *s) {
    *s = settings_default();
    if (!settings_set(s, "model", q->model) || !settings_set(s, "recipe", q->recipe) ||
        !settings_set(s, "device", q->device))
        return false;
    s->batch = q->batch;
    s->seq = q->seq;
    s->layers = q->layers;
    s->channels = q->channels;
    s->heads = q->heads;
    s->vocabulary = q->vocabulary;
    s->val_share = 0;
    return true;
}

static void note(void *context, const char *words) {
    (void)context;
    fprintf(stderr, "  measuring %s\n", words);
}

/* The roof: a file, the kept profile, or what can be measured at once. */
static bool machine_open(const struct asked *q, tl_device *device, struct machine *m) {
    char why[200];
    if (q->profile) return machine_read(m, q->profile);
    if (machine_find(m, device, why)) return true;
    fprintf(stderr, "tally roofline: %s\n", why);
    return calibrate_roof(&(struct calibrate_options){.device = device, .is_quick = true, .tell = note}, m);
}

/* ---- Text ---- */

static void table_print(const struct roofline *r) {
    int before = -1;
    for (int i = 0; i < r->n_points; i++) {
        const struct roofline_point *p = &r->points[i];
        if ((int)p->set != before) {
            printf("\n%s", roofline_set_names[p->set]);
            if (p->set == ROOFLINE_TRAINING) printf(": a step of %.4g ms", 1e3 * r->step_s);
            if (p->set == ROOFLINE_INFERENCE) printf(": a token in %.4g ms", 1e3 * r->token_s);
            printf("\n  %-22s %-9s %-5s %7s %10s %10s %10s %8s %8s  %s\n", "op", "phase", "dtype", "calls", "us",
                   "FLOP/B", "GFLOP/s", "GB/s", "of roof", "bound by");
        }
        before = (int)p->set;
        printf("  %-22s %-9s %-5s %7llu %10.4g %10.4g %10.4g %8.4g", p->name, tl_phase_name((tl_phase)p->phase),
               tl_dtype_name(p->dtype), (unsigned long long)p->calls, 1e6 * p->seconds / (double)p->calls, p->intensity,
               p->rate / 1e9, p->bytes / p->seconds / 1e9);
        if (p->flops > 0 && p->roof > 0)
            printf(" %6.1f %%  %s\n", 100 * p->rate / p->roof, p->is_memory_bound ? "memory" : "compute");
        else printf(" %8s  %s\n", "-", "memory");
    }
}

/* Where the whole of a set lies: training against inference. */
static void sums_print(const struct roofline *r) {
    for (int set = ROOFLINE_TRAINING; set < ROOFLINE_SETS; set++) {
        double flops = 0, bytes = 0, seconds = 0, bound = 0;
        for (int i = 0; i < r->n_points; i++) {
            const struct roofline_point *p = &r->points[i];
            if ((int)p->set != set) continue;
            flops += p->flops;
            bytes += p->bytes;
            seconds += p->seconds;
            if (p->is_memory_bound) bound += p->seconds;
        }
        if (seconds > 0)
            printf("%-10s %8.4g FLOP/B over all ops, %8.4g GFLOP/s; %5.1f %% of the time in memory-bound ops\n",
                   roofline_set_names[set], flops / bytes, flops / seconds / 1e9, 100 * bound / seconds);
    }
}

static void text_print(const struct roofline *r) {
    printf("%s, %s: memory %.4g GB/s", r->machine.machine, r->machine.device, r->known.bandwidth / 1e9);
    if (r->known.fastest > 0) printf(" (caches to %.4g)", r->known.fastest / 1e9);
    for (int d = 0; d < TL_DTYPE_COUNT; d++)
        if (r->known.peak[d] > 0)
            printf("; %s %.4g GFLOP/s, ridge %.3g", tl_dtype_name((tl_dtype)d), r->known.peak[d] / 1e9,
                   r->known.peak[d] / r->known.bandwidth);
    printf("\n");
    if (r->is_sheet) printf("by the data sheet: every op at its roof, one after the other; no op is faster\n");
    table_print(r);
    printf("\n");
    sums_print(r);
}

/* ---- The command ---- */

static int answer(const struct asked *q, const struct settings *s, const struct roofline *r) {
    char title[200];
    snprintf(title, sizeof title, "Roofline: %.120s, %.16s, %lld x %lld tokens", s->model, q->recipe,
             (long long)s->batch, (long long)s->seq);
    char *svg = q->svg ? roofline_svg(r, title) : NULL;
    bool ok = !q->svg || (svg && file_put(q->svg, svg, strlen(svg)));
    free(svg);
    if (!ok) return cli_error();
    if (q->is_json) return cli_json(roofline_json(r));
    text_print(r);
    return 0;
}

static int set_find(const char *name, bool sets[ROOFLINE_SETS]) {
    bool is_known = !name;
    for (int i = 0; i < ROOFLINE_SETS; i++) {
        sets[i] = !name || !strcmp(name, roofline_set_names[i]);
        is_known = is_known || sets[i];
    }
    if (is_known) return 0;
    char meant[TEXT_MEANT];
    fprintf(stderr, "tally roofline: there is no set \"%s\"%s (use standard, training or inference)\n", name,
            text_meant(meant, text_nearest(name, roofline_set_names, ROOFLINE_SETS)));
    return EXIT_INPUT;
}

/* Devices that are measured; other names are those of the table. */
static bool is_here(const char *name) {
    return !strncmp(name, "cpu", 3) || !strncmp(name, "cuda", 4) || !strncmp(name, "meta", 4);
}

static int chip_draw(const struct asked *q, const struct settings *s, struct roofline *r,
                     const bool sets[ROOFLINE_SETS]) {
    struct plan_target target;
    if (q->profile)
        return fprintf(stderr, "tally roofline: --profile has no effect with a chip of the table\n"), EXIT_USAGE;
    if (!hardware_load_default() || (q->hardware && !hardware_load(q->hardware)) ||
        !plan_target_find(&target, q->device) || !roofline_of_chip(r, &target, s, sets))
        return cli_error();
    return answer(q, s, r);
}

int cmd_roofline(int argc, char **argv) {
    struct asked q = {.model = "tiny", .recipe = "fp32", .device = "cpu", .batch = 8, .seq = 128};
    const struct option table[] = {
        {"--model", OPTION_TEXT, &q.model, 0, 0, false},
        {"--recipe", OPTION_TEXT, &q.recipe, 0, 0, false},
        {"--device", OPTION_TEXT, &q.device, 0, 0, false},
        {"--set", OPTION_TEXT, &q.set, 0, 0, false},
        {"--profile", OPTION_TEXT, &q.profile, 0, 0, false},
        {"--svg", OPTION_TEXT, &q.svg, 0, 0, false},
        {"--hardware", OPTION_TEXT, &q.hardware, 0, 0, false},
        {"--batch", OPTION_INTEGER, &q.batch, 1, 1e9, false},
        {"--seq", OPTION_INTEGER, &q.seq, 1, 1e9, false},
        {"--layers", OPTION_INTEGER, &q.layers, 1, 1e5, false},
        {"--channels", OPTION_INTEGER, &q.channels, 1, 1e9, false},
        {"--heads", OPTION_INTEGER, &q.heads, 1, 1e9, false},
        {"--vocabulary", OPTION_INTEGER, &q.vocabulary, 1, 1e9, false},
        {"--json", OPTION_FLAG, &q.is_json, 0, 0, false},
        {NULL, OPTION_END, NULL, 0, 0, false},
    };
    static struct settings s; /* a command runs once, and this is more than a stack should hold */
    struct machine m;
    static struct roofline r;
    bool sets[ROOFLINE_SETS];
    int code = options_read("roofline", table, argc, argv, NULL, 0);
    if (code || (code = set_find(q.set, sets))) return code;
    if (!settings_make(&q, &s)) return cli_error();
    if (!is_here(q.device)) {
        code = chip_draw(&q, &s, &r, sets);
        roofline_free(&r);
        hardware_unload();
        return code;
    }
    if (q.hardware)
        return fprintf(stderr, "tally roofline: --hardware has no effect with --device %s\n", q.device), EXIT_USAGE;
    tl_device *device = cli_device_measured("roofline", q.device, &code);
    if (!device) return code;
    if (!machine_open(&q, device, &m) || !roofline_make(&r, &m, &s, sets)) return cli_error();
    code = answer(&q, &s, &r);
    roofline_free(&r);
    return code;
}

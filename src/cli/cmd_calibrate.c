/* cmd_calibrate.c: tally calibrate: measures this machine, keeps and shows the profile, and says how long a priced
 * run will take. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "plan/calibrate.h"
#include "plan/predict.h"

const char help_calibrate[] =
    "usage: tally calibrate [--device cpu|cuda] [--out FILE] [--quick] [--json]\n"
    "       tally calibrate --show [--profile FILE] [--json]\n"
    "       tally calibrate --price PRICE.json [--profile FILE] [--json]\n"
    "\n"
    "Measures this machine, in two to four minutes: multiply-adds in registers, matrix products by size and type,\n"
    "memory by size of the working set, and every op of training steps of many sizes. The machine should be idle: on\n"
    "a busy one it says so, repeats what was disturbed, and measures fewer sizes to end within about four minutes.\n"
    "Ctrl-C keeps nothing. The result is a profile (tally.machine/2), stored in\n"
    "~/.config/tally/machine-DEVICE.json or in --out FILE. It is shown beside the chip's data sheet and beside\n"
    "units x work x clock, if these are known; differences of more than 15 % are reported.\n"
    "\n"
    "  --device NAME    the device to measure (cpu)\n"
    "  --quick          fewer sizes: about ten seconds, and rougher predictions\n"
    "  --show           show the stored profile without measuring\n"
    "  --price FILE     predict the time of a step here; FILE is a price (`tally train --price --json`) or a\n"
    "                   ledger\n"
    "  --profile FILE   another profile than the stored one\n"
    "  --json           the profile or the prediction as JSON\n"
    "\n"
    "examples:\n"
    "  tally calibrate\n"
    "  tally calibrate --show --json | jq .measured.bf16\n"
    "  tally train --model small --price --json > price.json && tally calibrate --price price.json\n";

static void note(void *context, const char *words) {
    (void)context;
    fprintf(stderr, "  %s\n", words);
}

/* ---- The profile as text ---- */

/* The best of the products of matrices of a peak's dtype. */
static double best_product(const struct machine *p, enum hardware_quantity q) {
    double best = 0;
    for (int i = 0; i < p->n_products; i++)
        if (hardware_peak_of(p->products[i].dtype) == q) best = fmax(best, p->products[i].flops_per_s);
    return best;
}

static void rate_print(double rate) {
    if (rate > 0) printf(" %12.4g", rate / 1e9);
    else printf(" %12s", "-");
}

/* Two figures of one thing that are both known and differ by more than 15 % of the first. */
static void disagree(const char *what, const char *one, double a, const char *other, double b) {
    if (a > 0 && b > 0 && fabs(b / a - 1) > 0.15)
        fprintf(stderr, "tally calibrate: %s: %s is %.4g, %s %.4g: %+.0f %%\n", what, other, b, one, a,
                100 * (b / a - 1));
}

static void disagreements(const struct machine *p) {
    for (int q = 0; q < HARDWARE_N_PEAKS; q++) {
        const char *name = hardware_quantities[q].name;
        disagree(name, "units x work x clock", p->product[q], "measured in registers", p->measured[q]);
        disagree(name, "the sheet", p->sheet[q], "measured in registers", p->measured[q]);
        disagree(name, "the sheet", p->sheet[q], "the best matrix product", best_product(p, (enum hardware_quantity)q));
        disagree(name, "the sheet", p->sheet[q], "units x work x clock", p->product[q]);
    }
    disagree("bandwidth", "the sheet", p->sheet_bandwidth, "measured", machine_bandwidth(p));
}

static void peaks_print(const struct machine *p) {
    printf("\nGFLOP/s          sheet  units x clk    registers     products   best share\n");
    for (int q = 0; q < HARDWARE_N_PEAKS; q++) {
        double best = best_product(p, (enum hardware_quantity)q),
               most = fmax(p->measured[q], fmax(p->product[q], p->sheet[q]));
        if (!(best > 0) && !(most > 0)) continue;
        printf("%-11s", hardware_quantities[q].name);
        rate_print(p->sheet[q]);
        rate_print(p->product[q]);
        rate_print(p->measured[q]);
        rate_print(best);
        if (best > 0 && most > 0) printf(" %10.1f %%", 100 * best / most);
        printf("\n");
    }
}

static void products_print(const struct machine *p) {
    printf("\nmatrix products n x n, GFLOP/s\n");
    for (int i = 0; i < p->n_products; i++) {
        const struct machine_product *r = &p->products[i];
        if (!i || r->dtype != r[-1].dtype) printf("%s%-5s", i ? "\n" : "", tl_dtype_name(r->dtype));
        printf("  %.0f: %.4g", r->n, r->flops_per_s / 1e9);
    }
    printf("\n\n%-12s %9s %9s %9s %9s   GB/s, by size of the working set\n", "memory", "read", "write", "copy", "add");
    for (int i = 0; i < p->n_streams; i++) {
        const struct machine_stream *s = &p->streams[i];
        char text[32];
        printf("%-12s %9.1f %9.1f %9.1f %9.1f\n", bytes_text(s->bytes, text), s->read / 1e9, s->write / 1e9,
               s->copy / 1e9, s->triad / 1e9);
    }
}

static int double_order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One line per op and dtype: what share of its roof it reaches, over the sizes. */
static void ops_print(const struct machine *p) {
    struct predict_machine m = predict_machine_of(p);
    double *shares = malloc((size_t)p->n_samples * sizeof *shares + 1);
    if (!shares) return;
    printf("\n%-24s %-5s %6s %10s %10s %10s   share of max(FLOPs / peak, bytes / bandwidth)\n", "op", "dtype", "sizes",
           "least", "median", "most");
    for (int i = 0; i < p->n_samples; i++) {
        const struct machine_sample *first = &p->samples[i];
        int n = 0;
        bool is_first = true;
        for (int k = 0; k < p->n_samples; k++) {
            const struct machine_sample *s = &p->samples[k];
            if (strcmp(s->op, first->op) || s->dtype != first->dtype) continue;
            is_first = is_first && k >= i;
            shares[n++] = 100 * predict_floor(&m, (int)s->dtype, s->flops, s->bytes) / s->seconds;
        }
        if (!is_first) continue;
        qsort(shares, (size_t)n, sizeof *shares, double_order);
        printf("%-24s %-5s %6d %8.1f %% %8.1f %% %8.1f %%\n", first->op, tl_dtype_name(first->dtype), n, shares[0],
               shares[n / 2], shares[n - 1]);
    }
    free(shares);
}

static int profile_print(const struct machine *p, bool is_json) {
    disagreements(p);
    if (is_json) return cli_json(machine_json(p));
    printf("%s: %s, %d threads%s%s; %s", p->device, p->machine, p->threads, *p->isa ? ", " : "", p->isa, p->date);
    if (p->clock_hz > 0) printf("; %.3f GHz", p->clock_hz / 1e9);
    printf("\n");
    peaks_print(p);
    products_print(p);
    ops_print(p);
    printf("\noutside kernels a step takes %.2f us per op call plus %.2f %% of the kernels' time\n", 1e6 * p->call_s,
           100 * p->rest_share);
    if (p->host_call_s > 0) printf("the host needs %.2f us to queue an op\n", 1e6 * p->host_call_s);
    return 0;
}

/* ---- Predictions ---- */

static int prediction_print(const struct machine *p, const char *file, bool is_json) {
    struct predict_machine m = predict_machine_of(p);
    struct prediction r;
    json_t *price = json_read(file, JSON_MOST_LEDGER);
    bool ok = price && predict_json(&m, price, &r);
    json_decref(price);
    if (!ok) return cli_error();
    if (is_json)
        return cli_json(json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f}", "schema", "tally.prediction/1", "machine",
                                  p->machine, "step_s", r.seconds, "bound_s", r.bound_s, "compute_s", r.compute_s,
                                  "memory_s", r.memory_s, "sampled", r.sampled));
    printf("a step takes %.4g s on %s\n", r.seconds, p->machine);
    printf("  it takes at least %.4g s: FLOPs at the peaks %.4g s, bytes at the fastest memory %.4g s\n", r.bound_s,
           r.compute_s, r.memory_s);
    printf("  %.1f %% of it is based on measurements of the same ops and types\n", 100 * r.sampled);
    return 0;
}

/* ---- The command ---- */

/* The profile that was asked for: a file, or the kept one. */
static int profile_open(struct machine *p, tl_device *device, const char *file) {
    char why[200];
    if (file) return machine_read(p, file) ? 0 : cli_error();
    if (machine_find(p, device, why)) return 0;
    fprintf(stderr, "tally calibrate: %s\n", why);
    return EXIT_INPUT;
}

/* Ctrl-C waits while the file is written, so that no half of it stays. */
static bool keep(const struct machine *p, const char *path) {
    sigset_t ends, before;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGHUP);
    sigprocmask(SIG_BLOCK, &ends, &before);
    bool ok = machine_write(p, path);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return ok;
}

/* What is going to happen, and whether others are at work here: their share of the cores goes into every figure. */
static void opening_print(const tl_device *device, bool is_quick) {
    double load = 0;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    fprintf(stderr,
            "measuring %s: peaks, matrix products, memory, and the ops of training steps; %s. Ctrl-C keeps "
            "nothing.\n",
            tl_device_name(device), is_quick ? "ten to twenty seconds" : "two to four minutes");
    if (getloadavg(&load, 1) == 1 && load > 0.5)
        fprintf(stderr,
                "NOTE: others are using this machine (load %.1f on %ld cores): the figures will be too low. "
                "Calibrate again when it is idle.\n",
                load, cores);
}

static int measure(tl_device *device, bool is_quick, const char *out, bool is_json) {
    struct machine p;
    struct calibrate_options o = {device, is_quick, note, NULL, &is_interrupted};
    char *path = out ? NULL : machine_default_path(tl_device_name(device));
    if (!out && !path) {
        fprintf(stderr, "tally calibrate: there is no home folder for the profile; give --out FILE\n");
        return EXIT_INPUT;
    }
    bool can_write = machine_can_write(out ? out : path) && hardware_load_default();
    if (can_write) opening_print(device, is_quick);
    interrupt_catch_all();
    bool is_made = can_write && calibrate(&o, &p);
    if (is_interrupted && !is_made) {
        fprintf(stderr, "tally calibrate: stopped; no profile was stored\n");
        memory_free(path);
        hardware_unload();
        return EXIT_STOPPED;
    }
    int code = is_made && keep(&p, out ? out : path) ? 0 : cli_error();
    if (!code) {
        fprintf(stderr, "  stored in %s\n", out ? out : path);
        code = profile_print(&p, is_json);
    }
    if (is_made) machine_free(&p);
    hardware_unload();
    memory_free(path);
    return code;
}

static const struct option_rule rules[] = {{"calibrate", "--out --quick", OPTION_BESIDE, "--show"},
                                           {"calibrate", "--out --quick", OPTION_BESIDE, "--price"},
                                           {"calibrate", "--out --quick --device", OPTION_BESIDE, "--profile"},
                                           {"calibrate", "--show", OPTION_BESIDE, "--price"},
                                           {NULL, NULL, OPTION_BESIDE, NULL}};

int cmd_calibrate(int argc, char **argv) {
    const char *name = "cpu", *out = NULL, *price = NULL, *file = NULL;
    bool is_json = false, is_quick = false, is_show = false;
    const struct option table[] = {
        {"--device", OPTION_TEXT, &name, 0, 0, false},    {"--out", OPTION_TEXT, &out, 0, 0, false},
        {"--price", OPTION_TEXT, &price, 0, 0, false},    {"--profile", OPTION_TEXT, &file, 0, 0, false},
        {"--json", OPTION_FLAG, &is_json, 0, 0, false},   {"--show", OPTION_FLAG, &is_show, 0, 0, false},
        {"--quick", OPTION_FLAG, &is_quick, 0, 0, false}, {NULL, OPTION_END, NULL, 0, 0, false}};
    int code = options_read_ruled("calibrate", table, rules, argc, argv, NULL, 0);
    if (code) return code;
    tl_device *device = cli_device_measured("calibrate", name, &code);
    if (!device) return code;
    if (!price && !is_show && !file) return measure(device, is_quick, out, is_json);
    struct machine p;
    if ((code = profile_open(&p, device, file))) return code;
    code = price ? prediction_print(&p, price, is_json) : profile_print(&p, is_json);
    machine_free(&p);
    return code;
}

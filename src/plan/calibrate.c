/* calibrate.c: measures the speed of this machine.
 *
 * Everything goes through the library's own ops on the chosen device, so the same code measures a cpu and a GPU.
 * Peaks in registers come from the device (probe.c), where it has a probe. The ops of training steps are not called
 * one by one: real steps of small models are run with every op timed, so that each is measured with the caches as a
 * step leaves them. */
#include "plan/calibrate.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/process.h"
#include "base/text.h"
#include "plan/predict.h"
#include "plan/trial.h"
#include "tensor/device.h"
#include "tensor/format.h"
#include "step/trainer.h"

static void tell(const struct calibrate_options *o, const char *format, ...) TL_PRINTF(2, 3);
static void tell(const struct calibrate_options *o, const char *format, ...) {
    char words[160];
    va_list arguments;
    if (!o->tell) return;
    va_start(arguments, format);
    number_vprint(words, sizeof words, format, arguments);
    va_end(arguments);
    o->tell(o->context, words);
}

static bool is_stopped(const struct calibrate_options *o) {
    return o->stop && *o->stop && !error_set(TL_ERROR_USE, "calibrate: stopped");
}

/* ---- Peaks ---- */

/* FLOPs per clock and core: pipes x lanes x 2 (BFMMLA: 32 per pipe). By core where it is known; on x86-64 by
 * instruction set, for cores with two units of that width. */
static const struct {
    const char *machine, *isa; /* how their names begin; NULL: any */
    double f64, f32, f16, bf16;
} cores[] = {
    {"Neoverse-V1", NULL, 16, 32, 64, 128}, {"Neoverse-V2", NULL, 16, 32, 64, 128}, {"Neoverse-N1", NULL, 8, 16, 32, 0},
    {"Neoverse-N2", NULL, 8, 16, 32, 64},   {NULL, "avx512bf16", 32, 64, 0, 128},   {NULL, "amx", 32, 64, 0, 2048},
    {NULL, "avx512", 32, 64, 0, 0},         {NULL, "avx2", 16, 32, 0, 0},
};

static bool begins(const char *text, const char *with) { return !with || !strncmp(text, with, strlen(with)); }

static void peaks_measure(const struct calibrate_options *o, struct machine *p) {
    static const struct {
        tl_dtype dtype;
        enum hardware_quantity quantity;
    } kinds[] = {{TL_F64, HARDWARE_F64}, {TL_F32, HARDWARE_F32}, {TL_F16, HARDWARE_F16_F16}, {TL_BF16, HARDWARE_BF16}};
    const struct device_functions *f = o->device->functions;
    tell(o, "peaks, in registers");
    if (f->clock) p->clock_hz = f->clock(o->device);
    for (int i = 0; f->peak && i < 4; i++) p->measured[kinds[i].quantity] = f->peak(o->device, kinds[i].dtype);
    for (size_t i = 0; i < sizeof cores / sizeof *cores && p->clock_hz > 0; i++) {
        if (!begins(p->machine, cores[i].machine) || (cores[i].isa && strcmp(p->isa, cores[i].isa))) continue;
        double clocks = p->clock_hz * p->threads;
        p->product[HARDWARE_F64] = clocks * cores[i].f64;
        p->product[HARDWARE_F32] = clocks * cores[i].f32;
        p->product[HARDWARE_F16_F16] = clocks * cores[i].f16;
        p->product[HARDWARE_BF16] = clocks * cores[i].bf16;
        break;
    }
    const struct hardware *chip = hardware_seek(p->machine);
    for (int q = 0; chip && q < HARDWARE_N_PEAKS; q++) p->sheet[q] = hardware_value(chip, (enum hardware_quantity)q);
    if (chip) p->sheet_bandwidth = hardware_value(chip, HARDWARE_BANDWIDTH);
}

/* ---- Ops, one at a time ---- */

/* Seconds of one call: the best mean of several stretches, each of calls that together take long enough to be timed. */
typedef tl_tensor *call(tl_tensor *a, tl_tensor *b, tl_tensor *c);
static double seconds_of(tl_device *device, call *op, tl_tensor *a, tl_tensor *b, tl_tensor *c, double stretch_s) {
    double best = INFINITY;
    int64_t n = 1;
    for (int turn = 0; turn < 4;) {
        double began = now_s();
        for (int64_t i = 0; i < n; i++) {
            tl_scope scope = tl_scope_begin();
            bool ok = op(a, b, c) != NULL;
            if (!tl_scope_end(scope) || !ok) return NAN;
        }
        if (!tl_device_sync(device)) return NAN;
        double took = now_s() - began;
        if (took < stretch_s && n < 1 << 22) {
            n = (int64_t)fmax((double)n * 1.5 + 1,
                              fmin((double)n * 16, (double)n * 1.2 * stretch_s / fmax(took, 1e-9)));
            continue;
        }
        best = fmin(best, took / (double)n);
        turn++;
    }
    return best;
}

static tl_tensor *call_matmul(tl_tensor *a, tl_tensor *b, tl_tensor *c) {
    (void)c;
    return tl_matmul(a, b);
}
static tl_tensor *call_sum(tl_tensor *a, tl_tensor *b, tl_tensor *c) {
    (void)b, (void)c;
    return tl_sum(a, NULL, 0, false);
}
static tl_tensor *call_fill(tl_tensor *a, tl_tensor *b, tl_tensor *c) {
    (void)b, (void)c;
    return tl_fill_(a, 1);
}
static tl_tensor *call_copy(tl_tensor *a, tl_tensor *b, tl_tensor *c) {
    (void)c;
    return tl_copy_(a, b) ? a : NULL;
}
/* Reads a and b and writes a. */
static tl_tensor *call_add(tl_tensor *a, tl_tensor *b, tl_tensor *c) {
    (void)c;
    return tl_add_(a, b) ? a : NULL;
}

static bool product_measure(const struct calibrate_options *o, struct machine *p, tl_dtype dtype, int64_t n) {
    size_t bytes = (size_t)(p->n_products + 1) * sizeof *p->products;
    struct machine_product *grown = memory_resize(p->products, bytes);
    if (!grown) return error_memory(bytes, "a profile");
    p->products = grown;
    tl_scope scope = tl_scope_begin();
    tl_tensor *a = tl_zeros(TL_SHAPE(n, n), dtype, o->device), *b = tl_zeros(TL_SHAPE(n, n), dtype, o->device);
    double s = a && b ? seconds_of(o->device, call_matmul, a, b, NULL, 0.01) : NAN;
    bool ok = tl_scope_end(scope) && isfinite(s);
    double m = (double)n;
    if (ok) p->products[p->n_products++] = (struct machine_product){dtype, m, m, m, 2 * m * m * m / s};
    return ok;
}

/* A product that would take longer than this is not measured, nor are larger ones: it took a slow path. */
static const double longest_product_s = 0.5;

static bool products_measure(const struct calibrate_options *o, struct machine *p) {
    static const tl_dtype dtypes[] = {TL_F32, TL_BF16, TL_F16, TL_F64};
    int64_t largest = !device_is_host(o->device) ? 8192 : o->is_quick ? 512 : 1024;
    for (int d = 0; d < 4; d++) {
        tell(o, "products of %s", tl_dtype_name(dtypes[d]));
        for (int64_t n = 32; n <= largest; n *= 2) {
            if (is_stopped(o) || !product_measure(o, p, dtypes[d], n)) return false;
            if (16.0 * (double)n * (double)n * (double)n / p->products[p->n_products - 1].flops_per_s >
                longest_product_s)
                break;
        }
    }
    return true;
}

static bool stream_measure(const struct calibrate_options *o, struct machine *p, int64_t bytes) {
    int64_t n = bytes / 8; /* two arrays of f32 together are the working set */
    tl_scope scope = tl_scope_begin();
    tl_tensor *a = tl_zeros(TL_SHAPE(n), TL_F32, o->device), *b = tl_zeros(TL_SHAPE(n), TL_F32, o->device);
    tl_tensor *both = tl_zeros(TL_SHAPE(2 * n), TL_F32, o->device);
    bool ok = a && b && both;
    double read = ok ? seconds_of(o->device, call_sum, both, NULL, NULL, 0.01) : NAN;
    double write = ok ? seconds_of(o->device, call_fill, both, NULL, NULL, 0.01) : NAN;
    double copy = ok ? seconds_of(o->device, call_copy, a, b, NULL, 0.01) : NAN;
    double add = ok ? seconds_of(o->device, call_add, a, b, NULL, 0.01) : NAN;
    ok = tl_scope_end(scope) && isfinite(read + write + copy + add);
    double all = (double)(8 * n);
    if (ok)
        p->streams[p->n_streams++] = (struct machine_stream){all, all / read, all / write, all / copy, 1.5 * all / add};
    return ok;
}

static bool streams_measure(const struct calibrate_options *o, struct machine *p) {
    int64_t largest = !device_is_host(o->device) ? (int64_t)4 << 30 : (int64_t)256 << 20;
    int most = 20;
    tell(o, "memory");
    p->streams = memory_new((size_t)most * sizeof *p->streams);
    if (!p->streams) return error_memory((size_t)most * sizeof *p->streams, "a profile");
    for (int64_t bytes = 32 << 10; bytes <= largest && p->n_streams < most; bytes *= o->is_quick ? 16 : 4)
        if (!stream_measure(o, p, bytes)) return false;
    return stream_measure(o, p, largest);
}

/* The faster of a sum and an addition of halves: on a GPU a sum to one number is not bound by memory. */
double calibrate_bandwidth(tl_device *device, double bytes) {
    double most = fmin(bytes, 1e9);
    int64_t n = most > 8 ? (int64_t)(most / 8) : 1;
    bool grad = tl_set_grad_mode(false);
    tl_scope scope = tl_scope_begin();
    tl_tensor *x = tl_ones(TL_SHAPE(2, n), TL_F32, device);
    tl_tensor *a = x ? tl_select(x, 0, 0) : NULL, *b = a ? tl_select(x, 0, 1) : NULL;
    double sum = b ? seconds_of(device, call_sum, x, NULL, NULL, 0.05) : NAN;
    double add = b ? seconds_of(device, call_add, a, b, NULL, 0.05) : NAN;
    bool ok = tl_scope_end(scope) && isfinite(sum + add);
    tl_set_grad_mode(grad);
    if (!ok) tl_error_clear();
    return ok ? fmax(8 / sum, 12 / add) * (double)n : 0;
}

/* ---- Training steps ---- */

/* One of `n` choices, by the fractional part of (i + 1/2) sqrt(prime). Over i these fractions are spread evenly, and
 * those of several primes together fill the space of all combinations evenly: the ops of any model have samples
 * nearby, whichever sizes it has. */
static int spread(int i, double prime, int n) {
    double x = (i + 0.5) * sqrt(prime);
    return (int)((x - floor(x)) * n);
}
#define PICK(list, i, prime) (list)[spread(i, prime, (int)(sizeof(list) / sizeof *(list)))]

/* FLOPs of a step, nearly: 6 per token and weight of a layer and a head. */
static double case_flops(const struct calibrate_case *c, int64_t tokens) {
    return 6.0 * (double)tokens * (double)c->channels * (12.0 * (double)c->channels + (double)c->vocabulary);
}

/* The sets from which configurations are drawn. A GPU's go on to larger ones. */
struct calibrate_range {
    const int64_t *head_sizes, *heads, *lengths, *tokens, *vocabularies; /* lists that 0 ends */
    int64_t least_channels, most_channels;
    double much, most;               /* FLOPs of a step */
    double fp32_share, narrow_share; /* of that, in recipes whose products are that much slower: fp32; fp16 to fp4 */
};
static const struct calibrate_range small = {
    .head_sizes = (const int64_t[]){16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 256, 0},
    .heads = (const int64_t[]){1, 2, 3, 4, 6, 8, 12, 0},
    .lengths = (const int64_t[]){8, 13, 16, 25, 32, 50, 64, 100, 128, 200, 256, 333, 512, 700, 1000, 1024, 0},
    .tokens = (const int64_t[]){8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 0},
    .vocabularies =
        (const int64_t[]){256, 300, 512, 700, 1024, 1500, 2048, 3001, 4096, 5500, 8192, 10007, 16384, 20000, 0},
    .least_channels = 16,
    .most_channels = 1536,
    .much = 1e10,
    .most = 2.5e10,
    .fp32_share = 1,
    .narrow_share = 0.2,
};
static const struct calibrate_range large = {
    .head_sizes = (const int64_t[]){16, 24, 32, 48, 64, 64, 64, 80, 96, 128, 128, 0},
    .heads = (const int64_t[]){2, 3, 4, 5, 6, 7, 9, 10, 12, 15, 16, 20, 25, 32, 40, 0},
    .lengths =
        (const int64_t[]){8, 16, 31, 64, 100, 128, 200, 256, 333, 512, 700, 1000, 1024, 1500, 2048, 3000, 4096, 0},
    .tokens = (const int64_t[]){16, 64, 128, 256, 512, 512, 1024, 1024, 2048, 2048, 4096, 4096, 8192, 8192, 16384,
                                16384, 32768, 65536, 0},
    .vocabularies = (const int64_t[]){256, 300, 1000, 2048, 5003, 8192, 16384, 32000, 50257, 65536, 100000, 128256, 0},
    .least_channels = 64,
    .most_channels = 5120,
    .much = 1e13,
    .most = 2e13,
    .fp32_share = 0.1,
    .narrow_share = 0.5,
};

static int64_t pick(const int64_t *list, int i, double prime) {
    int n = 0;
    while (list[n]) n++;
    return list[spread(i, prime, n)];
}

/* A step must not take long: a configuration that is too large gets fewer sequences, then a smaller vocabulary, then
 * shorter sequences. */
static void case_limit(struct calibrate_case *c, int64_t tokens, const struct calibrate_range *range) {
    bool is_fp32 = !strcmp(c->recipe, "fp32"), is_narrow = !strncmp(c->recipe, "fp", 2) && !is_fp32;
    double share = is_fp32     ? range->fp32_share
                   : is_narrow ? range->narrow_share
                               : 1,
           much = share * range->much, most = share * range->most;
    if (tokens < c->seq) tokens = c->seq;
    while (tokens > c->seq && case_flops(c, tokens) > much) tokens /= 2;
    if (tokens < c->seq) tokens = c->seq;
    if (case_flops(c, tokens) > most) c->vocabulary = 256;
    for (; c->seq > 32 && case_flops(c, tokens) > most; tokens /= 2) c->seq /= 2;
    c->batch = tokens / c->seq;
}

struct calibrate_case calibrate_case_at(int i, bool is_large) {
    static const int64_t groups[] = {1, 1, 2}, widths[] = {0, 0, 2, 3};
    static const double dropouts[] = {0, 0, 0, 0.1};
    static const char *const recipes[] = {"fp32", "fp32", "bf16", "bf16", "bf16",     "bf16",
                                          "amp",  "fp16", "fp8",  "fp4",  "bf16-lean"};
    static const char *const models[] = {"tiny", "tiny", "tiny-gpt2"};
    static const char *const optimizers[] = {"adamw", "adamw", "adamw", "adamw", "lion", "sgd", "rmsprop", "adagrad"};
    const struct calibrate_range *range = is_large ? &large : &small;
    int64_t head = pick(range->head_sizes, i, 2), group = PICK(groups, i, 23);
    struct calibrate_case c = {.model = PICK(models, i, 17),
                               .recipe = PICK(recipes, i, 13),
                               .optimizer = PICK(optimizers, i, 19),
                               .heads = pick(range->heads, i, 3),
                               .vocabulary = pick(range->vocabularies, i, 11),
                               .seq = pick(range->lengths, i, 5)};
    while (head * c.heads < range->least_channels) c.heads *= 2;
    while (head * c.heads > range->most_channels) c.heads /= 2;
    bool is_grouped = !strcmp(c.model, "tiny") && c.heads % group == 0;
    c.channels = head * c.heads;
    c.kv_heads = is_grouped ? c.heads / group : c.heads;
    c.ff = PICK(widths, i, 29) * c.channels;
    c.dropout = strcmp(c.model, "tiny") ? PICK(dropouts, i, 31) : 0;
    if (!strcmp(c.recipe, "fp4")) { /* its blocks must divide all widths */
        if (c.channels % format_info(TL_NVFP4)->block) c.recipe = "bf16";
        else if (!c.ff) c.ff = 4 * c.channels;
    }
    case_limit(&c, pick(range->tokens, i, 7), range);
    return c;
}

__attribute__((noinline)) static struct settings settings_of(const struct calibrate_case *c, const tl_device *device) {
    struct settings s = settings_default();
    snprintf(s.model, sizeof s.model, "%s", c->model);
    snprintf(s.device, sizeof s.device, "%s", device->name);
    settings_set(&s, "recipe", c->recipe);
    settings_set(&s, "optimizer", c->optimizer);
    s.layers = 1;
    s.channels = c->channels;
    s.heads = c->heads;
    s.kv_heads = c->kv_heads;
    s.ff = c->ff;
    s.vocabulary = c->vocabulary;
    s.batch = c->batch;
    s.seq = s.context = c->seq;
    s.dropout = c->dropout;
    s.val_share = 0;
    return s;
}

/* Rows of equal op, dtype, direction and size are one sample: the mean, weighted by calls. */
static bool sample_add(struct machine *p, const struct ledger_row *row, const struct predict_shape *shape,
                       double *weights, size_t most) {
    const struct machine_sample s = predict_sample(row, shape);
    const double calls = (double)row->calls;
    for (int i = 0; i < p->n_samples; i++) {
        struct machine_sample *k = &p->samples[i];
        if (strcmp(k->op, s.op) || k->dtype != s.dtype || k->is_backward != s.is_backward || k->flops != s.flops ||
            k->bytes != s.bytes || k->written != s.written || k->inner != s.inner || k->length != s.length)
            continue;
        k->seconds = (k->seconds * weights[i] + s.seconds * calls) / (weights[i] + calls);
        weights[i] += calls;
        return true;
    }
    if ((size_t)p->n_samples == most) return error_set(TL_ERROR_USE, "a profile of more than %zu samples", most);
    weights[p->n_samples] = calls;
    p->samples[p->n_samples++] = s;
    return true;
}

/* The time of steps outside kernels, as a calls + b kernel seconds: least squares of residuals relative to the
 * step.
 *
 * On a device that computes on this thread neither is negative. One that works on its own is timed by marks in its
 * queue, and a call takes some microseconds longer between two marks than among other calls: a may be negative
 * there. Its steps cannot be shorter than this thread needs to launch them, host_call_s for each call; steps as short
 * as that say nothing about a and b. */
static void rest_fit(struct machine *p, const struct trial *trials, int n, bool is_ahead) {
    double cc = 0, ck = 0, kk = 0, cr = 0, kr = 0, least = INFINITY;
    int n_fit = 0;
    for (int i = 0; i < n; i++)
        if (trials[i].n_rows) least = fmin(least, trials[i].step_s / (double)trials[i].calls);
    p->host_call_s = is_ahead && n ? least : 0;
    for (int i = 0; i < n; i++) {
        const struct trial *t = &trials[i];
        double w = 1 / (t->step_s * t->step_s), calls = (double)t->calls, rest = t->step_s - t->kernel_s;
        if (!t->n_rows || t->step_s < 1.5 * p->host_call_s * calls) continue;
        cc += w * calls * calls;
        ck += w * calls * t->kernel_s;
        kk += w * t->kernel_s * t->kernel_s;
        cr += w * calls * rest;
        kr += w * t->kernel_s * rest;
        n_fit++;
    }
    double determinant = cc * kk - ck * ck;
    if (n_fit < 2 || !(determinant > 0)) return;
    p->call_s = (cr * kk - kr * ck) / determinant;
    p->rest_share = (kr * cc - cr * ck) / determinant;
    if (is_ahead) return;
    if (p->call_s < 0) {
        p->call_s = 0;
        p->rest_share = fmax(kr / kk, 0);
    } else if (p->rest_share < 0) {
        p->rest_share = 0;
        p->call_s = fmax(cr / cc, 0);
    }
}

/* Seconds for which this process's threads were ready to run but did not, since they began; 0 if the system does not
 * report it. */
static double waited_s(void) {
    DIR *threads = opendir("/proc/self/task");
    double sum = 0;
    for (struct dirent *entry; threads && (entry = readdir(threads));) {
        char path[300];
        unsigned long long ran, waited;
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/self/task/%.200s/schedstat", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file && fscanf(file, "%llu %llu", &ran, &waited) == 2) sum += (double)waited * 1e-9;
        if (file) fclose(file);
    }
    if (threads) closedir(threads);
    return sum;
}

/* How long a calibration takes at most, nearly, in seconds: a busy machine gets fewer configurations. */
static double most_seconds(bool is_quick) { return is_quick ? 20 : 240; }

/* Work that always takes the same time on cores of one's own: FLOP/s of a product that fits into their caches. A
 * neighbour on the other hyperthread of a core does not make threads wait, but shows here. */
static double speed_now(tl_device *device) {
    const int64_t n = 256;
    if (!device_is_host(device)) return 1; /* shared by nobody */
    bool grad = tl_set_grad_mode(false);
    tl_scope scope = tl_scope_begin();
    tl_tensor *a = tl_zeros(TL_SHAPE(n, n), TL_F32, device);
    double s = a ? seconds_of(device, call_matmul, a, a, NULL, 0.001) : NAN, m = (double)n;
    bool ok = tl_scope_end(scope) && isfinite(s);
    tl_set_grad_mode(grad);
    if (!ok) tl_error_clear();
    return ok ? 2 * m * m * m / s : 0;
}

static bool case_measure(const struct calibrate_options *o, int i, struct trial *trial) {
    const struct calibrate_case c = calibrate_case_at(i, !device_is_host(o->device));
    const struct settings s = settings_of(&c, o->device);
    double speed = speed_now(o->device), waited = waited_s(), began = now_s();
    if (!trial_run(&s, 3, trial)) return false;
    trial->waited = (waited_s() - waited) / (now_s() - began) / process_threads();
    trial->speed = fmin(speed, speed_now(o->device));
    return true;
}

/* ---- Disturbed trials ---- */

static const double much_waited = 0.02; /* share of the time that threads waited */
static const double much_slower = 0.9;  /* speed, over the best beside any trial */
static double best_speed(const struct trial *trials, int n) {
    double best = 0;
    for (int i = 0; i < n; i++) best = fmax(best, trials[i].speed);
    return best;
}
static bool is_disturbed(const struct trial *t, double best) {
    return t->waited > much_waited || t->speed < much_slower * best;
}
static int disturbed_count(const struct trial *trials, int n) {
    const double best = best_speed(trials, n);
    int n_disturbed = 0;
    for (int i = 0; i < n; i++) n_disturbed += is_disturbed(&trials[i], best);
    return n_disturbed;
}

static bool trial_repeat(const struct calibrate_options *o, int i, struct trial *best) {
    struct trial again;
    if (is_stopped(o) || !case_measure(o, i, &again)) return false;
    bool ok = trial_merge(best, &again);
    trial_free(&again);
    return ok;
}

/* Trials that were disturbed are repeated, some time later, until none is or the time is over. */
static bool disturbed_repeat(const struct calibrate_options *o, struct trial *trials, int n, double until_s) {
    enum { PASSES = 4 };
    for (int pass = 0; pass < PASSES && now_s() < until_s; pass++) {
        const double best = best_speed(trials, n);
        const int n_disturbed = disturbed_count(trials, n);
        if (!n_disturbed) return true;
        tell(o, "training steps: %d configurations again, since others had the cores", n_disturbed);
        for (int i = 0; i < n && now_s() < until_s; i++)
            if (is_disturbed(&trials[i], best) && !trial_repeat(o, i, &trials[i])) return false;
    }
    return true;
}

/* A thread that waits at every barrier for one without a core makes small ops a hundred times slower, and would spoil
 * the predictions of all that are like them. Such trials are left out while most others are better. */
static const double spoilt = 0.1;
static int trials_drop(struct trial *trials, int n) {
    int n_spoilt = 0;
    for (int i = 0; i < n; i++) n_spoilt += trials[i].waited > spoilt;
    if (2 * n_spoilt > n || n - n_spoilt < CALIBRATE_LEAST) return 0;
    for (int i = 0; i < n; i++)
        if (trials[i].waited > spoilt) trial_free(&trials[i]);
    return n_spoilt;
}

/* A device that works on its own has timed ops with marks between them, and perhaps at another clock than the steps,
 * which run one after the other. Its rows get the time that they take in a step: each call is shorter by the marks,
 * -call_s, and all of them, times one factor, add up to the step. Where the step waited for this thread that factor
 * says nothing. */
static void rows_fit(const struct machine *p, struct trial *t) {
    const double calls = (double)t->calls, kernels = t->kernel_s + calls * p->call_s;
    const bool is_bound_by_host = t->step_s < 1.5 * p->host_call_s * calls;
    const double factor = is_bound_by_host || !(kernels > 0) ? 1 : fmin(fmax(t->step_s / kernels, 0.8), 1.25);
    for (size_t r = 0; r < t->n_rows; r++) {
        struct ledger_row *row = &t->rows[r];
        const double n = (double)row->calls;
        if (row->time_s > 0) row->time_s = factor * fmax(row->time_s + n * p->call_s, 0.2 * n * p->host_call_s);
    }
}

/* The trials' rows become samples. */
static bool samples_make(const struct calibrate_options *o, struct machine *p, struct trial *trials, int n,
                         double *weights, size_t most) {
    const bool is_gpu = !device_is_host(o->device), is_ahead = device_runs_ahead(o->device);
    bool ok = true;
    rest_fit(p, trials, n, is_ahead);
    for (int i = 0; ok && i < n; i++) {
        const struct calibrate_case c = calibrate_case_at(i, is_gpu);
        const struct settings s = settings_of(&c, o->device);
        tl_model_config config;
        char file[SETTING_TEXT];
        if (!trainer_model(&s, &config, file)) return false;
        struct predict_shape shape = predict_shape_of(&config, c.seq);
        if (!is_gpu) shape.ff = 0; /* a CPU packs its operands: widths do not matter to it */
        if (is_ahead && trials[i].n_rows) rows_fit(p, &trials[i]);
        for (size_t r = 0; ok && r < trials[i].n_rows; r++)
            if (trials[i].rows[r].time_s > 0 && trials[i].rows[r].calls > 0)
                ok = sample_add(p, &trials[i].rows[r], &shape, weights, most);
    }
    if (is_ahead) p->call_s = p->rest_share = 0; /* the samples have both */
    return ok;
}

/* Every configuration once. When the time is over, those measured so far must do: they are spread evenly, however many
 * there are. */
static bool cases_measure(const struct calibrate_options *o, struct trial *trials, int n, double began, double most_s,
                          int *n_done) {
    for (*n_done = 0; *n_done < n; ++*n_done) {
        double past_s = now_s() - began;
        if (*n_done % 40 == 0) tell(o, "training steps: %d of %d configurations done", *n_done, n);
        if (*n_done >= CALIBRATE_LEAST && past_s > most_s) {
            tell(o, "NOTE: %.0f s are over: %d of %d configurations were measured; predictions are rougher", past_s,
                 *n_done, n);
            return true;
        }
        if (is_stopped(o) || !case_measure(o, *n_done, &trials[*n_done])) return false;
    }
    return true;
}

static bool steps_measure(const struct calibrate_options *o, struct machine *p, double began) {
    enum { MOST = 20000 };
    const double most_s = most_seconds(o->is_quick);
    int n = o->is_quick ? CALIBRATE_QUICK : !device_is_host(o->device) ? CALIBRATE_LARGE : CALIBRATE_CASES, n_done = 0;
    double *weights = memory_new(MOST * sizeof *weights);
    struct trial *trials = memory_new((size_t)n * sizeof *trials);
    p->samples = memory_new(MOST * sizeof *p->samples);
    bool ok = (weights && trials && p->samples) || error_memory(MOST * sizeof *p->samples, "a profile");
    ok = ok && cases_measure(o, trials, n, began, most_s, &n_done) &&
         disturbed_repeat(o, trials, n_done, began + most_s);
    int n_disturbed = disturbed_count(trials, n_done), n_spoilt = trials_drop(trials, n_done);
    ok = ok && samples_make(o, p, trials, n_done, weights, MOST);
    if (ok && n_disturbed)
        tell(
            o,
            "NOTE: in %d of %d trials others had the cores (%d are left out): calibrate again when the machine is idle",
            n_disturbed, n_done, n_spoilt);
    for (int i = 0; i < n_done; i++) trial_free(&trials[i]);
    memory_free(trials);
    memory_free(weights);
    return ok;
}

/* ---- All ---- */

static bool roof_measure(const struct calibrate_options *o, struct machine *p) {
    memset(p, 0, sizeof *p);
    time_t now = time(NULL);
    struct tm day;
    text_copy(p->device, sizeof p->device, o->device->name);
    text_copy(p->isa, sizeof p->isa, o->device->isa ? o->device->isa : "");
    machine_name(o->device, p->machine, sizeof p->machine);
    strftime(p->date, sizeof p->date, "%Y-%m-%d", gmtime_r(&now, &day));
    p->threads = process_threads();
    peaks_measure(o, p);
    bool grad = tl_set_grad_mode(false), ok = products_measure(o, p) && streams_measure(o, p);
    tl_set_grad_mode(grad);
    return ok;
}

bool calibrate_roof(const struct calibrate_options *o, struct machine *p) {
    bool ok = roof_measure(o, p);
    if (!ok) machine_free(p);
    return ok;
}

static void raise_to(double *value, double other) { *value = fmax(*value, other); }

/* The better of two measurements of the same roof. */
static void roof_merge(struct machine *p, const struct machine *again) {
    raise_to(&p->clock_hz, again->clock_hz);
    for (int q = 0; q < HARDWARE_N_PEAKS; q++) {
        raise_to(&p->measured[q], again->measured[q]);
        raise_to(&p->product[q], again->product[q]);
    }
    for (int i = 0; i < p->n_products; i++)
        for (int k = 0; k < again->n_products; k++) { /* one of them may have stopped at a smaller size */
            const struct machine_product *other = &again->products[k];
            if (p->products[i].dtype == other->dtype && p->products[i].m == other->m)
                raise_to(&p->products[i].flops_per_s, other->flops_per_s);
        }
    for (int i = 0; i < p->n_streams && i < again->n_streams; i++) {
        struct machine_stream *own = &p->streams[i];
        const struct machine_stream *other = &again->streams[i];
        raise_to(&own->read, other->read);
        raise_to(&own->write, other->write);
        raise_to(&own->copy, other->copy);
        raise_to(&own->triad, other->triad);
    }
}

/* The roof of a machine whose cores others share for minutes is measured twice, before the steps and after. */
static bool roof_again(const struct calibrate_options *o, struct machine *p) {
    struct machine again;
    if (!device_is_host(o->device) || o->is_quick) return true;
    tell(o, "peaks, products and memory again");
    bool ok = roof_measure(o, &again);
    if (ok) roof_merge(p, &again);
    machine_free(&again);
    return ok;
}

bool calibrate(const struct calibrate_options *o, struct machine *p) {
    double began = now_s();
    bool ok = roof_measure(o, p) && steps_measure(o, p, began) && roof_again(o, p);
    if (!ok) machine_free(p);
    return ok;
}

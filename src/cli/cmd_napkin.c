/* cmd_napkin.c: tally napkin FORM: closed forms, printed with the numbers in them. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "plan/hardware.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "plan/layout.h"
#include "plan/napkin.h"
#include "tensor/dtype.h"

const char help_napkin[] =
    "usage: tally napkin time|fit|flops|memory|activations|intensity [options] [--json]\n"
    "       tally napkin chinchilla|mfu|loss|references [options] [--json]\n"
    "\n"
    "Evaluates a closed form and prints the formula with its numbers:\n"
    "\n"
    "  time         days of a run:             --params N --tokens D --devices n --mfu X (--device NAME | --peak X)\n"
    "               or devices for it:         --days X instead of --devices; --model and --seq instead of --params\n"
    "                                          [--convention palm; 6n with --params]: how FLOPs are counted, as in\n"
    "                                          `flops`\n"
    "  fit          the largest model:         (--memory B | --device NAME) --devices n [--bytes-per-param 16]\n"
    "  flops        by every convention:       --model MODEL --seq S [--tokens D], or --params N --tokens D\n"
    "  memory       bytes of a tensor:         --shape 49152,12288 --dtype f32\n"
    "  activations  bytes of a GPT, per GPU:   --layers L --channels h --heads a --seq s --batch b --tensor t\n"
    "               --pipeline p [--interleave m] [--bytes-per-param 18]\n"
    "  intensity    FLOPs per byte of an op:   --op relu|gelu|dot|matvec|matmul --n N, or --m M --k K --n N\n"
    "               [--dtype T] [--device NAME]\n"
    "  chinchilla   best size for a budget:    --flops C, or --params N, or --tokens D [--tokens-per-param 20]\n"
    "  mfu          by every convention:       --model MODEL --seq S (--tokens-per-second X | --batch B --seconds X)\n"
    "               (--device NAME | --peak X) --devices n; or a GPT of --layers --channels --vocabulary\n"
    "               of a published figure:     --flops-per-second X of one device (--device NAME | --peak X)\n"
    "  loss         fit E + A/N^a + B/D^b to   --runs FILE (lines of N,D,loss), and predict --params N --tokens D\n"
    "               your runs, robustly:       and the best N for --flops C; [--alpha X] [--beta X] fix an exponent,\n"
    "               [--huber 0.001] is where residuals of log loss stop counting squared\n"
    "  references   known runs and thresholds: [--flops C | --params N --tokens D]\n"
    "\n"
    "MODEL is a preset (`tally train --models`) or a config.json. Numbers may be written 70e9 or 70B, 80GB or\n"
    "80GiB. --dtype selects the peak (bf16). --peak X is in FLOP/s and overrides the table. --hardware FILE adds\n"
    "your own devices. Without a device there are numbers but no percentages.\n"
    "\n"
    "examples:\n"
    "  tally napkin time --params 70e9 --tokens 15e12 --device H100 --devices 1024 --mfu 0.5\n"
    "  tally napkin fit --memory 80e9 --devices 8 --bytes-per-param 16\n"
    "  tally napkin mfu --model llama-3-8b --seq 8192 --tokens-per-second 85144 --device H100 --devices 8 --json\n"
    "  tally napkin memory --shape 49152,12288 --dtype f32\n"
    "  tally napkin loss --runs runs.csv --params 7e9 --tokens 140e9\n";

/* ---- An answer: lines for people, keys for programs ---- */

struct answer {
    json_t *json;
    FILE *text; /* in memory: printed when all of it is known to be finite */
};

static void formula(struct answer *a, const char *format, ...) TL_PRINTF(2, 3);
static void formula(struct answer *a, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    json_object_set_new(a->json, "formula", json_string(text));
    fprintf(a->text, "%s\n", text);
}

/* JSON has no word for what is not finite. */
static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

/* A value under its key; the text says it in words. */
static void value(struct answer *a, const char *key, double x, const char *format, ...) TL_PRINTF(4, 5);
static void value(struct answer *a, const char *key, double x, const char *format, ...) {
    va_list arguments;
    json_object_set_new(a->json, key, number(x));
    fprintf(a->text, "  %-18s ", key);
    va_start(arguments, format);
    vfprintf(a->text, format, arguments);
    va_end(arguments);
    fprintf(a->text, "\n");
}

static void word(struct answer *a, const char *key, const char *text) {
    json_object_set_new(a->json, key, json_string(text));
}

/* ---- What is asked ---- */

struct asked {
    double params, tokens, devices, mfu, peak, days, memory, bytes_per_param, flops, tokens_per_second, seconds;
    double flops_per_second; /* of one device */
    double tokens_per_param, alpha, beta, huber, batch, seq, layers, channels, heads, vocabulary, tensor, pipeline,
        interleave;
    double m, k, n;
    struct options_given given;
    const char *device, *dtype, *model, *shape, *op, *runs, *hardware, *convention;
    bool is_json;
};

#define LARGEST_MODEL 1e18 /* parameters: a million times what was ever trained */
#define LARGEST_DATA 1e21  /* tokens */
#define LARGEST_FLOPS 1e40
#define LARGEST_SIZE 1e12

/* An option that a form cannot do without. */
static int lacks(const char *form, const char *what) {
    fprintf(stderr, "tally napkin %s: %s\n", form, what);
    return EXIT_USAGE;
}

static int bad(const char *form, const char *format, ...) TL_PRINTF(2, 3);
static int bad(const char *form, const char *format, ...) {
    va_list arguments;
    fprintf(stderr, "tally napkin %s: ", form);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    return EXIT_INPUT;
}

/* The device's peak in the requested dtype; 0 if no device was named. Returns 0 or an exit code. */
struct peak {
    const struct hardware *chip;
    double peak;
    const char *dtype;
};
static int peak_find(const char *form, const struct asked *q, struct peak *m) {
    enum hardware_quantity kind = hardware_peak_named(q->dtype);
    char doubt[300];
    if (kind == HARDWARE_COUNT) return cli_error();
    *m = (struct peak){.peak = q->peak, .dtype = hardware_quantities[kind].name};
    if (!q->device) return 0;
    m->chip = hardware_find(q->device);
    if (!m->chip) return cli_error();
    if (q->peak > 0 && hardware_doubt(m->chip, kind, q->peak, doubt))
        return bad(form, "--peak: %s (leave out --device to use it anyway)", doubt);
    if (!(q->peak > 0)) m->peak = hardware_value(m->chip, kind);
    if (!(m->peak > 0))
        return bad(form, "no peak of %s is known for %s (give --peak, in FLOP/s)", m->dtype, m->chip->name);
    return 0;
}

static void peak_say(struct answer *a, const struct peak *m) {
    if (m->chip) word(a, "device", m->chip->name);
    if (!(m->peak > 0)) return;
    word(a, "dtype", m->dtype);
    value(a, "peak", m->peak, "%.5g FLOP/s of %s, dense%s%s", m->peak, m->dtype, m->chip ? ", " : "",
          m->chip ? m->chip->name : "");
}

/* The model that was asked for: a preset, a file, or the shapes of a GPT. 0, or an exit code. */
static int model_find(const char *form, const struct asked *q, struct napkin_model *m, const char **name) {
    tl_model_config c;
    *name = q->model;
    if (!q->model) {
        if (!(q->layers > 0 && q->channels > 0 && q->vocabulary > 0))
            return bad(form, "no model (give --model, or --layers, --channels and --vocabulary)");
        *m = napkin_gpt(q->layers, q->channels, q->vocabulary, q->seq);
        *name = "a GPT";
        return m->parameters <= LARGEST_MODEL ? 0 : bad(form, "%.3g parameters are too many", m->parameters);
    }
    bool is_file = strchr(q->model, '/') || strstr(q->model, ".json");
    if (!(is_file ? tl_model_config_read(q->model, &c) : tl_model_preset(q->model, &c))) return cli_error();
    if (!tl_model_config_check(&c)) return cli_error();
    /* learned positions are as many as the sequence has, unless the file says how many */
    if (!is_file && c.family == TL_GPT2 && q->seq > (double)c.context)
        return bad(form, "%s has %" PRId64 " positions; --seq %g exceeds them", q->model, c.context, q->seq);
    *m = napkin_model_of(&c);
    return 0;
}

/* ---- time ---- */

/* A bound at the share of the peak that published runs reach on this chip. */
static void expected_say(struct answer *a, const struct peak *machine, const char *what, double bound) {
    const double mfu = layout_typical_share(machine->chip);
    char name[32], shown[32];
    snprintf(name, sizeof name, "expected_%s", what);
    value(a, "expected_mfu", mfu, "%.2f: what published runs reach on such chips (--mfu says otherwise)", mfu);
    value(a, name, bound / mfu, "%s", amount_text(bound / mfu, shown));
}

static void flops_say(struct answer *a, double flops, const char *counted) {
    value(a, "flops", flops, "%.4g%s%s", flops, counted ? ", counted by " : "", counted ? counted : "");
    if (counted) word(a, "convention", counted);
}

static int form_time(const struct asked *q, struct answer *a) {
    struct peak machine;
    struct napkin_model m;
    const char *name;
    int code = peak_find("time", q, &machine);
    if (code) return code;
    if (!(machine.peak > 0)) return lacks("time", "no device (give --device NAME, or --peak in FLOP/s)");
    double flops = q->flops, params = q->params;
    const char *counted = NULL;
    char work[128];
    if (q->model || q->layers > 0) {
        const struct napkin_convention *c = napkin_convention_find(q->convention);
        if (!c) return cli_error();
        if (!(q->seq > 0 && q->tokens > 0)) return lacks("time", "--model also needs --seq and --tokens");
        if ((code = model_find("time", q, &m, &name))) return code;
        flops = c->flops(&m, q->seq) * q->tokens;
        params = m.parameters;
        counted = c->name;
        snprintf(work, sizeof work, "(%s) x %.4g", c->formula, q->tokens);
    } else if (flops > 0) snprintf(work, sizeof work, "%.4g", flops);
    else if (params > 0 && q->tokens > 0) {
        if (given_has(&q->given, "--convention") && strcmp(q->convention, "6n"))
            return bad("time", "--convention %s needs --model and --seq; with --params it is 6n", q->convention);
        counted = "6n";
        flops = 6 * params * q->tokens;
        snprintf(work, sizeof work, "6 x %.4g x %.4g", params, q->tokens);
    } else
        return lacks("time",
                     "no amount of work (give --params and --tokens, or --flops, or --model, --seq and --tokens)");
    const double mfu = q->mfu > 0 ? q->mfu : 1; /* without one, a bound: the peak all the time */
    if (q->days > 0) {
        double devices = flops / (q->days * NAPKIN_DAY * machine.peak * mfu);
        formula(a, "devices = FLOPs / (time x peak x MFU) = %s / (%.4g days x 86400 x %.4g x %.3g)", work, q->days,
                machine.peak, mfu);
        peak_say(a, &machine);
        flops_say(a, flops, counted);
        value(a, "devices", ceil(devices), "%.0f (%.4g)%s", ceil(devices), devices, q->mfu > 0 ? "" : " or more");
        value(a, "days", q->days, "%.4g", q->days);
        if (!(q->mfu > 0)) expected_say(a, &machine, "devices", devices);
        return 0;
    }
    double s = napkin_seconds(flops, q->devices, machine.peak, mfu);
    formula(a, "time = FLOPs / (devices x peak x MFU) = %s / (%.0f x %.4g x %.3g) = %.4g s", work, q->devices,
            machine.peak, mfu, s);
    peak_say(a, &machine);
    char n[32];
    if (params > 0) value(a, "parameters", params, "%s", grouped_text((uint64_t)params, n));
    flops_say(a, flops, counted);
    value(a, "seconds", s, "%s", amount_text(s, n));
    value(a, "days", s / NAPKIN_DAY, "%s%s", amount_text(s / NAPKIN_DAY, n), q->mfu > 0 ? "" : " or more: a bound");
    if (!(q->mfu > 0)) expected_say(a, &machine, "days", s / NAPKIN_DAY);
    value(a, "device_hours", s / 3600 * q->devices, "%s", amount_text(s / 3600 * q->devices, n));
    if (machine.chip && hardware_value(machine.chip, HARDWARE_POWER) > 0) {
        double mwh = s / 3600 * q->devices * hardware_value(machine.chip, HARDWARE_POWER) / 1e6;
        value(a, "megawatt_hours", mwh, "%s, for the chips alone at full power", amount_text(mwh, n));
    }
    return 0;
}

/* ---- fit ---- */

static int form_fit(const struct asked *q, struct answer *a) {
    double memory = q->memory, each = q->bytes_per_param > 0 ? q->bytes_per_param : 16;
    const struct hardware *chip = NULL;
    if (q->device && !(chip = hardware_find(q->device))) return cli_error();
    if (!(memory > 0) && chip) memory = hardware_memory_bytes(chip);
    if (chip && !(memory > 0)) return bad("fit", "the memory of %s is unknown (give --memory)", chip->name);
    if (!(memory > 0)) return lacks("fit", "no memory size (give --memory in bytes, or --device NAME)");
    double n = floor(memory * q->devices / each);
    formula(a, "parameters = memory x devices / bytes per parameter = %.11g x %.0f / %.4g = %.4g", memory, q->devices,
            each, n);
    if (chip) word(a, "device", chip->name);
    value(a, "memory", memory, "%.11g B, %.2f GiB", memory, memory / 1073741824.0);
    char text[32];
    value(a, "parameters", n, "%s, sharded over all devices; nothing is left for activations", amount_text(n, text));
    return 0;
}

/* ---- flops, mfu ---- */

static void conventions_say(struct answer *a, const struct napkin_model *m, double seq, double tokens,
                            double per_second, double peak) {
    json_t *list = json_object();
    fprintf(a->text, "  %-14s %14s%s%s%s  %s\n", "convention", "FLOP/token", tokens > 0 ? "          FLOP" : "",
            per_second > 0 ? "        FLOP/s" : "", per_second > 0 && peak > 0 ? "   share" : "", "rule");
    for (const struct napkin_convention *c = napkin_conventions; c->name; c++) {
        double per_token = c->flops(m, seq);
        json_t *row = json_pack("{s:f, s:s, s:s, s:b}", "flops_per_token", per_token, "formula", c->formula, "who",
                                c->who, "hardware", (int)c->is_hardware);
        fprintf(a->text, "  %-14s %14.6g", c->name, per_token);
        if (tokens > 0) {
            json_object_set_new(row, "flops", json_real(per_token * tokens));
            fprintf(a->text, " %13.5g", per_token * tokens);
        }
        if (per_second > 0) {
            json_object_set_new(row, "flops_per_second", json_real(per_token * per_second));
            fprintf(a->text, " %13.5g", per_token * per_second);
        }
        if (per_second > 0 && peak > 0) {
            double share = per_token * per_second / peak;
            json_object_set_new(row, c->is_hardware ? "hfu" : "mfu", json_real(share));
            fprintf(a->text, " %5.2f %%", 100 * share);
        }
        fprintf(a->text, "  %s (%s)\n", c->formula, c->who);
        json_object_set_new(list, c->name, row);
    }
    json_object_set_new(a->json, "conventions", list);
}

static void model_say(struct answer *a, const struct napkin_model *m, const char *name) {
    word(a, "model", name);
    value(a, "parameters", m->parameters, "%.0f (N), of which %.0f multiply a token (M)", m->parameters, m->matmul);
    json_object_set_new(a->json, "matmul_parameters", json_real(m->matmul));
}

static int form_flops(const struct asked *q, struct answer *a) {
    struct napkin_model m;
    const char *name;
    if (q->params > 0 && !q->model) {
        if (!(q->tokens > 0)) return lacks("flops", "--tokens is required");
        formula(a, "FLOPs = 6 N D = 6 x %.4g x %.4g = %.4g", q->params, q->tokens, 6 * q->params * q->tokens);
        value(a, "flops", 6 * q->params * q->tokens, "%.4g", 6 * q->params * q->tokens);
        return 0;
    }
    int code = model_find("flops", q, &m, &name);
    if (code) return code;
    if (!(q->seq > 0)) return lacks("flops", "--seq is required");
    formula(a, "training FLOPs per token of %s; L = %.0f layers, d = %.0f, S = %.0f", name, m.layers, m.attention,
            q->seq);
    model_say(a, &m, name);
    conventions_say(a, &m, q->seq, q->tokens, 0, 0);
    return 0;
}

/* The share of the peak that a published rate is, and the tokens that it would be by each convention. */
static int published_say(const struct asked *q, struct answer *a, const struct peak *machine) {
    struct napkin_model m;
    const char *name;
    const double rate = q->flops_per_second, share = rate / machine->peak;
    if (!(machine->peak > 0)) return lacks("mfu", "no device (give --device NAME, or --peak in FLOP/s)");
    if (share > 1)
        return bad("mfu", "%.4g FLOP/s are more than the dense peak of %s, %.4g (another --dtype, such as fp8?)", rate,
                   machine->dtype, machine->peak);
    formula(a, "MFU = FLOP/s of a device / peak = %.5g / %.5g = %.2f %%", rate, machine->peak, 100 * share);
    peak_say(a, machine);
    value(a, "mfu", share, "%.2f %%, by the convention of those who published it", 100 * share);
    value(a, "flops_per_second", rate * q->devices, "%.5g on %.0f devices", rate * q->devices, q->devices);
    if (!q->model && !(q->layers > 0)) return 0;
    int code = model_find("mfu", q, &m, &name);
    if (code) return code;
    if (!(q->seq > 0)) return lacks("mfu", "--seq is required");
    model_say(a, &m, name);
    json_t *list = json_object();
    for (const struct napkin_convention *c = napkin_conventions; c->name; c++) {
        const double tokens = rate * q->devices / c->flops(&m, q->seq);
        json_object_set_new(list, c->name, json_real(tokens));
        fprintf(a->text, "  %-18s %.6g tokens/s, if counted by %s\n", c->name, tokens, c->formula);
    }
    json_object_set_new(a->json, "tokens_per_second", list);
    return 0;
}

static int form_mfu(const struct asked *q, struct answer *a) {
    struct napkin_model m;
    struct peak machine;
    const char *name;
    int code = peak_find("mfu", q, &machine);
    if (!code && q->flops_per_second > 0) return published_say(q, a, &machine);
    if (code || (code = model_find("mfu", q, &m, &name))) return code;
    if (!(q->seq > 0)) return lacks("mfu", "--seq is required");
    double rate = q->tokens_per_second;
    if (!(rate > 0) && q->seconds > 0 && q->batch > 0) rate = q->batch * q->seq / q->seconds;
    if (!(rate > 0))
        return lacks("mfu", "no speed (give --tokens-per-second, or --batch and --seconds of an iteration)");
    if (machine.peak > 0)
        formula(a,
                "MFU = FLOPs per token x tokens per second / (devices x peak) = FLOPs per token x %.6g / (%.0f x %.5g)",
                rate, q->devices, machine.peak);
    else formula(a, "FLOP/s = FLOPs per token x %.6g; without a device there are no percentages", rate);
    peak_say(a, &machine);
    model_say(a, &m, name);
    value(a, "tokens_per_second", rate, "%.6g on %.0f devices", rate, q->devices);
    conventions_say(a, &m, q->seq, 0, rate, machine.peak * q->devices);
    for (const struct napkin_convention *c = napkin_conventions; machine.peak > 0 && c->name; c++)
        if (!c->is_hardware && c->flops(&m, q->seq) * rate > machine.peak * q->devices && strncmp(c->name, "macs", 4)) {
            fprintf(stderr,
                    "tally napkin mfu: more than 100 %%: the rate, the number of devices or the peak is wrong\n");
            break;
        }
    return 0;
}

/* ---- memory ---- */

static int form_memory(const struct asked *q, struct answer *a) {
    tl_dtype dtype = dtype_from_name(q->dtype);
    int64_t elements = 1;
    uint64_t bytes;
    if (dtype == TL_DTYPE_COUNT) {
        const char *names[TL_DTYPE_COUNT];
        for (int d = 0; d < TL_DTYPE_COUNT; d++) names[d] = tl_dtype_name((tl_dtype)d);
        char meant[TEXT_MEANT];
        return bad("memory", "there is no dtype \"%s\"%s (`tally dtypes` lists them)", q->dtype,
                   text_meant(meant, text_nearest(q->dtype, names, TL_DTYPE_COUNT)));
    }
    if (!q->shape) return lacks("memory", "--shape is required");
    json_t *shape = json_array();
    bool ok = *q->shape != 0;
    for (const char *at = q->shape; ok && *at;) {
        char piece[32];
        size_t length = strcspn(at, ",x");
        double size = 0;
        ok = length > 0 && length < sizeof piece;
        if (ok) memcpy(piece, at, length), piece[length] = 0;
        ok = ok && number_read(piece, &size) && size >= 0 && size == floor(size) && size < 9e15 &&
             size_mul(elements, (int64_t)size, &elements);
        json_array_append_new(shape, json_integer((json_int_t)size));
        at += length;
        if (*at && !*++at) ok = false; /* a comma at the end */
    }
    json_object_set_new(a->json, "shape", shape);
    if (!ok || !dtype_bytes(dtype, elements, &bytes))
        return bad("memory", "--shape \"%s\" is not a list of sizes whose product fits 63 bits", q->shape);
    double bits = dtype_info(dtype)->bits;
    formula(a, "bytes = elements x bits / 8 = %" PRId64 " x %.0f / 8 = %" PRIu64, elements, bits, bytes);
    word(a, "dtype", dtype_info(dtype)->name);
    json_object_set_new(a->json, "elements", json_integer(elements));
    char text[32];
    fprintf(a->text, "  %-18s %" PRIu64 " (%s; %.6g MB)\n", "bytes", bytes, bytes_text((double)bytes, text),
            (double)bytes / 1e6);
    json_object_set_new(a->json, "bytes", json_integer((json_int_t)bytes));
    json_object_set_new(a->json, "mebibytes", json_real((double)bytes / 1048576));
    return 0;
}

/* ---- activations ---- */

static int form_activations(const struct asked *q, struct answer *a) {
    struct napkin_shape s = {q->layers, q->channels, q->heads, q->seq, q->batch, q->tensor, q->pipeline, q->interleave};
    if (!(s.layers > 0 && s.channels > 0 && s.heads > 0 && s.seq > 0 && s.batch > 0))
        return lacks("activations", "give --layers, --channels, --heads, --seq and --batch");
    double each = q->bytes_per_param > 0 ? q->bytes_per_param : 18;
    double state = napkin_state(&s, each), all = napkin_activations(&s, KEEP_ALL);
    formula(a,
            "s b h L (10 + 24/t + 5 a s / (h t)) f = %.0f x %.0f x %.0f x %.0f x (10 + 24/%.0f + 5 x %.0f x %.0f / "
            "(%.0f x %.0f)) x %.4g",
            s.seq, s.batch, s.channels, s.layers, s.tensor, s.heads, s.seq, s.channels, s.tensor,
            s.interleave > 0 ? 1 + (s.pipeline - 1) / (s.pipeline * s.interleave) : 1.0);
    value(a, "state", state, "%.0f B, %.10g GiB: %.4g x 12 L h^2 / (t p)", state, state / 1073741824.0, each);
    for (int k = 0; k < KEEP_COUNT; k++) {
        double bytes = napkin_activations(&s, (enum napkin_keep)k);
        static const char *const words[] = {"nothing recomputed", "sequence parallelism", "attention recomputed",
                                            "both", "only block inputs kept"};
        value(a, napkin_keep_names[k], bytes, "%.0f B, %.10g GiB, %.2f %%: %s", bytes, bytes / 1073741824.0,
              100 * bytes / all, words[k]);
    }
    return 0;
}

/* ---- intensity ---- */

struct op_cost {
    const char *name, *formula;
    double flops, elements; /* of n; elements moved */
};

/* Elementwise ops of N, reductions of N, and products of N x N; FLOPs as the ledger counts them. */
static bool op_of(const struct asked *q, struct op_cost *c) {
    double n = q->n;
    const struct op_cost ops[] = {
        {"relu", "N / (2 N bytes)", n, 2 * n},
        {"gelu", "9 N / (2 N bytes)", 9 * n, 2 * n},
        {"dot", "2 N / ((2 N + 1) bytes)", 2 * n, 2 * n + 1},
        {"matvec", "2 N^2 / ((N^2 + 2 N) bytes)", 2 * n * n, n * n + 2 * n},
        {"matmul", "2 N^3 / (3 N^2 bytes)", 2 * n * n * n, 3 * n * n},
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (!strcmp(ops[i].name, q->op)) return *c = ops[i], true;
    return false;
}

static int form_intensity(const struct asked *q, struct answer *a) {
    struct peak machine;
    struct op_cost c = {"matmul", "2 m k n / ((m k + k n + m n) bytes)", 2 * q->m * q->k * q->n,
                        q->m * q->k + q->k * q->n + q->m * q->n};
    int code = peak_find("intensity", q, &machine);
    if (code) return code;
    tl_dtype dtype = dtype_from_name(q->dtype);
    if (dtype == TL_DTYPE_COUNT)
        return bad("intensity", "there is no dtype \"%s\" (`tally dtypes` lists them)", q->dtype);
    if (!(q->n > 0)) return lacks("intensity", "no size (give --n, or --m, --k and --n)");
    const bool has_sides = q->m > 0 || q->k > 0; /* of a product that is not square */
    if (q->op && strcmp(q->op, "matmul") && has_sides)
        return lacks("intensity", "--m and --k are sizes of a product (--op matmul); other ops have --n alone");
    if (q->op && !has_sides && !op_of(q, &c))
        return bad("intensity", "--op \"%s\" is not one of relu, gelu, dot, matvec, matmul", q->op);
    if ((!q->op || has_sides) && !(q->m > 0 && q->k > 0))
        return lacks("intensity", "give --op NAME and --n, or --m, --k and --n of a product");
    double bytes = c.elements * dtype_info(dtype)->bits / 8, intensity = c.flops / bytes;
    formula(a, "intensity of %s = FLOPs / bytes = %s = %.6g / %.6g = %.4g FLOP/B", c.name, c.formula, c.flops, bytes,
            intensity);
    value(a, "flops", c.flops, "%.6g", c.flops);
    value(a, "bytes", bytes, "%.6g", bytes);
    value(a, "intensity", intensity, "%.4g FLOP/B", intensity);
    if (!machine.chip) return 0;
    double bandwidth = hardware_value(machine.chip, HARDWARE_BANDWIDTH);
    peak_say(a, &machine);
    if (!(bandwidth > 0)) return 0;
    double ridge = machine.peak / bandwidth, s = fmax(c.flops / machine.peak, bytes / bandwidth);
    value(a, "ridge", ridge, "%.4g FLOP/B = %.5g / %.5g", ridge, machine.peak, bandwidth);
    value(a, "seconds", s, "at least %.4g; %s-bound", s, intensity < ridge ? "memory" : "compute");
    word(a, "bound", intensity < ridge ? "memory" : "compute");
    return 0;
}

/* ---- chinchilla ---- */

static int form_chinchilla(const struct asked *q, struct answer *a) {
    double r = q->tokens_per_param, N, D, C;
    if ((q->flops > 0) + (q->params > 0) + (q->tokens > 0) != 1)
        return lacks("chinchilla", "give --flops, --params or --tokens");
    if (q->flops > 0) {
        N = sqrt(q->flops / (6 * r));
        formula(a, "N = sqrt(C / (6 x %.4g)) = sqrt(%.4g / %.4g) = %.4g;  D = %.4g N", r, q->flops, 6 * r, N, r);
    } else {
        N = q->params > 0 ? q->params : q->tokens / r;
        formula(a, "D = %.4g N: N = %.4g, D = %.4g;  C = 6 N D", r, N, r * N);
    }
    D = r * N;
    C = 6 * N * D;
    char text[32];
    value(a, "parameters", N, "%s", amount_text(N, text));
    value(a, "tokens", D, "%s", amount_text(D, text));
    value(a, "flops", C, "%.4g", C);
    json_t *laws = json_object();
    for (const struct napkin_law_row *row = napkin_laws; row->name; row++) {
        double best_n, best_d, here = napkin_loss(&row->law, N, D);
        napkin_optimum(&row->law, C, &best_n, &best_d);
        double least = napkin_loss(&row->law, best_n, best_d);
        json_object_set_new(laws, row->name,
                            json_pack("{s:s, s:f, s:f, s:f, s:f}", "source", row->source, "loss", here,
                                      "best_parameters", best_n, "best_tokens", best_d, "best_loss", least));
        fprintf(a->text,
                "  %-18s loss %.4f; best for these FLOPs: N = %.4g, D = %.4g (%.1f per parameter), loss %.4f; %s\n",
                row->name, here, best_n, best_d, best_d / best_n, least, row->source);
    }
    json_object_set_new(a->json, "laws", laws);
    return 0;
}

/* ---- loss ---- */

enum { MOST_RUNS = 10000 };

/* Lines of N, D, loss; a line that begins with no number (a header, a comment, nothing) is passed over. */
static int runs_read(const char *path, struct napkin_run *runs, int *n_runs) {
    size_t bytes;
    char *text = file_get(path, (size_t)1 << 20, &bytes), *rest = text;
    int code = text ? 0 : cli_error();
    *n_runs = 0;
    for (int line = 1; rest && !code; line++) {
        char *at = strsep(&rest, "\n"), *field, *end;
        double v[3];
        int n = 0;
        at += strspn(at, " \t\r");
        if (!strchr("0123456789.", *at) || !*at) continue;
        while (n < 3 && (field = strsep(&at, ", \t;\r"))) {
            if (!*field) continue;
            v[n] = number_parse(field, &end);
            if (*end || end == field) break;
            n++;
        }
        bool is_run = n == 3;
        for (int i = 0; is_run && i < 3; i++) is_run = v[i] > 0 && v[i] <= LARGEST_DATA;
        if (n == 3 && !is_run)
            code = bad("loss", "%s:%d: parameters, tokens and loss must be above 0 and at most %g", path, line,
                       LARGEST_DATA);
        else if (n < 3) code = bad("loss", "%s:%d: a line needs three numbers: parameters, tokens, loss", path, line);
        else if (*n_runs == MOST_RUNS) code = bad("loss", "%s: more than %d runs", path, MOST_RUNS);
        else runs[(*n_runs)++] = (struct napkin_run){v[0], v[1], v[2]};
    }
    memory_free(text);
    return code;
}

static int run_order(const void *x, const void *y) {
    const struct napkin_run *a = x, *b = y;
    double c = a->parameters * a->tokens, d = b->parameters * b->tokens;
    return (c > d) - (c < d);
}

/* The simplest check: fit the law to all runs but the largest, and predict the largest. */
static void holdout_say(const struct asked *q, struct answer *a, const struct napkin_run *runs, int n,
                        struct napkin_fit *f) {
    const struct napkin_fit_options options = {
        .alpha = q->alpha, .beta = q->beta, .delta = q->huber, .without_draws = true};
    if (n < 4 || !napkin_fit_loss(runs, n - 1, &options, f)) {
        tl_error_clear();
        return;
    }
    const struct napkin_run *last = &runs[n - 1];
    double said = napkin_loss(&f->law, last->parameters, last->tokens);
    json_object_set_new(a->json, "holdout",
                        json_pack("{s:f, s:f, s:f, s:f, s:f}", "parameters", last->parameters, "tokens", last->tokens,
                                  "predicted", said, "measured", last->loss, "relative_error", said / last->loss - 1));
    fprintf(a->text, "  %-18s the other runs predict %.4f for the largest, which has %.4f: %+.2f %%\n", "holdout", said,
            last->loss, 100 * (said / last->loss - 1));
}

/* What is said of a law, each with its interval. The context: two numbers. */
static double law_E(const struct napkin_law *l, double noise, const void *x) { return (void)noise, (void)x, l->E; }
static double law_alpha(const struct napkin_law *l, double noise, const void *x) {
    return (void)noise, (void)x, l->alpha;
}
static double law_beta(const struct napkin_law *l, double noise, const void *x) {
    return (void)noise, (void)x, l->beta;
}
static double law_share(const struct napkin_law *l, double noise, const void *x) {
    return (void)noise, (void)x, l->beta / (l->alpha + l->beta);
}
static double law_best_size(const struct napkin_law *l, double noise, const void *flops) {
    double N, D;
    napkin_optimum(l, *(const double *)flops, &N, &D);
    return (void)noise, N;
}
static double law_run(const struct napkin_law *l, double noise, const void *sizes) {
    const double *x = sizes;
    return napkin_loss(l, x[0], x[1]) * exp(noise); /* of a single run, which scatters about the law */
}

static const double interval_level = 0.95;

/* A value with the interval that holds 95 % of the bootstrap; `shown` says how it is written. */
static void value_with_range(struct answer *a, const struct napkin_fit *f, const char *name, napkin_quantity quantity,
                             const void *context, const char *shown, const char *meaning) {
    double range[2], middle = quantity(&f->law, 0, context);
    char here[32], low[32], high[32], name_of_range[48];
    snprintf(here, sizeof here, shown, middle);
    if (!napkin_fit_range(f, quantity, context, interval_level, range)) {
        value(a, name, middle, "%s: %s", here, meaning);
        return;
    }
    snprintf(low, sizeof low, shown, range[0]);
    snprintf(high, sizeof high, shown, range[1]);
    value(a, name, middle, "%s (95 %%: %s to %s): %s", here, low, high, meaning);
    snprintf(name_of_range, sizeof name_of_range, "%s_range", name);
    json_object_set_new(a->json, name_of_range, json_pack("[f, f]", range[0], range[1]));
}

static void prediction_say(const struct asked *q, struct answer *a, const struct napkin_fit *f, double most) {
    const double sizes[2] = {q->params, q->tokens};
    char meaning[96];
    snprintf(meaning, sizeof meaning, "one run of %.4g parameters on %.4g tokens", q->params, q->tokens);
    value_with_range(a, f, "loss", law_run, sizes, "%.4f", meaning);
    if (!f->n_draws) fprintf(a->text, "  %-18s unknown: there are as many unknowns as runs\n", "interval");
    if (q->params * q->tokens > 100 * most)
        fprintf(stderr, "tally napkin loss: this is %.0f times the compute of the largest run, far outside the data\n",
                q->params * q->tokens / most);
}

static int loss_answer(const struct asked *q, struct answer *a, struct napkin_run *runs, int n, struct napkin_fit *f) {
    const struct napkin_fit_options options = {.alpha = q->alpha, .beta = q->beta, .delta = q->huber};
    qsort(runs, (size_t)n, sizeof *runs, run_order);
    if (!napkin_fit_loss(runs, n, &options, f)) return cli_error();
    const struct napkin_law law = f->law;
    formula(a, "L(N, D) = E + A / N^a + B / D^b = %.4f + %.4g / N^%.4f + %.4g / D^%.4f, through %d runs", law.E, law.A,
            law.alpha, law.B, law.beta, n);
    json_object_set_new(a->json, "law",
                        json_pack("{s:f, s:f, s:f, s:f, s:f}", "E", law.E, "A", law.A, "B", law.B, "alpha", law.alpha,
                                  "beta", law.beta));
    json_object_set_new(a->json, "runs", json_integer(n));
    value(a, "rms", f->rms, "%.3f %% of the loss: distance of the runs from the law", 100 * f->rms);
    value_with_range(a, f, "E", law_E, NULL, "%.4f", "the loss that no model and no data go below");
    if (!(q->alpha > 0)) value_with_range(a, f, "alpha", law_alpha, NULL, "%.4f", "exponent of the size");
    if (!(q->beta > 0)) value_with_range(a, f, "beta", law_beta, NULL, "%.4f", "exponent of the data");
    if (law.A > 0 && law.B > 0) {
        value_with_range(a, f, "size_exponent", law_share, NULL, "%.3f", "best N grows as C to this power");
        if (q->flops > 0) {
            char meaning[64];
            snprintf(meaning, sizeof meaning, "best N for %.4g FLOPs", q->flops);
            value_with_range(a, f, "best_parameters", law_best_size, &q->flops, "%.4g", meaning);
        }
    }
    if (q->params > 0 && q->tokens > 0) prediction_say(q, a, f, runs[n - 1].parameters * runs[n - 1].tokens);
    holdout_say(q, a, runs, n, f);
    return 0;
}

static int form_loss(const struct asked *q, struct answer *a) {
    if (!q->runs) return lacks("loss", "--runs is required: a file with lines of parameters, tokens, loss");
    struct napkin_run *runs = malloc(MOST_RUNS * sizeof *runs);
    struct napkin_fit *fit = malloc(sizeof *fit);
    int n, code = runs && fit ? runs_read(q->runs, runs, &n) : EXIT_MEMORY;
    if (!code) code = loss_answer(q, a, runs, n, fit);
    free(runs);
    free(fit);
    return code;
}

/* ---- references ---- */

static int form_references(const struct asked *q, struct answer *a) {
    double flops = q->flops > 0 ? q->flops : 6 * q->params * q->tokens;
    json_t *list = json_array();
    if (flops > 0) {
        formula(a, q->flops > 0 ? "FLOPs = %.4g" : "FLOPs = 6 N D = %.4g", flops);
        json_object_set_new(a->json, "flops", json_real(flops));
    }
    for (const struct napkin_reference *r = napkin_references; r->name; r++) {
        json_t *row = json_pack("{s:s, s:f, s:s, s:b}", "name", r->name, "flops", r->flops, "source", r->source,
                                "estimate", (int)r->is_estimate);
        fprintf(a->text, "  %-32s %s%-8.3g FLOP", r->name, r->is_estimate ? "~" : " ", r->flops);
        if (flops > 0) {
            json_object_set_new(row, "share", json_real(flops / r->flops));
            fprintf(a->text, "  x %-9.3g", flops / r->flops);
        }
        fprintf(a->text, "  %s\n", r->source);
        json_array_append_new(list, row);
    }
    json_object_set_new(a->json, "references", list);
    return 0;
}

/* ---- The command ---- */

static const struct form {
    const char *name;
    int (*answer)(const struct asked *q, struct answer *a);
} forms[] = {
    {"time", form_time},
    {"fit", form_fit},
    {"flops", form_flops},
    {"memory", form_memory},
    {"activations", form_activations},
    {"intensity", form_intensity},
    {"chinchilla", form_chinchilla},
    {"mfu", form_mfu},
    {"loss", form_loss},
    {"references", form_references},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

/* What each reads, in the same order. */
static const struct option_form reads[N_FORMS + 1] = {
    {"napkin time",
     "--params --tokens --flops --model --seq --layers --channels --vocabulary --convention --devices "
     "--days --mfu --device --dtype --peak --hardware --json",
     NULL},
    {"napkin fit", "--memory --device --devices --bytes-per-param --hardware --json", NULL},
    {"napkin flops", "--params --tokens --model --seq --layers --channels --vocabulary --json", NULL},
    {"napkin memory", "--shape --dtype --json", NULL},
    {"napkin activations",
     "--layers --channels --heads --seq --batch --tensor --pipeline --interleave "
     "--bytes-per-param --json",
     NULL},
    {"napkin intensity", "--op --m --k --n --dtype --device --peak --hardware --json", NULL},
    {"napkin chinchilla", "--flops --params --tokens --tokens-per-param --json", NULL},
    {"napkin mfu",
     "--model --seq --layers --channels --vocabulary --flops-per-second --tokens-per-second --batch --seconds "
     "--devices "
     "--device --dtype --peak --hardware --json",
     NULL},
    {"napkin loss", "--runs --params --tokens --flops --alpha --beta --huber --json", NULL},
    {"napkin references", "--flops --params --tokens --json", NULL},
    {NULL, NULL, NULL},
};

static const struct option_rule rules[] = {
    {"napkin time", "--params --flops --layers --channels --vocabulary", OPTION_BESIDE, "--model"},
    {"napkin time", "--params --tokens --seq --layers --channels --vocabulary", OPTION_BESIDE, "--flops"},
    {"napkin time", "--seq --layers --channels --vocabulary", OPTION_BESIDE, "--params"},
    {"napkin time", "--convention", OPTION_WITHOUT, "--model --layers --params"},
    {"napkin time", "--devices", OPTION_BESIDE, "--days"},
    {"napkin time", "--hardware", OPTION_WITHOUT, "--device"},
    {"napkin fit", "--device", OPTION_BESIDE, "--memory"},
    {"napkin fit", "--hardware", OPTION_WITHOUT, "--device"},
    {"napkin flops", "--params --layers --channels --vocabulary", OPTION_BESIDE, "--model"},
    {"napkin flops", "--seq --layers --channels --vocabulary", OPTION_BESIDE, "--params"},
    {"napkin activations", "--interleave", OPTION_WITHOUT, "--pipeline"},
    {"napkin intensity", "--peak --hardware", OPTION_WITHOUT, "--device"},
    {"napkin mfu", "--layers --channels --vocabulary", OPTION_BESIDE, "--model"},
    {"napkin mfu", "--tokens-per-second --batch --seconds", OPTION_BESIDE, "--flops-per-second"},
    {"napkin mfu", "--batch --seconds", OPTION_BESIDE, "--tokens-per-second"},
    {"napkin mfu", "--seq", OPTION_WITHOUT, "--model --layers"},
    {"napkin mfu", "--dtype", OPTION_WITHOUT, "--device --peak"},
    {"napkin mfu", "--hardware", OPTION_WITHOUT, "--device"},
    {"napkin loss", "--params", OPTION_WITHOUT, "--tokens"},
    {"napkin loss", "--tokens", OPTION_WITHOUT, "--params"},
    {"napkin references", "--params --tokens", OPTION_BESIDE, "--flops"},
    {"napkin references", "--params", OPTION_WITHOUT, "--tokens"},
    {"napkin references", "--tokens", OPTION_WITHOUT, "--params"},
    {NULL, NULL, OPTION_BESIDE, NULL},
};

static int asked_read(int argc, char **argv, struct asked *q) {
    const struct option table[] = {
        {"--params", OPTION_NUMBER, &q->params, 1, LARGEST_MODEL, false},
        {"--tokens", OPTION_NUMBER, &q->tokens, 1, LARGEST_DATA, false},
        {"--devices", OPTION_NUMBER, &q->devices, 1e-6, 1e9, false},
        {"--mfu", OPTION_NUMBER, &q->mfu, 1e-6, 1, false},
        {"--peak", OPTION_NUMBER, &q->peak, 1, 1e24, false},
        {"--days", OPTION_NUMBER, &q->days, 1e-6, 1e9, false},
        {"--memory", OPTION_NUMBER, &q->memory, 1, 1e18, false},
        {"--bytes-per-param", OPTION_NUMBER, &q->bytes_per_param, 1e-3, 1e6, false},
        {"--flops", OPTION_NUMBER, &q->flops, 1, LARGEST_FLOPS, false},
        {"--flops-per-second", OPTION_NUMBER, &q->flops_per_second, 1, 1e24, false},
        {"--tokens-per-second", OPTION_NUMBER, &q->tokens_per_second, 1e-6, LARGEST_DATA, false},
        {"--seconds", OPTION_NUMBER, &q->seconds, 1e-9, 1e12, false},
        {"--tokens-per-param", OPTION_NUMBER, &q->tokens_per_param, 1e-6, 1e9, false},
        {"--alpha", OPTION_NUMBER, &q->alpha, 1e-3, 3, false},
        {"--beta", OPTION_NUMBER, &q->beta, 1e-3, 3, false},
        {"--huber", OPTION_NUMBER, &q->huber, 1e-9, 1e3, false},
        {"--batch", OPTION_NUMBER, &q->batch, 1, LARGEST_SIZE, false},
        {"--seq", OPTION_NUMBER, &q->seq, 1, LARGEST_SIZE, false},
        {"--layers", OPTION_NUMBER, &q->layers, 1, 1e6, false},
        {"--channels", OPTION_NUMBER, &q->channels, 1, 1e9, false},
        {"--heads", OPTION_NUMBER, &q->heads, 1, 1e9, false},
        {"--vocabulary", OPTION_NUMBER, &q->vocabulary, 1, 1e9, false},
        {"--tensor", OPTION_NUMBER, &q->tensor, 1, 1e6, false},
        {"--pipeline", OPTION_NUMBER, &q->pipeline, 1, 1e6, false},
        {"--interleave", OPTION_NUMBER, &q->interleave, 1, 1e6, false},
        {"--m", OPTION_NUMBER, &q->m, 1, LARGEST_SIZE, false},
        {"--k", OPTION_NUMBER, &q->k, 1, LARGEST_SIZE, false},
        {"--n", OPTION_NUMBER, &q->n, 1, LARGEST_SIZE, false},
        {"--device", OPTION_TEXT, &q->device, 0, 0, false},
        {"--dtype", OPTION_TEXT, &q->dtype, 0, 0, false},
        {"--model", OPTION_TEXT, &q->model, 0, 0, false},
        {"--shape", OPTION_TEXT, &q->shape, 0, 0, false},
        {"--op", OPTION_TEXT, &q->op, 0, 0, false},
        {"--runs", OPTION_TEXT, &q->runs, 0, 0, false},
        {"--convention", OPTION_TEXT, &q->convention, 0, 0, false},
        {"--hardware", OPTION_TEXT, &q->hardware, 0, 0, false},
        {"--json", OPTION_FLAG, &q->is_json, 0, 0, false},
        {NULL, OPTION_END, NULL, 0, 0, false},
    };
    return options_read_given("napkin", table, argc, argv, NULL, 0, &q->given);
}

static const struct form *form_find(const char *name) {
    const char *names[N_FORMS];
    char shown[64];
    for (int i = 0; i < N_FORMS; i++) {
        if (!strcmp(name, forms[i].name)) return &forms[i];
        names[i] = forms[i].name;
    }
    char meant[TEXT_MEANT];
    fprintf(stderr, "tally napkin: there is no form \"%s\"%s (see `tally napkin --help`)\n",
            text_show(shown, sizeof shown, name), text_meant(meant, text_nearest(name, names, N_FORMS)));
    return NULL;
}

/* Whether a text has the word inf or nan, as printf writes what is not finite. */
static bool has_infinity(const char *text) {
    for (const char *at = text; *at; at++) {
        bool is_word =
            (!strncmp(at, "inf", 3) || !strncmp(at, "nan", 3)) && !strchr("abcdefghijklmnopqrstuvwxyz", at[3]);
        if (is_word && (at == text || strchr(" (-+=\n", at[-1]))) return true;
    }
    return false;
}

/* Flags have bounds within which nothing overflows; files and laws fitted to them may still lead beyond. */
static int answer_print(const struct form *form, const struct asked *q) {
    char *text = NULL;
    size_t bytes = 0;
    struct answer a = {json_pack("{s:s, s:s}", "schema", "tally.napkin/1", "form", form->name),
                       open_memstream(&text, &bytes)};
    int code = a.json && a.text ? form->answer(q, &a) : EXIT_MEMORY;
    if (a.text && fclose(a.text) != 0) code = EXIT_MEMORY;
    if (code == EXIT_MEMORY) fprintf(stderr, "tally napkin %s: out of memory for the answer\n", form->name);
    if (!code && has_infinity(text))
        code = bad(form->name, "the answer is out of range (check the numbers for a missing or extra zero)");
    if (!code && q->is_json) code = cli_json(json_incref(a.json));
    else if (!code) fputs(text, stdout);
    free(text);
    json_decref(a.json);
    return code;
}

int cmd_napkin(int argc, char **argv) {
    struct asked q = {
        .devices = 1, .dtype = "bf16", .tokens_per_param = 20, .tensor = 1, .pipeline = 1, .convention = "palm"};
    if (argc < 2) {
        fputs(help_napkin, stderr);
        return EXIT_USAGE;
    }
    const struct form *form = form_find(argv[1]);
    if (!form) return EXIT_USAGE;
    int code = asked_read(argc - 1, argv + 1, &q);
    if (!code) code = options_check(reads, &reads[form - forms], rules, &q.given);
    if (code) return code;
    if (!hardware_load_default() || (q.hardware && !hardware_load(q.hardware))) return cli_error();
    code = answer_print(form, &q);
    hardware_unload();
    return code;
}

/* napkin_run.c: closed forms of a run: time, the largest model, FLOPs, utilisation, known runs. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/napkin_form.h"
#include "plan/layout.h"
#include "plan/mfu.h"
#include "plan/napkin.h"

/* ---- time ---- */

/* A bound at the share of the peak that published runs of about this size reach on this chip. */
static void expected_say(struct answer *a, const struct peak *machine, double params, const char *what, double bound) {
    const struct mfu_row *row = mfu_find(machine->chip, params);
    const double mfu = row ? row->mfu : mfu_roofline_share(machine->chip, params) / MFU_TO_ROOFLINE;
    char name[32], shown[32], size[32];
    snprintf(name, sizeof name, "expected_%s", what);
    if (row)
        answer_value(a, "expected_mfu", mfu, "%.3f: published for %s of %s parameters, %s (--mfu says otherwise)", mfu,
                     row->chip, amount_text(row->parameters, size), row->source);
    else
        answer_value(a, "expected_mfu", mfu, "%.2f: what published runs reach on other chips (--mfu says otherwise)",
                     mfu);
    answer_word(a, "expected_source", row ? row->source : "");
    answer_value(a, name, bound / mfu, "%s", amount_text(bound / mfu, shown));
}

static void flops_say(struct answer *a, double flops, const char *counted) {
    answer_value(a, "flops", flops, "%.4g%s%s", flops, counted ? ", counted by " : "", counted ? counted : "");
    if (counted) answer_word(a, "convention", counted);
}

int form_time(const struct asked *q, struct answer *a) {
    struct peak machine;
    struct napkin_model m;
    const char *name;
    int code = peak_find("time", q, &machine);
    if (code) return code;
    if (!(machine.peak > 0)) return asked_lacks("time", "no device (give --device NAME, or --peak in FLOP/s)");
    double flops = q->flops, params = q->params;
    const char *counted = NULL;
    char work[128];
    if (q->model || q->layers > 0) {
        const struct napkin_convention *c = napkin_convention_find(q->convention);
        if (!c) return cli_error();
        if (!(q->seq > 0 && q->tokens > 0)) return asked_lacks("time", "--model also needs --seq and --tokens");
        if ((code = model_find("time", q, &m, &name))) return code;
        flops = c->flops(&m, q->seq) * q->tokens;
        params = m.active;
        counted = c->name;
        snprintf(work, sizeof work, "(%s) x %.4g", c->formula, q->tokens);
    } else if (flops > 0) snprintf(work, sizeof work, "%.4g", flops);
    else if (params > 0 && q->tokens > 0) {
        if (given_has(&q->given, "--convention") && strcmp(q->convention, "6n"))
            return asked_bad("time", "--convention %s needs --model and --seq; with --params it is 6n", q->convention);
        counted = "6n";
        flops = 6 * params * q->tokens;
        snprintf(work, sizeof work, "6 x %.4g x %.4g", params, q->tokens);
    } else
        return asked_lacks(
            "time", "no amount of work (give --params and --tokens, or --flops, or --model, --seq and --tokens)");
    const double mfu = q->mfu > 0 ? q->mfu : 1; /* without one, a bound: the peak all the time */
    if (q->days > 0) {
        double devices = flops / (q->days * DAY_S * machine.peak * mfu);
        answer_formula(a, "devices = FLOPs / (time x peak x MFU) = %s / (%.4g days x 86400 x %.4g x %.3g)", work,
                       q->days, machine.peak, mfu);
        peak_say(a, &machine);
        flops_say(a, flops, counted);
        answer_value(a, "devices", ceil(devices), "%.0f (%.4g)%s", ceil(devices), devices,
                     q->mfu > 0 ? "" : " or more");
        answer_value(a, "days", q->days, "%.4g", q->days);
        if (!(q->mfu > 0)) expected_say(a, &machine, params, "devices", devices);
        return 0;
    }
    double s = napkin_seconds(flops, q->devices, machine.peak, mfu);
    answer_formula(a, "time = FLOPs / (devices x peak x MFU) = %s / (%.0f x %.4g x %.3g) = %.4g s", work, q->devices,
                   machine.peak, mfu, s);
    peak_say(a, &machine);
    char n[32];
    if (params > 0) answer_value(a, "parameters", params, "%s", grouped_text((uint64_t)params, n));
    flops_say(a, flops, counted);
    answer_value(a, "seconds", s, "%s", amount_text(s, n));
    answer_value(a, "days", s / DAY_S, "%s%s", amount_text(s / DAY_S, n), q->mfu > 0 ? "" : " or more: a bound");
    if (!(q->mfu > 0)) expected_say(a, &machine, params, "days", s / DAY_S);
    answer_value(a, "device_hours", s / HOUR_S * q->devices, "%s", amount_text(s / HOUR_S * q->devices, n));
    if (machine.chip && hardware_value(machine.chip, HARDWARE_POWER) > 0) {
        double mwh = s / HOUR_S * q->devices * hardware_value(machine.chip, HARDWARE_POWER) / 1e6;
        answer_value(a, "megawatt_hours", mwh, "%s, for the chips alone at full power", amount_text(mwh, n));
    }
    return 0;
}

/* ---- fit ---- */

int form_fit(const struct asked *q, struct answer *a) {
    double memory = q->memory, each = q->bytes_per_param > 0 ? q->bytes_per_param : 16;
    const struct hardware *chip = NULL;
    if (q->device && !(chip = hardware_find(q->device))) return cli_error();
    if (!(memory > 0) && chip) memory = hardware_memory_bytes(chip);
    if (chip && !(memory > 0)) return asked_bad("fit", "the memory of %s is unknown (give --memory)", chip->name);
    if (!(memory > 0)) return asked_lacks("fit", "no memory size (give --memory in bytes, or --device NAME)");
    double n = floor(memory * q->devices / each);
    answer_formula(a, "parameters = memory x devices / bytes per parameter = %.11g x %.0f / %.4g = %.4g", memory,
                   q->devices, each, n);
    if (chip) answer_word(a, "device", chip->name);
    answer_value(a, "memory", memory, "%.11g B, %.2f GiB", memory, memory / 1073741824.0);
    char text[32];
    answer_value(a, "parameters", n, "%s, sharded over all devices; nothing is left for activations",
                 amount_text(n, text));
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
    answer_word(a, "model", name);
    if (m->chosen < 1) {
        answer_value(a, "parameters", m->parameters, "%.0f", m->parameters);
        answer_value(a, "active_parameters", m->active,
                     "%.0f (N): with the experts that a token takes; %.0f multiply it (M)", m->active, m->matmul);
    } else {
        answer_value(a, "parameters", m->parameters, "%.0f (N), of which %.0f multiply a token (M)", m->parameters,
                     m->matmul);
    }
    json_object_set_new(a->json, "matmul_parameters", json_real(m->matmul));
}

int form_flops(const struct asked *q, struct answer *a) {
    struct napkin_model m;
    const char *name;
    if (q->params > 0 && !q->model) {
        if (!(q->tokens > 0)) return asked_lacks("flops", "--tokens is required");
        answer_formula(a, "FLOPs = 6 N D = 6 x %.4g x %.4g = %.4g", q->params, q->tokens, 6 * q->params * q->tokens);
        answer_value(a, "flops", 6 * q->params * q->tokens, "%.4g", 6 * q->params * q->tokens);
        return 0;
    }
    int code = model_find("flops", q, &m, &name);
    if (code) return code;
    if (!(q->seq > 0)) return asked_lacks("flops", "--seq is required");
    answer_formula(a, "training FLOPs per token of %s; L = %.0f layers, d = %.0f, S = %.0f", name, m.layers,
                   m.attention, q->seq);
    model_say(a, &m, name);
    conventions_say(a, &m, q->seq, q->tokens, 0, 0);
    return 0;
}

/* The share of the peak that a published rate is, and the tokens that it would be by each convention. */
static int published_say(const struct asked *q, struct answer *a, const struct peak *machine) {
    struct napkin_model m;
    const char *name;
    const double rate = q->flops_per_second, share = rate / machine->peak;
    if (!(machine->peak > 0)) return asked_lacks("mfu", "no device (give --device NAME, or --peak in FLOP/s)");
    if (share > 1)
        return asked_bad("mfu", "%.4g FLOP/s are more than the dense peak of %s, %.4g (another --dtype, such as fp8?)",
                         rate, machine->dtype, machine->peak);
    answer_formula(a, "MFU = FLOP/s of a device / peak = %.5g / %.5g = %.2f %%", rate, machine->peak, 100 * share);
    peak_say(a, machine);
    answer_value(a, "mfu", share, "%.2f %%, by the convention of those who published it", 100 * share);
    answer_value(a, "flops_per_second", rate * q->devices, "%.5g on %.0f devices", rate * q->devices, q->devices);
    if (!q->model && !(q->layers > 0)) return 0;
    int code = model_find("mfu", q, &m, &name);
    if (code) return code;
    if (!(q->seq > 0)) return asked_lacks("mfu", "--seq is required");
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

int form_mfu(const struct asked *q, struct answer *a) {
    struct napkin_model m;
    struct peak machine;
    const char *name;
    int code = peak_find("mfu", q, &machine);
    if (!code && q->flops_per_second > 0) return published_say(q, a, &machine);
    if (code || (code = model_find("mfu", q, &m, &name))) return code;
    if (!(q->seq > 0)) return asked_lacks("mfu", "--seq is required");
    double rate = q->tokens_per_second;
    if (!(rate > 0) && q->seconds > 0 && q->batch > 0) rate = q->batch * q->seq / q->seconds;
    if (!(rate > 0))
        return asked_lacks("mfu", "no speed (give --tokens-per-second, or --batch and --seconds of an iteration)");
    if (machine.peak > 0)
        answer_formula(
            a, "MFU = FLOPs per token x tokens per second / (devices x peak) = FLOPs per token x %.6g / (%.0f x %.5g)",
            rate, q->devices, machine.peak);
    else answer_formula(a, "FLOP/s = FLOPs per token x %.6g; without a device there are no percentages", rate);
    peak_say(a, &machine);
    model_say(a, &m, name);
    answer_value(a, "tokens_per_second", rate, "%.6g on %.0f devices", rate, q->devices);
    conventions_say(a, &m, q->seq, 0, rate, machine.peak * q->devices);
    for (const struct napkin_convention *c = napkin_conventions; machine.peak > 0 && c->name; c++)
        if (!c->is_hardware && c->flops(&m, q->seq) * rate > machine.peak * q->devices && strncmp(c->name, "macs", 4)) {
            fprintf(stderr,
                    "tally napkin mfu: more than 100 %%: the rate, the number of devices or the peak is wrong\n");
            break;
        }
    return 0;
}

/* ---- references ---- */

int form_references(const struct asked *q, struct answer *a) {
    double flops = q->flops > 0 ? q->flops : 6 * q->params * q->tokens;
    json_t *list = json_array();
    if (flops > 0) {
        answer_formula(a, q->flops > 0 ? "FLOPs = %.4g" : "FLOPs = 6 N D = %.4g", flops);
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

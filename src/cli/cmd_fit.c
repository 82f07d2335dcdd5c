/* cmd_fit.c: tally fit: the inverse of plan. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/plan_options.h"
#include "plan/fit.h"

const char help_fit[] =
    "usage: tally fit [batch|seq|layers|channels|model|devices] [--SETTING VALUE ...] [--device NAME] [--json]\n"
    "\n"
    "Finds the largest batch, sequence, depth or width with which a training run fits a device, the largest model\n"
    "of a family, or the smallest number of devices that hold the run. It prices sizes, as `tally plan` does, until\n"
    "one fits and the next does not. Without a word it searches the first four. The settings are those of\n"
    "`tally train`; the search starts at the given setting, or at the default that fits the model, as in `plan`.\n"
    "\n"
    "The bytes in blocks at the peak grow with every size, and the pool never reserves less. Sizes above the answer\n"
    "are therefore tried one by one until the blocks alone exceed the limit. The answer says whether this point was\n"
    "reached, and whether the bytes in blocks grew between all sizes that were priced.\n"
    "\n"
    "  --device NAME            cpu or this, or a chip of `tally devices`\n"
    "  --devices N              devices that share the work, with --tp, --pp, --shard, --link ... as in `tally plan`\n"
    "                           (an estimate); --batch is that of all of them, and of one for `fit devices`\n"
    "  --memory-limit N         instead of the device's memory: 80GB, 24GiB\n"
    "  --peak X                 FLOP/s of the recipe's products, instead of the device's\n"
    "  --unit N                 sizes are multiples of N [1; 128 for sequences from 1024; whole groups of heads]\n"
    "  --family TEXT            model: only names that begin with TEXT: gpt2, llama-3, qwen2.5\n"
    "  --days X, --money X      limits on the run's time and on its cost in dollars, by the data sheet: lower bounds\n"
    "  --price-per-hour X       dollars per device and hour; required by --money\n"
    "  --tokens D               tokens of the run: 300B [with a limit: --tokens-per-parameter]\n"
    "  --tokens-per-parameter X [20]\n"
    "  --hardware FILE, --config FILE, --json: as in `tally plan`\n"
    "\n"
    "examples:\n"
    "  tally fit batch --model gpt2-124m --recipe bf16 --seq 1024 --device 'RTX 4090'\n"
    "  tally fit --model llama-3.2-1b --recipe bf16 --seq 4096 --batch 1 --checkpoint full --device A100-80\n"
    "  tally fit model --family llama --recipe bf16 --seq 4096 --batch 8 --device H200 --devices 8 --shard zero3\n"
    "  tally fit model --family gpt2 --recipe bf16 --seq 1024 --batch 8 --device H100 --money 100 \\\n"
    "            --price-per-hour 2\n"
    "\n"
    "The exit code is 0 if something fits, and 6 if nothing does.\n";

/* ---- Words ---- */

static void point_print(const struct fit_point *p, const struct fit_question *q) {
    char a[32], b[32];
    bool has_tokens = q->options.tokens > 0 || q->tokens_per_parameter > 0;
    uint64_t limit = plan_target_limit(&q->target),
             bytes = p->verdict == PRICE_FITS_TIGHTLY && p->bytes > limit ? limit : p->bytes;
    printf("%s of %s", bytes_text((double)bytes, a), bytes_text((double)limit, b));
    if (p->verdict == PRICE_FITS_TIGHTLY) printf(" (the pool releases unused segments)");
    if (has_tokens && p->run.days > 0) printf(", at least %s", duration_text(p->run.days * DAY_S, a));
    if (has_tokens && p->run.money > 0) printf(", %s", dollars_text(p->run.money, a));
}

static void breaks_print(const struct fit_answer *a, const struct fit_question *q) {
    const struct fit_point *p = &a->next;
    char text[32];
    if (p->limit == FIT_REFUSED) printf("%s", p->why);
    else if (p->limit == FIT_DAYS) printf("it takes at least %.4g days, and the limit is %.4g", p->run.days, q->days);
    else if (p->limit == FIT_MONEY) {
        char limit[32];
        printf("it costs at least %s, and the limit is %s", dollars_text(p->run.money, text),
               dollars_text(q->money, limit));
    } else {
        char grows[GROWTH_TEXT];
        printf("it needs %s, %s", bytes_text((double)p->bytes, text), growth_text(a, grows));
    }
}

static void answer_print(const struct fit_question *q, const char *what, const struct fit_answer *a) {
    if (!a->best.size) {
        printf("%-9s nothing fits: at %" PRId64 " ", what, a->next.size);
        breaks_print(a, q);
        printf("\n");
        return;
    }
    printf("%-9s %" PRId64 " fits: ", what, a->best.size);
    point_print(&a->best, q);
    printf("\n");
    if (a->next.size) {
        printf("%-9s %" PRId64 " does not: ", "", a->next.size);
        breaks_print(a, q);
        printf("\n");
    } else printf("%-9s no limit up to there\n", "");
    printf("%-9s %d sizes priced; %s%s\n", "", a->n_priced,
           a->is_proven ? "no larger one fits" : "some larger ones were not tried",
           a->is_monotone ? "" : "; note: a larger size had fewer bytes in blocks");
}

/* ---- Sizes ---- */

static int fit_sizes(const struct plan_flags *f, int only) {
    json_t *answers = json_object();
    int code = 0, n_fit = 0;
    for (int axis = 0; !code && axis < FIT_N_AXES; axis++) {
        static struct fit_question q;
        struct fit_answer answer;
        if (only >= 0 && axis != only) continue;
        if (!fit_begin(&q, (enum fit_axis)axis, &f->settings, &f->target, &f->options)) code = cli_error();
        if (code) break;
        q.days = f->days;
        q.money = f->money;
        q.tokens_per_parameter = f->tokens_per_parameter;
        if (f->unit) q.unit = f->unit;
        if (!fit_search(&q, &answer)) code = cli_error();
        else if (f->is_json) json_object_set_new(answers, fit_axis_names[axis], plan_answer_json(&answer));
        else answer_print(&q, fit_axis_names[axis], &answer);
        n_fit += answer.best.size > 0;
    }
    if (!code && f->is_json)
        code = cli_json(json_pack("{s:s, s:s, s:s, s:O}", "schema", "tally.fit/1", "model", f->settings.model, "device",
                                  f->target.name, "answers", answers));
    json_decref(answers);
    return code ? code : n_fit ? 0 : EXIT_NO_FIT;
}

/* ---- Models ---- */

struct candidate {
    const char *name;
    int64_t n_parameters;
};

static int by_parameters(const void *a, const void *b) {
    int64_t x = ((const struct candidate *)a)->n_parameters, y = ((const struct candidate *)b)->n_parameters;
    return (x > y) - (x < y);
}

static int candidates_find(const char *family, struct candidate *list, int most) {
    int n = 0;
    for (int i = 0; tl_model_preset_name(i) && n < most; i++) {
        tl_model_config c;
        const char *name = tl_model_preset_name(i);
        if ((family && strncmp(name, family, strlen(family))) || !tl_model_preset(name, &c)) continue;
        if (c.family == TL_DEEP_LINEAR) continue;
        list[n++] = (struct candidate){name, tl_model_config_parameters(&c)};
    }
    qsort(list, (size_t)n, sizeof *list, by_parameters);
    return n;
}

/* Presets are few: all of them are priced, and the table is the answer. */
static int fit_model(const struct plan_flags *f) {
    struct candidate list[64];
    int n = candidates_find(f->family, list, 64), best = -1;
    json_t *models = json_array();
    char a[32];
    if (!n) {
        fprintf(stderr, "tally fit: no model's name begins with \"%s\" (`tally train --models` lists them)\n",
                f->family);
        json_decref(models);
        return EXIT_INPUT;
    }
    for (int i = 0; i < n; i++) {
        static struct fit_question q;
        struct fit_point point;
        struct settings s = f->settings;
        tl_model_config c;
        snprintf(s.model, sizeof s.model, "%s", list[i].name);
        plan_defaults(f, &s);
        if (tl_model_preset(list[i].name, &c) && s.seq > c.context && !s.context) s.context = s.seq;
        bool ok = fit_begin(&q, FIT_BATCH, &s, &f->target, &f->options);
        q.days = f->days;
        q.money = f->money;
        q.tokens_per_parameter = f->tokens_per_parameter;
        if (!ok || !fit_try(&q, s.batch, &point)) {
            json_decref(models);
            return cli_error();
        }
        if (point.limit == FIT_NOTHING) best = i;
        json_t *row = plan_point_json(&point);
        json_object_set_new(row, "model", json_string(list[i].name));
        json_array_append_new(models, row);
        if (f->is_json) continue;
        printf("%-16s %10s parameters  %s", list[i].name, count_text((double)point.n_parameters, a),
               point.limit == FIT_NOTHING ? "fits: " : "does not fit: ");
        if (point.limit == FIT_NOTHING) point_print(&point, &q);
        else breaks_print(&(struct fit_answer){.next = point}, &q);
        char text[256];
        const char *chosen = settings_chosen(&s, false, text, sizeof text);
        printf("%s%s\n", *chosen ? "; " : "", chosen);
    }
    if (f->is_json)
        cli_json(json_pack("{s:s, s:s, s:O, s:o}", "schema", "tally.fit/1", "device", f->target.name, "models", models,
                           "largest", best >= 0 ? json_string(list[best].name) : json_null()));
    else if (best >= 0) printf("the largest that fits: %s\n", list[best].name);
    else printf("nothing fits: the smallest, %s, does not\n", list[0].name);
    json_decref(models);
    return best >= 0 ? 0 : EXIT_NO_FIT;
}

/* ---- Devices ---- */

struct devices_search {
    const struct plan_flags *flags;
    struct price price; /* of one device with --batch sequences */
    enum shard_mode mode;
};

static bool devices_bytes(const struct devices_search *q, int64_t n, uint64_t *bytes) {
    struct layout_estimate e;
    const struct layout l = {.tp = 1, .cp = 1, .dp = n, .pp = 1, .chunks = 1, .shard = q->mode};
    const struct plan_flags *f = q->flags;
    bool ok = layout_estimate(&e, &q->price, &f->target, &f->options.network, &l, NULL);
    *bytes = ok ? e.total_bytes : UINT64_MAX;
    return ok;
}

/* The bytes of a device do not grow with their number: halving finds the fewest. `low` does not hold it. */
static bool devices_find(const struct devices_search *q, uint64_t limit, int64_t *fewest, uint64_t *bytes) {
    int64_t low = 0, high = 1;
    bool ok = devices_bytes(q, high, bytes);
    while (ok && high < 1 << 24 && *bytes > limit) {
        low = high, high *= 2;
        ok = devices_bytes(q, high, bytes);
    }
    *fewest = *bytes <= limit ? high : 0;
    while (ok && *fewest && high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        uint64_t at;
        ok = devices_bytes(q, middle, &at);
        if (at <= limit) *fewest = high = middle, *bytes = at;
        else low = middle;
    }
    return ok;
}

static int fit_devices(const struct plan_flags *f) {
    static struct devices_search q;
    uint64_t limit = plan_target_limit(&f->target), bytes = 0;
    int64_t fewest = 0;
    char a[32], b[32];
    if (!limit)
        return fprintf(stderr, "tally fit: the memory of %s is unknown (give --memory-limit)\n", f->target.name),
               EXIT_INPUT;
    const struct layout one = {.dp = 1};
    static struct settings rank;
    if (!layout_rank_settings(&one, &f->settings, &rank) || !price_make(&q.price, &rank, f->target.device, limit))
        return cli_error();
    q.flags = f;
    q.mode = f->settings.shard ? (enum shard_mode)f->settings.shard : SHARD_ZERO3;
    bool ok = devices_find(&q, limit, &fewest, &bytes);
    price_free(&q.price);
    if (!ok) return cli_error();
    if (f->is_json)
        cli_json(json_pack("{s:s, s:s, s:s, s:b, s:s, s:o, s:f}", "schema", "tally.fit/1", "model", f->settings.model,
                           "device", f->target.name, "is_estimate", 1, "shard", shard_names[q.mode], "devices",
                           fewest ? json_integer(fewest) : json_null(), "bytes", (double)bytes));
    else if (fewest)
        printf("devices   %" PRId64 " with shard %s: %s of %s on each (an estimate)\n", fewest, shard_names[q.mode],
               bytes_text((double)bytes, a), bytes_text((double)limit, b));
    else
        printf("devices   nothing fits: with shard %s, each needs at least %s of %s (an estimate)\n",
               shard_names[q.mode], bytes_text((double)bytes, a), bytes_text((double)limit, b));
    return fewest ? 0 : EXIT_NO_FIT;
}

/* ---- The command ---- */

static int usage_error(const char *text) {
    fprintf(stderr, "tally fit: %s (see `tally fit --help`)\n", text);
    return EXIT_USAGE;
}

static int fit_run(struct plan_flags *f) {
    if (f->money > 0 && !(f->options.price_per_hour > 0)) return usage_error("--money needs --price-per-hour");
    bool has_budget = f->days > 0 || f->money > 0;
    if (has_budget && f->options.tokens == 0 && f->tokens_per_parameter == 0) f->tokens_per_parameter = 20;
    if (has_budget && !(f->target.speed.bandwidth > 0)) {
        fprintf(stderr,
                "tally fit: the speed of %s is unknown, so --days and --money cannot be checked (`tally devices`)\n",
                f->target.name);
        return EXIT_INPUT;
    }
    bool is_model = f->what && !strcmp(f->what, "model");
    if (!f->is_json && !is_model) plan_defaults_print(&f->settings);
    if (!f->what) return fit_sizes(f, -1);
    for (int axis = 0; axis < FIT_N_AXES; axis++)
        if (!strcmp(f->what, fit_axis_names[axis])) return fit_sizes(f, axis);
    if (is_model) return fit_model(f);
    if (!strcmp(f->what, "devices")) return fit_devices(f);
    return usage_error("the first argument is one of batch, seq, layers, channels, model, devices");
}

#define FIT_FLAGS PLAN_DEVICE_FLAGS "--tokens --tokens-per-parameter --price-per-hour --days --money --hardware --json "
#define FIT_UNREAD PLAN_UNREAD PLAN_UNREAD_FLOPS "--steps --seed --seed-data "
static const struct option_form forms[] = {
    {"fit", FIT_FLAGS "--unit", FIT_UNREAD},
    {"fit model", FIT_FLAGS "--family", FIT_UNREAD "--model"},
    {"fit devices", "--hardware --json",
     FIT_UNREAD "--dp --tp --cp --pp --sp --pp-chunks --shard-group --schedule --overlap --peak"},
    {NULL, NULL, NULL},
};
static const struct option_rule rules[] = {
    OPTION_SETTING_RULES("fit"),
    OPTION_SETTING_RULES("fit model"),
    OPTION_SETTING_RULES("fit devices"),
    {"fit", "--sp --shard --shard-group --overlap", OPTION_WITHOUT, "--devices"},
    {"fit model", "--sp --shard --shard-group --overlap", OPTION_WITHOUT, "--devices"},
    {"fit", "--peak", OPTION_WITHOUT, "--money --days --tokens --tokens-per-parameter --json"},
    {"fit model", "--peak", OPTION_WITHOUT, "--money --days --tokens --tokens-per-parameter --json"},
    {"fit", "--schedule --chunks", OPTION_WITHOUT, "--pp"},
    {"fit", "--tokens", OPTION_BESIDE, "--tokens-per-parameter"},
    {"fit", "--price-per-hour", OPTION_WITHOUT, "--money --days --tokens --tokens-per-parameter --json"},
    {"fit", "--rings --fabric --node --link --network", OPTION_WITHOUT, "--devices"},
    {"fit model", "--schedule --chunks", OPTION_WITHOUT, "--pp"},
    {"fit model", "--tokens", OPTION_BESIDE, "--tokens-per-parameter"},
    {"fit model", "--price-per-hour", OPTION_WITHOUT, "--money --days --tokens --tokens-per-parameter --json"},
    {"fit model", "--rings --fabric --node --link --network", OPTION_WITHOUT, "--devices"},
    {NULL, NULL, OPTION_BESIDE, NULL},
};

static int flags_check(const struct plan_flags *f) {
    bool is_model = f->what && !strcmp(f->what, "model"), is_devices = f->what && !strcmp(f->what, "devices");
    return plan_flags_check(f, forms, &forms[is_model ? 1 : is_devices ? 2 : 0], rules);
}

int cmd_fit(int argc, char **argv) {
    static struct plan_flags f; /* a command runs once, and this is more than a stack should hold */
    f.settings = settings_default();
    const struct option table[] = {PLAN_DEVICE_OPTIONS(f),
                                   {"--tokens", OPTION_NUMBER, &f.options.tokens, 0, 1e30, true},
                                   {"--tokens-per-parameter", OPTION_NUMBER, &f.tokens_per_parameter, 0, 1e9, true},
                                   {"--price-per-hour", OPTION_NUMBER, &f.options.price_per_hour, 0, 1e9, true},
                                   {"--days", OPTION_NUMBER, &f.days, 0, 1e9, true},
                                   {"--money", OPTION_NUMBER, &f.money, 0, 1e18, true},
                                   {"--unit", OPTION_INTEGER, &f.unit, 1, 1e9, false},
                                   {"--family", OPTION_TEXT, &f.family, 0, 0, false},
                                   {"--hardware", OPTION_TEXT, &f.hardware, 0, 0, false},
                                   {"--json", OPTION_FLAG, &f.is_json, 0, 0, false},
                                   {NULL, OPTION_END, NULL, 0, 0, false}};
    int code = plan_flags_read(&f, "fit", table, argc, argv, 1);
    if (!code) code = flags_check(&f);
    if (!code) code = plan_target_read(&f);
    if (!code) code = fit_run(&f);
    plan_flags_free(&f);
    return code;
}

/* cmd_napkin.c: tally napkin FORM: closed forms, printed with the numbers in them. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/napkin_form.h"

const char help_napkin[] =
    "usage: tally napkin time|fit|flops|memory|activations|intensity [options] [--json]\n"
    "       tally napkin chinchilla|repeat|lifetime|mfu|loss|mutransfer|references [options] [--json]\n"
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
    "  repeat       data that repeats:         --unique U, and --flops C (best size and epochs) or --params N --tokens "
    "D\n"
    "  lifetime     best size of a model that  --inference-tokens T, and --params N [--tokens D] of a model as good, "
    "or\n"
    "               is used:                   --loss X; [--mfu X --inference-mfu X] weigh training and use. Both "
    "forms\n"
    "                                          take [--law NAME] of `chinchilla`, or [--runs FILE] of your own\n"
    "  mfu          by every convention:       --model MODEL --seq S (--tokens-per-second X | --batch B --seconds X)\n"
    "               (--device NAME | --peak X) --devices n; or a GPT of --layers --channels --vocabulary\n"
    "               of a published figure:     --flops-per-second X of one device (--device NAME | --peak X)\n"
    "  loss         fit E + A/N^a + B/D^b to   --runs FILE (lines of N,D,loss) or a folder of `tally train` runs, and\n"
    "               your runs, robustly:       predict --params N --tokens D and the best N for --flops C; [--alpha "
    "X]\n"
    "               [--beta X] fix an exponent, [--huber 0.001] is where residuals of log loss stop counting squared\n"
    "               [--approach 3] of Hoffmann et al.; 2: IsoFLOP curves; 1: the envelope of training curves\n"
    "  mutransfer   does the best learning     --runs FILE (lines of channels,lr,loss) or a folder of runs\n"
    "               rate depend on the width:  [--channels W]: the rate for this width\n"
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
    "  tally napkin loss --runs runs.csv --params 7e9 --tokens 140e9\n"
    "  tally napkin loss --runs runs --approach 2 --flops 1e18\n"
    "  tally napkin repeat --unique 25e9 --flops 9.3e21\n"
    "  tally napkin lifetime --params 13e9 --inference-tokens 2e12\n";

/* ---- An answer ---- */

void answer_formula(struct answer *a, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    json_object_set_new(a->json, "formula", json_string(text));
    fprintf(a->text, "%s\n", text);
}

json_t *answer_number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

void answer_value(struct answer *a, const char *key, double x, const char *format, ...) {
    va_list arguments;
    json_object_set_new(a->json, key, answer_number(x));
    fprintf(a->text, "  %-18s ", key);
    va_start(arguments, format);
    vfprintf(a->text, format, arguments);
    va_end(arguments);
    fprintf(a->text, "\n");
}

void answer_word(struct answer *a, const char *key, const char *text) {
    json_object_set_new(a->json, key, json_string(text));
}

/* ---- What is asked ---- */

int asked_lacks(const char *form, const char *what) {
    fprintf(stderr, "tally napkin %s: %s\n", form, what);
    return EXIT_USAGE;
}

int asked_bad(const char *form, const char *format, ...) {
    va_list arguments;
    fprintf(stderr, "tally napkin %s: ", form);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    return EXIT_INPUT;
}

int peak_find(const char *form, const struct asked *q, struct peak *m) {
    enum hardware_quantity kind = hardware_peak_named(q->dtype);
    char doubt[300];
    if (kind == HARDWARE_COUNT) return cli_error();
    *m = (struct peak){.peak = q->peak, .dtype = hardware_quantities[kind].name};
    if (!q->device) return 0;
    m->chip = hardware_find(q->device);
    if (!m->chip) return cli_error();
    if (q->peak > 0 && hardware_doubt(m->chip, kind, q->peak, doubt))
        return asked_bad(form, "--peak: %s (leave out --device to use it anyway)", doubt);
    if (!(q->peak > 0)) m->peak = hardware_value(m->chip, kind);
    if (!(m->peak > 0))
        return asked_bad(form, "no peak of %s is known for %s (give --peak, in FLOP/s)", m->dtype, m->chip->name);
    return 0;
}

void peak_say(struct answer *a, const struct peak *m) {
    if (m->chip) answer_word(a, "device", m->chip->name);
    if (!(m->peak > 0)) return;
    answer_word(a, "dtype", m->dtype);
    answer_value(a, "peak", m->peak, "%.5g FLOP/s of %s, dense%s%s", m->peak, m->dtype, m->chip ? ", " : "",
                 m->chip ? m->chip->name : "");
}

int model_find(const char *form, const struct asked *q, struct napkin_model *m, const char **name) {
    tl_model_config c;
    *name = q->model;
    if (!q->model) {
        if (!(q->layers > 0 && q->channels > 0 && q->vocabulary > 0))
            return asked_bad(form, "no model (give --model, or --layers, --channels and --vocabulary)");
        *m = napkin_gpt(q->layers, q->channels, q->vocabulary, q->seq);
        *name = "a GPT";
        return m->parameters <= LARGEST_MODEL ? 0 : asked_bad(form, "%.3g parameters are too many", m->parameters);
    }
    bool is_file = strchr(q->model, '/') || strstr(q->model, ".json");
    if (!(is_file ? tl_model_config_read(q->model, &c) : tl_model_preset(q->model, &c))) return cli_error();
    if (!tl_model_config_check(&c)) return cli_error();
    /* learned positions are as many as the sequence has, unless the file says how many */
    if (!is_file && c.family == TL_GPT2 && c.positions == TL_POSITIONS_OWN && q->seq > (double)c.context)
        return asked_bad(form, "%s has %" PRId64 " positions; --seq %g exceeds them", q->model, c.context, q->seq);
    *m = napkin_model_of(&c);
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
    {"repeat", form_repeat},
    {"lifetime", form_lifetime},
    {"mfu", form_mfu},
    {"loss", form_loss},
    {"mutransfer", form_mutransfer},
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
    {"napkin repeat", "--unique --params --tokens --flops --law --runs --json", NULL},
    {"napkin lifetime", "--inference-tokens --params --tokens --loss --mfu --inference-mfu --law --runs --json", NULL},
    {"napkin mfu",
     "--model --seq --layers --channels --vocabulary --flops-per-second --tokens-per-second --batch --seconds "
     "--devices "
     "--device --dtype --peak --hardware --json",
     NULL},
    {"napkin loss", "--runs --approach --params --tokens --flops --alpha --beta --huber --json", NULL},
    {"napkin mutransfer", "--runs --channels --json", NULL},
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
    {"napkin repeat", "--law", OPTION_BESIDE, "--runs"},
    {"napkin repeat", "--params --tokens", OPTION_BESIDE, "--flops"},
    {"napkin lifetime", "--law", OPTION_BESIDE, "--runs"},
    {"napkin lifetime", "--params --tokens", OPTION_BESIDE, "--loss"},
    {"napkin lifetime", "--tokens", OPTION_WITHOUT, "--params"},
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
        {"--law", OPTION_TEXT, &q->law, 0, 0, false},
        {"--approach", OPTION_INTEGER, &q->approach, 1, 3, false},
        {"--unique", OPTION_NUMBER, &q->unique, 1, LARGEST_DATA, false},
        {"--inference-tokens", OPTION_NUMBER, &q->inference_tokens, 1, LARGEST_DATA, false},
        {"--inference-mfu", OPTION_NUMBER, &q->inference_mfu, 1e-6, 1, false},
        {"--loss", OPTION_NUMBER, &q->loss, 1e-6, 1e3, false},
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
        code = asked_bad(form->name, "the answer is out of range (check the numbers for a missing or extra zero)");
    if (!code && q->is_json) code = cli_json(json_incref(a.json));
    else if (!code) fputs(text, stdout);
    free(text);
    json_decref(a.json);
    return code;
}

int cmd_napkin(int argc, char **argv) {
    struct asked q = {.devices = 1,
                      .dtype = "bf16",
                      .tokens_per_param = 20,
                      .tensor = 1,
                      .pipeline = 1,
                      .convention = "palm",
                      .approach = 3};
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

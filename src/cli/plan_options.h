/* plan_options.h: what `plan` and `fit` share: settings of a run, flags of their own, a device. */
#ifndef CLI_PLAN_OPTIONS_H
#define CLI_PLAN_OPTIONS_H

#include "cli/options.h"
#include "plan/fit.h"
#include "plan/infer.h"
#include "plan/plan.h"
#include "plan/serve.h"

struct plan_flags {
    struct settings settings;
    struct plan_options options;
    struct plan_target target;
    struct machine machine;         /* what was measured of this one */
    bool has_machine, has_hardware; /* read already */
    tl_tokenizer *made;             /* that settings.ready points at, or NULL */
    const char *schedule, *fabric, *hardware, *price_file, *svg_file;
    double link, between; /* GB/s */
    int64_t node;
    bool is_json, is_csv, is_markdown, is_full, is_short, is_inference, is_best, has_layouts, is_all;
    int64_t n_new;              /* with is_inference */
    struct serve_options serve; /* its latency in ms */
    /* fit */
    const char *what;
    double days, money, tokens_per_parameter;
    int64_t unit;
    const char *family;
    struct texts sweeps; /* --sweep NAME=a,b,c */
    struct options_given given;
};

/* Rows of an option table: how many devices there are, how they divide the work, and what joins them. */
#define PLAN_DEVICE_OPTIONS(f)                                                                                     \
    {"--devices", OPTION_INTEGER, &(f).options.n_devices, 1, 1e9, false},                                          \
        {"--schedule", OPTION_TEXT, &(f).schedule, 0, 0, false},                                                   \
        {"--chunks", OPTION_INTEGER, &(f).options.layout.chunks, 1, 4096, false},                                  \
        {"--rings", OPTION_FLAG, &(f).options.layout.has_rings, 0, 0, false},                                      \
        {"--fabric", OPTION_TEXT, &(f).fabric, 0, 0, false}, {"--node", OPTION_INTEGER, &(f).node, 1, 1e9, false}, \
        {"--link", OPTION_NUMBER, &(f).link, 0, 1e6, true}, {                                                      \
        "--network", OPTION_NUMBER, &(f).between, 0, 1e6, true                                                     \
    }

/* The same, for the forms that read them. */
#define PLAN_DEVICE_FLAGS "--devices --schedule --chunks --rings --fabric --node --link --network "

/* Settings of a run that change no figure of a plan: they are refused. The price that `plan --price` writes and the
 * commands of `plan --best` have them all, and so may a file of settings. */
#define PLAN_UNREAD                                                                                                  \
    "--out --stories --accept-changes --matmul-precision --fast --graphs --lr --warmup --min-lr --decay-share "      \
    "--beta1 --beta2 "                                                                                               \
    "--eps --weight-decay --groups --muon-momentum --muon-scale --clip --on-nonfinite --seed-init --seed-dropout "   \
    "--seed-sample --sampling --eval-every --eval-batches --sample-every --temperature --top-k --top-p --log-every " \
    "--save-every --save-best --early-stop --keep "
/* They change the FLOPs of a step and nothing else: forms that show no FLOPs refuse them too. */
#define PLAN_UNREAD_FLOPS "--label-smoothing --z-loss "
/* Whether a plan of one run reads a setting. */
bool plan_reads(const char *setting);

/* Reads the arguments of `command`: flags of `table` (which point into *f), --config FILE, and settings. 0,
 * or the exit code. */
int plan_flags_read(struct plan_flags *f, const char *command, const struct option *table, int argc, char **argv,
                    int n_words);
/* Finds the device, with the memory that was given in its place, and fits the defaults to model and device. 0, or the
 * exit code. */
int plan_target_read(struct plan_flags *f);
/* The device alone. False: recorded. */
bool plan_target_take(struct plan_flags *f);
/* What a form does not read, and what has no effect beside another flag, is refused. 0, or the exit code. */
int plan_flags_check(const struct plan_flags *f, const struct option_form *forms, const struct option_form *form,
                     const struct option_rule *rules);
/* The defaults that fit the model of these settings, on the device of the flags. */
void plan_defaults(const struct plan_flags *f, struct settings *s);
/* One line, if any were chosen. */
void plan_defaults_print(const struct settings *s);
void plan_flags_free(struct plan_flags *f);

/* plan_progress.c: while a plan searches, a terminal shows how far it is. */
void plan_progress_begin(struct plan_options *o);
/* The same for a search of plans; NULL: there is no terminal. */
void (*plan_progress_best(void))(int n_tried);
void plan_progress_end(void);

/* plan_best.c */
int best_run(const struct plan_flags *f);

/* plan_sheet.c: every figure of a plan, the answer first. The caller frees it in any case. False: recorded. */
struct sheet;
bool plan_sheet(struct sheet *sheet, const struct plan *plan);
/* "DGX H100, nodes of 8, 450 GB/s inside, 50 GB/s per device between them" */
enum { NETWORK_TEXT = 200 };
const char *network_text(const struct network *net, char text[NETWORK_TEXT]);

/* plan_layouts.c: the table of layouts. */
int layouts_run(const struct plan_flags *f);
/* plan_serve.c: the part of a plan of inference about serving. 0, or the exit code. */
int serve_find(const struct plan_flags *f, const struct infer_answer *a, struct serve_question *q,
               struct serve_answer *answer);
void serve_print(const struct serve_question *q, const struct serve_answer *answer);

/* The purpose and module that take the most memory in the first size that does not fit: "mostly activation in
 * model.*.mlp". */
enum { GROWTH_TEXT = 200 };
const char *growth_text(const struct fit_answer *answer, char buffer[GROWTH_TEXT]);

#endif

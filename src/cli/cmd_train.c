/* cmd_train.c: `tally train`: price, train, receipt, verdict. The settings are the table's (step/settings_list.h). */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/learning.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/profile_table.h"
#include "cli/train_progress.h"
#include "cli/watch_child.h"
#include "comm/comm.h"
#include "plan/expect.h"
#include "plan/plan_target.h"
#include "step/price.h"
#include "step/recipe.h"
#include "step/settings.h"
#include "step/tokens.h"
#include "tensor/device.h"
#include "train/run.h"

const char help_train[] =
    "usage: tally train [--config FILE.json] [--SETTING VALUE ...]\n"
    "\n"
    "Trains a language model on a text or token file. Tally first prices the run on meta, then trains it, and\n"
    "finally compares price and receipt. The run's folder holds config.json, price.json, receipt.json, log.jsonl,\n"
    "checkpoints/ and run.json, which lists the files of the run. Other files there are never touched; data and\n"
    "model must be in another place. After the last step, final/ has the weights and the tokenizer in the form that\n"
    "Hugging Face's library reads. `tensorboard --logdir` shows the folder.\n"
    "\n"
    "A text is tokenized when the run starts (--tokenizer; by default each byte is a token). Model, tokenizer and\n"
    "token files must agree. Held-out loss is shown per token and, for comparing tokenizers, per byte.\n"
    "\n"
    "Run the same command again to resume from the newest whole checkpoint; the result is bitwise identical. Tally\n"
    "stops if data, model or settings have changed since the start (--settings marks settings that may change).\n"
    "More --steps extend a run, also a finished one: the learning rate of a step depends on the step and on the\n"
    "number of steps alone, so the rest of the run follows the schedule of the new number.\n"
    "Ctrl-C, SIGTERM, SIGHUP, SIGUSR1 and SIGXCPU save a checkpoint after the current step. A second Ctrl-C stops\n"
    "at once: the last checkpoint stays, and the steps after it are done again when the run resumes.\n"
    "\n"
    "The defaults of --settings are for small models. Those of 50 million parameters and more get others that fit\n"
    "them and the device, named when the run begins: recipe, seq, batch, checkpointing, lr, beta1, min_lr.\n"
    "\n"
    "examples:\n"
    "  tally train                                        the nano model on built-in stories, about a minute\n"
    "  tally train --channels 128 --seq 1024 --context 1024 --batch 1 --recipe bf16 --steps 9000 --lr 2.5e-3 \\\n"
    "              --out runs/ten                         a wider model, longer windows: ten minutes\n"
    "  tally train --model small --steps 2000 --batch 16 --seq 256 --recipe bf16 --out runs/small\n"
    "  tally train --data corpus.txt --model tiny-gpt2 --dropout 0.1 --out runs/mine\n"
    "  tally train --data book.txt --tokenizer chars --model tiny-gpt2 --out runs/chars\n"
    "  tally train --data book.txt --tokenizer ~/gpt2 --out runs/words   tokenizer.json, or another known file\n"
    "  tally train --model gpt2-124m --data train.bin --price        what it would cost, without training\n"
    "  tally train --memory-limit 2GiB --batch 64         too large: says so first, and names a batch that fits\n"
    "  mpirun -n 4 tally train --batch 8 --shard zero1    on 4 processes, each with a quarter of the batch\n"
    "  tally train --price --dp 64 --batch 64 --shard zero3        what one of 64 processes would cost\n"
    "  tally train --peak 166e9                           the machine's FLOP/s: shows utilisation (MFU)\n"
    "  tally train --settings                             every setting, its default and its meaning\n"
    "  tally train --models                               the models that have a name\n"
    "\n"
    "  --config FILE   read settings from a JSON object; later flags override it\n"
    "  --price         only price the run: what it needs, on stdout; with --json the price file (tally.run/1)\n"
    "  --json          print the summary as JSON on stdout\n"
    "  --profile[=N]   time every op of N steps (10), starting with the third; print tables by op and by module\n"
    "  --trace FILE    write what happens when, for ui.perfetto.dev or chrome://tracing: ops, modules, waiting, "
    "memory\n"
    "  --trace-steps A:B   in these steps (default: the third to the fifth of this process)\n"
    "  --watch[=PORT]  serve the page of `tally watch` while the run trains, and print its address. At a terminal\n"
    "                  the page stays after the last step until Ctrl-C; otherwise it ends with the run\n"
    "  --quiet         no progress\n";

struct options {
    struct settings settings;
    bool only_price, is_json, is_quiet;
    bool has_page;
    int64_t profile_steps, trace_from, trace_to, page_port;
    const char *trace, *trace_steps;
};

/* ---- What was asked for ---- */

static void settings_print(void) {
    const struct setting_row *row;
    for (int i = 0; (row = settings_row(i)); i++) {
        char left[96];
        if (row->group) printf("%s%s\n", i ? "\n" : "", row->group);
        snprintf(left, sizeof left, "--%s %s", row->name, *row->kind && strlen(row->kind) < 40 ? row->kind : "");
        printf("%s %-44s %s", row->may_change ? "*" : " ", left, row->help);
        if (*row->value) printf(" [%s]", row->value);
        if (strlen(row->kind) >= 40) printf("\n  %-44s %s", "", row->kind);
        printf("\n");
    }
    printf("\n* may change when a run resumes. Other settings, the data and the model must stay the same;\n"
           "  --accept-changes resumes anyway.\n");
}

static void models_print(void) {
    for (int i = 0; tl_model_preset_name(i); i++) {
        tl_model_config c;
        char n[32], active[32];
        if (!tl_model_preset(tl_model_preset_name(i), &c)) return;
        printf("%-16s %-12s %3" PRId64 " layers, %6" PRId64 " channels, %10s parameters", tl_model_preset_name(i),
               tl_family_name(c.family), c.n_layers, c.channels, count_text((double)tl_model_config_parameters(&c), n));
        if (c.n_experts) printf(", %s active", count_text((double)tl_model_config_active_parameters(&c), active));
        printf("\n");
    }
}

/* "--name", or "--name=N" with N from 1 to `most`. False: it is another flag. *code: 0, or the exit code. */
static bool counted_flag(const char *flag, const char *name, int64_t most, const char *what, int64_t *n, int *code) {
    size_t length = strlen(name);
    char *end = NULL;
    if (strncmp(flag, name, length) || (flag[length] && flag[length] != '=')) return false;
    if (!flag[length]) return true;
    errno = 0;
    *n = strtoll(flag + length + 1, &end, 10);
    if (!flag[length + 1] || *end || errno || *n < 1 || *n > most)
        *code = (fprintf(stderr, "tally train: %s: not %s\n", flag, what), EXIT_INPUT);
    return true;
}

static bool own_flag(struct options *o, const char *flag, int *code) {
    int64_t steps = 10, port = 0;
    if (counted_flag(flag, "--profile", INT64_MAX, "a number of steps of at least 1", &steps, code))
        return o->profile_steps = steps, true;
    if (!counted_flag(flag, "--watch", 65535, "a port from 1 to 65535", &port, code)) return false;
    o->has_page = true;
    o->page_port = port;
    return true;
}

/* --trace-steps A:B, or one step */
static int trace_steps_read(struct options *o) {
    const char *text = o->trace_steps;
    char *end = NULL;
    if (!text) return 0;
    errno = 0;
    o->trace_from = o->trace_to = strtoll(text, &end, 10);
    bool ok = end > text;
    if (ok && *end == ':') {
        text = end + 1;
        o->trace_to = strtoll(text, &end, 10);
        ok = end > text;
    }
    if (!ok || *end || errno || o->trace_from < 1 || o->trace_to < o->trace_from)
        return fprintf(stderr, "tally train: --trace-steps %s: not steps such as 10:12\n", o->trace_steps), EXIT_INPUT;
    return 0;
}

static int flags_read(struct options *o, int argc, char **argv) {
    const struct option own[] = {{"--price", OPTION_FLAG, &o->only_price, 0, 0, false},
                                 {"--json", OPTION_FLAG, &o->is_json, 0, 0, false},
                                 {"--quiet", OPTION_FLAG, &o->is_quiet, 0, 0, false},
                                 {"--trace", OPTION_TEXT, &o->trace, 0, 0, false},
                                 {"--trace-steps", OPTION_TEXT, &o->trace_steps, 0, 0, false},
                                 {"--profile", OPTION_FLAG, NULL, 0, 0, false},
                                 {"--watch", OPTION_FLAG, NULL, 0, 0, false},
                                 {0}};
    static const struct option_form form[] = {{"train", NULL, NULL}, {NULL, NULL, NULL}};
    static const struct option_rule rules[] = {
        {"train", "--quiet --trace --trace-steps --profile --watch", OPTION_BESIDE, "--price"},
        {"train", "--trace-steps", OPTION_WITHOUT, "--trace"},
        {NULL, NULL, OPTION_BESIDE, NULL}};
    struct options_given given = {.n = 0};
    int code = 0;
    for (int i = 1, taken; !code && i < argc; i += taken) {
        taken = 1;
        given_add(&given, argv[i]);
        if (!own_flag(o, argv[i], &code) && !option_take("train", own, argv + i, argc - i, &taken, &code))
            code = settings_flag(&o->settings, "train", own, argv + i, argc - i, &taken);
    }
    if (!code) code = options_check(form, form, rules, &given);
    if (!code) code = trace_steps_read(o);
    if (!code && o->has_page && !watch_is_possible("train")) code = EXIT_IO;
    return code;
}

/* ---- While it trains ---- */

/* A checkpoint that is damaged, or was made elsewhere; a file of the run that was damaged; threads that were
 * refused. What else the library logs is about its pool. */
static void log_tell(const char *line, void *context) {
    bool is_run = !strncmp(line, "run: ", 5);
    if (!is_run && strncmp(line, "checkpoint ", 11) && strncmp(line, "threads: ", 9)) return;
    train_progress_end(context);
    fprintf(stderr, "tally train: %s\n", is_run ? line + 5 : line);
}

static void log_drop(const char *line, void *context) { (void)line, (void)context; } /* rank 0 tells */

/* ---- The end ---- */

/* One line, which programs that read line by line can take; uses the JSON up. */
static bool json_line(json_t *json) {
    char *text = json ? json_print(json, JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9)) : NULL;
    if (text) puts(text);
    free(text);
    json_decref(json);
    return text != NULL;
}

static void times_print(const struct run_times *t) {
    const struct {
        const char *name;
        double seconds;
    } parts[] = {{"start", t->start_s},
                 {"first two steps", t->first_steps_s},
                 {t->first_steps_s > 0 ? "other steps" : "steps", t->steps_s},
                 {"evaluation", t->evaluation_s},
                 {"samples", t->sampling_s},
                 {"saving", t->saving_s}};
    printf("  time         ");
    for (size_t i = 0, n = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].seconds > 0) printf("%s%s %.2f s", n++ ? ", " : "", parts[i].name, parts[i].seconds);
    printf("\n");
}

/* What is not as it would be on another device. */
static void device_print(const struct settings *s) {
    const tl_device *device = tl_device_find(s->device);
    if (!device) return;
    const struct target *t = device->target;
    const char *emulated = recipe_emulated(recipe_find(settings_choice(s, "recipe")), t);
    if (emulated)
        printf("  emulated     %s products: operands are rounded to %s and multiplied in bf16\n", emulated, emulated);
    if (t->origin != TARGET_MEASURED)
        printf("  target       %s: rules by compute capability %d.%d, which were never compared with such a card\n",
               t->name, t->capability / 10, t->capability % 10);
    if (s->fast && !device_is_host(device)) /* the cpu has no such kernels */
        printf("  fast         some kernels are not deterministic\n");
}

static void graphs_print(const struct run_summary *m) {
    if (isnan(m->graph_share)) return;
    printf("  graphs       %.1f %% of the kernel calls were queued as CUDA graphs%s%s\n", 100 * m->graph_share,
           *m->graphs_why ? "; of others: " : "", m->graphs_why);
}

/* Nothing was left to do. */
static void finished_print(const struct options *o, const struct run_summary *m) {
    printf("%s: this run is finished: all of its %" PRId64 " steps were done before\n", o->settings.out, m->steps);
    printf("  to train on, give more steps: --steps %" PRId64 ", for example; to train again, another --out\n",
           2 * m->steps);
}

/* Of the steps that count for speed. */
static void ranks_print(const struct run_summary *m) {
    char a[32];
    const struct run_rank *mean = &m->mean_rank;
    double steps_s = mean->steps_s > 0 ? mean->steps_s : INFINITY;
    printf("  ranks        %d; rank %d has the most to compute, %.1f %% above the mean; each sends %s in a step\n",
           m->n_ranks, m->slowest_rank, 100 * m->imbalance, bytes_text(m->sent_bytes, a));
    printf("  messages     under way for %.1f %% of the steps' time; steps wait for them for %.1f %%\n",
           100 * mean->comm_s / steps_s, 100 * mean->exposed_s / steps_s);
}

static void summary_print(const struct options *o, const struct run_summary *m, const struct train_progress *progress) {
    char a[32], b[32], bits[48], sets[512];
    printf("%s: %" PRId64 " steps, %" PRId64 " tokens in %.1f s\n", o->settings.out, m->steps, m->tokens, m->seconds);
    printf("  speed        %.0f tokens/s, %sFLOP/s", m->tokens_per_s, count_text(m->flops_per_s, a));
    if (m->was_done) printf("\n");
    else {
        printf(", %.1f %% of the steps' time waiting for data\n", 100 * m->wait_share);
        times_print(&m->times);
    }
    if (m->n_ranks > 1 && !m->was_done) ranks_print(m);
    if (isfinite(m->mfu))
        printf("  utilisation  MFU %.2f %% (PaLM's rule: 6N + 12LTd per token), hardware FLOPs %.2f %%, of %sFLOP/s\n",
               100 * m->mfu, 100 * m->hfu, count_text(o->settings.peak, a));
    if (isfinite(train_drift(progress)))
        printf("  step         %.4g ms, %.4g predicted from the machine's profile: %+.1f %%\n",
               1e3 * train_step_mean(progress), 1e3 * progress->predicted_s, 100 * train_drift(progress));
    printf("  model        %" PRId64 " parameters", m->n_parameters);
    if (o->settings.lora) printf(", frozen, and %" PRId64 " of adapters", m->n_trained);
    else if (m->n_trained != m->n_parameters) printf(", of which %" PRId64 " were trained", m->n_trained);
    printf("; %sFLOP in total\n", count_text(m->flops, b));
    if (m->causal_pairs)
        printf("  documents    attention used %s of the %s causal pairs that are billed (%.1f %%), in each layer and "
               "head\n",
               grouped_text((uint64_t)m->pairs, a), grouped_text((uint64_t)m->causal_pairs, b),
               100 * (double)m->pairs / (double)m->causal_pairs);
    printf("  peak         %s", bytes_text((double)m->peak_bytes, a));
    for (int p = 0, n = 0; p < TL_PURPOSE_COUNT; p++)
        if (m->peak_by_purpose[p])
            printf("%s%s %s", n++ ? ", " : ": ", tl_purpose_name((tl_purpose)p),
                   bytes_text((double)m->peak_by_purpose[p], b));
    printf("\n  loss         %.4f at the last step", m->loss);
    if (isfinite(m->held_out)) printf(", %.4f held out%s", m->held_out, bits_text(m->bits_per_byte, bits, sizeof bits));
    printf("%s", sets_text(&m->sets, sets, sizeof sets));
    if (isfinite(m->held_out) && isfinite(m->floor))
        printf("; no model can do better than %.4f: %.1f %% above", m->floor, 100 * (m->held_out / m->floor - 1));
    printf("\n");
    if (isfinite(m->accuracy)) {
        printf("  rewards      margin %.4f, accuracy %.1f %% at the last step", m->margin, 100 * m->accuracy);
        if (isfinite(m->held_out_accuracy)) printf("; accuracy %.1f %% held out", 100 * m->held_out_accuracy);
        printf("\n");
    }
    if (m->early_of)
        printf("  early stop   after %" PRId64 " of %" PRId64
               " steps; the lowest held-out loss is %.4f, of step %" PRId64 " (its checkpoint is kept: --best)\n",
               m->steps, m->early_of, m->best, m->best_step);
    if (isfinite(m->noise_scale))
        printf("  noise scale  %s tokens, the critical batch size; a step has %" PRId64 "\n",
               grouped_text((uint64_t)m->noise_scale, a),
               o->settings.accum * o->settings.batch * settings_window(&o->settings));
    if (m->n_skipped) printf("  skipped      %" PRId64 " steps whose loss or gradient was not finite\n", m->n_skipped);
    device_print(&o->settings);
    graphs_print(m);
    if (m->load > 0)
        printf("  experts      those of rank %d were given the most rows, %.3g of an even share; %.3g at the most in a "
               "layer; "
               "priced for %.3g\n",
               m->loaded_rank, m->load, m->load_most, o->settings.ep_load);
    if (m->differences == 0 && !*m->problem)
        printf("  tally        0 differences: price and receipt tally%s\n",
               m->load > 0 ? ", but for the load of experts" : "");
    else if (m->differences >= 0)
        printf("  tally        %d differences: `tally diff %s/price.json %s/receipt.json` shows them%s%s\n",
               m->differences, o->settings.out, o->settings.out, *m->problem ? "; " : "", m->problem);
    profile_print(&m->profile, o->settings.device);
}

static json_t *summary_json(const struct options *o, enum run_end end, const struct run_summary *m,
                            const struct train_progress *p) {
    json_t *json = run_summary_json(&o->settings, end, m);
    if (json && isfinite(train_drift(p))) {
        json_object_set_new(json, "step_s", json_real(train_step_mean(p)));
        json_object_set_new(json, "predicted_step_s", json_real(p->predicted_s));
    }
    return json;
}

static int finish(const struct options *o, enum run_end end, const struct run_summary *m,
                  const struct train_progress *p) {
    bool is_quiet = m->rank > 0 && m->is_told;
    if (end == RUN_FAILED) return is_quiet ? cli_error_code() : cli_error();
    if (!is_quiet && o->is_json && !json_line(summary_json(o, end, m, p))) return cli_error();
    if (end == RUN_STOPPED && is_quiet) return EXIT_AGAIN;
    if (end == RUN_NOT_FINITE && is_quiet) return EXIT_NUMERIC;
    if (end == RUN_STOPPED) {
        if (m->steps == 0)
            fprintf(stderr, "tally train: stopped before the first step; run the same command to go on\n");
        else fprintf(stderr, "tally train: saved after %" PRId64 " steps; run the same command to resume\n", m->steps);
        return EXIT_AGAIN;
    }
    if (end == RUN_NOT_FINITE) {
        fprintf(stderr, "tally train: %s (--on-nonfinite skip or rollback would continue)\n", m->problem);
        return EXIT_NUMERIC;
    }
    if (!is_quiet && !o->is_json && m->was_done) finished_print(o, m);
    if (!is_quiet && !o->is_json) summary_print(o, m, p);
    return m->differences == 0 && !*m->problem ? 0 : EXIT_INPUT;
}

/* What the device has; 0: not known. */
static uint64_t memory_of(const struct settings *s) {
    struct plan_target target;
    if (*s->memory_limit) return settings_memory_limit(s);
    bool is_known = hardware_load_default() && plan_target_find(&target, s->device);
    tl_error_clear();
    return is_known ? plan_target_limit(&target) : 0;
}

static bool price_words(const struct settings *s, const char *text) {
    tl_model_config config;
    struct opening opening;
    struct source source;
    char weights[SETTING_TEXT];
    if (!trainer_model(s, &config, weights) || !source_open(&source, s, config.vocabulary, true)) return false;
    json_t *price = json_parse(text, NULL);
    bool ok = price && opening_make(&opening, s, &config, &source, price);
    json_decref(price);
    source_close(&source);
    if (!ok) return false;
    opening.memory_bytes = memory_of(s);
    opening_print(stdout, &opening, expect_of(s).step_s);
    printf("\n`tally plan` says more; `tally train --price --json` prints the price file (tally.run/1)\n");
    return true;
}

static int price_print(struct settings *s, bool is_json) {
    tl_tokenizer *made;
    int code = learning_ready("train", s, &made);
    if (code) return code;
    run_defaults(s);
    char *price = price_text(s);
    bool ok = price && (is_json || price_words(s, price));
    if (ok && is_json) puts(price);
    tl_tokenizer_free(made);
    free(price);
    return ok ? 0 : cli_error();
}

/* Said by the signal's handler, which cannot print. */
static const char *stopping_text(const struct train_progress *p) {
    static const char plain[] = "tally train: stopping after this step (Ctrl-C again stops at once; the last "
                                "checkpoint stays)\n",
                      terminal[] = "\r\033[Ktally train: stopping after this step (Ctrl-C again: at once)\n";
    return p->is_quiet ? NULL : p->is_terminal ? terminal : plain;
}

/* ---- Several processes ---- */

/* What a process has come to before the run. */
struct start {
    int code;
    bool is_over; /* there is no run: a wrong flag, or only a price */
    struct output_held said;
};

/* Processes that were launched together read the same flags, and so say the same: the first of them prints it. If one
 * of them cannot begin, none does. */
static void ranks_begin(struct start *mine) {
    char error[COMM_ERROR] = "";
    tl_comm *world = tl_comm_world();
    struct start *all = world ? memory_new((size_t)tl_comm_size(world) * sizeof *all) : NULL;
    mine->said = output_held();
    bool ok = all && comm_gather(world, mine, all, sizeof *mine, error), is_first = true;
    for (int k = 0; ok && k < tl_comm_size(world); k++) {
        if (k < tl_comm_rank(world) && !memcmp(&all[k], mine, sizeof *mine)) is_first = false;
        if (!all[k].is_over) continue;
        if (!mine->is_over) mine->code = all[k].code;
        mine->is_over = true;
    }
    memory_free(all);
    output_release(is_first);
    if (!ok && !mine->is_over) {
        if (*error) fprintf(stderr, "tally train: %s\n", error);
        mine->code = *error ? EXIT_IO : cli_error();
        mine->is_over = true;
    }
    if (ok && mine->is_over) comm_end_together();
}

/* The run has not begun, so a signal that asks it to save leaves nothing behind. What several processes say is held
 * back until they agree: they do not show how far they are. */
static int tokenizer_ready(struct options *o, tl_tokenizer **made) {
    const bool is_quiet = o->is_quiet || comm_is_launched();
    struct progress line = progress_plain("tokenizer: words", "B");
    const struct tokens_listener listener = {is_quiet ? learning_hear : learning_tell, &line};
    if (tokens_are_made(&o->settings)) interrupt_catch_run(NULL);
    bool ok = run_tokenizer_ready(&o->settings, made, &listener);
    progress_wipe(&line);
    if (!is_interrupted) return ok ? 0 : cli_error();
    tl_error_clear();
    struct run_summary nothing = run_summary_empty();
    return finish(o, RUN_STOPPED, &nothing, &(struct train_progress){0});
}

/* Everything before the run; it needs no other process. */
static void prepare(struct options *o, struct start *s, tl_tokenizer **made, int argc, char **argv) {
    bool is_list = argc == 2 && (!strcmp(argv[1], "--settings") || !strcmp(argv[1], "--models"));
    if (is_list) argv[1][2] == 's' ? settings_print() : models_print();
    else s->code = flags_read(o, argc, argv);
    s->is_over = is_list || s->code || o->only_price;
    if (!s->is_over) {
        s->is_over = (s->code = tokenizer_ready(o, made)) != 0;
        if (!s->is_over) run_defaults(&o->settings);
    } else if (o->only_price && !s->code) s->code = price_print(&o->settings, o->is_json);
}

/* What people started with --watch they may still be looking at. Other ranks do not wait for that. */
static void page_end(struct train_progress *p, const struct options *o, enum run_end end, int n_ranks) {
    bool stays = (end == RUN_DONE || end == RUN_NOT_FINITE) && n_ranks == 1 && !is_interrupted && p->is_terminal &&
                 isatty(STDIN_FILENO);
    if (stays) train_progress_page(p, o->settings.out); /* also of a run that was finished before */
    if (stays && p->has_page) {
        fprintf(stderr, "The page stays until Ctrl-C:\n%s\n", p->page.address);
        interrupt_catch_run(NULL);
        while (!is_interrupted) sleep(1);
        fprintf(stderr, "\n"); /* behind the terminal's ^C */
    }
    watch_child_end(&p->page);
}

static int train(struct options *o) {
    struct train_progress p = {.is_quiet = o->is_quiet,
                               .is_terminal = isatty(STDERR_FILENO),
                               .every = (o->settings.steps + 19) / 20,
                               .has_page = o->has_page,
                               .page_port = o->page_port,
                               .page.hold = -1};
    struct run_listener listener = {train_progress_tell,    &p,
                                    &is_interrupted,        o->profile_steps,
                                    train_progress_open,    .lists_memory = true,
                                    .trace = o->trace,      .trace_from = o->trace_from,
                                    .trace_to = o->trace_to};
    struct run_summary summary;
    tl_comm *world = tl_comm_world();
    if (!world) return cli_error();
    p.is_quiet = o->is_quiet || tl_comm_rank(world) > 0;
    tl_set_log_hook(tl_comm_rank(world) > 0 ? log_drop : log_tell, &p);
    if (tl_comm_size(world) == 1) { /* the profile is of a machine that one process has for itself */
        struct expectation expected = expect_of(&o->settings);
        if (o->settings.peak == 0) o->settings.peak = expected.peak;
        p.predicted_s = expected.step_s;
    }
    interrupt_catch_run(stopping_text(&p));
    enum run_end end = run_train(&o->settings, &listener, &summary);
    tl_set_log_hook(NULL, NULL);
    train_progress_end(&p);
    profile_floors_find(&summary.profile, o->settings.device);
    int code = finish(o, end, &summary, &p);
    fflush(stdout);
    page_end(&p, o, end, tl_comm_size(world));
    if (summary.is_told) comm_end_together();
    free(summary.text);
    profile_free(&summary.profile);
    return code;
}

/* In a stack frame of its own: settings are 9 KiB. */
__attribute__((noinline)) static int start_and_train(struct options *o, int argc, char **argv) {
    struct start start;
    memset(&start, 0, sizeof start); /* it is compared with others', byte by byte */
    tl_tokenizer *made = NULL;       /* here, since the expectation needs it too */
    bool is_launched = comm_is_launched();
    if (is_launched) output_hold();
    prepare(o, &start, &made, argc, argv);
    if (is_launched) ranks_begin(&start);
    int code = start.is_over ? start.code : train(o);
    tl_tokenizer_free(made);
    return code;
}

int cmd_train(int argc, char **argv) {
    struct options o = {.settings = settings_default()};
    return start_and_train(&o, argc, argv);
}

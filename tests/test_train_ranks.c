/* test_train_ranks.c: runs of several processes. Alone, this program starts itself under mpirun with 2, 3 and 4
 * processes, each of which trains some runs with the others; then it compares what they have left. */
#include "support/check.h"
#include "support/ranks.h"
#include "support/runs.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "step/mesh.h"
#include "step/price.h"
#include "step/source.h"
#include "step/trainer.h"
#include "tensor/tensor.h"
#include "train/opening.h"

/* A check of one rank, which is no test of its own. */
#define NEED(fact)                                                                                    \
    do {                                                                                              \
        if (fact) break;                                                                              \
        fprintf(stderr, "rank %d, line %d: %s: %s\n", tl_comm_rank(tl_comm_world()), __LINE__, #fact, \
                tl_error_message());                                                                  \
        exit(1);                                                                                      \
    } while (0)

/* ---- Runs ---- */

/* Between the losses of a run and those of one process, over its steps: sums are rounded in another order. */
#define LOSS_BOUND 2e-5
#define MUON_BOUND 5e-5 /* its products are bf16 where the device has them */

static struct settings run_of(const char *family, const char *out) {
    struct settings s = small_run(!strcmp(family, "gpt2")  ? TL_GPT2
                                  : !strcmp(family, "moe") ? TL_MIXTRAL
                                                           : TL_LLAMA,
                                  3000);
    set_path(&s, "out", out);
    set(&s, "batch", "12");
    set(&s, "steps", "10");
    set(&s, "eval_every", "4");
    set(&s, "lr", "1e-3");
    return s;
}

/* "recipe bf16 accum 2" */
static void set_all(struct settings *s, const char *words) {
    char copy[200], *rest = copy, *name, *value;
    snprintf(copy, sizeof copy, "%s", words);
    while ((name = strtok_r(rest, " ", &rest)) && (value = strtok_r(rest, " ", &rest))) set(s, name, value);
}

/* Trains to the end, or to a stop that the first rank alone is asked for; price and receipt tally on every rank. The
 * FLOPs of all ranks. */
static double train_here(const struct settings *s, int64_t stop_after) {
    struct run_summary summary;
    int rank = tl_comm_rank(tl_comm_world());
    enum run_end end = run_until(s, rank == 0 ? stop_after : 0, &summary);
    if (*summary.problem) fprintf(stderr, "rank %d: %s\n", rank, summary.problem);
    NEED(end == (stop_after ? RUN_STOPPED : RUN_DONE));
    NEED(summary.differences == (stop_after ? -1 : 0));
    if (stop_after) NEED(summary.steps > stop_after && summary.steps <= stop_after + 2); /* some steps are ahead */
    return summary.flops;
}

/* Settings of every kind of run; modes of one kind end with the same weights. */
static const struct kind_of_run {
    const char *name, *family, *words;
    const char *modes; /* those with the same bits; "-off": without overlap */
    double bound;      /* of the losses against one process; 0: not compared */
} kinds[] = {
    {"plain", "gpt2", "dropout 0.1 clip 0.5", "none zero1-off zero2 zero3-off", LOSS_BOUND},
    {"llama", "llama", "optimizer rmsprop momentum 0.9 document_mask true document_token 32",
     "none-off zero1 zero2-off zero3", LOSS_BOUND},
    {"accum", "llama", "accum 2 checkpointing full batch 12 dropout 0.1", "none zero1-off", LOSS_BOUND},
    {"accum2", "gpt2", "accum 3 optimizer sgd momentum 0.9 recipe bf16 checkpointing every-k", "zero2-off zero3", 1e-3},
    {"bf16", "gpt2", "recipe bf16", "none-off zero1-off zero2 zero3", 1e-3},
    {"lean", "llama", "recipe bf16-lean dropout 0.2", "none zero1 zero2-off zero3-off", 1e-3},
    {"fp16", "llama", "recipe fp16 accum 2", "none-off zero1", 1e-3},
    {"muon", "gpt2", "optimizer muon clip 0.5 ema 0.9", "none zero1-off zero2 zero3-off", MUON_BOUND},
    {"muon-lean", "moe", "optimizer muon muon_scale shape recipe bf16-lean ff 40", "none-off zero1 zero2-off zero3",
     1e-3},
    {"muon-accum", "llama", "optimizer muon accum 2 recipe bf16", "none zero1", 1e-3},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static void name_of(char name[64], const struct kind_of_run *k, const char *mode, int n) {
    snprintf(name, 64, "%s-%s-%d", k->name, mode, n);
}

static void kinds_train(void) {
    for (int i = 0; i < N_KINDS; i++) {
        char modes[64], *rest = modes, *mode, name[64];
        snprintf(modes, sizeof modes, "%s", base_ranks() == 1 ? "none" : kinds[i].modes);
        while ((mode = strtok_r(rest, " ", &rest))) {
            name_of(name, &kinds[i], mode, base_ranks());
            struct settings s = run_of(kinds[i].family, name);
            set_all(&s, kinds[i].words);
            char *off = strstr(mode, "-off");
            if (off) *off = 0, set(&s, "overlap", "false");
            set(&s, "shard", mode);
            train_here(&s, 0);
        }
    }
}

/* ---- A rank that is not like the others ---- */

/* A number of one rank that is not finite: no rank changes a weight, and all know it. */
static void nan_stops_all(void) {
    struct settings s = run_of("llama", "nan");
    tl_model_config config;
    char weights[SETTING_TEXT];
    struct mesh mesh;
    struct source source = {0};
    double loss, norm;
    NEED(mesh_open(&mesh, &s) && trainer_model(&s, &config, weights) &&
         source_open(&source, &s, config.vocabulary, false));
    for (int mode = SHARDING_NONE; mode <= SHARDING_ZERO3; mode++) {
        s.shard = mode;
        struct trainer *t = trainer_new(&s, &source, check_cpu(), &mesh);
        NEED(t);
        tl_tensor *weight = t->buckets.at[1].own;
        size_t bytes = tl_bytes(weight);
        bool grad = tl_set_grad_mode(false);
        if (mesh.rank == mesh.size - 1) NEED(tl_fill_(t->buckets.at[0].own, NAN));
        tl_set_grad_mode(grad);
        void *before = malloc(bytes);
        memcpy(before, tl_data(weight), bytes);
        NEED(trainer_step(t, 0) && trainer_read(t, 0, &loss, &norm));
        NEED(!isfinite(norm));
        NEED(!memcmp(before, tl_data(weight), bytes));
        free(before);
        trainer_free(t);
    }
    source_close(&source);
    mesh_close(&mesh);
}

/* The same where ranks are stages: one of the last stage's weights. */
static void nan_stops_all_stages(void) {
    struct settings s = run_of("gpt2", "nan");
    tl_model_config config;
    char weights[SETTING_TEXT], number[16];
    struct mesh mesh;
    struct source source = {0};
    double loss, norm;
    snprintf(number, sizeof number, "%d", base_ranks());
    set(&s, "pp", number);
    set_all(&s, "layers 4 accum 2");
    NEED(mesh_open(&mesh, &s) && trainer_model(&s, &config, weights) &&
         source_open(&source, &s, config.vocabulary, false));
    struct trainer *t = trainer_new(&s, &source, check_cpu(), &mesh);
    NEED(t);
    tl_tensor *weight = t->parameters[t->n_parameters - 1], *spoilt = t->parameters[t->n_parameters - 2];
    size_t bytes = tl_bytes(weight);
    bool grad = tl_set_grad_mode(false);
    if (mesh.rank == mesh.size - 1) NEED(tl_fill_(spoilt, NAN));
    tl_set_grad_mode(grad);
    void *before = malloc(bytes);
    memcpy(before, tl_data(weight), bytes);
    NEED(trainer_step(t, 0) && trainer_read(t, 0, &loss, &norm));
    NEED(!isfinite(loss) && !isfinite(norm));
    NEED(!memcmp(before, tl_data(weight), bytes));
    free(before);
    trainer_free(t);
    source_close(&source);
    mesh_close(&mesh);
}

static void fails_everywhere(const struct settings *s, const char *need) {
    struct run_summary summary;
    enum run_end end = run_until(s, 0, &summary);
    NEED(end == RUN_FAILED);
    NEED(summary.is_told);
    NEED(strstr(tl_error_message(), need));
    tl_error_clear();
}

/* The last rank alone is asked to stop, before the first step ends. */
static void one_stops_all(void) {
    char name[32];
    snprintf(name, sizeof name, "stopped-%d", base_ranks());
    struct settings s = run_of("gpt2", name);
    volatile sig_atomic_t stop = tl_comm_rank(tl_comm_world()) == base_ranks() - 1;
    const struct run_listener listener = {.stop = &stop};
    struct run_summary summary;
    NEED(run_train(&s, &listener, &summary) == RUN_STOPPED);
    NEED(summary.steps == 1);
}

static void others_are_found(void) {
    int rank = tl_comm_rank(tl_comm_world()), n = base_ranks();
    char need[200];
    struct settings s = run_of("llama", "other");
    if (rank == n - 1) set(&s, "batch", "24");
    snprintf(need, sizeof need, "rank %d of %d: --batch is 24 here, and 12 on rank 0", n - 1, n);
    fails_everywhere(&s, need);
    s = run_of("llama", "other");
    set(&s, "batch", "5");
    if (n != 5)
        fails_everywhere(&s, n == 4 ? "batch: 5 sequences cannot be divided among 4 ranks" : "batch: 5 sequences");
    s = run_of("llama", "other");
    set(&s, "dp", "7");
    fails_everywhere(&s, "dp: --dp 7 needs as many processes");
    s = run_of("llama", "other");
    if (rank == n - 1) set(&s, "model", run_of("gpt2", "other").model); /* the same file names are not needed */
    fails_everywhere(&s, "--model is");
}

/* ---- A rank that is stuck ---- */

/* Every rank looks at its listener's stop between two steps. It is in a page of its own; once that cannot be read any
 * more, the rank stays there. */
static void *stop_page;
static void stay(int number) {
    (void)number;
    for (;;) pause();
}
static void close_page(int number) {
    (void)number;
    mprotect(stop_page, 1, PROT_NONE);
}

/* The first rank reports its first evaluation, for longer than a step may take. */
static void tell_slowly(void *context, const struct run_news *news) {
    bool *is_told = context;
    if (!isfinite(news->held_out) || *is_told) return;
    *is_told = true;
    sleep(33);
}

/* A run that does not end. The last rank is stuck after a while. */
static void stuck_here(void) {
    struct settings s = run_of("llama", "stuck");
    set_all(&s, "steps 1000000 eval_every 20 save_every 0");
    bool is_told = false;
    stop_page = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const struct run_listener listener = {.tell = tell_slowly, .context = &is_told, .stop = stop_page};
    struct run_summary summary;
    signal(SIGSEGV, stay);
    if (tl_comm_rank(tl_comm_world()) == base_ranks() - 1) signal(SIGALRM, close_page), alarm(45);
    run_train(&s, &listener, &summary);
}

/* ---- What the launched processes do ---- */

static void stop_here(const char *out, const char *shard, int64_t stop_after) {
    struct settings s = run_of("llama", out);
    set_all(&s, "save_best false dropout 0.1");
    set(&s, "shard", shard);
    train_here(&s, stop_after);
}

/* FLOPs of a step by one process. */
static double flops_alone(struct settings s) {
    static struct price p;
    set_all(&s, "dp 1 tp 1 cp 1 pp 1 pp_chunks 1 sp false shard none shard_group 0");
    NEED(price_make(&p, &s, walk_stand_in(&s), 0));
    double flops = 0;
    const tl_ledger *ledger = p.kind[KIND_STEP].ledger;
    for (size_t i = 0; i < ledger->n_rows; i++) flops += (double)ledger->rows[i].flops;
    price_free(&p);
    return flops;
}

/* What a run says that a step will compute, on all ranks. */
static double flops_told(struct settings s) {
    tl_model_config config;
    char weights[SETTING_TEXT];
    struct source source = {0};
    struct opening opening;
    s.dp = base_ranks() / (s.tp * s.cp * s.pp);
    char *text = price_text(&s);
    NEED(text && trainer_model(&s, &config, weights));
    json_t *price = json_loads(text, 0, NULL);
    NEED(price && opening_make(&opening, &s, &config, &source, price));
    json_decref(price);
    free(text);
    return opening.step_flops;
}

/* Clipped, so that losses show a wrong norm. `words`: settings, joined by commas. */
static void layout_here(const char *family, const char *out, int64_t stop_after, const char *words) {
    char copy[200];
    struct settings s = run_of(family, out);
    set_all(&s, "save_best false clip 0.3 checkpointing selective");
    snprintf(copy, sizeof copy, "%s", words);
    for (char *at = copy; *at; at++) *at = *at == ',' ? ' ' : *at;
    set_all(&s, copy);
    double flops = train_here(&s, stop_after);
    /* in all, the ranks compute what one would, and what their sums and stages' borders take */
    if (!stop_after && s.pp > 1) NEED(fabs(flops / ((double)s.steps * flops_alone(s)) - 1) < 0.1);
    if (!stop_after && s.pp > 1) NEED(fabs(flops / ((double)s.steps * flops_told(s)) - 1) < 0.01);
}

static int rank_run(int argc, char **argv) {
    snprintf(base, sizeof base, "%s", argv[1]);
    const char *what = argc > 2 ? argv[2] : "";
    tl_set_error_policy(TL_RETURN);
    if (!strcmp(what, "kinds")) kinds_train();
    else if (!strcmp(what, "others")) nan_stops_all(), nan_stops_all_stages(), one_stops_all(), others_are_found();
    else if (!strcmp(what, "stuck")) stuck_here();
    else if (!strcmp(what, "stop") && argc == 6) stop_here(argv[3], argv[4], atoi(argv[5]));
    else if (!strcmp(what, "layout") && argc == 7) layout_here(argv[3], argv[4], atoi(argv[5]), argv[6]);
    else return 1;
    expect_ok();
    return 0;
}

/* ---- Alone ---- */

static const char *program;

static bool has_launcher(void) { return ranks_can_start(OPEN_MPI, program); }

static void launch(int n, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void launch(int n, const char *format, ...) {
    char what[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    assert_int_equal(ranks_run(OPEN_MPI, n, "%s %s %s", program, base, what), 0);
}

static void *file_of(const char *run, const char *name, size_t *bytes) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s/%s", base, run, name);
    void *data = file_get(path, (size_t)1 << 26, bytes);
    if (!data) fail_msg("%s: %s", path, tl_error_message());
    return data;
}

static void weights_are_the_same(const char *a, const char *b) {
    size_t n, m;
    void *x = file_of(a, "final/model.safetensors", &n), *y = file_of(b, "final/model.safetensors", &m);
    if (n != m || memcmp(x, y, n)) fail_msg("%s and %s have different weights", a, b);
    memory_free(x);
    memory_free(y);
}

/* The next line of a log that has figures: a divided model writes no samples. */
static char *figures_next(char **rest) {
    char *line;
    while ((line = strtok_r(*rest, "\n", rest)) && strstr(line, "\"sample\"")) {
    }
    return line;
}

/* The largest difference between the losses of two runs, of every step and of evaluations. */
static double losses_compare(const char *a, const char *b) {
    size_t n;
    char *x = file_of(a, "log.jsonl", &n), *y = file_of(b, "log.jsonl", &n), *rest_x = x, *rest_y = y, *p, *q;
    double most = 0;
    int lines = 0;
    while ((p = figures_next(&rest_x)) && (q = figures_next(&rest_y))) {
        json_t *one = json_loads(p, 0, NULL), *two = json_loads(q, 0, NULL);
        const char *names[] = {"loss", "held_out", "attention_pairs"};
        for (int i = 0; i < 3; i++) {
            const json_t *u = json_object_get(one, names[i]), *v = json_object_get(two, names[i]);
            assert_int_equal(u != NULL, v != NULL);
            if (u) most = fmax(most, fabs(json_number_value(u) - json_number_value(v)));
        }
        assert_int_equal(json_integer_value(json_object_get(one, "step")),
                         json_integer_value(json_object_get(two, "step")));
        json_decref(one);
        json_decref(two);
        lines++;
    }
    assert_true(lines >= 13);                         /* 10 steps, 3 evaluations */
    assert_true(p == NULL && !figures_next(&rest_y)); /* both have as many */
    memory_free(x);
    memory_free(y);
    return most;
}

static void ranks_follow_one_process(void **state) {
    (void)state;
    if (!has_launcher()) skip();
    kinds_train();
    for (int n = 2; n <= 4; n++) launch(n, "kinds");
    for (int i = 0; i < N_KINDS; i++)
        for (int n = 2; n <= 4; n++) {
            char modes[64], *rest = modes, *mode, alone[64], first[64] = "", name[64];
            snprintf(modes, sizeof modes, "%s", kinds[i].modes);
            name_of(alone, &kinds[i], "none", 1);
            while ((mode = strtok_r(rest, " ", &rest))) {
                name_of(name, &kinds[i], mode, n);
                double most = losses_compare(alone, name);
                if (getenv("TALLY_TEST_TELL")) printf("%-24s %.3g\n", name, most);
                if (!(most <= kinds[i].bound)) fail_msg("%s: losses differ by %g", name, most);
                if (*first) weights_are_the_same(first, name);
                else snprintf(first, sizeof first, "%s", name);
            }
        }
}

static void all_ranks_end_alike(void **state) {
    (void)state;
    if (!has_launcher()) skip();
    for (int n = 2; n <= 3; n++) launch(n, "others");
}

/* A run goes on with any number of processes and in any mode; with the same ones, to the same bits. */
static void runs_resume_on_other_ranks(void **state) {
    (void)state;
    if (!has_launcher()) skip();
    stop_here("whole-1", "none", 0);
    launch(4, "stop whole-4 zero1 0");
    launch(4, "stop same zero3 3"); /* one of the modes with the same bits */
    launch(4, "stop same zero1 0");
    weights_are_the_same("whole-4", "same");
    launch(4, "stop fewer zero1 2");
    launch(2, "stop fewer zero3 5");
    stop_here("fewer", "none", 0);
    stop_here("more", "none", 1);
    launch(3, "stop more zero3 6");
    launch(2, "stop more none 0");
    const char *names[] = {"whole-4", "fewer", "more"};
    for (int i = 0; i < 3; i++) {
        double most = losses_compare("whole-1", names[i]);
        if (getenv("TALLY_TEST_TELL")) printf("%-24s %.3g\n", names[i], most);
        if (!(most <= LOSS_BOUND)) fail_msg("%s: losses differ by %g", names[i], most);
    }
}

/* Settings of a run of one process that others are compared with: of the words, those that change what is learnt. */
static void alone_words(char words[200], const char *layout) {
    static const char *const kept[] = {"accum",    "layers", "recipe",          "batch", "seq",      "steps",
                                       "kv_heads", "lora",   "router_aux_loss", "ff",    "optimizer"};
    char copy[200], *rest = copy, *name, *value;
    size_t n = 0;
    snprintf(copy, sizeof copy, "%s", layout);
    snprintf(words, 200, "tp,1");
    while ((name = strtok_r(rest, ",", &rest)) && (value = strtok_r(rest, ",", &rest)))
        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
            if (!strcmp(name, kept[i])) n = strlen(words), snprintf(words + n, 200 - n, ",%s,%s", name, value);
}

/* The run of one process with these settings, trained once. */
static void alone_train(char name[64], const char *family, const char *layout) {
    static char done[64][264];
    static int n_done;
    char words[200], key[264];
    alone_words(words, layout);
    snprintf(key, sizeof key, "%s %s", family, words);
    int i = 0;
    while (i < n_done && strcmp(done[i], key)) i++;
    snprintf(name, 64, "alone-%d", i);
    if (i < n_done) return;
    assert_true(n_done < 64);
    snprintf(done[n_done++], sizeof *done, "%s", key);
    layout_here(family, name, 0, words);
}

struct layout_run {
    int n;
    const char *family, *words;
    double bound; /* 0: LOSS_BOUND */
};

/* The largest difference from one process. */
static double layout_compare(const struct layout_run *l, const char *name, const char *more) {
    char alone[64], words[200];
    snprintf(words, sizeof words, "%s%s", l->words, more);
    alone_train(alone, l->family, words);
    launch(l->n, "layout %s %s 0 %s", l->family, name, words);
    double most = losses_compare(alone, name);
    if (getenv("TALLY_TEST_TELL")) printf("%-5s %d  %-60s %.3g\n", l->family, l->n, words, most), fflush(stdout);
    return most;
}

/* Whatever divides the model, its layers or the sequences, losses are those of one process, and checkpoints go from one
 * to another; train_here compares price and receipt of every rank. */
static void layouts_follow_one_process(void **state) {
    (void)state;
    static const struct layout_run layouts[] = {
        {2, "gpt2", "tp,2", 0},
        {2, "llama", "tp,2,sp,true,accum,2", 0},
        {2, "llama", "cp,2,shard,zero1", 0},
        {4, "llama", "tp,2,dp,2,shard,zero3", 0},
        {4, "gpt2", "tp,2,cp,2,sp,true", 0},
        {2, "gpt2", "cp,2", 0},
        {2, "moe", "tp,2,sp,true,router_aux_loss,0.1,ff,33", 0}, /* parts of 17 and 16 */
        {4, "llama", "tp,2,dp,2,sp,true,lora,2,shard,zero2", 0},
        {4, "moe", "dp,4,ep,2,shard,zero1", 0},
        {4, "moe", "dp,2,ep,2,cp,2,shard,zero3", 0},
        {2, "gpt2", "pp,2,accum,3,layers,3", 0}, /* a tied embedding */
        {3, "llama", "pp,3,accum,2,layers,4", 0},
        {4, "gpt2", "pp,2,dp,2,accum,3,layers,3,shard,zero3", 0},
        {4, "llama", "pp,2,tp,2,accum,2,sp,true", 0},
        {2, "gpt2", "pp,2,pp_chunks,2,accum,8,layers,5", 0},
        {4, "llama", "pp,2,pp_chunks,2,dp,2,accum,4,layers,4,shard,zero3", 0},
        {2, "gpt2", "tp,2,optimizer,muon", MUON_BOUND}, /* q, k and v are one matrix */
        {2, "llama", "tp,2,sp,true,kv_heads,1,ff,33,optimizer,muon", MUON_BOUND},
        {4, "llama", "tp,2,dp,2,kv_heads,1,shard,zero3,optimizer,muon", MUON_BOUND},
        {4, "gpt2", "dp,4,shard,zero1,shard_group,2,optimizer,muon", MUON_BOUND},
        {4, "llama", "tp,2,dp,2,lora,2,shard,zero2,optimizer,muon", MUON_BOUND},
        {4, "moe", "dp,4,ep,2,shard,zero1,optimizer,muon", MUON_BOUND},
        {4, "gpt2", "pp,2,dp,2,accum,3,layers,3,shard,zero3,optimizer,muon", MUON_BOUND},
    };
    if (!has_launcher()) skip();
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        char name[64];
        snprintf(name, sizeof name, "layout-%d", (int)i);
        double most = layout_compare(&layouts[i], name, "");
        if (!(most <= (layouts[i].bound > 0 ? layouts[i].bound : LOSS_BOUND)))
            fail_msg("%s: losses differ by %g", layouts[i].words, most);
    }
}

/* From one process to stages, to tp beside dp, to stages beside dp, to cp. */
static void runs_resume_in_other_layouts(void **state) {
    (void)state;
    if (!has_launcher()) skip();
    for (int family = 0; family < 2; family++) {
        const char *name = family ? "moved-llama" : "moved-gpt2", *kind = family ? "llama" : "gpt2";
        char alone[64];
        alone_train(alone, kind, "accum,2,layers,4");
        layout_here(kind, name, 1, "accum,2,layers,4");
        launch(2, "layout %s %s 3 accum,2,layers,4,pp,2%s", kind, name, family ? ",pp_chunks,2" : "");
        launch(4, "layout %s %s 5 accum,2,layers,4,tp,2,dp,2,shard,zero%d", kind, name, family ? 3 : 1);
        launch(4, "layout %s %s 7 accum,2,layers,4,pp,2,dp,2,shard,zero%d", kind, name, family ? 1 : 3);
        launch(2, "layout %s %s 0 accum,2,layers,4,cp,2", kind, name);
        double most = losses_compare(alone, name);
        if (getenv("TALLY_TEST_TELL")) printf("%-24s %.3g\n", name, most);
        if (!(most <= LOSS_BOUND)) fail_msg("%s: losses differ by %g", name, most);
    }
    /* the same stages: to the same bits */
    launch(2, "layout gpt2 staged 0 accum,3,pp,2");
    launch(2, "layout gpt2 staged-again 3 accum,3,pp,2");
    launch(2, "layout gpt2 staged-again 0 accum,3,pp,2");
    weights_are_the_same("staged", "staged-again");
}

/* From one process to a part of its matrices, of their momenta and of both, and back; and with the same bits. */
static void muon_resumes_in_other_layouts(void **state) {
    (void)state;
    char alone[64];
    if (!has_launcher()) skip();
    alone_train(alone, "gpt2", "optimizer,muon");
    layout_here("gpt2", "moved-muon", 1, "optimizer,muon");
    launch(2, "layout gpt2 moved-muon 3 optimizer,muon,tp,2");
    launch(3, "layout gpt2 moved-muon 5 optimizer,muon,dp,3,shard,zero2");
    launch(4, "layout gpt2 moved-muon 7 optimizer,muon,tp,2,dp,2,shard,zero3");
    layout_here("gpt2", "moved-muon", 0, "optimizer,muon");
    double most = losses_compare(alone, "moved-muon");
    if (getenv("TALLY_TEST_TELL")) printf("%-24s %.3g\n", "moved-muon", most);
    if (!(most <= MUON_BOUND)) fail_msg("losses differ by %g", most);
    launch(4, "layout llama muon-whole 0 optimizer,muon,tp,2,dp,2,shard,zero1");
    launch(4, "layout llama muon-again 3 optimizer,muon,tp,2,dp,2,shard,zero3");
    launch(4, "layout llama muon-again 6 optimizer,muon,tp,2,dp,2,shard,none");
    launch(4, "layout llama muon-again 0 optimizer,muon,tp,2,dp,2,shard,zero2");
    weights_are_the_same("muon-whole", "muon-again");
}

/* Two groups of two ranks: all modes end with the same bits, and near one process; a run goes to them and away. */
static void groups_of_ranks_end_alike(void **state) {
    (void)state;
    static const char *const modes[] = {"zero1", "zero2,overlap,false", "zero3",
                                        "zero1,overlap,false,memory_limit,1GiB"};
    char alone[64], name[64];
    if (!has_launcher()) skip();
    alone_train(alone, "llama", "");
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "grouped-%d", i);
        launch(4, "layout llama %s 0 shard_group,2,shard,%s", name, modes[i]);
        double most = losses_compare(alone, name);
        if (!(most <= LOSS_BOUND)) fail_msg("%s: losses differ by %g", modes[i], most);
        if (i) weights_are_the_same("grouped-0", name);
    }
    launch(4, "layout llama regrouped 3 shard_group,2,shard,zero3"); /* stopped, and on: the same bits */
    launch(4, "layout llama regrouped 5 shard_group,2,shard,zero2");
    launch(4, "layout llama regrouped 0 shard_group,2,shard,zero1");
    weights_are_the_same("grouped-0", "regrouped");
    alone_train(alone, "gpt2", "accum,2,layers,3");
    layout_here("gpt2", "ungrouped", 1, "accum,2,layers,3");
    launch(4, "layout gpt2 ungrouped 3 accum,2,layers,3,shard_group,2,shard,zero3");
    launch(4, "layout gpt2 ungrouped 5 accum,2,layers,3,tp,2,dp,2,shard,zero1");
    launch(4, "layout gpt2 ungrouped 7 accum,2,layers,3,cp,2,shard_group,2,shard,zero2"); /* groups of cp */
    layout_here("gpt2", "ungrouped", 0, "accum,2,layers,3");
    double most = losses_compare(alone, "ungrouped");
    if (!(most <= LOSS_BOUND)) fail_msg("in and out of groups: losses differ by %g", most);
}

/* Every mode and useful combination over 50 steps: test_train_ranks --curves [STEPS]. */
static int curves(const char *steps) {
    static const struct layout_run layouts[] = {
        {2, "", "dp,2", 0},
        {2, "", "dp,2,shard,zero1", 0},
        {2, "", "dp,2,shard,zero2", 0},
        {2, "", "dp,2,shard,zero3", 0},
        {2, "", "tp,2", 0},
        {2, "", "tp,2,sp,true", 0},
        {2, "", "cp,2", 0},
        {2, "", "pp,2,accum,4", 0},
        {2, "", "pp,2,accum,4,recipe,bf16", 1e-3},
        {3, "", "dp,3,shard,zero2", 0},
        {3, "", "dp,3,shard,zero3,accum,2", 0},
        {3, "", "cp,3,seq,24", 0},
        {3, "", "pp,3,accum,4,layers,4", 0},
        {4, "", "dp,4,shard,zero3", 0},
        {4, "", "dp,2,tp,2,sp,true", 0},
        {4, "", "dp,2,tp,2,shard,zero1", 0},
        {4, "", "dp,2,tp,2,shard,zero2", 0},
        {4, "", "dp,2,tp,2,shard,zero3", 0},
        {4, "", "dp,2,cp,2,shard,zero3", 0},
        {4, "", "dp,4,shard,zero1,shard_group,2", 0},
        {4, "", "dp,4,shard,zero3,shard_group,2,accum,2", 0},
        {4, "", "tp,2,cp,2,sp,true", 0},
        {4, "", "dp,2,pp,2,accum,4", 0},
        {4, "", "dp,2,pp,2,accum,4,shard,zero1", 0},
        {4, "", "dp,2,pp,2,accum,4,shard,zero3", 0},
        {4, "", "tp,2,pp,2,accum,4,sp,true", 0},
        {4, "", "cp,2,pp,2,accum,4", 0},
        {4, "", "pp,4,accum,8,layers,5", 0},
        {2, "", "pp,2,pp_chunks,2,accum,4,layers,4", 0},
        {4, "", "pp,4,pp_chunks,2,accum,8,layers,9", 0},
        {4, "", "dp,2,pp,2,pp_chunks,2,accum,4,layers,4,shard,zero2", 0},
        {3, "", "dp,3,shard,zero2,optimizer,muon", MUON_BOUND},
        {4, "", "dp,2,tp,2,shard,zero1,optimizer,muon", MUON_BOUND},
    };
    int n_failed = 0;
    setenv("TALLY_TEST_TELL", "1", 1);
    for (size_t i = 0; i < 2 * sizeof layouts / sizeof *layouts; i++) {
        struct layout_run l = layouts[i / 2];
        char name[64], more[32];
        l.family = i % 2 ? "llama" : "gpt2";
        snprintf(name, sizeof name, "curve-%d", (int)i);
        snprintf(more, sizeof more, ",steps,%s", steps);
        bool is_fine = layout_compare(&l, name, more) <= (l.bound > 0 ? l.bound : LOSS_BOUND);
        if (!is_fine) printf("  above the bound of %g\n", l.bound > 0 ? l.bound : LOSS_BOUND);
        n_failed += !is_fine;
    }
    printf("%d curves of %s steps, %d above their bounds\n", (int)(2 * sizeof layouts / sizeof *layouts), steps,
           n_failed);
    return n_failed != 0;
}

static void random_runs_cost_their_price(void **state) {
    (void)state;
    if (!has_launcher()) skip();
    for (int n = 2; n <= 4; n++)
        assert_int_equal(ranks_run(OPEN_MPI, n, "%.*s/test_sweep --runs %d --seed %d >/dev/null",
                                   (int)(strrchr(program, '/') - program), program, n == 4 ? 5 : 3, 100 * n),
                         0);
}

/* It takes a minute of waiting, so it runs beside the other tests. */
static FILE *stuck;

static void stuck_begin(void) {
    char command[4800];
    snprintf(command, sizeof command, "%s %s %s stuck 2>&1", ranks_start(OPEN_MPI, 3, RANKS_SECONDS), program, base);
    if (has_launcher()) stuck = popen(command, "r");
}

/* Evaluations, and what the first rank does beside, do not look stuck; a rank that makes no step for 30 s does. */
static void a_stuck_rank_ends_the_run(void **state) {
    (void)state;
    static const char *const needs[] = {"tally: rank 2 on ",
                                        " is stuck: it has made no call for ",
                                        " s; last heard at step ",
                                        ", after ",
                                        "; rank 0 on ",
                                        " waits for it in ",
                                        " among 3 ranks (call "};
    char line[600], found[600] = "";
    int lines = 0;
    if (!stuck) skip();
    while (fgets(line, sizeof line, stuck))
        if (strstr(line, "all ranks end")) lines++, memcpy(found, line, sizeof found);
    assert_int_equal(WEXITSTATUS(pclose(stuck)), 7);
    assert_int_equal(lines, 1);
    const char *at = found;
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (!(at = strstr(at, needs[i]))) fail_msg("not \"%s\" in \"%s\"", needs[i], found);
    /* the rank's last report is up to two seconds old, so fewer seconds than the limit of 30 may be told */
    assert_in_range(atoi(strstr(found, needs[1]) + strlen(needs[1])), 28, 120);
}

static int begin(void **state) {
    (void)state;
    base_begin();
    run_of("gpt2", "none"), run_of("llama", "none"); /* their files */
    stuck_begin();
    return 0;
}
static int end(void **state) {
    (void)state;
    base_end();
    return 0;
}

int main(int argc, char **argv) {
    program = argv[0];
    if (getenv("OMPI_COMM_WORLD_SIZE") && argc > 1) return rank_run(argc, argv);
    if (argc > 1 && !strcmp(argv[1], "--curves")) {
        begin(NULL);
        int failed = curves(argc > 2 ? argv[2] : "50");
        return end(NULL), failed;
    }
    const struct CMUnitTest tests[] = {
        TEST(ranks_follow_one_process),      TEST(all_ranks_end_alike),          TEST(runs_resume_on_other_ranks),
        TEST(layouts_follow_one_process),    TEST(runs_resume_in_other_layouts), TEST(groups_of_ranks_end_alike),
        TEST(muon_resumes_in_other_layouts), TEST(random_runs_cost_their_price), TEST(a_stuck_rank_ends_the_run),
    };
    return cmocka_run_group_tests_name("train_ranks", tests, begin, end);
}

/* Random configurations: a run costs its price, to the last byte, FLOP and call.
 *
 *     build/tests/test_sweep                                       the tests: 30 tiny runs, and 30 prices
 *     build/tests/test_sweep --device cuda --runs 200 --seed 1 --seconds 450
 *     mpirun -n 3 build/tests/test_sweep --runs 100                on several processes, in random layouts
 *
 * Each number of a seed is one configuration, half of them of a family of models that is drawn too. It is trained on
 * the device (price = receipt, every step costs the same as those before it, the plan's price is the receipt too); and
 * a wider one is priced under the device's rules and compared with all of its steps run on meta one by one, with
 * nothing left out. A failure prints one line with the seed that repeats it. */
#include "support/check.h"
#include "support/runs.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "step/price.h"
#include "step/source.h"
#include "step/trainer.h"
#include "step/turn.h"
#include "tensor/device.h"
#include "tensor/pool.h"

/* ---- Drawing a configuration ---- */

static uint64_t dice;
static int64_t draw(int64_t from, int64_t to) { /* both included */
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return from + (int64_t)((dice >> 33) % (uint64_t)(to - from + 1));
}
static bool one_in(int64_t n) { return draw(1, n) == 1; }
static int64_t up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
static void set_number(struct settings *s, const char *name, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    set(s, name, text);
}
#define SET_ONE_OF(s, name, ...)                                  \
    do {                                                          \
        static const char *const all[] = {__VA_ARGS__};           \
        set(s, name, all[draw(0, sizeof all / sizeof *all - 1)]); \
    } while (0)

struct scale { /* the most that is drawn */
    int64_t heads, head_pairs, layers, ff, vocabulary, batch, seq, steps;
};
static const struct scale tiny = {4, 5, 3, 150, 900, 4, 40, 9}, gpu = {6, 24, 6, 1100, 9000, 12, 700, 12},
                          wide = {9, 40, 9, 4000, 50000, 8, 1500, 40};

static void sizes_draw(struct settings *s, const struct scale *m, bool is_fp4) {
    int64_t heads = draw(1, m->heads), size = 2 * draw(1, m->head_pairs), unit = is_fp4 ? 16 : 1;
    int64_t kv = draw(1, heads);
    while (heads % kv) kv--;
    if (is_fp4) size = (size + 15) / 16 * 16;
    set_number(s, "channels", heads * size);
    set_number(s, "heads", heads);
    set_number(s, "kv_heads", kv);
    set_number(s, "ff", (draw(3, m->ff) + unit - 1) / unit * unit);
    set_number(s, "layers", draw(1, m->layers));
    set_number(s, "vocabulary", (draw(256, one_in(3) ? m->vocabulary : 300) + unit - 1) / unit * unit);
    set_number(s, "context", 4096);
}

/* ---- Drawing an architecture ---- */

static void experts_draw(tl_model_config *c, int64_t unit) {
    c->n_experts = 2 * draw(1, 4);
    c->n_chosen = draw(1, c->n_experts);
    c->expert_ff = unit * draw(1, 40 / unit);
}

/* What the family has beyond the sizes that are drawn for all. */
static void family_draw(tl_model_config *c, int64_t unit) {
    const bool has_window = one_in(2);
    switch (c->family) {
    case TL_GPT2:
    case TL_GPT_NEOX:
        c->n_kv_heads = c->n_heads;
        c->is_parallel = c->family == TL_GPT_NEOX && one_in(2);
        if (c->family == TL_GPT2 && one_in(2)) c->positions = draw(TL_POSITIONS_ROTARY, TL_POSITIONS_NONE);
        break;
    case TL_GPT_BIGCODE:
        c->n_kv_heads = one_in(2) ? 1 : c->n_heads;
        break;
    case TL_FALCON:
        c->is_parallel = one_in(2);
        c->has_two_norms = c->is_parallel && one_in(2);
        if (!c->is_parallel) c->n_kv_heads = one_in(2) ? 1 : c->n_heads;
        c->positions = one_in(2) ? TL_POSITIONS_ALIBI : TL_POSITIONS_OWN;
        c->has_qkv_bias = c->has_out_bias = c->has_mlp_bias = one_in(2);
        break;
    case TL_MIXTRAL:
    case TL_GPT_OSS:
        experts_draw(c, unit);
        c->is_choice_normed = true;
        c->expert_ff = 0;
        if (c->family == TL_GPT_OSS) c->gate_limit = 7, c->has_qkv_bias = c->has_out_bias = true;
        break;
    case TL_QWEN3_MOE:
    case TL_OLMOE:
        experts_draw(c, unit);
        if (c->family == TL_OLMOE) c->expert_ff = 0;
        break;
    case TL_DEEPSEEK_V2:
    case TL_DEEPSEEK_V3:
        experts_draw(c, unit);
        c->n_kv_heads = c->n_heads, c->n_shared = draw(1, 2), c->expert_from = draw(0, 2);
        if (c->n_experts > 2 && one_in(2)) c->n_groups = c->n_experts / 2, c->n_groups_chosen = draw(1, c->n_groups);
        if (c->n_groups && c->n_chosen > 2 * c->n_groups_chosen) c->n_chosen = 2 * c->n_groups_chosen;
        c->kv_rank = unit * draw(1, 32 / unit), c->q_rank = one_in(2) ? unit * draw(1, 32 / unit) : 0;
        c->value_head = unit * draw(1, 32 / unit), c->rope_head = unit * draw(1, 16 / unit);
        c->head_size = up(c->value_head > c->rope_head ? c->value_head : c->rope_head + unit, unit);
        if (c->head_size <= c->rope_head) c->head_size = c->rope_head + unit;
        c->is_choice_normed = c->family == TL_DEEPSEEK_V3 && one_in(2), c->routed_scale = 1.5;
        break;
    case TL_LLAMA4:
        experts_draw(c, unit);
        c->n_shared = 1, c->expert_every = one_in(2) ? 2 : 0, c->plain_every = draw(2, 4), c->chunk = draw(2, 60);
        c->temperature_floor = draw(2, 30), c->temperature_scale = 0.1, c->has_head_norm = one_in(2);
        break;
    case TL_GEMMA2:
        c->attention_soft_cap = one_in(2) ? 50 : 0, c->logit_soft_cap = one_in(2) ? 30 : 0;
        break;
    case TL_GEMMA3:
        c->window_rope_base = 10000, c->query_scale = 24;
        break;
    case TL_SMOLLM3:
        c->plain_every = draw(2, 4);
        break;
    default:
        break;
    }
    const bool is_mixed = c->family == TL_GEMMA2 || c->family == TL_GEMMA3 || c->family == TL_GPT_OSS;
    if (has_window && (is_mixed || c->family == TL_MISTRAL || c->family == TL_MIXTRAL || c->family == TL_PHI3))
        c->window = draw(1, 40), c->window_every = is_mixed ? draw(2, 3) : 0;
}

/* A model of any family with the sizes of the settings, as a file that they then name instead. */
static void architecture_draw(struct settings *s, uint64_t seed, bool is_fp4) {
    char name[64], path[SETTING_TEXT];
    tl_model_config c = {.n_layers = s->layers,
                         .n_heads = s->heads,
                         .n_kv_heads = s->kv_heads ? s->kv_heads : s->heads,
                         .head_size = s->channels / s->heads,
                         .channels = s->channels,
                         .ff = s->ff,
                         .vocabulary = s->vocabulary,
                         .context = s->context,
                         .norm_eps = 1e-5,
                         .rope_base = 10000,
                         .init_std = 0.02,
                         .is_tied = one_in(2)};
    do c.family = (tl_family)draw(0, TL_FAMILY_COUNT - 1);
    while (c.family == TL_DEEP_LINEAR);
    family_draw(&c, is_fp4 ? 16 : 2);
    snprintf(name, sizeof name, "model-%" PRIu64 "-%" PRId64 ".json", seed, s->heads * 1000 + s->channels);
    set_path(s, "model", name);
    snprintf(path, sizeof path, "%s", s->model);
    if (!tl_model_config_write(&c, path)) fail_msg("%s: %s", tl_family_name(c.family), tl_error_message());
    s->channels = s->heads = s->kv_heads = s->ff = s->layers = s->vocabulary = s->context = 0;
    if (!c.n_experts) s->router_aux_loss = s->router_z_loss = 0;
}

static struct settings configuration_draw(uint64_t seed, const struct scale *m) {
    struct settings s = settings_default();
    dice = seed * 0x9E3779B97F4A7C15u + (uint64_t)m->heads;
    for (int i = 0; i < 4; i++) draw(0, 1);
    bool is_gpt2 = one_in(2);
    bool has_experts = !is_gpt2 && one_in(3);
    set(&s, "model", is_gpt2 ? "tiny-gpt2" : has_experts ? "tiny-moe" : "nano");
    if (has_experts && one_in(2)) set(&s, "router_aux_loss", "0.01"), set(&s, "router_z_loss", "0.001");
    if (one_in(3)) set(&s, "label_smoothing", "0.1");
    if (one_in(3)) set(&s, "z_loss", "0.0001");
    SET_ONE_OF(&s, "recipe", "fp32", "amp", "bf16", "bf16-lean", "fp16", "fp8", "fp4");
    sizes_draw(&s, m, !strcmp(settings_choice(&s, "recipe"), "fp4"));
    if (is_gpt2) set(&s, "kv_heads", "0");
    if (one_in(3)) set(&s, "dropout", "0.1");
    SET_ONE_OF(&s, "optimizer", "adamw", "adam", "sgd", "adagrad", "rmsprop", "lion", "muon", "schedule-free",
               "adafactor");
    const bool has_moments = s.optimizer < 2 || !strcmp(settings_choice(&s, "optimizer"), "muon");
    if (has_moments) SET_ONE_OF(&s, "moments", "f32", "bf16", "8bit");
    const bool is_free = !strcmp(settings_choice(&s, "optimizer"), "schedule-free");
    if (is_free) set(&s, "schedule", "constant");
    if (one_in(3)) set(&s, "momentum", "0.9");
    if (one_in(4) && !is_free) set(&s, "ema", "0.9");
    SET_ONE_OF(&s, "checkpointing", "none", "every-k", "sqrt", "full", "nothing", "selective");
    set_number(&s, "checkpoint_k", draw(1, 4));
    set_number(&s, "batch", draw(1, m->batch));
    set_number(&s, "seq", draw(1, m->seq));
    if (one_in(3))
        set_number(&s, "accum", draw(2, 5)), set(&s, "noise_scale", base_ranks() == 1 && one_in(2) ? "true" : "false");
    set_number(&s, "steps", draw(1, m->steps));
    if (s.accum > 1 && s.steps > 1 && one_in(2)) set_number(&s, "batch_warmup", draw(1, s.steps - 1));
    set(&s, "warmup", "0");
    set_number(&s, "eval_every", one_in(3) ? 0 : draw(1, m->steps));
    set_number(&s, "sample_every", one_in(2) ? 0 : draw(1, m->steps));
    set_number(&s, "save_every", one_in(2) ? 0 : draw(1, m->steps));
    set_number(&s, "eval_batches", draw(1, 4));
    set_number(&s, "sample_tokens", one_in(2) ? 0 : draw(1, 30));
    if (one_in(3)) set(&s, "clip", "0");
    set(&s, "on_nonfinite", "skip"); /* what it learns does not matter here */
    set(&s, "threads", "1");
    if (base_ranks() == 1 && one_in(2)) architecture_draw(&s, seed, !strcmp(settings_choice(&s, "recipe"), "fp4"));
    set_path(&s, "data", "text");
    if (one_in(3)) {
        set(&s, "document_mask", "true");
        set(&s, "document_token", "32"); /* words */
    }
    return s;
}

/* A divisor of n that is not always 1. */
static int64_t divisor_draw(int64_t n) {
    int64_t by = n == 1 || one_in(2) ? 1 : draw(2, n);
    while (n % by) by--;
    return by;
}

/* Sizes that can be divided like this. Parts need not be equal, except where products or rounding ask for it. */
static void sizes_fit(struct settings *s, bool is_gpt2) {
    const char *recipe = settings_choice(s, "recipe");
    bool is_fp4 = !strcmp(recipe, "fp4"), needs_equal = is_fp4 || !strcmp(recipe, "bf16-lean");
    int64_t size = s->channels / s->heads, unit = is_fp4 ? 16 : 1;
    s->heads *= s->tp;
    s->channels = s->heads * up(size, unit);
    if (!is_gpt2) s->kv_heads = one_in(2) ? s->heads : one_in(2) ? s->tp : 1;
    s->ff = up(s->ff, needs_equal ? s->tp * unit : 1);
    s->vocabulary = up(s->vocabulary, needs_equal ? s->tp * unit : 1);
    if (s->ff < s->tp) s->ff = s->tp;
    if (s->layers < s->pp) s->layers = s->pp;
    s->seq = up(s->seq, s->cp > 1 ? 2 * s->cp : 1);
    if (s->sp) s->seq = up(s->seq, s->tp * 2 * s->cp);
}

/* Under a launcher: all of its processes, in any layout. */
static void ranks_draw(struct settings *s) {
    int64_t left = base_ranks();
    if (left == 1) return;
    bool is_lean = !strcmp(settings_choice(s, "recipe"), "bf16-lean"), is_gpt2 = !strcmp(s->model, "tiny-gpt2");
    bool has_experts = !strcmp(s->model, "tiny-moe");
    s->pp = is_lean ? 1 : divisor_draw(left), left /= s->pp;
    s->tp = has_experts ? 1 : divisor_draw(left), left /= s->tp;
    s->cp = divisor_draw(left), left /= s->cp;
    if (s->pp > 1 || s->cp > 1) s->router_aux_loss = s->router_z_loss = 0;
    s->dp = left;
    if (s->pp > 1) s->batch_warmup = 0;
    s->sp = s->tp > 1 && one_in(2);
    SET_ONE_OF(s, "shard", "none", "zero1", "zero2", "zero3");
    bool is_whole = !strcmp(settings_choice(s, "optimizer"), "adafactor"); /* which needs whole tensors */
    if (is_whole && (s->tp > 1 || s->shard)) set(s, "optimizer", "adamw");
    bool is_8bit = !strcmp(settings_choice(s, "moments"), "8bit"); /* whose blocks are those of whole tensors */
    if (is_8bit && (s->tp > 1 || s->shard)) set(s, "moments", "bf16");
    if (s->shard && s->dp * s->cp == 4 && one_in(2)) s->shard_group = 2;
    s->batch *= s->dp;
    sizes_fit(s, is_gpt2);
    if (s->pp > 1 && one_in(2)) set_number(s, "accum", draw(1, 9)); /* a price leaves some of many micro-batches out */
    if (s->pp > 1 && one_in(2)) {
        s->pp_chunks = draw(2, 3);
        s->accum = up(s->accum, s->pp);
        if (s->layers < s->pp * s->pp_chunks) s->layers = s->pp * s->pp_chunks;
    }
}

/* How its processes divide the work, to know what was swept. */
static void layout_tell(const struct settings *s) {
    if (base_ranks() == 1 || tl_comm_rank(tl_comm_world()) || !getenv("TALLY_TEST_TELL")) return;
    printf("dp %" PRId64 " tp %" PRId64 "%s cp %" PRId64 " pp %" PRId64 "x%" PRId64 " accum %" PRId64 " %s", s->dp,
           s->tp, s->sp ? " sp" : "", s->cp, s->pp, s->pp_chunks, s->accum, settings_choice(s, "shard"));
    if (s->shard_group) printf(" by %" PRId64, s->shard_group);
    printf(" %s", settings_choice(s, "recipe")); /* one choice at a time: both are in the same memory */
    printf(" %s\n", settings_choice(s, "optimizer"));
    fflush(stdout);
}

/* ---- One configuration ---- */

static char problem[600];
static bool complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
static bool complain(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem, sizeof problem, format, arguments);
    va_end(arguments);
    for (char *c = problem; *c; c++)
        if (*c == '\n') *c = ' ';
    tl_error_clear();
    return false;
}

static bool plan_is(const struct settings *s, const char *price) {
    static struct price p;
    json_t *root = json_loads(price, 0, NULL), *kinds = json_object_get(root, "kinds");
    bool ok = root && price_make(&p, s, walk_stand_in(s), 0);
    if (!ok) return json_decref(root), complain("no plan: %s", tl_error_message());
    for (int kind = 0; ok && kind < KIND_COUNT; kind++) {
        const json_t *entry = json_object_get(kinds, kind_name((enum step_kind)kind));
        if (!p.kind[kind].ledger && !entry) continue;
        char *mine = tl_ledger_json(p.kind[kind].ledger, p.device),
             *theirs = json_dumps(json_object_get(entry, "ledger"), 0);
        int n = mine && theirs ? tl_ledger_diff(mine, theirs, NULL) : -1;
        ok = n == 0 && p.kind[kind].count == json_integer_value(json_object_get(entry, "count"));
        if (!ok) complain("plan and price differ in %s: %d differences", kind_name((enum step_kind)kind), n);
        free(mine);
        free(theirs);
    }
    if (ok && !p.is_steady) ok = complain("the pool does not settle");
    price_free(&p);
    json_decref(root);
    return ok;
}

/* A recipe that the target cannot compute (--device cuda:0@t4): the run is refused as the price was. */
static bool is_refused_alike(const struct settings *s) {
    struct run_summary summary;
    char why[300];
    snprintf(why, sizeof why, "%s", tl_error_message());
    if (tl_error() != TL_ERROR_USE || !strstr(why, "recipe: ")) return complain("no price: %s", why);
    tl_error_clear();
    enum run_end end = run_until(s, 0, &summary);
    bool ok = end == RUN_FAILED && !strcmp(tl_error_message(), why);
    if (!ok) complain("the price says \"%s\", the run \"%s\"", why, tl_error_message());
    tl_error_clear();
    return ok;
}

static bool trained(const struct settings *s, bool *is_refused) {
    struct run_summary summary;
    char *price = price_text(s);
    *is_refused = !price;
    if (!price) return is_refused_alike(s);
    bool ok = plan_is(s, price);
    free(price);
    if (!ok) return false;
    enum run_end end = run_until(s, 0, &summary);
    profile_free(&summary.profile);
    if (end == RUN_FAILED) return complain("the run failed: %s", tl_error_message());
    if (summary.foreign_bytes) return complain("%" PRIu64 " bytes were live before", summary.foreign_bytes);
    if (end != RUN_DONE) return complain("the run ended: %s", summary.problem);
    if (summary.differences || *summary.problem)
        return complain("%d differences; %s", summary.differences, summary.problem);
    return true;
}

/* All of a run on meta, nothing left out: its receipt. */
static char *receipt_on_meta(const struct settings *s, tl_device *device, char *difference, size_t size) {
    tl_model_config config;
    char weights[SETTING_TEXT], *text = NULL;
    struct source source = {0};
    struct kinds kinds = {0};
    const struct walker walker = {walk_bill_kinds, &kinds};
    bool ok = trainer_model(s, &config, weights) && source_open(&source, s, config.vocabulary, true);
    tl_pool_trim(device);
    tl_set_pool_limit(device, (uint64_t)1 << 60);
    struct trainer *t = ok ? trainer_new(s, &source, device, NULL) : NULL;
    ok = t != NULL;
    for (int64_t done = 1; ok && done <= s->steps; done++) {
        ok = walk_kind(t, kind_of_step(s, done - 1), done - 1, &walker);
        for (int kind = KIND_EVAL; ok && kind <= KIND_SAVE; kind++)
            if (walk_is_due(t, (enum step_kind)kind, done)) ok = walk_kind(t, (enum step_kind)kind, 0, &walker);
    }
    snprintf(difference, size, "%s", kinds.difference);
    if (ok) text = kinds_text(&kinds, s);
    kinds_free(&kinds);
    trainer_free(t);
    source_close(&source);
    tl_pool_trim(device);
    tl_set_pool_limit(device, 0);
    return text;
}

static bool walked(const struct settings *given) {
    struct settings s = *given;
    tl_device *device = walk_stand_in(&s);
    char difference[200];
    set(&s, "memory_limit", "1000000000000000"); /* whatever it takes */
    char *price = price_text_on(&s, device),
         *all = price ? receipt_on_meta(&s, device, difference, sizeof difference) : NULL;
    bool is_refused = !price && strstr(tl_error_message(), "recipe: "), ok = (price && all) || is_refused;
    if (!ok) complain("wide: no price: %s", tl_error_message());
    else if (is_refused) tl_error_clear(); /* a recipe that the target cannot compute: there is nothing to compare */
    else if (*difference) ok = complain("wide: %s", difference);
    else if (strcmp(price, all))
        ok = complain("wide: %d differences between the price and all steps", tl_ledger_diff(price, all, NULL));
    free(price);
    free(all);
    return ok;
}

/* ---- Many of them ---- */

struct sweep {
    const char *device;
    int64_t seed, runs;
    double seconds; /* 0: no limit */
    bool is_quiet;
};

static bool one(const struct sweep *w, int64_t seed, bool *is_refused) {
    char name[32];
    bool is_cpu = !strcmp(w->device, "cpu");
    struct settings s = configuration_draw((uint64_t)seed, is_cpu ? &tiny : &gpu),
                    other = configuration_draw((uint64_t)seed, &wide);
    snprintf(name, sizeof name, "run-%" PRId64, seed);
    set(&s, "device", w->device), set(&other, "device", w->device);
    set_path(&s, "out", name);
    ranks_draw(&s);
    layout_tell(&s);
    bool ok = trained(&s, is_refused);
    ok = ok && (*is_refused || base_ranks() > 1 || walked(&other));
    base_remove(name);
    return ok;
}

/* The first rank's clock decides for all. */
static bool is_late(const struct sweep *w, double began) {
    float late = w->seconds > 0 && now_s() - began > w->seconds;
    if (base_ranks() == 1 || !(w->seconds > 0)) return late > 0;
    tl_scope scope = tl_scope_begin();
    tl_tensor *first = tl_broadcast(tl_full(TL_SHAPE(1), late, TL_F32, NULL), 0, tl_comm_world());
    assert_true(first && tl_to_data(first, &late, sizeof late));
    tl_scope_end(scope);
    return late > 0;
}

static int sweep(const struct sweep *w) {
    double began = now_s();
    int64_t n = 0, n_failed = 0, n_refused = 0;
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    base_begin();
    char path[128];
    snprintf(path, sizeof path, "%s/text", base);
    if (tl_comm_rank(tl_comm_world()) == 0) assert_true(tl_corpus_write(path, 3, 100000, NULL, NULL));
    assert_true(tl_comm_barrier(tl_comm_world()));
    for (; n < w->runs + n_refused && !is_late(w, began); n++) {
        bool is_refused;
        bool ok = one(w, w->seed + n, &is_refused);
        if (ok && is_refused) n_refused++; /* the next takes its place */
        if (ok) continue;
        n_failed++;
        printf("test_sweep --device %s --runs 1 --seed %" PRId64 ": %s\n", w->device, w->seed + n, problem);
        fflush(stdout);
    }
    base_end();
    tl_set_error_policy(policy);
    if (w->is_quiet || tl_comm_rank(tl_comm_world())) return n_failed ? 1 : 0;
    printf("sweep on %s: seeds %" PRId64 " to %" PRId64 ": %" PRId64 " configurations, %" PRId64 " failed, %.0f s",
           w->device, w->seed, w->seed + n - 1, n - n_refused, n_failed, now_s() - began);
    if (n_refused) printf("; %" PRId64 " more were refused by price and run alike", n_refused);
    printf("%s\n", n - n_refused < w->runs ? "; the time was up" : "");
    return n_failed ? 1 : 0;
}

static void random_runs_cost_their_price(void **state) {
    (void)state;
    const struct sweep w = {.device = run_device(), .seed = 1, .runs = IS_SANITIZED ? 12 : 30, .is_quiet = true};
    expect_equal(sweep(&w), 0);
}

/* Configurations that are hard on a price, all of whose steps are run on meta beside it. In the first three the
 * steps of one run are given blocks of different sizes; in the others the pool still grows in the third step and in
 * the fourth, so that an evaluation after the ninth finds more than one after the third would. */
static void prices_hold_whatever_was_free(void **state) {
    (void)state;
    static const struct {
        const char *model, *recipe, *batch, *seq, *optimizer, *checkpointing, *ff, *vocabulary;
    } cases[] = {{"llama-3.2-1b", "bf16", "3", "1024", "rmsprop", "sqrt", "0", "0"},
                 {"gpt2-124m", "fp32", "1", "2098", "adamw", "full", "0", "0"},
                 {"qwen2.5-0.5b", "bf16-lean", "1", "912", "sgd", "every-k", "0", "0"},
                 {"qwen2.5-0.5b", "amp", "2", "1275", "adamw", "nothing", "0", "17130"},
                 {"llama-3.2-1b", "fp32", "2", "1811", "rmsprop", "full", "4226", "40589"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct settings s = settings_default();
        set(&s, "model", cases[i].model), set(&s, "recipe", cases[i].recipe), set(&s, "batch", cases[i].batch);
        set(&s, "seq", cases[i].seq), set(&s, "optimizer", cases[i].optimizer), set(&s, "context", "4096");
        set(&s, "ff", cases[i].ff), set(&s, "vocabulary", cases[i].vocabulary), set(&s, "device", "meta:h200");
        set(&s, "checkpointing", cases[i].checkpointing), set(&s, "steps", "12"), set(&s, "warmup", "2");
        set(&s, "eval_every", "9"), set(&s, "eval_batches", "1"), set(&s, "sample_tokens", "0");
        if (!walked(&s)) fail_msg("%s: %s", cases[i].model, problem);
    }
}

static int usage(void) {
    fprintf(stderr, "usage: test_sweep [--device NAME] [--runs N] [--seed FIRST] [--seconds LIMIT]\n"
                    "Without options: the tests.\n");
    return 2;
}

int main(int argc, char **argv) {
    struct sweep w = {.device = "cpu", .seed = 1, .runs = 500};
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) return usage();
        if (!strcmp(argv[i], "--device")) w.device = argv[i + 1];
        else if (!strcmp(argv[i], "--runs")) w.runs = strtoll(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--seed")) w.seed = strtoll(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--seconds")) w.seconds = strtod(argv[i + 1], NULL);
        else return usage();
    }
    if (argc > 1) return sweep(&w);
    const struct CMUnitTest tests[] = {
        TEST(random_runs_cost_their_price),
        TEST(prices_hold_whatever_was_free),
    };
    return cmocka_run_group_tests_name("sweep", tests, NULL, NULL);
}

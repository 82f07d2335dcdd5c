#include "plan/framework.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "nn/architecture.h"

/* ---- The rows ---- */

/* Eager PyTorch keeps of a layer of Llama: both norms' inputs and outputs (8); the query before and after its
 * rotation, keys and values repeated for every head, attention's output and a contiguous copy of it (12); w1, silu,
 * w3 and their product (8). The selective policy of torchtitan keeps the input, the outputs of every second product
 * (wq, wv, w1, w2) and of attention; the compiler leaves out w2's, which no gradient needs. */
#define TITAN_EAGER \
    { 8, 12, 0, 8, 0, 0, 0 }
#define TITAN_PLAIN \
    { 8, 12, 0, 4, 0, 0, 0 }
#define TITAN_FULL \
    { 2, 0, 0, 0, 0, 0, 0 }
#define FSDP                                                                                                         \
    .recipes = "bf16 amp fp8", .weights = 4, .embedding = 4, .gradients = 4, .states = 8, .copies = COPIES_GATHERED, \
    .has_tp = true, .has_pp = true, .has_plain = true, .has_gated = true, .shards = "zero2 zero3",                   \
    .policies = {"none", "selective (op)", "full"}, .overhead = 0.08
#define TITAN_COMPILED                                                \
    {                                                                 \
        {{8, 8, 0, 4, 0, 0, 0}, {2, 4, 2, 2, 0, 0, 0}, TITAN_FULL}, { \
            {8, 8, 0, 6, 0, 0, 0}, {2, 4, 2, 2, 0, 0, 0}, TITAN_FULL  \
        }                                                             \
    }

/* Korthikanti et al. 2022: of sbh (34 + 5 a s / h) bytes, norms' and products' inputs (8) are whole on each rank of
 * tp, and so are two masks of dropout. Flash attention keeps no scores. Shared keys are as narrow as they are. */
#define MEGATRON_KEPT(gate, scores)                                                      \
    {                                                                                    \
        {8, 4, 4, gate, 0, scores, 0}, {8, 4, 4, gate, 0, 0, 0}, { 2, 0, 0, 0, 0, 0, 0 } \
    }
#define MEGATRON                                                                                         \
    .weights = 2, .embedding = 2, .states = 12, .logit = 6, .logit_tp = 6, .dropout = 2, .has_tp = true, \
    .has_pp = true, .has_plain = true, .has_gated = true, .shards = "none zero1",                        \
    .policies = {"none", "selective", "full"}

/* Autocast keeps the residual stream in f32. Compiled: both norms' inputs (4 each) and outputs (2 each), q, k, v,
 * attention's output, and the MLP's products and what is between them. Eager modules of Transformers keep more: each
 * product casts its own input, norms keep f32 results, and GELU's formula five operands. */
#define HF                                                                                                       \
    .embedding = 4, .weights = 4, .gradients = 4, .states = 8, .is_late = true, .buckets = 4, .has_plain = true, \
    .has_gated = true, .shards = "none", .overhead = 0.08
/* Buffers that llm.c and llmq have once: the encoded tokens, the last norm, and those of one layer's MLP. */
#define LLMC_ONCE(ff) \
    { 6, 0, 0, ff, 0, 0, 12 }
#define LLMQ_ONCE \
    { 12, 4, 4, 8, 0, 0, 4 }
#define LLMQ                                                                                                      \
    .once = {LLMQ_ONCE, LLMQ_ONCE, LLMQ_ONCE}, .has_gated = true, .shards = "none zero1 zero2 zero3", .logit = 2, \
    .policies = {"none", "--recompute-swiglu", "--recompute-ffn --recompute-att"}

/* clang-format off */
const struct framework frameworks[] = {
    {.name = "pytorch-fsdp", .title = "PyTorch FSDP2 as in torchtitan, eager", FSDP, .logit = 14, .logit_tp = 22,
     .kept = {{TITAN_PLAIN, {4, 4, 2, 2, 0, 0, 0}, TITAN_FULL}, {TITAN_EAGER, {4, 4, 2, 2, 0, 0, 0}, TITAN_FULL}}},
    {.name = "pytorch-fsdp-blocks", .title = "PyTorch FSDP2 as in torchtitan, blocks compiled", FSDP, .logit = 14,
     .logit_tp = 22, .kept = TITAN_COMPILED},
    {.name = "pytorch-fsdp-compiled", .title = "PyTorch FSDP2 as in torchtitan, blocks and loss compiled", FSDP,
     .logit = 6, .logit_tp = 6, .kept = TITAN_COMPILED},
    {.name = "megatron", .recipes = "bf16 fp16 fp8", .title = "Megatron-core with flash attention", MEGATRON,
     .gradients = 4, .kept = {MEGATRON_KEPT(4, 0), MEGATRON_KEPT(6, 0)}, .overhead = 0.08},
    {.name = "megatron-deepspeed", .recipes = "bf16", .title = "Megatron-DeepSpeed of 2022, without flash attention",
     MEGATRON, .gradients = 4, .kept = {MEGATRON_KEPT(4, 5), MEGATRON_KEPT(6, 5)}, .overhead = 0.15, .fixed = 5.3e9},
    {.name = "megatron-deepspeed", .recipes = "fp16", .title = "Megatron-DeepSpeed of 2022, without flash attention",
     MEGATRON, .gradients = 2, .kept = {MEGATRON_KEPT(4, 5), MEGATRON_KEPT(6, 5)}, .overhead = 0.15, .fixed = 5.3e9},
    {.name = "hf-trainer", .recipes = "bf16 amp", .title = "Hugging Face Trainer, --bf16 (autocast)", HF,
     .copies = COPIES_ALL, .logit = 18, .dropout = 2, .policies = {"none", NULL, "gradient_checkpointing"},
     .kept = {{{12, 6, 4, 10, 0, 0, 0}, {0}, {4, 0, 0, 0, 0, 0, 0}},
              {{26, 12, 0, 8, 0, 0, 0}, {0}, {4, 0, 0, 0, 0, 0, 0}}}},
    {.name = "hf-trainer", .recipes = "fp32", .title = "Hugging Face Trainer, f32", HF, .logit = 16, .dropout = 2,
     .policies = {"none", NULL, "gradient_checkpointing"},
     .kept = {{{16, 12, 8, 20, 0, 0, 0}, {0}, {4, 0, 0, 0, 0, 0, 0}},
              {{24, 24, 0, 16, 0, 0, 0}, {0}, {4, 0, 0, 0, 0, 0, 0}}}},
    {.name = "hf-trainer-compiled", .recipes = "bf16 amp", .title = "Hugging Face Trainer, --bf16 --torch_compile", HF,
     .copies = COPIES_ALL, .logit = 2, .dropout = 2, .policies = {"none", NULL, "gradient_checkpointing"},
     .kept = {{{12, 4, 4, 4, 4, 0, 16}, {0}, {4, 0, 0, 0, 0, 0, 0}},
              {{12, 8, 0, 6, 4, 0, 8}, {0}, {4, 0, 0, 0, 0, 0, 0}}}},
    {.name = "llm.c", .recipes = "bf16", .title = "llm.c, train_gpt2.cu with cuDNN", .weights = 2, .embedding = 2,
     .gradients = 2, .states = 12, .logit = 2, .has_plain = true, .shards = "none zero1",
     .policies = {"-r 0", "-r 1 (GELU)", "-r 2 (GELU and norms)"},
     .kept = {{{8, 4, 4, 4, 4, 0, 16}, {8, 4, 4, 2, 4, 0, 16}, {4, 4, 4, 2, 4, 0, 16}}},
     .once = {LLMC_ONCE(2), LLMC_ONCE(4), LLMC_ONCE(4)}, .vocabulary_unit = 128},
    {.name = "llmq", .recipes = "bf16", .title = "llmq, --model-dtype bf16, moments in bf16", .weights = 2,
     .embedding = 2, .gradients = 2, .states = 4, LLMQ,
     .kept = {{{0}}, {{8, 4, 4, 6, 4, 0, 8}, {8, 4, 4, 4, 4, 0, 8}, {4, 0, 0, 0, 4, 0, 8}}}},
    {.name = "llmq", .recipes = "fp8", .title = "llmq, --matmul-dtype e4m3, moments in bf16", .weights = 3,
     .embedding = 2, .gradients = 2, .states = 4, LLMQ,
     .kept = {{{0}}, {{6, 4, 4, 5, 4, 0, 8}, {6, 4, 4, 4, 4, 0, 8}, {6, 0, 0, 0, 4, 0, 8}}}},
};
/* clang-format on */
const int n_frameworks = sizeof frameworks / sizeof *frameworks;

/* ---- Finding one ---- */

static bool has_word(const char *words, const char *word) {
    const size_t n = strlen(word);
    for (const char *at = words; at && (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

const struct framework *framework_find(const char *name, const char *recipe) {
    char names[200] = "", recipes[64] = "", shown[64];
    for (int i = 0; i < n_frameworks; i++) {
        const struct framework *f = &frameworks[i];
        const size_t n = strlen(names), r = strlen(recipes);
        const bool is_it = !strcmp(f->name, name);
        if (is_it && has_word(f->recipes, recipe)) return f;
        if (is_it) snprintf(recipes + r, sizeof recipes - r, "%s%s", r ? " " : "", f->recipes);
        if (!i || strcmp(f->name, frameworks[i - 1].name))
            snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", f->name);
    }
    if (*recipes)
        error_set(TL_ERROR_USE, "--as %s: what it holds with recipe %s is not known (need one of: %s)", name, recipe,
                  recipes);
    else error_set(TL_ERROR_USE, "--as: \"%s\" is not one of %s", text_show(shown, sizeof shown, name), names);
    return NULL;
}

/* ---- What it cannot do ---- */

static bool refuse(const struct framework *f, const char *what) {
    return error_set(TL_ERROR_USE, "--as %s: it has no %s", f->name, what);
}

static bool policy_find(const struct framework *f, const struct settings *s, enum framework_policy *policy) {
    static const char *const names[FRAMEWORK_POLICIES] = {"none", "selective", "full"};
    const char *given = settings_choice(s, "checkpointing");
    char what[96];
    for (int i = 0; i < FRAMEWORK_POLICIES; i++)
        if (!strcmp(given, names[i]) && f->policies[i]) return *policy = (enum framework_policy)i, true;
    snprintf(what, sizeof what, "--checkpointing %s (need none%s%s)", given,
             f->policies[FRAMEWORK_SELECTIVE] ? ", selective" : "", f->policies[FRAMEWORK_FULL] ? ", full" : "");
    return refuse(f, what);
}

static bool can_describe(const struct framework *f, const tl_model_config *c, const struct settings *s,
                         const struct layout *l) {
    if (c->n_experts) return error_set(TL_ERROR_USE, "--as %s: what it holds of experts is not known", f->name);
    const bool is_gated = architecture_of(c)->is_gated, is_many = l->dp * l->cp > 1;
    const char *optimizer = settings_choice(s, "optimizer");
    char what[96];
    if (c->family == TL_DEEP_LINEAR || !(is_gated ? f->has_gated : f->has_plain)) {
        snprintf(what, sizeof what, "models of the family %s", tl_family_name(c->family));
        return refuse(f, what);
    }
    if (strcmp(optimizer, "adamw") && strcmp(optimizer, "adam")) {
        snprintf(what, sizeof what, "figures for --optimizer %s (need adamw)", optimizer);
        return refuse(f, what);
    }
    if (strcmp(settings_choice(s, "moments"), "f32")) return refuse(f, "other --moments than its own");
    if (!f->has_tp && (l->tp > 1 || l->cp > 1)) return refuse(f, "--tp and --cp");
    if (!f->has_pp && l->pp > 1) return refuse(f, "--pp");
    if (l->schedule > SCHEDULE_INTERLEAVED) return refuse(f, "figures for this --schedule (need 1f1b, interleaved)");
    if (l->shard_group) return refuse(f, "figures for --shard-group");
    if (s->dropout > 0 && !(f->dropout > 0)) return refuse(f, "--dropout");
    if ((is_many || l->shard) && !has_word(f->shards, shard_names[l->shard])) {
        snprintf(what, sizeof what, "--shard %s on several devices (need one of: %s)", shard_names[l->shard],
                 f->shards);
        return refuse(f, what);
    }
    return true;
}

/* ---- Bytes ---- */

struct sizes {
    double layer, ends;    /* parameters of a layer, and of one end: embedding (with positions), or head */
    double tokens, layers; /* of a micro-batch here; of a stage */
    double tp, share;      /* share: ranks that divide what is sharded */
};

static struct sizes sizes_of(const tl_model_config *c, const struct settings *s, const struct layout *l) {
    const double V = (double)c->vocabulary, C = (double)c->channels, all = (double)tl_model_config_parameters(c);
    const double head = c->is_tied ? 0 : V * C;
    struct sizes z = {.tp = (double)l->tp, .share = (double)layout_sharded(l)};
    const double places = architecture_learns_positions(c) ? (double)c->context * C : 0;
    z.ends = V * C + places;
    z.layer = (all - z.ends - head) / (double)c->n_layers;
    z.layers = ceil((double)c->n_layers / (double)l->pp);
    z.tokens = (double)s->batch / (double)l->dp * (double)s->seq / (double)l->cp;
    return z;
}

/* Of a token. */
static double kept_bytes(const struct framework_kept *k, const tl_model_config *c, const struct settings *s,
                         const struct layout *l) {
    const double D = (double)c->head_size, H = (double)c->n_heads, tp = (double)l->tp;
    const double inner = k->heads * H * D + k->kv * (double)c->n_kv_heads * D + k->ff * (double)c->ff + k->lines * H +
                         k->scores * H * (double)s->seq;
    return k->stream * (double)c->channels / (l->sp ? tp : 1) + inner / tp + k->flat;
}

/* Micro-batches whose activations the first or the last stage holds. */
static double in_flight(const struct layout *l, int64_t micro, bool is_last) {
    const double p = (double)l->pp, v = (double)(l->chunks > 0 ? l->chunks : 1), m = (double)micro;
    const bool is_interleaved = l->schedule == SCHEDULE_INTERLEAVED && v > 1;
    if (is_last) return fmin(m, is_interleaved ? ((v - 1) * p + 1) / v : 1);
    return fmin(m, is_interleaved ? p + (p - 1) / v : p);
}

static void parameters_held(struct framework_held *h, const struct framework *f, const tl_model_config *c,
                            const struct settings *s, const struct layout *l, const struct sizes *z, bool is_last) {
    const bool has_both = l->pp == 1;
    const double head = has_both && !c->is_tied ? (double)c->vocabulary * (double)c->channels : 0;
    const double ends = ((is_last && !has_both ? (double)c->vocabulary * (double)c->channels : z->ends) + head) / z->tp;
    const double layers = z->layers * z->layer / z->tp, all = layers + ends, n = z->share;
    const bool is_whole = l->pp > 1 && f->copies == COPIES_GATHERED; /* a pipeline gathers its stage once */
    double gradients = f->gradients / (l->shard >= SHARD_ZERO2 ? n : 1);
    if (f->is_late && s->accum == 1 && l->dp == 1) gradients = 0;
    if (l->dp > 1) gradients += f->buckets;
    if (is_whole && s->accum > 1) gradients += 4;
    h->weights = (uint64_t)((layers * f->weights + ends * f->embedding) /
                            (l->shard == SHARD_ZERO3 || f->copies == COPIES_GATHERED ? n : 1));
    h->gradients = (uint64_t)(all * gradients);
    h->states = (uint64_t)(all * f->states / (l->shard >= SHARD_ZERO1 ? n : 1));
    if (f->copies == COPIES_ALL || is_whole || (f->copies == COPIES_GATHERED && l->shard == SHARD_ZERO2))
        h->copies = (uint64_t)(2 * all);
    else if (f->copies == COPIES_GATHERED) h->copies = (uint64_t)(2 * (ends + 2 * z->layer / z->tp));
    else if (l->shard == SHARD_ZERO3) h->copies = (uint64_t)(2 * 2 * z->layer / z->tp);
}

static void stage_price(struct framework_held *h, const struct framework *f, const tl_model_config *c,
                        const struct settings *s, const struct layout *l, enum framework_policy policy, bool is_last) {
    const bool is_gated = architecture_of(c)->is_gated, has_loss = is_last || l->pp == 1;
    const struct framework_kept *kept = f->kept[is_gated];
    const struct sizes z = sizes_of(c, s, l);
    const double masks = s->dropout > 0 ? f->dropout * (double)c->channels / (l->sp ? z.tp : 1) : 0;
    const double layer = kept_bytes(&kept[FRAMEWORK_NONE], c, s, l) + masks;
    const double own = kept_bytes(&kept[policy], c, s, l) + (policy == FRAMEWORK_FULL ? 0 : masks);
    const double unit = f->vocabulary_unit ? (double)f->vocabulary_unit : 1;
    const double V = ceil((double)c->vocabulary / unit) * unit;
    const double loss = has_loss ? V / z.tp * (l->tp > 1 ? f->logit_tp : f->logit) : 0;
    const double again = policy == FRAMEWORK_FULL && !(f->once[policy].stream > 0) ? layer : 0;
    *h = (struct framework_held){0};
    parameters_held(h, f, c, s, l, &z, is_last);
    h->activations = (uint64_t)(in_flight(l, s->accum, is_last && l->pp > 1) * z.tokens * z.layers * own);
    h->loss = (uint64_t)(z.tokens * fmax(loss, again));
    h->buffers = (uint64_t)(z.tokens * kept_bytes(&f->once[policy], c, s, l));
    h->held = h->weights + h->gradients + h->states + h->copies + h->activations + h->loss + h->buffers;
    h->overhead = (uint64_t)((double)h->held * f->overhead + f->fixed);
    h->total = h->held + h->overhead;
}

bool framework_price(const struct framework *f, const tl_model_config *c, const struct settings *s,
                     const struct layout *l, struct framework_held *h) {
    enum framework_policy policy = FRAMEWORK_NONE;
    struct framework_held last;
    if (!can_describe(f, c, s, l) || !policy_find(f, s, &policy)) return false;
    stage_price(h, f, c, s, l, policy, false);
    if (l->pp == 1) return true;
    stage_price(&last, f, c, s, l, policy, true);
    if (last.total > h->total) *h = last;
    return true;
}

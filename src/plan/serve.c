#include "plan/serve.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "plan/network.h"
#include "nn/architecture.h"

/* ---- Formats ---- */

const struct serve_format serve_formats[] = {
    {"bf16", 16, HARDWARE_BF16, ""},
    {"fp8", 8, HARDWARE_F8, "a scale for each tensor"},
    {"mxfp8", 8.25, HARDWARE_F8, "8-bit scales of 32"},
    {"int8", 8, HARDWARE_I8, "a scale for each channel and token"},
    {"q8_0", 8.5, HARDWARE_BF16, "f16 scales of 32; multiplied in bf16"},
    {"int4", 4.15625, HARDWARE_BF16, "f16 scales and 4-bit zeros of 128 (GPTQ, AWQ); multiplied in bf16"},
    {"q4_0", 4.5, HARDWARE_BF16, "f16 scales of 32; multiplied in bf16"},
    {"nvfp4", 4.5, HARDWARE_F4, "f8e4m3 scales of 16"},
    {"mxfp4", 4.25, HARDWARE_F4, "8-bit scales of 32"},
    {NULL, 0, HARDWARE_COUNT, NULL},
};
const struct serve_format serve_caches[] = {
    {"bf16", 16, HARDWARE_BF16, ""},
    {"fp8", 8, HARDWARE_F8, "a scale for each layer"},
    {"int8", 8.25, HARDWARE_BF16, "f16 scales of 64"},
    {"int4", 5, HARDWARE_BF16, "f16 scales and zeros of 32"},
    {"nvfp4", 4.5, HARDWARE_BF16, "f8e4m3 scales of 16"},
    {NULL, 0, HARDWARE_COUNT, NULL},
};

const struct serve_format *serve_format_find(const struct serve_format *list, const char *name) {
    const char *names[16];
    char shown[64], meant[TEXT_MEANT], all[160] = "";
    int n = 0;
    for (; list[n].name; n++) {
        if (!strcmp(list[n].name, name)) return &list[n];
        names[n] = list[n].name;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", n ? ", " : "", names[n]);
    }
    error_set(TL_ERROR_USE, "there is no format \"%s\"%s (%s)", text_show(shown, sizeof shown, name),
              text_meant(meant, text_nearest(name, names, n)), all);
    return NULL;
}

/* ---- Parts of a step ---- */

static const double wide_bytes = 2; /* of embeddings, head, norms and activations: bf16 */

/* What a device holds of the weights: matrices of layers in the format, the rest wide. Embedding and head are divided
 * by vocabulary. */
static double weights_of(const struct napkin_model *m, double bits, double devices) {
    const double layers = m->matmul - m->head + m->parameters - m->active; /* all experts */
    return (layers * bits / 8 + (m->parameters - layers) * wide_bytes) / devices;
}

/* Of them, what a step of so many tokens reads: an embedding that is not the head is looked up. */
static double read_of(const struct napkin_model *m, double bits, double devices, double tokens) {
    const double layers = napkin_read(m, tokens) - m->head;
    return (layers * bits / 8 + m->head * wide_bytes) / devices;
}

/* Heads of keys and values are not divided below one. */
static double cache_of(const tl_model_config *c, double bits, double devices) {
    const double heads = fmax((double)c->n_kv_heads / devices, 1);
    if (c->kv_rank) return (double)(c->n_layers * architecture_cache_numbers(c)) * bits / 8; /* all heads share them */
    return (double)c->n_layers * 2 * heads * (double)c->head_size * bits / 8;
}

static double peak_of(const struct serve_question *q, const struct serve_format *f) {
    const struct plan_target *t = q->target;
    const double narrow = t->chip ? hardware_value(t->chip, f->peak) : 0, wide = t->speed.peak[TL_BF16];
    return f->peak != HARDWARE_BF16 && narrow > 0 && !t->has_given_peak ? narrow : wide;
}

/* Two sums over devices in a layer, of a row for each token, at the speed of the wires. */
static double messages_s(const struct serve_question *q, double tokens) {
    const tl_model_config *c = &q->config;
    if (!(q->devices > 1)) return 0;
    const struct network net = network_of(q->target->chip);
    const double bytes = tokens * (double)c->channels * wide_bytes, n = q->devices;
    const double each = net.adds ? bytes : 2 * (n - 1) / n * bytes;
    return net.link > 0 ? 2 * (double)c->n_layers * each / net.link : 0;
}

struct pass { /* of some tokens of each of some sequences, whose caches hold `context` tokens */
    double sequences, tokens, context, heads; /* heads: tokens of each whose logits are wanted */
};

static double pass_s(const struct serve_question *q, const struct serve_answer *a, const struct pass *p,
                     bool *is_compute) {
    const struct napkin_model m = napkin_model_of(&q->config);
    const struct plan_target *t = q->target;
    const double layers = m.matmul - m.head, rows = p->sequences * p->tokens;
    const double attention = 4 * m.layers * m.attention * rows * (p->context + (p->tokens + 1) / 2);
    const double narrow = 2 * layers * rows, wide = 2 * m.head * p->sequences * p->heads + attention;
    const double arithmetic = (narrow / peak_of(q, a->weights) + wide / t->speed.peak[TL_BF16]) / q->devices;
    const double bytes = read_of(&m, a->weights->bits, q->devices, rows) +
                         a->cache_token_bytes * p->sequences * (p->context + p->tokens);
    const double memory = bytes / t->speed.bandwidth;
    if (is_compute) *is_compute = arithmetic > memory;
    return fmax(arithmetic, memory) + messages_s(q, rows);
}

struct serve_point serve_at(const struct serve_question *q, const struct serve_answer *a, double batch) {
    const struct pass step = {batch, 1, q->prompt + q->n_new / 2, 1};
    struct serve_point p = {.batch = batch};
    p.decode_s = pass_s(q, a, &step, &p.is_compute);
    p.tokens_per_s = batch / p.decode_s;
    /* each request costs the time of its prompt, and its share of the steps of its tokens */
    p.served_per_s = q->n_new / (a->prefill_s + q->n_new * p.decode_s / batch);
    p.money = q->options.price_per_hour * q->devices / HOUR_S * 1e6 / p.served_per_s;
    return p;
}

/* ---- Memory ---- */

static void memory_find(const struct serve_question *q, struct serve_answer *a) {
    const tl_model_config *c = &q->config;
    const struct napkin_model m = napkin_model_of(c);
    const double page = (double)(q->options.page ? q->options.page : SERVE_PAGE), tokens = q->prompt + q->n_new;
    const double chunk = fmin((double)(q->options.chunk ? q->options.chunk : SERVE_CHUNK), q->prompt);
    const double mlp = (double)(c->n_experts ? c->n_chosen * architecture_expert_ff(c) : c->ff);
    a->weights_bytes = weights_of(&m, a->weights->bits, q->devices);
    a->cache_token_bytes = cache_of(c, a->cache->bits, q->devices);
    /* the residual twice, what attention and the MLP have between their matrices, logits of a row in f32 */
    a->work_bytes = chunk * wide_bytes * (2 * (double)c->channels + (3 * m.attention + 2 * mlp) / q->devices);
    a->sequence_bytes = ceil(tokens / page) * page * a->cache_token_bytes;
    a->page_waste = 1 - tokens / (ceil(tokens / page) * page);
}

static double logits_bytes(const struct serve_question *q) { return 4 * (double)q->config.vocabulary / q->devices; }

static double batch_most(const struct serve_question *q, const struct serve_answer *a) {
    const double limit = (double)plan_target_limit(q->target);
    if (!(limit > 0)) return -1;
    return fmax(floor((limit - a->weights_bytes - a->work_bytes) / (a->sequence_bytes + logits_bytes(q))), 0);
}

/* The largest batch of at most `most` whose steps keep the latency: they grow with the batch. */
static double batch_within(const struct serve_question *q, const struct serve_answer *a, double most) {
    double low = 0, high = fmax(most, 1);
    if (serve_at(q, a, high).decode_s <= q->options.latency_s) return most;
    while (high - low > 1) {
        const double middle = floor((low + high) / 2);
        if (serve_at(q, a, middle).decode_s <= q->options.latency_s) low = middle;
        else high = middle;
    }
    return low;
}

/* ---- Speculative decoding ---- */

/* A draft of k tokens, each accepted with probability p, yields (1 - p^(k+1)) / (1 - p) tokens for one pass of the
 * model over k + 1 (Leviathan et al. 2023). */
static bool draft_find(const struct serve_question *q, struct serve_answer *a) {
    const double k = (double)q->options.draft_tokens, p = q->options.acceptance;
    struct serve_question draft = *q;
    struct serve_answer its = *a;
    if (!q->options.draft) return true;
    if (!tl_model_preset(q->options.draft, &draft.config)) return false;
    its.cache_token_bytes = cache_of(&draft.config, a->cache->bits, q->devices);
    const double context = q->prompt + q->n_new / 2;
    a->guessed = p < 1 ? (1 - pow(p, k + 1)) / (1 - p) : k + 1;
    a->draft_s = pass_s(&draft, &its, &(struct pass){1, 1, context, 1}, NULL);
    a->verify_s = pass_s(q, a, &(struct pass){1, k + 1, context, k + 1}, NULL);
    a->speedup = a->guessed * serve_at(q, a, 1).decode_s / (k * a->draft_s + a->verify_s);
    return true;
}

/* ---- The answer ---- */

bool serve_price(const struct serve_question *q, struct serve_answer *a) {
    const struct serve_options *o = &q->options;
    const struct predict_machine *speed = &q->target->speed;
    memset(a, 0, sizeof *a);
    if (!(a->weights = serve_format_find(serve_formats, o->weights ? o->weights : "bf16")) ||
        !(a->cache = serve_format_find(serve_caches, o->cache ? o->cache : "bf16")))
        return false;
    if (q->devices > 1 && fmod((double)q->config.n_heads, q->devices) != 0)
        return error_set(TL_ERROR_USE, "tp: %.0f devices cannot divide %d heads evenly", q->devices,
                         (int)q->config.n_heads);
    memory_find(q, a);
    a->largest_batch = batch_most(q, a);
    a->latency_batch = -1;
    if (!(speed->bandwidth > 0 && speed->peak[TL_BF16] > 0)) return true;
    a->is_wide = a->weights->peak != HARDWARE_BF16 && peak_of(q, a->weights) == speed->peak[TL_BF16];
    a->prefill_s = pass_s(q, a, &(struct pass){1, q->prompt, 0, 1}, NULL);
    a->prefill_tokens_per_s = q->prompt / a->prefill_s;
    const double most = a->largest_batch >= 0 ? fmin(a->largest_batch, 1 << 16) : 1 << 10;
    if (o->latency_s > 0) a->latency_batch = batch_within(q, a, most);
    for (double batch = 1; batch <= most && a->n_points < SERVE_POINTS; batch *= 2)
        a->point[a->n_points++] = serve_at(q, a, batch);
    if (a->n_points && a->n_points < SERVE_POINTS && a->point[a->n_points - 1].batch < most)
        a->point[a->n_points++] = serve_at(q, a, most);
    return draft_find(q, a);
}

/* ---- JSON ---- */

static json_t *known(double x) { return x > 0 ? json_real(x) : json_null(); }

json_t *serve_json(const struct serve_question *q, const struct serve_answer *a) {
    json_t *points = json_array();
    for (int i = 0; i < a->n_points; i++) {
        const struct serve_point *p = &a->point[i];
        json_array_append_new(points, json_pack("{s:f, s:f, s:f, s:f, s:o, s:s}", "batch", p->batch, "decode_s",
                                                p->decode_s, "tokens_per_s", p->tokens_per_s, "served_per_s",
                                                p->served_per_s, "money_per_million", known(p->money), "bound",
                                                p->is_compute ? "compute" : "memory"));
    }
    json_t *root = json_pack("{s:f, s:s, s:s, s:b, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:f, s:f, s:o}", "devices",
                             q->devices, "weights", a->weights->name, "cache", a->cache->name, "in_bf16",
                             (int)(a->is_wide || a->weights->peak == HARDWARE_BF16), "weights_bytes", a->weights_bytes,
                             "cache_token_bytes", a->cache_token_bytes, "work_bytes", a->work_bytes, "sequence_bytes",
                             a->sequence_bytes, "page_waste", a->page_waste, "prefill_s", known(a->prefill_s),
                             "prefill_tokens_per_s", known(a->prefill_tokens_per_s), "largest_batch", a->largest_batch,
                             "latency_batch", a->latency_batch, "batches", points);
    if (root && a->guessed > 0)
        json_object_set_new(root, "draft",
                            json_pack("{s:s, s:f, s:f, s:f, s:f}", "model", q->options.draft, "tokens_per_round",
                                      a->guessed, "draft_s", a->draft_s, "verify_s", a->verify_s, "speedup",
                                      a->speedup));
    return root;
}

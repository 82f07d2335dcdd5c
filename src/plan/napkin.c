#include "plan/napkin.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "nn/architecture.h"

/* ---- FLOPs ---- */

struct napkin_model napkin_model_of(const tl_model_config *c) {
    double L = (double)c->n_layers, C = (double)c->channels, V = (double)c->vocabulary, F = (double)c->ff;
    double q = (double)c->n_heads * (double)c->head_size, kv = (double)c->n_kv_heads * (double)c->head_size;
    struct napkin_model m = {.parameters = (double)tl_model_config_parameters(c),
                             .active = (double)tl_model_config_active_parameters(c),
                             .chosen = c->n_experts ? (double)c->n_chosen / (double)c->n_experts : 1,
                             .layers = L,
                             .channels = C,
                             .attention = q,
                             .vocabulary = V,
                             .is_tied = c->is_tied,
                             .embedding = V * C,
                             .head = V * C};
    if (c->n_experts) F = (double)architecture_expert_ff(c) * (double)c->n_chosen;
    m.matmul =
        L * (2 * C * (q + kv) + (architecture_of(c)->is_gated ? 3 : 2) * C * F + C * (double)c->n_experts) + V * C;
    if (c->n_shared || c->kv_rank) m.matmul = m.active - (c->is_tied ? 0 : m.embedding); /* layers of two kinds */
    if (c->family == TL_DEEP_LINEAR) { /* L square matrices, and a row that gives one number */
        m.matmul = L * C * C + C;
        m.attention = m.embedding = m.head = 0;
    }
    return m;
}

/* An expert is left out by all of n tokens with probability (1 - k/E)^n. */
double napkin_read(const struct napkin_model *m, double tokens) {
    if (!(m->chosen < 1)) return m->matmul;
    const double idle = m->parameters - m->active, taken = 1 - pow(1 - m->chosen, fmax(tokens, 1));
    return m->matmul + idle * (taken - m->chosen) / (1 - m->chosen);
}

struct napkin_model napkin_gpt(double L, double h, double V, double S) {
    const double parameters = V * h + S * h + L * (12 * h * h + 13 * h) + 2 * h;
    return (struct napkin_model){.parameters = parameters,
                                 .active = parameters,
                                 .chosen = 1,
                                 .matmul = 12 * L * h * h + V * h,
                                 .embedding = V * h,
                                 .head = V * h,
                                 .is_tied = true,
                                 .layers = L,
                                 .channels = h,
                                 .attention = h,
                                 .vocabulary = V};
}

/* Attention of one token over S others: two products of 2 L d S forward, four backward. */
static double attention_full(const struct napkin_model *m, double S) { return 12 * m->layers * m->attention * S; }
static double attention_causal(const struct napkin_model *m, double S) { return 6 * m->layers * m->attention * S; }

static double flops_6n(const struct napkin_model *m, double S) {
    (void)S;
    return 6 * m->active;
}
static double flops_palm(const struct napkin_model *m, double S) { return 6 * m->active + attention_full(m, S); }
static double flops_causal(const struct napkin_model *m, double S) { return 6 * m->active + attention_causal(m, S); }
/* The table of an untied embedding is looked up, not multiplied. */
static double flops_untied(const struct napkin_model *m, double S) {
    return 6 * (m->active - (m->is_tied ? 0 : m->embedding)) + attention_full(m, S);
}
static double flops_matmul(const struct napkin_model *m, double S) { return 6 * m->matmul + attention_full(m, S); }
static double flops_matmul_causal(const struct napkin_model *m, double S) {
    return 6 * m->matmul + attention_causal(m, S);
}
static double flops_hfu_full(const struct napkin_model *m, double S) { return flops_palm(m, S) * 4 / 3; }
/* The layers run forward twice, the head once. */
static double flops_hfu_layers(const struct napkin_model *m, double S) {
    return 8 * (m->matmul - m->head) + 6 * m->head + attention_full(m, S) * 4 / 3;
}
static double flops_hfu_selective(const struct napkin_model *m, double S) {
    return 6 * m->matmul + 2 * attention_full(m, S);
}
static double macs_palm(const struct napkin_model *m, double S) { return flops_palm(m, S) / 2; }

const struct napkin_convention napkin_conventions[] = {
    {"6n", "6N", "Kaplan et al. 2020, with all parameters", false, flops_6n},
    {"palm", "6N + 12 L d S", "PaLM, appendix B; llm-foundry", false, flops_palm},
    {"causal", "6N + 6 L d S", "llm.c", false, flops_causal},
    {"untied", "6(N - V C) + 12 L d S", "torchtitan: without an input embedding that is not tied", false, flops_untied},
    {"matmul", "6 M + 12 L d S", "Narayanan et al. 2021, Korthikanti et al. 2022, NeMo 24.12; M: weights of products",
     false, flops_matmul},
    {"matmul_causal", "6 M + 6 L d S", "MaxText, llmq, current Megatron-LM", false, flops_matmul_causal},
    {"hfu_full", "4/3 (6N + 12 L d S)", "llm-foundry with checkpointing", true, flops_hfu_full},
    {"hfu_layers", "8(M - V C) + 6 V C + 16 L d S", "Narayanan et al. 2021: every layer is computed again", true,
     flops_hfu_layers},
    {"hfu_selective", "6 M + 24 L d S", "Korthikanti et al. 2022: attention is computed again", true,
     flops_hfu_selective},
    {"macs_palm", "3N + 6 L d S", "multiply-adds of palm: half its FLOPs", false, macs_palm},
    {NULL, NULL, NULL, false, NULL},
};

const struct napkin_convention *napkin_convention_find(const char *name) {
    const char *names[16];
    char shown[64], meant[TEXT_MEANT];
    int n = 0;
    for (; napkin_conventions[n].name; n++) {
        names[n] = napkin_conventions[n].name;
        if (!strcmp(names[n], name)) return &napkin_conventions[n];
    }
    error_set(TL_ERROR_USE,
              "there is no convention \"%s\"%s (palm, causal, matmul, ...: `tally napkin flops` lists them)",
              text_show(shown, sizeof shown, name), text_meant(meant, text_nearest(name, names, n)));
    return NULL;
}

/* ---- Time ---- */

double napkin_seconds(double flops, double n_devices, double peak, double share) {
    return flops / (n_devices * peak * share);
}

/* ---- Bytes ---- */

const char *const napkin_keep_names[KEEP_COUNT] = {"none", "sequence", "selective", "sequence_selective", "full"};

/* Of 34 s b h bytes per layer, 24 are divided among the t devices of tensor parallelism and 10 (norms, dropout,
 * inputs) are not, unless the sequence is divided too; 5 a s^2 b are the attention matrices. An interleaved schedule
 * keeps a little more: p - 1 of p m chunks. */
double napkin_activations(const struct napkin_shape *s, enum napkin_keep keep) {
    static const double not_divided = 10, divided = 24;
    double sbh = s->seq * s->batch * s->channels, t = s->tensor;
    double matrices = 5 * s->heads * s->seq * s->seq * s->batch * s->layers / t;
    double whole = keep == KEEP_SEQUENCE || keep == KEEP_BOTH ? (not_divided + divided) / t : not_divided + divided / t;
    double more = s->interleave > 0 ? 1 + (s->pipeline - 1) / (s->pipeline * s->interleave) : 1;
    if (keep == KEEP_INPUTS) return 2 * sbh * s->layers;
    return (sbh * s->layers * whole + (keep == KEEP_ALL || keep == KEEP_SEQUENCE ? matrices : 0)) * more;
}

double napkin_state(const struct napkin_shape *s, double bytes_per_parameter) {
    return bytes_per_parameter * 12 * s->layers * s->channels * s->channels / (s->tensor * s->pipeline);
}

/* ---- References ---- */

const struct napkin_reference napkin_references[] = {
    {"GPT-3 175B", 3.14e23, "Brown et al. 2020", false},
    {"Chinchilla 70B", 5.76e23, "Hoffmann et al. 2022", false},
    {"PaLM 540B", 2.53e24, "Chowdhery et al. 2022", false},
    {"EU AI Act, systemic risk", 1e25, "Regulation (EU) 2024/1689, article 51", false},
    {"GPT-4", 2e25, "estimates by third parties; never published", true},
    {"Llama 3.1 405B", 3.8e25, "Llama team 2024", false},
    {"US reporting threshold of 2023", 1e26, "Executive Order 14110, since revoked", false},
    {NULL, 0, NULL, false},
};

#include "transformer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Parameters ---- */

enum { /* what a block's parameters are, by family */
       NORM1_WEIGHT,
       NORM1_BIAS,
       NORM2_WEIGHT,
       NORM2_BIAS,
       QKV,
       QKV_BIAS,
       PROJECTION,
       PROJECTION_BIAS,
       UP,
       UP_BIAS,
       DOWN,
       DOWN_BIAS, /* GPT-2 */
       Q = QKV,
       K = QKV_BIAS,
       V = PROJECTION_BIAS,
       GATE = UP_BIAS /* Llama: no biases */
};

/* A parameter with its two moments, normal(0, std), or `fill` when std is 0. */
static tl_tensor *parameter(struct transformer *m, tl_device *device, double std, double fill, int rank,
                            const int64_t *shape) {
    tl_scope scope = tl_scope_begin();
    tl_tensor *x = std > 0 ? tl_normal(rank, shape, 0, std, m->config.dtype, device)
                           : tl_full(rank, shape, fill, m->config.dtype, device);
    struct parameter *p = &m->all[m->n_all++];
    tl_dtype state = m->config.dtype == TL_F64 ? TL_F64 : TL_F32;
    p->value = tl_keep(tl_requires_grad(tl_set_purpose(x, TL_PARAMETER), true));
    p->m = tl_keep(tl_set_purpose(tl_zeros(rank, shape, state, device), TL_OPTIMIZER));
    p->v = tl_keep(tl_set_purpose(tl_zeros(rank, shape, state, device), TL_OPTIMIZER));
    tl_scope_end(scope);
    return p->value;
}

static void gpt2_block_new(struct transformer *m, tl_device *device, tl_tensor **w) {
    int64_t C = m->config.channels, F = m->config.ff;
    double std = 0.02, residual = 0.02 / sqrt(2.0 * m->config.n_layers); /* GPT-2's scaling of residual projections */
    w[NORM1_WEIGHT] = parameter(m, device, 0, 1, TL_SHAPE(C));
    w[NORM1_BIAS] = parameter(m, device, 0, 0, TL_SHAPE(C));
    w[QKV] = parameter(m, device, std, 0, TL_SHAPE(3 * C, C));
    w[QKV_BIAS] = parameter(m, device, 0, 0, TL_SHAPE(3 * C));
    w[PROJECTION] = parameter(m, device, residual, 0, TL_SHAPE(C, C));
    w[PROJECTION_BIAS] = parameter(m, device, 0, 0, TL_SHAPE(C));
    w[NORM2_WEIGHT] = parameter(m, device, 0, 1, TL_SHAPE(C));
    w[NORM2_BIAS] = parameter(m, device, 0, 0, TL_SHAPE(C));
    w[UP] = parameter(m, device, std, 0, TL_SHAPE(F, C));
    w[UP_BIAS] = parameter(m, device, 0, 0, TL_SHAPE(F));
    w[DOWN] = parameter(m, device, residual, 0, TL_SHAPE(C, F));
    w[DOWN_BIAS] = parameter(m, device, 0, 0, TL_SHAPE(C));
}

static void llama_block_new(struct transformer *m, tl_device *device, tl_tensor **w) {
    int64_t C = m->config.channels, F = m->config.ff, kv = C / m->config.n_heads * m->config.n_kv_heads;
    double std = 0.02;
    w[NORM1_WEIGHT] = parameter(m, device, 0, 1, TL_SHAPE(C));
    w[Q] = parameter(m, device, std, 0, TL_SHAPE(C, C));
    w[K] = parameter(m, device, std, 0, TL_SHAPE(kv, C));
    w[V] = parameter(m, device, std, 0, TL_SHAPE(kv, C));
    w[PROJECTION] = parameter(m, device, std, 0, TL_SHAPE(C, C));
    w[NORM2_WEIGHT] = parameter(m, device, 0, 1, TL_SHAPE(C));
    w[GATE] = parameter(m, device, std, 0, TL_SHAPE(F, C));
    w[UP] = parameter(m, device, std, 0, TL_SHAPE(F, C));
    w[DOWN] = parameter(m, device, std, 0, TL_SHAPE(C, F));
}

struct transformer *transformer_new(const struct transformer_config *config, tl_device *device) {
    struct transformer *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    int64_t C = config->channels;
    m->config = *config;
    m->all = calloc((size_t)config->n_layers * BLOCK_PARAMETERS + 5, sizeof *m->all);
    m->blocks = calloc((size_t)config->n_layers, sizeof *m->blocks);
    if (!m->all || !m->blocks) {
        transformer_free(m);
        return NULL;
    }
    tl_phase phase = tl_set_phase(TL_OTHER);
    tl_scope scope = tl_scope_enter("model");
    m->embedding = parameter(m, device, 0.02, 0, TL_SHAPE(config->vocabulary, C));
    if (config->family == GPT2) m->positions = parameter(m, device, 0.02, 0, TL_SHAPE(config->time, C));
    for (int l = 0; l < config->n_layers; l++) {
        char name[32];
        snprintf(name, sizeof name, "blocks.%d", l);
        tl_scope block = tl_scope_enter(name);
        (config->family == GPT2 ? gpt2_block_new : llama_block_new)(m, device, m->blocks[l]);
        tl_scope_end(block);
    }
    m->norm_weight = parameter(m, device, 0, 1, TL_SHAPE(C));
    if (config->family == GPT2) m->norm_bias = parameter(m, device, 0, 0, TL_SHAPE(C));
    else m->head = parameter(m, device, 0.02, 0, TL_SHAPE(config->vocabulary, C));
    tl_scope_end(scope);
    tl_set_phase(phase);
    if (tl_error() == TL_OK) return m;
    transformer_free(m);
    return NULL;
}

void transformer_free(struct transformer *m) {
    if (!m) return;
    for (int i = 0; i < m->n_all; i++) {
        tl_drop(m->all[i].value);
        tl_drop(m->all[i].m);
        tl_drop(m->all[i].v);
    }
    free(m->all);
    free(m->blocks);
    free(m);
}

int64_t transformer_parameters(const struct transformer *m) {
    int64_t n = 0;
    for (int i = 0; i < m->n_all; i++) n += tl_numel(m->all[i].value);
    return n;
}

/* ---- Forward ---- */

/* x (B,T,C) -> (B,T,C): attention on itself. GPT-2 reads q, k, v from one packed product, by strides. */
static tl_tensor *gpt2_attention(const struct transformer_config *c, tl_tensor **w, tl_tensor *x) {
    tl_scope scope = tl_scope_enter("attn");
    int64_t B = c->batch, T = c->time, C = c->channels, H = c->n_heads;
    tl_tensor *h = tl_layer_norm(x, w[NORM1_WEIGHT], w[NORM1_BIAS], 1e-5);
    tl_tensor *qkv = tl_view(tl_linear(h, w[QKV], w[QKV_BIAS]), TL_SHAPE(B, T, 3, H, C / H));
    tl_tensor *q = tl_select(qkv, 2, 0), *k = tl_select(qkv, 2, 1), *v = tl_select(qkv, 2, 2); /* (B,T,H,D) */
    tl_tensor *o = tl_attention(q, k, v, true, 0);
    tl_tensor *y = tl_linear(tl_view(o, TL_SHAPE(B, T, C)), w[PROJECTION], w[PROJECTION_BIAS]);
    return tl_scope_return(scope, tl_add(x, tl_dropout(y, c->dropout)));
}

static tl_tensor *gpt2_mlp(const struct transformer_config *c, tl_tensor **w, tl_tensor *x) {
    tl_scope scope = tl_scope_enter("mlp");
    tl_tensor *h = tl_layer_norm(x, w[NORM2_WEIGHT], w[NORM2_BIAS], 1e-5);
    h = tl_gelu(tl_linear(h, w[UP], w[UP_BIAS])); /* (B,T,F) */
    return tl_scope_return(scope, tl_add(x, tl_dropout(tl_linear(h, w[DOWN], w[DOWN_BIAS]), c->dropout)));
}

static tl_tensor *llama_attention(const struct transformer_config *c, tl_tensor **w, tl_tensor *x) {
    tl_scope scope = tl_scope_enter("attn");
    int64_t B = c->batch, T = c->time, C = c->channels, H = c->n_heads, D = C / H, kv = c->n_kv_heads;
    tl_tensor *h = tl_rms_norm(x, w[NORM1_WEIGHT], 1e-5);
    tl_tensor *q = tl_rope(tl_view(tl_linear(h, w[Q], NULL), TL_SHAPE(B, T, H, D)), 500000, 0);
    tl_tensor *k = tl_rope(tl_view(tl_linear(h, w[K], NULL), TL_SHAPE(B, T, kv, D)), 500000, 0);
    tl_tensor *v = tl_view(tl_linear(h, w[V], NULL), TL_SHAPE(B, T, kv, D));
    tl_tensor *o = tl_view(tl_attention(q, k, v, true, 0), TL_SHAPE(B, T, C));
    return tl_scope_return(scope, tl_add(x, tl_linear(o, w[PROJECTION], NULL)));
}

static tl_tensor *llama_mlp(tl_tensor **w, tl_tensor *x) {
    tl_scope scope = tl_scope_enter("mlp");
    tl_tensor *h = tl_rms_norm(x, w[NORM2_WEIGHT], 1e-5);
    tl_tensor *gate = tl_linear(h, w[GATE], NULL), *up = tl_linear(h, w[UP], NULL); /* (B,T,F) */
    h = tl_swiglu(gate, up);
    return tl_scope_return(scope, tl_add(x, tl_linear(h, w[DOWN], NULL)));
}

static tl_tensor *block(void *context, int l, tl_tensor *x) {
    struct transformer *m = context;
    tl_tensor **w = m->blocks[l];
    char name[32];
    snprintf(name, sizeof name, "blocks.%d", l);
    tl_scope scope = tl_scope_enter(name);
    if (m->config.family == GPT2) x = gpt2_mlp(&m->config, w, gpt2_attention(&m->config, w, x));
    else x = llama_mlp(w, llama_attention(&m->config, w, x));
    return tl_scope_return(scope, x);
}

tl_tensor *transformer_loss(struct transformer *m, tl_tensor *tokens, tl_tensor *targets) {
    const struct transformer_config *c = &m->config;
    tl_scope scope = tl_scope_enter("model");
    int64_t B = c->batch, T = c->time, C = c->channels;
    tl_tensor *x = tl_embedding(m->embedding, tokens); /* (B,T,C) */
    if (m->positions) x = tl_add(x, m->positions);
    x = tl_checkpoint_layers(block, m, c->n_layers, c->policy, 0, x);
    x = c->family == GPT2 ? tl_layer_norm(x, m->norm_weight, m->norm_bias, 1e-5) : tl_rms_norm(x, m->norm_weight, 1e-5);
    tl_tensor *logits = tl_linear(tl_view(x, TL_SHAPE(B * T, C)), m->head ? m->head : m->embedding, NULL); /* (B*T,V) */
    return tl_scope_return(scope, tl_cross_entropy(logits, tl_view(targets, TL_SHAPE(B * T))));
}

/* ---- Training ---- */

bool transformer_step(struct transformer *m, tl_tensor *tokens, tl_tensor *targets, double lr, tl_tensor **loss) {
    tl_scope scope = tl_scope_begin();
    tl_tensor *l = transformer_loss(m, tokens, targets);
    bool ok = tl_backward(l, NULL, 0);
    tl_adamw_options options = {
        .lr = lr, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .step = ++m->step};
    tl_scope update = tl_scope_enter("update");
    for (int i = 0; ok && i < m->n_all; i++) {
        struct parameter *p = &m->all[i];
        ok = tl_adamw_(p->value, tl_grad_of(p->value), p->m, p->v, &options);
        tl_zero_grad(p->value, false);
    }
    tl_scope_end(update);
    if (ok && loss) *loss = tl_keep(tl_detach(l));
    return tl_scope_end(scope) && ok;
}

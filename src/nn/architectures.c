/* architectures.c: one row for each family of transformers. To add one: a number in tl_family, and here its row, with
 * its names of modules and its keys of config.json if no other family has the same. */
#include "nn/architecture.h"

#include <string.h>

#include "nn/model.h"

/* ---- Keys ---- */

#define AT(field) offsetof(tl_model_config, field)
#define SIZE(name, other, field, fallback) \
    { name, other, KEY_SIZE, AT(field), fallback, NULL, NULL }
#define REAL(name, field, fallback) \
    { name, NULL, KEY_REAL, AT(field), fallback, NULL, NULL }
#define COUNT(name, field, fallback) \
    { name, NULL, KEY_COUNT, AT(field), fallback, NULL, NULL }
#define TRUTH(name, field, fallback) \
    { name, NULL, KEY_TRUTH, AT(field), fallback, NULL, NULL }
#define PLAIN(name, kind) \
    { name, NULL, kind, 0, 0, NULL, NULL }
#define FIXED(name, value) \
    { name, NULL, KEY_FIXED, 0, value, NULL, NULL }
#define TEXT(name, text, also) \
    { name, NULL, KEY_TEXT, 0, 0, text, also }
#define CAP(name, field, fallback) \
    { name, NULL, KEY_CAP, AT(field), fallback, NULL, NULL }
#define END \
    { NULL, NULL, KEY_UNUSED, 0, 0, NULL, NULL }

#define GPT2_SIZES                                                                                                     \
    SIZE("n_layer", "num_hidden_layers", n_layers, KEY_NEEDED),                                                        \
        SIZE("n_head", "num_attention_heads", n_heads, KEY_NEEDED),                                                    \
        SIZE("n_embd", "hidden_size", channels, KEY_NEEDED), SIZE("n_inner", NULL, ff, 0),                             \
        SIZE("n_positions", "n_ctx", context, 1024), SIZE("vocab_size", NULL, vocabulary, KEY_NEEDED),                 \
        REAL("layer_norm_epsilon", norm_eps, 1e-5), REAL("resid_pdrop", dropout, 0.1),                                 \
        PLAIN("embd_pdrop", KEY_DROPOUT), PLAIN("attn_pdrop", KEY_DROPOUT), REAL("initializer_range", init_std, 0.02), \
        TRUTH("tie_word_embeddings", is_tied, true), PLAIN("scale_attn_weights", KEY_TRUE),                            \
        PLAIN("add_cross_attention", KEY_FALSE)

static const struct key gpt2_keys[] = {GPT2_SIZES, TEXT("activation_function", "gelu_new", "gelu_pytorch_tanh"),
                                       PLAIN("scale_attn_by_inverse_layer_idx", KEY_FALSE),
                                       PLAIN("position_embedding_type", KEY_POSITIONS), END};

/* What all families with Llama's names of keys share. */
static const struct key llama_keys[] = {SIZE("num_hidden_layers", NULL, n_layers, KEY_NEEDED),
                                        SIZE("num_attention_heads", NULL, n_heads, KEY_NEEDED),
                                        SIZE("num_key_value_heads", NULL, n_kv_heads, 0),
                                        SIZE("head_dim", NULL, head_size, 0),
                                        SIZE("hidden_size", NULL, channels, KEY_NEEDED),
                                        SIZE("intermediate_size", NULL, ff, KEY_NEEDED),
                                        SIZE("max_position_embeddings", NULL, context, 2048),
                                        SIZE("vocab_size", NULL, vocabulary, KEY_NEEDED),
                                        REAL("attention_dropout", dropout, 0),
                                        REAL("initializer_range", init_std, 0.02),
                                        PLAIN("rope_interleaved", KEY_FALSE),
                                        END};
#define MOST_SWIGLU_KEYS TEXT("hidden_act", "silu", NULL), TRUTH("tie_word_embeddings", is_tied, false)
#define SWIGLU_KEYS REAL("rms_norm_eps", norm_eps, 1e-6), MOST_SWIGLU_KEYS

static const struct key llama_more[] = {SWIGLU_KEYS, PLAIN("attention_bias", KEY_BIASES),
                                        TRUTH("mlp_bias", has_mlp_bias, false), END};
static const struct key qwen2_more[] = {SWIGLU_KEYS, PLAIN("attention_bias", KEY_UNUSED), PLAIN("mlp_bias", KEY_FALSE),
                                        PLAIN("use_mrope", KEY_FALSE), END};
static const struct key mistral_more[] = {SWIGLU_KEYS, END};
static const struct key attention_bias_more[] = {SWIGLU_KEYS, PLAIN("attention_bias", KEY_BIASES), END};
static const struct key olmo2_more[] = {REAL("rms_norm_eps", norm_eps, 1e-5), MOST_SWIGLU_KEYS,
                                        PLAIN("attention_bias", KEY_BIASES), END};

static const struct key gpt_bigcode_keys[] = {GPT2_SIZES,
                                              PLAIN("multi_query", KEY_MULTI_QUERY),
                                              TEXT("activation_function", "gelu_pytorch_tanh", "gelu_new"),
                                              PLAIN("attention_softmax_in_fp32", KEY_UNUSED),
                                              PLAIN("scale_attention_softmax_in_fp32", KEY_UNUSED),
                                              END};
static const struct key gpt_neox_keys[] = {SIZE("num_hidden_layers", NULL, n_layers, KEY_NEEDED),
                                           SIZE("num_attention_heads", NULL, n_heads, KEY_NEEDED),
                                           SIZE("hidden_size", NULL, channels, KEY_NEEDED),
                                           SIZE("intermediate_size", NULL, ff, KEY_NEEDED),
                                           SIZE("max_position_embeddings", NULL, context, 2048),
                                           SIZE("vocab_size", NULL, vocabulary, KEY_NEEDED),
                                           REAL("layer_norm_eps", norm_eps, 1e-5),
                                           REAL("attention_dropout", dropout, 0),
                                           PLAIN("hidden_dropout", KEY_DROPOUT),
                                           REAL("initializer_range", init_std, 0.02),
                                           TRUTH("use_parallel_residual", is_parallel, true),
                                           PLAIN("attention_bias", KEY_TRUE),
                                           TEXT("hidden_act", "gelu", NULL),
                                           TRUTH("tie_word_embeddings", is_tied, false),
                                           END};
static const struct key nemotron_more[] = {REAL("norm_eps", norm_eps, 1e-5),
                                           TEXT("hidden_act", "relu2", NULL),
                                           TRUTH("tie_word_embeddings", is_tied, false),
                                           PLAIN("attention_bias", KEY_BIASES),
                                           TRUTH("mlp_bias", has_mlp_bias, false),
                                           END};
static const struct key phi3_more[] = {REAL("rms_norm_eps", norm_eps, 1e-5),
                                       MOST_SWIGLU_KEYS,
                                       PLAIN("attention_bias", KEY_FALSE),
                                       PLAIN("mlp_bias", KEY_FALSE),
                                       PLAIN("resid_pdrop", KEY_DROPOUT),
                                       PLAIN("embd_pdrop", KEY_DROPOUT),
                                       PLAIN("original_max_position_embeddings", KEY_UNUSED),
                                       END};
#define GEMMA_KEYS                                                                     \
    REAL("rms_norm_eps", norm_eps, 1e-6), TRUTH("tie_word_embeddings", is_tied, true), \
        PLAIN("attention_bias", KEY_BIASES), PLAIN("use_bidirectional_attention", KEY_FALSE)
static const struct key gemma_more[] = {GEMMA_KEYS, TEXT("hidden_act", "gelu_pytorch_tanh", NULL),
                                        TEXT("hidden_activation", "gelu_pytorch_tanh", NULL), END};
#define GEMMA2_KEYS(attention, logits)                                                \
    TEXT("hidden_activation", "gelu_pytorch_tanh", NULL),                             \
        {"query_pre_attn_scalar", NULL, KEY_WHOLE, AT(query_scale), 256, NULL, NULL}, \
        CAP("attn_logit_softcapping", attention_soft_cap, attention),                 \
        CAP("final_logit_softcapping", logit_soft_cap, logits)
static const struct key gemma2_more[] = {GEMMA_KEYS, TEXT("hidden_act", "gelu_pytorch_tanh", NULL), GEMMA2_KEYS(50, 30),
                                         END};
static const struct key gemma3_more[] = {GEMMA_KEYS, GEMMA2_KEYS(0, 0), END};
static const struct key smollm3_more[] = {REAL("rms_norm_eps", norm_eps, 1e-6),
                                          TEXT("hidden_act", "silu", NULL),
                                          TRUTH("tie_word_embeddings", is_tied, true),
                                          PLAIN("attention_bias", KEY_BIASES),
                                          TRUTH("mlp_bias", has_mlp_bias, false),
                                          PLAIN("no_rope_layers", KEY_PLAIN),
                                          PLAIN("max_window_layers", KEY_UNUSED), /* use_sliding_window is false */
                                          END};
/* What a file says of the loss that balances experts is for training, where `tally train` has settings for it. */
#define ROUTER_KEYS PLAIN("output_router_logits", KEY_UNUSED), PLAIN("router_aux_loss_coef", KEY_UNUSED)
static const struct key mixtral_more[] = {REAL("rms_norm_eps", norm_eps, 1e-5),
                                          MOST_SWIGLU_KEYS,
                                          SIZE("num_local_experts", NULL, n_experts, 8),
                                          SIZE("num_experts_per_tok", NULL, n_chosen, 2),
                                          FIXED("router_jitter_noise", 0),
                                          ROUTER_KEYS,
                                          END};
static const struct key qwen3_moe_more[] = {SWIGLU_KEYS,
                                            PLAIN("attention_bias", KEY_BIASES),
                                            SIZE("num_experts", "num_local_experts", n_experts, 128),
                                            SIZE("num_experts_per_tok", NULL, n_chosen, 8),
                                            SIZE("moe_intermediate_size", NULL, expert_ff, 768),
                                            TRUTH("norm_topk_prob", is_choice_normed, false),
                                            FIXED("decoder_sparse_step", 1),
                                            PLAIN("mlp_only_layers", KEY_EMPTY),
                                            PLAIN("sliding_window", KEY_UNUSED), /* use_sliding_window is false */
                                            PLAIN("max_window_layers", KEY_UNUSED),
                                            ROUTER_KEYS,
                                            END};
static const struct key olmoe_more[] = {REAL("rms_norm_eps", norm_eps, 1e-5),
                                        MOST_SWIGLU_KEYS,
                                        PLAIN("attention_bias", KEY_BIASES),
                                        SIZE("num_experts", "num_local_experts", n_experts, 64),
                                        SIZE("num_experts_per_tok", NULL, n_chosen, 8),
                                        TRUTH("norm_topk_prob", is_choice_normed, false),
                                        ROUTER_KEYS,
                                        END};
static const struct key gpt_oss_more[] = {REAL("rms_norm_eps", norm_eps, 1e-5),
                                          MOST_SWIGLU_KEYS,
                                          {"attention_bias", NULL, KEY_BIASES, 0, 1, NULL, NULL},
                                          SIZE("num_local_experts", "num_experts", n_experts, 128),
                                          SIZE("num_experts_per_tok", "experts_per_token", n_chosen, 4),
                                          REAL("swiglu_limit", gate_limit, 7),
                                          FIXED("swiglu_alpha", 1.702),
                                          PLAIN("initial_context_length", KEY_UNUSED), /* rope_scaling has it */
                                          ROUTER_KEYS,
                                          END};
static const struct key falcon_keys[] = {SIZE("num_hidden_layers", "n_layer", n_layers, KEY_NEEDED),
                                         SIZE("num_attention_heads", "n_head", n_heads, KEY_NEEDED),
                                         SIZE("hidden_size", "n_embed", channels, KEY_NEEDED),
                                         SIZE("ffn_hidden_size", NULL, ff, 0),
                                         SIZE("max_position_embeddings", NULL, context, 2048),
                                         SIZE("vocab_size", NULL, vocabulary, KEY_NEEDED),
                                         REAL("layer_norm_epsilon", norm_eps, 1e-5),
                                         REAL("hidden_dropout", dropout, 0),
                                         PLAIN("attention_dropout", KEY_DROPOUT),
                                         REAL("initializer_range", init_std, 0.02),
                                         TRUTH("tie_word_embeddings", is_tied, true),
                                         TEXT("activation", "gelu", NULL),
                                         PLAIN("apply_residual_connection_post_layernorm", KEY_FALSE),
                                         PLAIN("new_decoder_architecture", KEY_FALCON),
                                         END};
#define DEEPSEEK_KEYS                                                                                              \
    SIZE("num_hidden_layers", NULL, n_layers, KEY_NEEDED), SIZE("num_attention_heads", NULL, n_heads, KEY_NEEDED), \
        SIZE("hidden_size", NULL, channels, KEY_NEEDED), SIZE("intermediate_size", NULL, ff, KEY_NEEDED),          \
        SIZE("max_position_embeddings", NULL, context, 2048), SIZE("vocab_size", NULL, vocabulary, KEY_NEEDED),    \
        REAL("attention_dropout", dropout, 0), REAL("initializer_range", init_std, 0.02), SWIGLU_KEYS,             \
        PLAIN("attention_bias", KEY_FALSE), PLAIN("mlp_bias", KEY_FALSE), PLAIN("kv_lora_rank", KEY_LATENT),       \
        SIZE("num_experts_per_tok", NULL, n_chosen, KEY_NEEDED), PLAIN("n_group", KEY_GROUPS),                     \
        PLAIN("ep_size", KEY_UNUSED), PLAIN("aux_loss_alpha", KEY_UNUSED), PLAIN("seq_aux", KEY_UNUSED),           \
        FIXED("moe_layer_freq", 1), PLAIN("output_router_logits", KEY_UNUSED)
static const struct key deepseek_v2_keys[] = {DEEPSEEK_KEYS,
                                              SIZE("n_routed_experts", "num_experts", n_experts, 64),
                                              SIZE("moe_intermediate_size", NULL, expert_ff, 1407),
                                              SIZE("n_shared_experts", NULL, n_shared, 2),
                                              COUNT("first_k_dense_replace", expert_from, 0),
                                              REAL("routed_scaling_factor", routed_scale, 1),
                                              PLAIN("norm_topk_prob", KEY_FALSE),
                                              TEXT("scoring_func", "softmax", NULL),
                                              END};
static const struct key deepseek_v3_keys[] = {
    DEEPSEEK_KEYS, SIZE("n_routed_experts", "num_local_experts", n_experts, 256),
    SIZE("moe_intermediate_size", NULL, expert_ff, 2048), SIZE("n_shared_experts", NULL, n_shared, 1),
    COUNT("first_k_dense_replace", expert_from, 3), REAL("routed_scaling_factor", routed_scale, 2.5),
    TRUTH("norm_topk_prob", is_choice_normed, true), TEXT("scoring_func", "sigmoid", NULL),
    TEXT("topk_method", "noaux_tc", NULL), PLAIN("rope_interleave", KEY_TRUE),
    /* the layer that predicts the token after the next one is not here */
    PLAIN("num_nextn_predict_layers", KEY_UNUSED), PLAIN("num_mtp_layers", KEY_UNUSED), END};
static const struct key llama4_keys[] = {SIZE("num_hidden_layers", NULL, n_layers, 48),
                                         SIZE("num_attention_heads", NULL, n_heads, 40),
                                         SIZE("num_key_value_heads", NULL, n_kv_heads, 0),
                                         SIZE("head_dim", NULL, head_size, 0),
                                         SIZE("hidden_size", NULL, channels, 5120),
                                         SIZE("intermediate_size", NULL, expert_ff, 8192),
                                         SIZE("intermediate_size_mlp", NULL, ff, 16384),
                                         SIZE("max_position_embeddings", NULL, context, 131072),
                                         SIZE("vocab_size", NULL, vocabulary, 202048),
                                         REAL("attention_dropout", dropout, 0),
                                         REAL("initializer_range", init_std, 0.02),
                                         REAL("rms_norm_eps", norm_eps, 1e-5),
                                         MOST_SWIGLU_KEYS,
                                         PLAIN("attention_bias", KEY_BIASES),
                                         SIZE("num_local_experts", NULL, n_experts, 16),
                                         SIZE("num_experts_per_tok", NULL, n_chosen, 1),
                                         PLAIN("interleave_moe_layer_step", KEY_DENSE_LAYERS),
                                         PLAIN("no_rope_layers", KEY_PLAIN),
                                         PLAIN("attention_chunk_size", KEY_LLAMA4),
                                         TRUTH("use_qk_norm", has_head_norm, true),
                                         FIXED("router_jitter_noise", 0),
                                         PLAIN("for_llm_compressor", KEY_FALSE),
                                         ROUTER_KEYS,
                                         END};
static const struct key deep_linear_keys[] = {SIZE("num_hidden_layers", NULL, n_layers, KEY_NEEDED),
                                              SIZE("hidden_size", NULL, channels, KEY_NEEDED), END};

/* ---- Names ---- */

static const struct architecture_names gpt2_names = {.body = "transformer",
                                                     .embedding = "wte",
                                                     .positions = "wpe",
                                                     .layers = "h",
                                                     .norm = "ln_f",
                                                     .head = "lm_head",
                                                     .attention = "attn",
                                                     .mlp = "mlp",
                                                     .q = "c_attn",
                                                     .out = "c_proj",
                                                     .up = "c_fc",
                                                     .down = "c_proj",
                                                     .dropout = {"drop", "resid_dropout", "dropout"},
                                                     .before = {"ln_1", "ln_2"}};

#define MODEL_NAMES                                                                                      \
    .body = "model", .embedding = "embed_tokens", .layers = "layers", .norm = "norm", .head = "lm_head", \
    .attention = "self_attn", .mlp = "mlp", .out = "o_proj", .down = "down_proj"
#define QKV_NAMES .q = "q_proj", .k = "k_proj", .v = "v_proj"
#define LLAMA_NAMES MODEL_NAMES, QKV_NAMES, .gate = "gate_proj", .up = "up_proj"
#define NORMS_BEFORE .before = {"input_layernorm", "post_attention_layernorm"}
static const struct architecture_names llama_names = {LLAMA_NAMES, NORMS_BEFORE};
static const struct architecture_names olmo2_names = {
    LLAMA_NAMES, .after = {"post_attention_layernorm", "post_feedforward_layernorm"}};

static const struct architecture_names gpt_neox_names = {.body = "gpt_neox",
                                                         .embedding = "embed_in",
                                                         .layers = "layers",
                                                         .norm = "final_layer_norm",
                                                         .head = "embed_out",
                                                         .attention = "attention",
                                                         .mlp = "mlp",
                                                         .q = "query_key_value",
                                                         .out = "dense",
                                                         .up = "dense_h_to_4h",
                                                         .down = "dense_4h_to_h",
                                                         NORMS_BEFORE};
static const struct architecture_names nemotron_names = {MODEL_NAMES, QKV_NAMES, .up = "up_proj", NORMS_BEFORE};
static const struct architecture_names phi3_names = {MODEL_NAMES, .q = "qkv_proj", .up = "gate_up_proj", NORMS_BEFORE};
static const struct architecture_names gemma3_names = {
    LLAMA_NAMES, .before = {"input_layernorm", "pre_feedforward_layernorm"},
    .after = {"post_attention_layernorm", "post_feedforward_layernorm"}};

#define EXPERT_NAMES .router = "gate", .experts = "experts"
static const struct architecture_names mixtral_names = {.body = "model",
                                                        .embedding = "embed_tokens",
                                                        .layers = "layers",
                                                        .norm = "norm",
                                                        .head = "lm_head",
                                                        .attention = "self_attn",
                                                        .mlp = "block_sparse_moe",
                                                        .out = "o_proj",
                                                        .gate = "w1",
                                                        .up = "w3",
                                                        .down = "w2",
                                                        QKV_NAMES,
                                                        EXPERT_NAMES,
                                                        NORMS_BEFORE};
static const struct architecture_names gpt_oss_names = {
    MODEL_NAMES, QKV_NAMES, .up = "gate_up_proj", .router = "router", .experts = "experts", NORMS_BEFORE};
static const struct architecture_names qwen3_moe_names = {LLAMA_NAMES, EXPERT_NAMES, NORMS_BEFORE};

#define FALCON_NAMES                                                                                            \
    .body = "transformer", .embedding = "word_embeddings", .layers = "h", .norm = "ln_f", .head = "lm_head",    \
    .attention = "self_attention", .mlp = "mlp", .q = "query_key_value", .out = "dense", .up = "dense_h_to_4h", \
    .down = "dense_4h_to_h"
static const struct architecture_names falcon_names = {FALCON_NAMES, .before = {"input_layernorm"}};
static const struct architecture_names falcon_two_names = {FALCON_NAMES, .before = {"ln_attn", "ln_mlp"}};
static const struct architecture_names falcon_serial_names = {FALCON_NAMES, NORMS_BEFORE};
static const struct architecture_names deepseek_names = {LLAMA_NAMES, EXPERT_NAMES, .shared = "shared_experts",
                                                         NORMS_BEFORE};
static const struct architecture_names llama4_names = {.body = "model",
                                                       .embedding = "embed_tokens",
                                                       .layers = "layers",
                                                       .norm = "norm",
                                                       .head = "lm_head",
                                                       .attention = "self_attn",
                                                       .mlp = "feed_forward",
                                                       .out = "o_proj",
                                                       .gate = "gate_proj",
                                                       .up = "up_proj",
                                                       .down = "down_proj",
                                                       .router = "router",
                                                       .experts = "experts",
                                                       .shared = "shared_expert",
                                                       QKV_NAMES,
                                                       NORMS_BEFORE};

/* ---- Families ---- */

#define LM(name) .kind = {name, lm_logits, NULL, sizeof(struct model)}
#define ROPE .has_rope = true, .rope_base_key = "rope_theta", .rope_share_key = "partial_rotary_factor"
#define SWIGLU .activation = SILU, .is_gated = true
#define GEGLU .activation = GELU_TANH, .is_gated = true

/* A llama whose q, k and v have biases, and no others do; falcons with two norms, and one after the other. */
enum { QWEN2 = TL_FAMILY_COUNT, FALCON_TWO, FALCON_SERIAL, N_ROWS };
#define FALCON(names_)                                                                                              \
    {                                                                                                               \
        LM("FalconForCausalLM"), .type = "falcon", .names = &names_, .keys = falcon_keys, .norm = LAYER_NORM,       \
                                 .activation = GELU_ERF, .packing = PACKED_GROUPS, .are_heads_channels = true, ROPE \
    }

static const struct architecture rows[N_ROWS] = {
    [TL_GPT2] = {LM("GPT2LMHeadModel"), .type = "gpt2", .names = &gpt2_names, .keys = gpt2_keys, .norm = LAYER_NORM,
                 .activation = GELU_TANH, .packing = PACKED_PARTS, .has_biases = true, .has_scaled_residual = true,
                 .is_transposed = true, .are_heads_channels = true},
    [TL_LLAMA] = {LM("LlamaForCausalLM"), .type = "llama", .names = &llama_names, .keys = llama_keys,
                  .more_keys = llama_more, ROPE, SWIGLU},
    [TL_DEEP_LINEAR] = {.kind = {"DeepLinear", deep_linear_logits, NULL, sizeof(struct model)},
                        .type = "deep-linear",
                        .keys = deep_linear_keys},
    [QWEN2] = {LM("Qwen2ForCausalLM"), .type = "qwen2", .names = &llama_names, .keys = llama_keys,
               .more_keys = qwen2_more, .window = WINDOW_FROM, .n_kv_heads = 32, ROPE, SWIGLU},
    [TL_MISTRAL] = {LM("MistralForCausalLM"), .type = "mistral", .names = &llama_names, .keys = llama_keys,
                    .more_keys = mistral_more, .window = WINDOW_ALL, .n_kv_heads = 8, ROPE, SWIGLU},
    [TL_QWEN3] = {LM("Qwen3ForCausalLM"), .type = "qwen3", .names = &llama_names, .keys = llama_keys,
                  .more_keys = attention_bias_more, .qk_norm = QK_NORM_HEAD, .window = WINDOW_FROM, .head_size = 128,
                  .n_kv_heads = 32, ROPE, SWIGLU},
    [TL_OLMO2] = {LM("Olmo2ForCausalLM"), .type = "olmo2", .names = &olmo2_names, .keys = llama_keys,
                  .more_keys = olmo2_more, .qk_norm = QK_NORM_WHOLE, ROPE, SWIGLU},
    [TL_GPT_NEOX] = {LM("GPTNeoXForCausalLM"), .type = "gpt_neox", .names = &gpt_neox_names, .keys = gpt_neox_keys,
                     .norm = LAYER_NORM, .activation = GELU_ERF, .packing = PACKED_GROUPS, .has_biases = true,
                     .are_heads_channels = true, .has_rope = true, .rope_share = 0.25,
                     .rope_base_key = "rotary_emb_base", .rope_share_key = "rotary_pct"},
    [TL_NEMOTRON] = {LM("NemotronForCausalLM"), .type = "nemotron", .names = &nemotron_names, .keys = llama_keys,
                     .more_keys = nemotron_more, .norm = LAYER_NORM, .is_norm_less_one = true,
                     .activation = RELU_SQUARED, ROPE, .rope_share = 0.5},
    [TL_PHI3] = {LM("Phi3ForCausalLM"), .type = "phi3", .names = &phi3_names, .keys = llama_keys,
                 .more_keys = phi3_more, .packing = PACKED_PARTS, .window = WINDOW_ALL, ROPE, SWIGLU},
    [TL_GPT_BIGCODE] = {LM("GPTBigCodeForCausalLM"), .type = "gpt_bigcode", .names = &gpt2_names,
                        .keys = gpt_bigcode_keys, .norm = LAYER_NORM, .activation = GELU_TANH, .packing = PACKED_GROUPS,
                        .has_biases = true, .has_scaled_residual = true, .are_heads_channels = true},
    [TL_GEMMA] = {LM("GemmaForCausalLM"), .type = "gemma", .names = &llama_names, .keys = llama_keys,
                  .more_keys = gemma_more, .is_norm_less_one = true, .has_scaled_embedding = true, .head_size = 256,
                  .n_kv_heads = 16, ROPE, GEGLU},
    [TL_GEMMA3] = {LM("Gemma3ForCausalLM"), .type = "gemma3_text", .names = &gemma3_names, .keys = llama_keys,
                   .more_keys = gemma3_more, .is_norm_less_one = true, .has_scaled_embedding = true,
                   .qk_norm = QK_NORM_HEAD, .window = WINDOW_EVERY, .window_every = 6, .window_keys = 4096,
                   .head_size = 256, .n_kv_heads = 4, ROPE, .rope_base = 1000000, .window_rope_base = 10000, GEGLU},
    [TL_MIXTRAL] = {LM("MixtralForCausalLM"), .type = "mixtral", .names = &mixtral_names, .keys = llama_keys,
                    .more_keys = mixtral_more, .window = WINDOW_ALL, .n_kv_heads = 8, ROPE, .rope_base = 1000000,
                    SWIGLU, .has_experts = true, .is_choice_normed = true},
    [TL_QWEN3_MOE] = {LM("Qwen3MoeForCausalLM"), .type = "qwen3_moe", .names = &qwen3_moe_names, .keys = llama_keys,
                      .more_keys = qwen3_moe_more, .qk_norm = QK_NORM_HEAD, .n_kv_heads = 4, ROPE, SWIGLU,
                      .has_experts = true},
    [TL_OLMOE] = {LM("OlmoeForCausalLM"), .type = "olmoe", .names = &qwen3_moe_names, .keys = llama_keys,
                  .more_keys = olmoe_more, .qk_norm = QK_NORM_WHOLE, ROPE, SWIGLU, .has_experts = true},
    [TL_GPT_OSS] = {LM("GptOssForCausalLM"), .type = "gpt_oss", .names = &gpt_oss_names, .keys = llama_keys,
                    .more_keys = gpt_oss_more, .window = WINDOW_EVERY, .window_every = 2, .head_size = 64,
                    .n_kv_heads = 8, ROPE, .rope_base = 150000, SWIGLU, .has_experts = true, .is_choice_normed = true,
                    .are_experts_packed = true, .are_experts_clamped = true, .has_sinks = true},
    [TL_FALCON] = FALCON(falcon_names),
    [FALCON_TWO] = FALCON(falcon_two_names),
    [FALCON_SERIAL] = FALCON(falcon_serial_names),
    [TL_DEEPSEEK_V2] = {LM("DeepseekV2ForCausalLM"), .type = "deepseek_v2", .names = &deepseek_names,
                        .keys = deepseek_v2_keys, ROPE, SWIGLU, .has_experts = true, .has_latents = true,
                        .turns_neighbours = true},
    [TL_DEEPSEEK_V3] = {LM("DeepseekV3ForCausalLM"), .type = "deepseek_v3", .names = &deepseek_names,
                        .keys = deepseek_v3_keys, ROPE, SWIGLU, .has_experts = true, .routing = ROUTE_SIGMOID,
                        .has_latents = true, .turns_neighbours = true},
    [TL_LLAMA4] = {LM("Llama4ForCausalLM"), .type = "llama4_text", .names = &llama4_names, .keys = llama4_keys,
                   .plain_every = 4, .head_size = 128, .n_kv_heads = 8, ROPE, .rope_base = 500000, SWIGLU,
                   .has_experts = true, .are_experts_packed = true, .routing = ROUTE_INPUT, .turns_neighbours = true},
    [TL_GEMMA2] = {LM("Gemma2ForCausalLM"), .type = "gemma2", .names = &gemma3_names, .keys = llama_keys,
                   .more_keys = gemma2_more, .is_norm_less_one = true, .has_scaled_embedding = true,
                   .window = WINDOW_EVERY, .window_every = 2, .window_keys = 4096, .head_size = 256, .n_kv_heads = 4,
                   ROPE, GEGLU},
    [TL_SMOLLM3] = {LM("SmolLM3ForCausalLM"), .type = "smollm3", .names = &llama_names, .keys = llama_keys,
                    .more_keys = smollm3_more, .plain_every = 4, .n_kv_heads = 4, ROPE, .rope_base = 2000000, SWIGLU},
};

const struct architecture *architecture_at(int index) { return index >= 0 && index < N_ROWS ? &rows[index] : NULL; }

const struct architecture *architecture_of(const tl_model_config *c) {
    bool is_qwen2 = c->family == TL_LLAMA && c->has_qkv_bias && !c->has_out_bias;
    if (c->family == TL_FALCON && (!c->is_parallel || c->has_two_norms))
        return &rows[c->is_parallel ? FALCON_TWO : FALCON_SERIAL];
    return &rows[is_qwen2 ? QWEN2 : (int)c->family];
}

const struct architecture *architecture_named(const char *type) {
    for (int i = 0; i < N_ROWS; i++)
        if (!strcmp(rows[i].type, type)) return &rows[i];
    return NULL;
}

void architecture_begin(const struct architecture *a, tl_model_config *c) {
    bool is_qwen2 = a == &rows[QWEN2];
    c->family = is_qwen2 ? TL_LLAMA : (tl_family)(a - rows);
    c->has_qkv_bias = is_qwen2;
    c->is_choice_normed = a->is_choice_normed;
}

bool architecture_has_experts(const tl_model_config *c, int64_t layer) {
    return architecture_of(c)->has_experts && layer >= c->expert_from &&
           (!c->expert_every || (layer + 1) % c->expert_every == 0);
}

int64_t architecture_expert_layers(const tl_model_config *c) {
    int64_t n = 0;
    for (int64_t i = 0; i < c->n_layers; i++) n += architecture_has_experts(c, i);
    return n;
}

int64_t architecture_cache_numbers(const tl_model_config *c) {
    return c->kv_rank ? c->kv_rank + c->rope_head : 2 * c->n_kv_heads * c->head_size;
}

int64_t architecture_expert_ff(const tl_model_config *c) { return c->expert_ff ? c->expert_ff : c->ff; }

bool architecture_has_positions(const tl_model_config *c, int64_t layer) {
    return architecture_turns(c) && (!c->plain_every || (layer + 1) % c->plain_every != 0);
}

bool architecture_turns(const tl_model_config *c) {
    return c->positions == TL_POSITIONS_OWN ? architecture_of(c)->has_rope : c->positions == TL_POSITIONS_ROTARY;
}

bool architecture_learns_positions(const tl_model_config *c) {
    return architecture_of(c)->names->positions && c->positions == TL_POSITIONS_OWN;
}

bool architecture_has_window(const tl_model_config *c, int64_t layer) {
    if (!c->window || layer < c->window_from) return false;
    return !c->window_every || (layer + 1) % c->window_every != 0;
}

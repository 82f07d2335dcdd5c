/* presets.c: models by name. Numbers are those of the published config.json files; the small ones are ours, for
 * laptops: byte-level vocabulary, sized to learn something in a minute. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "tally.h"

#define GPT2(L, H, C)                                                                                            \
    {                                                                                                            \
        .family = TL_GPT2, .n_layers = L, .n_heads = H, .n_kv_heads = H, .head_size = (C) / (H), .channels = C,  \
        .ff = 4 * (C), .vocabulary = 50257, .context = 1024, .norm_eps = 1e-5, .init_std = 0.02, .is_tied = true \
    }
#define LLAMA3(L, H, KV, C, F, T)                                                                                 \
    {                                                                                                             \
        .family = TL_LLAMA, .n_layers = L, .n_heads = H, .n_kv_heads = KV, .head_size = (C) / (H), .channels = C, \
        .ff = F, .vocabulary = 128256, .context = T, .norm_eps = 1e-5, .rope_base = 500000, .init_std = 0.02      \
    }
#define LLAMA31(L, H, KV, C, F, T, times)                                                                         \
    {                                                                                                             \
        .family = TL_LLAMA, .n_layers = L, .n_heads = H, .n_kv_heads = KV, .head_size = (C) / (H), .channels = C, \
        .ff = F, .vocabulary = 128256, .context = T, .norm_eps = 1e-5, .rope_base = 500000, .init_std = 0.02,     \
        .rope_scaling = {                                                                                         \
            .factor = times,                                                                                      \
            .low_frequency = 1,                                                                                   \
            .high_frequency = 4,                                                                                  \
            .original_context = 8192                                                                              \
        }                                                                                                         \
    }
#define QWEN(L, H, KV, C, F, V, T, tied)                                                                          \
    {                                                                                                             \
        .family = TL_LLAMA, .n_layers = L, .n_heads = H, .n_kv_heads = KV, .head_size = (C) / (H), .channels = C, \
        .ff = F, .vocabulary = V, .context = T, .norm_eps = 1e-6, .rope_base = 1000000, .init_std = 0.02,         \
        .is_tied = tied, .has_qkv_bias = true                                                                     \
    }
#define ROTARY(family_, L, H, KV, D, C, F, V, T, base, eps, tied)                                             \
    .family = family_, .n_layers = L, .n_heads = H, .n_kv_heads = KV, .head_size = D, .channels = C, .ff = F, \
    .vocabulary = V, .context = T, .norm_eps = eps, .rope_base = base, .init_std = 0.02, .is_tied = tied
#define MISTRAL(V, base, keys) \
    { ROTARY(TL_MISTRAL, 32, 32, 8, 128, 4096, 14336, V, 32768, base, 1e-5, false), .window = keys }
#define QWEN3(L, H, C, F, tied) \
    { ROTARY(TL_QWEN3, L, H, 8, 128, C, F, 151936, 40960, 1000000, 1e-6, tied) }
#define OLMO2(L, H, KV, C, F) \
    { ROTARY(TL_OLMO2, L, H, KV, 128, C, F, 100352, 4096, 500000, 1e-6, false) }
#define SMOLLM(L, H, KV, C, F, T, base) \
    { ROTARY(TL_LLAMA, L, H, KV, 64, C, F, 49152, T, base, 1e-5, true) }
#define PYTHIA(L, H, C, V)                                                                                          \
    {                                                                                                               \
        ROTARY(TL_GPT_NEOX, L, H, H, (C) / (H), C, 4 * (C), V, 2048, 10000, 1e-5, false), .is_parallel = true,      \
                                                                                          .rope_scaling = {         \
                                                                                              .size = (C) / (H) / 4 \
                                                                                          }                         \
    }
#define PHI3(L, H, KV, C, F, V, T, base, keys) \
    { ROTARY(TL_PHI3, L, H, KV, (C) / (H), C, F, V, T, base, 1e-5, false), .window = keys }
#define GEMMA(L, H, KV, C, F) \
    { ROTARY(TL_GEMMA, L, H, KV, 256, C, F, 256000, 8192, 10000, 1e-6, true) }
#define GEMMA3(L, C, F)                                                                     \
    {                                                                                       \
        ROTARY(TL_GEMMA3, L, 4, 1, 256, C, F, 262144, 32768, 1000000, 1e-6, true),          \
            .window = 512, .window_every = 6, .window_rope_base = 10000, .query_scale = 256 \
    }
#define GEMMA2(L, H, KV, D, C, F, scale)                                                                            \
    {                                                                                                               \
        ROTARY(TL_GEMMA2, L, H, KV, D, C, F, 256000, 8192, 10000, 1e-6, true),                                      \
            .window = 4096, .window_every = 2, .query_scale = scale, .attention_soft_cap = 50, .logit_soft_cap = 30 \
    }
#define GEMMA3_LARGE(L, H, KV, D, C, F, scale)                                                                    \
    {                                                                                                             \
        ROTARY(TL_GEMMA3, L, H, KV, D, C, F, 262208, 131072, 1000000, 1e-6, true),                                \
            .window = 1024, .window_every = 6, .window_rope_base = 10000, .query_scale = scale, .rope_scaling = { \
                .factor = 8                                                                                       \
            }                                                                                                     \
    }
#define STARCODER(L, H, C)                                                                                             \
    {                                                                                                                  \
        .family = TL_GPT_BIGCODE, .n_layers = L, .n_heads = H, .n_kv_heads = 1, .head_size = (C) / (H), .channels = C, \
        .ff = 4 * (C), .vocabulary = 49152, .context = 8192, .norm_eps = 1e-5, .init_std = 0.02, .is_tied = true       \
    }
/* First weights of 0.05 and not 0.02: narrow models start too close to 0 with the latter, and lose a third of a short
 * run. */
#define BYTES(family_, L, H, C, F, T)                                                                           \
    {                                                                                                           \
        .family = family_, .n_layers = L, .n_heads = H, .n_kv_heads = H, .head_size = (C) / (H), .channels = C, \
        .ff = F, .vocabulary = 256, .context = T, .norm_eps = 1e-5, .rope_base = 10000, .init_std = 0.05,       \
        .is_tied = true                                                                                         \
    }

#define MIXTRAL(L, H, C, F, V, T)                                                                          \
    {                                                                                                      \
        ROTARY(TL_MIXTRAL, L, H, 8, 128, C, F, V, T, 1000000, 1e-5, false), .n_experts = 8, .n_chosen = 2, \
                                                                            .is_choice_normed = true       \
    }
#define QWEN3_MOE(L, H, C, F, expert)                                                      \
    {                                                                                      \
        ROTARY(TL_QWEN3_MOE, L, H, 4, 128, C, F, 151936, 40960, 1000000, 1e-6, false),     \
            .n_experts = 128, .n_chosen = 8, .expert_ff = expert, .is_choice_normed = true \
    }

#define GPT_OSS(L, E)                                                                                     \
    {                                                                                                     \
        ROTARY(TL_GPT_OSS, L, 64, 8, 64, 2880, 2880, 201088, 131072, 150000, 1e-5, false),                \
            .has_qkv_bias = true, .has_out_bias = true, .window = 128, .window_every = 2, .n_experts = E, \
            .n_chosen = 4, .is_choice_normed = true, .gate_limit = 7, .rope_scaling = {                   \
                .factor = 32,                                                                             \
                .low_frequency = 1,                                                                       \
                .high_frequency = 32,                                                                     \
                .original_context = 4096,                                                                 \
                .rule = TL_ROPE_YARN_EXACT,                                                               \
                .magnitude = 1.3465735902799727 /* 0.1 log 32 + 1 */                                      \
            }                                                                                             \
    }

#define FALCON(L, H, KV, C, F, T, base, two)                                                           \
    {                                                                                                  \
        ROTARY(TL_FALCON, L, H, KV, (C) / (H), C, F, 65024, T, base, 1e-5, true), .is_parallel = true, \
                                                                                  .has_two_norms = two \
    }
#define DEEPSEEK_YARN(some, all)                                  \
    .score_yarn = all, .rope_scaling = {.factor = 40,             \
                                        .low_frequency = 1,       \
                                        .high_frequency = 32,     \
                                        .original_context = 4096, \
                                        .rule = TL_ROPE_YARN,     \
                                        .magnitude = 1}
#define DEEPSEEK_V2(L, H, C, F, q, E, expert, groups, chosen, scale)                                             \
    {                                                                                                            \
        ROTARY(TL_DEEPSEEK_V2, L, H, H, 192, C, F, 102400, 163840, 10000, 1e-6, false),                          \
            .q_rank = q, .kv_rank = 512, .rope_head = 64, .value_head = 128, .n_experts = E, .n_chosen = 6,      \
            .expert_ff = expert, .n_shared = 2, .expert_from = 1, .n_groups = groups, .n_groups_chosen = chosen, \
            .routed_scale = scale, DEEPSEEK_YARN(0.707, 0.707)                                                   \
    }
#define LLAMA4(E, every, norm)                                                                                        \
    {                                                                                                                 \
        ROTARY(TL_LLAMA4, 48, 40, 8, 128, 5120, 16384, 202048, 1048576, 500000, 1e-5, false),                         \
            .plain_every = 4, .n_experts = E, .n_chosen = 1, .expert_ff = 8192, .n_shared = 1, .expert_every = every, \
            .chunk = 8192, .temperature_floor = 8192, .temperature_scale = 0.1, .has_head_norm = norm                 \
    }
static const struct preset {
    const char *name;
    tl_model_config config;
} presets[] = {
    {"nano", BYTES(TL_LLAMA, 4, 2, 64, 192, 512)},      /* 0.2 M: a minute on two cores */
    {"tiny", BYTES(TL_LLAMA, 4, 4, 128, 352, 512)},     /* 0.8 M: ten minutes on two cores */
    {"tiny-gpt2", BYTES(TL_GPT2, 4, 4, 128, 512, 512)}, /* the same size, in the other family */
    {"tiny-moe", /* the same width and, for each token, about the same work: 2 of 8 experts */
     {.family = TL_MIXTRAL,
      .n_layers = 4,
      .n_heads = 4,
      .n_kv_heads = 4,
      .head_size = 32,
      .channels = 128,
      .ff = 176,
      .vocabulary = 256,
      .context = 512,
      .norm_eps = 1e-5,
      .rope_base = 10000,
      .init_std = 0.05,
      .is_tied = true,
      .n_experts = 8,
      .n_chosen = 2,
      .is_choice_normed = true}},
    {"small", BYTES(TL_LLAMA, 6, 6, 384, 1024, 512)}, /* 10.7 M: for a GPU, or patience */
    {"gpt2-124m", GPT2(12, 12, 768)},
    {"gpt2-350m", GPT2(24, 16, 1024)},
    {"gpt2-774m", GPT2(36, 20, 1280)},
    {"gpt2-1558m", GPT2(48, 25, 1600)},
    {"llama-3.2-1b",
     {.family = TL_LLAMA,
      .n_layers = 16,
      .n_heads = 32,
      .n_kv_heads = 8,
      .head_size = 64,
      .channels = 2048,
      .ff = 8192,
      .vocabulary = 128256,
      .context = 131072,
      .norm_eps = 1e-5,
      .rope_base = 500000,
      .init_std = 0.02,
      .is_tied = true,
      .rope_scaling = {.factor = 32, .low_frequency = 1, .high_frequency = 4, .original_context = 8192}}},
    {"llama-3-8b", LLAMA3(32, 32, 8, 4096, 14336, 8192)},
    {"llama-3-70b", LLAMA3(80, 64, 8, 8192, 28672, 8192)},
    {"llama-3.1-405b", LLAMA31(126, 128, 8, 16384, 53248, 131072, 8)},
    {"qwen2.5-0.5b", QWEN(24, 14, 2, 896, 4864, 151936, 32768, true)},
    {"qwen2.5-1.5b", QWEN(28, 12, 2, 1536, 8960, 151936, 131072, true)},
    {"qwen2.5-7b", QWEN(28, 28, 4, 3584, 18944, 152064, 131072, false)},
    {"qwen3-0.6b", QWEN3(28, 16, 1024, 3072, true)},
    {"qwen3-1.7b", QWEN3(28, 16, 2048, 6144, true)},
    {"qwen3-4b", QWEN3(36, 32, 2560, 9728, true)},
    {"qwen3-8b", QWEN3(36, 32, 4096, 12288, false)},
    {"qwen3-14b", QWEN3(40, 40, 5120, 17408, false)},
    {"qwen3-32b", QWEN3(64, 64, 5120, 25600, false)},
    {"mistral-7b-v0.1", MISTRAL(32000, 10000, 4096)},
    {"mistral-7b-v0.3", MISTRAL(32768, 1000000, 0)},
    {"olmo2-1b", OLMO2(16, 16, 16, 2048, 8192)},
    {"olmo2-7b", OLMO2(32, 32, 32, 4096, 11008)},
    {"olmo2-13b", OLMO2(40, 40, 40, 5120, 13824)},
    {"olmo2-32b", OLMO2(64, 40, 8, 5120, 27648)},
    {"smollm-135m", SMOLLM(30, 9, 3, 576, 1536, 2048, 10000)},
    {"smollm-360m", SMOLLM(32, 15, 5, 960, 2560, 2048, 10000)},
    {"smollm-1.7b", SMOLLM(24, 32, 32, 2048, 8192, 2048, 10000)},
    {"smollm2-135m", SMOLLM(30, 9, 3, 576, 1536, 8192, 100000)},
    {"smollm2-360m", SMOLLM(32, 15, 5, 960, 2560, 8192, 100000)},
    {"smollm2-1.7b", SMOLLM(24, 32, 32, 2048, 8192, 8192, 130000)},
    {"pythia-70m", PYTHIA(6, 8, 512, 50304)},
    {"pythia-160m", PYTHIA(12, 12, 768, 50304)},
    {"pythia-410m", PYTHIA(24, 16, 1024, 50304)},
    {"pythia-1b", PYTHIA(16, 8, 2048, 50304)},
    {"pythia-1.4b", PYTHIA(24, 16, 2048, 50304)},
    {"pythia-2.8b", PYTHIA(32, 32, 2560, 50304)},
    {"pythia-6.9b", PYTHIA(32, 32, 4096, 50432)},
    {"pythia-12b", PYTHIA(36, 40, 5120, 50688)},
    {"phi-3-mini-4k", PHI3(32, 32, 32, 3072, 8192, 32064, 4096, 10000, 2047)},
    {"phi-3-medium-4k", PHI3(40, 40, 10, 5120, 17920, 32064, 4096, 10000, 2047)},
    {"phi-4", PHI3(40, 40, 10, 5120, 17920, 100352, 16384, 250000, 0)},
    {"gemma-2b", GEMMA(18, 8, 1, 2048, 16384)},
    {"gemma-7b", GEMMA(28, 16, 16, 3072, 24576)},
    {"gemma-3-270m", GEMMA3(18, 640, 2048)},
    {"gemma-3-1b", GEMMA3(26, 1152, 6912)},
    {"gemma-2-2b", GEMMA2(26, 8, 4, 256, 2304, 9216, 256)},
    {"gemma-2-9b", GEMMA2(42, 16, 8, 256, 3584, 14336, 256)},
    {"gemma-2-27b", GEMMA2(46, 32, 16, 128, 4608, 36864, 144)},
    {"gemma-3-4b", GEMMA3_LARGE(34, 8, 4, 256, 2560, 10240, 256)},
    {"gemma-3-12b", GEMMA3_LARGE(48, 16, 8, 256, 3840, 15360, 256)},
    {"gemma-3-27b", GEMMA3_LARGE(62, 32, 16, 128, 5376, 21504, 168)},
    {"smollm3-3b",
     {ROTARY(TL_SMOLLM3, 36, 16, 4, 128, 2048, 11008, 128256, 65536, 5000000, 1e-6, true), .plain_every = 4}},
    {"falcon-rw-1b",
     {ROTARY(TL_FALCON, 24, 32, 32, 64, 2048, 8192, 50304, 2048, 10000, 1e-5, true), .positions = TL_POSITIONS_ALIBI,
      .has_qkv_bias = true, .has_out_bias = true, .has_mlp_bias = true}},
    {"falcon-7b", FALCON(32, 71, 1, 4544, 18176, 2048, 10000, false)},
    {"falcon-11b", FALCON(60, 32, 8, 4096, 16384, 8192, 500042, false)},
    {"falcon-40b", FALCON(60, 128, 8, 8192, 32768, 2048, 10000, true)},
    {"falcon-180b", FALCON(80, 232, 8, 14848, 59392, 2048, 10000, true)},
    {"starcoder-1b", STARCODER(24, 16, 2048)},
    {"starcoder-15b", STARCODER(40, 48, 6144)},
    {"mixtral-8x7b", MIXTRAL(32, 32, 4096, 14336, 32000, 32768)},
    {"mixtral-8x22b", MIXTRAL(56, 48, 6144, 16384, 32000, 65536)},
    {"qwen3-30b-a3b", QWEN3_MOE(48, 32, 2048, 6144, 768)},
    {"qwen3-235b-a22b", QWEN3_MOE(94, 64, 4096, 12288, 1536)},
    {"olmoe-1b-7b",
     {ROTARY(TL_OLMOE, 16, 16, 16, 128, 2048, 1024, 50304, 4096, 10000, 1e-5, false), .n_experts = 64, .n_chosen = 8}},
    {"deepseek-v2-lite", DEEPSEEK_V2(27, 16, 2048, 10944, 0, 64, 1408, 0, 0, 1)},
    {"deepseek-v2", DEEPSEEK_V2(60, 128, 5120, 12288, 1536, 160, 1536, 8, 3, 16)},
    {"deepseek-v3",
     {ROTARY(TL_DEEPSEEK_V3, 61, 128, 128, 192, 7168, 18432, 129280, 163840, 10000, 1e-6, false), .q_rank = 1536,
      .kv_rank = 512, .rope_head = 64, .value_head = 128, .n_experts = 256, .n_chosen = 8, .expert_ff = 2048,
      .n_shared = 1, .expert_from = 3, .n_groups = 8, .n_groups_chosen = 4, .routed_scale = 2.5,
      .is_choice_normed = true, DEEPSEEK_YARN(1, 1)}},
    {"llama-4-scout", LLAMA4(16, 0, true)},
    {"llama-4-maverick", LLAMA4(128, 2, false)},
    {"gpt-oss-20b", GPT_OSS(24, 32)},
    {"gpt-oss-120b", GPT_OSS(36, 128)},
    {"deep-linear", {.family = TL_DEEP_LINEAR, .n_layers = 4, .channels = 64}},
};
enum { N_PRESETS = sizeof presets / sizeof *presets };

const char *tl_model_preset_name(int index) { return index >= 0 && index < N_PRESETS ? presets[index].name : NULL; }

bool tl_model_preset(const char *name, tl_model_config *config) {
    for (int i = 0; name && i < N_PRESETS; i++) {
        if (strcmp(presets[i].name, name)) continue;
        *config = presets[i].config;
        return true;
    }
    char known[1600] = "";
    for (int i = 0; i < N_PRESETS; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", presets[i].name);
    const char *names[N_PRESETS], *near = NULL;
    char meant[TEXT_MEANT];
    for (int i = 0; i < N_PRESETS; i++) names[i] = presets[i].name;
    for (int i = N_PRESETS - 1; name && *name && i >= 0; i--) /* the smallest of its name: gpt2 */
        if (!strncmp(names[i], name, strlen(name))) near = names[i];
    if (name && !near) near = text_nearest(name, names, N_PRESETS);
    return error_set(TL_ERROR_USE, "there is no model \"%s\"%s (there are %s)", name ? name : "",
                     text_meant(meant, near), known);
}

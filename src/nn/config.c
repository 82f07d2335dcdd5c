/* config.c: the numbers of a model, checked and counted. config_file.c has them as Hugging Face's config.json. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "base/size.h"
#include "nn/architecture.h"
#include "nn/config_reader.h"
#include "nn/model.h"
#include "tally.h"

const char *tl_family_name(tl_family family) {
    return (unsigned)family < TL_FAMILY_COUNT ? architecture_at((int)family)->type : "?";
}

/* ---- Checks ---- */

#define MOST_LAYERS \
    4096 /* a layer costs a millisecond and 70 KB to price, sizes nothing; the deepest models had 1000 */

static bool size_check(const char *name, int64_t n) {
    return (n >= 1 && n <= LARGEST_SIZE) ||
           error_set(TL_ERROR_USE, "model: %s is %lld (need 1 to 2^40)", name, (long long)n);
}

#define MOST_EXPERTS 1024 /* as many groups as a product takes */

/* Shared experts, groups of experts, and layers without experts. */
static bool groups_check(const tl_model_config *c, const struct architecture *a) {
    const int64_t per_group = c->n_groups ? c->n_experts / c->n_groups : c->n_experts;
    if (c->expert_from < 0 || c->expert_every < 0 || c->n_shared < 0 || c->n_shared > MOST_EXPERTS ||
        (!a->names->shared &&
         (c->expert_from || c->expert_every || c->n_shared || c->n_groups || c->routed_scale != 0)))
        return error_set(TL_ERROR_USE,
                         "model: %lld shared experts, and experts from layer %lld on in every %lld-th, are not for %s "
                         "models",
                         (long long)c->n_shared, (long long)c->expert_from, (long long)c->expert_every, a->type);
    if (c->n_groups < 0 || c->n_groups_chosen < 0 || c->n_groups_chosen > c->n_groups ||
        (c->n_groups && (c->n_experts % c->n_groups || !c->n_groups_chosen || per_group < 2 ||
                         c->n_chosen > per_group * c->n_groups_chosen)))
        return error_set(TL_ERROR_USE,
                         "model: a token takes %lld experts from %lld of %lld groups of %lld (need groups of 2 or more "
                         "that hold all experts, and as many experts in the chosen ones)",
                         (long long)c->n_chosen, (long long)c->n_groups_chosen, (long long)c->n_groups,
                         (long long)per_group);
    return (c->routed_scale >= 0 && isfinite(c->routed_scale)) ||
           error_set(TL_ERROR_USE, "model: the scale of experts' weights is %g (need 0 or more)", c->routed_scale);
}

static bool latents_check(const tl_model_config *c, const struct architecture *a) {
    if (!a->has_latents)
        return (!c->q_rank && !c->kv_rank && !c->rope_head && !c->value_head && c->score_yarn == 0) ||
               error_set(TL_ERROR_USE, "model: %s models have no latent keys: kv_rank is %lld (need 0)", a->type,
                         (long long)c->kv_rank);
    if (!size_check("kv_rank", c->kv_rank) || !size_check("rope_head", c->rope_head) ||
        !size_check("value_head", c->value_head) || (c->q_rank && !size_check("q_rank", c->q_rank)))
        return false;
    if (c->rope_head >= c->head_size || c->rope_head % 2 || c->value_head > c->head_size || c->n_kv_heads != c->n_heads)
        return error_set(
            TL_ERROR_USE,
            "model: heads of %lld, of which %lld channels turn, with values of %lld, %lld heads and %lld of "
            "keys (need an even part that turns, values that are not wider, and as many heads of keys)",
            (long long)c->head_size, (long long)c->rope_head, (long long)c->value_head, (long long)c->n_heads,
            (long long)c->n_kv_heads);
    return (c->score_yarn >= 0 && isfinite(c->score_yarn)) ||
           error_set(TL_ERROR_USE, "model: score_yarn is %g (need 0 or more)", c->score_yarn);
}

/* Falcon's and Llama 4's own numbers. */
static bool rare_check(const tl_model_config *c) {
    const bool is_falcon = c->family == TL_FALCON, is_llama4 = c->family == TL_LLAMA4;
    const bool has_choice = c->family == TL_GPT2 || (is_falcon && c->positions == TL_POSITIONS_ALIBI);
    if (c->positions < 0 || c->positions > TL_POSITIONS_NONE || (c->positions && !has_choice))
        return error_set(TL_ERROR_USE,
                         "model: %s models have their own positions (need --positions own, or a gpt2 model)",
                         tl_family_name(c->family));
    if (!is_falcon && c->has_two_norms)
        return error_set(TL_ERROR_USE, "model: %s models have no two norms side by side", tl_family_name(c->family));
    if (is_falcon && !c->is_parallel && (c->has_two_norms || (c->n_kv_heads != 1 && c->n_kv_heads != c->n_heads)))
        return error_set(TL_ERROR_USE,
                         "model: falcon models with two norms or %lld of %lld heads of keys have attention beside the "
                         "MLP",
                         (long long)c->n_kv_heads, (long long)c->n_heads);
    if (!is_llama4 && (c->chunk || c->temperature_floor || c->temperature_scale != 0 || c->has_head_norm))
        return error_set(TL_ERROR_USE, "model: %s models have no chunks, temperatures and norms without weights",
                         tl_family_name(c->family));
    return (c->chunk >= 0 && c->temperature_floor >= 0 && isfinite(c->temperature_scale)) ||
           error_set(TL_ERROR_USE, "model: chunk is %lld, temperature_floor %lld (need 0 or more)", (long long)c->chunk,
                     (long long)c->temperature_floor);
}

static bool experts_check(const tl_model_config *c, const struct architecture *a) {
    if (!a->has_experts)
        return (!c->n_experts && !c->n_chosen && !c->expert_ff && !c->n_shared && !c->n_groups && !c->expert_from &&
                !c->expert_every) ||
               error_set(TL_ERROR_USE, "model: %s models have no experts: n_experts is %lld (need 0)", a->type,
                         (long long)c->n_experts);
    if (c->n_experts < 1 || c->n_experts > MOST_EXPERTS || c->n_chosen < 1 || c->n_chosen > c->n_experts)
        return error_set(TL_ERROR_USE,
                         "model: a token takes %lld of %lld experts (need 1 to %d, and not more than all)",
                         (long long)c->n_chosen, (long long)c->n_experts, MOST_EXPERTS);
    if (a->are_experts_clamped ? !(c->gate_limit > 0 && isfinite(c->gate_limit)) : c->gate_limit != 0)
        return error_set(TL_ERROR_USE, "model: the limit of gates is %g (need %s)", c->gate_limit,
                         a->are_experts_clamped ? "more than 0" : "0");
    if (!groups_check(c, a)) return false;
    if (a->is_choice_normed && !c->is_choice_normed)
        return error_set(TL_ERROR_USE, "model: %s models divide the weights of experts by their sum", a->type);
    return !c->expert_ff || size_check("expert_ff", c->expert_ff);
}

static bool transformer_check(const tl_model_config *c) {
    int64_t width;
    if (!size_check("n_heads", c->n_heads) || !size_check("n_kv_heads", c->n_kv_heads) ||
        !size_check("head_size", c->head_size) || !size_check("ff", c->ff) ||
        !size_check("vocabulary", c->vocabulary) || !size_check("context", c->context))
        return false;
    if (!size_mul(c->n_heads, c->head_size, &width) || width > LARGEST_SIZE)
        return error_set(TL_ERROR_USE, "model: %lld heads of %lld are too wide (need 2^40 at most)",
                         (long long)c->n_heads, (long long)c->head_size);
    if (c->n_heads % c->n_kv_heads)
        return error_set(TL_ERROR_USE, "model: %lld heads cannot share %lld heads of keys and values evenly",
                         (long long)c->n_heads, (long long)c->n_kv_heads);
    const struct architecture *a = architecture_of(c);
    if (a->are_heads_channels && (width != c->channels || (a->packing == PACKED_PARTS && c->n_kv_heads != c->n_heads)))
        return error_set(TL_ERROR_USE,
                         "model: the heads of %s models are their channels: %lld heads of %lld are not %lld", a->type,
                         (long long)c->n_heads, (long long)c->head_size, (long long)c->channels);
    int64_t turned = c->rope_scaling.size ? c->rope_scaling.size : c->head_size;
    if ((a->has_rope || architecture_turns(c)) && (turned % 2 || turned < 0 || turned > c->head_size))
        return error_set(TL_ERROR_USE, "model: rotary positions turn pairs: %s of %lld is odd%s",
                         c->rope_scaling.size ? "a part" : "a head size", (long long)turned,
                         turned % 2 ? "" : ", or not a part of a head");
    for (int64_t i = 0; c->rope_scaling.rule == TL_ROPE_LIST && i < turned / 2; i++)
        if (turned > 128 || !(c->short_slower[i] > 0 && c->long_slower[i] > 0))
            return error_set(
                TL_ERROR_USE,
                "model: the lists of longrope have no number above 0 for pair %lld of %lld (need all of at "
                "most 64)",
                (long long)i, (long long)turned / 2);
    if (c->is_parallel && a->names->after[0])
        return error_set(TL_ERROR_USE, "model: %s models have norms behind attention, and cannot be parallel", a->type);
    if (!(c->window_rope_base >= 0 && isfinite(c->window_rope_base) && c->query_scale >= 0 && isfinite(c->query_scale)))
        return error_set(TL_ERROR_USE, "model: window_rope_base is %g, query_scale %g (need 0 or more)",
                         c->window_rope_base, c->query_scale);
    if (c->window < 0 || c->window_from < 0 || c->window_every < 0 || (c->window && a->window == WINDOW_NEVER))
        return error_set(TL_ERROR_USE, "model: %s models have no window of %lld keys, from layer %lld, every %lld",
                         a->type, (long long)c->window, (long long)c->window_from, (long long)c->window_every);
    if (!experts_check(c, a) || !latents_check(c, a) || !rare_check(c)) return false;
    if (!(c->attention_soft_cap >= 0 && isfinite(c->attention_soft_cap) && c->logit_soft_cap >= 0 &&
          isfinite(c->logit_soft_cap)))
        return error_set(TL_ERROR_USE, "model: soft caps are %g and %g (need more than 0, or 0 for none)",
                         c->attention_soft_cap, c->logit_soft_cap);
    if (c->plain_every < 0 || (c->plain_every && !a->plain_every))
        return error_set(TL_ERROR_USE, "model: every %lld-th layer of %s models cannot be without positions",
                         (long long)c->plain_every, a->type);
    if (!(c->norm_eps >= 0 && isfinite(c->norm_eps)))
        return error_set(TL_ERROR_USE, "model: norm_eps is %g (need 0 or more)", c->norm_eps);
    if ((a->has_rope || architecture_turns(c)) && !(c->rope_base > 1 && isfinite(c->rope_base)))
        return error_set(TL_ERROR_USE, "model: rope_base is %g (need more than 1)", c->rope_base);
    if (!(c->dropout >= 0 && c->dropout < 1))
        return error_set(TL_ERROR_USE, "model: dropout is %g (need 0 to below 1)", c->dropout);
    return (c->init_std >= 0 && isfinite(c->init_std)) ||
           error_set(TL_ERROR_USE, "model: init_std is %g (need 0 or more)", c->init_std);
}

bool tl_model_config_check(const tl_model_config *c) {
    if (!c) return error_set(TL_ERROR_USE, "model: got NULL instead of a config");
    if ((unsigned)c->family >= TL_FAMILY_COUNT)
        return error_set(TL_ERROR_USE, "model: no family has the number %d", (int)c->family);
    if (!size_check("n_layers", c->n_layers) || !size_check("channels", c->channels)) return false;
    if (c->n_layers > MOST_LAYERS)
        return error_set(TL_ERROR_USE, "model: n_layers is %lld (need 1 to %d)", (long long)c->n_layers, MOST_LAYERS);
    if (c->family != TL_DEEP_LINEAR && !transformer_check(c)) return false;
    return tl_model_config_parameters(c) >= 0;
}

/* ---- Counting ---- */

/* Sums of products that may overflow: is_whole stays true while they do not. */
struct total {
    int64_t n;
    bool is_whole;
};
static void add(struct total *t, int64_t times, int64_t a, int64_t b) {
    int64_t product;
    t->is_whole =
        t->is_whole && size_mul(a, b, &product) && size_mul(product, times, &product) && size_add(t->n, product, &t->n);
}

/* Numbers of all norms of a layer and of queries and keys. */
static int64_t norm_numbers(const tl_model_config *c, const struct architecture *a, int64_t q, int64_t kv) {
    int n = 0;
    for (int i = 0; i < 2; i++) n += (a->names->before[i] != NULL) + (a->names->after[i] != NULL);
    int64_t of_qk = a->qk_norm == QK_NORM_HEAD ? 2 * c->head_size : a->qk_norm == QK_NORM_WHOLE ? q + kv : 0;
    return n * c->channels * (a->norm == LAYER_NORM ? 2 : 1) + of_qk;
}

/* Matrices of attention: 2 (H + Hkv) D C; with latents those of q by its rank, of the latents, of keys and values from
 * them, and of the result. */
static void add_attention(struct total *t, const tl_model_config *c, int64_t q, int64_t kv) {
    const int64_t L = c->n_layers, C = c->channels;
    if (!c->kv_rank) {
        add(t, L, C, 2 * q + 2 * kv);
        return;
    }
    if (c->q_rank) add(t, L, c->q_rank, C + 1 + q); /* with a norm */
    else add(t, L, C, q);
    add(t, L, C, c->kv_rank + c->rope_head);
    add(t, L, c->kv_rank, 1);
    int64_t width;
    t->is_whole = t->is_whole && size_mul(c->n_heads, c->head_size - c->rope_head + c->value_head, &width);
    if (t->is_whole) add(t, L, c->kv_rank, width);
    if (t->is_whole) add(t, L, C, c->n_heads * c->value_head);
}

/* Of the layers with experts: n of them, those for all tokens, and a router, E C. */
static void add_experts(struct total *t, const tl_model_config *c, const struct architecture *a, int64_t n_experts) {
    const int64_t L = architecture_expert_layers(c), C = c->channels, width = architecture_expert_ff(c);
    int64_t n;
    t->is_whole = t->is_whole && size_mul(L, n_experts + c->n_shared, &n);
    if (t->is_whole) add(t, n, C, 3 * width);
    if (t->is_whole && a->are_experts_clamped) add(t, n, 1, 2 * width + C); /* biases */
    add(t, L, C + (a->are_experts_clamped ? 1 : 0), c->n_experts);
}

/* V C (twice untied) [+ T C of learned positions] + L ((2 H + 2 Hkv) D C + 2 or 3 F C + biases + norms) + a norm. */
static void add_transformer(struct total *t, const tl_model_config *c, int64_t q, int64_t kv, int64_t n_experts) {
    const struct architecture *a = architecture_of(c);
    int64_t L = c->n_layers, C = c->channels, F = c->ff;
    bool all = a->has_biases;
    add(t, c->is_tied ? 1 : 2, c->vocabulary, C);
    if (architecture_learns_positions(c)) add(t, 1, c->context, C);
    add_attention(t, c, q, kv);
    if (a->has_experts) add_experts(t, c, a, n_experts);
    add(t, L - architecture_expert_layers(c), C, (a->is_gated ? 3 : 2) * F);
    if (a->has_sinks) add(t, L, 1, c->n_heads);
    if (all || c->has_qkv_bias) add(t, L, 1, q + 2 * kv);
    if (all || c->has_out_bias) add(t, L, 1, C);
    if (all || c->has_mlp_bias) add(t, L, 1, (a->is_gated ? 2 : 1) * F + C);
    add(t, L, 1, norm_numbers(c, a, q, kv));
    add(t, 1, C, a->norm == LAYER_NORM ? 2 : 1);
}

/* Deep linear: L C^2 + C. Of the experts, all or those that a token takes. */
static int64_t parameters(const tl_model_config *c, bool is_active) {
    if (!error_given(c, "model", "a config")) return -1;
    struct total t = {0, true};
    int64_t C = c->channels, q, kv;
    /* A few of them are added below before the next check for overflow. */
    bool is_small = (unsigned)c->family < TL_FAMILY_COUNT && size_mul(c->n_heads, c->head_size, &q) &&
                    size_mul(c->n_kv_heads, c->head_size, &kv) && C <= LARGEST_SIZE && c->ff <= LARGEST_SIZE &&
                    c->expert_ff <= LARGEST_SIZE && q <= LARGEST_SIZE && kv <= LARGEST_SIZE &&
                    c->n_layers <= MOST_LAYERS && c->q_rank <= LARGEST_SIZE && c->kv_rank <= LARGEST_SIZE;
    if (!is_small) return error_set(TL_ERROR_USE, "model: wider than 2^40"), -1;
    if (c->family == TL_DEEP_LINEAR) {
        add(&t, c->n_layers, C, C);
        add(&t, 1, C, 1);
    } else {
        add_transformer(&t, c, q, kv, is_active ? c->n_chosen : c->n_experts);
    }
    if (t.is_whole) return t.n;
    error_set(TL_ERROR_USE, "model: more parameters than 2^63 - 1");
    return -1;
}

int64_t tl_model_config_parameters(const tl_model_config *c) { return parameters(c, false); }
int64_t tl_model_config_active_parameters(const tl_model_config *c) { return parameters(c, true); }

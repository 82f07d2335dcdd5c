/* architecture.h: what each family of models is made of. The rows are in architectures.c; transformer.c builds a
 * model of one, config.c counts its parameters, and config_file.c reads and writes its config.json. */
#ifndef NN_ARCHITECTURE_H
#define NN_ARCHITECTURE_H

#include <stddef.h>

#include "nn/module.h"
#include "tally.h"

enum norm_kind { RMS_NORM, LAYER_NORM };
enum activation { GELU_TANH, GELU_ERF, SILU, RELU_SQUARED };
/* Norms of queries and keys, in front of rotary positions: of each head, or of all heads together. */
enum qk_norm { QK_PLAIN, QK_NORM_HEAD, QK_NORM_WHOLE };
/* One matrix for q, k and v: all of q, all of k, all of v; or for each head of keys its queries, its key, its value. */
enum packing { SEPARATE, PACKED_PARTS, PACKED_GROUPS };
/* Which layers have a sliding window, if the file names one: all; all from "max_window_layers" on, if
 * "use_sliding_window" says so; or all but every n-th. */
/* How a router's logits choose experts and weigh them. SOFTMAX: by their softmax. SIGMOID: by their sigmoids, of
 * which a bias that is not trained is a part where it comes to choosing. INPUT: by the largest logits, and their
 * sigmoids weigh what goes into an expert, not what comes out. */
enum routing { ROUTE_SOFTMAX, ROUTE_SIGMOID, ROUTE_INPUT };
enum window_rule { WINDOW_NEVER, WINDOW_ALL, WINDOW_FROM, WINDOW_EVERY };

/* Names of modules. NULL: there is no such module. */
struct architecture_names {
    const char *body, *embedding, *positions, *layers, *norm, *head, *attention, *mlp;
    const char *q, *k, *v, *out;      /* with a packing, q is the one matrix and k, v are NULL */
    const char *gate, *up, *down;     /* gate NULL: the MLP has none, or (is_gate_packed) up is both */
    const char *router, *experts;     /* experts: the list of MLPs */
    const char *shared;               /* the expert of all tokens */
    const char *dropout[3];           /* modules for dropout: of embeddings, attention's results, the MLP's */
    const char *before[2], *after[2]; /* norms around attention and the MLP */
};

/* A key of config.json: a field of the config (WHOLE: a real one with whole values), or a demand. */
enum key_kind {
    KEY_SIZE,
    KEY_REAL,
    KEY_WHOLE,
    KEY_TRUTH,
    KEY_BIASES,
    KEY_TEXT,
    KEY_TRUE,
    KEY_FALSE,
    KEY_DROPOUT,
    KEY_MULTI_QUERY,
    KEY_FIXED, /* a number that must be the fallback */
    KEY_EMPTY, /* a list */
    KEY_COUNT, /* a size that may be 0 */
    KEY_CAP,   /* a number, or null: none */
    KEY_FALCON,
    KEY_LATENT,       /* the sizes of latent attention */
    KEY_DENSE_LAYERS, /* which layers have experts, Llama 4's way */
    KEY_LLAMA4,       /* chunks and temperatures */
    KEY_GROUPS,       /* of experts */
    KEY_POSITIONS,    /* GPT-2's: learned, or others */
    KEY_PLAIN,        /* a list of which layers have rotary positions; and how far those without stand apart */
    KEY_UNUSED
};
struct key {
    const char *name, *other; /* the second name, which is only read, may be NULL */
    enum key_kind kind;
    size_t at;               /* the field, for the first three kinds */
    double fallback;         /* KEY_NEEDED: the key must be there */
    const char *text, *also; /* demanded texts, of which the first is written */
};
#define KEY_NEEDED (-1.0)

struct architecture {
    tl_module_kind kind;                    /* of the whole model */
    const char *type;                       /* "model_type" */
    const struct architecture_names *names; /* NULL: not a transformer, but deep linear */
    const struct key *keys, *more_keys;     /* each ends with a name of NULL */
    enum norm_kind norm;
    enum activation activation;
    enum qk_norm qk_norm;
    enum packing packing;
    enum window_rule window;
    bool is_gated;            /* act(gate) * up; in one matrix if the gate has no name */
    bool has_experts;         /* in place of the MLP */
    bool is_choice_normed;    /* whatever the file says */
    bool are_experts_packed;  /* gate and up of all experts in one tensor, (E,in,out) */
    bool are_experts_clamped; /* packed, with the columns of gate and up in turn, biases, and a limit (GPT-OSS) */
    enum routing routing;
    bool has_latents;          /* of keys and values */
    bool turns_neighbours;     /* rotary positions turn channels 2 i and 2 i + 1, not i and i + half */
    bool has_sinks;            /* a logit for each head that takes a part of attention, and gives nothing */
    bool is_norm_less_one;     /* norms multiply by 1 + weight */
    bool has_scaled_embedding; /* by sqrt(channels) */
    bool has_rope;
    bool has_biases;          /* of every linear layer, whatever the config says */
    bool has_scaled_residual; /* projections into the stream start smaller, by the number of them */
    bool is_transposed;       /* files hold linear weights as (in, out) */
    bool are_heads_channels;  /* n_heads head_size = channels, since the file has no size of heads */
    double rope_share;        /* of a head's channels that turn, where the file does not say; 0: all */
    const char *rope_base_key, *rope_share_key;
    double rope_base;        /* where the file does not say; 0: 10000 */
    double window_rope_base; /* "rope_local_base_freq" where the file does not say; 0: there is no such key */
    int64_t window_every;    /* where the file does not say */
    int64_t plain_every;     /* layers without positions, where the file does not say */
    int64_t window_keys, head_size, n_kv_heads; /* where the file does not say; 0: none, channels / heads, all */
};

const struct architecture *architecture_of(const tl_model_config *config); /* whose family exists */
const struct architecture *architecture_named(const char *type);           /* NULL: there is none */
const struct architecture *architecture_at(int index);                     /* NULL behind the last */
/* What a config of this architecture starts with: its family. */
void architecture_begin(const struct architecture *a, tl_model_config *config);
/* The width of an expert. */
int64_t architecture_expert_ff(const tl_model_config *config);
/* Whether a layer has experts; and how many layers have. */
bool architecture_has_experts(const tl_model_config *config, int64_t layer);
int64_t architecture_expert_layers(const tl_model_config *config);
/* Numbers that a cache holds of a token in each layer: keys and values, or their latents. */
int64_t architecture_cache_numbers(const tl_model_config *config);
/* Whether a layer turns queries and keys by their positions. */
bool architecture_has_positions(const tl_model_config *config, int64_t layer);
/* Whether any layer does; and whether there is a parameter for each place. */
bool architecture_turns(const tl_model_config *config);
bool architecture_learns_positions(const tl_model_config *config);
/* Whether a layer has the config's window. */
bool architecture_has_window(const tl_model_config *config, int64_t layer);

#endif

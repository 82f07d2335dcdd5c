#include "support/step.h"

#include <string.h>

enum { B = 2, T = 4, C = 8, H = 2, D = C / H, V = 11, L = 2 };

struct layer {
    tl_tensor *norm1, *bias1, *qkv, *out, *norm2, *up, *down;
};
struct net {
    tl_tensor *embedding, *head;
    struct layer layers[L];
};
enum { N_PARAMETERS = sizeof(struct net) / sizeof(tl_tensor *) };

static tl_tensor *parameter(int rank, const int64_t *shape, double std) {
    tl_tensor *x = rank == 1 ? tl_ones(rank, shape, TL_F32, NULL) : tl_normal(rank, shape, 0, std, TL_F32, NULL);
    return tl_requires_grad(tl_set_purpose(x, TL_PARAMETER), true);
}

static bool net_new(struct net *n) {
    n->embedding = parameter(TL_SHAPE(V, C), 0.5);
    n->head = parameter(TL_SHAPE(V, C), 0.5);
    for (int l = 0; l < L; l++) {
        struct layer *y = &n->layers[l];
        y->norm1 = parameter(TL_SHAPE(C), 0);
        y->bias1 = parameter(TL_SHAPE(C), 0);
        y->qkv = parameter(TL_SHAPE(3 * C, C), 0.3);
        y->out = parameter(TL_SHAPE(C, C), 0.3);
        y->norm2 = parameter(TL_SHAPE(C), 0);
        y->up = parameter(TL_SHAPE(2 * C, C), 0.3);
        y->down = parameter(TL_SHAPE(C, 2 * C), 0.3);
    }
    return tl_error() == TL_OK;
}

static tl_tensor *layer_forward(void *context, int l, tl_tensor *x) { /* (B,T,C) -> (B,T,C) */
    const struct layer *y = &(*(struct net **)context)->layers[l];
    tl_scope scope = tl_scope_enter("layer");
    if (!scope.depth) return NULL;
    tl_tensor *qkv = tl_linear(tl_layer_norm(x, y->norm1, y->bias1, 1e-5), y->qkv, NULL); /* (B,T,3C) */
    tl_tensor *part[3];
    for (int i = 0; i < 3; i++) part[i] = tl_unflatten(tl_slice(qkv, 2, i * C, (i + 1) * C, 1), 2, TL_SHAPE(H, D));
    tl_tensor *a =
        /* (B,T,H,D) */
        tl_attention(tl_rope(part[0], 10000, 0, NULL), tl_rope(part[1], 10000, 0, NULL), part[2], TL_CAUSAL, NULL);
    x = tl_add(x, tl_linear(tl_flatten(a, 2, 3), y->out, NULL));
    tl_tensor *h = tl_gelu(tl_linear(tl_rms_norm(x, y->norm2, 1e-5), y->up, NULL));
    return tl_scope_return(scope, tl_add(x, tl_linear(tl_dropout(h, 0.1), y->down, NULL)));
}

static tl_tensor *net_loss(struct net *n, tl_tensor *ids, tl_tensor *targets, enum step_checkpoint checkpoint) {
    static const tl_checkpoint_policy policy[] = {TL_CHECKPOINT_NONE, TL_CHECKPOINT_FULL, TL_CHECKPOINT_SELECTIVE};
    tl_tensor *x = tl_checkpoint_layers(layer_forward, &n, L, policy[checkpoint], 0, tl_embedding(n->embedding, ids));
    return tl_cross_entropy(tl_linear(tl_flatten(x, 0, 1), n->head, NULL), tl_flatten(targets, 0, 1), NULL);
}

bool step_train(tl_device *device, uint64_t seed, int n_steps, enum step_checkpoint checkpoint, double *loss) {
    union {
        struct net net;
        tl_tensor *parameters[N_PARAMETERS];
    } u;
    tl_tensor *m[N_PARAMETERS], *v[N_PARAMETERS];
    *loss = 0;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    tl_device *before = tl_set_default_device(device);
    tl_seed(seed);
    bool ok = net_new(&u.net);
    for (int i = 0; ok && i < N_PARAMETERS; i++) {
        m[i] = tl_set_purpose(tl_zeros_like(u.parameters[i]), TL_OPTIMIZER);
        v[i] = tl_set_purpose(tl_zeros_like(u.parameters[i]), TL_OPTIMIZER);
        ok = m[i] && v[i];
    }
    for (int step = 1; ok && step <= n_steps; step++) {
        tl_scope inside = tl_scope_enter("step");
        if (!(ok = inside.depth != 0)) break;
        tl_tensor *ids = tl_integers(TL_SHAPE(B, T), 0, V, TL_I64, NULL),
                  *targets = tl_integers(TL_SHAPE(B, T), 0, V, TL_I32, NULL);
        tl_tensor *l = net_loss(&u.net, ids, targets, checkpoint);
        ok = l && tl_backward(l, NULL, 0);
        tl_adam_options options = {.lr = 1e-2,
                                   .beta1 = 0.9,
                                   .beta2 = 0.95,
                                   .eps = 1e-8,
                                   .weight_decay = 0.01,
                                   .decoupled = true,
                                   .step = step};
        for (int i = 0; ok && i < N_PARAMETERS; i++) {
            ok = tl_adam_(u.parameters[i], tl_grad_of(u.parameters[i]), m[i], v[i], NULL, &options);
            tl_zero_grad(u.parameters[i], step % 2);
        }
        if (ok && tl_data(l)) *loss = tl_item(l);
        ok = tl_scope_end(inside) && ok && tl_error() == TL_OK;
    }
    tl_set_default_device(before);
    return tl_scope_end(scope) && ok;
}

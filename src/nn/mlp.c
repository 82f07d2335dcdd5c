/* mlp.c: the MLP of a transformer's block, down(act(up x)) or down(act(gate x) * up x); and dropout of what blocks add
 * to the residual stream. */
#include "nn/mlp.h"

#include "nn/architecture.h"
#include "nn/layers.h"
#include "nn/module.h"
#include "ops/ops.h"

tl_generator draw_outside_begin(const struct parallel *p) {
    return parallel_draw_begin(p && p->has_sp ? p->tp : NULL, TP_STREAM);
}

tl_tensor *drop_outside(const struct parallel *p, tl_module *dropout, tl_tensor *x) {
    tl_generator before = draw_outside_begin(p);
    x = tl_module_forward(dropout, x);
    parallel_draw_end(before);
    return x;
}

tl_tensor *drop_outside_in(const struct parallel *p, const tl_module *m, double dropout, tl_tensor *x) {
    tl_generator before = draw_outside_begin(p);
    x = dropout_in(m, dropout, x);
    parallel_draw_end(before);
    return x;
}

bool module_child(tl_module *m, tl_module **child, const char *name, tl_module *made) {
    return (*child = tl_module_add(m, name, made)) != NULL;
}

struct mlp {
    const struct architecture *family;
    double dropout; /* where there is no module for it */
    const struct parallel *parallel;
    tl_module *gate, *up, *down, *out_dropout; /* gate NULL: none */
};

static tl_tensor *activate(enum activation activation, tl_tensor *x) {
    switch (activation) {
    case GELU_TANH:
        return tl_gelu(x);
    case GELU_ERF:
        return tl_gelu_erf(x);
    case SILU:
        return tl_silu(x);
    default:
        return tl_square(tl_relu(x));
    }
}

/* act(gate) * up, in one op where there is one. */
static tl_tensor *gated(enum activation activation, tl_tensor *gate, tl_tensor *up) {
    return activation == SILU ? tl_swiglu(gate, up) : tl_mul(activate(activation, gate), up);
}

/* The whole as one op, if there is one: *y NULL otherwise. False: an error. */
static bool joined(const struct mlp *s, tl_tensor *x, tl_tensor **y) {
    enum { UP, DOWN, GATE };
    const enum activation activation = s->family->activation;
    tl_tensor *weight[3] = {NULL}, *bias[3] = {NULL};
    *y = NULL;
    const bool is_gelu = !s->gate && !s->family->is_gated && activation == GELU_TANH;
    const bool is_swiglu = s->gate && activation == SILU;
    if ((!is_gelu && !is_swiglu) || (s->parallel && s->parallel->tp) ||
        !linear_is_plain(s->up, &weight[UP], &bias[UP]) || !linear_is_plain(s->down, &weight[DOWN], &bias[DOWN]) ||
        (s->gate && !linear_is_plain(s->gate, &weight[GATE], &bias[GATE])))
        return true;
    if (!bias[UP] != !bias[DOWN] || (is_swiglu && bias[UP]) || !mlp_fits(x, weight[UP], weight[DOWN])) return true;
    *y = is_gelu ? gelu_mlp(x, weight[UP], bias[UP], weight[DOWN], bias[DOWN])
                 : swiglu_mlp(x, weight[GATE], weight[UP], weight[DOWN]);
    return *y != NULL;
}

static tl_tensor *parts(const struct mlp *s, tl_tensor *x) {
    enum activation activation = s->family->activation;
    tl_tensor *all = parallel_enter(s->parallel, x), *part[2]; /* up, or gate and up (B,T,F) */
    int n = 0;
    if (s->gate) part[n++] = tl_module_forward(s->gate, all);
    part[n++] = tl_module_forward(s->up, all);
    if (!parallel_drop_entered(s->parallel, x, all, part, n)) return NULL;
    if (s->family->is_gated && n == 1) { /* both are in one */
        int64_t F = tl_size(part[0], -1) / 2;
        part[1] = tl_slice(part[0], -1, F, 2 * F, 1);
        part[0] = tl_slice(part[0], -1, 0, F, 1);
        n = 2;
    }
    tl_tensor *h = n == 2 ? gated(activation, part[0], part[1]) : activate(activation, part[0]);
    return tl_module_forward(s->down, h);
}

tl_tensor *mlp_undropped(tl_module *m, tl_tensor *x, double *dropout) {
    const struct mlp *s = m->state;
    tl_tensor *y;
    *dropout = s->out_dropout ? dropout_of(s->out_dropout) : dropout_now(m, s->dropout);
    if (!joined(s, x, &y)) return NULL;
    return y ? y : parts(s, x);
}

static tl_tensor *mlp_forward(tl_module *m, tl_tensor *x) {
    const struct mlp *s = m->state;
    double dropout;
    tl_tensor *y = mlp_undropped(m, x, &dropout);
    return s->out_dropout ? drop_outside(s->parallel, s->out_dropout, y)
                          : drop_outside_in(s->parallel, m, s->dropout, y);
}

static const tl_module_kind mlp_kind = {"MLP", mlp_forward, NULL, sizeof(struct mlp)};

tl_module *mlp_make(const tl_model_config *c, const struct make *make, const struct make *residual, int64_t F) {
    tl_module *m = tl_module_new(&mlp_kind);
    if (!m) return NULL;
    struct mlp *s = m->state;
    *s = (struct mlp){.family = architecture_of(c), .dropout = c->dropout, .parallel = make->parallel};
    const struct architecture_names *names = s->family->names;
    bool bias = s->family->has_biases || c->has_mlp_bias, ok = true, is_packed = s->family->is_gated && !names->gate;
    int64_t C = c->channels;
    if (names->gate) ok = module_child(m, &s->gate, names->gate, linear_make(make, C, F, bias, OUT));
    ok = ok && module_child(m, &s->up, names->up, linear_make(make, C, is_packed ? 2 * F : F, bias, OUT)) &&
         module_child(m, &s->down, names->down, linear_make(residual, F, C, bias, IN));
    if (ok && names->dropout[2]) ok = module_child(m, &s->out_dropout, names->dropout[2], tl_nn_dropout(c->dropout));
    return module_finish(m, ok);
}

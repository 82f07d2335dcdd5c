/* experts.c: a mixture of experts. A router gives each of E experts a probability for each token; a token takes the
 * k most probable ones, and its result is the sum of theirs, weighted by these probabilities:
 *
 *      p = softmax(x router^T)             (N,E), in f32
 *      w, e = the k largest of p           (N,k) each; w divided by its sum, if the model says so
 *      y = sum over j of w[j] down_e[j] (silu(gate_e[j] x) * up_e[j] x)
 *
 * No token is dropped, and none waits for another: there are N k rows, sorted by expert, and a product of each
 * matrix of all experts with them (tl_grouped_matmul). How many rows an expert has is known to the device alone. So
 * a step costs the same whatever the router does, and a price is exact.
 *
 * The sort is stable, and sums run over j in order of probability: results and gradients do not depend on the order
 * of the experts.
 *
 * tp divides every expert by its width F, as it divides an MLP: results are summed over the ranks behind the weighted
 * sum. The router is whole on each rank. Without sp all choose for all rows; with sp each chooses for its own rows,
 * and choices and weights are gathered as the rows are. A rank's gradient of a weight w[j] is that of its part of the
 * result, so these are summed where weights enter the region: N k numbers.
 *
 * ep divides the experts themselves: rows travel to the ranks of their experts and back (dispatch.h). In between a rank
 * sorts those that have arrived by expert; rows of one expert are then in the order of ranks and tokens, which is the
 * order of tokens in the whole micro-batch.
 *
 * N tokens, C channels, E experts, k of them chosen, F the width of one. */
#include "nn/experts.h"

#include <math.h>
#include <stdio.h>

#include "account/load.h"
#include "base/error.h"
#include "base/memory.h"
#include "engine/autocast.h"
#include "nn/architecture.h"
#include "nn/mlp.h"
#include "nn/module.h"

struct experts {
    struct model *model;
    const struct parallel *parallel;
    int64_t n_experts, n_chosen;
    double dropout, gate_limit;
    bool is_normed;
    enum routing routing;
    int64_t n_groups, n_groups_chosen;
    double scale; /* of weights; 0: 1 */
    tl_module *router, *gate, *up, *down;
    tl_module *packed; /* in place of the last three */
    tl_module *shared; /* the expert of all tokens; NULL: none */
};

/* ---- The matrices of all experts: weight (E,out,in) ---- */

struct stack {
    int64_t n, in, out;
};

static void stack_describe(const tl_module *m, char *text, size_t size) {
    const struct stack *s = m->state;
    snprintf(text, size, "experts=%lld, in_features=%lld, out_features=%lld", (long long)s->n, (long long)s->in,
             (long long)s->out);
}
static const tl_module_kind stack_kind = {"ExpertLinear", NULL, stack_describe, sizeof(struct stack)};

/* `axis`: what tp divides, 1 for outputs and 2 for inputs. */
static tl_module *stack_make(const struct make *make, int64_t n, int64_t in, int64_t out, int axis) {
    tl_module *m = tl_module_new(&stack_kind);
    if (!m) return NULL;
    *(struct stack *)m->state = (struct stack){n, in, out};
    tl_scope scope = tl_scope_begin();
    tl_tensor *weight = tl_normal(TL_SHAPE(n, out, in), 0, make->std, make->dtype, make->device);
    bool ok = expert_add_parameter(m, make->parallel, "weight", weight, axis, 1);
    return module_finish(m, tl_scope_end(scope) && ok);
}

struct router {
    const struct parallel *parallel;
};

/* The router is no Linear layer: recipes that round the operands of these leave it alone, since a small error in its
 * logits sends a token elsewhere. */
static tl_tensor *router_forward(tl_module *m, tl_tensor *x) {
    const struct parallel *p = ((const struct router *)m->state)->parallel;
    tl_tensor *bias = m->n_slots > 1 && !m->slots[1].is_buffer ? tl_module_tensor(m, 1) : NULL;
    tl_tensor *weight = parallel_outside(p, tl_module_tensor(m, 0));
    bias = parallel_outside(p, bias);
    return tl_linear(x, weight, bias);
}
static const tl_module_kind router_kind = {"Router", router_forward, NULL, sizeof(struct router)};

/* The bias of choices is a part of no gradient, and has the digits of f32. */
static bool choice_bias_add(tl_module *m, const struct make *make, int64_t n) {
    tl_dtype dtype = make->dtype == TL_F64 ? TL_F64 : TL_F32;
    return tl_module_add_buffer(m, "e_score_correction_bias", tl_zeros(TL_SHAPE(n), dtype, make->device));
}

static tl_module *router_make(const struct make *make, int64_t in, int64_t out, bool has_bias, bool has_choice_bias) {
    tl_module *m = tl_module_new(&router_kind);
    if (!m) return NULL;
    ((struct router *)m->state)->parallel = make->parallel;
    tl_scope scope = tl_scope_begin();
    tl_tensor *weight = tl_normal(TL_SHAPE(out, in), 0, make->std, make->dtype, make->device);
    bool ok = tl_module_add_parameter(m, "weight", weight);
    if (ok && has_bias) ok = tl_module_add_parameter(m, "bias", tl_zeros(TL_SHAPE(out), make->dtype, make->device));
    if (ok && has_choice_bias) ok = choice_bias_add(m, make, out);
    return module_finish(m, tl_scope_end(scope) && ok);
}

/* rows (N k,in), in order of experts -> (N k,out) */
static tl_tensor *stack_multiply(const tl_module *m, tl_tensor *rows, tl_tensor *ends) {
    tl_scope scope = module_enter(m);
    if (!scope.depth) return NULL;
    return tl_scope_return(scope, tl_grouped_matmul(rows, tl_module_tensor(m, 0), ends, true));
}

/* ---- The same with gate and up of all experts in one tensor ----
 *
 * Llama 4 has the gate's columns first. GPT-OSS has columns of both in turn, biases, and gates that are clamped. */

enum { GATE_UP, GATE_UP_BIAS, DOWN, DOWN_BIAS }; /* with biases */
enum { PLAIN_GATE_UP, PLAIN_DOWN };              /* without */
static const tl_module_kind packed_kind = {"PackedExperts", NULL, NULL, 0};

/* What tp divides: columns, in blocks or not, and with them their bias; or (n_blocks 0) rows, behind which the bias is
 * whole. */
static bool packed_add(tl_module *m, const char *name, int64_t E, int64_t in, int64_t out, int64_t n_blocks,
                       bool has_bias, const struct make *make) {
    const struct parallel *p = make->parallel;
    char bias[64];
    snprintf(bias, sizeof bias, "%s_bias", name);
    tl_tensor *weight = tl_normal(TL_SHAPE(E, in, out), 0, make->std, make->dtype, make->device);
    if (!expert_add_parameter(m, p, name, weight, n_blocks ? 2 : 1, n_blocks ? n_blocks : 1)) return false;
    tl_tensor *zeros = has_bias ? tl_zeros(TL_SHAPE(E, out), make->dtype, make->device) : NULL;
    return !has_bias || expert_add_parameter(m, p, bias, zeros, n_blocks ? 1 : -1, n_blocks);
}

static tl_module *packed_make(const struct make *make, int64_t E, int64_t C, int64_t F, bool has_bias) {
    tl_module *m = tl_module_new(&packed_kind);
    if (!m) return NULL;
    tl_scope scope = tl_scope_begin();
    bool ok = packed_add(m, "gate_up_proj", E, C, 2 * F, has_bias ? 1 : 2, has_bias, make) && /* pairs, or halves */
              packed_add(m, "down_proj", E, F, C, 0, has_bias, make);
    return module_finish(m, tl_scope_end(scope) && ok);
}

/* The bias of what is summed over the ranks of tp: the first one adds it. */
static tl_tensor *bias_once(const struct parallel *p, tl_tensor *bias) {
    bias = parallel_share(p->tp, bias);
    return bias && p->tp ? tl_scale(bias, tl_comm_rank(p->tp) == 0 ? 1 : 0) : bias;
}

/* rows (N k,in) weight[e] + bias[e], e (N k) the expert of each row */
static tl_tensor *packed_product(const struct experts *s, int weight, tl_tensor *rows, tl_tensor *e, tl_tensor *ends) {
    const tl_module *m = s->packed;
    tl_tensor *y = rows ? tl_grouped_matmul(rows, tl_module_tensor(m, weight), ends, false) : NULL;
    tl_tensor *bias = y ? tl_module_tensor(m, weight + 1) : NULL;
    if (bias && weight == DOWN) bias = bias_once(s->parallel, bias);
    bias = bias ? tl_embedding(bias, e) : NULL;
    bias = bias ? tl_cast(bias, tl_dtype_of(y)) : NULL;
    return bias ? tl_add(y, bias) : NULL;
}

/* (up + 1) gate sigmoid(1.702 gate), with gate at most the limit and up within +- of it */
static tl_tensor *packed_gate(tl_tensor *both, double limit) {
    const tl_scalar least = tl_scalar_float(-limit), most = tl_scalar_float(limit);
    int64_t width = both ? tl_size(both, -1) : 0;
    tl_tensor *gate = tl_clamp(tl_slice(both, -1, 0, width, 2), NULL, &most);
    tl_tensor *up = tl_clamp(tl_slice(both, -1, 1, width, 2), &least, &most);
    tl_tensor *sigmoid = gate ? tl_sigmoid(tl_scale(gate, 1.702)) : NULL;
    gate = sigmoid ? tl_mul(gate, sigmoid) : NULL;
    return gate && up ? tl_mul(tl_add_scalar(up, tl_scalar_float(1)), gate) : NULL;
}

/* down (silu(gate) * up), of halves */
static tl_tensor *halves_forward(const tl_module *m, tl_tensor *rows, tl_tensor *ends) {
    tl_tensor *both = tl_grouped_matmul(rows, tl_module_tensor(m, PLAIN_GATE_UP), ends, false);
    const int64_t F = both ? tl_size(both, -1) / 2 : 0;
    tl_tensor *gate = both ? tl_slice(both, -1, 0, F, 1) : NULL, *up = both ? tl_slice(both, -1, F, 2 * F, 1) : NULL;
    tl_tensor *h = gate && up ? tl_swiglu(gate, up) : NULL;
    return h ? tl_grouped_matmul(h, tl_module_tensor(m, PLAIN_DOWN), ends, false) : NULL;
}

/* limit 0: halves */
static tl_tensor *packed_forward(const struct experts *s, tl_tensor *rows, tl_tensor *e, tl_tensor *ends) {
    tl_scope scope = module_enter(s->packed);
    if (!scope.depth) return NULL;
    if (s->gate_limit == 0) return tl_scope_return(scope, halves_forward(s->packed, rows, ends));
    tl_tensor *h = packed_gate(packed_product(s, GATE_UP, rows, e, ends), s->gate_limit);
    return tl_scope_return(scope, packed_product(s, DOWN, h, e, ends));
}

/* ---- Rows ---- */

/* Row `place` of the sorted rows belongs to pair `order[place]` of (N,k), of token `token[place]`; `place` of (N,k) is
 * the inverse of order. ends (E): where each expert's rows end. All i64. */
struct route {
    tl_tensor *logits, *probabilities; /* (N,E), f32; with sp of this rank's rows */
    tl_tensor *weight;                 /* (N,k) */
    tl_tensor *order, *place, *token, *ends;
    tl_tensor *expert; /* (N k), of each row */
};

/* A permutation of rows or its inverse, for a gradient; n_each > 1: and then the sums of so many rows each. */
struct reorder {
    tl_tensor *index;
    int64_t n_each;
};

static void reorder_release(void *context) {
    struct reorder *r = context;
    tl_drop(r->index);
    memory_free(r);
}

static void reorder_back(tl_gradient *g, void *context) {
    static const int choices = 1;
    const struct reorder *r = context;
    tl_tensor *dy = tl_gradient_of_output(g, 0);
    dy = dy ? tl_embedding(dy, r->index) : NULL;
    if (dy && r->n_each > 1) {
        int64_t n = tl_size(dy, 0) / r->n_each, C = tl_size(dy, 1);
        dy = tl_sum(tl_view(dy, TL_SHAPE(n, r->n_each, C)), &choices, 1, false);
    }
    if (dy) tl_gradient_set(g, 0, dy);
}

/* Rows index[0], index[1], ... of x. The gradient: rows `back` of the result's, in sums of n_each. Two gathers, where
 * that of an embedding would sort the ids again, and add rows in the order of experts. */
static tl_tensor *rows_reorder(tl_tensor *x, tl_tensor *index, tl_tensor *back, int64_t n_each) {
    bool grad = tl_set_grad_mode(false);
    tl_tensor *y = tl_embedding(x, index);
    tl_set_grad_mode(grad);
    struct reorder *r = y ? memory_new(sizeof *r) : NULL;
    if (!y) return NULL;
    if (!r) return error_memory(sizeof *r, "a route"), NULL;
    *r = (struct reorder){tl_keep(back), n_each};
    return tl_function(reorder_back, r, reorder_release, &x, 1, &y, 1) ? y : NULL;
}

/* Where rows of experts e (n) go: everything but the tokens. */
static bool rows_sort(int64_t n_experts, tl_tensor *e, struct route *route) {
    tl_device *device = tl_device_of(e);
    if (!tl_sort(e, 0, false, &route->expert, &route->order)) return false;
    tl_tensor *experts = tl_arange(0, 1, n_experts, TL_I64, device);
    route->ends = tl_searchsorted(route->expert, experts, true);
    tl_tensor *rows = tl_arange(0, 1, tl_numel(e), TL_I64, device);
    route->place = tl_empty(TL_SHAPE(tl_numel(e)), TL_I64, device);
    route->place = route->place && rows ? tl_scatter_(route->place, 0, route->order, rows) : NULL;
    return route->ends && route->place;
}

/* Where the pairs of tokens and experts e (N,k) go. */
static bool pairs_sort(const struct experts *s, tl_tensor *e, struct route *route) {
    int64_t N = tl_size(e, 0), k = s->n_chosen;
    tl_tensor *flat = tl_reshape(e, TL_SHAPE(N * k));
    if (!flat || !rows_sort(s->n_experts, flat, route)) return false;
    tl_tensor *tokens = tl_arange(0, 1, N, TL_I64, tl_device_of(e));
    tokens = tokens ? tl_expand(tl_unsqueeze(tokens, 1), TL_SHAPE(N, k)) : NULL;
    route->token = tokens ? tl_gather(tl_reshape(tokens, TL_SHAPE(N * k)), 0, route->order) : NULL;
    return route->token != NULL;
}

/* Groups: of G groups of experts, those with the best scores stay, and the scores of others become `hidden`. A group's
 * score is that of its best expert (DeepSeek-V2) or of its best two, added up (V3). scores (N,E), not recorded. */
static tl_tensor *groups_keep(const struct experts *s, tl_tensor *scores, int64_t n_best, double hidden) {
    static const int best = 2;
    const int64_t N = tl_size(scores, 0), G = s->n_groups, each = s->n_experts / G;
    tl_tensor *top, *at, *of_groups, *chosen, *groups = tl_view(tl_contiguous(scores), TL_SHAPE(N, G, each));
    if (!groups || !tl_topk(groups, n_best, -1, true, &top, &at)) return NULL;
    of_groups = tl_sum(top, &best, 1, false); /* (N,G) */
    if (!of_groups || !tl_topk(of_groups, s->n_groups_chosen, -1, true, &top, &chosen)) return NULL;
    tl_tensor *is_hidden = tl_full(TL_SHAPE(N, G), 1, TL_F32, tl_device_of(scores)), *none = NULL;
    none = tl_zeros(TL_SHAPE(N, s->n_groups_chosen), TL_F32, tl_device_of(scores));
    is_hidden = is_hidden && none ? tl_scatter_(is_hidden, 1, chosen, none) : NULL;
    is_hidden = is_hidden ? tl_cast(tl_expand(tl_unsqueeze(is_hidden, 2), TL_SHAPE(N, G, each)), TL_BOOL) : NULL;
    return is_hidden ? tl_masked_fill(scores, tl_reshape(is_hidden, TL_SHAPE(N, s->n_experts)), hidden) : NULL;
}

/* Which experts, (N,k), and their weights: of the softmax of logits. */
static bool choose_by_softmax(const struct experts *s, struct route *route, tl_tensor **e) {
    tl_tensor *scores = route->probabilities = tl_softmax(route->logits, -1);
    if (scores && s->n_groups) scores = groups_keep(s, scores, 1, 0);
    return scores && tl_topk(scores, s->n_chosen, -1, true, &route->weight, e);
}

/* The sigmoids of logits; a bias is added to what chooses, and is no part of weights. */
static bool choose_by_sigmoid(const struct experts *s, struct route *route, tl_tensor **e) {
    tl_tensor *scores = tl_sigmoid(route->logits), *top;
    bool grad = tl_set_grad_mode(false);
    tl_tensor *bias = tl_cast(tl_module_tensor(s->router, 1), tl_dtype_of(route->logits));
    tl_tensor *rank = scores && bias ? tl_add(scores, bias) : NULL;
    if (rank && s->n_groups) rank = groups_keep(s, rank, 2, -INFINITY);
    bool ok = rank && tl_topk(rank, s->n_chosen, -1, true, &top, e);
    tl_set_grad_mode(grad);
    route->weight = ok ? tl_gather(scores, 1, *e) : NULL;
    return route->weight != NULL;
}

/* The sigmoids of the largest logits. */
static bool choose_by_logits(const struct experts *s, struct route *route, tl_tensor **e) {
    tl_tensor *top;
    if (!tl_topk(route->logits, s->n_chosen, -1, true, &top, e)) return false;
    route->weight = tl_sigmoid(top);
    return route->weight != NULL;
}

/* x (N,C), with sp this rank's part of the rows; the choices e and their weights become those of all. */
static bool route_find(const struct experts *s, tl_tensor *x, struct route *route) {
    static const int experts = 1;
    static bool (*const choose[])(const struct experts *, struct route *, tl_tensor **) = {
        [ROUTE_SOFTMAX] = choose_by_softmax, [ROUTE_SIGMOID] = choose_by_sigmoid, [ROUTE_INPUT] = choose_by_logits};
    tl_tensor *logits = tl_module_forward(s->router, x), *e = NULL;
    if (!logits) return false;
    route->logits = tl_dtype_of(logits) == TL_F64 ? logits : tl_cast(logits, TL_F32);
    if (!route->logits || !choose[s->routing](s, route, &e)) return false;
    if (s->is_normed) {
        tl_tensor *sum = tl_sum(route->weight, &experts, 1, true);
        if (sum && s->routing == ROUTE_SIGMOID) sum = tl_add_scalar(sum, tl_scalar_float(1e-20));
        route->weight = sum ? tl_div(route->weight, sum) : NULL;
    }
    if (route->weight && s->scale > 0 && s->scale != 1) route->weight = tl_scale(route->weight, s->scale);
    route->weight = parallel_enter(s->parallel, route->weight);
    if (s->parallel->has_sp) e = tl_all_gather(e, s->parallel->tp);
    return route->weight && e && pairs_sort(s, e, route);
}

/* The results z (N k,C) of all rows, weighted and summed for each token: (N,C), in z's dtype. */
static tl_tensor *rows_combine(const struct experts *s, tl_tensor *z, const struct route *route) {
    static const int choices = 1;
    if (!z) return NULL;
    int64_t k = s->n_chosen, N = tl_size(z, 0) / k, C = tl_size(z, 1);
    tl_dtype autocast = tl_set_autocast(TL_DTYPE_COUNT); /* sums would be of f32 copies of all rows */
    tl_tensor *pairs = tl_view(rows_reorder(z, route->place, route->order, 1), TL_SHAPE(N, k, C));
    if (pairs && s->routing != ROUTE_INPUT) {
        tl_tensor *weight = tl_unsqueeze(tl_cast(route->weight, tl_dtype_of(z)), -1); /* (N,k,1) */
        pairs = weight ? tl_mul(pairs, weight) : NULL;
    }
    tl_tensor *y = pairs ? tl_sum(pairs, &choices, 1, false) : NULL;
    tl_set_autocast(autocast);
    return y;
}

/* ---- Losses of routers ---- */

bool routing_is_on(const struct model *s, const tl_module *model) {
    return (s->balance_weight > 0 || s->router_z_weight > 0) && tl_module_is_training(model);
}

void routing_set(struct model *s, tl_tensor *x) {
    if (x) tl_keep(x);
    tl_drop(s->routing);
    s->routing = x;
}

bool routing_begin(struct model *s, tl_device *device) {
    tl_dtype dtype = s->dtype == TL_F64 ? TL_F64 : TL_F32;
    tl_tensor *zeros = tl_zeros(TL_SHAPE(2 * s->config.n_experts + 1), dtype, device);
    routing_set(s, zeros);
    return zeros != NULL;
}

void routing_end(struct model *s) { routing_set(s, NULL); }

/* How many rows each expert has, from where they end. */
static tl_tensor *ends_count(tl_tensor *ends, tl_dtype dtype) {
    tl_tensor *parts[2] = {tl_zeros(TL_SHAPE(1), TL_I64, tl_device_of(ends)), NULL};
    parts[1] = tl_slice(ends, 0, 0, -1, 1);
    tl_tensor *begins = parts[0] && parts[1] ? tl_concat(parts, 2, 0) : NULL;
    return begins ? tl_cast(tl_sub(ends, begins), dtype) : NULL;
}

static bool routing_add(struct model *s, const struct route *route) {
    static const int tokens = 0;
    tl_tensor *probabilities = route->probabilities ? route->probabilities : tl_softmax(route->logits, -1);
    if (!probabilities) return false;
    tl_tensor *lse = tl_logsumexp(route->logits, (const int[]){1}, 1, false); /* (N) */
    tl_tensor *parts[3] = {tl_sum(probabilities, &tokens, 1, false), NULL, NULL};
    parts[1] = ends_count(route->ends, tl_dtype_of(probabilities));
    if (s->parallel.has_sp && parts[1]) /* of all rows on each rank, and the ranks' are added up */
        parts[1] = tl_scale(parts[1], tl_comm_rank(s->parallel.tp) == 0 ? 1 : 0);
    parts[2] = lse ? tl_sum(tl_square(lse), &tokens, 1, true) : NULL;
    tl_tensor *sums = parts[0] && parts[1] && parts[2] ? tl_concat(parts, 3, 0) : NULL;
    sums = sums ? tl_add(s->routing, sums) : NULL;
    if (sums) routing_set(s, sums);
    return sums != NULL;
}

tl_tensor *routing_loss(const struct model *s, tl_tensor *loss, int64_t n_rows) {
    int64_t E = s->config.n_experts;
    double n = (double)n_rows * tl_comm_size(s->parallel.cp) * (double)architecture_expert_layers(&s->config);
    tl_tensor *sums = parallel_total(&s->parallel, s->routing);
    if (sums && s->parallel.cp) sums = tl_all_reduce(sums, s->parallel.cp); /* losses are averaged over cp */
    if (!sums) return NULL;
    tl_tensor *probability = tl_slice(sums, 0, 0, E, 1), *chosen = tl_slice(sums, 0, E, 2 * E, 1);
    tl_tensor *z = tl_select(sums, 0, 2 * E);
    tl_tensor *balance = probability && chosen ? tl_sum_all(tl_mul(probability, tl_detach(chosen))) : NULL;
    if (!loss || !balance || !z) return NULL;
    tl_dtype dtype = tl_dtype_of(loss);
    if (s->balance_weight > 0)
        loss = tl_add(loss, tl_cast(tl_scale(balance, s->balance_weight * (double)E / (n * n)), dtype));
    if (loss && s->router_z_weight > 0) loss = tl_add(loss, tl_cast(tl_scale(z, s->router_z_weight / n), dtype));
    return loss;
}

/* ---- The layer ---- */

/* rows (N k,C) -> (N k,C) */
static tl_tensor *stacks_forward(const struct experts *s, tl_tensor *rows, tl_tensor *ends) {
    tl_tensor *gate = stack_multiply(s->gate, rows, ends), *up = stack_multiply(s->up, rows, ends);
    tl_tensor *h = gate && up ? tl_swiglu(gate, up) : NULL; /* (N k,F) */
    return h ? stack_multiply(s->down, h, ends) : NULL;
}

/* Rows (N k,C) in order of experts, times their weights. */
static tl_tensor *rows_weigh(tl_tensor *rows, const struct route *route) {
    tl_tensor *weight = tl_view(tl_contiguous(route->weight), TL_SHAPE(-1, 1)); /* of pairs, (N k,1) */
    weight = weight ? rows_reorder(weight, route->order, route->place, 1) : NULL;
    weight = weight ? tl_cast(weight, tl_dtype_of(rows)) : NULL;
    return weight ? tl_mul(rows, weight) : NULL;
}

/* rows (n,C), in order of experts -> (n,C) */
static tl_tensor *rows_forward(const struct experts *s, tl_tensor *rows, const struct route *route) {
    return s->packed ? packed_forward(s, rows, route->expert, route->ends) : stacks_forward(s, rows, route->ends);
}

/* The same where the experts are on several ranks. */
static tl_tensor *rows_dispatch(const struct experts *s, const struct dispatch *d, tl_tensor *rows) {
    tl_scope scope = tl_scope_enter(LEDGER_LOAD);
    if (!scope.depth) return NULL;
    struct route route = {0};
    tl_tensor *arrived = dispatch_send(d, rows), *e = arrived ? dispatch_experts(d) : NULL;
    bool ok = e && rows_sort(d->n_experts, e, &route);
    rows = ok ? rows_reorder(arrived, route.order, route.place, 1) : NULL;
    tl_tensor *z = rows ? rows_forward(s, rows, &route) : NULL;
    z = z ? rows_reorder(z, route.place, route.order, 1) : NULL;
    return tl_scope_return(scope, dispatch_return(d, z));
}

static tl_tensor *rows_all(const struct experts *s, tl_tensor *rows, const struct route *route) {
    if (!s->parallel->ep) return rows_forward(s, rows, route);
    struct dispatch d;
    tl_tensor *counts = ends_count(route->ends, TL_I64);
    if (!counts || !dispatch_begin(&d, s->parallel, counts, tl_size(rows, 0), &s->model->load)) return NULL;
    tl_tensor *z = rows_dispatch(s, &d, rows);
    dispatch_end(&d);
    return z;
}

/* x (...,C) -> (...,C) */
static tl_tensor *experts_forward(tl_module *m, tl_tensor *x) {
    const struct experts *s = m->state;
    struct route route = {0};
    tl_tensor *rows = tl_reshape(x, TL_SHAPE(-1, tl_size(x, -1))); /* (N,C) */
    rows = rows ? autocast_narrow(rows) : NULL;
    if (!rows || !route_find(s, rows, &route)) return NULL;
    if (s->model && s->model->routing && !routing_add(s->model, &route)) return NULL;
    rows = parallel_enter(s->parallel, rows);
    tl_tensor *sorted = rows ? rows_reorder(rows, route.token, route.place, s->n_chosen) : NULL; /* (N k,C) */
    if (sorted && s->routing == ROUTE_INPUT) sorted = rows_weigh(sorted, &route);
    if (!sorted) return NULL;
    tl_tensor *z = rows_all(s, sorted, &route);
    tl_tensor *y = z ? parallel_leave(s->parallel, rows_combine(s, z, &route)) : NULL;
    y = y ? drop_outside_in(s->parallel, m, s->dropout, tl_view(y, tl_rank(x), tl_shape(x))) : NULL;
    if (!y || !s->shared) return y;
    tl_tensor *for_all = tl_module_forward(s->shared, x);
    return for_all ? tl_add(y, for_all) : NULL;
}

static const tl_module_kind experts_kind = {"Experts", experts_forward, NULL, sizeof(struct experts)};

tl_module *experts_make(const tl_model_config *c, const struct make *make, const struct make *residual) {
    tl_module *m = tl_module_new(&experts_kind), *list = NULL;
    if (!m) return NULL;
    const struct architecture_names *names = architecture_of(c)->names;
    struct experts *s = m->state;
    *s = (struct experts){.parallel = make->parallel,
                          .n_experts = c->n_experts,
                          .n_chosen = c->n_chosen,
                          .dropout = c->dropout,
                          .gate_limit = c->gate_limit,
                          .is_normed = c->is_choice_normed,
                          .routing = architecture_of(c)->routing,
                          .n_groups = c->n_groups,
                          .n_groups_chosen = c->n_groups_chosen,
                          .scale = c->routed_scale};
    const bool is_packed = architecture_of(c)->are_experts_packed, is_clamped = architecture_of(c)->are_experts_clamped;
    int64_t C = c->channels, F = architecture_expert_ff(c), E = c->n_experts;
    bool ok = (s->router = tl_module_add(m, names->router,
                                         router_make(make, C, E, is_clamped, s->routing == ROUTE_SIGMOID))) != NULL;
    if (ok && is_packed)
        ok = (s->packed = tl_module_add(m, names->experts, packed_make(make, E, C, F, is_clamped))) != NULL;
    else
        ok = ok && (list = tl_module_add(m, names->experts, tl_nn_list())) &&
             (s->gate = tl_module_add(list, names->gate, stack_make(make, E, C, F, 1))) &&
             (s->up = tl_module_add(list, names->up, stack_make(make, E, C, F, 1))) &&
             (s->down = tl_module_add(list, names->down, stack_make(residual, E, F, C, 2)));
    if (ok && c->n_shared)
        ok = module_child(m, &s->shared, names->shared, mlp_make(c, make, residual, c->n_shared * F));
    return module_finish(m, ok);
}

void experts_set_model(tl_module *m, struct model *model) { ((struct experts *)m->state)->model = model; }

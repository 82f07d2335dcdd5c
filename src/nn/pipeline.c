/* pipeline.c: micro-batches through the stages of a model (pp), one forward, one backward.
 *
 *     stage 0   F0 F1 F2 .. .. .. B0 F3 B1 ..       p stages, n micro-batches. Stage s begins with p - 1 - s forwards,
 *     stage 1      F0 F1 .. .. B0 F2 B1 F3 ..       then alternates, and ends with as many backwards. It holds the
 *     stage 2         F0 F1 B0 F2 B1 F3 B2 ..       activations of at most p - s micro-batches; all stages together
 *     stage 3            F0 B0 F1 B1 F2 B2 ..       are idle for a share of (p - 1) / (n + p - 1) of the time.
 *
 * Stages with several chunks of layers: interleaved.c.
 *
 * What a stage receives is a leaf of its own graph; its gradient goes back to the stage before. Where a stage sends to
 * a neighbour and expects something from it, both are one exchange: two that both send first would wait for ever. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "engine/scope.h"
#include "nn/pipeline.h"

#include "nn/module.h"
#include "tensor/tensor.h"

enum { PP_STREAM = 56 };

static int neighbour(const struct pipeline *p, int step) { return tl_comm_rank(p->pp) + step; }

/* ---- One micro-batch ---- */

/* A bound on the random numbers of one pass, the same on every stage: dropout of embeddings, of two sub-layers and of
 * the attention weights of each layer, of the rows of all processes that divide them (ops/draw.h). */
static uint64_t drawn_most(const tl_model_config *c, const tl_tensor *tokens) {
    uint64_t n_parts = 1 + (uint64_t)thread_state()->draw_others, T = (uint64_t)tl_size(tokens, 1);
    uint64_t rows = (uint64_t)tl_numel(tokens) * n_parts;
    return rows *
           ((uint64_t)c->channels * (uint64_t)(1 + 2 * c->n_layers) + (uint64_t)c->n_heads * T * (uint64_t)c->n_layers);
}

/* Every stage has a stream of its own, and every micro-batch a part of it. */
static void generator_place(struct pipeline *p, int64_t k, tl_tensor *tokens) {
    p->n_drawn = drawn_most(&p->state->config, tokens);
    uint64_t stage = (uint64_t)(tl_comm_rank(p->pp) + p->state->chunk * tl_comm_size(p->pp));
    const tl_generator own = {p->before.seed, p->before.stream ^ stage << PP_STREAM,
                              p->before.index + (uint64_t)k * p->n_drawn};
    if (p->pp) tl_generator_set(own);
}

static tl_tensor *received(const struct pipeline *p, tl_tensor *tokens) {
    int64_t shape[3];
    int rank = lm_stage_shape(p->model, tokens, shape);
    return tl_recv(rank, shape, p->state->dtype, tl_device_of(tokens), neighbour(p, -1), p->pp);
}

static tl_tensor *stage(struct pipeline *p, tl_tensor *tokens, tl_tensor *targets, tl_tensor *begin, tl_tensor *x) {
    tl_scope scope = tl_scope_enter(p->model->scope_name);
    if (!scope.depth) return NULL;
    bool is_end = pipeline_is_end(p);
    bool ok = !begin || lm_documents_begin(p->model, tokens, begin);
    tl_tensor *y = ok ? lm_stage(p->model, tokens, targets, x) : NULL;
    lm_documents_end(p->model);
    if (y && !is_end && tl_dtype_of(y) != p->state->dtype) {
        error_set(TL_ERROR_USE, "pipeline: a stage gives %s (need %s, as the parameters)",
                  tl_dtype_name(tl_dtype_of(y)), tl_dtype_name(p->state->dtype));
        y = NULL;
    }
    return tl_scope_return(scope, y);
}

static bool loss_add(struct pipeline *p, tl_tensor *loss) {
    bool grad = tl_set_grad_mode(false);
    bool ok = tl_add_(p->total, loss) != NULL;
    tl_set_grad_mode(grad);
    return ok;
}

bool pipeline_give(struct pipeline *p, int64_t k, tl_tensor **tokens, tl_tensor **targets, tl_tensor **begin) {
    *tokens = *targets = *begin = NULL;
    if (!p->give(p->context, k, tokens, targets, begin)) return false;
    return *tokens || error_set(TL_ERROR_USE, "pipeline: got NULL instead of the tokens of a micro-batch");
}

/* The first micro-batch may have been given already. */
static bool batch_take(struct pipeline *p, int64_t k, tl_tensor **tokens, tl_tensor **targets, tl_tensor **begin) {
    if (k > 0 || !p->early[0]) return pipeline_give(p, k, tokens, targets, begin);
    tl_tensor **const to[] = {tokens, targets, begin};
    bool ok = true;
    for (int i = 0; i < 3; i++) {
        *to[i] = scope_adopt(p->early[i]);
        ok = ok && (*to[i] || !p->early[i]);
        p->early[i] = NULL;
    }
    return ok;
}

bool pipeline_forward(struct pipeline *p, int64_t k, tl_tensor *x, struct flight *flight) {
    tl_tensor *tokens = NULL, *targets = NULL, *begin = NULL;
    *flight = (struct flight){.x = x};
    tl_scope scope = tl_scope_begin();
    bool ok = scope.depth && batch_take(p, k, &tokens, &targets, &begin);
    if (ok && !pipeline_is_beginning(p) && !x) ok = (x = received(p, tokens)) && (flight->x = tl_keep(x));
    if (ok && x && p->weight != 0) ok = tl_requires_grad(x, true) != NULL;
    if (ok) generator_place(p, k, tokens);
    tl_tensor *y = ok ? stage(p, tokens, targets, begin, x) : NULL;
    ok = y && (flight->y = tl_keep(y)) && (!pipeline_is_end(p) || loss_add(p, y));
    return scope.depth && tl_scope_end(scope) && ok;
}

void flight_end(struct flight *f) {
    if (f->x) tl_zero_grad(f->x, false);
    tl_drop(f->x);
    tl_drop(f->y);
    *f = (struct flight){0};
}

static struct flight *newest(struct pipeline *p) { return &p->flights[(p->oldest + p->n_flights++) % p->n_room]; }

bool pipeline_backward(struct pipeline *p, struct flight *f, tl_tensor *dy, tl_tensor **dx) {
    tl_dtype autocast = tl_set_autocast(TL_DTYPE_COUNT);
    tl_scope scope = tl_scope_begin();
    tl_tensor *seed = dy ? dy : scope.depth ? tl_full(TL_SCALAR, p->weight, TL_F32, tl_device_of(f->y)) : NULL;
    bool ok = seed && tl_backward(f->y, seed, 0);
    *dx = ok && f->x ? tl_grad_of(f->x) : NULL;
    if (ok && f->x && !*dx) ok = error_set(TL_ERROR_USE, "pipeline: a stage has no gradient of its input");
    if (*dx) ok = tl_keep(*dx) != NULL && ok;
    if (scope.depth) ok = tl_scope_end(scope) && ok;
    tl_set_autocast(autocast);
    tl_drop(dy);
    flight_end(f);
    return ok;
}

/* Of the oldest micro-batch. */
static bool backward(struct pipeline *p, tl_tensor *dy, tl_tensor **dx) {
    bool ok = pipeline_backward(p, &p->flights[p->oldest], dy, dx);
    p->oldest = (p->oldest + 1) % p->n_room;
    p->n_flights--;
    return ok;
}

/* ---- Between neighbours; what is received is kept ---- */

/* Sends x and receives a tensor like it, both with one neighbour. */
static bool exchange(const struct pipeline *p, tl_tensor *x, int step, tl_tensor **y) {
    tl_scope scope = tl_scope_begin();
    bool grad = tl_set_grad_mode(false);
    int peer = neighbour(p, step);
    *y = scope.depth ? tl_send_recv(x, peer, peer, p->pp) : NULL;
    bool ok = *y && tl_keep(*y);
    tl_set_grad_mode(grad);
    return scope.depth && tl_scope_end(scope) && ok;
}

static bool send(const struct pipeline *p, tl_tensor *x, int step) {
    tl_scope scope = tl_scope_begin();
    bool grad = tl_set_grad_mode(false);
    bool ok = scope.depth && tl_send(x, neighbour(p, step), p->pp);
    tl_set_grad_mode(grad);
    return scope.depth && tl_scope_end(scope) && ok;
}

/* The gradient of what the oldest micro-batch sent. */
static bool gradient_receive(const struct pipeline *p, tl_tensor **dy) {
    const tl_tensor *y = p->flights[p->oldest].y;
    tl_scope scope = tl_scope_begin();
    *dy = scope.depth ? tl_recv(y->rank, y->shape, y->dtype, tl_device_of(y), neighbour(p, 1), p->pp) : NULL;
    bool ok = *dy && tl_keep(*dy);
    return scope.depth && tl_scope_end(scope) && ok;
}

/* ---- The schedule ---- */

/* Forward alone. */
static bool pass(void *context, int64_t k) {
    struct pipeline *p = context;
    struct flight f;
    bool ok = pipeline_forward(p, k, NULL, &f) && (p->is_last || send(p, f.y, 1));
    flight_end(&f);
    return ok;
}

static bool pass_all(struct pipeline *p) {
    bool grad = tl_set_grad_mode(false), ok = p->run(p->context, p->n, pass, p);
    tl_set_grad_mode(grad);
    return ok;
}

/* One forward, one backward; `is_last`: no forward follows. */
static bool alternate(struct pipeline *p, int64_t k, bool is_last) {
    tl_tensor *dy = NULL, *dx = NULL, *x = p->next;
    struct flight *f = newest(p);
    p->next = NULL;
    bool ok = pipeline_forward(p, k, x, f) && (p->is_last || exchange(p, f->y, 1, &dy)) && backward(p, dy, &dx);
    if (ok && dx) ok = is_last ? send(p, dx, -1) : exchange(p, dx, -1, &p->next);
    tl_drop(dx);
    return ok;
}

static bool alternate_again(void *context, int64_t k) {
    struct pipeline *p = context;
    return alternate(p, p->n_room - 1 + k, false);
}

static bool train_all(struct pipeline *p) {
    int64_t ahead = p->n_room - 1; /* forwards before the first backward */
    tl_tensor *dy, *dx;
    bool ok = true;
    for (int64_t k = 0; ok && k < ahead; k++) {
        struct flight *f = newest(p);
        ok = pipeline_forward(p, k, NULL, f) && send(p, f->y, 1);
    }
    ok = ok && p->run(p->context, p->n - ahead - 1, alternate_again, p) && alternate(p, p->n - 1, true);
    for (int64_t k = 0; ok && k < ahead; k++) {
        dx = dy = NULL;
        ok = gradient_receive(p, &dy) && backward(p, dy, &dx) && (!dx || send(p, dx, -1));
        tl_drop(dx);
    }
    return ok;
}

/* Every round. */
static bool run_all(void *context, int64_t n, bool (*round)(void *own, int64_t k), void *own) {
    bool ok = true;
    (void)context;
    for (int64_t k = 0; ok && k < n; k++) ok = round(own, k);
    return ok;
}

static bool room_make(struct pipeline *p) {
    int64_t after = tl_comm_size(p->pp) - tl_comm_rank(p->pp); /* stages, with this one */
    p->n_room = after < p->n ? after : p->n;
    size_t bytes = (size_t)p->n_room * sizeof *p->flights;
    p->flights = memory_new(bytes);
    if (!p->flights) return error_memory(bytes, "the micro-batches of a pipeline");
    memset(p->flights, 0, bytes);
    return true;
}

static bool pipeline_check(const tl_module *model, int64_t n, tl_micro_batch give) {
    if (!model || !give)
        return error_set(TL_ERROR_USE, "pipeline: got NULL instead of a %s", model ? "function" : "model");
    return model_speaks(model) &&
           (n > 0 || error_set(TL_ERROR_USE, "pipeline: %lld micro-batches (need at least 1)", (long long)n));
}

static const tl_device *model_device(const struct model *s) {
    return tl_device_of(tl_module_tensor(s->blocks->children[0]->children[0], 0)); /* a norm's weight */
}

tl_tensor *tl_model_pipeline(tl_module *model, int64_t n, tl_micro_batch give, void *context, double weight) {
    return model_pipeline(model, n, give, context, weight, run_all);
}

tl_tensor *model_pipeline(tl_module *model, int64_t n, tl_micro_batch give, void *context, double weight,
                          pipeline_rounds run) {
    if (!pipeline_check(model, n, give)) return NULL;
    struct model *s = model->state;
    struct pipeline p = {.model = model,
                         .state = s,
                         .pp = s->parallel.pp,
                         .is_first = s->parallel.is_first,
                         .is_last = s->parallel.is_last,
                         .n = n,
                         .give = give,
                         .context = context,
                         .run = run,
                         .weight = weight,
                         .before = tl_generator_get()};
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    s->chunk = 0;
    p.total = tl_zeros(TL_SCALAR, TL_F32, (tl_device *)(uintptr_t)model_device(s));
    bool ok = p.total && (s->parallel.n_chunks > 1 ? pipeline_interleave(&p)
                                                   : room_make(&p) && (weight != 0 ? train_all(&p) : pass_all(&p)));
    s->chunk = 0;
    for (int64_t i = 0; p.flights && i < p.n_room; i++) flight_end(&p.flights[i]); /* of a pass that failed */
    memory_free(p.flights);
    tl_drop(p.next);
    for (int i = 0; i < 3; i++) tl_drop(p.early[i]);
    if (p.pp)
        tl_generator_set((tl_generator){p.before.seed, p.before.stream, p.before.index + (uint64_t)n * p.n_drawn});
    if (ok && p.pp) p.total = tl_broadcast(p.total, tl_comm_size(p.pp) - 1, p.pp);
    return tl_scope_return(scope, ok ? p.total : NULL);
}

tl_tensor *model_shared(const tl_module *model, tl_comm **group) {
    const struct model *s = model->state;
    bool is_shared = s->parallel.ends && tl_comm_rank(s->parallel.ends) >= 0;
    *group = is_shared ? s->parallel.ends : NULL;
    return is_shared ? tl_module_tensor(s->embedding, 0) : NULL;
}

const char *model_shared_name(tl_module *model) {
    int n = 0;
    tl_comm *group;
    const tl_tensor *shared = model_shared(model, &group);
    const tl_named_tensor *list = shared ? tl_module_list(model, &n) : NULL;
    for (int i = 0; i < n; i++)
        if (list[i].tensor == shared) return list[i].name;
    return NULL;
}

bool tl_model_share_tied(tl_module *model) {
    if (!model) return error_set(TL_ERROR_USE, "tl_model_share_tied: got NULL instead of a model");
    if (!model_speaks(model)) return false;
    tl_comm *ends;
    tl_tensor *embedding = model_shared(model, &ends);
    if (!embedding) return true;
    tl_tensor *gradient = tl_grad_of(embedding);
    if (!gradient) return error_set(TL_ERROR_USE, "tl_model_share_tied: the embedding has no gradient");
    bool grad = tl_set_grad_mode(false);
    bool ok = tl_all_reduce_(gradient, ends) != NULL;
    tl_set_grad_mode(grad);
    return ok;
}

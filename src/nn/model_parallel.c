/* model_parallel.c: what a model that several processes share does between their parts.
 *
 * tp divides the matrices of a layer: those that go into it by their rows of outputs (heads, columns of the MLP), those
 * that come out by their inputs, so that a layer needs one sum over the ranks, where it ends. Outside these regions all
 * ranks compute the same, or, with sp, each the results of some rows.
 *
 *      enter   x -> x                            gradient: the sum over ranks, each of which has a part of it
 *      leave   x -> the sum over ranks           gradient: as it is
 *      with sp:
 *      enter   rows of this rank -> all rows     gradient: the sum over ranks, of the rows of this rank
 *      leave   x -> the sum, of this rank's rows gradient: that of all rows
 *
 * What enters is an operand of products, whose gradients need it again. With sp a rank keeps its own rows of it until
 * then, and gathers them a second time (Korthikanti et al. 2022): it sends more, and holds 1/n.
 *
 * All ranks of tp thus compute one loss, the same on each, and every gradient is that of this one loss: not of the sum
 * of the ranks' losses, as those of the collectives themselves are. A parameter that all ranks hold has the whole
 * gradient on each of them. Where a rank sees only a part of its uses (rows under sp, the queries of its own heads
 * where ranks share a head of keys), parallel_share sums the gradient. */
#include "nn/model_parallel.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "comm/comm.h"
#include "engine/scope.h"
#include "nn/architecture.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

/* ---- Which ---- */

static bool is_divided(const char *what, const char *setting, int64_t size, int n) {
    return size >= n ||
           error_set(TL_ERROR_USE, "tp: %s %lld cannot be divided among %d processes (need a larger %s, or smaller tp)",
                     what, (long long)size, n, setting);
}

/* Of MLPs and experts. Columns of a packed gate are beside those of what it gates, so parts are equal there. */
static bool widths_check(const tl_model_config *c, int n) {
    const int64_t expert = architecture_expert_ff(c), n_with = architecture_expert_layers(c);
    if (n_with && architecture_of(c)->are_experts_packed && expert % n)
        return error_set(TL_ERROR_USE,
                         "tp: packed experts of width %lld cannot be divided among %d processes (need tp that divides "
                         "the width)",
                         (long long)expert, n);
    return (!n_with || is_divided("experts of width", "ff", expert, n)) &&
           (n_with == c->n_layers || is_divided("an MLP of", "ff", c->ff, n));
}

static bool tp_check(const tl_model_config *c, int n) {
    const struct architecture *a = architecture_of(c);
    bool is_packed = a->packing == PACKED_PARTS ? c->n_kv_heads != c->n_heads : a->packing && c->n_kv_heads % n;
    if (is_packed || (a->is_gated && !a->names->gate && !a->are_experts_packed))
        return error_set(TL_ERROR_USE,
                         "tp: the packed matrices of %s models cannot be divided among %d processes (need tp "
                         "1; pp and cp divide them)",
                         a->type, n);
    if (architecture_of(c)->qk_norm == QK_NORM_WHOLE)
        return error_set(TL_ERROR_USE,
                         "tp: %s models norm all heads of q and k together (need tp 1; pp and cp divide them)",
                         architecture_of(c)->type);
    if (c->n_heads % n)
        return error_set(TL_ERROR_USE,
                         "tp: %lld heads cannot be divided among %d processes (need tp that divides the heads)",
                         (long long)c->n_heads, n);
    if (c->n_kv_heads % n && n % c->n_kv_heads)
        return error_set(TL_ERROR_USE,
                         "tp: %lld heads of keys and values cannot be divided among %d processes, nor these among them "
                         "(need tp that divides them, or a multiple of them)",
                         (long long)c->n_kv_heads, n);
    return is_divided("a vocabulary of", "vocabulary", c->vocabulary, n) && widths_check(c, n);
}

static bool ep_check(const struct parallel *p, const tl_model_config *c) {
    const int n = tl_comm_size(p->ep);
    if (!p->ep) return true;
    if (!architecture_expert_layers(c))
        return error_set(TL_ERROR_USE, "ep: %s models have no experts to divide among %d processes (need ep 1)",
                         architecture_of(c)->type, n);
    if (p->tp)
        return error_set(TL_ERROR_USE,
                         "ep: experts are divided among %d processes by tp, and cannot be among %d by ep too (need one "
                         "of both)",
                         tl_comm_size(p->tp), n);
    return c->n_experts % n == 0 ||
           error_set(TL_ERROR_USE, "ep: %lld experts cannot be divided among %d processes (need ep that divides them)",
                     (long long)c->n_experts, n);
}

static tl_comm *copies_new(tl_comm *tp, int n_copies) {
    return tp->is_price ? tl_comm_price(tp->rank % n_copies, n_copies)
                        : tl_comm_split(tp, tp->rank / n_copies, tp->rank);
}

void parallel_layers(const struct parallel *p, int chunk, int64_t *from, int64_t *to) {
    int n = tl_comm_size(p->pp);
    shard_range(p->n_layers, n * p->n_chunks, chunk * n + tl_comm_rank(p->pp), from, to);
}

/* Layers of this stage; a tied embedding belongs to the first stage and to the last one. */
static bool stages_begin(struct parallel *p, const tl_model_config *c) {
    int n = tl_comm_size(p->pp), rank = tl_comm_rank(p->pp);
    if (p->n_chunks < 1 || p->n_chunks > MOST_CHUNKS)
        return error_set(TL_ERROR_USE, "pp_chunks: %d chunks of layers (need 1 to %d)", p->n_chunks, MOST_CHUNKS);
    if (p->n_chunks > 1 && c->n_layers < (int64_t)n * p->n_chunks)
        return error_set(TL_ERROR_USE,
                         "pp_chunks: %lld layers cannot be divided among %d stages of %d chunks (need at least one "
                         "layer for each chunk)",
                         (long long)c->n_layers, n, p->n_chunks);
    if (c->n_layers < n)
        return error_set(TL_ERROR_USE,
                         "pp: %lld layers cannot be divided among %d stages (need at least one layer for each)",
                         (long long)c->n_layers, n);
    p->is_first = rank == 0;
    p->is_last = rank == n - 1;
    if (!p->pp || !c->is_tied) return true;
    p->ends = tl_comm_group(p->pp, (int[]){0, n - 1}, 2);
    return p->ends != NULL;
}

bool parallel_begin(struct parallel *p, const tl_model_config *c, const tl_parallel *options) {
    *p = (struct parallel){.n_layers = c->n_layers, .n_chunks = 1, .is_first = true, .is_last = true};
    if (!options) return true;
    if (options->tp && options->tp->size > 1) p->tp = options->tp;
    if (options->cp && options->cp->size > 1) p->cp = options->cp;
    if (options->pp && options->pp->size > 1) p->pp = options->pp;
    if (p->pp && options->pp_chunks) p->n_chunks = options->pp_chunks;
    if (options->ep && options->ep->size > 1) p->ep = options->ep;
    p->ep_load = options->ep_load > 0 ? options->ep_load : 1;
    p->has_sp = options->has_sequence_parallel && p->tp;
    if (!parallel_is_on(p) && !p->pp && !p->ep) return true;
    if (c->family == TL_DEEP_LINEAR)
        return error_set(TL_ERROR_USE, "%s: the %s model cannot be divided among processes (need a transformer)",
                         p->tp   ? "tp"
                         : p->cp ? "cp"
                         : p->pp ? "pp"
                                 : "ep",
                         tl_family_name(c->family));
    if (!ep_check(p, c)) return false;
    if (p->cp && c->positions == TL_POSITIONS_ALIBI)
        return error_set(TL_ERROR_USE, "cp: sequences of %s models with ALiBi cannot be divided (need cp 1)",
                         tl_family_name(c->family));
    if (!stages_begin(p, c)) return false;
    if (!p->tp) return true;
    bool ok = tp_check(c, p->tp->size);
    if (ok && p->tp->size > c->n_kv_heads)
        ok = (p->copies = copies_new(p->tp, p->tp->size / (int)c->n_kv_heads)) != NULL;
    if (!ok) parallel_end(p);
    return ok;
}

void parallel_end(struct parallel *p) {
    tl_comm_free(p->copies);
    tl_comm_free(p->ends);
    p->copies = p->ends = NULL;
}

/* ---- Borders ---- */

/* dx = dy */
static void as_it_is(tl_gradient *g, void *context) {
    (void)context;
    tl_gradient_set(g, 0, tl_gradient_of_output(g, 0));
}
/* dx = the sum of the ranks' dy */
static void summed(tl_gradient *g, void *context) {
    tl_tensor *dy = tl_gradient_of_output(g, 0);
    if (dy) tl_gradient_set(g, 0, tl_all_reduce(dy, context));
}
/* dx (N/n,C) = this rank's rows of the sum of the ranks' dy (N,C) */
static void summed_rows(tl_gradient *g, void *context) {
    tl_tensor *dy = tl_gradient_of_output(g, 0);
    if (dy) tl_gradient_set(g, 0, tl_reduce_scatter(dy, context));
}
/* dx (N,C) = the ranks' dy (N/n,C) */
static void gathered_rows(tl_gradient *g, void *context) {
    tl_tensor *dy = tl_gradient_of_output(g, 0);
    if (dy) tl_gradient_set(g, 0, tl_all_gather(dy, context));
}

/* forward(x) with a gradient rule of its own; forward NULL: x itself. */
static tl_tensor *border(tl_tensor *x, tl_tensor *(*forward)(tl_tensor *x, tl_comm *comm), tl_function_rule rule,
                         tl_comm *comm) {
    bool grad = tl_set_grad_mode(false);
    tl_tensor *y = forward && x ? forward(x, comm) : x;
    tl_set_grad_mode(grad);
    return y && tl_function(rule, comm, NULL, &x, 1, &y, 1) ? y : NULL;
}

/* As rows (N,C), a multiple of the ranks. */
static tl_tensor *rows_of(const struct parallel *p, tl_tensor *x) {
    tl_tensor *rows = x ? tl_reshape(x, TL_SHAPE(-1, tl_size(x, -1))) : NULL;
    if (rows && tl_size(rows, 0) % p->tp->size) {
        error_set(TL_ERROR_USE,
                  "sp: %lld tokens cannot be divided among %d processes (need batch x seq that is a multiple of tp, or "
                  "no sp)",
                  (long long)tl_size(rows, 0), p->tp->size);
        return NULL;
    }
    return rows;
}

tl_tensor *parallel_enter(const struct parallel *p, tl_tensor *x) {
    if (!p || !p->tp) return x;
    return p->has_sp ? border(x, tl_all_gather, summed_rows, p->tp) : border(x, NULL, summed, p->tp);
}

tl_tensor *parallel_leave(const struct parallel *p, tl_tensor *x) {
    if (!p || !p->tp) return x;
    if (!p->has_sp) return border(x, tl_all_reduce, as_it_is, p->tp);
    return border(rows_of(p, x), tl_reduce_scatter, gathered_rows, p->tp);
}

/* Rows of this rank, all of them, which have no memory until they are gathered again. */
struct entered {
    tl_tensor *rows, *all;
    tl_comm *tp;
    int n; /* results */
};

static void entered_forget(void *context) {
    struct entered *e = context;
    tl_drop(e->rows);
    tl_drop(e->all);
    memory_free(e);
}

/* dx_i = dy_i */
static void entered_return(tl_gradient *g, void *context) {
    struct entered *e = context;
    if (e->all) {
        tl_tensor *again = tl_all_gather(e->rows, e->tp);
        if (!again) return;
        storage_refill(e->all->storage, again->storage);
        tl_drop(e->rows);
        tl_drop(e->all);
        e->rows = e->all = NULL;
    }
    for (int i = 0; i < e->n; i++) {
        tl_tensor *dy = tl_gradient_of_output(g, i);
        if (dy) tl_gradient_set(g, i, dy);
    }
}

bool parallel_drop_entered(const struct parallel *p, tl_tensor *rows, tl_tensor *all, tl_tensor **y, int n) {
    for (int i = 0; i < n; i++)
        if (!y[i]) return false;
    /* a product has kept it for its gradient; under autocast or in 8 bits it keeps something else */
    bool is_kept = p && p->has_sp && all->storage->purpose == TL_ACTIVATION;
    if (!is_kept || thread_state()->phase == TL_RECOMPUTE) return true;
    struct entered *e = memory_new(sizeof *e);
    if (!e) return error_memory(sizeof *e, "a gradient's context");
    *e = (struct entered){tl_keep(tl_detach(rows)), tl_keep(tl_detach(all)), p->tp, n};
    bool ok = e->rows && e->all;
    if (!ok) return entered_forget(e), false;
    struct storage *storage = e->all->storage;
    if (!tl_function(entered_return, e, entered_forget, y, n, y, n)) return false;
    storage_release(storage);
    return true;
}

tl_tensor *parallel_share(tl_comm *group, tl_tensor *x) { return group ? border(x, NULL, summed, group) : x; }

tl_tensor *parallel_total(const struct parallel *p, tl_tensor *x) {
    return p->has_sp ? border(x, tl_all_reduce, as_it_is, p->tp) : x;
}

tl_tensor *parallel_rows(const struct parallel *p, tl_tensor *x) {
    int64_t each = x ? tl_size(x, 0) / p->tp->size : 0;
    return tl_slice(x, 0, p->tp->rank * each, (p->tp->rank + 1) * each, 1);
}

/* ---- Random numbers ---- */

tl_generator parallel_draw_begin(const tl_comm *group, int shift) {
    tl_generator before = tl_generator_get();
    if (group)
        tl_generator_set((tl_generator){before.seed, before.stream ^ (uint64_t)group->rank << shift, before.index});
    return before;
}

void parallel_draw_end(tl_generator before) {
    tl_generator_set((tl_generator){before.seed, before.stream, tl_generator_get().index});
}

/* ---- Parts of parameters ---- */

/* Bytes of a tensor on the host, row-major; *bytes of them, or more, which are then not used. */
static char *host_copy(tl_tensor *x, size_t bytes) {
    char *data = memory_new(bytes + 1);
    if (!data) return error_memory(bytes, "parameters on the host"), NULL;
    if (tl_to_data(x, data, tl_bytes(x))) return data;
    memory_free(data);
    return NULL;
}

/* Puts part `index` of n into the whole: rows of `row` bytes, `outer` times n_blocks blocks of them. */
static void part_put(const tl_shard *s, char *whole, const char *part, int n, int index, int64_t outer, size_t row) {
    int64_t from, to;
    shard_range(s->size, n, index, &from, &to);
    size_t length = (size_t)(to - from) * row;
    for (int64_t block = 0; block < outer * s->n_blocks; block++)
        memcpy(whole + (size_t)(block * s->size + from) * row, part + (size_t)block * length, length);
}

/* In memory of the host, apart from the pool, whose use is priced. */
tl_tensor *shard_join(const tl_shard *s, tl_tensor *part) {
    if (!s || !part) return part;
    int64_t shape[TL_MAX_RANK], outer = 1;
    char error[COMM_ERROR] = "";
    shard_whole_shape(s, part, shape);
    size_t row = (size_t)dtype_info(part->dtype)->bits / 8, n = (size_t)s->group->size / (size_t)s->n_copies;
    for (int i = 0; i < part->rank; i++) {
        if (i < s->axis) outer *= shape[i];
        if (i > s->axis) row *= (size_t)shape[i];
    }
    size_t rows = (size_t)(outer * s->n_blocks), longest = ((size_t)s->size + n - 1) / n * row * rows;
    size_t bytes = (size_t)s->size * row * rows;
    char *mine = host_copy(part, longest), *all = mine ? memory_new((size_t)s->group->size * longest) : NULL;
    char *whole = all ? memory_new(bytes + 1) : NULL;
    bool ok = whole != NULL;
    if (mine && !whole) error_memory(bytes, "a whole parameter on the host");
    if (ok && !comm_gather(s->group, mine, all, longest, error))
        ok = error_set(TL_ERROR_DEVICE, "a whole parameter: %s", error);
    for (size_t i = 0; ok && i < n; i++)
        part_put(s, whole, all + i * (size_t)s->n_copies * longest, (int)n, (int)i, outer, row);
    memory_free(mine);
    memory_free(all);
    if (ok) return tl_from_external(whole, bytes, part->rank, shape, NULL, part->dtype, NULL, memory_free, whole);
    memory_free(whole);
    return NULL;
}

bool shard_fill(const tl_shard *s, tl_tensor *part, tl_tensor *whole) {
    tl_device *device = tl_device_of(part);
    int64_t n_blocks = s ? s->n_blocks : 1, length = s ? s->to - s->from : 0;
    bool ok = whole != NULL;
    if (!s) return ok && tl_copy_(part, tl_to(whole, device));
    for (int64_t b = 0; ok && b < n_blocks; b++) {
        tl_tensor *from = tl_slice(whole, s->axis, b * s->size + s->from, b * s->size + s->to, 1);
        tl_tensor *to = from ? tl_slice(part, s->axis, b * length, (b + 1) * length, 1) : NULL;
        ok = to && tl_copy_(to, tl_to(from, device));
    }
    return ok;
}

bool joined_make(struct joined *j, const tl_named_tensor *list, int n) {
    size_t bytes = ((size_t)n + 1) * sizeof *j->list;
    *j = (struct joined){.list = memory_new(bytes)};
    if (!j->list) return error_memory(bytes, "a list of parameters");
    tl_scope scope = tl_scope_begin();
    bool ok = scope.depth;
    for (int i = 0; ok && i < n; i++) {
        tl_tensor *whole = shard_join(list[i].shard, list[i].tensor);
        ok = whole && tl_keep(whole);
        if (!ok) break;
        j->list[j->n] = list[i];
        j->list[j->n].shard = NULL;
        j->list[j->n++].tensor = whole;
    }
    if (scope.depth) ok = tl_scope_end(scope) && ok;
    if (!ok) joined_free(j);
    return ok;
}

/* ---- Tensors of all stages ---- */

enum { STAGE_NAME = 256 };
struct stage_tensor {
    char name[STAGE_NAME];
    int32_t dtype, rank;
    int64_t shape[TL_MAX_RANK];
};

static size_t stage_bytes(const struct stage_tensor *t) {
    size_t n = (size_t)dtype_info((tl_dtype)t->dtype)->bits / 8;
    for (int i = 0; i < t->rank; i++) n *= (size_t)t->shape[i];
    return n;
}

static bool stage_describe(struct stage_tensor *to, const tl_named_tensor *from) {
    memset(to, 0, sizeof *to);
    if (strlen(from->name) >= STAGE_NAME)
        return error_set(TL_ERROR_USE, "pp: \"%s\" is a longer name than stages can send (need at most %d bytes)",
                         from->name, STAGE_NAME - 1);
    memcpy(to->name, from->name, strlen(from->name));
    to->dtype = (int32_t)from->tensor->dtype;
    to->rank = from->tensor->rank;
    memcpy(to->shape, from->tensor->shape, (size_t)to->rank * sizeof *to->shape);
    return true;
}

static bool stage_message(tl_comm *pp, int peer, bool is_sent, void *data, size_t bytes) {
    char error[COMM_ERROR] = "";
    return !bytes || comm_exchange(pp, &(struct message){peer, is_sent, data, bytes}, 1, error) ||
           error_set(TL_ERROR_DEVICE, "parameters of the stages of pp: %s", error);
}

/* To the first stage. */
static bool stage_send(const struct joined *j, const struct stage_tensor *mine, int64_t n, tl_comm *pp) {
    bool ok = stage_message(pp, 0, true, (void *)(uintptr_t)mine, (size_t)n * sizeof *mine);
    for (int i = 0, k = 0; ok && i < j->n && k < n; i++) {
        if (strcmp(mine[k].name, j->list[i].name)) continue;
        char *data = host_copy(j->list[i].tensor, stage_bytes(&mine[k]));
        ok = data && stage_message(pp, 0, true, data, stage_bytes(&mine[k++]));
        memory_free(data);
    }
    return ok;
}

static bool stage_receive(struct joined *j, struct stage_tensor *theirs, int64_t n, int stage, tl_comm *pp) {
    bool ok = stage_message(pp, stage, false, theirs, (size_t)n * sizeof *theirs);
    for (int64_t k = 0; ok && k < n; k++) {
        size_t bytes = stage_bytes(&theirs[k]);
        char *data = memory_new(bytes + 1);
        if (!data) return error_memory(bytes, "a parameter of another stage");
        ok = stage_message(pp, stage, false, data, bytes);
        tl_tensor *x = ok ? tl_from_external(data, bytes, theirs[k].rank, theirs[k].shape, NULL,
                                             (tl_dtype)theirs[k].dtype, NULL, memory_free, data)
                          : (memory_free(data), NULL);
        ok = x && tl_keep(x);
        if (ok) j->list[j->n++] = (tl_named_tensor){.name = theirs[k].name, .tensor = x};
    }
    return ok;
}

static bool stages_receive(struct joined *j, const int64_t *counts, tl_comm *pp) {
    size_t total = 0, own = (size_t)j->n;
    for (int s = 1; s < pp->size; s++) total += (size_t)counts[s];
    tl_named_tensor *list = memory_new((own + total + 1) * sizeof *list);
    j->others = memory_new((total + 1) * sizeof *j->others);
    if (!list || !j->others) return memory_free(list), error_memory(total * sizeof *j->others, "a list of parameters");
    memcpy(list, j->list, own * sizeof *list);
    memory_free(j->list);
    j->list = list;
    struct stage_tensor *to = j->others;
    bool ok = true;
    for (int s = 1; ok && s < pp->size; to += counts[s++]) ok = stage_receive(j, to, counts[s], s, pp);
    return ok;
}

bool joined_collect(struct joined *j, const char *shared, tl_comm *pp) {
    char error[COMM_ERROR] = "";
    if (tl_comm_size(pp) == 1) return true;
    int64_t n = 0, *counts = memory_new((size_t)pp->size * sizeof *counts);
    struct stage_tensor *mine = memory_new(((size_t)j->n + 1) * sizeof *mine);
    bool ok = counts && mine;
    if (!ok) error_memory((size_t)j->n * sizeof *mine, "a list of parameters");
    for (int i = 0; ok && pp->rank && i < j->n; i++)
        if (!shared || strcmp(j->list[i].name, shared)) ok = stage_describe(&mine[n++], &j->list[i]);
    if (ok && !comm_gather(pp, &n, counts, sizeof n, error))
        ok = error_set(TL_ERROR_DEVICE, "parameters of the stages of pp: %s", error);
    tl_scope scope = tl_scope_begin();
    ok = ok && scope.depth && (pp->rank ? stage_send(j, mine, n, pp) : stages_receive(j, counts, pp));
    if (scope.depth) ok = tl_scope_end(scope) && ok;
    memory_free(counts);
    memory_free(mine);
    return ok;
}

void joined_free(struct joined *j) {
    for (int i = 0; i < j->n; i++) tl_drop(j->list[i].tensor);
    memory_free(j->list);
    memory_free(j->others);
    *j = (struct joined){0};
}

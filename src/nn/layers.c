/* layers.c: the building blocks of models. Each holds its tensors in the order of the enum above it. */
#include <math.h>
#include <stdio.h>

#include "nn/adapter.h"
#include "nn/head_parts.h"
#include "nn/layers.h"
#include "nn/mlp.h"
#include "base/error.h"
#include "base/number.h"
#include "engine/scope.h"
#include "nn/module.h"
#include "ops/ops.h"

/* ---- Linear: x weight^T + bias ---- */

enum { WEIGHT, BIAS, MAGNITUDE };
struct linear {
    int64_t in, out; /* of the whole layer */
    enum linear_mode mode;
    enum division division;          /* by `parallel`; WHOLE without tp */
    const struct parallel *parallel; /* of the model; NULL: it has none */
    const struct parallel *leaves;   /* the results leave a region that tp divides; NULL: they do not */
    tl_comm *copies;                 /* ranks that hold the same part; NULL: no other does */
    struct adapter adapter;
    tl_module *blocks; /* the frozen weight in a block-scaled format; NULL: it is the module's tensor */
    tl_format format;  /* of blocks */
    tl_dtype dtype;    /* in which they are multiplied */
};

/* ---- Weights in block-scaled formats: values, scales and a scale of the tensor, below "weight_blocks" ---- */

enum { VALUES, SCALES, TENSOR_SCALE };
static const tl_module_kind blocks_kind = {"Blocks", NULL, NULL, 0};

static tl_quantized blocks_parts(const struct linear *l) {
    return (tl_quantized){l->format, tl_module_tensor(l->blocks, VALUES), tl_module_tensor(l->blocks, SCALES),
                          tl_module_tensor(l->blocks, TENSOR_SCALE)};
}

/* The weight (out,in), for what needs all of it: norms of its rows, and merging. Products do not. */
static tl_tensor *blocks_weight(const struct linear *l) {
    const tl_quantized q = blocks_parts(l);
    return tl_dequantize(&q, l->dtype);
}

static tl_tensor *blocks_product(const struct linear *l, tl_tensor *x, tl_tensor *bias) {
    const tl_quantized q = blocks_parts(l);
    return linear_quantized(x, &q, bias);
}

static tl_tensor *product(const struct linear *l, tl_tensor *x, tl_tensor *weight, tl_tensor *bias) {
    if (l->blocks) return blocks_product(l, x, bias);
    return l->mode ? linear_narrow(x, weight, bias, l->mode) : tl_linear(x, weight, bias);
}

static tl_tensor *bias_added(tl_tensor *y, tl_tensor *bias) {
    if (!y || !bias) return y;
    return tl_add(y, tl_dtype_of(y) == tl_dtype_of(bias) ? bias : tl_cast(bias, tl_dtype_of(y)));
}

/* y plus the bias; where the layer leaves a region that tp divides, of the sum over ranks. */
static tl_tensor *finished(const struct linear *l, tl_tensor *y, tl_tensor *bias) {
    y = parallel_leave(l->leaves, y);
    return y && bias ? bias_added(y, parallel_outside(l->leaves, bias)) : y;
}

static tl_tensor *linear_weight(const tl_module *m) {
    const struct linear *l = m->state;
    return l->blocks ? blocks_weight(l) : tl_module_tensor(m, WEIGHT);
}

/* DoRA (adapter.h). Without dropout the two products of W are one: y = f (W x + s B A x) + b. */
static tl_tensor *product_directed(const tl_module *m, tl_tensor *x, tl_tensor *dropped, tl_tensor *delta) {
    const struct linear *l = m->state;
    tl_tensor *weight = linear_weight(m), *y = weight ? product(l, x, weight, NULL) : NULL;
    tl_tensor *magnitude = parallel_share(l->leaves ? l->leaves->tp : l->copies, tl_module_tensor(m, MAGNITUDE));
    tl_tensor *factor = y && magnitude ? adapter_factor(&l->adapter, weight, magnitude, tl_dtype_of(y)) : NULL;
    if (!factor) return NULL;
    if (dropped == x) return finished(l, tl_mul(tl_add(y, delta), factor), tl_module_tensor(m, BIAS));
    tl_tensor *again = product(l, dropped, weight, NULL), *less = tl_add_scalar(factor, tl_scalar_float(-1));
    y = again && less ? tl_add(y, tl_mul(again, less)) : NULL;
    return y ? finished(l, tl_add(y, tl_mul(delta, factor)), tl_module_tensor(m, BIAS)) : NULL;
}

/* What goes into the adapter. Where ranks have other columns of x, each has random numbers of its own, and as many are
 * taken from the shared sequence on all of them, though parts may differ by a column. */
static tl_tensor *adapter_dropped(const tl_module *m, tl_tensor *x) {
    const struct linear *l = m->state;
    if (!l->leaves || !tl_module_is_training(m) || !(l->adapter.dropout > 0))
        return dropout_in(m, l->adapter.dropout, x);
    const int n = tl_comm_size(l->leaves->tp);
    const uint64_t most = (uint64_t)(tl_numel(x) / tl_size(x, -1) * ((l->in + n - 1) / n));
    const uint64_t n_parts = 1 + (uint64_t)thread_state()->draw_others; /* of rows, which draw.h divides */
    tl_generator before = parallel_draw_begin(l->leaves->tp, TP_STREAM);
    x = dropout_in(m, l->adapter.dropout, x);
    tl_generator_set((tl_generator){before.seed, before.stream, before.index + n_parts * (most + 4) + 4});
    return x;
}

static tl_tensor *product_adapted(const tl_module *m, tl_tensor *x) {
    const struct linear *l = m->state;
    tl_tensor *dropped = adapter_dropped(m, x);
    tl_tensor *delta = dropped ? adapter_product(&l->adapter, dropped) : NULL, *bias = tl_module_tensor(m, BIAS);
    if (!delta) return NULL;
    if (tl_module_tensor(m, MAGNITUDE)) return product_directed(m, x, dropped, delta);
    tl_tensor *y = product(l, x, tl_module_tensor(m, WEIGHT), l->leaves ? NULL : bias);
    y = y ? tl_add(y, delta) : NULL;
    return l->leaves ? finished(l, y, bias) : y;
}

bool linear_is_plain(const tl_module *m, tl_tensor **weight, tl_tensor **bias) {
    if (!linear_is(m)) return false;
    const struct linear *l = m->state;
    *weight = tl_module_tensor(m, WEIGHT);
    *bias = tl_module_tensor(m, BIAS);
    return !l->mode && !l->leaves && !l->copies && !l->blocks && !(l->adapter.a && !l->adapter.is_off);
}

static tl_tensor *linear_forward(tl_module *m, tl_tensor *x) {
    const struct linear *l = m->state;
    tl_tensor *weight = tl_module_tensor(m, WEIGHT), *bias = tl_module_tensor(m, BIAS);
    if (l->adapter.a && !l->adapter.is_off) return product_adapted(m, x);
    if (l->leaves) return finished(l, product(l, x, weight, NULL), bias);
    weight = parallel_share(l->copies, weight);
    return product(l, x, weight, bias ? parallel_share(l->copies, bias) : NULL);
}
static void linear_describe(const tl_module *m, char *text, size_t size) {
    const struct linear *l = m->state;
    snprintf(text, size, "in_features=%lld, out_features=%lld, bias=%s", (long long)l->in, (long long)l->out,
             tl_module_tensor(m, BIAS) ? "True" : "False");
}
static const tl_module_kind linear_kind = {"Linear", linear_forward, linear_describe, sizeof(struct linear)};

/* Which part of an axis of `size` elements, in n_blocks blocks, this rank of tp has. */
static tl_shard shard_of(const struct parallel *p, int axis, int64_t size, int64_t n_blocks, const tl_comm *copies) {
    tl_shard s = {axis, tl_comm_size(copies), n_blocks, size / n_blocks, 0, 0, p->tp};
    shard_range(s.size, tl_comm_size(p->tp) / s.n_copies, tl_comm_rank(p->tp) / s.n_copies, &s.from, &s.to);
    return s;
}

static bool add_part(tl_module *m, const char *name, tl_tensor *whole, const tl_shard *shard) {
    if (!shard || !whole) return tl_module_add_parameter(m, name, whole);
    tl_tensor *part = shard_cut(shard, whole);
    part = part ? tl_clone(part) : NULL;
    return tl_module_add_parameter(m, name, part) && module_set_shard(m, (int)m->n_slots - 1, shard);
}

bool part_add_parameter(tl_module *m, const struct parallel *p, const char *name, tl_tensor *whole, int axis,
                        int64_t n_blocks) {
    tl_shard shard = {0};
    const bool is_divided = p && p->tp;
    if (is_divided && whole) shard = shard_of(p, axis, tl_size(whole, axis), n_blocks, NULL);
    return add_part(m, name, whole, is_divided ? &shard : NULL);
}

bool expert_add_parameter(tl_module *m, const struct parallel *p, const char *name, tl_tensor *whole, int axis,
                          int64_t n_blocks) {
    if (!p->ep || !whole)
        return axis < 0 ? tl_module_add_parameter(m, name, whole)
                        : part_add_parameter(m, p, name, whole, axis, n_blocks);
    tl_shard shard = {.axis = 0, .n_copies = 1, .n_blocks = 1, .size = tl_size(whole, 0), .group = p->ep};
    shard_range(shard.size, tl_comm_size(p->ep), tl_comm_rank(p->ep), &shard.from, &shard.to);
    return add_part(m, name, whole, &shard);
}

tl_module *linear_make(const struct make *make, int64_t in, int64_t out, bool bias, enum division division) {
    tl_module *m = tl_module_new(&linear_kind);
    if (!m) return NULL;
    const struct parallel *p = make->parallel;
    if (!p || !p->tp) division = WHOLE;
    const bool is_in = division == IN || division == IN_PART, is_divided = division != WHOLE && division != INSIDE;
    struct linear *l = m->state;
    *l = (struct linear){.in = in, .out = out, .division = division, .parallel = p};
    tl_shard shard = {0};
    if (division == OUT_KV) l->copies = p->copies;
    if (division == INSIDE) l->copies = p->tp;
    if (division == IN) l->leaves = p;
    if (is_divided)
        shard = is_in ? shard_of(p, 1, in, 1, NULL) : shard_of(p, 0, out, division == OUT_QKV ? 3 : 1, l->copies);
    bool is_uniform = make->std < 0;
    double range = in > 0 ? 1 / sqrt((double)in) : 0;
    tl_scope scope = tl_scope_begin();
    tl_tensor *weight = is_uniform ? tl_uniform(TL_SHAPE(out, in), -range, range, make->dtype, make->device)
                                   : tl_normal(TL_SHAPE(out, in), 0, make->std, make->dtype, make->device);
    tl_tensor *b = !bias        ? NULL
                   : is_uniform ? tl_uniform(TL_SHAPE(out), -range, range, make->dtype, make->device)
                                : tl_zeros(TL_SHAPE(out), make->dtype, make->device);
    bool ok = add_part(m, "weight", weight, is_divided ? &shard : NULL) &&
              add_part(m, "bias", b, is_divided && !is_in ? &shard : NULL);
    return module_finish(m, tl_scope_end(scope) && ok);
}

tl_module *tl_nn_linear(int64_t in, int64_t out, bool bias, tl_dtype dtype, tl_device *device) {
    return linear_make(&(struct make){dtype, device, -1, NULL, NULL}, in, out, bias, WHOLE);
}

bool linear_is(const tl_module *m) { return m && m->kind == &linear_kind; }
struct adapter *linear_adapter(tl_module *m) {
    return &((struct linear *)m->state)->adapter;
}

/* Ranks that hold other columns of the weight; NULL: none does. */
static tl_comm *columns_of(const struct linear *l) { return l->leaves ? l->leaves->tp : NULL; }

/* Norms of the rows of the weight, in its dtype. A rank that has some of the rows has their norms. */
static bool magnitude_add(tl_module *m) {
    const struct linear *l = m->state;
    bool grad = tl_set_grad_mode(false);
    tl_tensor *weight = linear_weight(m);
    tl_tensor *norms = weight ? adapter_norms(tl_cast(weight, TL_F32), columns_of(l)) : NULL;
    norms = norms ? tl_cast(norms, tl_dtype_of(weight)) : NULL;
    tl_set_grad_mode(grad);
    const tl_shard *shard = l->leaves ? NULL : m->slots[WEIGHT].shard;
    return norms && tl_module_add_parameter(m, "lora_magnitude_vector", norms) &&
           (!shard || module_set_shard(m, MAGNITUDE, shard));
}

/* How A and B of a layer are divided. Of a layer that is divided by its outputs B is, in the same way, and A has the
 * same inputs on all ranks. Of one that is divided by its inputs A is; then B A x is a part of a sum, as W x is, and
 * both are summed together: an adapter sends nothing of its own but gradients of what all ranks hold. */
static enum division division_of_a(const struct linear *l) {
    return l->division == WHOLE ? WHOLE : l->division == IN ? IN_PART : INSIDE;
}
static enum division division_of_b(const struct linear *l) { return l->division == IN ? INSIDE : l->division; }

bool linear_adapt(tl_module *m, const tl_adapter_options *o, tl_dtype dtype) {
    struct linear *l = m->state;
    tl_tensor *weight = l->blocks ? tl_module_tensor(l->blocks, VALUES) : tl_module_tensor(m, WEIGHT);
    const struct make make = {dtype, tl_device_of(weight), -1, l->parallel, NULL};
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    tl_module *a = tl_module_add(m, "lora_A", linear_make(&make, l->in, o->rank, false, division_of_a(l)));
    tl_module *b = a ? tl_module_add(m, "lora_B", linear_make(&make, o->rank, l->out, false, division_of_b(l))) : NULL;
    bool grad = tl_set_grad_mode(false), ok = b && tl_fill_(tl_module_tensor(b, WEIGHT), 0);
    tl_set_grad_mode(grad);
    ok = ok && (!o->has_magnitude || magnitude_add(m));
    if (ok) l->adapter = (struct adapter){a, b, o->alpha / (double)o->rank, o->dropout, columns_of(l), false};
    return tl_scope_end(scope) && ok;
}

void linear_unadapt(tl_module *m) {
    module_cut(m, ((const struct linear *)m->state)->blocks ? 1 : 0, MAGNITUDE); /* A and B are behind the blocks */
    *linear_adapter(m) = (struct adapter){0};
}

bool linear_merge(tl_module *m) {
    struct linear *l = m->state;
    if (!l->adapter.a && !l->blocks) return true;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    tl_tensor *weight = linear_weight(m), *sum = weight;
    if (weight && l->adapter.a) sum = adapter_sum(&l->adapter, weight, tl_module_tensor(m, MAGNITUDE));
    bool ok = sum != NULL;
    if (ok && !l->blocks) ok = tl_copy_(weight, sum) != NULL;
    tl_tensor *whole = ok && l->blocks ? tl_cast(sum, l->dtype) : NULL;
    ok = ok && (!l->blocks || whole);
    if (whole) m->slots[WEIGHT].tensor = tl_keep(tl_set_purpose(whole, TL_PARAMETER));
    ok = tl_scope_end(scope) && ok;
    if (!ok) return false;
    linear_unadapt(m);
    if (whole) module_cut(m, 0, MAGNITUDE), l->blocks = NULL;
    return true;
}

tl_module *linear_blocks(const tl_module *m) { return linear_is(m) ? ((const struct linear *)m->state)->blocks : NULL; }

/* Puts a weight in its format into the blocks' tensors, or makes them. */
static bool blocks_set(tl_module *blocks, tl_format format, tl_tensor *weight) {
    static const char *const names[] = {"values", "scales", "tensor_scale"};
    tl_quantized q;
    if (!weight || !tl_quantize(weight, format, TL_NEAREST, &q)) return false;
    tl_tensor *parts[] = {q.values, q.scales, q.tensor_scale};
    bool ok = true, is_new = !blocks->n_slots;
    for (int i = 0; ok && i < 3; i++) {
        if (!parts[i]) continue;
        if (!is_new) ok = tl_copy_(tl_module_tensor(blocks, i), parts[i]) != NULL;
        else ok = tl_module_add_buffer(blocks, names[i], tl_set_purpose(parts[i], TL_PARAMETER));
    }
    return ok;
}

bool linear_fill_blocks(tl_module *m, tl_tensor *weight) {
    const struct linear *l = m->state;
    tl_tensor *x = tl_cast(weight, l->dtype);
    x = x ? tl_to(x, tl_device_of(tl_module_tensor(l->blocks, VALUES))) : NULL;
    return blocks_set(l->blocks, l->format, x);
}

static bool blocks_make(tl_module *m, tl_format format) {
    struct linear *l = m->state;
    tl_tensor *weight = tl_module_tensor(m, WEIGHT);
    if (l->in % tl_format_block(format))
        return error_set(TL_ERROR_USE,
                         "lora_base: rows of %lld numbers are not whole blocks of %s (need a multiple of %d)",
                         (long long)l->in, tl_format_name(format), tl_format_block(format));
    if (l->leaves || l->copies || m->slots[WEIGHT].shard)
        return error_set(TL_ERROR_USE, "lora_base: weights in %s cannot be divided (need tp 1)",
                         tl_format_name(format));
    tl_module *blocks = tl_module_add(m, "weight_blocks", tl_module_new(&blocks_kind));
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    bool grad = tl_set_grad_mode(false), ok = blocks && blocks_set(blocks, format, weight);
    tl_set_grad_mode(grad);
    ok = tl_scope_end(scope) && ok;
    if (!ok) return false;
    l->blocks = blocks, l->format = format, l->dtype = tl_dtype_of(weight);
    m->slots[WEIGHT].tensor = NULL;
    tl_drop(weight);
    module_touch(m);
    return true;
}

bool linear_set_format(tl_module *root, tl_format format) {
    if (linear_is(root)) return blocks_make(root, format);
    bool ok = true;
    for (size_t i = 0; ok && i < root->n_children; i++) ok = linear_set_format(root->children[i], format);
    return ok;
}

void linear_set_mode(tl_module *root, enum linear_mode mode) {
    if (linear_is(root)) ((struct linear *)root->state)->mode = mode;
    if (linear_is(root)) return; /* adapters below it are not narrow */
    for (size_t i = 0; i < root->n_children; i++) linear_set_mode(root->children[i], mode);
}

/* ---- Embedding: rows of weight by ids ---- */

/* Ids of other ranks look up row 0 and count as zeros. An id that no rank has stays outside of every part, and fails
 * there. */
static tl_tensor *lookup_part(tl_tensor *weight, const tl_shard *shard, tl_tensor *ids) {
    const struct class_part part = {shard->group, shard->from, shard->to, shard->size};
    tl_tensor *is_elsewhere = ids_elsewhere(&part, ids), *zero = NULL;
    tl_tensor *local = is_elsewhere ? ids_local(&part, ids, is_elsewhere, 0) : NULL;
    tl_tensor *rows = local ? tl_embedding(weight, local) : NULL; /* (...,C) */
    if (rows) zero = tl_zeros(TL_SCALAR, tl_dtype_of(rows), tl_device_of(rows));
    return zero ? tl_where(tl_unsqueeze(is_elsewhere, -1), zero, rows) : NULL;
}

static tl_tensor *embedding_forward(tl_module *m, tl_tensor *ids) {
    const struct linear *l = m->state;
    tl_tensor *weight = tl_module_tensor(m, WEIGHT);
    if (m->slots[WEIGHT].shard) return parallel_leave(l->leaves, lookup_part(weight, m->slots[WEIGHT].shard, ids));
    return tl_embedding(parallel_outside(l->leaves, weight), ids);
}
static void embedding_describe(const tl_module *m, char *text, size_t size) {
    const struct linear *l = m->state;
    snprintf(text, size, "%lld, %lld", (long long)l->in, (long long)l->out);
}
static const tl_module_kind embedding_kind = {"Embedding", embedding_forward, embedding_describe,
                                              sizeof(struct linear)};

tl_module *embedding_make(const struct make *make, int64_t n, int64_t channels, bool is_divided) {
    tl_module *m = tl_module_new(&embedding_kind);
    if (!m) return NULL;
    const struct parallel *p = make->parallel;
    *(struct linear *)m->state = (struct linear){.in = n, .out = channels, .leaves = p};
    is_divided = is_divided && p && p->tp;
    tl_shard shard = {0};
    if (is_divided) shard = shard_of(p, 0, n, 1, NULL);
    double std = make->std < 0 ? 1 : make->std;
    tl_scope scope = tl_scope_begin();
    tl_tensor *weight = tl_normal(TL_SHAPE(n, channels), 0, std, make->dtype, make->device);
    bool ok = add_part(m, "weight", weight, is_divided ? &shard : NULL);
    return module_finish(m, tl_scope_end(scope) && ok);
}

tl_module *tl_nn_embedding(int64_t n, int64_t channels, tl_dtype dtype, tl_device *device) {
    return embedding_make(&(struct make){dtype, device, -1, NULL, NULL}, n, channels, false);
}

/* ---- Norms over the last axis ---- */

struct norm {
    int64_t channels;
    double eps;
    const struct parallel *parallel; /* of the model; NULL: it has none */
    bool is_inside;                  /* a region that tp divides */
    bool is_less_one;                /* the weight is stored less 1 */
};

/* As norms of this pass use them: under sp each rank has the norms of some rows, inside a region of some heads. */
static tl_tensor *norm_tensor(const tl_module *m, int index) {
    const struct norm *n = m->state;
    tl_tensor *x = tl_module_tensor(m, index);
    if (x && n->is_less_one && index == WEIGHT) x = tl_add_scalar(x, tl_scalar_float(1));
    return n->is_inside && n->parallel ? parallel_share(n->parallel->tp, x) : parallel_outside(n->parallel, x);
}

static tl_tensor *layer_norm_forward(tl_module *m, tl_tensor *x) {
    tl_tensor *weight = norm_tensor(m, WEIGHT);
    return tl_layer_norm(x, weight, norm_tensor(m, BIAS), ((struct norm *)m->state)->eps);
}
static tl_tensor *rms_norm_forward(tl_module *m, tl_tensor *x) {
    return tl_rms_norm(x, norm_tensor(m, WEIGHT), ((struct norm *)m->state)->eps);
}
static void norm_describe(const tl_module *m, char *text, size_t size) {
    const struct norm *n = m->state;
    number_print(text, size, "(%lld,), eps=%g, elementwise_affine=True", (long long)n->channels, n->eps);
}
static const tl_module_kind layer_norm_kind = {"LayerNorm", layer_norm_forward, norm_describe, sizeof(struct norm)};
static const tl_module_kind rms_norm_kind = {"RMSNorm", rms_norm_forward, norm_describe, sizeof(struct norm)};

/* Autocast has a sum in the wider dtype and a norm in f32, each by its own rule: two ops. */
static bool sum_is_fused(const tl_tensor *x, const tl_tensor *addend) {
    tl_dtype autocast = tl_set_autocast(TL_DTYPE_COUNT);
    tl_set_autocast(autocast);
    return autocast == TL_DTYPE_COUNT && tl_dtype_of(x) == tl_dtype_of(addend);
}

tl_tensor *norm_forward_sum(tl_module *norm, tl_tensor *x, tl_tensor *addend, double dropout, tl_tensor **sum) {
    *sum = NULL;
    if (!x || !addend) return NULL; /* the call that made them failed */
    tl_scope scope = module_enter(norm);
    if (!scope.depth) return NULL;
    tl_tensor *made = NULL, *y;
    double eps = ((const struct norm *)norm->state)->eps;
    if (!sum_is_fused(x, addend)) {
        y = norm->kind->forward(norm, made = tl_add(x, tl_dropout(addend, dropout)));
    } else {
        tl_tensor *weight = norm_tensor(norm, WEIGHT), *bias = norm_tensor(norm, BIAS);
        y = norm->kind == &rms_norm_kind ? add_rms_norm(x, addend, weight, eps, dropout, &made)
                                         : add_layer_norm(x, addend, weight, bias, eps, dropout, &made);
    }
    if (y) *sum = tl_keep(made);
    return tl_scope_return(scope, y);
}

static tl_module *norm_new(const tl_module_kind *kind, const struct make *make, int64_t channels, double eps,
                           bool bias) {
    tl_module *m = tl_module_new(kind);
    if (!m) return NULL;
    *(struct norm *)m->state = (struct norm){channels, eps, make->parallel, false, false};
    tl_scope scope = tl_scope_begin();
    bool ok = tl_module_add_parameter(m, "weight", tl_ones(TL_SHAPE(channels), make->dtype, make->device));
    if (ok && bias) ok = tl_module_add_parameter(m, "bias", tl_zeros(TL_SHAPE(channels), make->dtype, make->device));
    return module_finish(m, tl_scope_end(scope) && ok);
}

tl_module *layer_norm_make(const struct make *make, int64_t channels, double eps) {
    return norm_new(&layer_norm_kind, make, channels, eps, true);
}
tl_module *rms_norm_make(const struct make *make, int64_t channels, double eps) {
    return norm_new(&rms_norm_kind, make, channels, eps, false);
}
bool norm_set(tl_module *m, bool is_inside, bool is_less_one) {
    struct norm *n = m->state;
    n->is_inside = is_inside;
    n->is_less_one = is_less_one;
    if (!is_less_one) return true;
    bool grad = tl_set_grad_mode(false), ok = tl_fill_(tl_module_tensor(m, WEIGHT), 0) != NULL;
    tl_set_grad_mode(grad);
    return ok;
}
tl_module *tl_nn_layer_norm(int64_t channels, double eps, bool bias, tl_dtype dtype, tl_device *device) {
    return norm_new(&layer_norm_kind, &(struct make){dtype, device, -1, NULL, NULL}, channels, eps, bias);
}
tl_module *tl_nn_rms_norm(int64_t channels, double eps, tl_dtype dtype, tl_device *device) {
    return norm_new(&rms_norm_kind, &(struct make){dtype, device, -1, NULL, NULL}, channels, eps, false);
}

/* ---- Without parameters ---- */

double dropout_now(const tl_module *m, double p) { return tl_module_is_training(m) ? p : 0; }
double dropout_of(const tl_module *dropout) { return dropout_now(dropout, *(const double *)dropout->state); }
tl_tensor *dropout_in(const tl_module *m, double p, tl_tensor *x) {
    p = dropout_now(m, p);
    return p > 0 ? tl_dropout(x, p) : x;
}
static tl_tensor *dropout_forward(tl_module *m, tl_tensor *x) { return dropout_in(m, *(double *)m->state, x); }
static void dropout_describe(const tl_module *m, char *text, size_t size) {
    number_print(text, size, "p=%g, inplace=False", *(double *)m->state);
}
static const tl_module_kind dropout_kind = {"Dropout", dropout_forward, dropout_describe, sizeof(double)};

tl_module *tl_nn_dropout(double p) {
    tl_module *m = tl_module_new(&dropout_kind);
    if (m) *(double *)m->state = p;
    return m;
}

static tl_tensor *gelu_forward(tl_module *m, tl_tensor *x) { return *(bool *)m->state ? tl_gelu(x) : tl_gelu_erf(x); }
static void gelu_describe(const tl_module *m, char *text, size_t size) {
    snprintf(text, size, "approximate='%s'", *(bool *)m->state ? "tanh" : "none");
}
static const tl_module_kind gelu_kind = {"GELU", gelu_forward, gelu_describe, sizeof(bool)};

tl_module *tl_nn_gelu(bool is_tanh) {
    tl_module *m = tl_module_new(&gelu_kind);
    if (m) *(bool *)m->state = is_tanh;
    return m;
}

static tl_tensor *silu_forward(tl_module *m, tl_tensor *x) { return (void)m, tl_silu(x); }
static const tl_module_kind silu_kind = {"SiLU", silu_forward, NULL, 0};
tl_module *tl_nn_silu(void) { return tl_module_new(&silu_kind); }

/* ---- Containers ---- */

static tl_tensor *sequential_forward(tl_module *m, tl_tensor *x) {
    for (size_t i = 0; x && i < m->n_children; i++) x = tl_module_forward(m->children[i], x);
    return x;
}
static const tl_module_kind sequential_kind = {"Sequential", sequential_forward, NULL, 0};
tl_module *tl_nn_sequential(void) { return tl_module_new(&sequential_kind); }

static const tl_module_kind list_kind = {"ModuleList", NULL, NULL, 0};
tl_module *tl_nn_list(void) { return tl_module_new(&list_kind); }

/* optimizer.c: updates many parameters together, each with its own settings and state.
 *
 * All states are made when a parameter is added, so that a step allocates nothing and the first step is like every
 * other. The formulas are the ops' (ops/update.c); this file only chooses the op of a kind and its arguments. There
 * are no explicit groups: a group is all parameters with the same settings. A step finds the groups, in the order of
 * their first members, and passes each to the op as a list.
 *
 * The master copy counts as a parameter, since it holds the parameter's true value; moments, sums and buffers count
 * as optimizer state.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "ops/update.h"
#include "spec/dynamic_map.h"
#include "optim/optimizer.h"
#include "tensor/tensor.h"

enum { MAX_STATES = UPDATE_STATES, MAX_LISTED = MAX_STATES + 2 };
enum { SMALLEST_8BIT = 4096 }; /* elements of a parameter with moments of 8 bits, as in bitsandbytes */

struct parameter {
    char *name;
    tl_tensor *tensor;
    tl_optimizer_kind kind; /* of its step */
    tl_optimizer_options options;
    tl_tensor *state[MAX_STATES]; /* in the order of the op's arguments; NULL: the options need none */
    tl_tensor *master;            /* NULL: none */
    tl_tensor *ema;               /* its average; NULL: none */
    tl_tensor *kept;              /* its values while it has those of its average; NULL: it has its own */
    bool is_stepped;              /* within a step */
    struct optimizer_part part;
};

struct tl_optimizer {
    tl_optimizer_kind kind;
    int64_t n_steps;
    bool is_averaged;
    tl_optimizer_weights weights;
    struct parameter *parameters;
    size_t n_parameters, capacity;
    struct update_tensors *updates; /* room for a list of all */
    size_t update_capacity;
    size_t *slots; /* open-addressing index into parameters, +1: each under its name and under its tensor */
    size_t n_slots;
    tl_named_tensor *list; /* every state tensor, with its name */
    size_t n_list, list_capacity;
};

/* ---- Kinds ---- */

static const char *const kind_names[TL_OPTIMIZER_KIND_COUNT] = {"sgd",  "adagrad", "rmsprop",       "adam",     "adamw",
                                                                "lion", "muon",    "schedule-free", "adafactor"};

const char *tl_optimizer_kind_name(tl_optimizer_kind kind) {
    return (unsigned)kind < TL_OPTIMIZER_KIND_COUNT ? kind_names[kind] : NULL;
}

tl_optimizer_options tl_optimizer_defaults(tl_optimizer_kind kind) {
    tl_optimizer_options o = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .alpha = 0.99};
    if (kind == TL_ADAGRAD || kind == TL_RMSPROP) o.lr = 1e-2;
    if (kind == TL_ADAGRAD) o.eps = 1e-10;
    if (kind == TL_ADAMW) o.weight_decay = 1e-2;
    if (kind == TL_LION) o.lr = tl_lion_defaults().lr, o.beta2 = tl_lion_defaults().beta2;
    if (kind == TL_SCHEDULE_FREE) o.lr = tl_schedule_free_defaults().lr;
    if (kind == TL_ADAFACTOR) {
        const tl_adafactor_options own = tl_adafactor_defaults();
        o.lr = own.lr, o.beta2_decay = own.beta2_decay, o.eps = own.eps1, o.eps2 = own.eps2, o.d = own.d;
    }
    if (kind == TL_MUON) {
        const tl_muon_options muon = tl_muon_defaults();
        o.momentum = muon.momentum, o.nesterov = muon.nesterov;
        o.weight_decay = muon.weight_decay, o.ns_steps = muon.ns_steps;
    }
    return o;
}

/* The kind of a parameter's step: Muon's is for matrices. */
static tl_optimizer_kind step_kind(tl_optimizer_kind kind, const tl_optimizer_options *o, const tl_tensor *x) {
    return kind == TL_MUON && (o->adamw || x->rank != 2) ? TL_ADAMW : kind;
}

/* The states of a kind by torch's names; NULL if the options do not need it. */
static void state_names(tl_optimizer_kind kind, const tl_optimizer_options *o, int rank, const char *name[MAX_STATES]) {
    const char *buffer = o->momentum != 0 ? "momentum_buffer" : NULL;
    memset(name, 0, MAX_STATES * sizeof *name);
    switch (kind) {
    case TL_SGD:
        name[0] = buffer;
        break;
    case TL_MUON:
        name[0] = "momentum_buffer";
        break;
    case TL_LION:
        name[0] = "exp_avg";
        break;
    case TL_SCHEDULE_FREE:
        name[0] = "z", name[1] = "exp_avg_sq";
        break;
    case TL_ADAGRAD:
        name[0] = "sum";
        break;
    case TL_ADAFACTOR:
        if (rank >= 2) name[0] = "row_var", name[1] = "col_var";
        else name[2] = "variance";
        break;
    case TL_RMSPROP:
        name[0] = "square_avg", name[1] = o->centered ? "grad_avg" : NULL, name[2] = buffer;
        break;
    default: /* Adam, AdamW */
        name[0] = "exp_avg", name[1] = "exp_avg_sq", name[2] = o->amsgrad ? "max_exp_avg_sq" : NULL;
    }
}

/* torch.optim's conditions, for the settings that a kind reads. */
static bool options_check(tl_optimizer_kind kind, const char *name, const tl_optimizer_options *o) {
    const bool is_adam = kind == TL_ADAM || kind == TL_ADAMW || kind == TL_LION || kind == TL_SCHEDULE_FREE;
    const bool has_momentum = kind == TL_SGD || kind == TL_RMSPROP || kind == TL_MUON;
    const struct {
        const char *what;
        double value;
        bool is_read, is_below_1;
    } rule[] = {{"lr", o->lr, true, false},
                {"weight_decay", o->weight_decay, true, false},
                {"eps", o->eps, kind != TL_SGD && kind != TL_LION && kind != TL_MUON, false},
                {"beta1", o->beta1, is_adam, true},
                {"beta2", o->beta2, is_adam, true},
                {"momentum", o->momentum, has_momentum, false},
                {"alpha", o->alpha, kind == TL_RMSPROP, false},
                {"lr_decay", o->lr_decay, kind == TL_ADAGRAD, false},
                {"eps2", o->eps2, kind == TL_ADAFACTOR, false},
                {"ema", o->ema, true, true}};
    for (size_t i = 0; i < sizeof rule / sizeof *rule; i++)
        if (rule[i].is_read &&
            !(rule[i].value >= 0 && isfinite(rule[i].value) && (rule[i].value < 1 || !rule[i].is_below_1)))
            return error_set(TL_ERROR_USE, "tl_optimizer_add: %s: %s is %g (need %s)", name, rule[i].what,
                             rule[i].value, rule[i].is_below_1 ? "0 or more, below 1" : "a number, 0 or more");
    const int bits = kind == TL_ADAM || kind == TL_ADAMW ? o->moment_bits : 0;
    if (bits != 0 && bits != 8 && bits != 16 && bits != 32)
        return error_set(TL_ERROR_USE, "tl_optimizer_add: %s: moment_bits is %d (need 8, 16 or 32)", name, bits);
    if (bits == 8 && o->amsgrad)
        return error_set(TL_ERROR_USE, "tl_optimizer_add: %s: amsgrad needs moments of 16 or 32 bits", name);
    if (kind == TL_SCHEDULE_FREE && (o->beta1 == 0 || o->ema != 0))
        return error_set(TL_ERROR_USE, "tl_optimizer_add: %s: %s", name,
                         o->ema != 0 ? "schedule-free AdamW has an average of its own (need ema 0)"
                                     : "beta1 is 0 (need above 0: the average is in beta1 of the parameter)");
    if (kind == TL_ADAFACTOR && !(o->beta2_decay <= 0 && isfinite(o->beta2_decay) && o->d >= 1))
        return error_set(TL_ERROR_USE,
                         "tl_optimizer_add: %s: beta2_decay is %g and d %g (need 0 or less, and 1 or more)", name,
                         o->beta2_decay, o->d);
    if (kind == TL_SGD && !isfinite(o->dampening))
        return error_set(TL_ERROR_USE, "tl_optimizer_add: %s: dampening is %g (need a number)", name, o->dampening);
    if (kind == TL_SGD && o->nesterov && (o->momentum == 0 || o->dampening != 0))
        return error_set(TL_ERROR_USE, "tl_optimizer_add: %s: Nesterov momentum requires a momentum and zero dampening",
                         name);
    return true;
}

/* ---- Making and freeing ---- */

static bool optimizer_check(const tl_optimizer *o, const char *what) {
    return o || error_set(TL_ERROR_USE, "%s: got NULL instead of an optimizer", what);
}

/* Forgets all states but the first n. */
static void list_cut(tl_optimizer *o, size_t n) {
    while (o->n_list > n) {
        const tl_named_tensor *last = &o->list[--o->n_list];
        tl_drop(last->tensor);
        memory_free((char *)(uintptr_t)last->name);
    }
}

tl_optimizer *tl_optimizer_new(tl_optimizer_kind kind) {
    if ((unsigned)kind >= TL_OPTIMIZER_KIND_COUNT) {
        error_set(TL_ERROR_USE, "tl_optimizer_new: %d is not a kind of optimizer", (int)kind);
        return NULL;
    }
    tl_optimizer *o = memory_new(sizeof *o);
    if (o) *o = (tl_optimizer){.kind = kind};
    else error_memory(sizeof *o, "an optimizer");
    return o;
}

void tl_optimizer_free(tl_optimizer *o) {
    if (!o) return;
    for (size_t i = 0; i < o->n_parameters; i++) {
        if (o->parameters[i].kept) tl_drop(o->parameters[i].kept);
        tl_drop(o->parameters[i].tensor);
        memory_free(o->parameters[i].name);
    }
    list_cut(o, 0);
    memory_free(o->parameters);
    memory_free(o->slots);
    memory_free(o->updates);
    memory_free(o->list);
    memory_free(o);
}

int64_t tl_optimizer_steps(const tl_optimizer *o) { return o ? o->n_steps : 0; }

void tl_optimizer_set_steps(tl_optimizer *o, int64_t n_steps) {
    if (!optimizer_check(o, "tl_optimizer_set_steps")) return;
    if (n_steps < 0) error_set(TL_ERROR_USE, "tl_optimizer_set_steps: %lld steps", (long long)n_steps);
    else o->n_steps = n_steps;
}

tl_optimizer_weights tl_optimizer_get_weights(const tl_optimizer *o) {
    return o ? o->weights : (tl_optimizer_weights){0, 0};
}

void tl_optimizer_set_weights(tl_optimizer *o, tl_optimizer_weights w) {
    if (!optimizer_check(o, "tl_optimizer_set_weights")) return;
    if (!(w.largest >= 0 && w.sum >= 0) || !isfinite(w.largest) || !isfinite(w.sum))
        error_set(TL_ERROR_USE, "tl_optimizer_set_weights: %g and %g (need numbers, 0 or more)", w.largest, w.sum);
    else o->weights = w;
}

const tl_named_tensor *tl_optimizer_list(tl_optimizer *o, int *n) {
    static const tl_named_tensor none;
    if (n) *n = 0;
    if (!optimizer_check(o, "tl_optimizer_list")) return NULL;
    if (n) *n = (int)o->n_list;
    return o->n_list ? o->list : &none;
}

/* ---- Adding ---- */

static uint64_t name_hash(const char *name) {
    uint64_t hash = 1469598103934665603u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 1099511628211u;
    return hash ^ hash >> 32;
}
static uint64_t tensor_hash(const tl_tensor *x) { return ((uint64_t)(uintptr_t)x * 0x9E3779B97F4A7C15u) >> 32; }

/* The parameter of this name, or of this tensor; NULL: there is none. */
static const struct parameter *find(const tl_optimizer *o, uint64_t hash, const char *name, const tl_tensor *x) {
    for (size_t at = hash & (o->n_slots - 1); o->slots[at]; at = (at + 1) & (o->n_slots - 1)) {
        const struct parameter *p = &o->parameters[o->slots[at] - 1];
        if (name ? !strcmp(p->name, name) : p->tensor == x) return p;
    }
    return NULL;
}

static void slot_fill(tl_optimizer *o, uint64_t hash, size_t index) {
    size_t at = hash & (o->n_slots - 1);
    while (o->slots[at]) at = (at + 1) & (o->n_slots - 1);
    o->slots[at] = index + 1;
}

static void slots_fill(tl_optimizer *o, size_t index) {
    slot_fill(o, name_hash(o->parameters[index].name), index);
    slot_fill(o, tensor_hash(o->parameters[index].tensor), index);
}

/* Room for one parameter more, at most half full. */
static bool slots_grow(tl_optimizer *o) {
    if (o->n_slots >= 4 * (o->n_parameters + 1)) return true;
    size_t larger = o->n_slots ? 2 * o->n_slots : 64, *slots = memory_new(larger * sizeof *slots);
    if (!slots) return false;
    memset(slots, 0, larger * sizeof *slots);
    memory_free(o->slots);
    o->slots = slots;
    o->n_slots = larger;
    for (size_t i = 0; i < o->n_parameters; i++) slots_fill(o, i);
    return true;
}

static bool add_check(const tl_optimizer *o, const char *name, tl_tensor *x) {
    if (!optimizer_check(o, "tl_optimizer_add") || !tensor_check(x, "tl_optimizer_add")) return false;
    if (!name || !*name || !text_is_name(name))
        return error_set(TL_ERROR_USE,
                         "tl_optimizer_add: \"%s\" is not a valid name (need UTF-8 without control characters)",
                         name && text_is_utf8(name) ? name : "");
    if (!dtype_is_float(x->dtype) || dtype_info(x->dtype)->is_storage_only)
        return error_set(TL_ERROR_USE, "tl_optimizer_add: %s: not implemented for %s (need a floating point dtype)",
                         name, dtype_info(x->dtype)->torch_name);
    const struct parameter *same = o->n_slots ? find(o, tensor_hash(x), NULL, x) : NULL;
    if (same)
        return error_set(TL_ERROR_USE, "tl_optimizer_add: %s: this parameter was added before, as %s", name,
                         same->name);
    return !o->n_slots || !find(o, name_hash(name), name, NULL) ||
           error_set(TL_ERROR_USE, "tl_optimizer_add: there is already a parameter %s", name);
}

/* "what.name", or the name alone. */
static char *name_new(const char *what, const char *name) {
    size_t bytes = strlen(what) + strlen(name) + 2;
    char *own = memory_new(bytes);
    if (own) snprintf(own, bytes, "%s%s%s", what, *what ? "." : "", name);
    else error_memory(bytes, "a name");
    return own;
}

/* The beginning of a state: zeros, the parameter's values, or a zero for each of its blocks, rows or columns. */
enum beginning { ZEROS, COPY, SCALES, ROWS, COLUMNS };
static tl_tensor *means_begin(const tl_tensor *p, tl_dtype dtype, enum beginning begins) {
    int64_t shape[TL_MAX_RANK];
    memcpy(shape, p->shape, (size_t)p->rank * sizeof *shape);
    shape[p->rank - (begins == ROWS ? 1 : 2)] = 1;
    return tl_zeros(p->rank, shape, dtype, p->storage->device);
}

static tl_tensor *state_begin(tl_tensor *p, tl_dtype dtype, enum beginning begins) {
    const int64_t n_blocks = (p->numel + DYNAMIC_BLOCK - 1) / DYNAMIC_BLOCK;
    if (begins == SCALES) return tl_zeros(1, &n_blocks, dtype, p->storage->device);
    if (begins == ROWS || begins == COLUMNS) return means_begin(p, dtype, begins);
    if (begins == ZEROS) return tl_zeros(p->rank, p->shape, dtype, p->storage->device);
    return p->dtype == dtype ? tl_clone(p) : tl_cast(p, dtype);
}

/* Makes a state and its entry of the list, for which there is room. The list owns it. */
static tl_tensor *state_new(tl_optimizer *o, const char *what, const char *name, tl_tensor *p, tl_dtype dtype,
                            enum beginning begins, tl_purpose purpose) {
    char *own = name_new(what, name);
    if (!own) return NULL;
    bool mode = tl_set_grad_mode(false);
    tl_tensor *x = state_begin(p, dtype, begins);
    tl_set_grad_mode(mode);
    x = x ? tl_keep(tl_set_purpose(x, purpose)) : NULL;
    if (x) o->list[o->n_list++] = (tl_named_tensor){own, x, true, NULL, NULL};
    else memory_free(own);
    return x;
}

/* Bits of a parameter's moments; small parameters take too little memory for 8. */
static int moment_bits(const struct parameter *p) {
    const int bits = p->options.moment_bits;
    const bool is_adam = p->kind == TL_ADAM || p->kind == TL_ADAMW;
    if (!is_adam || p->tensor->dtype == TL_F64 || (bits == 8 && p->tensor->numel < SMALLEST_8BIT)) return 32;
    return bits ? bits : 32;
}

static bool states_new(tl_optimizer *o, struct parameter *to) {
    const char *what[MAX_STATES];
    const int bits = moment_bits(to);
    const tl_dtype wide = to->tensor->dtype == TL_F64 ? TL_F64 : TL_F32, own = bits == 16  ? TL_BF16
                                                                               : bits == 8 ? TL_U8
                                                                                           : wide;
    enum beginning begins[MAX_STATES] = {to->kind == TL_SCHEDULE_FREE ? COPY : ZEROS};
    state_names(to->kind, &to->options, to->tensor->rank, what);
    if (to->kind == TL_ADAFACTOR) begins[0] = ROWS, begins[1] = COLUMNS;
    if (bits == 8) what[2] = "exp_avg_scale", what[3] = "exp_avg_sq_scale", begins[2] = begins[3] = SCALES;
    for (int i = 0; i < MAX_STATES; i++)
        if (what[i] && !(to->state[i] = state_new(o, what[i], to->name, to->tensor, begins[i] == SCALES ? wide : own,
                                                  begins[i], TL_OPTIMIZER)))
            return false;
    const bool has_master = to->options.has_master && dtype_info(to->tensor->dtype)->bits < 32;
    if (has_master && !(to->master = state_new(o, "master", to->name, to->tensor, wide, COPY, TL_PARAMETER)))
        return false;
    return to->options.ema == 0 || (to->ema = state_new(o, "ema", to->name, to->tensor, wide, ZEROS, TL_OPTIMIZER));
}

bool optimizer_add_part(tl_optimizer *o, const char *name, tl_tensor *parameter, const tl_optimizer_options *options,
                        const struct optimizer_part *part) {
    if (!add_check(o, name, parameter)) return false;
    struct parameter p = {
        .tensor = parameter, .options = options ? *options : tl_optimizer_defaults(o->kind), .part = *part};
    p.kind = part->matrices ? o->kind : step_kind(o->kind, &p.options, parameter);
    if (!options_check(p.kind, name, &p.options)) return false;
    if (!slots_grow(o) || !memory_grow((void **)&o->parameters, &o->capacity, o->n_parameters, sizeof *o->parameters) ||
        !memory_grow((void **)&o->updates, &o->update_capacity, o->n_parameters, sizeof *o->updates) ||
        !memory_grow((void **)&o->list, &o->list_capacity, o->n_list + MAX_LISTED - 1, sizeof *o->list))
        return error_memory(sizeof *o->parameters, "a parameter of an optimizer");
    size_t before = o->n_list;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    bool ok = (p.name = name_new("", name)) && states_new(o, &p);
    ok = tl_scope_end(scope) && ok && tl_keep(parameter);
    if (ok) {
        o->parameters[o->n_parameters++] = p;
        slots_fill(o, o->n_parameters - 1);
        return true;
    }
    list_cut(o, before);
    memory_free(p.name);
    return false;
}

bool tl_optimizer_add(tl_optimizer *o, const char *name, tl_tensor *parameter, const tl_optimizer_options *options) {
    return optimizer_add_part(o, name, parameter, options, &(struct optimizer_part){0});
}

/* ---- Steps ---- */

/* One list, of one group. */
static bool step_list(tl_optimizer_kind kind, const struct update_tensors *list, int n, const tl_optimizer_options *o,
                      int64_t step, double lr, double share, tl_tensor *grad_scale) {
    const tl_update_options update = {NULL, o->stochastic, grad_scale};
    if (kind == TL_SGD) {
        const tl_sgd_options own = {.lr = lr,
                                    .momentum = o->momentum,
                                    .dampening = o->dampening,
                                    .weight_decay = o->weight_decay,
                                    .nesterov = o->nesterov,
                                    .step = step,
                                    .update = update};
        return update_sgd(list, n, &own);
    }
    if (kind == TL_ADAGRAD) {
        const tl_adagrad_options own = {.lr = lr,
                                        .lr_decay = o->lr_decay,
                                        .weight_decay = o->weight_decay,
                                        .eps = o->eps,
                                        .step = step,
                                        .update = update};
        return update_adagrad(list, n, &own);
    }
    if (kind == TL_RMSPROP) {
        const tl_rmsprop_options own = {.lr = lr,
                                        .alpha = o->alpha,
                                        .eps = o->eps,
                                        .weight_decay = o->weight_decay,
                                        .momentum = o->momentum,
                                        .centered = o->centered,
                                        .update = update};
        return update_rmsprop(list, n, &own);
    }
    if (kind == TL_LION) {
        const tl_lion_options own = {
            .lr = lr, .beta1 = o->beta1, .beta2 = o->beta2, .weight_decay = o->weight_decay, .update = update};
        return update_lion(list, n, &own);
    }
    if (kind == TL_SCHEDULE_FREE) {
        const tl_schedule_free_options own = {.lr = lr,
                                              .beta1 = o->beta1,
                                              .beta2 = o->beta2,
                                              .eps = o->eps,
                                              .weight_decay = o->weight_decay,
                                              .share = share,
                                              .step = step,
                                              .update = update};
        return update_schedule_free(list, n, &own);
    }
    if (kind == TL_MUON) {
        tl_muon_options own = tl_muon_defaults();
        own.lr = lr, own.momentum = o->momentum, own.nesterov = o->nesterov, own.weight_decay = o->weight_decay;
        own.ns_steps = o->ns_steps, own.matches_adamw = o->matches_adamw, own.update = update;
        return update_muon(list, n, &own);
    }
    if (kind == TL_ADAFACTOR) {
        const tl_adafactor_options own = {.lr = lr,
                                          .beta2_decay = o->beta2_decay,
                                          .eps1 = o->eps,
                                          .eps2 = o->eps2,
                                          .d = o->d,
                                          .weight_decay = o->weight_decay,
                                          .step = step,
                                          .update = update};
        return update_adafactor(list, n, &own);
    }
    const bool is_8bit = n > 0 && list[0].state[0]->dtype == TL_U8;
    const tl_adam_options own = {.lr = lr,
                                 .beta1 = o->beta1,
                                 .beta2 = o->beta2,
                                 .eps = o->eps,
                                 .weight_decay = o->weight_decay,
                                 .decoupled = kind == TL_ADAMW,
                                 .step = step,
                                 .update = update};
    return is_8bit ? update_adam_8bit(list, n, &own) : update_adam(list, n, &own);
}

static bool options_equal(const tl_optimizer_options *a, const tl_optimizer_options *b) {
    return a->lr == b->lr && a->beta1 == b->beta1 && a->beta2 == b->beta2 && a->eps == b->eps &&
           a->weight_decay == b->weight_decay && a->momentum == b->momentum && a->dampening == b->dampening &&
           a->alpha == b->alpha && a->lr_decay == b->lr_decay && a->nesterov == b->nesterov &&
           a->centered == b->centered && a->amsgrad == b->amsgrad && a->has_master == b->has_master &&
           a->stochastic == b->stochastic && a->ns_steps == b->ns_steps && a->matches_adamw == b->matches_adamw &&
           a->moment_bits == b->moment_bits && a->ema == b->ema && a->beta2_decay == b->beta2_decay &&
           a->eps2 == b->eps2 && a->d == b->d;
}

/* Whether one call may step both. */
static bool is_one_group(const struct parameter *a, const struct parameter *b) {
    return a->kind == b->kind && a->tensor->dtype == b->tensor->dtype && moment_bits(a) == moment_bits(b) &&
           a->tensor->storage->device == b->tensor->storage->device && options_equal(&a->options, &b->options);
}

/* Lists the parameters of the group of `first` that are still to be stepped and have a gradient, in order. Returns
 * how many. */
static int group_list(tl_optimizer *o, size_t first) {
    int n = 0;
    for (size_t i = first; i < o->n_parameters; i++) {
        struct parameter *p = &o->parameters[i];
        if (p->is_stepped || !is_one_group(&o->parameters[first], p)) continue;
        p->is_stepped = true;
        tl_tensor *grad = tl_grad_of(p->tensor);
        if (!grad) continue;
        struct update_tensors *to = &o->updates[n++];
        *to = (struct update_tensors){.parameter = p->tensor,
                                      .grad = grad,
                                      .master = p->master,
                                      .words_before = p->part.words_before,
                                      .words_after = p->part.words_after,
                                      .matrices = p->part.matrices};
        memcpy(to->state, p->state, sizeof to->state);
    }
    return n;
}

/* ---- Averages ---- */

/* Schedule-free: the share of this step in the average. Learning rates differ from lr_factor by a factor of each group
 * alone, which the ratio does not have. */
static double weights_step(tl_optimizer_weights *w, double lr_factor) {
    if (lr_factor > w->largest) w->largest = lr_factor;
    const double weight = w->largest * w->largest;
    w->sum += weight;
    return w->sum > 0 ? weight / w->sum : 0;
}

/* Lists the averages that one call may update with that of `first`, in order. Returns how many. */
static int emas_list(tl_optimizer *o, size_t first) {
    const struct parameter *own = &o->parameters[first];
    int n = 0;
    for (size_t i = first; i < o->n_parameters; i++) {
        struct parameter *p = &o->parameters[i];
        if (p->is_stepped || !p->ema || p->options.ema != own->options.ema || p->ema->dtype != own->ema->dtype ||
            p->ema->storage->device != own->ema->storage->device)
            continue;
        p->is_stepped = true;
        o->updates[n++] = (struct update_tensors){.parameter = p->ema, .grad = p->master ? p->master : p->tensor};
    }
    return n;
}

/* After a step. The first one's average is the parameter itself. */
static bool emas_step(tl_optimizer *o) {
    bool ok = true;
    for (size_t i = 0; i < o->n_parameters; i++) o->parameters[i].is_stepped = false;
    for (size_t i = 0; ok && i < o->n_parameters; i++) {
        const struct parameter *p = &o->parameters[i];
        if (!p->ema || p->is_stepped) continue;
        const double weight = o->n_steps == 1 ? 1 : 1 - p->options.ema;
        const int n = emas_list(o, i);
        ok = update_ema(o->updates, n, weight, NULL);
    }
    return ok;
}

static bool has_average(const struct parameter *p) { return p->ema || p->kind == TL_SCHEDULE_FREE; }

/* Schedule-free: x = y + (1 - 1/beta1) (z - y), from the master copy where there is one. */
static bool average_find(struct parameter *p) {
    const double weight = 1 - 1 / p->options.beta1;
    if (p->ema) return tl_copy_(p->tensor, p->ema) != NULL;
    if (!p->master) return tl_ema_(p->tensor, p->state[0], weight);
    tl_tensor *x = tl_clone(p->master);
    return x && tl_ema_(x, p->state[0], weight) && tl_copy_(p->tensor, x);
}

static bool average_enter(struct parameter *p) {
    tl_scope scope = tl_scope_begin();
    tl_tensor *kept = scope.depth ? tl_clone(p->tensor) : NULL;
    bool ok = kept && tl_keep(tl_set_purpose(kept, TL_PARAMETER));
    if (ok) p->kept = kept;
    ok = ok && average_find(p);
    return scope.depth && tl_scope_end(scope) && ok;
}

static bool average_leave(struct parameter *p) {
    bool ok = tl_copy_(p->tensor, p->kept) != NULL;
    tl_drop(p->kept);
    p->kept = NULL;
    return ok;
}

bool tl_optimizer_average(tl_optimizer *o, bool is_averaged) {
    if (!optimizer_check(o, "tl_optimizer_average")) return false;
    if (is_averaged && o->n_steps == 0) return error_set(TL_ERROR_USE, "tl_optimizer_average: no step was made");
    bool ok = true, mode = tl_set_grad_mode(false);
    for (size_t i = 0; ok && is_averaged && i < o->n_parameters; i++)
        ok = !has_average(&o->parameters[i]) || o->parameters[i].kept || average_enter(&o->parameters[i]);
    o->is_averaged = is_averaged && ok;
    for (size_t i = 0; !o->is_averaged && i < o->n_parameters; i++)
        if (o->parameters[i].kept && !average_leave(&o->parameters[i])) ok = false;
    tl_set_grad_mode(mode);
    return ok;
}

/* ---- A step ---- */

bool tl_optimizer_step(tl_optimizer *o, double lr_factor, tl_tensor *grad_scale) {
    if (tl_error() != TL_OK) return false; /* grad_scale may be NULL because it failed */
    if (!optimizer_check(o, "tl_optimizer_step")) return false;
    if (!(lr_factor >= 0) || !isfinite(lr_factor))
        return error_set(TL_ERROR_USE, "tl_optimizer_step: lr_factor is %g (need a number, 0 or more)", lr_factor);
    if (o->is_averaged)
        return error_set(TL_ERROR_USE, "tl_optimizer_step: the parameters have the values of their averages "
                                       "(tl_optimizer_average puts them back)");
    const double share = weights_step(&o->weights, lr_factor);
    for (size_t i = 0; i < o->n_parameters; i++) o->parameters[i].is_stepped = false;
    for (size_t i = 0; i < o->n_parameters; i++) {
        const tl_optimizer_options *options = &o->parameters[i].options;
        if (o->parameters[i].is_stepped) continue;
        int n = group_list(o, i);
        if (!step_list(o->parameters[i].kind, o->updates, n, options, o->n_steps + 1, options->lr * lr_factor, share,
                       grad_scale))
            return false;
    }
    o->n_steps++;
    return emas_step(o);
}

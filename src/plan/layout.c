#include "plan/layout.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "account/path.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "plan/mfu.h"
#include "step/buckets.h"
#include "step/mesh.h"
#include "step/recipe.h"
#include "step/trainer.h"

const char *const shard_names[SHARD_COUNT] = {"none", "zero1", "zero2", "zero3"};
const char *const schedule_names[SCHEDULE_COUNT] = {"1f1b", "interleaved", "zb1p", "zbv"};
const char *const layout_axis_names[LAYOUT_AXES] = {"tp", "cp", "dp", "pp"};

bool schedule_find(const char *name, enum layout_schedule *schedule) {
    for (int i = 0; i < SCHEDULE_COUNT; i++) {
        *schedule = (enum layout_schedule)i;
        if (!strcmp(name, schedule_names[i])) return true;
    }
    char shown[64];
    return error_set(TL_ERROR_USE, "schedule: \"%s\" is not one of 1f1b, interleaved, zb1p, zbv",
                     text_show(shown, sizeof shown, name));
}

bool layout_model_open(struct settings *s, tl_model_config *config) {
    char weights[SETTING_TEXT];
    if (!trainer_model(s, config, weights)) return false;
    if (*weights) snprintf(s->model, sizeof s->model, "%.*s/config.json", SETTING_TEXT - 16, weights);
    return true;
}

bool layout_has_no_ep(const struct settings *s) {
    return s->ep == 1 ||
           error_set(
               TL_ERROR_USE,
               "ep: plans do not divide experts, whose load depends on the data (need --ep 1; `tally train --price "
               "--dp N --ep %" PRId64 "` prices each rank)",
               s->ep);
}

bool layout_take(struct layout *l, const struct settings *s, int64_t *n_devices) {
    if (!layout_has_no_ep(s)) return false;
    int64_t others = s->tp * s->cp * s->pp; /* each at most 4096 */
    if (*n_devices < 1) *n_devices = others * (s->dp > 0 ? s->dp : 1);
    l->tp = s->tp, l->cp = s->cp, l->pp = s->pp, l->sp = s->sp;
    l->shard = (enum shard_mode)s->shard;
    l->shard_group = s->shard_group;
    l->is_serial = !s->overlap;
    l->dp = *n_devices / others;
    if (s->pp_chunks > 1) l->chunks = s->pp_chunks, l->schedule = SCHEDULE_INTERLEAVED;
    if (l->chunks < 1) l->chunks = 1;
    if (*n_devices % others == 0 && l->dp > 0 && (!s->dp || s->dp == l->dp)) return true;
    return error_set(TL_ERROR_USE,
                     "devices: --tp %" PRId64 " --cp %" PRId64 " --pp %" PRId64 " --dp %" PRId64
                     " cannot use --devices %" PRId64 " (need %s%" PRId64 ")",
                     s->tp, s->cp, s->pp, s->dp, *n_devices, s->dp ? "" : "a multiple of ",
                     others * (s->dp > 0 ? s->dp : 1));
}

bool layout_rank_settings(const struct layout *l, const struct settings *s, struct settings *rank) {
    if (s->batch % l->dp)
        return error_set(TL_ERROR_USE,
                         "batch: %" PRId64 " sequences cannot be divided among %" PRId64
                         " ranks of dp (need a multiple, such as --batch %" PRId64 ")",
                         s->batch, l->dp, (s->batch + l->dp - 1) / l->dp * l->dp);
    *rank = *s;
    rank->batch /= l->dp;
    rank->dp = 0;
    rank->tp = rank->cp = rank->pp = rank->pp_chunks = 1;
    rank->sp = false;
    rank->shard = SHARD_NONE;
    rank->shard_group = 0;
    return true;
}

const char *layout_refusal(const struct layout *l, const tl_model_config *c, const struct settings *s, int64_t micro,
                           char *buffer) {
    const int64_t chunk_layers = l->pp * l->chunks, seq = s->seq;
    const char *const whole = trainer_whole_steps(s);
    if (c->positions == TL_POSITIONS_ALIBI && l->cp > 1)
        snprintf(buffer, 160, "ALiBi cannot be divided among --cp %" PRId64, l->cp);
    else if (c->n_experts && (c->expert_ff ? c->expert_ff : c->ff) % l->tp)
        snprintf(buffer, 160, "experts of width %" PRId64 " cannot be divided among --tp %" PRId64,
                 c->expert_ff ? c->expert_ff : c->ff, l->tp);
    else if (whole && l->tp > 1) snprintf(buffer, 160, "%s, which --tp %" PRId64 " divides", whole, l->tp);
    else if (whole && l->shard && l->dp * l->cp > 1)
        snprintf(buffer, 160, "%s, which --shard %s divides", whole, shard_names[l->shard]);
    else if (c->n_heads % l->tp)
        snprintf(buffer, 160, "%" PRId64 " heads cannot be divided among --tp %" PRId64, c->n_heads, l->tp);
    else if (l->tp % c->n_kv_heads && c->n_kv_heads % l->tp)
        snprintf(buffer, 160, "--tp %" PRId64 " and %" PRId64 " heads for keys and values: neither divides the other",
                 l->tp, c->n_kv_heads);
    else if (c->ff % l->tp)
        snprintf(buffer, 160, "an MLP of %" PRId64 " cannot be divided among --tp %" PRId64, c->ff, l->tp);
    else if (l->cp > 1 && seq % (2 * l->cp))
        snprintf(buffer, 160, "sequences of %" PRId64 " cannot be cut into 2 x %" PRId64 " parts for --cp", seq, l->cp);
    else if (s->batch_warmup && l->pp > 1)
        snprintf(buffer, 160,
                 "--batch-warmup has fewer micro-batches in a step than the stages of --pp %" PRId64 " take", l->pp);
    else if (l->pp > c->n_layers)
        snprintf(buffer, 160, "%" PRId64 " layers are fewer than --pp %" PRId64, c->n_layers, l->pp);
    else if (l->chunks > 1 && c->n_layers < chunk_layers)
        snprintf(buffer, 160, "%" PRId64 " layers cannot be divided into %" PRId64 " stages of %" PRId64 " chunks",
                 c->n_layers, l->pp, l->chunks);
    else if (l->shard_group && (l->shard_group < 2 || l->dp * l->cp % l->shard_group || !l->shard))
        snprintf(buffer, 160, "--shard-group %" PRId64 " needs a --shard, and to divide %" PRId64 " ranks of dp and cp",
                 l->shard_group, l->dp * l->cp);
    else if (l->sp && l->tp == 1) snprintf(buffer, 160, "--sp needs --tp 2 or more");
    else if (l->schedule == SCHEDULE_INTERLEAVED && l->pp > 1 && micro % l->pp)
        snprintf(buffer, 160, "an interleaved schedule needs a multiple of %" PRId64 " micro-batches, not %" PRId64,
                 l->pp, micro);
    else return NULL;
    return buffer;
}

static int64_t micro_of(const struct price *p, const struct layout *l) {
    return l->micro ? l->micro : p->settings.accum;
}

/* ---- Bytes held ---- */

struct part { /* what one device has of the model */
    double parameters, layers;
    uint64_t element, sum; /* bytes of a weight, and of a summed gradient */
    uint64_t weights, gradients, states;
    double block; /* parameters of one layer on this device */
};

static uint64_t share(uint64_t bytes, int64_t n, bool is_cut) {
    uint64_t parts = (uint64_t)n;
    return is_cut ? bytes / parts + (bytes % parts != 0) : bytes;
}

/* Parameters of the largest part that is used at once: two blocks (the current one and the next), or the embedding
 * and the head that goes with it. */
static double gathered_parameters(const tl_model_config *c, const struct part *part, const struct layout *l) {
    double head = (double)c->vocabulary * (double)c->channels / (double)l->tp;
    return fmax(2 * part->block, head);
}

/* The stage that holds the most: the first, with the embedding; without a pipeline, everything. */
static struct part part_of(const struct price *p, const struct layout *l) {
    const struct recipe *recipe = recipe_find(settings_choice(&p->settings, "recipe"));
    const struct held_window *w = price_window(p, KIND_STEP);
    const tl_model_config *c = &p->config;
    struct part part = {.element = (uint64_t)tl_dtype_bits(recipe->parameters) / 8};
    double all = (double)p->n_parameters, head = (double)c->vocabulary * (double)c->channels;
    double block = (all - (c->is_tied ? 1 : 2) * head) / (double)c->n_layers;
    bool has_wide_sums = micro_of(p, l) > 1 && recipe_sums_in_f32(recipe);
    part.sum = has_wide_sums ? 4 : part.element;
    part.layers = ceil((double)c->n_layers / (double)l->pp);
    part.parameters = (l->pp == 1 ? all : part.layers * block + head) / (double)l->tp;
    part.block = block / (double)l->tp;
    uint64_t whole = (uint64_t)p->n_parameters * part.element;
    uint64_t kept = w->peak_by_purpose[TL_PARAMETER] + w->peak_by_purpose[TL_OPTIMIZER];
    uint64_t states = kept > whole ? kept - whole : 0;
    bool is_whole = l->pp == 1 && l->tp == 1;
    double scale = part.parameters / all;
    part.weights = is_whole ? whole : (uint64_t)(part.parameters * (double)part.element);
    part.gradients = is_whole ? (uint64_t)p->n_parameters * part.sum : (uint64_t)(part.parameters * (double)part.sum);
    part.states = is_whole ? states : (uint64_t)((double)states * scale);
    return part;
}

/* The most that a step of so many layers holds besides what is kept. */
static bool passing_price(const struct price *p, int64_t layers, int64_t seq, uint64_t *bytes) {
    struct price *small = memory_new(sizeof *small);
    if (!small) return error_memory(sizeof *small, "a price");
    struct settings s = p->settings;
    tl_model_config config;
    bool ok = layout_model_open(&s, &config);
    s.layers = layers;
    s.seq = seq;
    s.steps = s.accum = 1;
    s.warmup = s.batch_warmup = s.sample_tokens = 0;
    s.val_share = 0;
    ok = ok && price_sketch(small, &s, p->device, 0);
    if (ok) *bytes = price_window(small, KIND_STEP)->peak_passing_bytes;
    if (ok) price_free(small);
    memory_free(small);
    return ok;
}

static bool passing_of(const struct price *p, struct layout_cache *cache, int64_t layers, int64_t seq,
                       uint64_t *bytes) {
    int64_t batch = p->settings.batch;
    for (int i = 0; cache && i < cache->n; i++)
        if (cache->row[i].batch == batch && cache->row[i].seq == seq && cache->row[i].layers == layers)
            return *bytes = cache->row[i].passing_bytes, true;
    if (!passing_price(p, layers, seq, bytes)) return false;
    if (cache && cache->n < (int)(sizeof cache->row / sizeof *cache->row)) {
        cache->row[cache->n].batch = batch;
        cache->row[cache->n].seq = seq;
        cache->row[cache->n].layers = layers;
        cache->row[cache->n++].passing_bytes = *bytes;
    }
    return true;
}

static double in_flight(const struct layout *l, int64_t micro) {
    double p = (double)l->pp, v = (double)l->chunks, m = (double)micro;
    double most = l->schedule == SCHEDULE_INTERLEAVED && l->pp > 1 ? p * (1 + (p - 1) / (p * v)) : p;
    return fmin(most, m);
}

/* Of what a layer keeps, 24 of 34 parts are inside the matrices that tp divides, and the rest only with sp (Korthikanti
 * et al. 2022, without attention matrices). Block inputs, which are all that remain if layers are recomputed, are
 * among the rest. */
static double kept_share(const struct layout *l, const struct settings *s, bool is_kept) {
    bool is_inputs = is_kept && strcmp(settings_choice(s, "checkpointing"), "none") &&
                     strcmp(settings_choice(s, "checkpointing"), "selective");
    double t = (double)l->tp;
    if (l->sp) return 1 / t;
    return is_inputs ? 1 : (10 + 24 / t) / 34;
}

/* One device's peak of everything that is not kept between steps. Alone it is exact. A stage is priced as a model of
 * its layers; each further micro-batch in flight adds what its layers keep. */
static bool other_find(struct layout_estimate *e, const struct price *p, const struct layout *l,
                       const struct part *part, struct layout_cache *cache) {
    const tl_model_config *c = &p->config;
    int64_t n = (int64_t)part->layers, seq = p->settings.seq / l->cp;
    uint64_t whole, less = 0;
    e->in_flight = l->pp > 1 ? in_flight(l, micro_of(p, l)) : 1;
    if (l->pp == 1 && l->tp == 1 && l->cp == 1) {
        e->other_bytes = price_window(p, KIND_STEP)->peak_passing_bytes;
        return true;
    }
    int64_t other = n > 1 ? 1 : 2;
    if (!passing_of(p, cache, n, seq, &whole) || !passing_of(p, cache, other, seq, &less)) return false;
    double slope = ((double)whole - (double)less) / (double)(n - other);
    double fixed = (double)whole - slope * (double)n;
    double keys = 4 * (double)p->settings.batch * (double)p->settings.seq * (double)(c->n_kv_heads * c->head_size) /
                  (double)l->tp; /* gathered for one layer: keys and values, 2 bytes each */
    e->other_bytes = (uint64_t)(fmax(fixed, 0) * kept_share(l, &p->settings, false) +
                                fmax(slope, 0) * kept_share(l, &p->settings, true) * (double)n * e->in_flight +
                                (l->cp > 1 ? keys : 0));
    return true;
}

/* Without sharding, and with only the states sharded, the peak is at the same moment as on one device. With gradients
 * sharded that moment is not known: the most that a step holds temporarily is added to what is kept, which is never
 * too little. */
static bool memory_find(struct layout_estimate *e, const struct price *p, const struct layout *l,
                        struct layout_cache *cache) {
    struct part part = part_of(p, l);
    int64_t n = layout_sharded(l);
    uint64_t gathered = (uint64_t)(gathered_parameters(&p->config, &part, l) * (double)part.element);
    bool is_exact_moment = l->shard <= SHARD_ZERO1 && l->tp == 1 && l->cp == 1 && l->pp == 1;
    if (!other_find(e, p, l, &part, cache)) return false;
    e->weights_bytes = share(part.weights, n, l->shard >= SHARD_ZERO3);
    e->states_bytes = share(part.states, n, l->shard >= SHARD_ZERO1);
    e->gradients_bytes = share(part.gradients, n, l->shard >= SHARD_ZERO2);
    if (l->shard >= SHARD_ZERO2) e->gathered_bytes += gathered / 2; /* the gradients of the block just done */
    if (l->shard >= SHARD_ZERO3) e->gathered_bytes += gathered;
    if (is_exact_moment) e->total_bytes = p->reserved_bytes - part.states + e->states_bytes;
    else e->total_bytes = e->weights_bytes + e->states_bytes + e->gradients_bytes + e->gathered_bytes + e->other_bytes;
    return true;
}

/* ---- Bytes sent ---- */

struct wire {
    const struct network *net;
    enum network_algorithm algorithm;
};

static void send(struct layout_estimate *e, const struct wire *w, int axis, const struct network_group *g,
                 enum network_op op, double bytes, double calls) {
    struct network_cost cost = network_cost(w->net, w->algorithm, g, op, bytes, calls);
    network_cost_add(&e->axis[axis], &cost);
    network_cost_add(&e->sum, &cost);
    e->has_network = e->has_network || (g->nodes > 1 && g->size > 1);
}

/* What Muon orthogonalizes in the layers of a stage, in the dtype of its products. */
static double momenta_bytes(const struct price *p, const struct layout *l) {
    const double element = target_has_native(p->device->target, TL_BF16) ? 2 : 4, n = (double)p->config.n_layers;
    return element * (double)p->n_muon * ceil(n / (double)l->pp) / n;
}

/* Layer by layer, so that communication overlaps with computation. */
static void dp_send(struct layout_estimate *e, const struct wire *w, const struct price *p, const struct layout *l) {
    struct part part = part_of(p, l);
    int64_t N = layout_sharded(l), n_groups = l->cp * l->dp / N;
    struct network_group g = network_group_of(w->net, l->tp, N), across = network_group_of(w->net, l->tp * N, n_groups);
    double n = part.layers, k = (double)micro_of(p, l), G = (double)part.gradients / n, W = (double)part.weights / n,
           one = W; /* gradients of one micro-batch are as wide as the weights */
    const int dp = LAYOUT_DP;
    if (l->shard == SHARD_NONE) send(e, w, dp, &g, NETWORK_ALL_REDUCE, G, n);
    if (n_groups > 1) send(e, w, dp, &across, NETWORK_ALL_REDUCE, G / (double)N, n);
    if (l->shard == SHARD_ZERO1) send(e, w, dp, &g, NETWORK_REDUCE_SCATTER, G, n);
    if (l->shard >= SHARD_ZERO2) send(e, w, dp, &g, NETWORK_REDUCE_SCATTER, one, n * k);
    if (l->shard == SHARD_ZERO1 || l->shard == SHARD_ZERO2) send(e, w, dp, &g, NETWORK_ALL_GATHER, W, n);
    if (p->n_muon && l->shard >= SHARD_ZERO1)
        send(e, w, dp, &g, NETWORK_ALL_GATHER, momenta_bytes(p, l) / n / (double)l->tp, n);
    /* forward and backward; the last layer's stay, unless its activations are dropped with them */
    bool stays =
        p->settings.overlap && !l->has_rings && !strcmp(settings_choice(&p->settings, "checkpointing"), "none");
    if (l->shard == SHARD_ZERO3) send(e, w, dp, &g, NETWORK_ALL_GATHER, W, (2 * n - stays) * k);
}

/* Tensors between layers, and keys and values. */
static void layers_send(struct layout_estimate *e, const struct wire *w, const struct price *p,
                        const struct layout *l) {
    const struct settings *s = &p->settings;
    const tl_model_config *c = &p->config;
    const struct recipe *recipe = recipe_find(settings_choice(s, "recipe"));
    double element = (double)tl_dtype_bits(recipe_product_dtype(recipe)) / 8;
    if (element < 2) element = 2; /* narrower products have activations of 16 bits around them */
    double tokens = (double)s->batch * (double)s->seq / (double)l->cp, S = tokens * (double)c->channels * element;
    const double layers = ceil((double)c->n_layers / (double)l->pp);
    double k = (double)micro_of(p, l), n = layers * k;
    bool is_full =
        strcmp(settings_choice(s, "checkpointing"), "none") && strcmp(settings_choice(s, "checkpointing"), "selective");
    double again = is_full ? 1 : 0;
    struct network_group tp = network_group_of(w->net, 1, l->tp), cp = network_group_of(w->net, l->tp, l->cp),
                         pp = network_group_of(w->net, l->tp * l->cp * l->dp, l->pp);
    /* the embedding's output and the head's input are two more, on one stage or on two */
    double ends = l->pp == 1 ? 2 * k : k;
    if (l->sp) {
        send(e, w, LAYOUT_TP, &tp, NETWORK_ALL_GATHER, S, n * 6 + ends);
        send(e, w, LAYOUT_TP, &tp, NETWORK_REDUCE_SCATTER, S, n * (4 + 2 * again) + ends);
    } else send(e, w, LAYOUT_TP, &tp, NETWORK_ALL_REDUCE, S, n * (4 + 2 * again) + ends);
    send(e, w, LAYOUT_TP, &tp, NETWORK_ALL_REDUCE, 4 * tokens, 3 * k); /* the loss */
    if (p->n_muon) send(e, w, LAYOUT_TP, &tp, NETWORK_ALL_GATHER, momenta_bytes(p, l) / layers, layers);
    double heads = (double)(c->n_kv_heads * c->head_size) / fmin((double)l->tp, (double)c->n_kv_heads);
    double keys = 2 * (double)s->batch * (double)s->seq * heads * element;
    send(e, w, LAYOUT_CP, &cp, NETWORK_ALL_GATHER, keys, n * (2 + again));
    send(e, w, LAYOUT_CP, &cp, NETWORK_REDUCE_SCATTER, keys, n);
    send(e, w, LAYOUT_PP, &pp, NETWORK_SEND, S / (l->sp ? (double)l->tp : 1), 2 * k * (double)l->chunks);
}

/* ---- Time ---- */

static void seconds_add(struct layout_seconds *to, const struct predict_machine *m, const struct predict_shape *shape,
                        const struct ledger_row *row) {
    struct prediction one = predict_rows(m, shape, row, 1);
    double predicted = m->profile ? predict_row(m, shape, row) : NAN;
    to->compute_s += one.compute_s;
    to->memory_s += one.memory_s;
    to->roofline_s += predict_roof(m, row);
    if (isfinite(predicted)) to->predicted_s += predicted;
}

/* Muon's work on whole matrices, between their momenta and the last part of the update. */
static bool is_shared(const struct ledger_row *row) {
    return !strcmp(path_text(row->key.path), "muon") && strcmp(row->key.op, "muon_momentum") &&
           strcmp(row->key.op, "sgd");
}

static struct layout_work work_find(const struct price *p, const struct predict_machine *m) {
    const tl_ledger *ledger = p->kind[KIND_STEP].ledger;
    const struct predict_shape shape = predict_shape_of(&p->config, p->settings.seq);
    double flops[TL_PHASE_COUNT] = {0}, all = 0;
    struct layout_work work = {.is_known = m->bandwidth > 0, .parameters = (double)p->n_active};
    for (size_t i = 0; i < ledger->n_rows; i++) {
        const struct ledger_row *row = &ledger->rows[i];
        const bool is_update = row->key.phase == TL_UPDATE;
        if (!predict_knows(m, row)) work.is_known = false;
        if (work.is_known) seconds_add(is_update ? &work.update : &work.steps, m, &shape, row);
        if (work.is_known && is_update && is_shared(row)) seconds_add(&work.shared, m, &shape, row);
        flops[row->key.phase] += (double)row->flops;
        if (!is_update) all += (double)row->flops;
    }
    work.forward = all > 0 ? flops[TL_FORWARD] / all : 0;
    work.weights = all > 0 ? flops[TL_BACKWARD] / 2 / all : 0;
    return work;
}

/* What a schedule leaves of the time in which a pipeline fills and drains. */
static double fill_share(const struct layout *l, const struct layout_work *work) {
    double rest = fmax(1 - 2 * work->weights, 0);
    return l->schedule == SCHEDULE_ZBV ? 0 : (l->schedule == SCHEDULE_ZB1P ? rest : 1) / (double)l->chunks;
}

/* The stages of a pipeline: the first, `between` that are alike, and the last. Without one all of them are the same. */
struct pipeline {
    struct layout_work first, middle, last;
    double stages, between, micro, fill;
};

static struct pipeline pipeline_of(const struct layout *l, const struct layout_work *work, int64_t micro) {
    return (struct pipeline){.first = *work,
                             .middle = *work,
                             .last = *work,
                             .stages = (double)l->pp,
                             .between = fmax((double)l->pp - 2, 0),
                             .micro = (double)micro,
                             .fill = fill_share(l, work)};
}

/* Seconds of a step on each of the three. */
struct stage_seconds {
    double first, middle, last;
};
#define STAGES(pipe, field) ((struct stage_seconds){(pipe)->first.field, (pipe)->middle.field, (pipe)->last.field})

static double slowest_of(const struct pipeline *p, struct stage_seconds s) {
    double most = fmax(s.first, p->stages > 1 ? s.last : 0);
    return p->between > 0 ? fmax(most, s.middle) : most;
}
static double sum_of(const struct pipeline *p, struct stage_seconds s) {
    return p->stages > 1 ? s.first + p->between * s.middle + s.last : s.first;
}

/* No schedule is faster: a stage begins when those before it have had a micro-batch, and when it ends they have one to
 * take back. */
static double pipeline_least(const struct pipeline *p, struct stage_seconds s) {
    double one = p->fill / p->micro, most = s.first;
    if (p->between > 0) most = fmax(most, s.middle + one * (s.first + (p->between - 1) * s.middle));
    return p->stages > 1 ? fmax(most, s.last + one * (s.first + p->between * s.middle)) : most;
}

/* The slowest stage has all micro-batches one after another, and the others one before and after. */
static double pipeline_expected(const struct pipeline *p, struct stage_seconds s) {
    double most = slowest_of(p, s);
    return most + p->fill / p->micro * (sum_of(p, s) - most);
}

/* The share of that time in which stages wait, on average. */
static double pipeline_bubble(const struct pipeline *p, struct stage_seconds s) {
    double all = p->stages * pipeline_expected(p, s);
    return all > 0 ? 1 - sum_of(p, s) / all : 0;
}

/* A share of the communication of an axis hides behind `window` seconds of computation. */
static void expose_share(struct layout_estimate *e, int axis, double share, double window) {
    double all = share * e->axis[axis].expected_s, hidden = fmin(LAYOUT_OVERLAP * all, window);
    e->hidden_s += hidden;
    e->exposed_s += all - hidden;
}
static void expose(struct layout_estimate *e, int axis, double window) { expose_share(e, axis, 1, window); }

/* Of `own` seconds, a share is forward. What is sent before the update hides behind backward, the rest behind the next
 * forward. */
static void dp_expose(struct layout_estimate *e, const struct layout *l, double own, double forward, int64_t micro) {
    double k = (double)micro, backward = own * (1 - forward) / (l->shard >= SHARD_ZERO2 ? 1 : k);
    double sums = l->shard == SHARD_ZERO1 ? 0.5 : l->shard == SHARD_ZERO2 ? k / (k + 1) : 1;
    bool waits = l->pp > 1 && l->shard < SHARD_ZERO2; /* for the sums of all micro-batches */
    if (l->is_serial) expose(e, LAYOUT_DP, 0);
    else if (l->shard == SHARD_ZERO3) expose(e, LAYOUT_DP, own);
    else if (l->has_rings) expose(e, LAYOUT_DP, backward);
    else {
        expose_share(e, LAYOUT_DP, sums, waits ? 0 : backward);
        expose_share(e, LAYOUT_DP, 1 - sums, own * forward / k);
    }
}

static struct layout_work work_of(const struct price *p, const struct predict_machine *m, struct layout_cache *cache) {
    if (cache && cache->priced == p) return cache->work;
    struct layout_work work = work_find(p, m);
    if (cache) cache->priced = p, cache->work = work;
    return work;
}

static void seconds_divide(struct layout_seconds *s, double parts) {
    s->compute_s /= parts;
    s->memory_s /= parts;
    s->roofline_s /= parts;
    s->predicted_s /= parts;
}

static void seconds_join(struct layout_seconds *to, const struct layout_seconds *s, double factor) {
    to->compute_s += factor * s->compute_s;
    to->memory_s += factor * s->memory_s;
    to->roofline_s += factor * s->roofline_s;
    to->predicted_s += factor * s->predicted_s;
}

static double own_seconds(const struct layout_work *work, const struct plan_target *target) {
    if (work->steps.predicted_s > 0) return work->steps.predicted_s;
    return work->steps.roofline_s / mfu_roofline_share(target->chip, work->parameters);
}

static struct stage_seconds own_stages(const struct pipeline *p, const struct plan_target *target) {
    return (struct stage_seconds){own_seconds(&p->first, target), own_seconds(&p->middle, target),
                                  own_seconds(&p->last, target)};
}

/* Of all stages, the longest: what is updated waits for the norm of all gradients. */
static double update_seconds(const struct pipeline *p, bool is_measured) {
    struct stage_seconds s = is_measured ? STAGES(p, update.predicted_s) : STAGES(p, update.roofline_s);
    return slowest_of(p, s) / (is_measured ? 1 : NETWORK_SHARE);
}

static void times_find(struct layout_estimate *e, const struct pipeline *p, const struct plan_target *target,
                       const struct layout *l) {
    e->bubble = e->even_bubble = pipeline_bubble(p, (struct stage_seconds){1, 1, 1});
    if (!p->first.is_known) return;
    const struct stage_seconds stages = own_stages(p, target);
    double wires = fmax(e->sum.inside_s, e->sum.between_s), own = slowest_of(p, stages);
    e->bubble = pipeline_bubble(p, stages);
    e->hidden_s = e->exposed_s = 0;
    e->bound_s = fmax(pipeline_least(p, STAGES(p, steps.compute_s)) + slowest_of(p, STAGES(p, update.compute_s)),
                      pipeline_least(p, STAGES(p, steps.memory_s)) + slowest_of(p, STAGES(p, update.memory_s)));
    e->bound_s = fmax(e->bound_s, wires);
    e->roofline_s =
        fmax(pipeline_least(p, STAGES(p, steps.roofline_s)) + slowest_of(p, STAGES(p, update.roofline_s)), wires);
    double others = l->has_rings && !l->is_serial ? own : 0, steps = pipeline_expected(p, stages);
    expose(e, LAYOUT_TP, 0);
    expose(e, LAYOUT_CP, others);
    e->exposed_s *= own > 0 ? steps / own : 1; /* a pipeline's other stages wait for these too */
    expose(e, LAYOUT_PP, others);
    dp_expose(e, l, own, p->first.forward, (int64_t)p->micro);
    e->compute_s = steps + update_seconds(p, p->first.steps.predicted_s > 0);
    e->expected_s = e->compute_s + e->exposed_s;
}

bool layout_estimate(struct layout_estimate *e, const struct price *p, const struct plan_target *target,
                     const struct network *net, const struct layout *l, struct layout_cache *cache) {
    const struct wire wire = {net, l->has_rings ? NETWORK_RING : NETWORK_PAIRWISE};
    *e = (struct layout_estimate){0};
    if (!memory_find(e, p, l, cache)) return false;
    dp_send(e, &wire, p, l);
    layers_send(e, &wire, p, l);
    struct layout_work work = work_of(p, &target->speed, cache);
    double micro = (double)micro_of(p, l);
    /* the parts that tp and pp leave of the optimizer's work, of which each rank of zero1 and above has a part */
    seconds_divide(&work.steps, (double)(l->tp * l->cp * l->pp) * (double)p->settings.accum / micro);
    seconds_join(&work.update, &work.shared, -1);
    seconds_divide(&work.update, (double)(l->tp * l->pp) * (l->shard >= SHARD_ZERO1 ? (double)layout_sharded(l) : 1));
    seconds_join(&work.update, &work.shared, 1 / (double)l->pp);
    const struct pipeline pipe = pipeline_of(l, &work, micro_of(p, l));
    times_find(e, &pipe, target, l);
    return true;
}

/* ---- Prices in place of formulas ---- */

int layout_classes(const struct layout *l, bool is_even, int ranks[LAYOUT_CLASSES]) {
    const int64_t sizes[LAYOUT_AXES] = {l->tp, l->cp, l->dp, l->pp};
    int n = 1;
    int64_t stride = 1;
    ranks[0] = 0;
    for (int axis = 0; axis < LAYOUT_AXES; axis++) {
        bool has_last = sizes[axis] > 1 && axis != LAYOUT_DP && !(is_even && axis == LAYOUT_TP);
        for (int i = 0, before = n; has_last && i < before; i++)
            ranks[n++] = ranks[i] + (int)((sizes[axis] - 1) * stride);
        stride *= sizes[axis];
    }
    return n;
}

static double sent_by(const struct price *p) {
    const tl_ledger *ledger = p->kind[KIND_STEP].ledger;
    double sent = 0;
    for (size_t i = 0; i < ledger->n_rows; i++) sent += (double)ledger->rows[i].sent_bytes;
    return sent;
}

static void held_take(struct layout_estimate *e, const struct price *p) {
    const uint64_t *at_peak = price_window(p, p->peak_kind)->peak_by_purpose;
    uint64_t kept = at_peak[TL_PARAMETER] + at_peak[TL_OPTIMIZER];
    e->total_bytes = p->reserved_bytes;
    e->block_bytes = p->allocated_bytes;
    e->states_bytes = kept > e->weights_bytes ? kept - e->weights_bytes : 0;
    e->gradients_bytes = at_peak[TL_GRADIENT];
    e->gathered_bytes = 0;
    e->other_bytes = p->reserved_bytes - e->weights_bytes - e->states_bytes - e->gradients_bytes;
}

/* Formulas say what goes where, and the ledger how much it is in all. */
static void sent_take(struct layout_estimate *e, double sent) {
    double formula = e->sum.inside_bytes + e->sum.between_bytes, factor = formula > 0 ? sent / formula : 0;
    for (int i = 0; i <= LAYOUT_AXES; i++) {
        struct network_cost *c = i < LAYOUT_AXES ? &e->axis[i] : &e->sum;
        c->inside_bytes *= factor;
        c->between_bytes *= factor;
        c->inside_s *= factor;
        c->between_s *= factor;
        c->expected_s *= factor;
    }
}

/* Whether a price is worth its time; and the run's settings with the layout in them. */
static bool can_price(const struct settings *s, const struct layout *l, const struct layout_estimate *e) {
    double n = (double)layout_sharded(l), weights = (double)e->weights_bytes * (l->shard == SHARD_ZERO3 ? n : 1);
    double buckets = 1 + weights / BUCKET_BYTES;
    bool has_schedule =
        l->schedule == SCHEDULE_1F1B || (l->schedule == SCHEDULE_INTERLEAVED && s->pp_chunks == l->chunks);
    if (l->pp > 1 && (!has_schedule || (l->micro && l->micro != s->accum))) return false;
    return mesh_is_possible(s) && l->dp * l->tp * l->cp * l->pp > 1 && n * buckets <= LAYOUT_CALLS;
}

/* The work of the slowest rank of each stage. */
static void stage_take(struct pipeline *pipe, const struct layout *l, int rank, const struct layout_work *work) {
    int64_t stage = rank / (l->tp * l->cp * l->dp);
    struct layout_work *to = stage == 0 ? &pipe->first : stage == l->pp - 1 ? &pipe->last : &pipe->middle;
    if (work->steps.roofline_s > to->steps.roofline_s || !to->is_known) *to = *work;
}

/* One of each class, and of the stages of pp between the first and the last the one with the fewest layers. From
 * zero2 on, also the second stage, for its bytes: its gradients may be exchanged while its last products still run,
 * which the embedding's gradient prevents on the first stage. Later stages have fewer micro-batches under way. */
enum { RANKS_PRICED = LAYOUT_CLASSES + 2 };
static int ranks_priced(const struct layout *l, bool is_even, int ranks[RANKS_PRICED]) {
    int n = layout_classes(l, is_even, ranks), stage = (int)(l->tp * l->cp * l->dp);
    if (l->pp > 2) ranks[n++] = (int)(l->pp - 2) * stage;
    if (l->pp > 3 && l->shard >= SHARD_ZERO2) ranks[n++] = stage;
    return n;
}

/* False: the trainer refuses this one (`is_refused`), or an error was recorded. */
static bool rank_price(struct price *p, const struct settings *s, const struct plan_target *target, int rank,
                       bool *is_refused) {
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    bool ok = price_sketch_rank(p, s, target->device, 0, rank); /* bytes decide */
    tl_set_error_policy(policy);
    *is_refused = !ok && rank == 0 && tl_error() == TL_ERROR_USE;
    if (*is_refused) tl_error_clear();
    return ok;
}

bool layout_refine(struct layout_estimate *e, const struct settings *s, const struct plan_target *target,
                   const struct layout *l) {
    struct {
        struct settings settings;
        struct price price;
    } *own = memory_new(sizeof *own);
    tl_model_config config;
    char weights[SETTING_TEXT];
    int ranks[RANKS_PRICED];
    double sent = 0;
    struct layout_work work = {0};
    struct pipeline pipe = pipeline_of(l, &work, s->accum);
    if (!own) return error_memory(sizeof *own, "a price");
    own->settings = *s;
    own->settings.dp = l->dp;
    if (l->pp > 1 && l->schedule == SCHEDULE_INTERLEAVED) own->settings.pp_chunks = l->chunks;
    bool ok = trainer_model(s, &config, weights), is_refused = !ok || !can_price(&own->settings, l, e);
    int n = ok ? ranks_priced(l, config.vocabulary % l->tp == 0, ranks) : 0;
    for (int i = 0; ok && !is_refused && i < n; i++) {
        struct price *p = &own->price;
        ok = rank_price(p, &own->settings, target, ranks[i], &is_refused) || is_refused;
        if (!ok || is_refused) break; /* the formulas stay */
        if (i == 0 || p->reserved_bytes > e->total_bytes) held_take(e, p);
        sent = fmax(sent, sent_by(p));
        work = work_find(p, &target->speed);
        const bool is_second = l->pp > 3 && ranks[i] == l->tp * l->cp * l->dp;
        if (!is_second) stage_take(&pipe, l, ranks[i], &work);
        price_free(p);
    }
    if (ok && !is_refused) {
        sent_take(e, sent);
        times_find(e, &pipe, target, l);
        e->is_exact = true;
    }
    memory_free(own);
    return ok;
}

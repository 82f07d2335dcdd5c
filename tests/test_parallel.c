/* test_parallel.c: models that several processes share. Alone, this program starts itself under mpirun with 2, 3 and 4
 * processes; under a launcher it is one of them. Each rank has the undivided model too, with the same parameters:
 * losses, and the gradients of every parameter, are compared with its. In f64, so that only the order of sums differs.
 */
#include "support/check.h"
#include "support/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "nn/layers.h"
#include "nn/model_parallel.h"
#include "ops/update.h"

static tl_comm *world(void) {
    tl_comm *comm = tl_comm_world();
    assert_non_null(comm);
    return comm;
}

/* ---- What is compared ---- */

enum { BATCH = 2, TIME = 24 };

struct layout {
    const char *name;
    tl_parallel groups;
};

struct check_case {
    tl_model_config config;
    tl_dtype dtype;
    tl_checkpoint_policy policy;
    bool has_documents, has_ignored;
    double smoothing, z;        /* of the head's loss */
    double balance, router_z;   /* of the routers' */
    tl_adapter_options adapter; /* rank 0: none */
    double bound;               /* of differences, in units of the largest magnitude */
};

static uint64_t dice_state;
static int64_t dice(int64_t n) { /* the same on all ranks */
    dice_state = dice_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((dice_state >> 33) % (uint64_t)n);
}

/* 12 heads can be divided by 2, 3 and 4; vocabulary and MLP cannot. Heads of keys: fewer than ranks, or more. */
static tl_model_config config_random(int tp) {
    static const int64_t kv_heads[] = {1, 2, 3, 4, 6, 12};
    tl_model_config c = {.family = dice(2) ? TL_LLAMA : TL_GPT2,
                         .n_layers = 1 + dice(2),
                         .n_heads = 12,
                         .n_kv_heads = 12,
                         .head_size = 2 + 2 * dice(2),
                         .ff = 29 + dice(5),
                         .vocabulary = 53 + dice(5),
                         .context = TIME + dice(2),
                         .norm_eps = 1e-5,
                         .rope_base = 10000,
                         .init_std = 0.3};
    c.channels = c.family == TL_GPT2 ? c.n_heads * c.head_size : 20 + dice(4);
    c.is_tied = dice(2);
    while (c.family == TL_LLAMA) {
        c.n_kv_heads = kv_heads[dice(6)];
        if (c.n_kv_heads % tp == 0 || tp % c.n_kv_heads == 0) break;
    }
    c.has_qkv_bias = c.family == TL_LLAMA && dice(2);
    /* Norms of heads, which tp divides; norms with 1 + weight; packed heads, beside the MLP. */
    static const tl_family others[] = {TL_QWEN3, TL_GEMMA, TL_NEMOTRON};
    if (c.family == TL_LLAMA && !c.has_qkv_bias && dice(2)) c.family = others[dice(3)];
    if (c.family == TL_GPT2 && dice(2)) c.family = TL_GPT_NEOX, c.rope_scaling.size = 2, c.is_parallel = dice(2);
    return c;
}

enum { EXPERT_FAMILIES = 6 };

/* Each family with experts that tp divides: whole matrices or packed ones, latent attention or sinks, layers without
 * experts, and shared ones. Packed experts need a width that all of 2, 3 and 4 divide. */
static tl_model_config config_experts(int which) {
    static const tl_family families[EXPERT_FAMILIES] = {TL_MIXTRAL,     TL_QWEN3_MOE,   TL_GPT_OSS,
                                                        TL_DEEPSEEK_V2, TL_DEEPSEEK_V3, TL_LLAMA4};
    tl_model_config c = {.family = families[which],
                         .n_layers = 2,
                         .n_heads = 12,
                         .n_kv_heads = 12,
                         .head_size = 6,
                         .channels = 20 + dice(4),
                         .ff = 29 + dice(5),
                         .vocabulary = 53 + dice(5),
                         .context = TIME,
                         .norm_eps = 1e-5,
                         .rope_base = 10000,
                         .init_std = 0.3,
                         .is_tied = dice(2),
                         .n_experts = 6,
                         .n_chosen = 2,
                         .expert_ff = 13 + dice(5),
                         .is_choice_normed = which == 0 || which == 2 || (which < 5 && which != 3 && dice(2))};
    if (which == 0) c.expert_ff = 0;
    if (which == 2) c.gate_limit = 7, c.expert_ff = 0, c.ff = 24, c.window = 4, c.window_every = 2;
    if (which == 2) c.has_qkv_bias = c.has_out_bias = true;
    if (which == 3 || which == 4) c.kv_rank = 8, c.rope_head = 2, c.value_head = 4, c.n_shared = 2, c.expert_from = 1;
    if (which == 4) c.q_rank = 10, c.n_groups = 3, c.n_groups_chosen = 2, c.routed_scale = 2.5;
    if (which == 5) c.expert_ff = 24, c.n_shared = 1, c.expert_every = 2, c.n_chosen = 1, c.has_head_norm = true;
    return c;
}

static tl_tensor *tokens_random(int64_t vocabulary) {
    int64_t ids[BATCH * TIME];
    for (int i = 0; i < BATCH * TIME; i++) ids[i] = dice(vocabulary);
    return tl_from_data(ids, TL_SHAPE(BATCH, TIME), TL_I64, NULL);
}

static tl_tensor *targets_random(int64_t vocabulary, bool has_ignored) {
    int64_t ids[BATCH * TIME];
    for (int i = 0; i < BATCH * TIME; i++) ids[i] = has_ignored && dice(4) == 0 ? -100 : dice(vocabulary);
    return tl_from_data(ids, TL_SHAPE(BATCH, TIME), TL_I64, NULL);
}

static tl_tensor *begins_random(void) {
    int64_t begin[BATCH * TIME];
    for (int b = 0; b < BATCH; b++)
        for (int t = 0; t < TIME; t++) {
            int at = b * TIME + t;
            begin[at] = t && dice(6) ? begin[at - 1] : t;
        }
    return tl_from_data(begin, TL_SHAPE(BATCH, TIME), TL_I64, NULL);
}

/* The difference of two tensors, in units of the largest magnitude of b. */
static double difference(tl_tensor *a, tl_tensor *b) {
    a = tl_cast(tl_contiguous(a), TL_F64);
    b = tl_cast(tl_contiguous(b), TL_F64);
    assert_int_equal(tl_numel(a), tl_numel(b));
    const double *x = tl_data(a), *y = tl_data(b);
    double most = 0, largest = 1e-30;
    for (int64_t i = 0; i < tl_numel(a); i++) {
        if (!(fabs(x[i] - y[i]) <= most)) most = fabs(x[i] - y[i]); /* also NaN */
        largest = fmax(largest, fabs(y[i]));
    }
    return most / largest;
}

/* Random numbers for every parameter, those that begin with 0 and 1 too; the part has its share of them. */
static void parameters_fill(tl_module *whole, tl_module *part) {
    int n, m;
    const tl_named_tensor *a = tl_module_list(whole, &n), *b = tl_module_list(part, &m);
    assert_int_equal(n, m);
    bool grad = tl_set_grad_mode(false);
    for (int i = 0; i < n; i++) {
        assert_string_equal(a[i].name, b[i].name);
        int64_t shape[TL_MAX_RANK];
        shard_whole_shape(b[i].shard, b[i].tensor, shape);
        for (int k = 0; k < tl_rank(a[i].tensor); k++) assert_int_equal(shape[k], tl_size(a[i].tensor, k));
        const double rounding = strstr(a[i].name, "magnitude") ? 1e-6 : 0; /* norms in f32, of columns of all ranks */
        /* as they begin */
        assert_float_equal(difference(b[i].tensor, shard_cut(b[i].shard, a[i].tensor)), 0, rounding);
        bool is_norm = strstr(a[i].name, "ln_") || strstr(a[i].name, "norm");
        assert_non_null(tl_normal_(a[i].tensor, is_norm ? 1 : 0, 0.2));
        assert_non_null(tl_copy_(b[i].tensor, shard_cut(b[i].shard, a[i].tensor)));
        assert_float_equal(difference(shard_join(b[i].shard, b[i].tensor), a[i].tensor), 0, 0);
    }
    tl_set_grad_mode(grad);
}

/* The mean over the ranks of cp. */
static tl_tensor *mean(tl_tensor *x, tl_comm *cp) {
    return tl_comm_size(cp) > 1 ? tl_scale(tl_all_reduce(x, cp), 1.0 / tl_comm_size(cp)) : x;
}

/* The parameter of the whole model that is called so. */
static tl_tensor *named(tl_module *whole, const char *name) {
    int n;
    const tl_named_tensor *list = tl_module_list(whole, &n);
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].name, name)) return list[i].tensor;
    fail_msg("the whole model has no %s", name);
    return NULL;
}

static void gradients_compare(const char *what, tl_module *whole, tl_module *part, tl_comm *cp, double bound) {
    int n;
    const tl_named_tensor *list = tl_module_list(part, &n);
    for (int i = 0; i < n; i++) {
        if (list[i].is_buffer || !tl_needs_grad(list[i].tensor)) continue;
        tl_tensor *mine = tl_grad_of(list[i].tensor), *theirs = tl_grad_of(named(whole, list[i].name));
        if (!mine || !theirs) fail_msg("%s: %s has no gradient", what, list[i].name);
        double d = difference(mean(mine, cp), shard_cut(list[i].shard, theirs));
        if (!(d <= bound)) fail_msg("%s: the gradient of %s differs by %g", what, list[i].name, d);
    }
}

/* All ranks of tp have the same bits. */
static void losses_are_equal(tl_tensor *loss, tl_comm *tp) {
    if (tl_comm_size(tp) < 2) return;
    tl_tensor *all = tl_cast(tl_all_gather(tl_detach(loss), tp), TL_F64);
    for (int r = 1; r < tl_comm_size(tp); r++)
        assert_float_equal(((const double *)tl_data(all))[r], ((const double *)tl_data(all))[0], 0);
}

/* Whatever each rank has drawn for its parts. */
static void generators_are_equal(tl_comm *tp) {
    if (tl_comm_size(tp) < 2) return;
    const int64_t index = (int64_t)tl_generator_get().index;
    tl_tensor *all = tl_all_gather(tl_from_data(&index, TL_SHAPE(1), TL_I64, NULL), tp);
    for (int r = 0; r < tl_comm_size(tp); r++) assert_int_equal(((const int64_t *)tl_data(all))[r], index);
}

static void compare(const struct layout *l, const struct check_case *c) {
    tl_scope scope = tl_scope_begin();
    tl_seed(11);
    tl_module *whole = tl_model_new(&c->config, c->dtype, NULL);
    tl_generator after = tl_generator_get();
    tl_seed(11);
    tl_module *part = tl_model_new_parallel(&c->config, c->dtype, NULL, &l->groups);
    if (!part) fail_msg("%s: %s", l->name, tl_error_message());
    assert_int_equal(tl_generator_get().index, after.index);
    if (c->adapter.rank) {
        tl_seed(12);
        assert_true(tl_model_add_adapter(whole, &c->adapter));
        tl_seed(12);
        if (!tl_model_add_adapter(part, &c->adapter)) fail_msg("%s: %s", l->name, tl_error_message());
    }
    parameters_fill(whole, part);
    assert_true(tl_model_set_checkpointing(part, c->policy, 1));
    assert_true(tl_model_set_router_losses(whole, c->balance, c->router_z));
    assert_true(tl_model_set_router_losses(part, c->balance, c->router_z));
    assert_true(tl_model_set_head_loss(whole, c->smoothing, c->z) && tl_model_set_head_loss(part, c->smoothing, c->z));
    tl_tensor *tokens = tokens_random(c->config.vocabulary), *begin = c->has_documents ? begins_random() : NULL;
    tl_tensor *targets = targets_random(c->config.vocabulary, c->has_ignored);
    tl_tensor *expected = tl_model_document_loss(whole, tokens, targets, begin);
    tl_tensor *loss = tl_model_document_loss(part, tokens, targets, begin);
    if (!loss) fail_msg("%s: %s", l->name, tl_error_message());
    losses_are_equal(loss, l->groups.tp);
    double d = difference(mean(tl_detach(loss), l->groups.cp), expected);
    char what[200];
    snprintf(what, sizeof what,
             "%s, %s, %lld heads on %lld, tied %d, policy %d, documents %d, adapter %lld, balance %g", l->name,
             tl_family_name(c->config.family), (long long)c->config.n_heads, (long long)c->config.n_kv_heads,
             c->config.is_tied, (int)c->policy, c->has_documents, (long long)c->adapter.rank, c->balance);
    if (!(d <= c->bound)) fail_msg("%s: the loss differs by %g", what, d);
    assert_true(tl_backward(expected, NULL, 0));
    assert_true(tl_backward(loss, NULL, 0));
    gradients_compare(what, whole, part, l->groups.cp, c->bound);
    tl_module_free(whole);
    tl_module_free(part);
    tl_scope_end(scope);
    expect_ok();
}

/* ---- Layouts of n processes ---- */

enum { MOST_LAYOUTS = 8 };

/* Groups of tp x cp processes; tp's ranks are neighbours. */
static struct layout layout_new(const char *name, int tp, int cp, bool has_sp, bool is_price) {
    tl_comm *all = world();
    assert_int_equal(all->size, tp * cp);
    struct layout l = {name, {.has_sequence_parallel = has_sp}};
    l.groups.tp = is_price ? tl_comm_price(all->rank % tp, tp) : tl_comm_split(all, all->rank / tp, all->rank);
    l.groups.cp = is_price ? tl_comm_price(all->rank / tp, cp) : tl_comm_split(all, all->rank % tp, all->rank);
    assert_non_null(l.groups.tp);
    assert_non_null(l.groups.cp);
    return l;
}

static int layouts_new(struct layout *layouts, bool is_price) {
    int n = world()->size, k = 0;
    layouts[k++] = layout_new("tp", n, 1, false, is_price);
    layouts[k++] = layout_new("tp with sp", n, 1, true, is_price);
    layouts[k++] = layout_new("cp", 1, n, false, is_price);
    if (n == 4) {
        layouts[k++] = layout_new("tp x cp", 2, 2, false, is_price);
        layouts[k++] = layout_new("tp x cp with sp", 2, 2, true, is_price);
    }
    return k;
}

static void layouts_free(struct layout *layouts, int n) {
    for (int i = 0; i < n; i++) {
        tl_comm_free(layouts[i].groups.tp);
        tl_comm_free(layouts[i].groups.cp);
        tl_comm_free(layouts[i].groups.pp);
    }
}

/* ---- Checks that every rank makes ---- */

static void gradients_are_those_of_the_whole_model(void) {
    static const tl_checkpoint_policy policies[] = {TL_CHECKPOINT_NONE, TL_CHECKPOINT_FULL, TL_CHECKPOINT_SELECTIVE};
    struct layout layouts[MOST_LAYOUTS];
    int n = layouts_new(layouts, false);
    dice_state = (uint64_t)world()->size;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 12; k++) {
            struct check_case c = {.config = config_random(tl_comm_size(layouts[i].groups.tp)),
                                   .dtype = TL_F64,
                                   .policy = policies[dice(3)],
                                   .has_documents = dice(3) == 0,
                                   .has_ignored = dice(3) == 0,
                                   .smoothing = dice(2) ? 0.2 : 0,
                                   .z = dice(2) ? 0.1 : 0,
                                   .bound = 1e-10};
            c.config.family = k < 2 ? (tl_family)k : c.config.family; /* both, whatever is drawn */
            if (k < 2) c.config.channels = 12 * c.config.head_size, c.config.has_qkv_bias = k == 1;
            if (k == 0) c.config.n_kv_heads = 12;
            if (k >= 12 - EXPERT_FAMILIES) c.config = config_experts(k - 12 + EXPERT_FAMILIES);
            if (c.config.n_experts && dice(2)) c.balance = 0.7, c.router_z = 0.3;
            if (k % 2) c.adapter = (tl_adapter_options){3, 5, 0, dice(2), "all-linear"};
            if (c.adapter.has_magnitude) c.bound = 1e-6; /* norms are in f32 */
            compare(&layouts[i], &c);
        }
    layouts_free(layouts, n);
}

static void other_dtypes_are_close(void) {
    struct layout layouts[MOST_LAYOUTS];
    int n = layouts_new(layouts, false);
    dice_state = 5;
    for (int i = 0; i < n; i++) {
        struct check_case c = {
            .config = config_random(tl_comm_size(layouts[i].groups.tp)), .dtype = TL_F32, .bound = 1e-4};
        compare(&layouts[i], &c);
        c.dtype = TL_BF16;
        c.bound = 0.2;
        compare(&layouts[i], &c);
    }
    layouts_free(layouts, n);
}

/* ---- Experts of several ranks, which have other tokens ---- */

static struct layout ep_new(bool is_price) {
    tl_comm *all = world();
    return (struct layout){"ep",
                           {.ep = is_price ? tl_comm_price(all->rank, all->size) : tl_comm_split(all, 0, all->rank)}};
}

/* Gradients of experts are those of all ranks' losses, and sums of the others' are. */
static void ep_gradients_compare(const char *what, tl_module *whole, tl_module *part, tl_comm *ep, double bound) {
    int n;
    const tl_named_tensor *list = tl_module_list(part, &n);
    for (int i = 0; i < n; i++) {
        if (list[i].is_buffer) continue;
        tl_tensor *mine = tl_grad_of(list[i].tensor), *theirs = tl_grad_of(named(whole, list[i].name));
        if (!mine || !theirs) fail_msg("%s: %s has no gradient", what, list[i].name);
        assert_true(!list[i].shard == !strstr(list[i].name, ".experts."));
        double d = difference(list[i].shard ? mine : tl_all_reduce(mine, ep), shard_cut(list[i].shard, theirs));
        if (!(d <= bound)) fail_msg("%s: the gradient of %s differs by %g", what, list[i].name, d);
    }
}

/* With a router of zeros, all rows go to the experts of the first rank, and the others have none. */
static void ep_compare(const struct layout *l, const struct check_case *c, bool is_uneven) {
    tl_scope scope = tl_scope_begin();
    tl_seed(11);
    tl_module *whole = tl_model_new(&c->config, c->dtype, NULL);
    tl_seed(11);
    tl_module *part = tl_model_new_parallel(&c->config, c->dtype, NULL, &l->groups);
    if (!part) fail_msg("%s: %s", l->name, tl_error_message());
    parameters_fill(whole, part);
    int n;
    for (int side = 0; is_uneven && side < 2; side++) {
        const tl_named_tensor *list = tl_module_list(side ? whole : part, &n);
        bool grad = tl_set_grad_mode(false);
        for (int i = 0; i < n; i++)
            if (strstr(list[i].name, "gate.weight") || strstr(list[i].name, "router.")) tl_fill_(list[i].tensor, 0);
        tl_set_grad_mode(grad);
    }
    assert_true(tl_model_set_checkpointing(part, c->policy, 1));
    for (int rank = 0; rank < world()->size; rank++) {
        tl_tensor *tokens = tokens_random(c->config.vocabulary), *targets = targets_random(c->config.vocabulary, false);
        tl_tensor *expected = tl_model_loss(whole, tokens, targets);
        assert_true(tl_backward(expected, NULL, 0));
        if (rank != world()->rank) continue;
        tl_tensor *loss = tl_model_loss(part, tokens, targets);
        if (!loss) fail_msg("%s, %s: %s", l->name, tl_family_name(c->config.family), tl_error_message());
        double d = difference(tl_detach(loss), expected);
        if (!(d <= c->bound)) fail_msg("%s, %s: loss by %g", l->name, tl_family_name(c->config.family), d);
        assert_true(tl_backward(loss, NULL, 0));
    }
    ep_gradients_compare(tl_family_name(c->config.family), whole, part, l->groups.ep, c->bound);
    tl_module_free(whole), tl_module_free(part);
    tl_scope_end(scope);
    expect_ok();
}

static void experts_may_be_on_other_ranks(void) {
    struct layout l = ep_new(false);
    dice_state = 9;
    for (int k = 0; k < EXPERT_FAMILIES + 2; k++) {
        struct check_case c = {.config = config_experts(k % EXPERT_FAMILIES), .dtype = TL_F64, .bound = 1e-10};
        c.config.n_experts = 12;
        c.policy = k % 2 ? TL_CHECKPOINT_FULL : TL_CHECKPOINT_NONE;
        ep_compare(&l, &c, k >= EXPERT_FAMILIES);
    }
    tl_comm_free(l.groups.ep);
}

/* Under autocast and with 8-bit products, and dropout: finite, and the same on all ranks of tp. */
static void recipes_run(void) {
    struct layout layouts[MOST_LAYOUTS];
    int n = layouts_new(layouts, false);
    for (int i = 0; i < 3 * n; i++) {
        const struct layout *l = &layouts[i % n];
        dice_state = (uint64_t)i;
        tl_scope scope = tl_scope_begin();
        tl_model_config config = config_random(tl_comm_size(l->groups.tp));
        config.dropout = i % 2 ? 0.2 : 0;
        config.head_size = 16, config.channels = config.ff = 192; /* parts of nvfp4's blocks */
        if (i < n) config.ff = 191;                               /* and parts that differ */
        tl_seed(3);
        tl_module *model = tl_model_new_parallel(&config, TL_F32, NULL, &l->groups);
        assert_non_null(model);
        const tl_adapter_options adapter = {3, 5, 0.3, false, "all-linear"};
        if (i % 3 == 1) assert_true(tl_model_add_adapter(model, &adapter));
        if (i >= n) linear_set_mode(model, i < 2 * n ? LINEAR_FP8 : LINEAR_FP4);
        tl_tensor *tokens = tokens_random(config.vocabulary), *targets = targets_random(config.vocabulary, false);
        tl_dtype before = tl_set_autocast(i < 2 * n ? TL_BF16 : TL_DTYPE_COUNT);
        tl_tensor *loss = tl_model_loss(model, tokens, targets);
        tl_set_autocast(before);
        assert_non_null(loss);
        losses_are_equal(loss, l->groups.tp);
        assert_true(isfinite((double)*(const float *)tl_data(loss)));
        assert_true(tl_backward(loss, NULL, 0));
        generators_are_equal(l->groups.tp);
        tl_module_free(model);
        tl_scope_end(scope);
    }
    layouts_free(layouts, n);
}

static void they_tally(const char *name, const tl_ledger *priced, const tl_ledger *paid) {
    tl_device *cpu = check_cpu(), *meta = tl_device_find("meta:cpu");
    char *a = tl_ledger_json(priced, meta), *b = tl_ledger_json(paid, cpu), *report = NULL;
    int differences = tl_ledger_diff(a, b, &report);
    if (differences) fprintf(stderr, "%s: %s", name, report ? report : tl_error_message());
    assert_int_equal(differences, 0);
    free(a), free(b), free(report);
}

/* What one process says that each rank will cost is what it cost. */
static tl_ledger *training_step(const struct layout *l, const tl_model_config *config, tl_device *device) {
    tl_scope scope = tl_scope_begin();
    tl_seed(1);
    tl_pool_trim(device);
    tl_ledger *ledger = tl_ledger_begin("a step");
    tl_module *model = tl_model_new_parallel(config, TL_F32, device, &l->groups);
    assert_non_null(model);
    tl_tensor *tokens = tl_zeros(TL_SHAPE(BATCH, TIME), TL_I64, device);
    tl_tensor *loss = tl_model_loss(model, tokens, tl_zeros(TL_SHAPE(BATCH, TIME), TL_I64, device));
    assert_true(tl_backward(loss, NULL, 0));
    tl_ledger_end(ledger);
    tl_module_free(model);
    tl_scope_end(scope);
    return ledger;
}

/* Per layer 8 U with U = (n - 1)/n B T C e, the embedding 2 U, the head 2 U and two numbers of each row; of experts the
 * gradients of k weights of each row. */
static int64_t sent_by_tp(const tl_model_config *c, int64_t n) {
    int64_t u = (n - 1) * BATCH * TIME * c->channels * 4 / n;
    return (8 * c->n_layers + 4) * u + (n - 1) * BATCH * TIME * 8 +
           c->n_layers * 2 * (n - 1) * BATCH * TIME * c->n_chosen * 4 / n;
}
/* Per layer keys and values of a rank's tokens to all others, and their gradients back; the number of targets. */
static int64_t sent_by_cp(const tl_model_config *c, int64_t n) {
    int64_t keys = 2 * BATCH * (TIME / n) * c->n_kv_heads * c->head_size * 4;
    return c->n_layers * 2 * (n - 1) * keys + 2 * (n - 1) * 4;
}

/* With sp, inputs of projections are gathered a second time: 10 U; and gradients of parameters that all ranks hold are
 * summed. */
static int64_t sent_by_sp(const tl_model_config *c, int64_t n, const struct layout *l) {
    int64_t u = (n - 1) * BATCH * TIME * c->channels * 4 / n, sent = sent_by_tp(c, n) + 2 * c->n_layers * u;
    tl_module *model = tl_model_new_parallel(c, TL_F32, tl_device_find("meta:cpu"), &l->groups);
    int n_tensors = 0;
    const tl_named_tensor *list = tl_module_list(model, &n_tensors);
    for (int i = 0; i < n_tensors; i++)
        if (!list[i].shard && !list[i].is_buffer) sent += 2 * (n - 1) * ((tl_numel(list[i].tensor) + n - 1) / n) * 4;
    tl_module_free(model);
    return sent;
}

/* Of what tp holds whole, sp holds a part: norms' inputs, and those of projections. */
static void sp_holds_parts_of_rows(void) {
    int n = world()->size;
    struct layout plain = layout_new("tp", n, 1, false, true), parts = layout_new("tp sp", n, 1, true, true);
    tl_device *meta = tl_device_find("meta:cpu");
    for (int family = 0; family < 2; family++) {
        dice_state = 12;
        tl_model_config config = config_random(n);
        config.family = (tl_family)family;
        config.n_kv_heads = config.n_heads, config.n_layers = 4;
        config.channels = config.n_heads * config.head_size;
        tl_ledger *whole = training_step(&plain, &config, meta), *divided = training_step(&parts, &config, meta);
        double rows = (1 - 1.0 / n) * BATCH * TIME * (double)config.channels * 4;
        double less =
            (double)tl_ledger_peak(whole, meta, TL_ACTIVATION) - (double)tl_ledger_peak(divided, meta, TL_ACTIVATION);
        if (less < 3.5 * rows * (double)config.n_layers)
            fail_msg("sp holds only %g of %g x the layers' rows less than tp", less, rows * (double)config.n_layers);
        tl_ledger_free(whole), tl_ledger_free(divided);
    }
    layouts_free(&plain, 1);
    layouts_free(&parts, 1);
}

static void receipts_are_the_price(void) {
    struct layout layouts[MOST_LAYOUTS], prices[MOST_LAYOUTS];
    int n = layouts_new(layouts, false);
    layouts_new(prices, true);
    tl_device *cpu = check_cpu(), *meta = tl_device_find("meta:cpu");
    dice_state = 7;
    for (int i = 0; i < 3 * n; i++) {
        tl_model_config config = config_random(tl_comm_size(layouts[i % n].groups.tp));
        if (i >= 2 * n) config = config_experts(i == 2 * n ? 0 : i % EXPERT_FAMILIES);
        config.dropout = i % 2 ? 0.1 : 0;
        tl_ledger *paid = training_step(&layouts[i % n], &config, cpu);
        tl_ledger *priced = training_step(&prices[i % n], &config, meta);
        they_tally(layouts[i % n].name, priced, paid);
        int64_t sent = (int64_t)tl_ledger_sent_bytes(paid).low;
        if (i % n == 0 && config.n_kv_heads >= world()->size)
            assert_int_equal(sent, sent_by_tp(&config, world()->size));
        if (i % n == 1 && i < 2 * n && config.n_kv_heads >= world()->size)
            assert_int_equal(sent, sent_by_sp(&config, world()->size, &prices[i % n]));
        if (i % n == 2) assert_int_equal(sent, sent_by_cp(&config, world()->size));
        assert_true(sent > 0);
        tl_ledger_free(paid), tl_ledger_free(priced);
    }
    layouts_free(layouts, n);
    layouts_free(prices, n);
}

/* Where every token takes all experts, the load is even, and the price of ep is exact. */
static void even_loads_are_the_price(void) {
    struct layout l = ep_new(false), price = ep_new(true);
    tl_device *cpu = check_cpu(), *meta = tl_device_find("meta:cpu");
    dice_state = 7;
    for (int k = 0; k < 4; k++) {
        tl_model_config config = config_experts(k);
        config.n_experts = config.n_chosen = 12;
        tl_ledger *paid = training_step(&l, &config, cpu), *priced = training_step(&price, &config, meta);
        they_tally("ep", priced, paid);
        tl_ledger_free(paid), tl_ledger_free(priced);
    }
    tl_comm_free(l.groups.ep), tl_comm_free(price.groups.ep);
}

/* Weights of a divided model are written as a whole one's, and read by any layout. */
static void weights_are_exchanged_with_files(void) {
    struct layout l = layout_new("tp", world()->size, 1, false, false), ep = ep_new(false), tp = l;
    for (int family = 0; family < 6; family++) {
        l = family < 4 ? tp : ep;
        tl_scope scope = tl_scope_begin();
        dice_state = 4;
        tl_model_config config = family < 2 ? config_random(world()->size) : config_experts(family % 4 + family / 4);
        if (config.n_experts) config.n_experts = 12;
        if (family < 2) {
            config.family = (tl_family)family;
            config.n_kv_heads = family ? config.n_kv_heads : 12;
            config.channels = 12 * config.head_size;
        }
        char folder[64];
        snprintf(folder, sizeof folder, "/tmp/tally_parallel_%d", getppid());
        tl_seed(1);
        tl_module *whole = tl_model_new(&config, TL_F32, NULL);
        tl_seed(1);
        tl_module *part = tl_model_new_parallel(&config, TL_F32, NULL, &l.groups);
        parameters_fill(whole, part);
        assert_true(tl_model_save(part, folder));
        assert_true(tl_comm_barrier(world()));
        tl_module *again = tl_model_new(&config, TL_F32, NULL);
        tl_module *again_part = tl_model_new_parallel(&config, TL_F32, NULL, &l.groups);
        assert_true(tl_model_load(again, folder));
        assert_true(tl_model_load(again_part, folder));
        int n;
        const tl_named_tensor *a = tl_module_list(whole, &n), *b = tl_module_list(again, &n);
        const tl_named_tensor *c = tl_module_list(again_part, &n);
        for (int i = 0; i < n; i++) {
            assert_float_equal(difference(b[i].tensor, a[i].tensor), 0, 0);
            assert_float_equal(difference(c[i].tensor, shard_cut(c[i].shard, a[i].tensor)), 0, 0);
        }
        assert_true(tl_comm_barrier(world()));
        if (world()->rank == 0) {
            char command[128];
            snprintf(command, sizeof command, "rm -r %s", folder);
            assert_int_equal(system(command), 0);
        }
        assert_true(tl_comm_barrier(world()));
        tl_module_free(whole), tl_module_free(part), tl_module_free(again), tl_module_free(again_part);
        tl_scope_end(scope);
    }
    layouts_free(&tp, 1);
    tl_comm_free(ep.groups.ep);
}

/* ---- Stages of a pipeline ---- */

enum { MOST_MICRO = 8 };
struct micro_batches {
    tl_tensor *tokens[MOST_MICRO], *targets[MOST_MICRO], *begin[MOST_MICRO];
};

static bool micro_give(void *context, int64_t k, tl_tensor **tokens, tl_tensor **targets, tl_tensor **begin) {
    const struct micro_batches *m = context;
    *tokens = m->tokens[k], *targets = m->targets[k], *begin = m->begin[k];
    return true;
}

static struct micro_batches micro_random(const tl_model_config *c, int64_t n, bool has_documents) {
    struct micro_batches m = {0};
    for (int64_t k = 0; k < n; k++) {
        m.tokens[k] = tokens_random(c->vocabulary), m.targets[k] = targets_random(c->vocabulary, false);
        m.begin[k] = has_documents ? begins_random() : NULL;
    }
    return m;
}

static void stages_fill(tl_module *whole, tl_module *part) {
    int n;
    const tl_named_tensor *a = tl_module_list(whole, &n);
    bool grad = tl_set_grad_mode(false);
    const tl_named_tensor *b = tl_module_list(part, &n);
    for (int i = 0; i < n; i++) /* as they begin */
        assert_float_equal(difference(b[i].tensor, shard_cut(b[i].shard, named(whole, b[i].name))), 0, 0);
    tl_module_list(whole, &n);
    for (int i = 0; i < n; i++) assert_non_null(tl_normal_(a[i].tensor, strstr(a[i].name, "ln_") ? 1 : 0, 0.2));
    tl_module_list(part, &n);
    for (int i = 0; i < n; i++) assert_non_null(tl_copy_(b[i].tensor, shard_cut(b[i].shard, named(whole, b[i].name))));
    tl_set_grad_mode(grad);
}

/* Groups of tp x pp processes, or cp x pp; pp's ranks are apart. */
static struct layout stages_new(const char *name, int inside, bool is_cp, bool has_sp, int n_chunks, bool is_price) {
    tl_comm *all = world();
    int stages = all->size / inside;
    struct layout l = {name, {.has_sequence_parallel = has_sp, .pp_chunks = n_chunks}};
    tl_comm *near =
        is_price ? tl_comm_price(all->rank % inside, inside) : tl_comm_split(all, all->rank / inside, all->rank);
    *(is_cp ? &l.groups.cp : &l.groups.tp) = near;
    l.groups.pp =
        is_price ? tl_comm_price(all->rank / inside, stages) : tl_comm_split(all, all->rank % inside, all->rank);
    return l;
}

static int pipelines_new(struct layout *layouts, bool is_price) {
    int k = 0;
    layouts[k++] = stages_new("pp", 1, false, false, 0, is_price);
    layouts[k++] = stages_new("pp of 2 chunks", 1, false, false, 2, is_price);
    if (world()->size < 4) return k;
    layouts[k++] = stages_new("tp x pp with sp", 2, false, true, 1, is_price);
    layouts[k++] = stages_new("cp x pp of 3 chunks", 2, true, false, 3, is_price);
    return k;
}

/* A number of micro-batches; of chunks it is mostly a multiple of the stages. */
static int64_t micro_draw(const struct layout *l, int k) {
    int64_t n = 1 + (k + dice(2)) % MOST_MICRO, stages = tl_comm_size(l->groups.pp);
    return l->groups.pp_chunks > 1 && k % 4 ? (n < stages ? stages : n / stages * stages) : n;
}

static void stages_compare(const struct layout *l, const struct check_case *c, int64_t n_micro) {
    tl_scope scope = tl_scope_begin();
    tl_seed(11);
    tl_module *whole = tl_model_new(&c->config, c->dtype, NULL);
    tl_generator after = tl_generator_get();
    tl_seed(11);
    tl_module *part = tl_model_new_parallel(&c->config, c->dtype, NULL, &l->groups);
    if (!part) fail_msg("%s: %s", l->name, tl_error_message());
    assert_int_equal(tl_generator_get().index, after.index);
    stages_fill(whole, part);
    assert_true(tl_model_set_checkpointing(part, c->policy, 1));
    struct micro_batches m = micro_random(&c->config, n_micro, c->has_documents);
    tl_tensor *total = tl_model_pipeline(part, n_micro, micro_give, &m, 0.5);
    tl_tensor *again = tl_model_pipeline(part, n_micro, micro_give, &m, 0); /* forward alone */
    if (!total || !again || !tl_model_share_tied(part)) fail_msg("%s: %s", l->name, tl_error_message());
    double expected = 0;
    for (int64_t k = 0; k < n_micro; k++) {
        tl_tensor *loss = tl_model_document_loss(whole, m.tokens[k], m.targets[k], m.begin[k]);
        expected += tl_item(loss);
        assert_true(tl_backward(loss, tl_full(TL_SCALAR, 0.5, tl_dtype_of(loss), NULL), 0));
    }
    assert_float_equal(tl_item(mean(total, l->groups.cp)) / expected, 1, 1e-5); /* the sum is in f32 */
    assert_float_equal(tl_item(again), tl_item(total), 0);
    gradients_compare(l->name, whole, part, l->groups.cp, c->bound);
    tl_module_free(whole);
    tl_module_free(part);
    tl_scope_end(scope);
    expect_ok();
}

/* Fewer micro-batches than stages, as many, and more; layers that the stages do not divide evenly. */
static void pipelines_have_the_gradients_of_the_whole_model(void) {
    static const tl_checkpoint_policy policies[] = {TL_CHECKPOINT_NONE, TL_CHECKPOINT_FULL, TL_CHECKPOINT_SELECTIVE};
    struct layout layouts[MOST_LAYOUTS];
    int n = pipelines_new(layouts, false);
    dice_state = (uint64_t)world()->size;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 8; k++) {
            struct check_case c = {.config = config_random(tl_comm_size(layouts[i].groups.tp)),
                                   .dtype = TL_F64,
                                   .policy = policies[dice(3)],
                                   .has_documents = dice(3) == 0,
                                   .bound = 1e-10};
            int n_chunks = layouts[i].groups.pp_chunks ? layouts[i].groups.pp_chunks : 1;
            c.config.n_layers = tl_comm_size(layouts[i].groups.pp) * n_chunks + dice(3);
            stages_compare(&layouts[i], &c, micro_draw(&layouts[i], k));
        }
    layouts_free(layouts, n);
}

static tl_ledger *pipeline_step(const struct layout *l, const tl_model_config *config, tl_device *device, int64_t n) {
    tl_scope scope = tl_scope_begin();
    tl_seed(1);
    tl_pool_trim(device);
    tl_ledger *ledger = tl_ledger_begin("a step");
    tl_module *model = tl_model_new_parallel(config, TL_BF16, device, &l->groups);
    assert_non_null(model);
    struct micro_batches m = {0};
    for (int64_t k = 0; k < n; k++) m.tokens[k] = m.targets[k] = tl_zeros(TL_SHAPE(BATCH, TIME), TL_I64, device);
    assert_non_null(tl_model_pipeline(model, n, micro_give, &m, 1));
    assert_true(tl_model_share_tied(model));
    tl_ledger_end(ledger);
    tl_module_free(model);
    tl_scope_end(scope);
    return ledger;
}

static void receipts_of_pipelines_are_the_price(void) {
    struct layout layouts[MOST_LAYOUTS], prices[MOST_LAYOUTS];
    int n = pipelines_new(layouts, false);
    pipelines_new(prices, true);
    tl_device *cpu = check_cpu(), *meta = tl_device_find("meta:cpu");
    dice_state = 7;
    for (int i = 0; i < 4 * n; i++) {
        tl_model_config config = config_random(tl_comm_size(layouts[i % n].groups.tp));
        config.dropout = i % 2 ? 0.1 : 0;
        config.n_layers = 8;
        int64_t n_micro = micro_draw(&layouts[i % n], i);
        tl_ledger *paid = pipeline_step(&layouts[i % n], &config, cpu, n_micro);
        tl_ledger *priced = pipeline_step(&prices[i % n], &config, meta, n_micro);
        they_tally(layouts[i % n].name, priced, paid);
        tl_ledger_free(paid), tl_ledger_free(priced);
    }
    layouts_free(layouts, n);
    layouts_free(prices, n);
}

/* ---- Muon ---- */

enum { MUON_MATRICES = 5 };

/* Rows or columns, in parts that differ by one; blocks; parts that two ranks hold; and a matrix that is whole. */
static int muon_shards(tl_comm *comm, tl_shard shards[MUON_MATRICES], int64_t shapes[MUON_MATRICES][2]) {
    const int n = tl_comm_size(comm), copies = n % 2 ? n : 2;
    const tl_shard all[MUON_MATRICES] = {{.axis = 0, .n_copies = 1, .n_blocks = 1, .size = 2 * n, .group = comm},
                                         {.axis = 1, .n_copies = 1, .n_blocks = 1, .size = 2 * n + 1, .group = comm},
                                         {.axis = 0, .n_copies = 1, .n_blocks = 3, .size = n + 1, .group = comm},
                                         {.axis = 0, .n_copies = copies, .n_blocks = 1, .size = 6, .group = comm},
                                         {0}};
    for (int i = 0; i < MUON_MATRICES; i++) {
        shards[i] = all[i];
        shapes[i][0] = 5, shapes[i][1] = 7;
        if (!all[i].group) continue;
        shapes[i][all[i].axis] = all[i].n_blocks * all[i].size;
        const int parts = n / all[i].n_copies, index = tl_comm_rank(comm) / all[i].n_copies;
        shard_range(all[i].size, parts, index, &shards[i].from, &shards[i].to);
    }
    return MUON_MATRICES;
}

/* Two steps of matrices that ranks share, in the calls that an optimizer makes, end with the bits of whole matrices. */
static void muon_of_parts_is_that_of_whole_matrices(void) {
    tl_shard shards[MUON_MATRICES];
    int64_t shapes[MUON_MATRICES][2];
    const int n = muon_shards(world(), shards, shapes);
    tl_muon_options o = tl_muon_defaults();
    o.lr = 0.1;
    tl_generator_set((tl_generator){5, 6, 0});
    for (int i = 0; i < n; i++) {
        const tl_shard *shard = shards[i].group ? &shards[i] : NULL;
        tl_tensor *p = tl_normal(2, shapes[i], 0, 1, TL_F64, NULL), *state = tl_zeros(2, shapes[i], TL_F64, NULL);
        tl_tensor *own = tl_clone(shard_cut(shard, p)), *own_state = tl_clone(shard_cut(shard, state));
        const struct update_matrix matrix = {0, own, shard};
        const struct update_matrices all = {&matrix, 1, 0, NULL};
        tl_tensor *joined = shard_gather(shard, own);
        assert_float_equal(difference(joined, p), 0, 0);
        for (int step = 0; step < 2; step++) {
            tl_tensor *grad = tl_normal(2, shapes[i], 0, 1, TL_F64, NULL);
            tl_tensor *own_grad = tl_clone(shard_cut(shard, grad));
            const struct update_tensors whole = {.parameter = p, .grad = grad, .state = {state}};
            const struct update_tensors part = {
                .parameter = own, .grad = own_grad, .state = {own_state}, .matrices = &all};
            assert_true(update_muon(&whole, 1, &o) && update_muon(&part, 1, &o));
        }
        assert_float_equal(difference(own, shard_cut(shard, p)), 0, 0);
        assert_float_equal(difference(own_state, shard_cut(shard, state)), 0, 0);
    }
}

/* The same of a vector, of which each rank has an n-th: two matrices, gaps, and padding at its end. */
static void muon_of_a_vector_is_that_of_its_matrices(void) {
    const int n = tl_comm_size(world()), rank = tl_comm_rank(world());
    const int64_t shapes[2][2] = {{6, 3}, {3, 6}}, at[2] = {0, 20}, length = 40 + (n - 40 % n) % n, each = length / n;
    tl_muon_options o = tl_muon_defaults();
    o.matches_adamw = true; /* one factor of the learning rate for both */
    tl_generator_set((tl_generator){7, 8, 0});
    tl_tensor *p = tl_zeros(TL_SHAPE(length), TL_F64, NULL), *grad = tl_zeros(TL_SHAPE(length), TL_F64, NULL);
    tl_tensor *matrices[2];
    struct update_matrix list[2];
    for (int i = 0; i < 2; i++) {
        matrices[i] = tl_normal(2, shapes[i], 0, 1, TL_F64, NULL);
        tl_tensor *g = tl_normal(2, shapes[i], 0, 1, TL_F64, NULL), *state = tl_zeros(2, shapes[i], TL_F64, NULL);
        list[i] = (struct update_matrix){at[i], matrices[i], NULL};
        assert_non_null(tl_copy_(tl_slice(p, 0, at[i], at[i] + 18, 1), tl_reshape(matrices[i], TL_SHAPE(18))));
        assert_non_null(tl_copy_(tl_slice(grad, 0, at[i], at[i] + 18, 1), tl_reshape(g, TL_SHAPE(18))));
        const struct update_tensors whole = {.parameter = matrices[i], .grad = g, .state = {state}};
        assert_true(update_muon(&whole, 1, &o));
    }
    const struct update_matrices all = {list, 2, rank * each, world()};
    tl_tensor *own = tl_clone(tl_slice(p, 0, rank * each, (rank + 1) * each, 1));
    const struct update_tensors part = {.parameter = own,
                                        .grad = tl_slice(grad, 0, rank * each, (rank + 1) * each, 1),
                                        .state = {tl_zeros(TL_SHAPE(each), TL_F64, NULL)},
                                        .matrices = &all};
    assert_true(update_muon(&part, 1, &o));
    tl_tensor *joined = tl_all_gather(own, world());
    for (int i = 0; i < 2; i++) {
        tl_tensor *mine = tl_reshape(tl_slice(joined, 0, at[i], at[i] + 18, 1), 2, shapes[i]);
        assert_float_equal(difference(mine, matrices[i]), 0, 0);
    }
}

static int rank_run(void) {
    static void (*const checks[])(void) = {gradients_are_those_of_the_whole_model,
                                           experts_may_be_on_other_ranks,
                                           even_loads_are_the_price,
                                           other_dtypes_are_close,
                                           recipes_run,
                                           receipts_are_the_price,
                                           sp_holds_parts_of_rows,
                                           weights_are_exchanged_with_files,
                                           pipelines_have_the_gradients_of_the_whole_model,
                                           receipts_of_pipelines_are_the_price,
                                           muon_of_parts_is_that_of_whole_matrices,
                                           muon_of_a_vector_is_that_of_its_matrices};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        tl_scope scope = tl_scope_begin();
        checks[i]();
        tl_scope_end(scope);
    }
    expect_ok();
    return 0;
}

/* ---- Alone ---- */

static const char *program;

static void several_processes(void **state) {
    (void)state;
    if (!ranks_can_start(OPEN_MPI, program)) skip();
    for (int n = 2; n <= 4; n++) assert_int_equal(ranks_run(OPEN_MPI, n, "%s", program), 0);
}

/* ---- One process ---- */

/* A group of one divides nothing: the bits are those of a model that was made without groups. */
static void a_group_of_one_changes_nothing(void **state) {
    (void)state;
    const tl_parallel alone = {.tp = world(), .cp = world(), .has_sequence_parallel = true};
    tl_scope scope = tl_scope_begin();
    dice_state = 3;
    tl_model_config config = config_random(1);
    struct check_case c = {.config = config, .dtype = TL_F32, .bound = 0};
    const struct layout l = {"one", alone};
    compare(&l, &c);
    tl_scope_end(scope);
}

static void what_cannot_be_divided_is_refused(void **state) {
    (void)state;
    tl_device *meta = check_meta();
    tl_comm *five = tl_comm_price(0, 5), *two = tl_comm_price(1, 2), *four = tl_comm_price(1, 4);
    tl_scope scope = tl_scope_begin();
    dice_state = 3;
    tl_model_config c = config_random(1);
    c.family = TL_LLAMA, c.n_kv_heads = 3;
    expect_refused(tl_model_new_parallel(&c, TL_F32, meta, &(tl_parallel){.tp = five}),
                   "tp: 12 heads cannot be divided among 5 processes (need tp that divides the heads)");
    expect_refused(tl_model_new_parallel(&c, TL_F32, meta, &(tl_parallel){.tp = four}),
                   "tp: 3 heads of keys and values cannot be divided among 4 processes");
    c.n_kv_heads = 12, c.ff = 3;
    expect_refused(tl_model_new_parallel(&c, TL_F32, meta, &(tl_parallel){.tp = four}),
                   "tp: an MLP of 3 cannot be divided among 4 processes");
    c.ff = 30, c.vocabulary = 3;
    expect_refused(tl_model_new_parallel(&c, TL_F32, meta, &(tl_parallel){.tp = four}),
                   "tp: a vocabulary of 3 cannot be divided among 4 processes");
    c.vocabulary = 50;
    tl_model_config deep = {.family = TL_DEEP_LINEAR, .n_layers = 2, .channels = 8};
    expect_refused(tl_model_new_parallel(&deep, TL_F32, meta, &(tl_parallel){.tp = two}), "deep-linear");
    tl_module *model = tl_model_new_parallel(&c, TL_F32, meta, &(tl_parallel){.cp = two});
    tl_tensor *odd = tl_zeros(TL_SHAPE(1, 6), TL_I64, meta), *even = tl_zeros(TL_SHAPE(1, 8), TL_I64, meta);
    expect_refused(tl_model_loss(model, odd, odd), "cp: rows of 6 tokens cannot be divided among 2 processes");
    expect_refused(tl_model_loss(model, even, odd), "targets have another shape than the tokens");
    expect_refused(tl_model_logits(model, even), "logits of a model that 2 processes share cannot be computed yet");
    expect_refused(tl_model_next(model, even, NULL), "logits of a model that 2 processes share");
    expect_refused(tl_cache_new(model, 1, 8), "a cache of a model that 2 processes share");
    tl_module_free(model);
    model = tl_model_new_parallel(&c, TL_F32, meta, &(tl_parallel){.tp = two, .has_sequence_parallel = true});
    tl_tensor *three = tl_zeros(TL_SHAPE(1, 3), TL_I64, meta);
    expect_refused(tl_model_loss(model, three, three), "sp: 3 tokens cannot be divided among 2 processes");
    tl_module_free(model);
    c.n_layers = 4;
    expect_refused(tl_model_new_parallel(&c, TL_F32, meta, &(tl_parallel){.pp = five}),
                   "pp: 4 layers cannot be divided among 5 stages (need at least one layer for each)");
    model = tl_model_new_parallel(&c, TL_F32, meta, &(tl_parallel){.pp = two});
    expect_refused(tl_model_loss(model, even, even), "a stage of a pipeline has no loss of its own");
    expect_refused(tl_model_logits(model, even), "logits of a model that 2 processes share");
    expect_refused(tl_model_pipeline(model, 0, micro_give, NULL, 1), "pipeline: 0 micro-batches (need at least 1)");
    expect_refused(tl_model_pipeline(NULL, 1, micro_give, NULL, 1), "pipeline: got NULL instead of a model");
    tl_module_free(model);
    tl_scope_end(scope);
    tl_comm_free(two), tl_comm_free(four), tl_comm_free(five);
}

int main(int argc, char **argv) {
    (void)argc;
    if (getenv("OMPI_COMM_WORLD_SIZE")) return rank_run();
    program = argv[0];
    const struct CMUnitTest tests[] = {TEST(a_group_of_one_changes_nothing), TEST(what_cannot_be_divided_is_refused),
                                       TEST(several_processes)};
    return cmocka_run_group_tests_name("parallel", tests, NULL, NULL);
}

/* Prices of every rank of random layouts, made by one process without MPI: ranks of a class cost the same, all bytes
 * that are sent are received, and a plan's figures are these prices. */
#include "support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "plan/layout.h"
#include "plan/plan.h"
#include "step/mesh.h"

static uint64_t drawn = 88172645463325252u;
static int64_t draw(int64_t n) { /* 0 .. n - 1 */
    drawn ^= drawn << 13, drawn ^= drawn >> 7, drawn ^= drawn << 17;
    return (int64_t)(drawn % (uint64_t)n);
}

static void set(struct settings *s, const char *name, const char *value) {
    if (!settings_set(s, name, value)) fail_msg("%s = %s: %s", name, value, tl_error_message());
}

static const char *one_of(const char *const *names, int64_t n) { return names[draw(n)]; }

/* A small model on up to 48 ranks. */
static void random_run(struct settings *s) {
    static const char *const models[] = {"tiny", "tiny-gpt2"}, *const recipes[] = {"fp32", "bf16", "bf16-lean", "amp"},
                             *const optimizers[] = {"adamw", "lion", "rmsprop", "muon"},
                             *const policies[] = {"none", "full", "selective"};
    static const char *const shards[] = {"none", "zero1", "zero2", "zero3"};
    *s = settings_default();
    set(s, "model", one_of(models, 2));
    set(s, "recipe", one_of(recipes, 4));
    set(s, "optimizer", one_of(optimizers, 4));
    set(s, "checkpointing", one_of(policies, 3));
    set(s, "shard", one_of(shards, 4));
    set(s, "sample_tokens", "0");
    s->layers = 1 + draw(5);
    s->vocabulary = 256 + draw(60);
    s->tp = draw(3) ? 1 : 2;
    bool is_lean = !strcmp(settings_choice(s, "recipe"), "bf16-lean"); /* needs equal parts */
    if (s->tp > 1 && is_lean) s->vocabulary &= ~(int64_t)1;
    s->cp = draw(4) ? 1 : 2;
    s->sp = s->tp > 1 && draw(2);
    s->pp = draw(3) || is_lean ? 1 : 1 + draw(s->layers < 4 ? s->layers : 4);
    s->dp = 1 + draw(s->pp > 1 ? 3 : 6);
    s->batch = s->dp * (1 + draw(3));
    s->seq = 8 * (1 + draw(4));
    s->accum = 1 + draw(3);
    if (s->pp > 1 && draw(2)) {
        s->pp_chunks = 2, s->accum = s->pp * (1 + draw(2));
        if (s->layers < 2 * s->pp) s->layers = 2 * s->pp;
    }
    int64_t n = s->dp * s->cp, group = 2 + draw(2); /* of the ranks that divide what is sharded */
    if (s->shard && n % group == 0 && group % s->cp == 0 && draw(2)) s->shard_group = group;
    s->steps = 3;
    s->warmup = 1;
    s->eval_batches = 1;
    bool has_8bit = !strcmp(settings_choice(s, "optimizer"), "adamw") && s->tp == 1 && !s->shard; /* of whole tensors */
    if (has_8bit && draw(2)) set(s, "moments", "8bit");
}

static struct layout layout_of(const struct settings *s) {
    struct layout l = {0};
    int64_t n = 0;
    if (!layout_take(&l, s, &n)) fail_msg("%s", tl_error_message());
    return l;
}

/* What a rank's steps cost. */
struct rank_bill {
    count flops, sent, received, moved;
    uint64_t held, reserved;
};

/* A collective writes what it receives, and its own part. */
static struct rank_bill rank_bill_of(const struct settings *s, tl_device *device, int rank, struct price *p) {
    struct rank_bill b = {0};
    if (!price_sketch_rank(p, s, device, 0, rank)) fail_msg("rank %d: %s", rank, tl_error_message());
    const tl_ledger *ledger = p->kind[KIND_STEP].ledger;
    for (size_t i = 0; i < ledger->n_rows; i++) {
        const struct ledger_row *row = &ledger->rows[i];
        b.flops += row->flops;
        b.sent += row->sent_bytes;
        b.moved += row->bytes_read + row->bytes_written;
        bool is_gather = !strcmp(row->key.op, "all_gather"), is_exchange = !strcmp(row->key.op, "all_to_all");
        if (is_gather) b.received += row->bytes_written - row->bytes_read;
        if (is_exchange) b.received += row->sent_bytes;
        bool is_pair = !strcmp(row->key.op, "recv") || !strcmp(row->key.op, "send_recv");
        bool is_broadcast = !strcmp(row->key.op, "broadcast"), is_send = !strcmp(row->key.op, "send");
        if (is_pair || (is_broadcast && !row->sent_bytes)) b.received += row->bytes_written;
        if (!is_gather && !is_exchange && !is_pair && !is_broadcast && !is_send && row->sent_bytes)
            fail_msg("%s sends", row->key.op);
    }
    b.held = p->held_bytes;
    b.reserved = p->reserved_bytes;
    price_free(p);
    return b;
}

static bool is_same_bill(const struct rank_bill *a, const struct rank_bill *b) {
    return a->flops == b->flops && a->sent == b->sent && a->moved == b->moved && a->held == b->held &&
           a->reserved == b->reserved;
}

/* The rank that costs the same as this one: the first or the last of each axis, and of dp the first. Stages between
 * stand for themselves. */
static int class_of(const struct layout *l, int rank, bool *is_between) {
    const int64_t sizes[] = {l->tp, l->cp, l->dp, l->pp};
    int64_t stride = 1, to = 0;
    for (int axis = 0; axis < 4; axis++) {
        int64_t at = rank / stride % sizes[axis];
        *is_between = axis == 3 && at > 0 && at < sizes[axis] - 1;
        to += (at == 0 || axis == 2 ? 0 : *is_between ? at : sizes[axis] - 1) * stride;
        stride *= sizes[axis];
    }
    return (int)to;
}

/* Equal parts along tp: the first rank holds and sends as much as the others, and does no less. */
static bool is_first_enough(const struct rank_bill *first, const struct rank_bill *other) {
    return first->held == other->held && first->reserved == other->reserved && first->sent == other->sent &&
           first->flops >= other->flops && first->moved >= other->moved;
}

static void ranks_of_a_class_cost_the_same(void **state) {
    (void)state;
    struct price *p = memory_new(sizeof *p);
    struct settings *s = memory_new(sizeof *s);
    struct plan_target target;
    int n_layouts = 0, n_ranks = 0, n_many = 0;
    assert_true(p && s && plan_target_find(&target, "H100"));
    for (int i = 0; n_layouts < 120 && i < 5000; i++) {
        random_run(s);
        if (!mesh_is_possible(s)) continue;
        struct layout l = layout_of(s);
        int size = (int)(l.tp * l.cp * l.dp * l.pp), ranks[LAYOUT_CLASSES];
        bool is_even = s->vocabulary % l.tp == 0;
        int n = layout_classes(&l, is_even, ranks);
        struct rank_bill *bills = memory_new((size_t)size * sizeof *bills);
        count sent = 0, received = 0;
        for (int rank = 0; rank < size; rank++) {
            bills[rank] = rank_bill_of(s, target.device, rank, p);
            sent += bills[rank].sent;
            received += bills[rank].received;
        }
        for (int rank = 0; rank < size; rank++) {
            bool is_listed = false, is_between;
            int stands = class_of(&l, rank, &is_between), first = stands - stands % (int)l.tp;
            for (int k = 0; k < n; k++) is_listed = is_listed || ranks[k] == (is_even ? first : stands);
            if (is_even && !is_first_enough(&bills[first], &bills[stands]))
                fail_msg("layout %d: rank %d of %d does not stand for rank %d", i, first, size, stands);
            expect_true(is_listed != is_between);
            const int stage = size / (int)l.pp, second = s->shard >= 2 ? stage : 0; /* zero2: it may hold the most */
            if (is_between && bills[rank].held > bills[rank % stage].held &&
                bills[rank].held > bills[rank % stage + second].held)
                fail_msg("layout %d: rank %d of %d holds more than the first stage", i, rank, size);
            if (!is_same_bill(&bills[rank], &bills[stands]))
                fail_msg("layout %d: rank %d of %d costs something else than rank %d", i, rank, size, stands);
        }
        if (sent != received) fail_msg("layout %d: %d ranks send other bytes than they receive", i, size);
        expect_true((sent > 0) == (size > 1));
        memory_free(bills);
        n_layouts++;
        n_ranks += size;
        n_many += size > 1;
    }
    expect_true(n_layouts >= 120 && n_many >= 90);
    print_message("    %d layouts, %d ranks\n", n_layouts, n_ranks);
    memory_free(s);
    memory_free(p);
}

/* Seconds of a stage's work, of all micro-batches, if the chip reaches its roofline. */
static double stage_seconds(const struct settings *s, const struct plan_target *target, int rank, struct price *p) {
    double seconds = 0;
    if (!price_sketch_rank(p, s, target->device, 0, rank)) fail_msg("%s", tl_error_message());
    const tl_ledger *ledger = p->kind[KIND_STEP].ledger;
    for (size_t i = 0; i < ledger->n_rows; i++)
        if (ledger->rows[i].key.phase != TL_UPDATE) seconds += predict_roof(&target->speed, &ledger->rows[i]);
    price_free(p);
    return seconds;
}

/* Stages of 4 with 8 micro-batches are idle for 3 / 11 of the time if they are equal. With a large vocabulary the last
 * one has nearly all of the work, and the others are idle for longer, but nobody waits for them. */
static void stages_wait_for_the_slowest(void **state) {
    (void)state;
    struct plan *plan = memory_new(sizeof *plan);
    struct price *p = memory_new(sizeof *p);
    struct plan_target target;
    static const char *const vocabularies[] = {"256", "50257"};
    assert_true(plan && p && plan_target_find(&target, "H100"));
    for (int i = 0; i < 2; i++) {
        struct settings s = settings_default();
        struct plan_options options = {.n_devices = 4};
        double w[4], sum = 0, most = 0;
        set(&s, "model", "gpt2-124m");
        set(&s, "vocabulary", vocabularies[i]);
        set(&s, "layers", "4");
        s.seq = 128, s.batch = 4, s.accum = 8, s.pp = 4, s.steps = 3, s.warmup = 1, s.val_share = 0;
        s.sample_tokens = 0;
        if (!plan_make(plan, &s, &target, &options, false)) fail_msg("%s", tl_error_message());
        expect_true(plan->layout.is_exact);
        for (int rank = 0; rank < 4; rank++) {
            s.dp = 1;
            w[rank] = stage_seconds(&s, &target, rank, p);
            sum += w[rank];
            most = fmax(most, w[rank]);
        }
        double expected = most + (sum - most) / 8, least = fmax(w[3] + (w[0] + w[1] + w[2]) / 8, w[0]);
        expect_near(plan->layout.even_bubble, 3.0 / 11, 1e-12);
        expect_near(plan->layout.bubble, 1 - sum / (4 * expected), 1e-9);
        if (i == 0) expect_near(plan->layout.bubble, 3.0 / 11, 0.03);
        else expect_true(plan->layout.bubble > 0.5 && w[3] > 3 * w[0]);
        expect_true(plan->layout.roofline_s >= least && plan->layout.roofline_s < 1.2 * expected);
        expect_true(plan->layout.bound_s <= plan->layout.expected_s);
        plan_free(plan);
    }
    memory_free(p);
    memory_free(plan);
}

/* A plan's bytes are the largest of its ranks' prices, and formulas are near them. */
static void plans_are_prices_where_a_trainer_runs(void **state) {
    (void)state;
    struct plan *plan = memory_new(sizeof *plan);
    struct price *p = memory_new(sizeof *p);
    struct settings s = settings_default();
    struct plan_target target;
    static const char *const shards[] = {"none", "zero1", "zero2"};
    assert_true(plan && p && plan_target_find(&target, "H100"));
    set(&s, "model", "gpt2-124m");
    set(&s, "seq", "128");
    set(&s, "sample_tokens", "0");
    s.batch = 16, s.accum = 2, s.dp = 4, s.steps = 3, s.warmup = 1, s.val_share = 0;
    for (int i = 0; i < 6; i++) {
        struct plan_options options = {.n_devices = 4};
        struct layout_estimate formula;
        set(&s, "shard", shards[i % 3]);
        set(&s, "optimizer", i < 3 ? "adamw" : "muon");
        if (!plan_make(plan, &s, &target, &options, false)) fail_msg("%s", tl_error_message());
        struct rank_bill first = rank_bill_of(&s, target.device, 0, p);
        expect_true(plan->layout.is_exact);
        expect_equal(plan->layout.total_bytes, first.reserved);
        expect_near(plan->layout.sum.inside_bytes + plan->layout.sum.between_bytes, (double)first.sent, 1);
        assert_true(
            layout_estimate(&formula, &plan->price, &target, &plan->options.network, &plan->options.layout, NULL));
        expect_true(!formula.is_exact);
        /* padding of parts, and what clipping sends */
        expect_near(formula.sum.inside_bytes, (double)first.sent, 1e-3 * (double)first.sent);
        expect_near((double)formula.total_bytes, (double)first.reserved, 0.15 * (double)first.reserved);
        plan_free(plan);
    }
    memory_free(p);
    memory_free(plan);
}

/* Groups inside the ranks of dp: a rank holds the part of its group, sends less between nodes, and what it sends is
 * what the formulas say. */
static void groups_of_ranks_are_priced(void **state) {
    (void)state;
    struct plan *plan = memory_new(sizeof *plan);
    struct price *p = memory_new(sizeof *p);
    struct plan_target target;
    assert_true(plan && p && plan_target_find(&target, "H100"));
    for (int mode = SHARD_ZERO1; mode < SHARD_COUNT; mode++) {
        double between[2];
        uint64_t held[2];
        for (int is_grouped = 0; is_grouped < 2; is_grouped++) {
            struct settings s = settings_default();
            struct plan_options options = {.n_devices = 16};
            struct layout_estimate formula;
            set(&s, "model", "gpt2-124m"), set(&s, "seq", "128"), set(&s, "sample_tokens", "0");
            s.batch = 16, s.dp = 16, s.steps = 3, s.warmup = 1, s.val_share = 0, s.shard = mode;
            s.shard_group = is_grouped ? 8 : 0; /* a node of H100 */
            if (!plan_make(plan, &s, &target, &options, false)) fail_msg("%s", tl_error_message());
            struct rank_bill first = rank_bill_of(&s, target.device, 0, p);
            expect_true(plan->layout.is_exact);
            expect_equal(plan->layout.total_bytes, first.reserved);
            expect_near(plan->layout.sum.inside_bytes + plan->layout.sum.between_bytes, (double)first.sent, 1);
            if (!layout_estimate(&formula, &plan->price, &target, &plan->options.network, &plan->options.layout, NULL))
                fail_msg("%s", tl_error_message());
            double near = mode == SHARD_ZERO3 ? 0.15 : 1e-3; /* zero3 gathers what is outside of layers once */
            expect_near(formula.sum.inside_bytes + formula.sum.between_bytes, (double)first.sent,
                        near * (double)first.sent);
            between[is_grouped] = plan->layout.sum.between_bytes;
            held[is_grouped] = plan->layout.total_bytes;
            plan_free(plan);
        }
        expect_true(between[1] < 0.5 * between[0] && held[1] > held[0]);
    }
    memory_free(p);
    memory_free(plan);
}

/* Not even while it is made: a model that fits no device can be trained by many. */
static void no_rank_of_zero3_has_the_whole_model(void **state) {
    (void)state;
    struct price *p = memory_new(sizeof *p);
    struct settings s = settings_default();
    struct plan_target target;
    assert_true(p && plan_target_find(&target, "H100"));
    set(&s, "model", "llama-3-8b"), set(&s, "recipe", "bf16"), set(&s, "shard", "zero3");
    set(&s, "checkpointing", "full"), set(&s, "seq", "1024"), set(&s, "sample_tokens", "0");
    s.batch = s.dp = 64, s.steps = 3, s.warmup = 1, s.val_share = 0;
    struct rank_bill first = rank_bill_of(&s, target.device, 0, p);
    expect_true(first.reserved < (uint64_t)10 << 30); /* all weights take 15 GiB */
    memory_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(ranks_of_a_class_cost_the_same), TEST(stages_wait_for_the_slowest),
                                       TEST(plans_are_prices_where_a_trainer_runs), TEST(groups_of_ranks_are_priced),
                                       TEST(no_rank_of_zero3_has_the_whole_model)};
    return cmocka_run_group_tests_name("layouts", tests, NULL, NULL);
}

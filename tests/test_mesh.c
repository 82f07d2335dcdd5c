/* test_mesh.c: how the processes of a run divide its work. Several processes are in test_train_ranks.c. */
#include "support/check.h"
#include "support/runs.h"

#include "step/mesh.h"
#include "step/price.h"

static struct settings with(const char *dp, const char *batch) {
    struct settings s = settings_default();
    set(&s, "dp", dp);
    set(&s, "batch", batch);
    return s;
}

static void every_rank_can_be_priced(void **state) {
    (void)state;
    struct settings s = with("6", "12");
    for (int rank = 0; rank < 6; rank++) {
        struct mesh m;
        expect_true(mesh_price(&m, &s, rank));
        assert_int_equal(m.rank, rank);
        assert_int_equal(m.size, 6);
        assert_int_equal(m.axis[MESH_DP].rank, rank);
        assert_int_equal(m.axis[MESH_DP].size, 6);
        assert_int_equal(m.axis[MESH_TP].size * m.axis[MESH_CP].size * m.axis[MESH_PP].size, 1);
        assert_int_equal(m.reduced.rank, rank);
        assert_int_equal(tl_comm_size(m.reduced.comm), 6);
        assert_int_equal(mesh_batch(&m, &s), 2);
        mesh_close(&m);
    }
    struct mesh m;
    expect_refused(mesh_price(&m, &s, 6), "comm_price: rank 6 of 6 (need 0 to size - 1)");
}

static void a_process_alone_is_a_mesh_of_one(void **state) {
    (void)state;
    struct settings s = settings_default();
    struct mesh m;
    expect_true(mesh_open(&m, &s));
    assert_int_equal(m.size, 1);
    assert_false(m.is_price);
    assert_ptr_equal(m.world, tl_comm_world());
    assert_int_equal(m.axis[MESH_DP].size, 1);
    mesh_close(&m);
    mesh_close(&m);
}

static void sizes_must_multiply_to_the_processes(void **state) {
    (void)state;
    int size[MESH_AXES];
    struct settings s = with("0", "12");
    expect_true(mesh_sizes(&s, 4, size));
    assert_int_equal(size[MESH_DP], 4);
    expect_true(mesh_sizes(&s, 0, size));
    assert_int_equal(size[MESH_DP], 1);
    s = with("3", "12");
    expect_refused(mesh_sizes(&s, 4, size),
                   "dp: --dp 3 needs as many processes, and 4 were started (mpirun -n 3 tally train ..., or --dp 4)");
    expect_refused(mesh_sizes(&s, 1, size), "dp: --dp 3 needs as many processes, and 1 was started");
    s = with("0", "6");
    expect_refused(mesh_sizes(&s, 4, size), "batch: 6 sequences cannot be divided among 4 ranks (need a multiple of 4, "
                                            "such as --batch 8)");
    s = with("1000000", "1000000");
    set(&s, "tp", "1");
    expect_true(mesh_sizes(&s, 0, size));
    set(&s, "sp", "true");
    expect_refused(mesh_sizes(&s, 0, size), "sp: divides what is between the parts of tp (need --tp 2 or more");
    set(&s, "tp", "2");
    set(&s, "dp", "2");
    expect_true(mesh_sizes(&s, 4, size));
    set(&s, "shard", "zero1");
    expect_true(mesh_sizes(&s, 4, size));
    set(&s, "cp", "3");
    expect_refused(mesh_sizes(&s, 12, size), "tokens cannot be divided among 3 ranks, two parts for each (need --seq");
    set(&s, "cp", "1");
    set(&s, "pp", "2");
    expect_true(mesh_sizes(&s, 8, size));
    assert_int_equal(size[MESH_PP], 2);
    expect_refused(mesh_sizes(&s, 6, size), "dp: --dp 2 --tp 2 --cp 1 --pp 2 need 8 processes, and 6 were started");
}

/* 2 x 6 ranks of tp and dp: groups of 3 of those that hold the same. */
static void ranks_have_groups_for_sharding(void **state) {
    (void)state;
    struct settings s = with("6", "12");
    struct mesh m;
    set(&s, "tp", "2"), set(&s, "shard", "zero2"), set(&s, "shard_group", "3");
    for (int rank = 0; rank < 12; rank++) {
        expect_true(mesh_price(&m, &s, rank));
        assert_int_equal(m.reduced.rank, rank / 2);
        assert_int_equal(m.sharded.size, 3);
        assert_int_equal(m.sharded.rank, rank / 2 % 3);
        assert_int_equal(m.across.size, 2);
        assert_int_equal(m.across.rank, rank / 2 / 3);
        mesh_close(&m);
    }
    set(&s, "shard_group", "6"); /* all */
    expect_true(mesh_price(&m, &s, 11));
    assert_ptr_equal(m.sharded.comm, m.reduced.comm);
    assert_int_equal(m.across.size, 1);
    mesh_close(&m);
    set(&s, "shard_group", "4");
    expect_refused(mesh_price(&m, &s, 0),
                   "shard_group: 6 ranks of dp and cp cannot be divided into groups of 4 (need a "
                   "--shard-group that divides them, of 2 or more, or none)");
    set(&s, "shard_group", "3"), set(&s, "shard", "none");
    expect_refused(mesh_price(&m, &s, 0), "shard_group: --shard none divides nothing (need --shard zero1");
}

/* rank = cp + 2 dp: dp's ranks 0 and 1, 2 and 3 divide the experts; those of other pairs and of cp have the same. */
static void ranks_have_groups_for_experts(void **state) {
    (void)state;
    struct settings s = with("4", "12");
    struct mesh m;
    set(&s, "cp", "2"), set(&s, "ep", "2");
    for (int rank = 0; rank < 8; rank++) {
        expect_true(mesh_price(&m, &s, rank));
        const int cp = rank % 2, dp = rank / 2;
        assert_int_equal(m.ep.size, 2);
        assert_int_equal(m.ep.rank, dp % 2);
        assert_int_equal(m.experts.size, 4);
        assert_int_equal(m.experts.rank, cp + 2 * (dp / 2));
        mesh_close(&m);
    }
    set(&s, "ep", "3");
    expect_refused(mesh_price(&m, &s, 0), "ep: 4 ranks of dp cannot be divided into groups of 3");
    set(&s, "ep", "2"), set(&s, "tp", "2");
    expect_refused(mesh_price(&m, &s, 0), "ep: --tp 2 divides each expert, and --ep 2 their number");
    set(&s, "tp", "1"), set(&s, "shard", "zero1"), set(&s, "shard_group", "2");
    expect_refused(mesh_price(&m, &s, 0), "ep: --shard-group divides the ranks of dp in another way");
    set(&s, "ep", "1"), set(&s, "shard_group", "0"), set(&s, "ep_load", "2");
    expect_refused(mesh_price(&m, &s, 0), "ep_load: has no use without --ep 2 or more");
    s = with("2", "12");
    set(&s, "model", "tiny-moe"), set(&s, "ep", "2"), set(&s, "moments", "8bit");
    expect_refused(price_text(&s), "ep: 8-bit moments are blocks of whole tensors, of which a rank of --ep 2");
}

static void adafactor_has_whole_tensors(void **state) {
    (void)state;
    struct settings s = with("2", "12"), other;
    set(&s, "optimizer", "adafactor");
    other = s, set(&other, "shard", "zero1");
    expect_refused(price_text(&other), "shard: adafactor has means of whole rows, columns and tensors, of which a rank "
                                       "of --shard zero1 has a part (need --shard none, or --optimizer adamw)");
    other = s, set(&other, "tp", "2");
    expect_refused(price_text(&other), "tp: adafactor has means of whole rows, columns and tensors, which tp divides");
    other = s, set(&other, "model", "tiny-moe"), set(&other, "ep", "2");
    expect_refused(price_text(&other), "ep: adafactor has means of whole rows, columns and tensors, of which a rank");
}

/* What it leaves to AdamW may have blocks of whole tensors. */
static void muon_is_divided_but_for_8_bit_moments(void **state) {
    (void)state;
    struct settings s = with("2", "12");
    set(&s, "optimizer", "muon"), set(&s, "tp", "2"), set(&s, "shard", "zero1");
    char *text = price_text(&s);
    expect_true(text != NULL);
    free(text);
    set(&s, "moments", "8bit");
    expect_refused(price_text(&s), "shard: 8-bit moments are blocks of whole tensors, of which a rank of --shard zero1 "
                                   "has a part (need --shard none, or --moments bf16)");
    set(&s, "shard", "none");
    expect_refused(price_text(&s), "tp: 8-bit moments are blocks of whole tensors, which tp divides");
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(every_rank_can_be_priced),
                                       TEST(a_process_alone_is_a_mesh_of_one),
                                       TEST(sizes_must_multiply_to_the_processes),
                                       TEST(ranks_have_groups_for_sharding),
                                       TEST(ranks_have_groups_for_experts),
                                       TEST(adafactor_has_whole_tensors),
                                       TEST(muon_is_divided_but_for_8_bit_moments)};
    return cmocka_run_group_tests_name("mesh", tests, NULL, NULL);
}

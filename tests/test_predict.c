/* Profiles of machines as files, and times from counts: exact at measured sizes, interpolated between them, never
 * below the bound, and only the bound without a profile. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/process.h"
#include "plan/calibrate.h"
#include "plan/predict.h"
#include "plan/trial.h"
#include "tensor/device.h"

static char path[] = "/tmp/tally_machine_XXXXXX";

/* 100 GFLOP/s of f32, 10 GB/s of memory (40 from caches), an add and a product measured at some sizes. */
static struct machine_sample samples[] = {
    {"add", TL_F32, false, 1e3, 12e3, 6e3, 2e-6, 0, 0},
    {"add", TL_F32, false, 1e6, 12e6, 6e6, 2.4e-3, 0, 0},
    {"matmul", TL_F32, false, 2e9, 12e6, 6e6, 25e-3, 0, 0},
    {"matmul", TL_F32, true, 2e9, 12e6, 6e6, 40e-3, 0, 0},
    {"matmul", TL_F32, false, 16e9, 48e6, 24e6, 200e-3, 0, 0},
    {"matmul", TL_BF16, false, 2e9, 6e6, 3e6, 20e-3, 0, 0},
    {"attention", TL_F32, false, 1e8, 1e6, 25e4, 1e-3, 64, 0},
    {"attention", TL_F32, false, 1e8, 1e6, 25e4, 4e-3, 16, 0},
    {"attention", TL_F32, false, 1e8, 1e6, 25e4, 6e-3, 20, 0},
};
static struct machine_product products[] = {{TL_F32, 64, 64, 64, 50e9}, {TL_F32, 512, 512, 512, 90e9}};
static struct machine_stream streams[] = {{32768, 20e9, 20e9, 40e9, 30e9}, {1 << 30, 8e9, 7e9, 10e9, 9e9}};

static const struct predict_shape nothing_known;

static struct machine machine(void) {
    struct machine p = {.device = "cpu",
                        .machine = "a machine",
                        .isa = "",
                        .date = "2026-01-01",
                        .threads = 2,
                        .call_s = 1e-6,
                        .rest_share = 0.01,
                        .products = products,
                        .streams = streams,
                        .samples = samples,
                        .n_products = 2,
                        .n_streams = 2,
                        .n_samples = 9};
    p.measured[HARDWARE_F32] = 100e9;
    return p;
}

static struct ledger_row row(const char *op, int phase, tl_dtype dtype, uint64_t calls, double flops, double bytes) {
    return (struct ledger_row){
        .key = {.op = op, .phase = (uint8_t)phase, .dtype = (uint8_t)dtype, .accumulate = TL_F32},
        .calls = calls,
        .flops = (count)flops,
        .bytes_read = (count)(bytes / 2),
        .bytes_written = (count)(bytes / 2)};
}

static void what_was_measured_is_predicted_as_it_was(void **state) {
    (void)state;
    struct machine p = machine();
    struct predict_machine m = predict_machine_of(&p);
    for (int i = 0; i < p.n_samples; i++) {
        struct ledger_row r = row(samples[i].op, samples[i].is_backward ? TL_BACKWARD : TL_FORWARD, samples[i].dtype, 3,
                                  3 * samples[i].flops, 3 * samples[i].bytes);
        r.bytes_written = (count)(3 * samples[i].written);
        r.bytes_read = (count)(3 * (samples[i].bytes - samples[i].written));
        const struct predict_shape shape = {.head_size = samples[i].inner};
        expect_near(predict_row(&m, &shape, &r) / (3 * samples[i].seconds), 1, 5e-3); /* timings have noise */
    }
    /* a row without a kernel takes no time */
    struct ledger_row view = row("transpose", TL_FORWARD, TL_F32, 5, 0, 0);
    expect_near(predict_row(&m, &nothing_known, &view), 0, 0);
}

static void between_two_sizes_lies_what_lies_between(void **state) {
    (void)state;
    struct machine p = machine();
    struct predict_machine m = predict_machine_of(&p);
    /* 80 % of the peak at 2 and at 16 GFLOP, 50 % backward: at 6 it is as much, nearly; twice the calls take twice
     * the time */
    struct ledger_row one = row("matmul", TL_FORWARD, TL_F32, 1, 6e9, 24e6),
                      two = row("matmul", TL_FORWARD, TL_F32, 2, 12e9, 48e6);
    double s = predict_row(&m, &nothing_known, &one);
    expect_near(s / (6e9 / 80e9), 1, 0.05);
    expect_near(predict_row(&m, &nothing_known, &two), 2 * s, 1e-12);
    /* beyond the largest size the efficiency of the largest holds */
    struct ledger_row large = row("matmul", TL_FORWARD, TL_F32, 1, 16e12, 48e9);
    expect_near(predict_row(&m, &nothing_known, &large) / (16e12 / 80e9), 1, 0.25);
}

/* 100 MFLOP in 1 ms with heads of 64, 4 with heads of 16, 6 with heads of 20, which no vector divides. */
static void the_size_of_heads_decides_between_equal_counts(void **state) {
    (void)state;
    struct machine p = machine();
    struct predict_machine m = predict_machine_of(&p);
    struct ledger_row r = row("attention", TL_FORWARD, TL_F32, 1, 1e8, 1e6);
    r.bytes_read = (count)75e4, r.bytes_written = (count)25e4;
    double at[4];
    static const double sizes[] = {64, 32, 16, 20};
    for (int i = 0; i < 4; i++) at[i] = predict_row(&m, &(struct predict_shape){.head_size = sizes[i]}, &r);
    expect_near(at[0] / 1e-3, 1, 1e-2);
    expect_near(at[2] / 4e-3, 1, 1e-2);
    expect_true(at[1] > 1.2 * at[0] && at[1] < at[2] / 1.2); /* between */
    expect_true(at[3] > 1.3 * at[2]);
    double unknown = predict_row(&m, &nothing_known, &r); /* among them all */
    expect_true(unknown > at[0] && unknown < at[3]);
    /* and other ops do not depend on it */
    struct ledger_row add = row("add", TL_FORWARD, TL_F32, 1, 1e6, 12e6);
    expect_near(predict_row(&m, &(struct predict_shape){.head_size = 20}, &add), predict_row(&m, &nothing_known, &add),
                0);
}

/* A product of 5504 columns, and one of 5500, which takes four times as long: each predicts its like. If samples have
 * no widths, as a CPU's, widths do not matter. */
static void widths_decide_where_they_were_measured(void **state) {
    (void)state;
    struct machine_sample own[] = {{"matmul", TL_F32, false, 2e9, 12e6, 6e6, 25e-3, 8, 0},
                                   {"matmul", TL_F32, false, 2e9, 12e6, 6e6, 100e-3, 4, 0}};
    struct machine p = machine();
    struct ledger_row r = row("matmul", TL_FORWARD, TL_F32, 1, 2e9, 12e6);
    const struct predict_shape even = {.channels = 2048, .ff = 5504}, odd = {.channels = 2048, .ff = 5500};
    struct predict_machine plain = predict_machine_of(&p);
    expect_near(predict_row(&plain, &even, &r), predict_row(&plain, &odd, &r), 0);
    p.samples = own, p.n_samples = 2;
    struct predict_machine m = predict_machine_of(&p);
    expect_near(predict_row(&m, &even, &r) / 25e-3, 1, 5e-3);
    expect_near(predict_row(&m, &odd, &r) / 100e-3, 1, 5e-3);
}

/* Equal counts of two attentions on a GPU, whose tiles have 64 rows: 128 queries fill theirs, 132 leave most of the
 * last one empty and take longer. On a CPU lengths do not matter. */
static void empty_tiles_take_time_on_a_gpu(void **state) {
    (void)state;
    struct machine_sample own[] = {{"attention", TL_BF16, false, 2e9, 12e6, 3e6, 1e-3, 64, 128},
                                   {"attention", TL_BF16, false, 2e9, 12e6, 3e6, 2e-3, 64, 132}};
    struct machine p = machine();
    struct ledger_row r = row("attention", TL_FORWARD, TL_BF16, 1, 2e9, 12e6);
    const struct predict_shape full = {.head_size = 64, .seq = 128}, rest = {.head_size = 64, .seq = 132};
    r.bytes_read = (count)9e6, r.bytes_written = (count)3e6;
    p.samples = own, p.n_samples = 2;
    struct predict_machine m = predict_machine_of(&p);
    expect_near(predict_row(&m, &full, &r), predict_row(&m, &rest, &r), 0);
    p.host_call_s = 3e-6;
    expect_near(predict_row(&m, &full, &r) / 1e-3, 1, 5e-3);
    expect_near(predict_row(&m, &rest, &r) / 2e-3, 1, 5e-3);
}

/* An asynchronous device: a step takes the device's time, or the host's time to launch it. */
static void a_step_takes_as_long_as_asking_for_it(void **state) {
    (void)state;
    struct machine p = machine();
    struct predict_machine m = predict_machine_of(&p);
    struct ledger_row add = row("add", TL_FORWARD, TL_F32, 7, 7e6, 84e6);
    double kernels = predict_row(&m, &nothing_known, &add);
    expect_near(predict_rows(&m, &nothing_known, &add, 1).seconds, 1.01 * kernels + 7e-6, 1e-9);
    p.call_s = -2e-6; /* the overhead of timing an op by itself */
    expect_near(predict_rows(&m, &nothing_known, &add, 1).seconds, 1.01 * kernels - 14e-6, 1e-9);
    p.host_call_s = kernels;
    expect_near(predict_rows(&m, &nothing_known, &add, 1).seconds, 7 * kernels, 1e-9);
}

/* The smallest op takes as long as a launch, however little it moves; a large one as long as before. */
static void a_small_op_takes_a_launch(void **state) {
    (void)state;
    struct machine_sample own[] = {{"add", TL_F32, false, 1e2, 12e2, 4e2, 3e-6, 0, 0},
                                   {"add", TL_F32, false, 1e8, 12e8, 4e8, 120e-3, 0, 0}};
    struct machine p = machine();
    p.samples = own, p.n_samples = 2, p.host_call_s = 3e-6;
    struct predict_machine m = predict_machine_of(&p);
    struct ledger_row few = row("add", TL_FORWARD, TL_F32, 5, 5e1, 60e1),
                      many = row("add", TL_FORWARD, TL_F32, 1, 1e8, 12e8);
    expect_near(predict_row(&m, &nothing_known, &few) / (5 * 3e-6), 1, 0.05);
    expect_near(predict_row(&m, &nothing_known, &many) / 120e-3, 1, 5e-3);
}

/* f16 is predicted from bf16 where it has no samples of its own, and by its own where it has. */
static void sixteen_bits_lend_each_other_samples(void **state) {
    (void)state;
    struct machine_sample own[] = {{"gelu", TL_BF16, false, 1e7, 4e6, 2e6, 2e-3, 0, 0},
                                   {"gelu", TL_F16, false, 1e7, 4e6, 2e6, 6e-3, 0, 0}};
    struct machine p = machine();
    struct ledger_row r = row("gelu", TL_FORWARD, TL_F16, 1, 1e7, 4e6);
    p.samples = own, p.n_samples = 1;
    struct predict_machine m = predict_machine_of(&p);
    expect_near(predict_row(&m, &nothing_known, &r) / 2e-3, 1, 5e-3);
    p.n_samples = 2;
    expect_near(predict_row(&m, &nothing_known, &r) / 6e-3, 1, 5e-3);
}

static void an_op_without_samples_is_said_so(void **state) {
    (void)state;
    struct machine p = machine();
    struct predict_machine m = predict_machine_of(&p);
    struct ledger_row rows[] = {row("add", TL_FORWARD, TL_F32, 1, 1e6, 12e6),
                                row("gelu", TL_FORWARD, TL_F32, 1, 9e6, 8e6)};
    struct prediction all = predict_rows(&m, &nothing_known, rows, 2), one = predict_rows(&m, &nothing_known, rows, 1);
    expect_near(one.sampled, 1, 0);
    expect_true(all.sampled > 0.1 && all.sampled < 0.9 && all.seconds > one.seconds);
    expect_near(one.seconds, 2.4e-3 * 1.01 + 1e-6, 1e-5);
}

static void nothing_is_shorter_than_the_bound(void **state) {
    (void)state;
    struct machine p = machine();
    struct predict_machine m = predict_machine_of(&p);
    expect_near(m.peak[TL_F32], 100e9, 0); /* in registers, more than the best product */
    expect_near(m.peak[TL_BF16], 0, 0);
    expect_near(m.bandwidth, 10e9, 0);
    expect_near(m.fastest, 40e9, 0);
    struct ledger_row compute = row("matmul", TL_FORWARD, TL_F32, 1, 2e9, 12e6),
                      memory = row("add", TL_FORWARD, TL_F32, 1, 1e6, 12e6);
    expect_near(predict_rows(&m, &nothing_known, &compute, 1).bound_s, 20e-3, 1e-12);
    expect_near(predict_rows(&m, &nothing_known, &memory, 1).bound_s, 12e6 / 40e9, 1e-12);
    /* a profile that claims more than the peak does not bring a step below it */
    struct machine_sample fast = {"matmul", TL_F32, false, 2e9, 12e6, 6e6, 1e-3, 0, 0};
    p.samples = &fast;
    p.n_samples = 1;
    expect_near(predict_rows(&m, &nothing_known, &compute, 1).seconds, 20e-3, 1e-12);
    /* and without FLOPs and bytes there is no time */
    expect_near(predict_rows(&m, &nothing_known, NULL, 0).seconds, 0, 0);
}

static void a_sheet_gives_a_bound_and_no_prediction(void **state) {
    (void)state;
    struct predict_machine m = predict_machine_of_chip(hardware_find("H100"));
    struct ledger_row rows[] = {row("matmul", TL_FORWARD, TL_BF16, 1, 989.4e12, 1e9),
                                row("adam", TL_UPDATE, TL_F32, 1, 66.9e12, 3350e9 * 0.1)};
    struct prediction p = predict_rows(&m, &nothing_known, rows, 2);
    expect_true(isnan(p.seconds));
    expect_near(p.compute_s, 2, 1e-9);
    expect_near(p.memory_s, (3350e9 * 0.1 - 268435456) / 3350e9, 1e-9);
    expect_near(p.bound_s, 2, 1e-9);
    expect_near(p.sampled, 0, 0);
    expect_true(isnan(predict_row(&m, &nothing_known, &rows[0])));
    /* an unknown chip bounds nothing */
    struct hardware nothing = {.name = "nothing"};
    m = predict_machine_of_chip(&nothing);
    expect_near(predict_rows(&m, &nothing_known, rows, 2).bound_s, 0, 0);
}

static void bandwidth_lies_between_the_sizes(void **state) {
    (void)state;
    struct machine p = machine();
    expect_near(machine_bandwidth_of(&p, 1), 40e9, 0);
    expect_near(machine_bandwidth_of(&p, 1e12), 10e9, 0);
    expect_near(machine_bandwidth_of(&p, sqrt(32768.0 * (1 << 30))), 20e9, 1);
    p.n_streams = 0;
    expect_near(machine_bandwidth_of(&p, 1e6), 0, 0);
    expect_near(machine_bandwidth(&p), 0, 0);
}

static void a_price_as_a_file_is_predicted_too(void **state) {
    (void)state;
    struct machine p = machine();
    struct predict_machine m = predict_machine_of(&p);
    struct prediction r;
    json_t *ledger = json_pack("{s:s, s:[{s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:s}]}", "schema", "tally.ledger/1",
                               "rows", "path", "x", "op", "matmul", "phase", "forward", "dtype", "f32", "calls", 1,
                               "flops", "2000000000", "bytes_read", "6000000", "bytes_written", "6000000");
    expect_true(predict_json(&m, ledger, &r));
    expect_near(r.seconds, 25e-3 * 1.01 + 1e-6, 1e-4);
    json_t *run =
        json_pack("{s:s, s:{s:{s:i, s:O}}}", "schema", "tally.run/1", "kinds", "step", "count", 7, "ledger", ledger);
    struct prediction again;
    expect_true(predict_json(&m, run, &again));
    expect_near(again.seconds, r.seconds, 0);
    json_t *first = json_array_get(json_object_get(ledger, "rows"), 0);
    json_object_set_new(first, "flops", json_string("-5"));
    expect_refused(predict_json(&m, ledger, &r), "no valid \"flops\"");
    json_object_set_new(first, "flops", json_string("5"));
    json_object_set_new(first, "phase", json_string("lunch"));
    expect_refused(predict_json(&m, ledger, &r), "no op, phase or calls");
    json_decref(run);
    json_decref(ledger);
    json_t *nothing = json_object();
    expect_refused(predict_json(&m, nothing, &r), "it has no rows");
    json_decref(nothing);
}

/* ---- Files ---- */

static void a_profile_comes_back_from_its_file(void **state) {
    (void)state;
    struct machine p = machine(), q;
    expect_true(machine_write(&p, path) && machine_read(&q, path));
    expect_text(q.machine, p.machine);
    expect_equal(q.threads, 2);
    expect_equal(q.n_samples, 9);
    expect_near(q.samples[8].inner, 20, 0);
    expect_near(q.samples[8].written, 25e4, 0);
    expect_near(q.samples[3].seconds, 40e-3, 1e-12);
    expect_true(q.samples[3].is_backward && !q.samples[2].is_backward);
    expect_near(q.measured[HARDWARE_F32], 100e9, 0);
    expect_near(q.streams[1].copy, 10e9, 0);
    expect_near(q.products[1].flops_per_s, 90e9, 0);
    expect_near(q.rest_share, 0.01, 0);
    machine_free(&q);
}

static void a_profile_that_is_damaged_is_refused(void **state) {
    (void)state;
    static const char *const changes[][3] = {
        {"schema", "\"tally.machine/9\"", "not a tally.machine/2"},
        {"threads", "-1", "\"threads\" is not a number"},
        {"machine", "7", "\"machine\" is not a text"},
        {"call_s", "\"fast\"", "\"call_s\" is not a number"},
        {"host_call_s", "-1", "\"host_call_s\" is not a number"},
        {"samples", "{}", "\"samples\" is not a list"},
        {"samples", "[{}]", "\"op\" is not a text"},
        {"samples", "[{\"op\": \"add\", \"dtype\": \"f31\"}]", "\"dtype\" is not a dtype"},
        {"streams", "[{\"bytes\": 0}]", "\"bytes\" is not a number"},
        {"measured", "[]", "there is no \"measured\""},
        {"products", "null", "\"products\" is not a list"},
    };
    struct machine p = machine(), q;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        json_t *json = machine_json(&p);
        json_object_set_new(json, changes[i][0], json_loads(changes[i][1], JSON_DECODE_ANY, NULL));
        char *text = json_dumps(json, 0);
        expect_true(file_put(path, text, strlen(text)));
        free(text);
        json_decref(json);
        expect_refused(machine_read(&q, path), changes[i][2]);
        expect_true(q.samples == NULL && q.products == NULL);
    }
}

static void only_a_profile_of_this_machine_is_found(void **state) {
    (void)state;
    char folder[] = "/tmp/tally_config_XXXXXX", file[128], why[200];
    struct machine p = machine(), q;
    tl_device *cpu = check_cpu();
    expect_true(mkdtemp(folder) != NULL);
    setenv("XDG_CONFIG_HOME", folder, 1);
    expect_true(!machine_find(&q, cpu, why) && strstr(why, "there is no profile of this machine"));
    struct predict_machine m;
    expect_true(!predict_machine_find(&m, &q, "cpu", "a chip in no table") && !q.samples);
    expect_true(predict_machine_find(&m, &q, "cpu", "NVIDIA H200") && !m.profile && m.bandwidth > 0);
    snprintf(file, sizeof file, "%s/tally/machine-cpu.json", folder);
    expect_true(machine_write(&p, file));
    expect_true(!machine_find(&q, cpu, why) && strstr(why, "the profile is of a machine"));
    machine_name(cpu, p.machine, sizeof p.machine);
    snprintf(p.isa, sizeof p.isa, "%s", cpu->isa ? cpu->isa : "");
    p.threads = process_threads();
    expect_true(machine_write(&p, file) && machine_find(&q, cpu, why));
    machine_free(&q);
    expect_true(predict_machine_find(&m, &q, "cpu", p.machine) && m.profile == &q);
    machine_free(&q);
    expect_true(predict_machine_find(&m, &q, "cpu", "NVIDIA H200") && !m.profile && !q.samples); /* of another chip */
    expect_true(file_put(file, "{", 1));
    expect_true(!machine_find(&q, cpu, why) && *why && tl_error() == TL_OK);
    expect_true(!predict_machine_find(&m, &q, "cpu", "a chip in no table") && tl_error() == TL_OK);
    unlink(file);
    snprintf(file, sizeof file, "%s/tally", folder);
    rmdir(file);
    rmdir(folder);
}

/* ---- Trials ---- */

/* Every configuration is one that can run, and is small; among them are all recipes, optimizers and head sizes that
 * the lists have. */
static void calibrations_are_runs_and_spread(void **state) {
    (void)state;
    int n_bf16 = 0, n_sgd = 0, n_uneven = 0, n_long = 0;
    for (int i = 0; i < CALIBRATE_CASES; i++) {
        struct calibrate_case c = calibrate_case_at(i, false);
        expect_true(c.batch >= 1 && c.seq >= 8 && c.channels >= 16 && c.channels <= 1536 && c.heads % c.kv_heads == 0);
        expect_equal(c.channels % (2 * c.heads), 0); /* rotary positions take pairs */
        n_bf16 += !strncmp(c.recipe, "bf16", 4);
        n_sgd += !strcmp(c.optimizer, "sgd");
        n_uneven += c.channels / c.heads % 8 != 0;
        n_long += c.seq >= 512;
    }
    for (int i = 0; i < CALIBRATE_LARGE; i++) {
        struct calibrate_case c = calibrate_case_at(i, true);
        expect_true(c.batch >= 1 && c.seq >= 4 && c.channels >= 64 && c.channels <= 5120 && c.heads % c.kv_heads == 0);
        expect_equal(c.channels % (2 * c.heads), 0);
    }
    expect_true(n_bf16 > 40 && n_sgd > 10 && n_uneven > 5 && n_long > 10);
}

/* No times are asserted, only that there are some and that the counts are those of a step. */
static void a_trial_times_every_kernel_of_a_step(void **state) {
    (void)state;
    struct settings s = settings_default();
    expect_true(settings_set(&s, "model", "tiny"));
    s.layers = 1, s.channels = 32, s.heads = 2, s.batch = 2, s.seq = 16, s.val_share = 0;
    struct trial t;
    expect_true(trial_run(&s, 2, &t));
    expect_true(t.step_s > 0 && t.kernel_s > 0 && t.calls > 20 && t.n_rows > 20);
    double flops = 0;
    for (size_t i = 0; i < t.n_rows; i++) {
        expect_true(t.rows[i].time_s >= 0);
        if (!strncmp(t.rows[i].key.op, "matmul", 6)) {
            flops += (double)t.rows[i].flops;
            expect_true(t.rows[i].calls == 0 || t.rows[i].time_s > 0);
        }
    }
    /* 6 FLOPs per token and weight of the layer: qkvo of 32 x 32 and three of 32 x 88 (8/3 of 32, in whole eights) */
    expect_near(flops, 6.0 * 2 * 16 * (4 * 32 * 32 + 3 * 32 * 88), 0);
    trial_free(&t);
    s.layers = 2;
    expect_true(trial_run(&s, 2, &t));
    struct trial again;
    expect_true(trial_run(&s, 2, &again));
    again.rows[0].time_s = t.rows[0].time_s / 2, again.step_s = 2 * t.step_s, again.waited = t.waited = 0.5;
    t.rows[1].time_s = again.rows[1].time_s + 1, t.speed = 3, again.speed = 4;
    const double half = again.rows[0].time_s, lesser = again.rows[1].time_s, step_s = t.step_s;
    expect_true(trial_merge(&t, &again));
    expect_true(t.rows[0].time_s == half && t.rows[1].time_s == lesser && t.step_s == step_s && t.speed == 4);
    double sum = 0;
    for (size_t i = 0; i < t.n_rows; i++) sum += t.rows[i].time_s;
    expect_near(t.kernel_s, sum, 1e-12);
    again.n_rows--;
    expect_refused(trial_merge(&t, &again), "different costs");
    trial_free(&again);
    trial_free(&t);
    s.channels = 7;
    expect_refused(trial_run(&s, 2, &t), "channels");
    expect_refused(trial_run(&s, 0, &t), "a trial of 0 steps");
}

int main(void) {
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    const struct CMUnitTest tests[] = {
        TEST(what_was_measured_is_predicted_as_it_was),
        TEST(between_two_sizes_lies_what_lies_between),
        TEST(empty_tiles_take_time_on_a_gpu),
        TEST(a_step_takes_as_long_as_asking_for_it),
        TEST(a_small_op_takes_a_launch),
        TEST(sixteen_bits_lend_each_other_samples),
        TEST(an_op_without_samples_is_said_so),
        TEST(the_size_of_heads_decides_between_equal_counts),
        TEST(widths_decide_where_they_were_measured),
        TEST(calibrations_are_runs_and_spread),
        TEST(nothing_is_shorter_than_the_bound),
        TEST(a_sheet_gives_a_bound_and_no_prediction),
        TEST(bandwidth_lies_between_the_sizes),
        TEST(a_price_as_a_file_is_predicted_too),
        TEST(a_profile_comes_back_from_its_file),
        TEST(a_profile_that_is_damaged_is_refused),
        TEST(only_a_profile_of_this_machine_is_found),
        TEST(a_trial_times_every_kernel_of_a_step),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}

/* Published throughput rows, reproduced to the digits that were printed: tokens per second in, share of the peak out.
 * docs/planning.md lists the sources; test_napkin.c has the rows of H100 and of Megatron, test_published.c plans. */
#include "support/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/framework.h"
#include "plan/hardware.h"
#include "plan/mfu.h"
#include "plan/napkin.h"

static double convention(const char *name, const struct napkin_model *m, double seq) {
    const struct napkin_convention *c = napkin_convention_find(name);
    assert_non_null(c);
    return c->flops(m, seq);
}

/* ---- llm-foundry, scripts/train/benchmarking/README.md: A100 of 80 and of 40 GB ---- */

/* model, sequence, GPUs, tokens/s, MFU in % */
static const char *const foundry[] = {
    "70b 2048 64 26274 53.33", "70b 2048 32 11962 48.56", "30b 8192 8 4594 39.38", "30b 4096 8 6513 51.37",
    "30b 2048 8 7330 55.3", "30b 1024 8 7571 55.82", "30b 512 8 7739 56.4", "13b 32768 8 8134 51.69",
    "13b 16384 8 11454 54.07", "13b 8192 8 14362 56.07", "13b 4096 8 16482 57.62", "13b 2048 8 18097 59.57",
    "13b 1024 8 18647 59.48", "7b 65536 8 8108 46.97", "7b 32768 8 13382 49.46", "7b 16384 8 19629 51.96",
    "7b 8192 8 25655 54.47", "7b 4096 8 29472 54.84", "7b 2048 8 37130 64.23", "7b 1024 8 34857 58.01",
    "3b 65536 8 14137 46.05", "3b 32768 8 24235 47.18", "3b 16384 8 44233 57.13", "3b 8192 8 61567 59.34",
    "3b 4096 8 75658 60.53", "3b 2048 8 86491 62.11", "3b 1024 8 92643 62.73", "3b 512 8 97019 63.71",
    "1b 65536 8 24353 46.18", "1b 32768 8 50207 55.52", "1b 16384 8 79650 56.6", "1b 8192 8 110516 56.69",
    "1b 4096 8 142457 59.0", "1b 2048 8 164109 59.86", "1b 1024 8 176898 60.15", "1b 512 8 185186 60.68",
    "760m 65536 8 33150 45.34", "760m 32768 8 70417 54.57", "760m 16384 8 114198 54.64", "760m 8192 8 167471 55.31",
    "760m 4096 8 218808 56.05", "760m 2048 8 259472 56.85", "760m 1024 8 238122 47.76", "760m 512 8 235571 45.07",
    "350m 65536 8 60195 52.7", "350m 32768 8 109222 52.46", "350m 16384 8 188478 53.28", "350m 8192 8 292559 53.8",
    "350m 4096 8 396442 53.31", "350m 2048 8 470263 51.62", "350m 1024 8 518504 50.51", "350m 512 8 554643 50.61",
    "125m 65536 8 162946 54.13", "125m 32768 8 291256 52.71", "125m 16384 8 480322 50.61", "125m 8192 8 723142 48.85",
    "125m 4096 8 947172 46.08", "125m 2048 8 1142641 44.79", "125m 2048 8 1133901 44.45", "125m 1024 8 1251751 43.15",
    "125m 512 8 1325455 42.56",
    /* 40 GB */
    "70b 2048 128 48194 48.91", "70b 2048 64 17672 35.87", "30b 2048 128 110803 52.25", "30b 2048 32 27431 51.74",
    "13b 8192 8 11258 43.95", "13b 4096 8 12830 44.85", "13b 2048 128 252444 51.93", "13b 2048 64 126479 52.04",
    "13b 2048 32 63946 52.62", "13b 2048 16 31900 52.5", "13b 2048 8 13347 43.94", "13b 1024 8 13817 44.07",
    "13b 512 8 14108 44.28", "7b 16384 8 17998 47.65", "7b 8192 8 23098 49.04", "7b 4096 8 26930 50.11",
    "7b 2048 128 463749 50.14", "7b 2048 64 234614 50.73", "7b 2048 32 119202 51.55", "7b 2048 16 58322 50.44",
    "7b 2048 8 29436 50.92", "7b 1024 8 30833 51.31", "7b 512 8 31167 50.85", "3b 32768 8 23640 46.03",
    "3b 16384 8 35726 46.14", "3b 8192 8 57193 55.13", "3b 4096 8 70223 56.18", "3b 2048 128 1220885 54.8",
    "3b 2048 64 623167 55.94", "3b 2048 32 317261 56.96", "3b 2048 16 156013 56.02", "3b 2048 8 80520 57.82",
    "3b 1024 8 85854 58.14", "3b 512 8 90596 59.49", "1b 32768 8 40762 45.07", "1b 16384 8 77723 55.23",
    "1b 8192 8 107799 55.29", "1b 4096 8 134851 55.85", "1b 2048 128 2386897 54.41", "1b 2048 64 1216104 55.44",
    "1b 2048 32 497782 45.39", "1b 2048 16 305372 55.69", "1b 2048 8 154171 56.23", "1b 1024 8 167677 57.02",
    "1b 512 8 174256 57.1", "760m 32768 8 57464 44.53", "760m 16384 8 111316 53.26", "760m 8192 8 160853 53.12",
    "760m 4096 8 206909 53.0", "760m 2048 128 3704382 50.73", "760m 2048 64 1878030 51.44", "760m 2048 32 948745 51.97",
    "760m 2048 16 473723 51.9", "760m 2048 8 241389 52.89", "760m 1024 8 267376 53.63", "760m 512 8 279504 53.47",
    "350m 32768 8 107329 51.55", "350m 16384 8 183175 51.78", "350m 8192 8 279466 51.39", "350m 4096 8 374670 50.38",
    "350m 2048 128 6647647 45.61", "350m 2048 64 3372118 46.27", "350m 2048 32 1721978 47.26",
    "350m 2048 16 886622 48.66", "350m 2048 8 447963 49.17", "350m 1024 8 500184 48.73", "350m 512 8 530277 48.39",
    "125m 32768 8 261208 47.27", "125m 16384 8 443876 46.77", "125m 8192 8 694868 46.94", "125m 4096 8 921297 44.82",
    "125m 2048 128 15863837 38.86", "125m 2048 64 8015010 39.27", "125m 2048 32 4067922 39.86",
    "125m 2048 16 2088560 40.93", "125m 2048 8 1090678 42.75", "125m 1024 8 1186314 40.89", "125m 512 8 1253886 40.26"};

static struct napkin_model mpt_of(const char *name, double seq) {
    static const struct {
        const char *name;
        double channels, layers;
    } sizes[] = {{"125m", 768, 12}, {"350m", 1024, 24}, {"760m", 1536, 24}, {"1b", 2048, 24}, {"3b", 2560, 32},
                 {"7b", 4096, 32},  {"13b", 5120, 40},  {"30b", 7168, 48},  {"70b", 8192, 80}};
    int i = 0;
    while (strcmp(sizes[i].name, name)) i++;
    return napkin_gpt(sizes[i].layers, sizes[i].channels, 50368, seq);
}

static void llm_foundry_on_a100(void **state) {
    (void)state;
    const double peak = hardware_value(hardware_find("A100"), HARDWARE_BF16);
    enum { N = sizeof foundry / sizeof *foundry };
    int n_exact = 0;
    for (int i = 0; i < N; i++) {
        char name[8];
        double seq, devices, tokens, printed;
        assert_int_equal(sscanf(foundry[i], "%7s %lf %lf %lf %lf", name, &seq, &devices, &tokens, &printed), 5);
        const struct napkin_model m = mpt_of(name, seq);
        const double mfu = 100 * convention("palm", &m, seq) * tokens / (devices * peak);
        /* tokens per second were cut to whole numbers */
        if (fabs(mfu - printed) > 0.005 + 100 * convention("palm", &m, seq) / (devices * peak))
            fail_msg("%s: %.4f %%", foundry[i], mfu);
        n_exact += fabs(mfu - printed) <= 0.00501;
        expect_true(mfu < 100);
    }
    print_message("    %d of %d to the last digit\n", n_exact, N);
    expect_equal(N, 139);
    expect_true(n_exact >= 0.95 * N);
}

/* ---- llmq, benchmarks/H100x1.md, 4090x1.md: each class of products at its own peak ("speed of light") ---- */

/* A preset, or Qwen 2.5's shapes that have no name here. */
static tl_model_config qwen_of(const char *name) {
    tl_model_config c;
    if (tl_model_preset(name, &c)) return c;
    tl_error_clear();
    assert_true(tl_model_preset("qwen2.5-7b", &c));
    if (!strcmp(name, "qwen2.5-3b"))
        c.n_layers = 36, c.channels = 2048, c.n_heads = 16, c.n_kv_heads = 2, c.ff = 11008, c.vocabulary = 151936,
        c.is_tied = true;
    else c.n_layers = 48, c.channels = 5120, c.n_heads = 40, c.n_kv_heads = 8, c.ff = 13824;
    return c;
}

static void llmq_in_bf16_and_fp8(void **state) {
    (void)state;
    static const struct {
        const char *chip, *model;
        double wide_ms, wide, narrow_ms, narrow; /* of the third step: time of 524,288 tokens, and % */
    } rows[] = {{"H100", "qwen2.5-0.5b", 3492, 46.9, 3178, 33.7},
                {"H100", "qwen2.5-1.5b", 8849, 57.0, 7182, 41.3},
                {"H100", "qwen2.5-3b", 16978, 59.2, 13032, 43.3},
                {"H100", "qwen2.5-7b", 37961, 60.1, 27426, 45.3},
                {"H100", "qwen2.5-14b", 82835, 54.7, 55993, 43.4},
                {"RTX 4090", "qwen2.5-0.5b", 13158, 74.7, 11004, 58.3},
                {"RTX 4090", "qwen2.5-1.5b", 37249, 81.2, 25784, 68.9},
                {"RTX 4090", "qwen2.5-3b", 74824, 80.4, 49131, 68.8},
                {"RTX 4090", "qwen2.5-7b", 524288e3 / 2776, 72.3, 524288e3 / 4332, 61.5},
                {"RTX 4090", "qwen2.5-14b", 524288e3 / 1349, 69.8, 524288e3 / 2001, 55.5}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct hardware *chip = hardware_find(rows[i].chip);
        const double bf16 = hardware_value(chip, HARDWARE_BF16), f8 = hardware_value(chip, HARDWARE_F8);
        const tl_model_config c = qwen_of(rows[i].model);
        const double seq = 1024, tokens = 524288;
        const struct napkin_model m = napkin_model_of(&c);
        const double all = convention("matmul_causal", &m, seq), layers = 6 * (m.matmul - m.head);
        const double wide = all / bf16, narrow = layers / f8 + (all - layers) / bf16;
        expect_near(100 * tokens * wide / (rows[i].wide_ms / 1e3), rows[i].wide, 0.09);
        expect_near(100 * tokens * narrow / (rows[i].narrow_ms / 1e3), rows[i].narrow, 0.09);
        expect_true(wide < rows[i].wide_ms / 1e3 / tokens && narrow < rows[i].narrow_ms / 1e3 / tokens);
    }
}

/* ---- NeMo, Megatron Bridge, torchtitan: tokens/s of a GPU in, TFLOP/s or MFU out ---- */

/* model, its shape if it has no name here (layers, channels, heads x head size, keys' width, ff, gate, vocabulary) */
static struct napkin_model shape_of(const char *name) {
    static const struct {
        const char *name;
        double L, C, A, K, F, gate, V;
        bool is_tied;
    } shapes[] = {{"GPT3-5B", 24, 4096, 4096, 4096, 16384, 0, 51200, true},
                  {"GPT3-20B", 44, 6144, 6144, 6144, 24576, 0, 51200, true},
                  {"GPT3-175B", 96, 12288, 12288, 12288, 49152, 0, 51200, true},
                  {"LLAMA2-7B", 32, 4096, 4096, 4096, 11008, 1, 32000, false},
                  {"LLAMA2-13B", 40, 5120, 5120, 5120, 13824, 1, 32000, false},
                  {"LLAMA2-70B", 80, 8192, 8192, 1024, 28672, 1, 32000, false},
                  {"Nemotron-8B", 32, 4096, 4096, 4096, 16384, 0, 256000, false},
                  {"Nemotron-22B", 40, 6144, 6144, 6144, 24576, 0, 256000, false},
                  {"Nemotron-340B", 96, 18432, 18432, 1536, 73728, 0, 256000, false},
                  {"LLAMA3-8B", 32, 4096, 4096, 1024, 14336, 1, 128256, false},
                  {"LLAMA3-70B", 80, 8192, 8192, 1024, 28672, 1, 128256, false},
                  {"LLAMA3-405B", 126, 16384, 16384, 1024, 53248, 1, 128256, false},
                  {"Qwen3-14B", 40, 5120, 5120, 1024, 17408, 1, 151936, false}};
    int i = 0;
    while (strcmp(shapes[i].name, name)) i++;
    const double C = shapes[i].C, layer = 2 * C * (shapes[i].A + shapes[i].K) + (2 + shapes[i].gate) * C * shapes[i].F;
    const double ends = shapes[i].V * C, parameters = shapes[i].L * layer + (shapes[i].is_tied ? 1 : 2) * ends;
    return (struct napkin_model){.parameters = parameters,
                                 .active = parameters,
                                 .matmul = shapes[i].L * layer + ends,
                                 .embedding = ends,
                                 .head = ends,
                                 .is_tied = shapes[i].is_tied,
                                 .layers = shapes[i].L,
                                 .channels = C,
                                 .attention = shapes[i].A,
                                 .vocabulary = shapes[i].V};
}

/* model, sequence, tokens/s, TFLOP/s */
/* NVIDIA/NeMo, docs/source/performance/performance_summary.md (24.07), fp8 on H100 */
static const char *const nemo[] = {
    "GPT3-5B 2048 22521 736",     "GPT3-20B 2048 5851 750",     "GPT3-175B 2048 726 782",
    "GPT3-175B 2048 782 842",     "LLAMA2-7B 4096 16847 776",   "LLAMA2-13B 4096 8646 754",
    "LLAMA2-70B 4096 1707 759",   "Nemotron-8B 4096 12701 653", "Nemotron-22B 4096 4256 554",
    "Nemotron-340B 4096 322 678", "LLAMA3-8B 8192 12036 697",   "LLAMA3-70B 8192 1533 738"};
static const char *const bridge[] = {/* NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md (25.11), fp8 */
                                     "LLAMA3-8B 8192 37556 1933", "LLAMA3-8B 8192 36108 1858",
                                     "LLAMA3-70B 8192 4520 2030", "LLAMA3-405B 8192 999 2522",
                                     "LLAMA3-8B 8192 31508 1622", "LLAMA3-8B 8192 29789 1533",
                                     "LLAMA3-70B 8192 4312 1937", "LLAMA3-405B 8192 813 2053",
                                     "LLAMA3-8B 8192 30624 1576", "LLAMA3-8B 8192 29521 1519",
                                     "LLAMA3-405B 8192 661 1667", "LLAMA3-405B 8192 624 1576",
                                     "LLAMA3-8B 8192 14451 744",  "LLAMA3-70B 8192 1602 719",
                                     "LLAMA3-405B 8192 292 737"};
/* model, sequence, tokens/s, MFU in % */
static const char *const titan[] = {/* pytorch/torchtitan, docs/performance.md of 2024: 64 A100, all parameters */
                                    "LLAMA3-8B 8192 2904 56.8",  "LLAMA3-8B 8192 2973 58.2",
                                    "LLAMA3-70B 8192 331 51.7",  "LLAMA2-13B 4096 2162 61.1",
                                    "LLAMA2-13B 4096 1914 54.1", "LLAMA2-13B 4096 1904 53.8",
                                    "LLAMA2-70B 4096 355 50.8",  "LLAMA2-70B 4096 353 50.5"};
static const char *const titan_h100[] = {/* docs/chunked_loss.md, 8 H100; pull request 1884: without the embedding */
                                         "Qwen3-14B 8192 3537 37.22", "Qwen3-14B 8192 3575 37.62",
                                         "Qwen3-14B 8192 3648 38.39", "Qwen3-14B 8192 3651 38.42",
                                         "Qwen3-14B 8192 3072 32.33", "Qwen3-14B 8192 3655 38.46",
                                         "LLAMA3-8B 8192 5615 32.88"};

/* Tokens/s and the result were rounded, or cut, to the digits that are printed. Returns how many rows agree. */
static int rates_count(const char *const *rows, int n, const char *rule, double unit, double digit) {
    int n_same = 0;
    for (int i = 0; i < n; i++) {
        char name[24];
        double seq, tokens, printed;
        assert_int_equal(sscanf(rows[i], "%23s %lf %lf %lf", name, &seq, &tokens, &printed), 4);
        const struct napkin_model m = shape_of(name);
        const double flops = convention(rule, &m, seq) / unit, rate = flops * tokens;
        const bool is_same = rate - 0.5 * flops < printed + digit && rate + flops > printed - 0.5 * digit;
        if (!is_same) print_message("    %s: %.3f\n", rows[i], rate);
        n_same += is_same;
    }
    return n_same;
}
#define COUNT(rows, rule, unit, digit) rates_count(rows, sizeof(rows) / sizeof *(rows), rule, unit, digit)

static void rates_of_nvidia_and_torchtitan(void **state) {
    (void)state;
    const double a100 = hardware_value(hardware_find("A100"), HARDWARE_BF16) / 100;
    expect_equal(COUNT(nemo, "matmul", 1e12, 1), 12);
    expect_equal(COUNT(bridge, "matmul_causal", 1e12, 1), 15);
    expect_equal(COUNT(titan, "palm", a100, 0.1), 8);
    expect_equal(COUNT(titan_h100, "untied", 989e10, 0.01), 7);
    /* no published rate is above the dense peak of its dtype: a bound at the peak is one */
    const double f8[] = {
        hardware_value(hardware_find("GB300"), HARDWARE_F8), hardware_value(hardware_find("GB200"), HARDWARE_F8),
        hardware_value(hardware_find("B200"), HARDWARE_F8), hardware_value(hardware_find("H100"), HARDWARE_F8)};
    static const int from[] = {0, 4, 8, 12, 15};
    for (int k = 0; k < 4; k++)
        for (int i = from[k]; i < from[k + 1]; i++) expect_true(strtod(strrchr(bridge[i], ' '), NULL) * 1e12 < f8[k]);
}

/* ---- MaxText, README.md of 2024: TFLOP/s of a chip, to three digits, and MFU ---- */

static void maxtext_on_tpu(void **state) {
    (void)state;
    static const double v5p[][2] = {{328, 71.47}, {323, 70.31}, {315, 68.68}, {315, 68.53}, {316, 68.82},
                                    {294, 63.99}, {249, 64.05}, {297, 64.80}, {295, 64.27}, {304, 66.23}};
    static const double v5e[][2] = {{120, 61.10}, {132, 66.86}, {118, 59.90}, {110, 56.06}, {117, 59.37}, {128, 64.81},
                                    {112, 56.66}, {110, 55.82}, {117, 59.14}, {126, 64.10}, {110, 55.85}, {108, 54.93},
                                    {115, 58.27}, {125, 63.67}, {108, 54.96}, {104, 52.93}, {111, 56.56}, {123, 62.26},
                                    {105, 53.29}, {100, 50.86}, {108, 54.65}, {119, 60.40}, {99, 50.18},  {91, 46.25}};
    const double p = hardware_value(hardware_find("TPU v5p"), HARDWARE_BF16) / 1e12,
                 e = hardware_value(hardware_find("TPU v5e"), HARDWARE_BF16) / 1e12;
    int n_same = 0;
    for (size_t i = 0; i < 10; i++) n_same += fabs(100 * v5p[i][0] / p - v5p[i][1]) <= 0.006 + 100 * 0.5 / p;
    for (size_t i = 0; i < 24; i++) n_same += fabs(100 * v5e[i][0] / e - v5e[i][1]) <= 0.006 + 100 * 0.5 / e;
    expect_equal(n_same, 33); /* 249 TFLOP/s are 54 %, not 64: a slip of the table */
}

/* ---- Large runs: the share that was printed, from the tokens per second that were printed ---- */

static void large_runs(void **state) {
    (void)state;
    /* Chowdhery et al. 2022, section 4.1 and appendix B: 540.35 billion parameters, 118 layers, 48 heads of 256, 2048
     * tokens; 238.3 thousand tokens/s on 6144 TPU v4 is 46.2 %, 45.7 % without attention */
    struct napkin_model palm = {.parameters = 540.35e9, .active = 540.35e9, .layers = 118, .attention = 48 * 256};
    const double v4 = hardware_value(hardware_find("TPU v4"), HARDWARE_BF16) * 6144;
    expect_near(100 * convention("palm", &palm, 2048) * 238.3e3 / v4, 46.2, 0.05);
    expect_near(100 * convention("6n", &palm, 2048) * 238.3e3 / v4, 45.7, 0.05);
    /* Llama team 2024, table 4: TFLOP/s of a GPU are shares of 989 */
    const double h100 = hardware_value(hardware_find("H100"), HARDWARE_BF16) / 1e12;
    expect_near(100 * 430 / h100, 43, 0.5);
    expect_near(100 * 400 / h100, 41, 0.6); /* 40.4: they print 41 */
    expect_near(100 * 380 / h100, 38, 0.5);
    /* MT-NLG by Chowdhery et al., table 3: 29.7 % without attention, 30.2 with it, of 65.43 thousand tokens/s on 2240
     * A100 */
    struct napkin_model nlg = {.parameters = 530e9, .active = 530e9, .layers = 105, .attention = 20480};
    const double a100 = hardware_value(hardware_find("A100"), HARDWARE_BF16) * 2240;
    expect_near(100 * convention("6n", &nlg, 2048) * 65.43e3 / a100, 29.7, 0.1);
    expect_near(100 * convention("palm", &nlg, 2048) * 65.43e3 / a100, 30.2, 0.1);
}

/* The table of what to expect is the median of the rows above. */
static int by_size(const void *x, const void *y) {
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}
static void expected_shares_are_medians_of_rows(void **state) {
    (void)state;
    static const char *const names[] = {"125m", "350m", "760m", "1b", "3b", "7b", "13b", "30b", "70b"};
    const struct hardware *a100 = hardware_find("A100");
    for (int k = 0; k < 9; k++) {
        double all[64];
        int n = 0;
        for (size_t i = 0; i < sizeof foundry / sizeof *foundry; i++)
            if (!strncmp(foundry[i], names[k], strlen(names[k])) && foundry[i][strlen(names[k])] == ' ')
                all[n++] = strtod(strrchr(foundry[i], ' '), NULL);
        qsort(all, (size_t)n, sizeof *all, by_size);
        const struct mfu_row *row = mfu_find(a100, mpt_of(names[k], 2048).parameters);
        expect_equal(row->n, n);
        expect_near(row->mfu, (all[(n - 1) / 2] + all[n / 2]) / 200, 0.0006);
    }
    expect_true(mfu_find(hardware_find("H100"), 8e9)->mfu > 0.4);
    expect_text(mfu_find(hardware_find("H100"), 4e11)->source, "Llama team 2024, table 4");
    expect_true(!mfu_find(hardware_find("RTX 4090"), 1e9) && !mfu_find(NULL, 1e9));
}

/* ---- Memory of other frameworks: peaks that were printed, and `tally plan --as` ---- */

/* What was printed: bytes in tensors (allocated), or with what the allocator keeps (reserved, or the driver's). */
struct peak_row {
    const char *name, *as, *model, *recipe, *policy; /* model: a preset, or "gpt2 C H L V" */
    int64_t seq, batch, micro;                       /* batch: of one rank of dp */
    int64_t tp, cp, pp, dp, chunks;
    int shard;
    bool sp, is_allocated;
    double dropout, printed; /* in bytes */
    const char *why;         /* why it is more than a tenth off; NULL: it is not */
};
#define GB *1e9
#define GIB *1073741824.0
#define MIB *1048576.0
static const struct peak_row peaks[] = {
/* torchtitan, benchmarks/llama3_h100_202412_torchtitan.md */
#define TITAN(as_, s, b) \
    .as = as_, .model = "llama-3-8b", .seq = s, .batch = b, .micro = 1, .tp = 1, .cp = 1, .pp = 1, .shard = 3
    {"8B, 8", TITAN("pytorch-fsdp", 8192, 2), .recipe = "bf16", .policy = "selective", .dp = 8, .printed = 82.4 GIB},
    {"8B compiled, 8", TITAN("pytorch-fsdp-blocks", 8192, 2), .recipe = "bf16", .policy = "selective", .dp = 8,
     .printed = 77.0 GIB},
    {"8B compiled fp8, 8", TITAN("pytorch-fsdp-blocks", 8192, 2), .recipe = "fp8", .policy = "selective", .dp = 8,
     .printed = 76.8 GIB},
    {"8B, 128", TITAN("pytorch-fsdp", 8192, 2), .recipe = "bf16", .policy = "selective", .dp = 128,
     .printed = 67.0 GIB},
    {"8B compiled, 128", TITAN("pytorch-fsdp-blocks", 8192, 2), .recipe = "bf16", .policy = "selective", .dp = 128,
     .printed = 62.0 GIB},
    {"8B compiled fp8, 128", TITAN("pytorch-fsdp-blocks", 8192, 2), .recipe = "fp8", .policy = "selective", .dp = 128,
     .printed = 61.8 GIB},
#undef TITAN
#define TITAN(m, s, b) \
    .as = "pytorch-fsdp-blocks", .model = m, .recipe = "fp8", .policy = "full", .seq = s, .batch = b, .shard = 3
    {"8B 32k", TITAN("llama-3-8b", 32768, 1), .micro = 1, .tp = 1, .cp = 1, .pp = 1, .dp = 8, .printed = 83.9 GIB},
    {"8B 64k cp 2", TITAN("llama-3-8b", 65536, 1), .micro = 1, .tp = 1, .cp = 2, .pp = 1, .dp = 4, .printed = 84.2 GIB},
    {"8B 128k cp 4", TITAN("llama-3-8b", 131072, 1), .micro = 1, .tp = 1, .cp = 4, .pp = 1, .dp = 2,
     .printed = 84.0 GIB},
    {"8B 256k cp 8", TITAN("llama-3-8b", 262144, 1), .micro = 1, .tp = 1, .cp = 8, .pp = 1, .dp = 1,
     .printed = 84.5 GIB},
    {"70B tp 8, 256", TITAN("llama-3-70b", 8192, 16), .micro = 1, .tp = 8, .sp = true, .cp = 1, .pp = 1, .dp = 32,
     .printed = 71.9 GIB},
    {"70B async tp, 256", TITAN("llama-3-70b", 8192, 16), .micro = 1, .tp = 8, .sp = true, .cp = 1, .pp = 1, .dp = 32,
     .printed = 67.6 GIB},
    {"405B 1f1b, 512", TITAN("llama-3.1-405b", 8192, 4), .micro = 8, .tp = 8, .sp = true, .cp = 1, .pp = 8, .dp = 8,
     .printed = 82.5 GIB, .why = "what stages hold for each other is not counted; the same run interleaved holds 72.7"},
    {"405B interleaved", TITAN("llama-3.1-405b", 8192, 4), .micro = 8, .tp = 8, .sp = true, .cp = 1, .pp = 8, .dp = 8,
     .chunks = 2, .printed = 72.7 GIB},
    {"405B 32k", TITAN("llama-3.1-405b", 32768, 1), .micro = 8, .tp = 8, .sp = true, .cp = 1, .pp = 8, .dp = 8,
     .printed = 75.3 GIB},
    {"405B 64k cp 2", TITAN("llama-3.1-405b", 65536, 1), .micro = 8, .tp = 8, .sp = true, .cp = 2, .pp = 8, .dp = 4,
     .printed = 75.9 GIB},
    {"405B 128k cp 4", TITAN("llama-3.1-405b", 131072, 1), .micro = 8, .tp = 8, .sp = true, .cp = 4, .pp = 8, .dp = 2,
     .printed = 77.1 GIB},
    {"405B 256k cp 8", TITAN("llama-3.1-405b", 262144, 1), .micro = 8, .tp = 8, .sp = true, .cp = 8, .pp = 8, .dp = 1,
     .printed = 84.9 GIB, .why = "buffers of context parallel, whose size grows with cp, are not counted"},
#undef TITAN
/* torchtitan, benchmarks/llama3_8b_h200_2025-06_torchtitan.md; pytorch/torchtitan issue 929 and pull request
     * 1884 */
#define TITAN(as_, p, b, n)                                                                                        \
    .as = as_, .model = "llama-3-8b", .recipe = "bf16", .policy = p, .seq = 8192, .batch = b, .micro = 1, .tp = 1, \
    .pp = 1, .dp = n, .shard = 3
    {"8B fp8, 32 H200", TITAN("pytorch-fsdp-compiled", "selective", 2, 32), .cp = 1, .printed = 47.96 GIB},
    {"8B fp8, 64 H200", TITAN("pytorch-fsdp-compiled", "selective", 2, 64), .cp = 1, .printed = 46.97 GIB},
    {"8B compiled, batch 1", TITAN("pytorch-fsdp-blocks", "selective", 1, 8), .cp = 1, .printed = 47.65 GIB},
    {"8B full cp 2, 4", TITAN("pytorch-fsdp", "full", 1, 2), .cp = 2, .printed = 44.84 GIB},
#undef TITAN
/* NVIDIA/Megatron-LM, tests/functional_tests/test_cases/gpt/gpt3_7b_*_memory_speed: mem-max-allocated-bytes on
     * H100 */
#define MCORE                                                                                                        \
    .as = "megatron", .model = "gpt2 4096 32 32 131072 8", .recipe = "bf16", .policy = "none", .seq = 8192, .cp = 1, \
    .shard = 1, .dropout = 0.1, .is_allocated = true
    {"7B tp 4", MCORE, .batch = 2, .micro = 2, .tp = 4, .pp = 1, .dp = 2, .printed = 57143791616.0},
    {"7B pp 4", MCORE, .batch = 1, .micro = 4, .tp = 1, .pp = 4, .dp = 2, .chunks = 8, .printed = 60518293504.0},
/* BigScience, tr11-176B-ml chronicles-prequel: by nvidia-smi */
#define BLOOM(L, r)                                                                                                 \
    .as = "megatron-deepspeed", .model = "gpt2 14336 112 " L " 250880", .recipe = r, .policy = "full", .seq = 2048, \
    .cp = 1
    {"181B mbs 1", BLOOM("72", "fp16"), .batch = 1, .micro = 512, .tp = 8, .pp = 12, .dp = 4, .shard = 1,
     .printed = 29 GB},
    {"181B mbs 2", BLOOM("72", "fp16"), .batch = 2, .micro = 256, .tp = 8, .pp = 12, .dp = 4, .shard = 1,
     .printed = 37 GB},
    {"181B mbs 4", BLOOM("72", "fp16"), .batch = 4, .micro = 128, .tp = 8, .pp = 12, .dp = 4, .shard = 1,
     .printed = 49 GB},
    {"181B mbs 8", BLOOM("72", "fp16"), .batch = 8, .micro = 64, .tp = 8, .pp = 12, .dp = 4, .shard = 1,
     .printed = 69 GB},
    {"181B pp 6 mbs 1", BLOOM("72", "fp16"), .batch = 1, .micro = 256, .tp = 8, .pp = 6, .dp = 8, .shard = 1,
     .printed = 38 GB},
    {"181B pp 6 mbs 2", BLOOM("72", "fp16"), .batch = 2, .micro = 128, .tp = 8, .pp = 6, .dp = 8, .shard = 1,
     .printed = 44 GB},
    {"181B pp 6 mbs 4", BLOOM("72", "fp16"), .batch = 4, .micro = 64, .tp = 8, .pp = 6, .dp = 8, .shard = 1,
     .printed = 56 GB},
    {"181B pp 2", BLOOM("72", "fp16"), .batch = 1, .micro = 85, .tp = 8, .pp = 2, .dp = 24, .shard = 1,
     .printed = 65 GB},
    {"181B without ZeRO", BLOOM("72", "fp16"), .batch = 2, .micro = 256, .tp = 8, .pp = 12, .dp = 4, .printed = 72 GB,
     .why = "without ZeRO the fp16 optimizer also keeps gradients in f32"},
    {"176B tp 4 mbs 2", BLOOM("70", "bf16"), .batch = 2, .micro = 128, .tp = 4, .pp = 12, .dp = 8, .shard = 1,
     .printed = 59 GB},
    {"176B tp 4 mbs 4", BLOOM("70", "bf16"), .batch = 4, .micro = 64, .tp = 4, .pp = 12, .dp = 8, .shard = 1,
     .printed = 73 GB},
    {"176B tp 8 mbs 2", BLOOM("70", "bf16"), .batch = 2, .micro = 256, .tp = 8, .pp = 12, .dp = 4, .shard = 1,
     .printed = 40 GB},
/* nanotron/old_bench, llama-1B: peak_allocated_MiB */
#define NANO                                                                                                         \
    .as = "megatron", .model = "llama-3.2-1b", .recipe = "bf16", .policy = "none", .seq = 4096, .batch = 8, .cp = 1, \
    .sp = true, .is_allocated = true,                                                                                \
    .why = "nanotron is not Megatron: its loss keeps more copies of the logits, and its model is not published"
    {"nanotron dp2 tp4", NANO, .micro = 64, .tp = 4, .pp = 1, .dp = 2, .printed = 25808 MIB},
    {"nanotron tp4 pp2", NANO, .micro = 128, .tp = 4, .pp = 2, .dp = 1, .printed = 25707 MIB},
    {"nanotron tp8", NANO, .micro = 128, .tp = 8, .pp = 1, .dp = 1, .printed = 16891 MIB},
    {"nanotron tp8 pp2", NANO, .micro = 128, .tp = 8, .pp = 2, .dp = 1, .printed = 16550 MIB},
#define ONE .micro = 1, .tp = 1, .cp = 1, .pp = 1, .dp = 1
/* karpathy/llm.c: a log of 124M (weights, gradients, activations, moments, master copy); issue 478; pull request
     * 676 */
#define LLMC(m, b, p, mib) \
    .as = "llm.c", .model = m, .recipe = "bf16", .policy = p, .seq = 1024, .batch = b, ONE, .printed = (mib)MIB
    {"llm.c 124M, -b 56 -r 1", LLMC("gpt2-124m", 56, "selective", 2 * 237 + 18564 + 3 * 474)},
    {"llm.c 124M, -b 4 -r 1", LLMC("gpt2-124m", 4, "selective", 2 * 237 + 1439 + 30 + 3 * 474)},
    {"llm.c 124M, -b 4 -r 2", LLMC("gpt2-124m", 4, "full", 2 * 237 + 1307 + 30 + 3 * 474)},
    {"llm.c 350M, -b 20 -r 2", LLMC("gpt2-350m", 20, "full", 12042 + 354.8 * 16 / 1.048576)},
/* IST-DASLab/llmq, README.md: [Allocator State], and "from 4.5 GiB to 9 GiB" with --recompute-swiglu */
#define LLMQ(p, mib)                                                                                   \
    .as = "llmq", .model = "qwen2.5-0.5b", .recipe = "fp8", .policy = p, .seq = 1024, .batch = 8, ONE, \
    .printed = (mib)MIB
    {"llmq 0.5B", LLMQ("full", 3 * 942 + 4505 + 682 + 601)},
    {"llmq 0.5B --recompute-swiglu", LLMQ("selective", 3 * 942 + 9 * 1024 + 682 + 601)},
    /* discuss.huggingface.co, topic 172332: gpt2 in f32, 8 x 512 tokens */
    {"Trainer, gpt2", .as = "hf-trainer", .model = "gpt2-124m", .recipe = "fp32", .policy = "none", .seq = 512,
     .batch = 8, ONE, .is_allocated = true, .dropout = 0.1, .printed = 8 GIB},
/* measured on one H200: PyTorch 2.11, torch.compile, autocast to bf16, fused AdamW */
#define COMPILED(m, b, s, gib)                                                                              \
    .as = "hf-trainer-compiled", .model = m, .recipe = "bf16", .policy = "none", .seq = s, .batch = b, ONE, \
    .is_allocated = true, .printed = gib GIB
    {"compiled 124M, 64", COMPILED("gpt2-124m", 64, 1024, 28.5)},
    {"compiled 124M, 32", COMPILED("gpt2-124m", 32, 1024, 15.1)},
    {"compiled 350M, 32", COMPILED("gpt2-350m", 32, 1024, 35.1)},
    {"compiled 1.5B, 16", COMPILED("gpt2-1558m", 16, 1024, 64.6)},
    {"compiled Llama 1.08B", COMPILED("llama", 16, 2048, 60.7)},
};
enum { N_PEAKS = sizeof peaks / sizeof *peaks };

static tl_model_config peak_config(const struct peak_row *r) {
    tl_model_config c;
    int64_t v[5] = {0};
    if (tl_model_preset(r->model, &c)) return c;
    tl_error_clear();
    if (!strcmp(r->model, "llama")) { /* the one of the measurement */
        assert_true(tl_model_preset("llama-3.2-1b", &c));
        c.vocabulary = 50304;
        return c;
    }
    assert_true(tl_model_preset("gpt2-124m", &c));
    const int n = sscanf(r->model, "gpt2 %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64, &v[0], &v[1], &v[2],
                         &v[3], &v[4]);
    assert_true(n >= 4);
    c.channels = v[0], c.n_heads = v[1], c.n_layers = v[2], c.vocabulary = v[3];
    c.head_size = v[0] / v[1], c.n_kv_heads = v[4] ? v[4] : v[1], c.ff = 4 * v[0], c.context = r->seq;
    c.is_tied = !v[4]; /* Megatron's 7B has a head of its own */
    return c;
}

static void peaks_of_other_frameworks(void **state) {
    (void)state;
    int n_near = 0;
    for (int i = 0; i < N_PEAKS; i++) {
        const struct peak_row *r = &peaks[i];
        const tl_model_config c = peak_config(r);
        struct settings s = settings_default();
        assert_true(settings_set(&s, "recipe", r->recipe) && settings_set(&s, "checkpointing", r->policy));
        s.seq = r->seq, s.batch = r->batch * r->dp, s.accum = r->micro, s.dropout = r->dropout;
        const struct layout l = {.tp = r->tp,
                                 .cp = r->cp,
                                 .pp = r->pp,
                                 .dp = r->dp,
                                 .sp = r->sp,
                                 .chunks = r->chunks,
                                 .shard = (enum shard_mode)r->shard,
                                 .schedule = r->chunks > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B};
        struct framework_held held;
        const struct framework *f = framework_find(r->as, r->recipe);
        if (!f || !framework_price(f, &c, &s, &l, &held)) fail_msg("%s: %s", r->name, tl_error_message());
        const double bytes = (double)(r->is_allocated ? held.held : held.total), error = bytes / r->printed - 1;
        print_message("    %-28s %-22s %7.2f GiB, printed %7.2f: %+5.1f %%%s%s\n", r->name, r->as, bytes / (1 GIB),
                      r->printed / (1 GIB), 100 * error, fabs(error) > 0.1 ? ": " : "",
                      fabs(error) > 0.1 && r->why ? r->why : "");
        n_near += fabs(error) <= 0.1;
        if ((fabs(error) > 0.1) != (r->why != NULL))
            fail_msg("%s: %+.1f %%, and a reason is %s", r->name, 100 * error, r->why ? "given" : "missing");
    }
    print_message("    %d of %d within a tenth\n", n_near, N_PEAKS);
    expect_true(n_near >= 0.85 * N_PEAKS);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(llm_foundry_on_a100),
                                       TEST(llmq_in_bf16_and_fp8),
                                       TEST(rates_of_nvidia_and_torchtitan),
                                       TEST(maxtext_on_tpu),
                                       TEST(expected_shares_are_medians_of_rows),
                                       TEST(large_runs),
                                       TEST(peaks_of_other_frameworks)};
    return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}

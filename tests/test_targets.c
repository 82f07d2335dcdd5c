/* Targets: every GPU is priced as itself, and products that a target cannot compute are emulated or refused, in price
 * and run alike. */
#include "support/check.h"

#include <stdio.h>
#include <string.h>

#include "account/ledger.h"
#include "device/cuda/rules.h"
#include "device/devices.h"
#include "plan/plan_target.h"
#include "step/recipe.h"

#define MIB ((uint64_t)1 << 20)

static const struct target *target(const char *name) {
    const struct target *t = target_find(name);
    if (!t) fail_msg("there is no target %s", name);
    return t;
}

static void figures_follow_from_the_compute_capability(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int capability;
        uint64_t workspace_bytes;
        bool has_bf16, has_f8;
    } rows[] = {{"t4", 75, 4 * MIB, false, false},       {"a100-40", 80, 4 * MIB, true, false},
                {"a100-80", 80, 4 * MIB, true, false},   {"a10", 86, 4 * MIB, true, false},
                {"rtx-3090", 86, 4 * MIB, true, false},  {"orin-64", 87, 4 * MIB, true, false},
                {"l4", 89, 4 * MIB, true, true},         {"l40s", 89, 4 * MIB, true, true},
                {"rtx-4090", 89, 4 * MIB, true, true},   {"h100", 90, 32 * MIB, true, true},
                {"h100-pcie", 90, 32 * MIB, true, true}, {"h200", 90, 32 * MIB, true, true},
                {"b200", 100, 32 * MIB, true, true},     {"rtx-5090", 120, 12 * MIB, true, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct target *t = target(rows[i].name);
        expect_equal(t->capability, rows[i].capability);
        expect_equal(t->gemm_workspace_bytes, rows[i].workspace_bytes);
        expect_equal(target_has_native(t, TL_BF16), rows[i].has_bf16);
        expect_equal(target_has_native(t, TL_F8E4M3), rows[i].has_f8);
        expect_equal(t->origin, strcmp(t->name, "h200") ? TARGET_SHEET : TARGET_MEASURED);
    }
}

static void a_card_is_found_by_its_name_and_memory(void **state) {
    (void)state;
    struct target own;
    char name[32];
    struct cuda_card card = {"NVIDIA H200", 90, 150109880320};
    expect_true(cuda_target_of(&card, &own, name) == target("h200"));
    card = (struct cuda_card){"NVIDIA A100-PCIE-40GB", 80, 42000000000};
    expect_true(cuda_target_of(&card, &own, name) == target("a100-40"));
    card = (struct cuda_card){"NVIDIA A100", 80, 42000000000}; /* the beginning of a name is not the name */
    expect_true(cuda_target_of(&card, &own, name) == &own);
    card = (struct cuda_card){"NVIDIA H200", 90, (uint64_t)18 << 30}; /* an eighth of the card */
    expect_true(cuda_target_of(&card, &own, name) == &own);
    expect_text(own.name, "h200-18g");
    expect_equal(own.memory_bytes, (uint64_t)18 << 30);
}

static void a_card_in_no_table_is_what_its_driver_says(void **state) {
    (void)state;
    struct target own;
    char name[32];
    const struct cuda_card card = {"NVIDIA RTX 5000 Ada Generation", 89, 50000000000};
    const struct target *t = cuda_target_of(&card, &own, name);
    expect_text(t->name, "rtx-5000-ada-generatio");
    expect_text(t->chip, card.name);
    expect_equal(t->memory_bytes, 50000000000);
    expect_equal(t->gemm_workspace_bytes, target("l40s")->gemm_workspace_bytes);
    expect_equal(t->native, target("l40s")->native);
    expect_equal(t->origin, TARGET_DRIVER);
    expect_true(t->rules == target("h200")->rules);
}

static void a_card_runs_only_as_what_it_can_be(void **state) {
    (void)state;
    const struct cuda_card h200 = {"NVIDIA H200", 90, 150109880320}, t4 = {"Tesla T4", 75, 15634268160};
    const struct cuda_card large = {"NVIDIA Old", 80, 200000000000};
    char error[400] = "";
    static const char *const smaller[] = {"a100-40", "a100-80", "t4", "l4", "rtx-5090", "h100"};
    for (int i = 0; i < 6; i++) expect_true(cuda_card_can_be(&h200, target(smaller[i]), error));
    expect_true(!cuda_card_can_be(&h200, target("b200"), error));
    expect_true(strstr(error, "b200 has 191501434880 bytes of memory, and this card, NVIDIA H200, has 150109880320"));
    expect_true(!cuda_card_can_be(&large, target("h200"), error));
    expect_true(strstr(error, "h200 computes fp8 natively, and this card, NVIDIA Old of compute capability 8.0"));
    expect_true(!cuda_card_can_be(&t4, target("cpu"), error));
}

static void names_of_devices_may_name_a_target(void **state) {
    (void)state;
    expect_text(tl_device_name(device_stand_in("cuda:0@t4")), "meta:t4");
    expect_text(tl_device_name(device_stand_in("cuda@a100-40")), "meta:a100-40");
    expect_text(tl_device_name(device_stand_in("cpu")), "meta:cpu");
    expect_text(tl_device_name(device_stand_in("l4")), "meta:l4");
    expect_text(tl_device_name(device_stand_in("meta:h200")), "meta:h200");
    expect_true(!device_stand_in("cuda:0@abacus"));
    expect_error(TL_ERROR_DEVICE, "meta:abacus: no such target");
    expect_true(!tl_device_find("cpu@h200"));
    expect_error(TL_ERROR_DEVICE, "cpu@h200: this machine's cpu cannot run as h200");
    expect_true(!tl_device_find("cuda:99999999999999999999"));
    expect_error(TL_ERROR_DEVICE, "no such device");
}

/* The workspace of one product, and of attention's gradient, at the peak. */
static uint64_t workspace_of_product(const char *device) {
    tl_device *d = tl_device_find(device);
    tl_scope scope = tl_scope_begin();
    tl_tensor *a = tl_zeros(TL_SHAPE(64, 64), TL_BF16, d);
    tl_ledger *ledger = tl_ledger_begin("product");
    tl_matmul(a, a);
    tl_ledger_end(ledger);
    uint64_t bytes = tl_ledger_peak(ledger, d, TL_WORKSPACE);
    tl_ledger_free(ledger);
    tl_scope_end(scope);
    return bytes;
}

static void products_get_the_workspace_of_their_target(void **state) {
    (void)state;
    expect_equal(workspace_of_product("meta:h200"), 32 * MIB);
    expect_equal(workspace_of_product("meta:a100-80"), 4 * MIB);
    expect_equal(workspace_of_product("meta:rtx-5090"), 12 * MIB);
    expect_equal(workspace_of_product("meta:cpu"), 0);
}

static uint64_t workspace_of_attention(const char *device, int64_t D) {
    tl_device *d = tl_device_find(device);
    tl_scope scope = tl_scope_begin();
    tl_tensor *q = tl_zeros(TL_SHAPE(2, 128, 2, D), TL_F16, d);
    tl_ledger *ledger = tl_ledger_begin("attention");
    tl_attention(q, q, q, NULL, NULL);
    tl_ledger_end(ledger);
    uint64_t bytes = tl_ledger_peak(ledger, d, TL_WORKSPACE);
    tl_ledger_free(ledger);
    tl_scope_end(scope);
    return bytes;
}

/* 256 bytes are the plan's; our own kernels need none. */
static void cudnn_is_used_where_the_capability_allows_it(void **state) {
    (void)state;
    expect_equal(workspace_of_attention("meta:h200", 64), 256);
    expect_equal(workspace_of_attention("meta:a100-40", 64), 256);
    expect_equal(workspace_of_attention("meta:t4", 64), 0);
    expect_equal(workspace_of_attention("meta:h200", 256), 256);
    expect_equal(workspace_of_attention("meta:a100-40", 256), 0);
}

static void settings_fill(struct settings *s, const char *device, const char *recipe) {
    char text[300];
    snprintf(
        text, sizeof text,
        "{\"model\": \"tiny-gpt2\", \"batch\": 2, \"seq\": 32, \"steps\": 4, \"device\": \"%s\", \"recipe\": \"%s\"}",
        device, recipe);
    *s = settings_default();
    if (!settings_take(s, text)) fail_msg("%s", tl_error_message());
}

static void what_a_target_cannot_compute_is_refused_or_emulated(void **state) {
    (void)state;
    struct settings s;
    struct plan_target t;
    static struct price price;
    expect_true(plan_target_find(&t, "t4"));
    settings_fill(&s, "t4", "bf16");
    expect_true(!price_make(&price, &s, t.device, plan_target_limit(&t)));
    expect_error(TL_ERROR_USE, "recipe: bf16 multiplies in bf16, which t4 (compute capability 7.5) does not");
    settings_fill(&s, "t4", "fp16");
    expect_true(price_make(&price, &s, t.device, plan_target_limit(&t)));
    price_free(&price);
    expect_text(recipe_emulated(recipe_find("fp8"), target("a100-80")), "fp8");
    expect_true(!recipe_emulated(recipe_find("fp8"), target("l4")));
    expect_text(recipe_emulated(recipe_find("fp4"), target("b200")), "fp4"); /* there is no kernel for it yet */
}

static uint64_t reserved_of(const char *device, const char *recipe) {
    struct settings s;
    struct plan_target t;
    static struct price price;
    settings_fill(&s, device, recipe);
    if (!plan_target_find(&t, device) || !price_make(&price, &s, t.device, plan_target_limit(&t)))
        fail_msg("%s", tl_error_message());
    uint64_t bytes = price.held_bytes;
    price_free(&price);
    return bytes;
}

static void prices_say_which_card_they_are_of(void **state) {
    (void)state;
    struct plan_target t;
    expect_true(plan_target_find(&t, "A100-80"));
    expect_text(t.device->target->name, "a100-80");
    expect_text(plan_target_origin(&t), "never run");
    expect_equal(t.memory_bytes, 81251 * MIB);
    expect_true(plan_target_find(&t, "H200"));
    expect_text(plan_target_origin(&t), "measured");
    expect_true(plan_target_find(&t, "RTX 4090")); /* no 22.35 GiB, which are 24 GB of 10^9 bytes */
    expect_equal(t.memory_bytes, 24202 * MIB);
    expect_true(plan_target_find(&t, "MI300X"));
    expect_text(plan_target_origin(&t), "assumed");
    expect_true(plan_target_find(&t, "meta:orin-64"));
    expect_true(!t.chip && t.memory_bytes == 62800 * MIB);
    expect_true(reserved_of("A100-80", "bf16") < reserved_of("H200", "bf16")); /* by the workspace of products */
    expect_true(reserved_of("a100-40", "fp8") != reserved_of("l4", "fp8"));    /* emulated there, native here */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(figures_follow_from_the_compute_capability),
        TEST(a_card_is_found_by_its_name_and_memory),
        TEST(a_card_in_no_table_is_what_its_driver_says),
        TEST(a_card_runs_only_as_what_it_can_be),
        TEST(names_of_devices_may_name_a_target),
        TEST(products_get_the_workspace_of_their_target),
        TEST(cudnn_is_used_where_the_capability_allows_it),
        TEST(what_a_target_cannot_compute_is_refused_or_emulated),
        TEST(prices_say_which_card_they_are_of),
    };
    return cmocka_run_group_tests_name("targets", tests, NULL, NULL);
}

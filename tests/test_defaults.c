/* Defaults that fit the model and the device: the rules of step/defaults.h. */
#include "step/defaults.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "support/check.h"

static struct settings s;
#define GiB ((uint64_t)1 << 30)

/* The settings of these flags, "name value ...", fitted to a device. */
static const char *chosen_for(const char *flags, const char *device, uint64_t memory_bytes, int64_t n_dp) {
    static char text[256];
    char copy[256], *at = copy;
    s = settings_default();
    snprintf(copy, sizeof copy, "%s", flags);
    for (char *name; (name = strsep(&at, " "));) assert_true(settings_set(&s, name, strsep(&at, " ")));
    const struct defaults_machine machine = {tl_device_find(device), memory_bytes, n_dp};
    defaults_choose(&s, &machine);
    assert_int_equal(tl_error(), TL_OK);
    return settings_chosen(&s, true, text, sizeof text);
}

static void small_models_keep_the_defaults_of_the_table(void **state) {
    (void)state;
    static const char *const models[] = {"nano", "tiny", "tiny-gpt2", "small"};
    for (int i = 0; i < 4; i++) {
        char flags[64];
        snprintf(flags, sizeof flags, "model %s", models[i]);
        assert_string_equal(chosen_for(flags, "meta", 4 * GiB, 1), "");
        assert_int_equal(s.batch, 2);
        assert_int_equal(s.seq, 512);
    }
}

static void large_models_get_what_fits_them(void **state) {
    (void)state;
    assert_string_equal(chosen_for("model gpt2-124m", "meta:h200", 139 * GiB, 1),
                        "--recipe bf16 --batch 8 --seq 1024 --lr 0.0006 --min-lr 0.1 --beta1 0.9");
    assert_string_equal(chosen_for("model llama-3-8b", "meta:h200", 139 * GiB, 1),
                        "--recipe bf16 --batch 1 --seq 4096 --lr 0.00015 --min-lr 0.1 --beta1 0.9");
    /* a memory that is not known holds everything: 8,192 tokens */
    assert_string_equal(chosen_for("model llama-3-8b", "meta:h200", 0, 1),
                        "--recipe bf16 --batch 2 --seq 4096 --lr 0.00015 --min-lr 0.1 --beta1 0.9");
    /* one sequence does not fit: recompute */
    assert_string_equal(
        chosen_for("model llama-3-8b", "meta:h200", 122 * GiB, 1),
        "--recipe bf16 --batch 1 --seq 4096 --lr 0.00015 --min-lr 0.1 --beta1 0.9 --checkpointing full");
    assert_string_equal(chosen_for("model llama-3-70b", "meta:h200", 139 * GiB, 32),
                        "--recipe bf16 --batch 32 --seq 4096 --lr 7.2e-05 --min-lr 0.1 --beta1 0.9");
    assert_string_equal(chosen_for("model gpt2-124m", "meta:t4", 14 * GiB, 1),
                        "--recipe fp16 --batch 4 --seq 1024 --lr 0.0006 --min-lr 0.1 --beta1 0.9");
}

static void given_settings_stay(void **state) {
    (void)state;
    assert_string_equal(chosen_for("model gpt2-124m recipe fp32 lr 0.004", "meta:h200", 139 * GiB, 1),
                        "--batch 8 --seq 1024 --min-lr 0.1 --beta1 0.9");
    assert_string_equal(chosen_for("model gpt2-124m seq 256 beta1 0.7", "meta:h200", 139 * GiB, 1),
                        "--recipe bf16 --batch 32 --lr 0.0006 --min-lr 0.1");
    /* a batch that was given is not made to fit by recomputing */
    chosen_for("model llama-3-8b batch 64", "meta:h200", 139 * GiB, 1);
    assert_int_equal(s.batch, 64);
    assert_string_equal(settings_choice(&s, "checkpointing"), "none");
    assert_string_equal(chosen_for("model gpt2-124m checkpointing selective batch 4", "meta:h200", GiB, 1),
                        "--recipe bf16 --seq 1024 --lr 0.0006 --min-lr 0.1 --beta1 0.9");
}

static void sequences_are_no_longer_than_the_context(void **state) {
    (void)state;
    char path[64] = "/tmp/tally-defaults-XXXXXX", flags[96];
    tl_model_config c;
    int fd = mkstemp(path);
    assert_true(fd >= 0 && tl_model_preset("nano", &c));
    close(fd);
    c.context = 128;
    assert_true(tl_model_config_write(&c, path));
    snprintf(flags, sizeof flags, "model %s", path);
    assert_string_equal(chosen_for(flags, "meta", 4 * GiB, 1), "--seq 128");
    snprintf(flags, sizeof flags, "model %s seq 512", path);
    assert_string_equal(chosen_for(flags, "meta", 4 * GiB, 1), ""); /* the price refuses it, with words */
    unlink(path);
}

static void wrong_settings_are_left_to_those_who_use_them(void **state) {
    (void)state;
    assert_string_equal(chosen_for("model nonsense", "meta", GiB, 1), "");
    assert_string_equal(chosen_for("model gpt2-124m channels 700", "meta", GiB, 1), "");
    chosen_for("model gpt2-124m memory-limit nonsense", "meta", GiB, 1);
}

static void a_run_that_resumes_keeps_its_own(void **state) {
    (void)state;
    static struct settings then;
    char text[256];
    chosen_for("model gpt2-124m", "meta:h200", GiB * 139, 1);
    then = s;
    then.batch = 4;
    s = settings_default();
    settings_set(&s, "lr", "0.001");
    defaults_keep(&s, &then);
    assert_string_equal(settings_chosen(&s, true, text, sizeof text),
                        "--recipe bf16 --batch 4 --seq 1024 --min-lr 0.1 --beta1 0.9");
    assert_string_equal(settings_chosen(&s, false, text, sizeof text), "--recipe bf16 --batch 4 --seq 1024");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(small_models_keep_the_defaults_of_the_table),
        TEST(large_models_get_what_fits_them),
        TEST(given_settings_stay),
        TEST(sequences_are_no_longer_than_the_context),
        TEST(wrong_settings_are_left_to_those_who_use_them),
        TEST(a_run_that_resumes_keeps_its_own),
    };
    return cmocka_run_group_tests_name("defaults", tests, NULL, NULL);
}

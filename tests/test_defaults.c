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

static char data_path[64];

/* The prompt that is chosen for this data, with more flags, "name value ...". */
static const char *prompt_for(const char *data, size_t bytes, const char *flags) {
    char all[256];
    snprintf(data_path, sizeof data_path, "/tmp/tally-prompt-XXXXXX");
    int fd = mkstemp(data_path);
    assert_true(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    close(fd);
    snprintf(all, sizeof all, "data %s val-share 0.5%s%s", data_path, *flags ? " " : "", flags);
    assert_string_equal(chosen_for(all, "meta", GiB, 1), ""); /* the model's defaults do not name it */
    unlink(data_path);
    return s.prompt;
}

/* Of data whose second half, the held-out part, is this text. */
static const char *prompt_of(const char *text) {
    char data[256];
    size_t n = strlen(text);
    memset(data, 'x', n);
    memcpy(data + n, text, n);
    return prompt_for(data, 2 * n, "");
}

static void prompts_are_words_of_the_held_out_data(void **state) {
    (void)state;
    assert_string_equal(prompt_of("cut short.\n\nHeld out: these five words"), "Held out: these five");
    assert_string_equal(prompt_of("cut here\nHeld out, here, again\nand here"), "Held out, here, again");
    assert_string_equal(prompt_of("cut More, and more; more"), "More, and more; more");
    assert_string_equal(prompt_of("cut\nhere\r\n\r\n A B.\tC\n"), "A B");
    assert_string_equal(prompt_of("cut\n\nHeld out,\nhere"), "Held out");
    assert_string_equal(prompt_of("cut\n\n...\n"), "."); /* nothing but stops */
    /* no blanks: whole characters, also where the part begins inside of one */
    assert_string_equal(prompt_of("\x80\x80\u56db\u4e94"), "\u56db\u4e94");
    assert_string_equal(prompt_of("cut\n\nDonaudampfschifffahrtsgesellschaft"), "Donaudampfschifffahrtsgesellscha");
    assert_string_equal(prompt_of("cut\n\nA Donaudampfschifffahrtsgesellschaft"), "A");
}

static void prompts_stay_where_there_are_no_words(void **state) {
    (void)state;
    assert_string_equal(prompt_of("      \n\n     \n\n  "), "Once upon a time");
    assert_string_equal(prompt_for("text\n\n\0\1\2\3", 10, ""), "Once upon a time");
    assert_string_equal(prompt_for("Trained.\n\nHeld out here", 23, "sample-tokens 0"), "Once upon a time");
    assert_string_equal(prompt_for("Trained.\n\nHeld out here", 23, "prompt Mine"), "Mine");
    assert_string_equal(prompt_for("Trained.\n\nHeld out here", 23, "val-data /nowhere"), "Once upon a time");
    assert_string_equal(prompt_for("Trained.\n\nHeld out here", 23, "val-share 0"), "Trained");
}

/* A file of tokens says where documents begin, or the setting does; a tokenizer makes text of them. */
static void prompts_of_tokens_are_decoded(void **state) {
    (void)state;
    static const char text[] = "Trained on this. And this.Held out, here.";
    char path[64] = "/tmp/tally-prompt-XXXXXX", flags[128];
    int32_t ids[sizeof text - 1];
    int fd = mkstemp(path);
    close(fd);
    for (size_t i = 0; i < sizeof text - 1; i++) ids[i] = text[i];
    tl_token_writer *w = tl_token_writer_new(path, 1, 256, TL_BYTES_HASH);
    assert_true(w && tl_token_writer_document(w) && tl_token_writer_add(w, ids, 26) && tl_token_writer_document(w) &&
                tl_token_writer_add(w, ids + 26, 15) && tl_token_writer_commit(w));
    snprintf(flags, sizeof flags, "data %s val-share 0.5", path);
    chosen_for(flags, "meta", GiB, 1);
    assert_string_equal(s.prompt, "Held out, here");
    w = tl_token_writer_new(path, 1, 256, TL_BYTES_HASH);
    assert_true(w && tl_token_writer_add(w, ids, 41) && tl_token_writer_commit(w));
    snprintf(flags, sizeof flags, "data %s val-share 0.5 document-token %d", path, 'H');
    chosen_for(flags, "meta", GiB, 1);
    assert_string_equal(s.prompt, "Held out, here");
    w = tl_token_writer_new(path, 1, 256, 12345); /* a tokenizer that nobody knows */
    assert_true(w && tl_token_writer_add(w, ids, 41) && tl_token_writer_commit(w));
    snprintf(flags, sizeof flags, "data %s val-share 0.5", path);
    chosen_for(flags, "meta", GiB, 1);
    assert_string_equal(s.prompt, "Once upon a time");
    unlink(path);
}

static void stories_have_prompts_of_their_own(void **state) {
    (void)state;
    chosen_for("model nano", "meta", GiB, 1);
    assert_string_equal(s.prompt, "Once upon a time");
    chosen_for("seed 2", "meta", GiB, 1);
    assert_string_equal(s.prompt, "This is Bob, a");
    chosen_for("seed-data 2", "meta", GiB, 1);
    assert_string_equal(s.prompt, "This is Bob, a");
}

static void a_run_that_resumes_keeps_its_prompt(void **state) {
    (void)state;
    static struct settings then;
    then = settings_default(); /* a run of a version that chose none */
    s = settings_default();
    assert_true(settings_set(&s, "seed", "2"));
    defaults_keep(&s, &then);
    assert_string_equal(s.prompt, "Once upon a time");
    settings_choose(&then, "prompt", "Words of then");
    defaults_keep(&s, &then);
    assert_string_equal(s.prompt, "Words of then");
    assert_true(settings_set(&s, "prompt", "Mine"));
    defaults_keep(&s, &then);
    assert_string_equal(s.prompt, "Mine");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(small_models_keep_the_defaults_of_the_table),
        TEST(large_models_get_what_fits_them),
        TEST(given_settings_stay),
        TEST(sequences_are_no_longer_than_the_context),
        TEST(wrong_settings_are_left_to_those_who_use_them),
        TEST(a_run_that_resumes_keeps_its_own),
        TEST(prompts_are_words_of_the_held_out_data),
        TEST(prompts_stay_where_there_are_no_words),
        TEST(prompts_of_tokens_are_decoded),
        TEST(stories_have_prompts_of_their_own),
        TEST(a_run_that_resumes_keeps_its_prompt),
    };
    return cmocka_run_group_tests_name("defaults", tests, NULL, NULL);
}

/* Untrusted files, damaged at random: a model's config.json, settings, and the manifest of a checkpoint. Whatever is
 * in them, the outcome is a valid result or an error with a message; never a crash, and nothing is left behind.
 * 20,000 of each (4,000 under the sanitizers; TALLY_SOAK=100 makes a hundred times as many). */
#include "support/check.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/file.h"
#include "base/memory.h"
#include "train/checkpoint.h"
#include "step/settings.h"

/* tests/fuzz/fuzz_files.c searches further, where there is clang. */
enum { N_RUNS = IS_SANITIZED ? 4000 : 20000 };

static int n_runs(void) {
    const char *soak = getenv("TALLY_SOAK");
    return N_RUNS * (soak && atoi(soak) > 0 ? atoi(soak) : 1);
}

static uint64_t seed = 88172645463325252u;
static uint64_t draw(uint64_t n) { /* xorshift */
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % n;
}

/* Texts that are hard on a parser. */
static const char *const pieces[] = {"{",
                                     "}",
                                     "[",
                                     "]",
                                     ",",
                                     ":",
                                     "\"",
                                     "\\",
                                     "null",
                                     "true",
                                     "-1",
                                     "0",
                                     "1e308",
                                     "1e999",
                                     "NaN",
                                     "9223372036854775807",
                                     "18446744073709551616",
                                     "0.5",
                                     "\"x\"",
                                     "\xff",
                                     "\xc3\xa9",
                                     "{}",
                                     "[]",
                                     "\"\\u0000\"",
                                     "\n",
                                     " ",
                                     "\"../x\"",
                                     "1048576"};

/* A few bytes changed, removed, duplicated or inserted. */
static size_t damage(char *text, size_t n, size_t room) {
    for (uint64_t k = draw(4) + 1; k > 0; k--) {
        size_t at = (size_t)draw(n + 1), length = (size_t)draw(9) + 1;
        const char *piece = pieces[draw(sizeof pieces / sizeof *pieces)];
        switch (draw(4)) {
        case 0:
            if (at < n) text[at] = (char)draw(256);
            break;
        case 1:
            if (at + length > n) length = n - at;
            memmove(text + at, text + at + length, n - at - length);
            n -= length;
            break;
        case 2:
            length = strlen(piece);
            if (n + length > room) break;
            memmove(text + at + length, text + at, n - at);
            memcpy(text + at, piece, length);
            n += length;
            break;
        default:
            n = at;
        }
    }
    return n;
}

static const char *folder(void) { return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; }

static void put(const char *path, const char *text, size_t n) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fwrite(text, 1, n, file) == n);
    fclose(file);
}

/* Runs `check` on damaged copies of a text in a file. It returns whether the file was accepted. */
static void fuzz(const char *what, const char *text, const char *path, bool (*check)(const char *path)) {
    char copy[16384];
    size_t n = strlen(text);
    int accepted = 0, runs = n_runs();
    assert_true(n < sizeof copy / 2);
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    for (int i = 0; i < runs; i++) {
        memcpy(copy, text, n);
        put(path, copy, damage(copy, n, sizeof copy));
        bool ok = check(path);
        if (ok != (tl_error() == TL_OK) || (!ok && !*tl_error_message()))
            fail_msg("%s, run %d: %d and \"%s\"", what, i, ok, tl_error_message());
        accepted += ok;
        tl_error_clear();
    }
    tl_set_error_policy(policy);
    remove(path);
    print_message("    %s: %d damaged, %d accepted\n", what, runs, accepted);
    assert_true(accepted < runs);
}

static bool config_check(const char *path) {
    tl_model_config c;
    if (!tl_model_config_read(path, &c)) return false;
    assert_true(tl_model_config_check(&c) && tl_model_config_parameters(&c) > 0);
    return true;
}

static void configs_of_models(void **state) {
    (void)state;
    static const char *const names[] = {"llama-3.1-405b", "gpt2-124m", "qwen2.5-0.5b"};
    char path[64];
    snprintf(path, sizeof path, "%s/tally-fuzz-%d.json", folder(), (int)getpid());
    for (int i = 0; i < 3; i++) {
        tl_model_config c;
        size_t n;
        assert_true(tl_model_preset(names[i], &c) && tl_model_config_write(&c, path));
        char *text = file_get(path, 1 << 16, &n);
        fuzz(names[i], text, path, config_check);
        memory_free(text);
    }
}

static bool settings_file_check(const char *path) {
    struct settings s = settings_default();
    return settings_read(&s, path);
}

static void settings_of_runs(void **state) {
    (void)state;
    struct settings s = settings_default();
    char *text = settings_json(&s), path[64];
    snprintf(path, sizeof path, "%s/tally-fuzz-%d.json", folder(), (int)getpid());
    fuzz("settings", text, path, settings_file_check);
    free(text);
}

/* A manifest whose own checksum is right again after the damage: the reader must be safe without the checksum. */
static struct checkpoints all;
static bool manifest_check(const char *path) {
    size_t n;
    char *text = file_get(path, 1 << 16, &n);
    json_t *body = json_loadb(text, n, 0, NULL);
    char *compact = body ? json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (compact) {
        char *whole = malloc(strlen(compact) + 64);
        sprintf(whole, "{\"body\":%s,\"crc32c\":\"%08x\"}", compact, crc32c(0, compact, strlen(compact)));
        put(path, whole, strlen(whole));
        free(whole);
    }
    free(compact);
    json_decref(body);
    memory_free(text);
    struct checkpoint *c = checkpoint_open(&all, 7);
    if (c) assert_non_null(checkpoint_state(c));
    checkpoint_close(c);
    return c != NULL;
}

static void manifests_of_checkpoints(void **state) {
    (void)state;
    char path[160], root[64];
    size_t n;
    snprintf(root, sizeof root, "%s/tally-fuzz-XXXXXX", folder());
    assert_non_null(mkdtemp(root));
    tl_named_tensor x = {.name = "x", .tensor = tl_ones(TL_SHAPE(4), TL_F32, NULL)};
    struct trainer_part part = {.file = "model.safetensors", .tensors = &x, .n = 1};
    struct file_folder *run = file_folder_open(root);
    assert_true(run && checkpoints_open(&all, run, true) && checkpoint_save(&all, 7, &part, 1, "{}"));
    snprintf(path, sizeof path, "%s/checkpoints/step-000000000007/manifest.json", root);
    char *text = file_get(path, 1 << 16, &n), *body = strstr(text, "\"body\":") + 7,
         *end = strstr(body, "\"crc32c\": \"");
    for (char *next; (next = strstr(end + 1, "\"crc32c\": \""));) end = next; /* the manifest's own is the last */
    while (*end != ',') end--;
    *end = 0;
    fuzz("manifest", body, path, manifest_check);
    memory_free(text);
    checkpoints_close(&all);
    file_folder_close(run);
    snprintf(path, sizeof path, "rm -rf '%s'", root);
    assert_int_equal(system(path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(configs_of_models),
        TEST(settings_of_runs),
        TEST(manifests_of_checkpoints),
    };
    return cmocka_run_group_tests_name("fuzz_files", tests, NULL, NULL);
}

/* fuzz_files.c: any bytes as a file from outside, for libFuzzer (make fuzz).
 *
 * The first byte chooses the reader; the rest is the file. A reader gives a result and no error, or an error with words and no result;
 * everything else is a crash. The file is in memory (memfd), under the name that the system gives it.
 */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc.h"
#include "tally.h"
#include "train/checkpoint.h"
#include "train/kinds.h"
#include "train/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bool safetensors(const char *path) {
    tl_safetensors *file = tl_safetensors_open(path);
    for (int i = 0; file && i < tl_safetensors_count(file); i++) {
        tl_safetensors_info info;
        if (!tl_safetensors_info_at(file, i, &info)) abort();
        tl_tensor *x = info.dtype < TL_DTYPE_COUNT ? tl_safetensors_get(file, info.name) : NULL;
        if (x && tl_bytes(x) != info.bytes) abort();
        if (!x) tl_error_clear(); /* a type we have not, or two f4 in one byte */
    }
    tl_safetensors_close(file);
    return file != NULL;
}

static bool tokens(const char *path) {
    tl_token_info info;
    int32_t ids[4];
    tl_token_file *file = tl_token_file_open(path, TL_TOKENS_AUTO);
    if (!file) return false;
    if (!tl_token_file_info(file, &info) || info.count < 1) abort();
    if (!tl_token_file_read(file, ids, 0, 1) || !tl_token_file_read(file, ids, info.count - 1, 1)) tl_error_clear();
    tl_token_file_close(file);
    return true;
}

static bool config(const char *path) {
    tl_model_config c;
    if (!tl_model_config_read(path, &c)) return false;
    if (!tl_model_config_check(&c) || tl_model_config_parameters(&c) < 1) abort();
    return true;
}

static bool run_settings(const char *path) {
    struct settings s = settings_default();
    return settings_read(&s, path);
}

static bool kinds(const char *path) {
    struct kinds k;
    json_t *json = json_load_file(path, 0, NULL);
    if (!json) return tl_model_config_read(path, &(tl_model_config){0}); /* an error with words, as every reader has */
    bool ok = kinds_read(&k, json);
    if (ok) kinds_free(&k);
    json_decref(json);
    return ok;
}

/* The body of a manifest, with the checksum that belongs to it: the checksum must not be what keeps the reader safe. */
static bool manifest(const char *path) {
    static char root[64], file[128];
    if (!*root) {
        snprintf(root, sizeof root, "/dev/shm/tally-fuzz-%d", (int)getpid());
        snprintf(file, sizeof file, "%s/step-000000000007", root);
        if (mkdir(root, 0700) || mkdir(file, 0700)) abort();
        strcat(file, "/manifest.json");
    }
    json_t *body = json_load_file(path, 0, NULL);
    char *text = body ? json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    FILE *out = fopen(file, "wb");
    if (!out) abort();
    if (text) fprintf(out, "{\"body\":%s,\"crc32c\":\"%08x\"}", text, crc32c(0, text, strlen(text)));
    fclose(out);
    free(text);
    json_decref(body);
    struct checkpoint *c = checkpoint_open(root, 7);
    checkpoint_close(c);
    return c != NULL;
}

/* ---- What to begin with: whole files, in the folder that TALLY_FUZZ_SEEDS names ---- */

static void seed_put(const char *folder, int reader, int number, const char *from) {
    char path[512], buffer[1 << 14] = {(char)reader};
    FILE *in = fopen(from, "rb");
    size_t n = in ? 1 + fread(buffer + 1, 1, sizeof buffer - 1, in) : 0;
    snprintf(path, sizeof path, "%s/seed-%d-%d", folder, reader, number);
    FILE *out = n ? fopen(path, "wb") : NULL;
    if (!out || fwrite(buffer, 1, n, out) != n) abort();
    fclose(out);
    fclose(in);
    remove(from);
}

static void seed_text(const char *folder, int reader, int number, const char *text) {
    char from[512];
    snprintf(from, sizeof from, "%s/text", folder);
    FILE *out = fopen(from, "wb");
    if (!out || fputs(text, out) < 0) abort();
    fclose(out);
    seed_put(folder, reader, number, from);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static const char *const models[] = {"llama-3.1-405b", "gpt2-124m", "qwen2.5-0.5b"};
    const char *folder = getenv("TALLY_FUZZ_SEEDS"), *const names[] = {"a", "b"};
    char path[512];
    (void)argc, (void)argv;
    if (!folder) return 0;
    snprintf(path, sizeof path, "%s/file", folder);
    tl_tensor *x[] = {tl_ones(TL_SHAPE(2, 3), TL_F32, NULL), tl_ones(TL_SHAPE(4), TL_BF16, NULL)};
    if (!tl_safetensors_save(path, names, x, 2, names, names, 1)) abort();
    seed_put(folder, 0, 0, path);
    tl_token_writer *writer = tl_token_writer_new(path, 2, 1000, 5);
    if (!tl_token_writer_add(writer, (const int32_t[]){1, 2, 999, 4}, 4) || !tl_token_writer_commit(writer)) abort();
    seed_put(folder, 1, 0, path);
    for (int i = 0; i < 3; i++) {
        tl_model_config c;
        if (!tl_model_preset(models[i], &c) || !tl_model_config_write(&c, path)) abort();
        seed_put(folder, 2, i, path);
    }
    struct settings s = settings_default();
    char *text = settings_json(&s);
    seed_text(folder, 3, 0, text);
    free(text);
    seed_text(folder, 4, 0,
              "{\"step\":{\"count\":3,\"ledger\":{}},\"save\":{\"count\":1,\"ledger\":null,\"unplanned\":2}}");
    seed_text(
        folder, 5, 0,
        "{\"schema\":\"tally.checkpoint/1\",\"step\":7,\"block_bytes\":1048576,\"files\":[{\"name\":\"manifest.json\","
        "\"bytes\":3,\"crc32c\":[\"00000000\"]},{\"name\":\"state.json\",\"bytes\":0,\"crc32c\":[]}]}");
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static bool (*const readers[])(const char *) = {safetensors, tokens, config, run_settings, kinds, manifest};
    static int fd = -1;
    static char path[64];
    if (n < 1) return 0;
    if (fd < 0) {
        fd = memfd_create("file", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        tl_error_policy(TL_RETURN);
    }
    if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, data + 1, n - 1, 0) != (ssize_t)(n - 1)) abort();
    tl_scope scope = tl_scope_begin();
    bool ok = readers[data[0] % (sizeof readers / sizeof *readers)](path);
    if (ok != (tl_error() == TL_OK) || (!ok && strlen(tl_error_message()) < 10)) {
        fprintf(stderr, "reader %d: %d and \"%s\"\n", data[0], ok, tl_error_message());
        abort();
    }
    tl_error_clear();
    tl_scope_end(scope);
    return 0;
}

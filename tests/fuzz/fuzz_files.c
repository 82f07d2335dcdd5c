/* fuzz_files.c: any bytes as a file from outside, for libFuzzer (make fuzz).
 *
 * TALLY_FUZZ_READER names the reader; the input is the file. A reader gives a result and no error, or an error with
 * words and no result; everything else is a crash. The file is in memory (memfd), under the name that the system
 * gives it.
 */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/crc.h"
#include "base/text.h"
#include "data/documents.h"
#include "data/token_file.h"
#include "tally.h"
#include "train/checkpoint.h"
#include "train/choices.h"
#include "step/kinds.h"
#include "step/settings.h"
#include "text/tokenizer.h"

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

static bool gguf_file(const char *path) {
    tl_gguf *file = tl_gguf_open(path);
    for (int i = 0; file && i < tl_gguf_count(file); i++) {
        tl_gguf_info info;
        if (!tl_gguf_info_at(file, i, &info)) abort();
        tl_tensor *x = info.dtype < TL_DTYPE_COUNT ? tl_gguf_get(file, info.name) : NULL;
        if (info.dtype < TL_DTYPE_COUNT && !x) abort();
    }
    for (int i = 0; file && i < tl_gguf_metadata_count(file); i++) {
        const char *key = tl_gguf_metadata_key(file, i);
        tl_gguf_value value;
        if (!tl_gguf_metadata(file, key, &value)) abort();
        for (int64_t k = 0; k < value.count; k++) {
            const char *text = tl_gguf_text(file, key, k);
            if ((value.kind == TL_GGUF_VALUE_TEXT) != (text && strlen(text) < 4096)) abort();
            tl_gguf_number(file, key, k, &(double){0});
        }
    }
    tl_gguf_close(file);
    return file != NULL;
}

/* Where our own format has a checksum and the input has 0, the right one is put in: guessing it is not what this is
 * about, and it must not be what keeps the reader safe. Those of blocks are behind the tokens (at most one in an
 * input), then comes their own, then that of the documents between the two, then the header's. */
static void checksums_put(uint8_t *file, size_t n) {
    uint64_t count, documents;
    uint32_t width, crc;
    if (n < 64 || memcmp(file, "TALLYTOK", 8)) return;
    memcpy(&count, file + 16, sizeof count);
    memcpy(&width, file + 12, sizeof width);
    memcpy(&documents, file + 48, sizeof documents);
    bool has_block = n >= 68 && count > 0 && width > 0 && count <= (n - 68) / width;
    bool has_documents = has_block && documents > 0 && documents <= (n - 68 - count * width) / 8;
    const struct {
        const uint8_t *from;
        size_t bytes;
        uint8_t *to;
    } sums[] = {{file + 64, has_block ? count * width : 0, file + n - 4},
                {file + n - 4, has_block ? 4 : 0, file + 44},
                {file + n - 4 - (has_documents ? documents * 8 : 0), has_documents ? documents * 8 : 0, file + 56},
                {file, 60, file + 60}};
    for (int i = 0; i < 4; i++) {
        if (!sums[i].bytes || memcmp(sums[i].to, "\0\0\0", 4)) continue;
        crc = crc32c(0, sums[i].from, sums[i].bytes);
        memcpy(sums[i].to, &crc, 4);
    }
}

/* A mapped file is whole pages, so that AddressSanitizer sees no read behind its end: the header is read once more
 * from just its bytes. */
static void tokens_exact(const uint8_t *file, size_t n, const char *path, bool is_opened) {
    tl_token_info info;
    struct problem problem;
    if (n && token_header_read(&info, file, n, path, TL_TOKENS_AUTO, &problem) != is_opened) abort();
}

static bool tokens(const char *path) {
    tl_token_info info;
    int32_t ids[4];
    tl_token_file *file = tl_token_file_open(path, TL_TOKENS_AUTO);
    if (!file) return false;
    if (!tl_token_file_info(file, &info) || info.count < 1) abort();
    for (int64_t d = 0; d < info.documents; d++) {
        int64_t first = tl_token_file_document_begin(file, d), next = tl_token_file_document_begin(file, d + 1);
        if (first < 0 || next <= first || next > info.count) abort();
        if (tl_token_file_document_at(file, first) != d || tl_token_file_document_at(file, next - 1) != d) abort();
    }
    if (!tl_token_file_read(file, ids, 0, 1) || !tl_token_file_read(file, ids, info.count - 1, 1)) tl_error_clear();
    tl_token_file_close(file);
    return true;
}

/* The header of .npy: the input is its dictionary up to a newline, and the tokens. The mark and the length are put
 * before it, so that every input reaches the parser. What is read must be the bytes behind the dictionary. */
static bool npy(const char *path) {
    static uint8_t file[10 + 4096];
    FILE *in = fopen(path, "rb");
    size_t n = in ? fread(file + 10, 1, sizeof file - 10, in) : 0;
    if (!in || fclose(in)) abort();
    const uint8_t *line = memchr(file + 10, '\n', n);
    size_t length = line ? (size_t)(line + 1 - file) - 10 : n;
    memcpy(file, "\x93NUMPY\1\0", 8);
    memcpy(file + 8, (const uint8_t[]){length & 255, length >> 8 & 255}, 2);
    uint8_t *exact = malloc(10 + n); /* AddressSanitizer sees a read behind its end */
    if (!exact) abort();
    memcpy(exact, file, 10 + n);
    tl_token_info info = {0};
    struct problem problem;
    bool ok = token_header_read(&info, exact, 10 + n, "fuzz.npy", TL_TOKENS_AUTO, &problem);
    free(exact);
    if (ok && (info.format != TL_TOKENS_NPY || info.data_begin != 10 + length || info.count < 1 ||
               (uint64_t)info.count * (uint64_t)info.token_bytes != n - length))
        abort();
    return ok || tl_token_file_open(path, TL_TOKENS_NPY) != NULL; /* records an error: no input has the mark */
}

static bool config(const char *path) {
    tl_model_config c;
    if (!tl_model_config_read(path, &c)) return false;
    if (!tl_model_config_check(&c) || tl_model_config_parameters(&c) < 1) abort();
    return true;
}

static bool run_settings(const char *path) {
    static struct settings defaults, s;
    if (!defaults.steps) defaults = settings_default(); /* as slow as all the rest */
    s = defaults;
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
    static struct checkpoints all;
    static struct file_folder *run; /* kept, so that it is no leak */
    if (!*root) {
        snprintf(root, sizeof root, "/dev/shm/tally-fuzz-%d", (int)getpid());
        snprintf(file, sizeof file, "%s/checkpoints/step-000000000007", root);
        run = mkdir(root, 0700) ? NULL : file_folder_open(root);
        if (!run || !checkpoints_open(&all, run, true) || mkdir(file, 0700)) abort();
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
    struct checkpoint *c = checkpoint_open(&all, 7);
    checkpoint_close(c);
    return c != NULL;
}

/* What can be written as tokenizer.json is the same tokenizer when it is read again. */
static void json_use(const tl_tokenizer *t) {
    size_t n;
    char *text = tokenizer_json(t, &n);
    tl_tokenizer *again = text ? tokenizer_read_json(text, n, "again") : NULL;
    if (text && (!again || tl_tokenizer_hash(again) != tl_tokenizer_hash(t))) abort();
    tl_error_clear();
    tl_tokenizer_free(again);
    free(text);
}

/* A tokenizer that was read is used: it encodes any bytes, and what decodes again must not fail. */
static bool tokenizer_use(tl_tokenizer *t) {
    static const char *const texts[] = {"ab <s>a\xff\n\n  12'll \xe4\xb8\xad\xcc\x81",
                                        "\xef\xac\x81 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    const size_t sizes[] = {strlen(texts[0]), strlen(texts[1])};
    static unsigned calls;
    tl_encode_options o = tl_encode_defaults();
    tl_encoding e;
    size_t n;
    if (!t) return false;
    if (++calls & 3) return tl_tokenizer_free(t), true; /* the cache of words is megabytes: not every time */
    o.special = TL_SPECIAL_ALLOW;
    o.has_template = true;
    o.has_offsets = calls >> 2 & 1;
    if (tl_tokenizer_encode(t, texts, sizes, 2, &o, &e)) {
        for (int64_t i = 0; o.has_offsets && i < 2 * e.count; i++)
            if (e.offsets[i] < 0 || e.offsets[i] > (int64_t)sizes[i / 2 >= e.starts[1]]) abort();
        char *text = tl_tokenizer_decode(t, e.ids, e.count, false, &n);
        if (!text) tl_error_clear(); /* a pattern of the decoder that takes too long */
        free(text);
        tl_encoding_free(&e);
    } else tl_error_clear();
    json_use(t);
    tl_tokenizer_free(t);
    return true;
}

static bool gguf(const char *path) {
    if (!gguf_file(path)) return false;
    tl_tokenizer *t = tokenizer_read_gguf(path);
    if (!t && tl_error() != TL_ERROR_USE) abort();
    tl_error_clear();
    tokenizer_use(t);
    return true;
}

static bool tokenizer(const char *path) { return tokenizer_use(tl_tokenizer_read(path, NULL)); }
static bool ranks(const char *path) { return tokenizer_use(tl_tokenizer_read(path, "gpt2")); }

/* Items of multiple choice, as they are and as lm-evaluation-harness prepares them. */
static bool choices(const char *path) {
    if (!choices_check(path, true, 0)) tl_error_clear();
    return choices_check(path, false, 0);
}

/* GPT-2's two files: the one that is not the input is the same every time. */
static const char *gpt2_other(const char *name, const char *text) {
    static char path[64];
    if (*path) return path;
    snprintf(path, sizeof path, "/dev/shm/tally-fuzz-%d-%s", (int)getpid(), name);
    FILE *out = fopen(path, "wb");
    if (!out || fputs(text, out) < 0 || fclose(out)) abort();
    return path;
}
static const char gpt2_vocab[] = "{\"a\": 0, \"b\": 1, \"\\u0120\": 2, \"\\u0120a\": 3, \"ab\": 4, \"aba\": 5}";
static const char gpt2_merges[] = "#version: 0.2\n\xc4\xa0 a\na b\n";
static bool vocab(const char *path) {
    return tokenizer_use(tokenizer_read_gpt2(path, gpt2_other("merges", gpt2_merges)));
}
static bool merges(const char *path) {
    return tokenizer_use(tokenizer_read_gpt2(gpt2_other("vocab", gpt2_vocab), path));
}

static bool documents_read(const char *path, const struct documents_options *options, struct documents_text *text,
                           uint64_t *bad) {
    struct inputs inputs = {.at = &(struct input){.path = (char *)path}, .n = 1};
    struct documents *d = documents_new(&inputs, options);
    enum documents_part part = DOCUMENTS_LAST;
    bool ok = true;
    text->n = 0;
    while (ok && part != DOCUMENTS_NONE) ok = documents_next(d, text, 100, &part);
    *bad = documents_bad(d);
    documents_free(d);
    return ok;
}

/* Lines of JSON, also compressed. Texts are UTF-8, in memory that the file bounds (a kilobyte of zstd may be
 * megabytes). Lines that are no good are skipped; if they are not to be, there is an error if there were some. */
static bool jsonl(const char *path) {
    struct documents_options options = {.format = DOCUMENTS_JSONL, .skips_bad = true};
    struct documents_text text = {0};
    uint64_t bad, unused;
    bool ok = documents_read(path, &options, &text, &bad);
    if (ok && !documents_text_add(&text, "", 1)) abort();
    for (size_t at = 0; ok && at < text.n; at += strlen(text.at + at) + 1) /* U+0000 may be inside */
        if (!text_is_utf8(text.at + at)) abort();
    if (text.capacity > ((size_t)1 << 30)) abort();
    options.skips_bad = false;
    if (ok && documents_read(path, &options, &text, &unused) != (bad == 0)) abort();
    free(text.at);
    return ok && bad == 0;
}

static const struct reader {
    const char *name;
    bool (*read)(const char *path);
} readers[] = {{"safetensors", safetensors},
               {"gguf", gguf},
               {"tokens", tokens},
               {"npy", npy},
               {"jsonl", jsonl},
               {"config", config},
               {"settings", run_settings},
               {"kinds", kinds},
               {"manifest", manifest},
               {"tokenizer", tokenizer},
               {"ranks", ranks},
               {"tekken", tokenizer},
               {"vocab", vocab},
               {"merges", merges},
               {"choices", choices}};
static const struct reader *reader;

/* ---- What to begin with: whole files, in the folder that TALLY_FUZZ_SEEDS names ---- */

static void seed_put(const char *folder, const char *name, const void *data, size_t n) {
    char path[512];
    snprintf(path, sizeof path, "%s/seed-%s", folder, name);
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(data, 1, n, out) != n || fclose(out)) abort();
}

static void seed_text(const char *folder, const char *text) { seed_put(folder, "text", text, strlen(text)); }

static void seed_safetensors(const char *folder) {
    char path[512];
    const char *const names[] = {"a", "b"};
    snprintf(path, sizeof path, "%s/seed", folder);
    tl_tensor *x[] = {tl_ones(TL_SHAPE(2, 3), TL_F32, NULL), tl_ones(TL_SHAPE(4), TL_BF16, NULL)};
    if (!tl_safetensors_save(path, names, x, 2, names, names, 1)) abort();
    snprintf(path, sizeof path, "%s/seed-scalar", folder); /* a file without any size */
    if (!tl_safetensors_save(path, names, (tl_tensor *[]){tl_ones(0, NULL, TL_F32, NULL)}, 1, NULL, NULL, 0)) abort();
}

static void seed_gguf(const char *folder) {
    char path[512];
    const char *const words[] = {"a", "b", "ab", "<s>", "<x>"}, *const merges[] = {"a b"};
    snprintf(path, sizeof path, "%s/seed", folder);
    tl_gguf_writer *w = tl_gguf_writer_new();
    if (!tl_gguf_writer_text(w, "general.architecture", "gpt2") ||
        !tl_gguf_writer_text(w, "tokenizer.ggml.model", "gpt2") ||
        !tl_gguf_writer_text(w, "tokenizer.ggml.pre", "llama-bpe") ||
        !tl_gguf_writer_texts(w, "tokenizer.ggml.tokens", words, 5) ||
        !tl_gguf_writer_texts(w, "tokenizer.ggml.merges", merges, 1) ||
        !tl_gguf_writer_integers(w, "tokenizer.ggml.token_type", TL_GGUF_VALUE_I32, (const int64_t[]){1, 1, 1, 3, 4},
                                 5) ||
        !tl_gguf_writer_integer(w, "tokenizer.ggml.bos_token_id", TL_GGUF_VALUE_U32, 3) ||
        !tl_gguf_writer_number(w, "eps", TL_GGUF_VALUE_F32, 1e-5) ||
        !tl_gguf_writer_integer(w, "truth", TL_GGUF_VALUE_BOOL, 1) ||
        !tl_gguf_writer_integer(w, "general.alignment", TL_GGUF_VALUE_U32, 32) ||
        !tl_gguf_writer_tensor(w, "x", tl_ones(TL_SHAPE(2, 32), TL_F32, NULL), TL_GGUF_Q8_0) ||
        !tl_gguf_writer_tensor(w, "y", tl_ones(TL_SHAPE(3), TL_F32, NULL), TL_GGUF_BF16) ||
        !tl_gguf_writer_save(w, path))
        abort();
    tl_gguf_writer_free(w);
}

static void seed_tokens(const char *folder) {
    static const char npy[] = "\x93NUMPY\1\0\x36\0{'descr': '<u2', 'fortran_order': False, 'shape': (2,)}\n\1\0\2";
    uint8_t file[64 + 8 + 4], shard[1024 + 4] = {0};
    char path[512];
    snprintf(path, sizeof path, "%s/seed-tally", folder);
    tl_token_writer *writer = tl_token_writer_new(path, 2, 1000, 5);
    if (!tl_token_writer_add(writer, (const int32_t[]){1, 2, 999, 4}, 4) || !tl_token_writer_commit(writer)) abort();
    FILE *in = fopen(path, "rb");
    if (!in || fread(file, 1, sizeof file, in) != sizeof file || fclose(in)) abort();
    for (int i = 0; i < 3; i++) memset(file + (const int[]){44, 60, sizeof file - 4}[i], 0, 4);
    seed_put(folder, "repaired", file, sizeof file);
    uint8_t documents[sizeof file + 16] = {0}; /* the same with two documents; all checksums are put in */
    memcpy(documents, file, 72);
    documents[8] = documents[48] = 2;
    documents[72 + 8] = 3;
    seed_put(folder, "documents", documents, sizeof documents);
    seed_put(folder, "npy", npy, sizeof npy);
    memcpy(shard, (const uint32_t[]){20240520, 1, 2}, 12);
    seed_put(folder, "llmc", shard, sizeof shard);
}

static void seed_configs(const char *folder) {
    static const char *const models[] = {"llama-3.1-405b", "gpt2-124m", "qwen2.5-0.5b"};
    char path[512];
    for (int i = 0; i < 3; i++) {
        tl_model_config c;
        snprintf(path, sizeof path, "%s/seed-%s", folder, models[i]);
        if (!tl_model_preset(models[i], &c) || !tl_model_config_write(&c, path)) abort();
    }
}

/* Lines as they are, as gzip and as zstd. */
static void seed_lines(const char *folder) {
    static const char lines[] = "{\"text\": \"a\\ud83d\\ude00\\n\", \"id\": [1, -0.5e3, {\"x\": null}], \"y\": NaN}\n"
                                "\n{\"text\": 7}\n{\"text\": \"\\u0000\xc3\xa9\"}";
    uint8_t packed[512];
    seed_text(folder, lines);
    uLongf n = sizeof packed;
    z_stream z = {.next_in = (Bytef *)lines, .avail_in = sizeof lines - 1, .next_out = packed, .avail_out = (uInt)n};
    if (deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK ||
        deflate(&z, Z_FINISH) != Z_STREAM_END)
        abort();
    seed_put(folder, "gzip", packed, z.total_out);
    deflateEnd(&z);
    seed_put(folder, "zstd", packed, ZSTD_compress(packed, sizeof packed, lines, sizeof lines - 1, 3));
}

/* The 256 bytes and a merge, as tiktoken and as Mistral write them. */
static void seed_ranks(const char *folder, bool is_tekken) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static char text[1 << 15];
    size_t n = is_tekken ? (size_t)sprintf(text, "{\"config\":{\"pattern\":\"a|[^a]\",\"default_vocab_size\":259,"
                                                 "\"default_num_special_tokens\":2},\"special_tokens\":[{\"rank\":0,"
                                                 "\"token_str\":\"<s>\"}],\"vocab\":[")
                         : 0;
    for (int i = 0; i < 256; i++) {
        const char *format = is_tekken ? "{\"token_bytes\":\"%c%c==\",\"rank\":%d},\n" : "%c%c== %d\n";
        n += (size_t)sprintf(text + n, format, digits[i >> 2], digits[(i & 3) << 4], i);
    }
    n += (size_t)sprintf(text + n, is_tekken ? "{\"token_bytes\":\"YWI=\",\"rank\":256}]}" : "YWI= 256\n");
    seed_put(folder, "bytes", text, n);
}

static void seed_tokenizers(const char *folder) {
    static const char *const steps[] = {
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"Strip\"},{\"type\":"
        "\"Prepend\","
        "\"prepend\":\"a\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"q+|\\\\p{Lu}\"},\"content\":\"a\"}]},",
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true},{"
        "\"type\":"
        "\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":\"Removed\",\"invert\":false},{\"type\":\"Metaspace\","
        "\"replacement\":"
        "\"b\",\"prepend_scheme\":\"first\",\"split\":true}]},",
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true},\"decoder\":{\"type\":\"ByteLevel\"},",
        "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":"
        "\"Strip\",\"content\":"
        "\" "
        "\",\"start\":1,\"stop\":0}]},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
        "\"SpecialToken\":{\"id\":\"<s>\"}},"
        "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[3]}}},"};
    char text[2048], name[2] = "0";
    for (int i = 0; i < 4; i++, name[0]++) {
        snprintf(
            text, sizeof text,
            "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true,\"normalized\":true,\"lstrip\":true}],%s"
            "\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\",\"fuse_unk\":true,\"byte_fallback\":true,"
            "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}",
            steps[i]);
        seed_put(folder, name, text, strlen(text));
    }
}

static void seeds_put(const char *folder) {
    if (!strcmp(reader->name, "tekken")) seed_ranks(folder, true);
    else if (reader->read == tokenizer) seed_tokenizers(folder);
    if (reader->read == ranks) seed_ranks(folder, false);
    if (reader->read == vocab) seed_text(folder, gpt2_vocab);
    if (reader->read == merges) seed_text(folder, gpt2_merges);
    if (reader->read == choices)
        seed_text(folder, "{\"activity_label\":\"A [title] b\",\"ctx_a\":\"c\",\"ctx_b\":\"dE\",\"ctx\":\"f\","
                          "\"endings\":[\"[g] h\",\" i  \"],\"label\":\"1\"}\n{\"context\":\"\\u00e9\",\"choices\":"
                          "[\"\",\"k\"],\"answer\":0,\"x\":[{}]}\n");
    if (reader->read == safetensors) seed_safetensors(folder);
    if (reader->read == gguf) seed_gguf(folder);
    if (reader->read == tokens) seed_tokens(folder);
    if (reader->read == npy) seed_text(folder, "{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }\nabcd");
    if (reader->read == jsonl) seed_lines(folder);
    if (reader->read == config) seed_configs(folder);
    if (reader->read == kinds)
        seed_text(folder,
                  "{\"step\":{\"count\":3,\"ledger\":{}},\"save\":{\"count\":1,\"ledger\":null,\"unplanned\":2}}");
    if (reader->read == manifest)
        seed_text(folder,
                  "{\"schema\":\"tally.checkpoint/1\",\"step\":7,\"block_bytes\":1048576,\"files\":[{\"name\":"
                  "\"manifest.json\",\"bytes\":3,\"crc32c\":[\"00000000\"]},{\"name\":\"state.json\",\"bytes\":0,"
                  "\"crc32c\":[]}]}");
    if (reader->read == run_settings) {
        struct settings s = settings_default();
        char *text = settings_json(&s);
        seed_text(folder, text);
        free(text);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    const char *name = getenv("TALLY_FUZZ_READER"), *folder = getenv("TALLY_FUZZ_SEEDS");
    (void)argc, (void)argv;
    for (size_t i = 0; name && i < sizeof readers / sizeof *readers; i++)
        if (!strcmp(readers[i].name, name)) reader = &readers[i];
    if (!reader) {
        fprintf(stderr, "TALLY_FUZZ_READER is \"%s\" (need one of the readers of fuzz_files.c)\n", name ? name : "");
        exit(1);
    }
    if (folder) seeds_put(folder);
    tl_set_error_policy(TL_RETURN);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static int fd = -1;
    static char path[64];
    uint8_t *file = malloc(n ? n : 1);
    if (!file) abort();
    if (n) memcpy(file, data, n);
    if (reader->read == tokens) checksums_put(file, n);
    if (fd < 0) {
        fd = memfd_create("file", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, file, n, 0) != (ssize_t)n) abort();
    tl_scope scope = tl_scope_begin();
    bool ok = reader->read(path);
    if (reader->read == tokens) tokens_exact(file, n, path, ok);
    free(file);
    if (ok != (tl_error() == TL_OK) || (!ok && strlen(tl_error_message()) < 10)) {
        fprintf(stderr, "%s: %d and \"%s\"\n", reader->name, ok, tl_error_message());
        abort();
    }
    tl_error_clear();
    tl_scope_end(scope);
    return 0;
}

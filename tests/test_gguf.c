/* GGUF: what is written comes back; each rule of the format is broken once and named; no failure of memory or disk
 * leaves half a file; damaged files are refused. tests/python/test_gguf.py compares with the package gguf. */
#include "support/check.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "file/gguf.h"

static char folder[100], path[200];

/* ---- Helpers ---- */

static int folder_make(void **state) {
    (void)state;
    /* in memory if possible: 100,000 files are written here */
    snprintf(folder, sizeof folder, "%s/tally-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/x.gguf", folder);
    return 0;
}

static int folder_count(bool is_to_be_emptied) {
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        char name[400];
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(name, sizeof name, "%s/%s", folder, e->d_name);
        if (is_to_be_emptied) remove(name);
        n++;
    }
    closedir(d);
    return n;
}

static int folder_remove(void **state) {
    (void)state;
    folder_count(true);
    return rmdir(folder);
}

static void put_bytes(const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) fail_msg("%s: %s", path, strerror(errno));
}

static unsigned char *get_bytes(size_t *n) {
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s: %s", path, strerror(errno));
    unsigned char *bytes = malloc(1 << 24);
    *n = fread(bytes, 1, 1 << 24, f);
    fclose(f);
    return bytes;
}

/* A file made by hand, number by number. */
static struct {
    unsigned char bytes[4096];
    size_t n;
} raw;
static void raw_put(const void *data, size_t n) {
    memcpy(raw.bytes + raw.n, data, n);
    raw.n += n;
}
static void raw_u32(uint32_t x) { raw_put(&x, sizeof x); }
static void raw_u64(uint64_t x) { raw_put(&x, sizeof x); }
static void raw_text(const char *text) { raw_u64(strlen(text)), raw_put(text, strlen(text)); }
static void raw_begin(uint64_t n_tensors, uint64_t n_pairs) {
    raw.n = 0;
    raw_put("GGUF", 4), raw_u32(3), raw_u64(n_tensors), raw_u64(n_pairs);
}
static void raw_tensor(const char *name, uint32_t type, uint64_t size, uint64_t offset) {
    raw_text(name), raw_u32(1), raw_u64(size), raw_u32(type), raw_u64(offset);
}
static void raw_data(size_t n) {
    while (raw.n % 32) raw_put("", 1);
    for (size_t i = 0; i < n; i++) raw_put("", 1);
}
static void raw_save(void) { put_bytes(raw.bytes, raw.n); }

static tl_gguf_writer *writer_filled(tl_tensor *x, tl_tensor *y) {
    const char *words[] = {"a", "", "\xc4\xa0\xf0\x9f\x98\x80"};
    const int64_t numbers[] = {-1, 2147483647, INT32_MIN};
    tl_gguf_writer *w = tl_gguf_writer_new();
    bool ok = w && tl_gguf_writer_text(w, "general.architecture", "gpt2") &&
              tl_gguf_writer_texts(w, "words", words, 3) &&
              tl_gguf_writer_integers(w, "numbers", TL_GGUF_VALUE_I32, numbers, 3) &&
              tl_gguf_writer_integer(w, "u8", TL_GGUF_VALUE_U8, 255) &&
              tl_gguf_writer_integer(w, "i16", TL_GGUF_VALUE_I16, -32768) &&
              tl_gguf_writer_integer(w, "u64", TL_GGUF_VALUE_U64, INT64_MAX) &&
              tl_gguf_writer_integer(w, "truth", TL_GGUF_VALUE_BOOL, 1) &&
              tl_gguf_writer_number(w, "eps", TL_GGUF_VALUE_F32, 1e-5) &&
              tl_gguf_writer_number(w, "wide", TL_GGUF_VALUE_F64, 1e-5) &&
              tl_gguf_writer_integer(w, GGUF_ALIGNMENT_KEY, TL_GGUF_VALUE_U32, 32) &&
              tl_gguf_writer_tensor(w, "x", x, TL_GGUF_F32) && tl_gguf_writer_tensor(w, "y", y, TL_GGUF_F16);
    if (!ok) tl_gguf_writer_free(w);
    return ok ? w : NULL;
}

static bool save_one(const char *name, tl_tensor *x, tl_gguf_type type) {
    tl_gguf_writer *w = tl_gguf_writer_new();
    bool ok = w && tl_gguf_writer_tensor(w, name, x, type) && tl_gguf_writer_save(w, path);
    tl_gguf_writer_free(w);
    return ok;
}

/* ---- Round trips ---- */

static void values_of_every_kind_come_back(void **state) {
    (void)state;
    tl_tensor *x = check_counting(TL_SHAPE(2, 3)), *y = check_tensor(TL_SHAPE(2), 0.5, -3);
    tl_gguf_writer *w = writer_filled(x, y);
    expect_true(tl_gguf_writer_save(w, path));
    tl_gguf_writer_free(w);
    tl_gguf *f = tl_gguf_open(path);
    expect_equal(tl_gguf_metadata_count(f), 10);
    expect_text(tl_gguf_metadata_key(f, 1), "words");
    tl_gguf_value v;
    expect_true(tl_gguf_metadata(f, "words", &v) && v.is_array && v.count == 3 && v.kind == TL_GGUF_VALUE_TEXT);
    expect_text(tl_gguf_text(f, "words", 2), "\xc4\xa0\xf0\x9f\x98\x80");
    expect_text(tl_gguf_text(f, "words", 1), "");
    expect_text(tl_gguf_text(f, "general.architecture", 0), "gpt2");
    int64_t n;
    double d;
    expect_true(tl_gguf_integer(f, "numbers", 2, &n) && n == INT32_MIN);
    expect_true(tl_gguf_integer(f, "numbers", 0, &n) && n == -1);
    expect_true(tl_gguf_integer(f, "u8", 0, &n) && n == 255);
    expect_true(tl_gguf_integer(f, "i16", 0, &n) && n == -32768);
    expect_true(tl_gguf_integer(f, "u64", 0, &n) && n == INT64_MAX);
    expect_true(tl_gguf_integer(f, "truth", 0, &n) && n == 1);
    expect_true(tl_gguf_number(f, "eps", 0, &d) && d == (double)1e-5f);
    expect_true(tl_gguf_number(f, "wide", 0, &d) && d == 1e-5);
    expect_true(tl_gguf_number(f, "u8", 0, &d) && d == 255);
    /* absent, beyond the end, or of another kind: no error */
    expect_true(!tl_gguf_metadata(f, "no", NULL) && !tl_gguf_text(f, "u8", 0) && !tl_gguf_text(f, "words", 3) &&
                !tl_gguf_text(f, "words", -1) && !tl_gguf_integer(f, "eps", 0, &n) &&
                !tl_gguf_number(f, "words", 0, &d) && !tl_gguf_metadata_key(f, 10) && !tl_gguf_metadata_key(f, -1));
    tl_tensor *got_x = tl_gguf_get(f, "x"), *got_y = tl_gguf_get(f, "y");
    expect_same_bits(got_x, x);
    expect_equal(tl_dtype_of(got_y), TL_F16);
    expect_values(got_y, 0.5, -3);
    expect_equal(gguf_numbers(f), 8);
    expect_ok();
    tl_gguf_close(f);
    expect_same_bits(got_x, x); /* the mapping stays */
}

static void every_type_and_layout_is_written(void **state) {
    (void)state;
    static const tl_dtype sources[] = {TL_F32, TL_F64, TL_F16, TL_BF16};
    static const tl_dtype results[] = {TL_F32, TL_F16, TL_BF16, TL_F32};
    tl_tensor *all = tl_normal(TL_SHAPE(64, 96), 0, 1, TL_F32, NULL);
    for (int s = 0; s < 4; s++)
        for (int t = 0; t < 3; t++) {
            tl_tensor *x = tl_cast(all, sources[s]), *view = tl_transpose(x, 0, 1);
            expect_true(save_one("x", x, (tl_gguf_type)t));
            tl_gguf *f = tl_gguf_open(path);
            expect_same_bits(tl_gguf_get(f, "x"), tl_cast(x, results[t]));
            tl_gguf_close(f);
            expect_true(save_one("x", view, (tl_gguf_type)t));
            f = tl_gguf_open(path);
            expect_same_bits(tl_gguf_get(f, "x"), tl_cast(tl_contiguous(view), results[t]));
            tl_gguf_close(f);
        }
}

/* |x - decoded| <= scale / 2 and a little for the scale in f16; by hand for one block. */
static void q8_0_rounds_to_127_steps_of_each_block(void **state) {
    (void)state;
    float block[32] = {0}, got[32];
    unsigned char bytes[34];
    block[0] = 127, block[1] = -126.5f, block[2] = 0.5f, block[3] = -0.49f;
    gguf_q8_encode(bytes, block, 32);
    expect_equal(bytes[0] | bytes[1] << 8, 0x3c00); /* a scale of 1 */
    expect_equal((signed char)bytes[2], 127);
    expect_equal((signed char)bytes[3], -127); /* halves go away from zero */
    expect_equal((signed char)bytes[4], 1);
    expect_equal((signed char)bytes[5], 0);
    gguf_q8_decode(got, bytes, 32);
    expect_true(got[0] == 127 && got[1] == -127 && got[2] == 1 && got[3] == 0);
    memset(block, 0, sizeof block);
    gguf_q8_encode(bytes, block, 32);
    for (int i = 0; i < 34; i++) expect_equal(bytes[i], 0);
    block[5] = 1e-44f; /* 1 / scale is infinite */
    gguf_q8_encode(bytes, block, 32);
    gguf_q8_decode(got, bytes, 32);
    for (int i = 0; i < 32; i++) expect_true(got[i] == 0);
    /* larger than a piece and than a chunk, from a layout that is not dense */
    tl_tensor *x = tl_normal(TL_SHAPE(1100, 1056), 0, 2, TL_F32, NULL), *turned = tl_transpose(x, 0, 1);
    tl_tensor *y = tl_slice(turned, 1, 0, 1088, 1);
    expect_true(save_one("y", y, TL_GGUF_Q8_0));
    tl_gguf *f = tl_gguf_open(path);
    tl_gguf_info info;
    expect_true(tl_gguf_info_at(f, 0, &info));
    expect_text(info.type, "Q8_0");
    expect_equal(info.bytes, 1056 * 1088 / 32 * 34);
    tl_tensor *decoded = tl_gguf_get(f, "y"), *error = tl_abs(tl_sub(decoded, tl_contiguous(y)));
    expect_shape(decoded, 1056, 1088);
    double worst = tl_item(tl_max(error, NULL, 0, false)), most = tl_item(tl_max(tl_abs(x), NULL, 0, false));
    expect_true(worst > 0 && worst <= most / 127 * 0.5 + most / 2048);
    tl_gguf_close(f);
}

static void shapes_are_outermost_first_and_scalars_have_none(void **state) {
    (void)state;
    raw_begin(3, 0);
    raw_text("m"), raw_u32(2), raw_u64(3), raw_u64(2), raw_u32(0), raw_u64(0);
    raw_text("s"), raw_u32(0), raw_u32(24), raw_u64(32);
    raw_text("e"), raw_u32(2), raw_u64(0), raw_u64(5), raw_u32(0), raw_u64(64);
    raw_data(64);
    raw_save();
    tl_gguf *f = tl_gguf_open(path);
    expect_shape(tl_gguf_get(f, "m"), 2, 3);
    expect_scalar(tl_gguf_get(f, "s"));
    expect_shape(tl_gguf_get(f, "e"), 5, 0);
    tl_gguf_close(f);
    raw_begin(0, 0); /* nothing at all, and not padded */
    raw_save();
    f = tl_gguf_open(path);
    expect_ok();
    expect_equal(tl_gguf_count(f), 0);
    expect_refused(tl_gguf_get(f, "x"), "\"x\": the file has no such tensor");
    tl_gguf_close(f);
}

/* With an alignment of 1 data may be anywhere; the last tensor need not be padded. */
static void unaligned_data_is_copied(void **state) {
    (void)state;
    raw_begin(2, 1);
    raw_text(GGUF_ALIGNMENT_KEY), raw_u32(TL_GGUF_VALUE_U32), raw_u32(1);
    raw_tensor("a", 24, 1, 0);
    raw_tensor("x", 27, 1, 1);
    raw_put("\7", 1), raw_u64(0x0807060504030201);
    raw_save();
    tl_gguf *f = tl_gguf_open(path);
    expect_ok();
    tl_tensor *x = tl_gguf_get(f, "x");
    expect_equal((uintptr_t)tl_data(x) % 8, 0);
    expect_equal(tl_item_int(x), 0x0807060504030201);
    expect_values(tl_gguf_get(f, "a"), 7);
    tl_gguf_close(f);
}

static void other_types_are_listed_and_the_rest_is_readable(void **state) {
    (void)state;
    raw_begin(2, 0);
    raw_tensor("q", 12, 256, 0); /* Q4_K: 144 bytes */
    raw_tensor("x", 0, 1, 160);
    raw_data(160 + 4);
    raw_save();
    tl_gguf *f = tl_gguf_open(path);
    tl_gguf_info info;
    expect_true(tl_gguf_info_at(f, 0, &info) && info.dtype == TL_DTYPE_COUNT && info.bytes == 144);
    expect_text(info.type, "Q4_K");
    expect_refused(tl_gguf_get(f, "q"), "\"q\": its type Q4_K can be listed but not read");
    expect_values(tl_gguf_get(f, "x"), 0);
    tl_gguf_close(f);
}

/* A header that is longer than the first megabyte is read in several steps. */
static void long_headers_are_read_in_steps(void **state) {
    (void)state;
    enum { N = 100000 };
    const char **words = malloc(N * sizeof *words);
    char *text = malloc(N * 40);
    for (int i = 0; i < N; i++)
        snprintf(text + 40 * i, 40, "word-%d-of-a-long-vocabulary", i), words[i] = text + 40 * i;
    tl_gguf_writer *w = tl_gguf_writer_new();
    expect_true(tl_gguf_writer_texts(w, "words", words, N));
    expect_true(tl_gguf_writer_tensor(w, "x", check_counting(TL_SHAPE(3)), TL_GGUF_F32));
    expect_true(tl_gguf_writer_save(w, path));
    tl_gguf_writer_free(w);
    tl_gguf *f = tl_gguf_open(path);
    for (int i = 0; i < N; i += 997) expect_text(tl_gguf_text(f, "words", i), words[i]);
    expect_values(tl_gguf_get(f, "x"), 0, 1, 2);
    tl_gguf_close(f);
    free(words), free(text);
}

/* ---- Each rule, broken once ---- */

static void refused(const char *part) {
    raw_save();
    tl_gguf *f = tl_gguf_open(path);
    if (f) fail_msg("accepted, not refused with: %s", part);
    if (!strstr(tl_error_message(), path)) fail_msg("the file is not named: %s", tl_error_message());
    expect_error(TL_ERROR_USE, part);
}

static void each_broken_rule_of_metadata_is_named(void **state) {
    (void)state;
    raw_begin(0, 0), memcpy(raw.bytes, "GGML", 4), refused("not \"GGUF\"");
    raw_begin(0, 0), raw.bytes[4] = 2, refused("a version of the format that is not 3");
    raw_begin(0, 0), memcpy(raw.bytes + 4, "\0\0\0\3", 4), refused("a big-endian file");
    raw_begin(0, 1), refused("the file of 24 bytes ends inside the header");
    raw_begin(0, UINT64_MAX), refused("ends inside the header");
    raw_begin(UINT64_MAX, 0), refused("ends inside the header");
    raw_begin(0, 1), raw_u64(UINT64_MAX), raw_data(64), refused("a length beyond 100,000,000 bytes");
    raw_begin(0, 1), raw_u64(100), refused("ends inside the header");
    raw_begin(0, 1), raw_text("k"), raw_u32(13), raw_u64(0), refused("an unknown kind of value");
    raw_begin(0, 1), raw_text("k"), raw_u32(9), raw_u32(9), raw_u64(0), refused("an array of arrays");
    raw_begin(0, 1), raw_text("k"), raw_u32(9), raw_u32(13), raw_u64(0), refused("an unknown kind of value");
    raw_begin(0, 1), raw_text("k"), raw_u32(9), raw_u32(0), raw_u64(100000001), refused("an array of more than");
    raw_begin(0, 1), raw_text("k"), raw_u32(9), raw_u32(12), raw_u64(100000000), refused("a length beyond 100,000,000");
    raw_begin(0, 1), raw_text("k"), raw_u32(9), raw_u32(8), raw_u64(100000000), refused("ends inside the header");
    raw_begin(0, 1), raw_text("k"), raw_u32(7), raw_put("\2", 1), refused("a truth that is neither 0 nor 1");
    raw_begin(0, 1), raw_u64(2), raw_put("k", 2), raw_u32(7), raw_put("\1", 1), refused("a text with a byte of 0");
    raw_begin(0, 1), raw_text("\xff"), raw_u32(7), raw_put("\1", 1), refused("key \"\\xff\" is not UTF-8");
    raw_begin(0, 2);
    for (int i = 0; i < 2; i++) raw_text("k"), raw_u32(7), raw_put("\1", 1);
    refused("key \"k\" is there twice");
    for (int i = 0; i < 4; i++) {
        raw_begin(0, 1), raw_text(GGUF_ALIGNMENT_KEY);
        if (i == 3) raw_u32(9), raw_u32(4), raw_u64(0);
        else raw_u32(i == 2 ? 5 : 4), raw_u32(i == 0 ? 0 : i == 1 ? 48 : 32);
        refused(GGUF_ALIGNMENT_KEY " is not a power of two from 1 to 1048576");
    }
}

static void each_broken_rule_of_tensors_is_named(void **state) {
    (void)state;
    raw_begin(1, 0), raw_text("x"), raw_u32(5), refused("a tensor of more than 4 axes");
    raw_begin(1, 0), raw_text("x"), raw_u32(1), raw_u64(UINT64_MAX), refused("an axis longer than 2^63 - 1");
    raw_begin(1, 0), raw_tensor("x", 4, 1, 0), raw_data(32), refused("an unknown type of tensor");
    raw_begin(1, 0), raw_tensor("x", 0, INT64_MAX, 0), raw_data(32), refused("\"x\": its shape is too large");
    raw_begin(1, 0), raw_text("x"), raw_u32(2), raw_u64(1ull << 40), raw_u64(1ull << 40), raw_u32(24), raw_u64(0);
    raw_data(32), refused("\"x\": its shape is too large");
    raw_begin(1, 0), raw_tensor("x", 8, 33, 0), raw_data(64);
    refused("\"x\": Q8_0 of shape [33]: rows of 33 are not whole blocks of 32");
    raw_begin(1, 0), raw_tensor("x", 0, 1, 32), raw_data(64), refused("begins at byte 32 of the data (need 0)");
    raw_begin(2, 0), raw_tensor("x", 0, 1, 0), raw_tensor("y", 0, 1, 4), raw_data(64);
    refused("\"y\": begins at byte 4 of the data (need 32)");
    raw_begin(1, 0), raw_tensor("x", 0, 100, 0), raw_data(32), refused("\"x\": ends after the file");
    raw_begin(1, 0), raw_tensor("x", 0, 9, 0), raw_data(32), refused("(it is cut off)");
    raw_begin(1, 0), raw_tensor("x", 0, 1, 0), raw_data(33), refused("(something follows them)");
    raw_begin(0, 0), raw_data(1), refused("(something follows them)");
    raw_begin(2, 0), raw_tensor("x", 0, 1, 0), raw_tensor("x", 0, 1, 32), raw_data(64);
    refused("tensor \"x\" is there twice");
    raw_begin(1, 0), raw_tensor("\xc3(", 0, 1, 0), raw_data(32), refused("is not UTF-8");
}

static void a_file_cut_anywhere_is_refused(void **state) {
    (void)state;
    tl_gguf_writer *w = writer_filled(check_counting(TL_SHAPE(2, 3)), check_counting(TL_SHAPE(16)));
    expect_true(tl_gguf_writer_save(w, path));
    tl_gguf_writer_free(w);
    size_t n;
    unsigned char *bytes = get_bytes(&n);
    for (size_t cut = 0; cut < n; cut++) {
        put_bytes(bytes, cut);
        if (tl_gguf_open(path)) fail_msg("%zu of %zu bytes are accepted", cut, n);
        expect_error(TL_ERROR_USE, path);
    }
    free(bytes);
}

static void what_is_no_file_is_refused(void **state) {
    (void)state;
    expect_true(!tl_gguf_open("/does/not/exist"));
    expect_error(TL_ERROR_IO, "/does/not/exist: cannot be opened: No such file or directory");
    expect_true(!tl_gguf_open("/dev/zero"));
    expect_error(TL_ERROR_IO, "/dev/zero: is not a regular file");
    expect_refused(tl_gguf_open(NULL), "gguf_open: no path");
    expect_refused(tl_gguf_get(NULL, "x"), "gguf_get: no file");
    expect_equal(tl_gguf_count(NULL), 0);
    expect_true(!tl_gguf_name(NULL, 0) && tl_gguf_find(NULL, "x") == -1 && !gguf_is_one("/does/not/exist"));
    tl_gguf_close(NULL);
    tl_gguf_writer_free(NULL);
}

/* ---- What cannot be saved ---- */

static void what_cannot_be_saved_is_named_and_changes_nothing(void **state) {
    (void)state;
    tl_tensor *x = tl_full(TL_SHAPE(2, 32), 127, TL_F32, NULL), *odd = tl_ones(TL_SHAPE(2, 31), TL_F32, NULL);
    tl_tensor *m = tl_ones(TL_SHAPE(2), TL_F32, check_meta()), *deep = tl_ones(TL_SHAPE(1, 1, 1, 1, 1), TL_F32, NULL);
    tl_gguf_writer *w = tl_gguf_writer_new();
    const char *words[] = {"a", NULL};
    expect_true(tl_gguf_writer_text(w, "k", "v") && tl_gguf_writer_tensor(w, "x", x, TL_GGUF_Q8_0));
    expect_refused(tl_gguf_writer_text(w, "k", "v"), "\"k\": a key is given twice");
    expect_refused(tl_gguf_writer_text(w, "\xff", "v"), "a key is not UTF-8");
    expect_refused(tl_gguf_writer_text(w, "t", NULL), "\"t\": a text is NULL");
    expect_refused(tl_gguf_writer_texts(w, "t", words, 2), "\"t\": a text is NULL");
    expect_refused(tl_gguf_writer_texts(w, "t", NULL, 2), "\"t\": no values");
    expect_refused(tl_gguf_writer_texts(w, "t", words, -1), "\"t\": no values");
    expect_refused(tl_gguf_writer_integer(w, "i", TL_GGUF_VALUE_U8, 256), "\"i\": 256 does not fit");
    expect_refused(tl_gguf_writer_integer(w, "i", TL_GGUF_VALUE_I8, -129), "\"i\": -129 does not fit");
    expect_refused(tl_gguf_writer_integer(w, "i", TL_GGUF_VALUE_U64, -1), "\"i\": -1 does not fit");
    expect_refused(tl_gguf_writer_integer(w, "i", TL_GGUF_VALUE_BOOL, 2), "\"i\": 2 does not fit");
    expect_refused(tl_gguf_writer_integer(w, "i", TL_GGUF_VALUE_F32, 1), "not a kind of integer");
    expect_refused(tl_gguf_writer_integer(w, "i", (tl_gguf_kind)99, 1), "not a kind of integer");
    expect_refused(tl_gguf_writer_integers(w, "i", TL_GGUF_VALUE_I32, NULL, 1), "no values");
    expect_refused(tl_gguf_writer_number(w, "n", TL_GGUF_VALUE_I32, 1), "not a kind of float");
    expect_refused(tl_gguf_writer_integer(w, GGUF_ALIGNMENT_KEY, TL_GGUF_VALUE_U32, 64), "an alignment of 32");
    expect_refused(tl_gguf_writer_text(w, NULL, "v"), "no key");
    expect_refused(tl_gguf_writer_text(NULL, "k", "v"), "no writer");
    expect_refused(tl_gguf_writer_tensor(w, "x", x, TL_GGUF_F32), "\"x\": a name is given twice");
    expect_refused(tl_gguf_writer_tensor(w, "\xff", x, TL_GGUF_F32), "a name is not UTF-8");
    expect_refused(tl_gguf_writer_tensor(w, "n", NULL, TL_GGUF_F32), "\"n\": the tensor is NULL");
    expect_refused(tl_gguf_writer_tensor(w, "m", m, TL_GGUF_F32), "\"m\": is on meta, which has no data");
    expect_refused(tl_gguf_writer_tensor(w, "d", deep, TL_GGUF_F32), "\"d\": has more than 4 axes");
    expect_refused(tl_gguf_writer_tensor(w, "o", odd, TL_GGUF_Q8_0), "\"o\": rows of 31 are not whole blocks of 32");
    expect_refused(tl_gguf_writer_tensor(w, "t", x, (tl_gguf_type)9), "no type of tensor has this number");
    expect_refused(tl_gguf_writer_save(w, NULL), "no path");
    expect_true(tl_gguf_writer_save(w, path));
    tl_gguf_writer_free(w);
    tl_gguf *f = tl_gguf_open(path);
    expect_equal(tl_gguf_count(f), 1);
    expect_equal(tl_gguf_metadata_count(f), 1);
    expect_same_bits(tl_gguf_get(f, "x"), x);
    tl_gguf_close(f);
    static const double bad[] = {INFINITY, NAN, 8.4e6};
    for (int i = 0; i < 3; i++)
        expect_refused(save_one("x", tl_full(TL_SHAPE(32), bad[i], TL_F32, NULL), TL_GGUF_Q8_0),
                       "\"x\": has a value that is not finite or beyond 8.3e6");
    expect_equal(folder_count(false), 1);
}

/* ---- Failures ---- */

static bool all_of_it(void) {
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    tl_tensor *x = tl_ones(TL_SHAPE(2, 32), TL_F32, NULL), *y = tl_transpose(x, 0, 1);
    tl_gguf_writer *w = x && y ? writer_filled(x, y) : NULL;
    bool ok = w && tl_gguf_writer_tensor(w, "q", x, TL_GGUF_Q8_0) && tl_gguf_writer_save(w, path);
    tl_gguf_writer_free(w);
    tl_gguf *f = ok ? tl_gguf_open(path) : NULL;
    ok = f && tl_gguf_get(f, "x") && tl_gguf_get(f, "y") && tl_gguf_get(f, "q");
    tl_gguf_close(f);
    tl_scope_end(scope);
    return ok;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    for (int forever = 0; forever < 2; forever++)
        for (uint64_t n = 1;; n++) {
            folder_count(true);
            tl_fail_allocation(n, forever);
            bool ok = all_of_it();
            uint64_t asked = tl_fail_allocation(0, false);
            if (!ok && tl_error() != TL_ERROR_MEMORY) fail_msg("failure %d: %s", (int)n, tl_error_message());
            if (ok && tl_error() != TL_OK) fail_msg("failure %d: success, and %s", (int)n, tl_error_message());
            tl_error_clear();
            int left = folder_count(false);
            if (left > 1) fail_msg("failure %d: %d files are left", (int)n, left);
            expect_nothing_live();
            expect_true(tl_set_grad_mode(true));
            if (asked >= n) continue;
            expect_true(ok);
            expect_true(n > 25);
            break;
        }
}

static int fault_at, n_operations;
static int fault_count(const char *operation, const char *which) {
    (void)operation, (void)which;
    return ++n_operations == fault_at ? EIO : 0;
}

static void every_step_of_saving_and_opening_may_fail(void **state) {
    (void)state;
    tl_tensor *old = tl_full(TL_SHAPE(32), 1, TL_F32, NULL), *new = tl_full(TL_SHAPE(32), 2, TL_F32, NULL);
    for (fault_at = 1;; fault_at++) {
        expect_true(save_one("x", old, TL_GGUF_Q8_0));
        n_operations = 0;
        file_fault = fault_count;
        bool ok = save_one("x", new, TL_GGUF_Q8_0);
        tl_gguf *f = ok ? tl_gguf_open(path) : NULL;
        file_fault = NULL;
        expect_equal(folder_count(false), 1);
        if (f) {
            tl_gguf_close(f);
            break;
        }
        expect_error(TL_ERROR_IO, path);
        f = tl_gguf_open(path); /* whole, the old or the new */
        double value = tl_item(tl_select(tl_gguf_get(f, "x"), 0, 0));
        expect_true(fabs(value - (ok || fault_at > 8 ? 2 : 1)) < 0.001);
        tl_gguf_close(f);
    }
    expect_true(fault_at > 13);
}

/* ---- Damage ---- */

#if defined(__SANITIZE_ADDRESS__)
enum { N_RUNS = 20000 };
#else
enum { N_RUNS = 100000 };
#endif

static uint64_t draw_state = 88172645463325252u;
static uint64_t draw(uint64_t n) { /* xorshift */
    draw_state ^= draw_state << 13;
    draw_state ^= draw_state >> 7;
    draw_state ^= draw_state << 17;
    return draw_state % n;
}

static size_t damage(unsigned char *bytes, size_t n) {
    static const uint64_t numbers[] = {0,          1,          8,         9,          255,      1u << 31,
                                       UINT32_MAX, 1ull << 62, INT64_MAX, UINT64_MAX, 100000000};
    for (uint64_t k = draw(3) + 1; k > 0; k--) {
        size_t at = (size_t)draw(n), width = draw(2) ? 8 : 4;
        uint64_t number = numbers[draw(sizeof numbers / sizeof *numbers)];
        switch (draw(4)) {
        case 0:
            bytes[at] ^= (unsigned char)(1u << draw(8));
            break;
        case 1:
            if (at + width <= n) memcpy(bytes + at, &number, width);
            break;
        case 2:
            bytes[at] = (unsigned char)draw(256);
            break;
        default:
            if (draw(4) == 0) n = at + 1;
        }
    }
    return n;
}

static void damaged_files_are_refused_or_readable(void **state) {
    (void)state;
    const char *soak = getenv("TALLY_SOAK");
    int runs = N_RUNS * (soak && atoi(soak) > 0 ? atoi(soak) : 1), accepted = 0;
    tl_gguf_writer *w = writer_filled(check_counting(TL_SHAPE(2, 3)), check_counting(TL_SHAPE(16)));
    expect_true(tl_gguf_writer_save(w, path));
    tl_gguf_writer_free(w);
    size_t n;
    unsigned char *whole = get_bytes(&n), *copy = malloc(n);
    for (int i = 0; i < runs; i++) {
        memcpy(copy, whole, n);
        put_bytes(copy, damage(copy, n));
        tl_scope scope = tl_scope_begin();
        tl_gguf *f = tl_gguf_open(path);
        if (!f && tl_error() != TL_ERROR_USE) fail_msg("run %d: %s", i, tl_error_message());
        tl_error_clear();
        for (int t = 0; t < tl_gguf_count(f); t++) {
            if (!tl_gguf_get(f, tl_gguf_name(f, t)) && tl_error() != TL_ERROR_USE) fail_msg("run %d, tensor %d", i, t);
            tl_error_clear();
        }
        accepted += f != NULL;
        tl_gguf_close(f);
        tl_scope_end(scope);
    }
    free(whole), free(copy);
    print_message("    %d damaged, %d accepted\n", runs, accepted);
    expect_true(accepted > 0 && accepted < runs / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(values_of_every_kind_come_back),
        TEST(every_type_and_layout_is_written),
        TEST(q8_0_rounds_to_127_steps_of_each_block),
        TEST(shapes_are_outermost_first_and_scalars_have_none),
        TEST(unaligned_data_is_copied),
        TEST(other_types_are_listed_and_the_rest_is_readable),
        TEST(long_headers_are_read_in_steps),
        TEST(each_broken_rule_of_metadata_is_named),
        TEST(each_broken_rule_of_tensors_is_named),
        TEST(a_file_cut_anywhere_is_refused),
        TEST(what_is_no_file_is_refused),
        TEST(what_cannot_be_saved_is_named_and_changes_nothing),
        TEST(every_allocation_may_fail),
        TEST(every_step_of_saving_and_opening_may_fail),
        TEST(damaged_files_are_refused_or_readable),
    };
    return cmocka_run_group_tests_name("gguf", tests, folder_make, folder_remove);
}

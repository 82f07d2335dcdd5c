/* Safetensors: files read back bit for bit; each rule of the format is broken once and named; no failure of memory,
 * disk or power leaves half a file; hostile headers are refused. tests/python/test_safetensors.py compares with the
 * reference. */
#include "support/check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spec/cost.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/scan.h"
#include "base/text.h"
#include "file/safetensors.h"
#include "tensor/dtype.h"

static char folder[100], path[200];

/* ---- Helpers ---- */

static int folder_make(void **state) {
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.60s/tally-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    return 0;
}

/* How many entries the folder has; they are removed when asked. */
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
    unsigned char *bytes = malloc(1 << 26);
    *n = fread(bytes, 1, 1 << 26, f);
    fclose(f);
    return bytes;
}

/* A file of this header and `data` bytes of 0, 1, 2, ... */
static void file_make(const char *header, size_t data) {
    uint64_t length = strlen(header);
    unsigned char *all = malloc(8 + length + data);
    memcpy(all, &length, 8);
    memcpy(all + 8, header, length);
    for (size_t i = 0; i < data; i++) all[8 + length + i] = (unsigned char)i;
    put_bytes(all, 8 + length + data);
    free(all);
}

static bool save_one(const char *name, tl_tensor *x) { return tl_safetensors_save(path, &name, &x, 1, NULL, NULL, 0); }

static void expect_bytes(tl_tensor *got, tl_tensor *want) {
    char a_text[300], b_text[300];
    expect_true(got && want);
    tl_describe(got, a_text, sizeof a_text), tl_describe(want, b_text, sizeof b_text);
    expect_text(a_text, b_text);
    size_t n = tl_bytes(want);
    unsigned char *a = malloc(n + 1), *b = malloc(n + 1);
    expect_true(tl_to_data(got, a, n) && tl_to_data(want, b, n));
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i]) fail_msg("byte %zu of %zu: got %d, want %d", i, n, a[i], b[i]);
    free(a), free(b);
}

/* ---- Round trips ---- */

static void every_dtype_comes_back_bit_by_bit(void **state) {
    (void)state;
    enum { N_TYPES = TL_C128 }; /* the last dtype is one that the format does not have */
    const char *names[N_TYPES];
    tl_tensor *tensors[N_TYPES];
    unsigned char data[16 * 16];
    for (int i = 0; i < 256; i++) data[i] = (unsigned char)(i * 37);
    expect_refused(save_one("x", tl_from_data(data, TL_SHAPE(2, 8), TL_C128, NULL)), "no type for complex128");
    for (int d = 0; d < N_TYPES; d++) {
        names[d] = tl_dtype_name((tl_dtype)d);
        tensors[d] = tl_from_data(data, TL_SHAPE(2, 8), (tl_dtype)d, NULL);
    }
    expect_true(tl_safetensors_save(path, names, tensors, N_TYPES, NULL, NULL, 0));
    tl_safetensors *f = tl_safetensors_open(path);
    expect_equal(tl_safetensors_count(f), N_TYPES);
    expect_text(tl_safetensors_name(f, 0), "i64"); /* the reference's order: wide first, i64 before f64 */
    expect_text(tl_safetensors_name(f, 1), "f64");
    expect_text(tl_safetensors_name(f, N_TYPES - 1), "bool");
    for (int d = 0; d < N_TYPES; d++) {
        tl_tensor *x = tl_safetensors_get(f, names[d]);
        expect_bytes(x, tensors[d]);
        tl_safetensors_info info;
        expect_true(tl_safetensors_info_at(f, tl_safetensors_find(f, names[d]), &info));
        expect_equal(info.dtype, d);
        expect_text(info.type, dtype_info((tl_dtype)d)->safetensors_name);
        expect_equal(info.rank, 2);
        expect_equal(info.shape[1], 8);
        expect_equal(info.bytes, tl_bytes(tensors[d]));
        expect_equal(safetensors_type_named(info.type)->bits, tl_dtype_bits((tl_dtype)d));
    }
    tl_safetensors_close(f);
}

static void layouts_are_written_row_major(void **state) {
    (void)state;
    tl_tensor *x = check_counting(TL_SHAPE(2, 3, 4));
    const int axes[] = {2, 0, 1};
    tl_tensor *tensors[] = {tl_permute(x, axes),
                            tl_slice(x, 2, -1, TL_END, -2),
                            tl_expand(tl_select(x, 0, 1), TL_SHAPE(5, 3, 4)),
                            tl_full(TL_SCALAR, 7, TL_BF16, NULL),
                            tl_zeros(TL_SHAPE(3, 0, 2), TL_I8, NULL),
                            tl_select(x, 1, 2)};
    const char *names[] = {"permuted", "reversed", "expanded", "scalar", "empty", ""};
    const char *keys[] = {"b", "a", "\x01\"\\/\n"}, *values[] = {"2", "1", "\xc3\xa9\xf0\x9f\x98\x80\x7f"};
    expect_true(tl_safetensors_save(path, names, tensors, 6, keys, values, 3));
    tl_safetensors *f = tl_safetensors_open(path);
    for (int i = 0; i < 6; i++) expect_bytes(tl_safetensors_get(f, names[i]), tensors[i]);
    expect_equal(tl_safetensors_metadata_count(f), 3);
    expect_text(tl_safetensors_metadata_key(f, 0), keys[2]);
    expect_text(tl_safetensors_metadata_key(f, 1), "a");
    for (int i = 0; i < 3; i++) expect_text(tl_safetensors_metadata(f, keys[i]), values[i]);
    expect_true(!tl_safetensors_metadata(f, "c") && !tl_safetensors_metadata_key(f, 3) &&
                !tl_safetensors_metadata_key(f, -1));
    expect_true(!tl_safetensors_name(f, 6) && !tl_safetensors_name(f, -1) && tl_safetensors_find(f, "?") == -1);
    expect_ok();
    tl_safetensors_close(f);
}

/* 3 x 4 MiB and more through a buffer of 4 MiB, cut along rows, inside rows, and in halves of bytes. */
static void large_tensors_go_in_pieces(void **state) {
    (void)state;
    tl_tensor *row = tl_arange(0, 1, 3000001, TL_F32, NULL);
    tl_tensor *cases[] = {
        tl_transpose(tl_reshape(tl_arange(0, 1, 1500 * 1400, TL_F64, NULL), TL_SHAPE(1400, 1500)), 0, 1),
        tl_expand(row, TL_SHAPE(1, 2, 3000001)),
        tl_slice(tl_reshape(tl_arange(0, 1, 6000000, TL_F32, NULL), TL_SHAPE(3000000, 2)), 1, 1, 2, 1),
        tl_slice(tl_from_data(tl_data(row), TL_SHAPE(6, 4000000), TL_F4E2M1, NULL), 1, 1000, 3999000, 1),
        tl_expand(tl_from_data(tl_data(row), TL_SHAPE(1, 20000000), TL_F4E2M1, NULL), TL_SHAPE(2, 20000000)),
    };
    for (int i = 0; i < 5; i++) {
        expect_true(!tl_is_contiguous(cases[i]) && tl_bytes(cases[i]) > 4 << 20);
        expect_true(save_one("x", cases[i]));
        tl_safetensors *f = tl_safetensors_open(path);
        expect_bytes(tl_safetensors_get(f, "x"), cases[i]);
        tl_safetensors_close(f);
    }
}

static void a_file_without_tensors_is_a_file(void **state) {
    (void)state;
    expect_true(tl_safetensors_save(path, NULL, NULL, 0, NULL, NULL, 0));
    size_t n;
    unsigned char *bytes = get_bytes(&n);
    expect_equal(n, 16);
    expect_true(!memcmp(bytes, "\x08\0\0\0\0\0\0\0{}      ", 16));
    free(bytes);
    tl_safetensors *f = tl_safetensors_open(path);
    expect_equal(tl_safetensors_count(f), 0);
    expect_true(tl_safetensors_name(f, 0) == NULL);
    expect_refused(tl_safetensors_get(f, "a"), "\"a\": the file has no such tensor");
    tl_safetensors_close(f);
}

static void the_wide_come_first_and_the_header_ends_on_8(void **state) {
    (void)state;
    tl_tensor *t[] = {tl_ones(TL_SHAPE(1), TL_U8, NULL), tl_ones(TL_SHAPE(1), TL_F32, NULL),
                      tl_ones(TL_SHAPE(1), TL_F32, NULL)};
    const char *names[] = {"a", "c", "b"};
    expect_true(tl_safetensors_save(path, names, t, 3, NULL, NULL, 0));
    size_t n;
    unsigned char *bytes = get_bytes(&n);
    static const char want[] =
        "\xa0\0\0\0\0\0\0\0{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
        "\"c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[8,9]}} \0\0\x80\x3f\0\0\x80\x3f\1";
    expect_equal(n, sizeof want - 1);
    expect_true(!memcmp(bytes, want, n));
    free(bytes);
}

/* ---- The mapping ---- */

static void tensors_outlive_the_file_and_do_not_write_to_it(void **state) {
    (void)state;
    expect_true(save_one("x", check_counting(TL_SHAPE(4))));
    tl_safetensors *f = tl_safetensors_open(path);
    tl_tensor *x = tl_safetensors_get(f, "x"), *again = tl_safetensors_get(f, "x");
    tl_safetensors_close(f);
    expect_true(tl_fill_(tl_slice(x, 0, 0, 2, 1), 9) != NULL);
    expect_values(x, 9, 9, 2, 3);
    expect_values(again, 9, 9, 2, 3); /* one mapping */
    f = tl_safetensors_open(path);
    expect_values(tl_safetensors_get(f, "x"), 0, 1, 2, 3);
    expect_true(save_one("x", tl_neg(x))); /* over the file that x looks into */
    expect_values(x, 9, 9, 2, 3);
    expect_values(tl_safetensors_get(f, "x"), 0, 1, 2, 3);
    tl_safetensors_close(f);
    expect_true(save_one("x", x)); /* a tensor of the file into the file */
    f = tl_safetensors_open(path);
    expect_values(tl_safetensors_get(f, "x"), 9, 9, 2, 3);
    tl_safetensors_close(f);
}

static void unaligned_data_is_copied(void **state) {
    (void)state;
    for (int shift = 0; shift < 8; shift++) {
        char header[200];
        snprintf(
            header, sizeof header,
            "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"x\":{\"dtype\":\"I64\",\"shape\":[2],"
            "\"data_offsets\":[1,17]}}%*s",
            shift, "");
        file_make(header, 17);
        tl_safetensors *f = tl_safetensors_open(path);
        tl_tensor *x = tl_safetensors_get(f, "x");
        expect_true(x != NULL);
        expect_equal((uintptr_t)tl_data(x) % 8, 0);
        expect_equal(tl_item_int(tl_select(x, 0, 0)), 0x0807060504030201ll);
        tl_safetensors_close(f);
        expect_equal(tl_item_int(tl_select(x, 0, 1)), 0x100f0e0d0c0b0a09ll);
    }
}

static void types_we_lack_are_refused_and_the_rest_is_readable(void **state) {
    (void)state;
    file_make(
        "{\"u\":{\"dtype\":\"U32\",\"shape\":[1],\"data_offsets\":[0,4]},\"f\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],"
        "\"data_offsets\":[4,7]},\"o\":{\"dtype\":\"F4\",\"shape\":[2,1],\"data_offsets\":[7,8]},"
        "\"x\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[8,9],\"later\":[{\"a\":[1.5e3,null,\"\"]},-0,true]}}",
        9);
    tl_safetensors *f = tl_safetensors_open(path);
    expect_ok();
    expect_refused(tl_safetensors_get(f, "u"), "\"u\": its type U32 is not one of ours");
    expect_refused(tl_safetensors_get(f, "f"), "\"f\": its type F6_E2M3 is not one of ours");
    expect_refused(tl_safetensors_get(f, "o"), "\"o\": two elements share a byte");
    expect_refused(tl_safetensors_get(f, "\x1b[31m"), "\"\\u001b[31m\": the file has no such tensor");
    tl_safetensors_info info;
    expect_true(tl_safetensors_info_at(f, 0, &info) && !tl_safetensors_info_at(f, 4, &info));
    expect_text(info.type, "U32");
    expect_equal(info.dtype, TL_DTYPE_COUNT);
    expect_values(tl_safetensors_get(f, "x"), 8);
    tl_safetensors_close(f);
}

/* ---- Each rule, broken once ---- */

#define TENSOR(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

/* clang-format off */
static const struct {
    const char *header;
    size_t data;
    const char *part;
} broken[] = {
    {"", 0, "at byte 8: no { (need an object)"},
    {"[]", 0, "at byte 8: no { (need an object)"},
    {"{", 0, "at byte 9: no \" (need a string)"},
    {"{}x", 0, "at byte 10: something after the end"},
    {"{\"a\":1}", 0, "no { (need an object)"},
    {"{\"a\" 1}", 0, "no : after a key"},
    {"{" TENSOR("a", "U8", "[1]", "[0,1]") " " TENSOR("b", "U8", "[1]", "[1,2]") "}", 2,
     "neither , nor } after a value"},
    {"{" TENSOR("a", "U8", "[1]", "[0,1]") ",}", 1, "no \" (need a string)"},
    {"{" TENSOR("a", "U8", "[1,]", "[0,1]") "}", 1, "not a whole number"},
    {"{" TENSOR("a", "U8", "[1 1]", "[0,1]") "}", 1, "neither , nor ] after a value"},
    {"{" TENSOR("a\x80", "U8", "[1]", "[0,1]") "}", 1, "at byte 11: not UTF-8"},
    {"{" TENSOR("\xed\xa0\x80", "U8", "[1]", "[0,1]") "}", 1, "not UTF-8"},
    {"{" TENSOR("a\n", "U8", "[1]", "[0,1]") "}", 1, "a control character in a string"},
    {"{" TENSOR("\\u0000", "U8", "[1]", "[0,1]") "}", 1, "a string with the character U+0000"},
    {"{" TENSOR("\\ud800", "U8", "[1]", "[0,1]") "}", 1, "half a surrogate pair"},
    {"{" TENSOR("\\ud800\\u0041", "U8", "[1]", "[0,1]") "}", 1, "half a surrogate pair"},
    {"{" TENSOR("\\udc00", "U8", "[1]", "[0,1]") "}", 1, "half a surrogate pair"},
    {"{" TENSOR("\\u00g0", "U8", "[1]", "[0,1]") "}", 1, "\\u without four hexadecimal digits"},
    {"{" TENSOR("\\x", "U8", "[1]", "[0,1]") "}", 1, "an unknown escape in a string"},
    {"{\"a", 0, "a string without an end"},
    {"{" TENSOR("a", "U7", "[1]", "[0,1]") "}", 1, "an unknown dtype"},
    {"{" TENSOR("a", "u8", "[1]", "[0,1]") "}", 1, "an unknown dtype"},
    {"{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "no \" (need a string)"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "a tensor without dtype, shape or data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "a tensor without dtype, shape or data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "a tensor without dtype, shape or data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "a key twice in one tensor"},
    {"{\"a\":{\"x\":01,\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "neither , nor } after a value"},
    {"{\"a\":{\"x\":1.,\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "a number without digits"},
    {"{\"a\":{\"x\":1e,\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "a number without digits"},
    {"{\"a\":{\"x\":nul,\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "no value"},
    {"{" TENSOR("a", "U8", "[-1]", "[0,1]") "}", 1, "not a whole number of 0 or more"},
    {"{" TENSOR("a", "U8", "[1.0]", "[0,1]") "}", 1, "a number with a fraction or exponent"},
    {"{" TENSOR("a", "U8", "[1e0]", "[0,1]") "}", 1, "a number with a fraction or exponent"},
    {"{" TENSOR("a", "U8", "[01]", "[0,1]") "}", 1, "a number that begins with 0"},
    {"{" TENSOR("a", "U8", "[9223372036854775808]", "[0,1]") "}", 1, "a number beyond 2^63 - 1"},
    {"{" TENSOR("a", "U8", "[\"1\"]", "[0,1]") "}", 1, "not a whole number"},
    {"{" TENSOR("a", "U8", "1", "[0,1]") "}", 1, "no [ (need an array)"},
    {"{" TENSOR("a", "U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1,
     "a shape of more than 32 axes"},
    {"{" TENSOR("a", "U8", "[1]", "[0]") "}", 1, "data_offsets that are not two numbers"},
    {"{" TENSOR("a", "U8", "[1]", "[0,1,2]") "}", 1, "data_offsets that are not two numbers"},
    {"{" TENSOR("a", "U8", "[1]", "[]") "}", 1, "data_offsets that are not two numbers"},
    {"{" TENSOR("a", "U8", "[1]", "[1,0]") "}", 1, "\"a\": ends before it begins (data_offsets [1,0])"},
    {"{" TENSOR("a", "U8", "[2]", "[0,1]") "}", 1, "\"a\": U8 of shape [2] needs 2 bytes and has 1"},
    {"{" TENSOR("a", "F32", "[]", "[0,1]") "}", 1, "\"a\": F32 of shape [] needs 4 bytes and has 1"},
    {"{" TENSOR("a", "F4", "[3]", "[0,2]") "}", 2, "\"a\": its elements end inside a byte"},
    {"{" TENSOR("a", "U8", "[4294967296,4294967296]", "[0,1]") "}", 1, "\"a\": its shape is too large"},
    {"{" TENSOR("a", "U8", "[4611686018427387904]", "[0,1]") "}", 1, "\"a\": its shape is too large"},
    {"{" TENSOR("a", "U8", "[0,4294967296,4294967296]", "[0,0]") "}", 0, "\"a\": its shape is too large"},
    {"{" TENSOR("a", "U8", "[2]", "[0,2]") "," TENSOR("b", "U8", "[2]", "[1,3]") "}", 3, "\"b\": overlaps another"},
    {"{" TENSOR("a", "U8", "[2]", "[0,2]") "," TENSOR("b", "U8", "[2]", "[0,2]") "}", 2, "\"b\": overlaps another"},
    {"{" TENSOR("a", "U8", "[1]", "[0,1]") "," TENSOR("b", "U8", "[1]", "[2,3]") "}", 3,
     "\"b\": there are bytes before it that belong to no tensor"},
    {"{" TENSOR("a", "U8", "[1]", "[1,2]") "}", 2, "\"a\": there are bytes before it"},
    {"{" TENSOR("a", "U8", "[1]", "[0,1]") "}", 2, "the tensors have 1 bytes and the file 2 (something follows them)"},
    {"{" TENSOR("a", "U8", "[2]", "[0,2]") "}", 1, "the tensors have 2 bytes and the file 1 (it is cut off)"},
    {"{}", 1, "the tensors have 0 bytes and the file 1"},
    {"{" TENSOR("a", "U8", "[1]", "[0,1]") "," TENSOR("a", "U8", "[1]", "[1,2]") "}", 2, "tensor \"a\" is there twice"},
    {"{" TENSOR("a", "U8", "[1]", "[0,1]") "," TENSOR("\\u0061", "U8", "[1]", "[1,2]") "}", 2,
     "tensor \"a\" is there twice"},
    {"{\"__metadata__\":{\"k\":1}}", 0, "no \" (need a string)"},
    {"{\"__metadata__\":{\"k\":null}}", 0, "no \" (need a string)"},
    {"{\"__metadata__\":[]}", 0, "no { (need an object)"},
    {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "metadata \"k\" is there twice"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ twice"},
};
/* clang-format on */

static void each_broken_rule_is_named(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        file_make(broken[i].header, broken[i].data);
        tl_safetensors *f = tl_safetensors_open(path);
        if (f) fail_msg("case %zu is accepted: %s", i, broken[i].header);
        if (!strstr(tl_error_message(), path)) fail_msg("case %zu: the file is not named: %s", i, tl_error_message());
        expect_error(TL_ERROR_USE, broken[i].part);
    }
    char deep[400] = "{\"a\":{\"x\":";
    memset(deep + strlen(deep), '[', 100);
    file_make(deep, 0);
    expect_refused(tl_safetensors_open(path), "values nested more than 64 deep");
}

static void unusual_files_that_keep_the_rules_are_read(void **state) {
    (void)state;
    static const char *const good[] = {
        " \t\r\n{ } \n",
        "{\"__metadata__\":{}}",
        "{\"__metadata__\":null}",
        "{" TENSOR("b", "U8", "[0]", "[0,0]") "," TENSOR("a", "U8", "[7,0]", "[0,0]") "}",
        "{\"\":{\"data_offsets\" : [ 0 , 0 ] , \"shape\":[0], \"dtype\":\"F4\"}}",
        "{\"__metadata__\":{\"\\u00e9\\ud83d\\ude00\\\"\\\\\\/\\b\\f\\n\\r\\t\":\"\"}}",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        file_make(good[i], 0);
        tl_safetensors *f = tl_safetensors_open(path);
        if (!f) fail_msg("refused: %s: %s", good[i], tl_error_message());
        if (i == 3) expect_text(tl_safetensors_name(f, 0), "a"), expect_shape(tl_safetensors_get(f, "a"), 7, 0);
        if (i == 5) expect_text(tl_safetensors_metadata_key(f, 0), "\xc3\xa9\xf0\x9f\x98\x80\"\\/\b\f\n\r\t");
        tl_safetensors_close(f);
    }
}

static void a_length_that_lies_is_refused(void **state) {
    (void)state;
    uint64_t lengths[] = {1, 100000000, 100000001, 1ull << 63, UINT64_MAX, UINT64_MAX - 7};
    const char *parts[] = {"a header of 1 bytes does not fit a file of 8",
                           "a header of 100000000 bytes does not fit",
                           "a header of 100000001 bytes is too long (need at most 100000000)",
                           "is too long",
                           "is too long",
                           "is too long"};
    for (int i = 0; i < 6; i++) {
        put_bytes(&lengths[i], 8);
        expect_refused(tl_safetensors_open(path), parts[i]);
    }
}

static void a_file_cut_anywhere_is_refused(void **state) {
    (void)state;
    expect_true(save_one("x", check_counting(TL_SHAPE(4))));
    size_t n;
    unsigned char *bytes = get_bytes(&n);
    for (size_t cut = 0; cut < n; cut++) {
        put_bytes(bytes, cut);
        if (tl_safetensors_open(path)) fail_msg("%zu of %zu bytes are accepted", cut, n);
        expect_error(TL_ERROR_USE, path);
    }
    free(bytes);
}

static void what_is_no_file_is_refused(void **state) {
    (void)state;
    expect_true(!tl_safetensors_open("/does/not/exist"));
    expect_error(TL_ERROR_IO, "/does/not/exist: cannot be opened: No such file or directory");
    expect_true(!tl_safetensors_open(folder));
    expect_error(TL_ERROR_IO, "is not a regular file");
    expect_true(!tl_safetensors_open("/dev/zero"));
    expect_error(TL_ERROR_IO, "/dev/zero: is not a regular file");
    expect_true(mkfifo(path, 0600) == 0);
    expect_true(!tl_safetensors_open(path)); /* and does not wait */
    expect_error(TL_ERROR_IO, "is not a regular file");
    unlink(path);
    expect_refused(tl_safetensors_open(NULL), "no path");
    expect_refused(tl_safetensors_get(NULL, "x"), "safetensors_get: no file");
    expect_equal(tl_safetensors_count(NULL), 0);
    tl_safetensors_close(NULL);
}

/* ---- What cannot be saved ---- */

static void what_cannot_be_saved_is_named(void **state) {
    (void)state;
    tl_tensor *x = tl_ones(TL_SHAPE(2), TL_F32, NULL), *m = tl_ones(TL_SHAPE(2), TL_F32, check_meta());
    tl_tensor *two[] = {x, x}, *has_null[] = {x, NULL}, *has_meta[] = {x, m};
    const char *same[] = {"a", "a"}, *names[] = {"a", "b"}, *wrong[] = {"a", "\xff"},
               *reserved[] = {"a", "__metadata__"}, *missing[] = {"a", NULL};
    expect_refused(tl_safetensors_save(path, same, two, 2, NULL, NULL, 0), "\"a\": a name is given twice");
    expect_refused(tl_safetensors_save(path, wrong, two, 2, NULL, NULL, 0), "\"\\xff\": a name is not UTF-8");
    expect_refused(tl_safetensors_save(path, reserved, two, 2, NULL, NULL, 0), "no tensor may have this name");
    expect_refused(tl_safetensors_save(path, missing, two, 2, NULL, NULL, 0), "tensor 1 has no name");
    expect_refused(tl_safetensors_save(path, names, has_null, 2, NULL, NULL, 0), "\"b\": the tensor is NULL");
    expect_refused(tl_safetensors_save(path, names, has_meta, 2, NULL, NULL, 0),
                   "\"b\": is on meta, which has no data");
    expect_refused(tl_safetensors_save(path, names, two, 2, same, names, 2), "\"a\": metadata is given twice");
    expect_refused(tl_safetensors_save(path, names, two, 2, names, wrong, 2), "\"b\": metadata is not UTF-8");
    expect_refused(tl_safetensors_save(path, names, two, 2, names, missing, 2), "metadata 1 has no key or no value");
    expect_refused(tl_safetensors_save(NULL, names, two, 2, NULL, NULL, 0), "no path");
    expect_refused(tl_safetensors_save(path, names, two, -1, NULL, NULL, 0), "-1 tensors");
    expect_refused(tl_safetensors_save(path, NULL, two, 2, NULL, NULL, 0), "do not match");
    expect_refused(tl_safetensors_save(path, names, two, 2, NULL, NULL, 1), "do not match");
    size_t huge = 100000001;
    char *long_value = malloc(huge);
    memset(long_value, 'x', huge - 1), long_value[huge - 1] = 0;
    expect_refused(tl_safetensors_save(path, names, two, 2, names, (const char *const *)&long_value, 1),
                   "take 100000136 bytes (the format allows 100000000)");
    free(long_value);
    tl_tensor *wide = tl_expand(tl_ones(TL_SHAPE(1), TL_F64, NULL), TL_SHAPE(INT64_C(1) << 59)),
              *wides[] = {wide, wide};
    expect_refused(tl_safetensors_save(path, names, wides, 2, NULL, NULL, 0), "more than 2^63 bytes");
    expect_equal(folder_count(false), 0);
}

static void targets_that_are_no_files_are_refused(void **state) {
    (void)state;
    tl_tensor *x = tl_ones(TL_SHAPE(2), TL_F32, NULL);
    const char *name = "x", *targets[] = {"/dev/full", "/dev/null", folder, "", "/tmp/", "/does/not/exist/x"};
    const char *parts[] = {"/dev/full: exists and is not a regular file",
                           "/dev/null: exists and is not",
                           "exists and is not",
                           "is not the name of a file",
                           "is not the name of a file",
                           "/does/not/exist/x: cannot be written: no temporary can be made beside it: No such file"};
    for (int i = 0; i < 6; i++) {
        expect_true(!tl_safetensors_save(targets[i], &name, &x, 1, NULL, NULL, 0));
        expect_error(TL_ERROR_IO, parts[i]);
    }
    struct stat status;
    expect_true(stat("/dev/null", &status) == 0 && S_ISCHR(status.st_mode));
}

/* A name of 255 letters leaves no room to add to it, and a path without a folder is in this one. */
static void any_name_of_a_file_will_do(void **state) {
    (void)state;
    char name[256], whole[400];
    memset(name, 'n', 255), name[255] = 0;
    snprintf(whole, sizeof whole, "%s/%s", folder, name);
    tl_tensor *x = tl_ones(TL_SHAPE(2), TL_F32, NULL);
    const char *key = "x";
    expect_true(tl_safetensors_save(whole, &key, &x, 1, NULL, NULL, 0));
    char before[4096];
    expect_true(getcwd(before, sizeof before) && chdir(folder) == 0);
    expect_true(tl_safetensors_save("here", &key, &x, 1, NULL, NULL, 0));
    tl_safetensors *f = tl_safetensors_open("here");
    expect_values(tl_safetensors_get(f, "x"), 1, 1);
    tl_safetensors_close(f);
    expect_true(chdir(before) == 0);
    expect_equal(folder_count(true), 2);
}

/* ---- Without memory ---- */

static bool all_of_it(void) {
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    const char *names[] = {"a", "b"}, *key = "k";
    tl_tensor *x = tl_ones(TL_SHAPE(2, 3), TL_F32, NULL), *y = tl_transpose(x, 0, 1), *tensors[] = {x, y};
    bool ok = x && y && tl_safetensors_save(path, names, tensors, 2, &key, &key, 1);
    tl_safetensors *f = ok ? tl_safetensors_open(path) : NULL;
    ok = f && tl_safetensors_get(f, "a") && tl_safetensors_get(f, "b");
    tl_safetensors_close(f);
    tl_scope_end(scope);
    return ok;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    for (int forever = 0; forever < 2; forever++) {
        uint64_t n = 1;
        for (;; n++) {
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
            break;
        }
        expect_true(n > 15);
    }
}

/* ---- When the system fails ---- */

static int fault_at, fault_reason, n_operations;
static char operations[4000];

static int fault_count(const char *operation, const char *which) {
    (void)which;
    size_t used = strlen(operations);
    snprintf(operations + used, sizeof operations - used, "%s;", operation);
    if (++n_operations != fault_at) return 0;
    if (fault_reason == SIGKILL + 1000) kill(getpid(), SIGKILL);
    return fault_reason;
}

static void fault_begin(int at, int reason) {
    n_operations = 0;
    *operations = 0;
    fault_at = at;
    fault_reason = reason;
    file_fault = fault_count;
}

/* The file holds n equal elements: their value. */
static double content(void) {
    int (*hook)(const char *, const char *) = file_fault;
    file_fault = NULL;
    tl_scope scope = tl_scope_begin();
    tl_safetensors *f = tl_safetensors_open(path);
    tl_tensor *x = tl_safetensors_get(f, "x");
    double value = x ? tl_item(tl_select(x, 0, 1)) : -1;
    tl_safetensors_close(f);
    tl_scope_end(scope);
    file_fault = hook;
    return value;
}

static void steps_come_in_the_order_that_survives_a_crash(void **state) {
    (void)state;
    fault_begin(0, 0);
    expect_true(save_one("x", tl_ones(TL_SHAPE(3), TL_F32, NULL)));
    file_fault = NULL;
    expect_text(operations, "create;reserve;write;write;write;sync;close;rename;open folder;sync folder;");
}

static void every_step_of_saving_may_fail(void **state) {
    (void)state;
    static const int reasons[] = {EIO, ENOSPC, EACCES, EMFILE};
    tl_tensor *old = tl_full(TL_SHAPE(3), 1, TL_F32, NULL), *new = tl_full(TL_SHAPE(3), 2, TL_F32, NULL);
    for (size_t r = 0; r < sizeof reasons / sizeof *reasons; r++) {
        for (int at = 1;; at++) {
            expect_true(save_one("x", old));
            fault_begin(at, reasons[r]);
            bool ok = save_one("x", new);
            file_fault = NULL;
            expect_equal(folder_count(false), 1);
            if (n_operations < at) {
                expect_true(ok);
                expect_equal(at, 11);
                break;
            }
            expect_true(!ok);
            if (!strstr(tl_error_message(), path) || !strstr(tl_error_message(), strerror(reasons[r])))
                fail_msg("step %d: the message is \"%s\"", at, tl_error_message());
            expect_error(TL_ERROR_IO, at > 8 ? "is written, but its folder cannot be synced" : path);
            expect_equal(content(), at > 8 ? 2 : 1);
        }
    }
}

static void every_step_of_opening_may_fail(void **state) {
    (void)state;
    expect_true(save_one("x", tl_ones(TL_SHAPE(3), TL_F32, NULL)));
    for (int at = 1;; at++) {
        fault_begin(at, EIO);
        tl_safetensors *f = tl_safetensors_open(path);
        file_fault = NULL;
        if (f) {
            expect_text(operations, "open;stat;read;read;map;");
            tl_safetensors_close(f);
            break;
        }
        expect_error(TL_ERROR_IO, "Input/output error");
    }
}

static int fault_bumpy(const char *operation, const char *which) {
    (void)which;
    int n = n_operations++;
    if (strcmp(operation, "read") && strcmp(operation, "write") && strcmp(operation, "reserve")) return 0;
    return n % 3 == 0 ? EINTR : !strcmp(operation, "reserve") ? 0 : FILE_SHORT;
}

static void interrupted_and_short_steps_go_on(void **state) {
    (void)state;
    tl_tensor *x = check_counting(TL_SHAPE(1000));
    n_operations = 0;
    file_fault = fault_bumpy;
    expect_true(save_one("x", x));
    tl_safetensors *f = tl_safetensors_open(path);
    file_fault = NULL;
    expect_bytes(tl_safetensors_get(f, "x"), x);
    tl_safetensors_close(f);
    expect_true(n_operations > 30);
}

static int fault_no_room(const char *operation, const char *which) {
    (void)which;
    return !strcmp(operation, "reserve") ? EOPNOTSUPP : 0;
}
static int fault_taken(const char *operation, const char *which) {
    (void)which;
    return !strcmp(operation, "create") && n_operations++ < 3 ? EEXIST : 0;
}

static void file_systems_with_less_will_do(void **state) {
    (void)state;
    file_fault = fault_no_room;
    expect_true(save_one("x", tl_full(TL_SHAPE(3), 5, TL_F32, NULL)));
    expect_equal(content(), 5);
    n_operations = 0;
    file_fault = fault_taken; /* names that a dead process has left */
    expect_true(save_one("x", tl_full(TL_SHAPE(3), 6, TL_F32, NULL)));
    file_fault = NULL;
    expect_equal(n_operations, 4);
    expect_equal(content(), 6);
}

static void a_kill_at_any_step_leaves_the_old_or_the_new(void **state) {
    (void)state;
    tl_tensor *old = tl_full(TL_SHAPE(3), 1, TL_F32, NULL), *new = tl_full(TL_SHAPE(3), 2, TL_F32, NULL);
    for (int at = 1; at <= 11; at++) {
        expect_true(save_one("x", old));
        pid_t child = fork();
        if (child == 0) {
            fault_begin(at, SIGKILL + 1000);
            _exit(save_one("x", new) ? 0 : 1);
        }
        int status;
        expect_true(child > 0 && waitpid(child, &status, 0) == child);
        if (at <= 10) expect_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else expect_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        expect_equal(content(), at > 8 ? 2 : 1); /* step 8 is the rename, not yet done */
        folder_count(true);
    }
}

/* A real limit, not a planned failure. */
static void a_full_disk_leaves_the_old_file(void **state) {
    (void)state;
    expect_true(save_one("x", tl_full(TL_SHAPE(3), 1, TL_F32, NULL)));
    struct rlimit before, small;
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 100000;
    signal(SIGXFSZ, SIG_IGN);
    for (int reserves = 0; reserves < 2; reserves++) {
        file_fault = reserves ? NULL : fault_no_room;
        tl_tensor *large = tl_ones(TL_SHAPE(50000), TL_F32, NULL);
        setrlimit(RLIMIT_FSIZE, &small);
        bool ok = save_one("x", large);
        setrlimit(RLIMIT_FSIZE, &before);
        file_fault = NULL;
        expect_true(!ok);
        expect_error(TL_ERROR_IO,
                     reserves ? "there is no room for it: File too large" : "cannot be written: File too large");
        expect_equal(content(), 1);
        expect_equal(folder_count(false), 1);
    }
    signal(SIGXFSZ, SIG_DFL);
}

static void a_folder_that_may_not_be_written_is_named(void **state) {
    (void)state;
    if (geteuid() == 0) skip(); /* the administrator may write everywhere */
    chmod(folder, 0500);
    bool ok = save_one("x", tl_ones(TL_SHAPE(3), TL_F32, NULL));
    chmod(folder, 0700);
    expect_true(!ok);
    expect_error(TL_ERROR_IO, "no temporary can be made beside it: Permission denied");
}

/* ---- Hostile headers ---- */

static uint64_t fuzz_state;
static uint32_t fuzz_below(uint32_t n) {
    fuzz_state = fuzz_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((fuzz_state >> 33) % n);
}

static const char *const pieces[] = {
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\u0041",
    "\\ud83d\\ude00",
    "\\n",
    "0",
    "1",
    "8",
    "18446744073709551615",
    "9223372036854775807",
    "-1",
    "1.5",
    "1e9",
    "null",
    "true",
    "\"dtype\":",
    "\"shape\":",
    "\"data_offsets\":",
    "\"F32\"",
    "\"U8\"",
    "\"F4\"",
    "\"I64\"",
    "[0,8]",
    "[8,16]",
    "[0,0]",
    "[]",
    "[2]",
    "\"__metadata__\":{\"k\":\"v\"}",
    "\"a\":",
    "\"b\":",
    " ",
    "\n",
    "\xc3\xa9",
    "\xff",
    "\x01",
    TENSOR("a", "U8", "[8]", "[0,8]"),
    TENSOR("b", "F32", "[2]", "[8,16]"),
};
enum { N_PIECES = sizeof pieces / sizeof *pieces, FUZZ_ROOM = 4096 };

static const char *const seeds[] = {
    "{" TENSOR("a", "U8", "[8]", "[0,8]") "," TENSOR("b", "F32", "[2,1]", "[8,16]") "}",
    "{\"__metadata__\":{\"k\":\"v\",\"l\":\"\\u00e9\"}," TENSOR("x.weight", "BF16", "[2,2,2]", "[0,16]") "}",
    "{" TENSOR("a", "F4", "[4,8]", "[0,16]") "," TENSOR("z", "I64", "[0,3]", "[16,16]") "}",
    "{}",
};

static size_t insert(char *text, size_t n, size_t at, const char *piece, size_t length) {
    if (n + length >= FUZZ_ROOM) return n;
    memmove(text + at + length, text + at, n - at);
    memcpy(text + at, piece, length);
    return n + length;
}

static size_t mutate(char *text, size_t n) {
    char copy[64];
    size_t at = fuzz_below((uint32_t)n + 1), length = fuzz_below(40);
    const char *piece = pieces[fuzz_below(N_PIECES)];
    switch (fuzz_below(6)) {
    case 0:
        if (at < n) text[at] = (char)(text[at] ^ (1 << fuzz_below(8)));
        return n;
    case 1:
        return insert(text, n, at, piece, strlen(piece));
    case 2: /* a stretch goes */
        if (at + length > n) length = n - at;
        memmove(text + at, text + at + length, n - at - length);
        return n - length;
    case 3: /* a stretch comes twice */
        if (at + length > n) length = n - at;
        memcpy(copy, text + at, length);
        return insert(text, n, fuzz_below((uint32_t)n + 1), copy, length);
    case 4: /* a digit */
        for (size_t i = 0; i < n; i++)
            if (text[(at + i) % n] >= '0' && text[(at + i) % n] <= '9') {
                text[(at + i) % n] = (char)('0' + fuzz_below(10));
                break;
            }
        return n;
    default:
        if (at < n) text[at] = (char)fuzz_below(256);
        return n;
    }
}

/* The guarantees of a header that was accepted. */
static void promises_hold(const struct header *h, size_t data, const char *original) {
    size_t end = 0;
    for (size_t i = 0; i < h->n_entries; i++) {
        const struct header_entry *e = &h->entries[i];
        count product = 1;
        bool has_zero = false;
        for (int k = 0; k < e->rank; k++) {
            int64_t size = h->sizes[e->first_size + (size_t)k];
            if (size == 0) has_zero = true;
            else product *= (count)size;
            if (size < 0 || product >> 63) fail_msg("size %lld is accepted: %s", (long long)size, original);
        }
        count bits = has_zero ? 0 : product * (count)e->type->bits;
        if (e->begin != end || bits % 8 || (size_t)(bits / 8) != e->end - e->begin || !text_is_utf8(e->name) ||
            e->rank > 32)
            fail_msg("tensor %zu at [%zu,%zu] is accepted: %s", i, e->begin, e->end, original);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(e->name, h->entries[k].name)) fail_msg("\"%s\" is accepted twice: %s", e->name, original);
        end = e->end;
    }
    if (end != data) fail_msg("%zu of %zu bytes are covered: %s", end, data, original);
    for (size_t i = 0; i < h->n_pairs; i++)
        expect_true(text_is_utf8(h->pairs[i].key) && text_is_utf8(h->pairs[i].value));
}

static void headers_that_are_accepted_keep_the_rules(void **state) {
    (void)state;
    const char *soak = getenv("TALLY_SOAK");
    int64_t n_runs = 200000 * (soak ? atoll(soak) : 1), n_accepted = 0;
    fuzz_state = 1;
    for (int64_t run = 0; run < n_runs; run++) {
        char text[FUZZ_ROOM], original[FUZZ_ROOM];
        const char *seed = seeds[fuzz_below(4)];
        size_t n = fuzz_below(8) ? strlen(seed) : 0, data = strcmp(seed, "{}") ? 16 : 0;
        memcpy(text, seed, n);
        for (uint32_t k = n ? 1 + fuzz_below(4) : 30; k > 0; k--) n = mutate(text, n);
        memcpy(original, text, n), original[n] = 0;
        struct header h = {.text = malloc(n + 1)}; /* of its size, so that a byte too far is seen */
        memcpy(h.text, text, n), h.text[n] = 0;
        if (header_read(&h, "fuzz", n, data)) {
            n_accepted++;
            promises_hold(&h, data, original);
        } else if (tl_error() != TL_ERROR_USE)
            fail_msg("error %d \"%s\" for %s", (int)tl_error(), tl_error_message(), original);
        tl_error_clear();
        header_free(&h);
    }
    print_message("%lld headers, %lld accepted\n", (long long)n_runs, (long long)n_accepted);
    expect_true(n_accepted > n_runs / 100 && n_accepted < n_runs / 2); /* both sides are reached */
}

static void files_that_are_accepted_can_be_read_to_the_end(void **state) {
    (void)state;
    const char *soak = getenv("TALLY_SOAK");
    int n_runs = 3000 * (soak ? atoi(soak) : 1), n_read = 0;
    fuzz_state = 2;
    for (int run = 0; run < n_runs; run++) {
        unsigned char bytes[FUZZ_ROOM + 64];
        const char *seed = seeds[fuzz_below(4)];
        char text[FUZZ_ROOM];
        size_t n = strlen(seed);
        memcpy(text, seed, n);
        for (uint32_t k = fuzz_below(3); k > 0; k--) n = mutate(text, n);
        uint64_t length = fuzz_below(10) ? n : fuzz_below(400);
        memcpy(bytes, &length, 8), memcpy(bytes + 8, text, n);
        memset(bytes + 8 + n, (int)run, 16);
        size_t all = 8 + n + (strcmp(seed, "{}") ? 16 : 0);
        put_bytes(bytes, fuzz_below(10) ? all : fuzz_below((uint32_t)all + 1));
        tl_scope scope = tl_scope_begin();
        tl_safetensors *f = tl_safetensors_open(path);
        for (int i = 0; i < tl_safetensors_count(f); i++) {
            tl_tensor *x = tl_safetensors_get(f, tl_safetensors_name(f, i));
            char copy[64];
            if (x && tl_to_data(x, copy, tl_bytes(x))) n_read++;
            else tl_error_clear(); /* a type of others, half a byte */
        }
        tl_error_clear();
        tl_safetensors_close(f);
        tl_scope_end(scope);
    }
    expect_true(n_read > n_runs / 10);
}

/* ---- On a GPU ---- */

static void cuda_tensors_are_fetched(void **state) {
    (void)state;
    tl_device *cuda = tl_device_find("cuda");
    if (!cuda) {
        tl_error_clear();
        skip();
    }
    tl_tensor *x = tl_arange(0, 1, 3 << 20, TL_F32, NULL);
    tl_tensor *dense = tl_to(x, cuda), *turned = tl_transpose(tl_view(dense, TL_SHAPE(3, 1 << 20)), 0, 1);
    const char *names[] = {"dense", "turned"};
    tl_tensor *tensors[] = {dense, turned};
    expect_true(tl_safetensors_save(path, names, tensors, 2, NULL, NULL, 0));
    tl_safetensors *f = tl_safetensors_open(path);
    expect_bytes(tl_safetensors_get(f, "dense"), x);
    expect_bytes(tl_safetensors_get(f, "turned"), tl_transpose(tl_view(x, TL_SHAPE(3, 1 << 20)), 0, 1));
    tl_safetensors_close(f);
}

static int begin(void **state) { return check_begin(state) || folder_make(state); }
static int end(void **state) {
    file_fault = NULL;
    int left = folder_remove(state);
    return check_end(state) || left;
}
#define FILE_TEST(function) cmocka_unit_test_setup_teardown(function, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        FILE_TEST(every_dtype_comes_back_bit_by_bit),
        FILE_TEST(layouts_are_written_row_major),
        FILE_TEST(large_tensors_go_in_pieces),
        FILE_TEST(a_file_without_tensors_is_a_file),
        FILE_TEST(the_wide_come_first_and_the_header_ends_on_8),
        FILE_TEST(tensors_outlive_the_file_and_do_not_write_to_it),
        FILE_TEST(unaligned_data_is_copied),
        FILE_TEST(types_we_lack_are_refused_and_the_rest_is_readable),
        FILE_TEST(each_broken_rule_is_named),
        FILE_TEST(unusual_files_that_keep_the_rules_are_read),
        FILE_TEST(a_length_that_lies_is_refused),
        FILE_TEST(a_file_cut_anywhere_is_refused),
        FILE_TEST(what_is_no_file_is_refused),
        FILE_TEST(what_cannot_be_saved_is_named),
        FILE_TEST(targets_that_are_no_files_are_refused),
        FILE_TEST(any_name_of_a_file_will_do),
        FILE_TEST(every_allocation_may_fail),
        FILE_TEST(steps_come_in_the_order_that_survives_a_crash),
        FILE_TEST(every_step_of_saving_may_fail),
        FILE_TEST(every_step_of_opening_may_fail),
        FILE_TEST(interrupted_and_short_steps_go_on),
        FILE_TEST(file_systems_with_less_will_do),
        FILE_TEST(a_kill_at_any_step_leaves_the_old_or_the_new),
        FILE_TEST(a_full_disk_leaves_the_old_file),
        FILE_TEST(a_folder_that_may_not_be_written_is_named),
        FILE_TEST(headers_that_are_accepted_keep_the_rules),
        FILE_TEST(files_that_are_accepted_can_be_read_to_the_end),
        FILE_TEST(cuda_tensors_are_fetched),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}

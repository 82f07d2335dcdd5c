/* Token files: every format read, every rule broken once, every failure of memory and disk, damaged headers by the
 * hundred thousand. */
#include "support/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/file.h"
#include "data/token_file.h"

static char folder[] = "/tmp/tally-data-XXXXXX";
static char path_buffer[8][200];

static const char *path_of(const char *name) {
    static int turn;
    char *path = path_buffer[turn++ % 8];
    snprintf(path, sizeof path_buffer[0], "%s/%s", folder, name);
    return path;
}

static const char *put(const char *name, const void *data, size_t bytes) {
    const char *path = path_of(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
    return path;
}

static unsigned char *get(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    unsigned char *data = malloc(*bytes + 1);
    assert_int_equal(fread(data, 1, *bytes, f), *bytes);
    fclose(f);
    return data;
}

static int32_t id_of(int64_t i, int64_t vocabulary) {
    return (int32_t)((uint64_t)i * 2654435761u % (uint64_t)vocabulary);
}

/* A file of our own with n ids; a document begins at every multiple of `each` (0: none are recorded). */
static const char *own_documents(const char *name, int width, int64_t vocabulary, int64_t n, int64_t each) {
    const char *path = path_of(name);
    tl_token_writer *w = tl_token_writer_new(path, width, vocabulary, 77);
    assert_non_null(w);
    for (int64_t i = 0; i < n; i++) {
        int32_t id = id_of(i, vocabulary);
        if (each && i % each == 0) assert_true(tl_token_writer_document(w) && tl_token_writer_document(w));
        assert_true(tl_token_writer_add(w, &id, 1));
    }
    if (each) assert_true(tl_token_writer_document(w) && tl_token_writer_add(w, NULL, 0)); /* an empty one */
    assert_true(tl_token_writer_commit(w));
    expect_ok();
    return path;
}

static const char *own(const char *name, int width, int64_t vocabulary, int64_t n) {
    return own_documents(name, width, vocabulary, n, 0);
}

/* ---- Our own format ---- */

static void what_is_written_is_read(void **state) {
    (void)state;
    static const int widths[] = {1, 2, 4};
    static const int64_t most[] = {256, 65536, (int64_t)1 << 31};
    for (int k = 0; k < 3; k++)
        for (int64_t n = 1; n < 200000; n = n * 7 + 3) {
            const char *path = own("own.tok", widths[k], most[k], n);
            tl_token_file *f = tl_token_file_open(path, TL_TOKENS_AUTO);
            tl_token_info info;
            expect_true(f && tl_token_file_info(f, &info));
            expect_equal(info.format, TL_TOKENS_TALLY);
            expect_equal(info.token_bytes, widths[k]);
            expect_equal(info.count, n);
            expect_equal(info.vocabulary, most[k]);
            expect_equal(info.vocabulary_hash, 77);
            expect_true(info.has_checksums && !info.is_signed);
            int32_t *ids = malloc((size_t)n * sizeof *ids);
            expect_true(tl_token_file_read(f, ids, 0, n));
            for (int64_t i = 0; i < n; i++) expect_equal(ids[i], id_of(i, most[k]));
            expect_true(tl_token_file_read(f, ids, n / 2, n - n / 2));
            expect_equal(ids[0], id_of(n / 2, most[k]));
            free(ids);
            tl_token_file_close(f);
        }
}

static void reads_beyond_the_file_are_refused(void **state) {
    (void)state;
    tl_token_file *f = tl_token_file_open(own("range.tok", 2, 100, 10), TL_TOKENS_AUTO);
    int32_t ids[16];
    static const int64_t bad[][2] = {{-1, 1}, {0, 11}, {10, 1}, {11, 0}, {0, -1}, {INT64_MAX, 2}, {2, INT64_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refused(tl_token_file_read(f, ids, bad[i][0], bad[i][1]), "has no tokens");
    expect_true(tl_token_file_read(f, ids, 10, 0));
    expect_refused(tl_token_file_read(f, NULL, 0, 1), "no place for the ids");
    expect_refused(tl_token_file_read(NULL, ids, 0, 1), "no file");
    tl_token_file_close(f);
    tl_token_file_close(NULL);
}

static void documents_are_recorded(void **state) {
    (void)state;
    static const int64_t cases[][2] = {{1, 1}, {10, 3}, {5000, 1}, {5000, 2}, {200000, 70000}, {1024, 1}, {1025, 1}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int64_t n = cases[k][0], each = cases[k][1], documents = (n + each - 1) / each;
        tl_token_file *f = tl_token_file_open(own_documents("documents.tok", 2, 300, n, each), TL_TOKENS_AUTO);
        tl_token_info info;
        assert_true(f && tl_token_file_info(f, &info));
        expect_equal(info.count, n);
        expect_equal(info.documents, documents);
        for (int64_t d = 0; d < documents; d++) expect_equal(tl_token_file_document_begin(f, d), d * each);
        expect_equal(tl_token_file_document_begin(f, documents), n);
        expect_equal(tl_token_file_document_begin(f, documents + 1), -1);
        expect_equal(tl_token_file_document_begin(f, -1), -1);
        for (int64_t i = 0; i < n; i += 1 + n / 5000) expect_equal(tl_token_file_document_at(f, i), i / each);
        expect_equal(tl_token_file_document_at(f, n - 1), documents - 1);
        expect_equal(tl_token_file_document_at(f, n), -1);
        expect_equal(tl_token_file_document_at(f, -1), -1);
        expect_true(tl_token_file_check(f, NULL, NULL, NULL));
        tl_token_file_close(f);
    }
    tl_token_file *f = tl_token_file_open(own("plain.tok", 2, 300, 10), TL_TOKENS_AUTO);
    expect_equal(tl_token_file_document_at(f, 0), -1);
    expect_equal(tl_token_file_document_begin(f, 0), -1);
    expect_equal(tl_token_file_document_at(NULL, 0), -1);
    expect_equal(tl_token_file_document_begin(NULL, 0), -1);
    tl_token_file_close(f);
    expect_ok();
}

/* A file without documents has the bytes it had before there were any: version 1, zeros from byte 48 on. */
static void files_without_documents_are_version_1(void **state) {
    (void)state;
    size_t bytes;
    unsigned char *data = get(own("one.tok", 2, 300, 41), &bytes);
    expect_equal(bytes, 64 + 88 + 4); /* 82 bytes of tokens, 6 of zeros, one checksum */
    expect_equal(data[8], 1);
    for (int i = 48; i < 60; i++) expect_equal(data[i], 0);
    free(data);
    data = get(own_documents("two.tok", 2, 300, 41, 20), &bytes);
    expect_equal(bytes, 64 + 88 + 3 * 8 + 4);
    expect_equal(data[8], 2);
    expect_equal(data[48], 3);
    expect_equal(data[64 + 88 + 8], 20);
    free(data);
}

static void documents_must_begin_with_the_first_token(void **state) {
    (void)state;
    tl_token_writer *w = tl_token_writer_new(path_of("late.tok"), 2, 300, 0);
    expect_true(tl_token_writer_add(w, &(int32_t){1}, 1));
    expect_refused(tl_token_writer_document(w), "1 tokens are before the first document");
    tl_token_writer_discard(w);
    expect_refused(tl_token_writer_document(NULL), "no writer");
}

static void each_damaged_byte_is_seen(void **state) {
    (void)state;
    size_t bytes;
    unsigned char *good = get(own_documents("whole.tok", 2, 300, 41, 15), &bytes);
    expect_equal(bytes, 64 + 88 + 3 * 8 + 4); /* 82 bytes of tokens, 6 of zeros, three documents, one checksum */
    for (size_t at = 0; at < bytes; at++) {
        good[at] ^= 0x20;
        tl_token_file *f = tl_token_file_open(put("damaged.tok", good, bytes), TL_TOKENS_TALLY);
        if (f && tl_token_file_check(f, NULL, NULL, NULL)) fail_msg("byte %zu: not noticed", at);
        tl_error_clear();
        tl_token_file_close(f);
        good[at] ^= 0x20;
    }
    for (size_t n = 0; n < bytes; n++) {
        expect_refused(tl_token_file_open(put("short.tok", good, n), TL_TOKENS_TALLY), n ? "short.tok: " : "is empty");
    }
    free(good);
}

static void a_damaged_block_is_named_when_it_is_read(void **state) {
    (void)state;
    size_t bytes;
    unsigned char *data = get(own("blocks.tok", 4, 5000, 50000), &bytes); /* 200,000 bytes: four blocks */
    data[64 + 65536 + 100] ^= 1;
    tl_token_file *f = tl_token_file_open(put("blocks.tok", data, bytes), TL_TOKENS_AUTO);
    free(data);
    int32_t ids[100];
    expect_true(tl_token_file_read(f, ids, 16384 - 100, 100)); /* the last of block 0 */
    expect_refused(tl_token_file_read(f, ids, 16384 - 50, 100), "the block at byte 65600 (token 16384) is damaged");
    expect_true(tl_token_file_read(f, ids, 49900, 100));
    expect_refused(tl_token_file_check(f, NULL, NULL, NULL), "is damaged");
    tl_token_file_close(f);
}

/* Headers with a right checksum and wrong contents: deliberate forgeries. Of a file with 40 tokens and, with `each`,
 * documents, whose table (from byte 144 on) has a right checksum too. */
static const char *forged(size_t at, uint64_t value, int width, int64_t each) {
    size_t bytes;
    unsigned char *data = get(own_documents("forged.tok", 2, 300, 40, each), &bytes);
    memcpy(data + at, &value, (size_t)width);
    uint32_t crc = crc32c(0, data + 144, bytes - 4 - 144);
    if (at >= 144) memcpy(data + 56, &crc, 4);
    crc = crc32c(0, data, 60);
    memcpy(data + 60, &crc, 4);
    const char *path = put("forged.tok", data, bytes);
    free(data);
    return path;
}

static void forged_headers_are_refused(void **state) {
    (void)state;
    static const struct {
        size_t at;
        uint64_t value;
        int width;
        const char *says;
    } cases[] = {
        {8, 3, 4, "byte 8: version 3 (need 1 or 2)"},
        {8, 0, 4, "byte 8: version 0 (need 1 or 2)"},
        {12, 3, 4, "byte 12: 3 bytes per token"},
        {12, 0, 4, "byte 12: 0 bytes per token"},
        {16, 41, 8, "41 tokens of 2 bytes make a file of 156 bytes, this one has 148 (is it cut short?)"},
        {16, UINT64_MAX, 8, "byte 16: 18446744073709551615 tokens of 2 bytes do not fit"},
        {16, (uint64_t)1 << 63, 8, "do not fit"},
        {16, 0, 8, "make a file of 64 bytes"},
        {16, 39, 8, "byte 142: not 0 between tokens and checksums"}, /* 78 bytes take the room of 80 */
        {24, 0, 8, "byte 24: a vocabulary of 0 (need 1 to 65536"},
        {24, 65537, 8, "byte 24: a vocabulary of 65537"},
        {24, UINT64_MAX, 8, "byte 24: a vocabulary of 18446744073709551615"},
        {40, 0, 4, "byte 40: blocks of 0 bytes"},
        {44, 1, 4, "the table of checksums has the checksum"},
        {48, 1, 8, "byte 48: not 0"},
        {56, 1, 4, "byte 48: not 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refused(tl_token_file_open(forged(cases[i].at, cases[i].value, cases[i].width, 0), TL_TOKENS_AUTO),
                       cases[i].says);
}

static void forged_documents_are_refused(void **state) {
    (void)state;
    static const struct {
        size_t at;
        uint64_t value;
        int width;
        const char *says;
    } cases[] = {
        {8, 1, 4, "byte 48: not 0"},
        {48, 5, 8, "40 tokens of 2 bytes and their documents make a file of 188 bytes, this one has 180 (is it cut"},
        {48, 0, 8, "make a file of 148 bytes"},
        {48, 41, 8, "byte 48: 41 documents in 40 tokens (need at most one per token)"},
        {48, UINT64_MAX, 8, "byte 48: 18446744073709551615 documents"},
        {48, (uint64_t)1 << 63, 8, "documents in 40 tokens"},
        {48, (uint64_t)1 << 61, 8, "documents in 40 tokens"}, /* times 8 is 0 */
        {56, 1, 4, "byte 144: the table of documents has the checksum"},
        {144, 1, 8, "byte 144: document 0 begins at token 1 (need 0 to 0)"},
        {152, 0, 8, "byte 152: document 1 begins at token 0 (need 1 to 39)"},
        {160, 10, 8, "byte 160: document 2 begins at token 10 (need 11 to 39)"},
        {168, 40, 8, "byte 168: document 3 begins at token 40 (need 21 to 39)"},
        {168, UINT64_MAX, 8, "document 3 begins at token 18446744073709551615"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refused(tl_token_file_open(forged(cases[i].at, cases[i].value, cases[i].width, 10), TL_TOKENS_AUTO),
                       cases[i].says);
}

/* ---- The formats of others ---- */

static const char *llmc(uint32_t magic, uint32_t version, uint32_t count, size_t data_bytes) {
    unsigned char *data = calloc(1, 1024 + data_bytes);
    memcpy(data, &magic, 4);
    memcpy(data + 4, &version, 4);
    memcpy(data + 8, &count, 4);
    for (size_t i = 0; i < data_bytes; i++)
        data[1024 + i] = (unsigned char)(i % (magic == 20240801 ? 4 : 2) ? 0 : i + 1);
    const char *path = put("shard.bin", data, 1024 + data_bytes);
    free(data);
    return path;
}

static void llmc_shards_are_read(void **state) {
    (void)state;
    static const struct {
        uint32_t magic, version;
        int width;
    } kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};
    for (int k = 0; k < 2; k++) {
        size_t width = (size_t)kinds[k].width;
        tl_token_file *f = tl_token_file_open(llmc(kinds[k].magic, kinds[k].version, 20, 20 * width), TL_TOKENS_AUTO);
        tl_token_info info;
        int32_t ids[20];
        expect_true(f && tl_token_file_info(f, &info) && tl_token_file_read(f, ids, 0, 20));
        expect_equal(info.format, TL_TOKENS_LLMC);
        expect_equal(info.count, 20);
        expect_equal(info.token_bytes, width);
        expect_equal(ids[3], 3 * width + 1);
        tl_token_file_close(f);
        expect_refused(tl_token_file_open(llmc(kinds[k].magic, 3, 20, 20 * width), TL_TOKENS_AUTO),
                       "byte 4: version 3");
        expect_refused(tl_token_file_open(llmc(kinds[k].magic, kinds[k].version, 21, 20 * width), TL_TOKENS_AUTO),
                       "byte 8: 21 tokens");
        expect_refused(tl_token_file_open(llmc(kinds[k].magic, kinds[k].version, 0xffffffffu, 20), TL_TOKENS_AUTO),
                       "byte 8: 4294967295 tokens");
        expect_refused(tl_token_file_open(llmc(kinds[k].magic, kinds[k].version, 0, 0), TL_TOKENS_AUTO),
                       "has no tokens");
    }
    uint32_t alone = 20240520;
    expect_refused(tl_token_file_open(put("shard.bin", &alone, 4), TL_TOKENS_AUTO), "need 1024 for the header");
    expect_refused(tl_token_file_open(put("text", "hello", 5), TL_TOKENS_LLMC),
                   "byte 0: not the number of an llm.c shard");
}

static void raw_numbers_are_read_and_their_width_inferred(void **state) {
    (void)state;
    uint16_t narrow[3000];
    uint32_t wide[3000];
    for (int i = 0; i < 3000; i++) {
        narrow[i] = (uint16_t)id_of(i, 50257);
        wide[i] = (uint32_t)id_of(i, 200000);
    }
    static const struct {
        const char *name;
        bool is_wide;
        tl_token_format given, seen;
    } cases[] = {{"a.bin", false, TL_TOKENS_AUTO, TL_TOKENS_U16}, {"a.bin", true, TL_TOKENS_AUTO, TL_TOKENS_U32},
                 {"a", false, TL_TOKENS_AUTO, TL_TOKENS_BYTES},   {"a", false, TL_TOKENS_U16, TL_TOKENS_U16},
                 {"a", true, TL_TOKENS_U32, TL_TOKENS_U32},       {"a.bin", true, TL_TOKENS_U16, TL_TOKENS_U16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const void *data = cases[i].is_wide ? (const void *)wide : narrow;
        size_t bytes = cases[i].is_wide ? sizeof wide : sizeof narrow;
        tl_token_file *f = tl_token_file_open(put(cases[i].name, data, bytes), cases[i].given);
        tl_token_info info;
        expect_true(f && tl_token_file_info(f, &info));
        expect_equal(info.format, cases[i].seen);
        expect_equal(info.count, bytes / (size_t)info.token_bytes);
        int32_t ids[10];
        expect_true(tl_token_file_read(f, ids, 5, 2));
        if (info.format == TL_TOKENS_U16 && !cases[i].is_wide) expect_equal(ids[1], narrow[6]);
        if (info.format == TL_TOKENS_U32) expect_equal(ids[1], wide[6]);
        tl_token_file_close(f);
    }
    expect_refused(tl_token_file_open(put("odd.bin", narrow, 7), TL_TOKENS_AUTO),
                   "has 7 bytes, which is no whole number");
    expect_refused(tl_token_file_open(put("odd.bin", narrow, 6), TL_TOKENS_U32), "tokens of 4 bytes");
    uint32_t huge = 1u << 31;
    tl_token_file *f = tl_token_file_open(put("huge", &huge, 4), TL_TOKENS_U32);
    expect_refused(tl_token_file_read(f, (int32_t *)&huge, 0, 1),
                   "token 0 (byte 0) is 2147483648 (need 0 to 2147483647)");
    tl_token_file_close(f);
}

static const char *npy(int major, const char *header, size_t header_bytes, const void *data, size_t bytes) {
    unsigned char all[2000] = "\x93NUMPY";
    size_t begin = major == 1 ? 10 : 12;
    all[6] = (unsigned char)major;
    all[8] = (unsigned char)header_bytes;
    all[9] = (unsigned char)(header_bytes >> 8);
    memcpy(all + begin, header, strlen(header));
    memcpy(all + begin + strlen(header), data, bytes);
    return put("array.npy", all, begin + strlen(header) + bytes);
}

static void npy_arrays_are_read(void **state) {
    (void)state;
    static const int16_t values[] = {3, 1, 4, 1, 5};
    static const char *const good[] = {
        "{'descr': '<i2', 'fortran_order': False, 'shape': (5,), }      \n",
        "{\"shape\":(5,),\"descr\":\"<i2\",\"fortran_order\":True}",
        "  { 'fortran_order' : False , 'shape' : ( 5 , ) , 'descr' : '<i2' }",
    };
    for (int major = 1; major <= 3; major++)
        for (size_t i = 0; i < 3; i++) {
            tl_token_file *f = tl_token_file_open(npy(major, good[i], strlen(good[i]), values, 10), TL_TOKENS_AUTO);
            int32_t ids[5];
            tl_token_info info;
            expect_true(f && tl_token_file_read(f, ids, 0, 5) && tl_token_file_info(f, &info));
            expect_equal(ids[4], 5);
            expect_true(info.is_signed && info.token_bytes == 2 && info.vocabulary == 0);
            tl_token_file_close(f);
        }
    static const struct {
        const char *header, *says;
    } bad[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }", "needs integers"},
        {"{'descr': '>i2', 'fortran_order': False, 'shape': (5,), }", "little-endian"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (5,), }", "needs integers"},
        {"{'descr': '<i2', 'fortran_order': False, 'shape': (5,1), }", "one axis"},
        {"{'descr': '<i2', 'fortran_order': False, 'shape': (), }", "one axis"},
        {"{'descr': '<i2', 'fortran_order': False, 'shape': (-5,), }", "one axis"},
        {"{'descr': '<i2', 'fortran_order': False, 'shape': (99999999999999999999,), }", "below 2^63"},
        {"{'descr': '<i2', 'fortran_order': False, 'shape': (4611686018427387904,), }", "do not make the 10 bytes"},
        {"{'descr': '<i2', 'fortran_order': False, 'shape': (6,), }", "6 numbers of 2 bytes do not make the 10 bytes"},
        {"{'descr': '<i2', 'fortran_order': False, 'shape': (4,), }", "do not make"},
        {"{'descr': '<i2', 'fortran_order': False, 'shape': (5,)", "',' or '}'"},
        {"{'descr': '<i2', 'fortran_order': False}", "descr, fortran_order and shape"},
        {"{'descr': '<i2', 'descr': '<i2', 'fortran_order': False, 'shape': (5,), }", "once"},
        {"{'descr': '<i2', 'fortran_order': __import__('os'), 'shape': (5,), }", "True or False"},
        {"{'descr': [('a','<i2')], 'fortran_order': False, 'shape': (5,), }", "simple type"},
        {"{'descr': '<i2', 'fortran_order': False, 'shape': (5,), } x", "nothing behind"},
        {"{'color': '<i2', 'fortran_order': False, 'shape': (5,), }", "once each"},
        {"", "needs '{'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refused(tl_token_file_open(npy(1, bad[i].header, strlen(bad[i].header), values, 10), TL_TOKENS_AUTO),
                       bad[i].says);
    expect_refused(tl_token_file_open(npy(4, good[0], 10, values, 10), TL_TOKENS_AUTO), "byte 6: version 4.0");
    expect_refused(tl_token_file_open(npy(1, good[0], 9999, values, 10), TL_TOKENS_AUTO),
                   "byte 8: a header of 9999 bytes");
    expect_refused(tl_token_file_open(npy(2, good[0], 10001, values, 10), TL_TOKENS_AUTO), "need at most 10000");
    expect_refused(tl_token_file_open(put("n.npy", "\x93NUMPY", 6), TL_TOKENS_AUTO), "need 12 for the header");
    expect_refused(tl_token_file_open(put("n.npy", "something else", 14), TL_TOKENS_NPY),
                   "byte 0: not the mark of .npy");
    static const int64_t negative[] = {7, -2};
    const char *wide = "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }";
    tl_token_file *f = tl_token_file_open(npy(1, wide, strlen(wide), negative, 16), TL_TOKENS_AUTO);
    int32_t ids[2];
    expect_refused(tl_token_file_read(f, ids, 0, 2), "token 1 (byte 75) is -2 (need 0 to 2147483647)");
    tl_token_file_close(f);
}

static void any_other_file_is_bytes(void **state) {
    (void)state;
    tl_token_file *f = tl_token_file_open(put("story.txt", "A\xff", 2), TL_TOKENS_AUTO);
    tl_token_info info;
    int32_t ids[2];
    int64_t largest;
    expect_true(f && tl_token_file_info(f, &info) && tl_token_file_read(f, ids, 0, 2));
    expect_equal(info.vocabulary, 256);
    expect_equal(info.vocabulary_hash, TL_BYTES_HASH);
    expect_equal(ids[0], 'A');
    expect_equal(ids[1], 255);
    expect_true(tl_token_file_check(f, &largest, NULL, NULL));
    expect_equal(largest, 255);
    tl_token_file_close(f);
    expect_refused(tl_token_file_open(put("empty.txt", "", 0), TL_TOKENS_AUTO), "is empty (need at least one token)");
    expect_refused(tl_token_file_open(put("x", "x", 1), (tl_token_format)99), "no token format has the number 99");
    expect_refused(tl_token_file_open(NULL, TL_TOKENS_AUTO), "no path");
    expect_true(!tl_token_file_open(path_of("absent"), TL_TOKENS_AUTO));
    expect_error(TL_ERROR_IO, "cannot be opened");
    expect_true(!tl_token_file_open(folder, TL_TOKENS_AUTO));
    expect_error(TL_ERROR_IO, "is not a regular file");
    expect_text(tl_token_format_name(TL_TOKENS_LLMC), "llmc");
    expect_text(tl_token_format_name(TL_TOKEN_FORMAT_COUNT), "?");
}

/* ---- The vocabulary ---- */

static void ids_beyond_the_vocabulary_are_named(void **state) {
    (void)state;
    uint16_t raw[] = {1, 2, 3, 65535, 5};
    tl_token_file *f = tl_token_file_open(put("v.bin", raw, sizeof raw), TL_TOKENS_AUTO);
    int32_t ids[5];
    expect_true(tl_token_file_read(f, ids, 0, 5));
    expect_true(tl_token_file_expect(f, 50257, 0));
    expect_true(tl_token_file_read(f, ids, 0, 3));
    expect_refused(tl_token_file_read(f, ids, 2, 3), "token 3 (byte 6) is 65535 (need 0 to 50256)");
    expect_refused(tl_token_file_check(f, NULL, NULL, NULL), "token 3");
    expect_refused(tl_token_file_expect(f, 0, 0), "a vocabulary of 0");
    expect_refused(tl_token_file_expect(f, ((int64_t)1 << 31) + 1, 0), "need 1 to 2^31");
    expect_refused(tl_token_file_expect(NULL, 1, 0), "no file");
    tl_token_file_close(f);
    f = tl_token_file_open(own("v.tok", 2, 300, 10), TL_TOKENS_AUTO);
    expect_true(tl_token_file_expect(f, 300, 77) && tl_token_file_expect(f, 320, 0)); /* rounded up */
    expect_refused(tl_token_file_expect(f, 299, 0), "is for a vocabulary of 300 (need at most 299)");
    expect_refused(tl_token_file_expect(f, 300, 78), "was made with the vocabulary 000000000000004d");
    tl_token_file_close(f);
}

/* ---- Trouble while reading and writing ---- */

static void a_file_cut_short_while_open_is_an_error(void **state) {
    (void)state;
    const char *path = own("cut.tok", 2, 300, 100000);
    tl_token_file *f = tl_token_file_open(path, TL_TOKENS_AUTO);
    int32_t id;
    expect_true(tl_token_file_read(f, &id, 99999, 1));
    assert_int_equal(truncate(path, 1000), 0);
    expect_true(!tl_token_file_read(f, &id, 99999, 1));
    expect_error(TL_ERROR_IO, "was changed while it is read");
    tl_token_file_close(f);
}

static void wrong_writing_is_refused_and_leaves_nothing(void **state) {
    (void)state;
    const char *path = path_of("never.tok");
    expect_refused(tl_token_writer_new(NULL, 1, 1, 0), "no path");
    expect_refused(tl_token_writer_new(path, 3, 1, 0), "3 bytes per token");
    expect_refused(tl_token_writer_new(path, 1, 257, 0), "vocabulary 257 (need 1 to 256)");
    expect_refused(tl_token_writer_new(path, 4, 0, 0), "vocabulary 0");
    expect_refused(tl_token_writer_commit(NULL), "no writer");
    tl_token_writer *w = tl_token_writer_new(path, 1, 10, 0);
    int32_t ids[] = {9, 10, -1};
    expect_true(tl_token_writer_add(w, ids, 1));
    expect_refused(tl_token_writer_add(w, ids + 1, 1), "token 1 is 10 (need 0 to 9)");
    expect_refused(tl_token_writer_add(w, ids + 2, 1), "token 1 is -1");
    expect_refused(tl_token_writer_add(w, NULL, 1), "no writer or no ids");
    tl_token_writer_discard(w);
    tl_token_writer_discard(NULL);
    w = tl_token_writer_new(path, 1, 10, 0);
    expect_refused(tl_token_writer_commit(w), "no tokens were added");
    w = tl_token_writer_new(path, 1, 10, 0);
    tl_token_writer_add(w, ids + 1, 1);
    expect_true(!tl_token_writer_commit(w)); /* the error is still there */
    expect_error(TL_ERROR_USE, "token 0 is 10");
    expect_true(access(path, F_OK) != 0);
}

/* ---- Converting ---- */

static bool convert(const char *from, tl_token_format format, const char *to, tl_token_format as, int64_t vocabulary) {
    tl_token_file *f = tl_token_file_open(from, format);
    bool ok = f && tl_token_file_convert(f, to, as, vocabulary, NULL, NULL);
    tl_token_file_close(f);
    return ok;
}

static void expect_same_tokens(const char *path, tl_token_format format, int64_t n) {
    static int32_t want[100000], got[100000];
    tl_token_file *f = tl_token_file_open(path_of("source.tok"), TL_TOKENS_AUTO);
    assert_true(tl_token_file_read(f, want, 0, n));
    tl_token_file_close(f);
    f = tl_token_file_open(path, format);
    tl_token_info info;
    assert_true(tl_token_file_info(f, &info));
    expect_equal(info.count, n);
    assert_true(tl_token_file_read(f, got, 0, n));
    tl_token_file_close(f);
    assert_memory_equal(want, got, (size_t)n * sizeof *want);
}

static void every_format_converts_to_every_other(void **state) {
    (void)state;
    enum { N = 100000 }; /* several blocks, the last one short */
    char from[320], to[320], source[300];
    snprintf(source, sizeof source, "%s", own("source.tok", 1, 200, N));
    for (int a = TL_TOKENS_TALLY; a < TL_TOKEN_FORMAT_COUNT; a++) {
        snprintf(from, sizeof from, "%s.%d", source, a);
        expect_true(convert(source, TL_TOKENS_AUTO, from, (tl_token_format)a, 0));
        expect_same_tokens(from, (tl_token_format)a, N);
        for (int b = TL_TOKENS_TALLY; b < TL_TOKEN_FORMAT_COUNT; b++) {
            snprintf(to, sizeof to, "%s.again", source);
            expect_true(convert(from, (tl_token_format)a, to, (tl_token_format)b, b == TL_TOKENS_TALLY ? 256 : 0));
            expect_same_tokens(to, (tl_token_format)b, N);
        }
    }
}

static void converting_keeps_documents_where_it_can(void **state) {
    (void)state;
    char from[300], to[320];
    snprintf(from, sizeof from, "%s", own_documents("with.tok", 2, 300, 100000, 33333));
    for (int b = TL_TOKENS_TALLY; b < TL_TOKENS_BYTES; b++) { /* 300 ids do not fit bytes */
        snprintf(to, sizeof to, "%s.again", from);
        expect_true(convert(from, TL_TOKENS_AUTO, to, (tl_token_format)b, 0));
        tl_token_file *f = tl_token_file_open(to, (tl_token_format)b);
        tl_token_info info;
        assert_true(f && tl_token_file_info(f, &info));
        expect_equal(info.count, 100000);
        expect_equal(info.documents, b == TL_TOKENS_TALLY ? 4 : 0);
        tl_token_file_close(f);
    }
    size_t n[2];
    expect_true(convert(from, TL_TOKENS_AUTO, to, TL_TOKENS_TALLY, 0));
    unsigned char *a = get(from, &n[0]), *b = get(to, &n[1]);
    expect_equal(n[0], n[1]);
    assert_memory_equal(a, b, n[0]);
    free(a);
    free(b);
}

static bool stop_at_once(uint64_t done, uint64_t total, void *context) {
    (void)done, (void)total, (void)context;
    return false;
}

static void conversions_that_do_not_fit_leave_nothing(void **state) {
    (void)state;
    const uint32_t wide[] = {1, 65535, 65536, 2};
    char path[300], to[300];
    snprintf(path, sizeof path, "%s", put("wide.bin", wide, sizeof wide));
    snprintf(to, sizeof to, "%s", path_of("never.bin"));
    tl_token_file *f = tl_token_file_open(path, TL_TOKENS_U32);
    expect_refused(tl_token_file_convert(f, to, TL_TOKENS_U16, 0, NULL, NULL),
                   "token 2 is 65536, which does not fit u16 (need 0 to 65535; use u32)");
    expect_refused(tl_token_file_convert(f, to, TL_TOKENS_BYTES, 0, NULL, NULL),
                   "token 1 is 65535, which does not fit bytes (need 0 to 255; use u16)");
    expect_refused(tl_token_file_convert(f, to, TL_TOKENS_TALLY, 0, NULL, NULL), "does not say its vocabulary");
    expect_refused(tl_token_file_convert(f, to, TL_TOKENS_AUTO, 0, NULL, NULL), "auto is no format of a file");
    expect_refused(tl_token_file_convert(f, to, TL_TOKENS_NPY, 0, stop_at_once, NULL), "stopped");
    expect_refused(tl_token_file_convert(f, NULL, TL_TOKENS_NPY, 0, NULL, NULL), "no path");
    expect_refused(tl_token_file_convert(NULL, to, TL_TOKENS_NPY, 0, NULL, NULL), "no file");
    expect_refused(tl_token_file_convert(f, to, TL_TOKENS_NPY, 60000, NULL, NULL), "token 1 (byte 4) is 65535");
    tl_token_file_close(f);
    expect_true(access(to, F_OK) != 0);
}

static int fault_at, n_operations;
static int fault_count(const char *operation, const char *path) {
    (void)operation, (void)path;
    return ++n_operations == fault_at ? EIO : 0;
}

static bool write_and_read(const char *path) {
    static int32_t ids[40000];
    tl_token_writer *w = tl_token_writer_new(path, 2, 300, 0);
    bool ok = w != NULL;
    for (int i = 0; ok && i < 1100; i++) ok = tl_token_writer_document(w) && tl_token_writer_add(w, ids, 40);
    if (w && ok) ok = tl_token_writer_commit(w);
    else tl_token_writer_discard(w);
    ok = ok && convert(path, TL_TOKENS_AUTO, path, TL_TOKENS_TALLY, 0);
    ok = ok && convert(path, TL_TOKENS_AUTO, path, TL_TOKENS_NPY, 0);
    tl_token_file *f = ok ? tl_token_file_open(path, TL_TOKENS_NPY) : NULL;
    ok = f && tl_token_file_check(f, NULL, NULL, NULL);
    tl_token_file_close(f);
    return ok;
}

static void every_failure_of_disk_and_memory_is_reported(void **state) {
    (void)state;
    const char *path = path_of("faults.tok");
    int failures = 0;
    file_fault = fault_count;
    for (fault_at = 1;; fault_at++, failures++) {
        n_operations = 0;
        if (write_and_read(path)) break;
        expect_error(TL_ERROR_IO, "faults.tok");
    }
    file_fault = NULL;
    expect_true(failures >= 12);
    expect_equal(n_operations, failures);
    for (uint64_t n = 1;; n++) {
        tl_fail_allocation(n, false);
        bool ok = write_and_read(path);
        uint64_t asked = tl_fail_allocation(0, false);
        if (ok) {
            expect_true(asked < n && n > 4);
            break;
        }
        expect_error(TL_ERROR_MEMORY, "out of host memory");
    }
    expect_ok();
}

static bool stops(uint64_t done, uint64_t total, void *context) {
    *(uint64_t *)context += 1;
    return done < total / 2;
}

static void checking_tells_how_far_it_is_and_can_be_stopped(void **state) {
    (void)state;
    tl_token_file *f = tl_token_file_open(own("long.tok", 1, 200, 500000), TL_TOKENS_AUTO);
    uint64_t calls = 0;
    expect_refused(tl_token_file_check(f, NULL, stops, &calls), "long.tok: stopped");
    expect_equal(calls, 4); /* 65,536 at a time: the fourth passes 250,000 */
    expect_refused(tl_token_file_check(NULL, NULL, NULL, NULL), "no file");
    tl_token_file_close(f);
}

/* ---- Damaged headers ---- */

static uint64_t fuzz_state;
static uint32_t fuzz_below(uint32_t n) {
    fuzz_state = fuzz_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((fuzz_state >> 33) % n);
}

static size_t fuzz_seed(unsigned char *to, int kind) {
    size_t n;
    unsigned char *data = NULL;
    static const char npy_header[] =
        "\x93NUMPY\x01\x00\x76\x00{'descr': '<u2', 'fortran_order': False, 'shape': (40,), }";
    switch (kind) {
    case 0:
        data = get(path_of("seed.tok"), &n);
        break;
    case 1:
        data = get(path_of("shard.bin"), &n);
        break;
    case 2:
        data = get(path_of("seed-documents.tok"), &n);
        break;
    default:
        memset(to, ' ', 128);
        memcpy(to, npy_header, sizeof npy_header - 1);
        memset(to + 128, 1, 80);
        return 208;
    }
    memcpy(to, data, n);
    free(data);
    return n;
}

static size_t fuzz_mutate(unsigned char *data, size_t n, int kind) {
    static const char *const pieces[] = {"(",   ")", ",", "'", "{", "}", "shape", "descr", "9999999999999999999",
                                         "<i8", ": "};
    size_t reach = kind == 1 ? 16 : kind == 3 ? 128 : n, at = fuzz_below((uint32_t)(reach < n ? reach : n));
    const char *piece = pieces[fuzz_below(11)];
    uint64_t number = fuzz_below(2) ? UINT64_MAX >> fuzz_below(64) : fuzz_below(100);
    switch (fuzz_below(6)) {
    case 0:
        data[at] ^= (unsigned char)(1 << fuzz_below(8));
        return n;
    case 1:
        data[at] = (unsigned char)fuzz_below(256);
        return n;
    case 2:
        memcpy(data + at / 4 * 4, &number, at / 4 * 4 + 8 <= n ? 8 : 1);
        return n;
    case 3:
        return 1 + fuzz_below((uint32_t)n);
    case 4:
        if (at + strlen(piece) <= n) memcpy(data + at, piece, strlen(piece));
        return n;
    default:
        memmove(data + at, data + at + (n - at) / 8, n - at - (n - at) / 8);
        return n;
    }
}

/* Everything that the header promises exists: reading all of it stays inside the buffer, which ends where the file
 * does. */
static void fuzz_one(unsigned char *data, size_t n, int kind) {
    if (kind % 2 == 0 && n >= 64 && fuzz_below(2)) { /* else no change passes the checksums */
        uint32_t crc = crc32c(0, data + 144, n >= 148 ? n - 148 : 0);
        if (kind == 2) memcpy(data + 56, &crc, 4);
        crc = crc32c(0, data, 60);
        memcpy(data + 60, &crc, 4);
    }
    unsigned char *exact = malloc(n);
    memcpy(exact, data, n);
    tl_token_info info;
    struct problem problem = {.status = TL_OK};
    tl_token_format format = (tl_token_format)fuzz_below(TL_TOKEN_FORMAT_COUNT);
    if (token_header_read(&info, exact, n, fuzz_below(2) ? "fuzz.bin" : "fuzz", format, &problem)) {
        uint64_t end = info.data_begin + (uint64_t)info.count * (uint64_t)info.token_bytes;
        if (info.count <= 0 || info.token_bytes < 1 || end > n || end < info.data_begin ||
            info.format == TL_TOKENS_AUTO)
            fail_msg("accepted: %lld tokens of %d bytes at %llu in %zu bytes", (long long)info.count, info.token_bytes,
                     (unsigned long long)info.data_begin, n);
        if (info.documents < 0 || info.documents > info.count ||
            (info.documents && token_documents_begin(&info) + (uint64_t)info.documents * 8 > n))
            fail_msg("accepted: %lld documents in %zu bytes", (long long)info.documents, n);
        volatile unsigned char sum = 0;
        for (uint64_t i = info.data_begin; i < end; i++) sum = (unsigned char)(sum + exact[i]);
    } else if (problem.status != TL_ERROR_USE || strncmp(problem.text, "tokens: fuzz", 12)) {
        fail_msg("refused without a reason: %s", problem.text);
    }
    free(exact);
}

static void damaged_headers_are_refused_or_true(void **state) {
    (void)state;
    const char *soak = getenv("TALLY_SOAK");
    long rounds = 100000 * (soak ? atol(soak) : 1);
    own("seed.tok", 2, 300, 40);
    own_documents("seed-documents.tok", 2, 300, 40, 10);
    llmc(20240520, 1, 40, 80);
    enum { KINDS = 4 };
    static unsigned char seed[KINDS][4096], data[4096];
    size_t bytes[KINDS];
    for (int k = 0; k < KINDS; k++) bytes[k] = fuzz_seed(seed[k], k);
    tl_token_info info;
    struct problem problem;
    for (int k = 0; k < KINDS; k++) /* the seeds are good ones */
        expect_true(token_header_read(&info, seed[k], bytes[k], "seed", TL_TOKENS_AUTO, &problem) && info.count == 40);
    fuzz_state = 1;
    for (long round = 0; round < rounds; round++) {
        int kind = (int)fuzz_below(KINDS);
        size_t n = bytes[kind];
        memcpy(data, seed[kind], n);
        for (uint32_t k = 1 + fuzz_below(3); k > 0; k--) n = fuzz_mutate(data, n, kind);
        fuzz_one(data, n, kind);
    }
}

static int remove_folder(void **state) {
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void) {
    if (!mkdtemp(folder)) return 1;
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_is_read),
        TEST(reads_beyond_the_file_are_refused),
        TEST(documents_are_recorded),
        TEST(files_without_documents_are_version_1),
        TEST(documents_must_begin_with_the_first_token),
        TEST(each_damaged_byte_is_seen),
        TEST(a_damaged_block_is_named_when_it_is_read),
        TEST(forged_headers_are_refused),
        TEST(forged_documents_are_refused),
        TEST(llmc_shards_are_read),
        TEST(raw_numbers_are_read_and_their_width_inferred),
        TEST(npy_arrays_are_read),
        TEST(any_other_file_is_bytes),
        TEST(ids_beyond_the_vocabulary_are_named),
        TEST(a_file_cut_short_while_open_is_an_error),
        TEST(wrong_writing_is_refused_and_leaves_nothing),
        TEST(every_format_converts_to_every_other),
        TEST(converting_keeps_documents_where_it_can),
        TEST(conversions_that_do_not_fit_leave_nothing),
        TEST(every_failure_of_disk_and_memory_is_reported),
        TEST(checking_tells_how_far_it_is_and_can_be_stopped),
        TEST(damaged_headers_are_refused_or_true),
    };
    return cmocka_run_group_tests_name("data", tests, NULL, remove_folder);
}

/* Tokenizers: vocabularies written here, files that are damaged, words that never end, threads, streams. The ids of
 * real vocabularies are compared with tiktoken's and Hugging Face's in tests/python/test_tokenizer.py. */
#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text/regex.h"
#include "text/scanner.h"
#include "text/unicode.h"

static char folder[] = "/tmp/tally-tokenizer-XXXXXX";
static char path[200];

static const char *file_of(const char *name, const void *bytes, size_t n) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *out = fopen(path, "wb");
    assert_true(out && fwrite(bytes, 1, n, out) == n && fclose(out) == 0);
    return path;
}
static const char *file_with(const char *name, const char *text) { return file_of(name, text, strlen(text)); }

static tl_encoding encoding_of(tl_tokenizer *t, const char *text, const tl_encode_options *options) {
    tl_encoding e;
    const size_t n = strlen(text);
    expect_true(tl_tokenizer_encode(t, &text, &n, 1, options, &e));
    return e;
}

static void expect_ids(tl_tokenizer *t, const char *text, const tl_encode_options *options, int n,
                       const int32_t *want) {
    tl_encoding e = encoding_of(t, text, options);
    expect_equal(e.count, n);
    for (int i = 0; i < n && i < e.count; i++) expect_equal(e.ids[i], want[i]);
    tl_encoding_free(&e);
}
#define IDS(...) \
    (int)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)), (const int32_t[]) { __VA_ARGS__ }

static void expect_round_trip(tl_tokenizer *t, const char *text, size_t n) {
    tl_encoding e;
    tl_encode_options options = tl_encode_defaults();
    options.special = TL_SPECIAL_TEXT;
    size_t bytes = 0;
    assert_true(tl_tokenizer_encode(t, &text, &n, 1, &options, &e));
    char *back = tl_tokenizer_decode(t, e.ids, e.count, false, &bytes);
    expect_equal(bytes, n);
    expect_true(back && !memcmp(back, text, n));
    free(back);
    tl_encoding_free(&e);
}

/* ---- Small tokenizers ---- */

static void bytes_are_tokens(void **state) {
    (void)state;
    tl_tokenizer *t = tl_tokenizer_bytes();
    expect_equal(tl_tokenizer_size(t), 256);
    expect_equal(tl_tokenizer_hash(t), TL_BYTES_HASH);
    expect_ids(t, "A\xff\n", NULL, IDS(65, 255, 10));
    expect_ids(t, "", NULL, 0, NULL);
    expect_round_trip(t, "a\0b\xc3", 4);
    tl_tokenizer_free(t);
}

static void characters_are_sorted_by_code_point(void **state) {
    (void)state;
    static const char text[] = "b\xc3\xa9"
                               "a\xe4\xb8\xad\nb";
    tl_tokenizer *t = tl_tokenizer_chars(text, strlen(text));
    expect_equal(tl_tokenizer_size(t), 5);
    expect_ids(t, "\nab\xc3\xa9\xe4\xb8\xad", NULL, IDS(0, 1, 2, 3, 4));
    size_t n = 1;
    tl_encoding e;
    const char *unknown = "z";
    expect_refused(tl_tokenizer_encode(t, &unknown, &n, 1, NULL, &e),
                   "the character \"z\" of the text is not in the vocabulary");
    tl_tokenizer_free(t);
    expect_refused(tl_tokenizer_chars("a\xff", 2), "not UTF-8 at byte 1");
    expect_refused(tl_tokenizer_chars("", 0), "no characters");
}

/* All bytes, and "ab", "abc", "bc" (which merges after "ab"), " a". */
static const char *ranks_file(void) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static char text[8192];
    size_t n = 0;
    for (int i = 0; i < 256; i++)
        n += (size_t)sprintf(text + n, "%c%c== %d\n", digits[i >> 2], digits[(i & 3) << 4], i);
    n += (size_t)sprintf(text + n, "YWI= 256\nYmM= 257\nYWJj 258\nIGE= 259\n");
    return file_of("small.tiktoken", text, n);
}

static void ranks_merge_the_smallest_first(void **state) {
    (void)state;
    tl_tokenizer *t = tl_tokenizer_read(ranks_file(), "cl100k_base");
    assert_non_null(t);
    expect_ids(t, "abc", NULL, IDS(258));
    expect_ids(t, "abcbc", NULL, IDS(258, 257)); /* ab c bc, and then abc */
    expect_ids(t, "bcab a", NULL, IDS(257, 256, 259));
    for (int i = 0; i < 256; i++) expect_round_trip(t, (char[]){(char)i, 'a', (char)i}, 3);
    tl_tokenizer_free(t);
    expect_refused(tl_tokenizer_read(ranks_file(), NULL), "260 ranks belong to no known encoding");
    expect_refused(tl_tokenizer_read(ranks_file(), "cl100k_bas"), "did you mean \"cl100k_base\"?");
    expect_refused(tl_tokenizer_read(file_with("x.tiktoken", "YWI= 0\nYWI= 1\n"), "gpt2"),
                   "tokens 0 and 1 are the same bytes");
    expect_refused(tl_tokenizer_read(file_with("x.tiktoken", "YWI= 0\nYWJj 0\n"), "gpt2"), "two tokens have the id 0");
    expect_refused(tl_tokenizer_read(file_with("x.tiktoken", "YWI= 0\nYW=J 1\n"), "gpt2"),
                   "x.tiktoken:2: not a token in base64");
    expect_refused(tl_tokenizer_read(file_with("x.tiktoken", "YWI= 1000000000\n"), "gpt2"),
                   "token id 1000000000 is out of range");
    expect_refused(tl_tokenizer_read(file_with("x.tiktoken", "YWI= 0\n"), "gpt2"), "no token is the byte 0");
}

static void gpt2_files_are_read_by_either_name(void **state) {
    (void)state;
    file_with("vocab.json", "{\"a\": 0, \"b\": 1, \"\\u0120\": 2, \"\\u0120a\": 3, \"ab\": 4, \"<|endoftext|>\": 5}");
    file_with("merges.txt", "#version: 0.2\n\xc4\xa0 a\na b\n");
    for (int i = 0; i < 2; i++) {
        tl_tokenizer *t = tl_tokenizer_read(i ? path : folder, NULL);
        assert_non_null(t);
        expect_equal(tl_tokenizer_find(t, " a", 2), 3);
        expect_ids(t, "ab ab", NULL, IDS(4, 3, 1)); /* " a" merges first: its rank is smaller */
        expect_ids(t, "a?b", NULL, IDS(0, 1));      /* as Hugging Face does without an unknown token */
        tl_tokenizer_free(t);
    }
    expect_refused(tl_tokenizer_read(file_with("merges.txt", "a b c\n"), NULL), "merge 1 is not two tokens");
    expect_refused(tl_tokenizer_read(file_with("merges.txt", "b a\n"), NULL),
                   "merge 1: what it makes is not in the vocabulary");
    unlink(path);
    snprintf(path, sizeof path, "%s/vocab.json", folder);
    unlink(path);
}

/* ---- tokenizer.json and tekken.json ---- */

/* Characters with U+2581 for spaces, a byte, an unknown token, steps of every kind, added tokens, a template. */
static const char json_file[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"added_tokens\": [{\"id\": 0, \"content\": \"<s>\", \"special\": "
    "true},"
    "{\"id\": 9, \"content\": \"zz\", \"special\": false, \"normalized\": true, \"lstrip\": true, \"rstrip\": true,"
    "\"single_word\": true}],"
    "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFKC\"}, {\"type\": \"Strip\"},"
    "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"q+\"}, \"content\": \"a\"}]},"
    "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"String\": "
    "\"-\"},"
    "\"behavior\": \"Removed\", \"invert\": false}, {\"type\": \"Digits\", \"individual_digits\": true},"
    "{\"type\": \"Metaspace\", \"replacement\": \"\\u2581\", \"prepend_scheme\": \"first\", \"split\": true}]},"
    "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}},"
    "{\"Sequence\": {\"id\": \"A\"}}], \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [0]}}},"
    "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
    "\"\\u2581\"},"
    "\"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"},"
    "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]},"
    "\"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"fuse_unk\": true, \"byte_fallback\": true, "
    "\"dropout\": null,"
    "\"vocab\": {\"<s>\": 0, \"<unk>\": 1, \"\\u2581\": 2, \"a\": 3, \"b\": 4, \"\\u2581a\": 5, \"ab\": 6, \"<0x0A>\": "
    "7,"
    "\"2\": 8}, \"merges\": [\"\\u2581 a\", [\"a\", \"b\"]]}}";

static void a_tokenizer_json_is_read(void **state) {
    (void)state;
    file_with("tokenizer.json", json_file);
    tl_tokenizer *t = tl_tokenizer_read(folder, NULL);
    assert_non_null(t);
    unlink(path);
    expect_equal(tl_tokenizer_size(t), 10);
    expect_ids(t, " a ab-b2?!\n", NULL,
               IDS(3, 5, 4, 4, 8, 1)); /* the "a" is not at byte 0; "?!" is one unknown token */
    expect_ids(t, "ab\na", NULL, IDS(5, 4, 7, 3));
    expect_ids(t, "b zz a", NULL, IDS(2, 4, 9, 3)); /* with its spaces */
    expect_ids(t, "bzz", NULL, IDS(2, 4, 1));       /* no single word */
    expect_ids(t, "qqb", NULL, IDS(5, 4));
    expect_ids(t, "\xc2\xb2", NULL, IDS(2, 8)); /* U+00B2 is a 2 in NFKC */
    tl_encode_options o = tl_encode_defaults();
    o.has_template = true;
    expect_ids(t, "a", &o, IDS(0, 5));
    size_t bytes;
    char *back = tl_tokenizer_decode(t, (const int32_t[]){5, 4, 7, 6, 7, 2}, 6, false, &bytes);
    expect_text(back, "ab\nab\n ");
    free(back);
    tl_tokenizer_free(t);
    expect_refused(
        tl_tokenizer_read(file_with("x.json", "{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", 0]]}}"), NULL),
        "the model \"Unigram\" is not supported (need BPE)");
    expect_refused(tl_tokenizer_read(file_with("x.json", "{\"model\": {\"vocab\": {\"a\": 1"), NULL), "x.json: byte ");
    t = tl_tokenizer_read(file_with("x.json", "{\"model\": {\"vocab\": {\"\": 0}, \"merges\": []}}"), NULL);
    expect_ids(t, "a", NULL, 0, NULL); /* a token of no bytes */
    tl_tokenizer_free(t);
    expect_refused(tl_tokenizer_read(file_with("x.json", "hello"), NULL), "not a tokenizer");
}

/* Two special tokens, then the bytes and "ab". */
static const char *tekken_file(void) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static char text[32768];
    size_t n =
        (size_t)sprintf(text, "{\"config\": {\"pattern\": \"\\\\p{L}+|[^\\\\p{L}]\", \"default_vocab_size\": 259,"
                              "\"default_num_special_tokens\": 2}, \"special_tokens\": [{\"rank\": 0, \"token_str\": "
                              "\"<s>\"}], \"vocab\": [");
    for (int i = 0; i < 256; i++)
        n += (size_t)sprintf(text + n, "{\"rank\": %d, \"token_bytes\": \"%c%c==\", \"token_str\": \"\\u0000\"},", i,
                             digits[i >> 2], digits[(i & 3) << 4]);
    n += (size_t)sprintf(text + n,
                         "{\"rank\": 256, \"token_bytes\": \"YWI=\"}, {\"rank\": 257, \"token_bytes\": \"YmM=\"}]}");
    return file_of("tekken.json", text, n);
}

static void a_tekken_file_is_read(void **state) {
    (void)state;
    tl_tokenizer *t = tl_tokenizer_read(tekken_file(), NULL);
    assert_non_null(t);
    expect_equal(tl_tokenizer_size(t), 259);
    expect_equal(tl_tokenizer_find(t, "<SPECIAL_1>", 11), 1);
    expect_ids(t, "abc", NULL, IDS(258, 2 + 'c')); /* "bc" is beyond the vocabulary's size */
    expect_round_trip(t, "a\0\xff <s>", 7);
    tl_tokenizer_free(t);
    expect_refused(
        tl_tokenizer_read(file_with("tekken.json", "{\"vocab\": [{\"rank\": 0, \"token_bytes\": \"AA==\"}]}"), NULL),
        "not a tekken file");
    unlink(path);
}

/* ---- Special tokens ---- */

static void special_tokens_are_refused_allowed_or_text(void **state) {
    (void)state;
    tl_tokenizer *t = tl_tokenizer_read(ranks_file(), "cl100k_base");
    static const char text[] = "ab<|endoftext|>c";
    const char *given = text;
    const size_t n = strlen(text);
    tl_encoding e;
    expect_refused(tl_tokenizer_encode(t, &given, &n, 1, NULL, &e),
                   "contains the special token \"<|endoftext|>\" at byte 2");
    tl_encode_options o = tl_encode_defaults();
    o.special = TL_SPECIAL_ALLOW;
    expect_ids(t, text, &o, IDS(256, 100257, 'c'));
    o.special = TL_SPECIAL_TEXT;
    e = encoding_of(t, text, &o);
    expect_equal(e.count, 15);
    tl_encoding_free(&e);
    o.special = TL_SPECIAL_REFUSE;
    o.allowed = (const char *const[]){"<|endoftext|>"};
    o.n_allowed = 1;
    expect_ids(t, text, &o, IDS(256, 100257, 'c'));
    given = "<|fim_prefix|>";
    expect_refused(tl_tokenizer_encode(t, &given, &n, 1, &o, &e), "\"<|fim_prefix|>\" at byte 0");
    o.allowed = (const char *const[]){"<s>"};
    expect_refused(tl_tokenizer_encode(t, &given, &n, 1, &o, &e), "no special token \"<s>\" to allow");
    const int32_t ids[] = {256, 100257, 'c'};
    size_t bytes;
    char *back = tl_tokenizer_decode(t, ids, 3, true, &bytes);
    expect_text(back, "abc");
    free(back);
    expect_refused(tl_tokenizer_decode(t, (const int32_t[]){5, 100270}, 2, false, &bytes),
                   "no token has the id 100270");
    tl_tokenizer_free(t);
}

/* ---- Scanners agree with PCRE2 ---- */

static uint64_t draw(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Text with what patterns look at: contractions in both cases, the long s, runs of spaces and newlines, marks. */
static size_t text_make(char *text, size_t size, uint64_t seed) {
    static const char *const parts[] = {" ",
                                        "  ",
                                        "\n",
                                        "\r\n",
                                        "\t",
                                        "\xc2\xa0",
                                        "\xe3\x80\x80",
                                        "'",
                                        "'s",
                                        "'LL",
                                        "'Ve",
                                        "'\xc5\xbf",
                                        "a",
                                        "word",
                                        "B",
                                        "CAPS",
                                        "1",
                                        "12345",
                                        "\xc2\xb2",
                                        "\xd9\xa3",
                                        "\xc3\xa9",
                                        "\xcc\x81",
                                        "\xe0\xa5\x8d",
                                        "\xe4\xb8\xad\xe6\x96\x87",
                                        "\xe3\x81\x8b",
                                        "\xc7\x85",
                                        "\xca\xb0",
                                        "!",
                                        "...",
                                        "/",
                                        "//",
                                        "\xe2\x80\x94",
                                        "\xf0\x9f\x98\x80",
                                        "\xe2\x80\x8d",
                                        "\xcd\xb8",
                                        "_",
                                        "\x01"};
    size_t n = 0;
    for (;;) {
        const char *part = parts[draw(&seed) % (sizeof parts / sizeof *parts)];
        if (n + strlen(part) >= size) break;
        n += (size_t)sprintf(text + n, "%s", part);
    }
    if (size > 40) /* any character but surrogates */
        for (int i = 0; i < 4; i++) {
            uint32_t c = (uint32_t)(draw(&seed) % (i < 2 ? 0x3000 : 0x110000));
            if (c >= 0xd800 && c < 0xe000) c = 'x';
            n += (size_t)unicode_put(c, (uint8_t *)text + n);
        }
    return n;
}

static void scanners_find_the_words_of_their_patterns(void **state) {
    (void)state;
    static const char *const patterns[] = {scanner_gpt2_pattern,   scanner_r50k_pattern,  scanner_cl100k_pattern,
                                           scanner_llama3_pattern, scanner_qwen2_pattern, scanner_o200k_pattern,
                                           scanner_tekken_pattern};
    char text[160];
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        scanner_fn scan = scanner_find(patterns[p]);
        struct regex *r = regex_new(patterns[p], false, "test");
        void *data = NULL;
        assert_true(scan && r);
        for (uint64_t seed = 1; seed <= 4000; seed++) {
            const size_t n = text_make(text, 8 + seed % 120, seed);
            size_t begin = 0, end = SIZE_MAX;
            for (size_t at = 0; at < n; at = end) {
                const size_t got = (size_t)(scan((uint8_t *)text + at, (uint8_t *)text + n) - (uint8_t *)text);
                assert_true(regex_next(r, &data, (uint8_t *)text, n, end, &begin, &end));
                if (begin != at || end != got) {
                    print_error("pattern %zu, seed %llu: %zu..%zu by scanner, %zu..%zu by PCRE2 in \"%.*s\"\n", p,
                                (unsigned long long)seed, at, got, begin, end, (int)n, text);
                    fail();
                }
            }
        }
        regex_data_free(data);
        regex_free(r);
    }
    expect_refused(regex_new("\\p{Greek}+", false, "test"), "character class that is not known: \"\\p{Greek}+\"");
    expect_refused(regex_new("(a", false, "test"), "cannot be used: missing closing parenthesis");
    struct regex *slow = regex_new("(a+)+$", false, "test");
    void *data = NULL;
    size_t begin, end;
    char many[64];
    memset(many, 'a', sizeof many);
    many[63] = 'b';
    expect_true(!regex_next(slow, &data, (uint8_t *)many, sizeof many, SIZE_MAX, &begin, &end));
    expect_error(TL_ERROR_USE, "the tokenizer's pattern failed at byte 0 of the text: match limit exceeded");
    regex_data_free(data);
    regex_free(slow);
}

/* ---- Long words, threads, streams ---- */

/* A megabyte without a cut: quadratic time would be hours. The middle of it is the same as that of a shorter one. */
static void a_word_of_a_megabyte_takes_no_quadratic_time(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    tl_tokenizer *t = tl_tokenizer_read(ranks_file(), "cl100k_base");
    char *text = malloc(N + 1);
    for (int i = 0; i < N; i++) text[i] = "abcbc"[i % 5];
    text[N] = 0;
    tl_encoding e = encoding_of(t, text, NULL);
    expect_equal(e.count, N / 5 * 2 + 1); /* 1048576 = 5 * 209715 + 1: the last letter is alone */
    for (int64_t i = 0; i + 1 < e.count; i++) expect_true(e.ids[i] == (i % 2 ? 257 : 258));
    tl_encoding_free(&e);
    free(text);
    tl_tokenizer_free(t);
}

static void threads_and_streams_change_nothing(void **state) {
    (void)state;
    enum { TEXTS = 200, SIZE = 3000 };
    tl_tokenizer *t = tl_tokenizer_read(ranks_file(), "o200k");
    static char text[TEXTS * SIZE], *texts[TEXTS];
    size_t bytes[TEXTS], total = 0;
    for (int i = 0; i < TEXTS; i++) {
        texts[i] = text + total;
        bytes[i] = i % 7 ? text_make(texts[i], SIZE - 20, (uint64_t)i) : 0;
        total += bytes[i];
    }
    tl_encoding one, many, whole, parts = {0};
    const int before = tl_set_threads(1);
    expect_true(tl_tokenizer_encode(t, (const char *const *)texts, bytes, TEXTS, NULL, &one));
    tl_set_threads(3);
    expect_true(tl_tokenizer_encode(t, (const char *const *)texts, bytes, TEXTS, NULL, &many));
    tl_set_threads(before);
    expect_equal(one.count, many.count);
    expect_true(!memcmp(one.ids, many.ids, (size_t)one.count * sizeof *one.ids));
    expect_true(!memcmp(one.starts, many.starts, (TEXTS + 1) * sizeof *one.starts));
    const char *all = text;
    tl_encode_options o = tl_encode_defaults();
    o.has_offsets = true;
    expect_true(tl_tokenizer_encode(t, &all, &total, 1, &o, &whole));
    tl_encoder *stream = tl_encoder_new(t, &o);
    int64_t early = 0;
    for (size_t at = 0, n; at < total; at += n) {
        n = at * 7 % 9973 + 1 < total - at ? at * 7 % 9973 + 1 : total - at;
        expect_true(tl_encoder_add(stream, text + at, n, &parts));
        if (at < total / 2) early = parts.count;
    }
    expect_true(early > 0); /* it does not wait for the end */
    expect_true(tl_encoder_end(stream, &parts));
    expect_equal(parts.count, whole.count);
    expect_true(!memcmp(parts.ids, whole.ids, (size_t)whole.count * sizeof *whole.ids));
    expect_true(!memcmp(parts.offsets, whole.offsets, (size_t)whole.count * 2 * sizeof *whole.offsets));
    int64_t end = 0; /* the tokens cover the text without a gap */
    for (int64_t i = 0; i < whole.count; i++) {
        expect_true(whole.offsets[2 * i] == end);
        end = whole.offsets[2 * i + 1];
    }
    expect_equal(end, total);
    tl_encoder_free(stream);
    tl_encoding_free(&one);
    tl_encoding_free(&many);
    tl_encoding_free(&whole);
    tl_encoding_free(&parts);
    tl_tokenizer_free(t);
}

static void a_decoder_never_gives_half_a_character(void **state) {
    (void)state;
    tl_tokenizer *t = tl_tokenizer_bytes();
    tl_decoder *d = tl_decoder_new(t, false);
    tl_tokenizer_free(t); /* the decoder holds it */
    size_t n;
    expect_text(tl_decoder_add(d, (const int32_t[]){'a', 0xf0, 0x9f}, 3, &n), "a");
    expect_text(tl_decoder_add(d, (const int32_t[]){0x98}, 1, &n), "");
    expect_text(tl_decoder_add(d, (const int32_t[]){0x80, 'b', 0xc3}, 3, &n), "\xf0\x9f\x98\x80"
                                                                              "b");
    expect_text(tl_decoder_end(d, &n), "\xc3");
    expect_text(tl_decoder_add(d, (const int32_t[]){0x98, 'x'}, 2, &n), "\x98x"); /* no beginning to wait for */
    tl_decoder_free(d);
}

/* ---- Memory ---- */

static bool read_and_use(void) {
    tl_tokenizer *t = tl_tokenizer_read(path, "cl100k_base");
    const char *texts[] = {"abc <|endoftext|> abcbcabcbcabcbcabcbcabcbcabcbcabcbcabcbcabcbcabcbc", "a'll"};
    tl_encode_options o = tl_encode_defaults();
    o.special = TL_SPECIAL_ALLOW;
    o.has_offsets = true;
    tl_encoding e;
    size_t n;
    bool ok = t && tl_tokenizer_encode(t, texts, (size_t[]){strlen(texts[0]), 4}, 2, &o, &e);
    if (!ok) return tl_tokenizer_free(t), false;
    char *back = tl_tokenizer_decode(t, e.ids, e.count, false, &n);
    tl_decoder *d = back ? tl_decoder_new(t, false) : NULL;
    ok = d && tl_decoder_add(d, e.ids, e.count, &n) && tl_decoder_end(d, &n);
    tl_encoding parts = {0};
    tl_encoder *s = ok ? tl_encoder_new(t, &o) : NULL;
    ok = s && tl_encoder_add(s, texts[0], strlen(texts[0]), &parts) && tl_encoder_end(s, &parts);
    tl_encoder_free(s);
    tl_encoding_free(&parts);
    tl_decoder_free(d);
    free(back);
    tl_encoding_free(&e);
    tl_tokenizer_free(t);
    return ok;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    for (int file = 0; file < 3; file++) {
        if (file == 0) ranks_file();
        else if (file == 1) file_with("small.json", json_file);
        else tekken_file();
        uint64_t n = 0;
        for (bool ok = false; !ok;) {
            tl_fail_allocation(++n, false);
            ok = read_and_use();
            tl_fail_allocation(0, false);
            if (!ok) expect_error(TL_ERROR_MEMORY, "");
            tl_error_clear();
        }
        expect_true(n > 20);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(bytes_are_tokens),
                                       TEST(characters_are_sorted_by_code_point),
                                       TEST(ranks_merge_the_smallest_first),
                                       TEST(gpt2_files_are_read_by_either_name),
                                       TEST(a_tokenizer_json_is_read),
                                       TEST(a_tekken_file_is_read),
                                       TEST(special_tokens_are_refused_allowed_or_text),
                                       TEST(scanners_find_the_words_of_their_patterns),
                                       TEST(a_word_of_a_megabyte_takes_no_quadratic_time),
                                       TEST(threads_and_streams_change_nothing),
                                       TEST(a_decoder_never_gives_half_a_character),
                                       TEST(every_allocation_may_fail)};
    if (!mkdtemp(folder)) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) ? 1 : failed;
}

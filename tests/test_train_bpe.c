/* BPE training: the same merges as a plain reference that counts all pairs anew for each merge, files and threads that
 * change nothing, formats, and input that is no good. Hugging Face's trainer is compared in
 * tests/python/test_tokenizer_train.py. */
#include "support/check.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text/scanner.h"
#include "text/tokenizer.h"

static char folder[] = "/tmp/tally-train-bpe-XXXXXX";
static char path[200];

static const char *file_of(const char *name, const void *bytes, size_t n) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *out = fopen(path, "wb");
    assert_true(out && fwrite(bytes, 1, n, out) == n && fclose(out) == 0);
    return path;
}

static uint32_t draw_state = 1;
static uint32_t draw(uint32_t n) {
    draw_state ^= draw_state << 13;
    draw_state ^= draw_state >> 17;
    draw_state ^= draw_state << 5;
    return (draw_state >> 8) % n;
}

/* ---- The reference ---- */

enum { MOST_WORDS = 4000, MOST_LETTERS = 20000, MOST_TOKENS = 640, MOST_LENGTH = 1024 };
static struct {
    int n_words, starts[MOST_WORDS + 1], lengths[MOST_WORDS]; /* words that occur twice are here twice */
    int ids[MOST_LETTERS];
    int n_tokens, token_lengths[MOST_TOKENS];
    uint8_t tokens[MOST_TOKENS][MOST_LENGTH];
    int counts[MOST_TOKENS][MOST_TOKENS];
} plain;

static int plain_compare(int a, int b) {
    const int n_a = plain.token_lengths[a], n_b = plain.token_lengths[b];
    const int order = memcmp(plain.tokens[a], plain.tokens[b], (size_t)(n_a < n_b ? n_a : n_b));
    return order ? order : n_a - n_b;
}

static bool plain_is_better(int a, int b, int best_a, int best_b, tl_ties ties) {
    if (plain.counts[a][b] != plain.counts[best_a][best_b]) return plain.counts[a][b] > plain.counts[best_a][best_b];
    if (ties == TL_TIES_HUGGING_FACE) return a != best_a ? a < best_a : b < best_b;
    const int first = plain_compare(a, best_a);
    return first ? first > 0 : plain_compare(b, best_b) > 0;
}

static bool plain_merge(tl_ties ties, int min_count) {
    int best_a = 0, best_b = 0, made = plain.n_tokens;
    memset(plain.counts, 0, sizeof plain.counts);
    for (int w = 0; w < plain.n_words; w++)
        for (int i = 0; i + 1 < plain.lengths[w]; i++) {
            const int *at = plain.ids + plain.starts[w] + i;
            plain.counts[at[0]][at[1]]++;
        }
    for (int a = 0; a < plain.n_tokens; a++)
        for (int b = 0; b < plain.n_tokens; b++)
            if (plain.counts[a][b] && plain_is_better(a, b, best_a, best_b, ties)) best_a = a, best_b = b;
    if (plain.counts[best_a][best_b] < min_count) return false;
    const int n_a = plain.token_lengths[best_a], n_b = plain.token_lengths[best_b];
    assert_true(made < MOST_TOKENS && n_a + n_b <= MOST_LENGTH);
    memcpy(plain.tokens[made], plain.tokens[best_a], (size_t)n_a);
    memcpy(plain.tokens[made] + n_a, plain.tokens[best_b], (size_t)n_b);
    plain.token_lengths[made] = n_a + n_b;
    plain.n_tokens++;
    for (int w = 0; w < plain.n_words; w++) {
        int *word = plain.ids + plain.starts[w], to = 0;
        for (int i = 0; i < plain.lengths[w]; i++) {
            const bool is_pair = i + 1 < plain.lengths[w] && word[i] == best_a && word[i + 1] == best_b;
            word[to++] = is_pair ? made : word[i];
            i += is_pair;
        }
        plain.lengths[w] = to;
    }
    return true;
}

static void plain_train(const char *text, size_t bytes, const char *pattern, tl_ties ties, int vocabulary,
                        int min_count) {
    int byte_ids[256], letters = 0;
    plain.n_words = plain.n_tokens = 0;
    for (uint32_t c = 0; c < 512; c++) {
        const int byte = ties == TL_TIES_HUGGING_FACE ? tokenizer_character_byte(c) : c < 256 ? (int)c : -1;
        if (byte < 0) continue;
        byte_ids[byte] = plain.n_tokens;
        plain.tokens[plain.n_tokens][0] = (uint8_t)byte;
        plain.token_lengths[plain.n_tokens++] = 1;
    }
    assert_int_equal(plain.n_tokens, 256);
    const uint8_t *at = (const uint8_t *)text, *end = at + bytes;
    while (at < end) {
        const uint8_t *next = scanner_find(pattern)(at, end);
        assert_true(plain.n_words < MOST_WORDS && letters + (next - at) <= MOST_LETTERS);
        plain.starts[plain.n_words] = letters;
        plain.lengths[plain.n_words++] = (int)(next - at);
        for (; at < next; at++) plain.ids[letters++] = byte_ids[*at];
    }
    while (plain.n_tokens < vocabulary && plain_merge(ties, min_count)) continue;
}

/* Trains both, and compares the vocabulary and what becomes of the words. */
static void expect_plain(const char *name, const char *text, size_t bytes, const char *encoding, const char *pattern,
                         int min_count) {
    for (tl_ties ties = TL_TIES_GREATER; ties <= TL_TIES_HUGGING_FACE; ties++) {
        tl_bpe_options o = tl_bpe_defaults();
        o.vocabulary = 600;
        o.n_special = 0;
        o.encoding = encoding;
        o.ties = ties;
        o.min_count = min_count;
        plain_train(text, bytes, pattern, ties, (int)o.vocabulary, min_count ? min_count : 1);
        tl_bpe *bpe = tl_bpe_new(&o);
        expect_true(tl_bpe_add(bpe, text, bytes));
        tl_tokenizer *t = tl_bpe_train(bpe);
        tl_bpe_free(bpe);
        assert_non_null(t);
        for (int id = 0; id < plain.n_tokens && id < tl_tokenizer_size(t); id++) {
            size_t n;
            const char *token = tl_tokenizer_token(t, id, &n);
            if (n != (size_t)plain.token_lengths[id] || memcmp(token, plain.tokens[id], n))
                fail_msg("%s, ties %d: token %d is \"%.*s\", want \"%.*s\"", name, (int)ties, id, (int)n, token,
                         plain.token_lengths[id], (const char *)plain.tokens[id]);
        }
        if (tl_tokenizer_size(t) != plain.n_tokens)
            fail_msg("%s, %s, ties %d: %d tokens, want %d", name, encoding, (int)ties, (int)tl_tokenizer_size(t),
                     plain.n_tokens);
        tl_encoding e;
        expect_true(tl_tokenizer_encode(t, &text, &bytes, 1, NULL, &e));
        int64_t k = 0;
        for (int w = 0; w < plain.n_words; w++)
            for (int i = 0; i < plain.lengths[w]; i++, k++)
                if (k >= e.count || e.ids[k] != plain.ids[plain.starts[w] + i])
                    fail_msg("%s, ties %d: word %d is encoded in another way", name, (int)ties, w);
        expect_equal(e.count, k);
        tl_encoding_free(&e);
        tl_tokenizer_free(t);
    }
}

static const char english[] =
    "The most frequent pair of neighbouring tokens becomes a token, again and again, until the vocabulary is as large "
    "as it was asked to be. A merge goes through the places of its pair, skips those that other merges have changed "
    "since, and sums up the neighbours by token. Pairs with the old tokens lose these counts; pairs with the new "
    "token begin with them.\n\nIt wasn't the first time they'd seen it, and it won't be the last: \"Where,\" she "
    "asked, \"is the other one?\"  Nobody knew.  In 1887 there were 1,024 of them; in 1912 there were 65,536.\n";
static const char code[] =
    "static int merge(struct pair *p, int n) {\n    for (int i = 0; i < n; i++) {\n        if (p[i].count == 0) "
    "continue;\n        p[i].count--;\n        p[i].next = &p[i + 1];\n    }\n    return n > 0 ? p[0].count : "
    "-1;\n}\n\n"
    "static void merges(struct pairs *pairs) {\n\tfor (int i = 0; i < pairs->n; ++i)\n\t\tmerge(&pairs->at[i], "
    "pairs->n);\n}\n";
static const char unicode[] = "Der Übergang über die Straße. Ça déçoit, naïve élève!\n"
                              "Привет, мир: приветствую мир.\n"
                              "日本語のテキスト、日本のテキスト。\n"
                              "한국어 문장 한국어.\n"
                              "😀😀👍🏽 😀👍🏽\n"
                              "≠ ≠≠ é\xcc\x81 नमस्ते नमस्ते\n";

static void merges_are_those_of_a_plain_reference(void **state) {
    (void)state;
    static char text[6000];
    expect_plain("english", english, strlen(english), "gpt2", scanner_gpt2_pattern, 0);
    expect_plain("english", english, strlen(english), "o200k_base", scanner_o200k_pattern, 2);
    expect_plain("code", code, strlen(code), "cl100k_base", scanner_cl100k_pattern, 0);
    expect_plain("unicode", unicode, strlen(unicode), "llama3", scanner_llama3_pattern, 0);
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)draw(256);
    expect_plain("random bytes", text, 3000, "qwen", scanner_qwen2_pattern, 0);
    for (int letters = 1; letters <= 3; letters++) { /* runs of the same letter overlap with themselves */
        for (size_t i = 0; i < sizeof text; i++) text[i] = draw(12) ? (char)('a' + draw((uint32_t)letters)) : ' ';
        expect_plain("repeated letters", text, sizeof text, "gpt2", scanner_gpt2_pattern, 0);
    }
}

/* ---- Files ---- */

enum { LONG = 5 << 20 };
static char *long_text(void) {
    static const char *const words[] = {"the",  "merge", "Tokens", "don't", "1887", "日本",
                                        "über", "\n",    "\n\n",   " ",     "e."};
    char *text = malloc(LONG + 64);
    assert_non_null(text);
    size_t n = 0;
    while (n < LONG) {
        const char *word = words[draw(11)];
        n += (size_t)sprintf(text + n, "%s%s", word, draw(3) ? " " : "");
        if (draw(500) == 0) n += (size_t)sprintf(text + n, "<|endoftext|>");
        if (draw(4) == 0) text[n++] = (char)('a' + draw(26));
        if (draw(9) == 0) text[n++] = (char)draw(256);
    }
    text[LONG] = 0;
    return text;
}

static void pieces_threads_and_files_change_nothing(void **state) {
    (void)state;
    char *text = long_text();
    const char *file = file_of("long.txt", text, LONG);
    uint64_t words = 0, hash = 0;
    const uint8_t *at = (const uint8_t *)text, *end = at + LONG, *stop;
    for (; at < end; at = stop + 13 < end ? stop + 13 : end) {
        for (stop = at; stop < end && (end - stop < 13 || memcmp(stop, "<|endoftext|>", 13)); stop++) continue;
        for (const uint8_t *word = at; word < stop; words++) word = scanner_find(scanner_gpt2_pattern)(word, stop);
    }
    tl_bpe_options o = tl_bpe_defaults();
    o.vocabulary = 1000;
    const int threads = omp_get_max_threads();
    for (int i = 0; i < 3; i++) {
        omp_set_num_threads(i == 0 ? 4 : 1);
        tl_bpe *bpe = tl_bpe_new(&o);
        expect_true(i == 2 ? tl_bpe_add(bpe, text, LONG) : tl_bpe_add_files(bpe, &file, 1));
        const tl_bpe_counts counts = tl_bpe_count(bpe);
        expect_equal(counts.bytes, LONG);
        expect_equal(counts.words, words);
        tl_tokenizer *t = tl_bpe_train(bpe);
        if (i == 0) hash = tl_tokenizer_hash(t);
        expect_equal(tl_tokenizer_size(t), 1000);
        expect_equal(tl_tokenizer_hash(t), hash);
        expect_equal(tl_tokenizer_find(t, "<|endoftext|>", 13), 999);
        expect_equal(tl_tokenizer_find(t, "endo", 4), -1);
        tl_tokenizer_free(t);
        tl_bpe_free(bpe);
    }
    omp_set_num_threads(threads);
    free(text);
}

static void a_word_without_end_is_cut(void **state) {
    (void)state;
    enum { N = 17 << 20 };
    char *text = malloc(N);
    assert_non_null(text);
    for (size_t i = 0; i < N; i++) text[i] = (char)('a' + draw(26));
    tl_bpe_options o = tl_bpe_defaults();
    o.vocabulary = 257 + 3;
    tl_bpe *bpe = tl_bpe_new(&o);
    expect_true(tl_bpe_add(bpe, text, N));
    expect_equal(tl_bpe_count(bpe).distinct, 2);
    expect_equal(tl_bpe_count(bpe).distinct_bytes, N);
    tl_tokenizer *t = tl_bpe_train(bpe);
    expect_equal(tl_tokenizer_size(t), 260);
    tl_tokenizer_free(t);
    tl_bpe_free(bpe);
    free(text);
}

static void tokens_have_at_most_1024_bytes(void **state) {
    (void)state;
    enum { N = 1 << 16 };
    char *text = malloc(N);
    assert_non_null(text);
    memset(text, 'a', N);
    tl_bpe *bpe = tl_bpe_new(NULL);
    expect_true(tl_bpe_add(bpe, text, N));
    tl_tokenizer *t = tl_bpe_train(bpe);
    expect_equal(tl_tokenizer_size(t), 257 + 10); /* 2, 4, ..., 1024 */
    size_t n;
    tl_tokenizer_token(t, 265, &n);
    expect_equal(n, 1024);
    expect_true(tl_tokenizer_is_special(t, 266));
    tl_tokenizer_free(t);
    tl_bpe_free(bpe);
    free(text);
}

/* ---- Formats ---- */

static tl_tokenizer *english_tokenizer(tl_ties ties) {
    tl_bpe_options o = tl_bpe_defaults();
    o.vocabulary = 400;
    o.ties = ties;
    const char *file = file_of("english.txt", english, strlen(english));
    return tl_tokenizer_train(&file, 1, &o);
}

static void expect_same_tokens(tl_tokenizer *a, tl_tokenizer *b) {
    const char *texts[] = {english, code, unicode};
    for (int i = 0; i < 3; i++) {
        const size_t n = strlen(texts[i]);
        tl_encoding x, y;
        expect_true(tl_tokenizer_encode(a, &texts[i], &n, 1, NULL, &x));
        expect_true(tl_tokenizer_encode(b, &texts[i], &n, 1, NULL, &y));
        expect_equal(x.count, y.count);
        expect_true(x.count == y.count && !memcmp(x.ids, y.ids, (size_t)x.count * sizeof *x.ids));
        tl_encoding_free(&x);
        tl_encoding_free(&y);
    }
}

static void written_files_are_read_back(void **state) {
    (void)state;
    char gpt2[240], ranks[240];
    for (tl_ties ties = TL_TIES_GREATER; ties <= TL_TIES_HUGGING_FACE; ties++) {
        tl_tokenizer *t = english_tokenizer(ties);
        assert_non_null(t);
        expect_equal(tl_tokenizer_find(t, "<|endoftext|>", 13), ties ? 0 : 399);
        expect_equal(tl_tokenizer_find(t, "!", 1), ties ? 1 : 33);
        snprintf(gpt2, sizeof gpt2, "%s/gpt2-%d/new", folder, (int)ties);
        snprintf(ranks, sizeof ranks, "%s/ranks-%d", folder, (int)ties);
        expect_true(tl_tokenizer_save(t, gpt2, "gpt2"));
        tl_tokenizer *back = tl_tokenizer_read(gpt2, NULL);
        expect_equal(tl_tokenizer_hash(back), tl_tokenizer_hash(t));
        expect_same_tokens(t, back);
        tl_tokenizer_free(back);
        expect_true(tl_tokenizer_save(t, ranks, "ranks"));
        back = tl_tokenizer_read(ranks, "gpt2");
        assert_non_null(back);
        expect_same_tokens(t, back);
        tl_tokenizer_free(back);
        tl_tokenizer_free(t);
    }
}

static void tokenizer_json_holds_every_pattern(void **state) {
    (void)state;
    const char *encoding;
    for (int i = 0; (encoding = tl_tokenizer_encoding(i)); i++) {
        tl_bpe_options o = tl_bpe_defaults();
        o.vocabulary = 400;
        o.encoding = encoding;
        o.special = (const char *const[]){"<|a|>", "<\\\"\n>"};
        o.n_special = 2;
        o.ties = i % 2 ? TL_TIES_HUGGING_FACE : TL_TIES_GREATER;
        tl_bpe *bpe = tl_bpe_new(&o);
        expect_true(tl_bpe_add(bpe, code, strlen(code)) && tl_bpe_add(bpe, unicode, strlen(unicode)));
        tl_tokenizer *t = tl_bpe_train(bpe);
        expect_true(tl_tokenizer_save(t, folder, "json"));
        snprintf(path, sizeof path, "%s/tokenizer.json", folder);
        tl_tokenizer *back = tl_tokenizer_read(path, NULL);
        expect_equal(tl_tokenizer_hash(back), tl_tokenizer_hash(t));
        expect_same_tokens(t, back);
        tl_tokenizer_free(back);
        tl_tokenizer_free(t);
        tl_bpe_free(bpe);
    }
}

static void what_a_format_cannot_hold_is_refused(void **state) {
    (void)state;
    tl_bpe_options o = tl_bpe_defaults();
    o.vocabulary = 300;
    o.encoding = "llama3";
    o.special = (const char *const[]){"\xc4\xa0the"}; /* as GPT-2's files write " the" */
    tl_bpe *bpe = tl_bpe_new(&o);
    expect_true(tl_bpe_add(bpe, english, strlen(english)));
    tl_tokenizer *t = tl_bpe_train(bpe), *chars = tl_tokenizer_chars("abc", 3);
    expect_refused(tl_tokenizer_save(t, folder, "gpt2"), "stand for gpt2's pattern without a normalizer");
    expect_refused(tl_tokenizer_save(t, folder, "json"), "the special token 299 is written like the token");
    expect_refused(tl_tokenizer_save(t, folder, "tekken"), "format \"tekken\" (need json, gpt2 or ranks)");
    expect_refused(tl_tokenizer_save(chars, folder, "gpt2"), "write tokenizer.json instead");
    expect_refused(tl_tokenizer_save(chars, folder, "ranks"), "ranks are of byte-level tokens");
    tl_tokenizer_free(t);
    tl_tokenizer_free(chars);
    tl_bpe_free(bpe);
}

/* ---- Input that is no good ---- */

static tl_bpe *with(int64_t vocabulary, const char *encoding, const char *first, const char *second) {
    tl_bpe_options o = tl_bpe_defaults();
    o.vocabulary = vocabulary;
    o.encoding = encoding;
    o.special = (const char *const[]){first, second};
    o.n_special = second ? 2 : first ? 1 : 0;
    return tl_bpe_new(&o);
}

static void wrong_options_and_empty_texts_are_refused(void **state) {
    (void)state;
    expect_refused(with(256, NULL, "<a>", NULL), "vocabulary 256 (need 257, for 256 bytes and 1 special token, to");
    expect_refused(with(257, NULL, "<a>", "<b>"), "vocabulary 257 (need 258, for 256 bytes and 2 special tokens, to");
    expect_refused(with(1 << 30, NULL, NULL, NULL), "vocabulary 1073741824 (need 256,");
    expect_refused(with(300, "o200k_bse", NULL, NULL), "did you mean \"o200k_base\"?");
    expect_refused(with(300, NULL, "a", NULL), "special token \"a\" (need 2 to 256 bytes of UTF-8)");
    expect_refused(with(300, NULL, "<a>", "<a>"), "special token \"<a>\" is given twice");
    expect_refused(with(300, NULL, "\xff<a>", NULL), "need 2 to 256 bytes of UTF-8");
    const char *empty = file_of("empty.txt", "", 0), *missing = "/nonexistent/text";
    expect_refused(tl_tokenizer_train(&empty, 1, NULL), "there is no word to learn from (0 bytes of text were added)");
    expect_refused(tl_tokenizer_train(NULL, 0, NULL), "there is no word to learn from");
    expect_true(tl_tokenizer_train(&missing, 1, NULL) == NULL);
    expect_error(TL_ERROR_IO, "/nonexistent/text");
    tl_bpe *bpe = with(300, NULL, "<a>", NULL);
    expect_true(tl_bpe_add(bpe, "<a><a>", 6));
    expect_refused(tl_bpe_train(bpe), "there is no word to learn from (6 bytes of text were added)");
    expect_true(tl_bpe_add(bpe, "x<a>y", 5)); /* no pair at all */
    tl_tokenizer *t = tl_bpe_train(bpe);
    expect_equal(tl_tokenizer_size(t), 257);
    tl_tokenizer_free(t);
    tl_bpe_free(bpe);
}

static bool stop(bool is_merging, uint64_t done, uint64_t total, void *context) {
    expect_true(done <= total);
    return is_merging != *(const bool *)context;
}
static void progress_can_stop_it(void **state) {
    (void)state;
    const char *file = file_of("english.txt", english, strlen(english));
    tl_bpe_options o = tl_bpe_defaults();
    o.progress = stop;
    for (int i = 0; i < 2; i++) {
        o.context = &(bool){i};
        expect_refused(tl_tokenizer_train(&file, 1, &o), "bpe: stopped");
    }
}

static bool stop_later(void *calls_left) { return (*(int *)calls_left)-- <= 0; }
static void so_can_the_stop_hook(void **state) {
    (void)state;
    const char *file = file_of("english.txt", english, strlen(english));
    tl_tokenizer *t = NULL;
    int n_stops = 0;
    while (!t) { /* once at every place that asks, until nothing asks so late */
        tl_set_stop_hook(stop_later, &(int){n_stops});
        t = tl_tokenizer_train(&file, 1, NULL);
        if (t) break;
        n_stops++;
        expect_error(TL_ERROR_USE, "bpe: stopped");
    }
    tl_set_stop_hook(NULL, NULL);
    expect_true(n_stops > 2); /* for the words, and every 16 merges */
    tl_tokenizer_free(t);
}

static bool train_and_save(void *context) {
    (void)context;
    const char *texts[] = {"abab aab abcabc zzzz<a>zzz", "abab <b> q"};
    tl_bpe *bpe = with(270, "cl100k_base", "<a>", "<b>");
    bool ok = bpe != NULL;
    for (int i = 0; i < 2; i++) ok = ok && tl_bpe_add(bpe, texts[i], strlen(texts[i]));
    tl_tokenizer *t = ok ? tl_bpe_train(bpe) : NULL;
    ok = t && tl_tokenizer_save(t, folder, "json") && tl_tokenizer_save(t, folder, "ranks");
    tl_tokenizer_free(t);
    tl_bpe_free(bpe);
    return ok;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    uint64_t n = 0;
    for (bool ok = false; !ok;) {
        tl_fail_allocation(++n, false);
        ok = train_and_save(NULL);
        tl_fail_allocation(0, false);
        if (!ok) expect_error(TL_ERROR_MEMORY, "");
        tl_error_clear();
    }
    expect_true(n > 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(merges_are_those_of_a_plain_reference),
                                       TEST(pieces_threads_and_files_change_nothing),
                                       TEST(a_word_without_end_is_cut),
                                       TEST(tokens_have_at_most_1024_bytes),
                                       TEST(written_files_are_read_back),
                                       TEST(tokenizer_json_holds_every_pattern),
                                       TEST(what_a_format_cannot_hold_is_refused),
                                       TEST(wrong_options_and_empty_texts_are_refused),
                                       TEST(progress_can_stop_it),
                                       TEST(so_can_the_stop_hook),
                                       TEST(every_allocation_may_fail)};
    unicode_ready();
    if (!mkdtemp(folder)) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) ? 1 : failed;
}

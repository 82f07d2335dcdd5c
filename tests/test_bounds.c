/* Memory that reading a file takes, beside what the documentation promises: files that ask for as much as they can. A
 * child process reads each, and its peak of resident memory is measured, less what it had before. */
#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { IS_MEASURED = 0 }; /* the sanitizers' own memory is not the library's */
#else
enum { IS_MEASURED = 1 };
#endif

/* ---- A file that grows ---- */

static char *text;
static size_t n_text, room;

static void add(const char *bytes, size_t n) {
    if (n_text + n > room) {
        room = 2 * (n_text + n) + 4096;
        text = realloc(text, room);
        assert_non_null(text);
    }
    memcpy(text + n_text, bytes, n);
    n_text += n;
}
static void say(const char *words) { add(words, strlen(words)); }
static void number(long long n) {
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", n);
    say(digits);
}

/* The i-th word of letters and digits, the shortest first. */
static const char *word(long i, char to[12]) {
    static const char digits[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    char *at = to + 11;
    *at = 0;
    for (i++; i > 0; i = (i - 1) / 62) *--at = digits[(i - 1) % 62];
    return memmove(to, at, strlen(at) + 1);
}

static void base64(const unsigned char *bytes, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        const size_t left = n - i;
        const unsigned x =
            (unsigned)bytes[i] << 16 | (left > 1 ? (unsigned)bytes[i + 1] << 8 : 0) | (left > 2 ? bytes[i + 2] : 0);
        const char four[4] = {digits[x >> 18], digits[x >> 12 & 63], left > 1 ? digits[x >> 6 & 63] : '=',
                              left > 2 ? digits[x & 63] : '='};
        add(four, 4);
    }
}

/* ---- What it takes ---- */

static double kib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss;
}

static bool tokenizer_use(const char *path) {
    tl_tokenizer *t = tl_tokenizer_read(path, "gpt2");
    tl_tokenizer_free(t);
    return t != NULL;
}

static bool gguf_use(const char *path) {
    tl_gguf *file = tl_gguf_open(path);
    tl_gguf_close(file);
    return file != NULL;
}

/* Writes the file, reads it, and holds the memory to times * bytes + more. `reads`: it is a good one. */
static void expect_bounded(const char *what, bool (*use)(const char *path), bool reads, double times, double more) {
    char path[] = "/tmp/tally-bounds-XXXXXX";
    int fd = mkstemp(path), ends[2];
    double taken[2] = {0};
    const double bytes = (double)n_text, bound = times * bytes + more;
    assert_true(fd >= 0 && pipe(ends) == 0 && write(fd, text, n_text) == (ssize_t)n_text && close(fd) == 0);
    free(text);
    text = NULL;
    n_text = room = 0;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const double before = kib();
        const bool is_read = use(path);
        if (is_read != reads) fprintf(stderr, "%s: %s\n", what, is_read ? "was read" : tl_error_message());
        taken[0] = 1024 * (kib() - before);
        taken[1] = is_read == reads;
        _exit(write(ends[1], taken, sizeof taken) == sizeof taken ? 0 : 1);
    }
    int status = 1;
    assert_true(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    assert_true(read(ends[0], taken, sizeof taken) == sizeof taken);
    close(ends[0]), close(ends[1]), unlink(path);
    print_message("%-34s %8.2f MB takes %7.1f MB, %5.1f times (at most %.0f MB)\n", what, 1e-6 * bytes, 1e-6 * taken[0],
                  taken[0] / bytes, 1e-6 * bound);
    expect_true(taken[1] != 0);
    if (IS_MEASURED && taken[0] > bound)
        fail_msg("%s: %.0f bytes take %.0f bytes of memory (need at most %.0f)", what, bytes, taken[0], bound);
}

/* ---- Tokenizers: 40 times the file, and 16 MiB ---- */

enum { BYTES = 1500000 };
static void expect_tokenizer(const char *what, bool reads) { expect_bounded(what, tokenizer_use, reads, 40, 16 << 20); }

static void json_begin(const char *steps) {
    say("{");
    say(steps);
    say("\"model\":{\"type\":\"BPE\",\"vocab\":{");
}

static void vocabularies_of_tokenizer_json(void **state) {
    (void)state;
    char w[12];
    static const struct {
        const char *what;
        long step; /* between ids */
        bool reads;
    } all[] = {{"tokens, the shortest", 1, true},
               {"tokens with gaps of 16", 16, true},
               {"tokens with gaps of 250,000", 250000, false}};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        json_begin("");
        const long n = all[k].step > 1000 ? 4000 : BYTES;
        for (long i = 0; n_text < BYTES && i < n; i++) {
            say(i ? ",\"" : "\"");
            say(word(i, w));
            say("\":");
            number(i * all[k].step);
        }
        say("},\"merges\":[]}}");
        expect_tokenizer(all[k].what, all[k].reads);
    }
}

static void merges_of_tokenizer_json(void **state) {
    (void)state;
    char a[12], b[12];
    json_begin("");
    for (long i = 0; i < 62; i++) {
        if (i) say(",");
        say("\""), say(word(i, a)), say("\":"), number(i);
    }
    long n = 62;
    for (long i = 0; i < 62 * 62 + 62; i++)
        for (long j = 0; j < 62 && n_text < BYTES; j++) {
            say(",\""), say(word(i, a)), say(word(j, b)), say("\":"), number(n++);
        }
    say("},\"merges\":[");
    for (long i = 0, k = 0; i < 62 * 62 + 62 && k < n - 62; i++)
        for (long j = 0; j < 62 && k < n - 62; j++, k++) {
            if (k) say(",");
            say("\""), say(word(i, a)), say(" "), say(word(j, b)), say("\"");
        }
    say("]}}");
    expect_tokenizer("merges", true);
}

static void steps_of_tokenizer_json(void **state) {
    (void)state;
    static const struct {
        const char *what, *begin, *step, *end;
        long n;
        bool reads;
    } all[] = {
        {"a long list", "\"normalizer\":[", "0,", "0],", BYTES, false},
        {"empty objects", "\"decoder\":[", "{},", "0],", BYTES, false},
        {"normalizers", "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[", "{\"type\":\"NFC\"},",
         "{\"type\":\"NFC\"}]},", 4500, true},
        {"patterns", "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[",
         "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{L}|\\\\w[^\\\\s\\\\p{N}]\"},\"behavior\":\"Isolated\"},",
         "{\"type\":\"Digits\"}]},", 1900, false},
        {"a pattern of classes",
         "\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"", "\\\\w", "\"}},",
         8000, false},
        {"a pattern with repeats",
         "\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"",
         "(?:\\\\w{60}){60}", "\"}},", 40, false},
    };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        say("{"), say(all[k].begin);
        for (long i = 0; i < all[k].n && n_text < BYTES; i++) say(all[k].step);
        say(all[k].end), say("\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}");
        expect_tokenizer(all[k].what, all[k].reads);
    }
}

static void added_tokens_of_tokenizer_json(void **state) {
    (void)state;
    char w[12];
    say("{\"added_tokens\":[");
    for (long i = 0; n_text < BYTES; i++) {
        say(i ? ",{\"id\":" : "{\"id\":"), number(i + 1), say(",\"content\":\"<"), say(word(i, w)), say("\"}");
    }
    say("],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}");
    expect_tokenizer("added tokens", true);
}

/* All 256 bytes, so that ranks can be read. */
static int rank;
static void rank_add(const unsigned char *bytes, size_t n) {
    base64(bytes, n);
    say(" "), number(rank++), say("\n");
}
static void ranks_begin(void) {
    rank = 0;
    for (int i = 0; i < 256; i++) rank_add(&(unsigned char){(unsigned char)i}, 1);
}

static void ranks_of_short_and_of_long_tokens(void **state) {
    (void)state;
    unsigned char token[1024];
    ranks_begin();
    for (int i = 0; i < 65536; i++) rank_add((unsigned char[]){(unsigned char)(i >> 8), (unsigned char)i}, 2);
    for (int i = 0; n_text < BYTES; i++)
        rank_add((unsigned char[]){(unsigned char)(i >> 16), (unsigned char)(i >> 8), (unsigned char)i}, 3);
    expect_tokenizer("ranks, the shortest", false); /* one has the rank of <|endoftext|> */
    static const int longest[] = {1024, 200, 30};   /* every cut of such a token is a merge */
    for (int k = 0; k < 3; k++) {
        char what[64];
        ranks_begin();
        for (int c = 0; c < 256 && n_text < BYTES; c++) {
            memset(token, c, sizeof token);
            for (int n = 2; n <= longest[k]; n++) rank_add(token, (size_t)n);
        }
        snprintf(what, sizeof what, "ranks, up to %d equal bytes", longest[k]);
        expect_tokenizer(what, true);
    }
}

static void tekken_files(void **state) {
    (void)state;
    unsigned char token[512];
    say("{\"config\":{\"pattern\":\"a|[^a]\",\"default_vocab_size\":1000000,\"default_num_special_tokens\":100000},"
        "\"vocab\":[");
    rank = 0;
    for (int c = 0; c < 256; c++) {
        memset(token, c, sizeof token);
        say(c ? ",{\"rank\":" : "{\"rank\":"), number(rank++), say(",\"token_bytes\":\""), base64(token, 1), say("\"}");
    }
    for (int c = 0; c < 256 && n_text < BYTES; c++) {
        memset(token, c, sizeof token);
        for (size_t n = 2; n <= sizeof token; n++) {
            say(",{\"rank\":"), number(rank++), say(",\"token_bytes\":\""), base64(token, n), say("\"}");
        }
    }
    say("]}");
    expect_tokenizer("tekken, up to 512 equal bytes", true);
    say("{\"config\":{\"pattern\":\"a|[^a]\",\"default_vocab_size\":200000,\"default_num_special_tokens\":100000},"
        "\"vocab\":[");
    for (int c = 0; c < 256; c++) {
        say(c ? ",{\"rank\":" : "{\"rank\":"), number(c), say(",\"token_bytes\":\""),
            base64(&(unsigned char){(unsigned char)c}, 1), say("\"}");
    }
    say("]}");
    expect_tokenizer("tekken, special tokens", true);
}

/* ---- GGUF: 10 times the header, and 1 MiB ---- */

static void integer(uint64_t value, size_t bytes) { add((const char *)&value, bytes); }
static void gguf_text(const char *words) {
    integer(strlen(words), 8);
    say(words);
}
static void gguf_begin(uint64_t tensors, uint64_t pairs) {
    say("GGUF");
    integer(3, 4), integer(tensors, 8), integer(pairs, 8);
}

enum { GGUF_U8 = 0, GGUF_STRING = 8, GGUF_ARRAY = 9 };

static void gguf_headers(void **state) {
    (void)state;
    char w[12];
    const uint64_t n = 300000;
    gguf_begin(0, n); /* the shortest pairs */
    for (uint64_t i = 0; i < n; i++) gguf_text(word((long)i, w)), integer(GGUF_U8, 4), integer(0, 1);
    expect_bounded("GGUF: pairs", gguf_use, true, 10, 1 << 20);
    gguf_begin(0, 1); /* an array of empty texts */
    gguf_text("a"), integer(GGUF_ARRAY, 4), integer(GGUF_STRING, 4), integer(n, 8);
    for (uint64_t i = 0; i < n; i++) integer(0, 8);
    expect_bounded("GGUF: texts", gguf_use, true, 10, 1 << 20);
    gguf_begin(0, n); /* arrays without elements */
    for (uint64_t i = 0; i < n; i++)
        gguf_text(word((long)i, w)), integer(GGUF_ARRAY, 4), integer(GGUF_STRING, 4), integer(0, 8);
    expect_bounded("GGUF: empty arrays", gguf_use, true, 10, 1 << 20);
    gguf_begin(n / 10, 0); /* tensors without an axis, of 4 bytes each */
    for (uint64_t i = 0; i < n / 10; i++) gguf_text(word((long)i, w)), integer(0, 4), integer(0, 4), integer(32 * i, 8);
    while (n_text % 32) integer(0, 1);
    for (uint64_t i = 0; i < 8 * (n / 10 - 1) + 1; i++) integer(0, 4);
    expect_bounded("GGUF: tensors", gguf_use, true, 10, 1 << 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(vocabularies_of_tokenizer_json),
        TEST(merges_of_tokenizer_json),
        TEST(steps_of_tokenizer_json),
        TEST(added_tokens_of_tokenizer_json),
        TEST(ranks_of_short_and_of_long_tokens),
        TEST(tekken_files),
        TEST(gguf_headers),
    };
    return cmocka_run_group_tests_name("bounds", tests, NULL, NULL);
}

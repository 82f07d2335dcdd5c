/* Texts to token files: documents of every kind of file, damaged ones, and work that is stopped, killed and continued
 * at every point with the same bytes at the end. */
#include "support/check.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/file.h"
#include "data/byte_stream.h"
#include "data/tokenize.h"

static char folder[40] = "/dev/shm/tally-tokenize-XXXXXX"; /* where a sync takes no time, if there is such a place */

static const char *path_of(const char *name) {
    static char buffers[16][200];
    static int turn;
    char *path = buffers[turn++ % 16];
    snprintf(path, sizeof buffers[0], "%s/%s", folder, name);
    return path;
}

static const char *put(const char *name, const void *data, size_t bytes) {
    const char *path = path_of(name);
    FILE *f = fopen(path, "wb");
    assert_true(f && fwrite(data, 1, bytes, f) == bytes && fclose(f) == 0);
    return path;
}
static const char *put_text(const char *name, const char *text) { return put(name, text, strlen(text)); }

static const char *put_gzip(const char *name, const void *data, size_t bytes, const char *mode) {
    const char *path = path_of(name);
    gzFile f = gzopen(path, mode);
    assert_true(f && gzwrite(f, data, (unsigned)bytes) == (int)bytes && gzclose(f) == Z_OK);
    return path;
}

static const char *put_zstd(const char *name, const void *data, size_t bytes) {
    size_t room = ZSTD_compressBound(bytes);
    void *packed = malloc(room);
    size_t n = ZSTD_compress(packed, room, data, bytes, 3);
    const char *path = put(name, packed, n);
    free(packed);
    return path;
}

static char *get(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*bytes + 1);
    assert_int_equal(fread(data, 1, *bytes, f), *bytes);
    data[*bytes] = 0;
    fclose(f);
    return data;
}

static void expect_same_file(const char *a, const char *b) {
    size_t n[2];
    char *x = get(a, &n[0]), *y = get(b, &n[1]);
    if (!x || !y || n[0] != n[1] || memcmp(x, y, n[0])) fail_msg("%s and %s differ", a, b);
    free(x);
    free(y);
}

/* ---- Documents ---- */

/* All documents of some inputs, each followed by "|", or "!" and the error. `most` is the size of pieces. */
static const char *documents_of(const char *const *paths, const struct documents_options *options, size_t most) {
    static struct documents_text all;
    struct inputs inputs = {0};
    bool ok = true;
    all.n = 0;
    for (int i = 0; ok && paths[i]; i++) ok = inputs_add(&inputs, paths[i]);
    struct documents *d = ok ? documents_new(&inputs, options) : NULL;
    enum documents_part part = DOCUMENTS_SOME;
    while (d && documents_next(d, &all, most, &part) && part != DOCUMENTS_NONE)
        if (part == DOCUMENTS_LAST) documents_text_add(&all, "|", 1);
    documents_free(d);
    inputs_free(&inputs);
    if (tl_error() != TL_OK) {
        const char *message = strrchr(tl_error_message(), '/');
        documents_text_add(&all, "!", 1);
        documents_text_add(&all, message ? message + 1 : tl_error_message(), strlen(message ? message + 1 : "") + 1);
        tl_error_clear();
    }
    documents_text_add(&all, "", 1);
    return all.at;
}
#define PATHS(...) \
    (const char *const[]) { __VA_ARGS__, NULL }

static void expect_documents(const char *const *paths, struct documents_options options, const char *want) {
    static const size_t pieces[] = {1, 2, 3, 7, 1 << 20};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        expect_text(documents_of(paths, &options, pieces[i]), want);
}

static void a_text_is_a_document(void **state) {
    (void)state;
    const char *a = put_text("a.txt", "one\n\ntwo\r\n"), *b = put_text("b.txt", "three"),
               *none = put("none.txt", "", 0);
    const struct documents_options plain = {0};
    expect_documents(PATHS(a, none, b), plain, "one\n\ntwo\r\n||three|");
    const char *zipped = put_gzip("a.txt.gz", "one ", 4, "wb");
    put_gzip("a.txt.gz", "two", 3, "ab"); /* a second member */
    expect_documents(PATHS(zipped, put_zstd("b.zst", "three", 5)), plain, "one two|three|");
}

static void separators_cut_texts(void **state) {
    (void)state;
    struct documents_options blank = {.separator = DOCUMENTS_BLANK}, mark = {.separator = "<>"};
    const char *a = put_text("blank.txt", "\n\none\ntwo\n\nthree\r\n\r\n\r\n\nfour\n"),
               *b = put_text("more.txt", "five\n\n");
    expect_documents(PATHS(a, b), blank, "one\ntwo|three|four\n|five|");
    expect_documents(PATHS(put_text("lf.txt", "\r\n\n"), put_text("cr.txt", "a\rb\r\rc\r")), blank, "a\rb\r\rc\r|");
    expect_documents(PATHS(put_text("mark.txt", "<><>one<two><><>three>"), put_text("mark2.txt", "<>")), mark,
                     "one<two>|three>|");
    expect_documents(PATHS(put_text("mark3.txt", "<<>>one<")), mark, "<|>one<|");
}

static void lines_of_json_are_documents(void **state) {
    (void)state;
    static const struct {
        const char *line, *want;
    } cases[] = {
        {"{\"text\": \"a\"}", "a|"},
        {"{\"id\": [1, {\"text\": \"no\"}], \"text\": \"a\", \"x\": NaN}\r", "a|"},
        {"{\"text\": \"\"}", "|"},
        {"  {\"text\": \"a\", \"text\": \"b\"} ", "b|"},
        {"\xef\xbb\xbf{\"text\": \"a\"}", "a|"},
        {"{\"te\\u0078t\": \"\\u00e9\\ud83d\\ude00\\n\\\"\\\\\\/\\t\"}", "\xc3\xa9\xf0\x9f\x98\x80\n\"\\/\t|"},
        {"{\"text\": \"\xe4\xb8\xad plain text that is longer than a word \xf0\x9f\x98\x80\"}",
         "\xe4\xb8\xad plain text that is longer than a word \xf0\x9f\x98\x80|"},
        {"{\"x\": -Infinity, \"y\": [Infinity, 1e5, -0.5], \"text\": \"a\", \"z\": \"\\u0000\"}", "a|"},
        {"", ""},
        {" \t\r", ""},
        {"{}", "!x.jsonl: line 1: has no field \"text\" (--field NAME names another; --skip-bad skips such lines)"},
        {"{\"Text\": \"a\"}", "!x.jsonl: line 1: has no field \"text\" (--field NAME names"},
        {"{\"text\": 1}", "!x.jsonl: line 1: the field \"text\" is not a string (--skip-bad"},
        {"{\"text\": null}", "!x.jsonl: line 1: the field \"text\" is not a string"},
        {"{\"text\": \"a\", \"text\": 3}", "!x.jsonl: line 1: the field \"text\" is not a string"},
        {"\"text\"", "!x.jsonl: line 1, column 1: not JSON: no { (need an object)"},
        {"{\"text\": \"a\"", "!x.jsonl: line 1, column 13: not JSON: neither , nor }"},
        {"{\"text\": \"a\"} x", "!x.jsonl: line 1, column 15: not JSON: something after the end"},
        {"{\"text\": \"a}", "!x.jsonl: line 1, column 13: not JSON: a string without an end"},
        {"{\"text\": \"\\ud800\"}", "!x.jsonl: line 1, column 17: not JSON: half a surrogate pair"},
        {"{\"text\": \"\\udc00\\ud800\"}", "!x.jsonl: line 1, column 17: not JSON: half a surrogate"},
        {"{\"text\": \"\\x\"}", "!x.jsonl: line 1, column 13: not JSON: an unknown escape"},
        {"{\"text\": \"\xff\"}", "!x.jsonl: line 1, column 11: not JSON: not UTF-8"},
        {"{\"text\": \"\xed\xa0\x80\"}", "!x.jsonl: line 1, column 11: not JSON: not UTF-8"},
        {"{\"text\": \"a\tb\"}", "!x.jsonl: line 1, column 12: not JSON: a control character"},
        {"{\"text\": \"a\", }", "!x.jsonl: line 1, column 15: not JSON: no \""},
        {"{\"text\": \"a\", \"b\": 01}", "!x.jsonl: line 1"},
    };
    const struct documents_options plain = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = put_text("x.jsonl", cases[i].line), *got = documents_of(PATHS(path), &plain, 10);
        if (strncmp(got, cases[i].want, strlen(cases[i].want)) || (*got != '!' && strcmp(got, cases[i].want)))
            fail_msg("%s: got %s, want %s", cases[i].line, got, cases[i].want);
    }
}

static void nul_in_a_text_is_kept(void **state) {
    (void)state;
    char line[] = "{\"text\": \"a\\u0000b\"}";
    size_t n = 0, at;
    const char *problem, *text = documents_line(line, strlen(line), "text", &n, &problem, &at);
    expect_equal(n, 3);
    expect_true(text && !memcmp(text, "a\0b", 3));
}

static void bad_lines_can_be_skipped_and_fields_named(void **state) {
    (void)state;
    const char *path = put_text("bad.jsonl.gz", "{\"body\": \"a\"}\nnonsense\n\n{\"text\": \"b\"}\n{\"body\": \"c\"}");
    struct documents_options o = {.field = "body", .skips_bad = true};
    expect_documents(PATHS(path), o, "a|c|");
    o.skips_bad = false;
    expect_text(documents_of(PATHS(path), &o, 9), "a|!bad.jsonl.gz: line 2, column 1: not JSON: no { (need an object) "
                                                  "(--skip-bad skips such lines)");
    o.format = DOCUMENTS_TEXT;
    expect_documents(PATHS(put_text("y.jsonl", "{}")), o, "{}|");
    o = (struct documents_options){.format = DOCUMENTS_JSONL};
    expect_documents(PATHS(put_text("lines", "{\"text\": \"x\"}\n")), o, "x|");
}

static void long_lines_are_read(void **state) {
    (void)state;
    enum { N = 5 << 20 };
    char *line = malloc(N + 100), *want = malloc(N + 100);
    strcpy(line, "{\"text\": \"x\"}\n{\"text\": \"");
    size_t at = strlen(line);
    memset(line + at, 'a', N);
    strcpy(line + at + N, "\"}\n{\"text\": \"y\"}");
    strcpy(want, "x|");
    memset(want + 2, 'a', N);
    strcpy(want + 2 + N, "|y|");
    const char *path = put_gzip("long.jsonl.gz", line, strlen(line), "wb");
    struct documents_options plain = {0};
    expect_true(!strcmp(documents_of(PATHS(path), &plain, 1000), want));
    free(line);
    free(want);
}

static void folders_are_read_in_the_order_of_names(void **state) {
    (void)state;
    char command[600];
    snprintf(command, sizeof command, "mkdir -p %s/tree/b %s/tree/empty", folder, folder);
    assert_int_equal(system(command), 0);
    put_text("tree/c.txt", "3");
    put_text("tree/b/z.jsonl", "{\"text\": \"2\"}");
    put_text("tree/b/a.MD", "1");
    put_text("tree/a.txt", "0");
    put_text("tree/.hidden.txt", "no");
    put_text("tree/image.png", "no");
    put_text("tree/out.tok.partial.json", "no"); /* what tokenize itself puts there */
    const struct documents_options plain = {0};
    struct inputs inputs = {0};
    expect_documents(PATHS(path_of("tree")), plain, "0|1|2|3|");
    expect_true(inputs_add(&inputs, path_of("tree")));
    expect_equal(inputs.n, 4);
    expect_equal(inputs.n_ignored, 2);
    expect_equal(inputs.bytes, 1 + 1 + 13 + 1);
    inputs_free(&inputs);
    expect_text(
        documents_of(PATHS(path_of("tree/empty")), &plain, 9) + 1,
        "empty: has no texts (need .txt, .text, .md, .jsonl, .ndjson or .json, also with .gz or .zst; name files "
        "with other endings one by one)");
    assert_int_equal(symlink("a.txt", path_of("tree/link.txt")), 0);
    assert_int_equal(symlink("tree", path_of("way")), 0);
    expect_documents(PATHS(path_of("tree/link.txt")), plain, "0|"); /* the user's own word is followed */
    expect_text(documents_of(PATHS(path_of("way")), &plain, 9),
                "!link.txt: is a symbolic link, and links are not followed here (put the file itself there)");
    expect_text(documents_of(PATHS(path_of("absent")), &plain, 9),
                "!absent: cannot be examined: No such file or directory");
}

static void foreign_and_damaged_files_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *want;
    } cases[] = {
        {"PAR1....", 8, "!foreign.txt: is a Parquet file, which Tally does not read (make JSONL of it: python3"},
        {"BZh91AY", 7, "!foreign.txt: is compressed with bzip2 (give its text: bzip2 -dc"},
        {"\xfd"
         "7zXZ\0",
         6, "!foreign.txt: is compressed with xz"},
        {"PK\3\4", 4, "!foreign.txt: is a zip archive"},
        {"TALLYTOK", 8, "!foreign.txt: is a file of tokens already"},
        {"\x1f\x8b", 2, "!foreign.txt: ends after 2 bytes inside a gzip member (is it cut short?)"},
        {"\x1f\x8b\x08garbage...........", 21, "!foreign.txt: byte"},
        {"\x28\xb5\x2f\xfd", 4, "!foreign.txt: ends after 4 bytes inside a zstd frame"},
        {"\x28\xb5\x2f\xfdgarbage......", 17, "!foreign.txt: byte"},
    };
    const struct documents_options plain = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got = documents_of(PATHS(put("foreign.txt", cases[i].bytes, cases[i].n)), &plain, 100);
        /* a message with a slash in it is cut there */
        if (strncmp(got, cases[i].want, strlen(cases[i].want)) && i) fail_msg("got %s, want %s", got, cases[i].want);
    }
    size_t n;
    char text[3000];
    for (int i = 0; i < 3000; i++) text[i] = (char)(i * i % 251);
    for (int k = 0; k < 2; k++) {
        const char *whole = k ? put_zstd("whole", text, sizeof text) : put_gzip("whole", text, sizeof text, "wb");
        char *packed = get(whole, &n);
        for (size_t cut = 4; cut < n; cut++) {
            const char *got = documents_of(PATHS(put("cut.txt", packed, cut)), &plain, 1000);
            const char *error = strstr(got, "cut.txt"); /* the text has zeros: look behind the last */
            (void)error;
            if (tl_error() != TL_OK) fail_msg("an error was left");
        }
        /* each cut file is an error */
        for (size_t cut = 4; cut < n; cut += 7) {
            struct byte_stream *s = byte_stream_open(put("cut.txt", packed, cut), NULL);
            size_t got = 1;
            while (s && got && byte_stream_read(s, text, 100, &got)) {
            }
            if (tl_error() != TL_ERROR_USE) fail_msg("kind %d cut at %zu of %zu: no error", k, cut, n);
            tl_error_clear();
            byte_stream_close(s);
        }
        free(packed);
        for (int i = 0; i < 3000; i++) text[i] = (char)(i * i % 251);
    }
}

/* ---- The whole way ---- */

enum { DOCUMENTS = 60 };
static tl_tokenizer *words; /* a BPE with <|endoftext|> */
static const char *corpus, *corpus_text, *corpus_jsonl, *corpus_zstd;

/* Document i: some words, one of them long, some without text at all. */
static size_t document_text(int i, char *to) {
    size_t n = 0;
    for (int k = 0; k < i * 7 % 100; k++)
        n += (size_t)sprintf(to + n, "%s word%d the hen \xc3\xa9\xe4\xb8\xad,\n", k % 5 ? "" : "\n\n", k * i);
    if (i % 13 == 0) memset(to + n, 'a', 3000), n += 3000;
    to[n] = 0;
    return n;
}

static void json_put(FILE *f, const char *text) {
    fputs("{\"id\": 7, \"text\": \"", f);
    for (; *text; text++)
        if (*text == '\n') fputs("\\n", f);
        else fputc(*text, f);
    fputs("\"}\n", f);
}

static int corpus_make(void **state) {
    (void)state;
    static char text[1 << 16];
    static char names[4][200];
    snprintf(names[0], sizeof names[0], "%s/corpus.txt", folder);
    snprintf(names[1], sizeof names[1], "%s/corpus.jsonl", folder);
    snprintf(names[2], sizeof names[2], "%s/corpus.jsonl.zst", folder);
    FILE *all = fopen(names[0], "wb"), *lines = fopen(names[1], "wb");
    for (int i = 0; i < DOCUMENTS; i++) {
        document_text(i, text);
        fputs(text, all);
        fputs("<cut>", all);
        json_put(lines, text);
    }
    if (fclose(all) || fclose(lines)) return 1;
    corpus_text = names[0], corpus_jsonl = names[1], corpus_zstd = names[2];
    size_t n;
    char *packed = get(corpus_jsonl, &n);
    put_zstd("corpus.jsonl.zst", packed, n);
    free(packed);
    corpus = corpus_text;
    tl_bpe_options options = tl_bpe_defaults();
    options.vocabulary = 300;
    words = tl_tokenizer_train(&corpus, 1, &options);
    return words ? 0 : 1;
}

struct job {
    struct tokenize_options o;
    struct inputs inputs;
    int stop_after, kill_after, calls; /* batches; 0: never */
};

static bool job_tell(const tl_tokenize_figures *f, void *context) {
    struct job *job = context;
    (void)f;
    job->calls++;
    if (job->kill_after && job->calls >= job->kill_after) raise(SIGKILL);
    return !job->stop_after || job->calls < job->stop_after;
}

static enum tokenize_end job_run(struct job *job, const char *input, const char *out, tl_tokenize_figures *figures) {
    tl_tokenize_figures unused;
    job->inputs = (struct inputs){0};
    job->calls = 0;
    if (!inputs_add(&job->inputs, input)) return inputs_free(&job->inputs), TOKENIZE_FAILED;
    job->o.inputs = &job->inputs;
    job->o.tokenizer = words;
    job->o.out = out;
    job->o.tell = job_tell;
    job->o.context = job;
    job->o.special = TL_SPECIAL_TEXT;
    job->o.seed = 1;
    enum tokenize_end end = tokenize_run(&job->o, figures ? figures : &unused);
    inputs_free(&job->inputs);
    return end;
}

static struct job job_of(size_t batch_bytes) {
    return (struct job){
        .o = {.end_token = (int32_t)tl_tokenizer_end_of_text(words), .batch_bytes = batch_bytes, .threads = 1}};
}

static void expect_gone(const char *out) {
    static const char *const suffixes[] = {TOKEN_PARTIAL, TOKEN_PARTIAL_DOCUMENTS, ".partial.json"};
    for (int i = 0; i < 3; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s%s", out, suffixes[i]);
        if (access(path, F_OK) == 0) fail_msg("%s is still there", path);
    }
}

static void tokens_are_those_of_each_document(void **state) {
    (void)state;
    static char text[1 << 16];
    tl_tokenize_figures figures;
    struct job job = job_of(0);
    const char *out = path_of("whole.tok");
    assert_int_equal(job_run(&job, corpus_jsonl, out, &figures), TOKENIZE_DONE);
    tl_token_file *f = tl_token_file_open(out, TL_TOKENS_AUTO);
    tl_token_info info;
    assert_true(tl_token_file_info(f, &info));
    expect_equal(info.documents, DOCUMENTS);
    expect_equal(info.vocabulary_hash, tl_tokenizer_hash(words));
    expect_equal(figures.documents, DOCUMENTS);
    expect_equal(figures.tokens[0], info.count);
    int64_t longest = 0;
    size_t bytes = 0;
    for (int i = 0; i < DOCUMENTS; i++) {
        const char *one = text;
        size_t n = document_text(i, text);
        tl_encoding e;
        assert_true(tl_tokenizer_encode(words, &one, &n, 1, NULL, &e));
        int64_t first = tl_token_file_document_begin(f, i), next = tl_token_file_document_begin(f, i + 1);
        assert_int_equal(next - first, e.count + 1);
        int32_t *ids = malloc((size_t)(next - first) * sizeof *ids);
        assert_true(tl_token_file_read(f, ids, first, next - first));
        assert_memory_equal(ids, e.ids, (size_t)e.count * sizeof *ids);
        expect_equal(ids[e.count], tl_tokenizer_end_of_text(words));
        free(ids);
        tl_encoding_free(&e);
        longest = next - first > longest ? next - first : longest;
        bytes += n;
    }
    expect_equal(figures.longest, longest);
    expect_equal(figures.text_bytes, bytes);
    tl_token_file_close(f);
    expect_gone(out);
}

static void threads_batches_and_packing_change_no_byte(void **state) {
    (void)state;
    const char *want = path_of("want.tok"), *out = path_of("other.tok");
    struct job job = job_of(0);
    assert_int_equal(job_run(&job, corpus_jsonl, want, NULL), TOKENIZE_DONE);
    static const size_t batches[] = {1, 100, 1000, 5000, 1 << 20};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++)
        for (int threads = 1; threads <= 3; threads += 2) {
            job = job_of(batches[i]);
            job.o.threads = threads;
            assert_int_equal(job_run(&job, i % 2 ? corpus_zstd : corpus_jsonl, out, NULL), TOKENIZE_DONE);
            expect_same_file(want, out);
        }
    /* one long text, which is cut into batches; and what train does */
    assert_int_equal(job_run((job = job_of(0), job.o.end_token = -1, &job), corpus_text, want, NULL), TOKENIZE_DONE);
    for (size_t i = 1; i < sizeof batches / sizeof *batches; i++) {
        job = job_of(batches[i]);
        job.o.end_token = -1;
        assert_int_equal(job_run(&job, corpus_text, out, NULL), TOKENIZE_DONE);
        expect_same_file(want, out);
    }
    size_t bytes;
    char *text = get(corpus_text, &bytes);
    tl_token_writer *w = tl_token_writer_new(out, 2, tl_tokenizer_size(words), tl_tokenizer_hash(words));
    assert_true(tl_token_writer_document(w) && tokenize_text(words, text, bytes, w, "text", NULL, NULL));
    assert_true(tl_token_writer_commit(w));
    expect_same_file(want, out);
    free(text);
}

/* The same documents, in the two files together, in order. */
static void documents_are_split_by_their_number(void **state) {
    (void)state;
    tl_tokenize_figures figures, again;
    struct job job = job_of(500);
    job.o.val_out = path_of("split-val.tok");
    job.o.val_share = 0.2;
    assert_int_equal(job_run(&job, corpus_jsonl, path_of("split.tok"), &figures), TOKENIZE_DONE);
    expect_equal(figures.recorded[0] + figures.recorded[1], DOCUMENTS);
    expect_true(figures.recorded[1] >= 4 && figures.recorded[1] <= 20);
    struct job one = job_of(0);
    assert_int_equal(job_run(&one, corpus_jsonl, path_of("joined.tok"), &again), TOKENIZE_DONE);
    expect_equal(figures.tokens[0] + figures.tokens[1], again.tokens[0]);
    job = job_of(0);
    job.o.val_out = path_of("none-val.tok");
    job.o.val_share = 1e-9;
    assert_int_equal(job_run(&job, corpus_jsonl, path_of("none.tok"), NULL), TOKENIZE_FAILED);
    expect_error(TL_ERROR_USE, "none-val.tok: none of the 60 documents is for it with --val-share 1e-09 and --seed 1");
    job = job_of(0);
    job.o.end_token = -1;
    assert_int_equal(job_run(&job, put_text("empty.jsonl", "{\"text\": \"\"}"), path_of("none.tok"), NULL),
                     TOKENIZE_FAILED);
    expect_error(TL_ERROR_USE, "the inputs have 1 documents and no tokens");
}

static struct job split_job(size_t batch_bytes) {
    struct job job = job_of(batch_bytes);
    job.o.val_share = 0.2;
    return job;
}

/* Stops again and again; the work goes on, and the files are those of work that never stopped. */
static void stopped_work_is_continued(void **state) {
    (void)state;
    static const char separator[] = "<cut>";
    for (int kind = 0; kind < 3; kind++) {
        const char *input = kind == 0 ? corpus_zstd : corpus_text;
        const char *want = path_of("w.tok"), *want_val = path_of("w-val.tok"), *out = path_of("s.tok"),
                   *val = path_of("s-val.tok");
        struct job job = split_job(0);
        job.o.documents.separator = kind == 1 ? separator : NULL;
        job.o.val_out = kind < 2 ? want_val : NULL;
        assert_int_equal(job_run(&job, input, want, NULL), TOKENIZE_DONE);
        job.o.batch_bytes = 300;
        job.o.val_out = kind < 2 ? val : NULL;
        enum tokenize_end end = TOKENIZE_STOPPED;
        int runs = 0;
        for (; end == TOKENIZE_STOPPED && runs < 1000; runs++) {
            job.stop_after = 2 + runs % 3;
            job.o.save_every_s = runs % 2 ? 0 : 1e9;
            end = job_run(&job, input, out, NULL);
        }
        expect_ok();
        assert_int_equal(end, TOKENIZE_DONE);
        expect_true(runs > 5);
        expect_same_file(want, out);
        if (kind < 2) expect_same_file(want_val, val);
        expect_gone(out);
        expect_gone(val);
    }
}

/* A process that is killed after any batch. */
static void killed_work_is_continued(void **state) {
    (void)state;
    const char *want = path_of("kw.tok"), *out = path_of("k.tok");
    struct job job = job_of(700);
    assert_int_equal(job_run(&job, corpus_zstd, want, NULL), TOKENIZE_DONE);
    int status = 1, runs = 0;
    for (; status && runs < 1000; runs++) {
        pid_t child = fork();
        if (child == 0) {
            job.kill_after = 2 + runs % 4;
            _exit(job_run(&job, corpus_zstd, out, NULL) == TOKENIZE_DONE ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status) && WEXITSTATUS(status)) fail_msg("a run failed");
    }
    expect_true(runs > 5);
    expect_same_file(want, out);
    expect_gone(out);
}

static void work_of_other_settings_is_not_continued(void **state) {
    (void)state;
    const char *out = path_of("i.tok");
    char *copy = strdup(put_text("i.jsonl", "{\"text\": \"the hen\"}\n{\"text\": \"the hen\"}\n{\"text\": \"a\"}\n"));
    struct job job = job_of(1);
    job.stop_after = 2;
    assert_int_equal(job_run(&job, copy, out, NULL), TOKENIZE_STOPPED);
    expect_true(access(out, F_OK) != 0);
    job = job_of(1);
    job.o.end_token = -1;
    assert_int_equal(job_run(&job, copy, out, NULL), TOKENIZE_FAILED);
    expect_error(TL_ERROR_USE, "the work was begun with end-token 299, and now it is -1 (give the same command, or "
                               "--restart to begin again)");
    job = job_of(1);
    job.o.documents.field = "body";
    assert_int_equal(job_run(&job, copy, out, NULL), TOKENIZE_FAILED);
    expect_error(TL_ERROR_USE, "was begun with field null, and now it is \"body\"");
    job = job_of(1);
    assert_int_equal(job_run(&job, put_text("i.jsonl", "{\"text\": \"the hen\"}\n"), out, NULL), TOKENIZE_FAILED);
    expect_error(TL_ERROR_USE, "was begun with inputs \"1 files, 54 bytes");
    put_text("i.tok.partial.json", "{\"schema\": \"tally.tokenize/1\", \"made\": 3}");
    assert_int_equal(job_run(&job, copy, out, NULL), TOKENIZE_FAILED);
    expect_error(TL_ERROR_USE, "inputs not recorded");
    job.o.restart = true;
    assert_int_equal(job_run(&job, copy, out, NULL), TOKENIZE_DONE);
    expect_gone(out);
    free(copy);
}

/* What another process writes, or somebody has damaged. */
static void partial_files_are_locked_and_checked(void **state) {
    (void)state;
    const char *out = path_of("l.tok");
    struct job job = job_of(20000);
    struct token_position none = {0};
    tl_token_writer *w = token_writer_kept(out, 2, 300, 0, &none);
    assert_int_equal(job_run(&job, corpus_jsonl, out, NULL), TOKENIZE_FAILED);
    expect_error(TL_ERROR_IO, "l.tok.partial: another process is writing it");
    tl_token_writer_discard(w);
    job.stop_after = 5;
    static char big[400000];
    for (size_t i = 0; i < sizeof big - 1; i++) big[i] = (char)('a' + i * i % 23);
    char *many = malloc(10 * sizeof big);
    size_t n = 0;
    for (int i = 0; i < 5; i++) n += (size_t)sprintf(many + n, "{\"text\": \"%.*s\"}\n", (int)sizeof big - 1, big);
    char *input = strdup(put("big.jsonl", many, n));
    free(many);
    assert_int_equal(job_run(&job, input, out, NULL), TOKENIZE_STOPPED);
    FILE *f = fopen(path_of("l.tok.partial"), "r+b");
    fseek(f, 100, SEEK_SET);
    fputc(77, f);
    fclose(f);
    job.stop_after = 0;
    assert_int_equal(job_run(&job, input, out, NULL), TOKENIZE_FAILED);
    expect_error(TL_ERROR_USE, "l.tok.partial: is damaged: its checksums have the checksum");
    assert_int_equal(truncate(path_of("l.tok.partial"), 100), 0);
    assert_int_equal(job_run(&job, input, out, NULL), TOKENIZE_FAILED);
    expect_error(TL_ERROR_IO, "l.tok.partial: has 100 bytes (need at least");
    job.o.restart = true;
    assert_int_equal(job_run(&job, input, out, NULL), TOKENIZE_DONE);
    free(input);
}

static void failed_work_leaves_what_was_good(void **state) {
    (void)state;
    const char *out = path_of("f.tok"), *first = path_of("never.tok");
    struct job job = job_of(1);
    const char *good = put_text("g.jsonl", "{\"text\": \"the hen\"}\n{\"text\": \"a\"}\nnonsense\n{\"text\": \"b\"}\n");
    assert_int_equal(job_run(&job, put_text("h.jsonl", "nonsense"), first, NULL), TOKENIZE_FAILED);
    expect_error(TL_ERROR_USE, "h.jsonl: line 1, column 1: not JSON");
    expect_gone(first); /* nothing was done */
    for (size_t batch = 0; batch < 2; batch++) {
        tl_tokenize_figures figures;
        job = job_of(batch);
        assert_int_equal(job_run(&job, good, out, &figures), TOKENIZE_FAILED);
        expect_error(TL_ERROR_USE, "g.jsonl: line 3");
        expect_equal(figures.documents, 2);
        expect_true(access(out, F_OK) != 0);
        job.o.documents.skips_bad = true;
        assert_int_equal(job_run(&job, good, out, &figures), TOKENIZE_DONE);
        expect_true(figures.is_resumed);
        expect_equal(figures.recorded[0], 3);
        expect_equal(figures.bad, 1);
        assert_int_equal(remove(out), 0);
    }
    const char *chars_text = "the hen";
    tl_tokenizer *chars = tl_tokenizer_chars(chars_text, strlen(chars_text)), *before = words;
    words = chars;
    job = job_of(0);
    assert_int_equal(job_run(&job, good, path_of("chars.tok"), NULL), TOKENIZE_FAILED);
    expect_error(TL_ERROR_USE, "the character \"a\" of the text is not in the vocabulary");
    words = before;
    tl_tokenizer_free(chars);
}

static atomic_int fault_at, n_operations;
static int fault_count(const char *operation, const char *path) {
    (void)operation, (void)path;
    return atomic_fetch_add(&n_operations, 1) + 1 == atomic_load(&fault_at) ? EIO : 0;
}

/* Every operation fails once: the first time in work that begins, then in work that goes on. */
static void every_failure_of_the_disk_is_reported(void **state) {
    (void)state;
    const char *want = path_of("dw.tok"), *want_val = path_of("dw-val.tok");
    struct job job = split_job(0);
    job.o.val_out = want_val;
    job.o.val_share = 0.5;
    char *input = strdup(put_text("d.jsonl.gz", "{\"text\": \"the hen\"}\n{\"text\": \"a\"}\n{\"text\": \"the\"}\n"
                                                "{\"text\": \"b\"}\n{\"text\": \"the hen\"}\n{\"text\": \"c\"}\n"));
    assert_int_equal(job_run(&job, input, want, NULL), TOKENIZE_DONE);
    for (int continues = 0; continues < 2; continues++) {
        char out[200], val[200];
        snprintf(out, sizeof out, "%s", path_of(continues ? "dc.tok" : "db.tok"));
        snprintf(val, sizeof val, "%s", path_of(continues ? "dc-val.tok" : "db-val.tok"));
        int failures = 0;
        file_fault = fault_count;
        for (int at = 1;; at++, failures++) {
            job = split_job(30);
            job.o.val_out = val;
            job.o.val_share = 0.5;
            job.o.restart = !continues;
            atomic_store(&fault_at, continues ? 1 + at * 3 : at);
            atomic_store(&n_operations, 0);
            if (job_run(&job, input, out, NULL) == TOKENIZE_DONE) break;
            expect_error(TL_ERROR_IO, "");
            assert_true(failures < 1000);
        }
        file_fault = NULL;
        expect_ok();
        if (!continues) expect_true(failures > 30);
        expect_same_file(want, out);
        expect_same_file(want_val, val);
        expect_gone(out);
        expect_gone(val);
    }
    free(input);
}

static void every_lack_of_memory_is_reported(void **state) {
    (void)state;
    const char *want = path_of("mw.tok"), *out = path_of("m.tok");
    struct job job = job_of(0);
    char *input = strdup(put_text("m.jsonl", "{\"text\": \"the hen\"}\n{\"text\": \"a\"}\n"));
    assert_int_equal(job_run(&job, input, want, NULL), TOKENIZE_DONE);
    for (uint64_t n = 1;; n++) {
        job = job_of(1);
        job.o.restart = true;
        tl_fail_allocation(n, false);
        bool ok = job_run(&job, input, out, NULL) == TOKENIZE_DONE;
        tl_fail_allocation(0, false);
        if (ok) {
            expect_true(n > 20);
            break;
        }
        expect_error(TL_ERROR_MEMORY, "");
        assert_true(n < 10000);
    }
    expect_ok();
    expect_same_file(want, out);
    free(input);
}

static int tear_down(void **state) {
    (void)state;
    tl_tokenizer_free(words);
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void) {
    if (!mkdtemp(folder) && !mkdtemp(strcpy(folder, "/tmp/tally-tokenize-XXXXXX"))) return 1;
    const struct CMUnitTest tests[] = {
        TEST(a_text_is_a_document),
        TEST(separators_cut_texts),
        TEST(lines_of_json_are_documents),
        TEST(nul_in_a_text_is_kept),
        TEST(bad_lines_can_be_skipped_and_fields_named),
        TEST(long_lines_are_read),
        TEST(folders_are_read_in_the_order_of_names),
        TEST(foreign_and_damaged_files_are_refused),
        TEST(tokens_are_those_of_each_document),
        TEST(documents_are_split_by_their_number),
        TEST(stopped_work_is_continued),
        TEST(work_of_other_settings_is_not_continued),
        TEST(partial_files_are_locked_and_checked),
        TEST(failed_work_leaves_what_was_good),
        TEST(every_failure_of_the_disk_is_reported),
        TEST(every_lack_of_memory_is_reported),
        TEST(killed_work_is_continued), /* before threads: a fork does not keep them */
        TEST(threads_batches_and_packing_change_no_byte),
    };
    return cmocka_run_group_tests_name("tokenize", tests, corpus_make, tear_down);
}

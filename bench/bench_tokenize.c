/* bench_tokenize.c: `tally tokenize` beside its parts alone, on the same documents in one run.
 *
 *     build/bench/bench_tokenize [TEXT [TOKENIZER [THREADS]]]
 *
 * The target is the speed of the slower of decompressor and encoder: one thread decompresses and parses JSONL while
 * THREADS others (default 1) encode. A machine needs one core more than that, and quiet ones; the second column is
 * processor time, which other programs disturb less: there the work is to be little more than the sum of its parts.
 * Without TEXT, the sources and documents of this tree; without TOKENIZER, a BPE of 8,192 tokens learnt from the text.
 */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/clock.h"
#include "base/file.h"
#include "data/byte_stream.h"
#include "data/tokenize.h"

enum { REPEATS = 3, DOCUMENT = 4000 };
static char folder[] = "/dev/shm/tally-bench-XXXXXX";
static struct documents_text text, lines;
static struct parts parts;
static double megabytes; /* of the documents' text */

struct time {
    double wall_s, processor_s;
};
static double processor_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct time best_of(bool (*work)(const char *path), const char *path) {
    struct time best = {1e9, 1e9};
    for (int i = 0; i < REPEATS; i++) {
        double wall = now_s(), processor = processor_s();
        if (!work(path)) {
            fprintf(stderr, "%s: %s\n", path, tl_error_message());
            exit(1);
        }
        wall = now_s() - wall, processor = processor_s() - processor;
        if (wall < best.wall_s) best.wall_s = wall;
        if (processor < best.processor_s) best.processor_s = processor;
    }
    return best;
}

/* ---- The text ---- */

static void text_read(const char *path) {
    size_t n;
    char *one = file_get(path, (size_t)1 << 30, &n);
    if (one) documents_text_add(&text, one, n);
    free(one);
}

static void line_put(const char *from, size_t n) {
    documents_text_add(&lines, "{\"text\": \"", 10);
    for (size_t i = 0; i < n; i++) {
        char escaped[8];
        unsigned char c = (unsigned char)from[i];
        const char *as = c == '"' ? "\\\"" : c == '\\' ? "\\\\" : c == '\n' ? "\\n" : NULL;
        if (!as && c < 32) snprintf(escaped, sizeof escaped, "\\u%04x", c), as = escaped;
        if (as) documents_text_add(&lines, as, strlen(as));
        else documents_text_add(&lines, &from[i], 1);
    }
    documents_text_add(&lines, "\"}\n", 3);
}

static char *path_of(const char *name) {
    char *path = malloc(sizeof folder + strlen(name) + 2);
    sprintf(path, "%s/%s", folder, name);
    return path;
}

static void files_write(const char *plain, const char *gzip, const char *zstd) {
    size_t room = ZSTD_compressBound(lines.n);
    void *packed = malloc(room);
    gzFile f = gzopen(gzip, "wb6");
    for (size_t at = 0; at < lines.n; at += 1 << 20)
        gzwrite(f, lines.at + at, (unsigned)(lines.n - at < 1 << 20 ? lines.n - at : 1 << 20));
    gzclose(f);
    file_put(zstd, packed, ZSTD_compress(packed, room, lines.at, lines.n, 3));
    file_put(plain, lines.at, lines.n);
    free(packed);
}

/* ---- The parts, and the whole ---- */

static tl_tokenizer *tokenizer;
static struct encode_plan plan;
static int threads = 1;

static bool unpack(const char *path) {
    static char piece[1 << 20];
    struct byte_stream *s = byte_stream_open(path, NULL);
    size_t n = 1;
    bool ok = s != NULL;
    while (ok && n) ok = byte_stream_read(s, piece, sizeof piece, &n);
    byte_stream_close(s);
    return ok;
}

static bool read_documents(const char *path) {
    struct inputs inputs = {0};
    struct documents_options options = {0};
    struct documents_text to = {0};
    enum documents_part part = DOCUMENTS_SOME;
    bool ok = inputs_add(&inputs, path);
    struct documents *d = ok ? documents_new(&inputs, &options) : NULL;
    while (ok && part != DOCUMENTS_NONE) to.n = 0, ok = documents_next(d, &to, 1 << 20, &part);
    documents_free(d);
    inputs_free(&inputs);
    free(to.at);
    return ok;
}

static bool encode(const char *path) {
    (void)path;
    bool ok = true;
    for (size_t at = 0, n; ok && at < parts.n; at += n) { /* some megabytes at a time, as the work has them */
        n = parts.n - at < 1000 ? parts.n - at : 1000;
        tl_encoding e;
        ok = encode_texts(&plan, parts.texts + at, parts.bytes + at, NULL, (int64_t)n, threads, &e);
        tl_encoding_free(&e);
    }
    return ok;
}

static bool tokenize(const char *path) {
    static char *out;
    struct inputs inputs = {0};
    struct tokenize_figures figures;
    if (!out) out = path_of("out.tok");
    struct tokenize_options o = {.tokenizer = tokenizer,
                                 .inputs = &inputs,
                                 .out = out,
                                 .end_token = -1,
                                 .special = TL_SPECIAL_TEXT,
                                 .threads = threads,
                                 .save_every_s = 15};
    bool ok = inputs_add(&inputs, path) && tokenize_run(&o, &figures) == TOKENIZE_DONE;
    inputs_free(&inputs);
    return ok;
}

static void row_print(const char *name, struct time t) {
    printf("  %-22s %8.1f MB/s   %7.3f s of processors\n", name, megabytes / t.wall_s, t.processor_s);
}

static bool setup(int argc, char **argv) {
    if (!mkdtemp(folder)) return false;
    glob_t found = {0};
    if (argc > 1) text_read(argv[1]);
    else if (!glob("{src,src/*,tests,docs}/*.{c,h,md}", GLOB_BRACE, NULL, &found))
        for (size_t i = 0; i < found.gl_pathc; i++) text_read(found.gl_pathv[i]);
    globfree(&found);
    char *plain = path_of("text.txt");
    const char *path = plain;
    tl_bpe_options options = tl_bpe_defaults();
    tl_encode_options ordinary = tl_encode_defaults();
    ordinary.special = TL_SPECIAL_TEXT;
    file_put(plain, text.at, text.n);
    tokenizer = argc > 2 ? tl_tokenizer_read(argv[2], NULL) : tl_tokenizer_train(&path, 1, &options);
    threads = argc > 3 ? atoi(argv[3]) : 1;
    if (!tokenizer || !encode_plan_make(&plan, tokenizer, &ordinary)) return false;
    for (size_t at = 0, n; at < text.n; at += n) { /* whole characters */
        n = text.n - at < DOCUMENT ? text.n - at : DOCUMENT;
        while (at + n < text.n && (text.at[at + n] & 0xc0) == 0x80) n--;
        line_put(text.at + at, n);
        parts_add(&parts, &plan, text.at + at, n, false);
    }
    megabytes = 1e-6 * (double)text.n;
    free(plain);
    return true;
}

int main(int argc, char **argv) {
    tl_set_error_policy(TL_RETURN);
    if (!setup(argc, argv)) return fprintf(stderr, "%s\n", tl_error_message()), 1;
    static const char *const names[] = {"plain", "gzip", "zstd"};
    char *files[] = {path_of("x.jsonl"), path_of("x.jsonl.gz"), path_of("x.jsonl.zst")};
    files_write(files[0], files[1], files[2]);
    printf("%.1f MB of text in %zu documents, %d thread(s) encode and one reads\n", megabytes, parts.n, threads);
    struct time encoder = best_of(encode, files[0]);
    row_print("encoder alone", encoder);
    for (int i = 0; i < 3; i++) {
        struct time unpacked = best_of(unpack, files[i]), parsed = best_of(read_documents, files[i]);
        struct time whole = best_of(tokenize, files[i]);
        double slower = unpacked.wall_s > encoder.wall_s ? unpacked.wall_s : encoder.wall_s;
        printf("%s:\n", names[i]);
        row_print("decompressor alone", unpacked);
        row_print("and JSON", parsed);
        row_print("tokenize", whole);
        printf("  %.2f of the speed of the slower part (target 1); %.2f of the processor time of the parts\n",
               slower / whole.wall_s, whole.processor_s / (unpacked.processor_s + encoder.processor_s));
    }
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

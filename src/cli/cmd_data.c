/* cmd_data.c: tally data make | tokens | info | check | show */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"

const char help_data[] =
    "usage: tally data make   --out FILE --bytes SIZE [--seed N] [--json]   write stories with a known entropy\n"
    "       tally data tokens FILE --out FILE [options] [--json]            convert to Tally's token format\n"
    "       tally data info   FILE|builtin [options] [--json]               show what a file says about itself\n"
    "       tally data check  FILE [options] [--json]                       check every id and every checksum\n"
    "       tally data show   FILE [--at N] [--count N] [options] [--json]  show some tokens\n"
    "\n"
    "  --format auto|tally|u16|u32|llmc|npy|bytes   the format of FILE (default auto: by its first bytes; otherwise\n"
    "                                               .bin is u16 or u32, and anything else is bytes)\n"
    "  --vocabulary N                               ids must be below N (Tally's files and bytes have their own)\n"
    "  --bytes SIZE                                 10MB is 10^7, 10MiB is 10 x 2^20; the last story is finished\n"
    "\n"
    "Progress goes to stderr. Files are written atomically. docs/data.md describes the formats and the entropy.\n"
    "\n"
    "examples:\n"
    "  tally data make --bytes 10MB --seed 1 --out corpus.txt\n"
    "  tally data tokens corpus.txt --out corpus.tok\n"
    "  tally data tokens train.bin --vocabulary 50257 --out train.tok\n"
    "  tally data check train.bin --format u16 --vocabulary 50257\n"
    "  tally data show corpus.tok --at 1000 --count 200\n"
    "  tally data info builtin --json | jq .floor_nats_per_byte\n";

struct request {
    const char *file, *out;
    uint64_t bytes;
    int64_t seed, at, count, vocabulary; /* vocabulary 0: not given */
    tl_token_format format;
    bool wants_json;
};

/* ---- Reading the command line ---- */

static int usage_error(const char *problem, const char *what) {
    fprintf(stderr, "tally data: %s%s (see `tally data --help`)\n", problem, what);
    return EXIT_USAGE;
}

static int value_error(const char *option, const char *value, const char *needed) {
    char shown[64];
    fprintf(stderr, "tally data: %s is \"%s\" (need %s)\n", option, text_show(shown, sizeof shown, value), needed);
    return EXIT_INPUT;
}

static bool format_read(const char *text, tl_token_format *format) {
    for (int f = 0; f < TL_TOKEN_FORMAT_COUNT; f++)
        if (!strcmp(text, tl_token_format_name((tl_token_format)f))) return *format = (tl_token_format)f, true;
    return false;
}

/* 0, or the exit code. argv[0] is the word before the options. */
static int request_read(struct request *r, int argc, char **argv) {
    const char *bytes = NULL, *format = NULL;
    const struct option table[] = {
        {"--out", OPTION_TEXT, &r->out, 0, 0, false},
        {"--bytes", OPTION_TEXT, &bytes, 0, 0, false},
        {"--format", OPTION_TEXT, &format, 0, 0, false},
        {"--seed", OPTION_INTEGER, &r->seed, 0, 9.2e18, false},
        {"--at", OPTION_INTEGER, &r->at, 0, 9.2e18, false},
        {"--count", OPTION_INTEGER, &r->count, 1, 9.2e18, false},
        {"--vocabulary", OPTION_INTEGER, &r->vocabulary, 1, 9.2e18, false},
        {"--json", OPTION_FLAG, &r->wants_json, 0, 0, false},
        {0},
    };
    *r = (struct request){.seed = 1, .count = 256};
    int code = options_read("data", table, argc, argv, &r->file, 1);
    if (code) return code;
    if (bytes && !text_size(bytes, &r->bytes)) return value_error("--bytes", bytes, "a size: 500, 10MB, 2GiB");
    if (format && !format_read(format, &r->format))
        return value_error("--format", format, "auto, tally, u16, u32, llmc, npy or bytes");
    return 0;
}

/* ---- Progress: a line that is rewritten on a terminal, one every ten seconds elsewhere ---- */

struct progress {
    const char *what, *unit;
    double start_s, shown_s;
    bool is_terminal, has_shown;
};

static struct progress progress_begin(const char *what, const char *unit) {
    interrupt_catch();
    double now = now_s();
    return (struct progress){what, unit, now, now, isatty(2), false};
}

static bool progress_tell(uint64_t done, uint64_t total, void *context) {
    struct progress *p = context;
    double now = now_s(), elapsed = now - p->start_s;
    if (now - p->shown_s >= (p->is_terminal ? 0.2 : 10)) {
        char rate[32], text[32];
        double per_s = (double)done / elapsed;
        if (p->is_terminal) output_wipe();
        fprintf(stderr, "%s: %.1f%% of %s%s, %s%s/s, %.0f s left%s", p->what, 100 * (double)done / (double)total,
                count_text((double)total, text), p->unit, count_text(per_s, rate), p->unit,
                (double)(total - done) / per_s, p->is_terminal ? "" : "\n");
        p->shown_s = now;
        p->has_shown = true;
    }
    return !is_interrupted;
}

static void progress_end(const struct progress *p) {
    if (p->is_terminal && p->has_shown) output_wipe();
    interrupt_release();
}

/* ---- Answers ---- */

/* A file's name need not be UTF-8, JSON must be. */
static const char *name_of(const char *file) { return text_is_utf8(file) ? file : "?"; }

/* The end of work that failed, or that Ctrl-C stopped; files are written whole or not at all. */
static int work_failed(void) {
    if (!is_interrupted) return cli_error();
    fprintf(stderr, "tally data: stopped by Ctrl-C\n");
    return EXIT_STOPPED;
}

static tl_token_file *file_open(const struct request *o) {
    tl_token_file *f = tl_token_file_open(o->file, o->format);
    if (f && o->vocabulary && !tl_token_file_expect(f, o->vocabulary, 0)) tl_token_file_close(f), f = NULL;
    return f;
}

/* ---- make ---- */

static int data_make(const struct request *o) {
    if (!o->out || !*o->out || !o->bytes || o->file) return usage_error("make needs --out FILE and --bytes SIZE", "");
    struct progress p = progress_begin("stories", "B");
    bool ok = tl_corpus_write(o->out, (uint64_t)o->seed, o->bytes, progress_tell, &p);
    progress_end(&p);
    if (!ok) return work_failed();
    double rate = tl_corpus_entropy_bits_per_byte();
    if (o->wants_json)
        return cli_json(json_pack("{s:s, s:I, s:I, s:f, s:f}", "file", name_of(o->out), "seed", (json_int_t)o->seed,
                                  "bytes_asked", (json_int_t)o->bytes, "bits_per_byte", rate, "floor_nats_per_byte",
                                  tl_corpus_floor()));
    printf("%s: stories of seed %lld; entropy %.6f bits (%.6f nats) per byte\n", o->out, (long long)o->seed, rate,
           tl_corpus_floor());
    return 0;
}

/* ---- tokens ---- */

static bool tokens_copy(tl_token_file *f, tl_token_writer *w, int64_t count, struct progress *p) {
    enum { AT_ONCE = 1 << 16 };
    int32_t *ids = malloc(AT_ONCE * sizeof *ids);
    bool ok = ids != NULL;
    if (!ok) error_memory(AT_ONCE * sizeof *ids, "tokens");
    for (int64_t from = 0; ok && from < count; from += AT_ONCE) {
        int64_t n = count - from < AT_ONCE ? count - from : AT_ONCE;
        ok = tl_token_file_read(f, ids, from, n) && tl_token_writer_add(w, ids, n) &&
             progress_tell((uint64_t)(from + n), (uint64_t)count, p);
    }
    free(ids);
    return ok;
}

static int tokens_print(const struct request *o, const tl_token_info *info, int width, int64_t vocabulary) {
    if (o->wants_json)
        return cli_json(json_pack("{s:s, s:s, s:I, s:i, s:I}", "file", name_of(o->out), "from", name_of(o->file),
                                  "tokens", (json_int_t)info->count, "token_bytes", width, "vocabulary",
                                  (json_int_t)vocabulary));
    printf("%s: %lld tokens of %d bytes, vocabulary %lld\n", o->out, (long long)info->count, width,
           (long long)vocabulary);
    return 0;
}

static int data_tokens(const struct request *o) {
    if (!o->file || !o->out || !*o->out) return usage_error("tokens needs FILE and --out FILE", "");
    tl_token_file *f = file_open(o);
    tl_token_info info;
    if (!f || !tl_token_file_info(f, &info)) return cli_error();
    int64_t vocabulary = info.vocabulary ? info.vocabulary : o->vocabulary;
    int width = vocabulary <= 256 ? 1 : vocabulary <= 65536 ? 2 : 4, result = EXIT_USAGE;
    if (!vocabulary) {
        usage_error("this file does not say its vocabulary: give --vocabulary N", "");
    } else {
        struct progress p = progress_begin("tokens", "");
        tl_token_writer *w = tl_token_writer_new(o->out, width, vocabulary, info.vocabulary_hash);
        bool ok = w && tokens_copy(f, w, info.count, &p);
        if (ok) ok = tl_token_writer_commit(w);
        else tl_token_writer_discard(w);
        progress_end(&p);
        if (ok) result = tokens_print(o, &info, width, vocabulary);
        else result = work_failed();
    }
    tl_token_file_close(f);
    return result;
}

/* ---- info ---- */

static int builtin_print(const struct request *o) {
    double bits = tl_corpus_story_bits(), bytes = tl_corpus_story_bytes(), rate = tl_corpus_entropy_bits_per_byte();
    if (o->wants_json)
        return cli_json(json_pack("{s:s, s:f, s:f, s:f, s:f}", "file", "builtin", "bits_per_story", bits,
                                  "bytes_per_story", bytes, "bits_per_byte", rate, "floor_nats_per_byte",
                                  tl_corpus_floor()));
    printf("file               builtin (stories; `tally data make` writes them)\nbits per story     %.6f\n"
           "bytes per story    %.6f\nentropy            %.6f bits per byte\nfloor of the loss  %.6f nats per byte\n",
           bits, bytes, rate, tl_corpus_floor());
    return 0;
}

static int data_info(const struct request *o) {
    if (!o->file) return usage_error("info needs FILE", "");
    if (!strcmp(o->file, "builtin") && access("builtin", F_OK)) return builtin_print(o);
    tl_token_file *f = file_open(o);
    tl_token_info info;
    if (!f || !tl_token_file_info(f, &info)) return cli_error();
    tl_token_file_close(f);
    char hash[20], size[32];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)info.vocabulary_hash);
    json_t *vocabulary = info.vocabulary ? json_integer((json_int_t)info.vocabulary) : json_null();
    if (o->wants_json)
        return cli_json(json_pack("{s:s, s:s, s:I, s:i, s:b, s:o, s:s, s:b, s:I, s:I}", "file", name_of(o->file),
                                  "format", tl_token_format_name(info.format), "tokens", (json_int_t)info.count,
                                  "token_bytes", info.token_bytes, "signed", info.is_signed, "vocabulary", vocabulary,
                                  "vocabulary_hash", hash, "checksums", info.has_checksums, "data_begin",
                                  (json_int_t)info.data_begin, "file_bytes", (json_int_t)info.file_bytes));
    json_decref(vocabulary);
    printf("file             %s\nformat           %s\ntokens           %lld\nbytes per token  %d%s\n", o->file,
           tl_token_format_name(info.format), (long long)info.count, info.token_bytes,
           info.is_signed ? " (signed)" : "");
    if (info.vocabulary) printf("vocabulary       %lld\n", (long long)info.vocabulary);
    else printf("vocabulary       unknown\n");
    printf("vocabulary hash  %s\nchecksums        %s\ndata from byte   %llu\nfile             %s\n",
           info.vocabulary_hash ? hash : "unknown", info.has_checksums ? "yes" : "no",
           (unsigned long long)info.data_begin, bytes_text((double)info.file_bytes, size));
    return 0;
}

/* ---- check ---- */

static int data_check(const struct request *o) {
    if (!o->file) return usage_error("check needs FILE", "");
    tl_token_file *f = file_open(o);
    tl_token_info info;
    if (!f || !tl_token_file_info(f, &info)) return cli_error();
    struct progress p = progress_begin("check", "");
    int64_t largest;
    bool ok = tl_token_file_check(f, &largest, progress_tell, &p);
    progress_end(&p);
    tl_token_file_close(f);
    if (!ok) return work_failed();
    if (o->wants_json)
        return cli_json(json_pack("{s:s, s:b, s:I, s:I, s:b}", "file", name_of(o->file), "ok", 1, "tokens",
                                  (json_int_t)info.count, "largest", (json_int_t)largest, "checksums",
                                  info.has_checksums));
    printf("%s: valid: %lld tokens, the largest is %lld%s\n", o->file, (long long)info.count, (long long)largest,
           info.has_checksums ? ", all checksums match" : " (no checksums in this format)");
    return 0;
}

/* ---- show ---- */

/* Bytes as text, with what cannot be printed as \n or \xff. */
static char *shown_text(const int32_t *ids, int64_t n) {
    char *text = malloc((size_t)n * 4 + 1), *at = text;
    for (int64_t i = 0; text && i < n; i++) {
        unsigned c = (unsigned)ids[i];
        if (c == '\n') at += sprintf(at, "\\n");
        else if (c == '\\') at += sprintf(at, "\\\\");
        else if (c >= 32 && c < 127) *at++ = (char)c;
        else at += sprintf(at, "\\x%02x", c & 255);
    }
    if (text) *at = 0;
    return text;
}

static int ids_show(const struct request *o, const int32_t *ids, int64_t n, const char *text) {
    if (o->wants_json) {
        json_t *list = json_array();
        for (int64_t i = 0; i < n; i++) json_array_append_new(list, json_integer(ids[i]));
        return cli_json(json_pack("{s:s, s:I, s:o, s:s?}", "file", name_of(o->file), "at", (json_int_t)o->at, "ids",
                                  list, "text", text));
    }
    for (int64_t i = 0; i < n && !text; i++) printf(i + 1 < n ? "%d " : "%d\n", ids[i]);
    if (text) puts(text);
    return 0;
}

static int data_show(const struct request *o) {
    if (!o->file) return usage_error("show needs FILE", "");
    tl_token_file *f = file_open(o);
    tl_token_info info;
    if (!f || !tl_token_file_info(f, &info)) return cli_error();
    int64_t n = o->at < info.count && info.count - o->at < o->count ? info.count - o->at : o->count;
    int64_t room = n < info.count ? n : info.count; /* a position beyond the file is refused by the read */
    bool is_text = info.vocabulary_hash == TL_BYTES_HASH;
    int32_t *ids = malloc((size_t)room * sizeof *ids);
    int result = EXIT_MEMORY;
    if (ids && !tl_token_file_read(f, ids, o->at, room)) result = cli_error();
    else if (ids) {
        char *text = is_text ? shown_text(ids, room) : NULL;
        if (text || !is_text) result = ids_show(o, ids, room, text);
        free(text);
    }
    if (result == EXIT_MEMORY && tl_error() == TL_OK) fprintf(stderr, "tally data: out of memory\n");
    free(ids);
    tl_token_file_close(f);
    return result;
}

int cmd_data(int argc, char **argv) {
    static const char *const names[] = {"make", "tokens", "info", "check", "show"};
    static int (*const runs[])(const struct request *) = {data_make, data_tokens, data_info, data_check, data_show};
    enum { N = sizeof names / sizeof *names };
    if (argc < 2) {
        fputs(help_data, stderr);
        return EXIT_USAGE;
    }
    struct request o;
    for (int i = 0; i < N; i++)
        if (!strcmp(argv[1], names[i])) {
            int result = request_read(&o, argc - 1, argv + 1);
            return result ? result : runs[i](&o);
        }
    char meant[TEXT_MEANT];
    fprintf(stderr, "tally data: there is no \"%s\"%s (see `tally data --help`)\n", argv[1],
            text_meant(meant, text_nearest(argv[1], names, N)));
    return EXIT_USAGE;
}

/* cmd_data.c: tally data make | inspect | convert | check | show */
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
#include "cli/progress.h"

const char help_data[] =
    "usage: tally data make    --out FILE --bytes SIZE [--seed N] [--json]   write stories with a known entropy\n"
    "       tally data inspect FILE|builtin [--quick] [options] [--json]     show what is in a token file\n"
    "       tally data convert FILE --out FILE [--to FORMAT] [options]       write the same tokens in another format\n"
    "       tally data check   FILE [options] [--json]                       check every id and every checksum\n"
    "       tally data show    FILE [--at N] [--count N] [options] [--json]  show some tokens\n"
    "\n"
    "  --format auto|tally|u16|u32|llmc|npy|bytes   the format of FILE (default auto: by its first bytes; otherwise\n"
    "                                               .bin is u16 or u32, and anything else is bytes)\n"
    "  --to tally|u16|u32|llmc|npy|bytes            the format to convert to (default tally)\n"
    "  --vocabulary N                               ids must be below N (Tally's files and bytes have their own)\n"
    "  --document-token N                           the id that begins or ends each document (default: the documents\n"
    "                                               that the file records; 50256 in llm.c's u16 shards, 128000 in its\n"
    "                                               u32 shards)\n"
    "  --tokenizer PATH                             show tokens as text; a tokenizer's file or folder (bytes need "
    "none)\n"
    "  --quick                                      read the header only: no statistics, no checksums\n"
    "  --bytes SIZE                                 10MB is 10^7, 10MiB is 10 x 2^20; the last story is finished\n"
    "  --seed N                                     of the stories (default 1)\n"
    "  --at N, --count N                            the first token to show (default 0), and how many (default 256)\n"
    "  --json                                       print the result as JSON\n"
    "\n"
    "`tally` is Tally's own format, `u16` is nanoGPT's train.bin, `llmc` is llm.c's shards. `inspect` counts "
    "documents\n"
    "if the file records them (`tally tokenize` does) or if it knows the token between them. `convert` uses bounded\n"
    "memory, keeps documents where the target is `tally`, and rejects ids that do not fit.\n"
    "Progress goes to stderr. Files are written atomically. docs/data.md describes the formats and the entropy.\n"
    "\n"
    "examples:\n"
    "  tally data make --bytes 10MB --seed 1 --out corpus.txt\n"
    "  tally data inspect train.bin --format u16 --document-token 50256\n"
    "  tally data convert corpus.txt --out corpus.tok\n"
    "  tally data convert train.bin --vocabulary 50257 --out train.tok\n"
    "  tally data convert train.tok --to npy --out train.npy\n"
    "  tally data check train.bin --format u16 --vocabulary 50257\n"
    "  tally data show corpus.tok --at 1000 --count 200\n"
    "  tally data inspect builtin --json | jq .floor_nats_per_byte\n";

struct request {
    const char *file, *out, *tokenizer;
    uint64_t bytes;
    int64_t seed, at, count, vocabulary; /* vocabulary 0: not given */
    int64_t document_token;              /* -1: not given */
    tl_token_format format, to;
    bool is_quick, wants_json;
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

enum word { MAKE, INSPECT, CONVERT, CHECK, SHOW, N_WORDS };
static const char *const words[N_WORDS] = {"make", "inspect", "convert", "check", "show"};

/* What each reads, in the same order. */
static const struct option_form forms[N_WORDS + 1] = {
    {"data make", "--out --bytes --seed --json", NULL},
    {"data inspect", "--format --tokenizer --document-token --quick --vocabulary --json", NULL},
    {"data convert", "--out --format --to --vocabulary --json", NULL},
    {"data check", "--format --vocabulary --json", NULL},
    {"data show", "--format --tokenizer --at --count --vocabulary --json", NULL},
    {NULL, NULL, NULL},
};

/* 0, or the exit code. argv[0] is the word before the options. */
static int request_read(struct request *r, enum word word, int argc, char **argv) {
    const char *bytes = NULL, *format = NULL, *to = NULL;
    const struct option table[] = {
        {"--out", OPTION_TEXT, &r->out, 0, 0, false},
        {"--bytes", OPTION_TEXT, &bytes, 0, 0, false},
        {"--format", OPTION_TEXT, &format, 0, 0, false},
        {"--tokenizer", OPTION_TEXT, &r->tokenizer, 0, 0, false},
        {"--to", OPTION_TEXT, &to, 0, 0, false},
        {"--document-token", OPTION_INTEGER, &r->document_token, 0, 2147483647, false},
        {"--quick", OPTION_FLAG, &r->is_quick, 0, 0, false},
        {"--seed", OPTION_INTEGER, &r->seed, 0, 9.2e18, false},
        {"--at", OPTION_INTEGER, &r->at, 0, 9.2e18, false},
        {"--count", OPTION_INTEGER, &r->count, 1, 9.2e18, false},
        {"--vocabulary", OPTION_INTEGER, &r->vocabulary, 1, 9.2e18, false},
        {"--json", OPTION_FLAG, &r->wants_json, 0, 0, false},
        {0},
    };
    struct options_given given = {.n = 0};
    *r = (struct request){.seed = 1, .count = 256, .document_token = -1, .to = TL_TOKENS_TALLY};
    int code = options_read_given("data", table, argc, argv, &r->file, 1, &given);
    if (!code) code = options_check(forms, &forms[word], NULL, &given);
    if (code) return code;
    if (bytes && !text_size(bytes, &r->bytes)) return value_error("--bytes", bytes, "a size: 500, 10MB, 2GiB");
    if (format && !format_read(format, &r->format))
        return value_error("--format", format, "auto, tally, u16, u32, llmc, npy or bytes");
    if (to && (!format_read(to, &r->to) || r->to == TL_TOKENS_AUTO))
        return value_error("--to", to, "tally, u16, u32, llmc, npy or bytes");
    return 0;
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

/* ---- convert ---- */

/* Says what the new file says about itself. */
static int converted_print(const struct request *o) {
    tl_token_info info;
    tl_token_file *f = tl_token_file_open(o->out, o->to);
    if (!f || !tl_token_file_info(f, &info)) return cli_error();
    tl_token_file_close(f);
    json_t *vocabulary = info.vocabulary ? json_integer((json_int_t)info.vocabulary) : json_null();
    if (o->wants_json)
        return cli_json(json_pack("{s:s, s:s, s:s, s:I, s:i, s:o}", "file", name_of(o->out), "from", name_of(o->file),
                                  "format", tl_token_format_name(info.format), "tokens", (json_int_t)info.count,
                                  "token_bytes", info.token_bytes, "vocabulary", vocabulary));
    json_decref(vocabulary);
    printf("%s: %lld tokens of %d byte%s", o->out, (long long)info.count, info.token_bytes,
           info.token_bytes == 1 ? "" : "s");
    if (info.vocabulary) printf(", vocabulary %lld", (long long)info.vocabulary);
    puts("");
    return 0;
}

static int data_convert(const struct request *o) {
    if (!o->file || !o->out || !*o->out) return usage_error("convert needs FILE and --out FILE", "");
    tl_token_file *f = file_open(o);
    tl_token_info info;
    if (!f || !tl_token_file_info(f, &info)) return cli_error();
    if (o->to == TL_TOKENS_TALLY && !info.vocabulary && !o->vocabulary) {
        tl_token_file_close(f);
        return usage_error("this file does not say its vocabulary: give --vocabulary N", "");
    }
    struct progress p = progress_begin("convert", "");
    bool ok = tl_token_file_convert(f, o->out, o->to, o->vocabulary, progress_tell, &p);
    progress_end(&p);
    tl_token_file_close(f);
    return ok ? converted_print(o) : work_failed();
}

/* ---- inspect ---- */

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

/* Bytes as text, with what cannot be printed as \n or \xff. NULL: no memory, which is recorded. */
static char *shown_text(const char *bytes, size_t n) {
    char *text = malloc(n * 4 + 1), *at = text;
    if (!text) error_memory(n * 4 + 1, "text");
    for (size_t i = 0; text && i < n; i++) {
        unsigned c = (unsigned char)bytes[i];
        if (c == '\n') at += sprintf(at, "\\n");
        else if (c == '\\') at += sprintf(at, "\\\\");
        else if (c >= 32 && c < 127) *at++ = (char)c;
        else at += sprintf(at, "\\x%02x", c);
    }
    if (text) *at = 0;
    return text;
}

/* The text of some tokens, by --tokenizer or, if they are bytes, as they are; NULL if neither. False on error. */
static bool ids_text(const struct request *o, const tl_token_info *info, const int32_t *ids, int64_t n, char **text) {
    *text = NULL;
    if (!o->tokenizer && info->vocabulary_hash != TL_BYTES_HASH) return true;
    tl_tokenizer *t = o->tokenizer ? tl_tokenizer_read(o->tokenizer, NULL) : tl_tokenizer_bytes();
    bool is_its = t && (!info->vocabulary_hash || info->vocabulary_hash == tl_tokenizer_hash(t));
    if (t && !is_its)
        error_set(TL_ERROR_USE, "tokens: %s: was made with the vocabulary %016llx (%s has %016llx)", o->file,
                  (unsigned long long)info->vocabulary_hash, o->tokenizer, (unsigned long long)tl_tokenizer_hash(t));
    size_t bytes = 0;
    char *raw = is_its ? tl_tokenizer_decode(t, ids, n, false, &bytes) : NULL;
    if (raw) *text = shown_text(raw, bytes);
    free(raw);
    tl_tokenizer_free(t);
    return *text != NULL;
}

/* What a pass over all tokens finds. Counts are exact for ids below COUNTED, which bounds the memory at 128 MiB. */
enum { COUNTED = 1 << 24, FREQUENT = 8, PEEKED = 64 };
struct statistics {
    uint64_t *counts;
    int64_t capacity, distinct, uncounted; /* counts; ids below COUNTED; tokens from COUNTED on */
    int64_t largest, smallest;
    int64_t documents, longest, begun; /* of the document token; the longest without it; tokens since the last one */
};

static bool counts_grow(struct statistics *s, int64_t id) {
    if (id < s->capacity) return true;
    int64_t room = s->capacity ? s->capacity : 256;
    while (room <= id) room *= 2;
    uint64_t *more = realloc(s->counts, (size_t)room * sizeof *more);
    if (!more) return error_memory((size_t)room * sizeof *more, "counting tokens");
    memset(more + s->capacity, 0, (size_t)(room - s->capacity) * sizeof *more);
    s->counts = more;
    s->capacity = room;
    return true;
}

static bool statistics_add(struct statistics *s, const int32_t *ids, int64_t n, int64_t document_token) {
    for (int64_t i = 0; i < n; i++) {
        int64_t id = ids[i];
        if (id > s->largest) s->largest = id;
        if (id < s->smallest) s->smallest = id;
        if (id >= COUNTED) s->uncounted++;
        else if (!counts_grow(s, id)) return false;
        else s->distinct += s->counts[id]++ == 0;
        s->begun = id == document_token ? 0 : s->begun + 1;
        s->documents += id == document_token;
        if (s->begun > s->longest) s->longest = s->begun;
    }
    return true;
}

static bool statistics_take(struct statistics *s, tl_token_file *f, int64_t count, int64_t document_token) {
    enum { AT_ONCE = 1 << 16 };
    int32_t *ids = malloc(AT_ONCE * sizeof *ids);
    bool ok = ids ? true : error_memory(AT_ONCE * sizeof *ids, "tokens");
    struct progress p = progress_begin("inspect", "");
    for (int64_t from = 0; ok && from < count; from += AT_ONCE) {
        int64_t n = count - from < AT_ONCE ? count - from : AT_ONCE;
        ok = tl_token_file_read(f, ids, from, n) && statistics_add(s, ids, n, document_token) &&
             progress_tell((uint64_t)(from + n), (uint64_t)count, &p);
    }
    progress_end(&p);
    free(ids);
    return ok;
}

/* The most frequent ids, at most FREQUENT; equal counts by id. Returns how many. */
static int frequent_ids(const struct statistics *s, int64_t *top) {
    int n = 0;
    for (int64_t id = 0; id < s->capacity; id++) {
        if (!s->counts[id] || (n == FREQUENT && s->counts[id] <= s->counts[top[n - 1]])) continue;
        int at = n < FREQUENT ? n++ : n - 1;
        for (; at > 0 && s->counts[top[at - 1]] < s->counts[id]; at--) top[at] = top[at - 1];
        top[at] = id;
    }
    return n;
}

struct inspection {
    tl_token_info info;
    struct statistics all;  /* without --quick */
    int64_t document_token; /* -1: none */
    int64_t longest;        /* of the documents that the file records, if they are not counted by a token */
    int32_t first[PEEKED];
    int64_t n_first;
    char *text; /* of `first`; NULL unless the tokens are bytes */
};

static bool has_table(const struct inspection *x) { return x->info.documents && x->document_token < 0; }

static void table_take(struct inspection *x, const tl_token_file *f) {
    for (int64_t d = 0, from = 0, end; d < x->info.documents; d++, from = end) {
        end = tl_token_file_document_begin(f, d + 1);
        if (end - from > x->longest) x->longest = end - from;
    }
}

static json_t *integer_or_null(int64_t value, bool is_known) {
    return is_known ? json_integer((json_int_t)value) : json_null();
}

static json_t *documents_json(const struct inspection *x) {
    bool by_token = x->document_token >= 0, are_known = by_token || has_table(x);
    return json_pack("{s:o, s:o, s:o}", "document_token", integer_or_null(x->document_token, by_token), "documents",
                     integer_or_null(by_token ? x->all.documents : x->info.documents, are_known), "longest_document",
                     integer_or_null(by_token ? x->all.longest : x->longest, are_known));
}

static int inspection_json(const struct request *o, const struct inspection *x) {
    const tl_token_info *i = &x->info;
    char hash[20];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)i->vocabulary_hash);
    json_t *first = json_array(), *frequent = json_array();
    for (int64_t k = 0; k < x->n_first; k++) json_array_append_new(first, json_integer(x->first[k]));
    json_t *all =
        json_pack("{s:s, s:s, s:I, s:i, s:b, s:o, s:s, s:b, s:I, s:I, s:o, s:s?}", "file", name_of(o->file), "format",
                  tl_token_format_name(i->format), "tokens", (json_int_t)i->count, "token_bytes", i->token_bytes,
                  "signed", i->is_signed, "vocabulary", integer_or_null(i->vocabulary, i->vocabulary),
                  "vocabulary_hash", hash, "checksums", i->has_checksums, "data_begin", (json_int_t)i->data_begin,
                  "file_bytes", (json_int_t)i->file_bytes, "first", first, "text", x->text);
    int64_t top[FREQUENT];
    int n = frequent_ids(&x->all, top);
    for (int k = 0; k < n; k++)
        json_array_append_new(
            frequent, json_pack("{s:I, s:I}", "id", (json_int_t)top[k], "count", (json_int_t)x->all.counts[top[k]]));
    json_t *statistics = json_pack("{s:I, s:I, s:I, s:I, s:o}", "smallest", (json_int_t)x->all.smallest, "largest",
                                   (json_int_t)x->all.largest, "distinct", (json_int_t)x->all.distinct, "uncounted",
                                   (json_int_t)x->all.uncounted, "frequent", frequent);
    if (!o->is_quick) json_object_update(all, statistics);
    json_t *documents = documents_json(x);
    if (!o->is_quick || has_table(x)) json_object_update(all, documents);
    json_decref(documents);
    json_decref(statistics);
    return cli_json(all);
}

static void statistics_print(const struct inspection *x) {
    const struct statistics *s = &x->all;
    int64_t top[FREQUENT];
    int n = frequent_ids(s, top);
    printf("ids              %lld to %lld, %lld distinct", (long long)s->smallest, (long long)s->largest,
           (long long)s->distinct);
    if (s->uncounted) printf(" below %d, %lld tokens from there on", COUNTED, (long long)s->uncounted);
    printf("\nmost frequent    ");
    for (int k = 0; k < n; k++)
        printf("%s%lld (%.2f%%)", k ? ", " : "", (long long)top[k],
               100 * (double)s->counts[top[k]] / (double)x->info.count);
    puts("");
}

static void documents_print(const struct inspection *x) {
    const struct statistics *s = &x->all;
    long long token = (long long)x->document_token;
    if (has_table(x))
        printf("documents        %lld, %.1f tokens on average, at most %lld\n", (long long)x->info.documents,
               (double)x->info.count / (double)x->info.documents, (long long)x->longest);
    else if (token >= 0 && s->documents)
        printf("documents        %lld (token %lld), %.1f tokens on average, at most %lld\n", (long long)s->documents,
               token, (double)(x->info.count - s->documents) / (double)s->documents, (long long)s->longest);
    else if (token >= 0) printf("documents        unknown: no token is %lld\n", token);
    else printf("documents        unknown (--document-token N counts them)\n");
}

static int inspection_print(const struct request *o, const struct inspection *x) {
    const tl_token_info *i = &x->info;
    char hash[20], size[32];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)i->vocabulary_hash);
    printf("file             %s\nformat           %s\ntokens           %lld\nbytes per token  %d%s\n", o->file,
           tl_token_format_name(i->format), (long long)i->count, i->token_bytes, i->is_signed ? " (signed)" : "");
    if (i->vocabulary) printf("vocabulary       %lld\n", (long long)i->vocabulary);
    else printf("vocabulary       unknown\n");
    printf("vocabulary hash  %s\nchecksums        %s\ndata from byte   %llu\nfile size        %s\n",
           i->vocabulary_hash ? hash : "unknown",
           !i->has_checksums ? "no"
           : o->is_quick     ? "yes"
                             : "yes, all match",
           (unsigned long long)i->data_begin, bytes_text((double)i->file_bytes, size));
    if (!o->is_quick) statistics_print(x);
    if (!o->is_quick || has_table(x)) documents_print(x);
    printf("begins           ");
    if (x->text) puts(x->text);
    for (int64_t k = 0; k < x->n_first && !x->text; k++) printf(k + 1 < x->n_first ? "%d " : "%d\n", x->first[k]);
    return 0;
}

/* llm.c's scripts put the tokenizer's own token before each document. */
static int64_t document_token_of(const struct request *o, const tl_token_info *info) {
    if (o->document_token >= 0 || info->format != TL_TOKENS_LLMC) return o->document_token;
    return info->token_bytes == 2 ? 50256 : 128000;
}

static int data_inspect(const struct request *o) {
    if (!o->file) return usage_error("inspect needs FILE", "");
    if (!strcmp(o->file, "builtin") && access("builtin", F_OK)) return builtin_print(o);
    tl_token_file *f = file_open(o);
    struct inspection x = {.all.smallest = INT64_MAX};
    if (!f || !tl_token_file_info(f, &x.info)) return cli_error();
    x.document_token = document_token_of(o, &x.info);
    x.n_first = x.info.count < PEEKED ? x.info.count : PEEKED;
    if (has_table(&x)) table_take(&x, f);
    bool ok = tl_token_file_read(f, x.first, 0, x.n_first);
    ok = ok && (o->is_quick || statistics_take(&x.all, f, x.info.count, x.document_token));
    tl_token_file_close(f);
    ok = ok && ids_text(o, &x.info, x.first, x.n_first, &x.text);
    int result = !ok ? work_failed() : o->wants_json ? inspection_json(o, &x) : inspection_print(o, &x);
    free(x.text);
    free(x.all.counts);
    return result;
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
    int32_t *ids = malloc((size_t)room * sizeof *ids);
    char *text = NULL;
    bool ok = ids ? true : error_memory((size_t)room * sizeof *ids, "tokens");
    ok = ok && tl_token_file_read(f, ids, o->at, room) && ids_text(o, &info, ids, room, &text);
    int result = ok ? ids_show(o, ids, room, text) : cli_error();
    free(text);
    free(ids);
    tl_token_file_close(f);
    return result;
}

int cmd_data(int argc, char **argv) {
    static int (*const runs[])(const struct request *) = {data_make, data_inspect, data_convert, data_check, data_show};
    if (argc < 2) {
        fputs(help_data, stderr);
        return EXIT_USAGE;
    }
    struct request o;
    for (int i = 0; i < N_WORDS; i++)
        if (!strcmp(argv[1], words[i])) {
            int result = request_read(&o, (enum word)i, argc - 1, argv + 1);
            return result ? result : runs[i](&o);
        }
    char meant[TEXT_MEANT];
    fprintf(stderr, "tally data: there is no \"%s\"%s (see `tally data --help`)\n", argv[1],
            text_meant(meant, text_nearest(argv[1], words, N_WORDS)));
    return EXIT_USAGE;
}

/* cmd_tokenize.c: tally tokenize */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "step/tokens.h"

const char help_tokenize[] =
    "usage: tally tokenize INPUT... --tokenizer NAME --out FILE [options]   write texts as a file of tokens\n"
    "\n"
    "An INPUT is a text file (one document), a JSONL file (.jsonl, .ndjson, .json: one document per line), either of\n"
    "them compressed with gzip or zstd, a folder of such files, or - for standard input.\n"
    "\n"
    "  --tokenizer NAME           bytes, or a tokenizer's file or folder (tokenizer.json, tekken.json, *.tiktoken, "
    "...)\n"
    "  --out FILE                 the token file; its documents are recorded\n"
    "  --val-share X              put this share of the documents into a file of their own (default 0.01 with\n"
    "                             --val-out): those whose number, hashed with the seed, is below X\n"
    "  --val-out FILE             that file (default: FILE.tok becomes FILE-val.tok)\n"
    "  --seed N                   of the choice of documents (default 1)\n"
    "  --field NAME               the field of a JSONL line that has the text (default text)\n"
    "  --format auto|text|jsonl   what the inputs are (default auto: by their names; compressed or not is always "
    "seen)\n"
    "  --document-separator TEXT  cuts texts into documents: blank-line, or any text (\\n is a newline)\n"
    "  --end-token TEXT|none      the token after each document (default: the tokenizer's <|endoftext|>,\n"
    "                             <|end_of_text|>, </s>, <eos> or <|im_end|>, if it has one)\n"
    "  --special text|allow|refuse\n"
    "                             special tokens inside documents are ordinary text (default), tokens, or an error\n"
    "  --skip-bad                 skip and count lines that are not JSON or lack the field, instead of stopping\n"
    "  --threads N                threads that encode; one more reads (default: all cores)\n"
    "  --save-every SECONDS       how often the work so far is saved (default 15)\n"
    "  --restart                  forget the saved work and begin again\n"
    "  --json                     print the figures as JSON\n"
    "\n"
    "The result does not depend on the number of threads. Memory is bounded: a text may have any length, a JSONL line\n"
    "256 MiB. Ctrl-C, SIGTERM or a crash: run the same command again and it continues; the final file has the same\n"
    "bytes. Until then the tokens are in FILE.partial. docs/data.md has the details.\n"
    "\n"
    "examples:\n"
    "  tally tokenize book.txt --tokenizer gpt2/ --out book.tok\n"
    "  tally tokenize shards/*.jsonl.zst --tokenizer tokenizer.json --val-share 0.005 --out corpus.tok\n"
    "  tally tokenize stories.txt --tokenizer tok/ --document-separator '<|endoftext|>' --out stories.tok\n"
    "  xz -dc dump.jsonl.xz | tally tokenize - --format jsonl --field content --tokenizer tok/ --out dump.tok\n"
    "  tally train --data corpus.tok --val-data corpus-val.tok --tokenizer tokenizer.json --out runs/a\n";

/* ---- Progress ---- */

static bool tell(const tl_tokenize_figures *f, void *context) {
    struct progress *p = context;
    if (!progress_is_due(p)) return !is_interrupted;
    double rate = (double)(f->text_bytes - f->text_before) / f->seconds, left_s;
    double per_s = (double)(f->used - f->used_before) / f->seconds;
    left_s = per_s > 0 && f->total ? (double)(f->total - (f->used < f->total ? f->used : f->total)) / per_s : 0;
    char total[32], documents[32], line[160];
    int n = snprintf(line, sizeof line, "tokenize: %s documents, %.1f MB/s", grouped_text(f->documents, documents),
                     1e-6 * rate);
    if (f->total)
        snprintf(line + n, sizeof line - (size_t)n, ", %.1f%% of %sB, %.0f s left",
                 100 * (double)f->used / (double)f->total, count_text((double)f->total, total), left_s);
    progress_line(p, line);
    return !is_interrupted;
}

/* ---- The command line ---- */

struct request {
    tl_tokenizer *t;
    tl_tokenize_options o;
    const char **words;
    int n_words;
    const char *out, *tokenizer, *separator, *special, *end_token;
    char *val_out, *separator_text; /* made here */
    double val_share;               /* 0: not given */
    int64_t seed, threads;
    bool wants_json;
};

static int usage_error(const char *problem) {
    fprintf(stderr, "tally tokenize: %s (see `tally tokenize --help`)\n", problem);
    return EXIT_USAGE;
}

static int value_error(const char *option, const char *value, const char *needed) {
    char shown[64];
    fprintf(stderr, "tally tokenize: %s is \"%s\" (need %s)\n", option, text_show(shown, sizeof shown, value), needed);
    return EXIT_INPUT;
}

static bool word_read(const char *text, const char *const *words, int n, int *found) {
    for (*found = 0; *found < n; ++*found)
        if (!strcmp(text, words[*found])) return true;
    return false;
}

/* "blank-line", or a text in which \n, \t and \\ are what they are in C. */
static int separator_read(struct request *r) {
    if (!r->separator) return 0;
    if (!strcmp(r->separator, "blank-line")) return r->o.separator = r->separator, 0;
    char *to = r->separator_text = strdup(r->separator);
    if (!to) return error_memory(strlen(r->separator), "a separator"), cli_error_of("tokenize");
    for (const char *from = r->separator; *from; from++) {
        bool is_escape = *from == '\\' && from[1] && strchr("nt\\", from[1]);
        if (is_escape) from++;
        *to++ = !is_escape ? *from : *from == 'n' ? '\n' : *from == 't' ? '\t' : '\\';
    }
    *to = 0;
    r->o.separator = r->separator_text;
    return *r->separator_text ? 0 : value_error("--document-separator", r->separator, "blank-line or a text");
}

/* corpus.tok -> corpus-val.tok */
static char *val_name(const char *out) {
    const char *slash = strrchr(out, '/'), *name = slash ? slash + 1 : out, *dot = strrchr(name, '.');
    size_t before = dot && dot > name ? (size_t)(dot - out) : strlen(out), room = strlen(out) + sizeof "-val";
    char *path = malloc(room);
    if (path) snprintf(path, room, "%.*s-val%s", (int)before, out, out + before);
    else error_memory(room, "a path");
    return path;
}

static int split_read(struct request *r) {
    if (!(r->val_share > 0) && !r->o.val_out) return 0;
    if (r->val_share > 0) r->o.val_share = r->val_share;
    if (!r->o.val_out && !(r->o.val_out = r->val_out = val_name(r->out))) return cli_error_of("tokenize");
    if (!*r->o.val_out || !strcmp(r->o.val_out, r->out))
        return value_error("--val-out", r->o.val_out, "another file than --out");
    return 0;
}

static int request_check(struct request *r) {
    static const char *const formats[] = {"auto", "text", "jsonl"}, *const specials[] = {"refuse", "allow", "text"};
    int format, special = TL_SPECIAL_TEXT;
    if (!r->words[0]) return usage_error("no INPUT is given");
    if (!r->tokenizer || !*r->tokenizer) return usage_error("--tokenizer is missing");
    if (!strcmp(r->tokenizer, "chars") || !strncmp(r->tokenizer, "train:", 6))
        return value_error("--tokenizer", r->tokenizer,
                           "bytes or a path: `tally train` makes this one from its data, `tally tokenizer train` makes "
                           "one from texts");
    if (!r->out || !*r->out) return usage_error("--out FILE is missing");
    if (r->o.format && !word_read(r->o.format, formats, 3, &format))
        return value_error("--format", r->o.format, "auto, text or jsonl");
    if (r->special && !word_read(r->special, specials, 3, &special))
        return value_error("--special", r->special, "text, allow or refuse");
    r->o.special = (tl_special)special;
    r->o.seed = (uint64_t)r->seed;
    r->o.threads = (int)r->threads;
    int code = separator_read(r);
    return code ? code : split_read(r);
}

static int request_read(struct request *r, int argc, char **argv) {
    const struct option table[] = {
        {"--tokenizer", OPTION_TEXT, &r->tokenizer, 0, 0, false},
        {"--out", OPTION_TEXT, &r->out, 0, 0, false},
        {"--val-share", OPTION_NUMBER, &r->val_share, 0, 0.999, true},
        {"--val-out", OPTION_TEXT, &r->o.val_out, 0, 0, false},
        {"--seed", OPTION_INTEGER, &r->seed, 0, 9.2e18, false},
        {"--field", OPTION_TEXT, &r->o.field, 0, 0, false},
        {"--format", OPTION_TEXT, &r->o.format, 0, 0, false},
        {"--document-separator", OPTION_TEXT, &r->separator, 0, 0, false},
        {"--end-token", OPTION_TEXT, &r->end_token, 0, 0, false},
        {"--special", OPTION_TEXT, &r->special, 0, 0, false},
        {"--skip-bad", OPTION_FLAG, &r->o.skips_bad, 0, 0, false},
        {"--threads", OPTION_INTEGER, &r->threads, 1, 1024, false},
        {"--save-every", OPTION_NUMBER, &r->o.save_every_s, 0, 1e9, false},
        {"--restart", OPTION_FLAG, &r->o.restarts, 0, 0, false},
        {"--json", OPTION_FLAG, &r->wants_json, 0, 0, false},
        {0},
    };
    r->words = memory_new(((size_t)argc + 1) * sizeof *r->words);
    if (!r->words) return error_memory((size_t)argc * sizeof *r->words, "arguments"), cli_error_of("tokenize");
    for (int i = 0; i <= argc; i++) r->words[i] = NULL;
    static const struct option_rule rules[] = {{"tokenize", "--seed", OPTION_WITHOUT, "--val-share --val-out"},
                                               {NULL, NULL, OPTION_BESIDE, NULL}};
    int code = options_read_ruled("tokenize", table, rules, argc, argv, r->words, argc);
    while (r->words[r->n_words]) r->n_words++;
    return code ? code : request_check(r);
}

/* ---- The end ---- */

static int end_token_read(struct request *r) {
    r->o.end_token = r->end_token ? -1 : tl_tokenizer_end_of_text(r->t);
    if (!r->end_token) return 0;
    if (!strcmp(r->end_token, "none")) return 0;
    r->o.end_token = tl_tokenizer_find(r->t, r->end_token, strlen(r->end_token));
    return r->o.end_token >= 0 ? 0
                               : value_error("--end-token", r->end_token, "a token that the tokenizer has, or none");
}

static const char *name_of(const char *file) { return text_is_utf8(file) ? file : "?"; }

static double per(double a, double b) { return b > 0 ? a / b : 0; }

static int figures_json(const struct request *r, const tl_tokenize_figures *f) {
    char hash[20];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)tl_tokenizer_hash(r->t));
    int64_t tokens = f->tokens[0] + f->tokens[1];
    json_t *end = r->o.end_token >= 0 ? json_integer(r->o.end_token) : json_null();
    json_t *all = json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:s, s:o, s:I, s:b, s:f, s:f}", "file",
                            name_of(r->out), "tokens", (json_int_t)f->tokens[0], "documents",
                            (json_int_t)f->recorded[0], "longest_document", (json_int_t)f->longest, "text_bytes",
                            (json_int_t)f->text_bytes, "bytes_per_token", per((double)f->text_bytes, (double)tokens),
                            "input_files", (json_int_t)f->files, "skipped_lines", (json_int_t)f->bad, "vocabulary",
                            (json_int_t)tl_tokenizer_size(r->t), "vocabulary_hash", hash, "end_token", end,
                            "ignored_files", (json_int_t)f->ignored, "resumed", f->is_resumed, "seconds", f->seconds,
                            "mb_per_s", 1e-6 * per((double)(f->text_bytes - f->text_before), f->seconds));
    if (all && r->o.val_out)
        json_object_set_new(all, "validation",
                            json_pack("{s:s, s:I, s:I}", "file", name_of(r->o.val_out), "tokens",
                                      (json_int_t)f->tokens[1], "documents", (json_int_t)f->recorded[1]));
    return cli_json(all);
}

static int figures_print(const struct request *r, const tl_tokenize_figures *f) {
    const char *const paths[] = {r->out, r->o.val_out};
    char a[32], b[32];
    int64_t tokens = f->tokens[0] + f->tokens[1];
    for (int k = 0; k < 2 && paths[k]; k++)
        printf("%s: %s tokens in %s document%s\n", paths[k], grouped_text((uint64_t)f->tokens[k], a),
               grouped_text((uint64_t)f->recorded[k], b), f->recorded[k] == 1 ? "" : "s");
    printf("  text           %.1f MB in %" PRId64 " file%s, %.2f bytes per token\n", 1e-6 * (double)f->text_bytes,
           f->files, f->files == 1 ? "" : "s", per((double)f->text_bytes, (double)tokens));
    printf("  longest        %s tokens\n", grouped_text((uint64_t)f->longest, a));
    if (r->o.end_token >= 0) {
        size_t bytes;
        const char *name = tl_tokenizer_token(r->t, r->o.end_token, &bytes);
        printf("  end of text    %.*s (%d) after each document\n", (int)bytes, name, (int)r->o.end_token);
    } else printf("  end of text    no token\n");
    if (f->bad) printf("  skipped        %s line%s\n", grouped_text(f->bad, a), f->bad == 1 ? "" : "s");
    if (f->ignored)
        printf("  ignored        %s file%s in folders, by their endings\n", grouped_text((uint64_t)f->ignored, a),
               f->ignored == 1 ? "" : "s");
    printf("  time           %.1f s, %.1f MB/s%s\n", f->seconds,
           1e-6 * per((double)(f->text_bytes - f->text_before), f->seconds),
           f->is_resumed ? " since the work was resumed" : "");
    return 0;
}

static int request_run(struct request *r) {
    tl_tokenize_figures f;
    char documents[32];
    interrupt_catch_all();
    struct progress p = progress_plain("tokenize", "B");
    r->o.progress = tell;
    r->o.context = &p;
    bool ok = tl_tokenize_files(r->t, r->words, r->n_words, r->out, &r->o, &f);
    progress_wipe(&p);
    interrupt_release();
    if (ok) return r->wants_json ? figures_json(r, &f) : figures_print(r, &f);
    if (!is_interrupted || tl_error() != TL_ERROR_USE) return cli_error_of("tokenize");
    fprintf(stderr, "tally tokenize: stopped after %s documents; %s\n", grouped_text(f.documents, documents),
            f.is_kept && f.documents > 0 ? "run the same command to continue" : "nothing is kept");
    return EXIT_STOPPED;
}

int cmd_tokenize(int argc, char **argv) {
    struct request r = {.o = tl_tokenize_defaults(NULL), .seed = 1};
    int code = request_read(&r, argc, argv);
    if (!code && !(r.t = tokens_named(r.tokenizer))) code = cli_error_of("tokenize");
    if (!code) code = end_token_read(&r);
    if (!code) code = request_run(&r);
    tl_tokenizer_free(r.t);
    memory_free(r.words);
    free(r.val_out);
    free(r.separator_text);
    return code;
}

/* cmd_tokenizer.c: tally tokenizer train */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/learning.h"

const char help_tokenizer[] =
    "usage: tally tokenizer train --out FOLDER [options] FILE...   learn a vocabulary of byte-level BPE from texts\n"
    "\n"
    "  --vocabulary N       tokens in all: 256 bytes, the special tokens and merges (default 8192)\n"
    "  --encoding NAME      whose pattern cuts words: gpt2 (default), cl100k_base, o200k_base, qwen, llama3, ...\n"
    "  --special A,B        special tokens: text is cut at them, and they are not counted (default <|endoftext|>;\n"
    "                       --special= for none)\n"
    "  --ties RULE          of equally frequent pairs, merge the one of the greater bytes (greater, the default), or\n"
    "                       of the smaller ids, as Hugging Face's trainer does (huggingface); ids are then also as "
    "there\n"
    "  --min-count N        do not merge pairs that occur less often (default 1)\n"
    "  --format LIST        what to write: json (tokenizer.json, the default), gpt2 (vocab.json and merges.txt), "
    "ranks\n"
    "                       (tokenizer.tiktoken), or several of them: json,gpt2\n"
    "  --json               print the figures as JSON\n"
    "\n"
    "Each file is one text. Memory is proportional to the distinct words, not to the files. Progress goes to stderr;\n"
    "Ctrl-C stops and writes nothing. Files are written atomically. docs/tokenizers.md has the details.\n"
    "\n"
    "examples:\n"
    "  tally tokenizer train --vocabulary 8192 --out tok book.txt\n"
    "  tally tokenizer train --vocabulary 32000 --encoding llama3 --special '<s>,</s>' --out tok *.txt\n"
    "  tally tokenizer train --ties huggingface --format json,gpt2 --out tok book.txt\n";

/* A list with commas between its entries: cuts `text` in place. NULL: no memory. */
static const char **list_cut(char *text, int *n) {
    int most = 1;
    for (const char *c = text; *c; c++) most += *c == ',';
    const char **list = memory_new((size_t)most * sizeof *list);
    *n = 0;
    for (char *at = text, *comma; list && *at; at = comma ? comma + 1 : at + strlen(at)) {
        if ((comma = strchr(at, ','))) *comma = 0;
        if (*at) list[(*n)++] = at;
    }
    return list;
}

/* ---- train ---- */

struct request {
    const char *out;
    const char **files;
    int n_files;
    tl_bpe_options bpe;
    const char **formats;
    int n_formats;
    bool wants_json;
};

static int usage_error(const char *problem) {
    fprintf(stderr, "tally tokenizer: %s (see `tally tokenizer --help`)\n", problem);
    return EXIT_USAGE;
}

static int train_report(const struct request *r, const tl_tokenizer *t, const tl_bpe_counts *c, double elapsed) {
    const long long size = (long long)tl_tokenizer_size(t), asked = (long long)r->bpe.vocabulary;
    if (r->wants_json)
        return cli_json(json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:f}", "folder", text_is_utf8(r->out) ? r->out : "?",
                                  "vocabulary", (json_int_t)size, "bytes", (json_int_t)c->bytes, "words",
                                  (json_int_t)c->words, "distinct_words", (json_int_t)c->distinct, "distinct_bytes",
                                  (json_int_t)c->distinct_bytes, "seconds", elapsed));
    char bytes[32], words[32], distinct[32];
    printf("%s: %lld tokens, learned from %s bytes (%s words, %s distinct) in %.1f s\n", r->out, size,
           grouped_text(c->bytes, bytes), grouped_text(c->words, words), grouped_text(c->distinct, distinct), elapsed);
    if (size < asked)
        fprintf(stderr, "tally tokenizer: %lld tokens instead of %lld: no other pair occurs %lld times\n", size, asked,
                (long long)(r->bpe.min_count > 1 ? r->bpe.min_count : 1));
    return 0;
}

static int train_run(struct request *r) {
    const double start = now_s();
    struct progress p = progress_begin("tokenizer: words", "B");
    r->bpe.progress = learning_tell;
    r->bpe.context = &p;
    tl_bpe *bpe = tl_bpe_new(&r->bpe);
    bool ok = bpe && tl_bpe_add_files(bpe, r->files, r->n_files);
    const tl_bpe_counts counts = tl_bpe_count(bpe);
    tl_tokenizer *t = ok ? tl_bpe_train(bpe) : NULL;
    tl_bpe_free(bpe);
    progress_end(&p);
    for (int i = 0; i < r->n_formats && t && ok; i++) ok = tl_tokenizer_save(t, r->out, r->formats[i]);
    int code = 0;
    if (t && ok) code = train_report(r, t, &counts, now_s() - start);
    else if (is_interrupted) {
        fprintf(stderr, "tally tokenizer: stopped by Ctrl-C\n");
        code = EXIT_STOPPED;
    } else code = cli_error_of("tokenizer");
    tl_tokenizer_free(t);
    return code;
}

static int ties_read(const char *text, tl_ties *ties) {
    char shown[64];
    *ties = !strcmp(text, "huggingface") ? TL_TIES_HUGGING_FACE : TL_TIES_GREATER;
    if (*ties == TL_TIES_HUGGING_FACE || !strcmp(text, "greater")) return 0;
    fprintf(stderr, "tally tokenizer: --ties is \"%s\" (need greater or huggingface)\n",
            text_show(shown, sizeof shown, text));
    return EXIT_INPUT;
}

static int formats_check(const struct request *r) {
    static const char *const known[] = {"json", "gpt2", "ranks"};
    char shown[64], meant[TEXT_MEANT];
    for (int i = 0; i < r->n_formats; i++) {
        int k = 0;
        while (k < 3 && strcmp(r->formats[i], known[k])) k++;
        if (k < 3) continue;
        fprintf(stderr, "tally tokenizer: --format has \"%s\"%s (need json, gpt2 or ranks)\n",
                text_show(shown, sizeof shown, r->formats[i]),
                text_meant(meant, text_nearest(r->formats[i], known, 3)));
        return EXIT_INPUT;
    }
    return r->n_formats ? 0 : usage_error("--format is empty");
}

static int tokenizer_train(int argc, char **argv) {
    struct request r = {.bpe = tl_bpe_defaults()};
    const char *special = NULL, *format = "json", *ties = "greater";
    const struct option table[] = {
        {"--out", OPTION_TEXT, &r.out, 0, 0, false},
        {"--vocabulary", OPTION_INTEGER, &r.bpe.vocabulary, 1, 9.2e18, false},
        {"--encoding", OPTION_TEXT, &r.bpe.encoding, 0, 0, false},
        {"--special", OPTION_TEXT, &special, 0, 0, false},
        {"--ties", OPTION_TEXT, &ties, 0, 0, false},
        {"--min-count", OPTION_INTEGER, &r.bpe.min_count, 1, 9.2e18, false},
        {"--format", OPTION_TEXT, &format, 0, 0, false},
        {"--json", OPTION_FLAG, &r.wants_json, 0, 0, false},
        {0},
    };
    r.files = memory_new((size_t)argc * sizeof *r.files);
    for (int i = 0; r.files && i < argc; i++) r.files[i] = NULL;
    int code = r.files ? options_read("tokenizer", table, argc, argv, r.files, argc) : EXIT_MEMORY;
    while (!code && r.n_files < argc && r.files[r.n_files]) r.n_files++;
    if (!code) code = ties_read(ties, &r.bpe.ties);
    if (!code && (!r.out || !*r.out || !r.n_files)) code = usage_error("train needs --out FOLDER and a FILE");
    char *special_text = strdup(special ? special : ""), *format_text = strdup(format);
    int n_specials = 0;
    const char **specials = special_text ? list_cut(special_text, &n_specials) : NULL;
    r.formats = format_text ? list_cut(format_text, &r.n_formats) : NULL;
    if (!code && (!specials || !r.formats)) {
        fprintf(stderr, "tally tokenizer: out of memory\n");
        code = EXIT_MEMORY;
    }
    if (!code) code = formats_check(&r);
    if (!code && special) {
        r.bpe.special = specials;
        r.bpe.n_special = n_specials;
    }
    if (!code) code = train_run(&r);
    memory_free(specials);
    memory_free(r.formats);
    memory_free(r.files);
    free(special_text);
    free(format_text);
    return code;
}

int cmd_tokenizer(int argc, char **argv) {
    if (argc < 2) {
        fputs(help_tokenizer, stderr);
        return EXIT_USAGE;
    }
    if (!strcmp(argv[1], "train")) return tokenizer_train(argc - 1, argv + 1);
    char shown[64], meant[TEXT_MEANT];
    fprintf(stderr, "tally tokenizer: there is no \"%s\"%s (see `tally tokenizer --help`)\n",
            text_show(shown, sizeof shown, argv[1]),
            text_meant(meant, text_nearest(argv[1], (const char *[]){"train"}, 1)));
    return EXIT_USAGE;
}

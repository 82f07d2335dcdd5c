/* cmd_eval.c: `tally eval`: how well a model predicts a text, and which endings it finds probable. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/trained_options.h"
#include "data/documents.h"
#include "data/token_file.h"
#include "step/source.h"
#include "train/choices.h"
#include "train/identity.h"
#include "train/measure.h"

const char help_eval[] =
    "usage: tally eval --checkpoint FOLDER [--data FILE | --choices FILE] [options]\n"
    "\n"
    "Computes the loss of a model on every token of a text or token file: nats per token, perplexity, and both per\n"
    "byte. FOLDER is a run's folder (its newest checkpoint; --step and --best select another), one of its\n"
    "checkpoints, a Hugging Face folder with config.json and model.safetensors, or a GGUF file. Without --data, a run\n"
    "is evaluated on its held-out data, on each set of it; it is an error if that has changed since training.\n"
    "\n"
    "  --checkpoint FOLDER  (or --model FOLDER) the model\n"
    "  --data FILE          text, tokens in any format of `tally data`, or JSON lines (FILE.jsonl, FILE.jsonl.gz,\n"
    "                       FILE.jsonl.zst): each line is a document, an object with a field \"text\"\n"
    "  --batch N            sequences at once (default: the run's, else 8); affects the result only by rounding\n"
    "  --seq N              tokens per window (default: the run's, else the model's context)\n"
    "  --stride N           tokens by which windows advance (default: as --seq). Each token is scored once, in the\n"
    "                       first window that has it, so a smaller stride gives tokens at least SEQ - N tokens of\n"
    "                       context, and costs SEQ / N times as much\n"
    "  --batches N          stop after N full batches (default: all of the data)\n"
    "  --document-mask true|false   keep attention inside the documents of a window, and start positions again in\n"
    "                       each (default: as the run was trained). A text is one document, unless the run has a\n"
    "                       --document-token\n"
    "  --tokenizer PATH     bytes, or a tokenizer's file or folder, instead of the model's own: texts are tokenized\n"
    "                       with it, and it says how many bytes tokens represent\n"
    "  --bytes N            bytes of text that the tokens represent, if the tokenizer is not known\n"
    "  --step N, --best     another checkpoint of the run\n"
    "  --device cpu|cuda    --threads N   --json\n"
    "\n"
    "documents: no context crosses from one to the next, and the first token of each is not scored unless the\n"
    "tokenizer of a Hugging Face folder puts one before it\n"
    "  --per-document       the loss of every document, one per line, and of all\n"
    "  --field NAME         the field of JSON lines with the text (default: text)\n"
    "  --document-token N   the id that begins or ends each document of a token file; it is not scored. Files of\n"
    "                       `tally tokenize` record their documents\n"
    "  --limit N            stop after N documents, or items of --choices\n"
    "\n"
    "multiple choice in HellaSwag's form: the share of items whose right ending is the most probable one\n"
    "  --choices FILE       JSON lines: {\"ctx\": \"...\", \"endings\": [\"...\", ...], \"label\": 3}\n"
    "  --harness            prepare HellaSwag's texts as lm-evaluation-harness does: activity label, ctx_a, ctx_b\n"
    "                       capitalized, without marks in brackets\n"
    "  --per-item           the scores of every item too, one per line\n"
    "\n"
    "examples:\n"
    "  tally eval --checkpoint runs/first\n"
    "  tally eval --checkpoint runs/first --best --data other.txt --json\n"
    "  tally eval --model ~/gpt2 --data other.txt --seq 1024 --stride 512\n"
    "  tally eval --model ~/gpt2 --data articles.jsonl --field body --per-document\n"
    "  tally eval --model ~/gpt2 --choices hellaswag_val.jsonl --harness --limit 1000\n";

struct request {
    struct trained_flags model;
    const char *data, *choices, *tokenizer, *field, *mask;
    int64_t batch, seq, stride, batches, bytes, document_token, limit;
    bool is_per_document, is_per_item, is_harness;
};

static int usage(const char *problem) {
    fprintf(stderr, "tally eval: %s (see `tally eval --help`)\n", problem);
    return EXIT_USAGE;
}

static bool is_lines(const struct request *r) { return r->data && (r->field || documents_is_jsonl(r->data)); }

static int request_check(const struct request *r) {
    const bool is_choices = r->choices != NULL;
    if (is_choices && r->data) return usage("--data and --choices: give one of them");
    if (is_choices && (r->is_per_document || r->field || r->document_token >= 0 || r->stride || r->batches || r->bytes))
        return usage("--choices takes none of --per-document, --field, --document-token, --stride, --batches and "
                     "--bytes");
    if (!is_choices && (r->is_harness || r->is_per_item)) return usage("--harness and --per-item need --choices");
    const bool has_documents = is_lines(r) || r->is_per_document || r->document_token >= 0;
    if (!is_choices && r->limit && !has_documents)
        return usage("--limit counts documents or items: give --per-document, --document-token, JSON lines or "
                     "--choices");
    if (r->mask && (has_documents || is_choices))
        return usage("--document-mask is for windows of one text: documents and items are scored alone in any case");
    if (r->mask && strcmp(r->mask, "true") && strcmp(r->mask, "false")) {
        fprintf(stderr, "tally eval: --document-mask is \"%s\" (need true or false)\n", r->mask);
        return EXIT_INPUT;
    }
    if (has_documents && r->batches) return usage("--batches is for one text: --limit N stops after N documents");
    return 0;
}

static int request_read(struct request *r, int argc, char **argv) {
    const struct option table[] = {
        {"--data", OPTION_TEXT, &r->data, 0, 0, false},
        {"--choices", OPTION_TEXT, &r->choices, 0, 0, false},
        {"--tokenizer", OPTION_TEXT, &r->tokenizer, 0, 0, false},
        {"--document-mask", OPTION_TEXT, &r->mask, 0, 0, false},
        {"--field", OPTION_TEXT, &r->field, 0, 0, false},
        {"--batch", OPTION_INTEGER, &r->batch, 1, 1e9, false},
        {"--seq", OPTION_INTEGER, &r->seq, 1, 1e9, false},
        {"--stride", OPTION_INTEGER, &r->stride, 1, 1e9, false},
        {"--batches", OPTION_INTEGER, &r->batches, 1, 1e9, false},
        {"--bytes", OPTION_INTEGER, &r->bytes, 1, 1e15, false},
        {"--document-token", OPTION_INTEGER, &r->document_token, 0, 2147483647, false},
        {"--limit", OPTION_INTEGER, &r->limit, 1, 1e15, false},
        {"--per-document", OPTION_FLAG, &r->is_per_document, 0, 0, false},
        {"--per-item", OPTION_FLAG, &r->is_per_item, 0, 0, false},
        {"--harness", OPTION_FLAG, &r->is_harness, 0, 0, false},
        {0},
    };
    *r = (struct request){.document_token = -1};
    int code = trained_flags_read(&r->model, "eval", "--checkpoint", table, argc, argv);
    return code ? code : request_check(r);
}

/* ---- Printing ---- */

/* JSON has no form for numbers that are not finite. */
static json_t *number_or_null(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static double bits_per_byte(double nats, int64_t bytes) { return bytes ? nats / (double)bytes / log(2) : NAN; }
static double byte_perplexity(double nats, int64_t bytes) { return bytes ? exp(nats / (double)bytes) : NAN; }

/* `set` is the name of a set of held-out data, "" where there is only one. */
static void print_text(const struct request *r, const struct opened *o, const struct measured *m, bool has_documents,
                       const char *set) {
    printf("%s", r->model.folder);
    if (o->is_run) printf(", step %" PRId64, o->step);
    printf("%s%s: %" PRId64 " tokens", *set ? ", " : "", set, m->n_tokens);
    if (has_documents) printf(" of %" PRId64 " documents", m->n_documents);
    printf(" in %.1f s (%.0f tokens/s)\n", m->seconds, m->seconds > 0 ? (double)m->n_tokens / m->seconds : 0);
    if (m->has_mask) printf("  attention      inside documents (--document-mask false: in whole windows)\n");
    printf("  loss           %.6f nats per token\n", m->loss);
    printf("  perplexity     %.4f\n", exp(m->loss));
    if (m->bytes)
        printf("  bits per byte  %.6f (perplexity per byte %.4f)\n", bits_per_byte(m->nats, m->bytes),
               byte_perplexity(m->nats, m->bytes));
    else
        printf("  bits per byte  unknown (give --tokenizer PATH, or --bytes N, the bytes of text that the tokens "
               "represent)\n");
}

static json_t *measured_json(const struct opened *o, const struct measured *m, bool has_documents) {
    json_t *all = json_pack("{s:o, s:o}", "loss", number_or_null(m->loss), "perplexity", number_or_null(exp(m->loss)));
    if (all && m->bytes) {
        json_object_set_new(all, "bits_per_byte", number_or_null(bits_per_byte(m->nats, m->bytes)));
        json_object_set_new(all, "byte_perplexity", number_or_null(byte_perplexity(m->nats, m->bytes)));
    }
    if (all && o->is_run) json_object_set_new(all, "step", json_integer(o->step));
    if (all && has_documents) json_object_set_new(all, "documents", json_integer(m->n_documents));
    if (all) json_object_set_new(all, "tokens", json_integer(m->n_tokens));
    if (all && m->has_mask) json_object_set_new(all, "document_mask", json_true());
    if (all && m->bytes) json_object_set_new(all, "bytes", json_integer(m->bytes));
    if (all) json_object_set_new(all, "seconds", json_real(m->seconds));
    return all;
}

/* One object on a line of its own. False: recorded. */
static bool line_print(json_t *value) {
    char *text = value ? json_print(value, JSON_REAL_PRECISION(17)) : NULL;
    if (!value) error_memory(sizeof *value, "a line of JSON");
    json_decref(value);
    if (text) printf("%s\n", text);
    memory_free(text);
    return text != NULL;
}

struct printer {
    const struct request *r;
    struct progress progress;
    bool has_header;
    const char *set; /* whose documents these are; "": there is only one */
};

static bool document_print(void *context, const struct scored *d) {
    struct printer *p = context;
    const double loss = d->n_tokens ? d->nats / (double)d->n_tokens : NAN, bits = bits_per_byte(d->nats, d->text.bytes);
    progress_wipe(&p->progress);
    if (p->r->model.is_json) {
        json_t *line =
            json_pack("{s:I, s:I, s:I, s:o, s:o, s:o}", "document", (json_int_t)d->text.index, "tokens",
                      (json_int_t)d->n_tokens, "bytes", (json_int_t)d->text.bytes, "loss", number_or_null(loss),
                      "perplexity", number_or_null(exp(loss)), "bits_per_byte", number_or_null(bits));
        if (line && d->text.line) json_object_set_new(line, "line", json_integer(d->text.line));
        if (line && *p->set) json_object_set_new(line, "set", json_string(p->set));
        return line_print(line);
    }
    if (!p->has_header)
        printf("%10s %10s %10s %12s %14s\n", "document", "tokens", "loss", "perplexity", "bits per byte");
    p->has_header = true;
    printf("%10" PRId64 " %10" PRId64, d->text.index, d->n_tokens);
    if (!d->n_tokens) printf(" %10s %12s %14s\n", "-", "-", "-");
    else if (!d->text.bytes) printf(" %10.4f %12.4f %14s\n", loss, exp(loss), "unknown");
    else printf(" %10.4f %12.4f %14.4f\n", loss, exp(loss), bits);
    return true;
}

static bool tell(double done, double total, void *context) {
    struct printer *p = context;
    return progress_tell((uint64_t)done, (uint64_t)total, &p->progress);
}

/* ---- The loss on data ---- */

/* Opens what is measured: a whole file, or what the run held out. */
__attribute__((noinline)) static bool parts_open(const struct request *r, struct opened *o, struct source *source) {
    int64_t vocabulary = tl_model_config_of(o->model)->vocabulary;
    struct settings s = o->settings;
    opened_tokenizer_name(o, s.tokenizer); /* the copy in its folder, wherever the original is now */
    s.document_mask = false;               /* mask_find looks for documents in the part that is measured */
    if (r->tokenizer && !settings_set(&s, "tokenizer", r->tokenizer)) return false;
    s.chat = s.preference = 0;
    if (!r->data && o->is_run && settings_has_answers(&o->settings))
        return error_set(TL_ERROR_USE,
                         "eval: this run's held-out data are %s, whose loss its log has (need --data FILE)",
                         settings_has_chat(&o->settings) ? "conversations" : "pairs of answers");
    if (r->data) {
        if (strlen(r->data) >= sizeof s.data) return settings_set(&s, "data", r->data);
        strcpy(s.data, r->data);
        *s.val_data = 0;
        s.val_share = 0;
    } else if (!o->is_run) {
        fprintf(stderr, "tally eval: --data is required: this folder is not a run and has no held-out data\n");
        return false;
    }
    if (!source_open(source, &s, vocabulary, false)) return false;
    if (!r->data && !identity_check_data(o->made_from, &s, source)) return false;
    if (!r->data && source->n_held_out > 1 && r->bytes)
        return error_set(TL_ERROR_USE, "--bytes is of one text, and this run has %d held-out sets (need --data)",
                         source->n_held_out);
    if (r->data ? source->train.last : source->held_out[0].last) return true;
    fprintf(stderr, "tally eval: --data is required: this run has no held-out data\n");
    return false;
}

/* Whether the windows of a part have a document mask, and where documents begin. */
static bool mask_find(const struct request *r, const struct opened *o, const struct source *source,
                      const struct source_part *part, struct measure_options *options) {
    tl_token_info info;
    const bool is_wanted = r->mask ? !strcmp(r->mask, "true") : o->is_run && o->settings.document_mask;
    if (!is_wanted) return true;
    if (!tl_token_file_info(part->file, &info)) return false;
    const bool is_text = part->text || info.format == TL_TOKENS_BYTES;
    options->document_token = source->document_token;
    options->has_mask = source->document_token >= 0 || info.documents > 0; /* a text is one document */
    return options->has_mask || is_text ||
           error_set(TL_ERROR_USE,
                     "%s: does not record where documents begin, and the run keeps attention inside documents (give "
                     "--document-mask false, or a file of `tally tokenize`)",
                     token_file_path(part->file));
}

/* The tokenizer that texts are encoded with, for files that `source` does not open. */
static int tokenizer_open(const struct request *r, const struct opened *o, const char *what, tl_tokenizer **t) {
    if (!opened_tokenizer(o, r->tokenizer, t)) return cli_error_of("eval");
    if (*t) return 0;
    fprintf(stderr, "tally eval: %s needs a tokenizer, and %s has none (give --tokenizer PATH)\n", what,
            r->model.folder);
    return EXIT_USAGE;
}

static int result_print(const struct request *r, const struct opened *o, const struct measured *m, bool has_documents) {
    if (!r->model.is_json) return print_text(r, o, m, has_documents, ""), 0;
    return line_print(measured_json(o, m, has_documents)) ? 0 : cli_error_of("eval");
}

static int failed(void) {
    if (!is_interrupted) return tl_error() == TL_OK ? EXIT_USAGE : cli_error_of("eval");
    fprintf(stderr, "tally eval: stopped by Ctrl-C\n");
    return EXIT_STOPPED;
}

static int lines_evaluate(const struct request *r, const struct opened *o, struct measure_options *options) {
    struct measured m;
    tl_tokenizer *t = NULL;
    int code = tokenizer_open(r, o, r->data, &t);
    if (code) return code;
    options->most = r->limit;
    options->has_template = !o->is_run;
    const bool ok = measure_lines(o->model, t, r->data, r->field ? r->field : "text", options, &m);
    tl_tokenizer_free(t);
    progress_wipe(&((struct printer *)options->context)->progress);
    return ok ? result_print(r, o, &m, true) : failed();
}

static bool part_measure(const struct request *r, const struct opened *o, struct source *source,
                         const struct source_part *part, struct measure_options options, struct measured *m) {
    const bool has_documents = r->is_per_document || r->document_token >= 0;
    options.most = has_documents ? r->limit : r->batches;
    bool ok = has_documents ? measure_documents(o->model, source->tokenizer, part, &options, m)
                            : mask_find(r, o, source, part, &options) && measure(o->model, part, &options, m) &&
                                  source_bytes(source, part, part->last - part->first - 1, m->n_tokens, &m->bytes);
    progress_wipe(&((struct printer *)options.context)->progress);
    if (ok && r->bytes) m->bytes = r->bytes;
    return ok;
}

/* Each set of held-out data. The first is the run's: its figures are those of the object, and `held_out_sets` has all
 * by name. A text is printed as soon as a set is measured. */
static bool sets_measure(const struct request *r, const struct opened *o, struct source *source,
                         const struct measure_options *options, json_t **all) {
    const bool has_documents = r->is_per_document || r->document_token >= 0;
    struct printer *p = options->context;
    json_t *sets = json_object();
    for (int i = 0; i < source->n_held_out; i++) {
        struct measured m;
        p->set = source->held_out_name[i];
        p->has_header = false;
        if (!part_measure(r, o, source, &source->held_out[i], *options, &m)) return json_decref(sets), false;
        if (!r->model.is_json) print_text(r, o, &m, has_documents, p->set);
        else if (i == 0) *all = measured_json(o, &m, has_documents);
        if (r->model.is_json) json_object_set_new(sets, p->set, measured_json(o, &m, has_documents));
    }
    if (r->model.is_json) json_object_set(*all, "held_out_sets", sets);
    json_decref(sets);
    return true;
}

static int part_evaluate(const struct request *r, struct opened *o, struct measure_options *options) {
    struct source source = {0};
    struct measured m;
    json_t *all = NULL;
    bool ok = parts_open(r, o, &source);
    const bool is_several = ok && !r->data && source.n_held_out > 1;
    if (is_several) ok = sets_measure(r, o, &source, options, &all);
    else if (ok) ok = part_measure(r, o, &source, r->data ? &source.train : &source.held_out[0], *options, &m);
    source_close(&source);
    if (!ok) return json_decref(all), failed();
    if (is_several) return !r->model.is_json || line_print(all) ? 0 : cli_error_of("eval");
    return result_print(r, o, &m, r->is_per_document || r->document_token >= 0);
}

/* ---- Multiple choice ---- */

static const char *const rule_names[CHOICE_RULES] = {
    [CHOICE_SUM] = "acc", [CHOICE_CHARACTER] = "acc_norm", [CHOICE_BYTE] = "acc_bytes", [CHOICE_TOKEN] = "acc_token"};

static bool item_json_print(const struct choice_item *item) {
    json_t *chosen = json_object(), *logs = json_array(), *tokens = json_array();
    for (int i = 0; i < CHOICE_RULES; i++) json_object_set_new(chosen, rule_names[i], json_integer(item->chosen[i]));
    for (int i = 0; i < item->n; i++) {
        json_array_append_new(logs, number_or_null(-item->endings[i].nats));
        json_array_append_new(tokens, json_integer(item->endings[i].n_tokens));
    }
    return line_print(json_pack("{s:I, s:I, s:i, s:o, s:o, s:o}", "item", (json_int_t)item->index, "line",
                                (json_int_t)item->line, "label", item->answer, "chosen", chosen, "log_probabilities",
                                logs, "tokens", tokens));
}

static bool item_print(void *context, const struct choice_item *item) {
    struct printer *p = context;
    if (!p->r->is_per_item) return true;
    progress_wipe(&p->progress);
    if (p->r->model.is_json) return item_json_print(item);
    if (!p->has_header) {
        printf("%8s %6s", "item", "label");
        for (int i = 0; i < CHOICE_RULES; i++) printf(" %9s", rule_names[i]);
        printf("  log probability of each ending\n");
    }
    p->has_header = true;
    printf("%8" PRId64 " %6d", item->index, item->answer);
    for (int i = 0; i < CHOICE_RULES; i++) printf(" %9d", item->chosen[i]);
    for (int i = 0; i < item->n; i++) printf(" %s%.3f", i ? "" : " ", -item->endings[i].nats);
    printf("\n");
    return true;
}

/* Of a share of n items, as lm-evaluation-harness has it. */
static double standard_error(double share, int64_t n) {
    return n > 1 ? sqrt(share * (1 - share) / (double)(n - 1)) : 0;
}

static int choices_json(const struct opened *o, const struct choices_result *c) {
    json_t *all = json_pack("{s:I}", "items", (json_int_t)c->n_items);
    for (int i = 0; all && i < CHOICE_RULES; i++) {
        const double share = (double)c->n_right[i] / (double)c->n_items;
        char name[32];
        json_object_set_new(all, rule_names[i], json_real(share));
        snprintf(name, sizeof name, "%s_stderr", rule_names[i]);
        json_object_set_new(all, name, json_real(standard_error(share, c->n_items)));
    }
    if (all && o->is_run) json_object_set_new(all, "step", json_integer(o->step));
    if (all) json_object_set_new(all, "tokens", json_integer(c->n_tokens));
    if (all) json_object_set_new(all, "seconds", json_real(c->seconds));
    return line_print(all) ? 0 : cli_error_of("eval");
}

static void choices_print(const struct request *r, const struct opened *o, const struct choices_result *c) {
    static const char *const means[CHOICE_RULES] = {[CHOICE_SUM] = "by the log probability of the ending",
                                                    [CHOICE_CHARACTER] =
                                                        "per character, as acc_norm of lm-evaluation-harness",
                                                    [CHOICE_BYTE] = "per byte of UTF-8, as its acc_bytes",
                                                    [CHOICE_TOKEN] = "per token, as in llm.c and build-nanogpt"};
    printf("%s", r->model.folder);
    if (o->is_run) printf(", step %" PRId64, o->step);
    printf(": %" PRId64 " items in %.1f s (%.1f items/s)\n", c->n_items, c->seconds,
           c->seconds > 0 ? (double)c->n_items / c->seconds : 0);
    for (int i = 0; i < CHOICE_RULES; i++) {
        const double share = (double)c->n_right[i] / (double)c->n_items;
        printf("  %-10s %.4f +- %.4f  %s\n", rule_names[i], share, standard_error(share, c->n_items), means[i]);
    }
}

static int choices_evaluate(const struct request *r, const struct opened *o, int64_t batch, int64_t seq,
                            struct printer *p) {
    struct choices_result c;
    tl_tokenizer *t = NULL;
    int code = tokenizer_open(r, o, "--choices", &t);
    if (code) return code;
    const bool ok = choices_score(
        r->choices,
        &(struct choices_options){o->model, t, batch, seq, r->limit, !o->is_run, r->is_harness, item_print, tell, p},
        &c);
    tl_tokenizer_free(t);
    progress_wipe(&p->progress);
    if (!ok) return failed();
    if (r->model.is_json) return choices_json(o, &c);
    choices_print(r, o, &c);
    return 0;
}

/* ---- All of it ---- */

static int evaluate(const struct request *r, struct opened *o) {
    const tl_model_config *c = tl_model_config_of(o->model);
    const int64_t batch = r->batch ? r->batch : o->is_run ? o->settings.batch : 8;
    const bool has_run_seq = o->is_run && !r->choices; /* endings get all the context that the model has */
    const int64_t seq = r->seq ? r->seq : has_run_seq ? o->settings.seq : c->context;
    if (seq > c->context) {
        fprintf(stderr, "tally eval: --seq %" PRId64 " exceeds the model's context of %" PRId64 "\n", seq, c->context);
        return EXIT_INPUT;
    }
    if (r->stride > seq) {
        fprintf(stderr, "tally eval: --stride %" PRId64 " exceeds --seq %" PRId64 ": tokens would be left out\n",
                r->stride, seq);
        return EXIT_INPUT;
    }
    const bool is_bytes = r->choices || is_lines(r);
    struct printer p = {.r = r, .set = "", .progress = progress_begin("eval", is_bytes ? "B" : " tokens")};
    struct measure_options options = {.batch = batch,
                                      .time = seq,
                                      .stride = r->stride ? r->stride : seq,
                                      .document_token = r->document_token,
                                      .each = r->is_per_document ? document_print : NULL,
                                      .progress = tell,
                                      .context = &p};
    int code = r->choices    ? choices_evaluate(r, o, batch, seq, &p)
               : is_lines(r) ? lines_evaluate(r, o, &options)
                             : part_evaluate(r, o, &options);
    progress_end(&p.progress);
    return code;
}

int cmd_eval(int argc, char **argv) {
    struct request r;
    struct opened o;
    tl_device *device;
    int code = request_read(&r, argc, argv);
    if (code || (code = trained_open(&r.model, &o, &device))) return code;
    code = evaluate(&r, &o);
    opened_close(&o);
    return code;
}

/* cmd_generate.c: `tally generate`: texts that follow prompts. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/generate_request.h"
#include "cli/generate_prompts.h"
#include "cli/generate_speed.h"
#include "cli/generate_text.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/trained_options.h"

const char help_generate[] =
    "usage: tally generate --model FOLDER [--prompt TEXT]... [options]\n"
    "       tally generate --model FOLDER --interactive [options]\n"
    "\n"
    "Continues a text. FOLDER is a run's folder (its newest checkpoint; --step and --best select another), one of\n"
    "its checkpoints, a Hugging Face folder, or a GGUF file (`tally export`). The tokenizer is the one in the folder\n"
    "or file; without one, models with 256 tokens read and write bytes, and others need the prompt as token ids\n"
    "(--ids) and print ids. Keys and values are cached. On a terminal, and in the text of --json, \"?\" stands for\n"
    "bytes that are not printable UTF-8; a file or a pipe gets the model's bytes unchanged.\n"
    "\n"
    "  --model FOLDER     (or --checkpoint FOLDER) the model\n"
    "  --prompt TEXT      the text to continue (default: the run's prompt); may be given 16 times\n"
    "  --ids N,N,...      the prompt as token ids; may be given 16 times\n"
    "  --prompts FILE     many prompts: one per line, or JSONL (FILE.jsonl, or with --field) with a text or an array\n"
    "                     of ids in a field; - is stdin\n"
    "  --field NAME       the field of the JSONL (default prompt)\n"
    "  --batch N          prompts that are continued together (default 8, at most 256)\n"
    "  --interactive      read texts from the terminal, or from a pipe, and continue each\n"
    "  --tokenizer PATH   bytes, or a tokenizer's file or folder, instead of the model's own\n"
    "  --tokens N         tokens to generate (default 200, at most 10 million); Ctrl-C prints those made so far\n"
    "  --temperature X    below 1: more likely tokens; above 1: more surprising ones; 0: always the most likely\n"
    "                     (default 0.8)\n"
    "  --top-k N          sample from the N most likely tokens (default 0: all)\n"
    "  --top-p X          sample from the most likely tokens with total probability X (default 1: all)\n"
    "  --min-p X          sample from tokens with at least X times the likeliest one's probability (default 0: all)\n"
    "  --repetition-penalty X   above 1: tokens that the text has already become less likely, as in transformers\n"
    "  --stop TEXT        end before this text, wherever it appears in what is generated; may be given 16 times\n"
    "  --ignore-eos       go on after an end-of-text token; without this flag a text ends before one\n"
    "  --seed N           seed of the random numbers (default 1): the same seed gives the same text. The second of\n"
    "                     several prompts has the seed N + 1, the third N + 2, ...\n"
    "  --samples N        N texts for each prompt (default 1), each with a seed of its own\n"
    "  --dtype f32|f16|bf16   dtype of the weights (default: the run's recipe, f32 for other folders). bf16 takes\n"
    "                     half the memory and decodes up to twice as fast\n"
    "  --step N, --best   another checkpoint of the run\n"
    "  --speed            print the speed of prefill and decoding on stderr, and what the memory's bandwidth allows;\n"
    "                     the bandwidth is `tally calibrate`'s, or is measured now\n"
    "  --device cpu|cuda  --threads N   --json\n"
    "\n"
    "The model's end-of-text tokens are \"eos_token_id\" of generation_config.json or config.json, a GGUF file's\n"
    "tokenizer.ggml.eos_token_id, and otherwise, as for a run, the tokenizer's own (<|endoftext|> and the like).\n"
    "\n"
    "Text is printed as it comes, in whole characters. Several prompts are continued --batch at a time, and printed\n"
    "in their order, each under a line ==> N <==, or as one line of --json. Each gets the text that it would get\n"
    "alone with its seed.\n"
    "\n"
    "Interactive: the model continues what you type, and your next line continues the whole text after a line break.\n"
    "An empty line goes on without one. /reset begins a new text, /quit or Ctrl-D ends, Ctrl-C stops the current\n"
    "text. A line that begins with // is text that begins with /.\n"
    "\n"
    "examples:\n"
    "  tally generate --model runs/first --prompt \"Once upon a time\"\n"
    "  tally generate --model runs/first/final --temperature 0.5 --top-p 0.9 --tokens 500 --seed 7\n"
    "  tally generate --model ~/gpt2 --ids 464,3290 --tokens 20 --temperature 0 --json\n"
    "  tally generate --model model.gguf --prompts questions.jsonl --field question --stop $'\\n' --json\n"
    "  tally generate --model runs/first --interactive --tokens 60\n";

enum { MOST_TOKENS = 10000000, MOST_BATCH = 256 };

static int usage(const char *problem) { return fprintf(stderr, "tally generate: %s\n", problem), EXIT_USAGE; }

static int request_check(const struct generate_request *r) {
    int n_sources = (r->prompts.n > 0) + (r->ids.n > 0) + (r->file != NULL);
    if (n_sources > 1) return usage("give --prompt, --ids or --prompts, not both");
    if (r->field && !r->file) return usage("--field names the field of --prompts FILE, which is not given");
    if (r->is_interactive &&
        (r->model.is_json || r->samples > 1 || r->file || r->ids.n || r->prompts.n > 1 || r->shows_speed))
        return usage("--interactive takes one --prompt to begin with, and no --prompts, --ids, --samples, --json or "
                     "--speed");
    return 0;
}

static int request_read(struct generate_request *r, int argc, char **argv) {
    const struct option table[] = {
        {"--prompt", OPTION_TEXTS, &r->prompts, 0, 0, false},
        {"--ids", OPTION_TEXTS, &r->ids, 0, 0, false},
        {"--prompts", OPTION_TEXT, &r->file, 0, 0, false},
        {"--field", OPTION_TEXT, &r->field, 0, 0, false},
        {"--batch", OPTION_INTEGER, &r->batch, 1, MOST_BATCH, false},
        {"--interactive", OPTION_FLAG, &r->is_interactive, 0, 0, false},
        {"--tokenizer", OPTION_TEXT, &r->tokenizer, 0, 0, false},
        {"--tokens", OPTION_INTEGER, &r->tokens, 1, MOST_TOKENS, false},
        {"--temperature", OPTION_NUMBER, &r->options.temperature, 0, 100, false},
        {"--top-k", OPTION_INTEGER, &r->options.top_k, 0, 1e9, false},
        {"--top-p", OPTION_NUMBER, &r->options.top_p, 1e-9, 1, false},
        {"--min-p", OPTION_NUMBER, &r->options.min_p, 0, 0.999999, false},
        {"--repetition-penalty", OPTION_NUMBER, &r->options.repetition_penalty, 0, 1000, true},
        {"--stop", OPTION_TEXTS, &r->stops, 0, 0, false},
        {"--ignore-eos", OPTION_FLAG, &r->ignores_eos, 0, 0, false},
        {"--speed", OPTION_FLAG, &r->shows_speed, 0, 0, false},
        {"--seed", OPTION_INTEGER, &r->seed, 0, 9e15, false},
        {"--samples", OPTION_INTEGER, &r->samples, 1, 1e6, false},
        {"--dtype", OPTION_TEXT, &r->dtype, 0, 0, false},
        {0},
    };
    *r = (struct generate_request){.tokens = 200,
                                   .batch = 8,
                                   .seed = 1,
                                   .samples = 1,
                                   .options = {.temperature = 0.8, .top_p = 1, .repetition_penalty = 1}};
    int code = trained_flags_read(&r->model, "generate", "--model", table, argc, argv);
    return code ? code : request_check(r);
}

/* ---- One text of several ---- */

struct job {
    const struct prompt *prompt;
    struct speech speech;
    int64_t row; /* of the session; -1: it has not begun, or has ended */
    int64_t *made;
    size_t n_made, capacity;
    bool is_done, has_eos; /* has_eos: its last token ended it, and is not a part of the text */
    double began_s, seconds;
};

struct jobs {
    const struct generate_request *request;
    const struct opened *opened;
    tl_tokenizer *tokenizer; /* NULL: ids are printed */
    tl_session *session;
    struct job *at;
    size_t n, n_begun, n_printed;
    int64_t n_open, n_unread; /* texts that grow; tokens of prompts that the next step reads */
    bool is_streamed;         /* a single text, as it comes */
    struct speed speed;
};

static uint64_t seed_of(const struct jobs *all, size_t index) { return (uint64_t)all->request->seed + index; }

static bool job_begin(struct jobs *all, struct job *j) {
    const struct generate_request *r = all->request;
    size_t index = (size_t)(j - all->at);
    j->row = tl_session_open(all->session, j->prompt->ids, j->prompt->n, &r->options, seed_of(all, index));
    j->began_s = now_s();
    j->speech = (struct speech){.stops = &r->stops,
                                .tokenizer = all->tokenizer,
                                .is_clean = r->model.is_json || output_is_terminal(),
                                .is_streamed = all->is_streamed};
    all->n_open++;
    all->n_unread += j->prompt->n;
    return j->row >= 0 && (!all->tokenizer || speech_begin(&j->speech, j->prompt->ids, j->prompt->n, true));
}

static bool job_end(struct jobs *all, struct job *j) {
    bool ok = tl_session_close(all->session, j->row) && (!all->tokenizer || speech_end(&j->speech));
    j->row = -1;
    j->is_done = true;
    j->seconds = now_s() - j->began_s;
    all->n_open--;
    return ok;
}

static bool job_add(struct jobs *all, struct job *j, int64_t id) {
    if (!memory_grow((void **)&j->made, &j->capacity, j->n_made, sizeof *j->made)) {
        fprintf(stderr, "tally generate: out of memory for the text\n");
        return false;
    }
    j->made[j->n_made++] = id;
    j->has_eos = ends_have(&all->request->ends, id);
    if (all->tokenizer && !j->has_eos && !speech_add(&j->speech, id)) return false;
    bool is_last = j->has_eos || j->speech.is_ended || (int64_t)j->n_made == all->request->tokens;
    return !is_last || job_end(all, j);
}

/* ---- Printing ---- */

static bool put(json_t *to, const char *name, json_t *value) { return json_object_set_new(to, name, value) == 0; }

/* Of a run with one text: its speeds are those of the run. */
static bool put_speeds(json_t *root, const struct speed *v) {
    bool ok = put(root, "prefill_s", json_real(v->prefill_s)) &&
              put(root, "decode_tokens_per_s", json_real(speed_decode(v))) &&
              put(root, "decode_bytes_per_token", json_real(speed_step_bytes(v)));
    return ok && (speed_most(v) <= 0 || put(root, "decode_bound_tokens_per_s", json_real(speed_most(v))));
}

static const char *finish_reason(const struct jobs *all, const struct job *j) {
    if (j->has_eos) return "eos";
    return j->speech.is_ended ? "stop" : (int64_t)j->n_made == all->request->tokens ? "length" : "interrupt";
}

static bool print_json(const struct jobs *all, const struct job *j) {
    json_t *tokens = json_array(), *root = json_object();
    size_t index = (size_t)(j - all->at);
    bool ok = tokens && root;
    for (size_t i = 0; ok && i < j->n_made; i++) ok = json_array_append_new(tokens, json_integer(j->made[i])) == 0;
    if (all->n > 1) ok = ok && put(root, "index", json_integer((json_int_t)index));
    if (all->tokenizer) ok = ok && put(root, "text", json_string(j->speech.words.text));
    if (all->opened->is_run) ok = ok && put(root, "step", json_integer(all->opened->step));
    ok = ok && put(root, "prompt_tokens", json_integer(j->prompt->n)) && put(root, "tokens", json_incref(tokens)) &&
         put(root, "seed", json_integer((json_int_t)seed_of(all, index))) &&
         put(root, "stopped", json_boolean(j->has_eos || j->speech.is_ended)) &&
         put(root, "finish_reason", json_string(finish_reason(all, j))) &&
         put(root, "seconds", json_real(j->seconds)) &&
         put(root, "tokens_per_s", json_real((double)j->n_made / (j->seconds > 0 ? j->seconds : 1)));
    if (all->n == 1) ok = ok && put_speeds(root, &all->speed);
    char *line = ok ? json_print(root, JSON_PRESERVE_ORDER) : NULL;
    if (line) puts(line);
    else fprintf(stderr, "tally generate: out of memory for the answer\n");
    free(line);
    json_decref(tokens);
    json_decref(root);
    return line != NULL;
}

static bool print_text(const struct jobs *all, const struct job *j) {
    bool ok = true;
    if (all->n > 1) printf("%s==> %zu <==\n", j > all->at ? "\n" : "", (size_t)(j - all->at) + 1);
    for (size_t i = 0; !all->tokenizer && i < j->n_made; i++)
        printf("%" PRId64 "%s", j->made[i], i + 1 < j->n_made ? "," : "\n");
    if (!all->tokenizer) return true;
    if (!all->is_streamed) ok = speech_put(&j->speech, j->speech.words.text, j->speech.words.n);
    return ok && speech_put(&j->speech, "\n", 1);
}

/* What is done, as far as everything before it is. */
static bool print_done(struct jobs *all) {
    bool ok = true;
    for (; ok && all->n_printed < all->n && all->at[all->n_printed].is_done; all->n_printed++) {
        struct job *j = &all->at[all->n_printed];
        ok = all->request->model.is_json ? print_json(all, j) : print_text(all, j);
        speech_free(&j->speech);
        memory_free(j->made);
        j->made = NULL;
    }
    return ok && fflush(stdout) == 0;
}

/* ---- All of them ---- */

static bool jobs_fill(struct jobs *all) {
    bool ok = true;
    int64_t rows = all->request->batch;
    while (ok && all->n_begun < all->n && all->n_open < rows) ok = job_begin(all, &all->at[all->n_begun++]);
    return ok;
}

static bool jobs_step(struct jobs *all) {
    int64_t tokens[MOST_BATCH], n_open = all->n_open;
    bool ok = speed_step(&all->speed, all->session, tokens, all->n_unread, n_open);
    all->n_unread = 0;
    for (size_t i = all->n_printed; ok && i < all->n_begun; i++) {
        struct job *j = &all->at[i];
        if (j->row >= 0) ok = job_add(all, j, tokens[j->row]);
    }
    return ok;
}

static bool jobs_run(struct jobs *all) {
    bool ok = true;
    while (ok && !is_interrupted && all->n_printed < all->n) {
        ok = jobs_fill(all) && jobs_step(all);
        if (all->n > 1) ok = ok && print_done(all);
        else if (ok && all->at->is_done) break;
    }
    for (size_t i = 0; ok && i < all->n_begun; i++)
        if (all->at[i].row >= 0) ok = job_end(all, &all->at[i]);
    return ok;
}

static int jobs_finish(struct jobs *all, tl_device *device) {
    const struct generate_request *r = all->request;
    if (r->shows_speed || r->model.is_json) speed_bound(&all->speed, device, r->shows_speed);
    if (!print_done(all)) return tl_error() == TL_OK ? EXIT_IO : cli_error_of("generate");
    if (r->shows_speed) speed_print(&all->speed);
    if (!is_interrupted) return 0;
    if (all->n > 1) fprintf(stderr, "tally generate: stopped; %zu of %zu prompts were begun\n", all->n_begun, all->n);
    else fprintf(stderr, "tally generate: stopped after %zu of %" PRId64 " tokens\n", all->at->n_made, r->tokens);
    return EXIT_STOPPED;
}

/* Tokens of the longest text, but the last, which nothing follows. */
static int64_t capacity_of(const struct prompts *prompts, int64_t n_tokens, int64_t context) {
    int64_t most = 1;
    for (size_t i = 0; i < prompts->n; i++)
        if (prompts->at[i].n + n_tokens - 1 > most) most = prompts->at[i].n + n_tokens - 1;
    return most < context ? most : context;
}

static int generate(const struct generate_request *r, struct opened *o, tl_tokenizer *tokenizer,
                    const struct prompts *prompts, tl_device *device) {
    int64_t rows = (int64_t)prompts->n < r->batch ? (int64_t)prompts->n : r->batch;
    int64_t capacity = capacity_of(prompts, r->tokens, tl_model_config_of(o->model)->context);
    struct jobs all = {.request = r, .opened = o, .tokenizer = tokenizer, .n = prompts->n};
    all.is_streamed = prompts->n == 1 && !r->model.is_json;
    all.at = memory_new(prompts->n * sizeof *all.at);
    if (!all.at) return fprintf(stderr, "tally generate: out of memory for the texts\n"), EXIT_MEMORY;
    for (size_t i = 0; i < prompts->n; i++) all.at[i] = (struct job){.prompt = &prompts->at[i], .row = -1};
    interrupt_catch();
    all.session = tl_session_new(o->model, rows, capacity);
    bool ok = all.session && jobs_run(&all);
    int code = ok ? jobs_finish(&all, device) : tl_error() == TL_OK ? EXIT_IO : cli_error_of("generate");
    tl_session_free(all.session);
    for (size_t i = 0; i < all.n; i++) {
        speech_free(&all.at[i].speech);
        memory_free(all.at[i].made);
    }
    memory_free(all.at);
    return code;
}

/* ---- The command ---- */

static int request_run(struct generate_request *r, struct opened *o, tl_tokenizer *tokenizer, tl_device *device) {
    const struct prompts_source source = {.texts = r->prompts,
                                          .ids = r->ids,
                                          .file = r->file,
                                          .field = r->field,
                                          .fallback = o->settings.prompt,
                                          .tokenizer = tokenizer,
                                          .has_template = !o->is_run,
                                          .vocabulary = tl_model_config_of(o->model)->vocabulary};
    struct prompts prompts;
    if (!r->ignores_eos && !ends_of_model(&r->ends, o->folder, o->is_run, tokenizer)) return cli_error_of("generate");
    if (r->is_interactive) return generate_chat(r, o, tokenizer);
    int code = prompts_read(&prompts, &source);
    if (!code && r->samples > 1) code = prompts_repeat(&prompts, r->samples);
    if (code) return code;
    code = generate(r, o, tokenizer, &prompts, device);
    prompts_free(&prompts);
    return code;
}

static int dtype_read(struct generate_request *r) {
    for (int i = TL_F32; r->dtype && i <= TL_BF16; i++)
        if (!strcmp(r->dtype, tl_dtype_name((tl_dtype)i))) r->model.dtype = (tl_dtype)i;
    if (!r->dtype || r->model.dtype != TL_DTYPE_COUNT) return 0;
    return fprintf(stderr, "tally generate: --dtype is \"%s\" (need f32, f16 or bf16)\n", r->dtype), EXIT_INPUT;
}

int cmd_generate(int argc, char **argv) {
    struct generate_request r;
    struct opened o;
    tl_device *device;
    int code = request_read(&r, argc, argv);
    if (code || (code = dtype_read(&r)) || (code = trained_open(&r.model, &o, &device))) return code;
    tl_tokenizer *tokenizer = NULL;
    bool needs_none = r.ids.n && !r.tokenizer && !o.is_bytes; /* ids in, ids out */
    code = needs_none || opened_tokenizer(&o, r.tokenizer, &tokenizer) ? request_run(&r, &o, tokenizer, device)
                                                                       : cli_error_of("generate");
    tl_tokenizer_free(tokenizer);
    opened_close(&o);
    return code;
}

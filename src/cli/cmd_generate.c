/* cmd_generate.c: `tally generate`: text that follows a prompt. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/trained_options.h"
#include "plan/machine.h"
#include "step/generate.h"
#include "step/tokens.h"

const char help_generate[] =
    "usage: tally generate --model FOLDER [--prompt TEXT] [options]\n"
    "\n"
    "Continues a text. FOLDER is a run's folder (its newest checkpoint; --step and --best select another), one of\n"
    "its checkpoints, a Hugging Face folder, or a GGUF file (`tally export`). The tokenizer is the one in the folder;\n"
    "without one, models with 256 tokens read and write bytes, and others need the prompt as token ids\n"
    "(--ids) and print ids. Keys and values are cached. On a terminal, and in the text of --json, \"?\" stands for\n"
    "bytes that are not printable UTF-8; a file or a pipe gets the model's bytes unchanged.\n"
    "\n"
    "  --model FOLDER     (or --checkpoint FOLDER) the model\n"
    "  --prompt TEXT      the text to continue (default: the run's prompt)\n"
    "  --ids N,N,...      the prompt as token ids\n"
    "  --tokenizer PATH   bytes, or a tokenizer's file or folder, instead of the model's own\n"
    "  --tokens N         tokens to generate (default 200, at most 10 million); Ctrl-C prints those made so far\n"
    "  --temperature X    below 1: more likely tokens; above 1: more surprising ones; 0: always the most likely\n"
    "                     (default 0.8)\n"
    "  --top-k N          sample from the N most likely tokens (default 0: all)\n"
    "  --top-p X          sample from the most likely tokens with total probability X (default 1: all)\n"
    "  --min-p X          sample from tokens with at least X times the likeliest one's probability (default 0: all)\n"
    "  --repetition-penalty X   above 1: tokens that the text has already become less likely, as in transformers\n"
    "  --stop TEXT        end before this text, wherever it appears in what is generated; may be given 16 times\n"
    "  --seed N           seed of the random numbers (default 1): the same seed gives the same text\n"
    "  --step N, --best   another checkpoint of the run\n"
    "  --speed            print the speed of prefill and decoding on stderr, and what the memory's bandwidth allows, "
    "if\n"
    "                     `tally calibrate` has measured it; --json has the same numbers\n"
    "  --device cpu|cuda  --threads N   --json\n"
    "\n"
    "Text is printed as it comes, in whole characters.\n"
    "\n"
    "examples:\n"
    "  tally generate --model runs/first --prompt \"Once upon a time\"\n"
    "  tally generate --model runs/first/final --temperature 0.5 --top-p 0.9 --tokens 500 --seed 7\n"
    "  tally generate --model ~/gpt2 --ids 464,3290 --tokens 20 --temperature 0 --json\n";

enum { MOST_TOKENS = 10000000 };

struct request {
    struct trained_flags model;
    const char *prompt, *ids, *tokenizer;
    int64_t tokens, top_k, seed;
    double temperature, top_p, min_p, repetition_penalty;
    struct texts stops;
    bool shows_speed;
};

static int request_read(struct request *r, int argc, char **argv) {
    const struct option table[] = {
        {"--prompt", OPTION_TEXT, &r->prompt, 0, 0, false},
        {"--ids", OPTION_TEXT, &r->ids, 0, 0, false},
        {"--tokenizer", OPTION_TEXT, &r->tokenizer, 0, 0, false},
        {"--tokens", OPTION_INTEGER, &r->tokens, 1, MOST_TOKENS, false},
        {"--temperature", OPTION_NUMBER, &r->temperature, 0, 100, false},
        {"--top-k", OPTION_INTEGER, &r->top_k, 0, 1e9, false},
        {"--top-p", OPTION_NUMBER, &r->top_p, 1e-9, 1, false},
        {"--min-p", OPTION_NUMBER, &r->min_p, 0, 0.999999, false},
        {"--repetition-penalty", OPTION_NUMBER, &r->repetition_penalty, 0, 1000, true},
        {"--stop", OPTION_TEXTS, &r->stops, 0, 0, false},
        {"--speed", OPTION_FLAG, &r->shows_speed, 0, 0, false},
        {"--seed", OPTION_INTEGER, &r->seed, 0, 9e15, false},
        {0},
    };
    *r = (struct request){.tokens = 200, .temperature = 0.8, .top_p = 1, .repetition_penalty = 1, .seed = 1};
    int code = trained_flags_read(&r->model, "generate", "--model", table, argc, argv);
    if (code || !r->ids || !r->prompt) return code;
    fprintf(stderr, "tally generate: give --prompt or --ids, not both\n");
    return EXIT_USAGE;
}

/* ---- The prompt as tokens, with room for what follows ---- */

static int refuse(const char *problem) { return fprintf(stderr, "tally generate: %s\n", problem), EXIT_INPUT; }

/* "464, 3290": each below the vocabulary. -1: one is not. With `ids` NULL they are only counted. */
static int64_t ids_read(const char *text, int64_t vocabulary, int64_t *ids) {
    int64_t n = 0;
    for (const char *at = text;; at++) {
        char *end;
        long long id = strtoll(at, &end, 10);
        if (end == at || id < 0 || id >= vocabulary) return -1;
        if (ids) ids[n] = id;
        n++;
        at = end + strspn(end, " ");
        if (!*at) return n;
        if (*at != ',') return -1;
    }
}

static int prompt_read(const struct request *r, const struct opened *o, tl_tokenizer *tokenizer, int64_t **ids,
                       int64_t *n_prompt) {
    const tl_model_config *c = tl_model_config_of(o->model);
    const char *text = r->prompt ? r->prompt : o->settings.prompt;
    int64_t *prompt = NULL;
    if (!r->ids && !tokenizer)
        return refuse("this model has no tokenizer, and its tokens are no bytes: give --tokenizer PATH, or the prompt "
                      "as numbers of tokens (--ids 464,3290)");
    if (r->ids) *n_prompt = ids_read(r->ids, c->vocabulary, NULL);
    else if (!tokens_of_prompt(tokenizer, text, !o->is_run, &prompt, n_prompt)) return cli_error_of("generate");
    if (*n_prompt < 1) return refuse("--ids: need numbers of tokens with commas between, each below the vocabulary");
    *ids = memory_new((size_t)(*n_prompt + r->tokens) * sizeof **ids);
    if (*ids) memset(*ids, 0, (size_t)(*n_prompt + r->tokens) * sizeof **ids);
    if (*ids && r->ids) ids_read(r->ids, c->vocabulary, *ids);
    else if (*ids) memcpy(*ids, prompt, (size_t)*n_prompt * sizeof **ids);
    memory_free(prompt);
    return *ids ? 0 : (refuse("out of memory for the text"), EXIT_MEMORY);
}

/* ---- The text as it comes ---- */

struct speech {
    const struct request *request;
    tl_tokenizer *tokenizer; /* NULL: ids are printed at the end */
    tl_decoder *decoder;
    struct tokens_words words;  /* the prompt and what follows */
    size_t n_prompt, n_printed; /* bytes */
    bool is_raw, is_streamed;   /* bytes as they are; printed as they come */
    bool is_failed, is_ended;   /* by a stop string */
    double began_s, prefill_s;
    int64_t n_tokens;
    tl_device *device;
    tl_ledger *ledger; /* of the tokens after the first */
};

static bool print_to(struct speech *s, size_t end) {
    const char *text = s->words.text + s->n_printed;
    size_t n = end > s->n_printed ? end - s->n_printed : 0;
    s->n_printed += n;
    if (!n || !s->is_streamed) return true;
    if (s->is_raw) return output_bytes(text, n);
    return fwrite(text, 1, n, stdout) == n && fflush(stdout) == 0;
}

/* Where the first stop string begins in what was generated, from byte `from` on; -1: nowhere. */
static int64_t stop_find(const struct speech *s, size_t from) {
    int64_t first = -1;
    for (int i = 0; i < s->request->stops.n; i++) {
        const char *stop = s->request->stops.at[i];
        size_t n = strlen(stop), before = n < from - s->n_prompt ? n : from - s->n_prompt;
        const char *at = n ? memmem(s->words.text + from - before, s->words.n - from + before, stop, n) : NULL;
        if (at && (first < 0 || at - s->words.text < first)) first = at - s->words.text;
    }
    return first;
}

/* How many of the last bytes may be the beginning of a stop string: they are not printed yet. */
static size_t stop_begun(const struct speech *s) {
    size_t most = 0;
    for (int i = 0; i < s->request->stops.n; i++) {
        const char *stop = s->request->stops.at[i];
        size_t n = strlen(stop), room = s->words.n - s->n_prompt;
        for (size_t k = n ? n - 1 : 0; k > most; k--)
            if (k <= room && !memcmp(s->words.text + s->words.n - k, stop, k)) most = k;
    }
    return most;
}

/* What was added from byte `from` on: cleaned, searched for stop strings, printed. */
static bool words_take(struct speech *s, size_t from) {
    if (!s->is_raw) tokens_clean(s->words.text + from, s->words.n - from);
    int64_t stop = stop_find(s, from);
    if (stop >= 0) {
        s->words.n = (size_t)stop;
        s->words.text[stop] = 0;
        s->is_ended = true;
    }
    return print_to(s, s->words.n - (stop < 0 ? stop_begun(s) : 0));
}

static bool token_take(void *context, int64_t id) {
    struct speech *s = context;
    if (s->n_tokens++ == 0) {
        s->prefill_s = now_s() - s->began_s;
        s->ledger = tl_ledger_begin("decode");
    }
    if (!s->tokenizer) return true;
    size_t from = s->words.n;
    s->is_failed = !tokens_add(&s->words, s->tokenizer, s->decoder, id) || !words_take(s, from);
    return !s->is_failed && !s->is_ended;
}

static bool speech_begin(struct speech *s, const int64_t *ids, int64_t n_prompt) {
    s->is_raw = !s->request->model.is_json && !output_is_terminal();
    s->is_streamed = !s->request->model.is_json;
    if (!s->tokenizer) return true;
    s->decoder = tl_decoder_new(s->tokenizer, false);
    bool ok = s->decoder != NULL;
    for (int64_t i = 0; ok && i < n_prompt; i++) ok = tokens_add(&s->words, s->tokenizer, s->decoder, ids[i]);
    if (ok && !s->is_raw) tokens_clean(s->words.text, s->words.n);
    s->n_prompt = s->words.n;
    return ok && print_to(s, s->words.n);
}

static bool speech_end(struct speech *s) {
    if (!s->tokenizer) return true;
    size_t from = s->words.n;
    bool ok = s->is_ended || (tokens_end(&s->words, s->decoder) && words_take(s, from));
    ok = ok && print_to(s, s->words.n);
    if (!s->is_streamed) return ok;
    return ok && (s->is_raw ? output_bytes("\n", 1) : putchar('\n') != EOF);
}

/* ---- Speed ---- */

struct speed {
    double prefill_s, decode_s;    /* decode: of the tokens after the first */
    double n_decoded, token_bytes; /* bytes that a token's pass reads and writes, by the ledger */
    double bandwidth;              /* measured; 0: there is no profile */
};

static struct speed speed_of(struct speech *s, double seconds) {
    struct speed v = {
        .prefill_s = s->prefill_s, .decode_s = seconds - s->prefill_s, .n_decoded = (double)s->n_tokens - 1};
    struct machine profile;
    char why[200];
    if (!s->ledger || !tl_ledger_end(s->ledger) || v.n_decoded < 1) return v;
    tl_totals all = tl_ledger_total(s->ledger, TL_ALL, NULL);
    v.token_bytes = (tl_count_value(all.bytes_read) + tl_count_value(all.bytes_written)) / v.n_decoded;
    if (machine_find(&profile, s->device, why)) {
        v.bandwidth = machine_bandwidth_of(&profile, v.token_bytes);
        machine_free(&profile);
    }
    return v;
}

static double decode_rate(const struct speed *v) { return v->decode_s > 0 ? v->n_decoded / v->decode_s : 0; }
static double decode_bound(const struct speed *v) { return v->token_bytes > 0 ? v->bandwidth / v->token_bytes : 0; }

static void speed_print(const struct speed *v, int64_t n_prompt) {
    char bytes[32];
    fprintf(stderr, "prefill  %" PRId64 " tokens in %.3f s, %.0f tokens/s\n", n_prompt, v->prefill_s,
            (double)n_prompt / v->prefill_s);
    if (v->n_decoded < 1) return;
    fprintf(stderr, "decode   %.0f tokens in %.3f s, %.1f tokens/s; %s per token", v->n_decoded, v->decode_s,
            decode_rate(v), bytes_text(v->token_bytes, bytes));
    if (v->bandwidth > 0)
        fprintf(stderr, ": %.1f %% of the %.1f tokens/s that %.1f GB/s allow\n", 100 * decode_rate(v) / decode_bound(v),
                decode_bound(v), 1e-9 * v->bandwidth);
    else fprintf(stderr, " (`tally calibrate` measures the bandwidth that bounds it)\n");
}

/* ---- The answer ---- */

static bool put(json_t *to, const char *name, json_t *value) { return json_object_set_new(to, name, value) == 0; }

static bool print_json(const int64_t *ids, int64_t n_prompt, int64_t n, const struct speech *s, const struct opened *o,
                       const struct speed *v) {
    json_t *tokens = json_array(), *root = json_object();
    double seconds = v->prefill_s + v->decode_s;
    bool ok = tokens && root;
    for (int64_t i = n_prompt; ok && i < n; i++) ok = json_array_append_new(tokens, json_integer(ids[i])) == 0;
    if (s->tokenizer) ok = ok && put(root, "text", json_string(s->words.text));
    if (o->is_run) ok = ok && put(root, "step", json_integer(o->step));
    ok = ok && put(root, "prompt_tokens", json_integer(n_prompt)) && put(root, "tokens", json_incref(tokens)) &&
         put(root, "seed", json_integer(s->request->seed)) && put(root, "stopped", json_boolean(s->is_ended)) &&
         put(root, "seconds", json_real(seconds)) &&
         put(root, "tokens_per_s", json_real((double)(n - n_prompt) / (seconds > 0 ? seconds : 1))) &&
         put(root, "prefill_s", json_real(v->prefill_s)) &&
         put(root, "decode_tokens_per_s", json_real(decode_rate(v))) &&
         put(root, "decode_bytes_per_token", json_real(v->token_bytes));
    if (v->bandwidth > 0) ok = ok && put(root, "decode_bound_tokens_per_s", json_real(decode_bound(v)));
    char *line = ok ? json_print(root, JSON_PRESERVE_ORDER) : NULL;
    if (line) puts(line);
    free(line);
    json_decref(tokens);
    json_decref(root);
    return line != NULL;
}

static int answer(struct speech *s, const int64_t *ids, int64_t n_prompt, int64_t n, const struct opened *o,
                  double seconds) {
    struct speed speed = speed_of(s, seconds);
    bool ok = speech_end(s);
    if (!ok) return tl_error() == TL_OK ? EXIT_IO : cli_error_of("generate");
    if (s->request->model.is_json && !print_json(ids, n_prompt, n, s, o, &speed))
        return fprintf(stderr, "tally generate: out of memory for the answer\n"), EXIT_MEMORY;
    for (int64_t i = n_prompt; !s->tokenizer && s->is_streamed && i < n; i++)
        printf("%" PRId64 "%s", ids[i], i + 1 < n ? "," : "\n");
    if (s->request->shows_speed) speed_print(&speed, n_prompt);
    return 0;
}

static int generate(const struct request *r, struct opened *o, tl_tokenizer *tokenizer, tl_device *device) {
    int64_t *ids = NULL, n_prompt = 0, n_done = 0;
    int code = prompt_read(r, o, tokenizer, &ids, &n_prompt);
    if (code) return code;
    int64_t n = n_prompt + r->tokens;
    interrupt_catch();
    const tl_generate_options options = {r->temperature, r->top_k, r->top_p, r->min_p, r->repetition_penalty};
    struct speech s = {.request = r, .tokenizer = tokenizer, .device = device};
    const struct generate_listener listener = {&is_interrupted, token_take, &s};
    tl_seed((uint64_t)r->seed);
    tl_scope scope = tl_scope_begin();
    tl_tensor *text = tl_from_data(ids, TL_SHAPE(1, n), TL_I64, device);
    bool ok = text && speech_begin(&s, ids, n_prompt);
    s.began_s = now_s();
    ok = ok && generate_until(o->model, text, n_prompt, &options, &listener, &n_done) && !s.is_failed;
    double seconds = now_s() - s.began_s;
    ok = ok && tl_to_data(text, ids, (size_t)n * sizeof *ids);
    ok = tl_scope_end(scope) && ok;
    code = ok ? answer(&s, ids, n_prompt, n_done, o, seconds) : tl_error() == TL_OK ? EXIT_IO : cli_error();
    if (!code && n_done < n && !s.is_ended) {
        fprintf(stderr, "tally generate: stopped after %" PRId64 " of %" PRId64 " tokens\n", n_done - n_prompt,
                r->tokens);
        code = EXIT_STOPPED;
    }
    tl_ledger_free(s.ledger);
    tl_decoder_free(s.decoder);
    memory_free(s.words.text);
    memory_free(ids);
    return code;
}

int cmd_generate(int argc, char **argv) {
    struct request r;
    struct opened o;
    tl_device *device;
    int code = request_read(&r, argc, argv);
    if (code || (code = trained_open(&r.model, &o, &device))) return code;
    tl_tokenizer *tokenizer = NULL;
    bool needs_none = r.ids && !r.tokenizer && !o.is_bytes; /* ids in, ids out */
    code = needs_none || opened_tokenizer(&o, r.tokenizer, &tokenizer) ? generate(&r, &o, tokenizer, device)
                                                                       : cli_error_of("generate");
    tl_tokenizer_free(tokenizer);
    opened_close(&o);
    return code;
}

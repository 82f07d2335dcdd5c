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
    "  --seed N           seed of the random numbers (default 1): the same seed gives the same text\n"
    "  --step N, --best   another checkpoint of the run\n"
    "  --device cpu|cuda  --threads N   --json\n"
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
    double temperature, top_p;
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
        {"--seed", OPTION_INTEGER, &r->seed, 0, 9e15, false},
        {0},
    };
    *r = (struct request){.tokens = 200, .temperature = 0.8, .top_p = 1, .seed = 1};
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

/* ---- The answer ---- */

static bool print_json(const int64_t *ids, int64_t n_prompt, int64_t n, const char *text, const struct opened *o,
                       const struct request *r, double seconds) {
    json_t *tokens = json_array(), *root = json_object();
    bool ok = tokens && root;
    for (int64_t i = n_prompt; ok && i < n; i++) ok = json_array_append_new(tokens, json_integer(ids[i])) == 0;
    if (text) ok = ok && json_object_set_new(root, "text", json_string(text)) == 0;
    if (o->is_run) ok = ok && json_object_set_new(root, "step", json_integer(o->step)) == 0;
    ok =
        ok && json_object_set_new(root, "prompt_tokens", json_integer(n_prompt)) == 0 &&
        json_object_set(root, "tokens", tokens) == 0 && json_object_set_new(root, "seed", json_integer(r->seed)) == 0 &&
        json_object_set_new(root, "seconds", json_real(seconds)) == 0 &&
        json_object_set_new(root, "tokens_per_s", json_real((double)(n - n_prompt) / (seconds > 0 ? seconds : 1))) == 0;
    char *line = ok ? json_print(root, JSON_PRESERVE_ORDER) : NULL;
    if (line) puts(line);
    free(line);
    json_decref(tokens);
    json_decref(root);
    return line != NULL;
}

/* Output to a program or a file: every byte as the model made it. */
static int bytes_print(tl_tokenizer *tokenizer, const int64_t *ids, int64_t n) {
    size_t bytes;
    char *text = tokens_bytes(tokenizer, ids, n, &bytes);
    if (!text) return cli_error_of("generate");
    bool ok = output_bytes(text, bytes) && output_bytes("\n", 1);
    memory_free(text);
    return ok ? 0 : EXIT_IO;
}

static int print(const int64_t *ids, int64_t n_prompt, int64_t n, const struct opened *o, tl_tokenizer *tokenizer,
                 const struct request *r, double seconds) {
    if (tokenizer && !r->model.is_json && !output_is_terminal()) return bytes_print(tokenizer, ids, n);
    char *text = tokenizer ? tokens_text(tokenizer, ids, n) : NULL;
    if (tokenizer && !text) return cli_error();
    bool ok = true;
    if (r->model.is_json) ok = print_json(ids, n_prompt, n, text, o, r, seconds);
    else if (text) puts(text);
    else
        for (int64_t i = n_prompt; i < n; i++) printf("%" PRId64 "%s", ids[i], i + 1 < n ? "," : "\n");
    memory_free(text);
    return ok ? 0 : (fprintf(stderr, "tally generate: out of memory for the answer\n"), EXIT_MEMORY);
}

static int generate(const struct request *r, struct opened *o, tl_tokenizer *tokenizer, tl_device *device) {
    int64_t *ids = NULL, n_prompt = 0;
    int code = prompt_read(r, o, tokenizer, &ids, &n_prompt);
    if (code) return code;
    int64_t n = n_prompt + r->tokens, n_done = 0;
    interrupt_catch();
    const tl_generate_options options = {r->temperature, r->top_k, r->top_p};
    double began = now_s();
    tl_seed((uint64_t)r->seed);
    tl_scope scope = tl_scope_begin();
    tl_tensor *text = tl_from_data(ids, TL_SHAPE(1, n), TL_I64, device);
    bool ok = text && generate_until(o->model, text, n_prompt, &options, &is_interrupted, &n_done) &&
              tl_to_data(text, ids, (size_t)n * sizeof *ids);
    ok = tl_scope_end(scope) && ok;
    code = ok ? print(ids, n_prompt, n_done, o, tokenizer, r, now_s() - began) : cli_error();
    if (!code && n_done < n) {
        fprintf(stderr, "tally generate: stopped after %" PRId64 " of %" PRId64 " tokens\n", n_done - n_prompt,
                r->tokens);
        code = EXIT_STOPPED;
    }
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

/* cmd_eval.c: `tally eval`: how well a model predicts a text. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/trained_options.h"
#include "train/identity.h"
#include "train/measure.h"
#include "step/source.h"

const char help_eval[] =
    "usage: tally eval --checkpoint FOLDER [--data FILE] [options]\n"
    "\n"
    "Computes the loss of a model on every token of a text or token file: nats per token, perplexity and bits per\n"
    "byte. FOLDER is a run's folder (its newest checkpoint; --step and --best select another), one of its\n"
    "checkpoints, or a Hugging Face folder with config.json and model.safetensors. Without --data, a run is\n"
    "evaluated on its held-out data; it is an error if that has changed since training.\n"
    "\n"
    "  --checkpoint FOLDER  (or --model FOLDER) the model\n"
    "  --data FILE          text, or tokens in any format of `tally data`\n"
    "  --batch N            sequences at once (default: the run's, else 8); affects the result only by rounding\n"
    "  --seq N              tokens per sequence (default: the run's, else the model's context); each starts with an\n"
    "                       empty context\n"
    "  --batches N          stop after N full batches (default: all of the data)\n"
    "  --tokenizer PATH     bytes, or a tokenizer's file or folder, instead of the model's own: texts are tokenized\n"
    "                       with it, and it says how many bytes tokens represent\n"
    "  --bytes N            bytes of text that the tokens represent, if the tokenizer is not known\n"
    "  --step N, --best     another checkpoint of the run\n"
    "  --device cpu|cuda    --threads N   --json\n"
    "\n"
    "examples:\n"
    "  tally eval --checkpoint runs/first\n"
    "  tally eval --checkpoint runs/first --best --data other.txt --json\n"
    "  tally eval --model runs/first/final --data other.txt --seq 128\n";

struct request {
    struct trained_flags model;
    const char *data, *tokenizer;
    int64_t batch, seq, batches, bytes;
};

static int request_read(struct request *r, int argc, char **argv) {
    const struct option table[] = {
        {"--data", OPTION_TEXT, &r->data, 0, 0, false},
        {"--tokenizer", OPTION_TEXT, &r->tokenizer, 0, 0, false},
        {"--batch", OPTION_INTEGER, &r->batch, 1, 1e9, false},
        {"--seq", OPTION_INTEGER, &r->seq, 1, 1e9, false},
        {"--batches", OPTION_INTEGER, &r->batches, 1, 1e15, false},
        {"--bytes", OPTION_INTEGER, &r->bytes, 1, 1e15, false},
        {0},
    };
    *r = (struct request){0};
    return trained_flags_read(&r->model, "eval", "--checkpoint", table, argc, argv);
}

/* The part that is measured: a whole file, or what the run held out. */
__attribute__((noinline)) static bool part_open(const struct request *r, struct opened *o, struct source *source,
                                                struct source_part *part) {
    int64_t vocabulary = tl_model_config_of(o->model)->vocabulary;
    struct settings s = o->settings;
    opened_tokenizer_name(o, s.tokenizer); /* the copy in its folder, wherever the original is now */
    if (r->tokenizer && !settings_set(&s, "tokenizer", r->tokenizer)) return false;
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
    *part = r->data ? source->train : source->held_out;
    if (part->last) return true;
    fprintf(stderr, "tally eval: --data is required: this run has no held-out data\n");
    return false;
}

static void print_text(const struct request *r, const struct opened *o, const struct measured *m, int64_t bytes) {
    printf("%s", r->model.folder);
    if (o->is_run) printf(", step %" PRId64, o->step);
    printf(": %" PRId64 " tokens in %.1f s (%.0f tokens/s)\n", m->n_tokens, m->seconds,
           m->seconds > 0 ? (double)m->n_tokens / m->seconds : 0);
    printf("  loss           %.6f nats per token\n", m->loss);
    printf("  perplexity     %.4f\n", exp(m->loss));
    if (bytes) printf("  bits per byte  %.6f\n", m->loss * (double)m->n_tokens / (double)bytes / log(2));
    else
        printf("  bits per byte  unknown (give --tokenizer PATH, or --bytes N, the bytes of text that the tokens "
               "represent)\n");
}

static void print_json(const struct opened *o, const struct measured *m, int64_t bytes) {
    printf("{\"loss\": %.9g, \"perplexity\": %.9g, ", m->loss, exp(m->loss));
    if (bytes) printf("\"bits_per_byte\": %.9g, ", m->loss * (double)m->n_tokens / (double)bytes / log(2));
    if (o->is_run) printf("\"step\": %" PRId64 ", ", o->step);
    printf("\"tokens\": %" PRId64 ", \"seconds\": %.3f}\n", m->n_tokens, m->seconds);
}

static int evaluate(const struct request *r, struct opened *o) {
    struct source source = {0};
    struct source_part part;
    struct measured m;
    const tl_model_config *c = tl_model_config_of(o->model);
    int64_t batch = r->batch ? r->batch : o->is_run ? o->settings.batch : 8;
    int64_t seq = r->seq ? r->seq : o->is_run ? o->settings.seq : c->context;
    if (!part_open(r, o, &source, &part)) {
        source_close(&source);
        return tl_error() == TL_OK ? EXIT_USAGE : cli_error();
    }
    if (seq > c->context) {
        fprintf(stderr, "tally eval: --seq %" PRId64 " exceeds the model's context of %" PRId64 "\n", seq, c->context);
        source_close(&source);
        return EXIT_INPUT;
    }
    int64_t bytes = 0;
    bool ok = measure(o->model, &part, batch, seq, r->batches, &m) &&
              source_bytes(&source, &part, part.last - part.first - 1, m.n_tokens, &bytes);
    source_close(&source);
    if (!ok) return cli_error();
    if (r->bytes) bytes = r->bytes;
    if (r->model.is_json) print_json(o, &m, bytes);
    else print_text(r, o, &m, bytes);
    return 0;
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

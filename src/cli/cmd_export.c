/* cmd_export.c: `tally export`: a trained model as a file for other programs. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "train/open.h"
#include "train/tokenizer_files.h"

const char help_export[] =
    "usage: tally export FOLDER --out FILE.gguf [--type f32|f16|bf16|q8_0] [options]\n"
    "       tally export FOLDER --format huggingface --out FOLDER [--type f32|f16|bf16] [options]\n"
    "\n"
    "Writes a model for other programs. FOLDER is a run's folder (its newest checkpoint; --step and --best select\n"
    "another), one of its checkpoints, a Hugging Face folder, a folder of PEFT's whose base is here, or a GGUF file.\n"
    "An adapter is merged into the weights.\n"
    "\n"
    "A GGUF file is for llama.cpp: of GPT-2, Llama, Mistral, OLMo 2, Qwen 2 and Qwen 3 models. Matrices get the type\n"
    "that is asked for; vectors and learned positions stay f32, and matrices whose rows are not multiples of 32 are\n"
    "f16 instead of q8_0.\n"
    "A Hugging Face folder has config.json, model.safetensors and the tokenizer's files, of every family.\n"
    "\n"
    "  --out PATH         the file or folder to write; existing files are replaced\n"
    "  --type TYPE        f32, f16, bf16 or q8_0 (default f16; huggingface: as it is opened, no q8_0)\n"
    "  --format FORMAT    gguf (default) or huggingface\n"
    "  --tokenizer PATH   the tokenizer: a file or folder as for `tally train`, `bytes`, or `none` (llama.cpp then\n"
    "                     takes and gives ids). Default: the one in FOLDER; bytes for a model with 256 tokens\n"
    "  --pre NAME         llama.cpp's name of the rule that cuts text into words (tokenizer.ggml.pre), if Tally does\n"
    "                     not know it\n"
    "  --step N, --best   another checkpoint of the run\n"
    "\n"
    "examples:\n"
    "  tally export runs/first --type q8_0 --out first.gguf\n"
    "  tally export runs/tuned --format huggingface --type bf16 --out tuned\n"
    "  tally export ~/gpt2 --type f16 --tokenizer ~/gpt2/vocab.json --out gpt2.gguf\n";

struct request {
    const char *folder, *out, *format, *type, *tokenizer, *pre;
    int64_t step;
    bool is_best;
};

static int refuse(const char *problem) { return fprintf(stderr, "tally export: %s\n", problem), EXIT_INPUT; }

static int request_read(struct request *r, int argc, char **argv) {
    *r = (struct request){.format = "gguf", .step = STEP_NEWEST};
    const struct option table[] = {
        {"--out", OPTION_TEXT, &r->out, 0, 0, false},      {"--format", OPTION_TEXT, &r->format, 0, 0, false},
        {"--type", OPTION_TEXT, &r->type, 0, 0, false},    {"--tokenizer", OPTION_TEXT, &r->tokenizer, 0, 0, false},
        {"--pre", OPTION_TEXT, &r->pre, 0, 0, false},      {"--step", OPTION_INTEGER, &r->step, 0, 1e15, false},
        {"--best", OPTION_FLAG, &r->is_best, 0, 0, false}, {0}};
    static const struct option_rule rules[] = {{"export", "--step", OPTION_BESIDE, "--best"},
                                               {NULL, NULL, OPTION_BESIDE, NULL}};
    int code = options_read_ruled("export", table, rules, argc, argv, &r->folder, 1);
    if (code) return code;
    if (r->is_best) r->step = STEP_BEST;
    if (r->folder && r->out) return 0;
    fprintf(stderr, "tally export: %s is required (see `tally export --help`)\n", r->folder ? "--out" : "FOLDER");
    return EXIT_USAGE;
}

static bool is_folder(const struct request *r) { return !strcmp(r->format, "huggingface"); }

static int type_read(const struct request *r, tl_gguf_type *type) {
    static const char *const types[] = {
        [TL_GGUF_F32] = "f32", [TL_GGUF_F16] = "f16", [TL_GGUF_BF16] = "bf16", [TL_GGUF_Q8_0] = "q8_0"};
    const int n = is_folder(r) ? TL_GGUF_Q8_0 : TL_GGUF_Q8_0 + 1;
    *type = TL_GGUF_F16;
    if (strcmp(r->format, "gguf") && !is_folder(r)) {
        fprintf(stderr, "tally export: --format is \"%s\" (need gguf or huggingface)\n", r->format);
        return EXIT_INPUT;
    }
    for (int i = 0; r->type && i < n; i++)
        if (!strcmp(types[i], r->type)) return *type = (tl_gguf_type)i, 0;
    if (!r->type) return 0;
    fprintf(stderr, "tally export: --type is \"%s\" (need f32, f16%s)\n", r->type,
            is_folder(r) ? " or bf16" : ", bf16 or q8_0");
    return EXIT_INPUT;
}

/* The tokenizer that belongs to the model; *tokenizer is NULL if there is to be none. */
static int tokenizer_find(const struct request *r, const struct opened *o, tl_tokenizer **tokenizer) {
    *tokenizer = NULL;
    if (r->tokenizer && !strcmp(r->tokenizer, "none")) return 0;
    if (!opened_tokenizer(o, r->tokenizer, tokenizer)) return cli_error();
    if (*tokenizer) return 0;
    return refuse("there is no tokenizer in the folder: give one with --tokenizer PATH, or --tokenizer none");
}

static int export_model(const struct request *r, struct opened *o, tl_gguf_type type) {
    tl_tokenizer *tokenizer;
    char text[32];
    struct stat status;
    int code = tokenizer_find(r, o, &tokenizer);
    if (code) return code;
    bool ok = tl_model_export_gguf(o->model, r->out, type, tokenizer, r->pre);
    tl_tokenizer_free(tokenizer);
    if (!ok) return cli_error();
    if (stat(r->out, &status) == 0) printf("%s: %s\n", r->out, bytes_text((double)status.st_size, text));
    return 0;
}

/* The tokenizer's files, as a run keeps them. */
static bool tokenizer_write(const struct request *r, const struct opened *o, tl_tokenizer *tokenizer) {
    static struct tokenizer_files files; /* large, and once in a process */
    static struct settings s;
    s = settings_default();
    if (r->tokenizer) text_copy(s.tokenizer, sizeof s.tokenizer, r->tokenizer);
    else opened_tokenizer_name(o, s.tokenizer);
    if (!tokenizer) return true;
    struct file_folder *folder = file_folder_open(r->out);
    bool ok = folder && tokenizer_files_read(&files, &s, tokenizer) && tokenizer_files_put(&files, folder);
    tokenizer_files_free(&files);
    file_folder_close(folder);
    return ok;
}

static int export_folder(const struct request *r, struct opened *o, tl_gguf_type type) {
    static const tl_dtype dtypes[] = {[TL_GGUF_F32] = TL_F32, [TL_GGUF_F16] = TL_F16, [TL_GGUF_BF16] = TL_BF16};
    tl_tokenizer *tokenizer = NULL;
    bool has_tokenizer = !r->tokenizer || strcmp(r->tokenizer, "none") != 0;
    if (has_tokenizer && !opened_tokenizer(o, r->tokenizer, &tokenizer)) return cli_error();
    bool ok = (!r->type || opened_cast(o, dtypes[type])) && tl_model_save(o->model, r->out) &&
              tokenizer_write(r, o, tokenizer);
    tl_tokenizer_free(tokenizer);
    if (!ok) return cli_error();
    printf("%s: %lld parameters\n", r->out, (long long)tl_module_parameters(o->model));
    return 0;
}

int cmd_export(int argc, char **argv) {
    struct request r;
    static struct opened o; /* large, and once in a process */
    tl_gguf_type type;
    int code = request_read(&r, argc, argv);
    if (code || (code = type_read(&r, &type))) return code;
    tl_device *device = tl_device_find("cpu");
    if (!device || !opened_open(&o, r.folder, r.step, device)) return cli_error();
    code = tl_model_merge_adapter(o.model) ? (is_folder(&r) ? export_folder : export_model)(&r, &o, type) : cli_error();
    opened_close(&o);
    return code;
}

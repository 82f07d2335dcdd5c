#include "cli/near.h"

#include <stddef.h>
#include <string.h>

bool near_same(const char *a, const char *b) {
    for (;; a++, b++) {
        char x = *a == '_' ? '-' : *a == '=' ? 0 : *a, y = *b == '_' ? '-' : *b == '=' ? 0 : *b;
        if (x != y) return false;
        if (!x) return true;
    }
}

/* Names of the same thing elsewhere: PyTorch, transformers, nanoGPT, Megatron, llama.cpp. A row counts where the
 * command has the option on its left. */
static const char *const options[][2] = {
    {"--lr", "--learning-rate"},
    {"--lr", "--max-lr"},
    {"--batch", "--batch-size"},
    {"--batch", "--micro-batch-size"},
    {"--batch", "--per-device-train-batch-size"},
    {"--batch", "--bs"},
    {"--steps", "--max-steps"},
    {"--steps", "--max-iters"},
    {"--steps", "--train-iters"},
    {"--steps", "--num-steps"},
    {"--steps", "--iterations"},
    {"--seq", "--seq-len"},
    {"--seq", "--seq-length"},
    {"--seq", "--sequence-length"},
    {"--seq", "--block-size"},
    {"--seq", "--max-length"},
    {"--seq", "--max-seq-len"},
    {"--context", "--context-length"},
    {"--context", "--max-position-embeddings"},
    {"--accum", "--gradient-accumulation-steps"},
    {"--accum", "--grad-accum"},
    {"--out", "--output"},
    {"--out", "--output-dir"},
    {"--out", "--out-dir"},
    {"--out", "--save-dir"},
    {"--data", "--dataset"},
    {"--data", "--train-data"},
    {"--data", "--train-file"},
    {"--data", "--input"},
    {"--data", "--text"},
    {"--val-data", "--eval-data"},
    {"--val-data", "--validation-file"},
    {"--layers", "--n-layer"},
    {"--layers", "--num-layers"},
    {"--layers", "--num-hidden-layers"},
    {"--channels", "--hidden-size"},
    {"--channels", "--n-embd"},
    {"--channels", "--d-model"},
    {"--channels", "--dim"},
    {"--heads", "--n-head"},
    {"--heads", "--num-heads"},
    {"--heads", "--num-attention-heads"},
    {"--ff", "--intermediate-size"},
    {"--vocabulary", "--vocab-size"},
    {"--vocabulary", "--vocab"},
    {"--recipe", "--precision"},
    {"--recipe", "--dtype"},
    {"--recipe", "--bf16"},
    {"--recipe", "--fp16"},
    {"--recipe", "--amp"},
    {"--schedule", "--lr-scheduler"},
    {"--schedule", "--lr-scheduler-type"},
    {"--warmup", "--warmup-steps"},
    {"--warmup", "--warmup-iters"},
    {"--clip", "--grad-clip"},
    {"--clip", "--max-grad-norm"},
    {"--clip", "--clip-grad"},
    {"--weight-decay", "--wd"},
    {"--beta1", "--adam-beta1"},
    {"--beta2", "--adam-beta2"},
    {"--optimizer", "--optim"},
    {"--eval-every", "--eval-interval"},
    {"--eval-every", "--eval-steps"},
    {"--log-every", "--log-interval"},
    {"--log-every", "--logging-steps"},
    {"--save-every", "--save-steps"},
    {"--save-every", "--save-interval"},
    {"--save-every", "--checkpoint-every"},
    {"--checkpointing", "--gradient-checkpointing"},
    {"--checkpointing", "--activation-checkpointing"},
    {"--devices", "--gpus"},
    {"--devices", "--num-gpus"},
    {"--devices", "--n-gpus"},
    {"--devices", "--world-size"},
    {"--tp", "--tensor-parallel-size"},
    {"--tp", "--tensor-model-parallel-size"},
    {"--pp", "--pipeline-parallel-size"},
    {"--shard", "--fsdp"},
    {"--shard", "--zero"},
    {"--device", "--gpu"},
    {"--device", "--cuda"},
    {"--device", "--cpu"},
    {"--device", "--chip"},
    {"--model", "--model-name"},
    {"--model", "--model-name-or-path"},
    {"--model", "--arch"},
    {"--model", "--ckpt"},
    {"--model", "--weights"},
    {"--model", "--run"},
    {"--tokens", "--max-new-tokens"},
    {"--tokens", "--max-tokens"},
    {"--tokens", "--n-predict"},
    {"--tokens", "--length"},
    {"--temperature", "--temp"},
    {"--samples", "--num-samples"},
    {"--samples", "--num-return-sequences"},
    {"--prompts", "--prompt-file"},
    {"--prompts", "--file"},
    {"--interactive", "--chat"},
    {"--vocabulary", "--size"},
    {"--threads", "--num-threads"},
    {"--threads", "--n-threads"},
    {"--quiet", "--silent"},
    {"--price", "--dry-run"},
    {"--price", "--estimate"},
    {"--memory-limit", "--max-memory"},
};

/* Things that are done another way. */
static const struct {
    const char *command, *flag, *words;
} others[] = {
    {"train", "--epochs",
     "give --steps N; an epoch is the data's tokens / (batch x seq x accum) steps, and `tally train "
     "--price` shows how many epochs the steps are"},
    {"train", "--num-epochs", "give --steps N; `tally train --price` shows how many epochs the steps are"},
    {"train", "--num-train-epochs", "give --steps N; `tally train --price` shows how many epochs the steps are"},
    {"train", "--resume", "a run resumes by itself: run the same command with the same --out again"},
    {"train", "--resume-from-checkpoint", "a run resumes by itself: run the same command with the same --out again"},
    {"train", "--continue", "a run resumes by itself: run the same command with the same --out again"},
    {"train", "--init-from", "give --model FOLDER, a folder with config.json and weights, to start from them"},
    {"train", "--overwrite", "give another --out, or delete the run's folder, to start again"},
    {"train", "--wandb", "`tensorboard --logdir OUT` shows a run; log.jsonl in its folder has every step"},
    {"train", "--tensorboard", "every run writes TensorBoard's events: `tensorboard --logdir OUT` shows them"},
    {"train", "--report-to", "every run writes TensorBoard's events: `tensorboard --logdir OUT` shows them"},
    {"train", "--num-workers", "data is read ahead without it; --threads N sets the CPU threads"},
    {"train", "--compile", "there is nothing to compile; --fast true uses faster kernels that are not deterministic"},
    {"train", "--nproc-per-node", "`tally launch -n N -- tally train ...` starts N processes"},
    {"train", "--devices", "`tally launch -n N -- tally train ...` starts N processes, each with a GPU of its own"},
    {"train", "--gpus", "`tally launch -n N -- tally train ...` starts N processes, each with a GPU of its own"},
    {"train", "--num-gpus", "`tally launch -n N -- tally train ...` starts N processes, each with a GPU of its own"},
    {"plan", "--epochs", "give --tokens D, the tokens of the whole run: 300B, 15T"},
    {"plan", "--budget", "`tally fit model --money X` finds the largest model for a budget"},
};

const char *near_option(const char *command, const char *flag, const char *const *names, int n, const char **words) {
    *words = NULL;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(others[i].command, command) && near_same(others[i].flag, flag))
            return *words = others[i].words, NULL;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        for (int k = 0; k < n && near_same(options[i][1], flag); k++)
            if (near_same(names[k], options[i][0])) return options[i][0];
    return NULL;
}

const char *near_command(const char *name) {
    static const char *const commands[][2] = {
        {"train", "fit-model"},
        {"train", "finetune"},
        {"train", "run"},
        {"train", "pretrain"},
        {"train", "training"},
        {"train", "start"},
        {"train", "resume"},
        {"eval", "evaluate"},
        {"eval", "test"},
        {"eval", "validate"},
        {"eval", "perplexity"},
        {"generate", "sample"},
        {"generate", "chat"},
        {"generate", "infer"},
        {"generate", "inference"},
        {"generate", "complete"},
        {"plan", "price"},
        {"plan", "estimate"},
        {"plan", "memory"},
        {"plan", "cost"},
        {"devices", "gpus"},
        {"devices", "hardware"},
        {"devices", "chips"},
        {"calibrate", "benchmark"},
        {"calibrate", "bench"},
        {"calibrate", "measure"},
        {"inspect", "show"},
        {"inspect", "cat"},
        {"runs", "list"},
        {"runs", "ls"},
        {"runs", "status"},
        {"runs", "logs"},
        {"export", "convert"},
        {"export", "quantize"},
        {"launch", "torchrun"},
        {"launch", "mpirun"},
        {"tokenize", "encode"},
        {"tokenizer", "bpe"},
        {"data", "dataset"},
        {"data", "prepare"},
        {"train --models", "models"},
        {"train --settings", "settings"},
        {"train --settings", "config"},
        {"--version", "version"},
        {"--version", "-v"},
        {"--version", "-V"},
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(commands[i][1], name)) return commands[i][0];
    return NULL;
}

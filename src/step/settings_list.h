/* settings_list.h: every setting of a run, one row each, and the only place where one is named. The struct, the JSON file,
 * the flags, --help, the checks, the copy in the run's folder and what may change when a run resumes all come from it.
 *
 *   INTEGER(name, role, default, least, most, "help")      REAL(name, role, default, least, most, "help")
 *   TEXT(name, role, "default", "help")                    CHOICE(name, role, "default", "one|two", "help")
 *   TRUTH(name, role, default, "help")                     GROUP("title") begins a part of --help
 *
 * Roles, when a run resumes:
 *   IDENTITY   the result of training depends on it: another value is an error
 *   CONTENTS   it names something whose contents are compared (identity.h): a file may move, but its bytes may not change
 *   LENGTH     the number of steps: may change; the remaining steps have the learning rate of the new number
 *   PRICED     may change; the rest of the run is priced again
 *   FREE       may change
 *   ONCE       applies to one call and is never part of a run
 */
GROUP("Model and data")
TEXT(model, CONTENTS, "nano", "a preset (`tally train --models` lists them), a config.json, or a folder with one and its weights")
INTEGER(layers, CONTENTS, 0, 0, 4096, "layers instead of the model's own; 0: its own, as in the next rows")
INTEGER(channels, CONTENTS, 0, 0, 1099511627776, "channels; the head size stays, and the MLP's width follows unless it is given")
INTEGER(heads, CONTENTS, 0, 0, 1099511627776, "heads; the head size is then channels / heads")
INTEGER(kv_heads, CONTENTS, 0, 0, 1099511627776, "heads for keys and values")
INTEGER(ff, CONTENTS, 0, 0, 1099511627776, "inner width of the MLP")
INTEGER(vocabulary, CONTENTS, 0, 0, 1099511627776, "size of the vocabulary")
INTEGER(context, CONTENTS, 0, 0, 1099511627776, "longest sequence; GPT-2 has one row of parameters per position")
TEXT(data, CONTENTS, "builtin", "a text or token file, or builtin: generated stories with a known entropy")
TEXT(tokenizer, CONTENTS, "", "of texts: bytes, chars (the characters of data), train:N (BPE with N tokens, learnt from data), or a tokenizer's file or folder; default: the one in the model's folder, otherwise bytes. The vocabulary of a preset follows from it")
INTEGER(stories, IDENTITY, 0, 0, 1099511627776, "builtin: bytes of stories; 0: enough that no story is seen twice, 256 KiB to 64 MiB. A resumed run keeps its stories")
TEXT(val_data, CONTENTS, "", "held-out data; by default the last val_share of data")
REAL(val_share, IDENTITY, 0.05, 0, 0.9, "share of data that is held out if there is no val_data")
TRUTH(document_mask, IDENTITY, false, "keep attention inside documents, and start positions again in each: a window of several documents trains them as if each had a row of its own. Documents are those that the token file records, or begin at document_token")
INTEGER(document_token, IDENTITY, -1, -1, 2147483647, "document_mask: a document begins at each token of this id; -1: where the token file says, and in the built-in stories at the end of each line")
TEXT(out, FREE, "runs/first", "the run's folder")
TRUTH(accept_changes, ONCE, false, "resume even if data, model or settings have changed since the start; the log records the changes")
TEXT(device, IDENTITY, "cpu", "cpu, or cuda")
CHOICE(recipe, IDENTITY, "fp32", "fp32|amp|bf16|bf16-lean|fp16|fp8|fp4", "precision of parameters, gradients, moments and products")
CHOICE(matmul_precision, IDENTITY, "highest", "highest|high", "precision of f32 products; high: each number as two bf16 numbers, where that is faster")
TRUTH(fast, IDENTITY, false, "faster kernels that are not deterministic (cuda: the gradient of attention; products by the fastest algorithm); the summary says so")

GROUP("Length")
INTEGER(steps, LENGTH, 1900, 1, 1000000000000, "optimizer steps in total; a resumed run may have another number above the steps already done")
INTEGER(batch, IDENTITY, 2, 1, 1000000000, "sequences in a micro-batch, over all processes")
INTEGER(seq, IDENTITY, 512, 1, 1000000000, "tokens in a sequence")
INTEGER(accum, IDENTITY, 1, 1, 1000000, "micro-batches in a step; their gradients are averaged")

GROUP("Optimizer")
CHOICE(optimizer, IDENTITY, "adamw", "adamw|adam|sgd|adagrad|rmsprop", "update rule, as PyTorch defines it")
REAL(lr, IDENTITY, 4e-3, 0, 1e6, "peak learning rate")
CHOICE(schedule, IDENTITY, "cosine", "cosine|linear|constant|wsd|inverse-sqrt", "learning-rate schedule after warm-up")
INTEGER(warmup, IDENTITY, -1, -1, 1000000000000, "warm-up steps, in which the learning rate rises from 0; -1: a fifth of all steps")
REAL(min_lr, IDENTITY, 0.01, 0, 1, "final learning rate as a share of its peak")
REAL(decay_share, IDENTITY, 0.2, 0, 1, "wsd: share of the steps in which the learning rate decays")
REAL(beta1, IDENTITY, 0.7, 0, 1, "Adam's and AdamW's first decay")
REAL(beta2, IDENTITY, 0.95, 0, 1, "Adam's and AdamW's second decay; RMSprop's alpha")
REAL(eps, IDENTITY, 1e-8, 0, 1, "added to the square root in the denominator")
REAL(momentum, IDENTITY, 0, 0, 1, "sgd, rmsprop")
TRUTH(nesterov, IDENTITY, false, "sgd: Nesterov's momentum")
REAL(weight_decay, IDENTITY, 0.1, 0, 1e6, "on matrices only")
REAL(clip, IDENTITY, 1, 0, 1e9, "largest global norm of the gradient; 0: no clipping")
CHOICE(on_nonfinite, FREE, "stop", "stop|skip|rollback", "if the loss or a gradient is not finite; it never reaches the weights")

GROUP("Memory")
CHOICE(checkpointing, IDENTITY, "none", "none|every-k|sqrt|full|nothing|selective", "activation checkpointing: which activations are recomputed in backward")
INTEGER(checkpoint_k, IDENTITY, 2, 1, 100000, "every-k: layers per group")
REAL(dropout, IDENTITY, 0, 0, 0.99, "dropout probability, of embeddings, attention weights and what each sub-layer adds")
TEXT(memory_limit, PRICED, "", "limit of the device's memory pool: 2GiB, 800MB; default: the device's memory")

GROUP("Several processes (docs/processes.md)")
INTEGER(dp, PRICED, 0, 0, 1000000, "ranks that divide each micro-batch; 0: as many as were started, after the other axes")
INTEGER(tp, PRICED, 1, 1, 4096, "ranks that divide the matrices of each layer")
INTEGER(cp, PRICED, 1, 1, 4096, "ranks that divide each sequence")
INTEGER(pp, PRICED, 1, 1, 4096, "ranks that divide the layers: the stages of a pipeline, which takes the accum micro-batches of a step through them")
TRUTH(sp, PRICED, false, "tp: also divide what is between the matrices, along the sequence")
CHOICE(shard, PRICED, "none", "none|zero1|zero2|zero3", "what each rank of dp keeps only a part of: zero1 the optimizer's state, zero2 also gradients, zero3 also parameters")
INTEGER(shard_group, PRICED, 0, 0, 1000000, "shard: ranks that divide these among them, such as those of a machine; every such group keeps all of it, and gradients are summed first inside, then across groups. 0: all ranks of dp and cp")
TRUTH(overlap, PRICED, true, "exchange gradients and parameters while others are computed; false: before and after. The result is the same")

GROUP("Random seeds: one for everything, or one per use (-1: from seed)")
INTEGER(seed, IDENTITY, 1, 0, 9007199254740991, "everything")
INTEGER(seed_init, IDENTITY, -1, -1, 9007199254740991, "initial weights")
INTEGER(seed_data, IDENTITY, -1, -1, 9007199254740991, "order of the data")
INTEGER(seed_dropout, IDENTITY, -1, -1, 9007199254740991, "dropout and stochastic rounding")
INTEGER(seed_sample, IDENTITY, -1, -1, 9007199254740991, "sampled text")
CHOICE(sampling, IDENTITY, "epochs", "epochs|random", "epochs: each token once per epoch; random: any offset, as nanoGPT does")

GROUP("Evaluation, samples, logs and checkpoints")
INTEGER(eval_every, PRICED, 300, 0, 1000000000000, "steps between evaluations on held-out data; 0: only at the end")
INTEGER(eval_batches, PRICED, 32, 1, 1000000000, "batches per evaluation")
INTEGER(sample_every, PRICED, 0, 0, 1000000000000, "steps between samples of text; 0: only at the end")
INTEGER(sample_tokens, PRICED, 200, 0, 10000, "length of a sample; 0: none")
REAL(temperature, PRICED, 0.8, 0, 100, "sampling temperature; 0: always the most likely token")
INTEGER(top_k, PRICED, 0, 0, 1000000000, "sample from the k most likely tokens; 0: all")
REAL(top_p, PRICED, 1, 1e-9, 1, "sample from the most likely tokens with this total probability; 1: all")
TEXT(prompt, PRICED, "Once upon a time", "the beginning of samples")
INTEGER(log_every, FREE, 1, 1, 1000000000000, "steps between lines of the log")
INTEGER(save_every, PRICED, 600, 0, 1000000000000, "steps between checkpoints; 0: only at the end")
TRUTH(save_best, FREE, true, "also save whenever the held-out loss reaches a new minimum")
INTEGER(keep, FREE, 2, 1, 1000000, "number of newest checkpoints to keep, besides the best one")
INTEGER(threads, FREE, 0, 0, 4096, "CPU threads; 0: as many as there are cores")
REAL(peak, FREE, 0, 0, 1e30, "the machine's peak in FLOP/s, for utilisation (MFU); 0: from the stored profile, if there is one")

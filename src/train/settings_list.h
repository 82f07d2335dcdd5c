/* settings_list.h: every setting of a run, one row each: the only place where one is named. From it come the struct, the JSON
 * file, the flags, --help, the checks, the copy in the run's folder, and what may change when a run resumes.
 *
 *   INTEGER(name, role, default, least, most, "help")      REAL(name, role, default, least, most, "help")
 *   TEXT(name, role, "default", "help")                    CHOICE(name, role, "default", "one|two", "help")
 *   TRUTH(name, role, default, "help")                     GROUP("title") begins a part of --help
 *
 * Roles, when a run resumes:
 *   IDENTITY   what is learnt depends on it: another value is refused
 *   CONTENTS   it names something whose contents are compared (identity.h): a file may move, its bytes may not change
 *   LENGTH     the number of steps: may change; the learning rate of the steps to come is that of the new number
 *   PRICED     may change; the rest of the run is priced again
 *   FREE       may change
 *   ONCE       holds for one call and is never part of a run
 */
GROUP("What is trained")
TEXT(model, CONTENTS, "nano", "a preset (`tally train --models` lists them), a config.json, or a folder with one and its weights")
INTEGER(layers, CONTENTS, 0, 0, 4096, "layers in place of the model's own; 0: its own, as in the next rows")
INTEGER(channels, CONTENTS, 0, 0, 1099511627776, "channels; heads of the same size and the inner width of the MLP follow unless they are given")
INTEGER(heads, CONTENTS, 0, 0, 1099511627776, "heads; their size is then channels / heads")
INTEGER(kv_heads, CONTENTS, 0, 0, 1099511627776, "heads of keys and values")
INTEGER(ff, CONTENTS, 0, 0, 1099511627776, "inner width of the MLP")
INTEGER(vocabulary, CONTENTS, 0, 0, 1099511627776, "tokens that the model knows")
INTEGER(context, CONTENTS, 0, 0, 1099511627776, "longest sequence; GPT-2 has a parameter row for each place")
TEXT(data, CONTENTS, "builtin", "a text or token file, or builtin: stories from our own grammar, whose entropy is known")
INTEGER(stories, IDENTITY, 0, 0, 1099511627776, "builtin: bytes of stories; 0: enough that a run of these steps sees none twice, 256 KiB to 64 MiB. A run keeps what it began with")
TEXT(val_data, CONTENTS, "", "held-out data; without it the last val_share of data is held out")
REAL(val_share, IDENTITY, 0.05, 0, 0.9, "share of data that is held out when there is no val_data")
TEXT(out, FREE, "runs/first", "the run's folder: settings, price, receipt, log, checkpoints")
TRUTH(accept_changes, ONCE, false, "go on although data, model or settings are not those that the run was started with; the log says which")
TEXT(device, IDENTITY, "cpu", "cpu, or cuda")
CHOICE(recipe, IDENTITY, "fp32", "fp32|amp|bf16|bf16-lean|fp16|fp8|fp4", "precision of parameters, gradients, moments and products")
CHOICE(matmul_precision, IDENTITY, "highest", "highest|high", "of f32 products; high: each number as two of bf16, where that is faster")
TRUTH(fast, IDENTITY, false, "kernels that are faster and give other last bits each time (cuda: the gradient of attention; algorithms of products, chosen by a clock); the summary says so")

GROUP("How much")
INTEGER(steps, LENGTH, 1900, 1, 1000000000000, "optimizer steps in all; a run that resumes may be given more, or fewer than that but more than are done")
INTEGER(batch, IDENTITY, 2, 1, 1000000000, "sequences in a micro-batch")
INTEGER(seq, IDENTITY, 512, 1, 1000000000, "tokens in a sequence")
INTEGER(accum, IDENTITY, 1, 1, 1000000, "micro-batches in a step; their gradients are averaged")

GROUP("Optimizer")
CHOICE(optimizer, IDENTITY, "adamw", "adamw|adam|sgd|adagrad|rmsprop", "update rule, as PyTorch defines it")
REAL(lr, IDENTITY, 4e-3, 0, 1e6, "learning rate at its peak")
CHOICE(schedule, IDENTITY, "cosine", "cosine|linear|constant|wsd|inverse-sqrt", "how the learning rate falls after warm-up")
INTEGER(warmup, IDENTITY, -1, -1, 1000000000000, "steps over which the learning rate rises from 0; -1: a fifth of them")
REAL(min_lr, IDENTITY, 0.01, 0, 1, "where the learning rate ends, as a share of its peak")
REAL(decay_share, IDENTITY, 0.2, 0, 1, "wsd: share of the steps in which it falls")
REAL(beta1, IDENTITY, 0.7, 0, 1, "Adam's and AdamW's first decay")
REAL(beta2, IDENTITY, 0.95, 0, 1, "Adam's and AdamW's second decay; RMSprop's alpha")
REAL(eps, IDENTITY, 1e-8, 0, 1, "what is added to the root")
REAL(momentum, IDENTITY, 0, 0, 1, "sgd, rmsprop")
TRUTH(nesterov, IDENTITY, false, "sgd: Nesterov's momentum")
REAL(weight_decay, IDENTITY, 0.1, 0, 1e6, "on matrices only")
REAL(clip, IDENTITY, 1, 0, 1e9, "largest global norm of the gradient; 0: no clipping")
CHOICE(on_nonfinite, FREE, "stop", "stop|skip|rollback", "when loss or gradient is not finite; it never reaches the weights")

GROUP("Memory")
CHOICE(checkpointing, IDENTITY, "none", "none|every-k|sqrt|full|nothing|selective", "which activations are computed again in backward")
INTEGER(checkpoint_k, IDENTITY, 2, 1, 100000, "every-k: layers in a group")
REAL(dropout, IDENTITY, 0, 0, 0.99, "share of activations that are dropped")
TEXT(memory_limit, PRICED, "", "most that the device's pool may reserve: 2GiB, 800MB; without it what the device has")

GROUP("Randomness: one seed, or one per use (-1: from seed)")
INTEGER(seed, IDENTITY, 1, 0, 9007199254740991, "of everything")
INTEGER(seed_init, IDENTITY, -1, -1, 9007199254740991, "of the first weights")
INTEGER(seed_data, IDENTITY, -1, -1, 9007199254740991, "of the data's order")
INTEGER(seed_dropout, IDENTITY, -1, -1, 9007199254740991, "of dropout and stochastic rounding")
INTEGER(seed_sample, IDENTITY, -1, -1, 9007199254740991, "of sampled text")
CHOICE(sampling, IDENTITY, "epochs", "epochs|random", "epochs: each token once per epoch; random: any offset, as nanoGPT does")

GROUP("Looking and keeping")
INTEGER(eval_every, PRICED, 300, 0, 1000000000000, "steps between evaluations on held-out data; 0: only at the end")
INTEGER(eval_batches, PRICED, 32, 1, 1000000000, "batches of an evaluation")
INTEGER(sample_every, PRICED, 0, 0, 1000000000000, "steps between samples of text; 0: only at the end")
INTEGER(sample_tokens, PRICED, 200, 0, 100000, "length of a sample; 0: none")
REAL(temperature, PRICED, 0.8, 0, 100, "of sampling; 0 takes the likeliest")
INTEGER(top_k, PRICED, 0, 0, 1000000000, "sample among the k likeliest; 0: all")
REAL(top_p, PRICED, 1, 1e-9, 1, "sample among the likeliest that have this share together; 1: all")
TEXT(prompt, PRICED, "Once upon a time", "where samples begin")
INTEGER(log_every, FREE, 1, 1, 1000000000000, "steps between lines of the log")
INTEGER(save_every, PRICED, 600, 0, 1000000000000, "steps between checkpoints; 0: only at the end")
TRUTH(save_best, FREE, true, "save when held-out loss is lower than ever before, at whatever step")
INTEGER(keep, FREE, 2, 1, 1000000, "newest checkpoints that are kept; the best one too")
INTEGER(threads, FREE, 0, 0, 4096, "threads of the cpu; 0: as many as it has")
REAL(peak, FREE, 0, 0, 1e30, "FLOP/s that the machine can do at most, for utilisation (MFU); 0: the kept profile's, if there is one")

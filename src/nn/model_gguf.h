/* model_gguf.h: models in GGUF files: the names, layouts and metadata that llama.cpp expects. */
#ifndef NN_MODEL_GGUF_H
#define NN_MODEL_GGUF_H

#include "file/gguf.h"
#include "tally.h"

/* The config of the model in a file, for the architectures of model_gguf.c. Nothing is trusted: numbers are
 * checked as those of a config.json, and the file must have as many as the model takes. `path` is for messages. False:
 * recorded. */
bool model_gguf_config(const tl_gguf *file, const char *path, tl_model_config *config);
/* Copies the file's tensors into a model of that config. False: recorded. */
bool model_gguf_load(tl_module *model, tl_gguf *file, const char *path);

/* The vocabulary of a tokenizer as `tokenizer.ggml.*`, for a model with `vocabulary` tokens; ids without a token are
 * filled up. `pre` names llama.cpp's rule for cutting text into words; NULL: by the tokenizer's pattern. False:
 * recorded. */
bool gguf_put_tokenizer(tl_gguf_writer *w, const tl_tokenizer *t, int64_t vocabulary, const char *pre);

#endif

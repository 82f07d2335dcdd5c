/* tokenizer_and_model.c: a tokenizer and a model of one's own. Learns byte-level BPE from a text, trains a small
 * transformer on its tokens, and lets it write.
 *
 *     cc tokenizer_and_model.c -o own $(pkg-config --cflags --libs tally) && ./own [STEPS]
 *
 * prints, by default after 30 steps,
 *
 *     266 tokens; the text of 1840 bytes is 800 of them
 *     loss before: 5.8; after: 0.1
 *     one and two and three.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tally.h>

enum { REPEATS = 80, TIME = 16, BATCH = 8, GENERATED = 8 };

static tl_tokenizer *learn(const char *text) {
    tl_bpe_options options = tl_bpe_defaults();
    options.vocabulary = 266;
    tl_bpe *bpe = tl_bpe_new(&options);
    tl_bpe_add(bpe, text, strlen(text));
    tl_tokenizer *tokenizer = tl_bpe_train(bpe);
    tl_bpe_free(bpe);
    return tokenizer;
}

/* One step on rows that begin at random places of the text; the loss. */
static double step(tl_module *model, tl_optimizer *optimizer, tl_tensor *ids) {
    tl_scope scope = tl_scope_begin();
    tl_tensor *rows[BATCH];
    for (int i = 0; i < BATCH; i++) {
        int64_t at = tl_item_int(tl_integers(TL_SHAPE(1), 0, tl_shape(ids)[0] - TIME, TL_I64, NULL));
        rows[i] = tl_slice(ids, 0, at, at + TIME + 1, 1);
    }
    tl_tensor *batch = tl_stack(rows, BATCH, 0); /* (B,T+1) */
    tl_tensor *tokens = tl_contiguous(tl_slice(batch, 1, 0, TIME, 1));
    tl_tensor *targets = tl_contiguous(tl_slice(batch, 1, 1, TIME + 1, 1)); /* the token behind each */
    tl_tensor *loss = tl_model_loss(model, tokens, targets);
    tl_backward(loss, NULL, 0);
    tl_optimizer_step(optimizer, 1, NULL);
    tl_module_zero_grad(model, false);
    double value = tl_item(loss);
    tl_scope_end(scope);
    return value;
}

/* The prompt and what the model, always taking the most likely token, puts behind it. */
static void write_on(tl_module *model, tl_tokenizer *tokenizer, const char *prompt) {
    tl_scope scope = tl_scope_begin();
    tl_encoding begin = {0};
    size_t bytes = strlen(prompt), length;
    tl_tokenizer_encode(tokenizer, &prompt, &bytes, 1, NULL, &begin);
    const int64_t n = begin.count + GENERATED;
    int32_t *ids = calloc((size_t)n, sizeof *ids);
    memcpy(ids, begin.ids, (size_t)begin.count * sizeof *ids);
    tl_tensor *text = tl_cast(tl_from_data(ids, TL_SHAPE(1, n), TL_I32, NULL), TL_I64);
    tl_generate_options options = tl_generate_defaults();
    options.temperature = 0;
    tl_generate(model, text, begin.count, &options);
    tl_to_data(tl_cast(text, TL_I32), ids, (size_t)n * sizeof *ids);
    char *written = tl_tokenizer_decode(tokenizer, ids, n, true, &length);
    printf("%s\n", written);
    free(written);
    free(ids);
    tl_encoding_free(&begin);
    tl_scope_end(scope);
}

int main(int argc, char **argv) {
    const int n_steps = argc > 1 ? atoi(argv[1]) : 30;
    const char *sentence = "one and two and three. ";
    char text[REPEATS * 32] = "";
    for (int i = 0; i < REPEATS; i++) strcat(text, sentence);
    const char *texts[] = {text};
    const size_t bytes = strlen(text);

    tl_scope scope = tl_scope_begin();
    tl_tokenizer *tokenizer = learn(text);
    tl_encoding encoding = {0};
    tl_tokenizer_encode(tokenizer, texts, &bytes, 1, NULL, &encoding);
    printf("%lld tokens; the text of %zu bytes is %lld of them\n", (long long)tl_tokenizer_size(tokenizer), bytes,
           (long long)encoding.count);
    tl_tensor *ids = tl_cast(tl_from_data(encoding.ids, TL_SHAPE(encoding.count), TL_I32, NULL), TL_I64);

    tl_seed(1);
    tl_model_config config;
    tl_model_preset("tiny", &config); /* a small llama */
    config.n_layers = 2;
    config.vocabulary = tl_tokenizer_size(tokenizer);
    tl_module *model = tl_model_new(&config, TL_F32, NULL);
    tl_optimizer *optimizer = tl_optimizer_new(TL_ADAMW);
    tl_optimizer_options options = tl_optimizer_defaults(TL_ADAMW);
    options.lr = 0.01;
    int n;
    const tl_named_tensor *list = tl_module_list(model, &n);
    for (int i = 0; i < n; i++)
        if (!list[i].is_buffer) tl_optimizer_add(optimizer, list[i].name, list[i].tensor, &options);

    double first = step(model, optimizer, ids), last = first;
    for (int i = 1; i < n_steps; i++) last = step(model, optimizer, ids);
    printf("loss before: %.1f; after: %.1f\n", first, last);
    write_on(model, tokenizer, "one");

    tl_optimizer_free(optimizer);
    tl_module_free(model);
    tl_encoding_free(&encoding);
    tl_tokenizer_free(tokenizer);
    tl_scope_end(scope);
    return 0;
}

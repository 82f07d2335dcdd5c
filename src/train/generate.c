#include "train/generate.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "nn/model.h"
#include "train/trainer.h"

/* logits (1,V) -> the next token (1,1) i64 */
static tl_tensor *draw(tl_tensor *logits, double temperature, int64_t top_k) {
    tl_tensor *x = tl_cast(logits, TL_F32), *values, *indices;
    if (temperature == 0) return tl_argmax(x, (int[]){1}, 1, true);
    if (top_k > 0 && x && top_k < tl_size(x, 1)) {
        if (!tl_topk(x, top_k, 1, true, &values, &indices)) return NULL;
        tl_tensor *least = tl_slice(values, 1, top_k - 1, top_k, 1); /* (1,1) */
        x = tl_masked_fill(x, tl_cmp(x, TL_LT, least), -INFINITY);
    }
    return tl_multinomial(tl_softmax(tl_scale(x, 1 / temperature)), 1, true);
}

static bool next(tl_module *model, tl_tensor *text, int64_t n, double temperature, int64_t top_k) {
    int64_t context = tl_model_config_of(model)->context, from = n > context ? n - context : 0;
    tl_scope scope = tl_scope_begin();
    tl_tensor *seen = tl_slice(text, 1, from, n, 1), *place = tl_slice(text, 1, n, n + 1, 1);
    tl_tensor *token = draw(model_next(model, seen), temperature, top_k);
    bool ok = token && tl_copy_(place, token);
    return scope.depth && tl_scope_end(scope) && ok;
}

bool generate(tl_module *model, tl_tensor *text, int64_t n_prompt, double temperature, int64_t top_k) {
    bool was_training = tl_module_is_training(model), grad = tl_grad_mode(false), ok = true;
    tl_module_train(model, false);
    for (int64_t n = n_prompt; ok && n < tl_size(text, 1); n++) ok = next(model, text, n, temperature, top_k);
    tl_module_train(model, was_training);
    tl_grad_mode(grad);
    return ok;
}

bool trainer_sample(struct trainer *t) {
    tl_generator before = tl_generator_get();
    tl_dtype autocast = tl_autocast(t->recipe->autocast);
    tl_generator_set(t->dice);
    bool ok = generate(t->model, t->text, t->n_prompt, t->settings.temperature, t->settings.top_k);
    t->dice = tl_generator_get();
    tl_generator_set(before);
    tl_autocast(autocast);
    return ok;
}

/* Bytes as text: what is no UTF-8, and control characters but line ends, become "?". */
static char *text_of(const int64_t *ids, int64_t n) {
    char *text = memory_new((size_t)n + 1);
    if (!text) {
        error_memory((size_t)n, "sampled text");
        return NULL;
    }
    for (int64_t i = 0; i < n; i++) text[i] = ids[i] > 0 && ids[i] < 256 ? (char)ids[i] : '?';
    text[n] = 0;
    for (char *at = text; *at;) {
        uint32_t code;
        int length = text_character(at, &code);
        bool is_control = (unsigned char)*at < ' ' && *at != '\n';
        if (length == 0 || is_control) *at++ = '?';
        else at += length;
    }
    return text;
}

char *trainer_read_text(struct trainer *t) {
    int64_t n = tl_size(t->text, 1);
    int64_t *ids = memory_new((size_t)n * sizeof *ids);
    if (!ids) {
        error_memory((size_t)n * sizeof *ids, "sampled text");
        return NULL;
    }
    char *text = tl_to_data(t->text, ids, (size_t)n * sizeof *ids) ? text_of(ids, n) : NULL;
    memory_free(ids);
    return text;
}

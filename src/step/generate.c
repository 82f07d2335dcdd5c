/* generate.c: text generation, token by token; each costs a pass of one token over a cache. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "nn/kv_cache.h"
#include "nn/model.h"
#include "step/generate.h"
#include "step/tokens.h"
#include "step/trainer.h"

tl_generate_options tl_generate_defaults(void) {
    return (tl_generate_options){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
}

/* values (B,k), falling, already divided by the temperature: those after the first ones that reach top_p together
 * become -inf. The likeliest always stays. */
static tl_tensor *nucleus(tl_tensor *values, double top_p) {
    tl_tensor *p = tl_softmax(values, -1);
    tl_tensor *before = tl_sub(tl_cumsum(p, 1), p); /* the sum of those before it */
    return tl_masked_fill(values, tl_cmp_scalar(before, TL_GE, tl_scalar_float(top_p)), -INFINITY);
}

/* values (B,k), divided by the temperature: those of less than min_p of the likeliest one's probability become -inf.
 * p < min_p max(p) is v < max(v) + ln(min_p). */
static tl_tensor *likely(tl_tensor *values, double min_p) {
    tl_tensor *behind = tl_sub(values, tl_max(values, (int[]){1}, 1, true));
    return tl_masked_fill(values, tl_cmp_scalar(behind, TL_LT, tl_scalar_float(log(min_p))), -INFINITY);
}

/* Makes the tokens of `seen` (B,n) less likely, as transformers does. */
static tl_tensor *penalize(tl_tensor *logits, tl_tensor *seen, double penalty) {
    tl_tensor *scores = tl_gather(logits, 1, seen), *up = tl_scale(scores, penalty),
              *down = tl_scale(scores, 1 / penalty);
    tl_tensor *is_negative = tl_cmp_scalar(scores, TL_LT, tl_scalar_float(0));
    return tl_scatter(logits, 1, seen, tl_where(is_negative, up, down));
}

struct request {
    tl_generate_options options;
    bool is_sketch; /* see trainer.h */
    bool is_total;  /* see generate.h */
};

/* x (B,k) -> places in it (B,1) i64. A row that is not finite has no probabilities, and a draw from it would be an
 * error that ends the run. Its softmax is all NaN, so all are taken as equal, and the position that was drawn becomes
 * 0. */
static tl_tensor *draw_from(tl_tensor *x, bool is_total) {
    tl_tensor *p = tl_softmax(x, -1);
    if (!is_total) return tl_multinomial(p, 1, true);
    tl_tensor *is_void = tl_isnan(p); /* (B,k) */
    tl_tensor *place = tl_multinomial(tl_masked_fill(p, is_void, 1), 1, true);
    return tl_masked_fill(place, is_void ? tl_slice(is_void, 1, 0, 1, 1) : NULL, 0);
}

bool generate_has_penalty(const tl_generate_options *o) {
    return o->repetition_penalty != 0 && o->repetition_penalty != 1;
}

tl_tensor *generate_draw(tl_tensor *logits, tl_tensor *seen, const tl_generate_options *o, bool is_total) {
    const bool has_penalty = generate_has_penalty(o);
    if (o->temperature == 0 && !has_penalty) return tl_argmax(logits, (int[]){1}, 1, true);
    tl_tensor *x = tl_cast(logits, TL_F32), *values, *indices;
    if (has_penalty) x = penalize(x, seen, o->repetition_penalty);
    if (o->temperature == 0) return tl_argmax(x, (int[]){1}, 1, true);
    x = tl_scale(x, 1 / o->temperature);
    bool has_k = x && o->top_k > 0 && o->top_k < tl_size(x, 1);
    if (!has_k && o->top_p >= 1) return draw_from(o->min_p > 0 ? likely(x, o->min_p) : x, is_total);
    if (!x || !tl_topk(x, has_k ? o->top_k : tl_size(x, 1), 1, true, &values, &indices)) return NULL;
    if (o->top_p < 1) values = nucleus(values, o->top_p);
    if (o->min_p > 0) values = likely(values, o->min_p);
    return tl_gather(indices, 1, draw_from(values, is_total));
}

/* Token n, from those before it. `first` is where in the text the cache begins. When the cache is full, it is
 * refilled with the last three quarters of its capacity, since a model sees at most its context. */
static bool next(tl_module *model, tl_tensor *text, int64_t n, tl_cache *cache, int64_t capacity, int64_t *first,
                 const struct request *r) {
    if (n - *first > capacity) {
        *first = n - (capacity - capacity / 4);
        if (!tl_cache_cut(cache, 0)) return false;
    }
    tl_scope scope = tl_scope_begin();
    tl_tensor *unseen = tl_slice(text, 1, *first + tl_cache_length(cache), n, 1),
              *place = tl_slice(text, 1, n, n + 1, 1);
    tl_tensor *logits = tl_model_next(model, unseen, cache);
    tl_tensor *seen = generate_has_penalty(&r->options) ? tl_slice(text, 1, 0, n, 1) : NULL;
    tl_tensor *token = generate_draw(logits, seen, &r->options, r->is_total);
    bool ok = token && tl_copy_(place, token);
    return scope.depth && tl_scope_end(scope) && ok;
}

/* ---- Rows that have ended ---- */

/* What is known on the host of the rows of a text: the id that each has ended with, -1 for those that go on. */
struct rows {
    int64_t n, n_open, *ends, *drawn;
};

static bool rows_make(struct rows *r, int64_t n, const tl_generate_options *o) {
    *r = (struct rows){.n = n, .n_open = n};
    if (!o->n_ends) return true;
    size_t bytes = (size_t)n * sizeof *r->ends;
    r->ends = memory_new(bytes);
    r->drawn = memory_new(bytes);
    for (int64_t i = 0; r->ends && i < n; i++) r->ends[i] = -1;
    return (r->ends && r->drawn) || error_memory(2 * bytes, "rows of text");
}

static void rows_free(struct rows *r) {
    memory_free(r->ends);
    memory_free(r->drawn);
}

/* Looks at token n of every row. */
static bool rows_look(struct rows *r, tl_tensor *text, int64_t n, const tl_generate_options *o) {
    size_t bytes = (size_t)r->n * sizeof *r->drawn;
    bool has_ended = r->n_open < r->n; /* a row before this token: what was drawn for it does not count */
    if (!o->n_ends) return true;
    tl_scope scope = tl_scope_begin();
    tl_tensor *place = tl_slice(text, 1, n, n + 1, 1);
    bool ok = place && tl_to_data(place, r->drawn, bytes);
    for (int64_t i = 0; ok && i < r->n; i++) {
        if (r->ends[i] >= 0) r->drawn[i] = r->ends[i];
        for (int64_t k = 0; r->ends[i] < 0 && k < o->n_ends; k++)
            if (r->drawn[i] == o->ends[k]) r->ends[i] = r->drawn[i], r->n_open--;
    }
    tl_tensor *column = ok && has_ended ? tl_from_data(r->drawn, TL_SHAPE(r->n, 1), TL_I64, tl_device_of(text)) : NULL;
    if (ok && has_ended) ok = column && tl_copy_(place, column);
    return scope.depth && tl_scope_end(scope) && ok;
}

/* Fills the rows from token n on, when none is open. */
static bool rows_fill(const struct rows *r, tl_tensor *text, int64_t n) {
    int64_t N = tl_size(text, 1);
    if (r->n_open || n == N) return true;
    tl_scope scope = tl_scope_begin();
    tl_tensor *column = tl_from_data(r->ends, TL_SHAPE(r->n, 1), TL_I64, tl_device_of(text));
    tl_tensor *rest = tl_slice(text, 1, n, N, 1);
    bool ok = column && rest && tl_copy_(rest, tl_expand(column, TL_SHAPE(r->n, N - n)));
    return scope.depth && tl_scope_end(scope) && ok;
}

bool generate_options_check(const tl_generate_options *o, const char *what) {
    if (o->n_ends < 0 || (o->n_ends && !o->ends))
        return error_set(TL_ERROR_USE, "%s: %lld ends at %p (need 0 or more, and where they are)", what,
                         (long long)o->n_ends, (const void *)o->ends);
    if (!(o->min_p >= 0 && o->min_p < 1 && o->repetition_penalty >= 0 && o->repetition_penalty < INFINITY))
        return error_set(TL_ERROR_USE, "%s: min_p %g, repetition_penalty %g (need 0 to below 1, and >= 0)", what,
                         o->min_p, o->repetition_penalty);
    return (o->temperature >= 0 && o->top_k >= 0 && o->top_p > 0 && o->top_p <= 1) ||
           error_set(TL_ERROR_USE, "%s: temperature %g, top_k %lld, top_p %g (need >= 0, >= 0, and above 0 to 1)", what,
                     o->temperature, (long long)o->top_k, o->top_p);
}

static bool request_check(tl_module *model, tl_tensor *text, int64_t n_prompt, const tl_generate_options *o) {
    if (!model_speaks(model)) return false;
    if (!text || tl_rank(text) != 2 || tl_dtype_of(text) != TL_I64)
        return error_set(TL_ERROR_USE, "tl_generate: the text is not (B,N) of i64");
    if (n_prompt < 1 || n_prompt > tl_size(text, 1))
        return error_set(TL_ERROR_USE, "tl_generate: a prompt of %lld tokens in a text of %lld (need at least one)",
                         (long long)n_prompt, (long long)tl_size(text, 1));
    return generate_options_check(o, "tl_generate");
}

/* A pass over one token takes as much memory as the one before it, so a sketch runs only the first three after the
 * cache was filled, and the last. */
static bool generate(tl_module *model, tl_tensor *text, int64_t n_prompt, const struct request *r) {
    if (!request_check(model, text, n_prompt, &r->options)) return false;
    int64_t N = tl_size(text, 1), context = tl_model_config_of(model)->context, first = 0;
    int64_t capacity = N - 1 < context ? N - 1 : context, since = 0; /* nothing follows the last token */
    if (n_prompt == N) return true;
    bool was_training = tl_module_is_training(model), grad = tl_set_grad_mode(false);
    tl_module_train(model, false);
    struct rows rows;
    bool ok = rows_make(&rows, tl_size(text, 0), &r->options);
    tl_cache *cache = ok ? tl_cache_new(model, rows.n, capacity) : NULL;
    int64_t n = n_prompt;
    for (ok = cache != NULL; ok && n < N && rows.n_open; n++) {
        since = n - first > capacity ? 0 : since + 1;
        if (r->is_sketch && since > 3 && n < N - 1) cache_pretend(cache);
        else ok = next(model, text, n, cache, capacity, &first, r) && rows_look(&rows, text, n, &r->options);
    }
    ok = ok && rows_fill(&rows, text, n);
    tl_cache_free(cache);
    rows_free(&rows);
    tl_module_train(model, was_training);
    tl_set_grad_mode(grad);
    return ok;
}

bool tl_generate(tl_module *model, tl_tensor *text, int64_t n_prompt, const tl_generate_options *options) {
    const struct request r = {.options = options ? *options : tl_generate_defaults()};
    return generate(model, text, n_prompt, &r);
}

bool trainer_sample(struct trainer *t) {
    tl_generator before = tl_generator_get();
    tl_dtype autocast = tl_set_autocast(t->recipe->autocast);
    tl_generator_set(t->dice);
    const struct request r = {
        .options = {.temperature = t->settings.temperature, .top_k = t->settings.top_k, .top_p = t->settings.top_p},
        .is_sketch = t->is_sketch,
        .is_total = true};
    bool ok = trainer_average(t, true) && buckets_enter(&t->buckets) && generate(t->model, t->text, t->n_prompt, &r);
    buckets_leave(&t->buckets);
    ok = trainer_average(t, false) && ok;
    t->dice = tl_generator_get();
    tl_generator_set(before);
    tl_set_autocast(autocast);
    return ok;
}

char *trainer_read_text(struct trainer *t) {
    int64_t n = tl_size(t->text, 1);
    int64_t *ids = memory_new((size_t)n * sizeof *ids);
    if (!ids) {
        error_memory((size_t)n * sizeof *ids, "sampled text");
        return NULL;
    }
    char *text = tl_to_data(t->text, ids, (size_t)n * sizeof *ids) ? tokens_text(t->tokenizer, ids, n) : NULL;
    memory_free(ids);
    return text;
}

/* session.c: texts that grow together, each from its own prompt.
 *
 * A text has a row of the cache. Its prompt goes through the model alone, at once; from then on every step is one pass
 * over the last token of each text, so the weights are read once for all of them. Rows have their own lengths
 * (nn/kv_cache.c), their own options and their own random numbers. A text is therefore the same whatever the others
 * are, as long as the matrix product gives a row the same bits in any company (on the cpu up to GEMM_THIN_ROWS).
 *
 * On a device that runs behind the host, a step whose rows follow each other has its tokens and their places in device
 * memory, so that its calls are those of the step before: the device can queue them as one (engine/replay.h). A step
 * that takes the likeliest tokens leaves them there, and the places behind them, for the one that follows.
 *
 * When a row is full, it is refilled with the last three quarters of its capacity, as tl_generate does. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "engine/replay.h"
#include "nn/kv_cache.h"
#include "nn/model.h"
#include "nn/module.h"
#include "step/generate.h"
#include "tensor/device.h"

/* KEYS_STEP: a step attends to a multiple of so many keys, and its calls repeat until one more is needed. */
enum { MOST_ROWS = 256, KEYS_STEP = 256 };

struct text {
    bool is_open;
    int64_t *ids;
    size_t n, room;          /* tokens */
    int64_t first, n_cached; /* the cache has n_cached tokens, from token `first` on */
    tl_generate_options options;
    tl_generator generator;
    struct { /* what a step has made of it; it counts once every text has a token */
        int64_t id, first, n_cached;
        tl_generator generator;
    } next;
};

/* Rows that go through the model together. */
struct pass {
    int64_t n, rows[MOST_ROWS], n_spans;
    struct cache_span spans[MOST_ROWS];
};

/* A step's operands, in device memory from step to step. */
struct steady {
    tl_tensor *tokens, *places; /* (n_rows,1) i64; of the step that follows, once every row has taken the likeliest */
    tl_tensor *logits;          /* (n_rows,V), of a step that draws otherwise */
    struct {                    /* what the first n rows of tokens and places have */
        int64_t n, tokens[MOST_ROWS], places[MOST_ROWS];
    } known;
    struct replay replay;
};

struct tl_session {
    tl_module *model;
    tl_cache *cache;
    int64_t n_rows;
    struct text *texts;
    struct pass pass;
    struct steady steady;
    bool is_steady; /* steps may have their operands in device memory */
};

tl_session *tl_session_new(tl_module *model, int64_t rows, int64_t capacity) {
    if (!model_speaks(model)) return NULL;
    if (rows < 1 || rows > MOST_ROWS) {
        error_set(TL_ERROR_USE, "tl_session_new: %lld texts (need 1 to %d)", (long long)rows, MOST_ROWS);
        return NULL;
    }
    size_t bytes = (size_t)rows * sizeof(struct text);
    tl_session *s = memory_new(sizeof *s);
    struct text *texts = s ? memory_new(bytes) : NULL;
    if (!texts) {
        memory_free(s);
        error_memory(bytes, "texts");
        return NULL;
    }
    memset(texts, 0, bytes);
    *s = (tl_session){.model = model, .n_rows = rows, .texts = texts, .cache = tl_cache_new(model, rows, capacity)};
    if (!s->cache) return tl_session_free(s), NULL;
    session_repeat(s, device_runs_ahead(tl_device_of(s->cache->store)));
    return s;
}

void session_repeat(tl_session *s, bool is_steady) { s->is_steady = is_steady && cache_takes_places(s->model); }

void tl_session_free(tl_session *s) {
    if (!s) return;
    tl_tensor *const kept[] = {s->steady.tokens, s->steady.places, s->steady.logits};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (kept[i]) tl_drop(kept[i]);
    replay_free(&s->steady.replay);
    for (int64_t i = 0; i < s->n_rows; i++) memory_free(s->texts[i].ids);
    memory_free(s->texts);
    tl_cache_free(s->cache);
    memory_free(s);
}

static struct text *text_at(const tl_session *s, int64_t row, const char *what) {
    if (s && row >= 0 && row < s->n_rows && s->texts[row].is_open) return &s->texts[row];
    error_set(TL_ERROR_USE, "%s: there is no text in row %lld", what, (long long)row);
    return NULL;
}

static bool id_add(struct text *t, int64_t id) {
    if (!memory_grow((void **)&t->ids, &t->room, t->n, sizeof *t->ids))
        return error_memory((t->n + 1) * sizeof *t->ids, "a text");
    t->ids[t->n++] = id;
    return true;
}

static bool ids_add(const tl_session *s, struct text *t, const int64_t *ids, int64_t n) {
    int64_t vocabulary = tl_model_config_of(s->model)->vocabulary;
    size_t before = t->n;
    bool ok = true;
    for (int64_t i = 0; ok && i < n; i++) {
        ok = (ids[i] >= 0 && ids[i] < vocabulary) ||
             error_set(TL_ERROR_USE, "tl_session: token %lld of the text is %lld (need 0 to %lld)", (long long)t->n,
                       (long long)ids[i], (long long)vocabulary - 1);
        ok = ok && id_add(t, ids[i]);
    }
    if (!ok) t->n = before;
    return ok;
}

int64_t tl_session_open(tl_session *s, const int64_t *ids, int64_t n, const tl_generate_options *options,
                        uint64_t seed) {
    const tl_generate_options o = options ? *options : tl_generate_defaults();
    int64_t row = 0;
    if (!s || !ids || n < 1) return error_set(TL_ERROR_USE, "tl_session_open: a prompt needs at least one token"), -1;
    if (!generate_options_check(&o, "tl_session_open")) return -1;
    while (row < s->n_rows && s->texts[row].is_open) row++;
    if (row == s->n_rows)
        return error_set(TL_ERROR_USE, "tl_session_open: all %lld rows have a text (close one first)",
                         (long long)s->n_rows),
               -1;
    struct text *t = &s->texts[row];
    t->n = 0;
    if (!ids_add(s, t, ids, n)) return -1;
    t->first = t->n_cached = 0;
    t->options = o;
    t->generator = (tl_generator){.seed = seed};
    t->is_open = true;
    return row;
}

bool tl_session_append(tl_session *s, int64_t row, const int64_t *ids, int64_t n) {
    struct text *t = text_at(s, row, "tl_session_append");
    return t && (ids || !n || error_set(TL_ERROR_USE, "tl_session_append: got NULL")) && ids_add(s, t, ids, n);
}

bool tl_session_cut(tl_session *s, int64_t row, int64_t length) {
    struct text *t = text_at(s, row, "tl_session_cut");
    if (!t) return false;
    if (length < 1 || length > (int64_t)t->n)
        return error_set(TL_ERROR_USE, "tl_session_cut: %lld tokens of a text that has %lld (need at least one)",
                         (long long)length, (long long)t->n);
    t->n = (size_t)length;
    if (length <= t->first) t->first = t->n_cached = 0;
    else if (t->n_cached > length - 1 - t->first) t->n_cached = length - 1 - t->first; /* the last is read again */
    return true;
}

bool tl_session_close(tl_session *s, int64_t row) {
    struct text *t = text_at(s, row, "tl_session_close");
    if (t) t->is_open = false;
    return t != NULL;
}

int64_t tl_session_length(const tl_session *s, int64_t row) {
    const struct text *t = text_at(s, row, "tl_session_length");
    return t ? (int64_t)t->n : -1;
}

int64_t tl_session_seen(const tl_session *s, int64_t row) {
    const struct text *t = text_at(s, row, "tl_session_seen");
    return t ? t->n_cached : -1;
}

/* ---- A step ---- */

/* Tokens that the cache does not have: more than one in a prompt, and when a full row begins anew. */
static int64_t unseen(const struct text *t) { return (int64_t)t->n - t->next.first - t->next.n_cached; }

static void text_begin(const tl_session *s, struct text *t) {
    int64_t capacity = s->cache->capacity, n = (int64_t)t->n;
    t->next.first = t->first;
    t->next.n_cached = t->n_cached;
    t->next.generator = t->generator;
    if (n - t->first <= capacity) return;
    t->next.first = n - (capacity - capacity / 4);
    t->next.n_cached = 0;
}

/* Adds a row; one that follows the last and is as long belongs to its span. */
static void pass_add(struct pass *p, int64_t row, int64_t length) {
    struct cache_span *last = p->n_spans ? &p->spans[p->n_spans - 1] : NULL;
    if (last && last->row + last->n == row && last->length == length) last->n++;
    else p->spans[p->n_spans++] = (struct cache_span){.at = p->n, .n = 1, .row = row, .length = length};
    p->rows[p->n++] = row;
}

/* The last T tokens of the rows of a pass: (n,T) */
static tl_tensor *tokens_of(const tl_session *s, int64_t T) {
    const struct pass *p = &s->pass;
    size_t bytes = (size_t)(p->n * T) * sizeof(int64_t);
    int64_t *ids = memory_new(bytes);
    if (!ids) return error_memory(bytes, "tokens"), NULL;
    for (int64_t i = 0; i < p->n; i++) {
        const struct text *t = &s->texts[p->rows[i]];
        memcpy(ids + i * T, t->ids + ((int64_t)t->n - T), (size_t)T * sizeof *ids);
    }
    tl_tensor *x = tl_from_data(ids, TL_SHAPE(p->n, T), TL_I64, tl_device_of(s->cache->store));
    memory_free(ids);
    return x;
}

/* One row's token, with its own random numbers. logits (1,V) -> (1,1) */
static tl_tensor *draw_one(const tl_session *s, struct text *t, tl_tensor *logits) {
    tl_device *device = tl_device_of(s->cache->store);
    tl_tensor *seen = NULL;
    if (generate_has_penalty(&t->options) && !(seen = tl_from_data(t->ids, TL_SHAPE(1, (int64_t)t->n), TL_I64, device)))
        return NULL;
    tl_generator before = tl_generator_get();
    tl_generator_set(t->next.generator);
    tl_tensor *token = generate_draw(logits, seen, &t->options, false);
    t->next.generator = tl_generator_get();
    tl_generator_set(before);
    return token;
}

static bool is_plain(const tl_session *s) { /* every row takes the likeliest token: one op for all */
    bool is = true;
    for (int64_t i = 0; i < s->pass.n; i++) {
        const tl_generate_options *o = &s->texts[s->pass.rows[i]].options;
        is = is && o->temperature == 0 && !generate_has_penalty(o);
    }
    return is;
}

/* logits (n,V) -> ids of the rows of the pass */
static bool draw_all(tl_session *s, tl_tensor *logits, int64_t *ids) {
    const struct pass *p = &s->pass;
    tl_tensor *parts[MOST_ROWS];
    if (!logits) return false;
    if (is_plain(s)) parts[0] = generate_draw(logits, NULL, &s->texts[p->rows[0]].options, false);
    else
        for (int64_t i = 0; i < p->n; i++)
            if (!(parts[i] = draw_one(s, &s->texts[p->rows[i]], tl_slice(logits, 0, i, i + 1, 1)))) return false;
    tl_tensor *all = is_plain(s) || p->n == 1 ? parts[0] : tl_concat(parts, (int)p->n, 0);
    return all && tl_to_data(all, ids, (size_t)p->n * sizeof *ids);
}

/* ---- Steps that repeat ---- */

static tl_tensor *keep_empty(tl_tensor **to, const tl_session *s, int64_t columns, tl_dtype dtype) {
    if (*to) return *to;
    tl_scope scope = tl_scope_begin();
    tl_tensor *x = tl_empty(TL_SHAPE(s->n_rows, columns), dtype, tl_device_of(s->cache->store));
    if (x) *to = tl_keep(tl_set_purpose(x, TL_ACTIVATION));
    return scope.depth && tl_scope_end(scope) ? *to : NULL;
}

static tl_tensor *first_rows(tl_tensor *x, int64_t n) { return x ? tl_slice(x, 0, 0, n, 1) : NULL; }

/* What the rows of a pass have: n numbers of the host, into (n,1) on the device. */
static bool column_write(tl_tensor *to, const int64_t *numbers, int64_t n) {
    tl_tensor *from = tl_from_data(numbers, TL_SHAPE(n, 1), TL_I64, tl_device_of(to));
    return from && tl_copy_(first_rows(to, n), from);
}

/* Whether the pass is one of those that repeat: a token of each row, and rows that follow each other. */
static bool is_steady(const tl_session *s, int64_t T) {
    const struct pass *p = &s->pass;
    return T == 1 && s->is_steady && p->rows[p->n - 1] - p->rows[0] == p->n - 1;
}

static void steady_know(struct steady *steady, int64_t n, const int64_t *tokens, const int64_t *places) {
    steady->known.n = n;
    memcpy(steady->known.tokens, tokens, (size_t)n * sizeof *tokens);
    memcpy(steady->known.places, places, (size_t)n * sizeof *places);
}

static bool steady_knows(const struct steady *steady, int64_t n, const int64_t *tokens, const int64_t *places) {
    const size_t bytes = (size_t)n * sizeof *tokens;
    return n <= steady->known.n && !memcmp(tokens, steady->known.tokens, bytes) &&
           !memcmp(places, steady->known.places, bytes);
}

/* Tokens and places to the device, unless it has them; *n_keys: that the pass attends to. */
static bool steady_write(tl_session *s, int64_t *n_keys) {
    const struct pass *p = &s->pass;
    struct steady *steady = &s->steady;
    int64_t tokens[MOST_ROWS], places[MOST_ROWS], longest = 0;
    for (int64_t i = 0; i < p->n; i++) {
        const struct text *t = &s->texts[p->rows[i]];
        tokens[i] = t->ids[t->n - 1];
        places[i] = t->next.n_cached;
        if (places[i] > longest) longest = places[i];
    }
    *n_keys = (longest + KEYS_STEP) / KEYS_STEP * KEYS_STEP; /* more than longest */
    if (*n_keys > s->cache->capacity) *n_keys = s->cache->capacity;
    if (steady_knows(steady, p->n, tokens, places)) return true;
    tl_scope scope = tl_scope_begin();
    bool ok = scope.depth && keep_empty(&steady->tokens, s, 1, TL_I64) && keep_empty(&steady->places, s, 1, TL_I64) &&
              column_write(steady->tokens, tokens, p->n) && column_write(steady->places, places, p->n);
    ok = scope.depth && tl_scope_end(scope) && ok;
    steady_know(steady, ok ? p->n : 0, tokens, places);
    return ok;
}

/* Asks for the pass: into the tokens and places of the next, or into logits. */
static bool steady_ask(tl_session *s, int64_t n_keys, bool is_greedy) {
    const struct pass *p = &s->pass;
    struct steady *steady = &s->steady;
    const struct cache_span span = {.at = 0, .n = p->n, .row = p->rows[0], .length = n_keys - 1};
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    const struct cache_view view = {
        .spans = &span, .n_spans = 1, .n_rows = p->n, .place = first_rows(steady->places, p->n), .n_keys = n_keys};
    tl_tensor *tokens = first_rows(steady->tokens, p->n);
    tl_tensor *logits = view.place && tokens ? model_next_of(s->model, tokens, s->cache, &view) : NULL;
    bool ok = logits != NULL;
    if (ok && is_greedy) {
        tl_tensor *drawn = generate_draw(logits, NULL, &s->texts[p->rows[0]].options, false);
        ok = drawn && tl_copy_(tokens, drawn) && tl_add_scalar_(view.place, tl_scalar_int(1));
    } else if (ok) {
        tl_tensor *to = keep_empty(&steady->logits, s, tl_size(logits, 1), tl_dtype_of(logits));
        ok = to && tl_copy_(first_rows(to, p->n), logits);
    }
    return tl_scope_end(scope) && ok;
}

/* A step that may repeat: queued again, or asked for. Its rows, how many keys it attends to, the dtype of products and
 * whether all rows take the likeliest token decide which step it is. */
static bool steady_run(tl_session *s, bool is_greedy) {
    const struct pass *p = &s->pass;
    int64_t n_keys;
    if (!steady_write(s, &n_keys)) return false;
    tl_dtype autocast = tl_set_autocast(TL_DTYPE_COUNT);
    tl_set_autocast(autocast);
    const uint64_t key =
        (uint64_t)n_keys << 32 | (uint64_t)p->rows[0] << 20 | (uint64_t)p->n << 8 | (uint64_t)autocast << 1 | is_greedy;
    switch (replay_begin(&s->steady.replay, tl_device_of(s->cache->store), key)) {
    case REPLAY_DONE:
        return true;
    case REPLAY_ASK:
        return replay_end(&s->steady.replay, steady_ask(s, n_keys, is_greedy));
    default:
        return false;
    }
}

/* ---- Passes ---- */

/* A pass of T tokens of each row: the ids that follow. */
static bool pass_draw(tl_session *s, int64_t T, int64_t *ids) {
    const struct cache_view view = {.spans = s->pass.spans, .n_spans = s->pass.n_spans, .n_rows = s->pass.n};
    tl_tensor *tokens = tokens_of(s, T);
    return tokens && draw_all(s, model_next_of(s->model, tokens, s->cache, &view), ids);
}

/* The same of one token, where steps repeat. */
static bool steady_draw(tl_session *s, int64_t *ids) {
    const int64_t n = s->pass.n;
    const bool is_greedy = is_plain(s);
    if (!steady_run(s, is_greedy)) return s->steady.known.n = 0, false;
    if (!is_greedy) return draw_all(s, first_rows(s->steady.logits, n), ids);
    int64_t places[MOST_ROWS];
    for (int64_t i = 0; i < n; i++) places[i] = s->steady.known.places[i] + 1;
    tl_tensor *drawn = first_rows(s->steady.tokens, n);
    const bool ok = drawn && tl_to_data(drawn, ids, (size_t)n * sizeof *ids);
    steady_know(&s->steady, ok ? n : 0, ids, places);
    return ok;
}

/* The rows of the pass, T tokens each, through the model. */
static bool pass_run(tl_session *s, int64_t T) {
    struct pass *p = &s->pass;
    int64_t ids[MOST_ROWS];
    if (!p->n) return true;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    bool ok = is_steady(s, T) ? steady_draw(s, ids) : pass_draw(s, T, ids);
    ok = tl_scope_end(scope) && ok;
    for (int64_t i = 0; ok && i < p->n; i++) {
        s->texts[p->rows[i]].next.id = ids[i];
        s->texts[p->rows[i]].next.n_cached += T;
    }
    p->n = p->n_spans = 0;
    return ok;
}

/* Prompts alone, each as it would be without the others; then the last token of all the rest. */
static bool passes_run(tl_session *s) {
    bool is_due[MOST_ROWS] = {false}, ok = true;
    for (int64_t row = 0; ok && row < s->n_rows; row++) {
        struct text *t = &s->texts[row];
        if (!t->is_open) continue;
        text_begin(s, t);
        is_due[row] = unseen(t) == 1;
        if (is_due[row]) continue;
        pass_add(&s->pass, row, t->next.n_cached);
        ok = pass_run(s, unseen(t));
    }
    for (int64_t row = 0; ok && row < s->n_rows; row++)
        if (is_due[row]) pass_add(&s->pass, row, s->texts[row].next.n_cached);
    ok = ok && pass_run(s, 1);
    s->pass.n = s->pass.n_spans = 0;
    return ok;
}

/* Every text has room for its token before any gets one, so that a failure changes no text. */
static bool texts_grow(tl_session *s, int64_t *tokens) {
    for (int64_t row = 0; row < s->n_rows; row++) {
        struct text *t = &s->texts[row];
        if (t->is_open && !memory_grow((void **)&t->ids, &t->room, t->n, sizeof *t->ids))
            return error_memory((t->n + 1) * sizeof *t->ids, "a text");
    }
    for (int64_t row = 0; row < s->n_rows; row++) {
        struct text *t = &s->texts[row];
        tokens[row] = t->is_open ? t->next.id : -1;
        if (!t->is_open) continue;
        t->ids[t->n++] = t->next.id;
        t->first = t->next.first;
        t->n_cached = t->next.n_cached;
        t->generator = t->next.generator;
    }
    return true;
}

bool tl_session_step(tl_session *s, int64_t *tokens) {
    if (!s || !tokens) return error_set(TL_ERROR_USE, "tl_session_step: got NULL");
    bool was_training = tl_module_is_training(s->model), grad = tl_set_grad_mode(false);
    tl_module_train(s->model, false);
    bool ok = passes_run(s) && texts_grow(s, tokens);
    tl_module_train(s->model, was_training);
    tl_set_grad_mode(grad);
    return ok;
}

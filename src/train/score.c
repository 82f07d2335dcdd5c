#include "train/score.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "nn/model.h"

enum { POOL_BATCHES = 16 };

struct window {
    size_t at; /* of its n + 1 ids, in the pool, and of the beginnings of documents */
    int64_t n, skip;
    size_t text, order;
};

struct scorer {
    struct score_options o;
    tl_device *device;
    struct window *windows;
    struct scored *texts; /* those with windows in the pool, and behind them the one that is open */
    int32_t *ids, *begins;
    size_t n_windows, window_capacity, n_texts, text_capacity, n_ids, id_capacity, begin_capacity;
    bool is_open, has_begins;
    double done, total, done_before; /* done_before: when the pool was empty */
};

struct scorer *scorer_new(const struct score_options *options) {
    int count;
    const tl_named_tensor *list = tl_module_list(options->model, &count);
    struct scorer *s = list && count ? memory_new(sizeof *s) : NULL;
    if (list && count && !s) error_memory(sizeof *s, "a scorer");
    if (s) *s = (struct scorer){.o = *options, .device = tl_device_of(list[0].tensor)};
    return s;
}

void scorer_free(struct scorer *s) {
    if (!s) return;
    memory_free(s->windows);
    memory_free(s->texts);
    memory_free(s->ids);
    memory_free(s->begins);
    memory_free(s);
}

/* ---- Batches ---- */

/* Longest first, so that the first batch of a pool takes the most memory. */
static int window_compare(const void *x, const void *y) {
    const struct window *a = x, *b = y;
    if (a->n != b->n) return a->n > b->n ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

struct batch {
    int32_t *tokens, *targets, *begins; /* (rows, time) */
    int64_t *from, *to;
    float *losses;
};

static void batch_free(struct batch *b) {
    memory_free(b->tokens);
    memory_free(b->from);
    memory_free(b->losses);
}

static bool batch_new(struct batch *b, size_t rows, size_t time) {
    *b = (struct batch){0};
    b->tokens = memory_new(3 * rows * time * sizeof *b->tokens);
    b->from = memory_new(2 * rows * sizeof *b->from);
    b->losses = memory_new(rows * sizeof *b->losses);
    if (!b->tokens || !b->from || !b->losses)
        return batch_free(b), error_memory(3 * rows * time * sizeof *b->tokens, "a batch of tokens");
    b->targets = b->tokens + rows * time;
    b->begins = b->targets + rows * time;
    b->to = b->from + rows;
    return true;
}

static void batch_fill(struct batch *b, const struct scorer *s, const struct window *w, size_t rows, size_t time) {
    memset(b->tokens, 0, 3 * rows * time * sizeof *b->tokens);
    for (size_t r = 0; r < rows; r++) {
        const size_t bytes = (size_t)w[r].n * sizeof *s->ids;
        memcpy(b->tokens + r * time, s->ids + w[r].at, bytes);
        memcpy(b->targets + r * time, s->ids + w[r].at + 1, bytes);
        for (size_t i = 0; s->has_begins && i < time; i++) /* padding belongs to the last document */
            b->begins[r * time + i] = s->begins[w[r].at + (i < (size_t)w[r].n ? i : (size_t)w[r].n - 1)];
        b->from[r] = w[r].skip;
        b->to[r] = w[r].n;
    }
}

static bool batch_run(const struct scorer *s, struct batch *b, int64_t rows, int64_t time) {
    tl_scope scope = tl_scope_begin();
    tl_tensor *tokens = scope.depth ? tl_from_data(b->tokens, TL_SHAPE(rows, time), TL_I32, s->device) : NULL;
    tl_tensor *targets = tokens ? tl_from_data(b->targets, TL_SHAPE(rows, time), TL_I32, s->device) : NULL;
    tl_tensor *begins = NULL;
    bool ok = targets != NULL;
    if (ok && s->has_begins) ok = (begins = tl_from_data(b->begins, TL_SHAPE(rows, time), TL_I32, s->device)) != NULL;
    tl_tensor *losses = ok ? model_losses(s->o.model, tokens, targets, begins, b->from, b->to) : NULL;
    ok = losses && tl_to_data(losses, b->losses, (size_t)rows * sizeof *b->losses);
    return scope.depth && tl_scope_end(scope) && ok;
}

static bool batch_score(struct scorer *s, const struct window *w, size_t rows) {
    struct batch b;
    const size_t time = (size_t)w->n;
    if (!batch_new(&b, rows, time)) return false;
    batch_fill(&b, s, w, rows, time);
    const bool ok = batch_run(s, &b, (int64_t)rows, (int64_t)time);
    for (size_t r = 0; ok && r < rows; r++) {
        s->texts[w[r].text].nats += (double)b.losses[r];
        s->texts[w[r].text].n_tokens += w[r].n - w[r].skip;
    }
    batch_free(&b);
    return ok;
}

/* ---- The pool ---- */

static bool pool_tell(const struct scorer *s, size_t rows) {
    if (!s->o.progress) return true;
    const double share = s->n_windows ? (double)rows / (double)s->n_windows : 1;
    return s->o.progress(s->done_before + share * (s->done - s->done_before), s->total, s->o.context) ||
           error_set(TL_ERROR_USE, "stopped");
}

/* Evaluates all windows, and tells of all texts but the one that is open, which stays. */
static bool pool_empty(struct scorer *s) {
    const size_t batch = (size_t)s->o.batch, n_done = s->n_texts - s->is_open;
    bool ok = true, grad = tl_set_grad_mode(false);
    if (s->n_windows) qsort(s->windows, s->n_windows, sizeof *s->windows, window_compare);
    for (size_t at = 0, rows; ok && at < s->n_windows; at += rows) {
        rows = s->n_windows - at < batch ? s->n_windows - at : batch;
        ok = batch_score(s, s->windows + at, rows) && pool_tell(s, at + rows);
    }
    tl_set_grad_mode(grad);
    for (size_t i = 0; ok && i < n_done; i++) ok = s->o.done(s->o.context, &s->texts[i]);
    if (s->is_open && n_done) s->texts[0] = s->texts[n_done];
    s->n_texts = s->is_open;
    s->n_windows = s->n_ids = 0;
    s->done_before = s->done;
    return ok;
}

bool scorer_begin(struct scorer *s, const struct score_text *text) {
    if (s->n_texts == s->text_capacity &&
        !memory_grow((void **)&s->texts, &s->text_capacity, s->n_texts, sizeof *s->texts))
        return error_memory(s->n_texts * sizeof *s->texts, "texts to score");
    s->texts[s->n_texts++] = (struct scored){.text = *text};
    s->is_open = true;
    return true;
}

static bool pool_grow(int32_t **numbers, size_t *capacity, size_t need) {
    while (*capacity < need)
        if (!memory_grow((void **)numbers, capacity, *capacity, sizeof **numbers))
            return error_memory(need * sizeof **numbers, "tokens to score");
    return true;
}

bool scorer_window(struct scorer *s, const int32_t *ids, const int32_t *begin, int64_t n, int64_t skip) {
    if (s->n_windows >= (size_t)s->o.batch * POOL_BATCHES && !pool_empty(s)) return false;
    const size_t need = s->n_ids + (size_t)n + 1;
    if (!pool_grow(&s->ids, &s->id_capacity, need) || (begin && !pool_grow(&s->begins, &s->begin_capacity, need)))
        return false;
    if (s->n_windows == s->window_capacity &&
        !memory_grow((void **)&s->windows, &s->window_capacity, s->n_windows, sizeof *s->windows))
        return error_memory(s->n_windows * sizeof *s->windows, "windows to score");
    memcpy(s->ids + s->n_ids, ids, ((size_t)n + 1) * sizeof *ids);
    if (begin) memcpy(s->begins + s->n_ids, begin, (size_t)n * sizeof *begin);
    s->has_begins = begin != NULL;
    s->windows[s->n_windows] = (struct window){s->n_ids, n, skip, s->n_texts - 1, s->n_windows};
    s->n_windows++;
    s->n_ids += (size_t)n + 1;
    return true;
}

/* Texts without a window count too: a long file of them must not fill memory. */
bool scorer_end(struct scorer *s) {
    s->is_open = false;
    return s->n_texts < s->n_windows + 4096 || pool_empty(s);
}

void scorer_progress(struct scorer *s, double done, double total) {
    s->done = done;
    s->total = total;
}

bool scorer_finish(struct scorer *s) { return pool_empty(s); }

/* loader.c: batches, read ahead.
 *
 * One thread fills a ring of n batches; step s lives in slot s mod n. The state is two numbers under one lock:
 * `base`, the step that is needed next, and `filled`, the first step that is not in the ring. The thread works while
 * filled < base + n; the caller waits while filled <= base. The slot of `base` is never written while `base` stays,
 * so it is read without the lock. A caller that wants another step moves both numbers there and increments `jumps`,
 * which tells the thread that its current batch is no longer wanted.
 *
 * Batches are fresh tensors of the caller's scope, not the ring's slots: they then live like all other results, and a
 * step may keep two. The copy is of 8 bytes per token, 12 with documents. Ids are i32: half the bytes of i64, and no
 * vocabulary needs more.
 *
 * Documents. A row of the batch that says where each token's document begins is made from the ids themselves or from
 * the file's table, by the thread. The window's first token begins a document whatever comes before it: the tokens that
 * it continues are not there to be attended to. The pairs that attention then has are counted here too, exactly, since
 * nothing later sees the places on the host.
 *
 * The price. meta runs the same code without thread and data, so the same bytes are billed: ring and batches if the
 * target computes in host memory; otherwise batches and their transfer (the ring is then the host's, not the
 * device's).
 */
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/thread.h"
#include "data/order.h"
#include "data/token_file.h"
#include "tensor/device.h"
#include "tensor/timeline.h"

struct tl_loader {
    tl_loader_options o;       /* with `last` and `device` filled in */
    int64_t n_windows, n_left; /* of an epoch; targets left over */
    tl_tensor *ring;           /* (n_buffers,parts,B,T) i32; NULL where there is no host to hold it */
    int64_t *ring_pairs;       /* of each batch in it */
    int64_t pairs;             /* of the newest batch that was given */
    double wait_s;

    /* The thread, and the state it shares. */
    bool has_thread;
    int generation; /* of the process it runs in */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, ready;
    int64_t base, filled;
    uint64_t jumps;
    bool is_stopping, has_failed;
    struct problem problem;
    int32_t *row; /* T+1 ids, the thread's own */
};

/* ---- Which window ---- */

/* Sequences of the same seed that must not overlap; the epoch (below 2^56) is the rest of the stream. */
enum { STREAM_ORDER = 0xD1, STREAM_SHIFT = 0xD2, STREAM_OFFSET = 0xD3 };

static struct rng_key stream(const tl_loader *l, uint64_t what, uint64_t epoch) {
    return (struct rng_key){l->o.seed, what << 56 | epoch};
}

/* A number below n: the upper half of draw x n. Off from uniform by less than n / 2^64. */
static int64_t draw_below(struct rng_key key, uint64_t index, int64_t n) {
    return rng_integer(rng_wide_draw(rng_block_at(key, index), 0), 0, n);
}

/* Windows are counted through all epochs and ranks; below 2^56, which is 10^16. */
static bool sample_of(const tl_loader *l, int64_t step, int64_t row, int64_t *sample) {
    int64_t turn;
    return step >= 0 && row >= 0 && row < l->o.batch && size_mul(step, l->o.world, &turn) &&
           size_add(turn, l->o.rank, &turn) && size_mul(turn, l->o.batch, sample) && size_add(*sample, row, sample) &&
           *sample < (int64_t)1 << 56;
}

static int64_t window_begin(const tl_loader *l, int64_t sample, int64_t *epoch) {
    int64_t within = sample % l->n_windows;
    *epoch = sample / l->n_windows;
    if (l->o.sampling == TL_SAMPLE_RANDOM)
        return l->o.first +
               draw_below(stream(l, STREAM_OFFSET, 0), (uint64_t)sample, l->o.last - l->o.first - l->o.time);
    if (l->o.sampling == TL_SAMPLE_IN_ORDER) return l->o.first + within * l->o.time;
    uint64_t e = (uint64_t)*epoch;
    int64_t shift = draw_below(stream(l, STREAM_SHIFT, e), 0, l->n_left + 1);
    uint64_t window = order_at(stream(l, STREAM_ORDER, e), (uint64_t)l->n_windows, (uint64_t)within);
    return l->o.first + shift + (int64_t)window * l->o.time;
}

int64_t tl_loader_where(const tl_loader *l, int64_t step, int64_t row, int64_t *epoch) {
    int64_t sample, e;
    if (!l || !sample_of(l, step, row, &sample)) return -1;
    return window_begin(l, sample, epoch ? epoch : &e);
}

int64_t tl_loader_windows(const tl_loader *l) { return l ? l->n_windows : 0; }
double tl_loader_wait_s(const tl_loader *l) { return l ? l->wait_s : 0; }

/* ---- The thread ---- */

enum { IGNORED = -100 }; /* a target that no loss counts, as PyTorch has it */

/* Tensors of a batch: tokens, targets [, beginnings of documents]. */
static int64_t parts_of(const tl_loader *l) { return l->o.has_documents ? 3 : 2; }

static int32_t *slot_of(const tl_loader *l, int64_t step) {
    return (int32_t *)tl_data(l->ring) + step % l->o.n_buffers * parts_of(l) * l->o.batch * l->o.time;
}

static int64_t pairs_count(const tl_loader *l, const int32_t *begin) {
    uint64_t t = (uint64_t)l->o.time, n = (uint64_t)l->o.batch * t, pairs = n * (t + 1) / 2; /* a price may wrap */
    for (uint64_t i = 0; begin && i < n; i++) pairs -= (uint64_t)begin[i];
    return (int64_t)pairs;
}

static bool batch_fill(tl_loader *l, int64_t step, struct problem *problem) {
    int64_t t = l->o.time, n = l->o.batch * t;
    int32_t *slot = slot_of(l, step);
    for (int64_t b = 0; b < l->o.batch; b++) {
        int64_t from = tl_loader_where(l, step, b, NULL);
        if (from < 0) return problem_set(problem, TL_ERROR_USE, "loader: step %lld is too large", (long long)step);
        if (!token_file_fetch(l->o.file, l->row, from, t + 1, problem)) return false;
        int32_t *tokens = slot + b * t, *targets = tokens + n;
        memcpy(tokens, l->row, (size_t)t * sizeof *slot);
        memcpy(targets, l->row + 1, (size_t)t * sizeof *slot);
        for (int64_t i = 0; l->o.is_marked && i < t; i++) {
            tokens[i] >>= 1;
            targets[i] = targets[i] & 1 ? targets[i] >> 1 : IGNORED;
        }
        if (l->o.has_documents)
            token_file_begins(l->o.file, l->o.document_token, l->row, from, t, slot + 2 * n + b * t);
    }
    l->ring_pairs[step % l->o.n_buffers] = pairs_count(l, l->o.has_documents ? slot + 2 * n : NULL);
    return true;
}

static void *thread_main(void *loader) {
    tl_loader *l = loader;
    pthread_mutex_lock(&l->lock);
    while (!l->is_stopping) {
        if (l->has_failed || l->filled >= l->base + l->o.n_buffers) {
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        int64_t step = l->filled;
        uint64_t jumps = l->jumps;
        struct problem problem;
        pthread_mutex_unlock(&l->lock);
        bool ok = batch_fill(l, step, &problem);
        pthread_mutex_lock(&l->lock);
        if (jumps != l->jumps) continue; /* no longer wanted */
        if (ok) l->filled++;
        else l->has_failed = true, l->problem = problem;
        pthread_cond_signal(&l->ready);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static bool thread_start(tl_loader *l) {
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    l->generation = process_generation();
    int reason = thread_begin(&l->thread, thread_main, l);
    l->has_thread = reason == 0;
    return l->has_thread || thread_refused("loader: ", reason);
}

/* ---- Making one ---- */

tl_loader_options tl_loader_defaults(void) {
    return (tl_loader_options){.batch = 1, .time = 128, .seed = 1, .world = 1, .n_buffers = 3, .document_token = -1};
}

static bool options_check(const tl_loader_options *o) {
    if (o->batch < 1 || o->time < 1 || o->batch > INT32_MAX || o->time > INT32_MAX)
        return error_set(TL_ERROR_USE, "loader: batch %lld, time %lld (need both from 1 to 2^31 - 1)",
                         (long long)o->batch, (long long)o->time);
    if (o->world < 1 || o->rank < 0 || o->rank >= o->world)
        return error_set(TL_ERROR_USE, "loader: rank %d of %d (need 0 <= rank < world)", o->rank, o->world);
    if ((unsigned)o->sampling >= TL_SAMPLING_COUNT)
        return error_set(TL_ERROR_USE, "loader: %d is not a sampling mode", (int)o->sampling);
    if (o->n_buffers < 1 || o->n_buffers > 64)
        return error_set(TL_ERROR_USE, "loader: %d buffers (need 1 to 64)", o->n_buffers);
    if (!o->file && device_has_data(o->device))
        return error_set(TL_ERROR_USE, "loader: no token file (only meta needs none)");
    return true;
}

static bool documents_check(const tl_loader *l, const tl_token_info *info) {
    const tl_loader_options *o = &l->o;
    if (!o->has_documents || !o->file) return true;
    if (o->document_token < 0 && info->documents == 0)
        return error_set(TL_ERROR_USE, "loader: %s does not record where its documents begin (need a document_token)",
                         token_file_path(o->file));
    return info->vocabulary == 0 || o->document_token < info->vocabulary ||
           error_set(TL_ERROR_USE, "loader: document_token %lld is outside the vocabulary of %lld",
                     (long long)o->document_token, (long long)info->vocabulary);
}

static bool part_check(tl_loader *l) {
    tl_loader_options *o = &l->o;
    tl_token_info info = {.count = o->last ? o->last : 0};
    if (o->file) tl_token_file_info(o->file, &info);
    if (!documents_check(l, &info)) return false;
    if (o->last == 0) o->last = info.count;
    if (o->first < 0 || o->last > info.count || o->first >= o->last)
        return error_set(TL_ERROR_USE, "loader: no tokens %lld to %lld (the file has %lld)", (long long)o->first,
                         (long long)o->last - 1, (long long)info.count);
    int64_t n = o->last - o->first;
    if (n < o->time + 1)
        return error_set(TL_ERROR_USE, "loader: %lld tokens are too few for a window (need time + 1 = %lld)",
                         (long long)n, (long long)o->time + 1);
    l->n_windows = (n - 1) / o->time;
    l->n_left = (n - 1) % o->time;
    return true;
}

static bool in_host_memory(const tl_loader *l) { return device_prices_host(l->o.device); }

/* Host memory: the cpu's pool, or where meta stands for the cpu, meta's. */
static bool ring_new(tl_loader *l) {
    bool is_real = device_has_data(l->o.device);
    if (!is_real && !in_host_memory(l)) return true;
    tl_scope scope = tl_scope_enter("data");
    if (!scope.depth) return false;
    tl_device *host = in_host_memory(l) ? l->o.device : tl_device_find("cpu");
    l->ring =
        tl_set_purpose(tl_empty(TL_SHAPE(l->o.n_buffers, parts_of(l), l->o.batch, l->o.time), TL_I32, host), TL_DATA);
    if (l->ring) tl_keep(l->ring);
    return tl_scope_end(scope) && l->ring;
}

static bool reading_start(tl_loader *l) {
    if (!device_has_data(l->o.device)) return true;
    size_t room = ((size_t)l->o.time + 1) * sizeof *l->row;
    l->row = memory_new(room);
    l->ring_pairs = memory_new((size_t)l->o.n_buffers * sizeof *l->ring_pairs);
    if (!l->row || !l->ring_pairs) return error_memory(room, "a row of tokens");
    return thread_start(l);
}

tl_loader *tl_loader_new(const tl_loader_options *options) {
    if (!options) return error_set(TL_ERROR_USE, "loader: no options"), NULL;
    tl_loader_options o = *options;
    if (!o.device) { /* the thread's default, swapped and restored */
        o.device = tl_set_default_device(tl_device_find("cpu"));
        tl_set_default_device(o.device);
    }
    if (!options_check(&o)) return NULL;
    tl_loader *l = memory_new(sizeof *l);
    if (!l) return error_memory(sizeof *l, "a loader"), NULL;
    memset(l, 0, sizeof *l);
    l->o = o;
    l->pairs = pairs_count(l, NULL);
    if (o.file) token_file_keep(o.file);
    if (part_check(l) && ring_new(l) && reading_start(l)) return l;
    tl_loader_free(l);
    return NULL;
}

static void thread_stop(tl_loader *l) {
    if (l->generation == process_generation()) { /* a forked child has no such thread to wait for */
        pthread_mutex_lock(&l->lock);
        l->is_stopping = true;
        pthread_cond_signal(&l->work);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
    }
    pthread_cond_destroy(&l->ready);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
}

void tl_loader_free(tl_loader *l) {
    if (!l) return;
    if (l->has_thread) thread_stop(l);
    if (l->ring) tl_drop(l->ring);
    memory_free(l->row);
    memory_free(l->ring_pairs);
    tl_token_file_close(l->o.file);
    memory_free(l);
}

/* ---- The next batch ---- */

/* Returns when the slot of `step` is filled and will stay so until batch_done. False: recorded. */
static bool batch_await(tl_loader *l, int64_t step) {
    struct problem problem;
    pthread_mutex_lock(&l->lock);
    if (step != l->base || l->has_failed) {
        l->base = l->filled = step;
        l->jumps++;
        l->has_failed = false;
        pthread_cond_signal(&l->work);
    }
    if (l->filled <= step && !l->has_failed) {
        double start_s = now_s();
        while (l->filled <= step && !l->has_failed) pthread_cond_wait(&l->ready, &l->lock);
        l->wait_s += now_s() - start_s;
        timeline_span(TIMELINE_WAIT, "wait for data", start_s);
    }
    bool ok = l->filled > step; /* a later step may have failed meanwhile */
    if (!ok) problem = l->problem;
    pthread_mutex_unlock(&l->lock);
    return ok || error_set(problem.status, "%s (loader, step %lld)", problem.text, (long long)step);
}

static void batch_done(tl_loader *l, int64_t step) {
    pthread_mutex_lock(&l->lock);
    l->base = step + 1;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
}

/* (parts,B,T) on the device: tokens, targets [, beginnings of documents]. */
static tl_tensor *batch_new(tl_loader *l, const int32_t *ids) {
    int64_t shape[] = {parts_of(l), l->o.batch, l->o.time};
    if (!in_host_memory(l)) return tl_set_purpose(tl_from_data(ids, 3, shape, TL_I32, l->o.device), TL_DATA);
    tl_tensor *whole = tl_set_purpose(tl_empty(3, shape, TL_I32, l->o.device), TL_DATA);
    if (whole && ids) memcpy(tl_data(whole), ids, tl_bytes(whole));
    return whole;
}

/* part: room for each, NULL where nobody wants it. */
static bool batch_give(tl_loader *l, const int32_t *ids, tl_tensor **part[3]) {
    tl_phase phase = tl_set_phase(TL_OTHER);
    tl_scope scope = tl_scope_enter("data");
    tl_tensor *whole = scope.depth ? batch_new(l, ids) : NULL, *made[3] = {NULL};
    int n = (int)parts_of(l);
    bool ok = whole != NULL;
    for (int i = 0; ok && i < n; i++) ok = !part[i] || (made[i] = tl_select(whole, 0, i));
    for (int i = 0; ok && i < n; i++)
        if (made[i]) tl_keep(made[i]);
    ok = scope.depth && tl_scope_end(scope) && ok;
    tl_set_phase(phase);
    for (int i = 0; ok && i < n; i++)
        if (made[i]) *part[i] = tl_scope_give(made[i]);
    for (int i = 0; ok && i < n; i++) ok = !made[i] || *part[i];
    return ok;
}

static bool next(tl_loader *l, int64_t step, tl_tensor **part[3]) {
    if (!l || !part[0] || !part[1]) {
        if (tl_error() == TL_OK) error_set(TL_ERROR_USE, "loader_next: no %s", l ? "place for the batch" : "loader");
        return false;
    }
    *part[0] = *part[1] = NULL;
    if (tl_loader_where(l, step, l->o.batch - 1, NULL) < 0)
        return error_set(TL_ERROR_USE, "loader_next: step %lld (need 0 or more, and fewer than 2^56 windows so far)",
                         (long long)step);
    if (!device_has_data(l->o.device)) return batch_give(l, NULL, part);
    if (l->generation != process_generation())
        return error_set(TL_ERROR_USE,
                         "loader_next: the loader was made before fork(): its thread is not in this process");
    if (!batch_await(l, step)) return false;
    if (!batch_give(l, slot_of(l, step), part)) return false;
    l->pairs = l->ring_pairs[step % l->o.n_buffers];
    batch_done(l, step);
    return true;
}

bool tl_loader_next(tl_loader *l, int64_t step, tl_tensor **tokens, tl_tensor **targets) {
    return next(l, step, (tl_tensor * *[3]){tokens, targets, NULL});
}

bool tl_loader_next_documents(tl_loader *l, int64_t step, tl_tensor **tokens, tl_tensor **targets, tl_tensor **begin) {
    if (begin) *begin = NULL;
    return next(l, step, (tl_tensor * *[3]){tokens, targets, begin});
}

int64_t tl_loader_pairs(const tl_loader *l) { return l ? l->pairs : 0; }

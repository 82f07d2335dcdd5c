/* interleaved.c: micro-batches through stages that have several chunks of layers each (Narayanan et al. 2021).
 *
 * p stages with v chunks are p v parts of the model, of which part c p + s is chunk c of stage s: micro-batches go v
 * times around the ring of stages. They do so in groups of p: all of a group through one chunk, then through the
 * next. Stage s begins with 2 (p - 1 - s) + (v - 1) p forwards, then alternates, and ends with as many backwards:
 *
 *     stage 0   F0  F1  F0' F1' F2  B0' F3  B1' F2' B0  F3' B1  .   B2' .   B3' B2  B3
 *     stage 1   .   F0  F1  F0' B0' F1' B1' F2  B0  F3  B1  F2' B2' F3' B3' B2  B3  .
 *
 * (p = 2, v = 2, micro-batches 0 to 3; a stroke: the second chunk.) A stage waits for p - 1 chunks at the beginning and
 * at the end, each of 1/v of its layers: v times shorter than with one chunk.
 *
 * Every stage knows the schedule of all, in slots in which each computes one chunk or waits. What was computed in a
 * slot is sent behind it, first what goes forward and then what goes back, and kept by its receiver until it is
 * needed. All messages of a slot are thus sent and received in the same place of the schedule by both sides, and no
 * two stages wait for each other. Where micro-batches are no multiple of p, the last group has slots in which
 * nothing is done. A slot is only an order: stages that have no messages for each other do not wait. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "engine/scope.h"
#include "nn/pipeline.h"
#include "tensor/tensor.h"

enum { IDLE = -1 }; /* a slot is this, or 2 k for the k-th forward of a stage, 2 k + 1 for its k-th backward */

struct schedule {
    int64_t p, v, n; /* stages, chunks, micro-batches: a multiple of p, of which n_real exist */
    int64_t n_real;
    int64_t total;     /* forwards of a stage: v n */
    bool is_forward;   /* alone */
    int32_t *when;     /* (p, 2 total): the slot of each forward and backward of each stage; -1: not yet */
    int32_t *slots[3]; /* of this stage, of the one before it and of the one after it in the ring */
    int64_t n_slots;
};

/* Of the k-th forward; backwards have the chunks in the other order. */
static int64_t chunk_of(const struct schedule *s, int64_t k) { return k / s->p % s->v; }
static int64_t micro_of(const struct schedule *s, int64_t k) { return k / (s->p * s->v) * s->p + k % s->p; }
static int64_t place_of(const struct schedule *s, int64_t chunk, int64_t micro) {
    return micro / s->p * s->p * s->v + chunk * s->p + micro % s->p;
}

/* ---- Slots ---- */

/* The i-th thing that a stage computes. */
static int64_t work_at(const struct schedule *s, int64_t stage, int64_t i) {
    int64_t ahead = (s->p - 1 - stage) * 2 + (s->v - 1) * s->p;
    if (s->is_forward || ahead > s->total) ahead = s->total;
    if (i < ahead) return 2 * i;
    int64_t j = i - ahead;
    if (j >= 2 * (s->total - ahead)) return 2 * (i - s->total) + 1;
    return j % 2 ? 2 * (j / 2) + 1 : 2 * (ahead + j / 2);
}

static bool is_done(const struct schedule *s, int64_t stage, int64_t work, int64_t slot) {
    int32_t when = s->when[stage * 2 * s->total + work];
    return when >= 0 && when < slot;
}

/* Whether what it needs was computed before this slot. */
static bool is_ready(const struct schedule *s, int64_t stage, int64_t work, int64_t slot) {
    int64_t k = work / 2, chunk = chunk_of(s, k), micro = micro_of(s, k);
    if (work % 2 == 0) {
        if (stage > 0) return is_done(s, stage - 1, work, slot);
        return chunk == 0 || is_done(s, s->p - 1, 2 * place_of(s, chunk - 1, micro), slot);
    }
    if (!is_done(s, stage, 2 * place_of(s, s->v - 1 - chunk, micro), slot)) return false;
    if (stage < s->p - 1) return is_done(s, stage + 1, work, slot);
    return chunk == 0 || is_done(s, 0, 2 * place_of(s, chunk - 1, micro) + 1, slot);
}

static bool slots_fill(struct schedule *s, int64_t stage, int64_t *done) {
    const int64_t all = s->is_forward ? s->total : 2 * s->total, near[3] = {stage, stage + s->p - 1, stage + 1};
    bool is_over = false;
    for (int64_t slot = 0; !is_over && slot < s->n_slots; slot++) {
        for (int i = 0; i < 3; i++) s->slots[i][slot] = IDLE;
        is_over = true;
        for (int64_t r = 0; r < s->p; r++) {
            int64_t work = done[r] < all ? work_at(s, r, done[r]) : 0;
            if (done[r] < all) is_over = false;
            if (done[r] == all || !is_ready(s, r, work, slot)) continue;
            s->when[r * 2 * s->total + work] = (int32_t)slot;
            done[r]++;
            for (int i = 0; i < 3; i++)
                if (near[i] % s->p == r && micro_of(s, work / 2) < s->n_real) s->slots[i][slot] = (int32_t)work;
        }
        if (is_over) s->n_slots = slot;
    }
    return is_over || error_set(TL_ERROR_USE, "pipeline: the schedule of %lld stages and %lld micro-batches has no end",
                                (long long)s->p, (long long)s->n);
}

static void schedule_free(struct schedule *s) {
    memory_free(s->when);
    for (int i = 0; i < 3; i++) memory_free(s->slots[i]);
    *s = (struct schedule){0};
}

static bool schedule_make(struct schedule *s, const struct pipeline *p) {
    *s = (struct schedule){.p = tl_comm_size(p->pp), .v = p->state->parallel.n_chunks, .n_real = p->n};
    s->n = (s->n_real + s->p - 1) / s->p * s->p;
    s->total = s->v * s->n;
    s->is_forward = p->weight == 0;
    s->n_slots = 2 * s->total + 4 * s->p * s->v; /* it takes 2 total + 2 (p - 1) */
    size_t when = (size_t)(2 * s->p * s->total) * sizeof *s->when, slots = (size_t)s->n_slots * sizeof *s->slots[0];
    int64_t *done = memory_new((size_t)s->p * sizeof *done);
    s->when = memory_new(when);
    bool ok = done && s->when;
    for (int i = 0; i < 3; i++) ok = (s->slots[i] = memory_new(slots)) && ok;
    if (!ok) error_memory(when + 3 * slots, "the schedule of a pipeline");
    if (ok) memset(s->when, -1, when), memset(done, 0, (size_t)s->p * sizeof *done);
    ok = ok && slots_fill(s, tl_comm_rank(p->pp), done);
    memory_free(done);
    if (!ok) schedule_free(s);
    return ok;
}

/* ---- What a stage does ---- */

struct queue { /* of tensors that were received, kept */
    tl_tensor **at;
    int64_t first, last;
};

struct turns {
    struct pipeline *p;
    struct schedule s;
    struct queue in[2]; /* x, dy */
    int64_t shape[3];   /* of both */
    int rank;
    int64_t begin, period; /* rounds */
};

/* Whether what a stage computes in a slot goes on to another, forward or back. */
static bool is_sent(const struct schedule *s, int64_t stage, int32_t work, int direction) {
    if (work == IDLE || work % 2 != direction) return false;
    bool is_final = chunk_of(s, work / 2) == s->v - 1; /* backwards: of the first chunk */
    return !is_final || stage != (direction ? 0 : s->p - 1);
}

/* Sends x, or nothing, in one direction around the ring, and receives what comes from there. */
static bool exchange(struct turns *t, int64_t slot, int direction, tl_tensor *x) {
    struct pipeline *p = t->p;
    const struct schedule *s = &t->s;
    int stage = tl_comm_rank(p->pp), n = (int)s->p, after = (stage + 1) % n, before = (stage + n - 1) % n;
    int to = direction ? before : after, from = direction ? after : before;
    bool is_received = is_sent(s, from, s->slots[direction ? 2 : 1][slot], direction), ok = true;
    if (!x && !is_received) return true;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return false;
    bool grad = tl_set_grad_mode(false);
    tl_tensor *y = NULL;
    if (!is_received) ok = tl_send(x, to, p->pp);
    else if (x) y = tl_send_recv(x, to, from, p->pp);
    else y = tl_recv(t->rank, t->shape, p->state->dtype, tl_device_of(p->total), from, p->pp);
    if (is_received) ok = y && tl_keep(y) && (t->in[direction].at[t->in[direction].last++] = y);
    tl_set_grad_mode(grad);
    return tl_scope_end(scope) && ok;
}

static tl_tensor *queue_take(struct queue *q) {
    tl_tensor *x = q->first < q->last ? q->at[q->first] : NULL;
    if (x) q->at[q->first++] = NULL;
    return x;
}

static struct flight *flight_at(const struct turns *t, int64_t chunk, int64_t micro) {
    return &t->p->flights[chunk * t->s.n_real + micro];
}

/* One slot: a chunk's forward or backward, or nothing; then the messages of all stages. */
static bool slot_run(struct turns *t, int64_t slot) {
    struct pipeline *p = t->p;
    const struct schedule *s = &t->s;
    int32_t work = s->slots[0][slot];
    int64_t micro = work == IDLE ? 0 : micro_of(s, work / 2), chunk = work == IDLE ? 0 : chunk_of(s, work / 2);
    tl_tensor *y = NULL, *dx = NULL;
    struct flight *f = NULL;
    bool ok = true;
    if (work != IDLE) {
        if (work % 2) chunk = s->v - 1 - chunk;
        p->state->chunk = (int)chunk;
        f = flight_at(t, chunk, micro);
    }
    bool is_end = pipeline_is_end(p);
    if (work != IDLE && work % 2 == 0) {
        ok = pipeline_forward(p, micro, pipeline_is_beginning(p) ? NULL : queue_take(&t->in[0]), f);
        y = ok && !is_end ? f->y : NULL;
    } else if (work != IDLE) ok = pipeline_backward(p, f, is_end ? NULL : queue_take(&t->in[1]), &dx);
    ok = ok && exchange(t, slot, 0, y) && exchange(t, slot, 1, dx);
    tl_drop(dx);
    if (f && s->is_forward) flight_end(f);
    return ok;
}

static bool slots_run(struct turns *t, int64_t from, int64_t to) {
    bool ok = true;
    for (int64_t slot = from; ok && slot < to; slot++) ok = slot_run(t, slot);
    return ok;
}

/* A round is as many slots as a group of micro-batches takes. */
static bool round_run(void *context, int64_t k) {
    struct turns *t = context;
    int64_t from = t->begin + k * t->period;
    return slots_run(t, from, from + t->period);
}

/* Whether this stage and its neighbours do in a slot what they do a group of micro-batches later. */
static bool is_repeated(const struct turns *t, int64_t slot) {
    const struct schedule *s = &t->s;
    for (int i = 0; i < 3; i++) {
        int32_t now = slot + t->period < s->n_slots ? s->slots[i][slot] : IDLE;
        if (now == IDLE || s->slots[i][slot + t->period] != now + 2 * s->p * s->v) return false;
    }
    return true;
}

/* The slots that are rounds, after t->begin: how many rounds. */
static int64_t rounds_find(struct turns *t) {
    const struct schedule *s = &t->s;
    t->period = (s->is_forward ? 1 : 2) * s->p * s->v;
    while (t->begin < s->n_slots && !is_repeated(t, t->begin)) t->begin++;
    int64_t end = t->begin;
    while (is_repeated(t, end)) end++;
    return end - t->begin < t->period ? 0 : 1 + (end - t->begin) / t->period;
}

static bool turns_make(struct turns *t) {
    struct pipeline *p = t->p;
    tl_tensor *tokens = NULL, *targets = NULL, *begin = NULL;
    p->n_room = p->n * p->state->parallel.n_chunks;
    size_t bytes = (size_t)p->n_room * sizeof *p->flights;
    p->flights = memory_new(bytes);
    if (!p->flights) return error_memory(bytes, "the micro-batches of a pipeline");
    memset(p->flights, 0, bytes);
    for (int i = 0; i < 2; i++) {
        t->in[i].at = memory_new((size_t)p->n_room * sizeof *t->in[i].at);
        if (!t->in[i].at) return error_memory(bytes, "the messages of a pipeline");
    }
    /* the shape of messages, which arrive before the first micro-batch is needed */
    if (!pipeline_give(p, 0, &tokens, &targets, &begin)) return false;
    t->rank = lm_stage_shape(p->model, tokens, t->shape);
    p->early[0] = tl_keep(tokens);
    if (targets) p->early[1] = tl_keep(targets);
    if (begin) p->early[2] = tl_keep(begin);
    return schedule_make(&t->s, p);
}

bool pipeline_interleave(struct pipeline *p) {
    struct turns t = {.p = p};
    bool grad = tl_set_grad_mode(p->weight != 0), ok = turns_make(&t);
    int64_t n = ok ? rounds_find(&t) : 0, end = t.begin + n * t.period;
    if (ok && n == 0) ok = slots_run(&t, 0, t.s.n_slots);
    else if (ok)
        ok = slots_run(&t, 0, t.begin) && p->run(p->context, n, round_run, &t) && slots_run(&t, end, t.s.n_slots);
    tl_set_grad_mode(grad);
    for (int i = 0; i < 2; i++) {
        for (tl_tensor *x; (x = queue_take(&t.in[i]));) tl_drop(x); /* after a failure */
        memory_free(t.in[i].at);
    }
    schedule_free(&t.s);
    return ok;
}

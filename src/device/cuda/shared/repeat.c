/* repeat.c: tapes of calls, and graphs made of them. Read repeat.h first. */
#include "device/cuda/shared/repeat.h"
#include "tensor/device.h"

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* GRAPHS: of one part. SEEN: addresses that are remembered. CHAIN: kernels of one call that is patched. FEWEST: a graph
 * of fewer calls gains nothing. MOST: calls on a tape; a graph takes memory. */
enum { GRAPHS = 4, SEEN = 16, CHAIN = 32, FEWEST = 8, MOST = 1 << 14 };

/* A call as words of the tape: first what makes it the same call, then its addresses and attributes. */
struct taped {
    size_t at;
    uint32_t n_same, n_words;
};

/* A graph of a part, with the words that its calls had. */
struct graph {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    uint64_t *words;
    cudaGraphNode_t *last; /* by call: the last node so far; NULL: there is none yet */
    uint64_t used;         /* when: higher is later */
    bool fetches;          /* kernels read memory that those in front of them, which may still run, do not write */
};

/* Calls that are queued together: between two other uses of the stream. */
struct part {
    size_t first, end;
    struct graph graphs[GRAPHS];
    int n_graphs;
    uint64_t seen[SEEN], n_seen; /* hashes of addresses, in turn */
    bool is_refused;             /* it cannot be captured */
};

struct tape {
    struct taped *calls;
    uint64_t *words;    /* as of the last time */
    struct part *parts; /* they follow each other without gaps */
    size_t n_calls, n_parts, call_capacity, word_capacity, part_capacity;
};

enum mode { REPEAT_OFF, REPEAT_TAPES, REPEAT_COMPARES };

struct cuda_repeat {
    enum mode mode;
    pthread_t thread; /* that called repeat_begin: others' calls are not taped */
    struct tape tape;
    uint64_t n_launches;
    size_t next;            /* call that is expected */
    size_t first, n_queued; /* of the part that is under way; how many calls the device has */
    size_t part;            /* where the part is expected that is under way */
    uint64_t *words;        /* room for the call that is compared */
    size_t word_capacity;
    struct device_repeat report;
    uint64_t n_agains;  /* numbers that were given */
    struct graph *last; /* that was launched, of the pair with the last number; NULL: more than one, or other calls */
};

/* ---- Calls as words ------------------------------------------------------------------------------------- */

static bool room(void **array, size_t *capacity, size_t needed, size_t bytes) {
    if (needed <= *capacity) return true;
    const size_t larger = needed > 2 * *capacity ? needed : 2 * *capacity;
    void *grown = realloc(*array, larger * bytes);
    if (!grown) return false;
    *array = grown;
    *capacity = larger;
    return true;
}

static size_t attr_words(size_t bytes) { return (bytes + 7) / 8; }

static const tl_operand *operand_at(const tl_kernel_args *args, int i) {
    return i < args->n_in ? &args->in[i] : &args->out[i - args->n_in];
}

enum { HEAD_WORDS = 5 };

static size_t words_needed(const tl_kernel_args *args) {
    size_t n = HEAD_WORDS + 1 + attr_words(args->attr_bytes);
    for (int i = 0; i < args->n_in + args->n_out; i++) n += 2 + 2 * (size_t)operand_at(args, i)->rank;
    return n;
}

/* Addresses of a call on the tape: its workspace, then its operands. They stand behind what makes it the same call. */
static size_t n_addresses(const uint64_t *words) { return 1 + (words[2] & UINT32_MAX) + (words[2] >> 32); }

/* How many words are those that make it the same call. */
static uint32_t words_write(uint64_t *words, const tl_kernel_args *args, tl_kernel kernel) {
    const int n = args->n_in + args->n_out;
    uint64_t *to = words;
    *to++ = (uint64_t)(uintptr_t)kernel;
    *to++ = (uint64_t)(uintptr_t)args->op;
    *to++ = (uint64_t)args->n_in | (uint64_t)args->n_out << 32;
    *to++ = args->workspace_bytes;
    *to++ = args->attr_bytes;
    for (int i = 0; i < n; i++) {
        const tl_operand *x = operand_at(args, i);
        const size_t bytes = (size_t)x->rank * sizeof *to;
        *to++ = (uint64_t)x->dtype | (uint64_t)x->rank << 8;
        memcpy(to, x->shape, bytes);
        memcpy(to + x->rank, x->stride, bytes);
        to += 2 * x->rank;
    }
    const uint32_t n_same = (uint32_t)(to - words);
    *to++ = (uint64_t)(uintptr_t)args->workspace;
    for (int i = 0; i < n; i++) *to++ = (uint64_t)(uintptr_t)operand_at(args, i)->data;
    if (!args->attr_bytes) return n_same;
    to[attr_words(args->attr_bytes) - 1] = 0;
    memcpy(to, args->attr, args->attr_bytes);
    return n_same;
}

/* Queues a call of the tape, or adds it to the graph that is being captured. */
static bool call_queue(const struct cuda_state *state, const struct tape *tape, size_t i, char *error) {
    uint64_t *from = tape->words + tape->calls[i].at, *varying = from + tape->calls[i].n_same;
    tl_operand operands[TL_MAX_INPUTS + TL_MAX_OUTPUTS];
    const tl_kernel kernel = (tl_kernel)(uintptr_t)from[0];
    const int n_in = (int)(from[2] & UINT32_MAX), n_out = (int)(from[2] >> 32);
    tl_kernel_args args = {.op = (const char *)(uintptr_t)from[1],
                           .in = operands,
                           .out = operands + n_in,
                           .n_in = n_in,
                           .n_out = n_out,
                           .attr = varying + 1 + n_in + n_out,
                           .workspace = (void *)(uintptr_t)varying[0],
                           .workspace_bytes = (size_t)from[3],
                           .n_threads = 1,
                           .stream = state->stream,
                           .error = error,
                           .attr_bytes = (size_t)from[4]};
    from += HEAD_WORDS;
    for (int k = 0; k < n_in + n_out; k++) {
        const int rank = (int)(from[0] >> 8);
        operands[k] = (tl_operand){.data = (void *)(uintptr_t)varying[1 + k],
                                   .dtype = (tl_dtype)(from[0] & 255),
                                   .rank = rank,
                                   .shape = (const int64_t *)(from + 1),
                                   .stride = (const int64_t *)(from + 1 + rank)};
        from += 1 + 2 * rank;
    }
    return kernel_enter(&args, kernel);
}

/* ---- Graphs --------------------------------------------------------------------------------------------- */

/* The last node of the graph that is being captured; NULL: it has none. Calls use one stream, so their nodes are a
 * chain. */
static bool node_last(cudaStream_t stream, cudaGraphNode_t *last, char *error) {
    enum cudaStreamCaptureStatus status;
    const cudaGraphNode_t *nodes = NULL;
    size_t n = 0;
#if CUDART_VERSION >= 13000
    const cudaGraphEdgeData *edges = NULL;
    const cudaError_t result = cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, &nodes, &edges, &n);
#else
    const cudaError_t result = cudaStreamGetCaptureInfo_v2(stream, &status, NULL, NULL, &nodes, &n);
#endif
    *last = n == 1 ? nodes[0] : NULL;
    if (!cuda_check(result, "capture", error)) return false;
    if (n < 2 && status == cudaStreamCaptureStatusActive) return true;
    snprintf(error, CUDA_ERROR_BYTES, "a call uses more than one stream");
    return false;
}

/* The one before a node of a chain; NULL: it is the first. */
static bool node_before(cudaGraphNode_t node, cudaGraphNode_t *before) {
    cudaGraphNode_t nodes[1] = {NULL};
    size_t n = 1;
#if CUDART_VERSION >= 13000
    cudaGraphEdgeData edges[1];
    const cudaError_t result = cudaGraphNodeGetDependencies(node, nodes, edges, &n);
#else
    const cudaError_t result = cudaGraphNodeGetDependencies(node, nodes, &n);
#endif
    *before = n ? nodes[0] : NULL;
    return result == cudaSuccess && n < 2;
}

/* The nodes from `last` back to `stop`, which is none of them; how many, or -1. */
static int chain_of(cudaGraphNode_t last, cudaGraphNode_t stop, cudaGraphNode_t nodes[CHAIN]) {
    int n = 0;
    for (cudaGraphNode_t node = last; node != stop; n++) {
        if (n == CHAIN || !node) return -1;
        nodes[n] = node;
        if (!node_before(node, &node)) return -1;
    }
    return n;
}

/* Nothing is queued. `last` receives the last node so far after each call. */
static bool calls_capture(struct cuda_state *state, const struct tape *tape, size_t first, size_t end,
                          cudaGraph_t *graph, cudaGraphNode_t *last, char *error) {
    *graph = NULL;
    if (!cuda_check(cudaStreamBeginCapture(state->stream, cudaStreamCaptureModeRelaxed), "capture", error))
        return false;
    bool ok = true;
    for (size_t i = first; ok && i < end; i++)
        ok = call_queue(state, tape, i, error) && node_last(state->stream, &last[i - first], error);
    const cudaError_t status = cudaStreamEndCapture(state->stream, graph);
    state->early.n = EARLY_WRITES;
    if (ok && cuda_check(status, "capture", error)) return true;
    if (*graph) cudaGraphDestroy(*graph);
    *graph = NULL;
    cudaGetLastError();
    return false;
}

static void graph_drop(struct graph *g) {
    if (g->exec) cudaGraphExecDestroy(g->exec); /* one that runs is destroyed when it has ended */
    if (g->graph) cudaGraphDestroy(g->graph);
    free(g->words);
    free(g->last);
    memset(g, 0, sizeof *g);
}

static void part_drop(struct part *part) {
    while (part->n_graphs) graph_drop(&part->graphs[--part->n_graphs]);
}

static size_t words_begin(const struct tape *tape, const struct part *part) { return tape->calls[part->first].at; }

static size_t words_of(const struct tape *tape, const struct part *part) {
    const struct taped *last = &tape->calls[part->end - 1];
    return last->at + last->n_words - words_begin(tape, part);
}

/* In place of what it held. */
static bool graph_make(struct cuda_state *state, const struct tape *tape, const struct part *part, struct graph *g,
                       char *error) {
    const size_t n = part->end - part->first, bytes = words_of(tape, part) * sizeof *g->words;
    const uint64_t n_fetches = state->early.n_fetches;
    graph_drop(g);
    g->words = malloc(bytes);
    g->last = malloc(n * sizeof *g->last);
    if (!g->words || !g->last) return snprintf(error, CUDA_ERROR_BYTES, "no memory for a graph"), false;
    memcpy(g->words, tape->words + words_begin(tape, part), bytes);
    state->early.n = 0; /* a graph begins when all kernels in front of it have ended */
    if (!calls_capture(state, tape, part->first, part->end, &g->graph, g->last, error)) return false;
    g->fetches = state->early.n_fetches > n_fetches;
    return cuda_check(cudaGraphInstantiate(&g->exec, g->graph, 0), "cudaGraphInstantiate", error);
}

typedef CUresult (*node_reader)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS *);
typedef CUresult (*node_setter)(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS *);

/* By the driver: the runtime does not know the kernels of libraries. */
static bool kernel_patch(cudaGraphExec_t exec, cudaGraphNode_t to, cudaGraphNode_t from) {
    static node_reader node_read;
    static node_setter node_set;
    CUDA_KERNEL_NODE_PARAMS before, now;
    if (!node_read) cuda_driver_function("cuGraphKernelNodeGetParams", &node_read);
    if (!node_set) cuda_driver_function("cuGraphExecKernelNodeSetParams", &node_set);
    if (!node_read || !node_set || node_read(to, &before) != CUDA_SUCCESS || node_read(from, &now) != CUDA_SUCCESS)
        return false;
    return before.func == now.func && before.kern == now.kern && node_set(exec, to, &now) == CUDA_SUCCESS;
}

static bool node_patch(cudaGraphExec_t exec, cudaGraphNode_t to, cudaGraphNode_t from) {
    enum cudaGraphNodeType type, type_from;
    struct cudaMemsetParams filled;
    struct cudaMemcpy3DParms copied;
    if (cudaGraphNodeGetType(to, &type) != cudaSuccess || cudaGraphNodeGetType(from, &type_from) != cudaSuccess ||
        type != type_from)
        return false;
    switch (type) {
    case cudaGraphNodeTypeKernel:
        return kernel_patch(exec, to, from);
    case cudaGraphNodeTypeMemset:
        return cudaGraphMemsetNodeGetParams(from, &filled) == cudaSuccess &&
               cudaGraphExecMemsetNodeSetParams(exec, to, &filled) == cudaSuccess;
    case cudaGraphNodeTypeMemcpy:
        return cudaGraphMemcpyNodeGetParams(from, &copied) == cudaSuccess &&
               cudaGraphExecMemcpyNodeSetParams(exec, to, &copied) == cudaSuccess;
    default:
        return false;
    }
}

/* The graph gets the addresses and attributes that a call has now. */
static bool call_patch(struct cuda_state *state, const struct tape *tape, const struct part *part, struct graph *g,
                       size_t i) {
    const size_t at = i - part->first;
    cudaGraphNode_t to[CHAIN], from[CHAIN], last = NULL, before = at ? g->last[at - 1] : NULL;
    char ignored[CUDA_ERROR_BYTES];
    cudaGraph_t graph;
    state->early.n = EARLY_WRITES; /* what kernels in front of it write is not asked here */
    if (!calls_capture(state, tape, i, i + 1, &graph, &last, ignored)) return false;
    const int n = chain_of(g->last[at], before, to);
    bool ok = n >= 0 && n == chain_of(last, NULL, from);
    for (int k = 0; ok && k < n; k++) ok = node_patch(g->exec, to[k], from[k]);
    cudaGraphDestroy(graph);
    return ok;
}

/* Whether a call has other addresses or attributes than in the graph. */
static bool is_changed(const struct tape *tape, const struct part *part, const struct graph *g, size_t i) {
    const struct taped *c = &tape->calls[i];
    return memcmp(g->words + (c->at - words_begin(tape, part)), tape->words + c->at, c->n_words * sizeof *g->words);
}

/* The same of its addresses alone. */
static bool is_moved(const struct tape *tape, const struct part *part, const struct graph *g, size_t i) {
    const struct taped *c = &tape->calls[i];
    const uint64_t *words = tape->words + c->at, *had = g->words + (c->at - words_begin(tape, part));
    return memcmp(had + c->n_same, words + c->n_same, n_addresses(words) * sizeof *words);
}

static size_t changes(const struct tape *tape, const struct part *part, const struct graph *g) {
    size_t n = 0;
    for (size_t i = part->first; i < part->end; i++) n += is_changed(tape, part, g, i);
    return n;
}

/* Which kernels may begin early was decided by the addresses of all of them. */
static bool graph_patch(struct cuda_state *state, const struct tape *tape, const struct part *part, struct graph *g) {
    bool ok = true;
    for (size_t i = part->first; ok && i < part->end; i++)
        ok = !is_changed(tape, part, g, i) ||
             (!(g->fetches && is_moved(tape, part, g, i)) && call_patch(state, tape, part, g, i));
    memcpy(g->words, tape->words + words_begin(tape, part), words_of(tape, part) * sizeof *g->words);
    if (!ok) cudaGetLastError();
    return ok;
}

/* Whether the calls had these addresses before: a graph is made of what repeats. */
static bool is_seen(const struct tape *tape, struct part *part) {
    uint64_t hash = 0xCBF29CE484222325u; /* FNV-1a, by words */
    for (size_t i = part->first; i < part->end; i++) {
        const uint64_t *words = tape->words + tape->calls[i].at, *varying = words + tape->calls[i].n_same;
        for (size_t k = 0; k < n_addresses(words); k++) hash = (hash ^ varying[k]) * 0x100000001B3u;
    }
    for (int k = 0; k < SEEN; k++)
        if (part->seen[k] == hash) return true;
    part->seen[part->n_seen++ % SEEN] = hash;
    return false;
}

/* The graph that needs the fewest changes; NULL: there is none. */
static struct graph *graph_nearest(const struct tape *tape, struct part *part, size_t *n_changes) {
    struct graph *best = NULL;
    *n_changes = SIZE_MAX;
    for (int k = 0; k < part->n_graphs && *n_changes; k++) {
        const size_t n = changes(tape, part, &part->graphs[k]);
        if (n < *n_changes) *n_changes = n, best = &part->graphs[k];
    }
    return best;
}

/* Room for one more: the one that was not used for the longest time goes. */
static struct graph *graph_oldest(struct part *part) {
    struct graph *oldest = &part->graphs[0];
    if (part->n_graphs < GRAPHS) return &part->graphs[part->n_graphs++];
    for (int k = 1; k < GRAPHS; k++)
        if (part->graphs[k].used < oldest->used) oldest = &part->graphs[k];
    return oldest;
}

/* A graph of the calls as they are now; NULL: there is none, and `why` may say more. */
static struct graph *graph_ready(struct cuda_state *state, const struct tape *tape, struct part *part, char *why) {
    const size_t n_calls = part->end - part->first;
    size_t n_changes;
    if (part->is_refused || n_calls < FEWEST) return NULL;
    struct graph *g = graph_nearest(tape, part, &n_changes);
    if (g && n_changes <= n_calls / 3 && graph_patch(state, tape, part, g)) return g;
    if (!g || n_changes > n_calls / 3) { /* patching would take longer than queueing */
        const bool repeats = is_seen(tape, part);
        if (!repeats && g)
            snprintf(why, CUDA_ERROR_BYTES, "%zu of %zu calls have addresses that are new", n_changes, n_calls);
        if (!repeats) return NULL;
        g = graph_oldest(part);
    }
    if (graph_make(state, tape, part, g, why)) return g;
    part_drop(part);
    part->is_refused = true;
    return NULL;
}

/* ---- Tapes ---------------------------------------------------------------------------------------------- */

/* Keeps the first calls, and of the parts those that are over. */
static void tape_cut(struct tape *tape, size_t n_calls, size_t n_parts) {
    while (tape->n_parts > n_parts) part_drop(&tape->parts[--tape->n_parts]);
    if (n_calls < tape->n_calls) tape->n_calls = n_calls;
}

static bool tape_add(struct tape *tape, const tl_kernel_args *args, tl_kernel kernel) {
    const struct taped *before = tape->n_calls ? &tape->calls[tape->n_calls - 1] : NULL;
    const size_t at = before ? before->at + before->n_words : 0, n = words_needed(args);
    if (tape->n_calls == MOST ||
        !room((void **)&tape->calls, &tape->call_capacity, tape->n_calls + 1, sizeof *tape->calls) ||
        !room((void **)&tape->words, &tape->word_capacity, at + n, sizeof *tape->words))
        return false;
    const uint32_t n_same = words_write(tape->words + at, args, kernel);
    tape->calls[tape->n_calls++] = (struct taped){.at = at, .n_same = n_same, .n_words = (uint32_t)n};
    return true;
}

static bool part_add(struct tape *tape, size_t first, size_t end) {
    if (!room((void **)&tape->parts, &tape->part_capacity, tape->n_parts + 1, sizeof *tape->parts)) return false;
    tape->parts[tape->n_parts++] = (struct part){.first = first, .end = end};
    return true;
}

/* Whether a call is the next one of the tape, which then has its addresses and attributes. */
static bool is_next(struct cuda_repeat *r, const tl_kernel_args *args, tl_kernel kernel) {
    if (r->next >= r->tape.n_calls) return false;
    const struct taped *c = &r->tape.calls[r->next];
    const size_t n = words_needed(args);
    uint64_t *words = r->tape.words + c->at;
    if (n != c->n_words || !room((void **)&r->words, &r->word_capacity, n, sizeof *r->words)) return false;
    const uint32_t n_same = words_write(r->words, args, kernel);
    if (n_same != c->n_same || memcmp(words, r->words, n_same * sizeof *words)) return false;
    memcpy(words + n_same, r->words + n_same, (n - n_same) * sizeof *words);
    return true;
}

/* ---- What is held back ---------------------------------------------------------------------------------- */

static bool queue_singly(struct cuda_state *state, char *error) {
    struct cuda_repeat *r = state->repeat;
    bool ok = true;
    for (; ok && r->n_queued < r->next; r->n_queued++) ok = call_queue(state, &r->tape, r->n_queued, error);
    r->n_queued = r->next;
    return ok;
}

/* The calls from here on are others than those of the tape. */
static bool compare_end(struct cuda_state *state, char *error) {
    struct cuda_repeat *r = state->repeat;
    const bool ok = queue_singly(state, error);
    tape_cut(&r->tape, r->next, r->part);
    r->mode = REPEAT_TAPES;
    return ok;
}

static void repeat_stop(struct cuda_repeat *r) {
    tape_cut(&r->tape, 0, 0);
    r->mode = REPEAT_OFF;
}

/* What is held back is a part of the tape: a graph, if there can be one. */
static bool part_queue(struct cuda_state *state, struct part *part, char *error) {
    struct cuda_repeat *r = state->repeat;
    char why[CUDA_ERROR_BYTES] = "";
    struct graph *g = graph_ready(state, &r->tape, part, why);
    if (*why) snprintf(r->report.why, sizeof r->report.why, "%.*s", (int)sizeof r->report.why - 1, why);
    if (!g) return queue_singly(state, error);
    g->used = ++r->n_launches;
    r->n_queued = r->next;
    r->last = g;
    r->report.n_in_graphs += (int64_t)(part->end - part->first);
    state->early.n = EARLY_WRITES;
    return cuda_check(cudaGraphLaunch(g->exec, state->stream), "cudaGraphLaunch", error);
}

bool repeat_settle(struct cuda_state *state, char *error) {
    struct cuda_repeat *r = state->repeat;
    if (!r || r->mode == REPEAT_OFF || r->first == r->next) return true;
    bool ok = true;
    struct part *part = r->mode == REPEAT_COMPARES && r->part < r->tape.n_parts ? &r->tape.parts[r->part] : NULL;
    if (part && part->end == r->next) ok = part_queue(state, part, error);
    else {
        if (r->mode == REPEAT_COMPARES) ok = compare_end(state, error);
        if (!part_add(&r->tape, r->first, r->next)) repeat_stop(r);
    }
    r->first = r->next;
    r->part++;
    if (!ok) repeat_stop(r);
    return ok;
}

bool repeat_holds(struct cuda_state *state, const tl_kernel_args *args, tl_kernel kernel, bool *ok) {
    struct cuda_repeat *r = state->repeat;
    if (!r || r->mode == REPEAT_OFF) return false;
    if (!pthread_equal(r->thread, pthread_self())) {
        *ok = repeat_settle(state, args->error);
        return false;
    }
    r->report.n_calls++;
    if (r->mode == REPEAT_COMPARES && is_next(r, args, kernel)) {
        r->next++;
        return true;
    }
    if (r->mode == REPEAT_COMPARES) {
        snprintf(r->report.why, sizeof r->report.why, "call %zu of a step is another than before: %s", r->next,
                 args->op);
        *ok = compare_end(state, args->error);
    }
    if (r->tape.n_calls == MOST) snprintf(r->report.why, sizeof r->report.why, "a step has more than %d calls", MOST);
    if (!*ok || !tape_add(&r->tape, args, kernel)) repeat_stop(r);
    r->n_queued = ++r->next;
    return false;
}

void repeat_spoil(struct cuda_state *state) {
    if (state->repeat && state->repeat->mode != REPEAT_OFF) repeat_stop(state->repeat);
}

void cuda_repeat_begin(tl_device *device) {
    struct cuda_state *state = device->own;
    pthread_mutex_lock(&cuda_run_lock);
    if (!state->repeat) state->repeat = calloc(1, sizeof *state->repeat);
    struct cuda_repeat *r = state->repeat;
    if (r && r->mode == REPEAT_OFF) {
        r->mode = r->tape.n_calls ? REPEAT_COMPARES : REPEAT_TAPES;
        r->thread = pthread_self();
        r->next = r->first = r->n_queued = r->part = 0;
        memset(&r->report, 0, sizeof r->report);
        r->last = NULL;
    }
    pthread_mutex_unlock(&cuda_run_lock);
}

bool cuda_repeat_end(tl_device *device, struct device_repeat *report, char *error) {
    struct cuda_state *state = device->own;
    pthread_mutex_lock(&cuda_run_lock);
    struct cuda_repeat *r = state->repeat;
    const bool ok = cuda_select(state, error) && repeat_settle(state, error);
    if (r && r->mode == REPEAT_COMPARES) tape_cut(&r->tape, r->next, r->part);
    if (r) r->mode = REPEAT_OFF;
    if (r && !(ok && r->tape.n_parts == 1 && r->report.n_in_graphs == r->report.n_calls)) r->last = NULL;
    if (r && r->last) r->report.again = ++r->n_agains;
    if (r) *report = r->report;
    else memset(report, 0, sizeof *report);
    pthread_mutex_unlock(&cuda_run_lock);
    return ok;
}

bool cuda_repeat_again(tl_device *device, uint64_t again, char *error) {
    struct cuda_state *state = device->own;
    pthread_mutex_lock(&cuda_run_lock);
    const struct cuda_repeat *r = state->repeat;
    const bool is_there = r && r->mode == REPEAT_OFF && r->last && r->n_agains == again;
    if (is_there) state->early.n = EARLY_WRITES;
    const bool ok = is_there && cuda_select(state, error) &&
                    cuda_check(cudaGraphLaunch(r->last->exec, state->stream), "cudaGraphLaunch", error);
    pthread_mutex_unlock(&cuda_run_lock);
    return ok;
}

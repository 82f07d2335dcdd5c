/* nccl.c: messages between GPUs of several processes, through NCCL.
 *
 * NCCL is loaded when the first link is asked for, so the plugin works without it. Only its point-to-point messages are
 * used: which parts are sent, and in which order sums are made, is decided in ops/collective.c, alike for every
 * library. NCCL's buffers are outside the pool.
 */
#include "device/cuda/shared/repeat.h"
#include "device/cuda/shared/state.h"
#include "tensor/device.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As far as they are used here, so that no header of NCCL is needed. */
struct nccl_key {
    char bytes[LINK_KEY];
};
enum { NCCL_SUCCESS = 0, NCCL_BYTE = 1 };

static struct {
    bool is_there;
    char why[120];
    const char *(*error_string)(int code);
    const char *(*last_error)(void *comm);
    int (*key)(struct nccl_key *key);
    int (*open)(void **comm, int size, struct nccl_key key, int rank);
    int (*close)(void *comm);
    int (*begin)(void);
    int (*end)(void);
    int (*send)(const void *data, size_t n, int dtype, int peer, void *comm, cudaStream_t stream);
    int (*receive)(void *data, size_t n, int dtype, int peer, void *comm, cudaStream_t stream);
} nccl;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void library_open(void) {
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL); /* never closed: the process ends first */
    if (!library) {
        snprintf(nccl.why, sizeof nccl.why, "NCCL is not installed here (there is no libnccl.so.2)");
        return;
    }
    const struct cuda_symbol symbols[] = {
        {"ncclGetErrorString", &nccl.error_string},
        {"ncclGetLastError", &nccl.last_error},
        {"ncclGetUniqueId", &nccl.key},
        {"ncclCommInitRank", &nccl.open},
        {"ncclCommDestroy", &nccl.close},
        {"ncclGroupStart", &nccl.begin},
        {"ncclGroupEnd", &nccl.end},
        {"ncclSend", &nccl.send},
        {"ncclRecv", &nccl.receive},
    };
    const char *missing = cuda_symbols_find(library, symbols, sizeof symbols / sizeof *symbols);
    nccl.is_there = !missing;
    if (missing) snprintf(nccl.why, sizeof nccl.why, "this NCCL has no %s (need 2.13 or newer)", missing);
}

static bool nccl_check(int code, const char *what, char *error) {
    if (code == NCCL_SUCCESS) return true;
    snprintf(error, CUDA_ERROR_BYTES, "NCCL, %s: %.60s: %.90s", what, nccl.error_string(code), nccl.last_error(NULL));
    return false;
}

static bool link_device(tl_device *device, char name[LINK_DEVICE], char *error) {
    const struct cuda_state *state = device->own;
    pthread_once(&once, library_open);
    if (!nccl.is_there) return snprintf(error, CUDA_ERROR_BYTES, "%s", nccl.why), false;
    return cuda_check(cudaDeviceGetPCIBusId(name, LINK_DEVICE, state->index), "cudaDeviceGetPCIBusId", error);
}

static bool link_key(char key[LINK_KEY], char *error) {
    struct nccl_key own;
    if (!nccl_check(nccl.key(&own), "ncclGetUniqueId", error)) return false;
    memcpy(key, own.bytes, LINK_KEY);
    return true;
}

/* ---- Links ---- */

/* Messages have a stream of their own, so that kernels run beside them. Events order the two streams, and tell how long
 * messages took and how long kernels waited for them. */
enum { EXCHANGES = 256 }; /* whose times may be open; there are never as many under way */
enum { SENT_FROM, SENT_TO, WAITED_FROM, WAITED_TO, EVENTS };
struct exchange {
    cudaEvent_t event[EVENTS];
    bool is_begun, is_ended;
};
struct link {
    void *comm;
    cudaStream_t stream;
    struct exchange exchange[EXCHANGES]; /* in turn; events are made when first needed */
    int next, oldest;                    /* oldest: the first whose time is not known yet */
};

static void link_close(tl_device *device, void *link) {
    char error[CUDA_ERROR_BYTES];
    struct link *own = link;
    if (!cuda_select(device->own, error)) return;
    nccl.close(own->comm);
    for (int i = 0; i < EXCHANGES; i++)
        for (int k = 0; k < EVENTS; k++)
            if (own->exchange[i].event[k]) cudaEventDestroy(own->exchange[i].event[k]);
    cudaStreamDestroy(own->stream);
    free(own);
}

static bool link_open(tl_device *device, const char key[LINK_KEY], int rank, int size, void **link, char *error) {
    struct nccl_key id;
    struct link *own = calloc(1, sizeof *own);
    if (!own) return snprintf(error, CUDA_ERROR_BYTES, "out of memory for a link"), false;
    memcpy(id.bytes, key, LINK_KEY);
    bool ok = cuda_select(device->own, error) &&
              cuda_check(cudaStreamCreateWithFlags(&own->stream, cudaStreamNonBlocking), "cudaStreamCreate", error) &&
              nccl_check(nccl.open(&own->comm, size, id, rank), "ncclCommInitRank", error);
    if (ok) *link = own;
    else free(own);
    return ok;
}

static bool events_ready(struct exchange *x, char *error) {
    bool ok = true;
    for (int k = 0; ok && k < EVENTS; k++)
        ok = x->event[k] || cuda_check(cudaEventCreate(&x->event[k]), "cudaEventCreate", error);
    return ok;
}

/* `later` runs what is queued from here on behind what is in `first` now. */
static bool follow(cudaStream_t later, cudaStream_t first, cudaEvent_t event, char *error) {
    return cuda_check(cudaEventRecord(event, first), "cudaEventRecord", error) &&
           cuda_check(cudaStreamWaitEvent(later, event, 0), "cudaStreamWaitEvent", error);
}

static bool messages_queue(const struct link *own, const struct message *messages, int n, char *error) {
    int code = nccl.begin();
    for (int i = 0; code == NCCL_SUCCESS && i < n; i++) {
        const struct message *m = &messages[i];
        code = m->is_sent ? nccl.send(m->data, m->bytes, NCCL_BYTE, m->peer, own->comm, own->stream)
                          : nccl.receive(m->data, m->bytes, NCCL_BYTE, m->peer, own->comm, own->stream);
    }
    int end = nccl.end(); /* also after an error, or the next group would belong to this one */
    return nccl_check(code == NCCL_SUCCESS ? end : code, "a message", error);
}

static bool link_begin(tl_device *device, void *link, const struct message *messages, int n, void **begun,
                       char *error) {
    struct cuda_state *state = device->own;
    struct link *own = link;
    struct exchange *x = &own->exchange[own->next];
    if (x->is_begun && !x->is_ended)
        return snprintf(error, CUDA_ERROR_BYTES, "more than %d exchanges are under way", EXCHANGES), false;
    if (!cuda_select(state, error) || !events_ready(x, error)) return false;
    if (x->is_begun) own->oldest = (own->next + 1) % EXCHANGES; /* its time is lost */
    pthread_mutex_lock(&cuda_run_lock);
    bool ok = repeat_settle(state, error) && follow(own->stream, state->stream, x->event[SENT_TO], error) &&
              cuda_check(cudaEventRecord(x->event[SENT_FROM], own->stream), "cudaEventRecord", error) &&
              messages_queue(own, messages, n, error) &&
              cuda_check(cudaEventRecord(x->event[SENT_TO], own->stream), "cudaEventRecord", error);
    pthread_mutex_unlock(&cuda_run_lock);
    *x = (struct exchange){.event = {x->event[0], x->event[1], x->event[2], x->event[3]}, .is_begun = ok};
    own->next = (own->next + ok) % EXCHANGES;
    *begun = x;
    return ok;
}

static double seconds_between(cudaEvent_t from, cudaEvent_t to) {
    float ms = 0;
    return cudaEventElapsedTime(&ms, from, to) == cudaSuccess ? (double)ms * 1e-3 : 0;
}

static void times_take(struct link *own, struct link_seconds *done) {
    for (struct exchange *x = &own->exchange[own->oldest];
         x->is_ended && cudaEventQuery(x->event[WAITED_TO]) == cudaSuccess; x = &own->exchange[own->oldest]) {
        done->busy_s += seconds_between(x->event[SENT_FROM], x->event[SENT_TO]);
        done->exposed_s += seconds_between(x->event[WAITED_FROM], x->event[WAITED_TO]);
        x->is_begun = x->is_ended = false;
        own->oldest = (own->oldest + 1) % EXCHANGES;
    }
}

static bool link_end(tl_device *device, void *link, void *begun, struct link_seconds *done, char *error) {
    struct cuda_state *state = device->own;
    struct exchange *x = begun;
    if (!cuda_select(state, error)) return false;
    pthread_mutex_lock(&cuda_run_lock);
    bool ok = repeat_settle(state, error) &&
              cuda_check(cudaEventRecord(x->event[WAITED_FROM], state->stream), "cudaEventRecord", error) &&
              cuda_check(cudaStreamWaitEvent(state->stream, x->event[SENT_TO], 0), "cudaStreamWaitEvent", error) &&
              cuda_check(cudaEventRecord(x->event[WAITED_TO], state->stream), "cudaEventRecord", error);
    x->is_ended = ok;
    times_take(link, done);   /* may be done with x already */
    (void)cudaGetLastError(); /* of a query: not ready yet */
    pthread_mutex_unlock(&cuda_run_lock);
    return ok;
}

const struct link_functions cuda_link = {link_device, link_key, link_open, link_begin, link_end, link_close};

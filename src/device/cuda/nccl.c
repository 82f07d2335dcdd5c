/* nccl.c: messages between GPUs of several processes, through NCCL.
 *
 * NCCL is loaded when the first link is asked for, so the plugin works without it. Only its point-to-point messages are
 * used: which parts are sent, and in which order sums are made, is decided in ops/collective.c, alike for every
 * library. NCCL's buffers are outside the pool.
 */
#include "device/cuda/shared/state.h"
#include "tensor/device.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
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

static bool link_open(tl_device *device, const char key[LINK_KEY], int rank, int size, void **link, char *error) {
    struct nccl_key own;
    memcpy(own.bytes, key, LINK_KEY);
    return cuda_select(device->own, error) && nccl_check(nccl.open(link, size, own, rank), "ncclCommInitRank", error);
}

static bool link_exchange(tl_device *device, void *link, const struct message *messages, int n, char *error) {
    struct cuda_state *state = device->own;
    if (!cuda_select(state, error)) return false;
    pthread_mutex_lock(&cuda_run_lock);
    int code = nccl.begin();
    for (int i = 0; code == NCCL_SUCCESS && i < n; i++) {
        const struct message *m = &messages[i];
        code = m->is_sent ? nccl.send(m->data, m->bytes, NCCL_BYTE, m->peer, link, state->stream)
                          : nccl.receive(m->data, m->bytes, NCCL_BYTE, m->peer, link, state->stream);
    }
    int end = nccl.end(); /* also after an error, or the next group would belong to this one */
    pthread_mutex_unlock(&cuda_run_lock);
    return nccl_check(code == NCCL_SUCCESS ? end : code, "a message", error);
}

static void link_close(tl_device *device, void *link) {
    char error[CUDA_ERROR_BYTES];
    if (cuda_select(device->own, error)) nccl.close(link);
}

const struct link_functions cuda_link = {link_device, link_key, link_open, link_exchange, link_close};

/* runtime.cpp: the functions of the CUDA runtime that the plugin calls, for a GPU made of the CPU. Everything is done
 * when it is asked for, so there is nothing to wait for. There are no graphs: calls that repeat are queued one by one,
 * as with a driver that refuses them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu.h"

namespace {

enum : size_t { MEMORY_BYTES = (size_t)16 << 30 };
size_t used_bytes;
cudaError_t last = cudaSuccess;

cudaError_t fail(cudaError_t error) { return last = error; }
double now_ms() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}
struct block {
    size_t bytes;
};
enum { ALIGN = 512 };

/* Of a GPU, in tens: what kernels are chosen by. */
int capability() {
    const char *const asked = getenv("CUDA_ON_CPU");
    return asked ? atoi(asked) : GPU_ARCH / 10;
}

/* cuTensorMapEncodeTiled, as far as the plugin uses it. */
CUresult map_encode(CUtensorMap *map, CUtensorMapDataType, cuuint32_t rank, void *data, const cuuint64_t *size,
                    const cuuint64_t *stride, const cuuint32_t *box, const cuuint32_t *, CUtensorMapInterleave,
                    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    gpu_map m = {(char *)data, {}, {2}, box[1]};
    bool is_known = rank == 4 && swizzle == CU_TENSOR_MAP_SWIZZLE_128B && box[0] == 64 && box[1] <= 256 &&
                    box[2] == 1 && box[3] == 1 && (uintptr_t)data % 16 == 0;
    for (int i = 0; i < 4; i++) {
        m.size[i] = size[i];
        if (i > 0) m.stride[i] = stride[i - 1];
        is_known = is_known && size[i] > 0 && size[i] <= (cuuint64_t)1 << 32;
        is_known = is_known && (i == 0 || (m.stride[i] % 16 == 0 && m.stride[i] < (cuuint64_t)1 << 40));
    }
    memcpy((void *)map, &m, sizeof m);
    return is_known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

} /* namespace */

struct CUevent_st {
    double ms;
};
struct CUstream_st {
    int unused;
};

extern "C" {

/* ---- The device ---- */

cudaError_t cudaGetDeviceCount(int *n) { return *n = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int *index) { return *index = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int index) { return index == 0 ? cudaSuccess : fail(cudaErrorInvalidDevice); }
cudaError_t cudaDriverGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
    memset((void *)properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "a GPU made of the CPU");
    properties->major = capability() / 10;
    properties->minor = capability() % 10;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int) {
    *value = attribute == cudaDevAttrMultiProcessorCount ? 2 : 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *, int, int) { return fail(cudaErrorNotSupported); }
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *result) {
    *function = strcmp(name, "cuTensorMapEncodeTiled") == 0 ? (void *)map_encode : nullptr;
    *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
cudaError_t cudaGetLastError() {
    const cudaError_t error = last;
    last = cudaSuccess;
    return error;
}
const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? "out of memory" : "an error of the GPU made of the CPU";
}

/* ---- Memory ---- */

cudaError_t cudaMalloc(void **data, size_t bytes) {
    if (bytes > MEMORY_BYTES - used_bytes) return fail(cudaErrorMemoryAllocation);
    char *all = nullptr;
    if (posix_memalign((void **)&all, ALIGN, bytes + ALIGN)) return fail(cudaErrorMemoryAllocation);
    memset(all, 0xA5, bytes + ALIGN); /* nobody may rely on zeros */
    ((block *)all)->bytes = bytes;
    used_bytes += bytes;
    *data = all + ALIGN;
    return cudaSuccess;
}
cudaError_t cudaFree(void *data) {
    if (!data) return cudaSuccess;
    char *const all = (char *)data - ALIGN;
    used_bytes -= ((block *)all)->bytes;
    free(all);
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all_bytes) {
    *free_bytes = MEMORY_BYTES - used_bytes;
    *all_bytes = MEMORY_BYTES;
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **data, size_t bytes, unsigned) {
    return posix_memalign(data, ALIGN, bytes) ? fail(cudaErrorMemoryAllocation) : cudaSuccess;
}
cudaError_t cudaFreeHost(void *data) { return free(data), cudaSuccess; }
cudaError_t cudaHostGetDevicePointer(void **on_device, void *data, unsigned) { return *on_device = data, cudaSuccess; }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *) {
    memset(attributes, 0, sizeof *attributes);
    attributes->type = cudaMemoryTypeUnregistered;
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
    memmove(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t) {
    memset(to, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t bytes, size_t rows, cudaStream_t) {
    for (size_t i = 0; i < rows; i++) memset((char *)to + i * pitch, value, bytes);
    return cudaSuccess;
}

/* ---- Streams and events ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
    return *stream = new CUstream_st(), cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    delete stream;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void *data) {
    function(data);
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) { return *event = new CUevent_st(), cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) { return event->ms = now_ms(), cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    *ms = (float)(to->ms - from->ms);
    return cudaSuccess;
}

/* ---- Graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) { return fail(cudaErrorNotSupported); }
#define NO_GRAPHS(name, ...) \
    cudaError_t name(__VA_ARGS__) { return fail(cudaErrorNotSupported); }
NO_GRAPHS(cudaStreamEndCapture, cudaStream_t, cudaGraph_t *)
NO_GRAPHS(cudaStreamGetCaptureInfo, cudaStream_t, cudaStreamCaptureStatus *, unsigned long long *, cudaGraph_t *,
          const cudaGraphNode_t **, const cudaGraphEdgeData **, size_t *)
NO_GRAPHS(cudaGraphDestroy, cudaGraph_t)
NO_GRAPHS(cudaGraphExecDestroy, cudaGraphExec_t)
NO_GRAPHS(cudaGraphInstantiate, cudaGraphExec_t *, cudaGraph_t, unsigned long long)
NO_GRAPHS(cudaGraphLaunch, cudaGraphExec_t, cudaStream_t)
NO_GRAPHS(cudaGraphNodeGetType, cudaGraphNode_t, cudaGraphNodeType *)
NO_GRAPHS(cudaGraphNodeGetDependencies, cudaGraphNode_t, cudaGraphNode_t *, cudaGraphEdgeData *, size_t *)
NO_GRAPHS(cudaGraphMemsetNodeGetParams, cudaGraphNode_t, cudaMemsetParams *)
NO_GRAPHS(cudaGraphMemcpyNodeGetParams, cudaGraphNode_t, cudaMemcpy3DParms *)
NO_GRAPHS(cudaGraphExecMemsetNodeSetParams, cudaGraphExec_t, cudaGraphNode_t, const cudaMemsetParams *)
NO_GRAPHS(cudaGraphExecMemcpyNodeSetParams, cudaGraphExec_t, cudaGraphNode_t, const cudaMemcpy3DParms *)

} /* extern "C" */

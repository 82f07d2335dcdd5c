/* libraries.cpp: cuBLASLt's product as a loop, and a cuDNN without plans, so that Tally's own attention is used. */
#include <cublasLt.h>
#include <cudnn.h>

#include <string.h>

#include <vector>

#include "gpu.h"

namespace {

struct operation {
    cublasOperation_t transposes[2] = {CUBLAS_OP_N, CUBLAS_OP_N};
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void *bias = nullptr;
    const float *scales[2] = {nullptr, nullptr};
};
struct layout {
    cudaDataType type;
    int64_t rows, columns, ld, stride = 0;
    int32_t n = 1;
};

double element_get(const void *data, cudaDataType type, int64_t i) {
    switch (type) {
    case CUDA_R_64F:
        return ((const double *)data)[i];
    case CUDA_R_32F:
        return ((const float *)data)[i];
    case CUDA_R_16F:
        return __half2float(((const __half *)data)[i]);
    case CUDA_R_16BF:
        return __bfloat162float(((const __nv_bfloat16 *)data)[i]);
    case CUDA_R_8F_E4M3:
        return (float)((const __nv_fp8_e4m3 *)data)[i];
    case CUDA_R_8F_E5M2:
        return (float)((const __nv_fp8_e5m2 *)data)[i];
    default:
        gpu_unknown("a product of this type");
    }
}
void element_put(void *data, cudaDataType type, int64_t i, double x) {
    if (type == CUDA_R_64F) ((double *)data)[i] = x;
    else if (type == CUDA_R_32F) ((float *)data)[i] = (float)x;
    else if (type == CUDA_R_16F) ((__half *)data)[i] = __float2half_rn((float)x);
    else if (type == CUDA_R_16BF) ((__nv_bfloat16 *)data)[i] = __float2bfloat16_rn((float)x);
    else gpu_unknown("a result of this type");
}

/* Matrix `batch` in rows of `inner` terms; what lies along columns is a transposed A and a plain B. */
std::vector<double> rows_of(const void *data, const layout &l, int batch, bool in_columns, int64_t n, int64_t inner) {
    std::vector<double> rows((size_t)(n * inner));
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < inner; k++)
            rows[(size_t)(i * inner + k)] =
                element_get(data, l.type, batch * l.stride + (in_columns ? i * l.ld + k : k * l.ld + i));
    return rows;
}

} /* namespace */

extern "C" {

/* ---- cuBLASLt ---- */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    *handle = (cublasLtHandle_t) new int();
    return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() { return 0; }
const char *cublasLtGetStatusString(cublasStatus_t) { return "an error of the GPU made of the CPU"; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *o, cublasComputeType_t, cudaDataType_t) {
    *o = (cublasLtMatmulDesc_t) new operation();
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t o) {
    delete (operation *)o;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t bytes) {
    operation *const o = (operation *)desc;
    if (name == CUBLASLT_MATMUL_DESC_TRANSA) memcpy(&o->transposes[0], value, bytes);
    else if (name == CUBLASLT_MATMUL_DESC_TRANSB) memcpy(&o->transposes[1], value, bytes);
    else if (name == CUBLASLT_MATMUL_DESC_EPILOGUE) memcpy(&o->epilogue, value, bytes);
    else if (name == CUBLASLT_MATMUL_DESC_BIAS_POINTER) memcpy(&o->bias, value, bytes);
    else if (name == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER) memcpy(&o->scales[0], value, bytes);
    else if (name == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER) memcpy(&o->scales[1], value, bytes);
    else if (name != CUBLASLT_MATMUL_DESC_FAST_ACCUM) return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type, uint64_t rows, uint64_t columns,
                                          int64_t ld) {
    *l = (cublasLtMatrixLayout_t) new layout{type, (int64_t)rows, (int64_t)columns, ld};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
    delete (layout *)l;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t name,
                                                const void *value, size_t bytes) {
    if (name == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) memcpy(&((layout *)l)->n, value, bytes);
    else if (name == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) memcpy(&((layout *)l)->stride, value, bytes);
    else return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
    *preference = nullptr;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void *, size_t) {
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t, cublasComputeType_t, cudaDataType_t, cudaDataType_t,
                                      cudaDataType_t, cudaDataType_t, cudaDataType_t, int, cublasLtMatmulAlgo_t *) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t *, cublasLtMatmulHeuristicResult_t *) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *, cublasLtMatmulAlgoConfigAttributes_t,
                                                    const void *, size_t) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t *results,
                                              int *n) {
    memset(results, 0, sizeof *results);
    *n = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* D = alpha A B + beta C + bias, columns being dense; sums in f64. */
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t of_a, const void *b, cublasLtMatrixLayout_t of_b, const void *beta,
                              const void *c, cublasLtMatrixLayout_t of_c, void *d, cublasLtMatrixLayout_t of_d,
                              const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t) {
    const operation &o = *(const operation *)desc;
    const layout &la = *(const layout *)of_a, &lb = *(const layout *)of_b, &lc = *(const layout *)of_c,
                 &ld = *(const layout *)of_d;
    const bool is_f64 = la.type == CUDA_R_64F, turns_a = o.transposes[0] != CUBLAS_OP_N;
    const int64_t m = ld.rows, n = ld.columns, inner = turns_a ? la.rows : la.columns;
    double factor = is_f64 ? *(const double *)alpha : *(const float *)alpha;
    const double kept = is_f64 ? *(const double *)beta : *(const float *)beta;
    for (const float *scale : o.scales)
        if (scale) factor *= *scale;
    for (int batch = 0; batch < ld.n; batch++) {
        const std::vector<double> rows_a = rows_of(a, la, batch, turns_a, m, inner);
        const std::vector<double> rows_b = rows_of(b, lb, batch, o.transposes[1] == CUBLAS_OP_N, n, inner);
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < m; i++) {
                double sum = 0;
                for (int64_t k = 0; k < inner; k++)
                    sum += rows_a[(size_t)(i * inner + k)] * rows_b[(size_t)(j * inner + k)];
                sum *= factor;
                if (kept != 0) sum += kept * element_get(c, lc.type, batch * lc.stride + j * lc.ld + i);
                if (o.epilogue == CUBLASLT_EPILOGUE_BIAS) sum += element_get(o.bias, ld.type, i);
                element_put(d, ld.type, batch * ld.stride + j * ld.ld + i, sum);
            }
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- cuDNN ---- */

size_t cudnnGetVersion() { return 0; }
const char *cudnnGetErrorString(cudnnStatus_t) { return "the cuDNN of the GPU made of the CPU has no plans"; }
cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) { return *handle = (cudnnHandle_t) new int(), CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t *) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t) { return CUDNN_STATUS_NOT_SUPPORTED; }
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t) { return CUDNN_STATUS_NOT_SUPPORTED; }
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                                       cudnnBackendAttributeType_t, int64_t, const void *) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const, cudnnBackendAttributeName_t,
                                       cudnnBackendAttributeType_t, int64_t, int64_t *, void *) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}

} /* extern "C" */

/* epilogues.cu: what cuBLASLt's fused epilogues save beside products and passes of their own, for the layers of
 * GPT-2 124M at 64 x 1024 in bf16.
 *
 *     nvcc -O2 -std=c++17 -arch=native -o build/bench/epilogues bench/epilogues.cu -lcublasLt &&
 *     build/bench/epilogues
 *
 * Everything is a row-major product out (m,n) = a (m,k) b, asked for as cuBLASLt's column-major out^T = b^T a^T.
 * Printed is the time of a call, the median of 15 after five, of the plan that the heuristic puts first and of the
 * fastest of eight; the pass that an epilogue makes unnecessary has its own figure in `tally train --profile`. */
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define OK(call)                                                             \
    do {                                                                     \
        auto status = (call);                                                \
        if ((int)status != 0) {                                              \
            std::printf("%s: %d (line %d)\n", #call, (int)status, __LINE__); \
            std::exit(1);                                                    \
        }                                                                    \
    } while (0)

static const size_t workspace_bytes = 32u << 20;
static cublasLtHandle_t handle;
static void *workspace;

static __global__ void fill(__nv_bfloat16 *x, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        unsigned h = (unsigned)i * 2654435761u;
        h ^= h >> 15;
        x[i] = __float2bfloat16((float)(h & 1023) / 512.f - 1.f);
    }
}
static __nv_bfloat16 *numbers(size_t n) {
    __nv_bfloat16 *x;
    OK(cudaMalloc(&x, 2 * n));
    fill<<<1024, 256>>>(x, n);
    return x;
}

/* out^T (n,m) = op(b) op(a), both as they lie: a (m,k) or its transpose, b (k,n) or its transpose. Milliseconds;
 * below 0: cuBLASLt has no plan. */
static double milliseconds(int m, int n, int k, bool a_turned, bool b_turned, cublasLtEpilogue_t epilogue, void *bias,
                           void *aux) {
    __nv_bfloat16 *a = numbers((size_t)m * k), *b = numbers((size_t)k * n), *out = numbers((size_t)m * n);
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t first, second, result;
    cublasLtMatmulPreference_t preference;
    cublasOperation_t turn_b = b_turned ? CUBLAS_OP_T : CUBLAS_OP_N, turn_a = a_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    OK(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    OK(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &turn_b, sizeof turn_b));
    OK(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSB, &turn_a, sizeof turn_a));
    OK(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    if (bias) OK(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    if (aux) {
        int64_t step = n;
        OK(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux));
        OK(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &step, sizeof step));
    }
    OK(cublasLtMatrixLayoutCreate(&first, CUDA_R_16BF, b_turned ? k : n, b_turned ? n : k, b_turned ? k : n));
    OK(cublasLtMatrixLayoutCreate(&second, CUDA_R_16BF, a_turned ? m : k, a_turned ? k : m, a_turned ? m : k));
    OK(cublasLtMatrixLayoutCreate(&result, CUDA_R_16BF, n, m, n));
    OK(cublasLtMatmulPreferenceCreate(&preference));
    OK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                                            sizeof workspace_bytes));
    cublasLtMatmulHeuristicResult_t plans[8];
    int n_plans = 0;
    cublasLtMatmulAlgoGetHeuristic(handle, product, first, second, result, result, preference, 8, plans, &n_plans);
    double best = -1, first_choice = -1;
    const float one = 1, zero = 0;
    cudaEvent_t begin, end;
    OK(cudaEventCreate(&begin));
    OK(cudaEventCreate(&end));
    for (int p = 0; p < n_plans; p++) {
        std::vector<float> times;
        for (int i = 0; i < 20; i++) {
            float ms = 0;
            OK(cudaEventRecord(begin));
            OK(cublasLtMatmul(handle, product, &one, b, first, a, second, &zero, out, result, out, result,
                              &plans[p].algo, workspace, workspace_bytes, 0));
            OK(cudaEventRecord(end));
            OK(cudaEventSynchronize(end));
            OK(cudaEventElapsedTime(&ms, begin, end));
            if (i >= 5) times.push_back(ms);
        }
        std::sort(times.begin(), times.end());
        const double ms = times[times.size() / 2];
        if (p == 0) first_choice = ms;
        if (best < 0 || ms < best) best = ms;
    }
    std::printf("  %8.3f ms, the best of %d plans %8.3f", first_choice, n_plans, best);
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatrixLayoutDestroy(first), cublasLtMatrixLayoutDestroy(second), cublasLtMatrixLayoutDestroy(result);
    cublasLtMatmulDescDestroy(product);
    cudaFree(a), cudaFree(b), cudaFree(out);
    return first_choice;
}

int main(void) {
    const int tokens = 65536, C = 768, F = 3072;
    OK(cublasLtCreate(&handle));
    OK(cudaMalloc(&workspace, workspace_bytes));
    void *bias = numbers(F), *aux = numbers((size_t)tokens * F);
    struct {
        const char *name;
        int m, n, k;
        bool a_turned, b_turned;
        cublasLtEpilogue_t epilogue;
    } rows[] = {
        {"mlp up, forward", tokens, F, C, false, true, CUBLASLT_EPILOGUE_DEFAULT},
        {"  with its bias", tokens, F, C, false, true, CUBLASLT_EPILOGUE_BIAS},
        {"  with bias and GELU, input of GELU kept", tokens, F, C, false, true, CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
        {"mlp down, gradient of its input", tokens, F, C, false, false, CUBLASLT_EPILOGUE_DEFAULT},
        {"  times GELU's slope", tokens, F, C, false, false, CUBLASLT_EPILOGUE_DGELU},
        {"  times GELU's slope, and the bias's gradient", tokens, F, C, false, false, CUBLASLT_EPILOGUE_DGELU_BGRAD},
        {"mlp up, gradient of its weight", F, C, tokens, true, false, CUBLASLT_EPILOGUE_DEFAULT},
        {"  and the bias's gradient", F, C, tokens, true, false, CUBLASLT_EPILOGUE_BGRADB},
        {"mlp down, gradient of its weight", C, F, tokens, true, false, CUBLASLT_EPILOGUE_DEFAULT},
        {"  and the bias's gradient", C, F, tokens, true, false, CUBLASLT_EPILOGUE_BGRADB},
        {"q, k, v, gradient of their weight", 3 * C, C, tokens, true, false, CUBLASLT_EPILOGUE_DEFAULT},
        {"  and the bias's gradient", 3 * C, C, tokens, true, false, CUBLASLT_EPILOGUE_BGRADB},
    };
    for (const auto &row : rows) {
        const bool has_aux = row.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
                             row.epilogue == CUBLASLT_EPILOGUE_DGELU || row.epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD;
        const bool has_bias = row.epilogue != CUBLASLT_EPILOGUE_DEFAULT && row.epilogue != CUBLASLT_EPILOGUE_DGELU;
        std::printf("%-46s", row.name);
        milliseconds(row.m, row.n, row.k, row.a_turned, row.b_turned, row.epilogue, has_bias ? bias : nullptr,
                     has_aux ? aux : nullptr);
        std::printf("\n");
    }
    return 0;
}

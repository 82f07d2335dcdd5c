/* loss.cu: the gather of losses from log-probabilities, and binary cross entropy. log_softmax is in reduce.cu. */
#include "device/cuda/shared/common.cuh"

/* A target outside [0,V) is recorded as a fault, and its row gets 0. */
__global__ void __launch_bounds__(BLOCK)
    nll_rows(const void *x, tl_dtype dtype, const void *targets, tl_dtype targets_dtype, int64_t n_rows, int64_t V,
             void *out, struct cuda_fault *fault) {
    FOR_EACH(row, n_rows) {
        const int64_t target = id_at(targets, targets_dtype, row);
        const bool is_good = target >= 0 && target < V;
        if (!is_good) fault_raise(fault, FAULT_NLL, target, V);
        store_as<double>(out, row, dtype, is_good ? -load_as<double>(x, row * V + target, dtype) : 0.0);
    }
}

/* Into zeros. */
__global__ void __launch_bounds__(BLOCK)
    nll_grad_rows(const void *g, tl_dtype g_dtype, const void *targets, tl_dtype targets_dtype, int64_t n_rows,
                  int64_t V, void *out, tl_dtype dtype, struct cuda_fault *fault) {
    FOR_EACH(row, n_rows) {
        const int64_t target = id_at(targets, targets_dtype, row);
        if (target >= 0 && target < V)
            store_as<double>(out, row * V + target, dtype, -load_as<double>(g, row, g_dtype));
        else fault_raise(fault, FAULT_NLL_GRAD, target, V);
    }
}

/* (1 - t) x + max(-x, 0) + log(1 + e^-|x|), in f64 */
__global__ void __launch_bounds__(BLOCK) bce_any(geometry<3> g, void *out, tl_dtype out_dtype, const void *x,
                                                 tl_dtype x_dtype, const void *t, tl_dtype t_dtype) {
    FOR_EACH(i, g.numel) {
        int64_t at[3];
        offsets_of(g, i, at);
        const double a = load_as<double>(x, at[1], x_dtype), b = load_as<double>(t, at[2], t_dtype);
        store_as<double>(out, at[0], out_dtype, (1 - b) * a + (a < 0 ? -a : 0) + log1p(exp(-fabs(a))));
    }
}

extern "C" {

bool cuda_nll(const tl_kernel_args *args) {
    const tl_operand *x = &args->in[0], *targets = &args->in[1];
    if (!operands_known(args) || !ids_known(args, targets)) return false;
    const int64_t n_rows = x->shape[0];
    if (n_rows == 0) return true;
    nll_rows<<<blocks_for(n_rows), BLOCK, 0, stream_of(args)>>>(x->data, x->dtype, targets->data, targets->dtype,
                                                                n_rows, x->shape[1], args->out[0].data, fault_of(args));
    return true;
}

bool cuda_nll_grad(const tl_kernel_args *args) {
    const tl_operand *g = &args->in[0], *targets = &args->in[1], *out = &args->out[0];
    if (!operands_known(args) || !ids_known(args, targets)) return false;
    const int64_t n_rows = out->shape[0], bytes = operand_numel(out) * dtype_bytes(out->dtype);
    if (n_rows == 0) return true;
    if (bytes > 0 && !cuda_check(cudaMemsetAsync(out->data, 0, (size_t)bytes, stream_of(args)), args->op, args->error))
        return false;
    nll_grad_rows<<<blocks_for(n_rows), BLOCK, 0, stream_of(args)>>>(
        g->data, g->dtype, targets->data, targets->dtype, n_rows, out->shape[1], out->data, out->dtype, fault_of(args));
    return true;
}

bool cuda_bce(const tl_kernel_args *args) {
    if (!operands_known(args)) return false;
    const tl_operand *const list[3] = {&args->out[0], &args->in[0], &args->in[1]};
    const geometry<3> g = geometry_of<3>(list);
    if (g.numel == 0) return true;
    bce_any<<<blocks_for(g.numel), BLOCK, 0, stream_of(args)>>>(g, list[0]->data, list[0]->dtype, list[1]->data,
                                                                list[1]->dtype, list[2]->data, list[2]->dtype);
    return true;
}

} /* extern "C" */

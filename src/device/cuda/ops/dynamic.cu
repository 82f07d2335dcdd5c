/* dynamic.cu: nonzero: the indices of elements that are not 0. */
#include "device/cuda/shared/prefix_scan.cuh"

enum { EACH = 8 }; /* elements of a thread, side by side */

/* One block, so that positions come out in order without a second pass. The indices of a position follow from x's
 * shape. */
__global__ void __launch_bounds__(1024)
    nonzero_all(geometry<1> g, const void *x, tl_dtype dtype, int rank, geometry<1> shape, int64_t n, int64_t *out,
                struct cuda_fault *fault) {
    __shared__ int64_t room[32];
    int64_t before = 0;
    for (int64_t tile = 0; tile < g.numel; tile += (int64_t)blockDim.x * EACH) {
        const int64_t first = tile + (int64_t)threadIdx.x * EACH;
        unsigned found = 0;
        for (int j = 0; j < EACH && first + j < g.numel; j++) {
            int64_t at[1];
            offsets_of(g, first + j, at);
            found |= (unsigned)(load_as<double>(x, at[0], dtype) != 0) << j;
        }
        int64_t all;
        int64_t place = before + block_scan((int64_t)__popc(found), sum_of(), room, &all) - __popc(found);
        for (int j = 0; j < EACH; j++) {
            if (!(found >> j & 1)) continue;
            int64_t rest = first + j;
            for (int axis = rank - 1; axis >= 0 && place < n; axis--) {
                out[place * rank + axis] = rest % shape.size[axis];
                rest /= shape.size[axis];
            }
            place++;
        }
        before += all;
    }
    if (before != n && threadIdx.x == 0) fault_raise(fault, FAULT_COUNT, n, before);
}

extern "C" bool cuda_nonzero(const tl_kernel_args *args) {
    const tl_operand *x = &args->in[0];
    const tl_operand *const list[1] = {x};
    if (!operands_known(args)) return false;
    const geometry<1> g = geometry_of<1>(list);
    if (g.numel == 0) return true;
    geometry<1> shape = {}; /* x's own, nothing merged */
    for (int i = 0; i < x->rank; i++) shape.size[i] = x->shape[i];
    nonzero_all<<<1, 1024, 0, stream_of(args)>>>(g, x->data, x->dtype, x->rank, shape,
                                                 ((const struct attr_nonzero *)args->attr)->n,
                                                 (int64_t *)args->out[0].data, fault_of(args));
    return true;
}

/* kernels.h: every kernel of this plugin, `cuda_NAME` for the row NAME of op_list.h. Their contracts are in
 * spec/attr.h.
 *
 * A kernel only enqueues work on args->stream, unless it is one of those that wait. Launch errors are checked in one
 * place, cuda_run in state.c, so kernels return true after launching. If one returns false, args->error says why.
 */
#ifndef CUDA_KERNELS_H
#define CUDA_KERNELS_H

#include "tally.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DECLARE_VIEW(name)
#define DECLARE_TRANSFER(name)
#define DECLARE_KERNEL(name) bool cuda_##name(const tl_kernel_args *args);
#define DECLARE_DYNAMIC(name) bool cuda_##name(const tl_kernel_args *args);
#define OP(kind, name) DECLARE_##kind(name)
#include "spec/op_list.h"
#undef OP
#undef DECLARE_VIEW
#undef DECLARE_TRANSFER
#undef DECLARE_KERNEL
#undef DECLARE_DYNAMIC

extern const tl_kernel cuda_kernel_table[]; /* by op id */

#ifdef __cplusplus
}
#endif

/* Of one element; the two f4 of a byte count as one. */
static inline int dtype_bytes(tl_dtype dtype) {
    switch (dtype) {
    case TL_F64:
    case TL_I64:
        return 8;
    case TL_F32:
    case TL_I32:
        return 4;
    case TL_F16:
    case TL_BF16:
    case TL_I16:
    case TL_U16:
        return 2;
    default:
        return 1;
    }
}

#endif

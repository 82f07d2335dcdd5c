/* kernels.c: the kernel table, in op_list.h order. */
#include "device/cuda/shared/kernels.h"
#include "device/cuda/shared/state.h"

/* Whether a kernel reads results back before it returns, beside those of dynamic ops, which do: factorisations that
 * may fail, or that go on until they have converged. */
static bool waits(tl_kernel kernel) {
    static const tl_kernel waiting[] = {cuda_cholesky, cuda_lu, cuda_solve, cuda_inv, cuda_eigh, cuda_svd};
    for (size_t i = 0; i < sizeof waiting / sizeof *waiting; i++)
        if (kernel == waiting[i]) return true;
    return false;
}

static bool enter(const tl_kernel_args *args, tl_kernel kernel) {
    return waits(kernel) ? cuda_run_waiting(args, kernel) : cuda_run(args, kernel);
}

/* One entry function per op, so that every kernel is entered through cuda_run or cuda_run_waiting. */
#define ENTER_VIEW(name)
#define ENTER_TRANSFER(name)
#define ENTER_KERNEL(name) \
    static bool enter_##name(const tl_kernel_args *args) { return enter(args, cuda_##name); }
#define ENTER_DYNAMIC(name) \
    static bool enter_##name(const tl_kernel_args *args) { return cuda_run_waiting(args, cuda_##name); }
#define OP(kind, name) ENTER_##kind(name)
#include "spec/op_list.h"
#undef OP

#define ROW_VIEW(name) NULL,
#define ROW_TRANSFER(name) NULL,
#define ROW_KERNEL(name) enter_##name,
#define ROW_DYNAMIC(name) enter_##name,
#define OP(kind, name) ROW_##kind(name)
const tl_kernel cuda_kernel_table[] = {
#include "spec/op_list.h"
};
#undef OP

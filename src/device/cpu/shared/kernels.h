/* kernels.h: every cpu kernel, one prototype per KERNEL and DYNAMIC row of op_list.h: bool cpu_NAME(args).
 * spec/attr.h says what each must do. */
#ifndef TALLY_DEVICE_CPU_KERNELS_H
#define TALLY_DEVICE_CPU_KERNELS_H

#include "tally.h"

#define CPU_DECLARE_VIEW(name)
#define CPU_DECLARE_TRANSFER(name)
#define CPU_DECLARE_KERNEL(name) bool cpu_##name(const tl_kernel_args *args);
#define CPU_DECLARE_DYNAMIC(name) bool cpu_##name(const tl_kernel_args *args);
#define OP(kind, name) CPU_DECLARE_##kind(name)
#include "spec/op_list.h"
#undef OP
#undef CPU_DECLARE_VIEW
#undef CPU_DECLARE_TRANSFER
#undef CPU_DECLARE_KERNEL
#undef CPU_DECLARE_DYNAMIC

/* By op id, that is in the order of op_list.h; NULL for views and transfers. Of the baseline: see isa.h. */
extern const tl_kernel cpu_kernels[];

#endif

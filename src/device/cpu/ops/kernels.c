/* kernels.c: the cpu's kernel table. A row of op_list.h without its cpu_NAME is a link error here. Compiled once
 * per instruction set, as all kernels are; the set gives the table its name (isa.c). */
#include "device/cpu/shared/kernels.h"

#ifndef CPU_KERNELS
#define CPU_KERNELS cpu_kernels
#endif
extern const tl_kernel CPU_KERNELS[];

#define CPU_ENTRY_VIEW(name) NULL
#define CPU_ENTRY_TRANSFER(name) NULL
#define CPU_ENTRY_KERNEL(name) cpu_##name
#define CPU_ENTRY_DYNAMIC(name) cpu_##name

const tl_kernel CPU_KERNELS[] = {
#define OP(kind, name) CPU_ENTRY_##kind(name),
#include "spec/op_list.h"
#undef OP
};

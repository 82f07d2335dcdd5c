/* kernels.c: the cpu's kernel table. A row of op_list.h without its cpu_NAME is a link error here. */
#include "device/cpu/kernels.h"

#define CPU_ENTRY_VIEW(name) NULL
#define CPU_ENTRY_TRANSFER(name) NULL
#define CPU_ENTRY_KERNEL(name) cpu_##name
#define CPU_ENTRY_DYNAMIC(name) cpu_##name

const tl_kernel cpu_kernels[] = {
#define OP(kind, name) CPU_ENTRY_##kind(name),
#include "ops/op_list.h"
#undef OP
};

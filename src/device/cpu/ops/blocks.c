/* blocks.c: products with a weight in a block-scaled format. gemm.c unpacks it as it packs the weight's panels, or, for
 * a few rows of x, as it reads its lines. */
#include "device/cpu/shared/unpack.h"
#include "base/scratch.h"
#include "device/cpu/shared/block.h"
#include "device/cpu/shared/gemm.h"
#include "device/cpu/shared/gemm_sizes.h"
#include "device/cpu/shared/kernels.h"
#include "spec/attr.h"

bool cpu_matmul_blocks(const tl_kernel_args *args) {
    const struct attr_matmul_blocks *attr = args->attr;
    const tl_operand *x = &args->in[0], *values = &args->in[1], *out = &args->out[0];
    const int64_t m = block_rows(x), k = x->shape[x->rank - 1], n = out->shape[out->rank - 1];
    SCRATCH(struct blocks, blocks);
    blocks_begin(blocks, attr->format, x->dtype, values->data, args->in[2].data, args->in[3].data);
    const struct gemm g = {.a = {.data = x->data, .dtype = x->dtype, .stride = k, .k_stride = 1},
                           .b = {.dtype = x->dtype,
                                 .stride = attr->transpose_b ? k : 1,
                                 .k_stride = attr->transpose_b ? 1 : n,
                                 .blocks = blocks},
                           .out = out->data,
                           .out_dtype = out->dtype,
                           .out_step = n,
                           .m = m,
                           .n = n,
                           .k = k,
                           .is_fast = attr->is_fast};
    const struct gemm_sizes sizes = {1, m, n, k};
    if (gemm_is_small(&sizes) && !gemm_is_thin(m, n)) gemm_multiply_small(&g);
    else gemm_multiply(&g, args->workspace, args->n_threads);
    return true;
}

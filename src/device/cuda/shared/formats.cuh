/* formats.cuh: the table of block-scaled formats. The plugin uses no symbol of the library, so it has one of its
 * own. */
#ifndef CUDA_FORMATS_CUH
#define CUDA_FORMATS_CUH

#include "tensor/format.h"

static inline struct format_info format_of(tl_format format) {
    switch (format) {
#define ROW(number, name, values, scales, block, max_exponent, has_tensor_scale, has_codes) \
    case number:                                                                            \
        return {name, values, scales, block, max_exponent, has_tensor_scale, has_codes};
        FORMAT_LIST(ROW)
#undef ROW
    default:
        return {};
    }
}

__device__ const float nf4[NF4_CODES] = {NF4_LIST};

#endif

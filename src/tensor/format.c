/* format.c: the table of block-scaled formats. */
#include "tensor/format.h"

#include <stddef.h>

static const struct format_info format_table[TL_FORMAT_COUNT] = {
    [TL_MXFP8_E4M3] = {.name = "mxfp8_e4m3", .values = TL_F8E4M3, .scales = TL_F8E8M0, .block = 32, .max_exponent = 8},
    [TL_MXFP8_E5M2] = {.name = "mxfp8_e5m2", .values = TL_F8E5M2, .scales = TL_F8E8M0, .block = 32, .max_exponent = 15},
    [TL_MXFP4] = {.name = "mxfp4", .values = TL_F4E2M1, .scales = TL_F8E8M0, .block = 32, .max_exponent = 2},
    [TL_NVFP4] = {.name = "nvfp4",
                  .values = TL_F4E2M1,
                  .scales = TL_F8E4M3,
                  .block = 16,
                  .max_exponent = 2,
                  .has_tensor_scale = true},
};

const struct format_info *format_info(tl_format format) {
    return (unsigned)format < TL_FORMAT_COUNT ? &format_table[format] : NULL;
}

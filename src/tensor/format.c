/* format.c: the table of block-scaled formats. */
#include "tensor/format.h"

#include <stddef.h>

#define ROW(number, name, values, scales, block, max_exponent, has_tensor_scale, has_codes) \
    [number] = {name, values, scales, block, max_exponent, has_tensor_scale, has_codes},
static const struct format_info format_table[TL_FORMAT_COUNT] = {FORMAT_LIST(ROW)};

const struct format_info *format_info(tl_format format) {
    return (unsigned)format < TL_FORMAT_COUNT ? &format_table[format] : NULL;
}

const char *tl_format_name(tl_format format) { return format_info(format) ? format_info(format)->name : "?"; }
int tl_format_block(tl_format format) { return format_info(format) ? format_info(format)->block : 0; }

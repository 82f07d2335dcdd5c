/* dtypes.c: questions about dtypes and formats. No op is called. */
#include "base/error.h"
#include "tensor/dtype.h"
#include "tensor/format.h"

#include <math.h>
#include <string.h>

tl_float_info tl_finfo(tl_dtype dtype) {
    tl_float_info answer;
    memset(&answer, 0, sizeof answer);
    const struct dtype_info *info = dtype_info(dtype);
    if (!info || info->kind != DTYPE_FLOAT) {
        error_set(TL_ERROR_USE, "finfo: requires a floating point dtype, not %s (need tl_iinfo)", tl_dtype_name(dtype));
        return answer;
    }
    /* The decimal digits that survive the way there and back; a table, since pow() need not be exact. */
    static const double resolution[] = {1,    1e-1, 1e-2,  1e-3,  1e-4,  1e-5,  1e-6,  1e-7,
                                        1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15};
    answer.name = info->torch_name;
    answer.bits = info->bits;
    answer.eps = info->eps;
    answer.max = info->max;
    answer.min = info->min;
    answer.tiny = answer.smallest_normal = info->tiny;
    answer.smallest_subnormal = info->smallest_subnormal;
    answer.resolution = resolution[(int)floor(info->mantissa_bits * log10(2))];
    return answer;
}

tl_integer_info tl_iinfo(tl_dtype dtype) {
    tl_integer_info answer;
    memset(&answer, 0, sizeof answer);
    const struct dtype_info *info = dtype_info(dtype);
    if (!info || info->kind == DTYPE_FLOAT || info->kind == DTYPE_BOOL) {
        error_set(TL_ERROR_USE, "iinfo: requires an integer dtype, not %s%s", tl_dtype_name(dtype),
                  info && info->kind == DTYPE_FLOAT ? " (need tl_finfo)" : "");
        return answer;
    }
    answer.name = info->torch_name;
    answer.bits = info->bits;
    answer.min = info->integer_min;
    answer.max = info->integer_max;
    return answer;
}

tl_dtype tl_promote(tl_dtype a, tl_dtype b) {
    tl_dtype both = dtype_promote(a, b);
    if (both == TL_DTYPE_COUNT)
        error_set(TL_ERROR_USE, "promote: there is no common dtype of %s and %s (need a cast of one of them)",
                  tl_dtype_name(a), tl_dtype_name(b));
    return both;
}

const char *tl_format_name(tl_format format) { return format_info(format) ? format_info(format)->name : "?"; }
int tl_format_block(tl_format format) { return format_info(format) ? format_info(format)->block : 0; }

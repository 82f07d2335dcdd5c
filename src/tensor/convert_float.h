/* convert_float.h: the element functions that every float up to f32 derives from three of its own:
 * <name>_to_f32 (exact), <name>_from_f32 and <name>_encode. A template, included by convert.c with the
 * macros of convert_loops.h set; it ends by including that one. */

#define NAME_PASTE(dtype, suffix) dtype##_##suffix
#define NAME_EXPAND(dtype, suffix) NAME_PASTE(dtype, suffix)
#define NAME(suffix) NAME_EXPAND(CONVERT_DTYPE, suffix)

static inline double NAME(to_f64)(CONVERT_STORED code) { return (double)NAME(to_f32)(code); }

static inline int64_t NAME(to_i64)(CONVERT_STORED code) { return truncate_i64((double)NAME(to_f32)(code)); }

static inline CONVERT_STORED NAME(from_f64)(double value) { return NAME(from_f32)(f64_to_f32_odd(value)); }

static inline CONVERT_STORED NAME(from_i64)(int64_t value) {
    return NAME(encode)(i64_to_f64_odd(value), CONVERT_NEAREST, 0);
}

#undef NAME
#undef NAME_EXPAND
#undef NAME_PASTE

#define CONVERT_ROUNDED
#define CONVERT_ODD
#include "tensor/convert_loops.h"

/* autocast.h: products in a narrow dtype, sums and losses in f32, without a cast in the program.
 *
 * While tl_set_autocast is on, two kinds of calls cast their inputs, by ordinary casts that are recorded and billed:
 * functions that multiply matrices cast to the narrow dtype (autocast_narrow); ops whose record says `is_wide` get
 * f32 from op_apply, and losses made of several ops cast to it (autocast_wide). f64, 8-bit and 4-bit floats stay as
 * they are. Rules of gradients run with autocast off: the casts of the forward pass have gradients of their own. */
#ifndef ENGINE_AUTOCAST_H
#define ENGINE_AUTOCAST_H

#include "engine/apply.h"

/* x, or its cast. NULL stays NULL. */
tl_tensor *autocast_narrow(tl_tensor *x);
tl_dtype autocast_narrow_dtype(const tl_tensor *x); /* which dtype it will have */
tl_tensor *autocast_wide(tl_tensor *x);

/* Casts the inputs of a call of a wide op; false: error recorded. */
bool autocast_call(tl_call *c);

#endif

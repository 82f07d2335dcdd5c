/* scaler.c: the loss scale of f16 training.
 *
 * f16 gradients below 6e-8 vanish, so the loss is multiplied by a scale, as large as it can be without overflow.
 * Overflow shows in the gradients' norm. The step that overflows guards itself (tl_clip_scale is NaN, the update
 * changes nothing); the host learns of it when it reads the norm, which it does one step late so that it never waits
 * for the device. The next step is thus made with the old scale too, and may be lost as well: a report says which
 * scale it speaks of, and of several lost steps under one scale only the first lowers it.
 */
#include <math.h>

#include "base/error.h"

tl_scaler tl_scaler_defaults(void) {
    return (tl_scaler){.scale = 65536, .growth = 2, .backoff = 0.5, .growth_interval = 2000, .max_scale = 0x1p24};
}

bool tl_scaler_update(tl_scaler *s, double norm, double scale) {
    if (!s) return error_set(TL_ERROR_USE, "tl_scaler_update: got NULL instead of a scaler");
    const bool is_finite = isfinite(norm), is_current = scale == s->scale;
    if (!is_finite) {
        s->n_skipped++;
        s->n_good = 0;
        /* Below 1 there is nothing to gain: what overflows unscaled is no matter of f16's range. */
        if (is_current) s->scale = s->scale * s->backoff > 1 ? s->scale * s->backoff : 1;
        return false;
    }
    if (is_current && ++s->n_good >= s->growth_interval) {
        s->n_good = 0;
        if (s->scale * s->growth <= s->max_scale) s->scale *= s->growth;
    }
    return true;
}

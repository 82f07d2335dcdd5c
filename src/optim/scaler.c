/* scaler.c: the loss scale of f16 training.
 *
 * f16 gradients below 6e-8 vanish, so the loss is multiplied by a scale, as large as it can be without overflow.
 * Overflow shows in the gradients' norm. A step that overflows changes nothing (tl_clip_scale is NaN, so the update
 * skips it). The host notices when it reads the norm, which it does one step late so that it never waits for the
 * device. The next step therefore runs with the old scale too, and may be lost as well: a report names its scale, and
 * of several lost steps under one scale only the first lowers it.
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
        /* Below 1 there is nothing to gain: gradients that overflow unscaled are not a matter of f16's range. */
        if (is_current) s->scale = s->scale * s->backoff > 1 ? s->scale * s->backoff : 1;
        return false;
    }
    if (is_current && ++s->n_good >= s->growth_interval) {
        s->n_good = 0;
        if (s->scale * s->growth <= s->max_scale) s->scale *= s->growth;
    }
    return true;
}

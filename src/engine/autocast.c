#include "engine/autocast.h"

#include "base/error.h"
#include "engine/inner_calls.h"
#include "engine/scope.h"

/* thread_state.autocast is the dtype + 1, so that zero is off. */

tl_dtype tl_set_autocast(tl_dtype dtype) {
    struct thread_state *s = thread_state();
    tl_dtype before = s->autocast ? (tl_dtype)(s->autocast - 1) : TL_DTYPE_COUNT;
    if (dtype == TL_DTYPE_COUNT) s->autocast = 0;
    else if (dtype == TL_F32 || dtype == TL_F16 || dtype == TL_BF16) s->autocast = (uint8_t)(dtype + 1);
    else
        error_set(TL_ERROR_USE, "tl_set_autocast: %s is no dtype to multiply in (need bf16, f16 or f32)",
                  tl_dtype_name(dtype));
    return before;
}

static bool is_eligible(const tl_tensor *x) { return x->dtype == TL_F32 || x->dtype == TL_F16 || x->dtype == TL_BF16; }

tl_dtype autocast_narrow_dtype(const tl_tensor *x) {
    const uint8_t on = thread_state()->autocast;
    return on && is_eligible(x) ? (tl_dtype)(on - 1) : x->dtype;
}

tl_tensor *autocast_narrow(tl_tensor *x) {
    return x && thread_state()->autocast && is_eligible(x) ? inner_calls.cast(x, autocast_narrow_dtype(x)) : x;
}

tl_tensor *autocast_wide(tl_tensor *x) {
    return thread_state()->autocast && x && is_eligible(x) ? inner_calls.cast(x, TL_F32) : x;
}

bool autocast_call(tl_call *c) {
    for (int i = 0; i < c->n_inputs; i++) {
        if (!c->input[i]) continue; /* refused by the call's own check */
        c->input[i] = autocast_wide(c->input[i]);
        if (!c->input[i]) return false;
    }
    return true;
}

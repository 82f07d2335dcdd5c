/* init.c: the initial values of parameters.
 *
 * A linear layer sums fan_in products, so with weights of deviation s its results have deviation s sqrt(fan_in): for
 * a scale that does not depend on the width, s must be about 1/sqrt(fan_in). Every rule below is this idea with
 * another constant. */
#include <math.h>

#include "base/error.h"
#include "tally.h"

static bool fans(tl_tensor *x, const char *what, double *fan_in, double *fan_out) {
    if (!x) return false;
    if (tl_rank(x) < 2)
        return error_set(TL_ERROR_USE, "%s: fan_in and fan_out need two axes, not %d", what, tl_rank(x));
    double rest = 1;
    for (int i = 2; i < tl_rank(x); i++) rest *= (double)tl_size(x, i);
    *fan_in = (double)tl_size(x, 1) * rest;
    *fan_out = (double)tl_size(x, 0) * rest;
    return true;
}

/* Numbers of this deviation: normal ones, or uniform ones, whose range is sqrt(3) times as wide. */
static tl_tensor *fill(tl_tensor *x, double std, bool is_uniform) {
    bool mode = tl_set_grad_mode(false);
    double range = sqrt(3) * std;
    x = is_uniform ? tl_uniform_(x, -range, range) : tl_normal_(x, 0, std);
    tl_set_grad_mode(mode);
    return x;
}

static tl_tensor *xavier(tl_tensor *x, double gain, bool is_uniform, const char *what) {
    double fan_in, fan_out;
    return fans(x, what, &fan_in, &fan_out) ? fill(x, gain * sqrt(2 / (fan_in + fan_out)), is_uniform) : NULL;
}

static tl_tensor *kaiming(tl_tensor *x, double slope, tl_fan fan, bool is_uniform, const char *what) {
    double fan_in, fan_out;
    if (!fans(x, what, &fan_in, &fan_out)) return NULL;
    return fill(x, sqrt(2 / ((1 + slope * slope) * (fan == TL_FAN_IN ? fan_in : fan_out))), is_uniform);
}

tl_tensor *tl_init_xavier_uniform_(tl_tensor *x, double gain) {
    return xavier(x, gain, true, "tl_init_xavier_uniform_");
}
tl_tensor *tl_init_xavier_normal_(tl_tensor *x, double gain) {
    return xavier(x, gain, false, "tl_init_xavier_normal_");
}
tl_tensor *tl_init_kaiming_uniform_(tl_tensor *x, double slope, tl_fan fan) {
    return kaiming(x, slope, fan, true, "tl_init_kaiming_uniform_");
}
tl_tensor *tl_init_kaiming_normal_(tl_tensor *x, double slope, tl_fan fan) {
    return kaiming(x, slope, fan, false, "tl_init_kaiming_normal_");
}

#include "plan/ladder.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "step/ramp.h"
#include "step/trainer.h"

/* Widths are multiples of this: of a head, or of as many as share keys and values. Narrow models have smaller heads, so
 * that there are enough widths. */
struct unit {
    int64_t head, group;
};

static struct unit unit_of(const tl_model_config *c, int64_t n_widths) {
    struct unit u = {c->head_size, c->n_heads / c->n_kv_heads};
    while (u.head > 8 && u.head % 16 == 0 && c->channels / (u.head * u.group) < n_widths) u.head /= 2;
    return u;
}

static void width_set(struct settings *s, struct unit u, int64_t channels, double rate) {
    s->channels = channels;
    s->heads = channels / u.head;
    s->kv_heads = u.group > 1 ? s->heads / u.group : 0;
    s->ff = 0;
    s->lr = rate;
}

/* The model of this width; false: it cannot be, and that is recorded. */
static bool parameters_of(const struct settings *s, double *parameters) {
    tl_model_config c;
    char weights[SETTING_TEXT];
    if (!trainer_model(s, &c, weights)) return false;
    *parameters = (double)tl_model_config_active_parameters(&c);
    return true;
}

/* The rung whose parameters are nearest to these, in proportion; the widths above `after` alone. */
static bool rung_find(struct ladder_rung *r, const struct settings *base, struct unit u, int64_t widest, int64_t after,
                      double parameters) {
    const int64_t step = u.head * u.group;
    double nearest = INFINITY;
    for (int64_t channels = (after / step + 1) * step; channels <= 64 * widest; channels += step) {
        struct ladder_rung here = {.settings = *base, .loss = NAN};
        width_set(&here.settings, u, channels, base->lr * sqrt((double)widest / (double)channels));
        if (!parameters_of(&here.settings, &here.parameters)) return false;
        const double distance = fabs(log(here.parameters / parameters));
        if (distance >= nearest) break;
        nearest = distance;
        *r = here;
    }
    return isfinite(nearest);
}

/* Steps for its tokens, and a folder of its own. */
static bool rung_finish(struct ladder_rung *r, const struct settings *base, const char *name, double tokens_per_param) {
    struct settings *s = &r->settings;
    const double batch = (double)s->batch * (double)s->seq, half = (double)s->accum / 2; /* to the nearest step */
    s->steps = (int64_t)fmax(ramp_steps_for(s, fmax(tokens_per_param * r->parameters / batch - half, 0)), 1);
    r->tokens = (double)ramp_batches(s, s->steps) * batch;
    r->flops = 6 * r->parameters * r->tokens;
    const int length = snprintf(s->out, sizeof s->out, "%s/%s", base->out, name);
    return (size_t)length < sizeof s->out || error_set(TL_ERROR_USE, "out: the name of the folder is too long");
}

/* All runs have the same held-out data: of the built-in stories, as many as the longest of them needs. */
static void data_set(struct ladder *l, const struct settings *base) {
    const double longest = l->rung[l->n].tokens, share = 1 - base->val_share;
    for (int i = 0; i <= l->n; i++)
        if (!strcmp(base->data, "builtin") && !base->stories)
            l->rung[i].settings.stories = (int64_t)fmin(ceil(longest * 1.1 / share / 65536) * 65536, 67108864);
}

bool ladder_make(struct ladder *l, const struct settings *base, const struct ladder_options *o) {
    tl_model_config c;
    char weights[SETTING_TEXT], name[32];
    double widest;
    memset(l, 0, sizeof *l);
    l->n = (int)o->rungs;
    if (!trainer_model(base, &c, weights)) return false;
    if (*weights)
        return error_set(TL_ERROR_USE,
                         "model: %s has weights, and a ladder begins with none (give a preset or a "
                         "config.json)",
                         base->model);
    widest = (double)tl_model_config_active_parameters(&c);
    const struct unit u = unit_of(&c, o->rungs + 2);
    int64_t after = 0;
    for (int i = 0; i <= l->n; i++) {
        const double flops = i == l->n ? o->predict : pow(o->ratio, i - l->n + 1); /* C grows as N^2 */
        if (!rung_find(&l->rung[i], base, u, c.channels, after, widest * sqrt(flops))) {
            if (tl_error() != TL_OK) return false;
            return error_set(TL_ERROR_USE, "no width above %" PRId64 " is near %.0f parameters", after,
                             widest * sqrt(flops));
        }
        after = l->rung[i].settings.channels;
        if (i < l->n) snprintf(name, sizeof name, "rung-%d", i + 1);
        /* widths are coarse: the run to predict gets its FLOPs by its tokens */
        const double exact = i < l->n ? 0 : o->predict * l->rung[l->n - 1].flops / 6 / pow(l->rung[i].parameters, 2);
        if (!rung_finish(&l->rung[i], base, i < l->n ? name : "predicted", exact > 0 ? exact : o->tokens_per_param))
            return false;
    }
    if (l->rung[l->n - 1].settings.channels > c.channels)
        return error_set(TL_ERROR_USE,
                         "%d rungs do not fit below %" PRId64 " channels in steps of %" PRId64
                         " (give fewer --rungs, a larger --ratio, or a wider model)",
                         l->n, c.channels, u.head * u.group);
    data_set(l, base);
    return true;
}

bool ladder_fit(const struct ladder *l, struct napkin_fit *fit) {
    struct napkin_run runs[LADDER_RUNGS];
    for (int i = 0; i < l->n; i++) runs[i] = (struct napkin_run){l->rung[i].flops, 1, l->rung[i].loss};
    return napkin_fit_loss(runs, l->n, &(struct napkin_fit_options){.is_one_term = true}, fit);
}

double ladder_loss(const struct napkin_law *law, double noise, const void *flops) {
    return (law->E + law->A * pow(*(const double *)flops, -law->alpha)) * exp(noise);
}

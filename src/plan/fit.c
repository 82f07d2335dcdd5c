#include "plan/fit.h"

#include <string.h>

#include "base/error.h"
#include "train/trainer.h"

const char *const fit_axis_names[PLAN_N_AXES] = {"batch", "seq", "layers", "channels"};

const char *fit_limit_name(enum fit_limit limit) {
    static const char *const names[] = {"nothing", "memory", "days", "money"};
    return names[limit];
}

void fit_axis_set(struct settings *s, enum plan_axis axis, int64_t size) {
    int64_t *const fields[PLAN_N_AXES] = {&s->batch, &s->seq, &s->layers, &s->channels};
    *fields[axis] = size;
}

/* A folder's weights have sizes of their own; its config.json can be changed. */
static bool model_free(struct settings *s, tl_model_config *config) {
    char weights[SETTING_TEXT];
    if (!trainer_model(s, config, weights)) return false;
    if (!*weights) return true;
    int n = snprintf(s->model, sizeof s->model, "%.*s/config.json", SETTING_TEXT - 16, weights);
    return n > 0;
}

bool fit_question_begin(struct fit_question *q, enum plan_axis axis, const struct settings *s,
                        const struct price_target *target, const struct plan_options *options) {
    tl_model_config c;
    *q = (struct fit_question){.axis = axis, .settings = *s, .target = *target, .options = *options};
    if (!model_free(&q->settings, &c)) return false;
    int64_t group = c.n_heads / c.n_kv_heads;
    const int64_t first[] = {s->batch, s->seq, c.n_layers, c.channels};
    const int64_t unit[] = {1, s->seq >= 1024 ? 128 : 1, 1, c.head_size * group};
    const int64_t most[] = {1000000, 1 << 26, 100000, 1 << 22};
    q->first = first[axis];
    q->unit = unit[axis];
    q->most = most[axis];
    return true;
}

/* ---- One size ---- */

static void largest_find(const struct price *p, struct fit_point *point) {
    const struct held_window *w = price_window(p, p->peak_kind);
    struct {
        char name[80];
        uint64_t bytes;
    } best = {"", 0}, *sums = NULL;
    (void)sums;
    int purpose = 0;
    for (int i = 0; i < TL_PURPOSE_COUNT; i++)
        if (w->peak_by_purpose[i] > w->peak_by_purpose[purpose]) purpose = i;
    point->purpose = (tl_purpose)purpose;
    point->share = w->peak_bytes ? (double)w->peak_by_purpose[purpose] / (double)w->peak_bytes : 0;
    memcpy(point->module, best.name, sizeof best.name);
}

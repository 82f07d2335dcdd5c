/* time.c: how long a step takes: the bound, the roofline, and the prediction from measurements. */
#include <math.h>

#include "plan/plan.h"

struct plan_bound plan_bound_of(const struct plan_group *op, const struct predict_machine *m) {
    struct plan_bound b = {0};
    double flops = (double)group_flops(op), bytes = (double)op->bytes;
    double peak = op->dtype < TL_DTYPE_COUNT ? m->peak[op->dtype] : 0;
    if (bytes > 0) b.intensity = flops / bytes;
    if (peak > 0 && m->bandwidth > 0) b.ridge = peak / m->bandwidth;
    if (peak > 0) b.arithmetic_s = flops / peak;
    if (m->bandwidth > 0) b.memory_s = bytes / m->bandwidth;
    return b;
}

/* A dtype with an unknown peak makes the roofline unknown. */
struct plan_time plan_time_of(const struct price *p, enum step_kind kind, const struct predict_machine *m) {
    struct plan_time time = {0};
    const tl_ledger *l = p->kind[kind].ledger;
    bool is_known = l && m->bandwidth > 0;
    for (size_t i = 0; is_known && i < l->n_rows; i++) {
        const struct ledger_row *row = &l->rows[i];
        is_known = predict_knows(m, row);
        time.roofline_s += predict_roof(m, row);
    }
    if (!is_known) return (struct plan_time){0};
    const struct predict_shape shape = predict_shape_of(&p->config, p->settings.seq);
    struct prediction prediction = predict_ledger(m, &shape, l);
    time.bound_s = prediction.bound_s;
    time.compute_s = prediction.compute_s;
    time.peak = prediction.peak;
    if (isfinite(prediction.seconds)) time.predicted_s = prediction.seconds;
    return time;
}

double plan_step_s(const struct plan_time *time) {
    return time->predicted_s > 0 ? time->predicted_s : time->roofline_s;
}

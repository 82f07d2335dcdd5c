#include "step/ramp.h"

#include <math.h>

int ramp_stages(const struct settings *s) {
    if (!s->batch_warmup) return 0;
    return (int)(s->accum <= RAMP_STAGES ? s->accum - 1 : RAMP_STAGES);
}

int ramp_stage(const struct settings *s, int64_t step) {
    int n = ramp_stages(s);
    return step < s->batch_warmup ? (int)(step * n / s->batch_warmup) : n;
}

int64_t ramp_stage_accum(const struct settings *s, int stage) {
    int n = ramp_stages(s);
    return stage < n ? 1 + (s->accum - 1) * stage / n : s->accum;
}

/* The least step with step n / batch_warmup >= stage. */
int64_t ramp_stage_begin(const struct settings *s, int stage) {
    int n = ramp_stages(s);
    return n ? (stage * s->batch_warmup + n - 1) / n : 0;
}

int64_t ramp_accum(const struct settings *s, int64_t step) { return ramp_stage_accum(s, ramp_stage(s, step)); }

int64_t ramp_batches(const struct settings *s, int64_t steps) {
    int last = ramp_stage(s, steps);
    int64_t sum = 0;
    for (int i = 0; i < last; i++)
        sum += (ramp_stage_begin(s, i + 1) - ramp_stage_begin(s, i)) * ramp_stage_accum(s, i);
    return sum + (steps - ramp_stage_begin(s, last)) * ramp_stage_accum(s, last);
}

double ramp_steps_for(const struct settings *s, double batches) {
    double sum = 0;
    for (int i = 0; i < ramp_stages(s); i++) {
        const double begin = (double)ramp_stage_begin(s, i), each = (double)ramp_stage_accum(s, i);
        const double here = ((double)ramp_stage_begin(s, i + 1) - begin) * each;
        if (sum + here >= batches) return begin + ceil((batches - sum) / each);
        sum += here;
    }
    return (double)s->batch_warmup + ceil((batches - sum) / (double)s->accum);
}

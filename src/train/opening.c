#include "train/opening.h"

#include "base/error.h"
#include "base/number.h"

static double number_of(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text ? number_parse(text, NULL) : 0;
}

static void most(uint64_t *so_far, double value) {
    if (value > (double)*so_far) *so_far = (uint64_t)value;
}

bool opening_make(struct opening *o, const struct settings *s, const tl_model_config *config,
                  const struct source *source, const json_t *price) {
    const json_t *kinds = json_object_get(price, "kinds");
    const char *name;
    json_t *kind;
    *o = (struct opening){.settings = s, .config = *config, .n_parameters = tl_model_config_parameters(config)};
    o->n_ranks = (int)((s->dp ? s->dp : 1) * s->tp * s->cp * s->pp);
    if (__builtin_mul_overflow(s->accum * s->batch, s->seq, &o->step_tokens))
        return error_set(TL_ERROR_USE, "batch: a step of more than 2^63 - 1 tokens");
    o->n_train = source->train.last - source->train.first;
    o->n_held_out = source->held_out.last - source->held_out.first;
    o->are_bytes = !source->train.file && !source->is_bytes;
    json_object_foreach((json_t *)(uintptr_t)kinds, name, kind) {
        const json_t *ledger = json_object_get(kind, "ledger"), *memory = json_object_get(ledger, "memory");
        double flops = number_of(json_object_get(ledger, "totals"), "flops") * o->n_ranks; /* ranks do the same */
        if (o->step_flops == 0) o->step_flops = flops; /* a step is the first kind */
        o->flops += flops * (double)json_integer_value(json_object_get(kind, "count"));
        most(&o->held_bytes, number_of(memory, "peak_bytes"));
        most(&o->reserved_bytes, number_of(memory, "peak_reserved_bytes"));
    }
    return true;
}

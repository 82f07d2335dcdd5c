#include "plan/shard.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "step/recipe.h"

const char *const shard_names[SHARD_COUNT] = {"none", "zero1", "zero2", "zero3"};

bool shard_find(const char *name, enum shard_mode *mode) {
    for (int i = 0; i < SHARD_COUNT; i++) {
        *mode = (enum shard_mode)i;
        if (!strcmp(name, shard_names[i])) return true;
    }
    return error_set(TL_ERROR_USE, "shard: \"%s\" is not one of none, zero1, zero2, zero3", name);
}

/* Parameters of the largest part that is used at once: two blocks (the current one and the next), or the embedding
 * and the head that goes with it. */
static double part_parameters(const tl_model_config *c) {
    double head = (double)c->vocabulary * (double)c->channels;
    double blocks = (double)tl_model_config_parameters(c) - (c->is_tied ? 1 : 2) * head;
    double two = 2 * blocks / (double)c->n_layers;
    return two > head ? two : head;
}

static uint64_t share(uint64_t bytes, int64_t n, bool is_cut) {
    uint64_t parts = (uint64_t)n;
    return is_cut ? bytes / parts + (bytes % parts != 0) : bytes;
}

static void link_find(struct shard_estimate *e, const struct plan_target *t, int64_t n, double link) {
    double own = t->chip ? hardware_value(t->chip, HARDWARE_LINK) / 2 : 0;
    e->is_network = link == 0 && n > SHARD_NODE && own > 0;
    e->link = link > 0 ? link : e->is_network && own > SHARD_NETWORK ? SHARD_NETWORK : own;
    if (e->link > 0) e->link_s = e->sent_bytes / e->link;
}

/* Without sharding, and with only the states sharded, the peak is at the same moment as on one device. With gradients
 * sharded that moment is not known: the most that a step holds temporarily is added to what is kept, which is never
 * too little. */
static uint64_t total_of(const struct price *p, const struct shard_estimate *e, enum shard_mode mode, uint64_t states) {
    if (mode <= SHARD_ZERO1) return p->reserved_bytes - states + e->states_bytes;
    return e->weights_bytes + e->states_bytes + e->gradients_bytes + e->gathered_bytes + e->other_bytes;
}

struct shard_estimate shard_estimate(const struct price *p, const struct plan_target *target, int64_t n,
                                     enum shard_mode mode, double link) {
    struct shard_estimate e = {0};
    const struct recipe *recipe = recipe_find(settings_choice(&p->settings, "recipe"));
    const struct held_window *w = price_window(p, KIND_STEP);
    bool has_wide_sums = p->settings.accum > 1 && recipe_sums_in_f32(recipe);
    uint64_t parameters = (uint64_t)p->n_parameters, element = (uint64_t)tl_dtype_bits(recipe->parameters) / 8;
    uint64_t weights = parameters * element, gradients = parameters * (has_wide_sums ? 4 : element);
    uint64_t kept = w->peak_by_purpose[TL_PARAMETER] + w->peak_by_purpose[TL_OPTIMIZER];
    uint64_t states = kept > weights ? kept - weights : 0;
    uint64_t part = (uint64_t)(part_parameters(&p->config) * (double)element);
    e.weights_bytes = share(weights, n, mode >= SHARD_ZERO3);
    e.states_bytes = share(states, n, mode >= SHARD_ZERO1);
    e.gradients_bytes = share(gradients, n, mode >= SHARD_ZERO2);
    if (mode >= SHARD_ZERO2) e.gathered_bytes += part / 2; /* the gradients of the block that was just done */
    if (mode >= SHARD_ZERO3) e.gathered_bytes += part;
    e.other_bytes = w->peak_passing_bytes;
    e.total_bytes = total_of(p, &e, mode, states);
    /* g: of one micro-batch, as wide as the weights; G: their sum */
    double f = (double)(n - 1) / (double)n, k = (double)p->settings.accum, G = (double)gradients, W = (double)weights,
           g = W;
    e.sent_bytes = f * (mode == SHARD_NONE    ? 2 * G
                        : mode == SHARD_ZERO1 ? G + W
                        : mode == SHARD_ZERO2 ? k * g + W
                                              : k * (2 * W + g));
    link_find(&e, target, n, link);
    return e;
}

/* stages.c: the schedule is the model's (nn/pipeline.c); here are the batches, the parameters that ranks hold only
 * while they are used, and rounds that are left out of a price. */
#include "step/stages.h"

#include "nn/model.h"
#include "step/rounds.h"

struct batches {
    struct trainer *t;
    tl_loader *loader;
    int64_t first, *pairs, n_given;
};

/* Parameters outside of blocks may have been dropped by a backward pass since the last batch. */
static bool batch_give(void *context, int64_t k, tl_tensor **tokens, tl_tensor **targets, tl_tensor **begin) {
    struct batches *b = context;
    bool ok =
        buckets_enter(&b->t->buckets) && tl_loader_next_documents(b->loader, b->first + k, tokens, targets, begin);
    bool is_new = k >= b->n_given; /* stages with several chunks of layers ask for a batch once for each */
    if (is_new) b->n_given = k + 1;
    if (ok && is_new && *begin && b->pairs && device_has_data(b->t->device)) *b->pairs += tl_loader_pairs(b->loader);
    return ok;
}

struct round {
    bool (*run)(void *own, int64_t k);
    void *own;
};

static bool round_run(struct trainer *t, int64_t k, void *context) {
    const struct round *round = context;
    return round->run(round->own, k) && buckets_finish(&t->buckets) && tl_error() == TL_OK;
}

static bool rounds_repeat(void *context, int64_t n, bool (*run)(void *own, int64_t k), void *own) {
    const struct batches *b = context;
    return rounds_run(b->t, n, round_run, &(struct round){run, own});
}

tl_tensor *stages_run(struct trainer *t, tl_loader *loader, int64_t first, int64_t n, double weight, int64_t *pairs) {
    struct batches batches = {t, loader, first, pairs, 0};
    tl_tensor *total = model_pipeline(t->model, n, batch_give, &batches, weight, rounds_repeat);
    buckets_leave(&t->buckets);
    return total;
}

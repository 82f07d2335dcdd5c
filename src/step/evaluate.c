/* evaluate.c: the loss on text that is never trained on. */
#include "step/rounds.h"
#include "step/stages.h"
#include "step/trainer_inner.h"

struct sums {
    tl_loader *loader;
    tl_tensor *loss, *rewards; /* rewards: NULL where they are not wanted */
};

static bool batch_add(struct trainer *t, int64_t batch, void *context) {
    const struct sums *sums = context;
    if (trainer_leaves(t, batch)) return false;
    tl_scope scope = tl_scope_begin();
    tl_tensor *tokens = NULL, *targets = NULL, *begin = NULL;
    bool ok = scope.depth && tl_loader_next_documents(sums->loader, batch, &tokens, &targets, &begin) &&
              buckets_enter(&t->buckets);
    tl_tensor *loss = ok ? trainer_loss(t, tokens, targets, begin, sums->rewards, batch == 0) : NULL;
    buckets_leave(&t->buckets);
    ok = loss && (batch ? tl_add_(sums->loss, loss) : tl_copy_(sums->loss, loss));
    return scope.depth && tl_scope_end(scope) && ok;
}

static bool batches_add(struct trainer *t, int64_t n, struct sums *sums) {
    if (!stages_are_several(t)) return rounds_run(t, n, batch_add, sums);
    tl_tensor *sum = stages_run(t, sums->loader, 0, n, 0, NULL);
    return sum && tl_copy_(sums->loss, sum);
}

/* Of the first set the loss has its place among the results, and so have its rewards. */
static int64_t place_of(int set) { return set ? TRAINER_SETS + set - 1 : 4; }

static bool set_evaluate(struct trainer *t, int set) {
    const int64_t n = t->settings.eval_batches, at = place_of(set);
    struct sums sums = {.loader = t->held_out[set], .loss = tl_select(t->results, 0, at)};
    if (set == 0) sums.rewards = trainer_rewards_at(t, 2);
    bool ok = sums.loss && batches_add(t, n, &sums);
    return ok && trainer_sum(t, tl_slice(t->results, 0, at, at + 1, 1)) &&
           tl_affine_(sums.loss, 1 / (double)(n * t->mesh.size), 0) && trainer_rewards_mean(t, sums.rewards, n);
}

/* The same batches every time, so that two evaluations can be compared. */
bool trainer_evaluate(struct trainer *t) {
    bool grad = tl_set_grad_mode(false);
    tl_dtype autocast = tl_set_autocast(t->recipe->autocast);
    tl_scope scope = tl_scope_begin();
    tl_module_train(t->model, false);
    bool ok = scope.depth && trainer_average(t, true);
    for (int set = 0; ok && set < t->n_held_out; set++) ok = set_evaluate(t, set);
    ok = trainer_average(t, false) && ok;
    tl_module_train(t->model, true);
    ok = scope.depth && tl_scope_end(scope) && ok;
    tl_set_autocast(autocast);
    tl_set_grad_mode(grad);
    return ok;
}

bool trainer_read_evaluation(struct trainer *t, double *loss) {
    float values[TRAINER_RESULTS];
    if (!tl_to_data(t->results, values, (size_t)tl_numel(t->results) * sizeof *values)) return false;
    for (int set = 0; set < t->n_held_out; set++) t->held_out_loss[set] = (double)values[place_of(set)];
    *loss = t->held_out_loss[0];
    trainer_rewards_take(t, values, 2);
    return true;
}

/* evaluate.c: the loss on text that is never trained on. */
#include "step/rounds.h"
#include "step/stages.h"
#include "step/trainer_inner.h"

struct sums {
    tl_tensor *loss, *rewards;
};

static bool batch_add(struct trainer *t, int64_t batch, void *context) {
    const struct sums *sums = context;
    if (trainer_leaves(t, batch)) return false;
    tl_scope scope = tl_scope_begin();
    tl_tensor *tokens = NULL, *targets = NULL, *begin = NULL;
    bool ok = scope.depth && tl_loader_next_documents(t->held_out, batch, &tokens, &targets, &begin) &&
              buckets_enter(&t->buckets);
    tl_tensor *loss = ok ? trainer_loss(t, tokens, targets, begin, sums->rewards, batch == 0) : NULL;
    buckets_leave(&t->buckets);
    ok = loss && (batch ? tl_add_(sums->loss, loss) : tl_copy_(sums->loss, loss));
    return scope.depth && tl_scope_end(scope) && ok;
}

static bool batches_add(struct trainer *t, int64_t n, struct sums *sums) {
    if (!stages_are_several(t)) return rounds_run(t, n, batch_add, sums);
    tl_tensor *sum = stages_run(t, t->held_out, 0, n, 0, NULL);
    return sum && tl_copy_(sums->loss, sum);
}

/* The same batches every time, so that two evaluations can be compared. */
bool trainer_evaluate(struct trainer *t) {
    int64_t n = t->settings.eval_batches;
    bool grad = tl_set_grad_mode(false);
    tl_dtype autocast = tl_set_autocast(t->recipe->autocast);
    tl_scope scope = tl_scope_begin();
    struct sums sums = {tl_select(t->results, 0, 4), NULL};
    sums.rewards = trainer_rewards_at(t, 2);
    tl_module_train(t->model, false);
    bool ok = sums.loss != NULL;
    ok = ok && trainer_average(t, true) && batches_add(t, n, &sums);
    ok = trainer_average(t, false) && ok;
    ok = ok && trainer_sum(t, tl_slice(t->results, 0, 4, 5, 1)) &&
         tl_affine_(sums.loss, 1 / (double)(n * t->mesh.size), 0) && trainer_rewards_mean(t, sums.rewards, n);
    tl_module_train(t->model, true);
    ok = scope.depth && tl_scope_end(scope) && ok;
    tl_set_autocast(autocast);
    tl_set_grad_mode(grad);
    return ok;
}

bool trainer_read_evaluation(struct trainer *t, double *loss) {
    float values[TRAINER_RESULTS];
    if (!tl_to_data(t->results, values, (size_t)tl_numel(t->results) * sizeof *values)) return false;
    *loss = (double)values[4];
    trainer_rewards_take(t, values, 2);
    return true;
}

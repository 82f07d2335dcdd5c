/* evaluate.c: the loss on text that is never trained on. */
#include "step/rounds.h"
#include "step/stages.h"
#include "step/trainer.h"

static bool batch_add(struct trainer *t, int64_t batch, void *context) {
    tl_tensor *total = context;
    if (trainer_leaves(t, batch)) return false;
    tl_scope scope = tl_scope_begin();
    tl_tensor *tokens = NULL, *targets = NULL, *begin = NULL;
    bool ok = scope.depth && tl_loader_next_documents(t->held_out, batch, &tokens, &targets, &begin) &&
              buckets_enter(&t->buckets);
    tl_tensor *loss = ok ? tl_model_document_loss(t->model, tokens, targets, begin) : NULL;
    buckets_leave(&t->buckets);
    ok = loss && (batch ? tl_add_(total, loss) : tl_copy_(total, loss));
    return scope.depth && tl_scope_end(scope) && ok;
}

static bool batches_add(struct trainer *t, int64_t n, tl_tensor *total) {
    if (!stages_are_several(t)) return rounds_run(t, n, batch_add, total);
    tl_tensor *sum = stages_run(t, t->held_out, 0, n, 0, NULL);
    return sum && tl_copy_(total, sum);
}

/* The same batches every time, so that two evaluations can be compared. */
bool trainer_evaluate(struct trainer *t) {
    int64_t n = t->settings.eval_batches;
    bool grad = tl_set_grad_mode(false);
    tl_dtype autocast = tl_set_autocast(t->recipe->autocast);
    tl_scope scope = tl_scope_begin();
    tl_tensor *total = tl_select(t->results, 0, 4);
    tl_module_train(t->model, false);
    bool ok = total != NULL;
    ok = ok && trainer_average(t, true) && batches_add(t, n, total);
    ok = trainer_average(t, false) && ok;
    ok = ok && trainer_sum(t, tl_slice(t->results, 0, 4, 5, 1)) && tl_affine_(total, 1 / (double)(n * t->mesh.size), 0);
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
    return true;
}

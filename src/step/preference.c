#include "step/preference.h"

#include "base/error.h"
#include "base/number.h"
#include "nn/model.h"
#include "step/trainer.h"

/* ---- Settings ---- */

/* A setting that does not go with pairs, and what to do about it; NULL: there is none. */
static const char *obstacle_of(const struct settings *s, const char **need) {
    const struct {
        bool is_there;
        const char *why, *need;
    } all[] = {
        {s->chat != 0, "data has pairs of answers or conversations, not both", "--chat none"},
        {s->document_mask, "each answer has a sequence of its own", "--document-mask false"},
        {s->sampling != 0, "windows that begin anywhere cut pairs", "--sampling epochs"},
        {s->tp > 1 || s->cp > 1 || s->pp > 1 || s->ep > 1, "the log-probability of an answer needs a whole model",
         "--tp 1 --cp 1 --pp 1 --ep 1; --dp and --shard work"},
        {s->label_smoothing > 0 || s->z_loss > 0, "its loss is that of answers and not of tokens",
         "--label-smoothing 0 --z-loss 0"},
        {s->router_aux_loss > 0 || s->router_z_loss > 0, "its loss has no part of routers",
         "--router-aux-loss 0 --router-z-loss 0"},
        {s->mup_channels > 0, "its reference has the first weights as they are", "--mup-channels 0"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].is_there) return *need = all[i].need, all[i].why;
    return NULL;
}

bool preference_check(const struct settings *s) {
    const char *need = NULL;
    if (!settings_has_preference(s))
        return s->dpo_beta == number_parse(settings_usual("dpo_beta"), NULL) ||
               error_set(TL_ERROR_USE, "dpo_beta: has no use without --preference FORM");
    const char *why = obstacle_of(s, &need);
    return !why || error_set(TL_ERROR_USE, "preference: %s (need %s)", why, need);
}

/* ---- The loss ---- */

/* The negative log-probability of each sequence's answer under the reference: (2B) f32. */
static tl_tensor *reference_losses(struct trainer *t, tl_tensor *tokens, tl_tensor *targets) {
    tl_module *model = t->reference ? t->reference : t->model;
    const bool is_training = tl_module_is_training(model), grad = tl_set_grad_mode(false);
    tl_scope scope = tl_scope_enter("reference");
    tl_module_train(model, false);
    if (!t->reference) tl_model_use_adapter(model, false);
    tl_tensor *losses = scope.depth ? model_row_losses(model, tokens, targets) : NULL;
    if (!t->reference) tl_model_use_adapter(model, true);
    tl_module_train(model, is_training);
    losses = scope.depth ? tl_scope_return(scope, losses) : NULL;
    tl_set_grad_mode(grad);
    return losses;
}

/* The mean of -margin (B), and the share of margins above 0, into `to` (2), or added to it. */
static bool rewards_note(tl_tensor *negative, tl_tensor *to, bool is_first) {
    const bool grad = tl_set_grad_mode(false);
    tl_tensor *margin = tl_neg(negative);
    tl_tensor *mean = tl_mean_all(margin), *share = tl_mean_all(tl_relu(tl_sign(margin)));
    tl_tensor *both[2] = {mean, share}, *rewards = mean && share ? tl_stack(both, 2, 0) : NULL;
    const bool ok = rewards && (is_first ? tl_copy_(to, rewards) : tl_add_(to, rewards));
    tl_set_grad_mode(grad);
    return ok;
}

/* With n = -log p of each answer, less the reference's, the margin is beta (n_rejected - n_chosen), and the loss
 * -log sigmoid(margin) = softplus(-margin). */
tl_tensor *preference_loss(struct trainer *t, tl_tensor *tokens, tl_tensor *targets, tl_tensor *rewards,
                           bool is_first) {
    const int64_t n = tl_size(tokens, 0), seq = t->settings.seq;
    tokens = tl_reshape(tokens, TL_SHAPE(2 * n, seq)); /* chosen, rejected, chosen, ... */
    targets = tl_reshape(targets, TL_SHAPE(2 * n, seq));
    tl_tensor *before = tokens && targets ? reference_losses(t, tokens, targets) : NULL;
    tl_tensor *now = before ? model_row_losses(t->model, tokens, targets) : NULL;
    tl_scope scope = tl_scope_enter("preference");
    if (!scope.depth) return NULL;
    tl_tensor *pairs = now ? tl_reshape(tl_sub(now, before), TL_SHAPE(n, 2)) : NULL;
    tl_tensor *chosen = tl_select(pairs, 1, 0), *rejected = tl_select(pairs, 1, 1);
    tl_tensor *negative = tl_scale(tl_sub(chosen, rejected), t->settings.dpo_beta); /* -margin */
    tl_tensor *loss = negative ? tl_mean_all(tl_softplus(negative, 1, 20)) : NULL;
    const bool ok = loss && (!rewards || rewards_note(negative, rewards, is_first));
    return tl_scope_return(scope, ok ? loss : NULL);
}

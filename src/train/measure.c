#include "train/measure.h"

#include "base/clock.h"
#include "base/error.h"

/* Adds the losses of rows 0 .. rows-1 of a step's batch. */
static bool batch_add(tl_module *model, tl_loader *loader, int64_t step, int64_t rows, double *sum, int64_t *n) {
    tl_scope scope = tl_scope_begin();
    tl_tensor *tokens = NULL, *targets = NULL;
    bool ok = scope.depth && tl_loader_next(loader, step, &tokens, &targets);
    tokens = ok ? tl_slice(tokens, 0, 0, rows, 1) : NULL;
    targets = ok ? tl_slice(targets, 0, 0, rows, 1) : NULL;
    int64_t count = targets ? tl_numel(targets) : 0;
    tl_tensor *loss = ok ? tl_model_loss(model, tokens, targets) : NULL;
    if (loss) *sum += tl_item(loss) * (double)count, *n += count;
    ok = loss && tl_error() == TL_OK;
    return scope.depth && tl_scope_end(scope) && ok;
}

static tl_loader *loader_of(const struct source_part *part, int64_t first, int64_t batch, int64_t time,
                            tl_device *device) {
    tl_loader_options o = tl_loader_defaults();
    o.file = part->file;
    o.first = first;
    o.last = part->last;
    o.batch = batch;
    o.time = time;
    o.device = device;
    o.sampling = TL_SAMPLE_IN_ORDER;
    return tl_loader_new(&o);
}

/* `windows` windows of `time` from token `first` on. */
static bool windows_add(tl_module *model, const struct source_part *part, int64_t first, int64_t windows, int64_t batch,
                        int64_t time, double *sum, int64_t *n) {
    int count;
    const tl_named_tensor *list = tl_module_list(model, &count);
    tl_loader *loader = list && count ? loader_of(part, first, batch, time, tl_device_of(list[0].tensor)) : NULL;
    bool ok = loader != NULL;
    for (int64_t step = 0; ok && step * batch < windows; step++) {
        int64_t left = windows - step * batch;
        ok = batch_add(model, loader, step, left < batch ? left : batch, sum, n);
    }
    tl_loader_free(loader);
    return ok;
}

bool measure(tl_module *model, const struct source_part *part, int64_t batch, int64_t time, int64_t most,
             struct measured *result) {
    int64_t targets = part->last - part->first - 1, windows = targets / time, rest = targets % time;
    double sum = 0, began = now_s();
    *result = (struct measured){0};
    if (targets < 1)
        return error_set(TL_ERROR_USE, "the data has %lld tokens (need at least two)", (long long)(targets + 1));
    if (most > 0 && windows / batch >= most) windows = most * batch, rest = 0;
    bool grad = tl_set_grad_mode(false), ok = true;
    if (windows) ok = windows_add(model, part, part->first, windows, batch, time, &sum, &result->n_tokens);
    if (ok && rest) ok = windows_add(model, part, part->first + windows * time, 1, 1, rest, &sum, &result->n_tokens);
    tl_set_grad_mode(grad);
    result->loss = sum / (double)result->n_tokens;
    result->seconds = now_s() - began;
    return ok;
}

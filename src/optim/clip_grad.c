/* clip_grad.c: the norm of all gradients together. ops/clip.c computes the factor from it. */
#include "base/error.h"
#include "base/memory.h"
#include "tensor/tensor.h"

/* sqrt of the sum over all gradients of their squares */
static tl_tensor *norm_of(tl_tensor **grads, int n, tl_device *device) {
    if (n == 0) return tl_zeros(TL_SCALAR, TL_F32, device);
    tl_tensor *sum = tl_sum_squares(grads, n);
    return sum ? tl_sqrt_(sum) : NULL;
}

tl_tensor *tl_grad_norm(tl_tensor **parameters, int n) {
    if (n < 1 || !parameters) {
        error_set(TL_ERROR_USE, "tl_grad_norm: there are no parameters (need at least one)");
        return NULL;
    }
    size_t bytes = (size_t)n * sizeof(tl_tensor *);
    tl_tensor **grads = memory_new(bytes);
    if (!grads) {
        error_memory(bytes, "a list of gradients");
        return NULL;
    }
    int n_grads = 0;
    bool ok = true;
    for (int i = 0; i < n && ok; i++) {
        tl_tensor *grad = NULL;
        ok = tensor_check(parameters[i], "tl_grad_norm");
        if (ok) grad = tl_grad_of(parameters[i]);
        if (grad) grads[n_grads++] = grad;
    }
    bool mode = tl_set_grad_mode(false);
    tl_phase phase = tl_set_phase(TL_UPDATE);
    tl_tensor *norm = ok ? norm_of(grads, n_grads, parameters[0]->storage->device) : NULL;
    tl_set_phase(phase);
    tl_set_grad_mode(mode);
    memory_free(grads);
    return norm;
}

/* fit_line.c: the smallest training loop: a slope and an intercept, by gradients and AdamW.
 *
 *     cc fit_line.c -o fit_line $(pkg-config --cflags --libs tally) && ./fit_line
 *
 * prints
 *
 *     step   0: loss 12.63
 *     step 100: loss 0.00
 *     step 200: loss 0.00
 *     y = 3.00 x -0.50
 */
#include <stdio.h>
#include <tally.h>

int main(void) {
    tl_scope outer = tl_scope_begin();
    tl_tensor *x = tl_linspace(-2, 2, 64, TL_F32, NULL);
    tl_tensor *true_slope = tl_full(TL_SCALAR, 3, TL_F32, NULL);
    tl_tensor *true_intercept = tl_full(TL_SCALAR, -0.5, TL_F32, NULL);
    tl_tensor *y = tl_add(tl_mul(true_slope, x), true_intercept);
    tl_tensor *slope = tl_requires_grad(tl_zeros(TL_SCALAR, TL_F32, NULL), true);
    tl_tensor *intercept = tl_requires_grad(tl_zeros(TL_SCALAR, TL_F32, NULL), true);

    tl_optimizer *optimizer = tl_optimizer_new(TL_ADAMW);
    tl_optimizer_options options = tl_optimizer_defaults(TL_ADAMW);
    options.lr = 0.05;
    options.weight_decay = 0;
    tl_optimizer_add(optimizer, "slope", slope, &options);
    tl_optimizer_add(optimizer, "intercept", intercept, &options);

    for (int step = 0; step <= 200; step++) {
        tl_scope scope = tl_scope_begin(); /* the tensors of a step live as long as the step */
        tl_tensor *error = tl_sub(tl_add(tl_mul(slope, x), intercept), y);
        tl_tensor *loss = tl_mean(tl_square(error), NULL, 0, false);
        tl_backward(loss, NULL, 0);
        tl_optimizer_step(optimizer, 1, NULL);
        tl_zero_grad(slope, false);
        tl_zero_grad(intercept, false);
        if (step % 100 == 0) printf("step %3d: loss %.2f\n", step, tl_item(loss));
        tl_scope_end(scope);
    }
    printf("y = %.2f x ", tl_item(slope));
    printf("%+.2f\n", tl_item(intercept));
    tl_optimizer_free(optimizer);
    tl_scope_end(outer);
    return 0;
}

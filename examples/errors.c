/* errors.c: a program that must not stop at an error, such as a server. By default an error prints its message and
 * aborts inside the failing call; with TL_RETURN the call gives NULL or false, and the thread keeps the first error.
 *
 *     cc errors.c -o errors $(pkg-config --cflags --libs tally) && ./errors
 *
 * prints
 *
 *     row 1: 4
 *     row 7: wrong use: select: index 7 is out of bounds for dimension 0 with size 3: f32[3,4]@cpu
 *     row 2: 4
 *     0 bytes are left
 */
#include <stdio.h>
#include <tally.h>

/* Calls that get NULL do nothing and give NULL, so that a chain of them needs one check at its end. */
static void print_row(tl_tensor *x, int row) {
    tl_scope scope = tl_scope_begin();
    tl_tensor *sum = tl_sum(tl_select(x, 0, row), NULL, 0, false);
    if (sum) printf("row %d: %g\n", row, tl_item(sum));
    else printf("row %d: %s: %s\n", row, tl_error() == TL_ERROR_USE ? "wrong use" : "failure", tl_error_message());
    tl_error_clear();
    tl_scope_end(scope);
}

int main(void) {
    tl_set_error_policy(TL_RETURN);
    tl_scope scope = tl_scope_begin();
    tl_tensor *x = tl_ones(TL_SHAPE(3, 4), TL_F32, NULL);
    print_row(x, 1);
    print_row(x, 7);
    print_row(x, 2); /* the error left nothing behind */
    tl_scope_end(scope);
    printf("%llu bytes are left\n", (unsigned long long)tl_device_memory(tl_device_find("cpu")).live_bytes);
    return 0;
}

/* views.c: other shapes of the same numbers. A view copies nothing, and writing through it changes the original.
 *
 *     cc views.c -o views $(pkg-config --cflags --libs tally) && ./views
 *
 * prints
 *
 *     x        i64[3,4]@cpu, strides 4 1
 *     x^T      i64[4,3]@cpu, strides 1 4
 *     x[1]     i64[4]@cpu, strides 1
 *     x[:,::2] i64[3,2]@cpu, strides 4 2
 *     four views: 0 bytes moved
 *     a copy of x^T: 96 bytes read, 96 written
 *     tensor([[ 0,  1,  2,  3],
 *             [-1, -1, -1, -1],
 *             [ 8,  9, 10, 11]])
 */
#include <stdio.h>
#include <tally.h>

static void show(const char *name, tl_tensor *x) {
    char text[64];
    tl_describe(x, text, sizeof text);
    printf("%-8s %s, strides", name, text);
    for (int axis = 0; axis < tl_rank(x); axis++) printf(" %lld", (long long)tl_stride(x, axis));
    printf("\n");
}

int main(void) {
    char text[256], a[40], b[40];
    tl_scope scope = tl_scope_begin(); /* frees what is made until its end */
    tl_tensor *x = tl_view(tl_arange(0, 1, 12, TL_I64, NULL), TL_SHAPE(3, 4));

    tl_ledger *views = tl_ledger_begin("views");
    tl_tensor *transposed = tl_transpose(x, 0, 1), *row = tl_select(x, 0, 1);
    show("x", x);
    show("x^T", transposed);
    show("x[1]", row);
    show("x[:,::2]", tl_slice(x, 1, 0, TL_END, 2));
    tl_ledger_end(views);
    tl_totals cost = tl_ledger_total(views, TL_ALL, NULL);
    printf("four views: %s bytes moved\n", tl_count_text(cost.bytes_read, a));

    tl_ledger *copy = tl_ledger_begin("copy");
    tl_contiguous(transposed); /* no strides of x's storage have these rows in order */
    tl_ledger_end(copy);
    cost = tl_ledger_total(copy, TL_ALL, NULL);
    printf("a copy of x^T: %s bytes read, %s written\n", tl_count_text(cost.bytes_read, a),
           tl_count_text(cost.bytes_written, b));

    tl_fill_(row, -1);
    tl_print(x, text, sizeof text);
    printf("%s\n", text);
    tl_ledger_free(views);
    tl_ledger_free(copy);
    tl_scope_end(scope);
    return 0;
}

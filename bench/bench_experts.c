/* bench_experts.c: grouped products beside dense products of the same FLOPs, in one run.
 *
 *     build/bench/bench_experts [cpu|cuda:0] [f32|bf16] [experts] [rows] [in] [out]
 *
 * Rows go to experts at random, so groups differ in size. "fwd" is x W^T, "dx" g W, "dw" g^T x. The two kinds
 * alternate; medians of their rates and the grouped product's share of the dense one are printed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tally.h"

enum { DENSE, GROUPED, N_KINDS, TURNS = 9 };
enum { FWD, DX, DW, N_FORMS };

struct operands { /* x (N,in), g (N,out), weight (out,in) or (E,out,in) */
    tl_tensor *x, *g, *weight[N_KINDS], *ends;
};

/* One product. Gradients are those of a product whose other factor needs none. */
static void multiply(const struct operands *o, int kind, int form) {
    tl_scope scope = tl_scope_begin();
    tl_tensor *x = tl_requires_grad(tl_detach(o->x), form == DX), *w = tl_detach(o->weight[kind]);
    tl_requires_grad(w, form == DW);
    tl_tensor *y = kind == DENSE ? tl_linear(x, w, NULL) : tl_grouped_matmul(x, w, o->ends, true);
    if (form != FWD) tl_backward(y, o->g, 0);
    if (tl_error() != TL_OK) printf("error: %s\n", tl_error_message()), exit(1);
    tl_scope_end(scope);
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median seconds of a form; of a gradient, without its forward pass. */
static void measure(const struct operands *o, tl_device *device, int n_inner, double seconds[N_KINDS][N_FORMS]) {
    static double times[N_KINDS][N_FORMS][TURNS];
    for (int turn = -1; turn < TURNS; turn++)
        for (int kind = 0; kind < N_KINDS; kind++)
            for (int form = 0; form < N_FORMS; form++) {
                tl_device_sync(device);
                const double start = now_s();
                for (int i = 0; i < n_inner; i++) multiply(o, kind, form);
                tl_device_sync(device);
                if (turn >= 0) times[kind][form][turn] = (now_s() - start) / n_inner;
            }
    for (int kind = 0; kind < N_KINDS; kind++)
        for (int form = 0; form < N_FORMS; form++) {
            qsort(times[kind][form], TURNS, sizeof(double), by_size);
            seconds[kind][form] = times[kind][form][TURNS / 2] - (form == FWD ? 0 : seconds[kind][FWD]);
        }
}

int main(int argc, char **argv) {
    tl_device *device = tl_device_find(argc > 1 ? argv[1] : "cpu");
    if (!device) return printf("%s\n", tl_error_message()), 0;
    const bool is_host = argc <= 1 || !strcmp(argv[1], "cpu");
    const tl_dtype dtype = argc > 2 && !strcmp(argv[2], "bf16") ? TL_BF16 : TL_F32;
    const int64_t E = argc > 3 ? atoll(argv[3]) : 8, N = argc > 4 ? atoll(argv[4]) : is_host ? 4096 : 32768;
    const int64_t in = argc > 5 ? atoll(argv[5]) : 2048, out = argc > 6 ? atoll(argv[6]) : is_host ? in : 4 * in;
    if (E < 1 || N < 1 || in < 1 || out < 1) return printf("sizes must be positive\n"), 1;
    tl_scope scope = tl_scope_begin();
    tl_tensor *experts = tl_integers(TL_SHAPE(N), 0, E, TL_I64, device), *sorted = NULL;
    tl_sort(experts, 0, false, &sorted, NULL);
    struct operands o = {.x = tl_normal(TL_SHAPE(N, in), 0, 1, dtype, device),
                         .g = tl_normal(TL_SHAPE(N, out), 0, 1, dtype, device),
                         .weight = {tl_normal(TL_SHAPE(out, in), 0, 1, dtype, device),
                                    tl_normal(TL_SHAPE(E, out, in), 0, 1, dtype, device)}};
    tl_tensor *numbers = tl_arange(0, 1, E, TL_I64, device);
    o.ends = tl_searchsorted(sorted, numbers, true);
    const double flops = 2. * (double)N * (double)in * (double)out;
    double seconds[N_KINDS][N_FORMS];
    measure(&o, device, is_host ? 1 : 20, seconds);
    printf("%s, %s: %lld rows, %lld experts, %lld x %lld\n", argc > 1 ? argv[1] : "cpu", tl_dtype_name(dtype),
           (long long)N, (long long)E, (long long)in, (long long)out);
    for (int form = 0; form < N_FORMS; form++) {
        static const char *const names[N_FORMS] = {"fwd", "dx", "dw"};
        printf("  %-3s  dense %8.1f  grouped %8.1f GFLOP/s  %.2f of the dense rate\n", names[form],
               flops / seconds[DENSE][form] / 1e9, flops / seconds[GROUPED][form] / 1e9,
               seconds[DENSE][form] / seconds[GROUPED][form]);
    }
    tl_scope_end(scope);
    return 0;
}

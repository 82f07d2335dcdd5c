/* bench_blocks.c: products that read a weight in a block-scaled format, beside unpacking it first, in one run.
 *
 *     build/bench/bench_blocks [cpu|cuda:0] [f32|bf16] [rows] [in] [out]
 *
 * "fwd" is x W^T, "dx" g W. For each format the two ways alternate; medians of their times are printed, how many times
 * faster reading is, and, of the product alone with a ready weight, the share of its rate that is reached.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ops/ops.h"

enum { READY, UNPACKED, READ, N_WAYS, TURNS = 7 };
enum { FWD, DX, N_FORMS };

struct operands { /* x (N,in), g (N,out), weight (out,in), and the same in blocks */
    tl_tensor *x, *g, *weight;
    tl_quantized blocks;
};

static tl_tensor *weight_of(const struct operands *o, int way) {
    return way == READY ? o->weight : tl_dequantize(&o->blocks, tl_dtype_of(o->x));
}

static void multiply(const struct operands *o, int way, int form) {
    tl_scope scope = tl_scope_begin();
    if (way != READ) {
        tl_tensor *w = weight_of(o, way);
        if (w && form == FWD) tl_linear(o->x, w, NULL);
        else if (w) tl_matmul(o->g, w);
    } else if (form == FWD) {
        linear_quantized(o->x, &o->blocks, NULL);
    } else {
        tl_tensor *x = tl_requires_grad(tl_detach(o->x), true), *y = linear_quantized(x, &o->blocks, NULL);
        tl_backward(y, o->g, 0);
    }
    if (tl_error() != TL_OK) printf("error: %s\n", tl_error_message()), exit(1);
    tl_scope_end(scope);
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median seconds; of a gradient, without its forward pass. */
static void measure(const struct operands *o, tl_device *device, int n_inner, double seconds[N_WAYS][N_FORMS]) {
    static double times[N_WAYS][N_FORMS][TURNS];
    for (int turn = -1; turn < TURNS; turn++)
        for (int way = 0; way < N_WAYS; way++)
            for (int form = 0; form < N_FORMS; form++) {
                tl_device_sync(device);
                const double start = now_s();
                for (int i = 0; i < n_inner; i++) multiply(o, way, form);
                tl_device_sync(device);
                if (turn >= 0) times[way][form][turn] = (now_s() - start) / n_inner;
            }
    for (int way = 0; way < N_WAYS; way++)
        for (int form = 0; form < N_FORMS; form++) {
            qsort(times[way][form], TURNS, sizeof(double), by_size);
            seconds[way][form] = times[way][form][TURNS / 2] - (way == READ && form == DX ? seconds[READ][FWD] : 0);
        }
}

int main(int argc, char **argv) {
    static const tl_format formats[] = {TL_NF4, TL_NVFP4, TL_MXFP4, TL_MXFP8_E4M3};
    static const char *const names[N_FORMS] = {"fwd", "dx"};
    tl_device *device = tl_device_find(argc > 1 ? argv[1] : "cpu");
    if (!device) return printf("%s\n", tl_error_message()), 0;
    const bool is_host = argc <= 1 || !strcmp(argv[1], "cpu");
    const tl_dtype dtype = argc > 2 && !strcmp(argv[2], "bf16") ? TL_BF16 : TL_F32;
    const int64_t N = argc > 3 ? atoll(argv[3]) : is_host ? 256 : 4096, in = argc > 4 ? atoll(argv[4]) : 2048;
    const int64_t out = argc > 5 ? atoll(argv[5]) : is_host ? in : 4 * in;
    if (N < 1 || in < 1 || out < 1) return printf("sizes must be positive\n"), 1;
    tl_scope scope = tl_scope_begin();
    struct operands o = {.x = tl_normal(TL_SHAPE(N, in), 0, 1, dtype, device),
                         .g = tl_normal(TL_SHAPE(N, out), 0, 1, dtype, device),
                         .weight = tl_normal(TL_SHAPE(out, in), 0, 1, dtype, device)};
    printf("%s, %s: %lld rows, %lld x %lld\n", argc > 1 ? argv[1] : "cpu", tl_dtype_name(dtype), (long long)N,
           (long long)in, (long long)out);
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        double seconds[N_WAYS][N_FORMS];
        if (!tl_quantize(o.weight, formats[f], TL_NEAREST, &o.blocks)) return printf("%s\n", tl_error_message()), 1;
        measure(&o, device, is_host ? 1 : 20, seconds);
        for (int form = 0; form < N_FORMS; form++)
            printf("  %-10s  %-3s  unpacked first %8.3f  read %8.3f ms  %5.2f times as fast, %.2f of the ready rate\n",
                   tl_format_name(formats[f]), names[form], 1e3 * seconds[UNPACKED][form], 1e3 * seconds[READ][form],
                   seconds[UNPACKED][form] / seconds[READ][form], seconds[READY][form] / seconds[READ][form]);
    }
    tl_scope_end(scope);
    return 0;
}

/* bench_gemm.c: matrix products, as shares of the chip's peak.
 *
 *     build/bench/bench_gemm [gpt2|char|tiny|small|all] [repetitions]
 *
 * For each shape: f32, f32 by the CBLAS that the library was built with, bf16, and f32 as TL_MATMUL_HIGH, through
 * the public functions, so that allocation and dispatch are in the numbers. The methods alternate, and medians are
 * printed: GFLOP/s, and the share of the multiply-add peak of the same data type, which is measured in the same run.
 * "fwd" is x W^T, "dx" g W, "dw" g^T x.
 */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/cpu/probe.h"
#include "tally.h"

#ifdef _OPENMP
#include <omp.h>
#endif

static int n_threads;

/* ---- Methods ----------------------------------------------------------------------------------------------------- */

enum { F32, BLAS, BF16, HIGH, N_WAYS };
static const char *const way_names[N_WAYS] = {"f32", "cblas f32", "bf16", "f32 high"};

/* Both operands in f32 and bf16, as stored and as the product takes them. */
struct pair {
    tl_tensor *a[2], *b[2], *op_a[2], *op_b[2];
    int64_t m, n, k;
    bool transpose_a, transpose_b;
};

static struct pair pair_new(const char *form, int64_t m, int64_t n, int64_t k) {
    struct pair p = {.m = m, .n = n, .k = k, .transpose_a = form[1] == 'w', .transpose_b = form[0] == 'f'};
    tl_device *cpu = tl_device_find("cpu");
    for (int i = 0; i < 2; i++) {
        const tl_dtype dtype = i ? TL_BF16 : TL_F32;
        const int64_t a_shape[2] = {p.transpose_a ? k : m, p.transpose_a ? m : k};
        const int64_t b_shape[2] = {p.transpose_b ? n : k, p.transpose_b ? k : n};
        p.a[i] = tl_cast(tl_normal(2, a_shape, 0, 1, TL_F32, cpu), dtype);
        p.b[i] = tl_cast(tl_normal(2, b_shape, 0, 1, TL_F32, cpu), dtype);
        p.op_a[i] = p.transpose_a ? tl_transpose(p.a[i], 0, 1) : p.a[i];
        p.op_b[i] = p.transpose_b ? tl_transpose(p.b[i], 0, 1) : p.b[i];
    }
    return p;
}

static void blas_threads(int n) {
#if defined(TALLY_BLAS_BLIS)
    void bli_thread_set_num_threads(int64_t);
    bli_thread_set_num_threads(n);
#elif defined(TALLY_BLAS_OPENBLAS)
    void openblas_set_num_threads(int);
    openblas_set_num_threads(n);
#endif
}

static void run(const struct pair *p, int way) {
    tl_scope scope = tl_scope_begin();
    if (way == BLAS) {
        tl_tensor *out = tl_empty(TL_SHAPE(p->m, p->n), TL_F32, tl_device_find("cpu"));
        cblas_sgemm(CblasRowMajor, p->transpose_a ? CblasTrans : CblasNoTrans,
                    p->transpose_b ? CblasTrans : CblasNoTrans, (int)p->m, (int)p->n, (int)p->k, 1, tl_data(p->a[0]),
                    (int)(p->transpose_a ? p->m : p->k), tl_data(p->b[0]), (int)(p->transpose_b ? p->k : p->n), 0,
                    tl_data(out), (int)p->n);
    } else {
        tl_set_matmul_precision(way == HIGH ? TL_MATMUL_HIGH : TL_MATMUL_HIGHEST);
        if (!tl_matmul(p->op_a[way == BF16], p->op_b[way == BF16])) abort();
    }
    tl_scope_end(scope);
}

/* ---- Shapes ------------------------------------------------------------------------------------------------------ */

static const struct shape {
    const char *set, *name;
    int64_t N, in, out; /* rows of x, its width, the result's width */
    int weight;         /* how often a step has it */
} shapes[] = {
    {"gpt2", "qkv", 1024, 768, 2304, 12},
    {"gpt2", "proj", 1024, 768, 768, 12},
    {"gpt2", "fc", 1024, 768, 3072, 12},
    {"gpt2", "fcproj", 1024, 3072, 768, 12},
    {"gpt2", "head", 1024, 768, 50257, 1},
    {"char", "qkv", 16384, 384, 1152, 6},
    {"char", "proj", 16384, 384, 384, 6},
    {"char", "fc", 16384, 384, 1536, 6},
    {"char", "fcproj", 16384, 1536, 384, 6},
    {"tiny", "qkv", 768, 128, 384, 4},
    {"tiny", "proj", 768, 128, 128, 4},
    {"tiny", "fc", 768, 128, 512, 4},
    {"tiny", "fcproj", 768, 512, 128, 4},
    {"small", "1x768x768", 1, 768, 768, 1},
    {"small", "8", 8, 8, 8, 1},
    {"small", "16", 16, 16, 16, 1},
    {"small", "32", 32, 32, 32, 1},
    {"small", "64", 64, 64, 64, 1},
    {"small", "96", 96, 96, 96, 1},
    {"small", "128", 128, 128, 128, 1},
    {"small", "192", 192, 192, 192, 1},
    {"small", "256", 256, 256, 256, 1},
};

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median seconds of each method, in alternation. One repetition of a short product is many calls. */
static void measure(const struct pair *p, int n_repetitions, double seconds[N_WAYS]) {
    enum { MOST = 101 };
    static double times[N_WAYS][MOST];
    const double flops = 2. * (double)p->m * (double)p->n * (double)p->k;
    const int n_inner = flops < 1e8 ? (int)(1e8 / (flops + 1e5)) + 1 : 1;
    if (n_repetitions > MOST) n_repetitions = MOST;
    for (int r = -1; r < n_repetitions; r++) {
        for (int way = 0; way < N_WAYS; way++) {
            const double start = now_s();
            for (int i = 0; i < n_inner; i++) run(p, way);
            if (r >= 0) times[way][r] = (now_s() - start) / n_inner;
        }
    }
    for (int way = 0; way < N_WAYS; way++) {
        qsort(times[way], (size_t)n_repetitions, sizeof(double), by_size);
        seconds[way] = times[way][n_repetitions / 2];
    }
}

static void print_row(const char *set, const char *name, const double rate[N_WAYS], const double peaks[N_WAYS]) {
    printf("%-5s %-13s", set, name);
    for (int way = 0; way < N_WAYS; way++) {
        printf("  %8.1f", rate[way]);
        if (peaks[way] > 0) printf(" (%4.1f %%)", 100 * rate[way] / peaks[way]);
        else printf("         ");
    }
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    const char *wanted = argc > 1 ? argv[1] : "all";
    const int n_repetitions = argc > 2 && atoi(argv[2]) > 0 ? atoi(argv[2]) : 5;
    const int most = tl_set_threads(0);
    n_threads = getenv("OMP_NUM_THREADS") ? atoi(getenv("OMP_NUM_THREADS")) : most;
    if (n_threads < 1) n_threads = most;
    tl_set_threads(n_threads);
    blas_threads(n_threads);
    const double f32 = cpu_peak(NULL, TL_F32) / 1e9, bf16 = cpu_peak(NULL, TL_BF16) / 1e9;
    const double peaks[N_WAYS] = {f32, f32, bf16, bf16 / 3};
    printf("%d threads; peak: f32 %.1f, bf16 %.1f GFLOP/s; \"high\" is compared with a third of bf16's\n", n_threads,
           f32, bf16);
    printf("%-19s", "GFLOP/s (of peak)");
    for (int way = 0; way < N_WAYS; way++) printf("  %17s", way_names[way]);
    printf("\n");
    double total_flops = 0, total_s[N_WAYS] = {0};
    const char *set = "";
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        if (strcmp(wanted, "all") && strcmp(wanted, s->set)) continue;
        if (strcmp(set, s->set)) memset(total_s, 0, sizeof total_s), total_flops = 0, set = s->set;
        for (int form = 0; form < 3; form++) {
            static const char *const forms[3] = {"fwd", "dx", "dw"};
            tl_scope scope = tl_scope_begin();
            struct pair p = form == 0   ? pair_new("fwd", s->N, s->out, s->in)
                            : form == 1 ? pair_new("dx", s->N, s->in, s->out)
                                        : pair_new("dw", s->out, s->in, s->N);
            double seconds[N_WAYS], rate[N_WAYS];
            char name[32];
            measure(&p, n_repetitions, seconds);
            const double flops = 2. * (double)p.m * (double)p.n * (double)p.k;
            for (int way = 0; way < N_WAYS; way++) {
                rate[way] = flops / seconds[way] / 1e9;
                total_s[way] += s->weight * seconds[way];
            }
            total_flops += s->weight * flops;
            snprintf(name, sizeof name, "%s %s", s->name, forms[form]);
            print_row(s->set, name, rate, peaks);
            tl_scope_end(scope);
        }
        if (i + 1 == sizeof shapes / sizeof *shapes || strcmp(shapes[i + 1].set, s->set)) {
            double rate[N_WAYS];
            for (int way = 0; way < N_WAYS; way++) rate[way] = total_flops / total_s[way] / 1e9;
            print_row(s->set, "a step's", rate, peaks);
        }
    }
    return 0;
}

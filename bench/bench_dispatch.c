/* bench_dispatch.c: the overhead of one op call.
 *
 * An add of two 4x4 tensors with gradients on, inside an open ledger, including its release: at most 200 ns on meta and
 * 300 ns on cpu. And the price of one training step of the 405B Llama shape: under 1 s and 100 MB.
 */
#include <stdio.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "tally.h"

/* The best of many short runs: the speed of the machine without interruptions. */
static double add_ns(const char *name) {
    tl_device *device = tl_device_find(name);
    tl_scope scope = tl_scope_begin();
    tl_tensor *a = tl_requires_grad(tl_zeros(TL_SHAPE(4, 4), TL_F32, device), true);
    tl_tensor *b = tl_zeros(TL_SHAPE(4, 4), TL_F32, device);
    tl_ledger *ledger = tl_ledger_begin("bench");
    double best = 1e9;
    for (int run = 0; run < 200; run++) {
        const int n = 2000;
        double start = now_s();
        for (int i = 0; i < n; i++) {
            tl_scope inner = tl_scope_begin();
            tl_add(a, b);
            tl_scope_end(inner);
        }
        double ns = 1e9 * (now_s() - start) / n;
        if (ns < best) best = ns;
    }
    tl_ledger_end(ledger);
    tl_ledger_free(ledger);
    tl_scope_end(scope);
    return best;
}

static void price_405b(void) {
    const int64_t T = 8192;
    tl_device *meta = tl_device_find("meta:h200");
    tl_set_pool_limit(meta, SIZE_MAX); /* it does not fit on one card, but it has a price */
    double start = now_s();
    tl_scope scope = tl_scope_begin();
    tl_model_config c;
    tl_model_preset("llama-3.1-405b", &c);
    tl_module *model = tl_model_new(&c, TL_BF16, meta);
    tl_optimizer *optimizer = tl_optimizer_new(TL_ADAMW);
    int n;
    const tl_named_tensor *list = tl_module_list(model, &n);
    for (int i = 0; i < n; i++) tl_optimizer_add(optimizer, list[i].name, list[i].tensor, NULL);
    tl_tensor *tokens = tl_integers(TL_SHAPE(1, T), 0, c.vocabulary, TL_I64, meta);
    tl_ledger *ledger = tl_ledger_begin("405B");
    tl_backward(tl_model_loss(model, tokens, tokens), NULL, 0);
    tl_optimizer_step(optimizer, 1, NULL);
    tl_module_zero_grad(model, false);
    tl_ledger_end(ledger);
    double seconds = now_s() - start;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    char text[40];
    tl_totals t = tl_ledger_total(ledger, TL_ALL, NULL);
    printf("405B step (126 layers, T 8192): %lld parameters, %s FLOPs, %llu ops, peak %.2f TB: priced in %.3f s, %.1f "
           "MB resident\n",
           (long long)tl_module_parameters(model), tl_count_text(t.flops, text), (unsigned long long)t.calls,
           (double)tl_ledger_peak(ledger, meta, TL_ALL) / 1e12, seconds, (double)usage.ru_maxrss / 1e3);
    tl_ledger_free(ledger);
    tl_optimizer_free(optimizer);
    tl_module_free(model);
    tl_scope_end(scope);
}

int main(void) {
    price_405b();                 /* first: its memory is the program's own */
    double meta = 1e9, cpu = 1e9; /* interleaved: a machine that wakes up slowly must not favour the later one */
    for (int round = 0; round < 4; round++) {
        double m = add_ns("meta"), c = add_ns("cpu");
        if (m < meta) meta = m;
        if (c < cpu) cpu = c;
    }
    printf("add 4x4 with gradient and ledger, release included: meta %.0f ns (bar 200), cpu %.0f ns (bar 300 + work)\n",
           meta, cpu);
    return 0;
}

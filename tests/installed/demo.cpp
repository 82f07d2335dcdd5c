// The public header from C++: it must compile without a warning, its names must link (extern "C"), and every macro that
// it defines must work. The test checks that each of them occurs here.
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <tally.h>

static int n_wrong = 0;
static void expect(const char *what, double value, double wanted) {
    if (value == wanted) return;
    std::printf("%s: %g, and not %g\n", what, value, wanted);
    n_wrong++;
}

TL_API void say(const char *format, ...) TL_PRINTF(1, 2);
void say(const char *format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    std::vprintf(format, arguments);
    va_end(arguments);
}

int main() {
    tl_scope scope = tl_scope_begin();
    const int rows = 2;
    const std::size_t columns = 3;
    tl_tensor *x = tl_full(TL_SHAPE(rows, columns), 1.5, TL_F32, nullptr);
    tl_tensor *one = tl_full(TL_SCALAR, 1, TL_F32, nullptr);
    expect("TL_SHAPE", static_cast<double>(tl_size(x, 0) * 10 + tl_size(x, 1)), 23);
    expect("a sum", tl_at(tl_add(x, one), TL_VALUES_OF(std::int64_t, 1, 2)), 2.5);
    expect("TL_LENGTH_OF", TL_LENGTH_OF(int, 4, 5, 6), 3);
    expect("TL_TENSORS", tl_at(tl_einsum("i k, j k -> i j", TL_TENSORS(x, x)), TL_VALUES_OF(std::int64_t, 0, 1)), 6.75);
    expect("TL_END", static_cast<double>(tl_size(tl_slice(x, 1, 1, TL_END, 1), 1)), 2);

    tl_tensor *q = tl_normal(TL_SHAPE(1, 4, 1, 8), 0, 1, TL_F32, nullptr); // (B,T,H,D)
    tl_tensor *causal = tl_attention(q, q, q, TL_CAUSAL, nullptr);
    expect("TL_CAUSAL", tl_at(causal, TL_VALUES_OF(std::int64_t, 0, 0, 0, 3)),
           tl_at(q, TL_VALUES_OF(std::int64_t, 0, 0, 0, 3))); // the first query sees the first key alone

    tl_ledger *ledger = tl_ledger_begin("demo");
    tl_add(x, x);
    tl_ledger_end(ledger);
    expect("TL_ALL", static_cast<double>(tl_ledger_total(ledger, TL_ALL, nullptr).calls), 1);
    tl_ledger_free(ledger);
    expect("TL_BIT", static_cast<double>(TL_BIT(40)), 1099511627776.0);
    expect("TL_IGNORE_NONE", tl_cross_entropy_defaults().ignore_index == TL_IGNORE_NONE, 1);
    expect("TL_BYTES_HASH", TL_BYTES_HASH > 0, 1);
    expect("TL_VERSION", std::strcmp(tl_version(), TL_VERSION), 0);
    static_assert(TL_MAX_RANK >= 8 && TL_MAX_INPUTS >= 8 && TL_MAX_OUTPUTS >= 2, "limits");
    tl_scope_end(scope);
    if (!n_wrong) say("tally %s from C++ %ld", tl_version(), static_cast<long>(__cplusplus));
    return n_wrong != 0;
}

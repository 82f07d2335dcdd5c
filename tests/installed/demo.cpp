// The public header from C++: it must compile without a word, and its names must link (extern "C").
#include <cstdint>
#include <cstdio>
#include <tally.h>

int main() {
    tl_scope scope = tl_scope_begin();
    const std::int64_t shape[] = {2, 3};
    tl_tensor *x = tl_full(2, shape, 1.5, TL_F32, nullptr);
    const std::int64_t index[] = {1, 2};
    double value = tl_at(tl_add(x, x), index);
    tl_scope_end(scope);
    std::printf("tally %s from C++: 1.5 + 1.5 = %g\n", tl_version(), value);
    return value == 3.0 ? 0 : 1;
}

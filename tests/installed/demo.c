/* A user's first program, built against an installed Tally and nothing of its sources. */
#include <stdio.h>
#include <string.h>
#include <tally.h>

int main(void) {
    if (strcmp(tl_version(), TL_VERSION) != 0) {
        printf("the header says %s and the library %s\n", TL_VERSION, tl_version());
        return 1;
    }
    tl_scope scope = tl_scope_begin();
    const float three[] = {0, 1, 2};
    tl_tensor *x = tl_from_data(three, TL_SHAPE(3), TL_F32, NULL);
    tl_tensor *y = tl_add(x, tl_full(TL_SHAPE(2, 3), 0.5, TL_F32, NULL)); /* (2,3) */
    double last = tl_at(y, (const int64_t[]){1, 2});
    tl_scope_end(scope);

    tl_memory left = tl_device_memory(tl_device_find("cpu"));
    printf("tally %s: 2 + 0.5 = %g, %llu bytes left\n", tl_version(), last, (unsigned long long)left.live_bytes);
    return last == 2.5 && left.live_bytes == 0 ? 0 : 1;
}

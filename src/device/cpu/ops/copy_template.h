/* copy_template.h: the loops of copy.c for elements of type T, an unsigned integer of their size; included there
 * once per size. Steps are in bytes. */

static void NAME(move)(char *out, int64_t out_step, const char *in, int64_t in_step, int64_t n) {
    if (out_step == sizeof(T)) {
        T *to = (T *)(void *)out;
        VECTOR_LOOP
        for (int64_t i = 0; i < n; i++) to[i] = *(const T *)(const void *)(in + i * in_step);
        return;
    }
    for (int64_t i = 0; i < n; i++) *(T *)(void *)(out + i * out_step) = *(const T *)(const void *)(in + i * in_step);
}

static void NAME(fill)(char *out, int64_t out_step, const void *element, int64_t n) {
    const T value = *(const T *)element;
    if (out_step == sizeof(T)) {
        T pattern[LINE_VECTOR / sizeof(T)], *to = (T *)(void *)out;
        for (size_t k = 0; k < LINE_VECTOR / sizeof(T); k++) pattern[k] = value;
        const int64_t done = fill_lines(out, (const char *)pattern, n * (int64_t)sizeof(T)) / (int64_t)sizeof(T);
        for (int64_t i = done; i < n; i++) to[i] = value;
        return;
    }
    for (int64_t i = 0; i < n; i++) *(T *)(void *)(out + i * out_step) = value;
}

#undef T
#undef NAME

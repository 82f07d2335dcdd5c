/* copy_template.h: the loops of copy.c for elements of type T, an unsigned integer of their size; included there once per
 * size. Steps are in bytes. */

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
        T *to = (T *)(void *)out;
        for (int64_t i = 0; i < n; i++) to[i] = value;
        return;
    }
    for (int64_t i = 0; i < n; i++) *(T *)(void *)(out + i * out_step) = value;
}

/* LANES x LANES elements: to[j][i] = from[i][j]. Interleaving row i with row i + LANES / 2, for all i, moves every element's
 * place by one bit; after log2(LANES) times rows and columns have changed places. */
typedef T NAME(lanes) __attribute__((vector_size(16)));
typedef T NAME(lanes_memory) __attribute__((vector_size(16), aligned(sizeof(T)), may_alias));

VECTOR_INLINE void NAME(turn_square)(char *to, int64_t to_step, const char *from, int64_t from_step) {
    NAME(lanes) a[LANES], b[LANES];
    for (int i = 0; i < LANES; i++) a[i] = *(const NAME(lanes_memory) *)(const void *)(from + i * from_step);
    for (int n = 1; n < LANES; n *= 2) {
        for (int i = 0; i < LANES / 2; i++) {
            b[2 * i] = __builtin_shufflevector(a[i], a[i + LANES / 2], LOW);
            b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + LANES / 2], HIGH);
        }
        for (int i = 0; i < LANES; i++) a[i] = b[i];
    }
    for (int i = 0; i < LANES; i++) *(NAME(lanes_memory) *)(void *)(to + i * to_step) = a[i];
}

/* to[j][i] = from[i][j] for i < n_from, j < n_to; rows are a step apart. */
static void NAME(turn)(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n_from, int64_t n_to) {
    const int64_t whole_from = n_from / LANES * LANES, whole_to = n_to / LANES * LANES;
    for (int64_t i = 0; i < whole_from; i += LANES)
        for (int64_t j = 0; j < whole_to; j += LANES)
            NAME(turn_square)
            (to + j * to_step + i * (int64_t)sizeof(T), to_step, from + i * from_step + j * (int64_t)sizeof(T),
             from_step);
    for (int64_t i = 0; i < n_from; i++)
        for (int64_t j = i < whole_from ? whole_to : 0; j < n_to; j++)
            ((T *)(void *)(to + j * to_step))[i] = ((const T *)(const void *)(from + i * from_step))[j];
}

#undef T
#undef LANES
#undef LOW
#undef HIGH
#undef NAME

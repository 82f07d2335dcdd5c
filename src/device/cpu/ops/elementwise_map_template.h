/* elementwise_map_template.h: a function of one or two numbers over arrays of one compute type T, inlined with a
 * constant f. The output may be an input's own memory. */

/* For a few instructions per element: compilers vectorise and unroll the plain loop, and tiles would only get in the
 * way. */
VECTOR_INLINE void NAME(each)(T *out, const T *x, int64_t n, T (*f)(T)) {
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = f(x[i]);
}

VECTOR_INLINE void NAME(each_pair)(T *out, const T *a, const T *b, int64_t n, T (*f)(T, T)) {
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) out[i] = f(a[i], b[i]);
}

#if IS_FLOAT
/* For long chains of instructions: in tiles, see VECTOR_TILE. A tile is read whole before any of it is written, so
 * this works in place. */
VECTOR_INLINE void NAME(map)(T *out, const T *x, int64_t n, T (*f)(T)) {
    int64_t i = 0;
    for (; i + VECTOR_TILE <= n; i += VECTOR_TILE) {
        T tile[VECTOR_TILE];
        memcpy(tile, x + i, sizeof tile);
        for (int k = 0; k < VECTOR_TILE; k++) tile[k] = f(tile[k]);
        memcpy(out + i, tile, sizeof tile);
    }
    for (; i < n; i++) out[i] = f(x[i]);
}

VECTOR_INLINE void NAME(map_pair)(T *out, const T *a, const T *b, int64_t n, T (*f)(T, T)) {
    int64_t i = 0;
    for (; i + VECTOR_TILE <= n; i += VECTOR_TILE) {
        T tile[VECTOR_TILE], second[VECTOR_TILE];
        memcpy(tile, a + i, sizeof tile);
        memcpy(second, b + i, sizeof second);
        for (int k = 0; k < VECTOR_TILE; k++) tile[k] = f(tile[k], second[k]);
        memcpy(out + i, tile, sizeof tile);
    }
    for (; i < n; i++) out[i] = f(a[i], b[i]);
}
#endif

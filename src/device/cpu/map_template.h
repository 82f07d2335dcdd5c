/* map_template.h: a function over arrays of one compute type T; see elementwise_template.h, which includes it, as math_template.h does. */

/* out[i] = f(x[i]), inlined with a constant f. A tile is read whole before any of it is written: so in place is fine. */
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

/* copy_transpose_template.h: transposing for copy_tiles.c, for units of type T, of 4 or 8 bytes; included there once
 * per size. Steps are in bytes. */

#define LANES (16 / (int64_t)sizeof(T))
#define LINE (LINE_BYTES / (int64_t)sizeof(T))

/* LANES x LANES units, from rows to columns: at each scale, off-diagonal blocks are swapped. */
VECTOR_INLINE void NAME(turn_square)(vector *a, const char *from, int64_t from_step) {
    for (int i = 0; i < LANES; i++) a[i] = *(const vector_memory *)(const void *)(from + i * from_step);
    for (int i = 0; i < LANES / 2; i++) swap_8(&a[i], &a[i + LANES / 2]);
    for (int i = 0; i < LANES && LANES == 4; i += 2) swap_4(&a[i], &a[i + 1]);
}

/* LINE x LANES units: LANES whole lines of the output, each written at once. */
VECTOR_INLINE void NAME(turn_lines)(char *const *run, int64_t offset, const char *from, int64_t from_step) {
    vector a[4 * LANES];
    for (int k = 0; k < 4; k++) NAME(turn_square)(a + k * LANES, from + k * LANES * from_step, from_step);
    for (int i = 0; i < LANES; i++)
        for (int k = 0; k < 4; k++) *(vector_memory *)(void *)(run[i] + offset + k * 16) = a[k * LANES + i];
}

/* The part of a tile that has whole lines: column j of `rows`, which are `step` apart, goes to out + to[j]. The
 * output's runs are written one after the other, so that few of its pages are in use at a time. */
VECTOR_INLINE void NAME(turn_rows)(char *out, const int64_t *to, const char *rows, int64_t step, int64_t n_lines,
                                   int64_t n_columns) {
    for (int64_t j = 0; j + LANES <= n_columns; j += LANES) {
        char *run[LANES];
        for (int k = 0; k < LANES; k++) run[k] = out + to[j + k];
        const char *from = rows + j * (int64_t)sizeof(T);
        for (int64_t line = 0; line < n_lines; line++) {
            NAME(turn_lines)(run, line * LINE_BYTES, from, step);
            from += LINE * step;
        }
    }
}

#undef LANES
#undef LINE
#undef T
#undef NAME

/* turn_template.h: transposing for copy_tiles.c, for elements of type T; included there once per size. Steps are in bytes. */

#define LANES (16 / (int64_t)sizeof(T))
#define LINE (LINE_BYTES / (int64_t)sizeof(T))

/* LANES x LANES elements, from rows to columns: at each scale, blocks beside the diagonal change places. */
VECTOR_INLINE void NAME(turn_square)(vector *a, const char *from, int64_t from_step) {
    for (int i = 0; i < LANES; i++) a[i] = *(const vector_memory *)(const void *)(from + i * from_step);
    for (int i = 0; i < LANES; i++) {
        if (i & (LANES / 2)) continue;
        if (LANES <= 4) shuffle_8(&a[i], &a[i + LANES / 2]);
        else swap_8(&a[i], &a[i + LANES / 2]);
    }
    for (int i = 0; i < LANES && LANES >= 4; i++)
        if (!(i & (LANES / 4))) swap_4(&a[i], &a[i + LANES / 4]);
    for (int i = 0; i < LANES && LANES >= 8; i++)
        if (!(i & (LANES / 8))) swap_2(&a[i], &a[i + LANES / 8]);
    for (int i = 0; i < LANES && LANES >= 16; i++)
        if (!(i & (LANES / 16))) swap_1(&a[i], &a[i + LANES / 16]);
}

/* LINE x LANES elements: LANES whole lines of the output, each written at once. */
VECTOR_INLINE void NAME(turn_lines)(char *const *to, int64_t offset, const char *from, int64_t from_step) {
    vector a[4 * LANES];
    for (int k = 0; k < 4; k++) NAME(turn_square)(a + k * LANES, from + k * LANES * from_step, from_step);
    for (int i = 0; i < LANES; i++) {
        char *line = to[i] + offset;
        for (int k = 0; k < 4; k++) *(vector_memory *)(void *)(line + k * 16) = a[k * LANES + i];
    }
}

/* to[j][i] = from[i][j] for i < n_from, j < n_to. Runs of the output one after the other, so that few of its pages are in use at a
 * time; lines of the next tile are asked for on the way. */
static void NAME(turn)(char *const *to, const char *from, int64_t from_step, int64_t n_from, int64_t n_to,
                       struct fetch *fetch) {
    const int64_t e = sizeof(T), whole_from = n_from / LINE * LINE, whole_to = n_to / LANES * LANES;
    fetch_plan(fetch, (whole_from / LINE) * (whole_to / LANES));
    for (int64_t j = 0; j < whole_to; j += LANES) {
        char *run[LANES]; /* a copy: what is written might be the table, for all that a compiler knows */
        for (int k = 0; k < LANES; k++) run[k] = to[j + k];
        for (int64_t i = 0; i < whole_from; i += LINE) {
            fetch_some(fetch);
            NAME(turn_lines)(run, i * e, from + i * from_step + j * e, from_step);
        }
    }
    for (int64_t j = 0; j < n_to; j++)
        for (int64_t i = j < whole_to ? whole_from : 0; i < n_from; i++)
            memcpy(to[j] + i * e, from + i * from_step + j * e, sizeof(T));
}

#undef LANES
#undef LINE
#undef T
#undef NAME

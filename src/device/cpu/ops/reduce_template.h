/* reduce_template.h: one reduction (COMBINE, IDENTITY) in one compute type T; included by reduce.c once per pair. Chunk
 * results are combined in WIDE. TYPE(x) and WIDE_TYPE(x) give the conversions of those types. */

#ifdef CHOOSE
/* STREAMS sets of lanes side by side, or every step would wait for the one before; they are joined in order at the
 * end. All but the last few elements, fewer than LANES * STREAMS, are done here.
 *
 * An extreme does not depend on the order of its elements, except for the sign of a zero and the bits of a NaN: the
 * rule is the first of equals and the last NaN of a lane. So elements are first taken in memory order, with the
 * chip's own maximum where that keeps NaN (QUICK); where a zero or a NaN comes out, again in STREAMS neighbouring
 * parts of x, each in order. */
typedef T NAME(vector) __attribute__((vector_size(VECTOR_BYTES)));
typedef MASK NAME(mask) __attribute__((vector_size(VECTOR_BYTES)));

static inline void NAME(take)(NAME(vector) * held, NAME(vector) b) {
    const NAME(mask) takes = CHOOSE(*held, b);
    *held = (NAME(vector))((takes & (NAME(mask))b) | (~takes & (NAME(mask)) * held));
}

VECTOR_INLINE bool NAME(choose_by)(T *lanes, const T *x, int64_t part, bool is_in_order) {
    enum { WIDTH = VECTOR_BYTES / sizeof(T), VECTORS = LANES / WIDTH };
    NAME(vector) held[STREAMS * VECTORS];
    memcpy(held, lanes, LANES * sizeof(T));
    for (int v = VECTORS; v < STREAMS * VECTORS; v++) held[v] = IDENTITY - (NAME(vector)){0};
    for (int64_t i = 0; i < part; i += LANES) {
        UNROLLED
        for (int v = 0; v < STREAMS * VECTORS; v++) {
            NAME(vector) b;
            memcpy(&b, x + (is_in_order ? v / VECTORS * part + i + v % VECTORS * WIDTH : i * STREAMS + v * WIDTH),
                   sizeof b);
#ifdef QUICK
            if (!is_in_order) {
                held[v] = QUICK(held[v], b);
                continue;
            }
#endif
            NAME(take)(&held[v], b);
        }
    }
    MASK is_doubtful[LANES], any = 0;
    UNROLLED
    for (int v = VECTORS; v < STREAMS * VECTORS; v++) NAME(take)(&held[v % VECTORS], held[v]);
    UNROLLED
    for (int v = 0; v < VECTORS; v++) {
        const NAME(mask) doubt = IS_DOUBTFUL(held[v]);
        memcpy(is_doubtful + v * WIDTH, &doubt, sizeof doubt);
    }
    for (int lane = 0; lane < LANES; lane++) any |= is_doubtful[lane];
    if (any && !is_in_order) return false;
    memcpy(lanes, held, LANES * sizeof(T));
    return true;
}

static inline int64_t NAME(choose)(T *lanes, const T *x, int64_t n) {
    const int64_t part = n / (LANES * STREAMS) * LANES;
    if (part > 0 && !NAME(choose_by)(lanes, x, part, false)) NAME(choose_by)(lanes, x, part, true);
    return part * STREAMS;
}
#endif

/* Adds x[0..n) to the lanes, x[0] to lane 0. */
static inline void NAME(accumulate)(T *lanes, const T *x, int64_t n) {
    int64_t i = 0;
#ifdef CHOOSE
    i = NAME(choose)(lanes, x, n);
#endif
    T held[LANES];
    for (int lane = 0; lane < LANES; lane++) held[lane] = lanes[lane];
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++) held[lane] = COMBINE(held[lane], x[i + lane]);
    for (int lane = 0; lane < LANES; lane++) lanes[lane] = held[lane];
    for (int lane = 0; i + lane < n; lane++) lanes[lane] = COMBINE(lanes[lane], x[i + lane]);
}

#ifdef NARROW
/* The same for elements of a narrower type, widened on the way. */
static inline void NAME(accumulate_narrow)(T *lanes, const NARROW *x, int64_t n) {
    int64_t i = 0;
    T held[LANES];
    for (int lane = 0; lane < LANES; lane++) held[lane] = lanes[lane];
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++) held[lane] = COMBINE(held[lane], WIDEN(x[i + lane]));
    for (int lane = 0; lane < LANES; lane++) lanes[lane] = held[lane];
    for (int lane = 0; i + lane < n; lane++) lanes[lane] = COMBINE(lanes[lane], WIDEN(x[i + lane]));
}
#endif

static inline T NAME(tree)(T *lanes) {
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++) lanes[lane] = COMBINE(lanes[lane], lanes[lane + half]);
    return lanes[0];
}

/* ---- Rows --------------------------------------------------------------------------------------------------- */

/* Positions first .. last-1 of the reduced walk, for the output whose elements begin at `base`. */
static T NAME(row_chunk)(const struct task *task, const char *base, int64_t first, int64_t last) {
    const struct iterate *walk = &task->reduced;
    T lanes[LANES];
    for (int lane = 0; lane < LANES; lane++) lanes[lane] = IDENTITY;

    if (walk->rank == 1 && task->is_array) {
        NAME(accumulate)(lanes, (const T *)(const void *)base + first, last - first);
        return NAME(tree)(lanes);
    }
#ifdef NARROW
    if (walk->rank == 1 && task->x_dtype == NARROW_DTYPE && task->x_stride == 1) {
        NAME(accumulate_narrow)(lanes, (const NARROW *)(const void *)base + first, last - first);
        return NAME(tree)(lanes);
    }
#endif
    T buffer[BLOCK];
    struct iterate_run run;
    iterate_seek(walk, &run, first, last);
    for (int64_t done = first; done < last;) {
        int64_t filled = 0;
        while (filled < BLOCK && iterate_next(walk, &run, BLOCK - filled)) {
            TYPE(convert_to)
            (buffer + filled, base + (run.data[0] - task->x), task->x_dtype, task->x_stride, run.length);
            filled += run.length;
        }
        NAME(accumulate)(lanes, buffer, filled);
        done += filled;
    }
    return NAME(tree)(lanes);
}

/* n neighbouring results, of which `totals` are the sums. */
static void NAME(put)(const struct task *task, int64_t output, WIDE *totals, int64_t n) {
    for (int64_t i = 0; task->is_mean && i < n; i++) totals[i] = (WIDE)(totals[i] / (WIDE)task->reduced.n);
    WIDE_TYPE(convert_from)(task->out + output * task->out_bytes, task->out_dtype, 1, totals, n);
}

static void NAME(rows)(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    struct iterate_run run;
    iterate_seek(&task->kept, &run, first, last);
    while (iterate_next(&task->kept, &run, 1)) {
        WIDE total = (WIDE)IDENTITY;
        for (int64_t chunk = 0; chunk < task->n_chunks; chunk++) {
            const T part = NAME(row_chunk)(task, run.data[0], chunk * REDUCE_CHUNK, chunk_end(task, chunk));
            total = chunk == 0 ? (WIDE)part : COMBINE(total, (WIDE)part);
        }
        NAME(put)(task, run.position, &total, 1);
    }
}

/* Items are output * n_chunks + chunk. */
static void NAME(row_chunks)(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    WIDE *partial = task->partial;
    for (int64_t item = first; item < last; item++) {
        const int64_t output = item / task->n_chunks, chunk = item % task->n_chunks;
        struct iterate_run run;
        iterate_seek(&task->kept, &run, output, output + 1);
        iterate_next(&task->kept, &run, 1);
        partial[item] = (WIDE)NAME(row_chunk)(task, run.data[0], chunk * REDUCE_CHUNK, chunk_end(task, chunk));
    }
}

/* ---- Columns ------------------------------------------------------------------------------------------------ */

typedef T NAME(lane)[COLUMN_BYTES / sizeof(T)];

/* The rows of a run in groups of LANES * GROUP, for n outputs: the GROUP rows of one lane are added in one pass over
 * it, in their order, so that a lane is read and written once for all of them. Returns how many rows are done. */
static int64_t NAME(column_groups)(const struct task *task, const char *base, int64_t n, const struct iterate_run *run,
                                   int64_t position, NAME(lane) * lanes) {
    const int64_t step = task->reduced.step[0];
    int64_t i = 0;
    for (; i + LANES * GROUP <= run->length; i += LANES * GROUP) {
        for (int64_t r = i; r < i + LANES; r++) {
            const char *at = base + (run->data[0] - task->x) + r * step;
            const T *a = (const T *)(const void *)at, *b = (const T *)(const void *)(at + LANES * step);
            const T *c = (const T *)(const void *)(at + 2 * LANES * step);
            const T *d = (const T *)(const void *)(at + 3 * LANES * step);
            T *lane = lanes[(position + r) % LANES];
            VECTOR_LOOP
            for (int64_t column = 0; column < n; column++) {
                T held = COMBINE(lane[column], a[column]);
                held = COMBINE(held, b[column]);
                held = COMBINE(held, c[column]);
                lane[column] = COMBINE(held, d[column]);
            }
        }
    }
    return i;
}

/* The same for n neighbouring outputs at once; `sums` receives one result each. */
static void NAME(column_chunk)(const struct task *task, const char *base, int64_t n, int64_t first, int64_t last,
                               T *sums) {
    enum { COLUMNS = COLUMN_BYTES / sizeof(T) };
    const struct iterate *walk = &task->reduced;
    SCRATCH_ARRAY(NAME(lane), lanes, LANES);
    SCRATCH_ARRAY(T, buffer, COLUMNS);
    for (int lane = 0; lane < LANES; lane++)
        for (int64_t column = 0; column < n; column++) lanes[lane][column] = IDENTITY;

    struct iterate_run run;
    iterate_seek(walk, &run, first, last);
    while (iterate_next(walk, &run, INT64_MAX)) {
        int64_t i = task->is_array ? NAME(column_groups)(task, base, n, &run, run.position - first, lanes) : 0;
        for (; i < run.length; i++) {
            const char *at = base + (run.data[0] - task->x) + i * walk->step[0];
            const T *row = (const T *)(const void *)at;
            T *lane = lanes[(run.position - first + i) % LANES];
#ifdef NARROW
            if (task->x_dtype == NARROW_DTYPE && task->x_stride == 1) {
                const NARROW *narrow = (const NARROW *)(const void *)at;
                VECTOR_LOOP
                for (int64_t column = 0; column < n; column++)
                    lane[column] = COMBINE(lane[column], WIDEN(narrow[column]));
                continue;
            }
#endif
            if (!task->is_array) {
                TYPE(convert_to)(buffer, at, task->x_dtype, task->x_stride, n);
                row = buffer;
            }
            VECTOR_LOOP
            for (int64_t column = 0; column < n; column++) lane[column] = COMBINE(lane[column], row[column]);
        }
    }

    for (int half = LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++)
            for (int64_t column = 0; column < n; column++)
                lanes[lane][column] = COMBINE(lanes[lane][column], lanes[lane + half][column]);
    for (int64_t column = 0; column < n; column++) sums[column] = lanes[0][column];
}

static void NAME(columns)(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    SCRATCH_ARRAY(T, sums, COLUMN_BYTES / sizeof(T));
    SCRATCH_ARRAY(WIDE, totals, COLUMN_BYTES / sizeof(T));
    for (int64_t block = first; block < last; block++) {
        int64_t output;
        const char *base;
        const int64_t n = find_block(task, block, &output, &base);
        for (int64_t chunk = 0; chunk < task->n_chunks; chunk++) {
            NAME(column_chunk)(task, base, n, chunk * REDUCE_CHUNK, chunk_end(task, chunk), sums);
            for (int64_t i = 0; i < n; i++) totals[i] = chunk == 0 ? (WIDE)sums[i] : COMBINE(totals[i], (WIDE)sums[i]);
        }
        NAME(put)(task, output, totals, n);
    }
}

/* Items are chunk-major: chunk * (all blocks) + block, so that neighbours read neighbouring memory. */
static void NAME(column_chunks)(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    WIDE *partial = task->partial;
    const int64_t kept_size = task->kept.size[task->kept.rank - 1];
    const int64_t all_blocks = task->kept.n / kept_size * task->n_blocks;
    SCRATCH_ARRAY(T, sums, COLUMN_BYTES / sizeof(T));
    for (int64_t item = first; item < last; item++) {
        const int64_t chunk = item / all_blocks;
        int64_t output;
        const char *base;
        const int64_t n = find_block(task, item % all_blocks, &output, &base);
        NAME(column_chunk)(task, base, n, chunk * REDUCE_CHUNK, chunk_end(task, chunk), sums);
        for (int64_t i = 0; i < n; i++) partial[(output + i) * task->n_chunks + chunk] = (WIDE)sums[i];
    }
}

/* ---- Joining chunks ------------------------------------------------------------------------------------------ */

static void NAME(join)(void *context, int64_t first, int64_t last) {
    const struct task *task = context;
    const WIDE *partial = task->partial;
    for (int64_t output = first; output < last; output++) {
        WIDE total = partial[output * task->n_chunks];
        for (int64_t chunk = 1; chunk < task->n_chunks; chunk++)
            total = COMBINE(total, partial[output * task->n_chunks + chunk]);
        NAME(put)(task, output, &total, 1);
    }
}

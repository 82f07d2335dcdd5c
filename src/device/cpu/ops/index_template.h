/* index_template.h: the loops of index.c for elements of type T; included there once per type. Steps and offsets are
 * in bytes. A *line* has its places in the table one by one: element i at id[i] * id_step + i * table_step; a *row*
 * has them at equal distances. With ADD, T is an arithmetic type; otherwise it is an unsigned integer of the
 * elements' size. */

#define TABLE_AT(i) ((T *)(void *)(table + id[i] * id_step + (i)*table_step))
#define LINE \
    char *table, int64_t table_step, const int64_t *id, int64_t id_step, char *slot, int64_t slot_step, int64_t n

/* With constant steps for dense arrays, which halves the work. */
#define BY_STEPS(loop)                                                                       \
    if (table_step == 0 && id_step == (int64_t)sizeof(T) && slot_step == (int64_t)sizeof(T)) \
        loop(table, 0, id, (int64_t)sizeof(T), slot, (int64_t)sizeof(T), n);                 \
    else loop(table, table_step, id, id_step, slot, slot_step, n)

#ifdef ADD

VECTOR_INLINE void NAME(add_by)(LINE) {
    for (int64_t i = 0; i < n; i++) {
        T *to = TABLE_AT(i);
        *to = ADD(*to, *(const T *)(const void *)(slot + i * slot_step));
    }
}

static void NAME(add_line)(LINE) { BY_STEPS(NAME(add_by)); }

static void NAME(add_row)(char *table, int64_t table_step, char *slot, int64_t slot_step, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        T *to = (T *)(void *)(table + i * table_step);
        *to = ADD(*to, *(const T *)(const void *)(slot + i * slot_step));
    }
}

#else

/* May be unrolled: slots never overlap the table. */
VECTOR_INLINE void NAME(fetch_by)(LINE) {
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) {
        T *to = (T *)(void *)(slot + i * slot_step);
        *to = *TABLE_AT(i);
    }
}

VECTOR_INLINE void NAME(put_by)(LINE) {
    for (int64_t i = 0; i < n; i++) *TABLE_AT(i) = *(const T *)(const void *)(slot + i * slot_step);
}

static void NAME(fetch_line)(LINE) { BY_STEPS(NAME(fetch_by)); }
static void NAME(put_line)(LINE) { BY_STEPS(NAME(put_by)); }

static void NAME(move_row)(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n) {
    if (to_step == sizeof(T) && from_step == sizeof(T)) {
        memcpy(to, from, (size_t)n * sizeof(T));
        return;
    }
    for (int64_t i = 0; i < n; i++) *(T *)(void *)(to + i * to_step) = *(const T *)(const void *)(from + i * from_step);
}

static void NAME(fetch_row)(char *table, int64_t table_step, char *slot, int64_t slot_step, int64_t n) {
    NAME(move_row)(slot, slot_step, table, table_step, n);
}

static void NAME(put_row)(char *table, int64_t table_step, char *slot, int64_t slot_step, int64_t n) {
    NAME(move_row)(table, table_step, slot, slot_step, n);
}

#endif

#undef TABLE_AT
#undef LINE
#undef BY_STEPS
#undef T
#undef NAME
#undef ADD

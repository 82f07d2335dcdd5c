/* index_template.h: the loops of index.c for elements of type T; included there once per type. Steps and offsets are in bytes.
 * A *line* has its places in the table one by one, a *row* has them at equal distances. ADD: what is added is of an
 * arithmetic type; otherwise T is an unsigned integer of the elements' size. */

#ifdef ADD

static void NAME(add_line)(char *table, const int64_t *offset, char *slot, int64_t slot_step, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        T *to = (T *)(void *)(table + offset[i]);
        *to = ADD(*to, *(const T *)(const void *)(slot + i * slot_step));
    }
}

static void NAME(add_row)(char *table, int64_t table_step, char *slot, int64_t slot_step, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        T *to = (T *)(void *)(table + i * table_step);
        *to = ADD(*to, *(const T *)(const void *)(slot + i * slot_step));
    }
}

#else

static void NAME(fetch_line)(char *table, const int64_t *offset, char *slot, int64_t slot_step, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        *(T *)(void *)(slot + i * slot_step) = *(const T *)(const void *)(table + offset[i]);
}

static void NAME(put_line)(char *table, const int64_t *offset, char *slot, int64_t slot_step, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        *(T *)(void *)(table + offset[i]) = *(const T *)(const void *)(slot + i * slot_step);
}

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

#undef T
#undef NAME
#undef ADD

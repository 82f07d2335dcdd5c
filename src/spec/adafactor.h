/* adafactor.h: how a parameter is cut for Adafactor's step, and the workspace that follows from it, on every device. */
#ifndef SPEC_ADAFACTOR_H
#define SPEC_ADAFACTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows whose squares are summed by columns together. */
enum { ADAFACTOR_RUN = 256 };

/* Matrices (rows, columns) of the last two axes. Below rank 2: one row, which has no such sums. */
struct adafactor_sizes {
    bool is_factored;
    int64_t n_matrices, rows, columns, runs;
    int64_t lines, numel; /* rows of all matrices; elements */
};

static inline struct adafactor_sizes adafactor_sizes_of(int rank, const int64_t *shape) {
    struct adafactor_sizes s = {rank >= 2, 1, 1, 1, 0, 0, 0};
    if (rank > 0) s.columns = shape[rank - 1];
    if (rank > 1) s.rows = shape[rank - 2];
    for (int i = 0; i < rank - 2; i++) s.n_matrices *= shape[i];
    if (s.is_factored) s.runs = (s.rows + ADAFACTOR_RUN - 1) / ADAFACTOR_RUN;
    s.lines = s.n_matrices * s.rows;
    s.numel = s.lines * s.columns;
    return s;
}

/* Where the parts of the workspace begin, in bytes: for each line the sums of p^2 and of u^2, for each matrix the mean
 * of its rows' moments, the factor of u, all f64; then sums of squares by column, (matrices, runs, columns) of f32, or
 * f64 for f64. */
struct adafactor_room {
    size_t p_sums, u_sums, means, factor, columns, all;
};

static inline struct adafactor_room adafactor_room_of(const struct adafactor_sizes *s, bool is_f64) {
    struct adafactor_room room = {0, 0, 0, 0, 0, 0};
    if (!s->numel) return room;
    room.u_sums = room.p_sums + (size_t)s->lines * sizeof(double);
    room.means = room.u_sums + (size_t)s->lines * sizeof(double);
    room.factor = room.means + (size_t)s->n_matrices * sizeof(double);
    room.columns = room.factor + sizeof(double);
    room.all = room.columns + (size_t)(s->n_matrices * s->runs * s->columns) * (is_f64 ? 8 : 4);
    return room;
}

#endif

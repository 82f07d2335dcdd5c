/* pairs.h: helpers for sorting by keys, for sort.c and random.c. */
#ifndef DEVICE_CPU_PAIRS_H
#define DEVICE_CPU_PAIRS_H

#include <stdint.h>

struct pair {
    uint64_t key;
    int64_t index;
};

/* Insertion sort, for few pairs or pairs that are nearly in order; stable. */
static inline void sort_short(struct pair *p, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        const struct pair moved = p[i];
        int64_t k = i;
        for (; k > 0 && p[k - 1].key > moved.key; k--) p[k] = p[k - 1];
        p[k] = moved;
    }
}

/* Turns the count of each digit into the position of its first element. */
static inline void exclusive_sums(int64_t *count, int n) {
    int64_t before = 0;
    for (int i = 0; i < n; i++) {
        const int64_t here = count[i];
        count[i] = before;
        before += here;
    }
}

#endif

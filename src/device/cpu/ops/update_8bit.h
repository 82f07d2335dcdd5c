/* update_8bit.h: Adam's step with moments in 8 bits, in blocks (spec/dynamic_map.h).
 *
 * A block's moments are decoded into buffers, stepped by Adam's loop in f32, and encoded with a new scale. The step of
 * the parameter has the moments before they are rounded. A search for the nearest value would take longer than the
 * rest: the upper half of an f32 number says its code but for one comparison. */
#include "spec/dynamic_map.h"

#include <pthread.h>
#include <string.h>

/* Upper halves of f32 numbers from 2^-23, below which all are nearest to 0, to 1: 7 bits of a mantissa are finer than
 * the map, whose values near 1 are 0.007 apart. */
enum { GUESS_LOWEST = (127 - 23) << 7, GUESS_HIGHEST = 127 << 7, GUESSES = GUESS_HIGHEST - GUESS_LOWEST + 1 };

/* Of numbers with a sign, and of others. */
struct map {
    float value[256];       /* by code */
    float middle[256];      /* between magnitude k and the next */
    uint8_t guess[GUESSES]; /* the code of the smallest number with that upper half */
};
static struct map maps[2];

static void map_search(struct map *map, const float *magnitude, int n) {
    for (int k = 0; k < n; k++) map->middle[k] = k + 1 < n ? 0.5f * (magnitude[k] + magnitude[k + 1]) : INFINITY;
    for (int i = 0, k = 0; i < GUESSES; i++) {
        const uint32_t bits = (uint32_t)(GUESS_LOWEST + i) << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        while (x >= map->middle[k]) k++;
        map->guess[i] = (uint8_t)k;
    }
}

static void maps_make(void) {
    static const float magnitude[DYNAMIC_MAGNITUDES] = {DYNAMIC_MAGNITUDE_LIST},
                       positive[DYNAMIC_POSITIVES] = {DYNAMIC_POSITIVE_LIST};
    for (int k = 0; k < DYNAMIC_MAGNITUDES; k++) {
        maps[0].value[DYNAMIC_ZERO + k] = magnitude[k];
        if (k <= DYNAMIC_ZERO) maps[0].value[DYNAMIC_ZERO - k] = -magnitude[k];
    }
    maps[0].value[DYNAMIC_ZERO] = 0;
    memcpy(maps[1].value, positive, sizeof positive);
    map_search(&maps[0], magnitude, DYNAMIC_MAGNITUDES);
    map_search(&maps[1], positive, DYNAMIC_POSITIVES);
}

/* Which magnitude is nearest to x, 0 to 1; that of 0 for a NaN. */
static inline int magnitude_of(const struct map *map, float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int32_t at = (int32_t)(bits >> 16) - GUESS_LOWEST;
    at = at < 0 || at >= GUESSES ? 0 : at;
    const int k = map->guess[at];
    return k + (x >= map->middle[k]);
}

static void moments_decode(float *x, const uint8_t *code, float scale, const struct map *map, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = map->value[code[i]] * scale;
}

/* By their bits, so that a NaN is the largest. */
static float largest_magnitude(const float *x, int64_t n) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7FFFFFFFu;
        largest = bits > largest ? bits : largest;
    }
    float scale;
    memcpy(&scale, &largest, sizeof scale);
    return scale;
}

static void moments_encode(uint8_t *code, float *scale, const float *x, bool is_signed, int64_t n) {
    const float largest = *scale = largest_magnitude(x, n), divisor = largest == 0 ? 1 : largest;
    if (!is_signed) {
        for (int64_t i = 0; i < n; i++) code[i] = (uint8_t)magnitude_of(&maps[1], x[i] / divisor);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const float part = x[i] / divisor;
        const int k = magnitude_of(&maps[0], fabsf(part));
        code[i] = (uint8_t)(part < 0 ? DYNAMIC_ZERO - (k < DYNAMIC_ZERO ? k : DYNAMIC_ZERO) : DYNAMIC_ZERO + k);
    }
}

/* One parameter: p, g and a master copy are walked, the moments are dense. */
struct update_8bit {
    const struct optimizer *o;
    uint8_t *code[2];
    float *scale[2];
};

/* Elements of a block from `first` on. */
static void block_load(const struct optimizer *o, float *p, float *g, int64_t first, int64_t n) {
    const int from = o->master >= 0 ? o->master : 0;
    struct iterate_run run;
    iterate_seek(&o->walk, &run, first, first + n);
    while (iterate_next(&o->walk, &run, DYNAMIC_BLOCK)) {
        convert_to_f32(p + (run.position - first), run.data[from], o->dtype[from], o->stride[from], run.length);
        convert_to_f32(g + (run.position - first), run.data[1], o->dtype[1], o->stride[1], run.length);
    }
}

static void block_store(const struct optimizer *o, const float *p, int64_t first, int64_t n) {
    struct iterate_run run;
    iterate_seek(&o->walk, &run, first, first + n);
    while (iterate_next(&o->walk, &run, DYNAMIC_BLOCK)) {
        const float *values = p + (run.position - first);
        const int master = o->master;
        if (master >= 0) convert_from_f32(run.data[master], TL_F32, o->stride[master], values, run.length);
        write_rounded_f32(o, &run, values);
    }
}

static void update_8bit_range(void *context, int64_t first, int64_t last) {
    const struct update_8bit *u = context;
    const struct optimizer *o = u->o;
    struct factors factors = o->factors;
    const bool decays = factors.weight_decay != 0;
    if (decays) factors.scale = 1; /* decay has applied it */
    SCRATCH_ARRAY(block_f32, x, 4);
    for (int64_t block = first; block < last; block++) {
        const int64_t at = block * DYNAMIC_BLOCK, n = block_min(DYNAMIC_BLOCK, o->walk.n - at);
        block_load(o, x[0], x[1], at, n);
        for (int i = 0; i < 2; i++) moments_decode(x[2 + i], u->code[i] + at, u->scale[i][block], &maps[i], n);
        if (decays) decay_f32(&o->factors, x[0], x[1], n);
        adam_step_f32(&factors, (float *const[]){x[0], x[1], x[2], x[3]}, n);
        for (int i = 0; i < 2; i++) moments_encode(u->code[i] + at, &u->scale[i][block], x[2 + i], i == 0, n);
        block_store(o, x[0], at, n);
    }
}

/* `in`: p, g, the codes of m and v, their scales [, master]. */
static void run_8bit(struct optimizer *o, const tl_operand *in, int n_threads) {
    const tl_operand *walked[3] = {&in[0], &in[1], &in[6]};
    const int n = o->attr->has_master ? 3 : 2;
    const struct update_8bit u = {.o = o, .code = {in[2].data, in[3].data}, .scale = {in[4].data, in[5].data}};
    o->master = o->attr->has_master ? 2 : -1;
    iterate_begin(&o->walk, in[0].rank, in[0].shape, walked, n, ITERATE_ROW_MAJOR);
    for (int i = 0; i < n; i++) {
        o->dtype[i] = walked[i]->dtype;
        o->stride[i] = o->walk.step[i] / iterate_element_bytes(walked[i]->dtype);
    }
    const int64_t n_blocks = (o->walk.n + DYNAMIC_BLOCK - 1) / DYNAMIC_BLOCK;
    parallel_for(n_blocks, parallel_grain(8 * DYNAMIC_BLOCK), n_threads, update_8bit_range, (void *)(uintptr_t)&u);
}

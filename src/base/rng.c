/* rng.c: array fills, by chunks of whole Philox blocks.
 *
 * One driver does the bookkeeping for all distributions: it draws the blocks that cover the wanted elements
 * into a small buffer, has the distribution turn every draw of the buffer into a value, and copies the
 * wanted part out. The two loops (draw, transform) are plain and long, so that compilers vectorise them,
 * and the ragged ends exist in one place.
 */
#include "base/rng.h"

#include <string.h>

enum { LANES = 8, CHUNK_BLOCKS = 64, CHUNK_WORDS = 4 * CHUNK_BLOCKS, CHUNK_BYTES = 8 * CHUNK_WORDS };

/* What a distribution needs beyond its draws. */
struct parameters {
    uint64_t threshold;
    int64_t low, high;
};

/* A distribution: turns n_blocks blocks into their 4 (narrow), 2 (wide) or 8 (mask) values each. */
struct distribution {
    void (*transform)(void *values, const struct rng_block *blocks, int n_blocks, struct parameters parameters);
    size_t value_bytes;
    int values_per_block, n_rounds;
};

/* LANES consecutive blocks. Round by round over all lanes, since the rounds of one block depend on each
 * other and those of different blocks do not: the inner loop becomes vector instructions. */
static void draw_lanes(struct rng_block *blocks, struct rng_key key, uint64_t first, int n_rounds) {
    uint32_t word[4][LANES];
    for (int lane = 0; lane < LANES; lane++) {
        word[0][lane] = (uint32_t)(first + (uint64_t)lane);
        word[1][lane] = (uint32_t)((first + (uint64_t)lane) >> 32);
        word[2][lane] = (uint32_t)key.stream;
        word[3][lane] = (uint32_t)(key.stream >> 32);
    }
    struct rng_philox_key round_key = rng_philox_key_of(key.seed);
    for (int round = 0; round < n_rounds; round++) {
        for (int lane = 0; lane < LANES; lane++) {
            const struct rng_block x = {{word[0][lane], word[1][lane], word[2][lane], word[3][lane]}};
            const struct rng_block y = rng_philox_round(x, round_key);
            word[0][lane] = y.word[0];
            word[1][lane] = y.word[1];
            word[2][lane] = y.word[2];
            word[3][lane] = y.word[3];
        }
        round_key = rng_philox_next_key(round_key);
    }
    for (int lane = 0; lane < LANES; lane++)
        for (int w = 0; w < 4; w++) blocks[lane].word[w] = word[w][lane];
}

static void draw_blocks(struct rng_block *blocks, int n_blocks, struct rng_key key, uint64_t first, int n_rounds) {
    int b = 0;
    for (; b + LANES <= n_blocks; b += LANES) draw_lanes(blocks + b, key, first + (uint64_t)b, n_rounds);
    for (; b < n_blocks; b++)
        blocks[b] = rng_philox(rng_counter(key, first + (uint64_t)b), rng_philox_key_of(key.seed), n_rounds);
}

static void fill(const struct distribution *distribution, void *out, int64_t n, struct rng_key key,
                 uint64_t first_index, struct parameters parameters) {
    struct rng_block blocks[CHUNK_BLOCKS];
    _Alignas(16) unsigned char values[CHUNK_BYTES];
    const uint64_t per_block = (uint64_t)distribution->values_per_block;
    const size_t value_bytes = distribution->value_bytes;
    unsigned char *to = out;

    for (int64_t done = 0; done < n;) {
        const uint64_t index = first_index + (uint64_t)done;
        const int64_t skip = (int64_t)(index % per_block);
        int64_t take = (int64_t)(CHUNK_BLOCKS * per_block) - skip;
        if (take > n - done) take = n - done;
        const int n_blocks = (int)((uint64_t)(skip + take - 1) / per_block) + 1;
        draw_blocks(blocks, n_blocks, key, index / per_block, distribution->n_rounds);
        distribution->transform(values, blocks, n_blocks, parameters);
        memcpy(to, values + (size_t)skip * value_bytes, (size_t)take * value_bytes);
        to += (size_t)take * value_bytes;
        done += take;
    }
}

/* ---- Distributions ----------------------------------------------------------------------------------- */

static void transform_u32(void *values, const struct rng_block *blocks, int n_blocks, struct parameters unused) {
    (void)unused;
    memcpy(values, blocks, (size_t)n_blocks * sizeof *blocks);
}

static void transform_uniform_f32(void *values, const struct rng_block *blocks, int n_blocks,
                                  struct parameters unused) {
    (void)unused;
    float *out = values;
    for (int b = 0; b < n_blocks; b++)
        for (int lane = 0; lane < 4; lane++) out[4 * b + lane] = rng_uniform_f32(blocks[b].word[lane]);
}

static void transform_uniform_f64(void *values, const struct rng_block *blocks, int n_blocks,
                                  struct parameters unused) {
    (void)unused;
    double *out = values;
    for (int b = 0; b < n_blocks; b++)
        for (int lane = 0; lane < 2; lane++) out[2 * b + lane] = rng_uniform_f64(rng_wide_draw(blocks[b], lane));
}

static void transform_normal_f32(void *values, const struct rng_block *blocks, int n_blocks, struct parameters unused) {
    (void)unused;
    float *out = values;
    for (int pair = 0; pair < 2 * n_blocks; pair++) {
        const uint32_t *draw = &blocks[pair / 2].word[2 * (pair % 2)];
        out[2 * pair] = rng_normal_f32(draw[0], draw[1], RNG_COS);
        out[2 * pair + 1] = rng_normal_f32(draw[0], draw[1], RNG_SIN);
    }
}

static void transform_normal_f64(void *values, const struct rng_block *blocks, int n_blocks, struct parameters unused) {
    (void)unused;
    double *out = values;
    for (int b = 0; b < n_blocks; b++) {
        const uint64_t radius_draw = rng_wide_draw(blocks[b], 0), angle_draw = rng_wide_draw(blocks[b], 1);
        out[2 * b] = rng_normal_f64(radius_draw, angle_draw, RNG_COS);
        out[2 * b + 1] = rng_normal_f64(radius_draw, angle_draw, RNG_SIN);
    }
}

static void transform_bernoulli(void *values, const struct rng_block *blocks, int n_blocks,
                                struct parameters parameters) {
    uint8_t *out = values;
    for (int b = 0; b < n_blocks; b++)
        for (int lane = 0; lane < 4; lane++)
            out[4 * b + lane] = rng_bernoulli(blocks[b].word[lane], parameters.threshold);
}

static void transform_mask(void *values, const struct rng_block *blocks, int n_blocks, struct parameters parameters) {
    uint8_t *out = values;
    const uint32_t threshold = (uint32_t)parameters.threshold;
    for (int b = 0; b < n_blocks; b++)
        for (int lane = 0; lane < 8; lane++)
            out[8 * b + lane] = rng_mask_keeps(rng_mask_draw(blocks[b], lane), threshold);
}

static void transform_integers(void *values, const struct rng_block *blocks, int n_blocks,
                               struct parameters parameters) {
    int64_t *out = values;
    for (int b = 0; b < n_blocks; b++)
        for (int lane = 0; lane < 2; lane++)
            out[2 * b + lane] = rng_integer(rng_wide_draw(blocks[b], lane), parameters.low, parameters.high);
}

static const struct distribution raw_u32 = {transform_u32, sizeof(uint32_t), 4, RNG_PHILOX_ROUNDS};
static const struct distribution uniform_f32 = {transform_uniform_f32, sizeof(float), 4, RNG_PHILOX_ROUNDS};
static const struct distribution uniform_f64 = {transform_uniform_f64, sizeof(double), 2, RNG_PHILOX_ROUNDS};
static const struct distribution normal_f32 = {transform_normal_f32, sizeof(float), 4, RNG_PHILOX_ROUNDS};
static const struct distribution normal_f64 = {transform_normal_f64, sizeof(double), 2, RNG_PHILOX_ROUNDS};
static const struct distribution bernoulli = {transform_bernoulli, sizeof(uint8_t), 4, RNG_PHILOX_ROUNDS};
static const struct distribution mask = {transform_mask, sizeof(uint8_t), 8, RNG_MASK_ROUNDS};
static const struct distribution integers = {transform_integers, sizeof(int64_t), 2, RNG_PHILOX_ROUNDS};

/* ---- Entry points ------------------------------------------------------------------------------------ */

void rng_fill_u32(uint32_t *out, int64_t n, struct rng_key key, uint64_t first_index) {
    fill(&raw_u32, out, n, key, first_index, (struct parameters){0});
}

void rng_fill_uniform_f32(float *out, int64_t n, struct rng_key key, uint64_t first_index) {
    fill(&uniform_f32, out, n, key, first_index, (struct parameters){0});
}

void rng_fill_uniform_f64(double *out, int64_t n, struct rng_key key, uint64_t first_index) {
    fill(&uniform_f64, out, n, key, first_index, (struct parameters){0});
}

void rng_fill_normal_f32(float *out, int64_t n, struct rng_key key, uint64_t first_index) {
    fill(&normal_f32, out, n, key, first_index, (struct parameters){0});
}

void rng_fill_normal_f64(double *out, int64_t n, struct rng_key key, uint64_t first_index) {
    fill(&normal_f64, out, n, key, first_index, (struct parameters){0});
}

void rng_fill_bernoulli(uint8_t *out, int64_t n, struct rng_key key, uint64_t first_index, double p) {
    fill(&bernoulli, out, n, key, first_index, (struct parameters){.threshold = rng_threshold(p)});
}

void rng_fill_mask(uint8_t *out, int64_t n, struct rng_key key, uint64_t first_index, double p) {
    fill(&mask, out, n, key, first_index, (struct parameters){.threshold = rng_mask_threshold(p)});
}

void rng_fill_integers(int64_t *out, int64_t n, struct rng_key key, uint64_t first_index, int64_t low, int64_t high) {
    fill(&integers, out, n, key, first_index, (struct parameters){.low = low, .high = high});
}

/* gemm_arm.h: the blocks of gemm.c for 64-bit Arm: 8 x 12 sums in 24 of the 32 vector registers.
 *
 * They are in assembly because compilers spill the sums to memory. They are fast (measured on Neoverse V1) because
 * loads stand between multiply-adds that do not depend on them, addresses are a base plus a constant, and each loaded
 * vector is used up before its register is loaded again. f32 runs at 99 % of the chip's peak, bf16 at 95 %, on
 * operands in the L1 cache.
 *
 * Row i, vector j of the sums is register 8 + 3i + j in f32. Both kernels read one step further than they compute
 * (GEMM_SLACK).
 */
#include <arm_neon.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings"

enum { F32_ROWS = 8, F32_COLUMNS = 12, F32_TERMS = 4, F32_CHUNK = 0, F32_SLICE = 128 };

#define CLEAR(r) "movi v" #r ".4s, #0\n\t"
#define CLEAR_SUMS                                                                                                 \
    CLEAR(8) CLEAR(9) CLEAR(10) CLEAR(11) CLEAR(12) CLEAR(13) CLEAR(14) CLEAR(15) CLEAR(16) CLEAR(17) CLEAR(18)    \
    CLEAR(19) CLEAR(20) CLEAR(21) CLEAR(22) CLEAR(23) CLEAR(24) CLEAR(25) CLEAR(26) CLEAR(27) CLEAR(28) CLEAR(29)  \
    CLEAR(30) CLEAR(31)

/* c's row = registers x, y, z, or += them; v0 to v2 are free by then when it adds. */
#define STORE_ROW(x, y, z) "stp q" #x ", q" #y ", [%[c]]\n\tstr q" #z ", [%[c], #32]\n\tadd %[c], %[c], %[step]\n\t"
#define ADD_ROW(x, y, z, t, u, v)                                                                                   \
    "ldp q" #t ", q" #u ", [%[c]]\n\tldr q" #v ", [%[c], #32]\n\t"                                                  \
    "fadd v" #x ".4s, v" #x ".4s, v" #t ".4s\n\tfadd v" #y ".4s, v" #y ".4s, v" #u ".4s\n\t"                        \
    "fadd v" #z ".4s, v" #z ".4s, v" #v ".4s\n\t" STORE_ROW(x, y, z)

#define VECTORS                                                                                                      \
    "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16",     \
        "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31"

/* ---- f32: packed as (k, 8) and (k, 12) ------------------------------------------------------------------------ */

#define MLA(sum, b, a, lane) "fmla v" #sum ".4s, v" #b ".4s, v" #a ".s[" #lane "]\n\t"

/* One term of all sums: a's rows are in registers low and high, b's columns in 2 to 4. Meanwhile the next term is
 * loaded. */
#define F32_STEP(low, high, next_low, next_high, a_at, b_at)                                                         \
    MLA(8, 2, low, 0) MLA(11, 2, low, 1) MLA(14, 2, low, 2) MLA(17, 2, low, 3)                                       \
    "ldp q" #next_low ", q" #next_high ", [%[a], #" #a_at "]\n\t"                                                    \
    MLA(20, 2, high, 0) MLA(23, 2, high, 1) MLA(26, 2, high, 2) MLA(29, 2, high, 3) MLA(9, 3, low, 0)                \
    "ldr q2, [%[b], #" #b_at "]\n\t"                                                                                 \
    MLA(12, 3, low, 1) MLA(15, 3, low, 2) MLA(18, 3, low, 3) MLA(21, 3, high, 0) MLA(24, 3, high, 1)                 \
    MLA(27, 3, high, 2) MLA(30, 3, high, 3) MLA(10, 4, low, 0)                                                       \
    "ldr q3, [%[b], #" #b_at " + 16]\n\t"                                                                            \
    MLA(13, 4, low, 1) MLA(16, 4, low, 2) MLA(19, 4, low, 3) MLA(22, 4, high, 0) MLA(25, 4, high, 1)                 \
    MLA(28, 4, high, 2) MLA(31, 4, high, 3)                                                                          \
    "ldr q4, [%[b], #" #b_at " + 32]\n\t"

static void block_f32(int64_t n_k, const void *a, const void *b, void *c, int64_t c_step, enum store store) {
    int64_t n_rounds = n_k / F32_TERMS;
    const int64_t step = c_step * (int64_t)sizeof(float);
    __asm__ volatile(
        "ldp q0, q1, [%[a]]\n\t"
        "ldp q2, q3, [%[b]]\n\t"
        "ldr q4, [%[b], #32]\n\t" CLEAR_SUMS
        ".p2align 5\n"
        "1:\n\t"
        F32_STEP(0, 1, 5, 6, 32, 48)
        F32_STEP(5, 6, 0, 1, 64, 96)
        F32_STEP(0, 1, 5, 6, 96, 144)
        F32_STEP(5, 6, 0, 1, 128, 192)
        "add %[a], %[a], #128\n\t"
        "add %[b], %[b], #192\n\t"
        "subs %[n], %[n], #1\n\t"
        "b.ne 1b\n\t"
        "cbnz %w[store], 2f\n\t"
        STORE_ROW(8, 9, 10) STORE_ROW(11, 12, 13) STORE_ROW(14, 15, 16) STORE_ROW(17, 18, 19)
        STORE_ROW(20, 21, 22) STORE_ROW(23, 24, 25) STORE_ROW(26, 27, 28) STORE_ROW(29, 30, 31)
        "b 3f\n"
        "2:\n\t"
        ADD_ROW(8, 9, 10, 0, 1, 2) ADD_ROW(11, 12, 13, 3, 4, 5)
        ADD_ROW(14, 15, 16, 0, 1, 2) ADD_ROW(17, 18, 19, 3, 4, 5)
        ADD_ROW(20, 21, 22, 0, 1, 2) ADD_ROW(23, 24, 25, 3, 4, 5)
        ADD_ROW(26, 27, 28, 0, 1, 2) ADD_ROW(29, 30, 31, 3, 4, 5)
        "3:\n\t"
        : [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [n] "+r"(n_rounds)
        : [step] "r"(step), [store] "r"((int)store)
        : VECTORS, "memory", "cc");
}

/* ---- bf16: packed as (k/4, 8, 4) and (k/4, 12, 4), so that one vector is four terms of two rows ------------------ */

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define GEMM_HAS_BF16 1
#define GEMM_STORES_BF16 1
enum {
    BF16_ROWS = 8,
    BF16_COLUMNS = 12,
    BF16_TERMS = 16,
    BF16_CHUNK = 0,
    BF16_SLICE = 128,
    BF16_A_GROUP = 4,
    BF16_B_GROUP = 4
};

/* BFMMLA: 2 x 2 sums += (2 x 4) (4 x 2). Rows 2i, columns 2j are register 8 + 6i + j. It takes subnormal numbers as
 * zero. */
#define MMLA(sum, a, b) "bfmmla v" #sum ".4s, v" #a ".8h, v" #b ".8h\n\t"
#define MMLA_COLUMNS(s0, s1, s2, s3, b) MMLA(s0, 0, b) MMLA(s1, 1, b) MMLA(s2, 2, b) MMLA(s3, 3, b)
#define LOAD_A(r, at) "ldr q" #r ", [%[a], #" #at "]\n\t"
#define LOAD_B(r, at) "ldr q" #r ", [%[b], #" #at "]\n\t"

/* Four terms. a's rows are in 0 to 3; b's first four pairs of columns are in w, x, y, z, and the last two are loaded
 * into w and x. The last loads are for the next four terms: a at a_at, b at b_at (64 bytes before its start). */
#define BF16_STEP(w, x, y, z, a_at, b_at)                                                                            \
    MMLA_COLUMNS(8, 14, 20, 26, w) LOAD_B(w, b_at)                                                                   \
    MMLA_COLUMNS(9, 15, 21, 27, x) LOAD_B(x, b_at + 16)                                                              \
    MMLA_COLUMNS(10, 16, 22, 28, y) LOAD_B(y, b_at + 32)                                                             \
    MMLA_COLUMNS(11, 17, 23, 29, z) LOAD_B(z, b_at + 48)                                                             \
    MMLA(12, 0, w) MMLA(13, 0, x) LOAD_A(0, a_at)                                                                    \
    MMLA(18, 1, w) MMLA(19, 1, x) LOAD_A(1, a_at + 16)                                                               \
    MMLA(24, 2, w) MMLA(25, 2, x) LOAD_A(2, a_at + 32)                                                               \
    MMLA(30, 3, w) MMLA(31, 3, x) LOAD_A(3, a_at + 48) LOAD_B(w, b_at + 64) LOAD_B(x, b_at + 80)

/* Two rows out of six registers of 2 x 2 sums, into 0, 2, 4 and 1, 3, 5. */
#define ZIP(half, to, s, t) "zip" #half " v" #to ".2d, v" #s ".2d, v" #t ".2d\n\t"
#define UNFOLD(s0, s1, s2, s3, s4, s5)                                                                               \
    ZIP(1, 0, s0, s1) ZIP(2, 1, s0, s1) ZIP(1, 2, s2, s3) ZIP(2, 3, s2, s3) ZIP(1, 4, s4, s5) ZIP(2, 5, s4, s5)
#define STORE_PAIR(s0, s1, s2, s3, s4, s5) UNFOLD(s0, s1, s2, s3, s4, s5) STORE_ROW(0, 2, 4) STORE_ROW(1, 3, 5)
#define ADD_PAIR(s0, s1, s2, s3, s4, s5)                                                                             \
    UNFOLD(s0, s1, s2, s3, s4, s5) ADD_ROW(0, 2, 4, s0, s1, s2) ADD_ROW(1, 3, 5, s3, s4, s5)
#define ROUND_ROW(x, y, z)                                                                                           \
    "bfcvtn v" #x ".4h, v" #x ".4s\n\tbfcvtn2 v" #x ".8h, v" #y ".4s\n\tbfcvtn v" #z ".4h, v" #z ".4s\n\t"             \
    "str q" #x ", [%[c]]\n\tstr d" #z ", [%[c], #16]\n\tadd %[c], %[c], %[step]\n\t"
#define ROUND_PAIR(s0, s1, s2, s3, s4, s5) UNFOLD(s0, s1, s2, s3, s4, s5) ROUND_ROW(0, 2, 4) ROUND_ROW(1, 3, 5)

static void block_bf16(int64_t n_k, const void *a, const void *b, void *c, int64_t c_step, enum store store) {
    int64_t n_rounds = n_k / BF16_TERMS;
    const int64_t step = c_step * (int64_t)(store == STORE_BF16 ? sizeof(uint16_t) : sizeof(float));
    __asm__ volatile(
        "ldp q0, q1, [%[a]]\n\t"
        "ldp q2, q3, [%[a], #32]\n\t"
        "ldp q4, q5, [%[b]]\n\t"
        "ldp q6, q7, [%[b], #32]\n\t" CLEAR_SUMS
        ".p2align 5\n"
        "1:\n\t"
        BF16_STEP(4, 5, 6, 7, 64, 64)
        BF16_STEP(6, 7, 4, 5, 128, 160)
        BF16_STEP(4, 5, 6, 7, 192, 256)
        BF16_STEP(6, 7, 4, 5, 256, 352)
        "add %[a], %[a], #256\n\t"
        "add %[b], %[b], #384\n\t"
        "subs %[n], %[n], #1\n\t"
        "b.ne 1b\n\t"
        "cbnz %w[store], 2f\n\t"
        STORE_PAIR(8, 9, 10, 11, 12, 13) STORE_PAIR(14, 15, 16, 17, 18, 19)
        STORE_PAIR(20, 21, 22, 23, 24, 25) STORE_PAIR(26, 27, 28, 29, 30, 31)
        "b 3f\n"
        "2:\n\t"
        "cmp %w[store], #1\n\t"
        "b.ne 4f\n\t"
        ADD_PAIR(8, 9, 10, 11, 12, 13) ADD_PAIR(14, 15, 16, 17, 18, 19)
        ADD_PAIR(20, 21, 22, 23, 24, 25) ADD_PAIR(26, 27, 28, 29, 30, 31)
        "b 3f\n"
        "4:\n\t"
        ROUND_PAIR(8, 9, 10, 11, 12, 13) ROUND_PAIR(14, 15, 16, 17, 18, 19)
        ROUND_PAIR(20, 21, 22, 23, 24, 25) ROUND_PAIR(26, 27, 28, 29, 30, 31)
        "3:\n\t"
        : [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [n] "+r"(n_rounds)
        : [step] "r"(step), [store] "r"((int)store)
        : VECTORS, "memory", "cc");
}
#endif

#pragma GCC diagnostic pop

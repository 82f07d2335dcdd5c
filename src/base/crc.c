/* crc.c: CRC32C by the processor's instruction, or by tables of eight bytes at a time.
 *
 * The polynomial is 0x1edc6f41, reflected 0x82f63b78; the register starts as all ones and is inverted at the end.
 * The instruction is in a separate function that is chosen at run time, so one library runs on all processors.
 */
#include "base/crc.h"

#include <pthread.h>
#include <string.h>

static uint32_t table[8][256];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

/* table[0][b]: the register after byte b; table[k][b]: after b and k bytes of 0. */
static void table_fill(void) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t r = b;
        for (int i = 0; i < 8; i++) r = r & 1 ? r >> 1 ^ 0x82f63b78u : r >> 1;
        table[0][b] = r;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t b = 0; b < 256; b++) table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 0xff];
}

uint32_t crc32c_table(uint32_t crc, const void *data, size_t bytes) {
    pthread_once(&table_once, table_fill);
    const unsigned char *p = data;
    uint32_t r = ~crc;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8); /* little-endian, like all supported machines */
        word ^= r;
        r = 0;
        for (int k = 0; k < 8; k++) r ^= table[7 - k][word >> (8 * k) & 0xff];
    }
    for (; bytes > 0; bytes--, p++) r = r >> 8 ^ table[0][(r ^ *p) & 0xff];
    return ~r;
}

#if defined(__x86_64__)
#define WITH_INSTRUCTION __attribute__((target("sse4.2")))
#define STEP_8(r, word) ((uint32_t)__builtin_ia32_crc32di(r, word))
#define STEP_1(r, byte) __builtin_ia32_crc32qi(r, byte)
bool crc32c_has_instruction(void) { return __builtin_cpu_supports("sse4.2"); }
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#define CPU_HAS_CRC32 (1ul << 7) /* HWCAP_CRC32 of Linux */
#if defined(__clang__)
#define WITH_INSTRUCTION __attribute__((target("crc")))
#define STEP_8(r, word) __builtin_arm_crc32cd(r, word)
#define STEP_1(r, byte) __builtin_arm_crc32cb(r, byte)
#else
#define WITH_INSTRUCTION __attribute__((target("+crc")))
#define STEP_8(r, word) __builtin_aarch64_crc32cx(r, word)
#define STEP_1(r, byte) __builtin_aarch64_crc32cb(r, byte)
#endif
bool crc32c_has_instruction(void) { return getauxval(AT_HWCAP) & CPU_HAS_CRC32; }
#endif

#ifdef WITH_INSTRUCTION
WITH_INSTRUCTION uint32_t crc32c_instruction(uint32_t crc, const void *data, size_t bytes) {
    const unsigned char *p = data;
    uint32_t r = ~crc;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        r = STEP_8(r, word);
    }
    for (; bytes > 0; bytes--, p++) r = STEP_1(r, *p);
    return ~r;
}
#else
bool crc32c_has_instruction(void) { return false; }
uint32_t crc32c_instruction(uint32_t crc, const void *data, size_t bytes) { return crc32c_table(crc, data, bytes); }
#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes) {
    return crc32c_has_instruction() ? crc32c_instruction(crc, data, bytes) : crc32c_table(crc, data, bytes);
}

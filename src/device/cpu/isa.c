/* isa.c: the kernels exist once per instruction set, and the machine's capability bits choose.
 *
 * Every kernel file is compiled several times, from the same source, with different compiler flags; each copy keeps
 * its names private and exports one table (Makefile, "instruction sets"). The choice depends on the capabilities that
 * the system reports, never on the core's name: a core may have an extension that the system does not switch on.
 *
 * The sets of one architecture give the same bits, except for matrix products and attention, whose multiply-adds and
 * block sizes depend on the set (tests/test_samples.c).
 */
#include "device/cpu/isa.h"
#include "device/cpu/shared/kernels.h"

#include <stdio.h>
#include <string.h>

#if defined(__aarch64__)
#include <sys/auxv.h>

static bool has_fp16(void) {
    const unsigned long needed = CAP_ASIMDHP | CAP_ASIMDDP;
    return (getauxval(AT_HWCAP) & needed) == needed;
}

static bool has_bf16(void) { return has_fp16() && (getauxval(AT_HWCAP2) & CAP2_BF16); }

#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* clang 14 does not know the name "f16c", so this bit is read directly. */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}

/* The compiler's own test also checks whether the system saves the wide registers. */
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
           has_f16c();
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool has_avx512bf16(void) {
    unsigned a, b, c, d;
    return has_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}

/* A process must ask the system for the tile registers before it may touch them; threads that it starts inherit the
 * answer. */
static bool may_use_tiles(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static bool has_amx(void) {
    unsigned a, b, c, d;
    return has_avx512bf16() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1) && (d >> 24 & 1) &&
           may_use_tiles();
}
#endif

/* Weak: a library may be built with fewer of them (ISAS=), and then the address is NULL. */
#define ISA(name, is_there) extern const tl_kernel cpu_kernels_##name[] __attribute__((weak));
#include "device/cpu/isa_list.h"
#undef ISA

static bool always(void) { return true; }

static const struct {
    const char *name;
    const tl_kernel *kernels;
    bool (*is_there)(void);
} sets[] = {
    {"baseline", cpu_kernels, always},
#define ISA(name, is_there) {#name, cpu_kernels_##name, is_there},
#include "device/cpu/isa_list.h"
#undef ISA
};

enum { N_SETS = sizeof sets / sizeof *sets };

bool cpu_isa_at(int index, struct cpu_isa *isa) {
    for (int i = 0; i < N_SETS; i++) {
        if (!sets[i].kernels || !sets[i].is_there() || index-- != 0) continue;
        *isa = (struct cpu_isa){sets[i].name, sets[i].kernels};
        return true;
    }
    return false;
}

bool cpu_isa_choose(const char *wish, struct cpu_isa *isa, char *error) {
    char known[120] = "";
    bool is_found = false;
    for (int i = 0; cpu_isa_at(i, isa); i++) {
        if (wish && !strcmp(wish, isa->name)) return true;
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", isa->name);
        is_found = true;
    }
    if (!wish || !*wish) return is_found;
    snprintf(error, 200, "TALLY_ISA=%.30s is not to be had here; there are: %s", wish, known);
    return false;
}

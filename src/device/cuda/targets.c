/* targets.c: the GPUs in the table, and the rules for all others.
 *
 * Pool and kernels are the same on all of them. They differ in memory and in properties of the compute capability:
 * the workspace that cuBLAS's manual recommends, and which products the chip computes natively. Memory is the
 * runtime's figure (cudaMemGetInfo), which is below the nominal size. We have measured only the H200's; the others
 * are figures that users of the cards have published, rounded down to whole MiB, since drivers differ by a few. */
#include "device/cuda/rules.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define MIB ((uint64_t)1 << 20)

/* 512-byte blocks, as CUDA code expects. Outside the pool are the context, library handles and their code: 754 MB on
 * an H200 (docs/devices.md), and taken to be that on the others. */
#define SEGMENTS                                                                                             \
    .align_bytes = 512, .small_bytes = MIB, .small_segment_bytes = 2 * MIB, .large_segment_bytes = 32 * MIB, \
    .huge_bytes = 16 * MIB, .segment_align_bytes = 2 * MIB, .outside_bytes = 754000000, .rules = &cuda_rules

/* Each is in one place, as an expression of the compute capability, so that rows of the table and cards that are in
 * no table agree. From the cuBLAS manual (cublasSetWorkspace): 32 MiB on 9.x and 10.x, 12 MiB on 12.x, 4 MiB before. */
#define GEMM_WORKSPACE(capability) ((capability) >= 120 ? 12 * MIB : (capability) >= 90 ? 32 * MIB : 4 * MIB)
#define NATIVE(capability)                                                   \
    (TARGET_NATIVE(TL_F64) | TARGET_NATIVE(TL_F32) | TARGET_NATIVE(TL_F16) | \
     ((capability) >= 80 ? TARGET_NATIVE(TL_BF16) : 0) |                     \
     ((capability) >= 89 ? TARGET_NATIVE(TL_F8E4M3) | TARGET_NATIVE(TL_F8E5M2) : 0))

#define GPU(name_, chip_, capability_, memory_, origin_, source_)                                              \
    {                                                                                                          \
        .name = name_, .chip = chip_, SEGMENTS, .memory_bytes = memory_, .capability = capability_,            \
        .gemm_workspace_bytes = GEMM_WORKSPACE(capability_), .native = NATIVE(capability_), .origin = origin_, \
        .source = source_                                                                                      \
    }
#define REPORTED "cudaMemGetInfo in public logs"
#define RESERVED "not known: the nominal size less a reserve of 2 % or more"
#define ESTIMATED "an estimate of what cudaMemGetInfo says, not checked"

/* If drivers have several names for a chip, each stands between bars. The names here are those that `meta:NAME`
 * takes. */
const struct target cuda_targets[] = {
    GPU("h200", "NVIDIA H200", 90, 150109880320, TARGET_MEASURED, "cudaMemGetInfo on the card"),
    GPU("a100-40", "NVIDIA A100-SXM4-40GB|NVIDIA A100-PCIE-40GB", 80, 42405855232, TARGET_SHEET, REPORTED),
    GPU("a100-80", "NVIDIA A100-SXM4-80GB|NVIDIA A100 80GB PCIe", 80, 81251 * MIB, TARGET_SHEET, ESTIMATED),
    GPU("h100", "NVIDIA H100 80GB HBM3", 90, 81082 * MIB, TARGET_SHEET, REPORTED),
    GPU("h100-pcie", "NVIDIA H100 PCIe", 90, 81008 * MIB, TARGET_SHEET, REPORTED),
    GPU("b200", "NVIDIA B200", 100, 182630 * MIB, TARGET_SHEET, REPORTED),
    GPU("l40s", "NVIDIA L40S", 89, 45457 * MIB, TARGET_SHEET, ESTIMATED),
    GPU("l4", "NVIDIA L4", 89, 22478 * MIB, TARGET_SHEET, ESTIMATED),
    GPU("a10", "NVIDIA A10|NVIDIA A10G", 86, 22515 * MIB, TARGET_SHEET, ESTIMATED),
    GPU("t4", "Tesla T4|NVIDIA T4", 75, 14910 * MIB, TARGET_SHEET, ESTIMATED),
    GPU("rtx-3090", "NVIDIA GeForce RTX 3090", 86, 24258 * MIB, TARGET_SHEET, REPORTED),
    GPU("rtx-4090", "NVIDIA GeForce RTX 4090", 89, 24202 * MIB, TARGET_SHEET, REPORTED),
    GPU("rtx-5090", "NVIDIA GeForce RTX 5090", 120, 32117 * MIB, TARGET_SHEET, REPORTED),
    GPU("v100-16", "Tesla V100-SXM2-16GB|Tesla V100-PCIE-16GB", 70, 16130 * MIB, TARGET_SHEET, REPORTED),
    GPU("v100-32", "Tesla V100-SXM2-32GB|Tesla V100-PCIE-32GB", 70, 32000 * MIB, TARGET_SHEET, RESERVED),
    GPU("h100-nvl", "NVIDIA H100 NVL", 90, 94000 * MIB, TARGET_SHEET, RESERVED),
    GPU("h200-nvl", "NVIDIA H200 NVL", 90, 142000 * MIB, TARGET_SHEET, RESERVED),
    GPU("h20", "NVIDIA H20", 90, 97285 * MIB, TARGET_SHEET, REPORTED),
    GPU("h800", "NVIDIA H800", 90, 80000 * MIB, TARGET_SHEET, RESERVED),
    GPU("gh200", "NVIDIA GH200 480GB", 90, 95000 * MIB, TARGET_SHEET, RESERVED),
    GPU("gb200", "NVIDIA GB200", 100, 177000 * MIB, TARGET_SHEET, RESERVED),
    GPU("b300", "NVIDIA B300 SXM6 AC", 103, 257000 * MIB, TARGET_SHEET, RESERVED),
    GPU("gb300", "NVIDIA GB300", 103, 266000 * MIB, TARGET_SHEET, RESERVED),
    GPU("a40", "NVIDIA A40", 86, 45416 * MIB, TARGET_SHEET, REPORTED),
    GPU("rtx-a6000", "NVIDIA RTX A6000", 86, 48676 * MIB, TARGET_SHEET, REPORTED),
    GPU("rtx-6000-ada", "NVIDIA RTX 6000 Ada Generation", 89, 48622 * MIB, TARGET_SHEET, REPORTED),
    GPU("rtx-pro-6000",
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition|NVIDIA RTX PRO 6000 Blackwell Server Edition", 120,
        97244 * MIB, TARGET_SHEET, REPORTED),
    GPU("gb10", "NVIDIA GB10", 121, 122475 * MIB, TARGET_SHEET, REPORTED ", of which the CPU takes its part"),
    GPU("rtx-3060", "NVIDIA GeForce RTX 3060", 86, 11931 * MIB, TARGET_SHEET, REPORTED),
    GPU("rtx-3070", "NVIDIA GeForce RTX 3070", 86, 7782 * MIB, TARGET_SHEET, RESERVED),
    GPU("rtx-3080", "NVIDIA GeForce RTX 3080", 86, 9728 * MIB, TARGET_SHEET, RESERVED),
    GPU("rtx-3080-ti", "NVIDIA GeForce RTX 3080 Ti", 86, 11673 * MIB, TARGET_SHEET, RESERVED),
    GPU("rtx-4060", "NVIDIA GeForce RTX 4060", 89, 7782 * MIB, TARGET_SHEET, RESERVED),
    GPU("rtx-4060-ti", "NVIDIA GeForce RTX 4060 Ti", 89, 15564 * MIB, TARGET_SHEET, RESERVED),
    GPU("rtx-4070", "NVIDIA GeForce RTX 4070", 89, 11673 * MIB, TARGET_SHEET, RESERVED),
    GPU("rtx-4070-ti", "NVIDIA GeForce RTX 4070 Ti", 89, 11673 * MIB, TARGET_SHEET, RESERVED),
    GPU("rtx-4080", "NVIDIA GeForce RTX 4080", 89, 16049 * MIB, TARGET_SHEET, REPORTED),
    GPU("rtx-5060-ti", "NVIDIA GeForce RTX 5060 Ti", 120, 15564 * MIB, TARGET_SHEET, RESERVED),
    GPU("rtx-5070", "NVIDIA GeForce RTX 5070", 120, 11673 * MIB, TARGET_SHEET, RESERVED),
    GPU("rtx-5070-ti", "NVIDIA GeForce RTX 5070 Ti", 120, 15564 * MIB, TARGET_SHEET, RESERVED),
    GPU("rtx-5080", "NVIDIA GeForce RTX 5080", 120, 15564 * MIB, TARGET_SHEET, RESERVED),
    GPU("orin-64", "Orin", 87, 62800 * MIB, TARGET_SHEET, ESTIMATED ", of which the CPU takes its part"),
    {.name = NULL},
};

uint32_t cuda_native(int capability) { return NATIVE(capability); }
uint64_t cuda_gemm_workspace_bytes(int capability) { return GEMM_WORKSPACE(capability); }

static bool is_called(const struct target *t, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = t->chip; at; at = strchr(at, '|')) {
        at += *at == '|';
        if (!strncmp(at, name, length) && (!at[length] || at[length] == '|')) return true;
    }
    return false;
}

/* A part of a card (MIG), or a card of the same name with other memory, is not the one in the table. */
static bool is_as_large(const struct target *t, uint64_t memory_bytes) {
    const uint64_t apart =
        memory_bytes > t->memory_bytes ? memory_bytes - t->memory_bytes : t->memory_bytes - memory_bytes;
    return apart <= t->memory_bytes / 25;
}

/* "NVIDIA RTX A6000" is "rtx-a6000". */
static void name_make(char to[32], const char *name) {
    int n = 0;
    if (!strncmp(name, "NVIDIA ", 7)) name += 7;
    if (!strncmp(name, "GeForce ", 8)) name += 8;
    for (; *name && n < 22; name++) {
        const bool is_plain = text_is_letter(*name) || text_is_digit(*name);
        if (is_plain) to[n++] = text_lower(*name);
        else if (n && to[n - 1] != '-') to[n++] = '-';
    }
    to[n - (n && to[n - 1] == '-')] = 0;
}

const struct target *cuda_target_of(const struct cuda_card *card, struct target *own, char *own_name) {
    bool is_taken = false;
    name_make(own_name, card->name);
    for (const struct target *t = cuda_targets; t->name; t++) {
        if (is_called(t, card->name) && t->capability == card->capability && is_as_large(t, card->memory_bytes))
            return t;
        is_taken = is_taken || !strcmp(t->name, own_name);
    }
    if (is_taken || !*own_name) /* "a100-20g" is a seventh of one; its memory tells it apart */
        snprintf(own_name + strlen(own_name), 32 - strlen(own_name), "-%dg", (int)(card->memory_bytes >> 30) % 1000);
    *own = (struct target){SEGMENTS,
                           .name = own_name,
                           .chip = card->name,
                           .memory_bytes = card->memory_bytes,
                           .capability = card->capability,
                           .gemm_workspace_bytes = GEMM_WORKSPACE(card->capability),
                           .native = NATIVE(card->capability),
                           .origin = TARGET_DRIVER,
                           .source = "cudaMemGetInfo on the card"};
    return own;
}

bool cuda_card_can_be(const struct cuda_card *card, const struct target *t, char *error) {
    const uint32_t lacks = t->native & ~NATIVE(card->capability);
    if (t->rules != &cuda_rules) {
        snprintf(error, 400, "%s is no GPU of NVIDIA's (`tally devices` lists the targets)", t->name);
        return false;
    }
    if (card->memory_bytes < t->memory_bytes) {
        snprintf(error, 400, "%s has %llu bytes of memory, and this card, %.90s, has %llu", t->name,
                 (unsigned long long)t->memory_bytes, card->name, (unsigned long long)card->memory_bytes);
        return false;
    }
    if (lacks)
        snprintf(error, 400, "%s computes %s natively, and this card, %.90s of compute capability %d.%d, does not",
                 t->name, lacks & TARGET_NATIVE(TL_BF16) ? "bf16" : "fp8", card->name, card->capability / 10,
                 card->capability % 10);
    return !lacks;
}

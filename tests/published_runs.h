/* published_runs.h: trainings on many GPUs that others have measured, as far as a plan can express them; included by
 * test_published.c alone. One row each:
 *
 *   model, sequence length, sequences in a micro-batch of one rank, micro-batches, recipe, checkpointing; chip,
 *   network; tp, cp, pp, dp, chunks, sp, shard; what was measured: one of seconds per step, tokens/s per GPU, or
 *   TFLOP/s per GPU by a convention of `tally napkin`; and the memory of a GPU in bytes, 0: not published
 *
 * Chunks that are not published are the most that the layers allow, so that the bound has the shortest bubble. Rows
 * with is_held are not used for the typical share of the peak (layout.c): every second row of each source.
 *
 * Not here, because a plan cannot express them: PaLM (heads whose sizes do not add up to the channels), DeepSeek-V3
 * (experts), OLMo 2 32B (sharding inside groups), Megatron-core's 175B (its layout is not published). */

/* clang-format off */
#define GPT(h, heads, L, V) .model = "gpt2-124m", .channels = h, .n_heads = heads, .layers = L, .vocabulary = V
#define MEGATRON .seq = 2048, .recipe = "bf16", .chip = "A100", .source = "Narayanan et al. 2021, table 1"
#define GB *1e9
#define GIB *1073741824.0
#define MIB *1048576.0

/* ---- Narayanan et al. 2021, table 1: TFLOP/s per GPU, interleaved, full recomputation. Micro-batches of 1: theirs are
 * not in the table ---- */
{.name = "1.7B", GPT(2304, 24, 24, 51200), MEGATRON, .batch = 1, .micro = 16, .policy = "full",
 .tp = 1, .pp = 1, .dp = 32, .chunks = 1, .tflops = 137, .convention = "hfu_layers"},
{.name = "3.6B", GPT(3072, 32, 30, 51200), MEGATRON, .batch = 1, .micro = 16, .policy = "full",
 .tp = 2, .pp = 1, .dp = 32, .chunks = 1, .tflops = 138, .convention = "hfu_layers", .is_held = true},
{.name = "7.5B", GPT(4096, 32, 36, 51200), MEGATRON, .batch = 1, .micro = 16, .policy = "full",
 .tp = 4, .pp = 1, .dp = 32, .chunks = 1, .tflops = 142, .convention = "hfu_layers"},
{.name = "18.4B", GPT(6144, 48, 40, 51200), MEGATRON, .batch = 1, .micro = 32, .policy = "full",
 .tp = 8, .pp = 1, .dp = 32, .chunks = 1, .tflops = 135, .convention = "hfu_layers", .is_held = true},
{.name = "39.1B", GPT(8192, 64, 48, 51200), MEGATRON, .batch = 1, .micro = 48, .policy = "full",
 .tp = 8, .pp = 2, .dp = 32, .chunks = 24, .tflops = 138, .convention = "hfu_layers"},
{.name = "76.1B", GPT(10240, 80, 60, 51200), MEGATRON, .batch = 1, .micro = 56, .policy = "full",
 .tp = 8, .pp = 4, .dp = 32, .chunks = 15, .tflops = 140, .convention = "hfu_layers", .is_held = true},
{.name = "145.6B", GPT(12288, 96, 80, 51200), MEGATRON, .batch = 1, .micro = 96, .policy = "full",
 .tp = 8, .pp = 8, .dp = 24, .chunks = 10, .tflops = 148, .convention = "hfu_layers"},
{.name = "310.1B", GPT(16384, 128, 96, 51200), MEGATRON, .batch = 1, .micro = 144, .policy = "full",
 .tp = 8, .pp = 16, .dp = 15, .chunks = 6, .tflops = 155, .convention = "hfu_layers", .is_held = true},
{.name = "529.6B", GPT(20480, 128, 105, 51200), MEGATRON, .batch = 1, .micro = 280, .policy = "full",
 .tp = 8, .pp = 35, .dp = 9, .chunks = 3, .tflops = 163, .convention = "hfu_layers"},
{.name = "1008B", GPT(25600, 160, 128, 51200), MEGATRON, .batch = 1, .micro = 512, .policy = "full",
 .tp = 8, .pp = 64, .dp = 6, .chunks = 2, .tflops = 163, .convention = "hfu_layers", .is_held = true},
#undef MEGATRON
/* ---- The same, table 2: 174.6B, batch 1536 ---- */
#define TABLE2 GPT(12288, 96, 96, 51200), .seq = 2048, .recipe = "bf16", .chip = "A100", .policy = "full", \
    .convention = "hfu_layers", .source = "Narayanan et al. 2021, table 2"
{.name = "PTD, 384", TABLE2, .batch = 1, .micro = 384, .tp = 8, .pp = 12, .dp = 4, .chunks = 8, .tflops = 153},
{.name = "PTD, 768", TABLE2, .batch = 1, .micro = 192, .tp = 8, .pp = 12, .dp = 8, .chunks = 8, .tflops = 149,
 .is_held = true},
{.name = "PTD, 1536", TABLE2, .batch = 1, .micro = 96, .tp = 8, .pp = 12, .dp = 16, .chunks = 8, .tflops = 141},
{.name = "ZeRO-3, 384", TABLE2, .batch = 4, .micro = 1, .tp = 1, .pp = 1, .dp = 384, .chunks = 1, .shard = 3,
 .tflops = 144, .is_held = true},
{.name = "ZeRO-3, 768", TABLE2, .batch = 2, .micro = 1, .tp = 1, .pp = 1, .dp = 768, .chunks = 1, .shard = 3,
 .tflops = 88},
{.name = "ZeRO-3, 1536", TABLE2, .batch = 1, .micro = 1, .tp = 1, .pp = 1, .dp = 1536, .chunks = 1, .shard = 3,
 .tflops = 44, .is_held = true},
#undef TABLE2
/* ---- Korthikanti et al. 2022, table 5: seconds per iteration, attention recomputed ---- */
#define KORTHIKANTI .seq = 2048, .recipe = "bf16", .chip = "A100", .policy = "selective", .sp = true, .tp = 8, \
    .dp = 1, .source = "Korthikanti et al. 2022, table 5"
{.name = "22B", GPT(6144, 64, 48, 51200), KORTHIKANTI, .batch = 4, .micro = 1, .pp = 1, .chunks = 1, .seconds = 1.10},
{.name = "175B", GPT(12288, 96, 96, 51200), KORTHIKANTI, .batch = 1, .micro = 64, .pp = 8, .chunks = 3,
 .seconds = 13.75, .is_held = true},
{.name = "530B", GPT(20480, 128, 105, 51200), KORTHIKANTI, .batch = 1, .micro = 280, .pp = 35, .chunks = 3,
 .seconds = 37.83},
{.name = "1T", GPT(25600, 160, 128, 51200), KORTHIKANTI, .batch = 1, .micro = 512, .pp = 64, .chunks = 1,
 .seconds = 71.49, .is_held = true},
#undef KORTHIKANTI
/* ---- Smith et al. 2022, Megatron-Turing NLG: seconds per iteration ---- */
#define MTNLG GPT(20480, 128, 105, 51200), .seq = 2048, .recipe = "bf16", .chip = "A100", .policy = "full", .tp = 8, \
    .pp = 35, .chunks = 1, .batch = 1, .source = "Smith et al. 2022, MT-NLG 530B"
{.name = "530B, 2240", MTNLG, .dp = 8, .micro = 240, .seconds = 60.1},
{.name = "530B, 2800", MTNLG, .dp = 10, .micro = 192, .seconds = 50.2, .is_held = true},
{.name = "530B, 3360", MTNLG, .dp = 12, .micro = 160, .seconds = 44.4},
#undef MTNLG
/* ---- BLOOM's tests: batch 2048, ZeRO-1, full recomputation; memory by nvidia-smi ---- */
#define BLOOM(L) GPT(14336, 112, L, 250880), .seq = 2048, .recipe = "bf16", .chip = "A100", .policy = "full", \
    .chunks = 1, .shard = 1, .source = "BigScience, tr11 chronicles"
{.name = "181B mbs 1", BLOOM(72), .batch = 1, .micro = 512, .tp = 8, .pp = 12, .dp = 4, .seconds = 143,
 .memory = 29 GB},
{.name = "181B mbs 2", BLOOM(72), .batch = 2, .micro = 256, .tp = 8, .pp = 12, .dp = 4, .seconds = 134,
 .memory = 37 GB, .is_held = true},
{.name = "181B mbs 4", BLOOM(72), .batch = 4, .micro = 128, .tp = 8, .pp = 12, .dp = 4, .seconds = 124,
 .memory = 49 GB},
{.name = "181B mbs 8", BLOOM(72), .batch = 8, .micro = 64, .tp = 8, .pp = 12, .dp = 4, .seconds = 129,
 .memory = 69 GB, .is_held = true},
{.name = "181B pp 6 mbs 1", BLOOM(72), .batch = 1, .micro = 256, .tp = 8, .pp = 6, .dp = 8, .memory = 38 GB},
{.name = "181B pp 6 mbs 2", BLOOM(72), .batch = 2, .micro = 128, .tp = 8, .pp = 6, .dp = 8, .memory = 44 GB},
{.name = "181B pp 6 mbs 4", BLOOM(72), .batch = 4, .micro = 64, .tp = 8, .pp = 6, .dp = 8, .memory = 56 GB},
{.name = "181B pp 2", BLOOM(72), .batch = 1, .micro = 85, .tp = 8, .pp = 2, .dp = 24, .memory = 65 GB},
{.name = "176B tp 4 mbs 2", BLOOM(70), .batch = 2, .micro = 128, .tp = 4, .pp = 12, .dp = 8, .seconds = 102.0,
 .memory = 59 GB},
{.name = "176B tp 4 mbs 4", BLOOM(70), .batch = 4, .micro = 64, .tp = 4, .pp = 12, .dp = 8, .seconds = 102.3,
 .memory = 73 GB, .is_held = true},
{.name = "176B tp 8 mbs 2", BLOOM(70), .batch = 2, .micro = 256, .tp = 8, .pp = 12, .dp = 4, .seconds = 121.6,
 .memory = 40 GB},
#undef BLOOM
/* ---- torchtitan, benchmarks: H100 of 96 GB at 500 W; fp8 rows use the peak of fp8 ---- */
#define TITAN(m, s) .chip = "H100", TITAN_ON(m, s)
#define TITAN_ON(m, s) .model = m, .seq = s, .source = "torchtitan, benchmarks"
{.name = "8B, 8", TITAN("llama-3-8b", 8192), .recipe = "bf16", .policy = "selective", .batch = 2, .micro = 1, .tp = 1,

 .pp = 1, .dp = 8, .chunks = 1, .shard = 3, .tokens_per_s = 5762, .memory = 82.4 GIB},
{.name = "8B compiled, 8", TITAN("llama-3-8b", 8192), .recipe = "bf16", .policy = "selective", .batch = 2, .micro = 1,
 .tp = 1, .pp = 1, .dp = 8, .chunks = 1, .shard = 3, .tokens_per_s = 6667, .memory = 77.0 GIB, .is_held = true},
{.name = "8B, 128", TITAN("llama-3-8b", 8192), .recipe = "bf16", .policy = "selective", .batch = 2, .micro = 1, .tp = 1,

 .pp = 1, .dp = 128, .chunks = 1, .shard = 3, .tokens_per_s = 5605, .memory = 67.0 GIB},
{.name = "8B compiled, 128", TITAN("llama-3-8b", 8192), .recipe = "bf16", .policy = "selective", .batch = 2, .micro = 1,
 .tp = 1, .pp = 1, .dp = 128, .chunks = 1, .shard = 3, .tokens_per_s = 6514, .memory = 62.0 GIB, .is_held = true},
{.name = "70B fp8", TITAN("llama-3-70b", 8192), .recipe = "fp8", .policy = "full", .batch = 16, .micro = 1, .tp = 8,
 .sp = true, .pp = 1, .dp = 32, .chunks = 1, .shard = 3, .tokens_per_s = 829, .memory = 71.9 GIB},
{.name = "70B fp8 async", TITAN("llama-3-70b", 8192), .recipe = "fp8", .policy = "full", .batch = 16, .micro = 1,
 .tp = 8, .sp = true, .pp = 1, .dp = 32, .chunks = 1, .shard = 3, .tokens_per_s = 876, .memory = 67.6 GIB,
 .is_held = true},
{.name = "70B bf16", TITAN("llama-3-70b", 8192), .recipe = "bf16", .policy = "full", .batch = 16, .micro = 1, .tp = 8,
 .sp = true, .pp = 1, .dp = 32, .chunks = 1, .shard = 3, .tokens_per_s = 597},
{.name = "70B bf16 async", TITAN("llama-3-70b", 8192), .recipe = "bf16", .policy = "full", .batch = 16, .micro = 1,
 .tp = 8, .sp = true, .pp = 1, .dp = 32, .chunks = 1, .shard = 3, .tokens_per_s = 652, .is_held = true},
{.name = "405B 1f1b", TITAN("llama-3.1-405b", 8192), .recipe = "fp8", .policy = "full", .batch = 1, .micro = 32,
 .tp = 8, .sp = true, .pp = 8, .dp = 8, .chunks = 1, .shard = 3, .tokens_per_s = 100, .memory = 82.5 GIB},
{.name = "405B interleaved", TITAN("llama-3.1-405b", 8192), .recipe = "fp8", .policy = "full", .batch = 1, .micro = 32,
 .tp = 8, .sp = true, .pp = 8, .dp = 8, .chunks = 16, .shard = 3, .tokens_per_s = 128, .memory = 72.7 GIB,
 .is_held = true},
#define TITAN_LONG(s) TITAN("llama-3.1-405b", s), .recipe = "fp8", .policy = "full", .batch = 1, .micro = 8, .tp = 8, \
    .sp = true, .pp = 8, .chunks = 16, .shard = 3
{.name = "405B 32k", TITAN_LONG(32768), .cp = 1, .dp = 8, .tokens_per_s = 76, .memory = 75.3 GIB},
{.name = "405B 65k", TITAN_LONG(65536), .cp = 2, .dp = 4, .tokens_per_s = 47, .memory = 75.9 GIB, .is_held = true},
{.name = "405B 131k", TITAN_LONG(131072), .cp = 4, .dp = 2, .tokens_per_s = 31, .memory = 77.1 GIB},
{.name = "405B 262k", TITAN_LONG(262144), .cp = 8, .dp = 1, .tokens_per_s = 16, .memory = 84.9 GIB, .is_held = true},
{.name = "8B fp8, 32 H200", TITAN_ON("llama-3-8b", 8192), .chip = "H200", .recipe = "fp8",
 .policy = "selective", .batch = 2, .micro = 1, .tp = 1,
 .pp = 1, .dp = 32, .chunks = 1, .shard = 3, .tokens_per_s = 10938, .memory = 48.0 GIB},
{.name = "8B fp8, 64 H200", TITAN_ON("llama-3-8b", 8192), .chip = "H200", .recipe = "fp8",
 .policy = "selective", .batch = 2, .micro = 1, .tp = 1,
 .pp = 1, .dp = 64, .chunks = 1, .shard = 3, .tokens_per_s = 10753, .memory = 47.0 GIB,
 .is_held = true},
#undef TITAN_LONG
#undef TITAN
#undef TITAN_ON
/* ---- llm-foundry, scripts/train/benchmarking ---- */
#define MPT70 GPT(8192, 64, 80, 50368)
#define MPT13 GPT(5120, 40, 40, 50368)
#define MPT7 GPT(4096, 32, 32, 50368)
#define MPT3 GPT(2560, 20, 32, 50368)
#define FOUNDRY(c) .seq = 2048, .recipe = "bf16", .chip = c, .tp = 1, .pp = 1, .chunks = 1, .source = "llm-foundry"
{.name = "MPT-70B, 128", MPT70, FOUNDRY("H100"), .policy = "full", .batch = 8, .micro = 1, .dp = 128, .shard = 3,
 .tokens_per_s = 1058},
{.name = "MPT-70B, 256", MPT70, FOUNDRY("H100"), .policy = "full", .batch = 8, .micro = 1, .dp = 256, .shard = 3,
 .tokens_per_s = 1035, .is_held = true},
{.name = "MPT-70B, 512", MPT70, FOUNDRY("H100"), .policy = "full", .batch = 8, .micro = 1, .dp = 512, .shard = 3,
 .tokens_per_s = 1007},
{.name = "MPT-70B, 64", MPT70, FOUNDRY("H100"), .policy = "full", .batch = 8, .micro = 4, .dp = 64, .shard = 3,
 .tokens_per_s = 1039, .is_held = true},
{.name = "MPT-70B, 32", MPT70, FOUNDRY("H100"), .policy = "full", .batch = 2, .micro = 16, .dp = 32, .shard = 3,
 .tokens_per_s = 882},
{.name = "MPT-13B, 64", MPT13, FOUNDRY("H100"), .policy = "full", .batch = 8, .micro = 1, .dp = 64, .shard = 3,
 .tokens_per_s = 4800, .is_held = true},
{.name = "MPT-7B, 8", MPT7, FOUNDRY("H100"), .policy = "none", .batch = 6, .micro = 1, .dp = 8, .shard = 3,
 .tokens_per_s = 10643},
{.name = "MPT-7B, 128", MPT7, FOUNDRY("H100"), .policy = "none", .batch = 6, .micro = 1, .dp = 128, .shard = 3,
 .tokens_per_s = 10475, .is_held = true},
{.name = "MPT-7B, 256", MPT7, FOUNDRY("H100"), .policy = "none", .batch = 6, .micro = 1, .dp = 256, .shard = 3,
 .tokens_per_s = 10119},
{.name = "MPT-7B, 512", MPT7, FOUNDRY("H100"), .policy = "none", .batch = 6, .micro = 1, .dp = 512, .shard = 3,
 .tokens_per_s = 9670, .is_held = true},
{.name = "MPT-3B, 128", MPT3, FOUNDRY("H100"), .policy = "none", .batch = 8, .micro = 1, .dp = 128, .shard = 2,
 .tokens_per_s = 23422},
{.name = "MPT-3B, 512", MPT3, FOUNDRY("H100"), .policy = "none", .batch = 8, .micro = 1, .dp = 512, .shard = 2,
 .tokens_per_s = 21664, .is_held = true},
{.name = "MPT-70B, 128 A100", MPT70, FOUNDRY("A100-40"), .policy = "full", .batch = 4, .micro = 1, .dp = 128,
 .shard = 3, .tokens_per_s = 376},
{.name = "MPT-70B, 64 A100", MPT70, FOUNDRY("A100-40"), .policy = "full", .batch = 2, .micro = 1, .dp = 64, .shard = 3,
 .tokens_per_s = 276, .is_held = true},
#undef FOUNDRY
/* ---- nanotron, Llama 1B, 4.19 million tokens a step; sequences of 2048 ---- */
#define NANOTRON .model = "llama-3.2-1b", .seq = 2048, .recipe = "bf16", .chip = "H100", .policy = "none", .batch = 8, \
    .chunks = 1, .source = "nanotron, benchmarks"
{.name = "1B dp2 tp4", NANOTRON, .micro = 128, .tp = 4, .sp = true, .pp = 1, .dp = 2, .tokens_per_s = 27700,
 .memory = 25808 MIB},
{.name = "1B tp4 pp2", NANOTRON, .micro = 256, .tp = 4, .sp = true, .pp = 2, .dp = 1, .tokens_per_s = 25900,
 .memory = 25707 MIB, .is_held = true},
{.name = "1B tp8", NANOTRON, .micro = 256, .tp = 8, .sp = true, .pp = 1, .dp = 1, .tokens_per_s = 20100,
 .memory = 16891 MIB},
{.name = "1B tp8 pp2", NANOTRON, .micro = 256, .tp = 8, .sp = true, .pp = 2, .dp = 1, .tokens_per_s = 14400,
 .memory = 16550 MIB, .is_held = true},
#undef NANOTRON
/* ---- Llama 3, table 4: 16 million tokens a step ---- */
#define LLAMA .model = "llama-3.1-405b", .recipe = "bf16", .chip = "H100", .policy = "none", .batch = 1, .tp = 8, \
    .sp = true, .pp = 16, .chunks = 8, .shard = 2, .convention = "matmul_causal", .source = "Llama team 2024, table 4"
{.name = "405B, 8192", LLAMA, .seq = 8192, .cp = 1, .dp = 64, .micro = 32, .tflops = 430},
{.name = "405B, 16384", LLAMA, .seq = 8192, .cp = 1, .dp = 128, .micro = 16, .tflops = 400, .is_held = true},
{.name = "405B 131k", LLAMA, .seq = 131072, .cp = 16, .dp = 8, .micro = 16, .tflops = 380},
#undef LLAMA

/* hopper.cuh: what kernels for Hopper are made of: barriers, tiles by TMA, and warpgroup products.
 *
 * Tiles in shared memory have rows of 64 elements (128 bytes), whose 16-byte parts are swizzled by the row, as TMA and
 * the tensor cores agree. Wider operands are several such tiles side by side.
 */
#ifndef CUDA_HOPPER_CUH
#define CUDA_HOPPER_CUH

#include "device/cuda/shared/tensor_core.cuh"

#include <cuda.h>

enum { WARPGROUP = 128, HOPPER_THREADS = 3 * WARPGROUP, PART = 64, ROW_BYTES = 2 * PART };

#if defined __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_WARPGROUPS 1
#else
#define HAS_WARPGROUPS 0
#endif

#if HAS_WARPGROUPS || !defined __CUDA_ARCH__

/* ---- Barriers ----------------------------------------------------------------------------------------- */

__device__ inline void barrier_init(uint64_t *barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}
__device__ inline void barrier_arrive(uint64_t *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ inline void barrier_expect(uint64_t *barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}
__device__ inline void barrier_wait(uint64_t *barrier, int phase) {
    asm volatile("{\n.reg .pred done;\n"
                 "again:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}" ::"r"(shared_address(barrier)),
                 "r"(phase)
                 : "memory");
}
/* Among the threads of a consumer. */
template <int CONSUMER> __device__ inline void warpgroup_sync() {
    asm volatile("bar.sync %0, %1;" ::"n"(1 + CONSUMER), "n"((int)WARPGROUP) : "memory");
}
/* What this thread wrote to shared memory becomes visible to TMA and the tensor cores. */
__device__ inline void shared_publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* A cluster: blocks that run at once, and reach each other's shared memory. */
__device__ inline int cluster_rank() {
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
__device__ inline void cluster_sync() { asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory"); }

/* x, which is the same in all lanes of a warp: a shuffle tells the compiler so. What follows from such a number stays
 * in registers that a warp has once. Descriptors of tiles are read from those: copying one there for every product
 * takes a third of the instructions of a loop, and their power. */
__device__ inline int warp_uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

/* A counter of a ring of N slots: which slot, and the parity of its barriers. */
template <int N> struct ring {
    int slot = 0, phase = 0;
    __device__ inline void next() {
        if (++slot == N) slot = 0, phase ^= 1;
    }
    __device__ inline void skip(int n) {
        slot += n % N, phase ^= n / N & 1;
        if (slot >= N) slot -= N, phase ^= 1;
    }
};

/* ---- TMA ---------------------------------------------------------------------------------------------- */

__device__ inline void tile_fetch(void *to, const CUtensorMap *map, uint64_t *barrier, int d, int t, int h, int b) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5,%6}], "
        "[%2];" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(d), "r"(t), "r"(h), "r"(b)
        : "memory");
}

/* What the L2 cache does with a line: gives it up last, first, or as any other. */
#define CACHE_POLICY(name, priority)                                                 \
    __device__ inline uint64_t name() {                                              \
        uint64_t policy;                                                             \
        asm("createpolicy.fractional.L2::" priority ".b64 %0, 1.0;" : "=l"(policy)); \
        return policy;                                                               \
    }
CACHE_POLICY(cache_keep, "evict_last")
CACHE_POLICY(cache_pass, "evict_first")
CACHE_POLICY(cache_usual, "evict_normal")

__device__ inline void tile_fetch(void *to, const CUtensorMap *map, uint64_t *barrier, int d, int t, int h, int b,
                                  uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                 "[%1, {%3,%4,%5,%6}], [%2], %7;" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(barrier)), "r"(d), "r"(t), "r"(h), "r"(b), "l"(policy)
                 : "memory");
}

/* ---- Warpgroup products ------------------------------------------------------------------------------- */

/* A tile whose rows of 64 elements are swizzled: 8 rows are 1024 bytes. `apart` is the distance of tiles that lie side
 * by side, where an operand of more than 64 columns reaches over several. */
__device__ inline uint64_t tile_operand(const void *tile, int apart = 0) {
    return (uint64_t)(shared_address(tile) & 0x3ffff) >> 4 | (uint64_t)(apart >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}
enum { STEP_ALONG_ROW = 32 >> 4, STEP_ALONG_ROWS = 16 * ROW_BYTES >> 4 }; /* 16 terms on, in such an operand */

__device__ inline void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> __device__ inline void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
/* The compiler must not move reads or writes of c across this. */
template <int N> __device__ inline void registers_fence(float (&c)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(c[i])::"memory");
}

#define LIST_32                                                                                                       \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
    "%30,%31}"
#define LIST_64                                                                                                        \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"  \
    "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57," \
    "%58,%59,%60,%61,%62,%63}"
#define LIST_128                                                                                                       \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"  \
    "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57," \
    "%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85," \
    "%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,"  \
    "%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}"
#define REG4(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define REG16(c, i) REG4(c, i), REG4(c, i + 4), REG4(c, i + 8), REG4(c, i + 12)
#define REG32(c) REG16(c, 0), REG16(c, 16)
#define REG64(c) REG16(c, 0), REG16(c, 16), REG16(c, 32), REG16(c, 48)
#define REG128(c) REG64(c), REG16(c, 64), REG16(c, 80), REG16(c, 96), REG16(c, 112)

/* c (64,N) = or += a (64,16) b (16,N). From shared memory, an operand either has its terms along rows, or along
 * columns (`_T`: transposed by the tensor core). */
#define SHARED_PRODUCT(name, type, n, list, registers, first, second, third, trans_a, trans_b)                         \
    __device__ inline void name(type, float(&c)[n / 2], uint64_t a, uint64_t b, int adds) {                            \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " third ", 0;\n"                                                \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type " " list ", " first ", " second \
                     ", p, 1, 1, " #trans_a ", " #trans_b ";\n}"                                                       \
                     : registers                                                                                       \
                     : "l"(a), "l"(b), "r"(adds));                                                                     \
    }
#define REGISTER_PRODUCT(name, type, n, list, registers, a0, a1, a2, a3, second, third)                                \
    __device__ inline void name(type, float(&c)[n / 2], const uint32_t(&a)[4], uint64_t b, int adds) {                 \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " third ", 0;\n"                                                \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type " " list ", {" a0 "," a1 "," a2 \
                     "," a3 "}, " second ", p, 1, 1, 1;\n}"                                                            \
                     : registers                                                                                       \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));                                 \
    }
__device__ inline uint32_t round_two(bf16, float low, float high) {
    uint32_t two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
}
__device__ inline uint32_t round_two(f16, float low, float high) {
    uint32_t two;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
}

/* 16 rows of 16, the register operand of a product, to rows of a swizzled tile. `row`: the lane's row there (see
 * store_row), `part`: 16-byte parts from the row's beginning. */
__device__ inline void store_matrix(void *tile, int row, int part, const uint32_t (&a)[4]) {
    const uint32_t to = shared_address(tile) + (uint32_t)(row * ROW_BYTES + ((part ^ row % 8) << 4));
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(a[0]), "r"(a[1]),
                 "r"(a[2]), "r"(a[3])
                 : "memory");
}

/* Where a lane is among a warpgroup's 128. Of a (64,n) result it has rows row() and row() + 8, and of
 * each 8 columns the pair that begins at column(). */
struct lane_place {
    int lane;
    __device__ inline int row() const { return lane / 32 * 16 + lane % 32 / 4; }
    __device__ inline int column() const { return lane % 4 * 2; }
    /* the row that the lane addresses in store_matrix, within its warpgroup's 64 */
    __device__ inline int store_row() const { return lane / 32 * 16 + lane % 16; }
    __device__ inline int store_part() const { return lane % 32 / 16; }
};

/* 64 rows of 64, times a factor, rounded: written where `to` points, rows `stride` elements apart, as far as n_rows and
 * n_columns (a multiple of 8) reach. `staging` is the consumer's tile, and free. */
template <class T>
__device__ inline void block_write(const lane_place &me, const float *c, float factor, void *staging, uint16_t *to,
                                   int64_t stride, int n_rows, int n_columns) {
#pragma unroll
    for (int k = 0; k < 4; k++) {
        uint32_t a[4];
#pragma unroll
        for (int i = 0; i < 4; i++) a[i] = round_two(T(), c[8 * k + 2 * i] * factor, c[8 * k + 2 * i + 1] * factor);
        store_matrix(staging, me.store_row(), 2 * k + me.store_part(), a);
    }
    __syncwarp();
    const int lane = me.lane % 32, warp = me.lane / 32;
#pragma unroll
    for (int k = 0; k < 4; k++) { /* a warp has its own 16 rows; 8 lanes write one */
        const int row = warp * 16 + 4 * k + lane / 8, part = lane % 8;
        const uint4 eight = *(const uint4 *)((const char *)staging + row * ROW_BYTES + ((part ^ row % 8) << 4));
        if (row < n_rows && 8 * part < n_columns) *(uint4 *)(to + row * stride + 8 * part) = eight;
    }
    __syncwarp();
}
#endif

/* ---- Launching ---------------------------------------------------------------------------------------- */

static bool fails(const tl_kernel_args *args, const char *what, const char *reason) {
    snprintf(args->error, CUDA_ERROR_BYTES, "%s: %s: %s", args->op, what, reason);
    return false;
}

/* Whether this GPU has a kernel's code for warpgroups. A later card that runs as one of 9.0 has none. */
template <class KERNEL> static bool has_warpgroups(KERNEL kernel) {
    cudaFuncAttributes code;
    if (cudaFuncGetAttributes(&code, kernel) == cudaSuccess) return code.binaryVersion == 90 && code.ptxVersion == 90;
    cudaGetLastError();
    return false;
}

/* The same for the target that it runs as, asked once: `kernel` is any that has such code. */
template <class KERNEL> static bool runs_warpgroups(const tl_kernel_args *args, KERNEL kernel) {
    struct cuda_state *state = cuda_state_of(args->stream);
    if (state->capability / 10 != 9) return false;
    if (!state->warpgroups) state->warpgroups = has_warpgroups(kernel) ? 1 : -1;
    return state->warpgroups == 1;
}

typedef CUresult (*map_encoder)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* A 16-bit tensor of four dimensions, the first of them dense, fetched in tiles of `tile` rows of 64 elements. Strides
 * are in elements. */
static bool map_encode(const tl_kernel_args *args, CUtensorMap *map, tl_dtype dtype, void *data,
                       const int64_t (&size)[4], const int64_t (&stride)[3], int tile) {
    static map_encoder encode_map;
    if (!encode_map) cuda_driver_function("cuTensorMapEncodeTiled", &encode_map);
    if (!encode_map) return fails(args, "cuTensorMapEncodeTiled", "the driver does not have it");
    const cuuint64_t sizes[4] = {(cuuint64_t)size[0], (cuuint64_t)size[1], (cuuint64_t)size[2], (cuuint64_t)size[3]};
    const cuuint64_t strides[3] = {(cuuint64_t)stride[0] * 2, (cuuint64_t)stride[1] * 2, (cuuint64_t)stride[2] * 2};
    const cuuint32_t box[4] = {PART, (cuuint32_t)tile, 1, 1}, steps[4] = {1, 1, 1, 1};
    const CUresult result =
        encode_map(map, dtype == TL_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, data,
                   sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS || fails(args, "cuTensorMapEncodeTiled", "the driver refuses the tensor's strides");
}

#endif

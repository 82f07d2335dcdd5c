/* rules.c: workspaces and layouts of the CUDA kernels, and of the libraries that they call. Which of these a call
 * uses depends on the target's compute capability, never on the installed card. So a price holds on the card that it
 * is for, and a larger card can run as if it were that one. */
#include "device/cuda/rules.h"

#include "base/memory.h"
#include "device/cuda/shared/attention_rule.h"
#include "device/cuda/shared/blocks_rule.h"
#include "device/cuda/shared/embedding_rule.h"
#include "device/cuda/shared/group_rule.h"
#include "device/cuda/shared/head_rule.h"
#include "device/cuda/shared/limits.h"
#include "device/cuda/shared/linalg_rule.h"
#include "device/cuda/shared/norm_rule.h"
#include "device/cuda/shared/sort_rule.h"
#include "spec/op.h"
#include "spec/attr.h"
#include "spec/head.h"
#include "spec/op_id.h"

static uint64_t sum_bytes(tl_dtype dtype) { return dtype == TL_F64 ? 8 : 4; } /* f32, or f64 for f64 */

/* ---- Products ---- */

/* The library gets the same for every product. */
static uint64_t product_workspace(const tl_call *c, const struct target *target) {
    return c->output[0]->numel ? target->gemm_workspace_bytes : 0;
}

/* The same beside a part of the weight. */
static uint64_t blocks_workspace(const tl_call *c, const struct target *target) {
    const struct attr_matmul_blocks *a = c->attr;
    const tl_tensor *x = c->input[0], *out = c->output[0];
    const int64_t terms = x->shape[x->rank - 1], columns = out->shape[out->rank - 1];
    if (!x->numel || !out->numel || blocks_are_few(out->numel / columns, a->transpose_b)) return 0;
    return target->gemm_workspace_bytes + blocks_part_bytes(columns, terms, dtype_info(x->dtype)->bits / 8);
}

/* The library adds a bias to 16-bit products of even sizes before it writes them: one pass over y less. */
static bool adds_bias(const struct target *target, tl_dtype dtype, int64_t n, int64_t k) {
    (void)target;
    return dtype_info(dtype)->bits == 16 && n % 8 == 0 && k % 8 == 0;
}

/* Of few rows: the matrices are read by one kernel. */
static bool joins_parts(const struct target *target, tl_dtype dtype, int64_t m, int64_t k) {
    return target->capability >= 80 && dtype_info(dtype)->bits == 16 && m <= MATMUL_THIN_ROWS && k % 8 == 0;
}

static uint64_t narrow_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    return c->n_inputs == 1 ? NARROW_BYTES : 0;
}

/* The requirements of an 8-bit product on the chip and on its sizes. */
static bool multiplies_f8(const struct target *target, tl_dtype dtype, int64_t m, int64_t n, int64_t k) {
    return target_has_native(target, TL_F8E4M3) && dtype_info(dtype)->bits == 16 && m % 16 == 0 && n % 16 == 0 &&
           k % 16 == 0;
}

/* ---- gelu_mlp and swiglu_mlp ---- */

/* On Hopper's tensor cores; elsewhere, or with few tiles for each multiprocessor, the parts are faster. With so few
 * rows that weights are read for nothing else, a kernel less is. */
#define MLP_LEAST ((int64_t)1 << 24) /* inner features of all rows */

static bool activates(const struct target *target, tl_dtype dtype, int64_t m, int64_t k, int64_t F) {
    return target->capability / 10 == 9 && dtype_info(dtype)->bits == 16 && k % 8 == 0 && F % 8 == 0 && k > 0 &&
           F > 0 && (m >= MLP_LEAST / F || m <= MATMUL_THIN_ROWS);
}

static uint64_t mlp_workspace(const tl_call *c, const struct target *target) {
    const tl_tensor *x = c->input[0], *down = c->input[1];
    if (!c->output[0]->numel) return 0;
    const uint64_t rows = (uint64_t)(c->output[0]->numel / down->shape[0]), F = (uint64_t)down->shape[1];
    const bool has_y = c->n_outputs > 1;
    const uint64_t y = has_y ? 0 : rows * F * (uint64_t)(dtype_info(x->dtype)->bits / 8);
    return target->gemm_workspace_bytes + round_up(y, target->align_bytes);
}

static uint64_t mlp_grad_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    const tl_tensor *h = c->input[2];
    const int64_t F = h->shape[h->rank - 1];
    return F ? MLP_SUMS_BYTES(h->numel / F, F) : 0;
}

/* ---- linear_cross_entropy ---- */

/* Bytes of logits that a chunk may have, unless one row is larger. Each chunk of GPT-2's adds to 150 MB of sums of
 * dweight, and products need thousands of rows to be fast. */
#define CHUNK_BYTES ((int64_t)512 << 20)

static struct head_cut head_cut(const struct target *target, tl_dtype dtype, int64_t N, int64_t V, int64_t C) {
    (void)target, (void)C;
    const int64_t row_bytes = head_pitch(V) * (int64_t)head_element_bytes(dtype);
    return (struct head_cut){.chunk_rows = head_chunk_rows(N, row_bytes, CHUNK_BYTES, 256)};
}

static uint64_t head_workspace(const tl_call *c, const struct target *target) {
    const tl_tensor *x = c->input[0], *w = c->input[1];
    const struct head_sizes sizes = {x->shape[0], w->shape[0], w->shape[1], x->dtype};
    return head_room_of(&sizes, c->attr, target->capability).all + target->gemm_workspace_bytes;
}

/* ---- Attention ---- */

static bool is_done_by_cudnn(const tl_tensor *q, const tl_tensor *k, const struct attr_attention *a,
                             const struct target *target, struct attention_sizes *sizes) {
    *sizes = (struct attention_sizes){q->shape[0], q->shape[1], k->shape[1], q->shape[2], k->shape[2], q->shape[3]};
    return attention_fits_cudnn(sizes, dtype_info(q->dtype)->bits == 16, a, target->capability);
}

static uint64_t attention_workspace(const tl_call *c, const struct target *target) {
    const tl_tensor *q = c->input[0];
    struct attention_sizes sizes;
    const bool by_cudnn = is_done_by_cudnn(q, c->input[1], c->attr, target, &sizes);
    if (attention_fits_few(&sizes, dtype_info(q->dtype)->bits == 16, target->capability))
        return attention_few_bytes(&sizes, c->attr);
    if (attention_pads_forward(&sizes, dtype_info(q->dtype)->bits == 16, c->attr, target->capability))
        return attention_padded_forward_bytes(&sizes);
    return by_cudnn ? ATTENTION_PLAN_BYTES : 0;
}

/* delta = rowsum(g out), one per query and head; then what the kernels that do the call need: ours on Hopper, with or
 * without copies of operands, cuDNN, or ours that need nothing more. */
static uint64_t attention_grad_workspace(const tl_call *c, const struct target *target) {
    const struct attr_attention *a = c->attr;
    const tl_tensor *q = c->input[1], *k = c->input[2];
    struct attention_sizes s;
    const uint64_t rows = (uint64_t)(q->shape[0] * q->shape[1] * q->shape[2]);
    const bool by_cudnn = is_done_by_cudnn(q, k, a, target, &s), is_16_bit = dtype_info(q->dtype)->bits == 16;
    if (attention_fits_hopper(&s, is_16_bit, a, target->capability))
        return attention_hopper_bytes(&s) + (a->gives_sums ? attention_sums_bytes(&s) : 0);
    if (attention_pads_backward(&s, is_16_bit, a, target->capability)) return attention_padded_backward_bytes(&s);
    const uint64_t delta = round_up(rows * sum_bytes(q->dtype), target->align_bytes);
    if (!by_cudnn || attention_goes_wide(&s, is_16_bit, a, target->capability)) return delta;
    return delta + attention_scratch_bytes(&s, a->is_fast) + attention_lengths_bytes(s.S, s.B) + ATTENTION_PLAN_BYTES;
}

/* ---- The others ---- */

/* Per-run sums of the weights' gradients, and of the columns of dx; two sums of each part of each row, which rows that
 * teams have need if they are not aligned. */
static uint64_t norm_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    const tl_tensor *x = c->input[1];
    const int64_t length = x->rank ? x->shape[x->rank - 1] : 0;
    const int n_like_x = ((const struct attr_norm *)c->attr)->dropout > 0 ? 2 : 1;
    const int64_t n_rows = length ? x->numel / length : 0;
    const uint64_t run_sums = (uint64_t)(c->n_outputs - n_like_x) * NORM_RUNS * (uint64_t)length;
    return (run_sums + 2 * (uint64_t)(n_rows * norm_parts(n_rows, length))) * sum_bytes(x->dtype);
}

/* Rows that teams of threads keep in registers while they sum the weights' gradients (norm.cu). */
static bool norm_sums(const tl_call *c) {
    const tl_tensor *x = c->input[1];
    const int64_t length = x->rank ? x->shape[x->rank - 1] : 0;
    return x->dtype != TL_F64 && length % 8 == 0 && length <= NORM_TEAM_LENGTH;
}

/* Tiles of the packed gradient are in registers before they are written (attention_hopper.cu); with dropout or a mask
 * there is no room for more. */
static bool attention_sums(const tl_call *c, const struct target *target) {
    const struct attr_attention *a = c->attr;
    const tl_tensor *q = c->input[1];
    struct attention_sizes s;
    is_done_by_cudnn(q, c->input[2], a, target, &s);
    return a->is_packed && !a->has_mask && !(a->dropout > 0) &&
           attention_fits_hopper(&s, dtype_info(q->dtype)->bits == 16, a, target->capability);
}

static bool sums(const tl_call *c, const struct target *target) {
    switch (c->op->id) {
    case OP_ID_layer_norm_grad:
    case OP_ID_rms_norm_grad:
    case OP_ID_add_layer_norm_grad:
    case OP_ID_add_rms_norm_grad:
        return norm_sums(c);
    case OP_ID_attention_grad:
        return attention_sums(c, target);
    default:
        return false;
    }
}

/* Room to group rows by id, V + 1 + N int32, or for the sums of parts of a table of few rows. */
static uint64_t embedding_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    const bool is_acc = c->op->id == OP_ID_embedding_acc;
    const tl_tensor *g = c->input[is_acc], *ids = c->input[is_acc + 1];
    const int64_t V = is_acc ? c->input[0]->shape[0] : ((const struct attr_embedding *)c->attr)->n_rows;
    const uint64_t groups = group_bytes(ids->numel, V),
                   table = table_bytes(ids->numel, V, g->shape[1], g->dtype == TL_F64);
    return groups > table ? groups : table;
}

/* What the op says, or room to group rows that are added. */
static uint64_t index_put_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    const struct attr_index *a = c->attr;
    const uint64_t usual = c->op->workspace(c);
    const int64_t n = c->input[2]->numel, size = c->input[0]->shape[a->axes[0]];
    const bool groups = a->n == 1 && a->accumulates && dtype_is_float(c->input[0]->dtype) && rows_are_grouped(n, size);
    return groups && group_bytes(n, size) > usual ? group_bytes(n, size) : usual;
}

/* ---- Sorting and scans ---- */

static uint64_t sort_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    const struct attr_sort *a = c->attr;
    const tl_tensor *x = c->input[0];
    const int64_t n = x->shape[a->axis];
    const bool has_columns = sort_is_of_columns(x->shape, x->rank, a->axis);
    return n ? sort_bytes(x->numel / n, n, a->k, sort_key_bytes(x->dtype), has_columns) : 0;
}

/* The upper halves of draws are sorted. */
static uint64_t permutation_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    const int64_t n = c->out[0].shape[0];
    return sort_bytes(1, n, n, 4, false);
}

/* With replacement, the sum of each part of each row; without, times of arrival in f64 are sorted. */
static uint64_t multinomial_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    const struct attr_multinomial *a = c->attr;
    const tl_tensor *p = c->input[0];
    const int64_t rows = p->rank == 2 ? p->shape[0] : 1, K = p->shape[p->rank - 1];
    if (!a->has_replacement) return sort_bytes(rows, K, a->n_samples, 8, false);
    return (uint64_t)rows * (uint64_t)((K + MULTINOMIAL_PART - 1) / MULTINOMIAL_PART) * sizeof(double);
}

static uint64_t scan_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    const tl_tensor *x = c->input[0];
    const int64_t n = x->rank ? x->shape[x->rank - 1] : 1, rows = n ? x->numel / n : 0, chunks = scan_chunks(rows, n);
    return chunks > 1 ? (uint64_t)(rows * chunks) * sizeof(double) : 0;
}

/* nonzero, repeat_interleave: one count for each tile; unique also begins of runs. */
static uint64_t tiles_bytes(const tl_tensor *x) {
    return ((uint64_t)x->numel + SELECT_TILE - 1) / SELECT_TILE * sizeof(int64_t);
}
static uint64_t tiles_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    return tiles_bytes(c->input[0]);
}
static uint64_t unique_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    const struct attr_unique *a = c->attr;
    return tiles_bytes(c->input[0]) + (uint64_t)a->n * sizeof(int64_t);
}

/* ---- fft and linalg ---- */

static uint64_t fft_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    const struct attr_fft *a = c->attr;
    const tl_tensor *x = c->input[0];
    int64_t n_rows = 1;
    for (int i = 0; i < x->rank - (a->kind == FFT_OF_REAL ? 1 : 2); i++) n_rows *= x->shape[i];
    return n_rows ? (uint64_t)fft_doubles(a->n, fft_lanes_cuda(a->n, n_rows)) * sizeof(double) : 0;
}

static struct matrix_room room_of(const tl_call *c) {
    const tl_tensor *a = c->input[0];
    const int64_t m = a->shape[a->rank - 2], n = a->shape[a->rank - 1], least = m < n ? m : n, most = m < n ? n : m;
    switch (c->op->id) {
    case OP_ID_solve_triangular:
    case OP_ID_solve:
        return room_sides(n, c->input[1]->shape[a->rank - 1]);
    case OP_ID_inv:
        return room_inv(n);
    case OP_ID_qr: {
        const struct attr_qr *attr = c->attr;
        return room_qr(m, n, !attr->vectors ? 0 : attr->complete ? m : least);
    }
    case OP_ID_eigh:
        return room_eigh(n, ((const struct attr_eigh *)c->attr)->vectors);
    case OP_ID_svd: {
        const struct attr_svd *attr = c->attr;
        return room_svd(most, least, attr->full ? most : least, attr->vectors);
    }
    default:
        return room_factor(m, n);
    }
}

static uint64_t matrix_workspace(const tl_call *c, const struct target *target) {
    (void)target;
    const tl_tensor *a = c->input[0];
    const int64_t numbers = room_of(c).all,
                  n_words = c->op->id == OP_ID_eigh || c->op->id == OP_ID_svd ? JACOBI_WORDS : 0;
    int64_t n_matrices = 1; /* no more than can matter */
    for (int i = 0; i < a->rank - 2; i++) {
        if (a->shape[i] == 0) return 0;
        n_matrices *= a->shape[i] < MATRIX_SLOTS ? a->shape[i] : MATRIX_SLOTS;
        if (n_matrices > MATRIX_SLOTS) n_matrices = MATRIX_SLOTS;
    }
    return (uint64_t)(matrix_slots(n_matrices, numbers) * numbers + n_words) * sizeof(double);
}

static tl_kernel custom(const tl_op_def *def) { return def->cuda; }

static const workspace_rule workspace[OP_COUNT] = {
    [OP_ID_matmul] = product_workspace,
    [OP_ID_matmul_acc] = product_workspace,
    [OP_ID_matmul_parts] = product_workspace,
    [OP_ID_narrow] = narrow_workspace,
    [OP_ID_matmul_f8] = product_workspace,
    [OP_ID_matmul_f8_acc] = product_workspace,
    [OP_ID_matmul_blocks] = blocks_workspace,
    [OP_ID_gelu_mlp] = mlp_workspace,
    [OP_ID_gelu_mlp_grad] = mlp_grad_workspace,
    [OP_ID_swiglu_mlp] = mlp_workspace,
    [OP_ID_swiglu_mlp_grad] = mlp_grad_workspace,
    [OP_ID_linear_cross_entropy] = head_workspace,
    [OP_ID_layer_norm_grad] = norm_workspace,
    [OP_ID_rms_norm_grad] = norm_workspace,
    [OP_ID_add_layer_norm_grad] = norm_workspace,
    [OP_ID_add_rms_norm_grad] = norm_workspace,
    [OP_ID_attention] = attention_workspace,
    [OP_ID_attention_grad] = attention_grad_workspace,
    [OP_ID_embedding_grad] = embedding_workspace,
    [OP_ID_embedding_acc] = embedding_workspace,
    [OP_ID_index_put] = index_put_workspace,
    [OP_ID_cumsum] = scan_workspace,
    [OP_ID_cumprod] = scan_workspace,
    [OP_ID_sort] = sort_workspace,
    [OP_ID_permutation] = permutation_workspace,
    [OP_ID_multinomial] = multinomial_workspace,
    [OP_ID_nonzero] = tiles_workspace,
    [OP_ID_repeat_interleave] = tiles_workspace,
    [OP_ID_unique] = unique_workspace,
    [OP_ID_fft] = fft_workspace,
    [OP_ID_cholesky] = matrix_workspace,
    [OP_ID_lu] = matrix_workspace,
    [OP_ID_solve_triangular] = matrix_workspace,
    [OP_ID_solve] = matrix_workspace,
    [OP_ID_inv] = matrix_workspace,
    [OP_ID_det] = matrix_workspace,
    [OP_ID_qr] = matrix_workspace,
    [OP_ID_eigh] = matrix_workspace,
    [OP_ID_svd] = matrix_workspace,
};

const struct device_rules cuda_rules = {.workspace = workspace,
                                        .head = head_cut,
                                        .adds_bias = adds_bias,
                                        .activates = activates,
                                        .joins_parts = joins_parts,
                                        .multiplies_f8 = multiplies_f8,
                                        .sums = sums,
                                        .custom = custom};

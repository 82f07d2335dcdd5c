/* mlp.cu: the ops of an MLP. On Hopper the products activate before they write (mlp_hopper.cuh). Elsewhere, and for
 * dtypes and sizes that those do not have, the parts run one after the other. */
#include "device/cuda/ops/matmul.h"
#include "device/cuda/ops/mlp_hopper.cuh"

/* ---- Operands ------------------------------------------------------------------------------------------ */

static int64_t row_count(const tl_operand *x) {
    int64_t n = 1;
    for (int i = 0; i < x->rank - 1; i++) n *= x->shape[i];
    return n;
}
static void stack_set(rows *r, const tl_operand *x) {
    rows_set(r, x->data, x->dtype, row_count(x), x->shape[x->rank - 1]);
}

/* Another kernel as part of this one. */
static bool apply(const tl_kernel_args *args, tl_kernel kernel, const tl_operand *out, int n_out, const tl_operand *in,
                  int n_in, const void *attr, size_t workspace_bytes) {
    tl_kernel_args part = *args;
    part.in = in;
    part.n_in = n_in;
    part.out = out;
    part.n_out = n_out;
    part.attr = attr;
    part.workspace_bytes = workspace_bytes;
    if (!workspace_bytes) part.workspace = nullptr;
    return kernel(&part);
}

/* out = a b, or a b^T [+ bias]. Biases of sizes that the library does not take are added afterwards. */
static bool multiply(const tl_kernel_args *args, const rows &out, const rows &a, const tl_operand *b, bool transpose_b,
                     const tl_operand *bias, size_t workspace_bytes) {
    struct attr_matmul attr = {};
    attr.transpose_b = transpose_b;
    attr.dtype = out.operand.dtype;
    attr.is_fast = ((const struct attr_mlp *)args->attr)->is_fast;
    attr.is_timed = ((const struct attr_mlp *)args->attr)->is_timed;
    const bool takes_bias = bias && dtype_bytes(bias->dtype) == 2 && out.shape[1] % 8 == 0 && a.shape[1] % 8 == 0;
    const tl_operand in[3] = {a.operand, *b, takes_bias ? *bias : a.operand};
    if (!apply(args, cuda_matmul, &out.operand, 1, in, takes_bias ? 3 : 2, &attr, workspace_bytes)) return false;
    if (!bias || takes_bias) return true;
    tl_operand sum[2] = {out.operand, out.operand};
    const int64_t repeated[2] = {0, 1};
    sum[1].data = bias->data;
    sum[1].stride = repeated;
    return apply(args, cuda_add, &out.operand, 1, sum, 2, nullptr, 0);
}

/* ---- On Hopper ----------------------------------------------------------------------------------------- */

static bool operand_fits(const tl_operand *x) { return rows_fit_map(x->data, row_count(x), x->shape[x->rank - 1]); }
static bool fits_hopper(const tl_kernel_args *args) {
    if (dtype_bytes(args->in[0].dtype) != 2) return false;
    for (int i = 0; i < args->n_in; i++)
        if (args->in[i].rank > 1 && !operand_fits(&args->in[i])) return false;
    return runs_warpgroups(args, hopper_product<gelu_use<bf16>, false>);
}

template <template <class> class USE, bool TURNED>
static bool launch(const tl_kernel_args *args, product &p, const mlp_parts &parts, int64_t K) {
    if (args->in[0].dtype == TL_BF16) return product_launch<USE<bf16>, TURNED>(args, p, parts, K);
    return product_launch<USE<f16>, TURNED>(args, p, parts, K);
}

/* ---- Few rows ------------------------------------------------------------------------------------------ */

/* Nothing is kept, and there are so few rows that the first product is a pass over its weights: it activates too. */
static bool activate_thin(const tl_kernel_args *args, const rows &x, const rows &y, const tl_operand *b,
                          const tl_operand *b_up, const tl_operand *bias) {
    const uintptr_t addresses =
        (uintptr_t)x.operand.data | (uintptr_t)b->data | (uintptr_t)(b_up ? b_up->data : nullptr);
    if (args->n_out > 1 || x.shape[0] > MATMUL_THIN_ROWS || dtype_bytes(x.operand.dtype) != 2 || x.shape[1] % 8 ||
        addresses % 16 || cuda_state_of(args->stream)->capability < 80)
        return false;
    struct thin_product p = {};
    p.a = x.operand.data;
    p.b[0].data = b->data;
    p.b[0].n = p.ld_out = y.shape[1];
    p.n_b = 1;
    p.b_up = b_up ? b_up->data : nullptr;
    p.bias = bias ? bias->data : nullptr;
    p.out = y.operand.data;
    p.m = x.shape[0];
    p.k = p.ld_a = p.ld_b = x.shape[1];
    p.dtype = p.out_dtype = x.operand.dtype;
    p.end = b_up ? THIN_SWIGLU : THIN_GELU;
    matmul_thin(args, &p);
    return true;
}

/* ---- gelu ---------------------------------------------------------------------------------------------- */

/* Products get the beginning of the workspace, y the end if it is no result. */
static void *room_for_y(const tl_kernel_args *args, int64_t n, size_t *product_bytes) {
    const size_t y = args->n_out > 1 ? 0 : (size_t)n * (size_t)dtype_bytes(args->in[0].dtype);
    *product_bytes = (args->workspace_bytes - y) / 256 * 256;
    return args->n_out > 1 ? args->out[1].data : (char *)args->workspace + *product_bytes;
}

static bool gelu_first(const tl_kernel_args *args, const rows &x, const rows &y, const rows *h, const tl_operand *up,
                       const tl_operand *bias, size_t product_bytes) {
    if (activate_thin(args, x, y, up, nullptr, bias)) return true;
    if (!fits_hopper(args)) {
        const rows &sum = h ? *h : y;
        return multiply(args, sum, x, up, true, bias, product_bytes) &&
               apply(args, cuda_gelu, &y.operand, 1, &sum.operand, 1, nullptr, 0);
    }
    mlp_parts parts = {};
    product p = {};
    rows of_up;
    stack_set(&of_up, up);
    p.M = x.shape[0];
    p.N = y.shape[1];
    parts.bias = bias ? bias->data : nullptr;
    parts.is_lean = !h;
    return map_rows(args, &p.a, x, TILE_ROWS) && map_rows(args, &p.b[0], of_up, PART) &&
           map_rows(args, &p.b[1], of_up, PART) && map_rows(args, &parts.kept[0], h ? *h : y, TILE_ROWS) &&
           map_rows(args, &parts.result[0], y, TILE_ROWS) && launch<gelu_use, false>(args, p, parts, x.shape[1]);
}

extern "C" bool cuda_gelu_mlp(const tl_kernel_args *args) {
    enum { X, DOWN, UP, UP_BIAS, DOWN_BIAS };
    const tl_operand *const up_bias = args->n_in > UP_BIAS ? &args->in[UP_BIAS] : nullptr;
    const tl_operand *const down_bias = args->n_in > UP_BIAS ? &args->in[DOWN_BIAS] : nullptr;
    rows x, out, y, h;
    stack_set(&x, &args->in[X]);
    stack_set(&out, &args->out[0]);
    const int64_t n = x.shape[0], F = args->in[UP].shape[0];
    const tl_dtype dtype = x.operand.dtype;
    if (n == 0 || out.shape[1] == 0) return true;
    size_t product_bytes;
    rows_set(&y, room_for_y(args, n * F, &product_bytes), dtype, n, F);
    if (args->n_out > 1) rows_set(&h, args->out[2].data, dtype, n, F);
    return gelu_first(args, x, y, args->n_out > 1 ? &h : nullptr, &args->in[UP], up_bias, product_bytes) &&
           multiply(args, out, y, &args->in[DOWN], true, down_bias, product_bytes);
}

/* Some rows at a time, as many as the workspace has room for: y's gradient is not kept. */
template <class EACH>
static bool gradient_in_parts(const tl_kernel_args *args, const rows &g, const tl_operand *down, int64_t F, EACH each) {
    const int64_t bytes = dtype_bytes(g.operand.dtype), D = g.shape[1];
    const int64_t most = (int64_t)args->workspace_bytes / (F * bytes); /* at least one: see MLP_SUMS_BYTES */
    for (int64_t first = 0; first < g.shape[0]; first += most) {
        const int64_t n = g.shape[0] - first < most ? g.shape[0] - first : most;
        rows dy, part;
        rows_set(&dy, args->workspace, g.operand.dtype, n, F);
        rows_set(&part, (char *)g.operand.data + first * D * bytes, g.operand.dtype, n, D);
        if (!multiply(args, dy, part, down, false, nullptr, 0) || !each(dy, first)) return false;
    }
    return true;
}

/* The sums of dh's columns, from those of the tiles of n rows. */
template <class T> static void sums_finish(const tl_kernel_args *args, const float *of_tiles, int64_t n, int64_t F) {
    static const bool is_early = waits_for_front(partial_sums<T>);
    launch_early(args, partial_sums<T>, is_early, (unsigned)((F + 31) / 32), 256, 0, of_tiles, (T *)args->out[1].data,
                 (n + TILE_ROWS - 1) / TILE_ROWS, F, nullptr);
}

extern "C" bool cuda_gelu_mlp_grad(const tl_kernel_args *args) {
    enum { G, DOWN, H };
    rows g, h, of_down;
    stack_set(&g, &args->in[G]);
    stack_set(&h, &args->in[H]);
    stack_set(&of_down, &args->in[DOWN]);
    const int64_t n = h.shape[0], F = h.shape[1];
    const bool has_sums = args->n_out > 1;
    if (F == 0) return true;
    if (n > 0 && g.shape[1] > 0 && fits_hopper(args)) {
        mlp_parts parts = {};
        product p = {};
        p.M = n;
        p.N = F;
        parts.sums = has_sums ? (float *)args->workspace : nullptr;
        if (!map_rows(args, &p.a, g, TILE_ROWS) || !map_rows(args, &p.b[0], of_down, PART) ||
            !map_rows(args, &p.b[1], of_down, PART) || !map_rows(args, &parts.kept[0], h, TILE_ROWS) ||
            !map_rows(args, &parts.result[0], h, TILE_ROWS) ||
            !launch<gelu_slope_use, true>(args, p, parts, g.shape[1]))
            return false;
        if (!has_sums) return true;
        if (args->out[1].dtype == TL_BF16) sums_finish<bf16>(args, parts.sums, n, F);
        else sums_finish<f16>(args, parts.sums, n, F);
        return true;
    }
    const int64_t bytes = dtype_bytes(h.operand.dtype);
    if (!gradient_in_parts(args, g, &args->in[DOWN], F, [&](const rows &dy, int64_t first) {
            rows part;
            rows_set(&part, (char *)h.operand.data + first * F * bytes, h.operand.dtype, dy.shape[0], F);
            const tl_operand in[2] = {part.operand, dy.operand};
            return apply(args, cuda_gelu_grad, &part.operand, 1, in, 2, nullptr, 0);
        }))
        return false;
    struct attr_reduce over = {};
    over.axes = 1;
    over.is_wide = true;
    return !has_sums || apply(args, cuda_sum, &args->out[1], 1, &h.operand, 1, &over, 0);
}

/* ---- swiglu -------------------------------------------------------------------------------------------- */

/* The parts. Where nothing is kept, z is in y's place, and some rows of u at a time are in the products' workspace. */
static bool swiglu_first(const tl_kernel_args *args, const rows &x, const rows &y, const rows &u, const rows &z,
                         size_t product_bytes) {
    enum { X, DOWN, UP, GATE };
    const bool keeps = args->n_out > 1;
    const int64_t bytes = dtype_bytes(x.operand.dtype), n = x.shape[0], C = x.shape[1], F = y.shape[1];
    const int64_t room = (int64_t)product_bytes / (F * bytes), most = keeps ? n : room < 1 ? 1 : room;
    if (!multiply(args, z, x, &args->in[GATE], true, nullptr, product_bytes)) return false;
    for (int64_t first = 0; first < n; first += most) {
        rows of_x, of_u, of_z, of_y;
        const int64_t count = n - first < most ? n - first : most;
        const auto part = [&](rows *r, void *data, int64_t at, int64_t width) {
            rows_set(r, (char *)data + at * width * bytes, x.operand.dtype, count, width);
        };
        part(&of_x, x.operand.data, first, C);
        part(&of_u, keeps ? u.operand.data : args->workspace, keeps ? first : 0, F);
        part(&of_z, z.operand.data, first, F);
        part(&of_y, y.operand.data, first, F);
        const tl_operand in[2] = {of_z.operand, of_u.operand};
        if (!multiply(args, of_u, of_x, &args->in[UP], true, nullptr, keeps ? product_bytes : 0) ||
            !apply(args, cuda_swiglu, &of_y.operand, 1, in, 2, nullptr, 0))
            return false;
    }
    return true;
}

extern "C" bool cuda_swiglu_mlp(const tl_kernel_args *args) {
    enum { X, DOWN, UP, GATE };
    rows x, out, y, u, z, of_up, of_gate;
    stack_set(&x, &args->in[X]);
    stack_set(&out, &args->out[0]);
    stack_set(&of_up, &args->in[UP]);
    stack_set(&of_gate, &args->in[GATE]);
    const int64_t n = x.shape[0], F = args->in[UP].shape[0];
    const tl_dtype dtype = x.operand.dtype;
    const bool keeps = args->n_out > 1;
    if (n == 0 || out.shape[1] == 0) return true;
    size_t product_bytes;
    rows_set(&y, room_for_y(args, n * F, &product_bytes), dtype, n, F);
    rows_set(&u, keeps ? args->out[2].data : y.operand.data, dtype, n, F);
    rows_set(&z, keeps ? args->out[3].data : y.operand.data, dtype, n, F);
    const bool is_done = activate_thin(args, x, y, &args->in[GATE], &args->in[UP], nullptr);
    if (!is_done && fits_hopper(args)) {
        mlp_parts parts = {};
        product p = {};
        p.M = n;
        p.N = F;
        parts.is_lean = !keeps;
        if (!map_rows(args, &p.a, x, TILE_ROWS) || !map_rows(args, &p.b[0], of_gate, PART) ||
            !map_rows(args, &p.b[1], of_up, PART) || !map_rows(args, &parts.kept[0], z, TILE_ROWS) ||
            !map_rows(args, &parts.kept[1], u, TILE_ROWS) || !map_rows(args, &parts.result[0], y, TILE_ROWS) ||
            !launch<swiglu_use, false>(args, p, parts, x.shape[1]))
            return false;
    } else if (!is_done && !swiglu_first(args, x, y, u, z, product_bytes)) {
        return false;
    }
    return multiply(args, out, y, &args->in[DOWN], true, nullptr, product_bytes);
}

extern "C" bool cuda_swiglu_mlp_grad(const tl_kernel_args *args) {
    enum { G, DOWN, U, Z };
    rows g, u, z, of_down;
    stack_set(&g, &args->in[G]);
    stack_set(&u, &args->in[U]);
    stack_set(&z, &args->in[Z]);
    stack_set(&of_down, &args->in[DOWN]);
    const int64_t n = u.shape[0], F = u.shape[1];
    if (n == 0 || F == 0) return true;
    if (g.shape[1] > 0 && fits_hopper(args)) {
        mlp_parts parts = {};
        product p = {};
        p.M = n;
        p.N = F;
        return map_rows(args, &p.a, g, TILE_ROWS) && map_rows(args, &p.b[0], of_down, PART) &&
               map_rows(args, &p.b[1], of_down, PART) && map_rows(args, &parts.kept[0], z, TILE_ROWS) &&
               map_rows(args, &parts.kept[1], u, TILE_ROWS) && map_rows(args, &parts.result[0], z, TILE_ROWS) &&
               map_rows(args, &parts.result[1], u, TILE_ROWS) &&
               launch<swiglu_slope_use, true>(args, p, parts, g.shape[1]);
    }
    const int64_t bytes = dtype_bytes(u.operand.dtype);
    return gradient_in_parts(args, g, &args->in[DOWN], F, [&](const rows &dy, int64_t first) {
        rows du, dz;
        rows_set(&du, (char *)u.operand.data + first * F * bytes, u.operand.dtype, dy.shape[0], F);
        rows_set(&dz, (char *)z.operand.data + first * F * bytes, z.operand.dtype, dy.shape[0], F);
        const tl_operand in[3] = {dz.operand, du.operand, dy.operand}, results[2] = {dz.operand, du.operand};
        return apply(args, cuda_swiglu_grad, results, 2, in, 3, nullptr, 0);
    });
}

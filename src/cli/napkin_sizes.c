/* napkin_sizes.c: closed forms of tensors: bytes, activations, FLOPs per byte. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/napkin_form.h"
#include "plan/napkin.h"
#include "tensor/dtype.h"

/* ---- memory ---- */

int form_memory(const struct asked *q, struct answer *a) {
    tl_dtype dtype = dtype_from_name(q->dtype);
    int64_t elements = 1;
    uint64_t bytes;
    if (dtype == TL_DTYPE_COUNT) {
        const char *names[TL_DTYPE_COUNT];
        for (int d = 0; d < TL_DTYPE_COUNT; d++) names[d] = tl_dtype_name((tl_dtype)d);
        char meant[TEXT_MEANT];
        return asked_bad("memory", "there is no dtype \"%s\"%s (`tally dtypes` lists them)", q->dtype,
                         text_meant(meant, text_nearest(q->dtype, names, TL_DTYPE_COUNT)));
    }
    if (!q->shape) return asked_lacks("memory", "--shape is required");
    json_t *shape = json_array();
    bool ok = *q->shape != 0;
    for (const char *at = q->shape; ok && *at;) {
        char piece[32];
        size_t length = strcspn(at, ",x");
        double size = 0;
        ok = length > 0 && length < sizeof piece;
        if (ok) memcpy(piece, at, length), piece[length] = 0;
        ok = ok && number_read(piece, &size) && size >= 0 && size == floor(size) && size < 9e15 &&
             size_mul(elements, (int64_t)size, &elements);
        json_array_append_new(shape, json_integer((json_int_t)size));
        at += length;
        if (*at && !*++at) ok = false; /* a comma at the end */
    }
    json_object_set_new(a->json, "shape", shape);
    if (!ok || !dtype_bytes(dtype, elements, &bytes))
        return asked_bad("memory", "--shape \"%s\" is not a list of sizes whose product fits 63 bits", q->shape);
    double bits = dtype_info(dtype)->bits;
    answer_formula(a, "bytes = elements x bits / 8 = %" PRId64 " x %.0f / 8 = %" PRIu64, elements, bits, bytes);
    answer_word(a, "dtype", dtype_info(dtype)->name);
    json_object_set_new(a->json, "elements", json_integer(elements));
    char text[32];
    fprintf(a->text, "  %-18s %" PRIu64 " (%s; %.6g MB)\n", "bytes", bytes, bytes_text((double)bytes, text),
            (double)bytes / 1e6);
    json_object_set_new(a->json, "bytes", json_integer((json_int_t)bytes));
    json_object_set_new(a->json, "mebibytes", json_real((double)bytes / 1048576));
    return 0;
}

/* ---- activations ---- */

int form_activations(const struct asked *q, struct answer *a) {
    struct napkin_shape s = {q->layers, q->channels, q->heads, q->seq, q->batch, q->tensor, q->pipeline, q->interleave};
    if (!(s.layers > 0 && s.channels > 0 && s.heads > 0 && s.seq > 0 && s.batch > 0))
        return asked_lacks("activations", "give --layers, --channels, --heads, --seq and --batch");
    double each = q->bytes_per_param > 0 ? q->bytes_per_param : 18;
    double state = napkin_state(&s, each), all = napkin_activations(&s, KEEP_ALL);
    answer_formula(
        a,
        "s b h L (10 + 24/t + 5 a s / (h t)) f = %.0f x %.0f x %.0f x %.0f x (10 + 24/%.0f + 5 x %.0f x %.0f / "
        "(%.0f x %.0f)) x %.4g",
        s.seq, s.batch, s.channels, s.layers, s.tensor, s.heads, s.seq, s.channels, s.tensor,
        s.interleave > 0 ? 1 + (s.pipeline - 1) / (s.pipeline * s.interleave) : 1.0);
    answer_value(a, "state", state, "%.0f B, %.10g GiB: %.4g x 12 L h^2 / (t p)", state, state / 1073741824.0, each);
    for (int k = 0; k < KEEP_COUNT; k++) {
        double bytes = napkin_activations(&s, (enum napkin_keep)k);
        static const char *const words[] = {"nothing recomputed", "sequence parallelism", "attention recomputed",
                                            "both", "only block inputs kept"};
        answer_value(a, napkin_keep_names[k], bytes, "%.0f B, %.10g GiB, %.2f %%: %s", bytes, bytes / 1073741824.0,
                     100 * bytes / all, words[k]);
    }
    return 0;
}

/* ---- intensity ---- */

struct op_cost {
    const char *name, *formula;
    double flops, elements; /* of n; elements moved */
};

/* Elementwise ops of N, reductions of N, and products of N x N; FLOPs as the ledger counts them. */
static bool op_of(const struct asked *q, struct op_cost *c) {
    double n = q->n;
    const struct op_cost ops[] = {
        {"relu", "N / (2 N bytes)", n, 2 * n},
        {"gelu", "9 N / (2 N bytes)", 9 * n, 2 * n},
        {"dot", "2 N / ((2 N + 1) bytes)", 2 * n, 2 * n + 1},
        {"matvec", "2 N^2 / ((N^2 + 2 N) bytes)", 2 * n * n, n * n + 2 * n},
        {"matmul", "2 N^3 / (3 N^2 bytes)", 2 * n * n * n, 3 * n * n},
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (!strcmp(ops[i].name, q->op)) return *c = ops[i], true;
    return false;
}

int form_intensity(const struct asked *q, struct answer *a) {
    struct peak machine;
    struct op_cost c = {"matmul", "2 m k n / ((m k + k n + m n) bytes)", 2 * q->m * q->k * q->n,
                        q->m * q->k + q->k * q->n + q->m * q->n};
    int code = peak_find("intensity", q, &machine);
    if (code) return code;
    tl_dtype dtype = dtype_from_name(q->dtype);
    if (dtype == TL_DTYPE_COUNT)
        return asked_bad("intensity", "there is no dtype \"%s\" (`tally dtypes` lists them)", q->dtype);
    if (!(q->n > 0)) return asked_lacks("intensity", "no size (give --n, or --m, --k and --n)");
    const bool has_sides = q->m > 0 || q->k > 0; /* of a product that is not square */
    if (q->op && strcmp(q->op, "matmul") && has_sides)
        return asked_lacks("intensity", "--m and --k are sizes of a product (--op matmul); other ops have --n alone");
    if (q->op && !has_sides && !op_of(q, &c))
        return asked_bad("intensity", "--op \"%s\" is not one of relu, gelu, dot, matvec, matmul", q->op);
    if ((!q->op || has_sides) && !(q->m > 0 && q->k > 0))
        return asked_lacks("intensity", "give --op NAME and --n, or --m, --k and --n of a product");
    double bytes = c.elements * dtype_info(dtype)->bits / 8, intensity = c.flops / bytes;
    answer_formula(a, "intensity of %s = FLOPs / bytes = %s = %.6g / %.6g = %.4g FLOP/B", c.name, c.formula, c.flops,
                   bytes, intensity);
    answer_value(a, "flops", c.flops, "%.6g", c.flops);
    answer_value(a, "bytes", bytes, "%.6g", bytes);
    answer_value(a, "intensity", intensity, "%.4g FLOP/B", intensity);
    if (!machine.chip) return 0;
    double bandwidth = hardware_value(machine.chip, HARDWARE_BANDWIDTH);
    peak_say(a, &machine);
    if (!(bandwidth > 0)) return 0;
    double ridge = machine.peak / bandwidth, s = fmax(c.flops / machine.peak, bytes / bandwidth);
    answer_value(a, "ridge", ridge, "%.4g FLOP/B = %.5g / %.5g", ridge, machine.peak, bandwidth);
    answer_value(a, "seconds", s, "at least %.4g; %s-bound", s, intensity < ridge ? "memory" : "compute");
    answer_word(a, "bound", intensity < ridge ? "memory" : "compute");
    return 0;
}

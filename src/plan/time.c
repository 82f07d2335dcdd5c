/* time.c: how long a step takes by a chip's sheet: the arithmetic alone, which nothing can beat, and the roofline. */
#include <string.h>

#include "plan/plan.h"
#include "train/recipe.h"

static bool is_product(const char *op) {
    static const char *const ops[] = {"matmul", "matmul_acc", "attention", "attention_grad", "linear_cross_entropy"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (!strcmp(op, ops[i])) return true;
    return false;
}

/* What is no product is computed in f32 by the vector units, whatever it is stored in. */
enum hardware_quantity plan_units(const char *op, tl_dtype dtype) {
    if (is_product(op)) return hardware_peak_of(dtype);
    return dtype == TL_F64 ? HARDWARE_F64 : HARDWARE_F32;
}

struct plan_bound plan_bound_of(const struct plan_group *op, const struct hardware *chip) {
    struct plan_bound b = {0};
    double flops = (double)group_flops(op), bytes = (double)op->bytes;
    enum hardware_quantity units = plan_units(op->name, op->dtype);
    double peak = chip && units < HARDWARE_COUNT ? hardware_value(chip, units) : 0;
    double bandwidth = chip ? hardware_value(chip, HARDWARE_BANDWIDTH) : 0;
    if (bytes > 0) b.intensity = flops / bytes;
    if (peak > 0 && bandwidth > 0) b.ridge = peak / bandwidth;
    if (peak > 0) b.arithmetic_s = flops / peak;
    if (bandwidth > 0) b.memory_s = bytes / bandwidth;
    return b;
}

/* FLOPs of a dtype whose peak the sheet does not have make the whole time unknown: nothing is taken from another row. */
bool plan_time_of(const struct price *p, struct plan_time *time) {
    struct plan_groups ops;
    const struct hardware *chip = p->target.chip;
    bool ok = groups_by_op(&ops, p, KIND_STEP), is_known = chip != NULL;
    *time = (struct plan_time){0};
    for (size_t i = 0; ok && is_known && i < ops.n; i++) {
        struct plan_bound b = plan_bound_of(&ops.group[i], chip);
        if (group_flops(&ops.group[i]) > 0 && b.arithmetic_s == 0) is_known = false;
        if (ops.group[i].bytes > 0 && b.memory_s == 0) is_known = false;
        time->arithmetic_s += b.arithmetic_s;
        time->roofline_s += b.arithmetic_s > b.memory_s ? b.arithmetic_s : b.memory_s;
    }
    if (!is_known) *time = (struct plan_time){0};
    groups_free(&ops);
    return ok;
}

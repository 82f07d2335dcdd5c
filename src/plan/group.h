/* group.h: rows of a ledger and cells of memory, added up under few names: all layers of a model are one row. */
#ifndef PLAN_GROUP_H
#define PLAN_GROUP_H

#include "plan/plan_target.h"

struct plan_group {
    char name[64];
    tl_dtype dtype; /* of ops; TL_DTYPE_COUNT for modules */
    uint64_t calls;
    count flops[TL_PHASE_COUNT], bytes; /* bytes: read and written */
    uint64_t held[TL_PURPOSE_COUNT];    /* of modules: live at the peak */
};

struct plan_groups {
    struct plan_group *group;
    size_t n, capacity;
};

/* "model.12.mlp.up_proj" -> "model.*.mlp"; "" -> "-" */
void group_module_name(char *name, size_t size, const char *path);
/* FLOPs and bytes moved are of one kind of step, bytes held of the run's peak. False: no memory, recorded.
 * groups_free afterwards in any case. */
bool groups_by_module(struct plan_groups *g, const struct price *price, enum step_kind kind);
bool groups_by_op(struct plan_groups *g, const struct price *price, enum step_kind kind); /* and dtype */
void groups_free(struct plan_groups *g);

count group_flops(const struct plan_group *g); /* of all phases */
uint64_t group_held(const struct plan_group *g);

/* A peak by purpose, and the module that has most of each. */
struct group_peak {
    uint64_t bytes[TL_PURPOSE_COUNT];
    char module[TL_PURPOSE_COUNT][48]; /* "": not known */
};
bool group_peak_find(const struct price *price, struct group_peak *peak);
/* The purpose that grew most from one peak to another; from NULL, the largest. */
tl_purpose group_peak_growth(const struct group_peak *from, const struct group_peak *to);

#endif

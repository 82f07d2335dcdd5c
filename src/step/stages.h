/* stages.h: micro-batches of a run whose layers are divided into stages (pp), through all of them. */
#ifndef STEP_STAGES_H
#define STEP_STAGES_H

#include "step/trainer.h"

static inline bool stages_are_several(const struct trainer *t) { return t->mesh.axis[MESH_PP].size > 1; }

/* The sum of the losses of batches first .. first + n - 1, the same on every stage: () f32. `weight` is that of each
 * loss in the gradients; 0: forward only. The pairs that attention uses are added to `pairs` (NULL: not counted). NULL:
 * recorded. */
tl_tensor *stages_run(struct trainer *t, tl_loader *loader, int64_t first, int64_t n, double weight, int64_t *pairs);

#endif

/* mlp.h: the MLP of a transformer's block, and dropout of what blocks add to the residual stream. */
#ifndef NN_MLP_H
#define NN_MLP_H

#include "nn/layers.h"
#include "nn/model_parallel.h"
#include "tally.h"

/* Streams of random numbers: bits of their number that the ranks of a group set (pipeline.c: from 56 on). */
enum { TP_STREAM = 32, CP_STREAM = 44 };

/* Dropout outside the regions that tp divides: by a module, or with a probability where m is training. */
tl_tensor *drop_outside(const struct parallel *p, tl_module *dropout, tl_tensor *x);
tl_tensor *drop_outside_in(const struct parallel *p, const tl_module *m, double dropout, tl_tensor *x);
/* Between this and parallel_draw_end, random numbers are those of such dropout. */
tl_generator draw_outside_begin(const struct parallel *p);

/* tl_module_add that keeps the child too. */
bool module_child(tl_module *m, tl_module **child, const char *name, tl_module *made);

/* An MLP of a family, of inner width F. `residual`: as `make`, for the layer that writes to the residual stream. */
/* Its result before dropout, whose probability now is *dropout. */
tl_tensor *mlp_undropped(tl_module *mlp, tl_tensor *x, double *dropout);
tl_module *mlp_make(const tl_model_config *c, const struct make *make, const struct make *residual, int64_t F);

#endif

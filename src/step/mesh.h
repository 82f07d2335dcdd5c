/* mesh.h: how the processes of a run divide its work: the groups that a rank belongs to.
 *
 * Ranks are numbered along four axes, the first fastest:
 *
 *     rank = tp + TP (cp + CP (dp + DP pp))
 *
 *     tp   parts of each layer's matrices          dp   sequences of a micro-batch
 *     cp   parts of each sequence                  pp   layers
 *
 * The group of an axis are the ranks that differ on this axis alone, in its order. Gradients of a parameter are
 * summed over `reduced`: the ranks that hold the same part of the model and see other tokens, dp and cp together.
 * What --shard divides is divided among `sharded`: all of these, or with --shard-group N every N that follow each
 * other; then `across` are those that hold the same parts, one of each such group. With --ep N every N ranks of dp that
 * follow each other, of one place on the other axes, are the group `ep` and divide the experts; `experts` are those of
 * `reduced` that have the same ones, over which the experts' gradients are summed. A mesh is made of the processes that
 * were launched, or of processes that do not exist: then one process prices every rank. */
#ifndef STEP_MESH_H
#define STEP_MESH_H

#include "step/settings.h"
#include "tally.h"

enum mesh_axis { MESH_TP, MESH_CP, MESH_DP, MESH_PP, MESH_AXES };

struct mesh {
    int rank, size; /* of all processes of the run */
    tl_comm *world; /* they; never freed by the mesh if they exist */
    struct mesh_group {
        int rank, size;
        tl_comm *comm;
    } axis[MESH_AXES], reduced, sharded, across; /* sharded.comm may be that of `reduced`, across.comm NULL */
    struct mesh_group ep, experts;               /* without ep: of this rank, with a comm of NULL; and `reduced` */
    bool is_price;                               /* the other ranks do not exist */
};

const char *mesh_axis_name(enum mesh_axis axis); /* "tp", and the setting's name */

/* The sizes of the axes, for `world` processes; 0: as many as the settings name. Where the settings have dp 0, it is
 * what the others leave. False: recorded, if they do not multiply to `world`, or the work cannot be divided by them. */
bool mesh_sizes(const struct settings *s, int world, int size[MESH_AXES]);

/* Whether a trainer divides its work like this, or cannot yet. Records nothing. */
bool mesh_is_possible(const struct settings *s);

/* The mesh of the processes that were launched, which all call it; of this process, if it was started alone. The
 * caller closes it. False: recorded, and there is nothing to close; so too below. */
bool mesh_open(struct mesh *m, const struct settings *s);
/* The mesh as one rank of it sees it, without other processes: for tensors on meta. */
bool mesh_price(struct mesh *m, const struct settings *s, int rank);
void mesh_close(struct mesh *m); /* once more is allowed */

/* ---- Words between the processes, outside of ledgers. All ranks call these. ---- */

/* What each rank gives, in the order of ranks. */
bool mesh_share(const struct mesh *m, const void *mine, size_t bytes, void *all);
/* The same for texts, which may be NULL: m->size of them, each memory_free'd; "" where none was given. With `to` 0 or
 * above only that rank receives others' texts. */
bool mesh_texts(const struct mesh *m, const char *mine, int to, char **all);

/* Sequences of a micro-batch that this rank has. */
static inline int64_t mesh_batch(const struct mesh *m, const struct settings *s) {
    return s->batch / m->axis[MESH_DP].size;
}

#endif

#include "step/mesh.h"

#include <inttypes.h>

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "comm/comm.h"
#include "comm/watch.h"

enum { MOST_RANKS = 1 << 24 };

static const char *const names[MESH_AXES] = {"tp", "cp", "dp", "pp"};
const char *mesh_axis_name(enum mesh_axis axis) { return names[axis]; }

/* ---- Sizes ---- */

static int64_t setting_of(const struct settings *s, enum mesh_axis axis) {
    const int64_t sizes[MESH_AXES] = {s->tp, s->cp, s->dp, s->pp};
    return sizes[axis];
}

static bool parts_check(const struct settings *s) {
    if (s->seq % (2 * s->cp) && s->cp > 1)
        return error_set(TL_ERROR_USE,
                         "cp: rows of %" PRId64 " tokens cannot be divided among %" PRId64
                         " ranks, two parts for each (need --seq that is a multiple of %" PRId64 ")",
                         s->seq, s->cp, 2 * s->cp);
    if (s->pp_chunks > 1 && (s->pp == 1 || s->accum % s->pp))
        return error_set(TL_ERROR_USE,
                         "pp_chunks: %" PRId64 " chunks of layers on each of %" PRId64 " stages, with %" PRId64
                         " micro-batches (need --pp 2 or more, and --accum that is a multiple of it)",
                         s->pp_chunks, s->pp, s->accum);
    return !s->sp || s->tp > 1 ||
           error_set(TL_ERROR_USE, "sp: divides what is between the parts of tp (need --tp 2 or more, or no --sp)");
}

static bool group_check(const struct settings *s, int64_t n) {
    int64_t group = s->shard_group;
    if (!group) return true;
    if (!s->shard)
        return error_set(TL_ERROR_USE,
                         "shard_group: --shard none divides nothing (need --shard zero1, zero2 or zero3, or "
                         "no --shard-group)");
    if (group > 1 && n % group == 0) return true;
    return error_set(TL_ERROR_USE,
                     "shard_group: %" PRId64 " ranks of dp and cp cannot be divided into groups of %" PRId64
                     " (need a --shard-group that divides them, of 2 or more, or none)",
                     n, group);
}

bool mesh_is_possible(const struct settings *s) {
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    bool ok = parts_check(s);
    tl_set_error_policy(policy);
    if (!ok) tl_error_clear();
    return ok;
}

static bool ep_check(const struct settings *s, int64_t dp) {
    if (s->ep == 1) return s->ep_load == 1 || error_set(TL_ERROR_USE, "ep_load: has no use without --ep 2 or more");
    if (s->tp > 1)
        return error_set(TL_ERROR_USE,
                         "ep: --tp %" PRId64 " divides each expert, and --ep %" PRId64
                         " their number (need one of both)",
                         s->tp, s->ep);
    if (s->shard_group)
        return error_set(TL_ERROR_USE, "ep: --shard-group divides the ranks of dp in another way (need one of both)");
    return dp % s->ep == 0 || error_set(TL_ERROR_USE,
                                        "ep: %" PRId64 " ranks of dp cannot be divided into groups of %" PRId64
                                        " that share the experts (need --ep that divides them)",
                                        dp, s->ep);
}

static bool product_check(const struct settings *s, int64_t others, int world) {
    int64_t size = s->dp * others;
    if (s->dp ? !world || size == world : world % others == 0) return true;
    if (!s->dp)
        return error_set(TL_ERROR_USE,
                         "tp: --tp %" PRId64 " --cp %" PRId64 " --pp %" PRId64
                         " do not divide %d process%s (start %" PRId64 " of them, or a multiple: mpirun -n %" PRId64
                         " tally train ...)",
                         s->tp, s->cp, s->pp, world, world == 1 ? "" : "es", others, others);
    if (others == 1)
        return error_set(TL_ERROR_USE,
                         "dp: --dp %" PRId64 " needs as many processes, and %d %s started (mpirun -n %" PRId64
                         " tally train ..., or --dp %d)",
                         s->dp, world, world == 1 ? "was" : "were", s->dp, world);
    return error_set(TL_ERROR_USE,
                     "dp: --dp %" PRId64 " --tp %" PRId64 " --cp %" PRId64 " --pp %" PRId64 " need %" PRId64
                     " processes, and %d %s started (mpirun -n %" PRId64 " tally train ...)",
                     s->dp, s->tp, s->cp, s->pp, size, world, world == 1 ? "was" : "were", size);
}

bool mesh_sizes(const struct settings *s, int world, int size[MESH_AXES]) {
    int64_t others = s->tp * s->cp * s->pp; /* each at most 4096 */
    if (!parts_check(s) || !product_check(s, others, world)) return false;
    int64_t dp = s->dp ? s->dp : world ? world / others : 1;
    if (dp > MOST_RANKS / others)
        return error_set(TL_ERROR_USE, "dp: --dp %" PRId64 " with %" PRId64 " ranks each (need at most %d in all)", dp,
                         others, MOST_RANKS);
    if (s->batch % dp)
        return error_set(TL_ERROR_USE,
                         "batch: %" PRId64 " sequences cannot be divided among %" PRId64
                         " ranks (need a multiple of %" PRId64 ", such as --batch %" PRId64 ")",
                         s->batch, dp, dp, (s->batch + dp - 1) / dp * dp);
    if (!group_check(s, dp * s->cp) || !ep_check(s, dp)) return false;
    for (int axis = 0; axis < MESH_AXES; axis++)
        size[axis] = axis == MESH_DP ? (int)dp : (int)setting_of(s, (enum mesh_axis)axis);
    return true;
}

/* ---- Groups ---- */

/* Ranks with the same color differ on the axes in `along` (a bit each) alone, and have their order. */
static void place_find(const int size[MESH_AXES], int rank, unsigned along, int *color, int *place, int *n) {
    int before = 1;
    *color = *place = 0, *n = 1;
    for (int axis = 0; axis < MESH_AXES; axis++) {
        int at = rank / before % size[axis];
        if (along >> axis & 1) *place += at * *n, *n *= size[axis];
        else *color += at * before;
        before *= size[axis];
    }
}

static bool group_make(const struct mesh *m, const int size[MESH_AXES], unsigned along, struct mesh_group *group) {
    int color;
    place_find(size, m->rank, along, &color, &group->rank, &group->size);
    group->comm = m->is_price ? tl_comm_price(group->rank, group->size) : tl_comm_split(m->world, color, group->rank);
    return group->comm != NULL;
}

/* Of the ranks of `reduced`, those `stride` apart from `first` on; a color is the number of a group's first rank. */
static bool part_make(const struct mesh *m, int first, int stride, int size, struct mesh_group *group) {
    int before = m->axis[MESH_TP].size; /* between two ranks of `reduced` */
    group->size = size;
    group->rank = (m->reduced.rank - first) / stride;
    group->comm = m->is_price ? tl_comm_price(group->rank, size)
                              : tl_comm_split(m->world, m->rank - (m->reduced.rank - first) * before, group->rank);
    return group->comm != NULL;
}

static bool sharded_make(struct mesh *m, int group) {
    const struct mesh_group *all = &m->reduced;
    m->sharded = *all;
    m->across = (struct mesh_group){.size = 1};
    if (!group || group == all->size) return true;
    m->sharded.comm = NULL;
    return part_make(m, all->rank / group * group, 1, group, &m->sharded) &&
           part_make(m, all->rank % group, group, all->size / group, &m->across);
}

/* The ranks that divide the experts with this one, and those that have the same. */
static bool experts_make(struct mesh *m, int n) {
    const struct mesh_group *cp = &m->axis[MESH_CP], *dp = &m->axis[MESH_DP];
    m->ep = (struct mesh_group){.size = 1};
    m->experts = m->reduced;
    if (n == 1) return true;
    const int before = m->axis[MESH_TP].size, mine = dp->rank % n;
    m->experts = (struct mesh_group){cp->rank + cp->size * (dp->rank / n), cp->size * dp->size / n, NULL};
    const int first = m->rank - (m->reduced.rank - cp->size * mine) * before; /* of those that have the same */
    m->experts.comm =
        m->is_price ? tl_comm_price(m->experts.rank, m->experts.size) : tl_comm_split(m->world, first, m->experts.rank);
    return m->experts.comm && part_make(m, m->reduced.rank - cp->size * mine, cp->size, n, &m->ep);
}

static bool groups_make(struct mesh *m, const struct settings *s, const int size[MESH_AXES]) {
    bool ok = true;
    for (int axis = 0; ok && axis < MESH_AXES; axis++) ok = group_make(m, size, 1u << axis, &m->axis[axis]);
    ok = ok && group_make(m, size, 1u << MESH_DP | 1u << MESH_CP, &m->reduced);
    ok = ok && sharded_make(m, (int)s->shard_group) && experts_make(m, (int)s->ep);
    if (!ok) mesh_close(m);
    return ok;
}

bool mesh_open(struct mesh *m, const struct settings *s) {
    int size[MESH_AXES];
    *m = (struct mesh){.world = tl_comm_world()};
    if (!m->world) return false;
    m->rank = tl_comm_rank(m->world);
    m->size = tl_comm_size(m->world);
    return mesh_sizes(s, m->size, size) && groups_make(m, s, size);
}

bool mesh_price(struct mesh *m, const struct settings *s, int rank) {
    int size[MESH_AXES];
    *m = (struct mesh){.rank = rank, .size = 1, .is_price = true};
    if (!mesh_sizes(s, 0, size)) return false;
    for (int axis = 0; axis < MESH_AXES; axis++) m->size *= size[axis];
    m->world = tl_comm_price(rank, m->size);
    return m->world && groups_make(m, s, size);
}

void mesh_close(struct mesh *m) {
    for (int axis = 0; axis < MESH_AXES; axis++) tl_comm_free(m->axis[axis].comm);
    if (m->sharded.comm != m->reduced.comm) tl_comm_free(m->sharded.comm);
    if (m->experts.comm != m->reduced.comm) tl_comm_free(m->experts.comm);
    tl_comm_free(m->ep.comm);
    tl_comm_free(m->across.comm);
    tl_comm_free(m->reduced.comm);
    tl_comm_free(m->world); /* which stays where its processes exist */
    *m = (struct mesh){0};
}

/* ---- Words ---- */

/* Sends `mine` to everybody, or to one rank, and receives what others have for us: lengths[r] bytes to all[r]. */
static bool words_exchange(const struct mesh *m, char *mine, const size_t *lengths, int to, char **all) {
    char error[COMM_ERROR] = "";
    struct message *messages = memory_new(2 * (size_t)m->size * sizeof *messages);
    if (!messages) return error_memory(2 * (size_t)m->size * sizeof *messages, "messages to other ranks");
    int n = 0;
    for (int peer = 0; peer < m->size; peer++) {
        if (peer == m->rank) continue;
        if (lengths[m->rank] && (to < 0 || to == peer))
            messages[n++] = (struct message){peer, true, mine, lengths[m->rank]};
        if (lengths[peer] && (to < 0 || to == m->rank))
            messages[n++] = (struct message){peer, false, all[peer], lengths[peer]};
    }
    watch_enter(m->world, "words", 0, 0, -1); /* their lengths differ, so a call says nothing of them */
    bool ok = comm_exchange(m->world, messages, n, error);
    watch_leave(m->world);
    memory_free(messages);
    return ok || error_set(TL_ERROR_DEVICE, "words between ranks: %s", error);
}

bool mesh_share(const struct mesh *m, const void *mine, size_t bytes, void *all) {
    char error[COMM_ERROR] = "";
    watch_enter(m->world, "agreement", TL_U8, (int64_t)bytes, -1);
    bool ok = comm_gather(m->world, mine, all, bytes, error);
    watch_leave(m->world);
    return ok || error_set(TL_ERROR_DEVICE, "words between ranks: %s", error);
}

bool mesh_texts(const struct mesh *m, const char *mine, int to, char **all) {
    size_t own = mine ? strlen(mine) : 0, *lengths = memory_new((size_t)m->size * sizeof *lengths);
    for (int r = 0; r < m->size; r++) all[r] = NULL;
    bool ok = lengths || error_memory((size_t)m->size * sizeof *lengths, "texts of other ranks");
    ok = ok && mesh_share(m, &own, sizeof own, lengths);
    for (int r = 0; ok && r < m->size; r++) {
        bool is_known = r == m->rank || to < 0 || to == m->rank;
        size_t bytes = is_known ? lengths[r] : 0;
        all[r] = memory_new(bytes + 1);
        if (all[r]) all[r][bytes] = 0;
        else ok = error_memory(bytes + 1, "texts of other ranks");
    }
    if (ok && own) memcpy(all[m->rank], mine, own);
    ok = ok && words_exchange(m, all[m->rank], lengths, to, all);
    memory_free(lengths);
    for (int r = 0; !ok && r < m->size; r++) memory_free(all[r]), all[r] = NULL;
    return ok;
}

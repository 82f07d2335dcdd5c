/* collective.c: ops over a group of processes (comm/comm.h).
 *
 * Ops that move data are all_gather, all_to_all and broadcast, and send, recv and send_recv between two ranks. Every
 * message is decided here, so a price knows the bytes that each rank sends without asking the library that carries
 * them. Sums are ops as everywhere else: reduce_scatter
 * is all_to_all and additions of the parts of all ranks, in the order of ranks, and all_reduce gathers its results.
 * So bits depend on the number of ranks and on nothing else, neither on arrival nor on how tensors were joined before.
 *
 *     n ranks, S bytes of the whole tensor      sent by each rank
 *     all_gather, all_to_all, reduce_scatter    (n - 1) / n S
 *     all_to_all of counted rows                the rows for others
 *     all_reduce                                2 (n - 1) / n S, S rounded up to n elements
 *     broadcast                                 (n - 1) S by the root, 0 by others
 *     send, send_recv                           S
 *
 * The gradients are those of the sum of all ranks' losses.
 */
#include <string.h>

#include "base/memory.h"
#include "account/ledger.h"
#include "comm/watch.h"
#include "ops/collective.h"
#include "ops/ops.h"
#include "tensor/allocations.h"

struct attr_comm {
    tl_comm *comm;
    int root;                 /* of broadcast */
    int to, from;             /* of send and recv; -1 for neither */
    struct collective *parts; /* of a call in two parts; NULL: in one */
    /* of all_to_all: rows for and from each rank, as long as the call runs; NULL: as many for each */
    const int64_t *send, *receive;
};

static tl_comm *comm_of(const tl_call *c) { return ((const struct attr_comm *)c->attr)->comm; }

/* Reads and writes each byte once, and sends `sent`. */
static void collective_cost(const tl_call *c, struct cost *cost, count sent) {
    cost_traffic(c, cost, 0);
    cost->sent_bytes = sent;
}

static bool collective_check(tl_call *c) {
    const tl_comm *comm = comm_of(c);
    if (comm->rank < 0) return call_fail(c, "this process is none of the %d of the group", comm->size);
    return !device_has_data(c->device) || !comm->is_price ||
           call_fail_need(c, "a group for a price has no other processes", "tensors on meta");
}

/* ---- Messages ---- */

/* A tensor, or rows of it, as messages see it: its own memory, or a copy on the host. */
struct staged {
    tl_device *device;
    char *data, *memory; /* memory: the tensor's own */
    size_t bytes;
};

/* A call whose messages are under way. */
struct collective {
    tl_comm *comm;
    tl_device *device;
    tl_tensor *input, *result; /* kept until it ends */
    bool is_in_place;          /* the input is rows of the result */
    bool is_beside;            /* it is under way when the call returns */
    struct staged in, out;
    void *link, *begun;        /* device to device */
    struct exchange *exchange; /* through the host */
    struct call call;
};

static bool staged_new(struct staged *s, tl_tensor *x, bool is_linked) {
    *s = (struct staged){0};
    if (!x) return true; /* send has no result, recv nothing to give */
    *s = (struct staged){.device = x->storage->device, .memory = tensor_data(x), .bytes = tl_bytes(x)};
    s->data = s->memory;
    if (is_linked || device_is_host(s->device) || !s->bytes) return true;
    s->data = memory_new(s->bytes);
    return s->data || error_memory(s->bytes, "a copy on the host");
}
/* Those of this rank. */
static struct staged staged_rows(const struct staged *all, const tl_comm *comm) {
    struct staged s = *all;
    s.bytes /= (size_t)comm->size;
    s.data += (size_t)comm->rank * s.bytes;
    s.memory += (size_t)comm->rank * s.bytes;
    return s;
}
static bool is_copy(const struct staged *s) { return s->data != s->memory; }
static void staged_free(struct staged *s) {
    if (is_copy(s)) memory_free(s->data);
}
static bool staged_copy(struct staged *s, enum copy_direction direction, char *error) {
    if (!is_copy(s)) return true;
    bool is_to_host = direction == COPY_TO_HOST;
    return s->device->functions->copy(s->device, is_to_host ? s->data : s->memory, is_to_host ? s->memory : s->data,
                                      s->bytes, direction, error);
}

/* Which part of the input goes to a rank, and which part of the output comes from it. */
struct route {
    size_t send_from, send_bytes, receive_at, receive_bytes;
};
typedef struct route (*route_rule)(const tl_call *c, const tl_comm *comm, int peer, size_t bytes_in, size_t bytes_out);

/* What a rank keeps for itself. */
static bool own_copy(const struct route *r, const struct collective *x, char *error) {
    char *to = x->out.data + r->receive_at, *from = x->in.data + r->send_from;
    if (!r->receive_bytes || to == from) return true;
    if (x->link) return x->device->functions->copy(x->device, to, from, r->receive_bytes, COPY_INSIDE, error);
    memcpy(to, from, r->receive_bytes);
    return true;
}

static bool messages_begin(const tl_call *c, route_rule rule, struct collective *x, char *error) {
    tl_comm *comm = x->comm;
    struct message *messages = memory_new(2 * (size_t)comm->size * sizeof *messages);
    if (!messages) return error_memory(2 * (size_t)comm->size * sizeof *messages, "the messages of a collective");
    int n = 0;
    bool ok = true;
    for (int k = 0; ok && k < comm->size; k++) { /* everybody begins with another rank */
        int peer = (comm->rank + k) % comm->size;
        struct route r = rule(c, comm, peer, x->in.bytes, x->out.bytes);
        if (peer == comm->rank) {
            ok = own_copy(&r, x, error);
            continue;
        }
        if (r.send_bytes) messages[n++] = (struct message){peer, true, x->in.data + r.send_from, r.send_bytes};
        if (r.receive_bytes) messages[n++] = (struct message){peer, false, x->out.data + r.receive_at, r.receive_bytes};
    }
    if (ok && x->link) ok = x->device->functions->link->begin(x->device, x->link, messages, n, &x->begun, error);
    else if (ok && x->is_beside) ok = (x->exchange = comm_begin(comm, messages, n, error)) != NULL;
    else if (ok) ok = comm_exchange(comm, messages, n, error);
    memory_free(messages);
    return ok;
}

/* Two ranks call it, not all of the group. */
static bool is_pair(const tl_call *c) { return c->op == &op_send || c->op == &op_recv || c->op == &op_send_recv; }

/* Elements of one row. */
static int64_t row_numel(const tl_tensor *x) {
    int64_t n = 1;
    for (int i = 1; i < x->rank; i++) n *= x->shape[i];
    return n;
}

static size_t row_bytes(const tl_tensor *x) { return (size_t)row_numel(x) * (size_t)dtype_info(x->dtype)->bits / 8; }

/* What the program called: a sum consists of several ops. */
static _Thread_local const char *called;

static bool run_begin(const tl_call *c, route_rule rule, struct collective *x, char *error) {
    bool ok = staged_new(&x->out, c->n_outputs ? c->output[0] : NULL, x->link);
    x->is_in_place = c->in_place;
    if (c->in_place) x->in = staged_rows(&x->out, x->comm);
    else ok = ok && staged_new(&x->in, c->n_inputs ? c->input[0] : NULL, x->link);
    return ok && staged_copy(&x->in, COPY_TO_HOST, error) && messages_begin(c, rule, x, error);
}

static bool run_end(struct collective *x, char *error) {
    bool ok = true;
    if (x->begun) {
        struct link_seconds done = {0};
        ok = x->device->functions->link->end(x->device, x->link, x->begun, &done, error);
        comm_times_add(done.busy_s, done.exposed_s);
    }
    if (x->exchange) ok = comm_end(x->exchange, error);
    x->begun = x->exchange = NULL;
    return ok && staged_copy(&x->out, COPY_TO_DEVICE, error);
}

static void run_free(struct collective *x) {
    if (!x->is_in_place) staged_free(&x->in);
    staged_free(&x->out);
}

static bool collective_run(const tl_call *c, route_rule rule, char *error) {
    const struct attr_comm *a = c->attr;
    const tl_tensor *x = c->n_inputs ? c->input[0] : c->output[0];
    struct collective at_once = {0}, *run = a->parts ? a->parts : &at_once;
    run->comm = a->comm;
    run->device = c->device;
    const int64_t numel = a->send ? row_numel(x) : x->numel; /* ranks have rows of their own number */
    watch_enter(a->comm, called ? called : c->op->name, x->dtype, numel,
                is_pair(c) ? a->to >= 0 ? a->to : a->from : -1);
    if (!comm_link(a->comm, c->device, !is_pair(c), &run->link, error)) return false;
    bool ok = run_begin(c, rule, run, error);
    if (!run->is_beside) ok = ok && run_end(run, error);
    else run->call = watch_call();
    if (!run->is_beside || !ok) run_free(run);
    watch_leave(a->comm);
    return ok;
}

/* ---- all_gather: (d,...) of every rank -> (n d,...) ---- */

/* In place, x has the rows of all ranks, of which this one's are sent: (n d,...) -> (n d,...). */
static bool all_gather_shape(tl_call *c) {
    const tl_tensor *x = c->input[0];
    int64_t shape[TL_MAX_RANK];
    if (c->in_place) return collective_check(c) && call_output_like(c, 0, 0);
    memcpy(shape, x->shape, (size_t)x->rank * sizeof *shape);
    if (__builtin_mul_overflow(shape[0], comm_of(c)->size, &shape[0]))
        return call_fail(c, "the result has more elements than can be counted");
    return collective_check(c) && call_output(c, 0, x->dtype, x->rank, shape);
}
static void all_gather_cost(const tl_call *c, struct cost *cost) {
    count n = (count)comm_of(c)->size, part = tl_bytes(c->input[0]) / (c->in_place ? n : 1);
    collective_cost(c, cost, (n - 1) * part);
    if (c->in_place) cost->part[0].bytes_read = part; /* and all is written, as elsewhere */
}
static struct route all_gather_route(const tl_call *c, const tl_comm *comm, int peer, size_t in, size_t out) {
    (void)c, (void)comm, (void)out;
    return (struct route){0, in, (size_t)peer * in, in};
}
static bool all_gather_run(const tl_call *c, char *error) { return collective_run(c, all_gather_route, error); }
static void all_gather_backward(tl_gradient *g) {
    g->result[0] = tl_reduce_scatter(g->grad[0], ((const struct attr_comm *)g->node->attr)->comm);
}
const tl_op op_all_gather = {RECORD(TRANSFER, all_gather, 1),
                             .shapes = "x (d,...) of each of n ranks -> (n d,...)",
                             .dtypes = "any",
                             .flops = "0",
                             .shape = all_gather_shape,
                             .cost = all_gather_cost,
                             .backward = all_gather_backward,
                             .run = all_gather_run};

/* ---- all_to_all: block k of rank r becomes block r of rank k; blocks are equal, or of rows that are counted ---- */

static int64_t rows_sum(const int64_t *rows, int n) {
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += rows[i];
    return sum;
}

static bool all_to_all_shape(tl_call *c) {
    const tl_tensor *x = c->input[0];
    const struct attr_comm *a = c->attr;
    if (a->send) {
        int64_t shape[TL_MAX_RANK];
        memcpy(shape, x->shape, (size_t)x->rank * sizeof *shape);
        if (rows_sum(a->send, a->comm->size) != shape[0])
            return call_fail(c, "%lld rows are to be sent, and there are %lld",
                             (long long)rows_sum(a->send, a->comm->size), (long long)shape[0]);
        shape[0] = rows_sum(a->receive, a->comm->size);
        return collective_check(c) && call_output(c, 0, x->dtype, x->rank, shape);
    }
    if (x->shape[0] % comm_of(c)->size)
        return call_fail_need(c, "the first axis cannot be divided among the ranks", "a multiple of %d",
                              comm_of(c)->size);
    return collective_check(c) && call_output_like(c, 0, 0);
}
static void all_to_all_cost(const tl_call *c, struct cost *cost) {
    const struct attr_comm *a = c->attr;
    count n = (count)a->comm->size;
    count sent = (n - 1) * (tl_bytes(c->input[0]) / n);
    if (a->send) sent = (count)(c->input[0]->shape[0] - a->send[a->comm->rank]) * row_bytes(c->input[0]);
    collective_cost(c, cost, sent);
}
static struct route all_to_all_route(const tl_call *c, const tl_comm *comm, int peer, size_t in, size_t out) {
    const struct attr_comm *a = c->attr;
    (void)out;
    if (a->send) {
        const size_t row = row_bytes(c->input[0]);
        return (struct route){(size_t)rows_sum(a->send, peer) * row, (size_t)a->send[peer] * row,
                              (size_t)rows_sum(a->receive, peer) * row, (size_t)a->receive[peer] * row};
    }
    size_t block = in / (size_t)comm->size;
    return (struct route){(size_t)peer * block, block, (size_t)peer * block, block};
}
static bool all_to_all_run(const tl_call *c, char *error) { return collective_run(c, all_to_all_route, error); }
static void all_to_all_backward(tl_gradient *g) {
    g->result[0] = tl_all_to_all(g->grad[0], ((const struct attr_comm *)g->node->attr)->comm);
}
const tl_op op_all_to_all = {RECORD(TRANSFER, all_to_all, 1),
                             .shapes = "x (n d,...) of each of n ranks -> (n d,...)",
                             .dtypes = "any",
                             .flops = "0",
                             .shape = all_to_all_shape,
                             .cost = all_to_all_cost,
                             .backward = all_to_all_backward,
                             .run = all_to_all_run};

/* ---- broadcast: x of the root ---- */

static bool broadcast_shape(tl_call *c) { return collective_check(c) && call_output_like(c, 0, 0); }
static void broadcast_cost(const tl_call *c, struct cost *cost) {
    const struct attr_comm *a = c->attr;
    collective_cost(c, cost, a->comm->rank == a->root ? (count)(a->comm->size - 1) * tl_bytes(c->input[0]) : 0);
}
static struct route broadcast_route(const tl_call *c, const tl_comm *comm, int peer, size_t in, size_t out) {
    int root = ((const struct attr_comm *)c->attr)->root;
    return (struct route){0, comm->rank == root ? in : 0, 0, peer == root ? out : 0};
}
static bool broadcast_run(const tl_call *c, char *error) { return collective_run(c, broadcast_route, error); }
const tl_op op_broadcast = {RECORD(TRANSFER, broadcast, 1),
                            .shapes = "x (...) -> (...) of the root",
                            .dtypes = "any",
                            .flops = "0",
                            .shape = broadcast_shape,
                            .cost = broadcast_cost,
                            .run = broadcast_run};

/* ---- send, recv, send_recv: between two ranks ---- */

static bool pair_check(tl_call *c) {
    const struct attr_comm *a = c->attr;
    int given[] = {a->to, a->from}, n = a->comm->size, me = a->comm->rank;
    for (int i = 0; i < 2; i++)
        if (given[i] < -1 || given[i] >= n) return call_fail_need(c, "there is no rank %d", "0 to %d", given[i], n - 1);
    if (me >= 0 && (a->to == me) != (a->from == me))
        return call_fail_need(c, "rank %d is this process", "another rank", me);
    return collective_check(c);
}
static count sent_whole(const tl_call *c) {
    const struct attr_comm *a = c->attr;
    return c->n_inputs && a->to != a->comm->rank ? tl_bytes(c->input[0]) : 0;
}
static void pair_cost(const tl_call *c, struct cost *cost) { collective_cost(c, cost, sent_whole(c)); }
static struct route pair_route(const tl_call *c, const tl_comm *comm, int peer, size_t in, size_t out) {
    const struct attr_comm *a = c->attr;
    (void)comm;
    return (struct route){0, peer == a->to ? in : 0, 0, peer == a->from ? out : 0};
}
static bool pair_run(const tl_call *c, char *error) { return collective_run(c, pair_route, error); }

const tl_op op_send = {RECORD(TRANSFER, send, 0),
                       .shapes = "x (...) -> nothing",
                       .dtypes = "any",
                       .flops = "0",
                       .shape = pair_check,
                       .cost = pair_cost,
                       .run = pair_run};

const tl_op op_recv = {RECORD(TRANSFER, recv, 1),
                       .shapes = "( ) -> (...) of the sender",
                       .dtypes = "any",
                       .flops = "0",
                       .shape = pair_check,
                       .cost = pair_cost,
                       .run = pair_run};

static bool send_recv_shape(tl_call *c) { return pair_check(c) && call_output_like(c, 0, 0); }
/* y of rank `to` is x of this one. */
static void send_recv_backward(tl_gradient *g) {
    const struct attr_comm *a = g->node->attr;
    g->result[0] = tl_send_recv(g->grad[0], a->from, a->to, a->comm);
}
const tl_op op_send_recv = {RECORD(TRANSFER, send_recv, 1),
                            .shapes = "x (...) -> (...) of the sender",
                            .dtypes = "any",
                            .flops = "0",
                            .shape = send_recv_shape,
                            .cost = pair_cost,
                            .backward = send_recv_backward,
                            .run = pair_run};

/* ---- Calls ---- */

static bool has_comm(const tl_op *op, const tl_comm *comm) {
    return comm || error_set(TL_ERROR_USE, "%s: got NULL instead of a group of processes", op->name);
}

static tl_tensor *collective(const tl_op *op, tl_tensor *x, struct attr_comm a) {
    if (!tensor_check(x, op->name) || !has_comm(op, a.comm)) return NULL;
    x = tl_contiguous(x);
    return x ? op_apply1(op, x, ATTR(a)) : NULL;
}

/* Of rows; a scalar is one. */
static tl_tensor *rows_collective(const tl_op *op, tl_tensor *x, tl_comm *comm) {
    if (x && tensor_check(x, op->name) && x->rank == 0 && !(x = tl_reshape(x, TL_SHAPE(1)))) return NULL;
    return collective(op, x, (struct attr_comm){.comm = comm});
}

tl_tensor *tl_all_gather(tl_tensor *x, tl_comm *comm) { return rows_collective(&op_all_gather, x, comm); }
tl_tensor *tl_all_to_all(tl_tensor *x, tl_comm *comm) { return rows_collective(&op_all_to_all, x, comm); }

tl_tensor *all_to_all_rows(tl_tensor *x, const int64_t *send, const int64_t *receive, tl_comm *comm) {
    bool mode = tl_set_grad_mode(false); /* the counts may not live as long as a graph does */
    tl_tensor *y = collective(&op_all_to_all, x, (struct attr_comm){.comm = comm, .send = send, .receive = receive});
    tl_set_grad_mode(mode);
    return y;
}

tl_tensor *tl_broadcast(tl_tensor *x, int root, tl_comm *comm) {
    if (comm && (root < 0 || root >= comm->size)) {
        error_set(TL_ERROR_USE, "broadcast: root %d (need 0 to %d)", root, comm->size - 1);
        return NULL;
    }
    return collective(&op_broadcast, x, (struct attr_comm){.comm = comm, .root = root});
}

bool tl_send(tl_tensor *x, int to, tl_comm *comm) {
    bool mode = tl_set_grad_mode(false);
    tl_scope scope = tl_scope_begin(); /* of a copy that is dense */
    bool ok = scope.depth && collective(&op_send, x, (struct attr_comm){.comm = comm, .to = to, .from = -1});
    ok = (!scope.depth || tl_scope_end(scope)) && ok;
    tl_set_grad_mode(mode);
    return ok;
}

tl_tensor *tl_recv(int rank, const int64_t *shape, tl_dtype dtype, tl_device *device, int from, tl_comm *comm) {
    struct attr_comm a = {.comm = comm, .to = -1, .from = from};
    return has_comm(&op_recv, comm) ? op_create(&op_recv, rank, shape, dtype, device, ATTR(a)) : NULL;
}

tl_tensor *tl_send_recv(tl_tensor *x, int to, int from, tl_comm *comm) {
    return collective(&op_send_recv, x, (struct attr_comm){.comm = comm, .to = to, .from = from});
}

enum { FEW_PARTS = 4 }; /* that are added one by one on meta too */

/* The parts of all ranks lie behind each other. They are added one by one, since tl_sum may take another order on each
 * device and for each length. Narrow floats are summed in f32 and rounded once. */
static tl_tensor *parts_add(tl_tensor *sum, tl_tensor *x, int64_t rows, int k) {
    tl_tensor *part = tl_slice(x, 0, k * rows, (k + 1) * rows, 1);
    return part ? tl_add_(sum, part) : NULL;
}

/* On meta all additions cost the same and allocate nothing: one is done, and billed as often as there are. */
static tl_tensor *parts_bill(tl_tensor *sum, tl_tensor *x, int64_t rows, int n) {
    tl_ledger *one = tl_ledger_begin("part");
    if (!one) return NULL;
    sum = parts_add(sum, x, rows, 1);
    bool ok = tl_ledger_end(one) && sum && ledger_repeat(one, (uint64_t)(n - 2));
    tl_ledger_free(one);
    return ok ? sum : NULL;
}

static tl_tensor *parts_sum(tl_tensor *x, int n) {
    int64_t rows = x->shape[0] / n;
    bool is_narrow = dtype_is_float(x->dtype) && dtype_accumulate(x->dtype) != x->dtype;
    tl_tensor *first = tl_slice(x, 0, 0, rows, 1);
    tl_tensor *sum = !first ? NULL : is_narrow ? tl_cast(first, dtype_accumulate(x->dtype)) : tl_clone(first);
    bool is_billed = n > FEW_PARTS && !device_has_data(x->storage->device) && !allocations_are_on;
    if (is_billed && sum) sum = parts_bill(sum, x, rows, n);
    for (int k = 1; !is_billed && sum && k < n; k++) sum = parts_add(sum, x, rows, k);
    return sum && is_narrow ? tl_cast(sum, x->dtype) : sum;
}

tl_tensor *tl_reduce_scatter(tl_tensor *x, tl_comm *comm) {
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    const char *outer = called;
    if (!called) called = "reduce_scatter";
    tl_tensor *parts = tl_all_to_all(x, comm);
    called = outer;
    return tl_scope_return(scope, parts ? parts_sum(parts, comm->size) : NULL);
}

/* ---- Calls in two parts ---- */

static struct collective *parts_new(bool is_beside) {
    struct collective *c = memory_new(sizeof *c);
    if (!c) return error_memory(sizeof *c, "a collective"), NULL;
    *c = (struct collective){.is_beside = is_beside};
    return c;
}

static struct collective *parts_keep(struct collective *c, tl_tensor *input, tl_tensor *result) {
    if (!result) return memory_free(c), NULL;
    c->input = tl_keep(input);
    c->result = tl_keep(result);
    return c;
}

struct collective *all_gather_begin(tl_tensor *x, tl_comm *comm, bool is_beside) {
    struct collective *c = parts_new(is_beside);
    if (!(x = tl_contiguous(x)) || !c) return memory_free(c), NULL;
    return parts_keep(c, x, collective(&op_all_gather, x, (struct attr_comm){.comm = comm, .parts = c}));
}

struct collective *all_gather_begin_(tl_tensor *x, tl_comm *comm, bool is_beside) {
    struct collective *c = parts_new(is_beside);
    struct attr_comm a = {.comm = comm, .parts = c};
    return c ? parts_keep(c, x, op_apply_in_place(&op_all_gather, &x, 1, ATTR(a))) : NULL;
}

struct collective *reduce_scatter_begin(tl_tensor *x, tl_comm *comm, bool is_beside) {
    struct collective *c = parts_new(is_beside);
    if (!(x = tl_contiguous(x)) || !c) return memory_free(c), NULL;
    called = "reduce_scatter";
    c = parts_keep(c, x, collective(&op_all_to_all, x, (struct attr_comm){.comm = comm, .parts = c}));
    called = NULL;
    return c;
}

static bool parts_end(struct collective *c) {
    char error[COMM_ERROR] = "";
    if (!c->comm || !c->is_beside) return true; /* on meta, or over */
    watch_wait(c->comm, &c->call);
    bool ok = run_end(c, error) || error_set(TL_ERROR_DEVICE, "%s: %s", c->call.op, error);
    watch_leave(c->comm);
    run_free(c);
    return ok;
}

tl_tensor *all_gather_end(struct collective *c) {
    bool ok = parts_end(c);
    tl_drop(c->input);
    tl_tensor *result = scope_adopt(c->result);
    memory_free(c);
    return ok ? result : NULL;
}

tl_tensor *reduce_scatter_end(struct collective *c, tl_comm *comm) {
    bool ok = parts_end(c);
    tl_drop(c->input);
    tl_tensor *sum = ok ? parts_sum(c->result, comm->size) : NULL;
    tl_drop(c->result);
    memory_free(c);
    return sum;
}

void collective_abandon(struct collective *c) {
    char error[COMM_ERROR] = "";
    struct link_seconds done;
    bool is_over = !c->exchange || comm_abandon(c->exchange);
    if (c->begun) c->device->functions->link->end(c->device, c->link, c->begun, &done, error);
    if (is_over) {
        if (c->is_beside) run_free(c);
        tl_drop(c->input);
        tl_drop(c->result);
    }
    memory_free(c);
}

/* As a vector whose length is a multiple of n. */
static tl_tensor *padded_vector(tl_tensor *x, int64_t n) {
    tl_tensor *flat = tl_reshape(x, TL_SHAPE(x->numel));
    int64_t none = 0, more = (n - x->numel % n) % n;
    return flat && more ? tl_pad(flat, &none, &more, TL_PAD_CONSTANT, 0) : flat;
}

tl_tensor *tl_all_reduce(tl_tensor *x, tl_comm *comm) {
    if (!tensor_check(x, "all_reduce")) return NULL;
    if (!comm) return error_set(TL_ERROR_USE, "all_reduce: got NULL instead of a group of processes"), NULL;
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    called = "all_reduce";
    tl_tensor *vector = padded_vector(x, comm->size);
    tl_tensor *part = vector ? tl_reduce_scatter(vector, comm) : NULL;
    tl_tensor *whole = part ? tl_all_gather(part, comm) : NULL;
    called = NULL;
    if (whole && whole->numel != x->numel) whole = tl_slice(whole, 0, 0, x->numel, 1);
    return tl_scope_return(scope, whole ? tl_reshape(whole, x->rank, x->shape) : NULL);
}

tl_tensor *tl_all_reduce_(tl_tensor *x, tl_comm *comm) {
    tl_scope scope = tl_scope_begin();
    if (!scope.depth) return NULL;
    tl_tensor *sum = tl_all_reduce(x, comm);
    bool ok = sum && tl_copy_(x, sum);
    return tl_scope_end(scope) && ok ? x : NULL;
}

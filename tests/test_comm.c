/* test_comm.c: groups of processes. Alone, this program starts itself under mpirun with 2, 3 and 4 processes; under a
 * launcher it is one of them, and makes one check. */
#include "support/check.h"
#include "support/ranks.h"

#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/comm.h"
#include "ops/collective.h"

enum { TEXT = 1000 };

static tl_comm *world(void) {
    tl_comm *comm = tl_comm_world();
    assert_non_null(comm);
    return comm;
}

/* ---- Checks that every rank makes ---- */

/* The cpu, or what TALLY_TEST_DEVICE names. */
static tl_device *device(void) {
    const char *name = getenv("TALLY_TEST_DEVICE");
    tl_device *found = name ? tl_device_find(name) : check_cpu();
    assert_non_null(found);
    return found;
}

/* Element i of rank r; sums of these are exact in every float. */
static float value(int rank, int64_t i) { return (float)((rank + 1) * 3 + i % 7); }

static tl_tensor *filled(int64_t rows, int64_t columns, int rank) {
    float *data = malloc((size_t)(rows * columns + 1) * sizeof *data);
    for (int64_t i = 0; i < rows * columns; i++) data[i] = value(rank, i);
    tl_tensor *x = tl_from_data(data, TL_SHAPE(rows, columns), TL_F32, device());
    free(data);
    return x;
}

/* The values of a tensor, on the host. */
static const float *values(tl_tensor *x) { return tl_data(tl_to(x, check_cpu())); }

static void check(tl_tensor *x, int64_t i, double expected) { assert_float_equal(values(x)[i], expected, 0); }

static void ranks_are_numbered(void) {
    tl_comm *comm = world();
    static const char *const names[][2] = {
        {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, {"PMI_SIZE", "PMI_RANK"}, {"WORLD_SIZE", "RANK"}};
    int by = 0;
    while (!getenv(names[by][0])) by++;
    assert_int_equal(tl_comm_size(comm), atoi(getenv(names[by][0])));
    assert_int_equal(tl_comm_rank(comm), atoi(getenv(names[by][1])));
    for (int i = 0; i < 100; i++) assert_true(tl_comm_barrier(comm));
}

static void sums_are_everybodys(void) {
    tl_comm *comm = world();
    int n = comm->size;
    const int64_t columns[] = {1, 5, 12, 4099};
    for (int k = 0; k < 4; k++) {
        tl_tensor *x = filled(3, columns[k], comm->rank), *sum = tl_all_reduce(x, comm);
        assert_non_null(sum);
        const float *found = values(sum);
        for (int64_t i = 0; i < 3 * columns[k]; i++) {
            float expected = 0;
            for (int r = 0; r < n; r++) expected += value(r, i);
            assert_float_equal(found[i], expected, 0);
        }
        assert_ptr_equal(tl_all_reduce_(x, comm), x);
        assert_memory_equal(values(x), found, (size_t)(3 * columns[k]) * sizeof *found);
    }
}

/* Terms of very different size: any other order gives other bits. */
static void sums_are_in_the_order_of_ranks(void) {
    static const float terms[] = {1e8f, 1.0f, -1e8f, 0.37f};
    tl_comm *comm = world();
    float sum = 0;
    for (int r = 0; r < comm->size; r++) sum += terms[r];
    for (int64_t length = 1; length < 40; length += 7) {
        tl_tensor *x = tl_all_reduce(tl_full(TL_SHAPE(length), terms[comm->rank], TL_F32, device()), comm);
        for (int64_t i = 0; i < length; i++) check(x, i, sum);
    }
}

static void rows_are_gathered_scattered_and_exchanged(void) {
    tl_comm *comm = world();
    int n = comm->size, me = comm->rank;
    tl_tensor *all = tl_all_gather(filled(2, 3, me), comm);
    assert_int_equal(tl_size(all, 0), 2 * n);
    for (int r = 0; r < n; r++)
        for (int64_t i = 0; i < 6; i++) check(all, r * 6 + i, value(r, i));
    tl_tensor *part = tl_reduce_scatter(filled(2 * n, 3, me), comm);
    assert_int_equal(tl_size(part, 0), 2);
    for (int64_t i = 0; i < 6; i++) {
        float expected = 0;
        for (int r = 0; r < n; r++) expected += value(r, me * 6 + i);
        check(part, i, expected);
    }
    tl_tensor *turned = tl_all_to_all(filled(2 * n, 3, me), comm);
    for (int r = 0; r < n; r++)
        for (int64_t i = 0; i < 6; i++) check(turned, r * 6 + i, value(r, me * 6 + i));
    for (int root = 0; root < n; root++) {
        tl_tensor *x = tl_broadcast(filled(4, 5, me), root, comm);
        for (int64_t i = 0; i < 20; i++) check(x, i, value(root, i));
    }
}

/* The loss is the sum over ranks of w . gathered, with w of each rank different. */
static void gradients_come_back(void) {
    tl_comm *comm = world();
    int n = comm->size, me = comm->rank;
    tl_tensor *x = tl_requires_grad(filled(2, 3, me), true);
    tl_tensor *loss = tl_sum(tl_mul(tl_all_gather(x, comm), filled(2 * n, 3, me)), NULL, 0, false);
    assert_true(tl_backward(loss, NULL, 0));
    for (int64_t i = 0; i < 6; i++) {
        float expected = 0;
        for (int r = 0; r < n; r++) expected += value(r, me * 6 + i);
        check(tl_grad_of(x), i, expected);
    }
    tl_zero_grad(x, false);
}

static void groups_can_be_split(void) {
    tl_comm *comm = world();
    tl_comm *half = tl_comm_split(comm, comm->rank % 2, -comm->rank);
    assert_non_null(half);
    int size = (comm->size + (comm->rank % 2 == 0)) / 2;
    assert_int_equal(half->size, size);
    assert_int_equal(half->rank, size - 1 - comm->rank / 2);
    tl_tensor *sum = tl_all_reduce(tl_full(TL_SHAPE(5), comm->rank, TL_F32, device()), half);
    float expected = 0;
    for (int r = comm->rank % 2; r < comm->size; r += 2) expected += (float)r;
    check(sum, 4, expected);
    tl_comm_free(half);
}

/* The ranks of a list, in its order; those that are not in it call too. */
static void groups_can_be_listed(void) {
    tl_comm *comm = world();
    int n = comm->size, ranks[4] = {n - 1, 0}, members = n < 2 ? 1 : 2, me = comm->rank;
    tl_comm *ends = tl_comm_group(comm, ranks, members);
    assert_non_null(ends);
    assert_int_equal(ends->size, members);
    assert_int_equal(ends->rank, me == ranks[0] ? 0 : me == 0 ? 1 : -1);
    if (ends->rank >= 0) {
        tl_tensor *all = tl_all_gather(tl_full(TL_SHAPE(1), me, TL_F32, device()), ends);
        for (int i = 0; i < members; i++) check(all, i, ranks[i]);
        int one = members - 1; /* a group of a group: its own ranks are listed */
        tl_comm *last = tl_comm_group(ends, &one, 1);
        assert_int_equal(comm_world_rank(last, 0), ranks[one]);
        assert_int_equal(last->rank, ends->rank == one ? 0 : -1);
        tl_comm_free(last);
    } else {
        expect_refused(tl_all_gather(filled(1, 1, 0), ends), "all_gather: this process is none of the 2 of the group");
        expect_refused(tl_comm_barrier(ends), "comm_barrier: this process is none of the 2 of the group");
    }
    tl_comm_free(ends);
}

/* They are all on this machine. */
static void neighbours_are_known(void) {
    tl_comm *comm = world();
    assert_int_equal(tl_comm_local_rank(comm), comm->rank);
    assert_int_equal(tl_comm_local_size(comm), comm->size);
    for (int r = 0; r < comm->size; r++) assert_int_equal(tl_comm_host(comm, r), 0);
    assert_int_equal(tl_comm_host(comm, comm->size), -1);
}

/* A token goes round by send and recv, and a ring turns in both directions. */
static void tensors_go_from_rank_to_rank(void) {
    tl_comm *comm = world();
    int n = comm->size, me = comm->rank, next = (me + 1) % n, before = (me + n - 1) % n;
    if (n > 1) {
        tl_tensor *token = me ? tl_recv(TL_SHAPE(2, 3), TL_F32, device(), before, comm) : filled(2, 3, 0);
        if (me) token = tl_add(token, tl_full(0, NULL, 1, TL_F32, device()));
        assert_true(tl_send(tl_requires_grad(token, true), next, comm));
        if (!me) token = tl_recv(TL_SHAPE(2, 3), TL_F32, device(), before, comm);
        for (int64_t i = 0; i < 6; i++) check(token, i, value(0, i) + (float)(me ? me : n - 1));
        assert_true(tl_send(tl_transpose(filled(3, 2, me), 0, 1), next, comm)); /* not dense; sent eagerly */
        check(tl_recv(TL_SHAPE(2, 3), TL_F32, device(), before, comm), 1, value(before, 2));
        expect_refused(tl_send(token, me, comm), "is this process");
        expect_refused(tl_recv(TL_SHAPE(2), TL_F32, device(), n, comm), "recv: there is no rank");
    }
    tl_tensor *x = tl_requires_grad(filled(300, 500, me), true), *y = tl_send_recv(x, next, before, comm);
    for (int64_t i = 0; i < 150000; i += 977) check(y, i, value(before, i));
    assert_true(tl_backward(tl_sum(tl_mul(y, filled(300, 500, me)), NULL, 0, false), NULL, 0));
    for (int64_t i = 0; i < 150000; i += 977) check(tl_grad_of(x), i, value(next, i));
    tl_zero_grad(x, false);
}

/* What one process says that each rank will cost is what it cost. */
static tl_ledger *everything(tl_comm *comm, tl_device *on) {
    tl_scope scope = tl_scope_begin();
    tl_tensor *x = tl_zeros(TL_SHAPE(7, 13), TL_F32, on);
    tl_tensor *rows = tl_zeros(TL_SHAPE(6 * comm->size, 2), TL_BF16, on);
    tl_requires_grad(x, true);
    tl_ledger *ledger = tl_ledger_begin("collectives");
    tl_backward(tl_sum(tl_all_reduce(x, comm), NULL, 0, false), NULL, 0);
    tl_all_gather(tl_reduce_scatter(rows, comm), comm);
    tl_broadcast(rows, comm->size - 1, comm);
    int n = comm->size, me = comm->rank, last = n - 1, ends[] = {0, last};
    if (n > 1 && me == 0) tl_send(rows, last, comm);
    if (n > 1 && me == last) tl_recv(TL_SHAPE(6 * n, 2), TL_BF16, on, 0, comm);
    tl_send_recv(x, (me + 1) % n, (me + n - 1) % n, comm);
    tl_comm *pair = tl_comm_group(comm, ends, n > 1 ? 2 : 1);
    if (pair->rank >= 0) tl_all_gather(rows, pair);
    tl_comm_free(pair);
    tl_ledger_end(ledger);
    tl_zero_grad(x, false);
    tl_scope_end(scope);
    return ledger;
}

static void receipts_are_the_price(void) {
    tl_comm *comm = world(), *price = tl_comm_price(comm->rank, comm->size);
    char name[64];
    snprintf(name, sizeof name, "meta:%s", device()->target->name);
    tl_device *meta = tl_device_find(name);
    tl_ledger *paid = everything(comm, device()), *priced = everything(price, meta);
    char *a = tl_ledger_json(priced, meta), *b = tl_ledger_json(paid, device()), *report = NULL;
    int differences = tl_ledger_diff(a, b, &report);
    if (differences) fprintf(stderr, "%s", report ? report : tl_error_message());
    assert_int_equal(differences, 0);
    int64_t n = comm->size, vector = (91 + n - 1) / n * 4, bf16 = 24;
    int64_t sent = (n - 1) * (4 * vector + 2 * bf16 + (comm->rank == n - 1 ? n * bf16 : 0));
    if (n > 1) sent += 91 * 4; /* the ring; then the two ends, of which the first sends once more */
    if (n > 1 && (comm->rank == 0 || comm->rank == n - 1)) sent += n * bf16 * (comm->rank == 0 ? 2 : 1);
    assert_int_equal(tl_ledger_sent_bytes(paid).low, sent);
    free(a), free(b), free(report);
    tl_ledger_free(paid), tl_ledger_free(priced);
    tl_comm_free(price);
}

static void long_messages_arrive(void) {
    tl_comm *comm = world();
    int64_t n = (int64_t)9 << 20; /* bytes, beyond what is sent eagerly */
    tl_tensor *all = tl_all_gather(tl_full(TL_SHAPE(n), comm->rank + 1, TL_U8, device()), comm);
    for (int r = 0; r < comm->size; r++) {
        const unsigned char *rows = (const unsigned char *)values(all) + r * n;
        assert_int_equal(rows[0], r + 1);
        assert_int_equal(rows[n - 1], r + 1);
    }
}

/* Two that are under way at once, while other calls are made, give the bits of whole calls. */
static void calls_in_two_parts_give_the_same(void) {
    tl_comm *comm = world();
    int n = comm->size, me = comm->rank;
    for (int is_beside = 0; is_beside < 2; is_beside++) {
        tl_tensor *x = filled(4096 * n, 3, me), *rows = filled(5, 3, me), *place = filled(5 * n, 3, 7);
        assert_non_null(tl_copy_(tl_slice(place, 0, 5 * me, 5 * me + 5, 1), rows));
        struct collective *sum = reduce_scatter_begin(x, comm, is_beside);
        struct collective *all = all_gather_begin(rows, comm, is_beside);
        struct collective *in_place = all_gather_begin_(place, comm, is_beside);
        assert_true(sum && all && in_place);
        tl_tensor *between = tl_all_reduce(rows, comm);
        for (int64_t i = 0; i < 15; i++) check(between, i, values(tl_all_reduce(rows, comm))[i]);
        tl_tensor *gathered = all_gather_end(all);
        assert_memory_equal(values(gathered), values(tl_all_gather(rows, comm)), tl_bytes(gathered));
        assert_ptr_equal(all_gather_end(in_place), place);
        assert_memory_equal(values(place), values(gathered), tl_bytes(gathered));
        tl_tensor *part = reduce_scatter_end(sum, comm);
        assert_memory_equal(values(part), values(tl_reduce_scatter(x, comm)), tl_bytes(part));
    }
}

/* Nobody calls MPI while this waits; a message of this size needs answers from the other side. */
static void messages_move_by_themselves(void) {
    tl_comm *comm = world();
    size_t bytes = (size_t)9 << 20;
    char error[COMM_ERROR] = "", *out = calloc(1, bytes), *in = calloc(1, bytes);
    int n = comm->size;
    const struct message both[] = {{(comm->rank + 1) % n, true, out, bytes},
                                   {(comm->rank + n - 1) % n, false, in, bytes}};
    memset(out, comm->rank + 1, bytes);
    struct exchange *x = comm_begin(comm, both, n > 1 ? 2 : 0, error);
    assert_non_null(x);
    for (int i = 0; i < 6000 && !comm_is_done(x); i++) usleep(10000);
    assert_true(comm_is_done(x));
    assert_true(n == 1 || in[bytes - 1] == (comm->rank + n - 1) % n + 1);
    assert_true(comm_end(x, error));
    free(out), free(in);
}

static int rank_run(void) {
    world(); /* says what is wrong, and aborts */
    tl_set_error_policy(TL_RETURN);
    static void (*const checks[])(void) = {ranks_are_numbered,
                                           sums_are_everybodys,
                                           sums_are_in_the_order_of_ranks,
                                           rows_are_gathered_scattered_and_exchanged,
                                           gradients_come_back,
                                           groups_can_be_split,
                                           groups_can_be_listed,
                                           neighbours_are_known,
                                           receipts_are_the_price,
                                           tensors_go_from_rank_to_rank,
                                           long_messages_arrive,
                                           calls_in_two_parts_give_the_same,
                                           messages_move_by_themselves};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        tl_scope scope = tl_scope_begin();
        checks[i]();
        tl_scope_end(scope);
    }
    expect_ok();
    return 0;
}

/* ---- Ranks that fail: the last rank, in the middle of what all do ---- */

static void stay(void) {
    for (volatile int i = 0;; i++) {
    }
}

/* Another process stops this one for 6 s, half a second from now: as Ctrl-Z does, or a laptop that sleeps. */
static void pause_soon(void) {
    pid_t me = getpid();
    if (fork()) return;
    usleep(500000), kill(me, SIGSTOP);
    sleep(6), kill(me, SIGCONT);
    _exit(0);
}

static int fault_run(const char *fault) {
    tl_comm *comm = world();
    tl_set_error_policy(TL_RETURN);
    bool is_last = comm->rank == comm->size - 1;
    tl_tensor *x = tl_ones(TL_SHAPE(12), TL_F32, device());
    for (int step = 0;; step++) {
        tl_comm_set_step(step);
        tl_scope scope = tl_scope_begin();
        if (step == 5 && !strcmp(fault, "pause")) {
            pause_soon(); /* all ranks alike; the others wait for the last one */
            for (double until = now_s() + 8; is_last && now_s() < until;) usleep(10000);
        }
        if (step == 8 && !strcmp(fault, "pause")) return 0;
        if (is_last && step == 5) {
            if (!strcmp(fault, "kill")) raise(SIGKILL);
            if (!strcmp(fault, "stop")) raise(SIGSTOP);
            if (!strcmp(fault, "exit")) exit(3);
            if (!strcmp(fault, "end")) exit(0);
            if (!strcmp(fault, "abort")) abort();
            if (!strcmp(fault, "loop")) stay();
            if (!strcmp(fault, "other")) tl_all_gather(x, comm);
            if (!strcmp(fault, "recv")) tl_recv(TL_SHAPE(13), TL_F32, device(), 0, comm);
        }
        if (comm->rank == 0 && step == 5 && !strcmp(fault, "recv")) tl_send(x, comm->size - 1, comm);
        if (!(is_last && step == 5 && !strcmp(fault, "skip"))) tl_all_reduce(x, comm);
        tl_broadcast(tl_ones(TL_SHAPE(step % 3 + 7), TL_BF16, device()), 0, comm);
        tl_scope_end(scope);
    }
}

/* ---- Alone ---- */

static const char *program;

/* Skipped where the launcher is not installed, or cannot start anything. */
static void launch_all(enum launcher launcher) {
    if (!ranks_can_start(launcher, program)) skip();
    for (int n = 1; n <= 4; n++) assert_int_equal(ranks_run(launcher, n, "%s", program), 0);
}

static void several_processes_with_open_mpi(void **state) {
    (void)state;
    launch_all(OPEN_MPI);
}

static void several_processes_with_mpich(void **state) {
    (void)state;
    launch_all(MPICH);
}

/* Every way to fail ends all ranks, with one line that names the rank. Under a real launcher other lines surround it.
 * With the limits of 2 and 3 s that the test sets it takes 10 s; FAULT_SECONDS are those of a busy machine. */
static const struct {
    const char *fault, *says;
} faults[] = {
    {"kill", "rank 2 on [^ ]* is gone: its process was killed, or crashed; last heard "},
    {"abort", "rank 2 on [^ ]* is gone: its process was killed, or crashed; last heard "},
    {"stop", "rank 2 on [^ ]* has not been heard for [2-9] s "},
    {"exit", "rank 2 on [^ ]* ended with exit status 3; last heard at step 5, after broadcast of 8 bf16 among 3"},
    {"end", "rank 2 on [^ ]* has ended, with exit status 0; last heard at step 5, .*; rank 0 on .* waits for it in "
            "all_reduce of 12 "
            "f32 among 3 ranks (call 16)"},
    {"loop", "rank 2 on [^ ]* is stuck: it has made no call for .* s; last heard at step 5, after broadcast of 8 bf16 "
             "among 3 ranks (call 15); rank 0 on .* waits for it in all_reduce of 12 f32 among 3 ranks (call 16)"},
    {"other", "ranks do not make the same calls: rank [01] on [^ ]* called all_reduce of 12 f32 among 3 ranks (call "
              "16), rank 2 on [^ ]* called all_gather of 12 f32 among 3 ranks (call 16)"},
    {"recv", "rank 0 on [^ ]* has waited for [3-9] s in all_reduce of 12 f32 among 3 ranks (call 16), rank 2 on [^ ]* "
             "in recv of 13 f32 from rank 0"},
    {"skip", "ranks do not make the same calls: rank [01] on [^ ]* called all_reduce of 12 f32 among 3 ranks (call "
             "16), rank 2 on [^ ]* called broadcast of 9 bf16 among 3 ranks (call 16)"},
};
enum { N_FAULTS = sizeof faults / sizeof *faults, AT_ONCE = 3, FAULT_SECONDS = 90 };

static FILE *fault_begin(const char *fault) {
    char command[4800];
    snprintf(command, sizeof command, "TALLY_TEST_FAULT=%s %s %s 2>&1", fault, ranks_start(OPEN_MPI, 3, FAULT_SECONDS),
             program);
    return popen(command, "r");
}

/* Reads what all ranks say; the one line of the watch is in `found`. How many there were. */
static int fault_end(FILE *f, char found[TEXT], int *status) {
    char line[TEXT], *end;
    int n = 0;
    while (fgets(line, TEXT, f)) {
        if (strncmp(line, "tally: ", 7) || !(end = strstr(line, "; all ranks end\n"))) continue;
        n++;
        memcpy(found, line, TEXT);
    }
    *status = pclose(f);
    return n;
}

static bool is_like(const char *text, const char *pattern) {
    regex_t regex;
    assert_int_equal(regcomp(&regex, pattern, REG_NOSUB), 0);
    int result = regexec(&regex, text, 0, NULL, 0);
    regfree(&regex);
    return result == 0;
}

static void a_rank_that_fails_ends_all(void **state) {
    (void)state;
    if (!ranks_can_start(OPEN_MPI, program)) skip();
    setenv("TALLY_WATCH", "2", 1);
    setenv("TALLY_TIMEOUT", "3", 1);
    FILE *running[N_FAULTS], *paused = fault_begin("pause");
    char found[TEXT] = "";
    int status;
    for (int i = 0; i < N_FAULTS + AT_ONCE; i++) {
        if (i < N_FAULTS) running[i] = fault_begin(faults[i].fault);
        if (i < AT_ONCE) continue;
        int n = fault_end(running[i - AT_ONCE], found, &status);
        if (!status || n != 1 || !is_like(found, faults[i - AT_ONCE].says))
            fail_msg("%s: status %d, %d lines, not \"%s\": %s", faults[i - AT_ONCE].fault, status, n,
                     faults[i - AT_ONCE].says, found);
    }
    if (fault_end(paused, found, &status) || status) fail_msg("paused: status %d: %s", status, found);
    unsetenv("TALLY_WATCH");
    unsetenv("TALLY_TIMEOUT");
}

static void a_process_alone_is_a_group_of_one(void **state) {
    (void)state;
    tl_comm *comm = world();
    assert_int_equal(tl_comm_size(comm), 1);
    tl_scope scope = tl_scope_begin();
    tl_tensor *x = filled(2, 3, 0);
    assert_true(tl_comm_barrier(comm));
    check(tl_all_reduce(x, comm), 5, value(0, 5));
    check(tl_all_gather(x, comm), 5, value(0, 5));
    check(tl_reduce_scatter(x, comm), 5, value(0, 5));
    tl_comm *part = tl_comm_split(comm, 3, 0);
    assert_int_equal(tl_comm_size(part), 1);
    tl_comm_free(part);
    assert_int_equal(tl_comm_local_rank(comm), 0);
    assert_int_equal(tl_comm_local_size(comm), 1);
    tl_comm_free(comm); /* stays */
    assert_int_equal(tl_comm_size(tl_comm_world()), 1);
    tl_scope_end(scope);
}

static void wrong_use_is_an_error(void **state) {
    (void)state;
    tl_scope scope = tl_scope_begin();
    tl_tensor *x = filled(5, 3, 0), *shape = tl_empty(TL_SHAPE(5, 3), TL_F32, check_meta());
    tl_comm *price = tl_comm_price(1, 3);
    expect_refused(tl_all_gather(x, price), "all_gather: a group for a price has no other processes");
    expect_refused(tl_all_to_all(shape, price), "all_to_all: the first axis cannot be divided among the ranks");
    expect_refused(tl_all_reduce(x, NULL), "all_reduce: got NULL instead of a group of processes");
    expect_refused(tl_comm_price(3, 3), "comm_price: rank 3 of 3 (need 0 to size - 1)");
    expect_refused(tl_broadcast(x, 1, world()), "broadcast: root 1 (need 0 to 0)");
    expect_refused(tl_comm_barrier(price), "comm_barrier: a group for a price has no other processes");
    const int twice[] = {0, 1, 0}, two[] = {2, 1};
    expect_refused(tl_comm_group(price, twice, 3), "comm_group: rank 0 is listed twice");
    expect_refused(tl_comm_group(price, twice, 4), "comm_group: 4 ranks of a group of 3");
    expect_refused(tl_comm_group(world(), two, 1), "comm_group: rank 2 (need 0 to 0)");
    tl_comm *pair = tl_comm_group(price, two, 2);
    assert_int_equal(tl_comm_rank(pair), 1);
    expect_refused(tl_all_gather(x, pair), "all_gather: a group for a price has no other processes");
    tl_comm_free(pair);
    tl_comm_free(price);
    tl_scope_end(scope);
}

/* Starts n processes as torchrun does, without a launcher. Whether all ended with 0 (or, if one is to fail, how). */
static int torchrun(int n, const char *fault) {
    char command[4800];
    snprintf(command, sizeof command,
             "export WORLD_SIZE=%d LOCAL_WORLD_SIZE=%d MASTER_ADDR=localhost MASTER_PORT=%d OMP_NUM_THREADS=1 %s%s; "
             "p=; for r in $(seq %d); do RANK=$((r %% %d)) timeout %d %s & p=\"$p $!\"; done; s=0; "
             "for i in $p; do wait $i || s=$?; done; exit $s",
             n, n, 20000 + (int)(getpid() % 20000), *fault ? "TALLY_TEST_FAULT=" : "", fault, n, n, RANKS_SECONDS,
             program);
    return WEXITSTATUS(system(command));
}

/* MPICH is brought up among them: the same checks, and the watch. Open MPI cannot be, and the words say what can. */
static void torchruns_processes_meet(void **state) {
    (void)state;
    char command[4400];
    snprintf(
        command, sizeof command,
        "TALLY_MPI=openmpi RANK=1 WORLD_SIZE=4 MASTER_ADDR=localhost %s 2>&1 | grep -q 'type `tally launch -n 4 -- "
        "PROGRAM`'",
        program);
    assert_int_equal(system(command), 0);
    snprintf(
        command, sizeof command,
        "RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=0 %s 2>&1 | grep -q 'libtally_mpich\\|MASTER_PORT=0 "
        "(need a rank below'",
        program);
    assert_int_equal(system(command), 0);
    if (!ranks_can_start(MPICH, program)) skip();
    for (int n = 2; n <= 3; n++) assert_int_equal(torchrun(n, ""), 0);
    setenv("TALLY_WATCH", "2", 1);
    assert_int_equal(torchrun(3, "exit"), 7);
    unsetenv("TALLY_WATCH");
}

static void a_plugin_that_is_missing_is_named(void **state) {
    (void)state;
    char command[4400];
    snprintf(command, sizeof command, "TALLY_MPI=nothing %s 2>&1 | grep -q 'libtally_nothing.so is not there'",
             program);
    assert_int_equal(system(command), 0);
}

int main(int argc, char **argv) {
    (void)argc;
    if (getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE") || getenv("TALLY_MPI") || getenv("RANK"))
        return getenv("TALLY_TEST_FAULT") ? fault_run(getenv("TALLY_TEST_FAULT")) : rank_run();
    program = argv[0];
    const struct CMUnitTest tests[] = {
        TEST(a_process_alone_is_a_group_of_one), TEST(wrong_use_is_an_error),
        TEST(torchruns_processes_meet),          TEST(a_plugin_that_is_missing_is_named),
        TEST(several_processes_with_open_mpi),   TEST(several_processes_with_mpich),
        TEST(a_rank_that_fails_ends_all),
    };
    return cmocka_run_group_tests_name("comm", tests, NULL, NULL);
}

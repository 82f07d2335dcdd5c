/* Threads: scopes, errors, modes and paths belong to a thread; devices, pool, ledger and paths are shared and lose
 * nothing; tensors may be handed over; a forked child continues alone. Also run under ThreadSanitizer (make tsan). */
#include "support/check.h"
#include "support/step.h"

#include "base/scratch.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_THREADS = 4 };

/* cmocka's assertions belong to the main thread: workers report by text. */
struct worker {
    pthread_t thread;
    void (*body)(struct worker *);
    int number;
    void *context;
    double result;
    char failure[300];
};
#define WORKER_NEEDS(fact)                                                                                  \
    do                                                                                                      \
        if (!(fact)) {                                                                                      \
            snprintf(w->failure, sizeof w->failure, "line %d: not so: %s (error: %.150s)", __LINE__, #fact, \
                     tl_error_message());                                                                   \
            return;                                                                                         \
        }                                                                                                   \
    while (0)

static void *worker_main(void *w) {
    ((struct worker *)w)->body(w);
    return NULL;
}

static void run_workers(struct worker *workers, int n, void (*body)(struct worker *), void *context) {
    for (int i = 0; i < n; i++) {
        workers[i] = (struct worker){.body = body, .number = i, .context = context};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
    }
    for (int i = 0; i < n; i++) assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    for (int i = 0; i < n; i++)
        if (workers[i].failure[0]) fail_msg("thread %d: %s", i, workers[i].failure);
}

/* ---- State of a thread ------------------------------------------------------------------------------------------- */

static void own_state(struct worker *w) {
    WORKER_NEEDS(tl_error() == TL_OK && !strcmp(tl_path(), ""));
    WORKER_NEEDS(tl_set_grad_mode(w->number % 2) == true);
    WORKER_NEEDS(tl_set_phase((tl_phase)w->number) == TL_FORWARD);
    WORKER_NEEDS(tl_set_default_device(w->number % 2 ? check_meta() : check_cpu()) == check_cpu());
    char name[32];
    snprintf(name, sizeof name, "worker%d", w->number);
    tl_seed((uint64_t)w->number);
    tl_scope scope = tl_scope_enter(name);
    for (int i = 0; i < 200; i++) {
        tl_tensor *x = tl_ones(TL_SHAPE(2, 3), TL_F32, NULL);
        WORKER_NEEDS(tl_matmul(x, x) == NULL && tl_error() == TL_ERROR_USE);
        WORKER_NEEDS(strstr(tl_error_message(), name) == tl_error_message());
        tl_error_clear();
        WORKER_NEEDS(tl_device_of(x) == (w->number % 2 ? check_meta() : check_cpu()));
        WORKER_NEEDS(tl_needs_grad(tl_neg(tl_requires_grad(x, true))) == (w->number % 2));
        WORKER_NEEDS(!strcmp(tl_path(), name) && tl_generator_get().seed == (uint64_t)w->number);
    }
    WORKER_NEEDS(tl_scope_end(scope));
    WORKER_NEEDS(tl_set_phase(TL_FORWARD) == (tl_phase)w->number);
}

static void errors_scopes_modes_and_paths_belong_to_the_thread(void **state) {
    (void)state;
    struct worker workers[N_THREADS];
    tl_tensor *x = tl_ones(TL_SHAPE(2, 3), TL_F32, NULL);
    tl_scope scope = tl_scope_enter("main");
    tl_matmul(x, x);
    run_workers(workers, N_THREADS, own_state, NULL);
    expect_error(TL_ERROR_USE, "main: matmul");
    expect_text(tl_path(), "main");
    expect_true(tl_scope_end(scope));
}

static void forgets(struct worker *w) {
    tl_scope_begin(); /* never closed */
    tl_tensor *x = tl_requires_grad(tl_ones(TL_SHAPE(64), TL_F32, NULL), true);
    WORKER_NEEDS(tl_backward(tl_sum_all(tl_exp(tl_mul(x, x))), NULL, 0));
    w->result = (double)tl_device_memory(check_cpu()).live_bytes;
}

static void what_a_thread_leaves_open_goes_when_it_ends(void **state) {
    (void)state;
    struct worker workers[N_THREADS];
    run_workers(workers, N_THREADS, forgets, NULL);
    expect_true(workers[0].result > 0);
    expect_nothing_live();
}

static void closes_foreign_scope(struct worker *w) {
    tl_scope scope = *(tl_scope *)w->context;
    WORKER_NEEDS(!tl_scope_end(scope) && strstr(tl_error_message(), "this scope is not open"));
    tl_error_clear();
}

static void a_scope_of_another_thread_cannot_be_closed(void **state) {
    (void)state;
    struct worker worker;
    tl_scope scope = tl_scope_begin();
    run_workers(&worker, 1, closes_foreign_scope, &scope);
    expect_true(tl_scope_end(scope));
}

/* ---- Side by side ------------------------------------------------------------------------------------------------ */

static void trains(struct worker *w) {
    tl_device *device = w->context;
    for (int round = 0; round < 3; round++) {
        double loss;
        WORKER_NEEDS(step_train(device, 100 + (uint64_t)w->number, 3, (enum step_checkpoint)round, &loss));
        WORKER_NEEDS(round == 0 || loss == w->result); /* checkpoints give the same bits */
        w->result = loss;
    }
}

static void training_side_by_side_gives_the_results_of_one(void **state) {
    (void)state;
    struct worker workers[N_THREADS];
    double want[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        expect_true(step_train(check_cpu(), 100 + (uint64_t)i, 3, STEP_PLAIN, &want[i]));
    run_workers(workers, N_THREADS, trains, check_cpu());
    for (int i = 0; i < N_THREADS; i++) expect_near(workers[i].result, want[i], 0);
    expect_true(want[0] != want[1]);
    expect_nothing_live();
}

static void pricing_side_by_side_leaves_nothing(void **state) {
    (void)state;
    struct worker workers[N_THREADS];
    run_workers(workers, N_THREADS, trains, check_meta());
    expect_nothing_live();
    expect_equal(tl_device_memory(check_meta()).allocated_bytes, 0);
}

/* ---- Handed over ------------------------------------------------------------------------------------------------- */

struct mailbox {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    tl_tensor *tensor;
    int sent, taken;
};
enum { N_LETTERS = 200 };

static void sends_and_receives(struct worker *w) {
    struct mailbox *box = w->context;
    for (int i = 0; i < N_LETTERS; i++) {
        if (w->number == 0) {
            tl_scope scope = tl_scope_begin();
            tl_tensor *x = tl_keep(tl_transpose(tl_full(TL_SHAPE(2, 3), i, TL_F32, NULL), 0, 1));
            WORKER_NEEDS(tl_scope_end(scope));
            pthread_mutex_lock(&box->lock);
            while (box->tensor) pthread_cond_wait(&box->changed, &box->lock);
            box->tensor = x;
            pthread_cond_signal(&box->changed);
            pthread_mutex_unlock(&box->lock);
        } else {
            pthread_mutex_lock(&box->lock);
            while (!box->tensor) pthread_cond_wait(&box->changed, &box->lock);
            tl_tensor *x = box->tensor;
            box->tensor = NULL;
            pthread_cond_signal(&box->changed);
            pthread_mutex_unlock(&box->lock);
            tl_scope scope = tl_scope_begin();
            w->result += tl_item(tl_sum_all(tl_add_(x, x)));
            tl_drop(x);
            WORKER_NEEDS(tl_scope_end(scope));
        }
    }
}

static void tensors_are_handed_from_thread_to_thread(void **state) {
    (void)state;
    struct worker workers[2];
    struct mailbox box = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    run_workers(workers, 2, sends_and_receives, &box);
    expect_near(workers[1].result, 6 * 2 * (N_LETTERS - 1) * N_LETTERS / 2.0, 0);
    expect_nothing_live();
}

static void makes_graph(struct worker *w) {
    tl_tensor **both = w->context;
    both[0] = tl_keep(tl_requires_grad(tl_full(TL_SHAPE(8), 3, TL_F64, NULL), true));
    both[1] = tl_keep(tl_sum_all(tl_mul(tl_mul(both[0], both[0]), both[0])));
    WORKER_NEEDS(both[1] != NULL);
}
static void walks_graph(struct worker *w) {
    tl_tensor **both = w->context;
    tl_tensor *more = tl_scale(both[1], 2); /* built on by a thread whose clock is behind */
    WORKER_NEEDS(more && tl_backward(more, NULL, 0));
    w->result = tl_at(tl_grad_of(both[0]), (int64_t[]){7});
    tl_drop(both[1]);
}

static void a_graph_made_by_one_thread_is_walked_by_another(void **state) {
    (void)state;
    struct worker worker;
    tl_tensor *both[2];
    run_workers(&worker, 1, makes_graph, both);
    run_workers(&worker, 1, walks_graph, both);
    expect_near(worker.result, 2 * 3 * 9, 0);
    expect_values(tl_grad_of(both[0]), 54, 54, 54, 54, 54, 54, 54, 54);
    tl_drop(both[0]);
    expect_nothing_live();
}

static void reads_shared(struct worker *w) {
    tl_tensor *weights = w->context; /* no gradient, never written: many readers */
    for (int i = 0; i < 100; i++) {
        tl_scope scope = tl_scope_begin();
        tl_tensor *x = tl_full(TL_SHAPE(4, 4), w->number, TL_F32, NULL);
        w->result += tl_item(tl_sum_all(tl_matmul(x, tl_keep(weights))));
        tl_drop(weights);
        WORKER_NEEDS(tl_scope_end(scope));
    }
}

static void many_threads_read_one_tensor(void **state) {
    (void)state;
    struct worker workers[N_THREADS];
    tl_tensor *weights = tl_ones(TL_SHAPE(4, 4), TL_F32, NULL);
    run_workers(workers, N_THREADS, reads_shared, weights);
    for (int i = 0; i < N_THREADS; i++) expect_near(workers[i].result, 100.0 * 64 * i, 0);
}

/* ---- Shared state ------------------------------------------------------------------------------------------------ */

enum { N_CALLS = 2000 };

static void bills(struct worker *w) {
    char name[32];
    snprintf(name, sizeof name, "t%d", w->number % 2);
    tl_scope scope = tl_scope_enter(name);
    tl_tensor *x = tl_ones(TL_SHAPE(8), TL_F32, w->number < 2 ? check_cpu() : check_meta());
    for (int i = 0; i < N_CALLS; i++) {
        tl_scope inner = tl_scope_begin();
        WORKER_NEEDS(tl_neg(x) != NULL);
        WORKER_NEEDS(tl_scope_end(inner));
    }
    WORKER_NEEDS(tl_scope_end(scope));
}

static void the_ledger_loses_nothing(void **state) {
    (void)state;
    struct worker workers[N_THREADS];
    tl_ledger *outer = tl_ledger_begin("outer"), *ledger = tl_ledger_begin("threads");
    run_workers(workers, N_THREADS, bills, NULL);
    tl_ledger_end(ledger);
    tl_ledger_end(outer);
    for (int i = 0; i < 2; i++) {
        tl_totals t = tl_ledger_total(i ? outer : ledger, TL_ALL, "neg");
        expect_equal(t.calls, N_THREADS * N_CALLS);
        expect_count(t.flops, N_THREADS * N_CALLS * 8);
        expect_count(t.bytes_read, N_THREADS * N_CALLS * 32);
    }
    tl_ledger_free(ledger), tl_ledger_free(outer);
    expect_nothing_live();
}

/* One thread has ledgers, the others open devices: each is seen by the ledgers that are open, and by later ones. */
static void opens_or_begins_ledgers(struct worker *w) {
    for (int i = 0; w->number == 0 && i < 200; i++) {
        tl_ledger *ledger = tl_ledger_begin("while devices open");
        WORKER_NEEDS(ledger && tl_ledger_end(ledger));
        tl_ledger_free(ledger);
    }
    for (int i = 0; w->number > 0 && tl_target_name(i); i++) {
        char name[64];
        snprintf(name, sizeof name, "meta:%s", tl_target_name(i));
        WORKER_NEEDS(tl_device_find(name) != NULL);
    }
}

static void ledgers_see_devices_that_open_beside_them(void **state) {
    (void)state;
    struct worker workers[N_THREADS];
    tl_ledger *outer = tl_ledger_begin("outer");
    run_workers(workers, N_THREADS, opens_or_begins_ledgers, NULL);
    for (int i = 0; tl_target_name(i); i++) {
        char name[64];
        snprintf(name, sizeof name, "meta:%s", tl_target_name(i));
        tl_device *device = tl_device_find(name);
        expect_true(tl_zeros(TL_SHAPE(1000 + i), TL_U8, device) != NULL);
        expect_equal(tl_ledger_peak(outer, device, TL_ALL), 1000 + i);
    }
    tl_ledger_end(outer);
    tl_ledger_free(outer);
}

static void takes_and_gives(struct worker *w) {
    uint64_t x = 88172645463325252u + (uint64_t)w->number * 7919;
    tl_tensor *slot[32] = {0};
    for (int i = 0; i < 3000; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        tl_tensor **at = &slot[x % 32];
        tl_scope scope = tl_scope_begin();
        if (*at) {
            const unsigned char *data = tl_data(*at);
            int64_t n = tl_numel(*at);
            WORKER_NEEDS(data[0] == (unsigned char)(w->number + 1) && data[n - 1] == (unsigned char)(w->number + 1));
            tl_drop(*at);
            *at = NULL;
        } else {
            *at = tl_keep(tl_full(TL_SHAPE((int64_t)(1 + x / 32 % 5000)), w->number + 1, TL_U8, NULL));
            tl_set_purpose(*at, (tl_purpose)(x % TL_PURPOSE_COUNT));
            WORKER_NEEDS(*at != NULL);
        }
        if (i % 500 == 0) tl_pool_trim(check_cpu());
        WORKER_NEEDS(tl_scope_end(scope));
    }
    for (int i = 0; i < 32; i++) tl_drop(slot[i]);
}

static void the_pool_serves_all_threads(void **state) {
    (void)state;
    struct worker workers[N_THREADS];
    run_workers(workers, N_THREADS, takes_and_gives, NULL);
    expect_nothing_live();
    expect_equal(tl_device_memory(check_cpu()).allocated_bytes, 0);
}

static void runs_out(struct worker *w) {
    for (int i = 0; i < 50; i++) {
        tl_scope scope = tl_scope_begin();
        tl_tensor *x = tl_empty(TL_SHAPE((int64_t)1 << 57), TL_F32, NULL);
        WORKER_NEEDS(x == NULL && tl_error() == TL_ERROR_MEMORY);
        tl_error_clear();
        WORKER_NEEDS(tl_ones(TL_SHAPE(100), TL_F32, NULL) != NULL);
        WORKER_NEEDS(tl_scope_end(scope));
    }
}

static void out_of_memory_in_several_threads_is_reported_to_each(void **state) {
    (void)state;
    struct worker workers[N_THREADS];
    run_workers(workers, N_THREADS, runs_out, NULL);
}

static void opens(struct worker *w) {
    static const char *names[] = {"cpu", "meta", "meta:h200"};
    tl_device **found = w->context;
    for (int i = 0; i < 3; i++) {
        found[3 * w->number + i] = tl_device_find(names[i]);
        WORKER_NEEDS(found[3 * w->number + i] != NULL);
    }
    for (int i = 0; i < 300; i++) {
        char name[32];
        snprintf(name, sizeof name, "shared%d", i);
        tl_scope scope = tl_scope_enter(name);
        WORKER_NEEDS(!strcmp(tl_path(), name));
        WORKER_NEEDS(tl_scope_end(scope));
    }
}

static void devices_and_paths_are_made_once(void **state) {
    (void)state;
    struct worker workers[N_THREADS];
    tl_device *found[3 * N_THREADS];
    run_workers(workers, N_THREADS, opens, found);
    for (int i = 3; i < 3 * N_THREADS; i++) expect_true(found[i] == found[i % 3]);
}

static double large_product(void) {
    tl_scope scope = tl_scope_begin();
    tl_seed(77);
    tl_tensor *a = tl_normal(TL_SHAPE(300, 300), 0, 1, TL_F32, NULL),
              *b = tl_normal(TL_SHAPE(300, 300), 0, 1, TL_BF16, NULL);
    tl_tensor *y = tl_add(tl_gelu(tl_matmul(a, a)), tl_cast(tl_matmul(b, b), TL_F32));
    double sum = tl_item(tl_sum_all(tl_softmax(tl_scale(y, 0.01), -1))) + tl_item(tl_sum_all(y));
    tl_scope_end(scope);
    return sum;
}

static void results_do_not_depend_on_the_number_of_threads(void **state) {
    (void)state;
    int before = tl_set_threads(1);
    double one = large_product();
    for (int n = 2; n <= 5; n++) {
        expect_equal(tl_set_threads(n), n == 2 ? 1 : n - 1);
        expect_near(large_product(), one, 0);
    }
    tl_set_threads(before);
}

/* ---- Fork -------------------------------------------------------------------------------------------------------- */

static void child_of_fork(int out) {
    double loss[3] = {0};
    bool ok =
        step_train(check_cpu(), 5, 2, STEP_SELECTIVE, &loss[0]) && step_train(check_meta(), 5, 2, STEP_PLAIN, &loss[1]);
    loss[2] = large_product();
    ok = ok && tl_error() == TL_OK && write(out, loss, sizeof loss) == (ssize_t)sizeof loss;
    _exit(ok ? 0 : 1);
}

static void a_forked_child_goes_on_alone_with_the_same_results(void **state) {
    (void)state;
    double want[3] = {0}, got[3] = {0};
    int ends[2], status = -1;
    int before = tl_set_threads(2);
    large_product(); /* the parent has used its kernels' threads */
    expect_true(step_train(check_cpu(), 5, 2, STEP_PLAIN, &want[0]));
    tl_set_threads(1);
    want[2] = large_product();
    tl_set_threads(2);
    large_product();
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) child_of_fork(ends[1]);
    close(ends[1]);
    ssize_t n = 0;
    for (ssize_t k; n < (ssize_t)sizeof got && (k = read(ends[0], (char *)got + n, sizeof got - (size_t)n)) > 0;)
        n += k;
    close(ends[0]);
    waitpid(child, &status, 0);
    expect_true(WIFEXITED(status));
    expect_equal(WEXITSTATUS(status), 0);
    expect_equal(n, sizeof got);
    expect_near(got[0], want[0], 0);
    expect_near(got[2], want[2], 0); /* a child works on one thread */
    tl_set_threads(before);
}

/* ---- Small stacks ------------------------------------------------------------------------------------------------ */

/* The ops that take most scratch: products of every kind, attention and its gradient, norms, reductions over columns,
 * sorting, an optimizer. */
static double much(tl_dtype dtype, int64_t n) {
    tl_scope scope = tl_scope_begin();
    tl_seed(3);
    tl_tensor *a = tl_requires_grad(tl_normal(TL_SHAPE(n, n), 0, 1, dtype, NULL), true);
    tl_tensor *b = tl_normal(TL_SHAPE(n, n), 0, 1, dtype, NULL);
    tl_tensor *small = tl_matmul(tl_reshape(b, TL_SHAPE(n / 8, 8, n)), tl_reshape(a, TL_SHAPE(n / 8, n, 8)));
    tl_tensor *q = tl_reshape(tl_matmul(a, b), TL_SHAPE(1, n, 2, n / 2));
    tl_tensor *x = tl_reshape(tl_attention(q, q, q, TL_CAUSAL, NULL), TL_SHAPE(n, n));
    x = tl_rms_norm(tl_layer_norm(x, NULL, NULL, 1e-5), NULL, 1e-5);
    x = tl_swiglu(tl_log_softmax(x, 1), tl_softmax(tl_transpose(x, 0, 1), -1));
    x = tl_add(tl_sum(x, (int[]){0}, 1, true), tl_logsumexp(x, (int[]){0}, 1, true));
    tl_tensor *loss = tl_add(tl_sum_all(x), tl_sum_all(small));
    double result = NAN;
    if (loss && tl_backward(loss, NULL, 0)) {
        tl_tensor *g = tl_grad_of(a), *m = tl_zeros(TL_SHAPE(n, n), dtype == TL_F64 ? TL_F64 : TL_F32, NULL),
                  *v = tl_clone(m);
        bool mode = tl_set_grad_mode(false);
        const tl_adam_options o = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .decoupled = true, .step = 1};
        tl_adam_(a, g, m, v, NULL, &o);
        result = tl_item(tl_sum_all(tl_cast(tl_norm(a, 3, (int[]){0}, 1, false), TL_F64)));
        tl_set_grad_mode(mode);
    }
    tl_scope_end(scope);
    return result;
}

static const tl_dtype much_dtypes[] = {TL_F32, TL_BF16, TL_F64};
static void much_on_a_small_stack(struct worker *w) {
    const double *want = w->context;
    for (int i = 0; i < 3; i++) WORKER_NEEDS(much(much_dtypes[i], 64) == want[i]);
    WORKER_NEEDS(scratch_peak() > 0 && scratch_peak() < SCRATCH_BYTES);
}

/* 256 KiB, as OMP_STACKSIZE and Python's threading.stack_size may set it; sanitizers need more. */
static void threads_with_small_stacks_run_every_kernel(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip();
#endif
    double want[3];
    struct worker w = {.body = much_on_a_small_stack, .context = want};
    pthread_attr_t small;
    for (int i = 0; i < 3; i++) want[i] = much(much_dtypes[i], 64);
    expect_ok();
    assert_int_equal(pthread_attr_init(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, 256 << 10), 0);
    assert_int_equal(pthread_create(&w.thread, &small, worker_main, &w), 0);
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    pthread_attr_destroy(&small);
    if (w.failure[0]) fail_msg("%s", w.failure);
}

static void without_scratch(struct worker *w) {
    const double *want = w->context;
    atomic_store(&scratch_is_refused, true);
    tl_scope scope = tl_scope_begin();
    tl_tensor *x = tl_ones(TL_SHAPE(3, 3), TL_F32, NULL);
    WORKER_NEEDS(!x && tl_error() == TL_ERROR_MEMORY && strstr(tl_error_message(), "the scratch of a thread"));
    tl_error_clear();
    tl_scope_end(scope);
    atomic_store(&scratch_is_refused, false);
    WORKER_NEEDS(much(TL_F32, 64) == want[0]);
}

/* The op fails if the calling thread has no memory for an arena; helper threads without one do not take part. */
static void an_op_without_scratch_fails_and_a_helper_does_not_help(void **state) {
    (void)state;
    struct worker worker;
    int before = tl_set_threads(1);
    double want = much(TL_F32, 256), least = much(TL_F32, 64);
    tl_set_threads(before);
    run_workers(&worker, 1, without_scratch, &least);
    tl_set_threads(7); /* more than any test before: some of them are new, and get no arena */
    atomic_store(&scratch_is_refused, true);
    double got = much(TL_F32, 256);
    atomic_store(&scratch_is_refused, false);
    tl_set_threads(before);
    expect_near(got, want, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(ledgers_see_devices_that_open_beside_them), /* first: a device opens once */
        TEST(threads_with_small_stacks_run_every_kernel),
        TEST(an_op_without_scratch_fails_and_a_helper_does_not_help),
        TEST(errors_scopes_modes_and_paths_belong_to_the_thread),
        TEST(what_a_thread_leaves_open_goes_when_it_ends),
        TEST(a_scope_of_another_thread_cannot_be_closed),
        TEST(training_side_by_side_gives_the_results_of_one),
        TEST(pricing_side_by_side_leaves_nothing),
        TEST(tensors_are_handed_from_thread_to_thread),
        TEST(a_graph_made_by_one_thread_is_walked_by_another),
        TEST(many_threads_read_one_tensor),
        TEST(the_ledger_loses_nothing),
        TEST(the_pool_serves_all_threads),
        TEST(out_of_memory_in_several_threads_is_reported_to_each),
        TEST(devices_and_paths_are_made_once),
        TEST(results_do_not_depend_on_the_number_of_threads),
        TEST(a_forked_child_goes_on_alone_with_the_same_results),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}

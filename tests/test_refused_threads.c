/* A system that refuses threads: the message gives the reason, which is not memory, and kernels continue with the
 * threads they have. */
#include "support/check.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int n_left = 1 << 30; /* threads that may still be started */
static atomic_int n_asked;

struct thread {
    void *(*body)(void *);
    void *context;
};

static void *thread_main(void *p) {
    struct thread t = *(struct thread *)p;
    free(p);
    void *result = t.body(t.context);
    atomic_fetch_add(&n_left, 1);
    return result;
}

/* Replaces the C library's, for the library and for libgomp. */
__attribute__((visibility("default"))) int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                                                          void *(*body)(void *), void *context) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    atomic_fetch_add(&n_asked, 1);
    if (atomic_fetch_sub(&n_left, 1) <= 0) {
        atomic_fetch_add(&n_left, 1);
        return EAGAIN;
    }
    struct thread *t = malloc(sizeof *t);
    *t = (struct thread){body, context};
    return real(thread, attributes, thread_main, t);
}

static char logged[512];
static void log_keep(const char *line, void *context) {
    (void)context;
    snprintf(logged, sizeof logged, "%s", line);
}

static double sum_of_squares(void) {
    tl_scope scope = tl_scope_begin();
    tl_seed(1);
    tl_tensor *x = tl_normal(TL_SHAPE(512, 512), 0, 1, TL_F32, check_cpu());
    tl_tensor *y = tl_sum(tl_matmul(x, tl_mul(x, x)), NULL, 0, false);
    float sum = 0;
    expect_true(tl_to_data(y, &sum, sizeof sum));
    tl_scope_end(scope);
    return (double)sum;
}

static void *sum_in_thread(void *sum) {
    *(double *)sum = sum_of_squares();
    return NULL;
}

/* A thread that never had a team: its team size is determined again. `n` threads are granted besides itself. */
static double sum_with(int n) {
    pthread_t thread;
    double sum = 0;
    n_left = n + 1;
    expect_equal(pthread_create(&thread, NULL, sum_in_thread, &sum), 0);
    pthread_join(thread, NULL);
    n_left = 1 << 30;
    return sum;
}

static void kernels_go_on_with_the_threads_there_are(void **state) {
    (void)state;
    int before = tl_set_threads(1);
    double alone = sum_with(0);
    tl_set_threads(8);
    tl_set_log_hook(log_keep, NULL);
    n_asked = 0;
    expect_true(sum_with(0) == alone);
    expect_true(n_asked > 1); /* it did ask */
    expect_true(strstr(logged, "threads: the system starts 1 of 8 (Resource temporarily unavailable)") != NULL);
    *logged = 0;
    expect_true(sum_with(3) == alone);
    expect_true(strstr(logged, "threads: the system starts 4 of 8 (Resource temporarily unavailable)") != NULL);
    *logged = 0;
    expect_true(sum_with(100) == alone);
    expect_text(logged, "");
    tl_set_log_hook(NULL, NULL);
    tl_set_threads(before);
}

static void a_loader_says_why_it_has_no_thread(void **state) {
    (void)state;
    char path[] = "/tmp/tally-threads-XXXXXX";
    int fd = mkstemp(path);
    expect_true(fd >= 0 && write(fd, "some text for a loader", 22) == 22 && close(fd) == 0);
    tl_token_file *file = tl_token_file_open(path, TL_TOKENS_BYTES);
    tl_loader_options o = tl_loader_defaults();
    o.file = file;
    o.time = 4;
    o.device = check_cpu();
    n_left = 0;
    expect_true(tl_loader_new(&o) == NULL);
    n_left = 1 << 30;
    expect_error(TL_ERROR_SYSTEM, "loader: no thread can be started: Resource temporarily unavailable");
    tl_token_file_close(file);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(a_loader_says_why_it_has_no_thread),
                                       TEST(kernels_go_on_with_the_threads_there_are)};
    return cmocka_run_group_tests_name("refused_threads", tests, NULL, NULL);
}

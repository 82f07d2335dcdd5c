#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/isa.h"

#define FAIL(...) (print_error(__VA_ARGS__), print_error("\n"), _fail(file, line))

tl_device *check_cpu(void) { return tl_device_find("cpu"); }
tl_device *check_meta(void) { return tl_device_find("meta"); }

bool check_library_multiplies(void) {
#if defined(__x86_64__)
    struct cpu_isa chosen, baseline;
    char error[200];
    return cpu_isa_choose(getenv("TALLY_ISA"), &chosen, error) && cpu_isa_at(0, &baseline) &&
           chosen.kernels == baseline.kernels;
#else
    return false;
#endif
}

int check_begin(void **state) {
    (void)state;
    tl_set_error_policy(TL_RETURN);
    tl_error_clear();
    tl_scope_reset();
    tl_set_default_device(check_cpu());
    tl_set_grad_mode(true);
    tl_set_phase(TL_FORWARD);
    tl_seed(1);
    return 0;
}

int check_end(void **state) {
    (void)state;
    tl_fail_allocation(0, false);
    int verdict = 0;
    if (tl_error() != TL_OK) {
        print_error("an error is left behind: %s\n", tl_error_message());
        verdict = -1;
    }
    tl_error_clear();
    tl_scope_reset();
    tl_device *device[] = {check_cpu(), check_meta()};
    for (int i = 0; i < 2; i++) {
        tl_memory m = tl_device_memory(device[i]);
        if (!m.live_bytes && !m.live_tensors) continue;
        print_error("left behind on %s: %llu bytes in %llu storages (want 0 and 0)\n", tl_device_name(device[i]),
                    (unsigned long long)m.live_bytes, (unsigned long long)m.live_tensors);
        verdict = -1;
    }
    return verdict;
}

void check_error(tl_status status, const char *part, const char *file, int line) {
    if (tl_error() != status || !strstr(tl_error_message(), part))
        FAIL("got error %d \"%s\"\nwant error %d with \"%s\"", (int)tl_error(), tl_error_message(), (int)status, part);
    tl_error_clear();
}

void check_refused(uintptr_t result, const char *call, const char *part, const char *file, int line) {
    if (result) FAIL("%s gave a result; want NULL and \"%s\"", call, part);
    check_error(TL_ERROR_USE, part, file, line);
}

void check_ok(const char *file, int line) {
    if (tl_error() != TL_OK) FAIL("got error %d \"%s\", want none", (int)tl_error(), tl_error_message());
}

static void sizes_print(char *text, size_t size, const int64_t *sizes, int n) {
    size_t used = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < n && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i ? "," : "", (long long)sizes[i]);
    if (used < size) snprintf(text + used, size - used, "]");
}

void check_sizes(const char *what, const tl_tensor *x, int rank, const int64_t *want, const char *file, int line) {
    int64_t got[TL_MAX_RANK];
    char got_text[800], want_text[800];
    if (!x) FAIL("got NULL (%s), want a tensor", tl_error_message());
    bool is_shape = !strcmp(what, "shape");
    for (int i = 0; i < tl_rank(x); i++) got[i] = is_shape ? tl_shape(x)[i] : tl_stride(x, i);
    bool same = tl_rank(x) == rank;
    for (int i = 0; same && i < rank; i++) same = got[i] == want[i];
    if (same) return;
    sizes_print(got_text, sizeof got_text, got, tl_rank(x));
    sizes_print(want_text, sizeof want_text, want, rank);
    FAIL("%s: got %s, want %s", what, got_text, want_text);
}

/* All elements as doubles, malloc'ed. */
static double *values_of(tl_tensor *x, const char *file, int line) {
    if (!x) FAIL("got NULL (%s), want a tensor", tl_error_message());
    int64_t n = tl_numel(x);
    double *values = malloc((size_t)(n ? n : 1) * sizeof *values);
    bool mode = tl_set_grad_mode(false);
    tl_scope scope = tl_scope_begin();
    bool ok = tl_to_data(tl_cast(tl_detach(x), TL_F64), values, (size_t)n * sizeof *values);
    tl_scope_end(scope);
    tl_set_grad_mode(mode);
    if (!ok) FAIL("the values cannot be read: %s", tl_error_message());
    return values;
}

void check_values(tl_tensor *x, const double *want, size_t n, double tolerance, const char *file, int line) {
    double *got = values_of(x, file, line);
    size_t there = (size_t)tl_numel(x), worst = SIZE_MAX;
    double worst_by = -1;
    for (size_t i = 0; i < there && i < n; i++) {
        bool same = got[i] == want[i] || (isnan(got[i]) && isnan(want[i])) || fabs(got[i] - want[i]) <= tolerance;
        double by = same ? -1 : isnan(got[i] - want[i]) ? INFINITY : fabs(got[i] - want[i]);
        if (by > worst_by) worst_by = by, worst = i;
    }
    double got_worst = worst == SIZE_MAX ? 0 : got[worst];
    free(got);
    if (there != n) FAIL("got %zu elements, want %zu", there, n);
    if (worst != SIZE_MAX)
        FAIL("worst element %zu: got %.17g, want %.17g within %g", worst, got_worst, want[worst], tolerance);
}

void check_near(const char *what, double got, double want, double tolerance, const char *file, int line) {
    if (!(fabs(got - want) <= tolerance)) FAIL("%s: got %.17g, want %.17g within %g", what, got, want, tolerance);
}

void check_equal(const char *what, long long got, long long want, const char *file, int line) {
    if (got != want) FAIL("%s: got %lld, want %lld", what, got, want);
}

void check_true(bool fact, const char *text, const char *file, int line) {
    if (!fact) FAIL("not so: %s (error: \"%s\")", text, tl_error_message());
}

void check_count(const char *what, tl_count got, uint64_t want, const char *file, int line) {
    char text[40];
    if (got.high || got.low != want)
        FAIL("%s: got %s, want %llu", what, tl_count_text(got, text), (unsigned long long)want);
}

void check_text(const char *what, const char *got, const char *want, const char *file, int line) {
    if (!got || strcmp(got, want)) FAIL("%s: got \"%s\", want \"%s\"", what, got ? got : "(NULL)", want);
}

void check_tensors(tl_tensor *a, tl_tensor *b, double tolerance, const char *file, int line) {
    char a_text[300], b_text[300];
    if (!a || !b)
        FAIL("got %s and %s (%s), want two tensors", a ? "a tensor" : "NULL", b ? "a tensor" : "NULL",
             tl_error_message());
    tl_describe(a, a_text, sizeof a_text);
    tl_describe(b, b_text, sizeof b_text);
    if (strcmp(a_text, b_text)) FAIL("got %s, want %s", a_text, b_text);
    double *x = values_of(a, file, line), *y = values_of(b, file, line), worst_by = -1;
    int64_t worst = -1;
    for (int64_t i = 0; i < tl_numel(a); i++) {
        bool same = tolerance < 0 ? !memcmp(&x[i], &y[i], sizeof *x)
                                  : fabs(x[i] - y[i]) <= tolerance || (isnan(x[i]) && isnan(y[i])) || x[i] == y[i];
        double by = same ? -1 : isnan(x[i] - y[i]) ? INFINITY : fabs(x[i] - y[i]);
        if (by > worst_by) worst_by = by, worst = i;
    }
    double got = worst < 0 ? 0 : x[worst], want = worst < 0 ? 0 : y[worst];
    free(x);
    free(y);
    if (worst >= 0)
        FAIL("%s: worst element %lld: got %.17g, want %.17g (%s)", a_text, (long long)worst, got, want,
             tolerance < 0 ? "the same bits" : "within the tolerance");
}

void check_nothing_live(const char *file, int line) {
    tl_device *device[] = {check_cpu(), check_meta()};
    for (int i = 0; i < 2; i++) {
        tl_memory m = tl_device_memory(device[i]);
        if (m.live_bytes || m.live_tensors)
            FAIL("live on %s: %llu bytes in %llu storages, want 0 and 0", tl_device_name(device[i]),
                 (unsigned long long)m.live_bytes, (unsigned long long)m.live_tensors);
    }
}

tl_tensor *check_from(const double *values, tl_dtype dtype, int rank, const int64_t *shape) {
    tl_tensor *wide = tl_from_data(values, rank, shape, TL_F64, check_cpu());
    if (dtype == TL_F64) return wide;
    bool mode = tl_set_grad_mode(false);
    tl_tensor *x = tl_cast(wide, dtype);
    tl_set_grad_mode(mode);
    return x;
}

tl_tensor *check_counting(int rank, const int64_t *shape) {
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= shape[i];
    return tl_reshape(tl_arange(0, 1, n, TL_F32, check_cpu()), rank, shape);
}

/* check.h: shared by the tests of tensors, graphs and memory: assertions that print both values, and a set-up and a
 * tear-down after which nothing may be live.
 */
#ifndef TESTS_SUPPORT_CHECK_H
#define TESTS_SUPPORT_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tally.h"

/* A sanitizer looks for other faults than wrong digits and makes a test five to forty times slower. Where it is on, a
 * test may compare fewer of its results, or draw fewer random cases, if it calls the same code in the same ways. */
#if defined(__has_feature) /* clang's way to say it */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CHECK_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(CHECK_SANITIZED)
enum { IS_SANITIZED = 1 };
#else
enum { IS_SANITIZED = 0 };
#endif

/* A test between check_begin (policy TL_RETURN, recording on, default device cpu, seed 1) and check_end (no pending
 * error, no open scope's tensors, nothing live on cpu and meta). */
#define TEST(function) cmocka_unit_test_setup_teardown(function, check_begin, check_end)
int check_begin(void **state);
int check_end(void **state);

/* An error of this status is pending and its message holds `part`; it is then cleared. */
#define expect_error(status, part) check_error(status, part, __FILE__, __LINE__)
/* A call that must give NULL (or false) and this error of wrong use. */
#define expect_refused(call, part) check_refused((uintptr_t)(call), #call, part, __FILE__, __LINE__)
#define expect_ok() check_ok(__FILE__, __LINE__)

#define expect_shape(x, ...) check_sizes("shape", x, TL_SHAPE(__VA_ARGS__), __FILE__, __LINE__)
#define expect_scalar(x) check_sizes("shape", x, TL_SCALAR, __FILE__, __LINE__)
#define expect_strides(x, ...) check_sizes("strides", x, TL_SHAPE(__VA_ARGS__), __FILE__, __LINE__)
/* All elements, row-major. */
#define expect_values(x, ...)                                                                                       \
    check_values(x, (const double[]){__VA_ARGS__}, sizeof((double[]){__VA_ARGS__}) / sizeof(double), 0.0, __FILE__, \
                 __LINE__)
#define expect_values_near(x, tolerance, ...)                                                                   \
    check_values(x, (const double[]){__VA_ARGS__}, sizeof((double[]){__VA_ARGS__}) / sizeof(double), tolerance, \
                 __FILE__, __LINE__)
#define expect_near(got, want, tolerance) check_near(#got, got, want, tolerance, __FILE__, __LINE__)
#define expect_equal(got, want) check_equal(#got, (long long)(got), (long long)(want), __FILE__, __LINE__)
#define expect_true(fact) check_true(fact, #fact, __FILE__, __LINE__)
#define expect_count(count, want) check_count(#count, count, want, __FILE__, __LINE__)
#define expect_text(got, want) check_text(#got, got, want, __FILE__, __LINE__)
/* Tensors of one shape and dtype: the same bytes, or |a - b| <= tolerance; the worst element is printed. */
#define expect_same_bits(a, b) check_tensors(a, b, -1.0, __FILE__, __LINE__)
#define expect_close(a, b, tolerance) check_tensors(a, b, tolerance, __FILE__, __LINE__)
#define expect_nothing_live() check_nothing_live(__FILE__, __LINE__)

void check_error(tl_status status, const char *part, const char *file, int line);
void check_refused(uintptr_t result, const char *call, const char *part, const char *file, int line);
void check_ok(const char *file, int line);
void check_sizes(const char *what, const tl_tensor *x, int rank, const int64_t *want, const char *file, int line);
void check_values(tl_tensor *x, const double *want, size_t n, double tolerance, const char *file, int line);
void check_near(const char *what, double got, double want, double tolerance, const char *file, int line);
void check_equal(const char *what, long long got, long long want, const char *file, int line);
void check_true(bool fact, const char *text, const char *file, int line);
void check_count(const char *what, tl_count got, uint64_t want, const char *file, int line);
void check_text(const char *what, const char *got, const char *want, const char *file, int line);
void check_tensors(tl_tensor *a, tl_tensor *b, double tolerance, const char *file, int line);
void check_nothing_live(const char *file, int line);

/* Whether a library may multiply f32, which adds up in another order for other sizes: with the baseline of x86-64. */
bool check_library_multiplies(void);

tl_device *check_cpu(void);
tl_device *check_meta(void);

/* f32 on the cpu from doubles: check_tensor(TL_SHAPE(2, 2), 1, 2, 3, 4). check_from: of any dtype. */
#define check_tensor(rank_and_shape, ...) check_from((const double[]){__VA_ARGS__}, TL_F32, rank_and_shape)
tl_tensor *check_from(const double *values, tl_dtype dtype, int rank, const int64_t *shape);
/* 0, 1, 2, ... in f32 on the cpu. */
tl_tensor *check_counting(int rank, const int64_t *shape);

#endif

/* elementwise_list.h: every elementwise op, one row each.
 *
 * A row NAME defines the op's number, its place in every table (op_list.h includes this file), its record op_NAME, the
 * public function tl_NAME and its in-place form tl_NAME_, the kernels cpu_NAME and cuda_NAME, the words of `tally ops`,
 * its line in docs/accounting.md, its case in tests/python/test_differential.py and its row in bench/bench_ops.py. Only
 * two things are written by hand: the prototypes in include/tally.h, and the samples, samples_NAME in
 * tests/support/samples.c. docs/add-an-op.md walks through an example.
 *
 * These names are made from NAME and do not appear in full: to find tl_exp2 or cuda_exp2, search here for "(exp2,".
 *
 *   UNARY(name, dtypes, formula, FLOPs, words, reads, gradient, in place, autocast, kernel)
 *   BINARY(name, dtypes, formula, FLOPs, words, reads, gradient of a, reads, gradient of b, in place, autocast, kernel)
 *   BINARY_SHARED(name, dtypes, formula, FLOPs, words, reads of a, reads of b, in place, autocast, kernel)
 *   SPECIAL(name, dtypes, shape rule, FLOPs, words, reads, in place, autocast)
 *
 * BINARY_SHARED is for ops whose two gradients share work: one function, NAME_backward, computes both. SPECIAL is for
 * ops with attributes or three operands: only the record follows from the row. Their public functions, gradients
 * (NAME_backward) and kernels are written by hand.
 *
 *   dtypes     which dtypes and shapes the op takes and gives: one of the classes below
 *   formula    one element of the result, from x, or from a and b; the same text is C and CUDA. T is the type it
 *              computes in: float, double and, if the class takes integers, int64_t. W is the type in which + - * wrap:
 *              uint64_t for int64_t, otherwise T. F(exp) is the device's own exp: vector_exp_f32 and its relatives in
 *              device/cpu/shared/vector_math.h, real_exp in device/cuda/shared/real_math.cuh. Write a fraction as (T)0.5.
 *   FLOPs      per element of the result. An elementary function (exp, tanh, sqrt) counts as one. In a SPECIAL row, p
 *              points to the attributes.
 *   words      what those FLOPs are; "" if there is only one. In a SPECIAL row, the whole text.
 *   reads      what the gradient reads, and therefore what is saved for it. One operand: X, the operand; Y, the result;
 *              G, only the gradient of the result. Two operands: A, B, AB, ABY or G. STEP: the op is constant between
 *              its steps, so no gradient flows back. NONE: the op has no gradient.
 *   gradient   of the operand, written in ops, so that it has a price and a derivative of its own. g is the gradient of
 *              the result; x, y, a and b are what it reads. Do not pass two op calls to one function: C does not say
 *              which of them runs first. A longer rule is a function in elementwise.c.
 *   in place   IN_PLACE: there is a tl_NAME_, which overwrites its first operand. FRESH: there is not. INTERNAL: there
 *              is no tl_NAME either; only gradients call the op.
 *   autocast   WIDE: autocast runs it in f32. AS_IS: autocast leaves it alone.
 *   kernel     PLAIN: a few instructions per element. TILED: a long chain, which the cpu runs in tiles (see
 *              device/cpu/ops/elementwise_map_template.h). CPU_LOOP: the cpu has its own loop (device/cpu/ops/elementwise_loops.h), cuda
 *              uses the formula. OWN: both devices have a kernel of their own; the formula only says what it computes.
 *
 * The classes. All but BITS_PAIR take floats; CLASS_... in elementwise.c has their rules and words.
 *
 *   REAL      integers and bool give f32            ANY_PAIR      any two; promoted
 *   FLOAT     floats only                           SIGNED_PAIR   the same, without bool
 *   NUMBER    integers too                          QUOTIENT      any two; promoted; integers and bool give f32
 *   SIGNED    integers too; another error for bool  NUMBER_PAIR   bool only beside a number; promoted
 *   ANY       integers and bool too                 EXTREME       any two; promoted; integers wrap first
 *   TRUTH     any -> bool                           LOGIC         any two -> bool
 *                                                   FLOAT_PAIR    floats, or a float beside integers; promoted
 *                                                   SLOPE         the same, for x and the gradient g
 *                                                   BITS_PAIR     integers or bool, no floats; promoted
 *
 * INTEGERS_class(no, yes...) expands to `yes` if the class computes with integers, and to `no` if it does not.
 *
 * Define UNARY, BINARY and SPECIAL, then include this file. BINARY_SHARED is BINARY unless it is defined, too. The file
 * undefines all four at the end.
 */
#ifndef INTEGERS_REAL
#define INTEGERS_REAL(no, ...) no
#define INTEGERS_FLOAT(no, ...) no
#define INTEGERS_NUMBER(no, ...) __VA_ARGS__
#define INTEGERS_SIGNED(no, ...) __VA_ARGS__
#define INTEGERS_ANY(no, ...) __VA_ARGS__
#define INTEGERS_TRUTH(no, ...) __VA_ARGS__
#define INTEGERS_ANY_PAIR(no, ...) __VA_ARGS__
#define INTEGERS_SIGNED_PAIR(no, ...) __VA_ARGS__
#define INTEGERS_QUOTIENT(no, ...) no
#define INTEGERS_NUMBER_PAIR(no, ...) __VA_ARGS__
#define INTEGERS_EXTREME(no, ...) __VA_ARGS__
#define INTEGERS_LOGIC(no, ...) __VA_ARGS__
#define INTEGERS_FLOAT_PAIR(no, ...) no
#define INTEGERS_SLOPE(no, ...) no
#define INTEGERS_BITS_PAIR(no, ...) __VA_ARGS__
#endif

#ifndef BINARY_SHARED
#define BINARY_SHARED(name, dtypes, formula, flops, words, reads_a, reads_b, in_place, autocast, kernel) \
    BINARY(name, dtypes, formula, flops, words, reads_a, , reads_b, , in_place, autocast, kernel)
#endif

/* clang-format off */

/* ---- Arithmetic ---- */

BINARY(add, ANY_PAIR, (T)((W)a + (W)b), 1, "", G, g, G, g, IN_PLACE, AS_IS, PLAIN)
BINARY(sub, SIGNED_PAIR, (T)((W)a - (W)b), 1, "", G, g, G, tl_neg(g), IN_PLACE, AS_IS, PLAIN)
BINARY(mul, ANY_PAIR, (T)((W)a * (W)b), 1, "", B, tl_mul(g, b), A, tl_mul(g, a), IN_PLACE, AS_IS, PLAIN)
BINARY_SHARED(div, QUOTIENT, a / b, 1, "", B, AB, IN_PLACE, AS_IS, PLAIN)
BINARY_SHARED(pow, NUMBER_PAIR, F(pow)(a, b), 1, "", AB, ABY, IN_PLACE, AS_IS, CPU_LOOP)
BINARY(remainder, NUMBER_PAIR, a - b * F(floor)(a / b), 4, "divide, floor, product, subtract",
       G, g, AB, remainder_gradient(g, a, b), IN_PLACE, AS_IS, OWN)
BINARY_SHARED(minimum, EXTREME, ((a < b) | F(isnan)(a)) ? a : b, 1, "", AB, AB, FRESH, AS_IS, PLAIN)
BINARY_SHARED(maximum, EXTREME, ((a > b) | F(isnan)(a)) ? a : b, 1, "", AB, AB, FRESH, AS_IS, PLAIN)
UNARY(neg, SIGNED, (T)(-(W)x), 1, "", G, tl_neg(g), IN_PLACE, AS_IS, PLAIN)
SPECIAL(affine, ARITHMETIC, any_shape, (p->scale != 1) + (p->shift != 0),
        "n for a scale that is not 1, n for a shift that is not 0", G, IN_PLACE, AS_IS)

/* ---- A tensor and a number (scalar.c) ---- */

SPECIAL(add_scalar, SCALAR, scalar_shape, 1, "n", G, IN_PLACE, AS_IS)
SPECIAL(sub_scalar, SCALAR_NUMBER, sub_scalar_shape, 1, "n", G, IN_PLACE, AS_IS)
SPECIAL(mul_scalar, SCALAR, scalar_shape, 1, "n", G, IN_PLACE, AS_IS)
SPECIAL(div_scalar, SCALAR, div_scalar_shape, 1, "n", X, IN_PLACE, AS_IS)
SPECIAL(pow_scalar, SCALAR, pow_scalar_shape, 1, "n", X, IN_PLACE, AS_IS)
SPECIAL(remainder_scalar, SCALAR, remainder_scalar_shape, 4, "4n: divide, floor, product, subtract", G, IN_PLACE, AS_IS)
SPECIAL(clamp, SCALAR, clamp_shape, p->has_min + p->has_max, "n, 2n with two bounds", X, IN_PLACE, AS_IS)

/* ---- Sign and rounding ---- */

UNARY(abs, NUMBER, F(abs)(x), 1, "", X, tl_mul(g, tl_sign(x)), IN_PLACE, AS_IS, PLAIN)
UNARY(sign, ANY, (T)((x > 0) - (x < 0)), 1, "", STEP, , IN_PLACE, AS_IS, PLAIN) /* of NaN 0, as in PyTorch */
UNARY(floor, NUMBER, F(floor)(x), 1, "", STEP, , IN_PLACE, AS_IS, PLAIN)
UNARY(ceil, NUMBER, F(ceil)(x), 1, "", STEP, , IN_PLACE, AS_IS, PLAIN)
UNARY(round, NUMBER, F(round)(x), 1, "", STEP, , IN_PLACE, AS_IS, PLAIN) /* halves to even */
UNARY(trunc, NUMBER, F(trunc)(x), 1, "", STEP, , IN_PLACE, AS_IS, PLAIN)

/* ---- Functions of real numbers ---- */

UNARY(exp, REAL, F(exp)(x), 1, "", Y, tl_mul(g, y), IN_PLACE, WIDE, TILED)
UNARY(exp2, REAL, F(exp2)(x), 1, "", Y, tl_scale(tl_mul(g, y), LN_2), IN_PLACE, AS_IS, TILED)
UNARY(expm1, REAL, F(expm1)(x), 1, "", Y, tl_mul(g, tl_affine(y, 1, 1)), IN_PLACE, WIDE, TILED)
UNARY(log, REAL, F(log)(x), 1, "", X, tl_div(g, x), IN_PLACE, WIDE, TILED)
UNARY(log2, REAL, F(log2)(x), 1, "", X, tl_div(g, tl_scale(x, LN_2)), IN_PLACE, WIDE, TILED)
UNARY(log1p, REAL, F(log1p)(x), 1, "", X, tl_div(g, tl_affine(x, 1, 1)), IN_PLACE, WIDE, TILED)
UNARY(sqrt, REAL, F(sqrt)(x), 1, "", Y, tl_scale(tl_div(g, y), 0.5), IN_PLACE, AS_IS, PLAIN)
UNARY(rsqrt, REAL, 1 / F(sqrt)(x), 2, "square root, divide",
      Y, tl_scale(tl_mul(g, tl_mul(y, tl_mul(y, y))), -0.5), IN_PLACE, WIDE, PLAIN)
UNARY(sin, REAL, F(sin)(x), 1, "", X, tl_mul(g, tl_cos(x)), IN_PLACE, AS_IS, CPU_LOOP)
UNARY(cos, REAL, F(cos)(x), 1, "", X, tl_neg(tl_mul(g, tl_sin(x))), IN_PLACE, AS_IS, CPU_LOOP)
UNARY(tanh, REAL, F(tanh)(x), 1, "", Y, slope(&op_tanh_grad, y, g), IN_PLACE, AS_IS, TILED)
BINARY(tanh_grad, SLOPE, b * (1 - a) * (1 + a), 4, "difference, sum, products 2",
       AB, slope_gradient(g, a, b, tanh_second), A, slope(&op_tanh_grad, a, g), INTERNAL, AS_IS, PLAIN) /* of y and g */
UNARY(sigmoid, REAL, F(sigmoid)(x), 4, "negate, exp, sum, divide",
      Y, slope(&op_sigmoid_grad, y, g), IN_PLACE, AS_IS, TILED)
BINARY(sigmoid_grad, SLOPE, b * a * (1 - a), 3, "difference, products 2",
       AB, slope_gradient(g, a, b, sigmoid_second), A, slope(&op_sigmoid_grad, a, g), INTERNAL, AS_IS, PLAIN)
UNARY(erf, REAL, F(erf)(x), 1, "", X, tl_mul(g, bell(x)), IN_PLACE, AS_IS, TILED)
UNARY(erfc, REAL, F(erfc)(x), 1, "", X, tl_neg(tl_mul(g, bell(x))), IN_PLACE, AS_IS, PLAIN)
UNARY(sinh, REAL, F(sinh)(x), 1, "", X, tl_mul(g, tl_cosh(x)), IN_PLACE, WIDE, PLAIN)
UNARY(cosh, REAL, F(cosh)(x), 1, "", X, tl_mul(g, tl_sinh(x)), IN_PLACE, WIDE, PLAIN)
UNARY(atan, REAL, F(atan)(x), 1, "", X, tl_div(g, tl_affine(tl_square(x), 1, 1)), IN_PLACE, AS_IS, PLAIN)
BINARY(atan2, QUOTIENT, F(atan2)(a, b), 1, "", AB, atan2_gradient(g, b, a, b), AB,
       tl_neg(atan2_gradient(g, a, a, b)), IN_PLACE, AS_IS, PLAIN)

/* ---- Bits of integers ---- */

BINARY(bitwise_and, BITS_PAIR, (T)((int64_t)a & (int64_t)b), 1, "", NONE, , NONE, , FRESH, AS_IS, PLAIN)
BINARY(bitwise_or, BITS_PAIR, (T)((int64_t)a | (int64_t)b), 1, "", NONE, , NONE, , FRESH, AS_IS, PLAIN)
BINARY(bitwise_xor, BITS_PAIR, (T)((int64_t)a ^ (int64_t)b), 1, "", NONE, , NONE, , FRESH, AS_IS, PLAIN)
/* By more bits than there are, or fewer than none: 0, and the sign. */
BINARY(bitwise_left_shift, BITS_PAIR, b < 0 || b > 63 ? 0 : (T)(int64_t)((uint64_t)(int64_t)a << (int64_t)b), 1, "",
       NONE, , NONE, , FRESH, AS_IS, PLAIN)
BINARY(bitwise_right_shift, BITS_PAIR, (T)((int64_t)a >> (b < 0 || b > 63 ? 63 : (int64_t)b)), 1, "",
       NONE, , NONE, , FRESH, AS_IS, PLAIN)

/* ---- Activations ---- */

UNARY(relu, NUMBER, x < 0 ? 0 : x, 1, "", Y, slope(&op_relu_grad, y, g), IN_PLACE, AS_IS, PLAIN) /* NaN stays NaN */
BINARY(relu_grad, SLOPE, a <= 0 ? 0 : b, 1, "", G, NULL, A, slope(&op_relu_grad, a, g), INTERNAL, AS_IS, PLAIN)
SPECIAL(leaky_relu, FLOAT, float_shape, 2, "2n: comparison, product", X, IN_PLACE, AS_IS)
UNARY(gelu, FLOAT, F(gelu)(x), 9, "products 6, sums 2, tanh", X, slope(&op_gelu_grad, x, g), IN_PLACE, AS_IS, TILED)
BINARY(gelu_grad, SLOPE, b * F(gelu_slope)(a), 19, "u 5, tanh 1, 1 - tt 2, u' 4, the rest 7",
       AB, slope_gradient(g, a, b, gelu_second), A, slope(&op_gelu_grad, a, g), INTERNAL, AS_IS, TILED)
UNARY(gelu_erf, FLOAT, F(gelu_erf)(x), 5, "products 3, sum, erf",
      X, slope(&op_gelu_erf_grad, x, g), IN_PLACE, AS_IS, TILED)
BINARY(gelu_erf_grad, SLOPE, b * F(gelu_erf_slope)(a), 11, "Phi 4, phi 4, the rest 3",
       AB, slope_gradient(g, a, b, gelu_erf_second), A, slope(&op_gelu_erf_grad, a, g), INTERNAL, AS_IS, TILED)
UNARY(silu, FLOAT, F(silu)(x), 4, "negate, exp, sum, divide", X, slope(&op_silu_grad, x, g), IN_PLACE, AS_IS, TILED)
BINARY(silu_grad, SLOPE, b * F(silu_slope)(a), 9, "sigmoid 4, slope and product 5",
       AB, slope_gradient(g, a, b, silu_second), A, slope(&op_silu_grad, a, g), INTERNAL, AS_IS, TILED)
BINARY_SHARED(swiglu, FLOAT_PAIR, b * F(silu)(a), 5, "silu 4, product", AB, AB, FRESH, AS_IS, TILED) /* swiglu.c */
SPECIAL(softplus, FLOAT, float_shape, 4, "4n: product, exp, log, divide", X, FRESH, WIDE)

/* ---- Truth ---- */

SPECIAL(compare, LOGIC, compare_shape, 1, "n", NONE, FRESH, AS_IS)
SPECIAL(compare_scalar, TRUTH, truth_shape, 1, "n", NONE, FRESH, AS_IS)
SPECIAL(where, CHOICE, where_shape, 0, "0", A, FRESH, AS_IS)
BINARY(logical_and, LOGIC, (T)((a != 0) & (b != 0)), 1, "", NONE, , NONE, , FRESH, AS_IS, PLAIN)
BINARY(logical_or, LOGIC, (T)((a != 0) | (b != 0)), 1, "", NONE, , NONE, , FRESH, AS_IS, PLAIN)
BINARY(logical_xor, LOGIC, (T)((a != 0) ^ (b != 0)), 1, "", NONE, , NONE, , FRESH, AS_IS, PLAIN)
UNARY(logical_not, TRUTH, (T)(x == 0), 1, "", NONE, , FRESH, AS_IS, PLAIN)
UNARY(isnan, TRUTH, F(isnan)(x) ? 1 : 0, 1, "", NONE, , FRESH, AS_IS, PLAIN)
UNARY(isfinite, TRUTH, (T)(x - x == 0), 1, "", NONE, , FRESH, AS_IS, PLAIN) /* inf - inf is NaN */

/* clang-format on */
#undef UNARY
#undef BINARY
#undef BINARY_SHARED
#undef SPECIAL

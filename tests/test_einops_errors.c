/* test_einops_errors.c: every mistake in a pattern has its own message and a caret under its cause; and no text makes
 * the library do anything else. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "support/check.h"
#include "support/pattern_calls.h"

#define SIZES(...) \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), { __VA_ARGS__ }

/* The caret stands under the first "@" of the pattern, which is taken out; without one there is no caret. */
static const struct mistake {
    enum call call;
    const char *pattern, *lengths;
    int rank;
    int64_t shape[6];
    const char *message;
} mistakes[] = {
    /* the language */
    {REARRANGE, "a b@", NULL, SIZES(2, 3), "there is no arrow"},
    {REARRANGE, "@", NULL, SIZES(2, 3), "there is no arrow"},
    {REARRANGE, "a b -> b a @-> a", NULL, SIZES(2, 3), "a second arrow"},
    {REARRANGE, "a @.b -> b a", NULL, SIZES(2, 3), "dots are used only in an ellipsis"},
    {REARRANGE, "a @.. -> a", NULL, SIZES(2, 3), "dots are used only in an ellipsis"},
    {REARRANGE, "a @.... -> a", NULL, SIZES(2, 3), "an ellipsis stands alone"},
    {REARRANGE, "@...a -> a...", NULL, SIZES(2, 3), "an ellipsis stands alone"},
    {REARRANGE, "a@... -> a", NULL, SIZES(2, 3), "an ellipsis stands alone"},
    {REARRANGE, "... a @... -> a", NULL, SIZES(2, 3), "a second ellipsis"},
    {REARRANGE, "a @… -> a", NULL, SIZES(2, 3), "U+2026 is no ellipsis (need three dots: ...)"},
    {REARRANGE, "é (b @…) -> a", NULL, SIZES(2, 3), "U+2026 is no ellipsis"},
    {REARRANGE, "a @* -> a", NULL, SIZES(2, 3), "unknown character '*'"},
    {REARRANGE, "a b@, c -> a", NULL, SIZES(2, 3), "unknown character ','"},
    {REARRANGE, "a@\tb -> b a", NULL, SIZES(2, 3), "unknown character U+0009 (only spaces separate axes)"},
    {REARRANGE, "a @- b -> b a", NULL, SIZES(2, 3), "unknown character '-'"},
    {REARRANGE, "a @\xff -> a", NULL, SIZES(2, 3), "byte 0xff is not UTF-8"},
    {REARRANGE, "a (b @(c)) -> a", NULL, SIZES(2, 3), "parentheses inside parentheses"},
    {REARRANGE, "a b@) -> a", NULL, SIZES(2, 3), "this one closes nothing"},
    {REARRANGE, "a @(b -> a b", NULL, SIZES(2, 3), "this one is never closed"},
    {REARRANGE, "a b -> a @(b", NULL, SIZES(2, 3), "this one is never closed"},
    {REARRANGE, "a @2b -> a", NULL, SIZES(2, 3), "\"2b\" is no name of an axis: a name does not begin with a digit"},
    {REARRANGE, "a @_b -> a", NULL, SIZES(2, 3),
     "\"_b\" is no name of an axis: a name neither begins nor ends with an underscore"},
    {REARRANGE, "a @b_ -> a", NULL, SIZES(2, 3), "neither begins nor ends with an underscore"},
    {REARRANGE, "a @_ -> a", NULL, SIZES(2, 3), "neither begins nor ends with an underscore"},
    {REARRANGE, "a @b² -> a", NULL, SIZES(2, 3), "a name has letters, digits and underscores"},
    {REARRANGE, "b @b -> b", NULL, SIZES(2, 3), "the name \"b\" comes twice on one side"},
    {REARRANGE, "a b -> b @b", NULL, SIZES(2, 3), "the name \"b\" comes twice on one side"},
    {REARRANGE, "a @0 -> a", NULL, SIZES(2, 3), "an axis of size 0"},
    {REDUCE, "a @99999999999999999999 -> a", NULL, SIZES(2, 3), "below 2^63"},
    {REARRANGE, "a b c d e f g h i j k l m n o p q r s t u v w x y z A B C D E F G @H -> a", NULL, SIZES(2, 3),
     "more than 32 axes"},
    {REPEAT, "a -> a (2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 @2)", NULL, SIZES(2),
     "more than 32 axes at once"},
    /* both sides */
    {REARRANGE, "a b -> a b @...", NULL, SIZES(2, 3), "an ellipsis on the right side and none on the left side"},
    {REARRANGE, "a (b @...) -> a b ...", NULL, SIZES(2, 3), "an ellipsis in parentheses on the left side"},
    {REARRANGE, "a @... -> a", NULL, SIZES(2, 3), "\"...\" is on the left side only"},
    {REARRANGE, "a @2 -> a", NULL, SIZES(2, 2),
     "an axis of size 2 without a name on the left side of rearrange (need a name)"},
    {REARRANGE, "a b -> a b @2", NULL, SIZES(2, 2),
     "an axis of size 2 on the right side of rearrange (tl_repeat adds axes)"},
    {REARRANGE, "a @b -> a", NULL, SIZES(2, 3),
     "\"b\" is on the left side only (need it on both; tl_reduce drops axes)"},
    {REARRANGE, "a b -> a @c b", NULL, SIZES(2, 3), "\"c\" is on the right side only (tl_repeat adds axes)"},
    {REPEAT, "a @b -> a 2", NULL, SIZES(2, 3), "\"b\" is on the left side only"},
    {REPEAT, "a @2 -> a 2", NULL, SIZES(2, 2), "an axis of size 2 without a name on the left side of repeat"},
    {REPEAT, "a b -> a (b @new)", NULL, SIZES(2, 3), "the new axis \"new\" needs a length"},
    {REDUCE, "a b -> a @c", NULL, SIZES(2, 3), "\"c\" is on the right side only"},
    {REDUCE, "a b -> @3 a", NULL, SIZES(2, 3), "an axis of size 3 on the right side of reduce"},
    /* lengths */
    {REARRANGE, "a b -> b a", "c=2", SIZES(2, 3), "a length is given for \"c\", which is not in the pattern"},
    {REARRANGE, "a b -> b a", "1=2", SIZES(2, 3),
     "a length for \"1\", which is no name: a name does not begin with a digit"},
    {REARRANGE, "a b -> b a", "_a=2", SIZES(2, 3), "a length for \"_a\", which is no name"},
    {REARRANGE, "a b -> b a", "=2", SIZES(2, 3), "it is empty"},
    {REARRANGE, "a b -> b a", "a", SIZES(2, 3),
     "lengths \"a\": a name without a size (need name=size, as in \"h=8 w=4\")"},
    {REARRANGE, "a b -> b a", "a 2", SIZES(2, 3), "a name without a size"},
    {REARRANGE, "a b -> b a", "a=", SIZES(2, 3), "a size is a whole number"},
    {REARRANGE, "a b -> b a", "a=2.5", SIZES(2, 3), "a size is a whole number"},
    {REARRANGE, "a b -> b a", "a=two", SIZES(2, 3), "a size is a whole number"},
    {REARRANGE, "a b -> b a", "a=99999999999999999999", SIZES(2, 3), "a size does not fit into 63 bits"},
    {REARRANGE, "a b -> b a", "a=-2", SIZES(2, 3), "the length of \"a\" is -2 (need 0 or more)"},
    {REARRANGE, "a b -> b a", "a=2 a=2", SIZES(2, 3), "the length of \"a\" is given twice"},
    {REARRANGE, "a (b @c) -> a b c", NULL, SIZES(2, 6),
     "the sizes of \"b\" and \"c\" cannot both be inferred (need the length of one)"},
    /* shapes */
    {REARRANGE, "a b @c -> a b c", NULL, SIZES(2, 3), "the pattern has 3 axes on the left side, the input has 2"},
    {REARRANGE, "@a -> a", NULL, SIZES(2, 3), "the pattern has 1 axis on the left side, the input has 2"},
    {REARRANGE, "a b ... @c -> a b c ...", NULL, SIZES(2, 3),
     "the pattern has at least 3 axes on the left side, the input has 2"},
    {REARRANGE, "a @(b c) -> a b c", "b=2 c=4", SIZES(2, 6),
     "axis 1 of the input has size 6, and the pattern says b=2 x c=4 = 8"},
    {REARRANGE, "a @b -> b a", "b=4", SIZES(2, 6), "axis 1 of the input has size 6, and the pattern says b=4"},
    {REARRANGE, "a @1 -> a", NULL, SIZES(2, 6), "axis 1 of the input has size 6, and the pattern says 1"},
    {REARRANGE, "a @() -> a", NULL, SIZES(2, 6), "axis 1 of the input has size 6, and the pattern says 1"},
    {REDUCE, "a @5 -> a", NULL, SIZES(2, 6), "axis 1 of the input has size 6, and the pattern says 5"},
    {REARRANGE, "a (b @c) -> a b c", "b=4", SIZES(2, 6),
     "axis 1 of the input has size 6, which b=4 does not divide, so \"c\" has no size"},
    {REDUCE, "a (@b 4) -> a", NULL, SIZES(2, 6),
     "axis 1 of the input has size 6, which 4 does not divide, so \"b\" has no size"},
    {REARRANGE, "ß (b @c) -> ß b c", "b=0", SIZES(2, 6), "the size of \"c\" cannot be inferred beside b=0"},
    {REARRANGE, "a (b @c) -> a b c", "b=0", SIZES(2, 0), "the size of \"c\" cannot be inferred beside b=0"},
    {REARRANGE, "a (@b c) -> a b c", "b=4611686018427387904 c=4", SIZES(2, 6), "multiply to more than 2^63"},
    {REPEAT, "a -> (a @b)", "b=9223372036854775807", SIZES(2), "the output has a size of more than 2^63"},
    /* einsum */
    {EINSUM, "a b, b c@", NULL, SIZES(2, 2), "there is no arrow"},
    {EINSUM, "a b, b c -> a @d", NULL, SIZES(2, 2), "\"d\" of the output is in no input"},
    {EINSUM, "a b, b c -> a @a", NULL, SIZES(2, 2), "\"a\" comes twice on one side"},
    {EINSUM, "_ b, b c -> _ @_", NULL, SIZES(2, 2), "\"_\" comes twice in the output"},
    {EINSUM, "a @(b c), b c -> a", NULL, SIZES(2, 2), "einsum does not split or merge axes"},
    {EINSUM, "a b, b @() -> a", NULL, SIZES(2, 2), "an axis of size 1 has no part in einsum"},
    {EINSUM, "a @1, b c -> a", NULL, SIZES(2, 2), "an axis of size 1 has no part in einsum"},
    {EINSUM, "a @3, b c -> a", NULL, SIZES(2, 2), "an axis without a name has no part in einsum"},
    {EINSUM, "a @(...), b c -> a", NULL, SIZES(2, 2), "einsum does not split or merge axes"},
    {EINSUM, "a b -> a", NULL, SIZES(2, 2), "the pattern has 1 input, the call 2"},
    {EINSUM, "a b @c, b c -> a", NULL, SIZES(2, 2), "input 0 has 2 axes, the pattern 3"},
    {EINSUM, "a b, a b ... @c -> a", NULL, SIZES(2, 2), "input 1 has 2 axes, the pattern at least 3"},
    {EINSUM, "a b, @a b -> a", NULL, SIZES(2, 2), "\"a\" has size 3 in input 1 (axis 0), and 2 before"},
    {EINSUM, "a b, c @c -> a", NULL, SIZES(2, 2), "\"c\" is repeated in input 1, and the sizes are 3 and 2"},
    {EINSUM,
     "a b, ... ... -> a"
     "",
     NULL, SIZES(2, 2), "a second ellipsis"},
    {EINSUM,
     "a1 a2 a3 a4 a5 a6 a7 a8 a9 b1 b2 b3 b4 b5 b6 b7 b8 b9 c1 c2 c3 c4 c5 c6 c7 c8 c9,"
     "d1 d2 d3 d4 d5 d6 d7 d8 d9 e1 e2 e3 e4 e5 e6 e7 e8 e9 f1 f2 f3 f4 f5 f6 f7 @f8 -> ",
     NULL, SIZES(2, 2), "more than 52 different axes"},
    {LETTERS, "ab,b@1->a", NULL, SIZES(2, 2), "axes are letters a-z and A-Z, and ..."},
    {LETTERS, "ab,bc->a@d", NULL, SIZES(2, 2), "\"d\" of the output is in no input"},
    {LETTERS, "ab,bc->a@a", NULL, SIZES(2, 2), "\"a\" comes twice in the output"},
    {LETTERS, "ab,bc->ac@->a", NULL, SIZES(2, 2), "axes are letters"},
    {LETTERS, "ab,bc->a@,c", NULL, SIZES(2, 2), "axes are letters"},
    {LETTERS, "ab,b@..->a", NULL, SIZES(2, 2), "axes are letters"},
    {LETTERS, "ab,...b@...->a", NULL, SIZES(2, 2), "a second ellipsis"},
    {LETTERS, "ab", NULL, SIZES(2, 2), "the pattern has 1 input, the call 2"},
    /* pack, unpack */
    {PACK, "a b@", NULL, SIZES(2, 3), "there is no * (need it where tensors differ)"},
    {PACK, "a * @a", NULL, SIZES(2, 3), "\"a\" comes twice"},
    {PACK, "a * @*", NULL, SIZES(2, 3), "\"*\" comes twice"},
    {PACK, "a * @2", NULL, SIZES(2, 3), "\"2\" is no name of an axis"},
    {PACK, "a * @_", NULL, SIZES(2, 3), "\"_\" is no name of an axis"},
    {PACK, "a * @(b)", NULL, SIZES(2, 3), "\"(b)\" is no name of an axis"},
    {PACK, "a * @...", NULL, SIZES(2, 3), "\"...\" is no name of an axis"},
    {PACK, "a @* b c", NULL, SIZES(2, 3), "tensor 0 has 2 axes (need at least 3)"},
    {PACK, "@a *", NULL, SIZES(2, 3), "\"a\" has size 3 in tensor 1, and 2 in tensor 0"},
    {UNPACK, "a b c *", NULL, SIZES(2, 3), "the input has 2 axes, the pattern 4"},
    {UNPACK, "a @*", "3", SIZES(2, 5), "axis 1 of size 5 cannot be split into [3], [3]: the sizes do not add up"},
    {UNPACK, "a @*", "-1", SIZES(2, 5), "more than one -1"},
    {UNPACK, "a @*", "-2", SIZES(2, 5), "a size is negative"},
    {UNPACK, "a@", "3", SIZES(2, 5), "there is no *"},
    /* one side */
    {SHAPE, "a @(b c)", NULL, SIZES(2, 3), "several axes in parentheses"},
    {SHAPE, "@a", NULL, SIZES(2, 3), "has 2 axes (need 1)"},
    {SHAPE, "a b ... @c", NULL, SIZES(2, 3), "has 2 axes (need at least 3)"},
    {SHAPE, "a @1", NULL, SIZES(2, 3), "axis 1 has size 3, and 1 needs 1"},
    {SHAPE, "a @4", NULL, SIZES(2, 3), "axis 1 has size 3 (need 4)"},
    {SHAPE, "a @a", NULL, SIZES(2, 3), "\"a\" comes twice"},
    {EXPECT, "a @a", NULL, SIZES(2, 3), "x: axis 1, \"a\", has size 3 (need 2, from x)"},
    {EXPECT, "a b : @f31", NULL, SIZES(2, 3), "\"f31\" is no dtype"},
    {EXPECT, "a b : @bf16", NULL, SIZES(2, 3), "x is f32 (need bf16)"},
    {EXPECT, "a b@) : f32", NULL, SIZES(2, 3), "this one closes nothing"},
};

/* Characters from the start of its line to the caret; -1 when there is none. */
static int caret_column(const char *message) {
    for (const char *line = message; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        size_t blanks = strspn(line, " ");
        if (blanks && line[blanks] == '^') return (int)blanks;
    }
    return -1;
}

static int characters(const char *text, const char *end) {
    int n = 0;
    uint32_t code;
    for (int step; text < end; text += step, n++) {
        step = text_character(text, &code);
        if (step == 0) step = 1;
    }
    return n;
}

static void check_mistake(const struct mistake *m) {
    char pattern[400];
    const char *at = strchr(m->pattern, '@');
    snprintf(pattern, sizeof pattern, "%.*s%s", at ? (int)(at - m->pattern) : (int)strlen(m->pattern), m->pattern,
             at ? at + 1 : "");
    int64_t other[2] = {3, 2}; /* another shape than x's */
    tl_tensor *x = check_counting(m->rank, m->shape), *y = check_counting(2, other);
    uintptr_t result = pattern_call(m->call, x, y, pattern, m->lengths);
    const char *text = tl_error_message();
    if (result || tl_error() != TL_ERROR_USE || !strstr(text, m->message))
        fail_msg("\"%s\" (%s): want \"%s\", got\n%s", pattern, m->lengths ? m->lengths : "", m->message, text);
    if (!strstr(text, "\n  pattern: ") || !strstr(text, "\n  input"))
        fail_msg("\"%s\": no context:\n%s", pattern, text);
    int want = at ? (int)strlen("  pattern: ") + characters(m->pattern, at) : -1;
    if (at && strlen(pattern) < 100 && caret_column(text) != want)
        fail_msg("\"%s\": the caret is in column %d, want %d:\n%s", pattern, caret_column(text), want, text);
    if (m->call <= REPEAT && m->lengths && strstr(m->lengths, "b=4") && !strstr(text, "\n  lengths: b=4"))
        fail_msg("no lengths:\n%s", text);
    tl_error_clear();
}

static void every_mistake_has_its_words_and_its_caret(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        tl_scope scope = tl_scope_begin();
        check_mistake(&mistakes[i]);
        tl_scope_end(scope);
    }
}

static void what_is_no_pattern_is_refused(void **state) {
    (void)state;
    tl_tensor *x = check_counting(TL_SHAPE(2, 3)), *none[2] = {NULL, NULL};
    tl_tensor *ids = check_from((const double[]){1, 2, 3, 4}, TL_I64, TL_SHAPE(2, 2));
    expect_refused(tl_rearrange(x, NULL, NULL), "rearrange: got NULL instead of a pattern");
    expect_refused(tl_rearrange(NULL, "a -> a", NULL), "rearrange");
    expect_refused(tl_reduce(x, "a b -> a", "median", NULL),
                   "there is no reduction \"median\" (need sum, mean, max, min, prod, any, all or logsumexp)");
    expect_refused(tl_reduce(x, "a b -> a", "rearrange", NULL), "there is no reduction \"rearrange\"");
    expect_refused(tl_reduce(x, "a b -> a", NULL, NULL), "there is no reduction \"NULL\"");
    expect_refused(tl_reduce(ids, "a b -> a", "mean", NULL), "the mean of i64 (need a float: tl_cast first)");
    expect_refused(tl_einsum("a b -> a", &x, 0), "needs a pattern and 1 to 64 tensors, not 0");
    expect_refused(tl_einsum("a b -> a", &x, 65), "not 65");
    expect_refused(tl_einsum(NULL, &x, 1), "needs a pattern");
    expect_refused(tl_einsum("a b -> a", none, 1), "einsum");
    expect_refused(tl_pack(&x, 0, "a *", NULL), "pack: an empty list of tensors");
    expect_refused(tl_pack(none, 2, "a *", NULL), "pack");
    expect_refused(tl_pack(&x, 1, NULL, NULL), "got NULL instead of a pattern");
    tl_tensor *f8[2] = {tl_cast(x, TL_F8E4M3), tl_cast(x, TL_F8E5M2)};
    expect_refused(tl_einsum("a b, a b -> a", f8, 2), "the inputs have no common dtype");
}

static void a_long_pattern_is_shown_around_its_mistake(void **state) {
    (void)state;
    char pattern[700] = "";
    for (int i = 0; i < 20; i++) snprintf(pattern + strlen(pattern), 40, "näme_number_%d ", i);
    size_t at = strlen(pattern);
    snprintf(pattern + at, sizeof pattern - at, "wrong! -> after");
    tl_tensor *x = check_counting(TL_SHAPE(2, 3));
    tl_scope scope = tl_scope_enter("model.blocks.3");
    expect_true(!tl_rearrange(x, pattern, NULL));
    tl_scope_end(scope);
    const char *text = tl_error_message(), *line = strstr(text, "\n  pattern: ...");
    expect_true(line && strncmp(text, "model.blocks.3: rearrange: unknown character '!'", 40) == 0);
    int column = caret_column(text);
    const char *p = line + 1;
    uint32_t code;
    for (int i = 0; i < column; i++) p += text_character(p, &code);
    if (*p != '!') fail_msg("the caret is under '%c':\n%s", *p, text);
    tl_error_clear();
}

/* ---- Any text ---- */

static uint64_t random_state;
static unsigned draw(unsigned n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % n;
}

static void draw_text(char *text, int kind) {
    static const char *const pieces[] = {"a",
                                         "b",
                                         "c",
                                         "(",
                                         ")",
                                         " ",
                                         " ",
                                         "->",
                                         ",",
                                         "...",
                                         "1",
                                         "2",
                                         "0",
                                         "_",
                                         "é",
                                         "*",
                                         "…",
                                         ".",
                                         "-",
                                         ">",
                                         "\t",
                                         "=",
                                         ":",
                                         "f32",
                                         "@cpu",
                                         "|",
                                         "\xc3",
                                         "\xf0\x9f\x98\x80",
                                         "99999999999999999999"};
    static const char *const good[] = {
        "a b -> b a", "a b, b c -> a c",          "ab,bc->ac", "a (b 1) -> (b a)", "* b", "a b",
        "... -> ...", "a ... -> ... a : f32 @cpu"};
    const unsigned n_pieces = sizeof pieces / sizeof pieces[0];
    int n = (int)draw(kind == 2 ? 3 : kind ? 24 : 40), used = 0;
    if (kind == 2) strcpy(text, good[draw(sizeof good / sizeof good[0])]);
    for (int i = 0; i < n; i++) {
        const char *piece = pieces[draw(n_pieces)];
        if (kind == 0) text[used++] = (char)(1 + draw(255));
        else if (kind == 1) used += sprintf(text + used, "%s", piece);
        else { /* put a piece into a good pattern, or over a part of it */
            size_t at = draw((unsigned)strlen(text) + 1), length = strlen(piece), over = draw(2);
            if (over > strlen(text + at)) over = 0;
            memmove(text + at + length, text + at + over, strlen(text + at + over) + 1);
            memcpy(text + at, piece, length);
        }
    }
    if (kind != 2) text[used] = 0;
}

/* Texts, each of which goes through all N_CALLS parsers: 450,000 runs; 10.8 million times TALLY_SOAK for the long form;
 * 45,000 under a sanitizer, with which tests/fuzz/fuzz_pattern.c searches further. */
enum { N_TEXTS = IS_SANITIZED ? 5000 : 50000 };

static void any_text_is_a_pattern_or_an_error(void **state) {
    (void)state;
    const int soak = getenv("TALLY_SOAK") ? atoi(getenv("TALLY_SOAK")) : 0;
    const int n_texts = soak > 0 ? 1200000 * soak : N_TEXTS;
    int n_accepted = 0;
    tl_tensor *x = check_counting(TL_SHAPE(2, 3)), *y = check_counting(TL_SHAPE(3, 2)),
              *v = check_counting(TL_SHAPE(4));
    for (int i = 0; i < n_texts; i++) {
        random_state = (uint64_t)i * 2654435761u + 12345;
        char pattern[700], lengths[700];
        draw_text(pattern, i % 4 ? 1 + i % 2 : 0);
        draw_text(lengths, 1);
        for (int call = 0; call < N_CALLS; call++) {
            tl_scope scope = tl_scope_begin();
            bool with_lengths = call <= REPEAT && i % 3 == 0;
            uintptr_t result = pattern_call((enum call)call, i % 5 ? x : v, y, pattern,
                                            with_lengths              ? lengths
                                            : call == UNPACK && i % 2 ? "-1"
                                                                      : NULL);
            if (!result == (tl_error() == TL_OK))
                fail_msg("text %d, call %d: \"%s\": %s", i, call, pattern, tl_error_message());
            if (!result && strlen(tl_error_message()) < 10) fail_msg("text %d, call %d: no words", i, call);
            n_accepted += result != 0;
            tl_error_clear();
            tl_scope_end(scope);
        }
    }
    print_message("    %d texts, %d runs, %d accepted\n", n_texts, n_texts * N_CALLS, n_accepted);
    expect_true(n_accepted > n_texts / 100);
}

/* ---- Long text ---- */

enum { LONG = 1024 };

/* The piece again and again, up to LONG bytes, with `arrow` in the middle and `end` at the end; %d counts. */
static void fill_long(char *text, const char *piece, const char *arrow, const char *end) {
    char next[64];
    size_t used = 0;
    bool has_arrow = false;
    for (int i = 0; used + 128 < LONG; i++) {
        if (!has_arrow && used > LONG / 2) used += (size_t)sprintf(text + used, "%s", arrow), has_arrow = true;
        snprintf(next, sizeof next, piece, i, i);
        used += (size_t)sprintf(text + used, "%s", next);
    }
    sprintf(text + used, "%s", end);
}

/* Of this process, so that others do not count. */
static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* The shortest of a few runs, each after a text that differs, so that no cache has it. */
static double least_ms(enum call call, tl_tensor *x, tl_tensor *y, char *pattern, const char *lengths) {
    double least = 1e9;
    size_t end = strlen(pattern);
    for (int run = 0; run < 5; run++) {
        tl_scope scope = tl_scope_begin();
        memset(pattern + end, ' ', (size_t)run);
        pattern[end + (size_t)run] = 0;
        double start = now_ms();
        pattern_call(call, x, y, pattern, lengths);
        double took = now_ms() - start;
        if (took < least) least = took;
        tl_error_clear();
        tl_scope_end(scope);
    }
    pattern[end] = 0;
    return least;
}

static void no_pattern_of_a_kilobyte_takes_10_ms(void **state) {
    (void)state;
    static const char *const pieces[] = {"a%d ",    "(a%d) ",     "(",
                                         ")",       "()",         "() ",
                                         " ",       "1 ",         "(1 1)",
                                         "... ",    "é%d ",       "Ω_%d ",
                                         "𝔘%d ",    "a",          "\xf0\x9f\x98\x80",
                                         "\xff",    "999 ",       "9",
                                         "a, ",     "a,",         ",",
                                         "_",       "a%d:%d ",    "-",
                                         "->",      "*",          "* a%d ",
                                         "a%d=%d ", "=",          "@",
                                         "a a ",    "...a ",      "(a b c d e f g h) ",
                                         "f32|",    ": f32 @cpu "};
    static const char *const arrows[] = {"", " -> "};
    char pattern[LONG + 200], lengths[LONG + 200], shown[40];
    double worst = 0;
    tl_tensor *x = check_counting(TL_SHAPE(2, 3)), *y = check_counting(TL_SHAPE(3, 2));
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        for (int form = 0; form < 4; form++)
            for (int call = 0; call < N_CALLS; call++) {
                fill_long(pattern, pieces[i], arrows[form % 2], form < 2 ? "" : " a b -> b a");
                fill_long(lengths, form % 2 ? "a%d=%d " : pieces[i], "", "");
                double took = least_ms((enum call)call, x, y, pattern, call <= REPEAT ? lengths : NULL);
                snprintf(shown, sizeof shown, "%.30s", pattern);
                if (took > 10) fail_msg("call %d of \"%s...\" takes %.1f ms", call, shown, took);
                if (took > worst) worst = took;
            }
    print_message("    the slowest took %.3f ms\n", worst);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_mistake_has_its_words_and_its_caret),  TEST(what_is_no_pattern_is_refused),
        TEST(a_long_pattern_is_shown_around_its_mistake), TEST(any_text_is_a_pattern_or_an_error),
        TEST(no_pattern_of_a_kilobyte_takes_10_ms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

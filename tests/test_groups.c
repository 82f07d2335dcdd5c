/* Groups of parameters by patterns of their names, and what Muon takes. */
#include <stdio.h>

#include "step/groups.h"
#include "support/check.h"

static struct group of(const char *groups, const char *name) {
    struct group g;
    expect_true(groups_find(groups, name, &g));
    return g;
}

static void the_last_pattern_that_matches_counts(void **state) {
    (void)state;
    static const char groups[] = "*:lr=0.5;model.layers.*.weight:decay=0;*embed*:lr=2,decay=0.25";
    expect_near(of(groups, "model.norm.weight").lr, 0.5, 0);
    expect_near(of(groups, "model.norm.weight").decay, -1, 0);
    /* an entry is not added to those before it */
    expect_near(of(groups, "model.layers.3.mlp.up_proj.weight").lr, 1, 0);
    expect_near(of(groups, "model.layers.3.mlp.up_proj.weight").decay, 0, 0);
    expect_near(of(groups, "model.embed_tokens.weight").lr, 2, 0);
    expect_near(of(groups, "model.embed_tokens.weight").decay, 0.25, 0);
    expect_equal(of(groups, "model.embed_tokens.weight").index, 3);
    expect_equal(of("", "a").index, 0);
}

static void a_pattern_is_of_the_whole_name(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool matches;
    } cases[] = {{"a", "a", true},         {"a", "ab", false},       {"a*", "ab", true},         {"*b", "ab", true},
                 {"a*c*e", "abcde", true}, {"a*c*e", "abcd", false}, {"**", "x", true},          {"*", "x", true},
                 {"*ab", "aab", true},     {"*a*a*b", "aaab", true}, {"*a*a*b", "aaabc", false}, {"ab", "a", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char groups[32];
        snprintf(groups, sizeof groups, "%s:lr=3", cases[i].pattern);
        expect_near(of(groups, cases[i].name).lr, cases[i].matches ? 3 : 1, 0);
    }
}

static void what_is_no_group_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"a",
                                      "a:",
                                      ":lr=1",
                                      "a:lr",
                                      "a:lr=",
                                      "a:lr=x",
                                      "a:lr=-1",
                                      "a:lr=nan",
                                      "a:lr=1,",
                                      "a:lr=1 ",
                                      "a:lr=1;b",
                                      ";",
                                      "a:rate=1",
                                      "a:lr=1;;b:lr=1",
                                      "a:decay=inf",
                                      "a:lr=1decay=2",
                                      "a:lr=1;b:decay="};
    struct group g;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refused(groups_find(bad[i], "a", &g), "is not PATTERN:lr=X,decay=Y");
    const char *const names[] = {"model.a", "model.b"};
    expect_true(groups_all_match("*a:lr=1;model*:decay=0", names, 2));
    expect_refused(groups_all_match("*a:lr=1;c*:decay=0", names, 2), "\"c*\" matches no parameter");
}

/* Of a layer of Llama: q, k, v and o, gate, up and down. */
static void muon_takes_the_matrices_of_the_layers(void **state) {
    (void)state;
    tl_model_config c;
    int64_t n = 0;
    const struct settings s = settings_default();
    expect_true(tl_model_preset("nano", &c) && groups_count_muon(&s, &c, &n));
    const int64_t kv = c.n_kv_heads * c.head_size, q = c.n_heads * c.head_size;
    expect_equal(n, c.n_layers * (2 * c.channels * (q + kv) + 3 * c.channels * c.ff));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_last_pattern_that_matches_counts),
        TEST(a_pattern_is_of_the_whole_name),
        TEST(what_is_no_group_is_refused),
        TEST(muon_takes_the_matrices_of_the_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

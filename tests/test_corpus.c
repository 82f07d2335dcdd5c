/* The corpus: no two derivations give one text (proved rule by rule, and tested by parsing stories), the entropy
 * follows from the choices, stories are a function of seed and number, and there are many words. */
#include "support/check.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/corpus.h"

/* ---- The proof that every rule is prefix-free ---- */

/* How two derivations stay apart: their texts differ at some place (always); one may begin with the other, but
 * continues with a letter or digit, with which nothing that follows the rule begins (bounded); or it cannot be
 * shown. */
enum verdict { CONFUSED, BOUNDED, ALWAYS };

/* The rest of a text: pieces, and what follows them. `skip`: characters of the first piece that are done. */
struct rest {
    const struct piece *at;
    int n;
    size_t skip;
    const struct rest *next;
};

static const struct grammar *g;

static enum verdict apart(struct rest a, struct rest b);

static void settle(struct rest *r) { /* to the next piece, if there is one */
    while ((r->n == 0 && r->next) || (r->n && r->at->kind == PIECE_TEXT && r->skip == r->at->length)) {
        if (r->n) r->at++, r->n--, r->skip = 0;
        else *r = *r->next;
    }
}

static enum verdict text_against(const char *text, const struct rest *next, struct rest b) {
    struct piece piece = {.kind = PIECE_TEXT, .text = text, .length = (unsigned short)strlen(text)};
    return apart((struct rest){&piece, 1, 0, next}, b);
}

/* `a` begins with a reference: whatever it may stand for, against b. */
static enum verdict any_against(struct rest a, struct rest b) {
    const struct piece *p = a.at;
    const struct rule *r = &g->rules[p->rule];
    struct rest next = a;
    next.at++, next.n--;
    enum verdict worst = ALWAYS;
    for (int i = r->first; i < r->first + r->n && worst; i++) {
        const struct alternative *x = &g->alternatives[i];
        const struct attribute *attribute = &g->attributes[x->first_attribute + p->number];
        enum verdict v;
        if (p->kind == PIECE_FORM) v = text_against(grammar_form(p->number, grammar_gender(g, i)), &next, b);
        else if (p->kind == PIECE_WORD) {
            char text[100];
            snprintf(text, sizeof text, "%.*s", attribute->length, attribute->text);
            v = text_against(text, &next, b);
        } else if (p->kind == PIECE_FOLLOW) {
            struct piece named = {.kind = PIECE_EXPAND, .rule = attribute->rule};
            v = apart((struct rest){&named, 1, 0, &next}, b);
        } else v = apart((struct rest){&g->pieces[x->first_piece], x->n_pieces, 0, &next}, b);
        if (v < worst) worst = v;
    }
    return worst;
}

/* Both continue with the same piece: the same derivation (then look after it), or two of one rule, which differ by
 * the proof for that rule. Remembered text is the same. */
static bool is_same(const struct piece *a, const struct piece *b) {
    bool both_expand =
        (a->kind == PIECE_EXPAND || a->kind == PIECE_BIND) && (b->kind == PIECE_EXPAND || b->kind == PIECE_BIND);
    return a->rule == b->rule && (both_expand || (a->kind == b->kind && a->number == b->number));
}

static enum verdict ended(struct rest b) { /* the other side is at its end */
    if (b.n == 0) return CONFUSED;
    if (b.at->kind == PIECE_TEXT) return isalnum((unsigned char)b.at->text[b.skip]) ? BOUNDED : CONFUSED;
    static const struct rest nothing = {NULL, 0, 0, NULL};
    return any_against(b, nothing);
}

/* Without regard to capitals, which stand for no choice. */
static enum verdict apart(struct rest a, struct rest b) {
    for (;;) {
        settle(&a);
        settle(&b);
        if (a.n == 0) return ended(b);
        if (b.n == 0) return ended(a);
        if (a.at->kind == PIECE_TEXT && b.at->kind == PIECE_TEXT) {
            if (tolower((unsigned char)a.at->text[a.skip++]) != tolower((unsigned char)b.at->text[b.skip++]))
                return ALWAYS;
        } else if (is_same(a.at, b.at)) a.at++, a.n--, b.at++, b.n--;
        else return a.at->kind != PIECE_TEXT ? any_against(a, b) : any_against(b, a);
    }
}

static void show_alternative(char *to, size_t size, const struct alternative *x) {
    size_t used = 0;
    to[0] = 0;
    for (int i = 0; i < x->n_pieces && used < size - 60; i++) {
        const struct piece *p = &g->pieces[x->first_piece + i];
        used += (size_t)snprintf(to + used, 50, p->kind == PIECE_TEXT ? "%.*s" : "{%.*s}",
                                 p->kind == PIECE_TEXT ? (p->length < 40 ? p->length : 40) : 40,
                                 p->kind == PIECE_TEXT ? p->text : g->rules[p->rule].name);
    }
}

static enum verdict rule_verdict(int rule, bool is_shown) {
    const struct rule *r = &g->rules[rule];
    enum verdict worst = ALWAYS;
    for (int i = r->first; i < r->first + r->n; i++)
        for (int k = i + 1; k < r->first + r->n; k++) {
            const struct alternative *a = &g->alternatives[i], *b = &g->alternatives[k];
            enum verdict v = apart((struct rest){&g->pieces[a->first_piece], a->n_pieces, 0, NULL},
                                   (struct rest){&g->pieces[b->first_piece], b->n_pieces, 0, NULL});
            if (v == CONFUSED && is_shown) {
                char first[200], second[200];
                show_alternative(first, sizeof first, a);
                show_alternative(second, sizeof second, b);
                print_error("%s: \"%s\" and \"%s\" can be confused\n", r->name, first, second);
            }
            if (v < worst) worst = v;
        }
    return worst;
}

/* Whether everything that can come next begins with neither letter nor digit. *reaches_end: or nothing is left here. */
static bool is_boundary(const struct piece *p, int n, bool *reaches_end) {
    if (n == 0) return *reaches_end = true;
    if (p->kind == PIECE_TEXT) return !isalnum((unsigned char)p->text[0]);
    return false; /* every reference begins with a letter or digit */
}

/* A bounded rule must have a boundary after it wherever it is used; where it ends an alternative, the whole
 * alternative's rule becomes bounded too. */
static bool boundaries_hold(enum verdict *verdicts, bool is_shown, bool *is_changed) {
    bool ok = true;
    for (int r = 0; r < g->n_rules; r++)
        for (int i = g->rules[r].first; i < g->rules[r].first + g->rules[r].n; i++)
            for (int k = 0; k < g->alternatives[i].n_pieces; k++) {
                const struct piece *p = &g->pieces[g->alternatives[i].first_piece + k];
                bool at_end = false,
                     chooses = p->kind == PIECE_EXPAND || p->kind == PIECE_BIND || p->kind == PIECE_FOLLOW;
                if (!chooses || (p->kind != PIECE_FOLLOW && verdicts[p->rule] != BOUNDED)) continue;
                if (!is_boundary(p + 1, g->alternatives[i].n_pieces - k - 1, &at_end)) {
                    ok = false;
                    if (is_shown)
                        print_error("%s: {%s} must be followed by a boundary\n", g->rules[r].name,
                                    g->rules[p->rule].name);
                }
                if (at_end && verdicts[r] == ALWAYS) verdicts[r] = BOUNDED, *is_changed = true;
            }
    return ok;
}

static bool is_unambiguous(const struct grammar *grammar, bool is_shown) {
    static enum verdict verdicts[MAX_RULES];
    bool ok = true;
    g = grammar;
    for (int r = 0; r < g->n_rules; r++) {
        verdicts[r] = rule_verdict(r, is_shown);
        ok = ok && verdicts[r] != CONFUSED;
    }
    for (bool is_changed = true; is_changed;) {
        is_changed = false;
        if (!boundaries_hold(verdicts, is_shown, &is_changed)) return false;
    }
    return ok; /* a story ends with an empty line, after which a capital may come: the start must always differ */
}

static struct grammar small;
static const struct grammar *read_small(const struct rule_source *source, int n) {
    grammar_read(&small, source, n);
    return &small;
}
#define SMALL(...)                                        \
    read_small((const struct rule_source[]){__VA_ARGS__}, \
               (int)(sizeof((struct rule_source[]){__VA_ARGS__}) / sizeof(struct rule_source)))

static void no_two_derivations_give_one_text(void **state) {
    (void)state;
    expect_true(is_unambiguous(corpus_grammar(), true));
}

static void the_proof_fails_on_ambiguous_grammars(void **state) {
    (void)state;
    expect_true(is_unambiguous(SMALL({"s", "{a} {b}."}, {"a", "cat|dog"}, {"b", "x|y"}), false));
    expect_true(is_unambiguous(SMALL({"s", "{a} {a}."}, {"a", "cat|caterpillar"}), false)); /* a space follows */
    expect_true(!is_unambiguous(SMALL({"s", "{a}{b}."}, {"a", "cat|catty"}, {"b", "x|y"}), false));
    expect_true(!is_unambiguous(SMALL({"s", "{a}|{b}"}, {"a", "x|y"}, {"b", "y|z"}), false));
    expect_true(!is_unambiguous(SMALL({"s", "{a} {b}|{b} {a}"}, {"a", "x|y"}, {"b", "z|x"}), false));
    expect_true(!is_unambiguous(SMALL({"s", "red {a}|{a}"}, {"a", "red ball|ball"}), false));
    expect_true(!is_unambiguous(SMALL({"s", "{c}."}, {"c", "red|red and blue"}), false));
    expect_true(!is_unambiguous(SMALL({"s", "{+a}{+b} {t}."}, {"t", "{=a}|{=b}"}, {"a", "x|y"}, {"b", "x|z"}), false));
    expect_true(!is_unambiguous(SMALL({"s", "{x}s."}, {"x", "{a}"}, {"a", "cat|cats"}), false));
    expect_true(!is_unambiguous(SMALL({"s", "a|A"}), false));
}

/* ---- Everything that is recalled was introduced ---- */

static bool bound_after(int rule, bool *bound, const char *path);

static bool alternative_binds(int alternative, bool *bound, const char *path) {
    const struct alternative *a = &g->alternatives[alternative];
    for (int i = 0; i < a->n_pieces; i++) {
        const struct piece *p = &g->pieces[a->first_piece + i];
        if (p->kind == PIECE_TEXT) continue;
        if (p->kind == PIECE_EXPAND || p->kind == PIECE_BIND) {
            if (!bound_after(p->rule, bound, g->rules[p->rule].name)) return false;
            if (p->kind == PIECE_BIND) bound[p->rule] = true;
        } else if (!bound[p->rule]) {
            print_error("%s recalls %s, which may not have been introduced\n", path, g->rules[p->rule].name);
            return false;
        }
    }
    return true;
}

static bool bound_after(int rule, bool *bound, const char *path) {
    bool all[MAX_RULES], mine[MAX_RULES];
    memset(all, 1, sizeof all);
    for (int i = g->rules[rule].first; i < g->rules[rule].first + g->rules[rule].n; i++) {
        memcpy(mine, bound, sizeof mine);
        if (!alternative_binds(i, mine, path)) return false;
        for (int r = 0; r < MAX_RULES; r++) all[r] = all[r] && mine[r];
    }
    memcpy(bound, all, sizeof all);
    return true;
}

static void what_is_recalled_was_introduced(void **state) {
    (void)state;
    bool bound[MAX_RULES] = {false};
    g = corpus_grammar();
    expect_true(bound_after(0, bound, "story"));
    g = SMALL({"s", "{a} {=b}."}, {"a", "{+b}|x"}, {"b", "y|z"});
    memset(bound, 0, sizeof bound);
    print_message("(one complaint is expected) ");
    expect_true(!bound_after(0, bound, "s"));
}

/* Words after "a" begin with a consonant, and every word of a list is used. */
static void articles_agree(void **state) {
    (void)state;
    char text[STORY_MAX + 1];
    for (uint64_t i = 0; i < 5000; i++) {
        tl_corpus_story(5, i, text, sizeof text, NULL);
        for (const char *a = text; (a = strstr(a, " a ")); a += 3)
            if (strchr("aeiouAEIOU8", a[3])) fail_msg("story %llu: \"%.30s\"", (unsigned long long)i, a);
        if (strstr(text, "  ") || strchr(text, '{') || strchr(text, '|') || strchr(text, '_'))
            fail_msg("story %llu: %s", (unsigned long long)i, text);
    }
}

/* ---- Entropy ---- */

/* A grammar with every kind of piece, told completely: the probabilities add up to one, no text comes twice, and the
 * means over all texts are the expectation. */
static void the_expectation_is_that_of_all_texts(void **state) {
    (void)state;
    SMALL({"s", "{+who} {verb} {t}. {^who:he} {u}.|{+who} saw {@who.2} and {=who}."},
          {"who", "Ann/f/x/big|2*Bo/m/y/tall|Carl/m/y/wide"}, {"verb", "5*ran|2*sat|swam"},
          {"t", "far|3*{who.3} and {who:his} {num}"}, {"u", "left|had {num}"}, {"num", "1|2|3"},
          {"x", "a {num} {=who}|nobody"}, {"y", "{num} dogs|{num} {num} cats|{who:him}"});
    enum { MOST = 1000, DRAWS = 40000 };
    static char texts[MOST][80];
    static double bits_of[MOST];
    int n = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        char text[STORY_MAX];
        double bits, parsed;
        size_t length = grammar_tell(&small, 3, i, text, &bits);
        text[length] = 0;
        int k = 0;
        while (k < n && strcmp(texts[k], text)) k++;
        if (k == n) {
            assert_true(n < MOST && length < sizeof texts[0]);
            expect_equal(grammar_parse(&small, text, length, &parsed), 1);
            expect_near(parsed, bits, 1e-9);
            strcpy(texts[n], text);
            bits_of[n++] = bits;
        }
        expect_near(bits_of[k], bits, 1e-9); /* one text, one probability */
    }
    double total = 0, bits = 0, bytes = 0;
    for (int k = 0; k < n; k++) {
        double p = exp2(-bits_of[k]);
        total += p;
        bits += p * bits_of[k];
        bytes += p * (double)strlen(texts[k]);
    }
    expect_near(total, 1, 1e-12); /* all of them were seen */
    struct expectation e = grammar_expect(&small);
    expect_near(e.bits, bits, 1e-9);
    expect_near(e.bytes, bytes, 1e-9);
}

static void stories_are_as_surprising_as_computed(void **state) {
    (void)state;
    enum { N = 20000 };
    char text[STORY_MAX];
    double sum[2] = {0}, square[2] = {0};
    for (uint64_t i = 0; i < N; i++) {
        double x[2];
        x[1] = (double)tl_corpus_story(11, i, text, sizeof text, &x[0]);
        for (int k = 0; k < 2; k++) sum[k] += x[k], square[k] += x[k] * x[k];
    }
    double want[2] = {tl_corpus_story_bits(), tl_corpus_story_bytes()};
    for (int k = 0; k < 2; k++) {
        double mean = sum[k] / N, error = sqrt((square[k] / N - mean * mean) / N);
        expect_near(mean, want[k], 3 * error);
        expect_true(error < 0.01 * mean);
    }
    double rate = tl_corpus_entropy_bits_per_byte();
    expect_near(rate, want[0] / want[1], 1e-12);
    expect_true(rate >= 1 && rate <= 3);
    expect_near(tl_corpus_floor(), rate * log(2), 1e-12);
}

static void stories_are_read_back(void **state) {
    (void)state;
    char text[STORY_MAX];
    for (uint64_t i = 0; i < 1000; i++) {
        double bits, parsed;
        size_t length = tl_corpus_story(7, i, text, sizeof text, &bits);
        expect_equal(grammar_parse(corpus_grammar(), text, length, &parsed), 1);
        expect_near(parsed, bits, 1e-6);
        expect_near(tl_corpus_bits(text, length), bits, 1e-6);
    }
    size_t length = tl_corpus_story(7, 0, text, sizeof text, NULL);
    expect_near(tl_corpus_bits(text, length - 1), -1, 0);
    text[length / 2] = '~'; /* no story has a tilde */
    expect_near(tl_corpus_bits(text, length), -1, 0);
    expect_near(tl_corpus_bits("", 0), -1, 0);
    expect_near(tl_corpus_bits(NULL, 5), -1, 0);
}

/* ---- Stories ---- */

static void stories_depend_on_seed_and_number_alone(void **state) {
    (void)state;
    char one[STORY_MAX], two[STORY_MAX], all[4000], again[4000];
    size_t n = tl_corpus_story(1, 5, one, sizeof one, NULL);
    tl_corpus_story(1, 6, two, sizeof two, NULL);
    expect_true(strcmp(one, two));
    tl_corpus_story(2, 5, two, sizeof two, NULL);
    expect_true(strcmp(one, two));
    expect_equal(tl_corpus_story(1, 5, two, sizeof two, NULL), n);
    expect_text(two, one);
    expect_equal(tl_corpus_story(1, 5, two, 10, NULL), n);
    expect_equal(strlen(two), 9);
    expect_equal(tl_corpus_story(1, 5, NULL, 0, NULL), n);
    expect_text(one + n - 2, "\n\n");
    uint64_t stories = tl_corpus_text(1, 5, all, sizeof all);
    expect_true(stories > 2 && stories < 40);
    assert_memory_equal(all, one, n);
    tl_corpus_text(1, 6, again, sizeof again);
    assert_memory_equal(all + n, again, sizeof all - n);
}

static void the_words_are_many(void **state) {
    (void)state;
    static char words[8000][24];
    int n = 0;
    g = corpus_grammar();
    for (int i = 0; i < g->n_pieces; i++) {
        const struct piece *p = &g->pieces[i];
        for (int at = 0, end; p->kind == PIECE_TEXT && at < p->length; at = end + 1) {
            char word[24] = "";
            for (end = at; end < p->length && isalpha((unsigned char)p->text[end]); end++)
                if (end - at < 23) word[end - at] = (char)tolower((unsigned char)p->text[end]);
            if (strlen(word) < 2 && strcmp(word, "a") && strcmp(word, "i")) continue; /* letters of names */
            int k = 0;
            while (k < n && strcmp(words[k], word)) k++;
            if (k == n && n < 8000) strcpy(words[n++], word);
        }
    }
    print_message("%d words, %d rules, %.1f bits and %.1f bytes per story, %.4f bits per byte\n", n, g->n_rules,
                  tl_corpus_story_bits(), tl_corpus_story_bytes(), tl_corpus_entropy_bits_per_byte());
    expect_true(n >= 1000);
}

/* The longest story there can be fits the buffer. */
static size_t longest(int rule);
static size_t longest_piece(const struct piece *p) {
    size_t most = p->length;
    const struct rule *r = p->rule >= 0 ? &g->rules[p->rule] : NULL;
    if (p->kind == PIECE_FORM) return 7;
    if (p->kind != PIECE_WORD && p->kind != PIECE_FOLLOW) return r ? longest(p->rule) : most;
    for (int i = r->first; i < r->first + r->n; i++) {
        const struct attribute *a = &g->attributes[g->alternatives[i].first_attribute + p->number];
        size_t length = p->kind == PIECE_WORD ? a->length : longest(a->rule);
        if (length > most) most = length;
    }
    return most;
}
static size_t longest(int rule) {
    size_t most = 0;
    for (int i = g->rules[rule].first; i < g->rules[rule].first + g->rules[rule].n; i++) {
        size_t sum = 0;
        for (int k = 0; k < g->alternatives[i].n_pieces; k++)
            sum += longest_piece(&g->pieces[g->alternatives[i].first_piece + k]);
        if (sum > most) most = sum;
    }
    return most;
}

static void no_story_is_too_long(void **state) {
    (void)state;
    g = corpus_grammar();
    expect_true(longest(0) < STORY_MAX);
    expect_true(longest(0) > tl_corpus_story_bytes());
}

static bool counts(uint64_t done, uint64_t total, void *context) {
    expect_true(done <= total);
    return --*(int *)context != 0;
}

static void a_file_of_stories_is_whole_or_not_there(void **state) {
    (void)state;
    char path[] = "/tmp/tally-corpus-XXXXXX", text[STORY_MAX];
    int fd = mkstemp(path), calls = 1000;
    close(fd);
    expect_true(tl_corpus_write(path, 9, 2500000, counts, &calls));
    expect_equal(calls, 997);
    FILE *f = fopen(path, "rb");
    uint64_t size = 0;
    for (uint64_t i = 0; size < 2500000; i++) {
        char here[STORY_MAX];
        size_t n = tl_corpus_story(9, i, text, sizeof text, NULL);
        assert_int_equal(fread(here, 1, n, f), n);
        assert_memory_equal(here, text, n);
        size += n;
    }
    expect_equal(fgetc(f), EOF);
    fclose(f);
    calls = 1;
    unlink(path);
    expect_refused(tl_corpus_write(path, 9, 2500000, counts, &calls), "stopped");
    expect_true(access(path, F_OK) != 0);
    expect_refused(tl_corpus_write(path, 9, 0, NULL, NULL), "0 bytes (need 1 to 2^62)");
    expect_refused(tl_corpus_write(NULL, 9, 1, NULL, NULL), "no path");
    tl_fail_allocation(1, false);
    expect_true(!tl_corpus_write(path, 9, 10, NULL, NULL));
    tl_fail_allocation(0, false);
    expect_error(TL_ERROR_MEMORY, "stories");
    expect_true(!tl_corpus_write("/absent/file", 9, 10, NULL, NULL));
    expect_error(TL_ERROR_IO, "/absent/file");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(no_two_derivations_give_one_text),
        TEST(the_proof_fails_on_ambiguous_grammars),
        TEST(what_is_recalled_was_introduced),
        TEST(articles_agree),
        TEST(the_expectation_is_that_of_all_texts),
        TEST(stories_are_as_surprising_as_computed),
        TEST(stories_are_read_back),
        TEST(stories_depend_on_seed_and_number_alone),
        TEST(the_words_are_many),
        TEST(no_story_is_too_long),
        TEST(a_file_of_stories_is_whole_or_not_there),
    };
    return cmocka_run_group_tests_name("corpus", tests, NULL, NULL);
}

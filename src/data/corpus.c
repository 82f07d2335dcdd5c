/* corpus.c: an endless sequence of stories with a known entropy.
 *
 * The best possible loss on ordinary text is unknown, since the entropy of English is a guess. Here the text comes
 * from a grammar, every choice has a known probability p = weight / sum of the rule's weights, and no two
 * derivations give the same text. Then the probability of a story is the product of its choices, and
 *
 *     H(story) = E[-log2 p(story)] = E[sum over choices of -log2 p]
 *     bits per byte = H(story) / E[bytes of a story]
 *
 * The second is the entropy rate of the endless text of independent stories (renewal reward): story ends are visible
 * in the text, so they cost nothing extra. No model can have a smaller mean loss per byte on it, and one that knew
 * the grammar would reach it.
 *
 * Both expectations are linear, so they are sums over the grammar, not over texts. Let E(rule) be the pair (bits,
 * bytes):
 *
 *     E(rule)           = sum over alternatives of p (-log2 p bits + sum of E(piece))
 *     E(text)           = (0, length)
 *     E({=rule})        = (0, bytes of E(rule))          the remembered text is repeated, without a choice
 *     E({rule.1})       = (0, mean length of the attribute);  pronouns likewise
 *     E({@rule.1})      = mean over the remembered alternatives a of E(rule named by a | rule was a)
 *
 * This holds because no choice depends on what was remembered, except in {@rule.1}, where the walk fixes what was
 * remembered and continues with it. So a story remembers its hero, a name, a thing, a magic word, and comes back to
 * them: agreement and reference across sentences cost no bits, and a model has to learn them to come near the floor.
 *
 * Unambiguous: each rule is prefix-free, which means that of two different derivations neither text begins with the
 * other, given that the next character is no letter where the rule needs that. Then a reader from left to right
 * always knows which alternative was taken. tests/test_corpus.c proves it for the whole grammar, rule by rule, and
 * parses stories back into the one derivation they have.
 *
 * A finite context loses something: a model that sees only the last T bytes does not know the names and things that
 * were introduced before them, and at the beginning of a window not even where in a story it is. Its best loss is
 * above the floor, and comes down to it as T grows beyond the length of a story.
 *
 * Rejected: a Markov chain over words (an exact entropy too, but nothing to refer back to); recursion (the sums
 * would become equations).
 */
#include "data/corpus.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/rng_math.h"
#include "base/text.h"
#include "tally.h"

/* ---- Reading the grammar ---- */

static const char *const forms[][1 + N_GENDERS] = {
    {"he", "she", "he"},     {"him", "her", "him"},          {"his", "her", "his"},
    {"hers", "hers", "his"}, {"self", "herself", "himself"},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

const char *grammar_form(int form, int gender) { return forms[form][1 + gender]; }

int grammar_gender(const struct grammar *g, int alternative) {
    const struct alternative *a = &g->alternatives[alternative];
    INVARIANT(a->n_attributes > 0);
    return g->attributes[a->first_attribute].text[0] == 'f' ? 0 : 1;
}

static int rule_named(const struct grammar *g, const char *name, size_t length) {
    for (int r = 0; r < g->n_rules; r++)
        if (strlen(g->rules[r].name) == length && !memcmp(g->rules[r].name, name, length)) return r;
    return -1;
}

static struct piece *piece_add(struct grammar *g, enum piece_kind kind) {
    INVARIANT(g->n_pieces < MAX_PIECES);
    struct piece *p = &g->pieces[g->n_pieces++];
    *p = (struct piece){.kind = kind, .rule = -1};
    return p;
}

static int form_named(const char *name, size_t length) {
    for (int f = 0; f < N_FORMS; f++)
        if (strlen(forms[f][0]) == length && !memcmp(forms[f][0], name, length)) return f;
    INVARIANT(!"a pronoun");
    return -1;
}

/* The text between the braces. */
static void reference_read(struct grammar *g, const char *at, const char *end) {
    struct piece *p = piece_add(g, PIECE_EXPAND);
    for (;; at++) {
        if (*at == '^') p->is_capital = true;
        else if (*at == '+') p->kind = PIECE_BIND;
        else if (*at == '=') p->kind = PIECE_RECALL;
        else if (*at == '@') p->kind = PIECE_FOLLOW;
        else break;
    }
    const char *name = at;
    while (at < end && *at != '.' && *at != ':') at++;
    p->rule = (short)rule_named(g, name, (size_t)(at - name));
    INVARIANT(p->rule >= 0);
    if (at < end && *at == '.') {
        if (p->kind != PIECE_FOLLOW) p->kind = PIECE_WORD;
        p->number = (short)(at[1] - '1');
    } else if (at < end) {
        p->kind = PIECE_FORM;
        p->number = (short)form_named(at + 1, (size_t)(end - at - 1));
    }
}

static void pieces_read(struct grammar *g, const char *at, const char *end) {
    while (at < end) {
        const char *stop = memchr(at, *at == '{' ? '}' : '{', (size_t)(end - at));
        if (*at == '{') {
            INVARIANT(stop != NULL);
            reference_read(g, at + 1, stop);
            at = stop + 1;
            continue;
        }
        if (!stop) stop = end;
        struct piece *p = piece_add(g, PIECE_TEXT);
        p->text = at;
        p->length = (unsigned short)(stop - at);
        at = stop;
    }
}

static const char *divided(const char *at, const char *end, char by) {
    const char *stop = memchr(at, by, (size_t)(end - at));
    return stop ? stop : end;
}

static void alternative_read(struct grammar *g, const char *at, const char *end) {
    INVARIANT(g->n_alternatives < MAX_ALTERNATIVES);
    struct alternative *a = &g->alternatives[g->n_alternatives++];
    const char *stop = divided(at, end, '/');
    *a = (struct alternative){.first_piece = g->n_pieces, .first_attribute = g->n_attributes, .weight = 1};
    size_t n_digits = strspn(at, "0123456789");
    if (at + n_digits < stop && n_digits && at[n_digits] == '*') {
        a->weight = atoi(at);
        at += n_digits + 1;
    }
    INVARIANT(a->weight > 0);
    pieces_read(g, at, stop);
    a->n_pieces = g->n_pieces - a->first_piece;
    for (; stop < end; a->n_attributes++) {
        at = stop + 1;
        stop = divided(at, end, '/');
        INVARIANT(g->n_attributes < MAX_ATTRIBUTES);
        size_t length = (size_t)(stop - at);
        g->attributes[g->n_attributes++] =
            (struct attribute){at, (unsigned short)length, (short)rule_named(g, at, length)};
    }
}

void grammar_read(struct grammar *g, const struct rule_source *source, int n) {
    g->n_rules = g->n_alternatives = g->n_pieces = g->n_attributes = 0;
    for (int i = 0; i < n; i++) { /* names first: rules may stand in any order */
        if (i && !strcmp(source[i].name, source[i - 1].name)) continue;
        INVARIANT(g->n_rules < MAX_RULES && rule_named(g, source[i].name, strlen(source[i].name)) < 0);
        g->rules[g->n_rules++] = (struct rule){.name = source[i].name};
    }
    for (int i = 0, r = -1; i < n; i++) {
        if (!i || strcmp(source[i].name, source[i - 1].name)) g->rules[++r].first = g->n_alternatives;
        const char *at = source[i].text, *end = at + strlen(at);
        for (const char *stop; at <= end; at = stop + 1) {
            stop = divided(at, end, '|');
            alternative_read(g, at, stop);
            g->rules[r].n++;
            g->rules[r].weight += g->alternatives[g->n_alternatives - 1].weight;
        }
    }
}

static struct grammar shared;
static void shared_read(void) { grammar_read(&shared, corpus_source, n_corpus_source); }

const struct grammar *corpus_grammar(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, shared_read);
    return &shared;
}

/* In bits. */
static double surprise(const struct rule *r, const struct alternative *a) {
    return log2((double)r->weight / a->weight);
}

/* ---- Telling ---- */

struct memory {
    int alternative; /* -1: nothing remembered */
    size_t begin, length;
};

struct telling {
    const struct grammar *g;
    struct rng_key key;
    uint64_t drawn; /* 32-bit words */
    struct rng_block block;
    double bits;
    char *text;
    size_t used;
    struct memory memory[MAX_RULES];
};

/* Uniform below n, exactly: of the 2^32 draws the first 2^32 mod n are drawn again. */
static uint32_t below(struct telling *t, uint32_t n) {
    uint32_t draw, skip = (0u - n) % n;
    do {
        if (t->drawn % 4 == 0) t->block = rng_block_at(t->key, t->drawn / 4);
        draw = t->block.word[t->drawn++ % 4];
    } while (draw < skip);
    return draw % n;
}

static void say(struct telling *t, const char *text, size_t length) {
    INVARIANT(length <= STORY_MAX - t->used);
    memcpy(t->text + t->used, text, length);
    t->used += length;
}

static const struct attribute *attribute_of(const struct grammar *g, int alternative, int number) {
    const struct alternative *a = &g->alternatives[alternative];
    INVARIANT(number < a->n_attributes);
    return &g->attributes[a->first_attribute + number];
}

static void tell_rule(struct telling *t, int rule, bool is_bound);

static void tell_piece(struct telling *t, const struct piece *p) {
    struct memory *m = p->rule >= 0 ? &t->memory[p->rule] : NULL;
    size_t begin = t->used;
    if (p->kind == PIECE_TEXT) say(t, p->text, p->length);
    else if (p->kind == PIECE_EXPAND || p->kind == PIECE_BIND) tell_rule(t, p->rule, p->kind == PIECE_BIND);
    else {
        INVARIANT(m->alternative >= 0);
        if (p->kind == PIECE_RECALL) say(t, t->text + m->begin, m->length);
        else if (p->kind == PIECE_FORM) {
            const char *form = grammar_form(p->number, grammar_gender(t->g, m->alternative));
            say(t, form, strlen(form));
        } else {
            const struct attribute *a = attribute_of(t->g, m->alternative, p->number);
            if (p->kind == PIECE_FOLLOW) tell_rule(t, a->rule, false);
            else say(t, a->text, a->length);
        }
    }
    if (p->is_capital) t->text[begin] = text_upper(t->text[begin]);
}

static void tell_rule(struct telling *t, int rule, bool is_bound) {
    const struct rule *r = &t->g->rules[rule];
    const struct alternative *a = &t->g->alternatives[r->first];
    int left = (int)below(t, (uint32_t)r->weight);
    while (left >= a->weight) left -= a++->weight;
    int alternative = (int)(a - t->g->alternatives);
    size_t begin = t->used;
    t->bits += surprise(r, a);
    for (int i = 0; i < a->n_pieces; i++) tell_piece(t, &t->g->pieces[a->first_piece + i]);
    if (is_bound) t->memory[rule] = (struct memory){alternative, begin, t->used - begin};
}

/* Streams of stories are kept apart from those of tensors (small numbers) and of the loader (0xD1... and up). */
#define STORY_STREAM ((uint64_t)0xC0 << 56)

size_t grammar_tell(const struct grammar *g, uint64_t seed, uint64_t index, char text[STORY_MAX], double *bits) {
    struct telling t = {.g = g, .key = {seed, STORY_STREAM ^ index}, .text = text};
    for (int r = 0; r < g->n_rules; r++) t.memory[r].alternative = -1;
    tell_rule(&t, 0, false);
    if (bits) *bits = t.bits;
    return t.used;
}

/* ---- Reading a story back ---- */

/* The text still to be parsed: the rest of an alternative, and what follows it. */
struct rest {
    const struct piece *at;
    int n;
    const struct rest *next;
    int binds; /* the rule to remember when it is done; -1: none */
    int alternative;
    size_t begin;
};

struct parsing {
    const struct grammar *g;
    const char *text;
    size_t length;
    double bits, found_bits;
    int n_found;
    struct memory memory[MAX_RULES];
};

static void parse(struct parsing *p, const struct rest *rest, size_t at);

static void parse_rule(struct parsing *p, int rule, bool binds, const struct rest *next, size_t at) {
    const struct rule *r = &p->g->rules[rule];
    double before = p->bits;
    for (int i = r->first; i < r->first + r->n; i++) {
        const struct alternative *a = &p->g->alternatives[i];
        struct rest rest = {&p->g->pieces[a->first_piece], a->n_pieces, next, binds ? rule : -1, i, at};
        p->bits = before + surprise(r, a);
        parse(p, &rest, at);
    }
    p->bits = before;
}

/* The text itself is read without regard to capitals at its first letter: they follow from the position. */
static void parse_text(struct parsing *p, const char *text, size_t length, const struct rest *next, size_t at) {
    if (length > p->length - at) return;
    for (size_t i = 0; i < length; i++) {
        char a = text[i], b = p->text[at + i];
        if (a != b && (i || text_lower(a) != text_lower(b))) return;
    }
    parse(p, next, at + length);
}

static void parse_done(struct parsing *p, const struct rest *rest, size_t at) {
    if (rest->binds < 0) {
        parse(p, rest->next, at);
        return;
    }
    struct memory before = p->memory[rest->binds];
    p->memory[rest->binds] = (struct memory){rest->alternative, rest->begin, at - rest->begin};
    parse(p, rest->next, at);
    p->memory[rest->binds] = before;
}

static void parse(struct parsing *p, const struct rest *rest, size_t at) {
    if (!rest) {
        if (at != p->length) return;
        p->n_found++;
        p->found_bits = p->bits;
        return;
    }
    if (rest->n == 0) {
        parse_done(p, rest, at);
        return;
    }
    const struct piece *piece = rest->at;
    struct rest next = *rest;
    next.at++;
    next.n--;
    if (piece->kind == PIECE_TEXT) {
        parse_text(p, piece->text, piece->length, &next, at);
        return;
    }
    if (piece->kind == PIECE_EXPAND || piece->kind == PIECE_BIND) {
        parse_rule(p, piece->rule, piece->kind == PIECE_BIND, &next, at);
        return;
    }
    const struct memory *m = &p->memory[piece->rule];
    if (m->alternative < 0) return;
    if (piece->kind == PIECE_RECALL) parse_text(p, p->text + m->begin, m->length, &next, at);
    else if (piece->kind == PIECE_FORM) {
        const char *form = grammar_form(piece->number, grammar_gender(p->g, m->alternative));
        parse_text(p, form, strlen(form), &next, at);
    } else {
        const struct attribute *a = attribute_of(p->g, m->alternative, piece->number);
        if (piece->kind == PIECE_FOLLOW) parse_rule(p, a->rule, false, &next, at);
        else parse_text(p, a->text, a->length, &next, at);
    }
}

int grammar_parse(const struct grammar *g, const char *text, size_t length, double *bits) {
    struct parsing p = {.g = g, .text = text, .length = length};
    for (int r = 0; r < g->n_rules; r++) p.memory[r].alternative = -1;
    parse_rule(&p, 0, false, NULL, 0);
    if (bits) *bits = p.found_bits;
    return p.n_found;
}

/* ---- The expectation ---- */

struct walk {
    const struct grammar *g;
    int fixed[MAX_RULES]; /* the alternative that is known to have been remembered; -1: any */
};

static struct expectation expect_rule(struct walk *w, int rule);
static struct expectation expect_piece(struct walk *w, const struct piece *p);

static void expect_add(struct expectation *sum, double share, struct expectation e) {
    sum->bits += share * e.bits;
    sum->bytes += share * e.bytes;
}

static struct expectation expect_alternative(struct walk *w, int alternative) {
    const struct alternative *a = &w->g->alternatives[alternative];
    struct expectation sum = {0, 0};
    for (int i = 0; i < a->n_pieces; i++) {
        struct expectation e = expect_piece(w, &w->g->pieces[a->first_piece + i]);
        expect_add(&sum, 1, e);
    }
    return sum;
}

/* The text of a reference if alternative `a` was chosen. */
static struct expectation expect_reference(struct walk *w, const struct piece *p, int a) {
    if (p->kind == PIECE_RECALL) return (struct expectation){0, expect_alternative(w, a).bytes};
    if (p->kind == PIECE_FORM)
        return (struct expectation){0, (double)strlen(grammar_form(p->number, grammar_gender(w->g, a)))};
    const struct attribute *attribute = attribute_of(w->g, a, p->number);
    if (p->kind == PIECE_WORD) return (struct expectation){0, attribute->length};
    int before = w->fixed[p->rule];
    w->fixed[p->rule] = a;
    struct expectation e = expect_rule(w, attribute->rule);
    w->fixed[p->rule] = before;
    return e;
}

static struct expectation expect_piece(struct walk *w, const struct piece *p) {
    if (p->kind == PIECE_TEXT) return (struct expectation){0, p->length};
    if (p->kind == PIECE_EXPAND || p->kind == PIECE_BIND) return expect_rule(w, p->rule);
    if (w->fixed[p->rule] >= 0) return expect_reference(w, p, w->fixed[p->rule]);
    const struct rule *r = &w->g->rules[p->rule];
    struct expectation sum = {0, 0};
    for (int i = r->first; i < r->first + r->n; i++)
        expect_add(&sum, (double)w->g->alternatives[i].weight / r->weight, expect_reference(w, p, i));
    return sum;
}

static struct expectation expect_rule(struct walk *w, int rule) {
    const struct rule *r = &w->g->rules[rule];
    struct expectation sum = {0, 0};
    for (int i = r->first; i < r->first + r->n; i++) {
        const struct alternative *a = &w->g->alternatives[i];
        struct expectation e = expect_alternative(w, i);
        e.bits += surprise(r, a);
        expect_add(&sum, (double)a->weight / r->weight, e);
    }
    return sum;
}

struct expectation grammar_expect(const struct grammar *g) {
    struct walk w = {.g = g};
    for (int r = 0; r < g->n_rules; r++) w.fixed[r] = -1;
    return expect_rule(&w, 0);
}

/* ---- The public functions ---- */

static struct expectation story;
static void story_expect(void) { story = grammar_expect(corpus_grammar()); }

static struct expectation story_expectation(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, story_expect);
    return story;
}

double tl_corpus_story_bits(void) { return story_expectation().bits; }
double tl_corpus_story_bytes(void) { return story_expectation().bytes; }
double tl_corpus_entropy_bits_per_byte(void) { return story_expectation().bits / story_expectation().bytes; }
double tl_corpus_floor(void) { return tl_corpus_entropy_bits_per_byte() * 0.693147180559945309417; } /* ln 2 */

size_t tl_corpus_story(uint64_t seed, uint64_t index, char *buffer, size_t size, double *bits) {
    char text[STORY_MAX];
    size_t length = grammar_tell(corpus_grammar(), seed, index, text, bits);
    if (buffer && size) {
        size_t n = length < size ? length : size - 1;
        memcpy(buffer, text, n);
        buffer[n] = 0;
    }
    return length;
}

double tl_corpus_bits(const char *text, size_t length) {
    double bits;
    return text && grammar_parse(corpus_grammar(), text, length, &bits) == 1 ? bits : -1;
}

uint64_t tl_corpus_text(uint64_t seed, uint64_t first, char *buffer, size_t bytes) {
    char text[STORY_MAX];
    uint64_t index = first;
    for (size_t used = 0; buffer && used < bytes; index++) {
        size_t length = grammar_tell(corpus_grammar(), seed, index, text, NULL);
        size_t n = length < bytes - used ? length : bytes - used;
        memcpy(buffer + used, text, n);
        used += n;
    }
    return index - first;
}

bool corpus_write_at(struct file_place at, uint64_t seed, uint64_t bytes, tl_progress_fn progress, void *context) {
    enum { PIECE = 1 << 20 };
    char path[FILE_TEXT];
    if (!at.name || bytes == 0 || bytes > INT64_MAX / 2)
        return error_set(TL_ERROR_USE, "corpus_write: %s: %llu bytes (need 1 to 2^62)",
                         at.name ? file_text(at, path) : "no path", (unsigned long long)bytes);
    char *buffer = memory_new(PIECE + STORY_MAX);
    if (!buffer) return error_memory(PIECE + STORY_MAX, "stories");
    struct file_writer *w = file_writer_at(at);
    bool ok = w != NULL;
    uint64_t done = 0, index = 0;
    for (size_t used = 0; ok && done < bytes; used = 0) {
        for (; used < PIECE && done < bytes; index++) {
            size_t length = grammar_tell(corpus_grammar(), seed, index, buffer + used, NULL);
            used += length;
            done += length;
        }
        ok = file_writer_write(w, buffer, used);
        if (ok && progress && !progress(done < bytes ? done : bytes, bytes, context))
            ok = error_set(TL_ERROR_USE, "corpus_write: %s: stopped", file_text(at, path));
    }
    memory_free(buffer);
    if (ok) return file_writer_commit(w);
    file_writer_discard(w);
    return false;
}

bool tl_corpus_write(const char *path, uint64_t seed, uint64_t bytes, tl_progress_fn progress, void *context) {
    return corpus_write_at(file_path(path), seed, bytes, progress, context);
}

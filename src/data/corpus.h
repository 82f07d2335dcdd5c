/* corpus.h: the grammar of the built-in corpus, as its tests see it. corpus.c explains. */
#ifndef DATA_CORPUS_H
#define DATA_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "tally.h"

/* The notation: a name, and alternatives separated by '|'. An alternative may begin with its weight and a '*'
 * (default 1) and end with its attributes, separated by '/'. Consecutive rows of one name are one rule. */
struct rule_source {
    const char *name, *text;
};
extern const struct rule_source corpus_source[];
extern const int n_corpus_source;

enum piece_kind {
    PIECE_TEXT,   /* as it stands */
    PIECE_EXPAND, /* {rule}: one of its alternatives */
    PIECE_BIND,   /* {+rule}: the same, remembered */
    PIECE_RECALL, /* {=rule}: the text that was remembered */
    PIECE_WORD,   /* {rule.1}: an attribute of the alternative that was remembered */
    PIECE_FORM,   /* {rule:he}: the pronoun that goes with its first attribute, f or m */
    PIECE_FOLLOW, /* {@rule.1}: expand the rule that its attribute names */
};

struct piece {
    enum piece_kind kind;
    bool is_capital;    /* {^...}: the first letter becomes one */
    short rule, number; /* number: which attribute or form */
    unsigned short length;
    const char *text;
};

struct attribute {
    const char *text;
    unsigned short length;
    short rule; /* that it names; -1: none */
};

struct alternative {
    int first_piece, n_pieces, first_attribute, n_attributes;
    int weight; /* of the rule's */
};

struct rule {
    const char *name;
    int first, n, weight; /* alternatives; the sum of their weights */
};

enum { MAX_RULES = 256, MAX_ALTERNATIVES = 4096, MAX_PIECES = 12288, MAX_ATTRIBUTES = 1024, N_GENDERS = 2 };

struct grammar {
    struct rule rules[MAX_RULES];
    struct alternative alternatives[MAX_ALTERNATIVES];
    struct piece pieces[MAX_PIECES];
    struct attribute attributes[MAX_ATTRIBUTES];
    int n_rules, n_alternatives, n_pieces, n_attributes;
};

/* Reads the source; the first rule is the start. A mistake in it is a bug (the program stops). */
void grammar_read(struct grammar *g, const struct rule_source *source, int n);
const char *grammar_form(int form, int gender); /* "he", "she" */
int grammar_gender(const struct grammar *g, int alternative);
const struct grammar *corpus_grammar(void);

/* tl_corpus_write into a file of an open folder. */
bool corpus_write_at(struct file_place at, uint64_t seed, uint64_t bytes, tl_progress_fn progress, void *context);

enum { STORY_MAX = 8192 }; /* bytes; every story is shorter */

/* One story of any grammar: its text (without a final 0) and -log2 of its probability. */
size_t grammar_tell(const struct grammar *g, uint64_t seed, uint64_t index, char text[STORY_MAX], double *bits);
/* The number of derivations that give exactly this text; *bits is the last one's. */
int grammar_parse(const struct grammar *g, const char *text, size_t length, double *bits);

struct expectation {
    double bits, bytes;
};
/* The exact mean bits of a story's choices and bytes of its text. */
struct expectation grammar_expect(const struct grammar *g);

#endif

/* tree.h: a small part of a JSON file as a tree: the settings of a tokenizer's steps, where the order of keys does not
 * matter and nothing is large. */
#ifndef TEXT_TREE_H
#define TEXT_TREE_H

#include <stdint.h>

#include "base/scan.h"

enum node_kind { NODE_NULL, NODE_FALSE, NODE_TRUE, NODE_NUMBER, NODE_TEXT, NODE_ARRAY, NODE_OBJECT };
struct node {
    enum node_kind kind;
    const char *key;  /* in an object */
    const char *text; /* of a text, or the digits of a number */
    size_t bytes;
    uint32_t child, next; /* indices; 0: none */
};
enum { TREE_MOST = 10000 };
struct tree {
    struct node *nodes; /* nodes[1] is the root */
    size_t n, capacity;
};
/* Reads the value that is next. False: a problem of the scan, or no memory (recorded, and a problem too). */
bool tree_read(struct tree *t, struct scan *s);
void tree_free(struct tree *t);

/* The member of an object; NULL if there is none, or it is null. */
const struct node *tree_get(const struct tree *t, const struct node *object, const char *key);
static inline const struct node *tree_root(const struct tree *t) {
    return t->n > 1 && t->nodes[1].kind != NODE_NULL ? &t->nodes[1] : NULL;
}
static inline const struct node *tree_first(const struct tree *t, const struct node *list) {
    return list && list->child ? &t->nodes[list->child] : NULL;
}
static inline const struct node *tree_next(const struct tree *t, const struct node *n) {
    return n->next ? &t->nodes[n->next] : NULL;
}
/* A member that is a text, "" if there is none; a flag, or what it is without one; a whole number, or -1. */
const char *tree_text(const struct tree *t, const struct node *object, const char *key);
bool tree_flag(const struct tree *t, const struct node *object, const char *key, bool otherwise);
int64_t tree_size(const struct node *n);

#endif

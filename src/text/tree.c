#include "text/tree.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

enum { DEPTH = 32 };

static uint32_t node_new(struct tree *t, struct scan *s) {
    if (t->n >= TREE_MOST) return scan_fail(s, "too many values in one part (need at most 10,000)"), 0;
    if (t->n == t->capacity && !memory_grow((void **)&t->nodes, &t->capacity, t->n, sizeof *t->nodes)) {
        error_memory(t->n * sizeof *t->nodes, "a tokenizer's settings");
        return scan_fail(s, "no memory"), 0;
    }
    if (t->n == 0) return t->nodes[t->n++] = (struct node){0}, node_new(t, s);
    t->nodes[t->n] = (struct node){0};
    return (uint32_t)t->n++;
}

/* A value; returns its index, 0 on a problem. */
static uint32_t value_read(struct tree *t, struct scan *s, int depth) {
    if (depth == 0) return scan_fail(s, "values nested more than 32 deep"), 0;
    const uint32_t at = node_new(t, s);
    if (!at) return 0;
    struct node n = {0};
    const bool is_object = scan_is_next(s, '{');
    if (is_object || scan_is_next(s, '[')) {
        n.kind = is_object ? NODE_OBJECT : NODE_ARRAY;
        uint32_t last = 0;
        for (bool more = scan_open(s, is_object ? '{' : '['); more; more = scan_next(s, is_object ? '}' : ']')) {
            const char *key = is_object ? scan_key(s) : NULL;
            const uint32_t child = is_object && !key ? 0 : value_read(t, s, depth - 1);
            if (!child) return 0;
            t->nodes[child].key = key;
            if (last) t->nodes[last].next = child;
            else n.child = child;
            last = child;
        }
    } else if (scan_is_next(s, '"')) {
        n.kind = NODE_TEXT;
        n.text = scan_text(s, &n.bytes);
    } else if (scan_word(s, "true")) n.kind = NODE_TRUE;
    else if (scan_word(s, "false")) n.kind = NODE_FALSE;
    else if (!scan_word(s, "null")) {
        n.kind = NODE_NUMBER;
        n.text = s->at;
        scan_skip(s);
        n.bytes = (size_t)(s->at - n.text);
    }
    if (s->problem) return 0;
    t->nodes[at] = n;
    return at;
}

bool tree_read(struct tree *t, struct scan *s) {
    t->n = 0;
    return value_read(t, s, DEPTH) != 0;
}

void tree_free(struct tree *t) { memory_free(t->nodes); }

const struct node *tree_get(const struct tree *t, const struct node *object, const char *key) {
    if (!object || object->kind != NODE_OBJECT) return NULL;
    for (const struct node *n = tree_first(t, object); n; n = tree_next(t, n))
        if (!strcmp(n->key, key)) return n->kind == NODE_NULL ? NULL : n;
    return NULL;
}

const char *tree_text(const struct tree *t, const struct node *object, const char *key) {
    const struct node *n = tree_get(t, object, key);
    return n && n->kind == NODE_TEXT ? n->text : "";
}

bool tree_flag(const struct tree *t, const struct node *object, const char *key, bool otherwise) {
    const struct node *n = tree_get(t, object, key);
    return n ? n->kind == NODE_TRUE : otherwise;
}

int64_t tree_size(const struct node *n) {
    int64_t value = 0;
    if (!n || n->kind != NODE_NUMBER || n->bytes > 18) return -1;
    for (size_t i = 0; i < n->bytes; i++) {
        if (n->text[i] < '0' || n->text[i] > '9') return -1;
        value = 10 * value + (n->text[i] - '0');
    }
    return value;
}

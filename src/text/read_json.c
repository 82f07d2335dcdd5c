/* read_json.c: Hugging Face's tokenizer.json, for byte-pair encoding.
 *
 * The vocabulary and the merges, megabytes of them, are scanned where they are; what the steps are is read into a
 * small tree. Anything that changes tokens and is not known is refused by its name. Truncation and padding are
 * ignored: they belong to calls, and transformers switches them off too.
 */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/scan.h"
#include "base/text.h"
#include "text/tokenizer.h"
#include "text/tree.h"
#include "text/unicode.h"

struct merge {
    uint32_t a, n_a, b, n_b; /* in the file's text */
};
struct token_entry { /* of added_tokens */
    uint32_t at, bytes;
    int64_t id;
    unsigned flags;
};
enum section { NORMALIZER, PRE_TOKENIZER, POST_PROCESSOR, DECODER, MODEL, N_SECTIONS };

struct reader {
    tl_tokenizer *t;
    const char *path;
    struct scan s;
    struct tree trees[N_SECTIONS]; /* of the model: all but vocabulary and merges */
    struct merge *merges;
    size_t n_merges, merge_capacity;
    struct token_entry *added;
    size_t n_added, added_capacity;
    char type[32];
    int n_patterns; /* regular expressions: each takes some 50 KB, however short it is */
    bool has_model, has_vocabulary, has_merges, is_byte_level;
};
enum { MOST_PATTERNS = 64 }; /* real files have up to six */

/* "FILE: the WHAT "NAME" is not known (need LIST)". Always false. */
static bool refuse(const struct reader *r, const char *what, const char *name, const char *known) {
    char shown[64];
    return error_set(TL_ERROR_USE, "%s: the %s \"%s\" is not supported (need %s)", r->path, what,
                     text_show(shown, sizeof shown, name), known);
}

static bool wrong(const struct reader *r, const char *what) { return error_set(TL_ERROR_USE, "%s: %s", r->path, what); }

/* ---- The model's large parts ---- */

static bool vocabulary_read(struct reader *r) {
    struct scan *s = &r->s;
    if (!scan_is_next(s, '{')) return scan_skip(s); /* of another model, which is refused by its type */
    r->has_vocabulary = true;
    for (bool more = scan_open(s, '{'); more; more = scan_next(s, '}')) {
        size_t bytes;
        int64_t id;
        const char *token = scan_key_text(s, &bytes);
        if (token && scan_size(s, &id) && !vocabulary_add(&r->t->vocabulary, id, token, bytes, false, r->path))
            return scan_fail(s, "a token");
    }
    return !s->problem;
}

static bool merge_keep(struct reader *r, const char *a, size_t n_a, const char *b, size_t n_b) {
    if (r->n_merges == r->merge_capacity &&
        !memory_grow((void **)&r->merges, &r->merge_capacity, r->n_merges, sizeof *r->merges))
        return error_memory(r->n_merges * sizeof *r->merges, "merges");
    const char *text = r->s.begin;
    r->merges[r->n_merges++] = (struct merge){(uint32_t)(a - text), (uint32_t)n_a, (uint32_t)(b - text), (uint32_t)n_b};
    return true;
}

/* One merge: "a b", or ["a", "b"]. */
static bool merge_read(struct reader *r) {
    struct scan *s = &r->s;
    size_t n_a = 0, n_b = 0;
    if (scan_is_next(s, '[')) {
        scan_open(s, '[');
        const char *a = scan_text(s, &n_a);
        const char *b = a && scan_next(s, ']') ? scan_text(s, &n_b) : NULL;
        if (!b || scan_next(s, ']')) return scan_fail(s, "a merge that is not two texts");
        return s->problem || merge_keep(r, a, n_a, b, n_b) || scan_fail(s, "no memory");
    }
    const char *text = scan_text(s, &n_a), *space = text ? memchr(text, ' ', n_a) : NULL;
    if (!text) return false;
    if (!space || memchr(space + 1, ' ', n_a - (size_t)(space + 1 - text)))
        return scan_fail(s, "a merge that is not two tokens with a space between them");
    n_b = n_a - (size_t)(space + 1 - text);
    return merge_keep(r, text, (size_t)(space - text), space + 1, n_b) || scan_fail(s, "no memory");
}

static bool merges_read(struct reader *r) {
    struct scan *s = &r->s;
    if (!scan_is_next(s, '[')) return scan_fail(s, "merges that are no list");
    r->has_merges = true;
    for (bool more = scan_open(s, '['); more; more = scan_next(s, ']'))
        if (!merge_read(r)) return false;
    return !s->problem;
}

/* ---- The model ---- */

struct model {
    char unknown[64]; /* the unknown token; longer ones do not exist */
    bool has_unknown;
};

/* The small values of the model, each by itself. */
static bool model_value(struct reader *r, struct model *m, const char *key) {
    static const char *const flags[] = {"byte_fallback", "fuse_unk", "ignore_merges"};
    bool *const places[] = {&r->t->has_fallback, &r->t->is_unknown_fused, &r->t->is_word_first};
    struct tree *t = &r->trees[MODEL];
    char name[32];
    text_copy(name, sizeof name, key);
    if (!tree_read(t, &r->s)) return false;
    const struct node *n = tree_root(t);
    if (!n) return true;
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, flags[i])) *places[i] = n->kind == NODE_TRUE;
    if (n->kind == NODE_TEXT && !strcmp(name, "type")) text_copy(r->type, sizeof r->type, n->text);
    if (n->kind == NODE_TEXT && !strcmp(name, "unk_token")) {
        text_copy(m->unknown, sizeof m->unknown, n->text);
        m->has_unknown = true;
    }
    const bool is_affix = !strcmp(name, "continuing_subword_prefix") || !strcmp(name, "end_of_word_suffix");
    if (is_affix && n->kind == NODE_TEXT && n->bytes)
        return refuse(r, "model's option", name, "none") || scan_fail(&r->s, "an option");
    char *end;
    if (!strcmp(name, "dropout") && n->kind == NODE_NUMBER && number_parse(n->text, &end) != 0)
        return refuse(r, "model's option", name, "none") || scan_fail(&r->s, "an option");
    return true;
}

static bool model_read(struct reader *r, struct model *m) {
    struct scan *s = &r->s;
    r->has_model = true;
    for (bool more = scan_open(s, '{'); more; more = scan_next(s, '}')) {
        const char *key = scan_key(s);
        if (!key) return false;
        const bool ok = !strcmp(key, "vocab")    ? vocabulary_read(r)
                        : !strcmp(key, "merges") ? merges_read(r)
                                                 : model_value(r, m, key);
        if (!ok) return false;
    }
    return !s->problem;
}

/* After the whole file is read: the vocabulary as it is written there, and the merges of it. */
static bool model_make(struct reader *r, const struct model *m) {
    tl_tokenizer *t = r->t;
    if (!r->has_model) return wrong(r, "there is no model: not a tokenizer.json");
    if (*r->type && strcmp(r->type, "BPE")) return refuse(r, "model", r->type, "BPE");
    if (!r->has_vocabulary || !r->has_merges) return wrong(r, "the model has no vocabulary or no merges (need BPE)");
    if (!vocabulary_index(&t->vocabulary, r->path)) return false;
    for (size_t i = 0; i < r->n_merges; i++) {
        const struct merge *g = &r->merges[i];
        const char *text = r->s.begin;
        if (!tokenizer_merge_add(t, text + g->a, g->n_a, text + g->b, g->n_b, (int64_t)i, r->path)) return false;
    }
    if (m->has_unknown) {
        t->unknown = UNKNOWN_TOKEN;
        t->unknown_id = vocabulary_find(&t->vocabulary, (const uint8_t *)m->unknown, strlen(m->unknown));
        if (t->unknown_id < 0) return refuse(r, "unknown token", m->unknown, "one of the vocabulary");
    }
    for (int i = 0; i < 256 && t->has_fallback; i++) {
        char name[8];
        number_print(name, sizeof name, "<0x%02X>", (unsigned)i);
        t->byte_ids[i] = vocabulary_find(&t->vocabulary, (const uint8_t *)name, 6);
    }
    return true;
}

/* No merge joins something that does not end in U+2581 with something that begins with it. */
static bool spaces_may_be_cut(const tl_tokenizer *t) {
    static const char mark[] = "\xe2\x96\x81";
    if (t->is_byte_level || t->is_word_first || !t->merges.n) return false;
    if (vocabulary_find(&t->vocabulary, (const uint8_t *)mark, 3) < 0) return false; /* it may be fused with others */
    for (size_t i = 0; i <= t->merges.mask; i++) {
        const uint64_t key = t->merges.slots[i].key;
        if (key == PAIR_NONE) continue;
        const int32_t a = (int32_t)(key >> 32), b = (int32_t)(uint32_t)key;
        const struct token *x = &t->vocabulary.tokens[a], *y = &t->vocabulary.tokens[b];
        if (y->length < 3 || memcmp(vocabulary_bytes(&t->vocabulary, b), mark, 3)) continue;
        if (x->length < 3 || memcmp(vocabulary_bytes(&t->vocabulary, a) + x->length - 3, mark, 3)) return false;
    }
    return true;
}

/* ---- Steps ---- */

static char *copy_of(const char *text, size_t bytes) {
    char *copy = memory_new(bytes + 1);
    if (!copy) return error_memory(bytes, "a step of a tokenizer"), NULL;
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    return copy;
}

/* Sets step->with to a text; false: no memory, or there is no such text (recorded). */
static bool with_set(const struct reader *r, struct step *step, const struct tree *t, const struct node *n,
                     const char *key) {
    const struct node *text = tree_get(t, n, key);
    if (!text || text->kind != NODE_TEXT)
        return error_set(TL_ERROR_USE, "%s: a \"%s\" without \"%s\"", r->path, tree_text(t, n, "type"), key);
    step->with = copy_of(text->text, text->bytes);
    step->with_bytes = text->bytes;
    return step->with != NULL;
}

/* Sets a step's pattern: {"String": text}, or {"Regex": text}, for which there may be a scanner. */
static bool pattern_set(struct reader *r, struct step *step, const struct tree *t, const struct node *n) {
    const struct node *pattern = tree_get(t, n, "pattern");
    const struct node *text = tree_get(t, pattern, "String"), *regex = tree_get(t, pattern, "Regex");
    if (text && text->kind == NODE_TEXT && text->bytes) {
        step->pattern = copy_of(text->text, text->bytes);
        step->pattern_bytes = text->bytes;
        return step->pattern != NULL;
    }
    if (!regex || regex->kind != NODE_TEXT || strlen(regex->text) != regex->bytes)
        return error_set(TL_ERROR_USE, "%s: a \"%s\" without a pattern", r->path, tree_text(t, n, "type"));
    step->scan = step->kind == STEP_SPLIT ? scanner_find_ruby(regex->text) : NULL;
    if (!step->scan && r->n_patterns++ == MOST_PATTERNS)
        return error_set(TL_ERROR_USE, "%s: more than %d patterns", r->path, MOST_PATTERNS);
    if (!step->scan) step->regex = regex_new(regex->text, true, r->path);
    return step->scan || step->regex;
}

static bool step_keep(struct steps *to, struct step step, bool ok) {
    if (ok) return steps_add(to, step);
    regex_free(step.regex);
    memory_free(step.pattern);
    memory_free(step.with);
    return false;
}

static bool metaspace_read(const struct reader *r, struct steps *to, const struct tree *t, const struct node *n) {
    static const char *const schemes[] = {"always", "first", "never"};
    const char *scheme = tree_text(t, n, "prepend_scheme");
    struct step step = {.kind = STEP_METASPACE, .is_split = tree_flag(t, n, "split", true)};
    int which = tree_flag(t, n, "add_prefix_space", true) ? PREPEND_ALWAYS : PREPEND_NEVER;
    for (int i = 0; *scheme && i < 4; i++) {
        if (i == 3) return refuse(r, "prepend_scheme", scheme, "always, first or never");
        if (strcmp(scheme, schemes[i])) continue;
        which = i;
        break;
    }
    step.scheme = (enum prepend_scheme)which;
    bool ok = with_set(r, &step, t, n, "replacement");
    if (ok && !step.with_bytes) ok = wrong(r, "a \"Metaspace\" with an empty replacement");
    return step_keep(to, step, ok);
}

typedef bool (*step_reader)(struct reader *r, const struct tree *t, const struct node *n, const char *type);

/* A step, or the steps of a "Sequence". */
static bool steps_read(struct reader *r, const struct tree *t, const struct node *n, const char *list, step_reader read,
                       int depth) {
    if (!n) return true;
    const char *type = tree_text(t, n, "type");
    if (strcmp(type, "Sequence")) return read(r, t, n, type);
    if (depth == 0) return wrong(r, "a \"Sequence\" inside too many others");
    const struct node *items = tree_get(t, n, list);
    if (!items || items->kind != NODE_ARRAY)
        return error_set(TL_ERROR_USE, "%s: a \"Sequence\" without \"%s\"", r->path, list);
    for (const struct node *item = tree_first(t, items); item; item = tree_next(t, item))
        if (!steps_read(r, t, item, list, read, depth - 1)) return false;
    return true;
}

static bool normalizer_read(struct reader *r, const struct tree *t, const struct node *n, const char *type) {
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"}; /* as enum unicode_form */
    struct steps *to = &r->t->normalizers;
    for (int i = 0; i < 4; i++)
        if (!strcmp(type, forms[i]))
            return steps_add(to, (struct step){.kind = STEP_NORMALIZE, .form = (enum unicode_form)i});
    if (!strcmp(type, "Prepend")) {
        struct step step = {.kind = STEP_PREPEND};
        return step_keep(to, step, with_set(r, &step, t, n, "prepend"));
    }
    if (!strcmp(type, "Replace")) {
        struct step step = {.kind = STEP_REPLACE};
        const bool ok = pattern_set(r, &step, t, n) && with_set(r, &step, t, n, "content");
        return step_keep(to, step, ok);
    }
    if (!strcmp(type, "Strip"))
        return steps_add(to, (struct step){.kind = STEP_STRIP,
                                           .strips_left = tree_flag(t, n, "strip_left", true),
                                           .strips_right = tree_flag(t, n, "strip_right", true)});
    return refuse(r, "normalizer", type, "NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip or a Sequence of them");
}

static bool split_read(struct reader *r, struct steps *to, const struct tree *t, const struct node *n) {
    static const char *const behaviors[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                            "MergedWithNext"};
    const char *behavior = tree_text(t, n, "behavior");
    struct step step = {.kind = STEP_SPLIT, .is_inverted = tree_flag(t, n, "invert", false)};
    int which = 0;
    while (which < 5 && strcmp(behavior, behaviors[which])) which++;
    if (which == 5)
        return refuse(r, "behavior of a Split", behavior,
                      "Isolated, Removed, Contiguous, MergedWithPrevious or MergedWithNext");
    step.behavior = (enum split_behavior)which;
    const bool ok = pattern_set(r, &step, t, n);
    /* A scanner's words cover the text: to remove what is not a word leaves the words. */
    if (step.scan && step.behavior == SPLIT_REMOVED && step.is_inverted) step.behavior = SPLIT_ISOLATED;
    return step_keep(to, step, ok);
}

static bool pre_tokenizer_read(struct reader *r, const struct tree *t, const struct node *n, const char *type) {
    struct steps *to = &r->t->splitters;
    if (r->is_byte_level) return wrong(r, "a pre-tokenizer after \"ByteLevel\" (need that to be the last)");
    if (!strcmp(type, "ByteLevel")) {
        r->is_byte_level = true;
        if (tree_flag(t, n, "add_prefix_space", true) &&
            !steps_add(to, (struct step){.kind = STEP_BYTE_LEVEL, .is_prefixed = true}))
            return false;
        if (!tree_flag(t, n, "use_regex", true)) return true;
        return steps_add(to, (struct step){.kind = STEP_SPLIT, .scan = scanner_find(scanner_gpt2_pattern)});
    }
    if (!strcmp(type, "Split")) return split_read(r, to, t, n);
    if (!strcmp(type, "Digits"))
        return steps_add(to,
                         (struct step){.kind = STEP_DIGITS, .is_single = tree_flag(t, n, "individual_digits", false)});
    if (!strcmp(type, "Metaspace")) return metaspace_read(r, to, t, n);
    return refuse(r, "pre-tokenizer", type, "ByteLevel, Split, Digits, Metaspace or a Sequence of them");
}

static bool decoder_read(struct reader *r, const struct tree *t, const struct node *n, const char *type) {
    struct steps *to = &r->t->decoders;
    if (!strcmp(type, "ByteLevel"))
        return r->is_byte_level ? steps_add(to, (struct step){.kind = STEP_BYTE_LEVEL})
                                : wrong(r, "the decoder \"ByteLevel\" without the pre-tokenizer of that name");
    if (!strcmp(type, "ByteFallback")) return steps_add(to, (struct step){.kind = STEP_BYTE_FALLBACK});
    if (!strcmp(type, "Fuse")) return steps_add(to, (struct step){.kind = STEP_FUSE});
    if (!strcmp(type, "Metaspace")) return metaspace_read(r, to, t, n);
    if (!strcmp(type, "Replace")) {
        struct step step = {.kind = STEP_REPLACE};
        const bool ok = pattern_set(r, &step, t, n) && with_set(r, &step, t, n, "content");
        return step_keep(to, step, ok);
    }
    if (!strcmp(type, "Strip")) {
        struct step step = {.kind = STEP_STRIP};
        bool ok = with_set(r, &step, t, n, "content");
        step.start = tree_size(tree_get(t, n, "start"));
        step.stop = tree_size(tree_get(t, n, "stop"));
        if (ok && (step.start < 0 || step.stop < 0 || !step.with_bytes)) ok = wrong(r, "a \"Strip\" without numbers");
        return step_keep(to, step, ok);
    }
    return refuse(r, "decoder", type, "ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip or a Sequence of them");
}

/* ---- The template ---- */

static bool template_put(int32_t **list, int *n, int64_t id) {
    int32_t *grown = memory_resize(*list, ((size_t)*n + 1) * sizeof *grown);
    if (!grown) return error_memory(((size_t)*n + 1) * sizeof *grown, "a template");
    *list = grown;
    grown[(*n)++] = (int32_t)id;
    return true;
}

/* The ids of a special token of the template, before or behind the text. */
static bool template_token(struct reader *r, const struct tree *t, const struct node *n, const char *name,
                           bool is_after) {
    tl_tokenizer *to = r->t;
    const struct node *token = tree_get(t, tree_get(t, n, "special_tokens"), name), *ids = tree_get(t, token, "ids");
    if (!ids || ids->kind != NODE_ARRAY)
        return refuse(r, "template's token", name, "one of its special_tokens, with ids");
    for (const struct node *id = tree_first(t, ids); id; id = tree_next(t, id)) {
        if (!vocabulary_has(&to->vocabulary, tree_size(id)))
            return refuse(r, "template's token", name, "ids of tokens");
        if (!(is_after ? template_put(&to->after, &to->n_after, tree_size(id))
                       : template_put(&to->before, &to->n_before, tree_size(id))))
            return false;
    }
    return true;
}

static bool post_processor_read(struct reader *r, const struct tree *t, const struct node *n, const char *type) {
    if (!strcmp(type, "ByteLevel")) return true; /* it moves offsets only */
    if (strcmp(type, "TemplateProcessing"))
        return refuse(r, "post-processor", type, "ByteLevel, TemplateProcessing or a Sequence of them");
    if (r->t->n_before || r->t->n_after) return wrong(r, "more than one \"TemplateProcessing\"");
    bool is_after = false;
    const struct node *single = tree_get(t, n, "single");
    for (const struct node *item = tree_first(t, single); item; item = tree_next(t, item)) {
        const struct node *special = tree_get(t, item, "SpecialToken");
        const char *name = special ? tree_text(t, special, "id") : tree_text(t, tree_get(t, item, "Sequence"), "id");
        if (!special && (strcmp(name, "A") || is_after))
            return wrong(r, "a template without its text, \"A\", exactly once");
        if (special && !template_token(r, t, n, name, is_after)) return false;
        is_after |= !special;
    }
    return is_after || wrong(r, "a template without its text, \"A\", exactly once");
}

/* ---- Added tokens ---- */

static bool added_read(struct reader *r) {
    static const char *const names[] = {"special", "normalized", "lstrip", "rstrip", "single_word"};
    static const unsigned flags[] = {ADDED_SPECIAL, ADDED_NORMALIZED, ADDED_LSTRIP, ADDED_RSTRIP, ADDED_SINGLE_WORD};
    struct scan *s = &r->s;
    struct tree tree = {0};
    bool ok = true;
    if (scan_word(s, "null")) return true;
    for (bool more = scan_open(s, '['); more && ok; more = ok && scan_next(s, ']')) {
        ok = tree_read(&tree, s);
        if (!ok) break;
        const struct node *root = tree_root(&tree), *text = tree_get(&tree, root, "content");
        struct token_entry entry = {.id = tree_size(tree_get(&tree, root, "id"))};
        if (!text || text->kind != NODE_TEXT || entry.id < 0) {
            ok = scan_fail(s, "an added token without \"id\" or \"content\"");
            break;
        }
        entry.at = (uint32_t)(text->text - s->begin);
        entry.bytes = (uint32_t)text->bytes;
        for (int i = 0; i < 5; i++)
            if (tree_flag(&tree, root, names[i], false)) entry.flags |= flags[i];
        ok = r->n_added < r->added_capacity ||
             memory_grow((void **)&r->added, &r->added_capacity, r->n_added, sizeof *r->added) ||
             (error_memory(sizeof entry, "added tokens"), scan_fail(s, "no memory"));
        if (ok) r->added[r->n_added++] = entry;
    }
    tree_free(&tree);
    return ok && !s->problem;
}

/* Into the vocabulary, where they may be already; before the bytes of GPT-2's writing are undone. */
static bool added_make(struct reader *r) {
    struct vocabulary *v = &r->t->vocabulary;
    for (size_t i = 0; i < r->n_added; i++) {
        const struct token_entry *a = &r->added[i];
        const uint8_t *text = (const uint8_t *)r->s.begin + a->at;
        const int32_t known = vocabulary_find(v, text, a->bytes);
        if (known >= 0 && known != a->id)
            return error_set(TL_ERROR_USE, "%s: an added token has the id %lld, and %d in the vocabulary", r->path,
                             (long long)a->id, known);
        if (known < 0 && !vocabulary_add(v, a->id, text, a->bytes, true, r->path)) return false;
        v->tokens[a->id].is_special = a->flags & ADDED_SPECIAL;
    }
    return true;
}

/* Those that are found in normalized text are normalized themselves. */
static bool added_normalize(struct reader *r) {
    struct encoder *e = encoder_new();
    bool ok = e != NULL;
    for (size_t i = 0; i < r->n_added && ok; i++) {
        const struct token_entry *a = &r->added[i];
        const uint8_t *text = (const uint8_t *)r->s.begin + a->at;
        if (!a->bytes) continue;
        flow_begin(&e->flow, text, NULL, a->bytes, 0);
        if (a->flags & ADDED_NORMALIZED) ok = steps_normalize(&r->t->normalizers, e, false, true);
        if (ok && a->flags & ADDED_NORMALIZED)
            ok = vocabulary_set_text(&r->t->vocabulary, (int32_t)a->id, e->flow.text, e->flow.n);
        ok = ok && added_add(&r->t->added, e->flow.text, e->flow.n, (int32_t)a->id, a->flags);
    }
    encoder_free(e);
    return ok;
}

/* ---- The file ---- */

static bool file_scan(struct reader *r, struct model *m) {
    static const char *const sections[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder"};
    struct scan *s = &r->s;
    for (bool more = scan_open(s, '{'); more; more = scan_next(s, '}')) {
        const char *key = scan_key(s);
        if (!key) break;
        int section = 0;
        while (section < 4 && strcmp(key, sections[section])) section++;
        const bool ok = section < 4                    ? tree_read(&r->trees[section], s)
                        : !strcmp(key, "added_tokens") ? added_read(r)
                        : !strcmp(key, "model")        ? model_read(r, m)
                                                       : scan_skip(s);
        if (!ok) break;
    }
    if (!s->problem) scan_end(s);
    /* A problem with more to say is recorded already. */
    return !s->problem || error_set(TL_ERROR_USE, "%s: byte %td: %s", r->path, s->at - s->begin, s->problem);
}

static bool file_make(struct reader *r, const struct model *m) {
    const struct tree *t = r->trees;
    tl_tokenizer *to = r->t;
    if (!model_make(r, m) || !added_make(r)) return false;
    if (!steps_read(r, &t[NORMALIZER], tree_root(&t[NORMALIZER]), "normalizers", normalizer_read, 8)) return false;
    if (!steps_read(r, &t[PRE_TOKENIZER], tree_root(&t[PRE_TOKENIZER]), "pretokenizers", pre_tokenizer_read, 8))
        return false;
    if (!steps_read(r, &t[DECODER], tree_root(&t[DECODER]), "decoders", decoder_read, 8)) return false;
    if (!steps_read(r, &t[POST_PROCESSOR], tree_root(&t[POST_PROCESSOR]), "processors", post_processor_read, 8))
        return false;
    to->is_byte_level = r->is_byte_level;
    to->is_joined_by_spaces = !tree_root(&t[DECODER]);
    if (r->is_byte_level && to->has_fallback) return wrong(r, "\"byte_fallback\" with \"ByteLevel\"");
    to->may_cut_spaces = spaces_may_be_cut(to);
    if (!added_normalize(r)) return false;
    if (r->is_byte_level) tokenizer_bytes_from_characters(to);
    return tokenizer_finish(to);
}

tl_tokenizer *tokenizer_read_json(char *text, size_t bytes, const char *path) {
    struct reader r = {.t = tokenizer_new(), .path = path, .s = scan_begin(text, bytes)};
    struct model m = {{0}, false};
    if (r.t) vocabulary_limit(&r.t->vocabulary, bytes);
    const bool ok = r.t && file_scan(&r, &m) && file_make(&r, &m);
    for (int i = 0; i < N_SECTIONS; i++) tree_free(&r.trees[i]);
    memory_free(r.merges);
    memory_free(r.added);
    if (ok) return r.t;
    tl_tokenizer_free(r.t);
    return NULL;
}

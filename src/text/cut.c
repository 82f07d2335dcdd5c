/* cut.c: where a text may be cut, so that its parts can be encoded by themselves.
 *
 * Such a place is one that nothing sees across: the tokens before and behind it are those of the two texts alone.
 * scanner_cut has the places that the well-known patterns, and splitting at U+2581, allow. None of them is inside or at
 * the edge of an added token. CUT_PUNCTUATION is not used with normalizers: punctuation may turn into something else. A
 * tokenizer with a pattern of its own gives no such promise, so its texts stay whole; so do those of one that neither
 * cuts words nor keeps merges from crossing spaces.
 */
#include "text/tokenizer.h"

static bool splits_safely(const tl_tokenizer *t) {
    bool is_cut = t->may_cut_spaces;
    for (size_t i = 0; i < t->splitters.n; i++) {
        const struct step *s = &t->splitters.at[i];
        if (s->kind == STEP_SPLIT && !s->scan) return false;
        if (s->kind == STEP_METASPACE && !s->is_split && !t->may_cut_spaces) return false;
        if (s->kind == STEP_BYTE_LEVEL && s->is_prefixed) return false;
        is_cut |= s->kind == STEP_SPLIT || s->kind == STEP_METASPACE;
    }
    for (size_t i = 0; i < t->normalizers.n; i++) {
        const struct step *s = &t->normalizers.at[i];
        const bool is_space = s->kind == STEP_REPLACE && s->pattern && s->pattern_bytes == 1 && *s->pattern == ' ';
        if (s->kind == STEP_STRIP || (s->kind == STEP_REPLACE && !is_space)) return false;
    }
    return is_cut;
}

void encode_cuts(struct encode_plan *plan) {
    const tl_tokenizer *t = plan->t;
    plan->may_cut_anywhere =
        t->merges.n == 0 && !t->splitters.n && !t->normalizers.n && !t->added.n && !t->is_unknown_fused;
    plan->may_cut = plan->may_cut_anywhere || splits_safely(t);
}

static bool is_cut(const tl_tokenizer *t, const uint8_t *text, size_t n, size_t at) {
    const enum scanner_cut cut = scanner_cut(text, n, at);
    if (cut == CUT_NONE || cut == CUT_SPACE) return cut == CUT_SPACE;
    const bool is_metaspace = t->may_cut_spaces || (t->splitters.n && t->splitters.at[0].kind == STEP_METASPACE);
    return !is_metaspace && (cut == CUT_NEWLINE || !t->normalizers.n);
}

size_t encode_cut(const struct encode_plan *plan, const uint8_t *text, size_t n, size_t least) {
    const struct added *added = &plan->t->added;
    const size_t tail = added->longest + CUT_TAIL;
    if (!plan->may_cut || n <= tail) return 0;
    for (size_t at = n - tail; at > least; at--) {
        if ((text[at] & 0xc0) == 0x80) continue;
        if ((plan->may_cut_anywhere || is_cut(plan->t, text, n, at)) && !added_is_near(added, plan->modes, text, n, at))
            return at;
    }
    return 0;
}

#include "text/parts.h"

#include "base/error.h"
#include "base/memory.h"

/* Some parts per thread in a few megabytes, and long enough to encode at full speed. */
enum { PART_BYTES = 128 << 10 };

static bool arrays_grow(struct parts *p) {
    size_t capacity = p->capacity ? 2 * p->capacity : 256;
    const char **texts = memory_resize(p->texts, capacity * sizeof *texts);
    if (texts) p->texts = texts;
    size_t *bytes = texts ? memory_resize(p->bytes, capacity * sizeof *bytes) : NULL;
    if (bytes) p->bytes = bytes;
    bool *is_later = bytes ? memory_resize(p->is_later, capacity * sizeof *is_later) : NULL;
    if (!is_later) return error_memory(capacity * sizeof *texts, "parts of texts");
    p->is_later = is_later;
    p->capacity = capacity;
    return true;
}

static bool part_put(struct parts *p, const char *text, size_t bytes, bool is_later) {
    if (p->n == p->capacity && !arrays_grow(p)) return false;
    p->texts[p->n] = text;
    p->bytes[p->n] = bytes;
    p->is_later[p->n++] = is_later;
    return true;
}

bool parts_add(struct parts *p, const struct encode_plan *plan, const char *text, size_t bytes, bool is_later) {
    for (size_t seen = PART_BYTES, from = 0; plan->may_cut && bytes > seen;) {
        size_t cut = encode_cut(plan, (const uint8_t *)text, seen, from);
        if (!cut) { /* a long word: look further */
            from = seen > plan->t->added.longest + CUT_TAIL ? seen - plan->t->added.longest - CUT_TAIL : 0;
            seen *= 2;
            continue;
        }
        if (!part_put(p, text, cut, is_later)) return false;
        text += cut;
        bytes -= cut;
        is_later = true;
        seen = PART_BYTES;
        from = 0;
    }
    return part_put(p, text, bytes, is_later);
}

void parts_free(struct parts *p) {
    memory_free(p->texts);
    memory_free(p->bytes);
    memory_free(p->is_later);
    *p = (struct parts){0};
}

#include "text/unicode.h"

#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "text/unicode_list.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- Classes ---- */

/* Unassigned and private planes share one block; about 210 blocks differ. */
enum { BLOCKS = 320 };
uint16_t unicode_block[0x110000 >> 8];
uint8_t unicode_flags[BLOCKS][256];

static const uint8_t category_flags[UNICODE_CATEGORIES] = {
    [UNICODE_LU] = UNICODE_UPPER,    [UNICODE_LT] = UNICODE_UPPER,    [UNICODE_LL] = UNICODE_LOWER,
    [UNICODE_LM] = UNICODE_CASELESS, [UNICODE_LO] = UNICODE_CASELESS, [UNICODE_MN] = UNICODE_MARK,
    [UNICODE_MC] = UNICODE_MARK,     [UNICODE_ME] = UNICODE_MARK,     [UNICODE_ND] = UNICODE_NUMBER,
    [UNICODE_NL] = UNICODE_NUMBER,   [UNICODE_NO] = UNICODE_NUMBER,   [UNICODE_ZS] = UNICODE_SPACE,
    [UNICODE_ZL] = UNICODE_SPACE,    [UNICODE_ZP] = UNICODE_SPACE};

/* The index of the run that holds c. */
static size_t run_of(const uint32_t *runs, size_t n, int shift, uint32_t c) {
    size_t low = 0, high = n;
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        if (runs[middle] >> shift <= c) low = middle;
        else high = middle;
    }
    return low;
}

static enum unicode_category category_of(uint32_t c) {
    return (enum unicode_category)(category_runs[run_of(category_runs, COUNT(category_runs), 5, c)] & 31);
}

static bool is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || c == 0x85 || category_flags[category_of(c)] == UNICODE_SPACE;
}

static uint8_t flags_of(uint32_t c, enum unicode_category category) {
    if (c == '\n' || c == '\r') return UNICODE_SPACE | UNICODE_NEWLINE;
    return (c >= 9 && c <= 13) || c == 0x85 ? UNICODE_SPACE : category_flags[category];
}

enum { HANGUL = 0xac00, HANGUL_L = 0x1100, HANGUL_V = 0x1161, HANGUL_T = 0x11a7, N_V = 21, N_T = 28, N_HANGUL = 11172 };

static unsigned combining_class(uint32_t c) {
    if (c < 0x300 || c & UNICODE_INVALID) return 0;
    return c < class_runs[0] >> 8 ? 0 : class_runs[run_of(class_runs, COUNT(class_runs), 8, c)] & 255;
}

/* How two characters compose. A composed pair is in an open hash by both; 941 of them. */
enum { PAIR_SLOTS = 4096 };
static struct { uint32_t first, second, composed; } pairs[PAIR_SLOTS];
static uint16_t compatible_at[COUNT(compatible_list)], n_compatible; /* where entries begin, for bisection */

static size_t pair_slot(uint32_t first, uint32_t second) {
    size_t slot = (first * 0x9e3779b1u ^ second * 0x85ebca6bu) >> 20;
    while (pairs[slot].composed && (pairs[slot].first != first || pairs[slot].second != second))
        slot = (slot + 1) % PAIR_SLOTS;
    return slot;
}

static void classes_make(void) {
    int n = 0;
    size_t run = 0;
    for (uint32_t block = 0; block < COUNT(unicode_block); block++) {
        INVARIANT(n < BLOCKS);
        for (uint32_t c = block << 8; c < (block + 1) << 8; c++) {
            while (run + 1 < COUNT(category_runs) && category_runs[run + 1] >> 5 <= c) run++;
            unicode_flags[n][c & 255] = flags_of(c, (enum unicode_category)(category_runs[run] & 31));
        }
        int same = n;
        while (same > 0 && memcmp(unicode_flags[same - 1], unicode_flags[n], 256)) same--;
        unicode_block[block] = (uint16_t)(same > 0 ? same - 1 : n);
        n += same == 0;
    }
}

/* Characters that a form may change: a bit per form. */
static uint8_t changes[0x110000];

static void changes_make(void) {
    enum { D = 1 << UNICODE_NFD, C = 1 << UNICODE_NFC, ALL = 15, COMPATIBLE = 1 << UNICODE_NFKC | 1 << UNICODE_NFKD };
    for (size_t i = 0; i < COUNT(canonical_list); i += 3) {
        const uint32_t c = canonical_list[i] & ~UNICODE_INVALID;
        changes[c] |= canonical_list[i] & UNICODE_INVALID ? ALL : D | 1 << UNICODE_NFKD;
        if (!(canonical_list[i] & UNICODE_INVALID)) changes[canonical_list[i + 2]] |= ALL;
    }
    for (size_t i = 0; i < n_compatible; i++) changes[compatible_list[compatible_at[i]] & 0xffffff] |= COMPATIBLE;
    for (uint32_t c = HANGUL; c < HANGUL + N_HANGUL; c++) changes[c] |= D | 1 << UNICODE_NFKD;
    for (uint32_t c = HANGUL_V; c < HANGUL_T + N_T; c++) changes[c] |= ALL;
    for (uint32_t c = 0x300; c < 0x20000; c++)
        if (combining_class(c)) changes[c] |= ALL;
}

bool unicode_is_stable(enum unicode_form form, uint32_t c) { return !(changes[c] >> form & 1); }

static void tables_make(void) {
    classes_make();
    for (size_t i = 0; i < COUNT(canonical_list); i += 3) {
        if (canonical_list[i] & UNICODE_INVALID) continue;
        const size_t slot = pair_slot(canonical_list[i + 1], canonical_list[i + 2]);
        pairs[slot].first = canonical_list[i + 1];
        pairs[slot].second = canonical_list[i + 2];
        pairs[slot].composed = canonical_list[i];
    }
    for (size_t i = 0; i < COUNT(compatible_list); i += 1 + (compatible_list[i] >> 24))
        compatible_at[n_compatible++] = (uint16_t)i;
    changes_make();
}

void unicode_ready(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, tables_make);
}

bool unicode_is_punctuation(uint32_t c) {
    const enum unicode_category category = category_of(c);
    return category >= UNICODE_PC && category <= UNICODE_SO;
}

bool unicode_is_numeric(uint32_t c) {
    for (size_t i = 0; c >= numbers_beyond[0] && i < COUNT(numbers_beyond); i++)
        if (numbers_beyond[i] == c) return true;
    return unicode_class(c) & UNICODE_NUMBER;
}

/* Alphabetic, marks, decimal digits, connecting punctuation, and the two joiners. The letters in circles and squares
 * are symbols that are alphabetic. */
bool unicode_is_word(uint32_t c) {
    const enum unicode_category category = category_of(c);
    if (category >= UNICODE_LU && category <= UNICODE_NL) return true;
    return category == UNICODE_PC || c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) ||
           (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

int unicode_put(uint32_t c, uint8_t to[UNICODE_BYTES]) {
    if (c < 0x80) return to[0] = (uint8_t)c, 1;
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t first[] = {0, 0xc0, 0xe0, 0xf0};
    to[0] = (uint8_t)(first[more] | c >> (6 * more));
    for (int i = 1; i <= more; i++) to[i] = (uint8_t)(0x80 | (c >> (6 * (more - i)) & 0x3f));
    return more + 1;
}

static const char category_names[UNICODE_CATEGORIES][3] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                                           "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                                           "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

static bool is_in_class(uint32_t c, const char *name, size_t length) {
    if (name[0] == 's') return is_space(c);
    if (name[0] == 'd') return category_of(c) == UNICODE_ND;
    if (name[0] == 'w') return unicode_is_word(c);
    /* Of Latin-1, Oniguruma's words have the numbers too; and it leaves out the joiners. */
    if (name[0] == 'r')
        return c < 256 && unicode_class(c) & UNICODE_NUMBER ? true : unicode_is_word(c) && c >> 1 != 0x1006;
    return !strncmp(category_names[category_of(c)], name, length);
}

bool unicode_ranges(const char *name, size_t length, void (*range)(uint32_t first, uint32_t last, void *context),
                    void *context) {
    bool is_known = length == 1 && strchr("sdwr", name[0]);
    for (int i = 0; i < UNICODE_CATEGORIES && (length == 1 || length == 2); i++)
        is_known |= !strncmp(category_names[i], name, length);
    if (!is_known) return false;
    /* A class changes only where a category does, or where one of the single characters above is. */
    static const uint32_t borders[] = {9,       14,      0x85,    0x86,    0x200c,  0x200e,  0x24b6,  0x24ea,
                                       0x1f130, 0x1f14a, 0x1f150, 0x1f16a, 0x1f170, 0x1f18a, 0x110000};
    uint32_t first = 0;
    bool is_inside = false;
    for (size_t run = 0, border = 0, c = 0; c < 0x110000;) {
        const bool is_member = is_in_class((uint32_t)c, name, length);
        if (is_member && !is_inside) first = (uint32_t)c;
        if (!is_member && is_inside) range(first, (uint32_t)c - 1, context);
        is_inside = is_member;
        while (run < COUNT(category_runs) && category_runs[run] >> 5 <= c) run++;
        while (borders[border] <= c) border++;
        c = run < COUNT(category_runs) ? category_runs[run] >> 5 : 0x110000;
        if (borders[border] < c) c = borders[border];
    }
    if (is_inside) range(first, 0x10ffff, context);
    return true;
}

/* ---- Normalization ---- */

static bool piece_add(struct unicode_pieces *to, struct unicode_piece piece) {
    if (to->n == to->capacity && !memory_grow((void **)&to->at, &to->capacity, to->n, sizeof *to->at)) return false;
    to->at[to->n++] = piece;
    return true;
}

static const uint32_t *canonical_find(uint32_t c) {
    size_t low = 0, high = COUNT(canonical_list) / 3;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const uint32_t found = canonical_list[3 * middle] & ~UNICODE_INVALID;
        if (found == c) return &canonical_list[3 * middle];
        if (found < c) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

static const uint32_t *compatible_find(uint32_t c) {
    size_t low = 0, high = n_compatible;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const uint32_t *entry = &compatible_list[compatible_at[middle]], found = *entry & 0xffffff;
        if (found == c) return entry;
        if (found < c) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

/* Appends a character, decomposed. Canonical decompositions are single steps, so the first part may decompose again. */
static bool decompose(struct unicode_pieces *to, bool is_compatible, struct unicode_piece p) {
    if (p.c < 0xa0 || p.c & UNICODE_INVALID) return piece_add(to, p);
    if (p.c - HANGUL < N_HANGUL) {
        const uint32_t s = p.c - HANGUL, t = s % N_T;
        return piece_add(to, (struct unicode_piece){HANGUL_L + s / (N_V * N_T), p.begin, p.end}) &&
               piece_add(to, (struct unicode_piece){HANGUL_V + s % (N_V * N_T) / N_T, p.begin, p.end}) &&
               (t == 0 || piece_add(to, (struct unicode_piece){HANGUL_T + t, p.begin, p.end}));
    }
    const uint32_t *entry = is_compatible ? compatible_find(p.c) : NULL;
    if (entry) {
        for (uint32_t i = 1; i <= *entry >> 24; i++)
            if (!piece_add(to, (struct unicode_piece){entry[i], p.begin, p.end})) return false;
        return true;
    }
    if (!(entry = canonical_find(p.c))) return piece_add(to, p);
    const struct unicode_piece first = {entry[1], p.begin, p.end}, second = {entry[2], p.begin, p.end};
    return decompose(to, is_compatible, first) && (!second.c || decompose(to, is_compatible, second));
}

/* Sorts marks by class, stably, between characters of class 0. A run of marks may be as long as the text, so it is
 * counted out by class rather than inserted one by one. */
static bool marks_sort(struct unicode_piece *at, size_t n) {
    struct unicode_piece *copy = memory_new(n * sizeof *copy);
    size_t starts[257] = {0};
    if (!copy) return false;
    for (size_t i = 0; i < n; i++) starts[combining_class(at[i].c) + 1]++;
    for (int i = 1; i <= 256; i++) starts[i] += starts[i - 1];
    for (size_t i = 0; i < n; i++) copy[starts[combining_class(at[i].c)]++] = at[i];
    memcpy(at, copy, n * sizeof *at);
    memory_free(copy);
    return true;
}

static bool order(struct unicode_piece *at, size_t n) {
    for (size_t i = 0; i < n;) {
        if (combining_class(at[i].c) == 0) {
            i++;
            continue;
        }
        bool is_sorted = true;
        size_t end = i + 1;
        for (; end < n && combining_class(at[end].c); end++)
            is_sorted &= combining_class(at[end - 1].c) <= combining_class(at[end].c);
        if (!is_sorted && !marks_sort(at + i, end - i)) return false;
        i = end;
    }
    return true;
}

static uint32_t compose_pair(uint32_t a, uint32_t b) {
    if (a - HANGUL_L < 19 && b - HANGUL_V < N_V) return HANGUL + ((a - HANGUL_L) * N_V + (b - HANGUL_V)) * N_T;
    if (a - HANGUL < N_HANGUL && (a - HANGUL) % N_T == 0 && b - HANGUL_T - 1 < N_T - 1) return a + (b - HANGUL_T);
    return pairs[pair_slot(a, b)].composed;
}

static size_t compose(struct unicode_piece *at, size_t n) {
    size_t to = 0, starter = SIZE_MAX;
    unsigned before = 0; /* the class of what stands between the starter and here; 256: a starter that does not join */
    for (size_t i = 0; i < n; i++) {
        const unsigned class = combining_class(at[i].c);
        const bool is_blocked = starter == SIZE_MAX || (to - 1 > starter && (before >= class));
        const uint32_t c = is_blocked ? 0 : compose_pair(at[starter].c, at[i].c);
        if (c) {
            at[starter].c = c;
            if (at[i].begin < at[starter].begin) at[starter].begin = at[i].begin;
            if (at[i].end > at[starter].end) at[starter].end = at[i].end;
            continue;
        }
        at[to++] = at[i];
        before = class;
        if (class == 0) starter = to - 1;
    }
    return to;
}

bool unicode_normalize(enum unicode_form form, const uint8_t *text, size_t bytes, struct unicode_pieces *to) {
    const size_t first = to->n;
    const bool is_compatible = form == UNICODE_NFKC || form == UNICODE_NFKD;
    for (size_t i = 0; i < bytes;) {
        int length;
        uint32_t c = unicode_get(text + i, text + bytes, &length);
        if (c == UNICODE_REPLACEMENT && length == 1) c = UNICODE_INVALID | text[i];
        const struct unicode_piece p = {c, (uint32_t)i, (uint32_t)(i + (size_t)length)};
        if (!decompose(to, is_compatible, p)) return false;
        i += (size_t)length;
    }
    if (!order(to->at + first, to->n - first)) return false;
    if (form == UNICODE_NFC || form == UNICODE_NFKC) to->n = first + compose(to->at + first, to->n - first);
    return true;
}

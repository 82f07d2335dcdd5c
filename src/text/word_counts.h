/* word_counts.h: the distinct words of texts of any size, and how often each occurs.
 *
 * Threads take pieces of a text of a few MiB, which end where no word can cross (scanner_cut). Each counts the words of
 * its piece in a table of its own, whose words lie in the piece, and then adds them to the common table. That one is in
 * parts by hash, each with a lock, so memory does not grow with the number of threads. Sums do not depend on the order
 * of the pieces.
 */
#ifndef TEXT_WORD_COUNTS_H
#define TEXT_WORD_COUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "text/added.h"
#include "text/scanner.h"

/* Longer words are cut, so that a file without any white space takes bounded memory. */
#define WORD_COUNTS_MOST ((size_t)16 << 20)

struct word {
    uint64_t count;
    uint32_t at, length; /* in the part's bytes */
};
struct word_part {
    lock lock;
    struct word *words;
    size_t n, capacity;
    uint64_t *slots; /* half of the hash, index + 1; 0: empty */
    size_t mask;
    uint8_t *bytes;
    size_t n_bytes, bytes_capacity;
};
enum { WORD_PARTS = 64 };

struct word_counts {
    struct word_part parts[WORD_PARTS];
    scanner_fn scan;
    struct added special; /* text is cut at these, and they are not counted */
    uint8_t *modes;
    struct word_worker *workers;
    int n_workers;
    uint64_t n_bytes, n_words; /* counted so far */
};

/* Where a text comes from: memory, or an open file. */
struct word_source {
    const uint8_t *text; /* NULL: a file */
    int fd;
    const char *path;
    uint64_t bytes;
};
/* Called by the calling thread with the bytes that are done; false stops. */
typedef bool (*word_progress_fn)(uint64_t done, void *context);

bool word_counts_add(struct word_counts *w, const struct word_source *from, word_progress_fn progress, void *context);
void word_counts_free(struct word_counts *w); /* a struct of zeros is allowed */
/* Frees one part, whose words are then gone. */
void word_part_free(struct word_part *part);

#endif

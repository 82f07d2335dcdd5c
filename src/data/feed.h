/* feed.h: a thread that reads documents ahead, in batches.
 *
 * A batch is some megabytes of text, cut into parts that can be encoded by themselves. How documents are spread over
 * batches changes no token: a document that does not fit is cut where nothing sees across, and one without such a place
 * grows its batch, up to FEED_MOST_HELD bytes. Three batches exist, so memory is bounded by them.
 */
#ifndef DATA_FEED_H
#define DATA_FEED_H

#include "data/documents.h"
#include "text/parts.h"

#define FEED_MOST_HELD ((size_t)256 << 20)

struct feed_position {
    struct documents_position at;
    uint64_t taken; /* bytes of the document behind them */
};

struct batch {
    struct parts parts;         /* those that are not `is_later` begin a document */
    bool is_open;               /* the last document goes on in the next batch */
    bool is_end;                /* there are no more */
    struct feed_position after; /* where to go on */
    uint64_t used, bad;         /* bytes of the files, lines skipped, up to here */
    /* the reader's own: */
    struct documents_text text;
    size_t *begins, n, capacity; /* of documents in the text */
    tl_status status;
    char message[1024];
};

struct feed;
/* Begins at a position. The inputs and the plan stay the caller's. NULL: recorded. */
struct feed *feed_new(const struct inputs *inputs, const struct documents_options *options,
                      const struct encode_plan *plan, struct feed_position from, size_t batch_bytes);
/* The next batch; give it back before the next but one is needed. `is_stopped` is asked a few times per second while
 * it waits (NULL: never): true ends the wait. NULL: an error, which is recorded, or stopped, which is not. */
struct batch *feed_take(struct feed *f, bool (*is_stopped)(void *context), void *context);
void feed_give(struct feed *f, struct batch *b);
void feed_free(struct feed *f); /* ends the thread; NULL allowed */

#endif

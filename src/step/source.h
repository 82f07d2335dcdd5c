/* source.h: the tokens of a run: training data and held-out data. */
#ifndef STEP_SOURCE_H
#define STEP_SOURCE_H

#include "base/file.h"
#include "tally.h"
#include "step/settings.h"

struct source_part {
    tl_token_file *file; /* NULL: none is needed, for a price */
    int64_t first, last; /* tokens first .. last-1; none: both 0 */
};

struct source {
    struct source_part train, held_out;
    bool is_builtin, is_bytes; /* is_bytes: tokens are bytes of text */
};

/* Bytes of built-in stories: as the settings say, or enough that a run of that many steps sees none twice, within
 * bounds. A function of the settings alone. */
int64_t source_stories(const struct settings *s);
/* Opens the files that the settings name, for a model with that vocabulary. The built-in stories are written to a
 * temporary file that is deleted when it is closed; with is_price they are only counted. False: recorded, and nothing
 * is open. */
bool source_open(struct source *source, const struct settings *s, int64_t vocabulary, bool is_price);
/* The same for a run: the built-in stories are a file of its folder, where they are written if they are missing or
 * damaged. */
#define SOURCE_STORIES "stories.txt"
bool source_open_in(struct source *source, const struct settings *s, int64_t vocabulary,
                    const struct file_folder *folder);
bool source_is_builtin(const struct settings *s);
void source_close(struct source *source);

#endif

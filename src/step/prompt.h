/* prompt.h: what samples begin with, where no prompt is given: the first words of a document that the run does not
 * train on.
 *
 * The document is the first one that begins in the held-out part: where the file, or document_token, says that one
 * begins; otherwise behind an empty line, a line's end or a blank, whichever of these the part has first in that order.
 * A text that is yet to be tokenized is divided by bytes. Of the built-in stories it is one that no run gets to. */
#ifndef STEP_PROMPT_H
#define STEP_PROMPT_H

#include "step/settings.h"

enum { PROMPT_WORDS = 4, PROMPT_BYTES = 32 };

/* The words of the settings' data. False: it has none, or cannot be read as text; an error may be recorded. */
bool prompt_of_data(const struct settings *s, char words[PROMPT_BYTES + 1]);

#endif

/* generate.h: how the next token is drawn. */
#ifndef STEP_GENERATE_H
#define STEP_GENERATE_H

#include "tally.h"

/* logits (B,V) -> the next tokens (B,1) i64; `seen` (B,n): the text so far, for a penalty. is_total: logits that are
 * not finite give token 0 and no error. */
tl_tensor *generate_draw(tl_tensor *logits, tl_tensor *seen, const tl_generate_options *o, bool is_total);
bool generate_has_penalty(const tl_generate_options *o);
/* Whether the options are in their ranges. False: recorded, and `what` names the caller. */
bool generate_options_check(const tl_generate_options *o, const char *what);

/* Whether steps have tokens and places in device memory, so that their calls repeat. A new session does so on devices
 * that run behind the host; tests do it elsewhere. */
void session_repeat(tl_session *s, bool is_steady);

#endif

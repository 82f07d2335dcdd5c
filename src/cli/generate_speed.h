/* generate_speed.h: how fast tokens came, and what the memory's bandwidth allows. */
#ifndef CLI_GENERATE_SPEED_H
#define CLI_GENERATE_SPEED_H

#include "tally.h"

/* Steps that read a prompt count as prefill, with every token that they draw; the others are decoding. */
struct speed {
    double prefill_s, decode_s;
    int64_t n_prefilled, n_decoded, n_steps; /* tokens of prompts; tokens drawn by decoding, in this many steps */
    double bytes;                            /* that n_priced of these steps read and wrote, by the ledger */
    int64_t n_priced;
    double bandwidth; /* bytes per second: of the profile, or measured; 0: neither */
    bool is_profiled;
};

/* One step of a session. `n_prompt`: tokens of prompts among those that it reads; `n_rows`: how many texts grow. */
bool speed_step(struct speed *v, tl_session *session, int64_t *tokens, int64_t n_prompt, int64_t n_rows);
/* Looks for the machine's profile; `may_measure`: without one, the bandwidth is measured, in a few tenths of a
 * second. */
void speed_bound(struct speed *v, tl_device *device, bool may_measure);

double speed_decode(const struct speed *v);     /* tokens per second; 0: none were decoded */
double speed_step_bytes(const struct speed *v); /* of one step */
double speed_most(const struct speed *v);       /* tokens per second that the bandwidth allows; 0: it is not known */
void speed_print(const struct speed *v);        /* two lines on stderr */

#endif

#include "cli/generate_speed.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "plan/calibrate.h"
#include "plan/machine.h"

/* The ledger costs a little for every op, so only some steps have one. */
enum { PRICED_EVERY = 32 };

bool speed_step(struct speed *v, tl_session *session, int64_t *tokens, int64_t n_prompt, int64_t n_rows) {
    bool is_decoding = n_prompt == 0, is_priced = is_decoding && v->n_steps % PRICED_EVERY == 0;
    tl_ledger *ledger = is_priced ? tl_ledger_begin("decode") : NULL;
    double began_s = now_s();
    bool ok = tl_session_step(session, tokens);
    double took_s = now_s() - began_s;
    if (ledger && tl_ledger_end(ledger)) {
        tl_totals all = tl_ledger_total(ledger, TL_ALL, NULL);
        v->bytes += tl_count_value(all.bytes_read) + tl_count_value(all.bytes_written);
        v->n_priced++;
    }
    tl_ledger_free(ledger);
    v->n_prefilled += n_prompt;
    *(is_decoding ? &v->decode_s : &v->prefill_s) += took_s;
    if (is_decoding) v->n_steps++, v->n_decoded += n_rows;
    return ok;
}

void speed_bound(struct speed *v, tl_device *device, bool may_measure) {
    struct machine profile;
    char why[200];
    if (v->n_steps < 1) return;
    v->is_profiled = machine_find(&profile, device, why);
    if (v->is_profiled) {
        v->bandwidth = machine_bandwidth_of(&profile, speed_step_bytes(v));
        machine_free(&profile);
    } else if (may_measure) {
        v->bandwidth = calibrate_bandwidth(device, speed_step_bytes(v));
    }
}

double speed_decode(const struct speed *v) { return v->decode_s > 0 ? (double)v->n_decoded / v->decode_s : 0; }
double speed_step_bytes(const struct speed *v) { return v->n_priced ? v->bytes / (double)v->n_priced : 0; }

double speed_most(const struct speed *v) {
    double bytes = speed_step_bytes(v);
    return bytes > 0 ? v->bandwidth / bytes * (double)v->n_decoded / (double)v->n_steps : 0;
}

void speed_print(const struct speed *v) {
    char bytes[32];
    fprintf(stderr, "prefill  %" PRId64 " tokens in %.3f s, %.0f tokens/s\n", v->n_prefilled, v->prefill_s,
            v->prefill_s > 0 ? (double)v->n_prefilled / v->prefill_s : 0);
    if (v->n_steps < 1) return;
    fprintf(stderr, "decode   %" PRId64 " tokens in %.3f s, %.1f tokens/s; %s per ", v->n_decoded, v->decode_s,
            speed_decode(v), bytes_text(speed_step_bytes(v), bytes));
    if (v->n_decoded > v->n_steps) fprintf(stderr, "step of %.3g tokens", (double)v->n_decoded / (double)v->n_steps);
    else fprintf(stderr, "token");
    if (v->bandwidth > 0)
        fprintf(stderr, ": %.1f %% of the %.1f tokens/s that %.1f GB/s allow (%s)\n",
                100 * speed_decode(v) / speed_most(v), speed_most(v), 1e-9 * v->bandwidth,
                v->is_profiled ? "`tally calibrate`" : "measured now");
    else fprintf(stderr, " (`tally calibrate` measures the bandwidth that bounds it)\n");
}

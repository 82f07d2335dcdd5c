/* plan_serve.c: the part of `tally plan --inference` about serving a model. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/plan_options.h"

int serve_find(const struct plan_flags *f, const struct infer_answer *a, struct serve_question *q,
               struct serve_answer *answer) {
    *q = (struct serve_question){.config = a->config,
                                 .prompt = (double)f->settings.seq,
                                 .n_new = (double)f->n_new,
                                 .devices = (double)f->settings.tp,
                                 .target = &f->target,
                                 .options = f->serve};
    q->options.latency_s = f->serve.latency_s / 1e3;
    q->options.price_per_hour = f->options.price_per_hour;
    if (f->serve.draft && !f->serve.draft_tokens) q->options.draft_tokens = 4;
    if (f->serve.draft && !(f->serve.acceptance > 0)) q->options.acceptance = 0.7;
    return serve_price(q, answer) ? 0 : cli_error();
}

static void memory_print(const struct serve_question *q, const struct serve_answer *a) {
    char b[32], c[32], d[32];
    printf("\nserving: weights in %s (%.4g bits%s%s), cache in %s (%.4g bits%s%s)", a->weights->name, a->weights->bits,
           *a->weights->note ? ", " : "", a->weights->note, a->cache->name, a->cache->bits, *a->cache->note ? ", " : "",
           a->cache->note);
    if (q->devices > 1) printf(", on %.0f devices (tensor parallel)", q->devices);
    printf("\n");
    if (a->is_wide) printf("  the chip has no products in %s: they are made in bf16\n", a->weights->name);
    printf("  %s%s of weights, %s for a token of a sequence, %s to work in\n", bytes_text(a->weights_bytes, b),
           q->devices > 1 ? " on each" : "", bytes_text(a->cache_token_bytes, c), bytes_text(a->work_bytes, d));
    printf("  a request of %.0f + %.0f tokens holds %s in blocks of %d, of which %.1f %% stay empty\n", q->prompt,
           q->n_new, bytes_text(a->sequence_bytes, b), (int)(q->options.page ? q->options.page : SERVE_PAGE),
           100 * a->page_waste);
    if (a->largest_batch >= 0)
        printf("  the largest batch that fits: %.0f, with prompts of %d tokens or less at once\n", a->largest_batch,
               (int)(q->options.chunk ? q->options.chunk : SERVE_CHUNK));
    if (a->latency_batch >= 0)
        printf("  the largest batch with %.4g ms for a token or less: %.0f\n", 1e3 * q->options.latency_s,
               a->latency_batch);
}

static void draft_print(const struct serve_question *q, const struct serve_answer *a) {
    char b[32], c[32];
    if (!(a->guessed > 0)) return;
    printf("  %s guesses %d tokens, each accepted with %.2f: %.2f tokens for each pass of %s, after %s of guessing: ",
           q->options.draft, (int)q->options.draft_tokens, q->options.acceptance, a->guessed,
           duration_text(a->verify_s, b), duration_text((double)q->options.draft_tokens * a->draft_s, c));
    printf("%.2f times as fast at batch 1, at most\n", a->speedup);
}

void serve_print(const struct serve_question *q, const struct serve_answer *a) {
    char b[32], c[32], d[32];
    memory_print(q, a);
    if (!a->n_points) return;
    printf("  a prompt of %.0f tokens in %s or more: %s tokens/s\n", q->prompt, duration_text(a->prefill_s, b),
           amount_text(a->prefill_tokens_per_s, c));
    printf("\n  %8s %12s %14s %14s %14s  %-8s%s\n", "batch", "a token in", "tokens/s", "each", "with prompts",
           "bound by", q->options.price_per_hour > 0 ? "   $ per million" : "");
    for (int i = 0; i < a->n_points; i++) {
        const struct serve_point *p = &a->point[i];
        printf("  %8.0f %12s %14s %14.1f %14s  %-8s", p->batch, duration_text(p->decode_s, b),
               amount_text(p->tokens_per_s, c), 1 / p->decode_s, amount_text(p->served_per_s, d),
               p->is_compute ? "compute" : "memory");
        if (p->money > 0) printf(" %15.4f", p->money);
        printf("\n");
    }
    printf("  at most: bandwidth, peaks and wires by their data sheets. With prompts: new requests take the place of\n"
           "  finished ones at once (continuous batching), and their prompts take their share of the time\n");
    draft_print(q, a);
}

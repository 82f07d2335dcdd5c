/* napkin_optimum.c: what published scaling laws say of sizes and data. */
#include <math.h>
#include <stdlib.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/napkin_form.h"
#include "plan/napkin.h"

/* ---- chinchilla ---- */

/* Another form, another data set, and sizes without embeddings: its losses are not to be compared with the others. */
static void kaplan_say(struct answer *a, json_t *laws, double N, double D, double C) {
    static const char source[] = "Kaplan et al. 2020: N without embeddings, training stops early";
    double best_n, best_d;
    napkin_kaplan_optimum(C, &best_n, &best_d);
    const double here = napkin_kaplan_loss(N, D), least = napkin_kaplan_loss(best_n, best_d);
    json_object_set_new(laws, "kaplan-2020",
                        json_pack("{s:s, s:f, s:f, s:f, s:f}", "source", source, "loss", here, "best_parameters",
                                  best_n, "best_tokens", best_d, "best_loss", least));
    fprintf(a->text,
            "  %-18s loss %.4f; best for these FLOPs: N = %.4g, D = %.4g (%.1f per parameter), loss %.4f; %s\n",
            "kaplan-2020", here, best_n, best_d, best_d / best_n, least, source);
}

int form_chinchilla(const struct asked *q, struct answer *a) {
    double r = q->tokens_per_param, N, D, C;
    if ((q->flops > 0) + (q->params > 0) + (q->tokens > 0) != 1)
        return asked_lacks("chinchilla", "give --flops, --params or --tokens");
    if (q->flops > 0) {
        N = sqrt(q->flops / (6 * r));
        answer_formula(a, "N = sqrt(C / (6 x %.4g)) = sqrt(%.4g / %.4g) = %.4g;  D = %.4g N", r, q->flops, 6 * r, N, r);
    } else {
        N = q->params > 0 ? q->params : q->tokens / r;
        answer_formula(a, "D = %.4g N: N = %.4g, D = %.4g;  C = 6 N D", r, N, r * N);
    }
    D = r * N;
    C = 6 * N * D;
    char text[32];
    answer_value(a, "parameters", N, "%s", amount_text(N, text));
    answer_value(a, "tokens", D, "%s", amount_text(D, text));
    answer_value(a, "flops", C, "%.4g", C);
    json_t *laws = json_object();
    for (const struct napkin_law_row *row = napkin_laws; row->name; row++) {
        double best_n, best_d, here = napkin_loss(&row->law, N, D);
        napkin_optimum(&row->law, C, &best_n, &best_d);
        double least = napkin_loss(&row->law, best_n, best_d);
        json_object_set_new(laws, row->name,
                            json_pack("{s:s, s:f, s:f, s:f, s:f}", "source", row->source, "loss", here,
                                      "best_parameters", best_n, "best_tokens", best_d, "best_loss", least));
        fprintf(a->text,
                "  %-18s loss %.4f; best for these FLOPs: N = %.4g, D = %.4g (%.1f per parameter), loss %.4f; %s\n",
                row->name, here, best_n, best_d, best_d / best_n, least, row->source);
    }
    kaplan_say(a, laws, N, D, C);
    json_object_set_new(a->json, "laws", laws);
    return 0;
}

/* ---- repeat, lifetime ---- */

/* The law that is asked for: a published one, or one through runs. 0, or an exit code. */
static int law_find(const char *form, const struct asked *q, const char *usual, struct napkin_law *law,
                    const char **name) {
    static struct napkin_fit fit; /* large */
    struct napkin_run *runs = NULL;
    int n;
    if (!q->runs) {
        const struct napkin_law_row *row = napkin_law_find(q->law ? q->law : usual);
        if (!row) return cli_error();
        *law = row->law;
        *name = row->source;
        return 0;
    }
    int code = runs_get(form, q, RUNS_FINISHED, &runs, &n);
    if (!code && !napkin_fit_loss(runs, n, &(struct napkin_fit_options){.without_draws = true}, &fit))
        code = cli_error();
    free(runs);
    *law = fit.law;
    *name = "fitted to the runs";
    if (!code && !(law->A > 0 && law->B > 0))
        code = asked_bad(form, "the runs do not tell size and data apart (give more, of other sizes and lengths)");
    return code;
}

static void law_say(struct answer *a, const struct napkin_law *law, const char *name) {
    fprintf(a->text, "  %-18s %.4f + %.4g / N^%.4f + %.4g / D^%.4f, %s\n", "law", law->E, law->A, law->alpha, law->B,
            law->beta, name);
    json_object_set_new(a->json, "law",
                        json_pack("{s:f, s:f, s:f, s:f, s:f, s:s}", "E", law->E, "A", law->A, "B", law->B, "alpha",
                                  law->alpha, "beta", law->beta, "source", name));
}

static void size_say(struct answer *a, const char *key, double x) {
    char text[32];
    answer_value(a, key, x, "%s", amount_text(x, text));
}

int form_repeat(const struct asked *q, struct answer *a) {
    struct napkin_law law;
    const char *name;
    const double U = q->unique;
    double N = q->params, D = q->tokens;
    if (!(U > 0)) return asked_lacks("repeat", "--unique is required: how many tokens there are");
    if (q->flops > 0 ? N > 0 || D > 0 : !(N > 0 && D > 0))
        return asked_lacks("repeat", "give --flops, or --params and --tokens");
    int code = law_find("repeat", q, "muennighoff-2023", &law, &name);
    if (code) return code;
    if (q->flops > 0) napkin_repeated_optimum(&law, q->flops, U, &N, &D);
    const double worth = napkin_worth_tokens(D, U), used = fmin(D, U), loss = napkin_repeated_loss(&law, N, D, U);
    const double fresh = napkin_loss(&law, N, D);
    answer_formula(a, "worth = U (1 + R* (1 - exp(-R / R*))), R = D / U - 1: U = %.4g, D = %.4g, R* = %.4g: %.4g", used,
                   D, NAPKIN_REPEAT_TOKENS, worth);
    law_say(a, &law, name);
    size_say(a, "parameters", N);
    size_say(a, "tokens", D);
    answer_value(a, "epochs", D / used, "%.4g", D / used);
    answer_value(a, "worth_tokens", worth, "%.4g: as much as so many tokens that are all different, %.1f %%", worth,
                 100 * worth / D);
    answer_value(a, "best_for_unique", napkin_unique_size(&law, used),
                 "%.4g parameters are best for the different tokens, seen once; more count for less",
                 napkin_unique_size(&law, used));
    answer_value(a, "loss", loss, "%.4f; %.4f if no token were repeated", loss, fresh);
    if (!(q->flops > 0)) return 0;
    double free_n, free_d;
    napkin_optimum(&law, q->flops, &free_n, &free_d);
    answer_value(a, "unlimited_parameters", free_n, "%.4g on %.4g tokens would be best if there were enough", free_n,
                 free_d);
    return 0;
}

int form_lifetime(const struct asked *q, struct answer *a) {
    struct napkin_law law;
    const char *name;
    const double T = q->inference_tokens,
                 dear = (q->mfu > 0 ? q->mfu : 1) / (q->inference_mfu > 0 ? q->inference_mfu : 1);
    double N = q->params, D = q->tokens, loss = q->loss, best_n, best_d;
    if (!(T > 0))
        return asked_lacks("lifetime", "--inference-tokens is required: how many the model will read and write");
    if (!(N > 0) && !(loss > 0))
        return asked_lacks("lifetime", "give --params, of the model as you would train it, or --loss");
    if ((q->mfu > 0) != (q->inference_mfu > 0))
        return asked_lacks("lifetime", "--mfu and --inference-mfu count together: of training, and of inference");
    int code = law_find("lifetime", q, "besiroglu-2024", &law, &name);
    if (code) return code;
    if (N > 0) {
        if (!(D > 0)) D = pow(law.beta * law.B / (law.alpha * law.A), 1 / law.beta) * pow(N, law.alpha / law.beta);
        loss = napkin_loss(&law, N, D);
    }
    if (!(loss > law.E * (1 + 1e-9)))
        return asked_bad("lifetime", "no model reaches a loss of %.4f by this law: its floor is %.4f", loss, law.E);
    napkin_lifetime_optimum(&law, loss, T * dear, &best_n, &best_d);
    const double most = 6 * best_n * best_d + 2 * best_n * T * dear;
    answer_formula(a, "least 6 N D + 2 N T%s with L(N, D) = %.4f, T = %.4g: N = %.4g, D = %.4g",
                   dear != 1 ? " x MFU / inference MFU" : "", loss, T, best_n, best_d);
    law_say(a, &law, name);
    size_say(a, "parameters", best_n);
    size_say(a, "tokens", best_d);
    answer_value(a, "tokens_per_param", best_d / best_n, "%.1f", best_d / best_n);
    answer_value(a, "loss", loss, "%.4f", loss);
    answer_value(a, "flops", 6 * best_n * best_d + 2 * best_n * T, "%.4g: %.4g to train, %.4g to use",
                 6 * best_n * best_d + 2 * best_n * T, 6 * best_n * best_d, 2 * best_n * T);
    if (!(N > 0)) return 0;
    const double given = 6 * N * D + 2 * N * T * dear;
    answer_value(a, "saved", 1 - most / given, "%.1f %% of what %.4g parameters on %.4g tokens take%s",
                 100 * (1 - most / given), N, D, dear != 1 ? ", in device time" : "");
    return 0;
}

/* train.c: runs for programs: settings go in, news and summary come out, all as JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "step/price.h"
#include "step/tokens.h"
#include "train/run.h"

/* ---- News and summary as JSON ---- */

static void put(json_t *object, const char *name, json_t *value, bool *ok) {
    *ok = json_object_set_new(object, name, value) == 0 && *ok; /* takes NULL for failure */
}
static void put_number(json_t *object, const char *name, double value, bool *ok) {
    put(object, name, isfinite(value) ? json_real(value) : json_null(), ok);
}
static void put_known(json_t *object, const char *name, double value, bool *ok) {
    if (isfinite(value)) put(object, name, json_real(value), ok);
}

static json_t *finish(json_t *object, bool ok) {
    if (object && ok) return object;
    json_decref(object);
    error_memory(4096, "news of a run");
    return NULL;
}

json_t *run_sets_json(const struct run_sets *sets) {
    json_t *o = json_object();
    bool ok = o != NULL;
    for (int i = 0; ok && i < sets->n; i++) {
        const double loss = sets->at[i].loss;
        ok = json_object_set_new(o, sets->at[i].name, isfinite(loss) ? json_real(loss) : json_null()) == 0;
    }
    if (ok) return o;
    json_decref(o);
    return NULL;
}

json_t *run_news_json(const struct run_news *n) {
    json_t *o = json_object();
    bool ok = o != NULL;
    put(o, "step", json_integer(n->step), &ok);
    put(o, "steps", json_integer(n->steps), &ok);
    put_number(o, "loss", n->loss, &ok);
    put_known(o, "grad_norm", n->norm, &ok);
    put_number(o, "lr", n->lr, &ok);
    put_known(o, "step_s", n->step_s, &ok);
    put_known(o, "tokens_per_s", n->tokens_per_s, &ok);
    put_known(o, "flops_per_s", n->flops_per_s, &ok);
    put_known(o, "mfu_palm", n->mfu, &ok);
    put_known(o, "hfu", n->hfu, &ok);
    put_known(o, "wait_share", n->wait_share, &ok);
    put_known(o, "eta_s", n->eta_s, &ok);
    put(o, "peak_bytes", json_integer((json_int_t)n->peak_bytes), &ok);
    put_known(o, "held_out", n->held_out, &ok);
    put_known(o, "bits_per_byte", n->bits_per_byte, &ok);
    if (n->sets && n->sets->n) put(o, "held_out_sets", run_sets_json(n->sets), &ok);
    put_known(o, "reward_margin", n->margin, &ok);
    put_known(o, "reward_accuracy", n->accuracy, &ok);
    if (n->text) put(o, "text", json_string(n->text), &ok);
    return finish(o, ok);
}

static json_t *profile_rows_json(const struct profile *p, const struct profile_list *list) {
    json_t *rows = json_array();
    bool ok = rows != NULL;
    for (size_t i = 0; i < list->n; i++) {
        const struct profile_row *row = &list->rows[i];
        json_t *o = json_object();
        put(o, "name", json_string(row->name), &ok);
        put(o, "phase", json_string(row->phase), &ok);
        put(o, "calls", json_real((double)row->calls / (double)p->n_steps), &ok);
        put(o, "ms", json_real(1e3 * row->time_s / (double)p->n_steps), &ok);
        put(o, "share", json_real(row->time_s / p->step_s), &ok);
        if (p->floors) put(o, "floor_ms", json_real(1e3 * row->floor_s / (double)p->n_steps), &ok);
        put(o, "gflops_per_s", json_real(profile_rate(row->flops, row->time_s)), &ok);
        put(o, "gb_per_s", json_real(profile_rate(row->bytes, row->time_s)), &ok);
        ok = json_array_append_new(rows, o) == 0 && ok;
    }
    return finish(rows, ok);
}

static json_t *profile_json(const struct profile *p) {
    json_t *o = json_object();
    bool ok = o != NULL;
    put(o, "steps", json_integer(p->n_steps), &ok);
    put(o, "step_ms", json_real(1e3 * p->step_s / (double)p->n_steps), &ok);
    put(o, "outside_kernels_ms", json_real(1e3 * (p->step_s - profile_kernel_s(p)) / (double)p->n_steps), &ok);
    if (p->floors) {
        put(o, "floor_ms", json_real(1e3 * profile_floor_s(p) / (double)p->n_steps), &ok);
        put(o, "floors", json_string(p->floors), &ok);
    }
    put(o, "by_op", profile_rows_json(p, &p->ops), &ok);
    put(o, "by_module", profile_rows_json(p, &p->modules), &ok);
    return finish(o, ok);
}

static json_t *times_json(const struct run_times *t) {
    json_t *o = json_object();
    bool ok = o != NULL;
    put_number(o, "start_s", t->start_s, &ok);
    put_number(o, "first_steps_s", t->first_steps_s, &ok);
    put_number(o, "steps_s", t->steps_s, &ok);
    put_number(o, "evaluation_s", t->evaluation_s, &ok);
    put_number(o, "sampling_s", t->sampling_s, &ok);
    put_number(o, "saving_s", t->saving_s, &ok);
    return finish(o, ok);
}

/* Seconds of steps, of messages, and of waiting for these. */
static json_t *ranks_json(const struct run_summary *m) {
    json_t *rows = json_array();
    for (int k = 0; k < m->n_ranks && k < RUN_RANKS; k++) {
        const struct run_rank *r = &m->ranks[k];
        json_array_append_new(rows, json_pack("{s:i, s:f, s:f, s:f}", "rank", k, "steps_s", r->steps_s,
                                              "communication_s", r->comm_s, "exposed_s", r->exposed_s));
    }
    return rows;
}

json_t *run_summary_json(const struct settings *s, enum run_end end, const struct run_summary *m) {
    static const char *const names[] = {"done", "stopped", "not finite", "failed"};
    json_t *o = json_object();
    bool ok = o != NULL;
    put(o, "end", json_string(names[end]), &ok);
    put(o, "out", json_string(s->out), &ok);
    put(o, "steps", json_integer(m->steps), &ok);
    put(o, "tokens", json_integer(m->tokens), &ok);
    put(o, "parameters", json_integer(m->n_parameters), &ok);
    put(o, "trained_parameters", json_integer(m->n_trained), &ok);
    put_number(o, "seconds", m->seconds, &ok);
    put(o, "times", times_json(&m->times), &ok);
    put_number(o, "tokens_per_s", m->tokens_per_s, &ok);
    put_number(o, "flops", m->flops, &ok);
    put_number(o, "flops_per_s", m->flops_per_s, &ok);
    put_known(o, "mfu_palm", m->mfu, &ok);
    put_known(o, "hfu", m->hfu, &ok);
    put(o, "peak_bytes", json_integer((json_int_t)m->peak_bytes), &ok);
    put_number(o, "loss", m->loss, &ok);
    put_known(o, "held_out", m->held_out, &ok);
    put_known(o, "bits_per_byte", m->bits_per_byte, &ok);
    if (m->sets.n) put(o, "held_out_sets", run_sets_json(&m->sets), &ok);
    put_known(o, "best", m->best, &ok);
    if (m->best_step >= 0) put(o, "best_step", json_integer(m->best_step), &ok);
    put_known(o, "floor", m->floor, &ok);
    if (m->early_of) put(o, "early_of", json_integer(m->early_of), &ok);
    put_known(o, "noise_scale", m->noise_scale, &ok);
    put_known(o, "reward_margin", m->margin, &ok);
    put_known(o, "reward_accuracy", m->accuracy, &ok);
    put_known(o, "held_out_reward_accuracy", m->held_out_accuracy, &ok);
    if (m->causal_pairs) put(o, "attention_pairs", json_integer(m->pairs), &ok);
    if (m->causal_pairs) put(o, "causal_pairs", json_integer(m->causal_pairs), &ok);
    put(o, "skipped", json_integer(m->n_skipped), &ok);
    put(o, "differences", json_integer(m->differences), &ok);
    if (m->n_ranks > 1) {
        put(o, "ranks", json_integer(m->n_ranks), &ok);
        put(o, "slowest_rank", json_integer(m->slowest_rank), &ok);
        put_number(o, "sent_bytes", m->sent_bytes, &ok);
        put_number(o, "communication_s", m->mean_rank.comm_s, &ok);
        put_number(o, "exposed_s", m->mean_rank.exposed_s, &ok);
        put_number(o, "imbalance", m->imbalance, &ok);
        if (m->load > 0) put_number(o, "expert_load", m->load, &ok);
        if (m->load > 0) put_number(o, "expert_load_most", m->load_most, &ok);
        put(o, "by_rank", ranks_json(m), &ok);
    }
    if (m->was_done) put(o, "was_done", json_true(), &ok);
    if (s->fast) put(o, "fast", json_true(), &ok);
    if (!isnan(m->graph_share)) put_number(o, "graph_share", m->graph_share, &ok);
    if (m->foreign_bytes) put(o, "foreign_bytes", json_integer((json_int_t)m->foreign_bytes), &ok);
    if (*m->problem) put(o, "problem", json_string(m->problem), &ok);
    if (m->text) put(o, "text", json_string(m->text), &ok);
    if (m->profile.n_steps) put(o, "profile", profile_json(&m->profile), &ok);
    return finish(o, ok);
}

/* Frees the JSON. */
static char *text_of(json_t *json) {
    char *text = json ? json_print(json, JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17)) : NULL;
    if (json && !text) error_memory(4096, "a summary");
    json_decref(json);
    return text;
}

/* ---- The calls ---- */

struct telling {
    tl_train_fn tell;
    void *context;
    volatile sig_atomic_t stop;
};

static void tell(void *context, const struct run_news *news) {
    struct telling *t = context;
    char *text = text_of(run_news_json(news));
    if (!text || !t->tell(text, t->context)) t->stop = 1;
    free(text);
}

char *tl_train(const char *settings, tl_train_fn listener, void *context) {
    struct settings s = settings_default();
    struct telling telling = {listener, context, 0};
    const struct run_listener run_listener = {
        .tell = listener ? tell : NULL, .context = &telling, .stop = &telling.stop, .lists_memory = true};
    struct run_summary summary = run_summary_empty();
    tl_tokenizer *made = NULL;
    if (!settings_take(&s, settings)) return NULL;
    enum run_end end = RUN_STOPPED; /* while its tokenizer was learned */
    if (run_tokenizer_ready(&s, &made, NULL)) {
        run_defaults(&s);
        end = run_train(&s, &run_listener, &summary);
    } else if (!stop_is_asked()) return NULL;
    else tl_error_clear();
    tl_tokenizer_free(made);
    char *text = end == RUN_FAILED ? NULL : text_of(run_summary_json(&s, end, &summary));
    free(summary.text);
    profile_free(&summary.profile);
    return text;
}

char *tl_train_price(const char *settings) {
    struct settings s = settings_default();
    tl_tokenizer *made;
    if (!settings_take(&s, settings) || !tokens_ready(&s, &made, NULL)) return NULL;
    run_defaults(&s);
    char *price = price_text(&s);
    tl_tokenizer_free(made);
    return price;
}

char *tl_train_settings(void) {
    struct settings s = settings_default();
    return settings_json(&s);
}

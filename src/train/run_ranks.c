/* run_ranks.c: a run of several processes. The first rank owns the folder and tells; every rank trains, writes its own
 * pieces of checkpoints, and compares its own receipt with its own price. Ranks agree at fixed places, so that one that
 * fails, or is asked to stop, ends all of them in the same place, with one message. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/comm.h"
#include "step/price.h"
#include "nn/model.h"
#include "nn/module.h"
#include "nn/model_parallel.h"
#include "train/identity.h"
#include "train/run_parts.h"

/* ---- Agreeing ---- */

enum { IS_FINE, IS_STOPPED, HAS_FAILED };

struct word {
    int state;
    tl_status status;
    char text[1024];
};

bool run_agree(struct run *r, bool ok) {
    const struct mesh *m = &r->mesh;
    if (m->size <= 1) return ok;
    struct word mine = {.state = ok ? IS_FINE : r->was_stopped ? IS_STOPPED : HAS_FAILED, .status = tl_error()};
    struct word *all = memory_new((size_t)m->size * sizeof *all);
    if (!ok) text_copy(mine.text, sizeof mine.text, tl_error_message());
    if (!all) return error_memory((size_t)m->size * sizeof *all, "words of other ranks");
    tl_error_clear();
    bool is_shared = mesh_share(m, &mine, sizeof mine, all);
    int worst = IS_FINE;
    for (int k = m->size - 1; is_shared && k >= 0; k--) { /* the first rank's own reason before others' */
        if (all[k].state < worst || all[k].state == IS_FINE) continue;
        worst = all[k].state;
        tl_error_clear();
        tl_policy policy = tl_set_error_policy(TL_RETURN);
        if (worst == HAS_FAILED && k) error_set(all[k].status, "rank %d of %d: %s", k, m->size, all[k].text);
        else if (worst == HAS_FAILED) error_set(all[k].status, "%s", all[k].text);
        tl_set_error_policy(policy);
    }
    memory_free(all);
    r->was_stopped = r->was_stopped || worst == IS_STOPPED;
    r->summary->is_told = is_shared && worst != IS_FINE;
    return is_shared && worst == IS_FINE;
}

/* ---- Being stuck ---- */

double run_ranks_patience(const struct run *r, enum run_phase phase) {
    static const double LEAST_S = 30, OTHER_S = 3600;
    int64_t n = r->n_timed - RUN_FIRST_STEPS;
    if (phase == PHASE_BEGINS) return tl_comm_set_timeout(INFINITY);
    if (phase == PHASE_OTHER || n < 1) return tl_comm_set_timeout(OTHER_S);
    return tl_comm_set_timeout(fmax(LEAST_S, 10 * r->summary->times.steps_s / (double)n));
}

/* ---- The same run on every rank ---- */

/* The first setting in which two differ, in words; "": none. */
static void difference_find(const char *mine, const char *theirs, char *words, size_t size) {
    json_t *a = json_parse(theirs, NULL), *b = json_parse(mine, NULL), *value;
    const char *name;
    *words = 0;
    json_object_foreach(a, name, value) {
        const json_t *other = json_object_get(b, name);
        if (*words || json_equal(value, other)) continue;
        char *x = json_print(value, JSON_ENCODE_ANY), *y = json_print(other, JSON_ENCODE_ANY);
        snprintf(words, size, "--%s is %s here, and %s on rank 0", name, y ? y : "?", x ? x : "?");
        for (char *at = words; *at && *at != ' '; at++) *at = *at == '_' ? '-' : *at;
        free(x);
        free(y);
    }
    json_decref(a);
    json_decref(b);
}

/* The text of the first rank, on all of them; memory_free it. */
static char *first_text(const struct run *r, const char *mine) {
    char **all = memory_new((size_t)r->mesh.size * sizeof *all), *first = NULL;
    if (!all) return error_memory((size_t)r->mesh.size * sizeof *all, "texts of other ranks"), NULL;
    if (mesh_texts(&r->mesh, r->mesh.rank == 0 ? mine : NULL, -1, all)) {
        first = all[0];
        for (int k = 1; k < r->mesh.size; k++) memory_free(all[k]);
    }
    memory_free(all);
    return first;
}

bool run_ranks_compare(struct run *r) {
    if (r->mesh.size <= 1) return true;
    char words[600], *mine = settings_json(&r->settings), *first = mine ? first_text(r, mine) : NULL;
    bool ok = first != NULL;
    if (ok && strcmp(mine, first)) {
        difference_find(mine, first, words, sizeof words);
        ok = error_set(TL_ERROR_USE, "%s (every rank needs the same settings)", words);
    }
    memory_free(first);
    free(mine);
    return run_agree(r, ok);
}

/* Takes over what the first rank has found in the folder: its settings, and the checkpoint to resume from. */
static bool folder_follow(struct run *r, const char *first) {
    json_t *root = json_parse(first, NULL);
    const json_t *step = json_object_get(root, "step"), *made_from = json_object_get(root, "made_from");
    tl_tokenizer *ready = r->settings.ready;
    bool is_run = true;
    bool ok = root && settings_take_json(&r->settings, "rank 0", json_object_get(root, "settings"));
    r->settings.ready = ready;
    text_copy(r->changes, sizeof r->changes, json_string_value(json_object_get(root, "changes")));
    ok = ok && folder_peek(&r->folder, r->settings.out, &is_run);
    if (ok && !r->folder.dir)
        ok = error_set(TL_ERROR_IO, "%s: is not there, though rank 0 has made it (need a folder that all ranks share)",
                       r->settings.out);
    if (ok && !r->folder.checkpoints.folder) ok = checkpoints_open(&r->folder.checkpoints, r->folder.dir, false);
    if (ok && json_is_integer(step)) {
        r->found = checkpoint_open_verified(&r->folder.checkpoints, json_integer_value(step));
        r->state = r->found ? json_parse(checkpoint_state(r->found), NULL) : NULL;
        ok = r->state && run_settings_of(r->state, &r->settings, &r->saved);
    }
    r->made_from = ok ? json_incref((json_t *)(uintptr_t)made_from) : NULL;
    json_decref(root);
    return ok;
}

static bool inputs_follow(struct run *r, const tl_model_config *config, const char *weights) {
    char words[RUN_CHANGES_TEXT];
    bool is_there[SOURCE_PARTS];
    memset(is_there, true, sizeof is_there);
    if (!source_open_in(&r->source, &r->settings, config->vocabulary, r->folder.dir)) return false;
    json_t *made_from = identity_new(&r->settings, config, weights, &r->source);
    if (!made_from) return false;
    bool ok = !*identity_compare(r->made_from, made_from, words, sizeof words) ||
              error_set(TL_ERROR_USE, "data or model are not those of rank 0: %s", words);
    json_decref(made_from);
    return ok && source_tokenize(&r->source, &r->settings, r->folder.dir, is_there, NULL, NULL);
}

bool run_ranks_begin(struct run *r, const tl_model_config *config, const char *weights) {
    if (r->mesh.size <= 1) return true;
    char *settings = settings_json(&r->settings), *text = NULL;
    json_t *root = settings && r->mesh.rank == 0 ? json_pack("{s:o, s:O, s:s}", "settings", json_parse(settings, NULL),
                                                             "made_from", r->made_from, "changes", r->changes)
                                                 : NULL;
    if (root && r->found) json_object_set_new(root, "step", json_integer(checkpoint_step(r->found)));
    if (root) text = json_print(root, JSON_REAL_PRECISION(17));
    char *first = first_text(r, text);
    bool ok = first && (r->mesh.rank == 0 || (folder_follow(r, first) && inputs_follow(r, config, weights)));
    json_decref(root);
    free(settings);
    free(text);
    memory_free(first);
    return run_agree(r, ok);
}

/* ---- Steps ---- */

/* What each rank gives; memory_free it. NULL: recorded. */
static int64_t *numbers_share(const struct run *r, int64_t mine) {
    size_t bytes = (size_t)r->mesh.size * sizeof(int64_t);
    int64_t *all = memory_new(bytes);
    if (!all) return error_memory(bytes, "numbers of other ranks"), NULL;
    if (mesh_share(&r->mesh, &mine, sizeof mine, all)) return all;
    memory_free(all);
    return NULL;
}

bool run_ranks_sum(const struct run *r, int64_t *number) {
    if (r->mesh.size <= 1) return true;
    int64_t *all = numbers_share(r, *number);
    *number = 0;
    for (int k = 0; all && k < r->mesh.size; k++) *number += all[k];
    memory_free(all);
    return all != NULL;
}

bool run_ranks_step(const struct run *r, int64_t *step) {
    if (r->mesh.size <= 1) return true;
    int64_t *all = numbers_share(r, *step);
    if (all) *step = all[0];
    memory_free(all);
    return all != NULL;
}

bool run_ranks_cost(const struct run *r, double *flops, double *sent_bytes) {
    if (r->mesh.size <= 1) return true;
    const double mine[2] = {*flops, *sent_bytes};
    double(*all)[2] = memory_new((size_t)r->mesh.size * sizeof *all);
    bool ok = all ? mesh_share(&r->mesh, mine, sizeof mine, all) : error_memory(sizeof mine, "costs of other ranks");
    *flops = 0;
    for (int k = 0; ok && k < r->mesh.size; k++) {
        *flops += all[k][0];
        *sent_bytes = fmax(*sent_bytes, all[k][1]);
    }
    memory_free(all);
    return ok;
}

/* ---- Checkpoints ---- */

/* The entries of all ranks' files, on the first; `mine` elsewhere. */
static json_t *entries_collect(struct run *r, json_t *mine) {
    const struct mesh *m = &r->mesh;
    char *text = mine ? json_print(mine, JSON_COMPACT) : NULL, **all = memory_new((size_t)m->size * sizeof *all);
    bool ok = text && all && mesh_texts(m, text, 0, all);
    json_t *files = json_array();
    for (int k = 0; ok && k < m->size; k++) {
        json_t *theirs = k == 0 || m->rank == 0 ? json_parse(all[k], NULL) : NULL;
        if (m->rank == 0) ok = theirs && json_array_extend(files, theirs) == 0;
        json_decref(theirs);
        memory_free(all[k]);
    }
    memory_free(all);
    free(text);
    if (ok && files) return files;
    json_decref(files);
    if (tl_error() == TL_OK) error_memory(4096, "a manifest");
    return NULL;
}

/* Tensors that were gathered from other ranks. */
struct gathered {
    struct portions of_dp;
    struct joined of_tp;
};

/* Whole tensors in place of the parts that ranks of tp and ep hold, and of those that sharding leaves of them; the
 * first of these ranks saves them. */
static bool part_join(struct run *r, struct trainer_part *part, int index, struct gathered *g) {
    if (part->is_portions) {
        if (!run_agree(r, trainer_collect(r->trainer, index, &g->of_dp))) return false;
        part->tensors = g->of_dp.at;
        part->n = (int)g->of_dp.n;
        part->is_others = r->mesh.experts.rank > 0;
    }
    if (part->is_others) return true;
    bool ok = joined_make(&g->of_tp, part->tensors, part->n);
    part->tensors = g->of_tp.list;
    part->is_others = r->mesh.axis[MESH_TP].rank > 0 || r->mesh.ep.rank > 0;
    return ok;
}

static bool checkpoint_write_all(struct run *r, const struct trainer_part *parts, const char *state) {
    struct checkpoints *all = &r->folder.checkpoints;
    bool is_first = r->mesh.rank == 0, ok = state != NULL;
    if (r->mesh.size <= 1) return ok && checkpoint_save(all, r->step, parts, TRAINER_PARTS, state);
    if (!run_agree(r, ok && (!is_first || checkpoint_begin(all, r->step)))) return false;
    if (!all->folder && !checkpoints_open(all, r->folder.dir, false)) ok = false; /* made by the first rank just now */
    json_t *mine = ok ? checkpoint_write(all, r->step, parts, TRAINER_PARTS) : NULL;
    if (!run_agree(r, mine != NULL)) return json_decref(mine), false;
    json_t *files = entries_collect(r, mine);
    ok = run_agree(r, files && (!is_first || checkpoint_commit(all, r->step, files, state)));
    ok = ok && checkpoint_confirm(all, r->step, mine);
    json_decref(files);
    json_decref(mine);
    return run_agree(r, ok);
}

bool run_checkpoint_write(struct run *r, struct trainer_part *parts, const char *state) {
    struct gathered gathered[TRAINER_PARTS] = {0};
    bool ok = true;
    for (int i = 0; ok && i < TRAINER_PARTS; i++)
        if (parts[i].is_joined) ok = run_agree(r, part_join(r, &parts[i], i, &gathered[i]));
    ok = ok && checkpoint_write_all(r, parts, state);
    for (int i = 0; i < TRAINER_PARTS; i++) {
        joined_free(&gathered[i].of_tp);
        portions_free(&gathered[i].of_dp);
    }
    return ok;
}

/* ---- Price and receipt ---- */

bool run_ranks_price(struct run *r, bool is_resumed) {
    if (r->mesh.rank == 0) return true;
    free(r->price);
    if (is_resumed) kinds_forget(&r->kinds); /* the checkpoint has those of the first rank */
    r->owes_evaluation = false;              /* as there: only a process alone leaves one, and costs something else */
    r->price = is_resumed ? price_text_rest(&r->settings, &r->kinds, r->step, r->step, r->mesh.rank)
                          : price_text_of(&r->settings, r->mesh.rank);
    return r->price != NULL;
}

struct rank_words {
    struct run_rank times;
    int64_t differences;
    char problem[160], host[64];
    double load, load_most; /* of experts, in units of an even share */
};

static double own_s(const struct run_rank *k) { return k->steps_s - k->exposed_s; }

/* Who is slow, and how much of the messages' time shows. */
static void times_collect(struct run_summary *s, const struct rank_words *all, int n) {
    struct run_rank *mean = &s->mean_rank;
    for (int k = 0; k < n; k++) {
        const struct run_rank *one = &all[k].times;
        mean->steps_s += one->steps_s / n;
        mean->comm_s += one->comm_s / n;
        mean->exposed_s += one->exposed_s / n;
        if (own_s(one) > own_s(&all[s->slowest_rank].times)) s->slowest_rank = k;
        if (k < RUN_RANKS) s->ranks[k] = *one;
    }
    s->imbalance = own_s(mean) > 0 ? own_s(&all[s->slowest_rank].times) / own_s(mean) - 1 : 0;
}

/* Schema tally.ranks/1 (docs/processes.md); free() it. NULL: recorded. */
static char *ranks_text(const struct run *r, const struct rank_words *all) {
    const struct run_summary *s = r->summary;
    int64_t n_steps = r->n_timed - (s->times.first_steps_s > 0 ? RUN_FIRST_STEPS : 0);
    json_t *rows = json_array();
    for (int k = 0; k < r->mesh.size; k++) {
        const struct run_rank *t = &all[k].times;
        json_array_append_new(rows, json_pack("{s:i, s:s, s:f, s:f, s:f}", "rank", k, "host", all[k].host, "steps_s",
                                              t->steps_s, "communication_s", t->comm_s, "exposed_s", t->exposed_s));
    }
    json_t *root = json_pack("{s:s, s:I, s:f, s:i, s:f, s:o}", "schema", "tally.ranks/1", "steps", (json_int_t)n_steps,
                             "sent_bytes", s->sent_bytes, "slowest_rank", s->slowest_rank, "imbalance", s->imbalance,
                             "ranks", rows);
    char *text = root && json_array_size(rows) == (size_t)r->mesh.size
                     ? json_print(root, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17))
                     : NULL;
    if (!text) error_memory(200 * (size_t)r->mesh.size, "times of ranks");
    json_decref(root);
    return text;
}

bool run_ranks_finish(struct run *r) {
    const struct mesh *m = &r->mesh;
    struct run_summary *s = r->summary;
    if (m->size <= 1) return true;
    struct rank_words mine = {{s->times.steps_s, r->comm.busy_s, r->comm.exposed_s}, s->differences, "", "", 0, 0};
    const struct dispatch_load *load = r->trainer ? &((const struct model *)r->trainer->model->state)->load : NULL;
    if (load && load->n_even) mine.load = (double)load->n_rows / (double)load->n_even, mine.load_most = load->most;
    gethostname(mine.host, sizeof mine.host - 1);
    struct rank_words *all = memory_new((size_t)m->size * sizeof *all);
    text_copy(mine.problem, sizeof mine.problem, s->problem);
    bool ok = all ? mesh_share(m, &mine, sizeof mine, all) : error_memory(sizeof mine, "words of other ranks");
    s->n_ranks = m->size;
    if (ok) times_collect(s, all, m->size);
    for (int k = 0; ok && k < m->size; k++) {
        if (all[k].load > s->load) s->load = all[k].load, s->loaded_rank = k;
        s->load_most = fmax(s->load_most, all[k].load_most);
    }
    if (ok && run_is_first(r) && r->n_timed) ok = folder_put(&r->folder, RUN_RANKS_FILE, ranks_text(r, all));
    for (int k = 0; ok && k < m->size; k++) {
        if (!(all[k].differences > 0 || *all[k].problem) || *s->problem || s->differences > 0) continue;
        if (all[k].differences > 0) s->differences = (int)all[k].differences;
        snprintf(s->problem, sizeof s->problem, "on rank %d%s%s", k, *all[k].problem ? ": " : "", all[k].problem);
    }
    memory_free(all);
    return ok;
}

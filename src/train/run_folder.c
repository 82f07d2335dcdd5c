/* run_folder.c: the contents of the folder when a run begins, and whether they are this run's. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/comm.h"
#include "step/defaults.h"
#include "train/identity.h"
#include "train/run_parts.h"

/* Whether the final weights, for other programs, are whole. False: recorded. */
bool run_final_look(struct run *r, bool *is_whole) {
    *is_whole = true;
    for (int i = 0; i < 2; i++) {
        enum folder_state state;
        if (!folder_look(&r->folder, RUN_FINAL, run_final_files(&r->settings)[i], &state)) return false;
        *is_whole = *is_whole && state == FOLDER_WHOLE;
    }
    return true;
}

static bool tokens_remove(struct run *r) {
    bool ok = true;
    for (int i = 0; ok && i < SOURCE_PARTS; i++) ok = folder_remove(&r->folder, source_tokens_name(i));
    return ok;
}

/* Files that depend on the settings and are written once. A run without a checkpoint has nothing to lose, unless it
 * is finished. */
static bool folder_renew(struct run *r) {
    bool is_done;
    if (!run_final_look(r, &is_done)) return false;
    if (is_done)
        return error_set(TL_ERROR_USE,
                         "%s: this run is done and its weights are whole in final/, but no checkpoint is left that it "
                         "could go on from (remove final/ to train again from step 0, or give another out folder)",
                         r->settings.out);
    return folder_remove(&r->folder, RUN_PRICE) && folder_remove(&r->folder, RUN_RECEIPT) &&
           folder_remove(&r->folder, RUN_MEMORY) && folder_remove(&r->folder, RUN_PROFILE) &&
           folder_remove(&r->folder, RUN_RANKS_FILE) && folder_remove(&r->folder, SOURCE_STORIES) && tokens_remove(r) &&
           folder_put(&r->folder, RUN_CONFIG, settings_json(&r->settings));
}

/* The settings in config.json; is_there false: it is missing or damaged. False: recorded. */
static bool config_read(struct run *r, struct settings *s, bool *is_there) {
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    *s = settings_default();
    *is_there = settings_read_at(s, file_in(r->folder.dir, RUN_CONFIG));
    tl_set_error_policy(policy);
    if (*is_there) return true;
    if (tl_error() == TL_ERROR_MEMORY) return false;
    tl_error_clear();
    return true;
}

/* Whether the settings' folder has a run of the same model, and the settings that it was started with. Nothing keeps
 * those of a start that failed, at its data say: it has no log. */
static bool past_read(const struct settings *s, struct settings *then) {
    char path[SETTING_TEXT + 32];
    snprintf(path, sizeof path, "%s/%s", s->out, LOG_LINES);
    if (access(path, F_OK)) return false;
    snprintf(path, sizeof path, "%s/%s", s->out, RUN_CONFIG);
    return settings_read(then, path) && !strcmp(then->model, s->model) && !strcmp(then->device, s->device);
}

static bool past_keep(struct settings *s) {
    struct settings *then = memory_new(sizeof *then); /* larger than a frame may be */
    if (!then) return false;
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    *then = settings_default();
    bool is_there = past_read(s, then);
    tl_error_clear();
    tl_set_error_policy(policy);
    if (is_there) defaults_keep(s, then);
    memory_free(then);
    return is_there;
}

void run_defaults(struct settings *s) {
    struct defaults_machine m = defaults_machine_of(s);
    if (comm_is_launched() && !s->dp) m.n_dp = 0; /* the processes have not met */
    if (!past_keep(s)) defaults_choose(s, &m);
}

void run_changes_add(struct run *r, const char *words) {
    size_t n = strlen(r->changes);
    if (n && n + 3 < sizeof r->changes) memcpy(r->changes + n, "; ", 3), n += 2;
    text_copy(r->changes + n, sizeof r->changes - n, words);
}

/* Changes since the start of the run are errors, unless they are accepted. */
static bool changes_allow(struct run *r, const char *words) {
    if (!*words) return true;
    if (!r->accepts_changes)
        return error_set(
            TL_ERROR_USE,
            "%.200s: %s (give the same to resume, another --out to start a new run, or --accept-changes to "
            "go on all the same)",
            r->settings.out, words);
    run_changes_add(r, words);
    return true;
}

/* The built-in stories keep the size that the run began with, `then`, whatever its number of steps now. */
static void stories_settle(struct run *r, const struct settings *then) {
    struct settings *now = &r->settings;
    if (source_is_builtin(now) && !now->stories) now->stories = source_stories(source_is_builtin(then) ? then : now);
}

/* A run that early_stop ended, started again with the same number of steps, is finished. */
static void early_settle(struct run *r) {
    struct settings *now = &r->settings;
    if (!r->found || !now->early_stop || now->steps <= r->saved.steps) return;
    if (json_integer_value(json_object_get(r->state, "early_of")) == now->steps) now->steps = r->saved.steps;
}

/* Compares the settings with those that the run was started with, and last saved with. */
__attribute__((noinline)) static bool settings_resume(struct run *r) {
    early_settle(r);
    struct settings then = r->saved;
    const struct settings *given = &r->settings;
    char words[RUN_CHANGES_TEXT];
    int64_t done = r->found ? checkpoint_step(r->found) : 0;
    bool both = source_is_builtin(&then) && source_is_builtin(&r->settings);
    if (both) then.stories = source_stories(&then); /* older checkpoints do not have it */
    stories_settle(r, &then);
    if (!both) then.stories = given->stories; /* the data is compared, and says it all */
    bool by_name = !json_object_get(r->state, "made_from");
    if (!changes_allow(r, settings_conflict(&then, given, by_name, words, sizeof words))) return false;
    return given->steps == then.steps || given->steps > done ||
           error_set(TL_ERROR_USE,
                     "%.200s: this run was started with --steps %" PRId64 " and has done %" PRId64
                     "; you gave --steps %" PRId64 " (need more than are done)",
                     given->out, then.steps, done, given->steps);
}

/* A checkpoint has the settings that it was made with; config.json must agree, or is rewritten. */
__attribute__((noinline)) static bool config_check(struct run *r) {
    struct settings config;
    char words[RUN_CHANGES_TEXT];
    bool has_config, has_state = json_object_get(r->state, "settings") != NULL;
    if (!config_read(r, &config, &has_config)) return false;
    if (!has_state && has_config) r->saved = config;
    if (!settings_resume(r)) return false;
    if (!has_state && !has_config) return true; /* only the present settings are known */
    if (has_config && !*settings_conflict(&r->saved, &config, false, words, sizeof words)) return true;
    log_line("run: %s/%s was missing or damaged: rewritten", r->settings.out, RUN_CONFIG);
    return folder_put(&r->folder, RUN_CONFIG, settings_json(&r->saved));
}

/* Opens the newest whole checkpoint; if there is none left, the run begins again. */
static bool newest_find(struct run *r) {
    r->found = checkpoint_open_newest(&r->folder.checkpoints, true);
    if (!r->found && tl_error() != TL_OK) return false;
    r->state = r->found ? json_parse(checkpoint_state(r->found), NULL) : NULL;
    if (!run_settings_of(r->state, &r->settings, &r->saved) || !config_check(r)) return false;
    if (r->found) return true;
    *r->changes = 0; /* there is nothing to change */
    if (!folder_renew(r)) return false;
    log_line("run: no whole checkpoint is left in %s: training starts again at step 0", r->settings.out);
    return true;
}

/* A folder that another run has made is not this run's. */
bool run_folder_begin(struct run *r) {
    struct settings before;
    bool is_begun, has_config;
    if (!folder_open(&r->folder, &r->settings) || !checkpoint_any(&r->folder.checkpoints, &is_begun)) return false;
    if (is_begun) return newest_find(r);
    bool is_done;
    stories_settle(r, &r->settings);
    if (!config_read(r, &before, &has_config) || !run_final_look(r, &is_done)) return false;
    return (has_config && !is_done && settings_are_same(&before, &r->settings)) || folder_renew(r);
}

static bool inputs_check(struct run *r) {
    char words[RUN_CHANGES_TEXT];
    const json_t *then = json_object_get(r->state, "made_from");
    if (then) return changes_allow(r, identity_compare(then, r->made_from, words, sizeof words));
    if (checkpoint_step(r->found) < r->settings.steps)
        log_line("checkpoint of step %" PRId64 " has no record of data and model: it resumes without comparing them",
                 checkpoint_step(r->found));
    return true;
}

bool run_inputs_open(struct run *r, const tl_model_config *config, const char *weights) {
    if (!source_open_in(&r->source, &r->settings, config->vocabulary, r->folder.dir)) return false;
    r->made_from = identity_new(&r->settings, config, weights, &r->source);
    return r->made_from && (!r->found || inputs_check(r)) && run_tokens_take(r);
}

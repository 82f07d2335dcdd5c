#include "train/open.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json.h"
#include "file/gguf.h"
#include "nn/adapter.h"
#include "nn/model_gguf.h"
#include "nn/model.h"
#include "step/tokens.h"
#include "step/tuning.h"
#include "tensor/dtype.h"
#include "text/tokenizer.h"
#include "train/checkpoint.h"
#include "train/folder.h"
#include "train/identity.h"
#include "step/trainer.h"

#define PATH_BYTES (SETTING_TEXT + 64)

static bool is_there(const char *folder, const char *name) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* "RUN/checkpoints/step-000000000100" -> "RUN" and 100 */
static void split_step(char *run, int64_t *step) {
    size_t length = strlen(run);
    while (length > 1 && run[length - 1] == '/') run[--length] = 0;
    char *name = strrchr(run, '/');
    int64_t found;
    if (!name || sscanf(name, "/step-%" SCNd64, &found) != 1 || !is_there(run, "manifest.json")) return;
    *name = 0;
    char *checkpoints = strrchr(run, '/');
    if (!checkpoints) strcpy(run, ".");
    else *checkpoints = 0;
    *step = found;
}

/* ---- A run ---- */

static bool best_step(struct checkpoints *all, const char *folder, int64_t *step) {
    struct checkpoint *c = checkpoint_open_newest(all, false);
    json_t *state = c ? json_parse(checkpoint_state(c), NULL) : NULL;
    bool has_best = json_is_true(json_object_get(state, "has_best"));
    if (has_best) *step = json_integer_value(json_object_get(state, "best_step"));
    json_decref(state);
    checkpoint_close(c);
    if (tl_error() != TL_OK) return false;
    return has_best || error_set(TL_ERROR_USE, "%s: there is no best checkpoint (the run needs evaluations)", folder);
}

/* The tokens of a checkpoint; older runs, which did not record them, trained on bytes if they had a vocabulary of
 * 256. */
static bool has_bytes(const struct checkpoint *c, int64_t vocabulary) {
    json_t *state = json_parse(checkpoint_state(c), NULL);
    json_t *said = json_object_get(json_object_get(state, "trainer"), "is_bytes");
    bool is_bytes = said ? json_is_true(said) : vocabulary == 256;
    json_decref(state);
    return is_bytes;
}

enum { STATE_NAME = 512 };

/* A state of the optimizer, f32: "ema.NAME". One that it does not have, as of a frozen weight, stays as it is. */
static bool state_load(const struct checkpoint *c, const char *what, const char *name, tl_tensor *to) {
    char own[STATE_NAME];
    if (snprintf(own, sizeof own, "%s.%s", what, name) >= STATE_NAME) return true;
    const tl_named_tensor one = {.name = own, .tensor = to};
    return checkpoint_load(
        c, &(struct trainer_part){.file = "optimizer.safetensors", .tensors = &one, .n = 1, .may_lack = true});
}

/* The average of a weight: the optimizer's ema; or of schedule-free AdamW y + (1 - 1/beta1) (z - y), with y from the
 * master copy where there is one. */
static bool average_load(const struct settings *s, const struct checkpoint *c, const tl_named_tensor *to) {
    tl_tensor *x = tl_cast(to->tensor, TL_F32);
    if (s->ema > 0) return x && state_load(c, "ema", to->name, x) && tl_copy_(to->tensor, x);
    if (!x || !state_load(c, "master", to->name, x)) return false;
    tl_tensor *z = tl_clone(x);
    return z && state_load(c, "z", to->name, z) && tl_ema_(x, z, 1 - 1 / s->beta1) && tl_copy_(to->tensor, x);
}

static bool averages_load(const struct settings *s, const struct checkpoint *c, const tl_named_tensor *list, int n) {
    bool ok = true, grad = tl_set_grad_mode(false);
    for (int i = 0; ok && i < n; i++) {
        const tl_dtype dtype = tl_dtype_of(list[i].tensor);
        if (list[i].is_buffer || !dtype_is_float(dtype) || dtype_info(dtype)->is_storage_only) continue;
        tl_scope scope = tl_scope_begin();
        ok = scope.depth && average_load(s, c, &list[i]);
        if (scope.depth) ok = tl_scope_end(scope) && ok;
    }
    tl_set_grad_mode(grad);
    return ok;
}

static bool weights_load(struct opened *o, const struct checkpoint *c) {
    struct trainer_part part = {.file = "model.safetensors"};
    part.tensors = tl_module_list(o->model, &part.n);
    o->is_bytes = has_bytes(c, tl_model_config_of(o->model)->vocabulary);
    o->step = checkpoint_step(c);
    const bool is_free = !strcmp(settings_choice(&o->settings, "optimizer"), "schedule-free");
    return part.tensors && checkpoint_load(c, &part) &&
           ((o->settings.ema == 0 && !is_free) || averages_load(&o->settings, c, part.tensors, part.n));
}

/* Settings and model from the checkpoint: the run's files may be missing or different by now. For older checkpoints
 * they come from those files. */
static bool model_find(struct opened *o, const struct file_folder *run, const struct checkpoint *c,
                       tl_model_config *config) {
    char weights[SETTING_TEXT];
    json_t *state = json_parse(checkpoint_state(c), NULL), *settings = json_object_get(state, "settings");
    bool ok = settings ? settings_take_json(&o->settings, "the checkpoint's state.json", settings)
                       : settings_read_at(&o->settings, file_in(run, "config.json"));
    o->made_from = json_incref(json_object_get(state, "made_from"));
    json_decref(state);
    if (!ok || !identity_model(o->made_from, config)) return ok && trainer_model(&o->settings, config, weights);
    config->dropout = o->settings.dropout;
    return tl_model_config_check(config);
}

/* The settings may have been edited since: a model is made only if the checkpoint can fill it. */
static bool model_open(struct opened *o, const struct file_folder *run, const struct checkpoint *c, tl_device *device) {
    tl_model_config config;
    int64_t numbers;
    if (!model_find(o, run, c, &config) || !checkpoint_numbers(c, "model.safetensors", &numbers) ||
        !model_numbers_suffice(&config, numbers, run->path))
        return false;
    o->recipe = recipe_find(settings_choice(&o->settings, "recipe"));
    o->model = o->recipe ? tl_model_new(&config, o->recipe->parameters, device) : NULL;
    if (!o->model) return false;
    linear_set_mode(o->model, o->recipe->linear);
    for (int i = 0; i < model_n_blocks(o->model); i++)
        if (!tuning_narrow(model_block(o->model, i), &o->settings)) return false;
    return tuning_adapt(o->model, &o->settings) && weights_load(o, c);
}

/* Whether there is such a step; an error that lists those there are. */
static bool step_check(const struct checkpoints *all, const char *folder, int64_t step) {
    char steps[200];
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    bool is_good = checkpoint_check(all, step);
    tl_set_error_policy(policy);
    if (is_good || tl_error() == TL_ERROR_MEMORY) return is_good;
    tl_error_clear();
    return checkpoint_steps_print(all, steps, sizeof steps) &&
           error_set(TL_ERROR_USE,
                     "%s: there is no whole checkpoint of step %" PRId64 " (there are: %s; give --step N)", folder,
                     step, steps);
}

static struct checkpoint *step_open(struct checkpoints *all, const char *run, int64_t step) {
    const char *folder = all->folder ? all->folder->path : run;
    if (step == STEP_BEST && !best_step(all, folder, &step)) return NULL;
    if (step >= 0 && !step_check(all, folder, step)) return NULL;
    struct checkpoint *c = step == STEP_NEWEST ? checkpoint_open_newest(all, false) : checkpoint_open(all, step);
    if (!c && tl_error() == TL_OK) error_set(TL_ERROR_USE, "%s: has no whole checkpoint", folder);
    return c;
}

static bool run_open(struct opened *o, const char *run, int64_t step, tl_device *device) {
    struct checkpoints all = {0};
    struct file_folder *folder = file_folder_open(run);
    struct checkpoint *c = folder && checkpoints_open(&all, folder, false) ? step_open(&all, run, step) : NULL;
    bool ok = c && model_open(o, folder, c, device);
    snprintf(o->settings.out, sizeof o->settings.out, "%s", run); /* wherever it has been moved to */
    checkpoint_close(c);
    checkpoints_close(&all);
    file_folder_close(folder);
    return ok;
}

/* ---- A Hugging Face folder ---- */

static bool model_folder_open(struct opened *o, const char *folder, tl_device *device) {
    char path[PATH_BYTES];
    tl_model_config config;
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (!tl_model_config_read(path, &config)) return false;
    if (config.family == TL_DEEP_LINEAR) return error_set(TL_ERROR_USE, "%s: is not a language model", folder);
    if (!model_weights_fit(&config, folder)) return false;
    o->model = tl_model_new(&config, o->recipe->parameters, device);
    o->is_bytes = config.vocabulary == 256;
    return o->model && tl_model_load(o->model, folder);
}

/* ---- A folder of PEFT: an adapter, whose base is another folder ---- */

static bool adapter_folder_open(struct opened *o, const char *folder, tl_device *device) {
    char base[SETTING_TEXT];
    if (!adapter_base(folder, base, sizeof base)) return false;
    if (!is_there(base, "config.json"))
        return error_set(TL_ERROR_USE,
                         "%s: is an adapter of \"%.300s\", which is no folder with a model (need the base's folder in "
                         "base_model_name_or_path of " ADAPTER_CONFIG ")",
                         folder, base);
    if (!tokens_in_folder(folder)) snprintf(o->folder, sizeof o->folder, "%s", base);
    return model_folder_open(o, base, device) && tl_model_load_adapter(o->model, folder);
}

/* ---- A GGUF file ---- */

static bool gguf_open(struct opened *o, const char *path, tl_device *device) {
    tl_model_config config;
    tl_gguf *file = tl_gguf_open(path);
    bool ok = file && model_gguf_config(file, path, &config);
    o->model = ok ? tl_model_new(&config, o->recipe->parameters, device) : NULL;
    o->is_bytes = ok && config.vocabulary == 256;
    ok = o->model && model_gguf_load(o->model, file, path);
    tl_gguf_close(file);
    return ok;
}

bool run_split(const char *path, char run[SETTING_TEXT], int64_t *step) {
    *run = 0;
    if (strlen(path) >= SETTING_TEXT) return error_set(TL_ERROR_USE, "%.40s...: this path is too long", path);
    strcpy(run, path);
    split_step(run, step);
    return is_there(run, "checkpoints");
}

bool opened_open(struct opened *o, const char *path, int64_t step, tl_device *device) {
    char run[SETTING_TEXT];
    *o = (struct opened){.settings = settings_default(), .recipe = recipe_find("fp32"), .step = -1};
    o->autocast_before = tl_set_autocast(TL_DTYPE_COUNT);
    tl_set_autocast(o->autocast_before);
    o->is_run = run_split(path, run, &step);
    bool ok = *run != 0 || !*path;
    strcpy(o->folder, run);
    if (ok && step != STEP_NEWEST && !o->is_run)
        ok = error_set(TL_ERROR_USE, "%s: is not a run's folder, so there is no other step to choose", path);
    if (ok && !o->is_run && access(run, F_OK))
        ok = error_set(TL_ERROR_IO,
                       "%s: there is no run and no model (`tally runs` lists runs, `tally train` makes one)", path);
    ok = ok && (o->is_run                                                        ? run_open(o, run, step, device)
                : gguf_is_one(run)                                               ? gguf_open(o, run, device)
                : is_there(run, ADAPTER_CONFIG) && !is_there(run, "config.json") ? adapter_folder_open(o, run, device)
                                                                                 : model_folder_open(o, run, device));
    if (!ok) return opened_close(o), false;
    tl_module_train(o->model, false);
    tl_set_autocast(o->recipe->autocast);
    return true;
}

static bool weights_copy(tl_module *to, tl_module *from) {
    int n = 0, m = 0;
    const tl_named_tensor *a = tl_module_list(to, &n), *b = tl_module_list(from, &m);
    bool ok = a && b && n == m, grad = tl_set_grad_mode(false);
    for (int i = 0; ok && i < n; i++) {
        tl_scope scope = tl_scope_begin();
        ok = scope.depth && tl_copy_(a[i].tensor, tl_cast(b[i].tensor, tl_dtype_of(a[i].tensor)));
        if (scope.depth) ok = tl_scope_end(scope) && ok;
    }
    tl_set_grad_mode(grad);
    return ok;
}

bool opened_cast(struct opened *o, tl_dtype dtype) {
    int n = 0;
    const tl_named_tensor *list = tl_module_list(o->model, &n);
    if (!list || !tl_model_merge_adapter(o->model)) return false;
    list = tl_module_list(o->model, &n);
    if (!list) return false;
    tl_module *model = tl_model_new(tl_model_config_of(o->model), dtype, tl_device_of(list[0].tensor));
    if (!model || !weights_copy(model, o->model)) return tl_module_free(model), false;
    tl_module_free(o->model);
    o->model = model;
    tl_module_train(model, false);
    tl_set_autocast(TL_DTYPE_COUNT);
    return true;
}

void opened_close(struct opened *o) {
    tl_module_free(o->model);
    json_decref(o->made_from);
    o->model = NULL;
    o->made_from = NULL;
    tl_set_autocast(o->autocast_before);
}

const char *opened_tokenizer_name(const struct opened *o, char name[SETTING_TEXT]) {
    int n = snprintf(name, SETTING_TEXT, "%s%s", o->folder, o->is_run ? "/" FOLDER_TOKENIZER : "");
    if (n < 0 || n >= SETTING_TEXT || !(tokens_in_folder(name) || tokenizer_in_gguf(name))) *name = 0;
    return name;
}

bool opened_tokenizer(const struct opened *o, const char *name, tl_tokenizer **tokenizer) {
    char own[SETTING_TEXT];
    int64_t vocabulary = tl_model_config_of(o->model)->vocabulary;
    *tokenizer = NULL;
    if (!name) name = *opened_tokenizer_name(o, own) ? own : o->is_bytes ? "bytes" : NULL;
    if (!name) return true;
    *tokenizer = tokens_named(name);
    if (!*tokenizer || tl_tokenizer_size(*tokenizer) <= vocabulary) return *tokenizer != NULL;
    error_set(TL_ERROR_USE,
              "tokenizer: %s has %" PRId64 " tokens, and the model a vocabulary of %" PRId64
              " (need a tokenizer with at most as many)",
              name, tl_tokenizer_size(*tokenizer), vocabulary);
    tl_tokenizer_free(*tokenizer);
    *tokenizer = NULL;
    return false;
}

tl_module *tl_model_open_text(const char *path, tl_device *device, tl_tokenizer **tokenizer, bool *has_template) {
    struct opened o;
    if (!path) error_set(TL_ERROR_USE, "tl_model_open: got NULL instead of a path");
    if (!path || !opened_open(&o, path, STEP_NEWEST, device)) return NULL;
    tl_module *model = o.model;
    bool ok = !tokenizer || opened_tokenizer(&o, NULL, tokenizer);
    if (has_template) *has_template = !o.is_run;
    if (ok) o.model = NULL;
    opened_close(&o);
    return ok ? model : NULL;
}

tl_module *tl_model_open(const char *path, tl_device *device) { return tl_model_open_text(path, device, NULL, NULL); }

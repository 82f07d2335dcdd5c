#include "step/defaults.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/number.h"
#include "base/process.h"
#include "nn/adapter.h"
#include "step/price.h"
#include "step/prompt.h"
#include "step/recipe.h"
#include "step/trainer.h"
#include "tensor/device.h"

static const char *const chosen[] = {"recipe", "seq", "lr", "beta1", "min_lr", "batch", "checkpointing", "prompt"};

struct defaults_machine defaults_machine_of(const struct settings *s) {
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    struct defaults_machine m = {.device = walk_stand_in(s), .memory_bytes = settings_memory_limit(s), .n_dp = s->dp};
    tl_set_error_policy(policy);
    tl_error_clear();
    const struct target *t = m.device ? m.device->target : NULL;
    if (t && !m.memory_bytes)
        m.memory_bytes = t->memory_bytes ? t->memory_bytes - t->outside_bytes : process_memory_bytes();
    if (!m.n_dp) m.n_dp = 1;
    return m;
}

static void choose_integer(struct settings *s, const char *name, int64_t value) {
    char text[32];
    number_print(text, sizeof text, "%" PRId64, value);
    settings_choose(s, name, text);
}

static void choose_recipe(struct settings *s, const tl_device *device) {
    bool has_bf16 = !device || recipe_check(recipe_find("bf16"), device->target);
    settings_choose(s, "recipe", has_bf16 ? "bf16" : "fp16");
}

static void choose_lr(struct settings *s, int64_t n_parameters) {
    char text[32];
    number_print(text, sizeof text, "%.1e", 6e-4 * cbrt(124e6 / (double)n_parameters));
    settings_choose(s, "lr", text);
}

/* Whether the run fits with these settings. What cannot be priced does not fit. */
static bool fits(const struct settings *s, const struct defaults_machine *m) {
    bool is_small = true;
    if (!m->memory_bytes) return true;
    bool ok = price_fits(s, m->device, m->memory_bytes, 0, &is_small);
    tl_error_clear();
    return ok && is_small;
}

static void choose_batch(struct settings *s, const struct defaults_machine *m) {
    if (settings_is_given(s, "batch") || !m->n_dp || !m->device) return;
    if (m->n_dp * s->tp * s->cp * s->pp > 1) {
        choose_integer(s, "batch", m->n_dp);
        return;
    }
    int64_t batch = 1;
    while (2 * batch * s->seq <= DEFAULTS_TOKENS) batch *= 2;
    bool is_found = false;
    for (; !is_found; batch /= 2) {
        choose_integer(s, "batch", batch);
        is_found = fits(s, m);
        if (batch == 1) break;
    }
    if (!is_found) settings_choose(s, "checkpointing", "full");
}

static void choose_prompt(struct settings *s) {
    char words[PROMPT_BYTES + 1];
    if (settings_is_given(s, "prompt") || !s->sample_tokens) return;
    if (prompt_of_data(s, words)) settings_choose(s, "prompt", words);
    tl_error_clear();
}

/* What the optimizer schedule-free is made for; torch.optim.Adafactor's default. */
static void choose_rule(struct settings *s) {
    if (!strcmp(settings_choice(s, "optimizer"), "adafactor")) settings_choose(s, "eps", "0");
    if (strcmp(settings_choice(s, "optimizer"), "schedule-free")) return;
    settings_choose(s, "schedule", "constant");
    settings_choose(s, "beta1", "0.9");
}

/* What the folder of an adapter says of it, if that is allowed. */
static void choose_adapter(struct settings *s) {
    tl_adapter_options o;
    char text[40];
    if (!*s->adapter || !adapter_read(s->adapter, &o)) return;
    if (o.rank < 1 || o.rank > 65536 || !(o.alpha > 0 && o.alpha <= 1e6 && o.dropout >= 0 && o.dropout <= 0.99)) return;
    choose_integer(s, "lora", o.rank);
    number_print(text, sizeof text, "%.17g", o.alpha), settings_choose(s, "lora_alpha", text);
    number_print(text, sizeof text, "%.17g", o.dropout), settings_choose(s, "lora_dropout", text);
    settings_choose(s, "dora", o.has_magnitude ? "true" : "false");
}

static void choose_all(struct settings *s, const struct defaults_machine *m) {
    tl_model_config config;
    char weights[SETTING_TEXT];
    choose_adapter(s);
    if (!trainer_sizes(s, &config, weights) || !tl_model_config_check(&config)) return;
    choose_prompt(s);
    choose_rule(s);
    int64_t n_parameters = tl_model_config_parameters(&config);
    bool is_large = n_parameters >= DEFAULTS_LARGE;
    int64_t seq = is_large ? DEFAULTS_SEQ : s->seq;
    if (is_large || seq > config.context) choose_integer(s, "seq", seq < config.context ? seq : config.context);
    if (!is_large) return;
    choose_recipe(s, m->device);
    choose_lr(s, n_parameters);
    settings_choose(s, "beta1", "0.9");
    settings_choose(s, "min_lr", "0.1");
    choose_batch(s, m);
}

/* Errors of settings are those of whoever uses them. */
void defaults_choose(struct settings *s, const struct defaults_machine *machine) {
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    if (tl_error() == TL_OK) choose_all(s, machine);
    tl_error_clear();
    tl_set_error_policy(policy);
}

void defaults_choose_inference(struct settings *s, const tl_device *device) {
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    tl_model_config config;
    char weights[SETTING_TEXT];
    if (trainer_sizes(s, &config, weights) && tl_model_config_check(&config) &&
        tl_model_config_parameters(&config) >= DEFAULTS_LARGE)
        choose_recipe(s, device);
    tl_error_clear();
    tl_set_error_policy(policy);
}

void defaults_keep(struct settings *s, const struct settings *then) {
    choose_rule(s);
    choose_adapter(s);
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) settings_take_from(s, chosen[i], then);
}

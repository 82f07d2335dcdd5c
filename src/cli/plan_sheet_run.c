/* plan_sheet_run.c: what run a plan is for: the model, a step, the device, and how devices divide it. */
#include <inttypes.h>
#include <string.h>

#include "base/number.h"
#include "cli/cli.h"
#include "cli/plan_sheet.h"
#include "nn/architecture.h"
#include "plan/mfu.h"
#include "step/recipe.h"

/* Memory that is a reserve, and not the driver's figure. */
static void memory_source_line(struct sheet *s, const struct plan *plan) {
    const struct hardware *chip = plan->target.chip;
    if (!chip || !plan->target.memory_bytes || settings_memory_limit(&plan->settings)) return;
    const char *source = hardware_source(chip, HARDWARE_MEMORY_SEEN);
    if (!(hardware_value(chip, HARDWARE_MEMORY_SEEN) > 0))
        sheet_line(s, SHEET_BRIEF, "memory: nominal, GB of 10^9 bytes; what the driver reports is not known");
    else if (!strncmp(source, "not known", 9))
        sheet_line(s, SHEET_BRIEF, "memory: what the driver reports is %s", source);
}

static void model_lines(struct sheet *s, const struct plan *plan) {
    const struct price *p = &plan->price;
    const tl_model_config *c = &p->config;
    char n[32], kv[48] = "", active[64], mlp[80];
    if (c->n_kv_heads != c->n_heads) number_print(kv, sizeof kv, " (%" PRId64 " for keys and values)", c->n_kv_heads);
    if (c->n_experts)
        number_print(mlp, sizeof mlp, "%" PRId64 " of %" PRId64 " experts of %" PRId64, c->n_chosen, c->n_experts,
                     architecture_expert_ff(c));
    else number_print(mlp, sizeof mlp, "MLP %" PRId64, c->ff);
    sheet_line(s, SHEET_BRIEF,
               "%.80s: %s parameters%s; %" PRId64 " layers, %" PRId64 " channels, %" PRId64
               " heads%s, %s, vocabulary %" PRId64,
               plan->settings.model, grouped_text((uint64_t)p->n_parameters, n), active_text(c, active), c->n_layers,
               c->channels, c->n_heads, kv, mlp, c->vocabulary);
    sheet_row(s, SHEET_SAID, "model", NULL), sheet_text(s, plan->settings.model);
    sheet_row(s, SHEET_SAID, "parameters", NULL), sheet_whole(s, SHEET_NUMBER, (count)p->n_parameters);
    if (p->n_trained != p->n_parameters) {
        char trained[TRAINED_TEXT];
        sheet_line(s, SHEET_BRIEF, "trained: %s",
                   trained_text(p->n_trained, p->n_parameters, plan->settings.lora > 0, trained));
        sheet_row(s, SHEET_SAID, "trained_parameters", NULL), sheet_whole(s, SHEET_NUMBER, (count)p->n_trained);
    }
    if (c->n_experts)
        sheet_row(s, SHEET_SAID, "active_parameters", NULL), sheet_whole(s, SHEET_NUMBER, (count)p->n_active);
}

static void step_lines(struct sheet *s, const struct plan *plan) {
    const struct settings *run = &plan->settings;
    static const char *const choices[] = {"recipe", "optimizer", "checkpointing"};
    const int64_t sequences = run->batch * run->accum;
    const char *pairs = settings_has_preference(run) ? " pairs x 2" : "";
    char a[32], b[32], c[32], choice[3][48];
    for (int i = 0; i < 3; i++) text_copy(choice[i], sizeof choice[i], settings_choice(run, choices[i]));
    sheet_line(s, SHEET_BRIEF,
               "step: %s tokens, a global batch of %s%s x %" PRId64 " = %" PRId64 " micro-batch%s of %" PRId64
               "%s x %" PRId64 "; recipe %s, %s, checkpointing %s",
               grouped_text((uint64_t)plan_step_tokens(plan), a), grouped_text((uint64_t)sequences, b), pairs, run->seq,
               run->accum, run->accum == 1 ? "" : "es", run->batch, pairs, run->seq, choice[0], choice[1], choice[2]);
    sheet_line(s, SHEET_BRIEF, "run: %s tokens in %s steps", amount_text(plan->run.tokens, a),
               amount_text(plan->run.steps, c));
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"global_batch", sequences}, {"batch", run->batch}, {"accum", run->accum}, {"seq", run->seq}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        sheet_row(s, SHEET_SAID, sizes[i].name, NULL), sheet_whole(s, SHEET_NUMBER, (count)sizes[i].value);
    sheet_row(s, SHEET_SAID, "steps", NULL), sheet_real(s, SHEET_AMOUNT, plan->run.steps);
    for (int i = 0; i < 3; i++) sheet_row(s, SHEET_SAID, choices[i], NULL), sheet_text(s, choice[i]);
    char text[256];
    const char *chosen = settings_chosen(run, false, text, sizeof text);
    if (*chosen) sheet_line(s, SHEET_BRIEF, "defaults for this model: %s", chosen);
}

static void device_lines(struct sheet *s, const struct plan *plan) {
    const struct target *own = plan->target.device->target;
    char memory[48] = "", outside[80] = "", rules[80] = "", a[32];
    const char *emulated = recipe_emulated(recipe_find(settings_choice(&plan->settings, "recipe")), own);
    if (plan->target.memory_bytes)
        number_print(memory, sizeof memory, ", %s", bytes_text((double)plan->target.memory_bytes, a));
    if (plan->target.outside_bytes)
        number_print(outside, sizeof outside, ", of which driver and libraries take %s",
                     bytes_text((double)plan->target.outside_bytes, a));
    if (!plan->target.has_kernels)
        number_print(rules, sizeof rules, "; Tally does not run on it: CUDA's memory rules are assumed");
    else if (plan->target.is_assumed)
        number_print(rules, sizeof rules, "; it has no target of its own: the memory rules of the H200 are assumed");
    else if (own->origin != TARGET_MEASURED)
        number_print(rules, sizeof rules, "; Tally never ran on it: rules by compute capability %d.%d",
                     own->capability / 10, own->capability % 10);
    sheet_line(s, SHEET_BRIEF, "device: %s%s%s%s", plan_chip_name(plan), memory, outside, rules);
    sheet_row(s, SHEET_SAID, "device", NULL), sheet_text(s, plan_chip_name(plan));
    memory_source_line(s, plan);
    if (emulated)
        sheet_line(s, SHEET_BRIEF, "%s products are emulated: operands are rounded to %s and multiplied in bf16",
                   emulated, emulated);
}

enum { LAYOUT_TEXT = 96 };

/* "tp 8 sp, pp 4 (1f1b), dp 2, zero1" */
static const char *layout_text(const struct layout *l, char text[LAYOUT_TEXT]) {
    int n = 0;
    const int64_t sizes[] = {l->tp, l->cp, l->pp};
    static const char *const names[] = {"tp", "cp", "pp"};
    for (int i = 0; i < 3; i++) {
        if (sizes[i] == 1) continue;
        n += snprintf(text + n, (size_t)(LAYOUT_TEXT - n), "%s %" PRId64, names[i], sizes[i]);
        if (i == 0 && l->sp) n += snprintf(text + n, (size_t)(LAYOUT_TEXT - n), " sp");
        if (i == 2) n += snprintf(text + n, (size_t)(LAYOUT_TEXT - n), " %s", schedule_names[l->schedule]);
        if (i == 2 && l->chunks > 1) n += snprintf(text + n, (size_t)(LAYOUT_TEXT - n), " x %" PRId64, l->chunks);
        n += snprintf(text + n, (size_t)(LAYOUT_TEXT - n), ", ");
    }
    n += snprintf(text + n, (size_t)(LAYOUT_TEXT - n), "dp %" PRId64 ", shard %s", l->dp, shard_names[l->shard]);
    if (l->shard_group) snprintf(text + n, (size_t)(LAYOUT_TEXT - n), " in groups of %" PRId64, l->shard_group);
    return text;
}

const char *network_text(const struct network *net, char text[NETWORK_TEXT]) {
    const double share = network_share(net);
    size_t n = 0;
    n += (size_t)number_print(text, NETWORK_TEXT, "%.60s, nodes of %" PRId64, net->name, net->node);
    if (net->link > 0) n += (size_t)number_print(text + n, NETWORK_TEXT - n, ", %.4g GB/s inside", net->link / 1e9);
    if (share > 0)
        n += (size_t)number_print(text + n, NETWORK_TEXT - n, ", %.4g GB/s per device between them", share / 1e9);
    if (net->is_assumed) n += (size_t)number_print(text + n, NETWORK_TEXT - n, " (assumed; set --network)");
    if (!(net->link > 0) && !(share > 0))
        number_print(text + n, NETWORK_TEXT - n, ", of unknown speed (set --link, --network or --fabric)");
    return text;
}

static void layout_lines(struct sheet *s, const struct plan *plan) {
    const struct layout_estimate *e = &plan->layout;
    char text[LAYOUT_TEXT], net[NETWORK_TEXT];
    sheet_line(s, SHEET_BRIEF, "%" PRId64 " devices: %s (%s)", plan->options.n_devices,
               layout_text(&plan->options.layout, text),
               plan->as      ? "an estimate"
               : e->is_exact ? "bytes are exact, priced for each class of ranks; times are estimates"
                             : "an estimate, based on the exact count for one");
    const struct network *network = &plan->options.network;
    const bool is_known = !network->is_assumed && (network->link > 0 || network_share(network) > 0);
    sheet_line(s, is_known ? SHEET_DETAIL : SHEET_BRIEF, "network: %s", network_text(network, net));
    if (plan->options.layout.pp == 1) return;
    char equal[64] = "";
    if (e->bubble > e->even_bubble + 0.01)
        number_print(equal, sizeof equal, "; %.1f %% if all had equal work", 100 * e->even_bubble);
    sheet_line(s, SHEET_BRIEF,
               "pipeline: %" PRId64 " micro-batch%s; stages are idle for %.1f %% of the time (bubble%s); the first "
               "stage holds the activations of %.3g",
               plan->settings.accum, plan->settings.accum == 1 ? "" : "es", 100 * e->bubble, equal, e->in_flight);
}

/* The ops that take most of a step, in one line. */
static void slowest_line(struct sheet *s, const struct plan *plan) {
    enum { MOST = 4 };
    const struct plan_group *top[MOST] = {NULL};
    char text[256] = "";
    int n = 0;
    for (size_t i = 0; i < plan->ops.n; i++) {
        const struct plan_group *g = &plan->ops.group[i];
        for (int k = 0; k < MOST; k++)
            if (!top[k] || plan_least_of(plan, g) > plan_least_of(plan, top[k])) {
                const struct plan_group *lower = top[k];
                top[k] = g, g = lower;
                if (!g) break;
            }
    }
    for (int k = 0; k < MOST && top[k]; k++)
        n += number_print(text + n, sizeof text - (size_t)n, "%s%.30s %s %.0f %%", n ? ", " : "", top[k]->name,
                          tl_dtype_name(top[k]->dtype), 100 * plan_least_of(plan, top[k]) / plan->time.roofline_s);
    sheet_line(s, SHEET_BRIEF, "time goes to: %s, at least", text);
}

static void time_of_many(struct sheet *s, const struct plan *plan) {
    const struct layout_estimate *e = &plan->layout;
    char computing[80] = "", a[32], b[32];
    if (!(e->bound_s > 0)) return;
    if (!(plan->time.predicted_s > 0))
        number_print(computing, sizeof computing, " (ops at %.0f %% of their roofline)",
                     100 * mfu_roofline_share(plan->target.chip, (double)plan->price.n_active));
    sheet_line(s, SHEET_DETAIL, "a step: computing %s%s, waiting %s, with %s of communication hidden",
               duration_text(e->compute_s, a), computing, e->exposed_s > 0 ? duration_text(e->exposed_s, b) : "0 s",
               e->hidden_s > 0 ? duration_text(e->hidden_s, (char[32]){0}) : "0 s");
}

void plan_sheet_run(struct sheet *s, const struct plan *plan) {
    sheet_section(s, "run", NULL, SHEET_BRIEF, "value");
    model_lines(s, plan);
    step_lines(s, plan);
    device_lines(s, plan);
    if (plan_is_many(plan)) layout_lines(s, plan);
    if (plan_is_many(plan)) time_of_many(s, plan);
    if (plan->time.roofline_s > 0) slowest_line(s, plan);
}

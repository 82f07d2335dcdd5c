/* plan_json.c: a plan as JSON, schema tally.plan/1. Counts are decimal strings, as in a ledger. */
#include <stdlib.h>

#include "base/error.h"
#include "base/json.h"
#include "plan/plan.h"
#include "step/recipe.h"

static json_t *count_json(count c) {
    char text[40];
    return json_string(tl_count_text(count_public(c), text));
}

static json_t *known(double x) { return x > 0 ? json_real(x) : json_null(); }

static json_t *by_phase(const count *flops) {
    json_t *o = json_object();
    for (int p = 0; p < TL_PHASE_COUNT; p++) json_object_set_new(o, tl_phase_name((tl_phase)p), count_json(flops[p]));
    return o;
}

static json_t *by_purpose(const uint64_t *bytes) {
    json_t *o = json_object();
    for (int p = 0; p < TL_PURPOSE_COUNT; p++)
        json_object_set_new(o, tl_purpose_name((tl_purpose)p), count_json(bytes[p]));
    return o;
}

static json_t *model_json(const struct price *p) {
    const tl_model_config *c = &p->config;
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name",
                     p->settings.model, "family", tl_family_name(c->family), "parameters", (json_int_t)p->n_parameters,
                     "active_parameters", (json_int_t)p->n_active, "trained_parameters", (json_int_t)p->n_trained,
                     "layers", (json_int_t)c->n_layers, "channels", (json_int_t)c->channels, "heads",
                     (json_int_t)c->n_heads, "kv_heads", (json_int_t)c->n_kv_heads, "head_size",
                     (json_int_t)c->head_size, "ff", (json_int_t)c->ff, "vocabulary", (json_int_t)c->vocabulary,
                     "context", (json_int_t)c->context, "experts", (json_int_t)c->n_experts, "experts_per_token",
                     (json_int_t)c->n_chosen);
}

static json_t *device_json(const struct plan *plan) {
    const struct plan_target *t = &plan->target;
    const struct recipe *recipe = recipe_find(settings_choice(&plan->price.settings, "recipe"));
    return json_pack("{s:s, s:o, s:s, s:s, s:s?, s:o, s:o, s:b}", "name", t->name, "chip",
                     t->chip ? json_string(t->chip->name) : json_null(), "rules", t->device->target->name, "origin",
                     plan_target_origin(t), "emulated", recipe_emulated(recipe, t->device->target), "memory_bytes",
                     t->memory_bytes ? count_json(t->memory_bytes) : json_null(), "outside_bytes",
                     count_json(t->outside_bytes), "has_kernels", (int)t->has_kernels);
}

static json_t *memory_json(const struct plan *plan) {
    const struct price *p = &plan->price;
    uint64_t limit = plan_target_limit(&plan->target);
    const struct held_window *w = price_window(p, p->peak_kind);
    json_t *live = json_array();
    for (size_t i = 0; i < plan->modules.n; i++) {
        const struct plan_group *g = &plan->modules.group[i];
        if (group_held(g))
            json_array_append_new(live, json_pack("{s:s, s:o, s:o}", "module", g->name, "bytes",
                                                  count_json(group_held(g)), "by_purpose", by_purpose(g->held)));
    }
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:s, s:o, s:o}", "verdict", price_verdict_text(p->verdict),
                     "peak_bytes", count_json(p->held_bytes), "allocated_bytes", count_json(p->allocated_bytes),
                     "reserved_bytes", count_json(p->reserved_bytes), "limit_bytes",
                     limit ? count_json(limit) : json_null(), "peak_kind", kind_name(p->peak_kind), "peak_by_purpose",
                     by_purpose(w->peak_by_purpose), "peak_by_module", live);
}

static json_t *flops_json(const struct plan *plan) {
    json_t *conventions = json_object(), *modules = json_array(), *dtypes = json_object();
    for (int i = 0; i < PLAN_N_CONVENTIONS; i++)
        json_object_set_new(conventions, plan_conventions[i].name, count_json(plan->convention[i]));
    for (size_t i = 0; i < plan->modules.n; i++) {
        const struct plan_group *g = &plan->modules.group[i];
        json_array_append_new(modules,
                              json_pack("{s:s, s:o, s:o, s:o}", "module", g->name, "flops", count_json(group_flops(g)),
                                        "by_phase", by_phase(g->flops), "bytes", count_json(g->bytes)));
    }
    for (int d = 0; d < TL_DTYPE_COUNT; d++)
        if (plan->dtype_flops[d])
            json_object_set_new(dtypes, tl_dtype_name((tl_dtype)d), count_json(plan->dtype_flops[d]));
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "total", count_json(plan->total_flops), "by_phase",
                     by_phase(plan->flops), "by_dtype", dtypes, "by_module", modules, "conventions", conventions);
}

static json_t *ops_json(const struct plan *plan) {
    json_t *array = json_array();
    for (size_t i = 0; i < plan->ops.n; i++) {
        const struct plan_group *g = &plan->ops.group[i];
        struct plan_bound b = plan_bound_of(g, &plan->target.speed);
        if (!g->bytes && !group_flops(g)) continue; /* views */
        json_array_append_new(array, json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "op", g->name,
                                               "dtype", tl_dtype_name(g->dtype), "calls", (json_int_t)g->calls, "flops",
                                               count_json(group_flops(g)), "bytes", count_json(g->bytes), "intensity",
                                               known(b.intensity), "ridge", known(b.ridge), "arithmetic_s",
                                               known(b.arithmetic_s), "memory_s", known(b.memory_s), "bound",
                                               b.arithmetic_s == 0 && b.memory_s == 0
                                                   ? json_null()
                                                   : json_string(b.arithmetic_s > b.memory_s ? "compute" : "memory")));
    }
    return array;
}

static json_t *utilisation_json(const struct plan *plan) {
    json_t *all = json_object(), *dtypes = json_object();
    for (int i = 0; i < PLAN_N_CONVENTIONS; i++)
        json_object_set_new(all, plan_conventions[i].name, known(plan_share(plan, (enum plan_convention)i)));
    for (int d = 0; d < TL_DTYPE_COUNT; d++)
        if (plan->dtype_flops[d])
            json_object_set_new(dtypes, tl_dtype_name((tl_dtype)d), known(plan_dtype_share(plan, (tl_dtype)d)));
    json_object_set_new(all, "by_dtype", dtypes);
    return all;
}

static json_t *range_json(double least, double most) {
    return most > 0 ? json_pack("[f, f]", least, most) : json_null();
}

static json_t *expected_json(const struct plan *plan) {
    const struct plan_expectation *e = &plan->expected;
    const struct bill *b = &e->bill;
    json_t *json = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "step_s", known(e->step_s), "mfu", known(e->mfu),
                             "days", known(b->days), "device_hours", known(b->device_hours), "money", known(b->money),
                             "energy_kwh", known(b->energy_kwh), "co2_kg", known(b->co2_kg));
    if (!json || !e->has_range) return json;
    if (e->row)
        json_object_set_new(json, "published",
                            json_pack("{s:f, s:f, s:I, s:s}", "mfu", e->row->mfu, "parameters", e->row->parameters,
                                      "rows", (json_int_t)e->row->n, "source", e->row->source));
    json_object_set_new(json, "days_range", range_json(e->least.days, e->most.days));
    json_object_set_new(json, "money_range", range_json(e->least.money, e->most.money));
    return json;
}

static json_t *run_json(const struct plan *plan) {
    const struct plan_run *r = &plan->run;
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "bound_s", known(plan->time.bound_s),
        "roofline_s", known(plan->time.roofline_s), "predicted_s", known(plan->time.predicted_s), "peak",
        known(plan->time.peak), "step_s", known(r->step_s), "tokens_per_s",
        known(r->step_s > 0 ? (double)plan->options.layout.dp * (double)plan->price.n_tokens / r->step_s : 0),
        "utilisation", utilisation_json(plan), "tokens", known(r->tokens), "steps", known(r->steps), "days",
        known(r->days), "device_hours", known(r->device_hours), "energy_kwh", known(r->energy_kwh), "money",
        known(r->money), "expected", expected_json(plan));
}

static json_t *layout_json(const struct layout *l, const struct layout_estimate *e) {
    return json_pack("{s:I, s:I, s:I, s:I, s:b, s:s, s:I, s:s, s:I, s:f}", "tp", (json_int_t)l->tp, "cp",
                     (json_int_t)l->cp, "dp", (json_int_t)l->dp, "pp", (json_int_t)l->pp, "sp", (int)l->sp, "shard",
                     shard_names[l->shard], "shard_group", (json_int_t)layout_sharded(l), "schedule",
                     schedule_names[l->schedule], "chunks", (json_int_t)l->chunks, "in_flight", e->in_flight);
}

static json_t *cost_json(const struct network_cost *c) {
    return json_pack("{s:f, s:f, s:o, s:o, s:o}", "inside_bytes", c->inside_bytes, "between_bytes", c->between_bytes,
                     "inside_s", known(c->inside_s), "between_s", known(c->between_s), "expected_s",
                     known(c->expected_s));
}

static json_t *sent_json(const struct layout_estimate *e) {
    json_t *axes = json_object();
    for (int i = 0; i < LAYOUT_AXES; i++)
        if (e->axis[i].inside_bytes + e->axis[i].between_bytes > 0)
            json_object_set_new(axes, layout_axis_names[i], cost_json(&e->axis[i]));
    return axes;
}

json_t *plan_layout_json(const struct layout *l, const struct layout_estimate *e) {
    return json_pack("{s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:o, s:o, s:f, s:o, s:o, s:o, s:o, s:o}", "layout",
                     layout_json(l, e), "is_exact", (int)e->is_exact, "weights_bytes", count_json(e->weights_bytes),
                     "gradients_bytes", count_json(e->gradients_bytes), "states_bytes", count_json(e->states_bytes),
                     "gathered_bytes", count_json(e->gathered_bytes), "other_bytes", count_json(e->other_bytes),
                     "total_bytes", count_json(e->total_bytes), "sent_bytes",
                     e->sum.inside_bytes + e->sum.between_bytes, "sent", cost_json(&e->sum), "sent_by_axis",
                     sent_json(e), "bubble", e->bubble, "bound_s", known(e->bound_s), "expected_s",
                     known(e->expected_s), "compute_s", known(e->compute_s), "exposed_s", known(e->exposed_s),
                     "hidden_s", known(e->hidden_s));
}

static json_t *devices_json(const struct plan *plan) {
    json_t *json = plan_layout_json(&plan->options.layout, &plan->layout);
    json_object_set_new(json, "is_estimate", json_boolean(plan->options.n_devices > 1 && !plan->layout.is_exact));
    json_object_set_new(json, "devices", json_integer(plan->options.n_devices));
    json_object_set_new(json, "verdict", json_string(price_verdict_text(plan_verdict(plan))));
    json_object_set_new(json, "network", network_json(&plan->options.network));
    return json;
}

json_t *plan_point_json(const struct fit_point *p) {
    if (!p->size) return json_null();
    if (p->limit == FIT_REFUSED)
        return json_pack("{s:I, s:s, s:s}", "size", (json_int_t)p->size, "breaks", fit_limit_name(p->limit), "why",
                         p->why);
    return json_pack("{s:I, s:s, s:s, s:o, s:o, s:I, s:o, s:o, s:o}", "size", (json_int_t)p->size, "breaks",
                     fit_limit_name(p->limit), "verdict", price_verdict_text(p->verdict), "bytes", count_json(p->bytes),
                     "block_bytes", count_json(p->block_bytes), "parameters", (json_int_t)p->n_parameters, "days",
                     known(p->run.days), "money", known(p->run.money), "peak_by_purpose", by_purpose(p->peak.bytes));
}

json_t *plan_answer_json(const struct fit_answer *a) {
    const char *module;
    tl_purpose grows = fit_growth(a, &module);
    bool has_next = a->next.size && a->next.limit == FIT_MEMORY;
    return json_pack("{s:o, s:o, s:o, s:o, s:I, s:b, s:b}", "grows",
                     has_next ? json_string(tl_purpose_name(grows)) : json_null(), "grows_in",
                     has_next && *module ? json_string(module) : json_null(), "best", plan_point_json(&a->best), "next",
                     plan_point_json(&a->next), "priced", (json_int_t)a->n_priced, "is_proven", (int)a->is_proven,
                     "is_monotone", (int)a->is_monotone);
}

static json_t *whole(int64_t n) { return n ? json_integer(n) : json_null(); }

static json_t *scale_json(const struct plan *plan) {
    json_t *points = json_array();
    for (int i = 0; i < PLAN_DOUBLINGS; i++) {
        const struct plan_scale *p = &plan->scale[i];
        const struct layout_estimate *e = &p->layout;
        json_array_append_new(points,
                              json_pack("{s:I, s:o, s:b, s:o, s:b, s:o, s:o, s:o, s:o}", "devices",
                                        (json_int_t)p->devices, "bytes", count_json(e->total_bytes), "fits",
                                        (int)p->fits, "sent", cost_json(&e->sum), "is_network", (int)e->has_network,
                                        "bound_s", known(e->bound_s), "step_s", known(p->step_s), "tokens_per_s",
                                        known(p->tokens_per_s), "efficiency", known(p->efficiency)));
    }
    return json_pack("{s:b, s:s, s:o, s:o, s:o}", "is_estimate", 1, "shard", shard_names[plan->options.layout.shard],
                     "fits_from", whole(plan_scale_fits(plan)), "link_binds_from", whole(plan_scale_binds(plan)),
                     "points", points);
}

static json_t *growth_json(const struct plan *plan) {
    json_t *o = json_object();
    json_object_set_new(o, "devices", scale_json(plan));
    for (int i = 0; i < FIT_N_AXES; i++) json_object_set_new(o, fit_axis_names[i], plan_answer_json(&plan->growth[i]));
    return o;
}

static json_t *as_json(const struct plan *plan) {
    const struct framework_held *h = &plan->held;
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", plan->as->name, "title",
                     plan->as->title, "verdict", price_verdict_text(plan_verdict(plan)), "weights_bytes",
                     count_json(h->weights), "gradients_bytes", count_json(h->gradients), "states_bytes",
                     count_json(h->states), "copies_bytes", count_json(h->copies), "activations_bytes",
                     count_json(h->activations), "loss_bytes", count_json(h->loss), "buffers_bytes",
                     count_json(h->buffers), "allocator_bytes", count_json(h->overhead), "total_bytes",
                     count_json(h->total));
}

json_t *plan_json(const struct plan *plan) {
    const struct price *p = &plan->price;
    json_t *advice = json_array();
    for (int i = 0; i < plan->n_advice; i++) json_array_append_new(advice, json_string(plan->advice[i]));
    char *text = settings_json(&plan->settings);
    json_t *settings = text ? json_parse(text, NULL) : NULL;
    free(text);
    json_t *root =
        json_pack("{s:s, s:o, s:o, s:o, s:I, s:b, s:o, s:o, s:o, s:o, s:o, s:o}", "schema", "tally.plan/1", "settings",
                  settings, "model", model_json(p), "device", device_json(plan), "step_tokens", (json_int_t)p->n_tokens,
                  "is_steady", (int)p->is_steady, "memory", memory_json(plan), "flops", flops_json(plan), "ops",
                  ops_json(plan), "run", run_json(plan), "devices", devices_json(plan), "advice", advice);
    if (root && plan->has_growth) json_object_set_new(root, "growth", growth_json(plan));
    if (root && plan->as) json_object_set_new(root, "as", as_json(plan));
    if (!root) error_memory(4096, "a plan");
    return root;
}

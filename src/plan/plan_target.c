#include "plan/plan_target.h"

#include <stdio.h>
#include <string.h>

#include "base/process.h"
#include "device/devices.h"
#include "step/recipe.h"

static bool is_this_machine(struct plan_target *t) {
    t->device = tl_device_find("meta");
    t->memory_bytes = process_memory_bytes();
    t->has_kernels = true;
    return t->device != NULL;
}

/* The rules and the memory of a target. */
static bool take(struct plan_target *t, tl_device *device) {
    t->device = device;
    if (!device) return false;
    t->has_kernels = true;
    t->memory_bytes = device->target->memory_bytes;
    t->outside_bytes = device->target->outside_bytes;
    return true;
}

/* A chip of the table. A chip without its own target is priced by the rules of the H200, the GPU that was measured,
 * within its own memory. */
static bool is_chip(struct plan_target *t, const struct hardware *chip) {
    char meta[64];
    snprintf(meta, sizeof meta, "meta:%s", chip->target ? chip->target : "h200");
    if (!take(t, tl_device_find(meta))) return false;
    t->chip = chip;
    t->has_kernels = chip->vendor && !strcmp(chip->vendor, "NVIDIA");
    t->is_assumed = !chip->target;
    t->speed = predict_machine_of_chip(chip);
    t->memory_bytes = (uint64_t)hardware_memory_bytes(chip);
    return true;
}

/* A device or a target by Tally's own name: "cuda", "cuda:0@t4", "meta:t4", "t4". Its chip is the row of the table
 * that has this target, or the driver's name. */
static bool is_own(struct plan_target *t, tl_device *device) {
    if (!take(t, device)) return false;
    const struct target *own = device->target;
    const struct hardware *h;
    for (int i = 0; (h = hardware_at(i)) && !t->chip; i++)
        if (h->target && !strcmp(h->target, own->name)) t->chip = h;
    if (!t->chip && own->chip) t->chip = hardware_seek(own->chip);
    if (t->chip) t->speed = predict_machine_of_chip(t->chip);
    return true;
}

bool plan_target_find(struct plan_target *t, const char *name) {
    *t = (struct plan_target){0};
    snprintf(t->name, sizeof t->name, "%s", name);
    if (!strcmp(name, "cpu") || !strcmp(name, "this") || !strcmp(name, "meta:cpu")) return is_this_machine(t);
    const struct hardware *chip = hardware_seek(name);
    if (chip) return is_chip(t, chip);
    if (target_find(name) || strpbrk(name, ":@") || !strcmp(name, "cuda")) return is_own(t, device_stand_in(name));
    hardware_find(name);
    return false;
}

const char *plan_target_origin(const struct plan_target *t) {
    static const char *const names[] = {
        [TARGET_MEASURED] = "measured", [TARGET_SHEET] = "never run", [TARGET_DRIVER] = "driver"};
    return t->is_assumed ? "assumed" : names[t->device->target->origin];
}

void plan_target_measured(struct plan_target *t, const struct machine *machine) {
    t->speed = predict_machine_of(machine);
}

void plan_target_override(struct plan_target *t, const struct settings *s) {
    uint64_t bytes = settings_memory_limit(s);
    const struct recipe *recipe = s->peak > 0 ? recipe_find(settings_choice(s, "recipe")) : NULL;
    if (recipe) t->speed.peak[recipe_product_dtype(recipe)] = s->peak;
    t->has_given_peak = recipe != NULL;
    if (!bytes) return;
    t->memory_bytes = bytes;
    t->outside_bytes = 0;
}

uint64_t plan_target_limit(const struct plan_target *t) {
    return t->memory_bytes > t->outside_bytes ? t->memory_bytes - t->outside_bytes : t->memory_bytes;
}

/* planner.c: the program of the planner's page: those commands of `tally` that need no kernels and no files, with their
 * own words, options and exit codes; and `choices`, which tells the page what there is to choose from.
 *
 * The page runs each question in a new instance, so a command runs once here too. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/cli.h"
#include "plan/framework.h"
#include "plan/hardware.h"
#include "plan/network.h"
#include "step/settings.h"

static json_t *models(void) {
    json_t *list = json_array();
    const char *name;
    for (int i = 0; (name = tl_model_preset_name(i)); i++) {
        tl_model_config c;
        if (!tl_model_preset(name, &c)) break;
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "name", name, "family", tl_family_name(c.family),
                            "parameters", (json_int_t)tl_model_config_parameters(&c), "active_parameters",
                            (json_int_t)tl_model_config_active_parameters(&c), "layers", (json_int_t)c.n_layers,
                            "channels", (json_int_t)c.channels, "context", (json_int_t)c.context));
    }
    return list;
}

/* Names, and the figures that a list shows. */
static json_t *chips(void) {
    json_t *list = json_array();
    const struct hardware *h;
    for (int i = 0; (h = hardware_at(i)); i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:f, s:f, s:f}", "name", h->name, "vendor", h->vendor,
                                              "memory_bytes", hardware_memory_bytes(h), "bf16",
                                              hardware_value(h, HARDWARE_BF16), "bandwidth",
                                              hardware_value(h, HARDWARE_BANDWIDTH)));
    return list;
}

static json_t *networks(void) {
    json_t *list = json_array();
    const struct network *n;
    for (int i = 0; (n = network_at(i)); i++) json_array_append_new(list, json_string(n->name));
    return list;
}

/* Each name once: a framework may have a row for each of several recipes. */
static json_t *framework_names(void) {
    json_t *list = json_array();
    for (int i = 0; i < n_frameworks; i++)
        if (!i || strcmp(frameworks[i].name, frameworks[i - 1].name))
            json_array_append_new(list, json_string(frameworks[i].name));
    return list;
}

static json_t *settings(void) {
    json_t *all = json_object();
    const struct setting_row *row;
    for (int i = 0; (row = settings_row(i)); i++)
        json_object_set_new(all, row->name,
                            json_pack("{s:s, s:s, s:s}", "kind", row->kind, "default", row->value, "help", row->help));
    return all;
}

static int cmd_choices(int argc, char **argv) {
    (void)argc, (void)argv;
    return cli_json(json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "version", tl_version(), "models", models(), "chips",
                              chips(), "networks", networks(), "frameworks", framework_names(), "settings",
                              settings()));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[] = {{"plan", cmd_plan},
                    {"fit", cmd_fit},
                    {"napkin", cmd_napkin},
                    {"devices", cmd_devices},
                    {"choices", cmd_choices}};
    tl_set_error_policy(TL_RETURN);
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(argv[1], commands[i].name)) return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "tally: the planner's page has the commands plan, fit, napkin and devices only\n");
    return EXIT_USAGE;
}

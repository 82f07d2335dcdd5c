#include "cli/plan_options.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/learning.h"
#include "cli/near.h"
#include "step/defaults.h"
#include "step/recipe.h"

static const struct option *option_of(const struct option *table, const char *flag) {
    for (; table->kind != OPTION_END; table++)
        if (near_same(table->name, flag)) return table;
    return NULL;
}

int plan_flags_read(struct plan_flags *f, const char *command, const struct option *table, int argc, char **argv,
                    int n_words) {
    char **own = malloc((size_t)(argc + 1) * sizeof *own); /* what the table reads */
    int n = 0, code = own ? 0 : EXIT_MEMORY;
    if (own) own[n++] = argv[0];
    for (int i = 1, taken; !code && i < argc; i += taken) {
        const struct option *o = option_of(table, argv[i]);
        bool has_value = i + 1 < argc;
        taken = 1;
        if (strncmp(argv[i], "--", 2) && (!n_words || argv[i][0] == '-'))
            code = settings_flag(&f->settings, command, table, argv + i, argc - i, &taken);
        else if (strncmp(argv[i], "--", 2)) own[n++] = argv[i];
        else if (o) {
            taken = o->kind == OPTION_FLAG || strchr(argv[i], '=') || !has_value ? 1 : 2;
            for (int k = 0; k < taken; k++) own[n++] = argv[i + k];
        } else {
            given_add(&f->given, argv[i]);
            code = settings_flag(&f->settings, command, table, argv + i, argc - i, &taken);
        }
    }
    if (!code) code = options_read_given(command, table, n, own, &f->what, n_words, &f->given);
    free(own);
    return code;
}

bool plan_reads(const char *setting) {
    char flag[64];
    snprintf(flag, sizeof flag, "--%.60s", setting);
    return !options_list(PLAN_UNREAD, flag);
}

/* A setting that is swept has the sweep's values. */
static int sweeps_check(const struct plan_flags *f) {
    for (int i = 0; i < f->sweeps.n; i++) {
        char flag[48];
        snprintf(flag, sizeof flag, "--%.*s", (int)strcspn(f->sweeps.at[i], "="), f->sweeps.at[i]);
        if (!given_has(&f->given, flag)) continue;
        fprintf(stderr, "tally plan: %s has no effect beside --sweep %s (see `tally plan --help`)\n", flag,
                f->sweeps.at[i]);
        return EXIT_USAGE;
    }
    return 0;
}

/* A file of settings says as much as flags do, and so does a sweep. */
int plan_flags_check(const struct plan_flags *f, const struct option_form *forms, const struct option_form *form,
                     const struct option_rule *rules) {
    struct options_given given = f->given;
    const struct settings *s = &f->settings;
    int code = options_check(forms, form, NULL, &given);
    if (!code) code = sweeps_check(f);
    if (code) return code;
    char swept[TEXTS_MOST][48];
    for (int i = 0; i < f->sweeps.n; i++) {
        snprintf(swept[i], sizeof swept[i], "--%s", f->sweeps.at[i]);
        given_add(&given, swept[i]);
    }
    if (s->pp > 1) given_add(&given, "--pp");
    if (s->tp > 1 || s->cp > 1 || s->pp > 1 || s->dp > 1) given_add(&given, "--devices");
    const struct option_form every[] = {{form->name, NULL, NULL}, {NULL, NULL, NULL}};
    return options_check(every, every, rules, &given);
}

/* Measurements of this machine, if it is the one that is asked about and has any. */
static void machine_look(struct plan_flags *f) {
    const char *name = f->settings.device;
    bool is_gpu = !strncmp(name, "cuda", 4);
    char why[200];
    if (!is_gpu && strcmp(name, "cpu") && strcmp(name, "this")) return;
    if (!is_gpu) name = "cpu";
    if (f->settings.threads) tl_set_threads((int)f->settings.threads);
    tl_device *device = tl_device_find(is_gpu ? "cuda" : "cpu");
    if (f->has_machine && strncmp(f->machine.device, name, 3)) { /* of the other one, in a sweep over both */
        machine_free(&f->machine);
        f->has_machine = false;
    }
    if (!f->has_machine) f->has_machine = device && machine_find(&f->machine, device, why);
    tl_error_clear(); /* no GPU here: the plan is for one that is elsewhere */
    if (f->has_machine) plan_target_measured(&f->target, &f->machine);
}

void plan_flags_free(struct plan_flags *f) {
    if (f->has_machine) machine_free(&f->machine);
    tl_tokenizer_free(f->made);
    hardware_unload();
}

/* Which devices, and what joins them. */
static bool devices_read(struct plan_flags *f) {
    struct plan_options *o = &f->options;
    struct layout *l = &o->layout;
    if (f->schedule && !schedule_find(f->schedule, &l->schedule)) return false;
    if (l->chunks > 1 && !f->schedule) l->schedule = SCHEDULE_INTERLEAVED;
    const struct network *named = f->fabric ? network_find(f->fabric) : NULL;
    if (f->fabric && !named) return false;
    o->network = named ? *named : network_of(f->target.chip);
    network_override(&o->network, f->link * 1e9, f->between * 1e9, f->node);
    return true;
}

/* A peak that the chip cannot have, such as its 2:4-sparse one. */
static bool peak_check(const struct plan_flags *f) {
    const struct recipe *recipe = f->settings.peak > 0 ? recipe_find(settings_choice(&f->settings, "recipe")) : NULL;
    char doubt[300];
    if (!recipe || !f->target.chip) return true;
    const enum hardware_quantity q = hardware_peak_of(recipe_product_dtype(recipe));
    return !hardware_doubt(f->target.chip, q, f->settings.peak, doubt) ||
           error_set(TL_ERROR_USE, "--peak: %s (your own chip needs --hardware FILE)", doubt);
}

bool plan_target_take(struct plan_flags *f) {
    if (!f->has_hardware && (!hardware_load_default() || (f->hardware && !hardware_load(f->hardware)))) return false;
    f->has_hardware = true;
    if (!plan_target_find(&f->target, f->settings.device) || !devices_read(f)) return false;
    machine_look(f);
    if (!peak_check(f)) return false;
    plan_target_override(&f->target, &f->settings);
    return true;
}

int plan_target_read(struct plan_flags *f) {
    if (!plan_target_take(f)) return cli_error();
    tl_tokenizer *made; /* once for all prices of the command */
    int code = learning_ready("plan", &f->settings, &made);
    if (code) return code;
    if (made) {
        tl_tokenizer_free(f->made);
        f->made = made;
    }
    plan_defaults(f, &f->settings);
    return 0;
}

void plan_defaults(const struct plan_flags *f, struct settings *s) {
    struct defaults_machine m = {
        .device = f->target.device, .memory_bytes = plan_target_limit(&f->target), .n_dp = s->dp ? s->dp : 1};
    if (f->options.n_devices > 1) m.n_dp = f->options.n_devices / (s->tp * s->cp * s->pp);
    if (f->is_inference) defaults_choose_inference(s, m.device);
    else defaults_choose(s, &m);
}

void plan_defaults_print(const struct settings *s) {
    char text[256];
    if (*settings_chosen(s, false, text, sizeof text))
        printf("defaults for this model: %s\n", settings_chosen(s, false, text, sizeof text));
}

const char *growth_text(const struct fit_answer *answer, char buffer[GROWTH_TEXT]) {
    const char *module;
    const char *purpose = tl_purpose_name(fit_growth(answer, &module));
    bool has_module = *module && strcmp(module, "-"); /* "-": outside all modules */
    snprintf(buffer, GROWTH_TEXT, "mostly %s%s%s", purpose, has_module ? " in " : "", has_module ? module : "");
    return buffer;
}

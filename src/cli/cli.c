#include "cli/cli.h"

#include <stdlib.h>

#include "base/number.h"
#include "base/json.h"
#include "tensor/device.h"

int cli_error_code(void) {
    switch (tl_error()) {
    case TL_ERROR_MEMORY:
        return EXIT_MEMORY;
    case TL_ERROR_IO:
    case TL_ERROR_SYSTEM:
        return EXIT_IO;
    default:
        return EXIT_INPUT;
    }
}

int cli_error_of(const char *command) {
    fprintf(stderr, "tally%s%s: %s\n", *command ? " " : "", command, tl_error_message());
    return cli_error_code();
}

int cli_error(void) { return cli_error_of(""); }

int cli_json(json_t *value) {
    char *text = value ? json_print(value, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(value);
    if (!text) {
        fprintf(stderr, "tally: out of memory\n");
        return EXIT_MEMORY;
    }
    puts(text);
    free(text);
    return 0;
}

tl_device *cli_device_measured(const char *command, const char *name, int *code) {
    tl_device *device = tl_device_find(name);
    if (!device) *code = cli_error();
    else if (device_has_data(device)) return device;
    else {
        fprintf(stderr, "tally %s: meta computes nothing, so there is nothing to measure\n", command);
        *code = EXIT_INPUT;
    }
    return NULL;
}

const char *active_text(const tl_model_config *c, char *buffer) {
    char n[32];
    *buffer = 0;
    if (c->n_experts)
        snprintf(buffer, 64, ", of which %s active", grouped_text((uint64_t)tl_model_config_active_parameters(c), n));
    return buffer;
}

const char *trained_text(int64_t n_trained, int64_t n_parameters, bool has_lora, char *buffer) {
    char n[32];
    number_print(buffer, TRAINED_TEXT, "%s parameters%s, %.3g %% of the model's; the %s frozen",
                 grouped_text((uint64_t)n_trained, n), has_lora ? " of adapters" : "",
                 100 * (double)n_trained / (double)n_parameters, has_lora ? "model is" : "others are");
    return buffer;
}

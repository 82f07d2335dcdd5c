#include "plan/mfu.h"

#include <math.h>
#include <string.h>

#define MAXTEXT "MaxText, README.md of 2024"
#define FOUNDRY "llm-foundry's benchmarks, bf16"

const struct mfu_row mfu_rows[] = {
    {"A100", 125e6, 0.446, 20, FOUNDRY},
    {"A100", 350e6, 0.506, 19, FOUNDRY},
    {"A100", 760e6, 0.530, 19, FOUNDRY},
    {"A100", 1.3e9, 0.558, 19, FOUNDRY},
    {"A100", 2.7e9, 0.570, 19, FOUNDRY},
    {"A100", 6.7e9, 0.509, 17, FOUNDRY},
    {"A100", 13e9, 0.520, 15, FOUNDRY},
    {"A100", 30e9, 0.522, 7, FOUNDRY},
    {"A100", 65e9, 0.487, 4, FOUNDRY},
    {"A100", 175e9, 0.514, 1, "Korthikanti et al. 2022, table 5"},
    {"A100", 530e9, 0.542, 1, "Korthikanti et al. 2022, 2240 GPUs"},
    {"A100", 1e12, 0.563, 1, "Korthikanti et al. 2022, table 5"},
    {"H100", 760e6, 0.358, 9, FOUNDRY},
    {"H100", 1.3e9, 0.404, 14, FOUNDRY},
    {"H100", 2.7e9, 0.412, 13, FOUNDRY},
    {"H100", 6.7e9, 0.422, 9, FOUNDRY},
    {"H100", 13e9, 0.400, 11, FOUNDRY},
    {"H100", 30e9, 0.403, 9, FOUNDRY},
    {"H100", 65e9, 0.424, 5, FOUNDRY},
    {"H100", 175e9, 0.445, 2, "Megatron-core, README: 47 % on 96 GPUs, 42 % on 4608"},
    {"H100", 405e9, 0.41, 3, "Llama team 2024, table 4"},
    {"TPU v4", 540e9, 0.462, 1, "Chowdhery et al. 2022, section 4.1"},
    {"TPU v5p", 32e9, 0.715, 1, MAXTEXT},
    {"TPU v5p", 64e9, 0.703, 1, MAXTEXT},
    {"TPU v5p", 128e9, 0.686, 2, MAXTEXT},
    {"TPU v5p", 256e9, 0.688, 1, MAXTEXT},
    {"TPU v5p", 512e9, 0.640, 1, MAXTEXT},
    {"TPU v5p", 1.1e12, 0.645, 4, MAXTEXT},
    {"TPU v5e", 16e9, 0.587, 6, MAXTEXT},
    {"TPU v5e", 32e9, 0.639, 6, MAXTEXT},
    {"TPU v5e", 64e9, 0.554, 6, MAXTEXT},
    {"TPU v5e", 128e9, 0.539, 6, MAXTEXT},
    {NULL, 0, 0, 0, NULL},
};

const struct mfu_row *mfu_find(const struct hardware *chip, double parameters) {
    const struct mfu_row *best = NULL;
    double nearest = INFINITY;
    if (!(parameters > 0)) parameters = 7e9;
    for (const struct mfu_row *r = mfu_rows; chip && r->chip; r++) {
        const double distance = fabs(log(r->parameters / parameters));
        const char *name = strncmp(chip->name, "H200", 4) ? chip->name : "H100"; /* the same units at the same clock */
        if (strncmp(name, r->chip, strlen(r->chip)) || distance >= nearest) continue;
        nearest = distance;
        best = r;
    }
    return best;
}

double mfu_roofline_share(const struct hardware *chip, double parameters) {
    const struct mfu_row *row = mfu_find(chip, parameters);
    return row ? MFU_TO_ROOFLINE * row->mfu : 0.5;
}

/* trained_options.h: what `generate` and `eval` share: which trained model, on what device. */
#ifndef CLI_TRAINED_OPTIONS_H
#define CLI_TRAINED_OPTIONS_H

#include "cli/options.h"
#include "train/open.h"

struct trained_flags {
    const char *folder, *device;
    int64_t step, threads;
    bool is_best, is_json;
    tl_dtype dtype; /* of the weights; TL_DTYPE_COUNT, the default: as opened_open has them */
};

/* Reads the flags of `own` (which point elsewhere) and those of *f, which is filled with its defaults first.
 * `needed` is the name that the command's help gives to the folder, which must be there: --model or --checkpoint. 0,
 * or the exit code. */
int trained_flags_read(struct trained_flags *f, const char *command, const char *needed, const struct option *own,
                       int argc, char **argv);
/* Finds the device and opens the model (train/open.h). 0, or the exit code, and nothing is open. */
int trained_open(const struct trained_flags *f, struct opened *o, tl_device **device);

#endif

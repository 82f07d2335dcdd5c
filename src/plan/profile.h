/* profile.h: what was measured of one machine: how fast its ops are, by size. Made by `tally calibrate` (calibrate.h), kept as a JSON
 * file, schema tally.profile/1 (docs/planning.md), used by predict.h and roofline.h. */
#ifndef PLAN_PROFILE_H
#define PLAN_PROFILE_H

#include <jansson.h>

#include "account/hardware.h"
#include "tally.h"

/* One op at one size: all per call. */
struct profile_sample {
    char op[32];
    tl_dtype dtype;
    bool is_backward;
    double flops, bytes, seconds;
};

/* A square product, or a copy: the rate at one size. */
struct profile_product {
    tl_dtype dtype;
    double m, k, n, flops_per_s;
};
struct profile_stream {
    double bytes;                    /* of the working set */
    double read, write, copy, triad; /* bytes/s counted: 1, 1, 2 and 3 streams */
};

struct profile {
    char device[32], machine[128], isa[32], date[32];
    int threads;
    double clock_hz; /* 0: not known */
    /* of multiply-adds, in registers: by the chip's arithmetic (0: not known), and measured (0: no probe); by sheet, of a chip of the table */
    double product[HARDWARE_N_PEAKS], measured[HARDWARE_N_PEAKS], sheet[HARDWARE_N_PEAKS];
    double sheet_bandwidth;
    /* what a step takes besides its kernels: seconds per op call, and a share of the kernels' time */
    double call_s, rest_share;
    struct profile_product *products;
    struct profile_stream *streams;
    struct profile_sample *samples;
    int n_products, n_streams, n_samples;
};

void profile_free(struct profile *p);

/* The most that was seen: of a dtype's products, registers included (0: nothing was); of memory, beyond all caches. */
double profile_peak(const struct profile *p, tl_dtype dtype);
double profile_bandwidth(const struct profile *p);
/* Of a working set of so many bytes: between the sizes that were measured. 0: none were. */
double profile_bandwidth_of(const struct profile *p, double bytes);

json_t *profile_json(const struct profile *p);
/* False: recorded. */
bool profile_read(struct profile *p, const char *path);
bool profile_write(const struct profile *p, const char *path);
/* ~/.config/tally/profile-DEVICE.json; memory_free it. NULL: there is no home. */
char *profile_default_path(const char *device);
/* The default one, if it is there and is of this machine, device, instruction set and number of threads. False: there is none;
 * `why` (200 bytes) says so. Nothing is recorded. */
bool profile_find(struct profile *p, tl_device *device, char *why);
/* This machine's name: its processor and how many of them, or the GPU's. */
void profile_machine(tl_device *device, char *text, size_t size);

#endif

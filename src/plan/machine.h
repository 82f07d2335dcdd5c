/* machine.h: the profile of a machine: the measured speed of its ops, by size. Made by `tally calibrate`
 * (calibrate.h), kept as a JSON file, schema tally.machine/2 (docs/planning.md), used by predict.h and roofline.h. */
#ifndef PLAN_MACHINE_H
#define PLAN_MACHINE_H

#include <jansson.h>

#include "plan/hardware.h"
#include "tally.h"

/* One op at one size: all per call. */
struct machine_sample {
    char op[32];
    tl_dtype dtype;
    bool is_backward;
    double flops, bytes, written, seconds; /* written: of the bytes */
    double inner;                          /* innermost size of the model it was measured in */
    double length;                         /* of a sequence, for attention; 0: not known */
};

/* A square product, or a copy: the rate at one size. */
struct machine_product {
    tl_dtype dtype;
    double m, k, n, flops_per_s;
};
struct machine_stream {
    double bytes;                    /* of the working set */
    double read, write, copy, triad; /* bytes/s counted: 1, 1, 2 and 3 streams */
};

struct machine {
    char device[32], machine[128], isa[32], date[32];
    int threads;
    double clock_hz; /* 0: not known */
    /* of multiply-adds, in registers: by the chip's arithmetic (0: not known), and measured (0: no probe); by sheet,
     * of a chip of the table */
    double product[HARDWARE_N_PEAKS], measured[HARDWARE_N_PEAKS], sheet[HARDWARE_N_PEAKS];
    double sheet_bandwidth;
    /* a step's time outside its kernels: seconds per op call, and a share of the kernels' time */
    double call_s, rest_share;
    double host_call_s; /* time to launch an op on a device that works asynchronously; 0: it does not */
    struct machine_product *products;
    struct machine_stream *streams;
    struct machine_sample *samples;
    int n_products, n_streams, n_samples;
};

void machine_free(struct machine *p);

/* The highest rate measured: of a dtype's products, registers included (0: none was); of memory, beyond all caches. */
double machine_peak(const struct machine *p, tl_dtype dtype);
double machine_bandwidth(const struct machine *p);
/* The bandwidth of a working set of that many bytes, interpolated between the sizes measured. 0: none were. */
double machine_bandwidth_of(const struct machine *p, double bytes);

json_t *machine_json(const struct machine *p);
/* False: recorded. */
bool machine_read(struct machine *p, const char *path);
bool machine_write(const struct machine *p, const char *path);
/* Whether machine_write can succeed: makes the folder, and a file beside the path that it deletes at once. False:
 * recorded. */
bool machine_can_write(const char *path);
/* ~/.config/tally/machine-DEVICE.json; memory_free it. NULL: there is no home. */
char *machine_default_path(const char *device);
/* The default profile, if it exists and is for this machine, device, instruction set and number of threads. False:
 * there is none, and `why` (200 bytes) says why. Nothing is recorded. */
bool machine_find(struct machine *p, tl_device *device, char *why);
/* This machine's name: its processor and the number of cores, or the GPU's. */
void machine_name(tl_device *device, char *text, size_t size);

#endif

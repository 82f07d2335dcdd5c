/* hardware.h: chips by their data sheets: dense peaks, memory, links, power; and how reliable each figure is.
 *
 * A figure is a *cell*: a value in base units (FLOP/s, B, B/s, W), its source, its year, how reliable it is, and, if
 * known, the product that must give it (units x work per unit and clock x clock). A quantity that is not known is 0:
 * then there is no percentage. Nothing is ever taken from another chip.
 *
 * Peaks are dense. Matrix products accumulate in f32 unless the quantity's name says f16: on GeForce chips the two
 * differ by 2. */
#ifndef PLAN_HARDWARE_H
#define PLAN_HARDWARE_H

#include <jansson.h>

#include "tally.h"

enum hardware_quantity {
    HARDWARE_F64, /* vector units */
    HARDWARE_F32, /* vector units */
    HARDWARE_TF32,
    HARDWARE_F16,
    HARDWARE_BF16,
    HARDWARE_F8,
    HARDWARE_F4,
    HARDWARE_I8,
    HARDWARE_F16_F16, /* accumulated in f16 */
    HARDWARE_F8_F16,
    HARDWARE_N_PEAKS,
    HARDWARE_MEMORY = HARDWARE_N_PEAKS, /* nominal: GB of 10^9, unless its maker counts in GiB */
    HARDWARE_MEMORY_SEEN,               /* as the driver reports it */
    HARDWARE_BANDWIDTH,
    HARDWARE_LINK, /* to the other chips, both ways together */
    HARDWARE_POWER,
    HARDWARE_COUNT
};

struct hardware_quantity_info {
    const char *name;       /* "bf16", "bandwidth": keys of the JSON too */
    const char *unit;       /* "FLOP/s" */
    const char *accumulate; /* "f32"; NULL if it is not a peak */
};
extern const struct hardware_quantity_info hardware_quantities[HARDWARE_COUNT];

enum hardware_confidence { HARDWARE_UNCONFIRMED, HARDWARE_LOW, HARDWARE_MEDIUM, HARDWARE_HIGH, HARDWARE_OWN };
const char *hardware_confidence_name(enum hardware_confidence confidence);

struct hardware_cell {
    double value; /* 0: not known */
    enum hardware_confidence confidence;
    double units, per_clock, clock; /* the product, clock in Hz; all 0: not known */
    const char *source, *date;      /* NULL: the chip's own */
};

struct hardware {
    const char *name, *aliases; /* aliases: divided by commas */
    const char *vendor, *source, *date, *note;
    const char *target; /* of Tally's own, which has the memory that the driver reports; NULL: none */
    struct hardware_cell cells[HARDWARE_COUNT];
    bool is_own; /* from a file of the user's */
};

/* The chips, those from files first; NULL after the last. Valid until hardware_unload. */
const struct hardware *hardware_at(int index);
/* By name or alias; case, spaces and punctuation do not matter, nor does the maker's name before it. NULL: recorded,
 * with a suggestion. hardware_seek records nothing. */
const struct hardware *hardware_find(const char *name);
const struct hardware *hardware_seek(const char *name);

/* The figure of a chip: that of its row, or, for the memory that the driver reports, that of its target. */
struct hardware_cell hardware_cell(const struct hardware *h, enum hardware_quantity quantity);
/* 0: not known. */
double hardware_value(const struct hardware *h, enum hardware_quantity quantity);
const char *hardware_source(const struct hardware *h, enum hardware_quantity quantity);
const char *hardware_date(const struct hardware *h, enum hardware_quantity quantity);
/* Bytes of memory: as the driver reports them, if known, else the nominal size. 0: not known. */
double hardware_memory_bytes(const struct hardware *h);
/* The quantity that is the peak of products of a dtype: f8e4m3 and f8e5m2 are HARDWARE_F8. HARDWARE_COUNT: none. */
enum hardware_quantity hardware_peak_of(tl_dtype dtype);
/* By name ("bf16", "tf32", "fp8" as well as "f8"); HARDWARE_COUNT: recorded, with a suggestion. */
enum hardware_quantity hardware_peak_named(const char *name);

/* Units x work x clock of a cell, 0 when not known; a cell is wrong if it differs from its value by more than this. */
#define HARDWARE_TOLERANCE 0.015
double hardware_product(const struct hardware_cell *cell);

/* What is wrong with a figure given for a chip: a known wrong figure in circulation, or twice the dense one (2:4
 * sparse, or accumulated in f16). NULL if nothing is. `buffer` has room for 300 bytes. */
const char *hardware_doubt(const struct hardware *h, enum hardware_quantity quantity, double value, char *buffer);

/* Figures seen in print that are wrong; the last has no chip. */
struct hardware_wrong {
    const char *chip;
    enum hardware_quantity quantity;
    double value, right; /* right 0: there is no such path */
    const char *where;
};
extern const struct hardware_wrong hardware_wrongs[];

/* Adds the chips of a file, schema tally.hardware/1 (docs/planning.md). A chip of a known name replaces it. A figure
 * that is known to be wrong is refused, unless the chip is new. False: recorded, and nothing was added. */
bool hardware_load(const char *path);
/* The same for ~/.config/tally/hardware.json (or under XDG_CONFIG_HOME), if it exists. */
bool hardware_load_default(void);
void hardware_unload(void);
/* The path of a user's file: ~/.config/tally/NAME or $XDG_CONFIG_HOME/tally/NAME. memory_free it; NULL: there is no
 * home. */
char *hardware_config_path(const char *name);

/* One chip as an object of tally.hardware/1. NULL: no memory. */
json_t *hardware_json(const struct hardware *h);

#endif

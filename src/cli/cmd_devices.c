/* cmd_devices.c: tally devices */
#include <inttypes.h>
#include <jansson.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "plan/hardware.h"
#include "plan/network.h"
#include "device/devices.h"

const char help_devices[] =
    "usage: tally devices [NAME] [--hardware FILE] [--json]\n"
    "\n"
    "Lists the known chips: dense peaks in TFLOP/s (products accumulated in f32), memory, bandwidth, links, power;\n"
    "and the networks between them: inside a node, and between nodes.\n"
    "With a NAME, lists every figure of one chip: the accumulation type of products, the source and its year, the\n"
    "confidence, and the product of units, work per clock and clock that must equal it. Unknown figures are left\n"
    "out; none is taken from another chip.\n"
    "\n"
    "  --hardware FILE   your own chips and networks, tally.hardware/1; ~/.config/tally/hardware.json is read if it "
    "exists\n"
    "  --json            the same as JSON, a table of tally.hardware/1\n"
    "\n"
    "examples:\n"
    "  tally devices\n"
    "  tally devices H100\n"
    "  tally devices 'NVIDIA A100-SXM4-80GB' --json | jq '.devices[0].bf16.value'\n";

/* ---- Text ---- */

static void number_print(const struct hardware *h, enum hardware_quantity q, double unit, int width) {
    double value = hardware_value(h, q);
    char text[32] = "-";
    if (value > 0)
        snprintf(text, sizeof text, "%.5g%s", value / unit,
                 hardware_cell(h, q).confidence < HARDWARE_MEDIUM ? "?" : "");
    printf(" %*s", width, text);
}

/* The targets: what `plan --device`, `train --price --device` and meta: can price, by rules of their own. */
static void targets_print(void) {
    static const char *const origins[] = {
        [TARGET_MEASURED] = "price and receipt agreed on it", [TARGET_SHEET] = "never run", [TARGET_DRIVER] = "driver"};
    const struct target *t;
    printf("\n%-12s %8s %14s  %-20s %s\n", "targets", "compute", "memory, B", "native products", "");
    for (int i = 0; (t = target_at(i)); i++) {
        char compute[16] = "-", memory[32] = "-";
        if (t->capability) snprintf(compute, sizeof compute, "%d.%d", t->capability / 10, t->capability % 10);
        if (t->memory_bytes) snprintf(memory, sizeof memory, "%" PRIu64, t->memory_bytes);
        printf("%-12s %8s %14s  f32, f16%-12s %s\n", t->name, compute, memory,
               target_has_native(t, TL_F8E4M3) ? ", bf16, f8"
               : target_has_native(t, TL_BF16) ? ", bf16"
                                               : "",
               origins[t->origin]);
    }
    puts("Products in narrower dtypes are emulated: operands are rounded, and multiplied in 16 bits. A target without\n"
         "bf16 refuses recipes that need it. `cuda:0@TARGET` runs on a larger card as if it were the target.");
}

/* GB/s; what was not measured is left out. */
static const char *speed_text(double speed, char text[16]) {
    snprintf(text, 16, speed > 0 ? "%.4g" : "-", speed / 1e9);
    return text;
}

static void networks_print(void) {
    const struct network *net;
    char link[16], reduce[16], gather[16], share[16], measured[16];
    printf("\n%-24s %5s %8s %8s %8s %8s %8s  %s\n", "networks, GB/s one way", "node", "link", "reduce", "gather",
           "between", "measured", "chips");
    for (int i = 0; (net = network_at(i)); i++) {
        double per = network_share(net), reached = net->nic > 0 ? per * net->nic_reduce / net->nic : 0;
        printf("%-24s %5" PRId64 " %8s %8s %8s %8s %8s  %s\n", net->name, net->node, speed_text(net->link, link),
               speed_text(net->reduce, reduce), speed_text(net->gather, gather), speed_text(per, share),
               speed_text(reached, measured),
               net->chips     ? net->chips
               : net->aliases ? net->aliases
                              : "");
    }
    puts("node: devices that share the link. reduce, gather: measured bus bandwidth of large all-reduces and gathers.\n"
         "between: one device's share of the node's network cards, by their data sheets, and as measured. Choose one\n"
         "with `tally plan --fabric NAME`.");
}

static int table_print(void) {
    static const enum hardware_quantity peaks[] = {HARDWARE_F32,  HARDWARE_TF32, HARDWARE_F16,
                                                   HARDWARE_BF16, HARDWARE_F8,   HARDWARE_F4};
    const struct hardware *h;
    printf("%-16s %8s %8s %8s %8s %8s %8s %8s %8s %8s %6s\n", "TFLOP/s, dense", "f32", "tf32", "f16", "bf16", "f8",
           "f4", "GB", "GB/s", "link", "W");
    for (int i = 0; (h = hardware_at(i)); i++) {
        printf("%-16s", h->name);
        for (int p = 0; p < 6; p++) number_print(h, peaks[p], 1e12, 8);
        number_print(h, HARDWARE_MEMORY, 1e9, 8);
        number_print(h, HARDWARE_BANDWIDTH, 1e9, 8);
        number_print(h, HARDWARE_LINK, 1e9, 8);
        number_print(h, HARDWARE_POWER, 1, 6);
        printf("%s\n", h->is_own ? "  yours" : "");
    }
    printf("\n?: unconfirmed, or from third parties. `tally devices NAME` shows sources and years.\n");
    networks_print();
    targets_print();
    return 0;
}

/* In units that read well: TFLOP/s, GB, GB/s, W. */
static void cell_print(const struct hardware *h, enum hardware_quantity q) {
    const struct hardware_cell own = hardware_cell(h, q), *cell = &own;
    const struct hardware_quantity_info *info = &hardware_quantities[q];
    bool is_peak = q < HARDWARE_N_PEAKS;
    char value[48], product[64] = "";
    if (!(cell->value > 0)) return;
    double scale = is_peak ? 1e12 : q == HARDWARE_POWER ? 1 : 1e9;
    snprintf(value, sizeof value, "%.6g %s%s", cell->value / scale,
             is_peak               ? "T"
             : q == HARDWARE_POWER ? ""
                                   : "G",
             info->unit);
    if (cell->units > 0 && is_peak)
        snprintf(product, sizeof product, "%g x %g x %.4g GHz = %.5g", cell->units, cell->per_clock, cell->clock / 1e9,
                 hardware_product(cell) / scale);
    else if (cell->units > 0)
        snprintf(product, sizeof product, "%g pins x %.4g Gb/s = %.5g", cell->units, cell->clock / 1e9,
                 hardware_product(cell) / scale);
    printf("  %-12s %15s  %-3s  %-11s %-4s %-36s %s\n", info->name, value, info->accumulate ? info->accumulate : "",
           hardware_confidence_name(cell->confidence), hardware_date(h, q) ? hardware_date(h, q) : "", product,
           hardware_source(h, q) ? hardware_source(h, q) : "");
}

static int chip_print(const struct hardware *h) {
    printf("%s%s%s%s%s\n", h->name, h->vendor ? ", " : "", h->vendor ? h->vendor : "", h->aliases ? "; also " : "",
           h->aliases ? h->aliases : "");
    if (h->note) printf("  note: %s\n", h->note);
    printf("  %-12s %15s  %-3s  %-11s %-4s %-36s %s\n", "", "dense", "sum", "confidence", "year", "product", "source");
    for (int q = 0; q < HARDWARE_COUNT; q++) cell_print(h, (enum hardware_quantity)q);
    double bf16 = hardware_value(h, HARDWARE_BF16), bandwidth = hardware_value(h, HARDWARE_BANDWIDTH);
    if (bf16 > 0 && bandwidth > 0)
        printf("  ridge of bf16: %.1f FLOP/B; below it an op is memory-bound\n", bf16 / bandwidth);
    return 0;
}

/* ---- JSON ---- */

static json_t *table_json(const struct hardware *only) {
    json_t *devices = json_array();
    const struct hardware *h;
    for (int i = 0; (h = hardware_at(i)); i++)
        if (!only || h == only) json_array_append_new(devices, hardware_json(h));
    json_t *networks = json_array();
    const struct network *net;
    for (int i = 0; !only && (net = network_at(i)); i++) json_array_append_new(networks, network_json(net));
    if (only) { /* its usual one */
        struct network own = network_of(only);
        if (!own.is_assumed && own.link > 0) json_array_append_new(networks, network_json(&own));
    }
    return json_pack("{s:s, s:o, s:o}", "schema", "tally.hardware/1", "devices", devices, "networks", networks);
}

int cmd_devices(int argc, char **argv) {
    const char *name = NULL, *file = NULL;
    bool is_json = false;
    const struct option table[] = {{"--hardware", OPTION_TEXT, &file, 0, 0, false},
                                   {"--json", OPTION_FLAG, &is_json, 0, 0, false},
                                   {NULL, OPTION_END, NULL, 0, 0, false}};
    int code = options_read("devices", table, argc, argv, &name, 1);
    if (code) return code;
    if (!hardware_load_default() || (file && !hardware_load(file))) return cli_error();
    const struct hardware *h = name ? hardware_find(name) : NULL;
    code = name && !h ? cli_error() : is_json ? cli_json(table_json(h)) : h ? chip_print(h) : table_print();
    hardware_unload();
    return code;
}

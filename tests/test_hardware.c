/* The table of chips: every cell is complete and agrees with its product, names are found and never guessed, known
 * wrong figures are not in it and are refused, and users' files are read or refused whole. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan/hardware.h"
#include "base/file.h"
#include "base/memory.h"

#define for_each_chip(h) for (int chip_ = 0; ((h) = hardware_at(chip_)); chip_++)

static void every_cell_says_where_it_comes_from(void **state) {
    (void)state;
    const struct hardware *h;
    int n_chips = 0, n_cells = 0;
    for_each_chip(h) {
        n_chips++;
        expect_true(h->name && h->vendor && h->source && h->date && !h->is_own);
        for (int q = 0; q < HARDWARE_COUNT; q++) {
            const struct hardware_cell *cell = &h->cells[q];
            if (cell->value == 0) continue;
            n_cells++;
            expect_true(cell->value > 0 && isfinite(cell->value));
            expect_true(hardware_source(h, (enum hardware_quantity)q) && hardware_date(h, (enum hardware_quantity)q));
            expect_true(cell->confidence != HARDWARE_OWN);
        }
    }
    expect_equal(n_chips, 62);
    expect_true(n_cells > 200);
    for (int q = 0; q < HARDWARE_COUNT; q++) {
        expect_true(hardware_quantities[q].name && hardware_quantities[q].unit);
        expect_equal(hardware_quantities[q].accumulate != NULL, q < HARDWARE_N_PEAKS);
    }
}

/* Units x work x clock: within 1.5 %. */
static bool agrees(const struct hardware_cell *cell) {
    return fabs(hardware_product(cell) / cell->value - 1) <= HARDWARE_TOLERANCE;
}

static void products_of_units_work_and_clock_give_the_figures(void **state) {
    (void)state;
    const struct hardware *h;
    int n = 0, n_peaks = 0;
    for_each_chip(h) for (int q = 0; q < HARDWARE_COUNT; q++) {
        const struct hardware_cell *cell = &h->cells[q];
        if (cell->units == 0) continue;
        n++;
        n_peaks += q < HARDWARE_N_PEAKS;
        if (!agrees(cell))
            fail_msg("%s, %s: %g says the sheet, %g the product", h->name, hardware_quantities[q].name, cell->value,
                     hardware_product(cell));
    }
    expect_true(n > 80 && n_peaks > 65);
    /* and the check can fail: a sparse figure, a figure of another clock */
    struct hardware_cell cell = hardware_find("H100")->cells[HARDWARE_BF16];
    cell.value *= 2;
    expect_true(!agrees(&cell));
    cell.value = 1000e12 * 1.01;
    expect_true(!agrees(&cell));
}

/* The facts that others rely on, digit by digit. */
static void known_figures(void **state) {
    (void)state;
    static const struct {
        const char *chip;
        enum hardware_quantity quantity;
        double value;
    } facts[] = {
        {"V100 SXM2", HARDWARE_F16, 125e12},
        {"V100 PCIe", HARDWARE_F16, 112e12},
        {"A100 40GB", HARDWARE_BANDWIDTH, 1555e9},
        {"A100", HARDWARE_BF16, 312e12},
        {"A100", HARDWARE_BANDWIDTH, 2039e9},
        {"A100 PCIe", HARDWARE_BANDWIDTH, 1935e9},
        {"H100", HARDWARE_BF16, 989.4e12},
        {"H100", HARDWARE_F8, 1978.9e12},
        {"H100", HARDWARE_TF32, 494.7e12},
        {"H100", HARDWARE_F32, 66.9e12},
        {"H100", HARDWARE_MEMORY, 80e9},
        {"H100", HARDWARE_MEMORY_SEEN, 85020639232.0},
        {"H100", HARDWARE_BANDWIDTH, 3350e9},
        {"H100", HARDWARE_LINK, 900e9},
        {"H100", HARDWARE_POWER, 700},
        {"H100 PCIe", HARDWARE_BF16, 756e12},
        {"H200", HARDWARE_BF16, 989.4e12},
        {"H200", HARDWARE_BANDWIDTH, 4800e9},
        {"B200", HARDWARE_F4, 9000e12},
        {"GB200", HARDWARE_BF16, 2500e12},
        {"L4", HARDWARE_F8, 242.5e12},
        {"RTX 3090", HARDWARE_BF16, 71e12},
        {"RTX 4090", HARDWARE_F16, 165.2e12},
        {"RTX 4090", HARDWARE_F16_F16, 330.3e12},
        {"RTX 5090", HARDWARE_F8, 419e12},
        {"MI250X", HARDWARE_BF16, 383e12},
        {"MI300X", HARDWARE_BF16, 1307.4e12},
        {"MI325X", HARDWARE_MEMORY, 256e9},
        {"MI355X", HARDWARE_F8, 5000e12},
        {"TPU v3", HARDWARE_BF16, 123e12},
        {"TPU v4", HARDWARE_MEMORY, 34359738368.0},
        {"TPU v5e", HARDWARE_BF16, 197e12},
        {"TPU v5p", HARDWARE_LINK, 1200e9},
        {"TPU v6e", HARDWARE_BF16, 918e12},
        {"TPU v7", HARDWARE_BF16, 2307e12},
        {"M4 Max", HARDWARE_BANDWIDTH, 546e9},
    };
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        const struct hardware *h = hardware_find(facts[i].chip);
        if (!h || hardware_value(h, facts[i].quantity) != facts[i].value)
            fail_msg("%s, %s: %g, want %g", facts[i].chip, hardware_quantities[facts[i].quantity].name,
                     h ? hardware_value(h, facts[i].quantity) : -1, facts[i].value);
    }
    expect_near(hardware_memory_bytes(hardware_find("H100")), 85020639232.0, 0); /* its target's, not the label */
    expect_near(hardware_memory_bytes(hardware_find("MI300X")), 192e9, 0);
    expect_near(hardware_value(hardware_find("V100"), HARDWARE_BF16), 0, 0); /* it has none */
}

static void names_are_found_however_they_are_written(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {"h100", "H100 SXM5"},
        {"NVIDIA H100 80GB HBM3", "H100 SXM5"},
        {"H100-PCIe", "H100 PCIe"},
        {"NVIDIA H100 PCIe", "H100 PCIe"},
        {"nvidia h200", "H200 SXM"},
        {"NVIDIA A100-SXM4-80GB", "A100 80GB SXM"},
        {"NVIDIA A100-SXM4-40GB", "A100 40GB SXM"},
        {"Tesla V100-SXM2-16GB", "V100 SXM2 16GB"},
        {"NVIDIA GeForce RTX 4090", "RTX 4090"},
        {"4090", "RTX 4090"},
        {"AMD Instinct MI300X", "MI300X"},
        {"tpu-v5e", "TPU v5e"},
        {"trillium", "TPU v6e"},
        {"apple m4 max", "M4 Max"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct hardware *h = hardware_find(names[i][0]);
        if (!h) fail_msg("%s is not found", names[i][0]);
        expect_text(h->name, names[i][1]);
    }
    /* and no name means two chips */
    const struct hardware *h;
    for_each_chip(h) expect_true(hardware_find(h->name) == h);
}

/* Of a card of NVIDIA's, a little less than the GiB on its label: ECC takes up to a tenth. */
static void memory_is_what_drivers_report_or_less(void **state) {
    (void)state;
    const struct hardware *h;
    for_each_chip(h) {
        double nominal = hardware_value(h, HARDWARE_MEMORY) / 1e9 * 1073741824.0, seen = hardware_memory_bytes(h);
        if (strcmp(h->vendor, "NVIDIA")) continue;
        if (!(seen >= 0.9 * nominal && seen <= nominal)) fail_msg("%s: %.0f of %.0f", h->name, seen, nominal);
        assert_non_null(h->target);
        expect_true(*hardware_source(h, HARDWARE_MEMORY_SEEN));
    }
}

static void an_unknown_chip_has_no_figures(void **state) {
    (void)state;
    static const char *const names[] = {"A11",    "B400", "H1000", "h", "",         "SXM",
                                        "nvidia", "RTX",  "cpu",   "-", "H100 SXM6"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        expect_true(hardware_seek(names[i]) == NULL);
        expect_refused(hardware_find(names[i]), "there is no device");
    }
    expect_refused(hardware_find(NULL), "there is no device");
    expect_refused(hardware_find("H100 PCEi"), "did you mean \"H100 PCIe\"?");
    expect_refused(hardware_find("MI300"), "did you mean \"MI300X\"?");
    expect_near(hardware_value(NULL, HARDWARE_BF16), 0, 0);
    expect_refused(hardware_find("\033[31mred"), "\\u001b[31mred");
    expect_true(hardware_at(-1) == NULL);
    expect_true(hardware_at(1000000) == NULL);
}

static void wrong_figures_in_circulation_are_not_ours_and_are_doubted(void **state) {
    (void)state;
    char text[300];
    int n = 0;
    for (const struct hardware_wrong *w = hardware_wrongs; w->chip; w++, n++) {
        const struct hardware *h = hardware_find(w->chip);
        expect_true(h && hardware_value(h, w->quantity) != w->value);
        expect_near(hardware_value(h, w->quantity), w->right, 0);
        const char *doubt = hardware_doubt(h, w->quantity, w->value, text);
        if (!doubt || !strstr(doubt, "known wrong figure")) fail_msg("%s %g is not doubted", w->chip, w->value);
        if (w->right > 0) expect_true(hardware_doubt(h, w->quantity, w->right, text) == NULL);
    }
    expect_equal(n, 18);
    /* our own table passes its own checks; twice a dense peak is doubted on every chip */
    const struct hardware *h;
    for_each_chip(h) for (int q = 0; q < HARDWARE_COUNT; q++) {
        enum hardware_quantity quantity = (enum hardware_quantity)q;
        double value = hardware_value(h, quantity);
        if (value == 0) continue;
        if (hardware_doubt(h, quantity, value, text)) fail_msg("%s", text);
        if (q < HARDWARE_N_PEAKS) expect_true(hardware_doubt(h, quantity, 2 * value, text) != NULL);
        if (q < HARDWARE_N_PEAKS) expect_true(hardware_doubt(h, quantity, 0.7 * value, text) == NULL);
    }
    expect_true(strstr(hardware_doubt(hardware_find("L4"), HARDWARE_F8, 485e12, text), "2:4 sparsity") != NULL);
    expect_true(strstr(hardware_doubt(hardware_find("L4"), HARDWARE_F8, 300e12, text), "more than the chip") != NULL);
}

static void dtypes_have_their_peaks(void **state) {
    (void)state;
    expect_equal(hardware_peak_of(TL_F32), HARDWARE_F32); /* never tf32: that is another arithmetic */
    expect_equal(hardware_peak_of(TL_BF16), HARDWARE_BF16);
    expect_equal(hardware_peak_of(TL_F8E5M2), HARDWARE_F8);
    expect_equal(hardware_peak_of(TL_I64), HARDWARE_COUNT);
    expect_equal(hardware_peak_of(TL_DTYPE_COUNT), HARDWARE_COUNT);
    expect_equal(hardware_peak_named("fp8"), HARDWARE_F8);
    expect_equal(hardware_peak_named("tf32"), HARDWARE_TF32);
    expect_equal(hardware_peak_named("f17"), HARDWARE_COUNT);
    expect_error(TL_ERROR_USE, "there is no peak of \"f17\", did you mean");
    for (int q = 0; q < HARDWARE_N_PEAKS; q++) expect_equal(hardware_peak_named(hardware_quantities[q].name), q);
}

/* ---- Files ---- */

static char path[] = "/tmp/tally_hardware_XXXXXX";

static void file_write(const char *text) { expect_true(file_put(path, text, strlen(text))); }

#define DEVICES(list) "{\"schema\": \"tally.hardware/1\", \"devices\": [" list "]}"

static void a_file_adds_chips(void **state) {
    (void)state;
    file_write(DEVICES("{\"name\": \"Accelerator 9\", \"aliases\": [\"acc9\"], \"bf16\": 5e14, \"bandwidth\": "
                       "{\"value\": 2e12, \"source\": \"measured\", \"date\": \"2026\"}},"
                       "{\"name\": \"H100 SXM5\", \"bf16\": 7e14}"));
    expect_true(hardware_load(path));
    const struct hardware *h = hardware_find("acc-9");
    expect_true(h && h->is_own && hardware_at(0) == h);
    expect_near(hardware_value(h, HARDWARE_BF16), 5e14, 0);
    expect_near(hardware_value(h, HARDWARE_F32), 0, 0);
    expect_text(hardware_source(h, HARDWARE_BANDWIDTH), "measured");
    expect_text(hardware_source(h, HARDWARE_BF16), path);
    /* one of a known name replaces it whole: its other figures are not known */
    expect_near(hardware_value(hardware_find("H100 SXM5"), HARDWARE_BF16), 7e14, 0);
    expect_near(hardware_value(hardware_find("H100 SXM5"), HARDWARE_F8), 0, 0);
    hardware_unload();
    expect_true(hardware_seek("acc9") == NULL);
    expect_near(hardware_value(hardware_find("H100 SXM5"), HARDWARE_BF16), 989.4e12, 0);
}

static void what_the_table_prints_can_be_read_back(void **state) {
    (void)state;
    json_t *devices = json_array();
    const struct hardware *h;
    for_each_chip(h) json_array_append_new(devices, hardware_json(h));
    int n = (int)json_array_size(devices);
    json_t *all = json_pack("{s:s, s:o}", "schema", "tally.hardware/1", "devices", devices);
    char *text = json_dumps(all, 0);
    file_write(text);
    free(text);
    json_decref(all);
    expect_true(hardware_load(path));
    for (int i = 0; i < n; i++) {
        const struct hardware *own = hardware_at(i), *sheet = hardware_at(n + i);
        expect_text(own->name, sheet->name);
        for (enum hardware_quantity q = 0; q < HARDWARE_COUNT; q++)
            expect_near(hardware_value(own, q), hardware_value(sheet, q), 0);
    }
    hardware_unload();
}

static void a_file_that_is_wrong_adds_nothing(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {"[]", "not a table of devices"},
        {"{", "}"},
        {"{\"schema\": \"tally.hardware/2\", \"devices\": []}", "not a table of devices"},
        {DEVICES("7"), "a device is a JSON object"},
        {DEVICES("{\"bf16\": 1e12}"), "needs a \"name\""},
        {DEVICES("{\"name\": \"--\"}"), "needs a \"name\""},
        {DEVICES("{\"name\": 5}"), "\"name\" is not a text"},
        {DEVICES("{\"name\": \"x1\", \"bandwith\": 1e12}"),
         "there is no key \"bandwith\", did you mean \"bandwidth\"?"},
        {DEVICES("{\"name\": \"x1\", \"bf16\": -1}"), "\"bf16\" is not a positive number"},
        {DEVICES("{\"name\": \"x1\", \"bf16\": 0}"), "\"bf16\" is not a positive number"},
        {DEVICES("{\"name\": \"x1\", \"bf16\": \"fast\"}"), "\"bf16\" is not a positive number"},
        {DEVICES("{\"name\": \"x1\", \"bf16\": {\"valu\": 1}}"), "there is no key \"valu\""},
        {DEVICES("{\"name\": \"x1\", \"bf16\": {\"value\": 1e12, \"dense\": false}}"), "not a dense peak"},
        {DEVICES("{\"name\": \"x1\", \"aliases\": \"x\"}"), "\"aliases\" is not a list"},
        {DEVICES("{\"name\": \"x1\", \"aliases\": [\"a,b\"]}"), "without commas"},
        {DEVICES("{\"name\": \"x1\", \"bf16\": 1}, {\"name\": \"H200\", \"bf16\": 1979e12}"), "known wrong figure"},
        {DEVICES("{\"name\": \"NVIDIA H100 PCIe\", \"f8\": 3026e12}"), "twice the dense peak"},
        {DEVICES("{\"name\": \"x1\", \"name\": \"x2\"}"), "duplicate"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        file_write(wrong[i][0]);
        expect_refused(hardware_load(path), wrong[i][1]);
        expect_true(hardware_seek("x1") == NULL && !hardware_at(0)->is_own);
    }
    expect_true(!hardware_load("/nowhere/hardware.json"));
    expect_error(TL_ERROR_IO, "/nowhere/hardware.json");
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    file_write(DEVICES(
        "{\"name\": \"x1\", \"aliases\": [\"x2\"], \"bf16\": {\"value\": 1, \"source\": \"s\"}}, {\"name\": \"y1\"}"));
    int n = 1;
    for (bool ok = false; !ok; n++) {
        tl_fail_allocation((uint64_t)n, false);
        ok = hardware_load(path);
        tl_fail_allocation(0, false);
        if (!ok) expect_error(TL_ERROR_MEMORY, "");
        expect_equal(hardware_seek("y1") != NULL, ok);
    }
    expect_true(n > 5);
    hardware_unload();
}

static void the_default_file_is_read_when_it_is_there(void **state) {
    (void)state;
    char folder[] = "/tmp/tally_config_XXXXXX", below[64], file[96];
    expect_true(mkdtemp(folder) != NULL);
    setenv("XDG_CONFIG_HOME", folder, 1);
    expect_true(hardware_load_default()); /* none there: nothing is wrong */
    snprintf(below, sizeof below, "%s/tally", folder);
    snprintf(file, sizeof file, "%s/hardware.json", below);
    expect_true(file_make_folder(below));
    const char *text = DEVICES("{\"name\": \"from home\", \"f32\": 1e12}");
    expect_true(file_put(file, text, strlen(text)));
    expect_true(hardware_load_default() && hardware_seek("from home"));
    hardware_unload();
    unlink(file);
    rmdir(below);
    rmdir(folder);
}

int main(void) {
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    const struct CMUnitTest tests[] = {
        TEST(every_cell_says_where_it_comes_from),
        TEST(products_of_units_work_and_clock_give_the_figures),
        TEST(known_figures),
        TEST(names_are_found_however_they_are_written),
        TEST(memory_is_what_drivers_report_or_less),
        TEST(an_unknown_chip_has_no_figures),
        TEST(wrong_figures_in_circulation_are_not_ours_and_are_doubted),
        TEST(dtypes_have_their_peaks),
        TEST(a_file_adds_chips),
        TEST(what_the_table_prints_can_be_read_back),
        TEST(a_file_that_is_wrong_adds_nothing),
        TEST(every_allocation_may_fail),
        TEST(the_default_file_is_read_when_it_is_there),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}

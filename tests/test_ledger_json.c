/* The ledger as JSON, and diff: every documented field, sums that add up, exact digits, any name; every single
 * change is found, hostile texts are refused, and a failed allocation is an error, not half a ledger. */
#include "support/check.h"
#include "support/step.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "account/ledger.h"
#include "base/file.h"
#include "base/memory.h"

typedef count wide; /* 128 bits */

static const char *const count_keys[] = {"flops", "bytes_read", "bytes_written", "transfer_bytes"};
static const char *const row_keys[] = {"calls", "flops", "bytes_read", "bytes_written", "transfer_bytes"};
static const char *const peak_keys[] = {"peak_bytes", "peak_allocated_bytes", "peak_reserved_bytes"};
#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* ---- A price and its receipt ---- */

static tl_ledger *train(tl_device *device, const char *name) {
    double loss;
    tl_pool_trim(device);
    tl_ledger *ledger = tl_ledger_begin(name);
    expect_true(step_train(device, 42, 2, STEP_SELECTIVE, &loss));
    expect_true(tl_ledger_end(ledger));
    return ledger;
}

static char *trained(tl_device *device, const char *name) {
    tl_ledger *ledger = train(device, name);
    char *text = tl_ledger_json(ledger, device);
    expect_true(text != NULL);
    tl_ledger_free(ledger);
    return text;
}

static json_t *load(const char *text) {
    json_error_t why;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    if (!root) fail_msg("not JSON: %s in line %d", why.text, why.line);
    return root;
}

static char *dump(const json_t *root) {
    char *text = json_dumps(root, 0);
    expect_true(text != NULL);
    return text;
}

static const char *text_at(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    if (!text) fail_msg("\"%s\" is not there or is no text", key);
    return text;
}

/* The value of a documented count: decimal digits, no leading zero. */
static wide count_at(const json_t *object, const char *key) {
    const char *text = text_at(object, key);
    wide value = 0;
    if (!*text || strspn(text, "0123456789") != strlen(text) || (*text == '0' && text[1]))
        fail_msg("\"%s\" is \"%s\", want decimal digits", key, text);
    for (; *text; text++) value = value * 10 + (wide)(*text - '0');
    return value;
}

static json_int_t calls_at(const json_t *object) {
    const json_t *calls = json_object_get(object, "calls");
    if (!json_is_integer(calls)) fail_msg("\"calls\" is not there or is no integer");
    return json_integer_value(calls);
}

static void expect_wide(const char *what, wide got, wide want) {
    if (got != want)
        fail_msg("%s: got %llu * 2^64 + %llu, want %llu * 2^64 + %llu", what, (unsigned long long)(got >> 64),
                 (unsigned long long)got, (unsigned long long)(want >> 64), (unsigned long long)want);
}

/* All six counts of an object are there with their types. */
static void expect_counts(const json_t *object, const char *what) {
    if (!json_is_object(object)) fail_msg("%s is not there or is no object", what);
    expect_true(calls_at(object) >= 0);
    for (size_t k = 0; k < COUNT_OF(count_keys); k++) count_at(object, count_keys[k]);
    if (!json_is_real(json_object_get(object, "time_s"))) fail_msg("%s: \"time_s\" is no real number", what);
}

static void sums_are(const json_t *root) {
    const json_t *totals = json_object_get(root, "totals"), *rows = json_object_get(root, "rows");
    for (size_t k = 0; k < COUNT_OF(row_keys); k++) {
        wide by_phase = 0, by_row = 0;
        bool is_calls = k == 0;
        for (int p = 0; p < TL_PHASE_COUNT; p++) {
            const char *phase_name = tl_phase_name((tl_phase)p);
            const json_t *phase = json_object_get(json_object_get(root, "phases"), phase_name), *row;
            wide in_phase = 0, said = is_calls ? (wide)calls_at(phase) : count_at(phase, row_keys[k]);
            size_t i;
            json_array_foreach(rows, i, row) if (!strcmp(text_at(row, "phase"), phase_name)) in_phase +=
                is_calls ? (wide)calls_at(row) : count_at(row, row_keys[k]);
            expect_wide(phase_name, said, in_phase);
            by_phase += said;
            by_row += in_phase;
        }
        wide total = is_calls ? (wide)calls_at(totals) : count_at(totals, row_keys[k]);
        expect_wide(row_keys[k], by_phase, total);
        expect_wide(row_keys[k], by_row, total);
    }
}

static void every_documented_field_is_there(void **state) {
    (void)state;
    static const char *const fields[] = {"schema", "name", "device", "target", "totals", "phases", "memory", "rows"};
    static const char *const texts[] = {"path", "op", "phase", "dtype", "accumulate"};
    for (int d = 0; d < 2; d++) {
        tl_device *device = d ? check_cpu() : check_meta();
        char *text = trained(device, d ? "receipt" : "price");
        json_t *root = load(text);
        const json_t *item, *memory = json_object_get(root, "memory"), *rows = json_object_get(root, "rows"),
                            *live = json_object_get(memory, "peak_live");
        expect_equal(json_object_size(root), COUNT_OF(fields));
        for (size_t i = 0; i < COUNT_OF(fields); i++) expect_true(json_object_get(root, fields[i]) != NULL);
        expect_text(text_at(root, "schema"), "tally.ledger/1");
        expect_text(text_at(root, "name"), d ? "receipt" : "price");
        expect_text(text_at(root, "device"), d ? "cpu" : "meta:cpu");
        expect_text(text_at(root, "target"), "cpu");
        expect_counts(json_object_get(root, "totals"), "totals");
        expect_equal(json_object_size(json_object_get(root, "phases")), TL_PHASE_COUNT);
        for (int p = 0; p < TL_PHASE_COUNT; p++)
            expect_counts(json_object_get(json_object_get(root, "phases"), tl_phase_name((tl_phase)p)), "a phase");
        expect_true(json_is_array(rows) && json_array_size(rows) > 50); /* it is a real step */
        size_t i;
        json_array_foreach(rows, i, item) {
            expect_counts(item, "a row");
            expect_equal(json_object_size(item), 5 + 6);
            for (size_t k = 0; k < COUNT_OF(texts); k++) text_at(item, texts[k]);
        }
        expect_equal(json_object_size(memory), 5);
        for (size_t k = 0; k < COUNT_OF(peak_keys); k++) expect_true(count_at(memory, peak_keys[k]) > 0);
        expect_equal(json_object_size(json_object_get(memory, "peak_by_purpose")), TL_PURPOSE_COUNT);
        expect_true(json_is_array(live) && json_array_size(live) > 2);
        json_array_foreach(live, i, item) {
            expect_equal(json_object_size(item), 3);
            text_at(item, "path");
            text_at(item, "purpose");
            expect_true(count_at(item, "bytes") > 0);
        }
        json_decref(root);
        free(text);
    }
}

static void totals_are_the_sums_of_phases_and_of_rows(void **state) {
    (void)state;
    char *text = trained(check_cpu(), "sums");
    json_t *root = load(text);
    sums_are(root);
    for (int p = 0; p < TL_PHASE_COUNT - 1; p++) /* nothing here is billed to "other" */
        expect_true(count_at(json_object_get(json_object_get(root, "phases"), tl_phase_name((tl_phase)p)), "flops") >
                    0);
    json_decref(root);
    free(text);
}

static void the_peak_is_the_sum_of_its_purposes_and_of_its_cells(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) {
        tl_device *device = d ? check_cpu() : check_meta();
        tl_ledger *ledger = train(device, "peak");
        char *text = tl_ledger_json(ledger, device);
        json_t *root = load(text);
        const json_t *memory = json_object_get(root, "memory"), *cell;
        wide peak = count_at(memory, "peak_bytes"), by_purpose = 0, by_cell = 0;
        size_t i;
        expect_equal(peak, tl_ledger_peak(ledger, device, TL_ALL));
        expect_equal(count_at(memory, "peak_allocated_bytes"), tl_ledger_peak_allocated(ledger, device));
        expect_equal(count_at(memory, "peak_reserved_bytes"), tl_ledger_peak_reserved(ledger, device));
        for (int p = 0; p < TL_PURPOSE_COUNT; p++) {
            const char *purpose = tl_purpose_name((tl_purpose)p);
            wide said = count_at(json_object_get(memory, "peak_by_purpose"), purpose), in_cells = 0;
            json_array_foreach(json_object_get(memory, "peak_live"), i,
                               cell) if (!strcmp(text_at(cell, "purpose"), purpose)) in_cells +=
                count_at(cell, "bytes");
            expect_equal(said, tl_ledger_peak(ledger, device, p));
            expect_wide(purpose, in_cells, said);
            by_purpose += said;
            by_cell += in_cells;
        }
        expect_wide("the sum over purposes", by_purpose, peak);
        expect_wide("the sum over cells", by_cell, peak);
        expect_true(count_at(memory, "peak_allocated_bytes") >= peak);
        expect_true(count_at(memory, "peak_reserved_bytes") >= count_at(memory, "peak_allocated_bytes"));
        json_decref(root);
        free(text);
        tl_ledger_free(ledger);
    }
}

static int text_order(const json_t *a, const json_t *b, const char *key) {
    return strcmp(text_at(a, key), text_at(b, key));
}

static int phase_number(const json_t *row) {
    for (int p = 0; p < TL_PHASE_COUNT; p++)
        if (!strcmp(tl_phase_name((tl_phase)p), text_at(row, "phase"))) return p;
    return -1;
}

static void rows_and_cells_are_sorted_and_unique(void **state) {
    (void)state;
    char *text = trained(check_cpu(), "sorted");
    json_t *root = load(text);
    const json_t *rows = json_object_get(root, "rows"),
                 *live = json_object_get(json_object_get(root, "memory"), "peak_live");
    for (size_t i = 1; i < json_array_size(rows); i++) {
        const json_t *a = json_array_get(rows, i - 1), *b = json_array_get(rows, i);
        int order = text_order(a, b, "path");
        if (!order) order = phase_number(a) - phase_number(b);
        if (!order) order = text_order(a, b, "op");
        if (!order) order = text_order(a, b, "dtype") ? -1 : 0; /* in the order of tl_dtype */
        if (order >= 0) fail_msg("rows %zu and %zu are out of order, or the same", i - 1, i);
    }
    for (size_t i = 1; i < json_array_size(live); i++) {
        const json_t *a = json_array_get(live, i - 1), *b = json_array_get(live, i);
        int order = text_order(a, b, "path");
        if (order > 0 || (!order && !text_order(a, b, "purpose"))) fail_msg("cells %zu and %zu", i - 1, i);
    }
    json_decref(root);
    free(text);
}

static void counts_beyond_64_bits_keep_their_digits(void **state) {
    (void)state;
    tl_ledger *ledger = tl_ledger_begin("large");
    int64_t n = (int64_t)1 << 25;
    tl_tensor *a = tl_empty(TL_SHAPE(n, n), TL_BF16, check_meta());
    for (int i = 0; i < 3; i++) {
        tl_scope scope = tl_scope_begin();
        tl_matmul(a, a);
        tl_scope_end(scope);
    }
    tl_ledger_end(ledger);
    char *text = tl_ledger_json(ledger, check_meta()), *report = NULL;
    json_t *root = load(text);
    const char *want = "226673591177742970257408"; /* 3 * 2^76 */
    expect_text(text_at(json_object_get(root, "totals"), "flops"), want);
    expect_text(text_at(json_object_get(json_object_get(root, "phases"), "forward"), "flops"), want);
    json_t *row, *found = NULL;
    size_t i;
    json_array_foreach(json_object_get(root, "rows"), i, row) if (!strcmp(text_at(row, "op"), "matmul")) found = row;
    expect_text(text_at(found, "flops"), want);
    expect_text(text_at(found, "bytes_written"), "6755399441055744"); /* 3 * 2^51 */
    sums_are(root);
    /* One FLOP more, in the last of 24 digits: a double could not tell. */
    json_object_set_new(found, "flops", json_string("226673591177742970257409"));
    char *more = dump(root);
    expect_equal(tl_ledger_diff(text, more, &report), 1);
    expect_true(strstr(report, "226673591177742970257408") && strstr(report, "226673591177742970257409"));
    free(report), free(more), free(text);
    json_decref(root);
    tl_ledger_free(ledger);
}

/* ---- Names ---- */

static bool same_shape(tl_call *call) {
    const tl_tensor *x = tl_call_input(call, 0);
    return tl_call_output(call, 0, tl_dtype_of(x), tl_rank(x), tl_shape(x));
}
static uint64_t five_flops(const tl_call *call) {
    (void)call;
    return 5;
}
static bool do_nothing(const tl_kernel_args *args) {
    (void)args;
    return true;
}
static const tl_op *op_named(const char *name) {
    return tl_op_register(&(tl_op_def){
        .name = name, .n_inputs = 1, .n_outputs = 1, .shape = same_shape, .flops = five_flops, .cpu = do_nothing});
}

static const json_t *row_with(const json_t *root, const char *path, const char *op) {
    json_t *row;
    const json_t *found = NULL;
    size_t i;
    json_array_foreach(json_object_get(root, "rows"), i, row) {
        if (strcmp(text_at(row, "path"), path) || strcmp(text_at(row, "op"), op)) continue;
        if (found) fail_msg("two rows of %s, %s", path, op);
        found = row;
    }
    if (!found) fail_msg("no row of %s, %s", path, op);
    return found;
}

static void unusual_names_round_trip(void **state) {
    (void)state;
    static const char *const names[] = {
        "quo\"te",          "back\\slash", "\\\"", "/slash/", "\xc3\xa9t\xc3\xa9", "\xe6\xbc\xa2\xe5\xad\x97",
        "\xf0\x9f\x98\x80", " ",           "-",    "{}[],:",  "\\u0041",           "%s%n%d"};
    tl_tensor *x = tl_ones(TL_SHAPE(2), TL_F32, NULL), *y;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        tl_ledger *ledger = tl_ledger_begin(names[i]);
        tl_neg(x);
        tl_scope scope = tl_scope_enter(names[i]);
        expect_true(tl_op_call(op_named(names[i]), &x, 1, NULL, 0, &y));
        tl_scope_end(scope);
        tl_ledger_end(ledger);
        char *text = tl_ledger_json(ledger, check_cpu()), *report = NULL;
        json_t *root = load(text);
        expect_text(text_at(root, "name"), names[i]);
        json_t *row = (json_t *)(uintptr_t)row_with(root, names[i], names[i]);
        expect_wide("flops", count_at(row, "flops"), 5);
        json_object_set_new(row, "flops", json_string("6"));
        char *other = dump(root), label[200];
        expect_equal(tl_ledger_diff(text, text, NULL), 0);
        expect_equal(tl_ledger_diff(text, other, &report), 1);
        snprintf(label, sizeof label, "%s: %s (forward, f32/f32)", names[i], names[i]);
        if (!strstr(report, label)) fail_msg("the report does not name %s:\n%s", label, report);
        free(report), free(other), free(text);
        json_decref(root);
        tl_ledger_free(ledger);
    }
    expect_refused(op_named("\xff"), "a name is UTF-8 without control characters");
    expect_refused(op_named("two\nlines"), "a name is UTF-8 without control characters");
}

static void a_long_name_is_cut_between_characters(void **state) {
    (void)state;
    char name[90];
    for (int i = 0; i < 29; i++) memcpy(name + 3 * i, "\xe6\xbc\xa2", 4);
    memmove(name + 1, name, strlen(name) + 1);
    name[0] = 'x'; /* 63 bytes end inside a character */
    tl_ledger *ledger = tl_ledger_begin(name);
    tl_ledger_end(ledger);
    char *text = tl_ledger_json(ledger, check_cpu());
    json_t *root = load(text);
    expect_equal(strlen(text_at(root, "name")), 1 + 20 * 3);
    json_decref(root);
    free(text);
    tl_ledger_free(ledger);
}

static void a_path_of_any_length_is_reported_whole(void **state) {
    (void)state;
    char name[3000];
    memset(name, 'p', sizeof name - 1);
    name[sizeof name - 1] = 0;
    tl_tensor *x = tl_ones(TL_SHAPE(2), TL_F32, NULL);
    char *texts[2], *report = NULL;
    for (int i = 0; i < 2; i++) {
        tl_ledger *ledger = tl_ledger_begin("long");
        tl_scope scope = tl_scope_enter(name);
        tl_neg(x);
        if (i) tl_neg(x);
        tl_scope_end(scope);
        tl_ledger_end(ledger);
        texts[i] = tl_ledger_json(ledger, NULL);
        tl_ledger_free(ledger);
    }
    expect_true(tl_ledger_diff(texts[0], texts[1], &report) > 0);
    expect_true(strstr(report, name) != NULL);
    expect_equal(report[strlen(report) - 1], '\n');
    const char *line = strstr(report, "flops");
    expect_true(line != NULL);
    char price[10], receipt[10];
    expect_equal(sscanf(line, "flops %9s %9s", price, receipt), 2);
    expect_text(price, "2");
    expect_text(receipt, "4");
    free(report), free(texts[0]), free(texts[1]);
}

/* Scopes "a" and "b" make the path of one scope "a.b", and nothing forbids two ops of one name. */
static void what_reads_the_same_is_one_row_and_one_cell(void **state) {
    (void)state;
    tl_ledger *ledger = tl_ledger_begin("same");
    tl_scope outer = tl_scope_enter("a"), inner = tl_scope_enter("b");
    tl_tensor *x = tl_ones(TL_SHAPE(100), TL_F32, NULL), *y;
    expect_true(tl_op_call(op_named("twin"), &x, 1, NULL, 0, &y));
    tl_keep(y);
    tl_scope_end(inner), tl_scope_end(outer);
    x = tl_ones(TL_SHAPE(100), TL_F32, NULL);
    tl_scope one = tl_scope_enter("a.b");
    tl_tensor *z;
    expect_true(tl_op_call(op_named("twin"), &x, 1, NULL, 0, &z));
    tl_scope_end(one);
    tl_drop(y);
    tl_ledger_end(ledger);
    char *text = tl_ledger_json(ledger, check_cpu());
    json_t *root = load(text);
    expect_equal(calls_at(row_with(root, "a.b", "twin")), 2);
    expect_wide("flops", count_at(row_with(root, "a.b", "twin"), "flops"), 10);
    sums_are(root);
    wide live = 0;
    size_t i, n = 0;
    json_t *cell;
    json_array_foreach(json_object_get(json_object_get(root, "memory"), "peak_live"), i, cell) {
        live += count_at(cell, "bytes");
        n += !strcmp(text_at(cell, "path"), "a.b");
    }
    expect_wide("live", live, count_at(json_object_get(root, "memory"), "peak_bytes"));
    expect_equal(n, 1);
    expect_equal(tl_ledger_diff(text, text, NULL), 0);
    json_decref(root);
    free(text);
    tl_ledger_free(ledger);
}

/* The report writes the path "" as "-"; a scope may have that name. */
static void no_path_and_the_path_dash_are_two(void **state) {
    (void)state;
    char *texts[2];
    for (int i = 0; i < 2; i++) {
        tl_tensor *x = tl_ones(TL_SHAPE(2), TL_F32, NULL);
        tl_ledger *ledger = tl_ledger_begin("dash");
        tl_neg(x);
        if (i) tl_neg(x);
        tl_scope scope = tl_scope_enter("-");
        tl_neg(x);
        tl_scope_end(scope);
        tl_ledger_end(ledger);
        texts[i] = tl_ledger_json(ledger, NULL);
        tl_ledger_free(ledger);
    }
    expect_equal(tl_ledger_diff(texts[0], texts[1], NULL), 4); /* calls, FLOPs, bytes in, bytes out */
    expect_equal(tl_ledger_diff(texts[0], texts[0], NULL), 0);
    free(texts[0]), free(texts[1]);
}

/* Rows of tokens that experts are given: more of them are no difference where the scope says so, and more calls are. */
static void loads_are_told_and_are_no_differences(void **state) {
    (void)state;
    char *texts[4], *report = NULL;
    for (int i = 0; i < 4; i++) {
        tl_tensor *x = tl_ones(TL_SHAPE(i == 1 || i == 3 ? 9 : 2), TL_F32, NULL);
        tl_ledger *ledger = tl_ledger_begin("load");
        tl_scope outer = tl_scope_enter("layer"), scope = tl_scope_enter(i < 3 ? "by-load" : "by-loads");
        tl_neg(x);
        if (i == 2) tl_neg(x);
        tl_scope_end(scope), tl_scope_end(outer);
        tl_ledger_end(ledger);
        texts[i] = tl_ledger_json(ledger, NULL);
        tl_ledger_free(ledger);
    }
    expect_equal(tl_ledger_diff(texts[0], texts[1], &report), 0);
    assert_non_null(strstr(report, "counts differ by the load of experts"));
    assert_non_null(strstr(report, "price    2 FLOPs and 0 bytes sent"));
    assert_non_null(strstr(report, "receipt  9 FLOPs"));
    free(report);
    expect_equal(tl_ledger_diff(texts[0], texts[0], &report), 0);
    assert_null(report);
    expect_equal(tl_ledger_diff(texts[0], texts[2], NULL), 1); /* calls */
    expect_true(tl_ledger_diff(texts[0], texts[3], NULL) > 3); /* another path */
    for (int i = 0; i < 4; i++) free(texts[i]);
}

/* ---- Diff ---- */

/* A real model: both run the same ops, to the last call. (step_train reads its loss, which a price cannot.) */
static char *model_trained(tl_device *device, tl_family family, tl_dtype dtype, tl_checkpoint_policy policy) {
    tl_model_config config;
    assert_true(tl_model_preset(family == TL_GPT2 ? "tiny-gpt2" : "tiny", &config));
    config.n_layers = 3, config.n_heads = 4, config.n_kv_heads = family == TL_LLAMA ? 2 : 4, config.head_size = 4;
    config.channels = 16, config.ff = 40, config.vocabulary = 19, config.context = 5, config.dropout = 0.1;
    tl_pool_trim(device);
    tl_seed(7);
    tl_scope scope = tl_scope_begin();
    tl_ledger *ledger = tl_ledger_begin(tl_device_name(device));
    tl_module *model = tl_model_new(&config, dtype, device);
    expect_true(tl_model_set_checkpointing(model, policy, 2));
    tl_optimizer *optimizer = tl_optimizer_new(TL_ADAMW);
    int n;
    const tl_named_tensor *list = tl_module_list(model, &n);
    for (int i = 0; i < n; i++) expect_true(tl_optimizer_add(optimizer, list[i].name, list[i].tensor, NULL));
    tl_tensor *tokens = tl_integers(TL_SHAPE(2, 5), 0, 19, TL_I64, device);
    for (int i = 0; i < 2; i++) {
        tl_scope step = tl_scope_begin();
        expect_true(tl_backward(tl_model_loss(model, tokens, tokens), NULL, 0));
        expect_true(tl_optimizer_step(optimizer, 1, NULL));
        tl_module_zero_grad(model, false);
        tl_scope_end(step);
    }
    expect_true(tl_ledger_end(ledger));
    tl_optimizer_free(optimizer);
    tl_module_free(model);
    tl_scope_end(scope);
    char *text = tl_ledger_json(ledger, device);
    tl_ledger_free(ledger);
    return text;
}

static void price_and_receipt_tally(void **state) {
    (void)state;
    static const tl_dtype dtypes[] = {TL_F32, TL_BF16, TL_F16, TL_F64};
    for (tl_family family = TL_GPT2; family <= TL_LLAMA; family++)
        for (size_t d = 0; d < COUNT_OF(dtypes); d++)
            for (int p = TL_CHECKPOINT_NONE; p <= TL_CHECKPOINT_SELECTIVE; p++) {
                tl_checkpoint_policy policy = (tl_checkpoint_policy)p;
                char *price = model_trained(check_meta(), family, dtypes[d], policy);
                char *receipt = model_trained(check_cpu(), family, dtypes[d], policy);
                char *report = price;
                if (tl_ledger_diff(price, receipt, &report) != 0)
                    fail_msg("%s, %s, policy %d: %s\n%s", tl_family_name(family), tl_dtype_name(dtypes[d]), p,
                             tl_error_message(), report ? report : "");
                expect_true(report == NULL);
                expect_equal(tl_ledger_diff(receipt, price, NULL), 0);
                free(price), free(receipt);
            }
}

/* The line of the report that holds all of these. */
static bool report_has(const char *report, const char *a, const char *b, const char *c, const char *d) {
    char line[1000];
    while (report && *report) {
        size_t length = strcspn(report, "\n");
        snprintf(line, sizeof line, "%.*s", (int)(length < 999 ? length : 999), report);
        if (strstr(line, a) && strstr(line, b) && strstr(line, c) && strstr(line, d)) return true;
        report += length + (report[length] == '\n');
    }
    return false;
}

/* Adds 1 to a count inside `root`, compares with `text`, and puts it back. */
static void one_more_is_found(json_t *root, const char *text, json_t *object, const char *key, const char *name) {
    json_t *before = json_incref(json_object_get(object, key));
    char was[40], is[40], *report = NULL;
    unsigned long long value = json_is_integer(before) ? (unsigned long long)json_integer_value(before)
                                                       : strtoull(json_string_value(before), NULL, 10);
    snprintf(was, sizeof was, " %llu", value);
    snprintf(is, sizeof is, " %llu", value + 1);
    json_object_set_new(object, key,
                        json_is_integer(before) ? json_integer((json_int_t)value + 1) : json_string(is + 1));
    char *changed = dump(root);
    for (int turned = 0; turned < 2; turned++) {
        int n = tl_ledger_diff(turned ? changed : text, turned ? text : changed, &report);
        if (n != 1) fail_msg("%s, %s + 1: got %d differences, want 1 (%s)", name, key, n, tl_error_message());
        if (!report_has(report, name, key, was, is))
            fail_msg("%s, %s: not in the report, or without both values:\n%s", name, key, report);
        free(report);
    }
    free(changed);
    json_object_set_new(object, key, before);
}

static void name_of_row(const json_t *row, char *name, size_t size) {
    snprintf(name, size, "%s: %s (%s, %s/%s)", *text_at(row, "path") ? text_at(row, "path") : "-", text_at(row, "op"),
             text_at(row, "phase"), text_at(row, "dtype"), text_at(row, "accumulate"));
}

static void one_more_of_anything_compared_is_found_and_named(void **state) {
    (void)state;
    char *text = trained(check_meta(), "price"), name[300];
    json_t *root = load(text), *item, *memory = json_object_get(root, "memory");
    size_t i;
    json_array_foreach(json_object_get(root, "rows"), i, item) {
        name_of_row(item, name, sizeof name);
        for (size_t k = 0; k < COUNT_OF(row_keys); k++) one_more_is_found(root, text, item, row_keys[k], name);
    }
    for (size_t k = 0; k < COUNT_OF(peak_keys); k++) one_more_is_found(root, text, memory, peak_keys[k], "memory");
    for (int p = 0; p < TL_PURPOSE_COUNT; p++)
        one_more_is_found(root, text, json_object_get(memory, "peak_by_purpose"), tl_purpose_name((tl_purpose)p),
                          "by purpose");
    json_array_foreach(json_object_get(memory, "peak_live"), i, item) {
        snprintf(name, sizeof name, "%s: live at the peak, %s", *text_at(item, "path") ? text_at(item, "path") : "-",
                 text_at(item, "purpose"));
        one_more_is_found(root, text, item, "bytes", name);
    }
    char *same = dump(root); /* everything was put back */
    expect_equal(tl_ledger_diff(text, same, NULL), 0);
    free(same), free(text);
    json_decref(root);
}

static void missing_and_extra_rows_and_cells_are_found(void **state) {
    (void)state;
    char *text = trained(check_cpu(), "receipt"), *report = NULL, name[300];
    json_t *root = load(text), *rows = json_object_get(root, "rows"),
           *live = json_object_get(json_object_get(root, "memory"), "peak_live");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_incref(json_array_get(rows, i));
        name_of_row(row, name, sizeof name);
        json_array_remove(rows, i);
        char *changed = dump(root);
        expect_equal(tl_ledger_diff(text, changed, &report), 5);
        for (size_t k = 0; k < COUNT_OF(row_keys); k++)
            expect_true(report_has(report, name, row_keys[k], "absent", ""));
        free(report);
        expect_equal(tl_ledger_diff(changed, text, &report), 5); /* extra in the receipt */
        expect_true(report_has(report, name, "flops", "absent", text_at(row, "flops")));
        free(report), free(changed);
        json_array_insert_new(rows, i, row);
    }
    json_t *cell = json_incref(json_array_get(live, 0));
    json_array_remove(live, 0);
    char *changed = dump(root);
    expect_equal(tl_ledger_diff(text, changed, &report), 1);
    expect_true(report_has(report, text_at(cell, "path"), "live at the peak", text_at(cell, "bytes"), "absent"));
    free(report), free(changed);
    json_array_insert_new(live, 0, cell);
    for (int k = 0; k < 5; k++) { /* a row under another key is one row missing and one row more */
        static const char *const keys[] = {"path", "op", "phase", "dtype", "accumulate"};
        json_t *row = json_array_get(rows, 3), *was = json_incref(json_object_get(row, keys[k]));
        json_object_set_new(row, keys[k], json_string("elsewhere"));
        changed = dump(root);
        expect_equal(tl_ledger_diff(text, changed, &report), 10);
        expect_true(strstr(report, "elsewhere") != NULL);
        free(report), free(changed);
        json_object_set_new(row, keys[k], was);
    }
    json_t *memory = json_incref(json_object_get(root, "memory"));
    json_object_del(root, "memory");
    changed = dump(root);
    expect_equal(tl_ledger_diff(text, changed, NULL), (long long)(3 + TL_PURPOSE_COUNT + json_array_size(live)));
    free(changed);
    json_decref(memory);
    free(text);
    json_decref(root);
}

static void the_same_row_twice_is_refused(void **state) {
    (void)state;
    char *text = trained(check_cpu(), "receipt");
    json_t *root = load(text), *rows = json_object_get(root, "rows"), *twin = json_deep_copy(json_array_get(rows, 0));
    json_object_set_new(twin, "flops", json_string("123456"));
    json_array_insert_new(rows, 0, twin); /* the later one, which is right, must not hide it */
    char *changed = dump(root);
    expect_equal(tl_ledger_diff(text, changed, NULL), -1);
    expect_error(TL_ERROR_USE, "the receipt has two entries of one name");
    expect_equal(tl_ledger_diff(changed, text, NULL), -1);
    expect_error(TL_ERROR_USE, "the price has two entries of one name");
    free(changed), free(text);
    json_decref(root);
}

static void another_target_is_a_difference(void **state) {
    (void)state;
    char *text = trained(check_cpu(), "receipt"), *report = NULL;
    json_t *root = load(text);
    json_object_set_new(root, "target", json_string("h200"));
    char *changed = dump(root);
    expect_equal(tl_ledger_diff(changed, text, &report), 1);
    expect_true(strstr(report, "the price is for h200, the receipt from cpu") != NULL);
    free(report), free(changed), free(text);
    json_decref(root);
    /* And a real price for another machine, with its own rounding. */
    char *price = trained(tl_device_find("meta:h200"), "price");
    char *receipt = trained(check_cpu(), "receipt");
    expect_true(tl_ledger_diff(price, receipt, &report) > 1);
    expect_true(report_has(report, "memory", "peak_allocated_bytes", "", ""));
    free(report), free(price), free(receipt);
}

static void what_is_not_compared_may_differ(void **state) {
    (void)state;
    char *text = trained(check_cpu(), "receipt");
    json_t *root = load(text), *item;
    size_t i;
    json_object_set_new(root, "name", json_string("another"));
    json_object_set_new(root, "device", json_string("cuda:7"));
    json_object_set_new(root, "more", json_pack("{s:[i,n]}", "of tomorrow", 1));
    json_object_set_new(json_object_get(root, "totals"), "flops", json_string("1")); /* a sum of rows, which count */
    json_array_foreach(json_object_get(root, "rows"), i, item) {
        json_object_set_new(item, "time_s", json_real((double)i));
        json_object_set_new(item, "note", json_true());
    }
    json_t *rows = json_object_get(root, "rows"), *last = json_incref(json_array_get(rows, json_array_size(rows) - 1));
    json_array_remove(rows, json_array_size(rows) - 1); /* nor the order */
    json_array_insert_new(rows, 0, last);
    char *changed = dump(root);
    expect_equal(tl_ledger_diff(text, changed, NULL), 0);
    expect_equal(tl_ledger_diff(changed, text, NULL), 0);
    free(changed), free(text);
    json_decref(root);
}

/* ---- Hostile texts ---- */

#define ROW                                                                                                     \
    "{\"path\":\"\",\"op\":\"neg\",\"phase\":\"forward\",\"dtype\":\"f32\",\"accumulate\":\"f32\",\"calls\":1," \
    "\"flops\":\"2\",\"bytes_read\":\"8\",\"bytes_written\":\"8\",\"transfer_bytes\":\"0\"}"
#define LEDGER(rest) "{\"schema\":\"tally.ledger/1\",\"target\":\"cpu\"," rest "}"

static void expect_refused_text(const char *good, const char *bad, const char *part) {
    char *report = (char *)(uintptr_t)good;
    for (int turned = 0; turned < 2; turned++) {
        int n = tl_ledger_diff(turned ? bad : good, turned ? good : bad, &report);
        if (n != -1 || tl_error() != TL_ERROR_USE || !strstr(tl_error_message(), part) ||
            !strstr(tl_error_message(), turned ? "price" : "receipt") || report)
            fail_msg("got %d and \"%s\", want -1 and \"%s\" for\n%.300s", n, tl_error_message(), part,
                     bad ? bad : "NULL");
        tl_error_clear();
    }
    expect_equal(tl_ledger_diff(bad, bad, NULL), -1); /* nonsense does not tally with itself */
    tl_error_clear();
}

static void texts_that_are_no_ledgers_are_refused(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {NULL, "is not JSON: got NULL"},
        {"", "is not JSON"},
        {"   \n", "is not JSON"},
        {"hello", "is not JSON"},
        {"{", "is not JSON"},
        {"{}}", "is not JSON"},
        {"\xff\xfe{}", "is not JSON"},
        {"{\"schema\":\"tally.ledger/1\\u0000\"}", "is not JSON"},
        {"null", "is not JSON"},
        {"3", "is not JSON"},
        {"[]", "is not a tally.ledger/1"},
        {"{}", "is not a tally.ledger/1 (its schema is \"?\")"},
        {"{\"schema\":1}", "is not a tally.ledger/1"},
        {"{\"schema\":\"tally.ledger/2\",\"target\":\"cpu\",\"rows\":[]}", "(its schema is \"tally.ledger/2\")"},
        {"{\"schema\":\"tally.ledger/1\",\"rows\":[]}", "no valid \"target\""},
        {"{\"schema\":\"tally.ledger/1\",\"target\":null,\"rows\":[]}", "no valid \"target\""},
        {LEDGER("\"x\":1"), "\"rows\" is not an array"},
        {LEDGER("\"rows\":{}"), "\"rows\" is not an array"},
        {LEDGER("\"rows\":null"), "\"rows\" is not an array"},
        {LEDGER("\"rows\":7"), "\"rows\" is not an array"},
        {LEDGER("\"rows\":[],\"rows\":[]"), "duplicate"},
        {LEDGER("\"rows\":[{\"path\":\"\",\"path\":\"\"}]"), "duplicate"},
        {LEDGER("\"rows\":[1,2,3]"), "rows[0] has no valid \"path\""},
        {LEDGER("\"rows\":[" ROW ",null]"), "rows[1] has no valid \"path\""},
        {LEDGER("\"rows\":[[]]"), "rows[0] has no valid \"path\""},
        {LEDGER("\"rows\":[{}]"), "rows[0] has no valid \"path\""},
        {LEDGER("\"rows\":[" ROW "," ROW "]"), "two entries of one name"},
        {LEDGER("\"rows\":[],\"memory\":3"), "memory has no valid \"peak_bytes\""},
        {LEDGER("\"rows\":[],\"memory\":null"), "memory has no valid \"peak_bytes\""},
        {LEDGER("\"rows\":[],\"memory\":{\"peak_bytes\":\"0\"}"), "no valid \"peak_allocated_bytes\""},
    };
    const char *good = LEDGER("\"rows\":[" ROW "]");
    expect_equal(tl_ledger_diff(good, good, NULL), 0);
    for (size_t i = 0; i < COUNT_OF(cases); i++) expect_refused_text(good, cases[i][0], cases[i][1]);
}

static void values_of_the_wrong_kind_are_refused(void **state) {
    (void)state;
    static const char *const values[] = {
        "-1",      "\"-1\"",      "\"007\"",
        "\"00\"",  "\"\"",        "\" 1\"",
        "\"1 \"",  "\"+1\"",      "\"0x1\"",
        "\"1e3\"", "1.0",         "1e3",
        "null",    "true",        "[]",
        "{}",      "\"2.0\"",     "\"abc\"",
        "[\"2\"]", "\"\\u0662\"", "\"9999999999999999999999999999999999999999\""}; /* 40 digits */
    char *good = trained(check_cpu(), "receipt"), part[100];
    json_t *root = load(good), *memory = json_object_get(root, "memory");
    struct {
        json_t *object;
        const char *key;
    } places[] = {{json_array_get(json_object_get(root, "rows"), 2), "calls"},
                  {json_array_get(json_object_get(root, "rows"), 2), "flops"},
                  {json_array_get(json_object_get(root, "rows"), 0), "transfer_bytes"},
                  {memory, "peak_reserved_bytes"},
                  {json_object_get(memory, "peak_by_purpose"), "workspace"},
                  {json_array_get(json_object_get(memory, "peak_live"), 1), "bytes"}};
    for (size_t p = 0; p < COUNT_OF(places); p++) {
        json_t *was = json_incref(json_object_get(places[p].object, places[p].key));
        snprintf(part, sizeof part, "has no valid \"%s\"", places[p].key);
        for (size_t v = 0; v <= COUNT_OF(values); v++) {
            if (v == COUNT_OF(values)) json_object_del(places[p].object, places[p].key);
            else json_object_set_new(places[p].object, places[p].key, json_loads(values[v], JSON_DECODE_ANY, NULL));
            char *bad = dump(root);
            expect_refused_text(good, bad, part);
            free(bad);
        }
        json_object_set_new(places[p].object, places[p].key, was);
    }
    static const char *const texts[] = {"path", "op", "phase", "dtype", "accumulate"};
    json_t *row = json_array_get(json_object_get(root, "rows"), 1);
    for (size_t t = 0; t < COUNT_OF(texts); t++) {
        json_t *was = json_incref(json_object_get(row, texts[t]));
        json_object_set_new(row, texts[t], json_integer(1));
        char *bad = dump(root);
        snprintf(part, sizeof part, "rows[1] has no valid \"%s\"", texts[t]);
        expect_refused_text(good, bad, part);
        free(bad);
        json_object_set_new(row, texts[t], was);
    }
    json_object_set_new(memory, "peak_live", json_object());
    char *bad = dump(root);
    expect_refused_text(good, bad, "\"peak_live\" is not an array");
    free(bad), free(good);
    json_decref(root);
}

static void huge_nesting_and_huge_numbers_are_refused(void **state) {
    (void)state;
    enum { DEEP = 200000 };
    const char *good = LEDGER("\"rows\":[" ROW "]"), *head = "{\"schema\":\"tally.ledger/1\",\"x\":";
    char *deep = malloc(DEEP + 200);
    memset(deep, '[', DEEP);
    deep[DEEP] = 0;
    expect_refused_text(good, deep, "is not JSON");
    memcpy(deep, head, strlen(head));
    expect_refused_text(good, deep, "is not JSON");
    memset(deep, '9', DEEP);
    memcpy(deep, head, strlen(head));
    expect_refused_text(good, deep, "is not JSON");
    for (int i = 0; i + 5 < DEEP; i += 5) memcpy(deep + i, "{\"a\":", 6);
    expect_refused_text(good, deep, "is not JSON");
    free(deep);
}

/* Whatever is cut off or overwritten: an error or a difference, never a crash, and never "they tally" for another
 * count. */
static void a_damaged_text_never_crashes(void **state) {
    (void)state;
    char *good = trained(check_meta(), "price"), *report;
    size_t length = strlen(good);
    char *bad = malloc(length + 1);
    uint64_t random = 1;
    for (int i = 0; i < 3000; i++) {
        memcpy(bad, good, length + 1);
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t at = (size_t)(random >> 20) % length;
        if (i % 2) bad[at] = 0;
        else bad[at] = (char)(random >> 56);
        int n = tl_ledger_diff(good, bad, &report);
        expect_true(n >= -1 && (n != -1) == (tl_error() == TL_OK) && (n > 0) == (report != NULL));
        if (i % 2) expect_equal(n, -1); /* cut off */
        free(report);
        tl_error_clear();
    }
    free(bad), free(good);
}

/* ---- Without memory ---- */

static void expect_memory_error(const char *what, uint64_t n) {
    if (tl_error() != TL_ERROR_MEMORY || !strstr(tl_error_message(), "out of host memory"))
        fail_msg("%s, failure %llu: got error %d \"%s\", want out of memory", what, (unsigned long long)n,
                 (int)tl_error(), tl_error_message());
    tl_error_clear();
}

static void every_allocation_of_ours_may_fail(void **state) {
    (void)state;
    tl_ledger *ledger = train(check_cpu(), "faults");
    char *whole = tl_ledger_json(ledger, check_cpu()), *text;
    uint64_t n = 1;
    for (;; n++) {
        tl_fail_allocation(n, n % 2);
        text = tl_ledger_json(ledger, check_cpu());
        tl_fail_allocation(0, false);
        if (text) break;
        expect_memory_error("json", n);
    }
    expect_text(text, whole);
    expect_true(n > 2);
    tl_fail_allocation(1, false);
    expect_true(!tl_ledger_write(ledger, check_cpu(), "/dev/null"));
    tl_fail_allocation(0, false);
    expect_memory_error("write", 1);
    json_t *root = load(whole), *item;
    size_t i;
    json_array_foreach(json_object_get(root, "rows"), i, item) json_object_set_new(item, "flops", json_string("77"));
    char *other = dump(root), *report, *full = NULL;
    int want = tl_ledger_diff(whole, other, &full);
    expect_true(want > 50);
    for (n = 1;; n++) {
        tl_fail_allocation(n, n % 2);
        int got = tl_ledger_diff(whole, other, &report);
        tl_fail_allocation(0, false);
        if (got >= 0) {
            expect_equal(got, want);
            expect_text(report, full);
            break;
        }
        expect_true(report == NULL);
        expect_memory_error("diff", n);
    }
    expect_true(n > 100);
    free(report), free(full), free(other), free(text), free(whole);
    json_decref(root);
    tl_ledger_free(ledger);
}

/* jansson calls malloc itself. A ledger that lost a row to it must not look like a whole one. */
static uint64_t jansson_asked, jansson_fails_at;
static bool jansson_fails_on;
static void *failing_malloc(size_t bytes) {
    jansson_asked++;
    bool fails =
        jansson_fails_at && (jansson_fails_on ? jansson_asked >= jansson_fails_at : jansson_asked == jansson_fails_at);
    return fails ? NULL : malloc(bytes);
}
static void jansson_fail(uint64_t n, bool on) {
    jansson_asked = 0;
    jansson_fails_at = n;
    jansson_fails_on = on;
}

static void every_allocation_of_jansson_may_fail(void **state) {
    (void)state;
    tl_tensor *x = tl_ones(TL_SHAPE(2), TL_F32, NULL);
    tl_ledger *ledger = tl_ledger_begin("faults");
    tl_exp(tl_neg(x));
    tl_ledger_end(ledger);
    char *whole = tl_ledger_json(ledger, check_cpu()), *text;
    json_set_alloc_funcs(failing_malloc, free);
    uint64_t n = 1;
    for (;; n++) {
        jansson_fail(n, n % 2);
        text = tl_ledger_json(ledger, check_cpu());
        jansson_fail(0, false);
        if (text && tl_error() == TL_OK) {
            if (strcmp(text, whole)) fail_msg("failure %llu gave another ledger:\n%s", (unsigned long long)n, text);
            free(text);
            break;
        }
        expect_true(text == NULL);
        expect_memory_error("json", n);
    }
    expect_true(n > 100);
    /* Diff: after the two texts are read (inside its parser jansson itself is not safe without memory). */
    jansson_fail(0, false);
    json_decref(load(whole)), json_decref(load(whole));
    uint64_t reading = jansson_asked;
    for (n = reading + 1;; n++) {
        jansson_fail(n, n % 2);
        int got = tl_ledger_diff(whole, whole, NULL);
        jansson_fail(0, false);
        if (got == 0) break;
        expect_equal(got, -1);
        expect_memory_error("diff", n);
    }
    expect_true(n > reading + 5);
    jansson_fail(1, true);
    expect_equal(tl_ledger_diff(whole, whole, NULL), -1);
    jansson_fail(0, false);
    expect_memory_error("reading", 1);
    json_set_alloc_funcs(malloc, free);
    free(whole);
    tl_ledger_free(ledger);
}

/* ---- Files ---- */

static void expect_unwritable(const tl_ledger *ledger, const char *file, const char *why) {
    expect_true(!tl_ledger_write(ledger, check_cpu(), file));
    expect_error(TL_ERROR_IO, why);
}

static int disk_is_full(const char *operation, const char *path) {
    (void)path;
    return strcmp(operation, "write") ? 0 : ENOSPC;
}

static void a_file_is_written_whole_or_the_reason_is_said(void **state) {
    (void)state;
    tl_ledger *ledger = train(check_cpu(), "file"), *small = tl_ledger_begin("small");
    tl_ledger_end(small);
    char folder[] = "/tmp/tally-ledger-XXXXXX", file[100], missing[100];
    expect_true(mkdtemp(folder) != NULL);
    snprintf(file, sizeof file, "%s/ledger.json", folder);
    snprintf(missing, sizeof missing, "%s/no/such/place.json", folder);
    for (int round = 0; round < 2; round++) { /* the shorter one replaces the longer one */
        const tl_ledger *l = round ? small : ledger;
        expect_true(tl_ledger_write(l, check_cpu(), file));
        char *text = tl_ledger_json(l, check_cpu());
        json_t *written = json_load_file(file, JSON_REJECT_DUPLICATES, NULL), *root = load(text);
        expect_true(json_equal(written, root));
        json_decref(written), json_decref(root);
        free(text);
    }
    char *before = file_get(file, 1 << 20, &(size_t){0});
    file_fault = disk_is_full;
    expect_unwritable(ledger, file, "ledger.json: cannot be written: No space left on device");
    file_fault = NULL;
    char *after = file_get(file, 1 << 20, &(size_t){0});
    expect_text(after, before); /* the old contents stay */
    memory_free(before), memory_free(after);
    expect_unwritable(ledger, "/dev/full", "/dev/full: exists and is not a regular file");
    expect_unwritable(ledger, missing, "No such file or directory");
    expect_unwritable(ledger, folder, "exists and is not a regular file");
    expect_unwritable(ledger, "", "is not the name of a file");
    expect_refused(tl_ledger_write(ledger, check_cpu(), NULL), "got NULL instead of a file's name");
    expect_refused(tl_ledger_write(NULL, check_cpu(), file), "got NULL instead of a ledger");
    expect_refused(tl_ledger_json(NULL, NULL), "got NULL instead of a ledger");
    unlink(file), expect_equal(rmdir(folder), 0); /* no temporary is left */
    tl_ledger_free(ledger), tl_ledger_free(small);
}

static void without_a_device_there_is_no_memory(void **state) {
    (void)state;
    tl_ledger *ledger = train(check_cpu(), "none");
    char *text = tl_ledger_json(ledger, NULL);
    json_t *root = load(text);
    expect_text(text_at(root, "device"), "none");
    expect_text(text_at(root, "target"), "none");
    expect_true(json_object_get(root, "memory") == NULL);
    sums_are(root);
    expect_equal(tl_ledger_diff(text, text, NULL), 0);
    json_decref(root);
    free(text);
    tl_ledger_free(ledger);
    ledger = tl_ledger_begin(NULL); /* nothing at all */
    tl_ledger_end(ledger);
    text = tl_ledger_json(ledger, check_cpu());
    root = load(text);
    expect_text(text_at(root, "name"), "");
    expect_equal(json_array_size(json_object_get(root, "rows")), 0);
    expect_equal(calls_at(json_object_get(root, "totals")), 0);
    expect_equal(tl_ledger_diff(text, text, NULL), 0);
    json_decref(root);
    free(text);
    tl_ledger_free(ledger);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_documented_field_is_there),
        TEST(totals_are_the_sums_of_phases_and_of_rows),
        TEST(the_peak_is_the_sum_of_its_purposes_and_of_its_cells),
        TEST(rows_and_cells_are_sorted_and_unique),
        TEST(counts_beyond_64_bits_keep_their_digits),
        TEST(unusual_names_round_trip),
        TEST(a_long_name_is_cut_between_characters),
        TEST(a_path_of_any_length_is_reported_whole),
        TEST(what_reads_the_same_is_one_row_and_one_cell),
        TEST(no_path_and_the_path_dash_are_two),
        TEST(loads_are_told_and_are_no_differences),
        TEST(price_and_receipt_tally),
        TEST(one_more_of_anything_compared_is_found_and_named),
        TEST(missing_and_extra_rows_and_cells_are_found),
        TEST(the_same_row_twice_is_refused),
        TEST(another_target_is_a_difference),
        TEST(what_is_not_compared_may_differ),
        TEST(texts_that_are_no_ledgers_are_refused),
        TEST(values_of_the_wrong_kind_are_refused),
        TEST(huge_nesting_and_huge_numbers_are_refused),
        TEST(a_damaged_text_never_crashes),
        TEST(every_allocation_of_ours_may_fail),
        TEST(every_allocation_of_jansson_may_fail),
        TEST(a_file_is_written_whole_or_the_reason_is_said),
        TEST(without_a_device_there_is_no_memory),
    };
    return cmocka_run_group_tests_name("ledger_json", tests, NULL, NULL);
}

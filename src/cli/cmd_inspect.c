/* cmd_inspect.c: tally inspect FILE */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "file/safetensors.h"

const char help_inspect[] =
    "usage: tally inspect FILE.safetensors [--json]\n"
    "\n"
    "Lists the tensors of a safetensors file in the order of their data (name, type, shape, bytes), then elements\n"
    "and bytes by type, then the metadata. The whole header is checked first; the data is not read.\n"
    "Types marked * can be listed but not loaded.\n"
    "\n"
    "examples:\n"
    "  tally inspect model.safetensors\n"
    "  tally inspect model.safetensors --json | jq '.totals.BF16.bytes'\n";

struct total {
    uint64_t tensors, elements, bytes;
};

/* The header was checked: the product fits, and there is a type of every name. */
static uint64_t elements_of(const tl_safetensors_info *info) {
    uint64_t n = 1;
    for (int i = 0; i < info->rank; i++) n *= (uint64_t)info->shape[i];
    return n;
}

/* Totals by type, in the order of safetensors_types; the sum of all behind them. */
static void totals_take(const tl_safetensors *f, struct total *totals) {
    tl_safetensors_info info;
    for (int i = 0; tl_safetensors_info_at(f, i, &info); i++) {
        long type = safetensors_type_named(info.type) - safetensors_types;
        struct total *both[] = {&totals[type], &totals[n_safetensors_types]};
        for (int k = 0; k < 2; k++) {
            both[k]->tensors++;
            both[k]->elements += elements_of(&info);
            both[k]->bytes += info.bytes;
        }
    }
}

/* ---- Text ---- */

static void tensor_print(const tl_safetensors_info *info) {
    char name[256], shape[TL_MAX_RANK * 21 + 3] = "[";
    size_t used = 1;
    for (int i = 0; i < info->rank; i++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, i ? ",%lld" : "%lld", (long long)info->shape[i]);
    snprintf(shape + used, sizeof shape - used, "]");
    printf("%-11s%c %-20s %16llu  %s\n", info->type, info->dtype == TL_DTYPE_COUNT ? '*' : ' ', shape,
           (unsigned long long)info->bytes, text_show(name, sizeof name, info->name));
}

static void total_print(const char *name, const struct total *t) {
    char text[32];
    printf("%-12s %12llu %20llu %16llu  %s\n", name, (unsigned long long)t->tensors, (unsigned long long)t->elements,
           (unsigned long long)t->bytes, bytes_text((double)t->bytes, text));
}

static int text_print(const tl_safetensors *f, const struct total *totals) {
    tl_safetensors_info info;
    printf("%-12s %-20s %16s  %s\n", "type", "shape", "bytes", "name");
    for (int i = 0; tl_safetensors_info_at(f, i, &info); i++) tensor_print(&info);
    printf("\n%-12s %12s %20s %16s\n", "type", "tensors", "elements", "bytes");
    for (int t = 0; t < n_safetensors_types; t++)
        if (totals[t].tensors) total_print(safetensors_types[t].name, &totals[t]);
    total_print("all", &totals[n_safetensors_types]);
    const char *key;
    if (tl_safetensors_metadata_count(f)) printf("\nmetadata\n");
    for (int i = 0; (key = tl_safetensors_metadata_key(f, i)); i++) {
        char shown[256], value[1024];
        printf("%s: %s\n", text_show(shown, sizeof shown, key),
               text_show(value, sizeof value, tl_safetensors_metadata(f, key)));
    }
    return 0;
}

/* ---- JSON ---- */

static json_t *tensor_json(const tl_safetensors_info *info) {
    json_t *shape = json_array();
    for (int i = 0; i < info->rank; i++) json_array_append_new(shape, json_integer((json_int_t)info->shape[i]));
    return json_pack("{s:s, s:s, s:s?, s:o, s:I, s:I}", "name", info->name, "type", info->type, "dtype",
                     info->dtype == TL_DTYPE_COUNT ? NULL : tl_dtype_name(info->dtype), "shape", shape, "begin",
                     (json_int_t)info->begin, "bytes", (json_int_t)info->bytes);
}

static json_t *total_json(const struct total *t) {
    return json_pack("{s:I, s:I, s:I}", "tensors", (json_int_t)t->tensors, "elements", (json_int_t)t->elements, "bytes",
                     (json_int_t)t->bytes);
}

static json_t *file_json(const tl_safetensors *f, const struct total *totals, const char *file) {
    json_t *tensors = json_array(), *by_type = json_object(), *metadata = json_object();
    tl_safetensors_info info;
    bool ok = true;
    for (int i = 0; tl_safetensors_info_at(f, i, &info); i++)
        ok = json_array_append_new(tensors, tensor_json(&info)) == 0 && ok;
    for (int t = 0; t < n_safetensors_types; t++)
        if (totals[t].tensors)
            ok = json_object_set_new(by_type, safetensors_types[t].name, total_json(&totals[t])) == 0 && ok;
    ok = json_object_set_new(by_type, "all", total_json(&totals[n_safetensors_types])) == 0 && ok;
    const char *key;
    for (int i = 0; (key = tl_safetensors_metadata_key(f, i)); i++)
        ok = json_object_set_new(metadata, key, json_string(tl_safetensors_metadata(f, key))) == 0 && ok;
    /* A file's name need not be UTF-8, JSON must be. */
    json_t *all = json_pack("{s:s, s:o, s:o, s:o}", "file", text_is_utf8(file) ? file : "?", "tensors", tensors,
                            "totals", by_type, "metadata", metadata);
    if (ok) return all;
    json_decref(all);
    return NULL;
}

int cmd_inspect(int argc, char **argv) {
    const char *file = NULL;
    bool wants_json = false;
    const struct option table[] = {{"--json", OPTION_FLAG, &wants_json, 0, 0, false}, {0}};
    int code = options_read("inspect", table, argc, argv, &file, 1);
    if (code) return code;
    if (!file) {
        fputs(help_inspect, stderr);
        return EXIT_USAGE;
    }
    tl_safetensors *f = tl_safetensors_open(file);
    if (!f) return cli_error();
    struct total *totals = calloc((size_t)n_safetensors_types + 1, sizeof *totals);
    int result = EXIT_MEMORY;
    if (totals) {
        totals_take(f, totals);
        result = wants_json ? cli_json(file_json(f, totals, file)) : text_print(f, totals);
    } else fprintf(stderr, "tally inspect: out of memory\n");
    free(totals);
    tl_safetensors_close(f);
    return result;
}

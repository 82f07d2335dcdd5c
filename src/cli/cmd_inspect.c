/* cmd_inspect.c: `tally inspect`: what is in a file or folder of tensors, or in a tokenizer. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/number.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/inspect.h"
#include "cli/options.h"
#include "step/tokens.h"

const char help_inspect[] =
    "usage: tally inspect PATH [--check] [--json]\n"
    "\n"
    "Lists the tensors in PATH in the order of their data (name, type, shape, bytes), then tensors, elements and "
    "bytes\n"
    "by type and by module, then the metadata. Blocks are one module (model.layers.*). PATH is a safetensors file, a\n"
    "GGUF file, a run's folder (its newest checkpoint) or one of its checkpoints, or a Hugging Face folder. Headers\n"
    "are checked first; of checkpoints, also the checksums of all data. Types marked * can be listed but not loaded.\n"
    "A tokenizer (tokenizer.json, vocab.json, tekken.json, *.tiktoken, or a folder with one and no model) is\n"
    "summarized. For files of tokens, see `tally data inspect`.\n"
    "\n"
    "  --check   read the data: NaN and infinities, smallest and largest value, mean magnitude of each tensor; exit\n"
    "            code 2 if any value is not finite\n"
    "  --json    as JSON\n"
    "\n"
    "examples:\n"
    "  tally inspect model.safetensors --check\n"
    "  tally inspect runs/first\n"
    "  tally inspect model.gguf --json | jq '.totals.Q8_0.bytes'\n"
    "  tally inspect runs/first/tokenizer\n";

struct report {
    struct inspected all;
    struct inspect_totals types, modules;
    struct inspect_check *checks; /* one per row; NULL: not asked for */
    struct inspect_total sum;
    uint64_t n_not_finite;
};

static bool report_make(struct report *r, const char *path, bool has_checks) {
    *r = (struct report){.sum = {.key = "all"}};
    if (!inspected_open(&r->all, path)) return false;
    bool ok = inspect_by_type(&r->all, &r->types) && inspect_by_module(&r->all, &r->modules);
    for (size_t i = 0; i < r->types.n; i++) {
        r->sum.tensors += r->types.at[i].tensors;
        r->sum.elements += r->types.at[i].elements;
        r->sum.bytes += r->types.at[i].bytes;
    }
    if (!ok || !has_checks) return ok;
    r->checks = calloc(r->all.n_rows + 1, sizeof *r->checks);
    for (size_t i = 0; r->checks && ok && i < r->all.n_rows; i++) {
        ok = inspect_check(&r->all.rows[i], &r->checks[i]);
        r->n_not_finite += r->checks[i].n_nan + r->checks[i].n_infinite;
    }
    return ok && r->checks;
}

static void report_free(struct report *r) {
    free(r->checks);
    inspect_totals_free(&r->types);
    inspect_totals_free(&r->modules);
    inspected_close(&r->all);
}

/* ---- Text ---- */

static void shape_text(char *text, size_t size, const struct inspect_row *row) {
    size_t used = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < row->rank; i++)
        used += (size_t)snprintf(text + used, size - used, i ? ",%lld" : "%lld", (long long)row->shape[i]);
    snprintf(text + used, size - used, "]");
}

static void row_print(const struct inspect_row *row) {
    char name[256], shape[TL_MAX_RANK * 21 + 3];
    shape_text(shape, sizeof shape, row);
    printf("%-11s%c %-20s %16llu  %s\n", row->type, row->dtype == TL_DTYPE_COUNT ? '*' : ' ', shape,
           (unsigned long long)row->bytes, text_show(name, sizeof name, row->name));
}

static void check_print(const struct inspect_check *c) {
    char text[200];
    if (!c->is_read) {
        puts("    not read");
        return;
    }
    number_print(text, sizeof text, "    min %.4g, max %.4g, mean |x| %.4g", c->least, c->most, c->mean_magnitude);
    printf("%s", text);
    if (c->n_nan) printf(", %llu NaN", (unsigned long long)c->n_nan);
    if (c->n_infinite) printf(", %llu infinite", (unsigned long long)c->n_infinite);
    puts("");
}

static void total_print(const struct inspect_total *t) {
    char text[32], key[256];
    printf("%-12s %12llu %20llu %16llu  %s\n", text_show(key, sizeof key, t->key), (unsigned long long)t->tensors,
           (unsigned long long)t->elements, (unsigned long long)t->bytes, bytes_text((double)t->bytes, text));
}

static void module_print(const struct inspect_total *t) {
    char key[256];
    printf("%8llu %16llu %16llu  %s\n", (unsigned long long)t->tensors, (unsigned long long)t->elements,
           (unsigned long long)t->bytes, text_show(key, sizeof key, t->key));
}

/* A value of GGUF's metadata; of an array the first few. */
static void gguf_value_print(const tl_gguf *f, const char *key) {
    enum { MOST_SHOWN = 5 };
    tl_gguf_value value;
    char text[512], number[64];
    if (!tl_gguf_metadata(f, key, &value)) return;
    printf("%s: ", text_show(text, sizeof text, key));
    if (value.is_array) printf("%lld values: ", (long long)value.count);
    for (int64_t i = 0; i < value.count && i < MOST_SHOWN; i++) {
        const char *string = tl_gguf_text(f, key, i);
        int64_t integer;
        double real = 0;
        if (i) printf(", ");
        if (string) printf("%s", text_show(text, sizeof text, string));
        else if (tl_gguf_integer(f, key, i, &integer)) printf("%lld", (long long)integer);
        else {
            tl_gguf_number(f, key, i, &real);
            number_print(number, sizeof number, "%.9g", real);
            printf("%s", number);
        }
    }
    puts(value.count > MOST_SHOWN ? ", ..." : "");
}

static void metadata_print(const struct inspect_file *f) {
    const char *key;
    if (tl_safetensors_metadata_count(f->safetensors) || tl_gguf_metadata_count(f->gguf)) printf("\nmetadata\n");
    for (int i = 0; (key = tl_safetensors_metadata_key(f->safetensors, i)); i++) {
        char shown[256], value[1024];
        printf("%s: %s\n", text_show(shown, sizeof shown, key),
               text_show(value, sizeof value, tl_safetensors_metadata(f->safetensors, key)));
    }
    for (int i = 0; (key = tl_gguf_metadata_key(f->gguf, i)); i++) gguf_value_print(f->gguf, key);
}

static void summary_print(const struct inspected *all) {
    char text[32];
    if (all->step >= 0) printf("checkpoint of step %lld; the checksums of all files match\n\n", (long long)all->step);
    if (!all->has_config) return;
    const tl_model_config *c = &all->config;
    printf("%s model: %lld layers, %lld channels, %s tokens, %s parameters%s\n\n", tl_family_name(c->family),
           (long long)c->n_layers, (long long)c->channels, grouped_text((uint64_t)c->vocabulary, text),
           grouped_text((uint64_t)tl_model_config_parameters(c), (char[32]){0}), active_text(c, (char[64]){0}));
}

static void text_print(const struct report *r) {
    const struct inspected *all = &r->all;
    summary_print(all);
    printf("%-12s %-20s %16s  %s\n", "type", "shape", "bytes", "name");
    for (size_t i = 0; i < all->n_rows; i++) {
        if (all->n_files > 1 && (!i || all->rows[i].file != all->rows[i - 1].file))
            printf("in %s\n", all->rows[i].file->name);
        row_print(&all->rows[i]);
        if (r->checks) check_print(&r->checks[i]);
    }
    printf("\n%-12s %12s %20s %16s\n", "type", "tensors", "elements", "bytes");
    for (size_t i = 0; i < r->types.n; i++) total_print(&r->types.at[i]);
    total_print(&r->sum);
    if (r->modules.n) printf("\n%8s %16s %16s  %s\n", "tensors", "elements", "bytes", "module");
    for (size_t i = 0; i < r->modules.n; i++) module_print(&r->modules.at[i]);
    for (size_t i = 0; i < all->n_files; i++) metadata_print(&all->files[i]);
    if (r->checks) printf("\n%llu values are not finite\n", (unsigned long long)r->n_not_finite);
}

/* ---- JSON ---- */

/* Text from a file need not be UTF-8, JSON must be. */
static json_t *text_json(const char *text) {
    char shown[1024];
    return json_string(text_is_utf8(text) ? text : text_show(shown, sizeof shown, text));
}

static json_t *check_json(const struct inspect_check *c) {
    if (!c->is_read) return json_null();
    return json_pack("{s:I, s:I, s:f, s:f, s:f}", "nan", (json_int_t)c->n_nan, "infinite", (json_int_t)c->n_infinite,
                     "min", c->least, "max", c->most, "mean_magnitude", c->mean_magnitude);
}

static json_t *row_json(const struct inspect_row *row, const struct inspect_check *check) {
    json_t *shape = json_array();
    for (int i = 0; i < row->rank; i++) json_array_append_new(shape, json_integer((json_int_t)row->shape[i]));
    json_t *all = json_pack("{s:s, s:s, s:s?, s:o, s:I, s:I}", "name", row->name, "type", row->type, "dtype",
                            row->dtype == TL_DTYPE_COUNT ? NULL : tl_dtype_name(row->dtype), "shape", shape, "begin",
                            (json_int_t)row->begin, "bytes", (json_int_t)row->bytes);
    if (all) json_object_set_new(all, "in", text_json(row->file->name));
    if (all && check) json_object_set_new(all, "check", check_json(check));
    return all;
}

static json_t *total_json(const struct inspect_total *t) {
    return json_pack("{s:I, s:I, s:I}", "tensors", (json_int_t)t->tensors, "elements", (json_int_t)t->elements, "bytes",
                     (json_int_t)t->bytes);
}

static json_t *totals_json(const struct inspect_totals *totals) {
    json_t *all = json_object();
    for (size_t i = 0; i < totals->n; i++) json_object_set_new(all, totals->at[i].key, total_json(&totals->at[i]));
    return all;
}

static json_t *gguf_value_json(const tl_gguf *f, const char *key, int64_t i) {
    const char *string = tl_gguf_text(f, key, i);
    int64_t integer;
    double real = 0;
    if (string) return text_json(string);
    if (tl_gguf_integer(f, key, i, &integer)) return json_integer((json_int_t)integer);
    tl_gguf_number(f, key, i, &real);
    return isfinite(real) ? json_real(real) : json_null();
}

static void metadata_json(json_t *metadata, const struct inspect_file *f) {
    const char *key;
    for (int i = 0; (key = tl_safetensors_metadata_key(f->safetensors, i)); i++)
        json_object_set_new(metadata, key, json_string(tl_safetensors_metadata(f->safetensors, key)));
    for (int i = 0; (key = tl_gguf_metadata_key(f->gguf, i)); i++) {
        tl_gguf_value value;
        if (!tl_gguf_metadata(f->gguf, key, &value)) continue;
        json_t *list = json_array();
        for (int64_t k = 0; value.is_array && k < value.count; k++)
            json_array_append_new(list, gguf_value_json(f->gguf, key, k));
        json_object_set_new(metadata, key, value.is_array ? list : gguf_value_json(f->gguf, key, 0));
        if (!value.is_array) json_decref(list);
    }
}

static json_t *report_json(const struct report *r, const char *path) {
    const struct inspected *all = &r->all;
    json_t *tensors = json_array(), *types = totals_json(&r->types), *metadata = json_object();
    bool ok = tensors && types && metadata;
    for (size_t i = 0; ok && i < all->n_rows; i++)
        ok = json_array_append_new(tensors, row_json(&all->rows[i], r->checks ? &r->checks[i] : NULL)) == 0;
    ok = ok && json_object_set_new(types, "all", total_json(&r->sum)) == 0;
    for (size_t i = 0; ok && i < all->n_files; i++) metadata_json(metadata, &all->files[i]);
    json_t *root =
        json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "file", text_is_utf8(path) ? path : "?", "kind", all->kind,
                  "tensors", tensors, "totals", types, "modules", totals_json(&r->modules), "metadata", metadata);
    if (root && all->step >= 0) ok = json_object_set_new(root, "step", json_integer((json_int_t)all->step)) == 0 && ok;
    if (ok) return root;
    json_decref(root);
    return NULL;
}

/* ---- Tokenizers ---- */

static bool ends_with(const char *path, const char *end) {
    size_t a = strlen(path), b = strlen(end);
    return a >= b && !strcmp(path + a - b, end);
}

/* The first bytes of a file; zeros beyond its end. */
static void head_read(const char *path, unsigned char head[8]) {
    memset(head, 0, 8);
    FILE *file = fopen(path, "rb");
    if (!file) return;
    if (fread(head, 1, 8, file) < 8) memset(head, 0, 8);
    fclose(file);
}

/* By its name, or because it begins as text: as the length of a safetensors header that would be 2^56 or more. */
static bool is_tokenizer(const char *path) {
    static const char *const ends[] = {"tokenizer.json", "tekken.json", "vocab.json", "encoder.json",
                                       "merges.txt",     "vocab.bpe",   ".tiktoken",  ".model"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(path, ends[i])) return true;
    unsigned char head[8];
    head_read(path, head);
    for (int i = 0; i < 8; i++)
        if ((head[i] < ' ' && head[i] != '\t' && head[i] != '\n' && head[i] != '\r') || head[i] > '~') return false;
    return true;
}

static int tokenizer_print(const char *path, bool wants_json) {
    tl_tokenizer *t = tl_tokenizer_read(path, NULL);
    if (!t) return cli_error();
    int64_t n = tl_tokenizer_size(t), n_tokens = 0, n_special = 0;
    size_t longest = 0, bytes = 0;
    json_t *special = json_object();
    for (int64_t id = 0; id < n; id++) {
        const char *token = tl_tokenizer_token(t, id, &bytes);
        char text[256];
        if (!token) continue;
        n_tokens++;
        if (bytes > longest) longest = bytes;
        if (!tl_tokenizer_is_special(t, id)) continue;
        snprintf(text, sizeof text, "%.*s", bytes < 200 ? (int)bytes : 200, token);
        json_object_set_new(special, text_is_utf8(text) ? text : "?", json_integer((json_int_t)id));
        if (!wants_json && n_special++ < 20)
            printf("%s%s %lld\n", n_special == 1 ? "special tokens\n" : "", text, (long long)id);
    }
    char hash[24];
    snprintf(hash, sizeof hash, "%016" PRIx64, tl_tokenizer_hash(t));
    tl_tokenizer_free(t);
    if (wants_json)
        return cli_json(json_pack("{s:s, s:s, s:I, s:I, s:I, s:s, s:o}", "file", text_is_utf8(path) ? path : "?",
                                  "kind", "tokenizer", "size", (json_int_t)n, "tokens", (json_int_t)n_tokens, "longest",
                                  (json_int_t)longest, "hash", hash, "special", special));
    json_decref(special);
    if (n_special > 20) printf("... %lld in all\n", (long long)n_special);
    printf("tokenizer: %lld tokens, ids below %lld, the longest has %zu bytes, hash %s\n", (long long)n_tokens,
           (long long)n, longest, hash);
    return 0;
}

/* Files of tokens have a command of their own. */
static bool is_tokens(const char *path) {
    unsigned char head[8];
    uint32_t magic;
    head_read(path, head);
    memcpy(&magic, head, sizeof magic);
    return !memcmp(head, "TALLYTOK", 8) || !memcmp(head, "\x93NUMPY", 6) || magic == 20240520 || magic == 20240801;
}

static bool is_file(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

/* A folder that has a tokenizer and nothing else that is listed here. */
static bool is_tokenizer_folder(const char *path) {
    static const char *const others[] = {"model.safetensors", "model.safetensors.index.json", "checkpoints",
                                         "manifest.json"};
    char name[4096];
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode)) return false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        int n = snprintf(name, sizeof name, "%s/%s", path, others[i]);
        if (n < 0 || n >= (int)sizeof name || stat(name, &status) == 0) return false;
    }
    return tokens_in_folder(path);
}

int cmd_inspect(int argc, char **argv) {
    const char *path = NULL;
    bool wants_json = false, has_checks = false;
    const struct option table[] = {
        {"--json", OPTION_FLAG, &wants_json, 0, 0, false}, {"--check", OPTION_FLAG, &has_checks, 0, 0, false}, {0}};
    int code = options_read("inspect", table, argc, argv, &path, 1);
    if (code) return code;
    if (!path) {
        fputs(help_inspect, stderr);
        return EXIT_USAGE;
    }
    if (is_file(path) && is_tokens(path)) {
        fprintf(stderr, "tally inspect: %s is a file of tokens; `tally data inspect %s` shows what is in it\n", path,
                path);
        return EXIT_INPUT;
    }
    if (is_file(path) ? is_tokenizer(path) : is_tokenizer_folder(path)) {
        if (!has_checks) return tokenizer_print(path, wants_json);
        fprintf(stderr, "tally inspect: --check looks at the numbers of a model, and %s is a tokenizer\n", path);
        return EXIT_USAGE;
    }
    struct report r;
    bool ok = report_make(&r, path, has_checks);
    if (!ok)
        code = tl_error() != TL_OK ? cli_error() : (fprintf(stderr, "tally inspect: out of memory\n"), EXIT_MEMORY);
    else if (wants_json) code = cli_json(report_json(&r, path));
    else text_print(&r);
    if (!code && r.n_not_finite) code = EXIT_INPUT;
    report_free(&r);
    return code;
}

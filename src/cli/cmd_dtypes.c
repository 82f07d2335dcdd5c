/* cmd_dtypes.c: tally dtypes */
#include <jansson.h>
#include <math.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"
#include "tensor/format.h"

const char help_dtypes[] =
    "usage: tally dtypes [--json]\n"
    "\n"
    "Lists every element type: size, range, precision, the value of 1e-8 in it, and its names in other libraries.\n"
    "Then lists the block-scaled formats: their parts, and the bytes per element including its share of the scales.\n"
    "\n"
    "  max         the largest finite value           min normal  the smallest positive value with full precision\n"
    "  eps         from 1 to the next larger value    digits      decimal digits: log10(2) x significant bits\n"
    "  1e-8        the usual epsilon of optimizers, after a cast to this type\n"
    "\n"
    "examples:\n"
    "  tally dtypes\n"
    "  tally dtypes --json | jq '.dtypes[] | select(.name == \"bf16\") | .eps'\n";

/* A number rounded to a dtype. */
static double stored(double value, tl_dtype dtype) {
    unsigned char element[8] = {0};
    convert_set_f64(element, dtype, 0, value);
    return convert_get_f64(element, dtype, 0);
}

static double digits(const struct dtype_info *info) { return (info->mantissa_bits + 1) * log10(2); }

static double format_bits(const struct format_info *f) {
    return dtype_info(f->values)->bits / (f->has_codes ? 2.0 : 1.0) + (double)dtype_info(f->scales)->bits / f->block;
}

/* ---- Text ---- */

static void dtype_print(const struct dtype_info *info, tl_dtype dtype) {
    char bytes[16];
    snprintf(bytes, sizeof bytes, "%.3g", info->bits / 8.0);
    printf("%-7s %4d %5s ", info->name, info->bits, bytes);
    if (info->kind == DTYPE_COMPLEX) printf("%20s %11s %11s %6s %11s", "-", "-", "-", "-", "-");
    else if (info->kind == DTYPE_FLOAT)
        printf("%20.8g %11.4g %11.4g %6.1f %11.5g", info->max, info->tiny, info->eps, digits(info),
               stored(1e-8, dtype));
    else printf("%20lld %11s %11s %6s %11.5g", (long long)info->integer_max, "-", "-", "-", stored(1e-8, dtype));
    printf("  %-16s %-14s %s\n", info->torch_name, info->numpy_name,
           info->safetensors_name ? info->safetensors_name : "-");
}

static void format_print(const struct format_info *f) {
    char scales[64];
    snprintf(scales, sizeof scales, "%s per %d%s", dtype_info(f->scales)->name, f->block,
             f->has_tensor_scale ? ", f32 per tensor" : "");
    printf("%-11s %5.4g %7.5g  %-7s %s\n", f->name, format_bits(f), format_bits(f) / 8, dtype_info(f->values)->name,
           scales);
}

static int tables_print(void) {
    printf("%-7s %4s %5s %20s %11s %11s %6s %11s  %-16s %-14s %s\n", "dtype", "bits", "bytes", "max", "min normal",
           "eps", "digits", "1e-8", "torch", "NumPy", "safetensors");
    for (int d = 0; d < TL_DTYPE_COUNT; d++) dtype_print(dtype_info((tl_dtype)d), (tl_dtype)d);
    printf("\n%-11s %5s %7s  %-7s %s\n", "format", "bits", "bytes", "values", "scales");
    for (int f = 0; f < TL_FORMAT_COUNT; f++) format_print(format_info((tl_format)f));
    return 0;
}

/* ---- JSON ---- */

static json_t *dtype_json(const struct dtype_info *info, tl_dtype dtype) {
    json_t *row =
        json_pack("{s:s, s:i, s:f, s:s, s:s, s:s?}", "name", info->name, "bits", info->bits, "bytes", info->bits / 8.0,
                  "torch", info->torch_name, "numpy", info->numpy_name, "safetensors", info->safetensors_name);
    if (info->kind == DTYPE_COMPLEX) return row;
    json_object_set_new(row, "stored_1e-8", json_real(stored(1e-8, dtype)));
    json_t *limits =
        info->kind == DTYPE_FLOAT
            ? json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:b}", "max", info->max, "min", info->min, "smallest_normal",
                        info->tiny, "smallest_subnormal", info->smallest_subnormal, "eps", info->eps, "digits",
                        digits(info), "storage_only", (int)info->is_storage_only)
            : json_pack("{s:I, s:I}", "max", (json_int_t)info->integer_max, "min", (json_int_t)info->integer_min);
    json_object_update(row, limits);
    json_decref(limits);
    return row;
}

static json_t *format_json(const struct format_info *f) {
    return json_pack("{s:s, s:f, s:f, s:s, s:s, s:i, s:b}", "name", f->name, "bits", format_bits(f), "bytes",
                     format_bits(f) / 8, "values", dtype_info(f->values)->name, "scales", dtype_info(f->scales)->name,
                     "block", f->block, "tensor_scale", (int)f->has_tensor_scale);
}

static json_t *tables_json(void) {
    json_t *dtypes = json_array(), *formats = json_array();
    for (int d = 0; d < TL_DTYPE_COUNT; d++)
        json_array_append_new(dtypes, dtype_json(dtype_info((tl_dtype)d), (tl_dtype)d));
    for (int f = 0; f < TL_FORMAT_COUNT; f++) json_array_append_new(formats, format_json(format_info((tl_format)f)));
    return json_pack("{s:o, s:o}", "dtypes", dtypes, "formats", formats);
}

int cmd_dtypes(int argc, char **argv) {
    bool is_json = false;
    const struct option table[] = {{"--json", OPTION_FLAG, &is_json, 0, 0, false}, {0}};
    int code = options_read("dtypes", table, argc, argv, NULL, 0);
    return code ? code : is_json ? cli_json(tables_json()) : tables_print();
}

/* cmd_demo.c: tally demo: the price of a training step, the step itself, and whether the two tally. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/cli.h"
#include "transformer.h"

const char help_demo[] =
    "usage: tally demo [options]\n\n"
    "Prices training steps of a small transformer on meta (shapes only), runs the same code on a device with data,\n"
    "prints both ledgers side by side and whether they tally. Exits 0 when they do, 2 when they do not.\n\n"
    "  --device NAME      where to run: cpu (default), cuda, cuda:N; or none: price only, for --target\n"
    "  --target NAME      whose price, with --device none: cpu, h200\n"
    "  --model gpt2|llama   the family (gpt2)      --layers N     (4)\n"
    "  --channels N       width (128)              --heads N      (4)       --kv-heads N  llama (2)\n"
    "  --ff N             MLP width (4x channels)  --vocabulary N (512)\n"
    "  --batch N (4)      --time N (64)            --dtype f32|bf16|f16|f64 (f32)\n"
    "  --steps N          training steps (3)       --warmup N     steps before counting (0)    --dropout P  (0)\n"
    "  --checkpoint none|sqrt|full|nothing|selective   activation checkpointing (none)\n"
    "  --profile          time every op            --repeat       run twice, compare losses bit for bit\n"
    "  --price FILE, --receipt FILE   write the ledgers as JSON    --json   print the receipt as JSON\n\n"
    "examples:\n"
    "  tally demo\n"
    "  tally demo --model llama --checkpoint selective --steps 10\n"
    "  tally demo --device none --target h200 --layers 48 --channels 1600 --heads 25 --time 1024 --batch 16 --dtype "
    "bf16\n"
    "  tally demo --price price.json --receipt receipt.json && tally diff price.json receipt.json\n";

struct options {
    struct transformer_config config;
    const char *device, *target, *price, *receipt;
    int64_t steps, warmup;
    bool json, profile, repeat;
};

/* ---- Options ---- */

struct word {
    const char *name;
    int value;
};
static const struct word families[] = {{"gpt2", GPT2}, {"llama", LLAMA}, {NULL, 0}};
static const struct word dtypes[] = {{"f32", TL_F32}, {"bf16", TL_BF16}, {"f16", TL_F16}, {"f64", TL_F64}, {NULL, 0}};
static const struct word policies[] = {{"none", TL_CHECKPOINT_NONE},           {"sqrt", TL_CHECKPOINT_SQRT},
                                       {"full", TL_CHECKPOINT_FULL},           {"nothing", TL_CHECKPOINT_NOTHING},
                                       {"selective", TL_CHECKPOINT_SELECTIVE}, {NULL, 0}};

static int fail(const char *format, const char *a, const char *b) {
    fprintf(stderr, "tally demo: ");
    fprintf(stderr, format, a, b);
    fprintf(stderr, "; see `tally demo --help`\n");
    return EXIT_USAGE;
}

static bool word_find(const struct word *words, const char *name, int *value) {
    for (; words->name; words++)
        if (!strcmp(words->name, name)) return *value = words->value, true;
    return false;
}

static bool number(const char *text, int64_t least, int64_t *value) {
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    *value = n;
    return !errno && *text && !*end && n >= least && n <= (long long)1 << 40;
}

static bool probability(const char *text, double *value) {
    char *end;
    *value = strtod(text, &end);
    return *text && !*end && *value >= 0 && *value < 1; /* a NaN is neither */
}

static int options_read(int argc, char **argv, struct options *o) {
    int64_t layers = 4, heads = 4, kv_heads = 2;
    int family = GPT2, dtype = TL_F32, policy = TL_CHECKPOINT_NONE;
    struct transformer_config *c = &o->config;
    struct {
        const char *name;
        int64_t *number;
        double *real;
        const char **text;
        bool *flag;
        const struct word *words;
        int *word;
    } table[] = {
        {.name = "--layers", .number = &layers},
        {.name = "--heads", .number = &heads},
        {.name = "--kv-heads", .number = &kv_heads},
        {.name = "--channels", .number = &c->channels},
        {.name = "--ff", .number = &c->ff},
        {.name = "--vocabulary", .number = &c->vocabulary},
        {.name = "--batch", .number = &c->batch},
        {.name = "--time", .number = &c->time},
        {.name = "--steps", .number = &o->steps},
        {.name = "--warmup", .number = &o->warmup},
        {.name = "--device", .text = &o->device},
        {.name = "--target", .text = &o->target},
        {.name = "--price", .text = &o->price},
        {.name = "--receipt", .text = &o->receipt},
        {.name = "--json", .flag = &o->json},
        {.name = "--profile", .flag = &o->profile},
        {.name = "--repeat", .flag = &o->repeat},
        {.name = "--model", .words = families, .word = &family},
        {.name = "--dtype", .words = dtypes, .word = &dtype},
        {.name = "--checkpoint", .words = policies, .word = &policy},
        {.name = "--dropout", .real = &c->dropout},
    };
    const int n_table = sizeof table / sizeof *table;
    const char *names[sizeof table / sizeof *table];
    for (int i = 0; i < n_table; i++) names[i] = table[i].name;
    for (int a = 1; a < argc; a++) {
        int k = 0;
        while (k < n_table && strcmp(argv[a], names[k])) k++;
        if (k == n_table) {
            const char *near = text_nearest(argv[a], names, n_table);
            return near ? fail("there is no option %s, did you mean %s?", argv[a], near)
                        : fail("there is no option %s%s", argv[a], "");
        }
        if (table[k].flag) {
            *table[k].flag = true;
            continue;
        }
        const char *value = ++a < argc ? argv[a] : NULL;
        if (!value) return fail("%s needs a value%s", names[k], "");
        bool may_be_zero = table[k].number == &o->warmup;
        if (table[k].number && !number(value, may_be_zero ? 0 : 1, table[k].number))
            return fail(may_be_zero ? "%s needs a whole number up to 2^40, not %s"
                                    : "%s needs a positive whole number up to 2^40, not %s",
                        names[k], value);
        if (table[k].text) *table[k].text = value;
        if (table[k].words && !word_find(table[k].words, value, table[k].word))
            return fail("%s does not know %s", names[k], value);
        if (table[k].real && !probability(value, table[k].real))
            return fail("%s needs a number from 0 to below 1, not %s", names[k], value);
    }
    c->family = (enum family)family;
    c->dtype = (tl_dtype)dtype;
    c->policy = (tl_checkpoint_policy)policy;
    c->n_layers = (int)layers;
    c->n_heads = (int)heads;
    c->n_kv_heads = (int)(family == LLAMA ? kv_heads : heads);
    if (!c->ff) c->ff = 4 * c->channels;
    if (layers > 10000 || heads > 100000) return fail("%s%s", "more layers or heads than a model has", "");
    if (c->channels % heads || (family == LLAMA && (heads % kv_heads || c->channels / heads % 2)))
        return fail("%s%s", "channels must divide into heads, heads into kv-heads, and head size be even", "");
    return 0;
}

/* ---- Running ---- */

struct outcome {
    tl_ledger *ledger;
    tl_device *device;
    double loss, seconds;
    tl_memory memory;
    int64_t parameters;
};

/* The same program on any device: model, data, steps in a bracket. */
static bool run(const struct options *o, tl_device *device, const char *name, struct outcome *out) {
    const struct transformer_config *c = &o->config;
    tl_scope scope = tl_scope_begin();
    tl_seed(1337);
    out->device = device;
    struct transformer *model = transformer_new(c, device);
    tl_tensor *tokens = tl_integers(TL_SHAPE(c->batch, c->time), 0, c->vocabulary, TL_I64, device);
    tl_tensor *targets = tl_integers(TL_SHAPE(c->batch, c->time), 0, c->vocabulary, TL_I64, device);
    tl_tensor *loss = NULL;
    bool ok = model && tl_set_purpose(tokens, TL_DATA) && tl_set_purpose(targets, TL_DATA);
    for (int64_t s = 0; ok && s < o->warmup; s++) ok = transformer_step(model, tokens, targets, 1e-3, NULL);
    if (ok) ok = tl_device_sync(device);
    out->ledger = ok ? tl_ledger_begin(name) : NULL;
    out->parameters = model ? transformer_parameters(model) : 0;
    double start = now_s();
    for (int64_t s = 0; ok && s < o->steps; s++) {
        if (loss) tl_drop(loss);
        loss = NULL;
        ok = transformer_step(model, tokens, targets, 1e-3, &loss);
    }
    if (ok) ok = tl_device_sync(device);
    out->seconds = now_s() - start;
    out->memory = tl_device_memory(device);
    if (out->ledger) ok = tl_ledger_end(out->ledger) && ok;
    out->loss = ok && strncmp(tl_device_name(device), "meta", 4) ? tl_item(loss) : 0;
    if (loss) tl_drop(loss);
    transformer_free(model);
    return tl_scope_end(scope) && ok && tl_error() == TL_OK;
}

/* ---- The table ---- */

/* One line of the table: the price alone, or price and receipt. Lines of zeros are left out. */
static void row(const char *what, tl_count price, const tl_count *receipt, bool bytes) {
    char text[32], a[40], b[40];
    bool same = !receipt || (price.low == receipt->low && price.high == receipt->high);
    if (same && !price.low && !price.high) return;
    if (bytes) bytes_text(tl_count_value(price), text);
    else count_text(tl_count_value(price), text);
    printf("  %-24s %18s", what, tl_count_text(price, a));
    if (receipt) printf(" %18s  %s", tl_count_text(*receipt, b), same ? "=" : "DIFFERS");
    printf("   %s\n", text);
}

static tl_count small(uint64_t n) { return (tl_count){.low = n}; }
static tl_count flops_of(const struct outcome *o, int phase) { return tl_ledger_total(o->ledger, phase, NULL).flops; }
static tl_count peak_of(const struct outcome *o, int purpose) {
    return small(tl_ledger_peak(o->ledger, o->device, purpose));
}

static void table(const struct outcome *price, const struct outcome *receipt, int64_t steps) {
    char text[64];
    tl_count other;
    const tl_count *second = receipt ? &other : NULL;
    printf("\n  %-24s %18s %18s\n", "", "price (meta)", receipt ? "receipt" : "");
    for (int p = 0; p < TL_PHASE_COUNT; p++) {
        snprintf(text, sizeof text, "%s FLOPs", tl_phase_name((tl_phase)p));
        if (receipt) other = flops_of(receipt, p);
        row(text, flops_of(price, p), second, false);
    }
    tl_totals a = tl_ledger_total(price->ledger, TL_ALL, NULL),
              b = receipt ? tl_ledger_total(receipt->ledger, TL_ALL, NULL) : a;
    other = b.bytes_read, row("bytes read", a.bytes_read, second, true);
    other = b.bytes_written, row("bytes written", a.bytes_written, second, true);
    other = small(b.calls), row("op calls", small(a.calls), second, false);
    for (int p = 0; p < TL_PURPOSE_COUNT; p++) {
        snprintf(text, sizeof text, "peak, %s", tl_purpose_name((tl_purpose)p));
        if (receipt) other = peak_of(receipt, p);
        row(text, peak_of(price, p), second, true);
    }
    if (receipt) other = peak_of(receipt, TL_ALL);
    row("peak bytes held", peak_of(price, TL_ALL), second, true);
    if (receipt) other = small(tl_ledger_peak_reserved(receipt->ledger, receipt->device));
    row("peak bytes reserved", small(tl_ledger_peak_reserved(price->ledger, price->device)), second, true);
    printf("\n  %lld step%s priced in %.3f s", (long long)steps, steps == 1 ? "" : "s", price->seconds);
    if (receipt)
        printf(", run in %.3f s (%.1f GFLOP/s); last loss %.6f", receipt->seconds,
               tl_count_value(b.flops) / receipt->seconds / 1e9, receipt->loss);
    printf("\n");
    if (receipt && receipt->memory.device_total_bytes)
        printf("  the driver says %s are in use: %s besides the pool\n",
               bytes_text((double)receipt->memory.device_used_bytes, text),
               bytes_text((double)(receipt->memory.device_used_bytes - receipt->memory.reserved_bytes), text + 32));
}

static void profile_print(const struct outcome *r) {
    static const char *const ops[] = {
#define OP(kind, name) #name,
#include "ops/op_list.h"
#undef OP
    };
    printf("\n  %-24s %8s %12s %12s %12s\n", "time by op", "calls", "ms", "GFLOP/s", "GB/s");
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        tl_totals t = tl_ledger_total(r->ledger, TL_ALL, ops[i]);
        if (t.time_s <= 0) continue;
        double bytes = tl_count_value(t.bytes_read) + tl_count_value(t.bytes_written);
        printf("  %-24s %8llu %12.3f %12.1f %12.1f\n", ops[i], (unsigned long long)t.calls, 1e3 * t.time_s,
               tl_count_value(t.flops) / t.time_s / 1e9, bytes / t.time_s / 1e9);
    }
}

/* Writes and compares the two ledgers as files would be. */
static int verdict(const struct options *o, const struct outcome *price, const struct outcome *receipt) {
    char *a = tl_ledger_json(price->ledger, price->device), *b = tl_ledger_json(receipt->ledger, receipt->device),
         *report = NULL;
    int n = a && b ? tl_ledger_diff(a, b, &report) : -1;
    if (o->json && b) puts(b);
    else if (n > 0) printf("\n%s", report ? report : "");
    if (n >= 0)
        fprintf(o->json ? stderr : stdout, "\n  %d difference%s: price and receipt %s\n", n, n == 1 ? "" : "s",
                n ? "DO NOT tally" : "tally");
    free(a);
    free(b);
    free(report);
    return n < 0 ? cli_error() : n ? EXIT_INPUT : 0;
}

static bool files_write(const struct options *o, const struct outcome *price, const struct outcome *receipt) {
    return (!o->price || tl_ledger_write(price->ledger, price->device, o->price)) &&
           (!o->receipt || !receipt->ledger || tl_ledger_write(receipt->ledger, receipt->device, o->receipt));
}

static int price_print(const struct options *o, const struct outcome *price) {
    char *text = o->json ? tl_ledger_json(price->ledger, price->device) : NULL;
    if (text) puts(text);
    if (!o->json) table(price, NULL, o->steps);
    free(text);
    return o->json && !text ? cli_error() : 0;
}

int cmd_demo(int argc, char **argv) {
    struct options o = {
        .device = "cpu", .steps = 3, .config = {.channels = 128, .vocabulary = 512, .batch = 4, .time = 64}};
    int usage = options_read(argc, argv, &o);
    if (usage) return usage;
    bool price_only = !strcmp(o.device, "none");
    tl_device *device = price_only ? NULL : tl_device_find(o.device);
    char meta_name[64];
    snprintf(meta_name, sizeof meta_name, "meta:%s",
             o.target                        ? o.target
             : !strncmp(o.device, "cuda", 4) ? "h200"
                                             : "cpu");
    tl_device *meta = tl_device_find(meta_name);
    if (!meta || (!device && !price_only)) return cli_error();
    if (price_only) tl_pool_limit(meta, SIZE_MAX); /* what does not fit has a price too */
    struct outcome price = {0}, receipt = {0}, again = {0};
    bool ok = run(&o, meta, "price", &price);
    if (ok && !o.json)
        printf("%s, %d layers, %lld channels, batch %lld x %lld, %s: %lld parameters\n",
               o.config.family == GPT2 ? "gpt2" : "llama", o.config.n_layers, (long long)o.config.channels,
               (long long)o.config.batch, (long long)o.config.time, tl_dtype_name(o.config.dtype),
               (long long)price.parameters);
    if (ok && device) {
        tl_profile(o.profile);
        ok = run(&o, device, "receipt", &receipt);
        tl_profile(false);
    }
    if (ok && o.repeat && device) {
        ok = run(&o, device, "again", &again);
        if (ok)
            fprintf(stderr, "  second run: loss %.17g, first %.17g: %s\n", again.loss, receipt.loss,
                    again.loss == receipt.loss ? "equal" : "DIFFERENT");
    }
    int result = ok && files_write(&o, &price, &receipt) ? 0 : cli_error();
    if (!result && price_only) result = price_print(&o, &price);
    if (!result && device) {
        if (!o.json) table(&price, &receipt, o.steps);
        if (o.profile && !o.json) profile_print(&receipt);
        result = verdict(&o, &price, &receipt);
        if (!result && o.repeat && again.loss != receipt.loss) result = EXIT_INPUT;
    }
    tl_ledger_free(price.ledger);
    tl_ledger_free(receipt.ledger);
    tl_ledger_free(again.ledger);
    return result;
}

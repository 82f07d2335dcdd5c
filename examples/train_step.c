/* train_step.c: one training step of a language model, priced on meta and run on a device with data, and a
 * comparison of the two.
 *
 *     cc train_step.c -o train_step $(pkg-config --cflags --libs tally)
 *     ./train_step [MODEL [DEVICE]]        default: tiny-gpt2 cpu; `tally train --models` lists the models
 *
 * One function makes both price and receipt and does not depend on the device. It writes price.json and
 * receipt.json, which `tally diff` can compare too. There are no error checks: by default an error stops the program
 * at the failing call, with a message.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tally.h>

enum { BATCH = 4, TIME = 64 };

/* Forward, backward, update; frees the gradients. The caller reads the loss outside any ledger, since a price has
 * no value. */
static tl_tensor *step(tl_module *model, tl_optimizer *optimizer, tl_tensor *tokens, tl_tensor *targets) {
    tl_scope scope = tl_scope_begin();
    tl_tensor *loss = tl_model_loss(model, tokens, targets);
    tl_backward(loss, NULL, 0);
    tl_optimizer_step(optimizer, 1, NULL);
    tl_module_zero_grad(model, false);
    return tl_scope_return(scope, tl_detach(loss));
}

struct bill {
    tl_ledger *ledger;
    tl_device *device;
};

/* The cost of the second step of a new model on a device. In the first step the pool still grows. */
static struct bill bill(const tl_model_config *config, tl_device *device, const char *name) {
    tl_scope scope = tl_scope_begin();
    tl_seed(1337);
    tl_module *model = tl_model_new(config, TL_F32, device);
    tl_optimizer *optimizer = tl_optimizer_new(TL_ADAMW);
    int n;
    const tl_named_tensor *list = tl_module_list(model, &n);
    for (int i = 0; i < n; i++)
        if (!list[i].is_buffer) tl_optimizer_add(optimizer, list[i].name, list[i].tensor, NULL);
    tl_tensor *tokens = tl_integers(TL_SHAPE(BATCH, TIME), 0, config->vocabulary, TL_I64, device); /* (B,T) */
    tl_tensor *targets = tl_integers(TL_SHAPE(BATCH, TIME), 0, config->vocabulary, TL_I64, device);
    tl_set_purpose(tokens, TL_DATA);
    tl_set_purpose(targets, TL_DATA);
    step(model, optimizer, tokens, targets);
    tl_ledger *ledger = tl_ledger_begin(name);
    tl_tensor *loss = step(model, optimizer, tokens, targets);
    tl_ledger_end(ledger);
    if (tl_data(loss)) printf("loss of the second step: %.4f\n", tl_item(loss)); /* meta has no data */
    tl_optimizer_free(optimizer);
    tl_module_free(model);
    tl_scope_end(scope);
    return (struct bill){ledger, device};
}

static void row(const char *what, const char *kind, tl_count price, tl_count receipt) {
    char a[40], b[40];
    if (price.low || price.high || receipt.low || receipt.high)
        printf("%-14s %-12s %20s %20s\n", what, kind, tl_count_text(price, a), tl_count_text(receipt, b));
}
static tl_count flops(struct bill b, int phase) { return tl_ledger_total(b.ledger, phase, NULL).flops; }
static tl_count peak(struct bill b, int purpose) { return (tl_count){tl_ledger_peak(b.ledger, b.device, purpose), 0}; }

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "tiny-gpt2", *where = argc > 2 ? argv[2] : "cpu";
    bool is_gpu = strncmp(where, "cuda", 4) == 0;
    tl_model_config config;
    tl_model_preset(name, &config);
    struct bill price = bill(&config, tl_device_find(is_gpu ? "meta:h200" : "meta"), "price");
    struct bill receipt = bill(&config, tl_device_find(where), "receipt");

    printf("%-27s %20s %20s\n", name, "price (meta)", where);
    for (int p = 0; p < TL_PHASE_COUNT; p++)
        row("FLOPs", tl_phase_name((tl_phase)p), flops(price, p), flops(receipt, p));
    tl_totals a = tl_ledger_total(price.ledger, TL_ALL, NULL), b = tl_ledger_total(receipt.ledger, TL_ALL, NULL);
    row("bytes read", "", a.bytes_read, b.bytes_read);
    row("bytes written", "", a.bytes_written, b.bytes_written);
    for (int p = 0; p < TL_PURPOSE_COUNT; p++)
        row("peak bytes", tl_purpose_name((tl_purpose)p), peak(price, p), peak(receipt, p));
    row("peak bytes", "total", peak(price, TL_ALL), peak(receipt, TL_ALL));

    tl_ledger_write(price.ledger, price.device, "price.json");
    tl_ledger_write(receipt.ledger, receipt.device, "receipt.json");
    char *price_text = tl_ledger_json(price.ledger, price.device);
    char *receipt_text = tl_ledger_json(receipt.ledger, receipt.device);
    int differences = tl_ledger_diff(price_text, receipt_text, NULL);
    printf("%d differences\n", differences);
    free(price_text);
    free(receipt_text);
    tl_ledger_free(price.ledger);
    tl_ledger_free(receipt.ledger);
    return differences != 0;
}

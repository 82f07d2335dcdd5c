#include "plan/expect.h"

#include <stdlib.h>

#include "base/json.h"
#include "plan/predict.h"
#include "step/price.h"

static struct prediction step_predict(const struct machine *profile, const struct settings *s) {
    struct predict_machine m = predict_machine_of(profile);
    struct prediction p = {0};
    char *text = price_text(s);
    json_t *price = text ? json_parse(text, NULL) : NULL;
    if (!price || !predict_json(&m, price, &p)) p.seconds = p.peak = 0;
    json_decref(price);
    free(text);
    return p;
}

struct expectation expect_of(const struct settings *s) {
    struct expectation e = {0, 0};
    struct machine profile;
    char why[200];
    if (s->threads) tl_set_threads((int)s->threads);
    tl_device *device = tl_device_find(s->device);
    if (device && machine_find(&profile, device, why)) {
        const struct prediction p = step_predict(&profile, s);
        e = (struct expectation){p.peak, p.seconds};
        machine_free(&profile);
    }
    tl_error_clear();
    return e;
}

#include "plan/expect.h"

#include <stdlib.h>

#include "base/json.h"
#include "plan/predict.h"
#include "step/recipe.h"
#include "step/price.h"

static double step_predict(const struct machine *profile, const struct settings *s) {
    struct predict_machine m = predict_machine_of(profile);
    struct prediction p = {0};
    char *text = price_text(s);
    json_t *price = text ? json_parse(text, NULL) : NULL;
    if (!price || !predict_json(&m, price, &p)) p.seconds = 0;
    json_decref(price);
    free(text);
    return p.seconds;
}

struct expectation expect_of(const struct settings *s) {
    struct expectation e = {0, 0};
    struct machine profile;
    char why[200];
    if (s->threads) tl_set_threads((int)s->threads);
    const struct recipe *recipe = recipe_find(settings_choice(s, "recipe"));
    tl_device *device = recipe ? tl_device_find(s->device) : NULL;
    if (device && machine_find(&profile, device, why)) {
        e.peak = machine_peak(&profile, recipe->autocast < TL_DTYPE_COUNT ? recipe->autocast : recipe->parameters);
        e.step_s = step_predict(&profile, s);
        machine_free(&profile);
    }
    tl_error_clear();
    return e;
}

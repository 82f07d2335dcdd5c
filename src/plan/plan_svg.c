/* plan_svg.c: a step in a picture: the memory of each purpose from its first op to its last, and the ops that take its
 * time. Colours follow the reader's light or dark scheme. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/growing.h"
#include "base/memory.h"
#include "base/text.h"
#include "plan/plan.h"
#include "tensor/allocations.h"

enum { WIDTH = 1060, LEFT = 92, RIGHT = 190, TOP = 76, TALL = 300, COLUMNS = 600, BARS = 12, BAR = 24 };
enum { INNER = WIDTH - LEFT - RIGHT, FLOOR = TOP + TALL, BARS_TOP = FLOOR + 96 };

/* The most that is held between two moments, by purpose, and the phase of the ops there. */
struct column {
    uint64_t bytes[TL_PURPOSE_COUNT], total;
    int phase;
};

struct picture {
    struct growing t;
    const struct plan *plan;
    const struct price *price;
    struct column columns[COLUMNS];
    int n_columns, n_bars;
    uint64_t most;
};

/* ---- What happens in a step ---- */

/* Replays the list. A column is a range of op calls, and shows the moment of it that holds the most. Recomputation
 * happens in the middle of backward. */
static void replay(struct picture *p, const struct allocation_list *l, uint8_t *purpose) {
    size_t n_calls = 0, call = 0;
    uint64_t held[TL_PURPOSE_COUNT] = {0}, total = 0;
    for (size_t i = 0; i < l->n_events; i++) n_calls += l->events[i].kind == ALLOCATION_CALL;
    for (size_t i = 0; i < l->n_items; i++) purpose[i] = l->items[i].purpose;
    for (size_t i = 0; i < l->n_first; i++) held[purpose[i]] += l->items[i].bytes, total += l->items[i].bytes;
    p->n_columns = n_calls < COLUMNS ? (int)n_calls + 1 : COLUMNS;
    for (size_t i = 0; i < l->n_events; i++) {
        const struct allocation_event *e = &l->events[i];
        struct column *c = &p->columns[n_calls ? call * (size_t)(p->n_columns - 1) / n_calls : 0];
        if (e->kind == ALLOCATION_CALL) call++, c->phase = e->value == TL_RECOMPUTE ? TL_BACKWARD : e->value;
        else {
            const uint64_t bytes = l->items[e->item].bytes;
            if (e->kind != ALLOCATION_TAKE) held[purpose[e->item]] -= bytes, total -= bytes;
            if (e->kind == ALLOCATION_MOVE) purpose[e->item] = e->value;
            if (e->kind != ALLOCATION_GIVE) held[purpose[e->item]] += bytes, total += bytes;
        }
        if (total < c->total) continue;
        c->total = total;
        memcpy(c->bytes, held, sizeof held);
        if (total > p->most) p->most = total;
    }
    for (int i = 1; i < p->n_columns; i++) /* in which nothing happened */
        if (!p->columns[i].total) p->columns[i] = p->columns[i - 1];
}

/* ---- Parts ---- */

static void style_put(struct growing *t) {
    static const char *const light[] = {"#6e7781", "#0969da", "#1a7f37", "#8250df", "#bc4c00", "#bf3989", "#57606a"};
    static const char *const dark[] = {"#8b949e", "#58a6ff", "#3fb950", "#bc8cff", "#f0883e", "#ff7bb0", "#6e7681"};
    growing_text(t, "<style>\ntext{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;"
                    "fill:#24292f}\n.bg{fill:#fff}.grid{stroke:#d8dee4;stroke-width:1}.axis{stroke:#57606a;"
                    "stroke-width:1.2;fill:none}.faint{fill:#57606a}\n.title{font-size:16px;font-weight:600}"
                    ".limit{stroke:#cf222e;stroke-width:1.5;stroke-dasharray:6 4}.bound{fill:#cf222e}\n");
    for (int i = 0; i < TL_PURPOSE_COUNT; i++) growing_print(t, ".p%d{fill:%s}", i, light[i % 7]);
    growing_text(t, "\n@media(prefers-color-scheme:dark){text{fill:#e6edf3}.bg{fill:#0d1117}.grid{stroke:#30363d}"
                    ".axis{stroke:#8b949e}.faint{fill:#8b949e}.limit{stroke:#ff7b72}.bound{fill:#ff7b72}\n");
    for (int i = 0; i < TL_PURPOSE_COUNT; i++) growing_print(t, ".p%d{fill:%s}", i, dark[i % 7]);
    growing_text(t, "}\n</style>\n");
}

static double x_of(const struct picture *p, int column) { return LEFT + INNER * (double)column / p->n_columns; }
static double y_of(double bytes, double top) { return FLOOR - TALL * bytes / top; }

/* One purpose on top of those before it. */
static void area_put(struct picture *p, int purpose, double top) {
    double below[COLUMNS] = {0};
    bool is_empty = true;
    for (int i = 0; i < p->n_columns; i++) {
        for (int k = 0; k < purpose; k++) below[i] += (double)p->columns[i].bytes[k];
        is_empty &= !p->columns[i].bytes[purpose];
    }
    if (is_empty) return;
    growing_print(&p->t, "<path class=\"p%d\" d=\"M%.1f %.1f", purpose, x_of(p, 0), y_of(below[0], top));
    for (int i = 0; i < p->n_columns; i++)
        growing_print(&p->t, "V%.1fH%.1f", y_of(below[i] + (double)p->columns[i].bytes[purpose], top), x_of(p, i + 1));
    for (int i = p->n_columns - 1; i >= 0; i--) growing_print(&p->t, "V%.1fH%.1f", y_of(below[i], top), x_of(p, i));
    growing_text(&p->t, "Z\"/>\n");
}

/* The first of 1, 2, 5, 10, ... GiB (or MiB) that gives at most six lines. */
static double tick_of(double top) {
    static const double steps[] = {1, 2, 5};
    for (double unit = 1024;; unit *= unit < 1 << 30 ? 1024 : 10)
        for (int k = 0; k < 9; k++) {
            const double step = unit * steps[k % 3] * pow(10, k / 3);
            if (top / step <= 6) return step;
        }
}

static void axis_put(struct picture *p, double top) {
    char a[32];
    const double tick = tick_of(top);
    for (double y = 0; y <= top; y += tick) {
        growing_print(&p->t, "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>", LEFT, y_of(y, top),
                      LEFT + INNER, y_of(y, top));
        growing_print(&p->t, "<text class=\"faint\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 8,
                      y_of(y, top) + 4, bytes_text(y, a));
    }
}

/* Where forward, backward and the update begin. Single calls in between, such as those of other phases, are no part. */
static void phases_put(struct picture *p) {
    enum { NARROW = 24 };
    for (int i = 0, from = 0; i <= p->n_columns; i++) {
        if (i < p->n_columns && p->columns[i].phase == p->columns[from].phase) continue;
        const double x = x_of(p, from), wide = x_of(p, i) - x;
        if (from) growing_print(&p->t, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>", x, TOP, FLOOR + 6);
        if (wide >= NARROW * 2.2)
            growing_print(&p->t, "<text class=\"faint\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                          x + wide / 2, FLOOR + 18, tl_phase_name((tl_phase)p->columns[from].phase));
        from = i;
    }
}

static void legend_put(struct picture *p) {
    const struct held_window *w = price_window(p->price, KIND_STEP);
    char a[32];
    int n = 0;
    for (int i = TL_PURPOSE_COUNT - 1; i >= 0; i--) {
        if (!w->peak_by_purpose[i]) continue;
        const int y = TOP + 20 * n++ + 6;
        growing_print(&p->t, "<rect class=\"p%d\" x=\"%d\" y=\"%d\" width=\"11\" height=\"11\"/>", i,
                      WIDTH - RIGHT + 18, y);
        growing_print(&p->t, "<text x=\"%d\" y=\"%d\">%s</text>", WIDTH - RIGHT + 35, y + 10,
                      tl_purpose_name((tl_purpose)i));
        growing_print(&p->t, "<text class=\"faint\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", WIDTH - 14,
                      y + 10, bytes_text((double)w->peak_by_purpose[i], a));
    }
    growing_print(&p->t, "<text class=\"faint\" x=\"%d\" y=\"%d\">at the peak of a step</text>\n", WIDTH - RIGHT + 18,
                  TOP + 20 * n + 18);
}

static void held_put(struct picture *p) {
    const uint64_t limit = plan_target_limit(&p->plan->target);
    const bool has_limit = limit && limit < 3 * p->most;
    const double top = 1.06 * (double)(has_limit && limit > p->most ? limit : p->most);
    char a[32];
    axis_put(p, top);
    for (int i = 0; i < TL_PURPOSE_COUNT; i++) area_put(p, i, top);
    if (has_limit) {
        growing_print(&p->t, "<path class=\"limit\" d=\"M%d %.1fH%d\"/>", LEFT, y_of((double)limit, top), LEFT + INNER);
        growing_print(&p->t, "<text class=\"bound\" x=\"%d\" y=\"%.1f\">%s of memory</text>\n", LEFT + 6,
                      y_of((double)limit, top) - 5, bytes_text((double)limit, a));
    }
    growing_print(&p->t, "<path class=\"axis\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP, FLOOR, LEFT + INNER);
    phases_put(p);
    legend_put(p);
}

/* ---- Time ---- */

struct bar {
    const struct plan_group *op;
    double s;
    bool is_compute;
};

static int by_seconds(const void *a, const void *b) {
    const double x = ((const struct bar *)a)->s, y = ((const struct bar *)b)->s;
    return (x < y) - (x > y);
}

static void bar_put(struct picture *p, int i, const char *name, double s, double whole, double longest, int class) {
    const int y = BARS_TOP + BAR * i;
    char a[32];
    growing_print(&p->t, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">", LEFT + 128, y + 13);
    growing_html(&p->t, name);
    growing_print(&p->t, "</text><rect class=\"p%d\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"16\"/>", class,
                  LEFT + 136, y, fmax(1, (INNER - 250) * s / longest));
    growing_print(&p->t, "<text class=\"faint\" x=\"%.1f\" y=\"%d\">%s, %.1f %%</text>\n",
                  LEFT + 144 + fmax(1, (INNER - 250) * s / longest), y + 13, duration_text(s, a), 100 * s / whole);
}

static bool ops_put(struct picture *p, const struct plan_groups *ops) {
    struct bar *bars = memory_new((ops->n + 1) * sizeof *bars);
    double whole = 0, rest = 0;
    size_t n = 0;
    if (!bars) return error_memory((ops->n + 1) * sizeof *bars, "a picture");
    for (size_t i = 0; i < ops->n; i++) {
        const struct plan_bound b = plan_bound_of(&ops->group[i], &p->plan->target.speed);
        const double s = fmax(b.arithmetic_s, b.memory_s);
        if (s > 0) bars[n++] = (struct bar){&ops->group[i], s, b.arithmetic_s > b.memory_s}, whole += s;
    }
    if (n) qsort(bars, n, sizeof *bars, by_seconds);
    for (size_t i = 0; i < n; i++) {
        char name[80];
        snprintf(name, sizeof name, "%.60s %s", bars[i].op->name, tl_dtype_name(bars[i].op->dtype));
        if (i >= BARS) rest += bars[i].s;
        else bar_put(p, p->n_bars++, name, bars[i].s, whole, bars[0].s, bars[i].is_compute ? 1 : 4);
    }
    if (rest > 0) bar_put(p, p->n_bars++, "others", rest, whole, bars[0].s, 0);
    memory_free(bars);
    return true;
}

static void time_head_put(struct picture *p, bool is_known) {
    growing_print(&p->t, "<text class=\"title\" x=\"%d\" y=\"%d\">Time of a step by op</text>", LEFT, BARS_TOP - 38);
    growing_print(&p->t, "<text class=\"faint\" x=\"%d\" y=\"%d\">%s</text>\n", LEFT, BARS_TOP - 19,
                  is_known ? "at the peak or at the memory's bandwidth, whichever is slower"
                           : "there is no peak or bandwidth for this device");
    static const char *const words[] = {"bound by arithmetic", "bound by memory"};
    for (int i = 0; is_known && i < 2; i++) {
        growing_print(&p->t, "<rect class=\"p%d\" x=\"%d\" y=\"%d\" width=\"11\" height=\"11\"/>", i ? 4 : 1,
                      WIDTH - RIGHT + 18, BARS_TOP + 20 * i + 2);
        growing_print(&p->t, "<text x=\"%d\" y=\"%d\">%s</text>\n", WIDTH - RIGHT + 35, BARS_TOP + 20 * i + 12,
                      words[i]);
    }
}

/* ---- All of it ---- */

static void head_put(struct picture *p, bool is_rank) {
    const struct plan *plan = p->plan;
    const char *chip = plan->target.chip ? plan->target.chip->name : plan->target.name;
    growing_print(&p->t, "<text class=\"title\" x=\"%d\" y=\"30\">Memory over a step: ", LEFT);
    growing_html(&p->t, plan->settings.model);
    growing_text(&p->t, " on ");
    growing_html(&p->t, chip);
    growing_print(&p->t, "</text>\n<text class=\"faint\" x=\"%d\" y=\"50\">", LEFT);
    if (is_rank) growing_print(&p->t, "the first of %" PRId64 " devices; ", plan->options.n_devices);
    else if (plan->options.n_devices > 1) growing_text(&p->t, "if one device had the whole model; ");
    growing_print(&p->t, "%" PRId64 " x %" PRId64 " tokens in a micro-batch, recipe %s", p->price->settings.batch,
                  p->price->settings.seq, settings_choice(&p->price->settings, "recipe"));
    growing_print(&p->t, ", checkpointing %s; op by op, from left to right</text>\n",
                  settings_choice(&p->price->settings, "checkpointing"));
}

static bool picture_put(struct picture *p, bool is_rank) {
    const struct held_window *w = price_window(p->price, KIND_STEP);
    struct plan_groups ops = {0};
    uint8_t *purpose = w->list ? memory_new(w->list->n_items + 1) : NULL;
    if (!purpose) return error_memory(w->list ? w->list->n_items : 1, "a picture");
    replay(p, w->list, purpose);
    memory_free(purpose);
    head_put(p, is_rank);
    held_put(p);
    time_head_put(p, p->plan->time.roofline_s > 0);
    const bool ok = groups_by_op(&ops, p->price, KIND_STEP) && ops_put(p, &ops);
    groups_free(&ops);
    return ok;
}

/* The number of bars is known last, and the size stands first. */
static char *whole_of(const struct picture *p) {
    const int height = BARS_TOP + BAR * (p->n_bars ? p->n_bars : 1) + 12;
    struct growing all = {0};
    growing_print(&all,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                  "role=\"img\">\n<title>",
                  WIDTH, height, WIDTH, height);
    growing_html(&all, p->plan->settings.model);
    growing_text(&all, ": a step's memory and time</title>\n");
    style_put(&all);
    growing_print(&all, "<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n", WIDTH, height);
    if (p->t.at) growing_text(&all, p->t.at);
    growing_text(&all, "</svg>\n");
    if (all.is_broken || p->t.is_broken) {
        memory_free(all.at);
        error_memory(all.room, "a picture");
        return NULL;
    }
    return all.at;
}

/* The run is priced once more, with a list of all that it allocates. */
static bool price_listed(struct price *price, const struct plan *plan, bool is_rank) {
    const uint64_t limit = plan_target_limit(&plan->target);
    const struct layout *l = &plan->options.layout;
    struct settings *rank = memory_new(sizeof *rank);
    if (!rank) return error_memory(sizeof *rank, "a picture");
    *rank = plan->settings;
    rank->dp = l->dp;
    if (l->pp > 1 && l->schedule == SCHEDULE_INTERLEAVED) rank->pp_chunks = l->chunks;
    const bool before = tl_set_memory_events(true);
    const bool ok = is_rank ? price_sketch_rank(price, rank, plan->target.device, limit, 0)
                            : price_sketch(price, &plan->price.settings, plan->target.device, limit);
    tl_set_memory_events(before);
    memory_free(rank);
    return ok;
}

char *plan_svg(const struct plan *plan) {
    const bool is_rank = plan->options.n_devices > 1 && plan->layout.is_exact;
    struct price *price = memory_new(sizeof *price);
    struct picture *p = memory_new(sizeof *p);
    char *svg = NULL;
    if (!price || !p) error_memory(sizeof *price + sizeof *p, "a picture");
    else if (price_listed(price, plan, is_rank)) {
        memset(p, 0, sizeof *p);
        p->plan = plan, p->price = price;
        if (picture_put(p, is_rank)) svg = whole_of(p);
        memory_free(p->t.at);
        price_free(price);
    }
    memory_free(price);
    memory_free(p);
    return svg;
}

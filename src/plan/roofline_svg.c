/* roofline_svg.c: the picture. Axes are logarithmic; labels are placed one by one where they overlap neither points
 * nor other labels; colours follow the reader's light or dark scheme. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/growing.h"
#include "base/memory.h"
#include "base/number.h"
#include "plan/roofline.h"

enum { WIDTH = 1060, HEIGHT = 680, LEFT = 84, RIGHT = 24, TOP = 64, BOTTOM = 96, MOST_LABELS = 600 };

struct box {
    double x0, y0, x1, y1;
};

struct picture {
    struct growing t;
    const struct roofline *r;
    double x0, x1, y0, y1; /* log10 of the ends of the axes */
    struct box taken[MOST_LABELS];
    int n_taken;
};

static double x_of(const struct picture *p, double intensity) {
    return LEFT + (log10(intensity) - p->x0) / (p->x1 - p->x0) * (WIDTH - LEFT - RIGHT);
}
static double y_of(const struct picture *p, double rate) {
    return HEIGHT - BOTTOM - (log10(rate) - p->y0) / (p->y1 - p->y0) * (HEIGHT - TOP - BOTTOM);
}

/* ---- Places for labels ---- */

static bool meet(const struct box *a, const struct box *b) {
    return a->x0 < b->x1 && b->x0 < a->x1 && a->y0 < b->y1 && b->y0 < a->y1;
}

static void take(struct picture *p, struct box b) {
    if (p->n_taken < MOST_LABELS) p->taken[p->n_taken++] = b;
}

static bool is_free(const struct picture *p, const struct box *b) {
    if (b->x0 < LEFT + 2 || b->x1 > WIDTH - RIGHT || b->y0 < TOP || b->y1 > HEIGHT - BOTTOM - 2) return false;
    for (int i = 0; i < p->n_taken; i++)
        if (meet(b, &p->taken[i])) return false;
    return true;
}

/* The free place nearest to (x, y), in rings of 16 directions, right and above first. False: none within reach. */
static bool place(const struct picture *p, double x, double y, double w, double h, struct box *found) {
    static const int turns[] = {0, 1, 15, 2, 14, 8, 7, 9, 4, 12, 3, 13, 5, 11, 6, 10};
    for (double radius = 7; radius < 170; radius += 8)
        for (int i = 0; i < 16; i++) {
            double angle = turns[i] * 3.14159265358979 / 8, dx = cos(angle), dy = -sin(angle);
            double cx = x + dx * (radius + w / 2 * fabs(dx)), cy = y + dy * (radius + h / 2 * fabs(dy));
            if (fabs(dx) > 0.5) cx = x + (dx > 0 ? 1 : -1) * (radius * fabs(dx) + w / 2);
            *found = (struct box){cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2};
            if (is_free(p, found)) return true;
        }
    return false;
}

/* ---- Parts ---- */

static void style_put(struct growing *t) {
    growing_print(
        t,
        "<style>\n"
        "text{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#24292f}\n"
        ".bg{fill:#fff}.grid{stroke:#d8dee4;stroke-width:1}.axis{stroke:#57606a;stroke-width:1.2}.faint{fill:#57606a}\n"
        ".title{font-size:16px;font-weight:600}.lead{stroke:#8c959f;stroke-width:.7}.small{font-size:10.5px}\n"
        ".roof{fill:none;stroke:#24292f;stroke-width:2}.cache{fill:none;stroke:#57606a;stroke-width:1.3;stroke-"
        "dasharray:6 4}\n"
        ".s0{fill:#8250df}.s1f{fill:#0969da}.s1b{fill:#bc4c00}.s1u{fill:#1a7f37}.s2{fill:#bf3989}\n"
        "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.bg{fill:#0d1117}.grid{stroke:#21262d}.axis{stroke:#"
        "8b949e}\n"
        ".faint{fill:#8b949e}.lead{stroke:#6e7681}.roof{stroke:#e6edf3}.cache{stroke:#8b949e}\n"
        ".s0{fill:#bc8cff}.s1f{fill:#58a6ff}.s1b{fill:#f0883e}.s1u{fill:#3fb950}.s2{fill:#ff7bb0}}\n</style>\n");
}

static void rate_text(double rate, char *text, size_t size) {
    static const struct {
        double unit;
        const char *name;
    } units[] = {{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {0, ""}};
    int u = 0;
    while (units[u].unit > rate * 1.0000001) u++;
    number_print(text, size, "%.4g %s", units[u].unit > 0 ? rate / units[u].unit : rate, units[u].name);
}

static void axes_put(struct picture *p) {
    struct growing *t = &p->t;
    for (int e = (int)ceil(p->x0 - 1e-9); e <= p->x1 + 1e-9; e++) {
        double x = x_of(p, pow(10, e));
        growing_print(t, "<line class=\"grid\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>", x, TOP, x,
                      HEIGHT - BOTTOM);
        growing_print(t, "<text class=\"faint\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n", x,
                      HEIGHT - BOTTOM + 18, pow(10, e));
    }
    for (int e = (int)ceil(p->y0 - 1e-9); e <= p->y1 + 1e-9; e++) {
        double y = y_of(p, pow(10, e));
        char text[32];
        rate_text(pow(10, e), text, sizeof text);
        growing_print(t, "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>", LEFT, y, WIDTH - RIGHT,
                      y);
        growing_print(t, "<text class=\"faint\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 8, y + 4,
                      text);
    }
    growing_print(t, "<path class=\"axis\" fill=\"none\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP, HEIGHT - BOTTOM,
                  WIDTH - RIGHT);
    growing_print(t, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">arithmetic intensity, FLOP per byte</text>\n",
                  (LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 38);
    growing_print(t, "<text transform=\"translate(20 %d) rotate(-90)\" text-anchor=\"middle\">FLOP/s</text>\n",
                  (TOP + HEIGHT - BOTTOM) / 2);
}

/* The dtypes whose peaks are roofs here: those of the points, and f32. */
static bool is_roof(const struct roofline *r, int dtype) {
    if (!(r->known.peak[dtype] > 0)) return false;
    if (dtype == TL_F32) return true;
    for (int i = 0; i < r->n_points; i++)
        if ((int)r->points[i].dtype == dtype) return true;
    return false;
}

static void label_put(struct picture *p, const char *class, double x, double y, bool is_end, const char *label) {
    double w = 6.6 * (double)strlen(label), left = is_end ? x - w : x;
    take(p, (struct box){left, y - 12, left + w, y + 4});
    growing_print(&p->t, "<text class=\"small %s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", class, x, y,
                  is_end ? "end" : "start");
    growing_html(&p->t, label);
    growing_print(&p->t, "</text>\n");
}

static void roofs_put(struct picture *p) {
    const struct roofline *r = p->r;
    char label[96], rate[32];
    double right = pow(10, p->x1), left = pow(10, p->x0), highest = 0;
    for (int d = 0; d < TL_DTYPE_COUNT; d++) {
        if (!is_roof(r, d)) continue;
        double peak = r->known.peak[d], ridge = peak / r->known.bandwidth;
        highest = fmax(highest, peak);
        growing_print(&p->t, "<path class=\"roof\" d=\"M%.1f %.1fH%.1f\"/>\n", x_of(p, ridge), y_of(p, peak),
                      x_of(p, right));
        rate_text(peak, rate, sizeof rate);
        number_print(label, sizeof label, "%s: %sFLOP/s, ridge %.3g", tl_dtype_name((tl_dtype)d), rate, ridge);
        label_put(p, "", WIDTH - RIGHT - 4, y_of(p, peak) - 7, true, label);
    }
    growing_print(&p->t, "<path class=\"roof\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", x_of(p, left),
                  y_of(p, left * r->known.bandwidth), x_of(p, highest / r->known.bandwidth), y_of(p, highest));
    if (r->known.fastest > 1.05 * r->known.bandwidth)
        growing_print(&p->t, "<path class=\"cache\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", x_of(p, left),
                      y_of(p, left * r->known.fastest), x_of(p, highest / r->known.fastest), y_of(p, highest));
    number_print(label, sizeof label, "slope: memory %.4g GB/s%s", r->known.bandwidth / 1e9,
                 r->known.fastest > 1.05 * r->known.bandwidth ? ", dashed: caches" : "");
    label_put(p, "faint", LEFT + 10, TOP + 16, false, label);
}

static const char *class_of(const struct roofline_point *p) {
    if (p->set == ROOFLINE_STANDARD) return "s0";
    if (p->set == ROOFLINE_INFERENCE) return "s2";
    return p->phase == TL_UPDATE ? "s1u" : p->phase == TL_BACKWARD ? "s1b" : "s1f";
}

/* A circle for training, a square for the standard set, a diamond for inference: colour is not the only difference. */
static void mark_put(struct growing *t, const struct roofline_point *q, double x, double y) {
    if (q->set == ROOFLINE_STANDARD)
        growing_print(t, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"8\" height=\"8\">", class_of(q), x - 4,
                      y - 4);
    else if (q->set == ROOFLINE_INFERENCE)
        growing_print(t, "<path class=\"%s\" d=\"M%.1f %.1fl5.5 5.5 -5.5 5.5 -5.5 -5.5z\">", class_of(q), x, y - 5.5);
    else growing_print(t, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\">", class_of(q), x, y);
    growing_print(t, "<title>");
    growing_html(t, q->name);
    growing_print(t, " %s %s: %.4g FLOP/B, %.4g GFLOP/s, %.1f %% of the roof</title>", tl_dtype_name(q->dtype),
                  tl_phase_name((tl_phase)q->phase), q->intensity, q->rate / 1e9, 100 * q->rate / q->roof);
    growing_print(t, q->set == ROOFLINE_STANDARD    ? "</rect>\n"
                     : q->set == ROOFLINE_INFERENCE ? "</path>\n"
                                                    : "</circle>\n");
}

/* Points that take next to no time are in the table alone. */
static bool is_drawn(const struct roofline *r, const struct roofline_point *q) {
    double all = 0;
    if (!(q->flops > 0 && q->intensity > 0)) return false;
    if (q->set == ROOFLINE_STANDARD) return true;
    for (int i = 0; i < r->n_points; i++)
        if (r->points[i].set == q->set) all += r->points[i].seconds;
    return q->seconds > 0.004 * all;
}

static void points_put(struct picture *p) {
    const struct roofline *r = p->r;
    for (int i = 0; i < r->n_points; i++) {
        const struct roofline_point *q = &r->points[i];
        if (!is_drawn(r, q)) continue;
        double x = x_of(p, q->intensity), y = y_of(p, q->rate);
        take(p, (struct box){x - 5, y - 5, x + 5, y + 5});
    }
    for (int i = 0; i < r->n_points; i++) {
        const struct roofline_point *q = &r->points[i];
        struct box b;
        if (!is_drawn(r, q)) continue;
        double x = x_of(p, q->intensity), y = y_of(p, q->rate);
        if (place(p, x, y, 6.6 * (double)strlen(q->name) + 4, 14, &b)) {
            double cx = fmin(fmax(x, b.x0), b.x1), cy = fmin(fmax(y, b.y0), b.y1);
            take(p, b);
            if (hypot(cx - x, cy - y) > 13)
                growing_print(&p->t, "<line class=\"lead\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", x, y, cx,
                              cy);
            growing_print(&p->t, "<text class=\"small\" x=\"%.1f\" y=\"%.1f\">", b.x0 + 2, b.y1 - 3);
            growing_html(&p->t, q->name);
            growing_print(&p->t, "</text>\n");
        }
        mark_put(&p->t, q, x, y);
    }
}

static void legend_put(struct picture *p) {
    static const struct {
        enum roofline_set set;
        int phase;
        const char *words;
    } rows[] = {{ROOFLINE_STANDARD, TL_OTHER, "standard ops"},
                {ROOFLINE_TRAINING, TL_FORWARD, "training, forward"},
                {ROOFLINE_TRAINING, TL_BACKWARD, "backward"},
                {ROOFLINE_TRAINING, TL_UPDATE, "update"},
                {ROOFLINE_INFERENCE, TL_FORWARD, "inference, one token"}};
    double x = LEFT;
    for (int i = 0; i < 5; i++) {
        struct roofline_point q = {.set = rows[i].set, .phase = rows[i].phase, .dtype = TL_F32, .roof = 1};
        mark_put(&p->t, &q, x + 6, HEIGHT - 26);
        growing_print(&p->t, "<text x=\"%.1f\" y=\"%d\">%s</text>\n", x + 18, HEIGHT - 22, rows[i].words);
        x += 48 + 6.6 * (double)strlen(rows[i].words);
    }
}

static void range_find(struct picture *p) {
    const struct roofline *r = p->r;
    double least_x = 0.1, most_x = 1000, least_y = 1e15, most_y = r->known.peak[TL_F32];
    for (int i = 0; i < r->n_points; i++) {
        const struct roofline_point *q = &r->points[i];
        if (!is_drawn(r, q)) continue;
        least_x = fmin(least_x, q->intensity);
        most_x = fmax(most_x, q->intensity);
        least_y = fmin(least_y, q->rate);
        most_y = fmax(most_y, q->rate);
    }
    for (int d = 0; d < TL_DTYPE_COUNT; d++)
        if (is_roof(r, d)) most_y = fmax(most_y, r->known.peak[d]);
    p->x0 = floor(log10(least_x * 1.0001));
    p->x1 = ceil(log10(most_x * 0.9999));
    p->y0 = floor(log10(fmin(least_y, most_y / 100) * 0.8));
    p->y1 = log10(most_y) + 0.25;
    /* the slope must come in from the left, not from below */
    p->x0 = fmax(p->x0, fmin(log10(least_x) - 0.3, p->y0 - log10(r->known.bandwidth)));
}

char *roofline_svg(const struct roofline *r, const char *title) {
    struct picture *p = memory_new(sizeof *p);
    if (!p) return error_memory(sizeof *p, "a picture"), NULL;
    memset(p, 0, sizeof *p);
    p->r = r;
    range_find(p);
    growing_print(
        &p->t,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n",
        WIDTH, HEIGHT, WIDTH, HEIGHT);
    growing_print(&p->t, "<title>");
    growing_html(&p->t, title);
    growing_print(&p->t, "</title>\n");
    style_put(&p->t);
    growing_print(&p->t, "<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n<text class=\"title\" x=\"%d\" y=\"30\">",
                  WIDTH, HEIGHT, LEFT);
    growing_html(&p->t, title);
    growing_print(&p->t, "</text>\n<text class=\"faint\" x=\"%d\" y=\"49\">", LEFT);
    growing_html(&p->t, r->machine.machine);
    growing_print(&p->t, ", %s; measured %s</text>\n", r->machine.device, r->machine.date);
    axes_put(p);
    roofs_put(p);
    points_put(p);
    legend_put(p);
    growing_print(&p->t, "</svg>\n");
    char *svg = p->t.at;
    if (p->t.is_broken) {
        error_memory(p->t.room, "a picture");
        memory_free(svg), svg = NULL;
    }
    memory_free(p);
    return svg;
}

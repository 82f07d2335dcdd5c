#include "cli/train_progress.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/output.h"

double train_step_mean(const struct train_progress *p) { return p->n_seen ? p->seen_s / (double)p->n_seen : NAN; }
double train_drift(const struct train_progress *p) {
    return p->predicted_s > 0 ? train_step_mean(p) / p->predicted_s - 1 : NAN;
}

const char *bits_text(double bits_per_byte, char *text, size_t size) {
    *text = 0;
    if (isfinite(bits_per_byte)) snprintf(text, size, " (%.4f bits per byte)", bits_per_byte);
    return text;
}

static const char *eta_text(double s, char *text, size_t size) {
    if (!(s >= 0)) snprintf(text, size, "?");
    else if (s < 90) snprintf(text, size, "%.0f s", s);
    else if (s < 5400) snprintf(text, size, "%.0f min", s / 60);
    else if (s < 48 * 3600) snprintf(text, size, "%.1f h", s / 3600);
    else snprintf(text, size, "%.1f days", s / 86400);
    return text;
}

/* ---- The opening ---- */

static void label(FILE *to, const char *name) {
    int fd = to == stdout ? STDOUT_FILENO : STDERR_FILENO;
    output_paint(fd, COLOR_BOLD);
    fprintf(to, "%-9s", name);
    output_paint(fd, COLOR_NONE);
    fputc(' ', to);
}

static void model_print(FILE *to, const struct opening *o) {
    const tl_model_config *c = &o->config;
    char n[32], shown[64];
    label(to, "model");
    fprintf(to, "%s: %s parameters; %" PRId64 " layers, %" PRId64 " channels, context %" PRId64 "\n",
            text_show(shown, 40, o->settings->model), grouped_text((uint64_t)o->n_parameters, n), c->n_layers,
            c->channels, c->context);
}

static void data_print(FILE *to, const struct opening *o) {
    const struct settings *s = o->settings;
    const char *unit = o->are_bytes ? "bytes" : "tokens";
    char n[32], held[32], shown[64];
    label(to, "data");
    fprintf(to, "%s: %s %s", source_is_builtin(s) ? "built-in stories" : text_show(shown, 36, s->data),
            grouped_text((uint64_t)o->n_train, n), unit);
    if (o->n_held_out) fprintf(to, ", %s held out", grouped_text((uint64_t)o->n_held_out, held));
    fprintf(to, "\n");
}

static void batch_print(FILE *to, const struct opening *o) {
    const struct settings *s = o->settings;
    double tokens = (double)s->steps * (double)o->step_tokens;
    char a[32], b[32], c[32];
    label(to, "batch");
    if (s->accum > 1) fprintf(to, "%" PRId64 " x ", s->accum);
    fprintf(to, "%" PRId64 " x %" PRId64 " = %s tokens; ", s->batch, s->seq, grouped_text((uint64_t)o->step_tokens, a));
    fprintf(to, "%s steps = %s tokens", grouped_text((uint64_t)s->steps, b), amount_text(tokens, c));
    if (o->n_train > 0 && !o->are_bytes) fprintf(to, ", %.3g epochs", tokens / (double)o->n_train);
    fprintf(to, "\n");
}

static void memory_print(FILE *to, const struct opening *o) {
    char a[32], b[32];
    bool fits = !o->memory_bytes || o->reserved_bytes <= o->memory_bytes;
    label(to, "memory");
    fprintf(to, "%s%s", bytes_text((double)o->reserved_bytes, a), o->n_ranks > 1 ? " per device" : "");
    if (!o->memory_bytes) fprintf(to, "; the device's memory is not known\n");
    else
        fprintf(to, " of %s: %s (%s in tensors at the peak)\n", bytes_text((double)o->memory_bytes, b),
                fits ? "fits" : "TOO LARGE", bytes_text((double)o->held_bytes, a));
}

/* "14:05", with the day if it is another: "Nov 17 14:05". */
static const char *clock_text(double in_s, char *text, size_t size) {
    time_t now = time(NULL), then = now + (time_t)in_s;
    struct tm today, day;
    localtime_r(&now, &today);
    localtime_r(&then, &day);
    bool is_today = today.tm_yday == day.tm_yday && today.tm_year == day.tm_year;
    strftime(text, size, is_today ? "%H:%M" : "%Y-%m-%d %H:%M", &day);
    return text;
}

static void time_print(FILE *to, const struct opening *o, double predicted_s) {
    const struct settings *s = o->settings;
    double rest_s = predicted_s * (double)(s->steps - o->first_step);
    char a[32], b[32];
    label(to, "time");
    if (rest_s > 0 && rest_s < 1e10)
        fprintf(to, "%s predicted, until %s (%.4g ms a step)\n", eta_text(rest_s, a, sizeof a),
                clock_text(rest_s, b, sizeof b), 1e3 * predicted_s);
    else fprintf(to, "not predicted: `tally calibrate` measures this machine, once\n");
}

void opening_print(FILE *to, const struct opening *o, double predicted_s) {
    const struct settings *s = o->settings;
    char a[32], b[32], shown[64];
    label(to, "run");
    fprintf(to, "%s on %s", text_show(shown, 40, s->out), s->device);
    if (o->n_ranks > 1) fprintf(to, ", %d processes", o->n_ranks);
    fprintf(to, "; recipe %s", settings_choice(s, "recipe"));
    fprintf(to, ", %s", settings_choice(s, "optimizer"));
    fprintf(to, ", lr %.3g\n", s->lr);
    char chosen[256];
    if (*settings_chosen(s, true, chosen, sizeof chosen)) {
        label(to, "defaults");
        fprintf(to, "for this model: %s\n", settings_chosen(s, true, chosen, sizeof chosen));
    }
    if (o->first_step) {
        label(to, "resume");
        fprintf(to, "after step %" PRId64 " of %" PRId64 "\n", o->first_step, s->steps);
    }
    model_print(to, o);
    data_print(to, o);
    batch_print(to, o);
    memory_print(to, o);
    label(to, "compute");
    fprintf(to, "%sFLOP a step, %sFLOP in all\n", count_text(o->step_flops, a), count_text(o->flops, b));
    time_print(to, o, predicted_s);
}

void train_progress_open(void *context, const struct opening *o) {
    struct train_progress *p = context;
    train_progress_end(p);
    if (!p->is_quiet) opening_print(stderr, o, p->predicted_s);
    train_progress_page(p, o->settings->out);
}

void train_progress_page(struct train_progress *p, const char *run) {
    if (!p->has_page || p->page.pid) return;
    p->has_page = watch_child_start(&p->page, run, p->page_port);
    if (!p->has_page) return;
    label(stderr, "page");
    fprintf(stderr, "%s\n", p->page.address);
}

/* ---- Steps ---- */

void train_progress_end(struct train_progress *p) {
    if (p->has_line) fputc('\n', stderr);
    p->has_line = false;
}

/* A full line; fields that fit beside those before them, in the order of what people look at. */
struct field {
    const char *name;
    char text[32];
};

enum { BAR_LEAST = 10, BAR_MOST = 40, N_FIELDS = 7 };

static void bar_print(char *to, size_t size, double share, int width) {
    int done = (int)(share * width + 0.5);
    int n = snprintf(to, size, "[%s", output_color(STDERR_FILENO, COLOR_GREEN));
    for (int i = 0; i < width && n < (int)size - 16; i++) to[n++] = i < done ? '=' : i == done ? '>' : ' ';
    snprintf(to + n, size - (size_t)n, "%s]", output_color(STDERR_FILENO, COLOR_NONE));
}

static void fields_fill(struct field fields[N_FIELDS], const struct run_news *n, const struct train_progress *p) {
    char text[32];
    static const char *const names[N_FIELDS] = {"loss ", "norm ", "", "MFU ", "", "drift ", "ETA "};
    for (int i = 0; i < N_FIELDS; i++) fields[i] = (struct field){names[i], ""};
    snprintf(fields[0].text, 32, "%.4f", n->loss);
    snprintf(fields[1].text, 32, "%.3f", n->norm);
    snprintf(fields[2].text, 32, "%s tok/s", grouped_text((uint64_t)fmax(n->tokens_per_s, 0), text));
    if (isfinite(n->mfu)) snprintf(fields[3].text, 32, "%.1f%%", 100 * n->mfu);
    snprintf(fields[4].text, 32, "%s", bytes_text((double)n->peak_bytes, text));
    if (isfinite(train_drift(p))) snprintf(fields[5].text, 32, "%+.1f%%", 100 * train_drift(p));
    snprintf(fields[6].text, 32, "%s", eta_text(n->eta_s, text, sizeof text));
}

/* "  300/1900 [=====>        ]  loss 1.2345  32,438 tok/s  MFU 23.1%  22.94 MiB  ETA 45 s", as wide as the terminal at
 * most. A narrow one loses fields before the bar; the loss and the time that is left stay. */
static void status_print(struct train_progress *p, const struct run_news *n) {
    static const int order[N_FIELDS] = {0, 6, 2, 3, 4, 1, 5}; /* which fields come first where there is little room */
    struct field fields[N_FIELDS];
    bool is_shown[N_FIELDS] = {false};
    char head[64], bar[160], line[512];
    fields_fill(fields, n, p);
    int room =
        output_columns() - OUTPUT_MARGIN - snprintf(head, sizeof head, "%" PRId64 "/%" PRId64, n->step, n->steps);
    int left = room - (BAR_LEAST + 3);
    for (int i = 0; i < N_FIELDS; i++) {
        const struct field *f = &fields[order[i]];
        int width = 2 + (int)strlen(f->name) + (int)strlen(f->text);
        if (!*f->text || width > left) continue;
        is_shown[order[i]] = true;
        left -= width;
    }
    int width = BAR_LEAST + (left > 0 ? left : 0);
    bar_print(bar, sizeof bar, (double)n->step / (double)n->steps, width < BAR_MOST ? width : BAR_MOST);
    int at = snprintf(line, sizeof line, "%s %s", head, bar);
    for (int i = 0; i < N_FIELDS; i++)
        if (is_shown[i])
            at += snprintf(line + at, sizeof line - (size_t)at, "  %s%s%s%s", output_color(STDERR_FILENO, COLOR_DIM),
                           fields[i].name, output_color(STDERR_FILENO, COLOR_NONE), fields[i].text);
    output_status(line);
    p->has_line = true;
}

static void line_print(const struct train_progress *p, const struct run_news *n) {
    char eta[32], memory[32], rate[32], mfu[48] = "", late[32] = "";
    if (isfinite(n->mfu)) snprintf(mfu, sizeof mfu, "  MFU %.1f %% (hardware %.1f %%)", 100 * n->mfu, 100 * n->hfu);
    if (isfinite(train_drift(p))) snprintf(late, sizeof late, "  drift %+.1f %%", 100 * train_drift(p));
    fprintf(stderr,
            "step %" PRId64 "/%" PRId64
            "  loss %.4f  norm %.3f  lr %.2e  %.0f tok/s  %sFLOP/s%s%s  %s  wait %.1f %%  ETA %s\n",
            n->step, n->steps, n->loss, n->norm, n->lr, n->tokens_per_s, count_text(n->flops_per_s, rate), mfu, late,
            bytes_text((double)n->peak_bytes, memory), 100 * n->wait_share, eta_text(n->eta_s, eta, sizeof eta));
}

void train_progress_tell(void *context, const struct run_news *n) {
    struct train_progress *p = context;
    char bits[48];
    bool is_step = !n->text && !isfinite(n->held_out), is_last = n->step == n->steps;
    if (is_step && n->step > 2) {
        p->seen_s += n->step_s;
        p->n_seen++;
    }
    if (p->is_quiet) return;
    if (!is_step) train_progress_end(p);
    if (n->text) fprintf(stderr, "--- sample after %" PRId64 " steps\n%s\n---\n", n->step, n->text);
    else if (!is_step)
        fprintf(stderr, "step %" PRId64 "/%" PRId64 "  held-out loss %.4f%s\n", n->step, n->steps, n->held_out,
                bits_text(n->bits_per_byte, bits, sizeof bits));
    else if (!p->is_terminal) {
        if (n->step % p->every == 0 || is_last || n->step == 1) line_print(p, n);
    } else if (is_last || now_s() - p->shown_s >= 0.1) { /* a terminal is slower than a small step */
        status_print(p, n);
        p->shown_s = now_s();
    }
}

#include "cli/train_progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/number.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "step/ramp.h"

double train_step_mean(const struct train_progress *p) { return p->n_seen ? p->seen_s / (double)p->n_seen : NAN; }
double train_drift(const struct train_progress *p) {
    return p->predicted_s > 0 ? train_step_mean(p) / p->predicted_s - 1 : NAN;
}

const char *bits_text(double bits_per_byte, char *text, size_t size) {
    *text = 0;
    if (isfinite(bits_per_byte)) snprintf(text, size, " (%.4f bits per byte)", bits_per_byte);
    return text;
}

const char *sets_text(const struct run_sets *sets, char *text, size_t size) {
    size_t n = 0;
    *text = 0;
    for (int i = 0; sets && i < sets->n && n < size; i++) {
        const int more = snprintf(text + n, size - n, "%s%s %.4f%s", i ? ", " : " (", sets->at[i].name,
                                  sets->at[i].loss, i == sets->n - 1 ? ")" : "");
        n += more > 0 ? (size_t)more : size;
    }
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

enum { ROW_COLUMNS = 80, ROW_LABEL = 10 };

/* Where to cut a text that is longer than this: at the last blank behind a comma, or at any. */
static size_t fold_at(const char *text, size_t room) {
    size_t blank = 0, stop = 0;
    for (size_t i = 1; i <= room; i++) {
        if (text[i] != ' ') continue;
        blank = i;
        if (strchr(",;:", text[i - 1])) stop = i;
    }
    return stop > room / 3 ? stop : blank ? blank : strcspn(text, " "); /* a long name is wider after all */
}

/* A text at the right of its label, on further lines where it is too long for one. */
static void row_fold(FILE *to, const char *text) {
    const size_t room = ROW_COLUMNS - ROW_LABEL;
    while (strlen(text) > room) {
        size_t n = fold_at(text, room);
        if (!text[n]) break;
        fprintf(to, "%.*s\n%*s", (int)n, text, ROW_LABEL, "");
        text += n + 1;
    }
    fprintf(to, "%s\n", text);
}

TL_PRINTF(3, 4) static void row(FILE *to, const char *name, const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    int fd = to == stdout ? STDOUT_FILENO : STDERR_FILENO;
    output_paint(fd, COLOR_BOLD);
    fprintf(to, "%-*s", ROW_LABEL - 1, name);
    output_paint(fd, COLOR_NONE);
    fputc(' ', to);
    row_fold(to, text);
}

static void run_print(FILE *to, const struct opening *o) {
    const struct settings *s = o->settings;
    char shown[64], ranks[32] = "", recipe[32], chosen[256];
    if (o->n_ranks > 1) snprintf(ranks, sizeof ranks, ", %d processes", o->n_ranks);
    text_copy(recipe, sizeof recipe, settings_choice(s, "recipe")); /* the next choice takes its place */
    row(to, "run", "%s on %s%s; recipe %s, %s, lr %.3g", text_show(shown, 40, s->out), s->device, ranks, recipe,
        settings_choice(s, "optimizer"), s->lr);
    const char *flags = settings_chosen(s, true, chosen, sizeof chosen);
    if (*flags) row(to, "defaults", "for this model: %s", flags);
    if (o->first_step) row(to, "resume", "after step %" PRId64 " of %" PRId64, o->first_step, s->steps);
}

static void model_print(FILE *to, const struct opening *o) {
    const tl_model_config *c = &o->config;
    char n[32], shown[64], active[64];
    row(to, "model", "%s: %s parameters%s; %" PRId64 " layers, %" PRId64 " channels, context %" PRId64,
        text_show(shown, 40, o->settings->model), grouped_text((uint64_t)o->n_parameters, n), active_text(c, active),
        c->n_layers, c->channels, c->context);
}

/* What is trained, where that is not all of the model. */
static void tuning_print(FILE *to, const struct opening *o) {
    char trained[TRAINED_TEXT];
    if (o->n_trained != o->n_parameters)
        row(to, "trained", "%s", trained_text(o->n_trained, o->n_parameters, o->settings->lora > 0, trained));
    if (settings_has_preference(o->settings))
        row(to, "reference",
            o->settings->lora ? "the model without its adapters" : "a frozen copy of the first weights");
}

static void groups_print(FILE *to, const struct opening *o) {
    char muon[32], rest[32];
    if (o->n_muon)
        row(to, "muon", "the matrices of the layers, %s parameters; adamw: embeddings, head%s and vectors, %s",
            grouped_text((uint64_t)o->n_muon, muon), o->config.n_experts ? ", experts" : "",
            grouped_text((uint64_t)(o->n_trained - o->n_muon), rest));
    if (*o->settings->groups) row(to, "groups", "%s", o->settings->groups);
}

static void data_print(FILE *to, const struct opening *o) {
    const struct settings *s = o->settings;
    char n[32], held[32], rest[64] = "", shown[64];
    if (o->n_held_out) snprintf(rest, sizeof rest, ", %s held out", grouped_text((uint64_t)o->n_held_out, held));
    if (o->n_sets > 1) snprintf(rest + strlen(rest), sizeof rest - strlen(rest), " in %d sets", o->n_sets);
    row(to, "data", "%s: %s %s%s", source_is_builtin(s) ? "built-in stories" : text_show(shown, 36, s->data),
        grouped_text((uint64_t)o->n_train, n), o->are_bytes ? "bytes" : "tokens", rest);
}

static void batch_print(FILE *to, const struct opening *o) {
    const struct settings *s = o->settings;
    double tokens = o->n_steps * (double)o->step_tokens, n_epochs = tokens / (double)o->n_train;
    char a[32], b[32], c[32], accum[48] = "", epochs[32] = "";
    if (s->batch_warmup) snprintf(accum, sizeof accum, "1 to %" PRId64 " x ", s->accum);
    else if (s->accum > 1) snprintf(accum, sizeof accum, "%" PRId64 " x ", s->accum);
    const char *pairs = settings_has_preference(s) ? " pairs x 2" : "";
    if (o->n_train > 0 && !o->are_bytes)
        number_print(epochs, sizeof epochs, n_epochs < 100 ? ", %.3g epochs" : ", %.0f epochs", n_epochs);
    row(to, "batch", "%s%" PRId64 "%s x %" PRId64 " = %s tokens; %s steps = %s%s", accum, s->batch, pairs, s->seq,
        grouped_text((uint64_t)o->step_tokens, a), grouped_text((uint64_t)s->steps, b), amount_text(tokens, c), epochs);
}

static void memory_print(FILE *to, const struct opening *o) {
    char reserved[32], memory[32], held[32];
    const char *share = o->n_ranks > 1 ? " per device" : "";
    bool fits = !o->memory_bytes || o->reserved_bytes <= o->memory_bytes;
    bytes_text((double)o->reserved_bytes, reserved);
    if (!o->memory_bytes) row(to, "memory", "%s%s; the device's memory is not known", reserved, share);
    else
        row(to, "memory", "%s%s of %s: %s (%s in tensors at the peak)", reserved, share,
            bytes_text((double)o->memory_bytes, memory), fits ? "fits" : "TOO LARGE",
            bytes_text((double)o->held_bytes, held));
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
    double rest_s = predicted_s * (o->n_steps - (double)ramp_batches(s, o->first_step) / (double)s->accum);
    char a[32], b[32];
    if (rest_s > 0 && rest_s < 1e10)
        row(to, "time", "%s predicted, until %s (%.4g ms a step)", eta_text(rest_s, a, sizeof a),
            clock_text(rest_s, b, sizeof b), 1e3 * predicted_s);
    else row(to, "time", "not predicted: `tally calibrate` measures this machine, once");
}

void opening_print(FILE *to, const struct opening *o, double predicted_s) {
    char a[32], b[32];
    run_print(to, o);
    model_print(to, o);
    tuning_print(to, o);
    groups_print(to, o);
    data_print(to, o);
    batch_print(to, o);
    memory_print(to, o);
    row(to, "compute", "%sFLOP a step, %sFLOP in all", count_text(o->step_flops, a), count_text(o->flops, b));
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
    row(stderr, "page", "%s", p->page.address);
}

/* ---- Steps ---- */

/* A full line; fields that fit beside those before them, in the order of what people look at. */
struct field {
    const char *name;
    char text[32];
};

enum { BAR_LEAST = 10, BAR_MOST = 40, N_FIELDS = 8 };

static void bar_print(char *to, size_t size, double share, int width) {
    int done = (int)(share * width + 0.5);
    int n = snprintf(to, size, "[%s", output_color(STDERR_FILENO, COLOR_GREEN));
    for (int i = 0; i < width && n < (int)size - 16; i++) to[n++] = i < done ? '=' : i == done ? '>' : ' ';
    snprintf(to + n, size - (size_t)n, "%s]", output_color(STDERR_FILENO, COLOR_NONE));
}

static void fields_fill(struct field fields[N_FIELDS], const struct run_news *n, const struct train_progress *p) {
    char text[32];
    static const char *const names[N_FIELDS] = {"loss ", "norm ", "", "MFU ", "", "drift ", "ETA ", "accuracy "};
    for (int i = 0; i < N_FIELDS; i++) fields[i] = (struct field){names[i], ""};
    snprintf(fields[0].text, 32, "%.4f", n->loss);
    snprintf(fields[1].text, 32, "%.3f", n->norm);
    snprintf(fields[2].text, 32, "%s tok/s", grouped_text((uint64_t)fmax(n->tokens_per_s, 0), text));
    if (isfinite(n->mfu)) snprintf(fields[3].text, 32, "%.1f%%", 100 * n->mfu);
    snprintf(fields[4].text, 32, "%s", bytes_text((double)n->peak_bytes, text));
    if (isfinite(train_drift(p))) snprintf(fields[5].text, 32, "%+.1f%%", 100 * train_drift(p));
    snprintf(fields[6].text, 32, "%s", eta_text(n->eta_s, text, sizeof text));
    if (isfinite(n->accuracy)) snprintf(fields[7].text, 32, "%.2f", n->accuracy);
}

/* "  300/1900 [=====>        ]  loss 1.2345  32,438 tok/s  MFU 23.1%  22.94 MiB  ETA 45 s", as wide as the terminal at
 * most. A narrow one loses fields before the bar; the loss and the time that is left stay. */
static void status_print(struct train_progress *p, const struct run_news *n) {
    /* which fields come first where there is little room */
    static const int order[N_FIELDS] = {0, 7, 6, 2, 3, 4, 1, 5};
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
    p->is_behind = false;
}

void train_progress_end(struct train_progress *p) {
    if (p->has_line && p->is_behind) status_print(p, &p->last);
    if (p->has_line) fputc('\n', stderr);
    p->has_line = false;
}

static const char *rewards_text(const struct run_news *n, char *text, size_t size) {
    *text = 0;
    if (isfinite(n->accuracy)) snprintf(text, size, "  margin %.3f  accuracy %.2f", n->margin, n->accuracy);
    return text;
}

static void line_print(const struct train_progress *p, const struct run_news *n) {
    char eta[32], memory[32], rate[32], mfu[48] = "", late[32] = "";
    if (isfinite(n->mfu)) snprintf(mfu, sizeof mfu, "  MFU %.1f %% (hardware %.1f %%)", 100 * n->mfu, 100 * n->hfu);
    if (isfinite(train_drift(p))) snprintf(late, sizeof late, "  drift %+.1f %%", 100 * train_drift(p));
    char rewards[64];
    fprintf(stderr,
            "step %" PRId64 "/%" PRId64
            "  loss %.4f%s  norm %.3f  lr %.2e  %.0f tok/s  %sFLOP/s%s%s  %s  wait %.1f %%  ETA %s\n",
            n->step, n->steps, n->loss, rewards_text(n, rewards, sizeof rewards), n->norm, n->lr, n->tokens_per_s,
            count_text(n->flops_per_s, rate), mfu, late, bytes_text((double)n->peak_bytes, memory), 100 * n->wait_share,
            eta_text(n->eta_s, eta, sizeof eta));
}

void train_progress_tell(void *context, const struct run_news *n) {
    struct train_progress *p = context;
    char bits[48], rewards[64], sets[512];
    bool is_step = !n->text && !isfinite(n->held_out), is_last = n->step == n->steps;
    if (is_step && n->step > 2) {
        p->seen_s += n->step_s;
        p->n_seen++;
    }
    if (p->is_quiet) return;
    if (!is_step) train_progress_end(p);
    if (n->text) fprintf(stderr, "--- sample after %" PRId64 " steps\n%s\n---\n", n->step, n->text);
    else if (!is_step)
        fprintf(stderr, "step %" PRId64 "/%" PRId64 "  held-out loss %.4f%s%s%s\n", n->step, n->steps, n->held_out,
                bits_text(n->bits_per_byte, bits, sizeof bits), rewards_text(n, rewards, sizeof rewards),
                sets_text(n->sets, sets, sizeof sets));
    else if (!p->is_terminal) {
        if (n->step % p->every == 0 || is_last || n->step == 1) line_print(p, n);
    } else {
        p->last = *n;
        p->is_behind = true;
        if (!is_last && now_s() - p->shown_s < 0.1) return; /* a terminal is slower than a small step */
        status_print(p, n);
        p->shown_s = now_s();
    }
}

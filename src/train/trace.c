#include "train/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account/path.h"
#include "base/error.h"
#include "base/file.h"
#include "base/growing.h"
#include "base/memory.h"
#include "tensor/pool.h"
#include "tensor/timeline.h"

enum { MOST_DEPTH = 32, NAME_TEXT = 160 };
enum { TRACK_HOST = 1, TRACK_DEVICE, TRACK_MESSAGES };

/* One bar of the picture. */
struct slice {
    int64_t from, to;
    int track, depth;     /* depth: which of two with the same times is inside the other */
    const char *category; /* "step", "work", "phase", "module", "op", "launch", "wait" */
    const char *name;     /* NULL: the last part of the path's first n_path bytes */
    uint32_t path, n_path;
    const struct timeline_record *record; /* of an op or a launch */
};
enum { DEPTH_STEP, DEPTH_WORK, DEPTH_PHASE, DEPTH_MODULE, DEPTH_OP = DEPTH_MODULE + MOST_DEPTH, DEPTH_WAIT };

struct trace {
    struct file_writer *file; /* of the first rank; NULL: given up */
    const struct mesh *mesh;
    tl_device *device;
    int64_t first, last, n_done;
    int64_t zero_ns; /* time 0 of the file */
    uint64_t n_lost;
    bool has_begun, has_events;
    struct slice *slices; /* of a step */
    size_t n_slices, capacity;
    uint64_t held[TL_PURPOSE_COUNT];       /* as last written */
    uint64_t held_after[TL_PURPOSE_COUNT]; /* after the step, whose gradients are freed by no op */
    int64_t step, step_from, step_to;
    char path[];
};

struct trace *trace_new(const char *path, int64_t first, int64_t last, const struct mesh *mesh, tl_device *device) {
    size_t bytes = strlen(path) + 1;
    struct trace *t = memory_new(sizeof *t + bytes);
    if (!t) return error_memory(sizeof *t, "a trace"), NULL;
    *t = (struct trace){.mesh = mesh, .device = device, .first = first, .last = last};
    memcpy(t->path, path, bytes);
    if (mesh->rank == 0 && !(t->file = file_writer_new(path))) return memory_free(t), NULL;
    return t;
}

bool trace_has(const struct trace *t, int64_t step) { return t && step >= t->first && step <= t->last; }

/* ---- Bars ---- */

static bool slice_add(struct trace *t, const struct slice *s) {
    if (!memory_grow((void **)&t->slices, &t->capacity, t->n_slices, sizeof *t->slices)) return t->n_lost++, false;
    t->slices[t->n_slices++] = *s;
    return true;
}

/* All but modules and ops. */
static bool named_add(struct trace *t, int track, int depth, const char *name, int64_t from, int64_t to) {
    static const char *const categories[] = {
        [DEPTH_STEP] = "step", [DEPTH_WORK] = "work", [DEPTH_PHASE] = "phase", [DEPTH_WAIT] = "wait"};
    return slice_add(t, &(struct slice){from, to, track, depth, categories[depth], name, 0, 0, NULL});
}

/* The bars that are open around the present op: one per part of its path. They grow to the end of their last op. */
struct open {
    int track;
    uint8_t phase;
    size_t phase_slice, slices[MOST_DEPTH], ends[MOST_DEPTH]; /* ends: of their paths */
    int depth;
    uint32_t path;
    bool has_phase;
};

static int parts_of(const char *path, size_t ends[MOST_DEPTH]) {
    int n = 0;
    for (const char *at = path; *path && n < MOST_DEPTH; at++) {
        at += strcspn(at, ".");
        ends[n++] = (size_t)(at - path);
        if (!*at) break;
    }
    return n;
}

/* Closes what the op is not inside of, and opens what it is. */
static void op_enter(struct trace *t, struct open *o, const struct timeline_record *r, int64_t from) {
    const char *path = path_text(r->path), *before = path_text(o->path);
    size_t ends[MOST_DEPTH];
    int depth = parts_of(path, ends), same = 0;
    if (!o->has_phase || o->phase != r->phase) {
        o->depth = 0;
        o->phase_slice = t->n_slices;
        o->has_phase = named_add(t, o->track, DEPTH_PHASE, tl_phase_name((tl_phase)r->phase), from, from);
        o->phase = r->phase;
    }
    while (same < depth && same < o->depth && ends[same] == o->ends[same] && !memcmp(path, before, ends[same])) same++;
    for (o->depth = same; o->depth < depth; o->depth++) {
        o->slices[o->depth] = t->n_slices;
        o->ends[o->depth] = ends[o->depth];
        const struct slice module = {
            from, from, o->track, DEPTH_MODULE + o->depth, "module", NULL, r->path, (uint32_t)ends[o->depth], NULL};
        if (!slice_add(t, &module)) break;
    }
    o->path = r->path;
}

static void op_add(struct trace *t, struct open *o, const struct timeline_record *r, int64_t from, int64_t to) {
    op_enter(t, o, r, from);
    if (o->has_phase) t->slices[o->phase_slice].to = to;
    for (int i = 0; i < o->depth; i++) t->slices[o->slices[i]].to = to;
    slice_add(t, &(struct slice){from, to, o->track, DEPTH_OP, "op", r->name, r->path, 0, r});
}

/* Outer bars first, as viewers want them. */
static int slice_order(const void *a, const void *b) {
    const struct slice *x = a, *y = b;
    if (x->track != y->track) return x->track < y->track ? -1 : 1;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    if (x->to != y->to) return x->to > y->to ? -1 : 1;
    return x->depth - y->depth;
}

static void slices_make(struct trace *t, const struct timeline_record *records, size_t n) {
    const bool is_ahead = device_runs_ahead(t->device);
    struct open open = {.track = is_ahead ? TRACK_DEVICE : TRACK_HOST};
    int64_t first = INT64_MAX, last = 0, messages_to = 0;
    t->n_slices = 0;
    if (t->step_to) named_add(t, TRACK_HOST, DEPTH_STEP, "step", t->step_from, t->step_to);
    for (size_t i = 0; i < n; i++) {
        const struct timeline_record *r = &records[i];
        if (r->kind != TIMELINE_OP) {
            const bool is_message = r->kind == TIMELINE_MESSAGES;
            int64_t from = r->from_ns;
            if (is_message && from < messages_to) from = messages_to; /* begun while the end of the last was noted */
            if (is_message && r->to_ns > messages_to) messages_to = r->to_ns;
            named_add(t, is_message ? TRACK_MESSAGES : TRACK_HOST, r->kind == TIMELINE_WORK ? DEPTH_WORK : DEPTH_WAIT,
                      r->name, from, from > r->to_ns ? from : r->to_ns);
            continue;
        }
        if (is_ahead && r->device != t->device) { /* a copy, by the host */
            slice_add(t, &(struct slice){r->began, r->ended, TRACK_HOST, DEPTH_OP, "op", r->name, r->path, 0, r});
            continue;
        }
        op_add(t, &open, r, r->began, r->ended);
        if (r->began < first) first = r->began;
        if (r->ended > last) last = r->ended;
        if (is_ahead)
            slice_add(t, &(struct slice){r->from_ns, r->to_ns, TRACK_HOST, DEPTH_OP, "launch", r->name, r->path, 0, r});
    }
    if (is_ahead && last && t->step_to) named_add(t, TRACK_DEVICE, DEPTH_STEP, "step", first, last);
    if (t->n_slices) qsort(t->slices, t->n_slices, sizeof *t->slices, slice_order);
}

/* ---- As text ---- */

/* Microseconds, to the nanosecond. */
static void time_put(struct growing *g, int64_t ns) {
    if (ns < 0) ns = 0;
    growing_print(g, "%" PRId64 ".%03d", ns / 1000, (int)(ns % 1000));
}

static void event_begin(struct trace *t, struct growing *g, char kind, int track, int64_t ns) {
    growing_text(g, t->has_events ? ",\n" : "\n");
    t->has_events = true;
    growing_print(g, "{\"ph\":\"%c\",\"pid\":%d,\"tid\":%d,\"ts\":", kind, t->mesh->rank, track);
    time_put(g, ns - t->zero_ns);
}

static void op_arguments(struct growing *g, const struct slice *s) {
    const struct timeline_record *r = s->record;
    growing_text(g, ",\"args\":{\"module\":");
    growing_json(g, path_text(s->path));
    growing_print(g, ",\"phase\":\"%s\",\"dtype\":\"%s\",\"shapes\":", tl_phase_name((tl_phase)r->phase),
                  r->dtype < TL_DTYPE_COUNT ? tl_dtype_name((tl_dtype)r->dtype) : "none");
    growing_json(g, r->shapes);
    growing_print(g, ",\"flops\":%" PRIu64 ",\"bytes\":%" PRIu64 "}", r->flops, r->bytes);
}

/* An arrow from the launch to the work on the device. */
static void flow_put(struct trace *t, struct growing *g, const struct timeline_record *r, uint64_t id) {
    event_begin(t, g, 's', TRACK_HOST, r->from_ns);
    growing_print(g, ",\"id\":%" PRIu64 ",\"cat\":\"launch\",\"name\":\"launch\"}", id);
    event_begin(t, g, 'f', TRACK_DEVICE, r->began);
    growing_print(g, ",\"id\":%" PRIu64 ",\"bp\":\"e\",\"cat\":\"launch\",\"name\":\"launch\"}", id);
}

/* "attn" of "h.0.attn". */
static void module_put(struct growing *g, const char *path, size_t n) {
    char name[NAME_TEXT];
    size_t from = n;
    while (from > 0 && path[from - 1] != '.') from--;
    n = n - from < sizeof name ? n - from : sizeof name - 1;
    memcpy(name, path + from, n);
    name[n] = 0;
    growing_json(g, name);
}

static void slice_put(struct trace *t, struct growing *g, const struct slice *s) {
    event_begin(t, g, 'X', s->track, s->from);
    growing_text(g, ",\"dur\":");
    time_put(g, s->to > s->from ? s->to - s->from : 0);
    growing_print(g, ",\"cat\":\"%s\",\"name\":", s->category);
    if (s->depth == DEPTH_STEP) growing_print(g, "\"step %" PRId64 "\"", t->step);
    else if (s->name) growing_json(g, s->name);
    else module_put(g, path_text(s->path), s->n_path);
    if (s->record) op_arguments(g, s);
    growing_text(g, "}");
}

static void counter_put(struct trace *t, struct growing *g, const uint64_t held[TL_PURPOSE_COUNT], int64_t ns) {
    if (!memcmp(t->held, held, sizeof t->held)) return;
    memcpy(t->held, held, sizeof t->held);
    event_begin(t, g, 'C', TRACK_HOST, ns);
    growing_text(g, ",\"name\":\"memory, bytes\",\"args\":{");
    for (int p = 0; p < TL_PURPOSE_COUNT; p++)
        growing_print(g, "%s\"%s\":%" PRIu64, p ? "," : "", tl_purpose_name((tl_purpose)p), held[p]);
    growing_text(g, "}}");
}

static void name_put(struct trace *t, struct growing *g, const char *what, int track, const char *name) {
    event_begin(t, g, 'M', track, t->zero_ns);
    growing_print(g, ",\"name\":\"%s\",\"args\":{\"name\":", what);
    growing_json(g, name);
    growing_text(g, "}}");
}

static void names_put(struct trace *t, struct growing *g) {
    char rank[96];
    bool is_ahead = device_runs_ahead(t->device);
    snprintf(rank, sizeof rank, "rank %d (%s)", t->mesh->rank, tl_device_name(t->device));
    name_put(t, g, "process_name", TRACK_HOST, rank);
    name_put(t, g, "thread_name", TRACK_HOST, is_ahead ? "host" : "ops");
    if (is_ahead) name_put(t, g, "thread_name", TRACK_DEVICE, tl_device_name(t->device));
    if (t->mesh->size > 1) name_put(t, g, "thread_name", TRACK_MESSAGES, "messages");
}

static void records_put(struct trace *t, struct growing *g, const struct timeline_record *records, size_t n) {
    if (t->n_lost) {
        event_begin(t, g, 'M', TRACK_HOST, t->zero_ns);
        growing_print(g, ",\"name\":\"process_labels\",\"args\":{\"labels\":\"%" PRIu64 " events lost\"}}", t->n_lost);
    }
    for (size_t i = 0; i < t->n_slices; i++) slice_put(t, g, &t->slices[i]);
    for (size_t i = 0; i < n; i++) {
        if (records[i].kind != TIMELINE_OP) continue;
        if (records[i].holder == t->device) counter_put(t, g, records[i].held, records[i].from_ns);
        if (device_runs_ahead(t->device) && records[i].device == t->device)
            flow_put(t, g, &records[i], ((uint64_t)t->step << 24) + i);
    }
    if (t->step_to) counter_put(t, g, t->held_after, t->step_to);
}

/* ---- Steps ---- */

static void give_up(struct trace *t) {
    log_line("run: the trace %s was given up: %s", t->path, tl_error_message());
    tl_error_clear();
    file_writer_discard(t->file);
    t->file = NULL;
}

/* All ranks' texts, one after another. */
static bool texts_write(struct trace *t, const struct growing *mine) {
    const struct mesh *m = t->mesh;
    char **all = memory_new((size_t)m->size * sizeof *all);
    bool ok = all ? mesh_texts(m, mine->at, 0, all) : error_memory(sizeof *all, "a trace");
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    for (int r = 0; ok && r < m->size; r++) {
        if (t->file && !file_writer_write(t->file, all[r], strlen(all[r]))) give_up(t);
        memory_free(all[r]);
    }
    tl_set_error_policy(policy);
    memory_free(all);
    return ok;
}

bool trace_step_begin(struct trace *t) {
    char error[200] = "", here = 0, *all = memory_new((size_t)t->mesh->size);
    t->device->functions->sync(t->device, error); /* what is wrong with it, the step will find */
    bool ok = all ? mesh_share(t->mesh, &here, 1, all) : error_memory((size_t)t->mesh->size, "a trace");
    memory_free(all);
    if (!t->has_begun) t->zero_ns = timeline_now();
    t->step_to = 0;
    return ok && timeline_begin(t->device);
}

static void held_read(struct held *held, void *to) { memcpy(to, held->by_purpose, sizeof held->by_purpose); }

void trace_step(struct trace *t, int64_t step, double from_s) {
    pool_account(t->device->pool, held_read, t->held_after);
    t->step = step;
    t->step_from = llround(1e9 * from_s);
    t->step_to = timeline_now();
}

bool trace_step_end(struct trace *t) {
    struct growing g = {0};
    size_t n;
    uint64_t n_lost;
    const struct timeline_record *records = timeline_take(&n, &n_lost);
    t->n_lost += n_lost;
    slices_make(t, records, n);
    if (!t->has_begun) {
        if (t->mesh->rank == 0) growing_text(&g, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
        t->has_events = t->mesh->rank > 0; /* behind those of the first rank */
        names_put(t, &g);
    }
    records_put(t, &g, records, n);
    timeline_end();
    t->has_begun = true;
    t->n_done++;
    bool ok = texts_write(t, &g);
    if (g.is_broken && t->file) error_memory(g.n, "a trace"), give_up(t);
    memory_free(g.at);
    return ok;
}

static void file_finish(struct trace *t) {
    struct growing g = {0};
    growing_print(&g, "\n],\"otherData\":{\"schema\":\"tally.trace/1\",\"version\":\"%s\",\"ranks\":%d,", tl_version(),
                  t->mesh->size);
    growing_print(&g, "\"steps\":%" PRId64 ",\"lost_events\":%" PRIu64 "}}\n", t->n_done, t->n_lost);
    bool ok = !g.is_broken && file_writer_write(t->file, g.at, g.n);
    if (!ok) give_up(t);
    else {
        struct file_writer *file = t->file;
        t->file = NULL;
        if (!file_writer_commit(file)) give_up(t);
    }
    memory_free(g.at);
}

void trace_free(struct trace *t) {
    if (!t) return;
    timeline_end();
    tl_policy policy = tl_set_error_policy(TL_RETURN);
    if (t->file && t->n_done) file_finish(t);
    else if (t->file)
        log_line("run: no trace was written: this process did not make the steps %" PRId64 " to %" PRId64, t->first,
                 t->last);
    file_writer_discard(t->file);
    tl_set_error_policy(policy);
    memory_free(t->slices);
    memory_free(t);
}

/* absent.c: what a browser does not have, in place of the files of src/ that need it (the Makefile lists them).
 *
 * A price runs on meta, which has no data and no kernels, so the planner needs no more than these: a cpu device that
 * holds bytes and computes nothing, one process, one thread, and no patterns for tokenizers. What does need more fails
 * with an error that says so, as a missing file or a missing GPU does elsewhere.
 */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/learning.h"
#include "cli/napkin_form.h"
#include "cli/plan_options.h"
#include "comm/rendezvous.h"
#include "comm/watch.h"
#include "data/byte_stream.h"
#include "device/cpu/device.h"
#include "device/cpu/rules.h"
#include "spec/op_id.h"
#include "text/regex.h"

/* ---- src/device/cpu: bytes, and no kernels ---- */

static bool segment_new(tl_device *device, uint64_t bytes, void **data, char *error) {
    (void)device;
    *data = bytes <= SIZE_MAX ? malloc((size_t)bytes) : NULL;
    return *data || snprintf(error, 200, "the browser has no %" PRIu64 " bytes", bytes) < 0;
}

static void segment_free(tl_device *device, void *data, uint64_t bytes) {
    (void)device, (void)bytes;
    free(data);
}

static bool copy(tl_device *device, void *to, const void *from, size_t bytes, enum copy_direction direction,
                 char *error) {
    (void)device, (void)direction, (void)error;
    memcpy(to, from, bytes);
    return true;
}

static bool sync(tl_device *device, char *error) {
    (void)device, (void)error;
    return true;
}

static const struct device_functions functions = {
    .segment_new = segment_new, .segment_free = segment_free, .copy = copy, .sync = sync};
static const tl_kernel kernels[OP_COUNT];

static bool cpu_open(tl_device *d, int index, const struct target *as, char *error) {
    (void)index;
    if (as && as != cpu_targets) return snprintf(error, 400, "a browser cannot run as %.40s", as->name) < 0;
    d->target = cpu_targets;
    d->functions = &functions;
    d->kernels = kernels;
    d->isa = "none";
    return true;
}

const struct device_driver cpu_driver = {.name = "cpu", .targets = cpu_targets, .open = cpu_open};

/* ---- src/comm/rendezvous.c and src/comm/watch.c: other processes ---- */

bool rendezvous_is_due(void) { return false; }
bool rendezvous_begin(void) { return error_set(TL_ERROR_SYSTEM, "a browser starts no processes"); }
void rendezvous_end(void) {}

bool watch_begin(tl_comm *world, char *error) {
    (void)world;
    return snprintf(error, 200, "a browser starts no processes") < 0;
}
void watch_enter(tl_comm *comm, const char *op, tl_dtype dtype, int64_t count, int peer) {
    (void)comm, (void)op, (void)dtype, (void)count, (void)peer;
}
void watch_leave(tl_comm *comm) { (void)comm; }
struct call watch_call(void) {
    return (struct call){0};
}
void watch_wait(const tl_comm *comm, const struct call *call) { (void)comm, (void)call; }
uint64_t watch_group_id(const tl_comm *parent, const int *ranks, int n) {
    (void)parent, (void)ranks, (void)n;
    return 0;
}

/* ---- src/text/regex.c: PCRE2 ---- */

struct regex *regex_new(const char *pattern, bool is_ruby, const char *where) {
    (void)pattern, (void)is_ruby;
    error_set(TL_ERROR_SYSTEM, "%s: the planner's page reads no tokenizers (use the program)", where);
    return NULL;
}
void regex_free(struct regex *r) { (void)r; }
bool regex_next(const struct regex *r, void **data, const uint8_t *text, size_t bytes, size_t last, size_t *begin,
                size_t *end) {
    (void)r, (void)data, (void)text, (void)bytes, (void)last, (void)begin, (void)end;
    return false;
}
void regex_data_free(void *data) { (void)data; }

/* ---- src/data/byte_stream.c: threads and compression ---- */

struct byte_stream *byte_stream_open(const char *path, const atomic_bool *stop) {
    (void)stop;
    error_set(TL_ERROR_SYSTEM, "%s: the planner's page reads no texts (use the program)", path);
    return NULL;
}
bool byte_stream_read(struct byte_stream *s, void *to, size_t room, size_t *n) {
    (void)s, (void)to, (void)room;
    *n = 0;
    return true;
}
uint64_t byte_stream_used(const struct byte_stream *s) {
    (void)s;
    return 0;
}
void byte_stream_close(struct byte_stream *s) { (void)s; }

/* ---- src/cli/plan_progress.c: a page has no terminal ---- */

void plan_progress_begin(struct plan_options *o) { (void)o; }
void (*plan_progress_best(void))(int n_tried) { return NULL; }
void plan_progress_end(void) {}

/* ---- src/cli/napkin_folder.c: runs in folders ---- */

bool runs_of_folder(const char *path, enum runs_kind kind, struct napkin_run *runs, int *n_runs) {
    (void)kind, (void)runs, (void)n_runs;
    return error_set(TL_ERROR_USE, "%s: a browser has no folders of runs", path);
}

/* ---- src/cli/learning.c: tokenizers that are learnt ---- */

int learning_ready(const char *command, struct settings *s, tl_tokenizer **made) {
    *made = NULL;
    if (s->ready || !tokens_are_made(s)) return 0;
    fprintf(stderr, "tally %s: tokenizer: the planner's page learns none (use the program)\n", command);
    return EXIT_INPUT;
}

/* ---- The C library ---- */

int sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *cores) {
    (void)process, (void)bytes, (void)cores;
    errno = ENOSYS;
    return -1;
}
int prctl(int option, ...) {
    (void)option;
    errno = ENOSYS;
    return -1;
}
int __sched_cpucount(size_t bytes, const cpu_set_t *cores) {
    (void)bytes, (void)cores;
    return 1;
}

/* Insertion: the planner sorts nothing with it, and lists that tokenizers sort are short. */
void qsort_r(void *base, size_t n, size_t size, int (*compare)(const void *, const void *, void *), void *context) {
    char *at = base, *held = malloc(size ? size : 1);
    if (!held) abort();
    for (size_t i = 1; i < n; i++) {
        size_t to = i;
        memcpy(held, at + i * size, size);
        for (; to && compare(at + (to - 1) * size, held, context) > 0; to--)
            memcpy(at + to * size, at + (to - 1) * size, size);
        memcpy(at + to * size, held, size);
    }
    free(held);
}

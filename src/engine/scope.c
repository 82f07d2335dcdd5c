#include "engine/scope.h"

#include <pthread.h>
#include <string.h>

#include "account/path.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"

_Thread_local struct thread_state thread_state_here;
static pthread_key_t state_key;
static pthread_once_t state_once = PTHREAD_ONCE_INIT;

static void frames_drop_to(struct thread_state *s, size_t first) {
    while (s->n_owned > first) tensor_drop(s->owned[--s->n_owned]);
}

static void state_free(void *p) {
    struct thread_state *s = p;
    frames_drop_to(s, 0);
    memory_free(s->owned);
    memory_free(s->frames);
    memset(s, 0, sizeof *s);
}

static void state_at_exit(void) { state_free(&thread_state_here); }

__attribute__((constructor)) static void error_setup(void) { error_path = tl_path; }

static void state_setup(void) {
    pthread_key_create(&state_key, state_free);
    atexit(state_at_exit); /* key destructors do not run for the main thread */
}

void thread_state_set_up(void) {
    pthread_once(&state_once, state_setup);
    pthread_setspecific(state_key, &thread_state_here);
    thread_state_here.is_set_up = true;
}

bool scope_reserve(size_t n) {
    struct thread_state *s = thread_state();
    while (s->n_owned + n > s->owned_capacity)
        if (!memory_grow((void **)&s->owned, &s->owned_capacity, s->owned_capacity, sizeof *s->owned))
            return error_memory(s->owned_capacity * sizeof *s->owned, "a scope");
    return true;
}

tl_tensor *scope_own(tl_tensor *x) {
    struct thread_state *s = &thread_state_here;
    return s->owned[s->n_owned++] = x;
}

tl_tensor *scope_adopt(tl_tensor *x) {
    if (!x) return NULL;
    if (scope_reserve(1)) return scope_own(x);
    tensor_drop(x);
    return NULL;
}

void scope_drop_to(size_t n) { frames_drop_to(thread_state(), n); }

static tl_scope scope_open(uint32_t path) {
    struct thread_state *s = thread_state();
    if (!memory_grow((void **)&s->frames, &s->frame_capacity, s->n_frames, sizeof *s->frames)) {
        error_memory(sizeof *s->frames, "a scope");
        return (tl_scope){0, 0}; /* closing it is an error, as it was never open */
    }
    s->frames[s->n_frames++] = (struct scope_frame){.first = s->n_owned, .serial = ++s->serial, .path_before = s->path};
    s->path = path;
    return (tl_scope){.depth = (uint32_t)s->n_frames, .serial = s->serial};
}

tl_scope tl_scope_begin(void) { return scope_open(thread_state()->path); }

tl_scope tl_scope_enter(const char *name) {
    if (!name) name = "?";
    if (!text_is_name(name)) {
        error_set(TL_ERROR_USE, "tl_scope_enter: a name is UTF-8 without control characters");
        return (tl_scope){0, 0};
    }
    uint32_t path = *name ? path_enter(thread_state()->path, name) : thread_state()->path;
    if (path == PATH_NONE) return (tl_scope){0, 0};
    return scope_open(path);
}

static bool scope_is_innermost(const struct thread_state *s, tl_scope scope) {
    bool is_open = scope.depth >= 1 && scope.depth <= s->n_frames && s->frames[scope.depth - 1].serial == scope.serial;
    if (!is_open)
        return error_set(
            TL_ERROR_USE,
            "this scope is not open: it was closed already, belongs to another thread, or could not be opened");
    if (scope.depth < s->n_frames)
        return error_set(TL_ERROR_USE, "scopes close in reverse order: %zu opened inside this one %s still open",
                         s->n_frames - scope.depth, s->n_frames - scope.depth == 1 ? "is" : "are");
    return true;
}

bool tl_scope_end(tl_scope scope) {
    struct thread_state *s = thread_state();
    if (!scope_is_innermost(s, scope)) return false;
    struct scope_frame frame = s->frames[--s->n_frames];
    s->path = frame.path_before;
    frames_drop_to(s, frame.first);
    return true;
}

tl_tensor *tl_scope_return(tl_scope scope, tl_tensor *result) {
    struct thread_state *s = thread_state();
    if (!scope_is_innermost(s, scope)) return NULL;
    size_t first = s->frames[scope.depth - 1].first, at = s->n_owned;
    while (at > first && s->owned[at - 1] != result) at--;
    if (result && at > first) { /* it is this scope's: its reference moves outwards, and there is room */
        memmove(s->owned + at - 1, s->owned + at, (s->n_owned - at) * sizeof *s->owned);
        s->n_owned--;
        tl_scope_end(scope);
        return scope_own(result);
    }
    if (result) result = tensor_check(result, "tl_scope_return") ? tensor_keep(result) : NULL;
    tl_scope_end(scope);
    return scope_adopt(result);
}

void tl_scope_reset(void) {
    struct thread_state *s = thread_state();
    s->path = 0;
    s->n_frames = 0;
    frames_drop_to(s, 0);
}

tl_tensor *tl_keep(tl_tensor *x) { return tensor_check(x, "tl_keep") ? tensor_keep(x) : NULL; }

void tl_drop(tl_tensor *x) {
    if (x && tensor_check(x, "tl_drop")) tensor_drop(x);
}

tl_tensor *tl_scope_give(tl_tensor *x) { return tensor_check(x, "tl_scope_give") ? scope_adopt(x) : NULL; }

const char *tl_path(void) { return path_text(thread_state()->path); }

tl_phase tl_set_phase(tl_phase phase) {
    struct thread_state *s = thread_state();
    tl_phase before = s->phase;
    if ((unsigned)phase >= TL_PHASE_COUNT)
        error_set(TL_ERROR_USE, "tl_set_phase: no phase has the number %d", (int)phase);
    else s->phase = phase;
    return before;
}

bool tl_set_grad_mode(bool on) {
    struct thread_state *s = thread_state();
    bool before = !s->grad_off;
    s->grad_off = !on;
    return before;
}

void tl_seed(uint64_t seed) { thread_state()->generator = (tl_generator){.seed = seed}; }
tl_generator tl_generator_get(void) { return thread_state()->generator; }
void tl_generator_set(tl_generator generator) { thread_state()->generator = generator; }

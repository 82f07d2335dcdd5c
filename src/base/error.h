/* error.h: the calling thread's first error. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "tally.h"

/* Records an error unless one is pending; always returns false, so that a check can end in `return error_set(...)`.
 * The message begins with the calling thread's path, if it has one. Under TL_ABORT it does not return. */
bool error_set(tl_status status, const char *format, ...) TL_PRINTF(2, 3);

/* A host allocation of `bytes` failed. Always false. */
bool error_memory(size_t bytes, const char *what);
/* Whether an argument that a call needs is there. False: recorded, "WHAT: got NULL instead of THING". */
bool error_given(const void *argument, const char *what, const char *thing);

/* Set by the engine: the path of the calling thread, "" for none. */
extern const char *(*error_path)(void);

/* A violated invariant is a bug in the library and aborts, in every build. */
#define INVARIANT(condition) ((condition) ? (void)0 : invariant_broken(#condition, __FILE__, __LINE__))
_Noreturn void invariant_broken(const char *condition, const char *file, int line);

/* Whether the calling thread's stop hook says that long work is to end. */
bool stop_is_asked(void);

/* Sends a line to the log hook, if there is one. */
void log_line(const char *format, ...) TL_PRINTF(1, 2);

#endif

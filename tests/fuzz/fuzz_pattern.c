/* fuzz_pattern.c: any bytes as a pattern and lengths, for libFuzzer (make fuzz).
 *
 * The first byte chooses the call and the rank of the first tensor; up to the first newline is the pattern, behind
 * it are lengths. A call gives a result and no error, or an error with words and no result; everything else is a
 * crash.
 */
#include <stdio.h>
#include <string.h>

#include "support/pattern_calls.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Its own bytes, so that AddressSanitizer sees a read behind the end. */
static char *text_of(const uint8_t *data, size_t n) {
    char *text = malloc(n + 1);
    if (!text) abort();
    if (n) memcpy(text, data, n);
    text[n] = 0;
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 1) return 0;
    tl_set_error_policy(TL_RETURN);
    const enum call call = (enum call)(data[0] % N_CALLS);
    const int rank = data[0] / N_CALLS % 5;
    const uint8_t *newline = memchr(data + 1, '\n', n - 1);
    const size_t n_pattern = newline ? (size_t)(newline - data) - 1 : n - 1;
    char *pattern = text_of(data + 1, n_pattern);
    char *lengths = newline ? text_of(newline + 1, n - 2 - n_pattern) : NULL;

    tl_scope scope = tl_scope_begin();
    tl_device *meta = tl_device_find("meta"); /* a length of a million is no reason to allocate */
    tl_tensor *x = tl_empty(rank, (const int64_t[]){2, 3, 4, 6}, TL_F32, meta);
    tl_tensor *y = tl_empty(TL_SHAPE(3, 2), TL_F32, meta);
    const uintptr_t result = pattern_call(call, x, y, pattern, lengths);
    if (!result == (tl_error() == TL_OK) || (!result && strlen(tl_error_message()) < 10)) {
        fprintf(stderr, "call %d, \"%s\": %s\n", (int)call, pattern, tl_error_message());
        abort();
    }
    tl_error_clear();
    tl_scope_end(scope);
    free(pattern);
    free(lengths);
    return 0;
}

#include "base/number.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static locale_t plain;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void plain_make(void) { plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

/* Were there no such locale (glibc needs no memory for it), uselocale(0) would change nothing, here and at the end. */
locale_t number_locale_begin(void) {
    pthread_once(&once, plain_make);
    return uselocale(plain);
}

void number_locale_end(locale_t before) { uselocale(before); }

double number_parse(const char *text, char **end) {
    locale_t before = number_locale_begin();
    double value = strtod(text, end);
    number_locale_end(before);
    return value;
}

int number_vprint(char *to, size_t size, const char *format, va_list arguments) {
    locale_t before = number_locale_begin();
    int length = vsnprintf(to, size, format, arguments);
    number_locale_end(before);
    return length;
}

int number_print(char *to, size_t size, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = number_vprint(to, size, format, arguments);
    va_end(arguments);
    return length;
}

int number_shortest(char to[NUMBER_TEXT], double value) {
    locale_t before = number_locale_begin();
    int length = 0;
    for (int digits = 15; digits <= 17; digits++) {
        length = snprintf(to, NUMBER_TEXT, "%.*g", digits, value);
        if (strtod(to, NULL) == value) break;
    }
    number_locale_end(before);
    return length;
}

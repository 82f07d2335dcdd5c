/* number.h: numbers as text, the same in every locale.
 *
 * A host process may have set a locale in which 0.5 is "0,5" (a Python program after locale.setlocale does). strtod
 * then stops at the point, printf writes a comma into JSON, and jansson fails if the decimal point is not a single
 * byte. All conversions between numbers and text therefore go through here, and jansson through base/json.h, under
 * the C locale; only the calling thread's locale changes, and only until the call returns. tools/check_locale finds
 * code that does not.
 */
#ifndef BASE_NUMBER_H
#define BASE_NUMBER_H

#include <locale.h>
#include <stdarg.h>
#include <stddef.h>

#include "tally.h"

/* strtod */
double number_parse(const char *text, char **end);
/* snprintf and vsnprintf */
int number_print(char *to, size_t size, const char *format, ...) TL_PRINTF(3, 4);
int number_vprint(char *to, size_t size, const char *format, va_list arguments) TL_PRINTF(3, 0);

/* The fewest digits, 15 to 17, that read back as the same number: 0.7, not 0.69999999999999996. Returns the length. */
enum { NUMBER_TEXT = 32 };
int number_shortest(char to[NUMBER_TEXT], double value);

/* A bracket around library calls that read or write numbers. No callback may run and no error may be set inside. */
locale_t number_locale_begin(void);
void number_locale_end(locale_t before);

#endif

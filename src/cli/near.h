/* near.h: what people type who know another program: the option, command or value that they mean here. */
#ifndef CLI_NEAR_H
#define CLI_NEAR_H

#include <stdbool.h>

/* The option of `names` that is called `flag` elsewhere ("--learning-rate": "--lr"); NULL: none. *words: what to do
 * instead where there is no such option ("a run resumes by itself ..."), or NULL. */
const char *near_option(const char *command, const char *flag, const char *const *names, int n, const char **words);
/* The command that is called so elsewhere ("evaluate": "eval"); NULL: none. */
const char *near_command(const char *name);
/* Whether two names are the same when dashes are underscores, up to the end or an "=". */
bool near_same(const char *a, const char *b);

#endif

/* function.h: functions whose rules hand a gradient on. */
#ifndef AUTOGRAD_FUNCTION_H
#define AUTOGRAD_FUNCTION_H

#include "tally.h"

/* tl_function of one input whose rule gives it the gradient of the results, side by side, as it is. */
bool function_passing(tl_function_rule rule, void *context, tl_tensor *input, tl_tensor **outputs, int n_outputs);

#endif
